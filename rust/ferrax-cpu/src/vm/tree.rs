//! Sums and products of floats, as a tree that the number of terms determines.
//!
//! The terms of a reduction are numbered in the order in which they are met.
//! [`BLOCK`] terms make a block: term t goes to lane t mod [`LANES`], where terms
//! are combined in order, and the lanes are combined in halves, or in order if
//! the block has at most [`FEW`] terms. Blocks are combined as a binary counter
//! counts: two blocks, two pairs of blocks, and so on; what is left at the end, from the latest to the first. Nothing of this
//! depends on tiles, threads, instruction sets or on how many reductions run
//! side by side: the functions here are handed terms in any portions.
//!
//! The computed sum of n terms differs from their exact sum by at most
//! `(19 + log2(max(1, n / 128))) u` times the sum of their magnitudes, to first
//! order in the unit roundoff u: a lane adds 16 terms, four levels combine lanes
//! (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §4.2).
//!
//! `kept` reductions run side by side, in one of two layouts. By rows, a term of
//! all of them is a row of `kept` values, and lane l is row l of the lanes. By
//! lines, a line has the terms of one of them, and its lanes are a line too.

use std::hint::black_box;
use std::ops::{Mul, Range, Sub};

use ferrax_compile::AccumulatorKind;
pub use ferrax_compile::interpret::{BLOCK, FEW, LANES};
use ferrax_compile::schedule::TreeLayout as Layout;
use ferrax_ir::scalar::ScalarType;

use super::isa::{Isa, isa};

/// A block has two vectors of so many lanes, whose sums do not wait for one another.
const HALF: usize = LANES / 2;
/// Powers of two of blocks that a line of one call has at most; tiles are far shorter.
const LINE_LEVELS: usize = 24;
/// Terms of lines that go eight side by side, at most.
pub(super) const SHORT: usize = 2 * LANES;

/// `f(kept, position, n, stride, terms, lanes)`: takes n terms, the first of which has this position in
/// its block, and none of which is in the next. Rows or lines are `stride` bytes apart.
pub type TakeFn = unsafe fn(usize, usize, usize, isize, *const u8, *mut u8);
/// `f(kept, n, lanes, values)`: combines the lanes of blocks of n terms.
pub type CloseFn = unsafe fn(usize, usize, *const u8, *mut u8);
/// `f(kept, n, stride, terms, values)`: the values of lines of n terms each, fewer than `BLOCK << 24`.
pub type WholeFn = unsafe fn(usize, usize, isize, *const u8, *mut u8);
/// `f(kept, n, factors, values)`: the values of lines of n products each, fewer than `BLOCK << 24`.
pub type ProductsFn = unsafe fn(usize, usize, [Factor; 2], *mut u8);
/// `f(n, factors, to)`: n products of one line.
pub type MultiplyFn = unsafe fn(usize, [Factor; 2], *mut u8);
/// `f(kept, from, values)`: combines values with earlier ones.
pub type MergeFn = unsafe fn(usize, *const u8, *mut u8);

/// A factor of terms that are products: `terms` less the value at `less`, which is one for each line. Lines and
/// their values are so many bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Factor {
    pub terms: *const u8,
    pub stride: isize,
    pub less: *const u8,
    pub less_stride: isize,
}

impl Factor {
    /// The factor of the line of this number, from this byte of its terms on.
    pub fn at(self, line: usize, byte: usize) -> Factor {
        let line = line as isize;
        Factor {
            terms: self.terms.wrapping_offset(line * self.stride).wrapping_add(byte),
            less: self.less.wrapping_offset(line * self.less_stride),
            ..self
        }
    }
}

/// The functions of a reduction.
#[derive(Clone, Copy)]
pub struct TreeOp {
    pub take: TakeFn,
    pub close: CloseFn,
    /// All of reductions by lines.
    pub whole: WholeFn,
    pub products: ProductsFn,
    pub multiply: MultiplyFn,
    pub merge: MergeFn,
}

impl std::fmt::Debug for TreeOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TreeOp")
    }
}

trait Monoid: 'static {
    type T: Copy + Sub<Output = Self::T> + Mul<Output = Self::T>;
    const START: Self::T;
    fn fold(a: Self::T, b: Self::T) -> Self::T;
}

