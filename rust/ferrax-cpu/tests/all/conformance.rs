//! Every op over dtypes and shapes: compiled against the reference interpreter.

#![allow(clippy::cloned_ref_to_slice_refs, reason = "operands are lists")]

use crate::common::{Random, check_with, compare, fill};
use ferrax_cpu::{compile, run_op};
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, Builder, DType, Dim, Op, Scalar, Shape, Tensor, Type};

const NUMBERS: &[DType] = &[
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::BF16,
    DType::F16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
];

fn shape(sizes: &[usize]) -> Shape {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

/// Special values in front of random ones.
fn specials(dtype: DType, sizes: &[usize], seed: u64) -> Tensor {
    let mut tensor = fill(dtype, sizes, seed);
    let count = tensor.len();
    let size = dtype.size();
    let mut values: Vec<Scalar> = Vec::new();
    if dtype.is_float() {
        for x in
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 2.5, -3.5, 1e30]
        {
            values.push(Scalar::from_f64(dtype, x));
        }
    } else if dtype.is_integer() {
        let bits = dtype.bits() as u32;
        for pattern in [0u128, 1, u128::MAX, 1 << (bits - 1), (1 << (bits - 1)) - 1, 7] {
            values.push(Scalar::from_bits(dtype, pattern));
        }
    }
    let mut random = Random::new(seed);
    let bytes = tensor.bytes_mut().unwrap();
    for index in 0..count.min(values.len() * 3) {
        if !values.is_empty() {
            let value = values[(index + random.below(values.len())) % values.len()];
            bytes[index * size..(index + 1) * size].copy_from_slice(&value.bytes());
        }
    }
    tensor
}

/// Checks one op if its type rule takes these operands; tells whether it did.
fn try_op(op: impl Into<Op>, inputs: &[Tensor], ulps: u64) -> bool {
    let op = op.into();
    let types: Vec<Type> = inputs.iter().map(|tensor| tensor.array_type().into()).collect();
    if op.infer(&types).is_err() {
        return false;
    }
    let mut b = Builder::new(op.name());
    let atoms: Vec<_> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let outputs = b.emit(op.clone(), &atoms).unwrap();
    let program = b.finish(outputs.into_iter().map(Into::into));
    let want = match ferrax_ir::interpret::run(&program, inputs) {
        Ok(want) => want,
        Err(error) => panic!("{}: {error}", op.name()),
    };
    let what = || {
        let types: Vec<_> = inputs.iter().map(|t| t.array_type().to_string()).collect();
        format!("{} {:?} of {}", op.name(), op.params(), types.join(", "))
    };
    let got = compile(&program).unwrap_or_else(|error| panic!("{}: {error}", what())).run(inputs).unwrap();
    let eager = run_op(&op, inputs).unwrap();
    for ((got, want), eager) in got.iter().zip(&want).zip(&eager) {
        assert_eq!((got.dtype(), got.sizes()), (want.dtype(), want.sizes()), "{}", what());
        compare(got, want, ulps, &what());
        assert_eq!(got, eager, "{}", what());
    }
    true
}

#[test]
fn unary_ops() {
    for &op in Unary::ALL {
        let mut taken = 0;
        for &dtype in NUMBERS {
            for sizes in [&[][..], &[0], &[37], &[3, 65]] {
                let exact = matches!(
                    op,
                    Unary::Neg
                        | Unary::Sign
                        | Unary::Floor
                        | Unary::Ceil
                        | Unary::IsFinite
                        | Unary::Abs
                        | Unary::Not
                        | Unary::PopulationCount
                        | Unary::Clz
                        | Unary::Real
                        | Unary::Imag
                        | Unary::Conj
                        | Unary::Square
                        | Unary::Sqrt
                ) && !dtype.is_complex();
                // Near the zeros of these the error is absolute.
                let ulps = match op {
                    _ if exact => 0,
                    Unary::Lgamma | Unary::Digamma => 4096,
                    _ => 64,
                };
                taken += usize::from(try_op(op, &[specials(dtype, sizes, 5)], ulps));
            }
        }
        assert!(taken > 0, "{}", op.op_name());
    }
}

