//! A plan: what runs in which order, and where every value lives.
//!
//! Each base variable that is stored has a buffer. Buffers of values that do
//! not leave the program share one arena: two overlap only if the last use of
//! one is before the first write of the other. A step may write over an operand
//! that dies with it where it reads and writes each element at the same index
//! (kernels), or is made to work in place (updates).

use ferrax_ir::{Atom, DType, Op, Program, Result, Sizes, Tensor, Var, internal_error, memory_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::emit::{Failure, emit_group};
use crate::graph::{Class, Graph};
use crate::group::{Grouping, Item, group};
use crate::kernel::{AxisKind, Launch, Stage};

/// An index into [`Plan::buffers`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Where a buffer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    Input(usize),
    Constant(usize),
    /// A byte offset into the arena.
    Arena(usize),
    /// Fresh memory that leaves with the result; the n-th such.
    Fresh(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    pub bytes: usize,
    pub place: Place,
}

/// An operand of a library call: a dense row-major array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    pub buffer: BufferId,
    pub dtype: DType,
    pub sizes: Sizes,
}

/// One thing to do.
#[derive(Debug)]
pub enum Step {
    Kernel {
        launch: Launch,
        /// The buffer of each operand of the kernel.
        operands: Vec<BufferId>,
    },
    /// `outputs[0]` may be the buffer of `inputs[0]`: then the op works in place.
    Library { op: Op, inputs: Vec<Argument>, outputs: Vec<Argument> },
}

impl Step {
    /// Replaces each buffer by the one that took it over.
    fn rename(&mut self, renamed: &mut [BufferId]) {
        let mut find = |id: &mut BufferId| {
            let mut at = *id;
            while renamed[at.0 as usize] != at {
                let next = renamed[at.0 as usize];
                renamed[at.0 as usize] = renamed[next.0 as usize];
                at = next;
            }
            *id = at;
        };
        match self {
            Step::Kernel { operands, .. } => operands.iter_mut().for_each(find),
            Step::Library { inputs, outputs, .. } => {
                inputs.iter_mut().chain(outputs).for_each(|argument| find(&mut argument.buffer));
            }
        }
    }
}

/// A result: the array in a buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    pub buffer: BufferId,
    pub dtype: DType,
    pub sizes: Sizes,
}

#[derive(Debug)]
pub struct Plan {
    pub name: std::sync::Arc<str>,
    pub inputs: Vec<(DType, Sizes)>,
    pub constants: Vec<Tensor>,
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    pub outputs: Vec<Output>,
    /// Bytes of each fresh buffer, in order.
    pub fresh: Vec<usize>,
    pub arena: usize,
    /// Inputs whose memory, if donated, can serve as this fresh buffer.
    pub donations: Vec<(usize, usize)>,
}

/// Alignment of buffers in the arena.
pub const ALIGNMENT: usize = 64;

/// Rounds of storing what could not be fused before planning gives up.
const MAX_ROUNDS: usize = 64;

/// Plans a flat program (see [`crate::expand`]).
pub fn plan(program: &Program) -> Result<Plan> {
    let mut graph = Graph::new(program)?;
    let mut forced: Vec<Var> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        graph.choose_roots(&forced);
        let grouping = group(&graph)?;
        let stored = stored(&graph, &grouping);
        let mut kernels = Vec::new();
        let mut failures: Vec<Var> = Vec::new();
        for number in 0..grouping.groups.len() as u32 {
            if grouping.groups[number as usize].library.is_some() {
                kernels.push(None);
                continue;
            }
            match emit_group(&graph, &grouping, number, &stored) {
                Ok(kernel) => kernels.push(kernel),
                Err(Failure::Store(var)) => {
                    kernels.push(None);
                    // Several kernels may fail over one variable.
                    if !failures.contains(&var) {
                        failures.push(var);
                    }
                }
                Err(Failure::Split { .. }) => return Err(internal_error!("a split was not handled")),
                Err(Failure::Error(error)) => return Err(error),
            }
        }
        if failures.is_empty() {
            let steps = (0u32..).zip(kernels).filter_map(|(number, kernel)| {
                let group = &grouping.groups[number as usize];
                match (group.library, kernel) {
                    (Some(equation), _) => Some(Pending::Library(equation)),
                    (None, Some(kernel)) => Some(Pending::Kernel(Box::new(kernel.launch), kernel.operands)),
                    (None, None) => None,
                }
            });
            return Placer::new(&graph).place(steps.collect());
        }
        for var in failures {
            if graph.root[var.index()] {
                if std::mem::replace(&mut graph.solo[var.index()], true) {
                    return Err(internal_error!("variable {} of '{}' has no index map", var.0, program.name));
                }
            } else {
                graph.root[var.index()] = true;
            }
            forced.push(var);
        }
    }
    Err(internal_error!("planning '{}' does not settle", program.name))
}

