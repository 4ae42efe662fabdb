//! Branches and loops, compared with the reference interpreter.

use crate::common::{arguments, compare, fill};
use ferrax_cpu::compile;
use ferrax_ir::{DType, Program, Tensor, interpret};

fn parse(text: &str) -> Program {
    Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// How far sines may be apart.
const ULPS: u64 = 8;

/// Runs a program both ways.
fn check_with(text: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    let program = parse(text);
    let expected = interpret::run(&program, inputs).unwrap();
    let executable = compile(&program).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let before = inputs.iter().map(|input| input.bytes().to_vec()).collect::<Vec<_>>();
    for _ in 0..2 {
        let got = executable.run(inputs).unwrap();
        assert_eq!(got.len(), expected.len());
        for (number, (got, expected)) in got.iter().zip(&expected).enumerate() {
            compare(got, expected, ULPS, &format!("output {number} of {text}"));
        }
    }
    assert!(inputs.iter().zip(&before).all(|(input, before)| input.bytes() == before), "inputs changed");
    expected
}

fn check(text: &str) -> Vec<Tensor> {
    check_with(text, &arguments(&parse(text), 7))
}

fn i32(value: i32) -> Tensor {
    Tensor::from_elements(&[][..], &[value]).unwrap()
}

const COUNTER: &str = "{ lambda ; n:i32[] i:i32[]. let
    x:i32[] = while[
      body_jaxpr={ lambda ; a:i32[]. let b:i32[] = add a 1:i32[] in (b,) }
      body_nconsts=0
      cond_jaxpr={ lambda ; n:i32[] a:i32[]. let c:bool[] = lt a n in (c,) }
      cond_nconsts=1
    ] n i in (x,) }";

#[test]
fn a_while_counts_and_may_not_run_at_all() {
    for (n, i) in [(10, 0), (0, 0), (-3, 5), (1, 0), (7, 4)] {
        let got = check_with(COUNTER, &[i32(n), i32(i)]);
        assert_eq!(got[0].elements::<i32>().unwrap(), [n.max(i)]);
    }
}

fn scan(carry: &str, body: &str, length: usize, consts: usize, carries: usize, reverse: bool) -> String {
    let reverse = if reverse { "True" } else { "False" };
    format!(
        "scan[jaxpr={{ lambda ; {body} }} length={length} num_carry={carries} num_consts={consts} \
         reverse={reverse} unroll=1] {carry}"
    )
}

#[test]
fn scans_read_and_write_elements_in_place_in_both_directions() {
    for reverse in [false, true] {
        for length in [0, 1, 2, 5, 6] {
            let scan = scan(
                "k c xs",
                "k:f32[] c:f32[3] x:f32[3]. let a:f32[3] = mul c k; b:f32[3] = add a x; d:f32[3] = sin b in (b, d)",
                length,
                1,
                1,
                reverse,
            );
            check(&format!(
                "{{ lambda ; k:f32[] c:f32[3] xs:f32[{length},3]. let d:f32[3] ys:f32[{length},3] = {scan} in (d, ys) }}"
            ));
        }
    }
}

