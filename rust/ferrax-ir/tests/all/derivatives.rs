//! Derivatives of elementwise rows: against differences, at singular points,
//! transposes against their definition, batches against loops.

use crate::common::{complex, element, eval, jvp, parts, rules};
use ferrax_ir::ops::*;
use ferrax_ir::rules::{Batch, Operand, Transpose as TransposeEquation};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Op, Scalar, Sizes, Tensor, Type, interpret};

fn at(op: &Op, point: &[Scalar]) -> (f64, f64) {
    let inputs: Vec<Tensor> = point.iter().map(|x| x.to_tensor().unwrap()).collect();
    parts(element(&eval(op, &inputs).unwrap(), 0))
}

/// The tangent by central differences along one operand.
fn difference(op: &Op, point: &[Scalar], operand: usize, direction: (f64, f64)) -> (f64, f64) {
    let (re, im) = parts(point[operand]);
    let h = 1e-6 * re.hypot(im).max(0.1);
    let shifted = |by: f64| {
        let mut point = point.to_vec();
        point[operand] = match point[operand].dtype() {
            DType::C128 => complex(DType::C128, re + by * direction.0, im + by * direction.1),
            _ => Scalar::new(re + by * direction.0),
        };
        at(op, &point)
    };
    let (above, below) = (shifted(h), shifted(-h));
    ((above.0 - below.0) / (2.0 * h), (above.1 - below.1) / (2.0 * h))
}

fn check(op: impl Into<Op>, point: &[Scalar]) {
    let op = op.into();
    for operand in 0..point.len() {
        let directions: &[(f64, f64)] =
            if point[operand].dtype().is_complex() { &[(1.0, 0.0), (0.0, 1.0)] } else { &[(1.0, 0.0)] };
        for &direction in directions {
            let seed = match point[operand].dtype() {
                DType::C128 => complex(DType::C128, direction.0, direction.1),
                _ => Scalar::new(direction.0),
            };
            let mut tangents = vec![None; point.len()];
            tangents[operand] = Some(seed);
            let (value, tangent) = jvp(&op, point, &tangents).unwrap();
            let expected = difference(&op, point, operand, direction);
            let got = tangent.map_or((0.0, 0.0), parts);
            assert!(tangent.is_none_or(|tangent| tangent.dtype() == value.dtype()));
            let error = (got.0 - expected.0).hypot(got.1 - expected.1);
            assert!(
                error <= 1e-7 * (1.0 + expected.0.hypot(expected.1)),
                "{op:?} at {:?} along {operand}, {direction:?}: {got:?}, expected {expected:?}",
                point.iter().map(|&x| parts(x)).collect::<Vec<_>>()
            );
        }
    }
}

fn real(values: &[f64]) -> Vec<Scalar> {
    values.iter().map(|&x| Scalar::new(x)).collect()
}

/// Points of the domains of all functions; an op is tested where it is finite nearby.
const POINTS: [f64; 16] =
    [-2.6, -2.3, -0.9, -0.5, -0.4, -0.3, 0.1, 0.3, 0.6, 0.7, 1.2, 1.3, 1.7, 3.2, 7.3, 19.3];

#[test]
fn unary_functions() {
    let accepts = |op: Unary, dtype: DType| op.row().accepts().iter().any(|group| group.holds(dtype));
    for &op in Unary::ALL {
        let result = |dtype: DType| {
            Op::from(op).infer(&[ArrayType::scalar(dtype).into()]).unwrap()[0].as_array().unwrap().dtype
        };
        if accepts(op, DType::F64) && result(DType::F64) == DType::F64 {
            let finite = |x: f64| at(&op.into(), &real(&[x])).0.is_finite();
            let domain: Vec<f64> =
                POINTS.into_iter().filter(|x| finite(x - 0.01) && finite(x + 0.01)).collect();
            assert!(domain.len() >= 4, "{op:?} has no domain");
            for x in domain {
                check(op, &real(&[x]));
            }
        }
        // The differences of sign(z) are not those of its derivative, which is zero by convention.
        let holomorphic = !matches!(op, Unary::Conj | Unary::Sign);
        if holomorphic && accepts(op, DType::C128) && result(DType::C128) == DType::C128 {
            for (re, im) in [(0.3, -0.6), (-1.4, 0.7), (2.0, 1.1), (-2.5, -0.3)] {
                check(op, &[complex(DType::C128, re, im)]);
            }
        }
    }
    for op in [Unary::Real, Unary::Imag, Unary::Conj, Unary::Abs] {
        check(op, &[complex(DType::C128, 0.3, -0.6)]);
    }
    check(Unary::Conj, &real(&[0.4]));
    for y in [0, 1, 2, 3, -1, -3] {
        check(IntegerPow { y }, &real(&[1.3]));
        check(IntegerPow { y }, &[complex(DType::C128, 0.3, -0.6)]);
    }
}

