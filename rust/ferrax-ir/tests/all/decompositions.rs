//! Eigenvalues and singular values: what they are defined by, derivatives, batches, refusals.

use crate::support::*;
use ferrax_ir::ops::{Eigh, Svd};
use ferrax_ir::{DType, Op, Tensor};

fn eigh() -> Eigh {
    Eigh { lower: true, sort_eigenvalues: true }
}

fn svd(compute_uv: bool, full_matrices: bool) -> Svd {
    Svd { compute_uv, full_matrices }
}

fn all(op: impl Into<Op>, inputs: &[Tensor]) -> Vec<Tensor> {
    let op = op.into();
    let outputs = op.infer(&types(inputs)).unwrap();
    op.eval(inputs, &outputs).unwrap()
}

/// `x @ y` for `[m, k]` and `[k, n]` of reals.
fn product(x: &Tensor, y: &Tensor) -> Tensor {
    let (&[m, k], &[_, n]) = (x.sizes(), y.sizes()) else { panic!("matrices") };
    let (a, b) = (values(x), values(y));
    let element = |index: usize| (0..k).map(|at| a[index / n * k + at] * b[at * n + index % n]).sum();
    f64s(&[m, n], &(0..m * n).map(element).collect::<Vec<f64>>())
}

fn transposed(x: &Tensor) -> Tensor {
    let &[m, n] = x.sizes() else { panic!("a matrix") };
    let a = values(x);
    f64s(&[n, m], &(0..m * n).map(|index| a[index % m * n + index / m]).collect::<Vec<f64>>())
}

fn diagonal(rows: usize, columns: usize, entries: &[f64]) -> Tensor {
    let entry = |index: usize| {
        let (row, column) = (index / columns, index % columns);
        if row == column { entries.get(row).copied().unwrap_or(0.0) } else { 0.0 }
    };
    f64s(&[rows, columns], &(0..rows * columns).map(entry).collect::<Vec<f64>>())
}

#[test]
fn eigenvectors_make_the_matrix_diagonal() {
    let x = noise(&[5, 5], 3);
    let symmetric = product(&x, &transposed(&x));
    let found = all(eigh(), std::slice::from_ref(&symmetric));
    let (vectors, found) = (&found[0], values(&found[1]));
    assert!(found.windows(2).all(|pair| pair[0] <= pair[1]));
    let back = product(&product(vectors, &diagonal(5, 5, &found)), &transposed(vectors));
    assert_close(&back, &symmetric, 1e-12, "V W V^T");
    let one = product(&transposed(vectors), vectors);
    assert_close(&one, &diagonal(5, 5, &[1.0; 5]), 1e-12, "V^T V");
}

#[test]
fn elements_may_be_large_and_small() {
    for scale in [1e-170, 1e-30, 1e160] {
        let x = f64s(&[2, 2], &[2.0 * scale, scale, scale, 2.0 * scale]);
        let close = |found: &Tensor, wanted: [f64; 2]| {
            for (got, want) in values(found).iter().zip(wanted) {
                assert!((got / scale - want).abs() < 1e-14, "{got} at {scale}");
            }
        };
        close(&all(eigh(), std::slice::from_ref(&x))[1], [1.0, 3.0]);
        close(&all(svd(false, false), std::slice::from_ref(&x))[0], [3.0, 1.0]);
    }
}

#[test]
fn one_triangle_is_read() {
    let x = f64s(&[2, 2], &[2.0, 99.0, 1.0, 3.0]);
    let whole = f64s(&[2, 2], &[2.0, 1.0, 1.0, 3.0]);
    assert_eq!(all(eigh(), std::slice::from_ref(&x)), all(eigh(), &[whole]));
    let upper = Eigh { lower: false, ..eigh() };
    assert_ne!(all(upper, std::slice::from_ref(&x)), all(eigh(), &[x]));
}

#[test]
fn singular_vectors_make_the_matrix() {
    for (m, n) in [(4, 3), (3, 4), (3, 3), (1, 4), (5, 1)] {
        let x = noise(&[m, n], 7);
        for full in [false, true] {
            let found = all(svd(true, full), std::slice::from_ref(&x));
            let entries = values(&found[0]);
            assert!(entries.windows(2).all(|pair| pair[0] >= pair[1]) && entries.iter().all(|&s| s >= 0.0));
            let (left, right) = if full { (m, n) } else { (m.min(n), m.min(n)) };
            assert_eq!((found[1].sizes(), found[2].sizes()), (&[m, left][..], &[right, n][..]));
            let back = product(&product(&found[1], &diagonal(left, right, &entries)), &found[2]);
            assert_close(&back, &x, 1e-12, "U S V^T");
            let one = product(&transposed(&found[1]), &found[1]);
            assert_close(&one, &diagonal(left, left, &vec![1.0; left]), 1e-12, "U^T U");
        }
        assert_close(
            &all(svd(false, true), std::slice::from_ref(&x))[0],
            &all(svd(true, false), &[x])[0],
            1e-12,
            "values",
        );
    }
}

