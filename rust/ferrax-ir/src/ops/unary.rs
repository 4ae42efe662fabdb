//! Elementwise ops of one operand: family, types, meaning and scalar bodies.
//! Their derivatives are in `unary_derivatives.rs`.

use smallvec::SmallVec;

use super::arithmetic::{Arithmetic, Emit, Native};
use super::common::{Accept, arrays, check_arity, check_dtype, elementwise_batch, one};
use super::{complex, complex_inverse, evaluate, unary_derivatives};
use crate::convert::Wide;
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use crate::scalar::{Body, MathFn, ScalarOp, Value, reference};
use crate::{ArrayType, Atom, Builder, DType, Result, Tensor, Type, internal_error, op_family, unsupported};

op_family! {
    /// Ops of one operand without parameters.
    Unary {
        Neg "neg" "`-x`; integers wrap.",
        Sign "sign" "-1, 0 or 1 (NaN for NaN; `x / |x|` for complex).",
        Floor "floor" "Rounds towards negative infinity.",
        Ceil "ceil" "Rounds towards positive infinity.",
        IsFinite "is_finite" "Whether a float is neither infinite nor NaN.",
        Exp "exp" "`e^x`.",
        Exp2 "exp2" "`2^x`.",
        Log "log" "Natural logarithm.",
        Expm1 "expm1" "`e^x - 1`, accurate near 0.",
        Log1p "log1p" "`log(1 + x)`, accurate near 0.",
        Tanh "tanh" "Hyperbolic tangent.",
        Logistic "logistic" "`1 / (1 + e^-x)`.",
        Sin "sin" "Sine.",
        Cos "cos" "Cosine.",
        Tan "tan" "Tangent.",
        Asin "asin" "Inverse sine.",
        Acos "acos" "Inverse cosine.",
        Atan "atan" "Inverse tangent.",
        Sinh "sinh" "Hyperbolic sine.",
        Cosh "cosh" "Hyperbolic cosine.",
        Asinh "asinh" "Inverse hyperbolic sine.",
        Acosh "acosh" "Inverse hyperbolic cosine.",
        Atanh "atanh" "Inverse hyperbolic tangent.",
        Sqrt "sqrt" "Square root.",
        Rsqrt "rsqrt" "`1 / sqrt(x)`.",
        Cbrt "cbrt" "Cube root.",
        Abs "abs" "Absolute value; real for complex.",
        Not "not" "Bitwise complement; logical for bool.",
        PopulationCount "population_count" "The number of set bits.",
        Clz "clz" "The number of leading zero bits.",
        Real "real" "Real part of a complex number.",
        Imag "imag" "Imaginary part of a complex number.",
        Conj "conj" "Complex conjugate.",
        Erf "erf" "Error function.",
        Erfc "erfc" "`1 - erf(x)`, accurate for large x.",
        ErfInv "erf_inv" "Inverse of the error function.",
        Lgamma "lgamma" "Logarithm of the absolute value of the gamma function.",
        Digamma "digamma" "Derivative of `lgamma`.",
        Square "square" "`x * x`.",
    }
}

