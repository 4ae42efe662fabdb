//! Batching: a program over values with one more axis.
//!
//! In: a program, the size of the new axis, and for each input where it has
//! that axis, if it has. Out: the program over batches, with the axis of each
//! output. Invariants: equations without batched inputs are copied as they are;
//! an output that depends on no batched input is not batched unless asked for. The
//! new axis may have a name: ops over it become ops on arrays.
//! Cost: linear; each sub-program is treated once for each choice of axes.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::Call;
use ferrax_ir::rules::{Batch, Batched};
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{
    Atom, Builder, Dim, Equation, Op, Program, Result, Type, internal_error, unsupported, value_error,
};
use smallvec::SmallVec;

use crate::control::{checkpoint, cond, custom, ruled, scan, sweeps, while_loop};
use crate::memo::Memo;
use crate::reach::Reach;
use crate::rewrite::{Rewriter, at, check_flags, with_weak};

/// Where outputs shall have the new axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OutDims<'a> {
    /// Wherever it ends up.
    AsIs,
    /// In front, for outputs that are batched.
    Front,
    /// For each output where, or that it must not have one.
    Force(&'a [Option<usize>]),
}

/// `program` over a batch of `size`; see the module. `axis_name` is what
/// collectives call the new axis.
pub fn batch(
    program: &Program,
    size: &Dim,
    dims: &[Option<usize>],
    axis_name: Option<&str>,
    out_dims: OutDims<'_>,
) -> Result<(Program, Vec<Option<usize>>)> {
    Batching { size, axis_name, reach: Reach::between_lanes(axis_name), callees: Memo::default() }
        .program(program, dims, out_dims)
}

pub(crate) type Dims = Vec<Option<usize>>;

/// A batched callee and where its outputs have the axis.
pub(crate) type Callee = (Arc<Program>, Arc<[Option<usize>]>);

/// Where the inputs have the axis, and where outputs shall have it.
type Key = (Dims, Want);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Want {
    AsIs,
    Front,
    Force(Dims),
}

pub(crate) struct Batching<'a> {
    pub size: &'a Dim,
    pub axis_name: Option<&'a str>,
    pub reach: Reach,
    callees: Memo<Key, Callee>,
}

