//! Collects operations of a section that follow one another into functions (`crate::code::ChainFunction`).
//!
//! While a chain is open, loads and what is the same over a tile come before it; what needs one of its values, and is none
//! of a chain itself, closes it. Then those of its values get places that are needed later, apart from all that it reads.

use ferrax_compile::chain;
use ferrax_ir::Result;
use ferrax_ir::scalar::{Instruction, Reg, ScalarOp, ScalarType};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::chains::{ChainStep, Open};
use super::section::{Builder, Direct, Instr};
use crate::code::{ChainFunction, Isa};

impl Builder<'_> {
    /// Whether an instruction belongs to a chain.
    pub(super) fn joins(&self, index: usize, instruction: &Instruction) -> bool {
        let typed = if instruction.op == ScalarOp::Select { 1 } else { 0 };
        // The compiler's functions of floats are faster than these with AVX-512, which has registers for all their numbers.
        let code = self.context.code.filter(|&isa| isa == Isa::Avx2 || !is_function(instruction));
        code.is_some()
            && self.lanes > 1
            && !self.uniform[index]
            && instruction
                .args
                .get(typed)
                .is_some_and(|&arg| chain::computes(instruction.op, instruction.ty, self.body.type_of(arg)))
            && (!self.renames(instruction) || self.open.has(instruction))
    }

    /// The work of an instruction in a chain: it moves nothing.
    fn cost_in_chain(&self, index: usize) -> f64 {
        let moves = !is_function(&self.body.instructions()[index]);
        self.cost(index) * if moves { 0.4 } else { 0.9 }
    }

    /// Adds an instruction to the open chain.
    pub(super) fn join(&mut self, index: usize, instruction: &Instruction) -> Result<()> {
        let mut args: SmallVec<[Reg; 3]> = SmallVec::new();
        for &arg in &instruction.args {
            args.push(match self.open.known.get(&arg.0) {
                Some(&(known, _)) => known,
                None => self.chain_input(arg)?,
            });
        }
        let reg = self.open.chain.push(instruction.op, instruction.ty, &args)?;
        self.open.known.insert(index as u32, (reg, true));
        self.open.members.push(index as u32);
        Ok(())
    }

    /// What a chain reads, once each: a constant of the kernel, a single element, or a block.
    fn chain_input(&mut self, reg: Reg) -> Result<Reg> {
        let (op, ty) = (self.body.instructions()[reg.0 as usize].op, self.body.type_of(reg));
        let truth = ty == ScalarType::Bool;
        let known = match self.known(op) {
            Some(bits) if truth || matches!(op, ScalarOp::Const { .. }) => {
                self.open.chain.body.push(ScalarOp::Const { bits }, ty, &[])
            }
            _ => {
                let mut place = self.place(reg)?;
                let mut uniform = self.uniform[reg.0 as usize];
                if truth && uniform {
                    let mut temporary = SmallVec::new();
                    place = self.splat(reg, place, &mut temporary);
                    self.open.temporary.extend(temporary);
                    uniform = false;
                }
                self.open.inputs.push(place);
                self.open.chain.input(ty, uniform)
            }
        };
        self.open.known.insert(reg.0, (known, false));
        Ok(known)
    }

    /// Ends the open chain before instruction `next`.
    pub(super) fn close(&mut self, next: usize, direct: &FxHashMap<u32, Direct>) -> Result<()> {
        let Open { mut chain, known, inputs, members, dying, temporary } = std::mem::take(&mut self.open);
        let outputs: SmallVec<[u32; 4]> =
            members.iter().copied().filter(|&member| self.last_use[member as usize] >= next).collect();
        chain.outputs = outputs.iter().map(|member| known[member].0).collect();
        let several =
            |&member: &u32| matches!(self.body.instructions()[member as usize].op, ScalarOp::Math(_));
        let pays = members.len() > 1 || members.first().is_some_and(several);
        let function = if pays { ChainFunction::of(chain)? } else { None };
        let direct_place = |member: u32| direct.get(&member).map(|direct| direct.place);
        if let Some(function) = function {
            let mut places = inputs;
            for &member in &outputs {
                let size = self.body.instructions()[member as usize].ty.size();
                let place = direct_place(member).unwrap_or_else(|| self.take(size));
                self.places[member as usize] = Some(place);
                self.chained[member as usize] = true;
                places.push(place);
            }
            self.section.cost +=
                members.iter().map(|&member| self.cost_in_chain(member as usize)).sum::<f64>();
            self.section.instrs.push(Instr::Chain { step: self.section.chains.len() as u32 });
            self.section.chains.push(ChainStep { function, places });
        } else {
            for member in members {
                let instruction = &self.body.instructions()[member as usize];
                self.places[member as usize] = Some(if self.renames(instruction) {
                    self.place(instruction.args[0])?
                } else {
                    self.apply(member as usize, instruction, direct_place(member))?
                });
            }
        }
        temporary.into_iter().for_each(|place| self.release(place));
        self.release_all(dying);
        Ok(())
    }
}

fn is_function(instruction: &Instruction) -> bool {
    matches!(instruction.op, ScalarOp::Math(_))
}
