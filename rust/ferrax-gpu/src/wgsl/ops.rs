//! Instructions of scalar bodies as WGSL expressions, and the functions that they call.
//!
//! What WGSL leaves open is written out: division by zero, shifts beyond the width, conversions out of range, NaN in
//! minima and maxima, remainders. Comparisons with NaN are ordered, so that `!=` is the negation of `==`. Whether a
//! number is NaN its bits tell: drivers may take for true that a float is equal to itself.

use ferrax_ir::scalar::{Instruction, Narrow, ScalarOp, ScalarType};
use ferrax_ir::{Result, internal_error};

use super::types::register;

/// The value with these bits. `zero` is a word that is zero at run time: what WGSL's constants cannot be (NaN,
/// infinities, subnormal numbers) is made of it.
pub fn constant(ty: ScalarType, bits: u64) -> String {
    match ty {
        ScalarType::Bool => if bits == 0 { "false" } else { "true" }.to_string(),
        ScalarType::I8 => format!("i32({})", bits as i8),
        ScalarType::I16 => format!("i32({})", bits as i16),
        ScalarType::I32 => format!("bitcast<i32>({}u)", bits as u32),
        ScalarType::U8 | ScalarType::U16 | ScalarType::U32 => format!("{}u", bits as u32),
        ScalarType::I64 => format!("bitcast<i64>({bits}lu)"),
        ScalarType::U64 => format!("{bits}lu"),
        ScalarType::F32 => format!("bitcast<f32>({:#x}u ^ zero)", bits as u32),
        ScalarType::F64 => format!("bitcast<f64>({bits:#x}lu ^ u64(zero))"),
    }
}

/// The same float, which no compiler sees through: a sum, where constants are differences, so that the two do not undo
/// each other.
pub fn opaque(ty: ScalarType, value: &str) -> String {
    match ty {
        ScalarType::F64 => format!("bitcast<f64>(bitcast<u64>({value}) + u64(zero))"),
        _ => format!("bitcast<f32>(bitcast<u32>({value}) + zero)"),
    }
}

/// A word of the width of a narrow type.
fn wrapped(ty: ScalarType, value: String) -> String {
    match ty {
        ScalarType::I8 => format!("((({value}) << 24u) >> 24u)"),
        ScalarType::I16 => format!("((({value}) << 16u) >> 16u)"),
        ScalarType::U8 => format!("(({value}) & 0xffu)"),
        ScalarType::U16 => format!("(({value}) & 0xffffu)"),
        _ => value,
    }
}

/// The bits of a register's type.
fn width(ty: ScalarType) -> u32 {
    if ty == ScalarType::Bool { 1 } else { ty.size() as u32 * 8 }
}

