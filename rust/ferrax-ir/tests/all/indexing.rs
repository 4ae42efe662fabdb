//! Gather and scatter: values, refusals, derivatives, batching.
#![allow(
    clippy::cloned_ref_to_slice_refs,
    clippy::type_complexity,
    reason = "tables of cases read better so"
)]

use crate::cases::{GATHERS, SCATTERS, ScatterCase, gather};
use crate::support::*;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, DType, Op, Scalar, Tensor};

fn scatter(case: &ScatterCase) -> Scatter {
    let &(_, kind, mode, _, _, _, _, dims, _, _) = case;
    Scatter {
        kind,
        update_window_dims: axes(dims[0]),
        inserted_window_dims: axes(dims[1]),
        scatter_dims_to_operand_dims: axes(dims[2]),
        operand_batching_dims: axes(dims[3]),
        scatter_indices_batching_dims: axes(dims[4]),
        mode,
        unique_indices: false,
        indices_are_sorted: false,
    }
}

fn updates(sizes: &[usize]) -> Tensor {
    let values: Vec<f64> = values(&count(sizes)).iter().map(|i| (i * 5.0) % 7.0 + 2.0).collect();
    f64s(sizes, &values)
}

fn scaled(sizes: &[usize], by: f64) -> Tensor {
    let values: Vec<f64> = values(&count(sizes)).iter().map(|i| (i + 1.0) * by).collect();
    f64s(sizes, &values)
}

#[test]
fn gather_values() {
    for case in GATHERS {
        let &(name, mode, sizes, index_sizes, indices, _, _, expected) = case;
        let op = Op::from(gather(case));
        check_params(&op);
        let result = eval(op, &[count(sizes), i32s(index_sizes, indices)]);
        assert_close(&result, &f64s(result.sizes(), expected), 0.0, &format!("{name} {mode:?}"));
    }
}

#[test]
fn scatter_values() {
    for case in SCATTERS {
        let &(name, kind, mode, sizes, index_sizes, indices, update_sizes, _, expected, _) = case;
        let op = Op::from(scatter(case));
        check_params(&op);
        let result = eval(op, &[count(sizes), i32s(index_sizes, indices), updates(update_sizes)]);
        assert_close(&result, &f64s(sizes, expected), 0.0, &format!("{name} {kind:?} {mode:?}"));
    }
}

#[test]
fn gather_fills() {
    let op = Gather { mode: GatherMode::Fill, slice_sizes: shape(&[1]), ..first_axis() };
    let cases = [
        (Tensor::from_elements(axes(&[1]), &[5i8]).unwrap(), -128),
        (Tensor::from_elements(axes(&[1]), &[5u16]).unwrap(), 65535),
        (Tensor::from_bools(axes(&[1]), &[false]).unwrap(), 1),
    ];
    for (x, expected) in cases {
        assert_eq!(ints(&eval(op.clone(), &[x, i32s(&[1, 1], &[1])])), [expected]);
    }
    let custom = Gather { fill_value: Some(Scalar::from_f64(DType::F32, 2.5)), ..op };
    assert_eq!(values(&eval(custom.clone(), &[f32s(&[1], &[0.0]), i32s(&[1, 1], &[-1])])), [2.5]);
    assert!(try_eval(custom, &[count(&[1]), i32s(&[1, 1], &[-1])]).is_err());
}

/// Takes single elements along axis 0 of a vector.
fn first_axis() -> Gather {
    Gather {
        offset_dims: axes(&[]),
        collapsed_slice_dims: axes(&[0]),
        start_index_map: axes(&[0]),
        operand_batching_dims: axes(&[]),
        start_indices_batching_dims: axes(&[]),
        slice_sizes: shape(&[1]),
        mode: GatherMode::Clip,
        fill_value: None,
        unique_indices: false,
        indices_are_sorted: false,
    }
}

fn put(kind: ScatterKind) -> Scatter {
    Scatter {
        kind,
        update_window_dims: axes(&[]),
        inserted_window_dims: axes(&[0]),
        scatter_dims_to_operand_dims: axes(&[0]),
        operand_batching_dims: axes(&[]),
        scatter_indices_batching_dims: axes(&[]),
        mode: GatherMode::Fill,
        unique_indices: false,
        indices_are_sorted: false,
    }
}

