//! Splits a program in two by what depends on its unknown inputs.
//!
//! In: a program, which of its inputs are unknown, and which outputs each half
//! shall give. Out: the known half, which gives its outputs and then the
//! residuals; the unknown half, which takes the residuals and then the unknown
//! inputs. Invariants: an equation goes to the unknown half if it depends on an
//! unknown input, or has an ordered effect and comes after such a one that does;
//! residuals are exactly the known variables that the unknown half needs, each
//! once, in order of definition; captured arrays and literals are no residuals,
//! nor is what moves or widens other values for nothing (broadcasts, reshapes,
//! counters): that is done again. Cost: linear.

use ferrax_ir::{Atom, Effect, Equation, Op, Program, Result, Var, value_error};

use crate::rewrite::{Needed, Rewriter};

pub(crate) struct Split {
    pub known: Program,
    pub unknown: Program,
    pub residuals: usize,
}

/// Which variables depend on unknown inputs, and which equations stay with them.
pub(crate) fn dependence(program: &Program, unknown: &[bool]) -> (Vec<bool>, Vec<bool>) {
    let mut vars = vec![false; program.types.len()];
    for (var, &flag) in program.inputs.iter().zip(unknown) {
        vars[var.index()] = flag;
    }
    let mut ordered = false;
    let equations = program
        .equations
        .iter()
        .map(|equation| {
            let is_ordered = equation.op.effects().iter().any(keeps_order);
            let depends = equation.inputs.iter().filter_map(Atom::as_var).any(|var| vars[var.index()])
                || (is_ordered && ordered);
            if depends {
                ordered |= is_ordered;
                for var in &equation.outputs {
                    vars[var.index()] = true;
                }
            }
            depends
        })
        .collect();
    (vars, equations)
}

/// Whether an effect must keep its place among others of its kind.
pub(crate) fn keeps_order(effect: &Effect) -> bool {
    matches!(effect, Effect::Ordered | Effect::Memory)
}

pub(crate) fn split(
    program: &Program,
    unknown: &[bool],
    known_outputs: &[Atom],
    unknown_outputs: &[Atom],
) -> Result<Split> {
    let (vars, late) = dependence(program, unknown);
    if known_outputs.iter().filter_map(Atom::as_var).any(|var| vars[var.index()]) {
        return Err(value_error!(
            "linearize: outputs of '{}' depend on tangents. One of its operations has a forward \
             derivative only, as custom_vmap functions do; give it a derivative of its own with \
             custom_vjp or custom_jvp.",
            program.name
        ));
    }

    // What the unknown half needs, found from its end.
    let mut needed = Needed::new(program);
    needed.add(unknown_outputs);
    let mut in_unknown = vec![false; program.equations.len()];
    for (index, equation) in program.equations.iter().enumerate().rev() {
        let wanted = needed.any(&equation.outputs);
        in_unknown[index] =
            if late[index] { wanted || equation.op.happens() } else { wanted && is_free(program, equation) };
        if in_unknown[index] {
            needed.add(&equation.inputs);
        }
    }
    let mut defined = vec![false; program.types.len()];
    for (var, _) in &program.constants {
        defined[var.index()] = true;
    }
    for (var, &flag) in program.inputs.iter().zip(unknown) {
        defined[var.index()] |= flag;
    }
    for (equation, _) in program.equations.iter().zip(&in_unknown).filter(|(_, inside)| **inside) {
        for var in &equation.outputs {
            defined[var.index()] = true;
        }
    }
    let inputs = program.inputs.iter().copied();
    let outputs = program.equations.iter().flat_map(|equation| equation.outputs.iter().copied());
    let residuals: Vec<Var> =
        inputs.chain(outputs).filter(|&var| needed.contains(var) && !defined[var.index()]).collect();

    let mut late_half = Rewriter::new(program);
    for &var in &residuals {
        late_half.input(var);
    }
    for (&var, _) in program.inputs.iter().zip(unknown).filter(|(_, flag)| **flag) {
        late_half.input(var);
    }
    late_half.constants(|var| needed.contains(var));
    for (equation, _) in program.equations.iter().zip(&in_unknown).filter(|(_, inside)| **inside) {
        late_half.copy(equation)?;
    }
    let late_half = late_half.finish(unknown_outputs)?;

    // The known half, without what nobody asks of it.
    let known_outputs: Vec<Atom> =
        known_outputs.iter().copied().chain(residuals.iter().map(|&var| Atom::Var(var))).collect();
    let mut needed = Needed::new(program);
    needed.add(&known_outputs);
    let mut in_known = vec![false; program.equations.len()];
    for (index, equation) in program.equations.iter().enumerate().rev() {
        let wanted = needed.any(&equation.outputs) || equation.op.happens();
        in_known[index] = !late[index] && wanted;
        if in_known[index] {
            needed.add(&equation.inputs);
        }
    }
    let mut known_half = Rewriter::new(program);
    for (&var, _) in program.inputs.iter().zip(unknown).filter(|(_, flag)| !**flag) {
        known_half.input(var);
    }
    known_half.constants(|var| needed.contains(var));
    for (equation, _) in program.equations.iter().zip(&in_known).filter(|(_, inside)| **inside) {
        known_half.copy(equation)?;
    }
    let known_half = known_half.finish(&known_outputs)?;
    Ok(Split { known: known_half, unknown: late_half, residuals: residuals.len() })
}

/// Whether to do an equation again costs no more than to keep its result.
pub(crate) fn is_free(program: &Program, equation: &Equation) -> bool {
    match &equation.op {
        Op::BroadcastInDim(_) | Op::Reshape(_) | Op::Squeeze(_) | Op::Iota(_) => true,
        Op::ConvertElementType(convert) => {
            let from = equation.inputs.first().map(|atom| program.type_of(atom));
            from.is_some_and(|ty| ty.as_array().is_some_and(|ty| ty.dtype.size() <= convert.new_dtype.size()))
        }
        _ => false,
    }
}
