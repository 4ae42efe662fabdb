//! From one type to another.

use ferrax_compile::native::Id;
use ferrax_ir::Result;
use ferrax_ir::scalar::{ScalarOp, ScalarType};

use super::{MOVE, Select, X0, X1, X2, XOR, scalar, width};
use crate::encode::floats::{COMPARE, MAX, MIN, NOT_EQUAL};
use crate::encode::{Alu, Condition, Map, Mem, Opcode, Prefix, RAX, RCX, Width};

impl Select<'_> {
    pub(super) fn bitcast(&mut self, to: Id, from: Id) {
        let (ty, of) = (self.type_of(to), self.type_of(from));
        match (ty.is_float(), of.is_float()) {
            (true, true) | (false, false) => {
                if ty.is_float() {
                    return self.copy(to, from);
                }
                let result = self.integer_result(to);
                self.integer_in(from, result);
                self.extended(ty, result);
                self.integer_done(to, result);
            }
            (true, false) => {
                let from = self.integer(from, RAX);
                let result = self.float_result(to);
                self.assembler.bits_to_float(width(of), result, from);
                self.float_done(to, result);
            }
            (false, true) => {
                let from = self.float(from, X0);
                let result = self.integer_result(to);
                self.assembler.bits_of_float(width(ty), result, from);
                self.integer_done(to, result);
            }
        }
    }

    pub(super) fn convert(&mut self, number: usize, to: Id, from: Id) -> Result<()> {
        let (ty, of) = (self.type_of(to), self.type_of(from));
        match (ty.is_float(), of.is_float()) {
            (true, true) => {
                let a = self.float(from, X0);
                let result = self.float_result(to);
                // The prefix is that of the source.
                self.assembler.three(scalar(0x5a, of), result, a, a);
                self.float_done(to, result);
            }
            (true, false) => {
                if of == ScalarType::U64 {
                    return self.call(number, to, ScalarOp::Convert, &[from], of);
                }
                let wide = of.size() == 8 || of == ScalarType::U32;
                let from = self.integer(from, RAX);
                let prefix = if ty == ScalarType::F64 { Prefix::F2 } else { Prefix::F3 };
                let result = self.float_result(to);
                self.assembler.three(XOR, X0, X0, X0);
                self.assembler.from_integer(Opcode::new(prefix, Map::M0F, 0x2a, wide), result, X0, from);
                self.float_done(to, result);
            }
            (false, true) => {
                if ty.size() == 8 {
                    return self.call(number, to, ScalarOp::Convert, &[from], of);
                }
                self.float_to_integer(ty, of, from);
                self.integer_done(to, RAX);
            }
            (false, false) => {
                let result = self.integer_result(to);
                if ty == ScalarType::Bool {
                    let from = self.integer(from, RAX);
                    self.assembler.test(width(of), from, from);
                    self.assembler.set(Condition::NotEqual, RAX);
                    self.assembler.extend(1, false, RAX, RAX);
                    self.integer_done(to, RAX);
                    return Ok(());
                }
                let from = self.integer(from, RAX);
                match ty.size() {
                    size @ (1 | 2) => self.assembler.extend(size, ty.is_signed(), result, from),
                    8 if of.size() < 8 && of.is_signed() => self.assembler.movsxd(result, from),
                    8 if of.size() == 8 => self.assembler.mov(Width::W64, result, from),
                    _ => self.assembler.mov(Width::W32, result, from),
                }
                self.integer_done(to, result);
            }
        }
        Ok(())
    }

    /// A float as an integer of at most 32 bits in `rax`: the nearest to zero, within the type's range; NaN is zero.
    pub(super) fn float_to_integer(&mut self, ty: ScalarType, of: ScalarType, from: Id) {
        let from = self.float(from, X0);
        if ty == ScalarType::Bool {
            self.assembler.three(XOR, X1, X1, X1);
            self.assembler.three_byte(scalar(COMPARE, of), X0, from, X1, NOT_EQUAL);
            self.assembler.bits_of_float(Width::W32, RAX, X0);
            return self.assembler.alu_int(Alu::And, Width::W32, RAX, 1);
        }
        let bits = 8 * ty.size() as u32;
        let (least, most) = if ty.is_signed() {
            (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1)
        } else {
            (0, (1i64 << bits) - 1)
        };
        let double = |value: i64| Mem::Constant((value as f64).to_bits());
        if of == ScalarType::F32 {
            self.assembler.three(scalar(0x5a, of), X1, from, from);
        } else {
            self.assembler.two(MOVE, X1, from);
        }
        let of = ScalarType::F64;
        self.assembler.three(scalar(MIN, of), X2, X1, double(most));
        self.assembler.three(scalar(MAX, of), X2, X2, double(least));
        let truncate = Opcode::new(Prefix::F2, Map::M0F, 0x2c, true);
        self.assembler.to_integer(truncate, RAX, X2);
        self.assembler.mov_int(RCX, 0);
        self.assembler.two(Opcode::new(Prefix::P66, Map::M0F, 0x2e, false), X1, X1);
        self.assembler.cmov(Condition::Parity, Width::W64, RAX, RCX);
        // Upper halves are zero.
        self.assembler.mov(Width::W32, RAX, RAX);
    }
}
