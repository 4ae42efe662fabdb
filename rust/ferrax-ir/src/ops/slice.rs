//! Windows at one position: slice, dynamic_slice, dynamic_update_slice.
//!
//! Positions of the dynamic ones are 0-d integer operands, one for each axis,
//! all of one dtype. They are clamped so that the window fits.

use smallvec::SmallVec;

use crate::rules::{
    self, Batch, Batched, Extents, Follow, IndexMap, Jvp, Lowering, Picked, Row, Rules, Start, Types,
};
use crate::tensor::element_count;
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Result, Shape, ShowShape, Sizes, Tensor, Type,
    internal_error, op_struct, type_error, value_error,
};

use super::common::{arrays, one, same_dtype};
use super::index_space::*;
use super::{Concatenate, Gather, GatherMode, Pad, Scatter, ScatterKind};

op_struct! {
    /// A window with fixed bounds and steps.
    Slice "slice" { start_indices: Shape, limit_indices: Shape, strides: Option<Axes> }
}
op_struct! {
    /// A window of fixed size at a position given by operands, clamped to fit.
    DynamicSlice "dynamic_slice" { slice_sizes: Shape }
}
op_struct! {
    /// The operand with a window overwritten, clamped to fit.
    DynamicUpdateSlice "dynamic_update_slice" {}
}

impl Slice {
    fn stride(&self, axis: usize) -> usize {
        self.strides.as_ref().map_or(1, |strides| strides[axis])
    }
}

impl Row for Slice {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let (starts, limits) = (&self.start_indices, &self.limit_indices);
        let strides = self.strides.as_ref().map_or(operand.rank(), |strides| strides.len());
        if [starts.len(), limits.len(), strides].iter().any(|&len| len != operand.rank()) {
            return Err(type_error!(
                "slice: each axis needs a start, a limit and a stride, got {} starts and {} limits \
                 ({strides} strides) for an operand of shape {}.",
                ShowShape(starts),
                ShowShape(limits),
                ShowShape(&operand.shape)
            ));
        }
        let mut shape = Shape::new();
        for axis in 0..operand.rank() {
            let (start, limit) = (&starts[axis], &limits[axis]);
            if !may_be_at_most(limit, &operand.shape[axis]) {
                return Err(type_error!(
                    "slice: limit_indices {} are beyond the operand, whose shape is {}.",
                    ShowShape(limits),
                    ShowShape(&operand.shape)
                ));
            }
            if !may_be_at_most(start, limit) {
                return Err(type_error!(
                    "slice: start_indices {} are beyond limit_indices {}.",
                    ShowShape(starts),
                    ShowShape(limits)
                ));
            }
            let span = limit.sub(start)?;
            shape.push(match self.stride(axis) {
                0 => {
                    let strides: &[usize] = self.strides.as_deref().unwrap_or_default();
                    return Err(type_error!("slice: a stride is 1 or more, got {}", tuple(strides)));
                }
                1 => span,
                stride => span.add(&Dim::Const(stride - 1))?.floor_div(&Dim::Const(stride))?,
            });
        }
        one(operand.with_shape(shape))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand] = tensors(Self::NAME, inputs)?;
        let (_, sizes) = output_sizes(Self::NAME, outputs)?;
        let starts = constants(&self.start_indices, "slice start_indices")?;
        let old = strides(operand.sizes());
        Ok(vec![remap(operand, &sizes, |index| {
            (0..index.len()).map(|axis| (starts[axis] + index[axis] * self.stride(axis)) * old[axis]).sum()
        })?])
    }
}

fn constants(dims: &[Dim], what: &str) -> Result<Sizes> {
    dims.iter().map(|dim| dim.require(what)).collect()
}

