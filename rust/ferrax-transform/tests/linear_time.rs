//! Passes ask each equation's rules a bounded number of times, whatever the
//! size of the program; and what they emit grows in proportion.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrax_ir::ops::{Call, Scan, Unary};
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Operand, Row, Rules, Transpose, Types, not_linear};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Extension, Op, Param, Program, Result, Tensor, Type};
use ferrax_transform::{
    Inline, Options, OutDims, batch, cse, dce, dce_with, fold, inline, jvp, linearize, optimise,
    partial_eval, simplify, vjp_program,
};
use smallvec::{SmallVec, smallvec};

/// Twice its operand, and counts what it is asked.
#[derive(Debug, Default)]
struct Counting {
    asked: AtomicUsize,
}

impl Counting {
    fn count(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Double(Arc<Counting>);

impl Double {
    fn again(&self) -> Op {
        Op::Extension(Extension(Arc::new(Double(self.0.clone()))))
    }
}

impl Row for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        self.0.count();
        Ok(smallvec![inputs[0].clone()])
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        self.0.count();
        let values: Vec<f64> = inputs[0].elements::<f64>()?.iter().map(|x| 2.0 * x).collect();
        Ok(vec![Tensor::from_elements(inputs[0].sizes(), &values)?])
    }
}

impl Rules for Double {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        self.0.count();
        let Some(tangent) = eqn.tangents[0] else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(b.emit1(self.again(), &[tangent])?)])
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        self.0.count();
        match (&eqn.inputs[0], eqn.cotangents[0]) {
            (Operand::Linear(_), Some(cotangent)) => {
                Ok(smallvec![Some(b.emit1(self.again(), &[cotangent])?)])
            }
            _ => not_linear(self),
        }
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        self.0.count();
        Ok(smallvec![(b.emit1(self.again(), eqn.inputs)?, eqn.dims[0])])
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }
}

/// A chain of `size` doublings and sines, in turn.
fn chain(size: usize, counting: &Arc<Counting>) -> Program {
    let mut b = Builder::new("chain");
    let mut x = b.input(ArrayType::of_sizes(&[2], DType::F64));
    let double = Op::Extension(Extension(Arc::new(Double(counting.clone()))));
    for index in 0..size {
        x = if index % 2 == 0 {
            b.emit1(double.clone(), &[x]).unwrap()
        } else {
            b.unary(Unary::Sin, x).unwrap()
        };
    }
    b.finish([x])
}

type Pass = fn(&Program) -> Result<Program>;

const PASSES: &[(&str, Pass)] = &[
    ("jvp", |program| Ok(jvp(program, &[true])?.0)),
    ("linearize", |program| Ok(linearize(program, &[true])?.linear)),
    ("partial_eval", |program| Ok(partial_eval(program, &[true])?.unknown)),
    ("vjp", |program| vjp_program(program, &[true], &[true])),
    ("batch", |program| Ok(batch(program, &Dim::Const(3), &[Some(0)], None, OutDims::AsIs)?.0)),
    ("simplify", simplify),
    ("fold", fold),
    ("cse", cse),
    ("dce", dce),
    ("optimise", |program| optimise(program, Options::default())),
];

#[test]
fn work_is_proportional_to_size() {
    for (name, pass) in PASSES {
        let measure = |size: usize| {
            let counting = Arc::new(Counting::default());
            let program = chain(size, &counting);
            counting.asked.store(0, Ordering::Relaxed);
            let result = pass(&program).unwrap();
            (counting.asked.load(Ordering::Relaxed), result.equations.len())
        };
        let (small, large) = (measure(500), measure(5000));
        assert!(large.0 <= 10 * small.0 + 100, "{name} asks {} and {} times", small.0, large.0);
        assert!(large.1 <= 10 * small.1 + 100, "{name} emits {} and {}", small.1, large.1);
        // Verification in debug builds included, no rule is asked more than this.
        assert!(large.0 <= 5000 * 20, "{name} asks {} times", large.0);
    }
}

/// A tower in which each program calls the one below twice.
fn tower(height: usize, counting: &Arc<Counting>) -> Program {
    let mut program = chain(2, counting);
    for _ in 0..height {
        let callee = Arc::new(program);
        let mut b = Builder::new("level");
        let x = b.input(ArrayType::of_sizes(&[2], DType::F64));
        let call = Call { name: "below".into(), program: callee, inline: false };
        let y = Atom::Var(b.emit(call.clone(), &[x]).unwrap()[0]);
        let z = Atom::Var(b.emit(call, &[y]).unwrap()[0]);
        program = b.finish([z]);
    }
    program
}

#[test]
fn shared_callees_cost_once() {
    let without_inlining: &[(&str, Pass)] = &[
        ("optimise", |program| optimise(program, Options { inline: Inline::Marked, rounds: 2 })),
        ("inline marked", |program| inline(program, Inline::Marked)),
    ];
    // Each of the 2^40 calls has residuals of its own: linearising cannot be cheap.
    let cheap = PASSES.iter().filter(|(name, _)| !["linearize", "vjp", "optimise"].contains(name));
    for (name, pass) in cheap.chain(without_inlining) {
        let counting = Arc::new(Counting::default());
        let program = tower(40, &counting);
        counting.asked.store(0, Ordering::Relaxed);
        pass(&program).unwrap();
        let asked = counting.asked.load(Ordering::Relaxed);
        // One by one the calls would be 2^40.
        assert!(asked < 5000, "{name} asks {asked} times");
    }
}

