//! Loops that end when a condition says so, and branches, on a GPU: what the interpreter gives, and how often the host
//! waits for it. Arrays have so many elements that loops are not one shader (`small_loops`).

use std::sync::Arc;

use crate::common::{arguments, compare};
use crate::gpu::{device, run};
use ferrax_compile::device::{Attached, Device};
use ferrax_gpu::Gpu;
use ferrax_ir::{DType, Program, Tensor, interpret};

fn parse(text: &str) -> Program {
    Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs it on these inputs, and says how often the host waited before the results.
fn reads(device: &Arc<Attached<Gpu>>, text: &str, inputs: &[Tensor]) -> usize {
    let program = parse(text);
    let wanted = interpret::run(&program, inputs).unwrap();
    device.compile(&program).unwrap();
    let before = device.backend().downloads();
    let got = run(device, &program, inputs).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let waited = device.backend().downloads() - before - got.len();
    for (number, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        compare(got, wanted, 8, &format!("output {number} of {text}"));
    }
    waited
}

/// 6000 elements, which are these over and over.
fn cycled(values: &[f32]) -> Tensor {
    let values: Vec<f32> = values.iter().copied().cycle().take(6000).collect();
    Tensor::from_elements(vec![6000], &values).unwrap()
}

fn number(value: i32) -> Tensor {
    Tensor::from_elements(vec![], &[value]).unwrap()
}

/// A loop that doubles a number until it is at least the limit, beside arrays.
const DOUBLING: &str = "{ lambda ; limit:i32[] x:f32[5000] b:i8[3] f:bool[]. let
    n:i32[] y:f32[5000] z:f32[5000] c:i8[3] g:bool[] = while[
      body_jaxpr={ lambda ; n:i32[] x:f32[5000] y:f32[5000] b:i8[3] f:bool[]. let
        m:i32[] = mul n 2:i32[]
        s:f32[5000] = sin x
        c:i8[3] = add b 3:i8[]
        g:bool[] = not f
      in (m, y, s, c, g) }
      body_nconsts=0
      cond_jaxpr={ lambda ; limit:i32[] n:i32[] x:f32[5000] y:f32[5000] b:i8[3] f:bool[]. let
        c:bool[] = lt n limit in (c,) }
      cond_nconsts=1
    ] limit 1:i32[] x x b f in (n, y, z, c, g) }";

/// One step, then 2, then 4 and so on are recorded before the host asks; carries change places, have bytes that are no
/// whole words, and stay what they were when the loop has ended.
#[test]
fn loops_go_in_chunks() {
    let device = device();
    for (limit, steps, waits) in [(0, 0, 1), (1, 0, 1), (2, 1, 2), (3, 2, 2), (9, 4, 3), (1 << 20, 20, 5)] {
        let mut inputs = arguments(&parse(DOUBLING), 3);
        inputs[0] = number(limit);
        let wanted = interpret::run(&parse(DOUBLING), &inputs).unwrap();
        assert_eq!(wanted[0].elements::<i32>().unwrap(), [1 << steps]);
        assert_eq!(reads(&device, DOUBLING, &inputs), waits, "{steps} steps");
    }
}

/// What a body runs on after the end may be anything: here a sum that becomes infinite and an index far outside.
#[test]
fn steps_after_the_end_change_nothing() {
    let text = "{ lambda ; x:f32[4] i:i32[]. let
        j:i32[] y:f32[4] k:f32[4] = while[
          body_jaxpr={ lambda ; table:f32[4] i:i32[] y:f32[4] k:f32[4]. let
            j:i32[] = add i -3:i32[]
            z:f32[1] = dynamic_slice[slice_sizes=(1,)] table j
            w:f32[4] = broadcast_in_dim[broadcast_dimensions=(0,) shape=(4,)] z
            q:f32[4] = mul y y
            v:f32[4] = div w q
          in (j, v, table) }
          body_nconsts=1
          cond_jaxpr={ lambda ; i:i32[] y:f32[4] k:f32[4]. let c:bool[] = gt i 0:i32[] in (c,) }
          cond_nconsts=0
        ] x i x x in (j, y, k) }";
    let device = device();
    for begin in [7, 1, 0, -5] {
        let inputs = [Tensor::from_elements(vec![4], &[0.5f32, -2.0, 3.0, 1.5]).unwrap(), number(begin)];
        assert!(reads(&device, text, &inputs) <= 3, "{begin}");
    }
}

