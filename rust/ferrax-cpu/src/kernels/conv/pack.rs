//! Copies parts of an operand, seen as a matrix of free indices and terms, into panels.
//!
//! In: a [`View`], ranges of free indices and of terms. Out: their elements, at strides of the caller's; zero
//! where a guard does not hold. The matrix is never made as a whole. Cost: each element of the part is
//! written once, in runs along the innermost axes, and guards are looked at once a run.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::super::micro::Number;
use crate::vm::isa::{Isa, isa};
use ferrax_compile::convolution::{Axis, Guard, LINE};

/// An axis of a view: its stride in elements, and which guard an index moves by how much.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    pub count: usize,
    pub stride: isize,
    pub guard: Option<(usize, isize)>,
}

/// An operand as a matrix. Axes are outermost first, and there is one at least.
#[derive(Clone, Debug)]
pub struct View {
    pub free: SmallVec<[Walk; 6]>,
    pub terms: SmallVec<[Walk; 6]>,
    pub guards: SmallVec<[Guard; 3]>,
    /// Guards that hold for all free indices and terms.
    pub holds: SmallVec<[bool; 3]>,
    pub start: isize,
}

/// Axes with the strides that `stride` gives.
pub fn walks(axes: &[Axis], stride: impl Fn(&Axis) -> isize, guarded: bool) -> SmallVec<[Walk; 6]> {
    let guard = |axis: &Axis| axis.guard.filter(|_| guarded);
    axes.iter().map(|axis| Walk { count: axis.count, stride: stride(axis), guard: guard(axis) }).collect()
}

/// A run of indices along the innermost axis.
pub struct Run {
    /// Position in the range that was asked for.
    pub at: usize,
    pub count: usize,
    pub offset: isize,
    moved: SmallVec<[isize; 3]>,
}

/// The runs that make up a range of indices. Axes have no count of 0.
pub fn runs(axes: &[Walk], guards: usize, range: Range<usize>) -> SmallVec<[Run; 8]> {
    let mut found = SmallVec::new();
    let Some((inner, outer)) = axes.split_last() else { return found };
    let mut index = range.start;
    while index < range.end {
        let (first, mut rest) = (index % inner.count, index / inner.count);
        let count = (inner.count - first).min(range.end - index);
        let mut run = Run { at: index - range.start, count, offset: 0, moved: smallvec![0; guards] };
        let mut add = |axis: &Walk, index: usize| {
            run.offset = run.offset.wrapping_add(axis.stride.wrapping_mul(index as isize));
            if let Some((guard, step)) = axis.guard {
                run.moved[guard] += step * index as isize;
            }
        };
        add(inner, first);
        for axis in outer.iter().rev() {
            add(axis, rest % axis.count);
            rest /= axis.count;
        }
        found.push(run);
        index += count;
    }
    found
}

/// The indices `i < count` with `0 <= place + i * step < size`; `step` is positive.
#[inline(always)]
fn inside(place: isize, step: isize, size: isize, count: usize) -> Range<usize> {
    // The number of indices whose place is less than the limit; a division takes as long as many elements.
    let below = |limit: isize| match limit - place {
        ..=0 => 0,
        left if step == 1 => left as usize,
        left => ((left - 1) / step + 1) as usize,
    };
    let (first, last) = (below(0).min(count), below(size).min(count));
    first..last.max(first)
}

/// A line of elements, short ones without a call.
///
/// # Safety
/// Both are valid for `count` elements and apart.
#[inline(always)]
unsafe fn line<T: Number>(from: *const T, to: *mut T, count: usize) {
    const PART: usize = 16;
    const FEW: usize = 4;
    // SAFETY: parts and then elements, all below `count`.
    unsafe {
        let mut done = 0;
        while done + PART <= count {
            let part = from.add(done).cast::<[T; PART]>().read_unaligned();
            to.add(done).cast::<[T; PART]>().write_unaligned(part);
            done += PART;
        }
        while done + FEW <= count {
            let part = from.add(done).cast::<[T; FEW]>().read_unaligned();
            to.add(done).cast::<[T; FEW]>().write_unaligned(part);
            done += FEW;
        }
        while done < count {
            *to.add(done) = *from.add(done);
            done += 1;
        }
    }
}

