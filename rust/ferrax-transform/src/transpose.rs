//! Turns linear programs around.
//!
//! In: a program, the inputs in which it is linear, and which outputs have a
//! cotangent. Out: a program from the other inputs and those cotangents to the
//! cotangents of the linear inputs that are not zero, with a flag for each input
//! of the original (never set for one that is not linear). Invariants:
//! equations that do not depend on linear inputs are evaluated first, in order,
//! if they are needed (so is that part of a call or a loop that does not); cotangents of a variable that is used several times are
//! added in reverse order of use; a cotangent has the shape and dtype of its
//! variable, and at an input its weakness where nothing on the way is strong. Of what is read a part at a time the cotangent
//! is added to that part of the sum (`partly_read`). Cost: linear; each sub-program is treated once for each set of flags.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::{Call, Unary};
use ferrax_ir::rules::{Operand, Transpose};
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{ArrayType, Atom, Builder, Equation, Op, Program, Result, Type, Var, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::control::{checkpoint, cond, scan, sweeps, while_loop};
use crate::memo::{Flagged, Memo};
use crate::partial_eval::PartialEvaluation;
use crate::partly_read::{PartlyRead, reads_part};
use crate::reach::Reach;
use crate::rewrite::{Needed, Rewriter, at, check_flags, with_weak};

/// The transpose of `program`; see the module.
pub fn transpose(program: &Program, linear: &[bool], cotangents: &[bool]) -> Result<(Program, Vec<bool>)> {
    Transposition::default().program(program, &Wanted::of(linear, cotangents))
}

/// How a program is transposed.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Wanted {
    /// Linear inputs, and outputs with cotangents.
    pub linear: Vec<bool>,
    pub cotangents: Vec<bool>,
    /// Inputs that have a cotangent even if it is zero; none if there are no flags.
    pub instantiate: Vec<bool>,
    /// Linear inputs whose cotangent is added to a sum, which the transpose takes after all else and gives with it; none
    /// if there are no flags.
    pub onto: Vec<bool>,
}

impl Wanted {
    pub fn of(linear: &[bool], cotangents: &[bool]) -> Wanted {
        Wanted { linear: linear.to_vec(), cotangents: cotangents.to_vec(), ..Wanted::default() }
    }
}

/// Of each operand of a branch, a loop or a function, the sum of its cotangents so far. A rule that adds to it takes it
/// from here.
pub(crate) type Before = SmallVec<[Option<Atom>; 3]>;

pub(crate) type Cotangents = SmallVec<[Option<Atom>; 3]>;

#[derive(Default)]
pub(crate) struct Transposition {
    callees: Memo<Wanted, Flagged>,
    pub partly_read: PartlyRead,
    pub reach: Reach,
    pub scans: Memo<scan::Key, Arc<scan::Backward>>,
    /// For what a linear program computes of known values.
    pub evaluation: PartialEvaluation,
}

/// The cotangents so far, and which of them are strong though their variables are
/// weak: all that is computed from such a cotangent is strong, save by a conversion.
struct Sums<'a>(Vec<Option<Atom>>, Vec<bool>, &'a [Type]);

/// By variable, equations that read a part of it while nothing else was added up yet: they wait until that is.
type Waiting<'a> = FxHashMap<Var, SmallVec<[&'a Equation; 1]>>;

impl Sums<'_> {
    /// The sum so far of each linear operand, where the variable comes first.
    fn before(&self, atoms: &[Atom], operands: &[Operand]) -> Before {
        let sum = |(position, atom): (usize, &Atom)| {
            let first = operands[position].is_linear() && !atoms[..position].contains(atom);
            atom.as_var().filter(|_| first).and_then(|var| self.0[var.index()])
        };
        atoms.iter().enumerate().map(sum).collect()
    }

    fn forget(&mut self, of: &Atom) {
        if let Atom::Var(var) = of {
            self.0[var.index()] = None;
        }
    }

    /// Adds a cotangent of an atom; those of literals are nobody's. One that differs along axes along which the value does
    /// not is that of some devices only: a rule forgot to sum it.
    fn add(&mut self, b: &mut Builder, to: &Atom, cotangent: Atom) -> Result<()> {
        let Atom::Var(var) = to else { return Ok(()) };
        let (due, own) = (self.2[var.index()].varying().dual(), b.type_of(cotangent).varying());
        if !due.covers(own) {
            return Err(internal_error!(
                "a cotangent lies over the axes {:?}, that of its value is to lie over {:?}",
                own.names(),
                due.names()
            ));
        }
        let sum = match self.0[var.index()] {
            Some(before) => b.add(before, cotangent)?,
            None => cotangent,
        };
        self.0[var.index()] = Some(sum);
        Ok(())
    }
}

