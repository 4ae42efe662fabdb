//! Structural ops: values, types, refusals.
#![allow(
    clippy::cloned_ref_to_slice_refs,
    clippy::type_complexity,
    reason = "tables of cases read better so"
)]

use crate::support::*;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, Axes, DType, Dim, KeyImpl, Op, Tensor};

fn slice(start: &[usize], limit: &[usize], strides: Option<&[usize]>) -> Slice {
    Slice { start_indices: shape(start), limit_indices: shape(limit), strides: strides.map(axes) }
}

fn broadcast(sizes: &[usize], dims: &[usize]) -> BroadcastInDim {
    BroadcastInDim { shape: shape(sizes), broadcast_dimensions: axes(dims) }
}

#[test]
fn movement_values() {
    let x = count(&[2, 3]);
    let cases: Vec<(Op, &[usize], &[i64])> = vec![
        (broadcast(&[2, 2, 3], &[1, 2]).into(), &[2, 2, 3], &[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]),
        (broadcast(&[3, 2], &[1, 0]).into(), &[3, 2], &[0, 3, 1, 4, 2, 5]),
        (Reshape { new_sizes: shape(&[3, 2]), dimensions: None }.into(), &[3, 2], &[0, 1, 2, 3, 4, 5]),
        (
            Reshape { new_sizes: shape(&[6]), dimensions: Some(axes(&[1, 0])) }.into(),
            &[6],
            &[0, 3, 1, 4, 2, 5],
        ),
        (Transpose { permutation: axes(&[1, 0]) }.into(), &[3, 2], &[0, 3, 1, 4, 2, 5]),
        (slice(&[0, 1], &[2, 3], None).into(), &[2, 2], &[1, 2, 4, 5]),
        (slice(&[0, 0], &[2, 3], Some(&[1, 2])).into(), &[2, 2], &[0, 2, 3, 5]),
        (slice(&[1, 3], &[2, 3], Some(&[1, 2])).into(), &[1, 0], &[]),
        (Rev { dimensions: axes(&[1]) }.into(), &[2, 3], &[2, 1, 0, 5, 4, 3]),
        (Rev { dimensions: axes(&[0, 1]) }.into(), &[2, 3], &[5, 4, 3, 2, 1, 0]),
    ];
    for (op, sizes, expected) in cases {
        let result = eval(op.clone(), &[x.clone()]);
        assert_eq!(result.sizes(), sizes, "{op:?}");
        assert_eq!(ints(&result), expected, "{op:?}");
        check_params(&op);
    }
    let unit = eval(broadcast(&[2, 3], &[0, 1]), &[count(&[2, 1])]);
    assert_eq!(ints(&unit), [0, 0, 0, 1, 1, 1]);
    let filled = eval(broadcast(&[2, 2], &[]), &[f64s(&[], &[7.0])]);
    assert_eq!(ints(&filled), [7; 4]);
    assert_eq!(eval(Squeeze { dimensions: axes(&[0, 2]) }, &[count(&[1, 2, 1])]).sizes(), [2]);
    assert_eq!(
        ints(&eval(Iota { dtype: DType::I8, shape: shape(&[2, 3]), dimension: 1 }, &[])),
        [0, 1, 2, 0, 1, 2]
    );
    let wrapped = eval(Iota { dtype: DType::I8, shape: shape(&[300]), dimension: 0 }, &[]);
    assert_eq!(ints(&wrapped)[127..130], [127, -128, -127]);
}

