//! Gather: windows of the operand at positions given by an index array.
//!
//! XLA's op with the last axis of the indices as the index vector
//! (openxla.org/xla/operation_semantics#gather). `Placement` is the arithmetic
//! that gather and scatter share: which element of the operand goes with which
//! element of the windows.

use smallvec::SmallVec;

use crate::rules::{
    self, Batch, Batched, Extents, Follow, IndexMap, Jvp, Lowering, Picked, Row, Rules, Start, Types,
};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Kind, Result, Scalar, Shape, ShowShape, Sizes, Tensor, Type,
    internal_error, op_struct, string_enum, type_error, value_error,
};

use super::common::one;
use super::index_space::*;
use super::{Scatter, ScatterKind};

string_enum! {
    /// What happens to indices out of bounds.
    GatherMode {
        /// They are clamped.
        Clip = "clip",
        /// Gather gives the fill value, scatter drops the update.
        Fill = "fill",
        /// The caller promises that there are none. Where the promise is
        /// broken, gather clamps and scatter drops.
        PromiseInBounds = "promise_in_bounds",
    }
}

op_struct! {
    /// Windows of the operand at positions given by an index array.
    Gather "gather" {
        offset_dims: Axes, collapsed_slice_dims: Axes, start_index_map: Axes, operand_batching_dims: Axes,
        start_indices_batching_dims: Axes, slice_sizes: Shape, mode: GatherMode, fill_value: Option<Scalar>,
        unique_indices: bool, indices_are_sorted: bool,
    }
}

/// The work of an element, in additions: it is found at an index of its own.
const PICKED: u32 = 12;

/// Checks of one list of axes of the dimension numbers, shared with scatter.
pub(super) fn check_axes(op: &str, name: &str, axes: &[usize], rank: usize, sorted: bool) -> Result<()> {
    if sorted && axes.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(type_error!("{op}: {name} must be in order, got {}", tuple(axes)));
    }
    if has_duplicates(axes) {
        return Err(type_error!("{op}: {name} has an axis twice: {}.", tuple(axes)));
    }
    if let Some(axis) = axes.iter().find(|&&axis| axis >= rank) {
        return Err(type_error!("{op}: {axis} in {name} is no axis: there are {rank}."));
    }
    Ok(())
}

/// Checks that two lists of axes have none in common.
pub(super) fn check_disjoint(op: &str, first: (&str, &[usize]), second: (&str, &[usize])) -> Result<()> {
    if first.1.iter().any(|axis| second.1.contains(axis)) {
        return Err(type_error!(
            "{op}: {} and {} have an axis in common: {} and {}.",
            first.0,
            second.0,
            tuple(first.1),
            tuple(second.1)
        ));
    }
    Ok(())
}

/// Checks the index array: integers, a last axis as long as the index map, and
/// batching axes that pair up with the operand's. Shared with scatter.
pub(super) fn check_indices(
    op: &str,
    operand: &ArrayType,
    indices: &ArrayType,
    (map_name, map): (&str, &[usize]),
    (operand_batching, indices_batching): (&[usize], &[usize]),
) -> Result<()> {
    if !indices.dtype.is_integer() {
        return Err(value_error!("{op}: indices are integers, got {}", indices.dtype));
    }
    let Some((vector, _)) = indices.shape.split_last() else {
        return Err(type_error!("the indices of {op} need an axis for the index vector, got a scalar."));
    };
    if *vector != map.len() {
        return Err(type_error!(
            "{op}: {map_name} names {} axes, an index vector has {vector} numbers.",
            map.len()
        ));
    }
    check_axes(op, map_name, map, operand.rank(), false)?;
    check_axes(op, "operand_batching_dims", operand_batching, operand.rank(), true)?;
    check_disjoint(op, (map_name, map), ("operand_batching_dims", operand_batching))?;
    check_axes(op, "batching dimensions of the indices", indices_batching, indices.rank(), false)?;
    if indices_batching.contains(&(indices.rank() - 1)) {
        return Err(type_error!(
            "{op}: the indices' last axis holds the index vectors and cannot be a batch axis too; got {}.",
            tuple(indices_batching)
        ));
    }
    let of =
        |ty: &ArrayType, axes: &[usize]| axes.iter().map(|&axis| ty.shape[axis].clone()).collect::<Shape>();
    let (left, right) = (of(operand, operand_batching), of(indices, indices_batching));
    if left != right {
        return Err(type_error!(
            "{op}: the batch axes of operand and indices differ in size: {} and {}.",
            ShowShape(&left),
            ShowShape(&right)
        ));
    }
    Ok(())
}

