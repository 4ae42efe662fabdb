//! Windows taken from cut arrays: gathers, and slices whose places are not known.
//!
//! In: such an op, whose operand is cut along axes of which a window is a part. Out: each device's part of the result; `None` where the
//! operand is less than what is exchanged. A device takes what its part has of each window, and the bits of what devices have are
//! summed: one has an element, the others zeros. (Shoeybi et al., Megatron-LM, 2019, section 3, do so with embeddings.) Cost: a sum over the
//! devices of a value as large as the result.

use ferrax_ir::ops::{
    AxisReduceKind, Binary, BitcastConvertType, Compare, Concatenate, DynamicSlice, Gather, GatherMode, Pad,
};
use ferrax_ir::{Atom, Axes, DType, Dim, Kind, Op, Result, Shape, Sizes};
use smallvec::SmallVec;

use super::propagate::{MeshAxes, Spec};
use super::reshard::{Lane, Part};

/// See the head of the file. `sizes` are those of the result.
pub fn taken(lane: &mut Lane<'_>, op: &Op, operands: &[Part], sizes: &[usize]) -> Result<Option<Part>> {
    match (op, operands) {
        (Op::Gather(op), [operand, indices]) => {
            let Some(spec) =
                spec_of_indices(operand, indices, &op.operand_batching_dims, &op.start_indices_batching_dims)
            else {
                return Ok(None);
            };
            let dtype = lane.b.dtype(indices.atom);
            let Some(partial) = partial_axes(lane, op, operand, dtype)? else { return Ok(None) };
            if partial.is_empty() {
                return Ok(None);
            }
            let batch = local_elements(lane, &indices.sizes[..indices.sizes.len() - 1], &spec);
            if !is_less(lane, op, operand, &partial, batch)? {
                return Ok(None);
            }
            let indices = lane.laid_out(indices, &spec)?;
            gathered(lane, op, operand, indices, &spec, &partial, sizes).map(Some)
        }
        (Op::DynamicSlice(op), [operand, starts @ ..]) => sliced(lane, op, operand, starts, sizes),
        _ => Ok(None),
    }
}

fn sliced(
    lane: &mut Lane<'_>,
    op: &DynamicSlice,
    operand: &Part,
    starts: &[Part],
    sizes: &[usize],
) -> Result<Option<Part>> {
    let rank = operand.sizes.len();
    let Some(first) = starts.first() else { return Ok(None) };
    let dtype = lane.b.dtype(first.atom);
    if starts.iter().any(|start| lane.b.dtype(start.atom) != dtype) {
        return Ok(None);
    }
    let all: Axes = (0..rank).collect();
    let gather = Gather {
        offset_dims: all.clone(),
        collapsed_slice_dims: Axes::new(),
        start_index_map: all,
        operand_batching_dims: Axes::new(),
        start_indices_batching_dims: Axes::new(),
        slice_sizes: op.slice_sizes.clone(),
        mode: GatherMode::Clip,
        fill_value: None,
        unique_indices: true,
        indices_are_sorted: true,
    };
    let Some(partial) = partial_axes(lane, &gather, operand, dtype)? else { return Ok(None) };
    // Along an axis that all of a slice's is, it begins at the first element.
    if !partial.is_empty() && !is_less(lane, &gather, operand, &partial, 1)? {
        return Ok(None);
    }
    let mut columns: SmallVec<[Atom; 4]> = SmallVec::new();
    for start in starts {
        columns.push(lane.b.reshape(start.atom, &[Dim::Const(1)])?);
    }
    let indices = lane.b.emit1(Concatenate { dimension: 0 }, &columns)?;
    gathered(lane, &gather, operand, indices, &Spec::from_elem(MeshAxes::new(), 1), &partial, sizes).map(Some)
}

/// How indices are to be cut: along axes that they share with the operand as that, along others as they are unless the operand is cut
/// over the same axes of the mesh. `None` for an operand in windows.
pub fn spec_of_indices(
    operand: &Part,
    indices: &Part,
    operand_batching: &[usize],
    indices_batching: &[usize],
) -> Option<Spec> {
    let is_free = |axes: &MeshAxes| !operand.spec.iter().flatten().any(|axis| axes.contains(axis));
    let last = indices.sizes.len() - 1;
    let of = |axis: usize| match indices_batching.iter().position(|&own| own == axis) {
        Some(pair) => operand.spec[operand_batching[pair]].clone(),
        None if axis < last && is_free(&indices.spec[axis]) => indices.spec[axis].clone(),
        None => MeshAxes::new(),
    };
    operand.spans.is_empty().then(|| (0..=last).map(of).collect())
}

/// The axes of an array of this rank but for these.
pub fn other_axes(rank: usize, axes: &[usize]) -> Axes {
    (0..rank).filter(|axis| !axes.contains(axis)).collect()
}

/// How many elements a device has of an array of these sizes.
pub fn local_elements(lane: &Lane<'_>, sizes: &[usize], spec: &Spec) -> usize {
    sizes.iter().zip(spec).map(|(size, axes)| size / lane.mesh.parts(axes)).product()
}

