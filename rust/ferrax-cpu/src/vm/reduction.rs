//! Accumulators, and how tiles meet them.
//!
//! Where the order of terms matters (sums and products of floats) they go into
//! a tree that their number determines (`tree`); other reductions combine each
//! tile with what they have. A long reduction with little beside it is cut into
//! segments of a power of two of terms, which are whole subtrees: cut or not,
//! the result has the same bits.

use ferrax_compile::schedule::Schedule;
use ferrax_compile::{Accumulator, Kernel};
use ferrax_ir::scalar::Reg;
use ferrax_ir::{Result, internal_error};
use smallvec::SmallVec;

use super::Place;
use super::fold::{ArgFn, ArgMergeFn, FoldOp, arg_fns, fold_op};
use super::section::{Entry, Section};
use super::tree::{LANES, TreeOp, levels, tree_op};

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
    /// `stride` is that of rows of terms that are read where they lie, in bytes. Terms that are products have
    /// factors.
    Tree {
        op: TreeOp,
        lanes: Place,
        levels: Place,
        stride: Option<isize>,
        factors: Option<[FactorPlace; 2]>,
    },
}

/// Where a factor is, and what is taken from it, with bytes from line to line.
#[derive(Clone, Copy, Debug)]
pub struct FactorPlace {
    pub terms: (Place, isize),
    pub less: Option<(Place, isize)>,
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

/// The accumulators of a kernel, in places of their own.
pub fn folds(kernel: &Kernel, schedule: &Schedule, layout: &mut super::section::Layout) -> Result<Vec<Fold>> {
    // Accumulators live across the tiles of a unit.
    let (terms, kept) = (schedule.walk.terms, schedule.epilogue.lanes());
    let make = |accumulator: &Accumulator| -> Result<Fold> {
        let (kind, ty) = (accumulator.kind, accumulator.ty);
        let size = ty.size();
        let values = layout.slot(size * kept);
        let apply = if kind.is_arg() {
            let (apply, merge) = arg_fns(kind, ty, schedule.fold);
            Apply::Arg { indices: layout.slot(8 * kept), apply, merge }
        } else if let Some(op) = tree_op(kind, ty, schedule.fold.layout()) {
            let lanes = layout.slot(size * kept * LANES);
            let levels = layout.slot(size * kept * levels(terms));
            Apply::Tree { op, lanes, levels, stride: None, factors: None }
        } else {
            Apply::Plain(fold_op(kind, ty, schedule.fold)?)
        };
        Ok(Fold { size, values, from: 0, apply })
    };
    kernel.accumulators.iter().map(make).collect()
}

/// The registers that folds take, in order: terms, or their factors.
pub fn wanted(kernel: &Kernel, schedule: &Schedule) -> Vec<Reg> {
    let mut wanted = vec![];
    for (accumulator, factors) in kernel.accumulators.iter().zip(&schedule.products) {
        match factors {
            None => wanted.push(accumulator.arg),
            Some(factors) => {
                wanted.extend(factors.iter().flat_map(|factor| [Some(factor.load), factor.less]).flatten());
            }
        }
    }
    wanted
}

/// Tells folds where their terms are.
pub fn connect(folds: &mut [Fold], main: &Section, schedule: &Schedule, entries: &[Entry]) -> Result<()> {
    // From row to row of a load that is read where it lies.
    let row_stride = |place: Place| -> Option<isize> {
        let row = schedule.tile.row?;
        let load = main.loads.iter().find(|load| load.place == place)?;
        let along = load.walk.strides.iter().find(|(axis, _)| *axis as usize == row.axis);
        Some(along.map_or(0, |found| found.1))
    };
    let mut results = main.results.iter().copied();
    let mut next = || results.next().ok_or_else(|| internal_error!("a section has too few results"));
    for (fold, products) in folds.iter_mut().zip(&schedule.products) {
        fold.from = next()?;
        let Apply::Tree { stride, factors, .. } = &mut fold.apply else { continue };
        let is_there = |place: Place| schedule.direct && entries[place as usize] == Entry::Moving;
        match products {
            None if is_there(fold.from) => *stride = row_stride(fold.from),
            None => {}
            Some(products) => {
                let mut places = SmallVec::<[FactorPlace; 2]>::new();
                for (number, factor) in products.iter().enumerate() {
                    let terms = if number == 0 { fold.from } else { next()? };
                    if !is_there(terms) {
                        return Err(internal_error!("a factor is not read where it lies"));
                    }
                    let less = factor.less.map(|_| next()).transpose()?;
                    let with_stride = |place: Place| (place, row_stride(place).unwrap_or(0));
                    places.push(FactorPlace { terms: with_stride(terms), less: less.map(with_stride) });
                }
                *factors = places.into_inner().ok();
            }
        }
    }
    Ok(())
}

/// Terms that the trees of a unit have taken.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    /// Reductions side by side.
    pub kept: usize,
    /// Terms of the block that is not complete.
    pub position: usize,
    /// Complete blocks.
    pub blocks: usize,
    /// Values are complete.
    pub complete: bool,
}
