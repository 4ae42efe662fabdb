//! How a launch runs: which loops are one, what a block of elements is, in which order terms are met, what is
//! shared among threads.
//!
//! In: a launch, and the numbers of a machine. Out: a [`Schedule`], the same for all that make code of kernels.
//! Nothing in it depends on threads, and nothing of it changes a bit of a result: sums are trees that the
//! number of their terms determines. Cost: linear in the kernel, times the loops.

mod nest;
mod terms;
mod tile;
mod walk;

use ferrax_ir::scalar::{Body, ScalarOp, ScalarType};
use rustc_hash::FxHashMap;

use crate::interpret::{BLOCK, LANES};
use crate::kernel::{Kernel, Launch, Load, Stage};
use crate::tuning::{Blocks, Target};

pub use nest::{Map, Nest, PerAxis};
pub use terms::Factor;
pub use tile::{FoldShape, Span, Tile, TreeLayout};
pub use walk::{Part, Walk};

/// Elements of a block, at least and at most.
const MIN_LANES: usize = 128;
const MAX_LANES: usize = 1024;

/// How a launch runs.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub nest: Nest,
    /// The block that an instruction takes at once, and how it meets accumulators.
    pub tile: Tile,
    pub fold: FoldShape,
    /// Terms are loads, or products of them, that are read where they lie: rows need not follow one another in
    /// memory.
    pub direct: bool,
    /// Of each accumulator, where terms are direct: the factors of its terms, if these are products.
    pub products: Vec<Option<[Factor; 2]>>,
    /// The block of the epilogue: the part of the tile that is parallel.
    pub epilogue: Tile,
    /// The order of the terms of a reduction.
    pub walk: Walk,
    /// Tiles over the parallel loops.
    pub tiles: usize,
    /// Terms of a segment of a long reduction, and how many segments there are. Each is a unit of work.
    pub segment: usize,
    pub segments: usize,
}

impl Schedule {
    pub fn new(launch: &Launch, target: &Target, blocks: &Blocks) -> Schedule {
        let kernel = &launch.kernel;
        let nest = Nest::new(launch);
        let main_stores: Vec<bool> = kernel.stores.iter().map(|store| store.stage == Stage::Main).collect();
        let per_lane = pressure(&kernel.body).max(pressure(&kernel.epilogue)).max(1);
        let lanes = (target.register_bytes / per_lane).clamp(MIN_LANES, MAX_LANES) / 64 * 64;
        let shape = Shape::choose(&nest, kernel, &main_stores, lanes, blocks);
        let walk = Walk::new(&nest, shape.tile);
        let epilogue = shape.tile.epilogue(&nest);
        let parallel = (0..nest.extents.len()).filter(|&axis| !nest.reduced[axis]);
        let tiles = parallel.map(|axis| shape.tile.blocks(&nest, axis)).product();
        let segment = segment(&shape, &walk, kernel, (tiles, epilogue.lanes()), blocks);
        let segments = walk.terms.div_ceil(segment.max(1)).max(1);
        let Shape { tile, fold, direct, products } = shape;
        Schedule { nest, tile, fold, direct, products, epilogue, walk, tiles, segment, segments }
    }
}

/// Bytes of live vector registers per lane at the worst point of `body`.
pub fn pressure(body: &Body) -> usize {
    let instructions = body.instructions();
    let mut last = vec![0; instructions.len()];
    for (index, instruction) in instructions.iter().enumerate() {
        for arg in &instruction.args {
            last[arg.0 as usize] = index;
        }
    }
    let (mut live, mut most) = (0usize, 0usize);
    let mut ending: FxHashMap<usize, usize> = FxHashMap::default();
    for (index, instruction) in instructions.iter().enumerate() {
        if matches!(instruction.op, ScalarOp::Const { .. } | ScalarOp::Param { .. }) {
            continue;
        }
        live += instruction.ty.size();
        most = most.max(live);
        if last[index] > index {
            *ending.entry(last[index]).or_insert(0) += instruction.ty.size();
        }
        live -= ending.remove(&index).unwrap_or(0).min(live);
    }
    most
}

