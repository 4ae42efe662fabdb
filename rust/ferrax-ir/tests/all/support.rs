//! Helpers of the tests of op rows: small tensors, single-op evaluation, and
//! the laws that every row must keep.

use ferrax_ir::op::View;
use ferrax_ir::rules::{Batch, Jvp, Operand, Rules, Transpose};
use ferrax_ir::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Op, Result, Scalar, Shape, Tensor, Type, interpret,
};

pub fn axes(values: &[usize]) -> Axes {
    values.into()
}

pub fn shape(values: &[usize]) -> Shape {
    values.iter().map(|&size| Dim::Const(size)).collect()
}

pub fn f32s(sizes: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_elements(sizes, values).unwrap()
}

pub fn f64s(sizes: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_elements(sizes, values).unwrap()
}

pub fn i32s(sizes: &[usize], values: &[i32]) -> Tensor {
    Tensor::from_elements(sizes, values).unwrap()
}

/// 0, 1, 2, … in `f64`.
pub fn count(sizes: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..sizes.iter().product()).map(|i: usize| i as f64).collect();
    f64s(sizes, &values)
}

/// Reproducible numbers in -4..4, all different for up to a few hundred elements.
pub fn noise(sizes: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let values: Vec<f64> = (0..sizes.iter().product())
        .map(|_: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 8.0
        })
        .collect();
    f64s(sizes, &values)
}

/// The elements as `f64`, whatever the dtype.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    let width = tensor.dtype().size();
    let scalars = tensor.bytes().chunks_exact(width).map(|bytes| Scalar::from_bytes(tensor.dtype(), bytes));
    scalars.map(|scalar| scalar.unwrap().to_f64().unwrap()).collect()
}

/// The elements as integers.
pub fn ints(tensor: &Tensor) -> Vec<i64> {
    values(tensor).into_iter().map(|value| value as i64).collect()
}

pub fn types(inputs: &[Tensor]) -> Vec<Type> {
    inputs.iter().map(|tensor| tensor.array_type().into()).collect()
}

/// The output of one op.
pub fn try_eval(op: impl Into<Op>, inputs: &[Tensor]) -> Result<Tensor> {
    let op = op.into();
    let outputs = op.infer(&types(inputs))?;
    let mut results = op.eval(inputs, &outputs)?;
    let result = results.remove(0);
    let expected = outputs[0].as_array().unwrap().clone().with_weak(false);
    assert_eq!(result.array_type(), expected, "{} gave another type than it inferred", op.name());
    Ok(result)
}

pub fn eval(op: impl Into<Op>, inputs: &[Tensor]) -> Tensor {
    try_eval(op, inputs).unwrap()
}

/// The type that an op infers.
pub fn infer(op: impl Into<Op>, inputs: &[ArrayType]) -> Result<ArrayType> {
    let inputs: Vec<Type> = inputs.iter().cloned().map(Type::Array).collect();
    op.into().infer(&inputs).map(|types| types[0].as_array().unwrap().clone())
}

/// Class and text of the error that an op refuses with.
pub fn refusal(op: impl Into<Op>, inputs: &[ArrayType]) -> String {
    let error = infer(op, inputs).expect_err("expected a refusal");
    let text = format!("{error:?}");
    format!("{}: {error}", text.split('(').next().unwrap_or_default())
}

pub fn array(dtype: DType, sizes: &[usize]) -> ArrayType {
    ArrayType::of_sizes(sizes, dtype)
}

pub fn rules(op: &Op) -> &dyn Rules {
    match op.view() {
        View::Leaf(rules) => rules,
        _ => panic!("an op with sub-programs has no rules of its own"),
    }
}

pub fn assert_close(got: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(got.array_type(), expected.array_type(), "{what}");
    for (a, b) in values(got).iter().zip(values(expected)) {
        let close = (a - b).abs() <= tolerance * (1.0 + b.abs()) || a.is_nan() && b.is_nan() || *a == b;
        assert!(close, "{what}: got {:?}, expected {:?}", values(got), values(expected));
    }
}

