//! Real arithmetic that is either done (on `f64`) or emitted (into a scalar
//! body), so that a formula is written once and serves evaluation and lowering.

use crate::scalar::{Body, MathFn, Reg, ScalarOp, ScalarType, Value, reference};

/// Real numbers `R` and truth values `B` with the operations on them.
pub trait Arithmetic {
    type R: Copy;
    type B: Copy;

    fn constant(&mut self, value: f64) -> Self::R;
    /// The number of bits of the significand: 24 or 53.
    fn precision(&self) -> i32;
    fn add(&mut self, x: Self::R, y: Self::R) -> Self::R;
    fn sub(&mut self, x: Self::R, y: Self::R) -> Self::R;
    fn mul(&mut self, x: Self::R, y: Self::R) -> Self::R;
    fn div(&mut self, x: Self::R, y: Self::R) -> Self::R;
    fn neg(&mut self, x: Self::R) -> Self::R;
    fn abs(&mut self, x: Self::R) -> Self::R;
    fn sqrt(&mut self, x: Self::R) -> Self::R;
    /// NaN if either is.
    fn max(&mut self, x: Self::R, y: Self::R) -> Self::R;
    fn min(&mut self, x: Self::R, y: Self::R) -> Self::R;
    fn math(&mut self, function: MathFn, x: Self::R) -> Self::R;
    fn atan2(&mut self, y: Self::R, x: Self::R) -> Self::R;
    /// The magnitude of `x` with the sign bit of `y`.
    fn copysign(&mut self, x: Self::R, y: Self::R) -> Self::R;

    fn eq(&mut self, x: Self::R, y: Self::R) -> Self::B;
    fn lt(&mut self, x: Self::R, y: Self::R) -> Self::B;
    fn le(&mut self, x: Self::R, y: Self::R) -> Self::B;
    fn and(&mut self, x: Self::B, y: Self::B) -> Self::B;
    fn or(&mut self, x: Self::B, y: Self::B) -> Self::B;
    fn not(&mut self, x: Self::B) -> Self::B;
    fn select(&mut self, condition: Self::B, then: Self::R, otherwise: Self::R) -> Self::R;

    fn is_nan(&mut self, x: Self::R) -> Self::B {
        let equal = self.eq(x, x);
        self.not(equal)
    }

    fn scale(&mut self, x: Self::R, by: f64) -> Self::R {
        let by = self.constant(by);
        self.mul(x, by)
    }

    fn offset(&mut self, x: Self::R, by: f64) -> Self::R {
        let by = self.constant(by);
        self.add(x, by)
    }
}

/// Does the arithmetic.
pub struct Native;

impl Arithmetic for Native {
    type R = f64;
    type B = bool;

    fn constant(&mut self, value: f64) -> f64 {
        value
    }

    fn precision(&self) -> i32 {
        53
    }

    fn add(&mut self, x: f64, y: f64) -> f64 {
        x + y
    }

    fn sub(&mut self, x: f64, y: f64) -> f64 {
        x - y
    }

    fn mul(&mut self, x: f64, y: f64) -> f64 {
        x * y
    }

    fn div(&mut self, x: f64, y: f64) -> f64 {
        x / y
    }

    fn neg(&mut self, x: f64) -> f64 {
        -x
    }

    fn abs(&mut self, x: f64) -> f64 {
        x.abs()
    }

    fn sqrt(&mut self, x: f64) -> f64 {
        x.sqrt()
    }

    fn max(&mut self, x: f64, y: f64) -> f64 {
        reference::maximum(x, y)
    }

    fn min(&mut self, x: f64, y: f64) -> f64 {
        reference::minimum(x, y)
    }

    fn math(&mut self, function: MathFn, x: f64) -> f64 {
        reference::math(function, x, 0.0)
    }

    fn atan2(&mut self, y: f64, x: f64) -> f64 {
        y.atan2(x)
    }

    fn copysign(&mut self, x: f64, y: f64) -> f64 {
        x.copysign(y)
    }

    fn eq(&mut self, x: f64, y: f64) -> bool {
        x == y
    }

    fn lt(&mut self, x: f64, y: f64) -> bool {
        x < y
    }

