//! Branches and loops on a GPU: what the interpreter gives.

use crate::common::{arguments, compare};
use crate::gpu::{device, run};
use ferrax_ir::{Program, Tensor, interpret};

fn check(text: &str) -> Vec<Tensor> {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let inputs = arguments(&program, 7);
    let wanted = interpret::run(&program, &inputs).unwrap();
    let got = run(&device(), &program, &inputs).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for (number, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        compare(got, wanted, 8, &format!("output {number} of {text}"));
    }
    wanted
}

fn scan(
    carry: &str,
    body: &str,
    (length, constants, carries): (usize, usize, usize),
    reverse: &str,
) -> String {
    format!(
        "scan[jaxpr={{ lambda ; {body} }} length={length} num_carry={carries} num_consts={constants} \
         reverse={reverse} unroll=1] {carry}"
    )
}

/// Rows of one and three bytes do not begin at words; rows of an array may be carries, results the array's own rows.
#[test]
fn scans_over_rows_of_any_size() {
    for reverse in ["False", "True"] {
        for (dtype, row) in [("i8", "3"), ("bool", ""), ("i16", "5"), ("f32", "4"), ("f64", "2"), ("i8", "0")]
        {
            let inner = format!("{dtype}[{row}]");
            let outer = if row.is_empty() { format!("{dtype}[7]") } else { format!("{dtype}[7,{row}]") };
            let body = format!("c:{inner} x:{inner}. let y:{inner} = max c x in (x, y, c, x)");
            let whole = scan("c xs", &body, (7, 0, 1), reverse);
            check(&format!(
                "{{ lambda ; c:{inner} xs:{outer}. let d:{inner} ys:{outer} cs:{outer} zs:{outer} = {whole} in \
                 (d, ys, cs, zs) }}"
            ));
        }
    }
}

/// What a loop gives may be what it was given, and is written over by what follows.
#[test]
fn results_of_loops_are_their_own() {
    let body = "k:f32[3] a:f32[3] b:f32[3]. let in (b, a)";
    let whole = scan("k a b", body, (3, 1, 2), "False");
    check(&format!(
        "{{ lambda ; k:f32[3] a:f32[3] b:f32[3]. let p:f32[3] q:f32[3] = {whole}
          r:f32[3] = add p q
          s:f32[3] = mul p r in (p, r, s, a) }}"
    ));
    let none = scan("a xs", "a:f32[3] x:f32[]. let in (a, x)", (0, 0, 1), "False");
    check(&format!(
        "{{ lambda ; a:f32[3] xs:f32[0]. let p:f32[3] ys:f32[0] = {none}
          q:f32[3] = add p p in (q, p, ys) }}"
    ));
}

#[test]
fn whiles_and_branches() {
    let counted = check(
        "{ lambda ; x:f32[5] n:i32[]. let m:i32[] = mul n 0:i32[]
            i:i32[] y:f32[5] = while[
              body_jaxpr={ lambda ; x:f32[5] i:i32[] y:f32[5]. let j:i32[] = add i 1:i32[]
                z:f32[5] = add x y in (j, z) }
              body_nconsts=1
              cond_jaxpr={ lambda ; i:i32[] y:f32[5]. let c:bool[] = lt i 9:i32[] in (c,) }
              cond_nconsts=0
            ] x m x in (i, y) }",
    );
    assert_eq!(counted[0].elements::<i32>().unwrap(), [9]);
    for index in [-4, 0, 1, 2, 9] {
        check(&format!(
            "{{ lambda ; x:f32[5] y:f32[5]. let
                z:f32[5] = cond[branches=(
                  {{ lambda ; a:f32[5] b:f32[5]. let in (a,) }},
                  {{ lambda ; a:f32[5] b:f32[5]. let c:f32[5] = sin b in (c,) }},
                  {{ lambda ; a:f32[5] b:f32[5]. let c:f32[5] = mul a b in (c,) }}
                )] {index}:i32[] x y
                w:f32[5] = add z x in (z, w) }}"
        ));
    }
}

#[test]
fn a_bound_of_steps_is_an_error() {
    let text = "{ lambda ; i:i32[]. let
        x:i32[] = while[
          body_jaxpr={ lambda ; a:i32[]. let in (a,) }
          body_nconsts=0
          cond_jaxpr={ lambda ; a:i32[]. let c:bool[] = eq a a in (c,) }
          cond_nconsts=0
          max_steps=20
        ] i in (x,) }";
    let program = Program::parse(text).unwrap();
    let error = run(&device(), &program, &arguments(&program, 7)).unwrap_err();
    assert!(error.to_string().contains("max_steps=20"), "{error}");
}
