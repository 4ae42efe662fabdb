//! Small sums over devices as one: how many there are then, and the bits of what they give.

use std::sync::Arc;

use ferrax_ir::verify::verify;
use ferrax_ir::{Dim, Program, Tensor, interpret};
use ferrax_transform::spmd::combine_sums;
use ferrax_transform::{OutDims, batch};

fn combined(text: &str) -> (Arc<Program>, Arc<Program>) {
    let program = Arc::new(Program::parse(text).unwrap());
    let combined = combine_sums(&program).unwrap();
    verify(&combined).unwrap();
    (program, combined)
}

fn sums(program: &Program) -> usize {
    let own = program.equations.iter().filter(|equation| equation.op.name().starts_with("psum")).count();
    let inner = program.equations.iter().flat_map(|equation| equation.op.programs());
    own + inner.map(|inner| sums(inner)).sum::<usize>()
}

/// What three devices make of their parts.
fn run(program: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    let dims = vec![Some(0); inputs.len()];
    let (program, _) = batch(program, &Dim::Const(3), &dims, Some("i"), OutDims::AsIs).unwrap();
    interpret::run(&program, inputs).unwrap()
}

fn parts(sizes: &[usize], first: f32) -> Tensor {
    let count = sizes.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|number| (first + number as f32).sin() * 1e3).collect();
    Tensor::from_elements(sizes, &values).unwrap()
}

#[test]
fn sums_are_made_at_the_first_use_of_one() {
    let text = "{ lambda ; a:f32[2,3] b:f32[] c:f32[4]. let
        x:f32[2,3] = psum_invariant[axes=(i,) axis_index_groups=None] a
        y:f32[] = psum_invariant[axes=(i,) axis_index_groups=None] b
        s:f32[4] = sin c
        z:f32[4] = psum_invariant[axes=(i,) axis_index_groups=None] s
        t:f32[2,3] = cos x
        w:f32[4] = psum_invariant[axes=(i,) axis_index_groups=None] z
        v:f32[] = psum_invariant[axes=(i,) axis_index_groups=None] b
      in (t, y, w, v) }";
    let (plain, combined) = combined(text);
    assert_eq!((sums(&plain), sums(&combined)), (5, 2));
    let inputs = [parts(&[3, 2, 3], 0.5), parts(&[3], 7.25), parts(&[3, 4], -3.0)];
    assert_eq!(run(&plain, &inputs), run(&combined, &inputs));
}

#[test]
fn each_dtype_and_set_of_axes_is_a_sum_of_its_own() {
    let text = "{ lambda ; a:f32[2] b:i32[2]. let
        x:f32[2] = psum_invariant[axes=(i,) axis_index_groups=None] a
        y:i32[2] = psum_invariant[axes=(i,) axis_index_groups=None] b
        z:f32[2] = psum_invariant[axes=(i, j) axis_index_groups=None] a
        u:f32[2] = psum[axes=(i,) axis_index_groups=((0, 1), (2,))] a
        v:f32[2] = pmax[axes=(i,) axis_index_groups=None] a
        w:i32[2] = psum_invariant[axes=(i,) axis_index_groups=None] b
      in (x, y, z, u, v, w) }";
    let (plain, combined) = combined(text);
    assert_eq!((sums(&plain), sums(&combined)), (5, 4));
}

#[test]
fn large_arrays_are_sent_alone() {
    for (size, expected) in [(16 << 10, 1), ((16 << 10) + 1, 2)] {
        let text = format!(
            "{{ lambda ; a:f32[{size}] b:f32[{size}]. let
                x:f32[{size}] = psum_invariant[axes=(i,) axis_index_groups=None] a
                y:f32[{size}] = psum_invariant[axes=(i,) axis_index_groups=None] b
              in (x, y) }}"
        );
        assert_eq!(sums(&combined(&text).1), expected);
    }
}

#[test]
fn loops_have_sums_of_their_own() {
    let text = "{ lambda ; a:f32[] b:f32[3]. let
        c:f32[] = scan[jaxpr={ lambda ; d:f32[] e:f32[]. let
            f:f32[] = psum_invariant[axes=(i,) axis_index_groups=None] e
            g:f32[] = psum_invariant[axes=(i,) axis_index_groups=None] d
            h:f32[] = add f g in (h,) }
          length=3 num_carry=1 num_consts=0 reverse=False unroll=1] a b
      in (c,) }";
    let (plain, combined) = combined(text);
    assert_eq!((sums(&plain), sums(&combined)), (2, 1));
    let inputs = [parts(&[3], 1.0), parts(&[3, 3], 2.0)];
    assert_eq!(run(&plain, &inputs), run(&combined, &inputs));
}
