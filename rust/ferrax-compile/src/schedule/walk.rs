//! The order in which a kernel goes through its reduction axes.
//!
//! The terms of a reduction are numbered: the axes that the tile does not span
//! count slowest, in their order, then the tile's rows, then its columns. Where the
//! order matters that is the row-major order of the reduction indices: a tile then spans
//! the last of the reduced axes or none (`Tile::choose`). Tiles take consecutive terms
//! and may be cut anywhere, so a run may begin and end at any term.

use super::nest::{Nest, PerAxis};
use super::tile::{Span, Tile};

#[derive(Clone, Copy, Debug)]
struct Axis {
    axis: usize,
    extent: usize,
    /// Elements of a full tile.
    most: usize,
}

#[derive(Clone, Debug)]
pub struct Walk {
    outer: PerAxis<Axis>,
    /// Reduced axes that the tile spans.
    row: Option<Axis>,
    col: Option<Axis>,
    /// Terms over one index of the outer axes.
    sheet: usize,
    /// All terms.
    pub terms: usize,
}

/// The part of a tile that is reduced: its rows and columns, if they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub rows: Option<usize>,
    pub cols: Option<usize>,
}

impl Part {
    /// The number of terms.
    pub fn terms(self) -> usize {
        self.rows.unwrap_or(1) * self.cols.unwrap_or(1)
    }
}

impl Walk {
    pub fn new(nest: &Nest, tile: Tile) -> Walk {
        let spanned = |span: Option<Span>| {
            span.filter(|span| nest.reduced[span.axis]).map(|span| Axis {
                axis: span.axis,
                extent: nest.extents[span.axis],
                most: span.length.max(1),
            })
        };
        let (row, col) = (spanned(tile.row), spanned(tile.col));
        let inner = |axis: usize| [row, col].into_iter().flatten().any(|spanned| spanned.axis == axis);
        let outer = (0..nest.extents.len())
            .filter(|&axis| nest.reduced[axis] && !inner(axis))
            .map(|axis| Axis { axis, extent: nest.extents[axis], most: 1 })
            .collect();
        let extent = |axis: Option<Axis>| axis.map_or(1, |axis| axis.extent);
        let terms = (0..nest.extents.len()).filter(|&axis| nest.reduced[axis]).map(|axis| nest.extents[axis]);
        Walk { outer, row, col, sheet: extent(row) * extent(col), terms: terms.product() }
    }

    /// Tiles that go through all terms, about.
    pub fn tiles(&self) -> usize {
        let most = |axis: Option<Axis>| axis.map_or(1, |axis| axis.most.min(axis.extent));
        self.terms.div_ceil((most(self.row) * most(self.col)).max(1))
    }

    /// Moves to term `number` and gives the tile that begins there and ends before term `end` or at it.
    pub fn seek(&self, at: &mut [i64], number: usize, end: usize) -> Part {
        let (mut outside, inside) = match self.outer.len() {
            0 => (0, number),
            _ => (number / self.sheet, number % self.sheet),
        };
        for (index, axis) in self.outer.iter().enumerate().rev() {
            if index == 0 {
                at[axis.axis] = outside as i64;
            } else {
                at[axis.axis] = (outside % axis.extent) as i64;
                outside /= axis.extent;
            }
        }
        let left = end - number;
        match (self.row, self.col) {
            (None, None) => Part { rows: None, cols: None },
            (None, Some(col)) => {
                at[col.axis] = inside as i64;
                Part { rows: None, cols: Some(col.most.min(col.extent - inside).min(left)) }
            }
            (Some(row), None) => {
                at[row.axis] = inside as i64;
                Part { rows: Some(row.most.min(row.extent - inside).min(left)), cols: None }
            }
            (Some(row), Some(col)) => {
                // Strips of columns, each through all rows.
                let strip = inside / (row.extent * col.most);
                let inside = inside % (row.extent * col.most);
                let width = col.most.min(col.extent - strip * col.most);
                let (first, within) = (inside / width, inside % width);
                at[row.axis] = first as i64;
                at[col.axis] = (strip * col.most + within) as i64;
                if within != 0 || left < width {
                    Part { rows: Some(1), cols: Some((width - within).min(left)) }
                } else {
                    let rows = row.most.min(row.extent - first).min(left / width);
                    Part { rows: Some(rows), cols: Some(width) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::Span;
    use super::*;

    fn nest(extents: &[usize], reduced: &[bool]) -> Nest {
        Nest {
            extents: extents.iter().copied().collect(),
            reduced: reduced.iter().copied().collect(),
            ordered: false,
            loads: vec![],
            stores: vec![],
            axis_of: smallvec![],
        }
    }

    /// Row-major numbers of all indices that the parts from `from` to `to` cover, in order.
    fn indices(walk: &Walk, extents: &[usize], tile: Tile, from: usize, to: usize) -> Vec<usize> {
        let (mut at, mut term, mut found) = (vec![0; extents.len()], from, vec![]);
        while term < to {
            let part = walk.seek(&mut at, term, to);
            for row in 0..part.rows.unwrap_or(1) {
                for col in 0..part.cols.unwrap_or(1) {
                    let mut index: Vec<usize> = at.iter().map(|&at| at as usize).collect();
                    if part.rows.is_some() {
                        index[tile.row.unwrap().axis] += row;
                    }
                    if part.cols.is_some() {
                        index[tile.col.unwrap().axis] += col;
                    }
                    found.push(index.iter().zip(extents).fold(0, |all, (at, extent)| all * extent + at));
                }
            }
            term += part.terms();
        }
        assert_eq!(term, to);
        found
    }

    #[test]
    fn terms_are_row_major_however_they_are_cut() {
        let span = |axis, length| Some(Span { axis, length });
        for (extents, row, col) in [
            (&[1000][..], None, span(0, 128)),
            (&[1000], span(0, 7), None),
            (&[50, 13], span(0, 8), span(1, 13)),
            (&[3, 5, 41], None, span(2, 16)),
            (&[3, 5, 41], None, None),
            (&[4, 9, 5], span(1, 2), span(2, 5)),
        ] {
            let tile = Tile { row, col };
            let walk = Walk::new(&nest(extents, &vec![true; extents.len()]), tile);
            let all: Vec<usize> = (0..walk.terms).collect();
            assert_eq!(indices(&walk, extents, tile, 0, walk.terms), all);
            assert_eq!(indices(&walk, extents, tile, 37, 59), all[37..59]);
        }
    }

    #[test]
    fn a_tile_across_the_order_visits_each_index_once() {
        let tile = Tile { row: Some(Span { axis: 0, length: 8 }), col: Some(Span { axis: 1, length: 16 }) };
        let walk = Walk::new(&nest(&[20, 35], &[true, true]), tile);
        let mut found = indices(&walk, &[20, 35], tile, 0, 700);
        assert_eq!(found[..17], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 35]);
        found.sort_unstable();
        assert_eq!(found, (0..700).collect::<Vec<_>>());
    }
}
