//! Rules of `custom_jvp_call` and `custom_vjp_call`: ask the user's rules for
//! programs and put these in the place of the call.
//!
//! Invariants: captured values (the first `num_consts` inputs) have no tangents;
//! a batched call has rules of its own, which batch what the inner rules give
//! when they are asked; all outputs of a batched call are batched in front, so
//! that the call and its rules agree.

use std::sync::Arc;

use ferrax_ir::ops::{
    CustomJvp, CustomLinear, CustomVjp, FlaggedProgram, JvpHandle, JvpRule, VjpHandle, VjpRule, ZeroLike,
};
use ferrax_ir::rules::Batched;
use ferrax_ir::{Atom, Builder, Dim, Equation, Error, Program, Result, internal_error, type_error};

use crate::batch::{Batching, Dims, OutDims, batch};
use crate::jvp::{Calls, Forward, Tangents};
use crate::partial_eval::partial_eval_with;
use crate::rewrite::{Rewriter, with_weak};

/// Sets the equation's outputs to what a rule computes.
fn set_outputs(
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    name: &str,
    outputs: impl IntoIterator<Item = Atom>,
) -> Result<()> {
    let mut outputs = outputs.into_iter();
    for &var in &equation.outputs {
        let expected = rewriter.source.types[var.index()].clone();
        let atom =
            outputs.next().ok_or_else(|| internal_error!("the rule of '{name}' gave too few outputs"))?;
        let got = rewriter.builder.type_of(atom);
        let same = match (expected.as_array(), got.as_array()) {
            (Some(want), Some(got)) => want.shape == got.shape && want.dtype == got.dtype,
            _ => expected == got,
        };
        if !same {
            return Err(type_error!(
                "the derivative rule of '{name}' must give outputs of the types of the function: expected {expected}, \
                 got {got}"
            ));
        }
        let weak = expected.as_array().is_some_and(|ty| ty.weak);
        let atom = with_weak(&mut rewriter.builder, atom, weak)?;
        rewriter.set(var, atom);
    }
    Ok(())
}

pub(crate) fn forward_jvp(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &CustomJvp,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let rule = &op.jvp_jaxpr_fun.0;
    if tangents[..op.num_consts].iter().any(Option::is_some) {
        return Err(rule.closed_over());
    }
    let arguments = rewriter.atoms(&equation.inputs)?;
    let mut nonzero = Vec::with_capacity(arguments.len());
    let mut given = Vec::new();
    for (position, (&argument, tangent)) in arguments.iter().zip(tangents).enumerate() {
        let inexact = rewriter.builder.type_of(argument).as_array().is_some_and(|ty| ty.dtype.is_inexact());
        let tangent = match tangent {
            None if inexact && position >= op.num_consts && !op.symbolic_zeros => {
                let ty = rewriter.builder.array_type(argument)?;
                Some(rewriter.builder.zeros(&ty.tangent())?)
            }
            other => *other,
        };
        nonzero.push(tangent.is_some());
        given.extend(tangent);
    }
    let (program, flags) = rule.program(&nonzero)?;
    let outputs = equation.outputs.len();
    if flags.len() != outputs {
        return Err(internal_error!(
            "the rule of '{}' flags {} of {outputs} outputs",
            rule.name(),
            flags.len()
        ));
    }
    let all: Vec<Atom> = arguments.iter().copied().chain(given.iter().copied()).collect();
    let found: Vec<Atom> = match forward.calls {
        Calls::Jvp => {
            let results = rewriter.builder.inline(&program, &all)?;
            set_outputs(rewriter, equation, &rule.name(), results[..outputs].iter().copied())?;
            results[outputs..].to_vec()
        }
        Calls::Linearize => {
            // What depends on no tangent goes to the primal half.
            let unknown: Vec<bool> = (0..all.len()).map(|position| position >= arguments.len()).collect();
            let force: Vec<bool> = (0..program.outputs.len()).map(|position| position >= outputs).collect();
            let parts = partial_eval_with(&program, &unknown, &force)?;
            if parts.unknown_out[..outputs].contains(&true) {
                return Err(type_error!(
                    "the jvp rule of '{}' computes its primal output from tangents",
                    rule.name()
                ));
            }
            let known = rewriter.builder.inline(&parts.known, &arguments)?;
            set_outputs(rewriter, equation, &rule.name(), known[..outputs].iter().copied())?;
            let inputs: Vec<Atom> = known[outputs..].iter().copied().chain(given).collect();
            rewriter.builder.inline(&parts.unknown, &inputs)?.to_vec()
        }
    };
    let mut found = found.into_iter();
    Ok(flags.iter().map(|&flag| if flag { found.next() } else { None }).collect())
}

