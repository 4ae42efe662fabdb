//! The passes from a flat program to its plan, in their order: `choose_roots → group → emit → place → verify`.
//!
//! Cost: that of the passes, for each round (see [`plan`]).

use ferrax_ir::{Atom, Equation, Op, Program, Result, Var, View, internal_error, verify};
use rustc_hash::FxHashMap;

use crate::emit::{Emission, emit_group};
use crate::graph::{Class, Graph};
use crate::group::{Grouping, Item, group};
use crate::label::Label;
use crate::place::{Pending, place};
use crate::plan::Plan;
use crate::profile::{Kind, Level, Span, What};
use crate::tuning::Target;
use crate::verify::{verify_places, verify_plan};

/// Plans a flat program (see [`crate::expand`]) for a machine.
///
/// Variables that could not be fused are stored, and planning starts over: it ends, for each round makes
/// at least one more variable a root or gives it a kernel to itself, and no variable goes back. A round
/// finds all of them that virtual code does not hide from each other, so the rounds are no more than
/// equations follow each other in virtual code, which [`Graph::choose_roots`] bounds.
pub fn plan(program: &Program, target: &Target) -> Result<Plan> {
    let _span = Span::begin(Level::Runs, || What::named(Kind::Compile, "plan"));
    let mut graph = Graph::new(program, target)?;
    loop {
        graph.choose_roots();
        let grouping = group(&graph)?;
        let stored = stored(&graph, &grouping);
        let mut pending = Vec::new();
        let mut unfused: Vec<Var> = Vec::new();
        for (number, group) in (0u32..).zip(&grouping.groups) {
            if let Some(index) = group.library {
                if !is_idle(&graph, &program.equations[index]) {
                    pending.push(Pending::Library(index));
                }
                continue;
            }
            match emit_group(&graph, &grouping, number, &stored)? {
                Emission::Kernel(None) => {}
                Emission::Kernel(Some(mut kernel)) => {
                    kernel.launch.label = Label::of_kernel(&graph, group);
                    pending.push(Pending::Kernel(Box::new(kernel.launch), kernel.operands));
                }
                Emission::Store(vars) => unfused.extend(vars),
            }
        }
        if unfused.is_empty() {
            let plan = place(&graph, pending)?;
            if verify::is_enabled() {
                verify_plan(&plan, program, target)?;
            } else {
                verify_places(&plan, program, target)?;
            }
            return Ok(plan);
        }
        unfused.sort_unstable();
        unfused.dedup();
        for var in unfused {
            let root = std::mem::replace(&mut graph.root[var.index()], true);
            if root && std::mem::replace(&mut graph.solo[var.index()], true) {
                return Err(internal_error!("variable {} of '{}' has no index map", var.0, program.name));
            }
        }
    }
}

/// Whether a library step has nothing to do: nothing is in its results, and nothing happens but them.
fn is_idle(graph: &Graph<'_>, equation: &Equation) -> bool {
    let leaf = matches!(equation.op.view(), View::Leaf(_)) && !matches!(equation.op, Op::Extension(_));
    leaf && equation.op.effects().is_empty()
        && !equation.outputs.is_empty()
        && equation.outputs.iter().all(|var| graph.counts[var.index()] == 0)
}

/// Roots that are needed outside their kernel.
fn stored(graph: &Graph<'_>, grouping: &Grouping) -> Vec<bool> {
    let mut stored = vec![false; graph.program.types.len()];
    for var in graph.program.outputs.iter().filter_map(Atom::as_var) {
        if let Some(base) = graph.base[var.index()] {
            stored[base.index()] = true;
        }
    }
    for (index, equation) in graph.program.equations.iter().enumerate() {
        if graph.classes[index] == Class::Library {
            for base in
                equation.inputs.iter().filter_map(Atom::as_var).filter_map(|var| graph.base[var.index()])
            {
                stored[base.index()] = true;
            }
        }
    }
    let mut seen: FxHashMap<Var, u32> = FxHashMap::default();
    for (number, group) in (0u32..).zip(&grouping.groups) {
        for item in &group.items {
            let mut stack: Vec<Var> = match item {
                Item::Main(var) | Item::Epilogue(var) | Item::Reduce(var) => graph
                    .equation_of(*var)
                    .into_iter()
                    .flat_map(|(e, _)| e.inputs.iter().filter_map(Atom::as_var))
                    .collect(),
                Item::Piece(piece) => piece.source.as_var().into_iter().collect(),
            };
            while let Some(var) = stack.pop() {
                if let Some(base) = graph.base[var.index()] {
                    stored[base.index()] |= grouping.group_of[base.index()] != Some(number);
                } else if seen.insert(var, number) != Some(number)
                    && let Some((equation, _)) = graph.equation_of(var)
                {
                    stack.extend(equation.inputs.iter().filter_map(Atom::as_var));
                }
            }
        }
    }
    stored
}
