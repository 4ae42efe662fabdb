//! Instructions for native programs.
//!
//! Each operation reads its operands where they are and leaves its result in the result's place, over which an operand may
//! lie that is needed no more: operations of several steps work in registers of their own. Integers below 64 bits are kept
//! with their sign, or with zeros, in 32 bits, and zeros above. What has no short form is called: with one element of the
//! block function that the vector VM has for it.

mod choices;
mod conversions;
mod floats;
mod integers;
mod lanes;

use ferrax_compile::native::{Address, Code, Id, Native};
use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_ir::{Result, internal_error};

use crate::allocate::{Allocation, FLOATS, INTEGERS, KEPT, Lifetime, Place, Uses, allocate};
use crate::encode::floats as codes;
use crate::encode::{
    Alu, Assembler, Condition, Gpr, Label, Map, Mem, Opcode, Prefix, R8, R15, RAX, RBP, RCX, RDI, RDX, RSI,
    RSP, Rm, Width, Xmm,
};

/// What code calls. All numbers are addresses of functions with the System V calling convention.
pub trait Runtime {
    /// `extern fn() -> u32`: nonzero if the function is to stop. It is asked every so many steps of loops.
    fn stops(&self) -> u64;

    /// `extern fn(operation: u64, result: *mut u8, a: *const u8, b: *const u8, c: *const u8)`: an operation of one element.
    fn one(&self) -> u64;

    /// What `one` takes for an operation: its result's type and its first argument's (of a choice, the second's) as
    /// block functions ask.
    fn operation(&self, op: ScalarOp, result: ScalarType, argument: ScalarType) -> Result<u64>;
}

/// Steps of all loops between two questions whether to stop.
const STEPS: u64 = 1 << 14;

/// Registers of single operations.
const X0: Xmm = Xmm(12);
const X1: Xmm = Xmm(13);
const X2: Xmm = Xmm(14);
const X3: Xmm = Xmm(15);

/// Bytes for the operands of a call, and for registers that it changes.
const CALL_BYTES: i32 = 32;
const SAVED_BYTES: i32 = 8 * (INTEGERS.len() - KEPT + FLOATS) as i32;

/// The function `extern fn(table: *const *mut u8) -> u32` of a program, which gives zero, or one if it was stopped.
/// Errors: the program is not sound, or has an operation that nothing computes.
pub fn emit(native: &Native, pointers: usize, runtime: &dyn Runtime) -> Result<Vec<u8>> {
    native.verify()?;
    let uses = Uses { native, deferred: deferred(native), pointers };
    let allocation = allocate(&uses);
    let mut assembler = Assembler::default();
    let (exit, stopped) = (assembler.label(), assembler.label());
    let mut select = Select {
        uses,
        allocation,
        runtime,
        assembler,
        open: Vec::new(),
        asks: Vec::new(),
        exit,
        stopped,
        frame: 0,
        of_lanes: 0,
    };
    select.begin();
    for (number, code) in native.code.iter().enumerate() {
        select.code(number, code)?;
    }
    select.end();
    select.assembler.finish()
}

/// Comparisons that are made where their result is used: those that few choices and branches use, and nothing else.
fn deferred(native: &Native) -> Vec<Option<usize>> {
    let mut made = vec![None; native.types.len()];
    let mut uses = vec![0usize; native.types.len()];
    let compares = |op: &ScalarOp| matches!(op, ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le);
    // A use that is no choice, which counts as more than any few.
    const MANY: usize = 100;
    for (number, code) in native.code.iter().enumerate() {
        match code {
            Code::Compute { op: ScalarOp::Select, args, .. } => {
                uses[args[0].0 as usize] += 1;
                uses[args[1].0 as usize] += MANY;
                uses[args[2].0 as usize] += MANY;
            }
            Code::Leave { unless: id } | Code::If { holds: id } => uses[id.0 as usize] += 1,
            code => code.each_use(|id| uses[id.0 as usize] += MANY),
        }
        if let Code::Compute { to, op, .. } = code
            && compares(op)
        {
            made[to.0 as usize] = Some(number);
        }
    }
    let few = |(made, uses): (Option<usize>, usize)| made.filter(|_| (1..=3).contains(&uses));
    made.into_iter().zip(uses).map(few).collect()
}

