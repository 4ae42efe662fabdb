//! Optimised programs compute what the originals do; each law fires where it
//! holds and not where it does not.

use std::sync::Arc;

use crate::common::*;
use ferrax_ir::ops::{Binary, Call, Compare, ConvertElementType, DotGeneral, Unary};
use ferrax_ir::verify::verify;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Program, Scalar, Tensor};
use ferrax_transform::{
    Inline, Options, cse, dce, dce_with, fold, inline, jvp, optimise, simplify, vjp_program,
};

type Pass = fn(&Program) -> ferrax_ir::Result<Program>;

#[test]
fn passes_preserve_values() {
    let passes: &[(&str, Pass)] = &[
        ("simplify", simplify),
        ("fold", fold),
        ("cse", cse),
        ("dce", dce),
        ("inline marked", |program| inline(program, Inline::Marked)),
        ("inline small", |program| inline(program, Inline::UpTo(4))),
        ("inline all", |program| inline(program, Inline::All)),
        ("optimise", |program| optimise(program, Options::default())),
        ("optimise calls", |program| optimise(program, Options { inline: Inline::Marked, rounds: 3 })),
    ];
    for seed in 0..40 {
        let program = random_program(seed, 12, 2);
        let nonzero = vec![true; program.inputs.len()];
        let (forward, given) = jvp(&program, &nonzero).unwrap();
        let reverse = vjp_program(&program, &nonzero, &given).unwrap();
        for program in [program, forward, reverse] {
            let inputs = Random::new(seed).tensors(program.input_types());
            let want = run(&program, &inputs);
            let types: Vec<_> = program.output_types().collect();
            for (name, pass) in passes {
                let result = pass(&program).unwrap_or_else(|error| panic!("{name}: {error}\n{program}"));
                verify(&result).unwrap();
                assert!(result.output_types().eq(types.iter().cloned()), "{name}\n{program}\n{result}");
                assert!(result.input_types().eq(program.input_types()), "{name}");
                // Folding may evaluate in another order of rounding than the program.
                assert_close(&run(&result, &inputs), &want, 1e-12, &program);
            }
            let used: Vec<bool> = (0..program.outputs.len()).map(|index| index % 2 == 0).collect();
            let (pruned, used_inputs) = dce_with(&program, &used).unwrap();
            verify(&pruned).unwrap();
            assert_close(&run(&pruned, &chosen(&inputs, &used_inputs)), &chosen(&want, &used), 0.0, &program);
        }
    }
}

/// How many equations are left of `build` applied to an input of this dtype.
fn left(dtype: DType, build: impl Fn(&mut Builder, Atom) -> Atom) -> usize {
    let mut b = Builder::new("law");
    let x = b.input(ArrayType::of_sizes(&[3], dtype));
    let result = build(&mut b, x);
    let program = b.finish([result]);
    let simpler = dce(&simplify(&program).unwrap()).unwrap();
    verify(&simpler).unwrap();
    simpler.equations.len()
}

fn with_literal(op: Binary, dtype: DType, value: f64, right: bool) -> usize {
    left(dtype, |b, x| {
        let literal = b.scalar(dtype, value);
        if right { b.binary(op, x, literal).unwrap() } else { b.binary(op, literal, x).unwrap() }
    })
}

#[test]
fn neutral_elements() {
    use DType::{Bool, C64, F32, I32};
    for right in [true, false] {
        assert_eq!(with_literal(Binary::Add, I32, 0.0, right), 0);
        assert_eq!(with_literal(Binary::Mul, F32, 1.0, right), 0);
        assert_eq!(with_literal(Binary::Add, F32, -0.0, right), 0);
        assert_eq!(with_literal(Binary::And, Bool, 1.0, right), 0);
        assert_eq!(with_literal(Binary::Or, I32, 0.0, right), 0);
        assert_eq!(with_literal(Binary::Max, F32, f64::NEG_INFINITY, right), 0);
        assert_eq!(with_literal(Binary::Min, F32, f64::INFINITY, right), 0);
        assert_eq!(with_literal(Binary::Max, F32, f64::INFINITY, right), 1);
        // -0.0 + 0.0 is 0.0; x * 0 is NaN for infinities; products of complex
        // numbers with 1 are not exact.
        assert_eq!(with_literal(Binary::Add, F32, 0.0, right), 1);
        assert_eq!(with_literal(Binary::Mul, F32, 0.0, right), 1);
        assert_eq!(with_literal(Binary::Mul, C64, 1.0, right), 1);
    }
    assert_eq!(with_literal(Binary::Sub, F32, 0.0, true), 0);
    assert_eq!(with_literal(Binary::Sub, F32, -0.0, true), 1);
    assert_eq!(with_literal(Binary::Sub, I32, 0.0, true), 0);
    assert_eq!(with_literal(Binary::Div, F32, 1.0, true), 0);
    assert_eq!(with_literal(Binary::Div, F32, 1.0, false), 1);
    assert_eq!(with_literal(Binary::ShiftLeft, I32, 0.0, true), 0);
}

