//! Sorting and the largest elements. Expected orders are those of jax 0.10.2.
#![allow(clippy::cloned_ref_to_slice_refs, reason = "operands are lists")]

use crate::support::*;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, DType, KeyImpl, Op, Scalar, Tensor, Type};

const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;

fn sort(dimension: usize, num_keys: usize) -> Op {
    Sort { dimension, is_stable: true, num_keys }.into()
}

fn top_k(axis: usize, k: usize) -> Op {
    TopK { axis, k }.into()
}

fn tensor(dtype: DType, sizes: &[usize], values: &[f64]) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|&x| Scalar::from_f64(dtype, x).bytes()).collect();
    Tensor::from_bytes(dtype, axes(sizes), &bytes).unwrap()
}

fn run(op: &Op, inputs: &[Tensor]) -> Vec<Tensor> {
    let types: Vec<Type> = inputs.iter().map(|x| x.array_type().into()).collect();
    op.eval(inputs, &op.infer(&types).unwrap()).unwrap()
}

/// The places that sorting puts the elements to.
fn order(x: &Tensor) -> Vec<f64> {
    let places: Vec<f64> = (0..x.len()).map(|place| place as f64).collect();
    values(&run(&sort(0, 1), &[x.clone(), f64s(&[x.len()], &places)])[1])
}

#[test]
fn keys_of_all_kinds() {
    let floats = [3.0, NAN, -0.0, 0.0, INFINITY, -INFINITY, -NAN, 1.0];
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E5M2] {
        let x = tensor(dtype, &[8], &floats);
        assert_eq!(order(&x), [5.0, 2.0, 3.0, 7.0, 0.0, 4.0, 1.0, 6.0], "{dtype}");
    }
    // The NaN of FNUZ formats has a sign.
    let x = tensor(DType::F8E5M2FNUZ, &[4], &[-1.0, NAN, 0.0, NAN]);
    assert_eq!(order(&x), [1.0, 3.0, 0.0, 2.0]);
    for dtype in [DType::I2, DType::I4, DType::I8, DType::I64] {
        assert_eq!(order(&tensor(dtype, &[4], &[1.0, -2.0, 0.0, -1.0])), [1.0, 3.0, 2.0, 0.0], "{dtype}");
    }
    for dtype in [DType::U2, DType::U4, DType::U64] {
        assert_eq!(order(&tensor(dtype, &[4], &[1.0, 3.0, 0.0, 1.0])), [2.0, 0.0, 3.0, 1.0], "{dtype}");
    }
    let pairs = [[NAN, 0.0], [1.0, NAN], [1.0, 0.0], [-0.0, 2.0], [0.0, 2.0], [0.0, -3.0]];
    let x = Tensor::from_elements(axes(&[6]), &pairs).unwrap();
    assert_eq!(order(&x), [5.0, 3.0, 4.0, 2.0, 1.0, 0.0]);
}

