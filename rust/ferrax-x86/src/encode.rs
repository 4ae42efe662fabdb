//! Instructions of x86-64 as bytes: those that small loops need, of integer registers and, in VEX form, of 128-bit ones.
//!
//! In: registers, memory operands, labels. Out: bytes whose jumps and addresses of constants are resolved by
//! [`Assembler::finish`]. Cost: linear.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (chapter 2 for prefixes and operands).

pub mod floats;
mod wide;

use ferrax_ir::{Result, internal_error};
use rustc_hash::FxHashMap;

pub use self::wide::{Length, Masked};

/// A register for integers and addresses, by its number in encodings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gpr(pub u8);

pub const RAX: Gpr = Gpr(0);
pub const RCX: Gpr = Gpr(1);
pub const RDX: Gpr = Gpr(2);
pub const RBX: Gpr = Gpr(3);
pub const RSP: Gpr = Gpr(4);
pub const RBP: Gpr = Gpr(5);
pub const RSI: Gpr = Gpr(6);
pub const RDI: Gpr = Gpr(7);
pub const R8: Gpr = Gpr(8);
pub const R9: Gpr = Gpr(9);
pub const R10: Gpr = Gpr(10);
pub const R11: Gpr = Gpr(11);
pub const R12: Gpr = Gpr(12);
pub const R13: Gpr = Gpr(13);
pub const R14: Gpr = Gpr(14);
pub const R15: Gpr = Gpr(15);

/// A register for floats and vectors, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Xmm(pub u8);

/// The width of an integer operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    W32,
    W64,
}

/// A place in the code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label(u32);

/// A memory operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Mem {
    /// `[base + displacement]`
    Base(Gpr, i32),
    /// `[base + index * scale + displacement]`; the index is not `rsp`, the scale 1, 2, 4 or 8.
    Indexed(Gpr, Gpr, u8, i32),
    /// A constant of eight bytes behind the code.
    Constant(u64),
    /// The same, as often as a vector holds it.
    Vector(u64),
}

/// Bytes of the largest vectors, at multiples of which code and constants of vectors begin.
const VECTOR: usize = 64;

/// A register or a memory operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rm<R> {
    Reg(R),
    Mem(Mem),
}

impl<R> From<Mem> for Rm<R> {
    fn from(mem: Mem) -> Rm<R> {
        Rm::Mem(mem)
    }
}

impl From<Gpr> for Rm<Gpr> {
    fn from(reg: Gpr) -> Rm<Gpr> {
        Rm::Reg(reg)
    }
}

impl From<Xmm> for Rm<Xmm> {
    fn from(reg: Xmm) -> Rm<Xmm> {
        Rm::Reg(reg)
    }
}

/// Arithmetic of two integer operands, by the number in its opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Conditions, by the number in their opcodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Sign = 8,
    Parity = 10,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

/// The prefix that an opcode has, as VEX numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefix {
    None = 0,
    P66 = 1,
    F3 = 2,
    F2 = 3,
}

/// The opcode's map, as VEX numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Map {
    M0F = 1,
    M0F38 = 2,
    M0F3A = 3,
}

/// A VEX opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opcode {
    pub prefix: Prefix,
    pub map: Map,
    pub code: u8,
    pub wide: bool,
}

impl Opcode {
    pub const fn new(prefix: Prefix, map: Map, code: u8, wide: bool) -> Opcode {
        Opcode { prefix, map, code, wide }
    }
}

/// An opcode of integer registers, the prefix before it, whether an operand has eight bits, and how many bytes follow the
/// operands.
#[derive(Clone, Copy)]
struct Form<'a> {
    prefix: Option<u8>,
    opcode: &'a [u8],
    of_byte: bool,
    after: usize,
}

