//! Sorting of unsigned integers, by digits from the last to the first.
//!
//! Long arrays are cut into parts that threads sort alone; sorted parts are
//! merged, each merge cut at places that are found by bisection (Odeh et al.,
//! "Merge Path", 2012). Everything is stable as far as the digits tell.

use ferrax_ir::paths::Path;

use crate::pool;
use crate::tuning::Tuning;

/// Bits of a digit.
const DIGIT: u32 = 8;
/// Values of a digit.
const VALUES: usize = 1 << DIGIT;

/// An unsigned integer.
pub trait Word: Copy + Ord + Send + Sync + Default + 'static {
    const BITS: u32;
    /// How often each value of each digit occurs: small words have few to clear.
    type Counts: AsMut<[[u32; VALUES]]>;
    const NONE: Self::Counts;

    /// The digit that begins at this bit.
    fn digit(self, bit: u32) -> usize;

    /// The bits from this one on.
    fn above(self, bit: u32) -> Self;
}

macro_rules! words {
    ($($t:ty)*) => {$(
        impl Word for $t {
            const BITS: u32 = <$t>::BITS;
            type Counts = [[u32; VALUES]; size_of::<$t>()];
            const NONE: Self::Counts = [[0; VALUES]; size_of::<$t>()];

            #[inline(always)]
            fn digit(self, bit: u32) -> usize {
                (self >> bit) as usize & (VALUES - 1)
            }

            #[inline(always)]
            fn above(self, bit: u32) -> $t {
                self >> bit
            }
        }
    )*};
}

words! { u8 u16 u32 u64 u128 }

/// A word that is sorted together with a place.
pub trait KeyWord: Word + std::ops::Not<Output = Self> {
    /// Holds the place in its last 32 bits and the word above.
    type Placed: Word;

    fn with_place(self, place: u32) -> Self::Placed;
    fn place(placed: Self::Placed) -> u32;
}

macro_rules! key_words {
    ($($t:ty as $placed:ty),*) => {$(
        impl KeyWord for $t {
            type Placed = $placed;

            #[inline(always)]
            fn with_place(self, place: u32) -> $placed {
                <$placed>::from(self) << 32 | <$placed>::from(place)
            }

            #[inline(always)]
            fn place(placed: $placed) -> u32 {
                placed as u32
            }
        }
    )*};
}

key_words! { u8 as u64, u16 as u64, u32 as u64, u64 as u128 }

/// The bits of words that are sorted by; there are none above `high`.
#[derive(Clone, Copy, Debug)]
pub struct Digits {
    pub low: u32,
    pub high: u32,
}

impl Digits {
    fn count(self) -> usize {
        (self.high - self.low).div_ceil(DIGIT) as usize
    }
}

/// Sorts `words`. `spare` is as long; what it holds afterwards is anything.
pub fn sort<W: Word>(words: &mut [W], spare: &mut [W], digits: Digits, shared: bool, tuning: &Tuning) {
    let parts = if shared && words.len() >= tuning.threads.sort_line { pool::threads().min(16) } else { 1 };
    if parts <= 1 {
        sort_alone(words, spare, digits, tuning.lines.compared);
        return;
    }
    Path::SortShared.take();
    let cut = |part: usize| words.len() * part / parts;
    let mut bounds: Vec<usize> = (0..=parts).map(cut).collect();
    {
        let (first, second) = (Pointer::new(words), Pointer::new(spare));
        pool::run(parts, &|part| {
            let (from, to) = (bounds[part], bounds[part + 1]);
            // SAFETY: parts are disjoint ranges of both slices.
            let (words, spare) = unsafe { (first.slice(from, to), second.slice(from, to)) };
            sort_alone(words, spare, digits, tuning.lines.compared);
        });
    }
    let mut swapped = false;
    while bounds.len() > 2 {
        let (from, to) = if swapped { (&*spare, &mut *words) } else { (&*words, &mut *spare) };
        bounds = merge_neighbours(from, to, &bounds, digits.low, parts);
        swapped = !swapped;
    }
    if swapped {
        words.copy_from_slice(spare);
    }
}

