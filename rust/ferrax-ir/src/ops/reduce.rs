//! Reductions over axes, and the index of an extremum.
//!
//! Sums of `bf16` and `f16` accumulate in at least `f32`. A reduction over
//! nothing gives the identity: 0, 1, the least or greatest value.

use smallvec::SmallVec;

use crate::convert::Wide;
use crate::rules::{self, Batch, Batched, FromParams, Jvp, Lowering, Row, Rules, Types, not_linear};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Param, Params, Result, Scalar, Shape, ShowShape, Tensor,
    ToParam, Type, internal_error, parse_error, string_enum, type_error, unsupported, value_error,
};

use super::Compare;
use super::accumulate::{Reducer, element, is_nan, order, rounded};
use super::common::{one, shift_axes};
use super::index_space::*;

string_enum! {
    /// Which reduction.
    ReduceKind {
        Sum = "reduce_sum", Prod = "reduce_prod", Max = "reduce_max", Min = "reduce_min", And = "reduce_and",
        Or = "reduce_or", Xor = "reduce_xor",
    }
}

string_enum! {
    /// Which extremum's index.
    ArgKind { Max = "argmax", Min = "argmin" }
}

/// Reduces over axes, which disappear. The kind is part of the name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    pub kind: ReduceKind,
    pub axes: Axes,
}

/// The index of the first extremum along one axis; NaN counts as extreme.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArgReduce {
    pub kind: ArgKind,
    pub axes: Axes,
    pub index_dtype: DType,
}

reduction_params!(Reduce, ReduceKind, [axes], [
    "reduce_sum" "Sum over axes.",
    "reduce_prod" "Product over axes.",
    "reduce_max" "Maximum over axes; NaN if there is one.",
    "reduce_min" "Minimum over axes; NaN if there is one.",
    "reduce_and" "Bitwise and over axes.",
    "reduce_or" "Bitwise or over axes.",
    "reduce_xor" "Bitwise exclusive or over axes.",
]);
reduction_params!(ArgReduce, ArgKind, [axes, index_dtype], [
    "argmax" "Index of the first maximum along an axis.",
    "argmin" "Index of the first minimum along an axis.",
]);

/// Refuses dtypes that are not numbers.
pub(super) fn check_number(name: &str, dtype: DType) -> Result<()> {
    if dtype.is_integer() || dtype.is_inexact() {
        return Ok(());
    }
    Err(type_error!("{name} does not accept dtype {dtype}. Accepted dtypes are subtypes of number."))
}

impl Reduce {
    fn reducer(&self) -> Reducer {
        match self.kind {
            ReduceKind::Sum => Reducer::Sum,
            ReduceKind::Prod => Reducer::Product,
            ReduceKind::Max => Reducer::Max,
            ReduceKind::Min => Reducer::Min,
            ReduceKind::And => Reducer::And,
            ReduceKind::Or => Reducer::Or,
            ReduceKind::Xor => Reducer::Xor,
        }
    }
}

