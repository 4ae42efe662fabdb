//! Each transformation of a branch computes what it does of the branch that is
//! taken.

use crate::common::passes::*;
use crate::common::run;
use ferrax_ir::ops::{Call, Cond};
use ferrax_ir::{ArrayType, Atom, Builder, DType, Dim, Op, Program};
use ferrax_transform::{
    Options, OutDims, batch, dce_with, jvp, linearize, optimise, partial_eval, simplify, vjp_program,
};
use std::sync::Arc;

/// The root of `x` where that is positive, else a half of it.
const ROOT: &str = "{ lambda ; p:i32[] x:f64[]. let
    y:f64[] = cond[branches=({ lambda ; x:f64[]. let y:f64[] = mul x 0.5:f64[] in (y,) },
                             { lambda ; x:f64[]. let y:f64[] = sqrt x in (y,) })] p x
  in (y,) }";

fn cases() -> Vec<Case> {
    vec![
        case("root", ROOT, vec![vec![i(1), f(2.0)], vec![i(0), f(0.7)], vec![i(7), f(1.5)], vec![i(-3), f(3.0)]], true),
        case(
            "three branches with residuals of their own",
            "{ lambda ; p:i32[] x:f64[3] w:f64[3] s:f64[]. let
                y:f64[3] z:f64[] = cond[branches=(
                  { lambda ; x:f64[3] w:f64[3] s:f64[]. let a:f64[3] = sin x; b:f64[3] = mul a w;
                      c:f64[3] = exp b; d:f64[] = reduce_sum[axes=(0,)] c in (c, d) },
                  { lambda ; x:f64[3] w:f64[3] s:f64[]. let a:f64[] = cos s; b:f64[3] = mul x a;
                      c:f64[3] = mul b b in (c, 2.0:f64[]) },
                  { lambda ; x:f64[3] w:f64[3] s:f64[]. let a:f64[] = tanh s; b:f64[] = mul a a in (w, b) })]
                  p x w s
                t:f64[3] = mul y x; u:f64[] = sin z
              in (t, u, z) }",
            vec![
                vec![i(0), v(&[0.1, 0.2, -0.3]), v(&[1.0, -0.5, 0.4]), f(0.3)],
                vec![i(1), v(&[0.6, -0.2, 0.5]), v(&[0.3, 0.5, 0.9]), f(0.8)],
                vec![i(2), v(&[-0.1, 0.4, 0.7]), v(&[0.2, 0.1, -0.6]), f(-0.4)],
            ],
            true,
        ),
        case(
            "integers and keys",
            "{ lambda ; p:i32[] k:key<fry>[] n:i32[] x:f64[]. let
                q:key<fry>[] m:i32[] y:f64[] = cond[branches=(
                  { lambda ; k:key<fry>[] n:i32[] x:f64[]. let m:i32[] = mul n 3:i32[];
                      f:f64[] = convert_element_type[new_dtype=float64 weak_type=False] m;
                      y:f64[] = mul x f; z:f64[] = sin y in (k, m, z) },
                  { lambda ; k:key<fry>[] n:i32[] x:f64[]. let q:key<fry>[] = random_fold_in k 5:i32[];
                      y:f64[] = exp x in (q, n, y) })] p k n x
                w:u32[2] = random_unwrap q
              in (w, m, y) }",
            vec![
                vec![i(0), key([1, 2]), i(2), f(0.4)],
                vec![i(1), key([3, 4]), i(3), f(0.5)],
                vec![i(0), key([5, 6]), i(4), f(-0.2)],
            ],
            true,
        ),
        case(
            "branches in branches",
            "let inner = { lambda ; q:i32[] x:f64[] w:f64[]. let
                 y:f64[] = cond[branches=({ lambda ; x:f64[] w:f64[]. let y:f64[] = sin x; z:f64[] = mul y w in (z,) },
                                          { lambda ; x:f64[] w:f64[]. let y:f64[] = mul x x in (y,) })] q x w
               in (y,) } in
             { lambda ; p:i32[] q:i32[] x:f64[] w:f64[]. let
                y:f64[] = cond[branches=({ lambda ; q:i32[] x:f64[] w:f64[]. let
                                             y:f64[] = jit[name=inner jaxpr=inner] q x w; z:f64[] = exp y in (z,) },
                                         inner)] p q x w
                z:f64[] = jit[name=inner jaxpr=inner] q y w
              in (y, z) }",
            vec![
                vec![i(0), i(0), f(0.4), f(0.9)],
                vec![i(0), i(1), f(0.5), f(0.3)],
                vec![i(1), i(0), f(-0.3), f(0.2)],
                vec![i(1), i(1), f(0.8), f(-0.7)],
            ],
            true,
        ),
        case(
            "one branch",
            "{ lambda ; p:i32[] x:f64[2]. let
                y:f64[2] = cond[branches=({ lambda ; x:f64[2]. let y:f64[2] = sin x in (y,) },)] p x
              in (y,) }",
            vec![vec![i(0), v(&[0.3, 0.4])], vec![i(5), v(&[0.1, 0.7])]],
            true,
        ),
        case(
            "weak in one branch",
            "{ lambda \"f\" ; p:i32[] x:f64[]. let
                y:~f64[] = cond[branches=({ lambda \"g\" ; x:f64[]. let
                    y:~f64[] = convert_element_type[new_dtype=float64 weak_type=True] x; z:~f64[] = sin y in (z,) },
                  { lambda \"h\" ; x:f64[]. let y:f64[] = cos x in (y,) })] p x
              in (y,) }",
            vec![vec![i(0), f(0.3)], vec![i(1), f(0.1)]],
            true,
        ),
        case(
            "a loop that ends for its own lanes",
            ENDLESS,
            vec![
                vec![i(0), f(0.3), f(1.7)],
                vec![i(1), f(0.1), f(1.9)],
                vec![i(0), f(-0.3), f(1.5)],
                vec![i(1), f(3.5), f(2.3)],
                vec![i(0), f(0.0), f(0.4)],
            ],
            true,
        ),
    ]
}

