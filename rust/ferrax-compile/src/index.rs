//! Affine views: how the loops of a kernel walk over a row-major array.
//!
//! A [`View`] gives the row-major element index as an affine function of the
//! loop indices. Where an op needs the index along each axis (a transpose, a
//! slice), [`View::decompose`] recovers it, or says which loop must be split in
//! two for that, or that no such form exists.
//!
//! Shapes, steps and widths are the user's, and values that are never stored may
//! be as large as addresses go: every sum and product here is checked.

use ferrax_ir::lowering::Follow;
use ferrax_ir::tensor;
use smallvec::SmallVec;

/// Numbers per loop axis.
pub type PerLoop<T> = SmallVec<[T; 6]>;

/// `offset + Σ strides[k] * i[k]`, valid for `ranges[k].0 <= i[k] < ranges[k].1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    pub offset: i64,
    pub strides: PerLoop<i64>,
    pub ranges: PerLoop<(i64, i64)>,
}

/// The index along each axis of an array: `start[a] + Σ factor * i[loop]` over the terms of `a`.
#[derive(Clone, Debug)]
pub struct AxisIndices {
    pub start: SmallVec<[i64; 6]>,
    pub terms: SmallVec<[Term; 8]>,
}

/// Axis `axis` moves by `factor` when loop `index` moves by one.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    pub axis: usize,
    pub index: usize,
    pub factor: i64,
}

/// Why a view has no index per axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indivisible {
    /// It has one if loop `index` is split into an outer loop and an inner one of extent `inner`.
    Split { index: usize, inner: i64 },
    /// It has none.
    Never,
    /// Its numbers exceed 64-bit integers.
    TooLarge,
}

/// Row-major strides, in elements.
pub fn row_major(sizes: &[usize]) -> SmallVec<[i64; 6]> {
    tensor::row_major(sizes, 1).iter().map(|&stride| stride as i64).collect()
}

/// `sum + a * b`.
fn plus(sum: i64, a: i64, b: i64) -> Result<i64, Indivisible> {
    a.checked_mul(b).and_then(|product| sum.checked_add(product)).ok_or(Indivisible::TooLarge)
}

impl View {
    /// Every element in row-major order, over loops of these extents.
    pub fn identity(extents: &[usize]) -> View {
        View {
            offset: 0,
            strides: row_major(extents).into_iter().collect(),
            ranges: extents.iter().map(|&extent| (0, extent as i64)).collect(),
        }
    }

    /// The one element of a 0-d array, over the loops of `self`.
    pub fn scalar(&self) -> View {
        View { offset: 0, strides: self.strides.iter().map(|_| 0).collect(), ranges: self.ranges.clone() }
    }

    /// The element at an index; none outside of the ranges.
    pub fn element(&self, index: &[i64]) -> Option<i64> {
        let inside = self.ranges.iter().zip(index).all(|(&(low, high), &place)| low <= place && place < high);
        let moved = || self.strides.iter().zip(index).map(|(stride, place)| stride * place).sum::<i64>();
        inside.then(|| self.offset + moved())
    }

    /// Where a loop stands at its last iteration, counted from its first.
    fn steps(&self, index: usize) -> i64 {
        self.ranges[index].1 - self.ranges[index].0 - 1
    }

    /// The index along each axis of an array of these sizes.
    pub fn decompose(&self, sizes: &[usize]) -> Result<AxisIndices, Indivisible> {
        let weights = row_major(sizes);
        let mut result = AxisIndices { start: SmallVec::from_elem(0, sizes.len()), terms: SmallVec::new() };
        // The smallest element index, and where each loop stands there.
        let mut least = self.offset;
        for (index, &stride) in self.strides.iter().enumerate() {
            let (low, high) = self.ranges[index];
            if high <= low {
                return Err(Indivisible::Never);
            }
            least = plus(least, stride, if stride < 0 { high - 1 } else { low })?;
        }
        let mut rest = least;
        for (axis, &weight) in weights.iter().enumerate() {
            if sizes[axis] != 1 {
                result.start[axis] = rest.div_euclid(weight);
                rest = rest.rem_euclid(weight);
            }
        }
        if rest != 0 {
            return Err(Indivisible::Never);
        }
        for (index, &stride) in self.strides.iter().enumerate() {
            if stride == 0 || self.steps(index) == 0 {
                continue;
            }
            let mut rest = stride.checked_abs().ok_or(Indivisible::TooLarge)?;
            for (axis, &weight) in weights.iter().enumerate() {
                if sizes[axis] != 1 && rest >= weight {
                    result.terms.push(Term { axis, index, factor: stride.signum() * (rest / weight) });
                    rest %= weight;
                }
            }
            if rest != 0 {
                return Err(Indivisible::Never);
            }
        }
        for (axis, &size) in sizes.iter().enumerate() {
            let mut last = result.start[axis];
            for term in result.terms_of(axis) {
                last = plus(last, term.factor.abs(), self.steps(term.index))?;
            }
            if result.start[axis] < 0 {
                return Err(Indivisible::Never);
            }
            if last >= size as i64 {
                return Err(self.split_for(&result, axis, size as i64, weights[axis]));
            }
        }
        for term in &result.terms {
            let (low, high) = self.ranges[term.index];
            let at_least = if self.strides[term.index] < 0 { high - 1 } else { low };
            result.start[term.axis] = plus(result.start[term.axis], -term.factor, at_least)?;
        }
        Ok(result)
    }