/// The error comes after as many steps as there may be, and not at one fewer.
#[test]
fn bounds_are_kept_in_chunks() {
    for (most, steps) in [(0, 0), (0, 1), (1, 1), (1, 2), (5, 5), (5, 6), (7, 8), (8, 8)] {
        let text = DOUBLING.replace("cond_nconsts=1", &format!("cond_nconsts=1 max_steps={most}"));
        let program = parse(&text);
        let mut inputs = arguments(&program, 3);
        inputs[0] = number(1 << steps);
        let (got, wanted) = (run(&device(), &program, &inputs), interpret::run(&program, &inputs));
        match (got, wanted) {
            (Ok(got), Ok(wanted)) => {
                assert!(steps <= most);
                compare(&got[1], &wanted[1], 8, "a bounded loop");
            }
            (Err(got), Err(wanted)) => assert_eq!(got.to_string(), wanted.to_string()),
            (got, wanted) => panic!("{steps} of {most}: {got:?} {wanted:?}"),
        }
    }
}

/// A loop over a counter, from and to what is an operand or known, which `max_steps` may bound.
fn counting(begin: &str, limit: &str, more: &str) -> String {
    format!(
        "{{ lambda ; a:i32[] b:i32[] x:f32[6000]. let
          i:i32[] n:i32[] y:f32[6000] = while[
            body_jaxpr={{ lambda ; x:f32[6000] i:i32[] n:i32[] y:f32[6000]. let
              j:i32[] = add i 1:i32[]
              t:f32[] = convert_element_type[new_dtype=float32 weak_type=False] i
              u:f32[6000] = mul x t
              z:f32[6000] = add y u in (j, n, z) }}
            body_nconsts=1
            cond_jaxpr={{ lambda ; i:i32[] n:i32[] y:f32[6000]. let c:bool[] = lt i n in (c,) }}
            cond_nconsts=0{more}
          ] x {begin} {limit} x in (i, n, y) }}"
    )
}

/// The host reads the numbers that the program does not know, before the loop begins, and nothing if it knows both.
#[test]
fn loops_over_counters_are_read_once() {
    let device = device();
    for (begin, end) in [(0, 0), (3, 40), (-2, 2), (5, 1), (i32::MAX - 3, i32::MAX), (i32::MIN, i32::MIN + 4)]
    {
        let inputs = [number(begin), number(end), cycled(&[0.5, 1.0, -3.0])];
        assert_eq!(reads(&device, &counting("a", "b", ""), &inputs), 1, "{begin} to {end}");
        let known = counting(&format!("{begin}:i32[]"), &format!("{end}:i32[]"), "");
        assert_eq!(reads(&device, &known, &inputs), 0, "{begin} to {end}");
    }
    for (begin, limit) in [("a", "b"), ("3:i32[]", "9:i32[]")] {
        let program = parse(&counting(begin, limit, " max_steps=5"));
        let inputs = [number(3), number(9), cycled(&[0.5, 1.0, -3.0])];
        let error = run(&device, &program, &inputs).unwrap_err().to_string();
        assert_eq!(error, interpret::run(&program, &inputs).unwrap_err().to_string());
        let program = parse(&counting(begin, limit, " max_steps=6"));
        assert_eq!(run(&device, &program, &inputs).unwrap()[0].elements::<i32>().unwrap(), [9]);
    }
}

