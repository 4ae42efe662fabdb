//! Types of registers in WGSL, and how elements of arrays become registers.
//!
//! Arrays are words of 32 bits (`arrays`). What is narrower than a word lies in a part of one.

use ferrax_ir::scalar::ScalarType;
use ferrax_ir::{DType, Result, unsupported};

use super::arrays::Words;

/// What registers of a type are in WGSL. Those narrower than a word are words, kept in range.
pub fn register(ty: ScalarType) -> &'static str {
    match ty {
        ScalarType::Bool => "bool",
        ScalarType::I8 | ScalarType::I16 | ScalarType::I32 => "i32",
        ScalarType::U8 | ScalarType::U16 | ScalarType::U32 => "u32",
        ScalarType::I64 => "i64",
        ScalarType::U64 => "u64",
        ScalarType::F32 => "f32",
        ScalarType::F64 => "f64",
    }
}

/// A register of two words, of which those of up to 32 bits need the low one.
pub fn from_words(ty: ScalarType, low: &str, high: &str) -> String {
    let wide = format!("(u64({low}) | (u64({high}) << 32u))");
    match ty {
        ScalarType::Bool => format!("({low} != 0u)"),
        ScalarType::U8 | ScalarType::U16 | ScalarType::U32 => low.to_string(),
        ScalarType::I8 | ScalarType::I16 | ScalarType::I32 | ScalarType::F32 => {
            format!("bitcast<{}>({low})", register(ty))
        }
        ScalarType::U64 => wide,
        ScalarType::I64 | ScalarType::F64 => format!("bitcast<{}>({wide})", register(ty)),
    }
}

/// The words of a register.
pub fn to_words(ty: ScalarType, value: &str) -> [String; 2] {
    let low = match ty {
        ScalarType::Bool => format!("select(0u, 1u, {value})"),
        ScalarType::I64 | ScalarType::U64 | ScalarType::F64 => {
            let bits = format!("bitcast<u64>({value})");
            return [format!("u32({bits} & 0xfffffffflu)"), format!("u32({bits} >> 32u)")];
        }
        _ => format!("bitcast<u32>({value})"),
    };
    [low, "0u".to_string()]
}

/// How the words of an array hold its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// So many bits of a word.
    Part(u32),
    Word,
    /// Two words, the low one first.
    Pair,
}

/// How parts (of complex numbers, two) of elements are stored, and how many there are.
pub fn storage(dtype: DType) -> Result<(Storage, u32)> {
    let part = match dtype {
        DType::Bool | DType::I8 | DType::U8 => Storage::Part(8),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => Storage::Part(16),
        DType::I32 | DType::U32 | DType::F32 | DType::C64 => Storage::Word,
        DType::I64 | DType::U64 | DType::F64 | DType::C128 => Storage::Pair,
        DType::Key(key) if key.words() == 1 => Storage::Word,
        DType::Key(key) if key.words() == 2 => Storage::Pair,
        other => return Err(unsupported!("GPUs have no kernels for elements of {other}")),
    };
    Ok((part, dtype.parts() as u32))
}

/// How an array of this dtype is written, where each invocation writes elements.
pub fn words(dtype: DType, written: bool) -> Words {
    Words::parts_if(written && matches!(storage(dtype), Ok((Storage::Part(_), _))))
}

/// The part `part` of element `at` (an expression of `i32`) of array `b`, as a register.
pub fn load(b: u32, dtype: DType, part: u8, at: &str) -> Result<String> {
    load_from(|index| format!("word{b}({index})"), dtype, part, at)
}

/// The same of an array whose words are read so.
pub fn load_from(word: impl Fn(String) -> String, dtype: DType, part: u8, at: &str) -> Result<String> {
    let (storage, parts) = storage(dtype)?;
    let at = format!("u32({at})");
    let bits = match storage {
        Storage::Word if parts == 2 => word(format!("{at} * 2u + {part}u")),
        Storage::Word => word(at),
        Storage::Pair => {
            let first = format!("({at} * {}u + {}u)", 2 * parts, 2 * part);
            format!("(u64({}) | (u64({}) << 32u))", word(first.clone()), word(format!("{first} + 1u")))
        }
        Storage::Part(bits) => {
            let (each, log) = if bits == 8 { (3, 2) } else { (1, 1) };
            format!("extractBits({}, ({at} & {each}u) * {bits}u, {bits}u)", word(format!("{at} >> {log}u")))
        }
    };
    Ok(from_bits(dtype, bits))
}

/// The register that a part with these bits is.
pub fn from_bits(dtype: DType, bits: String) -> String {
    match dtype {
        DType::Bool => format!("({bits} != 0u)"),
        DType::I8 => format!("((bitcast<i32>({bits}) << 24u) >> 24u)"),
        DType::I16 => format!("((bitcast<i32>({bits}) << 16u) >> 16u)"),
        DType::I32 => format!("bitcast<i32>({bits})"),
        DType::I64 => format!("bitcast<i64>({bits})"),
        DType::F32 | DType::C64 => format!("bitcast<f32>({bits})"),
        DType::F64 | DType::C128 => format!("bitcast<f64>({bits})"),
        DType::F16 => format!("unpack2x16float({bits}).x"),
        DType::BF16 => format!("bitcast<f32>({bits} << 16u)"),
        _ => bits,
    }
}

/// Statements that write a register to part `part` of element `at` of array `b`.
pub fn store(b: u32, dtype: DType, part: u8, at: &str, value: &str) -> Result<String> {
    let set = |index: &str, word: &str| format!("set{b}({index}, {word});");
    let insert = |index: &str, mask: &str, bits: &str| format!("insert{b}({index}, {mask}, {bits});");
    store_by(set, insert, dtype, part, at, value)
}

/// The same into an array whose words are written so, and parts of whose words are.
pub fn store_by(
    set: impl Fn(&str, &str) -> String,
    insert: impl Fn(&str, &str, &str) -> String,
    dtype: DType,
    part: u8,
    at: &str,
    value: &str,
) -> Result<String> {
    let (storage, parts) = storage(dtype)?;
    let at = format!("u32({at})");
    let bits = to_bits(dtype, value);
    Ok(match storage {
        Storage::Word if parts == 1 => set(&at, &bits),
        Storage::Word => set(&format!("{at} * {parts}u + {part}u"), &bits),
        Storage::Pair => format!(
            "{{ let w = {bits}; let p = {at} * {}u + {}u; {} {} }}",
            2 * parts,
            2 * part,
            set("p", "u32(w & 0xfffffffflu)"),
            set("p + 1u", "u32(w >> 32u)")
        ),
        Storage::Part(bits_of) => {
            let (each, log, mask) = if bits_of == 8 { (3, 2, "0xffu") } else { (1, 1, "0xffffu") };
            let inserted =
                insert(&format!("p >> {log}u"), &format!("{mask} << s"), &format!("({bits} & {mask}) << s"));
            format!("{{ let p = {at}; let s = (p & {each}u) * {bits_of}u; {inserted} }}")
        }
    })
}

/// The bits of a register as a part; of those narrower than a word the lower ones.
pub fn to_bits(dtype: DType, value: &str) -> String {
    match dtype {
        DType::Bool => format!("select(0u, 1u, {value})"),
        DType::I8 | DType::I16 | DType::I32 | DType::F32 | DType::C64 => format!("bitcast<u32>({value})"),
        DType::I64 | DType::F64 | DType::C128 => format!("bitcast<u64>({value})"),
        DType::F16 => format!("f16_bits({value})"),
        DType::BF16 => format!("(bitcast<u32>(round_bf16({value})) >> 16u)"),
        _ => value.to_string(),
    }
}
