//! Convolutions as products of matrices whose operands are packed as they are needed.
//!
//! The result is cut into tiles. For each block of terms of a tile the patches of `lhs` and the window's weights
//! are packed into panels that stay in cache ([`View`]), and multiplied by register blocks ([`micro`]); no
//! patch is stored that is not about to be used (K. Goto and R. van de Geijn, Anatomy of High-Performance
//! Matrix Multiplication, ACM TOMS 34(3), 2008, with the patches made while packing, as in S. Chetlur et al.,
//! cuDNN: Efficient Primitives for Deep Learning, 2014). Weights that many tiles use are packed once. Which
//! operand is read in vectors and which element by element is what makes for less work: vectors of output
//! features where these lie together, else of places.
//!
//! Where vectors are of output features, and the terms of a patch lie together in runs, no patch is packed but those that reach
//! beyond an edge: register blocks read the others where they are, run by run, in the same order.
//!
//! Tiles, panels and their trees follow from the sizes alone, so threads change no bit.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ferrax_ir::Result;
use ferrax_ir::paths::Path;
use smallvec::SmallVec;

use super::super::micro::{Micro, Number, ROW, TERMS};
use super::pack::{Target, View, walks};
use super::tree::{PANEL, Split, Sums, tree};
use super::{Operands, each_unit};
use crate::alloc::Buffer;
use crate::tuning::Convolutions;
use ferrax_compile::convolution::{Axis, Problem, count};

/// One operand of the product: its free indices, in tiles.
#[derive(Debug)]
struct Side {
    view: View,
    /// Which of `Operands::inputs`, and the stride of a group in it.
    operand: usize,
    group: isize,
    count: usize,
    tile: usize,
    /// Counts and strides in the result.
    out: SmallVec<[(usize, isize); 6]>,
    /// Elements of a packed block.
    block: usize,
}

impl Side {
    fn tiles(&self) -> usize {
        self.count.div_ceil(self.tile)
    }

    fn range(&self, tile: usize) -> Range<usize> {
        tile * self.tile..((tile + 1) * self.tile).min(self.count)
    }
}

#[derive(Debug)]
pub struct Product<T: 'static> {
    /// Broadcast, and read in vectors.
    a: Side,
    b: Side,
    groups: usize,
    group_out: isize,
    start_out: isize,
    split: Split,
    terms: usize,
    /// Columns of a panel of `b`.
    width: usize,
    /// Whether elements of one term are adjacent in packed blocks of `a`; else those of one row are.
    adjacent_rows: bool,
    /// Whether patches are read where they lie, if they can be.
    straight: bool,
    micro: Micro<T>,
    /// Whether the weights are packed before.
    shared: bool,
    weights_are_a: bool,
    tuning: &'static Convolutions,
}

fn patches(problem: &Problem) -> View {
    View {
        free: walks(&problem.rows, |axis| axis.read, true),
        terms: walks(&problem.terms, |axis| axis.read, true),
        guards: problem.guards.clone(),
        holds: problem.holds.clone(),
        start: problem.start[0],
    }
}

fn weights(problem: &Problem) -> View {
    View {
        free: walks(&problem.columns, |axis| axis.read, false),
        terms: walks(&problem.terms, |axis| axis.other, false),
        guards: SmallVec::new(),
        holds: SmallVec::new(),
        start: problem.start[1],
    }
}

/// Cycles that it takes about to begin with the elements of two runs, to begin with a line of them, and to copy
/// an element of a line and another one.
const PAIR: f64 = 25.0;
const LINE: f64 = 12.0;
const ADJACENT: f64 = 0.15;
const APART: f64 = 1.2;

/// About how many cycles it takes to pack a matrix once, with lines along terms or along free indices, up to
/// `longest` of which lie together.
fn cost_of_packing(free: &[Axis], terms: &[Axis], strides: [isize; 2], longest: usize) -> f64 {
    let inner = |axes: &[Axis]| axes.last().map_or(1, |axis| axis.count).max(1);
    let (rows, columns) = (inner(free).min(longest), inner(terms));
    let elements = count(free) as f64 * count(terms) as f64;
    let each = match strides {
        [1, _] => ADJACENT + LINE / rows as f64,
        [_, 1] if longest == usize::MAX => ADJACENT + LINE / columns as f64,
        _ => APART,
    };
    elements * (each + PAIR / (rows * columns) as f64)
}