impl Row for Reduce {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        let [operand] = operands(name, inputs)?;
        let dtype = operand.dtype;
        let logical = matches!(self.kind, ReduceKind::And | ReduceKind::Or | ReduceKind::Xor);
        if logical && !(dtype.is_bool() || dtype.is_integer()) {
            return Err(type_error!("logical reduction requires operand dtype bool or int, got {dtype}."));
        }
        let any = logical || matches!(self.kind, ReduceKind::Max | ReduceKind::Min) && dtype.is_bool();
        if !any {
            check_number(name, dtype)?;
        }
        if has_duplicates(&self.axes) {
            return Err(value_error!("duplicate value in 'axes' of reduction: {}", tuple(&self.axes)));
        }
        if self.axes.iter().any(|&axis| axis >= operand.rank()) {
            return Err(value_error!(
                "reduction axes {} contains out-of-bounds indices for {operand}.",
                tuple(&self.axes)
            ));
        }
        let kept = other_axes(operand.rank(), &self.axes);
        let shape = kept.iter().map(|&axis| operand.shape[axis].clone()).collect();
        one(ArrayType { shape, dtype, weak: operand.weak && !logical })
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let name = self.op_name();
        let [operand] = tensors(name, inputs)?;
        let (dtype, sizes) = output_sizes(name, outputs)?;
        let (kept, strides) = (other_axes(operand.rank(), &self.axes), strides(&sizes));
        let mut output = Tensor::zeros(dtype, sizes)?;
        let reducer = self.reducer();
        let mut totals: Vec<Wide> = vec![reducer.identity(dtype); output.len()];
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
        let [operand] = atoms(self.op_name(), eqn.inputs)?;
        let result = match self.kind {
            ReduceKind::Sum => b.reduce_sum(tangent, &self.axes)?,
            ReduceKind::Prod => product_tangent(b, operand, tangent, &self.axes)?,
            ReduceKind::Max | ReduceKind::Min => {
                let [output] = atoms(self.op_name(), eqn.outputs)?;
                let shape = b.shape(operand);
                let kept = other_axes(shape.len(), &self.axes);
                let extremum = b.broadcast_in_dim(output, &shape, &kept)?;
                let reached = b.compare(Compare::Eq, operand, extremum)?;
                let reached = b.convert(reached, b.dtype(tangent))?;
                let count = b.reduce_sum(reached, &self.axes)?;
                let share = b.mul(tangent, reached)?;
                let total = b.reduce_sum(share, &self.axes)?;
                b.div(total, count)?
            }
            ReduceKind::And | ReduceKind::Or | ReduceKind::Xor => return no_tangent(),
        };
        Ok(SmallVec::from_iter([Some(result)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        if self.kind != ReduceKind::Sum {
            return not_linear(self);
        }
        let operand = linear_type(self.op_name(), eqn, 0)?;
        let cotangent = only_cotangent(self.op_name(), eqn)?;
        let kept = other_axes(operand.rank(), &self.axes);
        one_cotangent(b.broadcast_in_dim(cotangent, &operand.shape, &kept)?)
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
}

/// The tangent of a product, without divisions and so exact where factors are
/// zero: the array is folded in half until one element is left, and each fold
/// `z = x·y` takes the tangents along as `dz = dx·y + x·dy`.
fn product_tangent(b: &mut Builder, operand: Atom, tangent: Atom, axes: &[usize]) -> Result<Atom> {
    let shape = b.shape(operand);
    let kept = other_axes(shape.len(), axes);
    let reduced: Shape = axes.iter().map(|&axis| shape[axis].clone()).collect();
    let length = Dim::product(&reduced)?.as_const().ok_or_else(|| {
        unsupported!(
            "the derivative of reduce_prod needs constant sizes of the reduced axes, got shape {} and axes {}",
            ShowShape(&shape),
            tuple(axes)
        )
    })?;
    let result: Shape = kept.iter().map(|&axis| shape[axis].clone()).collect();
    if length == 0 {
        let ty = ArrayType::new(result, b.dtype(tangent));
        return b.zeros(&ty);
    }
    let order: Axes = kept.iter().chain(axes).copied().collect();
    let mut flat = result.clone();
    flat.push(Dim::Const(length));
    let mut flatten = |x: Atom| -> Result<Atom> {
        let x = b.transpose(x, &order)?;
        b.reshape(x, &flat)
    };
    let (mut x, mut t) = (flatten(operand)?, flatten(tangent)?);
    let (axis, mut length) = (kept.len(), length);
    while length > 1 {
        let half = length / 2;
        let part = |b: &mut Builder, x: Atom, from: usize, to: usize| b.slice_axis(x, axis, from, to);
        let (x0, x1) = (part(b, x, 0, half)?, part(b, x, half, 2 * half)?);
        let (t0, t1) = (part(b, t, 0, half)?, part(b, t, half, 2 * half)?);
        let (left, right) = (b.mul(t0, x1)?, b.mul(x0, t1)?);
        let (mut folded, mut folded_tangent) = (b.mul(x0, x1)?, b.add(left, right)?);
        if length % 2 == 1 {
            let (x2, t2) = (part(b, x, 2 * half, length)?, part(b, t, 2 * half, length)?);
            folded = b.emit1(super::Concatenate { dimension: axis }, &[folded, x2])?;
            folded_tangent = b.emit1(super::Concatenate { dimension: axis }, &[folded_tangent, t2])?;
        }
        (x, t) = (folded, folded_tangent);
        length = length.div_ceil(2);
    }
    b.reshape(t, &result)
}

impl Row for ArgReduce {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        let [operand] = operands(name, inputs)?;
        let &[axis] = self.axes.as_slice() else {
            return Err(value_error!("{name} takes exactly one axis, got {}", tuple(&self.axes)));
        };
        if axis >= operand.rank() {
            return Err(value_error!("Invalid axis {axis} for operand shape {}", ShowShape(&operand.shape)));
        }
        if operand.shape[axis] == 0 {
            return Err(value_error!(
                "argmin and argmax require non-empty reduced dimension. operand.shape={} axis={axis}",
                ShowShape(&operand.shape)
            ));
        }
        if !self.index_dtype.is_integer() {
            return Err(type_error!("index_dtype must be an integer type, but got {}", self.index_dtype));
        }
        if !matches!(operand.dtype, DType::Bool) && !operand.dtype.is_integer() && !operand.dtype.is_float() {
            return Err(type_error!(
                "{name} does not accept dtype {}. Accepted dtypes are booleans, integers and floats.",
                operand.dtype
            ));
        }
        let mut shape = operand.shape.clone();
        shape.remove(axis);
        one(ArrayType::new(shape, self.index_dtype))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let name = self.op_name();
        let [operand] = tensors(name, inputs)?;
        let (dtype, sizes) = output_sizes(name, outputs)?;
        let &[axis] = self.axes.as_slice() else { return Err(internal_error!("{name} has one axis")) };
        let wanted = match self.kind {
            ArgKind::Max => std::cmp::Ordering::Greater,
            ArgKind::Min => std::cmp::Ordering::Less,
        };
        let old = strides(operand.sizes());
        let mut output = Tensor::zeros(dtype, sizes.clone())?;
        let target = output.bytes_mut()?;
        let mut position = 0;
        for_each_index(&sizes, |index| {
            let mut whole: Axes = index.into();
            whole.insert(axis, 0);
            let base = offset(&whole, &old);
            let mut best = (0, element(operand.dtype(), operand.bytes(), base)?);
            for place in 1..operand.sizes()[axis] {
                let value = element(operand.dtype(), operand.bytes(), base + place * old[axis])?;
                let better = is_nan(value) || order(value, best.1) == Some(wanted);
                if better && !is_nan(best.1) {
                    best = (place, value);
                }
            }
            let place = Scalar::from_i64(dtype, best.0 as i64);
            copy_element(&place.bytes(), 0, target, position, dtype.size())?;
            position += 1;
            Ok(())
        })?;
        Ok(vec![output])
    }
}

impl Rules for ArgReduce {
    fn jvp(&self, _b: &mut Builder, _eqn: &Jvp<'_>) -> Result<Tangents> {
        no_tangent()
    }

    fn transpose(&self, _b: &mut Builder, _eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(self.op_name(), eqn)?;
        let axes = shift_axes(&self.axes, dim);
        let before = axes.iter().filter(|&&axis| axis < dim).count();
        one_batched(b.emit1(ArgReduce { axes, ..self.clone() }, &[operand])?, dim - before)
    }

    fn lower(&self) -> Lowering {
        Lowering::Reduction
    }
}
