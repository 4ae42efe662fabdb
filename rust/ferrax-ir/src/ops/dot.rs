//! `dot_general`: products over contracted axes.

use smallvec::{SmallVec, smallvec};

use super::common::{arrays, check_arity, one};
use super::derive::{Cotangents, Tangents, cotangent, linear, zero};
use super::evaluate;
use super::index_space::strides;
use crate::convert::{Wide, load, store};
use crate::rules::{
    Batch, Batched, ByRows, Extents, FromParams, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear,
};
use crate::shard_rule::{Cut, ShardRule};
use crate::tensor::element_count;
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Kind, Param, Params, Result, Shape, ShowShape, Tensor, ToParam,
    Type, internal_error, string_enum, type_error,
};

string_enum! {
    /// How exactly a product is computed. Every backend here computes floats at
    /// their own precision at least, so all three agree.
    Precision { Default = "default", High = "high", Highest = "highest" }
}

/// Sums products over pairs of contracted axes, elementwise over pairs of batch
/// axes. Result axes: batch, then left free, then right free.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DotGeneral {
    pub lhs_contracting: Axes,
    pub rhs_contracting: Axes,
    pub lhs_batch: Axes,
    pub rhs_batch: Axes,
    pub precision: Option<Precision>,
    pub preferred_element_type: Option<DType>,
}

impl DotGeneral {
    /// The axis of each operand, of these ranks, that an axis of the result is.
    pub fn origin(&self, axis: usize, ranks: [usize; 2]) -> [Option<usize>; 2] {
        let Some(free) = axis.checked_sub(self.lhs_batch.len()) else {
            return [Some(self.lhs_batch[axis]), Some(self.rhs_batch[axis])];
        };
        let left = free_axes(ranks[0], &self.lhs_contracting, &self.lhs_batch);
        match left.get(free) {
            Some(&axis) => [Some(axis), None],
            None => {
                let right = free_axes(ranks[1], &self.rhs_contracting, &self.rhs_batch);
                [None, right.get(free - left.len()).copied()]
            }
        }
    }

    fn op_name(&self) -> &'static str {
        "dot_general"
    }

    fn param_list(&self) -> Vec<(&'static str, Param)> {
        let pair = |a: &Axes, b: &Axes| Param::List(vec![a.to_param(), b.to_param()]);
        vec![
            (
                "dimension_numbers",
                Param::List(vec![
                    pair(&self.lhs_contracting, &self.rhs_contracting),
                    pair(&self.lhs_batch, &self.rhs_batch),
                ]),
            ),
            ("precision", self.precision.to_param()),
            ("preferred_element_type", self.preferred_element_type.to_param()),
        ]
    }
}

impl FromParams for DotGeneral {
    const NAMES: &'static [(&'static str, &'static str)] =
        &[("dot_general", "Products summed over contracted axes, elementwise over batch axes.")];

    fn from_params(_name: &str, params: &mut Params) -> Result<Self> {
        let numbers: Vec<Vec<Axes>> = params.take("dimension_numbers")?;
        let [contracting, batch] = numbers.as_slice() else {
            return Err(type_error!("dimension_numbers are ((lhs, rhs) contracting, (lhs, rhs) batch)"));
        };
        let ([lhs_contracting, rhs_contracting], [lhs_batch, rhs_batch]) =
            (contracting.as_slice(), batch.as_slice())
        else {
            return Err(type_error!("dimension_numbers are ((lhs, rhs) contracting, (lhs, rhs) batch)"));
        };
        Ok(DotGeneral {
            lhs_contracting: lhs_contracting.clone(),
            rhs_contracting: rhs_contracting.clone(),
            lhs_batch: lhs_batch.clone(),
            rhs_batch: rhs_batch.clone(),
            precision: params.take("precision")?,
            preferred_element_type: params.take("preferred_element_type")?,
        })
    }
}

/// Axes of an operand of this rank that are in neither list, in order.
fn free_axes(rank: usize, contracting: &[usize], batch: &[usize]) -> Axes {
    (0..rank).filter(|axis| !contracting.contains(axis) && !batch.contains(axis)).collect()
}

/// Prints axes as a tuple.
fn show(axes: &[usize]) -> String {
    let dims: Shape = axes.iter().map(|&axis| axis.into()).collect();
    ShowShape(&dims).to_string()
}

