//! Bodies of the ops of two operands that are longer than a line.

use crate::DType;
use crate::math::Emit;
use crate::ops::formula::{Formulas, bits_type};
use crate::scalar::{Body, Reg, ScalarOp, ScalarType};

/// A shift's amount, which is read as unsigned, if it is below the width.
fn amount(dtype: DType, y: i128) -> Option<u32> {
    let width = dtype.bits();
    let amount = (y as u128) & (u128::MAX >> (128 - width));
    (amount < width as u128).then_some(amount as u32)
}

pub fn shift_left(dtype: DType, x: i128, y: i128) -> i128 {
    amount(dtype, y).map_or(0, |amount| x << amount)
}

pub fn shift_right_logical(dtype: DType, x: i128, y: i128) -> i128 {
    let bits = (x as u128) & (u128::MAX >> (128 - dtype.bits()));
    amount(dtype, y).map_or(0, |amount| (bits >> amount) as i128)
}

/// The highest bit counts as the sign, of unsigned numbers too.
pub fn shift_right_arithmetic(dtype: DType, x: i128, y: i128) -> i128 {
    let above = 128 - dtype.bits();
    let signed = (x << above) >> above;
    signed >> amount(dtype, y).unwrap_or(dtype.bits() as u32 - 1)
}

pub fn emit_shift_right_logical(body: &mut Body, dtype: DType, x: Reg, y: Reg) -> Reg {
    let x = body.low_bits(dtype, x);
    body.op(ScalarOp::ShrLogical, &[x, y])
}

pub fn emit_shift_right_arithmetic(body: &mut Body, dtype: DType, x: Reg, y: Reg) -> Reg {
    if !dtype.is_unsigned() {
        return body.op(ScalarOp::ShrArithmetic, &[x, y]);
    }
    let ty = body.type_of(x);
    let signed = signed_type(ty);
    let (x, y) = (body.bitcast(x, signed), body.bitcast(y, signed));
    let x = body.sign_extended(dtype, x);
    let shifted = body.op(ScalarOp::ShrArithmetic, &[x, y]);
    body.bitcast(shifted, ty)
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

/// The high half of a product.
pub fn mulhi(dtype: DType, x: i128, y: i128) -> i128 {
    let bits = dtype.bits();
    // Of unsigned 64-bit numbers a product has 128 bits; other products are in the range of `i128`.
    if dtype.is_unsigned() { ((x as u128).wrapping_mul(y as u128) >> bits) as i128 } else { (x * y) >> bits }
}

/// Up to 32 bits in a register of 64; of more, the product is the sum of those of halves, as in long
/// multiplication (Warren, Hacker's Delight, 2nd ed., section 8-2). Shifts of signed numbers keep the sign,
/// so that the upper halves are signed and the lower ones are not.
pub fn emit_mulhi(body: &mut Body, dtype: DType, x: Reg, y: Reg) -> Reg {
    let ty = body.type_of(x);
    let (wide, shift) = if dtype.is_unsigned() {
        (ScalarType::U64, ScalarOp::ShrLogical)
    } else {
        (ScalarType::I64, ScalarOp::ShrArithmetic)
    };
    if dtype.bits() <= 32 {
        let mut extended = |x: Reg| {
            let x = if dtype.is_unsigned() { body.low_bits(dtype, x) } else { body.sign_extended(dtype, x) };
            body.convert(x, wide)
        };
        let (x, y) = (extended(x), extended(y));
        let product = body.op(ScalarOp::Mul, &[x, y]);
        let bits = body.int(wide, dtype.bits() as i64);
        let high = body.op(shift, &[product, bits]);
        return body.convert(high, ty);
    }
    let (half, mask) = (body.int(wide, 32), body.int(wide, 0xffff_ffff));
    let mut halves = |x: Reg| (body.op(shift, &[x, half]), body.op(ScalarOp::And, &[x, mask]));
    let ((x1, x0), (y1, y0)) = (halves(x), halves(y));
    let low = body.op(ScalarOp::Mul, &[x0, y0]);
    let carry = body.op(ScalarOp::ShrLogical, &[low, half]);
    let cross = body.op(ScalarOp::Mul, &[x1, y0]);
    let middle = body.op(ScalarOp::Add, &[cross, carry]);
    let (above, below) = (body.op(shift, &[middle, half]), body.op(ScalarOp::And, &[middle, mask]));
    let cross = body.op(ScalarOp::Mul, &[x0, y1]);
    let middle = body.op(ScalarOp::Add, &[cross, below]);
    let carry = body.op(shift, &[middle, half]);
    let high = body.op(ScalarOp::Mul, &[x1, y1]);
    let high = body.op(ScalarOp::Add, &[high, above]);
    body.op(ScalarOp::Add, &[high, carry])
}

/// One step in the last place of the format that `dtype` is stored in.
pub fn emit_nextafter(body: &mut Body, dtype: DType, x: Reg, y: Reg) -> Reg {
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
        let largest = Emit::new(body, ty).copysign(largest, x);
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
    body.select(nan, sum, result)
}
