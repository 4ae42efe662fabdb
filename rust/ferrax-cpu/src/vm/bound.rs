//! A launch made ready to run, and its run.
//!
//! Tiles of the parallel axes are units of work. Where a reduction has few
//! units and is long, its terms are cut into segments, each with accumulators
//! of its own, that are merged in order (`reduction`).

use std::cell::Cell;
use std::ops::Range;

use ferrax_compile::schedule::{FoldShape, PerAxis, Schedule, Span, Tile, TreeLayout, Walk};
use ferrax_compile::{Launch, Path, Stage};
use ferrax_ir::{Result, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Place;
use super::chains::ChainStep;
use super::flat::Flat;
use super::pick::{Indices, JumpStep, Picks};
use super::rect::{Rect, indices};
use super::reduction::{Apply, Fold, Progress, connect, folds, wanted};
use super::section::{Context, Entry, Instr, Layout, LoadStep, Section, build, work};
use crate::alloc::Buffer;
use crate::code;
use crate::pool;
use crate::tuning::{Threads, Tuning};

#[derive(Clone, Copy, Debug)]
struct TileLoop {
    axis: usize,
    first: usize,
    step: usize,
    blocks: usize,
}

/// A kernel with its sizes, as block instructions.
#[derive(Debug)]
pub struct Bound {
    extents: PerAxis<usize>,
    /// Of each loop of the launch: its axis here, how far that moves with it, and its extent.
    launched: PerAxis<(usize, usize, usize)>,
    /// The first loops of the launch of which parts may be run.
    cut: usize,
    pub(super) tile: Tile,
    loops: PerAxis<TileLoop>,
    tiles: usize,
    /// Whether there are reduction axes, and the order of their terms.
    reduces: bool,
    pub(super) walk: Walk,
    reduce_tiles: usize,
    /// Terms of a segment, and the number of segments.
    segment: usize,
    segments: usize,
    pub(super) weights: PerAxis<i64>,
    pub(super) folds: Vec<Fold>,
    fold_shape: FoldShape,
    main: Section,
    epilogue: Option<Section>,
    pub(super) epilogue_tile: Tile,
    entries: Vec<Entry>,
    constants: Vec<u64>,
    scratch: usize,
    nanos_per_tile: f64,
    tuning: &'static Threads,
}

/// The state of one thread at work on a launch.
pub(super) struct Worker<'a> {
    pub(super) bound: &'a Bound,
    operands: &'a [*mut u8],
    pub(super) table: &'a mut [*mut u8],
    pub(super) at: SmallVec<[i64; 8]>,
    /// Where the axes end.
    ends: &'a [usize],
    /// The tile of the section that runs, and its size here.
    tile: Tile,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) progress: Progress,
    /// Tiles of a reduction until the next question whether to go on, and whether the answer was no.
    until_asked: usize,
    given_up: bool,
}

thread_local! {
    /// Scratch memory of this thread; taken while in use.
    static SCRATCH: Cell<Option<Buffer>> = const { Cell::new(None) };
}

impl Section {
    /// Bytes that it keeps, about.
    fn bytes(&self) -> usize {
        size_of_val(&*self.before)
            + size_of_val(&*self.loads_before)
            + size_of_val(&*self.loads)
            + size_of_val(&*self.instrs)
            + self.chains.iter().map(ChainStep::bytes).sum::<usize>()
            + size_of_val(&*self.stores)
            + size_of_val(&*self.results)
    }
}

/// Of each operand, given whether it is written and its region: whether one that is only read may overlap it.
fn overlapping(written: impl Iterator<Item = bool>, region: &dyn Fn(u32) -> u32) -> Vec<bool> {
    let operands: SmallVec<[(u32, bool); 8]> =
        written.zip(0..).map(|(written, number)| (region(number), written)).collect();
    let mut read: FxHashMap<u32, usize> = FxHashMap::default();
    for &(region, _) in operands.iter().filter(|(_, written)| !written) {
        *read.entry(region).or_default() += 1;
    }
    let others =
        |&(region, written): &(u32, bool)| read.get(&region).copied().unwrap_or(0) > usize::from(!written);
    operands.iter().map(others).collect()
}

