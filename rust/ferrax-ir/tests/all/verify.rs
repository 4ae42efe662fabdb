//! Each invariant of the verifier, broken.

use ferrax_ir::ops::Unary;
use ferrax_ir::verify::verify;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Effect, Literal, Program, Scalar, Tensor, Type, Var};

fn program() -> Program {
    let mut b = Builder::new("f");
    let x = b.input(ArrayType::of_sizes(&[3], DType::F32));
    let c = b.constant(Tensor::zeros(DType::F32, [3].as_slice()).unwrap(), false);
    let y = b.add(x, c).unwrap();
    let z = b.unary(Unary::Sin, y).unwrap();
    b.finish([z])
}

#[track_caller]
fn refused(expected: &str, damage: impl FnOnce(&mut Program)) {
    let mut broken = program();
    verify(&broken).unwrap();
    damage(&mut broken);
    let message = verify(&broken).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn every_invariant_is_checked() {
    refused("defines variable", |p| p.inputs.push(p.inputs[0]));
    refused("has no type", |p| p.inputs.push(Var(100)));
    refused("used before its definition", |p| p.equations.swap(0, 1));
    refused("an output: variable", |p| p.outputs.push(Atom::Var(Var(100))));
    refused("defines variable", |p| {
        let first = p.equations[0].clone();
        p.equations.push(first);
    });
    refused("a literal of dtype float0", |p| {
        p.outputs.push(Atom::Literal(Literal { value: Scalar::zero(DType::Float0), weak: false }));
    });
    refused("its type says", |p| p.constants[0].1 = Tensor::zeros(DType::F32, [4].as_slice()).unwrap());
    refused("the type rule gives", |p| {
        let var = p.equations[1].outputs[0];
        p.types[var.index()] = Type::Array(ArrayType::of_sizes(&[3], DType::F32).with_weak(true));
    });
    refused("effects", |p| {
        p.effects.insert(Effect::Ordered);
    });
}
