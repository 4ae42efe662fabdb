//! Reductions of blocks into accumulators, where the order does not matter:
//! integers wrap, extrema and bits have no order. Sums and products of floats
//! are in `tree`.

use ferrax_compile::AccumulatorKind;
use ferrax_compile::schedule::FoldShape;
use ferrax_ir::scalar::ScalarType;
use ferrax_ir::{Result, internal_error};

use super::isa::{Isa, isa};
use super::ops::{Bits, Number};
use super::tree::{SHORT, column, halves};

/// `f(rows, cols, block, accumulators)`.
pub type FoldFn = unsafe fn(usize, usize, *const u8, *mut u8);

/// A binary reduction with its identity.
trait Fold: 'static {
    type T: Copy;
    const START: Self::T;
    fn fold(a: Self::T, b: Self::T) -> Self::T;
    /// Of values that follow one another in memory.
    #[inline(always)]
    fn along(values: &[Self::T]) -> Self::T
    where
        Self: Sized,
    {
        along::<Self>(values)
    }
}

macro_rules! folds {
    ($($name:ident { $($t:ty: $start:expr, |$a:ident, $b:ident| $body:expr;)* })*) => {$(
        struct $name<T>(std::marker::PhantomData<T>);
        $(impl Fold for $name<$t> {
            type T = $t;
            const START: $t = $start;
            #[inline(always)]
            fn fold($a: $t, $b: $t) -> $t { $body }
        })*
    )*};
}

folds! {
    Sum {
        u8: 0, |a, b| Number::add(a, b); u16: 0, |a, b| Number::add(a, b);
        u32: 0, |a, b| Number::add(a, b); u64: 0, |a, b| Number::add(a, b);
    }
    Prod {
        u8: 1, |a, b| Number::mul(a, b); u16: 1, |a, b| Number::mul(a, b);
        u32: 1, |a, b| Number::mul(a, b); u64: 1, |a, b| Number::mul(a, b);
    }
    Max {
        u8: u8::MIN, |a, b| Number::max(a, b); u16: u16::MIN, |a, b| Number::max(a, b);
        u32: u32::MIN, |a, b| Number::max(a, b); u64: u64::MIN, |a, b| Number::max(a, b);
        i8: i8::MIN, |a, b| Number::max(a, b); i16: i16::MIN, |a, b| Number::max(a, b);
        i32: i32::MIN, |a, b| Number::max(a, b); i64: i64::MIN, |a, b| Number::max(a, b);
    }
    Min {
        u8: u8::MAX, |a, b| Number::min(a, b); u16: u16::MAX, |a, b| Number::min(a, b);
        u32: u32::MAX, |a, b| Number::min(a, b); u64: u64::MAX, |a, b| Number::min(a, b);
        i8: i8::MAX, |a, b| Number::min(a, b); i16: i16::MAX, |a, b| Number::min(a, b);
        i32: i32::MAX, |a, b| Number::min(a, b); i64: i64::MAX, |a, b| Number::min(a, b);
    }
    And {
        u8: !0, |a, b| Bits::and(a, b); u16: !0, |a, b| Bits::and(a, b);
        u32: !0, |a, b| Bits::and(a, b); u64: !0, |a, b| Bits::and(a, b);
    }
    Or {
        u8: 0, |a, b| Bits::or(a, b); u16: 0, |a, b| Bits::or(a, b);
        u32: 0, |a, b| Bits::or(a, b); u64: 0, |a, b| Bits::or(a, b);
    }
    Xor {
        u8: 0, |a, b| Bits::xor(a, b); u16: 0, |a, b| Bits::xor(a, b);
        u32: 0, |a, b| Bits::xor(a, b); u64: 0, |a, b| Bits::xor(a, b);
    }
}

/// Lanes of an extremum: with what is beside it, they stay in registers.
const WIDE: usize = 32;

