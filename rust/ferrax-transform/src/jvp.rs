//! Forward-mode derivatives (Jacobian times vector).
//!
//! In: a program and which of its inputs have tangents that may differ from
//! zero. Out: a program from primals and those tangents to primal outputs and
//! the tangents of the outputs that depend on them, with a flag for each output.
//! Invariants: tangents that are zero are never computed; integers, keys,
//! tokens and references have none; a tangent has the shape and dtype of its
//! primal, an output's tangent its weakness too. Cost: linear; each sub-program
//! is treated once for each set of flags.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::Call;
use ferrax_ir::rules::{Jvp, Rules, WithTangents};
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Builder, Equation, Op, Program, Result, Type, internal_error, type_error};
use smallvec::SmallVec;

use crate::control::wiring::Wirings;
use crate::control::{checkpoint, cond, custom, ruled, scan, sweeps, while_loop};
use crate::linearize::{Linearized, LinearizedCall};
use crate::memo::{Flagged, Memo};
use crate::reach::Reach;
use crate::rewrite::{Rewriter, at, check_flags, with_weak};
use crate::row_blocks::{block_bytes, row_blocks};

/// The jvp of `program`; see the module.
pub fn jvp(program: &Program, nonzero: &[bool]) -> Result<(Program, Vec<bool>)> {
    jvp_with(program, nonzero, &[])
}

/// The same, where outputs flagged in `instantiate` have a tangent even if it
/// is zero. No flags mean none; integers cannot be flagged.
pub fn jvp_with(program: &Program, nonzero: &[bool], instantiate: &[bool]) -> Result<(Program, Vec<bool>)> {
    Forward::new(Calls::Jvp).jvp(program, nonzero, instantiate)
}

/// How sub-programs are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// One call that gives primals and tangents.
    Jvp,
    /// A call for the primals, another for the tangents.
    Linearize,
}

/// A program under differentiation: primals and tangents in one builder.
pub(crate) struct Joint {
    pub builder: Builder,
    pub outputs: Vec<Atom>,
    pub tangents: Vec<Option<Atom>>,
}

/// The forward pass that `jvp` and `linearize` share.
pub(crate) struct Forward {
    pub calls: Calls,
    /// Whether the tangents are for a linear program, which may be turned around. Loops are
    /// treated as for `jvp` then, yet rules for the reverse alone will do.
    pub linearizes: bool,
    /// Whether values are those of functions whose rules leave them to these
    /// ([`ferrax_ir::ops::VjpRule::optimize_remat`]), for a primal half without residuals.
    pub keeps_functions: bool,
    jvps: Memo<Flags, Flagged>,
    pub linearized: Memo<Flags, Arc<Linearized>>,
    pub linearized_calls: Memo<Vec<bool>, Arc<LinearizedCall>>,
    pub rematerialised: Memo<checkpoint::Key, Arc<checkpoint::Rematerialised>>,
    pub reach: Reach,
    pub scan_jvps: Memo<scan::Key, Arc<scan::ScanJvp>>,
    pub scans: Memo<scan::Key, Arc<scan::LinearizedScan>>,
    pub wirings: Wirings,
}

/// Inputs with tangents, and outputs that must have one.
pub(crate) type Flags = (Vec<bool>, Vec<bool>);

pub(crate) type Tangents = SmallVec<[Option<Atom>; 1]>;

impl Forward {
    pub fn new(calls: Calls) -> Self {
        Forward {
            linearizes: calls == Calls::Linearize,
            keeps_functions: false,
            calls,
            jvps: Memo::default(),
            linearized: Memo::default(),
            linearized_calls: Memo::default(),
            rematerialised: Memo::default(),
            reach: Reach::default(),
            scan_jvps: Memo::default(),
            scans: Memo::default(),
            wirings: Wirings::default(),
        }
    }

    fn jvp(
        &mut self,
        program: &Program,
        nonzero: &[bool],
        instantiate: &[bool],
    ) -> Result<(Program, Vec<bool>)> {
        let joint = self.joint(program, nonzero, instantiate)?;
        let flags = joint.tangents.iter().map(Option::is_some).collect();
        let outputs = joint.outputs.into_iter().chain(joint.tangents.into_iter().flatten());
        let result = joint.builder.finish(outputs);
        debug_verify(&result, "jvp")?;
        Ok((result, flags))
    }

