//! Thresholds change no bit: programs computed with every way taken from a few elements on, with the usual thresholds,
//! and with none taken.

mod common;

use common::{Random, arguments, attention, on_each_tuning, softmax};
use ferrax_ir::Program;

/// One program for each op.
const OPS: &str = include_str!("../../ferrax-ir/tests/support/every_op.txt");

fn same(program: &Program, seed: u64) {
    on_each_tuning(program, &arguments(program, seed));
}

fn same_text(text: &str) {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for seed in 0..2 {
        same(&program, seed);
    }
}

#[test]
fn every_op() {
    let mut runs = 0;
    for text in OPS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let program = Program::parse(text).unwrap();
        // Collectives and what Python defines are not for a machine.
        let Some(executable) =
            program.effects.is_empty().then(|| ferrax_cpu::compile(&program).ok()).flatten()
        else {
            continue;
        };
        for seed in 0..3 {
            // Bounds of loops are not for all numbers.
            if executable.run(&arguments(&program, seed)).is_ok() {
                same(&program, seed);
                runs += 1;
            }
        }
    }
    assert!(runs > 300, "{runs}");
}

#[test]
fn rows_together() {
    for sizes in [&[7, 5][..], &[2, 3, 4], &[33, 65], &[1, 9], &[300, 11], &[5, 1, 130], &[2000, 300]] {
        same(&softmax(sizes), 1);
    }
    for (heads, places, width) in [(1, 5, 3), (3, 8, 4), (2, 33, 16), (1, 70, 8)] {
        same(&attention(heads, places, width), 2);
    }
}

#[test]
fn reductions() {
    for sizes in ["5", "3,7", "300,9", "9,300", "4,5,6", "2,130,3", "70000", "3,5000", "5000,3", "16,4,16"] {
        let rank = sizes.split(',').count();
        for axes in 1..1usize << rank {
            let axes: Vec<usize> = (0..rank).filter(|axis| axes >> axis & 1 == 1).collect();
            let kept: Vec<&str> = sizes
                .split(',')
                .enumerate()
                .filter(|(axis, _)| !axes.contains(axis))
                .map(|(_, size)| size)
                .collect();
            let (kept, axes): (String, String) =
                (kept.join(","), axes.iter().map(|axis| format!("{axis},")).collect());
            for (op, dtype) in [
                ("reduce_sum", "f32"),
                ("reduce_sum", "bf16"),
                ("reduce_prod", "f64"),
                ("reduce_max", "f32"),
                ("reduce_sum", "i32"),
                ("reduce_sum", "c64"),
            ] {
                same_text(&format!(
                    "{{ lambda ; a:{dtype}[{sizes}]. let x:{dtype}[{kept}] = {op}[axes=({axes})] a in (x,) }}"
                ));
                same_text(&format!(
                    "{{ lambda ; a:{dtype}[{sizes}]. let b:{dtype}[{sizes}] = mul a a; x:{dtype}[{kept}] = \
                     {op}[axes=({axes})] b in (x, b) }}"
                ));
            }
        }
    }
}

/// Lines that are read as rows or as columns, of sizes at which tiles, blocks and segments end anywhere.
#[test]
fn reductions_of_turned_arrays() {
    for (sizes, order) in [
        ([3, 150, 40], [0, 1, 2]),
        ([40, 3, 150], [2, 0, 1]),
        ([70, 5, 90], [2, 1, 0]),
        ([130, 131, 1], [1, 0, 2]),
        ([9, 100, 600], [1, 0, 2]),
    ] {
        let turned = order.map(|axis| sizes[axis]);
        for axes in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
            let text = |numbers: &[usize]| {
                numbers
                    .iter()
                    .map(|number| format!("{number},"))
                    .collect::<String>()
                    .trim_end_matches(',')
                    .to_string()
            };
            let kept: Vec<usize> =
                (0..3).filter(|axis| !axes.contains(axis)).map(|axis| turned[axis]).collect();
            let (from, to, kept) = (text(&sizes), text(&turned), text(&kept));
            let (order, axes) =
                (text(&order), axes.iter().map(|axis| format!("{axis},")).collect::<String>());
            for (op, dtype) in [
                ("reduce_sum", "f32"),
                ("reduce_sum", "f64"),
                ("reduce_sum", "bf16"),
                ("reduce_sum", "i32"),
                ("reduce_max", "i8"),
            ] {
                same_text(&format!(
                    "{{ lambda ; a:{dtype}[{from}]. let b:{dtype}[{to}] = transpose[permutation=({order})] a; \
                     x:{dtype}[{kept}] = {op}[axes=({axes})] b in (x,) }}"
                ));
            }
        }
    }
}

/// Of a line any number of elements is asked for, up to all; pieces of it need not be as long as others.
#[test]
fn any_number_of_the_largest() {
    for dtype in ["f32", "i32", "bf16", "u8", "f64"] {
        for (count, length) in [(1, 9), (1, 64), (1, 301), (3, 40), (5, 7)] {
            for k in [1, 2, length / 2, length / 2 + 1, length - 1, length] {
                same_text(&format!(
                    "{{ lambda ; a:{dtype}[{count},{length}]. let x:{dtype}[{count},{k}] y:i32[{count},{k}] = \
                     top_k[axis=1 k={k}] a in (x, y) }}"
                ));
            }
        }
    }
}

