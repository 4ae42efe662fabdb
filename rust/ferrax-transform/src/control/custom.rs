//! Rules of `custom_jvp_call` and `custom_vjp_call`.

use ferrax_ir::ops::{CustomJvp, CustomVjp};
use ferrax_ir::rules::Batched;
use ferrax_ir::{Atom, Builder, Equation, Result, unsupported};

use crate::batch::Batching;
use crate::jvp::{Forward, Tangents};
use crate::rewrite::Rewriter;

pub(crate) fn forward_jvp(
    _forward: &mut Forward,
    _rewriter: &mut Rewriter<'_>,
    _equation: &Equation,
    _op: &CustomJvp,
    _tangents: &[Option<Atom>],
) -> Result<Tangents> {
    Err(unsupported!("jvp of custom_jvp_call"))
}

pub(crate) fn forward_vjp(
    _forward: &mut Forward,
    _rewriter: &mut Rewriter<'_>,
    _equation: &Equation,
    _op: &CustomVjp,
    _tangents: &[Option<Atom>],
) -> Result<Tangents> {
    Err(unsupported!("jvp of custom_vjp_call"))
}

pub(crate) fn batch_jvp(
    _batching: &mut Batching<'_>,
    _b: &mut Builder,
    _op: &CustomJvp,
    _inputs: &[Atom],
    _dims: &[Option<usize>],
) -> Result<Batched> {
    Err(unsupported!("batch of custom_jvp_call"))
}

pub(crate) fn batch_vjp(
    _batching: &mut Batching<'_>,
    _b: &mut Builder,
    _op: &CustomVjp,
    _inputs: &[Atom],
    _dims: &[Option<usize>],
) -> Result<Batched> {
    Err(unsupported!("batch of custom_vjp_call"))
}
