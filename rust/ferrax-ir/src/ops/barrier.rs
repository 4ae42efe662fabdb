//! Values that are marked: identities that passes respect.

use std::sync::Arc;

use smallvec::smallvec;

use super::common::{arrays, check_arity, elementwise_batch, one};
use super::derive::{Cotangents, Tangents, each_linear, zero};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use crate::scalar::{Body, Value};
use crate::{ArrayType, Builder, Result, Tensor, Type, op_struct};

op_struct! {
    /// Its operand, which no pass computes before this point or together with equal values beyond it.
    OptimizationBarrier "optimization_barrier" {}
}

op_struct! {
    /// Its operand under a name that policies of `checkpoint` know.
    Name "name" { name: Arc<str> }
}

macro_rules! marked_identity {
    ($name:ident, $tangent:expr) => {
        impl Row for $name {
            row_identity!();

            fn infer(&self, inputs: &[Type]) -> Result<Types> {
                check_arity($name::NAME, inputs, 1)?;
                one(arrays($name::NAME, inputs)?[0].clone())
            }

            fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
                Ok(vec![inputs[0].clone()])
            }
        }

        impl Rules for $name {
            fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
                match eqn.tangents[0] {
                    Some(tangent) => Ok(smallvec![Some($tangent(self, b, tangent)?)]),
                    None => Ok(zero()),
                }
            }

            fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
                each_linear(b, eqn, |b, _, cotangent| b.emit1(self.clone(), &[cotangent]))
            }

            fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
                elementwise_batch(self.clone(), b, eqn)
            }

            fn lower(&self) -> Lowering {
                Lowering::Elementwise
            }

            fn scalar(&self, _: &mut Body, _: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
                Ok(args[0])
            }
        }
    };
}

marked_identity!(OptimizationBarrier, |op: &OptimizationBarrier, b: &mut Builder, tangent| b
    .emit1(op.clone(), &[tangent]));
// A name means the value, not its tangent.
marked_identity!(Name, |_: &Name, _: &mut Builder, tangent| Ok(tangent));
