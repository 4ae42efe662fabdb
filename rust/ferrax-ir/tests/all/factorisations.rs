//! Triangular and orthonormal factors: what they are defined by, derivatives, batches, refusals.

use crate::support::*;
use ferrax_ir::ops::{Cholesky, Geqp3, Geqrf, HouseholderProduct, Lu, Ormqr, Qr, TriangularSolve};
use ferrax_ir::{DType, Op, Tensor};

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

fn by_place(rows: usize, columns: usize, at: impl Fn(usize, usize) -> f64) -> Tensor {
    let elements: Vec<f64> = (0..rows * columns).map(|index| at(index / columns, index % columns)).collect();
    f64s(&[rows, columns], &elements)
}

fn transposed(x: &Tensor) -> Tensor {
    let &[m, n] = x.sizes() else { panic!("a matrix") };
    let a = values(x);
    by_place(n, m, |row, column| a[column * n + row])
}

/// A triangle, with ones on the diagonal if `unit`.
fn triangle(x: &Tensor, lower: bool, unit: bool) -> Tensor {
    let &[m, n] = x.sizes() else { panic!("a matrix") };
    let a = values(x);
    by_place(m, n, |row, column| match row.cmp(&column) {
        std::cmp::Ordering::Equal if unit => 1.0,
        std::cmp::Ordering::Equal => a[row * n + column],
        order if (order == std::cmp::Ordering::Greater) == lower => a[row * n + column],
        _ => 0.0,
    })
}

fn identity(size: usize) -> Tensor {
    by_place(size, size, |row, column| f64::from(row == column))
}

fn definite(size: usize, seed: u64) -> Tensor {
    let x = noise(&[size, size], seed);
    let gram = values(&product(&x, &transposed(&x)));
    by_place(size, size, |row, column| gram[row * size + column] + if row == column { 1.0 } else { 0.0 })
}

fn resized(x: &Tensor, rows: usize, columns: usize) -> Tensor {
    let &[m, n] = x.sizes() else { panic!("a matrix") };
    let a = values(x);
    by_place(rows, columns, |row, column| if row < m && column < n { a[row * n + column] } else { 0.0 })
}

const SOLVE: TriangularSolve = TriangularSolve {
    left_side: true,
    lower: true,
    transpose_a: false,
    conjugate_a: false,
    unit_diagonal: false,
};

#[test]
fn cholesky_factors_make_the_matrix() {
    let x = definite(5, 3);
    let l = eval(Cholesky {}, std::slice::from_ref(&x));
    assert_eq!(l, triangle(&l, true, false));
    assert_close(&product(&l, &transposed(&l)), &x, 1e-12, "L L^T");
    // One triangle is read.
    assert_eq!(eval(Cholesky {}, &[triangle(&x, true, false)]), l);
    let none = values(&eval(Cholesky {}, &[f64s(&[2, 2], &[1.0, 2.0, 2.0, 1.0])]));
    assert!(none[0].is_nan() && none[1] == 0.0 && none[2].is_nan() && none[3].is_nan());
}

#[test]
fn elimination_makes_the_rows_in_order() {
    for (m, n) in [(4, 4), (5, 3), (3, 5), (1, 2)] {
        let x = noise(&[m, n], 4);
        let found = all(Lu {}, std::slice::from_ref(&x));
        let (lu, pivots, order) = (&found[0], ints(&found[1]), ints(&found[2]));
        let least = m.min(n);
        let lower = triangle(&resized(lu, m, least), true, true);
        let upper = triangle(&resized(lu, least, n), false, false);
        let a = values(&x);
        let moved = by_place(m, n, |row, column| a[order[row] as usize * n + column]);
        assert_close(&product(&lower, &upper), &moved, 1e-12, "L U");
        assert!(values(&lower).iter().all(|x| x.abs() <= 1.0));
        let mut rows: Vec<i64> = (0..m as i64).collect();
        pivots.iter().enumerate().for_each(|(at, &pivot)| rows.swap(at, pivot as usize));
        assert_eq!(rows, order);
    }
}

#[test]
fn triangular_systems() {
    let a = definite(4, 2);
    for unit_diagonal in [false, true] {
        for lower in [false, true] {
            for transpose_a in [false, true] {
                let op = TriangularSolve { lower, transpose_a, unit_diagonal, ..SOLVE };
                let read = triangle(&a, lower, unit_diagonal);
                let read = if transpose_a { transposed(&read) } else { read };
                let b = noise(&[4, 3], 1);
                let x = eval(op.clone(), &[a.clone(), b.clone()]);
                assert_close(&product(&read, &x), &b, 1e-10, "op(a) x");
                let right = TriangularSolve { left_side: false, ..op };
                let x = eval(right, &[a.clone(), transposed(&b)]);
                assert_close(&product(&x, &read), &transposed(&b), 1e-10, "x op(a)");
            }
        }
    }
}