/// A list that is not at its end.
enum Open {
    Loop { begin: Label, end: Label },
    Then { otherwise: Label },
    Else { end: Label },
}

/// A question whether to stop, behind the code.
struct Ask {
    from: Label,
    back: Label,
}

struct Select<'a> {
    uses: Uses<'a>,
    allocation: Allocation,
    runtime: &'a dyn Runtime,
    assembler: Assembler,
    open: Vec<Open>,
    asks: Vec<Ask>,
    exit: Label,
    stopped: Label,
    /// The instruction that makes room on the stack, and bytes of it for chains.
    frame: usize,
    of_lanes: i32,
}

const fn width(ty: ScalarType) -> Width {
    if ty.size() == 8 { Width::W64 } else { Width::W32 }
}

/// An instruction of one float, by its type.
const fn scalar(code: u8, ty: ScalarType) -> Opcode {
    let prefix = if matches!(ty, ScalarType::F64) { Prefix::F2 } else { Prefix::F3 };
    Opcode::new(prefix, Map::M0F, code, false)
}

const LOAD: u8 = 0x10;
const STORE: u8 = 0x11;

const MOVE: Opcode = Opcode::new(Prefix::None, Map::M0F, 0x28, false);
const AND: Opcode = Opcode::new(Prefix::None, Map::M0F, codes::AND, false);
const OR: Opcode = Opcode::new(Prefix::None, Map::M0F, codes::OR, false);
const XOR: Opcode = Opcode::new(Prefix::None, Map::M0F, codes::XOR, false);