/// A loop within a scan goes in chunks; a scan within a loop is recorded with its step; a loop that the host decides
/// about within another is read at each step of both, and one of a known number of steps is not.
#[test]
fn loops_in_loops() {
    let device = device();
    let inner = |limit: &str| {
        format!(
            "while[
              body_jaxpr={{ lambda ; v:f32[6000]. let w:f32[6000] = mul v 2.0:f32[] in (w,) }}
              body_nconsts=0
              cond_jaxpr={{ lambda ; v:f32[6000]. let
                m:f32[] = reduce_max[axes=(0,)] v
                c:bool[] = lt m {limit}:f32[] in (c,) }}
              cond_nconsts=0 ]"
        )
    };
    let text = format!(
        "{{ lambda ; y:f32[6000] xs:f32[4,6000]. let
            d:f32[6000] zs:f32[4,6000] = scan[jaxpr={{ lambda ; c:f32[6000] x:f32[6000]. let
                d:f32[6000] = {} x
                e:f32[6000] = add c d in (e, d) }}
              length=4 num_carry=1 num_consts=0 reverse=False unroll=1] y xs in (d, zs) }}",
        inner("100.0")
    );
    let ones = |sizes: &[usize]| {
        let count = sizes.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|k| (1 + k / 6000 * 3 + k % 3) as f32).collect();
        Tensor::from_elements(sizes.to_vec(), &values).unwrap()
    };
    // 6, 5, 4 and 4 steps: 1 + 2 + 4 recorded for each.
    assert_eq!(reads(&device, &text, &[ones(&[6000]), ones(&[4, 6000])]), 12);

    let outer = |step: &str| {
        format!(
            "{{ lambda ; y:f32[6000]. let
                z:f32[6000] = while[
                  body_jaxpr={{ lambda ; y:f32[6000]. let {step} in (w,) }}
                  body_nconsts=0
                  cond_jaxpr={{ lambda ; v:f32[6000]. let
                    m:f32[] = reduce_max[axes=(0,)] v
                    c:bool[] = lt m 5000.0:f32[] in (c,) }}
                  cond_nconsts=0 ] y in (z,) }}"
        )
    };
    let scan = "w:f32[6000] = scan[jaxpr={ lambda ; c:f32[6000]. let d:f32[6000] = add c c in (d,) }
        length=3 num_carry=1 num_consts=0 reverse=False unroll=1] y";
    // 3 · 8ⁿ.
    assert_eq!(reads(&device, &outer(scan), &[ones(&[6000])]), 3);
    let known = "i:i32[] w:f32[6000] = while[
        body_jaxpr={ lambda ; i:i32[] v:f32[6000]. let j:i32[] = add i 1:i32[]
          w:f32[6000] = add v v in (j, w) }
        body_nconsts=0
        cond_jaxpr={ lambda ; i:i32[] v:f32[6000]. let c:bool[] = lt i 3:i32[] in (c,) }
        cond_nconsts=0 ] 0:i32[] y";
    assert_eq!(reads(&device, &outer(known), &[ones(&[6000])]), 3);
    let step = format!("u:f32[6000] = add y y\n w:f32[6000] = {} u", inner("8.0"));
    let waited = reads(&device, &outer(&step), &[ones(&[6000])]);
    assert!(waited > 20, "{waited}");
}

/// Lanes that end at steps of their own have a select in the body, and the condition is whether any goes on.
#[test]
fn batches_of_loops() {
    let text = "{ lambda ; x:f32[6000] limit:f32[6000]. let
        y:f32[6000] n:i32[6000] = while[
          body_jaxpr={ lambda ; limit:f32[6000] x:f32[6000] n:i32[6000]. let
            on:bool[6000] = lt x limit
            y:f32[6000] = mul x 1.5:f32[]
            z:f32[6000] = select_n on x y
            m:i32[6000] = add n 1:i32[]
            k:i32[6000] = select_n on n m in (z, k) }
          body_nconsts=1
          cond_jaxpr={ lambda ; limit:f32[6000] x:f32[6000] n:i32[6000]. let
            on:bool[6000] = lt x limit
            c:bool[] = reduce_or[axes=(0,)] on in (c,) }
          cond_nconsts=1
        ] limit limit x n0 in (y, n) }"
        .replace(
            "limit:f32[6000]. let\n        y:f32[6000] n",
            "limit:f32[6000] n0:i32[6000]. let\n        y:f32[6000] n",
        );
    let inputs = [
        cycled(&[1.0, 2.0, 0.5, f32::NAN, 9.0, 1.0]),
        cycled(&[3.0, 2.0, 40.0, 1.0, 1.0, 1.5]),
        Tensor::zeros(DType::I32, vec![6000]).unwrap(),
    ];
    // 11 steps for the third lane.
    assert_eq!(reads(&device(), &text, &inputs), 4);
}

/// A step that costs much more than a read is not made in vain: the host reads before each.
#[test]
fn costly_steps_are_not_made_in_vain() {
    let text = "{ lambda ; x:f32[1024,1024]. let
        y:f32[1024,1024] = while[
          body_jaxpr={ lambda ; x:f32[1024,1024]. let
            y:f32[1024,1024] = tanh x
            z:f32[1024,1024] = dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None preferred_element_type=None] y y in (z,) }
          body_nconsts=0
          cond_jaxpr={ lambda ; x:f32[1024,1024]. let
            a:f32[1,1] = slice[start_indices=(0, 0) limit_indices=(1, 1) strides=None] x
            b:f32[] = reshape[dimensions=None new_sizes=()] a
            c:bool[] = lt b 0.0:f32[] in (c,) }
          cond_nconsts=0 ] x in (y,) }";
    let device = device();
    let ones = Tensor::from_elements(vec![1024, 1024], &vec![1.0f32; 1 << 20]).unwrap();
    let made = device.backend().counts().made;
    assert_eq!(reads(&device, text, std::slice::from_ref(&ones)), 1);
    let copies = parse(DOUBLING);
    let own = device.backend().counts().made - made;
    run(&device, &copies, &arguments(&copies, 3)).unwrap();
    assert!(
        device.backend().counts().made > made + own,
        "copies that depend on a flag are a loop's in chunks"
    );
}

