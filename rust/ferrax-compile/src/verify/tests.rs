//! Sound plans pass; each way to spoil one is refused, with the place named.

use ferrax_ir::ops::{Concatenate, Cumulative, CumulativeKind, Gather, GatherMode, Pad};
use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Program, Scalar};

use super::grids::meet;
use super::verify_plan;
use crate::backend::Target;
use crate::compile::plan;
use crate::kernel::{Jump, Launch};
use crate::plan::{BufferId, Place, Plan, RowStep, Run, Share, Step};

#[path = "../../tests/support/programs.rs"]
mod programs;

fn input(b: &mut Builder, sizes: &[usize]) -> Atom {
    b.input(ArrayType::of_sizes(sizes, DType::F32))
}

/// One kernel without reduction: a padded transpose, doubled.
fn padded() -> Program {
    let mut b = Builder::new("padded");
    let x = input(&mut b, &[4, 6]);
    let turned = b.transpose(x, &[1, 0]).unwrap();
    let zero = b.scalar(DType::F32, 0.0);
    let padding_config = vec![(1, 2, 0), (0, 0, 0)];
    let padded = b.emit1(Pad { padding_config }, &[turned, zero]).unwrap();
    let y = b.add(padded, padded).unwrap();
    b.finish([y])
}

/// One kernel with an epilogue that loads: the sums of rows, scaled.
fn reduced() -> Program {
    let mut b = Builder::new("reduced");
    let (x, w) = (input(&mut b, &[6, 4]), input(&mut b, &[6]));
    let sum = b.reduce_sum(x, &[1]).unwrap();
    let y = b.mul(sum, w).unwrap();
    b.finish([y])
}

/// One kernel with three stores into one buffer: arrays side by side.
fn beside() -> Program {
    let mut b = Builder::new("beside");
    let (x, y) = (input(&mut b, &[4, 6]), input(&mut b, &[4, 6]));
    let sum = b.add(x, y).unwrap();
    let all = b.emit1(Concatenate { dimension: 1 }, &[x, sum, y]).unwrap();
    b.finish([all])
}

/// Library calls: two values in the arena at once, then a third.
fn chained() -> Program {
    let mut b = Builder::new("chained");
    let mut x = input(&mut b, &[32]);
    for reverse in [false, true, false, true] {
        x = b.emit1(Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse }, &[x]).unwrap();
    }
    b.finish([x])
}

/// One kernel that picks rows: `2 * x[i]`, with zeros where an index is out of bounds.
fn picked() -> Program {
    let mut b = Builder::new("picked");
    let (x, i) = (input(&mut b, &[5, 300]), b.input(ArrayType::of_sizes(&[4, 1], DType::I32)));
    let gather = Gather {
        offset_dims: [1][..].into(),
        collapsed_slice_dims: [0][..].into(),
        start_index_map: [0][..].into(),
        operand_batching_dims: [][..].into(),
        start_indices_batching_dims: [][..].into(),
        slice_sizes: [Dim::Const(1), Dim::Const(300)].into_iter().collect(),
        mode: GatherMode::Fill,
        fill_value: Some(Scalar::zero(DType::F32)),
        unique_indices: false,
        indices_are_sorted: false,
    };
    let rows = b.emit1(gather, &[x, i]).unwrap();
    let y = b.add(rows, rows).unwrap();
    b.finish([y])
}

fn launch(plan: &mut Plan) -> &mut Launch {
    match &mut plan.steps[0] {
        Step::Kernel { launch, .. } => launch,
        Step::Library { .. } => panic!("a kernel is first"),
    }
}

/// The error after a plan is spoilt.
fn refused(program: &Program, spoil: impl FnOnce(&mut Plan)) -> String {
    let mut plan = plan(program, &Target::CPU).unwrap();
    verify_plan(&plan, program, &Target::CPU).unwrap();
    spoil(&mut plan);
    verify_plan(&plan, program, &Target::CPU).expect_err("a spoilt plan passes").to_string()
}

