//! Each transformation of a scan computes what it does of the same steps written
//! out one by one.

use crate::common::loops::*;
use crate::common::*;
use ferrax_ir::verify::verify;
use ferrax_ir::{Dim, Program, Tensor, Type};
use ferrax_transform::{
    OutDims, batch, dce_with, jvp, linearize, optimise, partial_eval, simplify, transpose, vjp, vjp_program,
};

/// Programs with one scan or several; `body` is what most of them repeat.
const CASES: &[(&str, &str)] = &[
    (
        "a constant, a carry, an array",
        "let body = { lambda ; w:f64[2] c:f64[2] x:f64[2]. let p:f64[2] = mul c w; s:f64[2] = sin p;
             n:f64[2] = add s x; y:f64[2] = mul n w in (n, y) } in
         { lambda ; w:f64[2] c:f64[2] x:f64[3,2]. let
             n:f64[2] y:f64[3,2] = scan[jaxpr=body length=3 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
           in (n, y) }",
    ),
    (
        "backwards",
        "let body = { lambda ; w:f64[2] c:f64[2] x:f64[2]. let p:f64[2] = mul c w; s:f64[2] = sin p;
             n:f64[2] = add s x; y:f64[2] = mul n w in (n, y) } in
         { lambda ; w:f64[2] c:f64[2] x:f64[3,2]. let
             n:f64[2] y:f64[3,2] = scan[jaxpr=body length=3 num_carry=1 num_consts=1 reverse=True unroll=1] w c x
           in (n, y) }",
    ),
    (
        "no step",
        "let body = { lambda ; w:f64[2] c:f64[2] x:f64[2]. let p:f64[2] = mul c w; s:f64[2] = sin p;
             n:f64[2] = add s x; y:f64[2] = mul n w in (n, y) } in
         { lambda ; w:f64[2] c:f64[2] x:f64[0,2]. let
             n:f64[2] y:f64[0,2] = scan[jaxpr=body length=0 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
           in (n, y) }",
    ),
    (
        "one step",
        "let body = { lambda ; w:f64[2] c:f64[2] x:f64[2]. let p:f64[2] = mul c w; s:f64[2] = sin p;
             n:f64[2] = add s x; y:f64[2] = mul n w in (n, y) } in
         { lambda ; w:f64[2] c:f64[2] x:f64[1,2]. let
             n:f64[2] y:f64[1,2] = scan[jaxpr=body length=1 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
           in (n, y) }",
    ),
    (
        "a counter that picks from a constant",
        "let body = { lambda ; w:f64[4] i:i32[] c:f64[]. let n:i32[] = add i 1:i32[];
             e:f64[1] = dynamic_slice[slice_sizes=(1,)] w i; r:f64[] = squeeze[dimensions=(0,)] e;
             f:f64[] = convert_element_type[new_dtype=float64 weak_type=False] i; s:f64[] = sin c;
             t:f64[] = mul s r; d:f64[] = add t f in (n, d, s, n) } in
         { lambda ; w:f64[4] i:i32[] c:f64[]. let
             n:i32[] d:f64[] s:f64[3] t:i32[3] =
               scan[jaxpr=body length=3 num_carry=2 num_consts=1 reverse=False unroll=1] w i c
           in (n, d, s, t) }",
    ),
    (
        "no carry",
        "let body = { lambda ; w:f64[] x:f64[2] z:f64[]. let e:f64[2] = exp x; y:f64[2] = mul e w;
             k:f64[] = sin z in (y, k, z) } in
         { lambda ; w:f64[] x:f64[3,2] z:f64[3]. let
             y:f64[3,2] k:f64[3] u:f64[3] =
               scan[jaxpr=body length=3 num_carry=0 num_consts=1 reverse=False unroll=1] w x z
           in (y, k, u) }",
    ),
    (
        "no array",
        "let body = { lambda ; w:f64[] c:f64[]. let s:f64[] = tanh c; n:f64[] = mul s w in (n,) } in
         { lambda ; w:f64[] c:f64[]. let
             n:f64[] = scan[jaxpr=body length=4 num_carry=1 num_consts=1 reverse=False unroll=2] w c
           in (n,) }",
    ),
    (
        "a constant that makes the carry differ",
        "let body = { lambda ; w:f64[] c:f64[] x:f64[]. let p:f64[] = mul w x; s:f64[] = sin p;
             n:f64[] = add c s in (n,) } in
         { lambda ; w:f64[] x:f64[3]. let
             n:f64[] = scan[jaxpr=body length=3 num_carry=1 num_consts=1 reverse=False unroll=1] w 0.0:f64[] x
           in (n,) }",
    ),
    (
        "carries that reach others late",
        "let body = { lambda ; a:f64[] b:f64[] c:f64[] d:f64[] x:f64[]. let s:f64[] = sin x;
             e:f64[] = mul c b; f:f64[] = cos d in (s, a, e, f, c) } in
         { lambda ; a:f64[] b:f64[] c:f64[] d:f64[] x:f64[4]. let
             p:f64[] q:f64[] r:f64[] s:f64[] y:f64[4] =
               scan[jaxpr=body length=4 num_carry=4 num_consts=0 reverse=False unroll=1] a b c d x
           in (p, q, r, s, y) }",
    ),
    (
        "a carry that stays, one that is cut, one that nobody reads",
        "let body = { lambda ; k:f64[] g:f64[] u:f64[] c:f64[]. let z:f64[] = stop_gradient c;
             s:f64[] = sin k; p:f64[] = mul s c; n:f64[] = add p g; v:f64[] = mul n 2.0:f64[] in (k, z, v, n) } in
         { lambda ; k:f64[] g:f64[] u:f64[] c:f64[]. let
             l:f64[] z:f64[] v:f64[] n:f64[] =
               scan[jaxpr=body length=3 num_carry=4 num_consts=0 reverse=False unroll=1] k g u c
           in (l, z, v, n) }",
    ),
    (
        "a scan in a scan",
        "let inner = { lambda ; w:f64[] i:i32[] c:f64[] x:f64[]. let j:i32[] = add i 1:i32[];
             f:f64[] = convert_element_type[new_dtype=float64 weak_type=False] i; p:f64[] = mul c w;
             q:f64[] = add p f; s:f64[] = sin q; n:f64[] = add s x in (j, n, s) } in
         let outer = { lambda ; w:f64[] c:f64[] x:f64[2]. let v:f64[] = cos w;
             j:i32[] n:f64[] s:f64[2] =
               scan[jaxpr=inner length=2 num_carry=2 num_consts=1 reverse=True unroll=1] v 0:i32[] c x;
             m:f64[] = mul n w in (m, s) } in
         { lambda ; w:f64[] c:f64[] x:f64[3,2]. let
             m:f64[] s:f64[3,2] = scan[jaxpr=outer length=3 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
           in (m, s) }",
    ),
    (
        "random keys",
        "let body = { lambda ; k:key<fry>[] c:f64[]. let
             p:key<fry>[2] = random_split[shape=(2,)] k;
             a:key<fry>[1] = slice[start_indices=(0,) limit_indices=(1,) strides=None] p;
             b:key<fry>[1] = slice[start_indices=(1,) limit_indices=(2,) strides=None] p;
             d:key<fry>[] = squeeze[dimensions=(0,)] a; e:key<fry>[] = squeeze[dimensions=(0,)] b;
             r:u32[] = random_bits[bit_width=32 shape=()] d;
             f:f64[] = convert_element_type[new_dtype=float64 weak_type=False] r;
             g:f64[] = mul f 1e-10:f64[]; h:f64[] = mul c g; s:f64[] = sin h in (e, s, r) } in
         { lambda ; a:u32[] c:f64[]. let k:key<fry>[] = random_seed[impl=fry] a;
             e:key<fry>[] s:f64[] r:u32[3] =
               scan[jaxpr=body length=3 num_carry=2 num_consts=0 reverse=False unroll=1] k c;
             u:u32[2] = random_unwrap e
           in (u, s, r) }",
    ),
    (
        "constants of the body's own, a call in it",
        "let f = { lambda ; a:f64[] b:f64[]. let c:f64[] = mul a b; d:f64[] = exp b in (c, d) } in
         let body = { lambda ; w:f64[] c:f64[] x:f64[]. let t:f64[] = tanh c;
             p:f64[] q:f64[] = jit[name=f jaxpr=f] t w; r:f64[] = mul p q; s:f64[] = add r x in (s, q) } in
         { lambda ; w:f64[] c:f64[] x:f64[3]. let
             m:f64[] s:f64[3] = scan[jaxpr=body length=3 num_carry=1 num_consts=1 reverse=False unroll=1] w c x
           in (m, s) }",
    ),
    (
        "steps that are flat, outputs that need none",
        "let body = { lambda ; k:f64[2] a:f64[] b:f64[] c:f64[] x:f64[]. let f:f64[] = floor b; g:f64[] = mul c x;
             n:f64[] = add f 1.5:f64[]; m:f64[] = mul n g; h:f64[] = add a f in (f, n, m, h, x, k, 2.0:f64[]) } in
         { lambda ; k:f64[2] a:f64[] b:f64[] c:f64[] x:f64[3]. let
             l:f64[] m:f64[] n:f64[] h:f64[3] y:f64[3] z:f64[3,2] t:f64[3] =
               scan[jaxpr=body length=3 num_carry=3 num_consts=1 reverse=False unroll=1] k a b c x
           in (l, m, n, h, y, z, t) }",
    ),
    (
        "weak types",
        "let body = { lambda \"w\" ; w:~f64[] k:~f64[] c:~f64[] x:f64[]. let p:f64[] = mul c x; q:~f64[] = mul w c;
             z:~f64[] = sin k; s:f64[] = mul p z in (k, s, q) } in
         { lambda \"w\" ; w:~f64[] k:f64[] c:~f64[] x:f64[3]. let
             l:~f64[] m:f64[] s:~f64[3] =
               scan[jaxpr=body length=3 num_carry=2 num_consts=1 reverse=False unroll=1] w k c x
           in (l, m, s) }",
    ),
];

