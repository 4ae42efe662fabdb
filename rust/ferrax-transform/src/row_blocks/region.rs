//! Finding the equations that are computed block of rows by block of rows.
//!
//! A region begins at a product over all pairs of rows and has what is made of it, as long as that is as large. In: a
//! program and such a product. Out: the region, or nothing where something as large as the product leaves it, or where
//! something in it mixes rows. Cost: linear in the region and in what its operands are made of after the product.

use std::collections::BTreeSet;

use ferrax_ir::ops::DotGeneral;
use ferrax_ir::{Atom, Op, Program, Var};
use rustc_hash::{FxHashMap, FxHashSet};

use super::rows::{RowAxes, row_axes, sizes};

/// What has so many times fewer elements than the product is not made again for each block, but once.
const SMALL: usize = 64;

/// A product counts if its contracted axis is so many times shorter than both axes of the result: then it costs
/// little to make it again, and it has many more elements than its operands.
const LONGER: usize = 8;

/// Who makes and who takes each value.
pub struct Uses {
    pub producers: Vec<Option<usize>>,
    consumers: Vec<Vec<usize>>,
    leaves: Vec<bool>,
}

impl Uses {
    pub fn new(program: &Program) -> Uses {
        let count = program.types.len();
        let mut uses = Uses {
            producers: vec![None; count],
            consumers: vec![Vec::new(); count],
            leaves: vec![false; count],
        };
        for (index, equation) in program.equations.iter().enumerate() {
            for var in equation.inputs.iter().filter_map(Atom::as_var) {
                uses.consumers[var.index()].push(index);
            }
            for var in &equation.outputs {
                uses.producers[var.index()] = Some(index);
            }
        }
        for var in program.outputs.iter().filter_map(Atom::as_var) {
            uses.leaves[var.index()] = true;
        }
        uses
    }
}

/// Equations that go by rows, and what goes in and out.
#[derive(Debug, Default)]
pub struct Region {
    /// The equations, in order: those of which something depends on the product, which are computed here alone, and
    /// others, which are done again for their rows.
    pub equations: BTreeSet<usize>,
    pub own: FxHashSet<usize>,
    /// Along which axis the rows are, of each value that is made here.
    pub axes: FxHashMap<Var, usize>,
    /// Values from outside of which blocks take their rows, along an axis.
    pub by_rows: BTreeSet<(Var, usize)>,
    /// Values from outside that all blocks take whole.
    pub shared: BTreeSet<Var>,
    /// What the rest of the program takes.
    pub outputs: BTreeSet<Var>,
    pub rows: usize,
    /// Rows of a block.
    pub block: usize,
}

/// The rows of the product's result and of the largest block of them, by the axes along which it can be cut.
fn cuts(program: &Program, index: usize, block_bytes: usize) -> Option<Vec<(usize, usize, usize)>> {
    let equation = &program.equations[index];
    let Op::DotGeneral(op) = &equation.op else { return None };
    let result = sizes(program, &Atom::Var(equation.outputs[0]))?;
    let (lhs, rhs) = (sizes(program, &equation.inputs[0])?, sizes(program, &equation.inputs[1])?);
    let DotGeneral { lhs_contracting, lhs_batch, .. } = op;
    let contracted: usize = lhs_contracting.iter().map(|&axis| lhs[axis]).product();
    let width = program.types[equation.outputs[0].index()].as_array()?.dtype.size();
    let elements = result.iter().product::<usize>();
    let ranks = [lhs.len(), rhs.len()];
    let axes = (lhs_batch.len()..result.len()).map(|axis| (axis, result[axis]));
    let (left, right): (Vec<_>, Vec<_>) = axes.partition(|&(axis, _)| op.origin(axis, ranks)[0].is_some());
    let count = |axes: &[(usize, usize)]| axes.iter().map(|&(_, size)| size).product::<usize>();
    if contracted.max(1).saturating_mul(LONGER) > count(&left).min(count(&right)) {
        return None;
    }
    let cut = |&(axis, rows): &(usize, usize)| {
        let row = (elements / rows.max(1)).saturating_mul(width).max(1);
        let block = (block_bytes / row / 16 * 16).max(16);
        (rows >= 2 * block).then_some((axis, rows, block))
    };
    Some(left.iter().chain(&right).filter_map(cut).collect())
}

/// Whether a product may begin a region: nearly all programs have none that does.
pub fn begins(program: &Program, index: usize, block_bytes: usize) -> bool {
    cuts(program, index, block_bytes).is_some_and(|cuts| !cuts.is_empty())
}

/// The region of the product at `index`; `taken` are the equations of regions found before.
pub fn find(
    program: &Program,
    uses: &Uses,
    index: usize,
    block_bytes: usize,
    taken: &FxHashSet<usize>,
) -> Option<Region> {
    let cuts = cuts(program, index, block_bytes)?;
    cuts.into_iter().find_map(|(axis, rows, block)| {
        let region = Region { rows, block, ..Region::default() };
        let elements = sizes(program, &Atom::Var(program.equations[index].outputs[0]))?.iter().product();
        let mut finder =
            Finder { program, uses, taken, seed: index, elements, depends: FxHashMap::default(), region };
        finder.grow(axis)?;
        finder.supply()?;
        finder.region.outputs = finder.leaving();
        Some(finder.region)
    })
}

struct Finder<'a> {
    program: &'a Program,
    uses: &'a Uses,
    taken: &'a FxHashSet<usize>,
    seed: usize,
    /// Of the product.
    elements: usize,
    /// Whether a value depends on the product.
    depends: FxHashMap<Var, bool>,
    region: Region,
}

