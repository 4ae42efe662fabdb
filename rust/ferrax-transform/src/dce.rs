//! Removes what no output depends on.
//!
//! Invariants: equations with effects stay, in order; sub-programs lose what
//! their callers do not use: outputs, then equations, then inputs. Cost: linear;
//! each sub-program is treated once for each set of used outputs.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::Call;
use ferrax_ir::program::Atoms;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Equation, Op, Program, Result, Var};
use smallvec::SmallVec;

use crate::control::wiring::Wirings;
use crate::control::{checkpoint, cond, scan, sweeps, while_loop};
use crate::memo::{Flagged, Memo};
use crate::reach::Reach;
use crate::rewrite::{Needed, Rewriter, check_flags, share};

/// `program` without dead equations. The inputs and outputs stay.
pub fn dce(program: &Program) -> Result<Program> {
    let all = vec![true; program.outputs.len()];
    Elimination::default().program(program, &all, true).map(|(program, _)| program)
}

/// `program` with only the outputs flagged in `used`, and only the inputs that
/// it then needs: the flags of those come with it.
pub fn dce_with(program: &Program, used: &[bool]) -> Result<(Program, Vec<bool>)> {
    Elimination::default().program(program, used, false)
}

/// How an equation is kept.
pub(crate) enum Kept {
    Whole,
    /// An op with smaller sub-programs, with some of the inputs and outputs.
    Smaller(Box<Smaller>),
}

pub(crate) struct Smaller {
    pub op: Op,
    pub inputs: Atoms,
    pub outputs: SmallVec<[Var; 4]>,
}

#[derive(Default)]
pub(crate) struct Elimination {
    callees: Memo<Vec<bool>, Flagged>,
    pub reach: Reach,
    pub scans: Memo<scan::Key, Flagged>,
    pub wirings: Wirings,
}

impl Elimination {
    fn program(
        &mut self,
        program: &Program,
        used: &[bool],
        keep_inputs: bool,
    ) -> Result<(Program, Vec<bool>)> {
        check_flags("dead code elimination", program, program.outputs.len(), used.len())?;
        let outputs: Vec<Atom> =
            program.outputs.iter().zip(used).filter(|(_, flag)| **flag).map(|(atom, _)| *atom).collect();
        let mut needed = Needed::new(program);
        needed.add(&outputs);
        let mut kept: Vec<Option<Kept>> = Vec::with_capacity(program.equations.len());
        for equation in program.equations.iter().rev() {
            if !needed.any(&equation.outputs) && !equation.op.happens() {
                kept.push(None);
                continue;
            }
            let how = match equation.op.view() {
                View::Leaf(_) => Kept::Whole,
                View::Call(op) => self.call(op, equation, &needed)?,
                View::Cond(op) => cond::eliminate(self, op, equation, &needed)?,
                View::While(op) => while_loop::eliminate(self, op, equation, &needed)?,
                View::Sweeps(op) => sweeps::eliminate(self, op, equation, &needed)?,
                View::Scan(op) => scan::eliminate(self, op, equation, &needed)?,
                View::Checkpoint(op) => checkpoint::eliminate(self, op, equation, &needed)?,
                // Their rules know all inputs and outputs.
                View::CustomJvp(_) | View::CustomVjp(_) | View::Ruled(..) => Kept::Whole,
            };
            match &how {
                Kept::Whole => needed.add(&equation.inputs),
                Kept::Smaller(call) => needed.add(&call.inputs),
            }
            kept.push(Some(how));
        }
        let used_inputs: Vec<bool> =
            program.inputs.iter().map(|&var| keep_inputs || needed.contains(var)).collect();
        let mut rewriter = Rewriter::new(program);
        for (&var, _) in program.inputs.iter().zip(&used_inputs).filter(|(_, flag)| **flag) {
            rewriter.input(var);
        }
        rewriter.constants(|var| needed.contains(var));
        for (equation, kept) in program.equations.iter().zip(kept.into_iter().rev()) {
            match kept {
                None => {}
                Some(Kept::Whole) => rewriter.copy(equation)?,
                Some(Kept::Smaller(call)) => {
                    let Smaller { op, inputs, outputs } = *call;
                    let inputs = rewriter.atoms(&inputs)?;
                    let types: Vec<_> =
                        outputs.iter().map(|var| program.types[var.index()].clone()).collect();
                    rewriter.builder.source = equation.source;
                    let fresh = rewriter.builder.emit_typed(op, &inputs, types);
                    for (old, new) in outputs.into_iter().zip(fresh) {
                        rewriter.set(old, Atom::Var(new));
                    }
                }
            }
        }
        let result = rewriter.finish(&outputs)?;
        debug_verify(&result, "dead code elimination")?;
        Ok((result, used_inputs))
    }

    fn call(&mut self, call: &Call, equation: &Equation, needed: &Needed) -> Result<Kept> {
        let used: Vec<bool> = equation.outputs.iter().map(|&var| needed.contains(var)).collect();
        let (callee, used_inputs) = self.callee(&call.program, &used)?;
        if Arc::ptr_eq(&callee, &call.program) {
            return Ok(Kept::Whole);
        }
        let op = Call { name: call.name.clone(), program: callee, inline: call.inline };
        let inputs =
            equation.inputs.iter().zip(&*used_inputs).filter(|(_, flag)| **flag).map(|(a, _)| *a).collect();
        let outputs = equation.outputs.iter().zip(&used).filter(|(_, flag)| **flag).map(|(v, _)| *v);
        Ok(Kept::Smaller(Box::new(Smaller { op: op.into(), inputs, outputs: outputs.collect() })))
    }

    /// A sub-program with only the outputs flagged in `used`, and flags of the
    /// inputs that it keeps; see [`dce_with`].
    pub fn callee(&mut self, program: &Arc<Program>, used: &[bool]) -> Result<Flagged> {
        if let Some(found) = self.callees.get(program, used.to_vec()) {
            return Ok(found);
        }
        let (callee, used_inputs) = self.program(program, used, false)?;
        let callee = share(callee, program);
        Ok(self.callees.insert(program, used.to_vec(), (callee, used_inputs.into())))
    }
}