/// The dtype of a product of two dtypes: the higher kind, then the wider.
/// (Complex products with f64 stay complex64, as in JAX.)
fn product_dtype(lhs: DType, rhs: DType) -> DType {
    let order = |dtype: DType| {
        let kind = match dtype.kind() {
            Kind::Bool => 0,
            Kind::Signed | Kind::Unsigned => 1,
            Kind::Float => 2,
            _ => 3,
        };
        (kind, dtype.bits(), dtype.is_signed() || dtype == DType::BF16)
    };
    if order(rhs) > order(lhs) { rhs } else { lhs }
}

impl DotGeneral {
    fn check_side(side: &str, rank: usize, contracting: &[usize], batch: &[usize]) -> Result<()> {
        let repeated = |axes: &[usize]| axes.iter().enumerate().any(|(i, axis)| axes[..i].contains(axis));
        if batch.iter().chain(contracting).any(|&axis| axis >= rank) {
            return Err(type_error!(
                "dot_general: the {side} axes are out of range: {side}_batch {} and {side}_contracting \
                 {} for a {side} of rank {rank}",
                show(batch),
                show(contracting)
            ));
        }
        for (what, axes) in [("batch", batch), ("contracting", contracting)] {
            if repeated(axes) {
                return Err(type_error!("dot_general: {side}_{what} {} has an axis twice.", show(axes)));
            }
        }
        if batch.iter().any(|axis| contracting.contains(axis)) {
            return Err(type_error!(
                "dot_general: an axis of the {side} is both in {side}_batch {} and in {side}_contracting \
                 {}.",
                show(batch),
                show(contracting)
            ));
        }
        Ok(())
    }

    fn check_pairs(&self, lhs: &ArrayType, rhs: &ArrayType) -> Result<()> {
        let pairs = [
            ("batch", &self.lhs_batch, &self.rhs_batch),
            ("contracting", &self.lhs_contracting, &self.rhs_contracting),
        ];
        for (what, left, right) in pairs {
            if left.len() != right.len() {
                return Err(type_error!(
                    "dot_general: each axis in lhs_{what} needs one in rhs_{what}, got {} and {}.",
                    show(left),
                    show(right)
                ));
            }
        }
        Self::check_side("lhs", lhs.rank(), &self.lhs_contracting, &self.lhs_batch)?;
        Self::check_side("rhs", rhs.rank(), &self.rhs_contracting, &self.rhs_batch)?;
        let sizes =
            |ty: &ArrayType, axes: &[usize]| axes.iter().map(|&axis| ty.shape[axis].clone()).collect();
        for (text, left, right) in [
            ("batch", &self.lhs_batch, &self.rhs_batch),
            ("contracted", &self.lhs_contracting, &self.rhs_contracting),
        ] {
            let (left, right): (Shape, Shape) = (sizes(lhs, left), sizes(rhs, right));
            if left != right {
                return Err(type_error!(
                    "dot_general: the {text} axes differ in size: {} and {} (of the operands {lhs} and {rhs}).",
                    ShowShape(&left),
                    ShowShape(&right)
                ));
            }
        }
        Ok(())
    }
}