/// Roots that are needed outside their kernel.
fn stored(graph: &Graph<'_>, grouping: &Grouping) -> Vec<bool> {
    let mut stored = vec![false; graph.program.types.len()];
    for var in graph.program.outputs.iter().filter_map(Atom::as_var) {
        if let Some(base) = graph.base[var.index()] {
            stored[base.index()] = true;
        }
    }
    for (index, equation) in graph.program.equations.iter().enumerate() {
        if graph.classes[index] == Class::Library {
            for base in
                equation.inputs.iter().filter_map(Atom::as_var).filter_map(|var| graph.base[var.index()])
            {
                stored[base.index()] = true;
            }
        }
    }
    let mut seen: FxHashMap<Var, u32> = FxHashMap::default();
    for (number, group) in (0u32..).zip(&grouping.groups) {
        for item in &group.items {
            let mut stack: Vec<Var> = match item {
                Item::Main(var) | Item::Epilogue(var) | Item::Reduce(var) => graph
                    .equation_of(*var)
                    .into_iter()
                    .flat_map(|(e, _)| e.inputs.iter().filter_map(Atom::as_var))
                    .collect(),
                Item::Piece(piece) => piece.source.as_var().into_iter().collect(),
            };
            while let Some(var) = stack.pop() {
                if let Some(base) = graph.base[var.index()] {
                    stored[base.index()] |= grouping.group_of[base.index()] != Some(number);
                } else if seen.insert(var, number) != Some(number)
                    && let Some((equation, _)) = graph.equation_of(var)
                {
                    stack.extend(equation.inputs.iter().filter_map(Atom::as_var));
                }
            }
        }
    }
    stored
}