#[test]
fn concatenate_and_pad_values() {
    let parts = [count(&[2, 1]), count(&[2, 0]), count(&[2, 2])];
    let joined = eval(Concatenate { dimension: 1 }, &parts);
    assert_eq!((joined.sizes(), ints(&joined)), (&[2, 3][..], vec![0, 0, 1, 1, 2, 3]));
    let pad = |config: &[(i64, i64, i64)], x: &Tensor| {
        let op = Op::from(Pad { padding_config: config.to_vec() });
        check_params(&op);
        ints(&eval(op, &[x.clone(), f64s(&[], &[9.0])]))
    };
    let x = count(&[3]);
    assert_eq!(pad(&[(1, 2, 0)], &x), [9, 0, 1, 2, 9, 9]);
    assert_eq!(pad(&[(0, 0, 2)], &x), [0, 9, 9, 1, 9, 9, 2]);
    assert_eq!(pad(&[(-1, 1, 0)], &x), [1, 2, 9]);
    assert_eq!(pad(&[(-1, -1, 1)], &x), [9, 1, 9]);
    assert_eq!(pad(&[(-2, -1, 0)], &x), [] as [i64; 0]);
    assert_eq!(pad(&[(1, 1, 3)], &count(&[0])), [9, 9]);
    assert_eq!(pad(&[(0, 1, 0), (1, 0, 1)], &count(&[1, 2])), [9, 0, 9, 1, 9, 9, 9, 9]);
}

#[test]
fn dynamic_windows_are_clamped() {
    let x = count(&[5]);
    for (start, expected) in [(4, [2, 3, 4]), (1, [1, 2, 3]), (-9, [0, 1, 2]), (i32::MAX, [2, 3, 4])] {
        let window = eval(DynamicSlice { slice_sizes: shape(&[3]) }, &[x.clone(), i32s(&[], &[start])]);
        assert_eq!(ints(&window), expected);
    }
    let largest = Tensor::from_elements(axes(&[]), &[u64::MAX]).unwrap();
    assert_eq!(ints(&eval(DynamicSlice { slice_sizes: shape(&[1]) }, &[x.clone(), largest])), [4]);
    let update = f64s(&[2], &[8.0, 9.0]);
    for (start, expected) in [(4, [0, 1, 2, 8, 9]), (-1, [8, 9, 2, 3, 4])] {
        let result = eval(DynamicUpdateSlice {}, &[x.clone(), update.clone(), i32s(&[], &[start])]);
        assert_eq!(ints(&result), expected);
    }
    let whole = eval(DynamicUpdateSlice {}, &[f64s(&[], &[1.0]), f64s(&[], &[2.0])]);
    assert_eq!(ints(&whole), [2]);
}

#[test]
fn every_dtype_moves() {
    let key = DType::Key(KeyImpl::THREEFRY2X32);
    let dtypes = DType::ALL.iter().copied().chain([key]);
    for dtype in dtypes {
        let bytes: Vec<u8> = (0..4 * dtype.size()).map(|i| (i % 2) as u8).collect();
        let x = Tensor::from_bytes(dtype, axes(&[4]), &bytes).unwrap();
        let there = eval(Rev { dimensions: axes(&[0]) }, &[x.clone()]);
        assert_eq!(eval(Rev { dimensions: axes(&[0]) }, &[there]), x);
        let halves =
            [eval(slice(&[0], &[2], None), &[x.clone()]), eval(slice(&[2], &[4], None), &[x.clone()])];
        assert_eq!(eval(Concatenate { dimension: 0 }, &halves), x);
        assert_eq!(eval(broadcast(&[2, 4], &[1]), &[x.clone()]).sizes(), [2, 4]);
        let picked = eval(DynamicSlice { slice_sizes: shape(&[2]) }, &[x.clone(), i32s(&[], &[2])]);
        assert_eq!(picked, halves[1]);
    }
}

#[test]
fn weak_types() {
    let weak = |dtype, sizes: &[usize]| array(dtype, sizes).with_weak(true);
    let f = DType::F32;
    assert!(infer(broadcast(&[3], &[]), &[weak(f, &[])]).unwrap().weak);
    assert!(infer(Concatenate { dimension: 0 }, &[weak(f, &[1]), weak(f, &[2])]).unwrap().weak);
    assert!(!infer(Concatenate { dimension: 0 }, &[weak(f, &[1]), array(f, &[2])]).unwrap().weak);
    assert!(!infer(Pad { padding_config: vec![(0, 0, 0)] }, &[array(f, &[1]), weak(f, &[])]).unwrap().weak);
    let start = array(DType::I32, &[]);
    let op = DynamicSlice { slice_sizes: shape(&[1]) };
    assert!(infer(op, &[weak(f, &[2]), start.clone()]).unwrap().weak);
    assert!(!infer(DynamicUpdateSlice {}, &[weak(f, &[2]), weak(f, &[1]), start]).unwrap().weak);
    assert!(!infer(Iota { dtype: f, shape: shape(&[2]), dimension: 0 }, &[]).unwrap().weak);
}

