//! Convolutions as products of matrices: what is a row, a column and a term.
//!
//! A row of the result is an element of the batch and a place in the result, a column is an output
//! feature, a term is an input feature and a place in the window; each number is made of the indices of
//! some axes, which have strides in the operands. Where an operand lies outside of `lhs` is said by guards,
//! one for each spatial axis: a start, to which the indices of a row and a term add steps, and a size.
//!
//! A dilated `lhs` makes no zeros: along an axis with dilation d the places of the result fall into classes
//! modulo `d / gcd(stride, d)`. In a class the window's places that meet elements are every
//! `d / gcd(rhs_dilation, d)`-th, from the first on. So each class is a convolution without dilation, of
//! a part of the window to a part of the result. Classes that meet no element are zero.

use ferrax_ir::ops::ConvGeneralDilated;
use ferrax_ir::tensor::row_major;
use ferrax_ir::{Result, Sizes, value_error};
use smallvec::{SmallVec, smallvec};

/// An axis of rows, columns or terms: strides in the operand that its patches or weights are read from,
/// and in the other array that it is an axis of (the result; of terms, `rhs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    pub count: usize,
    pub read: isize,
    pub other: isize,
    /// Which guard an index moves, and by how much.
    pub guard: Option<(usize, isize)>,
}

pub type AxisList = SmallVec<[Axis; 6]>;

/// A place in `lhs` that must be within `0..size`.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    pub start: isize,
    pub size: isize,
}

/// A convolution without dilation of `lhs`. Strides and starts are in elements; axes are outermost first.
#[derive(Clone, Debug)]
pub struct Problem {
    pub groups: usize,
    /// Strides of a group in `lhs`, `rhs` and the result.
    pub group: [isize; 3],
    /// `read` is of `lhs`, `other` of the result.
    pub rows: AxisList,
    /// `read` is of `rhs`, `other` of the result.
    pub columns: AxisList,
    /// `read` is of `lhs`, `other` of `rhs`.
    pub terms: AxisList,
    pub guards: SmallVec<[Guard; 3]>,
    /// Guards that hold whatever the indices are; no axis moves them.
    pub holds: SmallVec<[bool; 3]>,
    /// Where index 0 of everything lies in `lhs`, which may be outside, in `rhs` and in the result.
    pub start: [isize; 3],
}

/// Classes of a convolution, and whether some of the result belongs to none.
pub struct Classes {
    pub problems: Vec<Problem>,
    pub gaps: bool,
}

/// Elements from which on a line is worth beginning.
pub const LINE: usize = 8;

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One class along one axis.
#[derive(Clone, Copy)]
struct Class {
    /// First place, step and number of places in the result and in the window.
    out: (usize, usize, usize),
    window: (usize, usize, usize),
    /// The first place in `lhs`, and how far a place in the result and in the window moves it.
    start: isize,
    row_step: isize,
    term_step: isize,
}

fn classes(op: &ConvGeneralDilated, axis: usize, window: usize, out: usize) -> Result<Vec<Class>> {
    let (stride, low) = (op.window_strides[axis], op.padding[axis].0);
    let (dilation, spread) = (op.lhs_dilation[axis], op.rhs_dilation[axis]);
    let (period, skip) = (dilation / gcd(stride, dilation), dilation / gcd(spread, dilation));
    let too_far = || value_error!("a convolution whose window moves further than memory reaches");
    let place =
        |p: usize, q: usize| p as i128 * stride as i128 - i128::from(low) + q as i128 * spread as i128;
    let mut found = Vec::new();
    for p in 0..period.min(out) {
        let Some(q) = (0..skip.min(window)).find(|&q| place(p, q) % dilation as i128 == 0) else { continue };
        let narrow = |value: i128| isize::try_from(value).map_err(|_| too_far());
        found.push(Class {
            out: (p, period, (out - p).div_ceil(period)),
            window: (q, skip, (window - q).div_ceil(skip)),
            start: narrow(place(p, q) / dilation as i128)?,
            row_step: narrow(period as i128 * stride as i128 / dilation as i128)?,
            term_step: narrow(skip as i128 * spread as i128 / dilation as i128)?,
        });
    }
    Ok(found)
}

