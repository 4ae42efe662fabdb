//! `scan` over batches: carries and constants have the batch axis in front,
//! arrays gone through after the axis of the steps.

use ferrax_ir::ops::Scan;
use ferrax_ir::rules::Batched;
use ferrax_ir::{Atom, Builder, Result};

use super::{settle, with_body, with_carry, within};
use crate::batch::{Batching, OutDims};
use crate::reach::Through;

pub(crate) fn batch(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &Scan,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let front =
        |flags: &[bool]| -> Vec<Option<usize>> { flags.iter().map(|flag| flag.then_some(0)).collect() };
    let flags: Vec<bool> = dims.iter().map(Option::is_some).collect();
    let start = batching.reach.carry(op, &flags, Through::Everything);
    let given = op.split(&flags).1;
    let (carry, found, (mut body, stacked)) = settle(start, given, |carry| {
        let dims = front(&with_carry(op, &flags, carry));
        let (body, outputs) = batching.callee(&op.jaxpr, &dims, OutDims::Front)?;
        let outputs: Vec<bool> = outputs.iter().map(Option::is_some).collect();
        let (carry, stacked) = outputs.split_at(op.num_carry);
        Ok(((body, stacked.to_vec()), carry.to_vec()))
    })?;
    if !within(&carry, &found) {
        let dims = front(&with_carry(op, &flags, &carry));
        let wanted = [front(&carry), front(&stacked)].concat();
        body = batching.callee(&op.jaxpr, &dims, OutDims::Force(&wanted))?.0;
    }

    let mut arguments = Vec::with_capacity(inputs.len());
    for (position, (&atom, &dim)) in inputs.iter().zip(dims).enumerate() {
        let own = position.checked_sub(op.num_consts);
        let is_batched_carry = own.and_then(|own| carry.get(own)) == Some(&true);
        arguments.push(match dim {
            None if is_batched_carry => batching.materialise(b, atom, None)?,
            Some(dim) if own.is_some_and(|own| own >= op.num_carry) => b.move_axis(atom, dim, 1)?,
            dim => batching.to_front(b, atom, dim)?,
        });
    }
    let outputs = b.emit(with_body(op, body, op.num_consts, op.num_carry), &arguments)?;
    let carry = front(&carry);
    let stacked = stacked.iter().map(|flag| flag.then_some(1));
    Ok(outputs.into_iter().map(Atom::Var).zip(carry.into_iter().chain(stacked)).collect())
}