/// The extremum of floats along memory, without the care for NaN and signs of zeros that [`Number`] takes at
/// each step: whether there is a NaN is asked beside it, and which zero there is only if it is one. Values may
/// be counted twice.
macro_rules! float_extrema {
    ($($name:ident $t:ident $mask:ident: $start:expr, $better:tt, $exact:ident;)*) => {$(
        impl Fold for $name<$t> {
            type T = $t;
            const START: $t = $start;
            #[inline(always)]
            fn fold(a: $t, b: $t) -> $t { Number::$exact(a, b) }
            #[inline(always)]
            fn along(values: &[$t]) -> $t {
                #[inline(always)]
                fn more<const N: usize>(
                    (mut best, mut nans): ([$t; N], [$mask; N]),
                    values: &[$t; N],
                ) -> ([$t; N], [$mask; N]) {
                    let mut lane = 0;
                    while lane < N {
                        let value = values[lane];
                        best[lane] = if value $better best[lane] { value } else { best[lane] };
                        nans[lane] |= if value.is_nan() { $mask::MAX } else { 0 };
                        lane += 1;
                    }
                    (best, nans)
                }
                #[inline(always)]
                fn join<const N: usize>((best, nans): ([$t; N], [$mask; N])) -> ($t, bool) {
                    let (eights, _) = best.as_chunks::<8>();
                    let mut lanes = eights.first().copied().unwrap_or([$start; 8]);
                    for eight in eights {
                        lanes = more::<8>((lanes, [0; 8]), eight).0;
                    }
                    let best = halves(lanes, |a, b| if a $better b { a } else { b });
                    (best, nans.iter().fold(0, |all, &one| all | one) != 0)
                }
                let (best, is_nan) = if let Some((first, last)) =
                    values.first_chunk::<WIDE>().zip(values.last_chunk::<WIDE>())
                {
                    let mut state = (*first, [0; WIDE]);
                    for chunk in values.as_chunks::<WIDE>().0 {
                        state = more(state, chunk);
                    }
                    join(more(state, last))
                } else {
                    let (eights, rest) = values.as_chunks::<8>();
                    let mut state = ([$start; 8], [0; 8]);
                    for eight in eights {
                        state = more(state, eight);
                    }
                    match values.last_chunk::<8>() {
                        Some(last) if !rest.is_empty() => join(more(state, last)),
                        Some(_) => join(state),
                        None => rest.iter().fold(($start, false), |(best, is_nan), &value| {
                            (if value $better best { value } else { best }, is_nan | value.is_nan())
                        }),
                    }
                };
                match best {
                    _ if is_nan => <$t>::NAN,
                    0.0 => along::<Self>(values),
                    best => best,
                }
            }
        }
    )*};
}

float_extrema! {
    Max f32 u32: f32::NEG_INFINITY, >, max;
    Max f64 u64: f64::NEG_INFINITY, >, max;
    Min f32 u32: f32::INFINITY, <, min;
    Min f64 u64: f64::INFINITY, <, min;
}

/// Independent lanes of a reduction along memory.
const LANES: usize = 64;

/// `N` lanes with as many values folded into them; counted, so that they stay in registers.
#[inline(always)]
fn into_lanes<F: Fold, const N: usize>(mut lanes: [F::T; N], values: &[F::T; N]) -> [F::T; N] {
    let mut lane = 0;
    while lane < N {
        lanes[lane] = F::fold(lanes[lane], values[lane]);
        lane += 1;
    }
    lanes
}

#[inline(always)]
fn along<F: Fold>(values: &[F::T]) -> F::T {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [F::START; 8];
    if !chunks.is_empty() {
        let mut many = [F::START; LANES];
        for chunk in chunks {
            many = into_lanes::<F, LANES>(many, chunk);
        }
        for eight in many.as_chunks::<8>().0 {
            lanes = into_lanes::<F, 8>(lanes, eight);
        }
    }
    let (eights, rest) = rest.as_chunks::<8>();
    for eight in eights {
        lanes = into_lanes::<F, 8>(lanes, eight);
    }
    rest.iter().fold(halves(lanes, F::fold), |total, &value| F::fold(total, value))
}

/// Values into as many accumulators. The value comes first: that of two which a NaN keeps is then not the one that is
/// there already, which would be a store under a mask.
#[inline(always)]
fn into_each<F: Fold>(accumulators: &mut [F::T], values: &[F::T]) {
    for (accumulator, &value) in accumulators.iter_mut().zip(values) {
        *accumulator = F::fold(value, *accumulator);
    }
}

