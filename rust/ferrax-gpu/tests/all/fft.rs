//! Fourier transforms on a GPU: what the interpreter gives.

use std::sync::Arc;

use crate::common::fill;
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::ops::{Fft, FftType};
use ferrax_ir::{Builder, DType, Dim, Tensor, interpret};

/// The real parts of numbers, and what is between.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype().real() {
        DType::F64 => {
            tensor.bytes().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
        }
        _ => {
            tensor.bytes().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
        }
    }
}

/// Transforms over the last axes, of numbers of `bits` bits, by shaders unless a factor is too large.
fn check(
    device: &Arc<Attached<Gpu>>,
    kind: FftType,
    sizes: &[usize],
    axes: usize,
    wide: bool,
    by_shaders: bool,
) {
    let mut operand = sizes.to_vec();
    if kind == FftType::Irfft {
        *operand.last_mut().unwrap() = sizes.last().unwrap() / 2 + 1;
    }
    let dtype = match (kind, wide) {
        (FftType::Rfft, false) => DType::F32,
        (FftType::Rfft, true) => DType::F64,
        (_, false) => DType::C64,
        (_, true) => DType::C128,
    };
    let lengths = &sizes[sizes.len() - axes..];
    let op = Fft { fft_lengths: lengths.iter().copied().map(Dim::Const).collect(), fft_type: kind };
    let input = fill(dtype, &operand, 4);
    let mut b = Builder::new(format!("{kind:?} over {axes} axes of {sizes:?}, {dtype}"));
    let x = b.input(input.array_type());
    let output = b.emit1(op, &[x]).unwrap();
    let program = b.finish([output]);
    let before = device.backend().counts();
    let got = run(device, &program, std::slice::from_ref(&input)).unwrap();
    let after = device.backend().counts();
    assert_eq!(after.made + after.found > before.made + before.found, by_shaders, "{}", program.name);
    let want = interpret::run(&program, &[input]).unwrap();
    let (got, want) = (numbers(&got[0]), numbers(&want[0]));
    assert_eq!(got.len(), want.len(), "{}", program.name);
    let norm = want.iter().map(|x| x * x).sum::<f64>().sqrt();
    let error = got.iter().zip(&want).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt();
    let most = if wide { 2e-15 } else { 1e-6 };
    assert!(error <= most * norm, "{}: an error of {error:e} beside {norm:e}", program.name);
}

#[test]
fn lines_of_all_lengths() {
    let device = device();
    for kind in FftType::ALL {
        for length in [
            1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 15, 16, 17, 30, 49, 64, 97, 100, 131, 240, 289, 1000, 1009,
            1024, 2048,
        ] {
            check(&device, kind, &[3, length], 1, false, true);
        }
        for length in [1, 2, 9, 30, 64, 97] {
            check(&device, kind, &[length, 2, length], 1, true, true);
        }
        check(&device, kind, &[2, 1031], 1, false, false);
    }
}

#[test]
fn several_axes() {
    let device = device();
    for kind in FftType::ALL {
        for wide in [false, true] {
            check(&device, kind, &[5, 12, 9], 2, wide, true);
            check(&device, kind, &[2, 5, 6, 8], 3, wide, true);
            check(&device, kind, &[17, 1, 20], 3, wide, true);
        }
    }
}