/// Multiplies until a limit is passed, which numbers below zero never do.
const ENDLESS: &str = "{ lambda ; p:i32[] x:f64[] w:f64[]. let
    y:f64[] z:f64[] = cond[branches=(
      { lambda ; x:f64[] w:f64[]. let y:f64[] = sin x; z:f64[] = mul y w in (y, z) },
      { lambda ; x:f64[] w:f64[]. let
          y:f64[] = while[
            body_jaxpr={ lambda ; w:f64[] x:f64[]. let y:f64[] = mul x w; z:f64[] = sin y; a:f64[] = mul z 0.1:f64[];
                b:f64[] = add y a in (b,) }
            body_nconsts=1
            cond_jaxpr={ lambda ; x:f64[]. let b:bool[] = lt x 4.0:f64[] in (b,) } cond_nconsts=0] w x
        in (y, w) })] p x w
  in (y, z) }";

fn named(program: &Program, name: &str) -> usize {
    program.equations.iter().filter(|equation| equation.op.name() == name).count()
}

/// Branches that might not end for other lanes, and those that are dearer for all
/// lanes than alone, run lane by lane.
#[test]
fn dear_branches_run_for_their_own_lanes() {
    let over = |text: &str| {
        let program = Program::parse(text).unwrap();
        let dims: Vec<Option<usize>> = program.inputs.iter().map(|_| Some(0)).collect();
        batch(&program, &Dim::Const(3), &dims, None, OutDims::Front).unwrap().0
    };
    let forms = |program: &Program| (named(program, "scan"), named(program, "select_n"));
    assert_eq!(forms(&over(ENDLESS)), (1, 0));
    let sized = |size: &str| {
        over(
            &"{ lambda ; p:i32[] x:f64[SIZE]. let
              y:f64[SIZE] = cond[branches=(
                { lambda ; x:f64[SIZE]. let y:f64[SIZE] = sin x; z:f64[SIZE] = exp y in (z,) },
                { lambda ; x:f64[SIZE]. let y:f64[SIZE] = cos x; z:f64[SIZE] = tanh y in (z,) },
                { lambda ; x:f64[SIZE]. let  in (x,) })] p x
              in (y,) }"
                .replace("SIZE", size),
        )
    };
    let (scans, selects) = forms(&sized("3"));
    assert!(scans == 0 && selects > 0);
    assert_eq!(forms(&sized("3000")), (1, 0));
    assert_eq!(forms(&sized("70,70")), (1, 0));
}

