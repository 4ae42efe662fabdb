//! Ops over a mapped axis that has a name.
//!
//! One case is one lane of the axis; these ops are how it sees others. They mean
//! nothing without the axis: neither the interpreter nor a backend runs them. A
//! batch over the axis turns them into ops on arrays (`Rules::batch_named`), a
//! batch over another axis keeps them. Each has the effect of its axes' names, so
//! that nobody takes it for the same value elsewhere.
//!
//! Names, parameters and meaning are those of jax.lax's parallel operators
//! (docs.jax.dev/en/latest/jax.lax.html#parallel-operators).

/// `Row::eval` and `Row::effects` of an op over these axes.
macro_rules! row_over_axes {
    (|$op:ident| $names:expr) => {
        fn eval(&self, _: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
            let $op = self;
            Err(super::unbound(self.op_name(), $names))
        }

        fn effects(&self) -> crate::Effects {
            let $op = self;
            super::effects($names)
        }
    };
}

/// `Rules::lower` and `Rules::expand` of an op over these axes: an error, for no machine has them.
macro_rules! rules_over_axes {
    (|$op:ident| $names:expr) => {
        fn lower(&self) -> crate::rules::Lowering {
            crate::rules::Lowering::Expand
        }

        fn expand(&self, _: &mut Builder, _: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
            let $op = self;
            Err(super::unbound(self.op_name(), $names))
        }
    };
}

mod exchange;
mod groups;
mod reductions;
mod typed;

use std::sync::Arc;

use smallvec::SmallVec;

use super::index_space::*;
use crate::rules::{Batch, Batched};
use crate::{Atom, Builder, Dim, Effect, Effects, Error, Op, Result};

pub use exchange::{AllGather, AllToAll, ReduceScatter};
use reductions::linear_varying;
pub use typed::{AllGatherInvariant, AllGatherReduced, UnreducedReduceScatter};

pub use reductions::{AxisIndex, AxisReduce, AxisReduceKind, Pbroadcast, Ppermute};

/// Lanes that are to be treated group by group, by number.
pub type Groups = Option<Vec<Vec<usize>>>;

/// What running an op over an axis that nothing maps gives.
fn unbound<'a>(op: &str, names: impl IntoIterator<Item = &'a Arc<str>>) -> Error {
    let names: Vec<_> = names.into_iter().map(|name| &**name).collect();
    Error::Name(format!(
        "Found an unbound axis name: {}. To fix this, call {op} in a function that is mapped over it, as in \
         vmap(f, axis_name='{}').",
        names.join(", "),
        names.first().unwrap_or(&"")
    ))
}

fn effects<'a>(names: impl IntoIterator<Item = &'a Arc<str>>) -> Effects {
    names.into_iter().cloned().map(Effect::NamedAxis).collect()
}

/// The only operand, and where it has the batch dimension.
fn only(op: &str, eqn: &Batch<'_>) -> Result<(Atom, Option<usize>)> {
    let [operand] = atoms(op, eqn.inputs)?;
    Ok((operand, eqn.dims.first().copied().flatten()))
}

/// `x` times the number of lanes: the sum of what is the same for all.
fn times_size(b: &mut Builder, x: Atom, size: &Dim) -> Result<Atom> {
    match size.as_const() {
        Some(size) => b.scale(x, size as f64),
        None => {
            let all = b.broadcast_batch(x, size, 0)?;
            b.reduce_sum(all, &[0])
        }
    }
}

/// `shape` with the axis split into `(size, rest)`.
fn split_axis(b: &mut Builder, x: Atom, axis: usize, size: &Dim) -> Result<Atom> {
    let mut shape = b.shape(x);
    shape[axis] = shape[axis].floor_div(size)?;
    shape.insert(axis, size.clone());
    b.reshape(x, &shape)
}

/// `x` with axes `axis` and `axis + 1` as one.
fn merge_axes(b: &mut Builder, x: Atom, axis: usize) -> Result<Atom> {
    let mut shape = b.shape(x);
    let size = shape.remove(axis);
    shape[axis] = shape[axis].mul(&size)?;
    b.reshape(x, &shape)
}

/// The op over a batch that is not its axis, with the batch dimension in front.
fn beside(b: &mut Builder, op: impl Into<Op>, eqn: &Batch<'_>) -> Result<Batched> {
    let op = op.into();
    let (operand, dim) = only_batched(op.name(), eqn)?;
    let operand = b.move_axis(operand, dim, 0)?;
    one_batched(b.emit1(op, &[operand])?, 0)
}

/// One output that is the same for all lanes.
fn shared(atom: Atom) -> Result<Batched> {
    Ok(SmallVec::from_iter([(atom, None)]))
}
