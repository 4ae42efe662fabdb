//! Scans written out: the oracle of the rules of `scan`, which then need none.

use std::sync::Arc;

use ferrax_ir::ops::control::stacked_type;
use ferrax_ir::ops::{Concatenate, Scan, Unary};
use ferrax_ir::verify::verify;
use ferrax_ir::{Atom, Builder, DType, Op, Program, Tensor, Type};

use super::{Random, random_program};

pub fn parse(text: &str) -> Program {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&program).unwrap();
    program
}

pub fn scans(program: &Program) -> Vec<&Scan> {
    let ops = program.equations.iter();
    ops.filter_map(|equation| if let Op::Scan(op) = &equation.op { Some(op) } else { None }).collect()
}

/// Constants, carries, arrays gone through, stacked outputs.
pub fn counts(op: &Scan) -> [usize; 4] {
    let arrays = op.jaxpr.inputs.len() - op.num_consts - op.num_carry;
    [op.num_consts, op.num_carry, arrays, op.jaxpr.outputs.len() - op.num_carry]
}

/// The same program with every scan, in scans and callees too, written out step
/// by step.
pub fn unrolled(program: &Program) -> Program {
    let mut b = Builder::new(program.name.clone());
    let inputs: Vec<Atom> = program.input_types().map(|ty| b.input(ty.clone())).collect();
    let outputs = write_out(&mut b, program, &inputs);
    b.finish(outputs)
}

fn write_out(b: &mut Builder, program: &Program, inputs: &[Atom]) -> Vec<Atom> {
    let mut map: Vec<Option<Atom>> = vec![None; program.types.len()];
    for (var, &atom) in program.inputs.iter().zip(inputs) {
        map[var.index()] = Some(atom);
    }
    for (var, tensor) in &program.constants {
        map[var.index()] = Some(b.constant(tensor.clone(), false));
    }
    let at = |map: &[Option<Atom>], atom: &Atom| match atom {
        Atom::Var(var) => map[var.index()].unwrap(),
        literal => *literal,
    };
    for equation in &program.equations {
        let inputs: Vec<Atom> = equation.inputs.iter().map(|atom| at(&map, atom)).collect();
        let outputs: Vec<Atom> = match &equation.op {
            Op::Scan(op) => steps(b, op, &inputs, equation.outputs.iter().map(|v| &program.types[v.index()])),
            Op::Call(op) => write_out(b, &op.program, &inputs),
            op => b.emit(op.clone(), &inputs).unwrap().into_iter().map(Atom::Var).collect(),
        };
        for (var, atom) in equation.outputs.iter().zip(outputs) {
            map[var.index()] = Some(atom);
        }
    }
    program.outputs.iter().map(|atom| at(&map, atom)).collect()
}

fn steps<'a>(
    b: &mut Builder,
    op: &Scan,
    inputs: &[Atom],
    types: impl Iterator<Item = &'a Type>,
) -> Vec<Atom> {
    let length = op.length.as_const().unwrap();
    let (constants, carry, arrays) = op.split(inputs);
    let mut carry = carry.to_vec();
    let stacked = op.jaxpr.outputs.len() - op.num_carry;
    let mut elements: Vec<Vec<Atom>> = vec![vec![Atom::Literal(zero()); length]; stacked];
    for step in 0..length {
        let place = if op.reverse { length - 1 - step } else { step };
        let mut arguments = [constants, &carry].concat();
        for &array in arrays {
            let element = b.slice_axis(array, 0, place, place + 1).unwrap();
            arguments.push(b.squeeze(element, &[0]).unwrap());
        }
        let mut results = write_out(b, &op.jaxpr, &arguments);
        for (elements, element) in elements.iter_mut().zip(results.split_off(op.num_carry)) {
            elements[place] = b.expand_dim(element, 0).unwrap();
        }
        carry = results;
    }
    let types: Vec<&Type> = types.skip(op.num_carry).collect();
    for (elements, ty) in elements.iter().zip(types) {
        carry.push(match elements.as_slice() {
            [] => b.zeros(ty.as_array().unwrap()).unwrap(),
            elements => b.emit1(Concatenate { dimension: 0 }, elements).unwrap(),
        });
    }
    carry
}

