//! Steps that compute elements of elements.

use ferrax_ir::DType;
use ferrax_ir::ops::{Binary, Compare, ConvertElementType, SelectN, Unary};

use super::bound::{Bound, EXACT, epsilon, limit};
use super::{DTYPES, Maker, Value};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    pub(super) fn binary(&mut self, x: Value) -> Option<Vec<Value>> {
        let y = self.like(x);
        let dtype = self.dtype(x);
        let (a, b) = (x.bound, y.bound);
        let rounding = |magnitude: f64| epsilon(dtype) * magnitude;
        let both_exact = x.is_exact() && y.is_exact();
        let op = self.pick(if dtype.is_float() {
            &[Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Min, Binary::Div, Binary::Rem]
        } else if dtype.is_complex() {
            &[Binary::Add, Binary::Sub]
        } else {
            &[
                Binary::Add,
                Binary::Sub,
                Binary::Mul,
                Binary::Max,
                Binary::Min,
                Binary::Div,
                Binary::Rem,
                Binary::And,
                Binary::Or,
                Binary::Xor,
                Binary::ShiftLeft,
                Binary::ShiftRightArithmetic,
                Binary::ShiftRightLogical,
            ]
        });
        if !dtype.is_float() {
            return self.exactly(op, &[x, y]);
        }
        let bound = match op {
            Binary::Add | Binary::Sub => {
                let magnitude = a.magnitude + b.magnitude;
                let error = if both_exact { 0.0 } else { a.error + b.error + rounding(magnitude) };
                Bound { magnitude, error }
            }
            Binary::Mul => {
                let magnitude = a.times(b);
                let error = if both_exact { 0.0 } else { a.error_of_product(b) + rounding(magnitude) };
                Bound { magnitude, error }
            }
            Binary::Max | Binary::Min => a.or(b),
            _ if both_exact => EXACT,
            _ => return None,
        };
        self.emit(op, &[x.atom, y.atom], bound)
    }

    /// A function whose results differ by a few units in the last place.
    pub(super) fn smooth(&mut self, x: Value) -> Option<Vec<Value>> {
        let dtype = self.dtype(x);
        if !dtype.is_float() {
            return None;
        }
        // Slope, and the largest value.
        let (op, slope, magnitude) = self.pick(&[
            (Unary::Tanh, 1.0, 1.0),
            (Unary::Sin, 1.0, 1.0),
            (Unary::Cos, 1.0, 1.0),
            (Unary::Logistic, 0.25, 1.0),
            (Unary::Atan, 1.0, 1.6),
            (Unary::Erf, 1.13, 1.0),
            (Unary::Exp, 0.0, 0.0),
        ]);
        let (slope, magnitude) = match op {
            Unary::Exp if x.bound.magnitude > 16.0 => return None,
            Unary::Exp => (x.bound.magnitude.exp() * 1.1, x.bound.magnitude.exp()),
            _ => (slope, magnitude),
        };
        let ulps = if dtype.size() >= 4 { 8.0 } else { 1.0 };
        self.emit(op, &[x.atom], x.bound.through(slope, magnitude, ulps * epsilon(dtype) * magnitude))
    }

    /// A function that both compute alike.
    pub(super) fn unary(&mut self, x: Value) -> Option<Vec<Value>> {
        let dtype = self.dtype(x);
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
            self.pick(&[Unary::Neg, Unary::Not, Unary::Abs, Unary::Sign, Unary::PopulationCount, Unary::Clz])
        };
        self.exactly(op, &[x])
    }

    pub(super) fn convert(&mut self, x: Value) -> Option<Vec<Value>> {
        let to = self.pick(DTYPES);
        let op = ConvertElementType { new_dtype: to, weak_type: false };
        if x.is_exact() {
            // What is larger than the largest `f16` may become infinite.
            let kept = to.is_float() && x.bound.magnitude < 65504.0;
            let magnitude = if kept { x.bound.magnitude } else { limit(to) };
            let bound = Bound { magnitude, error: 0.0 };
            return self.emit(op, &[x.atom], bound);
        }
        if !to.is_float() {
            return None;
        }
        let own = epsilon(to) * x.bound.magnitude;
        self.emit(op, &[x.atom], x.bound.through(1.0, x.bound.magnitude, own))
    }

    pub(super) fn select(&mut self, x: Value) -> Option<Vec<Value>> {
        let y = self.like(x);
        let sizes = self.sizes(x);
        let known = self.any(|maker, value| {
            value.is_exact() && maker.dtype(value) == DType::Bool && maker.sizes(value) == sizes
        });
        let which = match known {
            Some(value) => value.atom,
            None => {
                let z = self.any(|maker, value| {
                    value.is_exact() && maker.sizes(value) == sizes && !maker.dtype(value).is_complex()
                })?;
                let dtype = self.dtype(z);
                let (limit, _) = self.constant(dtype);
                let op = self.pick(Compare::ALL);
                self.b.compare(op, z.atom, limit).ok()?
            }
        };
        self.emit(SelectN {}, &[which, x.atom, y.atom], x.bound.or(y.bound))
    }

    pub(super) fn compare(&mut self, x: Value) -> Option<Vec<Value>> {
        let y = self.exact_like(x)?;
        let op = self.pick(Compare::ALL);
        self.exactly(op, &[x, y])
    }
}
