//! `cond` over a batch whose lanes take branches of their own, lane by lane.
//!
//! There are two forms. One runs every branch on the whole batch and lets each
//! lane select from the results; the other is a `scan` over the lanes around the
//! `cond` as it was, so a lane runs its own branch alone. The second is for
//! branches where the rest would be the dearer part:
//!
//! - a branch with a loop that ends when a condition says so (`while`): it might
//!   not end for a lane that was never to take it, and would run for all as long
//!   as for the slowest;
//! - else, if the work that lanes save by not running the other branches is more
//!   than what it costs to run kernels for each lane: see [`cheaper`].
//!
//! Its derivatives are those of a scan: residuals are stacked by lane, and lanes
//! add nothing to the derivative of a branch that they did not take.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::{Cond, Scan, Unary};
use ferrax_ir::rules::Batched;
use ferrax_ir::{Atom, Builder, Effect, Op, Program, Result, Type};

use crate::batch::Batching;

/// What it costs to run a program once, in additions of two floats that are in the
/// cache (about a quarter of a nanosecond).
#[derive(Clone, Copy, Default, Debug)]
struct Cost {
    /// On its own.
    alone: f64,
    /// As one lane of many.
    together: f64,
    /// Kernels to start.
    kernels: f64,
    /// Nobody knows how often a loop in it runs.
    endless: bool,
}

/// Starting a kernel in a body of a loop, of which each lane is one run.
const KERNEL: f64 = 100.0;
/// A function such as the sine of one element.
const FUNCTION: f64 = 8.0;
/// What else a lane costs: a step of the scan, a `cond`, and its operands.
const LANE: f64 = 600.0;

impl Cost {
    fn add(&mut self, other: Cost, times: f64) {
        self.alone += other.alone * times;
        self.together += other.together * times;
        self.kernels += other.kernels * times;
        self.endless |= other.endless;
    }

    fn of(program: &Program) -> Cost {
        program.measure(&|program, of| {
            let mut sum = Cost::default();
            for equation in &program.equations {
                let inner = equation.op.programs().into_iter().map(of);
                match equation.op.view() {
                    View::Leaf(_) => sum.add(leaf(program, equation), 1.0),
                    View::While(_) | View::Sweeps(_) => sum.endless = true,
                    View::Scan(op) => {
                        let length = op.length.as_const().map_or(f64::INFINITY, |length| length as f64);
                        inner.for_each(|cost| sum.add(cost, length));
                    }
                    View::Cond(op) => {
                        let share = 1.0 / op.branches.len().max(1) as f64;
                        inner.for_each(|cost| sum.add(cost, share));
                    }
                    View::Call(_) | View::Checkpoint(_) => inner.for_each(|cost| sum.add(cost, 1.0)),
                    // Their rules are no part of what runs.
                    View::CustomJvp(op) => sum.add(of(&op.call_jaxpr), 1.0),
                    View::CustomVjp(op) => sum.add(of(&op.call_jaxpr), 1.0),
                    View::Ruled(_, called) => sum.add(of(called), 1.0),
                }
            }
            sum
        })
    }
}

/// How many elements there are, if that is known.
fn elements(ty: &Type) -> f64 {
    let sizes = ty.as_array().and_then(|ty| ty.sizes());
    sizes.map_or(f64::INFINITY, |sizes| sizes.iter().map(|&size| size as f64).product())
}

fn leaf(program: &Program, equation: &ferrax_ir::Equation) -> Cost {
    let output: f64 = equation.outputs.iter().map(|var| elements(&program.types[var.index()])).sum();
    let input: f64 = equation.inputs.iter().map(|atom| elements(&program.type_of(atom))).sum();
    let (alone, together) = match &equation.op {
        Op::DotGeneral(op) => {
            let lhs = program.type_of(&equation.inputs[0]);
            let contracted: f64 = op
                .lhs_contracting
                .iter()
                .filter_map(|&axis| lhs.as_array()?.shape.get(axis)?.as_const())
                .map(|size| size as f64)
                .product();
            // A product of a matrix and a vector waits for memory; many are one of matrices.
            let by_vector = input > 0.5 * output * contracted;
            let work = output * contracted;
            (if by_vector { 2.0 * work } else { 0.5 * work }, 0.5 * work)
        }
        Op::ConvGeneralDilated(op) => {
            let window = program.type_of(&equation.inputs[1]);
            let sizes = window.as_array().map(|ty| ty.shape.clone()).unwrap_or_default();
            let terms = op.dims.rhs.iter().skip(1).filter_map(|&axis| sizes.get(axis)?.as_const());
            let work = output * terms.map(|size| size as f64).product::<f64>();
            (0.5 * work, 0.5 * work)
        }
        Op::Unary(Unary::Neg | Unary::Abs | Unary::Not | Unary::Square | Unary::Real | Unary::Imag) => {
            (output, output)
        }
        Op::Unary(_) => (FUNCTION * output, FUNCTION * output),
        Op::Reduce(_) | Op::ArgReduce(_) | Op::Cumulative(_) | Op::Scatter(_) => (input, input),
        Op::Sort(_) | Op::TopK(_) => (FUNCTION * input, FUNCTION * input),
        _ => (output, output),
    };
    Cost { alone, together, kernels: 1.0, endless: false }
}

