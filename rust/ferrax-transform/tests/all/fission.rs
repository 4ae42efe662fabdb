//! Products that leave scans, and those that must not.

use crate::common::loops::*;
use crate::common::*;
use ferrax_ir::verify::verify;
use ferrax_ir::{Dim, Op, Program};
use ferrax_transform::{OutDims, batch, fission, optimise, vjp_program};

fn products(program: &Program) -> usize {
    program.equations.iter().filter(|equation| matches!(equation.op, Op::DotGeneral(_))).count()
}

fn same(program: &Program, other: &Program) {
    verify(other).unwrap();
    let inputs = Random::new(5).tensors(program.input_types());
    assert_same(&run(other, &inputs), &run(program, &inputs), 1e-12, "fission", other);
}

const DOT: &str = "precision=None preferred_element_type=float64";

/// A recurrent network: `h = tanh(h w + x v + b)`.
fn network(length: usize, reverse: bool) -> Program {
    parse(&format!(
        "let body = {{ lambda ; w:f64[3,3] v:f64[2,3] b:f64[3] h:f64[3] x:f64[2]. let
             p:f64[3] = dot_general[dimension_numbers=(([0], [0]), ([], [])) {DOT}] h w;
             q:f64[3] = dot_general[dimension_numbers=(([0], [0]), ([], [])) {DOT}] x v;
             r:f64[3] = add p q; s:f64[3] = add r b; n:f64[3] = tanh s in (n, n) }} in
         {{ lambda ; w:f64[3,3] v:f64[2,3] b:f64[3] h:f64[3] x:f64[{length},2]. let
             n:f64[3] y:f64[{length},3] =
               scan[jaxpr=body length={length} num_carry=1 num_consts=3 reverse={reverse} unroll=1] w v b h x
           in (n, y) }}",
        reverse = if reverse { "True" } else { "False" },
    ))
}

#[test]
fn products_of_elements_are_made_before() {
    for reverse in [false, true] {
        let program = network(4, reverse);
        let parted = fission(&program).unwrap();
        assert_eq!(products(&parted), 1, "{parted}");
        assert_eq!(products(&scans(&parted)[0].jaxpr), 1, "{parted}");
        same(&program, &parted);
        assert_eq!(fission(&parted).unwrap(), parted);
    }
}

#[test]
fn sums_of_products_are_made_after() {
    for reverse in [false, true] {
        let program = network(4, reverse);
        let gradient = vjp_program(&program, &[true; 5], &[true; 2]).unwrap();
        let parted = optimise(&gradient, Default::default()).unwrap();
        let found = scans(&parted);
        // What stays in the loops is what goes from step to step.
        assert_eq!(found.len(), 2, "{parted}");
        assert!(found.iter().all(|op| products(&op.jaxpr) == 1 && op.num_carry == 1), "{parted}");
        // x v before; gradients of w, v and x after.
        assert_eq!(products(&parted), 4, "{parted}");
        same(&gradient, &parted);
    }
}

#[test]
fn layers_behind_the_loop_are_made_after() {
    let text = |reads: &str| {
        format!(
            "let body = {{ lambda ; w:f64[3,3] v:f64[3,2] b:f64[2] h:f64[3] x:f64[3]. let
                 p:f64[3] = dot_general[dimension_numbers=(([0], [0]), ([], [])) {DOT}] h w;
                 a:f64[3] = add p x; n:f64[3] = tanh a; k:f64[2] = sin b;
                 q:f64[2] = dot_general[dimension_numbers=(([0], [0]), ([], [])) {DOT}] n v;
                 r:f64[2] = add q k; s:f64[2] = tanh r; m:f64[] = reduce_sum[axes=(0,)] s;
                 o:f64[3] = mul {reads} x; t:f64[3] = sub a o in (t, s, n, m) }} in
             {{ lambda ; w:f64[3,3] v:f64[3,2] b:f64[2] h:f64[3] x:f64[4,3]. let
                 n:f64[3] y:f64[4,2] z:f64[4,3] m:f64[4] =
                   scan[jaxpr=body length=4 num_carry=1 num_consts=3 reverse=True unroll=1] w v b h x
               in (n, y, z, m) }}"
        )
    };
    let program = parse(&text("n"));
    let parted = fission(&program).unwrap();
    assert_eq!(products(&parted), 1, "{parted}");
    assert_eq!(counts(scans(&parted)[0]), [3, 1, 1, 1], "{parted}");
    same(&program, &parted);
    // What is left of them in the loop, and dead, does not move again.
    assert_eq!(fission(&parted).unwrap(), parted);
    let clean = optimise(&program, Default::default()).unwrap();
    assert_eq!(counts(scans(&clean)[0]), [1, 1, 1, 1], "{clean}");
    same(&program, &clean);
    // A layer that the next step looks at stays.
    let program = parse(&text("m"));
    assert_eq!(fission(&program).unwrap(), program);
}

#[test]
fn batches_and_loops_in_loops() {
    let program = network(3, false);
    let gradient = vjp_program(&program, &[true; 5], &[true; 2]).unwrap();
    for dims in [[None, None, None, Some(0), Some(1), Some(0), Some(0)], [Some(0); 7]] {
        let (batched, _) = batch(&gradient, &Dim::Const(2), &dims, None, OutDims::Front).unwrap();
        same(&batched, &optimise(&batched, Default::default()).unwrap());
    }
    let nested = parse(&format!(
        "let inner = {{ lambda ; v:f64[2,2] s:f64[2,2] x:f64[2] y:f64[2]. let
             p:f64[2] = dot_general[dimension_numbers=(([0], [1]), ([], [])) {DOT}] x v;
             o:f64[2,2] = dot_general[dimension_numbers=(([], []), ([], [])) {DOT}] y p;
             t:f64[2,2] = transpose[permutation=(1, 0)] o; n:f64[2,2] = add t s in (n,) }} in
         let outer = {{ lambda ; v:f64[2,2] s:f64[2,2] x:f64[3,2] y:f64[3,2]. let
             n:f64[2,2] = scan[jaxpr=inner length=3 num_carry=1 num_consts=1 reverse=False unroll=1] v s x y in (n,) }} in
         {{ lambda ; v:f64[2,2] s:f64[2,2] x:f64[4,3,2] y:f64[4,3,2]. let
             n:f64[2,2] = scan[jaxpr=outer length=4 num_carry=1 num_consts=1 reverse=True unroll=1] v s x y
           in (n,) }}"
    ));
    let parted = optimise(&nested, Default::default()).unwrap();
    same(&nested, &parted);
    assert!(scans(&parted).is_empty(), "{parted}");
}

