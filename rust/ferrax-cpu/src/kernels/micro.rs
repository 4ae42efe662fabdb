//! The innermost loops of products of matrices: a few rows of the result, as many vectors wide as
//! registers hold, over a block of terms.
//!
//! One operand is broadcast, element by element; the other is read in vectors, from panels that have a
//! row of [`Micro::width`] elements for each term. Each loop is compiled for each instruction set; all
//! add the terms of an element in order, those with fused multiplication where the machine has it.

use bytemuck::Pod;
use ferrax_ir::DType;

use crate::vm::isa::{Isa, isa};

/// Terms of a block of a convolution: a panel of so many rows of two vectors is three quarters of a small L1 cache.
pub const TERMS: usize = 192;
/// From one row of broadcast elements to the next, where their terms are adjacent: an odd number of
/// cache lines, so that rows do not fall into one set of the cache.
pub const ROW: usize = 272;

/// `f(terms, a, a_step, b, b_step, c, c_step, first)`: `c[i][j] = sum over k of a(i, k) * b[k][j]`, added to
/// `c` unless it is the first block.
pub type Block<T> = unsafe fn(usize, *const T, usize, *const T, usize, *mut T, usize, bool);

/// `f(runs, a, row, b, b_step, c, c_step, first)`: the same where terms of a row of `a` are adjacent in runs, each so far behind
/// the row's first element and of so many terms, and rows are `row` elements apart.
pub type Straight<T> = unsafe fn(&[(isize, usize)], *const T, isize, *const T, usize, *mut T, usize, bool);

/// Numbers that products and convolutions are computed in. Integers are unsigned and wrap.
pub trait Number: Pod + Send + Sync + std::fmt::Debug + 'static {
    const DTYPE: DType;
    fn negate(self) -> Self;
    fn add(self, other: Self) -> Self;
    fn mul_add(self, by: Self, to: Self) -> Self;
    fn micro() -> Micro<Self>;
}

/// The block functions of a dtype on this machine.
#[derive(Clone, Copy)]
pub struct Micro<T: 'static> {
    pub lanes: usize,
    /// Rows of the result that the functions compute, descending.
    pub rows: &'static [usize],
    /// By position in `rows`, then for one and two vectors.
    adjacent_terms: &'static [[Block<T>; 2]],
    adjacent_rows: &'static [[Block<T>; 2]],
    /// For one vector and for two: functions of so many rows, descending.
    straight: [&'static [(usize, Straight<T>)]; 2],
}

impl<T> std::fmt::Debug for Micro<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Micro({} lanes)", self.lanes)
    }
}

impl<T> Micro<T> {
    /// Elements of two vectors.
    pub fn width(&self) -> usize {
        2 * self.lanes
    }

    /// Rows of the largest block.
    pub fn most_rows(&self) -> usize {
        self.rows[0]
    }

    /// The function for the first of `rows` rows and `columns` columns, and how many rows it computes: more
    /// than there are, if no function computes as few. `adjacent_rows` if broadcast elements of one term
    /// are adjacent, else those of one row are.
    pub fn select(&self, rows: usize, columns: usize, adjacent_rows: bool) -> (Block<T>, usize) {
        let at = self.rows.iter().rposition(|&count| count >= rows).unwrap_or(0);
        let table = if adjacent_rows { self.adjacent_rows } else { self.adjacent_terms };
        (table[at][usize::from(columns > self.lanes)], self.rows[at])
    }

    /// The function for the first of `rows` rows, of which there is one at least, and how many of them it computes.
    pub fn select_straight(&self, rows: usize, columns: usize) -> (Straight<T>, usize) {
        let table = self.straight[usize::from(columns > self.lanes)];
        let at = table.iter().position(|&(count, _)| count <= rows).unwrap_or(table.len() - 1);
        let (count, function) = table[at];
        (function, count)
    }
}

/// A vector register.
trait Lanes<T>: Copy {
    const COUNT: usize;
    /// # Safety
    /// `from` is valid for reading a vector; the machine has the vector's instruction set.
    unsafe fn load(from: *const T) -> Self;
    /// # Safety
    /// `to` is valid for writing a vector; the machine has the vector's instruction set.
    unsafe fn store(self, to: *mut T);
    /// # Safety
    /// The machine has the vector's instruction set.
    unsafe fn splat(value: T) -> Self;
    /// `self * by + to`.
    ///
    /// # Safety
    /// The machine has the vector's instruction set.
    unsafe fn mul_add(self, by: Self, to: Self) -> Self;
    /// # Safety
    /// The machine has the vector's instruction set.
    unsafe fn add(self, other: Self) -> Self;
}

/// A vector that the compiler makes registers of.
#[derive(Clone, Copy)]
struct Plain<T, const N: usize>([T; N]);

