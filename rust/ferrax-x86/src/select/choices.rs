//! Comparisons, and what is chosen by them: values and branches.

use ferrax_compile::native::{Code, Id};
use ferrax_ir::scalar::{ScalarOp, ScalarType};

use super::{Select, X0, X1, X2, scalar, width};
use crate::encode::floats::{COMPARE, EQUAL, LESS, LESS_EQUAL, NOT_EQUAL};
use crate::encode::{Alu, Condition, Label, Map, Opcode, Prefix, RAX, RCX, RDX, Width, Xmm};

impl Select<'_> {
    /// The comparison that a condition is, if it is made at its use.
    fn comparison(&self, id: Id) -> Option<(ScalarOp, Id, Id)> {
        let number = self.uses.deferred[id.0 as usize]?;
        match &self.uses.native.code[number] {
            Code::Compute { op, args, .. } => Some((*op, args[0], args[1])),
            _ => None,
        }
    }

    /// Compares two values so that flags say what of this condition; of floats `Eq` and `Ne`, equality alone is not
    /// enough: without an order the parity is set. `rcx` and the last two float registers may change.
    fn flags(&mut self, op: ScalarOp, a: Id, b: Id) -> Condition {
        let ty = self.type_of(a);
        if ty.is_float() {
            let (low, high) = if matches!(op, ScalarOp::Lt | ScalarOp::Le) { (a, b) } else { (b, a) };
            let high = self.float(high, X2);
            let low = self.float_operand(low);
            let prefix = if ty == ScalarType::F64 { Prefix::P66 } else { Prefix::None };
            self.assembler.two(Opcode::new(prefix, Map::M0F, 0x2e, false), high, low);
            return match op {
                ScalarOp::Lt => Condition::Above,
                ScalarOp::Le => Condition::AboveEqual,
                ScalarOp::Eq => Condition::Equal,
                _ => Condition::NotEqual,
            };
        }
        self.compare_integers(a, b);
        match op {
            ScalarOp::Lt if ty.is_signed() => Condition::Less,
            ScalarOp::Lt => Condition::Below,
            ScalarOp::Le if ty.is_signed() => Condition::LessEqual,
            ScalarOp::Le => Condition::BelowEqual,
            ScalarOp::Eq => Condition::Equal,
            _ => Condition::NotEqual,
        }
    }

    /// Flags for two integers; `rcx` and `rdx` may change.
    fn compare_integers(&mut self, a: Id, b: Id) {
        let width = width(self.type_of(a));
        let a_register = self.integer(a, RDX);
        match self.small_constant(b) {
            Some(value) => self.assembler.alu_int(Alu::Cmp, width, a_register, value),
            None => {
                let b = self.integer(b, RCX);
                self.assembler.alu(Alu::Cmp, width, a_register, b);
            }
        }
    }

    pub(super) fn branch_unless(&mut self, holds: Id, to: Label) {
        let Some((op, a, b)) = self.comparison(holds) else {
            let holds = self.integer(holds, RAX);
            self.assembler.test(Width::W32, holds, holds);
            return self.assembler.jump_if(Condition::Equal, to);
        };
        let float = self.type_of(a).is_float();
        let condition = self.flags(op, a, b);
        match condition {
            Condition::Equal if float => {
                self.assembler.jump_if(Condition::NotEqual, to);
                self.assembler.jump_if(Condition::Parity, to);
            }
            Condition::NotEqual if float => {
                let holds = self.assembler.label();
                self.assembler.jump_if(Condition::Parity, holds);
                self.assembler.jump_if(Condition::Equal, to);
                self.assembler.bind(holds);
            }
            condition => self.assembler.jump_if(inverse(condition), to),
        }
    }

    /// Whether a comparison holds, as zero or one in `rax`.
    fn whether(&mut self, op: ScalarOp, a: Id, b: Id) {
        let ty = self.type_of(a);
        if ty.is_float() && matches!(op, ScalarOp::Eq | ScalarOp::Ne) {
            self.mask(X0, op, a, b);
            self.assembler.bits_of_float(Width::W32, RAX, X0);
            self.assembler.alu_int(Alu::And, Width::W32, RAX, 1);
        } else {
            let condition = self.flags(op, a, b);
            self.assembler.set(condition, RAX);
            self.assembler.extend(1, false, RAX, RAX);
        }
    }

    /// All bits of a float register, or none, as a comparison of floats holds.
    fn mask(&mut self, to: Xmm, op: ScalarOp, a: Id, b: Id) {
        let kind = match op {
            ScalarOp::Eq => EQUAL,
            ScalarOp::Ne => NOT_EQUAL,
            ScalarOp::Lt => LESS,
            _ => LESS_EQUAL,
        };
        let ty = self.type_of(a);
        let a = self.float(a, X0);
        let b = self.float_operand(b);
        self.assembler.three_byte(scalar(COMPARE, ty), to, a, b, kind);
    }

    pub(super) fn compare(&mut self, to: Id, op: ScalarOp, a: Id, b: Id) {
        self.whether(op, a, b);
        self.integer_done(to, RAX);
    }

    pub(super) fn select(&mut self, to: Id, [holds, then, otherwise]: [Id; 3]) {
        if self.type_of(to).is_float() {
            return self.select_float(to, holds, then, otherwise);
        }
        let Some((op, a, b)) = self.comparison(holds) else {
            let holds = self.integer(holds, RCX);
            let then = self.integer(then, RDX);
            self.integer_in(otherwise, RAX);
            self.assembler.test(Width::W32, holds, holds);
            self.assembler.cmov(Condition::NotEqual, Width::W64, RAX, then);
            return self.integer_done(to, RAX);
        };
        let float = self.type_of(a).is_float();
        let (then, otherwise, op) = match op {
            ScalarOp::Eq if float => (otherwise, then, ScalarOp::Ne),
            op => (then, otherwise, op),
        };
        let condition = self.flags(op, a, b);
        self.integer_in(otherwise, RAX);
        let then = self.integer(then, RDX);
        self.assembler.cmov(condition, Width::W64, RAX, then);
        if float && condition == Condition::NotEqual {
            self.assembler.cmov(Condition::Parity, Width::W64, RAX, then);
        }
        self.integer_done(to, RAX);
    }

    fn select_float(&mut self, to: Id, holds: Id, then: Id, otherwise: Id) {
        let ty = self.type_of(to);
        let wide = ty == ScalarType::F64;
        match self.comparison(holds) {
            Some((op, a, b)) if self.type_of(a) == ty => self.mask(X2, op, a, b),
            comparison => {
                match comparison {
                    Some((op, a, b)) => self.whether(op, a, b),
                    None => self.integer_in(holds, RAX),
                }
                self.assembler.neg(Width::W64, RAX);
                self.assembler.bits_to_float(Width::W64, X2, RAX);
            }
        }
        let otherwise = self.float(otherwise, X0);
        let then = self.float(then, X1);
        let result = self.float_result(to);
        let blend = Opcode::new(Prefix::P66, Map::M0F3A, if wide { 0x4b } else { 0x4a }, false);
        self.assembler.blend(blend, result, otherwise, then, X2);
        self.float_done(to, result);
    }
}

const fn inverse(condition: Condition) -> Condition {
    match condition {
        Condition::Below => Condition::AboveEqual,
        Condition::AboveEqual => Condition::Below,
        Condition::Equal => Condition::NotEqual,
        Condition::NotEqual => Condition::Equal,
        Condition::BelowEqual => Condition::Above,
        Condition::Above => Condition::BelowEqual,
        Condition::Less => Condition::GreaterEqual,
        Condition::GreaterEqual => Condition::Less,
        Condition::LessEqual => Condition::Greater,
        Condition::Greater => Condition::LessEqual,
        other => other,
    }
}
