//! Ops that put arrays together or count: concatenate, pad, rev, iota.

use smallvec::SmallVec;

use crate::convert::{Wide, store};
use crate::rules::{self, Batch, Batched, Extents, Follow, IndexMap, Jvp, Lowering, Row, Rules, Types};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Result, Scalar, Shape, ShowShape, Tensor, Type,
    internal_error, op_struct, type_error, value_error,
};

use super::Slice;
use super::common::{arrays, check_arity, one, same_dtype, shift_axes};
use super::index_space::*;

op_struct! {
    /// The operands one after the other along an axis.
    Concatenate "concatenate" { dimension: usize }
}
op_struct! {
    /// Pads (or for negative widths crops) with a value: low, high, interior for each axis.
    Pad "pad" { padding_config: Vec<(i64, i64, i64)> }
}
op_struct! {
    /// Reverses axes.
    Rev "rev" { dimensions: Axes }
}
op_struct! {
    /// Counts 0, 1, 2, … along an axis.
    Iota "iota" { dtype: DType, shape: Shape, dimension: usize }
}

fn shapes(arrays: &[&ArrayType]) -> String {
    arrays.iter().map(|ty| ShowShape(&ty.shape).to_string()).collect::<Vec<_>>().join(", ")
}

impl Row for Concatenate {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let all = arrays(Self::NAME, inputs)?;
        let Some((first, rest)) = all.split_first() else {
            return Err(type_error!("concatenate: there must be an operand, got none."));
        };
        if rest.iter().any(|ty| ty.rank() != first.rank()) {
            return Err(type_error!(
                "concatenate: the ranks of the operands differ, their shapes are {}.",
                shapes(&all)
            ));
        }
        if self.dimension >= first.rank() {
            return Err(type_error!(
                "concatenate: there is no axis {} in shapes {}.",
                self.dimension,
                shapes(&all)
            ));
        }
        let mut shape = first.shape.clone();
        for ty in rest {
            for (axis, size) in shape.iter_mut().enumerate() {
                if axis == self.dimension {
                    *size = size.add(&ty.shape[axis])?;
                } else if *size != ty.shape[axis] {
                    return Err(type_error!(
                        "concatenate along axis {}: all other axes must have equal sizes, got shapes {}.",
                        self.dimension,
                        shapes(&all)
                    ));
                }
            }
        }
        same_dtype(Self::NAME, &all)?;
        one(ArrayType::new(shape, first.dtype).with_weak(all.iter().all(|ty| ty.weak)))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (dtype, sizes) = output_sizes(Self::NAME, outputs)?;
        let strides = strides(&sizes);
        let mut output = Tensor::zeros(dtype, sizes)?;
        let target = output.bytes_mut()?;
        let mut before = 0;
        for operand in inputs {
            let mut position = 0;
            for_each_index(operand.sizes(), |index| {
                let to = offset(index, &strides) + before * strides[self.dimension];
                copy_element(operand.bytes(), position, target, to, dtype.size())?;
                position += 1;
                Ok(())
            })?;
            before += operand.sizes()[self.dimension];
        }
        Ok(vec![output])
    }
}

impl Rules for Concatenate {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        if eqn.tangents.iter().all(Option::is_none) {
            return no_tangent();
        }
        let mut tangents: SmallVec<[Atom; 4]> = SmallVec::new();
        for (&tangent, &operand) in eqn.tangents.iter().zip(eqn.inputs) {
            tangents.push(instantiate(b, tangent, operand)?);
        }
        Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &tangents)?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let shape = b.shape(cotangent);
        let mut start = Dim::Const(0);
        let mut cotangents = Cotangents::new();
        for position in 0..eqn.inputs.len() {
            let operand = operand_type(b, Self::NAME, eqn, position)?;
            let limit = start.add(&operand.shape[self.dimension])?;
            cotangents.push(if is_linear(eqn, position) {
                let mut slice = Slice {
                    start_indices: smallvec::smallvec![Dim::Const(0); shape.len()],
                    limit_indices: shape.clone(),
                    strides: None,
                };
                slice.start_indices[self.dimension] = start;
                slice.limit_indices[self.dimension] = limit.clone();
                Some(b.emit1(slice, &[cotangent])?)
            } else {
                None
            });
            start = limit;
        }
        Ok(cotangents)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let mut operands: SmallVec<[Atom; 4]> = SmallVec::new();
        for (&operand, &dim) in eqn.inputs.iter().zip(eqn.dims) {
            operands.push(batch_to_front(b, operand, dim, eqn.size)?);
        }
        one_batched(b.emit1(Concatenate { dimension: self.dimension + 1 }, &operands)?, 0)
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::Joined { axis: self.dimension }))
    }
}