/// A slice that threads write disjoint parts of.
pub struct Pointer<W>(*mut W);

// SAFETY: all that can be had of it is `slice`, whose callers promise that parts do not overlap.
unsafe impl<W: Send> Sync for Pointer<W> {}

impl<W> Pointer<W> {
    pub fn new(slice: &mut [W]) -> Pointer<W> {
        Pointer(slice.as_mut_ptr())
    }

    /// # Safety
    /// The range lies inside the slice and no other part that is alive overlaps it.
    #[allow(clippy::mut_from_ref, reason = "the parts are disjoint")]
    pub unsafe fn slice(&self, from: usize, to: usize) -> &mut [W] {
        // SAFETY: the caller promises that the range lies inside the slice, which the pointer was made from
        // and which is borrowed as long as `self` lives, and that no two parts overlap.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(from), to - from) }
    }
}

fn sort_alone<W: Word>(words: &mut [W], spare: &mut [W], digits: Digits, compared: usize) {
    let count = digits.count();
    if words.len() < compared * count.min(4) {
        if digits.low == 0 {
            // Equal words cannot be told apart, so nothing is lost by not being stable.
            words.sort_unstable();
        } else {
            words.sort_by_key(|word| word.above(digits.low));
        }
        return;
    }
    let mut counts = W::NONE;
    let counts = &mut counts.as_mut()[..count];
    for &word in &*words {
        for (digit, counts) in counts.iter_mut().enumerate() {
            counts[word.digit(digits.low + digit as u32 * DIGIT)] += 1;
        }
    }
    let (mut from, mut to) = (words, spare);
    let mut swapped = false;
    for (digit, counts) in counts.iter_mut().enumerate() {
        let bit = digits.low + digit as u32 * DIGIT;
        if counts[from[0].digit(bit)] as usize == from.len() {
            continue;
        }
        let mut place = 0;
        for count in counts.iter_mut() {
            place += std::mem::replace(count, place);
        }
        for &word in &*from {
            let place = &mut counts[word.digit(bit)];
            // SAFETY: the places of all digits are a permutation of the indices of `to`.
            unsafe { *to.get_unchecked_mut(*place as usize) = word };
            *place += 1;
        }
        (from, to) = (to, from);
        swapped = !swapped;
    }
    if swapped {
        to.copy_from_slice(from);
    }
}

/// Merges the sorted runs between `bounds` in pairs; gives the bounds of the merged runs.
fn merge_neighbours<W: Word>(
    from: &[W],
    to: &mut [W],
    bounds: &[usize],
    low: u32,
    threads: usize,
) -> Vec<usize> {
    let mut merged: Vec<usize> = bounds.iter().copied().step_by(2).collect();
    if bounds.len().is_multiple_of(2) {
        merged.extend(bounds.last());
    }
    let target = Pointer::new(to);
    // Each run of the result is cut into pieces of about the same length.
    let pieces = threads.div_ceil(merged.len() - 1).max(1);
    pool::run((merged.len() - 1) * pieces, &|unit| {
        let (run, piece) = (unit / pieces, unit % pieces);
        let (start, end) = (merged[run], merged[run + 1]);
        let middle = bounds[(2 * run + 1).min(bounds.len() - 1)];
        let (left, right) = (&from[start..middle], &from[middle..end]);
        let cut = |piece: usize| (end - start) * piece / pieces;
        let (first, last) = (cut(piece), cut(piece + 1));
        let (i, j) = (split(left, right, first, low), split(left, right, last, low));
        // SAFETY: pieces are disjoint ranges of `to`.
        let out = unsafe { target.slice(start + first, start + last) };
        merge(&left[i..j], &right[first - i..last - j], out, low);
    });
    merged
}

