//! A `cond` in two that are run one after the other: a known and an unknown
//! one, or a primal and a linear one.
//!
//! What the second needs of the first comes by the shortest way: an operand of
//! the first is handed to both, an output of the first is read as it is, and
//! what is left takes slots that the branches share: each branch fills the slots
//! of the types that it needs and leaves any value in the others.

use std::sync::Arc;

use ferrax_ir::ops::Cond;
use ferrax_ir::{ArrayType, Atom, Builder, Program, Result, Type, internal_error, unsupported};
use rustc_hash::FxHashMap;

use crate::control::wiring::{Input, Output, Wiring, Wirings, old_inputs, old_outputs};

/// A branch in two halves.
pub(super) struct Branch<'a> {
    pub origin: &'a Arc<Program>,
    /// Operands to outputs and then residuals.
    pub first: &'a Program,
    /// Residuals and then the late operands.
    pub second: &'a Program,
    pub residuals: usize,
}

/// The halves of all branches, which agree in their operands and outputs.
pub(super) struct Parts<'a> {
    /// The flags that the halves were made with.
    pub made: (Vec<bool>, Vec<bool>),
    /// Of the first half, residuals excepted.
    pub outputs: usize,
    pub branches: Vec<Branch<'a>>,
}

/// Where the second half finds a residual.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    /// An operand of the first half.
    Operand(usize),
    /// An output of the first half.
    Output(usize),
    Slot(usize),
}

impl Parts<'_> {
    /// Emits both halves. Gives the outputs of the first and those of the second.
    pub fn emit(
        &self,
        wirings: &mut Wirings,
        b: &mut Builder,
        index: Atom,
        operands: &[Atom],
        late: &[Atom],
    ) -> Result<(Vec<Atom>, Vec<Atom>)> {
        let mut slots: Vec<ArrayType> = Vec::new();
        let places =
            self.branches.iter().map(|branch| self.places(branch, &mut slots)).collect::<Result<Vec<_>>>()?;
        let mut read: Vec<Place> = places.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();

        let mut firsts = Vec::with_capacity(self.branches.len());
        let mut seconds = Vec::with_capacity(self.branches.len());
        for (branch, places) in self.branches.iter().zip(&places) {
            let (flags, others) = self.made.clone();
            let wiring = self.first(branch, places, &slots);
            firsts.push(wirings.wire(branch.origin, ("first", flags, others), branch.first, wiring)?);
            let (flags, others) = self.made.clone();
            let wiring = self.second(branch, places, &read, &slots);
            seconds.push(wirings.wire(branch.origin, ("second", flags, others), branch.second, wiring)?);
        }
        let silent = seconds.iter().all(|second| second.outputs.is_empty() && second.effects.is_empty());

        let inputs: Vec<Atom> = std::iter::once(index).chain(operands.iter().copied()).collect();
        let mut found: Vec<Atom> =
            b.emit(Cond { branches: firsts }, &inputs)?.into_iter().map(Atom::Var).collect();
        if silent {
            found.truncate(self.outputs);
            return Ok((found, Vec::new()));
        }
        let mut inputs = vec![index];
        for place in read {
            let atom = match place {
                Place::Operand(position) => operands.get(position),
                Place::Output(position) => found.get(position),
                Place::Slot(slot) => found.get(self.outputs + slot),
            };
            inputs.push(*atom.ok_or_else(|| internal_error!("a residual of cond is missing at {place:?}"))?);
        }
        inputs.extend(late);
        let second = b.emit(Cond { branches: seconds }, &inputs)?.into_iter().map(Atom::Var).collect();
        found.truncate(self.outputs);
        Ok((found, second))
    }

    /// Where the residuals of a branch are to be found; adds the slots that it
    /// needs and that are not there yet.
    fn places(&self, branch: &Branch<'_>, slots: &mut Vec<ArrayType>) -> Result<Vec<Place>> {
        let (outputs, residuals) = branch.first.outputs.split_at(self.outputs);
        let mut by_atom: FxHashMap<Atom, Place> = FxHashMap::default();
        for (position, &var) in branch.first.inputs.iter().enumerate() {
            by_atom.insert(Atom::Var(var), Place::Operand(position));
        }
        for (position, &atom) in outputs.iter().enumerate() {
            by_atom.entry(atom).or_insert(Place::Output(position));
        }
        let mut taken = vec![false; slots.len()];
        let mut places = Vec::with_capacity(residuals.len());
        for atom in residuals {
            if let Some(&place) = by_atom.get(atom) {
                places.push(place);
                continue;
            }
            let Type::Array(ty) = branch.first.type_of(atom) else {
                return Err(unsupported!("a branch of cond needs {} again", branch.first.type_of(atom)));
            };
            let ty = ty.with_weak(false);
            let free = (0..slots.len()).find(|&slot| !taken[slot] && slots[slot] == ty);
            let slot = free.unwrap_or_else(|| {
                slots.push(ty);
                taken.push(false);
                slots.len() - 1
            });
            taken[slot] = true;
            places.push(Place::Slot(slot));
        }
        Ok(places)
    }

    fn first(&self, branch: &Branch<'_>, places: &[Place], slots: &[ArrayType]) -> Wiring {
        let filled = slots.iter().enumerate().map(|(slot, ty)| {
            let residual = places.iter().position(|&place| place == Place::Slot(slot));
            residual
                .map_or_else(|| Output::Filler(ty.clone()), |residual| Output::Old(self.outputs + residual))
        });
        Wiring {
            inputs: old_inputs(0..branch.first.inputs.len()).collect(),
            outputs: old_outputs(0..self.outputs).chain(filled).collect(),
        }
    }

    fn second(&self, branch: &Branch<'_>, places: &[Place], read: &[Place], slots: &[ArrayType]) -> Wiring {
        let first = branch.first;
        let handed = read.iter().map(|place| {
            let residual = places.iter().position(|own| own == place);
            residual.map_or_else(
                || {
                    Input::New(match *place {
                        Place::Operand(position) => first.types[first.inputs[position].index()].clone(),
                        Place::Output(position) => first.type_of(&first.outputs[position]),
                        Place::Slot(slot) => slots[slot].clone().into(),
                    })
                },
                Input::Old,
            )
        });
        Wiring {
            inputs: handed.chain(old_inputs(branch.residuals..branch.second.inputs.len())).collect(),
            outputs: old_outputs(0..branch.second.outputs.len()).collect(),
        }
    }
}
