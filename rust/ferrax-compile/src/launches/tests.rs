//! What is launched at once of some plans, for a machine that has shaders of everything.

use ferrax_ir::{DType, Op, Program, View};

use super::own::OwnMemory;
use super::*;
use crate::interpret::interpret;
use crate::plan::{Argument, Step};
use crate::tuning::{Launches, Target};

/// A machine with so many arrays for a launch.
struct Any {
    limits: Limits,
}

fn machine(operands: usize) -> Any {
    let target = Target { operands, ..Target::CPU };
    Any { limits: Limits { target, workgroup_bytes: 32 << 10, thresholds: Launches::GPU } }
}

impl Machine for Any {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn words(&self, dtype: DType) -> Option<usize> {
        (dtype.size() > 0).then(|| dtype.parts() * (dtype.size() / dtype.parts()).div_ceil(4))
    }

    fn fits(&self, sequence: &Sequence) -> bool {
        sequence.own as usize * size_of::<u32>() <= self.limits.workgroup_bytes
    }

    fn takes_kernels(&self, op: &Op, _: &[Argument], _: &[Argument]) -> bool {
        matches!(op, Op::DotGeneral(_))
    }

    fn takes_result_kernel(&self, _: &Op, _: [&Argument; 3]) -> bool {
        true
    }

    fn reads(&self, _: &Op, _: [&Argument; 3], _: usize) -> usize {
        2
    }
}

fn planned(text: &str, operands: usize) -> (Plan, Vec<Group>) {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let machine = machine(operands);
    launches(crate::plan(&program, &machine.limits.target).unwrap(), &machine).unwrap()
}

const SOFTMAX: &str = "{ lambda ; a:f32[ROWS,COLUMNS]. let
      m:f32[ROWS] = reduce_max[axes=(1,)] a
      n:f32[ROWS,COLUMNS] = broadcast_in_dim[shape=(ROWS, COLUMNS) broadcast_dimensions=(0,)] m
      d:f32[ROWS,COLUMNS] = sub a n
      e:f32[ROWS,COLUMNS] = exp d
      s:f32[ROWS] = reduce_sum[axes=(1,)] e
      t:f32[ROWS,COLUMNS] = broadcast_in_dim[shape=(ROWS, COLUMNS) broadcast_dimensions=(0,)] s
      r:f32[ROWS,COLUMNS] = div e t
    in (r,) }";

fn softmax(rows: usize, columns: usize) -> (Plan, Vec<Group>) {
    let text = SOFTMAX.replace("ROWS", &rows.to_string()).replace("COLUMNS", &columns.to_string());
    planned(&text, 8)
}

/// Rows are workgroups, or invocations where they are short and many; those that are long and few are no launch.
#[test]
fn rows_are_one_launch() {
    for (rows, columns, frame) in
        [(300, 1000, Some(Frame::Rows)), (300, 20, Some(Frame::Alone)), (30, 5000, None)]
    {
        let (plan, groups) = softmax(rows, columns);
        assert!(plan.steps.len() > 1, "{plan}");
        let Some(frame) = frame else {
            assert_eq!(groups.len(), plan.steps.len());
            continue;
        };
        let [Group::Together(together)] = &groups[..] else { panic!("{groups:?}") };
        assert_eq!((together.steps.clone(), together.rows), (0..plan.steps.len(), rows as u32));
        let Sequence { frame: got, own, arrays, body, .. } = &together.sequence;
        assert_eq!((*got, *arrays, body.len()), (frame, 2, plan.steps.len()), "the operand and the result");
        assert!(*own > 0, "what is between is the launch's own");
        // Each step needs what one before it left, in own memory or in the result.
        let waits = body.iter().map(|part| part.waits != Waits::default());
        assert!(waits.eq((0..body.len()).map(|number| number > 0)), "{body:?}");
        let alone = frame == Frame::Alone;
        assert!(!(alone && body.iter().any(|part| part.folds == Folds::Together)), "nobody else folds");
    }
}

/// Steps in which nothing waits for the last one do not wait.
#[test]
fn what_is_apart_does_not_wait() {
    let text = "{ lambda ; a:f32[7] b:f32[9]. let c:f32[] = reduce_sum[axes=(0,)] a
      d:f32[] = reduce_max[axes=(0,)] b in (c, d) }";
    let (plan, groups) = planned(text, 8);
    assert_eq!(plan.steps.len(), 2, "{plan}");
    let [Group::Together(together)] = &groups[..] else { panic!("{groups:?}") };
    assert!(together.sequence.parts().all(|part| part.waits == Waits::default()));
    assert_eq!(together.rows, 1);
    // With three arrays for a launch they are two.
    assert_eq!(planned(text, 3).1.len(), 2);
}