impl<'a> Form<'a> {
    fn new(opcode: &'a [u8]) -> Form<'a> {
        Form { prefix: None, opcode, of_byte: false, after: 0 }
    }

    fn with_prefix(prefix: u8, opcode: &'a [u8]) -> Form<'a> {
        Form { prefix: Some(prefix), ..Form::new(opcode) }
    }

    fn of_byte(opcode: &'a [u8]) -> Form<'a> {
        Form { of_byte: true, ..Form::new(opcode) }
    }

    fn before(opcode: &'a [u8], after: usize) -> Form<'a> {
        Form { after, ..Form::new(opcode) }
    }
}

/// Code while it is made.
#[derive(Debug, Default)]
pub struct Assembler {
    bytes: Vec<u8>,
    labels: Vec<Option<usize>>,
    /// Four bytes that a label's distance from their end goes to.
    jumps: Vec<(usize, Label)>,
    constants: Pool,
    vectors: Pool,
}

/// Constants of one size behind the code.
#[derive(Debug, Default)]
struct Pool {
    /// Four bytes that a constant's distance from the end of their instruction goes to, and that end.
    uses: Vec<(usize, usize, u32)>,
    constants: Vec<u64>,
    numbers: FxHashMap<u64, u32>,
}

impl Pool {
    fn number(&mut self, bits: u64) -> u32 {
        let next = self.constants.len() as u32;
        let number = *self.numbers.entry(bits).or_insert(next);
        if number == next {
            self.constants.push(bits);
        }
        number
    }
}

impl Assembler {
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    /// Puts a label here.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0 as usize] = Some(self.bytes.len());
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The code, with its constants behind it.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target =
                self.labels[label.0 as usize].ok_or_else(|| internal_error!("a label is nowhere"))?;
            self.distance(at, at + 4, target)?;
        }
        // Whole vectors are read of constants, and sixteen bytes of each that stands alone.
        let pools = [(std::mem::take(&mut self.vectors), VECTOR), (std::mem::take(&mut self.constants), 8)];
        for (pool, bytes) in pools.into_iter().filter(|(pool, _)| !pool.constants.is_empty()) {
            while !self.bytes.len().is_multiple_of(bytes) {
                self.bytes.push(0xcc);
            }
            let first = self.bytes.len();
            for constant in pool.constants {
                (0..bytes / 8).for_each(|_| self.bytes.extend(constant.to_le_bytes()));
            }
            self.bytes.extend([0; 8]);
            for (at, end, number) in pool.uses {
                self.distance(at, end, first + bytes * number as usize)?;
            }
        }
        Ok(self.bytes)
    }

    fn distance(&mut self, at: usize, from: usize, to: usize) -> Result<()> {
        let distance = i32::try_from(to as i64 - from as i64)
            .map_err(|_| internal_error!("code of {} bytes", self.bytes.len()))?;
        self.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        Ok(())
    }

    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    fn int(&mut self, value: i32) {
        self.bytes.extend(value.to_le_bytes());
    }

    /// ModRM, SIB and displacement; `after` bytes of the instruction follow.
    fn operand(&mut self, reg: u8, rm: Rm<u8>, after: usize) {
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Reg(rm) => self.byte(0xc0 | reg | (rm & 7)),
            Rm::Mem(mem @ (Mem::Constant(bits) | Mem::Vector(bits))) => {
                self.byte(reg | 5);
                let at = self.bytes.len();
                self.int(0);
                let pool =
                    if matches!(mem, Mem::Vector(_)) { &mut self.vectors } else { &mut self.constants };
                let number = pool.number(bits);
                pool.uses.push((at, at + 4 + after, number));
            }
            Rm::Mem(Mem::Base(base, displacement)) => {
                let short = i8::try_from(displacement).ok();
                // `rbp` and `r13` always have a displacement; `rsp` and `r12` an index byte.
                let mode = match short {
                    Some(0) if base.0 & 7 != 5 => 0,
                    Some(_) => 1,
                    None => 2,
                };
                self.byte(mode << 6 | reg | (base.0 & 7));
                if base.0 & 7 == 4 {
                    self.byte(0x24);
                }
                self.displacement(mode, displacement);
            }
            Rm::Mem(Mem::Indexed(base, index, scale, displacement)) => {
                let short = i8::try_from(displacement).ok();
                let mode = match short {
                    Some(0) if base.0 & 7 != 5 => 0,
                    Some(_) => 1,
                    None => 2,
                };
                self.byte(mode << 6 | reg | 4);
                self.byte((scale.trailing_zeros() as u8) << 6 | (index.0 & 7) << 3 | (base.0 & 7));
                self.displacement(mode, displacement);
            }
        }
    }

    fn displacement(&mut self, mode: u8, displacement: i32) {
        match mode {
            0 => {}
            1 => self.byte(displacement as u8),
            _ => self.int(displacement),
        }
    }

    /// The high bits of base and index, or of a register.
    fn high(rm: Rm<u8>) -> (u8, u8) {
        match rm {
            Rm::Reg(rm) => (0, rm >> 3),
            Rm::Mem(Mem::Base(base, _)) => (0, base.0 >> 3),
            Rm::Mem(Mem::Indexed(base, index, ..)) => (index.0 >> 3, base.0 >> 3),
            Rm::Mem(Mem::Constant(_) | Mem::Vector(_)) => (0, 0),
        }
    }

    /// An instruction of integer registers.
    fn integer(&mut self, width: Width, form: Form<'_>, reg: u8, rm: Rm<u8>) {
        if let Some(prefix) = form.prefix {
            self.byte(prefix);
        }
        let (x, b) = Self::high(rm);
        let w = u8::from(width == Width::W64);
        let rex = 0x40 | w << 3 | (reg >> 3) << 2 | x << 1 | b;
        // `spl` to `dil` are `ah` to `bh` without a prefix.
        let low = form.of_byte && (reg >= 4 || matches!(rm, Rm::Reg(rm) if rm >= 4));
        if rex != 0x40 || low {
            self.byte(rex);
        }
        self.bytes.extend_from_slice(form.opcode);
        self.operand(reg, rm, form.after);
    }

    fn number(rm: Rm<Gpr>) -> Rm<u8> {
        match rm {
            Rm::Reg(reg) => Rm::Reg(reg.0),
            Rm::Mem(mem) => Rm::Mem(mem),
        }
    }

    /// `to = from`
    pub fn mov(&mut self, width: Width, to: Gpr, from: impl Into<Rm<Gpr>>) {
        self.integer(width, Form::new(&[0x8b]), to.0, Self::number(from.into()));
    }

    /// Stores the low `bytes` (1, 2, 4 or 8) of a register.
    pub fn store(&mut self, bytes: usize, to: Mem, from: Gpr) {
        let to = Rm::Mem(to);
        match bytes {
            1 => self.integer(Width::W32, Form::of_byte(&[0x88]), from.0, to),
            2 => self.integer(Width::W32, Form::with_prefix(0x66, &[0x89]), from.0, to),
            4 => self.integer(Width::W32, Form::new(&[0x89]), from.0, to),
            _ => self.integer(Width::W64, Form::new(&[0x89]), from.0, to),
        }
    }

    /// Loads an integer of `bytes`, and extends it to 32 bits by its sign or zeros.
    pub fn extend(&mut self, bytes: usize, signed: bool, to: Gpr, from: impl Into<Rm<Gpr>>) {
        let from = Self::number(from.into());
        match (bytes, signed) {
            (1, false) => self.integer(Width::W32, Form::of_byte(&[0x0f, 0xb6]), to.0, from),
            (2, false) => self.integer(Width::W32, Form::new(&[0x0f, 0xb7]), to.0, from),
            (1, true) => self.integer(Width::W32, Form::of_byte(&[0x0f, 0xbe]), to.0, from),
            (2, true) => self.integer(Width::W32, Form::new(&[0x0f, 0xbf]), to.0, from),
            (4, _) => self.integer(Width::W32, Form::new(&[0x8b]), to.0, from),
            _ => self.integer(Width::W64, Form::new(&[0x8b]), to.0, from),
        }
    }

    /// A signed number of 32 bits to 64.
    pub fn movsxd(&mut self, to: Gpr, from: impl Into<Rm<Gpr>>) {
        self.integer(Width::W64, Form::new(&[0x63]), to.0, Self::number(from.into()));
    }

    pub fn mov_int(&mut self, to: Gpr, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            if to.0 >= 8 {
                self.byte(0x41);
            }
            self.byte(0xb8 | (to.0 & 7));
            self.bytes.extend(value.to_le_bytes());
        } else {
            self.byte(0x48 | to.0 >> 3);
            self.byte(0xb8 | (to.0 & 7));
            self.bytes.extend(value.to_le_bytes());
        }
    }

