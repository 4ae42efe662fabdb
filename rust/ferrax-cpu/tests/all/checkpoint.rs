//! Checkpoints take less memory for reverse-mode derivatives.

use std::sync::Arc;

use ferrax_compile::{Step, Target, expand, plan};
use ferrax_ir::ops::{Call, Checkpoint, DotGeneral, PolicyHandle, Unary};
use ferrax_ir::{ArrayType, Atom, Axes, Builder, DType, Op, Program, Tensor, interpret};
use ferrax_transform::{Options, linearize, optimise, vjp_program};

const SIZE: usize = 64;
const BYTES: usize = SIZE * SIZE * 4;

fn matrix() -> ArrayType {
    ArrayType::of_sizes(&[SIZE, SIZE], DType::F32)
}

fn product() -> DotGeneral {
    DotGeneral {
        lhs_contracting: Axes::from_slice(&[1]),
        rhs_contracting: Axes::from_slice(&[0]),
        lhs_batch: Axes::new(),
        rhs_batch: Axes::new(),
        precision: None,
        preferred_element_type: None,
    }
}

/// Eight products with a matrix, and the sine of each.
fn block() -> Arc<Program> {
    let mut b = Builder::new("block");
    let (mut x, w) = (b.input(matrix()), b.input(matrix()));
    for _ in 0..8 {
        let y = b.emit1(product(), &[x, w]).unwrap();
        x = b.unary(Unary::Sin, y).unwrap();
    }
    Arc::new(b.finish([x]))
}

/// Four blocks and a sum.
fn chain(call: impl Fn(Arc<Program>) -> Op) -> Program {
    let mut b = Builder::new("chain");
    let (mut x, w) = (b.input(matrix()), b.input(matrix()));
    let block = block();
    for _ in 0..4 {
        x = Atom::Var(b.emit(call(block.clone()), &[x, w]).unwrap()[0]);
    }
    let sum = b.reduce_sum(x, &[0, 1]).unwrap();
    b.finish([sum])
}

fn plain(program: Arc<Program>) -> Op {
    Call { name: program.name.clone(), program, inline: false }.into()
}

fn checkpointed(prevent_cse: bool) -> impl Fn(Arc<Program>) -> Op {
    move |jaxpr| {
        Checkpoint { differentiated: false, jaxpr, policy: PolicyHandle::default(), prevent_cse }.into()
    }
}

/// Bytes of intermediate values of the program that gives value and gradient.
fn arena(program: &Program) -> usize {
    let both = vjp_program(program, &[true, true], &[true]).unwrap();
    let flat = optimise(&expand(&both).unwrap(), Options::default()).unwrap();
    plan(&flat, &Target::CPU).unwrap().arena
}

#[test]
fn value_and_gradient_in_one_program_need_less_memory() {
    let (without, with) = (arena(&chain(plain)), arena(&chain(checkpointed(true))));
    // Without: the inputs of 32 products and the cosines. With: those of the eight of one block, and
    // the ends of the three before it. The cotangent of the matrix is a sum of 32 products, at most
    // four of which wait for each other; they take the place of what the block no longer needs.
    assert!(without >= 64 * BYTES, "{} buffers", without / BYTES);
    assert!(with <= (2 * 8 + 3) * BYTES, "{} buffers", with / BYTES);
    // Without barriers the second computation is found to be the first.
    assert_eq!(arena(&chain(checkpointed(false))), without);
}

/// How many operands each kernel has of a sum of 32 products with a matrix, or of as many sines.
fn operands_of_a_sum(size: usize, products: bool) -> Vec<usize> {
    let ty = ArrayType::of_sizes(&[size, size], DType::F32);
    let mut b = Builder::new("sum");
    let w = b.input(ty.clone());
    let mut sum = None;
    for _ in 0..32 {
        let x = b.input(ty.clone());
        let term =
            if products { b.emit1(product(), &[x, w]).unwrap() } else { b.unary(Unary::Sin, x).unwrap() };
        sum = Some(sum.map_or(term, |sum| b.add(sum, term).unwrap()));
    }
    let flat = b.finish(sum);
    let steps = plan(&flat, &Target::CPU).unwrap().steps;
    let operands = steps.iter().filter_map(|step| match step {
        Step::Kernel { operands, .. } => Some(operands.len()),
        Step::Library { .. } => None,
    });
    operands.collect()
}