    /// Differentiates all equations. The builder's inputs are the primals and
    /// then the tangents.
    pub fn joint(&mut self, program: &Program, nonzero: &[bool], instantiate: &[bool]) -> Result<Joint> {
        check_flags("jvp", program, program.inputs.len(), nonzero.len())?;
        let blocks = row_blocks(program, block_bytes())?;
        let program = blocks.as_ref().unwrap_or(program);
        let mut rewriter = Rewriter::with_inputs(program);
        rewriter.constants(|_| true);
        let mut tangents: Vec<Option<Atom>> = vec![None; program.types.len()];
        for (position, (var, _)) in program.inputs.iter().zip(nonzero).enumerate().filter(|(_, (_, f))| **f) {
            let tangent = match &program.types[var.index()] {
                Type::Array(ty) if ty.dtype.is_inexact() => ty.tangent(),
                other => {
                    return Err(type_error!(
                        "input {position} of '{}' is {other}, which has no tangent: only floats and complex \
                         numbers can be differentiated",
                        program.name
                    ));
                }
            };
            tangents[var.index()] = Some(rewriter.builder.input(tangent));
        }
        for equation in &program.equations {
            let found: Tangents = equation
                .inputs
                .iter()
                .map(|atom| atom.as_var().and_then(|var| tangents[var.index()]))
                .collect();
            // A value without a tangent has its stand-in beside others that have tangents.
            let matters = matches!(equation.op, Op::StandIn(_));
            if found.iter().all(Option::is_none) && !matters {
                rewriter.copy(equation)?;
                continue;
            }
            rewriter.builder.source = equation.source;
            let outputs = match equation.op.view() {
                View::Leaf(rules) => {
                    let inputs = rewriter.atoms(&equation.inputs)?;
                    match rules.jvp_joint(&mut rewriter.builder, &inputs, &found) {
                        Some(joint) => set_joint(&mut rewriter, equation, at(equation, joint)?)?,
                        None => by_rule(&mut rewriter, equation, rules, &found)?,
                    }
                }
                View::Call(op) => at(equation, self.call(&mut rewriter, equation, op, &found))?,
                View::Cond(op) => at(equation, cond::forward(self, &mut rewriter, equation, op, &found))?,
                View::While(op) => {
                    at(equation, while_loop::forward(self, &mut rewriter, equation, op, &found))?
                }
                View::Sweeps(op) => at(equation, sweeps::forward(self, &mut rewriter, equation, op, &found))?,
                View::Scan(op) => at(equation, scan::forward(self, &mut rewriter, equation, op, &found))?,
                View::Checkpoint(op) => {
                    at(equation, checkpoint::forward(self, &mut rewriter, equation, op, &found))?
                }
                View::CustomJvp(op) => {
                    at(equation, custom::forward_jvp(self, &mut rewriter, equation, op, &found))?
                }
                View::CustomVjp(op) => {
                    at(equation, custom::forward_vjp(self, &mut rewriter, equation, op, &found))?
                }
                View::Ruled(rules, _) => match &equation.op {
                    Op::LinearSolve(op) => {
                        at(equation, ruled::forward_solve(self, &mut rewriter, equation, op, &found))?
                    }
                    Op::CustomVmap(op) => {
                        at(equation, ruled::forward_vmap(self, &mut rewriter, equation, op, &found))?
                    }
                    _ => by_rule(&mut rewriter, equation, rules, &found)?,
                },
            };
            if outputs.len() != equation.outputs.len() {
                return Err(internal_error!(
                    "the jvp rule of {} gave {} tangents for {} outputs",
                    equation.op.name(),
                    outputs.len(),
                    equation.outputs.len()
                ));
            }
            for (&var, tangent) in equation.outputs.iter().zip(outputs) {
                tangents[var.index()] =
                    checked_tangent(&rewriter.builder, equation, &program.types[var.index()], tangent)?;
            }
        }
        let mut outputs = Vec::with_capacity(program.outputs.len());
        let mut output_tangents = Vec::with_capacity(program.outputs.len());
        for (position, atom) in program.outputs.iter().enumerate() {
            outputs.push(rewriter.atom(atom)?);
            let ty = program.type_of(atom);
            let mut tangent = atom.as_var().and_then(|var| tangents[var.index()]);
            if let (Some(value), Some(ty)) = (tangent, ty.as_array()) {
                tangent = Some(with_weak(&mut rewriter.builder, value, ty.weak)?);
            } else if instantiate.get(position).copied().unwrap_or(false) {
                let ty = ty.as_array().filter(|ty| ty.dtype.is_inexact()).ok_or_else(|| {
                    internal_error!("output {position} of '{}' is {ty} and has no tangent", program.name)
                })?;
                tangent = Some(rewriter.builder.zeros(ty)?);
            }
            output_tangents.push(tangent);
        }
        Ok(Joint { builder: rewriter.builder, outputs, tangents: output_tangents })
    }

