//! Reductions on a GPU: bit for bit what the CPU gives, whoever folds the terms.

use std::sync::Arc;

use crate::common::fill;
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::ops::{ArgKind, ArgReduce, ReduceKind};
use ferrax_ir::{ArrayType, Builder, DType, Program, Tensor};

/// Few terms and many, few results and many, terms that are neighbours in memory and those that are not.
const CASES: [(&[usize], &[usize]); 13] = [
    (&[7, 50], &[1]),
    (&[7, 100], &[1]),
    (&[3, 5000], &[1]),
    (&[2, 70_001], &[1]),
    (&[100_000], &[0]),
    (&[32_768], &[0]),
    (&[300, 100], &[0]),
    (&[70, 5000], &[0]),
    (&[20_000, 3], &[0]),
    (&[600, 66], &[0]),
    (&[70_001, 70], &[0]),
    (&[20, 4, 300], &[0, 2]),
    (&[0, 4], &[0]),
];

fn on_cpu(program: &Program, input: &Tensor) -> Vec<Tensor> {
    ferrax_cpu::compile(program).unwrap().run(std::slice::from_ref(input)).unwrap().into_vec()
}

fn check(device: &Arc<Attached<Gpu>>, kind: ReduceKind, input: &Tensor, axes: &[usize]) {
    let sizes = input.sizes();
    let mut b = Builder::new(format!("{kind:?} of {} {sizes:?} over {axes:?}", input.dtype()));
    let x = b.input(ArrayType::of_sizes(sizes, input.dtype()));
    let y = b.reduce(kind, x, axes).unwrap();
    let program = b.finish([y]);
    let got = run(device, &program, std::slice::from_ref(input)).unwrap();
    assert_eq!(got, on_cpu(&program, input), "{}", program.name);
}

#[test]
fn reductions_of_all_kinds() {
    let device = device();
    for (sizes, axes) in CASES {
        let rest: &[DType] = match sizes {
            [300, 100] | [2, 70_001] => &[DType::F64, DType::I32, DType::BF16],
            _ => &[],
        };
        for &dtype in [DType::F32, DType::U8].iter().chain(rest) {
            let input = fill(dtype, sizes, 5);
            for kind in [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min] {
                check(&device, kind, &input, axes);
            }
        }
        check(&device, ReduceKind::Sum, &fill(DType::C64, sizes, 5), axes);
        for (kind, dtype) in [
            (ReduceKind::And, DType::I64),
            (ReduceKind::Or, DType::Bool),
            (ReduceKind::Xor, DType::I32),
            (ReduceKind::Xor, DType::Bool),
        ] {
            check(&device, kind, &fill(dtype, sizes, 5), axes);
        }
    }
}

/// Of equals the first, and of NaN.
#[test]
fn places_of_the_best() {
    let device = device();
    for (sizes, axes) in CASES.into_iter().filter(|(sizes, axes)| axes.len() == 1 && !sizes.contains(&0)) {
        for dtype in [DType::I8, DType::F32] {
            let mut inputs = vec![fill(dtype, sizes, 5)];
            if dtype == DType::F32 {
                let mut bytes = inputs[0].bytes().to_vec();
                let last = bytes.len() / 4 - 1;
                for at in [last / 3, last / 2, last] {
                    bytes[4 * at..4 * at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
                }
                inputs.push(Tensor::from_bytes(dtype, sizes, &bytes).unwrap());
            }
            for (input, kind) in
                inputs.iter().flat_map(|input| [(input, ArgKind::Max), (input, ArgKind::Min)])
            {
                let mut b = Builder::new(format!("{kind:?} of {dtype} {sizes:?}"));
                let x = b.input(ArrayType::of_sizes(sizes, dtype));
                let op = ArgReduce { kind, axes: axes.iter().copied().collect(), index_dtype: DType::I32 };
                let y = b.emit1(op, &[x]).unwrap();
                let program = b.finish([y]);
                let got = run(&device, &program, std::slice::from_ref(input)).unwrap();
                assert_eq!(got, on_cpu(&program, input), "{}", program.name);
            }
        }
    }
}