#[test]
fn later_keys_decide_ties() {
    let x = f64s(&[2, 3], &[1.0, 0.0, 1.0, 2.0, 2.0, 2.0]);
    let y = f64s(&[2, 3], &[5.0, 9.0, 4.0, 3.0, 1.0, 2.0]);
    check_params(&sort(1, 2));
    let got = run(&sort(1, 2), &[x.clone(), y.clone()]);
    assert_eq!(values(&got[0]), [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    assert_eq!(values(&got[1]), [9.0, 4.0, 5.0, 1.0, 2.0, 3.0]);
    let got = run(&sort(1, 1), &[x.clone(), y]);
    assert_eq!(values(&got[1]), [9.0, 5.0, 4.0, 3.0, 1.0, 2.0]);
    assert_eq!(values(&run(&sort(0, 1), &[x])[0]), [1.0, 0.0, 1.0, 2.0, 2.0, 2.0]);
    let nothing = run(&sort(1, 1), &[f64s(&[3, 0], &[])]);
    assert_eq!(nothing[0].sizes(), [3, 0]);
}

#[test]
fn the_largest_in_the_total_order() {
    let x = f64s(&[7], &[0.0, -0.0, 1.0, NAN, -NAN, 0.0, -INFINITY]);
    check_params(&top_k(0, 7));
    let got = run(&top_k(0, 7), &[x.clone()]);
    assert_eq!(ints(&got[1]), [3, 2, 0, 5, 1, 6, 4]);
    assert_eq!(values(&got[0])[1..4], [1.0, 0.0, 0.0]);
    assert_eq!(ints(&run(&top_k(0, 2), &[x])[1]), [3, 2]);
    let table = f64s(&[2, 2], &[1.0, 4.0, 3.0, 2.0]);
    assert_eq!(values(&run(&top_k(0, 1), &[table.clone()])[0]), [3.0, 4.0]);
    assert_eq!(run(&top_k(1, 0), &[table])[1].sizes(), [2, 0]);
}

#[test]
fn they_keep_the_laws() {
    for (axis, k) in [(0, 2), (1, 1), (2, 4)] {
        let x = |seed| noise(&[3, 2, 6], seed);
        check_batch(&sort(axis, 1), &[1, 2, 3].map(|seed| vec![x(seed)]));
        check_jvp(&sort(axis, 1), &[x(1)], &[0]);
        check_batch(&top_k(axis, k), &[1, 2, 3].map(|seed| vec![x(seed)]));
        check_jvp(&top_k(axis, k), &[x(1)], &[0]);
    }
    check_jvp(&sort(0, 1), &[noise(&[5], 1), noise(&[5], 2)], &[0]);
}

#[test]
fn refusals_and_weak_types() {
    let f = |sizes: &[usize]| array(DType::F32, sizes);
    let key = array(DType::Key(KeyImpl::THREEFRY2X32), &[2]);
    let cases: Vec<(Op, Vec<ArrayType>, &str)> = vec![
        (sort(0, 1), vec![], "Type: sort: there must be an operand, got none"),
        (sort(0, 1), vec![f(&[2]), f(&[3])], "Type: sort: all operands need one shape, got (2,) (3,)"),
        (sort(1, 1), vec![f(&[2])], "Value: sort: there is no axis 1 in shape (2,)"),
        (sort(0, 1), vec![f(&[])], "Value: sort: there is no axis 0 in shape ()"),
        (sort(0, 2), vec![f(&[2])], "Value: sort: num_keys=2 of 1 operands"),
        (sort(0, 0), vec![f(&[2])], "Value: sort: num_keys=0 of 1 operands"),
        (sort(0, 1), vec![key.clone()], "Type: sort does not accept dtype key<fry> for operand 0"),
        (top_k(0, 1), vec![key], "Type: top_k does not accept dtype key<fry> for operand 0"),
        (top_k(1, 1), vec![f(&[2])], "Value: top_k: there is no axis 1 in shape (2,)"),
        (top_k(0, 3), vec![f(&[2])], "Value: top_k: k=3 is more than there is"),
        (top_k(0, 1), vec![array(DType::C64, &[2])], "Value: top_k: complex numbers have no order"),
    ];
    for (op, inputs, expected) in cases {
        let text = refusal(op.clone(), &inputs);
        assert!(text.starts_with(expected), "{op:?}: {text}");
    }
    let weak = Type::from(array(DType::F32, &[2]).with_weak(true));
    let strong = Type::from(array(DType::F32, &[2]));
    let types = sort(0, 1).infer(&[weak.clone(), strong]).unwrap();
    assert_eq!([0, 1].map(|i| types[i].as_array().unwrap().weak), [true, false]);
    let types = top_k(0, 1).infer(&[weak]).unwrap();
    assert_eq!([0, 1].map(|i| types[i].as_array().unwrap().weak), [true, true]);
}
