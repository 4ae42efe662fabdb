//! Along which axes of meshes a value may differ from device to device.
//!
//! A function that the devices of a mesh run, each on its part, is one program. Of each of its values the type says along
//! which axes of the mesh devices may have different ones. An op gives what differs where an operand does; sums over an axis
//! are the same along it. Operands that differ along fewer axes than others are first taken as differing along all (`pvary`):
//! the transpose of that is the sum over the devices, so that derivatives of what is the same on all devices are sums of what
//! the devices find. Where a mesh is not looked at (`check_vma=False`, `vmap`), nothing differs by type.
//!
//! Over an axis a value may also be the sum of what the devices have (unreduced), of which only linear ops make something
//! ([`sums`]), or be the same and have such a sum as its cotangent (reduced): JAX's manual axis types
//! (docs.jax.dev/en/latest/notebooks/shard_map.html). An operand that is the same is reduced beside such ones, and differs
//! beside what differs; users say the former themselves ([`half_reduced`]).

mod retype;
mod set;
mod sums;

use std::sync::Arc;

use smallvec::SmallVec;

pub use retype::{append, fitting};
pub use set::{Share, Varying};
pub use sums::half_reduced;

use crate::op::View;
use crate::ops::{Copy, Preduced, Pvary, ReducedVary, Sweeps, VaryUnreduced, While};
use crate::program::Atoms;
use crate::{Atom, Builder, Op, Program, Result, Type, type_error, value_error};

impl Type {
    /// Along which axes values of this type may differ.
    pub fn varying(&self) -> Varying {
        match self {
            Type::Array(array) | Type::Ref(array) => array.varying,
            Type::Token => Varying::NONE,
        }
    }

    /// Sets along which axes values of this type may differ.
    pub fn vary(&mut self, varying: Varying) {
        if let Type::Array(array) | Type::Ref(array) = self {
            array.varying = varying;
        }
    }
}

fn all(types: &[Type]) -> Varying {
    types.iter().fold(Varying::NONE, |all, ty| all.union(ty.varying()))
}

/// What the sub-programs of an op take each of its operands for; `None` for ops of which nothing is known but that
/// their results depend on their operands.
fn expected(op: &Op, count: usize) -> Option<Vec<Varying>> {
    let inputs = |program: &Program| program.input_types().map(Type::varying).collect::<Vec<_>>();
    let taken = match op.view() {
        View::Call(op) => inputs(&op.program),
        View::Checkpoint(op) => inputs(&op.jaxpr),
        View::CustomJvp(op) => inputs(&op.call_jaxpr),
        View::CustomVjp(op) => inputs(&op.call_jaxpr),
        View::Ruled(_, called) => inputs(called),
        View::Scan(op) => inputs(&op.jaxpr),
        View::Cond(op) => {
            let mut taken = vec![Varying::NONE; count];
            for branch in &op.branches {
                for (all, own) in taken.iter_mut().skip(1).zip(inputs(branch)) {
                    *all = all.union(own);
                }
            }
            taken
        }
        View::While(op) => {
            let (condition, body) = (inputs(&op.cond_jaxpr), inputs(&op.body_jaxpr));
            let (held, asked) = condition.split_at(op.cond_nconsts.min(condition.len()));
            let (constants, carry) = body.split_at(op.body_nconsts.min(body.len()));
            let carry = carry.iter().zip(asked).map(|(a, b)| a.union(*b));
            held.iter().chain(constants).copied().chain(carry).collect()
        }
        View::Sweeps(op) => {
            let mut taken = vec![Varying::NONE; count];
            let mut take = |at: usize, varying: Varying| {
                if let Some(all) = taken.get_mut(at) {
                    *all = all.union(varying);
                }
            };
            for (at, varying) in inputs(&op.cond_jaxpr).into_iter().enumerate() {
                take(at, varying);
            }
            for (sweep, body) in op.bodies.iter().enumerate() {
                let carry = op.carry_inputs(sweep);
                for (number, varying) in
                    inputs(body).into_iter().take(op.num_consts + carry.len()).enumerate()
                {
                    take(
                        if number < op.num_consts { number } else { carry.start + number - op.num_consts },
                        varying,
                    );
                }
            }
            taken
        }
        View::Leaf(_) => return None,
    };
    (taken.len() == count).then_some(taken)
}

