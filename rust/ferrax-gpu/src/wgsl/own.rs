//! Elements in memory that a workgroup, or an invocation, has of its own: `own`, an array of words.
//!
//! A part of an element has a word there, or two, however narrow it is: invocations write apart from each other,
//! without atomic operations.

use ferrax_ir::{DType, Result};

use super::types::{self, Storage};

/// The words of an element.
pub fn words(dtype: DType) -> Result<usize> {
    let (storage, parts) = types::storage(dtype)?;
    Ok(parts as usize * if storage == Storage::Pair { 2 } else { 1 })
}

/// The part `part` of element `at` (an expression of `i32`), as a register.
pub fn load(dtype: DType, part: u8, at: &str) -> Result<String> {
    let (storage, parts) = types::storage(dtype)?;
    let bits = match storage {
        Storage::Pair => {
            let first = format!("(u32({at}) * {}u + {}u)", 2 * parts, 2 * part);
            format!("(u64(own[{first}]) | (u64(own[{first} + 1u]) << 32u))")
        }
        _ => format!("own[u32({at}) * {parts}u + {part}u]"),
    };
    Ok(types::from_bits(dtype, bits))
}

/// Statements that write a register to part `part` of element `at`.
pub fn store(dtype: DType, part: u8, at: &str, value: &str) -> Result<String> {
    let (storage, parts) = types::storage(dtype)?;
    let bits = types::to_bits(dtype, value);
    Ok(match storage {
        Storage::Pair => format!(
            "{{ let w = {bits}; let p = u32({at}) * {}u + {}u; own[p] = u32(w & 0xfffffffflu); own[p + 1u] = u32(w >> 32u); }}",
            2 * parts,
            2 * part
        ),
        Storage::Word => format!("own[u32({at}) * {parts}u + {part}u] = {bits};"),
        Storage::Part(bits_of) => {
            format!("own[u32({at}) * {parts}u + {part}u] = {bits} & {}u;", (1u32 << bits_of) - 1)
        }
    })
}
