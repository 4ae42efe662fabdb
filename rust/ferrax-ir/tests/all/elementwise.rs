//! Elementwise rows: types, values, and scalar bodies against reference
//! evaluation over all dtypes and special values.

use crate::common::{array, body, complex, element, eval, parts};
use ferrax_ir::convert::Wide;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, DType, KeyImpl, Op, Scalar, Type, scalar::ScalarType};

const COMPUTING: [DType; 19] = [
    DType::Bool,
    DType::U2,
    DType::U4,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I2,
    DType::I4,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::BF16,
    DType::F16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
];

/// Small and extreme numbers of a dtype.
fn specials(dtype: DType) -> Vec<Scalar> {
    let floats = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.3,
        1.5,
        2.5,
        -2.5,
        3.7,
        1e-3,
        40.25,
        -7.0,
        100.0,
        1e30,
        -1e30,
        1e-40,
        -6e-8,
        6.2e-5,
        65504.0,
        70000.0,
        f64::MAX,
        f64::MIN_POSITIVE,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.499_999_97,
        8_388_609.0,
        1.070_312_5,
    ];
    if dtype.is_complex() {
        let few =
            [0.0, -0.0, 1.0, -0.3, 2.5, -40.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, 1e-310];
        return few.iter().flat_map(|&re| few.map(|im| complex(dtype, re, im))).collect();
    }
    if dtype.is_float() {
        return floats.iter().map(|&x| Scalar::from_f64(dtype, x)).collect();
    }
    let bits = dtype.bits();
    let mut patterns: Vec<u128> =
        vec![0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, 100, 127, 128, 200, 255, 0x1234_5678_9abc_def0];
    patterns.extend([1u128 << (bits - 1), (1 << (bits - 1)) - 1, u128::MAX, u128::MAX - 6, 1 << (bits / 2)]);
    if dtype.is_bool() {
        patterns = vec![0, 1];
    }
    patterns.into_iter().map(|pattern| Scalar::from_bits(dtype, pattern)).collect()
}

/// Whether a body's result is what evaluation says: bit for bit, save NaNs,
/// signs of zeros, the last place where a half is rounded twice, and for chains
/// of products a few places of `f32`.
fn agrees(got: Scalar, expected: Scalar, f32_places: u128) -> bool {
    let dtype = expected.dtype();
    if got == expected || dtype.is_key() {
        return got == expected;
    }
    let ((a, b), (c, d)) = (parts(got), parts(expected));
    let same = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan());
    let places = match dtype {
        DType::BF16 | DType::F16 => 1,
        DType::F32 => f32_places,
        _ => 0,
    };
    (same(a, c) && same(b, d)) || got.bits().abs_diff(expected.bits()) <= places
}

/// Compares body and evaluation on all combinations of operands.
fn check(op: impl Into<Op>, operands: &[Vec<Scalar>]) {
    let op = op.into();
    let mut combinations: Vec<Vec<Scalar>> = vec![vec![]];
    for choices in operands {
        combinations = combinations
            .iter()
            .flat_map(|prefix| {
                choices.iter().map(move |&choice| prefix.iter().copied().chain([choice]).collect())
            })
            .collect();
    }
    let columns: Vec<_> = (0..operands.len())
        .map(|operand| array(&combinations.iter().map(|row| row[operand]).collect::<Vec<_>>()))
        .collect();
    let expected = eval(&op, &columns).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    for (index, row) in combinations.iter().enumerate() {
        let got = body(&op, row).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        let expected = element(&expected, index);
        let show = |scalar: Scalar| (scalar.dtype(), parts(scalar), scalar.bits());
        assert!(
            agrees(got, expected, if matches!(op, Op::IntegerPow(_)) { 3 } else { 0 }),
            "{op:?} of {:?}: body {:?}, evaluation {:?}",
            row.iter().map(|&scalar| show(scalar)).collect::<Vec<_>>(),
            show(got),
            show(expected)
        );
    }
}

fn accepts(op: &Op, dtypes: &[DType]) -> bool {
    let types: Vec<Type> = dtypes.iter().map(|&dtype| ArrayType::scalar(dtype).into()).collect();
    op.infer(&types).is_ok()
}

