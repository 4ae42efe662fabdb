//! Operations of a chain as instructions of vector registers.
//!
//! Elements of eight bytes are two values, the first lanes and the last ones. How truth is held, `masks` says.

use ferrax_compile::chain::Chain;
use ferrax_ir::scalar::{Instruction, Reg, ScalarOp, ScalarType};
use ferrax_ir::{Result, internal_error};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::forms::{Parts, Truth, float, int, op, second, third};
use super::{Class, Isa, Lowered, Micro, Shape, Source};
use crate::encode::floats::{
    ADD, AND, DIV, LESS_EQUAL, MAX, MIN, MUL, OR, ORDERED, SQRT, SUB, UNORDERED, XOR,
};
use crate::encode::{Length, Map, Opcode, Prefix};

pub(super) struct Lower<'a> {
    pub isa: Isa,
    chain: &'a Chain,
    out: Lowered,
    /// Of each register of the body: its values, and where it is truth, its forms.
    parts: Vec<Parts>,
    pub truths: FxHashMap<u32, Truth>,
}

pub(super) fn lower(chain: &Chain, isa: Isa) -> Result<Lowered> {
    let instructions = chain.body.instructions();
    let mut needed = vec![false; instructions.len()];
    chain.outputs.iter().for_each(|output| needed[output.0 as usize] = true);
    for (number, instruction) in instructions.iter().enumerate().rev() {
        if needed[number] {
            reads(chain, instruction).into_iter().for_each(|reg| needed[reg.0 as usize] = true);
        }
    }
    let mut lower = Lower {
        isa,
        chain,
        out: Lowered::default(),
        parts: vec![Parts::new(); instructions.len()],
        truths: FxHashMap::default(),
    };
    for (number, instruction) in instructions.iter().enumerate().filter(|(number, _)| needed[*number]) {
        let reg = Reg(number as u32);
        match instruction.op {
            // Loaded where it is needed first.
            ScalarOp::Input { .. } => {}
            ScalarOp::Const { bits } => lower.parts[number] = lower.constant(instruction.ty, bits),
            op => {
                reads(chain, instruction).into_iter().for_each(|arg| lower.load(arg));
                match chosen(chain, instruction) {
                    Some((code, [a, b])) => lower.parts[number] = lower.chosen(code, instruction.ty, a, b),
                    None => lower.operation(reg, op, instruction.ty, &instruction.args)?,
                }
            }
        }
        for (output, _) in chain.outputs.iter().enumerate().filter(|(_, output)| **output == reg) {
            lower.store(reg, (chain.inputs.len() + output) as u32)?;
        }
    }
    Ok(lower.out)
}

/// A factor or what is added to a product, and whether it is negated: there are instructions for all signs.
fn signed(chain: &Chain, arg: Reg) -> (Reg, bool) {
    let instruction = &chain.body.instructions()[arg.0 as usize];
    if instruction.op == ScalarOp::Neg { (instruction.args[0], true) } else { (arg, false) }
}

/// A choice by a comparison of what is chosen from, as one instruction: `MIN` and `MAX` give their first operand where it is
/// less or greater, and else the second one.
fn chosen(chain: &Chain, instruction: &Instruction) -> Option<(u8, [Reg; 2])> {
    let &[holds, then, otherwise] = &instruction.args[..] else { return None };
    let compared = &chain.body.instructions()[holds.0 as usize];
    if instruction.op != ScalarOp::Select || compared.op != ScalarOp::Lt || !instruction.ty.is_float() {
        return None;
    }
    match compared.args[..] {
        [a, b] if [a, b] == [then, otherwise] => Some((MIN, [a, b])),
        [a, b] if [b, a] == [then, otherwise] => Some((MAX, [b, a])),
        _ => None,
    }
}

/// What an operation reads.
fn reads(chain: &Chain, instruction: &Instruction) -> SmallVec<[Reg; 3]> {
    match chosen(chain, instruction) {
        Some((_, of)) => of.into_iter().collect(),
        None if instruction.op == ScalarOp::Fma => {
            instruction.args.iter().map(|&arg| signed(chain, arg).0).collect()
        }
        None => instruction.args.clone(),
    }
}

/// A constant's bits, as often as eight bytes hold them.
fn pattern(ty: ScalarType, bits: u64) -> u64 {
    if ty.size() == 8 { bits } else { (bits & 0xffff_ffff) << 32 | (bits & 0xffff_ffff) }
}

