//! Sorting, the largest elements, scatters and running reductions on a GPU: what the interpreter gives.

use std::sync::Arc;

use crate::common::{compare, fill};
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::ops::{
    Cumulative, CumulativeKind, DynamicSlice, DynamicUpdateSlice, Gather, GatherMode, Scatter, ScatterKind,
    Sort, TopK,
};
use ferrax_ir::{Axes, Builder, DType, Dim, Op, Scalar, Tensor, interpret};

const DTYPES: [DType; 15] = {
    use DType::*;
    [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, C64, C128]
};

/// Runs one op, by shaders.
fn check(device: &Arc<Attached<Gpu>>, op: impl Into<Op>, inputs: &[Tensor], ulps: u64) {
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
        compare(got, want, ulps, &program.name);
    }
}

/// Floats with NaN and infinities of both signs among them.
fn special(dtype: DType, sizes: &[usize]) -> Tensor {
    let mut tensor = fill(dtype, sizes, 3);
    let size = dtype.size() / if dtype.is_complex() { 2 } else { 1 };
    if !dtype.is_inexact() {
        return tensor;
    }
    let infinity: u64 = match (size, dtype) {
        (8, _) => 0x7ff0 << 48,
        (4, _) => 0x7f80 << 16,
        (_, DType::F16) => 0x7c00,
        _ => 0x7f80,
    };
    for (number, element) in tensor.bytes_mut().unwrap().chunks_exact_mut(size).enumerate() {
        let bits = match number % 11 {
            2 => infinity,
            5 => infinity | (1 << (size * 8 - 1)),
            7 => infinity | 1,
            8 => infinity | 1 | (1 << (size * 8 - 1)),
            _ => continue,
        };
        element.copy_from_slice(&bits.to_le_bytes()[..size]);
    }
    tensor
}

#[test]
fn sorts_of_all_dtypes() {
    let device = device();
    for dtype in DTYPES {
        for (sizes, dimension) in [(&[7, 5][..], 0), (&[3, 40], 1), (&[2, 700, 3], 1), (&[1], 0)] {
            let places = Tensor::from_bytes(
                DType::I32,
                sizes,
                &(0..sizes.iter().product::<usize>() as i32).flat_map(i32::to_le_bytes).collect::<Vec<_>>(),
            );
            let inputs = [special(dtype, sizes), places.unwrap()];
            check(&device, Sort { dimension, is_stable: true, num_keys: 1 }, &inputs, 0);
        }
    }
}

#[test]
fn sorts_of_long_lines_and_of_several_keys() {
    let device = device();
    for length in [511, 512, 513, 1024, 1025, 5000] {
        check(
            &device,
            Sort { dimension: 1, is_stable: true, num_keys: 1 },
            &[fill(DType::F32, &[2, length], 1)],
            0,
        );
    }
    let keys = [fill(DType::I8, &[900], 1), fill(DType::F16, &[900], 2), fill(DType::C64, &[900], 3)];
    for num_keys in 1..=3 {
        check(&device, Sort { dimension: 0, is_stable: false, num_keys }, &keys, 0);
    }
}

#[test]
fn largest_elements() {
    let device = device();
    for dtype in DTYPES.into_iter().filter(|dtype| !dtype.is_complex()) {
        for (sizes, axis, k) in [(&[7, 5][..], 0, 3), (&[3, 40], 1, 40), (&[2, 700, 3], 1, 10)] {
            check(&device, TopK { axis, k }, &[special(dtype, sizes)], 0);
        }
    }
}

fn indices(dtype: DType, sizes: &[usize], numbers: &[i64]) -> Tensor {
    let count: usize = sizes.iter().product();
    let bytes = (0..count).flat_map(|number| {
        Scalar::from_i64(dtype, numbers[number % numbers.len()]).bytes()[..dtype.size()].to_vec()
    });
    Tensor::from_bytes(dtype, sizes, &bytes.collect::<Vec<u8>>()).unwrap()
}

fn axes(list: &[usize]) -> Axes {
    list.iter().copied().collect()
}

const KINDS: [ScatterKind; 6] = {
    use ScatterKind::*;
    [Set, Add, Sub, Mul, Min, Max]
};

/// Rows of a table, several to one place, some outside.
#[test]
fn scatters_of_all_dtypes() {
    let device = device();
    for dtype in DTYPES {
        for kind in KINDS {
            let orders = matches!(kind, ScatterKind::Min | ScatterKind::Max);
            if (dtype == DType::Bool && kind != ScatterKind::Set) || (dtype.is_complex() && orders) {
                continue;
            }
            let op = Scatter {
                kind,
                update_window_dims: axes(&[1]),
                inserted_window_dims: axes(&[0]),
                scatter_dims_to_operand_dims: axes(&[0]),
                operand_batching_dims: axes(&[]),
                scatter_indices_batching_dims: axes(&[]),
                mode: GatherMode::Fill,
                unique_indices: false,
                indices_are_sorted: false,
            };
            let places = indices(DType::I32, &[20, 1], &[3, 0, 3, 9, -1, 5, 3, 8, 100]);
            check(&device, op.clone(), &[fill(dtype, &[9, 5], 1), places, fill(dtype, &[20, 5], 2)], 2);
            // Unique, until they are clamped.
            let op = Scatter { mode: GatherMode::Clip, unique_indices: true, ..op };
            let places = indices(DType::I32, &[4, 1], &[8, 0, 9, 2]);
            check(&device, op, &[fill(dtype, &[9, 5], 1), places, fill(dtype, &[4, 5], 2)], 2);
        }
    }
}

