//! Blocks of at most two axes, rows and columns, over which each instruction runs once.

use smallvec::SmallVec;

use super::nest::{Map, Nest};
use crate::tuning::Blocks;

/// How a block of rows by columns meets its accumulators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldShape {
    /// One accumulator per element.
    Each,
    /// One per row.
    Cols,
    /// One per column.
    Rows,
    /// One.
    All,
}

/// How the trees of several sums run side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeLayout {
    /// A term of all of them is a row of values.
    Rows,
    /// A line has the terms of one of them.
    Lines,
}

impl FoldShape {
    /// How trees of this shape lie side by side.
    pub fn layout(self) -> TreeLayout {
        match self {
            FoldShape::Each | FoldShape::Rows => TreeLayout::Rows,
            FoldShape::Cols | FoldShape::All => TreeLayout::Lines,
        }
    }
}

/// An axis that a tile spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub axis: usize,
    /// The length of a full tile.
    pub length: usize,
}

/// The shape of tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tile {
    pub row: Option<Span>,
    pub col: Option<Span>,
}

/// Columns below which a tile takes rows too.
const FEW: usize = 192;

/// Rows and columns of a tile across a transposition, at most.
const CROSSED: usize = 64;

impl Tile {
    /// A tile of about `lanes` elements. `main_stores` marks stores of the main body.
    pub fn choose(nest: &Nest, main_stores: &[bool], lanes: usize) -> Tile {
        let rank = nest.extents.len();
        let stores = || nest.stores.iter().zip(main_stores).filter(|(_, main)| **main).map(|(map, _)| map);
        // What an axis is worth to each operand where it is contiguous, and where it stands still. Operands count by
        // their elements: what is broadcast along an axis has fewer.
        let worth = |map: &Map, contiguous: f64, still: f64| {
            let broadcast = (0..rank).filter(|&axis| map.strides[axis] == 0);
            let times = broadcast.map(|axis| nest.extents[axis].max(1) as f64).product::<f64>();
            (contiguous / times, still / times)
        };
        let loads = nest.loads.iter().map(|map| (map, worth(map, 2.0, 0.5)));
        let worths: SmallVec<[_; 8]> = loads.chain(stores().map(|map| (map, worth(map, 3.0, 0.0)))).collect();
        let score = |axis: usize| -> f64 {
            let of = |&(map, (contiguous, still)): &(&Map, (f64, f64))| match map.strides[axis].abs() {
                1 => contiguous,
                0 => still,
                _ => 0.0,
            };
            (worths.iter().map(of).sum::<f64>() + 0.01) * (nest.extents[axis].min(64) as f64)
        };
        // Where terms have an order, their numbers grow along what a tile spans, and no other reduced axis is within.
        let reduced: SmallVec<[usize; 6]> =
            (0..rank).filter(|&axis| nest.ordered && nest.reduced[axis]).collect();
        let inward = |axis: usize| reduced.iter().rev().position(|&reduced| reduced == axis);
        let is_col = |axis: usize| inward(axis).is_none_or(|place| place == 0);
        let is_row = |axis: usize, col: usize, whole: bool| {
            inward(axis).is_none_or(|place| match inward(col) {
                Some(_) => whole && place == 1,
                None => place == 0,
            })
        };
        let mut col: Option<(f64, usize)> = None;
        for axis in (0..rank).filter(|&axis| is_col(axis)) {
            let score = score(axis);
            if col.is_none_or(|(best, _)| score >= best) {
                col = Some((score, axis));
            }
        }
        let Some((_, col)) = col else { return Tile::default() };
        let extent = nest.extents[col];
        // An axis along which another operand is contiguous: a transposition.
        let crossing = |axis: &usize| {
            *axis != col && nest.extents[*axis] >= 8 && is_row(*axis, col, extent <= CROSSED.min(lanes))
        };
        let crossed = (0..rank).filter(crossing).find(|&axis| {
            nest.loads.iter().any(|map| map.strides[axis].abs() == 1 && map.strides[col].abs() > 1)
                || stores().any(|map| map.strides[axis].abs() == 1 && map.strides[col].abs() > 1)
        });
        let even = |extent: usize, most: usize| {
            let most = most.max(1);
            let blocks = extent.div_ceil(most).max(1);
            let length = extent.div_ceil(blocks);
            if blocks > 1 { length.next_multiple_of(16).min(most) } else { length }
        };
        if let Some(row) = crossed {
            let cols = even(extent, CROSSED.min(lanes));
            let rows = even(nest.extents[row], (lanes / cols.max(1)).clamp(8, CROSSED));
            return Tile {
                row: Some(Span { axis: row, length: rows }),
                col: Some(Span { axis: col, length: cols }),
            };
        }
        let cols = even(extent, lanes);
        let mut row = None;
        // Rows follow one another in a block only if they are whole. Long ones are worth it where they
        // follow one another in memory, too.
        let follow = |axis: usize| {
            let mut maps = nest.loads.iter().chain(stores());
            maps.all(|map| map.strides[axis] == map.strides[col] * extent as i64)
        };
        let many = extent < FEW || (2 * extent <= lanes && (0..rank).any(|axis| axis != col && follow(axis)));
        if many && cols == extent && rank > 1 {
            let joint = |axis: usize| -> f64 {
                let mut score = 0.1;
                for map in nest.loads.iter().chain(stores()) {
                    let together = map.strides[axis] == map.strides[col] * extent as i64;
                    score += if together { 2.0 } else { 0.0 };
                }
                score * nest.extents[axis].min(256) as f64
            };
            let mut best = 0.0;
            for axis in (0..rank).filter(|&axis| axis != col && is_row(axis, col, true)) {
                let score = joint(axis);
                if score > best {
                    best = score;
                    row = Some(Span { axis, length: even(nest.extents[axis], lanes / cols.max(1)) });
                }
            }
        }
        Tile { row, col: Some(Span { axis: col, length: cols }) }
    }