impl Finder<'_> {
    fn elements(&self, var: Var) -> usize {
        sizes(self.program, &Atom::Var(var)).map_or(0, |sizes| sizes.iter().product())
    }

    /// Takes what depends on the product, until nothing as large is left to be taken.
    fn grow(&mut self, axis: usize) -> Option<()> {
        let output = self.program.equations[self.seed].outputs[0];
        self.region.axes.insert(output, axis);
        self.depends.insert(output, true);
        self.region.own.insert(self.seed);
        let mut next: BTreeSet<usize> = self.uses.consumers[output.index()].iter().copied().collect();
        if next.is_empty() || self.uses.leaves[output.index()] {
            return None;
        }
        while let Some(index) = next.pop_first() {
            for taken in self.take(index)? {
                let [output] = self.program.equations[taken].outputs[..] else { return None };
                if self.elements(output) >= self.elements {
                    if self.uses.leaves[output.index()] {
                        return None;
                    }
                    next.extend(&self.uses.consumers[output.index()]);
                }
            }
        }
        self.region.equations.extend(&self.region.own);
        Some(())
    }

    /// Takes an equation, after those that lead to it from the product; gives the new ones.
    fn take(&mut self, index: usize) -> Option<Vec<usize>> {
        let (mut stack, mut new) = (vec![index], Vec::new());
        while let Some(&index) = stack.last() {
            if self.region.own.contains(&index) {
                stack.pop();
                continue;
            }
            let equation = &self.program.equations[index];
            let before = stack.len();
            let mut dependent: Vec<Var> = Vec::new();
            for var in equation.inputs.iter().filter_map(Atom::as_var) {
                if self.depends_on_product(var) {
                    dependent.push(var);
                    if !self.region.axes.contains_key(&var) {
                        stack.push(self.uses.producers[var.index()]?);
                    }
                }
            }
            if stack.len() > before {
                continue;
            }
            stack.pop();
            let [output] = equation.outputs[..] else { return None };
            let axis = self.axis_of_result(index, &dependent)?;
            if self.taken.contains(&index) {
                return None;
            }
            self.region.axes.insert(output, axis);
            self.region.own.insert(index);
            new.push(index);
        }
        Some(new)
    }

    /// Whether a value depends on the product: only what stands after that can.
    fn depends_on_product(&mut self, var: Var) -> bool {
        let mut stack = vec![var];
        while let Some(&var) = stack.last() {
            if self.depends.contains_key(&var) {
                stack.pop();
                continue;
            }
            let producer = self.uses.producers[var.index()].filter(|&index| index > self.seed);
            let inputs = producer.map_or(&[][..], |index| &self.program.equations[index].inputs);
            let vars = || inputs.iter().filter_map(Atom::as_var);
            let unknown: Vec<Var> = vars().filter(|var| !self.depends.contains_key(var)).collect();
            if unknown.is_empty() {
                let depends = vars().any(|var| self.depends[&var]);
                self.depends.insert(var, depends);
                stack.pop();
            } else {
                stack.extend(unknown);
            }
        }
        self.depends[&var]
    }

    /// Along which axis of its result the rows of these operands are.
    fn axis_of_result(&self, index: usize, dependent: &[Var]) -> Option<usize> {
        let equation = &self.program.equations[index];
        let result = sizes(self.program, &Atom::Var(equation.outputs[0]))?;
        (0..result.len()).filter(|&axis| result[axis] == self.region.rows).find(|&axis| {
            row_axes(self.program, equation, axis).is_some_and(|axes| {
                let mut of_inputs = equation.inputs.iter().zip(&axes);
                of_inputs.all(|(atom, axis)| match atom.as_var().filter(|var| dependent.contains(var)) {
                    Some(var) => *axis == self.region.axes.get(&var).copied(),
                    None => true,
                })
            })
        })
    }

    /// What comes from outside: large values that are cheap are made here, row by row.
    fn supply(&mut self) -> Option<()> {
        let mut stack: Vec<usize> = self.region.own.iter().copied().collect();
        stack.sort_unstable();
        while let Some(index) = stack.pop() {
            let equation = &self.program.equations[index];
            let axis = self.region.axes[&equation.outputs[0]];
            let axes: RowAxes = row_axes(self.program, equation, axis)?;
            for (var, axis) in
                equation.inputs.iter().zip(axes).filter_map(|(atom, axis)| Some((atom.as_var()?, axis)))
            {
                let Some(axis) = axis else {
                    self.region.shared.insert(var);
                    continue;
                };
                if self.region.axes.get(&var) == Some(&axis) {
                    continue;
                }
                match self.can_be_made(var, axis) {
                    Some(producer) if !self.region.axes.contains_key(&var) => {
                        self.region.axes.insert(var, axis);
                        self.region.equations.insert(producer);
                        stack.push(producer);
                    }
                    _ => {
                        self.region.by_rows.insert((var, axis));
                    }
                }
            }
        }
        Some(())
    }

    /// The equation that makes a large value, if it can make some rows of it alone.
    fn can_be_made(&self, var: Var, axis: usize) -> Option<usize> {
        let index = self.uses.producers[var.index()]?;
        let equation = &self.program.equations[index];
        let once =
            self.uses.consumers[var.index()].iter().all(|consumer| self.region.equations.contains(consumer));
        let cheap = once || !matches!(equation.op, Op::DotGeneral(_));
        let worth_it = cheap && !self.taken.contains(&index) && self.elements(var) >= self.elements / SMALL;
        (worth_it && row_axes(self.program, equation, axis).is_some()).then_some(index)
    }

    fn leaving(&self) -> BTreeSet<Var> {
        let own = self.region.own.iter().map(|&index| self.program.equations[index].outputs[0]);
        own.filter(|var| {
            let taken = &self.uses.consumers[var.index()];
            self.uses.leaves[var.index()] || taken.iter().any(|index| !self.region.own.contains(index))
        })
        .collect()
    }
}
