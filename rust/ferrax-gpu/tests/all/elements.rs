//! Kernels over elements on a GPU, whatever their width, number and place in memory: what the interpreter gives.

use std::sync::Arc;

use crate::common::{arguments, compare};
use crate::gpu::{device, run};
use ferrax_compile::device::Attached;
use ferrax_gpu::Gpu;
use ferrax_ir::{Program, Tensor, interpret};

const DTYPES: [&str; 15] = [
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bf16", "f16", "f32", "f64", "c64", "c128",
];

fn check(device: &Arc<Attached<Gpu>>, text: &str) {
    let program = Program::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let inputs = arguments(&program, 7);
    let wanted = interpret::run(&program, &inputs).unwrap();
    let got = run(device, &program, &inputs).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for (number, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        compare(got, wanted, 2, &format!("output {number} of {text}"));
    }
}

/// What two arrays give together.
fn both(dtype: &str) -> &'static str {
    match dtype {
        "c64" | "c128" => "add",
        _ => "max",
    }
}

#[test]
fn lines_of_any_length() {
    let device = device();
    for dtype in DTYPES {
        for length in [0, 1, 2, 3, 4, 5, 7, 8, 9, 17, 63, 64, 257, 1003] {
            let ty = format!("{dtype}[{length}]");
            check(
                &device,
                &format!("{{ lambda ; a:{ty} b:{ty}. let c:{ty} = {} a b in (c,) }}", both(dtype)),
            );
        }
    }
}

/// Some operands are neighbours in memory and others are not; what is beside a written part stays as it is.
#[test]
fn parts_of_arrays() {
    let device = device();
    for dtype in DTYPES {
        let op = both(dtype);
        for (rows, columns) in [(3, 8), (8, 3), (5, 4), (1, 12), (6, 1)] {
            let (whole, line, column) = (
                format!("{dtype}[{rows},{columns}]"),
                format!("{dtype}[{columns}]"),
                format!("{dtype}[{rows}]"),
            );
            check(
                &device,
                &format!(
                    "{{ lambda ; a:{whole} b:{line} c:{column} d:{dtype}[{columns},{rows}]. let
                        e:{whole} = broadcast_in_dim[shape=({rows}, {columns}) broadcast_dimensions=(1,)] b
                        f:{whole} = broadcast_in_dim[shape=({rows}, {columns}) broadcast_dimensions=(0,)] c
                        g:{whole} = transpose[permutation=(1, 0)] d
                        h:{whole} = rev[dimensions=(1,)] a
                        i:{whole} = {op} a e
                        j:{whole} = {op} i f
                        k:{whole} = {op} j g
                        l:{whole} = {op} k h in (i, l, k) }}"
                ),
            );
        }
        for (first, second) in [(4, 4), (4, 5), (5, 4), (3, 2), (8, 1)] {
            let (a, b, both) = (
                format!("{dtype}[2,{first}]"),
                format!("{dtype}[2,{second}]"),
                format!("{dtype}[2,{}]", first + second),
            );
            let last = first + second;
            check(
                &device,
                &format!(
                    "{{ lambda ; a:{a} b:{b}. let
                        c:{a} = {op} a a
                        d:{b} = {op} b b
                        e:{both} = concatenate[dimension=1] c d
                        f:{dtype}[2,{}] = slice[start_indices=(0, 1) limit_indices=(2, {last}) strides=None] e
                        g:{dtype}[2,{}] = pad[padding_config=((0, 0, 0), (1, 3, 0))] a {} in (e, f, g) }}",
                    last - 1,
                    first + 4,
                    zero(dtype),
                ),
            );
        }
    }
}

fn zero(dtype: &str) -> String {
    let value = match dtype {
        "bool" => "False",
        "c64" | "c128" => "(0+0j)",
        _ if dtype.contains('f') => "0.0",
        _ => "0",
    };
    format!("{value}:{dtype}[]")
}

/// Where there are many elements an invocation has several.
#[test]
fn many_elements() {
    let device = device();
    for dtype in ["f32", "f16", "i8", "c64", "f64"] {
        for (rows, columns) in [(1, (1 << 18) + 3), (512, 516), (515, 513)] {
            let (whole, line) = (format!("{dtype}[{rows},{columns}]"), format!("{dtype}[{columns}]"));
            let op = both(dtype);
            check(
                &device,
                &format!(
                    "{{ lambda ; a:{whole} b:{line}. let
                        c:{whole} = broadcast_in_dim[shape=({rows}, {columns}) broadcast_dimensions=(1,)] b
                        d:{whole} = {op} a c
                        e:{whole} = add d d in (e,) }}"
                ),
            );
        }
    }
}

/// An array that has more bytes than a binding of this GPU is bound in pieces: its elements are found in all of them.
#[test]
fn arrays_larger_than_a_binding() {
    let device = device();
    let length = 40_000_000;
    let text = format!(
        "{{ lambda ; a:f32[{length}]. let
            b:f32[{length}] = add a a
            c:f32[{length}] = rev[dimensions=(0,)] b
            d:f32[5] = slice[start_indices=(1,) limit_indices=({length},) strides=(9999999,)] c
            e:f32[5] = slice[start_indices=(33554430,) limit_indices=(33554435,) strides=None] b
            f:f32[] = reduce_max[axes=(0,)] c
            g:f32[{length}] = cumsum[axis=0 reverse=False] a
            h:f32[1] = slice[start_indices=({},) limit_indices=({length},) strides=None] g
            in (d, e, f, h, b) }}",
        length - 1
    );
    let program = Program::parse(&text).unwrap();
    let counted: Vec<f32> = (0..length).map(|i| (i % 1000) as f32).collect();
    let inputs = [Tensor::from_elements(vec![length], &counted).unwrap()];
    let got = run(&device, &program, &inputs).unwrap();
    let elements: Vec<&[f32]> = got.iter().map(|tensor| tensor.elements::<f32>().unwrap()).collect();
    let reversed = |i: usize| 2.0 * counted[length - 1 - i];
    assert_eq!(elements[0], [1, 10_000_000, 19_999_999, 29_999_998, 39_999_997].map(reversed));
    assert_eq!(elements[1], [430.0, 431.0, 432.0, 433.0, 434.0].map(|x| 2.0 * x));
    assert_eq!(elements[2], [1998.0]);
    let sum = 499.5 * length as f64;
    assert!((f64::from(elements[3][0]) - sum).abs() <= 1e-6 * sum, "{} for {sum}", elements[3][0]);
    assert!(elements[4].iter().zip(&counted).all(|(b, a)| *b == 2.0 * a));
}
