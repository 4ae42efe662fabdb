//! Comparisons.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use Promotion::{Lexicographic, Numeric};
use smallvec::SmallVec;

use super::common::{
    Accept, arrays, check_arity, check_dtype, elementwise_batch, elementwise_shape, one, same_dtype,
};
use super::derive::{Cotangents, zero};
use super::evaluate;
use super::python::{Promotion, Python, numpy};
use crate::convert::{Wide, load};
use crate::math::{Emit, FloatLang};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use crate::scalar::{Body, ScalarOp, Value};
use crate::{ArrayType, Atom, Builder, DType, Result, Scalar, Tensor, Type, internal_error, op_family};

/// A comparison.
pub struct CompareRow {
    /// JAX's name of the primitive.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub doc: &'static str,
    /// Operands and the result, for help and for tests.
    pub example: ([Wide; 2], Wide),
    /// Of operands in this order; with NaN there is none.
    holds: fn(Option<Ordering>) -> bool,
    /// The instruction, and whether it takes the operands in the other order.
    instruction: (ScalarOp, bool),
    /// Takes all dtypes, complex numbers and keys too.
    pub equality: bool,
    pub python: Python,
}

op_family! {
    /// Comparisons; the result is bool.
    Compare: CompareRow {
        Eq = CompareRow {
            name: "eq",
            doc: "`x == y`.",
            example: ([Wide::Float(1.5), Wide::Float(2.0)], Wide::Int(0)),
            holds: |order| order == Some(Equal),
            instruction: (ScalarOp::Eq, false),
            equality: true,
            python: Python { lax: "eq", numpy: &[numpy("equal", Numeric)], shown: &[], note: "" },
        },
        Ne = CompareRow {
            name: "ne",
            doc: "`x != y`.",
            example: ([Wide::Float(1.5), Wide::Float(2.0)], Wide::Int(1)),
            holds: |order| order != Some(Equal),
            instruction: (ScalarOp::Ne, false),
            equality: true,
            python: Python { lax: "ne", numpy: &[numpy("not_equal", Numeric)], shown: &[], note: "" },
        },
        Lt = CompareRow {
            name: "lt",
            doc: "`x < y`.",
            example: ([Wide::Float(1.5), Wide::Float(2.0)], Wide::Int(1)),
            holds: |order| order == Some(Less),
            instruction: (ScalarOp::Lt, false),
            equality: false,
            python: Python { lax: "lt", numpy: &[numpy("less", Lexicographic)], shown: &[], note: "" },
        },
        Le = CompareRow {
            name: "le",
            doc: "`x <= y`.",
            example: ([Wide::Float(1.5), Wide::Float(2.0)], Wide::Int(1)),
            holds: |order| matches!(order, Some(Less | Equal)),
            instruction: (ScalarOp::Le, false),
            equality: false,
            python: Python { lax: "le", numpy: &[numpy("less_equal", Lexicographic)], shown: &[], note: "" },
        },
        Gt = CompareRow {
            name: "gt",
            doc: "`x > y`.",
            example: ([Wide::Float(1.5), Wide::Float(2.0)], Wide::Int(0)),
            holds: |order| order == Some(Greater),
            instruction: (ScalarOp::Lt, true),
            equality: false,
            python: Python { lax: "gt", numpy: &[numpy("greater", Lexicographic)], shown: &[], note: "" },
        },
        Ge = CompareRow {
            name: "ge",
            doc: "`x >= y`.",
            example: ([Wide::Float(1.5), Wide::Float(2.0)], Wide::Int(0)),
            holds: |order| matches!(order, Some(Greater | Equal)),
            instruction: (ScalarOp::Le, true),
            equality: false,
            python: Python { lax: "ge", numpy: &[numpy("greater_equal", Lexicographic)], shown: &[], note: "" },
        },
    }
}

impl Compare {
    /// The groups of dtypes that are compared; keys and stored formats aside.
    pub fn accepts(self) -> SmallVec<[Accept; 4]> {
        let ordered = [Accept::Integer, Accept::Floating, Accept::Bool];
        let complex = self.row().equality.then_some(Accept::Complex);
        ordered.into_iter().chain(complex).collect()
    }
}

impl Row for Compare {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        check_arity(name, inputs, 2)?;
        let operands = arrays(name, inputs)?;
        if !self.row().equality {
            for (position, operand) in operands.iter().enumerate() {
                // Stored formats are ordered too: they compare as what they convert to.
                if !operand.dtype.is_storage_only() {
                    check_dtype(name, operand.dtype, &self.accepts(), Some(position))?;
                }
            }
        }
        same_dtype(name, &operands)?;
        let shape = elementwise_shape(name, &operands)?;
        one(ArrayType::new(shape, DType::Bool).with_weak(operands.iter().all(|operand| operand.weak)))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        evaluate::map_scalars(inputs, outputs, |scalars| {
            let [x, y] = [scalars[0], scalars[1]];
            let holds = self.row().holds;
            let value = |scalar: Scalar| load(scalar.dtype(), &scalar.bytes());
            let result = match (value(x), value(y)) {
                (Some(Wide::Int(x)), Some(Wide::Int(y))) => holds(x.partial_cmp(&y)),
                (Some(Wide::Float(x)), Some(Wide::Float(y))) => holds(x.partial_cmp(&y)),
                (Some(Wide::Complex(a, b)), Some(Wide::Complex(c, d))) if self.row().equality => {
                    holds((a == c && b == d).then_some(Equal))
                }
                // Keys, which have no value, compare by their words.
                (None, None) if self.row().equality => holds(x.bits().partial_cmp(&y.bits())),
                other => return Err(internal_error!("{} of {other:?}", self.op_name())),
            };
            Ok(Scalar::bool(result))
        })
    }
}

impl Rules for Compare {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Ok(zero())
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(*self, b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, body: &mut Body, _: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let (op, swap) = self.row().instruction;
        match (args[0], args[1]) {
            (Value::Real(x), Value::Real(y)) => {
                let (x, y) = if swap { (y, x) } else { (x, y) };
                Ok(Value::Real(body.compare(op, x, y)))
            }
            (Value::Complex(a, b), Value::Complex(c, d)) if self.row().equality => {
                let ty = body.type_of(a);
                let l = &mut Emit::new(body, ty);
                let (re, im) = (l.eq(a, c), l.eq(b, d));
                let equal = l.both(re, im);
                Ok(Value::Real(if op == ScalarOp::Eq { equal } else { l.not(equal) }))
            }
            _ => Err(internal_error!("{} of complex numbers", self.op_name())),
        }
    }
}