/// Complex numbers of single precision go through `f32` in bodies and `f64` in
/// evaluation: they are compared by accuracy in `single_complex`.
fn exact() -> impl Iterator<Item = DType> {
    COMPUTING.into_iter().filter(|&dtype| dtype != DType::C64)
}

#[test]
fn unary_bodies() {
    for &op in Unary::ALL {
        let mut any = false;
        for dtype in exact().filter(|&dtype| accepts(&op.into(), &[dtype])) {
            check(op, &[specials(dtype)]);
            any = true;
        }
        assert!(any, "{op:?} accepts nothing");
    }
}

#[test]
fn binary_and_comparison_bodies() {
    for dtype in exact() {
        let both = [specials(dtype), specials(dtype)];
        for &op in Binary::ALL.iter().filter(|&&op| accepts(&op.into(), &[dtype, dtype])) {
            check(op, &both);
        }
        for &op in Compare::ALL.iter().filter(|&&op| accepts(&op.into(), &[dtype, dtype])) {
            check(op, &both);
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64, DType::C128] {
        check(Binary::Pow, &[specials(dtype), specials(DType::I32)]);
        check(Binary::Pow, &[specials(dtype), specials(DType::U8)]);
    }
}

#[test]
fn single_complex() {
    let values: Vec<Scalar> = [0.3, -0.7, 1.2, -2.5, 9.0, 1e-4]
        .iter()
        .flat_map(|&re| [0.4, -1.1, 3.0, -1e-5].map(|im| complex(DType::C64, re, im)))
        .collect();
    let close = |op: Op, row: &[Scalar]| {
        let columns: Vec<_> = row.iter().map(|&x| array(&[x])).collect();
        let expected = parts(element(&eval(&op, &columns).unwrap(), 0));
        let got = parts(body(&op, row).unwrap());
        let scale = expected.0.hypot(expected.1).max(1e-6);
        let error = (got.0 - expected.0).hypot(got.1 - expected.1) / scale;
        // Powers multiply the error of the logarithm by the exponent's size.
        let bound = if op == Binary::Pow.into() { 2e-5 } else { 2e-6 };
        assert!(error < bound, "{op:?} of {row:?}: {got:?}, expected {expected:?}");
    };
    for &op in Unary::ALL.iter().filter(|&&op| accepts(&op.into(), &[DType::C64])) {
        values.iter().for_each(|&x| close(op.into(), &[x]));
    }
    for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Pow, Binary::Max, Binary::Min] {
        for &x in &values {
            values.iter().for_each(|&y| close(op.into(), &[x, y]));
        }
    }
}

#[test]
fn rounding_bodies() {
    for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
        for rounding_method in [0, 1] {
            check(Round { rounding_method }, &[specials(dtype)]);
        }
        for (exponent_bits, mantissa_bits) in [(5, 3), (4, 3), (8, 7), (5, 10), (3, 0), (11, 52), (2, 23)] {
            check(ReducePrecision { exponent_bits, mantissa_bits }, &[specials(dtype)]);
        }
    }
    for dtype in exact().filter(|dtype| !dtype.is_bool()) {
        for y in [0, 1, 2, 3, 5, -1, -2] {
            if dtype.is_inexact() || y >= 0 {
                check(IntegerPow { y }, &[specials(dtype)]);
            }
        }
    }
}

#[test]
fn every_half_precision_pattern() {
    // Signalling NaNs do not survive a register.
    let signals = |x: Scalar| parts(x).0.is_nan() && x.dtype().is_float();
    let all = |dtype: DType| -> Vec<Scalar> {
        let every = (0..=u128::from(u16::MAX)).step_by(7).map(|bits| Scalar::from_bits(dtype, bits));
        every.filter(|&x| !signals(x)).collect()
    };
    for dtype in [DType::F16, DType::BF16] {
        check(BitcastConvertType { new_dtype: DType::U16 }, &[all(dtype)]);
        check(BitcastConvertType { new_dtype: dtype }, &[all(DType::I16)]);
        check(Binary::Nextafter, &[all(dtype), specials(dtype)]);
        for mantissa_bits in [0, 3, 9] {
            check(ReducePrecision { exponent_bits: 5, mantissa_bits }, &[all(dtype)]);
        }
        let mut targets = vec![DType::F32, DType::I8, DType::U64, DType::Bool, DType::F8E4M3FN];
        targets.push(if dtype == DType::F16 { DType::BF16 } else { DType::F16 });
        for new_dtype in targets {
            check(ConvertElementType { new_dtype, weak_type: false }, &[all(dtype)]);
        }
    }
}