/// Within a panel the order of terms is that of the sizes, whatever pieces a product is cut into.
#[test]
fn products() {
    let mut random = Random::new(5);
    let mut sizes =
        vec![[3, 40, 5], [17, 64, 33], [40, 700, 9], [64, 64, 64], [5, 5000, 7], [2, 9000, 2], [130, 31, 3]];
    sizes.extend((0..30).map(|_| [1 + random.below(60), 1 + random.below(600), 1 + random.below(60)]));
    for [m, k, n] in sizes {
        for dtype in ["f32", "f64", "c64", "i32", "bf16"] {
            for (axes, of_batch, right) in [
                ("(([1], [0]), ([], []))", "", format!("{k},{n}")),
                ("(([1], [1]), ([], []))", "", format!("{n},{k}")),
                ("(([2], [1]), ([0], [0]))", "3,", format!("{k},{n}")),
            ] {
                same_text(&format!(
                    "{{ lambda ; a:{dtype}[{of_batch}{m},{k}] b:{dtype}[{of_batch}{right}]. let \
                     x:{dtype}[{of_batch}{m},{n}] = dot_general[dimension_numbers={axes} precision=None \
                     preferred_element_type=None] a b in (x,) }}"
                ));
            }
        }
    }
}

#[test]
fn library_kernels() {
    for dtype in ["f32", "i32", "bf16", "u8", "f64"] {
        for (sizes, axis) in [("300", 0), ("5,70", 1), ("70,5", 0), ("3,40,7", 1), ("9000", 0)] {
            let sorted = "is_stable=True num_keys=1";
            same_text(&format!(
                "{{ lambda ; a:{dtype}[{sizes}]. let x:{dtype}[{sizes}] = sort[dimension={axis} {sorted}] a in (x,) }}"
            ));
            same_text(&format!(
                "{{ lambda ; a:{dtype}[{sizes}] b:i32[{sizes}]. let x:{dtype}[{sizes}] y:i32[{sizes}] = \
                 sort[dimension={axis} {sorted}] a b in (x, y) }}"
            ));
            let largest: Vec<&str> = sizes
                .split(',')
                .enumerate()
                .map(|(number, size)| if number == axis { "6" } else { size })
                .collect();
            let largest = largest.join(",");
            same_text(&format!(
                "{{ lambda ; a:{dtype}[{sizes}]. let x:{dtype}[{largest}] y:i32[{largest}] = top_k[axis={axis} k=6] \
                 a in (x, y) }}"
            ));
            same_text(&format!(
                "{{ lambda ; a:{dtype}[{sizes}]. let x:{dtype}[{sizes}] = cumsum[axis={axis} reverse=False] a in (x,) }}"
            ));
        }
    }
    for (kind, from, to) in [
        (0, "c64[3,10,21]", "c64[3,10,21]"),
        (2, "f32[3,10,20]", "c64[3,10,11]"),
        (3, "c64[3,10,11]", "f32[3,10,20]"),
    ] {
        let last = if kind == 0 { 21 } else { 20 };
        same_text(&format!(
            "{{ lambda ; a:{from}. let x:{to} = fft[fft_lengths=(10, {last}) fft_type={kind}] a in (x,) }}"
        ));
    }
    for (groups, features, outputs) in [(1, 3, 20), (4, 4, 4), (2, 6, 4)] {
        let each = features / groups;
        let numbers = "((0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))";
        same_text(&format!(
            "{{ lambda ; a:f32[2,{features},19,23] b:f32[{outputs},{each},3,4]. let c:f32[2,{outputs},17,20] = \
             conv_general_dilated[batch_group_count=1 dimension_numbers={numbers} feature_group_count={groups} \
             lhs_dilation=(1, 1) padding=((0, 0), (0, 0)) precision=None preferred_element_type=None \
             rhs_dilation=(1, 1) window_strides=(1, 1)] a b in (c,) }}"
        ));
    }
    for (count, width) in [(40, 1), (40, 9), (7, 200)] {
        same_text(&format!(
            "{{ lambda ; a:f32[31,{width}] b:i32[{count},1]. let x:f32[{count},{width}] = gather[offset_dims=(1,) \
             collapsed_slice_dims=(0,) start_index_map=(0,) operand_batching_dims=() start_indices_batching_dims=() \
             slice_sizes=(1, {width}) mode=fill fill_value=nan:f32[] unique_indices=False indices_are_sorted=False] a b in (x,) }}"
        ));
        for op in ["scatter_add", "scatter", "scatter_mul"] {
            same_text(&format!(
                "{{ lambda ; a:f32[31,{width}] b:i32[{count},1] c:f32[{count},{width}]. let x:f32[31,{width}] = \
                 {op}[update_window_dims=(1,) inserted_window_dims=(0,) scatter_dims_to_operand_dims=(0,) \
                 operand_batching_dims=() scatter_indices_batching_dims=() mode=fill unique_indices=False \
                 indices_are_sorted=False] a b c in (x,) }}"
            ));
        }
    }
    for op in ["cholesky a in (x,)", "eigh[lower=True sort_eigenvalues=True] a in (x, y)"] {
        for (count, rows) in [(50, 3), (3, 20)] {
            let more = if op.starts_with("eigh") { format!(" y:f32[{count},{rows}]") } else { String::new() };
            same_text(&format!(
                "{{ lambda ; a:f32[{count},{rows},{rows}]. let x:f32[{count},{rows},{rows}]{more} = {op} }}"
            ));
        }
    }
}