#[track_caller]
fn says(error: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn accesses_beyond_their_buffers() {
    let program = padded();
    let load = ["kernel 0", "load 0", "operand", "(%0)", "reaches elements"];
    says(&refused(&program, |plan| launch(plan).loads[0].offset += 1), &load);
    says(&refused(&program, |plan| launch(plan).loads[0].offset -= 1), &load);
    says(&refused(&program, |plan| launch(plan).loads[0].strides[0] *= -1), &load);
    says(&refused(&program, |plan| launch(plan).loads[0].strides[1] = i64::MAX), &load);
    // The guard of the pad, taken away.
    let unguarded = refused(&program, |plan| {
        let extents = launch(plan).extents.clone();
        launch(plan).loads[0].ranges = extents.iter().map(|&extent| (0, extent as i64)).collect();
    });
    says(&unguarded, &load);
    let beyond = refused(&program, |plan| launch(plan).loads[0].ranges[0].1 = 100);
    says(&beyond, &["load 0", "guards beyond the loops"]);
    let store = ["kernel 0", "store 0", "of add", "reaches elements"];
    says(&refused(&program, |plan| launch(plan).stores[0].offset = 1), &store);
    says(
        &refused(&program, |plan| plan.buffers[1].bytes -= 4),
        &["store 0", "reaches elements 0 to 35 of 35"],
    );
}

#[test]
fn jumps_beyond_their_buffers() {
    let program = picked();
    let load = ["kernel 0", "operand", "(%0)", "reaches elements"];
    let change = |change: fn(&mut Jump)| {
        refused(&program, |plan| change(launch(plan).jumps.iter_mut().flatten().next().unwrap()))
    };
    says(&change(|jump| jump.last += 1), &load);
    says(&change(|jump| jump.stride += 1), &load);
    says(&change(|jump| jump.stride *= -1), &load);
    says(&change(|jump| jump.last = i64::MAX), &load);
    says(&change(|jump| jump.last = -1), &["jumps to no index"]);
    let without = refused(&program, |plan| launch(plan).jumps.iter_mut().for_each(|jumps| jumps.clear()));
    says(&without, &["other indices than it has jumps"]);
    says(&refused(&program, |plan| launch(plan).jumps.clear()), &["jumps of loads"]);
}

#[test]
fn stores_that_collide() {
    let program = padded();
    let twice = refused(&program, |plan| launch(plan).stores[0].strides[0] = 3);
    says(&twice, &["store 0", "of add", "more than once"]);
    let guarded = refused(&program, |plan| launch(plan).stores[0].ranges[0].0 = 1);
    says(&guarded, &["store 0", "has guards"]);
    let to_input = refused(&program, |plan| plan.buffers[1].place = Place::Input(0));
    says(&to_input, &["store 0", "writes to", "input 0"]);
    let aliased = refused(&program, |plan| match &mut plan.steps[0] {
        Step::Kernel { operands, .. } => {
            let written = operands[1];
            plan.buffers[written.0 as usize].bytes = 4 * 36;
            operands[0] = written;
        }
        Step::Library { .. } => {}
    });
    says(&aliased, &["store 0", "overwrites what load 0 reads"]);
    let moving = refused(&reduced(), |plan| {
        launch(plan).stores[0].strides = [0, 1].into_iter().collect();
    });
    says(&moving, &["store 0", "of mul", "moves along a reduction axis"]);
}

#[test]
fn stores_that_meet() {
    let program = beside();
    let stores = |plan: &mut Plan| {
        assert_eq!(launch(plan).stores.iter().map(|view| view.offset).collect::<Vec<_>>(), [0, 6, 12]);
        launch(plan).stores.clone()
    };
    for (which, offset) in [(1, 1), (1, 5), (1, 7), (2, 11), (2, 6)] {
        let error = refused(&program, |plan| {
            assert_eq!(stores(plan)[which].offset, 6 * which as i64);
            launch(plan).stores[which].offset = offset;
        });
        says(&error, &["kernel 0", "to buffer", "concatenate", "writes what store"]);
    }
    // Backwards they reach the same elements: of their own, and of the neighbour.
    let mut sound = plan(&program, &Target::CPU).unwrap();
    let axis = launch(&mut sound).stores[1].strides.iter().position(|&stride| stride == 1).unwrap();
    let middle = &mut launch(&mut sound).stores[1];
    (middle.strides[axis], middle.offset) = (-1, 6 + 5);
    verify_plan(&sound, &program, &Target::CPU).unwrap();
    let turned = refused(&program, |plan| {
        let middle = &mut launch(plan).stores[1];
        (middle.strides[axis], middle.offset) = (-1, 6 + 4);
    });
    says(&turned, &["store 1", "writes what store 0 writes"]);
}

#[test]
fn grids_meet_as_their_elements_do() {
    // Two loops each: all pairs of small strides and starts, by their elements.
    let shapes: Vec<Vec<(i128, i128)>> = [(1, 3), (2, 3), (5, 2), (6, 3), (7, 2)]
        .iter()
        .flat_map(|&a| [(1, 2), (3, 2), (10, 3)].map(|b| vec![a, b]))
        .collect();
    let elements = |start: i128, loops: &[(i128, i128)]| -> std::collections::BTreeSet<i128> {
        let (a, b) = (loops[0], loops[1]);
        (0..a.1).flat_map(|i| (0..b.1).map(move |j| start + i * a.0 + j * b.0)).collect()
    };
    let mut found = [0, 0];
    for a in &shapes {
        for b in &shapes {
            for start in 0..24 {
                let want = !elements(0, a).is_disjoint(&elements(start, b));
                assert_eq!(meet(&(0, a.clone()), &(start, b.clone())), want, "{a:?}, {start} + {b:?}");
                found[usize::from(want)] += 1;
            }
        }
    }
    assert!(found.iter().all(|&count| count > 500), "{found:?}");
}

#[test]
fn bodies_that_read_what_is_not_there() {
    let program = reduced();
    let input = |number: u32| ScalarOp::Input { operand: number, part: 0 };
    let main = refused(&program, |plan| {
        launch(plan).kernel.body.push(input(7), ScalarType::F32, &[]);
    });
    says(&main, &["Main", "an input that does not exist"]);
    let accumulator = refused(&program, |plan| {
        let loads = launch(plan).kernel.loads.len() as u32;
        launch(plan).kernel.body.push(input(loads), ScalarType::F32, &[]);
    });
    says(&accumulator, &["Main", "an input that does not exist"]);
    let typed = refused(&program, |plan| {
        launch(plan).kernel.body.push(input(0), ScalarType::I32, &[]);
    });
    says(&typed, &["as another type"]);
    let moving = refused(&program, |plan| {
        let moving = launch(plan).loads.iter().position(|view| view.strides[1] != 0).unwrap();
        launch(plan).kernel.epilogue.push(input(moving as u32), ScalarType::F32, &[]);
    });
    says(&moving, &["Epilogue", "moves along a reduction axis"]);
    let index = refused(&program, |plan| {
        launch(plan).kernel.epilogue.push(ScalarOp::Index { axis: 1 }, ScalarType::I64, &[]);
    });
    says(&index, &["Epilogue", "the index of a loop"]);
}

#[test]
fn values_that_share_memory() {
    let program = chained();
    let overlap = refused(&program, |plan| {
        for buffer in &mut plan.buffers {
            if let Place::Arena(offset) = &mut buffer.place {
                *offset = 0;
            }
        }
    });
    says(&overlap, &["of cumsum", "overlaps", "in the arena"]);
    let outside = refused(&program, |plan| plan.arena -= 1);
    says(&outside, &["of cumsum", "cannot be arena at"]);
    let order = refused(&program, |plan| plan.steps.swap(0, 1));
    says(&order, &["step 0", "of cumsum", "nothing has written"]);
    let lost = refused(&program, |plan| {
        plan.steps.pop();
    });
    says(&lost, &["the caller", "nothing has written"]);
    let short = refused(&program, |plan| match &mut plan.steps[1] {
        Step::Library { inputs, .. } => inputs[0].sizes[0] = 33,
        Step::Kernel { .. } => {}
    });
    says(&short, &["operand 0 of step 1, cumsum", "132 bytes"]);
    let none = refused(&program, |plan| plan.outputs[0].buffer = BufferId(99));
    says(&none, &["does not exist"]);
}

#[test]
fn donations_that_come_too_early() {
    let mut b = Builder::new("given");
    let x = input(&mut b, &[4, 4]);
    let turned = b.transpose(x, &[1, 0]).unwrap();
    let y = b.add(turned, turned).unwrap();
    let crossed = b.finish([y]);
    says(&refused(&crossed, |plan| plan.donations.push((0, 0))), &["read after that is written"]);
    says(&refused(&kept(), |plan| plan.donations.push((0, 0))), &["leaves as a result"]);
    says(&refused(&padded(), |plan| plan.donations.push((0, 0))), &["their sizes differ"]);
}

/// An operand that is a result, too, and its double.
fn kept() -> Program {
    let mut b = Builder::new("kept");
    let (x, w) = (input(&mut b, &[8]), input(&mut b, &[8]));
    let (y, z) = (b.add(x, x).unwrap(), b.mul(w, w).unwrap());
    b.finish([x, y, z])
}

/// Three kernels that go through rows together, and a library call. Two values are the run's own.
fn by_rows() -> Program {
    let mut b = Builder::new("by_rows");
    let x = input(&mut b, &[1024, 512]);
    let wide =
        |b: &mut Builder, value: Atom| b.broadcast_in_dim(value, &[1024.into(), 512.into()], &[0]).unwrap();
    let sum = b.reduce_sum(x, &[1]).unwrap();
    let sum = wide(&mut b, sum);
    let centred = b.sub(x, sum).unwrap();
    let squares = b.mul(centred, centred).unwrap();
    let sum = b.reduce_sum(squares, &[1]).unwrap();
    let sum = wide(&mut b, sum);
    let y = b.div(centred, sum).unwrap();
    let columns = b.emit1(Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse: false }, &[y]).unwrap();
    b.finish([y, columns])
}