    fn le(&mut self, x: f64, y: f64) -> bool {
        x <= y
    }

    fn and(&mut self, x: bool, y: bool) -> bool {
        x && y
    }

    fn or(&mut self, x: bool, y: bool) -> bool {
        x || y
    }

    fn not(&mut self, x: bool) -> bool {
        !x
    }

    fn select(&mut self, condition: bool, then: f64, otherwise: f64) -> f64 {
        if condition { then } else { otherwise }
    }
}

/// Emits the arithmetic; all reals are registers of type `ty`.
pub struct Emit<'a> {
    pub body: &'a mut Body,
    pub ty: ScalarType,
}

impl Emit<'_> {
    /// The integer type with the bits of the floats.
    fn bits(&self) -> ScalarType {
        bits_type(self.ty)
    }
}

/// The unsigned type of a register type's size.
pub fn bits_type(ty: ScalarType) -> ScalarType {
    match ty.size() {
        1 => ScalarType::U8,
        2 => ScalarType::U16,
        4 => ScalarType::U32,
        _ => ScalarType::U64,
    }
}

impl Arithmetic for Emit<'_> {
    type R = Reg;
    type B = Reg;

    fn constant(&mut self, value: f64) -> Reg {
        self.body.float(self.ty, value)
    }

    fn precision(&self) -> i32 {
        if self.ty == ScalarType::F64 { 53 } else { 24 }
    }

    fn add(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Add, &[x, y])
    }

    fn sub(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Sub, &[x, y])
    }

    fn mul(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Mul, &[x, y])
    }

    fn div(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Div, &[x, y])
    }

    fn neg(&mut self, x: Reg) -> Reg {
        self.body.op(ScalarOp::Neg, &[x])
    }

    fn abs(&mut self, x: Reg) -> Reg {
        self.body.op(ScalarOp::Abs, &[x])
    }

    fn sqrt(&mut self, x: Reg) -> Reg {
        self.body.op(ScalarOp::Sqrt, &[x])
    }

    fn max(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Max, &[x, y])
    }

    fn min(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Min, &[x, y])
    }

    fn math(&mut self, function: MathFn, x: Reg) -> Reg {
        self.body.math(function, &[x])
    }

    fn atan2(&mut self, y: Reg, x: Reg) -> Reg {
        self.body.math(MathFn::Atan2, &[y, x])
    }

    fn copysign(&mut self, x: Reg, y: Reg) -> Reg {
        let bits = self.bits();
        let sign = 1u64 << (bits.size() * 8 - 1);
        let sign_mask = self.body.push(ScalarOp::Const { bits: sign }, bits, &[]);
        let rest_mask = self.body.push(ScalarOp::Const { bits: sign - 1 }, bits, &[]);
        let (x, y) = (self.body.bitcast(x, bits), self.body.bitcast(y, bits));
        let magnitude = self.body.op(ScalarOp::And, &[x, rest_mask]);
        let sign = self.body.op(ScalarOp::And, &[y, sign_mask]);
        let both = self.body.op(ScalarOp::Or, &[magnitude, sign]);
        self.body.bitcast(both, self.ty)
    }

    fn eq(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.compare(ScalarOp::Eq, x, y)
    }

    fn lt(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.compare(ScalarOp::Lt, x, y)
    }

    fn le(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.compare(ScalarOp::Le, x, y)
    }

    fn and(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::And, &[x, y])
    }

    fn or(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Or, &[x, y])
    }

    fn not(&mut self, x: Reg) -> Reg {
        self.body.op(ScalarOp::Not, &[x])
    }

    fn select(&mut self, condition: Reg, then: Reg, otherwise: Reg) -> Reg {
        self.body.select(condition, then, otherwise)
    }

    fn is_nan(&mut self, x: Reg) -> Reg {
        self.body.compare(ScalarOp::Ne, x, x)
    }
}

/// The parts of a value; a real one has no imaginary part.
pub fn parts(body: &mut Body, value: Value) -> (Reg, Reg) {
    match value {
        Value::Complex(re, im) => (re, im),
        Value::Real(re) => {
            let ty = body.type_of(re);
            (re, body.float(ty, 0.0))
        }
    }
}