#[test]
fn binary_functions() {
    let floats = |op: &&Binary| {
        let row = op.row();
        row.accepts().iter().any(|group| group.holds(DType::F64))
            && !matches!(row.derivative, BinaryDerivative::Missing)
    };
    for &op in Binary::ALL.iter().filter(floats) {
        for point in [[1.3, 2.1], [5.5, 1.2], [0.4, -3.0]] {
            check(op, &real(&point));
        }
        // Maxima of complex numbers go by their real parts: they are not holomorphic.
        let ordered = matches!(op, Binary::Max | Binary::Min);
        if op.row().complex.is_some() && !ordered {
            check(op, &[complex(DType::C128, 0.3, -0.6), complex(DType::C128, 1.4, 0.5)]);
        }
    }
    for x in [-2.0, 0.5, 3.0] {
        check(Clamp {}, &real(&[-1.0, x, 1.0]));
    }
}

/// The tangent for a unit tangent of one operand.
fn slope(op: impl Into<Op>, point: &[f64], operand: usize) -> f64 {
    let mut tangents = vec![None; point.len()];
    tangents[operand] = Some(Scalar::new(1.0f64));
    jvp(&op.into(), &real(point), &tangents).unwrap().1.map_or(0.0, |tangent| parts(tangent).0)
}

#[test]
fn singular_points() {
    assert_eq!(slope(Unary::Abs, &[0.0], 0), 1.0);
    assert_eq!(slope(Unary::Abs, &[-2.0], 0), -1.0);
    assert_eq!(slope(Unary::Sqrt, &[0.0], 0), f64::INFINITY);
    assert_eq!(slope(Unary::Sign, &[0.0], 0), 0.0);
    for op in [Binary::Max, Binary::Min] {
        assert_eq!([slope(op, &[1.0, 1.0], 0), slope(op, &[1.0, 1.0], 1)], [0.5, 0.5]);
    }
    assert_eq!([slope(Binary::Max, &[2.0, 1.0], 0), slope(Binary::Max, &[2.0, 1.0], 1)], [1.0, 0.0]);
    // At a bound, neither the operand nor the bound has a slope.
    for operand in 0..3 {
        assert_eq!(slope(Clamp {}, &[0.0, 0.0, 1.0], operand), 0.0);
        assert_eq!(slope(Clamp {}, &[0.0, 1.0, 1.0], operand), 0.0);
    }
    assert_eq!(slope(Clamp {}, &[0.0, 2.0, 1.0], 2), 1.0);
    assert_eq!(slope(Binary::Pow, &[0.0, 0.0], 0), 0.0);
    assert_eq!(slope(Binary::Pow, &[0.0, 1.0], 0), 1.0);
    assert_eq!(slope(Binary::Pow, &[2.0, 0.0], 0), 0.0);
    assert_eq!(slope(Binary::Pow, &[0.0, 2.0], 1), 0.0);
    assert!(slope(Binary::Pow, &[-1.0, 2.0], 1).is_nan());
    assert_eq!(slope(Binary::Pow, &[0.0, 0.5], 0), f64::INFINITY);
    let with_int = |n: i32| {
        let point = [Scalar::new(0.0f64), Scalar::new(n)];
        jvp(&Binary::Pow.into(), &point, &[Some(Scalar::new(1.0f64)), None]).unwrap().1.map(|t| parts(t).0)
    };
    assert_eq!([with_int(0), with_int(1), with_int(2)], [Some(0.0), Some(1.0), Some(0.0)]);
    assert_eq!(slope(IntegerPow { y: 0 }, &[0.0], 0), 0.0);
    assert_eq!(slope(Unary::Digamma, &[0.0], 0), f64::INFINITY);
    assert_eq!(slope(Unary::Digamma, &[-1.0], 0), f64::INFINITY);
    let refused = jvp(&Binary::Nextafter.into(), &real(&[1.0, 2.0]), &[Some(Scalar::new(1.0f64)), None]);
    assert_eq!(refused.unwrap_err().to_string(), "Differentiation rule for 'nextafter' not implemented");
    let zero = complex(DType::C128, 0.0, 0.0);
    let (_, tangent) = jvp(&Unary::Abs.into(), &[zero], &[Some(complex(DType::C128, 1.0, 1.0))]).unwrap();
    assert_eq!(parts(tangent.unwrap()), (0.0, 0.0));
}

