//! Slices, padding and concatenations along cut axes, as windows of what devices have.
//!
//! In: one of these ops whose operands are cut along an axis that it changes, and how its result is to be cut. Out: the device's window of the
//! result (`span`), or nothing where windows do not help: the op is then one of whole arrays. A slice gives a name to what is there and exchanges nothing; a strided
//! one does so where each part has as many of its elements, and so does padding between elements. Padding around an array and
//! concatenations fetch what a device's window of the result has of each operand (`neighbours`), and choose by place. The result is
//! held in equal parts if it has as many elements as one operand, else in the middle of the devices, if these have about as much each as
//! of an operand. Cost: as of `neighbours`, for each operand.

use ferrax_ir::ops::{Concatenate, Pad, Slice};
use ferrax_ir::{Atom, Axes, Dim, Op, Result};
use smallvec::SmallVec;

use super::lookups::taken;
use super::neighbours::{Wanted, windows};
use super::propagate::Spec;
use super::reshard::{Lane, Part};
use super::span::{Span, Spans};
use super::updates::updated;

/// Concatenations of more operands are of whole arrays: each costs as much as the result.
const MOST_PIECES: usize = 16;

/// See the head of the file. `wanted` is how the result hangs together with other arrays, whatever its sizes.
pub fn moved(
    lane: &mut Lane<'_>,
    op: &Op,
    operands: &[Part],
    sizes: &[usize],
    wanted: &Spec,
) -> Result<Option<Part>> {
    let cut = |part: &Part| part.spec.iter().any(|axes| !axes.is_empty());
    if !operands.iter().any(cut) || operands.iter().any(|part| part.sizes.contains(&0)) || sizes.contains(&0)
    {
        return Ok(None);
    }
    match (op, operands) {
        (Op::Slice(op), [operand]) => sliced(lane, op, operand, sizes, wanted),
        (Op::Pad(op), [operand, value]) => padded(lane, op, operand, value, sizes, wanted),
        (Op::Concatenate(op), operands) => joined(lane, op.dimension, operands, sizes, wanted),
        _ => match updated(lane, op, operands)? {
            Some(part) => Ok(Some(part)),
            None => taken(lane, op, operands, sizes),
        },
    }
}

/// Whether the result may be cut along an axis as the operand is.
fn may_stay(part: &Part, axis: usize, wanted: &Spec) -> bool {
    let own = &part.spec[axis];
    wanted[axis] == *own || !wanted.iter().flatten().any(|name| own.contains(name))
}

fn sliced(
    lane: &mut Lane<'_>,
    op: &Slice,
    operand: &Part,
    sizes: &[usize],
    wanted: &Spec,
) -> Result<Option<Part>> {
    let rank = sizes.len();
    let local = lane.b.shape(operand.atom);
    let (mut starts, mut limits) = (vec![0; rank], local.clone());
    let (mut strides, mut spans) = (Axes::from_elem(1, rank), Spans::new());
    let mut changes = false;
    for axis in 0..rank {
        let what = "a slice over a mesh";
        let (start, limit) = (op.start_indices[axis].require(what)?, op.limit_indices[axis].require(what)?);
        let stride = op.strides.as_ref().map_or(1, |strides| strides[axis]);
        if operand.spec[axis].is_empty() {
            (starts[axis], limits[axis], strides[axis]) = (start, Dim::Const(limit), stride);
            continue;
        }
        let Some(span) = operand.span(axis, lane.mesh) else { return Ok(None) };
        if (start, stride, sizes[axis]) == (0, 1, operand.sizes[axis]) {
            spans.extend(operand.spans.iter().copied().filter(|(of, _)| *of == axis));
            continue;
        }
        if span.step % stride != 0 || !may_stay(operand, axis, wanted) {
            return Ok(None);
        }
        changes = true;
        // The first place of each device that has an element of the result.
        let skip = (start + span.before as usize) % stride;
        let count = lane.mesh.parts(&operand.spec[axis]);
        let mut found = Span {
            step: span.step / stride,
            before: (span.before + start as i64 - skip as i64) / stride as i64,
            length: (span.length - skip).div_ceil(stride),
        };
        let mut first = skip;
        let middle = Span::middle(found.step, count, sizes[axis]);
        if found.length > found.step
            && Span::is_near(found.step, count, sizes[axis])
            && found.contains(&middle)
        {
            first += (found.before - middle.before) as usize * stride;
            found = middle;
        }
        starts[axis] = first;
        limits[axis] = Dim::Const(first + (found.length - 1) * stride + 1);
        strides[axis] = stride;
        if !found.is_even(count, sizes[axis]) {
            spans.push((axis, found));
        }
    }
    if !changes && operand.spans.is_empty() {
        return Ok(None);
    }
    let all = (0..rank).all(|axis| starts[axis] == 0 && limits[axis] == local[axis] && strides[axis] == 1);
    let atom = match all {
        true => operand.atom,
        false => {
            let start_indices = starts.into_iter().map(Dim::Const).collect();
            let strides = strides.iter().any(|&stride| stride != 1).then_some(strides);
            lane.b.emit1(Slice { start_indices, limit_indices: limits, strides }, &[operand.atom])?
        }
    };
    Ok(Some(Part { atom, spec: operand.spec.clone(), sizes: sizes.into(), spans }))
}