/// The axes along which the operand is cut and windows are parts of it; `None` for what has no such bits.
fn partial_axes(lane: &Lane<'_>, op: &Gather, operand: &Part, indices: DType) -> Result<Option<Axes>> {
    let dtype = lane.b.dtype(operand.atom);
    let mut found = Axes::new();
    for (axis, size) in op.slice_sizes.iter().enumerate() {
        let whole = size.require("a gather over a mesh")? == operand.sizes[axis];
        if operand.spec[axis].is_empty() || whole || op.operand_batching_dims.contains(&axis) {
            continue;
        }
        if !op.start_index_map.contains(&axis) {
            return Ok(None);
        }
        found.push(axis);
    }
    let has_bits = dtype.bits() >= 8 && !dtype.is_complex() && !dtype.is_key() || dtype.is_bool();
    let helps = has_bits && operand.spans.is_empty() && are_places(indices);
    Ok(helps.then_some(found))
}

/// Whether differences of indices of this dtype can be formed in it, or in 32 bits.
pub fn are_places(dtype: DType) -> bool {
    dtype.is_signed() || dtype.size() < 4
}

/// Whether what is exchanged is less than the operand.
fn is_less(lane: &Lane<'_>, op: &Gather, operand: &Part, partial: &Axes, batch: usize) -> Result<bool> {
    let (mut result, mut whole) = (batch, 1);
    for (axis, size) in op.slice_sizes.iter().enumerate() {
        let parts = lane.mesh.parts(&operand.spec[axis]);
        let is_partial = partial.contains(&axis);
        let cut = if is_partial || op.operand_batching_dims.contains(&axis) { 1 } else { parts };
        result *= size.require("a gather over a mesh")? / cut;
        whole *= operand.sizes[axis] / if is_partial { 1 } else { parts };
    }
    Ok(2 * result < whole)
}

fn gathered(
    lane: &mut Lane<'_>,
    op: &Gather,
    operand: &Part,
    indices: Atom,
    spec: &Spec,
    partial: &Axes,
    sizes: &[usize],
) -> Result<Part> {
    let mut places = Places::new(lane, indices)?;
    let (mut here, mut valid) = (None, None);
    let mut slice_sizes = op.slice_sizes.clone();
    let mut padding_config = vec![(0, 0, 0); operand.sizes.len()];
    for (number, &axis) in op.start_index_map.iter().enumerate() {
        let window = op.slice_sizes[axis].require("a gather over a mesh")?;
        let most = (operand.sizes[axis] - window) as i64;
        match op.mode {
            GatherMode::Fill => valid = Some(places.within(lane, valid, number, 0, most)?),
            _ => places.clamp(lane, number, most)?,
        }
        let over = &operand.spec[axis];
        let step = operand.sizes[axis] / lane.mesh.parts(over);
        if partial.contains(&axis) {
            // Windows that begin before the part, and such as end behind it, find zeros there.
            let around = window as i64 - 1;
            padding_config[axis] = (around, around, 0);
            places.shift(lane, number, over, step, around)?;
            here = Some(places.within(lane, here, number, 0, step as i64 + around - 1)?);
        }
    }
    for (axis, size) in slice_sizes.iter_mut().enumerate() {
        if !partial.contains(&axis)
            && !op.operand_batching_dims.contains(&axis)
            && *size == operand.sizes[axis]
        {
            *size = Dim::Const(operand.sizes[axis] / lane.mesh.parts(&operand.spec[axis]));
        }
    }
    let mut source = operand.atom;
    if padding_config.iter().any(|padding| *padding != (0, 0, 0)) {
        let nothing = lane.b.scalar(lane.b.dtype(source), 0.0);
        source = lane.b.emit1(Pad { padding_config }, &[source, nothing])?;
    }
    let indices = places.together(lane)?;
    let local = Gather {
        slice_sizes,
        mode: GatherMode::Clip,
        fill_value: None,
        indices_are_sorted: false,
        ..op.clone()
    };
    let mut found = lane.b.emit1(local, &[source, indices])?;
    let batch_dims = other_axes(sizes.len(), &op.offset_dims);
    if let Some(here) = here {
        let zeros = lane.b.zeros_like(found)?;
        found = chosen(lane, here, &batch_dims, found, zeros)?;
    }
    let over: MeshAxes = partial.iter().flat_map(|&axis| operand.spec[axis].iter().copied()).collect();
    if !over.is_empty() {
        found = sum_of_bits(lane, found, &over)?;
    }
    if let Some(valid) = valid {
        let ty = lane.b.array_type(found)?;
        let fill = lane.b.full(&ty, op.fill(ty.dtype))?;
        found = chosen(lane, valid, &batch_dims, found, fill)?;
    }
    let inner =
        other_axes(operand.sizes.len(), &[&op.collapsed_slice_dims[..], &op.operand_batching_dims].concat());
    let mut result = Spec::from_elem(MeshAxes::new(), sizes.len());
    for (&dim, axis) in op.offset_dims.iter().zip(inner) {
        if !partial.contains(&axis) && op.slice_sizes[axis] == operand.sizes[axis] {
            result[dim] = operand.spec[axis].clone();
        }
    }
    batch_dims.iter().zip(spec).for_each(|(&dim, axes)| result[dim] = axes.clone());
    Ok(Part::new(found, result, Sizes::from_slice(sizes)))
}

