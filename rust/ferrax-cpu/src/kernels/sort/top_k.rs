//! The largest elements along an axis.
//!
//! An element with its place is one integer, the less the sooner it comes: the
//! total order reversed, then the place. A line is read once. What is less than
//! the greatest of the `k` least so far is kept, and whenever there is no room
//! the `k` least of what was kept are selected. A long line is read in pieces.

use std::ops::Range;

use ferrax_compile::{Argument, Path};
use ferrax_ir::ops::{TopK, total_ranks};
use ferrax_ir::{DType, Result};
use half::{bf16, f16};

use super::keys::Key;
use super::words::{Digits, KeyWord, Word, sort};
use super::{ALIGNMENT, Lines, Pointers};
use crate::call::{Call, Kernel};
use crate::pool;
use crate::tuning::Tuning;

/// Elements that are first looked at together.
const BLOCK: usize = 32;

struct TopKKernel {
    from: Lines,
    to: Lines,
    width: usize,
    /// In how many pieces a line is read.
    pieces: usize,
    /// Candidates of a piece that there is room for.
    room: usize,
    /// Bytes of scratch memory for a chunk.
    scratch: usize,
    ranks: [u8; 256],
    run: unsafe fn(&TopKKernel, &Call<'_>) -> Result<()>,
    tuning: &'static Tuning,
}

impl std::fmt::Debug for TopKKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TopKKernel({:?}, {})", self.from, self.to.length)
    }
}

/// The kernel, if there is one for this dtype and places in a line fit into 32 bits.
pub fn bind(op: &TopK, inputs: &[Argument], tuning: &'static Tuning) -> Option<Box<dyn Kernel>> {
    let Argument { dtype, sizes, .. } = &inputs[0];
    let from = Lines::new(sizes, op.axis);
    let to = Lines { length: op.k, ..from };
    if i32::try_from(from.length).is_err() {
        return None;
    }
    let ranks = total_ranks(*dtype);
    let run = if ranks.is_some() {
        run_bytes
    } else {
        match dtype {
            DType::I16 => run::<i16>,
            DType::I32 => run::<i32>,
            DType::I64 => run::<i64>,
            DType::U16 => run::<u16>,
            DType::U32 => run::<u32>,
            DType::U64 => run::<u64>,
            DType::BF16 => run::<bf16>,
            DType::F16 => run::<f16>,
            DType::F32 => run::<f32>,
            DType::F64 => run::<f64>,
            _ => return None,
        }
    };
    let threads = pool::threads();
    let pieces =
        if from.count() < threads { (from.length / tuning.threads.top_k).clamp(1, threads) } else { 1 };
    if pieces > 1 { Path::TopKPieces } else { Path::TopK }.take();
    let room = (2 * op.k.max(BLOCK) + BLOCK).min(from.length / pieces + 1);
    let word = if dtype.size() == 8 { 16 } else { 8 };
    // Candidates of all pieces, and as much again for sorting them.
    let scratch = (2 * room * pieces * word).next_multiple_of(ALIGNMENT);
    let width = dtype.size();
    let ranks = ranks.unwrap_or([0; 256]);
    Some(Box::new(TopKKernel { from, to, width, pieces, room, scratch, ranks, run, tuning }))
}

impl Kernel for TopKKernel {
    fn scratch(&self) -> usize {
        self.from.chunks(self.tuning) * self.scratch
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        if self.from.count() > 0 && self.to.length > 0 {
            // SAFETY: `call` is a call of this kernel, and `bind` chose the function by the operand's
            // dtype.
            unsafe { (self.run)(self, call)? };
        }
        Ok(())
    }
}

/// # Safety
/// As `Kernel::run`, for an operand of this type.
unsafe fn run<K: Key>(kernel: &TopKKernel, call: &Call<'_>) -> Result<()> {
    // SAFETY: the caller's promise is that of `lines` for `T = K`.
    unsafe { lines(kernel, call, |element: K| element.total()) }
}

/// # Safety
/// As `Kernel::run`, for an operand of bytes.
unsafe fn run_bytes(kernel: &TopKKernel, call: &Call<'_>) -> Result<()> {
    // SAFETY: the caller's promise is that of `lines` for `T = u8`.
    unsafe { lines(kernel, call, |element: u8| kernel.ranks[usize::from(element)]) }
}

/// # Safety
/// As `Kernel::run`, for an operand of `T`.
#[inline(always)]
unsafe fn lines<T: Copy, W: KeyWord>(
    kernel: &TopKKernel,
    call: &Call<'_>,
    order: impl Fn(T) -> W + Sync + Copy,
) -> Result<()> {
    debug_assert_eq!(kernel.width, size_of::<T>(), "the function is the one of the dtype");
    let (count, chunks) = (kernel.from.count(), kernel.from.chunks(kernel.tuning));
    let pointers = Pointers(call);
    pool::run_interruptibly(chunks, &|chunk| {
        let pointers = &pointers;
        let call = pointers.0;
        for line in chunk * count / chunks..(chunk + 1) * count / chunks {
            // SAFETY: the line lies inside the arrays, the chunk's part inside the scratch memory.
            unsafe {
                let first = call.inputs[0].cast::<T>().add(kernel.from.start(line));
                let to = kernel.to.start(line);
                let scratch = call.scratch.add(chunk * kernel.scratch);
                let best = best(kernel, first, scratch, chunks == 1, order);
                for (rank, &candidate) in best.iter().enumerate() {
                    let (place, at) = (W::place(candidate), to + rank * kernel.to.inner);
                    let element = *first.add(place as usize * kernel.from.inner);
                    *call.outputs[0].cast::<T>().add(at) = element;
                    *call.outputs[1].cast::<i32>().add(at) = place.cast_signed();
                }
            }
        }
    })
}

