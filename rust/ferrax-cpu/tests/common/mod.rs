//! Test data, and comparison with the reference interpreter.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod generate;

use std::sync::Arc;

use ferrax_compile::backend::Output;
use ferrax_compile::device::{Attached, Device, DeviceId, Memory};
use ferrax_compile::reference::Reference;
use ferrax_compile::{Backend, Setting, Target, backend};
use ferrax_cpu::{Cpu, Executable, Outputs, Tuning};
use ferrax_ir::ops::{Compare, DotGeneral, ReduceKind, Unary};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Program, Result, Scalar, Tensor, interpret};

pub fn f32s(sizes: &[usize]) -> ArrayType {
    ArrayType::of_sizes(sizes, DType::F32)
}

pub fn dims(sizes: &[usize]) -> Vec<Dim> {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

/// A value of each row, as wide as the row.
pub fn widened(b: &mut Builder, value: Atom, sizes: &[usize]) -> Atom {
    let keep: Vec<usize> = (0..sizes.len() - 1).collect();
    b.broadcast_in_dim(value, &dims(sizes), &keep).unwrap()
}

pub fn softmax_of(b: &mut Builder, x: Atom, sizes: &[usize]) -> Atom {
    let axis = sizes.len() - 1;
    let most = b.reduce(ReduceKind::Max, x, &[axis]).unwrap();
    let most = widened(b, most, sizes);
    let below = b.sub(x, most).unwrap();
    let powers = b.unary(Unary::Exp, below).unwrap();
    let sum = b.reduce_sum(powers, &[axis]).unwrap();
    let sum = widened(b, sum, sizes);
    b.div(powers, sum).unwrap()
}

/// What `more` makes of the softmax of an input.
pub fn of_softmax<const N: usize>(
    sizes: &[usize],
    more: impl FnOnce(&mut Builder, Atom) -> [Atom; N],
) -> Program {
    let mut b = Builder::new("softmax");
    let x = b.input(f32s(sizes));
    let y = softmax_of(&mut b, x, sizes);
    let outputs = more(&mut b, y);
    b.finish(outputs)
}

pub fn softmax(sizes: &[usize]) -> Program {
    of_softmax(sizes, |_, y| [y])
}

/// `softmax(q kᵀ / 8 + mask) v` over the first axes, in which no query sees what comes after it.
pub fn attention(heads: usize, places: usize, width: usize) -> Program {
    attention_of(DType::F32, heads, places, width)
}

pub fn attention_of(dtype: DType, heads: usize, places: usize, width: usize) -> Program {
    let product = |lhs: usize, rhs: usize| DotGeneral {
        lhs_contracting: [lhs][..].into(),
        rhs_contracting: [rhs][..].into(),
        lhs_batch: [0][..].into(),
        rhs_batch: [0][..].into(),
        precision: None,
        preferred_element_type: None,
    };
    let (sizes, pairs) = ([heads, places, width], [heads, places, places]);
    let mut b = Builder::new("attention");
    let [q, k, v] = [(); 3].map(|()| b.input(ArrayType::of_sizes(&sizes, dtype)));
    let scores = b.emit1(product(2, 2), &[q, k]).unwrap();
    let scores = b.scale(scores, 0.125).unwrap();
    let [row, column] = [1, 2].map(|axis| b.iota(DType::I32, &dims(&pairs), axis).unwrap());
    let seen = b.compare(Compare::Ge, row, column).unwrap();
    let low = b.scalar(dtype, -3e4);
    let low = b.broadcast_in_dim(low, &dims(&pairs), &[]).unwrap();
    let scores = b.select(seen, scores, low).unwrap();
    let weights = softmax_of(&mut b, scores, &pairs);
    let result = b.emit1(product(2, 1), &[weights, v]).unwrap();
    b.finish([result])
}

/// Where what is random is decided.
pub trait Choices {
    /// A number below `bound`; 0 if that is 0.
    fn below(&mut self, bound: usize) -> usize;
}

/// A small generator of reproducible numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

impl Choices for Random {
    fn below(&mut self, bound: usize) -> usize {
        Random::below(self, bound)
    }
}

/// An array of varied values: small numbers, and for floats now and then a
/// zero of either sign.
pub fn fill(dtype: DType, sizes: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed + 1);
    let count: usize = sizes.iter().product();
    let mut bytes = Vec::new();
    for _ in 0..count {
        let mut number = || match random.below(40) {
            0 => 0.0,
            1 => -0.0,
            _ => (random.next() % 4001) as f64 / 500.0 - 4.0,
        };
        let scalar = if dtype.is_complex() {
            let (re, im) = (number(), number());
            let half = dtype.size() as u32 * 4;
            let re = Scalar::from_f64(dtype.real(), re).bits();
            let im = Scalar::from_f64(dtype.real(), im).bits();
            Scalar::from_bits(dtype, re | (im << half))
        } else if dtype.is_float() {
            Scalar::from_f64(dtype, number())
        } else if dtype == DType::Bool {
            Scalar::bool(number() > 0.0)
        } else if dtype.is_key() {
            Scalar::from_bits(dtype, u128::from(random.next()))
        } else {
            Scalar::from_i64(dtype, (random.next() % 23) as i64 - if dtype.is_signed() { 11 } else { 0 })
        };
        bytes.extend_from_slice(&scalar.bytes());
    }
    Tensor::from_bytes(dtype, sizes, &bytes).unwrap()
}

