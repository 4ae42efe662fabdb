//! Derivatives of random programs, judged by finite differences and by each other.

use crate::common::*;
use ferrax_ir::ops::{Call, Unary};
use ferrax_ir::verify::verify;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Op, Program, Source, SourceLine, Tensor};
use ferrax_transform::{jvp, jvp_with, linearize, partial_eval, transpose, vjp, vjp_program};
use std::sync::Arc;

const PROGRAMS: u64 = 60;

struct Case {
    program: Program,
    primals: Vec<Tensor>,
    nonzero: Vec<bool>,
    tangents: Vec<Tensor>,
    random: Random,
}

fn case(seed: u64) -> Case {
    let program = random_program(seed, 12, 2);
    let mut random = Random::new(seed + 1000);
    let primals = random.tensors(program.input_types());
    let nonzero = flags(&mut random, program.inputs.len());
    let types: Vec<_> = program.input_types().cloned().collect();
    let tangents = random.tensors(&chosen(&types, &nonzero));
    Case { program, primals, nonzero, tangents, random }
}

/// The inputs moved along the tangents.
fn moved(case: &Case, step: f64) -> Vec<Tensor> {
    let mut tangents = case.tangents.iter();
    case.primals
        .iter()
        .zip(&case.nonzero)
        .map(|(x, &flag)| if flag { offset(x, tangents.next().unwrap(), step) } else { x.clone() })
        .collect()
}

fn inputs(case: &Case) -> Vec<Tensor> {
    case.primals.iter().chain(&case.tangents).cloned().collect()
}

#[test]
fn jvp_agrees_with_finite_differences() {
    for seed in 0..PROGRAMS {
        let case = case(seed);
        let (derivative, nonzero_out) = jvp(&case.program, &case.nonzero).unwrap();
        verify(&derivative).unwrap();
        let results = run(&derivative, &inputs(&case));
        let (values, tangents) = results.split_at(case.program.outputs.len());
        assert_close(values, &run(&case.program, &case.primals), 0.0, &case.program);
        let step = 1e-6;
        let (ahead, behind) =
            (run(&case.program, &moved(&case, step)), run(&case.program, &moved(&case, -step)));
        let mut tangents = tangents.iter();
        for ((ahead, behind), &flag) in ahead.iter().zip(&behind).zip(&nonzero_out) {
            let difference = offset(ahead, behind, -1.0);
            let slope = offset(&difference, &difference, 1.0 / (2.0 * step) - 1.0);
            if flag {
                assert_close(&[tangents.next().unwrap().clone()], &[slope], 2e-4, &case.program);
            } else {
                assert!(floats(&slope).iter().all(|&value| value == 0.0), "{}", case.program);
            }
        }
    }
}

#[test]
fn linearize_gives_the_same_tangents() {
    for seed in 0..PROGRAMS {
        let case = case(seed);
        let (derivative, nonzero_out) = jvp(&case.program, &case.nonzero).unwrap();
        let linearized = linearize(&case.program, &case.nonzero).unwrap();
        verify(&linearized.primal).unwrap();
        verify(&linearized.linear).unwrap();
        assert_eq!(linearized.nonzero_out, nonzero_out);
        let results = run(&derivative, &inputs(&case));
        let primal = run(&linearized.primal, &case.primals);
        let (values, residuals) = primal.split_at(case.program.outputs.len());
        assert_eq!(residuals.len(), linearized.residuals);
        let all: Vec<Tensor> = residuals.iter().chain(&case.tangents).cloned().collect();
        let tangents = run(&linearized.linear, &all);
        let both: Vec<Tensor> = values.iter().chain(&tangents).cloned().collect();
        assert_close(&both, &results, 1e-12, &case.program);
    }
}

#[test]
fn vjp_is_dual_to_jvp() {
    for seed in 0..PROGRAMS {
        let mut case = case(seed);
        let (derivative, nonzero_out) = jvp(&case.program, &case.nonzero).unwrap();
        let results = run(&derivative, &inputs(&case));
        let tangents = &results[case.program.outputs.len()..];
        let given: Vec<bool> = nonzero_out.iter().map(|&flag| flag && case.random.below(4) > 0).collect();
        let types: Vec<_> = case.program.output_types().collect();
        let cotangents = case.random.tensors(&chosen(&types, &given));
        let reverse = vjp_program(&case.program, &case.nonzero, &given).unwrap();
        verify(&reverse).unwrap();
        let all: Vec<Tensor> = case.primals.iter().chain(&cotangents).cloned().collect();
        let found = run(&reverse, &all);
        let (values, gradients) = found.split_at(case.program.outputs.len());
        assert_close(values, &results[..values.len()], 1e-12, &case.program);
        let given_tangents = chosen(tangents, &chosen(&given, &nonzero_out));
        let left: f64 = given_tangents.iter().zip(&cotangents).map(|(t, c)| dot(t, c)).sum();
        let right: f64 = gradients.iter().zip(&case.tangents).map(|(g, t)| dot(g, t)).sum();
        assert!((left - right).abs() < 1e-9 * (1.0 + left.abs()), "{left} {right}\n{}", case.program);
    }
}

