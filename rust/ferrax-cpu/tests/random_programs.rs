//! Random programs: compiled against interpreted, on one thread and on several,
//! with and without donation.

mod common;

use common::generate::Case;
use common::{Random, arguments, on_one_thread};
use ferrax_cpu::compile;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, Builder, DType};

#[test]
fn compiled_programs_agree_with_the_interpreter() {
    for seed in 0..2000 {
        Case::new(&format!("seed {seed}"), &mut Random::new(seed)).check();
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let mut b = Builder::new("threads");
    let x = b.input(ArrayType::of_sizes(&[1000, 700], DType::F32));
    let e = b.unary(Unary::Exp, x).unwrap();
    let all = b.reduce_sum(e, &[0, 1]).unwrap();
    let rows = b.reduce_sum(e, &[1]).unwrap();
    let columns = b.reduce_sum(e, &[0]).unwrap();
    let product = b
        .emit1(
            DotGeneral {
                lhs_contracting: [1][..].into(),
                rhs_contracting: [1][..].into(),
                lhs_batch: [][..].into(),
                rhs_batch: [][..].into(),
                precision: None,
                preferred_element_type: None,
            },
            &[e, x],
        )
        .unwrap();
    let program = b.finish([all, rows, columns, product]);
    let inputs = arguments(&program, 1);
    let executable = compile(&program).unwrap();
    let several = executable.run(&inputs).unwrap();
    assert_eq!(several, on_one_thread(&executable, &inputs));
}

#[test]
fn concurrent_runs_do_not_disturb_each_other() {
    let Case { program, .. } = Case::new("concurrent", &mut Random::new(17));
    let executable = compile(&program).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (program, executable) = (&program, &executable);
            scope.spawn(move || {
                let inputs = arguments(program, seed);
                let first = executable.run(&inputs).unwrap();
                for _ in 0..100 {
                    assert_eq!(executable.run(&inputs).unwrap(), first);
                }
            });
        }
    });
}
