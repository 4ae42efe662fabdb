//! Gather of single elements, and scatter of single elements or lines of them, by an index or a few.
//!
//! Indices and the other array are read in order, so that nothing has to be computed for an element but its place along
//! the axes of the operand that indices are of. A gather of windows is one of single elements for each element of a window,
//! where the result has them so.

use std::ops::Range;

use ferrax_compile::{Argument, Path};
use ferrax_ir::ops::{Gather, ScatterKind};
use ferrax_ir::{DType, Result};
use smallvec::SmallVec;

use super::copy::{CopyLoop, copy_shared};
use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::Threads;
use crate::vm::isa::{Isa, isa};
use crate::vm::ops::Number;

/// Where single elements lie in the operand.
#[derive(Clone, Debug)]
pub struct Singles {
    /// Size and byte stride in the operand of each axis of the indices but the last.
    outer: SmallVec<[(usize, isize); 4]>,
    inner: (usize, isize),
    /// Byte stride along the indexed axis, and its last index.
    stride: isize,
    last: i64,
    /// The same of further axes, whose indices follow.
    more: SmallVec<[(isize, i64); 2]>,
    clamp: bool,
    index_dtype: DType,
}

/// Places that are computed before anything is done there, where several indices say each.
const AHEAD: usize = 64;

/// An integer type of indices.
trait Index: Copy {
    fn wide(self) -> i64;
}

macro_rules! indices {
    ($($t:ty)*) => {$(
        impl Index for $t {
            #[inline(always)]
            fn wide(self) -> i64 { i64::from(self) }
        }
    )*};
}

indices! { i32 u32 i64 }

impl Singles {
    /// `positions` are sizes and byte strides in the operand of the axes of the indices, `starts` the byte stride and the last
    /// index of each axis that they are of.
    pub fn new(
        positions: impl Iterator<Item = (usize, isize)>,
        starts: &[(isize, i64)],
        clamp: bool,
        index_dtype: DType,
    ) -> Option<Singles> {
        let (&(stride, last), more) = starts.split_first()?;
        let negative = starts.iter().any(|&(_, last)| last < 0);
        if !matches!(index_dtype, DType::I32 | DType::U32 | DType::I64) || negative {
            return None;
        }
        let mut outer: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        for (size, in_operand) in positions.filter(|position| position.0 != 1) {
            match outer.last_mut() {
                Some(before) if before.1 == in_operand * size as isize => {
                    *before = (before.0 * size, in_operand);
                }
                _ => outer.push((size, in_operand)),
            }
        }
        let inner = outer.pop().unwrap_or((1, 0));
        Some(Singles { outer, inner, stride, last, more: more.into(), clamp, index_dtype })
    }

    fn count(&self) -> usize {
        self.outer.iter().map(|axis| axis.0).product::<usize>() * self.inner.0
    }

    /// Visits elements `from..to`: `visit(number, byte offset in the operand)`, none for those out
    /// of bounds.
    ///
    /// # Safety
    /// `indices` are as many as there are elements.
    #[inline(always)]
    unsafe fn each<I: Index>(
        &self,
        indices: *const I,
        from: usize,
        to: usize,
        mut visit: impl FnMut(usize, Option<isize>),
    ) {
        // What is visited is written through pointers that, for all the compiler knows, reach `self`.
        let (clamp, last, stride, step) = (self.clamp, self.last, self.stride, self.inner.1);
        self.lines(from, to, |first, end, mut base| {
            if !self.more.is_empty() {
                for first in (first..end).step_by(AHEAD) {
                    let mut places = [(0, true); AHEAD];
                    let places = &mut places[..AHEAD.min(end - first)];
                    // SAFETY: there are as many vectors of indices as elements.
                    unsafe { self.places(indices.add(first * (1 + self.more.len())), base, places) };
                    for (number, &(offset, inside)) in (first..).zip(&*places) {
                        visit(number, inside.then_some(offset));
                    }
                    base += places.len() as isize * step;
                }
                return;
            }
            for number in first..end {
                // SAFETY: `number` is below `to`, and there are as many indices as elements.
                let index = unsafe { (*indices.add(number)).wide() };
                if clamp {
                    visit(number, Some(base + index.clamp(0, last) as isize * stride));
                } else {
                    // Also where it is negative.
                    let inside = index as u64 <= last as u64;
                    visit(number, inside.then(|| base + index as isize * stride));
                }
                base += step;
            }
        });
    }

