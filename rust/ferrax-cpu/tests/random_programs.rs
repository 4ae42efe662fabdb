//! Random programs: compiled against interpreted, on one thread and on several,
//! with and without donation.

mod common;

use common::{Random, arguments};
use ferrax_cpu::compile;
use ferrax_ir::ops::*;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Program, Tensor, interpret};

fn dims(sizes: &[usize]) -> Vec<Dim> {
    sizes.iter().map(|&size| Dim::Const(size)).collect()
}

fn sizes_of(b: &Builder, atom: Atom) -> Vec<usize> {
    b.shape(atom).iter().map(|dim| dim.as_const().unwrap()).collect()
}

/// A value derived from others by one random op; `None` if the op does not fit.
fn step(b: &mut Builder, random: &mut Random, values: &[Atom]) -> Option<Atom> {
    let x = values[random.below(values.len())];
    let sizes = sizes_of(b, x);
    let rank = sizes.len();
    let axis = random.below(rank);
    let count: usize = sizes.iter().product();
    Some(match random.below(17) {
        0 | 1 => {
            let like: Vec<Atom> = values.iter().copied().filter(|&y| sizes_of(b, y) == sizes).collect();
            let y = like[random.below(like.len())];
            let op = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Min][random.below(5)];
            b.binary(op, x, y).ok()?
        }
        2 => b.scale(x, 0.5).ok()?,
        3 => b.unary([Unary::Tanh, Unary::Sin, Unary::Logistic][random.below(3)], x).ok()?,
        4 => b.unary([Unary::Neg, Unary::Abs, Unary::Floor, Unary::Sign][random.below(4)], x).ok()?,
        5 if rank > 0 => {
            let kind = [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min][random.below(3)];
            let y = b.reduce(kind, x, &[axis]).ok()?;
            if kind == ReduceKind::Sum { b.scale(y, 1.0 / sizes[axis].max(1) as f64).ok()? } else { y }
        }
        6 if rank < 4 && count < 4000 => {
            let mut to = sizes.clone();
            let at = random.below(rank + 1);
            to.insert(at, 1 + random.below(4));
            let kept: Vec<usize> = (0..rank + 1).filter(|&a| a != at).collect();
            b.broadcast_in_dim(x, &dims(&to), &kept).ok()?
        }
        7 if rank > 1 => {
            let mut permutation: Vec<usize> = (0..rank).collect();
            permutation.rotate_left(1 + random.below(rank - 1));
            b.transpose(x, &permutation).ok()?
        }
        8 if rank > 0 => {
            let start = random.below(sizes[axis]);
            let limit = start + random.below(sizes[axis] - start + 1);
            b.slice_axis(x, axis, start, limit.max((start + 1).min(sizes[axis]))).ok()?
        }
        9 if rank > 0 => b.emit1(Rev { dimensions: [axis][..].into() }, &[x]).ok()?,
        10 if rank > 0 => {
            let mut config = vec![(0, 0, 0); rank];
            config[axis] =
                (random.below(3) as i64 - 1, random.below(4) as i64 - 1, (random.below(5) / 4) as i64);
            let value = b.scalar(DType::F32, 0.25);
            b.emit1(Pad { padding_config: config }, &[x, value]).ok()?
        }
        11 if rank > 0 && count < 4000 => {
            let like: Vec<Atom> = values.iter().copied().filter(|&y| sizes_of(b, y) == sizes).collect();
            let y = like[random.below(like.len())];
            b.emit1(Concatenate { dimension: axis }, &[x, y, x]).ok()?
        }
        12 if rank > 1 => {
            // Merge two axes, or split one.
            let mut to = sizes.clone();
            let at = random.below(rank - 1);
            to[at] *= to.remove(at + 1);
            b.reshape(x, &dims(&to)).ok()?
        }
        13 if rank > 0 && rank < 4 && sizes[axis].is_multiple_of(2) && sizes[axis] > 0 => {
            let mut to = sizes.clone();
            to[axis] /= 2;
            to.insert(axis + 1, 2);
            b.reshape(x, &dims(&to)).ok()?
        }
        14 if rank > 0 => {
            let iota = b.iota(DType::F32, &dims(&sizes), axis).ok()?;
            let iota = b.scale(iota, 0.125).ok()?;
            b.add(x, iota).ok()?
        }
        15 => {
            let limit = b.scalar(DType::F32, 0.1);
            let which = b.compare(Compare::Lt, x, limit).ok()?;
            let other = b.neg(x).ok()?;
            b.select(which, x, other).ok()?
        }
        16 => {
            let half = b.convert(x, DType::BF16).ok()?;
            b.convert(half, DType::F32).ok()?
        }
        _ => return None,
    })
}