/// Every way for a carry to get from step to step, in one body: kept, swapped,
/// exchanged with another, twice the same, from a constant, an element, a
/// stacked output, a literal, the previous value of another.
#[test]
fn carries_move_in_every_way() {
    for size in ["4", "3000"] {
        for length in 0..6 {
            for reverse in [false, true] {
                let ty = format!("f32[{size}]");
                let body = format!(
                    "k:{ty} kept:{ty} swap:{ty} p:{ty} q:{ty} s:{ty} t:{ty} fromk:{ty} fromx:{ty} lag:{ty} h:{ty} n:i32[] r:i32[] x:{ty}.
                     let swap2:{ty} = add swap x
                         u:{ty} = mul q k
                         v:{ty} = add u s
                         g:{ty} = sin h
                         w:{ty} = add t fromk
                         z:{ty} = add w fromx
                         y:{ty} = add z lag
                         m:i32[] = add n 3:i32[]
                     in (kept, swap2, q, p, v, v, k, x, swap, g, m, 7:i32[], g, y, kept, swap, x, n)"
                );
                let scan = scan("k a b c d e f g h i j n r xs", &body, length, 1, 12, reverse);
                let out = |name: &str| format!("{name}:{ty}");
                let stack = |name: &str| format!("{name}:f32[{length},{size}]");
                let inputs = ["k", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].map(out).join(" ");
                let carries = ["aa", "ba", "ca", "da", "ea", "fa", "ga", "ha", "ia", "ja"].map(out).join(" ");
                let stacks = ["sa", "ta", "ua", "va", "wa"].map(stack).join(" ");
                check(&format!(
                    "{{ lambda ; {inputs} n:i32[] r:i32[] xs:f32[{length},{size}].
                       let {carries} na:i32[] ra:i32[] {stacks} xa:i32[{length}] = {scan}
                       in (aa, ba, ca, da, ea, fa, ga, ha, ia, ja, na, ra, sa, ta, ua, va, wa, xa) }}"
                ));
            }
        }
    }
}

#[test]
fn a_loop_updates_its_array_in_place() {
    // In place: else this would move 200 GB.
    let text = "{ lambda ; a:f32[500000]. let i:i32[] b:f32[500000] = while[
        body_jaxpr={ lambda ; i:i32[] a:f32[500000]. let
            v:f32[] = convert_element_type[new_dtype=float32 weak_type=False] i
            u:f32[1] = reshape[new_sizes=(1,) dimensions=None] v
            b:f32[500000] = dynamic_update_slice a u i
            j:i32[] = add i 1:i32[] in (j, b) }
        body_nconsts=0
        cond_jaxpr={ lambda ; i:i32[] a:f32[500000]. let c:bool[] = lt i 100000:i32[] in (c,) }
        cond_nconsts=0 ] 0:i32[] a in (i, b) }";
    let program = parse(text);
    let input = fill(DType::F32, &[500_000], 3);
    let got = compile(&program).unwrap().run(std::slice::from_ref(&input)).unwrap();
    let (got, input) = (got[1].elements::<f32>().unwrap(), input.elements::<f32>().unwrap());
    assert!((0..100_000).all(|index| got[index] == index as f32));
    assert_eq!(got[100_000..], input[100_000..]);
}

#[test]
fn conditions_clamp_their_index_and_pass_operands_on() {
    let text = "{ lambda ; i:i32[] a:f32[3] b:f32[3]. let x:f32[3] y:f32[3] z:f32[] = cond[branches=(
        { lambda ; a:f32[3] b:f32[3]. let c:f32[3] = add a b in (c, c, 2.0:f32[]) },
        { lambda ; a:f32[3] b:f32[3]. let in (b, a, 1.0:f32[]) },
        { lambda ; a:f32[3] b:f32[3]. let c:f32[3] = sin a; s:f32[] = reduce_sum[axes=(0,)] b in (c, b, s) }
        )] i a b in (x, y, z) }";
    let program = parse(text);
    for index in [-5, 0, 1, 2, 3, i32::MAX, i32::MIN] {
        let mut inputs = arguments(&program, 3);
        inputs[0] = i32(index);
        check_with(text, &inputs);
    }
}