/// A product takes in what makes its operand and what is made of its result, if there are arrays enough.
#[test]
fn products_take_kernels_in() {
    let text = "{ lambda ; a:f32[40,50] b:f32[50,60]. let
      c:f32[40,50] = neg a
      d:f32[40,60] = dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None
        preferred_element_type=None] c b
      e:f32[40,60] = abs d in (e,) }";
    let (plan, groups) = planned(text, 8);
    let [Step::Library { inputs, outputs, .. }] = &plan.steps[..] else { panic!("{plan}") };
    assert_eq!((inputs.len(), outputs.len()), (2, 1));
    let [Group::Step(0, Some(fusion))] = &groups[..] else { panic!("{groups:?}") };
    assert_eq!(fusion.taken().count(), 2);
    assert!(fusion.from[0].kernel().is_some() && fusion.from[1].kernel().is_none() && fusion.then.is_some());
    assert_eq!(fusion.results, [40 * 60 * 4]);
    // Two arrays are fewer than a product has.
    let (plan, groups) = planned(text, 2);
    assert_eq!((plan.steps.len(), groups.len()), (3, 3));
}

/// The rows of operands and of stacked results move on with the step; carries are the launch's own.
#[test]
fn scans_are_one_launch() {
    let text = "{ lambda ; c:f32[3] x:f32[9,3]. let d:f32[3] y:f32[9,3] = scan[jaxpr={ lambda ; c:f32[3] x:f32[3]. let
      d:f32[3] = add c x y:f32[3] = mul d x in (d, y) } length=9 num_carry=1 num_consts=0 reverse=False unroll=1] c x
      in (d, y) }";
    let machine = machine(8);
    let plan = crate::plan(&Program::parse(text).unwrap(), &machine.limits.target).unwrap();
    let [Step::Library { op, inputs, outputs, .. }] = &plan.steps[..] else { panic!("{plan}") };
    let View::Scan(op) = op.view() else { panic!("{plan}") };
    let small = scan(&machine, op, inputs, outputs).unwrap().unwrap();
    assert_eq!((small.end, small.first_carry, small.carries), (End::Steps(9), 0, 1));
    assert!(small.steps >= 9 && small.sequence.frame == Frame::Scan && small.sequence.own > 0);
    let mut bindings = small.bindings.clone();
    bindings.sort_by_key(|bound| format!("{bound:?}"));
    assert_eq!(bindings, [Bound::Input(0), Bound::Input(1), Bound::Output(0), Bound::Output(1)]);
    assert_eq!((small.sequence.before.len(), small.sequence.after.len()), (1, 1), "the carry comes and goes");
    let rows = |part: &Part| part.rows.iter().map(|&axis| part.launch.extents[axis]).collect::<Vec<_>>();
    assert!(small.sequence.body.iter().any(|part| rows(part) == [9]));
    // A launch with fewer arrays than that has none of it.
    assert!(scan(&self::machine(3), op, inputs, outputs).unwrap().is_none());
}

/// Two values have the same words only if their times do not meet.
#[test]
fn own_memory_is_used_again() {
    let mut own = OwnMemory::new(16);
    let first = own.take(7, 0, 2).unwrap();
    assert_eq!(first, Place::Own { first: 0, words: 8 });
    assert_eq!(own.take(8, 2, 3), Some(Place::Own { first: 8, words: 8 }));
    assert_eq!(own.take(1, 1, 2), None);
    assert_eq!(own.take(3, 3, 5), Some(Place::Own { first: 0, words: 4 }));
    assert!(
        first.meets(Place::Own { first: 4, words: 8 }) && !first.meets(Place::Own { first: 8, words: 8 })
    );
}

/// A kernel over the blocks of its first loops gives what it gives as a whole, also where it computes with indices.
#[test]
fn blocks_together_are_the_whole() {
    let text = "{ lambda ; a:i32[5,6]. let i:i32[5,6] = iota[dimension=0 dtype=int32 shape=(5, 6)]
      b:i32[5,6] = mul a i in (b,) }";
    let plan = crate::plan(&Program::parse(text).unwrap(), &Target::CPU).unwrap();
    let [Step::Kernel { launch, .. }] = &plan.steps[..] else { panic!("{plan}") };
    let input: Vec<u8> = (0..30i32).flat_map(|number| (number * 7 - 50).to_le_bytes()).collect();
    let memory = || -> Vec<Vec<u8>> {
        let operands = launch.kernel.operands.iter();
        operands.map(|operand| if operand.written { vec![0; 120] } else { input.clone() }).collect()
    };
    let mut whole = memory();
    interpret(launch, &mut whole).unwrap();
    for first in 1..launch.extents[0] {
        let mut cut = memory();
        for part in [(0, first), (first, launch.extents[0] - first)] {
            interpret(&blocks::restricted(launch, &[part], |_| false), &mut cut).unwrap();
        }
        assert_eq!(cut, whole, "from {first} on");
    }
}