/// The elements of an axis that padding keeps: `count` of the operand's from `from` on come to lie at
/// `to`, `to + step`, …; all are 0 where none is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    pub from: usize,
    pub count: usize,
    pub to: usize,
    pub step: usize,
}

impl Kept {
    /// For an axis that padding takes from `size` to `padded` elements. Every position that this
    /// speaks of lies inside, however large the widths are.
    pub fn new(size: usize, padded: usize, (low, _, interior): (i64, i64, i64)) -> Kept {
        let (low, step) = (i128::from(low), i128::from(interior) + 1);
        // Indices i of the operand with 0 <= low + i * step < padded.
        let first = if low >= 0 { 0 } else { (-low + step - 1) / step };
        let last = (size as i128).min((padded as i128 - low + step - 1).div_euclid(step));
        match usize::try_from(last - first) {
            Ok(count @ 1..) => Kept {
                from: first as usize,
                count,
                to: (low + first * step) as usize,
                step: if count == 1 { 1 } else { step as usize },
            },
            _ => Kept::default(),
        }
    }
}

impl Pad {
    fn out_of_range(&self) -> crate::Error {
        value_error!("the widths of padding_config {} exceed 64-bit integers", self.show())
    }

    fn show(&self) -> String {
        let parts: Vec<_> = self.padding_config.iter().map(|config| format!("{config:?}")).collect();
        tuple(&parts)
    }

    /// The size of an axis of size `size` after padding.
    fn padded(&self, size: &Dim, (low, high, interior): (i64, i64, i64)) -> Result<Dim> {
        if let &Dim::Const(size) = size {
            // Of three 64-bit numbers and a product of two: 128 bits hold it.
            let gaps = i128::from(interior) * (size as i128 - 1).max(0);
            let padded = size as i128 + gaps + i128::from(low) + i128::from(high);
            return i64::try_from(padded)
                .map_err(|_| self.out_of_range())
                .and_then(|n| Dim::Const(0).offset(n));
        }
        let width = low.checked_add(high).ok_or_else(|| self.out_of_range())?;
        let spread = usize::try_from(interior).ok().and_then(|interior| interior.checked_add(1));
        let spread = spread.ok_or_else(|| self.out_of_range())?;
        match size {
            size if spread == 1 => size.offset(width),
            size => size
                .mul(&Dim::Const(spread))?
                .offset(width.checked_sub(interior).ok_or_else(|| self.out_of_range())?),
        }
    }
}

