//! Values that are the same along axes of a mesh, taken as ones that may differ there.
//!
//! The value is the operand's. The transpose is the sum over the devices: each of them has a cotangent of its own for the one
//! value that all had.

use std::sync::Arc;

use super::super::common::{arrays, check_arity, elementwise_batch, one};
use super::super::index_space::*;
use super::{AxisReduce, AxisReduceKind};
use crate::rules::{self, Batch, Batched, Extents, IndexMap, Jvp, Lowering, Row, Rules, Types};
use crate::scalar::{Body, Value};
use crate::{ArrayType, Builder, DType, Result, Tensor, Type, Varying, op_struct};

op_struct! {
    /// The operand, as a value that may differ along named axes.
    Pvary "pvary" { axes: Vec<Arc<str>> }
}

impl Row for Pvary {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(Self::NAME, inputs, 1)?;
        one(arrays(Self::NAME, inputs)?[0].clone())
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].clone()])
    }
}

impl Rules for Pvary {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let sum = AxisReduce {
            kind: AxisReduceKind::SumInvariant,
            axes: self.axes.clone(),
            axis_index_groups: None,
        };
        one_cotangent(b.emit1(sum, &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn varies(&self, operands: Varying) -> Varying {
        operands.union(Varying::of(self.axes.iter().cloned()))
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, _: &mut Body, _: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        Ok(args[0])
    }

    fn index_map(&self, _: &[Extents<'_>], _: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::InOrder))
    }

    fn cost(&self, _: DType) -> u32 {
        0
    }
}