pub(crate) fn forward_vjp(
    forward: &mut Forward,
    rewriter: &mut Rewriter<'_>,
    equation: &Equation,
    op: &CustomVjp,
    tangents: &[Option<Atom>],
) -> Result<Tangents> {
    let rule = &op.rule.0;
    if tangents[..op.num_consts].iter().any(Option::is_some) {
        return Err(rule.closed_over());
    }
    if forward.calls == Calls::Jvp && !forward.linearizes {
        return Err(type_error!(
            "can't apply forward-mode differentiation (jvp) to a custom_vjp function: '{}' has a reverse rule only. \
             Use reverse mode (grad, vjp, jacrev), or define the derivative with custom_jvp, which serves both.",
            rule.name()
        ));
    }
    let perturbed: Vec<bool> = tangents.iter().map(Option::is_some).collect();
    let arguments = rewriter.atoms(&equation.inputs)?;
    let program = rule.forward(&perturbed)?;
    let results = rewriter.builder.inline(&program, &arguments)?;
    let count = equation.outputs.len();
    let Some(residuals) = results.get(count..) else {
        return Err(internal_error!("the forward rule of '{}' gave too few outputs", rule.name()));
    };
    if forward.keeps_functions && rule.optimize_remat() {
        rewriter.copy(equation)?;
    } else {
        set_outputs(rewriter, equation, &rule.name(), results[..count].iter().copied())?;
    }
    let inexact: Vec<Option<ZeroLike>> = equation
        .outputs
        .iter()
        .map(|var| {
            let ty = rewriter.source.types[var.index()].as_array()?;
            ty.dtype.is_inexact().then(|| ZeroLike(ty.tangent().with_weak(false)))
        })
        .collect();
    let linear = CustomLinear {
        num_res: residuals.len(),
        outputs: inexact.iter().flatten().cloned().collect(),
        perturbed,
        rule: op.rule.clone(),
        symbolic_zeros: op.symbolic_zeros,
    };
    let inputs: Vec<Atom> = residuals.iter().copied().chain(tangents.iter().flatten().copied()).collect();
    let mut outputs = rewriter.builder.emit(linear, &inputs)?.into_iter().map(Atom::Var);
    Ok(inexact.iter().map(|ty| ty.as_ref().and_then(|_| outputs.next())).collect())
}

/// What a batched rule knows of its batch.
#[derive(Clone, Debug)]
struct Over {
    size: Dim,
    axis_name: Option<Arc<str>>,
    /// Where the call's inputs have the axis.
    dims: Dims,
}

impl Over {
    fn new(batching: &Batching<'_>, dims: &[Option<usize>]) -> Over {
        Over {
            size: batching.size.clone(),
            axis_name: batching.axis_name.map(Arc::from),
            dims: dims.to_vec(),
        }
    }

    fn batch(&self, program: &Program, dims: &[Option<usize>], out: OutDims<'_>) -> Result<(Program, Dims)> {
        batch(program, &self.size, dims, self.axis_name.as_deref(), out)
    }
}

#[derive(Debug)]
struct BatchedJvp {
    inner: JvpHandle,
    over: Over,
}

impl JvpRule for BatchedJvp {
    fn name(&self) -> String {
        self.inner.0.name()
    }

    fn closed_over(&self) -> Error {
        self.inner.0.closed_over()
    }

    fn program(&self, nonzero: &[bool]) -> Result<FlaggedProgram> {
        let (program, flags) = self.inner.0.program(nonzero)?;
        let tangents = self.over.dims.iter().zip(nonzero).filter(|(_, flag)| **flag).map(|(dim, _)| *dim);
        let dims: Dims = self.over.dims.iter().copied().chain(tangents).collect();
        let front = vec![Some(0); program.outputs.len()];
        let (batched, _) = self.over.batch(&program, &dims, OutDims::Force(&front))?;
        Ok((Arc::new(batched), flags))
    }
}

