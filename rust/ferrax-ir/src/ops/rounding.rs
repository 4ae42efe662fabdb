//! Rounding to integers and to narrower formats, and integer powers.

use smallvec::SmallVec;

use super::common::{Accept, arrays, check_arity, check_dtype, elementwise_batch, one};
use super::derive::{Cotangents, constant, each_linear, zero};
use super::formula::{Exact, Formulas, bits_type};
use super::{complex, evaluate};
use crate::convert::Wide;
use crate::math::{Emit, FloatLang};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use crate::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use crate::{
    ArrayType, Atom, Builder, DType, Result, Scalar, Tensor, Type, internal_error, op_struct, type_error,
    value_error,
};

op_struct! {
    /// Rounds to integers; ties away from zero (0) or to even (1).
    Round "round" { rounding_method: u8 }
}
op_struct! {
    /// `x^y` for a constant integer y.
    IntegerPow "integer_pow" { y: i64 }
}
op_struct! {
    /// Rounds floats to a format of fewer bits, keeping their dtype.
    ReducePrecision "reduce_precision" { exponent_bits: u32, mantissa_bits: u32 }
}

impl Row for Round {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(Round::NAME, inputs, 1)?;
        let operand = arrays(Round::NAME, inputs)?[0];
        check_dtype(Round::NAME, operand.dtype, &[Accept::Floating], None)?;
        if self.rounding_method > 1 {
            return Err(value_error!(
                "round: rounding_method must be 0 (away from zero) or 1 (to nearest even), got {}",
                self.rounding_method
            ));
        }
        one(operand.clone())
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        evaluate::map(inputs, outputs, |values| match values[0] {
            Wide::Float(x) if self.rounding_method == 0 => Ok(Wide::Float(x.round())),
            Wide::Float(x) => Ok(Wide::Float(x.round_ties_even())),
            other => Err(internal_error!("round of {other:?}")),
        })
    }
}

impl Rules for Round {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Ok(zero())
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, body: &mut Body, _: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let x = real(args[0])?;
        if self.rounding_method == 1 {
            return Ok(Value::Real(body.op(ScalarOp::RoundEven, &[x])));
        }
        let ty = body.type_of(x);
        let mut emit = Emit::new(body, ty);
        let truncated = emit.body.op(ScalarOp::Trunc, &[x]);
        let rest = emit.sub(x, truncated);
        let rest = emit.abs(rest);
        let (half, unit) = (emit.float(0.5), emit.float(1.0));
        let up = emit.le(half, rest);
        let step = emit.copysign(unit, x);
        let next = emit.add(truncated, step);
        Ok(Value::Real(emit.select(up, next, truncated)))
    }
}

/// The register of a real value.
pub fn real(value: Value) -> Result<Reg> {
    match value {
        Value::Real(reg) => Ok(reg),
        Value::Complex(..) => Err(internal_error!("a complex value where a real one belongs")),
    }
}

impl Row for IntegerPow {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(IntegerPow::NAME, inputs, 1)?;
        let operand = arrays(IntegerPow::NAME, inputs)?[0];
        let accept = [Accept::Integer, Accept::Floating, Accept::Complex];
        check_dtype(IntegerPow::NAME, operand.dtype, &accept, None)?;
        if self.y < 0 && operand.dtype.is_integer() {
            return Err(type_error!(
                "integer_pow({operand}, {}): the power of an integer must not be negative; convert to a \
                 float first",
                self.y
            ));
        }
        one(operand.clone())
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        evaluate::map(inputs, outputs, |values| {
            Ok(match values[0] {
                Wide::Int(x) => Wide::Int(wrapping_power(x, self.y.unsigned_abs())),
                Wide::Float(x) => {
                    let magnitude = float_power(&mut Exact::new(), x, self.y.unsigned_abs());
                    Wide::Float(if self.y < 0 { 1.0 / magnitude } else { magnitude })
                }
                Wide::Complex(re, im) => {
                    let (re, im) = complex::integer_pow(&mut Exact::new(), (re, im), self.y);
                    Wide::Complex(re, im)
                }
            })
        })
    }
}

