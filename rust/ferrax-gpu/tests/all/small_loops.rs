//! Small loops as one shader: what the interpreter gives, and nothing else runs.

use std::sync::Arc;

use crate::common::{arguments, compare};
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::{DType, Program, Tensor, interpret};

/// Runs a program there; gives its results and the names of the kernels that ran.
fn traced(device: &Arc<Attached<Gpu>>, program: &Program, inputs: &[Tensor]) -> (Vec<Tensor>, Vec<String>) {
    device.backend().begin_profile().unwrap();
    let got = run(device, program, inputs).unwrap_or_else(|error| panic!("{error}\n{program}"));
    let events = device.backend().end_profile().unwrap();
    (got, events.into_iter().map(|event| event.name).collect())
}

/// The results, and how many kernels ran that are loops, and others.
fn check(text: &str) -> (Vec<Tensor>, usize, usize) {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let inputs = arguments(&program, 7);
    let wanted = interpret::run(&program, &inputs).unwrap();
    let (got, names) = traced(&device(), &program, &inputs);
    assert_eq!(got.len(), wanted.len());
    for (number, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        compare(got, wanted, 8, &format!("output {number} of {text}"));
    }
    let is_loop = |name: &&String| name.starts_with("scan") || name.starts_with("while");
    let loops = names.iter().filter(is_loop).count();
    (wanted, loops, names.len() - loops)
}

fn scan(
    operands: &str,
    body: &str,
    (length, constants, carries): (usize, usize, usize),
    reverse: bool,
) -> String {
    let reverse = if reverse { "True" } else { "False" };
    format!(
        "scan[jaxpr={{ lambda ; {body} }} length={length} num_carry={carries} num_consts={constants} \
         reverse={reverse} unroll=1] {operands}"
    )
}

/// Constants, carries and elements, of which each may be what another result is.
#[test]
fn scans_with_everything() {
    for reverse in [false, true] {
        for (dtype, row) in
            [("f32", "4"), ("f32", ""), ("f64", "3"), ("i8", "3"), ("i16", "5"), ("f16", "7"), ("i64", "")]
        {
            let inner = format!("{dtype}[{row}]");
            let outer = if row.is_empty() { format!("{dtype}[9]") } else { format!("{dtype}[9,{row}]") };
            let body = format!(
                "k:{inner} a:{inner} b:{inner} x:{inner}. let y:{inner} = mul a x
                 z:{inner} = sub y k
                 w:{inner} = max b z in (b, w, z, a, x, k, w)"
            );
            let whole = scan("k a b xs", &body, (9, 1, 2), reverse);
            let (_, loops, others) = check(&format!(
                "{{ lambda ; k:{inner} a:{inner} b:{inner} xs:{outer}. let
                   c:{inner} d:{inner} p:{outer} q:{outer} r:{outer} s:{outer} t:{outer} = {whole} in
                   (c, d, p, q, r, s, t) }}"
            ));
            // What needs no carry is computed for all steps together.
            assert!(loops == 1 && others <= 1, "{dtype}[{row}]: {loops} {others}");
        }
    }
}

/// Two carries that take each other's place, three that go around, and one that stays.
#[test]
fn carries_that_change_places() {
    let body = "k:f32[3] a:f32[3] b:f32[3]. let in (b, a)";
    let whole = scan("k a b", body, (3, 1, 2), false);
    let (_, loops, _) = check(&format!(
        "{{ lambda ; k:f32[3] a:f32[3] b:f32[3]. let p:f32[3] q:f32[3] = {whole} in (p, q, a) }}"
    ));
    assert_eq!(loops, 1);
    let body = "a:i32[] b:i32[] c:i32[] d:i32[] x:i32[]. let e:i32[] = add a x in (c, e, b, d, a)";
    let whole = scan("a b c d xs", body, (5, 0, 4), false);
    let (_, loops, _) = check(&format!(
        "{{ lambda ; a:i32[] b:i32[] c:i32[] d:i32[] xs:i32[5]. let p:i32[] q:i32[] r:i32[] s:i32[] t:i32[5] = {whole} in
           (p, q, r, s, t) }}"
    ));
    assert_eq!(loops, 1);
}

