//! The loops of a launch, simplified, and how they are cut into tiles.
//!
//! A tile is a block of at most two axes, rows and columns, over which each
//! instruction runs once. Everything here depends on the launch alone, never on
//! threads.

use ferrax_compile::{AxisKind, Launch, Stage};
use ferrax_ir::scalar::{Body, ScalarOp};
use smallvec::SmallVec;

use super::fold::FoldShape;

/// Numbers per axis.
pub type PerAxis<T> = SmallVec<[T; 6]>;

/// An index map in elements, with guards.
#[derive(Clone, Debug)]
pub struct Map {
    pub offset: i64,
    pub strides: PerAxis<i64>,
    /// Where the map is valid; `None` if everywhere.
    pub guards: Option<PerAxis<(i64, i64)>>,
}

#[derive(Clone, Debug)]
pub struct Nest {
    pub extents: PerAxis<usize>,
    pub reduced: PerAxis<bool>,
    pub loads: Vec<Map>,
    pub stores: Vec<Map>,
    /// For each axis of the launch the axis here.
    pub axis_of: PerAxis<usize>,
}

fn uses_index(bodies: [&Body; 2], axis: usize) -> bool {
    bodies.iter().any(|body| {
        body.instructions().iter().any(|i| matches!(i.op, ScalarOp::Index { axis: a } if a as usize == axis))
    })
}

impl Nest {
    pub fn new(launch: &Launch) -> Nest {
        let kernel = &launch.kernel;
        let full = |range: (i64, i64), axis: usize| range == (0, launch.extents[axis] as i64);
        let map = |view: &ferrax_compile::View| Map {
            offset: view.offset,
            strides: view.strides.iter().copied().collect(),
            guards: (!view.ranges.iter().enumerate().all(|(axis, &range)| full(range, axis)))
                .then(|| view.ranges.iter().copied().collect()),
        };
        // Without accumulators nothing is reduced.
        let reducing =
            !kernel.accumulators.is_empty() || kernel.stores.iter().any(|s| s.stage == Stage::Epilogue);
        let mut nest = Nest {
            extents: launch.extents.iter().copied().collect(),
            reduced: kernel.axes.iter().map(|&kind| reducing && kind == AxisKind::Reduction).collect(),
            loads: launch.loads.iter().map(map).collect(),
            stores: launch.stores.iter().map(map).collect(),
            axis_of: (0..launch.extents.len()).collect(),
        };
        let indexed: PerAxis<bool> = (0..launch.extents.len())
            .map(|axis| uses_index([&kernel.body, &kernel.epilogue], axis))
            .collect();
        let mut indexed = indexed;
        // Neighbours that every map walks as one.
        let mut axis = nest.extents.len();
        while axis > 1 {
            axis -= 1;
            let (outer, inner) = (axis - 1, axis);
            let extent = nest.extents[inner] as i64;
            let joined = |map: &Map| {
                map.strides[outer] == map.strides[inner] * extent
                    && map.guards.as_ref().is_none_or(|guards| {
                        guards[outer] == (0, nest.extents[outer] as i64) && guards[inner] == (0, extent)
                    })
            };
            let mergeable = nest.reduced[outer] == nest.reduced[inner]
                && !indexed[outer]
                && !indexed[inner]
                && nest.loads.iter().chain(&nest.stores).all(joined);
            if mergeable {
                nest.extents[outer] *= nest.extents[inner];
                nest.extents.remove(inner);
                nest.reduced.remove(inner);
                indexed.remove(inner);
                let total = nest.extents[outer] as i64;
                for map in nest.loads.iter_mut().chain(&mut nest.stores) {
                    map.strides.remove(outer);
                    if let Some(guards) = &mut map.guards {
                        guards.remove(inner);
                        guards[outer] = (0, total);
                    }
                }
                for to in &mut nest.axis_of {
                    if *to >= inner {
                        *to -= 1;
                    }
                }
            }
        }
        nest
    }

    /// Of each loop of the launch, whose extents these are: its axis here, how far that moves with it, and its
    /// extent.
    pub fn launched(&self, extents: &[usize]) -> PerAxis<(usize, usize, usize)> {
        let mut weights: PerAxis<usize> = self.extents.iter().map(|_| 1).collect();
        let mut launched: PerAxis<(usize, usize, usize)> = SmallVec::from_elem((0, 1, 1), extents.len());
        for (number, &extent) in extents.iter().enumerate().rev() {
            let axis = self.axis_of[number];
            launched[number] = (axis, weights[axis], extent);
            weights[axis] *= extent;
        }
        launched
    }

    pub fn count(&self) -> usize {
        self.extents.iter().product()
    }

    /// Weights that number the reduction indices row-major.
    pub fn reduction_weights(&self) -> PerAxis<i64> {
        let mut weights: PerAxis<i64> = self.extents.iter().map(|_| 0).collect();
        let mut weight = 1;
        for axis in (0..self.extents.len()).rev() {
            if self.reduced[axis] {
                weights[axis] = weight;
                weight *= self.extents[axis] as i64;
            }
        }
        weights
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

    /// Elements of a tile along `axis`: its span, or 1.
    pub fn step(&self, axis: usize) -> usize {
        [self.row, self.col]
            .into_iter()
            .flatten()
            .find(|span| span.axis == axis)
            .map_or(1, |span| span.length)
    }
}
