//! Which results of an op are one of its operands with some elements changed, and so better made in its memory.
//!
//! For a branch or a loop a result is, if it comes of the operand through ops that change a part, compute each element
//! of the same one, or leave the bytes as they are. That is a guess of what the plans of its programs will do: what
//! runs them copies where they do otherwise.
//!
//! In: an op. Out: pairs of the numbers of an operand and of a result, each in one pair at most. Cost: linear in the size
//! of the op's programs.

use std::sync::Arc;

use ferrax_ir::lowering::{Extents, Lowering};
use ferrax_ir::rules::Rules;
use ferrax_ir::tensor::element_count;
use ferrax_ir::{Atom, DType, Equation, Op, Program, Sizes, Type, Var, View};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use crate::tuning::Target;

/// Pairs of an operand and a result.
pub type Updates = SmallVec<[(usize, usize); 2]>;

/// Whether a leaf changes some elements of its first operand, in place if it can.
pub fn updates_operand(op: &Op) -> bool {
    matches!(op.view(), View::Leaf(rules) if rules.updates_operand())
}

/// See the head of this file.
pub fn updates(op: &Op, target: &Target) -> Updates {
    if updates_operand(op) {
        return smallvec![(0, 0)];
    }
    if target.inner_updates { Tracer::default().of_programs(op) } else { Updates::new() }
}

/// Whether a pair is one that a branch or a loop could be made in place for, whatever its programs do: an operand of a
/// branch, or the initial value of the same carry.
pub fn may_share(op: &Op, operand: usize, result: usize) -> bool {
    match op.view() {
        View::Cond(_) => operand > 0,
        View::While(op) => {
            result < op.body_jaxpr.outputs.len() && operand == op.cond_nconsts + op.body_nconsts + result
        }
        View::Scan(op) => result < op.num_carry && operand == op.num_consts + result,
        _ => operand == 0 && result == 0 && updates_operand(op),
    }
}

#[derive(Default)]
struct Tracer {
    /// Of programs, by address: the input that each output comes of.
    known: FxHashMap<usize, Arc<[Option<usize>]>>,
}

impl Tracer {
    fn of_programs(&mut self, op: &Op) -> Updates {
        match op.view() {
            View::Cond(op) => {
                let branches: Vec<_> = op.branches.iter().map(|branch| self.sources(branch)).collect();
                let Some((first, others)) = branches.split_first() else { return Updates::new() };
                let mut seen: FxHashSet<usize> = FxHashSet::default();
                let same = |(result, source): (usize, &Option<usize>)| {
                    let source = (*source)?;
                    let agreed = others.iter().all(|other| other.get(result) == Some(&Some(source)));
                    (agreed && seen.insert(source)).then_some((source + 1, result))
                };
                first.iter().enumerate().filter_map(same).collect()
            }
            View::While(op) => {
                self.carries(&op.body_jaxpr, op.body_nconsts, op.body_jaxpr.outputs.len(), op.cond_nconsts)
            }
            View::Scan(op) => self.carries(&op.jaxpr, op.num_consts, op.num_carry, 0),
            _ => Updates::new(),
        }
    }

    /// The carries of a loop that come of themselves. The body's inputs follow so many operands.
    fn carries(&mut self, body: &Arc<Program>, constants: usize, carries: usize, before: usize) -> Updates {
        let sources = self.sources(body);
        let own = |carry: &usize| sources.get(*carry) == Some(&Some(constants + carry));
        (0..carries).filter(own).map(|carry| (before + constants + carry, carry)).collect()
    }

    fn sources(&mut self, program: &Arc<Program>) -> Arc<[Option<usize>]> {
        let address = Arc::as_ptr(program).addr();
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let mut from: Vec<Option<usize>> = vec![None; program.types.len()];
        for (number, var) in program.inputs.iter().enumerate() {
            from[var.index()] = Some(number);
        }
        for equation in &program.equations {
            let source = |operand: usize| {
                equation.inputs.get(operand).and_then(Atom::as_var).and_then(|var| from[var.index()])
            };
            match equation.op.view() {
                View::Leaf(rules) => {
                    let [output] = equation.outputs[..] else { continue };
                    let operand =
                        operand_of(program, equation, rules, output, &|operand| source(operand).is_some());
                    from[output.index()] = operand.and_then(source);
                }
                _ => {
                    let found: SmallVec<[_; 2]> = self
                        .of_programs(&equation.op)
                        .into_iter()
                        .map(|(operand, result)| (result, source(operand)))
                        .collect();
                    for (result, source) in found {
                        from[equation.outputs[result].index()] = source;
                    }
                }
            }
        }
        let of_output = |output: &Atom| output.as_var().and_then(|var| from[var.index()]);
        let sources: Arc<[Option<usize>]> = program.outputs.iter().map(of_output).collect();
        self.known.insert(address, sources.clone());
        sources
    }
}

/// The operand of a leaf in whose memory its result may be, of those that `known` holds for.
fn operand_of(
    program: &Program,
    equation: &Equation,
    rules: &dyn Rules,
    output: Var,
    known: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    if rules.updates_operand() {
        return known(0).then_some(0);
    }
    let of = |ty: &Type| ty.as_array().and_then(|array| Some((array.dtype, array.sizes()?)));
    let result: (DType, Sizes) = of(&program.types[output.index()])?;
    let operand = |number: usize| of(&program.type_of(&equation.inputs[number]));
    if rules.lower() == Lowering::Elementwise {
        return (0..equation.inputs.len())
            .find(|&number| known(number) && operand(number).as_ref() == Some(&result));
    }
    if equation.inputs.len() != 1 || !known(0) {
        return None;
    }
    let (dtype, sizes) = operand(0)?;
    let extents = |dtype, sizes| Extents { dtype, sizes };
    let map = rules.index_map(&[extents(dtype, &sizes)], extents(result.0, &result.1)).ok()??;
    let whole = dtype == result.0 && element_count(&sizes) == element_count(&result.1);
    (whole && map.is_in_order(&sizes, &result.1)).then_some(0)
}
