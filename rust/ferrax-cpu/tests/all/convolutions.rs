//! Convolutions: the kernels against the reference interpreter.

use crate::common::{check_with, fill};
use ferrax_ir::ops::{ConvDims, ConvGeneralDilated};
use ferrax_ir::{Axes, Builder, DType};

/// A convolution along axes in the order batch, features, places; of as many spatial axes as paddings.
fn plain(padding: &[(i64, i64)]) -> ConvGeneralDilated {
    let ones: Axes = padding.iter().map(|_| 1).collect();
    let order: Axes = (0..padding.len() + 2).collect();
    ConvGeneralDilated {
        window_strides: ones.clone(),
        padding: padding.to_vec(),
        lhs_dilation: ones.clone(),
        rhs_dilation: ones,
        dims: ConvDims { lhs: order.clone(), rhs: order.clone(), out: order },
        feature_group_count: 1,
        batch_group_count: 1,
        precision: None,
        preferred_element_type: None,
    }
}

/// Two spatial axes, features last.
fn features_last(padding: [(i64, i64); 2]) -> ConvGeneralDilated {
    let spec = |axes: [usize; 4]| axes.into_iter().collect::<Axes>();
    ConvGeneralDilated {
        dims: ConvDims { lhs: spec([0, 3, 1, 2]), rhs: spec([3, 2, 0, 1]), out: spec([0, 3, 1, 2]) },
        ..plain(&padding)
    }
}

fn axes(values: &[usize]) -> Axes {
    values.iter().copied().collect()
}

fn check(op: &ConvGeneralDilated, dtype: DType, lhs: &[usize], rhs: &[usize], ulps: u64) {
    let inputs = [fill(dtype, lhs, 1), fill(dtype, rhs, 2)];
    let mut b = Builder::new(format!("{dtype} {lhs:?} {rhs:?} {op:?}"));
    let atoms: Vec<_> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let output = b.emit1(op.clone(), &atoms).unwrap();
    check_with(&b.finish([output]), &inputs, ulps);
}

#[test]
fn all_dtypes() {
    use DType::*;
    let dtypes = [Bool, I4, I8, I16, I32, I64, U8, U16, U32, U64, BF16, F16, F32, F64, C64, C128, F8E4M3FN];
    for dtype in dtypes {
        let ulps = if dtype.is_inexact() { 20_000 } else { 0 };
        check(&features_last([(1, 1), (0, 2)]), dtype, &[2, 5, 6, 3], &[3, 2, 3, 4], ulps);
        // One feature a group goes another way.
        let op = ConvGeneralDilated { feature_group_count: 3, ..plain(&[(1, 1)]) };
        check(&op, dtype, &[2, 3, 9], &[3, 1, 3], ulps);
    }
}

#[test]
fn results_of_another_dtype() {
    let op = |dtype| ConvGeneralDilated { preferred_element_type: Some(dtype), ..plain(&[(1, 1)]) };
    check(&op(DType::F32), DType::BF16, &[2, 3, 9], &[4, 3, 3], 20_000);
    check(&op(DType::F32), DType::I8, &[2, 3, 9], &[4, 3, 3], 20_000);
    check(&op(DType::I32), DType::I8, &[2, 3, 9], &[4, 3, 3], 0);
}

/// Strides, dilations and paddings along one axis, in every order of axes, with sums on either side of the
/// sizes where tiles, blocks of terms and vectors end.
#[test]
fn along_an_axis() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]];
    let mut number = 0;
    for stride in [1, 2, 3] {
        for (lhs_dilation, rhs_dilation) in [(1, 1), (1, 2), (2, 1), (3, 2), (2, 4), (6, 5)] {
            for padding in [(0, 0), (3, 2), (-2, 1), (7, -3)] {
                number += 1;
                let order = |shift: usize| axes(&orders[(number + shift) % 4]);
                let op = ConvGeneralDilated {
                    window_strides: axes(&[stride]),
                    lhs_dilation: axes(&[lhs_dilation]),
                    rhs_dilation: axes(&[rhs_dilation]),
                    dims: ConvDims { lhs: order(0), rhs: order(1), out: order(2) },
                    ..plain(&[padding])
                };
                let place = |spec: &Axes, sizes: [usize; 3]| {
                    let mut placed = [0; 3];
                    spec.iter().zip(sizes).for_each(|(&axis, size)| placed[axis] = size);
                    placed
                };
                for (groups, features) in [(1, 5), (1, 1), (3, 2), (3, 1)] {
                    let op = ConvGeneralDilated { feature_group_count: groups, ..op.clone() };
                    let lhs = place(&op.dims.lhs, [2, 2 * groups, 40]);
                    let rhs = place(&op.dims.rhs, [features * groups, 2, 4]);
                    check(&op, DType::F64, &lhs, &rhs, 4000);
                }
                let op = ConvGeneralDilated { batch_group_count: 2, ..op };
                let (lhs, rhs) = (place(&op.dims.lhs, [4, 3, 40]), place(&op.dims.rhs, [6, 3, 4]));
                check(&op, DType::F64, &lhs, &rhs, 4000);
            }
        }
    }
}

