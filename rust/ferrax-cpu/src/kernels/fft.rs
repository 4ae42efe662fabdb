//! `fft`: Fourier transforms over the last axes, axis by axis, by the plans of crate ferrax-fft.
//!
//! Along the last axis lines are transformed where they lie. Along another axis some neighbouring columns
//! are copied into lines, transformed and copied back, so that memory is read by whole cache lines. Lines and
//! groups of columns are independent units of work. The first pass goes from the operand to the result, later
//! ones work within the result, save that `IRFFT` needs a copy of its operand if it is over several axes.
//! Cost: `O(n log n)` for n elements.

use std::cell::RefCell;
use std::sync::Arc;

use ferrax_compile::{Argument, Path};
use ferrax_fft::{Complex, ComplexToReal, Fft as Plan, Float, RealToComplex};
use ferrax_ir::ops::{Fft, FftType};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Dim, Result};

use crate::call::{Call, Kernel};
use crate::generations::{Epoch, Generations};
use crate::pool;
use crate::tuning::Tuning;

/// Plans of a generation, and their bytes.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 64 << 20;

/// The transform of one line.
enum Line<T> {
    Complex(Arc<dyn Plan<T>>),
    ToComplex(Arc<dyn RealToComplex<T>>),
    ToReal(Arc<dyn ComplexToReal<T>>),
}

impl<T> Clone for Line<T> {
    fn clone(&self) -> Line<T> {
        match self {
            Line::Complex(plan) => Line::Complex(plan.clone()),
            Line::ToComplex(plan) => Line::ToComplex(plan.clone()),
            Line::ToReal(plan) => Line::ToReal(plan.clone()),
        }
    }
}

impl<T: Float> Line<T> {
    fn new(kind: FftType, length: usize) -> Line<T> {
        match kind {
            FftType::Fft => Line::Complex(T::complex(length, false)),
            FftType::Ifft => Line::Complex(T::complex(length, true)),
            FftType::Rfft => Line::ToComplex(T::forward(length)),
            FftType::Irfft => Line::ToReal(T::inverse(length)),
        }
    }

    /// Complex numbers of scratch memory that a run needs, beside those for a copy of the line.
    fn scratch(&self) -> usize {
        match self {
            Line::Complex(plan) => plan.get_immutable_scratch_len().max(plan.get_inplace_scratch_len()),
            Line::ToComplex(plan) => plan.get_scratch_len(),
            Line::ToReal(plan) => plan.get_scratch_len(),
        }
    }
}

/// Floats whose plans are kept.
pub trait Kept: Float {
    fn plans() -> &'static std::thread::LocalKey<RefCell<Plans<Self>>>;
}

/// The plans that a thread made last.
pub struct Plans<T> {
    lines: Generations<(FftType, usize, Line<T>)>,
    epoch: Epoch,
}

impl<T> Plans<T> {
    const fn new() -> Plans<T> {
        Plans { lines: Generations::new(KEPT, KEPT_BYTES), epoch: Epoch::FIRST }
    }
}

thread_local! {
    static SINGLE: RefCell<Plans<f32>> = const { RefCell::new(Plans::new()) };
    static DOUBLE: RefCell<Plans<f64>> = const { RefCell::new(Plans::new()) };
}

impl Kept for f32 {
    fn plans() -> &'static std::thread::LocalKey<RefCell<Plans<f32>>> {
        &SINGLE
    }
}

impl Kept for f64 {
    fn plans() -> &'static std::thread::LocalKey<RefCell<Plans<f64>>> {
        &DOUBLE
    }
}

/// The plan for lines of this length: one of those that are kept, or a new one.
fn plan<T: Kept>(kind: FftType, length: usize) -> Line<T> {
    let hash = (length as u64) << 2 | kind as u64;
    T::plans().with_borrow_mut(|plans| {
        if plans.epoch.renew() {
            drop(plans.lines.clear());
        }
        let (found, forgotten) = plans.lines.find(hash, |entry| (entry.0, entry.1) == (kind, length));
        drop(forgotten);
        if let Some((_, _, line)) = found {
            return line;
        }
        let line = Line::<T>::new(kind, length);
        // Factors and those of Bluestein's longer transform.
        let bytes = length.saturating_mul(4 * size_of::<Complex<T>>());
        drop(plans.lines.insert(hash, (kind, length, line.clone()), bytes));
        line
    })
}

