//! Calls, branches and loops in programs that are differentiated: bodies of one turn, whose growth is known for
//! each number of steps.

use std::sync::Arc;

use ferrax_ir::ops::{
    Call, Checkpoint, Compare, Cond, CustomJvp, CustomVjp, CustomVmap, JvpHandle, LinearCall, LinearSolve,
    PolicyHandle, SavedJvp, SavedVjp, Scan, StopGradient, VjpHandle, While,
};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Op, Program, Result};
use ferrax_transform::{jvp_with, vjp_program};

use super::derivatives::{Polynomial, Term};
use super::dims;
use crate::common::Choices;

/// What a turn makes of a constant `k`, a carry `c` and an element `e`: the next carry, and an element.
#[derive(Clone, Copy)]
enum Turn {
    /// `c + k e` and itself.
    Add,
    /// `c e` and `c - k`.
    Scale,
    /// `k - c` and `c e`.
    Flip,
}

impl Turn {
    fn emit(self, b: &mut Builder, k: Atom, c: Atom, e: Atom) -> Result<[Atom; 2]> {
        Ok(match self {
            Turn::Add => {
                let product = b.mul(k, e)?;
                let sum = b.add(c, product)?;
                [sum, sum]
            }
            Turn::Scale => [b.mul(c, e)?, b.sub(c, k)?],
            Turn::Flip => [b.sub(k, c)?, b.mul(c, e)?],
        })
    }

    fn terms(self, k: Term, c: Term, e: Term) -> [Term; 2] {
        match self {
            Turn::Add => [c.plus(k.product(e)); 2],
            Turn::Scale => [c.product(e), c.plus(k)],
            Turn::Flip => [k.plus(c), c.product(e)],
        }
    }

    /// The carry after so many turns, and the elements of all.
    fn after(self, steps: usize, k: Term, c: Term, e: Term) -> [Term; 2] {
        let mut elements = c;
        let carry = (0..steps).fold(c, |c, _| {
            let [carry, element] = self.terms(k, c, e);
            elements = elements.plus(element);
            carry
        });
        [carry, elements]
    }

    /// The turn over three arrays of a type.
    fn program(self, ty: &ArrayType) -> Result<Arc<Program>> {
        let mut b = Builder::new("turn");
        let [k, c, e] = [(); 3].map(|()| b.input(ty.clone()));
        let made = self.emit(&mut b, k, c, e)?;
        Ok(Arc::new(b.finish(made)))
    }
}

/// The reverse derivative of a program as a rule: what is kept are its inputs.
fn reverse_rule(program: &Program) -> Result<[Arc<Program>; 2]> {
    let (inputs, outputs) = (program.inputs.len(), program.outputs.len());
    let mut b = Builder::new("forward");
    let given: Vec<Atom> = program.input_types().map(|ty| b.input(ty.clone())).collect();
    let made = b.inline(program, &given)?;
    let forward = b.finish(made.into_iter().chain(given));
    let both = vjp_program(program, &vec![true; inputs], &vec![true; outputs])?;
    let mut b = Builder::new("backward");
    let given: Vec<Atom> = both.input_types().map(|ty| b.input(ty.clone())).collect();
    let made = b.inline(&both, &given)?;
    Ok([Arc::new(forward), Arc::new(b.finish(made.into_iter().skip(outputs)))])
}

