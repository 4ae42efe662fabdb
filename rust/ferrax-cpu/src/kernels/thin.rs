//! Products of few rows, few columns or few terms, for which to pack operands costs more than to multiply.
//!
//! In: matrices of floats, the right one with dense rows. Out: whether they were multiplied here. Each sum adds its
//! products in order, [`SHORT`] of them and then such sums, by fused operations where the machine has them and the
//! product is not tiny. Cost: one pass over the right operand for every [`ROWS`] rows of the left one.

use std::hint::black_box;

use ferrax_compile::Path;
use ferrax_ir::DType;

use super::matrices::{Matrices, SHORT};
use crate::vm::isa::{Isa, isa};

/// Multiplications up to which a product is computed by plain loops.
pub const TINY: usize = ferrax_compile::tuning::TINY_PRODUCT;
/// Rows of the left operand whose sums are in registers at once, and the most of a thin product.
const ROWS: usize = 6;
const MOST_ROWS: usize = 2 * ROWS;
/// Terms from which a product is thin, and columns from which a row by a matrix is worth a pass over its result.
const LONG: usize = 32;
const WIDE: usize = 64;
/// Rows of the right operand that one pass over the result takes.
const PASS: usize = 8;

/// Floats that are multiplied here.
pub trait Real: Copy + 'static {
    const ZERO: Self;
    const ONE: Self;
    /// `a * b + c`, rounded once if `FUSED`.
    fn fused<const FUSED: bool>(a: Self, b: Self, c: Self) -> Self;
}

macro_rules! reals {
    ($($t:ident)*) => {$(
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            #[inline(always)]
            fn fused<const FUSED: bool>(a: $t, b: $t, c: $t) -> $t {
                if FUSED { a.mul_add(b, c) } else { a * b + c }
            }
        }
    )*};
}

reals!(f32 f64);

/// Whether a part of a product, of all its terms, adds them in the order in which the whole does: here, in the plain
/// loops for tiny ones, as a matrix and a vector, in register blocks, all in one order, or in the `gemm` crate, which goes
/// other ways for results of up to 256 elements and for those of up to 64 rows and columns. Integers have no order.
pub fn alike(dtype: DType, [m, n, k]: [usize; 3], [rows, cols]: [usize; 2]) -> bool {
    let numbers = if dtype == DType::F32 { [16, 8] } else { [8, 4] };
    let kind = |m: usize, n: usize| {
        let is_tiny = m * n * k <= TINY;
        let here = way(m, n, k, numbers).map(|(way, _)| way);
        let in_blocks = dtype.is_float() && floats_in_blocks();
        (is_tiny, here, m == 1, n == 1, !in_blocks && m * n <= 256, !in_blocks && m <= 64 && n <= 64)
    };
    let known = dtype.is_float() || cfg!(target_arch = "x86_64");
    dtype.is_integer() || if known { kind(m, n) == kind(rows, cols) } else { [m, n] == [rows, cols] }
}

/// Whether products of floats that are not tiny go to register blocks: not on x86-64 without fused operations, for which
/// the `gemm` crate is made better.
pub fn floats_in_blocks() -> bool {
    isa() != Isa::Baseline || cfg!(not(target_arch = "x86_64"))
}

/// Pieces of rows or columns, at most so many and each a multiple of rows long: how many, and their length. Fewer, or
/// one, where a piece would not be like the whole.
pub fn pieces(
    count: usize,
    most: usize,
    multiple: usize,
    is_alike: impl Fn(usize) -> bool,
) -> (usize, usize) {
    for wanted in (2..=most.min(count)).rev() {
        let length = count.div_ceil(wanted).next_multiple_of(multiple);
        let pieces = count.div_ceil(length);
        if pieces > 1 && is_alike(length) && is_alike(count - (pieces - 1) * length) {
            return (pieces, length);
        }
    }
    (1, count.max(1))
}

/// How products are multiplied here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Tiny,
    Thin,
    Row,
}

/// How a product of these sizes is multiplied, if it is here: two vectors have so many numbers, and one. It determines
/// bits, and is no matter of tuning.
#[inline(always)]
pub fn way(m: usize, n: usize, k: usize, [two, one]: [usize; 2]) -> Option<(Way, Path)> {
    if m * n * k <= TINY {
        (n >= one).then_some((Way::Tiny, Path::ProductTiny))
    } else if (2..=MOST_ROWS).contains(&m) && n > 1 && n <= two && k >= LONG {
        Some((Way::Thin, Path::ProductThin))
    } else {
        (m == 1 && n >= WIDE && k <= SHORT).then_some((Way::Row, Path::ProductRow))
    }
}