#[test]
fn negations() {
    let neg_of = |op: Binary, value: f64, right: bool| {
        let mut b = Builder::new("law");
        let x = b.input(ArrayType::of_sizes(&[3], DType::F32));
        let literal = b.scalar(DType::F32, value);
        let y = if right { b.binary(op, x, literal) } else { b.binary(op, literal, x) }.unwrap();
        simplify(&b.finish([y])).unwrap().equations[0].op.name().to_owned()
    };
    assert_eq!(neg_of(Binary::Mul, -1.0, true), "neg");
    assert_eq!(neg_of(Binary::Mul, -1.0, false), "neg");
    assert_eq!(neg_of(Binary::Sub, -0.0, false), "neg");
    assert_eq!(neg_of(Binary::Sub, 0.0, false), "sub");
    let twice = |b: &mut Builder, x| {
        let y = b.neg(x).unwrap();
        b.neg(y).unwrap()
    };
    assert_eq!(left(DType::F32, twice), 0);
    let difference = |b: &mut Builder, x| {
        let y = b.neg(x).unwrap();
        b.add(x, y).unwrap()
    };
    assert_eq!(left(DType::F32, difference), 1);
}

#[test]
fn signs_of_factors() {
    let of_product = |op: Binary, value: f64, right: bool| {
        move |b: &mut Builder, x: Atom| {
            let literal = b.scalar(b.dtype(x), value);
            let product = if right { b.binary(op, x, literal) } else { b.binary(op, literal, x) };
            b.neg(product.unwrap()).unwrap()
        }
    };
    let of_factor = |op: Binary, value: f64, right: bool| {
        move |b: &mut Builder, x: Atom| {
            let (literal, x) = (b.scalar(b.dtype(x), value), b.neg(x).unwrap());
            if right { b.binary(op, x, literal) } else { b.binary(op, literal, x) }.unwrap()
        }
    };
    let squared = |op: Binary| {
        move |b: &mut Builder, x: Atom| {
            let y = b.neg(x).unwrap();
            b.binary(op, y, y).unwrap()
        }
    };
    for op in [Binary::Mul, Binary::Div] {
        for right in [true, false] {
            assert_eq!(left(DType::F32, of_product(op, 3.0, right)), 1);
            assert_eq!(left(DType::BF16, of_factor(op, 3.0, right)), 1);
            // Rounding is alike for either sign of floats alone: zeros of complex numbers have the signs of sums.
            assert_eq!(left(DType::C64, of_product(op, 3.0, right)), 2);
            assert_eq!(left(DType::I32, of_factor(op, 3.0, right)), 2);
        }
        assert_eq!(left(DType::F64, squared(op)), 1);
        assert_eq!(left(DType::C128, squared(op)), 2);
    }
    // The bits stay, of zeros, infinities and numbers that round.
    let numbers = [0.0, -0.0, 1.0, -3.0, 0.1, f32::INFINITY, f32::MIN_POSITIVE, 1e-45, f32::MAX];
    let mut b = Builder::new("law");
    let x = b.input(ArrayType::of_sizes(&[numbers.len()], DType::F32));
    let outputs: Vec<Atom> = [0.3, -0.0, 3.0, 1e-30]
        .into_iter()
        .flat_map(|value| [of_product(Binary::Mul, value, true), of_product(Binary::Div, value, false)])
        .map(|build| build(&mut b, x))
        .collect();
    let program = b.finish(outputs);
    let inputs = [Tensor::from_elements(&[numbers.len()][..], &numbers).unwrap()];
    let bits = |program: &Program| -> Vec<u32> {
        let values = run(program, &inputs);
        let all = values.iter().flat_map(|tensor| tensor.elements::<f32>().unwrap().to_vec());
        all.map(|value| if value.is_nan() { 0 } else { value.to_bits() }).collect()
    };
    assert_eq!(bits(&simplify(&program).unwrap()), bits(&program));
}