struct Operands<'a>(&'a [*mut u8]);

// SAFETY: the pointers themselves are only read. Behind them threads write disjoint elements: every index
// of the parallel axes belongs to one unit, and a unit to one chunk.
unsafe impl Sync for Operands<'_> {}

impl Operands<'_> {
    fn get(&self) -> &[*mut u8] {
        self.0
    }
}

impl Bound {
    /// Prepares a launch. `region` tells for each operand (by number) in which memory it lies: operands of one region
    /// may overlap, those of others do not. Of the first `cut` loops parts may be run ([`Bound::run_part`]), and all is run
    /// about so many `times`. Linear in the operands.
    pub fn new(
        launch: &Launch,
        tuning: &'static Tuning,
        (cut, times): (usize, f64),
        region: &dyn Fn(u32) -> u32,
    ) -> Result<Bound> {
        let kernel = &launch.kernel;
        let schedule = Schedule::new(launch, &tuning.plan, &tuning.blocks);
        let (nest, tile) = (&schedule.nest, schedule.tile);
        let mut is_cut: PerAxis<bool> = SmallVec::from_elem(false, nest.extents.len());
        nest.axis_of.iter().take(cut).for_each(|&axis| is_cut[axis] = true);
        let shares = overlapping(kernel.operands.iter().map(|operand| operand.written), region);
        let mut layout = Layout::default();
        let mut folds = folds(kernel, &schedule, &mut layout)?;
        let accumulator_places: Vec<Place> = folds.iter().map(Fold::result).collect();
        let stores_of = |stage: Stage| -> Vec<usize> {
            (0..kernel.stores.len()).filter(|&index| kernel.stores[index].stage == stage).collect()
        };
        let wanted = wanted(kernel, &schedule);
        let pays = times * work_of(launch) >= tuning.code.work && tile.lanes() >= tuning.code.lanes;
        let context = Context {
            kernel,
            params: &launch.params,
            jumps: &launch.jumps,
            nest,
            tile,
            is_cut: &is_cut,
            direct: schedule.direct,
            accumulators: &accumulator_places,
            shares: &shares,
            code: if pays { code::wanted()? } else { None },
        };
        let main = build(&context, &kernel.body, &mut layout, &stores_of(Stage::Main), &wanted)?;
        connect(&mut folds, &main, &schedule, &layout.entries)?;
        let epilogue_stores = stores_of(Stage::Epilogue);
        let epilogue = if epilogue_stores.is_empty() {
            None
        } else {
            let context = Context { tile: schedule.epilogue, direct: false, ..context };
            Some(build(&context, &kernel.epilogue, &mut layout, &epilogue_stores, &[])?)
        };
        let tile_loop =
            |axis: usize| TileLoop { axis, first: 0, step: tile.step(axis), blocks: tile.blocks(nest, axis) };
        let axes = 0..nest.extents.len();
        let loops: PerAxis<TileLoop> = axes.filter(|&a| !nest.reduced[a]).map(tile_loop).collect();
        if nest.count() > 0 && kernel.stores.is_empty() {
            return Err(internal_error!("a kernel stores nothing"));
        }
        count(launch, &schedule, &main, &folds);
        Path::InPlace.take_if(shares.contains(&true));
        let lanes = tile.lanes() as f64;
        let nanos_per_tile = 15.0 + lanes * (0.12 * main.cost + 0.15 * folds.len() as f64);
        Ok(Bound {
            weights: nest.reduction_weights(),
            launched: nest.launched(&launch.extents),
            cut,
            extents: nest.extents.clone(),
            tile,
            loops,
            tiles: schedule.tiles,
            reduces: nest.reduced.contains(&true),
            reduce_tiles: schedule.walk.tiles(),
            walk: schedule.walk,
            segment: schedule.segment,
            segments: schedule.segments,
            folds,
            fold_shape: schedule.fold,
            main,
            epilogue,
            epilogue_tile: schedule.epilogue,
            entries: layout.entries,
            constants: layout.constants,
            scratch: layout.scratch,
            nanos_per_tile,
            tuning: &tuning.threads,
        })
    }

