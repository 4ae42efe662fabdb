//! Registers for the values of a chain, and its bytes: one pass, for there are no branches. A chain is a function, or a part
//! of one whose blocks are where that function says.
//!
//! Where no register is free, the value goes that is needed last. Constants and single elements are in memory, where
//! instructions read them; they get registers where an operand must be one, or steps side by side read them, and lose them
//! without being saved. In a loop, those that are read most stay in the registers that values leave. Source:
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5, 1966.

use std::collections::VecDeque;

use ferrax_compile::chain::Chain;
use ferrax_ir::{Result, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::together::most_live;
use super::{Class, Isa, Lowered, Micro, Shape, Source};
use crate::encode::{
    Alu, Assembler, Condition, Gpr, Length, Map, Masked, Mem, Opcode, Prefix, R8, R9, R10, R11, R12, R13,
    R14, R15, RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, Rm, Width, Xmm,
};

/// Registers that hold where blocks are; those after `SAVED` belong to the caller. Other blocks are looked up each time.
const POINTERS: [Gpr; 10] = [RDX, R8, R9, R10, R11, RBX, R12, R13, R14, R15];
const SAVED: usize = 5;

/// Registers that are left for operands which must be in one.
const FREE: usize = 2;

/// Bytes of a place on the stack: that of the largest register.
pub const SLOT: i32 = 64;

const LOAD: Opcode = Opcode::new(Prefix::None, Map::M0F, 0x10, false);
const STORE: Opcode = Opcode::new(Prefix::None, Map::M0F, 0x11, false);
const MOVE: Opcode = Opcode::new(Prefix::None, Map::M0F, 0x28, false);
const LOAD_MASK: Opcode = Opcode::new(Prefix::None, Map::M0F, 0x90, false);
const STORE_MASK: Opcode = Opcode::new(Prefix::None, Map::M0F, 0x91, false);

struct Assign<'a> {
    isa: Isa,
    classes: &'a [Class],
    out: Assembler,
    /// Where each source is needed from now on.
    uses: FxHashMap<Source, VecDeque<usize>>,
    /// What registers hold, by class: 32 of vectors at most, and 8 masks, the first of which is none.
    held: [Vec<Option<Source>>; 2],
    registers: FxHashMap<Source, u8>,
    slots: FxHashMap<Source, i32>,
    free_slots: Vec<i32>,
    /// Slots that the present instruction may still read.
    read_slots: Vec<i32>,
    /// Slots so far: single elements are in the first ones.
    used_slots: i32,
    /// Bytes from the stack's top to the first slot.
    stack: i32,
    /// Whether steps are gone through in a loop, for which a register counts.
    loops: bool,
    /// Registers that the present instruction uses.
    pinned: SmallVec<[(Class, u8); 4]>,
    /// Constants and single elements that stay in their registers in all steps of a loop.
    resident: SmallVec<[Source; 8]>,
    blocks: Vec<Block>,
}

/// Where a block begins: so many bytes beyond what a register, or a word in memory, points to; or the slot of a single
/// element.
#[derive(Clone, Copy, Debug)]
pub enum At {
    Block(Rm<Gpr>, i32),
    Uniform(i32),
}

/// A block, and how long its elements are.
struct Block {
    size: usize,
    at: At,
}

/// A chain as a part of a function.
pub struct Within<'a> {
    /// Where inputs and outputs are; single elements are in all lanes of their slots, the first ones.
    pub blocks: &'a [At],
    /// Lanes, a multiple of those of a step.
    pub count: usize,
    /// Bytes from the stack's top to the first slot.
    pub stack: i32,
}

/// Emits a chain as a part of a function, whose vector registers, `rax` and `rcx` it changes; the bytes of its slots.
pub(super) fn within(
    (lowered, chain): (&Lowered, &Chain),
    lanes: usize,
    within: &Within<'_>,
    out: &mut Assembler,
) -> Result<i32> {
    let mut assign = Assign::new(lowered, Isa::Avx2);
    let outputs = chain.outputs.iter().map(|&output| chain.body.type_of(output));
    let types = chain.inputs.iter().map(|input| input.0).chain(outputs);
    assign.blocks = types.zip(within.blocks).map(|(ty, &at)| Block { size: ty.size(), at }).collect();
    if assign.blocks.len() != chain.inputs.len() + chain.outputs.len() {
        return Err(internal_error!("{} places for the blocks of {chain:?}", within.blocks.len()));
    }
    let uniform = |block: &&Block| matches!(block.at, At::Uniform(_));
    assign.used_slots = assign.blocks.iter().filter(uniform).count() as i32;
    assign.stack = within.stack;
    assign.loops = within.count > lanes;
    std::mem::swap(&mut assign.out, out);
    let emitted = assign.steps(lowered, lanes, |out| {
        out.alu_int(Alu::Cmp, Width::W64, RAX, within.count as i32);
    });
    std::mem::swap(&mut assign.out, out);
    emitted.map(|()| SLOT * assign.used_slots)
}

