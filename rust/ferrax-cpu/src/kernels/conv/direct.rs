//! Convolutions with one output feature a group, above all depthwise ones, without packing.
//!
//! Each row of the result is a sum over terms of products of an element of `lhs` and one weight of its group.
//! Vectors run along whatever lies together: groups (features last), places (features first), or terms (the
//! derivative for the window, features first); the sums of a tile stay in the L1 cache. Order and splitting
//! of terms are as in `product`.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ferrax_ir::Result;
use ferrax_ir::paths::Path;
use smallvec::SmallVec;

use super::super::micro::Number;
use super::pack::{Rectangles, View, Walk, runs, walks};
use super::product::offsets;
use super::tree::{PANEL, Split, Sums, tree};
use super::{Operands, each_unit};
use crate::tuning::Convolutions;
use crate::vm::isa::{Isa, isa};
use ferrax_compile::convolution::{Problem, count};

/// What vectors run along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Along {
    Groups,
    Rows,
    Terms,
    Nothing,
}

#[derive(Debug)]
pub struct Direct {
    patches: View,
    /// Terms of `rhs`.
    weights: SmallVec<[Walk; 6]>,
    start: [isize; 3],
    groups: usize,
    group: [isize; 3],
    rows: usize,
    out: SmallVec<[(usize, isize); 6]>,
    along: Along,
    side_by_side: usize,
    tile: usize,
    split: Split,
    terms: usize,
    tuning: &'static Convolutions,
}

impl Direct {
    /// The problem, which has one column.
    pub fn new(problem: &Problem, tuning: &'static Convolutions) -> Direct {
        let patches = View {
            free: walks(&problem.rows, |axis| axis.read, true),
            terms: walks(&problem.terms, |axis| axis.read, true),
            guards: problem.guards.clone(),
            holds: problem.holds.clone(),
            start: problem.start[0],
        };
        let weights = walks(&problem.terms, |axis| axis.other, false);
        // How many elements one after the other vectors can run along.
        let run =
            |walks: &[Walk]| walks.last().map_or(0, |walk| if walk.stride == 1 { walk.count } else { 0 });
        let by_rows = run(&patches.free);
        let by_terms = run(&patches.terms).min(run(&weights));
        let along = if problem.groups > 1 && problem.group == [1; 3] {
            Along::Groups
        } else if by_rows > 1 && by_rows >= by_terms {
            Along::Rows
        } else if by_terms > 1 {
            Along::Terms
        } else {
            Along::Nothing
        };
        match along {
            Along::Groups => Path::ConvolutionGroups,
            Along::Rows => Path::ConvolutionRows,
            Along::Terms => Path::ConvolutionTerms,
            Along::Nothing => Path::ConvolutionNothing,
        }
        .take();
        let (rows, terms) = (count(&problem.rows), count(&problem.terms));
        let side_by_side = if along == Along::Groups { problem.groups.min(tuning.groups) } else { 1 };
        let tile = (tuning.tile / side_by_side).min(rows).max(1);
        let units = rows.div_ceil(tile) * problem.groups.div_ceil(side_by_side);
        Direct {
            patches,
            weights,
            start: problem.start,
            groups: problem.groups,
            group: problem.group,
            rows,
            out: problem.rows.iter().map(|axis| (axis.count, axis.other)).collect(),
            along,
            side_by_side,
            tile,
            split: Split::new(terms, if terms > PANEL { tuning.units.div_ceil(units.max(1)) } else { 1 }),
            terms,
            tuning,
        }
    }