#[test]
fn second_derivatives_agree_with_finite_differences() {
    for seed in 0..20 {
        let program = random_program(seed, 6, 1);
        let mut random = Random::new(seed + 7);
        let nonzero = vec![true; program.inputs.len()];
        let given: Vec<bool> = jvp(&program, &nonzero).unwrap().1;
        let reverse = vjp_program(&program, &nonzero, &given).unwrap();
        // Forward over reverse: the derivative of the gradient.
        let outer: Vec<bool> = (0..reverse.inputs.len()).map(|index| index < nonzero.len()).collect();
        let (second, flags) = jvp(&reverse, &outer).unwrap();
        let primals = random.tensors(reverse.input_types());
        let tangents = random.tensors(program.input_types());
        let all: Vec<Tensor> = primals.iter().chain(&tangents).cloned().collect();
        let results = run(&second, &all);
        let step = 1e-6;
        let shift = |step: f64| {
            let moved = primals.iter().zip(&tangents).map(|(x, t)| offset(x, t, step));
            let rest = primals[tangents.len()..].iter().cloned();
            run(&reverse, &moved.chain(rest).collect::<Vec<_>>())
        };
        let (ahead, behind) = (shift(step), shift(-step));
        let mut found = results[reverse.outputs.len()..].iter();
        for ((ahead, behind), flag) in ahead.iter().zip(&behind).zip(flags) {
            if flag {
                let difference = offset(ahead, behind, -1.0);
                let slope = offset(&difference, &difference, 1.0 / (2.0 * step) - 1.0);
                assert_close(&[found.next().unwrap().clone()], &[slope], 5e-4, &program);
            }
        }
    }
}

#[test]
fn partial_evaluation_splits_without_changing_values() {
    for seed in 0..PROGRAMS {
        let case = case(seed);
        let parts = partial_eval(&case.program, &case.nonzero).unwrap();
        verify(&parts.known).unwrap();
        verify(&parts.unknown).unwrap();
        let is_known: Vec<bool> = case.nonzero.iter().map(|flag| !flag).collect();
        let first = run(&parts.known, &chosen(&case.primals, &is_known));
        let (known, residuals) = first.split_at(first.len() - parts.residuals);
        let late: Vec<Tensor> =
            residuals.iter().cloned().chain(chosen(&case.primals, &case.nonzero)).collect();
        let unknown = run(&parts.unknown, &late);
        let (mut known, mut unknown) = (known.iter(), unknown.iter());
        let together: Vec<Tensor> = parts
            .unknown_out
            .iter()
            .map(|&flag| if flag { unknown.next() } else { known.next() }.unwrap().clone())
            .collect();
        assert_close(&together, &run(&case.program, &case.primals), 0.0, &case.program);
    }
}

/// `sin` of its input, and an output that is an input.
fn small() -> Program {
    let mut b = Builder::new("small");
    let x = b.input(ArrayType::of_sizes(&[3], DType::F64));
    let sine = b.unary(Unary::Sin, x).unwrap();
    let half = b.scale(sine, 0.5).unwrap();
    let twice = b.add(half, half).unwrap();
    b.finish([twice, x])
}

#[test]
fn residuals_are_few() {
    let linearized = linearize(&small(), &[true]).unwrap();
    // cos(x) alone: neither 0.5 nor anything twice.
    assert_eq!(linearized.residuals, 1, "{}", linearized.linear);
    assert_eq!(linearized.nonzero_out, [true, true]);

    let mut b = Builder::new("broadcast");
    let x = b.input(ArrayType::scalar(DType::F64));
    let y = b.input(ArrayType::of_sizes(&[1000], DType::F64));
    let wide = b.broadcast_scalar(x, &[1000.into()]).unwrap();
    let product = b.mul(wide, y).unwrap();
    let linearized = linearize(&b.finish([product]), &[false, true]).unwrap();
    // The scalar is kept, not its thousand copies.
    assert_eq!(linearized.linear.input_types().next().unwrap().to_string(), "f64[]");
}

