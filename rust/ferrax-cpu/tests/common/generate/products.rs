//! Steps that add products: of matrices in any layout, and convolutions.

use ferrax_ir::ops::{ConvDims, ConvGeneralDilated, DotGeneral, Pad, Precision};
use ferrax_ir::{Atom, DType};

use super::bound::{Bound, epsilon};
use super::{MOST, Made, Maker, Site, Value, dims};
use crate::common::Choices;

/// The most products of a step.
const WORK: usize = 8 * MOST;

impl<C: Choices> Maker<'_, C> {
    /// The bound of sums of so many products.
    fn sums_of_products(&self, x: Bound, y: Bound, terms: usize, dtype: DType) -> Bound {
        let exact = x.error == 0.0 && y.error == 0.0;
        if exact && x.product(y).exact_sum(terms, dtype).is_some() {
            return self.sum(x.product(y), terms, dtype);
        }
        let magnitude = x.times(y);
        let rounded = if dtype.is_complex() { 4.0 } else { 1.0 };
        let error = x.error_of_product(y) + rounded * epsilon(dtype) * magnitude;
        self.sum(Bound::new(magnitude, error), terms, dtype)
    }

    /// Pairs of axes of one length are contracted, are batches, or stay.
    pub(super) fn product(&mut self, site: &Site) -> Made {
        let (x, dtype) = (site.x, site.dtype);
        if dtype.is_storage_only() || site.rank() == 0 {
            return None;
        }
        let y =
            self.any(|maker, y| maker.dtype(y) == dtype && maker.sizes(y).contains(&site.sizes[site.axis]))?;
        let others = self.sizes(y);
        let mut pairs: [Vec<(usize, usize)>; 2] = Default::default();
        let mut axes: Vec<usize> = (0..site.rank()).collect();
        axes.rotate_left(site.axis);
        for axis in axes {
            let free: Vec<usize> = (0..others.len())
                .filter(|&with| others[with] == site.sizes[axis])
                .filter(|with| pairs.iter().flatten().all(|(_, taken)| taken != with))
                .collect();
            if free.is_empty() {
                continue;
            }
            let with = self.pick(&free);
            // Of the first pair mostly products are added.
            match self.choices.below(4) {
                0 | 1 => pairs[0].push((axis, with)),
                2 => pairs[1].push((axis, with)),
                _ => {}
            }
        }
        let [contracted, batch] = pairs;
        let terms: usize = contracted.iter().map(|&(axis, _)| site.sizes[axis]).product();
        let shared: usize = batch.iter().map(|&(axis, _)| site.sizes[axis]).product();
        let all = site.count().max(1) * others.iter().product::<usize>().max(1);
        if all / terms.max(1) / shared.max(1) > WORK
            || x.bound.times(y.bound).is_infinite() && dtype.is_inexact()
        {
            return None;
        }
        let wider = match dtype {
            DType::BF16 | DType::F16 => Some(DType::F32),
            DType::F32 => Some(DType::F64),
            DType::I8 | DType::U8 => Some(DType::I32),
            _ => None,
        };
        let preferred_element_type = if self.flip() { None } else { wider };
        let op = DotGeneral {
            lhs_contracting: contracted.iter().map(|pair| pair.0).collect(),
            rhs_contracting: contracted.iter().map(|pair| pair.1).collect(),
            lhs_batch: batch.iter().map(|pair| pair.0).collect(),
            rhs_batch: batch.iter().map(|pair| pair.1).collect(),
            precision: self.pick(&[None, Some(Precision::Highest)]),
            preferred_element_type,
        };
        // Operands are wider before they are multiplied; results of the narrower of both are rounded again.
        let bound = self.sums_of_products(x.bound, y.bound, terms, dtype);
        let made = self.emit(op, &[x.atom, y.atom], bound);
        self.settled(made)
    }

    /// The elements of a value, as many as an array of these sizes has.
    fn stretched(&mut self, x: Value, sizes: &[usize]) -> Option<Value> {
        let (have, want): (usize, usize) = (self.sizes(x).iter().product(), sizes.iter().product());
        let dtype = self.dtype(x);
        let flat = self.b.reshape(x.atom, &dims(&[have])).ok()?;
        let (one, bound) = self.constant(dtype);
        let padding_config = vec![(0, want as i64 - have as i64, 0)];
        let line = self.b.emit1(Pad { padding_config }, &[flat, one]).ok()?;
        let atom = self.b.reshape(line, &dims(sizes)).ok()?;
        Some(Value { atom, bound: x.bound.or(bound) })
    }

    pub(super) fn convolution(&mut self, site: &Site) -> Made {
        let Site { x, ref sizes, dtype, .. } = *site;
        let rank = sizes.len();
        if !(2..=4).contains(&rank) || dtype.is_storage_only() || site.count() > MOST {
            return None;
        }
        let mut roles = || {
            let mut roles: Vec<usize> = (0..rank).collect();
            roles.rotate_left(self.choices.below(rank));
            if self.choices.below(2) == 1 {
                roles.swap(0, 1);
            }
            roles
        };
        let (lhs, rhs, out) = (roles(), roles(), roles());
        let spatial = rank - 2;
        let (batch, features) = (sizes[lhs[0]], sizes[lhs[1]]);
        let divides =
            |number: usize, of: usize| if number > 0 && of.is_multiple_of(number) { number } else { 1 };
        let group = 1 + self.choices.below(3);
        let (feature_groups, batch_groups) = match self.choices.below(3) {
            0 => (divides(group, features), 1),
            1 => (1, divides(group, batch)),
            _ => (1, 1),
        };
        let mut window = vec![0; rank];
        window[rhs[0]] = feature_groups * batch_groups * (1 + self.choices.below(2));
        window[rhs[1]] = features / feature_groups;
        for &axis in &rhs[2..] {
            window[axis] = self.choices.below(3) + usize::from(self.choices.below(8) > 0);
        }
        let terms: usize = window.iter().product::<usize>() / window[rhs[0]].max(1);
        if terms * window[rhs[0]] * site.count() * 4 > WORK * 4 {
            return None;
        }
        let y = self.any(|maker, y| {
            maker.dtype(y) == dtype && y.bound.magnitude.is_finite()
                || !dtype.is_inexact() && maker.dtype(y) == dtype
        })?;
        let y = self.stretched(y, &window)?;
        if dtype.is_inexact() && x.bound.times(y.bound).is_infinite() {
            return None;
        }
        let mut numbers = |from: i64, count: usize| -> Vec<i64> {
            (0..spatial).map(|_| from + self.choices.below(count) as i64).collect()
        };
        let op = ConvGeneralDilated {
            window_strides: numbers(1, 3).iter().map(|&stride| stride as usize).collect(),
            padding: numbers(-1, 4).into_iter().zip(numbers(-1, 4)).collect(),
            lhs_dilation: numbers(1, 2).iter().map(|&dilation| dilation as usize).collect(),
            rhs_dilation: numbers(1, 2).iter().map(|&dilation| dilation as usize).collect(),
            dims: ConvDims { lhs: lhs[..].into(), rhs: rhs[..].into(), out: out[..].into() },
            feature_group_count: feature_groups,
            batch_group_count: batch_groups,
            precision: None,
            preferred_element_type: None,
        };
        // Places beside the operand are products with zero, or none.
        let bound = self.sums_of_products(x.bound, y.bound, terms, dtype);
        let bound = if bound.error == 0.0 && dtype.is_inexact() {
            Bound { error: super::SIGN_OF_ZERO, ..bound }
        } else {
            bound
        };
        let operands: [Atom; 2] = [x.atom, y.atom];
        let made = self.emit(op, &operands, bound);
        self.settled(made)
    }
}
