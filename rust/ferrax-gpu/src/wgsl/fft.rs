//! One pass of Fourier transforms as WGSL.
//!
//! Lines are transformed factor by factor of their length, from one array to another, so that what comes out is in
//! order (Stockham's autosort, after Van Loan, Computational Frameworks for the Fast Fourier Transform, 1992, section
//! 1.7). Before a pass of factor r, lines are `s` interleaved transforms of length `r · m`, and after it `r · s` of
//! length m:
//!
//! `y[q + s (r p + j)] = w^(p j) Σ_k x[q + s (p + m k)] v^(j k)`, with `w` and `v` roots of unity of orders `r · m` and r.
//!
//! Roots come from a table of the powers of that of the order of the whole length, which is made in 64 bits.

use std::f64::consts::TAU;

use ferrax_ir::scalar::ScalarType;
use ferrax_ir::{DType, Result};

use super::arrays::Words;
use super::types::{self, register};
use super::{Needs, Shader, WORKGROUP, numbered};

/// Factors up to which an invocation has all of a sum's terms in registers; of larger ones it has one result.
pub const MOST_UNROLLED: usize = 13;

/// What a pass reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Read {
    Complex,
    Real,
    /// The first half of a line and one, of which the rest is the mirror image.
    Half,
}

/// What passes depend on beside sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FftForm {
    /// Of the parts of numbers.
    pub dtype: DType,
    /// The factor, if it is unrolled.
    pub unrolled: Option<usize>,
    pub inverse: bool,
    pub read: Read,
    /// Whether only real parts are written.
    pub real: bool,
    /// Whether results are divided by the length.
    pub scaled: bool,
}

/// Words: zero, invocations, length of a line, elements between its neighbours, m, s, elements that a line has where
/// it is read, and where it is written, the factor. Arrays: what is read, what is written, the table.
pub fn shader(form: FftForm) -> Result<Shader> {
    let ty = ScalarType::of(form.dtype)?;
    let name = register(ty);
    let complex = if form.dtype == DType::F64 { DType::C128 } else { DType::C64 };
    let pair = |operand: u32, at: &str| -> Result<String> {
        let part = |part: u8| types::load(operand, complex, part, at);
        Ok(format!("Element({}, {})", part(0)?, part(1)?))
    };
    let mut text = format!(
        "alias Element = vec2<{name}>;\n\
         fn times(a: Element, b: Element) -> Element {{ return Element(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }}\n\
         fn root(power: u32) -> Element {{ return {}; }}\n\
         fn at(line: u32, length: u32, i: u32) -> u32 {{ return (line / n[3]) * length * n[3] + i * n[3] + line % n[3]; }}\n",
        pair(2, "power")?
    );
    text += "fn load(line: u32, i: u32) -> Element {\n";
    text += &match form.read {
        Read::Complex => format!("let place = at(line, n[6], i);\nreturn {};\n", pair(0, "place")?),
        Read::Real => format!(
            "let place = at(line, n[6], i);\nreturn Element({}, {name}(0));\n",
            types::load(0, form.dtype, 0, "place")?
        ),
        Read::Half => format!(
            "let mirrored = i >= n[6];\nlet place = at(line, n[6], select(i, n[2] - i, mirrored));\nlet value = {};\n\
             if i == 0u || 2u * i == n[2] {{ return Element(value.x, {name}(0)); }}\n\
             return Element(value.x, select(value.y, -value.y, mirrored));\n",
            pair(0, "place")?
        ),
    };
    text += "}\nfn put(line: u32, i: u32, sum: Element) {\nif i >= n[7] { return; }\nlet place = at(line, n[7], i);\n";
    let divided = if form.scaled { format!(" / {name}(n[2])") } else { String::new() };
    text += &format!("let value = sum{divided};\n");
    let written = if form.real { (form.dtype, 1) } else { (complex, 2) };
    for (part, value) in (0..written.1).zip(["value.x", "value.y"]) {
        text += &types::store(1, written.0, part, "place", value)?;
        text.push('\n');
    }
    text += "}\n";
    let body = match form.unrolled {
        Some(factor) => unrolled(factor, form.inverse, ty),
        None => ONE.to_string(),
    };
    text += &format!(
        "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
         {}\nif number >= n[1] {{ return; }}\n{body}}}\n",
        numbered()
    );
    let wide = form.dtype == DType::F64;
    Ok(Shader {
        text,
        needs: Needs { int64: wide, float64: wide, ..Needs::default() },
        arrays: vec![Words::Whole; 3],
    })
}

/// An invocation computes one result.
const ONE: &str = "\
let line = number / n[2];
let q = number % n[5];
let j = (number % n[2]) / n[5] % n[8];
let p = (number % n[2]) / n[5] / n[8];
let step = n[2] / n[8];
var sum = load(line, q + n[5] * p);
var power = 0u;
for (var k = 1u; k < n[8]; k = k + 1u) {
    power = power + j;
    if power >= n[8] { power = power - n[8]; }
    sum = sum + times(load(line, q + n[5] * (p + n[4] * k)), root(power * step));
}
put(line, q + n[5] * (n[8] * p + j), times(sum, root(p * j * n[5])));
";

/// An invocation computes all results of a sum's terms.
fn unrolled(factor: usize, inverse: bool, ty: ScalarType) -> String {
    let mut text = "\
        let each = n[4] * n[5];\nlet line = number / each;\nlet q = number % n[5];\nlet p = number % each / n[5];\n"
        .to_string();
    for k in 0..factor {
        text += &format!("let a{k} = load(line, q + n[5] * (p + n[4] * {k}u));\n");
    }
    let sign = if inverse { 1.0 } else { -1.0 };
    let suffix = if ty == ScalarType::F64 { "lf" } else { "f" };
    for j in 0..factor {
        let terms: Vec<String> = (0..factor)
            .map(|k| match 4 * (j * k % factor) {
                0 => format!("a{k}"),
                quarters if quarters == 2 * factor => format!("-a{k}"),
                quarters if quarters % factor == 0 => {
                    let positive = (quarters == factor) == inverse;
                    let (x, y) = if positive { ("-", "") } else { ("", "-") };
                    format!("Element({x}a{k}.y, {y}a{k}.x)")
                }
                quarters => {
                    let (sin, cos) = (sign * TAU * quarters as f64 / (4 * factor) as f64).sin_cos();
                    format!("times(a{k}, Element({cos:?}{suffix}, {sin:?}{suffix}))")
                }
            })
            .collect();
        let sum = terms.join(" + ");
        let turned = if j == 0 { sum } else { format!("times({sum}, root(p * {j}u * n[5]))") };
        text += &format!("put(line, q + n[5] * ({factor}u * p + {j}u), {turned});\n");
    }
    text
}