enum Pending {
    Kernel(Box<Launch>, Vec<Var>),
    Library(usize),
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
        }
    }

    fn bytes(&self, var: Var) -> usize {
        self.graph.counts[var.index()] * self.graph.dtypes[var.index()].size()
    }

    fn add(&mut self, bytes: usize, place: Place, life: Option<Life>) -> BufferId {
        let id = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer { bytes, place });
        self.lives.push(life);
        id
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
            let id = self.add(self.bytes(var), Place::Input(index), None);
            self.of_var.insert(var, id);
        }
        for (var, tensor) in &program.constants {
            let id = self.constant(tensor.clone());
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
                let id = self.add(bytes, Place::Fresh(self.fresh.len() - 1), None);
                self.of_var.insert(base, id);
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
                let id = self.add(self.bytes(var), Place::Arena(0), Some(lives[&var]));
                self.of_var.insert(var, id);
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
                let id = self.add(0, Place::Arena(0), None);
                self.of_var.insert(var, id);
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
        let outputs = program
            .outputs
            .iter()
            .map(|atom| {
                let Argument { buffer, dtype, sizes } = self.argument(atom)?;
                Ok(Output { buffer, dtype, sizes })
            })
            .collect::<Result<Vec<_>>>()?;
        self.work_in_place(&mut steps);
        let arena = self.assign_offsets()?;
        let donations = self.donations(&steps, &outputs);
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
            outputs,
            fresh: self.fresh,
            arena,
            donations,
        })
    }

    /// Lets steps write over operands that die with them.
    fn work_in_place(&mut self, steps: &mut [Step]) {
        let mut renamed: Vec<BufferId> = (0..self.buffers.len() as u32).map(BufferId).collect();
        // The step that first touches each buffer; those that leave have no life in the arena.
        let mut first = vec![usize::MAX; self.buffers.len()];
        for (number, step) in steps.iter().enumerate() {
            let mut touch = |id: BufferId| {
                let first = &mut first[id.0 as usize];
                *first = number.min(*first);
            };
            match step {
                Step::Kernel { operands, .. } => operands.iter().for_each(|&id| touch(id)),
                Step::Library { inputs, outputs, .. } => {
                    inputs.iter().chain(outputs).for_each(|argument| touch(argument.buffer));
                }
            }
        }
        for (number, step) in steps.iter_mut().enumerate() {
            step.rename(&mut renamed);
            let mut merges: SmallVec<[(BufferId, BufferId); 2]> = SmallVec::new();
            for (from, to) in in_place_pairs(step, |id| self.buffers[id.0 as usize].bytes) {
                let dies = self.lives[from.0 as usize].is_some_and(|life| life.last == number);
                let begins = first[to.0 as usize] == number;
                let writable =
                    !matches!(self.buffers[to.0 as usize].place, Place::Input(_) | Place::Constant(_));
                let taken = merges.iter().any(|&(f, t)| f == from || t == to);
                if dies && begins && writable && from != to && !taken {
                    merges.push((from, to));
                }
            }
            for (from, to) in merges {
                // The later buffer takes over the earlier one's life.
                if let (Some(earlier), Some(later)) =
                    (self.lives[from.0 as usize], self.lives[to.0 as usize].as_mut())
                {
                    later.first = earlier.first;
                }
                first[to.0 as usize] = first[from.0 as usize];
                self.lives[from.0 as usize] = None;
                renamed[from.0 as usize] = to;
            }
        }
        for step in steps {
            step.rename(&mut renamed);
        }
    }

    /// Offsets of arena buffers by first fit; gives the arena's size.
    fn assign_offsets(&mut self) -> Result<usize> {
        let mut order: Vec<(usize, usize)> = self
            .lives
            .iter()
            .enumerate()
            .filter_map(|(id, life)| life.map(|life| (life.first, id)))
            .collect();
        order.sort_unstable();
        let name = &self.graph.program.name;
        // Allocations that are alive, by offset: (offset, end, last step).
        let mut alive: Vec<(usize, usize, usize)> = Vec::new();
        let mut size = 0;
        for (first, id) in order {
            let Some(life) = self.lives[id] else { continue };
            alive.retain(|&(_, _, last)| last >= first);
            let bytes = self.buffers[id].bytes.next_multiple_of(ALIGNMENT);
            let mut offset = 0;
            let mut position = 0;
            let end = |offset: usize| {
                offset
                    .checked_add(bytes)
                    .filter(|&end| end <= isize::MAX as usize)
                    .ok_or_else(|| memory_error!("the values of '{name}' exceed the address space"))
            };
            while position < alive.len() && alive[position].0 < end(offset)? {
                offset = offset.max(alive[position].1);
                position += 1;
            }
            let end = end(offset)?;
            // Keep the list sorted by offset.
            let at = alive.partition_point(|&(start, _, _)| start < offset);
            alive.insert(at, (offset, end, life.last));
            self.buffers[id].place = Place::Arena(offset);
            size = size.max(end);
        }
        Ok(size)
    }

    /// Pairs of an input and a fresh buffer of its size such that the last
    /// reads of the one are pointwise in the first step that writes the other.
    fn donations(&self, steps: &[Step], outputs: &[Output]) -> Vec<(usize, usize)> {
        let mut result: Vec<(usize, usize)> = Vec::new();
        let mut last_use: FxHashMap<BufferId, usize> = FxHashMap::default();
        let mut first_use: FxHashMap<BufferId, usize> = FxHashMap::default();
        for (number, step) in steps.iter().enumerate() {
            let mut touch = |id: BufferId| {
                last_use.insert(id, number);
                first_use.entry(id).or_insert(number);
            };
            match step {
                Step::Kernel { operands, .. } => operands.iter().for_each(|&id| touch(id)),
                Step::Library { inputs, outputs, .. } => {
                    inputs.iter().chain(outputs).for_each(|a| touch(a.buffer));
                }
            }
        }
        let mut pair = |from: BufferId, to: BufferId| {
            let (Place::Input(input), Place::Fresh(fresh)) =
                (self.buffers[from.0 as usize].place, self.buffers[to.0 as usize].place)
            else {
                return;
            };
            let leaves = outputs.iter().any(|output| output.buffer == from);
            if !leaves && !result.iter().any(|&(i, f)| i == input || f == fresh) {
                result.push((input, fresh));
            }
        };
        let bytes = |id: BufferId| self.buffers[id.0 as usize].bytes;
        for (number, step) in steps.iter().enumerate() {
            for (from, to) in in_place_pairs(step, bytes) {
                if last_use.get(&from) == Some(&number) && first_use.get(&to) == Some(&number) {
                    pair(from, to);
                }
            }
        }
        // Dead before the output begins.
        let of = |uses: &FxHashMap<BufferId, usize>, wanted: fn(Place) -> bool| {
            let mut found: Vec<(usize, BufferId)> = uses
                .iter()
                .filter(|(id, _)| wanted(self.buffers[id.0 as usize].place) && bytes(**id) > 0)
                .map(|(&id, &step)| (step, id))
                .collect();
            found.sort_unstable();
            found
        };
        let inputs = of(&last_use, |place| matches!(place, Place::Input(_)));
        for (begin, to) in of(&first_use, |place| matches!(place, Place::Fresh(_))) {
            for &(end, from) in inputs.iter().take_while(|(end, _)| *end < begin) {
                if end < begin && bytes(from) == bytes(to) {
                    pair(from, to);
                }
            }
        }
        result
    }
}

