//! Accumulators, and how tiles meet them.
//!
//! Where the order of terms matters (sums and products of floats) they go into
//! a tree that their number determines (`tree`); other reductions combine each
//! tile with what they have. A long reduction with little beside it is cut into
//! segments of a power of two of terms, which are whole subtrees: cut or not,
//! the result has the same bits.

use ferrax_compile::{Accumulator, Kernel, Load};
use ferrax_ir::scalar::ScalarOp;
use ferrax_ir::{DType, Result};

use super::bound::Worker;
use super::fold::{ArgFn, ArgMergeFn, FoldOp, FoldShape, arg_fns, fold_op};
use super::nest::{Map, Nest, Span, Tile};
use super::section::{Entry, Place, Section};
use super::transfer::is_native;
use super::tree::{BLOCK, LANES, Layout, TreeOp, levels, tree_op};
use super::walk::Walk;

/// Bytes of the lanes of trees side by side, for terms that are read where they lie (lanes stay in the
/// first-level cache) and for computed ones, of which a tile holds one row.
const LANE_BYTES: usize = 32 << 10;
const COMPUTED_LANE_BYTES: usize = 64 << 10;
/// Elements of a tile that is converted row by row.
const STRIDED: usize = 1 << 12;
/// Elements of a tile of lines that are read where they lie, and the most lines of one.
const LINES: usize = 1 << 14;
const MOST_LINES: usize = 256;
/// Elements per segment of a long reduction, and the number of segments that is aimed at.
const SEGMENT: usize = 1 << 16;
const MANY_SEGMENTS: usize = 64;
/// Tiles that are enough for all threads.
const MANY_TILES: usize = 16;

#[derive(Debug)]
pub struct Fold {
    pub size: usize,
    /// Accumulated values, when they are complete.
    pub values: Place,
    /// The terms of a tile.
    pub from: Place,
    pub apply: Apply,
}

pub enum Apply {
    Plain(FoldOp),
    Arg {
        indices: Place,
        apply: ArgFn,
        merge: ArgMergeFn,
    },
    /// `stride` is that of rows of terms that are read where they lie, in bytes.
    Tree {
        op: TreeOp,
        lanes: Place,
        levels: Place,
        stride: Option<isize>,
    },
}

impl std::fmt::Debug for Apply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Apply::Plain(_) => "Plain",
            Apply::Arg { .. } => "Arg",
            Apply::Tree { .. } => "Tree",
        })
    }
}

impl Fold {
    /// The place that the epilogue reads.
    pub fn result(&self) -> Place {
        match self.apply {
            Apply::Arg { indices, .. } => indices,
            _ => self.values,
        }
    }
}

/// What reductions make of a launch's tiles.
pub struct Shape {
    pub tile: Tile,
    pub fold: FoldShape,
    /// Terms are loads that are read where they lie: rows need not follow one another in memory.
    pub direct: bool,
}

impl Shape {
    /// The tile of a kernel, of about `lanes` elements.
    pub fn choose(nest: &Nest, kernel: &Kernel, main_stores: &[bool], lanes: usize) -> Shape {
        let tile = Tile::choose(nest, main_stores, lanes);
        let fold = tile.fold_shape(nest);
        let shape = Shape { tile, fold, direct: false };
        let is_tree =
            |accumulator: &&Accumulator| tree_op(accumulator.kind, accumulator.ty, fold.layout()).is_some();
        let trees = || kernel.accumulators.iter().filter(is_tree);
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
                match alone.then(|| strided(nest, kernel, narrow(LANE_BYTES))).flatten() {
                    Some(tile) => Shape { fold: tile.fold_shape(nest), tile, direct: true },
                    None => {
                        let tile = narrow(COMPUTED_LANE_BYTES);
                        Shape { fold: tile.fold_shape(nest), tile, ..shape }
                    }
                }
            }
            FoldShape::Cols | FoldShape::All => {
                let longer = if unstored { lines(nest, kernel, tile, alone) } else { None };
                let (tile, direct) = longer.map_or((tile, false), |tile| (tile, alone));
                Shape { fold: tile.fold_shape(nest), tile: spread(nest, tile, terms), direct }
            }
            _ => shape,
        }
    }
}