#[test]
fn conversions() {
    for from in DType::ALL.iter().copied().filter(|&dtype| dtype != DType::Float0) {
        for to in DType::ALL.iter().copied().filter(|&dtype| dtype != DType::Float0) {
            check(ConvertElementType { new_dtype: to, weak_type: false }, &[specials(from)]);
        }
    }
    // Ties of the narrow format that f32 would hide.
    let doubles: Vec<Scalar> =
        [1.0 + 2f64.powi(-9), 1.0 + 2f64.powi(-9) + 2f64.powi(-40), 2049.0 + 2f64.powi(-30), 65520.0]
            .iter()
            .flat_map(|&x| [x, -x].map(Scalar::new))
            .collect();
    for to in [DType::BF16, DType::F16, DType::F8E5M2, DType::F8E4M3FN] {
        let op: Op = ConvertElementType { new_dtype: to, weak_type: false }.into();
        let expected = eval(&op, &[array(&doubles)]).unwrap();
        for (index, &x) in doubles.iter().enumerate() {
            assert_eq!(body(&op, &[x]).unwrap(), element(&expected, index), "{x:?} to {to}");
        }
    }
    let plain = |dtype: &DType| dtype.is_integer() || (dtype.is_float() && !dtype.is_storage_only());
    for from in DType::ALL.iter().copied().filter(plain) {
        for to in DType::ALL.iter().copied().filter(plain).filter(|to| to.bits() == from.bits()) {
            check(BitcastConvertType { new_dtype: to }, &[specials(from)]);
        }
    }
}

#[test]
fn selection() {
    let key = DType::Key(KeyImpl::THREEFRY2X32);
    let keys: Vec<Scalar> =
        [1u128, 1 << 40, u128::from(u64::MAX)].map(|bits| Scalar::from_bits(key, bits)).into();
    for dtype in exact() {
        let some: Vec<Scalar> = specials(dtype).into_iter().step_by(5).collect();
        check(SelectN {}, &[specials(DType::Bool), some.clone(), some.clone()]);
        let which = [-1, 0, 1, 2, 3, 100].map(|which| Scalar::from_i64(DType::I32, which)).to_vec();
        check(SelectN {}, &[which, some.clone(), some.clone(), some.clone()]);
        check(Clamp {}, &[some.clone(), some.clone(), some.clone()]);
        check(Copy {}, std::slice::from_ref(&some));
        check(StopGradient {}, &[some]);
    }
    let single: Vec<Scalar> = specials(DType::C64).into_iter().step_by(9).collect();
    check(Clamp {}, &[single.clone(), single.clone(), single.clone()]);
    check(SelectN {}, &[specials(DType::Bool), single.clone(), single]);
    for (op, expected) in [(Compare::Eq, [true, false, false]), (Compare::Ne, [false, true, true])] {
        for (&x, expected) in keys.iter().zip(expected) {
            assert_eq!(body(&op.into(), &[x, keys[0]]).unwrap(), Scalar::bool(expected));
        }
    }
    assert_eq!(body(&SelectN {}.into(), &[Scalar::bool(true), keys[0], keys[1]]).unwrap(), keys[1]);
    let picked =
        eval(&SelectN {}.into(), &[array(&[Scalar::bool(false)]), array(&keys[..1]), array(&keys[1..2])]);
    assert_eq!(element(&picked.unwrap(), 0), keys[0]);
}