pub(super) fn assign(lowered: &Lowered, chain: &Chain, isa: Isa, lanes: usize) -> Result<Vec<u8>> {
    let mut assign = Assign::new(lowered, isa);
    assign.place_blocks(chain);
    assign.function(lowered, lanes)
}
impl Block {
    fn is_in(&self, register: Gpr) -> bool {
        matches!(self.at, At::Block(Rm::Reg(pointer), _) if pointer == register)
    }
}

impl<'a> Assign<'a> {
    fn new(lowered: &'a Lowered, isa: Isa) -> Assign<'a> {
        let mut uses: FxHashMap<Source, VecDeque<usize>> = FxHashMap::default();
        for (number, micro) in lowered.micros.iter().enumerate() {
            for &arg in &micro.args {
                uses.entry(arg).or_default().push_back(number);
            }
        }
        let vectors = match isa {
            Isa::Avx2 => 16,
            Isa::Avx512 => 32,
        };
        Assign {
            isa,
            classes: &lowered.classes,
            out: Assembler::default(),
            uses,
            held: [vec![None; vectors], vec![None; 8]],
            registers: FxHashMap::default(),
            slots: FxHashMap::default(),
            free_slots: Vec::new(),
            read_slots: Vec::new(),
            used_slots: 0,
            stack: 0,
            loops: true,
            pinned: SmallVec::new(),
            resident: SmallVec::new(),
            blocks: Vec::new(),
        }
    }

    fn place_blocks(&mut self, chain: &Chain) {
        let outputs = chain.outputs.iter().map(|&output| (chain.body.type_of(output), false));
        let mut pointers = POINTERS.into_iter();
        for (number, (ty, uniform)) in chain.inputs.iter().copied().chain(outputs).enumerate() {
            let slot = self.used_slots;
            self.used_slots += i32::from(uniform);
            let table = Rm::Mem(Mem::Base(RDI, 8 * number as i32));
            let mut block = || pointers.next().map_or(table, Rm::Reg);
            let at = if uniform { At::Uniform(slot) } else { At::Block(block(), 0) };
            self.blocks.push(Block { size: ty.size(), at });
        }
    }

    fn function(mut self, lowered: &Lowered, lanes: usize) -> Result<Vec<u8>> {
        let saved: SmallVec<[Gpr; 5]> = POINTERS[SAVED..]
            .iter()
            .copied()
            .filter(|&register| self.blocks.iter().any(|block| block.is_in(register)))
            .collect();
        self.out.push(RBP);
        self.out.mov(Width::W64, RBP, RSP);
        saved.iter().for_each(|&register| self.out.push(register));
        let frame = self.out.subtract_later(RSP);
        self.out.align(RSP, SLOT);
        self.point();
        self.steps(lowered, lanes, |out| out.alu(Alu::Cmp, Width::W64, RAX, RSI))?;
        self.out.vzeroupper();
        self.out.lea(RSP, Mem::Base(RBP, -8 * saved.len() as i32));
        saved.iter().rev().for_each(|&register| self.out.pop(register));
        self.out.pop(RBP);
        self.out.ret();
        self.out.set_later(frame, SLOT * self.used_slots);
        self.out.finish()
    }

    /// All steps; `compare` asks whether those so far are all.
    fn steps(&mut self, lowered: &Lowered, lanes: usize, compare: impl Fn(&mut Assembler)) -> Result<()> {
        let begin = self.out.label();
        if self.loops {
            self.reside(lowered)?;
            self.out.mov_int(RAX, 0);
            self.out.bind(begin);
        }
        for (number, micro) in lowered.micros.iter().enumerate() {
            self.micro(number, micro)?;
        }
        if self.loops {
            self.out.alu_int(Alu::Add, Width::W64, RAX, lanes as i32);
            compare(&mut self.out);
            self.out.jump_if(Condition::Below, begin);
        }
        Ok(())
    }

    /// Puts the constants and single elements that are read most into the registers that values leave.
    fn reside(&mut self, lowered: &Lowered) -> Result<()> {
        let mut read: Vec<(usize, usize, Source)> = Vec::new();
        for (&source, uses) in &self.uses {
            if let (false, Some(&first)) = (matches!(source, Source::Value(_)), uses.front()) {
                read.push((usize::MAX - uses.len(), first, source));
            }
        }
        let left = self.held[Class::Vector as usize].len() - FREE;
        read.sort_unstable_by_key(|&(seldom, first, _)| (seldom, first));
        read.truncate(left.saturating_sub(most_live(lowered, Class::Vector)));
        for (_, _, source) in read {
            self.register(source)?;
            self.pinned.clear();
            self.resident.push(source);
        }
        Ok(())
    }

    /// Loads the pointers to blocks, and puts single elements into all lanes of their slots.
    fn point(&mut self) {
        let length = self.isa.length();
        for number in 0..self.blocks.len() {
            let from = Mem::Base(RDI, 8 * number as i32);
            let Block { size, at } = self.blocks[number];
            match at {
                At::Block(Rm::Reg(register), _) => self.out.mov(Width::W64, register, from),
                At::Block(Rm::Mem(_), _) => {}
                At::Uniform(slot) => {
                    self.out.mov(Width::W64, RCX, from);
                    self.out.broadcast(length, size, Xmm(0), Mem::Base(RCX, 0));
                    let to = Rm::Mem(self.slot_at(slot));
                    self.out.wide(length, STORE, Masked::ALL, (0, 0, to), None);
                }
            }
        }
    }

    fn slot_at(&self, slot: i32) -> Mem {
        Mem::Base(RSP, self.stack + SLOT * slot)
    }

    fn class(&self, source: Source) -> Class {
        match source {
            Source::Value(value) => self.classes[value as usize],
            _ => Class::Vector,
        }
    }

    /// Whether a source is not needed after an instruction.
    fn dies(&self, source: Source, number: usize) -> bool {
        !self.resident.contains(&source)
            && self.uses.get(&source).and_then(VecDeque::back).is_none_or(|&last| last <= number)
    }

    fn next_use(&self, source: Source) -> usize {
        self.uses.get(&source).and_then(|uses| uses.front().copied()).unwrap_or(usize::MAX)
    }

    fn slot(&mut self) -> i32 {
        self.free_slots.pop().unwrap_or_else(|| {
            self.used_slots += 1;
            self.used_slots - 1
        })
    }

    /// A register that nothing is in.
    fn free(&mut self, class: Class) -> Result<u8> {
        let first = usize::from(class == Class::Mask);
        let held = &self.held[class as usize];
        if let Some(free) = (first..held.len())
            .find(|&number| held[number].is_none() && !self.pinned.contains(&(class, number as u8)))
        {
            return Ok(free as u8);
        }
        let victim = (first..held.len())
            .filter(|&number| !self.pinned.contains(&(class, number as u8)))
            .filter_map(|number| held[number].map(|source| (self.next_use(source), number, source)))
            .filter(|(_, _, source)| !self.resident.contains(source))
            .max_by_key(|&(next, number, _)| (next, number));
        let (next, number, source) = victim.ok_or_else(|| internal_error!("no vector register is left"))?;
        if matches!(source, Source::Value(_)) && next != usize::MAX && !self.slots.contains_key(&source) {
            let slot = self.slot();
            self.slots.insert(source, slot);
            self.transfer(class, number as u8, slot, true);
        }
        self.registers.remove(&source);
        self.held[class as usize][number] = None;
        Ok(number as u8)
    }

    /// Between a register and a slot.
    fn transfer(&mut self, class: Class, register: u8, slot: i32, put: bool) {
        let (length, load, store) = match class {
            Class::Vector => (self.isa.length(), LOAD, STORE),
            Class::Mask => (Length::Vex128, LOAD_MASK, STORE_MASK),
        };
        let opcode = if put { store } else { load };
        let at = Rm::Mem(self.slot_at(slot));
        self.out.wide(length, opcode, Masked::ALL, (register, 0, at), None);
    }

    fn hold(&mut self, source: Source, class: Class, register: u8) {
        self.held[class as usize][register as usize] = Some(source);
        self.registers.insert(source, register);
        self.pinned.push((class, register));
    }

    /// Where a source is, if in memory.
    fn memory(&self, source: Source) -> Result<Mem> {
        match source {
            Source::Constant(bits) => Ok(Mem::Vector(bits)),
            Source::Uniform(block) => match self.blocks.get(block as usize) {
                Some(Block { at: At::Uniform(slot), .. }) => Ok(self.slot_at(*slot)),
                _ => Err(internal_error!("input {block} is no single element")),
            },
            Source::Value(value) => {
                let slot = self.slots.get(&source);
                let slot = slot.ok_or_else(|| internal_error!("vector value {value} is nowhere"))?;
                Ok(self.slot_at(*slot))
            }
        }
    }

    /// A source in a register.
    fn register(&mut self, source: Source) -> Result<u8> {
        let class = self.class(source);
        if let Some(&register) = self.registers.get(&source) {
            self.pinned.push((class, register));
            return Ok(register);
        }
        let from = self.memory(source)?;
        let register = self.free(class)?;
        match class {
            Class::Mask => self.transfer(class, register, self.slots[&source], false),
            Class::Vector => {
                self.out.wide(self.isa.length(), LOAD, Masked::ALL, (register, 0, Rm::Mem(from)), None);
            }
        }
        self.hold(source, class, register);
        Ok(register)
    }

    /// Whether what is in memory is read there by the same instruction of the next step side by side, too, and registers
    /// are left.
    fn shares(&self, source: Source) -> bool {
        let next = self.uses.get(&source).and_then(|uses| Some(uses.get(1)? - uses.front()?));
        let held = &self.held[Class::Vector as usize];
        !matches!(source, Source::Value(_))
            && next == Some(1)
            && held.iter().filter(|held| held.is_none()).count() >= FREE
    }

    /// A source as an operand that may be in memory.
    fn operand(&mut self, source: Source) -> Result<Rm<u8>> {
        if self.shares(source) || self.registers.contains_key(&source) || self.class(source) == Class::Mask {
            return self.register(source).map(Rm::Reg);
        }
        self.memory(source).map(Rm::Mem)
    }

    /// Lets go of what an instruction needs last; what it reads from memory stays there until it is done.
    fn release(&mut self, number: usize, args: &[Source]) {
        for &arg in args {
            if let Some(uses) = self.uses.get_mut(&arg) {
                while uses.front().is_some_and(|&next| next <= number) {
                    uses.pop_front();
                }
                if uses.is_empty() && !self.resident.contains(&arg) {
                    let class = self.class(arg);
                    if let Some(register) = self.registers.remove(&arg) {
                        self.held[class as usize][register as usize] = None;
                    }
                    if let Some(slot) = self.slots.remove(&arg) {
                        self.read_slots.push(slot);
                    }
                }
            }
        }
        self.pinned.clear();
    }

    /// The register of a result.
    fn result(&mut self, to: u32) -> Result<u8> {
        let source = Source::Value(to);
        let class = self.class(source);
        let register = self.free(class)?;
        if self.next_use(source) != usize::MAX {
            self.hold(source, class, register);
        }
        Ok(register)
    }

    fn block(&mut self, block: u32, offset: i32) -> Result<Rm<u8>> {
        let Block { size, at } = self.blocks[block as usize];
        let At::Block(pointer, first) = at else {
            return Err(internal_error!("block {block} is a single element"));
        };
        let register = match pointer {
            Rm::Reg(register) => register,
            Rm::Mem(_) => {
                self.out.mov(Width::W64, RCX, pointer);
                RCX
            }
        };
        Ok(Rm::Mem(if self.loops {
            Mem::Indexed(register, RAX, size as u8, first + offset)
        } else {
            Mem::Base(register, first + offset)
        }))
    }

    fn micro(&mut self, number: usize, micro: &Micro) -> Result<()> {
        self.pinned.clear();
        self.free_slots.append(&mut self.read_slots);
        let Micro { length, opcode, byte, ref args, .. } = *micro;
        let to = || micro.to.ok_or_else(|| internal_error!("{micro:?} has no result"));
        match micro.shape {
            Shape::Load { block, offset } => {
                let register = self.result(to()?)?;
                let from = self.block(block, offset)?;
                self.out.wide(length, opcode, Masked::ALL, (register, 0, from), byte);
            }
            Shape::Store { block, offset } => {
                let register = self.register(args[0])?;
                let at = self.block(block, offset)?;
                self.out.wide(length, opcode, Masked::ALL, (register, 0, at), byte);
                self.release(number, args);
            }
            Shape::Extract => {
                let from = self.register(args[0])?;
                self.release(number, args);
                let register = self.result(to()?)?;
                self.out.wide(length, opcode, Masked::ALL, (from, 0, Rm::Reg(register)), byte);
            }
            Shape::Digit(digit) => {
                let from = self.register(args[0])?;
                self.release(number, args);
                let register = self.result(to()?)?;
                self.out.wide(length, opcode, Masked::ALL, (digit, register, Rm::Reg(from)), byte);
            }
            Shape::Fused => self.fused(number, micro, to()?)?,
            Shape::Plain | Shape::Registers | Shape::Blend | Shape::Masked => {
                let (mask, rest) = match micro.shape {
                    Shape::Blend | Shape::Masked => (Some(self.register(args[0])?), &args[1..]),
                    _ => (None, &args[..]),
                };
                let Some((&last, first)) = rest.split_last() else {
                    return Err(internal_error!("{micro:?} has no operands"));
                };
                let second = match first {
                    [] => 0,
                    [second] => self.register(*second)?,
                    _ => return Err(internal_error!("{micro:?} has more operands than fit")),
                };
                let last = match micro.shape {
                    Shape::Registers => Rm::Reg(self.register(last)?),
                    _ => self.operand(last)?,
                };
                self.release(number, args);
                let register = self.result(to()?)?;
                let (masked, byte) = match (micro.shape, mask) {
                    (Shape::Masked, Some(mask)) => (Masked { mask, zeroed: first.is_empty() }, byte),
                    (_, Some(mask)) => (Masked::ALL, Some(mask << 4)),
                    _ => (Masked::ALL, byte),
                };
                self.out.wide(length, opcode, masked, (register, second, last), byte);
            }
        }
        Ok(())
    }

    /// `to = a * b + c` over an operand that is needed no more, or over a copy of a factor. The form that overwrites a
    /// factor is the micro's; that which overwrites what is added is sixteen further.
    fn fused(&mut self, number: usize, micro: &Micro, to: u32) -> Result<()> {
        let Micro { length, opcode, ref args, .. } = *micro;
        let &[a, b, c] = &args[..] else { return Err(internal_error!("{micro:?} takes three operands")) };
        let over = |assign: &Self, source: Source| {
            assign.registers.get(&source).copied().filter(|_| assign.dies(source, number))
        };
        let adds = Opcode { code: opcode.code + 0x10, ..opcode };
        if let Some(register) = over(self, c) {
            self.pinned.push((Class::Vector, register));
            // The factor that is in memory, if one is, comes last.
            let (a, b) = if self.registers.contains_key(&a) { (a, b) } else { (b, a) };
            let a = self.register(a)?;
            let b = self.operand(b)?;
            return self.overwritten(number, micro, (to, register), (length, adds), (a, b));
        }
        for (over_factor, other) in [(a, b), (b, a)] {
            if let Some(register) = over(self, over_factor) {
                self.pinned.push((Class::Vector, register));
                let other = self.register(other)?;
                let c = self.operand(c)?;
                return self.overwritten(number, micro, (to, register), (length, opcode), (other, c));
            }
        }
        let (copied, other) = if matches!(a, Source::Value(_)) { (b, a) } else { (a, b) };
        let other = self.register(other)?;
        let from = self.operand(copied)?;
        let c = self.operand(c)?;
        let register = self.free(Class::Vector)?;
        self.out.wide(self.isa.length(), MOVE, Masked::ALL, (register, 0, from), None);
        self.overwritten(number, micro, (to, register), (length, opcode), (other, c))
    }

    /// Emits an instruction whose result is over one of its operands.
    fn overwritten(
        &mut self,
        number: usize,
        micro: &Micro,
        (to, register): (u32, u8),
        (length, opcode): (Length, Opcode),
        (second, last): (u8, Rm<u8>),
    ) -> Result<()> {
        self.out.wide(length, opcode, Masked::ALL, (register, second, last), None);
        self.release(number, &micro.args);
        let source = Source::Value(to);
        if self.next_use(source) != usize::MAX {
            self.hold(source, Class::Vector, register);
        }
        Ok(())
    }
}
