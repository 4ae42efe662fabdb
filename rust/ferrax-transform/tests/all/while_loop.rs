//! Each transformation of a loop computes what it does of its steps.

use crate::common::passes::*;
use crate::common::run;
use ferrax_ir::serial::{Interface, from_bytes, to_bytes};
use ferrax_ir::verify::verify;
use ferrax_ir::{DType, Dim, Op, Program, Scalar, Tensor};
use ferrax_transform::{
    OutDims, batch, dce_with, jvp, linearize, optimise, partial_eval, simplify, transpose, vjp_program,
};

/// Steps while a counter is below `n`; a weight, two floats and a spare.
const COUNTED: &str = "{ lambda ; n:i32[] w:f64[] i:i32[] x:f64[] y:f64[] z:f64[]. let
    j:i32[] a:f64[] b:f64[] c:f64[] = while[
      body_jaxpr={ lambda ; w:f64[] i:i32[] x:f64[] y:f64[] z:f64[]. let
          j:i32[] = add i 1:i32[]; p:f64[] = mul w x; a:f64[] = sin p; q:f64[] = mul a y; b:f64[] = add q 0.3:f64[];
          c:f64[] = cos z in (j, a, b, c) }
      body_nconsts=1
      cond_jaxpr={ lambda ; n:i32[] i:i32[] x:f64[] y:f64[] z:f64[]. let b:bool[] = lt i n in (b,) }
      cond_nconsts=1 BOUND] n w i x y z
  in (j, a, b, c) }";

/// Doubles until a limit is passed: the condition reads what is differentiated.
const DOUBLING: &str = "{ lambda ; m:f64[] w:f64[] x:f64[]. let
    k:i32[] y:f64[] = while[
      body_jaxpr={ lambda ; w:f64[] k:i32[] x:f64[]. let
          l:i32[] = add k 2:i32[]; y:f64[] = mul x w; z:f64[] = add y 0.25:f64[] in (l, z) }
      body_nconsts=1
      cond_jaxpr={ lambda ; m:f64[] k:i32[] x:f64[]. let b:bool[] = lt x m in (b,) }
      cond_nconsts=1 BOUND] m w 0:i32[] x
  in (k, y) }";

/// A vector, a key, and an integer that says which element to take.
const KEYS: &str = "{ lambda ; n:i32[] k:key<fry>[] x:f64[2] s:f64[]. let
    j:i32[] q:key<fry>[] y:f64[2] t:f64[] = while[
      body_jaxpr={ lambda ; i:i32[] k:key<fry>[] x:f64[2] s:f64[]. let
          j:i32[] = sub i 1:i32[]; q:key<fry>[] = random_fold_in k i;
          u:u32[2] = random_unwrap q; v:u32[2] = shift_right_logical u 31:u32[];
          f:f64[2] = convert_element_type[new_dtype=float64 weak_type=False] v;
          g:f64[2] = add f 0.5:f64[]; h:f64[2] = mul x g; y:f64[2] = sin h;
          e:f64[] = reduce_sum[axes=(0,)] y; t:f64[] = mul s e in (j, q, y, t) }
      body_nconsts=0
      cond_jaxpr={ lambda ; i:i32[] k:key<fry>[] x:f64[2] s:f64[]. let b:bool[] = gt i 0:i32[] in (b,) }
      cond_nconsts=0 BOUND] n k x s
    w:u32[2] = random_unwrap q
  in (j, w, y, t) }";

/// A loop in a loop, and a branch in that.
const NESTED: &str = "{ lambda ; n:i32[] w:f64[] x:f64[]. let
    i:i32[] y:f64[] = while[
      body_jaxpr={ lambda ; w:f64[] i:i32[] x:f64[]. let
          j:i32[] y:f64[] = while[
            body_jaxpr={ lambda ; w:f64[] j:i32[] x:f64[]. let
                k:i32[] = add j 1:i32[];
                y:f64[] = cond[branches=({ lambda ; w:f64[] x:f64[]. let y:f64[] = mul w x; z:f64[] = sin y in (z,) },
                                         { lambda ; w:f64[] x:f64[]. let y:f64[] = mul x 1.25:f64[] in (y,) })] j w x
              in (k, y) }
            body_nconsts=1
            cond_jaxpr={ lambda ; i:i32[] j:i32[] x:f64[]. let b:bool[] = le j i in (b,) }
            cond_nconsts=1 BOUND] i w 0:i32[] x
          k:i32[] = add i 1:i32[]
        in (k, y) }
      body_nconsts=1
      cond_jaxpr={ lambda ; n:i32[] i:i32[] x:f64[]. let b:bool[] = lt i n in (b,) }
      cond_nconsts=1 BOUND] n w 0:i32[] x
  in (y,) }";

