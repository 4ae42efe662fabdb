//! Rules of `scan`.
//!
//! | module | holds |
//! |---|---|
//! | `forward` | jvp and linearisation |
//! | `halves`, `again` | a scan in two, and how values get from the first to the second |
//! | `transpose`, `batch`, `partial_eval`, `eliminate` | the rules of these names |
//! | `simplify` | scans of no step or one, carries that are constants |
//!
//! Each rule starts with the carries that it can have to treat (that can have
//! tangents, be batched, …) for what depends on what (`reach`), and drops those
//! that the treated body does not need after all. Dependence is nearly always
//! right, so the body is treated once.

mod again;
mod batch;
mod eliminate;
mod forward;
mod halves;
mod partial_eval;
mod simplify;
mod transpose;

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Program, Result, Type, Var, internal_error};

pub(crate) use batch::batch;
pub(crate) use eliminate::eliminate;
pub(crate) use forward::{LinearizedScan, ScanJvp, forward};
pub(crate) use halves::inline_typed;
pub(crate) use partial_eval::{SplitScan, partial_eval};
pub(crate) use simplify::simplified;
pub(crate) use transpose::{Backward, transpose};

/// How a scan's inputs are divided, and flags: what programs made from a body
/// depend on besides it.
pub(crate) type Key = (usize, usize, Vec<bool>, Vec<bool>);

fn key(op: &Scan, flags: &[bool], others: &[bool]) -> Key {
    (op.num_consts, op.num_carry, flags.to_vec(), others.to_vec())
}

/// The op with another body and division of its inputs.
fn with_body(op: &Scan, jaxpr: Arc<Program>, num_consts: usize, num_carry: usize) -> Scan {
    Scan { jaxpr, num_consts, num_carry, ..op.clone() }
}

/// Whether the body certainly runs.
pub(crate) fn runs(op: &Scan) -> bool {
    op.length.as_const().is_some_and(|length| length > 0)
}

/// The flagged ones of `items`.
pub(crate) fn chosen<'a, T: Clone + 'a>(
    items: impl IntoIterator<Item = &'a T>,
    flags: &'a [bool],
) -> impl Iterator<Item = T> {
    items.into_iter().zip(flags).filter(|(_, flag)| **flag).map(|(item, _)| item.clone())
}

pub(crate) fn count(flags: &[bool]) -> usize {
    flags.iter().filter(|flag| **flag).count()
}

pub(crate) fn negated(flags: &[bool]) -> Vec<bool> {
    flags.iter().map(|flag| !flag).collect()
}

pub(crate) fn union(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| *a || *b).collect()
}

pub(crate) fn within(a: &[bool], b: &[bool]) -> bool {
    a.iter().zip(b).all(|(a, b)| !*a || *b)
}

/// The flags of a scan's inputs with others for the carry.
fn with_carry(op: &Scan, flags: &[bool], carry: &[bool]) -> Vec<bool> {
    let (constants, _, arrays) = op.split(flags);
    [constants, carry, arrays].concat()
}

/// The carries to treat, and what `treat` made of the body for them: it gives
/// the carries that need it after one step. `start` holds those that may, `given`
/// those that do at the outset. Ends after a round for each carry and one.
pub(crate) fn settle<T>(
    start: Vec<bool>,
    given: &[bool],
    mut treat: impl FnMut(&[bool]) -> Result<(T, Vec<bool>)>,
) -> Result<(Vec<bool>, Vec<bool>, T)> {
    let mut carry = start;
    let mut growing = false;
    loop {
        let (value, found) = treat(&carry)?;
        let next = union(&found, given);
        if next == carry || (growing && within(&next, &carry)) {
            return Ok((carry, found, value));
        }
        growing |= !within(&next, &carry);
        carry = if growing { union(&carry, &next) } else { next };
    }
}

/// The inputs of a body that keep their value from step to step: constants, and
/// carries that are handed on as they are.
fn invariant_inputs(op: &Scan) -> Vec<bool> {
    let body = &op.jaxpr;
    let kept = |position: usize, var: Var| {
        position < op.num_consts
            || body.outputs[..op.num_carry].get(position - op.num_consts) == Some(&Atom::Var(var))
    };
    body.inputs.iter().enumerate().map(|(position, &var)| kept(position, var)).collect()
}

/// What a program has at each place of a list, where one is missing.
fn missing(what: &str, program: &Program) -> ferrax_ir::Error {
    internal_error!("{what} of '{}' is missing", program.name)
}

fn array_type<'a>(program: &'a Program, var: &Var) -> Result<&'a ferrax_ir::ArrayType> {
    match &program.types[var.index()] {
        Type::Array(ty) => Ok(ty),
        other => Err(internal_error!("a value of type {other} of '{}' is no array", program.name)),
    }
}
