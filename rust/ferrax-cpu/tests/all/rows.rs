//! Runs of kernels that go through rows together: their values, and that they come about.

use crate::common::{
    attention, attention_of, check, compare, dims, f32s, fill, of_softmax, on_one_thread, softmax,
    softmax_of, widened,
};
use ferrax_compile::backend::prepare;
use ferrax_compile::{Share, Target};
use ferrax_cpu::compile;
use ferrax_ir::ops::{Binary, Compare, Scan, Unary};
use ferrax_ir::{Atom, Builder, DType, Dim, Program, Tensor};

/// `(x - mean) / sqrt(variance) * scale`, with the mean of each row.
fn layer_norm(sizes: &[usize]) -> Program {
    let (mut b, axis) = (Builder::new("layer_norm"), sizes.len() - 1);
    let (x, scale) = (b.input(f32s(sizes)), b.input(f32s(&sizes[axis..])));
    let count = 1.0 / sizes[axis] as f64;
    let sum = b.reduce_sum(x, &[axis]).unwrap();
    let mean = b.scale(sum, count).unwrap();
    let mean = widened(&mut b, mean, sizes);
    let centred = b.sub(x, mean).unwrap();
    let squares = b.binary(Binary::Mul, centred, centred).unwrap();
    let variance = b.reduce_sum(squares, &[axis]).unwrap();
    let variance = b.scale(variance, count).unwrap();
    let root = b.unary(Unary::Sqrt, variance).unwrap();
    let root = widened(&mut b, root, sizes);
    let normal = b.div(centred, root).unwrap();
    let scale = b.broadcast_in_dim(scale, &dims(sizes), &[axis]).unwrap();
    let y = b.mul(normal, scale).unwrap();
    b.finish([y])
}

/// The number of steps in each run of a program's plan.
fn runs(program: &Program) -> Vec<usize> {
    let plan = ferrax_compile::plan(program, &Target::CPU).unwrap();
    plan.runs.iter().map(|run| run.steps.len()).collect()
}

#[test]
fn rows_stay_in_the_cache() {
    for sizes in
        [&[3000, 300][..], &[9, 30_000], &[2, 900, 200], &[400, 3, 300], &[1, 1, 1500, 256], &[30_001, 11]]
    {
        assert_eq!(runs(&softmax(sizes)), [3], "{sizes:?}");
        check(&softmax(sizes), 64);
        assert_eq!(runs(&layer_norm(sizes)).len(), 1, "{sizes:?}");
        check(&layer_norm(sizes), 2000);
    }
}

#[test]
fn little_and_long_rows_are_no_runs() {
    for sizes in [&[8, 16][..], &[1, 400_000], &[3, 200_000]] {
        assert_eq!(runs(&softmax(sizes)), [], "{sizes:?}");
        check(&softmax(sizes), 64);
    }
}

/// Rows of a run have the bits that they have alone.
#[test]
fn blocks_change_no_bit() {
    for width in [100, 257, 1000, 4096] {
        let many = 2_000_000 / width;
        let x = fill(DType::F32, &[many, width], 5);
        let twice = |sizes: &[usize]| {
            of_softmax(sizes, |b, y| {
                let z = softmax_of(b, y, sizes);
                [z, b.reduce_sum(z, &[1]).unwrap()]
            })
        };
        for make in [softmax, twice] {
            assert!(!runs(&make(&[many, width])).is_empty());
            let whole = compile(&make(&[many, width])).unwrap().run(std::slice::from_ref(&x)).unwrap();
            for first in [0, many / 2 + 1, many - 4] {
                let bytes = &x.bytes()[first * width * 4..(first + 4) * width * 4];
                let part = Tensor::from_bytes(DType::F32, [4, width].as_slice(), bytes).unwrap();
                let alone = compile(&make(&[4, width])).unwrap().run(&[part]).unwrap();
                for (whole, alone) in whole.iter().zip(&alone) {
                    let row = alone.bytes().len() / 4;
                    assert_eq!(&whole.bytes()[first * row..(first + 4) * row], alone.bytes());
                }
            }
        }
    }
}

/// Rows of a causal mask are compared with the number of the row; a bias comes in by columns.
#[test]
fn rows_know_their_number() {
    let sizes = [3, 500, 500];
    let mut b = Builder::new("masked");
    let (x, bias) = (b.input(f32s(&sizes)), b.input(f32s(&[500, 500])));
    let (row, column) =
        (b.iota(DType::I32, &dims(&sizes), 1).unwrap(), b.iota(DType::I32, &dims(&sizes), 2).unwrap());
    let seen = b.compare(Compare::Ge, row, column).unwrap();
    let turned = b.transpose(bias, &[1, 0]).unwrap();
    let turned = b.broadcast_in_dim(turned, &dims(&sizes), &[1, 2]).unwrap();
    let x = b.add(x, turned).unwrap();
    let low = b.scalar(DType::F32, -1e9);
    let low = b.broadcast_in_dim(low, &dims(&sizes), &[]).unwrap();
    let x = b.select(seen, x, low).unwrap();
    let y = softmax_of(&mut b, x, &sizes);
    let program = b.finish([y]);
    assert_eq!(runs(&program).len(), 1);
    check(&program, 64);
}

/// What is written by rows and read by columns keeps its kernels apart.
#[test]
fn columns_end_a_run() {
    let sizes = [700, 700];
    let program = of_softmax(&sizes, |b, y| {
        let columns = b.reduce_sum(y, &[0]).unwrap();
        let turned = b.transpose(y, &[1, 0]).unwrap();
        [columns, softmax_of(b, turned, &sizes)]
    });
    let plan = ferrax_compile::plan(&program, &Target::CPU).unwrap();
    assert!(plan.runs.iter().all(|run| run.steps.len() < plan.steps.len()), "{plan}");
    check(&program, 64);
}

