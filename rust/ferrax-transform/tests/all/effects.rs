//! Effects happen once each and in order, whatever a transformation does.

use std::sync::Arc;

use ferrax_ir::ops::Scan;
use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Operand, Row, Rules, Transpose, Types};
use ferrax_ir::{
    ArrayType, Atom, Builder, DType, Dim, Effect, Effects, Extension, Op, Param, Program, Result, Tensor,
    Type,
};
use ferrax_transform::{
    Options, OutDims, batch, cse, dce, dce_with, fold, hoist, jvp, linearize, optimise, partial_eval,
    simplify, transpose,
};
use smallvec::{SmallVec, smallvec};

/// The identity, which says its name.
#[derive(Debug)]
struct Say(&'static str);

impl Row for Say {
    fn name(&self) -> &str {
        self.0
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        Vec::new()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        Ok(smallvec![inputs[0].clone()])
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        Ok(inputs.to_vec())
    }

    fn effects(&self) -> Effects {
        Effects::from([Effect::Ordered])
    }
}

impl Rules for Say {
    fn jvp(&self, _b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Ok(smallvec![eqn.tangents[0]])
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        assert!(matches!(eqn.inputs[0], Operand::Linear(_)));
        let Some(cotangent) = eqn.cotangents[0] else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(b.emit1(say(self.0), &[cotangent])?)])
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        Ok(smallvec![(b.emit1(say(self.0), eqn.inputs)?, eqn.dims[0])])
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}

fn say(name: &'static str) -> Op {
    Op::Extension(Extension(Arc::new(Say(name))))
}

/// Says one of `x`, two of `y`, one of `x` again, three of a literal.
fn program() -> Program {
    let mut b = Builder::new("f");
    let x = b.input(ArrayType::scalar(DType::F64));
    let y = b.input(ArrayType::scalar(DType::F64));
    let one = say("one");
    let first = b.emit1(one.clone(), &[x]).unwrap();
    b.emit1(say("two"), &[y]).unwrap();
    b.emit1(one, &[x]).unwrap();
    let literal = b.scalar(DType::F64, 1.0);
    b.emit1(say("three"), &[literal]).unwrap();
    b.finish([first])
}

fn said(program: &Program) -> Vec<&str> {
    let loud = program.equations.iter().filter(|equation| !equation.op.effects().is_empty());
    loud.map(|equation| equation.op.name()).collect()
}

#[test]
fn optimisations_keep_effects() {
    let program = program();
    let want = ["one", "two", "one", "three"];
    assert_eq!(said(&dce(&program).unwrap()), want);
    assert_eq!(said(&dce_with(&program, &[false]).unwrap().0), want);
    assert_eq!(said(&cse(&program).unwrap()), want);
    assert_eq!(said(&fold(&program).unwrap()), want);
    assert_eq!(said(&simplify(&program).unwrap()), want);
    assert_eq!(said(&optimise(&program, Options::default()).unwrap()), want);
}

#[test]
fn derivatives_keep_effects() {
    let want = ["one", "two", "one", "three"];
    assert_eq!(said(&jvp(&program(), &[true, true]).unwrap().0), want);
    let linearized = linearize(&program(), &[true, false]).unwrap();
    assert_eq!(said(&linearized.primal), want);
    assert!(said(&linearized.linear).is_empty());
}

#[test]
fn what_comes_after_an_unknown_effect_waits_for_it() {
    let parts = partial_eval(&program(), &[false, true]).unwrap();
    assert_eq!(said(&parts.known), ["one"]);
    assert_eq!(said(&parts.unknown), ["two", "one", "three"]);
}

#[test]
fn transposing_says_backwards() {
    let mut b = Builder::new("f");
    let x = b.input(ArrayType::scalar(DType::F64));
    let y = b.emit1(say("one"), &[x]).unwrap();
    let z = b.emit1(say("two"), &[y]).unwrap();
    let (transposed, _) = transpose(&b.finish([z]), &[true], &[true]).unwrap();
    assert_eq!(said(&transposed), ["two", "one"]);
}

/// Each step says one of the carry and two of the constant.
fn looped() -> Program {
    let mut b = Builder::new("body");
    let ty = ArrayType::scalar(DType::F64);
    let (k, c) = (b.input(ty.clone()), b.input(ty.clone()));
    let next = b.emit1(say("one"), &[c]).unwrap();
    b.emit1(say("two"), &[k]).unwrap();
    let square = b.mul(next, k).unwrap();
    let body = Arc::new(b.finish([square]));
    let op =
        Scan { jaxpr: body, length: Dim::Const(3), num_carry: 1, num_consts: 1, reverse: false, unroll: 1 };
    let mut b = Builder::new("f");
    let (k, c) = (b.input(ty.clone()), b.input(ty));
    let last = b.emit1(op, &[k, c]).unwrap();
    b.finish([last])
}

/// What each step of a program's loops says.
fn said_in_loops(program: &Program) -> Vec<Vec<&str>> {
    let bodies = program.equations.iter().flat_map(|equation| equation.op.programs());
    bodies.map(|body| said(body)).collect()
}

#[test]
fn loops_keep_their_effects() {
    let program = looped();
    let want = [vec!["one", "two"]];
    assert_eq!(said_in_loops(&dce(&program).unwrap()), want);
    assert_eq!(said_in_loops(&dce_with(&program, &[false]).unwrap().0), want);
    assert_eq!(said_in_loops(&hoist(&program).unwrap()), want);
    assert_eq!(said_in_loops(&optimise(&program, Options::default()).unwrap()), want);
    assert_eq!(said_in_loops(&jvp(&program, &[true, true]).unwrap().0), want);
    let linearized = linearize(&program, &[true, true]).unwrap();
    assert_eq!(said_in_loops(&linearized.primal), want);
    assert_eq!(said_in_loops(&linearized.linear), [[""; 0]]);
    let (batched, _) = batch(&program, &Dim::Const(2), &[Some(0), None], None, OutDims::AsIs).unwrap();
    assert_eq!(said_in_loops(&batched), want);
    // Of what is said of the constant no step can be had without the rest.
    let parts = partial_eval(&program, &[false, true]).unwrap();
    assert!(said_in_loops(&parts.known).is_empty());
    assert_eq!(said_in_loops(&parts.unknown), want);
}