fn padded(
    lane: &mut Lane<'_>,
    op: &Pad,
    operand: &Part,
    value: &Part,
    sizes: &[usize],
    wanted: &Spec,
) -> Result<Option<Part>> {
    let changed = |axis: &usize| !operand.spec[*axis].is_empty() && op.padding_config[*axis] != (0, 0, 0);
    let axes: Axes = (0..sizes.len()).filter(changed).collect();
    // What the result is along each of these axes, and the operand as it is held with what is between its elements.
    let mut targets: SmallVec<[(usize, Span, Span); 2]> = SmallVec::new();
    for &axis in &axes {
        let (low, _, interior) = op.padding_config[axis];
        let Some(span) = operand.span(axis, lane.mesh) else { return Ok(None) };
        let apart = interior as usize + 1;
        let span =
            Span { step: span.step * apart, before: span.before * apart as i64, length: span.length * apart };
        let count = lane.mesh.parts(&operand.spec[axis]);
        if wanted[axis] != operand.spec[axis] || !Span::is_near(span.step, count, sizes[axis]) {
            return Ok(None);
        }
        let there = Span { before: span.before - low, ..span };
        let middle = Span::middle(span.step, count, sizes[axis]);
        let keeps = there.covers(count, sizes[axis]) && sizes[axis] != span.step * count;
        targets.push((axis, span, if keeps { there } else { middle }));
    }
    if axes.is_empty() && operand.spans.is_empty() {
        return Ok(None);
    }
    let (mut between, mut around) = (vec![(0, 0, 0); sizes.len()], op.padding_config.clone());
    for &axis in &axes {
        let (_, _, interior) = around[axis];
        (between[axis], around[axis]) = ((0, interior, interior), (0, 0, 0));
    }
    let value = lane.laid_out(value, &Spec::new())?;
    let mut atom = local_pad(lane, operand.atom, value, between)?;
    let mut spans = operand.spans.clone();
    spans.retain(|(axis, _)| !axes.contains(axis));
    for (axis, has, target) in targets {
        let (over, (low, _, interior)) = (&operand.spec[axis], op.padding_config[axis]);
        let size = (operand.sizes[axis] - 1) * (interior as usize + 1) + 1;
        let one = Wanted { atom, size, has, before: target.before + low, length: target.length };
        if has.before != one.before || has.length != one.length {
            atom = windows(lane, axis, over, &[one])?[0];
        }
        let shape = lane.b.shape(atom);
        if let Some(inside) = lane.inside(&shape, axis, over, target, low, low + size as i64)? {
            let values = lane.b.broadcast_scalar(value, &shape)?;
            atom = lane.b.select(inside, atom, values)?;
        }
        if !target.is_even(lane.mesh.parts(over), sizes[axis]) {
            spans.push((axis, target));
        }
    }
    atom = local_pad(lane, atom, value, around)?;
    Ok(Some(Part { atom, spec: operand.spec.clone(), sizes: sizes.into(), spans }))
}