/// What reductions make of a launch's tiles.
struct Shape {
    tile: Tile,
    fold: FoldShape,
    direct: bool,
    products: Vec<Option<[Factor; 2]>>,
}

impl Shape {
    /// The tile of a kernel, of about `lanes` elements.
    fn choose(nest: &Nest, kernel: &Kernel, main_stores: &[bool], lanes: usize, blocks: &Blocks) -> Shape {
        let shape = Shape::unlimited(nest, kernel, main_stores, lanes, blocks);
        Shape { tile: shape.tile.at_most(nest, blocks), ..shape }
    }

    fn unlimited(nest: &Nest, kernel: &Kernel, main_stores: &[bool], lanes: usize, blocks: &Blocks) -> Shape {
        let tile = Tile::choose(nest, main_stores, lanes);
        let fold = tile.fold_shape(nest);
        let none = vec![None; kernel.accumulators.len()];
        let shape = Shape { tile, fold, direct: false, products: none.clone() };
        let trees = || kernel.accumulators.iter().filter(|accumulator| accumulator.is_tree());
        let terms: usize =
            (0..nest.extents.len()).filter(|&a| nest.reduced[a]).map(|a| nest.extents[a]).product();
        let unstored = !kernel.accumulators.is_empty() && !main_stores.contains(&true);
        let alone = unstored && trees().count() == kernel.accumulators.len();
        match fold {
            FoldShape::Each if trees().next().is_some() => {
                let bytes: usize = trees().map(|tree| tree.ty.size() * terms.clamp(1, LANES)).sum();
                let narrow = |bytes_of_lanes: usize| {
                    let most = (bytes_of_lanes / bytes).max(64) / 64 * 64;
                    if most < tile.lanes() { Tile::choose(nest, main_stores, most) } else { tile }
                };
                match alone.then(|| strided(nest, kernel, narrow(blocks.lane_bytes), blocks)).flatten() {
                    Some(tile) => Shape { fold: tile.fold_shape(nest), tile, direct: true, ..shape },
                    None => {
                        let tile = narrow(blocks.computed_lane_bytes);
                        Shape { fold: tile.fold_shape(nest), tile, ..shape }
                    }
                }
            }
            FoldShape::Cols | FoldShape::All => {
                let longer = if unstored { lines(nest, kernel, tile, alone, blocks) } else { None };
                let (tile, products, direct) =
                    longer.map_or((tile, none, false), |(tile, products)| (tile, products, alone));
                Shape {
                    fold: tile.fold_shape(nest),
                    tile: spread(nest, tile, terms, blocks),
                    direct,
                    products,
                }
            }
            _ => shape,
        }
    }
}

/// Whether all terms are loads that are contiguous along an axis, at no computed index, and if so, whether they
/// need no conversion.
fn are_loads(nest: &Nest, kernel: &Kernel, along: usize) -> Option<bool> {
    let mut native = true;
    for instruction in kernel.body.instructions() {
        let ScalarOp::Input { operand, .. } = instruction.op else { return None };
        if !instruction.args.is_empty() {
            return None;
        }
        let (load, map): (&Load, &Map) =
            (kernel.loads.get(operand as usize)?, nest.loads.get(operand as usize)?);
        if map.guards.is_some() || map.strides[along] != 1 {
            return None;
        }
        let dtype = kernel.operands[load.operand as usize].dtype;
        native &= ScalarType::of(dtype).is_ok_and(|ty| ty.dtype() == dtype);
    }
    Some(native)
}

