//! The reference interpreter: runs a program equation by equation with the
//! rows' own `eval`. Slow, obvious, and the oracle of every backend.

use crate::{Atom, Program, Result, Tensor, Type, internal_error, value_error};

/// The outputs of `program` for `inputs`. All dimensions must be constant.
pub fn run(program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    if inputs.len() != program.inputs.len() {
        return Err(value_error!(
            "'{}' takes {} inputs, got {}",
            program.name,
            program.inputs.len(),
            inputs.len()
        ));
    }
    let mut values: Vec<Option<Tensor>> = vec![None; program.types.len()];
    for ((position, var), tensor) in program.inputs.iter().enumerate().zip(inputs) {
        let expected = &program.types[var.index()];
        let fits = expected
            .as_array()
            .is_some_and(|ty| ty.dtype == tensor.dtype() && ty.sizes().as_deref() == Some(tensor.sizes()));
        if !fits {
            return Err(value_error!(
                "input {position} of '{}' expected {expected}, got {}",
                program.name,
                tensor.array_type()
            ));
        }
        values[var.index()] = Some(tensor.clone());
    }
    for (var, tensor) in &program.constants {
        values[var.index()] = Some(tensor.clone());
    }
    for equation in &program.equations {
        let operands = equation.inputs.iter().map(|atom| read(&values, atom)).collect::<Result<Vec<_>>>()?;
        let types: Vec<Type> =
            equation.outputs.iter().map(|var| program.types[var.index()].clone()).collect();
        let results = equation.op.eval(&operands, &types)?;
        if results.len() != types.len() {
            return Err(internal_error!(
                "{} gave {} outputs of {}",
                equation.op.name(),
                results.len(),
                types.len()
            ));
        }
        for ((var, ty), tensor) in equation.outputs.iter().zip(&types).zip(results) {
            let expected = ty.as_array().map(|ty| ty.clone().with_weak(false));
            if expected.as_ref() != Some(&tensor.array_type()) {
                return Err(internal_error!(
                    "{} gave {} where its type rule says {ty}",
                    equation.op.name(),
                    tensor.array_type()
                ));
            }
            values[var.index()] = Some(tensor);
        }
    }
    program.outputs.iter().map(|atom| read(&values, atom)).collect()
}

fn read(values: &[Option<Tensor>], atom: &Atom) -> Result<Tensor> {
    match atom {
        Atom::Var(var) => {
            values[var.index()].clone().ok_or_else(|| internal_error!("variable {} has no value", var.0))
        }
        Atom::Literal(literal) => literal.value.to_tensor(),
    }
}