#[test]
fn runs_of_rows() {
    let program = by_rows();
    let sound = plan(&program, &Target::CPU).unwrap();
    assert_eq!(sound.runs.len(), 1, "{sound}");
    let own = sound.buffers.iter().filter(|buffer| matches!(buffer.place, Place::Rows(_))).count();
    assert_eq!((own, sound.arena), (2, 0), "{sound}");
    let last = sound.steps.len() - 1;
    let longer = refused(&program, |plan| plan.runs[0].steps.end = last + 1);
    says(&longer, &["by rows [1024]", "3 steps are described"]);
    let call = refused(&program, |plan| {
        let run = &mut plan.runs[0];
        run.steps.end = last + 1;
        run.parts.push(RowStep { share: Share::Rows(1), by_rows: [true, true].into_iter().collect() });
    });
    says(&call, &["a call of no known rows"]);
    let fewer = refused(&program, |plan| plan.runs[0].extents[0] = 512);
    says(&fewer, &["by rows [512]", "other first loops"]);
    let shares = refused(&program, |plan| plan.runs[0].parts[0].share = Share::Rows(2));
    says(&shares, &["step 0 is a kernel"]);
    let none = refused(&program, |plan| plan.runs[0].parts[0].by_rows.fill(false));
    says(&none, &["is not walked by rows"]);
    let shorter = refused(&program, |plan| plan.runs[0].steps.start += 1);
    says(&shorter, &["is not of one run's rows"]);
    let little = refused(&program, |plan| plan.runs[0].own_bytes = 64);
    says(&little, &["exceeds the memory of a row"]);
    let shared = refused(&program, |plan| {
        for buffer in &mut plan.buffers {
            if matches!(buffer.place, Place::Rows(_)) {
                buffer.place = Place::Rows(0);
            }
        }
    });
    says(&shared, &["overlaps", "in the arena"]);
    says(&refused(&program, |plan| plan.runs.clear()), &["is not of one run's rows"]);
}