    /// Runs the kernel over these operands.
    ///
    /// # Safety
    /// Each operand is valid for every element that the launch reads (or
    /// writes, where it is written). Operands overlap only where `region` said so.
    pub unsafe fn run(&self, operands: &[*mut u8]) -> Result<()> {
        if self.tiles == 0 {
            return Ok(());
        }
        let total = self.tiles as f64 * self.reduce_tiles.max(1) as f64 * self.nanos_per_tile;
        if total < self.tuning.kernel && self.segments == 1 {
            // SAFETY: the operands are the caller's, and these are all units: there are no segments.
            return unsafe { self.work(operands, 0, self.tiles, None) };
        }
        let units = self.tiles * self.segments;
        let most = (pool::threads() * 16).max((total / self.tuning.longest_chunk) as usize);
        let chunks = ((total / self.tuning.chunk) as usize).clamp(1, units).min(most);
        let shared = Operands(operands);
        let partial = if self.segments == 1 {
            None
        } else {
            Some(Buffer::new(self.tiles * self.segments * self.partial_bytes())?)
        };
        let partials = partial.as_ref().map(|buffer| buffer.pointer() as usize);
        pool::run_fallibly(chunks, &|chunk| {
            let (from, to) = (chunk * units / chunks, (chunk + 1) * units / chunks);
            // SAFETY: the operands are the caller's; the units of chunks are disjoint, and each has its own
            // part of the partial results, which has room for all units.
            unsafe { self.work(shared.get(), from, to, partials) }
        })?;
        match partials {
            // SAFETY: all units are done, so that this thread alone uses the operands, and their accumulators
            // are in the partial results.
            Some(partials) => unsafe { self.merge(operands, partials) },
            None => Ok(()),
        }
    }

    /// Runs what lies at these indices of the launch's first loops, on this thread. The other loops are run whole;
    /// of the first ones all but one range have one index, or those after it are whole.
    ///
    /// # Safety
    /// As `run`, for the elements at these indices; the ranges are inside of the launch's extents.
    pub unsafe fn run_part(&self, operands: &[*mut u8], ranges: &[Range<usize>]) -> Result<()> {
        if ranges.len() > self.cut {
            return Err(internal_error!("{} loops are cut, where {} may be", ranges.len(), self.cut));
        }
        let mut first: PerAxis<usize> = SmallVec::from_elem(0, self.extents.len());
        let mut ends: PerAxis<usize> = SmallVec::from_elem(1, self.extents.len());
        for (number, &(axis, weight, extent)) in self.launched.iter().enumerate() {
            let range = ranges.get(number).cloned().unwrap_or(0..extent);
            if range.is_empty() {
                return Ok(());
            }
            first[axis] += range.start * weight;
            ends[axis] += (range.end - 1) * weight;
        }
        let part = |tile_loop: &TileLoop| {
            let (first, end) = (first[tile_loop.axis], ends[tile_loop.axis]);
            TileLoop { first, blocks: (end - first).div_ceil(tile_loop.step.max(1)), ..*tile_loop }
        };
        let loops: PerAxis<TileLoop> = self.loops.iter().map(part).collect();
        self.with_worker(operands, &ends, |worker| {
            // SAFETY: the worker has these operands and a table of its own whose scratch memory is as large
            // as the kernel's; tiles of these loops end where the ranges do.
            unsafe {
                worker.prepare(&self.main);
                if let Some(epilogue) = &self.epilogue {
                    worker.prepare(epilogue);
                }
                for tile in 0..loops.iter().map(|l| l.blocks).product() {
                    worker.seek(&loops, tile);
                    worker.terms(0, self.walk.terms);
                    if worker.given_up {
                        return Err(pool::stopped());
                    }
                    worker.finish();
                }
            }
            Ok(())
        })
    }

