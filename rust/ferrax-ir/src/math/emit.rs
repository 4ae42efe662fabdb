//! The language as instructions of a scalar body.
//!
//! Of floats only operations that IEEE 754 rounds correctly, so that what is emitted
//! means the same everywhere.

use super::lang::FloatLang;
use crate::scalar::{Body, Reg, ScalarOp, ScalarType};

/// Appends to a body; floats are `F32` or `F64`.
pub struct Emit<'b> {
    pub body: &'b mut Body,
    float: ScalarType,
    int: ScalarType,
    /// Else products are rounded before they are added.
    fused: bool,
}

impl<'b> Emit<'b> {
    /// Arithmetic on registers of the type `float`.
    pub fn new(body: &'b mut Body, float: ScalarType) -> Self {
        Emit::for_target(body, float, true)
    }

    /// [`Emit::new`], or where `fused` is false without [`ScalarOp::Fma`].
    pub fn for_target(body: &'b mut Body, float: ScalarType, fused: bool) -> Self {
        let int = if float == ScalarType::F64 { ScalarType::I64 } else { ScalarType::I32 };
        Emit { body, float, int, fused }
    }

    fn of_floats(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        self.body.push(op, self.float, args)
    }

    fn of_ints(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        self.body.push(op, self.int, args)
    }

    fn truth(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        self.body.push(op, ScalarType::Bool, args)
    }
}

impl FloatLang for Emit<'_> {
    type F = Reg;
    type I = Reg;
    type B = Reg;

    fn wide(&self) -> bool {
        self.float == ScalarType::F64
    }
    fn fused(&self) -> bool {
        self.fused
    }

    fn float(&mut self, value: f64) -> Reg {
        self.body.float(self.float, value)
    }
    fn int(&mut self, value: i64) -> Reg {
        self.body.int(self.int, value)
    }
    fn add(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_floats(ScalarOp::Add, &[a, b])
    }
    fn sub(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_floats(ScalarOp::Sub, &[a, b])
    }
    fn mul(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_floats(ScalarOp::Mul, &[a, b])
    }
    fn div(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_floats(ScalarOp::Div, &[a, b])
    }
    fn fma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        if self.fused {
            return self.of_floats(ScalarOp::Fma, &[a, b, c]);
        }
        let product = self.mul(a, b);
        self.add(product, c)
    }
    fn neg(&mut self, a: Reg) -> Reg {
        self.of_floats(ScalarOp::Neg, &[a])
    }
    fn abs(&mut self, a: Reg) -> Reg {
        self.of_floats(ScalarOp::Abs, &[a])
    }
    fn sqrt(&mut self, a: Reg) -> Reg {
        self.of_floats(ScalarOp::Sqrt, &[a])
    }
    fn floor(&mut self, a: Reg) -> Reg {
        self.of_floats(ScalarOp::Floor, &[a])
    }
    fn round_even(&mut self, a: Reg) -> Reg {
        self.of_floats(ScalarOp::RoundEven, &[a])
    }
    fn lt(&mut self, a: Reg, b: Reg) -> Reg {
        self.truth(ScalarOp::Lt, &[a, b])
    }
    fn le(&mut self, a: Reg, b: Reg) -> Reg {
        self.truth(ScalarOp::Le, &[a, b])
    }
    fn eq(&mut self, a: Reg, b: Reg) -> Reg {
        self.truth(ScalarOp::Eq, &[a, b])
    }
    fn both(&mut self, a: Reg, b: Reg) -> Reg {
        self.truth(ScalarOp::And, &[a, b])
    }
    fn either(&mut self, a: Reg, b: Reg) -> Reg {
        self.truth(ScalarOp::Or, &[a, b])
    }
    fn not(&mut self, a: Reg) -> Reg {
        self.truth(ScalarOp::Not, &[a])
    }
    fn select(&mut self, condition: Reg, then: Reg, otherwise: Reg) -> Reg {
        self.of_floats(ScalarOp::Select, &[condition, then, otherwise])
    }
    fn select_int(&mut self, condition: Reg, then: Reg, otherwise: Reg) -> Reg {
        self.of_ints(ScalarOp::Select, &[condition, then, otherwise])
    }
    fn add_int(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_ints(ScalarOp::Add, &[a, b])
    }
    fn sub_int(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_ints(ScalarOp::Sub, &[a, b])
    }
    fn and_int(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_ints(ScalarOp::And, &[a, b])
    }
    fn or_int(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_ints(ScalarOp::Or, &[a, b])
    }
    fn xor_int(&mut self, a: Reg, b: Reg) -> Reg {
        self.of_ints(ScalarOp::Xor, &[a, b])
    }
    fn eq_int(&mut self, a: Reg, b: Reg) -> Reg {
        self.truth(ScalarOp::Eq, &[a, b])
    }
    fn shl(&mut self, a: Reg, count: u32) -> Reg {
        let count = self.int(count.into());
        self.of_ints(ScalarOp::Shl, &[a, count])
    }
    fn shr(&mut self, a: Reg, count: u32) -> Reg {
        let count = self.int(count.into());
        self.of_ints(ScalarOp::ShrLogical, &[a, count])
    }
    fn bits(&mut self, a: Reg) -> Reg {
        self.of_ints(ScalarOp::Bitcast, &[a])
    }
    fn from_bits(&mut self, a: Reg) -> Reg {
        self.of_floats(ScalarOp::Bitcast, &[a])
    }
}