/// Where a part goes: strides of free indices and of terms.
#[derive(Clone, Copy)]
pub struct Target<T> {
    pub start: *mut T,
    pub free: usize,
    pub term: usize,
}

impl<T: Number> Target<T> {
    fn at(self, free: usize, term: usize) -> Target<T> {
        Target { start: self.start.wrapping_add(free * self.free + term * self.term), ..self }
    }
}

/// # Safety
/// The target's places of `free` indices and `terms` terms are valid for writing.
#[inline(always)]
unsafe fn zero<T: Number>(to: Target<T>, free: usize, terms: usize) {
    if free == 0 {
        return;
    }
    let (outer, inner) = if to.free == 1 { (terms, free) } else { (free, terms) };
    let (outer_step, inner_step) = if to.free == 1 { (to.term, to.free) } else { (to.free, to.term) };
    for i in 0..outer {
        for j in 0..inner {
            // SAFETY: each is one of the places.
            unsafe { *to.start.add(i * outer_step + j * inner_step) = T::zeroed() };
        }
    }
}

/// # Safety
/// Every element that the strides reach is valid for reading, the target's places for writing.
#[inline(always)]
unsafe fn copy<T: Number>(
    from: *const T,
    free_stride: isize,
    term_stride: isize,
    to: Target<T>,
    free: usize,
    terms: usize,
) {
    // SAFETY: indices are below their counts.
    unsafe {
        // Short lines cost more than elements one by one along the longer side.
        if term_stride == 1 && to.term == 1 && (terms >= LINE || terms >= free) {
            for i in 0..free {
                line(from.offset(i as isize * free_stride), to.start.add(i * to.free), terms);
            }
        } else if free_stride == 1 && to.free == 1 && free >= LINE {
            for j in 0..terms {
                line(from.offset(j as isize * term_stride), to.start.add(j * to.term), free);
            }
        } else if free >= terms {
            for j in 0..terms {
                let (from, line) = (from.offset(j as isize * term_stride), to.start.add(j * to.term));
                for i in 0..free {
                    *line.add(i * to.free) = *from.offset(i as isize * free_stride);
                }
            }
        } else {
            for i in 0..free {
                let (from, line) = (from.offset(i as isize * free_stride), to.start.add(i * to.free));
                for j in 0..terms {
                    *line.add(j * to.term) = *from.offset(j as isize * term_stride);
                }
            }
        }
    }
}

/// A guard that both innermost axes move, as lines along the run with more indices, one for each index of the
/// other run: along a line the guard moves by `along`, from line to line by `across`.
#[derive(Clone)]
struct Diagonal {
    place: isize,
    along: isize,
    across: isize,
    size: isize,
    along_rows: bool,
    /// What of a line all lines have.
    all: Range<usize>,
}

/// Which combinations of a free run and a term run are elements, as rectangles of positions in the runs: none
/// is empty, and none meets another. (No closures: they would not have the instruction set of their caller.)
pub struct Rectangles {
    rows: Range<usize>,
    cols: Range<usize>,
    diagonal: Option<Diagonal>,
    /// The next part: 0 is what all lines have, then come what is before and behind it, line by line.
    next: usize,
}