    /// Whether a run stays on its thread: such kernels have [`Bound::run_in`].
    pub fn is_serial(&self) -> bool {
        let total = self.tiles as f64 * self.reduce_tiles.max(1) as f64 * self.nanos_per_tile;
        total < self.tuning.kernel && self.segments == 1
    }

    /// The kernel as a straight line, if it is one tile without reductions or
    /// guards; its scratch memory has as many bytes as [`Bound::scratch`].
    pub fn flat(&self) -> Option<Flat> {
        let plain = self.tiles == 1 && !self.reduces && self.folds.is_empty();
        if !plain || self.epilogue.is_some() || !self.is_serial() {
            return None;
        }
        let length = |span: Option<Span>| span.map_or(1, |span| span.length.min(self.extents[span.axis]));
        let flat = Flat::new(&self.main, &self.entries, length(self.tile.row), length(self.tile.col));
        Path::Flat.take_if(flat.is_some());
        flat
    }

    /// Bytes that it keeps, about.
    pub fn bytes(&self) -> usize {
        let sections = [Some(&self.main), self.epilogue.as_ref()];
        let of_sections: usize = sections.into_iter().flatten().map(Section::bytes).sum();
        size_of::<Bound>()
            + of_sections
            + size_of_val(&*self.folds)
            + size_of_val(&*self.entries)
            + size_of_val(&*self.constants)
    }

    /// The kernel's constants, which entries point to.
    pub fn constants(&self) -> *const u8 {
        self.constants.as_ptr().cast()
    }

