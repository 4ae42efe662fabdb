//! Gives symbolic dimensions values, or other expressions.
//!
//! In: a program and what its dimension variables stand for. Out: the program where each dimension is what its expression comes
//! to. Sizes decide what an op may do (a slice ends within its operand), and programs may come from files, so the result is
//! verified. Cost: linear; a sub-program is rewritten once.

use std::sync::Arc;

use ferrax_ir::verify::verify;
use ferrax_ir::{ArrayType, Dim, Equation, Op, Param, Program, Result, Type, unsupported, value_error};

use crate::memo::{Memo, Pass};

/// `lookup` gives what a variable stands for; others stay.
pub fn specialise(program: &Program, lookup: &dyn Fn(&str) -> Option<Dim>) -> Result<Program> {
    let result = Specialiser { lookup, callees: Memo::default() }.program(program)?;
    match verify(&result) {
        Ok(()) => Ok(result),
        Err(error) => {
            Err(value_error!("'{}' cannot have these sizes of its dimensions: {error}", program.name))
        }
    }
}

/// The variables in the dimensions of a program's inputs, each once, in order.
pub fn input_variables(program: &Program) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = Vec::new();
    let types = program.input_types().filter_map(Type::as_array);
    for name in types.flat_map(|ty| &ty.shape).flat_map(Dim::variables) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a dimension of some value depends on variables.
pub fn is_symbolic(program: &Program) -> bool {
    program.types.iter().any(|ty| match ty {
        Type::Array(ty) | Type::Ref(ty) => ty.sizes().is_none(),
        Type::Token => false,
    })
}

struct Specialiser<'a> {
    lookup: &'a dyn Fn(&str) -> Option<Dim>,
    callees: Memo<(), Arc<Program>>,
}

impl Pass for Specialiser<'_> {
    fn done(&mut self) -> &mut Memo<(), Arc<Program>> {
        &mut self.callees
    }

    fn program(&mut self, program: &Program) -> Result<Program> {
        let types = program.types.iter().map(|ty| ty.substitute(self.lookup)).collect::<Result<_>>()?;
        let mut equations = Vec::with_capacity(program.equations.len());
        for equation in &program.equations {
            let symbolic = |ty: &ArrayType| ty.sizes().is_none();
            let values = equation.inputs.iter().map(|atom| program.type_of(atom));
            let results = equation.outputs.iter().map(|var| program.types[var.index()].clone());
            let touched = values.chain(results).any(|ty| match &ty {
                Type::Array(ty) | Type::Ref(ty) => symbolic(ty),
                Type::Token => false,
            });
            equations.push(Equation { op: self.op(&equation.op, touched)?, ..equation.clone() });
        }
        Ok(Program { types, equations, ..program.clone() })
    }
}

impl Specialiser<'_> {
    /// `touched` says whether the op's operands or results have symbolic dimensions.
    fn op(&mut self, op: &Op, touched: bool) -> Result<Op> {
        if let Op::Extension(extension) = op {
            if !touched {
                return Ok(op.clone());
            }
            return extension.0.specialised(self.lookup)?.map_or_else(
                || Err(unsupported!("{} of arrays with symbolic dimensions", op.name())),
                |extension| Ok(Op::Extension(extension)),
            );
        }
        let op = op.map_programs(|inner| self.inner(inner))?;
        let mut changed = false;
        let mut entries: Vec<(Arc<str>, Param)> = Vec::new();
        for (name, param) in op.params() {
            entries.push((name.into(), self.param(param, &mut changed)?));
        }
        if changed { Op::from_params(op.name(), entries) } else { Ok(op) }
    }

    fn param(&self, param: Param, changed: &mut bool) -> Result<Param> {
        Ok(match param {
            Param::Dim(dim) => {
                *changed = true;
                ferrax_ir::ToParam::to_param(&dim.substitute(self.lookup)?)
            }
            Param::List(items) => {
                Param::List(items.into_iter().map(|item| self.param(item, changed)).collect::<Result<_>>()?)
            }
            other => other,
        })
    }
}