/// Along which axes results differ beyond what the op's own sub-programs say.
fn chosen(op: &Op, inputs: &[Type]) -> Varying {
    match op.view() {
        View::Cond(_) => inputs.first().map_or(Varying::NONE, Type::varying),
        View::While(While { cond_jaxpr, .. }) | View::Sweeps(Sweeps { cond_jaxpr, .. }) => {
            cond_jaxpr.output_types().fold(Varying::NONE, |all, ty| all.union(ty.varying()))
        }
        _ => Varying::NONE,
    }
}

/// The first input that is a carry, of loops; their first outputs are the carries too.
fn first_carry(op: &Op) -> Option<(usize, usize)> {
    match op.view() {
        View::Scan(op) => Some((op.num_consts, op.num_carry)),
        View::While(op) => {
            let constants = op.cond_nconsts + op.body_nconsts;
            Some((constants, op.body_jaxpr.outputs.len()))
        }
        View::Sweeps(op) => Some((op.num_consts, op.num_carry.iter().sum())),
        _ => None,
    }
}

/// A carry differs after the loop where it does before a step. Fails if it differs along more axes after a step.
fn settle_carry(op: &Op, taken: &[Varying], more: Varying, outputs: &mut [Type]) -> Result<()> {
    let Some((first, count)) = first_carry(op) else { return Ok(()) };
    let carries = taken.iter().skip(first).zip(outputs.iter_mut()).take(count);
    for (number, (before, after)) in carries.enumerate() {
        let before = before.union(more);
        let added = after.varying().without(before);
        if !added.is_empty() {
            let (share, axes) = [Share::Varying, Share::Unreduced, Share::Reduced]
                .map(|share| (share, added.axes(share)))
                .into_iter()
                .find(|(_, axes)| !axes.is_empty())
                .unwrap_or((Share::Varying, Vec::new()));
            let names: Vec<String> = axes.iter().map(|name| format!("'{name}'")).collect();
            let names = format!("({},)", names.join(", "));
            let (after, to) = match share {
                Share::Varying => ("may differ there", "varying"),
                Share::Unreduced => ("is a sum over the devices there", "unreduced"),
                Share::Reduced => ("is reduced there", "reduced"),
            };
            return Err(type_error!(
                "{}: value {number} of the carry is the same along {names} before a step, and {after} after \
                 it. This might be fixed by applying `lax.pcast(..., {names}, to='{to}')` to the initial value, or \
                 by check_vma=False in shard_map.",
                op.name()
            ));
        }
        after.vary(before);
    }
    Ok(())
}

/// Along which axes operands differ that sub-programs take for the same.
fn excess(taken: &[Varying], inputs: &[Type], chosen: bool) -> Varying {
    let skipped = usize::from(chosen);
    let pairs = inputs.iter().zip(taken).skip(skipped);
    pairs.fold(Varying::NONE, |all, (ty, taken)| all.union(ty.varying().without(*taken)))
}

/// Says of the results of an op along which axes they differ.
///
/// Fails for loops whose carry differs along more axes from step to step.
pub fn settle(op: &Op, inputs: &[Type], outputs: &mut [Type]) -> Result<()> {
    if let Op::CustomLinear(_) = op {
        return Ok(()); // its parameters say what the results are
    }
    let united = all(inputs);
    if op.programs().is_empty() {
        if let View::Leaf(rules) | View::Ruled(rules, _) = op.view() {
            sums::check(op, inputs, united)?;
            let varying = rules.varies(united);
            outputs.iter_mut().for_each(|ty| ty.vary(varying));
        }
        return Ok(());
    }
    let taken = expected(op, inputs.len());
    let more = match &taken {
        Some(taken) => excess(taken, inputs, matches!(op.view(), View::Cond(_))).union(chosen(op, inputs)),
        None => united,
    };
    if let View::Cond(op) = op.view() {
        for branch in &op.branches[1..] {
            outputs
                .iter_mut()
                .zip(branch.output_types())
                .for_each(|(ty, own)| ty.vary(ty.varying().union(own.varying())));
        }
    }
    if !more.is_empty() {
        outputs.iter_mut().for_each(|ty| ty.vary(ty.varying().union(more)));
    }
    taken.map_or(Ok(()), |taken| settle_carry(op, &taken, more, outputs))
}

