//! What may be computed in vain: steps of loops that have ended, branches that are not taken.
//!
//! Until the host has read a word, it knows neither whether a loop goes on nor which branch is taken, and the GPU has
//! nothing to do. So all is computed whose cost is no more than that of a read (`tuning::Vain`), and results that
//! nobody needs are dropped. Costs are in operations, of which a GPU does about 2^40 a second. In: a step of a plan.
//! Out: its cost, roughly.

use ferrax_compile::{Argument, Launch};
use ferrax_ir::Op;
use ferrax_ir::scalar::{Body, ScalarOp};
use ferrax_ir::tensor::element_count;

/// What a launch costs, however little it computes.
pub const LAUNCH: u64 = 1 << 22;

/// Operations of a function, and of a call of the library for each element that goes in or out; launches of such a
/// call.
const FUNCTION: u64 = 32;
const CALL: u64 = 64;
const CALL_LAUNCHES: u64 = 8;

pub fn of_kernel(launch: &Launch) -> u64 {
    let operations = |body: &Body| {
        let one = |op: ScalarOp| if matches!(op, ScalarOp::Math(_)) { FUNCTION } else { 1 };
        body.instructions().iter().map(|instruction| one(instruction.op)).sum::<u64>()
    };
    let each = operations(&launch.kernel.body) + operations(&launch.kernel.epilogue);
    LAUNCH.saturating_add((launch.iterations() as u64).saturating_mul(each))
}

pub fn of_call(op: &Op, inputs: &[Argument], outputs: &[Argument]) -> u64 {
    let count = |arguments: &[Argument]| {
        let elements = arguments.iter().map(|argument| element_count(&argument.sizes) as u64);
        elements.fold(0, u64::saturating_add)
    };
    let product = |operand: usize, axes: &[usize]| {
        let sizes = inputs.get(operand).map_or(&[][..], |argument| &argument.sizes);
        let terms = axes.iter().map(|&axis| sizes.get(axis).map_or(1, |&size| size as u64));
        let terms = terms.fold(2, u64::saturating_mul);
        LAUNCH.saturating_add(count(outputs).saturating_mul(terms))
    };
    match op {
        Op::DotGeneral(dot) => product(0, &dot.lhs_contracting),
        Op::ConvGeneralDilated(convolution) => product(1, &convolution.dims.rhs[1..]),
        _ => {
            let elements = count(inputs).saturating_add(count(outputs));
            (CALL_LAUNCHES * LAUNCH).saturating_add(elements.saturating_mul(CALL))
        }
    }
}

/// The sum of costs, if all may be computed in vain.
pub fn total(costs: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    costs.into_iter().try_fold(0u64, |sum, cost| Some(sum.saturating_add(cost?)))
}

/// What it costs to copy arrays of so many bytes.
pub fn of_copies(bytes: &[usize]) -> u64 {
    bytes.iter().fold(LAUNCH, |sum, &bytes| sum.saturating_add(bytes as u64))
}
