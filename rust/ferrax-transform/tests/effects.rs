//! Effects happen once each and in order, whatever a transformation does.

use std::sync::Arc;

use ferrax_ir::rules::{Batch, Batched, Jvp, Lowering, Operand, Row, Rules, Transpose, Types};
use ferrax_ir::{
    ArrayType, Atom, Builder, DType, Effect, Effects, Extension, Op, Param, Program, Result, Tensor, Type,
};
use ferrax_transform::{
    Options, cse, dce, dce_with, fold, jvp, linearize, optimise, partial_eval, simplify, transpose,
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
