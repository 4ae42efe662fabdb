//! Forward-mode derivatives of `scan`: one scan with more of everything, or,
//! linearised, one scan for the primals and one for the tangents.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Builder, Equation, Program, Result};

use super::halves::{Bodies, Halves, at_length};
use super::{array_type, count, key, runs, settle, with_body, with_carry, within};
use crate::jvp::{Calls, Forward, Tangents};
use crate::reach::Through;
use crate::rewrite::Rewriter;

/// Tangents in a scan: which carries have them, and which outputs after a step.
struct Settled {
    carry: Vec<bool>,
    outputs: Vec<bool>,
}

impl Settled {
    /// The flags of a scan's inputs, the flags that outputs of the body must
    /// have, and whether those have them without further ado.
    fn body_flags(&self, op: &Scan, nonzero: &[bool]) -> (Vec<bool>, Vec<bool>, bool) {
        let (carry, stacked) = self.outputs.split_at(op.num_carry);
        let mut instantiate = self.carry.clone();
        instantiate.resize(op.num_carry + stacked.len(), false);
        (with_carry(op, nonzero, &self.carry), instantiate, within(&self.carry, carry))
    }

    /// Whether an output of the scan has a tangent that may differ from zero: a
    /// carry keeps its first one if there may be no step.
    fn nonzero(&self, op: &Scan) -> Vec<bool> {
        let (carry, stacked) = self.outputs.split_at(op.num_carry);
        [if runs(op) { carry } else { &self.carry }, stacked].concat()
    }

    /// The tangents of a scan's outputs from those that its body gives.
    fn found(&self, op: &Scan, given: &mut impl Iterator<Item = Atom>) -> Tangents {
        let emitted = self.carry.iter().chain(self.outputs.iter().skip(op.num_carry));
        let nonzero = self.nonzero(op);
        emitted
            .zip(nonzero)
            .map(|(&emitted, nonzero)| if emitted { given.next().filter(|_| nonzero) } else { None })
            .collect()
    }
}

/// A scan of primals and tangents.
pub(crate) struct ScanJvp {
    settled: Settled,
    scan: Scan,
}

/// A scan of primals and another of tangents.
pub(crate) struct LinearizedScan {
    settled: Settled,
    halves: Halves,
}

/// Emits the primal outputs, which it sets, and gives the tangents.
pub(crate) fn forward(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Scan,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    if forward.calls == Calls::Linearize {
        return linearized(forward, rewriter, equation, op, &nonzero, tangents);
    }
    let parts = jvp(forward, op, &nonzero)?;
    if !parts.settled.nonzero(op).contains(&true) {
        rewriter.copy(equation)?;
        return Ok(equation.outputs.iter().map(|_| None).collect());
    }
    let primals = rewriter.atoms(&equation.inputs)?;
    let given = parts.settled.tangents(&mut rewriter.builder, op, tangents)?;
    let (constants, carry, arrays) = op.split(&primals);
    let (constant_tangents, carry_tangents, array_tangents) = given.parts();
    let inputs = [constants, constant_tangents, carry, carry_tangents, arrays, array_tangents].concat();
    let results = rewriter.builder.emit(at_length(&parts.scan, op), &inputs)?;
    let results: Vec<Atom> = results.into_iter().map(Atom::Var).collect();
    let (carry, stacked) = results.split_at(parts.scan.num_carry);
    let (carry, carry_tangents) = carry.split_at(op.num_carry);
    let (stacked, stacked_tangents) = stacked.split_at(equation.outputs.len() - op.num_carry);
    for (&var, &atom) in equation.outputs.iter().zip(carry.iter().chain(stacked)) {
        rewriter.set(var, atom);
    }
    Ok(parts.settled.found(op, &mut carry_tangents.iter().chain(stacked_tangents).copied()))
}

fn jvp(forward: &mut Forward, op: &Scan, nonzero: &[bool]) -> Result<Arc<ScanJvp>> {
    let body = &op.jaxpr;
    let key = key(op, nonzero, &[]);
    if let Some(found) = forward.scan_jvps.get(body, key.clone()) {
        return Ok(found);
    }
    let start = forward.reach.carry(op, nonzero, Through::Tangents);
    let (settled, mut program) = settled(start, op, nonzero, |flags, instantiate| {
        let (program, outputs) = forward.jvp_callee(body, flags, instantiate)?;
        Ok((program, outputs.to_vec()))
    })?;
    let mut whole = Program::clone(&program);
    let flags = with_carry(op, nonzero, &settled.carry);
    let (constants, carry, _) = op.split(&flags);
    let (constants, carry) = (count(constants), count(carry));
    let tangents = whole.inputs.split_off(body.inputs.len());
    let (own_constants, own_carry, own_arrays) = op.split(&whole.inputs);
    let (constant_tangents, rest) = tangents.split_at(constants.min(tangents.len()));
    let (carry_tangents, array_tangents) = rest.split_at(carry.min(rest.len()));
    whole.inputs =
        [own_constants, constant_tangents, own_carry, carry_tangents, own_arrays, array_tangents].concat();
    let tangents = whole.outputs.split_off(body.outputs.len());
    let (own_carry, own_stacked) = whole.outputs.split_at(op.num_carry);
    let (carry_tangents, stacked_tangents) = tangents.split_at(carry.min(tangents.len()));
    whole.outputs = [own_carry, carry_tangents, own_stacked, stacked_tangents].concat();
    program = Arc::new(whole);
    let scan = with_body(op, program, op.num_consts + constants, op.num_carry + carry);
    Ok(forward.scan_jvps.insert(body, key, Arc::new(ScanJvp { settled, scan })))
}