fn zero() -> ferrax_ir::Literal {
    ferrax_ir::Literal { value: ferrax_ir::Scalar::from_f64(DType::F64, 0.0), weak: false }
}

/// A random body in a scan of a few steps: some of its inputs are constants, some
/// the carry, some elements; what it gives is stacked or goes into the carry.
pub fn random_scan(seed: u64) -> Program {
    let mut random = Random::new(seed + 77);
    let inner = random_program(seed + 300, 8, 1);
    let mut roles: Vec<usize> = inner.inputs.iter().map(|_| random.below(3)).collect();
    roles.sort_unstable();
    let count = |role: usize| roles.iter().filter(|found| **found == role).count();
    let (num_consts, num_carry) = (count(0), count(1));

    let mut b = Builder::new("body");
    let inputs: Vec<Atom> = inner.input_types().map(|ty| b.input(ty.clone())).collect();
    let results = b.inline(&inner, &inputs).unwrap();
    let mut outputs = Vec::new();
    for &carry in &inputs[num_consts..num_consts + num_carry] {
        let ty = b.array_type(carry).unwrap();
        let mut next = match random.below(4) {
            0 => random.pick(&inputs),
            _ => random.pick(&results),
        };
        if b.shape(next) != ty.shape {
            let axes: Vec<usize> = (0..b.rank(next)).collect();
            let sum = b.reduce_sum(next, &axes).unwrap();
            let bounded = b.unary(Unary::Tanh, sum).unwrap();
            next = b.broadcast_scalar(bounded, &ty.shape).unwrap();
        }
        outputs.push(next);
    }
    outputs.extend(results.iter().skip(random.below(2)));
    let body = b.finish(outputs);

    let mut b = Builder::new("looped");
    let length = 2 + random.below(2);
    let arguments: Vec<Atom> = body
        .input_types()
        .zip(&roles)
        .map(|(ty, &role)| match (ty, role) {
            (Type::Array(ty), 2) => b.input(stacked_type(ty, &length.into())),
            (ty, _) => b.input(ty.clone()),
        })
        .collect();
    let op = Scan {
        jaxpr: Arc::new(body),
        length: length.into(),
        num_carry,
        num_consts,
        reverse: random.flag(),
        unroll: 1,
    };
    let outputs = b.emit(op, &arguments).unwrap();
    b.finish(outputs.into_iter().map(Atom::Var))
}

/// Values for inputs of these types: floats, or small integers.
pub fn values<'a>(random: &mut Random, types: impl IntoIterator<Item = &'a Type>) -> Vec<Tensor> {
    let value = |ty: &Type| {
        let ty = ty.as_array().unwrap();
        let sizes = ty.sizes().unwrap();
        let count: usize = sizes.iter().product();
        match ty.dtype {
            DType::F64 => random.tensor(ty),
            DType::I32 => {
                let values: Vec<i32> = (0..count).map(|_| random.below(3) as i32).collect();
                Tensor::from_elements(sizes, &values).unwrap()
            }
            DType::U32 => {
                let values: Vec<u32> = (0..count).map(|_| random.next() as u32).collect();
                Tensor::from_elements(sizes, &values).unwrap()
            }
            other => panic!("no values of dtype {other}"),
        }
    };
    types.into_iter().map(value).collect()
}

/// Floats are close, everything else is equal.
pub fn assert_same(got: &[Tensor], want: &[Tensor], tolerance: f64, what: &str, program: &Program) {
    assert_eq!(got.len(), want.len(), "{what}\n{program}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.array_type(), want.array_type(), "{what}\n{program}");
        if got.dtype() != DType::F64 {
            assert_eq!(got.bytes(), want.bytes(), "{what}\n{program}");
            continue;
        }
        for (x, y) in got.elements::<f64>().unwrap().iter().zip(want.elements::<f64>().unwrap()) {
            assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "{what}: {x} is not {y}\n{program}");
        }
    }
}
