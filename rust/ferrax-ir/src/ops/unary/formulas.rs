//! Formulas of the ops of one operand that are longer than a line.

use crate::DType;
use crate::ops::formula::Formulas;
use crate::scalar::{Body, Reg, ScalarOp};

/// Zeros and NaN stay.
pub fn sign<L: Formulas>(l: &mut L, x: L::F) -> L::F {
    let (zero, one, minus) = (l.float(0.0), l.float(1.0), l.float(-1.0));
    let positive = l.lt(zero, x);
    let above = l.select(positive, one, x);
    let negative = l.lt(x, zero);
    l.select(negative, minus, above)
}

pub fn is_finite<L: Formulas>(l: &mut L, x: L::F) -> L::B {
    let magnitude = l.abs(x);
    let infinity = l.float(f64::INFINITY);
    l.lt(magnitude, infinity)
}

/// The bits of an integer of `dtype`.
pub fn bits(dtype: DType, x: i128) -> u128 {
    (x as u128) & (u128::MAX >> (128 - dtype.bits()))
}

pub fn leading_zeros(dtype: DType, x: i128) -> i128 {
    i128::from(bits(dtype, x).leading_zeros()) - (128 - dtype.bits() as i128)
}

pub fn emit_sign(body: &mut Body, dtype: DType, x: Reg) -> Reg {
    let ty = body.type_of(x);
    let (zero, one) = (body.int(ty, 0), body.int(ty, 1));
    let positive = body.compare(ScalarOp::Lt, zero, x);
    let above = body.select(positive, one, x);
    if dtype.is_unsigned() {
        return above;
    }
    let minus = body.int(ty, -1);
    let negative = body.compare(ScalarOp::Lt, x, zero);
    body.select(negative, minus, above)
}

pub fn emit_population_count(body: &mut Body, dtype: DType, x: Reg) -> Reg {
    let x = body.low_bits(dtype, x);
    body.op(ScalarOp::PopCount, &[x])
}

pub fn emit_leading_zeros(body: &mut Body, dtype: DType, x: Reg) -> Reg {
    let x = body.low_bits(dtype, x);
    let zeros = body.op(ScalarOp::Clz, &[x]);
    if dtype.bits() >= 8 {
        return zeros;
    }
    // Those above the element's own bits do not count.
    let ty = body.type_of(zeros);
    let above = body.int(ty, 8 * ty.size() as i64 - dtype.bits() as i64);
    body.op(ScalarOp::Sub, &[zeros, above])
}
