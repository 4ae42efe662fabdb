//! Where values live: buffers, and their places in the arena and in the memory of runs.
//!
//! In: a grouped program and its kernels. Out: the plan. First steps come into their last order; then values take over
//! the memory of others; then there are runs; and last of all lives and places are computed, once.
//! Cost: n log n in the number of steps and operands, and for the arena times the number of its gaps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ferrax_ir::{Atom, Result, Tensor, Var, internal_error, memory_error};
use rustc_hash::FxHashMap;

use crate::graph::Graph;
use crate::in_place::{donations, taken_over};
use crate::kernel::Launch;
use crate::label::Label;
use crate::lives::Lives;
use crate::plan::{ALIGNMENT, Argument, Buffer, BufferId, Place, Plan, Run, Step, needed, run_at};
use crate::rows::{find_runs, make_way};

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

struct Placer<'a> {
    graph: &'a Graph<'a>,
    buffers: Vec<Buffer>,
    of_var: FxHashMap<Var, BufferId>,
    constants: Vec<Tensor>,
    fresh: Vec<usize>,
}

impl<'a> Placer<'a> {
    fn new(graph: &'a Graph<'a>) -> Self {
        Placer {
            graph,
            buffers: Vec::new(),
            of_var: FxHashMap::default(),
            constants: Vec::new(),
            fresh: Vec::new(),
        }
    }

    fn bytes(&self, var: Var) -> usize {
        self.graph.counts[var.index()] * self.graph.dtypes[var.index()].size()
    }

    fn add(&mut self, bytes: usize, place: Place) -> BufferId {
        let id = BufferId(self.buffers.len() as u32);
        self.buffers.push(Buffer { bytes, place, var: None });
        id
    }

    /// The buffer of a variable. In the arena its place is computed when all is in order.
    fn add_var(&mut self, var: Var, bytes: usize, place: Place) {
        let id = self.add(bytes, place);
        self.buffers[id.0 as usize].var = Some(var);
        self.of_var.insert(var, id);
    }

    fn constant(&mut self, tensor: Tensor) -> BufferId {
        let bytes = tensor.bytes().len();
        self.constants.push(tensor);
        self.add(bytes, Place::Constant(self.constants.len() - 1))
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
            self.add_var(var, self.bytes(var), Place::Input(index));
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
                self.add_var(base, bytes, Place::Fresh(self.fresh.len() - 1));
            }
        }
        // All others, in the order in which steps first touch them.
        for step in &pending {
            let mut touched: Vec<Var> = match step {
                Pending::Kernel(_, operands) => operands.clone(),
                Pending::Library(index) => {
                    let equation = &program.equations[*index];
                    let inputs = equation.inputs.iter().filter_map(Atom::as_var);
                    let bases = inputs.filter_map(|var| self.graph.base[var.index()]);
                    bases.chain(equation.outputs.iter().copied()).collect()
                }
            };
            touched.sort_unstable();
            for var in touched {
                if !self.of_var.contains_key(&var) {
                    self.add_var(var, self.bytes(var), Place::Arena(0));
                }
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
                self.add_var(var, 0, Place::Arena(0));
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
                    Step::Library {
                        op: equation.op.clone(),
                        inputs,
                        outputs,
                        label: Label::of_call(equation),
                    }
                }
            });
        }
        let outputs = program.outputs.iter().map(|atom| self.argument(atom)).collect::<Result<Vec<_>>>()?;
        make_way(&mut steps, &self.buffers, &self.graph.target);
        let taken_over = taken_over(&steps, &self.buffers, &self.graph.target);
        rename(&mut steps, &taken_over, self.buffers.len());
        let mut runs = find_runs(&steps, &self.buffers, &self.graph.target);
        let arena = self.assign_places(&steps, &mut runs)?;
        let donations = donations(&self.buffers, &steps, &runs, &outputs, &self.graph.target);
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
            taken_over,
        })
    }

    /// Gives values their places, of which this is the last that is computed of a plan: those that one run alone
    /// needs in the memory of its blocks, others in the arena for as long as runs need them. Gives the arena's size.
    fn assign_places(&mut self, steps: &[Step], runs: &mut [Run]) -> Result<usize> {
        let lives = Lives::of(steps, self.buffers.len());
        let mut own: Vec<Vec<(usize, usize, usize)>> = vec![Vec::new(); runs.len()];
        let mut others: Vec<(usize, usize, usize)> = Vec::new();
        for (number, buffer) in self.buffers.iter().enumerate() {
            let id = BufferId(number as u32);
            let (Place::Arena(_), Some((first, last))) = (buffer.place, lives.of_buffer(id)) else {
                continue;
            };
            match run_at(runs, first).filter(|&run| run_at(runs, last) == Some(run)) {
                Some(run) if runs[run].walks(id) => own[run].push((first, number, last)),
                _ => {
                    let (first, last) = needed(runs, first, last);
                    others.push((first, number, last));
                }
            }
        }
        for (run, own) in runs.iter_mut().zip(own) {
            let rows = run.rows();
            run.own_bytes = self.fit(own, |bytes| bytes / rows, Place::Rows)?;
        }
        self.fit(others, |bytes| bytes, Place::Arena)
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

/// Puts the buffers that took others over in their stead.
fn rename(steps: &mut [Step], taken_over: &[(usize, BufferId, BufferId)], buffers: usize) {
    let mut renamed: Vec<BufferId> = (0..buffers as u32).map(BufferId).collect();
    for &(_, from, to) in taken_over {
        renamed[from.0 as usize] = to;
    }
    for step in steps {
        step.rename(&mut renamed);
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
