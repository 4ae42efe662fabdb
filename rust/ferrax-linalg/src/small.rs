//! Batches of small matrices, as many at once as there are lanes.
//!
//! Each function reads a batch row by row and writes its results so. Loops are those of the textbook
//! (Golub and Van Loan, Matrix Computations, 4th ed., sections 3.1, 3.4 and 4.2), over lanes; the last
//! group is filled up with the last matrix.

use faer::traits::ComplexField;

use crate::lanes::{Lanes, MOST};
use crate::vector::vectorised;
use crate::{Element, Factored, Triangle};

/// Whether so many matrices of this size are computed side by side, which is faster; `widest` is the larger extent of
/// right-hand sides. It decides on bits: those of a whole batch ask, not those of the part that a thread has.
pub fn side_by_side(size: usize, widest: usize, count: usize) -> bool {
    (size <= 8 || size <= 32 && count >= 4) && widest <= 4 * size.max(8)
}

/// Numbers of a group of matrices of so many elements.
struct Group {
    start: usize,
    count: usize,
    size: usize,
}

impl Group {
    #[inline(always)]
    fn read<L: Lanes>(&self, from: &[L::Of], to: &mut [L]) {
        for lane in 0..L::COUNT {
            let number = (self.start + lane).min(self.count - 1);
            let matrix = &from[number * self.size..(number + 1) * self.size];
            for (to, &x) in to.iter_mut().zip(matrix) {
                to.put(lane, x);
            }
        }
    }

    #[inline(always)]
    fn write<L: Lanes>(&self, from: &[L], to: &mut [L::Of]) {
        for lane in 0..L::COUNT.min(self.count - self.start) {
            let number = self.start + lane;
            let matrix = &mut to[number * self.size..(number + 1) * self.size];
            for (to, from) in matrix.iter_mut().zip(from) {
                *to = from.get(lane);
            }
        }
    }
}

#[inline(always)]
fn groups<L: Lanes>(count: usize, size: usize) -> impl Iterator<Item = Group> {
    (0..count).step_by(L::COUNT).map(move |start| Group { start, count, size })
}

/// `row -= by * other`.
#[inline(always)]
fn subtract_row<L: Lanes>(row: &mut [L], by: &L, other: &[L]) {
    for (x, y) in row.iter_mut().zip(other) {
        x.subtract(by, y);
    }
}

/// Two rows of a matrix with so many columns, the first one before the second.
#[inline(always)]
fn two_rows<L>(a: &mut [L], columns: usize, first: usize, second: usize) -> (&mut [L], &mut [L]) {
    let (before, after) = a.split_at_mut(second * columns);
    (&mut before[first * columns..(first + 1) * columns], &mut after[..columns])
}

pub(crate) fn cholesky<L: Lanes>(a: &[L::Of], size: usize, factors: &mut [L::Of]) {
    vectorised(
        #[inline(always)]
        || {
            let mut l = vec![L::zero(); size * size];
            let mut inverses = vec![L::zero(); size];
            for group in groups::<L>(a.len() / (size * size).max(1), size * size) {
                group.read(a, &mut l);
                let definite = cholesky_of_group(&mut l, &mut inverses, size);
                for lane in (0..L::COUNT).filter(|&lane| !definite[lane]) {
                    for row in 0..size {
                        l[row * size..][..=row].iter_mut().for_each(|x| x.put(lane, L::Of::UNKNOWN));
                    }
                }
                group.write(&l, factors);
            }
        },
    );
}

/// Gives for each lane whether its matrix is positive definite.
#[inline(always)]
fn cholesky_of_group<L: Lanes>(l: &mut [L], inverses: &mut [L], size: usize) -> [bool; MOST] {
    let mut definite = [true; MOST];
    for row in 0..size {
        for column in 0..row {
            let (other, own) = two_rows(l, size, column, row);
            let mut sum = own[column];
            for (x, y) in own.iter().zip(other.iter()).take(column) {
                sum.subtract(x, &y.conjugated());
            }
            sum.times(&inverses[column]);
            own[column] = sum;
        }
        let own = &mut l[row * size..(row + 1) * size];
        let mut sum = own[row];
        for x in &own[..row] {
            sum.subtract(x, &x.conjugated());
        }
        for (lane, definite) in definite.iter_mut().enumerate().take(L::COUNT) {
            let square = sum.get(lane).real_part();
            *definite &= square > L::Of::zero_real();
        }
        own[row] = sum.root();
        inverses[row] = own[row].inverse();
        own[row + 1..].fill(L::zero());
    }
    definite
}

