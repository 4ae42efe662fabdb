//! What derivative rules of elementwise ops share.

use smallvec::{SmallVec, smallvec};

use crate::rules::Transpose;
use crate::{ArrayType, Atom, Builder, Literal, Result, Scalar, internal_error};

pub type Tangents = SmallVec<[Option<Atom>; 1]>;
pub type Cotangents = SmallVec<[Option<Atom>; 3]>;

/// A constant of the dtype of `like`. Weak, so that a result's weakness is
/// that of the other operand.
pub fn constant(b: &Builder, like: Atom, value: f64) -> Atom {
    Atom::Literal(Literal { value: Scalar::from_f64(b.dtype(like), value), weak: true })
}

/// One output without a tangent.
pub fn zero() -> Tangents {
    smallvec![None]
}

/// The sum of the terms of a tangent, in the shape of `output`: a term that
/// stems from a 0-d operand alone is 0-d and has to be broadcast.
pub fn sum(b: &mut Builder, terms: &[Option<Atom>], output: Atom) -> Result<Tangents> {
    let mut total: Option<Atom> = None;
    for &term in terms.iter().flatten() {
        total = Some(match total {
            Some(sum) => b.add(sum, term)?,
            None => term,
        });
    }
    total.map(|sum| spread(b, sum, output)).transpose().map(|sum| smallvec![sum])
}

/// `x`, which is 0-d or has the shape of `like`, in that shape.
pub fn spread(b: &mut Builder, x: Atom, like: Atom) -> Result<Atom> {
    if b.rank(x) > 0 {
        return Ok(x);
    }
    let shape = b.shape(like);
    b.broadcast_scalar(x, &shape)
}

/// The only output's cotangent.
pub fn cotangent(eqn: &Transpose<'_>) -> Result<Atom> {
    eqn.cotangents.first().copied().flatten().ok_or_else(|| internal_error!("transposed without a cotangent"))
}

/// The type of the operand at `position` if its cotangent is wanted.
pub fn linear<'a>(eqn: &'a Transpose<'_>, position: usize) -> Option<&'a ArrayType> {
    match &eqn.inputs[position] {
        crate::rules::Operand::Linear(ty) => ty.as_array(),
        crate::rules::Operand::Known(_) => None,
    }
}

/// Cotangents of all operands from a rule for each linear one; the implicit
/// broadcast of 0-d operands is undone.
pub fn each_linear(
    b: &mut Builder,
    eqn: &Transpose<'_>,
    mut rule: impl FnMut(&mut Builder, usize, Atom) -> Result<Atom>,
) -> Result<Cotangents> {
    let ct = cotangent(eqn)?;
    (0..eqn.inputs.len())
        .map(|position| {
            let Some(rank) = linear(eqn, position).map(ArrayType::rank) else { return Ok(None) };
            let result = rule(b, position, ct)?;
            b.unbroadcast(result, rank).map(Some)
        })
        .collect()
}