/// What rows show in help holds: in 64 bits to the last places.
#[test]
fn examples() {
    let scalar = |value: Wide| match value {
        Wide::Int(x) => Scalar::from_i64(DType::I32, x as i64),
        Wide::Float(x) => Scalar::new(x),
        Wide::Complex(re, im) => complex(DType::C128, re, im),
    };
    let holds = |op: Op, operands: &[Wide], expected: Wide| {
        let operands: Vec<_> = operands.iter().map(|&x| array(&[scalar(x)])).collect();
        let (got, expected) = (parts(element(&eval(&op, &operands).unwrap(), 0)), parts(scalar(expected)));
        let error = (got.0 - expected.0).hypot(got.1 - expected.1);
        assert!(error <= 4e-15 * expected.0.hypot(expected.1), "{op:?}: {got:?}, expected {expected:?}");
    };
    for op in Unary::ALL {
        let (x, y) = op.row().example;
        holds((*op).into(), &[x], y);
    }
    for op in Binary::ALL {
        let (operands, result) = op.row().example;
        holds((*op).into(), &operands, result);
    }
    for op in Compare::ALL {
        let (operands, result) = op.row().example;
        holds((*op).into(), &operands, result);
    }
}

#[test]
fn squares_of_large_complex_numbers() {
    let square = |dtype, re, im| parts(body(&Unary::Square.into(), &[complex(dtype, re, im)]).unwrap());
    assert_eq!(square(DType::C64, 1e30, 1e30), (0.0, f64::INFINITY));
    assert_eq!(square(DType::C128, 1e308, -1e308), (0.0, f64::NEG_INFINITY));
    assert_eq!(square(DType::C128, 3.0, 4.0), (-7.0, 24.0));
}

/// Values that were computed elsewhere.
#[test]
fn values() {
    let real = |op: Unary, dtype: DType, x: f64| {
        parts(element(&eval(&op.into(), &[array(&[Scalar::from_f64(dtype, x)])]).unwrap(), 0)).0
    };
    let close = |got: f64, expected: f64| (got - expected).abs() <= 4e-15 * expected.abs().max(1e-2);
    const LGAMMA: [(f64, f64); 5] = [
        (0.1, 2.252_712_651_734_206),
        (2.5, 0.284_682_870_472_919_2),
        (15.0, 25.191_221_182_738_68),
        (-0.3, 1.464_840_050_857_602_5),
        (-7.7, -8.611_096_443_778_9),
    ];
    const DIGAMMA: [(f64, f64); 7] = [
        (0.1, -10.423_754_940_411_076),
        (1.0, -0.577_215_664_901_532_9),
        (1.5, 0.036_489_973_978_576_52),
        (15.0, 2.674_346_661_660_793_6),
        (-0.3, 2.113_309_779_635_399),
        (-7.7, -0.177_748_443_718_969_33),
        (1e-5, -100_000.577_199_215_67),
    ];
    const ERF_INV: [(f64, f64); 8] = [
        (1e-300, 8.862_269_254_527_58e-301),
        (0.1, 0.088_855_990_494_257_69),
        (0.5, 0.476_936_276_204_469_9),
        (-0.7, -0.732_869_077_959_216_7),
        (0.99, 1.821_386_367_718_449_4),
        (0.999_999, 3.458_910_737_275_499),
        (-0.999_999_999_9, -4.572_824_958_544_925),
        (0.999_999_999_999_999_9, 5.863_584_748_755_168),
    ];
    for (op, table) in [(Unary::Lgamma, &LGAMMA[..]), (Unary::Digamma, &DIGAMMA), (Unary::ErfInv, &ERF_INV)] {
        for &(x, expected) in table {
            let got = real(op, DType::F64, x);
            let relative = (got / expected - 1.0).abs() < 1e-14;
            assert!(relative || close(got, expected), "{op:?} of {x}: {got}, expected {expected}");
        }
    }
    for x in [0.0, -1.0, f64::NEG_INFINITY] {
        assert!(real(Unary::Digamma, DType::F64, x).is_nan());
    }
    assert_eq!(real(Unary::Lgamma, DType::F64, -1.0), f64::INFINITY);
    assert_eq!(real(Unary::ErfInv, DType::F32, 1.0), f64::INFINITY);
    assert_eq!(real(Unary::Sign, DType::F32, -0.0).to_bits(), (-0.0f64).to_bits());
    assert!(real(Unary::Sign, DType::F32, f64::NAN).is_nan());
    assert_eq!(real(Unary::Rsqrt, DType::F32, -0.0), f64::NEG_INFINITY);
    assert_eq!(real(Unary::Abs, DType::I32, f64::from(i32::MIN)), f64::from(i32::MIN));
    assert_eq!(real(Unary::Exp, DType::BF16, 1.0), 2.718_75);
    assert_eq!(real(Unary::Sin, DType::F32, 1.0), f64::from(1f64.sin() as f32));
    for (dtype, bits) in [(DType::U2, 2.0), (DType::I4, 4.0), (DType::U8, 8.0), (DType::I16, 16.0)] {
        assert_eq!(real(Unary::Clz, dtype, 0.0), bits);
        assert_eq!(real(Unary::Clz, dtype, 1.0), bits - 1.0);
        assert_eq!(real(Unary::PopulationCount, dtype, 1.0), 1.0);
    }
}