macro_rules! monoids {
    ($($name:ident $t:ty: $start:expr, |$a:ident, $b:ident| $body:expr;)*) => {$(
        struct $name;
        impl Monoid for $name {
            type T = $t;
            const START: $t = $start;
            #[inline(always)]
            fn fold($a: $t, $b: $t) -> $t { $body }
        }
    )*};
}

monoids! {
    SumF32 f32: 0.0, |a, b| a + b;
    SumF64 f64: 0.0, |a, b| a + b;
    ProdF32 f32: 1.0, |a, b| a * b;
    ProdF64 f64: 1.0, |a, b| a * b;
}

/// Terms into lanes; the first of a lane replaces what is there.
#[inline(always)]
fn into_lanes<M: Monoid>(first: bool, lanes: &mut [M::T], terms: &[M::T]) {
    if first {
        for (lane, &term) in lanes.iter_mut().zip(terms) {
            *lane = M::fold(M::START, term);
        }
    } else {
        for (lane, &term) in lanes.iter_mut().zip(terms) {
            *lane = M::fold(*lane, term);
        }
    }
}

/// # Safety
/// As [`TakeFn`] says, by rows: `n` rows of `kept` terms, lanes of as many values each.
#[inline(always)]
unsafe fn take_rows<M: Monoid>(
    kept: usize,
    position: usize,
    n: usize,
    stride: isize,
    terms: *const u8,
    lanes: *mut u8,
) {
    let lanes = lanes.cast::<M::T>();
    // Rows that follow one another are taken up to the last lane at once.
    let dense = stride == (kept * size_of::<M::T>()) as isize;
    let mut row = 0;
    while row < n {
        let (at, lane) = (position + row, (position + row) % LANES);
        let rows = if dense { (LANES - lane).min(n - row) } else { 1 };
        // SAFETY: the caller's promise; at most the last lane is reached.
        let (to, from) = unsafe {
            (
                std::slice::from_raw_parts_mut(lanes.add(lane * kept), rows * kept),
                std::slice::from_raw_parts(terms.offset(row as isize * stride).cast::<M::T>(), rows * kept),
            )
        };
        into_lanes::<M>(at < LANES, to, from);
        row += rows;
    }
}

/// # Safety
/// As [`CloseFn`] says, by rows: as many lanes of `kept` values as `n` terms have reached.
#[inline(always)]
unsafe fn close_rows<M: Monoid>(kept: usize, n: usize, lanes: *const u8, values: *mut u8) {
    let lanes = lanes.cast::<M::T>().cast_mut();
    let used = n.min(LANES);
    if used == 0 {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(values.cast::<M::T>(), kept) }.fill(M::START);
        return;
    }
    if used <= FEW {
        // SAFETY: `used` lanes, of `kept` values each, and as many values apart from them, as the caller promises.
        let (values, lanes) = unsafe {
            (
                std::slice::from_raw_parts_mut(values.cast::<M::T>(), kept),
                std::slice::from_raw_parts(lanes, used * kept),
            )
        };
        values.copy_from_slice(&lanes[..kept]);
        for lane in lanes.chunks_exact(kept.max(1)).skip(1) {
            into_lanes::<M>(false, values, lane);
        }
        return;
    }
    let mut half = LANES / 2;
    while half > 1 {
        for lane in 0..half.min(used.saturating_sub(half)) {
            // SAFETY: `lane + half` is below `used`, so the caller promises both lanes; they are `half`
            // apart, which is at least 1, and each has `kept` values.
            let (low, high) = unsafe {
                (
                    std::slice::from_raw_parts_mut(lanes.add(lane * kept), kept),
                    std::slice::from_raw_parts(lanes.add((lane + half) * kept), kept),
                )
            };
            into_lanes::<M>(false, low, high);
        }
        half /= 2;
    }
    // SAFETY: there is a first lane, for `used` is not 0; the caller promises `kept` values, apart from
    // the lanes.
    let (values, first) = unsafe {
        (std::slice::from_raw_parts_mut(values.cast::<M::T>(), kept), std::slice::from_raw_parts(lanes, kept))
    };
    // SAFETY: more than two lanes were reached, and each holds `kept` values.
    let second = unsafe { std::slice::from_raw_parts(lanes.add(kept), kept) };
    for ((value, &a), &b) in values.iter_mut().zip(first).zip(second) {
        *value = M::fold(a, b);
    }
}