fn linearized(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &Scan,
    nonzero: &[bool],
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let parts = linearize(forward, op, nonzero)?;
    if !parts.settled.nonzero(op).contains(&true) {
        rewriter.copy(equation)?;
        return Ok(equation.outputs.iter().map(|_| None).collect());
    }
    let primals = rewriter.atoms(&equation.inputs)?;
    let first = parts.halves.emit_first(&mut rewriter.builder, op, &primals)?;
    for (&var, &atom) in equation.outputs.iter().zip(&first.outputs) {
        rewriter.set(var, atom);
    }
    let given = parts.settled.tangents(&mut rewriter.builder, op, tangents)?;
    let results = parts.halves.emit_second(&mut rewriter.builder, op, &first, given.parts())?;
    Ok(parts.settled.found(op, &mut results.into_iter()))
}

fn linearize(forward: &mut Forward, op: &Scan, nonzero: &[bool]) -> Result<Arc<LinearizedScan>> {
    let body = &op.jaxpr;
    let key = key(op, nonzero, &[]);
    if let Some(found) = forward.scans.get(body, key.clone()) {
        return Ok(found);
    }
    let start = forward.reach.carry(op, nonzero, Through::Tangents);
    let (settled, linearized) = settled(start, op, nonzero, |flags, instantiate| {
        let linearized = forward.linearize_callee(body, flags, instantiate)?;
        let outputs = linearized.nonzero_out.clone();
        Ok((linearized, outputs))
    })?;
    let halves = Halves::new(Bodies {
        op: op.clone(),
        first: linearized.primal.clone(),
        second: linearized.linear.clone(),
        residuals: linearized.residuals,
        second_consts: count(op.split(nonzero).0),
        second_carry: count(&settled.carry),
    })?;
    Ok(forward.scans.insert(body, key, Arc::new(LinearizedScan { settled, halves })))
}

/// The carries with tangents, looked for from `start` on, and the body treated
/// for these.
fn settled<T>(
    start: Vec<bool>,
    op: &Scan,
    nonzero: &[bool],
    mut treat: impl FnMut(&[bool], &[bool]) -> Result<(T, Vec<bool>)>,
) -> Result<(Settled, T)> {
    let given = op.split(nonzero).1;
    let (carry, _, (body, outputs)) = settle(start, given, |carry| {
        let (body, outputs) = treat(&with_carry(op, nonzero, carry), &[])?;
        let found = outputs.iter().take(op.num_carry).copied().collect();
        Ok(((body, outputs), found))
    })?;
    let settled = Settled { carry, outputs };
    let (flags, instantiate, complete) = settled.body_flags(op, nonzero);
    let body = if complete { body } else { treat(&flags, &instantiate)?.0 };
    Ok((settled, body))
}

/// Tangents as the inputs of a scan.
struct Given {
    atoms: Vec<Atom>,
    constants: usize,
    carry: usize,
}

impl Given {
    fn parts(&self) -> (&[Atom], &[Atom], &[Atom]) {
        let (constants, rest) = self.atoms.split_at(self.constants);
        let (carry, arrays) = rest.split_at(self.carry);
        (constants, carry, arrays)
    }
}

impl Settled {
    /// The tangents given, with zeros for carries that have none at first.
    fn tangents(&self, b: &mut Builder, op: &Scan, tangents: &[Option<Atom>]) -> Result<Given> {
        let (constants, carry, arrays) = op.split(tangents);
        let mut atoms: Vec<Atom> = constants.iter().flatten().copied().collect();
        let constants = atoms.len();
        let vars = op.split(&op.jaxpr.inputs).1;
        for ((tangent, &flag), var) in carry.iter().zip(&self.carry).zip(vars) {
            match tangent {
                _ if !flag => {}
                Some(tangent) => atoms.push(*tangent),
                None => atoms.push(b.zeros(&array_type(&op.jaxpr, var)?.tangent())?),
            }
        }
        let carry = atoms.len() - constants;
        atoms.extend(arrays.iter().flatten());
        Ok(Given { atoms, constants, carry })
    }
}