#[test]
fn integer_arithmetic() {
    let apply = |op: Binary, dtype: DType, x: i64, y: i64| {
        let operands = [x, y].map(|x| array(&[Scalar::from_i64(dtype, x)]));
        element(&eval(&op.into(), &operands).unwrap(), 0).to_i128().unwrap()
    };
    let i32_min = i64::from(i32::MIN);
    let table: &[(Binary, DType, i64, i64, i128)] = &[
        (Binary::Add, DType::I8, 127, 1, -128),
        (Binary::Sub, DType::U8, 0, 1, 255),
        (Binary::Mul, DType::U64, -1, -1, 1),
        (Binary::Div, DType::I32, 7, -2, -3),
        (Binary::Div, DType::I32, 5, 0, -1),
        (Binary::Div, DType::U8, 5, 0, 255),
        (Binary::Div, DType::I32, i32_min, -1, i32_min as i128),
        (Binary::Rem, DType::I32, -5, 3, -2),
        (Binary::Rem, DType::I32, 5, 0, 5),
        (Binary::Rem, DType::I32, i32_min, -1, 0),
        (Binary::ShiftLeft, DType::I8, -5, 1, -10),
        (Binary::ShiftLeft, DType::I8, -5, 8, 0),
        (Binary::ShiftLeft, DType::I8, 5, -1, 0),
        (Binary::ShiftRightArithmetic, DType::I8, -5, 1, -3),
        (Binary::ShiftRightArithmetic, DType::I8, -5, 100, -1),
        (Binary::ShiftRightArithmetic, DType::U8, 200, 1, 228),
        (Binary::ShiftRightArithmetic, DType::U8, 200, 8, 255),
        (Binary::ShiftRightLogical, DType::I8, -5, 1, 125),
        (Binary::ShiftRightLogical, DType::I8, -5, 8, 0),
        (Binary::Add, DType::I4, 7, 1, -8),
        (Binary::Sub, DType::U2, 0, 1, 3),
        (Binary::Mul, DType::U4, 5, 5, 9),
        (Binary::Div, DType::I2, -2, -1, -2),
        (Binary::Div, DType::U4, 5, 0, 15),
        (Binary::Rem, DType::I4, -5, 3, -2),
        (Binary::ShiftLeft, DType::I4, -5, 4, 0),
        (Binary::ShiftRightArithmetic, DType::I4, -5, 100, -1),
        (Binary::ShiftRightArithmetic, DType::U2, 2, 1, 3),
        (Binary::ShiftRightLogical, DType::I4, -5, 1, 5),
        (Binary::ShiftRightLogical, DType::I4, -5, 4, 0),
        (Binary::MulHigh, DType::I8, -100, 3, -2),
        (Binary::MulHigh, DType::U8, 200, 3, 2),
        (Binary::MulHigh, DType::I64, i64::MIN, i64::MIN, 1 << 62),
        (Binary::MulHigh, DType::U4, 15, 15, 14),
    ];
    for &(op, dtype, x, y, expected) in table {
        assert_eq!(apply(op, dtype, x, y), expected, "{op:?} {dtype} {x} {y}");
    }
}

