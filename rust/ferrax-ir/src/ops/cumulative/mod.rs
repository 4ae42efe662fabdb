//! Running reductions along an axis: what their rows hold, and the rules that follow from it.
//! The rows are in `rows.rs`.

mod dual;
mod rows;

pub use rows::CumulativeKind;

use smallvec::SmallVec;

use crate::convert::Wide;
use crate::rules::{self, Batch, Batched, Jvp, Lowering, Row, Rules, Types, not_linear};
use crate::{
    Atom, Axes, Builder, Result, ShowShape, Tensor, Type, internal_error, type_error, unsupported,
    value_error,
};

use super::Rev;
use super::accumulate::{element, rounded};
use super::common::one;
use super::index_space::*;
use super::reduce::check_number;
use dual::{Dual, Scan};

/// A running reduction.
pub struct CumulativeRow {
    /// JAX's name of the primitive.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub doc: &'static str,
    /// Elements along an axis and what becomes of them, for tests.
    pub example: (&'static [Wide], &'static [Wide]),
    /// Whether integers are refused.
    pub inexact: bool,
    /// What a total becomes with one more element; `None` for values of different kinds.
    pub combine: fn(Wide, Wide) -> Option<Wide>,
    pub derivative: Derivative,
}

pub enum Derivative {
    /// The op is linear; transposed it goes the other way.
    Linear,
    /// A total and what follows it, with their tangents.
    Pairs(fn(&mut Builder, Dual, Dual) -> Result<Dual>),
}

/// Running reduction along an axis.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cumulative {
    pub kind: CumulativeKind,
    pub axis: usize,
    pub reverse: bool,
}

kind_params!(Cumulative, CumulativeKind, [axis, reverse]);

impl Row for Cumulative {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.op_name();
        let [operand] = operands(name, inputs)?;
        if self.axis >= operand.rank() {
            return Err(value_error!(
                "{name}: there is no axis {} in shape {}",
                self.axis,
                ShowShape(&operand.shape)
            ));
        }
        check_number(name, operand.dtype)?;
        if self.kind.row().inexact && !operand.dtype.is_inexact() {
            return Err(type_error!(
                "{name} does not accept dtype {}: it takes floats and complex numbers.",
                operand.dtype
            ));
        }
        one(operand.clone())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(self.op_name(), inputs)?;
        let (dtype, length) = (operand.dtype(), operand.sizes()[self.axis]);
        let stride = strides(operand.sizes())[self.axis];
        let combine = self.kind.row().combine;
        let mut lines: Axes = operand.sizes().into();
        lines[self.axis] = 1;
        let all = strides(operand.sizes());
        let mut output = Tensor::zeros(dtype, operand.sizes())?;
        let target = output.bytes_mut()?;
        if length == 0 {
            return Ok(vec![output]);
        }
        for_each_index(&lines, |index| {
            let base = offset(index, &all);
            let mut total = None;
            for step in 0..length {
                let place = if self.reverse { length - 1 - step } else { step };
                let value = element(dtype, operand.bytes(), base + place * stride)?;
                let next = match total {
                    Some(total) => combine(total, value)
                        .ok_or_else(|| internal_error!("{} of {total:?} and {value:?}", self.op_name()))?,
                    None => value,
                };
                total = Some(next);
                copy_element(&rounded(dtype, next)?.bytes(), 0, target, base + place * stride, dtype.size())?;
            }
            Ok(())
        })?;
        Ok(vec![output])
    }
}

impl Rules for Cumulative {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Derivative::Pairs(combine) = self.kind.row().derivative else {
            return linear_jvp(self.clone(), b, eqn);
        };
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return no_tangent() };
        let [operand] = atoms(self.op_name(), eqn.inputs)?;
        let shape = b.shape(operand);
        let Some(length) = shape[self.axis].as_const() else {
            return Err(unsupported!(
                "the derivative of {} needs a constant size of its axis {}, got shape {}",
                self.op_name(),
                self.axis,
                ShowShape(&shape)
            ));
        };
        let flip = |b: &mut Builder, x: Atom| {
            if self.reverse {
                b.emit1(Rev { dimensions: SmallVec::from_iter([self.axis]) }, &[x])
            } else {
                Ok(x)
            }
        };
        let pair = Dual { primal: flip(b, operand)?, tangent: flip(b, tangent)? };
        let result = Scan { axis: self.axis, combine }.pairs(b, pair, length)?.tangent;
        Ok(SmallVec::from_iter([Some(flip(b, result)?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        if !matches!(self.kind.row().derivative, Derivative::Linear) {
            return not_linear(self);
        }
        let cotangent = only_cotangent(self.op_name(), eqn)?;
        one_cotangent(b.emit1(Cumulative { reverse: !self.reverse, ..self.clone() }, &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(self.op_name(), eqn)?;
        let axis = if self.axis >= dim { self.axis + 1 } else { self.axis };
        one_batched(b.emit1(Cumulative { axis, ..self.clone() }, &[operand])?, dim)
    }

    fn coupled_axes(&self, _rank: usize) -> Option<Axes> {
        Some(SmallVec::from_elem(self.axis, 1))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }
}