    /// The jvp of a sub-program, as [`jvp_with`] gives it.
    pub fn jvp_callee(
        &mut self,
        program: &Arc<Program>,
        nonzero: &[bool],
        instantiate: &[bool],
    ) -> Result<Flagged> {
        let key = (nonzero.to_vec(), instantiate.to_vec());
        if let Some(found) = self.jvps.get(program, key.clone()) {
            return Ok(found);
        }
        let (callee, flags) = self.jvp(program, nonzero, instantiate)?;
        Ok(self.jvps.insert(program, key, (Arc::new(callee), flags.into())))
    }

    fn call(
        &mut self,
        rewriter: &mut Rewriter<'_>,
        equation: &Equation,
        call: &Call,
        tangents: &[Option<Atom>],
    ) -> Result<Tangents> {
        let arguments = rewriter.atoms(&equation.inputs)?;
        let (primals, result) = self.emit_call(&mut rewriter.builder, call, &arguments, tangents)?;
        for (&var, atom) in equation.outputs.iter().zip(primals) {
            rewriter.set(var, atom);
        }
        Ok(result)
    }

    /// Emits a call and its derivative: the outputs and their tangents.
    pub fn emit_call(
        &mut self,
        b: &mut Builder,
        call: &Call,
        arguments: &[Atom],
        tangents: &[Option<Atom>],
    ) -> Result<(Vec<Atom>, Tangents)> {
        let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
        let given = tangents.iter().flatten().copied();
        if self.calls == Calls::Linearize {
            let callee = self.linearized_call(&call.program, nonzero)?;
            return callee.emit(b, call, arguments, given);
        }
        let (callee, flags) = self.jvp_callee(&call.program, &nonzero, &[])?;
        let inputs: Vec<Atom> = arguments.iter().copied().chain(given).collect();
        let op = Call { name: call.name.clone(), program: callee, inline: call.inline };
        let mut outputs = b.emit(op, &inputs)?.into_iter().map(Atom::Var);
        let primals = outputs.by_ref().take(flags.len()).collect();
        Ok((primals, flags.iter().map(|&flag| if flag { outputs.next() } else { None }).collect()))
    }
}

/// The tangents that an op's rule emits after the op itself.
fn by_rule(
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    rules: &dyn Rules,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let inputs = rewriter.atoms(&equation.inputs)?;
    rewriter.copy(equation)?;
    let outputs: SmallVec<[Atom; 2]> =
        equation.outputs.iter().map(|&var| rewriter.atom(&Atom::Var(var))).collect::<Result<_>>()?;
    let rule = Jvp { inputs: &inputs, tangents, outputs: &outputs };
    rewriter.builder.source = equation.source.derivative_of(equation.op.name());
    at(equation, rules.jvp(&mut rewriter.builder, &rule))
}

/// Puts the outputs that a joint rule gave in the place of the equation's; their
/// tangents.
fn set_joint(rewriter: &mut Rewriter<'_>, equation: &Equation, joint: WithTangents) -> Result<Tangents> {
    if joint.len() != equation.outputs.len() {
        return Err(internal_error!(
            "the jvp rule of {} gave {} outputs of {}",
            equation.op.name(),
            joint.len(),
            equation.outputs.len()
        ));
    }
    let types: SmallVec<[Type; 1]> = rewriter.output_types(equation).collect();
    let mut tangents = Tangents::new();
    for ((&var, ty), (mut atom, tangent)) in equation.outputs.iter().zip(&types).zip(joint) {
        let got = rewriter.builder.type_of(atom);
        match (ty, &got) {
            (Type::Array(want), Type::Array(got)) if want.shape == got.shape && want.dtype == got.dtype => {
                atom = with_weak(&mut rewriter.builder, atom, want.weak)?;
            }
            (want, got) if want == got => {}
            _ => {
                return Err(internal_error!(
                    "the jvp rule of {} gave {got} for an output {ty}",
                    equation.op.name()
                ));
            }
        }
        rewriter.set(var, atom);
        tangents.push(tangent);
    }
    Ok(tangents)
}

/// The tangent that a rule gave, if it has the type that it must have.
fn checked_tangent(
    b: &Builder,
    equation: &Equation,
    primal: &Type,
    tangent: Option<Atom>,
) -> Result<Option<Atom>> {
    let Some(atom) = tangent else { return Ok(None) };
    let Some(primal) = primal.as_array().filter(|ty| ty.dtype.is_inexact()) else { return Ok(None) };
    let got = b.type_of(atom);
    match got.as_array() {
        Some(got) if got.shape == primal.shape && got.dtype == primal.dtype => Ok(Some(atom)),
        _ => Err(internal_error!(
            "the jvp rule of {} gave a tangent {got} for an output {primal}",
            equation.op.name()
        )),
    }
}
