//! `while` over a batch.
//!
//! Where lanes have numbers of steps of their own, steps are made for all lanes as
//! long as one goes on, and those that are done keep their carry. For them a step
//! is made at what they last made one for, lest it be where the body has no
//! derivative: 0 for a square root, say. That is a carry of its own, which goes
//! away if no derivative is taken. A lane without a step has the first carry and
//! the constants of the first lane that goes on.

use std::sync::Arc;

use ferrax_ir::ops::{ArgKind, ArgReduce, Call, DynamicSlice, ReduceKind, StandIn, StopGradient, While};
use ferrax_ir::rules::Batched;
use ferrax_ir::{ArrayType, Atom, Axes, Builder, DType, Dim, Program, Result, Shape, Type, unsupported};

use super::invariant_carries;
use crate::batch::{Batching, Dims, OutDims};
use crate::control::scan::{inline_typed, settle, within};
use crate::reach::Through;

fn front(flags: &[bool]) -> Dims {
    flags.iter().map(|flag| flag.then_some(0)).collect()
}

pub(crate) fn batch(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &While,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let flags: Vec<bool> = dims.iter().map(Option::is_some).collect();
    let (condition_flags, body_flags, given) = op.split(&flags);
    let start = batching.reach.while_carry(op, &flags, Through::Everything);
    let (mut carry, found, (mut body, _)) = settle(start, given, |carry| {
        let dims = front(&[body_flags, carry].concat());
        let (body, found) = batching.callee(&op.body_jaxpr, &dims, OutDims::Front)?;
        let flags: Vec<bool> = found.iter().map(Option::is_some).collect();
        Ok(((body, found), flags))
    })?;
    let condition_dims = |carry: &[bool]| front(&[condition_flags, carry].concat());
    let (mut condition, holds) = batching.callee(&op.cond_jaxpr, &condition_dims(&carry), OutDims::Front)?;
    let diverges = holds.iter().any(Option::is_some);
    let unsettled = if diverges {
        // A lane that is done must keep what the others go on with.
        for (flag, invariant) in carry.iter_mut().zip(invariant_carries(op)) {
            *flag |= !invariant;
        }
        condition = batching.callee(&op.cond_jaxpr, &condition_dims(&carry), OutDims::Front)?.0;
        true
    } else {
        !within(&carry, &found)
    };
    if unsettled {
        let dims = front(&[body_flags, &carry].concat());
        body = batching.callee(&op.body_jaxpr, &dims, OutDims::Force(&front(&carry)))?.0;
    }

    let fixed = inputs.len() - carry.len();
    let mut arguments = Vec::with_capacity(inputs.len());
    for (position, (&atom, &dim)) in inputs.iter().zip(dims).enumerate() {
        let is_batched = position.checked_sub(fixed).is_some_and(|position| carry[position]);
        arguments.push(match dim {
            None if is_batched => batching.materialise(b, atom, None)?,
            dim => batching.to_front(b, atom, dim)?,
        });
    }
    if !diverges {
        let batched = While { cond_jaxpr: condition, body_jaxpr: body, ..op.clone() };
        let outputs = b.emit(batched, &arguments)?;
        return Ok(outputs.into_iter().map(Atom::Var).zip(front(&carry)).collect());
    }

    // Which lanes go on is the first carry; what they last made a step for comes last.
    let (condition_constants, body_constants, own) = op.split(&arguments);
    let call = Call { name: op.cond_jaxpr.name.clone(), program: condition.clone(), inline: false };
    let holds = b.emit1(call, &[condition_constants, own].concat())?;
    let body_constants = first_active(b, holds, body_constants, body_flags)?;
    let made_for = made_for(b, holds, own, &carry)?;
    let lanes = Lanes { op, condition, body, carry: &carry };
    let any = lanes.any(b.array_type(holds)?)?;
    let step = lanes.step(b.array_type(holds)?)?;
    let batched = While {
        cond_nconsts: 0,
        cond_jaxpr: Arc::new(any),
        body_nconsts: op.cond_nconsts + op.body_nconsts,
        body_jaxpr: Arc::new(step),
        max_steps: op.max_steps,
        checkpoints: op.checkpoints,
    };
    let arguments = [condition_constants, &body_constants, &[holds], own, &made_for].concat();
    let outputs = b.emit(batched, &arguments)?;
    Ok(outputs.into_iter().skip(1).take(carry.len()).map(Atom::Var).zip(front(&carry)).collect())
}

/// A loop whose lanes stop on their own.
struct Lanes<'a> {
    op: &'a While,
    /// Both batched.
    condition: Arc<Program>,
    body: Arc<Program>,
    /// Which carries are batched: all that change.
    carry: &'a [bool],
}

