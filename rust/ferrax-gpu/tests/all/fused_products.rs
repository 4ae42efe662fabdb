//! Products with what is computed of their operands and results: one launch, and the bits of separate ones.

use std::sync::Arc;

use crate::common::{compare, fill};
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::ops::{Binary, Compare, ConvDims, ConvGeneralDilated, DotGeneral, Unary};
use ferrax_ir::{Atom, Axes, Builder, DType, Op, Tensor, interpret};

fn axes(values: &[usize]) -> Axes {
    values.iter().copied().collect()
}

/// Rows by columns.
fn dot(result: Option<DType>) -> DotGeneral {
    DotGeneral {
        lhs_contracting: axes(&[1]),
        rhs_contracting: axes(&[0]),
        lhs_batch: axes(&[]),
        rhs_batch: axes(&[]),
        precision: None,
        preferred_element_type: result,
    }
}

fn convolution(dilation: usize) -> ConvGeneralDilated {
    ConvGeneralDilated {
        window_strides: axes(&[1, 1]),
        padding: vec![(1, 1), (0, 2)],
        lhs_dilation: axes(&[dilation, 1]),
        rhs_dilation: axes(&[1, 1]),
        dims: ConvDims { lhs: axes(&[0, 3, 1, 2]), rhs: axes(&[3, 2, 0, 1]), out: axes(&[0, 3, 1, 2]) },
        feature_group_count: 1,
        batch_group_count: 1,
        precision: None,
        preferred_element_type: None,
    }
}

/// What a program gives, and how many launches that takes.
fn launches(
    device: &Arc<Attached<Gpu>>,
    build: impl FnOnce(&mut Builder, &[Atom]) -> Vec<Atom>,
    inputs: &[Tensor],
    what: &str,
) -> (Vec<Tensor>, usize) {
    let mut b = Builder::new(what.to_string());
    let atoms: Vec<Atom> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let outputs = build(&mut b, &atoms);
    let program = b.finish(outputs);
    device.backend().begin_profile().unwrap();
    let got = run(device, &program, inputs);
    let events = device.backend().end_profile().unwrap();
    let got = got.unwrap_or_else(|error| panic!("{what}: {error}"));
    for (got, want) in got.iter().zip(&interpret::run(&program, inputs).unwrap()) {
        let ulps = match got.dtype() {
            DType::F16 | DType::BF16 => 8,
            // Sums of hundreds of products that cancel.
            dtype if dtype.is_inexact() => 100_000,
            _ => 0,
        };
        compare(got, want, ulps, what);
    }
    (got, events.len())
}

/// Builds values one from the other, of which the last is the result, or all are: then each is a launch of its own.
fn check(
    device: &Arc<Attached<Gpu>>,
    build: impl Fn(&mut Builder, &[Atom]) -> Vec<Atom>,
    inputs: &[Tensor],
    what: &str,
    expected: usize,
) {
    let last = |b: &mut Builder, atoms: &[Atom]| build(b, atoms).pop().into_iter().collect();
    let (fused, count) = launches(device, last, inputs, what);
    assert_eq!(count, expected, "launches of {what}");
    let (apart, several) = launches(device, &build, inputs, what);
    assert!(several > 1, "{what}: {several} launches apart");
    assert_eq!(fused.last(), apart.last(), "{what}");
}

/// Rows of a vector as wide as a matrix.
fn wide(b: &mut Builder, vector: Atom, like: Atom) -> Atom {
    let shape = b.shape(like).to_vec();
    b.broadcast_in_dim(vector, &shape, &[shape.len() - 1]).unwrap()
}

/// A product in the dtype in which halves are computed, which is not theirs, between what makes its operands and what
/// is made of it.
fn product(b: &mut Builder, op: impl Into<Op>, operands: [Atom; 2], values: &mut Vec<Atom>) -> Atom {
    let dtype = b.dtype(operands[0]);
    if dtype.size() > 2 {
        values.push(b.emit1(op, &operands).unwrap());
        return *values.last().unwrap();
    }
    let operands = operands.map(|operand| b.convert(operand, DType::F32).unwrap());
    let product = b.emit1(op, &operands).unwrap();
    values.extend(operands.into_iter().chain([product]));
    b.convert(product, dtype).unwrap()
}

/// Where results are few and terms many, what adds the sums of their segments is a launch more.
fn of_product([_, _, terms]: [usize; 3]) -> usize {
    if terms == 2000 { 2 } else { 1 }
}

