//! Rules of `scan`.

use ferrax_ir::ops::Scan;
use ferrax_ir::rules::{Batched, Operand};
use ferrax_ir::{Atom, Builder, Equation, Result, unsupported};

use crate::batch::Batching;
use crate::dce::{Elimination, Kept};
use crate::jvp::{Forward, Tangents};
use crate::partial_eval::PartialEvaluation;
use crate::rewrite::{Needed, Rewriter};
use crate::transpose::{Cotangents, Transposition};

/// Emits the primal outputs, which it sets, and gives the tangents.
pub(crate) fn forward(
    _forward: &mut Forward,
    _rewriter: &mut Rewriter<'_>,
    _equation: &Equation,
    _op: &Scan,
    _tangents: &[Option<Atom>],
) -> Result<Tangents> {
    Err(unsupported!("jvp of scan"))
}

/// Emits the cotangents of the linear operands.
pub(crate) fn transpose(
    _transposition: &mut Transposition,
    _b: &mut Builder,
    _op: &Scan,
    _operands: &[Operand],
    _cotangents: &[Option<Atom>],
) -> Result<Cotangents> {
    Err(unsupported!("transpose of scan"))
}

pub(crate) fn batch(
    _batching: &mut Batching<'_>,
    _b: &mut Builder,
    _op: &Scan,
    _inputs: &[Atom],
    _dims: &[Option<usize>],
) -> Result<Batched> {
    Err(unsupported!("batch of scan"))
}

/// Emits a known and an unknown part, sets the outputs, and says which of them
/// are unknown.
pub(crate) fn partial_eval(
    _evaluation: &mut PartialEvaluation,
    _rewriter: &mut Rewriter<'_>,
    _equation: &Equation,
    _op: &Scan,
    _unknown: &[bool],
) -> Result<Vec<bool>> {
    Err(unsupported!("partial evaluation of scan"))
}

/// The op without what nobody needs.
pub(crate) fn eliminate(
    _elimination: &mut Elimination,
    _op: &Scan,
    _equation: &Equation,
    _needed: &Needed,
) -> Result<Kept> {
    Ok(Kept::Whole)
}