/// A product by rows, of several rows of its own for each.
fn product_by_rows() -> Program {
    let mut b = Builder::new("product_by_rows");
    let (x, w) = (input(&mut b, &[1024, 8, 64]), input(&mut b, &[64, 64]));
    let y = b.emit1(programs::layer(), &[x, w]).unwrap();
    let sum = b.reduce_sum(y, &[1, 2]).unwrap();
    let sum = b.broadcast_in_dim(sum, &[1024, 8, 64].map(Dim::Const), &[0]).unwrap();
    let y = b.div(y, sum).unwrap();
    b.finish([y])
}

#[test]
fn runs_with_products() {
    let program = product_by_rows();
    let target = Target { product_bytes: 1 << 16, ..Target::CPU };
    let sound = plan(&program, &target).unwrap();
    let [run] = &sound.runs[..] else { panic!("one run: {sound}") };
    assert_eq!((run.rows(), run.parts[0].share), (1024, Share::Rows(8)), "{sound}");
    assert_eq!(run.parts[0].by_rows[..], [true, false, true]);
    let refused = |spoil: &dyn Fn(&mut Run)| {
        let mut spoilt = plan(&program, &target).unwrap();
        spoil(&mut spoilt.runs[0]);
        verify_plan(&spoilt, &program, &target).expect_err("a spoilt plan passes").to_string()
    };
    says(&refused(&|run| run.parts[0].share = Share::Rows(1)), &["step 0 has 8192 rows", "Rows(1)"]);
    says(&refused(&|run| run.parts[0].share = Share::Loops), &["step 0 has 8192 rows", "Loops"]);
    says(&refused(&|run| run.parts[0].by_rows[1] = true), &["step 0 reaches more of"]);
    says(&refused(&|run| run.extents[0] = 2048), &["by rows [2048]"]);
}

