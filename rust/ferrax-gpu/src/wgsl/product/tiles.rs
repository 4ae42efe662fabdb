//! Products by tiles, as WGSL: what a workgroup does.
//!
//! A workgroup has a tile of rows and columns, and goes through blocks of terms, whose elements of both operands it
//! brings to its memory; an invocation sums a part of the tile in registers (Volkov and Demmel, Benchmarking GPUs to
//! Tune Dense Linear Algebra, 2008). Elements go four at a time, quads: of neighbouring rows of the left operand, of
//! neighbouring columns of the right one, and an invocation has quads that are a quarter or half of a tile apart, so
//! that neighbours read neighbouring quads of the workgroup's memory. While a block is summed the next one is on its
//! way to registers (both as in the hierarchy of NVIDIA's CUTLASS, docs/efficient_gemm). Half of the invocations
//! bring the one operand and half the other, each four quads, which are turned round where terms are what lies next
//! to each other in memory. Rows and columns beyond the last are the last again, and are not written; terms beyond
//! the last are zero.
//!
//! In: a form, whose functions are defined (`product`). Out: the text of the entry point. Cost: for each block of K
//! terms, of a tile of T rows and columns, 2 K T elements are brought for K T² multiplications, and an invocation
//! with a part of P rows and columns reads 2 P elements of the workgroup's memory for P² multiplications.

use std::fmt::Write;

use super::form::{ProductForm, SEGMENT_TERMS, SIDE, entry};

/// Bytes of a block of terms of both operands.
const BLOCK_BYTES: usize = 16 << 10;

/// Invocations of a workgroup.
const INVOCATIONS: usize = SIDE * SIDE;

/// Elements that are moved together.
const QUAD: usize = 4;

const PARTS: [&str; QUAD] = ["x", "y", "z", "w"];

/// Terms of a block.
fn block(form: &ProductForm, part: usize) -> usize {
    BLOCK_BYTES / 2 / (SIDE * part) / form.dtype.size().max(4)
}

/// The list of these, separated.
fn list(each: impl Fn(usize) -> String) -> String {
    (0..QUAD).map(each).collect::<Vec<_>>().join(", ")
}

/// Quads, and how four of them are brought: of each of four terms the quad of rows, or of columns.
fn functions(form: &ProductForm, text: &mut String) {
    let is_vector = form.dtype.size() <= 4 && !form.dtype.is_complex();
    text.push_str(match (is_vector, form.dtype.is_float()) {
        (true, true) => {
            "alias Quad = vec4<Element>;\n\
             fn pick(quad: Quad, place: u32) -> Element { return quad[place]; }\n\
             fn steps(sum: Quad, a: Element, b: Quad) -> Quad { return fma(Quad(a), b, sum); }\n"
        }
        (true, false) => {
            "alias Quad = vec4<Element>;\n\
             fn pick(quad: Quad, place: u32) -> Element { return quad[place]; }\n\
             fn steps(sum: Quad, a: Element, b: Quad) -> Quad { return sum + a * b; }\n"
        }
        (false, _) => {
            "struct Quad { x: Element, y: Element, z: Element, w: Element }\n\
             fn pick(quad: Quad, place: u32) -> Element {\n\
             \x20   if place == 0u { return quad.x; }\n    if place == 1u { return quad.y; }\n\
             \x20   if place == 2u { return quad.z; }\n    return quad.w;\n}\n\
             fn steps(sum: Quad, a: Element, b: Quad) -> Quad {\n\
             \x20   return Quad(step(sum.x, a, b.x), step(sum.y, a, b.y), step(sum.z, a, b.z), step(sum.w, a, b.w));\n}\n"
        }
    });
    text.push_str("struct Block { q0: Quad, q1: Quad, q2: Quad, q3: Quad }\n");
    for (side, by_terms, quads) in
        [("left", form.left_terms, form.left_quads), ("right", !form.right_columns, form.right_quads)]
    {
        let _ = writeln!(
            text,
            "fn {side}_block({}, term: u32, end: u32) -> Block {{",
            list(|j| format!("p{j}: Spot"))
        );
        match (quads, by_terms) {
            (true, true) => {
                let _ = writeln!(
                    text,
                    "    if term >= end {{ return Block(); }}\n    let t = {side}_term(term);"
                );
                for j in 0..QUAD {
                    let _ = writeln!(text, "    let a{j} = {side}_quad(p{j}, t);");
                }
                let turned = |k: usize| format!("Quad({})", list(|j| format!("a{j}.{}", PARTS[k])));
                let _ = writeln!(text, "    return Block({});\n}}", list(turned));
            }
            _ => {
                text.push_str("    var block = Block();\n");
                for k in 0..QUAD {
                    let quad = match quads {
                        true => format!("{side}_quad(p0, t)"),
                        false => format!("Quad({})", list(|j| format!("{side}_at(p{j}, t)"))),
                    };
                    let _ = writeln!(
                        text,
                        "    if term + {k}u < end {{ let t = {side}_term(term + {k}u); block.q{k} = {quad}; }}"
                    );
                }
                text.push_str("    return block;\n}\n");
            }
        }
    }
}

