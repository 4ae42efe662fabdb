//! `while` over a batch.

use std::sync::Arc;

use ferrax_ir::ops::{Call, ReduceKind, StopGradient, While};
use ferrax_ir::rules::Batched;
use ferrax_ir::{ArrayType, Atom, Builder, Program, Result, Shape, unsupported};

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

    // Which lanes go on is the first carry.
    let (condition_constants, body_constants, own) = op.split(&arguments);
    let call = Call { name: op.cond_jaxpr.name.clone(), program: condition.clone(), inline: false };
    let holds = b.emit1(call, &[condition_constants, own].concat())?;
    let lanes = Lanes { op, condition, body, carry: &carry };
    let any = lanes.any(b.array_type(holds)?)?;
    let step = lanes.step(b.array_type(holds)?)?;
    let batched = While {
        cond_nconsts: 0,
        cond_jaxpr: Arc::new(any),
        body_nconsts: op.cond_nconsts + op.body_nconsts,
        body_jaxpr: Arc::new(step),
        max_steps: op.max_steps,
    };
    let arguments = [condition_constants, body_constants, &[holds], own].concat();
    let outputs = b.emit(batched, &arguments)?;
    Ok(outputs.into_iter().skip(1).map(Atom::Var).zip(front(&carry)).collect())
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
        for ty in self.body.input_types().skip(self.op.body_nconsts) {
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
        for (&atom, &is_batched) in before.iter().zip(*carry) {
            arguments.push(if is_batched { cut_off(&mut b, holds, atom)? } else { atom });
        }
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
        Ok(b.finish(holds.into_iter().chain(outputs)))
    }
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
