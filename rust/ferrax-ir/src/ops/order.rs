//! The orders that elements are sorted in, for the interpreter and for backends.
//!
//! *Keys*, for `sort`: numbers ascending, zeros of both signs equal, NaN after
//! all others whatever its sign and payload, complex numbers by their real and
//! then by their imaginary part.
//!
//! *Total order*, for `top_k`: that of IEEE 754, so that a zero is greater than
//! a negative zero, a NaN greater than all numbers and a NaN with a sign less.
//!
//! The only NaN of the FNUZ formats has a sign and comes first in either.

use std::cmp::Ordering;

use crate::convert::{Wide, load};
use crate::minifloat::MiniFloat;
use crate::{DType, Kind, Result, type_error};

/// How two elements of `dtype` compare as keys.
pub(super) fn compare_keys(dtype: DType, left: Wide, right: Wide) -> Ordering {
    let floats = |left: f64, right: f64| {
        left.partial_cmp(&right).unwrap_or_else(|| {
            let order = left.is_nan().cmp(&right.is_nan());
            if nan_is_first(dtype) { order.reverse() } else { order }
        })
    };
    match (left, right) {
        (Wide::Int(left), Wide::Int(right)) => left.cmp(&right),
        (Wide::Float(left), Wide::Float(right)) => floats(left, right),
        (Wide::Complex(left, x), Wide::Complex(right, y)) => floats(left, right).then_with(|| floats(x, y)),
        _ => Ordering::Equal,
    }
}

/// An integer in the total order of the elements of `dtype` with these bits.
pub(super) fn total_order(dtype: DType, bits: u128) -> i128 {
    let sign = 1u128 << (dtype.bits().max(1) - 1);
    let (negative, magnitude) = (bits & sign != 0, (bits & (sign - 1)).cast_signed());
    match dtype.kind() {
        Kind::Signed => magnitude - if negative { sign.cast_signed() } else { 0 },
        Kind::Float if dtype == DType::F8E8M0FNU || !negative => (bits & (sign | (sign - 1))).cast_signed(),
        Kind::Float if nan_is_first(dtype) && magnitude == 0 => i128::MIN,
        Kind::Float => -1 - magnitude,
        _ => (bits & (sign | (sign - 1))).cast_signed(),
    }
}

/// Refuses keys that have no order.
pub(super) fn check_ordered(name: &str, dtype: DType, position: usize) -> Result<()> {
    match dtype.kind() {
        Kind::Bool | Kind::Signed | Kind::Unsigned | Kind::Float | Kind::Complex => Ok(()),
        Kind::Key | Kind::Float0 => Err(type_error!(
            "{name} does not accept dtype {dtype} for operand {position}, whose elements it compares: it takes \
             integer, floating, complexfloating, bool."
        )),
    }
}

fn nan_is_first(dtype: DType) -> bool {
    MiniFloat::of(dtype).is_some_and(MiniFloat::is_fnuz)
}

/// For a dtype of one byte, the rank of each element in the order of keys: less where it comes
/// before, equal where it is equal.
pub fn key_ranks(dtype: DType) -> Option<[u8; 256]> {
    ranks(dtype, |left, right| {
        let (left, right) = (load(dtype, &[left])?, load(dtype, &[right])?);
        Some(compare_keys(dtype, left, right))
    })
}

/// As `key_ranks` in the total order.
pub fn total_ranks(dtype: DType) -> Option<[u8; 256]> {
    let place = |byte: u8| total_order(dtype, byte.into());
    ranks(dtype, |left, right| {
        Some(if dtype.is_bool() { (left != 0).cmp(&(right != 0)) } else { place(left).cmp(&place(right)) })
    })
}

fn ranks(dtype: DType, compare: impl Fn(u8, u8) -> Option<Ordering>) -> Option<[u8; 256]> {
    if dtype.size() != 1 {
        return None;
    }
    let mut order: Vec<u8> = (0..=255).collect();
    order.sort_by(|&left, &right| compare(left, right).unwrap_or(Ordering::Equal));
    let mut ranks = [0; 256];
    let mut rank = 0;
    for pair in order.windows(2) {
        rank += u8::from(compare(pair[0], pair[1])?.is_ne());
        ranks[usize::from(pair[1])] = rank;
    }
    Some(ranks)
}