struct Case {
    name: &'static str,
    program: Program,
    written_out: Program,
    values: Vec<Tensor>,
    random: Random,
}

/// The programs above, and random ones.
fn cases() -> impl Iterator<Item = Case> {
    let random = (0..20).map(|seed| ("random", random_scan(seed)));
    let cases = CASES.iter().map(|(name, text)| (*name, parse(text))).chain(random);
    cases.enumerate().map(|(index, (name, program))| {
        let written_out = unrolled(&program);
        verify(&written_out).unwrap();
        let mut random = Random::new(index as u64 + 5);
        let values = values(&mut random, program.input_types());
        Case { name, program, written_out, values, random }
    })
}

fn is_float(ty: &Type) -> bool {
    ty.as_array().is_some_and(|ty| ty.dtype.is_inexact())
}

/// All sets of the things for which `may` holds, but the empty one.
fn subsets(may: &[bool]) -> Vec<Vec<bool>> {
    (1..1usize << may.len())
        .map(|bits| (0..may.len()).map(|index| bits >> index & 1 == 1).collect::<Vec<bool>>())
        .filter(|flags| flags.iter().zip(may).all(|(flag, may)| !flag || *may))
        .collect()
}

/// Sets of inputs to differentiate in.
fn differentiable(program: &Program) -> Vec<Vec<bool>> {
    subsets(&program.input_types().map(is_float).collect::<Vec<_>>())
}

