//! A scan in two: one that computes what does not depend on some inputs, and
//! one that takes residuals from it and does the rest.
//!
//! Where a residual lives decides what it costs. Constants of the loop are handed
//! to the second scan as they are; what depends on these alone is computed once,
//! before the loop; elements of the arrays gone through are taken from these
//! again; stacked outputs serve as they are; what a few operations make of those
//! is computed again (`again`). Only what is left is stacked, once.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::{Atom, Builder, Program, Result, Var, internal_error};
use rustc_hash::FxHashMap;

use super::again::compute_again;
use super::{invariant_inputs, missing, with_body};
use crate::control::invariant::{Hoisted, hoist, invariants_and_effects, moves_effect};
use crate::rewrite::{Needed, share, with_weak};
use crate::split::keeps_order;

/// Where the second scan finds a residual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// It is an input of the first scan that is the same at every step.
    Input(usize),
    /// It is computed before the loop.
    Before(usize),
    /// It is an element of an array that is an input of the first scan.
    Element(usize),
    /// It is stacked: an output of the first scan.
    Stacked(usize),
}

/// A body that gives residuals after its outputs, and one that takes these first.
pub(super) struct Bodies {
    /// The op with the first body, without the residuals counted in.
    pub op: Scan,
    pub first: Program,
    pub second: Program,
    pub residuals: usize,
    pub second_consts: usize,
    pub second_carry: usize,
}

/// The two scans, ready to be emitted.
pub(crate) struct Halves {
    before: Option<Program>,
    /// Inputs of the first body that `before` takes.
    before_inputs: Vec<bool>,
    first: Scan,
    second: Scan,
    /// Residuals that are constants of the second scan, and those that it goes through.
    constants: Vec<Place>,
    elements: Vec<Place>,
}

impl Halves {
    pub fn new(bodies: Bodies) -> Result<Halves> {
        let Bodies { op, first, second, residuals, second_consts, second_carry } = bodies;
        let original = op.jaxpr.clone();
        let op = with_body(&op, share(first, &original), op.num_consts, op.num_carry);
        let before_inputs = invariant_inputs(&op);
        let outputs =
            op.jaxpr.outputs.len().checked_sub(residuals).ok_or_else(|| missing("a residual", &op.jaxpr))?;

        // Residuals and effects that the constants determine come before the loop.
        let found = invariants_and_effects(&op.jaxpr, &before_inputs);
        let mut asked = Needed::new(&op.jaxpr);
        asked.add(&op.jaxpr.outputs[outputs..]);
        let equations = op.jaxpr.equations.iter().zip(&found);
        let roots: Vec<bool> = equations
            .map(|(equation, &found)| found && (asked.any(&equation.outputs) || moves_effect(equation)))
            .collect();
        let (before, mut first, handed) = match hoist(&op.jaxpr, &before_inputs, &roots)? {
            Some(Hoisted { outer, inner, handed }) => (Some(outer), inner, handed),
            None => (None, (*op.jaxpr).clone(), 0),
        };

        let mut places: FxHashMap<Atom, Place> = FxHashMap::default();
        let elements = op.num_consts + op.num_carry;
        for (position, &var) in first.inputs.iter().enumerate() {
            let place = match position.checked_sub(handed) {
                None => Place::Before(position),
                Some(own) if before_inputs[own] => Place::Input(own),
                Some(own) if own >= elements => Place::Element(own),
                Some(_) => continue,
            };
            places.insert(Atom::Var(var), place);
        }
        let asked = first.outputs.split_off(outputs);
        for (position, &atom) in first.outputs.iter().enumerate().skip(op.num_carry) {
            places.entry(atom).or_insert(Place::Stacked(position));
        }
        let own = second.inputs.len() - residuals;
        let (asked, mut second) = compute_again(&first, asked, |atom| places.contains_key(&atom), second)?;
        let residuals = second.inputs.len() - own;
        let (mut constants, mut elements) = (Vec::new(), Vec::new());
        let (mut constant_vars, mut element_vars): (Vec<Var>, Vec<Var>) = (Vec::new(), Vec::new());
        for (&var, atom) in second.inputs.iter().zip(asked) {
            let place = *places.entry(atom).or_insert_with(|| {
                first.outputs.push(atom);
                Place::Stacked(first.outputs.len() - 1)
            });
            match place {
                Place::Input(_) | Place::Before(_) => {
                    constants.push(place);
                    constant_vars.push(var);
                }
                Place::Element(_) | Place::Stacked(_) => {
                    elements.push(place);
                    element_vars.push(var);
                }
            }
        }
        let own = second.inputs.split_off(residuals);
        let (own_constants, rest) = own.split_at(second_consts.min(own.len()));
        let (carry, arrays) = rest.split_at(second_carry.min(rest.len()));
        let second_consts = constant_vars.len() + own_constants.len();
        second.inputs = [&constant_vars, own_constants, carry, &element_vars, arrays].concat();
        let first = share(first, &original);
        Ok(Halves {
            before,
            before_inputs,
            first: with_body(&op, first, handed + op.num_consts, op.num_carry),
            second: with_body(&op, Arc::new(second), second_consts, second_carry),
            constants,
            elements,
        })
    }

