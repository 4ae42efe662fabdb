//! Steps that compute elements of elements, alike by both.

use ferrax_ir::DType;
use ferrax_ir::ops::{
    Binary, BitcastConvertType, Clamp, Compare, ConvertElementType, Copy, IntegerPow, Name,
    OptimizationBarrier, ReducePrecision, Round, SelectN, StandIn, StopGradient, Unary,
};

use super::bound::{Bound, EXACT, counted, epsilon, limit};
use super::{Made, Maker, Site, Value, inputs};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    pub(super) fn binary(&mut self, site: &Site) -> Made {
        let (x, dtype) = (site.x, site.dtype);
        let y = self.like(x);
        let (a, b) = (x.bound, y.bound);
        let rounding = |magnitude: f64| epsilon(dtype) * magnitude;
        let both_exact = x.is_exact() && y.is_exact();
        let op = self.pick(&[
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Max,
            Binary::Min,
            Binary::Div,
            Binary::Rem,
            Binary::Nextafter,
        ]);
        if !dtype.is_inexact() {
            return self.exactly(op, &[x, y]);
        }
        let unit_kept = |bound: Bound| {
            let kept = bound.magnitude <= counted(dtype) * bound.unit;
            if kept { bound } else { Bound { unit: 0.0, ..bound } }
        };
        let bound = match op {
            Binary::Add | Binary::Sub => {
                let magnitude = a.magnitude + b.magnitude;
                let error = if both_exact { 0.0 } else { a.error + b.error + rounding(magnitude) };
                unit_kept(Bound { unit: a.unit.min(b.unit), ..Bound::new(magnitude, error) })
            }
            Binary::Mul if dtype.is_float() => {
                let magnitude = a.times(b);
                let error = if both_exact { 0.0 } else { a.error_of_product(b) + rounding(magnitude) };
                unit_kept(Bound { unit: a.unit * b.unit, ..Bound::new(magnitude, error) })
            }
            Binary::Mul => {
                // Two products each, which may be fused with a sum.
                let magnitude = a.times(b);
                let error = a.error_of_product(b) + 4.0 * rounding(magnitude);
                match a.product(b).exact_sum(2, dtype) {
                    Some(bound) if both_exact => bound,
                    _ => Bound::new(magnitude, error),
                }
            }
            Binary::Max | Binary::Min if dtype.is_float() || both_exact => a.or(b),
            Binary::Div if dtype.is_complex() && both_exact => {
                return self.ended(op, &[x.atom, y.atom], Bound::ulps(64.0, dtype));
            }
            _ if both_exact => EXACT,
            _ => return None,
        };
        self.emit(op, &[x.atom, y.atom], bound)
    }

    /// Bits of integers.
    pub(super) fn bits(&mut self, site: &Site) -> Made {
        let y = self.like(site.x);
        let op = self.pick(&[
            Binary::And,
            Binary::Or,
            Binary::Xor,
            Binary::ShiftLeft,
            Binary::ShiftRightArithmetic,
            Binary::ShiftRightLogical,
            Binary::MulHigh,
        ]);
        self.exactly(op, &[site.x, y])
    }

    /// A function that both compute alike.
    pub(super) fn unary(&mut self, site: &Site) -> Made {
        let (x, dtype) = (site.x, site.dtype);
        if dtype.is_float() {
            let op = self.pick(&[
                Unary::Neg,
                Unary::Abs,
                Unary::Floor,
                Unary::Ceil,
                Unary::Sign,
                Unary::Sqrt,
                Unary::Square,
                Unary::IsFinite,
            ]);
            return match op {
                Unary::Neg | Unary::Abs => self.moved(op, x),
                _ => self.exactly(op, &[x]),
            };
        }
        let op = if dtype.is_complex() {
            self.pick(&[Unary::Neg, Unary::Conj, Unary::Real, Unary::Imag])
        } else {
            self.pick(&[
                Unary::Neg,
                Unary::Not,
                Unary::Abs,
                Unary::Sign,
                Unary::PopulationCount,
                Unary::Clz,
                Unary::Square,
            ])
        };
        if dtype.is_complex() { self.moved(op, x) } else { self.exactly(op, &[x]) }
    }

    /// Complex numbers of their parts.
    pub(super) fn parts(&mut self, site: &Site) -> Made {
        let y = self.like(site.x);
        let both = site.x.bound.or(y.bound);
        self.emit(Binary::Complex, &[site.x.atom, y.atom], Bound { magnitude: 1.5 * both.magnitude, ..both })
    }

    pub(super) fn convert(&mut self, site: &Site) -> Made {
        let x = site.x;
        let to = inputs::dtype(self.choices);
        let op = ConvertElementType { new_dtype: to, weak_type: false };
        if x.is_exact() {
            // What is larger than the largest `f16` may become infinite.
            let kept = to.is_inexact() && !to.is_storage_only() && x.bound.magnitude < 65504.0;
            let magnitude = if kept { x.bound.magnitude * 1.01 } else { limit(to) };
            let unit = if kept && magnitude <= counted(to) * x.bound.unit { x.bound.unit } else { 0.0 };
            return self.emit(op, &[x.atom], Bound { unit, ..Bound::exact(magnitude) });
        }
        if !to.is_inexact() || to.is_storage_only() || site.dtype.is_complex() && !to.is_complex() {
            return None;
        }
        let own = epsilon(to) * x.bound.magnitude;
        self.emit(op, &[x.atom], x.bound.through(1.0, x.bound.magnitude, own))
    }

    /// The bits of numbers that are not NaN, whose bits are free.
    pub(super) fn bitcast(&mut self, site: &Site) -> Made {
        let to = inputs::dtype(self.choices);
        let bits_known = site.dtype.is_integer() || site.x.bound.magnitude.is_finite();
        // As a number of 8 bits, or of another kind, it may be NaN: then it has lost its bits.
        (bits_known && !site.dtype.is_storage_only())
            .then(|| self.exactly(BitcastConvertType { new_dtype: to }, &[site.x]))?
    }

    /// Roundings to whole numbers and to fewer bits, and powers.
    pub(super) fn rounded(&mut self, site: &Site) -> Made {
        let (x, dtype) = (site.x, site.dtype);
        match self.choices.below(3) {
            0 => {
                let rounding_method = self.choices.below(2) as u8;
                self.exactly(Round { rounding_method }, &[x])
            }
            1 => {
                let (exponent_bits, mantissa_bits) =
                    self.pick(&[(5, 10), (8, 7), (4, 3), (8, 23), (11, 52), (2, 1), (5, 0)]);
                self.exactly(ReducePrecision { exponent_bits, mantissa_bits }, &[x])
            }
            _ => {
                let y = self.pick(&[0i64, 1, 2, 3, 5, -1, -2]);
                if !dtype.is_inexact() {
                    return self.exactly(IntegerPow { y }, &[x]);
                }
                let magnitude = x.bound.magnitude.max(1.0).powi(y as i32);
                if y < 0 || !x.bound.magnitude.is_finite() {
                    return x
                        .is_exact()
                        .then(|| self.ended(IntegerPow { y }, &[x.atom], Bound::ulps(64.0, dtype)))?;
                }
                let slope = y as f64 * magnitude * 1.1;
                let bound = x.bound.through(slope, magnitude, 8.0 * epsilon(dtype) * magnitude);
                self.emit(IntegerPow { y }, &[x.atom], bound)
            }
        }
    }

    /// Values as they are.
    pub(super) fn identity(&mut self, site: &Site) -> Made {
        let x = site.x;
        match self.choices.below(5) {
            0 => self.moved(StopGradient {}, x),
            1 => self.moved(Copy {}, x),
            2 => self.moved(OptimizationBarrier {}, x),
            3 => self.moved(Name { name: "kept".into() }, x),
            _ => {
                let sizes = site.sizes.clone();
                let flags = self.flags(&sizes)?;
                let y = self.like(x);
                self.emit(StandIn {}, &[flags.atom, x.atom, y.atom], x.bound)
            }
        }
    }

    /// Truth values of this shape.
    fn flags(&mut self, sizes: &[usize]) -> Option<Value> {
        let known = self.any(|maker, value| {
            value.is_exact() && maker.dtype(value) == DType::Bool && maker.sizes(value) == sizes
        });
        if known.is_some() {
            return known;
        }
        let z = self.any(|maker, value| {
            value.is_exact() && maker.sizes(value) == sizes && !maker.dtype(value).is_complex()
        })?;
        let dtype = self.dtype(z);
        let (limit, _) = self.constant(dtype);
        let op = self.pick(Compare::ALL);
        self.emit(op, &[z.atom, limit], EXACT).map(|made| made[0])
    }

    /// One of two by truth values, or of three by a number, for each element or for all.
    pub(super) fn select(&mut self, site: &Site) -> Made {
        let x = site.x;
        let (y, z) = (self.like(x), self.like(x));
        let sizes = if self.choices.below(4) == 0 { Vec::new() } else { site.sizes.clone() };
        if self.choices.below(3) == 0
            && let Some(which) = self.any(|maker, value| {
                value.is_exact() && maker.dtype(value) == DType::I32 && maker.sizes(value) == sizes
            })
        {
            let [zero, two] = [0, 2].map(|number| self.b.int_scalar(DType::I32, number));
            let which = self.emit(Clamp {}, &[zero, which.atom, two], EXACT)?[0];
            let bound = x.bound.or(y.bound).or(z.bound);
            return self.emit(SelectN {}, &[which.atom, x.atom, y.atom, z.atom], bound);
        }
        let which = self.flags(&sizes)?;
        self.emit(SelectN {}, &[which.atom, x.atom, y.atom], x.bound.or(y.bound))
    }

    pub(super) fn clamp(&mut self, site: &Site) -> Made {
        let (x, dtype) = (site.x, site.dtype);
        if dtype.is_complex() {
            return None;
        }
        let ((low, a), (high, b)) = (self.constant(dtype), self.constant(dtype));
        self.emit(Clamp {}, &[low, x.atom, high], x.bound.or(a).or(b))
    }

    pub(super) fn compare(&mut self, site: &Site) -> Made {
        let y = self.exact_like(site.x)?;
        let op = self.pick(Compare::ALL);
        self.exactly(op, &[site.x, y])
    }
}
