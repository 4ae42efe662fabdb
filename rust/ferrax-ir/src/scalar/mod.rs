//! The scalar language: what happens to one element.
//!
//! A [`Body`] is a hash-consed list of instructions in single assignment over
//! real scalars. Complex numbers are pairs of registers. Half-precision floats
//! are computed in `f32` and rounded after each op ([`ScalarOp::RoundTo`]).
//! Kernel IR wraps bodies in loops; emitters turn them into machine code, block
//! operations of the vector VM, or WGSL.

pub mod reference;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

pub use crate::math::MathFn;
use crate::{DType, Kind, Result, type_error};

/// The type of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ScalarType {
    /// One byte, 0 or 1.
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
}

impl ScalarType {
    /// The register type in which elements of `dtype` (for complex: their
    /// parts) are computed.
    pub fn of(dtype: DType) -> Result<ScalarType> {
        Ok(match dtype {
            DType::Bool => ScalarType::Bool,
            DType::I2 | DType::I4 | DType::I8 => ScalarType::I8,
            DType::I16 => ScalarType::I16,
            DType::I32 => ScalarType::I32,
            DType::I64 => ScalarType::I64,
            DType::U2 | DType::U4 | DType::U8 => ScalarType::U8,
            DType::U16 => ScalarType::U16,
            DType::U32 => ScalarType::U32,
            DType::U64 => ScalarType::U64,
            DType::F64 | DType::C128 => ScalarType::F64,
            // Keys are compared and selected as words; nothing else is done to them.
            DType::Key(key) if key.words() == 1 => ScalarType::U32,
            DType::Key(_) => ScalarType::U64,
            dtype if matches!(dtype.kind(), Kind::Float | Kind::Complex) => ScalarType::F32,
            other => return Err(type_error!("elements of {other} cannot be computed with")),
        })
    }

    pub const fn size(self) -> usize {
        match self {
            ScalarType::Bool | ScalarType::I8 | ScalarType::U8 => 1,
            ScalarType::I16 | ScalarType::U16 => 2,
            ScalarType::I32 | ScalarType::U32 | ScalarType::F32 => 4,
            ScalarType::I64 | ScalarType::U64 | ScalarType::F64 => 8,
        }
    }

    pub const fn is_float(self) -> bool {
        matches!(self, ScalarType::F32 | ScalarType::F64)
    }

    pub const fn is_signed(self) -> bool {
        matches!(self, ScalarType::I8 | ScalarType::I16 | ScalarType::I32 | ScalarType::I64)
    }

    pub const fn dtype(self) -> DType {
        match self {
            ScalarType::Bool => DType::Bool,
            ScalarType::I8 => DType::I8,
            ScalarType::I16 => DType::I16,
            ScalarType::I32 => DType::I32,
            ScalarType::I64 => DType::I64,
            ScalarType::U8 => DType::U8,
            ScalarType::U16 => DType::U16,
            ScalarType::U32 => DType::U32,
            ScalarType::U64 => DType::U64,
            ScalarType::F32 => DType::F32,
            ScalarType::F64 => DType::F64,
        }
    }
}

/// A register: an index into [`Body::instructions`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reg(pub u32);

/// One element: a real register or the two parts of a complex number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    Real(Reg),
    Complex(Reg, Reg),
}

/// Formats narrower than `f32` in which floats are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Narrow {
    BF16,
    F16,
}

/// What an instruction computes. Unless said otherwise the arguments have the
/// type of the result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScalarOp {
    /// The element (or for complex inputs, part `part`) of the kernel's n-th operand. Arguments, signed integers
    /// of 32 or 64 bits, say which element of it, as kernels define.
    Input {
        operand: u32,
        part: u8,
    },
    /// The loop index along an axis of the index space (`I64`).
    Index {
        axis: u32,
    },
    /// The value with these bits.
    Const {
        bits: u64,
    },
    /// A number that the caller gives, the same for all elements.
    Param {
        index: u32,
    },
    /// Integers wrap.
    Add,
    Sub,
    Mul,
    /// Floats: IEEE. Integers: truncates; `x / 0 = -1` (all bits set), `MIN / -1 = MIN`.
    Div,
    /// Sign of the dividend. Integers: `x % 0 = x`, `MIN % -1 = 0`.
    Rem,
    Neg,
    /// `abs(MIN) = MIN`.
    Abs,
    /// NaN if either argument is.
    Min,
    Max,
    /// `a * b + c`, rounded once.
    Fma,
    Sqrt,
    Floor,
    Ceil,
    Trunc,
    RoundEven,
    And,
    Or,
    Xor,
    /// Bitwise; logical for `Bool`.
    Not,
    /// Zero (or for `ShrArithmetic` the sign) where the shift, read as unsigned, is not below the width.
    Shl,
    ShrArithmetic,
    ShrLogical,
    PopCount,
    /// Leading zeros; the width for 0.
    Clz,
    /// Comparisons give `Bool`; the arguments share any type. False for NaN, but `Ne` true.
    Eq,
    Ne,
    Lt,
    Le,
    /// `args[0]` (`Bool`) ? `args[1]` : `args[2]`.
    Select,
    /// From the argument's type. Floats to integers saturate, NaN gives 0; integers wrap; to `Bool`: `!= 0`.
    Convert,
    /// The same bits in another type of equal size.
    Bitcast,
    /// An `F32` rounded (ties to even) to what the narrow format can hold.
    RoundTo(Narrow),
    Math(MathFn),
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Instruction {
    pub op: ScalarOp,
    pub ty: ScalarType,
    pub args: SmallVec<[Reg; 3]>,
}