/// All branches run where that costs little, and the host does not wait: results may be operands, each other, or the
/// same in all branches, and have bytes that are no whole words.
#[test]
fn branches_are_chosen_without_the_host() {
    let device = device();
    let text = "{ lambda ; i:i32[] x:f32[5] y:f32[5] b:i8[3] f:bool[]. let
        p:f32[5] q:f32[5] c:i8[3] g:bool[] s:f32[5] = cond[branches=(
          { lambda ; a:f32[5] b:f32[5] c:i8[3] f:bool[]. let in (a, a, c, f, b) },
          { lambda ; a:f32[5] b:f32[5] c:i8[3] f:bool[]. let
            s:f32[5] = sin b
            d:i8[3] = mul c c
            g:bool[] = not f in (b, s, d, g, b) },
          { lambda ; a:f32[5] b:f32[5] c:i8[3] f:bool[]. let
            s:f32[5] = mul a b in (s, s, c, True:bool[], b) }
        )] i x y b f
        t:f32[5] = add p x in (p, q, c, g, s, t, x) }";
    for index in [i32::MIN, -4, 0, 1, 2, 9, i32::MAX] {
        let mut inputs = arguments(&parse(text), 11);
        inputs[0] = number(index);
        assert_eq!(reads(&device, text, &inputs), 0, "{index}");
    }
}

/// So a scan over branches and a loop over branches do not wait for each; a branch that costs more than a read is only
/// run if it is taken.
#[test]
fn branches_in_loops() {
    let device = device();
    let text = "{ lambda ; x:f32[4] is:i32[9]. let
        y:f32[4] ys:f32[9,4] = scan[jaxpr={ lambda ; c:f32[4] i:i32[]. let
            d:f32[4] = cond[branches=(
              { lambda ; a:f32[4]. let b:f32[4] = neg a in (b,) },
              { lambda ; a:f32[4]. let b:f32[4] = add a 1.0:f32[] in (b,) }
            )] i c in (d, c) }
          length=9 num_carry=1 num_consts=0 reverse=False unroll=1] x is in (y, ys) }";
    assert_eq!(reads(&device, text, &arguments(&parse(text), 5)), 0);
    let text = "{ lambda ; i:i32[] x:f32[1024,1024]. let
        y:f32[1024,1024] = cond[branches=(
          { lambda ; a:f32[1024,1024]. let in (a,) },
          { lambda ; a:f32[1024,1024]. let
            z:f32[1024,1024] = dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None preferred_element_type=None] a a in (z,) }
        )] i x in (y,) }";
    let ones = Tensor::from_elements(vec![1024, 1024], &vec![1.0f32; 1 << 20]).unwrap();
    assert_eq!(reads(&device, text, &[number(0), ones]), 1);
}

/// What a loop gives is its own: a step of a chunk writes neither into what it was given nor into another carry.
#[test]
fn carries_of_chunks_are_apart() {
    let text = "{ lambda ; k:f32[2] a:f32[2]. let
        p:f32[2] q:f32[2] r:f32[2] s:f32[2] = while[
          body_jaxpr={ lambda ; k:f32[2] p:f32[2] q:f32[2] r:f32[2] s:f32[2]. let
            t:f32[2] = add p k in (t, p, p, k) }
          body_nconsts=1
          cond_jaxpr={ lambda ; p:f32[2] q:f32[2] r:f32[2] s:f32[2]. let
            m:f32[] = reduce_max[axes=(0,)] p
            c:bool[] = lt m 10.0:f32[] in (c,) }
          cond_nconsts=0 ] k a a a a
        t:f32[2] = add q r in (p, q, r, s, t, a, k) }";
    let pair = |a: f32, b: f32| Tensor::from_elements(vec![2], &[a, b]).unwrap();
    let device = device();
    for begin in [0.0, 7.5, 9.5, 11.0] {
        reads(&device, text, &[pair(1.0, 2.0), pair(begin, 0.25)]);
    }
}