/// An instruction other than inputs, indices, parameters and functions of floats, of these registers.
pub fn expression(instruction: &Instruction, from: &[ScalarType], args: &[String]) -> Result<String> {
    let ty = instruction.ty;
    let missing = || internal_error!("{:?} of {from:?} as WGSL", instruction.op);
    let first = *from.first().unwrap_or(&ty);
    let name = register(first);
    let a = args.first().map_or("", String::as_str);
    let b = args.get(1).map_or("", String::as_str);
    let infix = |op: &str| format!("({a} {op} {b})");
    let truth = first == ScalarType::Bool;
    Ok(match instruction.op {
        ScalarOp::Const { bits } => constant(ty, bits),
        ScalarOp::Add => wrapped(ty, infix("+")),
        ScalarOp::Sub => wrapped(ty, infix("-")),
        ScalarOp::Mul => wrapped(ty, infix("*")),
        ScalarOp::Div if ty.is_float() => infix("/"),
        ScalarOp::Div => wrapped(ty, format!("div_{name}({a}, {b})")),
        ScalarOp::Rem => format!("rem_{name}({a}, {b})"),
        ScalarOp::Neg if ty.is_float() => format!("(-{a})"),
        ScalarOp::Neg => wrapped(ty, format!("({} - {a})", constant(ty, 0))),
        ScalarOp::Abs if ty.is_signed() || ty.is_float() => wrapped(ty, format!("abs({a})")),
        ScalarOp::Abs => a.to_string(),
        ScalarOp::Min | ScalarOp::Max if truth => {
            infix(if instruction.op == ScalarOp::Min { "&" } else { "|" })
        }
        ScalarOp::Min if ty.is_float() => format!("(-max_{name}(-{a}, -{b}))"),
        ScalarOp::Max if ty.is_float() => format!("max_{name}({a}, {b})"),
        ScalarOp::Min => format!("min({a}, {b})"),
        ScalarOp::Max => format!("max({a}, {b})"),
        ScalarOp::Fma => format!("fma({a}, {b}, {})", args.get(2).ok_or_else(missing)?),
        ScalarOp::Sqrt => format!("sqrt({a})"),
        ScalarOp::Floor => format!("floor({a})"),
        ScalarOp::Ceil => format!("ceil({a})"),
        ScalarOp::Trunc => format!("trunc({a})"),
        ScalarOp::RoundEven => format!("round({a})"),
        ScalarOp::And => infix("&"),
        ScalarOp::Or => infix("|"),
        ScalarOp::Xor if truth => infix("!="),
        ScalarOp::Xor => infix("^"),
        ScalarOp::Not if truth => format!("(!{a})"),
        ScalarOp::Not => wrapped(ty, format!("(~{a})")),
        ScalarOp::Shl | ScalarOp::ShrLogical | ScalarOp::ShrArithmetic => shift(instruction.op, ty, a, b),
        ScalarOp::PopCount | ScalarOp::Clz => bits_of(instruction.op, ty, a),
        ScalarOp::Eq if first.is_float() && a == b => format!("(!nan_{name}({a}))"),
        ScalarOp::Ne if first.is_float() && a == b => format!("nan_{name}({a})"),
        ScalarOp::Eq => infix("=="),
        ScalarOp::Ne => format!("(!({a} == {b}))"),
        ScalarOp::Lt if truth => format!("(!{a} & {b})"),
        ScalarOp::Le if truth => format!("(!{a} | {b})"),
        ScalarOp::Lt => infix("<"),
        ScalarOp::Le => infix("<="),
        ScalarOp::Select => format!("select({}, {b}, {a})", args.get(2).ok_or_else(missing)?),
        ScalarOp::Convert => convert(first, ty, a),
        ScalarOp::Bitcast if ty.size() < 4 => wrapped(ty, format!("{}({a})", register(ty))),
        ScalarOp::Bitcast => format!("bitcast<{}>({a})", register(ty)),
        ScalarOp::RoundTo(Narrow::BF16) => format!("round_bf16({a})"),
        ScalarOp::RoundTo(Narrow::F16) => format!("unpack2x16float(f16_bits({a})).x"),
        ScalarOp::Input { .. } | ScalarOp::Index { .. } | ScalarOp::Param { .. } | ScalarOp::Math(_) => {
            return Err(missing());
        }
    })
}

