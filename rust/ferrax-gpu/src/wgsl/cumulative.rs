//! Running reductions as WGSL.
//!
//! An invocation has a chunk of a line. [`Way::Totals`]: what the elements of each chunk give together.
//! [`Way::Write`]: the running results of a chunk, which where it is `prefixed` begins with the total of all chunks
//! before it. Totals are floats of 32 bits for narrower ones. Sums of floats keep what each addition loses (Knuth,
//! The Art of Computer Programming, volume 2, 1998, section 4.2.2), so that their error does not grow with the length
//! of a chunk.

use ferrax_ir::math::MathFn;
use ferrax_ir::ops::CumulativeKind;
use ferrax_ir::scalar::{Body, Instruction, Reg, ScalarOp, ScalarType};
use ferrax_ir::{DType, Result};

use super::arrays::Words;
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
/// added for the next, chunks of a line, length of a chunk. Arrays: the operand; the totals, or the result and
/// the running totals.
pub fn shader(form: CumulativeForm) -> Result<Shader> {
    let CumulativeForm { kind, dtype, way } = form;
    let out = if way == Way::Totals { total(dtype) } else { dtype };
    let mut arrays = vec![Words::Whole, types::words(out, true)];
    if way == (Way::Write { prefixed: true }) {
        arrays.push(Words::Whole);
    }
    let ty = ScalarType::of(dtype.real())?;
    let name = register(ty);
    let complex = dtype.is_complex();
    let element = if complex { format!("vec2<{name}>") } else { name.to_string() };
    let mut text = format!("alias Element = {element};\nvar<private> zero: u32;\n");
    // Functions of floats are written in integers of their width.
    text += &ops::functions(|other| other == ty);
    text += &combine(kind, ty, complex)?;
    let load = |operand: u32, dtype: DType, at: &str| -> Result<String> {
        let part = |part: u8| types::load(operand, dtype, part, at);
        Ok(if complex { format!("Element({}, {})", part(0)?, part(1)?) } else { part(0)? })
    };
    let compensated = kind == CumulativeKind::Sum && ty.is_float();
    text += if compensated { "var<private> lost: Element;\n" } else { "" };
    if compensated {
        text += &compensation(ty);
    }
    let each_part = |value: &dyn Fn(&str) -> String| match complex {
        true => format!("Element({}, {})", value(".x"), value(".y")),
        false => value(""),
    };
    let whole = match compensated {
        true => each_part(&|part| format!("whole(sum{part}, lost{part})")),
        false => "sum".to_string(),
    };
    let take = match compensated {
        true => format!(
            "let before = sum;\nsum = sum + next;\nlost = lost + {};",
            each_part(&|part| format!("lost_by(before{part}, next{part}, sum{part})"))
        ),
        false => "sum = combine(sum, next);".to_string(),
    };
    let store = |at: &str| -> Result<String> {
        let parts = if complex { vec![(0, "value.x"), (1, "value.y")] } else { vec![(0, "value")] };
        let stores = parts.into_iter().map(|(part, value)| types::store(1, out, part, at, value));
        Ok(format!("let value = {whole};\n{}", stores.collect::<Result<String>>()?))
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
         if {begun} {{ sum = next; }} else {{ {take} }}\n{each}\n}}\n{end}\n}}\n",
        numbered(),
        load(0, dtype, "at")?
    );
    let wide = matches!(ty, ScalarType::I64 | ScalarType::U64 | ScalarType::F64);
    Ok(Shader {
        text,
        needs: Needs { int64: wide, float64: ty == ScalarType::F64, ..Needs::default() },
        arrays,
    })
}

/// `lost_by(a, b, sum)` is what the sum of `a` and `b` lost, `whole` a sum with what it lost, which is NaN where
/// the sum is not finite.
fn compensation(ty: ScalarType) -> String {
    let name = register(ty);
    let (bits, exponent) = match ty {
        ScalarType::F64 => ("u64", "0x7ff0000000000000lu"),
        _ => ("u32", "0x7f800000u"),
    };
    let hidden = |value: &str| ops::opaque(ty, value);
    format!(
        "fn lost_by(a: {name}, b: {name}, sum: {name}) -> {name} {{\n\
         let s = {};\nlet of_b = {};\nlet of_a = {};\nreturn (a - of_a) + (b - of_b);\n}}\n\
         fn whole(sum: {name}, lost: {name}) -> {name} {{\n\
         return select(sum, sum + lost, (bitcast<{bits}>(sum) & {exponent}) != {exponent});\n}}\n",
        hidden("sum"),
        hidden("(s - a)"),
        hidden("(s - of_b)")
    )
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