    /// Entries of the table that [`Bound::run_in`] takes.
    pub fn table(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of scratch memory.
    pub fn scratch(&self) -> usize {
        self.scratch
    }

    /// Makes a table for runs of this kernel that use this scratch memory.
    pub fn fill_table(&self, table: &mut [*mut u8], scratch: *mut u8) {
        let constants = self.constants.as_ptr().cast::<u8>().cast_mut();
        for (place, entry) in table.iter_mut().zip(&self.entries) {
            *place = match *entry {
                Entry::Scratch(offset) => scratch.wrapping_add(offset),
                Entry::Constant(offset) => constants.wrapping_add(offset),
                Entry::Moving => std::ptr::null_mut(),
            };
        }
    }

    /// As `run`, on this thread, with a table that was made before.
    ///
    /// # Safety
    /// As `run`; the table is this kernel's, and its scratch memory is nobody else's during the run.
    pub unsafe fn run_in(&self, operands: &[*mut u8], table: &mut [*mut u8]) {
        if self.tiles == 0 {
            return;
        }
        let at = SmallVec::from_elem(0, self.extents.len());
        let mut worker = Worker {
            bound: self,
            operands,
            table,
            at,
            ends: &self.extents,
            tile: self.tile,
            rows: 1,
            cols: 1,
            progress: Progress::default(),
            until_asked: usize::MAX,
            given_up: false,
        };
        // SAFETY: operands, table and scratch memory are good for this kernel by this function's own
        // contract.
        unsafe { worker.units(0, self.tiles, None) };
    }

    /// A unit may take very long: what is reduced need not lie in memory.
    fn tiles_between_questions(&self) -> usize {
        ((self.tuning.longest_chunk / self.nanos_per_tile) as usize).max(1)
    }

    /// Bytes of the accumulators of one unit.
    fn partial_bytes(&self) -> usize {
        let kept = self.epilogue_tile.lanes();
        let bytes = |size: usize| (size * kept).next_multiple_of(64);
        let indices = |fold: &Fold| if matches!(fold.apply, Apply::Arg { .. }) { bytes(8) } else { 0 };
        self.folds.iter().map(|fold| bytes(fold.size) + indices(fold)).sum()
    }

    /// Whether trees lie side by side as lines.
    pub(super) fn by_lines(&self) -> bool {
        self.fold_shape.layout() == TreeLayout::Lines
    }

    fn with_worker(
        &self,
        operands: &[*mut u8],
        ends: &[usize],
        work: impl FnOnce(&mut Worker<'_>) -> Result<()>,
    ) -> Result<()> {
        // Small kernels often need none: then the thread's is left alone.
        let mut scratch = if self.scratch > 0 { SCRATCH.take() } else { None };
        if self.scratch > 0 && scratch.as_ref().is_none_or(|buffer| buffer.capacity() < self.scratch) {
            scratch = None;
            scratch = scratch.or(Some(Buffer::new(self.scratch.max(64 << 10))?));
        }
        let base = scratch.as_ref().map_or(std::ptr::null_mut(), Buffer::pointer);
        let mut table: SmallVec<[*mut u8; 32]> =
            SmallVec::from_elem(std::ptr::null_mut(), self.entries.len());
        self.fill_table(&mut table, base);
        let mut worker = Worker {
            bound: self,
            operands,
            table: &mut table,
            at: SmallVec::from_elem(0, self.extents.len()),
            ends,
            tile: self.tile,
            rows: 1,
            cols: 1,
            progress: Progress::default(),
            until_asked: self.tiles_between_questions(),
            given_up: false,
        };
        let result = work(&mut worker);
        if scratch.is_some() {
            SCRATCH.set(scratch);
        }
        result
    }

    /// Runs units `from..to`. With `partial`, units are (tile, segment) pairs
    /// whose accumulators go there.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn work(
        &self,
        operands: &[*mut u8],
        from: usize,
        to: usize,
        partial: Option<usize>,
    ) -> Result<()> {
        self.with_worker(operands, &self.extents, |worker| {
            // SAFETY: the worker has these operands and a table of its own whose scratch memory is as large
            // as the kernel's; units and partial results are the caller's.
            unsafe { worker.units(from, to, partial) };
            if worker.given_up { Err(pool::stopped()) } else { Ok(()) }
        })
    }

    /// Merges the accumulators of all segments, in order, and finishes.
    ///
    /// # Safety
    /// As `run`; `partials` holds the accumulators of every unit.
    unsafe fn merge(&self, operands: &[*mut u8], partials: usize) -> Result<()> {
        self.with_worker(operands, &self.extents, |worker| {
            // SAFETY: the worker has these operands and a table of its own. Tiles are merged one after the
            // other, and unit `tile * segments + segment` saved its accumulators at that place of the
            // partial results.
            unsafe {
                if let Some(epilogue) = &self.epilogue {
                    worker.prepare(epilogue);
                }
                for tile in 0..self.tiles {
                    worker.seek(&self.loops, tile);
                    worker.start_folds();
                    for segment in 0..self.segments {
                        let unit = tile * self.segments + segment;
                        worker.restore((partials + unit * self.partial_bytes()) as *const u8);
                    }
                    worker.complete_folds();
                    worker.finish();
                }
            }
            Ok(())
        })
    }
}

/// The work of a launch, in additions.
fn work_of(launch: &Launch) -> f64 {
    let instructions = launch.kernel.body.instructions().iter();
    launch.iterations() as f64 * instructions.map(|instruction| work(instruction.op)).sum::<f64>()
}

/// Counts the ways that a kernel goes.
fn count(launch: &Launch, schedule: &Schedule, main: &Section, folds: &[Fold]) {
    let (kernel, tile) = (&launch.kernel, schedule.tile);
    let is_reduced = |span: Option<Span>| span.is_some_and(|span| schedule.nest.reduced[span.axis]);
    let has_trees = folds.iter().any(|fold| matches!(fold.apply, Apply::Tree { .. }));
    let by_rows = schedule.fold.layout() == TreeLayout::Rows;
    Path::SeveralResults.take_if(kernel.stores.len() > 1);
    Path::Epilogue.take_if(kernel.stores.iter().any(|store| store.stage == Stage::Epilogue));
    Path::Guards.take_if(schedule.nest.loads.iter().any(|map| map.guards.is_some()));
    let is_cut = |span: Span| span.length < schedule.nest.extents[span.axis];
    Path::Crossed.take_if(folds.is_empty() && tile.row.is_some() && tile.col.is_some_and(is_cut));
    Path::TreeByRows.take_if(has_trees && by_rows);
    Path::TreeByLines.take_if(has_trees && !by_rows);
    Path::TreeStrided.take_if(schedule.direct && is_reduced(tile.row));
    Path::TreeOfLines.take_if(schedule.direct && !by_rows);
    Path::TreeOfProducts.take_if(schedule.products.iter().any(Option::is_some));
    for load in main.loads.iter().filter(|load| !load.jumps.is_empty()) {
        match load.picks {
            Picks::Tile => Path::PickedTiles,
            Picks::Rows(_) => Path::PickedRows,
            Picks::Lanes(_) => Path::PickedLanes,
        }
        .take();
    }
    if schedule.segments > 1 {
        if has_trees { Path::Segments } else { Path::PlainSegments }.take();
    }
}

impl Worker<'_> {
    /// Runs units `from..to`; see `Bound::work`.
    ///
    /// # Safety
    /// As `Bound::run`.
    unsafe fn units(&mut self, from: usize, to: usize, partial: Option<usize>) {
        let bound = self.bound;
        // SAFETY: operands and scratch memory are valid as `Bound::run` asks; `seek` and `measure` keep
        // tiles inside the kernel's extents, and `save` writes to the unit's own part of the partial
        // results.
        unsafe {
            self.prepare(&bound.main);
            if let (Some(epilogue), None) = (&bound.epilogue, partial) {
                self.prepare(epilogue);
            }
            for unit in from..to {
                let (tile, segment) = (unit / bound.segments, unit % bound.segments);
                self.seek(&bound.loops, tile);
                let first = segment * bound.segment;
                self.terms(first, bound.walk.terms.min(first + bound.segment));
                if self.given_up {
                    return;
                }
                match partial {
                    Some(partial) => self.save((partial + unit * bound.partial_bytes()) as *mut u8),
                    None => self.finish(),
                }
            }
        }
    }