/// Carries for which a workgroup has no memory stay in arrays, of parts of words, too.
#[test]
fn carries_in_arrays() {
    for dtype in ["f32", "i8", "f64"] {
        let of = format!("{dtype}[3001]");
        let body = format!(
            "a:{of} b:{of} c:{of} d:{of} x:{dtype}[]. let y:{of} = broadcast_in_dim[shape=(3001,) broadcast_dimensions=()] x
               z:{of} = mul a y
               s:{dtype}[] = reduce_max[axes=(0,)] z
               w:{of} = sub z b in (b, c, w, a, s, w)"
        );
        let whole = scan("a b c d xs", &body, (7, 0, 4), false);
        let (_, loops, others) = check(&format!(
            "{{ lambda ; a:{of} b:{of} c:{of} d:{of} xs:{dtype}[7]. let
               p:{of} q:{of} r:{of} s:{of} t:{dtype}[7] u:{dtype}[7,3001] = {whole} in (p, q, r, s, t, u) }}"
        ));
        assert_eq!((loops, others), (1, 0), "{dtype}");
    }
}

/// Reductions, and values that are used again at the next step: bit for bit what the body gives, step after step.
#[test]
fn steps_of_several_kernels() {
    let device = device();
    for width in [5, 70, 600] {
        let body = format!(
            "m:f32[{width}] h:f32[{width}] x:f32[{width}]. let s:f32[] = reduce_sum[axes=(0,)] h
               t:f32[] = mul s 0.01:f32[]
               u:f32[{width}] = broadcast_in_dim[shape=({width},) broadcast_dimensions=()] t
               v:f32[{width}] = mul m u
               w:f32[{width}] = add v x
               y:f32[{width}] = tanh w
               z:f32[] = reduce_max[axes=(0,)] y in (y, z)"
        );
        let whole = scan("m h xs", &body, (20, 1, 1), false);
        let program = Program::parse(&format!(
            "{{ lambda ; m:f32[{width}] h:f32[{width}] xs:f32[20,{width}]. let g:f32[{width}] zs:f32[20] = {whole} in (g, zs) }}"
        ))
        .unwrap();
        let inputs = arguments(&program, 7);
        let (got, names) = traced(&device, &program, &inputs);
        assert!(names.len() == 1 && names[0].starts_with("scan"), "{names:?}");
        let step = Program::parse(&format!("{{ lambda ; {body} }}")).unwrap();
        let mut carry = inputs[1].clone();
        let mut most = Vec::new();
        for row in inputs[2].bytes().chunks_exact(4 * width) {
            let row = Tensor::from_bytes(DType::F32, [width].as_slice(), row).unwrap();
            let after = run(&device, &step, &[inputs[0].clone(), carry, row]).unwrap();
            most.extend_from_slice(after[1].bytes());
            carry = after[0].clone();
        }
        assert_eq!(got, [carry, Tensor::from_bytes(DType::F32, [20].as_slice(), &most).unwrap()]);
    }
}

/// More steps than a dispatch has: the carry is left in memory, and rows go on where they were.
#[test]
fn long_loops_are_several_dispatches() {
    let steps = 140_000;
    for reverse in [false, true] {
        let body = "a:i32[] b:i32[] x:i32[]. let c:i32[] = mul a 3:i32[]
            d:i32[] = add c x
            e:i32[] = xor b d in (d, e, e)";
        let whole = scan("a b xs", body, (steps, 0, 2), reverse);
        let (_, loops, others) = check(&format!(
            "{{ lambda ; a:i32[] b:i32[] xs:i32[{steps}]. let p:i32[] q:i32[] r:i32[{steps}] = {whole} in (p, q, r) }}"
        ));
        assert!(loops > 1 && others == 0, "{loops} {others}");
    }
    let (got, loops, _) = check(&counted(steps, None));
    assert_eq!(got[0].elements::<i32>().unwrap(), [steps as i32]);
    assert!(loops > 1, "{loops}");
}

/// Counts to so many.
fn counted(steps: usize, bound: Option<usize>) -> String {
    let bound = bound.map_or(String::new(), |bound| format!("max_steps={bound}"));
    format!(
        "{{ lambda ; x:f32[5] n:i32[]. let m:i32[] = mul n 0:i32[]
            i:i32[] y:f32[5] = while[
              body_jaxpr={{ lambda ; x:f32[5] i:i32[] y:f32[5]. let j:i32[] = add i 1:i32[]
                z:f32[5] = max x y in (j, z) }}
              body_nconsts=1
              cond_jaxpr={{ lambda ; l:i32[] i:i32[] y:f32[5]. let c:bool[] = lt i l in (c,) }}
              cond_nconsts=1 {bound}
            ] {steps}:i32[] x m x in (i, y) }}"
    )
}