impl Unary {
    fn accepts(self) -> &'static [Accept] {
        use Accept::*;
        use Unary::*;
        match self {
            Neg | Sign | Square => &[Integer, Floating, Complex],
            Abs => &[SignedInteger, Floating, Complex],
            Floor | Ceil | IsFinite | Cbrt | Erf | Erfc | ErfInv | Lgamma | Digamma => &[Floating],
            Exp | Exp2 | Log | Expm1 | Log1p | Tanh | Logistic | Sin | Cos | Tan | Asin | Acos | Atan
            | Sinh | Cosh | Asinh | Acosh | Atanh | Sqrt | Rsqrt => &[Floating, Complex],
            Not => &[Integer, Bool],
            PopulationCount | Clz => &[Integer],
            Real | Imag => &[Complex],
            Conj => &[Complex, Parts],
        }
    }

    /// The dtype of the result for an accepted one.
    fn result_dtype(self, dtype: DType) -> DType {
        match self {
            Unary::IsFinite => DType::Bool,
            Unary::Abs | Unary::Real | Unary::Imag => dtype.real(),
            Unary::Conj => dtype.complex().unwrap_or(dtype),
            _ => dtype,
        }
    }

    /// The function of floats that the op is, where it is one.
    fn math(self) -> Option<MathFn> {
        Some(match self {
            Unary::Exp => MathFn::Exp,
            Unary::Exp2 => MathFn::Exp2,
            Unary::Log => MathFn::Log,
            Unary::Expm1 => MathFn::Expm1,
            Unary::Log1p => MathFn::Log1p,
            Unary::Tanh => MathFn::Tanh,
            Unary::Logistic => MathFn::Logistic,
            Unary::Sin => MathFn::Sin,
            Unary::Cos => MathFn::Cos,
            Unary::Tan => MathFn::Tan,
            Unary::Asin => MathFn::Asin,
            Unary::Acos => MathFn::Acos,
            Unary::Atan => MathFn::Atan,
            Unary::Sinh => MathFn::Sinh,
            Unary::Cosh => MathFn::Cosh,
            Unary::Asinh => MathFn::Asinh,
            Unary::Acosh => MathFn::Acosh,
            Unary::Atanh => MathFn::Atanh,
            Unary::Rsqrt => MathFn::Rsqrt,
            Unary::Cbrt => MathFn::Cbrt,
            Unary::Erf => MathFn::Erf,
            Unary::Erfc => MathFn::Erfc,
            Unary::ErfInv => MathFn::ErfInv,
            Unary::Lgamma => MathFn::Lgamma,
            Unary::Digamma => MathFn::Digamma,
            _ => return None,
        })
    }

    /// The complex functions that give complex numbers.
    fn complex<A: Arithmetic>(self, a: &mut A, z: complex::Pair<A>) -> Result<complex::Pair<A>> {
        Ok(match self {
            Unary::Neg => (a.neg(z.0), a.neg(z.1)),
            Unary::Sign => complex::sign(a, z),
            Unary::Exp => complex::exp(a, z),
            Unary::Exp2 => complex::exp2(a, z),
            Unary::Log => complex::log(a, z),
            Unary::Expm1 => complex::expm1(a, z),
            Unary::Log1p => complex::log1p(a, z),
            Unary::Tanh => complex::tanh(a, z),
            Unary::Logistic => complex::logistic(a, z),
            Unary::Sin => complex::sin(a, z),
            Unary::Cos => complex::cos(a, z),
            Unary::Tan => complex::tan(a, z),
            Unary::Asin => complex_inverse::asin(a, z),
            Unary::Acos => complex_inverse::acos(a, z),
            Unary::Atan => complex_inverse::atan(a, z),
            Unary::Sinh => complex::sinh(a, z),
            Unary::Cosh => complex::cosh(a, z),
            Unary::Asinh => complex_inverse::asinh(a, z),
            Unary::Acosh => complex_inverse::acosh(a, z),
            Unary::Atanh => complex_inverse::atanh(a, z),
            Unary::Sqrt => complex::sqrt(a, z),
            Unary::Rsqrt => complex::rsqrt(a, z),
            Unary::Conj => (z.0, a.neg(z.1)),
            Unary::Square => complex::mul(a, z, z),
            _ => return Err(internal_error!("{} of complex numbers", self.op_name())),
        })
    }

    fn of_float(self, x: f64) -> Result<Wide> {
        if let Some(function) = self.math() {
            return Ok(Wide::Float(reference::math(function, x, 0.0)));
        }
        Ok(Wide::Float(match self {
            Unary::Neg => -x,
            Unary::Sign if x.is_nan() || x == 0.0 => x,
            Unary::Sign => x.signum(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Sqrt => x.sqrt(),
            Unary::Abs => x.abs(),
            Unary::Square => x * x,
            Unary::IsFinite => return Ok(Wide::Int(x.is_finite().into())),
            Unary::Conj => return Ok(Wide::Complex(x, 0.0)),
            _ => return Err(internal_error!("{} of floats", self.op_name())),
        }))
    }

    fn of_integer(self, dtype: DType, x: i128) -> Result<Wide> {
        let bits = (x as u128) & (u128::MAX >> (128 - dtype.bits()));
        Ok(Wide::Int(match self {
            Unary::Neg => -x,
            Unary::Sign => x.signum(),
            Unary::Abs => x.abs(),
            Unary::Not if dtype.is_bool() => 1 - x,
            Unary::Not => !x,
            Unary::PopulationCount => bits.count_ones().into(),
            Unary::Clz => i128::from(bits.leading_zeros()) - (128 - dtype.bits() as i128),
            Unary::Square => x.wrapping_mul(x),
            _ => return Err(internal_error!("{} of integers", self.op_name())),
        }))
    }
}

