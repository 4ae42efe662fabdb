//! Kernels that go through rows together, as one shader: bit for bit what they give one by one.

#![allow(clippy::cloned_ref_to_slice_refs, reason = "operands are lists")]

use std::sync::Arc;

use crate::common::{arguments, softmax_of, widened};
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_compile::plan::Buffer;
use ferrax_compile::{Argument, Place, Step, plan_for};
use ferrax_gpu::{Gpu, Memory};
use ferrax_ir::ops::{ArgKind, ArgReduce, Compare, ReduceKind, Unary};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Program, Scalar, Tensor, interpret};

/// What the kernels of a program give, launched one by one.
fn one_by_one(gpu: &Gpu, program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    let plan = plan_for(gpu, program).unwrap();
    let memory = |buffer: &Buffer| match buffer.place {
        Place::Input(number) => gpu.upload(inputs[number].bytes()).unwrap(),
        Place::Constant(number) => gpu.upload(plan.constants[number].bytes()).unwrap(),
        _ => gpu.allocate(buffer.bytes).unwrap(),
    };
    let memory: Vec<Memory> = plan.buffers.iter().map(memory).collect();
    for step in &plan.steps {
        let Step::Kernel { launch, operands } = step else { panic!("a library call in {program}") };
        let bytes: Vec<usize> = operands.iter().map(|id| plan.buffers[id.0 as usize].bytes).collect();
        let prepared = gpu.prepare(launch, &bytes).unwrap();
        gpu.launch(&prepared, operands.iter().map(|id| &memory[id.0 as usize])).unwrap();
    }
    let home = |output: &Argument| {
        let mut tensor = Tensor::zeros(output.dtype, output.sizes.clone()).unwrap();
        gpu.download(&memory[output.buffer.0 as usize], tensor.bytes_mut().unwrap()).unwrap();
        tensor
    };
    plan.outputs.iter().map(home).collect()
}

/// Floats may differ by some units in the last place of the largest: drivers round divisions as they like, and means
/// cancel.
fn close(got: &Tensor, wanted: &Tensor, what: &str) {
    assert_eq!((got.dtype(), got.sizes()), (wanted.dtype(), wanted.sizes()), "{what}");
    let values = |tensor: &Tensor| -> Vec<f64> {
        let each = tensor.bytes().chunks_exact(tensor.dtype().size());
        each.map(|bytes| Scalar::from_bytes(tensor.dtype(), bytes).unwrap().to_f64().unwrap()).collect()
    };
    let unit = match wanted.dtype() {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => 0.0,
    };
    let (got, wanted) = (values(got), values(wanted));
    let largest =
        wanted.iter().filter(|value| value.is_finite()).fold(0.0, |most: f64, value| most.max(value.abs()));
    for (got, wanted) in got.into_iter().zip(wanted) {
        let near = (got - wanted).abs() <= 64.0 * unit * largest || got == wanted;
        assert!(near || (got.is_nan() && wanted.is_nan()), "{what}: {got}, not {wanted}");
    }
}

/// The names of the kernels that ran, beside what the program gives.
fn check(device: &Arc<Attached<Gpu>>, program: &Program) -> Vec<String> {
    let inputs = arguments(program, 5);
    device.backend().begin_profile().unwrap();
    let got = run(device, program, &inputs).unwrap_or_else(|error| panic!("{error}\n{program}"));
    let events = device.backend().end_profile().unwrap();
    assert_eq!(got, one_by_one(device.backend(), program, &inputs), "{}", program.name);
    for (got, wanted) in got.iter().zip(&interpret::run(program, &inputs).unwrap()) {
        close(got, wanted, &program.name);
    }
    events.into_iter().map(|event| event.name).collect()
}

/// `more` of an input of this dtype, computed with in `f32` where that is narrower.
fn of_rows(
    name: &str,
    dtype: DType,
    sizes: &[usize],
    more: impl FnOnce(&mut Builder, Atom, &[usize]) -> Vec<Atom>,
) -> Program {
    let mut b = Builder::new(format!("{name} of {dtype} {sizes:?}"));
    let x = b.input(ArrayType::of_sizes(sizes, dtype));
    let wide = if dtype.size() < 4 { DType::F32 } else { dtype };
    let x = b.convert(x, wide).unwrap();
    let outputs = more(&mut b, x, sizes);
    let outputs: Vec<Atom> = outputs
        .into_iter()
        .map(|output| if wide == dtype { output } else { b.convert(output, dtype).unwrap() })
        .collect();
    b.finish(outputs)
}

