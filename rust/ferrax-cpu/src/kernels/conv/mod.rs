//! `conv_general_dilated`: implicit products of matrices, and direct loops for depthwise convolutions.
//!
//! In: an op with operands and result of one dtype. It is cut into classes without dilation of `lhs`
//! (`ferrax_compile::convolution`), each of which is a product whose operands are packed block by block (`product`, `pack`,
//! `micro`) or, with one output feature a group, a direct sum (`direct`). Long sums are trees (`tree`).
//! Complex numbers are pairs of real ones, which the window's elements multiply as matrices. Cost: the
//! multiplications that are not by a zero of padding or dilation, rounded up to register blocks, and
//! memory for the packed blocks of a tile for each thread, and for the weights.

mod direct;
mod pack;
mod product;
mod tree;

use ferrax_compile::Argument;
use ferrax_compile::Path;
use ferrax_compile::convolution::{self, Problem};
use ferrax_ir::ops::ConvGeneralDilated;
use ferrax_ir::{DType, Result, unsupported};

use super::micro::Number;
use crate::alloc::Buffer;
use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::Tuning;
use direct::Direct;
use product::Product;

/// The operands of a run: `lhs`, `rhs`, the result.
pub struct Operands {
    inputs: [*const u8; 2],
    out: *mut u8,
}

// SAFETY: units of work write disjoint parts of the result and only read the inputs.
unsafe impl Sync for Operands {}

impl Operands {
    fn input<T>(&self, number: usize) -> *const T {
        self.inputs[number].cast()
    }

    fn out<T>(&self) -> *mut T {
        self.out.cast()
    }
}

/// Runs units of so many multiplications each, on many threads if that is worth it.
fn each_unit(
    units: usize,
    work: usize,
    serial: usize,
    unit: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<()> {
    if work.saturating_mul(units) < serial {
        return (0..units).try_for_each(unit);
    }
    // Small units in groups, so that a chunk is worth its claim.
    let group = (serial / 4 / work.max(1)).clamp(1, units);
    pool::run_fallibly(units.div_ceil(group), &|chunk| {
        (chunk * group..((chunk + 1) * group).min(units)).try_for_each(unit)
    })
}

#[derive(Debug)]
enum Part<T: 'static> {
    Product(Box<Product<T>>),
    Direct(Box<Direct>),
}

#[derive(Debug)]
struct Convolution<T: 'static> {
    parts: Vec<Part<T>>,
    /// Bytes of the result, if some of it is no part's.
    zeros: Option<usize>,
    /// Elements of `rhs`, if they are complex.
    complex: Option<usize>,
}

/// The kernel of `op`; operands and result share a dtype.
pub fn bind(
    op: &ConvGeneralDilated,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Result<Box<dyn Kernel>> {
    let (lhs, rhs, out) = (&inputs[0], &inputs[1], &outputs[0]);
    let dtype = out.dtype;
    if lhs.dtype != dtype || rhs.dtype != dtype {
        return Err(unsupported!("a convolution of {} and {} to {dtype} on the CPU", lhs.dtype, rhs.dtype));
    }
    Ok(match dtype {
        DType::F32 | DType::C64 => Box::new(convolution::<f32>(op, [lhs, rhs, out], tuning)?),
        DType::F64 | DType::C128 => Box::new(convolution::<f64>(op, [lhs, rhs, out], tuning)?),
        DType::I8 | DType::U8 => Box::new(convolution::<u8>(op, [lhs, rhs, out], tuning)?),
        DType::I16 | DType::U16 => Box::new(convolution::<u16>(op, [lhs, rhs, out], tuning)?),
        DType::I32 | DType::U32 => Box::new(convolution::<u32>(op, [lhs, rhs, out], tuning)?),
        DType::I64 | DType::U64 => Box::new(convolution::<u64>(op, [lhs, rhs, out], tuning)?),
        other => return Err(unsupported!("convolutions of {other} on the CPU")),
    })
}

fn convolution<T: Number>(
    op: &ConvGeneralDilated,
    [lhs, rhs, out]: [&Argument; 3],
    tuning: &'static Tuning,
) -> Result<Convolution<T>> {
    let tuning = &tuning.convolutions;
    let complex = out.dtype.is_complex().then(|| rhs.bytes() / rhs.dtype.size());
    if out.sizes.contains(&0) || lhs.sizes.contains(&0) || rhs.sizes.contains(&0) {
        return Ok(Convolution { parts: Vec::new(), zeros: Some(out.bytes()), complex: None });
    }
    let classes = convolution::problems(op, &lhs.sizes, &rhs.sizes, &out.sizes, complex.is_some())?;
    Path::ConvolutionComplex.take_if(complex.is_some());
    Path::ConvolutionGaps.take_if(classes.gaps);
    let part = |problem: &Problem| match convolution::count(&problem.columns) {
        1 => Part::Direct(Box::new(Direct::new(problem, tuning))),
        _ => Part::Product(Box::new(Product::new(problem, tuning))),
    };
    Ok(Convolution {
        parts: classes.problems.iter().map(part).collect(),
        zeros: classes.gaps.then(|| out.bytes()),
        complex,
    })
}

/// For each of `count` complex weights w the matrix by which (re, im) is multiplied from the left.
///
/// # Safety
/// `from` holds so many pairs.
unsafe fn matrices<T: Number>(from: *const T, count: usize) -> Result<Buffer> {
    let buffer = Buffer::new(count * 4 * size_of::<T>())?;
    let to = buffer.pointer().cast::<[T; 4]>();
    for i in 0..count {
        // SAFETY: the caller's promise; the buffer has room for four elements each.
        unsafe {
            let (re, im) = (*from.add(2 * i), *from.add(2 * i + 1));
            *to.add(i) = [re, im, im.negate(), re];
        }
    }
    Ok(buffer)
}

impl<T: Number> Kernel for Convolution<T> {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        if let Some(bytes) = self.zeros {
            // SAFETY: the output has so many bytes; all zeros is zero.
            unsafe { call.outputs[0].write_bytes(0, bytes) };
        }
        let mut operands = Operands { inputs: [call.inputs[0], call.inputs[1]], out: call.outputs[0] };
        let matrices = match self.complex {
            // SAFETY: `rhs` holds so many complex numbers.
            Some(count) => Some(unsafe { matrices::<T>(operands.input(1), count)? }),
            None => None,
        };
        if let Some(matrices) = &matrices {
            operands.inputs[1] = matrices.pointer();
        }
        for part in &self.parts {
            // SAFETY: the operands are valid for the types that the kernel was bound with.
            unsafe {
                match part {
                    Part::Product(part) => part.run(&operands)?,
                    Part::Direct(part) => part.run::<T>(&operands)?,
                }
            }
        }
        Ok(())
    }
}