    /// Whether both scans have effects whose order matters.
    pub fn both_keep_order(&self) -> bool {
        [&self.first, &self.second].iter().all(|scan| scan.jaxpr.effects.iter().any(keeps_order))
    }

    /// Emits the first scan on these inputs. Gives its outputs, residuals
    /// included, and the values computed before it.
    pub fn emit_first(&self, b: &mut Builder, op: &Scan, inputs: &[Atom]) -> Result<First> {
        let before = match &self.before {
            None => Vec::new(),
            Some(program) => {
                let arguments: Vec<Atom> = super::chosen(inputs, &self.before_inputs).collect();
                inline_typed(b, program, &arguments)?
            }
        };
        let body = &self.first.jaxpr;
        if body.outputs.is_empty() && body.effects.is_empty() {
            return Ok(First { inputs: inputs.to_vec(), before, outputs: Vec::new() });
        }
        let arguments: Vec<Atom> = before.iter().chain(inputs).copied().collect();
        let outputs = b.emit(at_length(&self.first, op), &arguments)?;
        Ok(First { inputs: inputs.to_vec(), before, outputs: outputs.into_iter().map(Atom::Var).collect() })
    }

    /// The second scan with its inputs: the residuals, made by `known`, between
    /// the own constants, carry and arrays.
    pub fn second<T: Clone>(
        &self,
        op: &Scan,
        first: &First,
        known: impl Fn(Atom) -> T,
        (constants, carry, arrays): (&[T], &[T], &[T]),
    ) -> Result<(Scan, Vec<T>)> {
        let mut inputs = Vec::new();
        for &place in &self.constants {
            inputs.push(known(first.at(place)?));
        }
        inputs.extend(constants.iter().chain(carry).cloned());
        for &place in &self.elements {
            inputs.push(known(first.at(place)?));
        }
        inputs.extend_from_slice(arrays);
        Ok((at_length(&self.second, op), inputs))
    }

    /// Emits the second scan, if it does anything.
    pub fn emit_second(
        &self,
        b: &mut Builder,
        op: &Scan,
        first: &First,
        inputs: (&[Atom], &[Atom], &[Atom]),
    ) -> Result<Vec<Atom>> {
        if self.second.jaxpr.outputs.is_empty() && self.second.jaxpr.effects.is_empty() {
            return Ok(Vec::new());
        }
        let (second, arguments) = self.second(op, first, |atom| atom, inputs)?;
        Ok(b.emit(second, &arguments)?.into_iter().map(Atom::Var).collect())
    }
}

/// What the first scan was given and gave.
pub(super) struct First {
    inputs: Vec<Atom>,
    before: Vec<Atom>,
    pub outputs: Vec<Atom>,
}

impl First {
    fn at(&self, place: Place) -> Result<Atom> {
        let atom = match place {
            Place::Input(position) | Place::Element(position) => self.inputs.get(position),
            Place::Before(position) => self.before.get(position),
            Place::Stacked(position) => self.outputs.get(position),
        };
        atom.copied().ok_or_else(|| internal_error!("a residual of a scan is missing"))
    }
}

/// Bodies are shared between scans of different lengths and directions.
pub(super) fn at_length(scan: &Scan, op: &Scan) -> Scan {
    Scan { length: op.length.clone(), reverse: op.reverse, unroll: op.unroll, ..scan.clone() }
}

/// The equations of a program whose inputs get the weakness that it was typed with.
pub(crate) fn inline_typed(b: &mut Builder, program: &Program, arguments: &[Atom]) -> Result<Vec<Atom>> {
    let mut typed = Vec::with_capacity(arguments.len());
    for (&atom, ty) in arguments.iter().zip(program.input_types()) {
        let weak = ty.as_array().is_some_and(|ty| ty.weak);
        typed.push(with_weak(b, atom, weak)?);
    }
    Ok(b.inline(program, &typed)?.into_vec())
}
