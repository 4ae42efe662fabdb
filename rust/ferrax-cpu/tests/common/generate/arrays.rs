//! Steps that add, move and pick elements.

use ferrax_ir::ops::{
    ArgKind, ArgReduce, BroadcastInDim, Concatenate, Cumulative, CumulativeKind, DotGeneral, DynamicSlice,
    DynamicUpdateSlice, Gather, GatherMode, Iota, Pad, Reduce, ReduceKind, Reshape, Rev, Scatter,
    ScatterKind, Slice, Sort, TopK, Transpose,
};
use ferrax_ir::{Atom, DType, Dim, Scalar};

use super::bound::{Bound, EXACT, SIGN_OF_ZERO, epsilon};
use super::{MOST, Maker, Value, dims};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// The bound of sums of so many terms, each within `x`.
    fn sum(&self, x: Bound, terms: usize, dtype: DType) -> Bound {
        if !dtype.is_inexact() {
            return EXACT;
        }
        if terms == 0 {
            return Bound { magnitude: 0.0, error: SIGN_OF_ZERO };
        }
        let (terms, magnitude) = (terms as f64, x.magnitude * terms as f64);
        let units = if dtype.real().size() >= 4 { 32.0 } else { 2.0 };
        let own = if terms > 1.0 { units * epsilon(dtype) * magnitude } else { SIGN_OF_ZERO };
        x.through(terms, magnitude, own)
    }

    /// The bound of extrema: which zero is the larger one is free. Complex numbers are compared part
    /// by part, which is not continuous.
    fn extreme(&self, x: Value, terms: usize) -> Option<Bound> {
        let dtype = self.dtype(x);
        if !dtype.is_inexact() {
            return Some(EXACT);
        }
        // Of nothing they are infinite.
        let magnitude = if terms == 0 { f64::INFINITY } else { 0.0 };
        let free = Bound { magnitude, error: SIGN_OF_ZERO };
        (x.is_exact() || dtype.is_float()).then(|| x.bound.or(free))
    }

    pub(super) fn reduce(&mut self, x: Value, sizes: &[usize], axis: usize) -> Option<Vec<Value>> {
        let dtype = self.dtype(x);
        let mut axes = vec![axis];
        if sizes.len() > 1 && self.flip() {
            axes.push((axis + 1) % sizes.len());
            axes.sort_unstable();
        }
        let terms: usize = axes.iter().map(|&axis| sizes[axis]).product();
        let kind = self.pick(if dtype.is_inexact() {
            &[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]
        } else {
            ReduceKind::ALL
        });
        let bound = match kind {
            ReduceKind::Sum => self.sum(x.bound, terms, dtype),
            _ => self.extreme(x, terms)?,
        };
        let sum = self.emit(Reduce { kind, axes: axes[..].into() }, &[x.atom], bound)?;
        if !dtype.is_float() || kind != ReduceKind::Sum || !bound.is_useful(dtype) {
            return Some(sum);
        }
        // The mean, so that numbers stay moderate.
        let by = 1.0 / terms.max(1) as f64;
        let atom = self.b.scale(sum[0].atom, by).ok()?;
        let magnitude = x.bound.magnitude;
        let error = sum[0].bound.error * by + epsilon(dtype) * magnitude;
        Some(vec![Value { atom, bound: Bound { magnitude, error } }])
    }

    pub(super) fn cumulate(&mut self, x: Value, sizes: &[usize], axis: usize) -> Option<Vec<Value>> {
        let dtype = self.dtype(x);
        let reverse = self.flip();
        let kind = self.pick(if dtype.is_inexact() {
            &[CumulativeKind::Sum, CumulativeKind::Max, CumulativeKind::Min][..]
        } else {
            &[CumulativeKind::Sum, CumulativeKind::Max, CumulativeKind::Min, CumulativeKind::Prod]
        });
        let bound = match kind {
            CumulativeKind::Sum => self.sum(x.bound, sizes[axis], dtype),
            _ => self.extreme(x, sizes[axis])?,
        };
        self.emit(Cumulative { kind, axis, reverse }, &[x.atom], bound)
    }

    pub(super) fn product(&mut self, x: Value, sizes: &[usize], axis: usize) -> Option<Vec<Value>> {
        let dtype = self.dtype(x);
        let y = self.any(|maker, y| maker.dtype(y) == dtype && maker.sizes(y).contains(&sizes[axis]))?;
        let others = self.sizes(y);
        let with = others.iter().position(|&size| size == sizes[axis])?;
        let terms = sizes[axis];
        let elements = sizes.iter().chain(&others).product::<usize>() / terms.max(1).pow(2);
        if dtype.is_complex() || elements > MOST {
            return None;
        }
        let op = DotGeneral {
            lhs_contracting: [axis][..].into(),
            rhs_contracting: [with][..].into(),
            lhs_batch: [][..].into(),
            rhs_batch: [][..].into(),
            precision: None,
            preferred_element_type: None,
        };
        let magnitude = x.bound.times(y.bound);
        let error = x.bound.error_of_product(y.bound) + epsilon(dtype) * magnitude;
        let bound = self.sum(Bound { magnitude, error }, terms, dtype);
        self.emit(op, &[x.atom, y.atom], bound)
    }

    /// Other shapes, and parts of the same.
    pub(super) fn rearrange(&mut self, x: Value, sizes: &[usize], axis: usize) -> Option<Vec<Value>> {
        let rank = sizes.len();
        match self.choices.below(6) {
            0 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.rotate_left(self.choices.below(rank));
                self.moved(Transpose { permutation: permutation[..].into() }, x)
            }
            1 => {
                let start = self.choices.below(sizes[axis] + 1);
                let limit = start + self.choices.below(sizes[axis] - start + 1);
                let (mut from, mut to, mut strides) = (vec![0; rank], sizes.to_vec(), vec![1; rank]);
                (from[axis], to[axis], strides[axis]) = (start, limit, 1 + self.choices.below(3));
                let op = Slice {
                    start_indices: dims(&from).into(),
                    limit_indices: dims(&to).into(),
                    strides: Some(strides[..].into()),
                };
                self.moved(op, x)
            }
            2 => self.moved(Rev { dimensions: [axis][..].into() }, x),
            3 if rank > 1 => {
                let mut to = sizes.to_vec();
                let at = self.choices.below(rank - 1);
                to[at] *= to.remove(at + 1);
                self.moved(Reshape { new_sizes: dims(&to).into(), dimensions: None }, x)
            }
            4 if rank < 4 && sizes[axis].is_multiple_of(2) => {
                let mut to = sizes.to_vec();
                to[axis] /= 2;
                to.insert(axis + 1, 2);
                self.moved(Reshape { new_sizes: dims(&to).into(), dimensions: None }, x)
            }
            _ => {
                let y = self.like(x);
                let parts = [x.atom, y.atom, x.atom];
                self.emit(Concatenate { dimension: axis }, &parts, x.bound.or(y.bound))
            }
        }
    }

    pub(super) fn pad(&mut self, x: Value, rank: usize, axis: usize) -> Option<Vec<Value>> {
        let mut padding_config = vec![(0, 0, 0); rank];
        let mut edge = |most| self.choices.below(most) as i64;
        padding_config[axis] = (edge(4) - 1, edge(5) - 1, edge(5) / 4);
        let dtype = self.dtype(x);
        let (value, magnitude) = self.constant(dtype);
        let bound = x.bound.or(Bound { magnitude, error: 0.0 });
        self.emit(Pad { padding_config }, &[x.atom, value], bound)
    }

    pub(super) fn broadcast(&mut self, x: Value, sizes: &[usize]) -> Option<Vec<Value>> {
        let mut to = sizes.to_vec();
        let at = self.choices.below(sizes.len() + 1);
        to.insert(at, 1 + self.choices.below(4));
        let kept: Vec<usize> = (0..to.len()).filter(|&axis| axis != at).collect();
        self.moved(BroadcastInDim { shape: dims(&to).into(), broadcast_dimensions: kept[..].into() }, x)
    }

    pub(super) fn iota(&mut self, sizes: &[usize], axis: usize) -> Option<Vec<Value>> {
        let dtype = self.pick(&[DType::F32, DType::I32, DType::U8, DType::F64]);
        let op = Iota { dtype, shape: dims(sizes).into(), dimension: axis };
        self.emit(op, &[], Bound { magnitude: sizes[axis] as f64, error: 0.0 })
    }

    pub(super) fn order(&mut self, x: Value, sizes: &[usize], axis: usize) -> Option<Vec<Value>> {
        match self.choices.below(4) {
            0 => self.exactly(Sort { dimension: axis, is_stable: true, num_keys: 1 }, &[x]),
            1 => {
                let y = self.any(|maker, y| y.is_exact() && maker.sizes(y) == sizes)?;
                let num_keys = 1 + self.choices.below(2);
                self.exactly(Sort { dimension: axis, is_stable: true, num_keys }, &[x, y])
            }
            2 => {
                let k = self.choices.below(sizes[axis] + 1);
                self.exactly(TopK { axis, k }, &[x])
            }
            _ => {
                let kind = self.pick(ArgKind::ALL);
                self.exactly(ArgReduce { kind, axes: [axis][..].into(), index_dtype: DType::I32 }, &[x])
            }
        }
    }

    /// Windows at places that values say.
    pub(super) fn window(&mut self, x: Value, sizes: &[usize]) -> Option<Vec<Value>> {
        let places: Vec<Atom> = sizes.iter().map(|_| self.index()).collect();
        let inner: Vec<usize> = sizes.iter().map(|&size| self.choices.below(size + 1)).collect();
        let mut operands = vec![x.atom];
        if self.flip() {
            operands.extend(places);
            return self.emit(DynamicSlice { slice_sizes: dims(&inner).into() }, &operands, x.bound);
        }
        let dtype = self.dtype(x);
        let y = self.any(|maker, y| {
            let others = maker.sizes(y);
            maker.dtype(y) == dtype
                && others.len() == sizes.len()
                && others.iter().zip(sizes).all(|(other, size)| other <= size)
        })?;
        operands.push(y.atom);
        operands.extend(places);
        self.emit(DynamicUpdateSlice {}, &operands, x.bound.or(y.bound))
    }

    /// Rows at places that an array says: read, or written.
    pub(super) fn rows(&mut self, x: Value, sizes: &[usize]) -> Option<Vec<Value>> {
        let places = self.any(|maker, value| {
            value.is_exact() && maker.dtype(value) == DType::I32 && maker.sizes(value).len() == 1
        })?;
        let count = self.sizes(places)[0];
        let dtype = self.dtype(x);
        if count * sizes[1..].iter().product::<usize>() > MOST {
            return None;
        }
        let indices = self.b.reshape(places.atom, &dims(&[count, 1])).ok()?;
        let mode = self.pick(&[GatherMode::Clip, GatherMode::Fill]);
        let window: Vec<usize> = (1..sizes.len()).collect();
        if self.flip() {
            let mut slice_sizes = dims(sizes);
            slice_sizes[0] = Dim::Const(1);
            let fill_value = dtype.is_integer().then(|| Scalar::from_i64(dtype, 3));
            let op = Gather {
                offset_dims: window[..].into(),
                collapsed_slice_dims: [0][..].into(),
                start_index_map: [0][..].into(),
                operand_batching_dims: [][..].into(),
                start_indices_batching_dims: [][..].into(),
                slice_sizes: slice_sizes.into(),
                mode,
                fill_value,
                unique_indices: false,
                indices_are_sorted: false,
            };
            let magnitude = if mode == GatherMode::Clip { 0.0 } else { f64::INFINITY };
            return self.emit(op, &[x.atom, indices], x.bound.or(Bound { magnitude, error: 0.0 }));
        }
        let mut wanted = sizes.to_vec();
        wanted[0] = count;
        let updates =
            self.any(|maker, y| y.is_exact() && maker.dtype(y) == dtype && maker.sizes(y) == wanted)?;
        let kind = self.pick(ScatterKind::ALL);
        if !x.is_exact() || dtype.is_complex() && kind == ScatterKind::Mul {
            return None;
        }
        let op = Scatter {
            kind,
            update_window_dims: window[..].into(),
            inserted_window_dims: [0][..].into(),
            scatter_dims_to_operand_dims: [0][..].into(),
            operand_batching_dims: [][..].into(),
            scatter_indices_batching_dims: [][..].into(),
            mode,
            unique_indices: false,
            indices_are_sorted: false,
        };
        self.emit(op, &[x.atom, indices, updates.atom], EXACT)
    }
}