const SIZES: [[usize; 3]; 4] = [[130, 70, 65], [64, 64, 64], [1, 300, 200], [7, 5, 2000]];

#[test]
fn products_of_narrow_numbers_read_and_write_them() {
    let device = device();
    for sizes in SIZES {
        let [rows, columns, terms] = sizes;
        for (narrow, wide, result) in [
            (DType::F16, DType::F32, DType::F16),
            (DType::BF16, DType::F32, DType::BF16),
            (DType::F16, DType::F32, DType::F32),
            (DType::I8, DType::I32, DType::I32),
            (DType::U8, DType::I32, DType::I16),
            (DType::F32, DType::F64, DType::F64),
        ] {
            let inputs = [fill(narrow, &[rows, terms], 1), fill(narrow, &[terms, columns], 2)];
            let what = format!("{narrow} {rows} {columns} {terms} to {result}");
            let explicit = |b: &mut Builder, atoms: &[Atom]| {
                let x = b.convert(atoms[0], wide).unwrap();
                let y = b.convert(atoms[1], wide).unwrap();
                let product = b.emit1(dot(None), &[x, y]).unwrap();
                let narrow = b.convert(product, result).unwrap();
                if narrow == product { vec![x, y, product] } else { vec![x, y, product, narrow] }
            };
            check(&device, explicit, &inputs, &what, of_product(sizes));
            if result != DType::I16 {
                let implied =
                    |b: &mut Builder, atoms: &[Atom]| vec![b.emit1(dot(Some(result)), atoms).unwrap()];
                let (got, count) = launches(&device, implied, &inputs, &what);
                let (want, _) = launches(&device, explicit, &inputs, &what);
                assert_eq!((count, got.last()), (of_product(sizes), want.last()), "{what}");
            }
        }
    }
}

/// A layer with a residual, of which the kernel behind the product reads three more arrays.
#[test]
fn what_follows_a_product_is_computed_where_it_is_written() {
    let device = device();
    for sizes in SIZES {
        let [rows, columns, terms] = sizes;
        for dtype in [DType::F32, DType::F16, DType::F64] {
            let inputs = [
                fill(dtype, &[rows, terms], 1),
                fill(dtype, &[terms, columns], 2),
                fill(dtype, &[columns], 3),
                fill(dtype, &[rows, columns], 4),
            ];
            let layer = |b: &mut Builder, atoms: &[Atom]| {
                let mut values = Vec::new();
                let product = product(b, dot(None), [atoms[0], atoms[1]], &mut values);
                let bias = wide(b, atoms[2], product);
                let sum = b.add(product, bias).unwrap();
                let squashed = b.unary(Unary::Tanh, sum).unwrap();
                values.push(b.add(squashed, atoms[3]).unwrap());
                values
            };
            check(&device, layer, &inputs, &format!("a layer of {dtype} {sizes:?}"), of_product(sizes));
        }
    }
}

/// The residual is the operand; two results; the result's square; the sum of a result and its transpose, which is no
/// kernel of elements.
#[test]
fn what_follows_a_product_may_read_and_write_anything_once() {
    let device = device();
    let square = [fill(DType::F32, &[72, 72], 1), fill(DType::F32, &[72, 72], 2)];
    let residual = |b: &mut Builder, atoms: &[Atom]| {
        let product = b.emit1(dot(None), atoms).unwrap();
        vec![product, b.add(product, atoms[0]).unwrap()]
    };
    check(&device, residual, &square, "an operand is added", 1);
    let two = |b: &mut Builder, atoms: &[Atom]| {
        let product = b.emit1(dot(None), atoms).unwrap();
        let sum = b.add(product, atoms[1]).unwrap();
        let large = b.compare(Compare::Lt, product, sum).unwrap();
        vec![sum, large]
    };
    let (_, count) = launches(&device, two, &square, "two results");
    assert_eq!(count, 1);
    let squared = |b: &mut Builder, atoms: &[Atom]| {
        let product = b.emit1(dot(None), atoms).unwrap();
        vec![product, b.mul(product, product).unwrap()]
    };
    check(&device, squared, &square, "a square", 1);
    let transposed = |b: &mut Builder, atoms: &[Atom]| {
        let product = b.emit1(dot(None), atoms).unwrap();
        let other = b.transpose(product, &[1, 0]).unwrap();
        vec![b.add(product, other).unwrap()]
    };
    let (_, count) = launches(&device, transposed, &square, "a result and its transpose");
    assert_eq!(count, 2);
    let turned = |b: &mut Builder, atoms: &[Atom]| {
        let product = b.emit1(dot(None), atoms).unwrap();
        let other = b.transpose(product, &[1, 0]).unwrap();
        let negative = b.unary(Unary::Neg, other).unwrap();
        vec![product, negative]
    };
    check(&device, turned, &square, "a transposed result", 1);
    let again = |b: &mut Builder, atoms: &[Atom]| {
        let product = b.emit1(dot(None), atoms).unwrap();
        let root = b.unary(Unary::Tanh, product).unwrap();
        let total = b.reduce_sum(product, &[1]).unwrap();
        vec![root, total]
    };
    let (_, count) = launches(&device, again, &square, "a result that a sum needs too");
    assert!(count > 1);
}

