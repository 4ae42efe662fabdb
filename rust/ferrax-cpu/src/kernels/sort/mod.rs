//! Sorting and the largest elements along an axis.
//!
//! Elements become unsigned integers in their order (`keys`), which are sorted
//! by digits (`words`). One operand is sorted as such. Of several, keys are
//! sorted together with their places, the last key first, and the operands are
//! permuted. Lines are independent units of work; a long line is shared.

mod keys;
mod top_k;
mod words;

use ferrax_compile::{Argument, Path};
use ferrax_ir::ops::{Sort, key_ranks};
use ferrax_ir::{DType, Result};
use half::{bf16, f16};
use smallvec::SmallVec;

use self::keys::Key;
use self::words::{Digits, KeyWord, Word, sort};
use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::Tuning;

pub use self::top_k::bind as bind_top_k;

/// What scratch memory is aligned to.
const ALIGNMENT: usize = 64;

/// The lines along an axis of an array.
#[derive(Clone, Copy, Debug)]
struct Lines {
    outer: usize,
    length: usize,
    inner: usize,
}

impl Lines {
    fn new(sizes: &[usize], axis: usize) -> Lines {
        Lines {
            outer: sizes[..axis].iter().product(),
            length: sizes[axis],
            inner: sizes[axis + 1..].iter().product(),
        }
    }

    fn count(&self) -> usize {
        self.outer * self.inner
    }

    /// Where a line begins, in elements; its elements are `inner` apart.
    fn start(&self, line: usize) -> usize {
        line / self.inner * self.length * self.inner + line % self.inner
    }

    /// In how many chunks threads take the lines.
    fn chunks(&self, tuning: &Tuning) -> usize {
        (self.count() * self.length / tuning.threads.sort)
            .clamp(1, 4 * pool::threads())
            .min(self.count().max(1))
    }
}

/// One line of all operands.
struct Line<'a> {
    /// The first elements.
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
    length: usize,
    /// Elements from one to the next.
    stride: usize,
    scratch: *mut u8,
    /// Whether other threads have nothing else to do.
    shared: bool,
    tuning: &'a Tuning,
}

type SortLine = unsafe fn(&SortKernel, &Line<'_>);

/// Sorts places by a key: `f(column, line, places, whether they are as in the line)`.
type SortByKey = unsafe fn(&Column, &Line<'_>, &mut [u32], bool);

/// One key, or one part of it.
struct Column {
    operand: usize,
    /// Bytes of an element, and from there to the part that is compared.
    width: usize,
    part: usize,
    /// For elements of one byte.
    ranks: Option<[u8; 256]>,
    sort: SortByKey,
}

struct SortKernel {
    lines: Lines,
    widths: SmallVec<[usize; 4]>,
    columns: Vec<Column>,
    ranks: [u8; 256],
    run: SortLine,
    scratch: usize,
    tuning: &'static Tuning,
}

impl std::fmt::Debug for SortKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SortKernel({:?}, {} keys)", self.lines, self.columns.len())
    }
}

/// The kernel, if the places in a line fit into 32 bits.
pub fn bind(op: &Sort, inputs: &[Argument], tuning: &'static Tuning) -> Option<Box<dyn Kernel>> {
    let lines = Lines::new(&inputs[0].sizes, op.dimension);
    if u32::try_from(lines.length).is_err() {
        return None;
    }
    let mut columns = Vec::new();
    let mut widest = 0;
    for (operand, input) in inputs.iter().enumerate().take(op.num_keys) {
        let (width, size) = (input.dtype.size(), input.dtype.real().size());
        for part in (0..width).step_by(size.max(1)) {
            let (sort, ranks) = by_key(input.dtype)?;
            columns.push(Column { operand, width, part, ranks, sort });
        }
        widest = widest.max(size);
    }
    // Keys with their places, twice, and the places.
    let mut scratch = lines.length * (2 * if widest > 4 { 16 } else { 8 } + 4);
    let mut run: SortLine = by_places;
    let mut ranks = [0; 256];
    if let [only] = inputs
        && !only.dtype.is_complex()
    {
        (run, ranks) = alone(only.dtype)?;
        scratch = lines.length * 2 * only.dtype.size();
    }
    let is_alone = inputs.len() == 1 && !inputs[0].dtype.is_complex();
    match (is_alone, key_ranks(inputs[0].dtype)) {
        (false, _) => Path::SortPlaces,
        (true, Some(_)) => Path::SortBytes,
        (true, None) if lines.length < tuning.lines.compared * inputs[0].dtype.size().min(4) => {
            Path::SortCompared
        }
        (true, None) => Path::SortDigits,
    }
    .take();
    let widths = inputs.iter().map(|input| input.dtype.size()).collect();
    let scratch = scratch.next_multiple_of(ALIGNMENT);
    Some(Box::new(SortKernel { lines, widths, columns, ranks, run, scratch, tuning }))
}