fn verified(program: &Program) -> &Program {
    verify(program).unwrap_or_else(|error| panic!("{error}\n{program}"));
    let text = format!("{program:#}");
    let parsed = Program::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(parsed, program.canonical(), "{text}");
    program
}

/// All outputs, those flagged as they are and zeros for the others.
fn filled(program: &Program, found: &[Tensor], flags: &[bool]) -> Vec<Tensor> {
    let mut found = found.iter();
    let mut all = Vec::new();
    for (ty, &flag) in program.output_types().zip(flags).filter(|(ty, _)| is_float(ty)) {
        let ty = ty.as_array().unwrap();
        all.push(match flag {
            true => found.next().unwrap().clone(),
            false => Tensor::zeros(ty.dtype, ty.sizes().unwrap()).unwrap(),
        });
    }
    assert!(found.next().is_none());
    all
}

#[test]
fn writing_out_changes_nothing() {
    for Case { name, program, written_out, values, .. } in cases() {
        assert_same(&run(&program, &values), &run(&written_out, &values), 0.0, name, &program);
    }
}

#[test]
fn jvp_and_linearize() {
    for mut case in cases() {
        for nonzero in differentiable(&case.program) {
            let outputs = case.program.outputs.len();
            let types: Vec<Type> = case.program.input_types().cloned().collect();
            let tangents = case.random.tensors(&chosen(&types, &nonzero));
            let inputs: Vec<Tensor> = case.values.iter().chain(&tangents).cloned().collect();
            let (reference, flags) = jvp(&case.written_out, &nonzero).unwrap();
            let want = run(&reference, &inputs);
            let want_tangents = filled(&case.program, &want[outputs..], &flags);

            let (derivative, flags) = jvp(&case.program, &nonzero).unwrap();
            let got = run(verified(&derivative), &inputs);
            assert_same(&got[..outputs], &want[..outputs], 0.0, case.name, &derivative);
            let got = filled(&case.program, &got[outputs..], &flags);
            assert_same(&got, &want_tangents, 1e-12, case.name, &derivative);

            let linearized = linearize(&case.program, &nonzero).unwrap();
            assert_eq!(linearized.nonzero_out, flags);
            let got = run(verified(&linearized.primal), &case.values);
            assert_same(&got[..outputs], &want[..outputs], 0.0, case.name, &linearized.primal);
            let inputs: Vec<Tensor> = got[outputs..].iter().chain(&tangents).cloned().collect();
            let got = run(verified(&linearized.linear), &inputs);
            let got = filled(&case.program, &got, &flags);
            assert_same(&got, &want_tangents, 1e-12, case.name, &linearized.linear);
        }
    }
}