fn cases_with(bound: &str, reverse: bool) -> Vec<Case> {
    let with = |name, text: &str, lanes| case(name, &text.replace("BOUND", bound), lanes, reverse);
    vec![
        with(
            "counted",
            COUNTED,
            vec![
                vec![i(3), f(0.8), i(0), f(0.5), f(0.2), f(0.1)],
                vec![i(1), f(0.3), i(0), f(-0.5), f(0.7), f(0.2)],
                vec![i(4), f(1.1), i(1), f(0.9), f(-0.4), f(0.4)],
                vec![i(0), f(0.6), i(2), f(0.4), f(0.6), f(0.8)],
            ],
        ),
        with(
            "doubling",
            DOUBLING,
            vec![vec![f(3.0), f(1.7), f(0.4)], vec![f(2.0), f(2.5), f(1.1)], vec![f(1.0), f(1.5), f(5.0)]],
        ),
        with(
            "keys",
            KEYS,
            vec![
                vec![i(2), key([7, 9]), v(&[0.4, 0.8]), f(0.9)],
                vec![i(0), key([1, 2]), v(&[0.1, -0.5]), f(0.3)],
                vec![i(3), key([5, 6]), v(&[1.2, 0.3]), f(-0.6)],
            ],
        ),
        with(
            "nested",
            NESTED,
            vec![vec![i(2), f(0.9), f(0.7)], vec![i(0), f(0.4), f(0.2)], vec![i(3), f(1.3), f(-0.4)]],
        ),
    ]
}

#[test]
fn derivatives() {
    cases_with("", true).iter().for_each(check_derivatives);
}

#[test]
fn batches() {
    cases_with("", true).iter().for_each(check_batches);
}

#[test]
fn parts() {
    cases_with("", true).iter().for_each(check_parts);
}

#[test]
fn bounded_derivatives() {
    cases_with("max_steps=6", true).iter().for_each(check_derivatives);
}

#[test]
fn bounded_batches() {
    cases_with("max_steps=6", true).iter().for_each(check_batches);
}

#[test]
fn bounded_parts() {
    cases_with("max_steps=6", true).iter().for_each(check_parts);
}

#[test]
fn checkpointed_derivatives() {
    cases_with("checkpoints=2 max_steps=6", true).iter().for_each(check_derivatives);
}

#[test]
fn checkpointed_batches() {
    cases_with("checkpoints=2 max_steps=6", true).iter().for_each(check_batches);
}

#[test]
fn checkpointed_parts() {
    cases_with("checkpoints=2 max_steps=6", true).iter().for_each(check_parts);
}

/// A bound that is passed is an error in the loop, its derivatives and its batches alike.
#[test]
fn loops_that_go_on_after_their_bound_fail() {
    let inputs = [i(3), f(0.8), i(0), f(0.5), f(0.2), f(0.1)];
    let nonzero = [false, true, false, true, true, false];
    let given = [false, true, true, false];
    for (bound, fails) in [(0, true), (2, true), (3, false)] {
        let program = Program::parse(&COUNTED.replace("BOUND", &format!("max_steps={bound}"))).unwrap();
        let (forward, _) = jvp(&program, &nonzero).unwrap();
        let gradient = vjp_program(&program, &nonzero, &given).unwrap();
        let (batched, _) =
            batch(&program, &Dim::Const(1), &[Some(0), None, None, None, None, None], None, OutDims::AsIs)
                .unwrap();
        let lane = Tensor::from_elements([1].as_slice(), &[3i32]).unwrap();
        for (program, inputs) in [
            (&program, inputs.to_vec()),
            (&forward, [&inputs[..], &[f(1.0), f(1.0), f(1.0)]].concat()),
            (&gradient, [&inputs[..], &[f(1.0), f(1.0)]].concat()),
            (&batched, [&[lane], &inputs[1..]].concat()),
        ] {
            let found = ferrax_ir::interpret::run(program, &inputs);
            let text = found.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(
                text.contains(&format!("still goes on after max_steps={bound} steps")),
                fails,
                "{text}"
            );
        }
    }
}