/// The type of a value's cotangent. Only a linear function of integers has
/// integer outputs that are wanted.
pub(crate) fn cotangent_type(ty: &ArrayType) -> ArrayType {
    let tangent = if ty.dtype.is_integer() { ty.clone() } else { ty.tangent() };
    let varying = tangent.varying.dual();
    tangent.with_varying(varying)
}

impl Transposition {
    fn program(&mut self, program: &Program, wanted: &Wanted) -> Result<(Program, Vec<bool>)> {
        let Wanted { linear, cotangents, instantiate, onto } = wanted;
        check_flags("transpose", program, program.inputs.len(), linear.len())?;
        check_flags("transpose", program, program.outputs.len(), cotangents.len())?;
        let separated;
        let program = if self.reach.parts(program, linear) {
            separated = self.evaluation.separate_calls(program, linear)?;
            &separated
        } else {
            program
        };
        let mut is_linear = vec![false; program.types.len()];
        for (var, &flag) in program.inputs.iter().zip(linear) {
            is_linear[var.index()] = flag;
        }
        let backward: Vec<bool> = program
            .equations
            .iter()
            .map(|equation| {
                let depends = equation.inputs.iter().filter_map(Atom::as_var).any(|v| is_linear[v.index()]);
                for var in &equation.outputs {
                    is_linear[var.index()] = depends;
                }
                depends
            })
            .collect();
        let forward = needed_forward(program, &backward);

        let mut rewriter = Rewriter::new(program);
        for (&var, _) in program.inputs.iter().zip(linear).filter(|(_, flag)| !**flag) {
            rewriter.input(var);
        }
        let mut sums =
            Sums(vec![None; program.types.len()], vec![false; program.types.len()], &program.types);
        let mut given = Vec::new();
        for (atom, _) in program.outputs.iter().zip(cotangents).filter(|(_, flag)| **flag) {
            let ty = match program.type_of(atom) {
                Type::Array(ty) => cotangent_type(&ty),
                other => return Err(internal_error!("an output of type {other} has no cotangent")),
            };
            given.push((atom, rewriter.builder.input(ty)));
        }
        for (&var, _) in program.inputs.iter().zip(onto).filter(|(_, flag)| **flag) {
            let Type::Array(ty) = &program.types[var.index()] else {
                return Err(internal_error!("a sum of cotangents of what is no array"));
            };
            sums.0[var.index()] = Some(rewriter.builder.input(cotangent_type(ty)));
        }
        rewriter.constants(|_| true);
        for (equation, _) in program.equations.iter().zip(&forward).filter(|(_, flag)| **flag) {
            rewriter.copy(equation)?;
        }
        for (atom, cotangent) in given {
            sums.add(&mut rewriter.builder, atom, cotangent)?;
        }
        let mut waiting = Waiting::default();
        for (equation, _) in program.equations.iter().zip(&backward).rev().filter(|(_, flag)| **flag) {
            for var in &equation.outputs {
                for read in waiting.remove(var).into_iter().flatten() {
                    self.equation(&mut rewriter, &mut sums, read, &is_linear)?;
                }
            }
            match equation.inputs.first() {
                Some(Atom::Var(var))
                    if is_linear[var.index()]
                        && sums.0[var.index()].is_none()
                        && reads_part(program, equation) =>
                {
                    waiting.entry(*var).or_default().push(equation);
                }
                _ => self.equation(&mut rewriter, &mut sums, equation, &is_linear)?,
            }
        }
        for var in &program.inputs {
            for read in waiting.remove(var).into_iter().flatten() {
                self.equation(&mut rewriter, &mut sums, read, &is_linear)?;
            }
        }

        let mut flags = Vec::with_capacity(program.inputs.len());
        let mut outputs = Vec::new();
        for (position, (&var, &flag)) in program.inputs.iter().zip(linear).enumerate() {
            let mut sum = sums.0[var.index()].filter(|_| flag);
            if let Type::Array(ty) = &program.types[var.index()]
                && sum.is_none()
                && flag
                && instantiate.get(position) == Some(&true)
            {
                sum = Some(rewriter.builder.zeros(&cotangent_type(ty))?);
            }
            flags.push(sum.is_some());
            if let Some(atom) = sum {
                let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
                let weak = weak && !sums.1[var.index()];
                outputs.push(with_weak(&mut rewriter.builder, atom, weak)?);
            }
        }
        let result = rewriter.builder.finish(outputs);
        debug_verify(&result, "transpose")?;
        Ok((result, flags))
    }

