//! Windows of cut arrays that are written: a scatter of rows or of one window, and the update of a slice.
//!
//! In: such an op, whose operand is cut along axes of which windows are parts. Out: each device's part with what of the windows falls
//! into it, so the operand is not exchanged; `None` for other ops, and where the updates are more than it. Rows, which are in one part, are
//! scattered by places counted from the device's, and others are dropped. Of a longer window each device takes, by place, what is in its
//! part. What is written is whole along these axes: a row that all devices have costs no exchange. Cost: the updates; for a window
//! the part, read and written.

use ferrax_ir::ops::{
    AxisReduceKind, Binary, Compare, DynamicSlice, DynamicUpdateSlice, GatherMode, Pad, Scatter, ScatterKind,
};
use ferrax_ir::{Atom, Axes, DType, Dim, Op, Result, Shape, Sizes};
use smallvec::{SmallVec, smallvec};

use super::lookups::{Places, are_places, local_elements, other_axes, spec_of_indices};
use super::propagate::{MeshAxes, Spec};
use super::reshard::{Lane, Part};

/// A window of an array.
struct Window {
    sizes: Sizes,
    /// The axes of the array that those of the update are; along others it has one element.
    axes: Axes,
    /// Where it begins along each axis; `None`: at the first element.
    starts: SmallVec<[Option<Atom>; 4]>,
    /// Whether it is moved into the array; else it is written only where all of it is inside.
    clamped: bool,
    kind: ScatterKind,
}

/// See the head of the file.
pub fn updated(lane: &mut Lane<'_>, op: &Op, operands: &[Part]) -> Result<Option<Part>> {
    match (op, operands) {
        (Op::Scatter(op), [operand, indices, update]) => scattered(lane, op, operand, indices, update),
        (Op::DynamicUpdateSlice(_), [operand, update, starts @ ..]) => {
            if !may_be_in_parts(lane, operand) {
                return Ok(None);
            }
            let window = Window {
                sizes: update.sizes.clone(),
                axes: (0..update.sizes.len()).collect(),
                starts: starts.iter().map(|start| Some(start.atom)).collect(),
                clamped: true,
                kind: ScatterKind::Set,
            };
            written(lane, operand, update, &window).map(Some)
        }
        _ => Ok(None),
    }
}

fn may_be_in_parts(lane: &Lane<'_>, operand: &Part) -> bool {
    operand.spans.is_empty()
        && !lane.b.dtype(operand.atom).is_key()
        && operand.spec.iter().any(|axes| !axes.is_empty())
}

fn is_partial(operand: &Part, sizes: &Sizes, axis: usize) -> bool {
    !operand.spec[axis].is_empty() && sizes[axis] != operand.sizes[axis]
}

fn scattered(
    lane: &mut Lane<'_>,
    op: &Scatter,
    operand: &Part,
    indices: &Part,
    update: &Part,
) -> Result<Option<Part>> {
    let rank = operand.sizes.len();
    let thin = [&op.inserted_window_dims[..], &op.operand_batching_dims].concat();
    let axes = other_axes(rank, &thin);
    let mut sizes: Sizes = smallvec![1; rank];
    axes.iter().zip(&op.update_window_dims).for_each(|(&axis, &dim)| sizes[axis] = update.sizes[dim]);
    let is_batch = |axis: &usize| op.operand_batching_dims.contains(axis);
    let partial: Axes =
        (0..rank).filter(|axis| is_partial(operand, &sizes, *axis) && !is_batch(axis)).collect();
    let indexed = partial.iter().all(|axis| op.scatter_dims_to_operand_dims.contains(axis));
    if partial.is_empty() || !indexed || !are_places(lane.b.dtype(indices.atom)) {
        return Ok(None);
    }
    if partial.iter().all(|&axis| sizes[axis] == 1) {
        return rows(lane, op, [operand, indices, update], &axes, &sizes, &partial);
    }
    let one = indices.sizes.len() == 1 && op.update_window_dims.len() == update.sizes.len();
    if !one || !indices.spec[0].is_empty() || !may_be_in_parts(lane, operand) {
        return Ok(None);
    }
    let mut starts: SmallVec<[Option<Atom>; 4]> = smallvec![None; rank];
    for (number, &axis) in op.scatter_dims_to_operand_dims.iter().enumerate() {
        let start = lane.b.slice_axis(indices.atom, 0, number, number + 1)?;
        starts[axis] = Some(lane.b.reshape(start, &[])?);
    }
    let window = Window { sizes, axes, starts, clamped: op.mode == GatherMode::Clip, kind: op.kind };
    written(lane, operand, update, &window).map(Some)
}

