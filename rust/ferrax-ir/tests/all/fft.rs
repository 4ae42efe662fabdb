//! Fourier transforms: values that the definition gives by hand, inverses, transposes, batches, refusals.

use crate::support::*;
use ferrax_ir::ops::{Fft, FftType};
use ferrax_ir::{DType, Tensor};

fn fft(fft_type: FftType, lengths: &[usize]) -> Fft {
    Fft { fft_lengths: shape(lengths), fft_type }
}

fn c128s(sizes: &[usize], values: &[[f64; 2]]) -> Tensor {
    Tensor::from_elements(sizes, values).unwrap()
}

fn complex_noise(sizes: &[usize], seed: u64) -> Tensor {
    let mut doubled = sizes.to_vec();
    doubled.push(2);
    let parts = values(&noise(&doubled, seed));
    c128s(sizes, &parts.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect::<Vec<_>>())
}

/// Both parts of the elements.
fn parts(x: &Tensor) -> Vec<f64> {
    x.elements::<f64>().unwrap().to_vec()
}

fn close(got: &Tensor, want: &Tensor) {
    assert_eq!(got.array_type(), want.array_type());
    for (a, b) in parts(got).iter().zip(parts(want)) {
        assert!((a - b).abs() < 1e-12, "got {:?}, expected {:?}", parts(got), parts(want));
    }
}

#[test]
fn transforms_are_sums_of_turned_numbers() {
    let x = c128s(&[4], &[[1.0, 0.0], [2.0, 1.0], [0.0, -1.0], [3.0, 0.0]]);
    let forward = eval(fft(FftType::Fft, &[4]), std::slice::from_ref(&x));
    close(&forward, &c128s(&[4], &[[6.0, 0.0], [2.0, 2.0], [-4.0, -2.0], [0.0, 0.0]]));
    close(&eval(fft(FftType::Ifft, &[4]), &[forward]), &x);
    let real = f64s(&[5], &[1.0, 2.0, 0.0, 3.0, -1.0]);
    let half = eval(fft(FftType::Rfft, &[5]), std::slice::from_ref(&real));
    assert_eq!(half.sizes(), [3]);
    close(&eval(fft(FftType::Irfft, &[5]), &[half]), &real);
    // Imaginary parts where a number is its own mirror image are not read.
    let half = c128s(&[3], &[[1.0, 5.0], [2.0, 2.0], [3.0, f64::NAN]]);
    close(&eval(fft(FftType::Irfft, &[4]), &[half]), &f64s(&[4], &[2.0, -1.5, 0.0, 0.5]));
}

#[test]
fn transforms_over_axes_are_one_after_the_other() {
    let x = complex_noise(&[2, 3, 4, 5], 1);
    let all = eval(fft(FftType::Fft, &[3, 4, 5]), std::slice::from_ref(&x));
    close(&eval(fft(FftType::Ifft, &[3, 4, 5]), &[all]), &x);
    for last in [5, 6] {
        let x = noise(&[2, 3, last], 2);
        let half = eval(fft(FftType::Rfft, &[3, last]), std::slice::from_ref(&x));
        assert_eq!(half.sizes(), [2, 3, last / 2 + 1]);
        close(&eval(fft(FftType::Irfft, &[3, last]), &[half]), &x);
    }
}

/// `Re Σ y·T x = Re Σ x·Tᵗ y` for random complex numbers: transposes are of the bilinear product.
#[test]
fn transposes_are_transposes() {
    let product = |x: &Tensor, y: &Tensor| -> f64 {
        let (a, b) = (parts(x), parts(y));
        match (x.dtype().is_complex(), y.dtype().is_complex()) {
            (true, true) => {
                a.chunks_exact(2).zip(b.chunks_exact(2)).map(|(x, y)| x[0] * y[0] - x[1] * y[1]).sum()
            }
            _ => a.iter().zip(&b).map(|(x, y)| x * y).sum(),
        }
    };
    for last in [4, 5] {
        for kind in FftType::ALL {
            let halved = [2, 3, last / 2 + 1];
            let whole = [2, 3, last];
            let (x, y) = match kind {
                FftType::Rfft => (noise(&whole, 3), complex_noise(&halved, 4)),
                FftType::Irfft => (complex_noise(&halved, 3), noise(&whole, 4)),
                _ => (complex_noise(&whole, 3), complex_noise(&whole, 4)),
            };
            let op = fft(kind, &[3, last]).into();
            let back = transpose(&op, std::slice::from_ref(&x), &[0], &y).remove(0);
            assert_eq!(back.array_type(), x.array_type());
            let forth = product(&eval(op, std::slice::from_ref(&x)), &y);
            assert!(
                (forth - product(&x, &back)).abs() < 1e-10,
                "{kind:?}: {forth} for {}",
                product(&x, &back)
            );
        }
    }
}

#[test]
fn batches_are_lanes() {
    let lanes = [1, 2, 3].map(|seed| vec![noise(&[2, 5], seed)]);
    check_batch(&fft(FftType::Rfft, &[2, 5]).into(), &lanes);
    check_batch(&fft(FftType::Rfft, &[5]).into(), &lanes);
    check_params(&fft(FftType::Irfft, &[2, 5]).into());
}

#[test]
fn refusals_say_why() {
    let (c, f) = (DType::C64, DType::F32);
    let text = |op, ty| refusal(op, &[ty]);
    assert!(
        text(fft(FftType::Fft, &[4]), array(f, &[4]))
            .contains("must be complex64 or complex128, got float32")
    );
    assert!(
        text(fft(FftType::Rfft, &[4]), array(c, &[4])).contains("must be float32 or float64, got complex64")
    );
    assert!(text(fft(FftType::Fft, &[5]), array(c, &[4])).contains("do not have the sizes fft_lengths (5,)"));
    assert!(text(fft(FftType::Fft, &[2, 4]), array(c, &[4])).contains("are for more axes than the operand"));
    assert!(text(fft(FftType::Irfft, &[8]), array(c, &[4])).contains("must have a last dimension of 5"));
    assert!(text(fft(FftType::Irfft, &[2, 8]), array(c, &[3, 5])).contains("all but the last"));
    assert!(text(fft(FftType::Fft, &[1; 4]), array(c, &[1; 4])).contains("1, 2 or 3 axes"));
    assert!(text(fft(FftType::Rfft, &[0]), array(f, &[0])).contains("size 0"));
    let empty = eval(fft(FftType::Irfft, &[0]), &[Tensor::zeros(c, [1].as_slice()).unwrap()]);
    assert_eq!(empty.sizes(), [0]);
}