/// All steps of attention go by rows where the matrix of all pairs is large, which then is never there.
#[test]
fn attention_takes_memory_that_grows_with_the_places() {
    let arena = |places: usize| {
        let plan = ferrax_compile::plan(&attention(2, places, 32), &Target::CPU).unwrap();
        let steps: Vec<usize> = plan.runs.iter().map(|run| run.steps.len()).collect();
        assert_eq!(steps, [plan.steps.len()], "{plan}");
        plan.arena
    };
    assert!(arena(1500) <= 1 << 16 && arena(3000) <= 1 << 16);
    // In half precision operands of products are brought into another dtype first.
    for dtype in [DType::F16, DType::BF16] {
        let plan = ferrax_compile::plan(&prepare(&attention_of(dtype, 2, 3000, 32)).unwrap(), &Target::CPU);
        let plan = plan.unwrap();
        assert_eq!(plan.runs.iter().filter(|run| run.has_calls()).count(), 1, "{plan}");
        assert!(plan.arena <= 4 << 20, "{plan}");
        check(&attention_of(dtype, 2, 40, 8), 100);
    }
    check(&attention(3, 8, 4), 1000);
    check(&attention(1, 40, 8), 1000);
    // Head by head, where the matrix is small enough to be there.
    let (heads, places, width) = (2, 900, 32);
    let inputs: Vec<Tensor> = (1..4).map(|seed| fill(DType::F32, &[heads, places, width], seed)).collect();
    let got = compile(&attention(heads, places, width)).unwrap().run(&inputs).unwrap();
    let (single, bytes) = (attention(1, places, width), places * width * 4);
    assert!(runs(&single).iter().all(|&steps| steps < 5));
    for head in 0..heads {
        let part = |x: &Tensor| {
            let part = &x.bytes()[head * bytes..(head + 1) * bytes];
            Tensor::from_bytes(DType::F32, [1, places, width].as_slice(), part).unwrap()
        };
        let inputs: Vec<Tensor> = inputs.iter().map(part).collect();
        let want = compile(&single).unwrap().run(&inputs).unwrap();
        compare(&part(&got[0]), &want[0], 1000, "attention");
    }
}

/// Blocks of products do not depend on the number of threads.
#[test]
fn products_by_rows_have_the_same_bits_on_one_thread() {
    let program = attention(2, 1500, 16);
    let inputs: Vec<Tensor> = (1..4).map(|seed| fill(DType::F32, &[2, 1500, 16], seed)).collect();
    let executable = compile(&program).unwrap();
    let several = executable.run(&inputs).unwrap();
    assert_eq!(several, on_one_thread(&executable, &inputs));
}

#[test]
fn donated_rows() {
    let sizes = [2000, 300];
    let executable = compile(&softmax(&sizes)).unwrap();
    let x = fill(DType::F32, &sizes, 2);
    let want = executable.run(std::slice::from_ref(&x)).unwrap();
    for _ in 0..3 {
        let copy = Tensor::from_bytes(DType::F32, sizes.as_slice(), x.bytes()).unwrap();
        let got = executable.run_donating(vec![copy], &[true]).unwrap();
        assert_eq!(got[0], want[0]);
    }
}

/// A run within the body of a loop.
#[test]
fn rows_in_loops() {
    let sizes = [1500, 300];
    let body = of_softmax(&sizes, |_, y| [y, y]);
    let mut b = Builder::new("loop");
    let x = b.input(f32s(&sizes));
    let scan = Scan {
        jaxpr: body.into(),
        length: Dim::Const(3),
        num_carry: 1,
        num_consts: 0,
        reverse: false,
        unroll: 1,
    };
    let results = b.emit(scan, &[x]).unwrap();
    let program = b.finish(results.into_iter().map(Atom::Var));
    check(&program, 64);
}

/// Batches of products beside kernels over the first of their loops alone: a row of the run is several of a product's.
#[test]
fn rows_of_several_rows_of_a_product() {
    for (sizes, columns) in [([1024, 8, 64], 64), ([512, 3, 100], 700)] {
        let [batch, rows, terms] = sizes;
        let out = [batch, rows, columns];
        let mut b = Builder::new("layer");
        let (x, w) = (b.input(f32s(&sizes)), b.input(f32s(&[terms, columns])));
        let y = b.emit1(crate::programs::layer(), &[x, w]).unwrap();
        let y = softmax_of(&mut b, y, &out);
        let program = b.finish([y]);
        let target = Target { product_bytes: 1 << 16, ..Target::CPU };
        let plan = ferrax_compile::plan(&prepare(&program).unwrap(), &target).unwrap();
        let of_calls: Vec<Share> =
            plan.runs.iter().flat_map(|run| &run.parts).map(|part| part.share).collect();
        assert!(of_calls.contains(&Share::Rows(rows)), "{plan}");
        check(&program, 1000);
    }
}

/// Parts of tiles whose lines do not lie in one piece once they are cut.
#[test]
fn parts_of_transposed_rows() {
    for sizes in [[512, 600], [4096, 128], [191, 1958]] {
        let turned = [sizes[1], sizes[0]];
        let mut b = Builder::new("turned");
        let x = b.input(f32s(&sizes));
        let x = b.transpose(x, &[1, 0]).unwrap();
        let y = softmax_of(&mut b, x, &turned);
        check(&b.finish([y]), 64);
    }
}
