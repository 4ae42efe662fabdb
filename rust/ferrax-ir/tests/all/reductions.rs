//! Reductions, indices of extrema, cumulative ops. Expected derivatives are those of jax 0.10.2.
#![allow(
    clippy::cloned_ref_to_slice_refs,
    clippy::type_complexity,
    reason = "tables of cases read better so"
)]

use crate::support::*;
use ferrax_ir::convert::Wide;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, DType, Op, Scalar, Tensor};

const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;
const NEG_INFINITY: f64 = f64::NEG_INFINITY;

fn reduce(kind: ReduceKind, over: &[usize]) -> Op {
    Reduce { kind, axes: axes(over) }.into()
}

fn running(kind: CumulativeKind, axis: usize, reverse: bool) -> Op {
    Cumulative { kind, axis, reverse }.into()
}

fn arg(kind: ArgKind, axis: usize) -> Op {
    ArgReduce { kind, axes: axes(&[axis]), index_dtype: DType::I32 }.into()
}

fn full(dtype: DType, sizes: &[usize], value: f64) -> Tensor {
    let one = Scalar::from_f64(dtype, value).bytes();
    Tensor::from_bytes(dtype, axes(sizes), &one.repeat(sizes.iter().product())).unwrap()
}

fn number(value: Wide) -> f64 {
    match value {
        Wide::Int(x) => x as f64,
        Wide::Float(x) => x,
        Wide::Complex(re, _) => re,
    }
}

/// What rows say of themselves.
#[test]
fn examples() {
    let array = |values: &[Wide]| match values[0] {
        Wide::Int(_) => {
            let values: Vec<i32> = values.iter().map(|&value| number(value) as i32).collect();
            Tensor::from_elements(axes(&[values.len()]), &values).unwrap()
        }
        _ => f64s(&[values.len()], &values.iter().map(|&value| number(value)).collect::<Vec<_>>()),
    };
    let holds = |op: Op, operand: &[Wide], expected: &[Wide]| {
        let found = eval(op.clone(), &[array(operand)]);
        let expected = array(expected);
        assert_eq!(found.bytes(), expected.bytes(), "{op:?}");
    };
    for &kind in ReduceKind::ALL {
        let (operand, result) = kind.row().example;
        holds(reduce(kind, &[0]), operand, &[result]);
    }
    for &kind in ArgKind::ALL {
        let (operand, result) = kind.row().example;
        holds(arg(kind, 0), operand, &[result]);
    }
    for &kind in CumulativeKind::ALL {
        let (operand, result) = kind.row().example;
        holds(running(kind, 0, false), operand, result);
    }
}