/// A part of a kernel's rows that reaches into the next one's.
#[test]
fn rows_that_reach_into_others() {
    let program = by_rows();
    let sound = plan(&program, &Target::CPU).unwrap();
    let kernels = sound.runs[0].steps.clone();
    for number in kernels {
        let Step::Kernel { launch, operands } = &sound.steps[number] else { panic!("kernels") };
        for load in 0..launch.loads.len() {
            let of = operands[launch.kernel.loads[load].operand as usize];
            if !sound.runs[0].by_rows.contains(&of) || launch.loads[load].strides[0] < 2 {
                continue;
            }
            let error = refused(&program, |plan| {
                plan.donations.clear();
                let Step::Kernel { launch, .. } = &mut plan.steps[number] else { panic!("kernels") };
                // The same elements in all, of another row each.
                let (view, rows) = (&mut launch.loads[load], launch.extents[0] as i64);
                view.offset += view.strides[0] * (rows - 1);
                view.strides[0] = -view.strides[0];
            });
            says(&error, &["reaches more of"]);
        }
    }
}

/// What is stored in parts is read only when all of it is there.
#[test]
fn parts_that_are_missing() {
    let mut b = Builder::new("partly");
    let x = input(&mut b, &[16, 32]);
    let y = b.add(x, x).unwrap();
    let y = b.emit1(Cumulative { kind: CumulativeKind::Sum, axis: 0, reverse: false }, &[y]).unwrap();
    let program = b.finish([y]);
    let error = refused(&program, |plan| {
        let launch = launch(plan);
        launch.extents[0] -= 1;
        let last = launch.extents[0] as i64;
        launch.loads.iter_mut().chain(&mut launch.stores).for_each(|view| view.ranges[0].1 = last);
    });
    says(&error, &["step 1 reads", "are there"]);
}