/// A pass along an axis that is not the last: arrays of `length` by `stride` complex numbers.
struct Columns<T> {
    length: usize,
    stride: usize,
    line: Arc<dyn Plan<T>>,
}

struct Transform<T> {
    /// Lines along the last axis: how many, and numbers in each before and after.
    lines: usize,
    from: usize,
    to: usize,
    line: Line<T>,
    /// The other axes, innermost first.
    columns: Vec<Columns<T>>,
    /// What results are multiplied by, in the last pass.
    scale: Option<T>,
    tuning: &'static Tuning,
}

impl<T> std::fmt::Debug for Transform<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.line {
            Line::Complex(_) => "complex",
            Line::ToComplex(_) => "real to complex",
            Line::ToReal(_) => "complex to real",
        };
        let columns: Vec<usize> = self.columns.iter().map(|axis| axis.length).collect();
        write!(f, "Transform({} lines {kind}, {} to {}, columns {columns:?})", self.lines, self.from, self.to)
    }
}

/// The kernel, if there are elements to transform.
pub fn bind(
    op: &Fft,
    inputs: &[Argument],
    outputs: &[Argument],
    tuning: &'static Tuning,
) -> Option<Box<dyn Kernel>> {
    let (from, to) = (inputs.first()?, outputs.first()?);
    if from.sizes.contains(&0) || to.sizes.contains(&0) {
        return None;
    }
    match from.dtype {
        DType::F32 | DType::C64 => Some(Box::new(transform::<f32>(op, from, to, tuning)?)),
        DType::F64 | DType::C128 => Some(Box::new(transform::<f64>(op, from, to, tuning)?)),
        _ => None,
    }
}

fn transform<T: Kept>(
    op: &Fft,
    from: &Argument,
    to: &Argument,
    tuning: &'static Tuning,
) -> Option<Transform<T>> {
    let lengths: Vec<usize> = op.fft_lengths.iter().map(Dim::as_const).collect::<Option<_>>()?;
    let (&last, outer) = lengths.split_last()?;
    let first = from.sizes.len() - lengths.len();
    // Outer axes are transformed where the last one is complex.
    let complex = if op.fft_type == FftType::Irfft { from } else { to };
    let kind = if op.fft_type.is_inverse() { FftType::Ifft } else { FftType::Fft };
    let columns = (0..outer.len()).rev().filter(|&axis| outer[axis] > 1).map(|axis| {
        let stride = element_count(&complex.sizes[first + axis + 1..]);
        let Line::Complex(line) = plan::<T>(kind, outer[axis]) else { return None };
        Some(Columns { length: outer[axis], stride, line })
    });
    let count: f64 = lengths.iter().map(|&length| length as f64).product();
    Path::FourierLines.take();
    Path::FourierColumns.take_if(!outer.is_empty());
    Path::FourierCopied.take_if(op.fft_type == FftType::Irfft && !outer.is_empty());
    Some(Transform {
        lines: element_count(&from.sizes[..from.sizes.len() - 1]),
        from: *from.sizes.last()?,
        to: *to.sizes.last()?,
        line: plan(op.fft_type, last),
        columns: columns.collect::<Option<_>>()?,
        scale: (op.fft_type.is_inverse() && count > 1.0).then(|| T::reciprocal(count)),
        tuning,
    })
}

/// Numbers that chunks read, and those that they write.
struct Shared<S, D> {
    from: *const S,
    to: *mut D,
    scratch: *mut u8,
}

// SAFETY: chunks write lines, columns and parts of the scratch memory of their own, and read what nobody
// writes or they alone do.
unsafe impl<S, D> Sync for Shared<S, D> {}

/// # Safety
/// There are so many numbers from there on, and nobody else uses them meanwhile.
unsafe fn many<'a, T>(at: *mut T, length: usize) -> &'a mut [T] {
    // SAFETY: as the caller says; pointers of arrays are aligned to any element.
    unsafe { std::slice::from_raw_parts_mut(at, length) }
}

impl<T: Kept> Transform<T> {
    /// Into how many chunks units of so many elements are cut.
    fn chunks(&self, units: usize, size: usize) -> usize {
        (units.saturating_mul(size) / self.tuning.threads.fft)
            .clamp(1, (4 * pool::threads()).min(units.max(1)))
    }

    fn groups(&self, axis: &Columns<T>) -> (usize, usize) {
        let in_one = axis.stride.div_ceil(self.tuning.lines.fft_columns);
        (self.complex_count() / (axis.length * axis.stride) * in_one, in_one)
    }

