//! Tiles into accumulators, when a kernel runs (`reduction` says what these are).
//!
//! A thread's progress is how many terms its trees have taken. Segments are saved and merged in order.

use ferrax_compile::schedule::Span;

use super::Place;
use super::bound::Worker;
use super::reduction::{Apply, FactorPlace, Fold, Progress};
use super::tree::{BLOCK, Factor, LANES, TreeOp};

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
                        let bytes = std::slice::from_raw_parts_mut(values, kept * fold.size);
                        match fold.size {
                            1 => bytes.fill(op.start[0]),
                            2 => repeat::<2>(bytes, op.start),
                            4 => repeat::<4>(bytes, op.start),
                            _ => repeat::<8>(bytes, op.start),
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

    /// The factors of a tree's terms in the tile here, if they are products.
    fn factors(&self, fold: &Fold) -> Option<[Factor; 2]> {
        /// Taken from factors that nothing is taken from, as f32 or f64.
        static ZERO: u64 = 0;
        let Apply::Tree { factors: Some(factors), .. } = fold.apply else { return None };
        Some(factors.map(|FactorPlace { terms: (terms, stride), less }| {
            let (less, less_stride) = less.map_or(((&raw const ZERO).cast(), 0), |(place, stride)| {
                (self.place(place).cast_const(), stride)
            });
            Factor { terms: self.place(terms), stride, less, less_stride }
        }))
    }

    /// Makes values those of so many terms of the tile's lines, after those that are done.
    ///
    /// # Safety
    /// As for [`Self::fold`]; lines have so many terms.
    unsafe fn whole(&self, done: usize, terms: usize) {
        let kept = self.progress.kept;
        self.each_tree(|op, from, _, stride, fold| {
            let (values, skipped) = (self.place(fold.values), done * fold.size);
            // SAFETY: the terms are in the lines as the caller promises, each factor's as the tree's own, and
            // `values` has room for `kept` results.
            unsafe {
                match self.factors(fold) {
                    Some(factors) => {
                        (op.products)(kept, terms, factors.map(|factor| factor.at(0, skipped)), values);
                    }
                    None => (op.whole)(kept, terms, stride, from.add(skipped), values),
                }
            }
        });
    }

    /// The terms of the tile here into trees.
    ///
    /// # Safety
    /// As for [`Self::fold`].
    unsafe fn take(&mut self, terms: usize) {
        let by_lines = self.bound.by_lines();
        let kept = self.progress.kept;
        if by_lines && terms == self.bound.walk.terms {
            // SAFETY: a line of the block has `terms` terms, which as was just asked are all that there will be.
            unsafe { self.whole(0, terms) };
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
                // SAFETY: `left` terms of each line of the tile come after those that are done, and 2^level
                // blocks of them are not more than those: level is at most `most`.
                unsafe { self.whole(done, BLOCK << level) };
                done += BLOCK << level;
                // SAFETY: the values of all trees were just made those of 2^level blocks.
                unsafe { self.push(level) };
                continue;
            }
            let n = left.min(BLOCK - position);
            self.each_tree(|op, from, lanes, stride, fold| {
                let step = if by_lines { fold.size as isize } else { stride };
                // SAFETY: `done + n` is at most `terms`, so the terms are in the tile; `position + n` is at
                // most `BLOCK`, so they are in one block; `lanes` has room for `LANES` rows of `kept` values,
                // which are a line for each of them where terms are products.
                unsafe {
                    let Some(factors) = self.factors(fold) else {
                        return (op.take)(
                            kept,
                            position,
                            n,
                            stride,
                            from.offset(done as isize * step),
                            lanes,
                        );
                    };
                    let mut products = [0u64; BLOCK];
                    for line in 0..kept {
                        let products = products.as_mut_ptr().cast::<u8>();
                        let lanes = lanes.add(line * LANES * fold.size);
                        (op.multiply)(n, factors.map(|factor| factor.at(line, done * fold.size)), products);
                        (op.take)(1, position, n, 0, products, lanes);
                    }
                }
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

/// Fills memory with the first `N` of these bytes, over and over.
fn repeat<const N: usize>(bytes: &mut [u8], start: [u8; 8]) {
    if let Some(start) = start.first_chunk::<N>() {
        bytes.as_chunks_mut::<N>().0.fill(*start);
    }
}
