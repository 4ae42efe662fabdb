//! Tridiagonal systems, by elimination with exchanges of neighbouring rows.
//!
//! Golub and Van Loan, Matrix Computations, 4th ed., section 4.3.4, in LAPACK's places. The cost is
//! linear in the elements.

use crate::magnitude::Real as Number;
use crate::{Element, Real};

/// The diagonals of one matrix, the lower one with a first and the upper one with a last element that is
/// not read.
pub struct Diagonals<'a, T> {
    pub lower: &'a [T],
    pub middle: &'a [T],
    pub upper: &'a [T],
}

/// Solves for right-hand sides, which the solutions replace; NaN where the matrix is singular, unless
/// pivots that are as good as zero are made larger.
pub(crate) fn solve<T: Element>(of: &Diagonals<'_, T>, perturb: bool, x: &mut [T]) {
    let size = of.middle.len();
    let columns = x.len() / size;
    let zero = T::zero_impl();
    let mut middle = of.middle.to_vec();
    let mut upper = of.upper.to_vec();
    let mut second = vec![zero; size];
    if let Some(last) = upper.last_mut() {
        *last = zero;
    }
    for row in 1..size {
        let below = of.lower[row];
        let exchanged = below.size() > middle[row - 1].size();
        if exchanged {
            let factor = middle[row - 1].quotient(below);
            let kept = middle[row];
            middle[row - 1] = below;
            middle[row] = upper[row - 1] - factor * kept;
            upper[row - 1] = kept;
            second[row - 1] = upper[row];
            upper[row] = zero - factor * second[row - 1];
            let (before, after) = x.split_at_mut(row * columns);
            for (x, y) in before[(row - 1) * columns..].iter_mut().zip(&mut after[..columns]) {
                let kept = *x;
                *x = *y;
                *y = kept - factor * *y;
            }
        } else if below.size() > T::zero_real() {
            let factor = below.quotient(middle[row - 1]);
            middle[row] -= factor * upper[row - 1];
            let (before, after) = x.split_at_mut(row * columns);
            for (x, y) in before[(row - 1) * columns..].iter().zip(&mut after[..columns]) {
                *y -= factor * *x;
            }
        }
    }
    if perturb {
        let sizes = middle.iter().chain(&upper).chain(&second).map(|x| x.size());
        let most = sizes.fold(T::zero_real(), |most, size| if size > most { size } else { most });
        let least = most * Real::<T>::unit();
        let least = if least > T::least_inverted() { least } else { T::least_inverted() };
        for pivot in &mut middle {
            if pivot.size() < least {
                *pivot = if pivot.real_part() < T::zero_real() {
                    T::from_real_impl(&-least)
                } else {
                    T::from_real_impl(&least)
                };
            }
        }
    } else if middle.iter().any(|pivot| pivot.size() == T::zero_real()) {
        x.fill(T::UNKNOWN);
        return;
    }
    for row in (0..size).rev() {
        let (own, after) = x[row * columns..].split_at_mut(columns);
        for (column, x) in own.iter_mut().enumerate() {
            let mut rest = *x;
            if row + 1 < size {
                rest -= upper[row] * after[column];
            }
            if row + 2 < size {
                rest -= second[row] * after[columns + column];
            }
            *x = rest.quotient(middle[row]);
        }
    }
}
