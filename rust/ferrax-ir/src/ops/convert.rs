//! Conversions between dtypes: by value and by bits.

use smallvec::SmallVec;

use super::common::{arrays, check_arity, elementwise_batch, one};
use super::derive::{Cotangents, each_linear, linear, zero};
use super::evaluate;
use super::formula::Formulas;
use crate::math::{Emit, FloatLang};
use crate::rules::{
    Batch, Batched, Extents, IndexMap, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear,
};
use crate::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use crate::{
    ArrayType, Atom, Builder, DType, Dim, Kind, Result, ShowShape, Tensor, Type, internal_error, op_struct,
    type_error, unsupported, value_error,
};

op_struct! {
    /// Converts to another dtype.
    ConvertElementType "convert_element_type" { new_dtype: DType, weak_type: bool }
}
op_struct! {
    /// The same bits read as another dtype.
    BitcastConvertType "bitcast_convert_type" { new_dtype: DType }
}

impl Row for ConvertElementType {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(ConvertElementType::NAME, inputs, 1)?;
        let operand = arrays(ConvertElementType::NAME, inputs)?[0];
        let has_values = |dtype: DType| !matches!(dtype.kind(), Kind::Key | Kind::Float0);
        if operand.dtype != self.new_dtype && !(has_values(operand.dtype) && has_values(self.new_dtype)) {
            return Err(value_error!(
                "Cannot convert_element_type from {} to {}",
                operand.dtype,
                self.new_dtype
            ));
        }
        one(operand.with_dtype(self.new_dtype).with_weak(self.weak_type))
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        Ok(vec![crate::convert::convert(&inputs[0], self.new_dtype)?])
    }
}

impl Rules for ConvertElementType {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        match eqn.tangents[0].filter(|_| self.new_dtype.is_inexact()) {
            Some(g) => Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &[g])?)])),
            None => Ok(zero()),
        }
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let Some((new_dtype, weak_type)) = linear(eqn, 0).map(|ty| (ty.dtype, ty.weak)) else {
            return Ok(SmallVec::from_iter([None]));
        };
        each_linear(b, eqn, |b, _, ct| b.emit1(ConvertElementType { new_dtype, weak_type }, &[ct]))
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn index_map(&self, inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok((inputs[0].dtype == self.new_dtype).then_some(IndexMap::InOrder))
    }

    fn scalar(&self, body: &mut Body, types: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let (from, to) = (types[0].dtype, self.new_dtype);
        if from == to {
            return Ok(args[0]);
        }
        let ty = ScalarType::of(to)?;
        Ok(match (args[0], to.is_complex()) {
            (Value::Complex(re, im), true) => Value::Complex(body.convert(re, ty), body.convert(im, ty)),
            (Value::Real(x), true) => {
                let re = body.convert(x, ty);
                Value::Complex(re, body.float(ty, 0.0))
            }
            (Value::Complex(re, im), false) if to.is_bool() => {
                let (re, im) = (body.convert(re, ScalarType::Bool), body.convert(im, ScalarType::Bool));
                Value::Real(body.op(ScalarOp::Or, &[re, im]))
            }
            (Value::Complex(x, _), false) | (Value::Real(x), false) => {
                Value::Real(emit_convert(body, from.real(), to, x)?)
            }
        })
    }
}