/// Arguments for a program.
pub fn arguments(program: &Program, seed: u64) -> Vec<Tensor> {
    program
        .input_types()
        .enumerate()
        .map(|(index, ty)| {
            let array = ty.as_array().unwrap();
            fill(array.dtype, &array.sizes().unwrap(), seed + index as u64 * 77)
        })
        .collect()
}

/// Runs compiled and interpreted and compares; floats may differ by `ulps` of
/// the largest magnitude nearby.
pub fn check(program: &Program, ulps: u64) {
    check_with(program, &arguments(program, 3), ulps);
}

/// The slow machine with memory of its own, with runs of rows as soon as there may be some.
pub fn remote() -> Reference {
    let target = Target {
        run_bytes: 1 << 8,
        block_bytes: 1 << 10,
        product_bytes: 1 << 8,
        product_rows: 2,
        operands: 6,
        ..Target::CPU
    };
    Reference { target }
}

/// The outputs of a program on a machine, there and back, after which nothing is left there.
pub fn run_on<B: Backend + 'static>(machine: B, program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let device = Attached::new(DeviceId(1), machine);
    let runnable = device.compile(program)?;
    let buffers = inputs
        .iter()
        .map(|tensor| device.upload(tensor.bytes()))
        .collect::<Result<Vec<Arc<dyn Memory>>>>()?;
    let outputs = runnable.run(&buffers)?;
    let home = |output: Output<Arc<dyn Memory>>| {
        assert_eq!(output.buffer.device(), device.id());
        let mut tensor = Tensor::zeros(output.dtype, output.sizes)?;
        output.buffer.download(tensor.bytes_mut()?)?;
        Ok(tensor)
    };
    let outputs = outputs.into_iter().map(home).collect();
    drop(buffers);
    assert_eq!(device.usage().in_use, 0);
    outputs
}

/// The outputs on one thread: work posted from within a chunk of the pool runs there, as a pool of one would run it.
pub fn on_one_thread(executable: &Executable, inputs: &[Tensor]) -> Outputs {
    let alone = std::sync::Mutex::new(Outputs::new());
    ferrax_cpu::pool::run(2, &|chunk| {
        if chunk == 0 {
            *alone.lock().unwrap() = executable.run(inputs).unwrap();
        }
    });
    alone.into_inner().unwrap()
}

/// The outputs with the usual thresholds, after those with all of them small and with all of them large were found to be
/// the same bits, with their arguments donated too.
pub fn on_each_tuning(program: &Program, inputs: &[Tensor]) -> Outputs {
    let fail = |setting, error| -> ! { panic!("{setting:?}: {error}\n{program}") };
    let run = |setting: Setting| {
        let machine = Cpu::with(Tuning::of(setting));
        let executable = backend::compile(&machine, program).unwrap_or_else(|error| fail(setting, error));
        let outputs = executable.run(inputs).unwrap_or_else(|error| fail(setting, error));
        let copy =
            |tensor: &Tensor| Tensor::from_bytes(tensor.dtype(), tensor.sizes(), tensor.bytes()).unwrap();
        let donated = executable
            .run_donating(inputs.iter().map(copy).collect(), &vec![true; inputs.len()])
            .unwrap_or_else(|error| fail(setting, error));
        assert_same_bits(&donated, &outputs, &format!("{setting:?}, with donation\n{program:#}"));
        if setting == Setting::Tiny {
            let alone = on_one_thread(&executable, inputs);
            assert_same_bits(&alone, &outputs, &format!("{setting:?}, on one thread\n{program:#}"));
        }
        outputs
    };
    let usual = run(Setting::Default);
    for setting in [Setting::Tiny, Setting::Huge] {
        assert_same_bits(&run(setting), &usual, &format!("{setting:?}\n{program:#}"));
    }
    usual
}

