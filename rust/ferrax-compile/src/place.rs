//! Where values live: buffers, what works in place, the arena, donations.
//!
//! Cost: n log n in the number of steps and operands, and for the arena times
//! the number of its gaps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ferrax_ir::{Atom, Op, Result, Tensor, Var, View as OpView, internal_error, memory_error};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::graph::Graph;
use crate::index::View;
use crate::kernel::{AxisKind, Launch, Stage};
use crate::plan::{ALIGNMENT, Argument, Buffer, BufferId, Place, Plan, Step};
use crate::rows::{Run, find_runs, make_way, needed, run_at};

/// A step before its operands have buffers.
pub enum Pending {
    Kernel(Box<Launch>, Vec<Var>),
    /// The equation of a library call.
    Library(usize),
}

/// The plan of these steps.
pub fn place(graph: &Graph<'_>, pending: Vec<Pending>) -> Result<Plan> {
    Placer::new(graph).place(pending)
}

#[derive(Clone, Copy)]
struct Life {
    first: usize,
    last: usize,
}

struct Placer<'a> {
    graph: &'a Graph<'a>,
    buffers: Vec<Buffer>,
    /// For arena buffers, until they are placed; indexed as `buffers`.
    lives: Vec<Option<Life>>,
    of_var: FxHashMap<Var, BufferId>,
    constants: Vec<Tensor>,
    fresh: Vec<usize>,
    taken_over: Vec<(usize, BufferId, BufferId)>,
}

impl<'a> Placer<'a> {
    fn new(graph: &'a Graph<'a>) -> Self {
        Placer {
            graph,
            buffers: Vec::new(),
            lives: Vec::new(),
            of_var: FxHashMap::default(),
            constants: Vec::new(),
            fresh: Vec::new(),
            taken_over: Vec::new(),
        }
    }

    fn bytes(&self, var: Var) -> usize {
        self.graph.counts[var.index()] * self.graph.dtypes[var.index()].size()
    }

