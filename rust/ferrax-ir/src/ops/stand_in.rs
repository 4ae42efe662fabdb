//! Values for which others stand in when derivatives are taken.
//!
//! A step of a loop over a batch is made for all lanes; what it gives for those that
//! are done is thrown away, and the cotangents that come back for it are zeros. But
//! zero times an infinite derivative is NaN, which reaches the cotangents of what
//! all lanes share. So derivatives of such a step are taken at values for which all
//! exist if the derivative of the whole does. Without derivatives this is the
//! identity, and costs nothing.

use smallvec::{SmallVec, smallvec};

use super::StopGradient;
use super::common::{arrays, check_arity, elementwise_batch, one};
use super::derive::{Cotangents, Tangents, zero};
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, WithTangents};
use crate::{Atom, Builder, Result, Tensor, Type, internal_error, op_struct, type_error};

op_struct! {
    /// Its second operand. Derivatives have the third in its place, as a constant, where the flags of
    /// the first do not hold.
    StandIn "stand_in" {}
}

/// What there is where flags hold, and zeros elsewhere.
fn masked(b: &mut Builder, flags: Atom, x: Atom) -> Result<Atom> {
    let zeros = b.zeros_like(x)?;
    b.select(flags, x, zeros)
}

impl Row for StandIn {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(StandIn::NAME, inputs, 3)?;
        let operands = arrays(StandIn::NAME, inputs)?;
        let [flags, x, other] = [0, 1, 2].map(|index| operands[index]);
        let fits = flags.dtype.is_bool()
            && flags.shape == x.shape
            && x.shape == other.shape
            && x.dtype == other.dtype;
        if fits {
            return one(x.clone());
        }
        Err(type_error!(
            "stand_in requires bool flags and two arrays of one dtype, all of one shape; got {flags}, {x} and {other}"
        ))
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[1].clone()])
    }
}

impl Rules for StandIn {
    fn jvp_joint(
        &self,
        b: &mut Builder,
        inputs: &[Atom],
        tangents: &[Option<Atom>],
    ) -> Option<Result<WithTangents>> {
        let mut joint = || {
            let (&[flags, x, mut other], Some(tangent)) = (inputs, tangents.get(1)) else {
                return Err(internal_error!("stand_in has three operands"));
            };
            if b.dtype(other).is_inexact() {
                other = b.emit1(StopGradient {}, &[other])?;
            }
            let value = b.select(flags, x, other)?;
            let tangent = tangent.map(|tangent| masked(b, flags, tangent)).transpose()?;
            Ok(smallvec![(value, tangent)])
        };
        Some(joint())
    }

    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        match eqn.tangents[1] {
            Some(tangent) => Ok(smallvec![Some(masked(b, eqn.inputs[0], tangent)?)]),
            None => Ok(zero()),
        }
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let cotangent = match (eqn.inputs[0].known(), eqn.cotangents[0]) {
            (Some(flags), Some(cotangent)) if eqn.inputs[1].is_linear() => Some(masked(b, flags, cotangent)?),
            _ => None,
        };
        Ok(smallvec![None, cotangent, None])
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(StandIn {}, b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, _: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        Ok(smallvec![inputs[1]])
    }
}