/// Whether lanes had better run their own branches alone: if a branch has a loop
/// that ends by a condition, or if `n` branches are dearer together than a mean
/// one is alone with its `k` kernels: `sum together > mean alone + mean k KERNEL +
/// LANE`. The measure is the mean since nobody knows which branches lanes take.
///
/// Measured on one core, random predicates, select against lanes: branches of six
/// functions of 30 elements 0.08 and 0.17 microseconds a lane, of 300 elements
/// 0.74 and 0.45, of 10000 elements 25 and 8; two additions of 300 elements 0.13
/// and 0.10; products of a matrix of 300 rows and a vector 116 and 1331, of two
/// matrices of 100 rows 1498 and 105.
pub(super) fn cheaper(op: &Cond) -> bool {
    let mut sum = Cost::default();
    for branch in &op.branches {
        sum.add(Cost::of(branch), 1.0);
    }
    let count = op.branches.len() as f64;
    sum.endless || sum.together > (sum.alone + KERNEL * sum.kernels) / count + LANE
}

/// Whether the branches can be run lane by lane: collectives need all lanes at
/// once, and effects happen for all lanes in either branch where they do not have
/// to be kept from running.
pub(super) fn may(batching: &Batching<'_>, op: &Cond) -> bool {
    let effects = || op.branches.iter().flat_map(|branch| &branch.effects);
    let collective = effects().any(|effect| batching.axis_name.is_some_and(|name| effect.names(name)));
    let endless = || op.branches.iter().any(|branch| Cost::of(branch).endless);
    let happens = effects().any(Effect::happens);
    let stacked =
        op.branches.iter().flat_map(|branch| branch.output_types()).all(|ty| ty.as_array().is_some());
    op.branches.len() > 1 && !collective && stacked && (!happens || endless())
}

/// A `scan` over the lanes.
pub(super) fn one_by_one(
    batching: &Batching<'_>,
    b: &mut Builder,
    op: &Cond,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let fixed: Vec<usize> = (0..inputs.len()).filter(|&position| dims[position].is_none()).collect();
    let moving: Vec<usize> = (0..inputs.len()).filter(|&position| dims[position].is_some()).collect();
    let name = op.branches.first().map(|branch| branch.name.clone()).unwrap_or_else(|| Arc::from("cond"));
    let mut body = Builder::new(name);
    let mut operands: Vec<Option<Atom>> = vec![None; inputs.len()];
    let mut arguments = Vec::with_capacity(inputs.len());
    for &position in &fixed {
        operands[position] = Some(body.input(b.type_of(inputs[position])));
        arguments.push(inputs[position]);
    }
    for &position in &moving {
        let stacked = batching.to_front(b, inputs[position], dims[position])?;
        let element = ferrax_ir::ops::control::element_type(&b.array_type(stacked)?);
        operands[position] = Some(body.input(element));
        arguments.push(stacked);
    }
    let operands: Vec<Atom> = operands.into_iter().flatten().collect();
    let outputs: Vec<Atom> = body.emit(op.clone(), &operands)?.into_iter().map(Atom::Var).collect();
    let scan = Scan {
        jaxpr: Arc::new(body.finish(outputs)),
        length: batching.size.clone(),
        num_carry: 0,
        num_consts: fixed.len(),
        reverse: false,
        unroll: 1,
    };
    Ok(b.emit(scan, &arguments)?.into_iter().map(|var| (Atom::Var(var), Some(0))).collect())
}