impl Row for Pad {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand, value] = operands(Self::NAME, inputs)?;
        if operand.dtype != value.dtype {
            return Err(type_error!(
                "pad: operand and padding_value need one dtype, got {} and {}.",
                operand.dtype,
                value.dtype
            ));
        }
        if value.rank() != 0 {
            return Err(value_error!(
                "pad: padding_value is a scalar, got shape {}",
                ShowShape(&value.shape)
            ));
        }
        if self.padding_config.len() != operand.rank() {
            return Err(value_error!(
                "pad: each axis needs a triple in padding_config, got {} for an operand of shape {}",
                self.show(),
                ShowShape(&operand.shape)
            ));
        }
        if self.padding_config.iter().any(|&(_, _, interior)| interior < 0) {
            return Err(value_error!(
                "pad: what is put between elements (the third numbers) cannot be negative, got \
                 padding_config {}",
                self.show()
            ));
        }
        let sizes = operand.shape.iter().zip(&self.padding_config);
        let shape = sizes.map(|(size, &config)| self.padded(size, config)).collect::<Result<Shape>>();
        let shape = shape.map_err(|error| {
            value_error!(
                "pad: the result would have no valid shape ({error}): padding_config {} of an operand of \
                 shape {}",
                self.show(),
                ShowShape(&operand.shape)
            )
        })?;
        one(ArrayType::new(shape, operand.dtype).with_weak(operand.weak && value.weak))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand, value] = tensors(Self::NAME, inputs)?;
        let (dtype, sizes) = output_sizes(Self::NAME, outputs)?;
        let old = strides(operand.sizes());
        let mut output = Tensor::zeros(dtype, sizes.clone())?;
        let target = output.bytes_mut()?;
        let mut position = 0;
        for_each_index(&sizes, |index| {
            // The element of the operand that comes to lie here, if one does.
            let mut from = Some(0);
            for (axis, &(low, _, interior)) in self.padding_config.iter().enumerate() {
                let place = index[axis] as i128 - i128::from(low);
                let step = i128::from(interior) + 1;
                let taken = place >= 0 && place % step == 0 && place / step < operand.sizes()[axis] as i128;
                from = from.filter(|_| taken).map(|sum| sum + (place / step) as usize * old[axis]);
            }
            match from {
                Some(from) => copy_element(operand.bytes(), from, target, position, dtype.size())?,
                None => copy_element(value.bytes(), 0, target, position, dtype.size())?,
            }
            position += 1;
            Ok(())
        })?;
        Ok(vec![output])
    }
}

impl Rules for Pad {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let (&[operand, value], &[operand_tangent, value_tangent]) = (eqn.inputs, eqn.tangents) else {
            return Err(internal_error!("pad has two operands"));
        };
        if operand_tangent.is_none() && value_tangent.is_none() {
            return no_tangent();
        }
        let operand = instantiate(b, operand_tangent, operand)?;
        let value = instantiate(b, value_tangent, value)?;
        Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &[operand, value])?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let zero = b.scalar(b.dtype(cotangent), 0.0);
        let cropped = self.padding_config.iter().map(|&(low, high, _)| {
            Some((low.checked_neg()?, high.checked_neg()?, 0)) //
        });
        let padding_config = cropped.collect::<Option<Vec<_>>>().ok_or_else(|| self.out_of_range())?;
        let mut taken = cotangent;
        if padding_config.iter().any(|&config| config != (0, 0, 0)) {
            taken = b.emit1(Pad { padding_config }, &[cotangent, zero])?;
        }
        if self.padding_config.iter().any(|&(_, _, interior)| interior != 0) {
            let limit_indices = b.shape(taken);
            let stride = |&(_, _, interior): &(i64, i64, i64)| usize::try_from(interior).ok()?.checked_add(1);
            let strides = self.padding_config.iter().map(stride).collect::<Option<Axes>>();
            let strides = strides.ok_or_else(|| self.out_of_range())?;
            let start_indices = smallvec::smallvec![Dim::Const(0); limit_indices.len()];
            taken = b.emit1(Slice { start_indices, limit_indices, strides: Some(strides) }, &[taken])?;
        }
        let value = if is_linear(eqn, 1) {
            let total = b.unbroadcast(cotangent, 0)?;
            let inside = b.unbroadcast(taken, 0)?;
            Some(b.sub(total, inside)?)
        } else {
            None
        };
        Ok(SmallVec::from_iter([is_linear(eqn, 0).then_some(taken), value]))
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (&[operand, value], &[operand_dim, value_dim]) = (eqn.inputs, eqn.dims) else {
            return Err(internal_error!("pad has two operands"));
        };
        let (operand, dim) = match operand_dim {
            Some(dim) => (operand, dim),
            None => (b.broadcast_batch(operand, eqn.size, 0)?, 0),
        };
        let mut op = self.clone();
        op.padding_config.insert(dim, (0, 0, 0));
        if value_dim.is_none() {
            return one_batched(b.emit1(op, &[operand, value])?, dim);
        }
        // A different value for each lane: pad with any, then choose.
        let ty = b.array_type(operand)?;
        let zero = b.zeros(&ArrayType::scalar(ty.dtype))?;
        let padded = b.emit1(op.clone(), &[operand, zero])?;
        let inside = b.full(&ArrayType::new(ty.shape, DType::Bool), Scalar::bool(true))?;
        let outside = b.zeros(&ArrayType::scalar(DType::Bool))?;
        let inside = b.emit1(op, &[inside, outside])?;
        let shape = b.shape(padded);
        let values = b.broadcast_in_dim(value, &shape, &[dim])?;
        one_batched(b.select(inside, padded, values)?, dim)
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn cost(&self, _: DType) -> u32 {
        1
    }

    fn index_map(&self, inputs: &[Extents<'_>], output: Extents<'_>) -> Result<Option<IndexMap>> {
        let sizes = inputs[0].sizes.iter().zip(output.sizes).zip(&self.padding_config);
        let kept = sizes.map(|((&size, &padded), &config)| Kept::new(size, padded, config));
        Ok(Some(IndexMap::Padded(kept.collect())))
    }
}