    fn add(&mut self, bytes: usize, place: Place, life: Option<Life>) -> BufferId {
        let id = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer { bytes, place, var: None });
        self.lives.push(life);
        id
    }

    /// The buffer of a variable.
    fn add_var(&mut self, var: Var, bytes: usize, place: Place, life: Option<Life>) {
        let id = self.add(bytes, place, life);
        self.buffers[id.0 as usize].var = Some(var);
        self.of_var.insert(var, id);
    }

    fn constant(&mut self, tensor: Tensor) -> BufferId {
        let bytes = tensor.bytes().len();
        self.constants.push(tensor);
        self.add(bytes, Place::Constant(self.constants.len() - 1), None)
    }

    /// The buffer that holds `atom`, for a library call or as a result.
    fn atom(&mut self, atom: &Atom) -> Result<BufferId> {
        match atom {
            Atom::Literal(literal) => Ok(self.constant(literal.value.to_tensor()?)),
            Atom::Var(var) => self.var(*var),
        }
    }

    fn var(&mut self, var: Var) -> Result<BufferId> {
        let Some(base) = self.graph.base[var.index()] else {
            return Err(internal_error!("variable {} is not in memory", var.0));
        };
        self.of_var.get(&base).copied().ok_or_else(|| internal_error!("variable {} has no buffer", base.0))
    }

    fn argument(&mut self, atom: &Atom) -> Result<Argument> {
        Ok(Argument {
            buffer: self.atom(atom)?,
            dtype: self.graph.atom_dtype(atom),
            sizes: self.graph.atom_sizes(atom).into(),
        })
    }

    fn place(mut self, pending: Vec<Pending>) -> Result<Plan> {
        let program = self.graph.program;
        for (index, &var) in program.inputs.iter().enumerate() {
            self.add_var(var, self.bytes(var), Place::Input(index), None);
        }
        for (var, tensor) in &program.constants {
            let id = self.constant(tensor.clone());
            self.buffers[id.0 as usize].var = Some(*var);
            self.of_var.insert(*var, id);
        }
        // Variables that leave.
        for var in program.outputs.iter().filter_map(Atom::as_var) {
            let Some(base) = self.graph.base[var.index()] else {
                return Err(internal_error!("an output is not in memory"));
            };
            if !self.of_var.contains_key(&base) {
                let bytes = self.bytes(base);
                self.fresh.push(bytes);
                self.add_var(base, bytes, Place::Fresh(self.fresh.len() - 1), None);
            }
        }
        // First and last step of all others.
        let mut lives: FxHashMap<Var, Life> = FxHashMap::default();
        for (number, step) in pending.iter().enumerate() {
            let mut touch = |var: Var| {
                lives.entry(var).or_insert(Life { first: number, last: number }).last = number;
            };
            match step {
                Pending::Kernel(_, operands) => operands.iter().for_each(|&var| touch(var)),
                Pending::Library(index) => {
                    let equation = &program.equations[*index];
                    equation
                        .inputs
                        .iter()
                        .filter_map(Atom::as_var)
                        .filter_map(|var| self.graph.base[var.index()])
                        .for_each(&mut touch);
                    equation.outputs.iter().for_each(|&var| touch(var));
                }
            }
        }
        // In program order, so that the plan does not depend on hashing.
        let mut order: Vec<(usize, Var)> = lives.iter().map(|(&var, life)| (life.first, var)).collect();
        order.sort_unstable();
        for &(_, var) in &order {
            if !self.of_var.contains_key(&var) {
                self.add_var(var, self.bytes(var), Place::Arena(0), Some(lives[&var]));
            }
        }
        // Empty arrays that nothing computes.
        for (index, ty) in program.types.iter().enumerate() {
            let var = Var(index as u32);
            if self.graph.counts[index] == 0
                && self.graph.base[index] == Some(var)
                && !self.of_var.contains_key(&var)
                && ty.as_array().is_some()
            {
                self.add_var(var, 0, Place::Arena(0), None);
            }
        }
        let mut steps = Vec::with_capacity(pending.len());
        for step in pending {
            steps.push(match step {
                Pending::Kernel(launch, operands) => {
                    let operands =
                        operands.into_iter().map(|var| self.var(var)).collect::<Result<Vec<_>>>()?;
                    Step::Kernel { launch: *launch, operands }
                }
                Pending::Library(index) => {
                    let equation = &program.equations[index];
                    let inputs =
                        equation.inputs.iter().map(|a| self.argument(a)).collect::<Result<Vec<_>>>()?;
                    let outputs = equation
                        .outputs
                        .iter()
                        .map(|&v| self.argument(&Atom::Var(v)))
                        .collect::<Result<Vec<_>>>()?;
                    Step::Library { op: equation.op.clone(), inputs, outputs }
                }
            });
        }
        let outputs = program.outputs.iter().map(|atom| self.argument(atom)).collect::<Result<Vec<_>>>()?;
        make_way(&mut steps, &self.buffers, &self.graph.target);
        self.work_in_place(&mut steps);
        let mut runs = find_runs(&steps, &self.buffers, &self.graph.target);
        self.live_through(&mut runs)?;
        let arena = self.assign_offsets()?;
        let donations = donations(&self.buffers, &steps, &runs, &outputs);
        Ok(Plan {
            name: program.name.clone(),
            inputs: program
                .inputs
                .iter()
                .map(|var| (self.graph.dtypes[var.index()], self.graph.sizes[var.index()].clone()))
                .collect(),
            constants: self.constants,
            buffers: self.buffers,
            steps,
            runs,
            outputs,
            fresh: self.fresh,
            arena,
            donations,
            taken_over: self.taken_over,
        })
    }

    /// Lets steps write over operands that die with them.
    fn work_in_place(&mut self, steps: &mut [Step]) {
        let mut renamed: Vec<BufferId> = (0..self.buffers.len() as u32).map(BufferId).collect();
        // Those that leave have no life in the arena: the step that first touches each buffer.
        let mut first = Uses::new(steps, self.buffers.len()).first;
        for (number, step) in steps.iter_mut().enumerate() {
            step.rename(&mut renamed);
            let bytes = |id: BufferId| self.buffers[id.0 as usize].bytes;
            let dies = |id: BufferId| self.lives[id.0 as usize].is_some_and(|life| life.last == number);
            let begins = |id: BufferId| {
                let place = self.buffers[id.0 as usize].place;
                first[id.0 as usize] == number && !matches!(place, Place::Input(_) | Place::Constant(_))
            };
            for (from, to) in in_place_pairs(step, bytes, dies, begins) {
                // The later buffer takes over the earlier one's life.
                if let (Some(earlier), Some(later)) =
                    (self.lives[from.0 as usize], self.lives[to.0 as usize].as_mut())
                {
                    later.first = earlier.first;
                }
                first[to.0 as usize] = first[from.0 as usize];
                self.lives[from.0 as usize] = None;
                renamed[from.0 as usize] = to;
                self.taken_over.push((number, from, to));
            }
        }
        for step in steps {
            step.rename(&mut renamed);
        }
    }

    /// Values live as long as runs need them. Those that one run alone needs go to the memory of its blocks.
    fn live_through(&mut self, runs: &mut [Run]) -> Result<()> {
        let mut own: Vec<Vec<(usize, usize, usize)>> = vec![Vec::new(); runs.len()];
        for (id, life) in self.lives.iter_mut().enumerate() {
            let Some(Life { first, last }) = life else { continue };
            match run_at(runs, *first).filter(|&number| run_at(runs, *last) == Some(number)) {
                Some(number) if runs[number].walks(BufferId(id as u32)) => {
                    own[number].push((*first, id, *last));
                    *life = None;
                }
                _ => (*first, *last) = needed(runs, *first, *last),
            }
        }
        for (run, own) in runs.iter_mut().zip(own) {
            let rows = run.rows();
            run.own_bytes = self.fit(own, |bytes| bytes / rows, Place::Rows)?;
        }
        Ok(())
    }

    /// Offsets of arena buffers; gives the arena's size.
    fn assign_offsets(&mut self) -> Result<usize> {
        let lives = self.lives.iter().enumerate();
        let order = lives.filter_map(|(id, life)| life.map(|life| (life.first, id, life.last))).collect();
        self.fit(order, |bytes| bytes, Place::Arena)
    }

    /// Places buffers by first fit, given the first step that needs each, its number, and the last such step;
    /// gives the size of the memory.
    fn fit(
        &mut self,
        mut order: Vec<(usize, usize, usize)>,
        size: impl Fn(usize) -> usize,
        place: impl Fn(usize) -> Place,
    ) -> Result<usize> {
        order.sort_unstable();
        let mut arena = Arena::new();
        for (first, id, last) in order {
            arena.free_before(first);
            let bytes = size(self.buffers[id].bytes).next_multiple_of(ALIGNMENT);
            let offset = arena.take(bytes, last).ok_or_else(|| {
                memory_error!("the values of '{}' exceed the address space", self.graph.program.name)
            })?;
            self.buffers[id].place = place(offset);
        }
        Ok(arena.size)
    }
}

