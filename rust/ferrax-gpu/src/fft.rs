//! Fourier transforms: passes of [`crate::wgsl::fft`], one for each factor of the length of each axis.
//!
//! In: the op with its operand. Out: nothing for lengths with a prime factor above [`LARGEST`], whose cost would be
//! quadratic. Cost: a pass of factor r is linear, times r where r is a prime above 13.

use ferrax_compile::Argument;
use ferrax_ir::ops::{Fft, FftType};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Result};

use crate::gpu::{Gpu, Prepared};
use crate::library::Library;
use crate::memory::Memory;
use crate::pipelines::Source;
use crate::sort::word;
use crate::wgsl::WORKGROUP;
use crate::wgsl::fft::{FftForm, MOST_UNROLLED, Read};

/// The largest prime factor.
const LARGEST: usize = 1024;

/// Factors that are taken first.
const FIRST: [usize; 3] = [8, 4, 2];

#[derive(Debug)]
struct Passes(Vec<Pass>);

/// A pass, its table, and the bytes that it writes.
#[derive(Debug)]
struct Pass {
    launch: Prepared,
    table: Memory,
    bytes: usize,
}

/// The factors of a length, if none of them is too large.
fn factors(mut length: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    let mut take = |length: &mut usize, factor: usize| {
        while *length > 1 && length.is_multiple_of(factor) {
            *length /= factor;
            found.push(factor);
        }
    };
    FIRST.into_iter().for_each(|factor| take(&mut length, factor));
    (3..=LARGEST).step_by(2).for_each(|factor| take(&mut length, factor));
    if length > 1 {
        return None;
    }
    // A line of one element is written as it is read.
    if found.is_empty() {
        found.push(1);
    }
    Some(found)
}

/// The powers of a root of unity of this order.
fn table(gpu: &Gpu, dtype: DType, length: usize, inverse: bool) -> Result<Memory> {
    let turn = if inverse { std::f64::consts::TAU } else { -std::f64::consts::TAU } / length as f64;
    let roots = (0..length).flat_map(|power| {
        let (sin, cos) = (turn * power as f64).sin_cos();
        [cos, sin]
    });
    match dtype {
        DType::F64 => gpu.upload(bytemuck::cast_slice(&roots.collect::<Vec<f64>>())),
        _ => gpu.upload(bytemuck::cast_slice(&roots.map(|part| part as f32).collect::<Vec<f32>>())),
    }
}

/// What transforms.
pub fn bind(
    gpu: &Gpu,
    op: &Fft,
    inputs: &[Argument],
    outputs: &[Argument],
) -> Result<Option<Box<dyn Library>>> {
    let (operand, out) = (&inputs[0], &outputs[0]);
    if operand.sizes.contains(&0) || out.sizes.contains(&0) {
        return Ok(None);
    }
    let (kind, dtype) = (op.fft_type, operand.dtype.real());
    let rank = out.sizes.len();
    let mut axes: Vec<usize> = (rank - op.fft_lengths.len()..rank).collect();
    // The last axis is the one that is real on one side: the first to be transformed, or the last.
    if kind == FftType::Rfft {
        axes.reverse();
    }
    let mut sizes = operand.sizes.to_vec();
    let mut passes = Vec::new();
    for axis in axes {
        let last = axis + 1 == rank;
        let length = if last && kind == FftType::Rfft { sizes[axis] } else { out.sizes[axis] };
        let Some(factors) = factors(length) else { return Ok(None) };
        let powers = table(gpu, dtype, length, kind.is_inverse())?;
        let inner = element_count(&sizes[axis + 1..]);
        let lines = element_count(&sizes) / sizes[axis];
        let (mut m, mut s) = (length, 1);
        for (number, &factor) in factors.iter().enumerate() {
            m /= factor;
            let (begins, ends) = (number == 0, number + 1 == factors.len());
            let read = match (begins && last, kind) {
                (true, FftType::Rfft) => Read::Real,
                (true, FftType::Irfft) => Read::Half,
                _ => Read::Complex,
            };
            let real = ends && last && kind == FftType::Irfft;
            let unrolled = (factor <= MOST_UNROLLED).then_some(factor);
            let form = FftForm {
                dtype,
                unrolled,
                inverse: kind.is_inverse(),
                read,
                real,
                scaled: ends && kind.is_inverse(),
            };
            let invocations = lines * if unrolled.is_some() { length / factor } else { length };
            let (from, to) =
                (if begins { sizes[axis] } else { length }, if ends { out.sizes[axis] } else { length });
            let numbers = [0, invocations, length, inner, m, s, from, to, factor];
            let numbers = numbers.into_iter().map(word).collect::<Result<Vec<u32>>>()?;
            let launch = gpu.prepared(Source::Fft(form), &numbers, numbers[1].div_ceil(WORKGROUP))?;
            let bytes = lines * to * dtype.size() * if real { 1 } else { 2 };
            passes.push(Pass { launch, table: powers.clone(), bytes });
            s *= factor;
        }
        sizes[axis] = out.sizes[axis];
    }
    Ok(Some(Box::new(Passes(passes))))
}

impl Library for Passes {
    fn run(&self, gpu: &Gpu, inputs: &[Memory]) -> Result<Vec<Memory>> {
        let mut current = inputs[0].clone();
        for Pass { launch, table, bytes } in &self.0 {
            let next = gpu.allocate(*bytes)?;
            gpu.launch(launch, [&current, &next, table])?;
            current = next;
        }
        Ok(vec![current])
    }
}
