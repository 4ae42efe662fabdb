//! Checkpoints take less memory for reverse-mode derivatives.

use std::sync::Arc;

use ferrax_compile::{expand, plan};
use ferrax_ir::ops::{Call, Checkpoint, PolicyHandle, Unary};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Op, Program, Tensor, interpret};
use ferrax_transform::{Options, linearize, optimise, vjp_program};

const SIZE: usize = 1000;
const BYTES: usize = SIZE * 4;

/// Eight sines, one after the other.
fn block() -> Arc<Program> {
    let mut b = Builder::new("block");
    let mut x = b.input(ArrayType::of_sizes(&[SIZE], DType::F32));
    for _ in 0..8 {
        x = b.unary(Unary::Sin, x).unwrap();
    }
    Arc::new(b.finish([x]))
}

/// Four blocks and a sum.
fn chain(call: impl Fn(Arc<Program>) -> Op) -> Program {
    let mut b = Builder::new("chain");
    let mut x = b.input(ArrayType::of_sizes(&[SIZE], DType::F32));
    let block = block();
    for _ in 0..4 {
        x = Atom::Var(b.emit(call(block.clone()), &[x]).unwrap()[0]);
    }
    let sum = b.reduce_sum(x, &[0]).unwrap();
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
    let both = vjp_program(program, &[true], &[true]).unwrap();
    let flat = optimise(&expand(&both).unwrap(), Options::default()).unwrap();
    plan(&flat).unwrap().arena
}

#[test]
fn value_and_gradient_in_one_program_need_less_memory() {
    let (without, with) = (arena(&chain(plain)), arena(&chain(checkpointed(true))));
    // All 31 cosines or sines against the ends of four blocks and one block's values.
    assert!(without >= 28 * BYTES, "{} buffers", without / BYTES);
    assert!(with <= 14 * BYTES, "{} buffers", with / BYTES);
    // Without barriers the second computation is found to be the first.
    assert!(arena(&chain(checkpointed(false))) >= 28 * BYTES);
}

#[test]
fn fewer_values_are_kept_for_the_backward_pass() {
    let residuals = |program: &Program| linearize(program, &[true]).unwrap().residuals;
    assert_eq!(residuals(&chain(plain)), 32);
    assert_eq!(residuals(&chain(checkpointed(true))), 4);
}

#[test]
fn values_are_the_same() {
    let values: Vec<f32> = (0..SIZE).map(|i| i as f32 / 300.0 - 1.5).collect();
    let inputs = [
        Tensor::from_elements(vec![SIZE], &values).unwrap(),
        Tensor::from_elements(Vec::new(), &[1f32]).unwrap(),
    ];
    let results = |program: &Program| {
        let both = vjp_program(program, &[true], &[true]).unwrap();
        (ferrax_cpu::compile(&both).unwrap().run(&inputs).unwrap(), interpret::run(&both, &inputs).unwrap())
    };
    let ((plain, _), (checked, reference)) = (results(&chain(plain)), results(&chain(checkpointed(true))));
    for ((a, b), c) in plain.iter().zip(&checked).zip(&reference) {
        let (a, b, c): (&[f32], &[f32], &[f32]) =
            (a.elements().unwrap(), b.elements().unwrap(), c.elements().unwrap());
        for ((a, b), c) in a.iter().zip(b).zip(c) {
            assert!(
                (a - b).abs() <= 1e-6 * a.abs() && (b - c).abs() <= 1e-5 * (1.0 + c.abs()),
                "{a} {b} {c}"
            );
        }
    }
}
