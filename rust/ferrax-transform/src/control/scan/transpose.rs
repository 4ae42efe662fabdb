//! Linear scans turned around: the steps are gone through from the last to the
//! first, carrying the cotangents of the carry and, added up so far, those of
//! the constants.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::rules::Operand;
use ferrax_ir::{Atom, Builder, Result, Type};

use super::halves::at_length;
use super::partial_eval::split;
use super::{array_type, chosen, count, key, missing, negated, settle, with_body, within};
use crate::reach::Through;
use crate::transpose::{Before, Cotangents, Transposition, Wanted, cotangent_type};

/// A scan turned around.
pub(crate) struct Backward {
    scan: Scan,
    /// Constants, carries and arrays that get a cotangent.
    flags: Vec<bool>,
    /// Constants whose cotangents go into the parts that are read.
    read: Vec<bool>,
}

/// Emits the cotangents of the linear operands.
pub(crate) fn transpose(
    transposition: &mut Transposition,
    b: &mut Builder,
    op: &Scan,
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    before: &mut Before,
) -> Result<Cotangents> {
    let linear: Vec<bool> = operands.iter().map(Operand::is_linear).collect();
    let carry = transposition.reach.carry(op, &linear, Through::Everything);
    if !carry.contains(&false) {
        return backward(transposition, b, op, operands, cotangents, before);
    }
    // Carries that depend on nothing linear are gone through first.
    let parts = split(&mut transposition.evaluation, op, &linear)?;
    let known: Vec<Atom> =
        chosen(operands, &negated(&parts.unknown)).filter_map(|operand| operand.known()).collect();
    let first = parts.halves.emit_first(b, op, &known)?;
    let late = parts.late(op, operands);
    let (second, operands) = parts.halves.second(op, &first, Operand::Known, (&late.0, &late.1, &late.2))?;
    let cotangents: Vec<Option<Atom>> = chosen(cotangents, &parts.unknown_out).collect();
    // What is linear stays in its order.
    let mut sums = Before::from_elem(None, operands.len());
    let places =
        || operands.iter().enumerate().filter(|(_, operand)| operand.is_linear()).map(|(place, _)| place);
    let of_linear = || (0..linear.len()).filter(|&position| linear[position]);
    places().zip(of_linear()).for_each(|(place, position)| sums[place] = before[position]);
    let found = backward(transposition, b, &second, &operands, &cotangents, &mut sums)?;
    places().zip(of_linear()).for_each(|(place, position)| before[position] = sums[place]);
    // Residuals come in between, but only what is linear has a cotangent.
    let mut found = operands.iter().zip(found).filter(|(operand, _)| operand.is_linear());
    Ok(linear
        .iter()
        .map(|&flag| if flag { found.next().and_then(|(_, cotangent)| cotangent) } else { None })
        .collect())
}

/// The transpose of a scan whose carries are all linear, though some may start
/// with a known value.
fn backward(
    transposition: &mut Transposition,
    b: &mut Builder,
    op: &Scan,
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    before: &mut Before,
) -> Result<Cotangents> {
    let mut linear: Vec<bool> = operands.iter().map(Operand::is_linear).collect();
    for flag in linear.iter_mut().skip(op.num_consts).take(op.num_carry) {
        *flag = true;
    }
    let given: Vec<bool> = cotangents.iter().map(Option::is_some).collect();
    let parts = turned(transposition, op, &linear, &given)?;
    if !parts.flags.contains(&true) && parts.scan.jaxpr.effects.is_empty() {
        return Ok(operands.iter().map(|_| None).collect());
    }

    let body = &op.jaxpr;
    let (constants, _, arrays) = op.split(operands);
    let (constant_vars, carry_vars, _) = op.split(&body.inputs);
    let (constant_flags, carry_flags, _) = op.split(&parts.flags);
    let (carry, stacked) = cotangents.split_at(op.num_carry);
    let mut inputs: Vec<Atom> = constants.iter().filter_map(Operand::known).collect();
    for (position, var) in constant_vars.iter().enumerate().filter(|(position, _)| constant_flags[*position])
    {
        let sum = if parts.read[position] { before[position].take() } else { None };
        inputs.push(match sum {
            Some(sum) => sum,
            None => b.zeros(&cotangent_type(array_type(body, var)?))?,
        });
    }
    for ((cotangent, &flag), var) in carry.iter().zip(carry_flags).zip(carry_vars) {
        match cotangent {
            _ if !flag => {}
            Some(cotangent) => inputs.push(*cotangent),
            None => inputs.push(b.zeros(&cotangent_type(array_type(body, var)?))?),
        }
    }
    inputs.extend(arrays.iter().filter_map(Operand::known));
    inputs.extend(stacked.iter().flatten());
    let scan = Scan { reverse: !op.reverse, ..at_length(&parts.scan, op) };
    let mut found = b.emit(scan, &inputs)?.into_iter().map(Atom::Var);
    Ok(operands
        .iter()
        .zip(&parts.flags)
        .map(|(operand, &flag)| if flag { found.next() } else { None }.filter(|_| operand.is_linear()))
        .collect())
}

