//! Products of few rows, columns or terms against sums in double precision, whatever the strides.

use crate::common::fill;
use ferrax_cpu::compile;
use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{ArrayType, Builder, DType, Tensor};

fn values(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => {
            tensor.bytes().as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect()
        }
        _ => tensor.bytes().as_chunks().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
    }
}

/// A batch of products; the contracted axis of each matrix is this one of its two.
fn check(dtype: DType, batch: usize, [m, n, k]: [usize; 3], contracted: [usize; 2]) {
    let sizes = |free: usize, axis: usize| if axis == 0 { [batch, k, free] } else { [batch, free, k] };
    let (left, right) = (sizes(m, contracted[0]), sizes(n, contracted[1]));
    let axes = |axis: usize| [axis].into_iter().collect();
    let op = DotGeneral {
        lhs_contracting: axes(contracted[0] + 1),
        rhs_contracting: axes(contracted[1] + 1),
        lhs_batch: axes(0),
        rhs_batch: axes(0),
        precision: None,
        preferred_element_type: None,
    };
    let mut b = Builder::new("product");
    let (x, y) = (b.input(ArrayType::of_sizes(&left, dtype)), b.input(ArrayType::of_sizes(&right, dtype)));
    let product = b.emit1(op, &[x, y]).unwrap();
    let inputs = [fill(dtype, &left, 4), fill(dtype, &right, 5)];
    let got = values(&compile(&b.finish([product])).unwrap().run(&inputs).unwrap()[0]);
    let (x, y) = (values(&inputs[0]), values(&inputs[1]));
    let at = |values: &[f64], sizes: [usize; 3], axis: usize, number: usize, free: usize, term: usize| {
        let (row, col) = if axis == 0 { (term, free) } else { (free, term) };
        values[(number * sizes[1] + row) * sizes[2] + col]
    };
    let unit = if dtype == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    for (place, &got) in got.iter().enumerate() {
        let (number, row, col) = (place / (m * n), place / n % m, place % n);
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for term in 0..k {
            let product = at(&x, left, contracted[0], number, row, term)
                * at(&y, right, contracted[1], number, col, term);
            sum += product;
            magnitude += product.abs();
        }
        let error = (got - sum).abs();
        // What sums of thousands of terms are off by grows with the root of their number.
        let most = (k.min(600) as f64 + 2.0).min(64.0) * unit * magnitude;
        assert!(error <= most, "{dtype} {batch} of {m}x{n}x{k} {contracted:?}: {got}, not {sum}");
    }
}

#[test]
fn thin_products_of_all_strides() {
    for dtype in [DType::F32, DType::F64] {
        for contracted in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            for m in [1, 2, 5, 6, 7, 10, 12, 13] {
                for n in [1, 3, 8, 10, 16, 17] {
                    check(dtype, 1, [m, n, 40], contracted);
                }
            }
            check(dtype, 2, [10, 10, 9000], contracted);
            check(dtype, 1, [3, 8, 33], contracted);
        }
    }
}

/// Sums are of 512 terms each: the last one has from one to all of them, and so has that of a panel.
#[test]
fn thin_products_of_a_few_terms_more() {
    for dtype in [DType::F32, DType::F64] {
        for k in [511, 512, 513, 514, 516, 520, 1025, 4096 + 512 + 2] {
            for (m, n) in [(2, 2), (5, 3), (7, 5), (12, 8)] {
                check(dtype, 1, [m, n, k], [1, 0]);
            }
        }
    }
}

#[test]
fn a_row_by_a_matrix() {
    for dtype in [DType::F32, DType::F64] {
        let terms = [1, 2, 6, 7, 8, 9, 15, 16, 511, 512, 513, 519].map(|k| (65, k));
        for (n, k) in [(64, 1), (64, 8), (100, 33), (700, 1100), (2000, 40)].into_iter().chain(terms) {
            for contracted in [[0, 0], [1, 0], [1, 1]] {
                check(dtype, 1, [1, n, k], contracted);
                // What is read behind a row or a matrix is another one's.
                check(dtype, 3, [1, n, k], contracted);
            }
        }
    }
}

#[test]
fn many_tiny_products() {
    for dtype in [DType::F32, DType::F64] {
        for sizes in [[8, 8, 8], [1, 8, 1], [2, 9, 3], [3, 31, 5], [4, 4, 4], [5, 5, 5], [1, 100, 5]] {
            for contracted in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                check(dtype, 50, sizes, contracted);
            }
        }
    }
}
