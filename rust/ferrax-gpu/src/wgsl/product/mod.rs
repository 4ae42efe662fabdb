//! Products of matrices and convolutions as WGSL.
//!
//! A product is a sum over terms for each row and column, for each index of batches. Numbers of rows, columns and
//! terms are made of indices of axes, which have strides in the operands; guards say where an operand lies outside of
//! the left array, and is zero (see `ferrax_compile::convolution`). Three ways:
//!
//! - [`Way::Tiles`]: a workgroup has a tile of rows and columns (`tiles`); where tiles are few and terms many, the terms are
//!   cut into segments, each a workgroup's for each tile, whose sums [`Way::Finish`] adds in order;
//! - [`Way::Cooperative`]: the same of halves, where the GPU multiplies matrices of them (`cooperative`);
//! - [`Way::Single`]: a workgroup has one row and column, its invocations share the terms, and their sums are added in
//!   pairs: for few rows or columns.

mod cooperative;
mod form;
pub mod matrices;
#[cfg(test)]
mod played;
mod tiles;

use std::fmt::Write;

use ferrax_compile::Operand;
use ferrax_compile::launches::Origin;
use ferrax_ir::scalar::ScalarType;
use ferrax_ir::{DType, Result, internal_error};

use super::arrays::Words;
use super::taken::TakenForm;
use super::{Needs, Shader, ops, types};
pub use form::{AXIS, HEAD, ProductForm, SINGLE, Way, finishing_groups, partial};
use form::{SEGMENTS, entry};
use matrices::{Halves, Maker};

/// The shader of a product. Its arrays are its operands, and sums of segments, if there are any.
pub fn shader(form: &ProductForm) -> Result<Shader> {
    let dtype = form.dtype;
    let real = dtype.real();
    let ty = types::register(ferrax_ir::scalar::ScalarType::of(real)?);
    let element = if dtype.is_complex() { format!("vec2<{ty}>") } else { ty.to_string() };
    let mut text = format!("alias Element = {element};\nvar<private> zero: u32;\n");
    let words = |(number, &Operand { dtype, written }): (usize, &Operand)| {
        let is = |origin: &Origin<TakenForm>| *origin == Origin::Operand(number as u32);
        let quads =
            !written && ((form.left_quads && is(&form.left)) || (form.right_quads && is(&form.right)));
        let quads = quads || form.cooperative().is_some_and(|way| way.has_eights(number as u32));
        if quads { Words::Vectors(4) } else { types::words(dtype, written) }
    };
    let mut arrays: Vec<Words> = form.operands.iter().enumerate().map(words).collect();
    if form.segmented {
        text.push_str(&partials(form, arrays.len() as u32)?);
        arrays.push(Words::Whole);
    }
    if form.way != Way::Finish {
        operands(form, &mut text)?;
    }
    results(form, &mut text)?;
    let has = |ty: ScalarType| form.taken().any(|taken| taken.has(ty));
    text.push_str(ops::functions(has).as_str());
    match form.way {
        Way::Tiles(part) => tiles::shader(form, part, &mut text),
        Way::Cooperative(way) => cooperative::shader(form, &way, &mut text),
        Way::Single => single(&mut text),
        Way::Finish => finish(&mut text),
    }
    let wide = |dtype: DType| matches!(dtype.real(), DType::I64 | DType::U64 | DType::F64);
    let int64 = form.operands.iter().any(|operand| wide(operand.dtype)) || wide(dtype);
    let float64 = real == DType::F64 || has(ScalarType::F64);
    let cooperative = form.cooperative().is_some_and(|way| way.matrices.maker == Maker::Driver);
    let int64 = int64 || has(ScalarType::I64) || has(ScalarType::U64) || float64;
    let needs = Needs { int64, float64, cooperative };
    Ok(Shader { text, needs, arrays })
}

/// Sums of segments of terms, in this array: how they are read and written.
fn partials(form: &ProductForm, array: u32) -> Result<String> {
    let dtype = partial(form.dtype);
    let part = |part: u8| types::load(array, dtype, part, "at");
    let (value, parts) = match dtype.is_complex() {
        true => (format!("Element({}, {})", part(0)?, part(1)?), vec!["value.x", "value.y"]),
        false => (part(0)?, vec!["value"]),
    };
    let stores = (0u8..).zip(parts).map(|(part, value)| types::store(array, dtype, part, "at", value));
    let stores: String = stores.collect::<Result<_>>()?;
    Ok(format!(
        "fn partial(at: u32) -> Element {{ return {value}; }}\n\
         fn keep(at: u32, value: Element) {{ {stores} }}\n"
    ))
}

/// A word as `i32`.
fn word(at: usize) -> String {
    format!("bitcast<i32>(n[{at}])")
}

