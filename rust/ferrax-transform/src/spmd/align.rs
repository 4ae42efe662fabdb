//! Laying out anew arrays of which devices hold windows (`span`).
//!
//! In: an array as devices hold it, and how they are to hold it. Out: that. Windows of the same steps are exchanged between neighbours; an
//! array that is to be whole is gathered, of which each device sends what it has of it, and a small one first meets on one device, so that
//! no device sends more than is in it. Cost: as of `neighbours`.

use ferrax_ir::ops::{Binary, Compare, Concatenate, DynamicSlice, Pad};
use ferrax_ir::{Atom, DType, Dim, Result, Shape, ShowShape, unsupported};
use smallvec::SmallVec;

use super::neighbours::{Wanted, part_of, windows};
use super::propagate::{MeshAxes, Spec};
use super::reshard::{Lane, Part};
use super::span::{Span, Spans};

impl Lane<'_> {
    /// The array in equal parts, or whole where its size has none; `to` says where equal parts are of no use.
    pub fn evened(&mut self, part: &Part, to: &Spec) -> Result<Part> {
        let mut part = part.clone();
        while let Some(&(axis, span)) = part.spans.first() {
            let count = self.mesh.parts(&part.spec[axis]);
            let even = Span::even(span.step);
            match even.is_even(count, part.sizes[axis]) && to[axis].starts_with(&part.spec[axis]) {
                true => part = self.moved(&part, axis, even)?,
                false => part = self.gathered(&part, axis)?,
            }
        }
        Ok(part)
    }

    /// The array held in other windows along an axis, of the same steps.
    pub fn moved(&mut self, part: &Part, axis: usize, to: Span) -> Result<Part> {
        let Some(has) = part.span(axis, self.mesh) else { return Ok(part.clone()) };
        let size = part.sizes[axis];
        let atom = match has == to {
            true => part.atom,
            false => {
                let wanted = Wanted { atom: part.atom, size, has, before: to.before, length: to.length };
                let over = &part.spec[axis];
                windows(self, axis, over, &[wanted])?[0]
            }
        };
        let mut spans = part.spans.clone();
        spans.retain(|(of, _)| *of != axis);
        if !to.is_even(self.mesh.parts(&part.spec[axis]), size) {
            spans.push((axis, to));
        }
        Ok(Part { atom, spans, ..part.clone() })
    }

    /// The array, whole along an axis.
    pub fn gathered(&mut self, part: &Part, axis: usize) -> Result<Part> {
        let mut found = part.clone();
        found.spans.retain(|(of, _)| *of != axis);
        found.spec[axis] = MeshAxes::new();
        let (Some(span), size) = (part.span(axis, self.mesh), part.sizes[axis]) else { return Ok(found) };
        let over = &part.spec[axis];
        let count = self.mesh.parts(over);
        let total = span.step * count;
        let (from, first);
        if size <= span.step {
            // All of it on the device that has the first element.
            let on = (span.before as usize / span.step).min(count - 1);
            let before = (on * span.step) as i64;
            let wanted = Wanted { atom: part.atom, size, has: span, before, length: size };
            from = windows(self, axis, over, &[wanted])?[0];
            first = on * size;
        } else if size + span.before as usize <= total {
            from = part_of(self, part.atom, axis, 0, span.step)?;
            first = span.before as usize;
        } else if size <= total {
            let moved = self.moved(part, axis, Span::middle(span.step, count, size))?;
            return self.gathered(&moved, axis);
        } else {
            found.atom = self.gathered_longer(part, axis, span)?;
            return Ok(found);
        }
        let whole = whole_along(&part.spec, axis);
        let all = self.cut_anew(from, &part.spec, &whole)?;
        found.atom = part_of(self, all, axis, first, first + size)?;
        Ok(found)
    }

    /// An array that is longer than the parts together, of which the last device has the end.
    fn gathered_longer(&mut self, part: &Part, axis: usize, span: Span) -> Result<Atom> {
        let (over, size) = (&part.spec[axis], part.sizes[axis]);
        let count = self.mesh.parts(over);
        let part = self.moved(part, axis, Span::middle(span.step, count, size))?;
        let (total, length) = (span.step * count, span.step + size - span.step * count);
        let whole = whole_along(&part.spec, axis);
        let all = self.cut_anew(part.atom, &part.spec, &whole)?;
        let end = count * length;
        let rest = part_of(self, all, axis, end - (size - total), end)?;
        let mut shape = self.b.shape(all);
        shape[axis] = Dim::Const(length);
        shape.insert(axis, Dim::Const(count));
        let rows = self.b.reshape(all, &shape)?;
        let rows = part_of(self, rows, axis + 1, 0, span.step)?;
        shape.remove(axis);
        shape[axis] = Dim::Const(total);
        let parts = self.b.reshape(rows, &shape)?;
        self.b.emit1(Concatenate { dimension: axis }, &[parts, rest])
    }

    /// The array cut so, and held so along these axes, which are cut.
    pub fn aligned(&mut self, part: &Part, to: &Spec, spans: &Spans) -> Result<Atom> {
        let mut part = part.clone();
        // Along these axes arrays with the same steps only move.
        let stays = |lane: &Lane<'_>, part: &Part, axis: usize, span: &Span| {
            let has = part.span(axis, lane.mesh);
            part.spec[axis] == to[axis] && has.is_some_and(|has| has.step == span.step)
        };
        let target = |axis: usize| spans.iter().find(|(of, _)| *of == axis).map(|(_, span)| *span);
        for (axis, has) in part.spans.clone() {
            let even = Span::even(has.step);
            let parts = self.mesh.parts(&part.spec[axis]);
            part = match target(axis) {
                Some(span) if stays(self, &part, axis, &span) => continue,
                None if even.is_even(parts, part.sizes[axis]) && to[axis].starts_with(&part.spec[axis]) => {
                    self.moved(&part, axis, even)?
                }
                _ => self.gathered(&part, axis)?,
            };
        }
        let mut cut = to.clone();
        for (axis, span) in spans {
            cut[*axis] = match stays(self, &part, *axis, span) {
                true => to[*axis].clone(),
                false => MeshAxes::new(),
            };
        }
        part.atom = self.cut_anew(part.atom, &part.spec, &cut)?;
        part.spec = cut;
        for &(axis, span) in spans {
            match part.spec[axis].is_empty() {
                true => part.atom = self.picked(part.atom, axis, part.sizes[axis], &to[axis], span)?,
                false => part = self.moved(&part, axis, span)?,
            }
        }
        Ok(part.atom)
    }

    /// The device's window of an array that is whole along an axis. The window may begin behind the array's first element.
    pub fn picked(&mut self, x: Atom, axis: usize, size: usize, over: &MeshAxes, span: Span) -> Result<Atom> {
        let count = self.mesh.parts(over);
        let mut shape: Shape = self.b.shape(x);
        let reach = span.end(count);
        let nothing = self.any(x)?;
        let mut padding_config = vec![(0, 0, 0); shape.len()];
        padding_config[axis] = (span.before, reach - size as i64, 0);
        let padded = self.b.emit1(Pad { padding_config }, &[x, nothing])?;
        shape[axis] = Dim::Const(span.length);
        let place = self.place(over, span.step)?;
        let zero = self.b.int_scalar(DType::I32, 0);
        let starts = (0..shape.len()).map(|other| if other == axis { place } else { zero });
        let operands: SmallVec<[Atom; 5]> = std::iter::once(padded).chain(starts).collect();
        self.b.emit1(DynamicSlice { slice_sizes: shape }, &operands)
    }

    /// Some value of an array's dtype.
    fn any(&mut self, x: Atom) -> Result<Atom> {
        let dtype = self.b.dtype(x);
        if !dtype.is_key() {
            return Ok(self.b.scalar(dtype, 0.0));
        }
        let mut first = x;
        let shape = self.b.shape(x);
        if shape.contains(&Dim::Const(0)) {
            return Err(unsupported!("windows of keys of shape {} over devices", ShowShape(&shape)));
        }
        for axis in 0..shape.len() {
            first = part_of(self, first, axis, 0, 1)?;
        }
        self.b.reshape(first, &[])
    }

    /// For each element that the device holds of a window along an axis of an array of this shape whether it is one of `from..to` of the
    /// array; `None` if all are.
    pub fn inside(
        &mut self,
        shape: &[Dim],
        axis: usize,
        over: &MeshAxes,
        span: Span,
        from: i64,
        to: i64,
    ) -> Result<Option<Atom>> {
        let (from, to) =
            ((-span.before < from).then_some(from), (span.end(self.mesh.parts(over)) > to).then_some(to));
        if from.is_none() && to.is_none() {
            return Ok(None);
        }
        let line = [Dim::Const(span.length)];
        let place = self.place(over, span.step)?;
        let count = self.b.iota(DType::I32, &line, 0)?;
        let mut found: Option<Atom> = None;
        for (bound, compare) in [(from, Compare::Ge), (to, Compare::Lt)] {
            let Some(bound) = bound else { continue };
            let bound = self.b.int_scalar(DType::I32, bound + span.before);
            let bound = self.b.sub(bound, place)?;
            let bound = self.b.broadcast_scalar(bound, &line)?;
            let holds = self.b.compare(compare, count, bound)?;
            found = Some(match found {
                Some(other) => self.b.binary(Binary::And, other, holds)?,
                None => holds,
            });
        }
        found.map(|line| self.b.broadcast_in_dim(line, shape, &[axis])).transpose()
    }

    /// For each element that the device holds of a window along an axis of an array of this shape whether it is the first device that
    /// does, of those with the element at a place before the next device's window; `None` if all are.
    pub fn first_holds(
        &mut self,
        shape: &[Dim],
        axis: usize,
        over: &MeshAxes,
        span: Span,
    ) -> Result<Option<Atom>> {
        if span.length == span.step {
            return Ok(None);
        }
        // The last device has the end alone.
        let place = self.place(over, span.step)?;
        let end = ((self.mesh.parts(over) - 1) * span.step) as i64;
        let end = self.b.int_scalar(DType::I32, end);
        let last = self.b.compare(Compare::Ge, place, end)?;
        let last = self.b.broadcast_scalar(last, shape)?;
        let line = [Dim::Const(span.length)];
        let count = self.b.iota(DType::I32, &line, 0)?;
        let step = self.b.int_scalar(DType::I32, span.step as i64);
        let step = self.b.broadcast_scalar(step, &line)?;
        let first = self.b.compare(Compare::Lt, count, step)?;
        let first = self.b.broadcast_in_dim(first, shape, &[axis])?;
        Ok(Some(self.b.binary(Binary::Or, last, first)?))
    }
}

fn whole_along(spec: &Spec, axis: usize) -> Spec {
    let mut whole = spec.clone();
    whole[axis].clear();
    whole
}