struct Pointers<'a>(&'a Call<'a>);

// SAFETY: chunks read and write disjoint lines and have scratch memory of their own.
unsafe impl Sync for Pointers<'_> {}

impl Kernel for SortKernel {
    fn scratch(&self) -> usize {
        self.lines.chunks(self.tuning) * self.scratch
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let (count, chunks) = (self.lines.count(), self.lines.chunks(self.tuning));
        if count == 0 || self.lines.length == 0 {
            return Ok(());
        }
        let pointers = Pointers(call);
        pool::run_interruptibly(chunks, &|chunk| {
            let pointers = &pointers;
            let call = pointers.0;
            for line in chunk * count / chunks..(chunk + 1) * count / chunks {
                let start = self.lines.start(line);
                // SAFETY: the line lies inside all arrays, the chunk's part inside the scratch memory.
                unsafe {
                    let at = |width: &usize| start * width;
                    let inputs = call.inputs.iter().zip(&self.widths).map(|(x, width)| x.add(at(width)));
                    let outputs = call.outputs.iter().zip(&self.widths).map(|(x, width)| x.add(at(width)));
                    let inputs: SmallVec<[*const u8; 4]> = inputs.collect();
                    let outputs: SmallVec<[*mut u8; 4]> = outputs.collect();
                    let line = Line {
                        inputs: &inputs,
                        outputs: &outputs,
                        length: self.lines.length,
                        stride: self.lines.inner,
                        scratch: call.scratch.add(chunk * self.scratch),
                        shared: chunks == 1,
                        tuning: self.tuning,
                    };
                    (self.run)(self, &line);
                }
            }
        })
    }
}

/// The function for one operand, with the table of those of one byte.
fn alone(dtype: DType) -> Option<(SortLine, [u8; 256])> {
    if let Some(ranks) = key_ranks(dtype) {
        return Some((bytes, ranks));
    }
    let run: SortLine = match dtype {
        DType::I16 => values::<i16>,
        DType::I32 => values::<i32>,
        DType::I64 => values::<i64>,
        DType::U16 => values::<u16>,
        DType::U32 => values::<u32>,
        DType::U64 => values::<u64>,
        DType::BF16 => values::<bf16>,
        DType::F16 => values::<f16>,
        DType::F32 => values::<f32>,
        DType::F64 => values::<f64>,
        _ => return None,
    };
    Some((run, [0; 256]))
}

/// Two slices of scratch memory, one after the other.
///
/// # Safety
/// The memory holds both, aligned, and is not used otherwise while they live.
unsafe fn pair<'a, T>(scratch: *mut u8, length: usize) -> (&'a mut [T], &'a mut [T]) {
    let first = scratch.cast::<T>();
    // SAFETY: the memory holds twice `length` elements, is aligned to them, and lives as long as the caller
    // says that nothing else uses it.
    unsafe {
        (
            std::slice::from_raw_parts_mut(first, length),
            std::slice::from_raw_parts_mut(first.add(length), length),
        )
    }
}

/// Sorts elements of one byte: counts them.
///
/// # Safety
/// As for all functions of lines: the line is one of arrays of the kernel's types.
unsafe fn bytes(kernel: &SortKernel, line: &Line<'_>) {
    let (from, to) = (line.inputs[0], line.outputs[0]);
    let mut places = [0usize; 257];
    // SAFETY: indices stay inside the line.
    unsafe {
        let rank = |index: usize| usize::from(kernel.ranks[usize::from(*from.add(index * line.stride))]);
        for index in 0..line.length {
            places[rank(index) + 1] += 1;
        }
        for value in 1..257 {
            places[value] += places[value - 1];
        }
        for index in 0..line.length {
            let place = &mut places[rank(index)];
            *to.add(*place * line.stride) = *from.add(index * line.stride);
            *place += 1;
        }
    }
}

/// Sorts elements whose key is one integer.
///
/// # Safety
/// As `bytes`.
unsafe fn values<K: Key>(_: &SortKernel, line: &Line<'_>) {
    let (from, to) = (line.inputs[0].cast::<K>(), line.outputs[0].cast::<K>());
    // SAFETY: indices stay inside the line; the scratch memory holds two words for each element.
    unsafe {
        let element = |index: usize| *from.add(index * line.stride);
        let (words, spare) = pair::<K::Word>(line.scratch, line.length);
        let mut special = false;
        for (index, word) in words.iter_mut().enumerate() {
            let element = element(index);
            special |= element.is_special();
            *word = element.total();
        }
        let mut numbers = line.length;
        if special {
            numbers = 0;
            for element in (0..line.length).map(element).filter(|element| !element.is_nan()) {
                words[numbers] = element.total();
                numbers += 1;
            }
        }
        let digits = Digits { low: 0, high: K::Word::BITS };
        sort(&mut words[..numbers], &mut spare[..numbers], digits, line.shared, line.tuning);
        for (index, &word) in words[..numbers].iter().enumerate() {
            *to.add(index * line.stride) = K::from_total(word);
        }
        if special {
            // Zeros of both signs are equal, and so are NaNs: they keep their order.
            let first = words[..numbers].partition_point(|&word| K::from_total(word).key() < K::ZERO);
            let zeros = (0..line.length).map(element).filter(|element| element.is_zero());
            let nans = (0..line.length).map(element).filter(|element| element.is_nan());
            for (place, zero) in (first..).zip(zeros) {
                *to.add(place * line.stride) = zero;
            }
            for (place, nan) in (numbers..).zip(nans) {
                *to.add(place * line.stride) = nan;
            }
        }
    }
}

