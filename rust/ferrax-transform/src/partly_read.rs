//! Which inputs of a program are read a part at a time: by slices at computed places, lookups and small slices, or by
//! functions, branches and loops that do so with them.
//!
//! The cotangent of such an input is zero but for that part. In a loop it is added to the part of the sum so far, so that a
//! step costs what it reads and not what there is.
//!
//! In: a program. Out: a flag for each input. Cost: linear; each sub-program is looked at once.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::{ArrayType, Atom, Equation, Program};
use smallvec::SmallVec;

use crate::memo::Memo;

/// Whether an equation is one op that reads a part of its first operand.
pub(crate) fn reads_part(program: &Program, equation: &Equation) -> bool {
    let View::Leaf(rules) = equation.op.view() else { return false };
    let types: Option<SmallVec<[ArrayType; 3]>> =
        equation.inputs.iter().map(|atom| program.type_of(atom).as_array().cloned()).collect();
    types.is_some_and(|types| rules.reads_part(&types))
}

#[derive(Default)]
pub(crate) struct PartlyRead(Memo<(), Arc<[bool]>>);

impl PartlyRead {
    pub fn inputs(&mut self, program: &Arc<Program>) -> Arc<[bool]> {
        if let Some(found) = self.0.get(program, ()) {
            return found;
        }
        let mut read = vec![false; program.types.len()];
        for equation in &program.equations {
            let mut see = |position: usize| {
                if let Some(var) = equation.inputs.get(position).and_then(Atom::as_var) {
                    read[var.index()] = true;
                }
            };
            // Operands of the equation: those from `first` on are inputs of the program from `start` on, so many.
            let mut within = |program: &Arc<Program>, first: usize, start: usize, count: usize| {
                let flags = self.inputs(program);
                let flags = flags.iter().skip(start).take(count).enumerate();
                flags.filter(|(_, flag)| **flag).for_each(|(position, _)| see(first + position));
            };
            match equation.op.view() {
                View::Leaf(_) if reads_part(program, equation) => see(0),
                View::Leaf(_) | View::Ruled(..) => {}
                View::Call(op) => within(&op.program, 0, 0, usize::MAX),
                View::Checkpoint(op) => within(&op.jaxpr, 0, 0, usize::MAX),
                View::CustomJvp(op) => within(&op.call_jaxpr, 0, 0, usize::MAX),
                View::CustomVjp(op) => within(&op.call_jaxpr, 0, 0, usize::MAX),
                View::Cond(op) => op.branches.iter().for_each(|branch| within(branch, 1, 0, usize::MAX)),
                View::Scan(op) => within(&op.jaxpr, 0, 0, op.num_consts),
                View::While(op) => within(&op.body_jaxpr, op.cond_nconsts, 0, op.body_nconsts),
                View::Sweeps(op) => op.bodies.iter().for_each(|body| within(body, 0, 0, op.num_consts)),
            }
        }
        let flags: Arc<[bool]> = program.inputs.iter().map(|var| read[var.index()]).collect();
        self.0.insert(program, (), flags)
    }
}
