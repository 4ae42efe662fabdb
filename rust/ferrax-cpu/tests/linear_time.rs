//! Kernels, calls and loops over thousands of arrays: what they cost is in proportion to the arrays, and nothing compares
//! all with all, which would not end here. And what executables count as their own bytes.

use std::cell::Cell;
use std::sync::Arc;

use ferrax_compile::{Step, Target, plan};
use ferrax_cpu::Tuning;
use ferrax_cpu::compile;
use ferrax_cpu::vm::Bound;
use ferrax_ir::ops::{Cond, Scan};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Program, Tensor};

#[path = "../../ferrax-compile/tests/support/programs.rs"]
mod programs;

use programs::running_sums;

fn f32s() -> ArrayType {
    ArrayType::of_sizes(&[8], DType::F32)
}

fn of(value: f32) -> Tensor {
    Tensor::from_elements(&[8][..], &[value; 8]).unwrap()
}

fn each_twice(count: usize) -> Program {
    let mut b = Builder::new("each twice");
    let outputs: Vec<Atom> = (0..count)
        .map(|_| {
            let x = b.input(f32s());
            b.add(x, x).unwrap()
        })
        .collect();
    b.finish(outputs)
}

#[test]
fn binding_asks_once_where_each_operand_lies() {
    let plan = plan(&running_sums(500), &Target::CPU).unwrap();
    let mut kernels = 0;
    for step in &plan.steps {
        let Step::Kernel { launch, operands } = step else { continue };
        let asked = Cell::new(0);
        Bound::new(launch, &Tuning::CPU, (0, 1.0), &|operand| {
            asked.set(asked.get() + 1);
            operand
        })
        .unwrap();
        assert!(asked.get() <= operands.len(), "{} questions of {} operands", asked.get(), operands.len());
        kernels += 1;
    }
    assert!(kernels > 0);
}

#[test]
fn sums_of_a_chain_are_bound_and_donated_to() {
    const COUNT: usize = 3000;
    let executable = compile(&running_sums(COUNT)).unwrap();
    let inputs = || (0..COUNT).map(|_| of(1.0)).collect::<Vec<_>>();
    for results in
        [executable.run(&inputs()).unwrap(), executable.run_donating(inputs(), &[true; COUNT]).unwrap()]
    {
        assert_eq!(results.len(), COUNT - 1);
        for (number, result) in results.iter().enumerate() {
            assert_eq!(result, &of(number as f32 + 2.0));
        }
    }
}

#[test]
fn calls_of_many_donated_arrays() {
    const COUNT: usize = 20_000;
    let executable = compile(&each_twice(COUNT)).unwrap();
    for call in 0..20 {
        let inputs: Vec<Tensor> = (0..COUNT).map(|number| of(number as f32)).collect();
        let places: Vec<*const u8> = inputs.iter().map(|tensor| tensor.bytes().as_ptr()).collect();
        // Every third array is kept.
        let donate: Vec<bool> = (0..COUNT).map(|number| number % 3 != 0).collect();
        let results = executable.run_donating(inputs, &donate).unwrap();
        for (number, result) in results.iter().enumerate().skip(call).step_by(97) {
            assert_eq!(result, &of(2.0 * number as f32));
            assert_eq!(result.bytes().as_ptr() == places[number], donate[number], "array {number}");
        }
    }
}

#[test]
fn results_that_are_there_again() {
    const COUNT: usize = 20_000;
    let mut program = each_twice(COUNT);
    program.outputs.extend_from_within(..);
    let executable = compile(&program).unwrap();
    let inputs: Vec<Tensor> = (0..COUNT).map(|number| of(number as f32)).collect();
    let results = executable.run(&inputs).unwrap();
    for number in (0..COUNT).step_by(97) {
        assert_eq!(results[number], of(2.0 * number as f32));
        assert_eq!(results[number].bytes().as_ptr(), results[COUNT + number].bytes().as_ptr());
    }
}

/// A scan of so many steps whose carries change places, the last one anew.
#[test]
fn carries_that_follow_one_another() {
    const COUNT: usize = 4000;
    const STEPS: usize = 50;
    let mut b = Builder::new("body");
    let mut carry: Vec<Atom> = (0..COUNT).map(|_| b.input(f32s())).collect();
    let one = b.constant(of(1.0), false);
    carry[0] = b.add(carry[0], one).unwrap();
    carry.rotate_left(1);
    let jaxpr = Arc::new(b.finish(carry));
    let (length, num_carry) = (Dim::Const(STEPS), COUNT);
    let op = Scan { jaxpr, length, num_carry, num_consts: 0, reverse: false, unroll: 1 };
    let mut b = Builder::new("rotate");
    let carry: Vec<Atom> = (0..COUNT).map(|_| b.input(f32s())).collect();
    let outputs = b.emit(op, &carry).unwrap();
    let executable = compile(&b.finish(outputs.into_iter().map(Atom::Var))).unwrap();
    let inputs: Vec<Tensor> = (0..COUNT).map(|number| of(number as f32)).collect();
    let results = executable.run(&inputs).unwrap();
    for (number, result) in results.iter().enumerate() {
        let from = (number + STEPS) % COUNT;
        let added = if from < STEPS { 1.0 } else { 0.0 };
        assert_eq!(result, &of(from as f32 + added), "carry {number}");
    }
}

const LARGE: usize = 1 << 18;

/// A program that adds an array of its own.
fn adds(value: f32) -> Arc<Program> {
    let mut b = Builder::new("adds");
    let x = b.input(ArrayType::of_sizes(&[LARGE], DType::F32));
    let c = b.constant(Tensor::from_elements(&[LARGE][..], &vec![value; LARGE]).unwrap(), false);
    let y = b.add(x, c).unwrap();
    b.finish([y]).into()
}

/// Bytes of an executable of a branch for each of these pairs of programs.
fn bytes_of_branches(pairs: &[[Arc<Program>; 2]]) -> usize {
    let mut b = Builder::new("branches");
    let index = b.input(ArrayType::scalar(DType::I32));
    let mut x = b.input(ArrayType::of_sizes(&[LARGE], DType::F32));
    for branches in pairs {
        x = b.emit1(Cond { branches: branches.to_vec() }, &[index, x]).unwrap();
    }
    compile(&b.finish([x])).unwrap().bytes()
}

#[test]
fn constants_of_branches_are_counted_once() {
    let constant = LARGE * size_of::<f32>();
    let branches = [adds(1.0), adds(2.0)];
    let once = bytes_of_branches(std::slice::from_ref(&branches));
    assert!((2 * constant..3 * constant).contains(&once), "{once}");
    let twice = bytes_of_branches(&[branches.clone(), branches]);
    assert!(twice < 3 * constant, "{twice}");
}

#[test]
fn bytes_grow_with_operands() {
    let [few, many] = [100, 1000].map(|count| compile(&running_sums(count)).unwrap().bytes());
    assert!(many > 8 * few, "{few} of 100, {many} of 1000");
}