/// Scans in each other, of three carries that reach each other one step later.
fn nested(depth: usize, counting: &Arc<Counting>) -> Program {
    let mut b = Builder::new("level");
    let carry: Vec<Atom> = (0..3).map(|_| b.input(ArrayType::scalar(DType::F64))).collect();
    let double = Op::Extension(Extension(Arc::new(Double(counting.clone()))));
    let twice = b.emit1(double, &[carry[0]]).unwrap();
    let wave = b.unary(Unary::Sin, carry[2]).unwrap();
    let mixed = b.mul(wave, twice).unwrap();
    let next = [mixed, carry[0], carry[1]];
    if depth == 0 {
        return b.finish(next);
    }
    let jaxpr = Arc::new(nested(depth - 1, counting));
    let op = Scan { jaxpr, length: Dim::Const(2), num_carry: 3, num_consts: 0, reverse: false, unroll: 1 };
    let outputs = b.emit(op, &next).unwrap();
    b.finish(outputs.into_iter().map(Atom::Var))
}

#[test]
fn nested_scans_cost_in_proportion() {
    let passes: &[(&str, Pass)] = &[
        ("jvp", |program| Ok(jvp(program, &[true, false, false])?.0)),
        ("linearize", |program| Ok(linearize(program, &[true, false, false])?.linear)),
        ("partial_eval", |program| Ok(partial_eval(program, &[true, false, false])?.unknown)),
        ("vjp", |program| vjp_program(program, &[true, false, false], &[true, false, false])),
        ("vjp of vjp", |program| {
            let once = vjp_program(program, &[true; 3], &[true, false, false])?;
            vjp_program(&once, &[true; 4], &[true; 6])
        }),
        ("batch", |program| {
            Ok(batch(program, &Dim::Const(3), &[Some(0), None, None], None, OutDims::AsIs)?.0)
        }),
        ("dce", |program| Ok(dce_with(program, &[true, false, false])?.0)),
        ("optimise", |program| optimise(program, Options::default())),
    ];
    for (name, pass) in passes {
        let measure = |depth: usize| {
            let counting = Arc::new(Counting::default());
            let program = nested(depth, &counting);
            counting.asked.store(0, Ordering::Relaxed);
            pass(&program).unwrap();
            counting.asked.load(Ordering::Relaxed)
        };
        let (shallow, deep) = (measure(5), measure(10));
        // Going into the callees of each level anew may cost a square, no more.
        assert!(deep <= 4 * shallow + 20, "{name} asks {shallow} times at depth 5, {deep} at depth 10");
    }
}

/// A scan of a carry that is handed on from place to place, doubled at the last.
fn relay(places: usize, counting: &Arc<Counting>) -> Program {
    let ty = ArrayType::scalar(DType::F64);
    let mut b = Builder::new("body");
    let mut carry: Vec<Atom> = (0..places).map(|_| b.input(ty.clone())).collect();
    let double = Op::Extension(Extension(Arc::new(Double(counting.clone()))));
    let last = b.emit1(double, &[carry[places - 1]]).unwrap();
    let wave = b.unary(Unary::Sin, last).unwrap();
    carry.rotate_right(1);
    carry[0] = wave;
    let jaxpr = Arc::new(b.finish(carry));
    let op =
        Scan { jaxpr, length: Dim::Const(2), num_carry: places, num_consts: 0, reverse: false, unroll: 1 };
    let mut b = Builder::new("relay");
    let carry: Vec<Atom> = (0..places).map(|_| b.input(ty.clone())).collect();
    let outputs = b.emit(op, &carry).unwrap();
    b.finish(outputs.into_iter().map(Atom::Var))
}

#[test]
fn fixed_points_settle_at_once() {
    fn first(program: &Program) -> Vec<bool> {
        (0..program.inputs.len()).map(|index| index == 0).collect()
    }
    let passes: &[(&str, Pass)] = &[
        ("jvp", |program| Ok(jvp(program, &first(program))?.0)),
        ("linearize", |program| Ok(linearize(program, &first(program))?.linear)),
        ("vjp", |program| vjp_program(program, &first(program), &first(program))),
        ("partial_eval", |program| Ok(partial_eval(program, &first(program))?.unknown)),
        ("batch", |program| {
            let dims: Vec<Option<usize>> = first(program).iter().map(|flag| flag.then_some(0)).collect();
            Ok(batch(program, &Dim::Const(3), &dims, None, OutDims::AsIs)?.0)
        }),
        ("dce", |program| Ok(dce_with(program, &first(program))?.0)),
    ];
    for (name, pass) in passes {
        let measure = |places: usize| {
            let counting = Arc::new(Counting::default());
            let program = relay(places, &counting);
            counting.asked.store(0, Ordering::Relaxed);
            pass(&program).unwrap();
            counting.asked.load(Ordering::Relaxed)
        };
        assert_eq!(measure(2), measure(20), "{name}");
    }
}