fn local_pad(
    lane: &mut Lane<'_>,
    x: Atom,
    value: Atom,
    padding_config: Vec<(i64, i64, i64)>,
) -> Result<Atom> {
    match padding_config.iter().all(|axis| *axis == (0, 0, 0)) {
        true => Ok(x),
        false => lane.b.emit1(Pad { padding_config }, &[x, value]),
    }
}

/// Operands that follow each other, where they begin, their size, and how they are held: in windows, or whole.
type Piece = (SmallVec<[Atom; 2]>, usize, usize, Option<Span>);

/// The operands one behind the other: whole ones that follow each other are one.
fn joined(
    lane: &mut Lane<'_>,
    axis: usize,
    operands: &[Part],
    sizes: &[usize],
    wanted: &Spec,
) -> Result<Option<Part>> {
    let over = &wanted[axis];
    let count = lane.mesh.parts(over);
    if over.is_empty() {
        return Ok(None);
    }
    let steps = operands.iter().filter(|part| part.spec[axis] == *over);
    let steps = steps.filter_map(|part| Some((part.span(axis, lane.mesh)?.step, part)));
    let near = steps.filter(|(step, _)| Span::is_near(*step, count, sizes[axis]));
    let Some((step, like)) = near.min_by_key(|(step, _)| sizes[axis].abs_diff(step * count)) else {
        return Ok(None);
    };
    let cut = like.spec.clone();
    let mut spans = like.spans.clone();
    spans.retain(|(of, _)| *of != axis);
    let held = |part: &Part| {
        let span = part.span(axis, lane.mesh);
        span.filter(|span| span.step == step && part.spec[axis] == *over)
    };
    let held: Vec<Option<Span>> = operands.iter().map(held).collect();
    let follows = |pair: &&[Option<Span>]| pair.iter().any(Option::is_some);
    if held.windows(2).filter(follows).count() >= MOST_PIECES {
        return Ok(None);
    }
    // What each operand is, and where it begins: held in windows, or whole.
    let mut pieces: Vec<Piece> = Vec::new();
    let mut begin = 0;
    for (part, here) in operands.iter().zip(held) {
        let size = part.sizes[axis];
        let (mut to, mut held) = (cut.clone(), spans.clone());
        match here {
            Some(span) if !span.is_even(count, size) => held.push((axis, span)),
            Some(_) => {}
            None => to[axis].clear(),
        }
        let atom = lane.aligned(part, &to, &held)?;
        match (pieces.last_mut(), here) {
            (Some((atoms, _, of_all, None)), None) => {
                atoms.push(atom);
                *of_all += size;
            }
            _ => pieces.push((SmallVec::from_iter([atom]), begin, size, here)),
        }
        begin += size;
    }
    let target = Span::middle(step, count, sizes[axis]);
    let held = pieces.iter().filter_map(|(atoms, begin, size, has)| {
        let (atom, has, before) = (atoms[0], (*has)?, target.before + *begin as i64);
        Some(Wanted { atom, size: *size, has, before, length: target.length })
    });
    let held: Vec<Wanted> = held.collect();
    let mut held = windows(lane, axis, over, &held)?.into_iter();
    let mut found: Option<Atom> = None;
    for (atoms, begin, size, has) in pieces {
        let piece = match has {
            Some(_) => held.next(),
            None => {
                let all = match atoms.as_slice() {
                    [only] => *only,
                    several => lane.b.emit1(Concatenate { dimension: axis }, several)?,
                };
                let window = Span { before: target.before + begin as i64, ..target };
                Some(lane.picked(all, axis, size, over, window)?)
            }
        };
        found = match (found, piece) {
            (Some(before), Some(piece)) => {
                let shape = lane.b.shape(piece);
                Some(match lane.inside(&shape, axis, over, target, begin as i64, sizes[axis] as i64)? {
                    Some(inside) => lane.b.select(inside, piece, before)?,
                    None => piece,
                })
            }
            (before, piece) => piece.or(before),
        };
    }
    let Some(atom) = found else { return Ok(None) };
    if !target.is_even(count, sizes[axis]) {
        spans.push((axis, target));
    }
    Ok(Some(Part { atom, spec: cut, sizes: sizes.into(), spans }))
}