#[test]
fn vectors_of_zeros_are_orthonormal() {
    let found = all(svd(true, true), &[diagonal(3, 2, &[])]);
    assert_eq!(values(&found[0]), [0.0, 0.0]);
    for at in [1, 2] {
        let size = found[at].sizes()[0];
        let one = product(&transposed(&found[at]), &found[at]);
        assert_close(&one, &diagonal(size, size, &vec![1.0; size]), 1e-12, "orthonormal");
    }
}

/// Columns that depend on others shrink with each sweep, until their products are subnormal.
#[test]
fn dependent_columns_are_numbers() {
    let x = [0.75, 0.0, -1.75, 0.0, -3.0, 0.0, 2.0, 0.0, -2.25, 0.0, -3.0, 0.0];
    for (m, n) in [(3, 4), (4, 3)] {
        let x = if m == 3 { f64s(&[3, 4], &x) } else { transposed(&f64s(&[3, 4], &x)) };
        let found = all(svd(true, true), std::slice::from_ref(&x));
        let entries = values(&found[0]);
        assert!(entries[1] > 1.0 && entries[2].abs() < 1e-14, "{entries:?}");
        let back = product(&product(&found[1], &diagonal(m, n, &entries)), &found[2]);
        assert_close(&back, &x, 1e-12, "U S V^T");
    }
}

#[test]
fn what_is_not_finite_gives_nan() {
    let x = f64s(&[2, 2], &[1.0, f64::NAN, f64::NAN, 1.0]);
    for tensor in all(eigh(), std::slice::from_ref(&x)).iter().chain(&all(svd(true, true), &[x])) {
        assert!(values(tensor).iter().all(|value| value.is_nan()));
    }
}

#[test]
fn derivatives_are_slopes() {
    check_jvp(&svd(false, true).into(), &[noise(&[4, 3], 1)], &[0]);
    check_jvp(&svd(true, false).into(), &[noise(&[3, 4], 2)], &[0]);
    // The slope of one triangle alone is that of a matrix whose triangles change together.
    let x = noise(&[3, 3], 5);
    let symmetric = product(&x, &transposed(&x));
    let direction = product(&noise(&[3, 3], 6), &diagonal(3, 3, &[1.0, 1.0, 1.0]));
    let direction = {
        let (a, b) = (values(&direction), values(&transposed(&direction)));
        f64s(&[3, 3], &a.iter().zip(&b).map(|(a, b)| a + b).collect::<Vec<f64>>())
    };
    let tangent = jvp(&eigh().into(), std::slice::from_ref(&symmetric), &[Some(direction.clone())]).unwrap();
    let at = |step: f64| {
        let moved: Vec<f64> =
            values(&symmetric).iter().zip(values(&direction)).map(|(x, t)| x + step * t).collect();
        values(&all(eigh(), &[f64s(&[3, 3], &moved)])[0])
    };
    let slope: Vec<f64> = at(1e-6).iter().zip(at(-1e-6)).map(|(a, b)| (a - b) / 2e-6).collect();
    assert_close(&tangent, &f64s(&[3, 3], &slope), 1e-6, "eigenvectors");
}

#[test]
fn batches_are_matrices_one_by_one() {
    let lanes = |sizes: &[usize]| [1, 2, 3].map(|seed| vec![noise(sizes, seed)]);
    check_batch(&svd(false, true).into(), &lanes(&[3, 2]));
    check_batch(&eigh().into(), &lanes(&[3, 3]));
    check_params(&eigh().into());
    check_params(&svd(true, false).into());
}

#[test]
fn refusals() {
    let refused = refusal(eigh(), &[array(DType::F32, &[2, 3])]);
    assert!(refused.starts_with("Type") && refused.contains("square"), "{refused}");
    let refused = refusal(svd(true, true), &[array(DType::F32, &[3])]);
    assert!(refused.starts_with("Type") && refused.contains("takes matrices"), "{refused}");
    let refused = refusal(svd(true, true), &[array(DType::F16, &[3, 3])]);
    assert!(refused.starts_with("Unsupported") && refused.contains("float16"), "{refused}");
    let full = try_jvp(&svd(true, true).into(), &[noise(&[2, 3], 1)], &[Some(noise(&[2, 3], 2))]);
    assert!(full.unwrap_err().to_string().contains("full_matrices=True has no derivative"));
}