fn mean(b: &mut Builder, x: Atom, sizes: &[usize]) -> Atom {
    let sum = b.reduce_sum(x, &[sizes.len() - 1]).unwrap();
    let sum = widened(b, sum, sizes);
    let count = b.full_like(sum, sizes[sizes.len() - 1] as f64).unwrap();
    b.div(sum, count).unwrap()
}

fn layer_norm(b: &mut Builder, x: Atom, sizes: &[usize]) -> Atom {
    let middle = mean(b, x, sizes);
    let centred = b.sub(x, middle).unwrap();
    let squares = b.mul(centred, centred).unwrap();
    let variance = mean(b, squares, sizes);
    let scale = b.unary(Unary::Rsqrt, variance).unwrap();
    b.mul(centred, scale).unwrap()
}

#[test]
fn softmax_and_norms_of_all_widths() {
    let device = device();
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
        let widths: &[usize] = match dtype {
            DType::F32 => &[1, 7, 64, 255, 256, 257, 1000, 5000],
            DType::F64 => &[7, 300],
            _ => &[7, 257, 5000],
        };
        for &width in widths {
            let sizes = [3, width];
            let softmax = of_rows("softmax", dtype, &sizes, |b, x, sizes| vec![softmax_of(b, x, sizes)]);
            let names = check(&device, &softmax);
            assert!(names.len() == 1 || width == 5000 || width == 1, "{}: {names:?}", softmax.name);
            let norm = of_rows("norm", dtype, &sizes, |b, x, sizes| vec![layer_norm(b, x, sizes)]);
            let names = check(&device, &norm);
            assert!(names.len() == 1 || width == 5000 || width == 1, "{}: {names:?}", norm.name);
        }
    }
}

/// A gradient reads what the kernels before it left of a row, and reduces it again.
#[test]
fn gradients_of_softmax() {
    let device = device();
    for width in [33, 256, 1000, 5000] {
        let sizes = [4, 3, width];
        let mut b = Builder::new(format!("gradient of softmax, {width}"));
        let x = b.input(ArrayType::of_sizes(&sizes, DType::F32));
        let g = b.input(ArrayType::of_sizes(&sizes, DType::F32));
        let y = softmax_of(&mut b, x, &sizes);
        let product = b.mul(y, g).unwrap();
        let sum = b.reduce_sum(product, &[2]).unwrap();
        let sum = widened(&mut b, sum, &sizes);
        let rest = b.sub(g, sum).unwrap();
        let gradient = b.mul(rest, y).unwrap();
        let names = check(&device, &b.finish([y, gradient]));
        assert!(names.len() == 1 || width == 5000, "{width}: {names:?}");
    }
}

/// Places of the best are found in the row, of NaN the first, and narrow integers and booleans are between kernels.
#[test]
fn places_and_narrow_elements_within_rows() {
    let device = device();
    for width in [33, 300, 2000] {
        let sizes = [5, width];
        for dtype in [DType::F32, DType::I8, DType::U16] {
            let mut b = Builder::new(format!("places in {dtype} {width}"));
            let x = b.input(ArrayType::of_sizes(&sizes, dtype));
            let op =
                ArgReduce { kind: ArgKind::Max, axes: [1].into_iter().collect(), index_dtype: DType::I32 };
            let place = b.emit1(op, &[x]).unwrap();
            let most = b.reduce(ReduceKind::Max, x, &[1]).unwrap();
            let most = widened(&mut b, most, &sizes);
            let is_most = b.compare(Compare::Eq, x, most).unwrap();
            let ones = b.convert(is_most, DType::I32).unwrap();
            let count = b.reduce_sum(ones, &[1]).unwrap();
            let any = b.reduce(ReduceKind::Or, is_most, &[1]).unwrap();
            let less = b.sub(x, most).unwrap();
            let least = b.reduce(ReduceKind::Min, less, &[1]).unwrap();
            let names = check(&device, &b.finish([place, count, any, least, is_most]));
            assert_eq!(names.len(), 1, "{dtype} {width}: {names:?}");
        }
    }
}

/// Many short rows are an invocation each, short rows that are few a workgroup.
#[test]
fn short_rows() {
    let device = device();
    for sizes in [[2, 3], [300, 7], [5000, 13], [257, 31], [1000, 32]] {
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            let softmax = of_rows("softmax", dtype, &sizes, |b, x, sizes| vec![softmax_of(b, x, sizes)]);
            let names = check(&device, &softmax);
            assert_eq!(names.len(), 1, "{}: {names:?}", softmax.name);
            assert!(names[0].starts_with("rows"), "{names:?}");
        }
    }
}