/// `x` of the real dtype `from` as an element of the real dtype `to`.
fn emit_convert(body: &mut Body, from: DType, to: DType, x: Reg) -> Result<Reg> {
    let ty = ScalarType::of(to)?;
    match to {
        DType::BF16 | DType::F16 => {
            let x = if from == DType::F64 {
                emit_round_to_odd(body, x)
            } else {
                body.convert(x, ScalarType::F32)
            };
            Ok(body.round_to(to, x))
        }
        _ if to.is_float() && to.is_storage_only() => {
            // What writes the element to memory rounds from F32 to its format.
            let x = if from.is_integer() && from.size() > 2 { body.convert(x, ScalarType::F64) } else { x };
            Ok(if body.type_of(x) == ScalarType::F64 {
                emit_round_to_odd(body, x)
            } else {
                body.convert(x, ty)
            })
        }
        DType::I2 | DType::I4 | DType::U2 | DType::U4 => {
            let bits = to.bits() as i32;
            let (low, high) = if to.is_signed() {
                (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0)
            } else {
                (0.0, 2f64.powi(bits) - 1.0)
            };
            if from.is_float() {
                let float = body.type_of(x);
                let mut emit = Emit::new(body, float);
                let (low, high) = (emit.float(low), emit.float(high));
                let bounded = emit.max(x, low);
                let bounded = emit.min(bounded, high);
                return Ok(body.convert(bounded, ty));
            }
            // Integers wrap.
            let byte = body.convert(x, ty);
            Ok(body.round_to(to, byte))
        }
        _ => Ok(body.convert(x, ty)),
    }
}

/// An F64 as an F32 whose last bit is set wherever it is not exact, so that
/// rounding it again to a narrower format rounds as once.
fn emit_round_to_odd(body: &mut Body, x: Reg) -> Reg {
    let nearest = body.convert(x, ScalarType::F32);
    let back = body.convert(nearest, ScalarType::F64);
    let (near, exact) = (body.op(ScalarOp::Abs, &[back]), body.op(ScalarOp::Abs, &[x]));
    let above = body.compare(ScalarOp::Lt, exact, near);
    let below = body.compare(ScalarOp::Lt, near, exact);
    let pattern = body.bitcast(nearest, ScalarType::U32);
    let (above, below) = (body.convert(above, ScalarType::U32), body.convert(below, ScalarType::U32));
    let truncated = body.op(ScalarOp::Sub, &[pattern, above]);
    let inexact = body.op(ScalarOp::Or, &[above, below]);
    let odd = body.op(ScalarOp::Or, &[truncated, inexact]);
    body.bitcast(odd, ScalarType::F32)
}

impl BitcastConvertType {
    fn shape(&self, operand: &ArrayType) -> Result<crate::Shape> {
        let (old, new) = (operand.dtype.bits(), self.new_dtype.bits());
        let mut shape = operand.shape.clone();
        if new < old {
            shape.push(Dim::Const(old / new));
        } else if new > old {
            let fits = shape.last().is_some_and(|last| *last == new / old);
            if !fits {
                let last = shape.last().map_or_else(|| "1".to_owned(), Dim::to_string);
                return Err(value_error!(
                    "bitcast_convert_type of shape {} from {} to {}: the last axis needs {new} / {old} elements, \
                     it has {last}",
                    ShowShape(&shape),
                    operand.dtype,
                    self.new_dtype
                ));
            }
            shape.pop();
        }
        Ok(shape)
    }
}

impl Row for BitcastConvertType {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(BitcastConvertType::NAME, inputs, 1)?;
        let operand = arrays(BitcastConvertType::NAME, inputs)?[0];
        let plain = |dtype: DType| dtype.is_integer() || dtype.is_float();
        if operand.dtype != self.new_dtype && !(plain(operand.dtype) && plain(self.new_dtype)) {
            return Err(type_error!(
                "bitcast_convert_type: bools and complex numbers have no bits to reinterpret; got {} to \
                 become {}. x.view(dtype) takes them.",
                operand.dtype,
                self.new_dtype
            ));
        }
        one(ArrayType::new(self.shape(operand)?, self.new_dtype))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (_, sizes) = evaluate::output(outputs)?;
        let (old, new) = (inputs[0].dtype(), self.new_dtype);
        if old.bits() == old.size() * 8 && new.bits() == new.size() * 8 {
            return Ok(vec![Tensor::from_bytes(new, sizes, inputs[0].bytes())?]);
        }
        // Sub-byte elements lie one in a byte; the first is the lowest.
        let mut result = Tensor::zeros(new, sizes)?;
        let source = inputs[0].bytes();
        for (index, byte) in result.bytes_mut()?.iter_mut().enumerate() {
            for bit in 0..new.bits().min(8) {
                let position = index / new.size() * new.bits() + index % new.size() * 8 + bit;
                let (element, offset) = (position / old.bits(), position % old.bits());
                let from = source[element * old.size() + offset / 8];
                *byte |= ((from >> (offset % 8)) & 1) << bit;
            }
            if new.is_signed() && new.bits() < 8 {
                let shift = 8 - new.bits() as u32;
                *byte = ((*byte << shift).cast_signed() >> shift).cast_unsigned();
            }
        }
        Ok(vec![result])
    }
}