fn shift(op: ScalarOp, ty: ScalarType, a: &str, b: &str) -> String {
    let (bits, name) = (width(ty), register(ty));
    // The amount as a word; of wide types all of it counts.
    let (amount, inside) = match ty {
        ScalarType::I64 | ScalarType::U64 => {
            (format!("u32(u64({b}) & 63lu)"), format!("(bitcast<u64>({b}) < 64lu)"))
        }
        ScalarType::I8 | ScalarType::I16 => {
            let mask = (1u32 << bits) - 1;
            (format!("(u32({b}) & 31u)"), format!("((u32({b}) & {mask}u) < {bits}u)"))
        }
        _ => (format!("(u32({b}) & 31u)"), format!("(u32({b}) < {bits}u)")),
    };
    let zero = constant(ty, 0);
    match op {
        ScalarOp::Shl => wrapped(ty, format!("select({zero}, {a} << {amount}, {inside})")),
        ScalarOp::ShrLogical if ty.is_signed() => {
            let (unsigned, mask) = match ty {
                ScalarType::I8 => ("u32", " & 0xffu"),
                ScalarType::I16 => ("u32", " & 0xffffu"),
                ScalarType::I64 => ("u64", ""),
                _ => ("u32", ""),
            };
            let shifted = format!("bitcast<{name}>((bitcast<{unsigned}>({a}){mask}) >> {amount})");
            wrapped(ty, format!("select({zero}, {shifted}, {inside})"))
        }
        ScalarOp::ShrLogical => format!("select({zero}, {a} >> {amount}, {inside})"),
        _ => format!("select({a} >> {}u, {a} >> {amount}, {inside})", bits - 1),
    }
}

fn bits_of(op: ScalarOp, ty: ScalarType, a: &str) -> String {
    let function = if op == ScalarOp::PopCount { "countOneBits" } else { "countLeadingZeros" };
    match ty {
        ScalarType::I64 | ScalarType::U64 => {
            let name = register(ty);
            let (low, high) =
                (format!("u32(bitcast<u64>({a}) & 0xfffffffflu)"), format!("u32(bitcast<u64>({a}) >> 32u)"));
            match op {
                ScalarOp::PopCount => format!("{name}(countOneBits({low}) + countOneBits({high}))"),
                _ => format!(
                    "{name}(select(countLeadingZeros({high}), 32u + countLeadingZeros({low}), {high} == 0u))"
                ),
            }
        }
        ScalarType::I8 | ScalarType::U8 | ScalarType::I16 | ScalarType::U16 => {
            let (bits, name) = (width(ty), register(ty));
            let word = format!("(u32({a}) & {}u)", (1u32 << bits) - 1);
            let less = if op == ScalarOp::Clz { format!(" - {}u", 32 - bits) } else { String::new() };
            format!("{name}({function}({word}){less})")
        }
        _ => format!("{function}({a})"),
    }
}

fn convert(from: ScalarType, to: ScalarType, a: &str) -> String {
    let name = register(to);
    match (from, to) {
        _ if from == to => a.to_string(),
        (_, ScalarType::Bool) if from.is_float() => format!("(!({a} == {}))", constant(from, 0)),
        (_, ScalarType::Bool) => format!("({a} != {})", constant(from, 0)),
        (ScalarType::Bool, _) if to.is_float() => format!("select({}, {name}(1), {a})", constant(to, 0)),
        (ScalarType::Bool, _) => format!("select({}, {name}(1), {a})", constant(to, 0)),
        _ if from.is_float() && !to.is_float() => {
            let (low, high) = match (to, to.is_signed()) {
                (ScalarType::I64, _) => {
                    ("bitcast<i64>(0x8000000000000000lu)".into(), "0x7fffffffffffffffli".to_string())
                }
                (ScalarType::U64, _) => ("0lu".into(), "0xfffffffffffffffflu".to_string()),
                (ScalarType::I32, _) => ("bitcast<i32>(0x80000000u)".into(), "0x7fffffffi".into()),
                (_, true) => (
                    format!("i32({})", -(1i32 << (width(to) - 1))),
                    format!("{}i", (1i32 << (width(to) - 1)) - 1),
                ),
                (_, false) => (
                    "0u".into(),
                    format!("{}u", if width(to) == 32 { u32::MAX } else { (1u32 << width(to)) - 1 }),
                ),
            };
            // The powers of two between which numbers fit; both are floats.
            let bits = width(to) as i32;
            let float = register(from);
            let edge = |power: i32| match from {
                ScalarType::F64 => format!("bitcast<f64>({:#x}lu ^ u64(zero))", 2f64.powi(power).to_bits()),
                _ => format!("bitcast<f32>({:#x}u ^ zero)", 2f32.powi(power).to_bits()),
            };
            let top = edge(if to.is_signed() { bits - 1 } else { bits });
            let bottom = if to.is_signed() { format!("(-{top})") } else { format!("{float}(0)") };
            let fits = format!("(({a}) > {bottom} && ({a}) < {top})");
            let inner = format!("{name}(select({float}(0), trunc({a}), {fits}))");
            let nan = format!("nan_{}({a})", register(from));
            format!(
                "select(select(select({inner}, {high}, ({a}) >= {top}), {low}, ({a}) <= {bottom}), {name}(0), {nan})"
            )
        }
        _ if to.is_float() => format!("{name}({a})"),
        _ => wrapped(to, format!("{name}({a})")),
    }
}