#[test]
fn jvp_agrees_with_finite_differences() {
    for mut case in cases().filter(|case| case.name != CASES[9].0 && case.name != "random") {
        let nonzero: Vec<bool> = case.program.input_types().map(is_float).collect();
        let types: Vec<Type> = case.program.input_types().cloned().collect();
        let tangents = case.random.tensors(&chosen(&types, &nonzero));
        let (derivative, flags) = jvp(&case.program, &nonzero).unwrap();
        let inputs: Vec<Tensor> = case.values.iter().chain(&tangents).cloned().collect();
        let results = run(&derivative, &inputs);
        let found = filled(&case.program, &results[case.program.outputs.len()..], &flags);
        let step = 1e-6;
        let shifted = |step: f64| {
            let mut tangents = tangents.iter();
            let values: Vec<Tensor> = case
                .values
                .iter()
                .zip(&nonzero)
                .map(|(x, &flag)| if flag { offset(x, tangents.next().unwrap(), step) } else { x.clone() })
                .collect();
            let float: Vec<bool> = case.program.output_types().map(|ty| is_float(&ty)).collect();
            chosen(&run(&case.program, &values), &float)
        };
        for ((ahead, behind), tangent) in shifted(step).iter().zip(shifted(-step)).zip(found) {
            let difference = offset(ahead, &behind, -1.0);
            let slope = offset(&difference, &difference, 1.0 / (2.0 * step) - 1.0);
            assert_same(&[tangent], &[slope], 1e-7, case.name, &case.program);
        }
    }
}

/// Sets of outputs that have cotangents.
fn given(program: &Program, nonzero: &[bool]) -> Vec<Vec<bool>> {
    let all = jvp(program, nonzero).unwrap().1;
    let mut sets: Vec<Vec<bool>> = (0..all.len())
        .filter(|&index| all[index])
        .map(|chosen| (0..all.len()).map(|index| index == chosen).collect())
        .collect();
    sets.push(all);
    sets
}

#[test]
fn reverse_mode() {
    for mut case in cases() {
        for nonzero in differentiable(&case.program) {
            for given in given(&case.program, &nonzero) {
                let types: Vec<Type> = case.program.output_types().collect();
                let cotangents = case.random.tensors(&chosen(&types, &given));
                let inputs: Vec<Tensor> = case.values.iter().chain(&cotangents).cloned().collect();
                let want = run(&vjp_program(&case.written_out, &nonzero, &given).unwrap(), &inputs);
                let reverse = vjp_program(&case.program, &nonzero, &given).unwrap();
                let got = run(verified(&reverse), &inputs);
                assert_same(&got, &want, 1e-12, case.name, &reverse);
                let optimised = optimise(&reverse, Default::default()).unwrap();
                assert_same(&run(verified(&optimised), &inputs), &want, 1e-12, case.name, &optimised);
            }
        }
    }
}

