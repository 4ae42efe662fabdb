//! A sub-program with other inputs and outputs than its own.
//!
//! Branches must take the same operands and loops hand on what they take, so
//! what a transformation made of a sub-program often gets further inputs that it
//! does not use, the old ones in another order, or zeros in place of outputs
//! that only others have. Invariants: effects stay; a program that comes out as it
//! was is the same object. Cost: linear; each wiring of a program is made once.

use std::sync::Arc;

use ferrax_ir::ops::RandomWrap;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Program, Result, Type, internal_error};

use crate::memo::Memo;
use crate::rewrite::{Rewriter, share};

/// An input of the new program.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    /// That input of the program.
    Old(usize),
    /// One more, which is not used.
    New(Type),
}

/// An output of the new program.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Output {
    /// That output of the program.
    Old(usize),
    /// A value of this type that nobody reads.
    Filler(ArrayType),
}

/// Inputs that are not named must be unused.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wiring {
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
}

/// What a program was made for: what it was made from is the memo's own key.
pub(crate) type Made = (&'static str, Vec<bool>, Vec<bool>);

#[derive(Default)]
pub(crate) struct Wirings(Memo<(Made, Wiring), Arc<Program>>);

impl Wirings {
    /// `program`, which a pass made of `origin` as `made` says, with this wiring.
    pub fn wire(
        &mut self,
        origin: &Arc<Program>,
        made: Made,
        program: &Program,
        wiring: Wiring,
    ) -> Result<Arc<Program>> {
        let key = (made, wiring);
        if let Some(found) = self.0.get(origin, key.clone()) {
            return Ok(found);
        }
        let wired = share(wire(program, &key.1)?, origin);
        Ok(self.0.insert(origin, key, wired))
    }

    /// The same for a program that is shared already.
    pub fn wire_shared(&mut self, program: &Arc<Program>, wiring: Wiring) -> Result<Arc<Program>> {
        self.wire(program, ("itself", Vec::new(), Vec::new()), program, wiring)
    }
}

/// `program` with this wiring.
pub(crate) fn wire(program: &Program, wiring: &Wiring) -> Result<Program> {
    let mut rewriter = Rewriter::new(program);
    for input in &wiring.inputs {
        match input {
            Input::Old(position) => {
                let var = program.inputs.get(*position);
                let var = var.ok_or_else(|| internal_error!("'{}' has no input {position}", program.name))?;
                rewriter.input(*var);
            }
            Input::New(ty) => {
                rewriter.builder.input(ty.clone());
            }
        }
    }
    rewriter.constants(|_| true);
    for equation in &program.equations {
        rewriter.copy(equation)?;
    }
    let mut outputs = Vec::with_capacity(wiring.outputs.len());
    for output in &wiring.outputs {
        outputs.push(match output {
            Output::Old(position) => {
                let atom = program.outputs.get(*position);
                let atom =
                    atom.ok_or_else(|| internal_error!("'{}' has no output {position}", program.name))?;
                rewriter.atom(atom)?
            }
            Output::Filler(ty) => filler(&mut rewriter.builder, ty)?,
        });
    }
    let result = rewriter.builder.finish(outputs);
    debug_verify(&result, "wiring")?;
    Ok(result)
}

/// Some value of this type: zeros, or keys of zeros.
pub(crate) fn filler(b: &mut Builder, ty: &ArrayType) -> Result<Atom> {
    let DType::Key(key) = ty.dtype else { return b.zeros(ty) };
    let mut shape = ty.shape.clone();
    shape.extend(key.key_shape().iter().map(|&extent| Dim::Const(extent)));
    let words = b.zeros(&ArrayType::new(shape, DType::U32))?;
    b.emit1(RandomWrap { r#impl: key.name().into() }, &[words])
}

/// Inputs and outputs as they are.
pub(crate) fn old_inputs(range: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Input> {
    range.into_iter().map(Input::Old)
}

pub(crate) fn old_outputs(range: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Output> {
    range.into_iter().map(Output::Old)
}