/// A scatter of windows each of which is in one part. `axes` are those of the operand that windows have.
fn rows(
    lane: &mut Lane<'_>,
    op: &Scatter,
    [operand, indices, update]: [&Part; 3],
    axes: &Axes,
    window: &Sizes,
    partial: &Axes,
) -> Result<Option<Part>> {
    let batching = &op.scatter_indices_batching_dims;
    let Some(mut spec) = spec_of_indices(operand, indices, &op.operand_batching_dims, batching) else {
        return Ok(None);
    };
    let dtype = lane.b.dtype(operand.atom);
    let adds = matches!(op.kind, ScatterKind::Add | ScatterKind::Sub) && dtype.bits() >= 32;
    let mut apart = MeshAxes::new();
    for axis in (0..spec.len()).filter(|axis| !batching.contains(axis)) {
        if adds {
            apart.extend(spec[axis].iter().copied());
        } else {
            spec[axis].clear();
        }
    }
    let mut cut = Spec::from_elem(MeshAxes::new(), update.sizes.len());
    let of_indices = other_axes(update.sizes.len(), &op.update_window_dims);
    of_indices.iter().zip(&spec).for_each(|(&dim, axes)| cut[dim] = axes.clone());
    for (&dim, &axis) in op.update_window_dims.iter().zip(axes) {
        if window[axis] == operand.sizes[axis] {
            cut[dim] = operand.spec[axis].clone();
        }
    }
    let (has, needs) =
        (local_elements(lane, &update.sizes, &update.spec), local_elements(lane, &update.sizes, &cut));
    let parts: usize = partial.iter().map(|&axis| lane.mesh.parts(&operand.spec[axis])).product();
    if needs > has && needs > parts * local_elements(lane, &operand.sizes, &operand.spec) {
        return Ok(None);
    }
    let indices = lane.laid_out(indices, &spec)?;
    let update = lane.laid_out(update, &cut)?;
    let mut places = Places::new(lane, indices)?;
    for (number, &axis) in op.scatter_dims_to_operand_dims.iter().enumerate() {
        if op.mode == GatherMode::Clip {
            places.clamp(lane, number, (operand.sizes[axis] - window[axis]) as i64)?;
        }
        if partial.contains(&axis) {
            let over = &operand.spec[axis];
            places.shift(lane, number, over, operand.sizes[axis] / lane.mesh.parts(over), 0)?;
        }
    }
    let indices = places.together(lane)?;
    let local = Scatter { mode: GatherMode::Fill, indices_are_sorted: false, ..op.clone() };
    let before = match apart.is_empty() {
        true => operand.atom,
        false => lane.b.zeros_like(operand.atom)?,
    };
    let mut atom = lane.b.emit1(local, &[before, indices, update])?;
    if !apart.is_empty() {
        // What is there counts once.
        let sum = lane.folded(atom, AxisReduceKind::Sum, &apart)?;
        atom = lane.b.add(operand.atom, sum)?;
    }
    Ok(Some(Part { atom, ..operand.clone() }))
}