    /// Visits the lines of elements `from..to`: the first, the end, and the first one's byte offset before an index is known.
    #[inline(always)]
    fn lines(&self, from: usize, to: usize, mut visit: impl FnMut(usize, usize, isize)) {
        let (length, step) = self.inner;
        let mut number = from;
        while number < to {
            let (mut line, first) = (number / length, number % length);
            let end = to.min(number - first + length);
            let mut base = first as isize * step;
            for &(size, in_operand) in self.outer.iter().rev() {
                base += (line % size) as isize * in_operand;
                line /= size;
            }
            visit(number, end, base);
            number = end;
        }
    }

    /// Where elements are that several indices each say, and whether they are inside: the first one at `base` and beyond. What
    /// is done there, one after the other, then waits for nothing but memory.
    ///
    /// # Safety
    /// There are as many vectors of indices as places.
    #[inline(always)]
    unsafe fn places<I: Index>(&self, indices: *const I, base: isize, places: &mut [(isize, bool)]) {
        let width = 1 + self.more.len();
        for (number, place) in places.iter_mut().enumerate() {
            *place = (base + number as isize * self.inner.1, true);
        }
        for (entry, &(stride, last)) in
            std::iter::once(&(self.stride, self.last)).chain(&self.more).enumerate()
        {
            for (number, (offset, inside)) in places.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                let index = unsafe { (*indices.add(number * width + entry)).wide() };
                *inside &= self.clamp || index as u64 <= last as u64;
                *offset += index.clamp(0, last) as isize * stride;
            }
        }
    }

    /// The kernel of a gather of elements of this dtype, of windows with these loops, whose elements are apart in the result:
    /// those of one place in all windows lie together.
    pub fn gather(
        self,
        op: &Gather,
        dtype: DType,
        windows: SmallVec<[CopyLoop; 6]>,
        tuning: &'static Threads,
    ) -> Option<Box<dyn Kernel>> {
        macro_rules! of_index {
            ($t:ty) => {
                match self.index_dtype {
                    DType::I32 => gather::<$t, i32>,
                    DType::U32 => gather::<$t, u32>,
                    _ => gather::<$t, i64>,
                }
            };
        }
        let run: GatherRange = match dtype.size() {
            1 => of_index!(u8),
            2 => of_index!(u16),
            4 => of_index!(u32),
            8 => of_index!(u64),
            16 => of_index!([u64; 2]),
            _ => return None,
        };
        Path::GatherSingles.take();
        Path::GatherLines.take_if(!windows.is_empty());
        let fill = op.fill(dtype).bits();
        Some(Box::new(GatherSingles { singles: self, windows, fill: fill.to_le_bytes(), run, tuning }))
    }

    /// The kernel of a scatter of lines of so many elements into an operand of this type, for common dtypes. Lines
    /// that do not overlap but where they are the same may be cut.
    pub fn scatter(
        self,
        kind: ScatterKind,
        operand: &Argument,
        width: usize,
        cut: bool,
        tuning: &'static Threads,
    ) -> Option<Box<dyn Kernel>> {
        macro_rules! of_index {
            ($t:ty, $f:expr) => {
                match self.index_dtype {
                    DType::I32 => |s, a, columns| {
                        // SAFETY: `ScatterColumns` is `scatter` for one pair of types: these are the dtypes of
                        // the operand and of the indices.
                        unsafe { scatter_wide::<$t, i32>(s, a, columns, $f) }
                    },
                    DType::U32 => |s, a, columns| {
                        // SAFETY: as for I32, with indices that are U32.
                        unsafe { scatter_wide::<$t, u32>(s, a, columns, $f) }
                    },
                    _ => |s, a, columns| {
                        // SAFETY: as for I32; of other index dtypes only I64 comes here.
                        unsafe { scatter_wide::<$t, i64>(s, a, columns, $f) }
                    },
                }
            };
        }
        macro_rules! kinds {
            ($t:ty) => {
                match kind {
                    ScatterKind::Add => of_index!($t, Number::add),
                    ScatterKind::Mul => of_index!($t, Number::mul),
                    ScatterKind::Min => of_index!($t, Number::min),
                    ScatterKind::Max => of_index!($t, Number::max),
                    _ => return None,
                }
            };
        }
        let run: ScatterColumns = match (kind, operand.dtype) {
            (ScatterKind::Set, dtype) => match dtype.size() {
                1 => of_index!(u8, |_, new| new),
                2 => of_index!(u16, |_, new| new),
                4 => of_index!(u32, |_, new| new),
                8 => of_index!(u64, |_, new| new),
                16 => of_index!([u64; 2], |_, new| new),
                _ => return None,
            },
            (_, DType::I32) => kinds!(i32),
            (_, DType::I64) => kinds!(i64),
            (_, DType::U32) => kinds!(u32),
            (_, DType::F32) => kinds!(f32),
            (_, DType::F64) => kinds!(f64),
            _ => return None,
        };
        Path::ScatterLines.take();
        let (bytes, element) = (operand.bytes(), operand.dtype.size());
        Some(Box::new(ScatterLines { singles: self, bytes, width, element, cut, run, tuning }))
    }
}