#[test]
fn binary_and_compare_ops() {
    for &dtype in NUMBERS {
        for (left, right) in
            [(&[][..], &[][..]), (&[0], &[0]), (&[150], &[150]), (&[4, 33], &[]), (&[], &[4, 33])]
        {
            let (x, y) = (specials(dtype, left, 1), specials(dtype, right, 2));
            for &op in Binary::ALL {
                let exact = !matches!(op, Binary::Pow | Binary::Atan2) && !dtype.is_complex();
                try_op(op, &[x.clone(), y.clone()], if exact { 0 } else { 64 });
            }
            for &op in Compare::ALL {
                assert!(try_op(op, &[x.clone(), y.clone()], 0) || dtype.is_complex() || dtype == DType::Bool);
            }
        }
    }
}

#[test]
fn conversions() {
    let all: Vec<DType> = DType::ALL.iter().copied().filter(|&dtype| dtype != DType::Float0).collect();
    for &from in &all {
        for &to in &all {
            for sizes in [&[][..], &[45]] {
                let x = specials(from, sizes, 9);
                try_op(ConvertElementType { new_dtype: to, weak_type: false }, std::slice::from_ref(&x), 0);
                try_op(BitcastConvertType { new_dtype: to }, &[x], 0);
            }
        }
    }
}

#[test]
fn other_elementwise_ops() {
    for &dtype in NUMBERS {
        let x = |seed| specials(dtype, &[5, 21], seed);
        for rounding_method in [0, 1] {
            try_op(Round { rounding_method }, &[x(1)], 0);
        }
        for y in [-3, -1, 0, 1, 2, 5, 10] {
            try_op(IntegerPow { y }, &[x(1)], 64);
        }
        for (exponent_bits, mantissa_bits) in [(5, 10), (8, 7), (4, 3), (8, 23), (11, 52)] {
            try_op(ReducePrecision { exponent_bits, mantissa_bits }, &[x(1)], 0);
        }
        assert!(try_op(SelectN {}, &[specials(DType::Bool, &[5, 21], 1), x(2), x(3)], 0));
        assert!(try_op(SelectN {}, &[specials(DType::Bool, &[], 1), x(2), x(3)], 0));
        let three =
            Tensor::from_elements([5usize, 21].as_slice(), &[0i32, 1, 2, 1, 0, 2, 2].repeat(15)).unwrap();
        assert!(try_op(SelectN {}, &[three, x(2), x(3), x(4)], 0));
        try_op(Clamp {}, &[x(1), x(2), x(3)], 0);
        try_op(Clamp {}, &[fill(dtype, &[], 1), x(2), fill(dtype, &[], 3)], 0);
        assert!(try_op(StopGradient {}, &[x(1)], 0));
        assert!(try_op(Copy {}, &[x(1)], 0));
    }
}