/// Statements that add to `offset`, by the index of each axis, the stride that is word `stride` of the axis.
fn walk(text: &mut String, axes: usize, at: usize, stride: usize, mut each: impl FnMut(&mut String, usize)) {
    for axis in (0..axes).rev() {
        let at = at + AXIS * axis;
        if axis == 0 {
            let _ = writeln!(text, "    {{ let i = bitcast<i32>(rest);");
        } else {
            let _ = writeln!(text, "    {{ let i = bitcast<i32>(rest % n[{at}]); rest = rest / n[{at}];");
        }
        let _ = writeln!(text, "    offset = offset + i * {};", word(at + stride));
        each(text, axis);
        text.push_str("    }\n");
    }
}

/// A function of an index of `what`: how far from the first an element lies, and, of the left operand, what that adds
/// to the guards, which are counted from where they begin.
fn spot(
    text: &mut String,
    called: &str,
    (axes, at, stride): (usize, usize, usize),
    begins: &[String],
    moved: impl Fn(usize) -> Option<usize>,
) {
    let _ = writeln!(text, "fn {called}(index: u32) -> Spot {{\n    var rest = index; var offset = 0;");
    for (guard, begin) in begins.iter().enumerate() {
        let _ = writeln!(text, "    var place{guard} = {begin};");
    }
    walk(text, axes, at, stride, |text, axis| {
        if let Some(guard) = moved(axis) {
            let step = word(at + AXIS * axis + 3);
            let _ = writeln!(text, "    place{guard} = place{guard} + i * {step};");
        }
    });
    let places: String = (0..begins.len()).map(|guard| format!(", place{guard}")).collect();
    let _ = writeln!(text, "    return Spot(offset{places});\n}}");
}

/// Where a batch begins in an array.
fn batches(form: &ProductForm, text: &mut String, number: usize, name: &str) {
    let start = word(5 + number);
    let _ =
        writeln!(text, "fn {name}_batch(batch: u32) -> i32 {{\n    var rest = batch; var offset = {start};");
    walk(text, form.batch, HEAD, 1 + number, |_, _| {});
    text.push_str("    return offset;\n}\n");
}

/// Reads of elements, and the sum that takes a product.
fn operands(form: &ProductForm, text: &mut String) -> Result<()> {
    let dtype = form.dtype;
    let complex = dtype.is_complex();
    let places: String = (0..form.guards).map(|guard| format!(", place{guard}: i32")).collect();
    let _ = writeln!(text, "struct Spot {{ at: i32{places} }}");
    let before = form.before_kernels();
    for (which, (name, origin, quads)) in
        [("left", &form.left, form.left_quads), ("right", &form.right, form.right_quads)]
            .into_iter()
            .enumerate()
    {
        batches(form, text, which, name);
        let guards = if which == 0 { form.guards } else { 0 };
        let outside = |element: &str| -> String {
            let of = |guard: usize| {
                let (place, size) = (format!("place{guard}"), word(form.before_guards() + 2 * guard + 1));
                format!(
                    "    let {place} = a.{place} + b.{place};\n\
                     \x20   if {place} < 0 || {place} >= {size} {{ return {element}(); }}\n"
                )
            };
            (0..guards).map(of).collect()
        };
        if quads && let Origin::Operand(operand) = origin {
            let ty = types::register(ScalarType::of(dtype)?);
            let _ = writeln!(
                text,
                "fn {name}_quad(a: Spot, b: Spot) -> Quad {{\n{}    return bitcast<vec4<{ty}>>(vector{operand}(u32(a.at + b.at) >> 2u));\n}}",
                outside("Quad")
            );
            continue;
        }
        let halves = form.cooperative().map(|way| way.halves[which]);
        let read = match halves {
            Some(Halves::Eights(array)) => {
                Some(("eight", "vec4<u32>", format!("vector{array}(u32(a.at + b.at) / 8u)")))
            }
            Some(Halves::Ones(array)) => {
                let word = format!("word{array}(u32(a.at + b.at) / 2u)");
                Some(("half", "u32", format!("extractBits({word}, u32(a.at + b.at) % 2u * 16u, 16u)")))
            }
            _ => None,
        };
        if let Some((what, ty, value)) = read {
            let _ = writeln!(
                text,
                "fn {name}_{what}(a: Spot, b: Spot) -> {ty} {{\n{}    return {value};\n}}",
                outside(ty)
            );
            continue;
        }
        let called = format!("{name}_element");
        match origin {
            Origin::Kernel(taken) => text.push_str(&taken.element(&called, before[which])?),
            Origin::Operand(operand) => {
                let part = |part: u8| types::load(*operand, dtype, part, "at");
                let value = if complex { format!("Element({}, {})", part(0)?, part(1)?) } else { part(0)? };
                let _ = writeln!(text, "fn {called}(at: i32) -> Element {{ return {value}; }}");
            }
        }
        let _ = writeln!(
            text,
            "fn {name}_at(a: Spot, b: Spot) -> Element {{\n{}    return {called}(a.at + b.at);\n}}",
            outside("Element")
        );
        if halves.is_some() {
            let _ = writeln!(
                text,
                "fn {name}_half(a: Spot, b: Spot) -> u32 {{ return f16_bits({name}_at(a, b)); }}"
            );
        }
    }
    let none = vec!["0".to_string(); form.guards];
    let begins: Vec<String> = (0..form.guards).map(|guard| word(form.before_guards() + 2 * guard)).collect();
    let (rows, columns, terms) =
        (form.axes_before_rows(), form.axes_before_columns(), form.axes_before_terms());
    spot(text, "left_row", (form.rows.len(), rows, 1), &begins, |axis| form.rows[axis]);
    spot(text, "left_term", (form.terms.len(), terms, 1), &none, |axis| form.terms[axis]);
    spot(text, "right_column", (form.columns, columns, 1), &none, |_| None);
    spot(text, "right_term", (form.terms.len(), terms, 2), &none, |_| None);
    text.push_str("fn step(sum: Element, a: Element, b: Element) -> Element {\n    return ");
    text.push_str(match (complex, dtype.is_float()) {
        (true, _) => "Element(fma(a.x, b.x, fma(-a.y, b.y, sum.x)), fma(a.x, b.y, fma(a.y, b.x, sum.y)))",
        (false, true) => "fma(a, b, sum)",
        (false, false) => "sum + a * b",
    });
    text.push_str(";\n}\n");
    Ok(())
}