    /// Complex numbers between the passes.
    fn complex_count(&self) -> usize {
        self.lines * if matches!(self.line, Line::ToReal(_)) { self.from } else { self.to }
    }

    /// Complex numbers of scratch memory for each chunk of each pass.
    fn line_scratch(&self) -> usize {
        self.line.scratch() + self.copied()
    }

    /// Complex numbers for a copy of a line, which real transforms overwrite.
    fn copied(&self) -> usize {
        match self.line {
            Line::Complex(_) => 0,
            Line::ToComplex(_) => self.from.div_ceil(2),
            Line::ToReal(_) => self.from,
        }
    }

    fn column_scratch(&self, axis: &Columns<T>) -> usize {
        axis.length * self.tuning.lines.fft_columns + axis.line.get_inplace_scratch_len()
    }

    fn copies(&self) -> bool {
        matches!(self.line, Line::ToReal(_)) && !self.columns.is_empty()
    }

    /// Transforms along the last axis.
    ///
    /// # Safety
    /// Both pointers are to as many lines as there are, of the types that `line` takes and gives; they are
    /// the same only for complex transforms. `scratch` is as large as `Kernel::scratch` says.
    unsafe fn along_lines(
        &self,
        from: *const u8,
        to: *mut u8,
        scratch: *mut u8,
        scale: Option<T>,
    ) -> Result<()> {
        let chunks = self.chunks(self.lines, self.from.max(self.to));
        let each = self.line_scratch();
        let shared = Shared { from, to, scratch };
        pool::run_interruptibly(chunks, &|chunk| {
            let shared = &shared;
            // SAFETY: the scratch memory is `each` numbers for each chunk.
            let scratch = unsafe { many(shared.scratch.cast::<Complex<T>>().add(chunk * each), each) };
            let (copy, scratch) = scratch.split_at_mut(self.copied());
            for line in chunk * self.lines / chunks..(chunk + 1) * self.lines / chunks {
                match &self.line {
                    Line::Complex(plan) => {
                        // SAFETY: the line is in both arrays, and no other chunk's.
                        let (x, y) = unsafe {
                            let x = shared.from.cast::<Complex<T>>().add(line * self.from);
                            let y = shared.to.cast::<Complex<T>>().add(line * self.to);
                            (std::slice::from_raw_parts(x, self.from), many(y, self.to))
                        };
                        plan.process_immutable_with_scratch(x, y, scratch);
                        scale_by(y, scale);
                    }
                    Line::ToComplex(plan) => {
                        // SAFETY: as above; a complex number is two reals, so that the copy has room for the line.
                        let (x, y, copy) = unsafe {
                            let x = shared.from.cast::<T>().add(line * self.from);
                            let y = shared.to.cast::<Complex<T>>().add(line * self.to);
                            let copy = many(copy.as_mut_ptr().cast::<T>(), self.from);
                            (std::slice::from_raw_parts(x, self.from), many(y, self.to), copy)
                        };
                        copy.copy_from_slice(x);
                        // Refuses slices of other lengths than it says, which these have.
                        let _ = plan.process_with_scratch(copy, y, scratch);
                    }
                    Line::ToReal(plan) => {
                        // SAFETY: as above.
                        let (x, y) = unsafe {
                            let x = shared.from.cast::<Complex<T>>().add(line * self.from);
                            let y = shared.to.cast::<T>().add(line * self.to);
                            (std::slice::from_raw_parts(x, self.from), many(y, self.to))
                        };
                        copy.copy_from_slice(x);
                        // Numbers that are their own mirror image count as real; the plan asks for it.
                        copy[0].im = T::zero();
                        if self.to.is_multiple_of(2) {
                            copy[self.to / 2].im = T::zero();
                        }
                        let _ = plan.process_with_scratch(copy, y, scratch);
                        if let Some(scale) = scale {
                            y.iter_mut().for_each(|value| *value = *value * scale);
                        }
                    }
                }
            }
        })
    }