#[test]
fn derivatives() {
    cases().iter().for_each(check_derivatives);
}

#[test]
fn batches() {
    cases().iter().for_each(check_batches);
}

#[test]
fn parts() {
    cases().iter().for_each(check_parts);
}

fn branches(program: &Program) -> usize {
    program.equations.iter().filter(|equation| matches!(equation.op, Op::Cond(_))).count()
}

/// The root has no derivative where its lane does not take it.
#[test]
fn lanes_that_do_not_take_a_branch_get_no_nan_from_it() {
    let text = "{ lambda ; x:f64[]. let
        b:bool[] = gt x 0.0:f64[]
        p:i32[] = convert_element_type[new_dtype=int32 weak_type=False] b
        y:f64[] = cond[branches=({ lambda ; x:f64[]. let in (0.0:f64[],) },
                                 { lambda ; x:f64[]. let y:f64[] = sqrt x in (y,) })] p x
      in (y,) }";
    let program = Program::parse(text).unwrap();
    let over = |program: &Program| {
        let dims = vec![Some(0); program.inputs.len()];
        batch(program, &Dim::Const(2), &dims, None, OutDims::Front).unwrap().0
    };
    let batch_of_gradients = over(&vjp_program(&program, &[true], &[true]).unwrap());
    let gradient_of_batch = vjp_program(&over(&program), &[true], &[true]).unwrap();
    for both in [batch_of_gradients, gradient_of_batch] {
        for both in [optimise(&both, Default::default()).unwrap(), both] {
            let found = run(&both, &[v(&[-1.0, 1.0]), v(&[1.0, 1.0])]);
            assert_eq!(found[1].elements::<f64>().unwrap(), [0.0, 0.5]);
        }
    }
}

#[test]
fn an_index_of_all_lanes_keeps_the_branch() {
    let program = Program::parse(ROOT).unwrap();
    let (batched, dims) = batch(&program, &Dim::Const(3), &[None, Some(0)], None, OutDims::AsIs).unwrap();
    assert_eq!((branches(&batched), dims), (1, vec![Some(0)]));
    let (batched, _) = batch(&program, &Dim::Const(3), &[Some(0), None], None, OutDims::AsIs).unwrap();
    assert_eq!(branches(&batched), 0);
}

#[test]
fn operands_are_no_outputs_of_the_known_half() {
    // The exponential is an output and the factor an operand: nothing more is kept.
    let text = "{ lambda ; p:i32[] x:f64[] w:f64[]. let
        y:f64[] = cond[branches=({ lambda ; x:f64[] w:f64[]. let y:f64[] = mul x w in (y,) },
                                 { lambda ; x:f64[] w:f64[]. let y:f64[] = exp x in (y,) })] p x w
      in (y,) }";
    let linear = linearize(&Program::parse(text).unwrap(), &[false, true, false]).unwrap();
    let Op::Cond(first) = &linear.primal.equations[0].op else { panic!("{}", linear.primal) };
    assert_eq!(first.branches[0].outputs.len(), 1, "{}", linear.primal);
    assert_eq!(linear.residuals, 3, "{}", linear.primal);
}