fn written(lane: &mut Lane<'_>, operand: &Part, update: &Part, window: &Window) -> Result<Part> {
    let rank = operand.sizes.len();
    let partial: Axes = (0..rank).filter(|&axis| is_partial(operand, &window.sizes, axis)).collect();
    let zero = lane.b.int_scalar(DType::I32, 0);
    let mut inside: Option<Atom> = None;
    let mut starts: SmallVec<[Atom; 4]> = smallvec![zero; rank];
    for axis in 0..rank {
        let Some(start) = window.starts[axis] else { continue };
        let most = operand.sizes[axis] - window.sizes[axis];
        let (start, holds) = bounded(lane, start, most, window.clamped)?;
        starts[axis] = start;
        for holds in holds.into_iter().flatten() {
            inside = Some(both(lane, inside, holds)?);
        }
    }
    let spec = |&axis: &usize| match partial.contains(&axis) {
        true => MeshAxes::new(),
        false => operand.spec[axis].clone(),
    };
    let mut new = lane.laid_out(update, &window.axes.iter().map(spec).collect::<Spec>())?;
    let mut shape: Shape = smallvec![Dim::Const(1); rank];
    window.axes.iter().zip(lane.b.shape(new)).for_each(|(&axis, size)| shape[axis] = size);
    new = lane.b.reshape(new, &shape)?;
    let mut lines: SmallVec<[(usize, Atom); 2]> = SmallVec::new();
    for &axis in &partial {
        let over = &operand.spec[axis];
        let step = operand.sizes[axis] / lane.mesh.parts(over);
        let place = lane.place(over, step)?;
        // The device's first element, counted from the window's.
        let first = lane.b.sub(place, starts[axis])?;
        let nothing = lane.b.scalar(lane.b.dtype(new), 0.0);
        let mut padding_config = vec![(0, 0, 0); rank];
        padding_config[axis] = (step as i64, step as i64, 0);
        let padded = lane.b.emit1(Pad { padding_config }, &[new, nothing])?;
        let before = lane.b.int_scalar(DType::I32, step as i64);
        let begin = lane.b.add(first, before)?;
        shape[axis] = Dim::Const(step);
        let at = (0..rank).map(|other| if other == axis { begin } else { zero });
        let operands: SmallVec<[Atom; 5]> = std::iter::once(padded).chain(at).collect();
        new = lane.b.emit1(DynamicSlice { slice_sizes: shape.clone() }, &operands)?;
        lines.push((axis, line(lane, first, step, window.sizes[axis])?));
        starts[axis] = zero;
    }
    for (axis, line) in lines {
        let line = lane.b.broadcast_in_dim(line, &shape, &[axis])?;
        inside = Some(match inside {
            Some(other) if lane.b.rank(other) == 0 => {
                let other = lane.b.broadcast_scalar(other, &shape)?;
                lane.b.binary(Binary::And, other, line)?
            }
            other => both(lane, other, line)?,
        });
    }
    // Along axes that the window spans it begins where the part does.
    (0..rank).filter(|&axis| !operand.spec[axis].is_empty()).for_each(|axis| starts[axis] = zero);
    let at: SmallVec<[Atom; 5]> = std::iter::once(operand.atom).chain(starts.iter().copied()).collect();
    let old = lane.b.emit1(DynamicSlice { slice_sizes: shape }, &at)?;
    let combined = match window.kind {
        ScatterKind::Set => new,
        ScatterKind::Add => lane.b.add(old, new)?,
        ScatterKind::Sub => lane.b.sub(old, new)?,
        ScatterKind::Mul => lane.b.mul(old, new)?,
        ScatterKind::Min => lane.b.binary(Binary::Min, old, new)?,
        ScatterKind::Max => lane.b.binary(Binary::Max, old, new)?,
    };
    let merged = match inside {
        Some(inside) => lane.b.select(inside, combined, old)?,
        None => combined,
    };
    let at: SmallVec<[Atom; 6]> = [operand.atom, merged].into_iter().chain(starts).collect();
    let atom = lane.b.emit1(DynamicUpdateSlice {}, &at)?;
    Ok(Part { atom, ..operand.clone() })
}

/// Where a window begins, in 32 bits, and what holds if it is inside of the array: of one that is moved into it nothing is asked.
fn bounded(
    lane: &mut Lane<'_>,
    mut start: Atom,
    most: usize,
    clamped: bool,
) -> Result<(Atom, Option<[Atom; 2]>)> {
    if lane.b.dtype(start).size() < 4 {
        start = lane.b.convert(start, DType::I32)?;
    }
    let dtype = lane.b.dtype(start);
    let (zero, most) = (lane.b.int_scalar(dtype, 0), lane.b.int_scalar(dtype, most as i64));
    if clamped {
        start = lane.b.binary(Binary::Max, start, zero)?;
        start = lane.b.binary(Binary::Min, start, most)?;
        return Ok((lane.b.convert(start, DType::I32)?, None));
    }
    let holds = [lane.b.compare(Compare::Ge, start, zero)?, lane.b.compare(Compare::Le, start, most)?];
    Ok((lane.b.convert(start, DType::I32)?, Some(holds)))
}

/// For each of the device's elements along an axis whether it is in a window of this length; `first` is the place of the first one in it.
fn line(lane: &mut Lane<'_>, first: Atom, step: usize, length: usize) -> Result<Atom> {
    let shape = [Dim::Const(step)];
    let count = lane.b.iota(DType::I32, &shape, 0)?;
    let first = lane.b.broadcast_scalar(first, &shape)?;
    let place = lane.b.add(count, first)?;
    let mut found = None;
    for (compare, bound) in [(Compare::Ge, 0), (Compare::Lt, length as i64)] {
        let bound = lane.b.int_scalar(DType::I32, bound);
        let bound = lane.b.broadcast_scalar(bound, &shape)?;
        let holds = lane.b.compare(compare, place, bound)?;
        found = Some(both(lane, found, holds)?);
    }
    found.ok_or_else(|| ferrax_ir::internal_error!("a window has two ends"))
}

fn both(lane: &mut Lane<'_>, one: Option<Atom>, other: Atom) -> Result<Atom> {
    match one {
        Some(one) => lane.b.binary(Binary::And, one, other),
        None => Ok(other),
    }
}