/// Where results lie, and what is done with one.
fn results(form: &ProductForm, text: &mut String) -> Result<()> {
    batches(form, text, 2, "result");
    let lists = [
        ("row", form.rows.len(), form.axes_before_rows()),
        ("column", form.columns, form.axes_before_columns()),
    ];
    for (name, axes, at) in lists {
        let _ =
            writeln!(text, "fn result_{name}(index: u32) -> i32 {{\n    var rest = index; var offset = 0;");
        walk(text, axes, at, 2, |_, _| {});
        text.push_str("    return offset;\n}\n");
    }
    if let Some(taken) = &form.then {
        text.push_str(&taken.stores("store_element", form.dtype, form.before_kernels()[2])?);
        return Ok(());
    }
    let last = form.operands.len().checked_sub(1);
    let last = last.ok_or_else(|| internal_error!("a product without a result"))? as u32;
    text.push_str("fn store_element(at: i32, value: Element) {\n");
    let parts =
        if form.dtype.is_complex() { vec![(0, "value.x"), (1, "value.y")] } else { vec![(0, "value")] };
    for (part, value) in parts {
        let _ = writeln!(text, "    {}", types::store(last, form.dtype, part, "at", value)?);
    }
    text.push_str("}\n");
    Ok(())
}

fn single(text: &mut String) {
    let _ = writeln!(text, "var<workgroup> sums: array<Element, {SINGLE}>;");
    entry(text, SINGLE);
    let _ = write!(
        text,
        "    let column = number % n[3];\n    number = number / n[3];\n    let row = number % n[2];\n\
         \x20   let batch = number / n[2];\n    if batch >= n[1] {{ return; }}\n\
         \x20   var a = left_row(row); a.at = a.at + left_batch(batch);\n\
         \x20   var b = right_column(column); b.at = b.at + right_batch(batch);\n    var sum = Element();\n\
         \x20   for (var term = lane; term < n[4]; term = term + {SINGLE}u) {{\n\
         \x20   sum = step(sum, left_at(a, left_term(term)), right_at(b, right_term(term)));\n    }}\n\
         \x20   sums[lane] = sum;\n\
         \x20   for (var half = {}u; half > 0u; half = half / 2u) {{\n    workgroupBarrier();\n\
         \x20   if lane < half {{ sums[lane] = sums[lane] + sums[lane + half]; }}\n    }}\n\
         \x20   if lane == 0u {{\n\
         \x20   store_element(result_batch(batch) + result_row(row) + result_column(column), sums[0]);\n    }}\n}}\n",
        SINGLE / 2
    );
}

fn finish(text: &mut String) {
    entry(text, SINGLE);
    let _ = write!(
        text,
        "    number = number * {SINGLE}u + lane;\n    let total = n[1] * n[2] * n[3];\n\
         \x20   if number >= total {{ return; }}\n    var sum = partial(number);\n\
         \x20   for (var segment = 1u; segment < n[{SEGMENTS}]; segment = segment + 1u) {{\n\
         \x20   sum = sum + partial(segment * total + number);\n    }}\n\
         \x20   let column = number % n[3];\n    number = number / n[3];\n\
         \x20   store_element(result_batch(number / n[2]) + result_row(number % n[2]) + result_column(column), sum);\n}}\n"
    );
}
