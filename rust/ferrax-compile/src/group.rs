//! Which roots share a kernel.
//!
//! Roots are taken in program order. Each joins the earliest group that
//! computes something it needs at the same index, or that reads something it
//! reads, if all it needs is complete by then; else it opens a group. Groups
//! are numbered in the order in which they run: a group needs only groups of
//! lower number, or values of its own at the same index. What depends on a
//! barrier joins no group that is older than the barrier.

use ferrax_ir::lowering::IndexMap;
use ferrax_ir::{Atom, Equation, Result, Sizes, Var, View, internal_error};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::cost_model;
use crate::graph::{Class, Graph};

/// A window of a variable that is written by itself.
#[derive(Clone, Debug)]
pub struct Piece {
    pub target: Var,
    pub source: Atom,
    /// Sizes of the window.
    pub sizes: Sizes,
    /// Where the window starts in the source; `None` for a 0-d source that fills it.
    pub source_start: Option<Sizes>,
    /// Start and step of the window in the target, per axis.
    pub target_start: Sizes,
    pub target_step: Sizes,
}

/// What a group computes.
#[derive(Clone, Debug)]
pub enum Item {
    /// At every index.
    Main(Var),
    /// By an accumulator.
    Reduce(Var),
    /// From accumulators.
    Epilogue(Var),
    Piece(Box<Piece>),
}

#[derive(Debug)]
pub struct Group {
    /// The equation of a library step; else the group is a kernel.
    pub library: Option<usize>,
    /// Sizes of the index space, and which axes are reduced.
    pub sizes: Sizes,
    pub reduced: SmallVec<[bool; 4]>,
    pub items: Vec<Item>,
    /// What it reads and writes: at least all that is in memory.
    operands: FxHashSet<Var>,
}

impl Group {
    fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    fn has_reduction(&self) -> bool {
        self.reduced.contains(&true)
    }

    fn kept_count(&self) -> usize {
        self.sizes.iter().zip(&self.reduced).filter(|(_, reduced)| !**reduced).map(|(size, _)| size).product()
    }
}

/// The groups, and for each variable that is a root the group that completes it.
pub struct Grouping {
    pub groups: Vec<Group>,
    pub group_of: Vec<Option<u32>>,
}

/// What a root needs: leaves, and whether only at the same row-major index.
type Needs = SmallVec<[(Var, bool); 8]>;

pub fn group(graph: &Graph<'_>) -> Result<Grouping> {
    let mut grouper = Grouper {
        graph,
        groups: Vec::new(),
        group_of: vec![None; graph.program.types.len()],
        pieced: vec![false; graph.program.types.len()],
        readers: FxHashMap::default(),
        solo: FxHashSet::default(),
        first: vec![0; graph.program.types.len()],
    };
    for (index, equation) in graph.program.equations.iter().enumerate() {
        grouper.note_barriers(equation);
        grouper.equation(index, equation)?;
    }
    Ok(Grouping { groups: grouper.groups, group_of: grouper.group_of })
}

struct Grouper<'a> {
    graph: &'a Graph<'a>,
    groups: Vec<Group>,
    group_of: Vec<Option<u32>>,
    /// Roots that exist in memory only.
    pieced: Vec<bool>,
    /// The last group over so many elements that reads a leaf.
    readers: FxHashMap<(Var, usize), u32>,
    /// Groups that take no more roots.
    solo: FxHashSet<u32>,
    /// The first group that may compute a variable, for the barriers it depends on.
    first: Vec<u32>,
}

