//! Where a loop's arrays are: values, element by element, or memory.

use ferrax_ir::DType;
use ferrax_ir::scalar::ScalarType;

use super::{Address, Id};

/// Elements of an array that values stand for, at most.
pub(super) const MOST_ELEMENTS: usize = 64;
/// Elements among which a computed index chooses by comparing.
pub(super) const MOST_COMPARED: usize = 8;
/// Elements of an array that lanes go through, at most.
pub(super) const MOST_LANES: usize = 1024;

/// What an entry of a function's table points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pointer {
    /// An operand of the op, or a result.
    Input(usize),
    Output(usize),
    /// Elements of a constant.
    Constant(usize),
    Scratch,
}

/// Where the elements of an array are.
#[derive(Clone, Debug)]
pub(super) enum Array {
    /// Values: of complex numbers two each.
    Values(Vec<Id>),
    /// Memory. `constant` says that nothing writes it while the function runs.
    Memory { at: Address, constant: bool },
}

/// The registers of an element: a type for all parts; none of dtypes that are converted when they are read or written.
pub(super) fn parts(dtype: DType) -> Option<(ScalarType, usize)> {
    let parts = if matches!(dtype, DType::C64 | DType::C128) { 2 } else { 1 };
    let real = if parts == 2 { dtype.real() } else { dtype };
    ScalarType::of(real).ok().filter(|ty| ty.dtype() == real).map(|ty| (ty, parts))
}

/// The elements of an array that a chain can have, one register each.
pub(super) fn element(dtype: ferrax_ir::DType) -> Option<ScalarType> {
    let (ty, parts) = parts(dtype)?;
    (parts == 1 && (ty.size() >= 4 || ty == ScalarType::Bool)).then_some(ty)
}

pub(super) fn same_memory(a: &Array, b: &Array) -> bool {
    matches!((a, b), (Array::Memory { at: a, .. }, Array::Memory { at: b, .. }) if a == b)
}

pub(super) fn moved(at: Address, bytes: i64) -> Option<Address> {
    let offset = i32::try_from(bytes).ok().and_then(|bytes| at.offset.checked_add(bytes))?;
    Some(Address { offset, ..at })
}