/// Multiplies matrices that are tiny, thin or one row, if these are; `W` numbers are two vectors and `HALF`
/// as many are one.
pub fn multiply<T: Real, const W: usize, const HALF: usize>(of: &Matrices) -> bool {
    let Matrices { m, n, k, .. } = *of;
    if of.right_col != 1 || m == 0 || n == 0 {
        return false;
    }
    let by: unsafe fn(&Matrices) = match way(m, n, k, [W, HALF]) {
        Some((Way::Tiny, _)) => select(tiny_baseline::<T, W, HALF>, tiny_avx2::<T, W, HALF>),
        Some((Way::Thin, _)) => select(thin_baseline::<T, W, HALF>, thin_avx2::<T, W, HALF>),
        Some((Way::Row, _)) => select(row_baseline::<T, W, HALF>, row_avx2::<T, W, HALF>),
        None => return false,
    };
    // SAFETY: the matrices are valid, and the functions are for the instructions of this machine.
    unsafe { by(of) };
    true
}

fn select(baseline: unsafe fn(&Matrices), _wide: unsafe fn(&Matrices)) -> unsafe fn(&Matrices) {
    match isa() {
        Isa::Baseline => baseline,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => _wide,
    }
}

macro_rules! versions {
    ($($baseline:ident $wide:ident $inner:ident $fused:literal;)*) => {$(
        unsafe fn $baseline<T: Real, const W: usize, const HALF: usize>(of: &Matrices) {
            // SAFETY: the contract is that of the function called. Every aarch64 has fused operations.
            unsafe { $inner::<T, W, HALF, { $fused && cfg!(target_arch = "aarch64") }>(of) }
        }
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
        unsafe fn $wide<T: Real, const W: usize, const HALF: usize>(of: &Matrices) {
            // SAFETY: as above; `select` takes this one only where `isa` found its instructions.
            unsafe { $inner::<T, W, HALF, $fused>(of) }
        }
    )*};
}

versions! {
    tiny_baseline tiny_avx2 tiny false;
    thin_baseline thin_avx2 thin true;
    row_baseline row_avx2 row true;
}

/// An element of the left operand.
///
/// # Safety
/// The indices are below `m` and `k`.
#[inline(always)]
unsafe fn left<T: Real>(of: &Matrices, row: usize, term: usize) -> T {
    let at = row as isize * of.left_row + term as isize * of.left_col;
    // SAFETY: the caller's promise: the element is one of the left matrix.
    unsafe { *of.left.cast::<T>().offset(at) }
}

/// So many elements of a row of the right operand, from this column on.
///
/// # Safety
/// They are before the end of the right matrix in memory.
#[inline(always)]
unsafe fn right<'a, T: Real, const N: usize>(of: &Matrices, term: usize, col: usize) -> &'a [T; N] {
    // SAFETY: the caller's promise.
    unsafe { &*of.right.cast::<T>().offset(term as isize * of.right_row).add(col).cast() }
}

/// So many sums, each with one more product. Counted, and of arrays that are values: the compiler keeps them in
/// registers.
#[inline(always)]
fn added<T: Real, const FUSED: bool, const N: usize>(mut sums: [T; N], a: T, line: &[T; N]) -> [T; N] {
    let mut lane = 0;
    while lane < N {
        sums[lane] = T::fused::<FUSED>(a, line[lane], sums[lane]);
        lane += 1;
    }
    sums
}

/// # Safety
/// The matrices are valid; the right one's rows are dense, and as long as a vector at least.
#[inline(always)]
unsafe fn tiny<T: Real, const W: usize, const HALF: usize, const FUSED: bool>(of: &Matrices) {
    for row in 0..of.m {
        let mut col = 0;
        while col < of.n {
            // The last strip begins where it ends with the row: what it repeats has the same bits.
            let start = col.min(of.n - HALF);
            let mut sums = [T::ZERO; HALF];
            for term in 0..of.k {
                // SAFETY: the indices are inside of the matrices.
                let (a, line) = unsafe { (left::<T>(of, row, term), right::<T, HALF>(of, term, start)) };
                sums = added::<T, FUSED, HALF>(sums, a, line);
            }
            // SAFETY: the result has `m` rows of `n` elements, `out_row` apart.
            unsafe { *of.out.cast::<T>().offset(row as isize * of.out_row).add(start).cast() = sums };
            col += HALF;
        }
    }
}

/// # Safety
/// The matrices are valid; the right one's rows are dense and have at most `W` elements.
#[inline(always)]
unsafe fn thin<T: Real, const W: usize, const HALF: usize, const FUSED: bool>(of: &Matrices) {
    let mut row = 0;
    while row < of.m {
        let rows = (of.m - row).div_ceil((of.m - row).div_ceil(ROWS));
        // SAFETY: so many rows are left.
        unsafe {
            match rows {
                1 => some_rows::<T, W, 1, FUSED>(of, row),
                2 => some_rows::<T, W, 2, FUSED>(of, row),
                3 => some_rows::<T, W, 3, FUSED>(of, row),
                4 => some_rows::<T, W, 4, FUSED>(of, row),
                5 => some_rows::<T, W, 5, FUSED>(of, row),
                _ => some_rows::<T, W, ROWS, FUSED>(of, row),
            }
        }
        row += rows;
    }
}