#[test]
fn symbolic_dimensions() {
    let b = Dim::variable("b");
    let with = |tail: usize| ArrayType::new([b.clone(), Dim::Const(tail)].to_vec(), DType::F32);
    let flat =
        Reshape { new_sizes: [b.mul(&Dim::Const(6)).unwrap()].into_iter().collect(), dimensions: None };
    assert_eq!(infer(flat.clone(), &[with(6)]).unwrap().to_string(), "f32[6*b]");
    assert!(infer(flat, &[with(5)]).is_err());
    let twice = infer(Concatenate { dimension: 0 }, &[with(2), with(2)]).unwrap();
    assert_eq!(twice.to_string(), "f32[2*b,2]");
    let padded =
        infer(Pad { padding_config: vec![(1, 2, 1), (0, -1, 0)] }, &[with(3), array(DType::F32, &[])]);
    assert_eq!(padded.unwrap().to_string(), "f32[2*b + 2,2]");
    let tail = Slice {
        start_indices: shape(&[1, 0]),
        limit_indices: [b.clone(), Dim::Const(2)].into_iter().collect(),
        strides: Some(axes(&[2, 1])),
    };
    assert_eq!(infer(tail, &[with(2)]).unwrap().to_string(), "f32[floordiv(b, 2),2]");
    assert!(infer(slice(&[0, 0], &[1, 3], None), &[with(2)]).is_err());
}