impl Grouper<'_> {
    fn note_barriers(&mut self, equation: &Equation) {
        let inputs = equation.inputs.iter().filter_map(Atom::as_var).map(|var| self.first[var.index()]);
        let mut first = inputs.max().unwrap_or(0);
        if matches!(equation.op.view(), View::Leaf(rules) if rules.is_barrier()) {
            first = self.groups.len() as u32;
        }
        for var in &equation.outputs {
            self.first[var.index()] = first;
        }
    }

    fn equation(&mut self, index: usize, equation: &Equation) -> Result<()> {
        let graph = self.graph;
        let class = graph.classes[index];
        if class == Class::Library {
            let group = self.groups.len() as u32;
            self.groups.push(Group {
                library: Some(index),
                sizes: Sizes::new(),
                reduced: SmallVec::new(),
                items: Vec::new(),
                operands: FxHashSet::default(),
            });
            for var in &equation.outputs {
                self.group_of[var.index()] = Some(group);
            }
            return Ok(());
        }
        for &var in &equation.outputs {
            if graph.base[var.index()] != Some(var) || graph.counts[var.index()] == 0 {
                continue;
            }
            match class {
                Class::Pieces => {
                    self.pieced[var.index()] = true;
                    let mut last = None;
                    for piece in pieces(graph, equation, var)? {
                        last = Some(self.piece(piece, last)?);
                    }
                    self.group_of[var.index()] = last;
                }
                Class::Reduce => {
                    let sizes: Sizes = graph.atom_sizes(&equation.inputs[0]).into();
                    let axes = &graph.reduction_of(var)?.axes;
                    let reduced: SmallVec<[bool; 4]> =
                        (0..sizes.len()).map(|axis| axes.contains(&axis)).collect();
                    let needs = self.needs(&[equation.inputs[0]], true);
                    let group = self.place(var, &needs, &sizes, Some(&reduced), None);
                    self.groups[group as usize].items.push(Item::Reduce(var));
                    self.group_of[var.index()] = Some(group);
                }
                _ => {
                    let needs = self.needs_of_equation(equation, var);
                    let group = self.place(var, &needs, &graph.sizes[var.index()], None, None);
                    let place = &mut self.groups[group as usize];
                    let epilogue = place.count() != graph.counts[var.index()];
                    place.items.push(if epilogue { Item::Epilogue(var) } else { Item::Main(var) });
                    self.group_of[var.index()] = Some(group);
                }
            }
        }
        Ok(())
    }

    /// Places a piece; the last of the groups that it and the earlier pieces, up to `before`, are in.
    fn piece(&mut self, piece: Piece, before: Option<u32>) -> Result<u32> {
        let direct = match &piece.source_start {
            None => false,
            Some(start) => {
                start.iter().all(|&s| s == 0) && *piece.sizes == *self.graph.atom_sizes(&piece.source)
            }
        };
        let needs = self.needs(&[piece.source], direct);
        // Only filling has an order; windows of a concatenation do not overlap.
        let after = before.filter(|_| matches!(self.graph.map_of(piece.target), Some(IndexMap::Padded(_))));
        let group = self.place(piece.target, &needs, &piece.sizes.clone(), None, after);
        self.groups[group as usize].items.push(Item::Piece(Box::new(piece)));
        Ok(group.max(before.unwrap_or(0)))
    }

    /// The group for a root over `sizes`.
    fn place(
        &mut self,
        var: Var,
        needs: &Needs,
        sizes: &Sizes,
        reduced: Option<&SmallVec<[bool; 4]>>,
        after: Option<u32>,
    ) -> u32 {
        let count: usize = sizes.iter().product();
        let mut least = after.map_or(0, |group| group + 1).max(self.first[var.index()]);
        let mut same_index: Option<u32> = None;
        for &(leaf, identity) in needs {
            let Some(group) = self.group_of[leaf.index()] else { continue };
            // What memory rounds is read from there.
            let identity = identity
                && !self.pieced[leaf.index()]
                && !self.graph.dtypes[leaf.index()].is_storage_only()
                && self.groups[group as usize].library.is_none();
            least = least.max(if identity { group } else { group + 1 });
            if identity {
                same_index = same_index.max(Some(group));
            }
        }
        let solo = self.graph.solo[var.index()];
        let mut chosen = None;
        if !solo {
            if let Some(group) = same_index.filter(|&group| group >= least)
                && self.fits(group, needs, count, sizes, reduced)
                && self.has_room(group, var, needs)
            {
                chosen = Some(group);
            }
            if chosen.is_none() {
                // A group that must wait for no one and reads the same.
                let candidates =
                    needs.iter().filter_map(|&(leaf, _)| self.readers.get(&(leaf, count)).copied());
                chosen = candidates
                    .filter(|&group| {
                        group >= least
                            && Some(group) != same_index
                            && self.groups[group as usize].items.len() < cost_model::ROOTS
                            && self.fits(group, needs, count, sizes, reduced)
                            && self.has_room(group, var, needs)
                    })
                    .max();
            }
        }
        let group = chosen.unwrap_or_else(|| {
            self.groups.push(Group {
                library: None,
                sizes: sizes.clone(),
                reduced: SmallVec::from_elem(false, sizes.len()),
                items: Vec::new(),
                operands: FxHashSet::default(),
            });
            self.groups.len() as u32 - 1
        });
        if solo {
            self.solo.insert(group);
        }
        if let Some(reduced) = reduced {
            let place = &mut self.groups[group as usize];
            place.sizes = sizes.clone();
            place.reduced = reduced.clone();
        }
        for &(leaf, _) in needs {
            self.readers.insert((leaf, count), group);
        }
        let operands = &mut self.groups[group as usize].operands;
        operands.extend(needs.iter().map(|&(leaf, _)| leaf));
        operands.insert(var);
        group
    }

    /// Whether the machine has kernels of as many arrays as those of `group` and of this root.
    fn has_room(&self, group: u32, var: Var, needs: &Needs) -> bool {
        let operands = &self.groups[group as usize].operands;
        let more =
            needs.iter().map(|&(leaf, _)| leaf).chain([var]).filter(|leaf| !operands.contains(leaf)).count();
        operands.len() + more <= self.graph.target.operands
    }

    /// Whether a root over `sizes` can be computed by the loops of `group`.
    fn fits(
        &self,
        group: u32,
        needs: &Needs,
        count: usize,
        sizes: &Sizes,
        reduced: Option<&SmallVec<[bool; 4]>>,
    ) -> bool {
        if self.solo.contains(&group) {
            return false;
        }
        let place = &self.groups[group as usize];
        // Where the values of this group that the root needs are computed.
        let (mut main, mut after) = (false, false);
        for &(leaf, _) in needs.iter().filter(|(leaf, _)| self.group_of[leaf.index()] == Some(group)) {
            let leaf_main = self.graph.counts[leaf.index()] == place.count();
            main |= leaf_main;
            after |= !leaf_main;
        }
        match reduced {
            Some(reduced) => {
                let same_space = if place.has_reduction() {
                    place.sizes == *sizes && place.reduced == *reduced
                } else {
                    place.count() == count
                };
                same_space && !after
            }
            None if count == place.count() => !after,
            None => place.has_reduction() && count == place.kept_count() && after && !main,
        }
    }

    fn needs_of_equation(&self, equation: &Equation, var: Var) -> Needs {
        let mut walk = Walk::default();
        self.inputs(equation, var, true, &mut walk);
        self.finish(walk)
    }

    fn needs(&self, atoms: &[Atom], identity: bool) -> Needs {
        let mut walk = Walk::default();
        walk.stack.extend(atoms.iter().filter_map(Atom::as_var).map(|var| (var, identity)));
        self.finish(walk)
    }

    /// Leaves that a walk reaches, each once; `false` wins.
    fn finish(&self, mut walk: Walk) -> Needs {
        let mut found: FxHashMap<Var, bool> = FxHashMap::default();
        let mut order: SmallVec<[Var; 8]> = SmallVec::new();
        while let Some((var, identity)) = walk.stack.pop() {
            if let Some(base) = self.graph.base[var.index()] {
                let entry = found.entry(base).or_insert_with(|| {
                    order.push(base);
                    true
                });
                *entry &= identity;
                continue;
            }
            if !walk.seen.insert((var, identity)) {
                continue;
            }
            if let Some((equation, _)) = self.graph.equation_of(var) {
                self.inputs(equation, var, identity, &mut walk);
            }
        }
        order.into_iter().map(|var| (var, found[&var])).collect()
    }

    fn inputs(&self, equation: &Equation, var: Var, identity: bool, walk: &mut Walk) {
        let graph = self.graph;
        let Some((_, class)) = graph.equation_of(var) else { return };
        let count = graph.counts[var.index()];
        for input in equation.inputs.iter().filter_map(Atom::as_var) {
            let keeps = match class {
                Class::Elementwise | Class::Alias => graph.counts[input.index()] == count,
                _ => false,
            };
            walk.stack.push((input, identity && keeps));
        }
    }
}

