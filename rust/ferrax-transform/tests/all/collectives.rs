//! Ops over named axes: what a batch over their axis, or over another one, makes of them.

use ferrax_ir::{Dim, Error, Program, Tensor, interpret};
use ferrax_transform::{OutDims, batch, jvp, optimise, vjp_program};

fn lanes(text: &str, size: usize, dims: &[Option<usize>], axis: &str) -> (Program, Vec<Option<usize>>) {
    batch(&Program::parse(text).unwrap(), &Dim::Const(size), dims, Some(axis), OutDims::AsIs).unwrap()
}

fn names(program: &Program) -> Vec<String> {
    program.equations.iter().map(|equation| equation.op.name().to_owned()).collect()
}

fn f32s(sizes: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_elements(sizes, values).unwrap()
}

const SUM: &str = "{ lambda ; a:f32[]. let x:f32[] = psum[axes=(i, j) axis_index_groups=None] a in (x,) }";

#[test]
fn each_axis_is_replaced_in_its_turn() {
    let (first, dims) = lanes(SUM, 2, &[Some(0)], "i");
    assert_eq!((names(&first), dims), (vec!["reduce_sum".to_owned(), "psum".to_owned()], vec![None]));
    let (second, dims) = batch(&first, &Dim::Const(3), &[Some(0)], Some("j"), OutDims::AsIs).unwrap();
    assert_eq!((dims, second.effects.len()), (vec![None], 0));
    let total = interpret::run(&second, &[f32s(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]).unwrap();
    assert_eq!(total[0], f32s(&[], &[21.0]));
}

#[test]
fn an_axis_of_another_name_is_kept() {
    for axis in ["k", ""] {
        let (kept, dims) = lanes(SUM, 2, &[Some(0)], axis);
        assert_eq!((names(&kept), dims), (vec!["psum".to_owned()], vec![Some(0)]));
        assert_eq!(kept.effects.len(), 2);
    }
}

#[test]
fn a_rotation_moves_two_slices() {
    let text = "{ lambda ; a:f32[]. let x:f32[] = \
                ppermute[axis_name=(i,) perm=((0, 1), (1, 2), (2, 3), (3, 0))] a in (x,) }";
    let (rotated, dims) = lanes(text, 4, &[Some(0)], "i");
    assert_eq!(
        (names(&rotated), dims),
        (["slice", "slice", "concatenate"].map(String::from).to_vec(), vec![Some(0)])
    );
    let result = interpret::run(&rotated, &[f32s(&[4], &[0.0, 1.0, 2.0, 3.0])]).unwrap();
    assert_eq!(result[0], f32s(&[4], &[3.0, 0.0, 1.0, 2.0]));
}

#[test]
fn a_carry_that_is_made_of_all_lanes_is_not_batched() {
    let text = "{ lambda ; a:f32[] b:f32[3]. let c:f32[] = scan[jaxpr={ lambda ; d:f32[] e:f32[]. let \
                f:f32[] = mul d e; g:f32[] = psum[axes=(i,) axis_index_groups=None] f in (g,) } \
                length=3 num_carry=1 num_consts=0 reverse=False unroll=1] a b in (c,) }";
    let (batched, dims) = lanes(text, 2, &[None, Some(0)], "i");
    assert_eq!(dims, [None]);
    let steps = f32s(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let result = interpret::run(&batched, &[f32s(&[], &[1.0]), steps]).unwrap();
    assert_eq!(result[0], f32s(&[], &[5.0 * 7.0 * 9.0]));
}

#[test]
fn the_number_of_the_lane_is_batched_without_any_batched_input() {
    let text = "{ lambda ; a:i32[]. let b:i32[] = scan[jaxpr={ lambda ; c:i32[]. let d:i32[] = axis_index[axis_name=i]; \
                e:i32[] = add c d in (e,) } length=3 num_carry=1 num_consts=0 reverse=False unroll=1] a in (b,) }";
    let (batched, dims) = lanes(text, 3, &[None], "i");
    assert_eq!(dims, [Some(0)]);
    let zero = Tensor::from_elements(&[][..], &[0i32]).unwrap();
    let result = interpret::run(&batched, &[zero]).unwrap();
    assert_eq!(result[0], Tensor::from_elements(&[3][..], &[0i32, 3, 6]).unwrap());
}

#[test]
fn nothing_runs_without_its_axis() {
    let program = Program::parse(SUM).unwrap();
    let refused = interpret::run(&program, &[f32s(&[], &[1.0])]).unwrap_err();
    assert!(matches!(&refused, Error::Name(text) if text.contains("unbound axis name: i, j")), "{refused}");
}

#[test]
fn unused_collectives_go_away() {
    let text = "{ lambda ; a:f32[]. let x:f32[] = psum[axes=(i,) axis_index_groups=None] a; y:f32[] = neg a in (y,) }";
    let small = optimise(&Program::parse(text).unwrap(), Default::default()).unwrap();
    assert_eq!((names(&small), small.effects.len()), (vec!["neg".to_owned()], 0));
}

#[test]
fn derivatives_are_collectives() {
    let program = Program::parse(SUM).unwrap();
    let (forward, given) = jvp(&program, &[true]).unwrap();
    assert_eq!(names(&forward), ["psum", "psum"]);
    let reverse = vjp_program(&program, &[true], &given).unwrap();
    assert!(names(&reverse).iter().all(|name| name == "psum"), "{reverse}");
}

#[test]
fn groups_talk_among_themselves() {
    let text = "{ lambda ; a:f32[]. let x:f32[] = psum[axes=(i,) axis_index_groups=((0, 3), (2,), (1,))] a in (x,) }";
    let (sums, dims) = lanes(text, 4, &[Some(0)], "i");
    let result = interpret::run(&sums, &[f32s(&[4], &[1.0, 2.0, 4.0, 8.0])]).unwrap();
    assert_eq!((&result[0], dims), (&f32s(&[4], &[9.0, 2.0, 4.0, 9.0]), vec![Some(0)]));
}