    /// A split that keeps one loop from carrying over the end of `axis`.
    fn split_for(&self, indices: &AxisIndices, axis: usize, size: i64, weight: i64) -> Indivisible {
        let Some(whole) = size.checked_mul(weight) else { return Indivisible::TooLarge };
        for term in indices.terms.iter().filter(|term| term.axis == axis) {
            let (low, high) = self.ranges[term.index];
            let stride = self.strides[term.index].abs();
            if low != 0 || whole % stride != 0 {
                continue;
            }
            let inner = whole / stride;
            if inner > 1 && inner < high && high % inner == 0 {
                return Indivisible::Split { index: term.index, inner };
            }
        }
        Indivisible::Never
    }
}

impl AxisIndices {
    /// The loops that move `axis`.
    pub fn terms_of(&self, axis: usize) -> impl Iterator<Item = &Term> {
        self.terms.iter().filter(move |term| term.axis == axis)
    }

    /// The view of another array of these sizes, along each axis of which the index is `follow` of the indices
    /// here.
    pub fn view(
        &self,
        like: &View,
        sizes: &[usize],
        follow: impl IntoIterator<Item = Follow>,
    ) -> Result<View, Indivisible> {
        let weights = row_major(sizes);
        let mut view = like.scalar();
        for (&weight, Follow { axis, start, step }) in weights.iter().zip(follow) {
            let from = axis.map_or(0, |axis| self.start[axis]);
            view.offset = plus(view.offset, plus(start, step, from)?, weight)?;
            for term in axis.into_iter().flat_map(|axis| self.terms_of(axis)) {
                let step = plus(0, step, term.factor)?;
                view.strides[term.index] = plus(view.strides[term.index], step, weight)?;
            }
        }
        Ok(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(view: &View, indices: &[i64]) -> i64 {
        view.offset + view.strides.iter().zip(indices).map(|(s, i)| s * i).sum::<i64>()
    }

    #[test]
    fn transposed_view_walks_columns() {
        let view = View::identity(&[3, 2]);
        let indices = view.decompose(&[3, 2]).unwrap();
        // The kernel's array is the transpose of one of sizes (2, 3).
        let inner = indices.view(&view, &[2, 3], [1, 0].map(Follow::axis)).unwrap();
        assert_eq!(at(&inner, &[2, 1]), 5);
        assert_eq!(at(&inner, &[1, 0]), 1);
    }

    #[test]
    fn a_flat_loop_asks_for_a_split() {
        let view = View::identity(&[6]);
        assert_eq!(view.decompose(&[2, 3]).unwrap_err(), Indivisible::Split { index: 0, inner: 3 });
        let view = View::identity(&[2, 3]);
        assert!(view.decompose(&[2, 3]).is_ok());
        // Two loops over one axis need none.
        assert_eq!(view.decompose(&[6]).unwrap().terms.len(), 2);
    }

    #[test]
    fn reversed_and_restricted_views_decompose() {
        let mut view = View::identity(&[4, 5]);
        view.offset = 4;
        view.strides[1] = -1;
        let indices = view.decompose(&[4, 5]).unwrap();
        assert_eq!(indices.start.as_slice(), &[0, 4]);
        let mut guarded = View::identity(&[7]);
        guarded.offset = -2;
        guarded.ranges[0] = (2, 6);
        assert_eq!(guarded.decompose(&[4]).unwrap().start.as_slice(), &[-2]);
    }

    #[test]
    fn numbers_beyond_64_bits_are_told() {
        let mut view = View::identity(&[4, 5]);
        view.offset = i64::MAX;
        view.ranges[0].0 = 1;
        assert_eq!(view.decompose(&[4, 5]).unwrap_err(), Indivisible::TooLarge);
        let view = View::identity(&[3]);
        let indices = view.decompose(&[3]).unwrap();
        let wide = |start, step| indices.view(&view, &[3, 4], [Follow { axis: Some(0), start, step }]);
        assert_eq!(wide(i64::MIN, 1).unwrap_err(), Indivisible::TooLarge);
        assert_eq!(wide(0, i64::MAX).unwrap_err(), Indivisible::TooLarge);
        assert_eq!(wide(1, 1).unwrap().offset, 4);
    }
}
