//! Products of matrices and convolutions on a GPU.
//!
//! In: an op whose operands and result have one dtype. Out: launches of [`crate::wgsl::product`], one for a product,
//! one for each class of a convolution. Products whose operands are halves go by matrices where the GPU has those
//! (`cooperative`). Cost of a run: the multiplications, rounded up to tiles.

mod cooperative;
pub mod sizes;

use ferrax_compile::Argument;
use ferrax_compile::launches::Fusion;
use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{Op, Result};

use crate::gpu::{Gpu, Prepared};
use crate::library::Library;
use crate::memory::Memory;
use crate::wgsl::types;
use sizes::{is_computed, launches};

/// Launches which together write the results, of so many bytes.
#[derive(Debug)]
struct Products {
    launches: Vec<Prepared>,
    results: Vec<usize>,
    /// Whether some of the result is no launch's, and zero.
    gaps: bool,
}

/// What computes an op, if it is a product or a convolution that shaders compute.
pub fn bind(
    gpu: &Gpu,
    op: &Op,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<Box<dyn Library>>> {
    match (inputs, outputs) {
        ([lhs, rhs], [out]) if is_computed(op, inputs, outputs) => {
            bind_fused(gpu, op, &Fusion::plain([lhs, rhs, out])).map(Some)
        }
        _ => Ok(None),
    }
}

/// What computes a product with the kernels that it took in.
pub fn bind_fused(gpu: &Gpu, op: &Op, fusion: &Fusion) -> Result<Box<dyn Library>> {
    let (products, gaps) = launches(op, fusion.arguments.each_ref())?;
    let matrices = || cooperative::matrices(gpu);
    let launches =
        products.into_iter().map(|product| product.prepare(gpu, fusion, &matrices)).collect::<Result<_>>()?;
    Ok(Box::new(Products { launches, results: fusion.results.clone(), gaps }))
}

/// A product of matrices for a part of the rows of its result: a range of each of its first loops, of those with
/// several indices. Of left, right and result it is said whether they begin with the part.
pub fn bind_part(
    gpu: &Gpu,
    op: &DotGeneral,
    (inputs, outputs): (&[Argument], &[Argument]),
    (part, own): (&[(usize, usize)], [bool; 3]),
) -> Result<Option<Prepared>> {
    let ([lhs, rhs], [out]) = (inputs, outputs) else { return Ok(None) };
    let empty = [lhs, rhs, out].iter().any(|argument| argument.sizes.contains(&0));
    if empty || lhs.dtype != out.dtype || rhs.dtype != out.dtype || types::storage(out.dtype).is_err() {
        return Ok(None);
    }
    let product = sizes::part(op, [lhs, rhs, out], (part, own));
    let matrices = || cooperative::matrices(gpu);
    Ok(Some(product.prepare(gpu, &Fusion::plain([lhs, rhs, out]), &matrices)?))
}

impl Library for Products {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let result = |&bytes| if self.gaps { gpu.zeros(bytes) } else { gpu.allocate(bytes) };
        let results: Vec<Memory> = self.results.iter().map(result).collect::<Result<_>>()?;
        for launch in &self.launches {
            gpu.launch(launch, inputs.iter().chain(&results))?;
        }
        Ok(results)
    }
}
