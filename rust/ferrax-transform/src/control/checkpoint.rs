//! Rules of `checkpoint`.

use ferrax_ir::ops::Checkpoint;
use ferrax_ir::rules::{Batched, Operand};
use ferrax_ir::{Atom, Builder, Equation, Result, unsupported};

use crate::batch::Batching;
use crate::dce::{Elimination, Kept};
use crate::jvp::{Forward, Tangents};
use crate::rewrite::{Needed, Rewriter};
use crate::transpose::{Cotangents, Transposition};

/// Emits the primal outputs, which it sets, and gives the tangents.
pub(crate) fn forward(
    _forward: &mut Forward,
    _rewriter: &mut Rewriter<'_>,
    _equation: &Equation,
    _op: &Checkpoint,
    _tangents: &[Option<Atom>],
) -> Result<Tangents> {
    Err(unsupported!("jvp of checkpoint"))
}

/// Emits the cotangents of the linear operands.
pub(crate) fn transpose(
    _transposition: &mut Transposition,
    _b: &mut Builder,
    _op: &Checkpoint,
    _operands: &[Operand],
    _cotangents: &[Option<Atom>],
) -> Result<Cotangents> {
    Err(unsupported!("transpose of checkpoint"))
}

pub(crate) fn batch(
    _batching: &mut Batching<'_>,
    _b: &mut Builder,
    _op: &Checkpoint,
    _inputs: &[Atom],
    _dims: &[Option<usize>],
) -> Result<Batched> {
    Err(unsupported!("batch of checkpoint"))
}

/// The op without what nobody needs.
pub(crate) fn eliminate(
    _elimination: &mut Elimination,
    _op: &Checkpoint,
    _equation: &Equation,
    _needed: &Needed,
) -> Result<Kept> {
    Ok(Kept::Whole)
}
