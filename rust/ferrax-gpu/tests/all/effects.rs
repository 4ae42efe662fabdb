//! What happens beside results, as callbacks and prints, in programs on a GPU: once each time, in order, with the
//! values that are then there, in loops and branches too, and not in vain.

use std::sync::{Arc, Mutex};

use crate::gpu::{device, run};
use ferrax_ir::ops::{Binary, Compare, Cond, Scan, While};
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use ferrax_ir::{
    ArrayType, Atom, Builder, DType, Dim, Effect, Effects, Extension, Op, Param, Program, Result, Tensor,
    Type, internal_error, interpret,
};
use smallvec::SmallVec;

type Log = Arc<Mutex<Vec<(&'static str, i32)>>>;

/// Writes its operand, a number, under its name into the log. As a callback it gives ten times the number, as a print
/// nothing.
#[derive(Debug)]
struct Note {
    called: &'static str,
    log: Log,
    callback: bool,
    effects: Vec<Effect>,
}

impl Row for Note {
    fn name(&self) -> &str {
        "note"
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        Ok(inputs.iter().filter(|_| self.callback).cloned().collect())
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        let value = inputs[0].elements::<i32>()?[0];
        self.log.lock().map_err(|_| internal_error!("a log"))?.push((self.called, value));
        if !self.callback {
            return Ok(Vec::new());
        }
        Ok(vec![Tensor::from_elements(Vec::new(), &[value.wrapping_mul(10)])?])
    }

    fn effects(&self) -> Effects {
        self.effects.iter().cloned().collect()
    }
}

impl Rules for Note {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Err(internal_error!("a note has no derivative"))
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        not_linear(self)
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        Err(internal_error!("a note has no batches"))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}

/// A program over numbers, its notes and the log that they go to.
struct Notes {
    log: Log,
}

impl Notes {
    fn print(&self, b: &mut Builder, called: &'static str, x: Atom, effect: Effect) {
        let note = Note { called, log: self.log.clone(), callback: false, effects: vec![effect] };
        b.emit(Op::Extension(Extension(Arc::new(note))), &[x]).unwrap();
    }

    /// With effects `io_callback`, without any `pure_callback`.
    fn callback(&self, b: &mut Builder, called: &'static str, x: Atom, effects: &[Effect]) -> Atom {
        let note = Note { called, log: self.log.clone(), callback: true, effects: effects.to_vec() };
        b.emit1(Op::Extension(Extension(Arc::new(note))), &[x]).unwrap()
    }
}

fn number() -> ArrayType {
    ArrayType::scalar(DType::I32)
}

fn function(
    name: &str,
    inputs: usize,
    make: impl FnOnce(&mut Builder, &[Atom]) -> Vec<Atom>,
) -> Arc<Program> {
    let mut b = Builder::new(name);
    let inputs: Vec<Atom> = (0..inputs).map(|_| b.input(number())).collect();
    let outputs = make(&mut b, &inputs);
    Arc::new(b.finish(outputs))
}

fn plus(b: &mut Builder, x: Atom, y: i32) -> Atom {
    let y = b.int_scalar(DType::I32, y.into());
    b.add(x, y).unwrap()
}

fn below(b: &mut Builder, x: Atom, y: i32) -> Atom {
    let y = b.int_scalar(DType::I32, y.into());
    b.compare(Compare::Lt, x, y).unwrap()
}

/// What is noted on the GPU for these numbers, beside results that are the interpreter's.
fn noted(make: impl Fn(&Notes) -> Arc<Program>, inputs: &[i32]) -> Vec<(&'static str, i32)> {
    let inputs: Vec<Tensor> =
        inputs.iter().map(|value| Tensor::from_elements(Vec::new(), &[*value]).unwrap()).collect();
    let notes = Notes { log: Log::default() };
    let program = make(&notes);
    let take = || std::mem::take(&mut *notes.log.lock().unwrap());
    let wanted = interpret::run(&program, &inputs).unwrap();
    let in_order = take();
    let got = run(&device(), &program, &inputs).unwrap();
    assert_eq!(got, wanted);
    assert_eq!(take(), in_order, "{program}");
    in_order
}

#[test]
fn notes_between_kernels() {
    let make = |notes: &Notes| {
        function("straight", 1, |b, inputs| {
            notes.print(b, "first", inputs[0], Effect::Ordered);
            let x = plus(b, inputs[0], 1);
            let y = notes.callback(b, "second", x, &[Effect::Ordered]);
            let z = b.binary(Binary::Mul, y, x).unwrap();
            notes.print(b, "third", z, Effect::Ordered);
            notes.print(b, "fourth", inputs[0], Effect::Ordered);
            // Nobody needs what this gives.
            notes.callback(b, "fifth", y, &[Effect::Ordered]);
            vec![z]
        })
    };
    let all = [("first", 2), ("second", 3), ("third", 90), ("fourth", 2), ("fifth", 30)];
    assert_eq!(noted(make, &[2]), all);
}

#[test]
fn notes_in_scans() {
    let make = |notes: &Notes| {
        let body = function("body", 1, |b, inputs| {
            notes.print(b, "before", inputs[0], Effect::Ordered);
            let x = plus(b, inputs[0], 1);
            let y = notes.callback(b, "of", x, &[Effect::Ordered]);
            vec![x, y]
        });
        function("scan", 1, |b, inputs| {
            let scan = Scan {
                jaxpr: body,
                length: Dim::Const(3),
                num_carry: 1,
                num_consts: 0,
                reverse: false,
                unroll: 1,
            };
            let outputs = b.emit(scan, inputs).unwrap();
            notes.print(b, "after", outputs[0].into(), Effect::Ordered);
            outputs.into_iter().map(Atom::Var).collect()
        })
    };
    let steps = (4..7).flat_map(|step| [("before", step), ("of", step + 1)]);
    assert!(noted(make, &[4]).into_iter().eq(steps.chain([("after", 7)])));
}

fn while_loop(condition: Arc<Program>, body: Arc<Program>) -> While {
    While {
        body_jaxpr: body,
        body_nconsts: 0,
        checkpoints: None,
        cond_jaxpr: condition,
        cond_nconsts: 0,
        max_steps: None,
    }
}

/// Each step once and none after the end, in the body and in the condition, whatever the order asked for and where
/// there is nothing but a result too; of loops over counters as of others.
#[test]
fn notes_in_loops() {
    for (step, count) in [(1, 5), (2, 3)] {
        for effects in [&[Effect::Ordered][..], &[Effect::Unordered], &[]] {
            let make = |notes: &Notes| {
                let condition = function("condition", 2, |b, inputs| vec![below(b, inputs[0], 5)]);
                let body = function("body", 2, |b, inputs| {
                    let y = notes.callback(b, "step", inputs[0], effects);
                    vec![plus(b, inputs[0], step), b.add(y, inputs[1]).unwrap()]
                });
                function("loop", 2, |b, inputs| {
                    let outputs = b.emit(while_loop(condition, body), inputs).unwrap();
                    outputs.into_iter().map(Atom::Var).collect()
                })
            };
            let steps: Vec<_> = (0..count).map(|at| ("step", step * at)).collect();
            assert_eq!(noted(make, &[0, 7]), steps);
            assert_eq!(noted(make, &[5, 7]), []);
        }
        let make = |notes: &Notes| {
            let condition = function("condition", 1, |b, inputs| {
                notes.print(b, "condition", inputs[0], Effect::Ordered);
                vec![below(b, inputs[0], 5)]
            });
            let body = function("body", 1, |b, inputs| vec![plus(b, inputs[0], step)]);
            function("loop", 1, |b, inputs| {
                let outputs = b.emit(while_loop(condition, body), inputs).unwrap();
                outputs.into_iter().map(Atom::Var).collect()
            })
        };
        let asked: Vec<_> = (0..=count).map(|at| ("condition", step * at)).collect();
        assert_eq!(noted(make, &[0]), asked);
    }
}

/// Only in the branch that is taken, also where the branch is in a loop, and a loop in a branch.
#[test]
fn notes_in_branches() {
    let branches = |notes: &Notes| {
        let [little, large] = ["little", "large"].map(|called| {
            function(called, 1, |b, inputs| {
                notes.print(b, called, inputs[0], Effect::Ordered);
                vec![plus(b, inputs[0], if called == "little" { 1 } else { 2 })]
            })
        });
        Cond { branches: vec![little, large] }
    };
    let one = |notes: &Notes| {
        let cond = branches(notes);
        function("cond", 2, |b, inputs| vec![b.emit1(cond, inputs).unwrap()])
    };
    assert_eq!(noted(one, &[0, 8]), [("little", 8)]);
    assert_eq!(noted(one, &[1, 8]), [("large", 8)]);
    let looped = |notes: &Notes| {
        let cond = branches(notes);
        let condition = function("condition", 1, |b, inputs| vec![below(b, inputs[0], 9)]);
        let body = function("body", 1, |b, inputs| {
            let early = below(b, inputs[0], 3);
            let late = b.convert(early, DType::I32).unwrap();
            let one = b.int_scalar(DType::I32, 1);
            let index = b.sub(one, late).unwrap();
            vec![b.emit1(cond, &[index, inputs[0]]).unwrap()]
        });
        function("loop", 1, |b, inputs| vec![b.emit1(while_loop(condition, body), inputs).unwrap()])
    };
    let taken = [("little", 0), ("little", 1), ("little", 2), ("large", 3), ("large", 5), ("large", 7)];
    assert_eq!(noted(looped, &[0]), taken);
    let branched = |notes: &Notes| {
        let inner = Arc::new((*looped(notes)).clone());
        let other = function("other", 1, |_, inputs| vec![inputs[0]]);
        let cond = Cond { branches: vec![other, inner] };
        function("cond", 2, |b, inputs| vec![b.emit1(cond, inputs).unwrap()])
    };
    assert_eq!(noted(branched, &[1, 0]), taken);
    assert_eq!(noted(branched, &[0, 0]), []);
}