#[test]
fn reduction_values() {
    use ReduceKind::*;
    let x = count(&[2, 3]);
    let cases: [(ReduceKind, &[usize], &[usize], &[f64]); 7] = [
        (Sum, &[0], &[3], &[3.0, 5.0, 7.0]),
        (Sum, &[0, 1], &[], &[15.0]),
        (Sum, &[1, 0], &[], &[15.0]),
        (Prod, &[1], &[2], &[0.0, 60.0]),
        (Max, &[1], &[2], &[2.0, 5.0]),
        (Min, &[0], &[3], &[0.0, 1.0, 2.0]),
        (Max, &[], &[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
    ];
    for (kind, over, sizes, expected) in cases {
        let op = reduce(kind, over);
        check_params(&op);
        assert_eq!(eval(op, &[x.clone()]), f64s(sizes, expected), "{kind:?} {over:?}");
    }
    let bits = Tensor::from_elements(axes(&[3]), &[12u8, 10, 6]).unwrap();
    let of = |kind| ints(&eval(reduce(kind, &[0]), &[bits.clone()]))[0];
    assert_eq!((of(And), of(Or), of(Xor)), (0, 14, 0));
    let flags = Tensor::from_bools(axes(&[2]), &[true, false]).unwrap();
    let of = |kind| ints(&eval(reduce(kind, &[0]), &[flags.clone()]))[0];
    assert_eq!((of(And), of(Or), of(Xor), of(Max), of(Min)), (0, 1, 1, 1, 0));
}

#[test]
fn numbers_wrap_and_accumulate_wide() {
    let sum = |dtype, n, value| values(&eval(reduce(ReduceKind::Sum, &[0]), &[full(dtype, &[n], value)]))[0];
    assert_eq!(sum(DType::I8, 3, 100.0), 44.0);
    assert_eq!(sum(DType::U8, 3, 100.0), 44.0);
    assert_eq!(sum(DType::I4, 3, 7.0), 5.0);
    assert_eq!(sum(DType::BF16, 4096, 1.0), 4096.0);
    assert_eq!(sum(DType::F16, 4096, 1.0), 4096.0);
    let product = eval(reduce(ReduceKind::Prod, &[0]), &[full(DType::I64, &[65], 3.0)]);
    assert_eq!(product.elements::<i64>().unwrap(), [3i64.wrapping_pow(65)]);
    let running_sum = eval(running(CumulativeKind::Sum, 0, false), &[full(DType::BF16, &[300], 1.0)]);
    assert_eq!(values(&running_sum)[299], 300.0);
    let wrapped = eval(running(CumulativeKind::Sum, 0, false), &[full(DType::I8, &[2], 100.0)]);
    assert_eq!(ints(&wrapped), [100, -56]);
}

#[test]
fn reductions_over_nothing() {
    use ReduceKind::*;
    let cases = [
        (Sum, DType::F32, 0.0),
        (Prod, DType::I32, 1.0),
        (Max, DType::F32, NEG_INFINITY),
        (Min, DType::BF16, INFINITY),
        (Max, DType::I8, -128.0),
        (Min, DType::U16, 65535.0),
        (Max, DType::Bool, 0.0),
        (Max, DType::F8E4M3FN, -448.0),
        (And, DType::U8, 255.0),
        (And, DType::Bool, 1.0),
        (Or, DType::I32, 0.0),
    ];
    for (kind, dtype, expected) in cases {
        let result = eval(reduce(kind, &[0]), &[full(dtype, &[0, 2], 0.0)]);
        assert_eq!(values(&result), [expected; 2], "{kind:?} {dtype}");
    }
    assert_eq!(eval(reduce(Sum, &[1]), &[count(&[0, 2])]).sizes(), [0]);
    assert_eq!(eval(running(CumulativeKind::Sum, 0, true), &[count(&[0, 2])]).sizes(), [0, 2]);
}

#[test]
fn nan_is_extreme() {
    let x = f64s(&[4], &[1.0, NAN, 3.0, NAN]);
    assert!(values(&eval(reduce(ReduceKind::Max, &[0]), &[x.clone()]))[0].is_nan());
    assert!(values(&eval(reduce(ReduceKind::Min, &[0]), &[x.clone()]))[0].is_nan());
    assert_eq!(ints(&eval(arg(ArgKind::Max, 0), &[x.clone()])), [1]);
    assert_eq!(ints(&eval(arg(ArgKind::Min, 0), &[x.clone()])), [1]);
    let highest = values(&eval(running(CumulativeKind::Max, 0, false), &[x]));
    assert!(highest[0] == 1.0 && highest[1..].iter().all(|value| value.is_nan()));
}

#[test]
fn negative_zero_is_less_than_zero() {
    for zeros in [[0.0, -0.0], [-0.0, 0.0]] {
        let x = f64s(&[2], &zeros);
        for (kind, negative) in [(ReduceKind::Max, false), (ReduceKind::Min, true)] {
            let found = values(&eval(reduce(kind, &[0]), &[x.clone()]))[0];
            assert_eq!(found.is_sign_negative(), negative, "{kind:?} of {zeros:?}");
        }
        for (kind, negative) in [(CumulativeKind::Max, false), (CumulativeKind::Min, true)] {
            let found = values(&eval(running(kind, 0, false), &[x.clone()]));
            assert_eq!(found[0].is_sign_negative(), zeros[0].is_sign_negative());
            assert_eq!(found[1].is_sign_negative(), negative, "{kind:?} of {zeros:?}");
        }
        // Indices go by values alone: the first of equal ones.
        assert_eq!(ints(&eval(arg(ArgKind::Max, 0), &[x.clone()])), [0]);
        assert_eq!(ints(&eval(arg(ArgKind::Min, 0), &[x.clone()])), [0]);
    }
}

#[test]
fn first_extremum() {
    let x = f64s(&[2, 3], &[1.0, 3.0, 3.0, 0.0, -1.0, -1.0]);
    assert_eq!(ints(&eval(arg(ArgKind::Max, 1), &[x.clone()])), [1, 0]);
    assert_eq!(ints(&eval(arg(ArgKind::Min, 1), &[x.clone()])), [0, 1]);
    assert_eq!(ints(&eval(arg(ArgKind::Max, 0), &[x])), [0, 0, 0]);
    let op = ArgReduce { kind: ArgKind::Max, axes: axes(&[0]), index_dtype: DType::U8 };
    check_params(&op.clone().into());
    let flags = Tensor::from_bools(axes(&[2]), &[false, true]).unwrap();
    assert_eq!(eval(op, &[flags]).dtype(), DType::U8);
}

#[test]
fn complex_numbers() {
    let parts = |values: &[[f64; 2]]| Tensor::from_elements(axes(&[values.len()]), values).unwrap();
    let x = parts(&[[1.0, 2.0], [1.0, 3.0], [0.0, 9.0]]);
    let of = |kind| eval(reduce(kind, &[0]), &[x.clone()]).elements::<[f64; 2]>().unwrap()[0];
    assert_eq!(of(ReduceKind::Sum), [2.0, 14.0]);
    assert_eq!(of(ReduceKind::Prod), [-45.0, -45.0]);
    assert_eq!(of(ReduceKind::Max), [1.0, 3.0]);
    assert_eq!(of(ReduceKind::Min), [0.0, 9.0]);
    let x = parts(&[[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]]);
    let sums = eval(running(CumulativeKind::LogSumExp, 0, false), &[x]);
    let expected = [[1.0, 2.0], [0.10499301, 1.78895915], [2.98944981, 0.05458758]];
    for (got, expected) in sums.elements::<[f64; 2]>().unwrap().iter().zip(expected) {
        assert!((got[0] - expected[0]).hypot(got[1] - expected[1]) < 1e-7, "{got:?}");
    }
}

#[test]
fn cumulative_values() {
    use CumulativeKind::*;
    let x = f64s(&[2, 3], &[1.0, 3.0, 2.0, 4.0, 0.0, 5.0]);
    let cases: [(CumulativeKind, usize, bool, &[f64]); 6] = [
        (Sum, 1, false, &[1.0, 4.0, 6.0, 4.0, 4.0, 9.0]),
        (Sum, 0, false, &[1.0, 3.0, 2.0, 5.0, 3.0, 7.0]),
        (Sum, 1, true, &[6.0, 5.0, 2.0, 9.0, 5.0, 5.0]),
        (Prod, 1, false, &[1.0, 3.0, 6.0, 4.0, 0.0, 0.0]),
        (Max, 1, false, &[1.0, 3.0, 3.0, 4.0, 4.0, 5.0]),
        (Min, 1, true, &[1.0, 2.0, 2.0, 0.0, 0.0, 5.0]),
    ];
    for (kind, axis, reverse, expected) in cases {
        let op = running(kind, axis, reverse);
        check_params(&op);
        assert_eq!(eval(op, &[x.clone()]), f64s(&[2, 3], expected), "{kind:?} {axis} {reverse}");
    }
    let log = |x: &[f64], reverse| values(&eval(running(LogSumExp, 0, reverse), &[f64s(&[x.len()], x)]));
    assert_eq!(log(&[NEG_INFINITY, 0.0, INFINITY, 2.0], false), [NEG_INFINITY, 0.0, INFINITY, INFINITY]);
    let large = log(&[1.0, -2.0, 0.5, 1000.0, 999.0], false);
    let expected = [1.0, 1.048587351573742, 1.5045969023422836, 1000.0, 1000.3132616875182];
    assert_close(&f64s(&[5], &large), &f64s(&[5], &expected), 1e-15, "cumlogsumexp");
}

#[test]
fn reductions_keep_the_laws() {
    use ReduceKind::*;
    for over in [&[0][..], &[1], &[0, 2], &[2, 0, 1], &[]] {
        for kind in [Sum, Prod, Max, Min] {
            let op = reduce(kind, over);
            check_batch(&op, &[1, 2, 3].map(|seed| vec![noise(&[3, 2, 5], seed)]));
            if !over.is_empty() || kind == Sum {
                check_jvp(&op, &[noise(&[3, 2, 5], 1)], &[0]);
            }
        }
        check_transpose(&reduce(Sum, over), &[noise(&[3, 2, 5], 1)], &[0]);
    }
    for axis in 0..3 {
        check_batch(&arg(ArgKind::Max, axis), &[1, 2, 3].map(|seed| vec![noise(&[3, 2, 5], seed)]));
    }
}

#[test]
fn cumulative_ops_keep_the_laws() {
    use CumulativeKind::*;
    for (axis, reverse) in [(0, false), (1, true), (2, false)] {
        for kind in [Sum, Prod, Max, Min, LogSumExp] {
            let op = running(kind, axis, reverse);
            check_batch(&op, &[1, 2, 3].map(|seed| vec![noise(&[3, 2, 6], seed)]));
            check_jvp(&op, &[noise(&[3, 2, 6], 1)], &[0]);
        }
        check_transpose(&running(Sum, axis, reverse), &[noise(&[3, 2, 6], 1)], &[0]);
    }
    for length in 0..9 {
        check_jvp(&running(Prod, 0, false), &[noise(&[length], 1)], &[0]);
    }
}

fn tangent(op: Op, x: &[f64], t: &[f64]) -> Vec<f64> {
    values(&jvp(&op, &[f64s(&[x.len()], x)], &[Some(f64s(&[t.len()], t))]).unwrap())
}

#[test]
fn extrema_share_tangents_among_ties() {
    let seven = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];
    let x = [1.0, 3.0, 3.0, 2.0, 3.0, 5.0, 5.0];
    let minus = x.map(|x| -x);
    let forward = [1.0, 10.0, 55.0, 55.0, 5027.5, 1e5, 550000.0];
    let backward = [550000.0, 550000.0, 550000.0, 550000.0, 550000.0, 550000.0, 1e6];
    for (x, kind) in [(&x, CumulativeKind::Max), (&minus, CumulativeKind::Min)] {
        assert_eq!(tangent(running(kind, 0, false), x, &seven), forward);
        assert_eq!(tangent(running(kind, 0, true), x, &seven), backward);
    }
    assert_eq!(tangent(reduce(ReduceKind::Max, &[0]), &[1.0, 3.0, 3.0], &[1.0, 2.0, 4.0]), [3.0]);
    assert!(tangent(reduce(ReduceKind::Max, &[0]), &[1.0, NAN], &[1.0, 2.0])[0].is_nan());
}

#[test]
fn products_with_zeros_have_exact_tangents() {
    let x = [2.0, 0.0, 3.0, 0.0, 5.0];
    let t = [1.0, 10.0, 100.0, 1e3, 1e4];
    assert_eq!(tangent(running(CumulativeKind::Prod, 0, false), &x, &t), [1.0, 20.0, 60.0, 0.0, 0.0]);
    assert_eq!(tangent(running(CumulativeKind::Prod, 0, true), &x, &t), [0.0, 0.0, 15000.0, 5000.0, 10000.0]);
    let product = reduce(ReduceKind::Prod, &[0]);
    let unit = |i: usize| [0, 1, 2].map(|j| f64::from(i == j));
    let gradient: Vec<f64> =
        (0..3).map(|i| tangent(product.clone(), &[0.0, 2.0, 3.0], &unit(i))[0]).collect();
    assert_eq!(gradient, [6.0, 0.0, 0.0]);
    assert_eq!(tangent(product, &[], &[]), [0.0]);
}

#[test]
fn logarithms_of_sums_with_infinities() {
    let op = || running(CumulativeKind::LogSumExp, 0, false);
    let t = [1.0, 10.0, 100.0, 1e3, 1e4];
    let got = tangent(op(), &[1.0, -2.0, 0.5, 1000.0, 999.0], &t);
    let expected = [1.0, 1.4268328585981012, 37.52355940002439, 1000.0, 3420.4727923300115];
    assert_close(&f64s(&[5], &got), &f64s(&[5], &expected), 1e-12, "finite");
    let got = tangent(op(), &[NEG_INFINITY, 0.0, 1.0, INFINITY, 2.0], &t);
    let expected = [1.0, 10.0, 75.79527207670044, 1281.8281828459046, 75172.3891721524];
    assert_close(&f64s(&[5], &got), &f64s(&[5], &expected), 1e-12, "infinite");
    let lowest = tangent(op(), &[NEG_INFINITY, NEG_INFINITY], &[1.0, 1.0]);
    assert!(lowest[1].is_nan());
}

#[test]
fn discrete_outputs_have_no_tangents() {
    let x = count(&[3]);
    assert!(jvp(&arg(ArgKind::Max, 0), &[x.clone()], &[Some(x)]).is_none());
}

#[test]
fn refusals_and_weak_types() {
    let f = |sizes: &[usize]| array(DType::F32, sizes);
    let flags = array(DType::Bool, &[2]);
    let complex = array(DType::C64, &[2]);
    let cases: Vec<(Op, ArrayType, &str)> = vec![
        (
            reduce(ReduceKind::Sum, &[0]),
            flags.clone(),
            "Type: reduce_sum does not accept dtype bool: it takes numbers.",
        ),
        (reduce(ReduceKind::And, &[0]), f(&[2]), "Type: a logical reduction is of bools or integers"),
        (reduce(ReduceKind::Sum, &[0, 0]), f(&[2]), "Value: a reduction's axes have one twice: (0, 0)"),
        (
            reduce(ReduceKind::Sum, &[1]),
            f(&[2]),
            "Value: a reduction's axes (1,) are not all axes of f32[2].",
        ),
        (arg(ArgKind::Max, 1), f(&[2]), "Value: argmin and argmax: there is no axis 1 in shape (2,)"),
        (
            arg(ArgKind::Max, 0),
            f(&[0]),
            "Value: argmin and argmax choose among elements, of which shape (0,) has none along axis 0",
        ),
        (arg(ArgKind::Max, 0), complex, "Type: argmax does not accept dtype complex64: it takes"),
        (
            ArgReduce { kind: ArgKind::Min, axes: axes(&[0]), index_dtype: DType::F32 }.into(),
            f(&[2]),
            "Type: argmin and argmax: index_dtype is an integer dtype, got float32",
        ),
        (running(CumulativeKind::Sum, 0, false), flags, "Type: cumsum does not accept dtype bool: it takes"),
        (running(CumulativeKind::Max, 1, false), f(&[2]), "Value: cummax: there is no axis 1 in shape (2,)"),
        (
            running(CumulativeKind::LogSumExp, 0, false),
            array(DType::I32, &[2]),
            "Type: cumlogsumexp does not accept dtype int32: it takes",
        ),
    ];
    for (op, input, expected) in cases {
        let text = refusal(op.clone(), &[input]);
        assert!(text.starts_with(expected), "{op:?}: {text}");
    }
    let weak = array(DType::I32, &[2]).with_weak(true);
    assert!(infer(reduce(ReduceKind::Sum, &[0]), &[weak.clone()]).unwrap().weak);
    assert!(!infer(reduce(ReduceKind::Or, &[0]), &[weak.clone()]).unwrap().weak);
    assert!(!infer(arg(ArgKind::Max, 0), &[weak.clone()]).unwrap().weak);
    assert!(infer(running(CumulativeKind::Sum, 0, false), &[weak]).unwrap().weak);
}