impl Rules for Slice {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let operand = linear_type(Self::NAME, eqn, 0)?;
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let sizes = b.shape(cotangent);
        let mut padding_config = Vec::with_capacity(operand.rank());
        // Of symbolic widths: how many zeros come before and after along an axis.
        let mut symbolic = Vec::new();
        for axis in 0..operand.rank() {
            let (start, stride) = (&self.start_indices[axis], self.stride(axis));
            // One past the last element that was taken.
            let end = match (&sizes[axis], stride) {
                (_, 1) => self.limit_indices[axis].clone(),
                (Dim::Const(0), _) => start.clone(),
                (size, _) => size.sub(&Dim::Const(1))?.mul(&Dim::Const(stride))?.add(start)?.offset(1)?,
            };
            let what = "the gradient of slice";
            let width = |size: usize| {
                i64::try_from(size)
                    .map_err(|_| value_error!("{what}: a width of {size} exceeds 64-bit integers"))
            };
            let mut known = |dim: &Dim, before: bool| {
                dim.as_const().unwrap_or_else(|| {
                    symbolic.push((axis, before, dim.clone()));
                    0
                })
            };
            let low = known(start, true);
            let high = known(&operand.shape[axis].sub(&end)?, false);
            // Between elements; of one there is no interior.
            let interior = if sizes[axis] == 1 { 0 } else { width(stride)? - 1 };
            padding_config.push((width(low)?, width(high)?, interior));
        }
        let zero = b.scalar(b.dtype(cotangent), 0.0);
        let mut padded = b.emit1(Pad { padding_config }, &[cotangent, zero])?;
        for (axis, before, width) in symbolic {
            let mut shape = b.shape(padded);
            shape[axis] = width;
            let zeros = b.broadcast_in_dim(zero, &shape, &[])?;
            let parts = if before { [zeros, padded] } else { [padded, zeros] };
            padded = b.emit1(Concatenate { dimension: axis }, &parts)?;
        }
        one_cotangent(padded)
    }

    // Of larger parts the dense cotangent is one pass with what is added to it.
    fn reads_part(&self, inputs: &[ArrayType]) -> bool {
        const SMALL: usize = 8;
        let [operand] = inputs else { return false };
        let size = |(from, to): (&Dim, &Dim)| Some(to.as_const()?.saturating_sub(from.as_const()?));
        let sizes: Option<Vec<usize>> =
            self.start_indices.iter().zip(&self.limit_indices).map(size).collect();
        let neighbours = (0..operand.rank()).all(|axis| self.stride(axis) == 1);
        sizes.zip(operand.sizes()).is_some_and(|(part, whole)| {
            let counted = whole.iter().all(|&size| i32::try_from(size).is_ok());
            neighbours && counted && element_count(&part).saturating_mul(SMALL) <= element_count(&whole)
        })
    }

    fn transpose_onto(&self, b: &mut Builder, eqn: &rules::Transpose<'_>, before: Atom) -> Result<Atom> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let mut starts: SmallVec<[Atom; 4]> = SmallVec::new();
        for start in &self.start_indices {
            starts.push(b.int_scalar(DType::I32, start.require("the gradient of slice")? as i64));
        }
        let part = b.emit1(self.clone(), &[before])?;
        put_sum(b, before, part, cotangent, &starts)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (operand, dim) = only_batched(Self::NAME, eqn)?;
        let mut op = self.clone();
        op.start_indices.insert(dim, Dim::Const(0));
        op.limit_indices.insert(dim, eqn.size.clone());
        if let Some(strides) = &mut op.strides {
            strides.insert(dim, 1);
        }
        one_batched(b.emit1(op, &[operand])?, dim)
    }

    fn lower(&self) -> Lowering {
        Lowering::Movement
    }

    fn index_map(&self, _inputs: &[Extents<'_>], output: Extents<'_>) -> Result<Option<IndexMap>> {
        let starts = constants(&self.start_indices, "slice start_indices")?;
        let follow = |(axis, &start): (usize, &usize)| {
            // Of a single element the step says nothing, and may be anything.
            let step = if output.sizes[axis] > 1 { self.stride(axis) as i64 } else { 1 };
            Follow { axis: Some(axis), start: start as i64, step }
        };
        Ok(Some(IndexMap::Along(starts.iter().enumerate().map(follow).collect())))
    }
}

