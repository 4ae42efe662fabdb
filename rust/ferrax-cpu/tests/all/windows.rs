//! Gather and scatter against the reference interpreter.

use crate::common::{check_with, fill};
use ferrax_ir::ops::*;
use ferrax_ir::{Axes, Builder, DType, Dim, Op, Program, Shape, Tensor};

fn axes(list: &[usize]) -> Axes {
    list.into()
}

fn program(op: impl Into<Op>, inputs: &[Tensor]) -> Program {
    let mut b = Builder::new("window");
    let atoms: Vec<_> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let output = b.emit1(op, &atoms).unwrap();
    b.finish([output])
}

fn indices(sizes: &[usize], bound: i32) -> Tensor {
    let count: usize = sizes.iter().product();
    // Some out of bounds on either side, some repeated.
    let values: Vec<i32> = (0..count as i32).map(|i| (i * 7 + 3) % (bound + 4) - 2).collect();
    Tensor::from_elements(sizes, &values).unwrap()
}

fn window(sizes: &[usize]) -> Shape {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

#[test]
fn gathers() {
    for dtype in [DType::F32, DType::I8, DType::C128, DType::Bool, DType::BF16] {
        for &mode in GatherMode::ALL {
            // Rows, points, windows, and batched rows.
            let cases: [(Gather, &[usize], Tensor); 5] = [
                (base(mode, &[1], &[0], &[0], &[], &[], &[1, 6]), &[5, 6], indices(&[7, 1], 5)),
                (base(mode, &[], &[0, 1], &[0, 1], &[], &[], &[1, 1]), &[5, 6], indices(&[3, 4, 2], 5)),
                (base(mode, &[0, 2], &[], &[1, 0], &[], &[], &[2, 3]), &[5, 6], indices(&[4, 2], 4)),
                (base(mode, &[3], &[0], &[0], &[], &[], &[1, 6]), &[5, 6], indices(&[2, 3, 4, 1], 5)),
                (base(mode, &[1], &[1], &[1], &[0], &[0], &[1, 1, 4]), &[3, 5, 4], indices(&[3, 1], 5)),
            ];
            for (op, sizes, indices) in cases {
                let inputs = [fill(dtype, sizes, 1), indices];
                check_with(&program(op, &inputs), &inputs, 0);
            }
        }
    }
}

fn base(
    mode: GatherMode,
    offset: &[usize],
    collapsed: &[usize],
    map: &[usize],
    operand_batching: &[usize],
    indices_batching: &[usize],
    sizes: &[usize],
) -> Gather {
    Gather {
        offset_dims: axes(offset),
        collapsed_slice_dims: axes(collapsed),
        start_index_map: axes(map),
        operand_batching_dims: axes(operand_batching),
        start_indices_batching_dims: axes(indices_batching),
        slice_sizes: window(sizes),
        mode,
        fill_value: None,
        unique_indices: false,
        indices_are_sorted: false,
    }
}

#[test]
fn scatters() {
    for dtype in [DType::F32, DType::I32, DType::U8, DType::BF16, DType::C64, DType::Bool] {
        for &mode in GatherMode::ALL {
            for &kind in ScatterKind::ALL {
                let rows = Scatter {
                    kind,
                    update_window_dims: axes(&[1]),
                    inserted_window_dims: axes(&[0]),
                    scatter_dims_to_operand_dims: axes(&[0]),
                    operand_batching_dims: axes(&[]),
                    scatter_indices_batching_dims: axes(&[]),
                    mode,
                    unique_indices: false,
                    indices_are_sorted: false,
                };
                let inputs = [fill(dtype, &[5, 6], 1), indices(&[9, 1], 5), fill(dtype, &[9, 6], 2)];
                let types: Vec<_> = inputs.iter().map(|t| t.array_type().into()).collect();
                if Op::from(rows.clone()).infer(&types).is_err() {
                    continue;
                }
                // Halves round after each update; the reference does too.
                check_with(&program(rows.clone(), &inputs), &inputs, 4);
                let batched = Scatter {
                    update_window_dims: axes(&[1]),
                    inserted_window_dims: axes(&[1]),
                    scatter_dims_to_operand_dims: axes(&[1]),
                    operand_batching_dims: axes(&[0]),
                    scatter_indices_batching_dims: axes(&[0]),
                    ..rows
                };
                let inputs = [fill(dtype, &[3, 5, 4], 1), indices(&[3, 1], 5), fill(dtype, &[3, 4], 2)];
                check_with(&program(batched, &inputs), &inputs, 4);
            }
        }
    }
}

/// Large updates are cut along an axis where all windows begin at the same place: each part takes them in order.
#[test]
fn large_updates_run_in_parts() {
    let op = |window: &[usize], inserted: &[usize], to: &[usize], kind| Scatter {
        kind,
        update_window_dims: axes(window),
        inserted_window_dims: axes(inserted),
        scatter_dims_to_operand_dims: axes(to),
        operand_batching_dims: axes(&[]),
        scatter_indices_batching_dims: axes(&[]),
        mode: GatherMode::Fill,
        unique_indices: false,
        indices_are_sorted: false,
    };
    for kind in [ScatterKind::Set, ScatterKind::Add, ScatterKind::Max] {
        // Lines; then windows that overlap where they may not be cut.
        let lines = op(&[1], &[0], &[0], kind);
        let inputs =
            [fill(DType::F32, &[7, 101], 1), indices(&[900, 1], 9), fill(DType::F32, &[900, 101], 2)];
        check_with(&program(lines, &inputs), &inputs, 64);
        let windows = op(&[1, 2], &[], &[0], kind);
        let updates = fill(DType::I32, &[400, 4, 50], 2);
        let inputs = [fill(DType::I32, &[9, 50], 1), indices(&[400, 1], 7), updates];
        check_with(&program(windows, &inputs), &inputs, 0);
        // Along an axis on which updates have other strides than the operand.
        let outer = op(&[1, 2], &[], &[1], kind);
        let updates = fill(DType::I32, &[400, 50, 4], 2);
        let inputs = [fill(DType::I32, &[50, 9], 1), indices(&[400, 1], 7), updates];
        check_with(&program(outer, &inputs), &inputs, 0);
        let moving = op(&[1, 2], &[], &[0, 1], kind);
        let updates = fill(DType::I32, &[400, 4, 50], 2);
        let inputs = [fill(DType::I32, &[9, 60], 1), indices(&[400, 2], 7), updates];
        check_with(&program(moving, &inputs), &inputs, 0);
    }
}

#[test]
fn updates_in_place_leave_live_operands_alone() {
    let mut b = Builder::new("updates");
    let x = b.input(fill(DType::F32, &[4, 4], 1).array_type());
    let y = b.mul(x, x).unwrap();
    let zero = b.int_scalar(DType::I32, 0);
    let one = b.int_scalar(DType::I32, 1);
    let part = b.slice_axis(x, 0, 0, 1).unwrap();
    let u = b.emit1(DynamicUpdateSlice {}, &[y, part, one, zero]).unwrap();
    let v = b.emit1(DynamicUpdateSlice {}, &[u, part, zero, zero]).unwrap();
    let w = b.add(u, v).unwrap();
    let program = b.finish([v, w, y]);
    check_with(&program, &[fill(DType::F32, &[4, 4], 1)], 0);
}

/// Operand, axis of the index, its shape without the index vector, batching axes of operand and indices.
type Single = (&'static [usize], usize, &'static [usize], &'static [usize], &'static [usize]);

const SINGLES: &[Single] = &[
    (&[5], 0, &[9], &[], &[]),
    (&[5], 0, &[3, 4], &[], &[]),
    (&[5], 0, &[], &[], &[]),
    (&[5], 0, &[0], &[], &[]),
    (&[1], 0, &[3], &[], &[]),
    (&[3, 5], 1, &[3, 7], &[0], &[0]),
    (&[5, 3], 0, &[7, 3], &[1], &[1]),
    (&[2, 5, 3], 1, &[2, 4, 3], &[0, 2], &[0, 2]),
    (&[2, 3, 5], 2, &[4, 2, 3], &[0, 1], &[1, 2]),
    (&[3, 5], 1, &[4, 3], &[0], &[1]),
    (&[300], 0, &[50_000], &[], &[]),
    (&[40, 100], 1, &[40, 900], &[0], &[0]),
];

/// The indices of a case in some dtype, some out of bounds.
fn single_indices(dtype: DType, case: &Single) -> Tensor {
    let mut sizes = case.2.to_vec();
    sizes.push(1);
    let narrow = indices(&sizes, case.0[case.1] as i32);
    ferrax_ir::convert::convert(&narrow, dtype).unwrap()
}

#[test]
fn single_elements() {
    for case in SINGLES {
        let &(sizes, axis, positions, operand_batching, indices_batching) = case;
        let thin: Vec<usize> = vec![1; sizes.len()];
        let dtypes = [DType::F32, DType::F64, DType::I8, DType::I32, DType::F16, DType::C128, DType::U32];
        let large = positions.iter().product::<usize>() > 1000;
        for &dtype in if large { &dtypes[..1] } else { &dtypes[..] } {
            for index_dtype in [DType::I32, DType::U32, DType::I64, DType::I16] {
                let indices = single_indices(index_dtype, case);
                for &mode in GatherMode::ALL {
                    let op = base(mode, &[], &[axis], &[axis], operand_batching, indices_batching, &thin);
                    let inputs = [fill(dtype, sizes, 1), indices.clone()];
                    check_with(&program(op, &inputs), &inputs, 0);
                    for &kind in ScatterKind::ALL {
                        let op = Scatter {
                            kind,
                            update_window_dims: axes(&[]),
                            inserted_window_dims: axes(&[axis]),
                            scatter_dims_to_operand_dims: axes(&[axis]),
                            operand_batching_dims: axes(operand_batching),
                            scatter_indices_batching_dims: axes(indices_batching),
                            mode,
                            unique_indices: false,
                            indices_are_sorted: false,
                        };
                        let inputs = [fill(dtype, sizes, 1), indices.clone(), fill(dtype, positions, 2)];
                        let types: Vec<_> = inputs.iter().map(|t| t.array_type().into()).collect();
                        if Op::from(op.clone()).infer(&types).is_ok() {
                            check_with(&program(op, &inputs), &inputs, 20_000);
                        }
                    }
                }
            }
        }
    }
}