#[test]
fn second_order() {
    for mut case in cases() {
        let nonzero: Vec<bool> = case.program.input_types().map(is_float).collect();
        let given = jvp(&case.program, &nonzero).unwrap().1;
        let first = vjp_program(&case.program, &nonzero, &given).unwrap();
        let reference = vjp_program(&case.written_out, &nonzero, &given).unwrap();
        let nonzero: Vec<bool> = first.input_types().map(is_float).collect();
        let values = values(&mut case.random, first.input_types());
        let types: Vec<Type> = first.input_types().cloned().collect();

        // Forward over reverse.
        let tangents = case.random.tensors(&chosen(&types, &nonzero));
        let inputs: Vec<Tensor> = values.iter().chain(&tangents).cloned().collect();
        let (second, flags) = jvp(&first, &nonzero).unwrap();
        let (reference_second, reference_flags) = jvp(&reference, &nonzero).unwrap();
        let got = run(verified(&second), &inputs);
        let want = run(&reference_second, &inputs);
        let count = first.outputs.len();
        assert_same(
            &filled(&first, &got[count..], &flags),
            &filled(&first, &want[count..], &reference_flags),
            1e-11,
            case.name,
            &second,
        );

        // Reverse over reverse.
        let given: Vec<bool> = first.output_types().map(|ty| is_float(&ty)).collect();
        let types: Vec<Type> = first.output_types().collect();
        let cotangents = case.random.tensors(&chosen(&types, &given));
        let inputs: Vec<Tensor> = values.iter().chain(&cotangents).cloned().collect();
        let second = vjp_program(&first, &nonzero, &given).unwrap();
        let want = run(&vjp_program(&reference, &nonzero, &given).unwrap(), &inputs);
        assert_same(&run(verified(&second), &inputs), &want, 1e-11, case.name, &second);
    }
}

#[test]
fn batching() {
    let size = 3;
    for mut case in cases() {
        let all = vec![true; case.program.inputs.len()];
        for flags in subsets(&all) {
            for last in [false, true] {
                let dims: Vec<Option<usize>> = case
                    .program
                    .input_types()
                    .zip(&flags)
                    .map(|(ty, flag)| flag.then_some(if last { ty.as_array().unwrap().rank() } else { 0 }))
                    .collect();
                let (batched, out_dims) =
                    batch(&case.program, &Dim::Const(size), &dims, None, OutDims::AsIs).unwrap();
                let (_, reference_dims) =
                    batch(&case.written_out, &Dim::Const(size), &dims, None, OutDims::Front).unwrap();
                let inputs = values(&mut case.random, batched.input_types());
                for (found, needed) in out_dims.iter().zip(&reference_dims) {
                    assert!(found.is_some() || needed.is_none(), "{}: {batched}", case.name);
                }
                // Lane by lane.
                let results = run(verified(&batched), &inputs);
                for lane in 0..size {
                    let lane_inputs: Vec<Tensor> =
                        inputs.iter().zip(&dims).map(|(x, dim)| taken(x, *dim, lane)).collect();
                    let lane_results: Vec<Tensor> =
                        results.iter().zip(&out_dims).map(|(x, dim)| taken(x, *dim, lane)).collect();
                    assert_same(&lane_results, &run(&case.program, &lane_inputs), 1e-12, case.name, &batched);
                }
            }
        }
    }
}

/// Element `lane` along an axis.
fn taken(x: &Tensor, axis: Option<usize>, lane: usize) -> Tensor {
    let Some(axis) = axis else { return x.clone() };
    let sizes = x.sizes();
    let element = x.dtype().size();
    let inner: usize = sizes[axis + 1..].iter().product::<usize>() * element;
    let block = inner * sizes[axis];
    let mut bytes = Vec::new();
    if block > 0 {
        for chunk in x.bytes().chunks(block) {
            bytes.extend_from_slice(&chunk[lane * inner..(lane + 1) * inner]);
        }
    }
    let kept: Vec<usize> =
        sizes.iter().enumerate().filter(|(place, _)| *place != axis).map(|(_, &size)| size).collect();
    Tensor::from_bytes(x.dtype(), kept.as_slice(), &bytes).unwrap()
}