/// The body of the scan in the other direction: from known constants,
/// cotangents of linear constants so far, cotangents of the carry after the
/// step, known elements and cotangents of the stacked outputs, to the
/// cotangents of linear constants, carry and elements.
fn turned(
    transposition: &mut Transposition,
    op: &Scan,
    linear: &[bool],
    given: &[bool],
) -> Result<Arc<Backward>> {
    let body = &op.jaxpr;
    let key = key(op, linear, given);
    if let Some(found) = transposition.scans.get(body, key.clone()) {
        return Ok(found);
    }
    let start = transposition.reach.carry_before(op, given);
    let (given_carry, given_stacked) = given.split_at(op.num_carry);
    let (carry, found, mut step) = settle(start, given_carry, |carry| {
        let step = transposition.flagged(body, Wanted::of(linear, &[carry, given_stacked].concat()))?;
        let carry = op.split(&step.1).1.to_vec();
        Ok((step, carry))
    })?;
    let read: Vec<bool> = transposition
        .partly_read
        .inputs(body)
        .iter()
        .zip(&*step.1)
        .map(|(read, flag)| *read && *flag)
        .collect();
    let read = read[..op.num_consts].to_vec();
    if !within(&carry, &found) || read.contains(&true) {
        let mut wanted = Wanted::of(linear, &[&carry, given_stacked].concat());
        if !within(&carry, &found) {
            wanted.instantiate = vec![false; op.num_consts];
            wanted.instantiate.extend(&carry);
            wanted.instantiate.resize(body.inputs.len(), false);
        }
        wanted.onto = read.clone();
        step = transposition.flagged(body, wanted)?;
    }
    let (step, flags) = step;
    let (constant_flags, carry_flags, _) = op.split(&flags);
    let sums = count(constant_flags);

    let mut b = Builder::new(body.name.clone());
    let known = negated(linear);
    let (known_constants, _, known_arrays) = op.split(&known);
    let known_constants = count(known_constants);
    let types: Vec<Type> = step.input_types().cloned().collect();
    let (constant_types, rest) = types.split_at(known_constants.min(types.len()));
    let (array_types, rest) = rest.split_at(count(known_arrays).min(rest.len()));
    let (carry_types, rest) = rest.split_at(count(&carry).min(rest.len()));
    let stacked_types = &rest[..count(given_stacked).min(rest.len())];
    let sum_types: Vec<Type> = step.output_types().take(sums).collect();
    let mut inputs = |types: &[Type]| -> Vec<Atom> { types.iter().map(|ty| b.input(ty.clone())).collect() };
    let constants = inputs(constant_types);
    let before = inputs(&sum_types);
    let carried = inputs(carry_types);
    let arrays = inputs(array_types);
    let stacked = inputs(stacked_types);
    let is_read: Vec<bool> = chosen(&read, constant_flags).collect();
    let onto: Vec<Atom> = chosen(&before, &is_read).collect();
    let mut outputs = b.inline(&step, &[constants, arrays, carried, stacked, onto].concat())?;
    for ((output, before), _) in outputs.iter_mut().zip(before).zip(&is_read).filter(|(_, read)| !**read) {
        *output = b.add(before, *output)?;
    }
    if carry_flags != carry {
        return Err(missing("the cotangent of a carry", body));
    }
    let scan = with_body(op, Arc::new(b.finish(outputs)), known_constants, sums + count(&carry));
    let backward = Backward { scan, flags: flags.to_vec(), read };
    Ok(transposition.scans.insert(body, key, Arc::new(backward)))
}
