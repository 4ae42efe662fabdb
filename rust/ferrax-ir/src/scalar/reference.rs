//! The meaning of scalar bodies: functions of floats in `f64`, and an evaluator
//! of instructions one at a time. Slow, obvious, and the oracle of emitters.
//!
//! `F32` transcendental functions are those of `f64` rounded once.

use super::{Body, Instruction, Narrow, Reg, ScalarOp, ScalarType, Value};
use crate::convert::{Wide, load, store};
use crate::{DType, Result, Scalar, internal_error};

/// NaN below 1, where the library's function need not be.
pub fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

pub fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// Without overflow: the exponential is of a number that is not positive.
pub fn logistic(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

/// The inverse of the error function.
///
/// Starts from Giles' approximation ("Approximating the erfinv function", GPU
/// Computing Gems 2, 2010; its single-precision polynomials) and polishes with
/// Halley's method on `erf`, in the tails on `erfc`.
pub fn erf_inv(x: f64) -> f64 {
    if x.abs() >= 1.0 || x.is_nan() {
        return if x.abs() == 1.0 { f64::INFINITY.copysign(x) } else { f64::NAN };
    }
    if x == 0.0 {
        return x;
    }
    let w = -((1.0 - x) * (1.0 + x)).ln();
    let (t, coefficients): (f64, [f64; 9]) = if w < 5.0 {
        let near = [
            2.810_226_36e-8,
            3.432_739_39e-7,
            -3.523_387_7e-6,
            -4.391_506_54e-6,
            0.000_218_580_87,
            -0.001_253_725_03,
            -0.004_177_681_64,
            0.246_640_727,
            1.501_409_41,
        ];
        (w - 2.5, near)
    } else {
        let far = [
            -0.000_200_214_257,
            0.000_100_950_558,
            0.001_349_343_22,
            -0.003_673_428_44,
            0.005_739_507_73,
            -0.007_622_461_3,
            0.009_438_870_47,
            1.001_674_06,
            2.832_976_82,
        ];
        (w.sqrt() - 3.0, far)
    };
    let mut y = x * coefficients.iter().fold(0.0, |sum, c| sum * t + c);
    if w > 16.0 {
        // Beyond single precision: erfc(y) ≈ e^(-y²) / (y √π).
        let rest = 1.0 - x.abs();
        let first = (-rest.ln()).sqrt();
        y = (-(rest * first * std::f64::consts::PI.sqrt()).ln()).sqrt().copysign(x);
    }
    for _ in 0..4 {
        // In the tails erf(y) - x cancels; the complement 1 - |x| is exact there.
        let error = if x.abs() > 0.5 {
            x.signum() * ((1.0 - x.abs()) - libm::erfc(y.abs()))
        } else {
            libm::erf(y) - x
        };
        let slope = std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp();
        if slope == 0.0 {
            break;
        }
        let step = error / slope;
        y -= step / (1.0 + y * step);
    }
    y
}

/// The derivative of `lgamma`: recurrence up to 10, then the asymptotic series
/// with Bernoulli numbers (Abramowitz and Stegun 6.3.18); reflection below 0
/// (6.3.7). NaN at the poles.
pub fn digamma(x: f64) -> f64 {
    if x <= 0.0 {
        let fraction = x - x.round();
        if fraction == 0.0 || x.is_infinite() {
            return f64::NAN;
        }
        return digamma(1.0 - x) - std::f64::consts::PI / (std::f64::consts::PI * fraction).tan();
    }
    let (mut x, mut shift) = (x, 0.0);
    while x < 10.0 {
        shift += 1.0 / x;
        x += 1.0;
    }
    const TERMS: [f64; 7] =
        [-1.0 / 12.0, 1.0 / 120.0, -1.0 / 252.0, 1.0 / 240.0, -1.0 / 132.0, 691.0 / 32760.0, -1.0 / 12.0];
    let inverse = 1.0 / (x * x);
    let series = TERMS.iter().rev().fold(0.0, |sum, c| (sum + c) * inverse);
    x.ln() - 0.5 / x + series - shift
}

/// The value next to `x` towards `y` in the float format of `bits` bits whose
/// patterns are given and returned.
pub fn nextafter(dtype: DType, x: Scalar, y: Scalar) -> Scalar {
    let (Some(from), Some(to)) = (x.to_f64(), y.to_f64()) else { return x };
    if from.is_nan() || to.is_nan() {
        return Scalar::from_f64(dtype, f64::NAN);
    }
    if from == to {
        return y;
    }
    if from == 0.0 {
        let sign = u128::from(to < 0.0) << (dtype.bits() - 1);
        return Scalar::from_bits(dtype, sign | 1);
    }
    // Patterns grow with the magnitude.
    let away = (to > from) == (from > 0.0);
    Scalar::from_bits(dtype, if away { x.bits() + 1 } else { x.bits() - 1 })
}

/// Gives the element of an operand at some indices.
pub type PickElement<'a> = dyn Fn(usize, &[i64]) -> Result<Scalar> + 'a;

/// What a body reads.
#[derive(Clone, Copy, Default)]
pub struct Inputs<'a> {
    /// The elements of the operands.
    pub operands: &'a [Scalar],
    /// The element of an operand, by its number, at these indices.
    pub picked: Option<&'a PickElement<'a>>,
    /// The loop indices.
    pub index: &'a [i64],
    /// The bits of the parameters.
    pub params: &'a [u64],
}