/// # Safety
/// `block` holds `rows * cols` elements; `accumulators` as many as `SHAPE` says.
#[inline(always)]
unsafe fn fold<F: Fold, const SHAPE: u8>(rows: usize, cols: usize, block: *const u8, accumulators: *mut u8) {
    // SAFETY: the caller promises these elements of this type, aligned as all blocks are; accumulators are
    // slots apart from the block.
    let (block, accumulators) = unsafe {
        let count = match SHAPE {
            0 => rows * cols,
            1 => rows,
            2 => cols,
            _ => 1,
        };
        (
            std::slice::from_raw_parts(block.cast::<F::T>(), rows * cols),
            std::slice::from_raw_parts_mut(accumulators.cast::<F::T>(), count),
        )
    };
    match SHAPE {
        0 => into_each::<F>(accumulators, block),
        1 => {
            let (mut accumulators, mut block) = (accumulators, block);
            if cols <= SHORT {
                // Eight rows side by side: of a short one by itself most is what it takes to come to one value.
                let (eights, rest) = accumulators.as_chunks_mut::<8>();
                let lines;
                (lines, block) = block.split_at(eights.len() * 8 * cols);
                for (eight, lines) in eights.iter_mut().zip(lines.chunks_exact(8 * cols)) {
                    let mut best = *eight;
                    for col in 0..cols {
                        // SAFETY: there are eight lines of so many columns.
                        best = into_lanes::<F, 8>(best, &unsafe { column(lines.as_ptr(), cols, col) });
                    }
                    *eight = best;
                }
                accumulators = rest;
            }
            for (accumulator, row) in accumulators.iter_mut().zip(block.chunks_exact(cols)) {
                *accumulator = F::fold(*accumulator, F::along(row));
            }
        }
        2 if cols < LANES && LANES.is_multiple_of(cols) => {
            // Short rows go into lanes of their own, several at once.
            let (chunks, rest) = block.as_chunks::<LANES>();
            if !chunks.is_empty() {
                let mut many = [F::START; LANES];
                for chunk in chunks {
                    many = into_lanes::<F, LANES>(many, chunk);
                }
                many.chunks_exact(cols).for_each(|row| into_each::<F>(accumulators, row));
            }
            rest.chunks_exact(cols).for_each(|row| into_each::<F>(accumulators, row));
        }
        2 => block.chunks_exact(cols).for_each(|row| into_each::<F>(accumulators, row)),
        _ => accumulators[0] = F::fold(accumulators[0], F::along(block)),
    }
}

macro_rules! versions {
    ($($name:ident $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $name<F: Fold, const SHAPE: u8>(rows: usize, cols: usize, block: *const u8, to: *mut u8) {
            // SAFETY: the function has the contract of `fold`; `isa` found the instructions that it is
            // compiled for on this machine before it was chosen.
            unsafe { fold::<F, SHAPE>(rows, cols, block, to) }
        }
    )*};
}

versions! {
    baseline;
    avx2 "avx2,fma,bmi1,bmi2";
    avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2";
}

fn select<F: Fold, const SHAPE: u8>() -> FoldFn {
    match isa() {
        Isa::Baseline => baseline::<F, SHAPE>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::<F, SHAPE>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::<F, SHAPE>,
    }
}

/// A reduction: its identity's bytes and its function.
#[derive(Clone, Copy)]
pub struct FoldOp {
    pub start: [u8; 8],
    pub apply: FoldFn,
    /// Combines accumulators with others elementwise.
    pub merge: FoldFn,
}

impl std::fmt::Debug for FoldOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FoldOp")
    }
}

fn make<F: Fold>(shape: FoldShape) -> FoldOp {
    let mut start = [0; 8];
    let value = F::START;
    // SAFETY: a register has at most 8 bytes.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), start.as_mut_ptr(), size_of::<F::T>());
    }
    let apply = match shape {
        FoldShape::Each => select::<F, 0>(),
        FoldShape::Cols => select::<F, 1>(),
        FoldShape::Rows => select::<F, 2>(),
        FoldShape::All => select::<F, 3>(),
    };
    FoldOp { start, apply, merge: select::<F, 0>() }
}

