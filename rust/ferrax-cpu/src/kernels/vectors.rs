//! Products of a matrix and a vector, for machines with AVX2 and FMA.
//!
//! In: matrices of floats of which one is a row or a column, and the other has dense rows or columns. Out: whether they were
//! multiplied here. The order of a sum's terms depends on their number alone, and on whether the terms of a result
//! follow one another in memory (`lines`: term t goes to lane t mod two vectors, lanes are added in pairs) or the
//! results of a term do (`columns`: in order). So results may be computed in any parts. Cost: one pass over the matrix.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::matrices::Matrices;
use super::thin::Real;
use crate::vm::isa::{Isa, isa};

/// A product of a matrix and a vector: where the terms of a result are, and its results.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there are no ways but those of x86-64"))]
pub struct Vectors {
    results: usize,
    terms: usize,
    matrix: *const u8,
    result_stride: isize,
    term_stride: isize,
    vector: *const u8,
    out: *mut u8,
}

impl Vectors {
    /// A product that is one of these.
    fn of(of: &Matrices) -> Vectors {
        let vectors = Vectors {
            results: of.m,
            terms: of.k,
            matrix: of.left,
            result_stride: of.left_row,
            term_stride: of.left_col,
            vector: of.right,
            out: of.out,
        };
        let of_right = of.n != 1 || of.right_row != 1 || (of.left_row != 1 && of.left_col != 1);
        if !of_right {
            return vectors;
        }
        Vectors {
            results: of.n,
            matrix: of.right,
            result_stride: of.right_col,
            term_stride: of.right_row,
            vector: of.left,
            ..vectors
        }
    }
}

/// Floats that are multiplied here.
pub trait Lanes: Real {
    /// The two ways, each for the instructions of [`multiply`].
    const LINES: unsafe fn(&Vectors);
    const COLUMNS: unsafe fn(&Vectors);
}

/// Whether a product of so many rows and columns is one of these. Strides are of free indices and of terms, by operand.
pub fn are([m, n]: [usize; 2], [left, right]: [[isize; 2]; 2]) -> bool {
    let dense = |matrix: [isize; 2], vector: [isize; 2]| matrix.contains(&1) && vector[1] == 1;
    isa() != Isa::Baseline && ((n == 1 && dense(left, right)) || (m == 1 && dense(right, left)))
}

/// Multiplies a matrix and a vector, if these are.
pub fn multiply<T: Lanes>(of: &Matrices) -> bool {
    let strides = [[of.left_row, of.left_col], [of.right_col, of.right_row]];
    if !are([of.m, of.n], strides) || !(of.out_row == 1 || of.m == 1) {
        return false;
    }
    let vectors = Vectors::of(of);
    let by = if vectors.term_stride == 1 { T::LINES } else { T::COLUMNS };
    // SAFETY: the matrices are valid, and the functions are for the instructions of this machine.
    unsafe { by(&vectors) };
    true
}

#[cfg(target_arch = "x86_64")]
impl Lanes for f32 {
    const LINES: unsafe fn(&Vectors) = singles::lines;
    const COLUMNS: unsafe fn(&Vectors) = singles::columns;
}