/// The candidates that are the largest elements, in order.
///
/// # Safety
/// `first` begins a line, and the scratch memory is that of a chunk.
#[inline(always)]
unsafe fn best<'a, T: Copy, W: KeyWord>(
    kernel: &TopKKernel,
    first: *const T,
    scratch: *mut u8,
    shared: bool,
    order: impl Fn(T) -> W + Sync + Copy,
) -> &'a [W::Placed] {
    let (length, k, pieces) = (kernel.from.length, kernel.to.length, kernel.pieces);
    // SAFETY: there is room for the candidates of all pieces, twice.
    let (candidates, spare) = unsafe { super::pair::<W::Placed>(scratch, kernel.room * pieces) };
    let mut found = 0;
    if pieces == 1 {
        // SAFETY: `first` begins a line of `length` elements, and the only piece is all of it.
        found = unsafe { piece(kernel, first, 0, length, candidates, order) };
    } else {
        let parts = Parts { first, candidates: candidates.as_mut_ptr() };
        let mut counts = vec![0usize; pieces];
        let results = super::words::Pointer::new(&mut counts);
        pool::run(pieces, &|number| {
            let (parts, results) = (&parts, &results);
            let (from, to) = (length * number / pieces, length * (number + 1) / pieces);
            // SAFETY: each piece has its own part of the candidates and of the counts.
            unsafe {
                let at = parts.candidates.add(number * kernel.room);
                let own = std::slice::from_raw_parts_mut(at, kernel.room);
                results.slice(number, number + 1)[0] = piece(kernel, parts.first, from, to, own, order);
            }
        });
        for (number, count) in counts.into_iter().enumerate() {
            candidates.copy_within(number * kernel.room..number * kernel.room + count, found);
            found += count;
        }
    }
    if found > k {
        candidates[..found].select_nth_unstable(k - 1);
    }
    sort(&mut candidates[..k], &mut spare[..k], Digits { low: 0, high: 32 + W::BITS }, shared, kernel.tuning);
    &candidates[..k]
}

struct Parts<T, C> {
    first: *const T,
    candidates: *mut C,
}

// SAFETY: pieces only read the line and write their own candidates.
unsafe impl<T, C> Sync for Parts<T, C> {}

/// Reads the elements `from..to` of a line; how many candidates it leaves in `kept`, which holds
/// more than `k` of them or all of the piece.
///
/// # Safety
/// `first` begins a line of the kernel.
#[inline(always)]
unsafe fn piece<T: Copy, W: KeyWord>(
    kernel: &TopKKernel,
    first: *const T,
    from: usize,
    to: usize,
    kept: &mut [W::Placed],
    order: impl Fn(T) -> W + Copy,
) -> usize {
    // SAFETY: places are below the line's length, so each is an element of the line that begins at `first`.
    // Written for both strides so that the compiler knows the common one.
    unsafe {
        match kernel.from.inner {
            1 => scan(kernel.to.length, from..to, kept, |place| !order(*first.add(place))),
            stride => scan(kernel.to.length, from..to, kept, |place| !order(*first.add(place * stride))),
        }
    }
}

/// As `piece`, for the words of these places.
#[inline(always)]
fn scan<W: KeyWord>(
    k: usize,
    places: Range<usize>,
    kept: &mut [W::Placed],
    word: impl Fn(usize) -> W,
) -> usize {
    let Range { start: from, end: to } = places;
    let start = kept.len().min(to - from);
    for (candidate, place) in kept.iter_mut().zip(from..from + start) {
        *candidate = word(place).with_place(place as u32);
    }
    let (mut count, mut place) = (start, from + start);
    if place == to {
        return count;
    }
    let mut limit = least(kept, &mut count, k);
    let mut keep = |place: usize, word: W, count: &mut usize, limit: &mut W::Placed| {
        let candidate = word.with_place(place as u32);
        if candidate < *limit {
            if *count == kept.len() {
                *limit = least(kept, count, k);
            }
            kept[*count] = candidate;
            *count += 1;
        }
    };
    while place + BLOCK <= to {
        let mut lowest = word(place);
        for next in place + 1..place + BLOCK {
            lowest = lowest.min(word(next));
        }
        if lowest.with_place(0) < limit {
            for next in place..place + BLOCK {
                keep(next, word(next), &mut count, &mut limit);
            }
        }
        place += BLOCK;
    }
    for next in place..to {
        keep(next, word(next), &mut count, &mut limit);
    }
    count
}

/// Keeps the `k` least candidates; the greatest of those.
fn least<C: Word>(kept: &mut [C], count: &mut usize, k: usize) -> C {
    let (_, greatest, _) = kept[..*count].select_nth_unstable(k - 1);
    *count = k;
    *greatest
}