#[test]
fn roots_and_squares_at_extremes() {
    assert_eq!(slope(Unary::Cbrt, &[0.0], 0), f64::INFINITY);
    assert_eq!(slope(Unary::Cbrt, &[-8.0], 0), 1.0 / 12.0);
}

/// The n-th derivative of digamma at `x`, by differentiating so often.
fn polygamma(n: usize, x: f64) -> f64 {
    let ty = ArrayType::scalar(DType::F64);
    let mut b = Builder::new("digamma");
    let input = b.input(ty.clone());
    let value = b.unary(Unary::Digamma, input).unwrap();
    let mut program = b.finish([value]);
    for _ in 0..n {
        // The tangent for a unit tangent of the input, rule by rule.
        let mut b = Builder::new("tangent");
        let input = b.input(ty.clone());
        let one = b.scalar(DType::F64, 1.0);
        let mut values = std::collections::HashMap::new();
        let source = program.inputs[0];
        values.insert(source, (input, Some(one)));
        let of = |values: &std::collections::HashMap<_, (Atom, Option<Atom>)>, atom: Atom| match atom {
            Atom::Var(var) => values[&var],
            literal => (literal, None),
        };
        for equation in &program.equations {
            let (inputs, tangents): (Vec<Atom>, Vec<Option<Atom>>) =
                equation.inputs.iter().map(|&atom| of(&values, atom)).unzip();
            let out = b.emit1(equation.op.clone(), &inputs).unwrap();
            let eqn = ferrax_ir::rules::Jvp { inputs: &inputs, tangents: &tangents, outputs: &[out] };
            let tangent = rules(&equation.op).jvp(&mut b, &eqn).unwrap()[0];
            values.insert(equation.outputs[0], (out, tangent));
        }
        let (_, tangent) = of(&values, program.outputs[0]);
        program = b.finish([tangent.unwrap()]);
    }
    parts(element(&interpret::run(&program, &[Scalar::new(x).to_tensor().unwrap()]).unwrap()[0], 0)).0
}

/// Values of scipy.special.polygamma; below 0 by its reflection.
#[test]
fn derivatives_of_digamma_of_any_order() {
    let table = [
        (2, 1.0, -2.404_113_806_319_188_5),
        (2, 2.0, -0.404_113_806_319_188_6),
        (2, 0.25, -129.327_739_937_536_88),
        (3, 1.0, 6.493_939_402_266_829),
        (3, 7.5, 0.005_772_436_656_578_693),
        (4, 3.0, -0.136_266_123_440_878_24),
        (2, -0.5, -0.828_796_644_234_321_2),
    ];
    for (order, x, expected) in table {
        let got = polygamma(order, x);
        assert!((got / expected - 1.0).abs() < 1e-11, "{order} at {x}: {got}, expected {expected}");
    }
}