    pub fn lea(&mut self, to: Gpr, from: Mem) {
        self.integer(Width::W64, Form::new(&[0x8d]), to.0, Rm::Mem(from));
    }

    /// `to = to op from`
    pub fn alu(&mut self, op: Alu, width: Width, to: Gpr, from: impl Into<Rm<Gpr>>) {
        let opcode = (op as u8) << 3 | 3;
        self.integer(width, Form::new(&[opcode]), to.0, Self::number(from.into()));
    }

    pub fn alu_int(&mut self, op: Alu, width: Width, to: Gpr, value: i32) {
        if let Ok(short) = i8::try_from(value) {
            self.integer(width, Form::before(&[0x83], 1), op as u8, Rm::Reg(to.0));
            self.byte(short as u8);
        } else {
            self.integer(width, Form::before(&[0x81], 4), op as u8, Rm::Reg(to.0));
            self.int(value);
        }
    }

    pub fn imul(&mut self, width: Width, to: Gpr, from: impl Into<Rm<Gpr>>) {
        self.integer(width, Form::new(&[0x0f, 0xaf]), to.0, Self::number(from.into()));
    }

    pub fn test(&mut self, width: Width, a: Gpr, b: Gpr) {
        self.integer(width, Form::new(&[0x85]), b.0, Rm::Reg(a.0));
    }