    /// Runs the main body where the parallel loops stand: at these terms of a reduction, or once. It is given
    /// up between two tiles where the run is to stop.
    ///
    /// # Safety
    /// As for [`Self::execute`].
    unsafe fn terms(&mut self, mut term: usize, end: usize) {
        let bound = self.bound;
        // SAFETY: `seek` and `measure` keep tiles inside the kernel's extents.
        unsafe {
            if bound.folds.is_empty() && !bound.reduces {
                self.measure(bound.tile);
                self.execute(&bound.main);
                return;
            }
            self.start_folds();
            while term < end {
                let part = bound.walk.seek(&mut self.at, term, end);
                self.measure(bound.tile);
                self.rows = part.rows.unwrap_or(self.rows);
                self.cols = part.cols.unwrap_or(self.cols);
                self.execute(&bound.main);
                self.fold(part.terms());
                term += part.terms();
                self.until_asked -= 1;
                if self.until_asked == 0 {
                    self.until_asked = bound.tiles_between_questions();
                    self.given_up = pool::stopping();
                    if self.given_up {
                        return;
                    }
                }
            }
            self.complete_folds();
        }
    }

    /// Runs what does not change between tiles.
    ///
    /// # Safety
    /// As `Bound::run`, here and below.
    unsafe fn prepare(&mut self, section: &Section) {
        (self.rows, self.cols) = section.tile;
        // SAFETY: these loads are of one lane or of a tile, these instructions of one; their slots have room for a tile.
        unsafe {
            for step in &section.loads_before {
                self.load(step, true);
            }
            for instr in &section.before {
                self.apply(section, instr, 1);
            }
        }
    }

    /// Moves to tile `number` of these loops.
    fn seek(&mut self, loops: &[TileLoop], mut number: usize) {
        for tile_loop in loops.iter().rev() {
            let block = number % tile_loop.blocks;
            number /= tile_loop.blocks;
            self.at[tile_loop.axis] = (tile_loop.first + block * tile_loop.step) as i64;
        }
    }