/// Statements that choose by which operand an invocation brings; the others do nothing.
fn each_side(text: &mut String, bringers: usize, statements: impl Fn(&str) -> String) {
    let _ = writeln!(
        text,
        "    if lane < {bringers}u {{\n{}    }} else if lane < {}u {{\n{}    }}",
        statements("left"),
        2 * bringers,
        statements("right")
    );
}

/// The entry point, of invocations with so many rows and columns; partial results if terms are in segments.
pub fn shader(form: &ProductForm, part: usize, text: &mut String) {
    let (tile, terms) = (SIDE * part, block(form, part));
    let (quads, groups) = (tile / QUAD, part / QUAD);
    let bringers = quads * (terms / QUAD);
    functions(form, text);
    let _ = writeln!(text, "var<workgroup> blocks: array<Quad, {}>;", 2 * quads * terms);
    entry(text, INVOCATIONS);
    let _ = write!(
        text,
        "    let across = (n[3] + {0}u) / {tile}u;\n    let down = (n[2] + {0}u) / {tile}u;\n\
         \x20   let column = (number % across) * {tile}u;\n    number = number / across;\n\
         \x20   let row = (number % down) * {tile}u;\n    number = number / down;\n\
         \x20   let batch = number % n[1];\n    let segment = number / n[1];\n\
         \x20   let first = segment * n[{SEGMENT_TERMS}];\n    if first >= n[4] {{ return; }}\n\
         \x20   let end = min(first + n[{SEGMENT_TERMS}], n[4]);\n\
         \x20   let x = lane % {SIDE}u;\n    let y = lane / {SIDE}u;\n    let own = lane % {bringers}u;\n\
         \x20   var quad = 0u; var term = 0u;\n",
        tile - 1
    );
    for j in 0..QUAD {
        let _ = writeln!(text, "    var p{j} = Spot();");
    }
    for (i, j) in (0..part).flat_map(|i| (0..groups).map(move |j| (i, j))) {
        let _ = writeln!(text, "    var s{i}_{j} = Quad();");
    }
    each_side(text, bringers, |side| {
        let (by_terms, quads_at_once, number, begin, line) = match side {
            "left" => (form.left_terms, form.left_quads, 2, "row", "left_row"),
            _ => (!form.right_columns, form.right_quads, 3, "column", "right_column"),
        };
        // Neighbours bring what lies next to each other.
        let mut statements = match by_terms {
            true => format!("    term = {QUAD}u * (own % {0}u); quad = own / {0}u;\n", terms / QUAD),
            false => format!("    quad = own % {quads}u; term = {QUAD}u * (own / {quads}u);\n"),
        };
        let last = if quads_at_once && !by_terms { QUAD } else { 1 };
        let _ = writeln!(statements, "    let base = {side}_batch(batch);");
        for j in 0..QUAD {
            let _ = writeln!(
                statements,
                "    p{j} = {line}(min({begin} + {QUAD}u * quad + {j}u, n[{number}] - {last}u)); p{j}.at = p{j}.at + base;"
            );
        }
        statements
    });
    text.push_str("    var block = Block();\n");
    let bring = |at: &'static str| {
        move |side: &str| format!("    block = {side}_block(p0, p1, p2, p3, {at} + term, end);\n")
    };
    each_side(text, bringers, bring("first"));
    let _ = writeln!(
        text,
        "    for (var begin = first; begin < end; begin = begin + {terms}u) {{\n    workgroupBarrier();"
    );
    each_side(text, bringers, |side| {
        let from = if side == "left" { 0 } else { quads * terms };
        (0..QUAD)
            .map(|k| format!("    blocks[{from}u + (term + {k}u) * {quads}u + quad] = block.q{k};\n"))
            .collect()
    });
    let _ = writeln!(text, "    workgroupBarrier();\n    let next = begin + {terms}u;");
    each_side(text, bringers, bring("next"));
    let _ = writeln!(text, "    for (var k = 0u; k < {terms}u; k = k + {QUAD}u) {{");
    for k in 0..QUAD {
        text.push_str("    {\n");
        for i in 0..groups {
            let at = |from: usize, invocation: &str| {
                format!("blocks[(k + {k}u) * {quads}u + {invocation} + {}u]", from + i * SIDE)
            };
            let _ = writeln!(text, "    let a{i} = {};", at(0, "y"));
            let _ = writeln!(text, "    let b{i} = {};", at(quads * terms, "x"));
        }
        for (i, j) in (0..part).flat_map(|i| (0..groups).map(move |j| (i, j))) {
            let a = format!("a{}.{}", i / QUAD, PARTS[i % QUAD]);
            let _ = writeln!(text, "    s{i}_{j} = steps(s{i}_{j}, {a}, b{j});");
        }
        text.push_str("    }\n");
    }
    text.push_str("    }\n    }\n");
    results(form, part, text);
}

