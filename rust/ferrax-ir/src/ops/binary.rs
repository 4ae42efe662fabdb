//! Elementwise ops of two operands: family, types, meaning and scalar bodies.
//! Their derivatives are in `binary_derivatives.rs`.

use smallvec::SmallVec;

use super::arithmetic::{Arithmetic, Emit, Native, bits_type, parts};
use super::common::{
    Accept, arrays, check_arity, check_dtype, elementwise_batch, elementwise_shape, one, same_dtype,
};
use super::{binary_derivatives, complex, evaluate};
use crate::convert::{Wide, load, store};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use crate::scalar::{Body, MathFn, Reg, ScalarOp, ScalarType, Value, reference};
use crate::{ArrayType, Atom, Builder, DType, Result, Tensor, Type, internal_error, op_family, type_error};

op_family! {
    /// Ops of two operands of one dtype without parameters.
    Binary {
        Add "add" "`x + y`; integers wrap.",
        Sub "sub" "`x - y`; integers wrap.",
        Mul "mul" "`x * y`; integers wrap.",
        Div "div" "`x / y`; integers truncate, `x / 0 = -1`.",
        Rem "rem" "Remainder with the sign of the dividend.",
        Pow "pow" "`x^y`; the exponent may be an integer where the base is not.",
        Max "max" "The larger; NaN if either is; lexicographic for complex.",
        Min "min" "The smaller; NaN if either is; lexicographic for complex.",
        And "and" "Bitwise (bool: logical) and.",
        Or "or" "Bitwise (bool: logical) or.",
        Xor "xor" "Bitwise (bool: logical) exclusive or.",
        ShiftLeft "shift_left" "`x << y`; 0 where y is not below the width.",
        ShiftRightArithmetic "shift_right_arithmetic" "`x >> y` keeping the sign.",
        ShiftRightLogical "shift_right_logical" "`x >> y` filling with zeros.",
        Atan2 "atan2" "Angle of the point (y, x).",
        Nextafter "nextafter" "The next float after x towards y.",
        Complex "complex" "A complex number from its parts.",
    }
}