/// `x^n` by repeated squaring, modulo 2^128.
fn wrapping_power(x: i128, n: u64) -> i128 {
    let (mut result, mut square, mut rest) = (1i128, x, n);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

/// `x^n` by repeated squaring.
fn float_power<L: FloatLang>(l: &mut L, x: L::F, n: u64) -> L::F {
    let mut result = None;
    let (mut square, mut rest) = (x, n);
    while rest > 0 {
        if rest & 1 == 1 {
            result = Some(match result {
                None => square,
                Some(product) => l.mul(product, square),
            });
        }
        rest >>= 1;
        if rest > 0 {
            square = l.mul(square, square);
        }
    }
    result.unwrap_or_else(|| l.float(1.0))
}

impl Rules for IntegerPow {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        let Some(g) = eqn.tangents[0].filter(|_| self.y != 0) else { return Ok(zero()) };
        let x = eqn.inputs[0];
        let factor = constant(b, x, self.y as f64);
        let slope = match self.y.checked_sub(1) {
            Some(0) => return Ok(SmallVec::from_iter([Some(g)])),
            Some(1) => b.mul(factor, x)?,
            Some(less) => {
                let power = b.emit1(IntegerPow { y: less }, &[x])?;
                b.mul(factor, power)?
            }
            None => return Err(value_error!("the exponent {} is too small to differentiate", self.y)),
        };
        Ok(SmallVec::from_iter([Some(b.mul(g, slope)?)]))
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn cost(&self, _: DType) -> u32 {
        2 * self.y.unsigned_abs().max(1).ilog2() + if self.y < 0 { 4 } else { 0 }
    }

    fn scalar(&self, body: &mut Body, types: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let x = match args[0] {
            Value::Complex(re, im) => {
                let ty = body.type_of(re);
                let (re, im) = complex::integer_pow(&mut Emit::new(body, ty), (re, im), self.y);
                return Ok(Value::Complex(re, im));
            }
            Value::Real(x) => x,
        };
        let ty = body.type_of(x);
        let mut emit = Emit::new(body, ty);
        let power = float_power(&mut emit, x, self.y.unsigned_abs());
        let result = if self.y < 0 {
            let unit = emit.float(1.0);
            emit.div(unit, power)
        } else {
            power
        };
        Ok(Value::Real(body.round_to(types[0].dtype, result)))
    }
}

/// Widths of the exponent and mantissa fields of a computing float.
fn format(dtype: DType) -> Result<(u32, u32)> {
    match dtype {
        DType::BF16 => Ok((8, 7)),
        DType::F16 => Ok((5, 10)),
        DType::F32 => Ok((8, 23)),
        DType::F64 => Ok((11, 52)),
        other => Err(internal_error!("{other} is not a float")),
    }
}

impl Row for ReducePrecision {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(ReducePrecision::NAME, inputs, 1)?;
        let operand = arrays(ReducePrecision::NAME, inputs)?[0];
        check_dtype(ReducePrecision::NAME, operand.dtype, &[Accept::Floating], None)?;
        if self.exponent_bits < 1 {
            return Err(value_error!(
                "reduce_precision: exponent_bits must be positive; got {}",
                self.exponent_bits
            ));
        }
        one(operand.clone())
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        evaluate::map_scalars(inputs, outputs, |scalars| self.reduce(scalars[0]))
    }
}

impl ReducePrecision {
    /// On the bit pattern: rounds the mantissa to even, then sends exponents
    /// outside the narrower range to infinity or zero.
    fn reduce(&self, x: Scalar) -> Result<Scalar> {
        let dtype = x.dtype();
        let (exponent, mantissa) = format(dtype)?;
        if x.to_f64().is_none_or(f64::is_nan) {
            return Ok(x);
        }
        let sign_mask = 1u128 << (dtype.bits() - 1);
        let (sign, mut bits) = (x.bits() & sign_mask, x.bits() & !sign_mask);
        if let Some(drop @ 1..) = mantissa.checked_sub(self.mantissa_bits) {
            let last = (bits >> drop) & 1;
            bits += (1 << (drop - 1)) - 1 + last;
            bits &= !((1 << drop) - 1);
        }
        if self.exponent_bits < exponent {
            let bias = (1u128 << (exponent - 1)) - 1;
            let reach = (1u128 << (self.exponent_bits - 1)) - 1;
            let infinity = ((1u128 << exponent) - 1) << mantissa;
            let field = bits >> mantissa;
            if field > bias + reach {
                bits = infinity;
            } else if field <= bias - reach {
                bits = 0;
            }
        }
        Ok(Scalar::from_bits(dtype, bits | sign))
    }
}