impl Row for DotGeneral {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(self.op_name(), inputs, 2)?;
        let operands = arrays(self.op_name(), inputs)?;
        let (lhs, rhs) = (operands[0], operands[1]);
        for operand in [lhs, rhs] {
            if matches!(operand.dtype.kind(), Kind::Key | Kind::Float0) {
                return Err(type_error!("dot_general does not accept dtype {}.", operand.dtype));
            }
        }
        self.check_pairs(lhs, rhs)?;
        let batch = self.lhs_batch.iter().map(|&axis| lhs.shape[axis].clone());
        let left = free_axes(lhs.rank(), &self.lhs_contracting, &self.lhs_batch);
        let right = free_axes(rhs.rank(), &self.rhs_contracting, &self.rhs_batch);
        let shape: Shape = batch
            .chain(left.iter().map(|&axis| lhs.shape[axis].clone()))
            .chain(right.iter().map(|&axis| rhs.shape[axis].clone()))
            .collect();
        let dtype = match self.preferred_element_type {
            Some(dtype) if matches!(dtype.kind(), Kind::Key | Kind::Float0) => {
                return Err(type_error!("dot_general cannot have the preferred_element_type {dtype}."));
            }
            Some(dtype) => {
                let original = product_dtype(lhs.dtype, rhs.dtype);
                // Of complex numbers the parts count.
                let width = |dtype: DType| if dtype.is_bool() { 1 } else { dtype.real().bits() };
                if !original.is_float() && width(dtype) < width(original) {
                    return Err(type_error!(
                        "dot_general: preferred_element_type {dtype} is narrower than the operands' \
                         {original}."
                    ));
                }
                dtype
            }
            None => product_dtype(lhs.dtype, rhs.dtype),
        };
        let weak = lhs.weak && rhs.weak && self.preferred_element_type.is_none();
        one(ArrayType::new(shape, dtype).with_weak(weak))
    }

    /// Integers are summed exactly and wrap at the end, floats in `f64`.
    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (ty, sizes) = evaluate::output(outputs)?;
        let (lhs, rhs) = (&inputs[0], &inputs[1]);
        let dtype = ty.dtype;
        let mut result = Tensor::zeros(dtype, sizes.clone())?;
        let left_strides = strides(lhs.sizes());
        let right_strides = strides(rhs.sizes());
        let left_free = free_axes(lhs.rank(), &self.lhs_contracting, &self.lhs_batch);
        let right_free = free_axes(rhs.rank(), &self.rhs_contracting, &self.rhs_batch);
        // Strides of both operands along each axis of the result.
        let mut outer: Vec<(usize, usize)> = Vec::new();
        outer.extend(
            self.lhs_batch.iter().zip(&self.rhs_batch).map(|(&l, &r)| (left_strides[l], right_strides[r])),
        );
        outer.extend(left_free.iter().map(|&l| (left_strides[l], 0)));
        outer.extend(right_free.iter().map(|&r| (0, right_strides[r])));
        let inner: Vec<(usize, usize)> = self
            .lhs_contracting
            .iter()
            .zip(&self.rhs_contracting)
            .map(|(&l, &r)| (left_strides[l], right_strides[r]))
            .collect();
        let contracted: Vec<usize> = self.lhs_contracting.iter().map(|&axis| lhs.sizes()[axis]).collect();
        let steps = element_count(&contracted);
        for (index, target) in result.bytes_mut()?.chunks_exact_mut(dtype.size()).enumerate() {
            let (left, right) = offsets(index, &sizes, &outer);
            let mut total: Option<Wide> = None;
            for step in 0..steps {
                let (l, r) = offsets(step, &contracted, &inner);
                let product = product(value(lhs, left + l)?, value(rhs, right + r)?);
                total = Some(match total {
                    None => product,
                    Some(sum) => add(sum, product),
                });
            }
            let total = total.unwrap_or(Wide::Int(0));
            let scalar = store(dtype, total).ok_or_else(|| internal_error!("a product of {dtype}"))?;
            target.copy_from_slice(&scalar.bytes());
        }
        Ok(vec![result])
    }
}

/// Where the element at a flat index of an array of `sizes` is in both operands.
fn offsets(mut index: usize, sizes: &[usize], strides: &[(usize, usize)]) -> (usize, usize) {
    let (mut left, mut right) = (0, 0);
    for (&size, &(l, r)) in sizes.iter().zip(strides).rev() {
        left += index % size * l;
        right += index % size * r;
        index /= size;
    }
    (left, right)
}

pub(super) fn value(tensor: &Tensor, index: usize) -> Result<Wide> {
    let size = tensor.dtype().size();
    load(tensor.dtype(), &tensor.bytes()[index * size..])
        .ok_or_else(|| internal_error!("elements of {} have no value", tensor.dtype()))
}

fn complex(value: Wide) -> (f64, f64) {
    match value {
        Wide::Int(value) => (value as f64, 0.0),
        Wide::Float(value) => (value, 0.0),
        Wide::Complex(re, im) => (re, im),
    }
}