/// Whether all terms are loads that are contiguous along an axis, and if so, whether they need no conversion.
fn are_loads(nest: &Nest, kernel: &Kernel, along: usize) -> Option<bool> {
    let mut native = true;
    for instruction in kernel.body.instructions() {
        let ScalarOp::Input { operand, .. } = instruction.op else { return None };
        let (load, map): (&Load, &Map) =
            (kernel.loads.get(operand as usize)?, nest.loads.get(operand as usize)?);
        if map.guards.is_some() || map.strides[along] != 1 {
            return None;
        }
        let dtype: DType = kernel.operands[load.operand as usize].dtype;
        native &= is_native(dtype);
    }
    Some(native)
}

/// A tile of one row of kept elements made one of many rows, if their terms are loads alone, contiguous
/// along the row.
fn strided(nest: &Nest, kernel: &Kernel, tile: Tile) -> Option<Tile> {
    let (None, Some(col)) = (tile.row, tile.col) else { return None };
    let axis = (0..nest.extents.len()).rfind(|&axis| nest.reduced[axis])?;
    let native = are_loads(nest, kernel, col.axis)?;
    let rows = if native { BLOCK } else { (STRIDED / col.length.max(1)).clamp(1, BLOCK) };
    let length = rows.min(nest.extents[axis]);
    Some(Tile { row: Some(Span { axis, length }), col: Some(col) })
}

/// A tile of lines made longer, and one of more lines, if their terms are read where they lie. Only trees
/// take lines that do not follow one another.
fn lines(nest: &Nest, kernel: &Kernel, tile: Tile, trees: bool) -> Option<Tile> {
    let col = tile.col?;
    let extent = nest.extents[col.axis];
    if tile.row.is_some_and(|row| nest.reduced[row.axis]) || !are_loads(nest, kernel, col.axis)? {
        return None;
    }
    let cols = extent.min(LINES);
    let follow =
        |axis: usize| cols == extent && nest.loads.iter().all(|map| map.strides[axis] == extent as i64);
    let kept = tile.row.map(|row| row.axis);
    let kept = kept.or_else(|| (0..nest.extents.len()).rfind(|&axis| !nest.reduced[axis]));
    let row = kept.filter(|&axis| trees || follow(axis)).map(|axis| {
        let most = (LINES / cols.max(1)).clamp(1, MOST_LINES);
        Span { axis, length: most.min(nest.extents[axis]) }
    });
    let row = row.filter(|row| row.length > 1 || tile.row.is_some());
    (row.is_some() || tile.row.is_none()).then_some(Tile { row, col: Some(Span { length: cols, ..col }) })
}

/// Fewer rows where there are few tiles, each of which is long: lines side by side are not cut into segments.
fn spread(nest: &Nest, tile: Tile, terms: usize) -> Tile {
    let Some(row) = tile.row else { return tile };
    let extent = nest.extents[row.axis];
    let blocks = extent.div_ceil(row.length.max(1));
    let kept = (0..nest.extents.len()).filter(|&axis| !nest.reduced[axis] && axis != row.axis);
    let others: usize = kept.map(|axis| nest.extents[axis]).product::<usize>().max(1);
    if others * blocks >= MANY_TILES || terms.saturating_mul(row.length) < 2 * SEGMENT {
        return tile;
    }
    let length = extent.div_ceil(MANY_TILES.div_ceil(others)).max(1);
    Tile { row: Some(Span { length, ..row }), ..tile }
}

/// The terms of a segment, where there are so many tiles.
pub fn segment(shape: &Shape, walk: &Walk, folds: &[Fold], tiles: usize, kept: usize) -> usize {
    let per_unit = walk.terms.saturating_mul(kept);
    // Rows of a block are as long as the tile's columns: several lines are never cut.
    let lines = shape.fold == FoldShape::Cols && shape.tile.row.is_some_and(|row| row.length > 1);
    if folds.is_empty() || tiles >= MANY_TILES || per_unit < 2 * SEGMENT || lines {
        return walk.terms;
    }
    let many = (per_unit / SEGMENT).clamp(1, MANY_SEGMENTS);
    let power = (walk.terms / many).max(1).ilog2();
    (1usize << power).max(if shape.fold.layout() == Layout::Rows { BLOCK } else { 4 * BLOCK })
}

