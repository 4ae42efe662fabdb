//! Operations of floats.

use ferrax_compile::native::Id;
use ferrax_ir::scalar::{ScalarOp, ScalarType};

use super::{AND, MOVE, OR, Select, X0, X1, X2, X3, XOR, scalar};
use crate::encode::floats::{ADD, COMPARE, DIV, MAX, MIN, MUL, ORDERED, SQRT, SUB, UNORDERED};
use crate::encode::{Map, Mem, Opcode, Prefix, Rm, Xmm};

impl Select<'_> {
    /// Whether it was emitted.
    pub(super) fn float_operation(&mut self, to: Id, op: ScalarOp, args: &[Id]) -> bool {
        let ty = self.type_of(to);
        let result = self.float_result(to);
        let binary = match op {
            ScalarOp::Add => Some(ADD),
            ScalarOp::Sub => Some(SUB),
            ScalarOp::Mul => Some(MUL),
            ScalarOp::Div => Some(DIV),
            _ => None,
        };
        let rounding = match op {
            ScalarOp::RoundEven => Some(8),
            ScalarOp::Floor => Some(9),
            ScalarOp::Ceil => Some(10),
            ScalarOp::Trunc => Some(11),
            _ => None,
        };
        let (sign, wide) = match ty {
            ScalarType::F64 => (1 << 63, true),
            _ => (1 << 31, false),
        };
        if let Some(code) = binary {
            let a = self.float(args[0], X0);
            let b = self.float_operand(args[1]);
            self.assembler.three(scalar(code, ty), result, a, b);
        } else if let Some(mode) = rounding {
            let a = self.float(args[0], X0);
            let code = if wide { 0x0b } else { 0x0a };
            self.assembler.three_byte(Opcode::new(Prefix::P66, Map::M0F3A, code, false), result, a, a, mode);
        } else {
            match op {
                ScalarOp::Neg | ScalarOp::Abs => {
                    let a = self.float(args[0], X0);
                    let (opcode, mask) = if op == ScalarOp::Neg { (XOR, sign) } else { (AND, sign - 1) };
                    self.assembler.three(opcode, result, a, Mem::Constant(mask));
                }
                ScalarOp::Sqrt => {
                    let a = self.float(args[0], X0);
                    self.assembler.three(scalar(SQRT, ty), result, a, a);
                }
                ScalarOp::Fma => self.fused(result, args, wide),
                ScalarOp::Min | ScalarOp::Max => {
                    // Each of both orders gives its second operand where the two are equal or have no order: the bits
                    // of equal numbers differ in the sign of zero alone. NaN wins, the first one of two.
                    let (code, zeros) = if op == ScalarOp::Min { (MIN, OR) } else { (MAX, AND) };
                    let a = self.float(args[0], X0);
                    let b = self.float(args[1], X1);
                    let blend = Opcode::new(Prefix::P66, Map::M0F3A, if wide { 0x4b } else { 0x4a }, false);
                    self.assembler.three(scalar(code, ty), X2, a, b);
                    self.assembler.three(scalar(code, ty), X3, b, a);
                    self.assembler.three(zeros, X3, X2, X3);
                    self.assembler.three_byte(scalar(COMPARE, ty), X1, a, b, ORDERED);
                    self.assembler.blend(blend, X2, X2, X3, X1);
                    self.assembler.three_byte(scalar(COMPARE, ty), X1, a, a, UNORDERED);
                    self.assembler.blend(blend, result, X2, a, X1);
                }
                _ => return false,
            }
        }
        self.float_done(to, result);
        true
    }

    /// `result = a * b + c`, rounded once.
    pub(super) fn fused(&mut self, result: Xmm, args: &[Id], wide: bool) {
        let forms = |code| Opcode::new(Prefix::P66, Map::M0F38, code, wide);
        // 213: the first operand is its product with the second, plus the third; 231: it is added to.
        let (multiply, add) = (forms(0xa9), forms(0xb9));
        let a = self.float(args[0], X0);
        let b = self.float(args[1], X2);
        let c = self.float_operand(args[2]);
        if c == Rm::Reg(result) {
            self.assembler.three(add, result, a, b);
        } else if b == result {
            self.assembler.three(multiply, result, a, c);
        } else {
            if a != result {
                self.assembler.two(MOVE, result, a);
            }
            self.assembler.three(multiply, result, b, c);
        }
    }
}