impl Rules for ReducePrecision {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        let Some(g) = eqn.tangents[0] else { return Ok(zero()) };
        Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &[g])?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        each_linear(b, eqn, |b, _, ct| b.emit1(self.clone(), &[ct]))
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, body: &mut Body, types: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let dtype = types[0].dtype;
        let (exponent, mantissa) = format(dtype)?;
        let x = real(args[0])?;
        let ty = body.type_of(x);
        let bits_ty = bits_type(ty);
        // Halves are in F32 registers: the fields are those of F32.
        let (wide_exponent, wide_mantissa) = if ty == ScalarType::F64 { (11, 52) } else { (8, 23) };
        let constant = |body: &mut Body, bits: u64| body.push(ScalarOp::Const { bits }, bits_ty, &[]);
        let sign_mask = constant(body, 1 << (bits_ty.size() * 8 - 1));
        let rest_mask = constant(body, (1 << (bits_ty.size() * 8 - 1)) - 1);
        let pattern = body.bitcast(x, bits_ty);
        let sign = body.op(ScalarOp::And, &[pattern, sign_mask]);
        let mut bits = body.op(ScalarOp::And, &[pattern, rest_mask]);

        if self.mantissa_bits < mantissa {
            let drop = wide_mantissa - self.mantissa_bits;
            let (shift, unit) = (constant(body, drop.into()), constant(body, 1));
            let last = body.op(ScalarOp::ShrLogical, &[bits, shift]);
            let last = body.op(ScalarOp::And, &[last, unit]);
            let bias = constant(body, (1 << (drop - 1)) - 1);
            let bias = body.op(ScalarOp::Add, &[bias, last]);
            let sum = body.op(ScalarOp::Add, &[bits, bias]);
            let mask = constant(body, !((1u64 << drop) - 1) & (u64::MAX >> (64 - bits_ty.size() * 8)));
            let rounded = body.op(ScalarOp::And, &[sum, mask]);
            bits = if dtype == DType::F16 { self.round_subnormal_half(body, bits, rounded) } else { rounded };
        }
        if self.exponent_bits < exponent {
            let bias = (1u64 << (wide_exponent - 1)) - 1;
            let reach = (1u64 << (self.exponent_bits - 1)) - 1;
            // Fields above bias + reach overflow, up to bias - reach vanish.
            let top = constant(body, (bias + reach + 1) << wide_mantissa);
            let bottom = constant(body, (bias - reach + 1) << wide_mantissa);
            let infinity = constant(body, ((1u64 << wide_exponent) - 1) << wide_mantissa);
            let none = constant(body, 0);
            let over = body.compare(ScalarOp::Le, top, bits);
            let under = body.compare(ScalarOp::Lt, bits, bottom);
            let bounded = body.select(under, none, bits);
            bits = body.select(over, infinity, bounded);
        }
        let joined = body.op(ScalarOp::Or, &[bits, sign]);
        let value = body.bitcast(joined, ty);
        let nan = body.compare(ScalarOp::Ne, x, x);
        let value = body.select(nan, x, value);
        Ok(Value::Real(body.round_to(dtype, value)))
    }
}

impl ReducePrecision {
    /// Subnormal halves are normal in an F32 register, but their last place is
    /// fixed: they round to a multiple of it, by adding and removing a large
    /// number.
    fn round_subnormal_half(&self, body: &mut Body, bits: Reg, rounded: Reg) -> Reg {
        let quantum = 2f64.powi(-14 - self.mantissa_bits as i32);
        let magnitude = body.bitcast(bits, ScalarType::F32);
        let magic = body.float(ScalarType::F32, 1.5 * 2f64.powi(23) * quantum);
        let sum = body.op(ScalarOp::Add, &[magnitude, magic]);
        let nearest = body.op(ScalarOp::Sub, &[sum, magic]);
        let limit = body.float(ScalarType::F32, 2f64.powi(-14));
        let subnormal = body.compare(ScalarOp::Lt, magnitude, limit);
        let nearest = body.bitcast(nearest, ScalarType::U32);
        body.select(subnormal, nearest, rounded)
    }
}