impl Row for Unary {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(self.op_name(), inputs, 1)?;
        let operand = arrays(self.op_name(), inputs)?[0];
        check_dtype(self.op_name(), operand.dtype, self.accepts(), None)?;
        one(operand.with_dtype(self.result_dtype(operand.dtype)))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let dtype = inputs[0].dtype();
        evaluate::map(inputs, outputs, |values| match values[0] {
            Wide::Int(x) => self.of_integer(dtype, x),
            Wide::Float(x) => self.of_float(x),
            Wide::Complex(re, im) => match self {
                Unary::Abs => Ok(Wide::Float(complex::abs(&mut Native, (re, im)))),
                Unary::Real => Ok(Wide::Float(re)),
                Unary::Imag => Ok(Wide::Float(im)),
                _ => self.complex(&mut Native, (re, im)).map(|(re, im)| Wide::Complex(re, im)),
            },
        })
    }
}

impl Rules for Unary {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        unary_derivatives::jvp(*self, b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        unary_derivatives::transpose(*self, b, eqn)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(*self, b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(
        &self,
        body: &mut Body,
        types: &[ArrayType],
        args: &[Value],
        output: &ArrayType,
    ) -> Result<Value> {
        let dtype = types[0].dtype;
        let x = match args[0] {
            Value::Complex(re, im) => {
                let ty = body.type_of(re);
                let mut emit = Emit { body, ty };
                return match self {
                    Unary::Abs => Ok(Value::Real(complex::abs(&mut emit, (re, im)))),
                    Unary::Real => Ok(Value::Real(re)),
                    Unary::Imag => Ok(Value::Real(im)),
                    _ => self.complex(&mut emit, (re, im)).map(|(re, im)| Value::Complex(re, im)),
                };
            }
            Value::Real(x) => x,
        };
        let ty = body.type_of(x);
        if let Some(function) = self.math() {
            let result = body.math(function, &[x]);
            return Ok(Value::Real(body.round_to(dtype, result)));
        }
        let result = match self {
            Unary::Neg => body.op(ScalarOp::Neg, &[x]),
            Unary::Abs => body.op(ScalarOp::Abs, &[x]),
            Unary::Floor => body.op(ScalarOp::Floor, &[x]),
            Unary::Ceil => body.op(ScalarOp::Ceil, &[x]),
            Unary::Sqrt => body.op(ScalarOp::Sqrt, &[x]),
            Unary::Not => body.op(ScalarOp::Not, &[x]),
            Unary::PopulationCount => {
                let x = body.low_bits(dtype, x);
                body.op(ScalarOp::PopCount, &[x])
            }
            Unary::Clz => {
                let x = body.low_bits(dtype, x);
                let zeros = body.op(ScalarOp::Clz, &[x]);
                // Those above the element's own bits do not count.
                let above = body.int(ty, 8 * ty.size() as i64 - dtype.bits() as i64);
                if dtype.bits() < 8 { body.op(ScalarOp::Sub, &[zeros, above]) } else { zeros }
            }
            Unary::Square => body.op(ScalarOp::Mul, &[x, x]),
            Unary::Sign => {
                // Zeros and NaN stay.
                let (zero, one) = (body.int(ty, 0), body.int(ty, 1));
                let positive = body.compare(ScalarOp::Lt, zero, x);
                let above = body.select(positive, one, x);
                if dtype.is_unsigned() {
                    above
                } else {
                    let minus = body.int(ty, -1);
                    let negative = body.compare(ScalarOp::Lt, x, zero);
                    body.select(negative, minus, above)
                }
            }
            Unary::IsFinite => {
                let magnitude = body.op(ScalarOp::Abs, &[x]);
                let infinity = body.float(ty, f64::INFINITY);
                return Ok(Value::Real(body.compare(ScalarOp::Lt, magnitude, infinity)));
            }
            Unary::Conj => return Ok(Value::Complex(x, body.float(ty, 0.0))),
            _ => return Err(unsupported!("{} of {dtype} has no scalar body", self.op_name())),
        };
        Ok(Value::Real(body.round_to(output.dtype, result)))
    }
}
