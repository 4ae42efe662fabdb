//! Factorisations of small matrices: launches of [`crate::wgsl::factorise`].
//!
//! In: the op with its operands. Out: nothing for larger matrices, or such as take longer than the GPU's patience,
//! which the CPU factorises by blocks. Cost: cubic in the side of a matrix, a workgroup or, of triangular systems and
//! products of reflections, an invocation for each vector.

use ferrax_compile::Argument;
use ferrax_ir::tensor::element_count;
use ferrax_ir::{Op, Result};

use crate::gpu::{Gpu, Prepared};
use crate::library::Library;
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::sort::word;
use crate::wgsl::WORKGROUP;
use crate::wgsl::factorise::{FactorForm, What};

/// The longest side of a matrix.
const LARGEST: usize = 256;

#[derive(Debug)]
struct Factorise {
    launch: Prepared,
    bytes: Vec<usize>,
}

/// What factorises.
pub fn bind(
    gpu: &Gpu,
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<Box<dyn Library>>> {
    let what = match op {
        Op::Cholesky(_) => What::Cholesky,
        Op::Lu(_) => What::Lu,
        Op::Geqrf(_) => What::Qr,
        Op::TriangularSolve(op) => What::Solve {
            left: op.left_side,
            lower: op.lower,
            transposed: op.transpose_a,
            conjugated: op.conjugate_a,
            unit: op.unit_diagonal,
        },
        Op::HouseholderProduct(_) => What::Product,
        Op::Ormqr(op) => What::Apply { left: op.left, adjoint: op.transpose == op.left },
        _ => return Ok(None),
    };
    let operand = &inputs[0];
    let empty = inputs.iter().chain(outputs).any(|argument| argument.sizes.contains(&0));
    let &[.., rows, columns] = operand.sizes.as_slice() else { return Ok(None) };
    if empty || rows.max(columns) > LARGEST {
        return Ok(None);
    }
    let side = |argument: &Argument, last: usize| argument.sizes[argument.sizes.len() - last];
    let (vectors, reflections) = match what {
        What::Solve { left, .. } => (side(&outputs[0], if left { 1 } else { 2 }), 0),
        What::Product => (columns, side(&inputs[1], 1)),
        What::Apply { left, .. } => (side(&outputs[0], if left { 1 } else { 2 }), side(&inputs[1], 1)),
        _ => (1, 0),
    };
    if iterations(what, [rows, columns], reflections) > gpu.patience().0 {
        return Ok(None);
    }
    let matrices = element_count(&operand.sizes) / (rows * columns);
    let count = matrices * if what.by_workgroups() { 1 } else { vectors };
    let numbers = [0, count, rows, columns, vectors, reflections];
    let numbers = numbers.into_iter().map(word).collect::<Result<Vec<u32>>>()?;
    let groups = if what.by_workgroups() { numbers[1] } else { numbers[1].div_ceil(WORKGROUP) };
    let source = Source::Factor(FactorForm { what, dtype: operand.dtype });
    let bytes = outputs.iter().map(Argument::bytes).collect();
    Ok(Some(Box::new(Factorise { launch: gpu.prepared(source, &numbers, groups)?, bytes })))
}

/// How often an invocation goes through loops, about.
fn iterations(what: What, [rows, columns]: [usize; 2], reflections: usize) -> usize {
    let lanes = WORKGROUP as usize;
    let steps = rows.min(columns);
    // Of what is left at a step, a third of the matrix in the mean.
    let passes = |passes: usize| steps * (passes * rows * columns / (3 * lanes) + 40);
    match what {
        What::Cholesky | What::Lu => passes(1),
        What::Qr => passes(4),
        What::Solve { .. } => rows * (rows + 1) / 2,
        What::Product | What::Apply { .. } => reflections * 2 * rows.max(columns),
    }
}

impl Library for Factorise {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let results = self.bytes.iter().map(|&bytes| gpu.allocate(bytes)).collect::<Result<Vec<Memory>>>()?;
        gpu.launch(&self.launch, inputs.iter().chain(&results))?;
        Ok(results)
    }
}