/// The arena while buffers are placed in it, in the order in which they begin.
struct Arena {
    /// Begin and end of what is free; neighbours are one.
    gaps: BTreeMap<usize, usize>,
    /// What is taken: the last step that needs it, begin, end.
    taken: BinaryHeap<Reverse<(usize, usize, usize)>>,
    size: usize,
}

impl Arena {
    fn new() -> Arena {
        let whole = (0, isize::MAX as usize / ALIGNMENT * ALIGNMENT);
        Arena { gaps: BTreeMap::from([whole]), taken: BinaryHeap::new(), size: 0 }
    }

    /// Frees what no step from `first` on needs.
    fn free_before(&mut self, first: usize) {
        while let Some(&Reverse((last, mut begin, mut end))) = self.taken.peek()
            && last < first
        {
            self.taken.pop();
            if let Some(after) = self.gaps.remove(&end) {
                end = after;
            }
            if let Some((&before, before_end)) = self.gaps.range_mut(..begin).next_back()
                && *before_end == begin
            {
                begin = before;
            }
            self.gaps.insert(begin, end);
        }
    }

    /// The lowest place for so many bytes until step `last`, if there is one.
    fn take(&mut self, bytes: usize, last: usize) -> Option<usize> {
        if bytes == 0 {
            return Some(0);
        }
        let (begin, end) = self.gaps.iter().map(|(&b, &e)| (b, e)).find(|(b, e)| e - b >= bytes)?;
        self.gaps.remove(&begin);
        if begin + bytes < end {
            self.gaps.insert(begin + bytes, end);
        }
        self.taken.push(Reverse((last, begin, begin + bytes)));
        self.size = self.size.max(begin + bytes);
        Some(begin)
    }
}

