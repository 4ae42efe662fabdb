//! Prints times of typical work: `cargo run --release -p ferrax-cpu --example timing`.

use std::time::Instant;

use ferrax_cpu::{compile, pool, run_op};
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Op, Program, Result, Tensor};

fn array(sizes: &[usize]) -> Result<Tensor> {
    let count: usize = sizes.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i % 1013) as f32 / 500.0 - 1.0).collect();
    Tensor::from_elements(sizes, &values)
}

/// The best of several rounds, in nanoseconds per call.
fn best(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    call()?;
    let once = start.elapsed().as_secs_f64();
    let repeats = ((0.02 / once.max(1e-9)) as usize).clamp(1, 200_000);
    let mut least = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..repeats {
            call()?;
        }
        least = least.min(start.elapsed().as_secs_f64() / repeats as f64);
    }
    Ok(least * 1e9)
}

fn program(
    inputs: &[&[usize]],
    build: impl FnOnce(&mut Builder, &[Atom]) -> Result<Atom>,
) -> Result<Program> {
    let mut builder = Builder::new("timing");
    let atoms: Vec<Atom> =
        inputs.iter().map(|sizes| builder.input(ArrayType::of_sizes(sizes, DType::F32))).collect();
    let output = build(&mut builder, &atoms)?;
    Ok(builder.finish([output]))
}

fn measure(
    name: &str,
    sizes: &[&[usize]],
    elements: usize,
    build: impl FnOnce(&mut Builder, &[Atom]) -> Result<Atom>,
) -> Result<()> {
    let program = program(sizes, build)?;
    let start = Instant::now();
    let executable = compile(&program)?;
    let compiled = start.elapsed().as_secs_f64() * 1e6;
    let inputs = sizes.iter().map(|sizes| array(sizes)).collect::<Result<Vec<_>>>()?;
    let nanos = best(|| executable.run(&inputs).map(drop))?;
    println!(
        "{name:<34} {:>12.2} us  {:>8.3} ns/element  {} steps, compiled in {compiled:.0} us",
        nanos / 1e3,
        nanos / elements as f64,
        executable.steps()
    );
    Ok(())
}

fn dims(sizes: &[usize]) -> Vec<Dim> {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

fn main() -> Result<()> {
    println!("{} threads, {:?}", pool::threads(), ferrax_cpu::vm::isa::isa());
    measure("x + 1, 8", &[&[8]], 8, |b, x| {
        let one = b.scalar(DType::F32, 1.0);
        b.add(x[0], one)
    })?;
    let op = Op::from(Binary::Add);
    let (x, y) = (array(&[8])?, array(&[8])?);
    println!("run_op add, 8: {:.0} ns", best(|| run_op(&op, &[x.clone(), y.clone()]).map(drop))?);
    let mut least = f64::INFINITY;
    for n in 1000..1050 {
        let x = array(&[n])?;
        let start = Instant::now();
        run_op(&op, &[x.clone(), x])?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    println!("run_op add, first call of a shape: {:.1} us", least * 1e6);
    const N: usize = 10_000_000;
    measure("x + 1, 10M", &[&[N]], N, |b, x| {
        let one = b.scalar(DType::F32, 1.0);
        b.add(x[0], one)
    })?;
    measure("copy-like neg, 100k", &[&[100_000]], 100_000, |b, x| b.neg(x[0]))?;
    for (name, op) in [("exp", Unary::Exp), ("sin", Unary::Sin), ("tanh", Unary::Tanh), ("log", Unary::Log)] {
        measure(&format!("{name}, 100k"), &[&[100_000]], 100_000, |b, x| b.unary(op, x[0]))?;
    }
    measure("exp, 10M", &[&[N]], N, |b, x| b.unary(Unary::Exp, x[0]))?;
    measure("sum, 10M", &[&[N]], N, |b, x| b.reduce_sum(x[0], &[0]))?;
    measure("sum rows, 3000 x 3000", &[&[3000, 3000]], 9_000_000, |b, x| b.reduce_sum(x[0], &[1]))?;
    measure("sum columns, 3000 x 3000", &[&[3000, 3000]], 9_000_000, |b, x| b.reduce_sum(x[0], &[0]))?;
    measure("sum rows, 1M x 3", &[&[1_000_000, 3]], 3_000_000, |b, x| b.reduce_sum(x[0], &[1]))?;
    measure("argmax rows, 1000 x 1000", &[&[1000, 1000]], 1_000_000, |b, x| {
        let op = ArgReduce { kind: ArgKind::Max, axes: [1][..].into(), index_dtype: DType::I32 };
        b.emit1(op, &[x[0]])
    })?;
    measure("transpose, 3000 x 3000", &[&[3000, 3000]], 9_000_000, |b, x| b.transpose(x[0], &[1, 0]))?;
    measure("x + bias, 1M x 3", &[&[1_000_000, 3], &[3]], 3_000_000, |b, x| {
        let bias = b.broadcast_in_dim(x[1], &dims(&[1_000_000, 3]), &[1])?;
        b.add(x[0], bias)
    })?;
    measure("x + bias, 3000 x 3000", &[&[3000, 3000], &[3000]], 9_000_000, |b, x| {
        let bias = b.broadcast_in_dim(x[1], &dims(&[3000, 3000]), &[1])?;
        b.add(x[0], bias)
    })?;
    measure("softmax, 4096 x 1000", &[&[4096, 1000]], 4_096_000, |b, x| {
        let shape = dims(&[4096, 1000]);
        let m = b.reduce(ReduceKind::Max, x[0], &[1])?;
        let m = b.broadcast_in_dim(m, &shape, &[0])?;
        let d = b.sub(x[0], m)?;
        let e = b.unary(Unary::Exp, d)?;
        let s = b.reduce_sum(e, &[1])?;
        let s = b.broadcast_in_dim(s, &shape, &[0])?;
        b.div(e, s)
    })?;
    measure("chain of 30, 1M", &[&[1_000_000]], 1_000_000, |b, x| {
        let mut y = x[0];
        for step in 0..15 {
            y = b.scale(y, 0.9)?;
            let constant = b.scalar(DType::F32, f64::from(step));
            y = b.add(y, constant)?;
        }
        Ok(y)
    })?;
    for n in [4, 16, 64, 256, 512, 1024, 2048] {
        let program = program(&[&[n, n], &[n, n]], |b, x| {
            b.emit1(
                DotGeneral {
                    lhs_contracting: [1][..].into(),
                    rhs_contracting: [0][..].into(),
                    lhs_batch: [][..].into(),
                    rhs_batch: [][..].into(),
                    precision: None,
                    preferred_element_type: None,
                },
                x,
            )
        })?;
        let executable = compile(&program)?;
        let inputs = [array(&[n, n])?, array(&[n, n])?];
        let nanos = best(|| executable.run(&inputs).map(drop))?;
        println!(
            "matmul f32 {n:>4}: {:>10.2} us {:>7.1} GF/s",
            nanos / 1e3,
            2.0 * (n as f64).powi(3) / nanos
        );
    }
    Ok(())
}