impl<T: Number, const N: usize> Lanes<T> for Plain<T, N> {
    const COUNT: usize = N;

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: the caller's promise.
        Plain(unsafe { from.cast::<[T; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Plain([value; N])
    }

    #[inline(always)]
    unsafe fn mul_add(self, by: Self, to: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].mul_add(by.0[i], to.0[i])))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].add(other.0[i])))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    macro_rules! lanes {
        ($($vector:ident $t:ident $count:literal: $load:ident $store:ident $splat:ident $fma:ident $add:ident;)*) => {$(
            impl Lanes<$t> for $vector {
                const COUNT: usize = $count;

                #[inline(always)]
                unsafe fn load(from: *const $t) -> Self {
                    // SAFETY: the caller's promise; the instruction asks for no alignment.
                    unsafe { $load(from) }
                }

                #[inline(always)]
                unsafe fn store(self, to: *mut $t) {
                    // SAFETY: the caller's promise; the instruction asks for no alignment.
                    unsafe { $store(to, self) }
                }

                #[inline(always)]
                unsafe fn splat(value: $t) -> Self {
                    // SAFETY: the caller promises the instruction set.
                    unsafe { $splat(value) }
                }

                #[inline(always)]
                unsafe fn mul_add(self, by: Self, to: Self) -> Self {
                    // SAFETY: the caller promises the instruction set.
                    unsafe { $fma(self, by, to) }
                }

                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: the caller promises the instruction set.
                    unsafe { $add(self, other) }
                }
            }
        )*};
    }

    lanes! {
        __m512 f32 16: _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_fmadd_ps _mm512_add_ps;
        __m512d f64 8: _mm512_loadu_pd _mm512_storeu_pd _mm512_set1_pd _mm512_fmadd_pd _mm512_add_pd;
        __m256 f32 8: _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_fmadd_ps _mm256_add_ps;
        __m256d f64 4: _mm256_loadu_pd _mm256_storeu_pd _mm256_set1_pd _mm256_fmadd_pd _mm256_add_pd;
    }
}

