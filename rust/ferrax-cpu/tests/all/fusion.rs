//! Fused programs against the reference interpreter.

use crate::common::{arguments, check, dims, f32s, on_each_tuning, softmax};
use ferrax_cpu::compile;
use ferrax_ir::ops::{Binary, ReduceKind, Unary};
use ferrax_ir::{ArrayType, Builder, DType, Program};

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
fn transpositions_are_copied_once_or_used_on_the_way() {
    for (sizes, order) in [
        (&[19, 37][..], &[1, 0][..]),
        (&[64, 200], &[1, 0]),
        (&[5, 70, 66], &[0, 2, 1]),
        (&[6, 9, 4, 32], &[0, 2, 1, 3]),
        (&[3, 40, 9], &[2, 1, 0]),
    ] {
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::U8, DType::C64] {
            // Alone, with a reader beside the copy, with a sum of it, and a part of it.
            for more in 0..4 {
                let mut b = Builder::new("transposition");
                let x = b.input(ArrayType::of_sizes(sizes, dtype));
                let t = b.transpose(x, order).unwrap();
                let outputs = match more {
                    0 => vec![t],
                    1 => vec![t, b.add(t, t).unwrap()],
                    2 => vec![t, b.reduce_sum(t, &[sizes.len() - 1]).unwrap()],
                    _ => vec![b.slice_axis(t, 0, 1, 3).unwrap()],
                };
                check(&b.finish(outputs), if more == 2 { 1000 } else { 0 });
            }
        }
    }
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

/// Results that may take the memory of an operand that is read elsewhere too: at another index, by another result,
/// as indices.
#[test]
fn operands_that_results_take_over() {
    const SCATTER: &str = "scatter_add[update_window_dims=() inserted_window_dims=(0,) \
        scatter_dims_to_operand_dims=(0,) operand_batching_dims=() scatter_indices_batching_dims=() mode=fill \
        unique_indices=False indices_are_sorted=False]";
    for text in [
        "a:f32[9,40] w:f32[9,7]. let y:f32[9,40] = sin a; b:f32[9,47] = concatenate[dimension=1] a w in (y, b)",
        "a:f32[9,40] w:f32[9,7]. let b:f32[9,47] = concatenate[dimension=1] w a; y:f32[9,40] = sin a in (b, y)",
        "a:f32[9,40] w:f32[9,7]. let x:f32[9,40] = neg a; y:f32[9,40] = sin x; \
         b:f32[9,47] = concatenate[dimension=1] x w; c:f32[9,40] = cos y in (c, b)",
        "a:f32[300]. let r:f32[300] = rev[dimensions=(0,)] a; y:f32[300] = add a r; z:f32[300] = mul a 2.0:f32[] in (y, z)",
        "a:f32[30,20] b:f32[20,30]. let t:f32[20,30] = transpose[permutation=(1, 0)] a; y:f32[20,30] = sub t b; \
         s:f32[30] = reduce_sum[axes=(0,)] b in (y, s)",
        &format!(
            "a:i32[9]. let b:i32[9] = rem a 9:i32[]; c:i32[9] = abs b; i:i32[9,1] = reshape[new_sizes=(9, 1) \
             dimensions=None] c; u:i32[9] = iota[dimension=0 dtype=int32 shape=(9,)]; x:i32[9] = {SCATTER} c i u in (x,)"
        ),
        &format!(
            "a:i32[9] u:i32[9]. let b:i32[9] = rem a 9:i32[]; c:i32[9] = abs b; i:i32[9,1] = reshape[new_sizes=(9, 1) \
             dimensions=None] c; z:i32[9] = mul u 0:i32[]; x:i32[9] = {SCATTER} z i c in (x, c)"
        ),
    ] {
        let program = Program::parse(&format!("{{ lambda ; {text} }}"))
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        check(&program, 4);
        on_each_tuning(&program, &arguments(&program, 5));
    }
}
