//! Windows at computed places, read and updated, and small products, in native programs.
//!
//! Elements of a window that follow one another in memory are read and updated in lanes: the last group of them ends where
//! they do, and begins in those that are done.

use ferrax_ir::ops::{DotGeneral, GatherMode, Scatter, ScatterKind};
use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Result};
use smallvec::SmallVec;

use super::arrays::{Array, MOST_ELEMENTS, MOST_LANES, element, moved, parts};
use super::lanes::Draft;
use super::lower::{Lowering, MOST_CODE};
use super::{Address, Code, GROUP, Id};
use crate::chain::computes;
use crate::index::row_major;
use crate::plan::Argument;
use crate::tuning::TINY_PRODUCT;

/// A window of an array that is updated.
struct Window<'a> {
    operand: &'a Argument,
    /// Its sizes, one for each axis of the operand, and the first index along each.
    sizes: SmallVec<[usize; 4]>,
    starts: SmallVec<[Option<Id>; 4]>,
    kind: ScatterKind,
    /// Whether it is inside, where what is not has no effect.
    inside: Option<Id>,
}

/// Elements of an array, from one on.
#[derive(Clone, Copy)]
struct Elements<'a> {
    array: &'a Array,
    first: usize,
}

/// The parts of a window whose elements follow one another.
fn runs(distances: &[i64]) -> impl Iterator<Item = &[i64]> {
    distances.chunk_by(|a, b| a + 1 == *b)
}

