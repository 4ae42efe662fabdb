//! Partial evaluation: what can be computed before all inputs are known.
//!
//! In: a program and which of its inputs are unknown. Out: the known program
//! (known inputs to the outputs that depend on nothing else, then residuals)
//! and the unknown program (residuals and unknown inputs to the other outputs).
//! Invariants: as for `split`; a call with known and unknown inputs becomes two
//! calls. Cost: linear; each sub-program is treated once for each set of flags.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::Call;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Equation, Program, Result};

use crate::control::wiring::Wirings;
use crate::control::{checkpoint, cond, scan, sweeps, while_loop};
use crate::linearize::Halves;
use crate::memo::Memo;
use crate::reach::Reach;
use crate::rewrite::{Rewriter, check_flags};
use crate::split::split;

/// A partially evaluated program; see the module.
#[derive(Clone, Debug)]
pub struct PartialEval {
    /// Known inputs to known outputs ++ residuals.
    pub known: Program,
    /// Residuals ++ unknown inputs to unknown outputs.
    pub unknown: Program,
    pub unknown_out: Vec<bool>,
    /// How many residuals there are.
    pub residuals: usize,
}

pub fn partial_eval(program: &Program, unknown: &[bool]) -> Result<PartialEval> {
    partial_eval_with(program, unknown, &[])
}

/// The same, where outputs flagged in `force` count as unknown in any case. No
/// flags mean none.
pub fn partial_eval_with(program: &Program, unknown: &[bool], force: &[bool]) -> Result<PartialEval> {
    PartialEvaluation::default().program(program, unknown, force)
}

#[derive(Default)]
pub(crate) struct PartialEvaluation {
    calls: Memo<Vec<bool>, Arc<SplitCall>>,
    callees: Memo<(Vec<bool>, Vec<bool>), Arc<PartialEval>>,
    pub reach: Reach,
    pub scans: Memo<scan::Key, Arc<scan::SplitScan>>,
    pub wirings: Wirings,
}

/// A callee in two halves.
struct SplitCall {
    halves: Halves,
    unknown_out: Vec<bool>,
}

impl PartialEvaluation {
    fn program(&mut self, program: &Program, unknown: &[bool], force: &[bool]) -> Result<PartialEval> {
        check_flags("partial evaluation", program, program.inputs.len(), unknown.len())?;
        let separated = self.separate_calls(program, unknown)?;
        let (depends, _) = crate::split::dependence(&separated, unknown);
        let unknown_out: Vec<bool> = separated
            .outputs
            .iter()
            .enumerate()
            .map(|(position, atom)| {
                force.get(position).copied().unwrap_or(false)
                    || atom.as_var().is_some_and(|var| depends[var.index()])
            })
            .collect();
        let choose = |flag: bool| -> Vec<Atom> {
            separated.outputs.iter().zip(&unknown_out).filter(|(_, f)| **f == flag).map(|(a, _)| *a).collect()
        };
        let halves = split(&separated, unknown, &choose(false), &choose(true))?;
        debug_verify(&halves.known, "partial evaluation (known)")?;
        debug_verify(&halves.unknown, "partial evaluation (unknown)")?;
        Ok(PartialEval {
            known: halves.known,
            unknown: halves.unknown,
            unknown_out,
            residuals: halves.residuals,
        })
    }

