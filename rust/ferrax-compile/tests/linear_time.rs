//! Planning asks each equation's rules a bounded number of times, whatever the size of the program; and
//! what it makes of many operands is found without comparing all with all, which would not end here.

#[path = "support/programs.rs"]
mod programs;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrax_compile::{Step, Target, plan};
use ferrax_ir::ops::{Cumulative, CumulativeKind};
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use ferrax_ir::scalar::{Body, ScalarOp, Value};
use ferrax_ir::{
    ArrayType, Atom, Builder, DType, Dim, Extension, Op, Param, Result, Shape, Tensor, Type, unsupported,
};
use smallvec::{SmallVec, smallvec};

/// Twice its operand, and counts how often its code is asked for.
#[derive(Debug)]
struct Double(Arc<AtomicUsize>);

impl Row for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        Ok(smallvec![inputs[0].clone()])
    }

    fn eval(&self, _inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        Err(unsupported!("only planned"))
    }
}

impl Rules for Double {
    fn jvp(&self, _b: &mut Builder, _eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Err(unsupported!("only planned"))
    }

    fn transpose(&self, _b: &mut Builder, _eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        not_linear(self)
    }

    fn batch(&self, _b: &mut Builder, _eqn: &Batch<'_>) -> Result<Batched> {
        Err(unsupported!("only planned"))
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, body: &mut Body, _: &[ArrayType], inputs: &[Value], _: &ArrayType) -> Result<Value> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match inputs {
            [Value::Real(x)] => Ok(Value::Real(body.op(ScalarOp::Add, &[*x, *x]))),
            _ => Err(unsupported!("one real operand")),
        }
    }
}

const COUNT: usize = 2 * 3 * 5 * 7;

/// `x` as a matrix of so many rows, turned, and flat again.
fn turned(b: &mut Builder, x: Atom, rows: usize) -> Atom {
    let shape = |sizes: &[usize]| sizes.iter().map(|&size| Dim::Const(size)).collect::<Shape>();
    let x = b.reshape(x, &shape(&[rows, COUNT / rows])).unwrap();
    let x = b.transpose(x, &[1, 0]).unwrap();
    b.reshape(x, &shape(&[COUNT])).unwrap()
}

type Doubling<'a> = &'a dyn Fn(&mut Builder, Atom) -> Atom;
type Make = fn(&mut Builder, Doubling<'_>, Atom, usize) -> Atom;

fn chain(b: &mut Builder, double: Doubling<'_>, x: Atom, size: usize) -> Atom {
    (0..size).fold(x, |x, _| double(b, x))
}

/// No turn is seen through the one before: the kernels have no loops in common.
fn turns(b: &mut Builder, double: Doubling<'_>, x: Atom, size: usize) -> Atom {
    (0..size).fold(x, |x, index| {
        let x = double(b, x);
        turned(b, x, [6, 10, 14, 15, 21, 35][index % 6])
    })
}

fn fan(b: &mut Builder, double: Doubling<'_>, x: Atom, size: usize) -> Atom {
    (0..size).fold(x, |sum, index| {
        let y = double(b, x);
        let y = turned(b, y, [2, 3, 5, 7, 6, 10, 14, 15, 21, 35][index % 10]);
        b.add(sum, y).unwrap()
    })
}

/// How often a program made of `size` parts asks for code.
fn asked(size: usize, make: Make) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let double = |b: &mut Builder, x: Atom| {
        b.emit1(Op::Extension(Extension(Arc::new(Double(count.clone())))), &[x]).unwrap()
    };
    let mut b = Builder::new("sized");
    let x = b.input(ArrayType::of_sizes(&[COUNT], DType::F32));
    let y = make(&mut b, &double, x, size);
    plan(&b.finish([y]), &Target::CPU).unwrap();
    count.load(Ordering::Relaxed)
}

#[test]
fn code_is_asked_for_in_proportion() {
    for (name, make) in [("chain", chain as Make), ("turns", turns), ("fan", fan)] {
        let (few, many) = (asked(100, make), asked(200, make));
        assert!(few >= 100, "{name}: {few} of 100");
        assert!(many <= 2 * few + few / 4, "{name}: {few} of 100 and {many} of 200");
    }
}

const MANY: usize = 2000;

/// One kernel that reads and writes thousands of arrays, each written where one was read.
#[test]
fn pointwise_donations_of_one_kernel() {
    let plan = plan(&programs::running_sums(MANY), &Target::CPU).unwrap();
    assert!(plan.steps.iter().all(|step| matches!(step, Step::Kernel { .. })));
    assert_eq!(plan.donations.len(), MANY - 1);
}

/// Inputs that are dead one after the other, and results that begin one after the other.
#[test]
fn donations_of_what_is_dead() {
    let mut b = Builder::new("many sums");
    let outputs: Vec<Atom> = (0..MANY)
        .map(|_| {
            let x = b.input(ArrayType::of_sizes(&[8], DType::F32));
            b.emit1(Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse: false }, &[x]).unwrap()
        })
        .collect();
    let plan = plan(&b.finish(outputs), &Target::CPU).unwrap();
    let expected: Vec<(usize, usize)> = (1..MANY).map(|index| (index - 1, index)).collect();
    assert_eq!(plan.donations, expected);
}