impl Lowering<'_> {
    /// `dynamic_update_slice`; `own` says that the operand's memory may be written.
    pub fn update_slice(
        &mut self,
        inputs: &[Argument],
        arrays: &[Array],
        own: bool,
    ) -> Result<Option<Array>> {
        let (operand, update) = (&inputs[0], &inputs[1]);
        let mut starts: SmallVec<[Option<Id>; 4]> = SmallVec::new();
        for (axis, (input, array)) in inputs.iter().zip(arrays).skip(2).enumerate() {
            let Some(start) = self.index(input, array, 0)? else { return Ok(None) };
            starts.push(Some(self.clamped(start, operand.sizes[axis] - update.sizes[axis])?));
        }
        let window = Window {
            operand,
            sizes: update.sizes.iter().copied().collect(),
            starts,
            kind: ScatterKind::Set,
            inside: None,
        };
        self.update(&window, &arrays[0], &arrays[1], own)
    }

    /// `dynamic_slice`
    pub fn slice(
        &mut self,
        inputs: &[Argument],
        output: &Argument,
        arrays: &[Array],
    ) -> Result<Option<Array>> {
        let operand = &inputs[0];
        let Some((_, parts)) = parts(operand.dtype) else { return Ok(None) };
        let mut starts: SmallVec<[Option<Id>; 4]> = SmallVec::new();
        for (axis, (input, array)) in inputs.iter().zip(arrays).skip(1).enumerate() {
            let Some(start) = self.index(input, array, 0)? else { return Ok(None) };
            starts.push(Some(self.clamped(start, operand.sizes[axis] - output.sizes[axis])?));
        }
        let (first, distances) = self.places(operand, &starts, &output.sizes)?;
        let memory = self.in_memory(&arrays[0], operand.dtype, element_count(&operand.sizes));
        let Some(memory) = memory else { return Ok(None) };
        let Some(window) = self.element(&memory, first, operand.dtype.size())? else { return Ok(None) };
        if distances.len() >= self.target.lanes && element(operand.dtype).is_some() {
            return self.window_in_lanes(&window, operand.dtype, &distances);
        }
        if distances.len() > MOST_ELEMENTS {
            return Ok(None);
        }
        let elements = distances.iter().flat_map(|&distance| (0..parts).map(move |part| (distance, part)));
        let values: Option<Vec<Id>> =
            elements.map(|(at, part)| self.read(&window, operand.dtype, at as usize, part)).collect();
        Ok(values.map(Array::Values))
    }

    /// The elements of a window in memory, of one that nothing writes where they are.
    fn window_in_lanes(&mut self, window: &Array, dtype: DType, distances: &[i64]) -> Result<Option<Array>> {
        if matches!(window, Array::Memory { constant: true, .. }) && runs(distances).count() == 1 {
            return Ok(Some(window.clone()));
        }
        let Some(room) = self.room(distances.len() * dtype.size()) else { return Ok(None) };
        let mut done = 0;
        for run in runs(distances) {
            let from = Elements { array: window, first: run[0] as usize };
            let to = Elements { array: &room, first: done };
            if self.change(None, dtype, to, from, run.len())?.is_none() {
                return Ok(None);
            }
            done += run.len();
        }
        Ok(Some(room))
    }

    /// The first element of a window of an array, and the distance of each from it.
    fn places(
        &mut self,
        operand: &Argument,
        starts: &[Option<Id>],
        sizes: &[usize],
    ) -> Result<(Id, Vec<i64>)> {
        let strides = row_major(&operand.sizes);
        let mut first: Option<Id> = None;
        for (start, &stride) in starts.iter().zip(&strides) {
            let Some(start) = *start else { continue };
            let stride = self.build.int(stride);
            let moved = self.build.compute(ScalarOp::Mul, ScalarType::I64, &[start, stride])?;
            first = Some(match first {
                Some(first) => self.build.compute(ScalarOp::Add, ScalarType::I64, &[first, moved])?,
                None => moved,
            });
        }
        let mut distances = vec![0i64];
        for (&size, &stride) in sizes.iter().zip(&strides) {
            let along = |from: i64| (0..size as i64).map(move |index| from + index * stride);
            distances = distances.into_iter().flat_map(along).collect();
        }
        Ok((first.unwrap_or_else(|| self.build.int(0)), distances))
    }

    /// A scatter of one window.
    pub fn scatter(
        &mut self,
        op: &Scatter,
        inputs: &[Argument],
        arrays: &[Array],
        own: bool,
    ) -> Result<Option<Array>> {
        let (operand, indices, updates) = (&inputs[0], &inputs[1], &inputs[2]);
        let Some((&width, windows)) = indices.sizes.split_last() else { return Ok(None) };
        let batched = !op.operand_batching_dims.is_empty();
        if batched || windows.iter().product::<usize>() != 1 || width != op.scatter_dims_to_operand_dims.len()
        {
            return Ok(None);
        }
        let rank = operand.sizes.len();
        let mut sizes: SmallVec<[usize; 4]> = SmallVec::from_elem(1, rank);
        let axes = (0..rank).filter(|axis| !op.inserted_window_dims.contains(axis));
        for (axis, &from) in axes.zip(&op.update_window_dims) {
            sizes[axis] = updates.sizes[from];
        }
        let mut starts: SmallVec<[Option<Id>; 4]> = SmallVec::from_elem(None, rank);
        let mut inside: Option<Id> = None;
        for (place, &axis) in op.scatter_dims_to_operand_dims.iter().enumerate() {
            let Some(start) = self.index(indices, &arrays[1], place)? else { return Ok(None) };
            let Some(last) = operand.sizes[axis].checked_sub(sizes[axis]) else { return Ok(None) };
            if op.mode == GatherMode::Clip {
                starts[axis] = Some(self.clamped(start, last)?);
                continue;
            }
            let (zero, last) = (self.build.int(0), self.build.int(last as i64));
            let bool = ScalarType::Bool;
            let from = self.build.compute(ScalarOp::Le, bool, &[zero, start])?;
            let to = self.build.compute(ScalarOp::Le, bool, &[start, last])?;
            for condition in [from, to] {
                inside = Some(match inside {
                    Some(inside) => self.build.compute(ScalarOp::And, bool, &[inside, condition])?,
                    None => condition,
                });
            }
            starts[axis] = Some(start);
        }
        let window = Window { operand, sizes, starts, kind: op.kind, inside };
        self.update(&window, &arrays[0], &arrays[2], own)
    }

    /// An element of an array of indices.
    fn index(&mut self, argument: &Argument, array: &Array, element: usize) -> Result<Option<Id>> {
        match self.read(array, argument.dtype, element, 0) {
            Some(index) if !self.build.type_of(index).is_float() => {
                self.build.compute(ScalarOp::Convert, ScalarType::I64, &[index]).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn clamped(&mut self, index: Id, last: usize) -> Result<Id> {
        let (zero, last) = (self.build.int(0), self.build.int(last as i64));
        let index = self.build.compute(ScalarOp::Max, ScalarType::I64, &[index, zero])?;
        self.build.compute(ScalarOp::Min, ScalarType::I64, &[index, last])
    }

    /// The operand with its window updated: in memory it is changed, or a copy of it; of few values each is chosen.
    fn update(
        &mut self,
        window: &Window<'_>,
        operand: &Array,
        updates: &Array,
        own: bool,
    ) -> Result<Option<Array>> {
        let dtype = window.operand.dtype;
        let Some((ty, parts)) = parts(dtype) else { return Ok(None) };
        let op = match window.kind {
            ScatterKind::Set => None,
            ScatterKind::Add => Some(ScalarOp::Add),
            ScatterKind::Sub => Some(ScalarOp::Sub),
            ScatterKind::Mul if parts == 1 => Some(ScalarOp::Mul),
            ScatterKind::Min if parts == 1 => Some(ScalarOp::Min),
            ScatterKind::Max if parts == 1 => Some(ScalarOp::Max),
            _ => return Ok(None),
        };
        let count = element_count(&window.operand.sizes);
        let elements: usize = window.sizes.iter().product();
        let (first, distances) = self.places(window.operand, &window.starts, &window.sizes)?;
        let memory = match operand {
            Array::Memory { constant: false, .. } if own => Some(operand.clone()),
            _ if (self.target.lanes..=MOST_LANES).contains(&count) && element(dtype).is_some() => {
                let Some(room) = self.room(count * dtype.size()) else { return Ok(None) };
                if self.copy(operand, &room, dtype, count)?.is_none() {
                    return Ok(None);
                }
                Some(room)
            }
            _ => None,
        };
        if let Some(memory) = memory {
            if window.inside.is_some() {
                self.build.begin_if();
            }
            let Some(changed) = self.element(&memory, first, dtype.size())? else { return Ok(None) };
            let mut done = 0;
            for run in runs(&distances) {
                let to = Elements { array: &changed, first: run[0] as usize };
                let from = Elements { array: updates, first: done };
                if self.change(op, dtype, to, from, run.len())?.is_none() {
                    return Ok(None);
                }
                done += run.len();
            }
            if let Some(holds) = window.inside {
                self.build.end_list(Code::If { holds })?;
                self.build.code(Code::Else);
                self.build.code(Code::End);
            }
            return Ok(Some(memory));
        }
        let Some(new) = self.values(updates, dtype, elements) else { return Ok(None) };
        if count > MOST_ELEMENTS || elements * count > 2 * MOST_ELEMENTS {
            return Ok(None);
        }
        let Some(mut values) = self.values(operand, dtype, count) else { return Ok(None) };
        for (element, &distance) in distances.iter().enumerate() {
            let distance = self.build.int(distance);
            let at = self.build.compute(ScalarOp::Add, ScalarType::I64, &[first, distance])?;
            for place in 0..count {
                let number = self.build.int(place as i64);
                let mut here = self.build.compute(ScalarOp::Eq, ScalarType::Bool, &[at, number])?;
                if let Some(inside) = window.inside {
                    here = self.build.compute(ScalarOp::And, ScalarType::Bool, &[here, inside])?;
                }
                for part in 0..parts {
                    let (old, new) = (values[place * parts + part], new[element * parts + part]);
                    let value = match op {
                        None => new,
                        Some(op) => self.build.compute(op, ty, &[old, new])?,
                    };
                    values[place * parts + part] =
                        self.build.compute(ScalarOp::Select, ty, &[here, value, old])?;
                }
            }
        }
        Ok(Some(Array::Values(values)))
    }

    /// Sets elements that follow one another to others, or to what an operation makes of both.
    fn change(
        &mut self,
        op: Option<ScalarOp>,
        dtype: DType,
        to: Elements<'_>,
        from: Elements<'_>,
        count: usize,
    ) -> Result<Option<()>> {
        let Some((ty, parts)) = parts(dtype) else { return Ok(None) };
        if let (Array::Memory { at, .. }, Array::Memory { at: new, .. }, Some(_)) =
            (to.array, from.array, element(dtype))
            && count >= GROUP
            && op.is_none_or(|op| computes(op, ty, ty) && computes(ScalarOp::Select, ty, ty))
        {
            let place = |at: &Address, first: usize| moved(*at, (first * ty.size()) as i64);
            let (Some(to), Some(from)) = (place(at, to.first), place(new, from.first)) else {
                return Ok(None);
            };
            return self.change_in_lanes(op, ty, to, from, count);
        }
        for element in 0..count {
            if self.build.written() > MOST_CODE {
                return Ok(None);
            }
            for part in 0..parts {
                let Some(new) = self.read(from.array, dtype, from.first + element, part) else {
                    return Ok(None);
                };
                let value = match op {
                    None => new,
                    Some(op) => {
                        let Some(old) = self.read(to.array, dtype, to.first + element, part) else {
                            return Ok(None);
                        };
                        self.build.compute(op, ty, &[old, new])?
                    }
                };
                if self.write_part(value, to.array, (to.first + element) * parts + part).is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(()))
    }

    /// The same of a group of lanes or more.
    fn change_in_lanes(
        &mut self,
        op: Option<ScalarOp>,
        ty: ScalarType,
        to: Address,
        from: Address,
        count: usize,
    ) -> Result<Option<()>> {
        let whole = count / GROUP * GROUP;
        for (first, lanes) in
            [(0, whole), (count - GROUP, GROUP)].into_iter().take(1 + usize::from(whole < count))
        {
            let bytes = (first * ty.size()) as i64;
            let (Some(to), Some(from)) = (moved(to, bytes), moved(from, bytes)) else { return Ok(None) };
            let mut draft = Draft::default();
            let new = draft.block(ty, from);
            let mut value = new;
            if let Some(op) = op {
                let old = draft.block(ty, to);
                value = draft.chain.push(op, ty, &[old, new])?;
                if first < whole && first > 0 {
                    let left = (0..GROUP).map(|lane| u8::from(first + lane >= whole)).collect();
                    let left = self.constant_block(ScalarType::Bool, left, &mut draft)?;
                    value = draft.chain.push(ScalarOp::Select, ty, &[left, value, old])?;
                }
            }
            draft.chain.outputs.push(value);
            self.build.lanes(draft.chain, draft.inputs, SmallVec::from_elem(to, 1), lanes);
        }
        Ok(Some(()))
    }

    /// A product that is computed by plain loops: each sum begins with zero and adds its terms in order.
    pub fn product(
        &mut self,
        op: &DotGeneral,
        inputs: &[Argument],
        output: &Argument,
        arrays: &[Array],
    ) -> Result<Option<Array>> {
        let (left, right) = (&inputs[0], &inputs[1]);
        let dtype = output.dtype;
        let Some((ty, parts)) = parts(dtype) else { return Ok(None) };
        let count = element_count(&output.sizes);
        let mut contracted: SmallVec<[(usize, usize); 4]> =
            op.lhs_contracting.iter().copied().zip(op.rhs_contracting.iter().copied()).collect();
        contracted.sort_unstable();
        let terms: usize = contracted.iter().map(|&(axis, _)| left.sizes[axis]).product();
        let batches: usize = op.lhs_batch.iter().map(|&axis| left.sizes[axis]).product();
        let each = count.checked_div(batches).unwrap_or(0).saturating_mul(terms);
        let is_known = left.dtype == dtype && right.dtype == dtype && dtype != ferrax_ir::DType::Bool;
        if !is_known
            || each > TINY_PRODUCT
            || count > MOST_ELEMENTS
            || count * terms * parts > 4 * MOST_ELEMENTS
        {
            return Ok(None);
        }
        self.elsewhere += 0.5 * (count * terms * parts) as f64;
        let strides = [row_major(&left.sizes), row_major(&right.sizes)];
        let ranks = [left.sizes.len(), right.sizes.len()];
        let zero = self.build.constant(ty, 0);
        let mut values = Vec::with_capacity(count * parts);
        for place in 0..count {
            let mut base = [0i64; 2];
            let mut rest = place;
            for (axis, &size) in output.sizes.iter().enumerate().rev() {
                let index = (rest % size) as i64;
                rest /= size;
                for (side, from) in op.origin(axis, ranks).into_iter().enumerate() {
                    base[side] += from.map_or(0, |axis| index * strides[side][axis]);
                }
            }
            let mut sums = [zero; 2];
            for term in 0..terms {
                let mut at = base;
                let mut rest = term;
                for &(lhs, rhs) in contracted.iter().rev() {
                    let index = (rest % left.sizes[lhs]) as i64;
                    rest /= left.sizes[lhs];
                    at[0] += index * strides[0][lhs];
                    at[1] += index * strides[1][rhs];
                }
                let mut factors = [[zero; 2]; 2];
                for (side, factors) in factors.iter_mut().enumerate() {
                    for (part, factor) in factors.iter_mut().take(parts).enumerate() {
                        match self.read(&arrays[side], dtype, at[side] as usize, part) {
                            Some(value) => *factor = value,
                            None => return Ok(None),
                        }
                    }
                }
                let [a, b] = factors;
                let mut compute = |op, x, y| self.build.compute(op, ty, &[x, y]);
                if parts == 1 {
                    let product = compute(ScalarOp::Mul, a[0], b[0])?;
                    sums[0] = compute(ScalarOp::Add, product, sums[0])?;
                } else {
                    let (rr, ii) = (compute(ScalarOp::Mul, a[0], b[0])?, compute(ScalarOp::Mul, a[1], b[1])?);
                    let (ri, ir) = (compute(ScalarOp::Mul, a[0], b[1])?, compute(ScalarOp::Mul, a[1], b[0])?);
                    let (re, im) = (compute(ScalarOp::Sub, rr, ii)?, compute(ScalarOp::Add, ri, ir)?);
                    sums = [compute(ScalarOp::Add, re, sums[0])?, compute(ScalarOp::Add, im, sums[1])?];
                }
            }
            values.extend_from_slice(&sums[..parts]);
        }
        Ok(Some(Array::Values(values)))
    }
}