pub(super) fn product(x: Wide, y: Wide) -> Wide {
    match (x, y) {
        (Wide::Int(x), Wide::Int(y)) => Wide::Int(x.wrapping_mul(y)),
        (Wide::Complex(..), _) | (_, Wide::Complex(..)) => {
            let ((a, b), (c, d)) = (complex(x), complex(y));
            Wide::Complex(a * c - b * d, a * d + b * c)
        }
        _ => Wide::Float(complex(x).0 * complex(y).0),
    }
}

pub(super) fn add(x: Wide, y: Wide) -> Wide {
    match (x, y) {
        (Wide::Int(x), Wide::Int(y)) => Wide::Int(x.wrapping_add(y)),
        (Wide::Float(x), Wide::Float(y)) => Wide::Float(x + y),
        _ => {
            let ((a, b), (c, d)) = (complex(x), complex(y));
            Wide::Complex(a + c, b + d)
        }
    }
}

impl DotGeneral {
    /// The cotangent of one operand: the product of the result's cotangent and
    /// the other operand, contracted over that one's free axes, with axes put
    /// back in the operand's order.
    fn cotangent_of(
        &self,
        b: &mut Builder,
        ct: Atom,
        other: Atom,
        operand: &ArrayType,
        is_left: bool,
    ) -> Result<Atom> {
        let (contracting, batch, other_contracting, other_batch) = if is_left {
            (&self.lhs_contracting, &self.lhs_batch, &self.rhs_contracting, &self.rhs_batch)
        } else {
            (&self.rhs_contracting, &self.rhs_batch, &self.lhs_contracting, &self.lhs_batch)
        };
        let free = free_axes(operand.rank(), contracting, batch);
        let other_free = free_axes(b.rank(other), other_contracting, other_batch);
        // Axes of the result: batch, left free, right free.
        let first = batch.len() + if is_left { free.len() } else { 0 };
        let product = DotGeneral {
            lhs_contracting: (first..first + other_free.len()).collect(),
            rhs_contracting: other_free,
            lhs_batch: (0..batch.len()).collect(),
            rhs_batch: other_batch.clone(),
            precision: self.precision,
            preferred_element_type: self.preferred_element_type.filter(|dtype| {
                let is_complex = b.dtype(ct).is_complex() || b.dtype(other).is_complex();
                dtype.is_complex() || (dtype.is_float() && !is_complex)
            }),
        };
        let product = b.emit1(product, &[ct, other])?;
        // Its axes: batch, the operand's free ones, then its contracted ones in
        // the order of the other operand's axes.
        let mut order: Vec<usize> = (0..contracting.len()).collect();
        order.sort_by_key(|&pair| other_contracting[pair]);
        let axes: Axes = batch
            .iter()
            .copied()
            .chain(free.iter().copied())
            .chain(order.iter().map(|&pair| contracting[pair]))
            .collect();
        let mut permutation: Axes = smallvec![0; axes.len()];
        for (from, &axis) in axes.iter().enumerate() {
            permutation[axis] = from;
        }
        let arranged = b.transpose(product, &permutation)?;
        b.convert(arranged, operand.dtype)
    }
}