impl Binary {
    fn accepts(self) -> &'static [Accept] {
        use Accept::*;
        match self {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div => &[Integer, Floating, Complex],
            Binary::Rem => &[Integer, Floating],
            Binary::Pow | Binary::Atan2 => &[Floating, Complex],
            Binary::Max | Binary::Min => &[Integer, Floating, Complex, Bool],
            Binary::And | Binary::Or | Binary::Xor => &[Integer, Bool],
            Binary::ShiftLeft | Binary::ShiftRightArithmetic | Binary::ShiftRightLogical => &[Integer],
            Binary::Nextafter => &[Floating],
            Binary::Complex => &[Parts],
        }
    }

    fn check_dtypes(self, x: &ArrayType, y: &ArrayType) -> Result<()> {
        let name = self.op_name();
        check_dtype(name, x.dtype, self.accepts(), Some(0))?;
        if self != Binary::Pow {
            check_dtype(name, y.dtype, self.accepts(), Some(1))?;
            return same_dtype(name, &[x, y]);
        }
        check_dtype(name, y.dtype, &[Accept::Integer, Accept::Floating, Accept::Complex], Some(1))?;
        if y.dtype.is_integer() || x.dtype == y.dtype {
            return Ok(());
        }
        Err(type_error!(
            "the first argument to pow must have an inexact dtype (float or complex), and the second argument \
             must have an inexact or integer dtype, and two inexact dtypes must match, but got {} and {} \
             respectively.",
            x.dtype,
            y.dtype
        ))
    }

    fn complex<A: Arithmetic>(
        self,
        a: &mut A,
        x: complex::Pair<A>,
        y: complex::Pair<A>,
    ) -> Result<complex::Pair<A>> {
        Ok(match self {
            Binary::Add => complex::add(a, x, y),
            Binary::Sub => complex::sub(a, x, y),
            Binary::Mul => complex::mul(a, x, y),
            Binary::Div => complex::div(a, x, y),
            Binary::Pow => complex::pow(a, x, y),
            Binary::Max => complex::max(a, x, y),
            Binary::Min => complex::min(a, x, y),
            Binary::Atan2 => complex::atan2(a, x, y),
            _ => return Err(internal_error!("{} of complex numbers", self.op_name())),
        })
    }

    /// The instruction that the op is for real numbers, where it is one.
    fn scalar_op(self) -> Option<ScalarOp> {
        Some(match self {
            Binary::Add => ScalarOp::Add,
            Binary::Sub => ScalarOp::Sub,
            Binary::Mul => ScalarOp::Mul,
            Binary::Div => ScalarOp::Div,
            Binary::Rem => ScalarOp::Rem,
            Binary::Max => ScalarOp::Max,
            Binary::Min => ScalarOp::Min,
            Binary::And => ScalarOp::And,
            Binary::Or => ScalarOp::Or,
            Binary::Xor => ScalarOp::Xor,
            Binary::ShiftLeft => ScalarOp::Shl,
            Binary::ShiftRightArithmetic => ScalarOp::ShrArithmetic,
            Binary::ShiftRightLogical => ScalarOp::ShrLogical,
            Binary::Pow => ScalarOp::Math(MathFn::Pow),
            Binary::Atan2 => ScalarOp::Math(MathFn::Atan2),
            Binary::Nextafter | Binary::Complex => return None,
        })
    }

    fn of_floats(self, x: f64, y: f64) -> Result<Wide> {
        Ok(Wide::Float(match self {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Rem => x % y,
            Binary::Max => reference::maximum(x, y),
            Binary::Min => reference::minimum(x, y),
            Binary::Pow => x.powf(y),
            Binary::Atan2 => x.atan2(y),
            Binary::Complex => return Ok(Wide::Complex(x, y)),
            _ => return Err(internal_error!("{} of floats", self.op_name())),
        }))
    }

    /// Before wrapping. Shifts read their amount as unsigned.
    fn of_integers(self, dtype: DType, x: i128, y: i128) -> Result<Wide> {
        let width = dtype.bits() as u128;
        let mask = u128::MAX >> (128 - width);
        let amount = (y as u128) & mask;
        Ok(Wide::Int(match self {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x.wrapping_mul(y),
            Binary::Div if y == 0 => -1,
            Binary::Div => x / y,
            Binary::Rem if y == 0 => x,
            Binary::Rem => x % y,
            Binary::Max => x.max(y),
            Binary::Min => x.min(y),
            Binary::And => x & y,
            Binary::Or => x | y,
            Binary::Xor => x ^ y,
            Binary::ShiftLeft | Binary::ShiftRightLogical if amount >= width => 0,
            Binary::ShiftLeft => x << amount,
            Binary::ShiftRightLogical => (((x as u128) & mask) >> amount) as i128,
            // The highest bit counts as the sign, of unsigned numbers too.
            Binary::ShiftRightArithmetic => ((x << (128 - width)) >> (128 - width)) >> amount.min(width - 1),
            _ => return Err(internal_error!("{} of integers", self.op_name())),
        }))
    }
}