fn parse(text: &str) -> Program {
    Program::parse(&text.replace("BOUND", "")).unwrap()
}

fn loops(program: &Program) -> Vec<&ferrax_ir::ops::While> {
    let ops = program.equations.iter().map(|equation| &equation.op);
    ops.filter_map(|op| if let Op::While(op) = op { Some(op) } else { None }).collect()
}

fn sweeps(program: &Program) -> Vec<&ferrax_ir::ops::Sweeps> {
    let ops = program.equations.iter().map(|equation| &equation.op);
    ops.filter_map(|op| if let Op::Sweeps(op) = op { Some(op) } else { None }).collect()
}

/// One sweep forwards and one backwards; what a step computes of constants alone
/// and what keeps its value are not recorded.
#[test]
fn loops_without_a_bound_are_swept() {
    let text = "{ lambda ; n:i32[] w:f64[8] x:f64[]. let
        i:i32[] y:f64[] v:f64[8] = while[
          body_jaxpr={ lambda ; w:f64[8] i:i32[] x:f64[] v:f64[8]. let
              j:i32[] = add i 1:i32[]; e:f64[8] = exp w; u:f64[8] = mul e v; s:f64[] = reduce_sum[axes=(0,)] u;
              p:f64[] = mul x s; y:f64[] = sin p in (j, y, v) }
          body_nconsts=1
          cond_jaxpr={ lambda ; n:i32[] i:i32[] x:f64[] v:f64[8]. let b:bool[] = lt i n in (b,) }
          cond_nconsts=1] n w 0:i32[] x w
      in (y,) }";
    let program = Program::parse(text).unwrap();
    let gradient = vjp_program(&program, &[false, false, true], &[true]).unwrap();
    let gradient = optimise(&gradient, Default::default()).unwrap();
    let ops = sweeps(&gradient);
    assert_eq!(ops.len(), 1);
    assert_eq!(ops[0].reverse, [false, true]);
    for record in ops[0].bodies[0].output_types().skip(ops[0].num_carry[0]) {
        assert_eq!(record.as_array().unwrap().rank(), 0, "{}", ops[0].bodies[0]);
    }
    assert_eq!((ops[0].records(0), ops[0].records(1)), (1, 0), "{}", ops[0].bodies[0]);
}

/// How often a loop runs is no linear function of anything.
#[test]
fn conditions_are_not_linear() {
    let text = "{ lambda ; x:f64[]. let
        y:f64[] = while[
          body_jaxpr={ lambda ; x:f64[]. let y:f64[] = mul x 2.0:f64[] in (y,) } body_nconsts=0
          cond_jaxpr={ lambda ; x:f64[]. let b:bool[] = lt x 9.0:f64[] in (b,) } cond_nconsts=0] x
      in (y,) }";
    let found = transpose(&Program::parse(text).unwrap(), &[true], &[true]);
    assert!(found.unwrap_err().to_string().contains("cannot be transposed in what its condition depends on"));
}

/// A gradient that is read back from its text or its bytes is the same program.
#[test]
fn sweeps_are_printed_and_saved() {
    let nonzero = [false, true, false, true, false, false];
    let gradient = vjp_program(&parse(COUNTED), &nonzero, &[false, true, false, false]).unwrap();
    assert_eq!(sweeps(&gradient).len(), 1);
    let interface = Interface::default();
    let bytes = to_bytes(&gradient, &interface).unwrap();
    let (again, _) = from_bytes(&bytes).unwrap();
    assert_eq!(again, gradient.canonical());
    assert_eq!(Program::parse(&format!("{gradient:#}")).unwrap(), again);
    let inputs = [i(3), f(0.8), i(0), f(0.5), f(0.2), f(0.1), f(1.0)];
    let (one, other) = (run(&gradient, &inputs), run(&again, &inputs));
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one.bytes(), other.bytes());
    }
}

