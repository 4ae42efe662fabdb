//! What memory plans say of programs whose plans are known.

use ferrax_compile::memory_plan::{BufferLife, MemoryPlan};
use ferrax_compile::{Place, Target, plan};
use ferrax_ir::ops::{Binary, Cumulative, CumulativeKind, Unary};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Program, Source, SourceLine};

fn cumulative(b: &mut Builder, x: Atom) -> Atom {
    b.emit1(Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse: false }, &[x]).unwrap()
}

fn described(program: &Program) -> MemoryPlan {
    plan(program, &Target::CPU).unwrap().memory_plan(program, &Target::CPU).unwrap()
}

fn in_arena(plan: &MemoryPlan) -> Vec<&BufferLife> {
    plan.buffers.iter().filter(|buffer| matches!(buffer.place, Place::Arena(_))).collect()
}

#[test]
fn a_kernel_that_writes_over_its_operand_is_one_buffer_with_two_values() {
    let mut b = Builder::new("chain");
    let x = b.input(ArrayType::of_sizes(&[1024], DType::F32));
    b.source =
        Source::new(SourceLine { file: "model.py".into(), line: 7, function: "f".into(), scope: "".into() });
    let sums = cumulative(&mut b, x);
    let exp = b.unary(Unary::Exp, sums).unwrap();
    let twice = b.binary(Binary::Add, exp, exp).unwrap();
    let out = cumulative(&mut b, twice);
    let plan = described(&b.finish([out]));
    assert_eq!(plan.steps.len(), 3);
    let [buffer] = in_arena(&plan)[..] else { panic!("{plan:?}") };
    let names: Vec<(&str, usize)> =
        buffer.values.iter().map(|value| (value.of.name.as_str(), value.first)).collect();
    assert_eq!(names, [("cumsum", 0), ("add", 1)]);
    assert_eq!((buffer.first, buffer.last, buffer.bytes), (0, 2, 4096));
    assert_eq!(plan.steps[1].in_place, [buffer.id]);
    let operations: Vec<&str> = plan.steps[1].operations.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(operations, ["exp", "add"]);
    assert_eq!(plan.steps[1].operations[0].line.as_deref(), Some("model.py:7 (f)"));
    assert_eq!((plan.peak, plan.arena), (4096, 4096));
}

#[test]
fn memory_of_dead_values_is_given_again() {
    let mut b = Builder::new("reuse");
    let mut x = b.input(ArrayType::of_sizes(&[1024], DType::F32));
    for _ in 0..4 {
        x = cumulative(&mut b, x);
    }
    let plan = described(&b.finish([x]));
    let buffers = in_arena(&plan);
    assert_eq!(buffers.len(), 3);
    assert_eq!(buffers[2].reuses, [buffers[0].id]);
    assert_eq!((plan.peak, plan.arena, plan.peak_step), (8192, 8192, 1));
    assert!(plan.steps.iter().all(|step| !step.is_kernel && step.copied == 0));
}

#[test]
fn copies_donations_and_results_that_share_memory_are_told() {
    let mut b = Builder::new("copies");
    let x = b.input(ArrayType::of_sizes(&[8, 16], DType::F32));
    let turned = b.transpose(x, &[1, 0]).unwrap();
    let y = b.unary(Unary::Exp, x).unwrap();
    let plan = described(&b.finish([turned, y, x, y]));
    let copied: usize = plan.steps.iter().map(|step| step.copied).sum();
    assert!(copied == 512 || plan.steps.len() == 1, "{plan:?}");
    let returned: Vec<usize> = plan.returns.iter().map(|output| output.copied).collect();
    assert_eq!(returned, [0, 0, 512, 512]);
    // The argument is returned, so that its memory cannot be given away.
    assert!(plan.buffers.iter().all(|buffer| buffer.donation.is_none()));
    let mut b = Builder::new("donated");
    let x = b.input(ArrayType::of_sizes(&[8, 16], DType::F32));
    let y = b.unary(Unary::Exp, x).unwrap();
    let plan = described(&b.finish([y]));
    assert_eq!(plan.buffers[0].donation, Some(plan.buffers[1].id));
    assert_eq!(plan.buffers[1].donation, Some(plan.buffers[0].id));
}

#[test]
fn a_program_without_steps_has_a_plan() {
    let mut b = Builder::new("nothing");
    let x = b.input(ArrayType::of_sizes(&[4], DType::F32));
    let plan = described(&b.finish([x]));
    assert_eq!((plan.steps.len(), plan.peak, plan.buffers.len()), (0, 0, 1));
    assert_eq!(plan.returns[0].copied, 16);
}
