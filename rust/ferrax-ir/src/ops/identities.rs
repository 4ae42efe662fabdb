//! Identities: copies, values that are marked for passes, and the end of derivatives.

use std::sync::Arc;

use smallvec::smallvec;

use super::collectives::{AxisReduce, AxisReduceKind};
use super::common::{arrays, check_arity, elementwise_batch, one};
use super::derive::{Cotangents, Tangents, each_linear, zero};
use crate::rules::{
    Batch, Batched, Extents, IndexMap, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear,
};
use crate::scalar::{Body, Value};
use crate::varying::Share;
use crate::{ArrayType, Builder, DType, Result, Tensor, Type, Varying, op_struct};

op_struct! {
    /// The identity with derivative zero.
    StopGradient "stop_gradient" {}
}

op_struct! {
    /// The identity as a fresh array.
    Copy "copy" {}
}

op_struct! {
    /// Its operand, which no pass computes before this point or together with equal values beyond it.
    OptimizationBarrier "optimization_barrier" {}
}

op_struct! {
    /// Its operand under a name that policies of `checkpoint` know.
    Name "name" { name: Arc<str> }
}

op_struct! {
    /// The operand, as a value that may differ along named axes of a mesh.
    Pvary "pvary" { axes: Vec<Arc<str>> }
}

op_struct! {
    /// The operand, as a value whose cotangent is a sum over the devices of named axes of a mesh (reduced).
    Preduced "preduced" { axes: Vec<Arc<str>> }
}

op_struct! {
    /// The operand, which is reduced over named axes of a mesh, as a value that may differ along them.
    ReducedVary "reduced_vary_cast" { axes: Vec<Arc<str>> }
}

op_struct! {
    /// The operand, which differs along named axes of a mesh, as the terms of a sum over these (unreduced).
    VaryUnreduced "vary_unreduced_cast" { axes: Vec<Arc<str>> }
}

/// An op whose value is its operand, with these derivative rules.
macro_rules! identity {
    ($name:ident, $($derivatives:tt)*) => {
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
            $($derivatives)*

            fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
                elementwise_batch(self.clone(), b, eqn)
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
    };
}

/// An identity through which cotangents go as values do; `$tangent` makes the tangent.
macro_rules! linear_identity {
    ($name:ident, $tangent:expr $(, $($others:tt)*)?) => {
        identity! {
            $name,
            $($($others)*)?

            fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
                match eqn.tangents[0] {
                    Some(tangent) => Ok(smallvec![Some($tangent(self, b, tangent)?)]),
                    None => Ok(zero()),
                }
            }

            fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
                each_linear(b, eqn, |b, _, cotangent| b.emit1(self.clone(), &[cotangent]))
            }
        }
    };
}

linear_identity!(Copy, |op: &Copy, b: &mut Builder, tangent| b.emit1(op.clone(), &[tangent]));
linear_identity!(
    OptimizationBarrier,
    |op: &OptimizationBarrier, b: &mut Builder, tangent| b.emit1(op.clone(), &[tangent]),
    fn is_barrier(&self) -> bool {
        true
    }
);
// A name means the value, not its tangent.
linear_identity!(Name, |_: &Name, _: &mut Builder, tangent| Ok(tangent));

identity! {
    StopGradient,
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<Tangents> {
        Ok(zero())
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }
}

/// A cast of how values lie over axes of a mesh; `$back` makes that of cotangents, `$share` is how results lie over the axes.
macro_rules! cast {
    ($name:ident, $back:expr, $share:expr) => {
        identity! {
            $name,
            fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
                match eqn.tangents[0] {
                    Some(tangent) => Ok(smallvec![Some(b.emit1(self.clone(), &[tangent])?)]),
                    None => Ok(zero()),
                }
            }

            fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
                each_linear(b, eqn, |b, _, cotangent| b.emit1($back(self.axes.clone()), &[cotangent]))
            }

            fn varies(&self, operands: Varying) -> Varying {
                let own = self.axes.iter().map(|axis| $share.mark(axis));
                operands.without_names(&self.axes).union(Varying::of(own))
            }
        }
    };
}

fn sum(kind: AxisReduceKind) -> impl Fn(Vec<Arc<str>>) -> AxisReduce {
    move |axes| AxisReduce { kind, axes, axis_index_groups: None }
}

// Taken as differing, each device has a cotangent of its own for the one value that all had, whose cotangent is their sum; as
// reduced, the cotangent is said to be that sum already, and is made where it is wanted. What differs and is reduced, or is a sum,
// has cotangents that no device needs of others.
cast!(Pvary, sum(AxisReduceKind::SumInvariant), Share::Varying);
cast!(Preduced, sum(AxisReduceKind::SumUnreduced), Share::Reduced);
cast!(ReducedVary, |axes| VaryUnreduced { axes }, Share::Varying);
cast!(VaryUnreduced, |axes| ReducedVary { axes }, Share::Unreduced);