#[test]
fn trigamma() {
    let table = [
        (0.1, 101.433_299_150_792_75),
        (0.5, 4.934_802_200_544_679),
        (1.0, 1.644_934_066_848_226_4),
        (7.0, 0.153_545_177_959_337_56),
        (30.0, 0.033_895_060_357_739_946),
        (-0.3, 13.945_160_267_805_722),
        (-7.7, 14.957_612_844_863_727),
        (1e-5, 10_000_000_001.644_909),
    ];
    for (x, expected) in table {
        let got = slope(Unary::Digamma, &[x], 0);
        assert!((got / expected - 1.0).abs() < 1e-13, "at {x}: {got}, expected {expected}");
    }
}

#[test]
fn tangents_take_the_shape_of_the_result() {
    let mut b = Builder::new("shapes");
    let x = b.input(ArrayType::of_sizes(&[3], DType::F32));
    let y = b.input(ArrayType::scalar(DType::F32));
    let g = b.input(ArrayType::scalar(DType::F32));
    for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Pow] {
        let out = b.binary(op, x, y).unwrap();
        let eqn = ferrax_ir::rules::Jvp { inputs: &[x, y], tangents: &[None, Some(g)], outputs: &[out] };
        let tangent = rules(&op.into()).jvp(&mut b, &eqn).unwrap()[0].unwrap();
        assert_eq!(b.shape(tangent), b.shape(out), "{op:?}");
    }
}

/// `<J dx, ct> = <dx, Jᵀ ct>` with J as the op itself for the linear operand.
fn check_transpose(op: impl Into<Op>, types: &[ArrayType], linear: &[usize]) {
    let op = op.into();
    let inputs: Vec<Type> = types.iter().cloned().map(Type::from).collect();
    let output = op.infer(&inputs).unwrap()[0].as_array().unwrap().clone();
    let values: Vec<Tensor> = types.iter().enumerate().map(|(seed, ty)| sample(ty, seed)).collect();
    let ct_value = sample(&output, 77);

    let mut b = Builder::new("transpose");
    let atoms: Vec<Atom> = types.iter().map(|ty| b.input(ty.clone())).collect();
    let ct = b.input(output.clone());
    let operands: Vec<Operand> =
        (0..types.len())
            .map(|i| {
                if linear.contains(&i) {
                    Operand::Linear(inputs[i].clone())
                } else {
                    Operand::Known(atoms[i])
                }
            })
            .collect();
    let eqn =
        TransposeEquation { inputs: &operands, outputs: &[output.clone().into()], cotangents: &[Some(ct)] };
    let results = rules(&op).transpose(&mut b, &eqn).unwrap();
    let wanted: Vec<Atom> = linear.iter().map(|&i| results[i].unwrap()).collect();
    for (&i, &atom) in linear.iter().zip(&wanted) {
        assert_eq!(b.array_type(atom).unwrap().with_weak(false), types[i], "{op:?}: cotangent {i}");
    }
    let program = b.finish(wanted);
    let mut arguments = values.clone();
    arguments.push(ct_value.clone());
    let cotangents = interpret::run(&program, &arguments).unwrap();
    let forward = dot(&eval(&op, &values).unwrap(), &ct_value);
    let backward: f64 = linear.iter().zip(&cotangents).map(|(&i, ct)| dot(&values[i], ct)).sum();
    assert!((forward - backward).abs() < 1e-9 * (1.0 + forward.abs()), "{op:?}: {forward} and {backward}");
}

fn sample(ty: &ArrayType, seed: usize) -> Tensor {
    let sizes: Sizes = ty.sizes().unwrap();
    let count: usize = sizes.iter().product();
    let number = |i: usize| ((i * 37 + seed * 11 + 5) % 19) as f64 / 7.0 - 1.2;
    let elements: Vec<u8> = (0..count)
        .flat_map(|i| match ty.dtype {
            DType::C128 => complex(DType::C128, number(i), number(i + 100)).bytes(),
            DType::Bool => Scalar::bool(i % 2 == 0).bytes(),
            dtype => Scalar::from_f64(dtype, number(i)).bytes(),
        })
        .collect();
    Tensor::from_bytes(ty.dtype, sizes, &elements).unwrap()
}