/// Asks for the rows that sums are put to while these are computed: each is on a page of its own, that no stream is on.
#[inline(always)]
fn expect<T, V: Lanes<T>, const R: usize, const N: usize>(c: *const T, c_step: usize) {
    #[cfg(target_arch = "x86_64")]
    for i in 0..R {
        let row = c.wrapping_add(i * c_step).cast::<i8>();
        // SAFETY: a hint, of any address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(row);
            let last = row.wrapping_add(N * V::COUNT * size_of::<T>() - 1);
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(last);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (c, c_step);
}

/// Puts sums to their rows, or adds them to what is there.
///
/// # Safety
/// `c` has `R` rows of `N` vectors, `c_step` apart, that nobody else uses. The machine has the instruction set of `V`.
#[inline(always)]
unsafe fn store<T, V: Lanes<T>, const R: usize, const N: usize>(
    sums: &[[V; N]; R],
    c: *mut T,
    c_step: usize,
    first: bool,
) {
    for (i, row) in sums.iter().enumerate() {
        for (j, &sum) in row.iter().enumerate() {
            // SAFETY: inside of the rows.
            unsafe {
                let to = c.add(i * c_step + j * V::COUNT);
                let sum = if first { sum } else { V::load(to).add(sum) };
                sum.store(to);
            }
        }
    }
}

/// # Safety
/// `a` has `R` rows of `terms` elements, [`ROW`] apart if `TERMS_ADJACENT`, else its terms are `a_step`
/// apart; `b` has `terms` rows of `N` vectors, `b_step` apart; `c` has `R` rows of `N` vectors, `c_step`
/// apart, that nobody else uses. The machine has the instruction set of `V`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the operands of a product of matrices")]
unsafe fn block<T: Number, V: Lanes<T>, const R: usize, const N: usize, const TERMS_ADJACENT: bool>(
    terms: usize,
    mut a: *const T,
    a_step: usize,
    mut b: *const T,
    b_step: usize,
    c: *mut T,
    c_step: usize,
    first: bool,
) {
    // SAFETY: term k reads its element of each row of `a` and its row of `b`; `c` is read and written inside of
    // its rows. The pointers move at most one step behind the last term, which `wrapping_add` allows.
    unsafe {
        expect::<T, V, R, N>(c, c_step);
        let mut sums = [[V::splat(T::zeroed()); N]; R];
        for _ in 0..terms {
            let line: [V; N] = std::array::from_fn(|j| V::load(b.add(j * V::COUNT)));
            for (i, row) in sums.iter_mut().enumerate() {
                let x = V::splat(*a.add(if TERMS_ADJACENT { i * ROW } else { i }));
                for (sum, &y) in row.iter_mut().zip(&line) {
                    *sum = x.mul_add(y, *sum);
                }
            }
            a = a.wrapping_add(if TERMS_ADJACENT { 1 } else { a_step });
            b = b.wrapping_add(b_step);
        }
        store(&sums, c, c_step, first);
    }
}

/// # Safety
/// `a` has `R` rows, `row` elements apart, with the elements of all runs; `b` and `c` are as [`block`] says. The machine has the
/// instruction set of `V`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the operands of a product of matrices")]
unsafe fn straight<T: Number, V: Lanes<T>, const R: usize, const N: usize>(
    runs: &[(isize, usize)],
    a: *const T,
    row: isize,
    mut b: *const T,
    b_step: usize,
    c: *mut T,
    c_step: usize,
    first: bool,
) {
    // SAFETY: each run's terms are elements of each row; `b` has a row for each term of all runs, and moves at most one step
    // behind the last one, which `wrapping_add` allows; `c` is read and written inside of its rows.
    unsafe {
        expect::<T, V, R, N>(c, c_step);
        let mut sums = [[V::splat(T::zeroed()); N]; R];
        for &(offset, terms) in runs {
            let rows: [*const T; R] = std::array::from_fn(|i| a.offset(offset + i as isize * row));
            for k in 0..terms {
                let line: [V; N] = std::array::from_fn(|j| V::load(b.add(j * V::COUNT)));
                for (row, sums) in rows.iter().zip(&mut sums) {
                    let x = V::splat(*row.add(k));
                    for (sum, &y) in sums.iter_mut().zip(&line) {
                        *sum = x.mul_add(y, *sum);
                    }
                }
                b = b.wrapping_add(b_step);
            }
        }
        store(&sums, c, c_step, first);
    }
}

macro_rules! versions {
    ($($name:ident $straight:ident $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        #[allow(clippy::too_many_arguments, reason = "as `block`")]
        unsafe fn $name<T: Number, V: Lanes<T>, const R: usize, const N: usize, const TERMS_ADJACENT: bool>(
            terms: usize, a: *const T, a_step: usize, b: *const T, b_step: usize, c: *mut T, c_step: usize,
            first: bool,
        ) {
            // SAFETY: as `block` asks.
            unsafe { block::<T, V, R, N, TERMS_ADJACENT>(terms, a, a_step, b, b_step, c, c_step, first) }
        }

        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        #[allow(clippy::too_many_arguments, reason = "as `straight`")]
        unsafe fn $straight<T: Number, V: Lanes<T>, const R: usize, const N: usize>(
            runs: &[(isize, usize)], a: *const T, row: isize, b: *const T, b_step: usize, c: *mut T, c_step: usize,
            first: bool,
        ) {
            // SAFETY: as `straight` asks.
            unsafe { straight::<T, V, R, N>(runs, a, row, b, b_step, c, c_step, first) }
        }
    )*};
}

versions! {
    baseline straight_baseline;
    avx2 straight_avx2 "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
    avx512 straight_avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
}

/// The table of the blocks of one vector type, with these numbers of rows, and those of straight ones: of one vector, of two.
macro_rules! table {
    ($version:ident $straight:ident $t:ident $v:ty: $($rows:literal)*; $($one:literal)*; $($two:literal)*) => {
        Micro {
            lanes: <$v as Lanes<$t>>::COUNT,
            rows: &[$($rows),*],
            adjacent_terms: &[$([$version::<$t, $v, $rows, 1, true>, $version::<$t, $v, $rows, 2, true>]),*],
            adjacent_rows: &[$([$version::<$t, $v, $rows, 1, false>, $version::<$t, $v, $rows, 2, false>]),*],
            straight: [
                &[$(($one, $straight::<$t, $v, $one, 1>)),*],
                &[$(($two, $straight::<$t, $v, $two, 2>)),*],
            ],
        }
    };
}

macro_rules! floats {
    ($($t:ident $dtype:ident $wide:ident $half:ident $plain:literal;)*) => {$(
        impl Number for $t {
            const DTYPE: DType = DType::$dtype;

            fn negate(self) -> $t {
                -self
            }

            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self + other
            }

            #[inline(always)]
            fn mul_add(self, by: $t, to: $t) -> $t {
                self * by + to
            }

            fn micro() -> Micro<$t> {
                match isa() {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => table!(avx512 straight_avx512 $t std::arch::x86_64::$wide: 12 8 4 2 1; 12 4 1; 12 8 4 2 1),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => table!(avx2 straight_avx2 $t std::arch::x86_64::$half: 6 4 2 1; 12 4 1; 6 4 2 1),
                    Isa::Baseline => table!(baseline straight_baseline $t Plain<$t, $plain>: 4 2 1; 4 1; 4 1),
                }
            }
        }
    )*};
}

floats! {
    f32 F32 __m512 __m256 4;
    f64 F64 __m512d __m256d 2;
}

macro_rules! integers {
    ($($t:ident $dtype:ident $lanes:literal;)*) => {$(
        impl Number for $t {
            const DTYPE: DType = DType::$dtype;

            fn negate(self) -> $t {
                self.wrapping_neg()
            }

            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn mul_add(self, by: $t, to: $t) -> $t {
                self.wrapping_mul(by).wrapping_add(to)
            }

            fn micro() -> Micro<$t> {
                match isa() {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => table!(avx512 straight_avx512 $t Plain<$t, $lanes>: 8 2 1; 4 1; 4 1),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => table!(avx2 straight_avx2 $t Plain<$t, $lanes>: 4 1; 4 1; 4 1),
                    Isa::Baseline => table!(baseline straight_baseline $t Plain<$t, $lanes>: 4 1; 4 1; 4 1),
                }
            }
        }
    )*};
}

integers! {
    u8 U8 16;
    u16 U16 16;
    u32 U32 16;
    u64 U64 8;
}