#[test]
fn sums_are_split_where_their_operands_would_wait() {
    // Each kernel adds three products to the sum so far, and ends four lives.
    let split = operands_of_a_sum(SIZE * 2, true);
    assert!(split.len() > 8 && split.iter().all(|&operands| operands <= 5), "{split:?}");
    // What is small may wait; what waits for no step is one kernel.
    assert_eq!(operands_of_a_sum(16, true), [33]);
    assert_eq!(operands_of_a_sum(SIZE * 2, false), [33]);
}

#[test]
fn the_second_computation_joins_no_kernel_of_the_first() {
    // Sums of sines: without the barrier the kernel of the first would store the cosines.
    let mut b = Builder::new("sums");
    let x = b.input(matrix());
    let mut y = x;
    for _ in 0..8 {
        y = b.unary(Unary::Sin, y).unwrap();
    }
    let sum = b.reduce_sum(y, &[0, 1]).unwrap();
    let inner = Arc::new(b.finish([sum]));
    let through = |op: Op| {
        let mut b = Builder::new("outer");
        let x = b.input(matrix());
        let y = Atom::Var(b.emit(op, &[x]).unwrap()[0]);
        // The cotangent depends on the value.
        let z = b.unary(Unary::Exp, y).unwrap();
        let both = vjp_program(&b.finish([z]), &[true], &[true]).unwrap();
        let flat = optimise(&expand(&both).unwrap(), Options::default()).unwrap();
        plan(&flat, &Target::CPU).unwrap().arena
    };
    let (without, with) = (through(plain(inner.clone())), through(checkpointed(true)(inner)));
    assert!(without >= BYTES && with < BYTES, "{without} bytes without, {with} with");
}

#[test]
fn fewer_values_are_kept_for_the_backward_pass() {
    let kept = |program: &Program| linearize(program, &[true, true]).unwrap().residuals;
    // The matrix, the inputs of 32 products and the cosines; the matrix and the inputs of 4 blocks.
    assert_eq!(kept(&chain(plain)), 1 + 32 + 32);
    assert_eq!(kept(&chain(checkpointed(true))), 1 + 4);
}

#[test]
fn values_are_the_same() {
    let matrix = |seed: usize| {
        let values: Vec<f32> = (0..SIZE * SIZE).map(|i| ((i * seed) % 97) as f32 / 300.0 - 0.15).collect();
        Tensor::from_elements(vec![SIZE, SIZE], &values).unwrap()
    };
    let inputs = [matrix(31), matrix(53), Tensor::from_elements(Vec::new(), &[1f32]).unwrap()];
    let results = |program: &Program| {
        let both = vjp_program(program, &[true, true], &[true]).unwrap();
        (ferrax_cpu::compile(&both).unwrap().run(&inputs).unwrap(), interpret::run(&both, &inputs).unwrap())
    };
    let ((plain, _), (checked, reference)) = (results(&chain(plain)), results(&chain(checkpointed(true))));
    for ((a, b), c) in plain.iter().zip(&checked).zip(&reference) {
        let (a, b, c): (&[f32], &[f32], &[f32]) =
            (a.elements().unwrap(), b.elements().unwrap(), c.elements().unwrap());
        for ((a, b), c) in a.iter().zip(b).zip(c) {
            assert!(
                (a - b).abs() <= 1e-5 * (1.0 + a.abs()) && (b - c).abs() <= 1e-5 * (1.0 + c.abs()),
                "{a} {b} {c}"
            );
        }
    }
}