#[test]
fn movement_ops() {
    for &dtype in &[DType::F32, DType::I8, DType::BF16, DType::C128, DType::Bool, DType::I4, DType::F8E4M3FN]
    {
        let x = fill(dtype, &[3, 4, 5], 1);
        let taken = [
            try_op(
                BroadcastInDim { shape: shape(&[2, 3, 4, 5]), broadcast_dimensions: [1, 2, 3][..].into() },
                &[x.clone()],
                0,
            ),
            try_op(
                BroadcastInDim { shape: shape(&[6, 70]), broadcast_dimensions: [0][..].into() },
                &[fill(dtype, &[6], 1)],
                0,
            ),
            try_op(
                BroadcastInDim { shape: shape(&[6, 70]), broadcast_dimensions: [][..].into() },
                &[fill(dtype, &[], 1)],
                0,
            ),
            try_op(
                BroadcastInDim { shape: shape(&[6, 7]), broadcast_dimensions: [0, 1][..].into() },
                &[fill(dtype, &[6, 1], 1)],
                0,
            ),
            try_op(Reshape { new_sizes: shape(&[12, 5]), dimensions: None }, &[x.clone()], 0),
            try_op(Transpose { permutation: [2, 0, 1][..].into() }, &[x.clone()], 0),
            try_op(Transpose { permutation: [1, 0][..].into() }, &[fill(dtype, &[200, 130], 1)], 0),
            try_op(Squeeze { dimensions: [1][..].into() }, &[fill(dtype, &[3, 1, 4], 1)], 0),
            try_op(
                Slice {
                    start_indices: shape(&[1, 0, 2]),
                    limit_indices: shape(&[3, 4, 5]),
                    strides: Some([1, 2, 2][..].into()),
                },
                &[x.clone()],
                0,
            ),
            try_op(Rev { dimensions: [0, 2][..].into() }, &[x.clone()], 0),
            try_op(
                Concatenate { dimension: 1 },
                &[x.clone(), fill(dtype, &[3, 2, 5], 2), fill(dtype, &[3, 0, 5], 2)],
                0,
            ),
            try_op(
                Pad { padding_config: vec![(1, 2, 0), (0, 0, 0), (-1, 3, 0)] },
                &[x.clone(), fill(dtype, &[], 4)],
                0,
            ),
            try_op(
                Pad { padding_config: vec![(1, 2, 1), (-2, 0, 2), (-1, -3, 1)] },
                &[x.clone(), fill(dtype, &[], 4)],
                0,
            ),
            try_op(Pad { padding_config: vec![(1, 2, 0)] }, &[fill(dtype, &[0], 1), fill(dtype, &[], 4)], 0),
            try_op(Pad { padding_config: vec![(-2, 0, 3)] }, &[fill(dtype, &[4], 1), fill(dtype, &[], 4)], 0),
        ];
        assert_eq!(taken, [true; 15], "{dtype}");
        for dimension in [0, 1, 2] {
            try_op(Iota { dtype, shape: shape(&[3, 200, 4]), dimension }, &[], 0);
        }
    }
}

#[test]
fn reductions() {
    for &dtype in NUMBERS {
        for (sizes, axes) in [
            (&[6][..], &[0][..]),
            (&[0], &[0]),
            (&[0, 3], &[0]),
            (&[5, 1], &[1]),
            (&[40, 7], &[0]),
            (&[40, 7], &[1]),
            (&[7, 400], &[1]),
            (&[7, 5, 9], &[0, 2]),
            (&[7, 5, 9], &[1]),
            (&[7, 5, 9], &[0, 1, 2]),
        ] {
            let x = specials(dtype, sizes, 3);
            for &kind in ReduceKind::ALL {
                // The order of zeros is free.
                let ulps = match kind {
                    _ if !dtype.is_inexact() => 0,
                    ReduceKind::Max | ReduceKind::Min => 1,
                    _ => 2000,
                };
                try_op(Reduce { kind, axes: axes.into() }, &[x.clone()], ulps);
            }
            for &kind in ArgKind::ALL {
                for index_dtype in [DType::I32, DType::U8] {
                    try_op(ArgReduce { kind, axes: axes.into(), index_dtype }, &[x.clone()], 0);
                }
            }
        }
    }
}

#[test]
fn cumulative_ops() {
    for &dtype in NUMBERS {
        for (sizes, axis) in [(&[9][..], 0), (&[0], 0), (&[40, 7], 0), (&[40, 7], 1), (&[3, 50, 2], 1)] {
            for &kind in CumulativeKind::ALL {
                for reverse in [false, true] {
                    let x = fill(dtype, sizes, 3);
                    try_op(Cumulative { kind, axis, reverse }, &[x], 2000);
                }
            }
        }
    }
}

/// Dtypes whose elements are stored in a byte that they do not fill, or are only stored.
const SMALL: &[DType] = &[
    DType::I2,
    DType::I4,
    DType::U2,
    DType::U4,
    DType::F4E2M1FN,
    DType::F8E3M4,
    DType::F8E4M3,
    DType::F8E4M3B11FNUZ,
    DType::F8E4M3FN,
    DType::F8E4M3FNUZ,
    DType::F8E5M2,
    DType::F8E5M2FNUZ,
    DType::F8E8M0FNU,
];

/// NaNs of both signs and, for complex numbers, NaN and zeros in either part, among few values.
fn sortable(dtype: DType, sizes: &[usize], seed: u64) -> Tensor {
    let mut tensor = specials(dtype, sizes, seed);
    let (count, size, part) = (tensor.len(), dtype.size(), dtype.real().size());
    let mut random = Random::new(seed + 9);
    let bytes = tensor.bytes_mut().unwrap();
    for _ in 0..count / 4 {
        let value = [f64::NAN, -f64::NAN, 0.0, -0.0, 1.0][random.below(5)];
        let at = random.below(count) * size + random.below(size / part) * part;
        if dtype.is_inexact() {
            bytes[at..at + part].copy_from_slice(&Scalar::from_f64(dtype.real(), value).bytes());
        }
    }
    tensor
}