/// `f(singles, operand, indices, out, from, to, fill)`.
type GatherRange = unsafe fn(&Singles, *const u8, *const u8, *mut u8, usize, usize, &[u8; 16]);
/// `f(singles, arrays, columns)`: brings these columns of all lines to the operand.
type ScatterColumns = unsafe fn(&Singles, &Arrays, Range<usize>);

/// The arrays of a scatter, and the elements of a line of updates.
struct Arrays {
    operand: *mut u8,
    indices: *const u8,
    updates: *const u8,
    width: usize,
}

// SAFETY: chunks write columns of their own and only read the indices and updates.
unsafe impl Sync for Arrays {}

/// # Safety
/// The arrays are those of the op, of these element types.
unsafe fn gather<T: Copy, I: Index>(
    singles: &Singles,
    operand: *const u8,
    indices: *const u8,
    out: *mut u8,
    from: usize,
    to: usize,
    fill: &[u8; 16],
) {
    // SAFETY: offsets are inside the operand, numbers inside the other arrays; `T` is at most as wide
    // as `fill`.
    unsafe {
        let fill = fill.as_ptr().cast::<T>().read_unaligned();
        singles.each(indices.cast::<I>(), from, to, |number, offset| {
            let value = offset.map_or(fill, |offset| *operand.offset(offset).cast::<T>());
            *out.cast::<T>().add(number) = value;
        });
    }
}

/// # Safety
/// As `gather`; nobody else uses these columns of the operand.
#[inline(always)]
unsafe fn scatter<T: Copy, I: Index>(
    singles: &Singles,
    arrays: &Arrays,
    columns: Range<usize>,
    combine: impl Fn(T, T) -> T,
) {
    let (operand, updates, width) = (arrays.operand, arrays.updates.cast::<T>(), arrays.width);
    let (indices, first, count) = (arrays.indices.cast::<I>(), columns.start, columns.len());
    if width == 1 && singles.more.is_empty() {
        singles.lines(0, singles.count(), |first, end, base| {
            // SAFETY: lines have numbers below the count, which the indices and the updates have.
            unsafe {
                let line = (operand.offset(base).cast(), indices.add(first), updates.add(first));
                scatter_line::<T, I>(singles, line, end - first, &combine);
            }
        });
        return;
    }
    // SAFETY: `each` gives offsets of lines inside the operand and numbers below the count, which the
    // indices and the lines of updates have. Updates come in order, so that repeated indices have one meaning.
    unsafe {
        singles.each(indices, 0, singles.count(), |number, offset| {
            let Some(offset) = offset else { return };
            let target = operand.offset(offset).cast::<T>();
            let target = std::slice::from_raw_parts_mut(target.add(first), count);
            let line = std::slice::from_raw_parts(updates.add(number * width + first), count);
            for (target, &update) in target.iter_mut().zip(line) {
                *target = combine(*target, update);
            }
        });
    }
}

/// So many elements one after the other, with nothing else in registers.
///
/// # Safety
/// As `scatter`: `line` is where the first element's index 0 is in the operand, its index and its update.
#[inline(never)]
unsafe fn scatter_line<T: Copy, I: Index>(
    singles: &Singles,
    line: (*mut u8, *const I, *const T),
    count: usize,
    combine: &impl Fn(T, T) -> T,
) {
    let (mut base, indices, updates) = line;
    let (clamp, last, stride, step) = (singles.clamp, singles.last, singles.stride, singles.inner.1);
    for number in 0..count {
        // SAFETY: there are as many indices and updates, and what is not beyond the last index is inside the operand.
        unsafe {
            let index = (*indices.add(number)).wide();
            // A negative one is beyond it, too.
            if clamp || index as u64 <= last as u64 {
                let index = if clamp { index.clamp(0, last) } else { index };
                let target = base.offset(index as isize * stride).cast::<T>();
                *target = combine(*target, *updates.add(number));
            }
        }
        base = base.wrapping_offset(step);
    }
}