impl Batching<'_> {
    fn program(
        &mut self,
        program: &Program,
        dims: &[Option<usize>],
        out_dims: OutDims<'_>,
    ) -> Result<(Program, Dims)> {
        check_flags("batch", program, program.inputs.len(), dims.len())?;
        let mut rewriter = Rewriter::new(program);
        let mut map: Vec<Option<usize>> = vec![None; program.types.len()];
        for (position, (&var, &dim)) in program.inputs.iter().zip(dims).enumerate() {
            let Some(dim) = dim else {
                rewriter.input(var);
                continue;
            };
            let Type::Array(mut ty) = program.types[var.index()].clone() else {
                return Err(unsupported!(
                    "input {position} of '{}' is {} and cannot be batched",
                    program.name,
                    program.types[var.index()]
                ));
            };
            if dim > ty.rank() {
                return Err(internal_error!("batch dimension {dim} of an input of type {ty}"));
            }
            ty.shape.insert(dim, self.size.clone());
            let atom = rewriter.builder.input(ty);
            rewriter.set(var, atom);
            map[var.index()] = Some(dim);
        }
        rewriter.constants(|_| true);
        for equation in &program.equations {
            self.equation(&mut rewriter, &mut map, equation)?;
        }
        let mut outputs = Vec::with_capacity(program.outputs.len());
        let mut result_dims = Vec::with_capacity(program.outputs.len());
        if let OutDims::Force(wanted) = out_dims {
            check_flags("batch", program, program.outputs.len(), wanted.len())?;
        }
        for (position, atom) in program.outputs.iter().enumerate() {
            let have = atom.as_var().and_then(|var| map[var.index()]);
            let want = match out_dims {
                OutDims::AsIs => have,
                OutDims::Front => have.map(|_| 0),
                OutDims::Force(wanted) => wanted[position],
            };
            let atom = rewriter.atom(atom)?;
            outputs.push(self.place(&mut rewriter, atom, have, want)?);
            result_dims.push(want);
        }
        let result = rewriter.builder.finish(outputs);
        debug_verify(&result, "batch")?;
        Ok((result, result_dims))
    }

    /// An output with its batch axis where it is wanted.
    fn place(
        &self,
        rewriter: &mut Rewriter<'_>,
        atom: Atom,
        have: Option<usize>,
        want: Option<usize>,
    ) -> Result<Atom> {
        let b = &mut rewriter.builder;
        let rank = b.rank(atom) + usize::from(have.is_none());
        match (have, want) {
            (None, None) => Ok(atom),
            (_, Some(to)) if to >= rank => Err(value_error!(
                "vmap out_axes is {to}, which is out of bounds for an output of {rank} dimensions"
            )),
            (Some(from), Some(to)) => b.move_axis(atom, from, to),
            (None, Some(to)) => b.broadcast_batch(atom, self.size, to),
            (Some(_), None) => {
                let axis = self.axis_name.map(|name| format!(" (axis_name={name})")).unwrap_or_default();
                Err(value_error!(
                    "vmap has mapped output{axis} but out_axes is None; give the place of the mapped axis in out_axes, \
                     or return a value that does not depend on mapped arguments"
                ))
            }
        }
    }

    fn equation(
        &mut self,
        rewriter: &mut Rewriter<'_>,
        map: &mut [Option<usize>],
        equation: &Equation,
    ) -> Result<()> {
        let dims: SmallVec<[Option<usize>; 3]> =
            equation.inputs.iter().map(|atom| atom.as_var().and_then(|var| map[var.index()])).collect();
        // It sees the lanes, even if none of its inputs differs between them.
        let named = self.axis_name.is_some_and(|name| equation.op.names_axis(name));
        if dims.iter().all(Option::is_none) && !named {
            return rewriter.copy(equation);
        }
        rewriter.builder.source = equation.source;
        let inputs = rewriter.atoms(&equation.inputs)?;
        let outputs: Batched = match equation.op.view() {
            View::Leaf(rules) => {
                let (b, rule) = (&mut rewriter.builder, self.rule(&inputs, &dims));
                let batched = if named { rules.batch_named(b, &rule) } else { rules.batch(b, &rule) };
                at(equation, batched)?
            }
            View::Call(call) => {
                let (callee, out_dims) = at(equation, self.callee(&call.program, &dims, OutDims::AsIs))?;
                let op = Call { name: call.name.clone(), program: callee, inline: call.inline };
                let outputs = rewriter.builder.emit(op, &inputs)?;
                outputs.into_iter().map(Atom::Var).zip(out_dims.iter().copied()).collect()
            }
            View::Cond(op) => at(equation, cond::batch(self, &mut rewriter.builder, op, &inputs, &dims))?,
            View::While(op) => {
                at(equation, while_loop::batch(self, &mut rewriter.builder, op, &inputs, &dims))?
            }
            View::Sweeps(op) => at(equation, sweeps::batch(self, &mut rewriter.builder, op, &inputs, &dims))?,
            View::Scan(op) => at(equation, scan::batch(self, &mut rewriter.builder, op, &inputs, &dims))?,
            View::Checkpoint(op) => {
                at(equation, checkpoint::batch(self, &mut rewriter.builder, op, &inputs, &dims))?
            }
            View::CustomJvp(op) => {
                at(equation, custom::batch_jvp(self, &mut rewriter.builder, op, &inputs, &dims))?
            }
            View::CustomVjp(op) => {
                at(equation, custom::batch_vjp(self, &mut rewriter.builder, op, &inputs, &dims))?
            }
            View::Ruled(rules, _) => {
                let b = &mut rewriter.builder;
                let batched = match &equation.op {
                    Op::LinearCall(op) => ruled::batch_linear(self, b, op, &inputs, &dims),
                    Op::LinearSolve(op) => ruled::batch_solve(self, b, op, &inputs, &dims),
                    Op::CustomVmap(op) => ruled::batch_vmap(self, b, op, &inputs, &dims),
                    _ => rules.batch(b, &self.rule(&inputs, &dims)),
                };
                at(equation, batched)?
            }
        };
        if outputs.len() != equation.outputs.len() {
            return Err(internal_error!("the batch rule of {} lost outputs", equation.op.name()));
        }
        for (&var, (atom, dim)) in equation.outputs.iter().zip(outputs) {
            let logical = &rewriter.source.types[var.index()];
            self.check(rewriter, equation, logical, atom, dim)?;
            // Equations that are copied rely on the weakness of their inputs.
            let weak = logical.as_array().is_some_and(|ty| ty.weak);
            let atom = with_weak(&mut rewriter.builder, atom, weak)?;
            rewriter.set(var, atom);
            map[var.index()] = dim;
        }
        Ok(())
    }

    fn rule<'b>(&'b self, inputs: &'b [Atom], dims: &'b [Option<usize>]) -> Batch<'b> {
        Batch { size: self.size, axis_name: self.axis_name, inputs, dims }
    }

    /// Fails if a rule's output does not have the logical type with the batch axis.
    fn check(
        &self,
        rewriter: &Rewriter<'_>,
        equation: &Equation,
        logical: &Type,
        atom: Atom,
        dim: Option<usize>,
    ) -> Result<()> {
        let got = rewriter.builder.type_of(atom);
        let fits = match (logical, &got, dim) {
            (Type::Array(want), Type::Array(got), Some(dim)) => {
                let mut shape = want.shape.clone();
                let inside = dim <= shape.len();
                if inside {
                    shape.insert(dim, self.size.clone());
                }
                inside && shape == got.shape && want.dtype == got.dtype
            }
            (Type::Array(want), Type::Array(got), None) => want.shape == got.shape && want.dtype == got.dtype,
            (want, got, dim) => want == got && dim.is_none(),
        };
        if fits {
            return Ok(());
        }
        Err(internal_error!(
            "the batch rule of {} gave {got} (batched at {dim:?}) for an output {logical}",
            equation.op.name()
        ))
    }

    /// A batched sub-program; see [`batch`].
    pub fn callee(
        &mut self,
        program: &Arc<Program>,
        dims: &[Option<usize>],
        out_dims: OutDims<'_>,
    ) -> Result<Callee> {
        let want = match out_dims {
            OutDims::AsIs => Want::AsIs,
            OutDims::Front => Want::Front,
            OutDims::Force(dims) => Want::Force(dims.to_vec()),
        };
        let key = (dims.to_vec(), want);
        if let Some(found) = self.callees.get(program, key.clone()) {
            return Ok(found);
        }
        let (callee, out_dims) = self.program(program, dims, out_dims)?;
        Ok(self.callees.insert(program, key, (Arc::new(callee), out_dims.into())))
    }

    /// `atom` with its batch axis in front, if it has one.
    pub fn to_front(&self, b: &mut Builder, atom: Atom, dim: Option<usize>) -> Result<Atom> {
        match dim {
            Some(dim) => b.move_axis(atom, dim, 0),
            None => Ok(atom),
        }
    }

    /// `atom` with a batch axis in front, repeated if it has none.
    pub fn materialise(&self, b: &mut Builder, atom: Atom, dim: Option<usize>) -> Result<Atom> {
        match dim {
            Some(dim) => b.move_axis(atom, dim, 0),
            None => b.broadcast_batch(atom, self.size, 0),
        }
    }
}