#[test]
fn what_is_not_needed_goes() {
    let text = "{ lambda ; p:i32[] x:f64[] w:f64[] u:f64[]. let
        y:f64[] z:f64[] = cond[branches=(
          { lambda ; x:f64[] w:f64[] u:f64[]. let y:f64[] = sin x; z:f64[] = cos u in (y, z) },
          { lambda ; x:f64[] w:f64[] u:f64[]. let y:f64[] = sin w; z:f64[] = cos u in (y, z) })] p x w u
      in (y, z) }";
    let program = Program::parse(text).unwrap();
    let (smaller, kept) = dce_with(&program, &[true, false]).unwrap();
    assert_eq!(kept, [true, true, true, false]);
    let Op::Cond(op) = &smaller.equations[0].op else { panic!("{smaller}") };
    assert!(op.branches.iter().all(|branch| branch.inputs.len() == 2 && branch.equations.len() == 1));
    // What has nothing to lose stays the same object.
    let (again, _) = dce_with(&smaller, &[true]).unwrap();
    assert!(Arc::ptr_eq(again.equations[0].op.programs()[0], &op.branches[0]));
}

#[test]
fn an_index_that_is_known_leaves_the_branch_alone() {
    for (index, name) in [(1, "sqrt"), (9, "sqrt"), (0, "mul"), (-2, "mul")] {
        let program = Program::parse(&ROOT.replace("] p x", &format!("] {index}:i32[] x"))).unwrap();
        let simple = simplify(&program).unwrap();
        assert_eq!(simple.equations.len(), 1);
        assert_eq!(simple.equations[0].op.name(), name);
    }
    let three = "{ lambda ; x:f64[]. let
        y:f64[] = cond[branches=({ lambda ; x:f64[]. let y:f64[] = sin x in (y,) },
                                 { lambda ; x:f64[]. let y:f64[] = cos x in (y,) },
                                 { lambda ; x:f64[]. let y:f64[] = tan x in (y,) })] INDEX:i32[] x in (y,) }";
    for (index, name) in [(-1, "sin"), (0, "sin"), (1, "cos"), (2, "tan"), (3, "tan")] {
        let program = Program::parse(&three.replace("INDEX", &index.to_string())).unwrap();
        assert_eq!(simplify(&program).unwrap().equations[0].op.name(), name);
    }
}

#[test]
fn branches_are_decided_within_decided_branches() {
    let mut inner = "{ lambda ; x:f64[]. let y:f64[] = sin x in (y,) }".to_owned();
    for _ in 0..5 {
        inner = format!(
            "{{ lambda ; x:f64[]. let
                p:bool[] = gt 2.0:f64[] 1.0:f64[]
                i:i32[] = convert_element_type[new_dtype=int32 weak_type=False] p
                y:f64[] = cond[branches=({{ lambda ; x:f64[]. let y:f64[] = cos x in (y,) }}, {inner})] i x in (y,) }}"
        );
    }
    let program = Program::parse(&inner).unwrap();
    let simple = optimise(&program, Options::default()).unwrap();
    assert_eq!(simple.equations.len(), 1, "{simple}");
    assert_eq!(simple.equations[0].op.name(), "sin");
}

/// A tower: each level takes one of two programs, which both hold the level below.
fn tower(height: usize) -> Program {
    let mut b = Builder::new("ground");
    b.input(ArrayType::scalar(DType::I32));
    let x = b.input(scalar());
    let y = b.unary(ferrax_ir::ops::Unary::Sin, x).unwrap();
    let mut program = b.finish([y]);
    for _ in 0..height {
        let below = Arc::new(program);
        let mut b = Builder::new("level");
        let p = b.input(ArrayType::scalar(DType::I32));
        let x = b.input(scalar());
        let op = Cond { branches: vec![below.clone(), below.clone()] };
        let y = Atom::Var(b.emit(op, &[p, p, x]).unwrap()[0]);
        let call = Call { name: "below".into(), program: below, inline: false };
        let z = Atom::Var(b.emit(call, &[p, y]).unwrap()[0]);
        program = b.finish([z]);
    }
    program
}

/// How many programs there are in and under this one, each counted once.
fn distinct(program: &Program) -> usize {
    fn visit(program: &Program, seen: &mut Vec<*const Program>) {
        for equation in &program.equations {
            for callee in equation.op.programs() {
                if !seen.contains(&Arc::as_ptr(callee)) {
                    seen.push(Arc::as_ptr(callee));
                    visit(callee, seen);
                }
            }
        }
    }
    let mut seen = Vec::new();
    visit(program, &mut seen);
    seen.len()
}

