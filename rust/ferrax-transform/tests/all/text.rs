//! Random programs, and what transformations make of them, survive the way to
//! text and back.

use crate::common::*;
use ferrax_ir::verify::verify;
use ferrax_ir::{Dim, Program};
use ferrax_transform::{OutDims, batch, linearize, optimise, vjp_program};

fn check(program: &Program) {
    let text = format!("{program:#}");
    let parsed = Program::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&parsed).unwrap();
    assert_eq!(parsed, program.canonical(), "{text}");
    assert_eq!(format!("{parsed:#}"), text);
}

#[test]
fn random_programs_round_trip() {
    for seed in 0..60 {
        let program = random_program(seed, 12, 2);
        check(&program);
        let nonzero = vec![true; program.inputs.len()];
        let linearized = linearize(&program, &nonzero).unwrap();
        check(&linearized.primal);
        check(&linearized.linear);
        let reverse = vjp_program(&program, &nonzero, &linearized.nonzero_out).unwrap();
        check(&reverse);
        check(&optimise(&reverse, Default::default()).unwrap());
        let dims = vec![Some(0); program.inputs.len()];
        let (batched, _) = batch(&program, &Dim::variable("n"), &dims, None, OutDims::Front).unwrap();
        check(&batched);
    }
}