impl Rectangles {
    #[inline(always)]
    pub fn new(view: &View, free: &Run, term: &Run) -> Rectangles {
        let mut of = Rectangles { rows: 0..free.count, cols: 0..term.count, diagonal: None, next: 0 };
        let (Some(inner_free), Some(inner_term)) = (view.free.last(), view.terms.last()) else {
            return Rectangles { rows: 0..0, ..of };
        };
        let mut both = None;
        for (number, guard) in view.guards.iter().enumerate() {
            if view.holds[number] {
                continue;
            }
            let place = guard.start + free.moved[number] + term.moved[number];
            let by_free = inner_free.guard.filter(|&(moved, _)| moved == number).map(|(_, step)| step);
            let by_term = inner_term.guard.filter(|&(moved, _)| moved == number).map(|(_, step)| step);
            match (by_free, by_term) {
                (None, None) if (0..guard.size).contains(&place) => {}
                (None, None) => of.rows = 0..0,
                (Some(step), None) => of.rows = common(&of.rows, inside(place, step, guard.size, free.count)),
                (None, Some(step)) => of.cols = common(&of.cols, inside(place, step, guard.size, term.count)),
                (Some(by_free), Some(by_term)) => both = Some((place, by_free, by_term, guard.size)),
            }
        }
        if of.rows.is_empty() || of.cols.is_empty() {
            of.rows = 0..0;
        } else if let Some((place, by_free, by_term, size)) = both {
            let along_rows = of.rows.len() >= of.cols.len();
            let (along, across) = if along_rows { (by_free, by_term) } else { (by_term, by_free) };
            let mut diagonal = Diagonal { place, along, across, size, along_rows, all: 0..0 };
            // Ranges move to the front from line to line: what the outer ones share all share.
            let lines = of.lines(&diagonal);
            let (first, last) = (of.line(&diagonal, lines.start), of.line(&diagonal, lines.end - 1));
            diagonal.all = first.start.max(last.start)..first.end.min(last.end);
            of.diagonal = Some(diagonal);
        }
        of
    }

    #[inline(always)]
    fn lines(&self, of: &Diagonal) -> Range<usize> {
        if of.along_rows { self.cols.clone() } else { self.rows.clone() }
    }

    /// The positions in a line at which the guard holds.
    #[inline(always)]
    fn line(&self, of: &Diagonal, number: usize) -> Range<usize> {
        let range = if of.along_rows { &self.rows } else { &self.cols };
        common(range, inside(of.place + of.across * number as isize, of.along, of.size, range.end))
    }

    /// Whether all combinations are elements.
    #[inline(always)]
    fn is_whole(&self, free: &Run, term: &Run) -> bool {
        self.rows.len() == free.count
            && self.cols.len() == term.count
            && self
                .diagonal
                .as_ref()
                .is_none_or(|of| of.all == if of.along_rows { self.rows.clone() } else { self.cols.clone() })
    }

    /// The free indices all of whose terms of the run are elements: at least those where no guard moves with both.
    fn whole_rows(&self, term: &Run) -> Range<usize> {
        let all = self.diagonal.is_none() && self.cols.len() == term.count;
        if all { self.rows.clone() } else { 0..0 }
    }

    #[inline(always)]
    pub fn next(&mut self) -> Option<(Range<usize>, Range<usize>)> {
        if self.rows.is_empty() {
            return None;
        }
        let Some(of) = &self.diagonal else {
            return Some((std::mem::take(&mut self.rows), self.cols.clone()));
        };
        let lines = self.lines(of);
        loop {
            let number = self.next;
            self.next += 1;
            let (line, part) = match number.checked_sub(1) {
                None => (lines.clone(), of.all.clone()),
                Some(number) => {
                    let line = lines.start + number / 2;
                    if line >= lines.end {
                        return None;
                    }
                    let range = self.line(of, line);
                    let part = match (number % 2 == 0, of.all.is_empty()) {
                        (true, true) => range,
                        (false, true) => 0..0,
                        (true, false) => range.start..of.all.start,
                        (false, false) => of.all.end..range.end,
                    };
                    (line..line + 1, part)
                }
            };
            if !part.is_empty() {
                return Some(if of.along_rows { (part, line) } else { (line, part) });
            }
        }
    }
}

