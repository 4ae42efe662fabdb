//! A batched program does what mapping the program over the batch does.

use crate::common::*;
use ferrax_ir::verify::verify;
use ferrax_ir::{ArrayType, Builder, DType, Dim, Tensor, Type};
use ferrax_transform::{OutDims, batch, jvp, vjp_program};

/// Element `index` along `axis`.
fn take(tensor: &Tensor, axis: usize, index: usize) -> Tensor {
    let sizes = tensor.sizes();
    let outer: usize = sizes[..axis].iter().product();
    let inner: usize = sizes[axis + 1..].iter().product();
    let values = floats(tensor);
    let picked: Vec<f64> = (0..outer)
        .flat_map(|o| {
            let start = (o * sizes[axis] + index) * inner;
            values[start..start + inner].iter().copied()
        })
        .collect();
    let mut rest = sizes.to_vec();
    rest.remove(axis);
    Tensor::from_elements(rest, &picked).unwrap()
}

fn check(program: &ferrax_ir::Program, seed: u64) {
    let size = 4;
    let mut random = Random::new(seed + 50);
    let chosen = flags(&mut random, program.inputs.len());
    let mut dims = Vec::new();
    let mut inputs = Vec::new();
    for (ty, batched) in program.input_types().zip(chosen) {
        let mut ty = ty.as_array().unwrap().clone();
        let dim = batched.then(|| random.below(ty.rank() + 1));
        if let Some(dim) = dim {
            ty.shape.insert(dim, Dim::Const(size));
        }
        dims.push(dim);
        inputs.push(random.tensor(&ty));
    }
    let (batched, out_dims) = batch(program, &Dim::Const(size), &dims, None, OutDims::AsIs).unwrap();
    verify(&batched).unwrap();
    let results = run(&batched, &inputs);
    for index in 0..size {
        let lane: Vec<Tensor> = inputs
            .iter()
            .zip(&dims)
            .map(|(tensor, dim)| dim.map_or_else(|| tensor.clone(), |dim| take(tensor, dim, index)))
            .collect();
        let found: Vec<Tensor> = results
            .iter()
            .zip(&out_dims)
            .map(|(tensor, dim)| dim.map_or_else(|| tensor.clone(), |dim| take(tensor, dim, index)))
            .collect();
        assert_close(&found, &run(program, &lane), 1e-12, program);
    }
}

#[test]
fn batching_is_mapping() {
    for seed in 0..60 {
        check(&random_program(seed, 12, 2), seed);
    }
}

#[test]
fn batching_of_derivatives_is_mapping() {
    for seed in 0..25 {
        let program = random_program(seed, 8, 1);
        let nonzero = vec![true; program.inputs.len()];
        let (forward, given) = jvp(&program, &nonzero).unwrap();
        check(&forward, seed);
        check(&vjp_program(&program, &nonzero, &given).unwrap(), seed);
    }
}

#[test]
fn outputs_go_where_they_are_asked_for() {
    let mut b = Builder::new("f");
    let x = b.input(ArrayType::of_sizes(&[2, 3], DType::F64));
    let y = b.input(ArrayType::of_sizes(&[2], DType::F64));
    let sine = b.neg(x).unwrap();
    let program = b.finish([sine, y]);
    let size = Dim::Const(5);
    let dims = [Some(1), None];
    let types = |force: &[Option<usize>]| -> Vec<String> {
        let (batched, out) = batch(&program, &size, &dims, None, OutDims::Force(force)).unwrap();
        assert_eq!(out, force);
        batched.output_types().map(|ty: Type| ty.to_string()).collect()
    };
    assert_eq!(types(&[Some(2), Some(0)]), ["f64[2,3,5]", "f64[5,2]"]);
    assert_eq!(types(&[Some(0), None]), ["f64[5,2,3]", "f64[2]"]);
    let (_, front) = batch(&program, &size, &dims, None, OutDims::Front).unwrap();
    assert_eq!(front, [Some(0), None]);
    let refused = |force: &[Option<usize>]| {
        batch(&program, &size, &dims, Some("i"), OutDims::Force(force)).unwrap_err().to_string()
    };
    assert!(refused(&[None, None]).contains("axis_name=i"));
    assert!(refused(&[Some(3), None]).contains("out of bounds"));
}

#[test]
fn symbolic_batches_work() {
    let program = random_program(3, 10, 1);
    let size = Dim::variable("b");
    let dims = vec![Some(0); program.inputs.len()];
    let (batched, _) = batch(&program, &size, &dims, None, OutDims::Front).unwrap();
    verify(&batched).unwrap();
}