/// As `scatter`, with the vectors of this machine.
///
/// # Safety
/// As `scatter`.
#[inline(always)]
unsafe fn scatter_wide<T: Copy, I: Index>(
    singles: &Singles,
    arrays: &Arrays,
    columns: Range<usize>,
    combine: impl Fn(T, T) -> T,
) {
    // SAFETY: the caller's promise; the machine has the instructions that it is asked for here.
    unsafe {
        match isa() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::Avx512 => scatter_avx2::<T, I>(singles, arrays, columns, combine),
            Isa::Baseline => scatter::<T, I>(singles, arrays, columns, combine),
        }
    }
}

/// # Safety
/// As `scatter`; the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn scatter_avx2<T: Copy, I: Index>(
    singles: &Singles,
    arrays: &Arrays,
    columns: Range<usize>,
    combine: impl Fn(T, T) -> T,
) {
    // SAFETY: the caller's promise.
    unsafe { scatter::<T, I>(singles, arrays, columns, combine) }
}

struct GatherSingles {
    singles: Singles,
    /// The loops of a window.
    windows: SmallVec<[CopyLoop; 6]>,
    fill: [u8; 16],
    run: GatherRange,
    tuning: &'static Threads,
}

impl std::fmt::Debug for GatherSingles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GatherSingles({:?})", self.singles)
    }
}

struct Pointers<'a>(&'a Call<'a>);

// SAFETY: chunks write disjoint parts of the output and only read the inputs.
unsafe impl Sync for Pointers<'_> {}

impl Kernel for GatherSingles {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let count = self.singles.count();
        // A line has an element of each window.
        let all = self.windows.iter().map(|each| each.count).product::<usize>() * count;
        let pointers = Pointers(call);
        let chunks = (all / self.tuning.gather).clamp(1, 64);
        pool::run_interruptibly(chunks, &|chunk| {
            let pointers = &pointers;
            let call = pointers.0;
            let (mut from, end) = (chunk * all / chunks, (chunk + 1) * all / chunks);
            while from < end {
                let (line, first) = (from / count, from % count);
                let to = count.min(first + end - from);
                let (mut rest, mut operand, mut out) = (line, 0, 0);
                for each in self.windows.iter().rev() {
                    operand += (rest % each.count) as isize * each.from;
                    out += (rest % each.count) as isize * each.to;
                    rest /= each.count;
                }
                // SAFETY: `Kernel::run`'s operands are the arrays of the op, whose element types chose the function; the
                // range lies inside the line of the output, and no other chunk writes to it.
                unsafe {
                    (self.run)(
                        &self.singles,
                        call.inputs[0].offset(operand),
                        call.inputs[1],
                        call.outputs[0].offset(out),
                        first,
                        to,
                        &self.fill,
                    );
                }
                from += to - first;
            }
        })
    }
}

struct ScatterLines {
    singles: Singles,
    /// Bytes of the operand, and of an element.
    bytes: usize,
    element: usize,
    /// Elements of a line, and whether threads may have columns of their own.
    width: usize,
    cut: bool,
    run: ScatterColumns,
    tuning: &'static Threads,
}

impl std::fmt::Debug for ScatterLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScatterLines({:?}, {})", self.singles, self.width)
    }
}

impl Kernel for ScatterLines {
    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let (operand, width) = (call.outputs[0], self.width);
        if !std::ptr::eq(operand, call.inputs[0]) {
            // SAFETY: operand and result have `self.bytes` bytes and are apart.
            unsafe { copy_shared(call.inputs[0], operand, self.bytes, self.tuning) };
        }
        let arrays = Arrays { operand, indices: call.inputs[1], updates: call.inputs[2], width };
        let worth_it = self.cut && self.singles.count().saturating_mul(width) >= self.tuning.scatter;
        let stripes = if worth_it { width * self.element / self.tuning.stripe } else { 1 };
        let stripes = stripes.min(width).clamp(1, pool::threads());
        Path::ScatterLineStripes.take_if(stripes > 1);
        pool::run_interruptibly(stripes, &|stripe| {
            let columns = stripe * width / stripes..(stripe + 1) * width / stripes;
            // SAFETY: the arrays are those of the op, whose types chose the function; each chunk has columns of
            // its own, which meet no others, for lines are cut only if they are the same or apart.
            unsafe { (self.run)(&self.singles, &arrays, columns) }
        })
    }
}