impl Row for Binary {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        check_arity(name, inputs, 2)?;
        let operands = arrays(name, inputs)?;
        let (x, y) = (operands[0], operands[1]);
        self.check_dtypes(x, y)?;
        let shape = elementwise_shape(name, &operands)?;
        let dtype = match self {
            Binary::Complex => x.dtype.complex().unwrap_or(x.dtype),
            _ => x.dtype,
        };
        one(ArrayType { shape, dtype, weak: x.weak && y.weak })
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let dtype = inputs[0].dtype();
        if *self == Binary::Nextafter {
            return evaluate::map_scalars(inputs, outputs, |scalars| {
                Ok(reference::nextafter(dtype, scalars[0], scalars[1]))
            });
        }
        evaluate::map(inputs, outputs, |values| match (values[0], values[1]) {
            (Wide::Int(x), Wide::Int(y)) => self.of_integers(dtype, x, y),
            (Wide::Float(x), Wide::Float(y)) => self.of_floats(x, y),
            (Wide::Complex(a, b), Wide::Complex(c, d)) => {
                self.complex(&mut Native, (a, b), (c, d)).map(|(re, im)| Wide::Complex(re, im))
            }
            // pow: an integer exponent is first converted to the base's dtype.
            (Wide::Float(x), y @ Wide::Int(_)) => match convert(y, dtype)? {
                Wide::Float(y) => self.of_floats(x, y),
                other => Err(internal_error!("exponent {other:?}")),
            },
            (Wide::Complex(re, im), y @ Wide::Int(_)) => match convert(y, dtype.real())? {
                Wide::Float(y) => {
                    self.complex(&mut Native, (re, im), (y, 0.0)).map(|(re, im)| Wide::Complex(re, im))
                }
                other => Err(internal_error!("exponent {other:?}")),
            },
            other => Err(internal_error!("{} of {other:?}", self.op_name())),
        })
    }
}

/// `value` as an element of `dtype` holds it.
fn convert(value: Wide, dtype: DType) -> Result<Wide> {
    store(dtype, value)
        .and_then(|scalar| load(dtype, &scalar.bytes()))
        .ok_or_else(|| internal_error!("{value:?} as {dtype}"))
}

