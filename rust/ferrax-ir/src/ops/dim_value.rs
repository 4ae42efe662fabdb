//! Dimensions as values.

use smallvec::{SmallVec, smallvec};

use super::common::{check_arity, one};
use super::derive::{Cotangents, Tangents, zero};
use crate::convert::{Wide, load, store};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use crate::{
    ArrayType, Atom, Builder, DType, Dim, Literal, Result, Scalar, Tensor, Type, op_struct, overflow_error,
    type_error,
};

op_struct! {
    /// The difference of two dimensions as a 0-d integer: 'dim' less 'minus', which need not be a size.
    DimAsValue "dim_as_value" { dim: Dim, minus: Dim, dtype: DType }
}

impl DimAsValue {
    fn value(&self) -> Result<Scalar> {
        let what = "dim_as_value";
        let (dim, minus) = (self.dim.require(what)?, self.minus.require(what)?);
        let value = dim as i128 - minus as i128;
        let scalar = store(self.dtype, Wide::Int(value)).ok_or_else(|| self.not_an_integer())?;
        match load(self.dtype, &scalar.bytes()) {
            Some(Wide::Int(kept)) if kept == value => Ok(scalar),
            _ => Err(overflow_error!("the dimension {value} does not fit into {}", self.dtype)),
        }
    }

    fn not_an_integer(&self) -> crate::Error {
        type_error!("dim_as_value: a dimension is an integer, got the dtype {}", self.dtype)
    }
}

impl Row for DimAsValue {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(Self::NAME, inputs, 0)?;
        if !self.dtype.is_integer() {
            return Err(self.not_an_integer());
        }
        one(ArrayType::scalar(self.dtype).with_weak(true))
    }

    fn eval(&self, _: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        Ok(vec![self.value()?.to_tensor()?])
    }
}

impl Rules for DimAsValue {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<Tangents> {
        Ok(zero())
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        Ok(Cotangents::new())
    }

    fn batch(&self, b: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        Ok(smallvec![(b.emit1(self.clone(), &[])?, None)])
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, _: &mut Builder, _: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        Ok(smallvec![Atom::Literal(Literal { value: self.value()?, weak: true })])
    }
}
