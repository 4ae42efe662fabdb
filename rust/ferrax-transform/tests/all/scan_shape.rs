//! What transformed scans look like: what is stacked, carried, batched, moved
//! out of the loop; and how much of it there is.

use std::collections::HashSet;
use std::sync::Arc;

use crate::common::loops::*;
use crate::common::*;
use ferrax_ir::ops::{Scan, Unary};
use ferrax_ir::verify::verify;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Program};
use ferrax_transform::{
    OutDims, batch, dce_with, hoist, jvp, linearize, optimise, partial_eval, vjp_program,
};

fn ops(program: &Program) -> Vec<&str> {
    program.equations.iter().map(|equation| equation.op.name()).collect()
}

#[test]
fn residuals_that_are_constants_are_handed_over() {
    // The tangent of c * w needs w and c; c is an element at each step.
    let program = parse(
        "let body = { lambda ; w:f64[2] c:f64[2] x:f64[2]. let p:f64[2] = mul c w; n:f64[2] = add p x in (n, n) } in
         { lambda ; w:f64[2] c:f64[2] x:f64[3,2]. let
             n:f64[2] y:f64[3,2] = scan[jaxpr=body length=3 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
           in (n, y) }",
    );
    // In c alone: the residual is w, nothing is stacked and the loop is as it was.
    let parts = linearize(&program, &[false, true, false]).unwrap();
    assert_eq!(counts(scans(&parts.primal)[0]), [1, 1, 1, 1], "{}", parts.primal);
    assert!(Arc::ptr_eq(&scans(&parts.primal)[0].jaxpr, &scans(&program)[0].jaxpr));
    assert_eq!(counts(scans(&parts.linear)[0]), [1, 1, 0, 1], "{}", parts.linear);
    // In w: c before each step is stacked, for y holds it after each step only.
    let parts = linearize(&program, &[true, false, false]).unwrap();
    assert_eq!(counts(scans(&parts.primal)[0]), [1, 1, 1, 2], "{}", parts.primal);
    assert_eq!(counts(scans(&parts.linear)[0]), [2, 1, 1, 1], "{}", parts.linear);
    // In x alone: w again.
    let parts = linearize(&program, &[false, false, true]).unwrap();
    assert_eq!(counts(scans(&parts.primal)[0]), [1, 1, 1, 1], "{}", parts.primal);
}

#[test]
fn residuals_of_constants_are_computed_before_the_loop() {
    let program = parse(
        "let body = { lambda ; w:f64[2] k:f64[2] c:f64[2] x:f64[2]. let s:f64[2] = sin w; t:f64[2] = mul s k;
             p:f64[2] = mul c t; n:f64[2] = add p x in (k, n) } in
         { lambda ; w:f64[2] k:f64[2] c:f64[2] x:f64[3,2]. let
             l:f64[2] n:f64[2] = scan[jaxpr=body length=3 num_carry=2 num_consts=1 reverse=False unroll=1] w k c x
           in (l, n) }",
    );
    // The carry k is never changed, so it counts as a constant.
    let parts = linearize(&program, &[false, false, true, false]).unwrap();
    assert_eq!(ops(&parts.primal), ["sin", "mul", "scan"], "{}", parts.primal);
    assert_eq!(counts(scans(&parts.primal)[0]), [2, 2, 1, 0], "{}", parts.primal);
    assert_eq!(ops(&scans(&parts.primal)[0].jaxpr), ["mul", "add"], "{}", parts.primal);
    assert_eq!(counts(scans(&parts.linear)[0]), [1, 1, 0, 0], "{}", parts.linear);
}

#[test]
fn residuals_that_are_arrays_or_outputs_are_not_stacked_again() {
    let program = parse(
        "let body = { lambda ; c:f64[] x:f64[]. let s:f64[] = tanh c; n:f64[] = mul s x in (n, s) } in
         { lambda ; c:f64[] x:f64[3]. let
             n:f64[] y:f64[3] = scan[jaxpr=body length=3 num_carry=1 num_consts=0 reverse=False unroll=1] c x
           in (n, y) }",
    );
    let parts = linearize(&program, &[true, true]).unwrap();
    // Of tanh one residual that is not there yet; x and tanh(c) are.
    let stacked = counts(scans(&parts.primal)[0])[3];
    assert!(stacked <= 2, "{}", parts.primal);
    let residuals = counts(scans(&parts.linear)[0]);
    assert_eq!(residuals[0], 0);
    assert_eq!(residuals[2] - 1, stacked + 1, "{}", parts.linear);
}