/// Operand and result buffers of a step that may be one.
fn in_place_pairs(step: &Step, bytes: impl Fn(BufferId) -> usize) -> SmallVec<[(BufferId, BufferId); 2]> {
    let mut pairs = SmallVec::new();
    match step {
        Step::Library { op: Op::DynamicUpdateSlice(_) | Op::Scatter(_), inputs, outputs } => {
            let from = inputs[0].buffer;
            if inputs[1..].iter().all(|argument| argument.buffer != from) {
                pairs.push((from, outputs[0].buffer));
            }
        }
        Step::Library { .. } => {}
        Step::Kernel { launch, operands } => {
            let kernel = &launch.kernel;
            if kernel.axes.contains(&AxisKind::Reduction) {
                return pairs;
            }
            for (store, target) in kernel.stores.iter().zip(&launch.stores) {
                let to = operands[store.operand as usize];
                let size = kernel.operands[store.operand as usize].dtype.size();
                if store.stage != Stage::Main
                    || kernel.stores.iter().filter(|s| operands[s.operand as usize] == to).count() > 1
                {
                    continue;
                }
                for (position, &from) in operands.iter().enumerate() {
                    let reads = || {
                        kernel
                            .loads
                            .iter()
                            .zip(&launch.loads)
                            .filter(|(load, _)| operands[load.operand as usize] == from)
                    };
                    let pointwise = !kernel.operands[position].written
                        && bytes(from) == bytes(to)
                        && kernel.operands[position].dtype.size() == size
                        && reads().next().is_some()
                        && reads().all(|(load, view)| {
                            view == target && kernel.operands[load.operand as usize].dtype.size() == size
                        });
                    if pointwise && from != to {
                        pairs.push((from, to));
                    }
                }
            }
        }
    }
    pairs
}
