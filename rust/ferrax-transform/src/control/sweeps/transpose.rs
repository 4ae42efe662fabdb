//! Loops turned around whose steps depend on values that are not linear.
//!
//! Each sweep is split into what it computes of known values and what is linear
//! in the others. The known halves run first, in order, and record what the
//! linear ones need of each step; then the linear halves run transposed, last
//! sweep first and each in the other direction, adding up the cotangents of the
//! constants. A record's cotangent comes from the transposes of all sweeps that
//! read it, which leave it as records of their own.
//!
//! So a `while` becomes one sweep forwards and one backwards. Nothing of a step
//! lives outside of the op: between the forward and the backward pass of a
//! program only the loop's inputs are kept, and the loop runs once more before it
//! is gone through backwards. Cost: memory for the residuals of all steps while the
//! op runs, save what is the same at every step, and the time of one more forward
//! pass for each loop around an equation: the steps of a loop in a loop are made
//! three times, in the forward pass, in the outer forward sweep, which records the
//! inner loop's inputs, and in the inner forward sweep, which the outer backward
//! one runs; those at depth `d` are made `d + 1` times.
//!
//! Why the records are not kept between the passes, which would do with one run:
//! they would be values of the program, one for each step of all loops around,
//! and their number is known to no type. An array needs a bound (that is what
//! `max_steps` is for: `while_loop/bounded.rs`); a value that holds any number of
//! arrays would be a type that every op, transformation and saved program had to
//! know. Nor can the two runs be one op where both are in a program: the cotangents
//! that go in come of the values that come out.

use std::sync::Arc;

use ferrax_ir::ops::{Sweeps, While};
use ferrax_ir::rules::Operand;
use ferrax_ir::{ArrayType, Atom, Builder, Program, Result, Type, internal_error, value_error};

use super::{Flow, of_while};
use crate::control::invariant::{Hoisted, hoist, invariants};
use crate::control::scan::{chosen, count, inline_typed, negated, union, within};
use crate::control::wiring::{Input, Wiring, old_inputs, old_outputs};
use crate::partial_eval::PartialEval;
use crate::reach::Through;
use crate::transpose::{Before, Cotangents, Transposition, Wanted, cotangent_type};

/// Where the transposed half of a step finds a residual.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Among the constants of the new op.
    Constant(usize),
    /// Among its records.
    Record(usize),
}

/// A sweep in two.
struct Half {
    sweep: usize,
    parts: Arc<PartialEval>,
    /// Which carries and records are linear.
    carry: Vec<bool>,
    records: Vec<bool>,
    /// The values handed over ++ known inputs, to known outputs ++ residuals.
    known: Program,
    /// Which constants of the new op are handed over.
    handed: Vec<usize>,
    places: Vec<Place>,
    /// The outputs of `known` that are recorded: known records, then residuals.
    recorded: Vec<usize>,
}

/// Emits the cotangents of the linear operands of a `while`.
pub(crate) fn of_loop(
    transposition: &mut Transposition,
    b: &mut Builder,
    op: &While,
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    before: &mut Before,
) -> Result<Cotangents> {
    let op = of_while(&mut transposition.evaluation.wirings, op)?;
    transpose(transposition, b, &op, operands, cotangents, before)
}