#[test]
fn without_tangents_a_scan_stays() {
    let program = parse(
        "let body = { lambda ; c:i32[] x:f64[]. let z:f64[] = stop_gradient x; f:f64[] = sin z;
             n:i32[] = add c 1:i32[] in (n, f) } in
         { lambda ; c:i32[] x:f64[3]. let
             n:i32[] y:f64[3] = scan[jaxpr=body length=3 num_carry=1 num_consts=0 reverse=False unroll=1] c x
           in (n, y) }",
    );
    let parts = linearize(&program, &[false, true]).unwrap();
    assert_eq!(parts.primal, program);
    assert_eq!(parts.nonzero_out, [false, false]);
    let (derivative, flags) = jvp(&program, &[false, true]).unwrap();
    assert_eq!(flags, [false, false]);
    assert_eq!(counts(scans(&derivative)[0]), [0, 1, 1, 1]);
}

#[test]
fn tangents_are_carried_where_there_are_any() {
    let program = parse(
        "let body = { lambda ; i:i32[] a:f64[] b:f64[] x:f64[]. let n:i32[] = add i 1:i32[]; s:f64[] = sin a;
             p:f64[] = mul b x in (n, s, p, s) } in
         { lambda ; i:i32[] a:f64[] b:f64[] x:f64[3]. let
             n:i32[] s:f64[] p:f64[] y:f64[3] =
               scan[jaxpr=body length=3 num_carry=3 num_consts=0 reverse=False unroll=1] i a b x
           in (n, s, p, y) }",
    );
    let (derivative, flags) = jvp(&program, &[false, false, false, true]).unwrap();
    assert_eq!(flags, [false, false, true, false]);
    assert_eq!(counts(scans(&derivative)[0]), [0, 4, 2, 1], "{derivative}");
    // Turned around: the cotangent of b alone is carried, that of x stacked.
    let reverse = vjp_program(&program, &[false, false, false, true], &[false, false, true, false]).unwrap();
    let backward = scans(&reverse)[1];
    assert!(backward.reverse);
    assert_eq!([counts(backward)[1], counts(backward)[3]], [1, 1], "{reverse}");
}

#[test]
fn cotangents_that_are_zero_are_neither_carried_nor_added() {
    let program = parse(
        "let body = { lambda ; w:f64[] v:f64[] a:f64[] b:f64[] x:f64[] z:f64[]. let p:f64[] = mul a w;
             q:f64[] = add p x; r:f64[] = mul b v; s:f64[] = add r z in (q, s, p, r) } in
         { lambda ; w:f64[] v:f64[] a:f64[] b:f64[] x:f64[3] z:f64[3]. let
             q:f64[] s:f64[] y:f64[3] u:f64[3] =
               scan[jaxpr=body length=3 num_carry=2 num_consts=2 reverse=False unroll=1] w v a b x z
           in (q, s, y, u) }",
    );
    let linear = linearize(&program, &[true; 6]).unwrap();
    let both = ferrax_transform::Vjp { linearized: linear };
    // Of y alone: w, a and x have cotangents; w's sum and a's are carried, x's stacked.
    let backward = both.backward(&[false, false, true, false]).unwrap();
    assert_eq!(backward.nonzero_in, [true, false, true, false, true, false]);
    let op = scans(&backward.program)[0];
    assert_eq!([counts(op)[1], counts(op)[3]], [2, 1], "{}", backward.program);
}

#[test]
fn batched_is_what_depends_on_batches() {
    let program = parse(
        "let body = { lambda ; w:f64[] i:i32[] a:f64[] b:f64[] x:f64[2]. let n:i32[] = add i 1:i32[];
             s:f64[] = sin a; t:f64[2] = mul x w; u:f64[] = reduce_sum[axes=(0,)] t; p:f64[] = add b u in
             (n, s, p, s, t) } in
         { lambda ; w:f64[] i:i32[] a:f64[] b:f64[] x:f64[3,2]. let
             n:i32[] s:f64[] p:f64[] y:f64[3] z:f64[3,2] =
               scan[jaxpr=body length=3 num_carry=3 num_consts=1 reverse=False unroll=1] w i a b x
           in (n, s, p, y, z) }",
    );
    let size = Dim::Const(5);
    let (_, dims) = batch(&program, &size, &[None, None, None, None, Some(2)], None, OutDims::AsIs).unwrap();
    assert_eq!(dims, [None, None, Some(0), None, Some(1)]);
    let (_, dims) = batch(&program, &size, &[None, None, Some(0), None, None], None, OutDims::AsIs).unwrap();
    assert_eq!(dims, [None, Some(0), None, Some(1), None]);
}