impl Rules for DotGeneral {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        if !b.dtype(eqn.outputs[0]).is_inexact() {
            return Ok(zero());
        }
        let dtype = b.dtype(eqn.outputs[0]);
        let mut total: Option<Atom> = None;
        for (position, tangent) in eqn.tangents.iter().enumerate() {
            let &Some(g) = tangent else { continue };
            let operands = if position == 0 { [g, eqn.inputs[1]] } else { [eqn.inputs[0], g] };
            let term = b.emit1(self.clone(), &operands)?;
            let term = b.convert(term, dtype)?;
            total = Some(match total {
                Some(sum) => b.add(sum, term)?,
                None => term,
            });
        }
        Ok(smallvec![total])
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let ct = cotangent(eqn)?;
        match (linear(eqn, 0), linear(eqn, 1), eqn.inputs[0].known(), eqn.inputs[1].known()) {
            (Some(lhs), None, _, Some(rhs)) => {
                Ok(smallvec![Some(self.cotangent_of(b, ct, rhs, lhs, true)?), None])
            }
            (None, Some(rhs), Some(lhs), _) => {
                Ok(smallvec![None, Some(self.cotangent_of(b, ct, lhs, rhs, false)?)])
            }
            _ => not_linear(self),
        }
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let mut op = self.clone();
        let shift = |axes: &mut Axes, dim: usize| {
            for axis in axes.iter_mut().filter(|axis| **axis >= dim) {
                *axis += 1;
            }
        };
        // The free axes of an operand in the batched op, and where the batch is among them.
        let place = |b: &Builder, atom: Atom, contracting: &[usize], batch: &[usize], dim: usize| {
            free_axes(b.rank(atom), contracting, batch).iter().position(|&axis| axis == dim)
        };
        let (lhs, rhs) = (eqn.inputs[0], eqn.inputs[1]);
        if let Some(dim) = eqn.dims[0] {
            shift(&mut op.lhs_contracting, dim);
            shift(&mut op.lhs_batch, dim);
        }
        if let Some(dim) = eqn.dims[1] {
            shift(&mut op.rhs_contracting, dim);
            shift(&mut op.rhs_batch, dim);
        }
        let output_dim = match (eqn.dims[0], eqn.dims[1]) {
            (Some(left), Some(right)) => {
                op.lhs_batch.insert(0, left);
                op.rhs_batch.insert(0, right);
                Some(0)
            }
            (Some(left), None) => {
                place(b, lhs, &op.lhs_contracting, &op.lhs_batch, left).map(|at| op.lhs_batch.len() + at)
            }
            (None, Some(right)) => {
                let free = free_axes(b.rank(lhs), &op.lhs_contracting, &op.lhs_batch).len();
                place(b, rhs, &op.rhs_contracting, &op.rhs_batch, right)
                    .map(|at| op.rhs_batch.len() + free + at)
            }
            (None, None) => return Err(internal_error!("nothing is batched")),
        };
        let output = b.emit1(op, &[lhs, rhs])?;
        Ok(SmallVec::from_iter([(output, output_dim)]))
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn shard(&self, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> Result<ShardRule> {
        let mut rule = ShardRule::apart(inputs, outputs);
        let ranks = [inputs[0].sizes.len(), inputs[1].sizes.len()];
        for axis in 0..outputs[0].sizes.len() {
            for (operand, from) in self.origin(axis, ranks).into_iter().enumerate() {
                if let Some(from) = from {
                    rule.share(operand, from, 0, axis, Cut::Pass);
                }
            }
        }
        for (&left, &right) in self.lhs_contracting.iter().zip(&self.rhs_contracting) {
            rule.fold((0, left), (1, right));
        }
        Ok(rule)
    }

    /// Where free and contracted axes of both operands are walked with one step: nothing has to be brought into
    /// order first.
    fn by_rows(&self, inputs: &[Extents<'_>], output: Extents<'_>) -> Option<ByRows> {
        let (left, right) = (inputs[0].sizes, inputs[1].sizes);
        let mut pairs: Vec<(usize, usize)> =
            self.lhs_contracting.iter().copied().zip(self.rhs_contracting.iter().copied()).collect();
        pairs.sort_unstable();
        let (lhs, rhs): (Axes, Axes) = pairs.into_iter().unzip();
        let of_left = free_axes(left.len(), &self.lhs_contracting, &self.lhs_batch);
        let of_right = free_axes(right.len(), &self.rhs_contracting, &self.rhs_batch);
        let groups = [(left, &of_left), (left, &lhs), (right, &of_right), (right, &rhs)];
        if !groups.into_iter().all(|(sizes, axes)| has_one_step(sizes, axes)) {
            return None;
        }
        let order = self.lhs_batch.iter().chain(&of_left).chain(&lhs);
        let product =
            |sizes: &[usize], axes: &[usize]| axes.iter().map(|&axis| sizes[axis]).product::<usize>();
        Some(ByRows {
            loops: output.sizes[..self.lhs_batch.len() + of_left.len()].iter().copied().collect(),
            first: order.copied().eq(0..left.len()),
            shared: product(right, &of_right) * product(right, &rhs),
        })
    }
}

/// Whether axes of an array of these sizes are walked as one.
fn has_one_step(sizes: &[usize], axes: &[usize]) -> bool {
    let strides = crate::tensor::row_major(sizes, 1);
    let long: Axes = axes.iter().copied().filter(|&axis| sizes[axis] != 1).collect();
    long.windows(2).all(|pair| strides[pair[0]] == strides[pair[1]] * sizes[pair[1]])
}
