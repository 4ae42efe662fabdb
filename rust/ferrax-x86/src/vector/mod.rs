//! Chains (`ferrax_compile::chain`) as machine code over vector registers: AVX2 with FMA, or AVX-512.
//!
//! In: a chain. Out: a function that goes through blocks, some registers of lanes at a time, with all that is between
//! inputs and outputs in registers. Operations become [`Micro`] instructions over values of one machine register each
//! (`lower`): an element of eight bytes takes two. Where registers suffice, several steps go side by side (`together`), so
//! that instructions need not wait for one another. Then registers are given and bytes written in one pass (`assign`).
//!
//! Cost: near-linear in the chain.

mod assign;
mod forms;
mod lower;
mod masks;
mod together;

use ferrax_compile::chain::Chain;
use ferrax_ir::Result;
use smallvec::SmallVec;

pub use self::assign::{At, SLOT, Within};
use crate::encode::{Assembler, Length, Opcode};

/// The instructions that there are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Isa {
    Avx2,
    Avx512,
}

impl Isa {
    /// Lanes of a register of elements of four bytes.
    const fn lanes(self) -> usize {
        self.bytes() / 4
    }

    /// Bytes of a register.
    const fn bytes(self) -> usize {
        match self {
            Isa::Avx2 => 32,
            Isa::Avx512 => 64,
        }
    }

    /// A whole register.
    const fn length(self) -> Length {
        match self {
            Isa::Avx2 => Length::Vex256,
            Isa::Avx512 => Length::Evex512,
        }
    }
}

/// A chain as a function.
#[derive(Debug)]
pub struct ChainCode {
    /// `extern fn(pointers: *const *mut u8, lanes: usize)`: of the inputs, then of the outputs. No output may overlap an
    /// input.
    pub bytes: Vec<u8>,
    /// What lanes are a multiple of, and not zero.
    pub lanes: usize,
}

/// Lanes of a step of a function, at most.
pub const MOST_LANES: usize = 64;

/// The function of a chain. Errors: the chain is not sound.
pub fn emit_chain(chain: &Chain, isa: Isa) -> Result<ChainCode> {
    chain.verify()?;
    let lowered = lower::lower(chain, isa)?;
    let steps = together::steps(&lowered, isa);
    let lanes = steps * isa.lanes();
    let bytes = assign::assign(&together::together(lowered, chain, isa, steps), chain, isa, lanes)?;
    Ok(ChainCode { bytes, lanes })
}

/// Emits a chain as a part of a function (see [`Within`]), by instructions of AVX2; the bytes of the stack that it needs.
pub fn emit_within(chain: &Chain, place: &Within<'_>, out: &mut Assembler) -> Result<i32> {
    let isa = Isa::Avx2;
    let lowered = lower::lower(chain, isa)?;
    let mut steps = together::steps(&lowered, isa);
    while !place.count.is_multiple_of(steps * isa.lanes()) && steps > 1 {
        steps /= 2;
    }
    let lanes = steps * isa.lanes();
    assign::within((&together::together(lowered, chain, isa, steps), chain), lanes, place, out)
}

/// What an instruction reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Source {
    /// A value, by its number.
    Value(u32),
    /// Eight bytes, as often as a register holds them.
    Constant(u64),
    /// All lanes of an input of one element.
    Uniform(u32),
}

/// Which registers a value is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Vector,
    /// Of AVX-512: a bit for each lane.
    Mask,
}

/// How an instruction's operands are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// `to = op(a)` or `to = op(a, b)`: the last one may be in memory.
    Plain,
    /// As before, but no operand is in memory: of masks, and of halves.
    Registers,
    /// `to = a * b + c`
    Fused,
    /// `to = mask ? b : a`, the mask in a vector.
    Blend,
    /// `to = mask ? b : a`, or of two operands `mask ? b : 0`, the mask in a mask register.
    Masked,
    /// The destination is where others have their last operand.
    Extract,
    /// `to = op(a)` by a byte; the destination is where others have their second operand, and theirs a digit of the opcode.
    Digit(u8),
    /// From or to a block, so many bytes beyond the step's first lane.
    Load {
        block: u32,
        offset: i32,
    },
    Store {
        block: u32,
        offset: i32,
    },
}

/// An instruction over values of one register.
#[derive(Clone, Debug)]
struct Micro {
    shape: Shape,
    length: Length,
    opcode: Opcode,
    byte: Option<u8>,
    to: Option<u32>,
    args: SmallVec<[Source; 3]>,
}

/// A chain as instructions; `classes` are those of all values.
#[derive(Debug, Default)]
struct Lowered {
    micros: Vec<Micro>,
    classes: Vec<Class>,
}
