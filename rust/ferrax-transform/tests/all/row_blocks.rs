//! Products over all pairs of rows that are computed by blocks, and those that must not be.

use crate::common::loops::*;
use crate::common::*;
use ferrax_ir::verify::verify;
use ferrax_ir::{Program, Type};
use ferrax_transform::{optimise, row_blocks, vjp_program};

/// Rows, of which 16 are a block and 4 are left over, and columns.
const ROWS: usize = 36;
const COLUMNS: usize = 32;

/// So much of a product that a block of 16 rows is all that fits.
const BYTES: usize = 16 * COLUMNS * 8 * 2;

const NUMBERS: &str = "precision=None preferred_element_type=float64";

/// `softmax(f(q k)) v` for two heads, where `steps` make `m` of the product `l`, and what else it gives.
fn attention(steps: &str, others: &str) -> Program {
    parse(&format!(
        "{{ lambda ; q:f64[2,{ROWS},3] k:f64[2,{COLUMNS},3] v:f64[2,{COLUMNS},4] r:f64[{ROWS},{COLUMNS}]. let
             l:f64[2,{ROWS},{COLUMNS}] = dot_general[dimension_numbers=(([2], [2]), ([0], [0])) {NUMBERS}] q k;
             {steps}
             t:f64[2,{ROWS}] = reduce_max[axes=(2,)] m;
             tt:f64[2,{ROWS},1] = broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(2, {ROWS}, 1)] t;
             u:f64[2,{ROWS},{COLUMNS}] = broadcast_in_dim[broadcast_dimensions=(0, 1, 2) shape=(2, {ROWS}, {COLUMNS})] tt;
             d:f64[2,{ROWS},{COLUMNS}] = sub m u;
             e:f64[2,{ROWS},{COLUMNS}] = exp d;
             s:f64[2,{ROWS}] = reduce_sum[axes=(2,)] e;
             z:f64[2,{ROWS},{COLUMNS}] = broadcast_in_dim[broadcast_dimensions=(0, 1) shape=(2, {ROWS}, {COLUMNS})] s;
             w:f64[2,{ROWS},{COLUMNS}] = div e z;
             o:f64[2,{ROWS},4] = dot_general[dimension_numbers=(([2], [1]), ([0], [0])) {NUMBERS}] w v
           in (o{others}) }}"
    ))
}

const ALONE: &str = "m:f64[2,36,32] = mul l 0.5:f64[];";

/// Where the column is not beyond the row; the others are a number.
const CAUSAL: &str = "i:i32[36,32] = iota[dimension=0 dtype=int32 shape=(36, 32)];
    j:i32[36,32] = iota[dimension=1 dtype=int32 shape=(36, 32)];
    c:bool[36,32] = le j i;
    cc:bool[2,36,32] = broadcast_in_dim[broadcast_dimensions=(1, 2) shape=(2, 36, 32)] c;
    n:f64[2,36,32] = broadcast_in_dim[broadcast_dimensions=() shape=(2, 36, 32)] -9.0:f64[];
    m:f64[2,36,32] = select_n cc n l;";

/// The same of indices that all heads have.
const CAUSAL_OF_HEADS: &str = "i:i32[2,36,32] = iota[dimension=1 dtype=int32 shape=(2, 36, 32)];
    j:i32[2,36,32] = iota[dimension=2 dtype=int32 shape=(2, 36, 32)];
    c:bool[2,36,32] = le j i;
    n:f64[2,36,32] = broadcast_in_dim[broadcast_dimensions=() shape=(2, 36, 32)] -9.0:f64[];
    m:f64[2,36,32] = select_n c n l;";

/// The elements of the largest array outside of loops.
fn largest(program: &Program) -> usize {
    let outputs = program.equations.iter().flat_map(|equation| &equation.outputs);
    let sizes = outputs.filter_map(|var| match &program.types[var.index()] {
        Type::Array(ty) => ty.sizes(),
        _ => None,
    });
    sizes.map(|sizes| sizes.iter().product()).max().unwrap()
}

/// The program by blocks: its values and those of its derivative are the same, and so large is nothing that it keeps.
fn by_blocks(program: &Program, loops: usize) -> Program {
    let blocks = row_blocks(program, BYTES).unwrap().unwrap_or_else(|| panic!("no blocks in {program}"));
    verify(&blocks).unwrap();
    let found = scans(&blocks);
    assert_eq!(found.len(), loops, "{blocks}");
    assert!(found.iter().all(|op| op.length.as_const() == Some(ROWS / 16)), "{blocks}");
    let inputs = Random::new(7).tensors(program.input_types());
    assert_same(&run(&blocks, &inputs), &run(program, &inputs), 1e-12, "blocks", &blocks);
    let derivative = |program: &Program| {
        let flags = (vec![true; program.inputs.len()], vec![true; program.outputs.len()]);
        vjp_program(program, &flags.0, &flags.1).unwrap()
    };
    let (ours, plain) = (derivative(&blocks), derivative(program));
    let inputs = Random::new(9).tensors(plain.input_types());
    assert_same(&run(&ours, &inputs), &run(&plain, &inputs), 1e-11, "derivative of blocks", &ours);
    let ours = optimise(&ours, Default::default()).unwrap();
    assert!(largest(&ours) < largest(program), "{ours}");
    blocks
}