#[cfg(target_arch = "x86_64")]
impl Lanes for f64 {
    const LINES: unsafe fn(&Vectors) = doubles::lines;
    const COLUMNS: unsafe fn(&Vectors) = doubles::columns;
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn nowhere(_: &Vectors) {}

#[cfg(not(target_arch = "x86_64"))]
impl Lanes for f32 {
    const LINES: unsafe fn(&Vectors) = nowhere;
    const COLUMNS: unsafe fn(&Vectors) = nowhere;
}

#[cfg(not(target_arch = "x86_64"))]
impl Lanes for f64 {
    const LINES: unsafe fn(&Vectors) = nowhere;
    const COLUMNS: unsafe fn(&Vectors) = nowhere;
}

#[cfg(target_arch = "x86_64")]
macro_rules! ways {
    ($module:ident, $t:ident, $lanes:literal, $zero:ident, $load:ident, $store:ident, $all:ident,
     $fused:ident, $add:ident, $masked_load:ident, $masked_store:ident, $integer:ident, $reduced:path) => {
        mod $module {
            use std::arch::x86_64::*;

            use super::Vectors;

            const LANES: usize = $lanes;
            /// Results whose terms are gone through together.
            const ROWS: usize = 4;
            /// Vectors of results that are in registers at once.
            const MOST: usize = 8;

            /// The first lanes, so many.
            #[inline]
            #[target_feature(enable = "avx2,fma")]
            fn mask(count: usize) -> __m256i {
                let mut lanes = [0 as $integer; LANES];
                lanes.iter_mut().take(count).for_each(|lane| *lane = -1);
                // SAFETY: so many bytes are there.
                unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
            }

            /// # Safety
            /// The product is valid, its terms follow one another, and the machine has these instructions.
            #[target_feature(enable = "avx2,fma")]
            pub(super) unsafe fn lines(of: &Vectors) {
                let (matrix, x) = (of.matrix.cast::<$t>(), of.vector.cast::<$t>());
                let whole = of.terms / LANES * LANES;
                let rest = mask(of.terms - whole);
                for first in (0..of.results).step_by(ROWS) {
                    // Where fewer are left, the last one is computed more than once.
                    let row = |number: usize| {
                        let result = (first + number).min(of.results - 1);
                        matrix.wrapping_offset(result as isize * of.result_stride)
                    };
                    let rows: [*const $t; ROWS] = std::array::from_fn(row);
                    let mut sums = [[$zero(); 2]; ROWS];
                    // SAFETY: terms before `whole`, and lanes of the mask after it, are inside of the operands.
                    unsafe {
                        let mut term = 0;
                        while term + 2 * LANES <= whole {
                            let (low, high) = ($load(x.add(term)), $load(x.add(term + LANES)));
                            for (sums, row) in sums.iter_mut().zip(rows) {
                                sums[0] = $fused($load(row.add(term)), low, sums[0]);
                                sums[1] = $fused($load(row.add(term + LANES)), high, sums[1]);
                            }
                            term += 2 * LANES;
                        }
                        let odd = term < whole;
                        if odd {
                            let low = $load(x.add(term));
                            for (sums, row) in sums.iter_mut().zip(rows) {
                                sums[0] = $fused($load(row.add(term)), low, sums[0]);
                            }
                        }
                        if whole < of.terms {
                            let last = $masked_load(x.add(whole), rest);
                            for (sums, row) in sums.iter_mut().zip(rows) {
                                let terms = $masked_load(row.add(whole), rest);
                                let place = usize::from(odd);
                                sums[place] = $fused(terms, last, sums[place]);
                            }
                        }
                    }
                    let [a, b, c, d] = sums.map(|[low, high]| $add(low, high));
                    let results = $reduced(a, b, c, d);
                    let count = ROWS.min(of.results - first);
                    // SAFETY: so many results are left.
                    unsafe {
                        let out = of.out.cast::<$t>().add(first);
                        std::ptr::copy_nonoverlapping(results.as_ptr(), out, count);
                    }
                }
            }

            /// # Safety
            /// The product is valid, the results of a term follow one another, and the machine has these
            /// instructions.
            #[target_feature(enable = "avx2,fma")]
            pub(super) unsafe fn columns(of: &Vectors) {
                let most = MOST * LANES;
                let mut first = 0;
                while first < of.results {
                    let left = of.results - first;
                    let count = left.min(most);
                    // SAFETY: so many results are left.
                    unsafe {
                        match count.div_ceil(LANES) {
                            1 => strip::<1>(of, first, count),
                            2 => strip::<2>(of, first, count),
                            3 => strip::<3>(of, first, count),
                            4 => strip::<4>(of, first, count),
                            5 => strip::<5>(of, first, count),
                            6 => strip::<6>(of, first, count),
                            7 => strip::<7>(of, first, count),
                            _ => strip::<MOST>(of, first, count),
                        }
                    }
                    first += count;
                }
            }

            /// # Safety
            /// As for [`columns`]; there are so many results from the first one on, and `V` vectors hold them.
            #[inline]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn strip<const V: usize>(of: &Vectors, first: usize, count: usize) {
                // The last vector begins where it ends with the results: what it repeats has the same bits.
                let starts: [usize; V] =
                    std::array::from_fn(|vector| (vector * LANES).min(count.saturating_sub(LANES)));
                let few = count < LANES;
                let lanes = mask(count);
                let mut sums = [$zero(); V];
                let x = of.vector.cast::<$t>();
                // SAFETY: the terms and the results are inside of the operands; of fewer than a vector, the mask's.
                unsafe {
                    let mut line = of.matrix.cast::<$t>().add(first);
                    for term in 0..of.terms {
                        let factor = $all(*x.add(term));
                        if few {
                            sums[0] = $fused($masked_load(line, lanes), factor, sums[0]);
                        } else {
                            for (sum, start) in sums.iter_mut().zip(starts) {
                                *sum = $fused($load(line.add(start)), factor, *sum);
                            }
                        }
                        line = line.wrapping_offset(of.term_stride);
                    }
                    let out = of.out.cast::<$t>().add(first);
                    if few {
                        $masked_store(out, lanes, sums[0]);
                    } else {
                        for (sum, start) in sums.into_iter().zip(starts) {
                            $store(out.add(start), sum);
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
ways!(
    singles,
    f32,
    8,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_fmadd_ps,
    _mm256_add_ps,
    _mm256_maskload_ps,
    _mm256_maskstore_ps,
    i32,
    super::reduced_singles
);

#[cfg(target_arch = "x86_64")]
ways!(
    doubles,
    f64,
    4,
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_fmadd_pd,
    _mm256_add_pd,
    _mm256_maskload_pd,
    _mm256_maskstore_pd,
    i64,
    super::reduced_doubles
);

/// The sum of the lanes of each vector, in pairs.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn reduced_singles(a: __m256, b: __m256, c: __m256, d: __m256) -> [f32; 4] {
    let fours = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let sums = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours));
    let mut results = [0.0; 4];
    // SAFETY: there is room for four.
    unsafe { _mm_storeu_ps(results.as_mut_ptr(), sums) };
    results
}

/// As [`reduced_singles`].
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn reduced_doubles(a: __m256d, b: __m256d, c: __m256d, d: __m256d) -> [f64; 4] {
    let (ab, cd) = (_mm256_hadd_pd(a, b), _mm256_hadd_pd(c, d));
    let (low, high) = (_mm256_permute2f128_pd::<0x20>(ab, cd), _mm256_permute2f128_pd::<0x31>(ab, cd));
    let mut results = [0.0; 4];
    // SAFETY: there is room for four.
    unsafe { _mm256_storeu_pd(results.as_mut_ptr(), _mm256_add_pd(low, high)) };
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<f64> {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / f64::from(1 << 23) - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    /// A product by either side, its matrix with dense rows or columns: the results, and whether they were computed here.
    fn multiplied<T: Lanes>(
        [results, terms]: [usize; 2],
        (matrix, vector): (&[T], &[T]),
        rows: bool,
        on_the_right: bool,
    ) -> Option<Vec<T>> {
        let mut out = vec![T::ONE; results + 9];
        let (result, term) = if rows { (terms as isize, 1) } else { (1, results as isize) };
        let of = Matrices {
            m: results,
            n: 1,
            k: terms,
            left: matrix.as_ptr().cast(),
            left_row: result,
            left_col: term,
            right: vector.as_ptr().cast(),
            right_row: 1,
            right_col: 1,
            out: out.as_mut_ptr().cast(),
            out_row: 1,
            packed: None,
        };
        let turned = Matrices {
            m: 1,
            n: results,
            left: of.right,
            left_row: terms as isize,
            left_col: 1,
            right: of.left,
            right_row: term,
            right_col: result,
            ..of
        };
        multiply::<T>(if on_the_right { &of } else { &turned }).then_some(out)
    }

    fn check<T: Lanes + PartialEq + std::fmt::Debug>(
        of: fn(f64) -> T,
        back: fn(T) -> f64,
        sizes: [usize; 2],
        least: f64,
    ) {
        let [results, terms] = sizes;
        let (matrix, vector) = (numbers(results * terms), numbers(terms + 5).split_off(5));
        let [of_matrix, of_vector] =
            [&matrix, &vector].map(|all| all.iter().map(|&x| of(x)).collect::<Vec<T>>());
        for (rows, on_the_right) in [(true, true), (true, false), (false, true), (false, false)] {
            let found = multiplied(sizes, (&of_matrix, &of_vector), rows, on_the_right);
            let Some(found) = found else {
                assert_eq!(isa(), Isa::Baseline);
                continue;
            };
            for result in 0..results {
                let at = |term: usize| if rows { result * terms + term } else { term * results + result };
                let exact: f64 = (0..terms).map(|t| back(of_matrix[at(t)]) * back(of_vector[t])).sum();
                let off = (back(found[result]) - exact).abs();
                assert!(off <= least * terms as f64, "{sizes:?} {rows} {on_the_right}: {off}");
                if rows {
                    let line = &of_matrix[result * terms..(result + 1) * terms];
                    let alone = multiplied([1, terms], (line, &of_vector), true, on_the_right);
                    assert_eq!(alone.map(|alone| alone[0] == found[result]), Some(true), "{sizes:?}");
                }
            }
            assert!(found[results..].iter().all(|&beyond| beyond == T::ONE), "{sizes:?}");
        }
    }

    #[test]
    fn products_of_all_sizes() {
        for results in (1..40).chain([63, 64, 65, 100, 129]) {
            for terms in (1..20).chain([31, 32, 33, 500]) {
                check::<f32>(|x| x as f32, f64::from, [results, terms], 2e-7);
                check::<f64>(|x| x, |x| x, [results, terms], 1e-15);
            }
        }
    }
}
