//! Checks that a program is well-formed. The invariants:
//!
//! 1. Every variable has a type, and is defined at most once: by the inputs, by
//!    the constants or by one equation. What is used is defined before.
//! 2. Inputs are distinct. Outputs are defined variables or literals.
//! 3. Literals are 0-d arrays of a dtype that has literals (no keys, no float0).
//! 4. Constants have the dtype and sizes that their variable's type says.
//! 5. The outputs of an equation have exactly the types, weakness included, that
//!    its op's type rule gives for its inputs; by type they may differ along more axes.
//! 6. The program's effects are those of its equations, all of them and no others.
//! 7. Sub-programs are well-formed, and see no variables but their own.
//!
//! Cost: linear; a sub-program that several equations share is checked once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::{Atom, Effects, Equation, Error, Program, Result, Type, Var, internal_error};

/// The error names the first invariant that does not hold, and where.
pub fn verify(program: &Program) -> Result<()> {
    Verifier { done: FxHashSet::default() }.program(program)
}

static DEMANDED: AtomicBool = AtomicBool::new(false);

/// Demands, or no longer demands, that what passes make is verified.
pub fn demand(on: bool) {
    DEMANDED.store(on, Ordering::Relaxed);
}

/// Whether what passes make is verified: in debug builds, and on demand.
pub fn is_enabled() -> bool {
    cfg!(debug_assertions) || DEMANDED.load(Ordering::Relaxed)
}

/// Verifies if that [is enabled](is_enabled); `pass` is what made the program.
pub fn debug_verify(program: &Program, pass: &str) -> Result<()> {
    if !is_enabled() {
        return Ok(());
    }
    verify(program).map_err(|error| match error {
        Error::Internal(text) => internal_error!("after {pass}: {text}"),
        other => internal_error!("after {pass}: {other}"),
    })
}

struct Verifier {
    done: FxHashSet<usize>,
}

impl Verifier {
    fn program(&mut self, program: &Program) -> Result<()> {
        let mut scope = Scope { program, defined: vec![false; program.types.len()] };
        for &var in &program.inputs {
            scope.define(var, "the list of inputs")?;
        }
        for (var, tensor) in &program.constants {
            scope.define(*var, "the list of constants")?;
            let expected = program.types[var.index()].as_array().map(|ty| ty.clone().with_weak(false));
            if expected.as_ref() != Some(&tensor.array_type()) {
                return Err(internal_error!(
                    "'{}': constant {} is {} but its type says {}",
                    program.name,
                    var.0,
                    tensor.array_type(),
                    program.types[var.index()]
                ));
            }
        }
        let mut effects = Effects::new();
        for (index, equation) in program.equations.iter().enumerate() {
            self.equation(&mut scope, index, equation)?;
            effects.extend(equation.op.effects());
        }
        for atom in &program.outputs {
            scope.check_use(atom, &|| "an output".to_owned())?;
        }
        if effects != program.effects {
            return Err(internal_error!(
                "'{}' says effects {:?} but its equations have {effects:?}",
                program.name,
                program.effects
            ));
        }
        Ok(())
    }

    fn equation(&mut self, scope: &mut Scope<'_>, index: usize, equation: &Equation) -> Result<()> {
        let program = scope.program;
        let place = || format!("'{}', equation {index} ({})", program.name, equation.op.name());
        for atom in &equation.inputs {
            scope.check_use(atom, &place)?;
        }
        for callee in equation.op.programs() {
            if self.done.insert(Arc::as_ptr(callee).addr()) {
                self.program(callee)?;
            }
        }
        let inputs: SmallVec<[Type; 3]> = equation.inputs.iter().map(|atom| program.type_of(atom)).collect();
        let expected = equation.op.infer(&inputs).map_err(|error| internal_error!("{}: {error}", place()))?;
        for &var in &equation.outputs {
            scope.define(var, "an equation")?;
        }
        let got = equation.outputs.iter().map(|var| &program.types[var.index()]);
        if !(got.len() == expected.len()
            && got.clone().zip(&expected).all(|(got, expected)| is_as(got, expected)))
        {
            let show = |types: Vec<String>| types.join(", ");
            return Err(internal_error!(
                "{}: outputs are ({}) but the type rule gives ({})",
                place(),
                show(got.map(|ty| format!("{ty:#}")).collect()),
                show(expected.iter().map(|ty| format!("{ty:#}")).collect())
            ));
        }
        Ok(())
    }
}

/// Whether a type is what a type rule gives; by type a value may differ along more axes than it does.
fn is_as(got: &Type, expected: &Type) -> bool {
    let mut same = expected.clone();
    same.vary(got.varying());
    *got == same && got.varying().covers(expected.varying())
}

struct Scope<'a> {
    program: &'a Program,
    defined: Vec<bool>,
}

impl Scope<'_> {
    fn define(&mut self, var: Var, by: &str) -> Result<()> {
        match self.defined.get_mut(var.index()) {
            None => Err(internal_error!("'{}': variable {} of {by} has no type", self.program.name, var.0)),
            Some(true) => {
                Err(internal_error!("'{}': {by} defines variable {} again", self.program.name, var.0))
            }
            Some(flag) => {
                *flag = true;
                Ok(())
            }
        }
    }

    fn check_use(&self, atom: &Atom, place: &dyn Fn() -> String) -> Result<()> {
        match atom {
            Atom::Var(var) if self.defined.get(var.index()).copied().unwrap_or(false) => Ok(()),
            Atom::Var(var) => {
                Err(internal_error!("{}: variable {} is used before its definition", place(), var.0))
            }
            Atom::Literal(literal) if literal.value.dtype().size() == 0 || literal.value.dtype().is_key() => {
                Err(internal_error!("{}: a literal of dtype {}", place(), literal.value.dtype()))
            }
            Atom::Literal(_) => Ok(()),
        }
    }
}