/// The first and the last step that touches each buffer.
#[derive(Clone)]
pub struct Uses {
    /// `usize::MAX` for none.
    pub first: Vec<usize>,
    pub last: Vec<Option<usize>>,
}

impl Uses {
    pub fn new(steps: &[Step], buffers: usize) -> Uses {
        let mut uses = Uses { first: vec![usize::MAX; buffers], last: vec![None; buffers] };
        for (number, step) in steps.iter().enumerate() {
            let mut touch = |id: BufferId| {
                let first = &mut uses.first[id.0 as usize];
                *first = number.min(*first);
                uses.last[id.0 as usize] = Some(number);
            };
            match step {
                Step::Kernel { operands, .. } => operands.iter().for_each(|&id| touch(id)),
                Step::Library { inputs, outputs, .. } => {
                    inputs.iter().chain(outputs).for_each(|argument| touch(argument.buffer));
                }
            }
        }
        uses
    }

    /// The first and the last step that needs each buffer (see [`needed`]).
    pub fn through(mut self, runs: &[Run]) -> Uses {
        for (first, last) in self.first.iter_mut().zip(&mut self.last) {
            if let Some(last) = last {
                (*first, *last) = needed(runs, *first, *last);
            }
        }
        self
    }
}

/// Pairs of an input and a fresh buffer of its size such that the last
/// reads of the one are before the first write of the other, or pointwise in
/// the same step. In a run they have to be walked by rows.
fn donations(buffers: &[Buffer], steps: &[Step], runs: &[Run], outputs: &[Argument]) -> Vec<(usize, usize)> {
    let uses = Uses::new(steps, buffers.len());
    let bytes = |id: BufferId| buffers[id.0 as usize].bytes;
    // Not yet given, and not yet made of what was given.
    let mut free = vec![true; buffers.len()];
    for output in outputs {
        if matches!(buffers[output.buffer.0 as usize].place, Place::Input(_)) {
            free[output.buffer.0 as usize] = false;
        }
    }
    let mut result: Vec<(usize, usize)> = Vec::new();
    let mut pair = |free: &mut [bool], from: BufferId, to: BufferId| {
        if let (Place::Input(input), Place::Fresh(fresh)) =
            (buffers[from.0 as usize].place, buffers[to.0 as usize].place)
        {
            result.push((input, fresh));
            free[from.0 as usize] = false;
            free[to.0 as usize] = false;
        }
    };
    let is_input = |id: usize| matches!(buffers[id].place, Place::Input(_));
    let is_fresh = |id: usize| matches!(buffers[id].place, Place::Fresh(_));
    for (number, step) in steps.iter().enumerate() {
        let run = run_at(runs, number);
        let gives = |id: BufferId| {
            let walked = run.is_none_or(|run| runs[run].walks(id));
            let id = id.0 as usize;
            walked && is_input(id) && free[id] && uses.last[id] == Some(number)
        };
        let takes = |id: BufferId| {
            let id = id.0 as usize;
            is_fresh(id) && free[id] && uses.first[id] == number
        };
        for (from, to) in in_place_pairs(step, bytes, gives, takes) {
            pair(&mut free, from, to);
        }
    }
    let uses = uses.through(runs);
    // Dead before the output begins: of each size, the input that died first.
    let mut dead: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    let mut begin: Vec<(usize, u32)> = Vec::new();
    for (id, buffer) in buffers.iter().enumerate().filter(|(id, buffer)| free[*id] && buffer.bytes > 0) {
        match (buffer.place, uses.last[id]) {
            (Place::Input(_), Some(last)) => dead.entry(buffer.bytes).or_default().push((last, id as u32)),
            (Place::Fresh(_), Some(_)) => begin.push((uses.first[id], id as u32)),
            _ => {}
        }
    }
    // The one that died first is last.
    dead.values_mut().for_each(|inputs| inputs.sort_unstable_by(|a, b| b.cmp(a)));
    begin.sort_unstable();
    for (first, to) in begin {
        if let Some(inputs) = dead.get_mut(&bytes(BufferId(to)))
            && let Some((_, from)) = inputs.pop_if(|(last, _)| *last < first)
        {
            pair(&mut free, BufferId(from), BufferId(to));
        }
    }
    result
}