#[test]
fn refusals() {
    let f = |sizes: &[usize]| array(DType::F32, sizes);
    let i = array(DType::I32, &[]);
    let cases: Vec<(Op, Vec<ArrayType>, &str)> = vec![
        (
            broadcast(&[2, 3], &[1]).into(),
            vec![f(&[2])],
            "Type: broadcast_in_dim: axes of the operand, of shape (2,), have size 1 or that of their axis",
        ),
        (
            broadcast(&[2], &[1]).into(),
            vec![f(&[2])],
            "Type: broadcast_in_dim: broadcast_dimensions must be axes",
        ),
        (
            broadcast(&[2, 2], &[0, 0]).into(),
            vec![f(&[2, 2])],
            "Type: broadcast_in_dim: broadcast_dimensions",
        ),
        (
            Reshape { new_sizes: shape(&[4]), dimensions: None }.into(),
            vec![f(&[2, 3])],
            "Type: cannot reshape array of shape (2, 3) (size 6) into shape (4,) (size 4)",
        ),
        (
            Transpose { permutation: axes(&[0, 0]) }.into(),
            vec![f(&[2, 3])],
            "Type: transpose: (0, 0) does not have each axis once of an operand of shape (2, 3).",
        ),
        (
            Squeeze { dimensions: axes(&[1]) }.into(),
            vec![f(&[1, 3])],
            "Value: squeeze: only axes of size 1 can go, got shape=(1, 3) and dimensions=(1,)",
        ),
        (
            Squeeze { dimensions: axes(&[2]) }.into(),
            vec![f(&[1, 3])],
            "Value: squeeze dimensions outside range [0, 2)",
        ),
        (
            slice(&[0], &[4], None).into(),
            vec![f(&[3])],
            "Type: slice: limit_indices (4,) are beyond the operand, whose shape is (3,).",
        ),
        (slice(&[2], &[1], None).into(), vec![f(&[3])], "Type: slice: start_indices"),
        (slice(&[0], &[1], Some(&[0])).into(), vec![f(&[3])], "Type: slice: a stride is 1 or more, got (0,)"),
        (
            slice(&[0, 0], &[1, 1], None).into(),
            vec![f(&[3])],
            "Type: slice: each axis needs a start, a limit and a stride",
        ),
        (
            DynamicSlice { slice_sizes: shape(&[4]) }.into(),
            vec![f(&[3]), i.clone()],
            "Type: dynamic_slice: slice_sizes",
        ),
        (
            DynamicSlice { slice_sizes: shape(&[1]) }.into(),
            vec![f(&[3]), f(&[])],
            "Type: dynamic_slice: all indices are integers of one dtype, got (float32,)",
        ),
        (
            DynamicUpdateSlice {}.into(),
            vec![f(&[3]), f(&[4]), i.clone()],
            "Type: dynamic_update_slice: an update of shape",
        ),
        (
            DynamicUpdateSlice {}.into(),
            vec![f(&[3]), array(DType::I32, &[2]), i.clone()],
            "Type: lax.dynamic_update_slice: all arguments need one dtype",
        ),
        (
            Concatenate { dimension: 0 }.into(),
            vec![],
            "Type: concatenate: there must be an operand, got none.",
        ),
        (
            Concatenate { dimension: 0 }.into(),
            vec![f(&[2, 3]), f(&[2, 4])],
            "Type: concatenate along axis 0: all other axes must have equal sizes, got shapes (2, 3), (2, 4).",
        ),
        (Concatenate { dimension: 1 }.into(), vec![f(&[2])], "Type: concatenate: there is no axis 1"),
        (
            Pad { padding_config: vec![(-2, -2, 0)] }.into(),
            vec![f(&[3]), f(&[])],
            "Value: pad: the result would have no valid shape",
        ),
        (
            Pad { padding_config: vec![(i64::MAX, 1, 0)] }.into(),
            vec![f(&[3]), f(&[])],
            "Value: pad: the result would have no valid shape",
        ),
        (
            Pad { padding_config: vec![(0, 0, -1)] }.into(),
            vec![f(&[3]), f(&[])],
            "Value: pad: what is put between elements",
        ),
        (
            Pad { padding_config: vec![(0, 0, 0)] }.into(),
            vec![f(&[3]), i],
            "Type: pad: operand and padding_value",
        ),
        (
            Rev { dimensions: axes(&[0, 0]) }.into(),
            vec![f(&[3])],
            "Type: rev: dimensions (0, 0) has an axis twice.",
        ),
        (Rev { dimensions: axes(&[1]) }.into(), vec![f(&[3])], "Type: rev: dimensions (1,) are not all axes"),
        (
            Iota { dtype: DType::Bool, shape: shape(&[2]), dimension: 0 }.into(),
            vec![],
            "Type: iota: numbers of dtype bool",
        ),
        (
            Iota { dtype: DType::F32, shape: shape(&[2]), dimension: 1 }.into(),
            vec![],
            "Value: iota: dimension=1 is no axis of shape=(2,)",
        ),
    ];
    for (op, inputs, expected) in cases {
        let text = refusal(op.clone(), &inputs);
        assert!(text.starts_with(expected), "{op:?}: {text}");
    }
}

/// Single-operand ops that only move elements, with shapes they take.
fn movers() -> Vec<(Op, Vec<usize>)> {
    vec![
        (broadcast(&[2, 4, 3], &[0, 2]).into(), vec![2, 3]),
        (broadcast(&[2, 4, 3], &[0, 2]).into(), vec![1, 3]),
        (broadcast(&[3, 2], &[1, 0]).into(), vec![2, 3]),
        (broadcast(&[3, 4, 2], &[2, 1, 0]).into(), vec![2, 1, 3]),
        (broadcast(&[2], &[]).into(), vec![]),
        (Reshape { new_sizes: shape(&[3, 2]), dimensions: None }.into(), vec![2, 3]),
        (Reshape { new_sizes: shape(&[3, 8]), dimensions: Some(axes(&[1, 2, 0])) }.into(), vec![2, 3, 4]),
        (Transpose { permutation: axes(&[1, 2, 0]) }.into(), vec![2, 3, 4]),
        (Squeeze { dimensions: axes(&[0, 2]) }.into(), vec![1, 3, 1]),
        (slice(&[1, 0], &[3, 2], None).into(), vec![4, 3]),
        (slice(&[1, 0], &[7, 2], Some(&[3, 1])).into(), vec![8, 3]),
        (slice(&[1, 2], &[7, 2], Some(&[3, 2])).into(), vec![8, 3]),
        (Rev { dimensions: axes(&[0, 2]) }.into(), vec![2, 2, 3]),
    ]
}

