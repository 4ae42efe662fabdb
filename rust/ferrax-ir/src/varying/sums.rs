//! What ops make of values that are sums over devices.
//!
//! A function of sums is what each device makes of its term only where it is linear in them. In goes an op and the types of its
//! operands, out comes whether it is: of ops that take sums at all, those of one group want all operands to be such sums
//! (additions, and what moves elements), those of the other one of them (products), the others being the same on all devices.

use std::sync::Arc;

use super::{Share, Varying, torn};
use crate::ops::{Binary, CumulativeKind, ReduceKind, ScatterKind, Unary};
use crate::{Op, Result, Type, unsupported};

/// Which operands of an op are sums, for the result to be one.
enum Linear {
    /// All.
    Jointly,
    /// All from this one on; those before choose or place.
    From(usize),
    /// The first alone.
    First,
    /// All but the second, which says where they are.
    Values,
    /// Any one.
    One,
    Never,
}

fn linear(op: &Op) -> Linear {
    match op {
        Op::Unary(Unary::Neg | Unary::Real | Unary::Imag | Unary::Conj) => Linear::Jointly,
        Op::Binary(Binary::Add | Binary::Sub | Binary::Complex) => Linear::Jointly,
        Op::Binary(Binary::Mul) | Op::DotGeneral(_) | Op::ConvGeneralDilated(_) => Linear::One,
        Op::Binary(Binary::Div) => Linear::First,
        Op::ConvertElementType(op) if op.new_dtype.is_inexact() => Linear::Jointly,
        Op::Copy(_) | Op::OptimizationBarrier(_) | Op::Name(_) | Op::StopGradient(_) => Linear::Jointly,
        Op::BroadcastInDim(_)
        | Op::Reshape(_)
        | Op::Transpose(_)
        | Op::Squeeze(_)
        | Op::Slice(_)
        | Op::Rev(_) => Linear::Jointly,
        Op::Concatenate(_) | Op::Pad(_) => Linear::Jointly,
        Op::SelectN(_) => Linear::From(1),
        Op::DynamicSlice(_) | Op::Gather(_) => Linear::First,
        Op::Scatter(op) if matches!(op.kind, ScatterKind::Set | ScatterKind::Add | ScatterKind::Sub) => {
            Linear::Values
        }
        Op::Reduce(op) if op.kind == ReduceKind::Sum => Linear::Jointly,
        Op::Cumulative(op) if op.kind == CumulativeKind::Sum => Linear::Jointly,
        Op::Fft(_) => Linear::Jointly,
        Op::AxisReduce(op) if op.is_sum() => Linear::Jointly,
        Op::Ppermute(_)
        | Op::Pbroadcast(_)
        | Op::AllGather(_)
        | Op::AllGatherInvariant(_)
        | Op::AllGatherReduced(_) => Linear::Jointly,
        Op::ReduceScatter(_) | Op::UnreducedReduceScatter(_) | Op::AllToAll(_) => Linear::Jointly,
        Op::Pvary(_) | Op::Preduced(_) | Op::ReducedVary(_) | Op::VaryUnreduced(_) => Linear::Jointly,
        _ => Linear::Never,
    }
}

/// Fails where operands are sums over devices in which the op is not linear, or differ where others are sums.
pub fn check(op: &Op, inputs: &[Type], united: Varying) -> Result<()> {
    if united.is_plain() {
        return Ok(());
    }
    if let Some(axis) = united.torn() {
        return Err(torn(&axis));
    }
    for axis in united.axes(Share::Unreduced) {
        let is_sum = |ty: &Type| ty.varying().share(&axis) == Some(Share::Unreduced);
        let count = inputs.iter().filter(|ty| is_sum(ty)).count();
        let fits = match linear(op) {
            Linear::Jointly => count == inputs.len(),
            Linear::From(first) => {
                inputs.iter().enumerate().all(|(number, ty)| is_sum(ty) == (number >= first))
            }
            Linear::First => count == 1 && inputs.first().is_some_and(is_sum),
            Linear::Values => inputs.iter().enumerate().all(|(number, ty)| is_sum(ty) != (number == 1)),
            Linear::One => count == 1,
            Linear::Never => false,
        };
        if !fits {
            let shown: Vec<String> = inputs.iter().map(|ty| ty.to_string()).collect();
            return Err(unsupported!(
                "unreduced rule for {} is not implemented for ({}): along '{axis}' a value is the sum of what devices \
                 have, in which the operation is not linear. Sum it first, by lax.psum(x, '{axis}')",
                op.name(),
                shown.join(", ")
            ));
        }
    }
    Ok(())
}

/// What an operand that lies over the axes as `own` is taken for beside others, all of which together lie as `united`.
pub fn beside(united: Varying, own: Varying) -> Varying {
    if united.is_plain() {
        return united;
    }
    Varying::of(united.names().iter().map(|name| match Share::of(name) {
        (Share::Unreduced, axis) if own.share(axis) != Some(Share::Unreduced) => Share::Reduced.mark(axis),
        _ => name.clone(),
    }))
}

/// An axis over which an array among the operands of an op element by element is reduced, and another is the same on all
/// devices: nothing says whether the other one's cotangent is a sum over the devices. Numbers say nothing and fit.
pub fn half_reduced(op: &Op, inputs: &[Type]) -> Option<Arc<str>> {
    if !matches!(op, Op::Binary(_) | Op::Compare(_) | Op::SelectN(_) | Op::Clamp(_)) {
        return None;
    }
    let arrays = || inputs.iter().filter(|ty| ty.as_array().is_some_and(|ty| ty.rank() > 0));
    let reduced = arrays().fold(Varying::NONE, |all, ty| all.union(ty.varying())).axes(Share::Reduced);
    reduced.into_iter().find(|axis| arrays().any(|ty| ty.varying().share(axis).is_none()))
}
