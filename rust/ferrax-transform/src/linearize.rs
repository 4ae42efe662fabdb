//! Linearisation: the derivative at a point as a program of its own.
//!
//! In: a program and which of its inputs have tangents. Out: the primal program
//! (same inputs; outputs, then residuals) and the linear program (residuals and
//! tangents to the tangents of the outputs that depend on them). Invariants:
//! the linear program is linear in its tangents; residuals are values that it
//! needs, each once; a residual may be an input or an output of the primal
//! program; literals and captured arrays are not residuals. Cost: linear; each
//! sub-program is treated once for each set of flags.

use std::sync::Arc;

use ferrax_ir::ops::Call;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Builder, Program, Result, internal_error};
use rustc_hash::FxHashMap;

use crate::jvp::{Calls, Forward, Tangents};
use crate::split::split;

/// A linearised program; see the module.
#[derive(Clone, Debug)]
pub struct Linearized {
    /// Inputs to outputs ++ residuals.
    pub primal: Program,
    /// Residuals ++ tangents of the inputs that have one, to the tangents of
    /// the outputs flagged in `nonzero_out`.
    pub linear: Program,
    pub nonzero_out: Vec<bool>,
    /// How many residuals there are.
    pub residuals: usize,
}

pub fn linearize(program: &Program, nonzero: &[bool]) -> Result<Linearized> {
    Forward::new(Calls::Linearize).linearize(program, nonzero, &[])
}

impl Forward {
    fn linearize(&mut self, program: &Program, nonzero: &[bool], instantiate: &[bool]) -> Result<Linearized> {
        let joint = self.joint(program, nonzero, instantiate)?;
        let nonzero_out = joint.tangents.iter().map(Option::is_some).collect();
        let tangents: Vec<Atom> = joint.tangents.into_iter().flatten().collect();
        let primals = program.inputs.len();
        let both = joint.builder.finish([]);
        let unknown: Vec<bool> = (0..both.inputs.len()).map(|position| position >= primals).collect();
        let halves = split(&both, &unknown, &joint.outputs, &tangents)?;
        debug_verify(&halves.known, "linearize (primal)")?;
        debug_verify(&halves.unknown, "linearize (linear)")?;
        Ok(Linearized {
            primal: halves.known,
            linear: halves.unknown,
            nonzero_out,
            residuals: halves.residuals,
        })
    }

    /// A linearised sub-program; outputs flagged in `instantiate` have a tangent
    /// even if it is zero.
    pub(crate) fn linearize_callee(
        &mut self,
        program: &Arc<Program>,
        nonzero: &[bool],
        instantiate: &[bool],
    ) -> Result<Arc<Linearized>> {
        let key = (nonzero.to_vec(), instantiate.to_vec());
        if let Some(found) = self.linearized.get(program, key.clone()) {
            return Ok(found);
        }
        let linearized = self.linearize(program, nonzero, instantiate)?;
        Ok(self.linearized.insert(program, key, Arc::new(linearized)))
    }

    pub(crate) fn linearized_call(
        &mut self,
        program: &Arc<Program>,
        nonzero: Vec<bool>,
    ) -> Result<Arc<LinearizedCall>> {
        if let Some(found) = self.linearized_calls.get(program, nonzero.clone()) {
            return Ok(found);
        }
        let linearized = self.linearize(program, &nonzero, &[])?;
        let halves = Halves::new(linearized.primal, linearized.linear, program.outputs.len());
        let callee = LinearizedCall { halves, nonzero_out: linearized.nonzero_out };
        Ok(self.linearized_calls.insert(program, nonzero, Arc::new(callee)))
    }
}

/// Where the caller finds a residual of a callee.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Residual {
    /// It is an input of the first half.
    Input(usize),
    /// It is an output of the first half.
    Output(usize),
}

/// The two halves of a callee, ready to be called one after the other.
/// Residuals that are inputs or outputs anyway are not handed over again.
pub(crate) struct Halves {
    first: Arc<Program>,
    second: Arc<Program>,
    residuals: Vec<Residual>,
}

impl Halves {
    /// `first` gives `outputs` results and then residuals, which are the first
    /// inputs of `second`.
    pub fn new(mut first: Program, second: Program, outputs: usize) -> Self {
        let inputs: FxHashMap<Atom, usize> =
            first.inputs.iter().enumerate().map(|(position, &var)| (Atom::Var(var), position)).collect();
        let all = std::mem::take(&mut first.outputs);
        let mut positions: FxHashMap<Atom, usize> = FxHashMap::default();
        let mut residuals = Vec::with_capacity(all.len() - outputs);
        for (index, atom) in all.into_iter().enumerate() {
            if index < outputs {
                positions.entry(atom).or_insert(index);
                first.outputs.push(atom);
            } else if let Some(&position) = inputs.get(&atom) {
                residuals.push(Residual::Input(position));
            } else {
                let position = *positions.entry(atom).or_insert_with(|| {
                    first.outputs.push(atom);
                    first.outputs.len() - 1
                });
                residuals.push(Residual::Output(position));
            }
        }
        Halves { first: Arc::new(first), second: Arc::new(second), residuals }
    }

    /// Emits both calls. Gives the results of the first half (residuals
    /// included) and of the second.
    pub fn emit(
        &self,
        b: &mut Builder,
        call: &Call,
        known: &[Atom],
        unknown: impl IntoIterator<Item = Atom>,
    ) -> Result<(Vec<Atom>, Vec<Atom>)> {
        let op = |program: &Arc<Program>| Call {
            name: call.name.clone(),
            program: program.clone(),
            inline: call.inline,
        };
        let first: Vec<Atom> = b.emit(op(&self.first), known)?.into_iter().map(Atom::Var).collect();
        if self.second.outputs.is_empty() && self.second.effects.is_empty() {
            return Ok((first, Vec::new()));
        }
        let inputs: Vec<Atom> = self
            .residuals
            .iter()
            .map(|residual| match *residual {
                Residual::Input(position) => known.get(position),
                Residual::Output(position) => first.get(position),
            })
            .map(|atom| {
                atom.copied().ok_or_else(|| internal_error!("a residual of '{}' is missing", call.name))
            })
            .chain(unknown.into_iter().map(Ok))
            .collect::<Result<_>>()?;
        let second = b.emit(op(&self.second), &inputs)?.into_iter().map(Atom::Var).collect();
        Ok((first, second))
    }
}

/// A linearised callee.
pub(crate) struct LinearizedCall {
    halves: Halves,
    nonzero_out: Vec<bool>,
}

impl LinearizedCall {
    /// Emits both calls. Gives the primal outputs and their tangents.
    pub fn emit(
        &self,
        b: &mut Builder,
        call: &Call,
        arguments: &[Atom],
        tangents: impl IntoIterator<Item = Atom>,
    ) -> Result<(Vec<Atom>, Tangents)> {
        let (mut primals, tangents) = self.halves.emit(b, call, arguments, tangents)?;
        primals.truncate(self.nonzero_out.len());
        let mut tangents = tangents.into_iter();
        Ok((
            primals,
            self.nonzero_out.iter().map(|&flag| if flag { tangents.next() } else { None }).collect(),
        ))
    }
}