/// How many of the `count` least words of both come from `left`; of equal ones those go first.
fn split<W: Word>(left: &[W], right: &[W], count: usize, bit: u32) -> usize {
    let (mut low, mut high) = (count.saturating_sub(right.len()), count.min(left.len()));
    while low < high {
        let middle = low + (high - low) / 2;
        if left[middle].above(bit) <= right[count - middle - 1].above(bit) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// `out` is as long as both together.
fn merge<W: Word>(left: &[W], right: &[W], out: &mut [W], low: u32) {
    let (mut i, mut j, mut place) = (0, 0, 0);
    while i < left.len() && j < right.len() {
        let (a, b) = (left[i], right[j]);
        let second = b.above(low) < a.above(low);
        out[place] = if second { b } else { a };
        i += usize::from(!second);
        j += usize::from(second);
        place += 1;
    }
    let rest = place + left.len() - i;
    out[place..rest].copy_from_slice(&left[i..]);
    out[rest..].copy_from_slice(&right[j..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize, seed: u64) -> Vec<u64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..count).map(|_| next()).collect()
    }

    fn check<W: Word + std::fmt::Debug>(words: &[W], shared: bool) {
        let mut want = words.to_vec();
        want.sort_unstable();
        for tuning in [&Tuning::TINY, &Tuning::CPU, &Tuning::HUGE] {
            let mut got = words.to_vec();
            let mut spare = vec![W::default(); got.len()];
            sort(&mut got, &mut spare, Digits { low: 0, high: W::BITS }, shared, tuning);
            assert!(got == want, "{} words", words.len());
        }
    }

    #[test]
    fn words_of_all_widths_and_counts() {
        for count in [0, 1, 2, 47, 191, 192, 1000, 70_001] {
            for shared in [false, true] {
                let words = noise(count, count as u64 + 3);
                check(&words, shared);
                check(&words.iter().map(|&w| w as u8).collect::<Vec<_>>(), shared);
                check(&words.iter().map(|&w| w as u16).collect::<Vec<_>>(), shared);
                check(&words.iter().map(|&w| w as u32).collect::<Vec<_>>(), shared);
                check(&words.iter().map(|&w| u128::from(w) << 40 | 5).collect::<Vec<_>>(), shared);
                check(&words.iter().map(|&w| w % 5).collect::<Vec<_>>(), shared);
                // Digits that all but one word share.
                for place in [0, count / 2, count.saturating_sub(1)] {
                    let mut words: Vec<u64> = words.iter().map(|&w| w % 5 + 0x0101_0000).collect();
                    if let Some(word) = words.get_mut(place) {
                        *word = 0x7f00_0000_0000;
                    }
                    check(&words, shared);
                }
            }
        }
    }

    #[test]
    fn digits_above_places_keep_the_order_of_places() {
        let words: Vec<u64> = noise(5000, 1).iter().zip(0..).map(|(w, i)| (w % 7) << 32 | i).collect();
        let (mut got, mut spare) = (words.clone(), words.clone());
        sort(&mut got, &mut spare, Digits { low: 32, high: 40 }, false, &Tuning::CPU);
        assert!(got.is_sorted());
    }

    #[test]
    fn merges_are_cut_anywhere() {
        let mut words = noise(1000, 9);
        words.iter_mut().for_each(|w| *w %= 100);
        for bounds in [vec![0, 400, 1000], vec![0, 0, 1000], vec![0, 300, 500, 1000], vec![0, 1000, 1000]] {
            let mut parts = words.clone();
            for pair in bounds.windows(2) {
                parts[pair[0]..pair[1]].sort_unstable();
            }
            for threads in [1, 2, 3, 7] {
                let (mut from, mut bounds) = (parts.clone(), bounds.clone());
                while bounds.len() > 2 {
                    let mut to = vec![0; from.len()];
                    bounds = merge_neighbours(&from, &mut to, &bounds, 0, threads);
                    from = to;
                }
                assert!(from.is_sorted());
            }
        }
    }
}