/// Where the windows lie. All sizes are constant.
pub(super) struct Placement<'a> {
    /// Axes of the windowed array (gather's output, scatter's updates) that run within a window.
    pub window_dims: &'a [usize],
    /// Operand axes that windows do not have.
    pub collapsed: &'a [usize],
    /// The operand axis of each entry of an index vector.
    pub index_map: &'a [usize],
    pub operand_batching: &'a [usize],
    pub indices_batching: &'a [usize],
    /// The window's size along each operand axis.
    pub window: &'a [usize],
    /// Whether starts are clamped; if not, windows that stick out have no place.
    pub clamp: bool,
}

impl Placement<'_> {
    /// Visits every element of the windowed array of these sizes, window by
    /// window in the order of the index array, with its row-major position and
    /// that of its element in the operand; `None` where the window lies out of
    /// bounds.
    pub fn visit(
        &self,
        operand: &[usize],
        indices: &Tensor,
        windowed: &[usize],
        mut visit: impl FnMut(usize, Option<usize>) -> Result<()>,
    ) -> Result<()> {
        let positions = integers(indices)?;
        let index_strides = strides(indices.sizes());
        let operand_strides = strides(operand);
        let batch_dims = other_axes(windowed.len(), self.window_dims);
        let inner: Axes = other_axes(operand.len(), &[self.collapsed, self.operand_batching].concat());
        let windowed_strides = strides(windowed);
        let batch_sizes: Sizes = batch_dims.iter().map(|&dim| windowed[dim]).collect();
        let window_sizes: Sizes = self.window_dims.iter().map(|&dim| windowed[dim]).collect();
        for_each_index(&batch_sizes, |batch| {
            let base = offset(batch, &index_strides);
            let mut start: SmallVec<[i128; 4]> = smallvec::smallvec![0; operand.len()];
            for (entry, &axis) in self.index_map.iter().enumerate() {
                start[axis] = positions[base + entry];
            }
            let mut corner = Some(0);
            for axis in 0..operand.len() {
                let last = operand[axis] as i128 - self.window[axis] as i128;
                let from = if self.clamp { start[axis].min(last).max(0) } else { start[axis] };
                corner = corner
                    .filter(|_| (0..=last).contains(&from))
                    .map(|corner: usize| corner + from as usize * operand_strides[axis]);
            }
            if let Some(corner) = &mut corner {
                for (&axis, &dim) in self.operand_batching.iter().zip(self.indices_batching) {
                    *corner += batch[dim] * operand_strides[axis];
                }
            }
            let first: usize = batch_dims.iter().zip(batch).map(|(&dim, i)| i * windowed_strides[dim]).sum();
            for_each_index(&window_sizes, |within| {
                let mut position = first;
                let mut place = corner;
                for ((&dim, &axis), i) in self.window_dims.iter().zip(&inner).zip(within) {
                    position += i * windowed_strides[dim];
                    place = place.map(|place| place + i * operand_strides[axis]);
                }
                visit(position, place)
            })
        })
    }
}

/// What a gather gives out of bounds if the caller names nothing: NaN, the
/// smallest signed or the largest unsigned integer, true.
fn default_fill(dtype: DType) -> Scalar {
    match dtype.kind() {
        Kind::Float | Kind::Complex => Scalar::from_f64(dtype, f64::NAN),
        Kind::Signed => Scalar::from_i64(dtype, -1 << (dtype.bits() - 1)),
        Kind::Unsigned => Scalar::from_i64(dtype, -1),
        Kind::Bool => Scalar::bool(true),
        Kind::Key | Kind::Float0 => Scalar::from_bits(dtype, u128::MAX),
    }
}

impl Gather {
    /// What stands for elements out of bounds, in an array of this dtype.
    pub fn fill(&self, dtype: DType) -> Scalar {
        self.fill_value.unwrap_or_else(|| default_fill(dtype))
    }

    /// The scatter that puts windows where this gather takes them from.
    fn scatter(&self, kind: ScatterKind) -> Scatter {
        Scatter {
            kind,
            update_window_dims: self.offset_dims.clone(),
            inserted_window_dims: self.collapsed_slice_dims.clone(),
            scatter_dims_to_operand_dims: self.start_index_map.clone(),
            operand_batching_dims: self.operand_batching_dims.clone(),
            scatter_indices_batching_dims: self.start_indices_batching_dims.clone(),
            mode: self.mode,
            unique_indices: self.unique_indices,
            indices_are_sorted: self.indices_are_sorted,
        }
    }