    /// The size of the tile here.
    pub(super) fn measure(&mut self, tile: Tile) {
        let here = |span: Option<Span>| {
            span.map_or(1, |span| span.length.min(self.ends[span.axis] - self.at[span.axis] as usize))
        };
        (self.rows, self.cols) = (here(tile.row), here(tile.col));
        self.tile = tile;
    }

    fn position(&self, walk: &super::section::Walk) -> *mut u8 {
        let mut offset = walk.offset;
        for &(axis, stride) in &walk.strides {
            offset += self.at[axis as usize] as isize * stride;
        }
        self.operands[walk.operand as usize].wrapping_offset(offset)
    }

    /// The indices of a load's jumps, from those of element `first` of the tile on.
    fn indices(&self, step: &LoadStep, first: usize) -> SmallVec<[Indices; 2]> {
        let indices = |jump: &JumpStep| jump.indices(self.table[jump.place as usize], first, self.cols);
        step.jumps.iter().map(indices).collect()
    }

    /// Sets the place of a load: to the elements themselves, or with `copy` to a block of them.
    ///
    /// # Safety
    /// The tile here is inside the kernel's extents and the operands are valid as [`Bound::run`] asks. The indices
    /// of its jumps are computed.
    unsafe fn load(&mut self, step: &LoadStep, copy: bool) {
        let mut pointer = self.position(&step.walk);
        if matches!(step.picks, Picks::Tile) {
            for indices in self.indices(step, 0) {
                // SAFETY: the indices are computed: at least one of each jump.
                pointer = pointer.wrapping_offset(unsafe { indices.offset(0) });
            }
        }
        let Some(transfer) = &step.transfer else {
            self.table[step.place as usize] = pointer;
            return;
        };
        if !copy {
            return;
        }
        let (rows, cols) = if step.uniform { (1, 1) } else { (self.rows, self.cols) };
        let mut rect = Rect {
            rows,
            cols,
            row_stride: transfer.row_stride,
            col_stride: transfer.col_stride,
            block_stride: transfer.block_stride.unwrap_or(cols),
        };
        let block = self.table[step.block.unwrap_or(step.place) as usize];
        // SAFETY: the operand is valid for every element that the launch reads, which are those of the tile
        // inside the guards, and the block for a tile.
        unsafe {
            let Some(guards) = &step.guards else {
                step.picks.read(transfer.function, &rect, &self.indices(step, 0), pointer, block);
                return;
            };
            let tile = self.tile;
            let mut inside = true;
            let (mut row_range, mut col_range) = ((0, rows as i64), (0, cols as i64));
            for (axis, &(low, high)) in guards.ranges.iter().enumerate() {
                let at = self.at[axis];
                if tile.row.is_some_and(|span| span.axis == axis) && !step.uniform {
                    row_range = (row_range.0.max(low - at), row_range.1.min(high - at));
                } else if tile.col.is_some_and(|span| span.axis == axis) && !step.uniform {
                    col_range = (col_range.0.max(low - at), col_range.1.min(high - at));
                } else {
                    inside &= low <= at && at < high;
                }
            }
            inside &= row_range.0 < row_range.1 && col_range.0 < col_range.1;
            let whole = inside && row_range == (0, rows as i64) && col_range == (0, cols as i64);
            if step.block.is_some() {
                self.table[step.place as usize] = if whole { pointer } else { block };
                if whole {
                    return;
                }
            }
            if !whole {
                let value = self.table[guards.value as usize];
                (guards.fill)(rows * cols, block, value, value, value);
            }
            if inside {
                rect.rows = (row_range.1 - row_range.0) as usize;
                rect.cols = (col_range.1 - col_range.0) as usize;
                let skip = row_range.0 as isize * rect.row_stride + col_range.0 as isize * rect.col_stride;
                let first = row_range.0 as usize * cols + col_range.0 as usize;
                let to = block.add(first * guards.element);
                let from = pointer.wrapping_offset(skip);
                step.picks.read(transfer.function, &rect, &self.indices(step, first), from, to);
            }
        }
    }