/// About how many cycles the product takes with vectors along the rows or the columns.
fn cost<T: Number>(problem: &Problem, along_rows: bool, tuning: &Convolutions) -> f64 {
    let micro = T::micro();
    let (rows, columns, terms) = (count(&problem.rows), count(&problem.columns), count(&problem.terms));
    let (broadcast, along) = if along_rows { (columns, rows) } else { (rows, columns) };
    let most = micro.most_rows();
    let (_, last) = micro.select(broadcast % most, usize::MAX, true);
    let padded = broadcast / most * most + if broadcast.is_multiple_of(most) { 0 } else { last };
    let multiply = 0.5 * padded as f64 * along.div_ceil(micro.lanes) as f64 * terms as f64;
    let inner = |axes: &[Axis], stride: fn(&Axis) -> isize| axes.last().map_or(1, stride);
    let longest = |is_along: bool| if is_along { micro.width() } else { usize::MAX };
    let strides = [inner(&problem.rows, |axis| axis.read), inner(&problem.terms, |axis| axis.read)];
    let patches = match !along_rows && is_straight(problem) {
        true => 0.0,
        false => cost_of_packing(&problem.rows, &problem.terms, strides, longest(along_rows)),
    };
    let strides = [inner(&problem.columns, |axis| axis.read), inner(&problem.terms, |axis| axis.other)];
    let weights = cost_of_packing(&problem.columns, &problem.terms, strides, longest(!along_rows));
    let times =
        rows.div_ceil(if along_rows { tuning.along } else { tuning.broadcast }).min(tuning.shared - 1) as f64;
    let out = if along_rows { &problem.rows } else { &problem.columns };
    let store = rows as f64 * columns as f64 * if inner(out, |axis| axis.other) == 1 { 0.1 } else { 1.0 };
    let again = columns.div_ceil(if along_rows { tuning.broadcast } else { tuning.along }) as f64;
    multiply + patches * again + weights * times + store
}

/// Whether terms of a patch lie together.
fn is_straight(problem: &Problem) -> bool {
    problem.terms.last().is_some_and(|axis| axis.read == 1 && axis.guard.is_none())
}

impl<T: Number> Product<T> {
    pub fn new(problem: &Problem, tuning: &'static Convolutions) -> Product<T> {
        let micro = T::micro();
        let terms = count(&problem.terms);
        let along_rows = cost::<T>(problem, true, tuning) < cost::<T>(problem, false, tuning);
        let out = |axes: &[Axis]| axes.iter().map(|axis| (axis.count, axis.other)).collect();
        let side = |operand: usize| {
            let (view, axes) = match operand {
                0 => (patches(problem), &problem.rows),
                _ => (weights(problem), &problem.columns),
            };
            let count = count(axes);
            Side {
                view,
                operand,
                group: problem.group[operand],
                count,
                tile: count,
                out: out(axes),
                block: 0,
            }
        };
        let (mut a, mut b) = if along_rows { (side(1), side(0)) } else { (side(0), side(1)) };
        let width = if b.count <= micro.lanes { micro.lanes } else { micro.width() };
        let most = micro.most_rows();
        // Tiles of equal size, and more of them where there are few.
        let (mut broadcast, mut along) = (tuning.broadcast, tuning.along);
        let tiled = |side: &Side, most: usize, step: usize| {
            side.count.div_ceil(side.count.div_ceil(most).max(1)).next_multiple_of(step).max(step)
        };
        loop {
            a.tile = tiled(&a, broadcast, most);
            b.tile = tiled(&b, along, width);
            let units = problem.groups * a.tiles() * b.tiles();
            let work = a.tile.saturating_mul(b.tile).saturating_mul(terms);
            if units >= tuning.units || work < 2 * tuning.unit || (a.tile <= 4 * most && b.tile <= 2 * width)
            {
                break;
            }
            if a.tile >= b.tile && a.tile > 4 * most || b.tile <= 2 * width {
                broadcast = (a.tile / 2).max(4 * most);
            } else {
                along = (b.tile / 2).max(2 * width);
            }
        }
        let adjacent_rows = !a.view.terms_adjacent();
        let block = terms.min(TERMS);
        a.block = a.tile * if adjacent_rows { block } else { ROW };
        b.block = b.tile * block;
        let units = problem.groups * a.tiles() * b.tiles();
        let split = Split::new(terms, if terms > PANEL { tuning.units.div_ceil(units.max(1)) } else { 1 });
        let weights_are_a = a.operand == 1;
        let shared = if weights_are_a { b.tiles() >= tuning.shared } else { a.tiles() >= tuning.shared };
        let straight = !weights_are_a && is_straight(problem);
        Path::ConvolutionProduct.take();
        Path::ConvolutionShared.take_if(shared);
        Path::ConvolutionStraight.take_if(straight);
        Path::ConvolutionSplit.take_if(split.parts > 1);
        Product {
            a,
            b,
            groups: problem.groups,
            group_out: problem.group[2],
            start_out: problem.start[2],
            split,
            terms,
            width,
            adjacent_rows,
            straight,
            micro,
            shared,
            weights_are_a,
            tuning,
        }
    }