#[test]
fn every_dtype_goes_through_loops() {
    let dtypes = [
        "bool",
        "i2",
        "i4",
        "i8",
        "i16",
        "i32",
        "i64",
        "u2",
        "u4",
        "u8",
        "u16",
        "u32",
        "u64",
        "f8_e4m3fn",
        "f8_e5m2",
        "f4_e2m1fn",
        "bf16",
        "f16",
        "f32",
        "f64",
        "c64",
        "c128",
        "key<fry>",
    ];
    for dtype in dtypes {
        for (element, stack) in [("", "3"), ("2", "3,2"), ("0", "3,0"), ("0", "0,0")] {
            let length = &stack[..1];
            let ty = format!("{dtype}[{element}]");
            let body =
                format!("a:{ty} b:{ty} x:{ty}. let c:{ty} = select_n False:bool[] b x in (b, c, a, x)");
            let scan = scan("a b xs", &body, length.parse().unwrap(), 0, 2, true);
            check(&format!(
                "{{ lambda ; a:{ty} b:{ty} xs:{dtype}[{stack}]. let
                   p:{ty} q:{ty} r:{dtype}[{stack}] s:{dtype}[{stack}] = {scan} in (p, q, r, s) }}"
            ));
        }
    }
}

/// A scan in a cond in a while in a scan, sharing a callee.
const NESTED: &str = "let inner = { lambda ; c:f32[4] x:f32[4]. let
        d:f32[4] = mul c 0.5:f32[]
        e:f32[4] = add d x
      in (e, e) } in
    let loop = { lambda ; c:f32[4] xs:f32[3,4]. let
        d:f32[4] ys:f32[3,4] = scan[jaxpr=inner length=3 num_carry=1 num_consts=0 reverse=False unroll=1] c xs
        s:f32[4] = reduce_sum[axes=(0,)] ys
        t:f32[4] = sub d s
      in (t,) } in
    let back = { lambda ; c:f32[4] xs:f32[3,4]. let
        d:f32[4] ys:f32[3,4] = scan[jaxpr=inner length=3 num_carry=1 num_consts=0 reverse=True unroll=1] c xs
        t:f32[4] = jit[name=loop jaxpr=loop] d ys
      in (t,) } in
    { lambda ; c:f32[4] xs:f32[5,3,4]. let
      n:i32[] f:f32[4] ys:f32[5,4] = scan[
        jaxpr={ lambda ; n:i32[] c:f32[4] x:f32[3,4]. let
          m:i32[] = add n 1:i32[]
          k:i32[] d:f32[4] y:f32[3,4] = while[
            body_jaxpr={ lambda ; i:i32[] c:f32[4] x:f32[3,4]. let
              j:i32[] = add i 1:i32[]
              b:i32[] = rem j 3:i32[]
              d:f32[4] = cond[branches=(loop, back, { lambda ; c:f32[4] x:f32[3,4]. let in (c,) })] b c x
              e:f32[4] = tanh d
            in (j, e, x) }
            body_nconsts=0
            cond_jaxpr={ lambda ; n:i32[] i:i32[] c:f32[4] x:f32[3,4]. let t:bool[] = lt i n in (t,) }
            cond_nconsts=1 ] n 0:i32[] c x
          e:f32[4] = add d c
        in (m, d, e) }
        length=5 num_carry=2 num_consts=0 reverse=False unroll=1 ] 0:i32[] c xs
    in (n, f, ys) }";

#[test]
fn loops_nest_and_share_bodies() {
    let program = parse(NESTED);
    let inputs = arguments(&program, 11);
    let expected = interpret::run(&program, &inputs).unwrap();
    let got = compile(&program).unwrap().run(&inputs).unwrap();
    for (got, expected) in got.iter().zip(&expected) {
        compare(got, expected, 64, "nested loops");
    }
}

#[test]
fn large_bodies_use_all_threads() {
    let scan = scan(
        "c xs",
        "c:f32[200000] x:f32[200000]. let a:f32[200000] = mul c x; b:f32[200000] = add a 1.0:f32[]; s:f32[] = reduce_max[axes=(0,)] b in (b, s)",
        4,
        0,
        1,
        false,
    );
    check(&format!(
        "{{ lambda ; c:f32[200000] xs:f32[4,200000]. let d:f32[200000] ys:f32[4] = {scan} in (d, ys) }}"
    ));
}