#[test]
fn sums_of_what_is_stacked_come_along() {
    let program = parse(&format!(
        "let body = {{ lambda ; w:f64[3,2] b:f64[2] k:f64[] m:f64[3] l:f64[2] x:f64[3] y:f64[2]. let
             o:f64[3,2] = dot_general[dimension_numbers=(([], []), ([], [])) {DOT}] x y; u:f64[3,2] = add w o;
             c:f64[2] = add b y; s:f64[] = reduce_sum[axes=(0,)] x; d:f64[] = add s k;
             n:f64[3] = mul m x; e:f64[2] = add l y in (u, c, d, n, e, e) }} in
         {{ lambda ; w:f64[3,2] b:f64[2] k:f64[] m:f64[3] l:f64[2] x:f64[5,3] y:f64[5,2]. let
             u:f64[3,2] c:f64[2] d:f64[] n:f64[3] e:f64[2] t:f64[5,2] =
               scan[jaxpr=body length=5 num_carry=5 num_consts=0 reverse=False unroll=1] w b k m l x y
           in (u, c, d, n, e, t) }}"
    ));
    let parted = fission(&program).unwrap();
    // A product of all elements is no sum, and partial sums are asked for.
    assert_eq!(counts(scans(&parted)[0]), [0, 2, 2, 1], "{parted}");
    same(&program, &parted);
}

#[test]
fn what_stays() {
    let body = |rows: usize, inner: &str, outputs: &str| {
        format!(
            "let body = {{ lambda ; w:f64[3,3] c:f64[3,3] x:f64[{rows},3]. let {inner} in {outputs} }} in
             {{ lambda ; w:f64[3,3] c:f64[3,3] x:f64[2,{rows},3]. let
                 n:f64[3,3] y:f64[2,{rows},3] =
                   scan[jaxpr=body length=2 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
               in (n, y) }}"
        )
    };
    let dot = |numbers: &str| format!("dot_general[dimension_numbers=({numbers}, ([], [])) {DOT}]");
    let (plain, over_rows) = (dot("([1], [0])"), dot("([0], [0])"));
    let cases = [
        // Many rows at each step.
        body(17, &format!("p:f64[17,3] = {plain} x w; n:f64[3,3] = mul c w"), "(n, p)"),
        // A product with the carry.
        body(2, &format!("p:f64[2,3] = {plain} x c; n:f64[3,3] = mul c w"), "(n, p)"),
        // Keeping the operands costs more than the sum; a sum that the step looks at; a
        // product that is used elsewhere too; a sum that is scaled.
        body(5, &format!("p:f64[5,3] = sin x; s:f64[3,3] = {over_rows} p x; n:f64[3,3] = add c s"), "(n, x)"),
        body(
            2,
            &format!("s:f64[3,3] = {over_rows} x x; n:f64[3,3] = add c s; p:f64[2,3] = {plain} x n"),
            "(n, p)",
        ),
        body(
            2,
            &format!(
                "s:f64[3,3] = {over_rows} x x; n:f64[3,3] = add c s; m:f64[3,3] = sin s; p:f64[2,3] = {plain} x m"
            ),
            "(n, p)",
        ),
        body(
            2,
            &format!("s:f64[3,3] = {over_rows} x x; d:f64[3,3] = mul c w; n:f64[3,3] = add d s"),
            "(n, x)",
        ),
    ];
    for text in cases {
        let program = parse(&text);
        assert_eq!(fission(&program).unwrap(), program);
    }
    let once = network(1, false);
    assert_eq!(fission(&once).unwrap(), once);
    let any = parse(&format!("{}", network(7, false)).replace('7', "n"));
    assert_eq!(fission(&any).unwrap(), any);
}

#[test]
fn memory_is_bounded() {
    // An embedding: what is multiplied is much larger than the element.
    let text = |rows: usize| {
        format!(
            "let body = {{ lambda ; w:f32[{rows},8] c:f32[8] x:i32[]. let
                 i:i32[{rows}] = iota[dimension=0 dtype=int32 shape=({rows},)] ; b:i32[{rows}] = broadcast_in_dim[shape=({rows},) broadcast_dimensions=()] x;
                 e:bool[{rows}] = eq i b; f:f32[{rows}] = convert_element_type[new_dtype=float32 weak_type=False] e;
                 p:f32[8] = dot_general[dimension_numbers=(([0], [0]), ([], [])) precision=None preferred_element_type=float32] f w;
                 s:f32[8] = mul c p; n:f32[8] = sin s in (n,) }} in
             {{ lambda ; w:f32[{rows},8] c:f32[8] x:i32[1000]. let
                 n:f32[8] = scan[jaxpr=body length=1000 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
               in (n,) }}"
        )
    };
    let small = parse(&text(100));
    assert_eq!(products(&fission(&small).unwrap()), 1);
    let large = parse(&text(100_000));
    assert_eq!(fission(&large).unwrap(), large);
}