/// What a user's own linear loop does, turned around.
#[test]
fn linear_loops_over_a_counter_turn_around() {
    for limit in ["m", "3:i32[]"] {
        let text = "{ lambda ; n:i32[] w:f64[] c:f64[] x:f64[]. let
            i:i32[] m:i32[] y:f64[] = while[
              body_jaxpr={ lambda ; w:f64[] c:f64[] i:i32[] m:i32[] x:f64[]. let
                  f:f64[] = convert_element_type[new_dtype=float64 weak_type=False] i;
                  s:f64[] = mul w f; y:f64[] = mul x s; z:f64[] = add y c; j:i32[] = add i 1:i32[] in (j, m, z) }
              body_nconsts=2
              cond_jaxpr={ lambda ; i:i32[] m:i32[] x:f64[]. let b:bool[] = lt i LIMIT in (b,) }
              cond_nconsts=0] w c 1:i32[] n x
          in (y,) }";
        let program = Program::parse(&text.replace("LIMIT", limit)).unwrap();
        let (around, flags) = transpose(&program, &[false, false, true, true], &[true]).unwrap();
        verify(&around).unwrap();
        assert_eq!(flags, [false, false, true, true]);
        // y = 2 w (w x + c) + c after two steps.
        for n in [3, 1, 0] {
            let found = run(&around, &[i(n), f(0.7), f(1.5)]);
            let expected = if n == 3 || limit != "m" {
                [1.5 * (1.0 + 2.0 * 0.7), 1.5 * 2.0 * 0.7 * 0.7]
            } else {
                [0.0, 1.5]
            };
            for (found, expected) in found.iter().zip(expected) {
                assert!((found.elements::<f64>().unwrap()[0] - expected).abs() < 1e-12);
            }
        }
    }
}

/// Counters of small and unsigned dtypes, bounds that are just kept and bounds beyond the dtype.
#[test]
fn counters_do_not_overflow() {
    for (dtype, bound, steps) in [("u8", 5, 5), ("u8", 1000, 5), ("i8", 300, 5), ("i32", 5, 5)] {
        let text = format!(
            "{{ lambda ; n:{dtype}[] x:f64[]. let
                i:{dtype}[] y:f64[] = while[
                  body_jaxpr={{ lambda ; i:{dtype}[] x:f64[]. let y:f64[] = mul x 3.0:f64[];
                      j:{dtype}[] = add i 1:{dtype}[] in (j, y) }}
                  body_nconsts=0
                  cond_jaxpr={{ lambda ; n:{dtype}[] i:{dtype}[] x:f64[]. let b:bool[] = lt i n in (b,) }}
                  cond_nconsts=1 max_steps={bound}] n 2:{dtype}[] x
              in (y,) }}"
        );
        let program = Program::parse(&text).unwrap();
        let (around, _) = transpose(&program, &[false, true], &[true]).unwrap();
        for (limit, steps) in [(7, steps), (1, 0)] {
            let limit =
                Scalar::from_i64(DType::parse(dtype_name(dtype)).unwrap(), limit).to_tensor().unwrap();
            let want = 3.0f64.powi(steps);
            for program in [&program, &around] {
                let found = run(program, &[limit.clone(), f(1.0)]);
                assert_eq!(found[0].elements::<f64>().unwrap(), [want], "{dtype} {bound}");
            }
        }
    }
}

fn dtype_name(short: &str) -> &'static str {
    match short {
        "u8" => "uint8",
        "i8" => "int8",
        _ => "int32",
    }
}

#[test]
fn the_tangents_of_an_unbounded_loop_come_from_one_loop() {
    let linear = linearize(&parse(DOUBLING), &[false, false, true]).unwrap();
    assert_eq!((loops(&linear.primal).len(), loops(&linear.linear).len()), (1, 1));
    assert!(loops(&linear.primal)[0].body_jaxpr.outputs.len() == 2, "the primal loop is as it was");
    let (forward, _) = jvp(&parse(DOUBLING), &[false, false, true]).unwrap();
    assert_eq!(loops(&forward).len(), 1);
    // Integers and what no tangent reaches carry none.
    assert_eq!(loops(&forward)[0].body_jaxpr.outputs.len(), 3);
}