    fn equation(
        &mut self,
        rewriter: &mut Rewriter<'_>,
        sums: &mut Sums,
        equation: &Equation,
        is_linear: &[bool],
    ) -> Result<()> {
        let program = rewriter.source;
        let cotangents: SmallVec<[Option<Atom>; 1]> =
            equation.outputs.iter().map(|var| sums.0[var.index()]).collect();
        if cotangents.iter().all(Option::is_none) && !equation.op.happens() {
            return Ok(());
        }
        rewriter.builder.source = match equation.op.view() {
            View::Leaf(_) | View::Ruled(..) => equation.source.derivative_of(equation.op.name()),
            _ => equation.source,
        };
        let operands: SmallVec<[Operand; 3]> = equation
            .inputs
            .iter()
            .map(|atom| match atom {
                Atom::Var(var) if is_linear[var.index()] => {
                    let mut ty = program.types[var.index()].clone();
                    ty.vary(ty.varying().dual());
                    Ok(Operand::Linear(ty))
                }
                atom => rewriter.atom(atom).map(Operand::Known),
            })
            .collect::<Result<_>>()?;
        let mut before = sums.before(&equation.inputs, &operands);
        let given = before.clone();
        let b = &mut rewriter.builder;
        let found = match equation.op.view() {
            View::Leaf(rules) | View::Ruled(rules, _) => {
                let outputs: SmallVec<[Type; 1]> =
                    equation.outputs.iter().map(|var| program.types[var.index()].clone()).collect();
                let rule = Transpose { inputs: &operands, outputs: &outputs, cotangents: &cotangents };
                let sum = before.first().copied().flatten().filter(|_| reads_part(program, equation));
                match sum {
                    Some(sum) => rules.transpose_onto(b, &rule, sum).map(|sum| {
                        before[0] = None;
                        let others = std::iter::repeat_n(None, operands.len() - 1);
                        std::iter::once(Some(sum)).chain(others).collect()
                    }),
                    None => rules.transpose(b, &rule),
                }
            }
            View::Call(op) => self.call(b, op, &operands, &cotangents, &mut before),
            View::Cond(op) => cond::transpose(self, b, op, &operands, &cotangents, &mut before),
            View::While(op) => while_loop::transpose(self, b, op, &operands, &cotangents, &mut before),
            View::Sweeps(op) => sweeps::transpose(self, b, op, &operands, &cotangents, &mut before),
            View::Scan(op) => scan::transpose(self, b, op, &operands, &cotangents, &mut before),
            View::Checkpoint(op) => checkpoint::transpose(self, b, op, &operands, &cotangents, &mut before),
            View::CustomJvp(op) => self.inlined(b, &op.call_jaxpr, &operands, &cotangents, &mut before),
            View::CustomVjp(op) => self.inlined(b, &op.call_jaxpr, &operands, &cotangents, &mut before),
        };
        let result = at(equation, found)?;
        if result.len() != operands.len() {
            return Err(internal_error!(
                "the transpose rule of {} gave {} cotangents for {} inputs",
                equation.op.name(),
                result.len(),
                operands.len()
            ));
        }
        let converts = matches!(equation.op, Op::ConvertElementType(_));
        let strong = !converts && equation.outputs.iter().any(|var| sums.1[var.index()]);
        for (position, ((atom, operand), cotangent)) in
            equation.inputs.iter().zip(&operands).zip(result).enumerate()
        {
            let (Some(cotangent), Operand::Linear(ty)) = (cotangent, operand) else { continue };
            let got = rewriter.builder.type_of(cotangent);
            if let (Atom::Var(var), true) = (atom, ty.as_array().is_some_and(|ty| ty.weak)) {
                sums.1[var.index()] |= strong || strengthens(program, equation, position, &got);
            }
            let fits = match (ty, &got) {
                (Type::Array(ty), Type::Array(got)) => got.shape == ty.shape && got.dtype == ty.dtype,
                _ => false,
            };
            if !fits {
                return Err(internal_error!(
                    "the transpose rule of {} gave a cotangent {got} for an input {ty}",
                    equation.op.name()
                ));
            }
            if given[position].is_some() && before[position].is_none() {
                sums.forget(atom);
            }
            sums.add(&mut rewriter.builder, atom, cotangent)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        b: &mut Builder,
        call: &Call,
        operands: &[Operand],
        cotangents: &[Option<Atom>],
        before: &mut Before,
    ) -> Result<Cotangents> {
        let sums = self.take_read(&call.program, before);
        let (callee, flags) = self.callee(&call.program, operands, cotangents, &sums)?;
        if callee.outputs.is_empty() && callee.effects.is_empty() {
            return Ok(flags.iter().map(|_| None).collect());
        }
        let inputs = arguments(operands, cotangents, &sums);
        let op = Call { name: call.name.clone(), program: callee, inline: call.inline };
        let mut outputs = b.emit(op, &inputs)?.into_iter().map(Atom::Var);
        Ok(flags.iter().map(|&flag| if flag { outputs.next() } else { None }).collect())
    }

    /// The transposed equations of a sub-program in place of the equation.
    fn inlined(
        &mut self,
        b: &mut Builder,
        program: &Arc<Program>,
        operands: &[Operand],
        cotangents: &[Option<Atom>],
        before: &mut Before,
    ) -> Result<Cotangents> {
        let sums = self.take_read(program, before);
        let (callee, flags) = self.callee(program, operands, cotangents, &sums)?;
        let inputs = arguments(operands, cotangents, &sums);
        let mut outputs = b.inline(&callee, &inputs)?.into_iter();
        Ok(flags.iter().map(|&flag| if flag { outputs.next() } else { None }).collect())
    }

    /// The transpose of a sub-program for these operands, cotangents and sums of what they are added to.
    pub fn callee(
        &mut self,
        program: &Arc<Program>,
        operands: &[Operand],
        cotangents: &[Option<Atom>],
        sums: &[Option<Atom>],
    ) -> Result<Flagged> {
        let flags = |atoms: &[Option<Atom>]| atoms.iter().map(Option::is_some).collect();
        let linear = operands.iter().map(Operand::is_linear).collect();
        let (cotangents, onto) = (flags(cotangents), flags(sums));
        self.flagged(program, Wanted { linear, cotangents, instantiate: Vec::new(), onto })
    }

    /// The transpose of a sub-program: see [`transpose`].
    pub fn flagged(&mut self, program: &Arc<Program>, wanted: Wanted) -> Result<Flagged> {
        if let Some(found) = self.callees.get(program, wanted.clone()) {
            return Ok(found);
        }
        let (callee, flags) = self.program(program, &wanted)?;
        Ok(self.callees.insert(program, wanted, (Arc::new(callee), flags.into())))
    }

    /// Takes the sums so far of those operands, which are the inputs of `program`, of which it reads parts.
    pub fn take_read(&mut self, program: &Arc<Program>, before: &mut [Option<Atom>]) -> Before {
        if before.iter().all(Option::is_none) {
            return SmallVec::new();
        }
        let read = self.partly_read.inputs(program);
        before.iter_mut().zip(&*read).map(|(sum, &read)| if read { sum.take() } else { None }).collect()
    }
}

/// What the transpose of a sub-program is given: known operands, cotangents, sums.
pub(crate) fn arguments(
    operands: &[Operand],
    cotangents: &[Option<Atom>],
    sums: &[Option<Atom>],
) -> Vec<Atom> {
    let given = cotangents.iter().chain(sums).flatten().copied();
    operands.iter().filter_map(Operand::known).chain(given).collect()
}

/// Whether the cotangent, of this type, of a weak operand is strong by what the equation does.
fn strengthens(program: &Program, equation: &Equation, position: usize, cotangent: &Type) -> bool {
    let weak = |ty: &Type| ty.as_array().is_some_and(|ty| ty.weak);
    match equation.op.view() {
        View::Leaf(_) => match &equation.op {
            // The parts of a complex number that are not there are strong zeros.
            Op::Unary(Unary::Real | Unary::Imag) => true,
            Op::Concatenate(_) => !weak(&program.types[equation.outputs[0].index()]),
            _ => false,
        },
        View::Call(_) | View::Checkpoint(_) => !weak(cotangent),
        View::Scan(op) => match position.checked_sub(op.num_consts) {
            Some(carry) if carry < op.num_carry => !weak(&program.types[equation.outputs[carry].index()]),
            _ => false,
        },
        _ => false,
    }
}

/// The equations that are evaluated forwards: not linear, and needed by linear
/// ones or effectful.
fn needed_forward(program: &Program, backward: &[bool]) -> Vec<bool> {
    let mut needed = Needed::new(program);
    let mut forward = vec![false; program.equations.len()];
    for (index, equation) in program.equations.iter().enumerate().rev() {
        forward[index] = !backward[index] && (needed.any(&equation.outputs) || equation.op.happens());
        if forward[index] || backward[index] {
            needed.add(&equation.inputs);
        }
    }
    forward
}
