//! Magnitudes of matrices, and exact multiplication by powers of two.

use faer::traits::{ComplexField, RealField};

use crate::{Element, Real as RealOf};

/// The type of eigenvalues and singular values.
pub trait Real: RealField + Copy {
    /// Beyond `2^BOUND` and `2^-BOUND` decompositions are made of scaled matrices: half of the range
    /// of exponents, less the bits that rounding takes.
    const BOUND: i32;

    /// The `n` for which `|self| / 2^n` is in `[0.5, 1)`; 0 for zero.
    fn exponent(self) -> i32;

    /// `self` times `2^exponent`, rounded once.
    fn times_power_of_two(self, exponent: i32) -> Self;

    /// The root of the sum of squares, which may not be numbers themselves.
    fn hypot(self, other: Self) -> Self;

    /// The absolute value of `self` with the sign of `other`, which a zero has too.
    fn with_sign_of(self, other: Self) -> Self;

    /// The least number whose inverse is a number.
    fn least_inverted() -> Self;

    /// The distance from 1 to the next number.
    fn unit() -> Self;

    fn of(x: f64) -> Self;

    /// The absolute value.
    fn size(self) -> Self;

    fn root(self) -> Self;

    fn largest(self, other: Self) -> Self {
        if self >= other { self } else { other }
    }
}

impl Real for f64 {
    const BOUND: i32 = 485;

    fn exponent(self) -> i32 {
        if self == 0.0 {
            return 0;
        }
        if self.is_subnormal() {
            return (self * power_of_two(64)).exponent() - 64;
        }
        i32::from((self.to_bits() >> 52) as u16 & 0x7ff) - 1022
    }

    fn times_power_of_two(self, exponent: i32) -> f64 {
        // Either step is within what a number of this type can be; only the second one may round.
        let half = exponent / 2;
        self * power_of_two(half) * power_of_two(exponent - half)
    }

    fn hypot(self, other: f64) -> f64 {
        f64::hypot(self, other)
    }

    #[inline(always)]
    fn with_sign_of(self, other: f64) -> f64 {
        self.copysign(other)
    }

    fn least_inverted() -> f64 {
        f64::MIN_POSITIVE
    }

    #[inline(always)]
    fn unit() -> f64 {
        f64::EPSILON
    }

    fn of(x: f64) -> f64 {
        x
    }

    #[inline(always)]
    fn size(self) -> f64 {
        self.abs()
    }

    #[inline(always)]
    fn root(self) -> f64 {
        self.sqrt()
    }
}

impl Real for f32 {
    const BOUND: i32 = 51;

    fn exponent(self) -> i32 {
        f64::from(self).exponent()
    }

    fn times_power_of_two(self, exponent: i32) -> f32 {
        f64::from(self).times_power_of_two(exponent) as f32
    }

    fn hypot(self, other: f32) -> f32 {
        f32::hypot(self, other)
    }

    #[inline(always)]
    fn with_sign_of(self, other: f32) -> f32 {
        self.copysign(other)
    }

    fn least_inverted() -> f32 {
        f32::MIN_POSITIVE
    }

    #[inline(always)]
    fn unit() -> f32 {
        f32::EPSILON
    }

    fn of(x: f64) -> f32 {
        x as f32
    }

    #[inline(always)]
    fn size(self) -> f32 {
        self.abs()
    }

    #[inline(always)]
    fn root(self) -> f32 {
        self.sqrt()
    }
}

/// For exponents of normal numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// The exponent of the largest part of these elements; `None` if one is not finite.
pub(crate) fn exponent<T: Element>(elements: impl IntoIterator<Item = T>) -> Option<i32> {
    let mut largest = RealOf::<T>::zero_impl();
    for element in elements {
        if !element.is_number() {
            return None;
        }
        let part = element.largest_part();
        if part > largest {
            largest = part;
        }
    }
    Some(largest.exponent())
}

/// The power of two by which a matrix of this magnitude is multiplied: 0 if it can be as it is.
pub(crate) fn shift<T: Element>(exponent: i32) -> i32 {
    if exponent.abs() > RealOf::<T>::BOUND { -exponent } else { 0 }
}
