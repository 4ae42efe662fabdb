//! Factorisations of small matrices on a GPU: what the interpreter gives.

use std::sync::Arc;

use crate::common::Random;
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::ops::{Cholesky, Geqrf, HouseholderProduct, Lu, Ormqr, TriangularSolve};
use ferrax_ir::{Builder, DType, Op, Tensor, interpret};

const DTYPES: [DType; 4] = [DType::F32, DType::F64, DType::C64, DType::C128];

/// Numbers between -1 and 1, and on the diagonal of square matrices with so much more.
fn matrix(dtype: DType, sizes: &[usize], more: f64, seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let (rows, columns) = (sizes[sizes.len() - 2], sizes[sizes.len() - 1]);
    let count: usize = sizes.iter().product();
    let parts = dtype.parts();
    let numbers = (0..count * parts).map(|index| {
        let (element, part) = (index / parts, index % parts);
        let diagonal = element / columns % rows == element % columns && part == 0;
        (random.below(2001) as f64 / 1000.0 - 1.0) + if diagonal { more } else { 0.0 }
    });
    let bytes: Vec<u8> = match dtype.real() {
        DType::F64 => numbers.flat_map(f64::to_le_bytes).collect(),
        _ => numbers.flat_map(|number| (number as f32).to_le_bytes()).collect(),
    };
    Tensor::from_bytes(dtype, sizes, &bytes).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let bytes = tensor.bytes();
    match tensor.dtype().real() {
        DType::F64 => bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
        DType::I32 => {
            bytes.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap()).into()).collect()
        }
        _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect(),
    }
}

fn check(device: &Arc<Attached<Gpu>>, op: impl Into<Op>, inputs: &[Tensor]) -> Vec<Tensor> {
    let op = op.into();
    let types: Vec<_> = inputs.iter().map(Tensor::array_type).collect();
    let mut b = Builder::new(format!("{op:?} of {types:?}"));
    let atoms: Vec<_> = types.into_iter().map(|ty| b.input(ty)).collect();
    let outputs = b.emit(op, &atoms).unwrap();
    let program = b.finish(outputs.into_iter().map(Into::into));
    let before = device.backend().counts();
    let got = run(device, &program, inputs).unwrap_or_else(|error| panic!("{}: {error}", program.name));
    let after = device.backend().counts();
    assert!(after.made + after.found > before.made + before.found, "{} has no shader", program.name);
    for (got, want) in got.iter().zip(&interpret::run(&program, inputs).unwrap()) {
        let most = if got.dtype().real() == DType::F64 { 1e-12 } else { 1e-4 };
        let (got, want) = (numbers(got), numbers(want));
        let norm = want.iter().filter(|x| !x.is_nan()).fold(1.0f64, |norm, x| norm.max(x.abs()));
        for (place, (x, y)) in got.iter().zip(&want).enumerate() {
            let close = (x - y).abs() <= most * norm || (x.is_nan() && y.is_nan());
            assert!(close, "{}: number {place} is {x}, not {y}", program.name);
        }
    }
    got
}

#[test]
fn cholesky() {
    let device = device();
    for dtype in DTYPES {
        for size in [1, 2, 3, 7, 16, 33, 65, 100] {
            check(&device, Cholesky {}, &[matrix(dtype, &[3, size, size], size as f64 + 1.0, 1)]);
        }
        // One that is not positive definite is unknown, the other of the batch is not.
        check(&device, Cholesky {}, &[matrix(dtype, &[2, 5, 5], -1.0, 1)]);
    }
}

#[test]
fn elimination() {
    let device = device();
    for dtype in DTYPES {
        for sizes in [[2, 1, 1], [2, 3, 3], [1, 7, 4], [2, 4, 9], [3, 33, 33], [1, 70, 65]] {
            check(&device, Lu {}, &[matrix(dtype, &sizes, 0.0, 2)]);
        }
        check(&device, Lu {}, &[Tensor::zeros(dtype, [2, 3, 3].as_slice()).unwrap()]);
    }
}

#[test]
fn triangular_systems() {
    let device = device();
    for dtype in DTYPES {
        for flags in 0..32 {
            let flag = |bit: u32| flags >> bit & 1 == 1;
            let op = TriangularSolve {
                left_side: flag(0),
                lower: flag(1),
                transpose_a: flag(2),
                conjugate_a: flag(3),
                unit_diagonal: flag(4),
            };
            let sizes = if flag(0) { [3, 6, 4] } else { [3, 4, 6] };
            check(&device, op, &[matrix(dtype, &[3, 6, 6], 4.0, 1), matrix(dtype, &sizes, 0.0, 2)]);
        }
    }
}

#[test]
fn reflections() {
    let device = device();
    for dtype in DTYPES {
        for sizes in [[2, 1, 1], [2, 5, 5], [2, 9, 4], [1, 4, 9], [2, 70, 33]] {
            let factors = check(&device, Geqrf {}, &[matrix(dtype, &sizes, 0.0, 3)]);
            let [batch, rows, columns] = sizes;
            if rows < columns {
                continue;
            }
            let [a, taus] = [0, 1].map(|number| factors[number].clone());
            check(&device, HouseholderProduct {}, &[a.clone(), taus.clone()]);
            for (left, transpose) in [(true, false), (true, true), (false, false), (false, true)] {
                let c = if left { [batch, rows, 3] } else { [batch, 3, rows] };
                let c = matrix(dtype, &c, 0.0, 4);
                check(&device, Ormqr { left, transpose }, &[a.clone(), taus.clone(), c]);
            }
        }
        // Columns that are zero, and numbers whose squares overflow.
        check(&device, Geqrf {}, &[Tensor::zeros(dtype, [1, 4, 3].as_slice()).unwrap()]);
        check(&device, Geqrf {}, &[matrix(dtype, &[1, 4, 3], 1e30, 3)]);
    }
}