impl<C: Choices> Polynomial<'_, C> {
    fn turn(&mut self) -> Turn {
        self.pick(&[Turn::Add, Turn::Scale, Turn::Flip])
    }

    /// The turn as an op of three arrays, which calls it in one way or another.
    fn calling(&mut self, turn: Turn, ty: &ArrayType) -> Option<Op> {
        let (forward_only, reverse_only) = (self.forward, self.reverse);
        let program = turn.program(ty).ok()?;
        let name = Arc::<str>::from("turn");
        Some(match self.choices.below(4) {
            0 => Call { name, program, inline: false }.into(),
            1 => {
                let (policy, prevent_cse) = (PolicyHandle::default(), self.choices.below(2) == 1);
                Checkpoint { differentiated: false, jaxpr: program, policy, prevent_cse }.into()
            }
            2 => {
                let (rule, flags) = jvp_with(&program, &[true; 3], &[true; 2]).ok()?;
                let saved = SavedJvp { name, nonzero: vec![true; 3], flags, program: Some(Arc::new(rule)) };
                let jvp_jaxpr_fun = JvpHandle(Arc::new(saved));
                CustomJvp { call_jaxpr: program, jvp_jaxpr_fun, num_consts: 0, symbolic_zeros: false }.into()
            }
            // This one has a forward derivative only, and the next one a reverse one.
            _ if forward_only => CustomVmap { call: program, name, sequential: true }.into(),
            _ if !reverse_only => Call { name, program, inline: true }.into(),
            _ => {
                let programs = Some(reverse_rule(&program).ok()?);
                let (perturbed, flags) = (vec![true; 3], vec![true; 3]);
                let saved = SavedVjp { name, perturbed, flags, programs, optimize_remat: false };
                let rule = VjpHandle(Arc::new(saved));
                CustomVjp { call_jaxpr: program, num_consts: 0, rule, symbolic_zeros: false }.into()
            }
        })
    }

    pub(super) fn called(&mut self, x: Term) -> Option<Term> {
        let (k, e) = (self.like(x), self.like(x));
        let ty = self.b.array_type(x.atom).ok()?;
        let turn = self.turn();
        match self.choices.below(5) {
            0 => {
                // One turn or another.
                let other = self.turn();
                let branches = vec![turn.program(&ty).ok()?, other.program(&ty).ok()?];
                let at = self.b.slice_axis(self.places, 0, 0, 1).ok()?;
                let index = self.b.reshape(at, &[]).ok()?;
                let [one, two] = [turn, other].map(|turn| turn.terms(k, x, e)[0]);
                self.emit(Cond { branches }, &[index, k.atom, x.atom, e.atom], one.plus(two))
            }
            1 => {
                let linear = |b: &mut Builder| {
                    let (k, v) = (b.input(ty.clone()), b.input(ty.clone()));
                    b.mul(k, v)
                };
                let program = || -> Option<Arc<Program>> {
                    let mut b = Builder::new("linear");
                    let made = linear(&mut b).ok()?;
                    Some(Arc::new(b.finish([made])))
                };
                // What it is not linear in has no derivative.
                let still = self.b.emit1(StopGradient {}, &[k.atom]).ok()?;
                let op = LinearCall {
                    callee: program()?,
                    name: "linear".into(),
                    num_res: 1,
                    transpose: Some(program()?),
                };
                self.emit(op, &[still, x.atom], x.product(k))
            }
            2 => {
                // The system whose matrix is minus one.
                let mut b = Builder::new("negation");
                let v = b.input(ty.clone());
                let made = b.neg(v).ok()?;
                let program = Arc::new(b.finish([made]));
                let op = LinearSolve {
                    matvec: program.clone(),
                    num_params: 0,
                    solve: program.clone(),
                    transpose_solve: Some(program.clone()),
                    vecmat: Some(program),
                };
                self.emit(op, &[x.atom], x)
            }
            _ => {
                let op = self.calling(turn, &ty)?;
                let found = self.b.emit(op, &[k.atom, x.atom, e.atom]).ok()?;
                let terms = turn.terms(k, x, e);
                let which = self.choices.below(2);
                Some(terms[which].of(Atom::Var(found[which])))
            }
        }
    }

    /// `x` through a few turns, in a loop that counts them or goes along arrays.
    pub(super) fn looped(&mut self, x: Term) -> Option<Term> {
        let (k, e) = (self.like(x), self.like(x));
        let ty = self.b.array_type(x.atom).ok()?;
        let (turn, steps) = (self.turn(), 1 + self.choices.below(3));
        let call = self.calling(turn, &ty)?;
        let [carry, elements] = turn.after(steps, k, x, e);
        if self.choices.below(2) == 0 {
            let mut b = Builder::new("scanned");
            let operands = [(); 3].map(|()| b.input(ty.clone()));
            let made = b.emit(call, &operands).ok()?;
            let jaxpr = Arc::new(b.finish(made.into_iter().map(Atom::Var)));
            let shape = [&[steps][..], &self.sizes(x)].concat();
            let kept: Vec<usize> = (1..shape.len()).collect();
            let along = self.b.broadcast_in_dim(e.atom, &dims(&shape), &kept).ok()?;
            let reverse = self.choices.below(2) == 1;
            let op =
                Scan { jaxpr, length: Dim::Const(steps), num_carry: 1, num_consts: 1, reverse, unroll: 1 };
            let found = self.b.emit(op, &[k.atom, x.atom, along]).ok()?;
            return Some(match self.choices.below(2) {
                0 => carry.of(Atom::Var(found[0])),
                _ => elements.of(Atom::Var(found[1])),
            });
        }
        let counter = ArrayType::of_sizes(&[], DType::I32);
        let mut b = Builder::new("more");
        let i = b.input(counter.clone());
        b.input(ty.clone());
        let last = b.int_scalar(DType::I32, steps as i64);
        let goes_on = b.compare(Compare::Lt, i, last).ok()?;
        let cond_jaxpr = Arc::new(b.finish([goes_on]));
        let mut b = Builder::new("body");
        let [k_in, e_in, i, c] = [&ty, &ty, &counter, &ty].map(|ty| b.input(ty.clone()));
        let one = b.int_scalar(DType::I32, 1);
        let next = b.add(i, one).ok()?;
        let carried = b.emit(call, &[k_in, c, e_in]).ok()?[0];
        let body_jaxpr = Arc::new(b.finish([next, Atom::Var(carried)]));
        let (checkpoints, max_steps) = self.pick(&[(None, None), (None, Some(4)), (Some(2), Some(4))]);
        let op = While { body_jaxpr, body_nconsts: 2, checkpoints, cond_jaxpr, cond_nconsts: 0, max_steps };
        let zero = self.b.int_scalar(DType::I32, 0);
        let found = self.b.emit(op, &[k.atom, e.atom, zero, x.atom]).ok()?;
        Some(carry.of(Atom::Var(found[1])))
    }
}