#[test]
fn index_dtypes_and_sizes_of_zero() {
    let far = Tensor::from_elements(axes(&[2, 1]), &[u64::MAX, 1]).unwrap();
    assert_eq!(ints(&eval(first_axis(), &[count(&[3]), far])), [2, 1]);
    let none = i32s(&[0, 1], &[]);
    assert_eq!(eval(first_axis(), &[count(&[3]), none.clone()]).sizes(), [0]);
    assert_eq!(eval(first_axis(), &[count(&[0]), none.clone()]).sizes(), [0]);
    let unchanged = eval(put(ScatterKind::Add), &[count(&[3]), none, count(&[0])]);
    assert_eq!(unchanged, count(&[3]));
}

#[test]
fn integers_wrap_in_scatter() {
    let x = Tensor::from_elements(axes(&[1]), &[200u8]).unwrap();
    let indices = i32s(&[2, 1], &[0, 0]);
    let update = Tensor::from_elements(axes(&[2]), &[100u8, 3]).unwrap();
    let result = |kind| ints(&eval(put(kind), &[x.clone(), indices.clone(), update.clone()]))[0];
    assert_eq!(result(ScatterKind::Add), (200 + 103) % 256);
    assert_eq!(result(ScatterKind::Sub), 97);
    assert_eq!(result(ScatterKind::Mul), 200 * 300 % 256);
    assert_eq!((result(ScatterKind::Min), result(ScatterKind::Max)), (3, 200));
}

#[test]
fn gather_keeps_the_laws() {
    for case in GATHERS {
        let &(_, mode, sizes, index_sizes, indices, ..) = case;
        let op = Op::from(Gather { fill_value: Some(Scalar::from_f64(DType::F64, 0.0)), ..gather(case) });
        let inputs = |seed: u64| {
            let shifted: Vec<i32> = indices.iter().map(|i| i + seed as i32 - 1).collect();
            vec![noise(sizes, seed), i32s(index_sizes, &shifted)]
        };
        check_jvp(&op, &inputs(1), &[0]);
        check_batch(&op, &[inputs(1), inputs(2), inputs(3)]);
        check_transpose(&op, &inputs(1), &[0]);
        if mode == GatherMode::Fill {
            let unsure = jvp(&gather(case).into(), &inputs(1), &[Some(inputs(2)[0].clone()), None]).unwrap();
            assert!(values(&unsure).iter().all(|value| !value.is_nan()), "tangents out of bounds are zero");
        }
    }
}

#[test]
fn scatter_batches() {
    for case in SCATTERS {
        let &(_, _, _, sizes, index_sizes, indices, update_sizes, ..) = case;
        let inputs = |seed: u64| {
            let shifted: Vec<i32> = indices.iter().map(|i| i + seed as i32 - 1).collect();
            vec![noise(sizes, seed), i32s(index_sizes, &shifted), noise(update_sizes, seed + 3)]
        };
        check_batch(&scatter(case).into(), &[inputs(1), inputs(2), inputs(3)]);
    }
}

#[test]
fn scatter_tangents() {
    for case in SCATTERS {
        let &(name, kind, _, sizes, index_sizes, indices, update_sizes, _, _, expected) = case;
        if expected.is_empty() {
            continue;
        }
        let operand: Vec<f64> = values(&count(sizes)).iter().map(|x| x.min(6.0)).collect();
        let inputs = [f64s(sizes, &operand), i32s(index_sizes, indices), updates(update_sizes)];
        let tangents = [Some(scaled(sizes, 1.0)), None, Some(scaled(update_sizes, 100.0))];
        let got = jvp(&scatter(case).into(), &inputs, &tangents).unwrap();
        assert_close(&got, &f64s(sizes, expected), 1e-12, &format!("{name} {kind:?}"));
    }
}

#[test]
fn clipped_updates_carry_tangents() {
    let op = Op::from(Scatter { mode: GatherMode::Clip, ..put(ScatterKind::Set) });
    let inputs = [count(&[3]), i32s(&[2, 1], &[9, -4]), f64s(&[2], &[7.0, 8.0])];
    assert_eq!(ints(&eval(op.clone(), &inputs)), [8, 1, 7]);
    let tangent = jvp(&op, &inputs, &[None, None, Some(f64s(&[2], &[1.0, 2.0]))]).unwrap();
    assert_eq!(values(&tangent), [2.0, 0.0, 1.0]);
}