impl Lanes<'_> {
    /// Whether a lane goes on.
    fn any(&self, holds: ArrayType) -> Result<Program> {
        let mut b = Builder::new(self.op.cond_jaxpr.name.clone());
        let holds = b.input(holds);
        let types: Vec<&Type> = self.body.input_types().skip(self.op.body_nconsts).collect();
        let made_for = types.iter().zip(self.carry).filter(|(_, is_batched)| **is_batched);
        for ty in types.iter().copied().chain(made_for.map(|(ty, _)| *ty)) {
            b.input(ty.clone());
        }
        let any = b.reduce(ReduceKind::Or, holds, &[0])?;
        Ok(b.finish([any]))
    }

    /// A step of the lanes that go on.
    fn step(&self, holds: ArrayType) -> Result<Program> {
        let Lanes { op, condition, body, carry } = self;
        let mut b = Builder::new(op.body_jaxpr.name.clone());
        let mut constants = Vec::new();
        for ty in condition.input_types().take(op.cond_nconsts) {
            constants.push(b.input(ty.clone()));
        }
        let mut arguments = Vec::new();
        for ty in body.input_types().take(op.body_nconsts) {
            arguments.push(b.input(ty.clone()));
        }
        let holds = b.input(holds);
        let types = body.input_types().skip(op.body_nconsts);
        let before: Vec<Atom> = types.map(|ty| b.input(ty.clone())).collect();
        let mut made_for = Vec::new();
        for (&atom, _) in before.iter().zip(*carry).filter(|(_, is_batched)| **is_batched) {
            made_for.push(b.input(b.type_of(atom)));
        }
        step_for(&mut b, holds, (&before, carry), &mut made_for, &mut arguments)?;
        let call = Call { name: op.body_jaxpr.name.clone(), program: body.clone(), inline: false };
        let after = b.emit(call, &arguments)?;
        let mut outputs = Vec::with_capacity(after.len() + 1);
        for ((&old, new), &is_batched) in before.iter().zip(after).zip(*carry) {
            let new = Atom::Var(new);
            if !is_batched {
                outputs.push(old);
                continue;
            }
            outputs.push(keep_unless(&mut b, holds, new, old)?);
        }
        constants.extend(&outputs);
        let holds = inline_typed(&mut b, condition, &constants)?;
        Ok(b.finish(holds.into_iter().chain(outputs).chain(made_for)))
    }
}

/// Values that are flagged as batched, with those of the first lane that goes on for lanes that
/// do not, as far as derivatives see.
pub(crate) fn first_active(
    b: &mut Builder,
    holds: Atom,
    values: &[Atom],
    flags: &[bool],
) -> Result<Vec<Atom>> {
    let mut all = values.to_vec();
    if !flags.contains(&true) || b.shape(holds)[0] == 0 {
        return Ok(all);
    }
    let argmax = ArgReduce { kind: ArgKind::Max, axes: Axes::from_slice(&[0]), index_dtype: DType::I32 };
    let lane = b.emit1(argmax, &[holds])?;
    for (value, _) in all.iter_mut().zip(flags).filter(|(_, flag)| **flag) {
        if b.type_of(*value).as_array().is_none() {
            continue;
        }
        let shape = b.shape(*value);
        let mut slice_sizes = shape.clone();
        slice_sizes[0] = Dim::Const(1);
        let mut operands = vec![b.int_scalar(DType::I32, 0); shape.len() + 1];
        (operands[0], operands[1]) = (*value, lane);
        let other = b.emit1(DynamicSlice { slice_sizes }, &operands)?;
        let other = b.broadcast_in_dim(other, &shape, &(0..shape.len()).collect::<Vec<_>>())?;
        let goes_on = over(b, holds, *value)?;
        *value = b.emit1(StandIn {}, &[goes_on, *value, other])?;
    }
    Ok(all)
}

/// What lanes make their first step for: the batched ones of a carry.
pub(crate) fn made_for(b: &mut Builder, holds: Atom, carry: &[Atom], flags: &[bool]) -> Result<Vec<Atom>> {
    let all = first_active(b, holds, carry, flags)?;
    all.into_iter().zip(flags).filter(|(_, flag)| **flag).map(|(atom, _)| constant(b, atom)).collect()
}

/// Appends what a step is made for to its arguments, where `made_for` is what the last one was made
/// for, and becomes what this one is.
pub(crate) fn step_for(
    b: &mut Builder,
    holds: Atom,
    (carry, flags): (&[Atom], &[bool]),
    made_for: &mut [Atom],
    arguments: &mut Vec<Atom>,
) -> Result<()> {
    let mut last = made_for.iter_mut();
    for (&atom, &flag) in carry.iter().zip(flags) {
        let Some(last) = (if flag { last.next() } else { None }) else {
            arguments.push(atom);
            continue;
        };
        let goes_on = over(b, holds, atom)?;
        let own = b.emit1(StandIn {}, &[goes_on, atom, *last])?;
        arguments.push(own);
        *last = constant(b, own)?;
    }
    Ok(())
}

fn constant(b: &mut Builder, x: Atom) -> Result<Atom> {
    if b.dtype(x).is_inexact() { b.emit1(StopGradient {}, &[x]) } else { Ok(x) }
}

/// A carry whose lanes that are done have no derivative, so that what comes of
/// an idle step there, NaN perhaps, does not come back.
pub(crate) fn cut_off(b: &mut Builder, holds: Atom, x: Atom) -> Result<Atom> {
    if !b.dtype(x).is_inexact() {
        return Ok(x);
    }
    let constant = b.emit1(StopGradient {}, &[x])?;
    let goes_on = over(b, holds, x)?;
    b.select(goes_on, x, constant)
}

/// A carry after a step of the lanes that make it.
pub(crate) fn keep_unless(b: &mut Builder, holds: Atom, new: Atom, old: Atom) -> Result<Atom> {
    if b.type_of(old).as_array().is_none() {
        return Err(unsupported!(
            "vmap of while_loop whose lanes stop at steps of their own cannot keep {}",
            b.type_of(old)
        ));
    }
    let goes_on = over(b, holds, old)?;
    b.select(goes_on, new, old)
}

/// One flag for each lane, in the shape of `like`.
fn over(b: &mut Builder, flags: Atom, like: Atom) -> Result<Atom> {
    let shape: Shape = b.shape(like);
    b.broadcast_in_dim(flags, &shape, &[0])
}
