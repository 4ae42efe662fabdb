//! Conversion between element types, one element at a time.
//!
//! Floats to integers saturate and NaN becomes zero; integers wrap; complex to
//! real drops the imaginary part; anything to bool is `!= 0`.

use half::{bf16, f16};

use crate::minifloat::MiniFloat;
use crate::{DType, Kind, Result, Scalar, Tensor, type_error};

/// A value of any computing dtype, wide enough to hold it exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wide {
    Int(i128),
    Float(f64),
    Complex(f64, f64),
}

/// Reads the element that starts `bytes`.
pub fn load(dtype: DType, bytes: &[u8]) -> Option<Wide> {
    fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.get(..N)?.try_into().ok()
    }
    Some(match dtype {
        DType::Bool => Wide::Int(i128::from(*bytes.first()? != 0)),
        DType::U2 => Wide::Int(i128::from(*bytes.first()? & 3)),
        DType::U4 => Wide::Int(i128::from(*bytes.first()? & 15)),
        DType::U8 => Wide::Int(i128::from(*bytes.first()?)),
        DType::U16 => Wide::Int(i128::from(u16::from_le_bytes(fixed(bytes)?))),
        DType::U32 => Wide::Int(i128::from(u32::from_le_bytes(fixed(bytes)?))),
        DType::U64 => Wide::Int(i128::from(u64::from_le_bytes(fixed(bytes)?))),
        DType::I2 => Wide::Int(i128::from((*bytes.first()? << 6).cast_signed() >> 6)),
        DType::I4 => Wide::Int(i128::from((*bytes.first()? << 4).cast_signed() >> 4)),
        DType::I8 => Wide::Int(i128::from(bytes.first()?.cast_signed())),
        DType::I16 => Wide::Int(i128::from(i16::from_le_bytes(fixed(bytes)?))),
        DType::I32 => Wide::Int(i128::from(i32::from_le_bytes(fixed(bytes)?))),
        DType::I64 => Wide::Int(i128::from(i64::from_le_bytes(fixed(bytes)?))),
        DType::BF16 => Wide::Float(bf16::from_le_bytes(fixed(bytes)?).to_f64()),
        DType::F16 => Wide::Float(f16::from_le_bytes(fixed(bytes)?).to_f64()),
        DType::F32 => Wide::Float(f64::from(f32::from_le_bytes(fixed(bytes)?))),
        DType::F64 => Wide::Float(f64::from_le_bytes(fixed(bytes)?)),
        DType::C64 => Wide::Complex(
            f64::from(f32::from_le_bytes(fixed(bytes)?)),
            f64::from(f32::from_le_bytes(fixed(&bytes[4..])?)),
        ),
        DType::C128 => {
            Wide::Complex(f64::from_le_bytes(fixed(bytes)?), f64::from_le_bytes(fixed(&bytes[8..])?))
        }
        DType::Key(_) | DType::Float0 => return None,
        small => Wide::Float(MiniFloat::of(small)?.decode(*bytes.first()?)),
    })
}

/// The element of `dtype` nearest to `value`; `None` for keys and `float0`.
pub fn store(dtype: DType, value: Wide) -> Option<Scalar> {
    let (re, im) = match value {
        Wide::Int(value) => (value as f64, 0.0),
        Wide::Float(value) => (value, 0.0),
        Wide::Complex(re, im) => (re, im),
    };
    // `as` from a float saturates and sends NaN to zero; from an integer it wraps.
    let integer = |low: f64, high: f64| match value {
        Wide::Int(value) => value,
        Wide::Float(value) | Wide::Complex(value, _) => value.clamp(low, high) as i128,
    };
    let bits = match dtype {
        DType::Bool => u128::from(re != 0.0 || im != 0.0),
        DType::U2 => (integer(0.0, 3.0) & 3) as u128,
        DType::U4 => (integer(0.0, 15.0) & 15) as u128,
        DType::U8 => u128::from(saturate_unsigned(value, u8::MAX.into()) as u8),
        DType::U16 => u128::from(saturate_unsigned(value, u16::MAX.into()) as u16),
        DType::U32 => u128::from(saturate_unsigned(value, u32::MAX.into()) as u32),
        DType::U64 => u128::from(saturate_unsigned(value, u64::MAX) as u64),
        DType::I2 => u128::from((((integer(-2.0, 1.0) as i8) << 6) >> 6).cast_unsigned()),
        DType::I4 => u128::from((((integer(-8.0, 7.0) as i8) << 4) >> 4).cast_unsigned()),
        DType::I8 => u128::from((saturate_signed(value, i8::MAX.into()) as i8).cast_unsigned()),
        DType::I16 => u128::from((saturate_signed(value, i16::MAX.into()) as i16).cast_unsigned()),
        DType::I32 => u128::from((saturate_signed(value, i32::MAX.into()) as i32).cast_unsigned()),
        DType::I64 => u128::from((saturate_signed(value, i64::MAX) as i64).cast_unsigned()),
        DType::BF16 => u128::from(round_bf16(value, re).to_bits()),
        DType::F16 => u128::from(f16::from_f32(to_odd(re)).to_bits()),
        DType::F32 => u128::from(to_f32(value, re).to_bits()),
        DType::F64 => u128::from(re.to_bits()),
        DType::C64 => u128::from((re as f32).to_bits()) | (u128::from((im as f32).to_bits()) << 32),
        DType::C128 => u128::from(re.to_bits()) | (u128::from(im.to_bits()) << 64),
        DType::Key(_) | DType::Float0 => return None,
        small => u128::from(MiniFloat::of(small)?.encode(re)),
    };
    Some(Scalar::from_bits(dtype, bits))
}

