//! Comparisons.

use smallvec::SmallVec;

use super::arithmetic::{Arithmetic, Emit};
use super::common::{
    Accept, arrays, check_arity, check_dtype, elementwise_batch, elementwise_shape, one, same_dtype,
};
use super::derive::{Cotangents, zero};
use super::evaluate;
use crate::convert::{Wide, load};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use crate::scalar::{Body, ScalarOp, Value};
use crate::{ArrayType, Atom, Builder, DType, Result, Scalar, Tensor, Type, internal_error, op_family};

op_family! {
    /// Comparisons; the result is bool.
    Compare {
        Eq "eq" "`x == y`.",
        Ne "ne" "`x != y`.",
        Lt "lt" "`x < y`.",
        Le "le" "`x <= y`.",
        Gt "gt" "`x > y`.",
        Ge "ge" "`x >= y`.",
    }
}

impl Compare {
    fn holds<T: PartialOrd>(self, x: T, y: T) -> bool {
        match self {
            Compare::Eq => x == y,
            Compare::Ne => x != y,
            Compare::Lt => x < y,
            Compare::Le => x <= y,
            Compare::Gt => x > y,
            Compare::Ge => x >= y,
        }
    }

    fn is_equality(self) -> bool {
        matches!(self, Compare::Eq | Compare::Ne)
    }
}

impl Row for Compare {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        check_arity(name, inputs, 2)?;
        let operands = arrays(name, inputs)?;
        if !self.is_equality() {
            for (position, operand) in operands.iter().enumerate() {
                // Stored formats are ordered too: they compare as what they convert to.
                if !operand.dtype.is_storage_only() {
                    let accept = [Accept::Integer, Accept::Floating, Accept::Bool];
                    check_dtype(name, operand.dtype, &accept, Some(position))?;
                }
            }
        }
        same_dtype(name, &operands)?;
        let shape = elementwise_shape(name, &operands)?;
        one(ArrayType { shape, dtype: DType::Bool, weak: operands.iter().all(|operand| operand.weak) })
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        evaluate::map_scalars(inputs, outputs, |scalars| {
            let [x, y] = [scalars[0], scalars[1]];
            let value = |scalar: Scalar| load(scalar.dtype(), &scalar.bytes());
            let result = match (value(x), value(y)) {
                (Some(Wide::Int(x)), Some(Wide::Int(y))) => self.holds(x, y),
                (Some(Wide::Float(x)), Some(Wide::Float(y))) => self.holds(x, y),
                (Some(Wide::Complex(a, b)), Some(Wide::Complex(c, d))) if self.is_equality() => {
                    (a == c && b == d) == (*self == Compare::Eq)
                }
                // Keys, which have no value, compare by their words.
                (None, None) if self.is_equality() => self.holds(x.bits(), y.bits()),
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
        let (op, swap) = match self {
            Compare::Eq => (ScalarOp::Eq, false),
            Compare::Ne => (ScalarOp::Ne, false),
            Compare::Lt => (ScalarOp::Lt, false),
            Compare::Le => (ScalarOp::Le, false),
            Compare::Gt => (ScalarOp::Lt, true),
            Compare::Ge => (ScalarOp::Le, true),
        };
        match (args[0], args[1]) {
            (Value::Real(x), Value::Real(y)) => {
                let (x, y) = if swap { (y, x) } else { (x, y) };
                Ok(Value::Real(body.compare(op, x, y)))
            }
            (Value::Complex(a, b), Value::Complex(c, d)) if self.is_equality() => {
                let ty = body.type_of(a);
                let mut emit = Emit { body, ty };
                let (re, im) = (emit.eq(a, c), emit.eq(b, d));
                let equal = emit.and(re, im);
                Ok(Value::Real(if *self == Compare::Eq { equal } else { emit.not(equal) }))
            }
            _ => Err(internal_error!("{} of complex numbers", self.op_name())),
        }
    }
}