#[test]
fn whiles_within_their_bound_and_beyond() {
    for (steps, bound) in
        [(0, None), (9, None), (9, Some(9)), (9, Some(200_000)), (0, Some(0)), (140_000, Some(140_000))]
    {
        let (got, loops, _) = check(&counted(steps, bound));
        assert_eq!(got[0].elements::<i32>().unwrap(), [steps as i32]);
        assert!(loops > 0);
    }
    for (steps, bound) in [(9, 8), (1, 0), (140_001, 140_000)] {
        let program = Program::parse(&counted(steps, Some(bound))).unwrap();
        let error = run(&device(), &program, &arguments(&program, 7)).unwrap_err();
        assert!(error.to_string().contains(&format!("max_steps={bound}")), "{error}");
    }
}

/// What the condition gives is a carry, which the body makes; the body changes what the condition reads.
#[test]
fn conditions_that_are_carries() {
    let (got, loops, _) = check(
        "{ lambda ; n:i32[] . let m:i32[] = mul n 0:i32[]
            t:bool[] = eq m m
            g:bool[] i:i32[] = while[
              body_jaxpr={ lambda ; g:bool[] i:i32[]. let j:i32[] = add i 1:i32[]
                h:bool[] = lt j 7:i32[] in (h, j) }
              body_nconsts=0
              cond_jaxpr={ lambda ; g:bool[] i:i32[]. let in (g,) }
              cond_nconsts=0
            ] t m in (g, i) }",
    );
    assert_eq!(got[1].elements::<i32>().unwrap(), [7]);
    assert_eq!(loops, 1);
}

/// Carries of all widths, which take each other's place in a while.
#[test]
fn whiles_with_carries_of_all_widths() {
    for (dtype, row) in [("i8", "3"), ("f64", "5"), ("bf16", "7"), ("i64", ""), ("u16", "400")] {
        let of = format!("{dtype}[{row}]");
        let (_, loops, _) = check(&format!(
            "{{ lambda ; k:{of} a:{of} b:{of} n:i32[]. let m:i32[] = mul n 0:i32[]
                i:i32[] c:{of} d:{of} = while[
                  body_jaxpr={{ lambda ; k:{of} i:i32[] c:{of} d:{of}. let j:i32[] = add i 1:i32[]
                    e:{of} = max c k in (j, d, e) }}
                  body_nconsts=1
                  cond_jaxpr={{ lambda ; i:i32[] c:{of} d:{of}. let g:bool[] = lt i 7:i32[] in (g,) }}
                  cond_nconsts=0
                ] k m a b in (i, c, d) }}"
        ));
        assert_eq!(loops, 1);
    }
}

/// The inner loop is a shader in each step of the outer one.
#[test]
fn loops_in_loops() {
    let inner = scan("a xs", "c:f32[2] x:f32[]. let y:f32[2] = mul c x in (y, y)", (4, 0, 1), false);
    let outer = scan(
        "a rows",
        &format!("a:f32[2] xs:f32[4]. let b:f32[2] ys:f32[4,2] = {inner}\n d:f32[2] = sub b a in (d, ys)"),
        (3, 0, 1),
        true,
    );
    let (_, loops, _) = check(&format!(
        "{{ lambda ; a:f32[2] rows:f32[3,4]. let b:f32[2] ys:f32[3,4,2] = {outer} in (b, ys) }}"
    ));
    assert_eq!(loops, 3);
}

/// Loops with larger kernels are recorded, step by step.
#[test]
fn large_loops_stay_apart() {
    let whole = scan("a xs", "a:f32[5000] x:f32[]. let b:f32[5000] = mul a x in (b, x)", (2, 0, 1), false);
    let (_, loops, others) = check(&format!(
        "{{ lambda ; a:f32[5000] xs:f32[2]. let b:f32[5000] ys:f32[2] = {whole} in (b, ys) }}"
    ));
    assert!(loops == 0 && others > 2);
}