/// The first `N` lanes with as many terms folded into them. Counted, not zipped: the loop unrolls and stays
/// in registers, whatever the compiler inlines.
#[inline(always)]
fn first_lanes<M: Monoid, const N: usize>(mut lanes: [M::T; HALF], terms: &[M::T; N]) -> [M::T; HALF] {
    let mut lane = 0;
    while lane < N {
        lanes[lane] = M::fold(lanes[lane], terms[lane]);
        lane += 1;
    }
    lanes
}

/// A vector with at most seven terms folded into it, in registers, which needs to know how many there are.
#[inline(always)]
fn few<M: Monoid>(lanes: [M::T; HALF], terms: &[M::T]) -> [M::T; HALF] {
    match *terms {
        [a] => first_lanes::<M, 1>(lanes, &[a]),
        [a, b] => first_lanes::<M, 2>(lanes, &[a, b]),
        [a, b, c] => first_lanes::<M, 3>(lanes, &[a, b, c]),
        [a, b, c, d] => first_lanes::<M, 4>(lanes, &[a, b, c, d]),
        [a, b, c, d, e] => first_lanes::<M, 5>(lanes, &[a, b, c, d, e]),
        [a, b, c, d, e, f] => first_lanes::<M, 6>(lanes, &[a, b, c, d, e, f]),
        [a, b, c, d, e, f, g] => first_lanes::<M, 7>(lanes, &[a, b, c, d, e, f, g]),
        _ => lanes,
    }
}

/// Eight lanes, in halves.
#[inline(always)]
pub(super) fn halves<T: Copy>([a, b, c, d, e, f, g, h]: [T; HALF], fold: impl Fn(T, T) -> T) -> T {
    let (a, b, c, d) = (fold(a, e), fold(b, f), fold(c, g), fold(d, h));
    fold(fold(a, c), fold(b, d))
}

/// The lanes of a block, in halves. They go through memory: else the compiler splits the vectors of the loop
/// before, down to the pairs that the last halves take, and that loop is half as fast.
#[inline(always)]
fn all_lanes<M: Monoid>(low: [M::T; HALF], high: [M::T; HALF]) -> M::T {
    halves(black_box(first_lanes::<M, HALF>(low, &high)), M::fold)
}

/// Both halves of the lanes, with terms for all of them folded into them.
#[inline(always)]
fn whole_lanes<M: Monoid>(
    mut low: [M::T; HALF],
    mut high: [M::T; HALF],
    chunks: &[[M::T; LANES]],
) -> ([M::T; HALF], [M::T; HALF]) {
    for chunk in chunks {
        if let ([first, second], _) = chunk.as_chunks::<HALF>() {
            low = first_lanes::<M, HALF>(low, first);
            high = first_lanes::<M, HALF>(high, second);
        }
    }
    (low, high)
}

/// Fewer terms than lanes.
#[inline(always)]
fn few_lanes<M: Monoid>(lanes: &mut [M::T], terms: &[M::T]) {
    let mut lane = 0;
    while lane < terms.len().min(lanes.len()) {
        lanes[lane] = M::fold(lanes[lane], terms[lane]);
        lane += 1;
    }
}

/// The value of lanes with fewer terms than lanes folded into them.
#[inline(always)]
fn last_lanes<M: Monoid>(low: [M::T; HALF], high: [M::T; HALF], tail: &[M::T]) -> M::T {
    if tail.is_empty() {
        return all_lanes::<M>(low, high);
    }
    // Through memory as there: few terms take parts of vectors.
    let (mut low, mut high) = black_box((low, high));
    match tail.split_first_chunk::<HALF>() {
        Some((first, rest)) => {
            low = first_lanes::<M, HALF>(low, first);
            high = few::<M>(high, rest);
        }
        None => low = few::<M>(low, tail),
    }
    all_lanes::<M>(low, high)
}

/// The value of at most [`FEW`] terms.
#[inline(always)]
fn in_order<M: Monoid>(terms: &[M::T]) -> M::T {
    let mut value = M::START;
    for &term in terms {
        value = M::fold(value, term);
    }
    value
}

/// The value of at most one block.
#[inline(always)]
fn block<M: Monoid>(terms: &[M::T]) -> M::T {
    if terms.len() <= FEW {
        return in_order::<M>(terms);
    }
    let (chunks, tail) = terms.as_chunks::<LANES>();
    let (low, high) = whole_lanes::<M>([M::START; HALF], [M::START; HALF], chunks);
    last_lanes::<M>(low, high, tail)
}