/// What is cheap, or read once, is computed while it is read; what others need, and what is dear, is not.
#[test]
fn what_makes_an_operand_is_computed_where_it_is_read() {
    let device = device();
    let inputs = [fill(DType::F32, &[70, 33], 1), fill(DType::F32, &[33, 90], 2), fill(DType::F32, &[33], 3)];
    let scaled = |b: &mut Builder, atoms: &[Atom]| {
        let scale = wide(b, atoms[2], atoms[0]);
        let x = b.mul(atoms[0], scale).unwrap();
        let y = b.unary(Unary::Neg, atoms[1]).unwrap();
        vec![x, y, b.emit1(dot(None), &[x, y]).unwrap()]
    };
    check(&device, scaled, &inputs, "scaled operands", 1);
    let shared = |b: &mut Builder, atoms: &[Atom]| {
        let x = b.unary(Unary::Neg, atoms[0]).unwrap();
        let product = b.emit1(dot(None), &[x, atoms[1]]).unwrap();
        vec![product, x]
    };
    let (_, count) = launches(&device, shared, &inputs, "an operand that others need");
    assert_eq!(count, 2);
    let dear = |b: &mut Builder, atoms: &[Atom]| {
        let x = b.unary(Unary::Erf, atoms[0]).unwrap();
        let x = b.unary(Unary::Exp, x).unwrap();
        vec![b.emit1(dot(None), &[x, atoms[1]]).unwrap()]
    };
    let (_, count) = launches(&device, dear, &inputs, "an operand that is dear");
    assert_eq!(count, 2);
    let vector = [fill(DType::F32, &[700, 33], 1), fill(DType::F32, &[33, 1], 2)];
    let once = |b: &mut Builder, atoms: &[Atom]| {
        let x = b.unary(Unary::Exp, atoms[0]).unwrap();
        vec![x, b.emit1(dot(None), &[x, atoms[1]]).unwrap()]
    };
    check(&device, once, &vector, "a function that is read once", 1);
    let both = |b: &mut Builder, atoms: &[Atom]| {
        let x = b.unary(Unary::Neg, atoms[0]).unwrap();
        let turned = DotGeneral { rhs_contracting: axes(&[1]), ..dot(None) };
        vec![b.emit1(turned, &[x, x]).unwrap()]
    };
    let (_, count) = launches(&device, both, &inputs[..1], "an operand that is both");
    assert_eq!(count, 2);
}

/// The kernel between two products goes to the first; values that change in between stay what they were.
#[test]
fn layers_of_halves_are_a_launch_each() {
    let device = device();
    for dtype in [DType::F16, DType::F32] {
        let inputs = [
            fill(dtype, &[50, 40], 1),
            fill(dtype, &[40, 80], 2),
            fill(dtype, &[80, 30], 3),
            fill(dtype, &[30], 4),
        ];
        let layers = |b: &mut Builder, atoms: &[Atom]| {
            let mut values = Vec::new();
            let first = product(b, dot(None), [atoms[0], atoms[1]], &mut values);
            let hidden = b.unary(Unary::Logistic, first).unwrap();
            values.push(hidden);
            let second = product(b, dot(None), [hidden, atoms[2]], &mut values);
            let bias = wide(b, atoms[3], second);
            values.push(b.binary(Binary::Max, second, bias).unwrap());
            values
        };
        check(&device, layers, &inputs, &format!("layers of {dtype}"), 2);
    }
}