/// The bilinear pairing that JAX's transposes are with respect to: the real
/// part of the sum of products, without conjugation.
fn dot(x: &Tensor, y: &Tensor) -> f64 {
    (0..x.len())
        .map(|i| {
            let ((a, b), (c, d)) = (parts(element(x, i)), parts(element(y, i)));
            a * c - b * d
        })
        .sum()
}

#[test]
fn transposes() {
    let f = |sizes: &[usize]| ArrayType::of_sizes(sizes, DType::F64);
    let c = |sizes: &[usize]| ArrayType::of_sizes(sizes, DType::C128);
    let narrow = |dtype| ArrayType::of_sizes(&[4], dtype);
    check_transpose(Unary::Neg, &[f(&[4])], &[0]);
    check_transpose(Unary::Real, &[c(&[4])], &[0]);
    check_transpose(Unary::Imag, &[c(&[4])], &[0]);
    check_transpose(Unary::Conj, &[f(&[4])], &[0]);
    check_transpose(Binary::Add, &[f(&[4]), f(&[])], &[0, 1]);
    check_transpose(Binary::Sub, &[f(&[]), f(&[4])], &[0, 1]);
    check_transpose(Binary::Mul, &[f(&[]), f(&[4])], &[0]);
    check_transpose(Binary::Mul, &[f(&[4]), f(&[])], &[0]);
    check_transpose(Binary::Mul, &[c(&[4]), c(&[4])], &[1]);
    check_transpose(Binary::Div, &[f(&[]), f(&[4])], &[0]);
    check_transpose(Binary::Complex, &[f(&[4]), f(&[4])], &[0, 1]);
    check_transpose(SelectN {}, &[narrow(DType::Bool), f(&[4]), f(&[4])], &[1, 2]);
    check_transpose(SelectN {}, &[ArrayType::scalar(DType::Bool), f(&[4]), f(&[4])], &[1, 2]);
    check_transpose(Copy {}, &[f(&[4])], &[0]);
    check_transpose(ConvertElementType { new_dtype: DType::C128, weak_type: false }, &[f(&[4])], &[0]);
    check_transpose(ConvertElementType { new_dtype: DType::F64, weak_type: false }, &[c(&[4])], &[0]);
    let refused = rules(&Unary::Sin.into()).transpose(
        &mut Builder::new("sin"),
        &TransposeEquation {
            inputs: &[Operand::Linear(f(&[]).into())],
            outputs: &[f(&[]).into()],
            cotangents: &[None],
        },
    );
    assert!(refused.unwrap_err().to_string().contains("'sin' has no transpose rule"));
}

#[test]
fn transposes_of_products() {
    let f = |sizes: &[usize]| ArrayType::of_sizes(sizes, DType::F64);
    let axes = |axes: &[usize]| axes.iter().copied().collect();
    let op = |lc: &[usize], rc: &[usize], lb: &[usize], rb: &[usize]| DotGeneral {
        lhs_contracting: axes(lc),
        rhs_contracting: axes(rc),
        lhs_batch: axes(lb),
        rhs_batch: axes(rb),
        precision: None,
        preferred_element_type: None,
    };
    let cases = [
        (op(&[1], &[0], &[], &[]), [f(&[2, 3]), f(&[3, 4])]),
        (op(&[], &[], &[], &[]), [f(&[2]), f(&[3])]),
        (op(&[0, 3], &[2, 1], &[], &[]), [f(&[5, 2, 6, 3]), f(&[4, 3, 5])]),
        (op(&[3, 0], &[0, 2], &[1], &[3]), [f(&[5, 2, 6, 3]), f(&[3, 4, 5, 2])]),
        (op(&[0], &[0], &[], &[]), [f(&[3]), f(&[3])]),
    ];
    for (op, types) in cases {
        check_transpose(op.clone(), &types, &[0]);
        check_transpose(op, &types, &[1]);
    }
}

