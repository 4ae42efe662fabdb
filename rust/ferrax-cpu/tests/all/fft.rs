//! Fourier transforms on the CPU against the definition: all kinds, lengths with small and large prime
//! factors, several axes, more lines and columns than one chunk has.

use crate::common::fill;
use ferrax_cpu::run_op;
use ferrax_ir::ops::{Fft, FftType};
use ferrax_ir::{DType, Dim, Op, Tensor};

/// The parts of the elements as `f64`.
fn parts(x: &Tensor) -> Vec<f64> {
    match x.dtype() {
        DType::F32 | DType::C64 => x.elements::<f32>().unwrap().iter().map(|&x| x.into()).collect(),
        _ => x.elements::<f64>().unwrap().to_vec(),
    }
}

/// Errors are within a few units of the largest result, times the number of passes.
fn check(kind: FftType, lengths: &[usize], batch: &[usize], double: bool) {
    let dims = lengths.iter().map(|&length| Dim::Const(length)).collect();
    let op = Op::from(Fft { fft_lengths: dims, fft_type: kind });
    let mut sizes: Vec<usize> = batch.iter().chain(lengths).copied().collect();
    if kind == FftType::Irfft {
        *sizes.last_mut().unwrap() = lengths.last().unwrap() / 2 + 1;
    }
    let complex = if double { DType::C128 } else { DType::C64 };
    let input = fill(if kind == FftType::Rfft { complex.real() } else { complex }, &sizes, 7);
    let types = op.infer(&[input.array_type().into()]).unwrap();
    let want = op.eval(std::slice::from_ref(&input), &types).unwrap().remove(0);
    let got = run_op(&op, &[input]).unwrap().remove(0);
    assert_eq!((got.dtype(), got.sizes()), (want.dtype(), want.sizes()));
    let (got, want) = (parts(&got), parts(&want));
    let largest = want.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let unit = if double { f64::EPSILON } else { f64::from(f32::EPSILON) };
    for (at, (a, b)) in got.iter().zip(&want).enumerate() {
        assert!((a - b).abs() <= 16.0 * unit * largest, "{op:?} at {at}: {a} for {b}, largest {largest}");
    }
}

#[test]
fn transforms_agree_with_the_definition() {
    for kind in FftType::ALL {
        for double in [false, true] {
            for length in [1, 2, 3, 8, 30, 97, 256, 1009] {
                check(kind, &[length], &[3], double);
            }
            check(kind, &[12, 10], &[], double);
            check(kind, &[1, 7], &[2], double);
            check(kind, &[7, 1], &[2], double);
            check(kind, &[4, 6, 35], &[2], double);
            check(kind, &[5, 3, 8], &[2, 3], double);
        }
        check(kind, &[64], &[1000], false);
        check(kind, &[40, 500], &[2], false);
    }
}

#[test]
fn nothing_is_transformed_to_nothing() {
    for (kind, sizes, lengths) in [
        (FftType::Fft, vec![0, 4], vec![4]),
        (FftType::Ifft, vec![2, 0], vec![0]),
        (FftType::Irfft, vec![1], vec![0]),
    ] {
        let dims = lengths.iter().map(|&length| Dim::Const(length)).collect();
        let input = Tensor::zeros(DType::C64, sizes.as_slice()).unwrap();
        let got = run_op(&Fft { fft_lengths: dims, fft_type: kind }.into(), &[input]).unwrap();
        assert!(got[0].is_empty());
    }
}