/// The operands of an op, each lying over the axes as the op takes it to.
pub fn matched(b: &mut Builder, op: &Op, operands: &[Atom]) -> Result<Atoms> {
    let operands = &*with_padding(b, op, operands)?;
    let types: SmallVec<[Type; 3]> = operands.iter().map(|&atom| b.type_of(atom)).collect();
    let united = all(&types);
    // A cast says itself what its operand is; the rule of the user's gives cotangents of the operands as they are.
    if let Op::Pvary(_) | Op::Preduced(_) | Op::ReducedVary(_) | Op::VaryUnreduced(_) | Op::CustomLinear(_) =
        op
    {
        return Ok(Atoms::from_slice(operands));
    }
    let taken = if op.programs().is_empty() { None } else { expected(op, types.len()) };
    let first = usize::from(matches!(op.view(), View::Cond(_)));
    let taken = taken.filter(|taken| excess(taken, &types, first == 1).is_empty());
    if taken.is_none() {
        sums::check(op, &types, united)?;
    }
    let mut found = Atoms::new();
    for (number, (&atom, ty)) in operands.iter().zip(&types).enumerate() {
        let wanted = match &taken {
            Some(_) if number < first => ty.varying(),
            Some(taken) => taken[number],
            None => sums::beside(united, ty.varying()),
        };
        found.push(cast(b, atom, ty, wanted)?);
    }
    Ok(found)
}

/// `atom`, of type `ty`, as a value that lies over the axes so. Literals are the same everywhere and stay.
///
/// Fails where the value would have to be summed, or be taken for a sum.
pub fn cast(b: &mut Builder, atom: Atom, ty: &Type, wanted: Varying) -> Result<Atom> {
    let own = ty.varying();
    if matches!(atom, Atom::Literal(_)) || !matches!(ty, Type::Array(_)) || own.covers(wanted) {
        return Ok(atom);
    }
    let known = |axis: &Arc<str>, share: Option<Share>| own.share(axis) == share;
    let differing = wanted.axes(Share::Varying);
    let reduced = wanted.axes(Share::Reduced);
    let new: Vec<_> = differing.iter().filter(|axis| known(axis, None)).cloned().collect();
    let from_reduced: Vec<_> =
        differing.iter().filter(|axis| known(axis, Some(Share::Reduced))).cloned().collect();
    let new_reduced: Vec<_> = reduced.iter().filter(|axis| known(axis, None)).cloned().collect();
    if let Some(axis) = wanted.axes(Share::Unreduced).iter().find(|axis| !known(axis, Some(Share::Unreduced)))
    {
        return Err(value_error!(
            "a value that is no sum over the devices along '{axis}' stands where such a sum is expected, its type is {ty}: \
             lax.pcast(..., '{axis}', to='unreduced') makes one of a value that varies along the axis"
        ));
    }
    if let Some(axis) = differing.iter().find(|axis| known(axis, Some(Share::Unreduced))) {
        return Err(torn(axis));
    }
    let mut atom = atom;
    if !new.is_empty() {
        atom = b.emit1(Pvary { axes: new }, &[atom])?;
    }
    if !from_reduced.is_empty() {
        atom = b.emit1(ReducedVary { axes: from_reduced }, &[atom])?;
    }
    if !new_reduced.is_empty() {
        atom = b.emit1(Preduced { axes: new_reduced }, &[atom])?;
    }
    Ok(atom)
}

/// Zeros, which are the same on all devices, as a value that lies over the axes so: their sum is zero, too.
pub fn cast_zeros(b: &mut Builder, zeros: Atom, wanted: Varying) -> Result<Atom> {
    let sums = wanted.axes(Share::Unreduced);
    let terms = Varying::of(wanted.names().iter().map(|name| match Share::of(name) {
        (Share::Unreduced, axis) => Arc::from(axis),
        _ => name.clone(),
    }));
    let ty = b.type_of(zeros);
    let zeros = cast(b, zeros, &ty, terms)?;
    if sums.is_empty() || matches!(zeros, Atom::Literal(_)) {
        return Ok(zeros);
    }
    b.emit1(VaryUnreduced { axes: sums }, &[zeros])
}

/// The operands of an op, of which a zero that fills the ends of a sum over devices is such a sum, too.
fn with_padding(b: &mut Builder, op: &Op, operands: &[Atom]) -> Result<Atoms> {
    let mut operands = Atoms::from_slice(operands);
    if let (Op::Pad(_), &[array, Atom::Literal(literal)]) = (op, &*operands)
        && literal.value.is_zero()
        && let lies = b.type_of(array).varying()
        && !lies.is_plain()
    {
        let zero = b.emit1(Copy {}, &[Atom::Literal(literal)])?;
        operands[1] = cast_zeros(b, zero, lies)?;
    }
    Ok(operands)
}

fn torn(axis: &str) -> crate::Error {
    value_error!(
        "one operand is a sum over the devices along '{axis}' (unreduced), another differs there: sum the one by \
         lax.psum, or make a sum of the other by lax.pcast(..., '{axis}', to='unreduced')"
    )
}