pub(crate) fn lu<L: Lanes>(a: &[L::Of], rows: usize, columns: usize, out: Factored<'_, L::Of>) {
    let least = rows.min(columns);
    vectorised(
        #[inline(always)]
        || {
            let mut whole = vec![L::zero(); rows * columns];
            let mut pivots = vec![[0; MOST]; least];
            for group in groups::<L>(a.len() / (rows * columns).max(1), rows * columns) {
                group.read(a, &mut whole);
                for (step, pivot) in pivots.iter_mut().enumerate() {
                    *pivot = eliminate(&mut whole, rows, columns, step);
                }
                group.write(&whole, out.factors);
                for lane in 0..L::COUNT.min(group.count - group.start) {
                    let number = group.start + lane;
                    let own = &mut out.pivots[number * least..(number + 1) * least];
                    own.iter_mut().zip(&pivots).for_each(|(to, from)| *to = from[lane]);
                    crate::lu::order(own, &mut out.order[number * rows..(number + 1) * rows]);
                }
            }
        },
    );
}

/// One step, and the rows that were exchanged with row `step`.
#[inline(always)]
fn eliminate<L: Lanes>(a: &mut [L], rows: usize, columns: usize, step: usize) -> [i32; MOST] {
    let mut pivots = [step as i32; MOST];
    let mut most = a[step * columns + step].sizes();
    for row in step + 1..rows {
        L::larger(&mut most, &mut pivots, &a[row * columns + step].sizes(), row as i32);
    }
    for (lane, &pivot) in pivots.iter().enumerate().take(L::COUNT) {
        if pivot as usize != step {
            let (first, second) = two_rows(a, columns, step, pivot as usize);
            for (x, y) in first.iter_mut().zip(second) {
                let kept = x.get(lane);
                x.put(lane, y.get(lane));
                y.put(lane, kept);
            }
        }
    }
    let top = a[step * columns + step];
    let mut inverse = top.inverse();
    let mut tiny = false;
    for lane in 0..L::COUNT {
        let size = top.get(lane).size();
        if size < L::Of::least_inverted() {
            // What is below a zero pivot is zero.
            inverse.put(lane, L::Of::one_impl());
            tiny |= size > L::Of::zero_real();
        }
    }
    for row in step + 1..rows {
        let (above, own) = two_rows(a, columns, step, row);
        let factor = &mut own[step];
        factor.times(&inverse);
        if tiny {
            for lane in 0..L::COUNT {
                let size = top.get(lane).size();
                if size < L::Of::least_inverted() && size > L::Of::zero_real() {
                    factor.put(lane, factor.get(lane).quotient(top.get(lane)));
                }
            }
        }
        let factor = own[step];
        subtract_row(&mut own[step + 1..], &factor, &above[step + 1..]);
    }
    pivots
}

pub(crate) fn solve<L: Lanes>(how: &Triangle, a: &[L::Of], x: &mut [L::Of], rows: usize, columns: usize) {
    // From the right, all is transposed.
    let (size, width) = if how.from_left { (rows, columns) } else { (columns, rows) };
    let turned = how.transposed == how.from_left;
    let lower = how.lower != turned;
    vectorised(
        #[inline(always)]
        || {
            let mut given = vec![L::zero(); size * size];
            let mut triangle = vec![L::zero(); size * size];
            let mut right = vec![L::zero(); rows * columns];
            let mut turned_right = vec![L::zero(); rows * columns];
            for group in groups::<L>(a.len() / (size * size).max(1), size * size) {
                group.read(a, &mut given);
                for row in 0..size {
                    for column in 0..size {
                        let x = given[if turned { column * size + row } else { row * size + column }];
                        triangle[row * size + column] = if how.conjugated { x.conjugated() } else { x };
                    }
                }
                let sides = Group { size: rows * columns, ..group };
                sides.read(x, &mut right);
                if how.from_left {
                    substitute(&triangle, lower, how.unit, &mut right, size, width);
                } else {
                    turn(&right, &mut turned_right, rows, columns);
                    substitute(&triangle, lower, how.unit, &mut turned_right, size, width);
                    turn(&turned_right, &mut right, columns, rows);
                }
                sides.write(&right, x);
            }
        },
    );
}

#[inline(always)]
fn turn<L: Lanes>(from: &[L], to: &mut [L], rows: usize, columns: usize) {
    for row in 0..rows {
        for column in 0..columns {
            to[column * rows + row] = from[row * columns + column];
        }
    }
}

#[inline(always)]
fn substitute<L: Lanes>(a: &[L], lower: bool, unit: bool, x: &mut [L], size: usize, width: usize) {
    for step in 0..size {
        let row = if lower { step } else { size - 1 - step };
        for done in 0..step {
            let other = if lower { done } else { size - 1 - done };
            let by = &a[row * size + other];
            let (first, second) = two_rows(x, width, row.min(other), row.max(other));
            if lower { subtract_row(second, by, first) } else { subtract_row(first, by, second) }
        }
        if !unit {
            let inverse = a[row * size + row].inverse();
            x[row * width..(row + 1) * width].iter_mut().for_each(|x| x.times(&inverse));
        }
    }
}