/// Sums go through the workgroup's memory, so that neighbours write neighbouring columns and the code that writes is
/// there once: one row of each invocation after the other.
fn results(form: &ProductForm, part: usize, text: &mut String) {
    let (tile, quads) = (SIDE * part, SIDE * part / QUAD);
    let _ = writeln!(
        text,
        "    for (var part = 0u; part < {part}u; part = part + 1u) {{\n    workgroupBarrier();\n    switch part {{"
    );
    for i in 0..part {
        let case = if i + 1 == part { "default".to_string() } else { format!("case {i}u") };
        let stores = (0..part / QUAD)
            .map(|j| format!(" blocks[y * {quads}u + x + {}u] = s{i}_{j};", j * SIDE))
            .collect::<String>();
        let _ = writeln!(text, "    {case}: {{{stores} }}");
    }
    let write = form.write("value");
    let _ = write!(
        text,
        "    }}\n    workgroupBarrier();\n    let base = result_batch(batch);\n\
         \x20   let row_of_part = row + (part / {QUAD}u) * {}u + part % {QUAD}u;\n\
         \x20   for (var i = lane; i < {}u; i = i + {INVOCATIONS}u) {{\n\
         \x20   let down_at = row_of_part + {QUAD}u * (i / {tile}u);\n    let across_at = column + i % {tile}u;\n\
         \x20   if down_at < n[2] && across_at < n[3] {{\n\
         \x20   let value = pick(blocks[(i / {tile}u) * {quads}u + (i % {tile}u) / {QUAD}u], i % {QUAD}u);\n\
         \x20   {write}\n    }}\n    }}\n    }}\n}}\n",
        SIDE * QUAD,
        SIDE * tile
    );
}