#[test]
fn scatter_transposes() {
    for case in SCATTERS {
        let &(_, kind, _, sizes, index_sizes, indices, update_sizes, ..) = case;
        let inputs = [noise(sizes, 1), i32s(index_sizes, indices), noise(update_sizes, 2)];
        match kind {
            ScatterKind::Add | ScatterKind::Sub => check_transpose(&scatter(case).into(), &inputs, &[0, 2]),
            ScatterKind::Mul => check_transpose(&scatter(case).into(), &inputs, &[0]),
            _ => {}
        }
    }
    let unique = |kind| Op::from(Scatter { unique_indices: true, ..put(kind) });
    let inputs = [noise(&[4], 1), i32s(&[3, 1], &[2, 0, 9]), noise(&[3], 2)];
    check_transpose(&unique(ScatterKind::Set), &inputs, &[0, 2]);
    check_jvp(&unique(ScatterKind::Mul), &inputs, &[0, 2]);
    check_transpose(&unique(ScatterKind::Mul), &inputs, &[0]);
    // In the updates a product is affine: its linear part is the operand's elements.
    let cotangent = noise(&[4], 8);
    let got = transpose(&unique(ScatterKind::Mul), &inputs, &[2], &cotangent);
    let (x, t) = (values(&inputs[0]), values(&cotangent));
    assert_eq!(values(&got[0]), [x[2] * t[2], x[0] * t[0], 0.0]);
}

#[test]
fn products_need_unique_indices() {
    let op = Op::from(put(ScatterKind::Mul));
    let inputs = [noise(&[4], 1), i32s(&[2, 1], &[2, 2]), noise(&[2], 2)];
    check_jvp(&op, &inputs, &[0]);
    let text = try_jvp(&op, &inputs, &[None, None, Some(noise(&[2], 3))]).unwrap_err().to_string();
    assert!(text.contains("scatter_mul gradients require unique_indices=True"), "{text}");
}

#[test]
fn refusals() {
    let f = |sizes: &[usize]| array(DType::F32, sizes);
    let i = |sizes: &[usize]| array(DType::I32, sizes);
    let take = first_axis;
    let add = || put(ScatterKind::Add);
    let cases: Vec<(Op, Vec<ArrayType>, &str)> = vec![
        (take().into(), vec![f(&[3]), f(&[2, 1])], "Value: gather: indices are integers"),
        (take().into(), vec![f(&[3]), i(&[2, 2])], "Type: gather: start_index_map names 1 axes"),
        (
            take().into(),
            vec![f(&[3]), i(&[])],
            "Type: the indices of gather need an axis for the index vector",
        ),
        (
            Gather {
                slice_sizes: shape(&[4]),
                collapsed_slice_dims: axes(&[]),
                offset_dims: axes(&[0]),
                ..take()
            }
            .into(),
            vec![f(&[3]), i(&[2, 1])],
            "Type: gather: the slice of axis 0, whose size is 3, cannot have size 4.",
        ),
        (
            Gather { slice_sizes: shape(&[2]), ..take() }.into(),
            vec![f(&[3]), i(&[2, 1])],
            "Type: gather: a collapsed axis has a slice of size 1, got 2",
        ),
        (
            Gather { start_index_map: axes(&[1]), ..take() }.into(),
            vec![f(&[3]), i(&[2, 1])],
            "Type: gather: 1 in start_index_map is no axis: there are 1.",
        ),
        (
            Gather { offset_dims: axes(&[1, 0]), ..take() }.into(),
            vec![f(&[3]), i(&[2, 1])],
            "Type: gather: offset_dims must be in order, got (1, 0)",
        ),
        (
            Gather { offset_dims: axes(&[0]), ..take() }.into(),
            vec![f(&[3]), i(&[2, 1])],
            "Type: every operand dimension of a gather op",
        ),
        (
            Gather { operand_batching_dims: axes(&[0]), ..take() }.into(),
            vec![f(&[3]), i(&[2, 1])],
            "Type: gather: start_index_map and operand_batching_dims have an axis in common",
        ),
        (
            add().into(),
            vec![f(&[3]), i(&[2, 1]), f(&[3])],
            "Type: scatter: there must be a window for each index",
        ),
        (
            add().into(),
            vec![f(&[3]), i(&[2, 1]), f(&[2, 1])],
            "Type: Updates tensor of scatter_add must be of rank 1",
        ),
        (add().into(), vec![f(&[3]), i(&[2, 1]), i(&[2])], "Type: lax.scatter_add: all arguments need one"),
        (
            Scatter { inserted_window_dims: axes(&[]), update_window_dims: axes(&[1]), ..add() }.into(),
            vec![f(&[3]), i(&[2, 1]), f(&[2, 4])],
            "Type: scatter: windows of the updates do not fit",
        ),
        (
            Scatter { inserted_window_dims: axes(&[]), ..add() }.into(),
            vec![f(&[3]), i(&[2, 1]), f(&[2])],
            "Type: scatter_add: windows have rank 0, the operand 1.",
        ),
    ];
    for (op, inputs, expected) in cases {
        let text = refusal(op.clone(), &inputs);
        assert!(text.starts_with(expected), "{op:?}: {text}");
    }
}