/// One of two arrays for each window, which are along these axes.
fn chosen(lane: &mut Lane<'_>, which: Atom, axes: &Axes, on_true: Atom, on_false: Atom) -> Result<Atom> {
    let shape = lane.b.shape(on_true);
    let which = lane.b.broadcast_in_dim(which, &shape, axes)?;
    lane.b.select(which, on_true, on_false)
}

/// The sum over devices of which one has an element and the others zeros, with all bits of that element.
fn sum_of_bits(lane: &mut Lane<'_>, x: Atom, over: &MeshAxes) -> Result<Atom> {
    let dtype = lane.b.dtype(x);
    match dtype.kind() {
        Kind::Float => {
            let new_dtype = match dtype.bits() {
                8 => DType::U8,
                16 => DType::U16,
                32 => DType::U32,
                _ => DType::U64,
            };
            let bits = lane.b.emit1(BitcastConvertType { new_dtype }, &[x])?;
            let bits = lane.folded(bits, AxisReduceKind::Sum, over)?;
            lane.b.emit1(BitcastConvertType { new_dtype: dtype }, &[bits])
        }
        Kind::Bool => {
            let bits = lane.b.convert(x, DType::U8)?;
            let bits = lane.folded(bits, AxisReduceKind::Sum, over)?;
            lane.b.convert(bits, dtype)
        }
        _ => lane.folded(x, AxisReduceKind::Sum, over),
    }
}

/// The numbers of index vectors: for each axis of the operand that they name an array of the same shape.
pub struct Places {
    columns: SmallVec<[Atom; 4]>,
    dtype: DType,
    shape: Shape,
}

impl Places {
    /// Of indices of which differences can be formed (`are_places`).
    pub fn new(lane: &mut Lane<'_>, mut indices: Atom) -> Result<Places> {
        if lane.b.dtype(indices).size() < 4 {
            indices = lane.b.convert(indices, DType::I32)?;
        }
        let mut shape = lane.b.shape(indices);
        let last = shape.len() - 1;
        let count = shape[last].require("indices over a mesh")?;
        shape.pop();
        let mut columns = SmallVec::new();
        for number in 0..count {
            let column = lane.b.slice_axis(indices, last, number, number + 1)?;
            columns.push(lane.b.reshape(column, &shape)?);
        }
        Ok(Places { columns, dtype: lane.b.dtype(indices), shape })
    }

    fn number(&self, lane: &mut Lane<'_>, value: i64) -> Result<Atom> {
        let value = lane.b.int_scalar(self.dtype, value);
        lane.b.broadcast_scalar(value, &self.shape)
    }

    /// Moves them into `0..=most`.
    pub fn clamp(&mut self, lane: &mut Lane<'_>, number: usize, most: i64) -> Result<()> {
        for (op, bound) in [(Binary::Max, 0), (Binary::Min, most)] {
            let bound = self.number(lane, bound)?;
            self.columns[number] = lane.b.binary(op, self.columns[number], bound)?;
        }
        Ok(())
    }

    /// Counts them from so many elements before the device's part.
    pub fn shift(
        &mut self,
        lane: &mut Lane<'_>,
        number: usize,
        over: &MeshAxes,
        step: usize,
        before: i64,
    ) -> Result<()> {
        let place = lane.place(over, step)?;
        let place = lane.b.convert(place, self.dtype)?;
        let place = lane.b.broadcast_scalar(place, &self.shape)?;
        let column = lane.b.sub(self.columns[number], place)?;
        let before = self.number(lane, before)?;
        self.columns[number] = lane.b.add(column, before)?;
        Ok(())
    }

    /// Whether they are in `from..=to`, and what held before does.
    pub fn within(
        &self,
        lane: &mut Lane<'_>,
        before: Option<Atom>,
        number: usize,
        from: i64,
        to: i64,
    ) -> Result<Atom> {
        let from = self.number(lane, from)?;
        let to = self.number(lane, to)?;
        let above = lane.b.compare(Compare::Ge, self.columns[number], from)?;
        let below = lane.b.compare(Compare::Le, self.columns[number], to)?;
        let both = lane.b.binary(Binary::And, above, below)?;
        match before {
            Some(before) => lane.b.binary(Binary::And, before, both),
            None => Ok(both),
        }
    }

    /// The index vectors.
    pub fn together(&self, lane: &mut Lane<'_>) -> Result<Atom> {
        let mut shape = self.shape.clone();
        let last = shape.len();
        shape.push(Dim::Const(1));
        let mut columns: SmallVec<[Atom; 4]> = SmallVec::new();
        for &column in &self.columns {
            columns.push(lane.b.reshape(column, &shape)?);
        }
        match columns.as_slice() {
            [one] => Ok(*one),
            _ => lane.b.emit1(Concatenate { dimension: last }, &columns),
        }
    }
}