/// Runs the batch rule with the given operands batched along the given axes and
/// compares with the op on each slice.
fn check_batch(op: impl Into<Op>, types: &[ArrayType], dims: &[Option<usize>]) {
    const SIZE: usize = 3;
    let op = op.into();
    let batched: Vec<ArrayType> = types
        .iter()
        .zip(dims)
        .map(|(ty, dim)| {
            let mut ty = ty.clone();
            if let Some(dim) = dim {
                ty.shape.insert(*dim, Dim::Const(SIZE));
            }
            ty
        })
        .collect();
    let values: Vec<Tensor> = batched.iter().enumerate().map(|(seed, ty)| sample(ty, seed)).collect();
    let mut b = Builder::new("batch");
    let atoms: Vec<Atom> = batched.iter().map(|ty| b.input(ty.clone())).collect();
    let results = rules(&op)
        .batch(&mut b, &Batch { size: &Dim::Const(SIZE), axis_name: None, inputs: &atoms, dims })
        .unwrap();
    let (output, dim) = results[0];
    let program = b.finish([output]);
    let got = interpret::run(&program, &values).unwrap().remove(0);
    let got = take_front(&got, dim.unwrap());
    for index in 0..SIZE {
        let slices: Vec<Tensor> = values
            .iter()
            .zip(dims)
            .map(|(value, dim)| match dim {
                Some(dim) => slice(&take_front(value, *dim), index),
                None => value.clone(),
            })
            .collect();
        assert_eq!(slice(&got, index), eval(&op, &slices).unwrap(), "{op:?} {dims:?} at {index}");
    }
}

/// `tensor` with axis `dim` in front.
fn take_front(tensor: &Tensor, dim: usize) -> Tensor {
    let mut permutation: Vec<usize> = (0..tensor.rank()).filter(|&axis| axis != dim).collect();
    permutation.insert(0, dim);
    eval(&Transpose { permutation: permutation.into_iter().collect() }.into(), std::slice::from_ref(tensor))
        .unwrap()
}

fn slice(tensor: &Tensor, index: usize) -> Tensor {
    let bytes = tensor.bytes().len() / tensor.sizes()[0];
    let part = &tensor.bytes()[index * bytes..(index + 1) * bytes];
    Tensor::from_bytes(tensor.dtype(), Sizes::from_slice(&tensor.sizes()[1..]), part).unwrap()
}

#[test]
fn batches() {
    let f = |sizes: &[usize]| ArrayType::of_sizes(sizes, DType::F64);
    let bools = |sizes: &[usize]| ArrayType::of_sizes(sizes, DType::Bool);
    check_batch(Unary::Sin, &[f(&[2, 4])], &[Some(1)]);
    for dims in [[Some(0), Some(0)], [Some(1), Some(2)], [Some(2), None], [None, Some(1)]] {
        check_batch(Binary::Sub, &[f(&[2, 4]), f(&[2, 4])], &dims);
    }
    for dims in [[Some(1), Some(0)], [None, Some(0)], [Some(2), None]] {
        check_batch(Binary::Sub, &[f(&[2, 4]), f(&[])], &dims);
    }
    check_batch(Binary::Sub, &[f(&[]), f(&[])], &[Some(0), None]);
    for dims in [
        [Some(0), Some(1), None],
        [Some(0), None, None],
        [None, Some(1), Some(0)],
        [Some(2), Some(1), Some(0)],
    ] {
        check_batch(SelectN {}, &[bools(&[2, 4]), f(&[2, 4]), f(&[2, 4])], &dims);
        let scalar = [dims[0].map(|_| 0), dims[1], dims[2]];
        check_batch(SelectN {}, &[bools(&[]), f(&[2, 4]), f(&[2, 4])], &scalar);
    }
    check_batch(SelectN {}, &[bools(&[]), f(&[]), f(&[])], &[None, Some(0), None]);
    for dims in [[Some(0), None, None], [None, Some(1), None], [Some(0), Some(1), Some(0)]] {
        check_batch(Clamp {}, &[f(&[]), f(&[2, 4]), f(&[])], &dims);
    }
    check_batch(Clamp {}, &[f(&[]), f(&[]), f(&[])], &[Some(0), None, None]);
    check_batch(BitcastConvertType { new_dtype: DType::U8 }, &[f(&[2])], &[Some(1)]);
    check_batch(
        BitcastConvertType { new_dtype: DType::F64 },
        &[ArrayType::of_sizes(&[2, 8], DType::U8)],
        &[Some(2)],
    );
}

