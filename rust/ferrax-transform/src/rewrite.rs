//! Copying equations from one program into another, with new numbers.
//!
//! Invariants: equations are copied in order, so a variable is mapped before it
//! is used; constants come along when first used; types are taken over as they
//! are, so atoms put in a variable's place must have its type.

use std::sync::Arc;

use ferrax_ir::builder::substitute;
use ferrax_ir::program::Atoms;
use ferrax_ir::{Atom, Builder, Equation, Error, Op, Program, Result, Type, Var, internal_error};

pub(crate) struct Rewriter<'a> {
    pub source: &'a Program,
    pub builder: Builder,
    map: Vec<Option<Atom>>,
}

impl<'a> Rewriter<'a> {
    /// Starts a copy without inputs.
    pub fn new(source: &'a Program) -> Self {
        Rewriter { source, builder: Builder::new(source.name.clone()), map: vec![None; source.types.len()] }
    }

    /// Starts a copy with the same inputs.
    pub fn with_inputs(source: &'a Program) -> Self {
        let mut rewriter = Rewriter::new(source);
        for &var in &source.inputs {
            rewriter.input(var);
        }
        rewriter
    }

    pub fn input(&mut self, var: Var) -> Atom {
        let atom = self.builder.input(self.source.types[var.index()].clone());
        self.map[var.index()] = Some(atom);
        atom
    }

    pub fn set(&mut self, var: Var, atom: Atom) {
        self.map[var.index()] = Some(atom);
    }

    /// Brings the constants for which `keep` holds; others may not be used.
    pub fn constants(&mut self, keep: impl Fn(Var) -> bool) {
        for (var, tensor) in self.source.constants.iter().filter(|(var, _)| keep(*var)) {
            let weak = self.source.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            let atom = self.builder.constant(tensor.clone(), weak);
            self.map[var.index()] = Some(atom);
        }
    }

    pub fn atom(&self, atom: &Atom) -> Result<Atom> {
        match atom {
            Atom::Var(var) => self.map[var.index()].ok_or_else(|| {
                internal_error!("variable {} of '{}' is used before it is mapped", var.0, self.source.name)
            }),
            literal => Ok(*literal),
        }
    }

    pub fn atoms(&self, atoms: &[Atom]) -> Result<Atoms> {
        substitute(&self.map, atoms)
    }

    /// The types of the equation's outputs.
    pub fn output_types(&self, equation: &Equation) -> impl Iterator<Item = Type> + use<'a> {
        let source = self.source;
        let outputs = equation.outputs.clone();
        outputs.into_iter().map(move |var| source.types[var.index()].clone())
    }

    pub fn copy(&mut self, equation: &Equation) -> Result<()> {
        let inputs = self.atoms(&equation.inputs)?;
        self.copy_as(equation, equation.op.clone(), &inputs)
    }

    /// Copies the equation with another op and other inputs that give outputs
    /// of the same types.
    pub fn copy_as(&mut self, equation: &Equation, op: Op, inputs: &[Atom]) -> Result<()> {
        let types = self.output_types(equation);
        self.builder.source = equation.source;
        let outputs = self.builder.emit_typed(op, inputs, types);
        for (old, new) in equation.outputs.iter().zip(outputs) {
            self.map[old.index()] = Some(Atom::Var(new));
        }
        Ok(())
    }

    pub fn finish(self, outputs: &[Atom]) -> Result<Program> {
        let outputs = outputs.iter().map(|atom| self.atom(atom)).collect::<Result<Vec<_>>>()?;
        Ok(self.builder.finish(outputs))
    }
}

/// See [`Builder::with_weak`].
pub(crate) fn with_weak(b: &mut Builder, atom: Atom, weak: bool) -> Result<Atom> {
    b.with_weak(atom, weak)
}

/// Adds the user's line to why a rule refused an equation. The innermost line
/// stays: an error that names one is passed on.
pub(crate) fn at<T>(equation: &Equation, result: Result<T>) -> Result<T> {
    const MARK: &str = "\n  at ";
    result.map_err(|error| {
        let Some(line) = equation.source.line() else { return error };
        let place = |text: String| {
            if text.contains(MARK) { text } else { format!("{text}{MARK}{line}") }
        };
        match error {
            Error::Type(text) => Error::Type(place(text)),
            Error::Value(text) => Error::Value(place(text)),
            Error::Unsupported(text) => Error::Unsupported(place(text)),
            Error::Name(text) => Error::Name(place(text)),
            Error::Internal(text) => Error::Internal(place(text)),
            other => other,
        }
    })
}

/// Fails unless there is one flag for each of `count` things.
pub(crate) fn check_flags(what: &str, program: &Program, count: usize, flags: usize) -> Result<()> {
    if count == flags {
        return Ok(());
    }
    Err(internal_error!("{what} of '{}': {flags} flags for {count} values", program.name))
}

/// Variables that are needed for something, found going backwards.
pub(crate) struct Needed(Vec<bool>);

impl Needed {
    pub fn new(program: &Program) -> Self {
        Needed(vec![false; program.types.len()])
    }

    pub fn add<'a>(&mut self, atoms: impl IntoIterator<Item = &'a Atom>) {
        for var in atoms.into_iter().filter_map(Atom::as_var) {
            self.0[var.index()] = true;
        }
    }

    pub fn contains(&self, var: Var) -> bool {
        self.0[var.index()]
    }

    pub fn any(&self, vars: &[Var]) -> bool {
        vars.iter().any(|&var| self.contains(var))
    }
}

/// `program` behind a pointer, or the pointer itself where nothing changed.
pub(crate) fn share(program: Program, original: &Arc<Program>) -> Arc<Program> {
    if is_same(&program, original) { original.clone() } else { Arc::new(program) }
}

/// Whether two programs are equal, where callees and captured arrays are equal
/// only if they are the same objects: looking into them would cost more than
/// linear time where they are shared.
pub(crate) fn is_same(a: &Program, b: &Program) -> bool {
    a.name == b.name
        && a.inputs == b.inputs
        && a.outputs == b.outputs
        && a.types == b.types
        && a.effects == b.effects
        && a.constants.len() == b.constants.len()
        && a.constants.iter().zip(&b.constants).all(|((var, tensor), (other_var, other))| {
            var == other_var && std::ptr::eq(tensor.bytes(), other.bytes())
        })
        && a.equations.len() == b.equations.len()
        && a.equations
            .iter()
            .zip(&b.equations)
            .all(|(a, b)| a.inputs == b.inputs && a.outputs == b.outputs && a.op.is_same(&b.op))
}