/// Emits the cotangents of the linear operands.
pub(crate) fn transpose(
    transposition: &mut Transposition,
    b: &mut Builder,
    op: &Sweeps,
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    before: &mut Before,
) -> Result<Cotangents> {
    let linear: Vec<bool> = operands.iter().map(Operand::is_linear).collect();
    let constants = linear[..op.num_consts].to_vec();
    let mut plan =
        Plan { op, constants: Vec::new(), records: Vec::new(), old_records: Vec::new(), halves: Vec::new() };
    plan.constants.extend(operands[..op.num_consts].iter().filter_map(Operand::known));
    plan.split(transposition, b, operands, &linear)?;

    let mut bodies = Vec::new();
    let mut num_carry = Vec::new();
    let mut reverse = Vec::new();
    let mut arguments = plan.constants.clone();
    for half in &plan.halves {
        bodies.push(Arc::new(plan.forward_body(b, half)?));
        num_carry.push(count(&negated(&half.carry)));
        reverse.push(op.reverse[half.sweep]);
        let carry = operands[op.carry_inputs(half.sweep)].iter().zip(&half.carry);
        for (operand, _) in carry.filter(|(_, linear)| !**linear) {
            let known = operand.known();
            arguments.push(known.ok_or_else(|| internal_error!("a known carry of sweeps is linear"))?);
        }
    }
    let known_outputs: usize = num_carry.iter().sum();

    let mut backward = Backward { cotangents: Vec::new(), records: plan.records.clone() };
    let mut turned: Vec<&Half> = Vec::new();
    for half in plan.halves.iter().rev() {
        if half.parts.unknown.outputs.is_empty() {
            continue;
        }
        let linear = Arc::new(half.parts.unknown.clone());
        let read = transposition.partly_read.inputs(&linear);
        let read: Vec<bool> =
            read.iter().skip(half.parts.residuals).take(count(&constants)).copied().collect();
        let (body, types) =
            plan.backward_body(transposition, b, half, (&linear, &read), &constants, &mut backward)?;
        bodies.push(Arc::new(body));
        num_carry.push(types.len());
        reverse.push(!op.reverse[half.sweep]);
        let given = chosen(&cotangents[op.carry(half.sweep)], &half.carry);
        // What the first of them adds to.
        let sums = before.iter_mut().zip(&constants).filter(|(_, linear)| **linear).map(|(sum, _)| sum);
        let sums: Vec<Option<Atom>> = sums
            .zip(&read)
            .map(|(sum, &read)| if read && turned.is_empty() { sum.take() } else { None })
            .collect();
        let given = sums.into_iter().chain(given);
        for (ty, cotangent) in types.iter().zip(given) {
            arguments.push(match cotangent {
                Some(atom) => atom,
                None => b.zeros(ty)?,
            });
        }
        turned.push(half);
    }
    let num_consts = plan.constants.len();
    let cond_jaxpr = plan.condition(transposition, b, &constants)?;
    let (checkpoints, max_steps) = (op.checkpoints, op.max_steps);
    let sweeps = Sweeps { bodies, checkpoints, cond_jaxpr, max_steps, num_carry, num_consts, reverse };
    let mut found = b.emit(sweeps, &arguments)?.into_iter().skip(known_outputs).map(Atom::Var);

    let mut results: Cotangents = operands.iter().map(|_| None).collect();
    for half in turned {
        for position in (0..constants.len()).filter(|&position| constants[position]) {
            let Some(more) = found.next() else { break };
            results[position] = Some(match results[position] {
                Some(before) => b.add(before, more)?,
                None => more,
            });
        }
        for (position, _) in op.carry_inputs(half.sweep).zip(&half.carry).filter(|(_, linear)| **linear) {
            results[position] = found.next().filter(|_| linear[position]);
        }
    }
    Ok(results)
}

/// What is known of the new op while it is made.
struct Plan<'a> {
    op: &'a Sweeps,
    /// Its constants: the known ones of the op, then more.
    constants: Vec<Atom>,
    /// The types of its records so far.
    records: Vec<ArrayType>,
    /// For each record of the op: where it is among these, unless it is linear.
    old_records: Vec<Option<usize>>,
    halves: Vec<Half>,
}

/// What the transposed halves have left so far.
struct Backward {
    /// Which record of the op a record of the new one is a cotangent of.
    cotangents: Vec<(usize, usize)>,
    records: Vec<ArrayType>,
}

fn array(ty: &Type) -> Result<ArrayType> {
    let ty = ty.as_array().ok_or_else(|| internal_error!("a loop is linear in a value of type {ty}"))?;
    Ok(ty.clone().with_weak(false))
}