    fn check_slice_sizes(&self, operand: &ArrayType, indices: &ArrayType) -> Result<()> {
        let dropped = self.collapsed_slice_dims.len() + self.operand_batching_dims.len();
        if self.slice_sizes.len() != operand.rank() {
            return Err(type_error!(
                "gather: each axis of the operand needs a slice size; got slice_sizes={} for shape {}",
                ShowShape(&self.slice_sizes),
                ShowShape(&operand.shape)
            ));
        }
        if operand.rank() != self.offset_dims.len() + dropped {
            return Err(type_error!(
                "every operand dimension of a gather op must be an offset dimension, collapsed or batching; got \
                 slice_sizes={}, offset_dims={}, collapsed_slice_dims={}, operand_batching_dims={}.",
                ShowShape(&self.slice_sizes),
                tuple(&self.offset_dims),
                tuple(&self.collapsed_slice_dims),
                tuple(&self.operand_batching_dims)
            ));
        }
        let nothing = indices.shape.contains(&Dim::Const(0));
        for (axis, (window, size)) in self.slice_sizes.iter().zip(&operand.shape).enumerate() {
            if !nothing && !may_be_at_most(window, size) {
                return Err(type_error!(
                    "gather: the slice of axis {axis}, whose size is {size}, cannot have size {window}."
                ));
            }
        }
        for &axis in &self.collapsed_slice_dims {
            if self.slice_sizes[axis] != 1 {
                return Err(type_error!(
                    "gather: a collapsed axis has a slice of size 1, got {} for axis {axis}.",
                    self.slice_sizes[axis]
                ));
            }
        }
        for &axis in &self.operand_batching_dims {
            if !may_be_at_most(&self.slice_sizes[axis], &Dim::Const(1)) {
                return Err(type_error!(
                    "gather: a batch axis of the operand has a slice of size 0 or 1, got {} for axis \
                     {axis}.",
                    self.slice_sizes[axis]
                ));
            }
        }
        Ok(())
    }
}

impl Row for Gather {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand, indices] = operands(Self::NAME, inputs)?;
        let collapsed = &self.collapsed_slice_dims;
        check_indices(
            Self::NAME,
            operand,
            indices,
            ("start_index_map", &self.start_index_map),
            (&self.operand_batching_dims, &self.start_indices_batching_dims),
        )?;
        let rank = self.offset_dims.len() + indices.rank() - 1;
        check_axes(Self::NAME, "offset_dims", &self.offset_dims, rank, true)?;
        check_axes(Self::NAME, "collapsed_slice_dims", collapsed, operand.rank(), true)?;
        check_disjoint(
            Self::NAME,
            ("collapsed_slice_dims", collapsed),
            ("operand_batching_dims", &self.operand_batching_dims),
        )?;
        self.check_slice_sizes(operand, indices)?;
        if let Some(fill) = self.fill_value
            && fill.dtype() != operand.dtype
        {
            return Err(type_error!(
                "the fill value of gather must have the operand's dtype {}, got {}",
                operand.dtype,
                fill.dtype()
            ));
        }
        let inner = other_axes(operand.rank(), &[collapsed.as_slice(), &self.operand_batching_dims].concat());
        let mut window = inner.iter().map(|&axis| self.slice_sizes[axis].clone());
        let mut batch = indices.shape.iter().cloned();
        let mut shape = Shape::new();
        for axis in 0..rank {
            let next = if self.offset_dims.contains(&axis) { window.next() } else { batch.next() };
            shape.push(next.ok_or_else(|| internal_error!("the axes of gather were miscounted"))?);
        }
        one(operand.with_shape(shape))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand, indices] = tensors(Self::NAME, inputs)?;
        let (dtype, sizes) = output_sizes(Self::NAME, outputs)?;
        let window = self.slice_sizes.iter().map(|dim| dim.require("gather")).collect::<Result<Sizes>>()?;
        let placement = Placement {
            window_dims: &self.offset_dims,
            collapsed: &self.collapsed_slice_dims,
            index_map: &self.start_index_map,
            operand_batching: &self.operand_batching_dims,
            indices_batching: &self.start_indices_batching_dims,
            window: &window,
            clamp: self.mode != GatherMode::Fill,
        };
        let fill = self.fill(dtype).bytes();
        let mut output = Tensor::zeros(dtype, sizes.clone())?;
        let target = output.bytes_mut()?;
        placement.visit(operand.sizes(), indices, &sizes, |to, from| match from {
            Some(from) => copy_element(operand.bytes(), from, target, to, dtype.size()),
            None => copy_element(&fill, 0, target, to, dtype.size()),
        })?;
        Ok(vec![output])
    }
}