/// Long rows that are few keep the kernels that fill the GPU.
#[test]
fn long_rows_stay_apart() {
    let device = device();
    let softmax = of_rows("softmax", DType::F32, &[2, 20_000], |b, x, sizes| vec![softmax_of(b, x, sizes)]);
    assert!(check(&device, &softmax).len() > 2);
}

/// New shapes are other words as long as as much of a workgroup goes through a row.
#[test]
fn new_shapes_make_no_pipeline() {
    let device = device();
    let made = |sizes: [usize; 2]| {
        let softmax = of_rows("softmax", DType::F32, &sizes, |b, x, sizes| vec![softmax_of(b, x, sizes)]);
        check(&device, &softmax);
        device.backend().counts().made
    };
    let first = made([40, 700]);
    assert_eq!([made([3, 900]), made([70, 650])], [first; 2]);
}

/// Small kernels of any shapes, one after the other, with arrays that are read by other lanes than wrote them.
#[test]
fn small_kernels_are_one() {
    let device = device();
    let mut b = Builder::new("small");
    let x = b.input(ArrayType::of_sizes(&[11], DType::F32));
    let m = b.input(ArrayType::of_sizes(&[11, 13], DType::F32));
    let y = softmax_of(&mut b, x, &[11]);
    let columns = b.broadcast_in_dim(y, &[11, 13].map(Dim::Const), &[0]).unwrap();
    let product = b.mul(columns, m).unwrap();
    let sums = b.reduce_sum(product, &[0]).unwrap();
    let norm = softmax_of(&mut b, sums, &[13]);
    let total = b.reduce_sum(norm, &[0]).unwrap();
    let names = check(&device, &b.finish([y, norm, total]));
    assert!(names.len() == 1 && names[0].starts_with("rows"), "{names:?}");
}

/// Rows that are matrices, reduced along either axis, few results at a time and many.
#[test]
fn rows_of_two_axes() {
    let device = device();
    for sizes in [[6, 40, 100], [6, 100, 40], [5, 3, 700], [5, 700, 3]] {
        let mut b = Builder::new(format!("rows of {sizes:?}"));
        let x = b.input(ArrayType::of_sizes(&sizes, DType::F32));
        let most = b.reduce(ReduceKind::Max, x, &[1]).unwrap();
        let most = b.broadcast_in_dim(most, &sizes.map(Dim::Const), &[0, 2]).unwrap();
        let below = b.sub(x, most).unwrap();
        let powers = b.unary(Unary::Exp, below).unwrap();
        let sum = b.reduce_sum(powers, &[2]).unwrap();
        let sum = b.broadcast_in_dim(sum, &sizes.map(Dim::Const), &[0, 1]).unwrap();
        let share = b.div(powers, sum).unwrap();
        let total = b.reduce_sum(share, &[1, 2]).unwrap();
        let names = check(&device, &b.finish([share, total]));
        assert_eq!(names.len(), 1, "{sizes:?}: {names:?}");
    }
}

/// Nothing, one element, and sums of nothing.
#[test]
fn empty_arrays() {
    let device = device();
    for sizes in [[0, 4], [4, 0], [1, 1], [0, 0]] {
        let mut b = Builder::new(format!("empty {sizes:?}"));
        let x = b.input(ArrayType::of_sizes(&sizes, DType::F32));
        let powers = b.unary(Unary::Exp, x).unwrap();
        let sums = b.reduce_sum(powers, &[0]).unwrap();
        let logs = b.unary(Unary::Log, sums).unwrap();
        let other = b.reduce_sum(powers, &[1]).unwrap();
        let total = b.reduce_sum(other, &[0]).unwrap();
        check(&device, &b.finish([powers, logs, other, total]));
    }
}

/// More rows than a dispatch has workgroups along a dimension.
#[test]
fn very_many_rows() {
    let device = device();
    let sizes = [66_000, 33];
    let softmax = of_rows("softmax", DType::F32, &sizes, |b, x, sizes| vec![softmax_of(b, x, sizes)]);
    let inputs = arguments(&softmax, 5);
    let before = device.backend().counts().made;
    let got = run(&device, &softmax, &inputs).unwrap();
    assert_eq!(device.backend().counts().made, before + 1);
    assert_eq!(got, one_by_one(device.backend(), &softmax, &inputs));
}