/// Checks the position operands of a dynamic window into `operand`.
fn check_starts(name: &str, operand: &ArrayType, starts: &[&ArrayType]) -> Result<()> {
    if starts.len() != operand.rank() {
        return Err(type_error!(
            "{name}: each axis needs a start index, got {} for an operand of shape {}.",
            starts.len(),
            ShowShape(&operand.shape)
        ));
    }
    if let Some(bad) = starts.iter().find(|start| start.rank() != 0) {
        return Err(type_error!(
            "start_indices arguments to {name} must be scalars, got an index of type {bad}"
        ));
    }
    if starts.iter().any(|start| !start.dtype.is_integer() || start.dtype != starts[0].dtype) {
        let dtypes: Vec<_> = starts.iter().map(|start| start.dtype).collect();
        return Err(type_error!("{name}: all indices are integers of one dtype, got {}", tuple(&dtypes)));
    }
    Ok(())
}

/// The positions, clamped so that a window of `window` fits into `sizes`.
fn clamped_starts(starts: &[Tensor], sizes: &[usize], window: &[usize]) -> Result<Sizes> {
    let fits = |((start, &size), &window): ((&Tensor, &usize), &usize)| {
        let start = integers(start)?.first().copied().unwrap_or(0);
        let last = size.checked_sub(window).ok_or_else(|| internal_error!("a window exceeds its array"))?;
        usize::try_from(start.clamp(0, last as i128)).map_err(|_| internal_error!("a start is out of range"))
    };
    starts.iter().zip(sizes).zip(window).map(fits).collect()
}

impl Row for DynamicSlice {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let all = arrays(Self::NAME, inputs)?;
        let Some((operand, starts)) = all.split_first() else {
            return Err(type_error!("dynamic_slice takes an operand and start indices, got nothing"));
        };
        if self.slice_sizes.len() != operand.rank()
            || self.slice_sizes.iter().zip(&operand.shape).any(|(window, size)| !may_be_at_most(window, size))
        {
            return Err(type_error!(
                "dynamic_slice: slice_sizes {} are more than the operand has, whose shape is {}.",
                ShowShape(&self.slice_sizes),
                ShowShape(&operand.shape)
            ));
        }
        check_starts(Self::NAME, operand, starts)?;
        one(operand.with_shape(self.slice_sizes.clone()))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (_, sizes) = output_sizes(Self::NAME, outputs)?;
        let Some((operand, starts)) = inputs.split_first() else {
            return Err(internal_error!("dynamic_slice was evaluated on nothing"));
        };
        let starts = clamped_starts(starts, operand.sizes(), &sizes)?;
        let old = strides(operand.sizes());
        let base = offset(&starts, &old);
        Ok(vec![remap(operand, &sizes, |index| base + offset(index, &old))?])
    }
}

