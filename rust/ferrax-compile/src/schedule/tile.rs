//! Blocks of at most two axes, rows and columns, over which each instruction runs once.

use smallvec::SmallVec;

use super::nest::{Map, Nest};

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
        let mut col: Option<(f64, usize)> = None;
        for axis in 0..rank {
            let score = score(axis);
            if col.is_none_or(|(best, _)| score >= best) {
                col = Some((score, axis));
            }
        }
        let Some((_, col)) = col else { return Tile::default() };
        let extent = nest.extents[col];
        // An axis along which another operand is contiguous: a transposition.
        let crossed = (0..rank).filter(|&axis| axis != col && nest.extents[axis] >= 8).find(|&axis| {
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
            let cols = even(extent, 64.min(lanes));
            let rows = even(nest.extents[row], (lanes / cols.max(1)).clamp(8, 64));
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
            for axis in (0..rank).filter(|&axis| axis != col) {
                let score = joint(axis);
                if score > best {
                    best = score;
                    row = Some(Span { axis, length: even(nest.extents[axis], lanes / cols.max(1)) });
                }
            }
        }
        Tile { row, col: Some(Span { axis: col, length: cols }) }
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