#[test]
fn partial_evaluation() {
    for Case { name, program, values, .. } in cases() {
        let want = run(&program, &values);
        for unknown in subsets(&vec![true; program.inputs.len()]) {
            let parts = partial_eval(&program, &unknown).unwrap();
            let known: Vec<bool> = unknown.iter().map(|flag| !flag).collect();
            let results = run(verified(&parts.known), &chosen(&values, &known));
            let known_count = results.len() - parts.residuals;
            let inputs: Vec<Tensor> =
                results[known_count..].iter().cloned().chain(chosen(&values, &unknown)).collect();
            let late = run(verified(&parts.unknown), &inputs);
            let (mut early, mut late) = (results[..known_count].iter(), late.iter());
            let got: Vec<Tensor> = parts
                .unknown_out
                .iter()
                .map(|&flag| if flag { late.next() } else { early.next() }.unwrap().clone())
                .collect();
            assert_same(&got, &want, 0.0, name, &parts.unknown);
            // Unknown is what the written-out program says, where there are steps.
            if name != "no step" {
                let reference = partial_eval(&unrolled(&program), &unknown).unwrap();
                for (late, needs) in parts.unknown_out.iter().zip(&reference.unknown_out) {
                    assert!(*late || !needs, "{name}: {}", parts.unknown);
                }
            }
        }
    }
}

#[test]
fn dead_code_elimination() {
    for Case { name, program, written_out, values, .. } in cases() {
        let want = run(&program, &values);
        for used in subsets(&vec![true; program.outputs.len()]) {
            let (pruned, kept) = dce_with(&program, &used).unwrap();
            let got = run(verified(&pruned), &chosen(&values, &kept));
            assert_same(&got, &chosen(&want, &used), 0.0, name, &pruned);
            let (reference, needed) = dce_with(&written_out, &used).unwrap();
            for (kept, needed) in kept.iter().zip(needed) {
                assert!(*kept || !needed, "{reference}");
            }
            let (again, _) = dce_with(&pruned, &vec![true; pruned.outputs.len()]).unwrap();
            assert_eq!(again, pruned, "{name}: nothing is left to do");
        }
    }
}

#[test]
fn optimisation() {
    for Case { name, program, values, .. } in cases() {
        let want = run(&program, &values);
        for result in [simplify(&program).unwrap(), optimise(&program, Default::default()).unwrap()] {
            assert!(result.output_types().eq(program.output_types()), "{name}\n{result}");
            assert_same(&run(verified(&result), &values), &want, 1e-12, name, &result);
            if name == "random" {
                continue;
            }
            let loops = result.equations.iter().filter(|equation| equation.op.name() == "scan").count();
            let short = ["no step", "one step"].contains(&name);
            assert_eq!(loops, usize::from(!short), "{name}\n{result}");
        }
    }
}