    /// The same with as few rows and columns as that allows. Columns of terms that rows continue stay: where they
    /// are cut, terms come in another order.
    pub fn at_most(self, nest: &Nest, blocks: &Blocks) -> Tile {
        let reduced = |span: Option<Span>| span.is_some_and(|span| nest.reduced[span.axis]);
        let cut = |span: Span, most: usize| Span { length: span.length.min(most), ..span };
        let columns = if reduced(self.row) && reduced(self.col) { usize::MAX } else { blocks.columns };
        Tile { row: self.row.map(|row| cut(row, blocks.rows)), col: self.col.map(|col| cut(col, columns)) }
    }

    pub fn lanes(&self) -> usize {
        self.row.map_or(1, |span| span.length) * self.col.map_or(1, |span| span.length)
    }

    /// How tiles of the main body meet accumulators.
    pub fn fold_shape(&self, nest: &Nest) -> FoldShape {
        let reduced = |span: Option<Span>| span.map(|span| nest.reduced[span.axis]);
        match (reduced(self.row), reduced(self.col)) {
            (Some(false), Some(true)) => FoldShape::Cols,
            (Some(true), Some(false)) => FoldShape::Rows,
            (None | Some(true), Some(true)) => FoldShape::All,
            _ => FoldShape::Each,
        }
    }

    /// The part of the tile that is parallel, over which the epilogue runs.
    pub fn epilogue(&self, nest: &Nest) -> Tile {
        match self.fold_shape(nest) {
            FoldShape::Each => *self,
            FoldShape::Cols => Tile { row: None, col: self.row },
            FoldShape::Rows => Tile { row: None, col: self.col },
            FoldShape::All => Tile::default(),
        }
    }

    /// Tiles along an axis.
    pub fn blocks(&self, nest: &Nest, axis: usize) -> usize {
        nest.extents[axis].div_ceil(self.step(axis).max(1))
    }

    /// Elements of a tile along `axis`: its span, or 1.
    pub fn step(&self, axis: usize) -> usize {
        [self.row, self.col]
            .into_iter()
            .flatten()
            .find(|span| span.axis == axis)
            .map_or(1, |span| span.length)
    }
}
