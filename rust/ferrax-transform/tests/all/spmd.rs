//! How arrays are cut over a mesh of 4 by 2: axes 0 and 1.

use ferrax_ir::rules::Extents;
use ferrax_ir::shard_rule::{Cut, ShardRule};
use ferrax_ir::{DType, Op, Program, View};
use ferrax_transform::spmd::{Spec, Stated, propagate};

const MESH: [usize; 2] = [4, 2];

fn spec(axes: &[&[u8]]) -> Spec {
    axes.iter().map(|axes| axes.iter().copied().collect()).collect()
}

fn cut(text: &str, inputs: &[Option<Spec>]) -> Vec<Spec> {
    let program: Program = text.parse().unwrap();
    propagate(&program, &MESH, inputs, &mut |_| Ok(None)).unwrap()
}

#[test]
fn results_are_cut_as_operands() {
    let text = "{ lambda ; a:f32[8,16] b:f32[16,4]. let
        c:f32[8,16] = sin a
        d:f32[8,4] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())) precision=None
          preferred_element_type=None] c b
        e:f32[16] = reduce_sum[axes=(0,)] c
      in (d, e) }";
    let found = cut(text, &[Some(spec(&[&[0], &[1]])), Some(spec(&[&[1], &[]]))]);
    assert_eq!(found, [spec(&[&[0], &[]]), spec(&[&[1]])]);
}

#[test]
fn what_is_open_is_cut_as_what_is_made_of_it() {
    let text = "{ lambda ; a:f32[8] b:f32[8]. let c:f32[8] = sin b; d:f32[8] = add a c in (d, c) }";
    let text = text.replace("; d", "\n        d");
    let found = cut(&text, &[Some(spec(&[&[0, 1]])), None]);
    assert_eq!(found, [spec(&[&[0, 1]]), spec(&[&[0, 1]])]);
}

#[test]
fn outputs_whose_sizes_parts_do_not_divide_are_cut_as_far_as_they_do() {
    let text = "{ lambda ; a:f32[8,6]. let
        b:f32[10,6] = pad[padding_config=((1, 1, 0), (0, 0, 0))] a 0.0:f32[]
      in (b,) }";
    assert_eq!(cut(text, &[Some(spec(&[&[1, 0], &[]]))]), [spec(&[&[1], &[]])]);
    assert_eq!(cut(text, &[Some(spec(&[&[0], &[1]]))]), [spec(&[&[], &[1]])]);
}

#[test]
fn what_equations_say_stays() {
    let program: Program =
        "{ lambda ; a:f32[8]. let b:f32[8] = sin a\n c:f32[8] = cos b in (a, c) }".parse().unwrap();
    for (passes, of_input) in [(true, spec(&[&[1]])), (false, spec(&[&[]]))] {
        let mut asked = |equation: &ferrax_ir::Equation| {
            let said = || Stated { results: vec![Some(spec(&[&[1]]))], closed: true, passes, body: None };
            Ok((equation.op.name() == "sin").then(said))
        };
        let found = propagate(&program, &MESH, &[None], &mut asked).unwrap();
        assert_eq!(found, [of_input, spec(&[&[1]])]);
    }
}

fn rule(op: &Op, inputs: &[&[usize]], output: &[usize]) -> ShardRule {
    let extents = |sizes| Extents { dtype: DType::F32, sizes };
    let View::Leaf(row) = op.view() else { panic!("{op:?}") };
    let inputs: Vec<_> = inputs.iter().copied().map(extents).collect();
    row.shard(&inputs, &[extents(output)]).unwrap()
}

fn reshape(from: &[usize], to: &[usize]) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let new_sizes = to.iter().map(|&size| ferrax_ir::Dim::Const(size)).collect();
    let rule = rule(&ferrax_ir::ops::Reshape { new_sizes, dimensions: None }.into(), &[from], to);
    let sizes = |array: &ferrax_ir::shard_rule::ArrayFactors| {
        let of = |&number: &u16| rule.factors[usize::from(number)];
        let passing =
            |factors: &[u16]| factors.iter().map(of).filter(|f| f.cut == Cut::Pass).map(|f| f.size).collect();
        array.iter().map(|factors| passing(factors)).collect()
    };
    (sizes(&rule.operands[0]), sizes(&rule.results[0]))
}

#[test]
fn reshapes_are_cut_into_common_divisors() {
    assert_eq!(reshape(&[8, 16], &[128]), (vec![vec![8], vec![16]], vec![vec![8, 16]]));
    assert_eq!(reshape(&[12], &[4, 3]), (vec![vec![4, 3]], vec![vec![4], vec![3]]));
    assert_eq!(reshape(&[6, 2], &[4, 3]), (vec![vec![2], vec![]], vec![vec![2], vec![]]));
    assert_eq!(reshape(&[1, 5, 1], &[5]), (vec![vec![], vec![5], vec![]], vec![vec![5]]));
    assert_eq!(
        reshape(&[2, 3, 5], &[3, 2, 5]),
        (vec![vec![], vec![], vec![5]], vec![vec![], vec![], vec![5]])
    );
    assert_eq!(reshape(&[0, 4], &[4, 0]).0, vec![Vec::<usize>::new(); 2]);
}