impl Rules for DynamicSlice {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        linear_jvp(self.clone(), b, eqn)
    }

    fn reads_part(&self, _inputs: &[ArrayType]) -> bool {
        true
    }

    fn transpose_onto(&self, b: &mut Builder, eqn: &rules::Transpose<'_>, before: Atom) -> Result<Atom> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let starts = known_from(Self::NAME, eqn, 1)?;
        let mut inputs: SmallVec<[Atom; 4]> = SmallVec::from_slice(&[before]);
        inputs.extend_from_slice(&starts);
        let part = b.emit1(self.clone(), &inputs)?;
        put_sum(b, before, part, cotangent, &starts)
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let operand = linear_type(Self::NAME, eqn, 0)?;
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let starts = known_from(Self::NAME, eqn, 1)?;
        let mut cotangents: Cotangents = smallvec::smallvec![None; eqn.inputs.len()];
        let zeros = b.zeros(&operand.with_weak(false))?;
        let mut inputs: SmallVec<[Atom; 4]> = SmallVec::from_slice(&[zeros, cotangent]);
        inputs.extend(starts);
        cotangents[0] = Some(b.emit1(DynamicUpdateSlice {}, &inputs)?);
        Ok(cotangents)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let (Some((&operand, starts)), Some((&dim, start_dims))) =
            (eqn.inputs.split_first(), eqn.dims.split_first())
        else {
            return Err(internal_error!("dynamic_slice has no operand"));
        };
        if let (Some(dim), true) = (dim, start_dims.iter().all(Option::is_none)) {
            let mut slice_sizes = self.slice_sizes.clone();
            slice_sizes.insert(dim, eqn.size.clone());
            let mut inputs: SmallVec<[Atom; 4]> = eqn.inputs.into();
            inputs.insert(1 + dim, zero_start(b, starts));
            return one_batched(b.emit1(DynamicSlice { slice_sizes }, &inputs)?, dim);
        }
        let axes: Axes = (0..starts.len()).collect();
        let gather = Gather {
            offset_dims: axes.clone(),
            collapsed_slice_dims: Axes::new(),
            start_index_map: axes,
            operand_batching_dims: Axes::new(),
            start_indices_batching_dims: Axes::new(),
            slice_sizes: self.slice_sizes.clone(),
            mode: GatherMode::Clip,
            fill_value: None,
            unique_indices: true,
            indices_are_sorted: true,
        };
        let indices = batched_starts(b, starts, start_dims, eqn.size)?;
        let inputs = [operand, indices];
        gather.batch(b, &Batch { inputs: &inputs, dims: &[dim, Some(0)], ..*eqn })
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn index_map(&self, inputs: &[Extents<'_>], output: Extents<'_>) -> Result<Option<IndexMap>> {
        let Some((operand, starts)) = inputs.split_first() else {
            return Err(internal_error!("dynamic_slice has no operand"));
        };
        let plain = !output.dtype.is_key() && output.dtype != DType::Float0;
        if !plain || output.count() == 0 {
            return Ok(None);
        }
        let start = |axis: usize| {
            let last = operand.sizes[axis] as i64 - output.sizes[axis] as i64;
            Start { axis, operand: 1 + axis, at: SmallVec::new(), last }
        };
        let within = (0..output.sizes.len()).map(Follow::axis).collect();
        let starts = (0..starts.len()).map(start).filter(|start| start.last > 0).collect();
        Ok(Some(IndexMap::Picked(Box::new(Picked { within, starts, outside: None }))))
    }
}

/// A start of 0 in the dtype of the others.
fn zero_start(b: &Builder, starts: &[Atom]) -> Atom {
    let dtype = starts.first().map_or(DType::I32, |&start| b.dtype(start));
    b.int_scalar(dtype, 0)
}

/// The start indices of all axes as one array (batch, axes).
fn batched_starts(b: &mut Builder, starts: &[Atom], dims: &[Option<usize>], size: &Dim) -> Result<Atom> {
    let column: Shape = SmallVec::from_iter([size.clone(), Dim::Const(1)]);
    let mut columns: SmallVec<[Atom; 4]> = SmallVec::new();
    for (&start, dim) in starts.iter().zip(dims) {
        let axes: &[usize] = if dim.is_some() { &[0] } else { &[] };
        columns.push(b.broadcast_in_dim(start, &column, axes)?);
    }
    match columns.as_slice() {
        [only] => Ok(*only),
        columns => b.emit1(super::Concatenate { dimension: 1 }, columns),
    }
}

impl Row for DynamicUpdateSlice {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let all = arrays(Self::NAME, inputs)?;
        let [operand, update, starts @ ..] = all.as_slice() else {
            return Err(type_error!(
                "dynamic_update_slice takes an operand, an update and start indices, got {} operands",
                all.len()
            ));
        };
        if operand.rank() != update.rank() {
            return Err(type_error!(
                "dynamic_update_slice: update and operand need equal ranks, got shapes {} and {}.",
                ShowShape(&update.shape),
                ShowShape(&operand.shape)
            ));
        }
        if update.shape.iter().zip(&operand.shape).any(|(window, size)| !may_be_at_most(window, size)) {
            return Err(type_error!(
                "dynamic_update_slice: an update of shape {} does not fit into an operand of shape {}.",
                ShowShape(&update.shape),
                ShowShape(&operand.shape)
            ));
        }
        check_starts(Self::NAME, operand, starts)?;
        same_dtype(Self::NAME, &[operand, update])?;
        one((*operand).clone().with_weak(all.iter().all(|ty| ty.weak)))
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand, update, starts @ ..] = inputs else {
            return Err(internal_error!("dynamic_update_slice was evaluated on {} operands", inputs.len()));
        };
        let starts = clamped_starts(starts, operand.sizes(), update.sizes())?;
        let strides = strides(operand.sizes());
        let base = offset(&starts, &strides);
        let (width, mut output) = (operand.dtype().size(), operand.clone());
        let target = output.bytes_mut()?;
        let mut position = 0;
        for_each_index(update.sizes(), |index| {
            copy_element(update.bytes(), position, target, base + offset(index, &strides), width)?;
            position += 1;
            Ok(())
        })?;
        Ok(vec![output])
    }
}