impl Rules for BitcastConvertType {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Ok(zero())
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (Some(&x), Some(&Some(dim))) = (eqn.inputs.first(), eqn.dims.first()) else {
            return Err(internal_error!("nothing is batched"));
        };
        // A wider dtype takes up the last axis, which must not be the batch.
        let x = b.move_axis(x, dim, 0)?;
        let output = b.emit1(self.clone(), &[x])?;
        Ok(SmallVec::from_iter([(output, Some(0))]))
    }

    /// Elementwise where the sizes agree. Else only the type of the buffer
    /// changes (for sub-byte dtypes: its packing), which has no scalar body.
    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    /// Registers cannot hold both sides of other widths, nor formats that exist in memory alone.
    fn index_map(&self, inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        let (from, to) = (inputs[0].dtype, self.new_dtype);
        let stored = |dtype: DType| dtype.is_narrow() || dtype.is_key();
        Ok(if from == to {
            // Of a format below a byte the other bits of an element's byte are no part of it.
            (from.bits() == from.size() * 8).then_some(IndexMap::InOrder)
        } else if from.bits() != to.bits() || stored(from) || stored(to) {
            Some(IndexMap::Bytes)
        } else {
            None
        })
    }

    fn scalar(&self, body: &mut Body, types: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let (from, to) = (types[0].dtype, self.new_dtype);
        if from == to {
            return Ok(args[0]);
        }
        if from.bits() != to.bits() {
            return Err(unsupported!("bitcast_convert_type from {from} to {to} is not elementwise"));
        }
        let x = super::rounding::real(args[0])?;
        let eighths = |dtype: DType| dtype.is_float() && dtype.is_storage_only();
        if eighths(from) || eighths(to) {
            return Err(unsupported!(
                "bitcast_convert_type from {from} to {to} is not compiled: 8-bit floats are converted on their \
                 way from and to memory"
            ));
        }
        // Through the unsigned integer of the dtype's width.
        let bits = match from {
            DType::BF16 => {
                let wide = body.bitcast(x, ScalarType::U32);
                let shift = body.int(ScalarType::U32, 16);
                let high = body.op(ScalarOp::ShrLogical, &[wide, shift]);
                body.convert(high, ScalarType::U16)
            }
            DType::F16 => emit_half_bits(body, x),
            _ => x,
        };
        let ty = ScalarType::of(to)?;
        Ok(Value::Real(match to {
            DType::BF16 => {
                let wide = body.bitcast(bits, ScalarType::U16);
                let wide = body.convert(wide, ScalarType::U32);
                let shift = body.int(ScalarType::U32, 16);
                let high = body.op(ScalarOp::Shl, &[wide, shift]);
                body.bitcast(high, ScalarType::F32)
            }
            DType::F16 => {
                let bits = body.bitcast(bits, ScalarType::U16);
                emit_half_value(body, bits)
            }
            DType::I2 | DType::I4 | DType::U2 | DType::U4 => {
                let bits = body.bitcast(bits, ty);
                emit_convert(body, DType::I8, to, bits)?
            }
            _ => body.bitcast(bits, ty),
        }))
    }
}