#[test]
fn a_condition_of_all_lanes_keeps_the_loop() {
    let batched =
        |dims: &[Option<usize>]| batch(&parse(COUNTED), &Dim::Const(3), dims, None, OutDims::AsIs).unwrap();
    let (program, dims) = batched(&[None, Some(0), None, None, None, None]);
    assert_eq!(dims, [None, Some(0), Some(0), None], "only what depends on the weight");
    assert_eq!(loops(&program)[0].cond_jaxpr.equations.len(), 1);
    let (_, dims) = batched(&[Some(0), None, None, None, None, None]);
    assert_eq!(dims, [Some(0); 4], "lanes stop at steps of their own");
}

#[test]
fn lanes_that_are_done_get_no_nan_from_idle_steps() {
    // One lane goes on to where the other would take the root of zero.
    let text = "{ lambda ; n:i32[] x:f64[]. let
        i:i32[] y:f64[] = while[
          body_jaxpr={ lambda ; i:i32[] x:f64[]. let j:i32[] = add i 1:i32[]; r:f64[] = sqrt x;
              y:f64[] = sub r 1.0:f64[] in (j, y) }
          body_nconsts=0
          cond_jaxpr={ lambda ; n:i32[] i:i32[] x:f64[]. let b:bool[] = lt i n in (b,) }
          cond_nconsts=1 max_steps=4] n 0:i32[] x
      in (y,) }";
    let program = Program::parse(text).unwrap();
    let dims = [Some(0), Some(0)];
    let (batched, _) = batch(&program, &Dim::Const(2), &dims, None, OutDims::Front).unwrap();
    let gradient = vjp_program(&batched, &[false, true], &[true]).unwrap();
    let counts = Tensor::from_elements([2].as_slice(), &[1i32, 2]).unwrap();
    let found = run(&gradient, &[counts, v(&[1.0, 16.0]), v(&[1.0, 1.0])]);
    let gradients = found[1].elements::<f64>().unwrap();
    assert_eq!(gradients[0], 0.5);
    assert!((gradients[1] - 0.125 * 0.5 / 3.0f64.sqrt()).abs() < 1e-12);
}

#[test]
fn known_carries_are_computed_before() {
    // The weight is unknown: the counter and the spare are not.
    let parts = partial_eval(&parse(COUNTED), &[false, true, false, false, false, false]).unwrap();
    assert_eq!(parts.unknown_out, [false, true, true, false]);
    assert_eq!(loops(&parts.known)[0].body_jaxpr.outputs.len(), 2);
    // An unknown condition makes all unknown.
    let parts = partial_eval(&parse(COUNTED), &[true, false, false, false, false, false]).unwrap();
    assert_eq!(parts.unknown_out, [true; 4]);
    assert!(loops(&parts.known).is_empty());
}

#[test]
fn carries_that_nobody_needs_go() {
    let (smaller, kept) = dce_with(&parse(COUNTED), &[false, true, false, false]).unwrap();
    assert_eq!(kept, [true, true, true, true, false, false]);
    assert_eq!(loops(&smaller)[0].body_jaxpr.outputs.len(), 2);
    let (smaller, kept) = dce_with(&parse(COUNTED), &[false, false, false, true]).unwrap();
    assert_eq!(kept, [true, false, true, false, false, true]);
    assert_eq!((loops(&smaller)[0].body_nconsts, loops(&smaller)[0].body_jaxpr.outputs.len()), (0, 2));
}

#[test]
fn a_loop_that_does_not_run_is_none() {
    assert_eq!(loops(&simplify(&parse(COUNTED)).unwrap()).len(), 1);
    let text = "{ lambda ; x:f64[]. let
        y:f64[] = while[body_jaxpr={ lambda ; x:f64[]. let y:f64[] = sin x in (y,) } body_nconsts=0
          cond_jaxpr={ lambda ; x:f64[]. let b:bool[] = lt 2:i32[] 1:i32[] in (b,) } cond_nconsts=0] x
      in (y,) }";
    let simple = optimise(&Program::parse(text).unwrap(), Default::default()).unwrap();
    assert!(simple.equations.is_empty() && run(&simple, &[f(0.5)])[0].elements::<f64>().unwrap() == [0.5]);
}