/// A product of operands of these sizes, each transposed first: equations left, and the same values.
fn transposed_product(sizes: [&[usize]; 2], orders: [&[usize]; 2], dot: DotGeneral) -> usize {
    let mut b = Builder::new("law");
    let operands = sizes.map(|sizes| b.input(ArrayType::of_sizes(sizes, DType::F64)));
    let [x, y] = [0, 1].map(|side| b.transpose(operands[side], orders[side]).unwrap());
    let product = b.emit1(dot, &[x, y]).unwrap();
    let program = b.finish([product]);
    let simpler = dce(&simplify(&program).unwrap()).unwrap();
    verify(&simpler).unwrap();
    let inputs = Random::new(3).tensors(program.input_types());
    assert_close(&run(&simpler, &inputs), &run(&program, &inputs), 1e-14, &program);
    simpler.equations.len()
}

#[test]
fn products_of_transpositions() {
    let dot = |contracting: [usize; 2], batch: [&[usize]; 2]| DotGeneral {
        lhs_contracting: [contracting[0]][..].into(),
        rhs_contracting: [contracting[1]][..].into(),
        lhs_batch: batch[0].into(),
        rhs_batch: batch[1].into(),
        precision: None,
        preferred_element_type: None,
    };
    let matrices = [[5, 3], [4, 5]];
    let [x, y] = [&matrices[0][..], &matrices[1]];
    assert_eq!(transposed_product([x, y], [&[1, 0], &[1, 0]], dot([1, 0], [&[], &[]])), 1);
    let batched = [[2, 5, 3], [4, 2, 5]];
    let [x, y] = [&batched[0][..], &batched[1]];
    let of_batches = dot([2, 1], [&[0], &[0]]);
    assert_eq!(transposed_product([x, y], [&[0, 2, 1], &[1, 2, 0]], of_batches), 1);
    // Two free axes that change places: the result's would, too.
    assert_eq!(transposed_product([&[2, 5, 3], &[5, 4]], [&[2, 0, 1], &[0, 1]], dot([2, 0], [&[], &[]])), 2);
}

#[test]
fn conversions() {
    let through = |from: DType, middle: DType, to: DType| {
        left(from, |b, x| {
            let y = b.convert(x, middle).unwrap();
            b.convert(y, to).unwrap()
        })
    };
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, U8};
    assert_eq!(through(BF16, F32, BF16), 0);
    assert_eq!(through(F32, BF16, F32), 2);
    assert_eq!(through(I8, I32, I16), 1);
    assert_eq!(through(I8, F32, F64), 1);
    assert_eq!(through(I32, F32, F64), 2);
    assert_eq!(through(I32, F64, F32), 1);
    assert_eq!(through(Bool, I32, F16), 1);
    // -1 saturates on the way from a float, and wraps on the way from an integer.
    assert_eq!(through(I8, F32, U8), 2);
    assert_eq!(through(I8, I32, U8), 1);
}

#[test]
fn weakness_is_part_of_the_type() {
    let mut b = Builder::new("weak");
    let x = b.input(ArrayType::of_sizes(&[3], DType::F32).with_weak(true));
    let one = b.scalar(DType::F32, 1.0);
    let y = b.mul(x, one).unwrap();
    let program = b.finish([y]);
    let simpler = simplify(&program).unwrap();
    assert!(simpler.output_types().eq(program.output_types()));
    let strong = |b: &mut Builder, x| {
        b.emit1(ConvertElementType { new_dtype: DType::F32, weak_type: false }, &[x]).unwrap()
    };
    assert_eq!(left(DType::F32, strong), 0);
}

