//! What profiles call the steps of a plan: the ops that a step computes, and the user's line of the last of them.
//!
//! Cost: linear in the equations that a kernel computes; what several kernels compute counts for each.

use ferrax_ir::{Atom, Equation, Source, Var};
use rustc_hash::FxHashSet;

use crate::graph::{Class, Graph};
use crate::group::{Group, Item};

/// The name and the line of a step. Equal to every other one: plans that do the same are equal, whoever wrote them.
#[derive(Clone, Debug, Default)]
pub struct Label {
    pub name: Box<str>,
    pub source: Source,
}

impl PartialEq for Label {
    fn eq(&self, _: &Label) -> bool {
        true
    }
}

impl Eq for Label {}

/// Ops that a name lists.
const LISTED: usize = 5;

impl Label {
    /// A library call's.
    pub fn of_call(equation: &Equation) -> Label {
        Label { name: equation.op.name().into(), source: equation.source }
    }

    /// A kernel's: its ops in the order of the program, each name once, elementwise ones and reductions first of all.
    pub fn of_kernel(graph: &Graph<'_>, group: &Group) -> Label {
        let mut seen: FxHashSet<usize> = FxHashSet::default();
        let mut stack: Vec<Var> = Vec::new();
        for item in &group.items {
            match item {
                Item::Main(var) | Item::Reduce(var) | Item::Epilogue(var) => stack.push(*var),
                Item::Piece(piece) => {
                    stack.push(piece.target);
                    // What is written there is computed by this kernel if it is in no memory.
                    stack.extend(piece.source.as_var().filter(|var| graph.base[var.index()].is_none()));
                }
            }
        }
        while let Some(var) = stack.pop() {
            let Some(index) = graph.definition[var.index()].filter(|&index| seen.insert(index)) else {
                continue;
            };
            if graph.classes[index] != Class::Pieces {
                let inputs = graph.program.equations[index].inputs.iter().filter_map(Atom::as_var);
                stack.extend(inputs.filter(|var| graph.base[var.index()].is_none()));
            }
        }
        let mut order: Vec<usize> = seen.into_iter().collect();
        order.sort_unstable();
        let computes = |&index: &usize| !matches!(graph.classes[index], Class::Movement | Class::Alias);
        if order.iter().any(computes) {
            order.retain(computes);
        }
        let equations = || order.iter().map(|&index| &graph.program.equations[index]);
        let mut names: Vec<&str> = Vec::new();
        for equation in equations() {
            if !names.contains(&equation.op.name()) {
                names.push(equation.op.name());
            }
        }
        let more = names.len().saturating_sub(LISTED);
        names.truncate(LISTED);
        let mut name = names.join("_");
        if more > 0 {
            name.push_str(&format!("_and_{more}_more"));
        }
        let mut sources = equations().rev().map(|equation| equation.source);
        let source = sources.find(|source| source.is_known()).unwrap_or_default();
        Label { name: name.into(), source }
    }
}

#[cfg(test)]
mod tests {
    use ferrax_ir::Program;

    use crate::{Target, plan};

    fn names(equations: &str) -> Vec<String> {
        let text = format!("{{ lambda ; a:f32[64,64] b:f32[64,64]. let {equations} }}");
        let plan = plan(&Program::parse(&text).unwrap(), &Target::CPU).unwrap();
        plan.steps.iter().map(|step| step.label().name.to_string()).collect()
    }

    #[test]
    fn steps_are_called_after_what_they_compute() {
        let all = names(
            "c:f32[64,64] = tanh a
             d:f32[64,64] = mul c b
             e:f32[64] = reduce_sum[axes=(1,)] d
             f:f32[64] = exp e
             g:f32[64] = cumsum[axis=0 reverse=False] f
             h:f32[64] = mul g g in (h,)",
        );
        assert_eq!(all, ["tanh_mul_reduce_sum_exp", "cumsum", "mul"]);
    }

    #[test]
    fn names_are_short_and_say_each_op_once() {
        let all = names(
            "c:f32[64,64] = sin a
             d:f32[64,64] = cos c
             e:f32[64,64] = sin d
             f:f32[64,64] = exp e
             g:f32[64,64] = tanh f
             h:f32[64,64] = add g b
             i:f32[64,64] = mul h g
             j:f32[64,64] = neg i in (j,)",
        );
        assert_eq!(all, ["sin_cos_exp_tanh_add_and_2_more"]);
    }

    #[test]
    fn moves_are_named_where_there_is_nothing_else() {
        let turned = "c:f32[64,64] = transpose[permutation=(1, 0)] a";
        assert_eq!(names(&format!("{turned} in (c,)")), ["transpose"]);
        assert_eq!(names(&format!("{turned} d:f32[64,64] = add c b in (d,)")), ["add"]);
    }
}