impl Rules for Binary {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        binary_derivatives::jvp(*self, b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        binary_derivatives::transpose(*self, b, eqn)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(*self, b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, body: &mut Body, types: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let dtype = types[0].dtype;
        match (args[0], args[1]) {
            (Value::Complex(re, im), y) => {
                let ty = body.type_of(re);
                let y = match y {
                    Value::Real(exponent) => {
                        let exponent = body.convert(exponent, ty);
                        parts(body, Value::Real(exponent))
                    }
                    Value::Complex(re, im) => (re, im),
                };
                let (re, im) = self.complex(&mut Emit { body, ty }, (re, im), y)?;
                Ok(Value::Complex(re, im))
            }
            (Value::Real(x), Value::Real(y)) if *self == Binary::Complex => Ok(Value::Complex(x, y)),
            (Value::Real(x), Value::Real(y)) if *self == Binary::Nextafter => {
                Ok(Value::Real(emit_nextafter(body, dtype, x, y)?))
            }
            (Value::Real(x), Value::Real(y)) => {
                let ty = body.type_of(x);
                let op = match (self, ty) {
                    // Truth values have no order instructions of their own.
                    (Binary::Max, ScalarType::Bool) => ScalarOp::Or,
                    (Binary::Min, ScalarType::Bool) => ScalarOp::And,
                    _ => self
                        .scalar_op()
                        .ok_or_else(|| internal_error!("{} is no instruction", self.op_name()))?,
                };
                let y = if *self == Binary::Pow { body.convert(y, ty) } else { y };
                // An exponent of another dtype is rounded as the base's would be.
                let y =
                    if *self == Binary::Pow && types[1].dtype != dtype { body.round_to(dtype, y) } else { y };
                if op == ScalarOp::ShrArithmetic && dtype.is_unsigned() {
                    let signed = signed_type(ty);
                    let (x, y) = (body.bitcast(x, signed), body.bitcast(y, signed));
                    let x = body.sign_extended(dtype, x);
                    let shifted = body.push(op, signed, &[x, y]);
                    let shifted = body.bitcast(shifted, ty);
                    return Ok(Value::Real(body.round_to(dtype, shifted)));
                }
                let x = if op == ScalarOp::ShrLogical { body.low_bits(dtype, x) } else { x };
                let result = body.push(op, ty, &[x, y]);
                Ok(Value::Real(body.round_to(dtype, result)))
            }
            _ => Err(internal_error!("{} of a real and a complex number", self.op_name())),
        }
    }
}

/// The signed type of a register type's size.
fn signed_type(ty: ScalarType) -> ScalarType {
    match ty.size() {
        1 => ScalarType::I8,
        2 => ScalarType::I16,
        4 => ScalarType::I32,
        _ => ScalarType::I64,
    }
}

/// One step in the last place of the format that `dtype` is stored in.
fn emit_nextafter(body: &mut Body, dtype: DType, x: Reg, y: Reg) -> Result<Reg> {
    let ty = body.type_of(x);
    let bits_ty = bits_type(ty);
    let sign_bit = 1u64 << (bits_ty.size() * 8 - 1);
    let constant = |body: &mut Body, bits: u64| body.push(ScalarOp::Const { bits }, bits_ty, &[]);
    // A step of a normal number in its register's last places.
    let ulp = match dtype {
        DType::BF16 => 1 << 16,
        DType::F16 => 1 << 13,
        _ => 1,
    };
    let zero = body.float(ty, 0.0);
    let (pattern, step) = (body.bitcast(x, bits_ty), constant(body, ulp));
    let up = body.compare(ScalarOp::Lt, x, y);
    let positive = body.compare(ScalarOp::Lt, zero, x);
    let away = body.compare(ScalarOp::Eq, up, positive);
    let larger = body.op(ScalarOp::Add, &[pattern, step]);
    let smaller = body.op(ScalarOp::Sub, &[pattern, step]);
    let moved = body.select(away, larger, smaller);
    let mut result = body.bitcast(moved, ty);

    let smallest = if dtype == DType::F16 {
        // Subnormals are evenly spaced, and below infinity comes the largest.
        let spacing = body.float(ty, 2f64.powi(-24));
        let negated = body.float(ty, -(2f64.powi(-24)));
        let step = body.select(up, spacing, negated);
        let stepped = body.op(ScalarOp::Add, &[x, step]);
        let magnitude = body.op(ScalarOp::Abs, &[x]);
        let limit = body.float(ty, 2f64.powi(-14));
        let (below, at) =
            (body.compare(ScalarOp::Lt, magnitude, limit), body.compare(ScalarOp::Eq, magnitude, limit));
        let inward = body.op(ScalarOp::Not, &[away]);
        let at = body.op(ScalarOp::And, &[at, inward]);
        let subnormal = body.op(ScalarOp::Or, &[below, at]);
        result = body.select(subnormal, stepped, result);
        let infinity = body.float(ty, f64::INFINITY);
        let infinite = body.compare(ScalarOp::Eq, magnitude, infinity);
        let largest = body.float(ty, 65504.0);
        let largest = Emit { body, ty }.copysign(largest, x);
        result = body.select(infinite, largest, result);
        body.float(ty, 2f64.powi(-24))
    } else {
        let smallest = constant(body, ulp);
        body.bitcast(smallest, ty)
    };
    let bits = body.bitcast(smallest, bits_ty);
    let sign = constant(body, sign_bit);
    let negative = body.op(ScalarOp::Or, &[bits, sign]);
    let negative = body.bitcast(negative, ty);
    let first = body.select(up, smallest, negative);
    let is_zero = body.compare(ScalarOp::Eq, x, zero);
    let result = body.select(is_zero, first, result);
    let same = body.compare(ScalarOp::Eq, x, y);
    let result = body.select(same, y, result);
    let sum = body.op(ScalarOp::Add, &[x, y]);
    let (x_nan, y_nan) = (body.compare(ScalarOp::Ne, x, x), body.compare(ScalarOp::Ne, y, y));
    let nan = body.op(ScalarOp::Or, &[x_nan, y_nan]);
    let result = body.select(nan, sum, result);
    Ok(body.round_to(dtype, result))
}