/// The functions that expressions call, for the types that a kernel has.
pub fn functions(has: impl Fn(ScalarType) -> bool) -> String {
    let mut text = String::from(
        "fn div_i32(a: i32, b: i32) -> i32 { let safe = select(b, 1, b == 0); \
         return select(select(a / safe, 0 - a, b == -1), -1, b == 0); }\n\
         fn rem_i32(a: i32, b: i32) -> i32 { let safe = select(b, 1, b == 0 || b == -1); \
         return select(select(a % safe, 0, b == -1), a, b == 0); }\n\
         fn div_u32(a: u32, b: u32) -> u32 { let safe = select(b, 1u, b == 0u); return select(a / safe, 0xffffffffu, b == 0u); }\n\
         fn rem_u32(a: u32, b: u32) -> u32 { let safe = select(b, 1u, b == 0u); return select(a % safe, a, b == 0u); }\n\
         fn nan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }\n\
         fn max_f32(a: f32, b: f32) -> f32 {\n\
         \x20 if nan_f32(a) { return a; }\n\
         \x20 if nan_f32(b) { return b; }\n\
         \x20 if a == b { return select(a, b, (bitcast<u32>(a) >> 31u) == 1u); }\n\
         \x20 return select(b, a, a > b);\n}\n\
         fn round_bf16(x: f32) -> f32 {\n\
         \x20 let bits = bitcast<u32>(x);\n\
         \x20 if nan_f32(x) { return bitcast<f32>((bits | 0x400000u) & 0xffff0000u); }\n\
         \x20 return bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);\n}\n\
         fn f16_bits(x: f32) -> u32 {\n\
         \x20 let bits = bitcast<u32>(x);\n\
         \x20 let sign = (bits >> 16u) & 0x8000u;\n\
         \x20 let size = bits & 0x7fffffffu;\n\
         \x20 if size > 0x7f800000u { return sign | 0x7e00u; }\n\
         \x20 if size >= 0x477ff000u { return sign | 0x7c00u; }\n\
         \x20 if size >= 0x38800000u {\n\
         \x20   return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);\n\
         \x20 }\n\
         \x20 if size < 0x33000000u { return sign; }\n\
         \x20 let shift = 126u - (size >> 23u);\n\
         \x20 let mantissa = (size & 0x7fffffu) | 0x800000u;\n\
         \x20 let kept = mantissa >> shift;\n\
         \x20 let rest = mantissa & ((1u << shift) - 1u);\n\
         \x20 let half = 1u << (shift - 1u);\n\
         \x20 return sign | (kept + select(0u, 1u, rest > half || (rest == half && (kept & 1u) == 1u)));\n}\n\
         fn rem_f32(a: f32, b: f32) -> f32 {\n\
         \x20 let x = bitcast<u32>(a) & 0x7fffffffu;\n\
         \x20 let y = bitcast<u32>(b) & 0x7fffffffu;\n\
         \x20 let sign = bitcast<u32>(a) & 0x80000000u;\n\
         \x20 if x >= 0x7f800000u || y > 0x7f800000u || y == 0u { return bitcast<f32>(0x7fc00000u ^ zero); }\n\
         \x20 if x < y { return a; }\n\
         \x20 var ex = max(x >> 23u, 1u);\n\
         \x20 let ey = max(y >> 23u, 1u);\n\
         \x20 var mx = select(x & 0x7fffffu, (x & 0x7fffffu) | 0x800000u, x >= 0x800000u);\n\
         \x20 let my = select(y & 0x7fffffu, (y & 0x7fffffu) | 0x800000u, y >= 0x800000u);\n\
         \x20 for (; ex > ey; ex--) { if mx >= my { mx = mx - my; } mx = mx << 1u; }\n\
         \x20 if mx >= my { mx = mx - my; }\n\
         \x20 if mx == 0u { return bitcast<f32>(sign); }\n\
         \x20 for (; mx < 0x800000u && ex > 1u; ex--) { mx = mx << 1u; }\n\
         \x20 return bitcast<f32>(sign | select(mx, (mx & 0x7fffffu) | (ex << 23u), mx >= 0x800000u));\n}\n",
    );
    if has(ScalarType::I64) {
        text += "fn div_i64(a: i64, b: i64) -> i64 { if b == 0li { return -1li; } if b == -1li { return 0li - a; } return a / b; }\n\
                 fn rem_i64(a: i64, b: i64) -> i64 { if b == 0li { return a; } if b == -1li { return 0li; } return a % b; }\n";
    }
    if has(ScalarType::U64) {
        text += "fn div_u64(a: u64, b: u64) -> u64 { if b == 0lu { return 0xfffffffffffffffflu; } return a / b; }\n\
                 fn rem_u64(a: u64, b: u64) -> u64 { if b == 0lu { return a; } return a % b; }\n";
    }
    if has(ScalarType::F64) {
        text += "fn nan_f64(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu; }\n\
                 fn max_f64(a: f64, b: f64) -> f64 {\n\
                 \x20 if nan_f64(a) { return a; }\n\
                 \x20 if nan_f64(b) { return b; }\n\
                 \x20 if a == b { return select(a, b, (bitcast<u64>(a) >> 63u) == 1lu); }\n\
                 \x20 return select(b, a, a > b);\n}\n\
                 fn rem_f64(a: f64, b: f64) -> f64 {\n\
                 \x20 let x = bitcast<u64>(a) & 0x7ffffffffffffffflu;\n\
                 \x20 let y = bitcast<u64>(b) & 0x7ffffffffffffffflu;\n\
                 \x20 let sign = bitcast<u64>(a) & 0x8000000000000000lu;\n\
                 \x20 if x >= 0x7ff0000000000000lu || y > 0x7ff0000000000000lu || y == 0lu \
                 { return bitcast<f64>(0x7ff8000000000000lu ^ u64(zero)); }\n\
                 \x20 if x < y { return a; }\n\
                 \x20 var ex = max(x >> 52u, 1lu);\n\
                 \x20 let ey = max(y >> 52u, 1lu);\n\
                 \x20 var mx = select(x & 0xffffffffffffflu, (x & 0xffffffffffffflu) | 0x10000000000000lu, x >= 0x10000000000000lu);\n\
                 \x20 let my = select(y & 0xffffffffffffflu, (y & 0xffffffffffffflu) | 0x10000000000000lu, y >= 0x10000000000000lu);\n\
                 \x20 for (; ex > ey; ex = ex - 1lu) { if mx >= my { mx = mx - my; } mx = mx << 1u; }\n\
                 \x20 if mx >= my { mx = mx - my; }\n\
                 \x20 if mx == 0lu { return bitcast<f64>(sign); }\n\
                 \x20 for (; mx < 0x10000000000000lu && ex > 1lu; ex = ex - 1lu) { mx = mx << 1u; }\n\
                 \x20 return bitcast<f64>(sign | select(mx, (mx & 0xffffffffffffflu) | (ex << 52u), mx >= 0x10000000000000lu));\n}\n";
    }
    text
}