impl Row for Rev {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        if has_duplicates(&self.dimensions) {
            return Err(type_error!("rev: dimensions {} has an axis twice.", tuple(&self.dimensions)));
        }
        if self.dimensions.iter().any(|&dim| dim >= operand.rank()) {
            return Err(type_error!(
                "rev: dimensions {} are not all axes of an operand of rank {}.",
                tuple(&self.dimensions),
                operand.rank()
            ));
        }
        one(operand.clone())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let sizes = operand.sizes();
        let strides = strides(sizes);
        let source = |axis: usize, place: usize| {
            if self.dimensions.contains(&axis) { sizes[axis] - 1 - place } else { place }
        };
        Ok(vec![remap(operand, sizes, |index| {
            (0..sizes.len()).map(|axis| source(axis, index[axis]) * strides[axis]).sum()
        })?])
    }
}

impl Rules for Rev {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        one_cotangent(b.emit1(self.clone(), &[cotangent])?)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        one_batched(b.emit1(Rev { dimensions: shift_axes(&self.dimensions, dim) }, &[operand])?, dim)
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn index_map(&self, _inputs: &[Extents<'_>], output: Extents<'_>) -> Result<Option<IndexMap>> {
        let follow = |(axis, &size): (usize, &usize)| match self.dimensions.contains(&axis) {
            true => Follow { axis: Some(axis), start: size as i64 - 1, step: -1 },
            false => Follow::axis(axis),
        };
        Ok(Some(IndexMap::Along(output.sizes.iter().enumerate().map(follow).collect())))
    }
}

impl Row for Iota {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(Self::NAME, inputs, 0)?;
        if !(self.dtype.is_integer() || self.dtype.is_inexact()) {
            return Err(type_error!(
                "iota: numbers of dtype {} cannot be counted; take integers, floats or complex numbers.",
                self.dtype
            ));
        }
        if self.dimension >= self.shape.len() {
            return Err(value_error!(
                "iota: dimension={} is no axis of shape={}",
                self.dimension,
                ShowShape(&self.shape)
            ));
        }
        one(ArrayType::new(self.shape.clone(), self.dtype))
    }

    fn eval(&self, _inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (dtype, sizes) = output_sizes(Self::NAME, outputs)?;
        let mut output = Tensor::zeros(dtype, sizes.clone())?;
        let target = output.bytes_mut()?;
        let mut position = 0;
        for_each_index(&sizes, |index| {
            let count = store(dtype, Wide::Int(index[self.dimension] as i128))
                .ok_or_else(|| internal_error!("iota of {dtype}"))?;
            copy_element(&count.bytes(), 0, target, position, dtype.size())?;
            position += 1;
            Ok(())
        })?;
        Ok(vec![output])
    }
}

impl Rules for Iota {
    fn jvp(&self, _b: &mut Builder, _eqn: &Jvp<'_>) -> Result<Tangents> {
        no_tangent()
    }

    fn transpose(&self, _b: &mut Builder, _eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        Ok(Cotangents::new())
    }

    fn batch(&self, b: &mut Builder, _eqn: &Batch<'_>) -> Result<Batched> {
        Ok(SmallVec::from_iter([(b.emit1(self.clone(), &[])?, None)]))
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(Some(IndexMap::Counted { axis: self.dimension }))
    }

    fn cost(&self, _: DType) -> u32 {
        2
    }
}