impl Plan<'_> {
    /// Splits the sweeps, one after the other.
    fn split(
        &mut self,
        transposition: &mut Transposition,
        b: &mut Builder,
        operands: &[Operand],
        linear: &[bool],
    ) -> Result<()> {
        let op = self.op;
        let flow = Flow::new(&mut transposition.reach, op, linear, Through::Everything);
        if flow.condition {
            return Err(value_error!(
                "a while_loop cannot be transposed in what its condition depends on: how often it runs is no \
                 linear function"
            ));
        }
        let mut seen: Vec<bool> = Vec::new();
        for ((sweep, body), start) in op.bodies.iter().enumerate().zip(flow.carry) {
            let mut carry = start;
            let (parts, unknown) = loop {
                let unknown = [&linear[..op.num_consts], &carry, &seen].concat();
                let parts = transposition.evaluation.callee(body, &unknown, &carry)?;
                let found = &parts.unknown_out[..carry.len()];
                if within(found, &carry) {
                    break (parts, unknown);
                }
                carry = union(&carry, found);
            };
            let records = parts.unknown_out[carry.len()..].to_vec();
            let half = self.half(b, operands, (sweep, carry, records), parts, &unknown, &seen)?;
            seen.extend(&half.records);
            self.halves.push(half);
        }
        Ok(())
    }

    /// A half whose residuals have found their places.
    fn half(
        &mut self,
        b: &mut Builder,
        operands: &[Operand],
        (sweep, carry, records): (usize, Vec<bool>, Vec<bool>),
        parts: Arc<PartialEval>,
        unknown: &[bool],
        seen: &[bool],
    ) -> Result<Half> {
        let op = self.op;
        let known_constants = count(&negated(&unknown[..op.num_consts]));
        let kept = parts.known.outputs.len() - parts.residuals;
        let mut known = parts.known.clone();
        let mut handed = Vec::new();
        // What keeps its value: constants, and carries that are handed on as they are.
        let known_carries: Vec<usize> = (0..carry.len()).filter(|&position| !carry[position]).collect();
        let mut same = vec![true; known_constants];
        let mut fixed = self.constants[..known_constants].to_vec();
        let mut kept_carries: Vec<Option<Atom>> = Vec::with_capacity(known_carries.len());
        for (number, &position) in known_carries.iter().enumerate() {
            let var = known.inputs[known_constants + number];
            let start = operands[op.carry_inputs(sweep)][position].known();
            let kept = start.filter(|_| known.outputs.get(number) == Some(&Atom::Var(var)));
            same.push(kept.is_some());
            fixed.extend(kept);
            kept_carries.push(kept);
        }
        same.resize(known.inputs.len(), false);
        let mut roots = invariants(&known, &same, false);
        for (root, equation) in roots.iter_mut().zip(&known.equations) {
            let is_residual = |atom: &Atom| atom.as_var().is_some_and(|var| equation.outputs.contains(&var));
            *root = *root && known.outputs[kept..].iter().any(is_residual);
        }
        if let Some(Hoisted { outer, inner, .. }) = hoist(&known, &same, &roots)? {
            for atom in inline_typed(b, &outer, &fixed)? {
                handed.push(self.constants.len());
                self.constants.push(atom);
            }
            known = inner;
        }

        // What each input of the known half is in the new op.
        let mut inputs: Vec<Option<Place>> = handed.iter().map(|&at| Some(Place::Constant(at))).collect();
        inputs.extend((0..known_constants).map(|at| Some(Place::Constant(at))));
        for kept in kept_carries {
            inputs.push(kept.map(|atom| {
                self.constants.push(atom);
                Place::Constant(self.constants.len() - 1)
            }));
        }
        let read = self.old_records.iter().zip(seen).filter(|(_, linear)| !**linear);
        inputs.extend(read.map(|(record, _)| record.map(Place::Record)));

        let mut recorded: Vec<usize> = Vec::new();
        for &linear in &records {
            if linear {
                self.old_records.push(None);
                continue;
            }
            let output = known_carries.len() + recorded.len();
            self.old_records.push(Some(self.records.len()));
            self.records.push(array(&known.type_of(&known.outputs[output]))?);
            recorded.push(output);
        }
        let mut places: Vec<Place> = Vec::with_capacity(parts.residuals);
        for output in kept..known.outputs.len() {
            let atom = known.outputs[output];
            let input = known.inputs.iter().position(|&var| Atom::Var(var) == atom);
            let base = self.records.len() - recorded.len();
            let twin = recorded.iter().position(|&other| known.outputs[other] == atom);
            places.push(match (input.and_then(|input| inputs[input]), twin) {
                (Some(place), _) => place,
                (None, Some(twin)) => Place::Record(base + twin),
                (None, None) => {
                    recorded.push(output);
                    self.records.push(array(&known.type_of(&atom))?);
                    Place::Record(self.records.len() - 1)
                }
            });
        }
        Ok(Half { sweep, parts, carry, records, known, handed, places, recorded })
    }

    /// The inputs of a body of the new op: its constants, a carry, and the records so far.
    fn inputs(
        &self,
        b: &Builder,
        to: &mut Builder,
        carry: impl Iterator<Item = Type>,
        records: &[ArrayType],
    ) -> [Vec<Atom>; 3] {
        let constants = self.constants.iter().map(|&atom| to.input(b.type_of(atom))).collect();
        let carry = carry.map(|ty| to.input(ty)).collect();
        let records = records.iter().map(|ty| to.input(ty.clone())).collect();
        [constants, carry, records]
    }

    /// What a sweep computes of known values, recording what its transpose needs.
    fn forward_body(&self, b: &Builder, half: &Half) -> Result<Program> {
        let mut to = Builder::new(half.known.name.clone());
        let carries = count(&negated(&half.carry));
        let fixed = half.known.inputs.len() - half.handed.len() - carries - self.known_before(half.sweep);
        let types = half.known.input_types().skip(half.handed.len() + fixed).take(carries).cloned();
        let before: usize = self.halves.iter().take(half.sweep).map(|half| half.recorded.len()).sum();
        let [constants, carry, records] = self.inputs(b, &mut to, types, &self.records[..before]);
        let mut arguments: Vec<Atom> = half.handed.iter().map(|&at| constants[at]).collect();
        arguments.extend(&constants[..fixed]);
        arguments.extend(&carry);
        let end = self.op.records_of(half.sweep).start;
        arguments.extend(self.old_records[..end].iter().flatten().map(|&at| records[at]));
        let results = inline_typed(&mut to, &half.known, &arguments)?;
        let mut outputs = results[..carries].to_vec();
        outputs.extend(half.recorded.iter().map(|&output| results[output]));
        Ok(to.finish(outputs))
    }

    /// How many known records of the op there are before a sweep.
    fn known_before(&self, sweep: usize) -> usize {
        self.old_records[..self.op.records_of(sweep).start].iter().flatten().count()
    }

    /// The linear half of a sweep turned around, with the types of its carry: the
    /// sums of the cotangents of constants, then those of the sweep's carry.
    fn backward_body(
        &self,
        transposition: &mut Transposition,
        b: &Builder,
        half: &Half,
        (linear, read): (&Arc<Program>, &[bool]),
        constants: &[bool],
        so_far: &mut Backward,
    ) -> Result<(Program, Vec<ArrayType>)> {
        let op = self.op;
        let residuals = half.parts.residuals;
        let late: Vec<bool> = (0..linear.inputs.len()).map(|position| position >= residuals).collect();
        let given = vec![true; linear.outputs.len()];
        let mut onto = vec![false; residuals];
        onto.extend(read);
        let wanted = Wanted { instantiate: late.clone(), onto, ..Wanted::of(&late, &given) };
        let (step, _) = transposition.flagged(linear, wanted)?;

        let (sums, carries) = (count(constants), count(&half.carry));
        let mut types = Vec::with_capacity(sums + carries);
        for ty in linear.input_types().skip(residuals).take(sums + carries) {
            types.push(cotangent_type(&array(ty)?));
        }
        let mut to = Builder::new(linear.name.clone());
        let carry = types.iter().cloned().map(Type::Array);
        let [constant_atoms, carry, records] = self.inputs(b, &mut to, carry, &so_far.records);
        let mut arguments: Vec<Atom> = half
            .places
            .iter()
            .map(|place| match *place {
                Place::Constant(at) => constant_atoms[at],
                Place::Record(at) => records[at],
            })
            .collect();
        arguments.extend(&carry[sums..]);
        let own = op.records_of(half.sweep).zip(&half.records).filter(|(_, linear)| **linear);
        for ((old, _), atom) in own.zip(&linear.outputs[carries..]) {
            let mut sum = None;
            for &(_, new) in so_far.cotangents.iter().filter(|(of, _)| *of == old) {
                sum = Some(match sum {
                    Some(sum) => to.add(sum, records[new])?,
                    None => records[new],
                });
            }
            arguments.push(match sum {
                Some(sum) => sum,
                None => to.zeros(&cotangent_type(&array(&linear.type_of(atom))?))?,
            });
        }
        arguments.extend(chosen(&carry[..sums], read));
        let found = inline_typed(&mut to, &step, &arguments)?;
        let mut outputs = Vec::with_capacity(found.len());
        for ((&sum, &term), &read) in carry[..sums].iter().zip(&found).zip(read) {
            outputs.push(if read { term } else { to.add(sum, term)? });
        }
        outputs.extend(&found[sums..]);
        // The records that the sweep reads.
        let read = self.old_records[..op.records_of(half.sweep).start].iter().enumerate();
        let read = read.filter(|(_, known)| known.is_none()).map(|(old, _)| old);
        for (old, &atom) in read.zip(&found[sums + carries..]) {
            so_far.cotangents.push((old, so_far.records.len()));
            so_far.records.push(to.array_type(atom)?.with_weak(false));
        }
        Ok((to.finish(outputs), types))
    }

    /// The condition of the new op.
    fn condition(
        &self,
        transposition: &mut Transposition,
        b: &Builder,
        constants: &[bool],
    ) -> Result<Arc<Program>> {
        let flags = [constants, &self.halves[0].carry].concat();
        let parts = transposition.evaluation.callee(&self.op.cond_jaxpr, &flags, &[])?;
        if parts.unknown_out.contains(&true) {
            return Err(internal_error!("the condition of a loop depends on what the loop is linear in"));
        }
        let known = count(&negated(constants));
        let more = self.constants[known..].iter().map(|&atom| Input::New(b.type_of(atom)));
        let inputs =
            old_inputs(0..known).chain(more).chain(old_inputs(known..parts.known.inputs.len())).collect();
        let wiring = Wiring { inputs, outputs: old_outputs(0..1).collect() };
        transposition.evaluation.wirings.wire_shared(&Arc::new(parts.known.clone()), wiring)
    }
}