/// Equal bit for bit, but for what NaNs hold.
pub fn assert_same_bits(got: &[Tensor], want: &[Tensor], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (output, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!((got.dtype(), got.sizes()), (want.dtype(), want.sizes()), "{what}");
        let real = got.dtype().real();
        let number = |bytes: &[u8]| Scalar::from_bytes(real, bytes).and_then(Scalar::to_f64);
        let parts = got.bytes().chunks_exact(real.size()).zip(want.bytes().chunks_exact(real.size()));
        for (at, (got, want)) in parts.enumerate().filter(|(_, (got, want))| got != want) {
            let (a, b) = (number(got).unwrap_or(0.0), number(want).unwrap_or(0.0));
            assert!(
                a.is_nan() && b.is_nan(),
                "output {output}, part {at}: {a:e}, not {b:e} ({got:?}, {want:?}): {what}"
            );
        }
    }
}

/// Elements of inputs that the remote machine, which is slow, takes.
const FEW: usize = 1 << 13;

/// As [`check`], for these inputs, on each machine.
pub fn check_with(program: &Program, inputs: &[Tensor], ulps: u64) {
    check_on(Cpu::of_process().unwrap(), program, inputs, ulps);
    if inputs.iter().map(Tensor::len).sum::<usize>() <= FEW {
        check_on(remote(), program, inputs, ulps);
    }
}

fn check_on<B: Backend + 'static>(machine: B, program: &Program, inputs: &[Tensor], ulps: u64) {
    let got = run_on(machine, program, inputs).unwrap_or_else(|error| panic!("{error}\n{program:?}"));
    let want = interpret::run(program, inputs).unwrap();
    assert_eq!(got.len(), want.len());
    for (index, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_eq!(got.dtype(), want.dtype());
        assert_eq!(got.sizes(), want.sizes());
        compare(got, want, ulps, &format!("output {index} of {}", program.name));
    }
}

pub fn compare(got: &Tensor, want: &Tensor, ulps: u64, what: &str) {
    if got == want {
        return;
    }
    let size = got.dtype().size();
    let dtype = got.dtype();
    let real = dtype.real();
    let epsilon = match real {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => 0.0,
    };
    let part = if dtype.is_complex() { size / 2 } else { size };
    for (at, (g, w)) in got.bytes().chunks_exact(part).zip(want.bytes().chunks_exact(part)).enumerate() {
        if g == w {
            continue;
        }
        let (g, w) = (Scalar::from_bytes(real, g).unwrap(), Scalar::from_bytes(real, w).unwrap());
        let (a, b) = (g.to_f64().unwrap_or(0.0), w.to_f64().unwrap_or(0.0));
        let both_nan = a.is_nan() && b.is_nan();
        // The parts of a complex number share a scale.
        let other = |tensor: &Tensor| {
            let bytes = &tensor.bytes()[(at ^ 1) * part..][..part];
            Scalar::from_bytes(real, bytes).and_then(Scalar::to_f64).map_or(0.0, f64::abs)
        };
        let scale = if dtype.is_complex() { other(want).max(other(got)) } else { 0.0 };
        let near = (a - b).abs() <= ulps as f64 * epsilon * a.abs().max(b.abs()).max(1e-2).max(scale);
        assert!(
            dtype.is_inexact() && (both_nan || (a == b && ulps > 0) || (near && ulps > 0)),
            "{what}, element {at}: got {a:?} ({:#x}), want {b:?} ({:#x})",
            g.bits(),
            w.bits()
        );
    }
}
