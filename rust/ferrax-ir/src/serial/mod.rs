//! Saved programs: a program with its constants and its interface as bytes.
//!
//! ```text
//! file    := magic (8 bytes) version (u32) checksum (u32) length (u64) payload
//! payload := `format::File` in the postcard encoding (<https://postcard.jamesmunns.com>)
//! ```
//!
//! All numbers of the header are little-endian; `length` counts the payload's
//! bytes, `checksum` is their CRC-32 (ISO 3309). Types, tensors, source lines
//! and programs are tables of the payload; a program refers only to programs
//! before it, so callees that are shared stay shared and no cycle can be
//! written. Files are untrusted: ops are made by [`Op::from_params`], the result
//! passes the verifier, nesting is bounded, and memory taken is at most
//! proportional to the file. Whatever the bytes, the outcome is a program that
//! verifies or [`Error::Parse`].
//!
//! [`Op::from_params`]: crate::Op::from_params
//! [`Error::Parse`]: crate::Error::Parse

mod format;
mod read;
mod rules;
mod write;

use crate::{Dim, Error, Program, Result, Type, parse_error, value_error};

pub use rules::saved as with_rules;

/// The first bytes of every file; they show where a transfer in text mode or
/// one that drops the eighth bit did damage.
pub const MAGIC: [u8; 8] = *b"\x89FRX\r\n\x1a\n";

/// The version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// Bytes before the payload.
pub const HEADER: usize = 24;

/// How deep calls may nest in a file.
pub const MAX_DEPTH: usize = 100;

/// How deep lists may nest in a parameter.
const MAX_LIST_DEPTH: usize = 16;

/// The most dimensions of an array in a file.
const MAX_RANK: usize = 64;

/// The longest text of one dimension: arithmetic on polynomials is costly.
const MAX_DIM_TEXT: usize = 200;

/// The most equations that a program may have once all calls are written out.
const MAX_EXPANDED: usize = 1 << 26;

/// What a caller has to know of a saved program besides its types.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// A name for each input, or none at all.
    pub input_names: Vec<String>,
    /// A name for each output, or none at all.
    pub output_names: Vec<String>,
    /// Text that means something to whoever wrote the file (the Python package
    /// keeps the structure of arguments and results here).
    pub metadata: String,
}

impl Interface {
    /// Fails if the names do not fit the program.
    pub fn check(&self, program: &Program) -> Result<()> {
        let sides = [
            ("input", self.input_names.len(), program.inputs.len()),
            ("output", self.output_names.len(), program.outputs.len()),
        ];
        for (side, names, count) in sides {
            if names != 0 && names != count {
                return Err(value_error!("{names} {side} names for '{}', which has {count}", program.name));
            }
        }
        Ok(())
    }
}

/// The derivatives up to which rules of the user's are saved if no more are asked for.
pub const RULE_ORDER: usize = 2;

/// The bytes of a file. Rules of the user's are traced for it. Ops that are defined outside this crate cannot be saved.
pub fn to_bytes(program: &Program, interface: &Interface) -> Result<Vec<u8>> {
    to_bytes_up_to(program, interface, RULE_ORDER)
}

/// The same with rules for derivatives up to order `orders`.
pub fn to_bytes_up_to(program: &Program, interface: &Interface, orders: usize) -> Result<Vec<u8>> {
    interface.check(program)?;
    let program = &rules::saved(program, orders)?;
    let mut bytes = vec![0; HEADER];
    bytes.extend_from_slice(&write::payload(program, interface)?);
    seal(&mut bytes);
    Ok(bytes)
}

/// Writes the header over the first bytes, for the payload that follows them: what changes a payload,
/// as a fuzzer does, seals it again. Fewer bytes than a header's stay as they are.
pub fn seal(bytes: &mut [u8]) {
    let Some((header, payload)) = bytes.split_at_mut_checked(HEADER) else { return };
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    header[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
}

/// The program in the bytes of a file, verified, with its interface.
pub fn from_bytes(bytes: &[u8]) -> Result<(Program, Interface)> {
    let payload = open(bytes)?;
    read::payload(payload).map_err(|error| match error {
        Error::Parse(text) => parse_error!("this saved program is damaged: {text}"),
        other => parse_error!("this saved program is not valid: {other}"),
    })
}

/// The payload, once the header is found to be right.
fn open(bytes: &[u8]) -> Result<&[u8]> {
    let Some((magic, rest)) = bytes.split_at_checked(MAGIC.len()) else {
        return Err(parse_error!("this is not a saved program: it has only {} bytes", bytes.len()));
    };
    if magic != MAGIC {
        let damaged = magic[1..4] == MAGIC[1..4];
        let why = if damaged { "; it seems to have been transferred as text" } else { "" };
        return Err(parse_error!("this is not a saved program: it begins with other bytes{why}"));
    }
    let ends =
        || parse_error!("this saved program is cut off: its header has {} of {HEADER} bytes", bytes.len());
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(ends)?;
    let version = u32::from_le_bytes(*version);
    if version == 0 || version > VERSION {
        return Err(parse_error!(
            "this saved program has format version {version}, but this library reads versions 1 to {VERSION}; \
             update ferrax, or save the program again with this one"
        ));
    }
    let (checksum, rest) = rest.split_first_chunk::<4>().ok_or_else(ends)?;
    let (length, payload) = rest.split_first_chunk::<8>().ok_or_else(ends)?;
    let (length, have) = (u64::from_le_bytes(*length), payload.len() as u64);
    if have < length {
        return Err(parse_error!(
            "this saved program is cut off: {have} bytes of {length} follow the header"
        ));
    }
    if have > length {
        return Err(parse_error!("this saved program is damaged: {} bytes follow its end", have - length));
    }
    if crc32fast::hash(payload) != u32::from_le_bytes(*checksum) {
        return Err(parse_error!("this saved program is damaged: its checksum does not match its contents"));
    }
    Ok(payload)
}

/// Fails for types that files cannot hold: too many dimensions, or more
/// elements than memory has addresses.
fn check_type(ty: &Type) -> Result<()> {
    let (Type::Array(array) | Type::Ref(array)) = ty else { return Ok(()) };
    if !array.varying.is_empty() {
        return Err(parse_error!(
            "the type {ty} is of a value on each device of a mesh; whole programs are saved"
        ));
    }
    if array.rank() > MAX_RANK {
        return Err(parse_error!("an array of {} dimensions; at most {MAX_RANK} can be saved", array.rank()));
    }
    array
        .shape
        .iter()
        .filter_map(Dim::as_const)
        .try_fold(array.dtype.size().max(1), |total, size| total.checked_mul(size.max(1)))
        .filter(|&total| total <= isize::MAX as usize)
        .map(|_| ())
        .ok_or_else(|| parse_error!("the type {ty} exceeds the address space"))
}
