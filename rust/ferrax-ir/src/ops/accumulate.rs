//! Reference arithmetic of reductions, one element at a time.
//!
//! Floats accumulate in `f64` whatever their dtype and are rounded once, at the
//! end; integers wrap at the end, for sums and products modulo 2^128 are right
//! modulo any smaller power. Maxima and minima propagate NaN and hold `-0` for less than `0`.

use std::cmp::Ordering;

use crate::convert::{Wide, load, store};
use crate::{DType, Kind, Result, Scalar, internal_error};

/// How two values become one.
#[derive(Clone, Copy, Debug)]
pub struct Reducer {
    /// The value that changes nothing.
    pub identity: fn(DType) -> Wide,
    /// Of two values of one kind; `None` for kinds that there is no rule for.
    pub combine: fn(Wide, Wide) -> Option<Wide>,
}

/// Booleans add as "or", subtract as exclusive "or" and multiply as "and".
pub const SUM: Reducer = Reducer {
    identity: |dtype| number(dtype, 0),
    combine: |x, y| arithmetic((x, y), i128::wrapping_add, |a, b| a + b, |(a, x), (b, y)| (a + b, x + y)),
};

pub const DIFFERENCE: Reducer = Reducer {
    identity: |dtype| number(dtype, 0),
    combine: |x, y| arithmetic((x, y), i128::wrapping_sub, |a, b| a - b, |(a, x), (b, y)| (a - b, x - y)),
};

pub const PRODUCT: Reducer = Reducer {
    identity: |dtype| number(dtype, 1),
    combine: |x, y| {
        let complex = |(a, x): Parts, (b, y): Parts| (a * b - x * y, a * y + x * b);
        arithmetic((x, y), i128::wrapping_mul, |a, b| a * b, complex)
    },
};

pub const MAX: Reducer = Reducer {
    identity: |dtype| infinite(dtype, -1.0).unwrap_or(Wide::Int(integer_range(dtype).0)),
    combine: |x, y| Some(extremum(x, y, Ordering::Greater)),
};

pub const MIN: Reducer = Reducer {
    identity: |dtype| infinite(dtype, 1.0).unwrap_or(Wide::Int(integer_range(dtype).1)),
    combine: |x, y| Some(extremum(x, y, Ordering::Less)),
};

pub const AND: Reducer = Reducer {
    identity: |dtype| Wide::Int(if dtype.is_bool() { 1 } else { -1 }),
    combine: |x, y| bitwise(x, y, |a, b| a & b),
};

pub const OR: Reducer = Reducer { identity: |_| Wide::Int(0), combine: |x, y| bitwise(x, y, |a, b| a | b) };

pub const XOR: Reducer = Reducer { identity: |_| Wide::Int(0), combine: |x, y| bitwise(x, y, |a, b| a ^ b) };

impl Reducer {
    pub fn apply(self, left: Wide, right: Wide) -> Result<Wide> {
        (self.combine)(left, right).ok_or_else(|| internal_error!("a reduction of {left:?} and {right:?}"))
    }

    /// The element at `to` of `target` combined with that at `from` of `source`.
    pub fn apply_at(
        self,
        dtype: DType,
        target: &[u8],
        to: usize,
        source: &[u8],
        from: usize,
    ) -> Result<Scalar> {
        let combined = self.apply(element(dtype, target, to)?, element(dtype, source, from)?)?;
        // What is not 0 is true, and the difference of truth values is odd where they differ.
        let combined = match combined {
            Wide::Int(value) if dtype.is_bool() => Wide::Int(i128::from(value != 0)),
            other => other,
        };
        rounded(dtype, combined)
    }

    /// The result for no elements.
    pub fn of_nothing(self, dtype: DType) -> Result<Scalar> {
        rounded(dtype, (self.identity)(dtype))
    }
}

/// Real and imaginary part.
type Parts = (f64, f64);

fn arithmetic(
    operands: (Wide, Wide),
    integer: fn(i128, i128) -> i128,
    float: fn(f64, f64) -> f64,
    complex: fn(Parts, Parts) -> Parts,
) -> Option<Wide> {
    Some(match operands {
        (Wide::Int(x), Wide::Int(y)) => Wide::Int(integer(x, y)),
        (Wide::Float(x), Wide::Float(y)) => Wide::Float(float(x, y)),
        (Wide::Complex(a, x), Wide::Complex(b, y)) => {
            let (re, im) = complex((a, x), (b, y));
            Wide::Complex(re, im)
        }
        _ => return None,
    })
}