/// Records of a vector and a scalar that are read forwards and backwards; carries
/// follow them. The numbers of steps fill chunks of records and stop short of that.
#[test]
fn sweeps_go_through_their_steps_again() {
    let text = "{ lambda ; n:i32[] k:f32[] i:i32[] x:f32[3] s:f32[] t:f32[3] u:f32[3]. let
        j:i32[] y:f32[3] p:f32[] q:f32[3] r:f32[3] = sweeps[
          bodies=(
            { lambda ; n:i32[] k:f32[] i:i32[] x:f32[3]. let
                j:i32[] = add i 1:i32[]; f:f32[] = convert_element_type[new_dtype=float32 weak_type=False] i;
                g:f32[] = mul f 0.01:f32[]; y:f32[3] = mul x k; z:f32[3] = add y g in (j, z, x, g) },
            { lambda ; n:i32[] k:f32[] s:f32[] t:f32[3] x:f32[3] g:f32[]. let
                a:f32[] = mul s 0.5:f32[]; b:f32[] = add a g; c:f32[3] = sub x t in (b, x, c) },
            { lambda ; n:i32[] k:f32[] u:f32[3] x:f32[3] g:f32[] c:f32[3]. let
                v:f32[3] = mul u 0.25:f32[]; w:f32[3] = add v c in (w,) }
          )
          cond_jaxpr={ lambda ; n:i32[] k:f32[] i:i32[] x:f32[3]. let c:bool[] = lt i n in (c,) }
          num_carry=(2, 2, 1) num_consts=2 reverse=(False, True, False)
        ] n k i x s t u
      in (j, y, p, q, r) }";
    let f32s = |values: &[f32]| {
        let sizes: &[usize] = if values.len() == 1 { &[] } else { &[3] };
        Tensor::from_elements(sizes, values).unwrap()
    };
    for n in [0, 1, 2, 15, 16, 17, 48, 49, 500] {
        let (x, t, u) = (f32s(&[0.5, -1.0, 2.0]), f32s(&[0.1, 0.2, 0.3]), f32s(&[3.0, 2.0, 1.0]));
        let got = check_with(text, &[i32(n), f32s(&[0.9]), i32(0), x, f32s(&[0.7]), t, u]);
        assert_eq!(got[0].elements::<i32>().unwrap(), [n]);
    }
}