    /// Transforms along an axis that is not the last, within an array or from one to another.
    ///
    /// # Safety
    /// Both pointers are to `complex_count` numbers. `scratch` is as large as `Kernel::scratch` says.
    unsafe fn along_columns(
        &self,
        axis: &Columns<T>,
        from: *const Complex<T>,
        to: *mut Complex<T>,
        scratch: *mut u8,
        scale: Option<T>,
    ) -> Result<()> {
        let (most, in_cache) = (self.tuning.lines.fft_columns, self.tuning.lines.fft_rows);
        let (groups, in_one) = self.groups(axis);
        let chunks = self.chunks(groups, axis.length * most);
        let each = self.column_scratch(axis);
        let shared = Shared { from, to, scratch };
        pool::run_interruptibly(chunks, &|chunk| {
            let shared = &shared;
            // SAFETY: the scratch memory is `each` numbers for each chunk.
            let scratch = unsafe { many(shared.scratch.cast::<Complex<T>>().add(chunk * each), each) };
            let (lines, scratch) = scratch.split_at_mut(axis.length * most);
            for group in chunk * groups / chunks..(chunk + 1) * groups / chunks {
                let (array, column) = (group / in_one, group % in_one * most);
                let width = most.min(axis.stride - column);
                let start = array * axis.length * axis.stride + column;
                let lines = &mut lines[..width * axis.length];
                for rows in blocks(axis.length, in_cache) {
                    for (place, line) in lines.chunks_exact_mut(axis.length).enumerate() {
                        for row in rows.clone() {
                            // SAFETY: this column is in this row of the array, and in the group of this
                            // chunk alone.
                            line[row] = unsafe { *shared.from.add(start + row * axis.stride + place) };
                        }
                    }
                }
                axis.line.process_with_scratch(lines, scratch);
                scale_by(lines, scale);
                for rows in blocks(axis.length, in_cache) {
                    for (place, line) in lines.chunks_exact(axis.length).enumerate() {
                        for row in rows.clone() {
                            // SAFETY: as above.
                            unsafe { *shared.to.add(start + row * axis.stride + place) = line[row] };
                        }
                    }
                }
            }
        })
    }
}

/// The rows, by cache lines of a column: those of lines whose length is a power of two collide in a cache, so
/// that one is filled before the next is begun.
fn blocks(length: usize, most: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..length).step_by(most).map(move |row| row..length.min(row + most))
}

fn scale_by<T: Float>(values: &mut [Complex<T>], scale: Option<T>) {
    if let Some(scale) = scale {
        for value in values {
            *value = Complex { re: value.re * scale, im: value.im * scale };
        }
    }
}

impl<T: Kept> Kernel for Transform<T> {
    /// The parts of the chunks; then, where it is needed, a copy of the operand.
    fn scratch(&self) -> usize {
        let lines = self.chunks(self.lines, self.from.max(self.to)) * self.line_scratch();
        let columns = self.columns.iter().map(|axis| {
            self.chunks(self.groups(axis).0, axis.length * self.tuning.lines.fft_columns)
                * self.column_scratch(axis)
        });
        let most = columns.fold(lines, usize::max);
        let copy = if self.copies() { self.complex_count() } else { 0 };
        (most + copy) * size_of::<Complex<T>>()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let (from, to, scratch) = (call.inputs[0], call.outputs[0], call.scratch);
        if !matches!(self.line, Line::ToReal(_)) {
            let scale = |last: bool| self.scale.filter(|_| last);
            // SAFETY: operand and result are lines of the types of this op, and no memory of both.
            unsafe { self.along_lines(from, to, scratch, scale(self.columns.is_empty()))? };
            for (number, axis) in self.columns.iter().enumerate() {
                let to = to.cast::<Complex<T>>();
                // SAFETY: the result is `complex_count` numbers.
                unsafe {
                    self.along_columns(axis, to, to, scratch, scale(number + 1 == self.columns.len()))?;
                }
            }
            return Ok(());
        }
        let mut numbers = from.cast::<Complex<T>>();
        // SAFETY: the last `complex_count` numbers of the scratch memory are for the copy.
        let copy = unsafe {
            let parts =
                self.scratch() - self.complex_count() * usize::from(self.copies()) * size_of::<Complex<T>>();
            scratch.add(parts).cast::<Complex<T>>()
        };
        for axis in &self.columns {
            // SAFETY: the operand and the copy are `complex_count` numbers.
            unsafe { self.along_columns(axis, numbers, copy, scratch, None)? };
            numbers = copy;
        }
        // SAFETY: the numbers are lines of this op's operand, transformed; the result is one of its own.
        unsafe { self.along_lines(numbers.cast(), to, scratch, self.scale) }
    }
}
