//! Reference arithmetic of reductions, one element at a time.
//!
//! Floats accumulate in `f64` whatever their dtype and are rounded once, at the
//! end; integers wrap at the end, for sums and products modulo 2^128 are right
//! modulo any smaller power. Maxima and minima propagate NaN.

use std::cmp::Ordering;

use crate::convert::{Wide, load, store};
use crate::{DType, Kind, Result, Scalar, internal_error};

/// How two values become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reducer {
    Sum,
    Difference,
    Product,
    Max,
    Min,
    And,
    Or,
    Xor,
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

/// The order that maxima follow: complex numbers lexicographically; `None` if a NaN is involved.
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

impl Reducer {
    /// The value that changes nothing.
    pub fn identity(self, dtype: DType) -> Wide {
        let of = |value: i8| match dtype.kind() {
            Kind::Float => Wide::Float(value.into()),
            Kind::Complex => Wide::Complex(value.into(), 0.0),
            _ => Wide::Int(value.into()),
        };
        let infinite = |sign: f64| match dtype.kind() {
            Kind::Float => Some(Wide::Float(sign * f64::INFINITY)),
            Kind::Complex => Some(Wide::Complex(sign * f64::INFINITY, 0.0)),
            _ => None,
        };
        let (low, high) = integer_range(dtype);
        match self {
            Reducer::Sum | Reducer::Difference | Reducer::Or | Reducer::Xor => of(0),
            Reducer::Product => of(1),
            Reducer::Max => infinite(-1.0).unwrap_or(Wide::Int(low)),
            Reducer::Min => infinite(1.0).unwrap_or(Wide::Int(high)),
            Reducer::And => Wide::Int(if dtype.is_bool() { 1 } else { -1 }),
        }
    }

    pub fn apply(self, left: Wide, right: Wide) -> Result<Wide> {
        let chosen = |wanted: Ordering| {
            if is_nan(left) || (!is_nan(right) && order(left, right) != Some(wanted.reverse())) {
                left
            } else {
                right
            }
        };
        Ok(match (self, left, right) {
            (Reducer::Max, ..) => chosen(Ordering::Greater),
            (Reducer::Min, ..) => chosen(Ordering::Less),
            (Reducer::Sum, Wide::Int(a), Wide::Int(b)) => Wide::Int(a.wrapping_add(b)),
            (Reducer::Sum, Wide::Float(a), Wide::Float(b)) => Wide::Float(a + b),
            (Reducer::Sum, Wide::Complex(a, x), Wide::Complex(b, y)) => Wide::Complex(a + b, x + y),
            (Reducer::Difference, Wide::Int(a), Wide::Int(b)) => Wide::Int(a.wrapping_sub(b)),
            (Reducer::Difference, Wide::Float(a), Wide::Float(b)) => Wide::Float(a - b),
            (Reducer::Difference, Wide::Complex(a, x), Wide::Complex(b, y)) => Wide::Complex(a - b, x - y),
            (Reducer::Product, Wide::Int(a), Wide::Int(b)) => Wide::Int(a.wrapping_mul(b)),
            (Reducer::Product, Wide::Float(a), Wide::Float(b)) => Wide::Float(a * b),
            (Reducer::Product, Wide::Complex(a, x), Wide::Complex(b, y)) => {
                Wide::Complex(a * b - x * y, a * y + x * b)
            }
            (Reducer::And, Wide::Int(a), Wide::Int(b)) => Wide::Int(a & b),
            (Reducer::Or, Wide::Int(a), Wide::Int(b)) => Wide::Int(a | b),
            (Reducer::Xor, Wide::Int(a), Wide::Int(b)) => Wide::Int(a ^ b),
            _ => return Err(internal_error!("{self:?} of {left:?} and {right:?}")),
        })
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
        // Booleans add as "or" and multiply as "and".
        let reducer = match self {
            Reducer::Sum if dtype.is_bool() => Reducer::Or,
            Reducer::Difference if dtype.is_bool() => Reducer::Xor,
            Reducer::Product if dtype.is_bool() => Reducer::And,
            other => other,
        };
        rounded(dtype, reducer.apply(element(dtype, target, to)?, element(dtype, source, from)?)?)
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