#[test]
fn sorts() {
    for (number, &dtype) in NUMBERS.iter().chain(SMALL).enumerate() {
        for (sizes, axis) in [
            (&[9][..], 0),
            (&[1], 0),
            (&[0], 0),
            (&[3, 0], 0),
            (&[0, 3], 1),
            (&[1500], 0),
            (&[40, 7], 0),
            (&[40, 7], 1),
            (&[3, 150, 2], 1),
            (&[70, 300], 1),
        ] {
            let dtypes = [dtype, NUMBERS[number % NUMBERS.len()], NUMBERS[(number + 5) % NUMBERS.len()]];
            let xs = [0, 1, 2].map(|i| sortable(dtypes[i], sizes, i as u64 + 3));
            for (count, num_keys) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)] {
                let op = Sort { dimension: axis, is_stable: true, num_keys };
                assert!(try_op(op, &xs[..count], 0), "{dtype}");
            }
            for k in [0, 1, 3, sizes[axis] / 2, sizes[axis]] {
                if k <= sizes[axis] {
                    let taken = try_op(TopK { axis, k }, &[xs[0].clone()], 0);
                    assert_eq!(taken, !dtype.is_complex(), "{dtype}");
                }
            }
        }
    }
}

/// Long lines are shared by threads, and larger ones are read in pieces.
#[test]
fn sorts_of_long_lines() {
    for dtype in [DType::F32, DType::F64, DType::I8, DType::C64] {
        let x = sortable(dtype, &[150_000], 1);
        let places = Tensor::from_elements(vec![150_000], &(0..150_000).collect::<Vec<i32>>()).unwrap();
        let op = Sort { dimension: 0, is_stable: true, num_keys: 1 };
        assert!(try_op(op.clone(), &[x.clone()], 0));
        assert!(try_op(op, &[x.clone(), places], 0));
        for k in [1, 10, 30_000, 100_000] {
            assert_eq!(try_op(TopK { axis: 0, k }, &[x.clone()], 0), !dtype.is_complex());
        }
    }
}

#[test]
fn keys_of_prngs_and_nothing_are_sorted_along() {
    let places = Tensor::from_elements(vec![5], &[3i32, 1, 4, 1, 5]).unwrap();
    let key = DType::Key(ferrax_ir::KeyImpl::THREEFRY2X32);
    let op = Sort { dimension: 0, is_stable: true, num_keys: 1 };
    assert!(try_op(op.clone(), &[places.clone(), fill(key, &[5], 1)], 0));
    assert!(!try_op(op, &[fill(key, &[5], 1), places], 0));
}