    /// Computes the whole result.
    ///
    /// # Safety
    /// The operands are valid for the sizes that the problem was made for.
    pub unsafe fn run<T: Number>(&self, operands: &Operands) -> Result<()> {
        let tiles = self.rows.div_ceil(self.tile);
        let units = tiles * self.groups.div_ceil(self.side_by_side);
        let parts = self.split.parts;
        let values = self.tile * self.side_by_side;
        let decode = |unit: usize| {
            let (group, tile) = (unit / tiles * self.side_by_side, unit % tiles * self.tile);
            (group..(group + self.side_by_side).min(self.groups), tile..(tile + self.tile).min(self.rows))
        };
        let found: Vec<Mutex<Option<Sums>>> =
            (0..if parts > 1 { units * parts } else { 0 }).map(|_| Mutex::new(None)).collect();
        each_unit(units * parts, values * self.terms.div_ceil(parts), self.tuning.serial, &|number| {
            let (unit, part) = (number / parts, number % parts);
            let (groups, rows) = decode(unit);
            let sums = tree::<T>(values, self.split.panels(part), |panel, sums| {
                // SAFETY: the buffer holds the values of a tile.
                unsafe {
                    std::slice::from_raw_parts_mut(sums, values).fill(T::zeroed());
                    self.add(operands, groups.clone(), rows.clone(), self.split.terms(part, panel), sums);
                }
                Ok(())
            })?;
            if parts == 1 {
                // SAFETY: each unit stores a part of the result of its own.
                unsafe { self.store(operands, groups, rows, sums.pointer::<T>()) };
            } else {
                *found[number].lock().unwrap_or_else(PoisonError::into_inner) = Some(sums);
            }
            Ok(())
        })?;
        if parts > 1 {
            each_unit(units, values * parts, self.tuning.serial, &|unit| {
                let (groups, rows) = decode(unit);
                let total = tree::<T>(values, parts, |part, to| {
                    let found = found[unit * parts + part].lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(sums) = found.as_ref() {
                        // SAFETY: both hold the values of a tile.
                        unsafe { std::ptr::copy_nonoverlapping(sums.pointer::<T>(), to, values) };
                    }
                    Ok(())
                })?;
                // SAFETY: each unit stores a part of the result of its own.
                unsafe { self.store(operands, groups, rows, total.pointer::<T>()) };
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Adds the products of these terms to the sums of a tile.
    ///
    /// # Safety
    /// As [`Direct::run`]; `sums` holds a tile.
    unsafe fn add<T: Number>(
        &self,
        operands: &Operands,
        groups: Range<usize>,
        rows: Range<usize>,
        terms: Range<usize>,
        sums: *mut T,
    ) {
        // SAFETY: the caller's promise; `isa` says what the machine has.
        unsafe {
            match isa() {
                Isa::Baseline => baseline(self, operands, groups, rows, terms, sums),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2(self, operands, groups, rows, terms, sums),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512(self, operands, groups, rows, terms, sums),
            }
        }
    }

    /// # Safety
    /// As [`Direct::run`]; nobody else writes this tile's part of the result.
    unsafe fn store<T: Number>(
        &self,
        operands: &Operands,
        groups: Range<usize>,
        rows: Range<usize>,
        sums: *const T,
    ) {
        let out = operands.out::<T>();
        let start = self.start[2] + groups.start as isize * self.group[2];
        for (i, row) in offsets(&self.out, rows).into_iter().enumerate() {
            for g in 0..groups.len() {
                let at = start + row + g as isize * self.group[2];
                // SAFETY: the offsets are those of elements of the result.
                unsafe { *out.offset(at) = *sums.add(i * groups.len() + g) };
            }
        }
    }
}

/// # Safety
/// As [`Direct::add`].
#[inline(always)]
unsafe fn add_all<T: Number>(
    of: &Direct,
    operands: &Operands,
    groups: Range<usize>,
    rows: Range<usize>,
    terms: Range<usize>,
    sums: *mut T,
) {
    let guards = of.patches.guards.len();
    let first = groups.start as isize;
    let patches = operands.input::<T>(0).wrapping_offset(of.patches.start + first * of.group[0]);
    let weights = operands.input::<T>(1).wrapping_offset(of.start[1] + first * of.group[1]);
    let stride = |walks: &[Walk]| walks.last().map_or(0, |walk| walk.stride);
    let (by_row, by_term, by_weight) =
        (stride(&of.patches.free), stride(&of.patches.terms), stride(&of.weights));
    let term_runs = runs(&of.patches.terms, guards, terms.clone());
    let weight_runs = runs(&of.weights, 0, terms);
    let width = groups.len();
    for row in runs(&of.patches.free, guards, rows) {
        for (term, weight) in term_runs.iter().zip(&weight_runs) {
            let from = patches.wrapping_offset(row.offset.wrapping_add(term.offset));
            let by = weights.wrapping_offset(weight.offset);
            let mut rectangles = Rectangles::new(&of.patches, &row, term);
            while let Some((rows, terms)) = rectangles.next() {
                let from = from
                    .wrapping_offset((rows.start as isize).wrapping_mul(by_row))
                    .wrapping_offset((terms.start as isize).wrapping_mul(by_term));
                let by = by.wrapping_offset((terms.start as isize).wrapping_mul(by_weight));
                let to = sums.wrapping_add((row.at + rows.start) * width);
                let (rows, terms) = (rows.len(), terms.len());
                // SAFETY: in a rectangle all guards hold, so the elements are the operand's; the weights of
                // the terms are the other's; the sums are those of the rectangle's rows.
                unsafe {
                    match of.along {
                        Along::Groups => {
                            by_groups(from, by_row, by_term, by, by_weight, to, rows, terms, width)
                        }
                        Along::Rows => by_rows(from, by_term, by, by_weight, to, rows, terms),
                        Along::Terms => by_terms(from, by_row, by, to, rows, terms),
                        Along::Nothing => {
                            for i in 0..rows as isize {
                                let mut sum = *to.offset(i);
                                for j in 0..terms as isize {
                                    let x = *from.offset(i * by_row + j * by_term);
                                    sum = x.mul_add(*by.offset(j * by_weight), sum);
                                }
                                *to.offset(i) = sum;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// # Safety
/// All elements that the strides and `N` reach are valid; `to` is apart from the others.
#[inline(always)]
unsafe fn lines<T: Number, const N: usize>(
    from: *const T,
    by_term: isize,
    by: *const T,
    by_weight: isize,
    to: *mut T,
    terms: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = to.cast::<[T; N]>().read_unaligned();
        for j in 0..terms as isize {
            let x = from.offset(j * by_term).cast::<[T; N]>().read_unaligned();
            let w = by.offset(j * by_weight).cast::<[T; N]>().read_unaligned();
            for (sum, (x, w)) in sums.iter_mut().zip(x.into_iter().zip(w)) {
                *sum = x.mul_add(w, *sum);
            }
        }
        to.cast::<[T; N]>().write_unaligned(sums);
    }
}

/// Groups are adjacent everywhere.
///
/// # Safety
/// As [`add_all`].
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "three operands with strides, and three counts")]
unsafe fn by_groups<T: Number>(
    from: *const T,
    by_row: isize,
    by_term: isize,
    by: *const T,
    by_weight: isize,
    to: *mut T,
    rows: usize,
    terms: usize,
    width: usize,
) {
    const PART: usize = 16;
    for i in 0..rows {
        let (from, to) = (from.wrapping_offset(i as isize * by_row), to.wrapping_add(i * width));
        let mut g = 0;
        // SAFETY: g stays below the number of groups.
        unsafe {
            while g + PART <= width {
                lines::<T, PART>(from.add(g), by_term, by.add(g), by_weight, to.add(g), terms);
                g += PART;
            }
            while g < width {
                lines::<T, 1>(from.add(g), by_term, by.add(g), by_weight, to.add(g), terms);
                g += 1;
            }
        }
    }
}

/// # Safety
/// As [`lines`], with one weight a term.
#[inline(always)]
unsafe fn places<T: Number, const N: usize>(
    from: *const T,
    by_term: isize,
    by: *const T,
    by_weight: isize,
    to: *mut T,
    terms: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = to.cast::<[T; N]>().read_unaligned();
        for j in 0..terms as isize {
            let x = from.offset(j * by_term).cast::<[T; N]>().read_unaligned();
            let w = *by.offset(j * by_weight);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = x.mul_add(w, *sum);
            }
        }
        to.cast::<[T; N]>().write_unaligned(sums);
    }
}

/// Rows are adjacent in `lhs`.
///
/// # Safety
/// As [`add_all`].
#[inline(always)]
unsafe fn by_rows<T: Number>(
    from: *const T,
    by_term: isize,
    by: *const T,
    by_weight: isize,
    to: *mut T,
    rows: usize,
    terms: usize,
) {
    const MANY: usize = 64;
    const FEW: usize = 8;
    let mut i = 0;
    // SAFETY: i stays below the number of rows.
    unsafe {
        while i + MANY <= rows {
            places::<T, MANY>(from.add(i), by_term, by, by_weight, to.add(i), terms);
            i += MANY;
        }
        while i + FEW <= rows {
            places::<T, FEW>(from.add(i), by_term, by, by_weight, to.add(i), terms);
            i += FEW;
        }
        while i < rows {
            places::<T, 1>(from.add(i), by_term, by, by_weight, to.add(i), terms);
            i += 1;
        }
    }
}

/// Terms are adjacent in both operands: each sum is taken in 32 lanes.
///
/// # Safety
/// As [`add_all`].
#[inline(always)]
unsafe fn by_terms<T: Number>(
    from: *const T,
    by_row: isize,
    by: *const T,
    to: *mut T,
    rows: usize,
    terms: usize,
) {
    const PART: usize = 32;
    for i in 0..rows {
        let from = from.wrapping_offset(i as isize * by_row);
        // SAFETY: j stays below the number of terms.
        unsafe {
            let mut lanes = [T::zeroed(); PART];
            let mut j = 0;
            while j + PART <= terms {
                let x = from.add(j).cast::<[T; PART]>().read_unaligned();
                let w = by.add(j).cast::<[T; PART]>().read_unaligned();
                for (lane, (x, w)) in lanes.iter_mut().zip(x.into_iter().zip(w)) {
                    *lane = x.mul_add(w, *lane);
                }
                j += PART;
            }
            let mut sum = *to.add(i);
            while j < terms {
                sum = (*from.add(j)).mul_add(*by.add(j), sum);
                j += 1;
            }
            let mut half = PART / 2;
            while half > 0 {
                for lane in 0..half {
                    lanes[lane] = lanes[lane].add(lanes[lane + half]);
                }
                half /= 2;
            }
            *to.add(i) = sum.add(lanes[0]);
        }
    }
}

macro_rules! versions {
    ($($name:ident $($features:literal)?;)*) => {$(
        $(#[cfg(target_arch = "x86_64")] #[target_feature(enable = $features)])?
        unsafe fn $name<T: Number>(
            of: &Direct, operands: &Operands, groups: Range<usize>, rows: Range<usize>, terms: Range<usize>,
            sums: *mut T,
        ) {
            // SAFETY: the caller's promise.
            unsafe { add_all(of, operands, groups, rows, terms, sums) }
        }
    )*};
}

versions! {
    baseline;
    avx2 "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
    avx512 "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c";
}
