//! The largest elements along an axis, in the total order (`order.rs`).

use smallvec::SmallVec;

use crate::rules::{self, Batch, Batched, Jvp, Lowering, Row, Rules, Types, not_linear};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Result, Scalar, ShowShape, Tensor, Type, internal_error,
    op_struct, value_error,
};

use super::index_space::*;
use super::order::{check_ordered, total_order};
use super::sort::{lines, take_along};

op_struct! {
    /// The `k` largest elements along an axis, in descending order, and where they were.
    TopK "top_k" { axis: usize, k: usize }
}

impl Row for TopK {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let shape = ShowShape(&operand.shape);
        let Some(size) = operand.shape.get(self.axis) else {
            return Err(value_error!("top_k: there is no axis {} in shape {shape}", self.axis));
        };
        if operand.dtype.is_complex() {
            return Err(value_error!(
                "top_k: complex numbers have no order, got dtype {}. Sort by a real key instead.",
                operand.dtype
            ));
        }
        check_ordered(Self::NAME, operand.dtype, 0)?;
        if !may_be_at_most(&Dim::Const(self.k), size) {
            return Err(value_error!(
                "top_k: k={} is more than there is in shape {shape} along axis {}",
                self.k,
                self.axis
            ));
        }
        let mut shape = operand.shape.clone();
        shape[self.axis] = Dim::Const(self.k);
        let of = |dtype| Type::Array(ArrayType::new(shape.clone(), dtype).with_weak(operand.weak));
        Ok(SmallVec::from_iter([of(operand.dtype), of(DType::I32)]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let sizes = outputs.first().and_then(Type::as_array).and_then(ArrayType::sizes);
        let sizes = sizes.ok_or_else(|| internal_error!("top_k was evaluated without sizes"))?;
        let dtype = operand.dtype();
        let mut values = Tensor::zeros(dtype, sizes.clone())?;
        let mut places = Tensor::zeros(DType::I32, sizes.clone())?;
        let (from, stride) = lines(operand.sizes(), self.axis)?;
        let (to, step) = lines(&sizes, self.axis)?;
        for (&from, &to) in from.iter().zip(&to) {
            let keys: Vec<i128> = (0..operand.sizes()[self.axis])
                .map(|place| {
                    let start = (from + place * stride) * dtype.size();
                    let bytes = operand.bytes().get(start..).unwrap_or_default();
                    let element = Scalar::from_bytes(dtype, bytes);
                    let element = element.ok_or_else(|| internal_error!("top_k read outside its operand"))?;
                    Ok(total_order(dtype, element.bits()))
                })
                .collect::<Result<_>>()?;
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_by_key(|&place| std::cmp::Reverse(keys[place]));
            for (rank, &place) in order.iter().take(self.k).enumerate() {
                let at = to + rank * step;
                let source = from + place * stride;
                copy_element(operand.bytes(), source, values.bytes_mut()?, at, dtype.size())?;
                let index = Scalar::from_i64(DType::I32, place as i64).bytes();
                copy_element(&index, 0, places.bytes_mut()?, at, DType::I32.size())?;
            }
        }
        Ok(vec![values, places])
    }
}

impl Rules for TopK {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else {
            return Ok(SmallVec::from_iter([None, None]));
        };
        let [_, places] = atoms(Self::NAME, eqn.outputs)?;
        let mut shape = b.shape(places);
        shape.push(Dim::Const(1));
        let places = b.reshape(places, &shape)?;
        let tangent = take_along(b, tangent, places, self.axis)?;
        Ok(SmallVec::from_iter([Some(tangent), None]))
    }

    fn transpose(&self, _b: &mut Builder, _eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        let op = TopK { axis: self.axis + usize::from(self.axis >= dim), k: self.k };
        let outputs = b.emit(op, &[operand])?;
        Ok(outputs.into_iter().map(|var| (Atom::Var(var), Some(dim))).collect())
    }

    fn coupled_axes(&self, _rank: usize) -> Option<Axes> {
        Some(SmallVec::from_elem(self.axis, 1))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}