/// The values of `results`.
pub fn evaluate(body: &Body, inputs: &Inputs<'_>, results: &[Value]) -> Result<Vec<Vec<Scalar>>> {
    let mut registers: Vec<Scalar> = Vec::with_capacity(body.instructions().len());
    for instruction in body.instructions() {
        registers.push(step(instruction, &registers, inputs)?);
    }
    let read = |reg: &Reg| registers[reg.0 as usize];
    Ok(results
        .iter()
        .map(|value| match value {
            Value::Real(reg) => vec![read(reg)],
            Value::Complex(re, im) => vec![read(re), read(im)],
        })
        .collect())
}

/// An element as the register (or for complex, part `part`) that holds it.
fn input(element: Scalar, part: u8, ty: ScalarType) -> Result<Scalar> {
    let dtype = element.dtype();
    if dtype.is_key() {
        return Ok(Scalar::from_bits(
            ty.dtype(),
            element.bits() >> (64 * u32::from(part)) & u128::from(u64::MAX),
        ));
    }
    match load(dtype, &element.bytes()) {
        Some(Wide::Complex(re, im)) => Ok(Scalar::from_f64(ty.dtype(), if part == 0 { re } else { im })),
        Some(wide) => store(ty.dtype(), wide).ok_or_else(|| internal_error!("no register holds {dtype}")),
        None => Err(internal_error!("no register holds {dtype}")),
    }
}

fn step(instruction: &Instruction, registers: &[Scalar], inputs: &Inputs<'_>) -> Result<Scalar> {
    let Instruction { op, ty, args } = instruction;
    let dtype = ty.dtype();
    let args: Vec<Scalar> = args.iter().map(|reg| registers[reg.0 as usize]).collect();
    match op {
        ScalarOp::Input { operand, part } => {
            let missing = || internal_error!("no operand {operand}");
            let operand = *operand as usize;
            let element = if args.is_empty() {
                *inputs.operands.get(operand).ok_or_else(missing)?
            } else {
                let index = |arg: &Scalar| arg.to_i128().and_then(|index| i64::try_from(index).ok());
                let indices: Option<Vec<i64>> = args.iter().map(index).collect();
                let indices = indices.ok_or_else(|| internal_error!("{args:?} as indices"))?;
                inputs.picked.ok_or_else(missing)?(operand, &indices)?
            };
            return input(element, *part, *ty);
        }
        ScalarOp::Index { axis } => {
            let position = inputs.index.get(*axis as usize);
            let position = position.ok_or_else(|| internal_error!("no axis {axis}"))?;
            return Ok(Scalar::from_i64(dtype, *position));
        }
        ScalarOp::Const { bits } => return Ok(Scalar::from_bits(dtype, (*bits).into())),
        ScalarOp::Param { index } => {
            let bits = inputs.params.get(*index as usize);
            let bits = bits.ok_or_else(|| internal_error!("no parameter {index}"))?;
            return Ok(Scalar::from_bits(dtype, (*bits).into()));
        }
        ScalarOp::Select => return Ok(if args[0].bits() != 0 { args[1] } else { args[2] }),
        ScalarOp::Bitcast => return Ok(Scalar::from_bits(dtype, args[0].bits())),
        _ => {}
    }
    let wide: Vec<Wide> = args.iter().filter_map(|arg| load(arg.dtype(), &arg.bytes())).collect();
    let value = match *wide.as_slice() {
        [Wide::Float(x), Wide::Float(y), Wide::Float(z)] => Wide::Float(fused(*op, *ty, x, y, z)?),
        [Wide::Float(x), Wide::Float(y)] => float_binary(*op, x, y)?,
        [Wide::Float(x)] => float_unary(*op, x)?,
        [Wide::Int(x), Wide::Int(y)] => integer_binary(*op, args[0].dtype(), x, y)?,
        [Wide::Int(x)] => integer_unary(*op, args[0].dtype(), x)?,
        _ => return Err(internal_error!("{op:?} of {wide:?}")),
    };
    store(dtype, value).ok_or_else(|| internal_error!("no register holds {dtype}"))
}