/// Factors less a value each, multiplied; counted as `first_lanes` is.
#[inline(always)]
fn multiplied<T: Copy + Sub<Output = T> + Mul<Output = T>, const N: usize>(
    a: &[T; N],
    b: &[T; N],
    less: [T; 2],
) -> [T; N] {
    let mut products = *a;
    let mut lane = 0;
    while lane < N {
        products[lane] = (a[lane] - less[0]) * (b[lane] - less[1]);
        lane += 1;
    }
    products
}

/// The value of at most one block of products.
#[inline(always)]
fn block_of_products<M: Monoid>([a, b]: [&[M::T]; 2], less: [M::T; 2]) -> M::T {
    let ((a_chunks, a_tail), (b_chunks, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let (mut low, mut high) = ([M::START; HALF], [M::START; HALF]);
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        (low, high) = whole_lanes::<M>(low, high, &[multiplied(a, b, less)]);
    }
    let mut tail = [M::START; LANES];
    for ((product, &a), &b) in tail.iter_mut().zip(a_tail).zip(b_tail) {
        [*product] = multiplied(&[a], &[b], less);
    }
    let tail = &tail[..a_tail.len()];
    if a.len() <= FEW { in_order::<M>(tail) } else { last_lanes::<M>(low, high, tail) }
}

/// The terms of a line, by blocks. A trait and no closures, which the compiler may leave out of line, without the
/// instructions of the function around them.
trait Blocks<M: Monoid> {
    fn block(&self, range: Range<usize>) -> M::T;
}

impl<M: Monoid> Blocks<M> for &[M::T] {
    #[inline(always)]
    fn block(&self, range: Range<usize>) -> M::T {
        block::<M>(&self[range])
    }
}

/// Factors, and what is taken from them.
struct Products<'a, T> {
    factors: [&'a [T]; 2],
    less: [T; 2],
}

impl<M: Monoid> Blocks<M> for Products<'_, M::T> {
    #[inline(always)]
    fn block(&self, range: Range<usize>) -> M::T {
        let [a, b] = self.factors;
        block_of_products::<M>([&a[range.clone()], &b[range]], self.less)
    }
}

/// The value of a line of so many terms.
#[inline(always)]
fn line<M: Monoid>(terms: usize, blocks: &impl Blocks<M>) -> M::T {
    if terms == 0 {
        return M::START;
    }
    let mut levels = [M::START; LINE_LEVELS];
    let mut count = 0usize;
    while count * BLOCK < terms {
        let mut value = blocks.block(count * BLOCK..((count + 1) * BLOCK).min(terms));
        let carries = count.trailing_ones() as usize;
        for &earlier in &levels[..carries] {
            value = M::fold(value, earlier);
        }
        levels[carries] = value;
        count += 1;
    }
    let mut value = levels[count.trailing_zeros() as usize];
    let mut rest = count & (count - 1);
    while rest != 0 {
        value = M::fold(value, levels[rest.trailing_zeros() as usize]);
        rest &= rest - 1;
    }
    value
}

/// Terms of one line, the first at this position, into its lanes.
#[inline(always)]
fn take_line<M: Monoid>(position: usize, terms: &[M::T], lanes: &mut [M::T; LANES]) {
    let lane = position % LANES;
    let (head, rest) = terms.split_at(((LANES - lane) % LANES).min(terms.len()));
    few_lanes::<M>(&mut lanes[lane..], head);
    let (chunks, tail) = rest.as_chunks::<LANES>();
    if let ([low, high], _) = lanes.as_chunks_mut::<HALF>() {
        (*low, *high) = whole_lanes::<M>(*low, *high, chunks);
    }
    few_lanes::<M>(lanes, tail);
}

/// # Safety
/// As [`TakeFn`] says, by lines: `kept` lines of `n` terms, and as many of lanes.
#[inline(always)]
unsafe fn take_lines<M: Monoid>(
    kept: usize,
    position: usize,
    n: usize,
    stride: isize,
    terms: *const u8,
    lanes: *mut u8,
) {
    for line in 0..kept {
        // SAFETY: the caller's promise.
        let (lanes, terms) = unsafe {
            (
                &mut *lanes.cast::<[M::T; LANES]>().add(line),
                std::slice::from_raw_parts(terms.offset(line as isize * stride).cast::<M::T>(), n),
            )
        };
        if position == 0 {
            *lanes = [M::START; LANES];
        }
        take_line::<M>(position, terms, lanes);
    }
}