#[test]
fn shared_branches_are_treated_once() {
    let program = tower(12);
    let (forward, _) = jvp(&program, &[false, true]).unwrap();
    assert!(distinct(&forward) <= 24);
    let (batched, _) = batch(&program, &Dim::Const(3), &[None, Some(0)], None, OutDims::AsIs).unwrap();
    assert!(distinct(&batched) <= 24);
    let (batched, _) = batch(&program, &Dim::Const(3), &[Some(0), Some(0)], None, OutDims::AsIs).unwrap();
    assert!(distinct(&batched) <= 48);
    let parts = partial_eval(&program, &[false, true]).unwrap();
    assert!(distinct(&parts.unknown) <= 60);
    let (smaller, _) = dce_with(&program, &[true]).unwrap();
    assert!(distinct(&smaller) <= 24);
}

#[test]
fn nesting_five_deep_costs_in_proportion() {
    // Each level stands alone: nothing is shared, so the result may grow with depth only.
    let nested = |depth: usize| {
        let mut text =
            "{ lambda ; p:i32[] x:f64[]. let y:f64[] = sin x; z:f64[] = mul y x in (z,) }".to_owned();
        for _ in 0..depth {
            text = format!(
                "{{ lambda ; p:i32[] x:f64[]. let y:f64[] = cond[branches=({text},
                   {{ lambda ; p:i32[] x:f64[]. let y:f64[] = exp x in (y,) }})] p p x; z:f64[] = cos y in (z,) }}"
            );
        }
        Program::parse(&text).unwrap()
    };
    let sizes = |depth: usize| {
        let program = nested(depth);
        let gradient = vjp_program(&program, &[false, true], &[true]).unwrap();
        let (batched, _) =
            batch(&gradient, &Dim::Const(2), &[Some(0), Some(0), Some(0)], None, OutDims::AsIs).unwrap();
        [gradient.size(), batched.size(), optimise(&gradient, Default::default()).unwrap().size()]
    };
    for (three, six) in sizes(3).into_iter().zip(sizes(6)) {
        // Residuals of a level pass through all levels above it.
        assert!(six <= 5 * three, "{three} {six}");
    }
}

#[test]
fn effects_stay_in_their_branches() {
    let text = "let loud = { lambda ; x:f64[]. let y:f64[] = mul x 2.0:f64[] in (y,) } in
        { lambda ; p:i32[] x:f64[] w:f64[]. let
            y:f64[] z:f64[] = cond[branches=(
              { lambda ; x:f64[] w:f64[]. let y:f64[] = jit[name=loud jaxpr=loud] x; z:f64[] = sin w in (y, z) },
              { lambda ; x:f64[] w:f64[]. let y:f64[] = jit[name=loud jaxpr=loud] w; z:f64[] = mul x y in (x, z) })]
              p x w
          in (y, z) }";
    let case = Case {
        name: "effects",
        program: with_effects(&Program::parse(text).unwrap()),
        lanes: vec![vec![i(0), f(0.3), f(0.5)], vec![i(1), f(0.7), f(0.2)]],
        reverse: false,
    };
    assert_eq!(effects(&case.program), 2);
    check_derivatives(&case);
    check_batches(&case);
    check_parts(&case);
    let program = &case.program;
    assert_eq!(effects(&dce_with(program, &[false, false]).unwrap().0), 2);
    assert_eq!(effects(&jvp(program, &[false, true, true]).unwrap().0), 2);
    let linear = linearize(program, &[false, true, true]).unwrap();
    assert_eq!((effects(&linear.primal), effects(&linear.linear)), (2, 0));
    // Both sides run where lanes differ.
    let dims = [Some(0), None, None];
    let (batched, _) = batch(program, &Dim::Const(2), &dims, None, OutDims::AsIs).unwrap();
    assert_eq!(effects(&batched), 2);
    let parts = partial_eval(program, &[false, true, false]).unwrap();
    assert_eq!((effects(&parts.known), effects(&parts.unknown)), (1, 1));
}