/// # Safety
/// As for [`thin`]; there are `R` rows from the first one on.
#[inline(always)]
unsafe fn some_rows<T: Real, const W: usize, const R: usize, const FUSED: bool>(of: &Matrices, first: usize) {
    // `W` numbers from the begin of a row are inside of the matrix but for the last rows.
    let stride = usize::try_from(of.right_row).unwrap_or(0);
    let end = (of.k - 1) * stride + of.n;
    let whole = if stride == 0 || end < W { 0 } else { ((end - W) / stride + 1).min(of.k) };
    let mut totals = [[T::ZERO; W]; R];
    let mut begin = 0;
    while begin < of.k {
        let next = (begin + SHORT).min(of.k);
        let mut sums = [[T::ZERO; W]; R];
        for term in begin..next.min(whole) {
            // SAFETY: the last number is before the end of the matrix, and the rows are those of the left operand.
            unsafe {
                let line = right::<T, W>(of, term, 0);
                let mut row = 0;
                while row < R {
                    sums[row] = added::<T, FUSED, W>(sums[row], left::<T>(of, first + row, term), line);
                    row += 1;
                }
            }
        }
        // Through memory, so that they are in registers before.
        let mut sums = black_box(sums);
        for term in begin.max(whole)..next {
            for col in 0..of.n {
                // SAFETY: the column and the rows are those of the operands.
                let [b] = *unsafe { right::<T, 1>(of, term, col) };
                for (row, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let a = unsafe { left::<T>(of, first + row, term) };
                    sums[col] = T::fused::<FUSED>(a, b, sums[col]);
                }
            }
        }
        for (totals, sums) in totals.iter_mut().zip(&sums) {
            *totals = added::<T, false, W>(*totals, T::ONE, sums);
        }
        begin = next;
    }
    for (row, sums) in totals.iter().enumerate() {
        // SAFETY: the result has `m` rows of `n` elements, `out_row` apart.
        let out = unsafe {
            let out = of.out.cast::<T>().offset((first + row) as isize * of.out_row);
            std::slice::from_raw_parts_mut(out, of.n)
        };
        out.copy_from_slice(&sums[..of.n]);
    }
}

/// # Safety
/// The matrices are valid; the right one's rows are dense, and the left one is one row.
#[inline(always)]
unsafe fn row<T: Real, const W: usize, const HALF: usize, const FUSED: bool>(of: &Matrices) {
    // SAFETY: the result is one row of `n` elements.
    unsafe { std::slice::from_raw_parts_mut(of.out.cast::<T>(), of.n) }.fill(T::ZERO);
    let mut term = 0;
    while term < of.k {
        // SAFETY: there are so many terms.
        unsafe {
            if term + PASS <= of.k {
                pass::<T, W, PASS, FUSED>(of, term);
                term += PASS;
            } else {
                pass::<T, W, 1, FUSED>(of, term);
                term += 1;
            }
        }
    }
}

/// Adds the products of `N` terms to a row.
///
/// # Safety
/// As for [`row`]; there are so many terms from the first one on.
#[inline(always)]
unsafe fn pass<T: Real, const W: usize, const N: usize, const FUSED: bool>(of: &Matrices, first: usize) {
    let mut factors = [T::ZERO; N];
    for (term, factor) in (first..).zip(&mut factors) {
        // SAFETY: the term is below `k`.
        *factor = unsafe { left::<T>(of, 0, term) };
    }
    let out = of.out.cast::<T>();
    let mut col = 0;
    while col + W <= of.n {
        // SAFETY: so many columns are left in the result and in the rows of the right operand.
        unsafe {
            let sums = strip::<T, W, N, FUSED>(of, first, col, &factors, *out.add(col).cast());
            *out.add(col).cast() = sums;
        }
        col += W;
    }
    while col < of.n {
        // SAFETY: the column is one of the result and of the right operand.
        unsafe {
            let sums = strip::<T, 1, N, FUSED>(of, first, col, &factors, *out.add(col).cast());
            *out.add(col).cast() = sums;
        }
        col += 1;
    }
}

/// # Safety
/// As for [`pass`]; there are `C` columns from this one on.
#[inline(always)]
unsafe fn strip<T: Real, const C: usize, const N: usize, const FUSED: bool>(
    of: &Matrices,
    first: usize,
    col: usize,
    factors: &[T; N],
    mut sums: [T; C],
) -> [T; C] {
    let mut next = 0;
    while next < N {
        // SAFETY: the caller's promise.
        let line = unsafe { right::<T, C>(of, first + next, col) };
        sums = added::<T, FUSED, C>(sums, factors[next], line);
        next += 1;
    }
    sums
}