#[test]
fn movers_keep_the_laws() {
    for (op, sizes) in movers() {
        check_transpose(&op, &[noise(&sizes, 1)], &[0]);
        check_jvp(&op, &[noise(&sizes, 1)], &[0]);
        check_batch(&op, &[1, 2, 3].map(|seed| vec![noise(&sizes, seed)]));
    }
}

#[test]
fn windows_keep_the_laws() {
    let starts = |a: i32, b: i32| [i32s(&[], &[a]), i32s(&[], &[b])];
    let cut = Op::from(DynamicSlice { slice_sizes: shape(&[2, 3]) });
    let put = Op::from(DynamicUpdateSlice {});
    for (a, b) in [(0, 1), (2, 9), (-1, 0)] {
        let inputs =
            |seed: u64| [vec![noise(&[4, 5], seed)], starts(a + seed as i32 - 1, b).to_vec()].concat();
        check_transpose(&cut, &inputs(1), &[0]);
        check_jvp(&cut, &inputs(1), &[0]);
        check_batch(&cut, &[inputs(1), inputs(2), inputs(3)]);
        let inputs = |seed: u64| {
            [vec![noise(&[4, 5], seed), noise(&[2, 3], seed + 9)], starts(a, b + seed as i32 - 1).to_vec()]
                .concat()
        };
        check_transpose(&put, &inputs(1), &[0, 1]);
        check_jvp(&put, &inputs(1), &[0, 1]);
        check_batch(&put, &[inputs(1), inputs(2), inputs(3)]);
    }
    let scalars = |seed| vec![noise(&[], seed)];
    check_batch(&DynamicSlice { slice_sizes: shape(&[]) }.into(), &[scalars(1), scalars(2), scalars(3)]);
}

#[test]
fn assembling_keeps_the_laws() {
    let join = Op::from(Concatenate { dimension: 1 });
    let parts = |seed| vec![noise(&[2, 1], seed), noise(&[2, 3], seed + 7), noise(&[2, 0], seed)];
    check_transpose(&join, &parts(1), &[0, 1, 2]);
    check_jvp(&join, &parts(1), &[0, 1]);
    check_batch(&join, &[parts(1), parts(2), parts(3)]);
    let configs: [&[(i64, i64, i64)]; 5] = [
        &[(1, 2, 0), (0, 1, 2)],
        &[(-1, 2, 0), (0, -1, 0)],
        &[(-2, 0, 1), (1, -3, 2)],
        &[(-3, 0, 0), (0, 0, 0)],
        &[(0, 0, 0), (0, 0, 0)],
    ];
    for config in configs {
        let pad = Op::from(Pad { padding_config: config.to_vec() });
        let inputs = |seed| vec![noise(&[3, 2], seed), noise(&[], seed + 20)];
        check_transpose(&pad, &inputs(1), &[0, 1]);
        check_jvp(&pad, &inputs(1), &[0, 1]);
        check_batch(&pad, &[inputs(1), inputs(2), inputs(3)]);
    }
}

#[test]
fn sizes_of_zero() {
    let x = count(&[0, 3]);
    assert_eq!(eval(Transpose { permutation: axes(&[1, 0]) }, &[x.clone()]).sizes(), [3, 0]);
    assert_eq!(eval(Reshape { new_sizes: shape(&[2, 0]), dimensions: None }, &[x.clone()]).sizes(), [2, 0]);
    assert_eq!(eval(Rev { dimensions: axes(&[0, 1]) }, &[x.clone()]), x);
    let start = i32s(&[], &[5]);
    let none = DynamicSlice { slice_sizes: shape(&[0, 2]) };
    assert_eq!(eval(none, &[x.clone(), start.clone(), start]).sizes(), [0, 2]);
    check_transpose(&slice(&[0, 1], &[0, 3], None).into(), &[x.clone()], &[0]);
    check_transpose(&broadcast(&[0, 2, 3], &[0, 2]).into(), &[x], &[0]);
    let _: Axes = axes(&[]);
}