#[test]
fn products() {
    for &dtype in NUMBERS {
        let dot = |lc: &[usize], rc: &[usize], lb: &[usize], rb: &[usize]| DotGeneral {
            lhs_contracting: lc.into(),
            rhs_contracting: rc.into(),
            lhs_batch: lb.into(),
            rhs_batch: rb.into(),
            precision: None,
            preferred_element_type: None,
        };
        let x = |sizes: &[usize]| fill(dtype, sizes, 1);
        let y = |sizes: &[usize]| fill(dtype, sizes, 2);
        for (op, l, r) in [
            (dot(&[1], &[0], &[], &[]), &[3, 4][..], &[4, 5][..]),
            (dot(&[0], &[1], &[], &[]), &[4, 3], &[5, 4]),
            (dot(&[0], &[0], &[], &[]), &[40], &[40]),
            (dot(&[], &[], &[], &[]), &[4], &[5]),
            (dot(&[1], &[0], &[], &[]), &[33, 70], &[70]),
            (dot(&[0], &[0], &[], &[]), &[70], &[70, 20]),
            (dot(&[2], &[1], &[0], &[0]), &[6, 3, 4], &[6, 4, 5]),
            (dot(&[1], &[1], &[0], &[2]), &[6, 4, 3], &[5, 4, 6]),
            (dot(&[1, 3], &[2, 0], &[], &[]), &[2, 3, 5, 4], &[4, 6, 3]),
            (dot(&[1], &[0], &[], &[]), &[100, 64], &[64, 130]),
            (dot(&[1], &[0], &[], &[]), &[3, 0], &[0, 5]),
            (dot(&[1], &[0], &[], &[]), &[0, 4], &[4, 5]),
        ] {
            assert!(try_op(op, &[x(l), y(r)], 20_000) || dtype == DType::Bool, "{dtype} {l:?} {r:?}");
        }
    }
    let wide = DotGeneral {
        lhs_contracting: [1][..].into(),
        rhs_contracting: [0][..].into(),
        lhs_batch: [][..].into(),
        rhs_batch: [][..].into(),
        precision: None,
        preferred_element_type: Some(DType::F32),
    };
    for dtype in [DType::BF16, DType::F16] {
        assert!(try_op(wide.clone(), &[fill(dtype, &[9, 40], 1), fill(dtype, &[40, 8], 2)], 100));
    }
    let wide = DotGeneral { preferred_element_type: Some(DType::I32), ..wide };
    assert!(try_op(wide, &[fill(DType::I8, &[9, 40], 1), fill(DType::I8, &[40, 8], 2)], 0));
}

#[test]
fn dynamic_slices() {
    let index = |value: i32| Tensor::from_elements([0usize; 0].as_slice(), &[value]).unwrap();
    for &dtype in &[DType::F32, DType::I8, DType::C128] {
        let x = fill(dtype, &[6, 7], 1);
        for (i, j) in [(0, 0), (2, 3), (-1, 100), (5, -2)] {
            let op = DynamicSlice { slice_sizes: shape(&[3, 4]) };
            assert!(try_op(op, &[x.clone(), index(i), index(j)], 0));
            assert!(try_op(
                DynamicUpdateSlice {},
                &[x.clone(), fill(dtype, &[3, 4], 2), index(i), index(j)],
                0
            ));
        }
    }
}

#[test]
fn random_ops() {
    let words = |seed| fill(DType::U32, &[300], seed);
    assert!(
        try_op(Threefry2x32 {}, &[fill(DType::U32, &[], 1), fill(DType::U32, &[], 2), words(3), words(4)], 0)
            || try_op(Threefry2x32 {}, &[words(1), words(2), words(3), words(4)], 0)
    );
    let raw = fill(DType::U32, &[3, 2], 1);
    let wrap = RandomWrap { r#impl: "threefry2x32".into() };
    assert!(try_op(wrap.clone(), &[raw.clone()], 0));
    let keys = run_op(&wrap.into(), &[raw]).unwrap().remove(0);
    assert!(try_op(RandomUnwrap {}, &[keys.clone()], 0));
    for bit_width in [8, 16, 32, 64] {
        assert!(try_op(RandomBits { bit_width, shape: shape(&[5, 3]) }, &[keys.clone()], 0));
    }
    assert!(try_op(RandomSplit { shape: shape(&[4]) }, &[keys.clone()], 0));
    assert!(try_op(RandomFoldIn {}, &[keys.clone(), fill(DType::U32, &[3], 4)], 0));
    assert!(try_op(RandomSeed { r#impl: "threefry2x32".into() }, &[fill(DType::I32, &[4], 4)], 0));
    // Keys move like anything else.
    assert!(try_op(Rev { dimensions: [0][..].into() }, &[keys.clone()], 0));
    assert!(try_op(Concatenate { dimension: 0 }, &[keys.clone(), keys], 0));
}

#[test]
fn results_do_not_depend_on_alignment_of_sizes() {
    // Sizes around block boundaries.
    for n in [1usize, 15, 16, 63, 64, 65, 127, 129, 1023, 1024, 1025, 2049, 5000] {
        let mut b = Builder::new("edges");
        let x = b.input(ArrayType::of_sizes(&[n], DType::F32));
        let y = b.mul(x, x).unwrap();
        let z = b.sub(y, x).unwrap();
        let s = b.reduce_sum(z, &[0]).unwrap();
        let program = b.finish([z, s]);
        check_with(&program, &[fill(DType::F32, &[n], 1)], 100);
    }
}