/// Whether a library call changes some elements of its first operand, in place if it can.
pub fn updates_operand(op: &Op) -> bool {
    matches!(op.view(), OpView::Leaf(rules) if rules.updates_operand())
}

/// Pairs of an operand and a result of a step that may be one buffer, of those operands that `gives` and
/// results that `takes` hold for; each is in one pair at most. Linear in the size of the step.
pub fn in_place_pairs(
    step: &Step,
    bytes: impl Fn(BufferId) -> usize,
    gives: impl Fn(BufferId) -> bool,
    takes: impl Fn(BufferId) -> bool,
) -> SmallVec<[(BufferId, BufferId); 2]> {
    let mut pairs = SmallVec::new();
    let (launch, operands) = match step {
        Step::Library { op, inputs, outputs } if updates_operand(op) => {
            let (from, to) = (inputs[0].buffer, outputs[0].buffer);
            let again = inputs[1..].iter().any(|argument| argument.buffer == from);
            if !again && from != to && gives(from) && takes(to) {
                pairs.push((from, to));
            }
            return pairs;
        }
        Step::Library { .. } => return pairs,
        Step::Kernel { launch, operands } => (launch, operands),
    };
    let kernel = &launch.kernel;
    if kernel.axes.contains(&AxisKind::Reduction) {
        return pairs;
    }
    let width = |operand: u32| kernel.operands[operand as usize].dtype.size();
    // How each buffer is read: by one view and as elements of one width, or in several ways.
    let mut reads: FxHashMap<BufferId, Option<(&View, usize)>> = FxHashMap::default();
    for ((load, view), jumps) in kernel.loads.iter().zip(&launch.loads).zip(&launch.jumps) {
        let how = jumps.is_empty().then(|| (view, width(load.operand)));
        let known = reads.entry(operands[load.operand as usize]).or_insert(how);
        if *known != how {
            *known = None;
        }
    }
    let mut stores: FxHashMap<BufferId, u32> = FxHashMap::default();
    for store in &kernel.stores {
        *stores.entry(operands[store.operand as usize]).or_default() += 1;
    }
    // Operands that may be given, by how they are read; the first operand is last.
    let mut given: FxHashMap<(&View, usize, usize), Vec<BufferId>> = FxHashMap::default();
    let mut seen: FxHashSet<BufferId> = FxHashSet::default();
    for &from in operands {
        if let Some(&Some((view, width))) = reads.get(&from)
            && !stores.contains_key(&from)
            && seen.insert(from)
            && gives(from)
        {
            given.entry((view, width, bytes(from))).or_default().push(from);
        }
    }
    given.values_mut().for_each(|operands| operands.reverse());
    for (store, view) in kernel.stores.iter().zip(&launch.stores) {
        let to = operands[store.operand as usize];
        if store.stage == Stage::Main
            && stores.get(&to) == Some(&1)
            && takes(to)
            && let Some(from) = given.get_mut(&(view, width(store.operand), bytes(to))).and_then(Vec::pop)
        {
            pairs.push((from, to));
        }
    }
    pairs
}