impl Select<'_> {
    fn type_of(&self, id: Id) -> ScalarType {
        self.uses.native.type_of(id)
    }

    fn place(&self, id: Id) -> Place {
        self.allocation.places[id.0 as usize]
    }

    fn slot(&self, slot: u32) -> Mem {
        Mem::Base(RSP, CALL_BYTES + SAVED_BYTES + 8 * slot as i32)
    }

    /// Bytes of the stack below the slots of chains.
    fn below_lanes(&self) -> i32 {
        CALL_BYTES + SAVED_BYTES + 8 * self.allocation.slots as i32
    }

    fn begin(&mut self) {
        let out = &mut self.assembler;
        out.push(RBP);
        out.mov(Width::W64, RBP, RSP);
        for &register in &INTEGERS[..KEPT] {
            out.push(register);
        }
        out.push(R15);
        self.frame = out.subtract_later(RSP);
        out.mov(Width::W64, RAX, RDI);
        out.mov_int(R15, STEPS);
        let first = self.uses.native.types.len();
        for pointer in 0..self.uses.pointers {
            let from = Mem::Base(RAX, 8 * pointer as i32);
            match self.allocation.places[first + pointer] {
                Place::Integer(register) => self.assembler.mov(Width::W64, register, from),
                Place::Slot(slot) => {
                    let to = self.slot(slot);
                    self.assembler.mov(Width::W64, RCX, from);
                    self.assembler.store(8, to, RCX);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self) {
        self.assembler.mov_int(RAX, 0);
        self.assembler.bind(self.exit);
        // The stack's top is at a multiple of 16 with six registers and the caller's place on it.
        let frame = (self.below_lanes() + self.of_lanes + 15) / 16 * 16 + 8;
        let out = &mut self.assembler;
        out.set_later(self.frame, frame);
        if self.uses.native.has_lanes() {
            out.vzeroupper();
        }
        out.alu_int(Alu::Add, Width::W64, RSP, frame);
        out.pop(R15);
        for &register in INTEGERS[..KEPT].iter().rev() {
            out.pop(register);
        }
        out.pop(RBP);
        out.ret();
        for Ask { from, back } in std::mem::take(&mut self.asks) {
            self.assembler.bind(from);
            let all: Vec<Place> = INTEGERS[KEPT..]
                .iter()
                .map(|&register| Place::Integer(register))
                .chain((0..FLOATS as u8).map(|register| Place::Float(Xmm(register))))
                .collect();
            self.saved(&all, true);
            if self.uses.native.has_lanes() {
                self.assembler.vzeroupper();
            }
            self.assembler.mov_int(RAX, self.runtime.stops());
            self.assembler.call(RAX);
            self.saved(&all, false);
            self.assembler.test(Width::W32, RAX, RAX);
            self.assembler.jump_if(Condition::NotEqual, self.stopped);
            self.assembler.mov_int(R15, STEPS);
            self.assembler.jump(back);
        }
        self.assembler.bind(self.stopped);
        self.assembler.mov_int(RAX, 1);
        self.assembler.jump(self.exit);
    }

    /// Puts registers to the stack, or takes them back.
    fn saved(&mut self, places: &[Place], put: bool) {
        for &place in places {
            match place {
                Place::Integer(register) => {
                    let number = INTEGERS.iter().position(|&known| known == register).unwrap_or(0);
                    if number < KEPT {
                        continue;
                    }
                    let at = Mem::Base(RSP, CALL_BYTES + 8 * (number - KEPT) as i32);
                    if put {
                        self.assembler.store(8, at, register);
                    } else {
                        self.assembler.mov(Width::W64, register, at);
                    }
                }
                Place::Float(register) => {
                    let number = INTEGERS.len() - KEPT + register.0 as usize;
                    let at = Mem::Base(RSP, CALL_BYTES + 8 * number as i32);
                    let code = if put { STORE } else { LOAD };
                    self.assembler.two(scalar(code, ScalarType::F64), register, at);
                }
                _ => {}
            }
        }
    }

    /// Counts a step down, and now and then asks whether to stop.
    fn ask(&mut self) {
        let (from, back) = (self.assembler.label(), self.assembler.label());
        self.assembler.alu_int(Alu::Sub, Width::W64, R15, 1);
        self.assembler.jump_if(Condition::Equal, from);
        self.assembler.bind(back);
        self.asks.push(Ask { from, back });
    }

    fn code(&mut self, number: usize, code: &Code) -> Result<()> {
        match code {
            Code::Compute { op: ScalarOp::Const { .. }, .. } => {}
            Code::Compute { to, op, args } => {
                if self.uses.deferred[to.0 as usize] != Some(number) && self.place(*to) != Place::Nowhere {
                    self.compute(number, *to, *op, args)?;
                }
            }
            Code::Set { to, from } => self.copy(*to, *from),
            Code::Load { to, from } => {
                let at = self.address(from);
                self.load(*to, at);
            }
            Code::Store { from, to } => {
                let at = self.address(to);
                let ty = self.type_of(*from);
                if ty.is_float() {
                    let from = self.float(*from, X0);
                    self.assembler.two(scalar(STORE, ty), from, at);
                } else {
                    let from = self.integer(*from, RAX);
                    self.assembler.store(ty.size(), at, from);
                }
            }
            Code::Loop => {
                let (begin, end) = (self.assembler.label(), self.assembler.label());
                self.assembler.bind(begin);
                self.open.push(Open::Loop { begin, end });
            }
            Code::Leave { unless } => {
                let end = self.open.iter().rev().find_map(|open| match open {
                    Open::Loop { end, .. } => Some(*end),
                    _ => None,
                });
                let end = end.ok_or_else(|| internal_error!("no loop to leave"))?;
                self.branch_unless(*unless, end);
            }
            Code::Again { count } => {
                self.ask();
                let Some(Open::Loop { begin, end }) = self.open.pop() else {
                    return Err(internal_error!("no loop to repeat"));
                };
                let register = self.integer(*count, RAX);
                self.assembler.alu_int(Alu::Sub, Width::W64, register, 1);
                self.integer_done(*count, register);
                self.assembler.jump_if(Condition::NotEqual, begin);
                self.assembler.bind(end);
            }
            Code::Forever => {
                self.ask();
                let Some(Open::Loop { begin, end }) = self.open.pop() else {
                    return Err(internal_error!("no loop to repeat"));
                };
                self.assembler.jump(begin);
                self.assembler.bind(end);
            }
            Code::If { holds } => {
                let otherwise = self.assembler.label();
                self.branch_unless(*holds, otherwise);
                self.open.push(Open::Then { otherwise });
            }
            Code::Else => {
                let Some(Open::Then { otherwise }) = self.open.pop() else {
                    return Err(internal_error!("no choice"));
                };
                let end = self.assembler.label();
                self.assembler.jump(end);
                self.assembler.bind(otherwise);
                self.open.push(Open::Else { end });
            }
            Code::End => {
                let Some(Open::Else { end }) = self.open.pop() else {
                    return Err(internal_error!("no choice"));
                };
                self.assembler.bind(end);
            }
            Code::Lanes { chain, inputs, outputs, count } => {
                self.lanes(number, *chain, (inputs, outputs), *count)?
            }
        }
        Ok(())
    }

    /// The register that holds an integer; `scratch`, with its value, if none does.
    fn integer(&mut self, id: Id, scratch: Gpr) -> Gpr {
        match self.place(id) {
            Place::Integer(register) => register,
            Place::Slot(slot) => {
                let at = self.slot(slot);
                self.assembler.mov(Width::W64, scratch, at);
                scratch
            }
            Place::Constant(bits) => {
                self.assembler.mov_int(scratch, canonical(self.type_of(id), bits));
                scratch
            }
            Place::Nowhere | Place::Float(_) => scratch,
        }
    }

    /// An integer in this register.
    fn integer_in(&mut self, id: Id, register: Gpr) {
        let from = self.integer(id, register);
        if from != register {
            self.assembler.mov(Width::W64, register, from);
        }
    }

    /// The register for an integer result.
    fn integer_result(&self, id: Id) -> Gpr {
        match self.place(id) {
            Place::Integer(register) => register,
            _ => RAX,
        }
    }

    /// Puts a result that is in a register to its place.
    fn integer_done(&mut self, id: Id, from: Gpr) {
        match self.place(id) {
            Place::Integer(register) if register != from => self.assembler.mov(Width::W64, register, from),
            Place::Slot(slot) => {
                let at = self.slot(slot);
                self.assembler.store(8, at, from);
            }
            _ => {}
        }
    }

    fn float(&mut self, id: Id, scratch: Xmm) -> Xmm {
        let from = match self.place(id) {
            Place::Float(register) => return register,
            Place::Slot(slot) => self.slot(slot),
            Place::Constant(bits) => Mem::Constant(bits),
            Place::Nowhere | Place::Integer(_) => return scratch,
        };
        self.assembler.two(scalar(LOAD, self.type_of(id)), scratch, from);
        scratch
    }

    /// A float where it is, if that is in memory.
    fn float_operand(&mut self, id: Id) -> Rm<Xmm> {
        match self.place(id) {
            Place::Slot(slot) => self.slot(slot).into(),
            Place::Constant(bits) => Mem::Constant(bits).into(),
            _ => self.float(id, X1).into(),
        }
    }

    fn float_result(&self, id: Id) -> Xmm {
        match self.place(id) {
            Place::Float(register) => register,
            _ => X0,
        }
    }

    fn float_done(&mut self, id: Id, from: Xmm) {
        match self.place(id) {
            Place::Float(register) if register != from => self.assembler.two(MOVE, register, from),
            Place::Slot(slot) => {
                let at = self.slot(slot);
                self.assembler.two(scalar(STORE, ScalarType::F64), from, at);
            }
            _ => {}
        }
    }

    fn copy(&mut self, to: Id, from: Id) {
        if self.place(to) == Place::Nowhere {
            return;
        }
        if self.type_of(to).is_float() {
            let result = self.float_result(to);
            let register = self.float(from, result);
            self.float_done(to, register);
        } else {
            let result = self.integer_result(to);
            let register = self.integer(from, result);
            self.integer_done(to, register);
        }
    }

    /// A value from memory.
    fn load(&mut self, to: Id, from: Mem) {
        let ty = self.type_of(to);
        if ty.is_float() {
            let result = self.float_result(to);
            self.assembler.two(scalar(LOAD, ty), result, from);
            self.float_done(to, result);
        } else {
            let result = self.integer_result(to);
            self.assembler.extend(ty.size(), ty.is_signed(), result, from);
            self.integer_done(to, result);
        }
    }

    /// A place in memory, for which `rcx` and `rdx` may be needed.
    fn address(&mut self, address: &Address) -> Mem {
        let pointer = self.uses.native.types.len() + address.pointer as usize;
        let base = match self.allocation.places[pointer] {
            Place::Integer(register) => register,
            Place::Slot(slot) => {
                let at = self.slot(slot);
                self.assembler.mov(Width::W64, RCX, at);
                RCX
            }
            _ => RCX,
        };
        match address.bytes {
            Some(bytes) => {
                let index = self.integer(bytes, RDX);
                Mem::Indexed(base, index, 1, address.offset)
            }
            None => Mem::Base(base, address.offset),
        }
    }

    /// A constant that an instruction can hold.
    fn small_constant(&self, id: Id) -> Option<i32> {
        let ty = self.type_of(id);
        match self.place(id) {
            Place::Constant(bits) if ty.size() == 8 => i32::try_from(bits as i64).ok(),
            Place::Constant(bits) if !ty.is_float() => Some(canonical(ty, bits) as u32 as i32),
            _ => None,
        }
    }

    fn compute(&mut self, number: usize, to: Id, op: ScalarOp, args: &[Id]) -> Result<()> {
        let ty = self.type_of(to);
        let of = args.first().map_or(ty, |&id| self.type_of(id));
        match op {
            ScalarOp::Select => {
                let &[holds, then, otherwise] = args else {
                    return Err(internal_error!("{op:?} of {args:?}"));
                };
                self.select(to, [holds, then, otherwise]);
            }
            ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le => {
                let &[a, b] = args else { return Err(internal_error!("{op:?} of {args:?}")) };
                self.compare(to, op, a, b);
            }
            ScalarOp::Convert => return self.convert(number, to, args[0]),
            ScalarOp::Bitcast => self.bitcast(to, args[0]),
            _ if ty.is_float() => {
                if !self.float_operation(to, op, args) {
                    return self.call(number, to, op, args, of);
                }
            }
            _ => {
                if !self.integer_operation(to, op, args) {
                    return self.call(number, to, op, args, of);
                }
            }
        }
        Ok(())
    }

    /// Where what lives across an instruction is.
    fn live(&self, number: usize) -> Vec<Place> {
        let lives = |lifetime: Lifetime| lifetime.first < number && lifetime.last > number;
        let all = self.allocation.places.iter().zip(&self.allocation.lifetimes);
        all.filter(|(_, lifetime)| lifetime.is_some_and(lives)).map(|(&place, _)| place).collect()
    }

    /// Calls the operation with its operands in memory.
    fn call(&mut self, number: usize, to: Id, op: ScalarOp, args: &[Id], of: ScalarType) -> Result<()> {
        let ty = self.type_of(to);
        let operation = self.runtime.operation(op, ty, of)?;
        let live = self.live(number);
        for (argument, &id) in args.iter().enumerate() {
            let at = Mem::Base(RSP, 8 + 8 * argument as i32);
            if self.type_of(id).is_float() {
                let from = self.float(id, X0);
                self.assembler.two(scalar(STORE, ScalarType::F64), from, at);
            } else {
                let from = self.integer(id, RAX);
                self.assembler.store(8, at, from);
            }
        }
        self.saved(&live, true);
        let has_lanes = self.uses.native.has_lanes();
        let out = &mut self.assembler;
        if has_lanes {
            out.vzeroupper();
        }
        out.mov_int(RDI, operation);
        for (argument, register) in [RSI, RDX, RCX, R8].into_iter().enumerate() {
            out.lea(register, Mem::Base(RSP, 8 * argument as i32));
        }
        out.mov_int(RAX, self.runtime.one());
        out.call(RAX);
        self.saved(&live, false);
        self.load(to, Mem::Base(RSP, 0));
        Ok(())
    }
}

/// The bits of a constant as a register holds them.
fn canonical(ty: ScalarType, bits: u64) -> u64 {
    match ty {
        ScalarType::I8 => u64::from(bits as u8 as i8 as u32),
        ScalarType::I16 => u64::from(bits as u16 as i16 as u32),
        _ => bits,
    }
}