    pub fn neg(&mut self, width: Width, to: Gpr) {
        self.integer(width, Form::new(&[0xf7]), 3, Rm::Reg(to.0));
    }

    pub fn not(&mut self, width: Width, to: Gpr) {
        self.integer(width, Form::new(&[0xf7]), 2, Rm::Reg(to.0));
    }

    /// `rdx:rax` by a register: quotient in `rax`, remainder in `rdx`.
    pub fn divide(&mut self, width: Width, signed: bool, by: Gpr) {
        self.integer(width, Form::new(&[0xf7]), if signed { 7 } else { 6 }, Rm::Reg(by.0));
    }

    /// The sign of `rax` in all of `rdx`.
    pub fn sign_to_rdx(&mut self, width: Width) {
        if width == Width::W64 {
            self.byte(0x48);
        }
        self.byte(0x99);
    }

    pub fn popcnt(&mut self, width: Width, to: Gpr, from: Gpr) {
        self.integer(width, Form::with_prefix(0xf3, &[0x0f, 0xb8]), to.0, Rm::Reg(from.0));
    }

    pub fn lzcnt(&mut self, width: Width, to: Gpr, from: Gpr) {
        self.integer(width, Form::with_prefix(0xf3, &[0x0f, 0xbd]), to.0, Rm::Reg(from.0));
    }

    /// The byte of a register as the condition says; its other bits stay.
    pub fn set(&mut self, condition: Condition, to: Gpr) {
        self.integer(Width::W32, Form::of_byte(&[0x0f, 0x90 | condition as u8]), 0, Rm::Reg(to.0));
    }

    pub fn cmov(&mut self, condition: Condition, width: Width, to: Gpr, from: impl Into<Rm<Gpr>>) {
        let opcode = [0x0f, 0x40 | condition as u8];
        self.integer(width, Form::new(&opcode), to.0, Self::number(from.into()));
    }

    /// `to = from << by` and so on, which need no flags: `P66` left, `F3` right with the sign, `F2` right.
    pub fn shift(&mut self, prefix: Prefix, width: Width, to: Gpr, from: Gpr, by: Gpr) {
        let opcode = Opcode::new(prefix, Map::M0F38, 0xf7, width == Width::W64);
        self.vex(opcode, to.0, by.0, Rm::Reg(from.0), 0);
    }

    pub fn jump(&mut self, to: Label) {
        self.byte(0xe9);
        self.jumps.push((self.bytes.len(), to));
        self.int(0);
    }

    pub fn jump_if(&mut self, condition: Condition, to: Label) {
        self.byte(0x0f);
        self.byte(0x80 | condition as u8);
        self.jumps.push((self.bytes.len(), to));
        self.int(0);
    }

    pub fn call(&mut self, function: Gpr) {
        self.integer(Width::W32, Form::new(&[0xff]), 2, Rm::Reg(function.0));
    }

