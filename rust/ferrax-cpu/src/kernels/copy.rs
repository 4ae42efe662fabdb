//! Copies between strided arrays, element sizes known at bind time only.

use ferrax_ir::paths::Path;
use ferrax_ir::tensor::row_major;
use smallvec::SmallVec;

use crate::pool;
use crate::tuning::Threads;

/// Copies so many bytes, large arrays on all threads.
///
/// # Safety
/// The bytes are valid on both sides, which do not overlap, and nobody else uses them.
pub unsafe fn copy_shared(from: *const u8, to: *mut u8, bytes: usize, threads: &Threads) {
    struct Ends(*const u8, *mut u8);
    // SAFETY: the threads that share the pointers write to disjoint chunks behind them.
    unsafe impl Sync for Ends {}
    if bytes < threads.copy {
        // SAFETY: the caller's promise.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
    let ends = &Ends(from, to);
    Path::CopyShared.take();
    let most = threads.copy_chunk;
    pool::run(bytes.div_ceil(most), &|chunk| {
        let at = chunk * most;
        let Ends(from, to) = ends;
        // SAFETY: the chunk is inside of the bytes that the caller promised, and no other chunk meets it.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at), to.add(at), most.min(bytes - at)) };
    });
}

/// A loop of a copy: its count and the byte strides of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLoop {
    pub count: usize,
    pub from: isize,
    pub to: isize,
}

/// The same loops with as few as possible: those of one step go, those that continue one another join.
pub fn merged(loops: impl IntoIterator<Item = CopyLoop>) -> SmallVec<[CopyLoop; 6]> {
    let mut kept: SmallVec<[CopyLoop; 6]> = SmallVec::new();
    for next in loops {
        if next.count == 1 {
            continue;
        }
        match kept.last_mut() {
            Some(last)
                if last.from == next.from * next.count as isize
                    && last.to == next.to * next.count as isize =>
            {
                *last = CopyLoop { count: last.count * next.count, ..next };
            }
            _ => kept.push(next),
        }
    }
    kept
}

/// A copy of a strided box of elements; loops outermost first, the innermost
/// runs of adjacent bytes copied at once.
#[derive(Clone, Debug)]
pub struct StridedCopy {
    loops: SmallVec<[CopyLoop; 6]>,
    run: usize,
}

impl StridedCopy {
    /// Loops over elements of `element` bytes.
    pub fn new(loops: impl IntoIterator<Item = CopyLoop>, element: usize) -> StridedCopy {
        let mut kept = merged(loops);
        let mut run = element;
        if let Some(last) = kept.last().copied()
            && last.from == element as isize
            && last.to == element as isize
        {
            run *= last.count;
            kept.pop();
        }
        StridedCopy { loops: kept, run }
    }

    /// # Safety
    /// Every element that the loops reach is valid on both sides, and the sides
    /// do not overlap.
    pub unsafe fn run(&self, from: *const u8, to: *mut u8) {
        // SAFETY: `level` goes through the same loops from the same places.
        unsafe { self.level(&self.loops, from, to) }
    }

    unsafe fn level(&self, loops: &[CopyLoop], from: *const u8, to: *mut u8) {
        // SAFETY: each level adds one index below its loop's count to both sides, so the innermost one
        // moves `self.run` bytes of the elements that the caller promised are valid and apart.
        unsafe {
            match loops {
                [] => std::ptr::copy_nonoverlapping(from, to, self.run),
                [only] => match self.run {
                    1 => elements::<u8>(only, from, to),
                    2 => elements::<u16>(only, from, to),
                    4 => elements::<u32>(only, from, to),
                    8 => elements::<u64>(only, from, to),
                    16 => elements::<u128>(only, from, to),
                    run => {
                        for i in 0..only.count as isize {
                            std::ptr::copy_nonoverlapping(
                                from.offset(i * only.from),
                                to.offset(i * only.to),
                                run,
                            );
                        }
                    }
                },
                [first, rest @ ..] => {
                    for i in 0..first.count as isize {
                        self.level(rest, from.offset(i * first.from), to.offset(i * first.to));
                    }
                }
            }
        }
    }
}

/// # Safety
/// As [`StridedCopy::run`].
unsafe fn elements<T: Copy>(each: &CopyLoop, from: *const u8, to: *mut u8) {
    for i in 0..each.count as isize {
        // SAFETY: elements are aligned to their size (parts of larger ones too).
        unsafe {
            let value = from.offset(i * each.from).cast::<T>().read_unaligned();
            to.offset(i * each.to).cast::<T>().write_unaligned(value);
        }
    }
}

/// Row-major byte strides.
pub fn byte_strides(sizes: &[usize], element: usize) -> SmallVec<[isize; 6]> {
    row_major(sizes, element).iter().map(|stride| stride.cast_signed()).collect()
}
