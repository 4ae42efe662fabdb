//! Operations of integers. Those below 32 bits are computed in these, and then brought to their form again.

use ferrax_compile::native::Id;
use ferrax_ir::scalar::{ScalarOp, ScalarType};

use super::{Select, canonical, width};
use crate::allocate::Place;
use crate::encode::{Alu, Assembler, Condition, Gpr, Prefix, RAX, RCX, RDX, Width};

impl Select<'_> {
    /// Brings a result of 32 bits to the form that its type is kept in.
    pub(super) fn extended(&mut self, ty: ScalarType, register: Gpr) {
        if ty.size() < 4 {
            self.assembler.extend(ty.size(), ty.is_signed(), register, register);
        }
    }

    /// Whether it was emitted.
    pub(super) fn integer_operation(&mut self, to: Id, op: ScalarOp, args: &[Id]) -> bool {
        let ty = self.type_of(to);
        let width = width(ty);
        let result = self.integer_result(to);
        let alu = match op {
            ScalarOp::Add => Some(Alu::Add),
            ScalarOp::Sub => Some(Alu::Sub),
            ScalarOp::And => Some(Alu::And),
            ScalarOp::Or => Some(Alu::Or),
            ScalarOp::Xor => Some(Alu::Xor),
            _ => None,
        };
        if let Some(alu) = alu {
            if let Some(value) = self.small_constant(args[1]) {
                self.integer_in(args[0], result);
                self.assembler.alu_int(alu, width, result, value);
            } else {
                let b = self.integer(args[1], RCX);
                let b = self.apart(b, result);
                self.integer_in(args[0], result);
                self.assembler.alu(alu, width, result, b);
            }
            self.extended(ty, result);
            self.integer_done(to, result);
            return true;
        }
        match op {
            ScalarOp::Mul => {
                let b = self.integer(args[1], RCX);
                let b = self.apart(b, result);
                self.integer_in(args[0], result);
                self.assembler.imul(width, result, b);
                self.extended(ty, result);
            }
            ScalarOp::Neg => {
                self.integer_in(args[0], result);
                self.assembler.neg(width, result);
                self.extended(ty, result);
            }
            ScalarOp::Not => {
                self.integer_in(args[0], result);
                if ty == ScalarType::Bool {
                    self.assembler.alu_int(Alu::Xor, width, result, 1);
                } else {
                    self.assembler.not(width, result);
                    self.extended(ty, result);
                }
            }
            ScalarOp::Abs if ty.is_signed() => {
                let a = self.integer(args[0], RCX);
                self.assembler.mov(Width::W64, RAX, a);
                self.assembler.neg(width, RAX);
                self.assembler.cmov(Condition::Sign, width, RAX, a);
                self.extended(ty, RAX);
                self.integer_done(to, RAX);
                return true;
            }
            ScalarOp::Abs | ScalarOp::Floor | ScalarOp::Ceil | ScalarOp::Trunc | ScalarOp::RoundEven => {
                self.integer_in(args[0], result);
            }
            ScalarOp::Min | ScalarOp::Max => {
                let condition = match (op, ty.is_signed()) {
                    (ScalarOp::Min, true) => Condition::Less,
                    (ScalarOp::Min, false) => Condition::Below,
                    (_, true) => Condition::Greater,
                    (_, false) => Condition::Above,
                };
                let a = self.integer(args[0], RDX);
                let b = self.integer(args[1], RCX);
                self.assembler.mov(Width::W64, RAX, a);
                self.assembler.alu(Alu::Cmp, width, b, a);
                self.assembler.cmov(condition, Width::W64, RAX, b);
                self.integer_done(to, RAX);
                return true;
            }
            ScalarOp::Div | ScalarOp::Rem => {
                self.divide(ty, op == ScalarOp::Div, args);
                let from = if op == ScalarOp::Div { RAX } else { RDX };
                self.extended(ty, from);
                self.integer_done(to, from);
                return true;
            }
            ScalarOp::Shl | ScalarOp::ShrLogical | ScalarOp::ShrArithmetic => {
                self.shift(ty, op, args);
                self.extended(ty, RAX);
                self.integer_done(to, RAX);
                return true;
            }
            ScalarOp::PopCount | ScalarOp::Clz => {
                let a = self.integer(args[0], RAX);
                let a = if ty.size() < 4 {
                    self.assembler.extend(ty.size(), false, RAX, a);
                    RAX
                } else {
                    a
                };
                if op == ScalarOp::PopCount {
                    self.assembler.popcnt(width, result, a);
                } else {
                    self.assembler.lzcnt(width, result, a);
                    if ty.size() < 4 {
                        self.assembler.alu_int(Alu::Sub, width, result, 32 - 8 * ty.size() as i32);
                    }
                }
            }
            _ => return false,
        }
        self.integer_done(to, result);
        true
    }

    /// An operand that is not where the result goes.
    pub(super) fn apart(&mut self, operand: Gpr, result: Gpr) -> Gpr {
        if operand != result {
            return operand;
        }
        self.assembler.mov(Width::W64, RCX, operand);
        RCX
    }

    /// The quotient in `rax`, or the remainder in `rdx`; by zero all bits and the dividend, and of the least number by
    /// -1 itself and zero.
    pub(super) fn divide(&mut self, ty: ScalarType, quotient: bool, args: &[Id]) {
        let width = width(ty);
        if let Some(by) = self.small_constant(args[1]).filter(|&by| by > 0) {
            return self.divide_by(ty, quotient, args[0], by);
        }
        self.integer_in(args[1], RCX);
        self.integer_in(args[0], RAX);
        let out = &mut self.assembler;
        let (zero, minus, done) = (out.label(), out.label(), out.label());
        out.test(width, RCX, RCX);
        out.jump_if(Condition::Equal, zero);
        if ty.is_signed() {
            out.alu_int(Alu::Cmp, width, RCX, -1);
            out.jump_if(Condition::Equal, minus);
            out.sign_to_rdx(width);
        } else {
            out.mov_int(RDX, 0);
        }
        out.divide(width, ty.is_signed(), RCX);
        out.jump(done);
        out.bind(minus);
        if ty.is_signed() {
            out.neg(width, RAX);
            out.mov_int(RDX, 0);
            out.jump(done);
        }
        out.bind(zero);
        if quotient {
            out.mov_int(RAX, if width == Width::W64 { u64::MAX } else { u32::MAX.into() });
        } else {
            out.mov(Width::W64, RDX, RAX);
        }
        out.bind(done);
    }

    /// [`Self::divide`] by a constant above zero.
    pub(super) fn divide_by(&mut self, ty: ScalarType, quotient: bool, dividend: Id, by: i32) {
        let width = width(ty);
        self.integer_in(dividend, RAX);
        let out = &mut self.assembler;
        let shift = by.trailing_zeros();
        if by.count_ones() > 1 {
            out.mov_int(RCX, by as u64);
            if ty.is_signed() {
                out.sign_to_rdx(width);
            } else {
                out.mov_int(RDX, 0);
            }
            return out.divide(width, ty.is_signed(), RCX);
        }
        let amount = |out: &mut Assembler, amount: u32| out.mov_int(RCX, amount.into());
        if ty.is_signed() {
            // Towards zero: a negative dividend is first made greater by the divisor less one.
            out.mov(Width::W64, RDX, RAX);
            amount(out, 31 + if width == Width::W64 { 32 } else { 0 });
            out.shift(Prefix::F3, width, RDX, RDX, RCX);
            out.alu_int(Alu::And, width, RDX, by - 1);
            out.alu(Alu::Add, width, RDX, RAX);
            if quotient {
                amount(out, shift);
                out.shift(Prefix::F3, width, RAX, RDX, RCX);
            } else {
                out.alu_int(Alu::And, width, RDX, -by);
                out.alu(Alu::Sub, width, RAX, RDX);
                out.mov(Width::W64, RDX, RAX);
            }
        } else if quotient {
            amount(out, shift);
            out.shift(Prefix::F2, width, RAX, RAX, RCX);
        } else {
            out.alu_int(Alu::And, width, RAX, by - 1);
            out.mov(Width::W64, RDX, RAX);
        }
    }

    /// A shifted value in `rax`.
    pub(super) fn shift(&mut self, ty: ScalarType, op: ScalarOp, args: &[Id]) {
        let width = width(ty);
        let bits = 8 * ty.size() as i32;
        let known = match self.place(args[1]) {
            Place::Constant(amount) => Some(canonical(ty, amount)),
            _ => None,
        };
        self.integer_in(args[1], RCX);
        self.integer_in(args[0], RDX);
        let out = &mut self.assembler;
        let arithmetic = op == ScalarOp::ShrArithmetic;
        if ty.is_signed() && !arithmetic && ty.size() < 4 {
            out.extend(ty.size(), false, RDX, RDX);
        }
        let inside = known.is_some_and(|amount| amount < bits as u64);
        if arithmetic && !inside {
            // As far as it goes.
            out.mov_int(RAX, bits as u64 - 1);
            out.alu(Alu::Cmp, width, RCX, RAX);
            out.cmov(Condition::Above, Width::W64, RCX, RAX);
        }
        let prefix = match op {
            ScalarOp::Shl => Prefix::P66,
            ScalarOp::ShrArithmetic if ty.is_signed() => Prefix::F3,
            _ => Prefix::F2,
        };
        out.shift(prefix, width, RAX, RDX, RCX);
        if !arithmetic && !inside {
            out.mov_int(RDX, 0);
            out.alu_int(Alu::Cmp, width, RCX, bits);
            out.cmov(Condition::AboveEqual, Width::W64, RAX, RDX);
        }
    }
}