/// The classes of `op` over arrays of these sizes. Of complex numbers, which are pairs, the parts of an
/// element of `lhs` are two terms, those of the result two columns, and `rhs` has, for each element,
/// the matrix of two rows and columns that multiplies by it.
pub fn problems(
    op: &ConvGeneralDilated,
    lhs: &Sizes,
    rhs: &Sizes,
    out: &Sizes,
    is_complex: bool,
) -> Result<Classes> {
    let (pair, matrix) = if is_complex { (2, 4) } else { (1, 1) };
    let scaled = |sizes: &Sizes, by: isize| -> SmallVec<[isize; 6]> {
        row_major(sizes, 1).iter().map(|stride| stride.cast_signed() * by).collect()
    };
    let (left, right, result) = (scaled(lhs, pair), scaled(rhs, matrix), scaled(out, pair));
    let dims = &op.dims;
    let groups = op.feature_group_count.max(op.batch_group_count);
    let (features, per_group) = (rhs[dims.rhs[1]], rhs[dims.rhs[0]] / groups);
    let batch = out[dims.out[0]];
    let in_lhs = if op.batch_group_count > 1 {
        batch as isize * left[dims.lhs[0]]
    } else {
        features as isize * left[dims.lhs[1]]
    };
    let group = [in_lhs, per_group as isize * right[dims.rhs[0]], per_group as isize * result[dims.out[1]]];
    let axis = |count: usize, read: isize, other: isize| Axis { count, read, other, guard: None };
    let mut rows: AxisList = smallvec![axis(batch, left[dims.lhs[0]], result[dims.out[0]])];
    let mut columns: AxisList = smallvec![axis(per_group, right[dims.rhs[0]], result[dims.out[1]])];
    let mut terms: AxisList = smallvec![axis(features, left[dims.lhs[1]], right[dims.rhs[1]])];
    if is_complex {
        columns.push(axis(2, 1, 1));
        terms.push(axis(2, 1, 2));
    }
    let mut problems = vec![Problem {
        groups,
        group,
        rows: std::mem::take(&mut rows),
        columns,
        terms: std::mem::take(&mut terms),
        guards: SmallVec::new(),
        holds: SmallVec::new(),
        start: [0; 3],
    }];
    let mut gaps = false;
    for spatial in 0..dims.rhs.len() - 2 {
        let (l, r, o) = (dims.lhs[spatial + 2], dims.rhs[spatial + 2], dims.out[spatial + 2]);
        let classes = classes(op, spatial, rhs[r], out[o])?;
        gaps |= classes.iter().map(|class| class.out.2).sum::<usize>() < out[o];
        let size = isize::try_from(lhs[l]).map_err(|_| value_error!("a size of {}", lhs[l]))?;
        let extend = |problem: &Problem, class: &Class| {
            let mut problem = problem.clone();
            let guard = problem.guards.len();
            problem.guards.push(Guard { start: class.start, size });
            problem.start[0] = problem.start[0].wrapping_add(class.start.wrapping_mul(left[l]));
            problem.start[1] += class.window.0 as isize * right[r];
            problem.start[2] += class.out.0 as isize * result[o];
            problem.rows.push(Axis {
                count: class.out.2,
                read: class.row_step.wrapping_mul(left[l]),
                other: class.out.1 as isize * result[o],
                guard: Some((guard, class.row_step)),
            });
            problem.terms.push(Axis {
                count: class.window.2,
                read: class.term_step.wrapping_mul(left[l]),
                other: (class.window.1 as isize).wrapping_mul(right[r]),
                guard: Some((guard, class.term_step)),
            });
            problem
        };
        problems =
            problems.iter().flat_map(|problem| classes.iter().map(|class| extend(problem, class))).collect();
    }
    problems.iter_mut().for_each(Problem::tidy);
    Ok(Classes { problems, gaps })
}

/// The number of combinations of indices.
pub fn count(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.count).product()
}

impl Problem {
    /// Puts axes in the order in which they lie in `lhs`, drops those of one index and guards that always
    /// hold, and joins axes that one stride walks.
    fn tidy(&mut self) {
        let holds: SmallVec<[bool; 3]> = (0..self.guards.len())
            .map(|number| {
                let Guard { start, size } = self.guards[number];
                let moves = self.rows.iter().chain(&self.terms).filter_map(|axis| {
                    let (guard, step) = axis.guard?;
                    (guard == number).then_some((axis.count as i128 - 1).max(0) * step as i128)
                });
                start >= 0 && start as i128 + moves.sum::<i128>() < size as i128
            })
            .collect();
        for axes in [&mut self.rows, &mut self.terms, &mut self.columns] {
            axes.retain(|axis| axis.count != 1);
            for axis in axes.iter_mut() {
                axis.guard = axis.guard.filter(|&(guard, _)| !holds[guard]);
            }
        }
        for axes in [&mut self.rows, &mut self.terms] {
            axes.sort_by_key(|axis| std::cmp::Reverse(axis.read.unsigned_abs()));
        }
        // Where lines run along rows, terms without a guard are the innermost: so runs are not cut by guards.
        if self.rows.last().is_some_and(|axis| axis.read == 1 && axis.count >= LINE) {
            self.terms.sort_by_key(|axis| axis.guard.is_none());
        }
        for axes in [&mut self.rows, &mut self.terms, &mut self.columns] {
            let mut joined = AxisList::new();
            for &axis in axes.iter() {
                let inner = axis.count as isize;
                match joined.last_mut() {
                    Some(last)
                        if last.guard.is_none()
                            && axis.guard.is_none()
                            && last.read == axis.read.wrapping_mul(inner)
                            && last.other == axis.other.wrapping_mul(inner) =>
                    {
                        *last = Axis { count: last.count * axis.count, ..axis };
                    }
                    _ => joined.push(axis),
                }
            }
            if joined.is_empty() {
                joined.push(Axis { count: 1, read: 0, other: 0, guard: None });
            }
            *axes = joined;
        }
        self.holds = holds;
    }
}
