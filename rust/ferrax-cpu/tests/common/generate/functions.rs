//! Steps that compute functions by polynomials, whose results differ by a few units in the last place.

use ferrax_ir::ops::{Binary, Clamp, Unary};

use super::bound::{Bound, epsilon};
use super::{Made, Maker, Site};
use crate::common::Choices;

/// A function with where it is taken, the largest slope that it has there, and its largest value.
/// Limits have few digits, so that all dtypes have them.
type Row = (Unary, f64, f64, f64, f64);

const ALL: f64 = f64::INFINITY;

const FUNCTIONS: &[Row] = &[
    (Unary::Tanh, -ALL, ALL, 1.0, 1.0),
    (Unary::Sin, -ALL, ALL, 1.0, 1.0),
    (Unary::Cos, -ALL, ALL, 1.0, 1.0),
    (Unary::Tan, -1.5, 1.5, 200.0, 14.2),
    (Unary::Logistic, -ALL, ALL, 0.25, 1.0),
    (Unary::Asin, -0.9375, 0.9375, 2.9, 1.3),
    (Unary::Acos, -0.9375, 0.9375, 2.9, 2.8),
    (Unary::Atan, -ALL, ALL, 1.0, 1.6),
    (Unary::Sinh, -4.0, 4.0, 27.4, 27.4),
    (Unary::Cosh, -4.0, 4.0, 27.4, 27.4),
    (Unary::Asinh, -128.0, 128.0, 1.0, 5.6),
    (Unary::Acosh, 1.25, 128.0, 1.34, 5.6),
    (Unary::Atanh, -0.9375, 0.9375, 8.3, 1.8),
    (Unary::Exp, -16.0, 5.0, 148.5, 148.5),
    (Unary::Exp2, -16.0, 6.0, 44.4, 64.0),
    (Unary::Log, 0.0625, 128.0, 16.0, 4.9),
    (Unary::Log1p, -0.9375, 128.0, 16.0, 4.9),
    (Unary::Expm1, -16.0, 5.0, 148.5, 148.5),
    (Unary::Sqrt, 0.0625, 128.0, 2.0, 11.4),
    (Unary::Rsqrt, 0.0625, 128.0, 32.0, 4.0),
    (Unary::Cbrt, 0.0625, 128.0, 2.2, 5.1),
    (Unary::Erf, -ALL, ALL, 1.13, 1.0),
    (Unary::Erfc, -8.0, 8.0, 1.13, 2.0),
    (Unary::ErfInv, -0.9375, 0.9375, 5.1, 1.35),
    (Unary::Lgamma, 0.125, 16.0, 8.4, 28.0),
    (Unary::Digamma, 0.125, 16.0, 66.0, 8.4),
];

const OF_COMPLEX: &[Unary] = &[
    Unary::Exp,
    Unary::Log,
    Unary::Sin,
    Unary::Cos,
    Unary::Tan,
    Unary::Sinh,
    Unary::Cosh,
    Unary::Tanh,
    Unary::Asinh,
    Unary::Acosh,
    Unary::Atanh,
    Unary::Asin,
    Unary::Acos,
    Unary::Atan,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Expm1,
    Unary::Log1p,
    Unary::Logistic,
    Unary::Abs,
    Unary::Sign,
    Unary::Square,
];

impl<C: Choices> Maker<'_, C> {
    /// A function of numbers that are brought to where it is taken.
    pub(super) fn function(&mut self, site: &Site) -> Made {
        let (mut x, dtype) = (site.x, site.dtype);
        if !dtype.is_float() || dtype.is_storage_only() {
            return None;
        }
        let (op, low, high, slope, magnitude) = self.pick(FUNCTIONS);
        if high.is_finite() {
            let limits = [low, high].map(|limit| self.b.scalar(dtype, limit));
            x = self.emit(Clamp {}, &[limits[0], x.atom, limits[1]], x.bound)?[0];
        }
        let ulps = if dtype.size() >= 4 { 8.0 } else { 1.0 };
        self.emit(op, &[x.atom], x.bound.through(slope, magnitude, ulps * epsilon(dtype) * magnitude))
    }

    /// A function of complex numbers, most of which have poles or cuts.
    pub(super) fn complex_function(&mut self, site: &Site) -> Made {
        let (x, dtype) = (site.x, site.dtype);
        if !dtype.is_complex() || !x.is_finite() || x.bound.magnitude > 16.0 {
            return None;
        }
        let op = self.pick(OF_COMPLEX);
        self.ended(op, &[x.atom], Bound::ulps(64.0, dtype))
    }

    /// Functions of two numbers.
    pub(super) fn power(&mut self, site: &Site) -> Made {
        let (x, dtype) = (site.x, site.dtype);
        let y = self.exact_like(x)?;
        if !x.is_exact()
            || !dtype.is_inexact()
            || dtype.is_complex() && x.bound.magnitude.max(y.bound.magnitude) > 8.0
        {
            return None;
        }
        let op = if self.flip() && dtype.is_float() { Binary::Atan2 } else { Binary::Pow };
        let ulps = if dtype.is_complex() { 512.0 } else { 64.0 };
        self.ended(op, &[x.atom, y.atom], Bound::ulps(ulps, dtype))
    }
}