    fn blocks(&self) -> usize {
        self.terms.div_ceil(TERMS)
    }

    fn block_terms(&self, block: usize) -> Range<usize> {
        block * TERMS..((block + 1) * TERMS).min(self.terms)
    }

    /// Packs a block of a side's tile.
    ///
    /// # Safety
    /// The operands are those that the problem was made for; `to` has room for `side.block` elements.
    unsafe fn pack(
        &self,
        operands: &Operands,
        is_a: bool,
        group: usize,
        tile: usize,
        block: usize,
        to: *mut T,
    ) {
        let side = if is_a { &self.a } else { &self.b };
        let data = operands.input::<T>(side.operand).wrapping_offset(group as isize * side.group);
        let (free, terms) = (side.range(tile), self.block_terms(block));
        // SAFETY: a block has `ROW`, or the tile's, places for each row or term of `a`, and of `b` `width` places
        // for each term of a panel, so many panels as the tile has; ranges are within the view.
        unsafe {
            if is_a {
                let (row, term) = if self.adjacent_rows { (1, side.tile) } else { (ROW, 1) };
                side.view.pack(data, free.clone(), terms.clone(), Target { start: to, free: row, term });
                for i in free.len()..free.len().next_multiple_of(self.micro.most_rows()) {
                    (0..terms.len()).for_each(|k| *to.add(i * row + k * term) = T::zeroed());
                }
            } else {
                for first in (0..free.len()).step_by(self.width) {
                    let start = to.add(first * terms.len());
                    let panel = free.start + first..(free.start + first + self.width).min(free.end);
                    if panel.len() < self.width {
                        std::slice::from_raw_parts_mut(start, self.width * terms.len()).fill(T::zeroed());
                    }
                    let target = Target { start, free: 1, term: self.width };
                    side.view.pack(data, panel, terms.clone(), target);
                }
            }
        }
    }

