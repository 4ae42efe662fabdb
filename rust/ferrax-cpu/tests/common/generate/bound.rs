//! How far apart elements of compiled and of interpreted programs may be.

use ferrax_ir::{DType, Scalar, Tensor};

/// An error that says that the sign of a zero is free, and nothing else.
pub const SIGN_OF_ZERO: f64 = f64::MIN_POSITIVE;

/// No element exceeds `magnitude` (which may be infinite) and, of what is compiled and what is
/// interpreted, elements differ by at most `error`.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub magnitude: f64,
    pub error: f64,
}

/// The same bits, whatever they are.
pub const EXACT: Bound = Bound { magnitude: f64::INFINITY, error: 0.0 };

impl Bound {
    /// That of a function which multiplies errors by at most `slope`, has values up to `magnitude`
    /// and whose own roundings differ by at most `own`.
    pub fn through(self, slope: f64, magnitude: f64, own: f64) -> Bound {
        let moved = if self.error > 0.0 { slope * self.error } else { 0.0 };
        Bound { magnitude, error: moved + own }
    }

    /// That of either.
    pub fn or(self, other: Bound) -> Bound {
        Bound { magnitude: self.magnitude.max(other.magnitude), error: self.error.max(other.error) }
    }

    /// The largest product of an element of each. What may be infinite may be NaN.
    pub fn times(self, other: Bound) -> f64 {
        let both = self.magnitude.max(other.magnitude);
        if both.is_infinite() { both } else { self.magnitude * other.magnitude }
    }

    /// How far products of an element of each may be apart.
    pub fn error_of_product(self, other: Bound) -> f64 {
        self.error * other.magnitude + other.error * self.magnitude + self.error * other.error
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
    let real = got.dtype().real();
    let part = real.size();
    let number = |bytes: &[u8]| {
        let scalar = Scalar::from_bytes(real, bytes)?;
        scalar.to_f64().or_else(|| scalar.to_i128().map(|value| value as f64))
    };
    let pairs = got.bytes().chunks_exact(part).zip(want.bytes().chunks_exact(part));
    pairs.enumerate().filter(|(_, (got, want))| got != want).find_map(|(at, (got, want))| {
        let (got, want) = (number(got).unwrap_or(f64::NAN), number(want).unwrap_or(f64::NAN));
        let near = bound.error > 0.0 && ((got - want).abs() <= bound.error || got == want);
        let equal = near || real.is_float() && got.is_nan() && want.is_nan();
        (!equal).then_some((at, got, want))
    })
}
