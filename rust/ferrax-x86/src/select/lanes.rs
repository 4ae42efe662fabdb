//! Chains over memory within a native program.
//!
//! Blocks are pointed to by the registers, or places on the stack, that the program's pointers are in; a distance that is
//! computed is added before, on the stack. Single values are put to all lanes of a place on the stack. The chain takes all
//! vector registers: scalars that live on are saved around it.

use ferrax_compile::native::{Address, Id, Lane};
use ferrax_ir::Result;
use smallvec::SmallVec;

use super::{Place, STORE, Select, X0};
use crate::encode::{Alu, Gpr, Length, Map, Masked, Mem, Opcode, Prefix, RAX, RCX, RSP, Rm, Width};
use crate::vector::{At, SLOT, Within, emit_within};

impl Select<'_> {
    pub(super) fn lanes(
        &mut self,
        number: usize,
        chain: u32,
        (inputs, outputs): (&[Lane], &[Address]),
        count: u32,
    ) -> Result<()> {
        let native = self.uses.native;
        let chain = &native.chains[chain as usize];
        let floats: Vec<Place> =
            self.live(number).into_iter().filter(|place| matches!(place, Place::Float(_))).collect();
        self.saved(&floats, true);
        let mut moved = 0;
        let mut uniforms = 0;
        let all = inputs.iter().copied().chain(outputs.iter().map(|&output| Lane::Block(output)));
        let stack = self.below_lanes();
        let places =
            all.clone().filter(|lane| matches!(lane, Lane::Block(at) if at.bytes.is_some())).count() as i32;
        let first_slot = stack + 8 * places;
        let mut blocks: SmallVec<[At; 8]> = SmallVec::new();
        for lane in all {
            blocks.push(match lane {
                Lane::Each(id) => {
                    let at = Mem::Base(RSP, first_slot + SLOT * uniforms);
                    self.splat(id, at);
                    uniforms += 1;
                    At::Uniform(uniforms - 1)
                }
                Lane::Block(Address { pointer, bytes, offset }) => {
                    let pointer = self.pointer(pointer);
                    match bytes {
                        None => At::Block(pointer, offset),
                        Some(bytes) => {
                            let at = Mem::Base(RSP, stack + 8 * moved);
                            moved += 1;
                            self.integer_in(bytes, RAX);
                            self.assembler.alu(Alu::Add, Width::W64, RAX, pointer);
                            self.assembler.store(8, at, RAX);
                            At::Block(at.into(), offset)
                        }
                    }
                }
            });
        }
        let place = Within { blocks: &blocks, count: count as usize, stack: first_slot };
        let used = emit_within(chain, &place, &mut self.assembler)?;
        self.of_lanes = self.of_lanes.max(8 * places + used);
        self.saved(&floats, false);
        Ok(())
    }

    /// Where a pointer of the table is.
    fn pointer(&self, pointer: u32) -> Rm<Gpr> {
        match self.allocation.places[self.uses.native.types.len() + pointer as usize] {
            Place::Integer(register) => register.into(),
            Place::Slot(slot) => self.slot(slot).into(),
            _ => RCX.into(),
        }
    }

    /// Puts a value to all lanes of a slot.
    fn splat(&mut self, id: Id, to: Mem) {
        let ty = self.type_of(id);
        let wide = ty.size() == 8;
        if ty.is_float() {
            let from = self.float(id, X0);
            let opcode = Opcode::new(Prefix::P66, Map::M0F38, if wide { 0x19 } else { 0x18 }, false);
            self.assembler.wide(Length::Vex256, opcode, Masked::ALL, (X0.0, 0, Rm::Reg(from.0)), None);
        } else {
            let from = self.integer(id, RAX);
            self.assembler.bits_to_float(if wide { Width::W64 } else { Width::W32 }, X0, from);
            let opcode = Opcode::new(Prefix::P66, Map::M0F38, if wide { 0x59 } else { 0x58 }, false);
            self.assembler.wide(Length::Vex256, opcode, Masked::ALL, (X0.0, 0, Rm::Reg(X0.0)), None);
        }
        let store = Opcode::new(Prefix::None, Map::M0F, STORE, false);
        self.assembler.wide(Length::Vex256, store, Masked::ALL, (X0.0, 0, Rm::Mem(to)), None);
    }
}