/// The tangent of the output for tangents of some of the inputs.
pub fn jvp(op: &Op, inputs: &[Tensor], tangents: &[Option<Tensor>]) -> Option<Tensor> {
    try_jvp(op, inputs, tangents).unwrap_or_else(|error| panic!("{op:?}: {error}"))
}

pub fn try_jvp(op: &Op, inputs: &[Tensor], tangents: &[Option<Tensor>]) -> Result<Option<Tensor>> {
    let mut b = Builder::new("jvp");
    let primals: Vec<Atom> = inputs.iter().map(|tensor| b.input(tensor.array_type())).collect();
    let tangent_atoms: Vec<Option<Atom>> =
        tangents.iter().map(|tangent| tangent.as_ref().map(|t| b.input(t.array_type()))).collect();
    let outputs: Vec<Atom> = b.emit(op.clone(), &primals).unwrap().into_iter().map(Atom::Var).collect();
    let eqn = Jvp { inputs: &primals, tangents: &tangent_atoms, outputs: &outputs };
    let Some(result) = rules(op).jvp(&mut b, &eqn)?[0] else { return Ok(None) };
    let program = b.finish([result]);
    let all: Vec<Tensor> = inputs.iter().cloned().chain(tangents.iter().flatten().cloned()).collect();
    Ok(Some(interpret::run(&program, &all)?.remove(0)))
}

/// The cotangents of the inputs at `linear` for this cotangent of the output.
pub fn transpose(op: &Op, inputs: &[Tensor], linear: &[usize], cotangent: &Tensor) -> Vec<Tensor> {
    let mut b = Builder::new("transpose");
    let mut arguments = vec![cotangent.clone()];
    let cotangent = b.input(cotangent.array_type());
    let operands: Vec<Operand> = inputs
        .iter()
        .enumerate()
        .map(|(position, tensor)| {
            if linear.contains(&position) {
                return Operand::Linear(tensor.array_type().into());
            }
            arguments.push(tensor.clone());
            Operand::Known(b.input(tensor.array_type()))
        })
        .collect();
    let outputs = op.infer(&types(inputs)).unwrap();
    let eqn = Transpose { inputs: &operands, outputs: &outputs, cotangents: &[Some(cotangent)] };
    let results = rules(op).transpose(&mut b, &eqn).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    let wanted: Vec<Atom> = linear.iter().map(|&position| results[position].expect("a cotangent")).collect();
    let program = b.finish(wanted);
    interpret::run(&program, &arguments).unwrap_or_else(|error| panic!("{op:?}: {error}"))
}

pub fn dot(left: &Tensor, right: &Tensor) -> f64 {
    values(left).iter().zip(values(right)).map(|(a, b)| a * b).sum()
}

/// `sum(op(x) · y) = sum(x · transpose(op)(y))` for each linear input and all of them.
pub fn check_transpose(op: &Op, inputs: &[Tensor], linear: &[usize]) {
    let subsets = linear.iter().map(|&one| vec![one]).chain([linear.to_vec()]);
    for subset in subsets {
        let mut inputs = inputs.to_vec();
        // What is not differentiated adds a constant: make it zero.
        for &position in linear.iter().filter(|position| !subset.contains(position)) {
            inputs[position] = Tensor::zeros(inputs[position].dtype(), inputs[position].sizes()).unwrap();
        }
        let output = eval(op.clone(), &inputs);
        let cotangent = noise(output.sizes(), 77);
        let cotangents = transpose(op, &inputs, &subset, &cotangent);
        let mut total = 0.0;
        for (position, cotangent) in subset.iter().zip(&cotangents) {
            assert_eq!(cotangent.array_type(), inputs[*position].array_type(), "{op:?}");
            total += dot(&inputs[*position], cotangent);
        }
        let expected = dot(&output, &cotangent);
        assert!((total - expected).abs() < 1e-9 * (1.0 + expected.abs()), "{op:?}: {total} for {expected}");
    }
}