fn generate(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let mut b = Builder::new(format!("random {seed}"));
    let shapes: [&[usize]; 6] = [&[], &[7], &[4, 6], &[3, 1, 5], &[2, 3, 4], &[130, 3]];
    let mut values: Vec<Atom> = Vec::new();
    for _ in 0..1 + random.below(3) {
        let sizes = shapes[random.below(shapes.len())];
        values.push(b.input(ArrayType::of_sizes(sizes, DType::F32)));
    }
    let wanted = values.len() + 3 + random.below(22);
    for _ in 0..200 {
        if values.len() >= wanted {
            break;
        }
        if let Some(value) = step(&mut b, &mut random, &values) {
            values.push(value);
        }
    }
    let mut outputs: Vec<Atom> = vec![values[values.len() - 1]];
    for _ in 0..random.below(3) {
        outputs.push(values[random.below(values.len())]);
    }
    b.finish(outputs)
}

#[test]
fn compiled_programs_agree_with_the_interpreter() {
    for seed in 0..1500 {
        let program = generate(seed);
        let inputs = arguments(&program, seed);
        let executable = compile(&program).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{program}"));
        let got = executable.run(&inputs).unwrap();
        let want = interpret::run(&program, &inputs).unwrap();
        for (index, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!((got.dtype(), got.sizes()), (want.dtype(), want.sizes()), "seed {seed}");
            // Rounding to bf16 amplifies a last bit to 2^-8; floors and signs are kept rare by the data.
            close(got, want, &format!("seed {seed}, output {index}\n{program}"));
        }
        let copies: Vec<Tensor> =
            inputs.iter().map(|t| Tensor::from_bytes(t.dtype(), t.sizes(), t.bytes()).unwrap()).collect();
        let donate = vec![true; copies.len()];
        let donated = executable.run_donating(copies, &donate).unwrap();
        for (a, b) in donated.iter().zip(&got) {
            assert_eq!(a, b, "seed {seed} with donation\n{program}");
        }
    }
}

/// Nearly all elements agree closely; a rounding step may flip a few.
fn close(got: &Tensor, want: &Tensor, what: &str) {
    let (g, w) = (got.elements::<f32>().unwrap(), want.elements::<f32>().unwrap());
    let wrong = g.iter().zip(w).filter(|(g, w)| {
        let near = (**g - **w).abs() <= 1e-4 * g.abs().max(w.abs()).max(1.0);
        !(near || g == w || (g.is_nan() && w.is_nan()))
    });
    let wrong = wrong.count();
    let flips =
        g.iter().zip(w).all(|(g, w)| (g - w).abs() <= 0.02 * g.abs().max(w.abs()).max(1.0) || g.is_nan());
    assert!(
        wrong == 0 || (flips && wrong * 4 <= g.len()),
        "{wrong} of {} differ: {what}\n{g:?}\n{w:?}",
        g.len()
    );
}

#[test]
fn results_do_not_depend_on_threads() {
    // The pool's size is fixed for a process; work posted from within a chunk
    // runs on its own thread, as a pool of one would run it.
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
    let alone = std::sync::Mutex::new(ferrax_cpu::Outputs::new());
    ferrax_cpu::pool::run(2, &|chunk| {
        if chunk == 0 {
            *alone.lock().unwrap() = executable.run(&inputs).unwrap();
        }
    });
    assert_eq!(several, *alone.lock().unwrap());
}

#[test]
fn concurrent_runs_do_not_disturb_each_other() {
    let program = generate(17);
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