#[test]
fn reduced_precision() {
    let reduce = |dtype: DType, exponent_bits: u32, x: f64| {
        let op = ReducePrecision { exponent_bits, mantissa_bits: 3 };
        parts(element(&eval(&op.into(), &[array(&[Scalar::from_f64(dtype, x)])]).unwrap(), 0)).0
    };
    let table = [
        (DType::F32, 5, 1.07, 1.125),
        (DType::F32, 5, 1e5, f64::INFINITY),
        (DType::F32, 5, 1e-5, 0.0),
        (DType::F32, 5, 6e-5, 6.103_515_625e-5),
        (DType::F16, 5, 6e4, 61440.0),
        (DType::F16, 5, 1e-5, 7.629_394_531_25e-6),
        (DType::F16, 4, 6e4, f64::INFINITY),
        (DType::F16, 4, 1e-5, 0.0),
    ];
    for (dtype, exponent_bits, x, expected) in table {
        assert_eq!(reduce(dtype, exponent_bits, x), expected, "{dtype} {exponent_bits} {x}");
    }
    assert!(reduce(DType::F32, 5, f64::NAN).is_nan());
}

#[test]
fn bitcasts_that_change_size() {
    let word = array(&[Scalar::new(0x0403_0201u32)]);
    let bytes =
        eval(&BitcastConvertType { new_dtype: DType::U8 }.into(), std::slice::from_ref(&word)).unwrap();
    assert_eq!((bytes.sizes(), bytes.bytes()), (&[1, 4][..], &[1, 2, 3, 4][..]));
    let back = eval(&BitcastConvertType { new_dtype: DType::U32 }.into(), &[bytes]).unwrap();
    assert_eq!(back, word);
    let nibbles =
        eval(&BitcastConvertType { new_dtype: DType::I4 }.into(), &[array(&[Scalar::new(0x8fu8)])]).unwrap();
    assert_eq!(element(&nibbles, 0).to_i128(), Some(-1));
    assert_eq!(element(&nibbles, 1).to_i128(), Some(-8));
    let joined = eval(&BitcastConvertType { new_dtype: DType::U8 }.into(), &[nibbles]).unwrap();
    assert_eq!(element(&joined, 0).to_i128(), Some(0x8f));
}

#[test]
fn scalars_broadcast() {
    let x = array(&[1.0f32, 2.0].map(Scalar::new));
    let y = Scalar::new(10.0f32).to_tensor().unwrap();
    let sum = eval(&Binary::Add.into(), &[x, y]).unwrap();
    assert_eq!(sum.elements::<f32>().unwrap(), [11.0, 12.0]);
}

#[test]
fn weak_types() {
    let weak = |dtype| Type::Array(ArrayType::scalar(dtype).with_weak(true));
    let strong = |dtype| Type::Array(ArrayType::scalar(dtype));
    let of = |op: Op, types: &[Type]| op.infer(types).unwrap()[0].as_array().unwrap().weak;
    let f = DType::F32;
    assert!(of(Binary::Add.into(), &[weak(f), weak(f)]));
    assert!(!of(Binary::Add.into(), &[weak(f), strong(f)]));
    assert!(of(Compare::Eq.into(), &[weak(f), weak(f)]));
    assert!(of(SelectN {}.into(), &[strong(DType::Bool), weak(f), weak(f)]));
    assert!(of(Unary::Sin.into(), &[weak(f)]));
    assert!(!of(Binary::Pow.into(), &[weak(f), strong(DType::I32)]));
    assert!(!of(BitcastConvertType { new_dtype: DType::I32 }.into(), &[weak(f)]));
    assert!(of(ConvertElementType { new_dtype: f, weak_type: true }.into(), &[strong(DType::I8)]));
}