/// Windows that overlap in part, that are clamped, and indices of all widths; single elements; batches.
#[test]
fn scatters_of_windows() {
    let device = device();
    for dtype in [DType::I8, DType::U8, DType::I16, DType::U32, DType::I64, DType::U64] {
        for mode in [GatherMode::Clip, GatherMode::Fill] {
            for kind in [ScatterKind::Set, ScatterKind::Add] {
                let op = Scatter {
                    kind,
                    update_window_dims: axes(&[1, 2]),
                    inserted_window_dims: axes(&[]),
                    scatter_dims_to_operand_dims: axes(&[1, 0]),
                    operand_batching_dims: axes(&[]),
                    scatter_indices_batching_dims: axes(&[]),
                    mode,
                    unique_indices: false,
                    indices_are_sorted: false,
                };
                let numbers: &[i64] =
                    if dtype.is_signed() { &[0, 3, -1, 2, 100, 4] } else { &[0, 3, 2, 100, 4] };
                let places = indices(dtype, &[7, 2], numbers);
                let inputs = [fill(DType::F32, &[6, 8], 1), places, fill(DType::F32, &[7, 2, 3], 2)];
                check(&device, op.clone(), &inputs, 2);
                let batched = Scatter {
                    update_window_dims: axes(&[2]),
                    inserted_window_dims: axes(&[]),
                    scatter_dims_to_operand_dims: axes(&[1]),
                    operand_batching_dims: axes(&[0]),
                    scatter_indices_batching_dims: axes(&[0]),
                    ..op
                };
                let places = indices(dtype, &[4, 3, 1], numbers);
                let inputs = [fill(DType::BF16, &[4, 6], 1), places, fill(DType::BF16, &[4, 3, 2], 2)];
                check(&device, batched, &inputs, 2);
            }
        }
    }
}

#[test]
fn updates_of_slices() {
    let device = device();
    for dtype in DTYPES {
        for start in [-3, 0, 2, 50] {
            let inputs = [
                fill(dtype, &[5, 7, 2], 1),
                fill(dtype, &[2, 7, 1], 2),
                indices(DType::I32, &[], &[start]),
                indices(DType::I32, &[], &[1]),
                indices(DType::I32, &[], &[start]),
            ];
            check(&device, DynamicUpdateSlice {}, &inputs, 0);
        }
    }
}

/// Floats without their signs, whose sums do not cancel.
fn positive(mut tensor: Tensor) -> Tensor {
    let dtype = tensor.dtype();
    if dtype.is_inexact() {
        let bytes = tensor.bytes_mut().unwrap();
        bytes.chunks_exact_mut(dtype.real().size()).for_each(|part| part[part.len() - 1] &= 0x7f);
    }
    tensor
}

#[test]
fn running_reductions() {
    let device = device();
    for kind in CumulativeKind::ALL.iter().copied() {
        for dtype in DTYPES {
            let orders = !matches!(kind, CumulativeKind::Sum | CumulativeKind::Prod);
            let exp = kind == CumulativeKind::LogSumExp;
            if dtype == DType::Bool || (dtype.is_complex() && orders) || (exp && !dtype.is_inexact()) {
                continue;
            }
            // Many terms that are rounded in another order.
            let ulps = if dtype.is_inexact() { 2000 } else { 0 };
            for (sizes, axis, reverse) in [
                (&[7, 5][..], 0, false),
                (&[3, 40], 1, true),
                (&[2, 150, 3], 1, true),
                (&[2, 4500], 1, false),
            ] {
                let long = sizes.iter().any(|&size| size > 64);
                if kind == CumulativeKind::Prod && long && dtype.is_inexact() {
                    continue;
                }
                check(&device, Cumulative { kind, axis, reverse }, &[positive(fill(dtype, sizes, 5))], ulps);
            }
        }
    }
}

/// Infinities and NaN come through.
#[test]
fn running_reductions_of_special_values() {
    let device = device();
    for kind in CumulativeKind::ALL.iter().copied() {
        for dtype in [DType::F16, DType::F32, DType::F64] {
            let op = Cumulative { kind, axis: 1, reverse: false };
            check(&device, op, &[special(dtype, &[8, 9])], 20);
        }
    }
}

/// Elements that no kernels compute with are moved all the same.
#[test]
fn windows_of_elements_without_kernels() {
    let device = device();
    for dtype in [DType::F8E5M2, DType::F8E4M3FN, DType::I4, DType::U4] {
        for mode in [GatherMode::Clip, GatherMode::Fill] {
            let op = Gather {
                offset_dims: axes(&[1]),
                collapsed_slice_dims: axes(&[0]),
                start_index_map: axes(&[0]),
                operand_batching_dims: axes(&[]),
                start_indices_batching_dims: axes(&[]),
                slice_sizes: [1, 3].into_iter().map(Dim::Const).collect(),
                mode,
                fill_value: None,
                unique_indices: false,
                indices_are_sorted: false,
            };
            let places = indices(DType::I32, &[9, 1], &[3, 0, 3, 9, -1, 5, 3, 8, 100]);
            check(&device, op, &[fill(dtype, &[9, 3], 1), places], 0);
        }
        let slice_sizes = [2, 3].into_iter().map(Dim::Const).collect();
        let inputs = [fill(dtype, &[9, 3], 1), indices(DType::I8, &[], &[4]), indices(DType::I8, &[], &[4])];
        check(&device, DynamicSlice { slice_sizes }, &inputs, 0);
        let inputs = [fill(DType::I16, &[3, 40], 1), fill(dtype, &[3, 40], 2)];
        check(&device, Sort { dimension: 1, is_stable: true, num_keys: 1 }, &inputs, 0);
    }
}
