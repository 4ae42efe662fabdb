//! `cond` over a batch.

use ferrax_ir::ops::{Call, Compare, Cond, SelectN, StopGradient};
use ferrax_ir::rules::Batched;
use ferrax_ir::{Atom, Builder, Effect, Result, Type, internal_error, unsupported};
use smallvec::SmallVec;

use super::lanes::{cheaper, may, one_by_one};
use crate::batch::{Batching, Dims, OutDims};

pub(crate) fn batch(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &Cond,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    match dims.split_first() {
        Some((Some(_), _)) if may(batching, op) && cheaper(op) => one_by_one(batching, b, op, inputs, dims),
        Some((Some(_), _)) => select(batching, b, op, inputs, dims),
        Some((None, operand_dims)) => one_for_all(batching, b, op, inputs, operand_dims),
        None => Err(internal_error!("cond without an index")),
    }
}

/// All lanes take the same branch: a `cond` of batched branches.
fn one_for_all(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &Cond,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let mut union: Dims = Vec::new();
    for branch in &op.branches {
        let (_, found) = batching.callee(branch, dims, OutDims::Front)?;
        union.resize(found.len(), None);
        for (union, found) in union.iter_mut().zip(&*found) {
            *union = union.or(*found);
        }
    }
    let branches = op
        .branches
        .iter()
        .map(|branch| {
            let (callee, found) = batching.callee(branch, dims, OutDims::Front)?;
            let agrees = *found == *union;
            if agrees { Ok(callee) } else { Ok(batching.callee(branch, dims, OutDims::Force(&union))?.0) }
        })
        .collect::<Result<_>>()?;
    let outputs = b.emit(Cond { branches }, inputs)?;
    Ok(outputs.into_iter().map(Atom::Var).zip(union).collect())
}

/// Lanes take branches of their own: every branch runs on the whole batch, and
/// each lane selects from the results. Where a lane does not take a branch, the
/// operands are cut off from derivatives, lest a NaN or an infinity in what the
/// lane did not ask for come back as 0 * inf.
fn select(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &Cond,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    if op.branches.iter().any(|branch| branch.effects.contains(&Effect::Memory)) {
        return Err(unsupported!(
            "vmap of cond with a batched index runs all branches, but a branch reads or writes a mutable array; \
             use an index that is the same for all lanes"
        ));
    }
    let index = batching.materialise(b, inputs[0], dims[0])?;
    let last = op.branches.len().saturating_sub(1);
    let mut results: Vec<Vec<Atom>> = Vec::with_capacity(op.branches.len());
    for (number, branch) in op.branches.iter().enumerate() {
        let mut operands = Vec::with_capacity(inputs.len());
        let mut operand_dims: Dims = Vec::with_capacity(inputs.len());
        let mut takes = None;
        for (&atom, &dim) in inputs.iter().zip(dims).skip(1) {
            let safe = !b.dtype(atom).is_inexact() || last == 0;
            if safe {
                operands.push(atom);
                operand_dims.push(dim);
                continue;
            }
            let takes = match takes {
                Some(takes) => takes,
                None => *takes.insert(lanes(b, index, number, last)?),
            };
            let x = batching.materialise(b, atom, dim)?;
            let constant = b.emit1(StopGradient {}, &[x])?;
            let shape = b.shape(x);
            let takes = b.broadcast_in_dim(takes, &shape, &[0])?;
            operands.push(b.select(takes, x, constant)?);
            operand_dims.push(Some(0));
        }
        let front: Dims = vec![Some(0); branch.outputs.len()];
        if let Some(ty) = branch.output_types().find(|ty| ty.as_array().is_none()) {
            return Err(unsupported!("vmap of cond with a batched index cannot select from {ty}"));
        }
        let (callee, _) = batching.callee(branch, &operand_dims, OutDims::Force(&front))?;
        let call = Call { name: branch.name.clone(), program: callee, inline: false };
        results.push(b.emit(call, &operands)?.into_iter().map(Atom::Var).collect());
    }
    let count = results.first().map_or(0, Vec::len);
    let mut outputs = Batched::new();
    for position in 0..count {
        let cases: SmallVec<[Atom; 4]> =
            results.iter().filter_map(|results| results.get(position).copied()).collect();
        let merged = match cases.as_slice() {
            [only] => *only,
            cases => {
                let shape = b.shape(cases[0]);
                let which = b.broadcast_in_dim(index, &shape, &[0])?;
                let operands: SmallVec<[Atom; 4]> =
                    std::iter::once(which).chain(cases.iter().copied()).collect();
                b.emit1(SelectN {}, &operands)?
            }
        };
        outputs.push((merged, Some(0)));
    }
    Ok(outputs)
}

/// Which lanes take the branch of this number: `index` is not clamped.
fn lanes(b: &mut Builder, index: Atom, number: usize, last: usize) -> Result<Atom> {
    let Type::Array(ty) = b.type_of(index) else { return Err(internal_error!("an index is an array")) };
    let number_atom = b.int_scalar(ty.dtype, number as i64);
    let how = match number {
        0 => Compare::Le,
        number if number == last => Compare::Ge,
        _ => Compare::Eq,
    };
    b.compare(how, index, number_atom)
}
