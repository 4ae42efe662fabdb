//! Steps that add and order elements, and that move them to known places.

use ferrax_ir::ops::{
    ArgKind, ArgReduce, BroadcastInDim, Concatenate, Cumulative, CumulativeKind, DynamicSlice,
    DynamicUpdateSlice, Iota, Pad, Reduce, ReduceKind, Reshape, Rev, Slice, Sort, Squeeze, TopK, Transpose,
};
use ferrax_ir::{Atom, DType};

use super::bound::{Bound, EXACT, SIGN_OF_ZERO, epsilon};
use super::{MOST, Made, Maker, Site, Value, dims};
use crate::common::Choices;

impl<C: Choices> Maker<'_, C> {
    /// The bound of sums of so many terms, each within `x`.
    pub(super) fn sum(&self, x: Bound, terms: usize, dtype: DType) -> Bound {
        if !dtype.is_inexact() {
            return EXACT;
        }
        if terms == 0 {
            return Bound { unit: 1.0, ..Bound::new(0.0, SIGN_OF_ZERO) };
        }
        if let Some(exact) = x.exact_sum(terms, dtype) {
            return Bound { error: SIGN_OF_ZERO, ..exact };
        }
        let (terms, magnitude) = (terms as f64, x.magnitude * terms as f64);
        let units = if dtype.real().size() >= 4 { 32.0 } else { 2.0 };
        let own = if terms > 1.0 { units * epsilon(dtype) * magnitude } else { 0.0 }.max(SIGN_OF_ZERO);
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
        let free = Bound {
            unit: if terms == 0 { 0.0 } else { x.bound.unit },
            ..Bound::new(magnitude, SIGN_OF_ZERO)
        };
        (x.is_exact() || dtype.is_float()).then(|| x.bound.or(free))
    }

    /// The bound of products, whose error is relative as long as nothing leaves the range of the dtype.
    fn products(&self, x: Value, terms: usize) -> Option<Bound> {
        let dtype = self.dtype(x);
        let wide = dtype.real().size() >= 4 && terms <= 12;
        (x.is_finite() && wide && x.bound.magnitude <= 8.0).then(|| Bound::ulps(16.0 * terms as f64, dtype))
    }

    pub(super) fn reduce(&mut self, site: &Site) -> Made {
        let Site { x, ref sizes, axis, dtype } = *site;
        if sizes.is_empty() {
            return None;
        }
        let mut axes = vec![axis];
        for other in 0..sizes.len() {
            if other != axis && self.choices.below(3) == 0 {
                axes.push(other);
            }
        }
        axes.sort_unstable();
        let terms: usize = axes.iter().map(|&axis| sizes[axis]).product();
        let kind = self.pick(if dtype.is_inexact() {
            &[ReduceKind::Sum, ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod]
        } else {
            ReduceKind::ALL
        });
        let op = Reduce { kind, axes: axes[..].into() };
        let bound = match kind {
            ReduceKind::Sum => self.sum(x.bound, terms, dtype),
            ReduceKind::Prod if dtype.is_inexact() => {
                let bound = self.products(x, terms)?;
                return self.ended(op, &[x.atom], bound);
            }
            _ => self.extreme(x, terms)?,
        };
        let made = self.emit(op, &[x.atom], bound);
        if kind != ReduceKind::Sum || !dtype.is_float() || !bound.is_useful(dtype) {
            return self.settled(made);
        }
        let sum = self.settled(made)?[0];
        if sum.is_exact() && self.flip() {
            return Some(vec![sum]);
        }
        // The mean, so that numbers stay moderate.
        let by = 1.0 / terms.max(1) as f64;
        let atom = self.b.scale(sum.atom, by).ok()?;
        let magnitude = x.bound.magnitude;
        let error = if sum.is_exact() { 0.0 } else { sum.bound.error * by + epsilon(dtype) * magnitude };
        Some(vec![Value { atom, bound: Bound::new(magnitude * 1.01, error) }])
    }

    pub(super) fn cumulate(&mut self, site: &Site) -> Made {
        let Site { x, ref sizes, axis, dtype } = *site;
        let terms = *sizes.get(axis)?;
        let reverse = self.flip();
        let kind = self.pick(CumulativeKind::ALL);
        let op = Cumulative { kind, axis, reverse };
        let bound = match kind {
            CumulativeKind::Sum => self.sum(x.bound, terms, dtype),
            CumulativeKind::Prod if dtype.is_inexact() => {
                let bound = self.products(x, terms)?;
                return self.ended(op, &[x.atom], bound);
            }
            CumulativeKind::Prod => EXACT,
            CumulativeKind::LogSumExp => {
                let magnitude = x.bound.magnitude + 8.0;
                let own = if dtype.real().size() >= 4 { 16.0 } else { 2.0 };
                x.is_finite().then(|| Bound::new(magnitude, own * epsilon(dtype) * magnitude))?
            }
            CumulativeKind::Max | CumulativeKind::Min => self.extreme(x, terms)?,
        };
        let made = self.emit(op, &[x.atom], bound);
        self.settled(made)
    }

    /// Other shapes, and parts of the same.
    pub(super) fn rearrange(&mut self, site: &Site) -> Made {
        let Site { x, ref sizes, axis, .. } = *site;
        let rank = sizes.len();
        if rank == 0 || site.count() >= MOST {
            return None;
        }
        match self.choices.below(8) {
            0 => {
                let mut permutation: Vec<usize> = (0..rank).collect();
                permutation.rotate_left(self.choices.below(rank));
                if self.flip() {
                    permutation.swap(0, rank - 1);
                }
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
            5 => {
                // One index of an axis, which goes.
                let at = self.choices.below(sizes[axis]);
                let one = self.b.slice_axis(x.atom, axis, at, (at + 1).min(sizes[axis])).ok()?;
                self.emit(Squeeze { dimensions: [axis][..].into() }, &[one], x.bound)
            }
            _ => {
                let y = self.like(x);
                let parts = [x.atom, y.atom, x.atom];
                let parts = &parts[..1 + self.choices.below(3)];
                self.emit(Concatenate { dimension: axis }, parts, x.bound.or(y.bound))
            }
        }
    }

    pub(super) fn pad(&mut self, site: &Site) -> Made {
        let Site { x, axis, dtype, .. } = *site;
        if site.rank() == 0 || site.count() >= MOST {
            return None;
        }
        let mut padding_config = vec![(0, 0, 0); site.rank()];
        for (at, config) in padding_config.iter_mut().enumerate() {
            let mut edge = |most| self.choices.below(most) as i64;
            if at == axis || edge(4) == 0 {
                *config = (edge(4) - 1, edge(5) - 1, edge(5) / 3);
            }
        }
        let (value, bound) = self.constant(dtype);
        self.emit(Pad { padding_config }, &[x.atom, value], x.bound.or(bound))
    }

    pub(super) fn broadcast(&mut self, site: &Site) -> Made {
        if site.rank() >= 4 || site.count() >= MOST {
            return None;
        }
        let mut to = site.sizes.clone();
        let at = self.choices.below(to.len() + 1);
        to.insert(at, 1 + self.choices.below(4));
        let kept: Vec<usize> = (0..to.len()).filter(|&axis| axis != at).collect();
        self.moved(BroadcastInDim { shape: dims(&to).into(), broadcast_dimensions: kept[..].into() }, site.x)
    }

    pub(super) fn iota(&mut self, site: &Site) -> Made {
        let size = *site.sizes.get(site.axis)?;
        let dtype =
            self.pick(&[DType::F32, DType::I32, DType::U8, DType::F64, DType::BF16, DType::I16, DType::C64]);
        let op = Iota { dtype, shape: dims(&site.sizes).into(), dimension: site.axis };
        let unit = if dtype.is_inexact() { 1.0 } else { 0.0 };
        self.emit(op, &[], Bound { unit, ..Bound::exact(size as f64) })
    }

    pub(super) fn order(&mut self, site: &Site) -> Made {
        let Site { x, ref sizes, axis, .. } = *site;
        let size = *sizes.get(axis)?;
        match self.choices.below(5) {
            0 => self.exactly(Sort { dimension: axis, is_stable: true, num_keys: 1 }, &[x]),
            1 | 2 => {
                // What is carried along, or keys that decide where those before are equal.
                let mut operands = vec![x];
                for _ in 0..1 + self.choices.below(2) {
                    operands.push(self.any(|maker, y| y.is_exact() && maker.sizes(y) == *sizes)?);
                }
                let num_keys = 1 + self.choices.below(operands.len());
                self.exactly(Sort { dimension: axis, is_stable: true, num_keys }, &operands)
            }
            3 => {
                let k = self.choices.below(size + 1);
                self.exactly(TopK { axis, k }, &[x])
            }
            _ => {
                let kind = self.pick(ArgKind::ALL);
                let index_dtype = self.pick(&[DType::I32, DType::I64, DType::U32, DType::I8]);
                self.exactly(ArgReduce { kind, axes: [axis][..].into(), index_dtype }, &[x])
            }
        }
    }

    /// Windows at places that values say: read, or written.
    pub(super) fn window(&mut self, site: &Site) -> Made {
        let Site { x, ref sizes, dtype, .. } = *site;
        let places: Vec<Atom> = sizes.iter().map(|_| self.index()).collect();
        let mut operands = vec![x.atom];
        if self.flip() {
            let inner: Vec<usize> = sizes.iter().map(|&size| self.choices.below(size + 1)).collect();
            operands.extend(places);
            return self.emit(DynamicSlice { slice_sizes: dims(&inner).into() }, &operands, x.bound);
        }
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
}