/// `linear_transpose` of programs of the user's, with what is known beside what
/// is linear.
#[test]
fn transposition_of_linear_programs() {
    let cases = [
        // A counter, and a constant picked from by it.
        "let body = { lambda ; w:f64[4] a:f64[] i:i32[] c:f64[] x:f64[]. let n:i32[] = add i 1:i32[];
             e:f64[1] = dynamic_slice[slice_sizes=(1,)] w i; r:f64[] = squeeze[dimensions=(0,)] e;
             f:f64[] = sin r; t:f64[] = mul c f; d:f64[] = add t x; s:f64[] = add d a; y:f64[] = mul x r in (n, s, y) } in
         { lambda ; w:f64[4] a:f64[] i:i32[] c:f64[] x:f64[3]. let
             n:i32[] d:f64[] y:f64[3] =
               scan[jaxpr=body length=3 num_carry=2 num_consts=2 reverse=False unroll=1] w a i c x
           in (d, y) }",
        // Carries that start at zero.
        "let body = { lambda ; w:f64[] b:f64[] c:f64[] x:f64[]. let t:f64[] = mul b 3.0:f64[];
             d:f64[] = add t x; e:f64[] = add c w in (d, e, b) } in
         { lambda ; w:f64[] x:f64[3]. let
             b:f64[] c:f64[] y:f64[3] =
               scan[jaxpr=body length=3 num_carry=2 num_consts=1 reverse=True unroll=1] w 0.0:f64[] 0.0:f64[] x
           in (b, c, y) }",
        // What a loop counts beside what is linear says where to pick, outside and in a loop.
        "let inner = { lambda ; i:i32[] c:f64[] x:f64[]. let j:i32[] = add i 1:i32[]; d:f64[] = add c x in (j, d) } in
         let count = { lambda ; i:i32[] c:f64[] x:f64[2]. let
             j:i32[] d:f64[] = scan[jaxpr=inner length=2 num_carry=2 num_consts=0 reverse=False unroll=1] i c x
           in (j, d) } in
         let body = { lambda ; w:f64[4] c:f64[] x:f64[2]. let
             j:i32[] d:f64[] = jit[name=count jaxpr=count] 0:i32[] c x;
             e:f64[1] = dynamic_slice[slice_sizes=(1,)] w j; r:f64[] = squeeze[dimensions=(0,)] e;
             s:f64[] = mul d r in (s,) } in
         { lambda ; w:f64[4] c:f64[] x:f64[3,2]. let
             d:f64[] = scan[jaxpr=body length=3 num_carry=1 num_consts=1 reverse=False unroll=1] w c x;
             y:f64[2] = slice[start_indices=(0,) limit_indices=(2,) strides=None] w;
             j:i32[] f:f64[] = jit[name=count jaxpr=count] 1:i32[] d y;
             e:f64[1] = dynamic_slice[slice_sizes=(1,)] w j; r:f64[] = squeeze[dimensions=(0,)] e;
             s:f64[] = mul d r
           in (s,) }",
    ];
    for (text, linear) in
        cases.iter().zip([vec![false, true, false, true, true], vec![true, true], vec![false, true, true]])
    {
        let program = parse(text);
        let mut random = Random::new(3);
        let primals = values(&mut random, program.input_types());
        let types: Vec<Type> = program.output_types().collect();
        let cotangents = random.tensors(&types);
        let known: Vec<bool> = linear.iter().map(|flag| !flag).collect();
        for linear in subsets(&linear) {
            // What is not transposed over is zero, so that the rest is linear.
            let inputs: Vec<Tensor> = primals
                .iter()
                .zip(linear.iter().zip(&known))
                .map(|(x, (&linear, &known))| match linear || known {
                    true => x.clone(),
                    false => Tensor::zeros(x.dtype(), x.sizes()).unwrap(),
                })
                .collect();
            let results = run(&program, &inputs);
            for given in subsets(&vec![true; types.len()]) {
                let (backward, flags) = transpose(&program, &linear, &given).unwrap();
                let not_linear: Vec<bool> = linear.iter().map(|flag| !flag).collect();
                let arguments: Vec<Tensor> =
                    chosen(&inputs, &not_linear).into_iter().chain(chosen(&cotangents, &given)).collect();
                let found = run(verified(&backward), &arguments);
                let left: f64 = chosen(&results, &given)
                    .iter()
                    .zip(chosen(&cotangents, &given))
                    .map(|(r, c)| dot(r, &c))
                    .sum();
                let right: f64 = chosen(&inputs, &flags).iter().zip(&found).map(|(x, c)| dot(x, c)).sum();
                assert!((left - right).abs() < 1e-12 * (1.0 + left.abs()), "{left} {right}\n{backward}");
            }
        }
    }
}

#[test]
fn cotangents_that_are_zero_stay_symbolic() {
    let program = parse(CASES[0].1);
    let both = vjp(&program, &[true, true, true]).unwrap();
    // Nothing of the carry's last value, nothing at all.
    let backward = both.backward(&[false, true]).unwrap();
    assert_eq!(backward.nonzero_in, [true, true, true]);
    let nothing = both.backward(&[false, false]).unwrap();
    assert_eq!(nothing.nonzero_in, [false, false, false]);
    assert!(nothing.program.equations.is_empty(), "{}", nothing.program);
}