/// # Safety
/// As [`CloseFn`] says, by lines.
#[inline(always)]
unsafe fn close_lines<M: Monoid>(kept: usize, n: usize, lanes: *const u8, values: *mut u8) {
    for line in 0..kept {
        // SAFETY: the caller's promise; lanes of no terms have no values.
        unsafe {
            let value = match n {
                0..=FEW => in_order::<M>(&(&(*lanes.cast::<[M::T; LANES]>().add(line)))[..n]),
                _ => {
                    let [low, high] = *lanes.cast::<[[M::T; HALF]; 2]>().add(line);
                    all_lanes::<M>(low, high)
                }
            };
            *values.cast::<M::T>().add(line) = value;
        }
    }
}

/// The terms at one place of eight lines, which begin `stride` elements apart.
///
/// # Safety
/// Each line has a term there.
#[inline(always)]
pub(super) unsafe fn column<T: Copy>(lines: *const T, stride: usize, place: usize) -> [T; 8] {
    // SAFETY: the caller's promise. Written out: it is a vector, and no array in memory.
    unsafe {
        let first = lines.add(place);
        [
            *first,
            *first.add(stride),
            *first.add(2 * stride),
            *first.add(3 * stride),
            *first.add(4 * stride),
            *first.add(5 * stride),
            *first.add(6 * stride),
            *first.add(7 * stride),
        ]
    }
}

/// The values of eight lines of `n` terms, at most [`SHORT`], lane by lane as those of one.
///
/// # Safety
/// There are so many lines of so many terms.
#[inline(always)]
unsafe fn short_lines<M: Monoid>(n: usize, stride: usize, lines: *const M::T) -> [M::T; 8] {
    let mut lanes = [[M::START; 8]; LANES];
    // In order are few terms, else one after the other goes to the next lane.
    let used = if n <= FEW { 1 } else { LANES };
    for term in 0..n {
        // SAFETY: the caller promises so many terms.
        let terms = unsafe { column(lines, stride, term) };
        lanes[term % used] = first_lanes::<M, 8>(lanes[term % used], &terms);
    }
    if used == 1 {
        return lanes[0];
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = first_lanes::<M, 8>(lanes[lane], &lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// # Safety
/// As [`WholeFn`] says.
#[inline(always)]
unsafe fn whole<M: Monoid>(kept: usize, n: usize, stride: isize, terms: *const u8, values: *mut u8) {
    let apart = usize::try_from(stride).map_or(0, |stride| stride / size_of::<M::T>());
    let mut done = 0;
    if n <= SHORT && apart >= n {
        while done + 8 <= kept {
            // SAFETY: the caller's promise: there are eight lines more, and values of theirs.
            unsafe {
                let lines = terms.offset(done as isize * stride).cast::<M::T>();
                let sums = short_lines::<M>(n, apart, lines);
                values.cast::<M::T>().add(done).cast::<[M::T; 8]>().write_unaligned(sums);
            }
            done += 8;
        }
    }
    for number in done..kept {
        // SAFETY: the caller's promise.
        unsafe {
            let terms = terms.offset(number as isize * stride).cast::<M::T>();
            let terms = std::slice::from_raw_parts(terms, n);
            *values.cast::<M::T>().add(number) = line::<M>(n, &terms);
        }
    }
}

/// # Safety
/// Both factors of the first line have `n` terms, and values to take from them.
#[inline(always)]
unsafe fn factors<'a, M: Monoid>(n: usize, factors: [Factor; 2]) -> ([&'a [M::T]; 2], [M::T; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        (
            factors.map(|factor| std::slice::from_raw_parts(factor.terms.cast::<M::T>(), n)),
            factors.map(|factor| *factor.less.cast::<M::T>()),
        )
    }
}

/// # Safety
/// As [`ProductsFn`] says.
#[inline(always)]
unsafe fn products<M: Monoid>(kept: usize, n: usize, of: [Factor; 2], values: *mut u8) {
    for number in 0..kept {
        // SAFETY: the caller's promise.
        unsafe {
            let (factors, less) = factors::<M>(n, of.map(|factor| factor.at(number, 0)));
            let value = line::<M>(n, &Products { factors, less });
            *values.cast::<M::T>().add(number) = value;
        }
    }
}

/// # Safety
/// As [`MultiplyFn`] says.
#[inline(always)]
unsafe fn multiply<M: Monoid>(n: usize, of: [Factor; 2], to: *mut u8) {
    // SAFETY: the caller's promise.
    let (([a, b], less), to) =
        unsafe { (factors::<M>(n, of), std::slice::from_raw_parts_mut(to.cast::<M::T>(), n)) };
    for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
        [*to] = multiplied(&[a], &[b], less);
    }
}