/// With checkpoints the steps are made again, in each direction, and nothing comes out differently.
#[test]
fn sweeps_from_checkpoints() {
    let body = |sweep: &str, reads: &str, step: &str| {
        format!("{{ lambda ; n:i32[] k:f32[] {sweep}. let {step} in {reads} }}")
    };
    let first = body(
        "i:i32[] x:f32[3]",
        "(j, z, x, g)",
        "j:i32[] = add i 1:i32[]; f:f32[] = convert_element_type[new_dtype=float32 weak_type=False] i;
         g:f32[] = mul f 0.01:f32[]; y:f32[3] = mul x k; z:f32[3] = add y g",
    );
    let second = |names: &str| {
        body(
            &format!("s:f32[] t:f32[3] {names}"),
            "(b, x, c)",
            "a:f32[] = mul s 0.5:f32[]; b:f32[] = add a g; d:f32[3] = sub x t; c:f32[3] = mul d b",
        )
    };
    let third = |names: &str| {
        body(
            &format!("u:f32[3] {names}"),
            "(w, v)",
            "v:f32[3] = mul u 0.25:f32[]; h:f32[3] = mul v g; m:f32[3] = sub c h; w:f32[3] = add m x",
        )
    };
    let bodies = [
        first,
        second("x:f32[3] g:f32[]"),
        third("x:f32[3] g:f32[] c:f32[3]"),
        second("x:f32[3] g:f32[] e:f32[3] o:f32[3]"),
        third("x:f32[3] g:f32[] c:f32[3] o:f32[3] p:f32[3]"),
    ];
    let f32s = |values: &[f32]| {
        let sizes: &[usize] = if values.len() == 1 { &[] } else { &[3] };
        Tensor::from_elements(sizes, values).unwrap()
    };
    let (x, t, u) = (f32s(&[0.5, -1.0, 2.0]), f32s(&[0.1, 0.2, 0.3]), f32s(&[3.0, 2.0, 1.0]));
    let inputs = [f32s(&[0.9]), i32(0), x, f32s(&[0.7]), t.clone(), u.clone(), f32s(&[0.2]), t, u];
    for reverse in [
        "(False,)",
        "(False, True)",
        "(False, False)",
        "(False, True, False)",
        "(False, False, True)",
        "(False, True, False, True)",
        "(False, True, True, False)",
        "(False, True, False, True, False)",
    ] {
        let sweeps = reverse.matches(['F', 'T']).count();
        let carry = [2, 2, 1, 2, 1];
        let count: usize = carry[..sweeps].iter().sum();
        let list: String = bodies[..sweeps].iter().map(|body| format!("{body}, ")).collect();
        let carries: String = carry[..sweeps].iter().map(|carry| format!("{carry}, ")).collect();
        let types = ["i32[]", "f32[3]", "f32[]", "f32[3]", "f32[3]", "f32[]", "f32[3]", "f32[3]"];
        let names = |letter: &str, typed: bool| -> String {
            let name = |number: usize| {
                format!("{letter}{letter}{}", ["a", "b", "c", "d", "e", "f", "g", "h"][number])
            };
            (0..count)
                .map(|i| if typed { format!(" {}:{}", name(i), types[i]) } else { format!(" {}", name(i)) })
                .collect()
        };
        for checkpoints in [1, 2, 3, 50] {
            for steps in [0, 1, 2, 3, 9, 17] {
                for bound in [String::new(), format!("max_steps={steps}"), format!("max_steps={}", steps + 5)]
                {
                    let text = format!(
                        "{{ lambda ; n:i32[] k:f32[]{}. let{} = sweeps[bodies=({list})
                           checkpoints={checkpoints} {bound}
                           cond_jaxpr={{ lambda ; n:i32[] k:f32[] i:i32[] x:f32[3]. let c:bool[] = lt i n in (c,) }}
                           num_carry=({carries}) num_consts=2 reverse={reverse}] n k{} in ({},) }}",
                        names("i", true),
                        names("o", true),
                        names("i", false),
                        names("o", false).trim().replace(' ', ", "),
                    );
                    let given: Vec<Tensor> =
                        std::iter::once(i32(steps)).chain(inputs[..count + 1].to_vec()).collect();
                    check_with(&text, &given);
                }
            }
        }
    }
}

/// Bounds hold for loops and sweeps alike.
#[test]
fn a_loop_that_goes_on_after_its_bound_is_an_error() {
    let loops = COUNTER.replace("cond_nconsts=1", "cond_nconsts=1 max_steps=3");
    let sweeps = "{ lambda ; n:i32[] i:i32[]. let
        x:i32[] = sweeps[
          bodies=({ lambda ; n:i32[] a:i32[]. let b:i32[] = add a 1:i32[] in (b,) },)
          cond_jaxpr={ lambda ; n:i32[] a:i32[]. let c:bool[] = lt a n in (c,) }
          max_steps=3 num_carry=(1,) num_consts=1 reverse=(False,)
        ] n i in (x,) }";
    for text in [loops.as_str(), sweeps] {
        let executable = compile(&parse(text)).unwrap();
        let got = executable.run(&[i32(3), i32(0)]).unwrap();
        assert_eq!(got[0].elements::<i32>().unwrap(), [3]);
        let error = executable.run(&[i32(4), i32(0)]).unwrap_err().to_string();
        assert!(error.contains("still goes on after max_steps=3 steps"), "{error}");
    }
}
