//! Fused programs against the reference interpreter.

mod common;

use common::{check, dims, f32s, softmax};
use ferrax_cpu::compile;
use ferrax_ir::Builder;
use ferrax_ir::ops::{Binary, ReduceKind, Unary};

#[test]
fn elementwise_chain_is_one_kernel() {
    let mut b = Builder::new("chain");
    let x = b.input(f32s(&[7, 300]));
    let y = b.unary(Unary::Sin, x).unwrap();
    let z = b.scale(y, 3.0).unwrap();
    let w = b.add(z, x).unwrap();
    let program = b.finish([w, y]);
    assert_eq!(compile(&program).unwrap().steps(), 1);
    check(&program, 4);
}

#[test]
fn softmax_is_three_kernels() {
    for sizes in [&[5, 7][..], &[300, 1000], &[3, 4, 129], &[1, 70000]] {
        let program = softmax(sizes);
        assert!(compile(&program).unwrap().steps() <= 3);
        check(&program, 64);
    }
}

#[test]
fn movement_costs_no_kernel() {
    let mut b = Builder::new("movement");
    let x = b.input(f32s(&[6, 10]));
    let t = b.transpose(x, &[1, 0]).unwrap();
    let r = b.reshape(t, &dims(&[5, 12])).unwrap();
    let s = b.slice_axis(r, 1, 6, 12).unwrap();
    let y = b.add(s, s).unwrap();
    let program = b.finish([y]);
    assert_eq!(compile(&program).unwrap().steps(), 1, "{program:?}");
    check(&program, 0);
}

#[test]
fn reductions_over_any_axes() {
    for (sizes, axes) in [
        (&[5][..], &[0][..]),
        (&[4, 6], &[0]),
        (&[4, 6], &[1]),
        (&[4, 6], &[0, 1]),
        (&[3, 5, 7], &[0, 2]),
        (&[3, 5, 7], &[1]),
        (&[2000, 3], &[1]),
        (&[3, 2000], &[0]),
        (&[400_000], &[0]),
        (&[700, 300], &[0]),
        (&[2, 200_000], &[1]),
        (&[200_000, 2], &[0]),
    ] {
        for kind in [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min] {
            let mut b = Builder::new("reduce");
            let x = b.input(f32s(sizes));
            let doubled = b.add(x, x).unwrap();
            let y = b.reduce(kind, doubled, axes).unwrap();
            let y = b.scale(y, 0.5).unwrap();
            let program = b.finish([y]);
            assert_eq!(compile(&program).unwrap().steps(), 1);
            check(&program, 1000);
        }
    }
}

#[test]
fn several_outputs_and_reductions_share_loops() {
    let mut b = Builder::new("moments");
    let x = b.input(f32s(&[40, 50]));
    let squared = b.binary(Binary::Mul, x, x).unwrap();
    let a = b.reduce_sum(x, &[1]).unwrap();
    let c = b.reduce_sum(squared, &[1]).unwrap();
    let d = b.mul(a, c).unwrap();
    let program = b.finish([a, d, squared]);
    assert_eq!(compile(&program).unwrap().steps(), 1);
    check(&program, 200);
}
