//! From matrices row by row to faer's, column by column, and back.

use faer::{Mat, MatRef};

use crate::Element;

/// Rows and columns that are moved together, so that a line of the cache is used while it is there.
const TILE: usize = 16;

fn for_each_tile(rows: usize, columns: usize, mut visit: impl FnMut(usize, std::ops::Range<usize>)) {
    for first in (0..rows).step_by(TILE) {
        let within = first..(first + TILE).min(rows);
        for column in 0..columns {
            visit(column, within.clone());
        }
    }
}

pub(crate) fn by_columns<T: Element>(a: &[T], rows: usize, columns: usize) -> Mat<T> {
    let mut to = Mat::zeros(rows, columns);
    for_each_tile(rows, columns, |column, within| {
        let line = to.col_as_slice_mut(column);
        for row in within {
            line[row] = a[row * columns + column];
        }
    });
    to
}

pub(crate) fn by_rows<T: Element>(a: MatRef<'_, T>, to: &mut [T]) {
    let (rows, columns) = a.shape();
    for_each_tile(rows, columns, |column, within| {
        for row in within {
            to[row * columns + column] = a[(row, column)];
        }
    });
}