/// # Safety
/// As [`MergeFn`] says.
#[inline(always)]
unsafe fn merge<M: Monoid>(kept: usize, from: *const u8, values: *mut u8) {
    // SAFETY: the caller's promise.
    let (from, values) = unsafe {
        (
            std::slice::from_raw_parts(from.cast::<M::T>(), kept),
            std::slice::from_raw_parts_mut(values.cast::<M::T>(), kept),
        )
    };
    into_lanes::<M>(false, values, from);
}

macro_rules! versions {
    ($($module:ident $($features:literal)?;)*) => {$(
        mod $module {
            use super::{Factor, Layout, Monoid, TreeOp};

            versions! { @one $($features)?; take_rows(kept: usize, position: usize, n: usize, stride: isize, terms: *const u8, lanes: *mut u8) }
            versions! { @one $($features)?; take_lines(kept: usize, position: usize, n: usize, stride: isize, terms: *const u8, lanes: *mut u8) }
            versions! { @one $($features)?; pub(super) whole(kept: usize, n: usize, stride: isize, terms: *const u8, values: *mut u8) }
            versions! { @one $($features)?; pub(super) products(kept: usize, n: usize, of: [Factor; 2], values: *mut u8) }
            versions! { @one $($features)?; multiply(n: usize, of: [Factor; 2], to: *mut u8) }
            versions! { @one $($features)?; close_rows(kept: usize, n: usize, lanes: *const u8, values: *mut u8) }
            versions! { @one $($features)?; close_lines(kept: usize, n: usize, lanes: *const u8, values: *mut u8) }
            versions! { @one $($features)?; merge(kept: usize, from: *const u8, values: *mut u8) }

            pub(super) fn op<M: Monoid>(layout: Layout) -> TreeOp {
                let (take, close): (super::TakeFn, super::CloseFn) = match layout {
                    Layout::Rows => (take_rows::<M>, close_rows::<M>),
                    Layout::Lines => (take_lines::<M>, close_lines::<M>),
                };
                TreeOp {
                    take,
                    close,
                    whole: whole::<M>,
                    products: products::<M>,
                    multiply: multiply::<M>,
                    merge: merge::<M>,
                }
            }
        }
    )*};
    (@one $($features:literal)?; $visible:vis $name:ident($($arg:ident: $ty:ty),*)) => {
        /// # Safety
        /// As the function of this name outside.
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        $visible unsafe fn $name<M: Monoid>($($arg: $ty),*) {
            // SAFETY: the contract is that of the function called; `select` takes this module only where
            // `isa` found its instructions.
            unsafe { super::$name::<M>($($arg),*) }
        }
    };
}

versions! {
    baseline;
}
#[cfg(target_arch = "x86_64")]
versions! {
    avx2 "avx2,fma,bmi1,bmi2";
    avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2";
}

fn select<M: Monoid>(layout: Layout) -> TreeOp {
    match isa() {
        Isa::Baseline => baseline::op::<M>(layout),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::op::<M>(layout),
        // Two vectors of 256 bits hold the lanes of a line; one wider would wait for itself.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            TreeOp { whole: avx2::whole::<M>, products: avx2::products::<M>, ..avx512::op::<M>(layout) }
        }
    }
}

/// The tree of `kind` over registers of type `ty`; `None` where the order of terms does not matter.
pub fn tree_op(kind: AccumulatorKind, ty: ScalarType, layout: Layout) -> Option<TreeOp> {
    match (kind, ty) {
        (AccumulatorKind::Sum, ScalarType::F32) => Some(select::<SumF32>(layout)),
        (AccumulatorKind::Sum, ScalarType::F64) => Some(select::<SumF64>(layout)),
        (AccumulatorKind::Prod, ScalarType::F32) => Some(select::<ProdF32>(layout)),
        (AccumulatorKind::Prod, ScalarType::F64) => Some(select::<ProdF64>(layout)),
        _ => None,
    }
}

/// The number of blocks that a tree of so many terms keeps at most, by powers of two.
pub fn levels(terms: usize) -> usize {
    (usize::BITS - terms.div_ceil(BLOCK).leading_zeros()) as usize
}
