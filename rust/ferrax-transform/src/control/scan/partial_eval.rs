//! `scan` of known and unknown inputs: a scan of what is known, and one of the rest.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Equation, Result};

use super::halves::{Bodies, Halves};
use super::{chosen, count, key, negated, settle, with_body, with_carry, within};
use crate::partial_eval::PartialEvaluation;
use crate::reach::Through;
use crate::rewrite::Rewriter;

/// A scan in a known and an unknown half.
pub(crate) struct SplitScan {
    pub(super) halves: Halves,
    /// The inputs of the body that are unknown.
    pub(super) unknown: Vec<bool>,
    pub(super) unknown_out: Vec<bool>,
}

/// Emits a known and an unknown part, sets the outputs, and says which of them
/// are unknown. Where both would have effects whose order matters, those of the
/// steps could not alternate any more: then the whole scan is unknown.
pub(crate) fn partial_eval(
    evaluation: &mut PartialEvaluation,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Scan,
    unknown: &[bool],
) -> Result<Vec<bool>> {
    let parts = split(evaluation, op, unknown)?;
    if parts.halves.both_keep_order() {
        rewriter.copy(equation)?;
        return Ok(vec![true; equation.outputs.len()]);
    }
    let inputs = rewriter.atoms(&equation.inputs)?;
    let b = &mut rewriter.builder;
    b.source = equation.source;
    let known: Vec<Atom> = chosen(&inputs, &negated(&parts.unknown)).collect();
    let first = parts.halves.emit_first(b, op, &known)?;
    let late = parts.late(op, &inputs);
    let second = parts.halves.emit_second(b, op, &first, (&late.0, &late.1, &late.2))?;
    let (mut first, mut second) = (first.outputs.into_iter(), second.into_iter());
    for (&var, &flag) in equation.outputs.iter().zip(&parts.unknown_out) {
        if let Some(atom) = if flag { second.next() } else { first.next() } {
            rewriter.set(var, atom);
        }
    }
    Ok(parts.unknown_out.clone())
}

impl SplitScan {
    /// Of a scan's inputs those that the unknown half takes: constants, carry, arrays.
    pub(super) fn late<T: Clone>(&self, op: &Scan, inputs: &[T]) -> (Vec<T>, Vec<T>, Vec<T>) {
        let (constants, carry, arrays) = op.split(inputs);
        let flags = op.split(&self.unknown);
        let late = |items: &[T], flags: &[bool]| chosen(items, flags).collect();
        (late(constants, flags.0), late(carry, flags.1), late(arrays, flags.2))
    }
}

/// The halves of a scan with these inputs unknown.
pub(super) fn split(
    evaluation: &mut PartialEvaluation,
    op: &Scan,
    unknown: &[bool],
) -> Result<Arc<SplitScan>> {
    let body = &op.jaxpr;
    let key = key(op, unknown, &[]);
    if let Some(found) = evaluation.scans.get(body, key.clone()) {
        return Ok(found);
    }
    let start = evaluation.reach.carry(op, unknown, Through::Everything);
    let given = op.split(unknown).1;
    let (carry, found, mut parts) = settle(start, given, |carry| {
        let parts = evaluation.callee(body, &with_carry(op, unknown, carry), &[])?;
        let carry = parts.unknown_out.iter().take(op.num_carry).copied().collect();
        Ok((parts, carry))
    })?;
    let flags = with_carry(op, unknown, &carry);
    if !within(&carry, &found) {
        parts = evaluation.callee(body, &flags, &carry)?;
    }
    let (constants, _, _) = op.split(&flags);
    let known_consts = op.num_consts - count(constants);
    let halves = Halves::new(Bodies {
        op: with_body(op, body.clone(), known_consts, op.num_carry - count(&carry)),
        first: parts.known.clone(),
        second: parts.unknown.clone(),
        residuals: parts.residuals,
        second_consts: count(constants),
        second_carry: count(&carry),
    })?;
    let split = SplitScan { halves, unknown: flags, unknown_out: parts.unknown_out.clone() };
    Ok(evaluation.scans.insert(body, key, Arc::new(split)))
}