/// The reduction of `kind` over registers of type `ty`.
pub fn fold_op(kind: AccumulatorKind, ty: ScalarType, shape: FoldShape) -> Result<FoldOp> {
    macro_rules! unsigned {
        ($f:ident) => {
            match ty.size() {
                1 => make::<$f<u8>>(shape),
                2 => make::<$f<u16>>(shape),
                4 => make::<$f<u32>>(shape),
                _ => make::<$f<u64>>(shape),
            }
        };
    }
    macro_rules! order {
        ($f:ident) => {
            match ty {
                ScalarType::F32 => make::<$f<f32>>(shape),
                ScalarType::F64 => make::<$f<f64>>(shape),
                ScalarType::I8 => make::<$f<i8>>(shape),
                ScalarType::I16 => make::<$f<i16>>(shape),
                ScalarType::I32 => make::<$f<i32>>(shape),
                ScalarType::I64 => make::<$f<i64>>(shape),
                _ => unsigned!($f),
            }
        };
    }
    Ok(match kind {
        AccumulatorKind::Sum | AccumulatorKind::Prod if ty.is_float() => {
            return Err(internal_error!("the order of a {kind:?} of {ty:?} matters"));
        }
        AccumulatorKind::Sum => unsigned!(Sum),
        AccumulatorKind::Prod => unsigned!(Prod),
        AccumulatorKind::Max => order!(Max),
        AccumulatorKind::Min => order!(Min),
        AccumulatorKind::And if ty == ScalarType::Bool => {
            let mut op = make::<And<u8>>(shape);
            op.start[0] = 1;
            op
        }
        AccumulatorKind::And => unsigned!(And),
        AccumulatorKind::Or => unsigned!(Or),
        AccumulatorKind::Xor => unsigned!(Xor),
        AccumulatorKind::ArgMax | AccumulatorKind::ArgMin => {
            return Err(internal_error!("{kind:?} is not a plain reduction"));
        }
    })
}

/// `f(rows, cols, block, values, indices, index of the first element, index
/// step of a row, of a column)`: keeps the extremum and its least index.
pub type ArgFn = unsafe fn(usize, usize, *const u8, *mut u8, *mut i64, i64, i64, i64);
/// `f(n, values, indices, into values, into indices)`.
pub type ArgMergeFn = unsafe fn(usize, *const u8, *const i64, *mut u8, *mut i64);

/// An order in which NaN comes first.
trait Extreme: Copy {
    fn beats(self, other: Self, max: bool) -> bool;
    fn ties(self, other: Self) -> bool;
}

macro_rules! extremes {
    ($($t:ident)*) => {$(
        impl Extreme for $t {
            #[inline(always)]
            fn beats(self, other: $t, max: bool) -> bool { if max { self > other } else { self < other } }
            #[inline(always)]
            fn ties(self, other: $t) -> bool { self == other }
        }
    )*};
}

extremes!(u8 u16 u32 u64 i8 i16 i32 i64);

macro_rules! float_extremes {
    ($($t:ident)*) => {$(
        impl Extreme for $t {
            #[inline(always)]
            fn beats(self, other: $t, max: bool) -> bool {
                let larger = if max { self > other } else { self < other };
                larger | (self.is_nan() & !other.is_nan())
            }
            #[inline(always)]
            fn ties(self, other: $t) -> bool { (self == other) | (self.is_nan() & other.is_nan()) }
        }
    )*};
}

float_extremes!(f32 f64);

#[inline(always)]
fn update<T: Extreme, const MAX: bool>(value: T, index: i64, best: &mut T, at: &mut i64) {
    // A negative index marks an accumulator that has seen nothing.
    if *at < 0 || value.beats(*best, MAX) || (value.ties(*best) && index < *at) {
        *best = value;
        *at = index;
    }
}