fn fused(op: ScalarOp, ty: ScalarType, x: f64, y: f64, z: f64) -> Result<f64> {
    match op {
        ScalarOp::Fma if ty == ScalarType::F32 => Ok(f64::from((x as f32).mul_add(y as f32, z as f32))),
        ScalarOp::Fma => Ok(x.mul_add(y, z)),
        _ => Err(internal_error!("{op:?} does not take three floats")),
    }
}

pub(crate) fn float_unary(op: ScalarOp, x: f64) -> Result<Wide> {
    Ok(Wide::Float(match op {
        ScalarOp::Neg => -x,
        ScalarOp::Abs => x.abs(),
        ScalarOp::Sqrt => x.sqrt(),
        ScalarOp::Floor => x.floor(),
        ScalarOp::Ceil => x.ceil(),
        ScalarOp::Trunc => x.trunc(),
        ScalarOp::RoundEven => x.round_ties_even(),
        ScalarOp::Convert => x,
        ScalarOp::RoundTo(Narrow::BF16) => half::bf16::from_f32(x as f32).to_f64(),
        ScalarOp::RoundTo(Narrow::F16) => half::f16::from_f32(x as f32).to_f64(),
        ScalarOp::Math(function) => function.reference(x, 0.0),
        _ => return Err(internal_error!("{op:?} does not take one float")),
    }))
}

pub(crate) fn float_binary(op: ScalarOp, x: f64, y: f64) -> Result<Wide> {
    let bool = |value: bool| Ok(Wide::Int(value.into()));
    Ok(Wide::Float(match op {
        ScalarOp::Add => x + y,
        ScalarOp::Sub => x - y,
        ScalarOp::Mul => x * y,
        ScalarOp::Div => x / y,
        ScalarOp::Rem => x % y,
        ScalarOp::Min => minimum(x, y),
        ScalarOp::Max => maximum(x, y),
        ScalarOp::Math(function) => function.reference(x, y),
        ScalarOp::Eq => return bool(x == y),
        ScalarOp::Ne => return bool(x != y),
        ScalarOp::Lt => return bool(x < y),
        ScalarOp::Le => return bool(x <= y),
        _ => return Err(internal_error!("{op:?} does not take two floats")),
    }))
}

/// The larger; NaN if either is; `-0 < 0`.
pub fn maximum(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else if x == y {
        if x.is_sign_negative() { y } else { x }
    } else {
        x.max(y)
    }
}

/// The smaller; NaN if either is; `-0 < 0`.
pub fn minimum(x: f64, y: f64) -> f64 {
    -maximum(-x, -y)
}

fn integer_unary(op: ScalarOp, dtype: DType, x: i128) -> Result<Wide> {
    let width = dtype.bits();
    let bits = (x as u128) & (u128::MAX >> (128 - width));
    Ok(Wide::Int(match op {
        ScalarOp::Neg => -x,
        ScalarOp::Abs => x.abs(),
        ScalarOp::Not if dtype.is_bool() => 1 - x,
        ScalarOp::Not => !x,
        ScalarOp::PopCount => bits.count_ones().into(),
        ScalarOp::Clz => i128::from(bits.leading_zeros()) - (128 - width as i128),
        ScalarOp::Convert => x,
        _ => return Err(internal_error!("{op:?} does not take one integer")),
    }))
}

/// Arithmetic of integers before it wraps.
pub(crate) fn integer_binary(op: ScalarOp, dtype: DType, x: i128, y: i128) -> Result<Wide> {
    let width = dtype.bits() as i128;
    let mask = u128::MAX >> (128 - dtype.bits());
    let amount = (y as u128) & mask;
    let inside = amount < width as u128;
    Ok(Wide::Int(match op {
        ScalarOp::Add => x + y,
        ScalarOp::Sub => x - y,
        ScalarOp::Mul => x.wrapping_mul(y),
        ScalarOp::Div => x.checked_div(y).unwrap_or(-1),
        ScalarOp::Rem => x.checked_rem(y).unwrap_or(x),
        ScalarOp::Min => x.min(y),
        ScalarOp::Max => x.max(y),
        ScalarOp::And => x & y,
        ScalarOp::Or => x | y,
        ScalarOp::Xor => x ^ y,
        ScalarOp::Shl => x.checked_shl(amount as u32).filter(|_| inside).unwrap_or(0),
        ScalarOp::ShrLogical if inside => (((x as u128) & mask) >> amount) as i128,
        ScalarOp::ShrLogical => 0,
        ScalarOp::ShrArithmetic => x >> amount.min(width as u128 - 1),
        ScalarOp::Eq => (x == y).into(),
        ScalarOp::Ne => (x != y).into(),
        ScalarOp::Lt => (x < y).into(),
        ScalarOp::Le => (x <= y).into(),
        _ => return Err(internal_error!("{op:?} does not take two integers")),
    }))
}