#[test]
fn reflections_make_orthonormal_factors() {
    for (m, n) in [(4, 4), (5, 3), (3, 5)] {
        let x = noise(&[m, n], 9);
        for (pivoting, full_matrices) in [(false, false), (false, true), (true, false), (true, true)] {
            let found = all(Qr { pivoting, full_matrices }, std::slice::from_ref(&x));
            let (q, r) = (&found[0], &found[1]);
            let a = values(&x);
            let order: Vec<i64> = if pivoting { ints(&found[2]) } else { (0..n as i64).collect() };
            let moved = by_place(m, n, |row, column| a[row * n + order[column] as usize]);
            assert_close(&product(q, r), &moved, 1e-12, "Q R");
            assert_close(&product(&transposed(q), q), &identity(q.sizes()[1]), 1e-12, "Q^T Q");
            assert_eq!(*r, triangle(r, false, false));
            let diagonal: Vec<f64> = (0..m.min(n)).map(|at| values(r)[at * n + at].abs()).collect();
            assert!(!pivoting || diagonal.windows(2).all(|pair| pair[0] >= pair[1]));
        }
        let packed = all(Geqrf {}, std::slice::from_ref(&x));
        let free = i32s(&[n], &vec![0; n]);
        let first = i32s(&[n], &(0..n as i32).collect::<Vec<_>>());
        let ordered = all(Geqp3 {}, &[x.clone(), free]);
        let kept = all(Geqp3 {}, &[x.clone(), first]);
        assert_eq!(ordered[0].sizes(), packed[0].sizes());
        assert_eq!(ints(&kept[1])[0], 2, "columns that come first in any case are in front");
        let full = &all(Qr { pivoting: false, full_matrices: true }, std::slice::from_ref(&x))[0];
        for (left, transpose) in [(true, false), (true, true), (false, false), (false, true)] {
            let op = Ormqr { left, transpose };
            let got = eval(op, &[packed[0].clone(), packed[1].clone(), identity(m)]);
            let want = if transpose { transposed(full) } else { full.clone() };
            assert_close(&got, &want, 1e-12, "Q times the identity");
        }
        if m >= n {
            let thin = eval(HouseholderProduct {}, &[packed[0].clone(), packed[1].clone()]);
            assert_close(&thin, &resized(full, m, n), 1e-12, "the first columns");
        }
    }
}

#[test]
fn derivatives_are_slopes() {
    // The rule is that of Hermitian tangents.
    check_jvp_along(&Cholesky {}.into(), &[definite(3, 1)], 0, &definite(3, 5));
    check_jvp(&Lu {}.into(), &[noise(&[3, 3], 1)], &[0]);
    check_jvp(&Lu {}.into(), &[noise(&[4, 2], 1)], &[0]);
    check_jvp(&Lu {}.into(), &[noise(&[2, 4], 1)], &[0]);
    let a = definite(3, 4);
    for (left_side, transpose_a, unit_diagonal) in
        [(true, false, false), (false, true, false), (true, true, true), (false, false, true)]
    {
        let op = TriangularSolve { left_side, transpose_a, unit_diagonal, ..SOLVE };
        let b = if left_side { noise(&[3, 2], 5) } else { noise(&[2, 3], 5) };
        check_jvp(&op.clone().into(), &[a.clone(), b.clone()], &[0, 1]);
        check_transpose(&op.into(), &[a.clone(), b], &[1]);
    }
    for (sizes, full_matrices) in [([3, 3], false), ([4, 2], false), ([2, 4], true), ([5, 3], true)] {
        for pivoting in [false, true] {
            check_jvp(&Qr { pivoting, full_matrices }.into(), &[noise(&sizes, 6)], &[0]);
        }
    }
}

#[test]
fn batches_are_matrices_one_by_one() {
    let lanes = |sizes: &[usize]| [1, 2, 3].map(|seed| vec![noise(sizes, seed)]);
    check_batch(&Lu {}.into(), &lanes(&[3, 2]));
    check_batch(&Qr { pivoting: false, full_matrices: false }.into(), &lanes(&[3, 2]));
    check_batch(&Cholesky {}.into(), &[1, 2, 3].map(|seed| vec![definite(3, seed)]));
    let systems = |b: &[usize]| [1, 2, 3].map(|seed| vec![definite(3, seed), noise(b, seed)]);
    check_batch(&SOLVE.into(), &systems(&[3, 2]));
    check_batch(&TriangularSolve { left_side: false, ..SOLVE }.into(), &systems(&[2, 3]));
    check_batch(
        &HouseholderProduct {}.into(),
        &[1, 2, 3].map(|seed| vec![noise(&[4, 2], seed), noise(&[2], seed)]),
    );
    for op in [
        Op::from(SOLVE),
        Op::from(Qr { pivoting: true, full_matrices: false }),
        Op::from(Ormqr { left: true, transpose: false }),
    ] {
        check_params(&op);
    }
}

#[test]
fn refusals() {
    let wide = array(DType::F32, &[2, 3]);
    let refused = refusal(Cholesky {}, std::slice::from_ref(&wide));
    assert!(refused.starts_with("Value") && refused.contains("square"), "{refused}");
    let refused = refusal(SOLVE, &[array(DType::F32, &[3, 3]), wide.clone()]);
    assert!(refused.starts_with("Value") && refused.contains("do not fit"), "{refused}");
    let refused = refusal(SOLVE, &[array(DType::F32, &[5, 3, 3]), array(DType::F32, &[4, 3, 3])]);
    assert!(refused.starts_with("Type") && refused.contains("batch"), "{refused}");
    let refused = refusal(Lu {}, &[array(DType::I32, &[3, 3])]);
    assert!(refused.starts_with("Type") && refused.contains("int32"), "{refused}");
    let refused = refusal(Lu {}, &[array(DType::BF16, &[3, 3])]);
    assert!(refused.starts_with("Unsupported") && refused.contains("bfloat16"), "{refused}");
    let refused = refusal(HouseholderProduct {}, &[wide, array(DType::F32, &[2])]);
    assert!(refused.starts_with("Value") && refused.contains("rows"), "{refused}");
    let none = try_jvp(&Geqrf {}.into(), &[noise(&[2, 2], 1)], &[Some(noise(&[2, 2], 2))]);
    assert!(none.unwrap_err().to_string().contains("Differentiation rule for 'geqrf'"));
}