/// The 16 bits of a half that is held in an F32 register.
fn emit_half_bits(body: &mut Body, x: Reg) -> Reg {
    let u32 = |body: &mut Body, value: i64| body.int(ScalarType::U32, value);
    let pattern = body.bitcast(x, ScalarType::U32);
    let (sixteen, thirteen) = (u32(body, 16), u32(body, 13));
    let (sign_mask, rest_mask) = (u32(body, 0x8000), u32(body, 0x7fff_ffff));
    let sign = body.op(ScalarOp::ShrLogical, &[pattern, sixteen]);
    let sign = body.op(ScalarOp::And, &[sign, sign_mask]);
    let magnitude = body.op(ScalarOp::And, &[pattern, rest_mask]);
    let bias = u32(body, 112 << 23);
    let rebased = body.op(ScalarOp::Sub, &[magnitude, bias]);
    let normal = body.op(ScalarOp::ShrLogical, &[rebased, thirteen]);
    let (mantissa_mask, infinity) = (u32(body, 0x3ff), u32(body, 0x7c00));
    let payload = body.op(ScalarOp::ShrLogical, &[magnitude, thirteen]);
    let payload = body.op(ScalarOp::And, &[payload, mantissa_mask]);
    let special = body.op(ScalarOp::Or, &[payload, infinity]);
    let unit = body.float(ScalarType::F32, 2f64.powi(24));
    let absolute = body.bitcast(magnitude, ScalarType::F32);
    let count = body.op(ScalarOp::Mul, &[absolute, unit]);
    let first_normal = u32(body, 113 << 23);
    let first_special = u32(body, 255 << 23);
    let small = body.compare(ScalarOp::Lt, magnitude, first_normal);
    let large = body.compare(ScalarOp::Le, first_special, magnitude);
    // Only subnormals have a count that an integer holds.
    let zero = body.float(ScalarType::F32, 0.0);
    let count = body.select(small, count, zero);
    let subnormal = body.convert(count, ScalarType::U32);
    let value = body.select(large, special, normal);
    let value = body.select(small, subnormal, value);
    let value = body.op(ScalarOp::Or, &[value, sign]);
    body.convert(value, ScalarType::U16)
}

/// The half with these bits, in an F32 register.
fn emit_half_value(body: &mut Body, bits: Reg) -> Reg {
    let u32 = |body: &mut Body, value: i64| body.int(ScalarType::U32, value);
    let bits = body.convert(bits, ScalarType::U32);
    let (sixteen, thirteen) = (u32(body, 16), u32(body, 13));
    let (sign_mask, rest_mask) = (u32(body, 0x8000), u32(body, 0x7fff));
    let sign = body.op(ScalarOp::And, &[bits, sign_mask]);
    let sign = body.op(ScalarOp::Shl, &[sign, sixteen]);
    let magnitude = body.op(ScalarOp::And, &[bits, rest_mask]);
    let shifted = body.op(ScalarOp::Shl, &[magnitude, thirteen]);
    let (bias, far) = (u32(body, 112 << 23), u32(body, 224 << 23));
    let normal = body.op(ScalarOp::Add, &[shifted, bias]);
    let special = body.op(ScalarOp::Add, &[shifted, far]);
    let unit = body.float(ScalarType::F32, 2f64.powi(-24));
    let count = body.convert(magnitude, ScalarType::F32);
    let subnormal = body.op(ScalarOp::Mul, &[count, unit]);
    let subnormal = body.bitcast(subnormal, ScalarType::U32);
    let (first_normal, first_special) = (u32(body, 0x400), u32(body, 0x7c00));
    let small = body.compare(ScalarOp::Lt, magnitude, first_normal);
    let large = body.compare(ScalarOp::Le, first_special, magnitude);
    let value = body.select(large, special, normal);
    let value = body.select(small, subnormal, value);
    let value = body.op(ScalarOp::Or, &[value, sign]);
    body.bitcast(value, ScalarType::F32)
}
