//! Products of matrices and convolutions as WGSL.
//!
//! A product is a sum over terms for each row and column, for each index of batches. Numbers of rows, columns
//! and terms are made of indices of axes, which have strides in the operands; guards say where an operand lies outside of
//! the left array, and is zero (see `ferrax_compile::convolution`). Two ways:
//!
//! - [`Way::Tiles`]: a workgroup has [`TILE`] rows and columns, goes through blocks of terms, whose elements of both operands it
//!   brings to its memory, and each invocation sums a part of [`PART`] rows and columns in registers (Volkov and
//!   Demmel, Benchmarking GPUs to Tune Dense Linear Algebra, 2008);
//! - [`Way::Single`]: a workgroup has one row and column, its invocations share the terms, and their sums are added in
//!   pairs: for few results of many terms.

use std::fmt::Write;

use ferrax_compile::Operand;
use ferrax_ir::scalar::ScalarType;
use ferrax_ir::{DType, Result, internal_error};

use super::taken::{Origin, TakenForm};
use super::{MOST_GROUPS, Needs, Shader, types};

/// Rows and columns of a workgroup.
pub const TILE: usize = 64;

/// Rows and columns of an invocation.
const PART: usize = 4;

/// Rows, or columns, of invocations in a workgroup.
const SIDE: usize = TILE / PART;

/// Invocations for one result.
const SINGLE: usize = 64;

/// Bytes of a block of terms of both operands.
const BLOCK_BYTES: usize = 8 << 10;

/// What a workgroup has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    Tiles,
    Single,
}

/// What shaders of products depend on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProductForm {
    /// Of the product's operands and its result.
    pub dtype: DType,
    /// Bindings after the first.
    pub operands: Vec<Operand>,
    pub left: Origin<TakenForm>,
    pub right: Origin<TakenForm>,
    /// What is made of results; else the last operand has them.
    pub then: Option<Box<TakenForm>>,
    pub way: Way,
    pub batch: usize,
    /// For each axis of rows, and of terms, the guard that its index moves.
    pub rows: Vec<Option<usize>>,
    pub terms: Vec<Option<usize>>,
    pub columns: usize,
    pub guards: usize,
    /// Whether neighbouring terms, not rows, are neighbours in the left operand, and columns, not terms, in the right one.
    pub left_terms: bool,
    pub right_columns: bool,
}

/// Words before those of axes: a zero; counts of batches, rows, columns, terms; where left, right and result begin.
pub const HEAD: usize = 8;

/// Words of an axis: its count, and its strides: of a batch in all three, of others in two, and the guard's step.
pub const AXIS: usize = 4;

impl ProductForm {
    fn axes_before_rows(&self) -> usize {
        HEAD + AXIS * self.batch
    }

    fn axes_before_columns(&self) -> usize {
        self.axes_before_rows() + AXIS * self.rows.len()
    }

    fn axes_before_terms(&self) -> usize {
        self.axes_before_columns() + AXIS * self.columns
    }

    fn before_guards(&self) -> usize {
        self.axes_before_terms() + AXIS * self.terms.len()
    }

    /// The words before those of the kernels that it took in: of left, of right and of the result.
    fn before_kernels(&self) -> [usize; 3] {
        let own = self.before_guards() + 2 * self.guards;
        let after = |before: usize, origin: &Origin<TakenForm>| {
            origin.kernel().map_or(before, |form| form.end(before))
        };
        let right = after(own, &self.left);
        [own, right, after(right, &self.right)]
    }

    fn taken(&self) -> impl Iterator<Item = &TakenForm> {
        [self.left.kernel(), self.right.kernel(), self.then.as_deref()].into_iter().flatten()
    }

    /// Terms of a block.
    fn block(&self) -> usize {
        BLOCK_BYTES / 2 / TILE / self.dtype.size().max(4)
    }
}