/// Sizes beyond those of tiles, panels and vectors, on many threads.
#[test]
fn large() {
    let ulps = 200_000;
    check(&features_last([(1, 1), (1, 1)]), DType::F32, &[1, 20, 33, 24], &[3, 3, 24, 33], ulps);
    check(&plain(&[(1, 1), (1, 1)]), DType::F32, &[1, 24, 20, 33], &[33, 24, 3, 3], ulps);
    check(&plain(&[(3, 3)]), DType::F32, &[1, 20, 300], &[250, 20, 3], ulps);
    let strided = ConvGeneralDilated { window_strides: axes(&[2, 2]), ..features_last([(1, 1), (0, 1)]) };
    check(&strided, DType::F32, &[1, 21, 33, 8], &[3, 3, 8, 17], ulps);
    for op in [features_last([(1, 1), (1, 1)]), plain(&[(1, 1), (1, 1)])] {
        // Depthwise; then the derivative for such a window: long sums, in groups of the batch.
        let last = op.dims.lhs[1] == 3;
        let sizes = |n, c, h, w| if last { [n, h, w, c] } else { [n, c, h, w] };
        let depthwise = ConvGeneralDilated { feature_group_count: 70, ..op.clone() };
        let window = if last { [3, 3, 1, 70] } else { [70, 1, 3, 3] };
        check(&depthwise, DType::F32, &sizes(2, 70, 20, 31), &window, ulps);
        let exchanged = |spec: &Axes| axes(&[spec[1], spec[0], spec[2], spec[3]]);
        let dims = ConvDims {
            lhs: exchanged(&op.dims.lhs),
            rhs: exchanged(&op.dims.out),
            out: exchanged(&op.dims.rhs),
        };
        let gradient = ConvGeneralDilated { dims, ..op };
        let grouped = ConvGeneralDilated { batch_group_count: 20, ..gradient.clone() };
        check(&grouped, DType::F32, &sizes(3, 20, 40, 41), &sizes(3, 20, 40, 41), ulps);
        check(&gradient, DType::F32, &sizes(3, 5, 40, 41), &sizes(3, 7, 40, 41), ulps);
    }
    // A long window over one feature.
    check(&plain(&[(599, 599)]), DType::F32, &[1, 1, 2500], &[1, 1, 600], ulps);
    // Sums of one, two, three and five panels, the last of which is short.
    for length in [400, 500, 1000, 1800] {
        for features in [1, 5] {
            check(&plain(&[(1, 1)]), DType::F32, &[1, 7, length], &[features, 7, length], ulps);
        }
    }
}

/// Places of the result that meet no element, along some axes and not along others.
#[test]
fn gaps() {
    for dilations in [[3, 1], [1, 3], [3, 4], [1, 1]] {
        for stride in [1, 2] {
            let op = ConvGeneralDilated {
                lhs_dilation: axes(&dilations),
                window_strides: axes(&[stride, stride]),
                ..plain(&[(1, 2), (0, 1)])
            };
            for dtype in [DType::F32, DType::I32] {
                let ulps = if dtype == DType::F32 { 4000 } else { 0 };
                check(&op, dtype, &[2, 3, 6, 5], &[4, 3, 2, 2], ulps);
                check(&op, dtype, &[2, 1, 6, 5], &[1, 1, 1, 1], ulps);
            }
        }
    }
}

#[test]
fn nothing() {
    for (lhs, rhs) in [
        ([0, 3, 9], [4, 3, 3]),
        ([2, 0, 9], [4, 0, 3]),
        ([2, 3, 9], [0, 3, 3]),
        ([2, 3, 0], [4, 3, 1]),
        ([2, 3, 2], [4, 3, 5]),
    ] {
        check(&plain(&[(1, 1)]), DType::F32, &lhs, &rhs, 0);
    }
    check(&plain(&[]), DType::F32, &[5, 7], &[3, 7], 100);
}