/// The jvp rule against a central difference.
pub fn check_jvp(op: &Op, inputs: &[Tensor], differentiable: &[usize]) {
    for &position in differentiable {
        check_jvp_along(op, inputs, position, &noise(inputs[position].sizes(), 5));
    }
}

/// The jvp rule against a central difference, for a tangent of one operand.
pub fn check_jvp_along(op: &Op, inputs: &[Tensor], position: usize, direction: &Tensor) {
    let mut tangents = vec![None; inputs.len()];
    tangents[position] = Some(direction.clone());
    let got = jvp(op, inputs, &tangents).expect("a tangent");
    let step = 1e-6;
    let at = |sign: f64| {
        let mut inputs = inputs.to_vec();
        let moved: Vec<f64> = values(&inputs[position])
            .iter()
            .zip(values(direction))
            .map(|(x, t)| x + sign * step * t)
            .collect();
        inputs[position] = f64s(inputs[position].sizes(), &moved);
        values(&eval(op.clone(), &inputs))
    };
    let slope: Vec<f64> = at(1.0).iter().zip(at(-1.0)).map(|(a, b)| (a - b) / (2.0 * step)).collect();
    assert_close(&got, &f64s(got.sizes(), &slope), 1e-6, &format!("{op:?} operand {position}"));
}

/// Arrays put together along a new axis.
pub fn stack(lanes: &[Tensor], axis: usize) -> Tensor {
    let mut sizes: Axes = lanes[0].sizes().into();
    let inner: usize = sizes[axis..].iter().product();
    let outer: usize = sizes[..axis].iter().product();
    sizes.insert(axis, lanes.len());
    let width = lanes[0].dtype().size() * inner;
    let mut bytes = Vec::new();
    for block in 0..outer {
        for lane in lanes {
            bytes.extend_from_slice(&lane.bytes()[block * width..(block + 1) * width]);
        }
    }
    Tensor::from_bytes(lanes[0].dtype(), sizes, &bytes).unwrap()
}

/// The batch rule against evaluation lane by lane, for every choice of batched
/// operands, with batch dimensions in front and at the end. `lanes` are the
/// operands of three lanes.
pub fn check_batch(op: &Op, lanes: &[Vec<Tensor>; 3]) {
    let operands = lanes[0].len();
    for choice in 1..1usize << operands {
        for at_end in [false, true] {
            let batched = |position: usize| choice >> position & 1 == 1;
            let mut b = Builder::new("batch");
            let (mut atoms, mut dims, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
            for position in 0..operands {
                let dim = if at_end { lanes[0][position].rank() } else { 0 };
                let all: Vec<Tensor> = lanes.iter().map(|lane| lane[position].clone()).collect();
                let argument = if batched(position) { stack(&all, dim) } else { all[0].clone() };
                atoms.push(b.input(argument.array_type()));
                dims.push(batched(position).then_some(dim));
                arguments.push(argument);
            }
            let eqn = Batch { size: &Dim::Const(3), axis_name: None, inputs: &atoms, dims: &dims };
            let results = rules(op).batch(&mut b, &eqn).unwrap_or_else(|error| panic!("{op:?}: {error}"));
            let (output, dim) = results[0];
            let dim = dim.expect("a batched output");
            let program = b.finish([output]);
            let got = interpret::run(&program, &arguments).unwrap_or_else(|error| panic!("{op:?}: {error}"));
            let each: Vec<Tensor> = lanes
                .iter()
                .map(|lane| {
                    let inputs: Vec<Tensor> = (0..operands)
                        .map(|position| if batched(position) { &lane[position] } else { &lanes[0][position] })
                        .cloned()
                        .collect();
                    eval(op.clone(), &inputs)
                })
                .collect();
            assert_eq!(got[0], stack(&each, dim), "{op:?} batched over {dims:?}");
        }
    }
}

/// Whether name and parameters make the same op again.
pub fn check_params(op: &Op) {
    let entries = op.params().into_iter().map(|(name, value)| (name.into(), value)).collect();
    assert_eq!(Op::from_params(op.name(), entries).unwrap(), *op);
}