/// Sorts by any keys: finds the places of the elements, then moves all operands.
///
/// # Safety
/// As `bytes`.
unsafe fn by_places(kernel: &SortKernel, line: &Line<'_>) {
    // SAFETY: the scratch memory ends with room for the places, which are indices of the line.
    unsafe {
        let places = line.scratch.add(kernel.scratch).cast::<u32>().sub(line.length);
        let places = std::slice::from_raw_parts_mut(places, line.length);
        for (number, column) in kernel.columns.iter().rev().enumerate() {
            (column.sort)(column, line, places, number == 0);
        }
        for ((&from, &to), &width) in line.inputs.iter().zip(line.outputs).zip(&kernel.widths) {
            match width {
                0 => {}
                1 => permute::<u8>(from, to, line.stride, places),
                2 => permute::<u16>(from, to, line.stride, places),
                4 => permute::<u32>(from, to, line.stride, places),
                8 => permute::<u64>(from, to, line.stride, places),
                _ => permute::<[u64; 2]>(from, to, line.stride, places),
            }
        }
    }
}

/// # Safety
/// Both are lines as long as there are places, which are indices of them.
unsafe fn permute<T: Copy>(from: *const u8, to: *mut u8, stride: usize, places: &[u32]) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for (index, &place) in places.iter().enumerate() {
        // SAFETY: the index is below the line's length, and so is the place.
        unsafe { *to.add(index * stride) = *from.add(place as usize * stride) };
    }
}

/// The function that sorts places by a key, with the table of keys of one byte.
fn by_key(dtype: DType) -> Option<(SortByKey, Option<[u8; 256]>)> {
    if let Some(ranks) = key_ranks(dtype) {
        return Some((by_rank, Some(ranks)));
    }
    Some((
        match dtype.real() {
            DType::I16 => by_number::<i16>,
            DType::I32 => by_number::<i32>,
            DType::I64 => by_number::<i64>,
            DType::U16 => by_number::<u16>,
            DType::U32 => by_number::<u32>,
            DType::U64 => by_number::<u64>,
            DType::BF16 => by_number::<bf16>,
            DType::F16 => by_number::<f16>,
            DType::F32 => by_number::<f32>,
            DType::F64 => by_number::<f64>,
            _ => return None,
        },
        None,
    ))
}

/// # Safety
/// As `bytes`; the places are indices of the line.
unsafe fn by_number<K: Key>(column: &Column, line: &Line<'_>, places: &mut [u32], fresh: bool) {
    // SAFETY: the line and the places are the caller's; `bind` chose `K` by the dtype of the column's part,
    // to which `by_word` hands pointers.
    unsafe { by_word(column, line, places, fresh, |element| (*element.cast::<K>()).key()) }
}

/// # Safety
/// As `by_number`.
unsafe fn by_rank(column: &Column, line: &Line<'_>, places: &mut [u32], fresh: bool) {
    let Some(ranks) = &column.ranks else { return };
    // SAFETY: the line and the places are the caller's; only columns of one byte have ranks.
    unsafe { by_word(column, line, places, fresh, |element| ranks[usize::from(*element)]) }
}

/// # Safety
/// As `by_number`; `word` is given elements of the line.
#[inline(always)]
unsafe fn by_word<W: KeyWord>(
    column: &Column,
    line: &Line<'_>,
    places: &mut [u32],
    fresh: bool,
    word: impl Fn(*const u8) -> W,
) {
    // SAFETY: places are indices of the line; the scratch memory holds two words for each element.
    unsafe {
        let first = line.inputs[column.operand].add(column.part);
        let step = line.stride * column.width;
        let (words, spare) = pair::<W::Placed>(line.scratch, line.length);
        if fresh {
            for (index, placed) in words.iter_mut().enumerate() {
                *placed = word(first.add(index * step)).with_place(index as u32);
            }
        } else {
            for (&place, placed) in places.iter().zip(&mut *words) {
                *placed = word(first.add(place as usize * step)).with_place(place);
            }
        }
        sort(words, spare, Digits { low: 32, high: 32 + W::BITS }, line.shared, line.tuning);
        for (place, &placed) in places.iter_mut().zip(&*words) {
            *place = W::place(placed);
        }
    }
}