#[test]
fn refusals() {
    let ty = |dtype: DType, sizes: &[usize]| Type::Array(ArrayType::of_sizes(sizes, dtype));
    let (f32, i32, bool) = (DType::F32, DType::I32, DType::Bool);
    let key = DType::Key(KeyImpl::THREEFRY2X32);
    let table: Vec<(Op, Vec<Type>, &str)> = vec![
        (
            Unary::Sin.into(),
            vec![ty(i32, &[])],
            "sin does not accept dtype int32: it takes floating, complexfloating.",
        ),
        (Unary::Neg.into(), vec![ty(bool, &[])], "neg does not accept dtype bool: it takes"),
        (Unary::Abs.into(), vec![ty(DType::U8, &[])], "it takes signedinteger, floating, complexfloating."),
        (
            Unary::Exp.into(),
            vec![ty(DType::F8E5M2, &[])],
            "can be stored, moved and converted but not computed with",
        ),
        (
            Binary::Add.into(),
            vec![ty(bool, &[]), ty(bool, &[])],
            "add does not accept dtype bool for operand 0, which takes integer",
        ),
        (
            Binary::Add.into(),
            vec![ty(f32, &[3]), ty(i32, &[3])],
            "lax.add: all arguments need one dtype, got float32, int32.",
        ),
        (Binary::Add.into(), vec![ty(f32, &[3]), ty(f32, &[4])], "add: shapes (3,) and (4,) differ."),
        (
            Binary::Add.into(),
            vec![ty(f32, &[3]), ty(f32, &[1, 3])],
            "add: the ranks of the arrays differ: (3,), (1, 3).",
        ),
        (Binary::Pow.into(), vec![ty(f32, &[]), ty(DType::BF16, &[])], "got float32 and bfloat16."),
        (
            Binary::Complex.into(),
            vec![ty(DType::F16, &[]); 2],
            "complex does not accept dtype float16 for operand 0",
        ),
        (
            Compare::Lt.into(),
            vec![ty(DType::C64, &[]); 2],
            "lt does not accept dtype complex64 for operand 0",
        ),
        (Compare::Lt.into(), vec![ty(key, &[]); 2], "lt does not accept dtype key<fry> for operand 0"),
        (IntegerPow { y: -2 }.into(), vec![ty(i32, &[3])], "the power of an integer must not be negative"),
        (
            SelectN {}.into(),
            vec![ty(f32, &[]), ty(f32, &[]), ty(f32, &[])],
            "`which` is of booleans or integers",
        ),
        (
            SelectN {}.into(),
            vec![ty(bool, &[4]), ty(f32, &[3]), ty(f32, &[3])],
            "got shape (4,) for cases of shape (3,).",
        ),
        (
            SelectN {}.into(),
            vec![ty(bool, &[]), ty(f32, &[3]), ty(f32, &[4])],
            "select: all cases need one shape, got [(3,), (4,)].",
        ),
        (
            Clamp {}.into(),
            vec![ty(f32, &[2]), ty(f32, &[3]), ty(f32, &[])],
            "clamp requires min.shape == operand.shape or min.shape == (), got min.shape=(2,), operand.shape=(3,).",
        ),
        (
            BitcastConvertType { new_dtype: f32 }.into(),
            vec![ty(DType::U8, &[3])],
            "bitcast_convert_type of shape (3,) from uint8 to float32: the last axis needs 32 / 8 elements, it has 3",
        ),
        (
            BitcastConvertType { new_dtype: f32 }.into(),
            vec![ty(DType::C64, &[3])],
            "have no bits to reinterpret",
        ),
        (
            ConvertElementType { new_dtype: f32, weak_type: false }.into(),
            vec![ty(key, &[])],
            "Cannot convert_element_type from key<fry> to float32",
        ),
        (Unary::Sin.into(), vec![ty(f32, &[]); 2], "sin takes 1 operands, got 2"),
    ];
    for (op, types, expected) in table {
        let error = op.infer(&types).map(|types| format!("{types:?}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{op:?}: {error}");
    }
}

/// Every register type is what elements of some dtype are computed in.
#[test]
fn registers() {
    for dtype in DType::ALL.iter().copied().filter(|&dtype| dtype != DType::Float0) {
        assert!(
            ScalarType::of(dtype).unwrap().size() >= dtype.size() / if dtype.is_complex() { 2 } else { 1 }
        );
    }
}