    /// # Safety
    /// As for [`Self::execute`]; the instruction is one of the section, those before it are done, and
    /// the tile has so many lanes.
    unsafe fn apply(&mut self, section: &Section, instr: &Instr, lanes: usize) {
        match *instr {
            Instr::Apply { function, to, a, b, c, one } => {
                let table = &self.table;
                let at = |place: Place| table[place as usize];
                let count = if one { 1 } else { lanes };
                // SAFETY: `build` gave each place a slot for a tile, or for one element where the
                // instruction says so, of the types of the block function; the result's slot is none of its
                // sources'. `lanes` is at most a tile.
                unsafe { function(count, at(to), at(a), at(b), at(c)) };
            }
            // SAFETY: `build` gave each place a slot for a tile, or one element where the chain reads one; results have
            // slots of their own.
            Instr::Chain { step } => unsafe {
                section.chains[step as usize].run(self.table.as_ptr(), lanes);
            },
            // SAFETY: the tile is inside the kernel's extents, for which the operand is valid.
            Instr::Load { step } => unsafe { self.load(&section.loads[step as usize], true) },
            Instr::Rows { to, axis, long } | Instr::Cols { to, axis, long } => {
                let by_row = matches!(instr, Instr::Rows { .. });
                let (block, first) = (self.table[to as usize], self.at[axis as usize]);
                // SAFETY: the slot holds an integer of this size per lane and is nobody else's now.
                unsafe {
                    match long {
                        true => indices(block.cast::<i64>(), (lanes, self.cols), by_row, |row| first + row),
                        false => indices(block.cast::<i32>(), (lanes, self.cols), by_row, |row| {
                            (first + row) as i32
                        }),
                    }
                }
            }
            Instr::Outside { to, axis, long } => {
                let (slot, index) = (self.table[to as usize], self.at[axis as usize]);
                // SAFETY: the slot holds an integer of this size and is nobody else's now.
                unsafe { if long { *slot.cast::<i64>() = index } else { *slot.cast::<i32>() = index as i32 } }
            }
        }
    }

    /// Runs a section over the tile here.
    ///
    /// # Safety
    /// The tile is inside the kernel's extents, the operands are valid as [`Bound::run`] asks, and of
    /// what the section reads the slots of accumulators and of the sections before it are filled.
    unsafe fn execute(&mut self, section: &Section) {
        let lanes = self.rows * self.cols;
        // SAFETY: walks stay inside the operands for tiles inside the kernel's extents, where `measure`
        // keeps them; slots and instructions are those of this section, and the values that are stored were
        // computed for as many lanes.
        unsafe {
            for step in &section.loads {
                if step.transfer.is_none() && step.jumps.is_empty() {
                    self.table[step.place as usize] = self.position(&step.walk);
                }
            }
            for step in &section.stores {
                self.table[step.place as usize] = self.position(&step.walk);
            }
            for instr in &section.instrs {
                self.apply(section, instr, lanes);
            }
            for step in &section.stores {
                if let Some((transfer, from)) = &step.transfer {
                    let rect = Rect {
                        rows: self.rows,
                        cols: self.cols,
                        row_stride: transfer.row_stride,
                        col_stride: transfer.col_stride,
                        block_stride: self.cols,
                    };
                    (transfer.function)(&rect, self.table[*from as usize], self.table[step.place as usize]);
                }
            }
        }
    }

    /// Runs the epilogue where the parallel loops stand.
    ///
    /// # Safety
    /// As for [`Self::execute`]; the accumulators hold what becomes of all terms.
    unsafe fn finish(&mut self) {
        let bound = self.bound;
        if let Some(epilogue) = &bound.epilogue {
            self.measure(bound.epilogue_tile);
            // SAFETY: the accumulators of this tile are complete, and the epilogue's tile is inside the
            // extents of the parallel axes.
            unsafe { self.execute(epilogue) };
        }
    }
}
