//! What tests of op rows share.

use ferrax_ir::rules::{Jvp, Rules};
use ferrax_ir::scalar::{Body, ScalarOp, ScalarType, Value, reference};
use ferrax_ir::{
    ArrayType, Atom, Builder, DType, Op, Program, Result, Scalar, Sizes, Tensor, Type, View, convert,
    interpret,
};

pub fn rules(op: &Op) -> &dyn Rules {
    match op.view() {
        View::Leaf(rules) => rules,
        _ => panic!("an op with sub-programs has no rules"),
    }
}

/// A 1-d array of these elements.
pub fn array(elements: &[Scalar]) -> Tensor {
    let bytes: Vec<u8> = elements.iter().flat_map(|element| element.bytes()).collect();
    Tensor::from_bytes(elements[0].dtype(), Sizes::from_slice(&[elements.len()]), &bytes).unwrap()
}

pub fn element(tensor: &Tensor, index: usize) -> Scalar {
    let size = tensor.dtype().size();
    Scalar::from_bytes(tensor.dtype(), &tensor.bytes()[index * size..]).unwrap()
}

pub fn complex(dtype: DType, re: f64, im: f64) -> Scalar {
    convert::store(dtype, convert::Wide::Complex(re, im)).unwrap()
}

/// Real and imaginary part of a float or complex element.
pub fn parts(scalar: Scalar) -> (f64, f64) {
    match convert::load(scalar.dtype(), &scalar.bytes()).unwrap() {
        convert::Wide::Int(value) => (value as f64, 0.0),
        convert::Wide::Float(value) => (value, 0.0),
        convert::Wide::Complex(re, im) => (re, im),
    }
}

/// What `infer` and `eval` give for these operands.
pub fn eval(op: &Op, inputs: &[Tensor]) -> Result<Tensor> {
    let types: Vec<Type> = inputs.iter().map(|input| input.array_type().into()).collect();
    let outputs = op.infer(&types)?;
    Ok(op.eval(inputs, &outputs)?.remove(0))
}

/// What the op's scalar body gives for one element of each operand.
pub fn body(op: &Op, elements: &[Scalar]) -> Result<Scalar> {
    let types: Vec<ArrayType> = elements.iter().map(|element| ArrayType::scalar(element.dtype())).collect();
    let inputs: Vec<Type> = types.iter().cloned().map(Type::from).collect();
    let output = op.infer(&inputs)?[0].as_array().unwrap().clone();
    let mut body = Body::default();
    let mut args = Vec::new();
    for (operand, ty) in types.iter().enumerate() {
        let register = ScalarType::of(ty.dtype)?;
        let mut part = |part| body.push(ScalarOp::Input { operand: operand as u32, part }, register, &[]);
        args.push(if ty.dtype.is_complex() {
            Value::Complex(part(0), part(1))
        } else {
            Value::Real(part(0))
        });
    }
    let result = rules(op).scalar(&mut body, &types, &args, &output)?;
    let values = reference::evaluate(
        &body,
        &reference::Inputs { operands: elements, ..Default::default() },
        &[result],
    )?;
    let expected = ScalarType::of(output.dtype)?.dtype();
    assert!(values[0].iter().all(|value| value.dtype() == expected), "{op:?}: {values:?}");
    Ok(match values[0].as_slice() {
        [re, im] => complex(output.dtype, parts(*re).0, parts(*im).0),
        [only] if output.dtype.is_key() => Scalar::from_bits(output.dtype, only.bits()),
        [only] => convert::store(output.dtype, convert::load(only.dtype(), &only.bytes()).unwrap()).unwrap(),
        other => panic!("{other:?}"),
    })
}

/// The value and tangent of an op at a point, all operands 0-d.
pub fn jvp(op: &Op, point: &[Scalar], tangents: &[Option<Scalar>]) -> Result<(Scalar, Option<Scalar>)> {
    let mut b = Builder::new("jvp");
    let inputs: Vec<Atom> = point.iter().map(|x| b.input(ArrayType::scalar(x.dtype()))).collect();
    let seeds: Vec<Option<Atom>> =
        tangents.iter().map(|g| g.map(|g| b.input(ArrayType::scalar(g.dtype())))).collect();
    let outputs: Vec<Atom> = b.emit(op.clone(), &inputs)?.into_iter().map(Atom::Var).collect();
    let tangent = rules(op).jvp(&mut b, &Jvp { inputs: &inputs, tangents: &seeds, outputs: &outputs })?[0];
    let program = b.finish(outputs.into_iter().chain(tangent));
    let arguments: Vec<Tensor> =
        point.iter().chain(tangents.iter().flatten()).map(|x| x.to_tensor().unwrap()).collect();
    let results = run(&program, &arguments)?;
    Ok((results[0], results.get(1).copied()))
}

pub fn run(program: &Program, arguments: &[Tensor]) -> Result<Vec<Scalar>> {
    Ok(interpret::run(program, arguments)?.iter().map(|tensor| tensor.to_scalar().unwrap()).collect())
}