    /// Computes the whole result.
    ///
    /// # Safety
    /// The operands are valid for the sizes that the problem was made for.
    pub unsafe fn run(&self, operands: &Operands) -> Result<()> {
        let weights = if self.weights_are_a { &self.a } else { &self.b };
        let blocks = self.blocks();
        let all = self.groups * weights.tiles() * blocks;
        let packed = match self.shared {
            true => Some(Buffer::new(all * weights.block * size_of::<T>())?),
            false => None,
        };
        let place = |group: usize, tile: usize, block: usize| {
            let number = (group * weights.tiles() + tile) * blocks + block;
            packed.as_ref().map(|packed| packed.pointer().cast::<T>().wrapping_add(number * weights.block))
        };
        if packed.is_some() {
            each_unit(all, weights.block * 8, self.tuning.serial, &|number| {
                let (rest, block) = (number / blocks, number % blocks);
                let (group, tile) = (rest / weights.tiles(), rest % weights.tiles());
                if let Some(to) = place(group, tile, block) {
                    // SAFETY: each number has a place of its own in the buffer.
                    unsafe { self.pack(operands, self.weights_are_a, group, tile, block, to) };
                }
                Ok(())
            })?;
        }
        let parts = self.split.parts;
        let units = self.groups * self.a.tiles() * self.b.tiles();
        let found: Vec<Mutex<Option<Sums>>> =
            (0..if parts > 1 { units * parts } else { 0 }).map(|_| Mutex::new(None)).collect();
        let decode = |unit: usize| {
            let (rest, b) = (unit / self.b.tiles(), unit % self.b.tiles());
            (rest / self.a.tiles(), rest % self.a.tiles(), b)
        };
        let work = self.a.tile * self.b.tile * self.terms.div_ceil(parts);
        each_unit(units * parts, work, self.tuning.serial, &|number| {
            let (unit, part) = (number / parts, number % parts);
            let (group, tile_a, tile_b) = decode(unit);
            let shared = |block| match self.weights_are_a {
                true => (place(group, tile_a, block), None),
                false => (None, place(group, tile_b, block)),
            };
            // SAFETY: the caller's promise; shared blocks are packed.
            let sums = unsafe { self.tile(operands, group, tile_a, tile_b, part, &shared)? };
            if parts == 1 {
                // SAFETY: each unit stores a part of the result of its own.
                unsafe { self.store(operands, group, tile_a, tile_b, sums.pointer()) };
            } else {
                *found[number].lock().unwrap_or_else(PoisonError::into_inner) = Some(sums);
            }
            Ok(())
        })?;
        if parts > 1 {
            let values = self.a.tile * self.b.tile;
            each_unit(units, values * parts, self.tuning.serial, &|unit| {
                let (group, tile_a, tile_b) = decode(unit);
                let total = tree::<T>(values, parts, |part, to| {
                    let found = found[unit * parts + part].lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(sums) = found.as_ref() {
                        // SAFETY: both hold the values of a tile.
                        unsafe { std::ptr::copy_nonoverlapping(sums.pointer::<T>(), to, values) };
                    }
                    Ok(())
                })?;
                // SAFETY: each unit stores a part of the result of its own.
                unsafe { self.store(operands, group, tile_a, tile_b, total.pointer()) };
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The sums of a part of a tile's terms.
    ///
    /// # Safety
    /// As [`Product::run`]; `shared` gives packed blocks.
    unsafe fn tile(
        &self,
        operands: &Operands,
        group: usize,
        tile_a: usize,
        tile_b: usize,
        part: usize,
        shared: &dyn Fn(usize) -> (Option<*mut T>, Option<*mut T>),
    ) -> Result<Sums> {
        let own = |is_shared: bool, side: &Side| {
            Buffer::new(if is_shared { 1 } else { side.block * size_of::<T>() })
        };
        let own_a = own(self.shared && self.weights_are_a, &self.a)?;
        let own_b = own(self.shared && !self.weights_are_a, &self.b)?;
        let (rows, columns) = (self.a.range(tile_a).len(), self.b.range(tile_b).len());
        tree::<T>(self.a.tile * self.b.tile, self.split.panels(part), |panel, sums| {
            let range = self.split.terms(part, panel);
            for block in range.start / TERMS..range.end.div_ceil(TERMS) {
                let (a, b) = shared(block);
                // SAFETY: own blocks have room for a block; the register blocks read whole rows and panels,
                // which are packed up to their ends, and write inside of the tile, whose rows and columns
                // are multiples of theirs.
                unsafe {
                    let b = b.unwrap_or_else(|| {
                        let to = own_b.pointer().cast();
                        self.pack(operands, false, group, tile_b, block, to);
                        to
                    });
                    if self.straight {
                        let data = operands.input::<T>(self.a.operand);
                        let data = data.wrapping_offset(group as isize * self.a.group);
                        let first = block == range.start / TERMS;
                        let free = self.a.range(tile_a);
                        self.straight(data, (free, block), columns, own_a.pointer().cast(), b, (sums, first));
                        continue;
                    }
                    let a = a.unwrap_or_else(|| {
                        let to = own_a.pointer().cast();
                        self.pack(operands, true, group, tile_a, block, to);
                        to
                    });
                    self.multiply(
                        self.block_terms(block).len(),
                        rows,
                        columns,
                        a,
                        b,
                        sums,
                        block == range.start / TERMS,
                    );
                }
            }
            Ok(())
        })
    }

    /// The product of a packed block of weights with patches, of which those that can be are read where they lie.
    ///
    /// # Safety
    /// `data` is the start of a group of `lhs`, `own` has room for a block, `b` is the block of the weights, `sums` a tile.
    unsafe fn straight(
        &self,
        data: *const T,
        (free, block): (Range<usize>, usize),
        columns: usize,
        own: *mut T,
        b: *const T,
        (sums, first): (*mut T, bool),
    ) {
        let terms = self.block_terms(block);
        let found = self.a.view.straight(free.clone(), terms.clone());
        let stride = self.a.view.free.last().map_or(0, |walk| walk.stride);
        let packed = [(0, terms.len())];
        for (rows, place) in found.parts {
            let (runs, from, row) = match place {
                Some(place) => (&*found.runs, data.wrapping_offset(place), stride),
                None => {
                    let range = free.start + rows.start..free.start + rows.end;
                    // SAFETY: the rows are the view's, and no more than those of a tile, for which there is room.
                    unsafe {
                        let target = Target { start: own, free: ROW, term: 1 };
                        self.a.view.pack(data, range, terms.clone(), target);
                    }
                    (&packed[..], own.cast_const(), ROW as isize)
                }
            };
            for column in (0..columns).step_by(self.width) {
                let mut done = 0;
                while done < rows.len() {
                    let (straight, count) = self.micro.select_straight(rows.len() - done, columns - column);
                    // SAFETY: so many rows are there, with all their terms; panels are packed up to their ends, and rows of
                    // the tile have places for whole panels.
                    unsafe {
                        straight(
                            runs,
                            from.wrapping_offset(done as isize * row),
                            row,
                            b.add(column * terms.len()),
                            self.width,
                            sums.add((rows.start + done) * self.b.tile + column),
                            self.b.tile,
                            first,
                        );
                    }
                    done += count;
                }
            }
        }
    }

    /// The product of packed blocks.
    ///
    /// # Safety
    /// `a` and `b` are blocks of so many terms, `sums` a tile.
    #[allow(clippy::too_many_arguments, reason = "the operands of a product of matrices")]
    unsafe fn multiply(
        &self,
        terms: usize,
        rows: usize,
        columns: usize,
        a: *const T,
        b: *const T,
        sums: *mut T,
        first: bool,
    ) {
        let row = if self.adjacent_rows { 1 } else { ROW };
        for column in (0..columns).step_by(self.width) {
            let mut done = 0;
            while done < rows {
                let (block, count) = self.micro.select(rows - done, columns - column, self.adjacent_rows);
                // SAFETY: the rows up to a multiple of the largest block are packed.
                unsafe {
                    block(
                        terms,
                        a.add(done * row),
                        self.a.tile,
                        b.add(column * terms),
                        self.width,
                        sums.add(done * self.b.tile + column),
                        self.b.tile,
                        first,
                    );
                }
                done += count;
            }
        }
    }

    /// Puts a tile into the result.
    ///
    /// # Safety
    /// As [`Product::run`]; nobody else writes this tile's part of the result.
    unsafe fn store(&self, operands: &Operands, group: usize, tile_a: usize, tile_b: usize, sums: *const T) {
        let out = operands.out::<T>().wrapping_offset(self.start_out + group as isize * self.group_out);
        let rows = offsets(&self.a.out, self.a.range(tile_a));
        let columns = offsets(&self.b.out, self.b.range(tile_b));
        let mut lines: Vec<(usize, usize)> = Vec::new();
        for (at, &offset) in columns.iter().enumerate() {
            match lines.last_mut() {
                Some((start, count)) if columns[*start] + *count as isize == offset => *count += 1,
                _ => lines.push((at, 1)),
            }
        }
        for (i, row) in rows.iter().enumerate() {
            for &(start, count) in &lines {
                // SAFETY: the offsets are those of elements of the result.
                unsafe {
                    let from = sums.add(i * self.b.tile + start);
                    let to = out.offset(row + columns[start]);
                    match count {
                        1 => *to = *from,
                        count => std::ptr::copy_nonoverlapping(from, to, count),
                    }
                }
            }
        }
    }
}

/// Offsets of a range of indices.
pub fn offsets(axes: &[(usize, isize)], range: Range<usize>) -> Vec<isize> {
    let mut index: SmallVec<[usize; 6]> = SmallVec::new();
    let (mut rest, mut offset) = (range.start, 0);
    for &(count, stride) in axes.iter().rev() {
        index.insert(0, rest % count);
        offset += (rest % count) as isize * stride;
        rest /= count;
    }
    let mut found = Vec::with_capacity(range.len());
    for _ in range {
        found.push(offset);
        for (index, &(count, stride)) in index.iter_mut().zip(axes).rev() {
            *index += 1;
            offset += stride;
            if *index < count {
                break;
            }
            offset -= count as isize * stride;
            *index = 0;
        }
    }
    found
}