#[test]
fn known_parts_are_a_scan_of_their_own() {
    let program = parse(
        "let body = { lambda ; w:f64[] i:i32[] b:f64[] x:f64[]. let n:i32[] = add i 1:i32[];
             f:f64[] = convert_element_type[new_dtype=float64 weak_type=False] i; k:f64[] = sin w;
             g:f64[] = exp f; h:f64[] = mul g k; p:f64[] = mul b h; q:f64[] = add p x in (n, q, h) } in
         { lambda ; w:f64[] i:i32[] b:f64[] x:f64[3]. let
             n:i32[] q:f64[] y:f64[3] =
               scan[jaxpr=body length=3 num_carry=2 num_consts=1 reverse=False unroll=1] w i b x
           in (n, q, y) }",
    );
    let parts = partial_eval(&program, &[false, false, true, true]).unwrap();
    assert_eq!(parts.unknown_out, [false, true, false]);
    // The residual h is an output already.
    assert_eq!(counts(scans(&parts.known)[0]), [1, 1, 0, 1], "{}", parts.known);
    assert_eq!(counts(scans(&parts.unknown)[0]), [0, 1, 2, 0], "{}", parts.unknown);
    assert_eq!(parts.residuals, 1);
}

#[test]
fn what_nobody_needs_goes() {
    let program = parse(
        "let body = { lambda ; w:f64[] v:f64[] i:i32[] a:f64[] b:f64[] x:f64[] z:f64[]. let n:i32[] = add i 1:i32[];
             p:f64[] = mul a w; q:f64[] = add p x; r:f64[] = mul b v; s:f64[] = add r z in (n, q, s, p, r) } in
         { lambda ; w:f64[] v:f64[] i:i32[] a:f64[] b:f64[] x:f64[3] z:f64[3]. let
             n:i32[] q:f64[] s:f64[] y:f64[3] u:f64[3] =
               scan[jaxpr=body length=3 num_carry=3 num_consts=2 reverse=False unroll=1] w v i a b x z
           in (n, q, s, y, u) }",
    );
    let (pruned, kept) = dce_with(&program, &[false, false, false, true, false]).unwrap();
    assert_eq!(counts(scans(&pruned)[0]), [1, 1, 1, 1], "{pruned}");
    assert_eq!(kept, [true, false, false, true, false, true, false]);
    let (pruned, kept) = dce_with(&program, &[true, false, false, false, false]).unwrap();
    assert_eq!(counts(scans(&pruned)[0]), [0, 1, 0, 0], "{pruned}");
    assert_eq!(kept, [false, false, true, false, false, false, false]);
}

#[test]
fn residuals_that_are_cheap_are_computed_again() {
    let program = parse(
        "let body = { lambda ; c:f64[2] x:f64[2]. let p:f64[2] = mul c x; q:f64[2] = logistic p; t:f64[2] = tanh q;
             s:f64[2] = exp t; n:f64[2] = add t s in (n, q) } in
         { lambda ; c:f64[2] x:f64[3,2]. let
             n:f64[2] y:f64[3,2] = scan[jaxpr=body length=3 num_carry=1 num_consts=0 reverse=False unroll=1] c x
           in (n, y) }",
    );
    let parts = linearize(&program, &[true, true]).unwrap();
    // The carry, tanh and exp are stacked; the derivatives of logistic and tanh are made of q and t.
    assert_eq!(counts(scans(&parts.primal)[0]), [0, 1, 1, 4], "{}", parts.primal);
    let gradient = vjp_program(&program, &[true; 2], &[true; 2]).unwrap();
    let inputs = Random::new(3).tensors(gradient.input_types());
    let optimised = optimise(&gradient, Default::default()).unwrap();
    assert_same(&run(&optimised, &inputs), &run(&gradient, &inputs), 1e-14, "again", &optimised);
}

