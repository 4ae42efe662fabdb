//! Running reductions as WGSL.
//!
//! An invocation has a chunk of a line. [`Way::Totals`]: what the elements of each chunk give together. [`Way::Write`]: the running
//! results of a chunk, which where it is `prefixed` begins with the total of all chunks before it. Totals are floats of
//! 32 bits for narrower ones.

use ferrax_ir::math::MathFn;
use ferrax_ir::ops::CumulativeKind;
use ferrax_ir::scalar::{Body, Instruction, Reg, ScalarOp, ScalarType};
use ferrax_ir::{DType, Result};

use super::types::{self, register};
use super::{Needs, Shader, WORKGROUP, function, numbered, ops};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    Totals,
    Write { prefixed: bool },
}

/// What shaders of running reductions depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CumulativeForm {
    pub kind: CumulativeKind,
    pub dtype: DType,
    pub way: Way,
}

/// What totals of elements of a dtype are.
pub fn total(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

/// Words: zero, invocations, length of a line, elements between its neighbours, the first element of a line and what is
/// added for the next, chunks of a line, length of a chunk. Bindings: the operand; the totals, or the result and
/// the running totals.
pub fn shader(form: CumulativeForm) -> Result<Shader> {
    let CumulativeForm { kind, dtype, way } = form;
    let out = if way == Way::Totals { total(dtype) } else { dtype };
    let operands = if way == (Way::Write { prefixed: true }) { 3 } else { 2 };
    let ty = ScalarType::of(dtype.real())?;
    let name = register(ty);
    let complex = dtype.is_complex();
    let element = if complex { format!("vec2<{name}>") } else { name.to_string() };
    let mut text = "@group(0) @binding(0) var<storage, read> n: array<u32>;\n".to_string();
    for operand in 0..operands {
        let word = if types::is_atomic(out, operand == 1) { "atomic<u32>" } else { "u32" };
        text += &format!(
            "@group(0) @binding({}) var<storage, read_write> b{operand}: array<{word}>;\n",
            operand + 1
        );
    }
    text += &format!("alias Element = {element};\nvar<private> zero: u32;\n");
    // Functions of floats are written in integers of their width.
    text += &ops::functions(|other| other == ty);
    text += &combine(kind, ty, complex)?;
    let load = |operand: u32, dtype: DType, at: &str| -> Result<String> {
        let part = |part: u8| types::load(operand, dtype, part, at, false);
        Ok(if complex { format!("Element({}, {})", part(0)?, part(1)?) } else { part(0)? })
    };
    let store = |at: &str| -> Result<String> {
        let parts = if complex { vec![(0, "sum.x"), (1, "sum.y")] } else { vec![(0, "sum")] };
        parts.into_iter().map(|(part, value)| types::store(1, out, part, at, value)).collect()
    };
    let (begin, each, end) = match way {
        Way::Totals => (String::new(), String::new(), store("number")?),
        Way::Write { prefixed } => {
            let prefix = load(2, total(dtype), "(number - 1u)")?;
            let begin =
                if prefixed { format!("if chunk > 0u {{ sum = {prefix}; }}\n") } else { String::new() };
            (begin, store("at")?, String::new())
        }
    };
    let begun =
        if way == (Way::Write { prefixed: true }) { "chunk == 0u && i == first" } else { "i == first" };
    text += &format!(
        "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {{\n\
         {}\nif number >= n[1] {{ return; }}\nzero = n[0];\n\
         let line = number / n[6];\nlet chunk = number % n[6];\n\
         let base = bitcast<i32>((line / n[3]) * n[2] * n[3] + line % n[3] + n[4]);\n\
         let first = chunk * n[7];\nlet end = min(first + n[7], n[2]);\nvar sum = Element();\n{begin}\
         for (var i = first; i < end; i = i + 1u) {{\n\
         let at = base + bitcast<i32>(i) * bitcast<i32>(n[5]);\nlet next = {};\n\
         if {begun} {{ sum = next; }} else {{ sum = combine(sum, next); }}\n{each}\n}}\n{end}\n}}\n",
        numbered(),
        load(0, dtype, "at")?
    );
    let wide = matches!(ty, ScalarType::I64 | ScalarType::U64 | ScalarType::F64);
    Ok(Shader { text, needs: Needs { int64: wide, float64: ty == ScalarType::F64 }, operands })
}

/// The function that takes one more element into a total.
fn combine(kind: CumulativeKind, ty: ScalarType, complex: bool) -> Result<String> {
    let pair = |op: ScalarOp| {
        let args = [Reg(0), Reg(1)].into_iter().collect();
        ops::expression(&Instruction { op, ty, args }, &[ty, ty], &["a".to_string(), "b".to_string()])
    };
    let value = match kind {
        CumulativeKind::Sum if complex => "a + b".to_string(),
        CumulativeKind::Prod if complex => {
            "Element(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)".to_string()
        }
        CumulativeKind::Sum => pair(ScalarOp::Add)?,
        CumulativeKind::Prod => pair(ScalarOp::Mul)?,
        CumulativeKind::Max => pair(ScalarOp::Max)?,
        CumulativeKind::Min => pair(ScalarOp::Min)?,
        CumulativeKind::LogSumExp => {
            let (body, result) = log_sum_exp(ty);
            return function("combine", &body, result, &[("a", ty), ("b", ty)]);
        }
    };
    Ok(format!("fn combine(a: Element, b: Element) -> Element {{ return {value}; }}\n"))
}

/// `log(exp(a) + exp(b))`: the greater, and what the other adds, which is nothing where both are one infinity.
fn log_sum_exp(ty: ScalarType) -> (Body, Reg) {
    let mut body = Body::default();
    let [a, b] = [0, 1].map(|operand| body.push(ScalarOp::Input { operand, part: 0 }, ty, &[]));
    let greater = body.op(ScalarOp::Max, &[a, b]);
    let less = body.op(ScalarOp::Min, &[a, b]);
    let apart = body.op(ScalarOp::Sub, &[less, greater]);
    let ratio = body.math(MathFn::Exp, &[apart]);
    let more = body.math(MathFn::Log1p, &[ratio]);
    let sum = body.op(ScalarOp::Add, &[greater, more]);
    let known = body.compare(ScalarOp::Eq, apart, apart);
    let result = body.select(known, sum, greater);
    (body, result)
}