impl Rules for Gather {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else { return no_tangent() };
        let [_, indices] = atoms(Self::NAME, eqn.inputs)?;
        let op = Gather { fill_value: Some(Scalar::zero(b.dtype(tangent))), ..self.clone() };
        Ok(SmallVec::from_iter([Some(b.emit1(op, &[tangent, indices])?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let operand = linear_type(Self::NAME, eqn, 0)?;
        let zeros = b.zeros(&operand.with_weak(false))?;
        let result = self.transpose_onto(b, eqn, zeros)?;
        Ok(SmallVec::from_iter([Some(result), None]))
    }

    fn reads_part(&self, _inputs: &[ArrayType]) -> bool {
        true
    }

    fn transpose_onto(&self, b: &mut Builder, eqn: &rules::Transpose<'_>, before: Atom) -> Result<Atom> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let indices = known_from(Self::NAME, eqn, 1)?;
        let [indices] = atoms(Self::NAME, &indices)?;
        b.emit1(self.scatter(ScatterKind::Add), &[before, indices, cotangent])
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let [mut operand, mut indices] = atoms(Self::NAME, eqn.inputs)?;
        let (operand_dim, indices_dim) = match eqn.dims {
            &[operand_dim, indices_dim] => (operand_dim, indices_dim),
            _ => return Err(internal_error!("gather has two operands")),
        };
        if let Some(dim) = operand_dim {
            operand = b.move_axis(operand, dim, 0)?;
        }
        if let Some(dim) = indices_dim {
            indices = b.move_axis(indices, dim, 0)?;
        }
        let mut op = self.clone();
        if operand_dim.is_some() {
            op.collapsed_slice_dims = after_front(&self.collapsed_slice_dims);
            op.start_index_map = after_front(&self.start_index_map);
            op.operand_batching_dims = after_front(&self.operand_batching_dims);
        }
        if indices_dim.is_some() {
            op.start_indices_batching_dims = after_front(&self.start_indices_batching_dims);
        }
        match (operand_dim, indices_dim) {
            (Some(_), None) => {
                op.offset_dims = with_front(&self.offset_dims);
                op.slice_sizes.insert(0, eqn.size.clone());
            }
            (None, Some(_)) => {
                op.offset_dims = after_front(&self.offset_dims);
                // Lanes may take the same windows, in any order.
                op.unique_indices = false;
                op.indices_are_sorted = false;
            }
            _ => {
                op.offset_dims = after_front(&self.offset_dims);
                op.operand_batching_dims.insert(0, 0);
                op.start_indices_batching_dims.insert(0, 0);
                op.slice_sizes.insert(0, Dim::Const(usize::from(*eqn.size != 0)));
            }
        }
        one_batched(b.emit1(op, &[operand, indices])?, 0)
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn index_map(&self, inputs: &[Extents<'_>], output: Extents<'_>) -> Result<Option<IndexMap>> {
        let [operand, indices] = inputs else {
            return Err(internal_error!("gather of {} operands", inputs.len()));
        };
        let windows = self.slice_sizes.iter().map(|dim| dim.require("gather")).collect::<Result<Sizes>>()?;
        let fits = windows.iter().zip(operand.sizes).all(|(window, size)| window <= size);
        // Keys and what has no bytes are moved as they are; of nothing there is nothing to say.
        let plain = !output.dtype.is_key() && output.dtype != DType::Float0;
        if !fits || !plain || output.count() == 0 {
            return Ok(None);
        }
        let batch_dims = other_axes(output.sizes.len(), &self.offset_dims);
        let mut offset_dims = self.offset_dims.iter();
        let within = (0..operand.sizes.len()).map(|axis| {
            let batching = self.operand_batching_dims.iter().position(|&batching| batching == axis);
            let dim = match batching {
                Some(pair) => Some(batch_dims[self.start_indices_batching_dims[pair]]),
                None if self.collapsed_slice_dims.contains(&axis) => None,
                None => offset_dims.next().copied(),
            };
            dim.map_or(Follow::FIRST, Follow::axis)
        });
        let within = within.collect();
        let starts = self.start_index_map.iter().enumerate().map(|(entry, &axis)| {
            let entry = Follow { start: entry as i64, ..Follow::FIRST };
            let at = batch_dims.iter().take(indices.sizes.len() - 1).map(|&dim| Follow::axis(dim));
            let last = operand.sizes[axis] as i64 - windows[axis] as i64;
            Start { axis, operand: 1, at: at.chain([entry]).collect(), last }
        });
        let outside = (self.mode == GatherMode::Fill).then(|| self.fill(output.dtype));
        Ok(Some(IndexMap::Picked(Box::new(Picked { within, starts: starts.collect(), outside }))))
    }

    fn cost(&self, _output: DType) -> u32 {
        PICKED
    }
}
