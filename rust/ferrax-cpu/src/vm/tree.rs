//! Sums and products of floats, as a tree that the number of terms determines.
//!
//! The terms of a reduction are numbered in the order in which they are met.
//! [`BLOCK`] terms make a block: term t goes to lane t mod [`LANES`], where terms
//! are combined in order, and the lanes are combined in halves. Blocks are
//! combined as a binary counter counts: two blocks, two pairs of blocks, and so
//! on; what is left at the end, from the latest to the first. Nothing of this
//! depends on tiles, threads, instruction sets or on how many reductions run
//! side by side: the functions here are handed terms in any portions.
//!
//! The computed sum of n terms differs from their exact sum by at most
//! `(19 + log2(max(1, n / 128))) u` times the sum of their magnitudes, to first
//! order in the unit roundoff u: a lane adds 16 terms, three levels combine lanes
//! (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §4.2).
//!
//! `kept` reductions run side by side, in one of two layouts. By rows, a term of
//! all of them is a row of `kept` values, and lane l is row l of the lanes. By
//! lines, a line has the terms of one of them, and its lanes are a line too.

use ferrax_compile::AccumulatorKind;
use ferrax_ir::scalar::ScalarType;

use super::isa::{Isa, isa};

/// Lanes of a block.
pub const LANES: usize = 8;
/// Terms of a block.
pub const BLOCK: usize = 128;
/// Reductions side by side by rows, up to which whole blocks are done in registers.
pub const THIN: usize = 8;
/// Blocks that are done at once, at most.
pub const MOST_BLOCKS: usize = 8;

/// `f(kept, position, n, stride, terms, lanes)`: takes n terms, the first of which has this position in
/// its block, and none of which is in the next. Rows or lines are `stride` bytes apart.
pub type TakeFn = unsafe fn(usize, usize, usize, isize, *const u8, *mut u8);
/// `f(kept, n, lanes, values)`: combines the lanes of blocks of n terms.
pub type CloseFn = unsafe fn(usize, usize, *const u8, *mut u8);
/// `f(n, blocks, values)`: combines n whole blocks, a power of two, that lie side by side.
pub type BlocksFn = unsafe fn(usize, *const u8, *mut u8);
/// `f(kept, from, values)`: combines values with earlier ones.
pub type MergeFn = unsafe fn(usize, *const u8, *mut u8);

/// How reductions run side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    Rows,
    Lines,
}

/// The functions of a reduction.
#[derive(Clone, Copy)]
pub struct TreeOp {
    pub take: TakeFn,
    pub close: CloseFn,
    /// All of reductions of at most one block, by lines: `f(kept, 0, n, stride, terms, values)`.
    pub whole: TakeFn,
    /// For 1 to [`THIN`] reductions.
    pub blocks: [BlocksFn; THIN],
    pub merge: MergeFn,
}

impl std::fmt::Debug for TreeOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TreeOp")
    }
}

trait Monoid: 'static {
    type T: Copy;
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
    if used < 2 {
        values.copy_from_slice(first);
        return;
    }
    // SAFETY: at least two lanes were reached, and each holds `kept` values.
    let second = unsafe { std::slice::from_raw_parts(lanes.add(kept), kept) };
    for ((value, &a), &b) in values.iter_mut().zip(first).zip(second) {
        *value = M::fold(a, b);
    }
}

#[inline(always)]
fn halves<M: Monoid>(mut lanes: [M::T; LANES]) -> M::T {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = M::fold(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// `N` terms into the first lanes.
#[inline(always)]
fn into_first<M: Monoid, const N: usize>(lanes: &mut [M::T; LANES], terms: &[M::T]) {
    if let Some(terms) = terms.first_chunk::<N>() {
        for (lane, &term) in lanes.iter_mut().zip(terms) {
            *lane = M::fold(*lane, term);
        }
    }
}

/// Terms of one line, the first at this position, into its lanes.
#[inline(always)]
fn take_line<M: Monoid>(position: usize, terms: &[M::T], lanes: &mut [M::T; LANES]) {
    let lane = position % LANES;
    let (head, rest) = terms.split_at(((LANES - lane) % LANES).min(terms.len()));
    into_lanes::<M>(false, &mut lanes[lane..], head);
    let (chunks, tail) = rest.as_chunks::<LANES>();
    let mut local = *lanes;
    for chunk in chunks {
        into_lanes::<M>(false, &mut local, chunk);
    }
    // In registers too, which needs to know how many there are.
    match tail.len() {
        1 => into_first::<M, 1>(&mut local, tail),
        2 => into_first::<M, 2>(&mut local, tail),
        3 => into_first::<M, 3>(&mut local, tail),
        4 => into_first::<M, 4>(&mut local, tail),
        5 => into_first::<M, 5>(&mut local, tail),
        6 => into_first::<M, 6>(&mut local, tail),
        7 => into_first::<M, 7>(&mut local, tail),
        _ => {}
    }
    *lanes = local;
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
                0 => M::START,
                _ => halves::<M>(*lanes.cast::<[M::T; LANES]>().add(line)),
            };
            *values.cast::<M::T>().add(line) = value;
        }
    }
}