pub(crate) fn batch_jvp(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &CustomJvp,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let front = vec![Some(0); op.call_jaxpr.outputs.len()];
    let (call_jaxpr, _) = batching.callee(&op.call_jaxpr, dims, OutDims::Force(&front))?;
    let rule = BatchedJvp { inner: op.jvp_jaxpr_fun.clone(), over: Over::new(batching, dims) };
    let batched = CustomJvp { call_jaxpr, jvp_jaxpr_fun: JvpHandle(Arc::new(rule)), ..op.clone() };
    Ok(b.emit(batched, inputs)?.into_iter().map(|var| (Atom::Var(var), Some(0))).collect())
}

#[derive(Debug)]
struct BatchedVjp {
    inner: VjpHandle,
    over: Over,
    outputs: usize,
}

impl BatchedVjp {
    /// The forward program with the axis in front of all outputs and of the
    /// residuals that have it: which ones do.
    fn forward(&self, perturbed: &[bool]) -> Result<(Program, Dims)> {
        let program = self.inner.0.forward(perturbed)?;
        let (_, mut dims) = self.over.batch(&program, &self.over.dims, OutDims::AsIs)?;
        for (position, dim) in dims.iter_mut().enumerate() {
            *dim = if position < self.outputs { Some(0) } else { dim.map(|_| 0) };
        }
        let (batched, _) = self.over.batch(&program, &self.over.dims, OutDims::Force(&dims))?;
        Ok((batched, dims.split_off(self.outputs)))
    }
}

impl VjpRule for BatchedVjp {
    fn name(&self) -> String {
        self.inner.0.name()
    }

    fn closed_over(&self) -> Error {
        self.inner.0.closed_over()
    }

    fn forward(&self, perturbed: &[bool]) -> Result<Arc<Program>> {
        BatchedVjp::forward(self, perturbed).map(|(program, _)| Arc::new(program))
    }

    fn backward(&self, perturbed: &[bool], given: &[bool]) -> Result<FlaggedProgram> {
        let (_, residuals) = BatchedVjp::forward(self, perturbed)?;
        let (program, flags) = self.inner.0.backward(perturbed, given)?;
        let cotangents = given.iter().filter(|flag| **flag).map(|_| Some(0));
        let dims: Dims = residuals.into_iter().chain(cotangents).collect();
        let (batched, found) = self.over.batch(&program, &dims, OutDims::AsIs)?;
        // A cotangent has its axis where the argument has it; that of an argument
        // that all lanes share is the sum over the lanes.
        let mut b = Builder::new(batched.name.clone());
        let inputs: Vec<Atom> = batched.input_types().map(|ty| b.input(ty.clone())).collect();
        let results = b.inline(&batched, &inputs)?;
        let wanted = self.over.dims.iter().zip(flags.iter()).filter(|(_, flag)| **flag).map(|(dim, _)| *dim);
        let mut outputs = Vec::with_capacity(results.len());
        for ((atom, have), want) in results.into_iter().zip(found).zip(wanted) {
            outputs.push(match (have, want) {
                (None, None) => atom,
                (Some(have), None) => b.reduce_sum(atom, &[have])?,
                (None, Some(want)) => b.broadcast_batch(atom, &self.over.size, want)?,
                (Some(have), Some(want)) => b.move_axis(atom, have, want)?,
            });
        }
        Ok((Arc::new(b.finish(outputs)), flags))
    }

    fn optimize_remat(&self) -> bool {
        self.inner.0.optimize_remat()
    }
}

pub(crate) fn batch_vjp(
    batching: &mut Batching<'_>,
    b: &mut Builder,
    op: &CustomVjp,
    inputs: &[Atom],
    dims: &[Option<usize>],
) -> Result<Batched> {
    let front = vec![Some(0); op.call_jaxpr.outputs.len()];
    let (call_jaxpr, _) = batching.callee(&op.call_jaxpr, dims, OutDims::Force(&front))?;
    let rule = BatchedVjp {
        inner: op.rule.clone(),
        over: Over::new(batching, dims),
        outputs: op.call_jaxpr.outputs.len(),
    };
    let batched = CustomVjp { call_jaxpr, rule: VjpHandle(Arc::new(rule)), ..op.clone() };
    Ok(b.emit(batched, inputs)?.into_iter().map(|var| (Atom::Var(var), Some(0))).collect())
}