/// The accumulators of a kernel, in places of their own.
pub fn folds(
    kernel: &Kernel,
    shape: &Shape,
    terms: usize,
    kept: usize,
    layout: &mut super::section::Layout,
) -> Result<Vec<Fold>> {
    let make = |accumulator: &Accumulator| -> Result<Fold> {
        let (kind, ty) = (accumulator.kind, accumulator.ty);
        let size = ty.size();
        let values = layout.slot(size * kept);
        let apply = if kind.is_arg() {
            let (apply, merge) = arg_fns(kind, ty, shape.fold);
            Apply::Arg { indices: layout.slot(8 * kept), apply, merge }
        } else if let Some(op) = tree_op(kind, ty, shape.fold.layout()) {
            let lanes = layout.slot(size * kept * LANES);
            Apply::Tree { op, lanes, levels: layout.slot(size * kept * levels(terms)), stride: None }
        } else {
            Apply::Plain(fold_op(kind, ty, shape.fold)?)
        };
        Ok(Fold { size, values, from: 0, apply })
    };
    kernel.accumulators.iter().map(make).collect()
}

/// Tells folds where their terms are.
pub fn connect(folds: &mut [Fold], main: &Section, shape: &Shape, entries: &[Entry]) {
    for (fold, &place) in folds.iter_mut().zip(&main.results) {
        fold.from = place;
        let (Apply::Tree { stride, .. }, Some(row)) = (&mut fold.apply, shape.tile.row) else { continue };
        if shape.direct && entries[place as usize] == Entry::Moving {
            let load = main.loads.iter().find(|load| load.place == place);
            let along = |load: &super::section::LoadStep| {
                load.walk
                    .strides
                    .iter()
                    .find(|(axis, _)| *axis as usize == row.axis)
                    .map_or(0, |found| found.1)
            };
            *stride = load.map(along);
        }
    }
}

/// Terms that the trees of a unit have taken.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// Reductions side by side.
    kept: usize,
    /// Terms of the block that is not complete.
    position: usize,
    /// Complete blocks.
    blocks: usize,
    /// Values are complete.
    complete: bool,
}