    pub fn push(&mut self, reg: Gpr) {
        if reg.0 >= 8 {
            self.byte(0x41);
        }
        self.byte(0x50 | (reg.0 & 7));
    }

    pub fn pop(&mut self, reg: Gpr) {
        if reg.0 >= 8 {
            self.byte(0x41);
        }
        self.byte(0x58 | (reg.0 & 7));
    }

    pub fn ret(&mut self) {
        self.byte(0xc3);
    }

    /// A VEX instruction of 128 bits, without its operand of one byte; `after` bytes follow.
    fn vex(&mut self, opcode: Opcode, reg: u8, second: u8, rm: Rm<u8>, after: usize) {
        let (x, b) = Self::high(rm);
        let (r, second) = (reg >> 3, !second & 15);
        if opcode.map == Map::M0F && !opcode.wide && x == 0 && b == 0 {
            self.byte(0xc5);
            self.byte((r ^ 1) << 7 | second << 3 | opcode.prefix as u8);
        } else {
            self.byte(0xc4);
            self.byte((r ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | opcode.map as u8);
            self.byte(u8::from(opcode.wide) << 7 | second << 3 | opcode.prefix as u8);
        }
        self.byte(opcode.code);
        self.operand(reg, rm, after);
    }

    fn float(rm: Rm<Xmm>) -> Rm<u8> {
        match rm {
            Rm::Reg(reg) => Rm::Reg(reg.0),
            Rm::Mem(mem) => Rm::Mem(mem),
        }
    }

    /// `to = a op b`
    pub fn three(&mut self, opcode: Opcode, to: Xmm, a: Xmm, b: impl Into<Rm<Xmm>>) {
        self.vex(opcode, to.0, a.0, Self::float(b.into()), 0);
    }

    /// `to = op(from)` (or, of stores, `from = to`): the second operand is not there.
    pub fn two(&mut self, opcode: Opcode, to: Xmm, from: impl Into<Rm<Xmm>>) {
        self.vex(opcode, to.0, 0, Self::float(from.into()), 0);
    }

    /// [`Self::three`] with a byte.
    pub fn three_byte(&mut self, opcode: Opcode, to: Xmm, a: Xmm, b: impl Into<Rm<Xmm>>, byte: u8) {
        self.vex(opcode, to.0, a.0, Self::float(b.into()), 1);
        self.byte(byte);
    }

    /// [`Self::two`] with a byte.
    pub fn two_byte(&mut self, opcode: Opcode, to: Xmm, from: impl Into<Rm<Xmm>>, byte: u8) {
        self.vex(opcode, to.0, 0, Self::float(from.into()), 1);
        self.byte(byte);
    }

    /// `to = mask's sign ? b : a`
    pub fn blend(&mut self, opcode: Opcode, to: Xmm, a: Xmm, b: impl Into<Rm<Xmm>>, mask: Xmm) {
        self.three_byte(opcode, to, a, b, mask.0 << 4);
    }

    /// An instruction from an integer register or memory to a float register, whose upper part is `a`'s.
    pub fn from_integer(&mut self, opcode: Opcode, to: Xmm, a: Xmm, from: impl Into<Rm<Gpr>>) {
        self.vex(opcode, to.0, a.0, Self::number(from.into()), 0);
    }

    /// An instruction from a float register or memory to an integer register.
    pub fn to_integer(&mut self, opcode: Opcode, to: Gpr, from: impl Into<Rm<Xmm>>) {
        self.vex(opcode, to.0, 0, Self::float(from.into()), 0);
    }

    /// The bits of an integer register in a float one.
    pub fn bits_to_float(&mut self, width: Width, to: Xmm, from: Gpr) {
        let opcode = Opcode::new(Prefix::P66, Map::M0F, 0x6e, width == Width::W64);
        self.vex(opcode, to.0, 0, Rm::Reg(from.0), 0);
    }

    pub fn bits_of_float(&mut self, width: Width, to: Gpr, from: Xmm) {
        let opcode = Opcode::new(Prefix::P66, Map::M0F, 0x7e, width == Width::W64);
        self.vex(opcode, from.0, 0, Rm::Reg(to.0), 0);
    }
}
