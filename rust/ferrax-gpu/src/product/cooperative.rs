//! Whether a GPU multiplies matrices: what it does of what its driver says ([`crate::offers`]).
//!
//! In: a GPU. Out: its matrices, if there are any that shaders of [`crate::wgsl::product`]
//! have, and whether products by them are right. The feature is an experimental one of wgpu, and drivers' compilers
//! have got it wrong: before the first product by matrices two small ones, of whole numbers, are computed and
//! compared with what they are, in shapes that use what there is of the shader: tiles of both sizes, operands by rows
//! and by columns, terms of several blocks, sizes that are no multiples of anything. One operand has numbers below
//! the normal ones, which are not to become zeros. Cost: two pipelines, and a wait for the GPU, once.

use ferrax_compile::launches::Fusion;
use ferrax_compile::{Argument, BufferId};
use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{DType, Result};

use super::sizes;
use crate::gpu::Gpu;
use crate::wgsl::product::matrices::Matrices;

impl Gpu {
    /// Whether it multiplies matrices of halves, and does it right: then products of halves are computed so.
    pub fn has_cooperative_matrices(&self) -> bool {
        matrices(self).is_some()
    }
}

/// The matrices that a GPU multiplies.
pub fn matrices(gpu: &Gpu) -> Option<Matrices> {
    let (matrices, multiplies) = gpu.offered_matrices()?;
    multiplies.get_or_init(|| holds(gpu, matrices)).then_some(matrices)
}

/// Whether the products that this GPU computes by matrices are right.
fn holds(gpu: &Gpu, matrices: Matrices) -> bool {
    let odd =
        || is_right(gpu, matrices, Trial { sizes: [75, 91, 203], by_terms: [true, false], large: false });
    let even =
        || is_right(gpu, matrices, Trial { sizes: [136, 144, 104], by_terms: [false, true], large: true });
    // What a driver refuses it does not hold.
    odd().unwrap_or(false) && even().unwrap_or(false)
}

/// A product of rows, columns and terms; whether neighbours are terms in the left operand, and in the right one.
struct Trial {
    sizes: [usize; 3],
    by_terms: [bool; 2],
    large: bool,
}

/// Whole numbers that do not repeat soon: from -7 to 7, times 2^-24, as halves; from 1024 on as halves.
fn small(at: usize) -> (u16, f32) {
    let number = (at * at + 5 * at) % 15;
    let number = number as i16 - 7;
    let sign = if number < 0 { 0x8000 } else { 0 };
    (sign | number.unsigned_abs(), f32::from(number))
}

fn large(at: usize) -> (u16, f32) {
    let number = (at * at * 3 + at) % 29;
    (0x6400 + number as u16, 1024.0 + number as f32)
}

/// Halves below the normal ones are multiples of this.
const LEAST: f32 = 1.0 / (1 << 24) as f32;

fn is_right(gpu: &Gpu, matrices: Matrices, trial: Trial) -> Result<bool> {
    let Trial { sizes: [rows, columns, terms], by_terms, large: is_large } = trial;
    // Where the element of a row, or column, and a term lies, and what it is.
    let place = |which: usize, index: usize, term: usize| match by_terms[which] {
        true => index * terms + term,
        false => term * [rows, columns][which] + index,
    };
    let number = |which: usize, at: usize| if (which == 0) != is_large { small(at) } else { large(at) };
    let halves = |which: usize| -> Vec<u16> {
        (0..[rows, columns][which] * terms).map(|at| number(which, at).0).collect()
    };
    let shape = |which: usize| match by_terms[which] {
        true => [[rows, columns][which], terms],
        false => [terms, [rows, columns][which]],
    };
    let argument = |dtype: DType, sizes: [usize; 2]| Argument {
        buffer: BufferId(0),
        dtype,
        sizes: sizes.as_slice().into(),
    };
    let [lhs, rhs] = [0, 1].map(|which| argument(DType::F16, shape(which)));
    let out = argument(DType::F32, [rows, columns]);
    let contracting = |which: usize| std::iter::once(usize::from(by_terms[which])).collect();
    let op = DotGeneral {
        lhs_contracting: contracting(0),
        rhs_contracting: contracting(1),
        lhs_batch: std::iter::empty().collect(),
        rhs_batch: std::iter::empty().collect(),
        precision: None,
        preferred_element_type: Some(DType::F32),
    };
    let prepared = sizes::by_matrices(gpu, &op, &Fusion::plain([&lhs, &rhs, &out]), matrices, is_large)?;
    let [left, right] = [0, 1].map(|which| gpu.upload(bytemuck::cast_slice(&halves(which))));
    let result = gpu.allocate(out.bytes())?;
    gpu.launch(&prepared, [&left?, &right?, &result])?;
    let mut got = vec![0f32; rows * columns];
    gpu.download(&result, bytemuck::cast_slice_mut(&mut got))?;
    // Sums of whole numbers below 2^24, in any order.
    let value = |row: usize, column: usize| {
        let one = |term: usize| number(0, place(0, row, term)).1 * number(1, place(1, column, term)).1;
        (0..terms).map(one).sum::<f32>() * LEAST
    };
    Ok(got.iter().enumerate().all(|(at, &got)| got.to_bits() == value(at / columns, at % columns).to_bits()))
}

#[cfg(test)]
#[path = "cooperative_tests.rs"]
mod tests;