/// Instructions in order of definition; equal ones are shared.
#[derive(Clone, Default, Debug)]
pub struct Body {
    instructions: Vec<Instruction>,
    index: FxHashMap<Instruction, Reg>,
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.instructions == other.instructions
    }
}

impl Eq for Body {}

impl std::hash::Hash for Body {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.instructions.hash(state);
    }
}

impl Body {
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    pub fn type_of(&self, reg: Reg) -> ScalarType {
        self.instructions[reg.0 as usize].ty
    }

    /// Appends an instruction or finds an equal one.
    pub fn push(&mut self, op: ScalarOp, ty: ScalarType, args: &[Reg]) -> Reg {
        let instruction = Instruction { op, ty, args: SmallVec::from_slice(args) };
        if let Some(&reg) = self.index.get(&instruction) {
            return reg;
        }
        let reg = Reg(self.instructions.len() as u32);
        self.instructions.push(instruction.clone());
        self.index.insert(instruction, reg);
        reg
    }

    /// An instruction whose result has its first argument's type.
    pub fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        let ty = self.type_of(args[0]);
        self.push(op, ty, args)
    }

    /// A comparison.
    pub fn compare(&mut self, op: ScalarOp, a: Reg, b: Reg) -> Reg {
        self.push(op, ScalarType::Bool, &[a, b])
    }

    pub fn select(&mut self, condition: Reg, then: Reg, otherwise: Reg) -> Reg {
        let ty = self.type_of(then);
        self.push(ScalarOp::Select, ty, &[condition, then, otherwise])
    }

    pub fn math(&mut self, function: MathFn, args: &[Reg]) -> Reg {
        self.op(ScalarOp::Math(function), args)
    }

    /// `reg` converted to `ty`; itself if it has that type.
    pub fn convert(&mut self, reg: Reg, ty: ScalarType) -> Reg {
        if self.type_of(reg) == ty { reg } else { self.push(ScalarOp::Convert, ty, &[reg]) }
    }

    pub fn bitcast(&mut self, reg: Reg, ty: ScalarType) -> Reg {
        if self.type_of(reg) == ty { reg } else { self.push(ScalarOp::Bitcast, ty, &[reg]) }
    }

    /// A float constant; for integer types the value is truncated.
    pub fn float(&mut self, ty: ScalarType, value: f64) -> Reg {
        self.constant(crate::Scalar::from_f64(ty.dtype(), value))
    }

    pub fn int(&mut self, ty: ScalarType, value: i64) -> Reg {
        self.constant(crate::Scalar::from_i64(ty.dtype(), value))
    }

    /// A real constant, in the register type of its dtype.
    pub fn constant(&mut self, value: crate::Scalar) -> Reg {
        let (ty, value) = match ScalarType::of(value.dtype()) {
            Ok(ty) if ty.dtype() == value.dtype() => (ty, value),
            Ok(ty) => (ty, crate::Scalar::from_f64(ty.dtype(), value.to_f64().unwrap_or(0.0))),
            Err(_) => (ScalarType::U64, value),
        };
        self.push(ScalarOp::Const { bits: value.bits() as u64 }, ty, &[])
    }

    /// A constant of any computing dtype.
    pub fn literal(&mut self, value: crate::Scalar) -> Value {
        let half = value.dtype().size() * 4;
        match value.dtype() {
            DType::C64 | DType::C128 => {
                let real = value.dtype().real();
                let mask = (1u128 << half) - 1;
                let re = self.constant(crate::Scalar::from_bits(real, value.bits() & mask));
                let im = self.constant(crate::Scalar::from_bits(real, value.bits() >> half));
                Value::Complex(re, im)
            }
            _ => Value::Real(self.constant(value)),
        }
    }

    /// The result of an op on elements that registers hold in a wider format:
    /// half-precision floats are rounded, integers below a byte wrap. Others pass.
    pub fn round_to(&mut self, dtype: DType, reg: Reg) -> Reg {
        match dtype {
            DType::BF16 => self.op(ScalarOp::RoundTo(Narrow::BF16), &[reg]),
            DType::F16 => self.op(ScalarOp::RoundTo(Narrow::F16), &[reg]),
            DType::U2 | DType::U4 => self.low_bits(dtype, reg),
            DType::I2 | DType::I4 => self.sign_extended(dtype, reg),
            _ => reg,
        }
    }

    /// An integer below a byte with zeros in the register's other bits.
    pub fn low_bits(&mut self, dtype: DType, reg: Reg) -> Reg {
        if !dtype.is_integer() || dtype.bits() >= 8 {
            return reg;
        }
        let mask = self.int(self.type_of(reg), (1 << dtype.bits()) - 1);
        self.op(ScalarOp::And, &[reg, mask])
    }

    /// An integer below a byte, in a signed register, with its highest bit in the
    /// register's other bits.
    pub fn sign_extended(&mut self, dtype: DType, reg: Reg) -> Reg {
        if !dtype.is_integer() || dtype.bits() >= 8 {
            return reg;
        }
        let shift = self.int(self.type_of(reg), 8 - dtype.bits() as i64);
        let up = self.op(ScalarOp::Shl, &[reg, shift]);
        self.op(ScalarOp::ShrArithmetic, &[up, shift])
    }
}
