//! Instructions of whole vector registers: VEX of 256 bits, and EVEX of 512.
//!
//! Both forms of an instruction have the same opcode; what differs is the prefix, which `length` says. Displacements of
//! EVEX are written whole, so that no scale is to be known.

use super::{Assembler, Gpr, Map, Mem, Opcode, Prefix, Rm, Xmm};

/// Bits of the registers of an instruction, and its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Length {
    Vex128,
    Vex256,
    Evex128,
    Evex256,
    Evex512,
}

/// A register of masks, 1 to 7 of which choose lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Masked {
    pub mask: u8,
    /// Lanes that are not chosen become zero; else they keep what they are.
    pub zeroed: bool,
}

impl Masked {
    pub const ALL: Masked = Masked { mask: 0, zeroed: false };
}

impl Length {
    const fn is_evex(self) -> bool {
        matches!(self, Length::Evex128 | Length::Evex256 | Length::Evex512)
    }

    const fn number(self) -> u8 {
        match self {
            Length::Vex128 | Length::Evex128 => 0,
            Length::Vex256 | Length::Evex256 => 1,
            Length::Evex512 => 2,
        }
    }
}

impl Assembler {
    /// An instruction of vector or mask registers: `reg` and `second` are those in these fields, of which there may be
    /// none (zero), and `byte` follows the operands.
    pub fn wide(
        &mut self,
        length: Length,
        opcode: Opcode,
        masked: Masked,
        (reg, second, rm): (u8, u8, Rm<u8>),
        byte: Option<u8>,
    ) {
        let after = usize::from(byte.is_some());
        let (x, b) = Self::high(rm);
        let map = opcode.map as u8;
        let prefix = opcode.prefix as u8;
        if length.is_evex() {
            // The fourth bit of a register in `rm` is where an index has its third.
            let x = if matches!(rm, Rm::Reg(_)) { b >> 1 } else { x };
            let not = |bit: u8| (bit & 1) ^ 1;
            self.byte(0x62);
            self.byte(not(reg >> 3) << 7 | not(x) << 6 | not(b) << 5 | not(reg >> 4) << 4 | map);
            self.byte(u8::from(opcode.wide) << 7 | (!second & 15) << 3 | 4 | prefix);
            let lanes = u8::from(masked.zeroed) << 7 | length.number() << 5 | masked.mask;
            self.byte(lanes | not(second >> 4) << 3);
            self.byte(opcode.code);
            self.whole_operand(reg, rm, after);
        } else {
            self.byte(0xc4);
            self.byte((reg >> 3 ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | map);
            let line = (!second & 15) << 3 | length.number() << 2 | prefix;
            self.byte(u8::from(opcode.wide) << 7 | line);
            self.byte(opcode.code);
            self.operand(reg, rm, after);
        }
        if let Some(byte) = byte {
            self.byte(byte);
        }
    }

    /// ModRM, SIB and a displacement of four bytes, or none.
    fn whole_operand(&mut self, reg: u8, rm: Rm<u8>, after: usize) {
        let low = (reg & 7) << 3;
        match rm {
            Rm::Mem(Mem::Base(base, displacement)) if displacement != 0 => {
                self.byte(0x80 | low | (base.0 & 7));
                if base.0 & 7 == 4 {
                    self.byte(0x24);
                }
                self.int(displacement);
            }
            Rm::Mem(Mem::Indexed(base, index, scale, displacement)) if displacement != 0 => {
                self.byte(0x80 | low | 4);
                self.byte((scale.trailing_zeros() as u8) << 6 | (index.0 & 7) << 3 | (base.0 & 7));
                self.int(displacement);
            }
            rm => self.operand(reg, rm, after),
        }
    }

    /// Upper halves of vector registers become zero: code of other kinds is slow beside them.
    pub fn vzeroupper(&mut self) {
        self.bytes.extend([0xc5, 0xf8, 0x77]);
    }

    /// All lanes are the one, of 4 or 8 bytes, that memory holds.
    pub fn broadcast(&mut self, length: Length, bytes: usize, to: Xmm, from: Mem) {
        let wide = bytes == 8;
        let code = if wide { 0x19 } else { 0x18 };
        let opcode = Opcode::new(Prefix::P66, Map::M0F38, code, wide && length.is_evex());
        self.wide(length, opcode, Masked::ALL, (to.0, 0, Rm::Mem(from)), None);
    }

    /// Subtracts a number from a register that [`Assembler::set_later`] says.
    pub fn subtract_later(&mut self, register: Gpr) -> usize {
        self.integer(
            super::Width::W64,
            super::Form::before(&[0x81], 4),
            super::Alu::Sub as u8,
            Rm::Reg(register.0),
        );
        self.int(0);
        self.bytes.len() - 4
    }

    /// The number of an instruction that was left open.
    pub fn set_later(&mut self, at: usize, value: i32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Clears the low bits of a register, which makes it a multiple of `of`, a power of two up to 128.
    pub fn align(&mut self, register: Gpr, of: i32) {
        self.alu_int(super::Alu::And, super::Width::W64, register, -of);
    }
}