#[test]
fn movements_compose() {
    let around = |b: &mut Builder, x| {
        let y = b.expand_dim(x, 0).unwrap();
        let z = b.transpose(y, &[1, 0]).unwrap();
        let w = b.transpose(z, &[1, 0]).unwrap();
        b.squeeze(w, &[0]).unwrap()
    };
    assert_eq!(left(DType::F32, around), 0);
    let wide = |b: &mut Builder, x| {
        let y = b.broadcast_batch(x, &2.into(), 0).unwrap();
        b.broadcast_batch(y, &4.into(), 1).unwrap()
    };
    assert_eq!(left(DType::F32, wide), 1);
    let reshaped = |b: &mut Builder, x| {
        let y = b.reshape(x, &[1.into(), 3.into()]).unwrap();
        b.reshape(y, &[3.into()]).unwrap()
    };
    assert_eq!(left(DType::F32, reshaped), 0);
    let scalar = |b: &mut Builder, x| {
        let ones = b.ones(&ArrayType::of_sizes(&[3], DType::F32)).unwrap();
        b.mul(ones, x).unwrap()
    };
    assert_eq!(left(DType::F32, scalar), 0);
}

#[test]
fn selections() {
    let known = |b: &mut Builder, x| {
        let which = Atom::Literal(ferrax_ir::Literal { value: Scalar::bool(true), weak: false });
        let y = b.neg(x).unwrap();
        b.select(which, x, y).unwrap()
    };
    assert_eq!(left(DType::F32, known), 0);
    let same = |b: &mut Builder, x| {
        let zero = b.scalar(DType::F32, 0.0);
        let which = b.compare(Compare::Gt, x, zero).unwrap();
        b.select(which, x, x).unwrap()
    };
    assert_eq!(left(DType::F32, same), 0);
}

#[test]
fn folding_is_bounded() {
    let mut b = Builder::new("fold");
    let x = b.input(ArrayType::scalar(DType::F32));
    let two = b.scalar(DType::F32, 2.0);
    let root = b.unary(Unary::Sqrt, two).unwrap();
    let scaled = b.mul(x, root).unwrap();
    let small = b.constant(Tensor::from_elements([3].as_slice(), &[1.0f32, 2.0, 3.0]).unwrap(), false);
    let large = b.constant(Tensor::from_elements([1000].as_slice(), &[1.0f32; 1000]).unwrap(), false);
    let (small, large) = (b.neg(small).unwrap(), b.neg(large).unwrap());
    let program = dce(&fold(&b.finish([scaled, small, large])).unwrap()).unwrap();
    let names: Vec<&str> = program.equations.iter().map(|equation| equation.op.name()).collect();
    assert_eq!(names, ["mul", "neg"], "{program}");
    assert_eq!(run_f32(&program, 1.0), [2.0f32.sqrt()]);
}

fn run_f32(program: &Program, x: f32) -> Vec<f32> {
    let x = Tensor::from_elements([0usize; 0].as_slice(), &[x]).unwrap();
    run(program, &[x])[0].elements().unwrap().to_vec()
}

#[test]
fn common_subexpressions_merge() {
    let mut b = Builder::new("cse");
    let x = b.input(ArrayType::scalar(DType::F64));
    let y = b.input(ArrayType::scalar(DType::F64));
    let (left, right) = (b.add(x, y).unwrap(), b.add(y, x).unwrap());
    let (positive, negative) = (b.scalar(DType::F64, 0.0), b.scalar(DType::F64, -0.0));
    let (left, right) = (b.add(left, positive).unwrap(), b.add(right, negative).unwrap());
    let program = b.finish([left, right]);
    assert_eq!(cse(&program).unwrap().equations.len(), 3);
}

#[test]
fn dead_code_goes_from_callees_too() {
    let callee = {
        let mut b = Builder::new("callee");
        let x = b.input(ArrayType::scalar(DType::F64));
        let y = b.input(ArrayType::scalar(DType::F64));
        let (sine, cosine) = (b.unary(Unary::Sin, x).unwrap(), b.unary(Unary::Cos, y).unwrap());
        Arc::new(b.finish([sine, cosine]))
    };
    let mut b = Builder::new("caller");
    let x = b.input(ArrayType::scalar(DType::F64));
    let call = Call { name: "callee".into(), program: callee.clone(), inline: false };
    let outputs = b.emit(call, &[x, x]).unwrap();
    let program = dce(&b.finish([Atom::Var(outputs[1])])).unwrap();
    let pruned = program.equations[0].op.programs()[0];
    assert_eq!((pruned.inputs.len(), pruned.equations.len(), pruned.outputs.len()), (1, 1, 1));
}