#[test]
fn nesting_five_deep_costs_in_proportion() {
    let nested = |depth: usize, bound: &str| {
        let mut text =
            "{ lambda ; i:i32[] x:f64[]. let y:f64[] = sin x; z:f64[] = mul y x in (z,) }".to_owned();
        for _ in 0..depth {
            text = format!(
                "{{ lambda ; n:i32[] x:f64[]. let i:i32[] y:f64[] = while[
                   body_jaxpr={{ lambda ; i:i32[] x:f64[]. let
                     y:f64[] = jit[name=below jaxpr={text}] i x; j:i32[] = add i 1:i32[] in (j, y) }}
                   body_nconsts=0
                   cond_jaxpr={{ lambda ; n:i32[] i:i32[] x:f64[]. let b:bool[] = lt i n in (b,) }}
                   cond_nconsts=1 {bound}] n 0:i32[] x in (y,) }}"
            );
        }
        Program::parse(&text).unwrap()
    };
    for bound in ["", "max_steps=3"] {
        let sizes = |depth: usize| {
            let program = nested(depth, bound);
            let (forward, _) = jvp(&program, &[false, true]).unwrap();
            let dims = [Some(0), Some(0)];
            let (batched, _) = batch(&program, &Dim::Const(2), &dims, None, OutDims::AsIs).unwrap();
            let mut sizes = vec![forward.size(), batched.size()];
            let gradient = vjp_program(&program, &[false, true], &[true]).unwrap();
            sizes.push(gradient.size());
            sizes.push(optimise(&gradient, Default::default()).unwrap().size());
            sizes
        };
        for (three, six) in sizes(3).into_iter().zip(sizes(6)) {
            // Residuals of a level pass through all levels above it.
            assert!(six <= 6 * three, "{bound}: {three} {six}");
        }
    }
}

#[test]
fn effects_stay_in_the_loop() {
    let text = "let loud = { lambda ; x:f64[]. let y:f64[] = mul x 2.0:f64[] in (y,) } in
        { lambda ; n:i32[] x:f64[] w:f64[]. let
            i:i32[] y:f64[] z:f64[] = while[
              body_jaxpr={ lambda ; w:f64[] i:i32[] x:f64[] z:f64[]. let j:i32[] = add i 1:i32[];
                  d:f64[] = mul 2.0:f64[] x; y:f64[] = jit[name=loud jaxpr=loud] x; s:f64[] = sin w;
                  t:f64[] = mul z s in (j, RESULT, t) }
              body_nconsts=1
              cond_jaxpr={ lambda ; n:i32[] i:i32[] x:f64[] y:f64[]. let b:bool[] = lt i n in (b,) }
              cond_nconsts=1 BOUND] n w 0:i32[] x x
          in (y, z) }";
    // Without a bound the steps are made twice, so what has effects may not be asked again.
    let program = |bound: &str, result: &str| {
        with_effects(&Program::parse(&text.replace("BOUND", bound).replace("RESULT", result)).unwrap())
    };
    let refused = linearize(&program("", "y"), &[false, true, true]).unwrap_err().to_string();
    assert!(refused.contains("need the result of loud"), "{refused}");
    for (bound, result) in [("", "d"), ("max_steps=3", "y")] {
        let case = Case {
            name: "effects",
            program: program(bound, result),
            lanes: vec![vec![i(2), f(0.3), f(0.5)], vec![i(1), f(0.7), f(0.2)]],
            reverse: true,
        };
        assert_eq!(effects(&case.program), 1);
        check_derivatives(&case);
        check_batches(&case);
        check_parts(&case);
        let program = &case.program;
        assert_eq!(effects(&dce_with(program, &[false, false]).unwrap().0), 1);
        assert_eq!(effects(&jvp(program, &[false, true, true]).unwrap().0), 1);
        let parts = partial_eval(program, &[false, false, true]).unwrap();
        assert_eq!(effects(&parts.known) + effects(&parts.unknown), 1);
        let linear = linearize(program, &[false, true, true]).unwrap();
        assert_eq!((effects(&linear.primal), effects(&linear.linear)), (1, 0), "{bound}");
    }
}