/// A tile of one row of kept elements made one of many rows, if their terms are loads alone, contiguous
/// along the row.
fn strided(nest: &Nest, kernel: &Kernel, tile: Tile, blocks: &Blocks) -> Option<Tile> {
    let (None, Some(col)) = (tile.row, tile.col) else { return None };
    let axis = (0..nest.extents.len()).rfind(|&axis| nest.reduced[axis])?;
    let native = are_loads(nest, kernel, col.axis)?;
    let rows = if native { BLOCK } else { (blocks.strided / col.length.max(1)).clamp(1, BLOCK) };
    let length = rows.min(nest.extents[axis]);
    Some(Tile { row: Some(Span { axis, length }), col: Some(col) })
}

/// A tile of lines made longer, and one of more lines, if their terms are read where they lie, with the factors
/// of those that are products. Only trees take these, and lines that do not follow one another.
fn lines(
    nest: &Nest,
    kernel: &Kernel,
    tile: Tile,
    trees: bool,
    blocks: &Blocks,
) -> Option<(Tile, Vec<Option<[Factor; 2]>>)> {
    let col = tile.col?;
    let extent = nest.extents[col.axis];
    if tile.row.is_some_and(|row| nest.reduced[row.axis]) {
        return None;
    }
    let (products, many) = match are_loads(nest, kernel, col.axis) {
        Some(true) => (vec![None; kernel.accumulators.len()], true),
        Some(false) => return None,
        None if trees => terms::products(nest, kernel, col.axis)?,
        None => return None,
    };
    if !many && tile.row.is_some() {
        return None;
    }
    let cols = extent.min(blocks.lines);
    let follow =
        |axis: usize| cols == extent && nest.loads.iter().all(|map| map.strides[axis] == extent as i64);
    let kept = tile.row.map(|row| row.axis);
    let kept = kept.or_else(|| (0..nest.extents.len()).rfind(|&axis| !nest.reduced[axis]));
    let row = kept.filter(|&axis| many && (trees || follow(axis))).map(|axis| {
        let most = (blocks.lines / cols.max(1)).clamp(1, blocks.most_lines);
        Span { axis, length: most.min(nest.extents[axis]) }
    });
    let row = row.filter(|row| row.length > 1 || tile.row.is_some());
    let tile = (row.is_some() || tile.row.is_none())
        .then_some(Tile { row, col: Some(Span { length: cols, ..col }) });
    Some((tile?, products))
}

/// Fewer rows where there are few tiles, each of which is long: lines side by side are not cut into segments.
fn spread(nest: &Nest, tile: Tile, terms: usize, tuning: &Blocks) -> Tile {
    let Some(row) = tile.row else { return tile };
    let extent = nest.extents[row.axis];
    let blocks = extent.div_ceil(row.length.max(1));
    let kept = (0..nest.extents.len()).filter(|&axis| !nest.reduced[axis] && axis != row.axis);
    let others: usize = kept.map(|axis| nest.extents[axis]).product::<usize>().max(1);
    if others * blocks >= tuning.tiles || terms.saturating_mul(row.length) < 2 * tuning.segment {
        return tile;
    }
    let length = extent.div_ceil(tuning.tiles.div_ceil(others)).max(1);
    Tile { row: Some(Span { length, ..row }), ..tile }
}

/// The terms of a segment, where there are so many tiles, of so many results each.
fn segment(
    shape: &Shape,
    walk: &Walk,
    kernel: &Kernel,
    (tiles, kept): (usize, usize),
    blocks: &Blocks,
) -> usize {
    let per_unit = walk.terms.saturating_mul(kept);
    // Rows of a block are as long as the tile's columns: several lines are never cut.
    let lines = shape.fold == FoldShape::Cols && shape.tile.row.is_some_and(|row| row.length > 1);
    if kernel.accumulators.is_empty() || tiles >= blocks.tiles || per_unit < 2 * blocks.segment || lines {
        return walk.terms;
    }
    let many = (per_unit / blocks.segment).clamp(1, blocks.segments);
    let power = (walk.terms / many).max(1).ilog2();
    (1usize << power).max(if shape.fold.layout() == TreeLayout::Rows { BLOCK } else { 4 * BLOCK })
}