/// # Safety
/// As [`TreeOp::whole`] says.
#[inline(always)]
unsafe fn whole<M: Monoid>(
    kept: usize,
    _: usize,
    n: usize,
    stride: isize,
    terms: *const u8,
    values: *mut u8,
) {
    for line in 0..kept {
        // SAFETY: the caller's promise.
        unsafe {
            let terms = std::slice::from_raw_parts(terms.offset(line as isize * stride).cast::<M::T>(), n);
            let mut lanes = [M::START; LANES];
            take_line::<M>(0, terms, &mut lanes);
            *values.cast::<M::T>().add(line) = halves::<M>(lanes);
        }
    }
}

/// # Safety
/// As [`BlocksFn`] says, for `KEPT` reductions.
#[inline(always)]
unsafe fn blocks<M: Monoid, const KEPT: usize>(n: usize, blocks: *const u8, values: *mut u8) {
    let mut sums = [[M::START; KEPT]; MOST_BLOCKS];
    if KEPT == 1 && n == MOST_BLOCKS {
        // SAFETY: the caller's promise.
        let terms = unsafe { &*blocks.cast::<[[[M::T; LANES]; BLOCK / LANES]; MOST_BLOCKS]>() };
        let mut lanes = [[M::START; LANES]; MOST_BLOCKS];
        for step in 0..BLOCK / LANES {
            for (lanes, terms) in lanes.iter_mut().zip(terms) {
                into_lanes::<M>(false, lanes, &terms[step]);
            }
        }
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            sum[0] = halves::<M>(lanes);
        }
    } else {
        for (number, sum) in sums.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            let rows = unsafe { &*blocks.cast::<[[[M::T; KEPT]; LANES]; BLOCK / LANES]>().add(number) };
            let mut lanes = [[M::START; KEPT]; LANES];
            for chunk in rows {
                into_lanes::<M>(false, lanes.as_flattened_mut(), chunk.as_flattened());
            }
            for half in [4, 2, 1] {
                let (low, high) = lanes.as_flattened_mut().split_at_mut(half * KEPT);
                into_lanes::<M>(false, low, &high[..half * KEPT]);
            }
            *sum = lanes[0];
        }
    }
    let mut count = n;
    while count > 1 {
        count /= 2;
        for number in 0..count {
            let second = sums[2 * number + 1];
            sums[number] = sums[2 * number];
            into_lanes::<M>(false, &mut sums[number], &second);
        }
    }
    // SAFETY: the caller's promise.
    unsafe { *values.cast::<[M::T; KEPT]>() = sums[0] };
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
            use super::{Monoid, TreeOp, Layout};

            versions! { @one $($features)?; take_rows(kept: usize, position: usize, n: usize, stride: isize, terms: *const u8, lanes: *mut u8) }
            versions! { @one $($features)?; take_lines(kept: usize, position: usize, n: usize, stride: isize, terms: *const u8, lanes: *mut u8) }
            versions! { @one $($features)?; whole(kept: usize, position: usize, n: usize, stride: isize, terms: *const u8, values: *mut u8) }
            versions! { @one $($features)?; close_rows(kept: usize, n: usize, lanes: *const u8, values: *mut u8) }
            versions! { @one $($features)?; close_lines(kept: usize, n: usize, lanes: *const u8, values: *mut u8) }
            versions! { @one $($features)?; merge(kept: usize, from: *const u8, values: *mut u8) }

            /// # Safety
            /// As `super::blocks`.
            $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
            pub(super) unsafe fn blocks<M: Monoid, const KEPT: usize>(n: usize, blocks: *const u8, values: *mut u8) {
                // SAFETY: the contract is that of the function called; `select` takes this module only
                // where `isa` found its instructions.
                unsafe { super::blocks::<M, KEPT>(n, blocks, values) }
            }

            pub(super) fn op<M: Monoid>(layout: Layout, one: super::BlocksFn) -> TreeOp {
                let (take, close): (super::TakeFn, super::CloseFn) = match layout {
                    Layout::Rows => (take_rows::<M>, close_rows::<M>),
                    Layout::Lines => (take_lines::<M>, close_lines::<M>),
                };
                TreeOp {
                    take,
                    close,
                    whole: whole::<M>,
                    blocks: [
                        one, blocks::<M, 2>, blocks::<M, 3>, blocks::<M, 4>,
                        blocks::<M, 5>, blocks::<M, 6>, blocks::<M, 7>, blocks::<M, 8>,
                    ],
                    merge: merge::<M>,
                }
            }
        }
    )*};
    (@one $($features:literal)?; $name:ident($($arg:ident: $ty:ty),*)) => {
        /// # Safety
        /// As the function of this name outside.
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $name<M: Monoid>($($arg: $ty),*) {
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
        Isa::Baseline => baseline::op::<M>(layout, baseline::blocks::<M, 1>),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::op::<M>(layout, avx2::blocks::<M, 1>),
        // One reduction fills vectors of 256 bits; wider ones only need more shuffles.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::op::<M>(layout, avx2::blocks::<M, 1>),
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