/// The shader of a product.
pub fn shader(form: &ProductForm) -> Result<Shader> {
    let dtype = form.dtype;
    let real = dtype.real();
    let ty = types::register(ferrax_ir::scalar::ScalarType::of(real)?);
    let element = if dtype.is_complex() { format!("vec2<{ty}>") } else { ty.to_string() };
    let mut text = String::from("@group(0) @binding(0) var<storage, read> n: array<u32>;\n");
    for (number, &Operand { dtype, written }) in form.operands.iter().enumerate() {
        let word = if types::is_atomic(dtype, written) { "atomic<u32>" } else { "u32" };
        let _ = writeln!(
            text,
            "@group(0) @binding({}) var<storage, read_write> b{number}: array<{word}>;",
            number + 1
        );
    }
    let _ = writeln!(text, "alias Element = {element};\nvar<private> zero: u32;");
    functions(form, &mut text)?;
    let has = |ty: ScalarType| form.taken().any(|taken| taken.has(ty));
    text.push_str(super::ops::functions(has).as_str());
    match form.way {
        Way::Tiles => tiles(form, &mut text),
        Way::Single => single(&mut text),
    }
    let wide = |dtype: DType| matches!(dtype.real(), DType::I64 | DType::U64 | DType::F64);
    let int64 = form.operands.iter().any(|operand| wide(operand.dtype)) || wide(dtype);
    let float64 = real == DType::F64 || has(ScalarType::F64);
    let needs = Needs { int64: int64 || has(ScalarType::I64) || has(ScalarType::U64) || float64, float64 };
    Ok(Shader { text, needs, operands: form.operands.len() as u32 })
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

/// Reads of elements, the sum that takes a product, and the write of a result.
fn functions(form: &ProductForm, text: &mut String) -> Result<()> {
    let dtype = form.dtype;
    let complex = dtype.is_complex();
    let before = form.before_kernels();
    for (which, (name, origin)) in [("left", &form.left), ("right", &form.right)].into_iter().enumerate() {
        let called = format!("{name}_element");
        match origin {
            Origin::Kernel(taken) => text.push_str(&taken.element(&called, before[which])?),
            Origin::Operand(operand) => {
                let part = |part: u8| types::load(*operand, dtype, part, "at", false);
                let value = if complex { format!("Element({}, {})", part(0)?, part(1)?) } else { part(0)? };
                let _ = writeln!(text, "fn {called}(at: i32) -> Element {{ return {value}; }}");
            }
        }
    }
    match &form.then {
        Some(taken) => text.push_str(&taken.stores("store_element", dtype, before[2])?),
        None => {
            let last = form.operands.len().checked_sub(1);
            let last = last.ok_or_else(|| internal_error!("a product without a result"))? as u32;
            text.push_str("fn store_element(at: i32, value: Element) {\n");
            let parts = if complex { vec![(0, "value.x"), (1, "value.y")] } else { vec![(0, "value")] };
            for (part, value) in parts {
                let _ = writeln!(text, "    {}", types::store(last, dtype, part, "at", value)?);
            }
            text.push_str("}\n");
        }
    }
    for (number, name) in ["left", "right", "result"].into_iter().enumerate() {
        let _ = writeln!(
            text,
            "fn {name}_batch(batch: u32) -> i32 {{\n    var rest = batch; var offset = {};",
            word(5 + number)
        );
        walk(text, form.batch, HEAD, 1 + number, |_, _| {});
        text.push_str("    return offset;\n}\n");
    }
    text.push_str("fn left(base: i32, row: u32, term: u32) -> Element {\n");
    text.push_str(
        "    if row >= n[2] || term >= n[4] { return Element(); }\n    var offset = base; var rest = row;\n",
    );
    let guards = form.before_guards();
    for guard in 0..form.guards {
        let _ = writeln!(text, "    var place{guard} = {};", word(guards + 2 * guard));
    }
    for (list, at) in [(&form.rows, form.axes_before_rows()), (&form.terms, form.axes_before_terms())] {
        walk(text, list.len(), at, 1, |text, axis| {
            if let Some(guard) = list[axis] {
                let step = word(at + AXIS * axis + 3);
                let _ = writeln!(text, "    place{guard} = place{guard} + i * {step};");
            }
        });
        text.push_str("    rest = term;\n");
    }
    for guard in 0..form.guards {
        let size = word(guards + 2 * guard + 1);
        let _ = writeln!(text, "    if place{guard} < 0 || place{guard} >= {size} {{ return Element(); }}");
    }
    text.push_str("    return left_element(offset);\n}\n");
    text.push_str("fn right(base: i32, term: u32, column: u32) -> Element {\n");
    text.push_str("    if column >= n[3] || term >= n[4] { return Element(); }\n    var offset = base; var rest = column;\n");
    walk(text, form.columns, form.axes_before_columns(), 1, |_, _| {});
    text.push_str("    rest = term;\n");
    walk(text, form.terms.len(), form.axes_before_terms(), 2, |_, _| {});
    text.push_str("    return right_element(offset);\n}\n");
    text.push_str("fn store(base: i32, row: u32, column: u32, value: Element) {\n");
    text.push_str(
        "    if row >= n[2] || column >= n[3] { return; }\n    var offset = base; var rest = row;\n",
    );
    walk(text, form.rows.len(), form.axes_before_rows(), 2, |_, _| {});
    text.push_str("    rest = column;\n");
    walk(text, form.columns, form.axes_before_columns(), 2, |_, _| {});
    text.push_str("    store_element(offset, value);\n}\nfn step(sum: Element, a: Element, b: Element) -> Element {\n    return ");
    text.push_str(match (complex, dtype.is_float()) {
        (true, _) => "Element(fma(a.x, b.x, fma(-a.y, b.y, sum.x)), fma(a.x, b.y, fma(a.y, b.x, sum.y)))",
        (false, true) => "fma(a, b, sum)",
        (false, false) => "sum + a * b",
    });
    text.push_str(";\n}\n");
    Ok(())
}

const BEGIN: &str = "\
    zero = n[0];
    let lane = local.x;
";

fn main(text: &mut String, invocations: usize) {
    let _ = write!(
        text,
        "@compute @workgroup_size({invocations})\n\
         fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {{\n\
         {BEGIN}    var number = group.x + group.y * {MOST_GROUPS}u;\n"
    );
}

fn tiles(form: &ProductForm, text: &mut String) {
    let block = form.block();
    let _ = writeln!(text, "var<workgroup> lefts: array<Element, {}>;", TILE * block);
    let _ = writeln!(text, "var<workgroup> rights: array<Element, {}>;", TILE * block);
    main(text, SIDE * SIDE);
    let _ = write!(
        text,
        "    let across = (n[3] + {0}u) / {TILE}u;\n    let down = (n[2] + {0}u) / {TILE}u;\n\
         \x20   let column = (number % across) * {TILE}u;\n    number = number / across;\n\
         \x20   let row = (number % down) * {TILE}u;\n    let batch = number / down;\n\
         \x20   if batch >= n[1] {{ return; }}\n\
         \x20   let lefts_at = left_batch(batch);\n    let rights_at = right_batch(batch);\n\
         \x20   let x = lane % {SIDE}u;\n    let y = lane / {SIDE}u;\n",
        TILE - 1
    );
    for i in 0..PART * PART {
        let _ = writeln!(text, "    var s{i} = Element();");
    }
    // Which of a block an invocation brings: neighbours bring neighbours.
    let bring = |along: bool| {
        if along {
            format!("let k = i % {block}u; let at = i / {block}u;")
        } else {
            format!("let at = i % {TILE}u; let k = i / {TILE}u;")
        }
    };
    let _ = write!(
        text,
        "    for (var term = 0u; term < n[4]; term = term + {block}u) {{\n\
         \x20   for (var i = lane; i < {count}u; i = i + {all}u) {{ {left} lefts[k * {TILE}u + at] = left(lefts_at, row + at, term + k); }}\n\
         \x20   for (var i = lane; i < {count}u; i = i + {all}u) {{ {right} rights[k * {TILE}u + at] = right(rights_at, term + k, column + at); }}\n\
         \x20   workgroupBarrier();\n\
         \x20   for (var k = 0u; k < {block}u; k = k + 1u) {{\n",
        count = TILE * block,
        all = SIDE * SIDE,
        left = bring(form.left_terms),
        right = bring(!form.right_columns),
    );
    for i in 0..PART {
        let _ = writeln!(text, "    let a{i} = lefts[k * {TILE}u + y + {}u];", i * SIDE);
        let _ = writeln!(text, "    let b{i} = rights[k * {TILE}u + x + {}u];", i * SIDE);
    }
    for (i, j) in (0..PART).flat_map(|i| (0..PART).map(move |j| (i, j))) {
        let s = i * PART + j;
        let _ = writeln!(text, "    s{s} = step(s{s}, a{i}, b{j});");
    }
    text.push_str("    }\n    workgroupBarrier();\n    }\n    let results_at = result_batch(batch);\n");
    for (i, j) in (0..PART).flat_map(|i| (0..PART).map(move |j| (i, j))) {
        let (s, down, across) = (i * PART + j, i * SIDE, j * SIDE);
        let _ = writeln!(text, "    store(results_at, row + y + {down}u, column + x + {across}u, s{s});");
    }
    text.push_str("}\n");
}

fn single(text: &mut String) {
    let _ = writeln!(text, "var<workgroup> sums: array<Element, {SINGLE}>;");
    main(text, SINGLE);
    let _ = write!(
        text,
        "    let column = number % n[3];\n    number = number / n[3];\n    let row = number % n[2];\n\
         \x20   let batch = number / n[2];\n    if batch >= n[1] {{ return; }}\n\
         \x20   let lefts_at = left_batch(batch);\n    let rights_at = right_batch(batch);\n    var sum = Element();\n\
         \x20   for (var term = lane; term < n[4]; term = term + {SINGLE}u) {{\n\
         \x20   sum = step(sum, left(lefts_at, row, term), right(rights_at, term, column));\n    }}\n\
         \x20   sums[lane] = sum;\n\
         \x20   for (var half = {}u; half > 0u; half = half / 2u) {{\n    workgroupBarrier();\n\
         \x20   if lane < half {{ sums[lane] = sums[lane] + sums[lane + half]; }}\n    }}\n\
         \x20   if lane == 0u {{ store(result_batch(batch), row, column, sums[0]); }}\n}}\n",
        SINGLE / 2
    );
}
