//! Formulas of elementwise ops: written once in the language of [`crate::math`], they
//! serve reference evaluation and scalar bodies.

use crate::DType;
use crate::math::lang::FloatLangExt;
use crate::math::{Emit, FloatLang, MathFn, Native};
use crate::scalar::{Body, Reg, ScalarOp, ScalarType, Value, reference};

/// Does the arithmetic, in `f64`.
pub type Exact = Native<f64, true>;

/// What formulas have besides the language of the polynomials: those functions as one
/// operation each, and the order of floats that ops have.
pub trait Formulas: FloatLang + Sized {
    fn math(&mut self, function: MathFn, x: Self::F) -> Self::F;
    fn atan2(&mut self, y: Self::F, x: Self::F) -> Self::F;
    /// NaN if either is.
    fn max(&mut self, x: Self::F, y: Self::F) -> Self::F;
    fn min(&mut self, x: Self::F, y: Self::F) -> Self::F;
    fn is_nan(&mut self, x: Self::F) -> Self::B;

    fn scale(&mut self, x: Self::F, by: f64) -> Self::F {
        let by = self.float(by);
        self.mul(x, by)
    }

    fn offset(&mut self, x: Self::F, by: f64) -> Self::F {
        let by = self.float(by);
        self.add(x, by)
    }

    /// The magnitude of `x` with the sign bit of `y`.
    fn copysign(&mut self, x: Self::F, y: Self::F) -> Self::F {
        let magnitude = self.abs(x);
        self.with_sign(magnitude, y)
    }
}

impl Formulas for Exact {
    fn math(&mut self, function: MathFn, x: f64) -> f64 {
        function.reference(x, 0.0)
    }

    fn atan2(&mut self, y: f64, x: f64) -> f64 {
        y.atan2(x)
    }

    fn max(&mut self, x: f64, y: f64) -> f64 {
        reference::maximum(x, y)
    }

    fn min(&mut self, x: f64, y: f64) -> f64 {
        reference::minimum(x, y)
    }

    fn is_nan(&mut self, x: f64) -> bool {
        x.is_nan()
    }
}

impl Formulas for Emit<'_> {
    fn math(&mut self, function: MathFn, x: Reg) -> Reg {
        self.body.math(function, &[x])
    }

    fn atan2(&mut self, y: Reg, x: Reg) -> Reg {
        self.body.math(MathFn::Atan2, &[y, x])
    }

    fn max(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Max, &[x, y])
    }

    fn min(&mut self, x: Reg, y: Reg) -> Reg {
        self.body.op(ScalarOp::Min, &[x, y])
    }

    fn is_nan(&mut self, x: Reg) -> Reg {
        self.body.compare(ScalarOp::Ne, x, x)
    }
}

/// A formula as a row holds it: the same expression for both uses. `X` and `Y` are what
/// it takes and gives in `f64`, `A` and `B` in registers.
pub struct Formula<X, Y, A, B> {
    pub value: fn(&mut Exact, X) -> Y,
    pub emit: fn(&mut Emit<'_>, A) -> B,
}

pub type Pair<T> = (T, T);

/// From a float to a float.
pub type Real = Formula<f64, f64, Reg, Reg>;
/// From a float to a truth value.
pub type Test = Formula<f64, bool, Reg, Reg>;
/// From a complex number to one.
pub type Complex = Formula<Pair<f64>, Pair<f64>, Pair<Reg>, Pair<Reg>>;
/// From a complex number to a real one.
pub type Part = Formula<Pair<f64>, f64, Pair<Reg>, Reg>;
/// From two complex numbers to one.
pub type Complex2 = Formula<[Pair<f64>; 2], Pair<f64>, [Pair<Reg>; 2], Pair<Reg>>;

/// `formula!(l, x => l.mul(x, x))`: the expression, in the language `l`.
macro_rules! formula {
    ($l:ident, $x:pat => $body:expr) => {
        $crate::ops::formula::Formula { value: |$l, $x| $body, emit: |$l, $x| $body }
    };
}
pub(crate) use formula;

/// What an op does to integers (or truth values), whose bodies depend on the width:
/// registers hold narrow ones in the low bits of a byte. Results wrap afterwards.
pub struct Integer {
    pub value: fn(DType, i128) -> i128,
    pub emit: fn(&mut Body, DType, Reg) -> Reg,
}

/// The unsigned type of a register type's size.
pub fn bits_type(ty: ScalarType) -> ScalarType {
    match ty.size() {
        1 => ScalarType::U8,
        2 => ScalarType::U16,
        4 => ScalarType::U32,
        _ => ScalarType::U64,
    }
}

/// The parts of a value; a real one has no imaginary part.
pub fn parts(body: &mut Body, value: Value) -> Pair<Reg> {
    match value {
        Value::Complex(re, im) => (re, im),
        Value::Real(re) => {
            let ty = body.type_of(re);
            (re, body.float(ty, 0.0))
        }
    }
}