#[test]
fn batches_of_products() {
    let f = |sizes: &[usize]| ArrayType::of_sizes(sizes, DType::F64);
    let axes = |axes: &[usize]| axes.iter().copied().collect();
    let op = DotGeneral {
        lhs_contracting: axes(&[3, 0]),
        rhs_contracting: axes(&[0, 2]),
        lhs_batch: axes(&[1]),
        rhs_batch: axes(&[3]),
        precision: None,
        preferred_element_type: None,
    };
    let types = [f(&[5, 2, 6, 3]), f(&[3, 4, 5, 2])];
    for left in [None, Some(0), Some(2), Some(4)] {
        for right in [None, Some(0), Some(3), Some(4)] {
            if left.or(right).is_some() {
                check_batch(op.clone(), &types, &[left, right]);
            }
        }
    }
}

/// Convolutions with their operands' sizes: plain, strided and dilated, cropped, in another order of axes,
/// and with groups of either kind.
fn convolutions() -> Vec<(ConvGeneralDilated, [ArrayType; 2])> {
    let f = |sizes: &[usize]| ArrayType::of_sizes(sizes, DType::F64);
    let axes = |axes: &[usize]| axes.iter().copied().collect();
    let op = ConvGeneralDilated {
        window_strides: axes(&[1]),
        padding: vec![(0, 0)],
        lhs_dilation: axes(&[1]),
        rhs_dilation: axes(&[1]),
        dims: ConvDims { lhs: axes(&[0, 1, 2]), rhs: axes(&[0, 1, 2]), out: axes(&[0, 1, 2]) },
        feature_group_count: 1,
        batch_group_count: 1,
        precision: None,
        preferred_element_type: None,
    };
    let dilated = ConvGeneralDilated {
        window_strides: axes(&[2]),
        padding: vec![(3, 1)],
        lhs_dilation: axes(&[3]),
        rhs_dilation: axes(&[2]),
        ..op.clone()
    };
    let mixed = ConvGeneralDilated {
        window_strides: axes(&[2, 1]),
        padding: vec![(1, 0), (-1, 2)],
        lhs_dilation: axes(&[1, 2]),
        rhs_dilation: axes(&[1, 1]),
        dims: ConvDims { lhs: axes(&[3, 1, 2, 0]), rhs: axes(&[1, 3, 0, 2]), out: axes(&[2, 0, 3, 1]) },
        ..op.clone()
    };
    let features = ConvGeneralDilated { feature_group_count: 2, ..dilated.clone() };
    let batches = ConvGeneralDilated { batch_group_count: 3, ..dilated.clone() };
    let none = ConvGeneralDilated {
        window_strides: axes(&[]),
        padding: vec![],
        lhs_dilation: axes(&[]),
        rhs_dilation: axes(&[]),
        dims: ConvDims { lhs: axes(&[1, 0]), rhs: axes(&[0, 1]), out: axes(&[0, 1]) },
        ..op.clone()
    };
    vec![
        (op, [f(&[2, 3, 5]), f(&[4, 3, 2])]),
        (dilated, [f(&[2, 3, 5]), f(&[4, 3, 3])]),
        (mixed, [f(&[4, 3, 5, 2]), f(&[3, 4, 2, 3])]),
        (features, [f(&[2, 6, 5]), f(&[4, 3, 3])]),
        (batches, [f(&[6, 2, 5]), f(&[3, 2, 3])]),
        (none, [f(&[3, 2]), f(&[4, 3])]),
    ]
}

#[test]
fn transposes_of_convolutions() {
    for (op, types) in convolutions() {
        check_transpose(op.clone(), &types, &[0]);
        check_transpose(op, &types, &[1]);
    }
}

#[test]
fn batches_of_convolutions() {
    for (op, types) in convolutions() {
        for left in [None, Some(0), Some(1), Some(2)] {
            for right in [None, Some(0), Some(1), Some(2)] {
                if left.or(right).is_some() {
                    check_batch(op.clone(), &types, &[left, right]);
                }
            }
        }
    }
}