fn bitwise(x: Wide, y: Wide, integer: fn(i128, i128) -> i128) -> Option<Wide> {
    match (x, y) {
        (Wide::Int(x), Wide::Int(y)) => Some(Wide::Int(integer(x, y))),
        _ => None,
    }
}

/// The first NaN, else whichever is `wanted` of the other.
fn extremum(left: Wide, right: Wide, wanted: Ordering) -> Wide {
    let relation = match (left, right) {
        (Wide::Float(a), Wide::Float(b)) if a == b => Some(b.is_sign_negative().cmp(&a.is_sign_negative())),
        _ => order(left, right),
    };
    if is_nan(left) || (!is_nan(right) && relation != Some(wanted.reverse())) { left } else { right }
}

fn number(dtype: DType, value: i8) -> Wide {
    match dtype.kind() {
        Kind::Float => Wide::Float(value.into()),
        Kind::Complex => Wide::Complex(value.into(), 0.0),
        _ => Wide::Int(value.into()),
    }
}

fn infinite(dtype: DType, sign: f64) -> Option<Wide> {
    match dtype.kind() {
        Kind::Float => Some(Wide::Float(sign * f64::INFINITY)),
        Kind::Complex => Some(Wide::Complex(sign * f64::INFINITY, 0.0)),
        _ => None,
    }
}

/// The element at `position` of an array's bytes.
pub fn element(dtype: DType, bytes: &[u8], position: usize) -> Result<Wide> {
    let width = dtype.size();
    bytes
        .get(position * width..)
        .and_then(|bytes| load(dtype, bytes))
        .ok_or_else(|| internal_error!("element {position} of {dtype} cannot be computed with"))
}

/// `value` as an element of `dtype`.
pub fn rounded(dtype: DType, value: Wide) -> Result<Scalar> {
    // Formats without infinities have their extreme finite numbers instead.
    if let Wide::Float(infinite) = value
        && infinite.is_infinite()
        && dtype.is_storage_only()
        && let Some(extreme) = extreme_without_infinity(dtype, infinite)
    {
        return Ok(extreme);
    }
    store(dtype, value).ok_or_else(|| internal_error!("{dtype} cannot be computed with"))
}

fn extreme_without_infinity(dtype: DType, sign: f64) -> Option<Scalar> {
    if Scalar::from_f64(dtype, sign).to_f64() == Some(sign) {
        return None;
    }
    let all = (0..=255u128).map(|bits| Scalar::from_bits(dtype, bits));
    let finite = all.filter(|scalar| scalar.to_f64().is_some_and(f64::is_finite));
    finite.max_by(|a, b| {
        let key = |scalar: &Scalar| scalar.to_f64().unwrap_or(0.0) * sign.signum();
        key(a).total_cmp(&key(b))
    })
}

/// The order of `argmax`: complex numbers lexicographically; `None` if a NaN is involved. Zeros of
/// both signs are equal.
pub fn order(left: Wide, right: Wide) -> Option<Ordering> {
    match (left, right) {
        (Wide::Int(a), Wide::Int(b)) => Some(a.cmp(&b)),
        (Wide::Float(a), Wide::Float(b)) => a.partial_cmp(&b),
        (Wide::Complex(a, x), Wide::Complex(b, y)) if a == b => x.partial_cmp(&y),
        (Wide::Complex(a, _), Wide::Complex(b, _)) => a.partial_cmp(&b),
        _ => None,
    }
}

pub fn is_nan(value: Wide) -> bool {
    match value {
        Wide::Int(_) => false,
        Wide::Float(value) => value.is_nan(),
        Wide::Complex(re, im) => re.is_nan() || im.is_nan(),
    }
}

/// The least and the greatest value of an integer or boolean dtype.
fn integer_range(dtype: DType) -> (i128, i128) {
    match dtype.kind() {
        Kind::Bool => (0, 1),
        Kind::Signed => (-1 << (dtype.bits() - 1), (1 << (dtype.bits() - 1)) - 1),
        _ => (0, (1 << dtype.bits().min(64)) - 1),
    }
}
