//! Random programs of all ops: compiled against interpreted, on one thread and on several,
//! with and without donation.

use std::collections::HashSet;

use crate::common::generate::Case;
use crate::common::{Random, arguments, on_one_thread};
use ferrax_cpu::compile;
use ferrax_ir::op::documented_ops;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, Builder, DType};

/// How many programs are drawn.
const SEEDS: u64 = 2000;

fn case(seed: u64) -> Case {
    Case::new(&format!("seed {seed}"), &mut Random::new(seed))
}

#[test]
fn compiled_programs_agree_with_the_interpreter() {
    for seed in 0..SEEDS {
        case(seed).check();
    }
}

/// Bounds are such that something may fail: but for factors of matrices, of which only repeatability is asked,
/// an element with wrong leading bits is seen in each output.
#[test]
fn wrong_elements_are_seen() {
    let mut sums = [0; 3];
    for seed in 0..200 {
        let counts = case(seed).sharpness();
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let [outputs, repeatable, seen] = sums;
    assert_eq!(seen + repeatable, outputs);
    assert!(repeatable * 5 < outputs, "{repeatable} of {outputs} outputs are not compared");
}

/// Ops that no program has that a machine runs, each with the reason.
const NEVER_DRAWN: &[(&str, &str)] = &[
    (
        "custom_lin",
        "stands between a derivative's two passes, and is only transposed: it cannot be evaluated",
    ),
    ("dim_as_value", "is of symbolic sizes; what gives it known ones is tested in ferrax"),
    ("pvary", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("psum_invariant", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("all_gather_invariant", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("all_gather_reduced", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("unreduced_reduce_scatter", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("unreduced_psum", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("preduced", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("reduced_vary_cast", "is over the axes of a mesh, whose types programs over lanes do not have"),
    ("vary_unreduced_cast", "is over the axes of a mesh, whose types programs over lanes do not have"),
];

#[test]
fn every_op_is_drawn() {
    let drawn: HashSet<String> = (0..SEEDS).flat_map(|seed| case(seed).ops()).collect();
    let known: Vec<&str> = documented_ops().into_iter().map(|(name, _)| name).collect();
    let missing: Vec<&&str> = known
        .iter()
        .filter(|&&name| !drawn.contains(name) && NEVER_DRAWN.iter().all(|row| row.0 != name))
        .collect();
    assert!(missing.is_empty(), "of {} ops no program has {missing:?}", known.len());
    for (name, reason) in NEVER_DRAWN {
        assert!(
            known.contains(name) && !drawn.contains(*name),
            "{name}, which {reason}, is no op or was drawn"
        );
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