impl Lower<'_> {
    fn value(&mut self, class: Class) -> u32 {
        self.out.classes.push(class);
        self.out.classes.len() as u32 - 1
    }

    pub fn micro(
        &mut self,
        shape: Shape,
        (length, opcode, byte): (Length, Opcode, Option<u8>),
        class: Class,
        args: &[Source],
    ) -> Source {
        let to = self.value(class);
        let args = SmallVec::from_slice(args);
        self.out.micros.push(Micro { shape, length, opcode, byte, to: Some(to), args });
        Source::Value(to)
    }

    /// An instruction of whole registers.
    pub fn plain(&mut self, opcode: Opcode, args: &[Source]) -> Source {
        self.micro(Shape::Plain, (self.isa.length(), opcode, None), Class::Vector, args)
    }

    pub fn with_byte(&mut self, opcode: Opcode, byte: u8, args: &[Source]) -> Source {
        self.micro(Shape::Plain, (self.isa.length(), opcode, Some(byte)), Class::Vector, args)
    }

    pub fn store_value(&mut self, (length, opcode): (Length, Opcode), block: u32, offset: i32, from: Source) {
        let shape = Shape::Store { block, offset };
        self.out.micros.push(Micro { shape, length, opcode, byte: None, to: None, args: smallvec![from] });
    }

    pub fn type_of(&self, reg: Reg) -> ScalarType {
        self.chain.body.type_of(reg)
    }

    pub fn parts(&self, reg: Reg) -> Parts {
        self.parts[reg.0 as usize].clone()
    }

    /// Bytes of a register, as far as one value is from the next.
    fn offset(&self, part: usize) -> i32 {
        (part * self.isa.bytes()) as i32
    }

    fn constant(&mut self, ty: ScalarType, bits: u64) -> Parts {
        if ty == ScalarType::Bool {
            // All bits or none, of either width.
            let all = if bits & 1 == 1 { u64::MAX } else { 0 };
            return smallvec![Source::Constant(all)];
        }
        let count = if ty.size() == 8 { 2 } else { 1 };
        smallvec![Source::Constant(pattern(ty, bits)); count]
    }

    /// Makes sure that an input is in registers.
    fn load(&mut self, reg: Reg) {
        let ScalarOp::Input { operand, .. } = self.chain.body.instructions()[reg.0 as usize].op else {
            return;
        };
        let (ty, uniform) = self.chain.inputs[operand as usize];
        if ty == ScalarType::Bool {
            if !self.truths.contains_key(&reg.0) {
                let truth = self.loaded_truth(operand);
                self.truths.insert(reg.0, truth);
            }
            return;
        }
        if !self.parts[reg.0 as usize].is_empty() {
            return;
        }
        let count = if ty.size() == 8 { 2 } else { 1 };
        let parts = (0..count).map(|part| {
            if uniform {
                return Source::Uniform(operand);
            }
            let shape = Shape::Load { block: operand, offset: self.offset(part) };
            let load = (self.isa.length(), op(Prefix::None, Map::M0F, 0x10, false), None);
            self.micro(shape, load, Class::Vector, &[])
        });
        self.parts[reg.0 as usize] = parts.collect();
    }

    fn store(&mut self, reg: Reg, block: u32) -> Result<()> {
        self.load(reg);
        if self.type_of(reg) == ScalarType::Bool {
            return self.store_truth(reg, block);
        }
        for (part, from) in self.parts(reg).into_iter().enumerate() {
            let opcode = op(Prefix::None, Map::M0F, 0x11, false);
            self.store_value((self.isa.length(), opcode), block, self.offset(part), from);
        }
        Ok(())
    }

    /// The same instruction for each part.
    fn each(&mut self, opcode: Opcode, byte: Option<u8>, args: &[Parts]) -> Parts {
        (0..args[0].len())
            .map(|part| {
                let args: SmallVec<[Source; 3]> = args.iter().map(|parts| parts[part]).collect();
                self.micro(Shape::Plain, (self.isa.length(), opcode, byte), Class::Vector, &args)
            })
            .collect()
    }

    fn same(&self, parts: &Parts, bits: u64) -> Parts {
        smallvec![Source::Constant(bits); parts.len()]
    }

    fn operation(&mut self, to: Reg, op: ScalarOp, ty: ScalarType, args: &[Reg]) -> Result<()> {
        let from = self.type_of(args[if op == ScalarOp::Select { 1 } else { 0 }]);
        if ty == ScalarType::Bool {
            let truth = self.truth(op, from, args)?;
            self.truths.insert(to.0, truth);
            return Ok(());
        }
        let of: SmallVec<[Parts; 3]> = args.iter().map(|&arg| self.parts(arg)).collect();
        let parts = match op {
            ScalarOp::Select => Some(self.select(args[0], &of[1], &of[2], ty)?),
            ScalarOp::Bitcast => Some(of[0].clone()),
            ScalarOp::Convert => Some(self.convert(ty, from, args[0], &of[0])?),
            ScalarOp::Fma => Some(self.fused(ty, args)),
            _ if ty.is_float() => self.of_floats(op, ty, &of),
            _ => self.of_integers(op, ty, &of),
        };
        let parts = parts.ok_or_else(|| internal_error!("{op:?} of {ty:?} has no vector code"))?;
        self.parts[to.0 as usize] = parts;
        Ok(())
    }

    fn of_floats(&mut self, operation: ScalarOp, ty: ScalarType, of: &[Parts]) -> Option<Parts> {
        let wide = ty == ScalarType::F64;
        let sign = pattern(ty, if wide { 1 << 63 } else { 1 << 31 });
        let binary = match operation {
            ScalarOp::Add => Some(ADD),
            ScalarOp::Mul => Some(MUL),
            ScalarOp::Sub => Some(SUB),
            ScalarOp::Div => Some(DIV),
            ScalarOp::Sqrt => Some(SQRT),
            _ => None,
        };
        if let Some(code) = binary {
            let commutes = matches!(operation, ScalarOp::Add | ScalarOp::Mul);
            return Some(match of {
                // A constant can be read where it lies only as the last operand.
                [a, b] if commutes && matches!(a[0], Source::Constant(_)) => {
                    self.each(float(code, ty), None, &[b.clone(), a.clone()])
                }
                of => self.each(float(code, ty), None, of),
            });
        }
        let rounding = match operation {
            ScalarOp::RoundEven => Some(8),
            ScalarOp::Floor => Some(9),
            ScalarOp::Ceil => Some(10),
            ScalarOp::Trunc => Some(11),
            _ => None,
        };
        if let Some(mode) = rounding {
            return Some(self.each(third(if wide { 0x09 } else { 0x08 }, wide), Some(mode), of));
        }
        match operation {
            ScalarOp::Neg => Some(self.each(float(XOR, ty), None, &[of[0].clone(), self.same(&of[0], sign)])),
            ScalarOp::Abs => {
                Some(self.each(float(AND, ty), None, &[of[0].clone(), self.same(&of[0], !sign)]))
            }
            ScalarOp::Min | ScalarOp::Max => Some(
                (0..of[0].len())
                    .map(|part| self.extreme(operation == ScalarOp::Min, ty, of[0][part], of[1][part]))
                    .collect(),
            ),
            _ => None,
        }
    }

    /// `a * b + c` and its forms of other signs, of which those that overwrite their first factor are named.
    fn fused(&mut self, ty: ScalarType, args: &[Reg]) -> Parts {
        let args: SmallVec<[(Reg, bool); 3]> = args.iter().map(|&arg| signed(self.chain, arg)).collect();
        let code = match (args[0].1 != args[1].1, args[2].1) {
            (false, false) => 0xa8,
            (false, true) => 0xaa,
            (true, false) => 0xac,
            (true, true) => 0xae,
        };
        let of: SmallVec<[Parts; 3]> = args.iter().map(|&(arg, _)| self.parts(arg)).collect();
        let form = (self.isa.length(), second(code, ty == ScalarType::F64), None);
        let fused = |part: usize| {
            let args = [of[0][part], of[1][part], of[2][part]];
            self.micro(Shape::Fused, form, Class::Vector, &args)
        };
        (0..of[0].len()).map(fused).collect()
    }

    fn chosen(&mut self, code: u8, ty: ScalarType, a: Reg, b: Reg) -> Parts {
        let of = [self.parts(a), self.parts(b)];
        self.each(float(code, ty), None, &of)
    }

    /// The lesser of two floats, or the greater. Each of both orders gives its second operand where the two are equal or have
    /// no order: the bits of equal numbers differ in the sign of zero alone. NaN wins, the first one of two.
    fn extreme(&mut self, least: bool, ty: ScalarType, a: Source, b: Source) -> Source {
        let bound = match (a, b) {
            (Source::Constant(bits), x) | (x, Source::Constant(bits)) => self.bounded(least, ty, bits, x),
            _ => None,
        };
        if let Some(bound) = bound {
            return bound;
        }
        let (code, zeros) = if least { (MIN, OR) } else { (MAX, AND) };
        let first = self.plain(float(code, ty), &[a, b]);
        let other = self.plain(float(code, ty), &[b, a]);
        let both = self.plain(float(zeros, ty), &[first, other]);
        let ordered = self.compare_floats(ORDERED, ty, a, b);
        let chosen = self.blend(ty, ordered, both, first);
        let is_nan = self.compare_floats(UNORDERED, ty, a, a);
        self.blend(ty, is_nan, a, chosen)
    }

    /// The lesser of a float and a number, or the greater: what is equal to the number, or is none, stays as it is. Of
    /// zeros the greater is the positive one, which -0 becomes by adding it.
    fn bounded(&mut self, least: bool, ty: ScalarType, bits: u64, x: Source) -> Option<Source> {
        let wide = ty == ScalarType::F64;
        let number = if wide { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) };
        let stays = number != 0.0 || number.is_sign_negative() != least;
        if number.is_nan() || (least && !stays) {
            return None;
        }
        let bound = Source::Constant(bits);
        let chosen = self.plain(float(if least { MIN } else { MAX }, ty), &[bound, x]);
        Some(if stays { chosen } else { self.plain(float(ADD, ty), &[chosen, bound]) })
    }

    fn of_integers(&mut self, operation: ScalarOp, ty: ScalarType, of: &[Parts]) -> Option<Parts> {
        let wide = ty.size() == 8;
        let signed = ty.is_signed();
        let ones = u64::MAX;
        if let Some(shifted) = self.shifted(operation, wide, of) {
            return Some(shifted);
        }
        let opcode = match operation {
            ScalarOp::Add => int(if wide { 0xd4 } else { 0xfe }, wide),
            ScalarOp::Sub => int(if wide { 0xfb } else { 0xfa }, wide),
            ScalarOp::Mul => second(0x40, false),
            ScalarOp::And => int(0xdb, wide),
            ScalarOp::Or => int(0xeb, wide),
            ScalarOp::Xor => int(0xef, wide),
            ScalarOp::Shl => second(0x47, wide),
            ScalarOp::ShrLogical => second(0x45, wide),
            ScalarOp::ShrArithmetic => second(0x46, false),
            ScalarOp::Min => second(if signed { 0x39 } else { 0x3b }, false),
            ScalarOp::Max => second(if signed { 0x3d } else { 0x3f }, false),
            ScalarOp::Not => {
                return Some(self.each(int(0xef, wide), None, &[of[0].clone(), self.same(&of[0], ones)]));
            }
            ScalarOp::Neg => {
                let subtract = int(if wide { 0xfb } else { 0xfa }, wide);
                return Some(self.each(subtract, None, &[self.same(&of[0], 0), of[0].clone()]));
            }
            ScalarOp::Abs if signed => second(0x1e, false),
            ScalarOp::Abs => return Some(of[0].clone()),
            _ => return None,
        };
        Some(self.each(opcode, None, of))
    }

    /// A shift of all lanes by one number that a byte holds.
    fn shifted(&mut self, operation: ScalarOp, wide: bool, of: &[Parts]) -> Option<Parts> {
        let digit = match operation {
            ScalarOp::ShrLogical => 2,
            ScalarOp::ShrArithmetic if !wide => 4,
            ScalarOp::Shl => 6,
            _ => return None,
        };
        let Source::Constant(bits) = of[1][0] else { return None };
        let by = u8::try_from(if wide { bits } else { bits & 0xffff_ffff }).ok()?;
        let shift = (self.isa.length(), int(if wide { 0x73 } else { 0x72 }, wide), Some(by));
        let parts = of[0].iter();
        Some(parts.map(|&part| self.micro(Shape::Digit(digit), shift, Class::Vector, &[part])).collect())
    }

    /// The first lanes of a register and its last ones, each half a register.
    pub fn upper(&mut self, from: Source) -> Source {
        let extract = match self.isa {
            Isa::Avx2 => (Length::Vex256, third(0x19, false), Some(1)),
            Isa::Avx512 => (Length::Evex512, third(0x1b, true), Some(1)),
        };
        self.micro(Shape::Extract, extract, Class::Vector, &[from])
    }

    /// One register of the low halves of two.
    pub fn joined(&mut self, low: Source, high: Source) -> Source {
        let insert = match self.isa {
            Isa::Avx2 => third(0x18, false),
            Isa::Avx512 => third(0x1a, true),
        };
        self.micro(Shape::Registers, (self.isa.length(), insert, Some(1)), Class::Vector, &[low, high])
    }

    /// The low words of elements of eight bytes.
    fn narrowed(&mut self, parts: &Parts) -> Source {
        match self.isa {
            Isa::Avx2 => {
                let words =
                    self.with_byte(op(Prefix::None, Map::M0F, 0xc6, false), 0x88, &[parts[0], parts[1]]);
                self.with_byte(third(0x00, true), 0xd8, &[words])
            }
            Isa::Avx512 => {
                let narrow = op(Prefix::F3, Map::M0F38, 0x35, false);
                let halves: SmallVec<[Source; 2]> = parts
                    .iter()
                    .map(|&part| {
                        self.micro(Shape::Extract, (Length::Evex512, narrow, None), Class::Vector, &[part])
                    })
                    .collect();
                self.joined(halves[0], halves[1])
            }
        }
    }

    /// Two registers of one: an instruction that makes eight bytes of four.
    fn widened(&mut self, opcode: Opcode, from: Source) -> Parts {
        let upper = self.upper(from);
        [from, upper]
            .into_iter()
            .map(|half| {
                self.micro(Shape::Registers, (self.isa.length(), opcode, None), Class::Vector, &[half])
            })
            .collect()
    }

    fn convert(&mut self, to: ScalarType, from: ScalarType, arg: Reg, of: &Parts) -> Result<Parts> {
        use ScalarType::{Bool, F32, F64, I32, U32};
        Ok(match (to, from) {
            (_, Bool) => {
                let one = match to {
                    F32 => u64::from(1f32.to_bits()),
                    F64 => 1f64.to_bits(),
                    _ => 1,
                };
                let count = if to.size() == 8 { 2 } else { 1 };
                let one: Parts = smallvec![Source::Constant(pattern(to, one)); count];
                let zero: Parts = smallvec![Source::Constant(0); count];
                self.select(arg, &one, &zero, to)?
            }
            (F64, F32) => self.widened(op(Prefix::None, Map::M0F, 0x5a, false), of[0]),
            (F64, I32) => self.widened(op(Prefix::F3, Map::M0F, 0xe6, false), of[0]),
            (F32, I32) => self.each(op(Prefix::None, Map::M0F, 0x5b, false), None, std::slice::from_ref(of)),
            (F32, F64) => {
                let halves: SmallVec<[Source; 2]> = of
                    .iter()
                    .map(|&part| {
                        let narrow = (self.isa.length(), op(Prefix::P66, Map::M0F, 0x5a, true), None);
                        self.micro(Shape::Registers, narrow, Class::Vector, &[part])
                    })
                    .collect();
                smallvec![self.joined(halves[0], halves[1])]
            }
            (I32, F32) => {
                // What is too large, and NaN, becomes the least integer.
                let converted = self.plain(op(Prefix::F3, Map::M0F, 0x5b, false), &[of[0]]);
                let limit = Source::Constant(pattern(F32, u64::from(2_147_483_648f32.to_bits())));
                let large = self.compare_floats(LESS_EQUAL, F32, limit, of[0]);
                let most = Source::Constant(pattern(I32, i32::MAX as u64));
                let saturated = self.blend(F32, large, most, converted);
                let is_nan = self.compare_floats(UNORDERED, F32, of[0], of[0]);
                smallvec![self.blend(F32, is_nan, Source::Constant(0), saturated)]
            }
            (to, from) if to.size() == from.size() => of.clone(),
            (to, I32) if to.size() == 8 => self.widened(second(0x25, false), of[0]),
            (to, U32) if to.size() == 8 => self.widened(second(0x35, false), of[0]),
            _ => smallvec![self.narrowed(of)],
        })
    }

    fn select(&mut self, holds: Reg, then: &Parts, otherwise: &Parts, ty: ScalarType) -> Result<Parts> {
        let wide = ty.size() == 8;
        let masks = self.masks(holds, wide)?;
        let ty = if wide { ScalarType::F64 } else { ScalarType::F32 };
        Ok((0..then.len()).map(|part| self.blend(ty, masks[part], then[part], otherwise[part])).collect())
    }
}
