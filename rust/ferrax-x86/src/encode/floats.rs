//! Opcodes of floats, of one or of a register of them, and the bytes that say what is compared.

pub const SQRT: u8 = 0x51;
pub const AND: u8 = 0x54;
pub const OR: u8 = 0x56;
pub const XOR: u8 = 0x57;
pub const ADD: u8 = 0x58;
pub const MUL: u8 = 0x59;
pub const SUB: u8 = 0x5c;
pub const MIN: u8 = 0x5d;
pub const DIV: u8 = 0x5e;
pub const MAX: u8 = 0x5f;
pub const COMPARE: u8 = 0xc2;

/// What is compared. For integers, which AVX-512 compares likewise, the numbers are the same.
pub const EQUAL: u8 = 0;
pub const LESS: u8 = 1;
pub const LESS_EQUAL: u8 = 2;
pub const UNORDERED: u8 = 3;
pub const NOT_EQUAL: u8 = 4;
pub const ORDERED: u8 = 7;