#[test]
fn hoisting() {
    let program = parse(
        "let body = { lambda ; w:f64[3,3] v:f64[3] c:f64[3]. let z:f64[3,3] = broadcast_in_dim[shape=(3, 3) broadcast_dimensions=(1,)] v;
             o:f64[3,3] = mul w z;
             r:f64[3] = dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None preferred_element_type=float64] o v;
             s:f64[3] = mul c r; b:f64[3,3] = broadcast_in_dim[shape=(3, 3) broadcast_dimensions=(1,)] s;
             t:f64[3,3] = mul b z; u:f64[3] = reduce_sum[axes=(0,)] t in (u,) } in
         { lambda ; w:f64[3,3] v:f64[3] c:f64[3]. let
             n:f64[3] = scan[jaxpr=body length=4 num_carry=1 num_consts=2 reverse=False unroll=1] w v c
           in (n,) }",
    );
    let hoisted = hoist(&program).unwrap();
    verify(&hoisted).unwrap();
    assert_eq!(ops(&hoisted), ["broadcast_in_dim", "mul", "dot_general", "scan"], "{hoisted}");
    // A broadcast is cheaper to do again than to read.
    let inner = &scans(&hoisted)[0].jaxpr;
    assert_eq!(ops(inner), ["broadcast_in_dim", "mul", "broadcast_in_dim", "mul", "reduce_sum"], "{hoisted}");
    assert_eq!(hoist(&hoisted).unwrap(), hoisted);
    let inputs = Random::new(1).tensors(program.input_types());
    assert_eq!(run(&hoisted, &inputs), run(&program, &inputs));
    let optimised = optimise(&program, Default::default()).unwrap();
    assert_eq!(counts(scans(&optimised)[0]), [2, 1, 0, 0], "{optimised}");
}

#[test]
fn hoisting_out_of_while() {
    let program = parse(
        "let cond = { lambda ; m:f64[] i:i32[] c:f64[]. let e:f64[] = exp m; l:bool[] = lt c e in (l,) } in
         let body = { lambda ; w:f64[] i:i32[] c:f64[]. let s:f64[] = square w; d:f64[] = add c s;
             n:i32[] = add i 1:i32[] in (n, d) } in
         { lambda ; m:f64[] w:f64[] c:f64[]. let
             n:i32[] d:f64[] = while[body_jaxpr=body body_nconsts=1 cond_jaxpr=cond cond_nconsts=1] m w 0:i32[] c
           in (n, d) }",
    );
    let hoisted = hoist(&program).unwrap();
    verify(&hoisted).unwrap();
    assert_eq!(ops(&hoisted), ["exp", "square", "while"], "{hoisted}");
    let inputs: Vec<_> = [1.0, 0.7, 0.1]
        .iter()
        .map(|&x| ferrax_ir::Tensor::from_elements([].as_slice(), &[x]).unwrap())
        .collect();
    assert_same(&run(&hoisted, &inputs), &run(&program, &inputs), 0.0, "while", &hoisted);
    let optimised = optimise(&program, Default::default()).unwrap();
    assert_same(&run(&optimised, &inputs), &run(&program, &inputs), 0.0, "while", &optimised);
}

#[test]
fn what_is_hoisted_leaves_all_loops() {
    let program = parse(
        "let inner = { lambda ; w:f64[] c:f64[]. let s:f64[] = sin w; n:f64[] = mul c s in (n,) } in
         let outer = { lambda ; w:f64[] c:f64[]. let
             n:f64[] = scan[jaxpr=inner length=2 num_carry=1 num_consts=1 reverse=False unroll=1] w c in (n,) } in
         { lambda ; w:f64[] c:f64[]. let
             n:f64[] = scan[jaxpr=outer length=3 num_carry=1 num_consts=1 reverse=False unroll=1] w c in (n,) }",
    );
    let optimised = optimise(&program, Default::default()).unwrap();
    assert_eq!(ops(&optimised), ["sin", "scan"], "{optimised}");
}

