//! A choice between an array and an update of it becomes an update of nothing where the array is chosen:
//! `select(p, scatter(x, i, u), x) = scatter(x, select(p, i, -1), u)`.
//!
//! The update can then work in place. Loops that are mapped over their conditions choose so in each step, which
//! costs a copy of the whole array otherwise.
//!
//! Invariants: values and types stay. The scatter leaves out windows outside of the operand (mode `fill`, signed
//! indices), nothing else uses its result, and `p` is one value, or one for each index along batching axes of the
//! operand. Cost: linear.

use ferrax_ir::ops::{GatherMode, Scatter, SelectN};
use ferrax_ir::paths::Path;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Equation, Op, Program, Result, Type, Var};
use smallvec::SmallVec;

use crate::rewrite::Rewriter;

/// The program with such updates.
pub fn conditional_updates(program: Program) -> Result<Program> {
    if !program.equations.iter().any(|equation| matches!(equation.op, Op::Scatter(_))) {
        return Ok(program);
    }
    let table = Table::new(&program);
    if !program.equations.iter().any(|equation| table.choice(equation).is_some()) {
        return Ok(program);
    }
    Path::ConditionalUpdate.take();
    let mut rewriter = Rewriter::with_inputs(&program);
    rewriter.constants(|_| true);
    for equation in &program.equations {
        match table.choice(equation) {
            Some(choice) => choice.write(&mut rewriter, equation)?,
            None => rewriter.copy(equation)?,
        }
    }
    let result = rewriter.finish(&program.outputs)?;
    debug_verify(&result, "conditional updates")?;
    Ok(result)
}

struct Table<'a> {
    program: &'a Program,
    /// The equation that defines each variable, and how often it is used.
    definitions: Vec<Option<usize>>,
    uses: Vec<u32>,
}

/// What a choice between an array and its update is made of.
struct Choice<'a> {
    scatter: &'a Scatter,
    operands: &'a [Atom],
    predicate: Atom,
    /// For each axis of the predicate the axis of the indices.
    axes: SmallVec<[usize; 4]>,
    /// Whether the update is chosen where the predicate is true.
    updates_if_true: bool,
}

impl<'a> Table<'a> {
    fn new(program: &'a Program) -> Table<'a> {
        let mut definitions = vec![None; program.types.len()];
        let mut uses = vec![0; program.types.len()];
        for (index, equation) in program.equations.iter().enumerate() {
            for var in &equation.outputs {
                definitions[var.index()] = Some(index);
            }
        }
        let operands = program.equations.iter().flat_map(|equation| &equation.inputs);
        for var in operands.chain(&program.outputs).filter_map(Atom::as_var) {
            uses[var.index()] += 1;
        }
        Table { program, definitions, uses }
    }

    fn definition(&self, var: Var) -> Option<&'a Equation> {
        self.program.equations.get(self.definitions[var.index()]?)
    }

    fn choice(&self, equation: &Equation) -> Option<Choice<'a>> {
        let (Op::SelectN(SelectN {}), &[which, on_false, on_true]) =
            (&equation.op, equation.inputs.as_slice())
        else {
            return None;
        };
        [(on_true, on_false, true), (on_false, on_true, false)].into_iter().find_map(
            |(updated, kept, updates_if_true)| {
                let var = updated.as_var().filter(|var| self.uses[var.index()] == 1)?;
                let update = self.definition(var)?;
                let Op::Scatter(scatter) = &update.op else { return None };
                let types: SmallVec<[Type; 3]> =
                    update.inputs.iter().map(|atom| self.program.type_of(atom)).collect();
                let signed = types[1].as_array()?.dtype.is_signed();
                if update.inputs[0] != kept
                    || types[0] != self.program.types[equation.outputs[0].index()]
                    || scatter.mode != GatherMode::Fill
                    || scatter.scatter_dims_to_operand_dims.is_empty()
                    || !signed
                {
                    return None;
                }
                let (predicate, axes) = self.predicate(which, scatter, &types[0])?;
                Some(Choice { scatter, operands: &update.inputs, predicate, axes, updates_if_true })
            },
        )
    }

    /// The value that chooses, and its axes among those of the indices.
    fn predicate(
        &self,
        which: Atom,
        scatter: &Scatter,
        operand: &Type,
    ) -> Option<(Atom, SmallVec<[usize; 4]>)> {
        let is_bool =
            |atom: Atom| self.program.type_of(&atom).as_array().is_some_and(|ty| ty.dtype.is_bool());
        let shape = |atom: Atom| self.program.type_of(&atom).as_array().map(|ty| ty.shape.clone());
        if !is_bool(which) {
            return None;
        }
        if shape(which)?.is_empty() {
            return Some((which, SmallVec::new()));
        }
        let equation = self.definition(which.as_var()?)?;
        let (Op::BroadcastInDim(op), &[predicate]) = (&equation.op, equation.inputs.as_slice()) else {
            return None;
        };
        let (sizes, operand) = (shape(predicate)?, operand.as_array()?);
        let axis = |(axis, &dim): (usize, &usize)| {
            let position = scatter.operand_batching_dims.iter().position(|&batching| batching == dim)?;
            (sizes[axis] == operand.shape[dim]).then(|| scatter.scatter_indices_batching_dims[position])
        };
        Some((predicate, op.broadcast_dimensions.iter().enumerate().map(axis).collect::<Option<_>>()?))
    }
}

impl Choice<'_> {
    fn write(&self, rewriter: &mut Rewriter<'_>, equation: &Equation) -> Result<()> {
        let operands = rewriter.atoms(self.operands)?;
        let predicate = rewriter.atom(&self.predicate)?;
        let b = &mut rewriter.builder;
        b.source = equation.source;
        let indices = b.array_type(operands[1])?;
        // No window begins below the first element.
        let nowhere = b.scalar(indices.dtype, -1.0);
        let nowhere = b.broadcast_in_dim(nowhere, &indices.shape, &[])?;
        let predicate = b.broadcast_in_dim(predicate, &indices.shape, &self.axes)?;
        let indices = match self.updates_if_true {
            true => b.select(predicate, operands[1], nowhere)?,
            false => b.select(predicate, nowhere, operands[1])?,
        };
        let scatter = Scatter { unique_indices: false, indices_are_sorted: false, ..self.scatter.clone() };
        rewriter.copy_as(equation, scatter.into(), &[operands[0], indices, operands[2]])
    }
}