/// Integers convert straight to `f32`: through `f64` they would round twice.
fn to_f32(value: Wide, re: f64) -> f32 {
    match value {
        Wide::Int(value) => value as f32,
        _ => re as f32,
    }
}

/// `value` as an `f32` whose last bit is set wherever it is not exact, so that
/// rounding it to a narrower format rounds as once. (`half` itself drops the
/// low bits of an `f64`.)
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    if back == value || value.is_nan() {
        return nearest;
    }
    let truncated = nearest.to_bits() - u32::from(back.abs() > value.abs());
    f32::from_bits(truncated | 1)
}

fn round_bf16(value: Wide, re: f64) -> bf16 {
    match value {
        Wide::Int(value) => bf16::from_f32(value as f32),
        _ => bf16::from_f32(to_odd(re)),
    }
}

fn saturate_unsigned(value: Wide, max: u64) -> i128 {
    match value {
        Wide::Int(value) => value,
        Wide::Float(value) | Wide::Complex(value, _) => (value as i128).clamp(0, i128::from(max)),
    }
}

fn saturate_signed(value: Wide, max: i64) -> i128 {
    match value {
        Wide::Int(value) => value,
        Wide::Float(value) | Wide::Complex(value, _) => {
            (value as i128).clamp(-i128::from(max) - 1, i128::from(max))
        }
    }
}

pub(crate) fn scalar_from_f64(dtype: DType, value: f64) -> Scalar {
    store(dtype, Wide::Float(value)).unwrap_or(Scalar::zero(dtype))
}

pub(crate) fn scalar_from_i64(dtype: DType, value: i64) -> Scalar {
    store(dtype, Wide::Int(value.into())).unwrap_or(Scalar::zero(dtype))
}

pub(crate) fn scalar_to_f64(scalar: Scalar) -> Option<f64> {
    match load(scalar.dtype(), &scalar.bytes())? {
        Wide::Int(value) => Some(value as f64),
        Wide::Float(value) | Wide::Complex(value, _) => Some(value),
    }
}

pub(crate) fn scalar_to_i128(scalar: Scalar) -> Option<i128> {
    match load(scalar.dtype(), &scalar.bytes())? {
        Wide::Int(value) => Some(value),
        Wide::Float(_) | Wide::Complex(..) => None,
    }
}

/// `tensor` with every element converted to `dtype`.
pub fn convert(tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    if matches!(tensor.dtype().kind(), Kind::Key | Kind::Float0)
        || matches!(dtype.kind(), Kind::Key | Kind::Float0)
    {
        return Err(type_error!("cannot convert elements of {} to {dtype}", tensor.dtype()));
    }
    let mut result = Tensor::zeros(dtype, tensor.sizes())?;
    let (from, to) = (tensor.dtype().size(), dtype.size());
    let target = result.bytes_mut()?;
    for (source, target) in tensor.bytes().chunks_exact(from).zip(target.chunks_exact_mut(to)) {
        if let Some(scalar) = load(tensor.dtype(), source).and_then(|wide| store(dtype, wide)) {
            target.copy_from_slice(&scalar.bytes());
        }
    }
    Ok(result)
}