    /// The same program with each call of mixed inputs in two.
    pub fn separate_calls(&mut self, program: &Program, unknown: &[bool]) -> Result<Program> {
        let mut depends = vec![false; program.types.len()];
        for (var, &flag) in program.inputs.iter().zip(unknown) {
            depends[var.index()] = flag;
        }
        let mut rewriter = Rewriter::with_inputs(program);
        rewriter.constants(|_| true);
        for equation in &program.equations {
            let flags: Vec<bool> = equation
                .inputs
                .iter()
                .map(|atom| atom.as_var().is_some_and(|var| depends[var.index()]))
                .collect();
            let mixed = flags.contains(&true) && flags.contains(&false);
            match equation.op.view() {
                View::Call(call) if mixed => {
                    let callee = self.call(call, flags.clone())?;
                    let arguments = rewriter.atoms(&equation.inputs)?;
                    let side = |want: bool| -> Vec<Atom> {
                        arguments.iter().zip(&flags).filter(|(_, f)| **f == want).map(|(a, _)| *a).collect()
                    };
                    rewriter.builder.source = equation.source;
                    let (known, late) =
                        callee.halves.emit(&mut rewriter.builder, call, &side(false), side(true))?;
                    let (mut known, mut late) = (known.into_iter(), late.into_iter());
                    for (&var, &is_late) in equation.outputs.iter().zip(&callee.unknown_out) {
                        depends[var.index()] = is_late;
                        if let Some(atom) = if is_late { late.next() } else { known.next() } {
                            rewriter.set(var, atom);
                        }
                    }
                }
                View::Cond(op) if mixed => {
                    let late = cond::partial_eval(self, &mut rewriter, equation, op, &flags)?;
                    mark(&mut depends, equation, &late);
                }
                View::While(op) if mixed => {
                    let late = while_loop::partial_eval(self, &mut rewriter, equation, op, &flags)?;
                    mark(&mut depends, equation, &late);
                }
                View::Sweeps(op) if mixed => {
                    let late = sweeps::partial_eval(self, &mut rewriter, equation, op, &flags)?;
                    mark(&mut depends, equation, &late);
                }
                View::Scan(op) if mixed => {
                    let late = scan::partial_eval(self, &mut rewriter, equation, op, &flags)?;
                    mark(&mut depends, equation, &late);
                }
                View::Checkpoint(op) if mixed => {
                    let late = checkpoint::partial_eval(self, &mut rewriter, equation, op, &flags)?;
                    mark(&mut depends, equation, &late);
                }
                // What derivative these have must not be split from what they compute.
                View::CustomJvp(_)
                | View::CustomVjp(_)
                | View::Ruled(..)
                | View::Checkpoint(_)
                | View::Call(_)
                | View::Cond(_)
                | View::While(_)
                | View::Sweeps(_)
                | View::Scan(_)
                | View::Leaf(_) => {
                    rewriter.copy(equation)?;
                    let any = flags.contains(&true);
                    for var in &equation.outputs {
                        depends[var.index()] = any;
                    }
                }
            }
        }
        rewriter.finish(&program.outputs)
    }

    fn call(&mut self, call: &Call, unknown: Vec<bool>) -> Result<Arc<SplitCall>> {
        if let Some(found) = self.calls.get(&call.program, unknown.clone()) {
            return Ok(found);
        }
        let parts = self.program(&call.program, &unknown, &[])?;
        let known_outputs = parts.unknown_out.iter().filter(|flag| !**flag).count();
        let halves = Halves::new(parts.known, parts.unknown, known_outputs);
        let callee = SplitCall { halves, unknown_out: parts.unknown_out };
        Ok(self.calls.insert(&call.program, unknown, Arc::new(callee)))
    }

    /// A partially evaluated sub-program; see [`partial_eval_with`].
    pub fn callee(
        &mut self,
        program: &Arc<Program>,
        unknown: &[bool],
        force: &[bool],
    ) -> Result<Arc<PartialEval>> {
        let key = (unknown.to_vec(), force.to_vec());
        if let Some(found) = self.callees.get(program, key.clone()) {
            return Ok(found);
        }
        let parts = self.program(program, unknown, force)?;
        Ok(self.callees.insert(program, key, Arc::new(parts)))
    }
}

/// Notes which outputs of an equation depend on unknown inputs.
fn mark(depends: &mut [bool], equation: &Equation, late: &[bool]) {
    for (var, &late) in equation.outputs.iter().zip(late) {
        depends[var.index()] = late;
    }
}
