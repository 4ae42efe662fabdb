//! Reductions over axes, and the index of an extremum: what their rows hold, and the rules that
//! follow from it. The rows are in `rows.rs`.
//!
//! Sums of `bf16` and `f16` accumulate in at least `f32`. A reduction over
//! nothing gives the identity: 0, 1, the least or greatest value.

mod arg;
mod derivatives;
mod rows;

pub use arg::ArgReduce;
pub use rows::{ArgKind, ReduceKind};

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::convert::Wide;
use crate::rules::{
    self, AccumulatorKind, Batch, Batched, Extents, IndexMap, Jvp, Lowering, Reduction, Row, Rules, Types,
    not_linear,
};
use crate::{ArrayType, Atom, Axes, Builder, DType, Result, Scalar, Tensor, Type, type_error, value_error};

use super::accumulate::{Reducer, element, rounded};
use super::common::{one, shift_axes};
use super::index_space::*;

/// A reduction.
pub struct ReduceRow {
    /// JAX's name of the primitive.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub doc: &'static str,
    /// Elements along an axis and what becomes of them, for tests.
    pub example: (&'static [Wide], Wide),
    pub domain: Domain,
    pub reducer: Reducer,
    /// What kernels fold with; of truth values extrema are bits.
    pub accumulator: AccumulatorKind,
    pub derivative: Derivative,
}

/// The index of an extremum.
pub struct ArgRow {
    pub name: &'static str,
    pub doc: &'static str,
    pub example: (&'static [Wide], Wide),
    /// How the extremum compares with other elements.
    pub wanted: Ordering,
    pub accumulator: AccumulatorKind,
}

/// Which dtypes a reduction takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    Numbers,
    /// Numbers and truth values.
    Ordered,
    /// Integers and truth values. Results are strong.
    Bits,
}

/// A reduction whose tangent is asked for.
pub struct At<'a> {
    pub operand: Atom,
    pub result: Atom,
    pub tangent: Atom,
    pub axes: &'a [usize],
}

pub enum Derivative {
    Zero,
    /// The op is linear. From the cotangent to that of an operand of this type.
    Linear(fn(&mut Builder, Atom, &ArrayType, &[usize]) -> Result<Atom>),
    /// The result's tangent.
    Tangent(fn(&mut Builder, &At<'_>) -> Result<Atom>),
}

impl ReduceKind {
    /// The result for no elements.
    pub fn of_nothing(self, dtype: DType) -> Result<Scalar> {
        self.row().reducer.of_nothing(dtype)
    }
}

/// Reduces over axes, which disappear. The kind is part of the name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Axes,
}

kind_params!(Reduce, ReduceKind, [axes]);

/// Refuses dtypes that are not numbers.
pub(super) fn check_number(name: &str, dtype: DType) -> Result<()> {
    if dtype.is_integer() || dtype.is_inexact() {
        return Ok(());
    }
    Err(type_error!("{name} does not accept dtype {dtype}: it takes numbers."))
}

impl Domain {
    fn check(self, name: &str, dtype: DType) -> Result<()> {
        match self {
            Domain::Bits if dtype.is_bool() || dtype.is_integer() => Ok(()),
            Domain::Bits => Err(type_error!("a logical reduction is of bools or integers, got {dtype}.")),
            Domain::Ordered if dtype.is_bool() => Ok(()),
            Domain::Ordered | Domain::Numbers => check_number(name, dtype),
        }
    }
}

impl Row for Reduce {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        let [operand] = operands(name, inputs)?;
        let domain = self.kind.row().domain;
        domain.check(name, operand.dtype)?;
        if has_duplicates(&self.axes) {
            return Err(value_error!("a reduction's axes have one twice: {}", tuple(&self.axes)));
        }
        if self.axes.iter().any(|&axis| axis >= operand.rank()) {
            return Err(value_error!(
                "a reduction's axes {} are not all axes of {operand}.",
                tuple(&self.axes)
            ));
        }
        let kept = other_axes(operand.rank(), &self.axes);
        let shape: crate::Shape = kept.iter().map(|&axis| operand.shape[axis].clone()).collect();
        let weak = operand.weak && domain != Domain::Bits;
        one(ArrayType::new(shape, operand.dtype).with_weak(weak))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let name = self.op_name();
        let [operand] = tensors(name, inputs)?;
        let (dtype, sizes) = output_sizes(name, outputs)?;
        let (kept, strides) = (other_axes(operand.rank(), &self.axes), strides(&sizes));
        let mut output = Tensor::zeros(dtype, sizes)?;
        let reducer = self.kind.row().reducer;
        let mut totals: Vec<Wide> = vec![(reducer.identity)(dtype); output.len()];
        let mut position = 0;
        for_each_index(operand.sizes(), |index| {
            let to: usize = kept.iter().zip(&strides).map(|(&axis, stride)| index[axis] * stride).sum();
            totals[to] = reducer.apply(totals[to], element(dtype, operand.bytes(), position)?)?;
            position += 1;
            Ok(())
        })?;
        let target = output.bytes_mut()?;
        for (to, total) in totals.into_iter().enumerate() {
            copy_element(&rounded(dtype, total)?.bytes(), 0, target, to, dtype.size())?;
        }
        Ok(vec![output])
    }
}

impl Rules for Reduce {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return no_tangent() };
        let result = match self.kind.row().derivative {
            Derivative::Zero => return no_tangent(),
            Derivative::Linear(_) => b.reduce(self.kind, tangent, &self.axes)?,
            Derivative::Tangent(of) => {
                let [operand] = atoms(self.op_name(), eqn.inputs)?;
                let [result] = atoms(self.op_name(), eqn.outputs)?;
                of(b, &At { operand, result, tangent, axes: &self.axes })?
            }
        };
        Ok(SmallVec::from_iter([Some(result)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let Derivative::Linear(transposed) = self.kind.row().derivative else { return not_linear(self) };
        let operand = linear_type(self.op_name(), eqn, 0)?;
        let cotangent = only_cotangent(self.op_name(), eqn)?;
        one_cotangent(transposed(b, cotangent, &operand, &self.axes)?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(self.op_name(), eqn)?;
        let axes = shift_axes(&self.axes, dim);
        let before = axes.iter().filter(|&&axis| axis < dim).count();
        one_batched(b.emit1(Reduce { kind: self.kind, axes }, &[operand])?, dim - before)
    }

    fn lower(&self) -> Lowering {
        Lowering::Reduction
    }

    /// Over one element there is nothing to do, over none the result is the identity.
    fn index_map(&self, inputs: &[Extents<'_>], output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(if self.axes.iter().all(|&axis| inputs[0].sizes[axis] == 1) {
            Some(IndexMap::InOrder)
        } else if inputs[0].count() == 0 {
            Some(IndexMap::Constant(self.kind.of_nothing(output.dtype)?))
        } else {
            None
        })
    }

    fn reduction(&self, input: Extents<'_>) -> Result<Option<Reduction>> {
        if input.dtype.is_complex() && self.kind != ReduceKind::Sum {
            return Ok(None);
        }
        let kind = match self.kind.row().accumulator {
            AccumulatorKind::Max if input.dtype == DType::Bool => AccumulatorKind::Or,
            AccumulatorKind::Min if input.dtype == DType::Bool => AccumulatorKind::And,
            kind => kind,
        };
        Ok(Some(Reduction { kind, axes: self.axes.clone() }))
    }
}