#[derive(Default)]
struct Walk {
    stack: Vec<(Var, bool)>,
    seen: FxHashSet<(Var, bool)>,
}

/// The windows that make up what is joined, or padded between elements.
fn pieces(graph: &Graph<'_>, equation: &Equation, target: Var) -> Result<Vec<Piece>> {
    let rank = graph.sizes[target.index()].len();
    let zeros: Sizes = SmallVec::from_elem(0, rank);
    let ones: Sizes = SmallVec::from_elem(1, rank);
    let mut result = Vec::new();
    match graph.map_of(target) {
        Some(&IndexMap::Joined { axis }) => {
            let mut offset = 0;
            for source in &equation.inputs {
                let sizes: Sizes = graph.atom_sizes(source).into();
                let mut target_start = zeros.clone();
                target_start[axis] = offset;
                offset += sizes[axis];
                if !sizes.contains(&0) {
                    result.push(Piece {
                        target,
                        source: *source,
                        sizes,
                        source_start: Some(zeros.clone()),
                        target_start,
                        target_step: ones.clone(),
                    });
                }
            }
        }
        Some(IndexMap::Padded(kept)) => {
            result.push(Piece {
                target,
                source: equation.inputs[1],
                sizes: graph.sizes[target.index()].clone(),
                source_start: None,
                target_start: zeros.clone(),
                target_step: ones,
            });
            let mut window = Piece {
                target,
                source: equation.inputs[0],
                sizes: zeros.clone(),
                source_start: Some(zeros.clone()),
                target_start: zeros.clone(),
                target_step: zeros.clone(),
            };
            let mut start = zeros;
            for (axis, kept) in kept.iter().enumerate() {
                start[axis] = kept.from;
                window.sizes[axis] = kept.count;
                window.target_start[axis] = kept.to;
                window.target_step[axis] = kept.step;
            }
            window.source_start = Some(start);
            if !window.sizes.contains(&0) {
                result.push(window);
            }
        }
        _ => return Err(internal_error!("{} has no pieces", equation.op.name())),
    }
    Ok(result)
}