#[test]
fn carries_that_stay_are_constants() {
    let program = parse(
        "let body = { lambda ; k:f64[] c:f64[] l:f64[] x:f64[]. let s:f64[] = mul k c; n:f64[] = add s l in (k, n, l, x) } in
         { lambda ; k:f64[] c:f64[] l:f64[] x:f64[3]. let
             p:f64[] n:f64[] q:f64[] y:f64[3] =
               scan[jaxpr=body length=3 num_carry=3 num_consts=0 reverse=False unroll=1] k c l x
           in (p, n, q, y) }",
    );
    let simple = ferrax_transform::simplify(&program).unwrap();
    assert_eq!(counts(scans(&simple)[0]), [2, 1, 1, 0], "{simple}");
    assert_eq!(simple.outputs[0], Atom::Var(simple.inputs[0]));
    // What goes in and out at each step needs no loop.
    assert_eq!(simple.outputs[3], Atom::Var(simple.inputs[3]));
    let (clean, _) = dce_with(&simple, &[true; 4]).unwrap();
    assert_eq!(counts(scans(&clean)[0]), [2, 1, 0, 0], "{clean}");
    let inputs = Random::new(1).tensors(program.input_types());
    assert_eq!(run(&simple, &inputs), run(&program, &inputs));
}

#[test]
fn the_length_may_be_symbolic() {
    let program = parse(
        "let body = { lambda ; w:f64[2] c:f64[2] x:f64[2]. let p:f64[2] = mul c w; s:f64[2] = sin p;
             n:f64[2] = add s x in (n, p) } in
         { lambda ; w:f64[2] c:f64[2] x:f64[n,2]. let
             n:f64[2] y:f64[n,2] = scan[jaxpr=body length=n num_carry=1 num_consts=1 reverse=False unroll=1] w c x
           in (n, y) }",
    );
    let reverse = vjp_program(&program, &[true; 3], &[true; 2]).unwrap();
    let (batched, _) = batch(&reverse, &Dim::variable("m"), &[Some(0); 5], None, OutDims::Front).unwrap();
    let optimised = optimise(&batched, Default::default()).unwrap();
    assert_eq!(scans(&optimised).len(), 2, "{optimised}");
    assert!(scans(&optimised).iter().all(|op| op.length == Dim::variable("n")));
}

/// Scans in each other, each with a few carries that reach others.
fn nested(depth: usize) -> Program {
    let mut b = Builder::new(format!("level{depth}"));
    let ty = ArrayType::scalar(DType::F64);
    let w = b.input(ty.clone());
    let carry: Vec<Atom> = (0..3).map(|_| b.input(ty.clone())).collect();
    let s = b.unary(Unary::Sin, carry[0]).unwrap();
    let p = b.mul(s, w).unwrap();
    let q = b.add(carry[1], p).unwrap();
    let next = [q, carry[2], carry[0]];
    if depth == 0 {
        return b.finish(next);
    }
    let scan = Scan {
        jaxpr: Arc::new(nested(depth - 1)),
        length: Dim::Const(2),
        num_carry: 3,
        num_consts: 1,
        reverse: false,
        unroll: 1,
    };
    let outputs = b.emit(scan, &[w, next[0], next[1], next[2]]).unwrap();
    b.finish(outputs.into_iter().map(Atom::Var))
}

/// The number of equations of a program and all that it calls, each counted once.
fn distinct(program: &Program, seen: &mut HashSet<usize>) -> usize {
    let mut count = program.equations.len();
    for equation in &program.equations {
        for callee in equation.op.programs() {
            if seen.insert(Arc::as_ptr(callee).addr()) {
                count += distinct(callee, seen);
            }
        }
    }
    count
}

#[test]
fn nesting_costs_in_proportion() {
    let size = |depth: usize| {
        let program = nested(depth);
        let reverse = vjp_program(&program, &[true, true, false, false], &[true, false, false]).unwrap();
        let second = vjp_program(&reverse, &[true; 5], &[true; 5]).unwrap();
        let dims = vec![Some(0); 5];
        let (batched, _) = batch(&reverse, &Dim::Const(2), &dims, None, OutDims::Front).unwrap();
        let optimised = optimise(&second, Default::default()).unwrap();
        [&reverse, &second, &batched, &optimised].map(|program| distinct(program, &mut HashSet::new()))
    };
    let (shallow, deep) = (size(3), size(6));
    for (shallow, deep) in shallow.iter().zip(deep) {
        assert!(deep <= 4 * shallow, "{shallow} equations at depth 3, {deep} at depth 6");
    }
}