#[test]
fn attention_goes_by_blocks() {
    by_blocks(&attention(ALONE, ""), 1);
    by_blocks(&attention(ALONE, ", s, t"), 1);
    by_blocks(
        &attention(
            "a:f64[2,36,32] = broadcast_in_dim[broadcast_dimensions=(1, 2) shape=(2, 36, 32)] r;
        m:f64[2,36,32] = add l a;",
            "",
        ),
        1,
    );
}

#[test]
fn masks_are_made_for_each_block() {
    for mask in [CAUSAL, CAUSAL_OF_HEADS] {
        let blocks = by_blocks(&attention(mask, ""), 1);
        assert!(largest(&blocks) < ROWS * COLUMNS, "{blocks}");
    }
}

#[test]
fn functions_are_looked_into() {
    let f = "jit[name=f jaxpr={ lambda ; a:f64[2,36,32]. let b:f64[2,36,32] = sin a in (b,) }]";
    by_blocks(&attention(&format!("m:f64[2,36,32] = {f} l;"), ""), 1);
}

#[test]
fn weights_that_are_asked_for_are_kept() {
    assert!(row_blocks(&attention(ALONE, ", w"), BYTES).unwrap().is_none());
}

#[test]
fn rows_that_are_mixed_are_not_cut() {
    let steps =
        "x:f64[2,36,32] = cumsum[axis=1 reverse=False] l; m:f64[2,36,32] = cumsum[axis=2 reverse=False] x;";
    assert!(row_blocks(&attention(steps, ""), BYTES).unwrap().is_none());
}

#[test]
fn small_products_and_layers_stay() {
    assert!(row_blocks(&attention(ALONE, ""), 2 * BYTES).unwrap().is_none());
    // Its contracted axis is not much shorter than what it makes.
    let layer = parse(&format!(
        "{{ lambda ; x:f64[640,8] w:f64[8,32] v:f64[32,8]. let
             h:f64[640,32] = dot_general[dimension_numbers=(([1], [0]), ([], [])) {NUMBERS}] x w;
             a:f64[640,32] = tanh h;
             y:f64[640,8] = dot_general[dimension_numbers=(([1], [0]), ([], [])) {NUMBERS}] a v
           in (y,) }}"
    ));
    assert!(row_blocks(&layer, BYTES).unwrap().is_none());
}

/// Sums of a kernel of distances: the rows are those of one array, which all blocks take whole, too.
#[test]
fn pairs_of_one_array_go_by_blocks() {
    let program = parse(&format!(
        "{{ lambda ; x:f64[36,2] y:f64[36]. let
             p:f64[36,36] = dot_general[dimension_numbers=(([1], [1]), ([], [])) {NUMBERS}] x x;
             q:f64[36,36] = sin p;
             s:f64[36] = dot_general[dimension_numbers=(([1], [0]), ([], [])) {NUMBERS}] q y
           in (s,) }}"
    ));
    by_blocks(&program, 1);
    // By the other axis.
    let turned = program.to_string().replace("([1], [0])", "([0], [0])");
    by_blocks(&parse(&turned), 1);
}

#[test]
fn layers_that_follow_one_another_have_a_loop_each() {
    let program = parse(&format!(
        "{{ lambda ; x:f64[36,2] w:f64[2,2]. let
             p:f64[36,36] = dot_general[dimension_numbers=(([1], [1]), ([], [])) {NUMBERS}] x x;
             q:f64[36,36] = sin p;
             s:f64[36,2] = dot_general[dimension_numbers=(([1], [0]), ([], [])) {NUMBERS}] q x;
             a:f64[36,2] = mul s 0.125:f64[];
             h:f64[36,2] = dot_general[dimension_numbers=(([1], [0]), ([], [])) {NUMBERS}] a w;
             r:f64[36,36] = dot_general[dimension_numbers=(([1], [1]), ([], [])) {NUMBERS}] h h;
             t:f64[36,36] = cos r;
             y:f64[36,2] = dot_general[dimension_numbers=(([1], [0]), ([], [])) {NUMBERS}] t h
           in (y,) }}"
    ));
    by_blocks(&program, 2);
}