impl Worker<'_> {
    fn place(&self, place: Place) -> *mut u8 {
        self.table[place as usize]
    }

    /// Accumulators that have seen nothing.
    ///
    /// # Safety
    /// As `Bound::run`, here and below.
    pub(super) unsafe fn start_folds(&mut self) {
        let bound = self.bound;
        self.measure(bound.epilogue_tile);
        let kept = self.rows * self.cols;
        self.progress = Progress { kept, ..Progress::default() };
        for fold in &bound.folds {
            let values = self.place(fold.values);
            // SAFETY: slots hold `kept` accumulators.
            unsafe {
                match &fold.apply {
                    Apply::Plain(op) => {
                        for index in 0..kept {
                            let to = values.add(index * fold.size);
                            std::ptr::copy_nonoverlapping(op.start.as_ptr(), to, fold.size);
                        }
                    }
                    Apply::Arg { indices, .. } => {
                        values.write_bytes(0, kept * fold.size);
                        std::slice::from_raw_parts_mut(self.place(*indices).cast::<i64>(), kept).fill(-1);
                    }
                    Apply::Tree { .. } => {}
                }
            }
        }
    }

    /// Takes the tile here.
    ///
    /// # Safety
    /// The section before the folds has run over this tile, so that its blocks hold `terms` terms for
    /// each accumulator. The slots are those of this kernel and hold what became of the terms before.
    pub(super) unsafe fn fold(&mut self, terms: usize) {
        let bound = self.bound;
        let weight = |span: Option<Span>| span.map_or(0, |span| bound.weights[span.axis]);
        let mut trees = false;
        for fold in &bound.folds {
            let (from, values) = (self.place(fold.from), self.place(fold.values));
            // SAFETY: by this function's contract `from` is a block of `rows` times `cols` elements and
            // `values` and `indices` are slots with an accumulator for each that is kept; slots do not
            // overlap. `build` chose the functions by the element type of the block.
            unsafe {
                match &fold.apply {
                    Apply::Plain(op) => (op.apply)(self.rows, self.cols, from, values),
                    Apply::Arg { indices, apply, .. } => {
                        let base = self.at.iter().zip(&bound.weights).map(|(at, weight)| at * weight).sum();
                        let (row, col) = (weight(bound.tile.row), weight(bound.tile.col));
                        let indices = self.place(*indices).cast();
                        apply(self.rows, self.cols, from, values, indices, base, row, col);
                    }
                    Apply::Tree { .. } => trees = true,
                }
            }
        }
        if trees {
            // SAFETY: this function's own contract is that of `take`.
            unsafe { self.take(terms) };
        }
    }

    /// Calls `visit` for each tree with its functions, terms, lanes, row stride and values.
    fn each_tree(&self, mut visit: impl FnMut(&TreeOp, *const u8, *mut u8, isize, &Fold)) {
        let row = if self.bound.by_lines() { self.cols } else { self.progress.kept };
        for fold in &self.bound.folds {
            if let Apply::Tree { op, lanes, stride, .. } = &fold.apply {
                let stride = stride.unwrap_or((row * fold.size) as isize);
                visit(op, self.place(fold.from), self.place(*lanes), stride, fold);
            }
        }
    }

    /// The terms of the tile here into trees.
    ///
    /// # Safety
    /// As for [`Self::fold`].
    unsafe fn take(&mut self, terms: usize) {
        let by_lines = self.bound.by_lines();
        let kept = self.progress.kept;
        if by_lines && terms == self.bound.walk.terms {
            self.each_tree(|op, from, _, stride, fold| {
                // SAFETY: a line of the block has `terms` terms, which as was just asked are all that
                // there will be, and `values` has room for `kept` results.
                unsafe { (op.whole)(kept, terms, stride, from, self.place(fold.values)) };
            });
            self.progress.complete = true;
            return;
        }
        let mut done = 0;
        while done < terms {
            let Progress { position, blocks, .. } = self.progress;
            let left = terms - done;
            if by_lines && position == 0 && left >= BLOCK {
                // So many blocks that they are a subtree of the whole.
                let most = (left / BLOCK).ilog2();
                let level = if blocks == 0 { most } else { most.min(blocks.trailing_zeros()) };
                self.each_tree(|op, from, _, stride, fold| {
                    // SAFETY: `left` terms of each line of the tile begin at `from`, and 2^level blocks of
                    // them are not more than those: level is at most `most`.
                    unsafe {
                        let from = from.add(done * fold.size);
                        (op.whole)(kept, BLOCK << level, stride, from, self.place(fold.values));
                    }
                });
                done += BLOCK << level;
                // SAFETY: the values of all trees were just made those of 2^level blocks.
                unsafe { self.push(level) };
                continue;
            }
            let n = left.min(BLOCK - position);
            self.each_tree(|op, from, lanes, stride, fold| {
                let step = if by_lines { fold.size as isize } else { stride };
                // SAFETY: `done + n` is at most `terms`, so the terms are in the tile; `position + n` is at
                // most `BLOCK`, so they are in one block; `lanes` has room for `LANES` rows of `kept` values.
                unsafe { (op.take)(kept, position, n, stride, from.offset(done as isize * step), lanes) };
            });
            done += n;
            self.progress.position += n;
            if self.progress.position == BLOCK {
                // SAFETY: `BLOCK` terms were taken into the lanes, which `close` makes values of one
                // block, for `push` to count.
                unsafe {
                    self.close();
                    self.push(0);
                }
            }
        }
    }

    /// Combines the lanes of the last block.
    ///
    /// # Safety
    /// The lanes hold the terms that `position` counts; the slots are those of this kernel.
    unsafe fn close(&mut self) {
        let Progress { kept, position, .. } = self.progress;
        self.each_tree(|op, _, lanes, _, fold| {
            // SAFETY: `take` has filled the lanes that `position` terms reach, and no more are read;
            // `values` has room for `kept` results and is a slot of its own.
            unsafe { (op.close)(kept, position, lanes, self.place(fold.values)) };
        });
        self.progress.position = 0;
    }

    /// Counts values that are those of 2^level blocks.
    ///
    /// # Safety
    /// The values of each tree are those of so many blocks, the number of blocks before is a multiple
    /// of that, and both together are at most the blocks of the reduction.
    unsafe fn push(&mut self, level: u32) {
        let Progress { kept, blocks, .. } = self.progress;
        let carries = (blocks >> level).trailing_ones();
        for fold in &self.bound.folds {
            let Apply::Tree { op, levels, .. } = &fold.apply else { continue };
            let (values, levels) = (self.place(fold.values), self.place(*levels));
            let bytes = kept * fold.size;
            // SAFETY: levels exist for each bit of the reduction's number of blocks (`build`), and the
            // highest that is reached here is a bit of the blocks so far. Those that are merged are bits
            // of `blocks`, so they were written before. Levels and values are slots of their own.
            unsafe {
                for level in level..level + carries {
                    (op.merge)(kept, levels.add(level as usize * bytes), values);
                }
                std::ptr::copy_nonoverlapping(values, levels.add((level + carries) as usize * bytes), bytes);
            }
        }
        self.progress.blocks += 1 << level;
    }

    /// Makes values those of all terms so far.
    ///
    /// # Safety
    /// As for [`Self::fold`].
    pub(super) unsafe fn complete_folds(&mut self) {
        if self.progress.complete {
            return;
        }
        let Progress { kept, position, blocks, .. } = self.progress;
        // SAFETY: the lanes hold `position` terms, which `close` makes the values of one block, the last
        // one. A level is read only if its bit of `blocks` is set: then `push` has written it.
        unsafe {
            if position > 0 || blocks == 0 {
                self.close();
                if blocks == 0 {
                    return;
                }
                self.push(0);
            }
            let blocks = self.progress.blocks;
            for fold in &self.bound.folds {
                let Apply::Tree { op, levels, .. } = &fold.apply else { continue };
                let (values, levels) = (self.place(fold.values), self.place(*levels));
                let bytes = kept * fold.size;
                let level = |level: u32| levels.add(level as usize * bytes);
                // Values still are those of the lowest level.
                let mut rest = blocks & (blocks - 1);
                while rest != 0 {
                    (op.merge)(kept, level(rest.trailing_zeros()), values);
                    rest &= rest - 1;
                }
            }
        }
    }

    /// Writes the accumulators of the unit here, in the order in which [`Self::restore`] reads them.
    ///
    /// # Safety
    /// `to` is valid for the bytes of one unit's partial results, which nobody else uses.
    pub(super) unsafe fn save(&mut self, to: *mut u8) {
        let (most, kept) = (self.bound.epilogue_tile.lanes(), self.progress.kept);
        let mut offset = 0;
        let mut slot = |place: Place, size: usize| {
            // SAFETY: a unit's partial results are its accumulators, each rounded up to 64 bytes (see
            // `Bound::partial_bytes`); slots hold `kept` of them, which is at most `most`.
            unsafe { std::ptr::copy_nonoverlapping(self.place(place), to.add(offset), size * kept) };
            offset += (size * most).next_multiple_of(64);
        };
        for fold in &self.bound.folds {
            slot(fold.values, fold.size);
            if let Apply::Arg { indices, .. } = fold.apply {
                slot(indices, 8);
            }
        }
    }

    /// Merges saved accumulators into those here, which are of the segments before.
    ///
    /// # Safety
    /// `from` is what [`Self::save`] wrote for a unit of as many accumulators.
    pub(super) unsafe fn restore(&mut self, from: *const u8) {
        let (most, kept) = (self.bound.epilogue_tile.lanes(), self.progress.kept);
        let mut offset = 0;
        let mut saved = |size: usize| {
            let at = offset;
            offset += (size * most).next_multiple_of(64);
            from.wrapping_add(at)
        };
        let mut trees = false;
        for fold in &self.bound.folds {
            let values = self.place(fold.values);
            let partial = saved(fold.size);
            // SAFETY: `from` holds the accumulators of one unit.
            unsafe {
                match &fold.apply {
                    Apply::Plain(op) => (op.merge)(1, kept, partial, values),
                    Apply::Arg { indices, merge, .. } => {
                        let indices_here = self.place(*indices).cast();
                        merge(kept, partial, saved(8).cast(), values, indices_here);
                    }
                    Apply::Tree { .. } => {
                        std::ptr::copy_nonoverlapping(partial, values, kept * fold.size);
                        trees = true;
                    }
                }
            }
        }
        if trees {
            // SAFETY: values are those of one segment, of which there are fewer than blocks.
            unsafe { self.push(0) };
        }
    }
}
