//! What takes an invocation many steps on a GPU: some leave loops after 65,535 of them, and say nothing.

use crate::gpu::{device, run};
use ferrax_ir::{DType, Program, Tensor};

fn only(text: &str, inputs: &[Tensor]) -> Tensor {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    run(&device(), &program, inputs).unwrap_or_else(|error| panic!("{error}\n{text}")).remove(0)
}

/// As the CPU, whose results are bit for bit those of sums and exact ones of whole numbers.
fn check(text: &str, inputs: &[Tensor]) {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let wanted = ferrax_cpu::compile(&program).unwrap().run(inputs).unwrap().into_vec().remove(0);
    let got = only(text, inputs);
    assert!(got == wanted, "{text}: {got:?} for {wanted:?}");
}

/// Numbers whose sums are exact.
fn small_numbers(sizes: &[usize]) -> Tensor {
    let count = sizes.iter().product::<usize>();
    let numbers: Vec<f32> = (0..count).map(|k| ((k * 7 + k / 13) % 3) as f32).collect();
    Tensor::from_elements(sizes.to_vec(), &numbers).unwrap()
}

#[test]
fn sums_of_long_columns() {
    let column = small_numbers(&[150_000, 65]);
    check(
        "{ lambda ; a:f32[150000,65]. let b:f32[65] = reduce_sum[axes=(0,)] a in (b,) }",
        std::slice::from_ref(&column),
    );
    check("{ lambda ; a:f32[150000,65]. let b:f32[65] = reduce_max[axes=(0,)] a in (b,) }", &[column]);
}

#[test]
fn products_of_many_terms() {
    for (rows, columns) in [(2, 3), (70, 80)] {
        let (left, right) = (small_numbers(&[rows, 100_001]), small_numbers(&[100_001, columns]));
        check(
            &format!(
                "{{ lambda ; a:f32[{rows},100001] b:f32[100001,{columns}]. let c:f32[{rows},{columns}] = \
                 dot_general[dimension_numbers=(([1], [0]), ([], [])) precision=None preferred_element_type=float32] a b in (c,) }}"
            ),
            &[left, right],
        );
    }
}

/// All updates go to one place, or to two.
#[test]
fn scatters_to_one_place() {
    for of in [1, 2] {
        let places: Vec<i32> = (0..150_000).map(|k| k % of).collect();
        let inputs = [
            Tensor::zeros(DType::I32, vec![3]).unwrap(),
            Tensor::from_elements(vec![150_000, 1], &places).unwrap(),
            Tensor::from_elements(vec![150_000], &vec![1i32; 150_000]).unwrap(),
        ];
        check(
            "{ lambda ; a:i32[3] b:i32[150000,1] c:i32[150000]. let
                x:i32[3] = scatter_add[update_window_dims=() inserted_window_dims=(0,) scatter_dims_to_operand_dims=(0,)
                  operand_batching_dims=() scatter_indices_batching_dims=() mode=clip unique_indices=False
                  indices_are_sorted=False] a b c in (x,) }",
            &inputs,
        );
    }
}

/// Larger matrices than a workgroup of such a GPU has time for are factorised all the same.
#[test]
fn factors_of_matrices() {
    for size in [100, 180, 256] {
        let numbers: Vec<f32> = (0..size * size)
            .map(|k| {
                let (row, column) = (k / size, k % size);
                if row == column { 2.0 * size as f32 } else { ((row * column) % 5) as f32 - 2.0 }
            })
            .collect();
        let matrix = Tensor::from_elements(vec![size, size], &numbers).unwrap();
        let ty = format!("f32[{size},{size}]");
        for op in ["cholesky", "geqrf"] {
            let second = if op == "geqrf" { format!(" t:f32[{size}]") } else { String::new() };
            let text = format!("{{ lambda ; a:{ty}. let b:{ty}{second} = {op} a in (b,) }}");
            let program = Program::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let inputs = [matrix.clone()];
            let wanted = ferrax_cpu::compile(&program).unwrap().run(&inputs).unwrap().into_vec().remove(0);
            let got = only(&text, &inputs);
            let pairs = got.elements::<f32>().unwrap().iter().zip(wanted.elements::<f32>().unwrap());
            let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-2, "{op} of {size}: {apart}");
        }
    }
}
