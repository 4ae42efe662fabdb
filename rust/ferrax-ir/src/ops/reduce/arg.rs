//! The index of an extremum.

use super::ArgKind;
use crate::ops::accumulate::{element, is_nan, order};
use crate::ops::common::{one, shift_axes};
use crate::ops::index_space::*;
use crate::rules::{
    self, Batch, Batched, Extents, IndexMap, Jvp, Lowering, Reduction, Row, Rules, Types, not_linear,
};
use crate::{
    ArrayType, Axes, Builder, DType, Result, Scalar, ShowShape, Tensor, Type, internal_error, type_error,
    value_error,
};

/// The index of the first extremum along one axis; NaN counts as extreme.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArgReduce {
    pub kind: ArgKind,
    pub axes: Axes,
    pub index_dtype: DType,
}

kind_params!(ArgReduce, ArgKind, [axes, index_dtype]);

impl Row for ArgReduce {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        let [operand] = operands(name, inputs)?;
        let &[axis] = self.axes.as_slice() else {
            return Err(value_error!("{name} takes exactly one axis, got {}", tuple(&self.axes)));
        };
        if axis >= operand.rank() {
            return Err(value_error!(
                "argmin and argmax: there is no axis {axis} in shape {}",
                ShowShape(&operand.shape)
            ));
        }
        if operand.shape[axis] == 0 {
            return Err(value_error!(
                "argmin and argmax choose among elements, of which shape {} has none along axis {axis}",
                ShowShape(&operand.shape)
            ));
        }
        if !self.index_dtype.is_integer() {
            return Err(type_error!(
                "argmin and argmax: index_dtype is an integer dtype, got {}",
                self.index_dtype
            ));
        }
        if !matches!(operand.dtype, DType::Bool) && !operand.dtype.is_integer() && !operand.dtype.is_float() {
            return Err(type_error!(
                "{name} does not accept dtype {}: it takes booleans, integers and floats.",
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
        let wanted = self.kind.row().wanted;
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

    /// Over one element there is nothing to find.
    fn index_map(&self, inputs: &[Extents<'_>], output: Extents<'_>) -> Result<Option<IndexMap>> {
        let single = self.axes.iter().all(|&axis| inputs[0].sizes[axis] == 1);
        Ok(single.then(|| IndexMap::Constant(Scalar::zero(output.dtype))))
    }

    fn reduction(&self, _input: Extents<'_>) -> Result<Option<Reduction>> {
        let kind = self.kind.row().accumulator;
        Ok(Some(Reduction { kind, axes: self.axes.clone() }))
    }
}