/// # Safety
/// `block` holds `rows * cols` elements, the accumulators as many as `SHAPE` says.
#[allow(clippy::too_many_arguments, reason = "the signature of `ArgFn`")]
unsafe fn arg<T: Extreme, const MAX: bool, const SHAPE: u8>(
    rows: usize,
    cols: usize,
    block: *const u8,
    values: *mut u8,
    indices: *mut i64,
    base: i64,
    row_step: i64,
    col_step: i64,
) {
    let (block, values) = (block.cast::<T>(), values.cast::<T>());
    for row in 0..rows {
        // SAFETY: the row is below `rows`, and the block holds `rows * cols` elements.
        let line = unsafe { std::slice::from_raw_parts(block.add(row * cols), cols) };
        if SHAPE == 1 || SHAPE == 3 {
            // Find the row's best first; most rows then need no update.
            let accumulator = if SHAPE == 1 { row } else { 0 };
            let Some((&first, rest)) = line.split_first() else { continue };
            let (mut best, mut place) = (first, 0);
            for (col, &value) in (1i64..).zip(rest) {
                if value.beats(best, MAX) {
                    (best, place) = (value, col);
                }
            }
            let index = base + row as i64 * row_step + place * col_step;
            // SAFETY: there is an accumulator for each row, or one for all.
            unsafe {
                update::<T, MAX>(best, index, &mut *values.add(accumulator), &mut *indices.add(accumulator))
            };
        } else {
            for (col, &value) in line.iter().enumerate() {
                let accumulator = if SHAPE == 0 { row * cols + col } else { col };
                let index = base + row as i64 * row_step + col as i64 * col_step;
                // SAFETY: there is an accumulator for each element of the tile, or one for each column.
                unsafe {
                    update::<T, MAX>(
                        value,
                        index,
                        &mut *values.add(accumulator),
                        &mut *indices.add(accumulator),
                    )
                };
            }
        }
    }
}

/// # Safety
/// All arrays hold `n` elements; the first two do not overlap the last two.
unsafe fn merge_arg<T: Extreme, const MAX: bool>(
    n: usize,
    values: *const u8,
    indices: *const i64,
    into: *mut u8,
    into_indices: *mut i64,
) {
    for i in 0..n {
        // SAFETY: `i` is below `n`, which all four arrays hold, and the first two are apart from the last
        // two.
        unsafe {
            let index = *indices.add(i);
            if index >= 0 {
                update::<T, MAX>(
                    *values.cast::<T>().add(i),
                    index,
                    &mut *into.cast::<T>().add(i),
                    &mut *into_indices.add(i),
                );
            }
        }
    }
}

/// The functions of an arg reduction over registers of type `ty`.
pub fn arg_fns(kind: AccumulatorKind, ty: ScalarType, shape: FoldShape) -> (ArgFn, ArgMergeFn) {
    fn shaped<T: Extreme, const MAX: bool>(shape: FoldShape) -> (ArgFn, ArgMergeFn) {
        let apply: ArgFn = match shape {
            FoldShape::Each => arg::<T, MAX, 0>,
            FoldShape::Cols => arg::<T, MAX, 1>,
            FoldShape::Rows => arg::<T, MAX, 2>,
            FoldShape::All => arg::<T, MAX, 3>,
        };
        (apply, merge_arg::<T, MAX>)
    }
    fn both<T: Extreme>(max: bool, shape: FoldShape) -> (ArgFn, ArgMergeFn) {
        if max { shaped::<T, true>(shape) } else { shaped::<T, false>(shape) }
    }
    let max = kind == AccumulatorKind::ArgMax;
    match ty {
        ScalarType::Bool | ScalarType::U8 => both::<u8>(max, shape),
        ScalarType::U16 => both::<u16>(max, shape),
        ScalarType::U32 => both::<u32>(max, shape),
        ScalarType::U64 => both::<u64>(max, shape),
        ScalarType::I8 => both::<i8>(max, shape),
        ScalarType::I16 => both::<i16>(max, shape),
        ScalarType::I32 => both::<i32>(max, shape),
        ScalarType::I64 => both::<i64>(max, shape),
        ScalarType::F32 => both::<f32>(max, shape),
        ScalarType::F64 => both::<f64>(max, shape),
    }
}
