//! How far apart elements of compiled and of interpreted programs may be.

use ferrax_ir::{DType, Scalar, Tensor};

/// An error that says that the sign of a zero is free, and nothing else.
pub const SIGN_OF_ZERO: f64 = f64::MIN_POSITIVE;

/// No element exceeds `magnitude` (which may be infinite) and, of what is compiled and what is
/// interpreted, elements differ by at most `error`, or `relative` times the larger part of the one
/// that is interpreted. Elements are multiples of `unit`, a power of two, if that is not zero: as long as sums
/// of such have no more multiples than the dtype counts they are exact, in whichever order.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub magnitude: f64,
    pub error: f64,
    pub relative: f64,
    pub unit: f64,
}

/// The same bits, whatever they are.
pub const EXACT: Bound = Bound::exact(f64::INFINITY);
/// Only that all ways of computing it have the same bits; what these are is seen by a value that is made of it.
pub const REPEATABLE: Bound = Bound::new(f64::INFINITY, f64::INFINITY);

impl Bound {
    pub const fn new(magnitude: f64, error: f64) -> Bound {
        Bound { magnitude, error, relative: 0.0, unit: 0.0 }
    }

    /// The same bits, within a magnitude.
    pub const fn exact(magnitude: f64) -> Bound {
        Bound::new(magnitude, 0.0)
    }

    /// Within so many units in the last place, of what is not close to zero.
    pub fn ulps(ulps: f64, dtype: DType) -> Bound {
        let relative = ulps * epsilon(dtype);
        Bound { relative, ..Bound::new(f64::INFINITY, relative / 100.0) }
    }

    /// That of a function which multiplies errors by at most `slope`, has values up to `magnitude`
    /// and whose own roundings differ by at most `own`.
    pub fn through(self, slope: f64, magnitude: f64, own: f64) -> Bound {
        let moved = if self.error > 0.0 { slope * self.error } else { 0.0 };
        Bound::new(magnitude, moved + own)
    }

    /// That of either.
    pub fn or(self, other: Bound) -> Bound {
        Bound {
            magnitude: self.magnitude.max(other.magnitude),
            error: self.error.max(other.error),
            relative: self.relative.max(other.relative),
            unit: self.unit.min(other.unit),
        }
    }

    /// The largest product of an element of each. What may be infinite may be NaN.
    pub fn times(self, other: Bound) -> f64 {
        let both = self.magnitude.max(other.magnitude);
        if both.is_infinite() { both } else { self.magnitude * other.magnitude }
    }

    /// How far products of an element of each may be apart: where one is zero, in the sign at least.
    pub fn error_of_product(self, other: Bound) -> f64 {
        let error = self.error * other.magnitude + other.error * self.magnitude + self.error * other.error;
        if self.error > 0.0 || other.error > 0.0 { error.max(SIGN_OF_ZERO) } else { error }
    }

    /// The bound of exact products of exact elements.
    pub fn product(self, other: Bound) -> Bound {
        Bound { unit: self.unit * other.unit, ..Bound::exact(self.times(other)) }
    }

    /// The bound of sums of so many such terms, if they are exact in this dtype but for the sign of a zero.
    pub fn exact_sum(self, terms: usize, dtype: DType) -> Option<Bound> {
        let magnitude = self.magnitude * terms.max(1) as f64;
        let exact =
            self.error == 0.0 && self.unit >= 2f64.powi(-13) && magnitude <= counted(dtype) * self.unit;
        let error = if terms == 1 { 0.0 } else { SIGN_OF_ZERO };
        exact.then_some(Bound { magnitude, error, ..self })
    }

    /// Whether a comparison within this bound says something, and nothing overflows in one of the
    /// results alone.
    pub fn is_useful(self, dtype: DType) -> bool {
        let largest = match dtype {
            DType::F16 => 65504.0,
            _ => f64::from(f32::MAX),
        };
        self.error == 0.0
            || self.error == SIGN_OF_ZERO
            || self.error <= 0.1 * self.magnitude.max(0.1) && self.magnitude < largest / 4.0
    }
}

pub fn epsilon(dtype: DType) -> f64 {
    match dtype.real() {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => 0.0,
    }
}

/// The whole numbers up to this one are numbers of the dtype.
pub fn counted(dtype: DType) -> f64 {
    if dtype.is_inexact() { 2.0 / epsilon(dtype) } else { f64::INFINITY }
}

/// What the elements of a dtype cannot exceed.
pub fn limit(dtype: DType) -> f64 {
    match dtype {
        _ if dtype.is_bool() => 1.0,
        _ if dtype.is_integer() => 2f64.powi(dtype.bits() as i32),
        _ => f64::INFINITY,
    }
}

/// The first element that is not within the bound.
pub fn difference(got: &Tensor, want: &Tensor, bound: Bound) -> Option<(usize, f64, f64)> {
    let dtype = got.dtype();
    if bound.error.is_infinite() {
        return None;
    }
    if dtype.is_key() {
        return (got.bytes() != want.bytes()).then_some((0, f64::NAN, f64::NAN));
    }
    let real = dtype.real();
    let part = real.size();
    let number = |bytes: &[u8]| {
        let scalar = Scalar::from_bytes(real, bytes)?;
        scalar.to_f64().or_else(|| scalar.to_i128().map(|value| value as f64))
    };
    let parts = |tensor: &Tensor, at: usize| {
        let bytes = tensor.bytes().get(at * part..(at + 1) * part);
        bytes.and_then(number).unwrap_or(f64::NAN)
    };
    let pairs = got.bytes().chunks_exact(part).zip(want.bytes().chunks_exact(part));
    pairs.enumerate().filter(|(_, (got, want))| got != want).find_map(|(at, (got, expected))| {
        let (got, one) = (number(got).unwrap_or(f64::NAN), number(expected).unwrap_or(f64::NAN));
        // Parts of a complex number share their scale; where one is NaN the other says nothing.
        let other = if dtype.is_complex() { parts(want, at ^ 1) } else { 0.0 };
        let scale = one.abs().max(other.abs());
        let allowed = bound.error + if bound.relative > 0.0 { bound.relative * scale } else { 0.0 };
        let near = bound.error > 0.0 && ((got - one).abs() <= allowed || got == one);
        let equal = near || real.is_float() && got.is_nan() && one.is_nan();
        let beside_nan =
            bound.relative > 0.0 && dtype.is_complex() && (other.is_nan() || scale.is_infinite());
        (!equal && !beside_nan).then_some((at, got, one))
    })
}