#[test]
fn complex_products_and_what_follows() {
    let device = device();
    let inputs = [fill(DType::C64, &[40, 33], 1), fill(DType::C64, &[33, 50], 2)];
    let size = |b: &mut Builder, atoms: &[Atom]| {
        let x = b.unary(Unary::Neg, atoms[0]).unwrap();
        let product = b.emit1(dot(None), &[x, atoms[1]]).unwrap();
        let turned = b.unary(Unary::Conj, product).unwrap();
        vec![x, product, turned]
    };
    check(&device, size, &inputs, "a conjugated product", 1);
}

/// Also where a part of the result is no window's: then a kernel of its own follows.
#[test]
fn convolutions_with_their_neighbours() {
    let device = device();
    for (dilation, expected) in [(1, 1), (2, 3)] {
        for dtype in [DType::F16, DType::F32] {
            let inputs = [fill(dtype, &[2, 5, 6, 3], 1), fill(dtype, &[3, 2, 3, 4], 2), fill(dtype, &[4], 3)];
            let layer = |b: &mut Builder, atoms: &[Atom]| {
                let mut values = Vec::new();
                let product = product(b, convolution(dilation), [atoms[0], atoms[1]], &mut values);
                let bias = wide(b, atoms[2], product);
                let sum = b.add(product, bias).unwrap();
                let zeros = b.zeros_like(sum).unwrap();
                values.push(b.binary(Binary::Max, sum, zeros).unwrap());
                values
            };
            let what = format!("a convolution of {dtype}, dilated by {dilation}");
            check(&device, layer, &inputs, &what, expected);
        }
    }
}

/// An operand's kernel reads what a later step writes over: the product reads what there was.
#[test]
fn operands_that_change_are_read_before() {
    let device = device();
    let inputs = [fill(DType::F32, &[64, 64], 1), fill(DType::F32, &[64, 64], 2)];
    let chain = |b: &mut Builder, atoms: &[Atom]| {
        let mut x = b.emit1(dot(None), &[atoms[0], atoms[1]]).unwrap();
        for _ in 0..3 {
            let negative = b.unary(Unary::Neg, x).unwrap();
            let squashed = b.unary(Unary::Tanh, x).unwrap();
            let total = b.reduce_sum(squashed, &[0]).unwrap();
            let total = wide(b, total, x);
            let product = b.emit1(dot(None), &[negative, atoms[1]]).unwrap();
            let both = b.add(product, total).unwrap();
            let squashed = b.unary(Unary::Tanh, both).unwrap();
            x = b.add(squashed, x).unwrap();
        }
        vec![x]
    };
    launches(&device, chain, &inputs, "a chain");
}

/// A product whose operand is written over before its result's kernel could run, an operand's kernel whose own
/// operand is, and a result that a second product reads.
#[test]
fn what_others_change_or_need_is_not_taken() {
    let device = device();
    let inputs = [fill(DType::F32, &[90, 90], 1), fill(DType::F32, &[90, 90], 2)];
    let product = |b: &mut Builder, x: Atom, y: Atom| b.emit1(dot(None), &[x, y]).unwrap();
    let dear = |b: &mut Builder, x: Atom| {
        let x = b.unary(Unary::Tanh, x).unwrap();
        let x = b.unary(Unary::Erf, x).unwrap();
        b.unary(Unary::Exp, x).unwrap()
    };
    let operand = |b: &mut Builder, atoms: &[Atom]| {
        let x = product(b, atoms[0], atoms[1]);
        let first = product(b, x, atoms[1]);
        let over = dear(b, x);
        let second = product(b, over, atoms[0]);
        vec![b.sub(first, second).unwrap()]
    };
    let (_, count) = launches(&device, operand, &inputs, "an operand that is written over");
    assert_eq!(count, 4);
    let source = |b: &mut Builder, atoms: &[Atom]| {
        let x = product(b, atoms[0], atoms[1]);
        let negative = b.unary(Unary::Neg, x).unwrap();
        let other = product(b, atoms[1], atoms[0]);
        let over = dear(b, x);
        let over = b.add(over, other).unwrap();
        vec![product(b, negative, over)]
    };
    let (_, count) = launches(&device, source, &inputs, "an operand's source that is written over");
    assert_eq!(count, 4);
    let again = |b: &mut Builder, atoms: &[Atom]| {
        let x = product(b, atoms[0], atoms[1]);
        let squashed = b.unary(Unary::Tanh, x).unwrap();
        vec![squashed, product(b, x, atoms[1])]
    };
    let (_, count) = launches(&device, again, &inputs, "a result that a product needs too");
    assert_eq!(count, 3);
}