#[inline(always)]
fn common(a: &Range<usize>, b: Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// # Safety
/// As [`View::pack`].
#[inline(always)]
unsafe fn pack_run<T: Number>(view: &View, data: *const T, free: &Run, term: &Run, to: Target<T>) {
    let stride = |walks: &[Walk]| walks.last().map_or(0, |walk| walk.stride);
    let (free_stride, term_stride) = (stride(&view.free), stride(&view.terms));
    let to = to.at(free.at, term.at);
    let base = view.start.wrapping_add(free.offset).wrapping_add(term.offset);
    let mut rectangles = Rectangles::new(view, free, term);
    // SAFETY: within the rectangles every guard holds, so the elements are the operand's; the target is the
    // caller's.
    unsafe {
        if !rectangles.is_whole(free, term) {
            zero(to, free.count, term.count);
        }
        while let Some((rows, cols)) = rectangles.next() {
            let offset = base
                .wrapping_add((rows.start as isize).wrapping_mul(free_stride))
                .wrapping_add((cols.start as isize).wrapping_mul(term_stride));
            let to = to.at(rows.start, cols.start);
            copy(data.wrapping_offset(offset), free_stride, term_stride, to, rows.len(), cols.len());
        }
    }
}

/// # Safety
/// As [`View::pack`].
#[inline(always)]
unsafe fn pack_all<T: Number>(
    view: &View,
    data: *const T,
    free: Range<usize>,
    terms: Range<usize>,
    to: Target<T>,
) {
    let term_runs = runs(&view.terms, view.guards.len(), terms);
    for free in runs(&view.free, view.guards.len(), free) {
        for term in &term_runs {
            // SAFETY: the caller's promise.
            unsafe { pack_run(view, data, &free, term, to) };
        }
    }
}

macro_rules! versions {
    ($($name:ident $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $name<T: Number>(
            view: &View, data: *const T, free: Range<usize>, terms: Range<usize>, to: Target<T>,
        ) {
            // SAFETY: the caller's promise.
            unsafe { pack_all(view, data, free, terms, to) }
        }
    )*};
}

versions! {
    baseline;
    avx2 "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
    avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
}

/// A part of a view: the runs of its terms, each with its place behind a row's first element, and its rows, with the place of
/// the first one of those that can be read where they lie. Elements of a run follow one another.
pub struct Straight {
    pub runs: SmallVec<[(isize, usize); 8]>,
    pub parts: SmallVec<[(Range<usize>, Option<isize>); 8]>,
}

impl Straight {
    fn part(&mut self, rows: Range<usize>, place: Option<isize>) {
        match self.parts.last_mut() {
            _ if rows.is_empty() => {}
            Some((before, None)) if place.is_none() => before.end = rows.end,
            _ => self.parts.push((rows, place)),
        }
    }
}

impl View {
    /// Copies the elements of these free indices and terms.
    ///
    /// # Safety
    /// `data` is the start of the operand that the view is of, the ranges are within the view, and the
    /// target has a place, which nobody else uses, for each of their combinations.
    pub unsafe fn pack<T: Number>(
        &self,
        data: *const T,
        free: Range<usize>,
        terms: Range<usize>,
        to: Target<T>,
    ) {
        // SAFETY: the caller's promise; `isa` says what the machine has.
        unsafe {
            match isa() {
                Isa::Baseline => baseline(self, data, free, terms, to),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2(self, data, free, terms, to),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512(self, data, free, terms, to),
            }
        }
    }

    /// Which rows of a part can be read where they lie.
    pub fn straight(&self, free: Range<usize>, terms: Range<usize>) -> Straight {
        let term_runs = runs(&self.terms, self.guards.len(), terms);
        let mut straight = Straight { runs: SmallVec::new(), parts: SmallVec::new() };
        for run in &term_runs {
            match straight.runs.last_mut() {
                Some((offset, count)) if *offset + *count as isize == run.offset => *count += run.count,
                _ => straight.runs.push((run.offset, run.count)),
            }
        }
        let stride = self.free.last().map_or(0, |walk| walk.stride);
        for run in runs(&self.free, self.guards.len(), free) {
            let mut whole = 0..run.count;
            for term in &term_runs {
                whole = common(&whole, Rectangles::new(self, &run, term).whole_rows(term));
                if whole.is_empty() {
                    break;
                }
            }
            let place = self.start.wrapping_add(run.offset).wrapping_add(whole.start as isize * stride);
            straight.part(run.at..run.at + whole.start, None);
            straight.part(run.at + whole.start..run.at + whole.end, Some(place));
            straight.part(run.at + whole.end..run.at + run.count, None);
        }
        straight
    }

    /// Whether elements of adjacent terms are adjacent; else those of adjacent free indices may be.
    pub fn terms_adjacent(&self) -> bool {
        let stride = |walks: &[Walk]| walks.last().map_or(1, |walk| walk.stride);
        stride(&self.terms) == 1 || stride(&self.free) != 1
    }
}