#[test]
fn residuals_of_callees_are_not_handed_over_twice() {
    let callee = {
        let mut b = Builder::new("product");
        let x = b.input(ArrayType::scalar(DType::F64));
        let y = b.input(ArrayType::scalar(DType::F64));
        let exp = b.unary(Unary::Exp, x).unwrap();
        let product = b.mul(exp, y).unwrap();
        Arc::new(b.finish([product, exp]))
    };
    let mut b = Builder::new("caller");
    let x = b.input(ArrayType::scalar(DType::F64));
    let y = b.input(ArrayType::scalar(DType::F64));
    let call = Call { name: "product".into(), program: callee, inline: false };
    let outputs: Vec<Atom> = b.emit(call, &[x, y]).unwrap().into_iter().map(Atom::Var).collect();
    let linearized = linearize(&b.finish(outputs), &[true, true]).unwrap();
    let Op::Call(call) = &linearized.primal.equations[0].op else { panic!("{}", linearized.primal) };
    // exp(x) is an output and y an input already.
    assert_eq!(call.program.outputs.len(), 2, "{}", linearized.primal);
    assert_eq!(linearized.residuals, 2, "{}", linearized.primal);
}

#[test]
fn zero_tangents_stay_symbolic() {
    let mut b = Builder::new("f");
    let x = b.input(ArrayType::scalar(DType::F64));
    let y = b.input(ArrayType::scalar(DType::F64));
    let n = b.input(ArrayType::scalar(DType::I32));
    let sine = b.unary(Unary::Sin, y).unwrap();
    let program = b.finish([x, sine, n]);
    let (derivative, flags) = jvp(&program, &[true, false, false]).unwrap();
    assert_eq!(flags, [true, false, false]);
    assert_eq!(derivative.equations.len(), 1);
    assert!(jvp(&program, &[false, false, true]).is_err());
    let (_, flags) = jvp_with(&program, &[true, false, false], &[true, true, false]).unwrap();
    assert_eq!(flags, [true, true, false]);
    let both = vjp(&program, &[true, true, false]).unwrap();
    let backward = both.backward(&[true, false, false]).unwrap();
    assert_eq!(backward.nonzero_in, [true, false]);
}

#[test]
fn callees_are_transformed_once() {
    let callee = Arc::new(small());
    let mut b = Builder::new("caller");
    let mut x = b.input(ArrayType::of_sizes(&[3], DType::F64));
    for _ in 0..10 {
        let call = Call { name: "small".into(), program: callee.clone(), inline: false };
        x = Atom::Var(b.emit(call, &[x]).unwrap()[0]);
    }
    let program = b.finish([x]);
    assert_eq!(distinct_callees(&jvp(&program, &[true]).unwrap().0), 1);
    let linearized = linearize(&program, &[true]).unwrap();
    assert_eq!(distinct_callees(&linearized.primal), 1);
    assert_eq!(distinct_callees(&linearized.linear), 1);
    let backward = vjp(&program, &[true]).unwrap().backward(&[true]).unwrap();
    assert_eq!(distinct_callees(&backward.program), 1);
}

fn distinct_callees(program: &Program) -> usize {
    let callees = program.equations.iter().flat_map(|equation| equation.op.programs());
    callees.map(Arc::as_ptr).collect::<std::collections::HashSet<_>>().len()
}

#[test]
fn transposing_what_is_not_linear_is_refused() {
    let (program, linear) = (small(), [true]);
    let error = transpose(&program, &linear, &[true, false]).unwrap_err();
    assert!(error.to_string().contains("'sin'"), "{error}");
}

#[test]
fn refusals_name_the_users_line() {
    let mut b = Builder::new("f");
    let x = b.input(ArrayType::scalar(DType::F64));
    b.source = Source::new(SourceLine {
        file: "model.py".into(),
        line: 7,
        function: "loss".into(),
        scope: "".into(),
    });
    let sine = b.unary(Unary::Sin, x).unwrap();
    let callee = Arc::new(b.finish([sine]));
    let mut b = Builder::new("g");
    let x = b.input(ArrayType::scalar(DType::F64));
    b.source = Source::new(SourceLine {
        file: "train.py".into(),
        line: 9,
        function: "step".into(),
        scope: "".into(),
    });
    let call = Call { name: "f".into(), program: callee, inline: false };
    let outputs = b.emit(call, &[x]).unwrap();
    let error = transpose(&b.finish([Atom::Var(outputs[0])]), &[true], &[true]).unwrap_err().to_string();
    assert!(error.ends_with("\n  at model.py:7 (loss)"), "{error}");
}