impl Rules for DynamicUpdateSlice {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let ([operand, update, starts @ ..], [operand_tangent, update_tangent, ..]) =
            (eqn.inputs, eqn.tangents)
        else {
            return Err(internal_error!("dynamic_update_slice has two operands"));
        };
        if operand_tangent.is_none() && update_tangent.is_none() {
            return no_tangent();
        }
        let operand = instantiate(b, *operand_tangent, *operand)?;
        let update = instantiate(b, *update_tangent, *update)?;
        let mut inputs: SmallVec<[Atom; 4]> = SmallVec::from_slice(&[operand, update]);
        inputs.extend_from_slice(starts);
        Ok(SmallVec::from_iter([Some(b.emit1(DynamicUpdateSlice {}, &inputs)?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let starts = known_from(Self::NAME, eqn, 2)?;
        let update = operand_type(b, Self::NAME, eqn, 1)?;
        let mut cotangents: Cotangents = smallvec::smallvec![None; eqn.inputs.len()];
        if is_linear(eqn, 0) {
            let zeros = ArrayType::new(update.shape.clone(), b.dtype(cotangent));
            let mut inputs: SmallVec<[Atom; 4]> = SmallVec::from_slice(&[cotangent, b.zeros(&zeros)?]);
            inputs.extend_from_slice(&starts);
            cotangents[0] = Some(b.emit1(DynamicUpdateSlice {}, &inputs)?);
        }
        if is_linear(eqn, 1) {
            let mut inputs: SmallVec<[Atom; 4]> = SmallVec::from_slice(&[cotangent]);
            inputs.extend_from_slice(&starts);
            cotangents[1] = Some(b.emit1(DynamicSlice { slice_sizes: update.shape }, &inputs)?);
        }
        Ok(cotangents)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let ([operand, update, starts @ ..], [operand_dim, update_dim, start_dims @ ..]) =
            (eqn.inputs, eqn.dims)
        else {
            return Err(internal_error!("dynamic_update_slice has two operands"));
        };
        if start_dims.iter().all(Option::is_none) {
            let operand = batch_to_front(b, *operand, *operand_dim, eqn.size)?;
            let update = batch_to_front(b, *update, *update_dim, eqn.size)?;
            let mut inputs: SmallVec<[Atom; 4]> = SmallVec::from_slice(&[operand, update]);
            inputs.push(zero_start(b, starts));
            inputs.extend_from_slice(starts);
            return one_batched(b.emit1(DynamicUpdateSlice {}, &inputs)?, 0);
        }
        let axes: Axes = (0..starts.len()).collect();
        let scatter = Scatter {
            kind: ScatterKind::Set,
            update_window_dims: axes.clone(),
            inserted_window_dims: Axes::new(),
            scatter_dims_to_operand_dims: axes,
            operand_batching_dims: Axes::new(),
            scatter_indices_batching_dims: Axes::new(),
            mode: GatherMode::Clip,
            unique_indices: true,
            indices_are_sorted: true,
        };
        let indices = batched_starts(b, starts, start_dims, eqn.size)?;
        let inputs = [*operand, indices, *update];
        scatter.batch(b, &Batch { inputs: &inputs, dims: &[*operand_dim, Some(0), *update_dim], ..*eqn })
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn updates_operand(&self) -> bool {
        true
    }
}

/// `whole` with the sum of a part of it and `more` in place of that part.
fn put_sum(b: &mut Builder, whole: Atom, part: Atom, more: Atom, starts: &[Atom]) -> Result<Atom> {
    let sum = b.add(part, more)?;
    let mut inputs: SmallVec<[Atom; 4]> = SmallVec::from_slice(&[whole, sum]);
    inputs.extend_from_slice(starts);
    b.emit1(DynamicUpdateSlice {}, &inputs)
}
