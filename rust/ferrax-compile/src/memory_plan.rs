//! What a plan does with memory, as plain data: each buffer's place, life and values in turn, each step's
//! operations, and what it copies, updates in place and reuses.
//!
//! In: a program and its plan. Out: [`MemoryPlan`], which refers to nothing of either. Cost: linear in both,
//! but for the text of kernels, and n log n in the number of buffers.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrax_ir::scalar::ScalarOp;
use ferrax_ir::{Equation, Op, Program, Result, ShowOp, Source, Type, Var};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::compile::plan;
use crate::lives::Lives;
use crate::plan::{BufferId, Place, Plan, Run, Step, run_at};
use crate::tuning::Target;
use crate::updates::updates_operand;

/// An operation of the program, and where it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    pub name: String,
    /// The user's line, if it is known.
    pub line: Option<String>,
    /// Of derivatives: the operation that is differentiated.
    pub derivative_of: Option<Arc<str>>,
}

/// An array that a buffer holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// In the notation of types: `f32[8,64]`.
    pub ty: String,
    /// What computes it; for others what it is, such as an argument.
    pub of: Operation,
    /// The step from which on it is there; 0 for arguments and constants.
    pub first: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferLife {
    /// Its number in the plan, as its text shows it.
    pub id: u32,
    pub bytes: usize,
    pub place: Place,
    /// The first and the last step that need it.
    pub first: usize,
    pub last: usize,
    /// In turn: each but the first is written over the one before.
    pub values: Vec<Value>,
    /// The buffers that its part of the arena belonged to until it began.
    pub reuses: Vec<u32>,
    /// Arguments: the fresh buffer that it becomes if it is donated. Fresh buffers: of which argument.
    pub donation: Option<u32>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct StepMemory {
    pub is_kernel: bool,
    /// What it computes, in the order of the program.
    pub operations: Vec<Operation>,
    /// The buffers that it reads and writes.
    pub reads: Vec<u32>,
    pub writes: Vec<u32>,
    /// Those that it updates in place.
    pub in_place: Vec<u32>,
    /// Bytes that it moves unchanged from one buffer to another.
    pub copied: usize,
    /// The run of steps by blocks of rows that it is in.
    pub run: Option<usize>,
    /// Bytes of the arena that hold values while it runs.
    pub live: usize,
    /// Its kernel or call, as the plan's text shows it.
    pub text: String,
    /// What its branches or the body of its loop do.
    pub inner: Vec<Arc<MemoryPlan>>,
}

/// An array that the program gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Return {
    pub buffer: u32,
    /// Bytes that a jitted function copies, where the array is an argument, a constant or another result.
    pub copied: usize,
}

/// Steps that go through rows together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowsRun {
    pub first: usize,
    pub last: usize,
    pub rows: usize,
    /// Of the memory that each row of a block takes besides the buffers.
    pub own_bytes: usize,
}

/// See the head of this file.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryPlan {
    pub name: Arc<str>,
    /// Bytes of the arena, and of its values where they are most; the step where that is.
    pub arena: usize,
    pub peak: usize,
    pub peak_step: usize,
    pub steps: Vec<StepMemory>,
    /// Those that a step or the caller touches.
    pub buffers: Vec<BufferLife>,
    pub runs: Vec<RowsRun>,
    pub returns: Vec<Return>,
}

impl Plan {
    /// What it does with memory; `program` is the one that it was made of, for this machine.
    pub fn memory_plan(&self, program: &Program, target: &Target) -> Result<MemoryPlan> {
        Describer { target, inner: FxHashMap::default() }.describe(self, program)
    }
}

struct Describer<'a> {
    target: &'a Target,
    /// Sub-programs by identity, kept alive so that addresses stay theirs.
    inner: FxHashMap<usize, (Arc<Program>, Arc<MemoryPlan>)>,
}

impl Describer<'_> {
    fn describe(&mut self, plan: &Plan, program: &Program) -> Result<MemoryPlan> {
        let facts = Facts::new(plan, program);
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (number, step) in plan.steps.iter().enumerate() {
            let mut shown = facts.step(number, step);
            if let Step::Library { op, .. } = step {
                for callee in op.programs() {
                    shown.inner.push(self.callee(callee)?);
                }
            }
            steps.push(shown);
        }
        let mut buffers = facts.buffers();
        find_reuse(&mut buffers);
        let (mut peak, mut peak_step) = (0, 0);
        for (number, live) in live_bytes(&buffers, plan.steps.len()).into_iter().enumerate() {
            steps[number].live = live;
            if live > peak {
                (peak, peak_step) = (live, number);
            }
        }
        Ok(MemoryPlan {
            name: plan.name.clone(),
            arena: plan.arena,
            peak,
            peak_step,
            steps,
            buffers,
            runs: facts.runs(),
            returns: facts.returns(),
        })
    }

    fn callee(&mut self, callee: &Arc<Program>) -> Result<Arc<MemoryPlan>> {
        if let Some((_, known)) = self.inner.get(&Arc::as_ptr(callee).addr()) {
            return Ok(known.clone());
        }
        let described = Arc::new(self.describe(&plan(callee, self.target)?, callee)?);
        self.inner.insert(Arc::as_ptr(callee).addr(), (callee.clone(), described.clone()));
        Ok(described)
    }
}

/// What is known of a plan and its program.
struct Facts<'a> {
    plan: &'a Plan,
    program: &'a Program,
    lives: Lives<'a>,
    /// The equation that computes each variable, and where among its results.
    made: Vec<Option<(usize, usize)>>,
    /// Variables that have a buffer, if only until another took it over.
    stored: FxHashSet<Var>,
    /// By buffer: those that it took over, in turn, with the step that did it.
    earlier: FxHashMap<BufferId, Vec<(BufferId, usize)>>,
}

impl<'a> Facts<'a> {
    fn new(plan: &'a Plan, program: &'a Program) -> Facts<'a> {
        let mut made = vec![None; program.types.len()];
        for (index, equation) in program.equations.iter().enumerate() {
            for (position, var) in equation.outputs.iter().enumerate() {
                made[var.index()] = Some((index, position));
            }
        }
        let mut earlier: FxHashMap<BufferId, Vec<(BufferId, usize)>> = FxHashMap::default();
        for &(step, from, to) in &plan.taken_over {
            let mut chain = earlier.remove(&from).unwrap_or_default();
            chain.push((from, step));
            earlier.insert(to, chain);
        }
        Facts {
            plan,
            program,
            lives: Lives::of(&plan.steps, plan.buffers.len()).through(&plan.runs),
            made,
            stored: plan.buffers.iter().filter_map(|buffer| buffer.var).collect(),
            earlier,
        }
    }

    fn equation(&self, var: Var) -> Option<&'a Equation> {
        self.made[var.index()].map(|(index, _)| &self.program.equations[index])
    }

    fn operation(&self, equation: &Equation) -> Operation {
        operation(&equation.op, equation.source)
    }

    /// The step that first touches a buffer, before others were given its place.
    fn values(&self, id: BufferId) -> Vec<Value> {
        let mut ids = self.earlier.get(&id).cloned().unwrap_or_default();
        ids.push((id, 0));
        let mut values = Vec::new();
        let mut first = self.lives.first(id).unwrap_or(0);
        for (id, step) in ids {
            if let Some(var) = self.plan.buffers[id.0 as usize].var {
                values.push(self.value(var, first));
            }
            first = step;
        }
        values
    }

    fn value(&self, var: Var, first: usize) -> Value {
        let plain = |name: String| Operation { name, line: None, derivative_of: None };
        let input = || self.program.inputs.iter().position(|&input| input == var);
        let (of, first) = match (self.equation(var), input()) {
            (Some(equation), _) => (self.operation(equation), first),
            (None, Some(number)) => (plain(format!("argument {number}")), 0),
            (None, None) => (plain("constant".into()), 0),
        };
        Value { ty: show_type(&self.program.types[var.index()]), of, first }
    }

    fn step(&self, number: usize, step: &Step) -> StepMemory {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let mut operations = Vec::new();
        let is_kernel = matches!(step, Step::Kernel { .. });
        let (copied, text) = match step {
            Step::Kernel { launch, operands } => {
                let kernel = &launch.kernel;
                reads.extend(kernel.loads.iter().map(|load| operands[load.operand as usize].0));
                writes.extend(kernel.stores.iter().map(|store| operands[store.operand as usize].0));
                let moves = |body: &ferrax_ir::scalar::Body| {
                    body.instructions()
                        .iter()
                        .all(|it| matches!(it.op, ScalarOp::Input { .. }) && it.args.is_empty())
                };
                let only_moves = kernel.accumulators.is_empty()
                    && !kernel.loads.is_empty()
                    && moves(&kernel.body)
                    && moves(&kernel.epilogue);
                (if only_moves { self.bytes(&writes) } else { 0 }, launch.to_string())
            }
            Step::Library { op, inputs, outputs, .. } => {
                reads.extend(inputs.iter().map(|argument| argument.buffer.0));
                writes.extend(outputs.iter().map(|argument| argument.buffer.0));
                let apart = updates_operand(op) && inputs[0].buffer != outputs[0].buffer;
                (if apart { outputs[0].bytes() } else { 0 }, format!("call {}", ShowOp(op)))
            }
        };
        for list in [&mut reads, &mut writes] {
            list.sort_unstable();
            list.dedup();
        }
        let in_place: Vec<u32> =
            writes.iter().copied().filter(|id| reads.binary_search(id).is_ok()).collect();
        for equation in self.computed(number, &writes) {
            operations.push(self.operation(&self.program.equations[equation]));
        }
        StepMemory {
            is_kernel,
            operations,
            reads,
            writes,
            in_place,
            copied,
            run: run_at(&self.plan.runs, number),
            live: 0,
            text,
            inner: Vec::new(),
        }
    }

    /// The equations that a step computes the values in these buffers by: from those that it writes
    /// back to what is stored.
    fn computed(&self, number: usize, writes: &[u32]) -> Vec<usize> {
        let mut pending: Vec<Var> = Vec::new();
        for &id in writes {
            let id = BufferId(id);
            let chain = self.earlier.get(&id).map_or(&[][..], Vec::as_slice);
            // The value that is there after this step.
            let taken = chain.iter().find(|&&(_, step)| step > number).map(|&(from, _)| from);
            pending.extend(self.plan.buffers[taken.unwrap_or(id).0 as usize].var);
        }
        let mut found: FxHashSet<usize> = FxHashSet::default();
        while let Some(var) = pending.pop() {
            if let Some((index, _)) = self.made[var.index()]
                && found.insert(index)
            {
                let inputs = self.program.equations[index].inputs.iter().filter_map(|atom| atom.as_var());
                pending.extend(inputs.filter(|var| !self.stored.contains(var)));
            }
        }
        let mut found: Vec<usize> = found.into_iter().collect();
        found.sort_unstable();
        found
    }

    fn bytes(&self, ids: &[u32]) -> usize {
        ids.iter().map(|&id| self.plan.buffers[id as usize].bytes).fold(0, usize::saturating_add)
    }

    fn buffers(&self) -> Vec<BufferLife> {
        let last_step = self.plan.steps.len().saturating_sub(1);
        let leaves: FxHashSet<BufferId> = self.plan.outputs.iter().map(|output| output.buffer).collect();
        let mut of_input: FxHashMap<usize, u32> = FxHashMap::default();
        let mut of_fresh: FxHashMap<usize, u32> = FxHashMap::default();
        for (id, buffer) in (0u32..).zip(&self.plan.buffers) {
            match buffer.place {
                Place::Input(number) => of_input.insert(number, id),
                Place::Fresh(number) => of_fresh.insert(number, id),
                _ => None,
            };
        }
        let taker: FxHashMap<usize, usize> = self.plan.donations.iter().copied().collect();
        let giver: FxHashMap<usize, usize> = taker.iter().map(|(&input, &fresh)| (fresh, input)).collect();
        let donation = |place: Place| match place {
            Place::Input(input) => of_fresh.get(taker.get(&input)?).copied(),
            Place::Fresh(fresh) => of_input.get(giver.get(&fresh)?).copied(),
            _ => None,
        };
        let mut result = Vec::new();
        for id in self.plan.used() {
            let buffer = &self.plan.buffers[id.0 as usize];
            let (first, last) = (self.lives.first(id).unwrap_or(0), self.lives.last(id));
            let given = matches!(buffer.place, Place::Input(_) | Place::Constant(_));
            let first = if given { 0 } else { first };
            let last = if leaves.contains(&id) { last_step } else { last.unwrap_or(first) };
            result.push(BufferLife {
                id: id.0,
                bytes: buffer.bytes,
                place: buffer.place,
                first,
                last,
                values: self.values(id),
                reuses: Vec::new(),
                donation: donation(buffer.place),
            });
        }
        result
    }

    fn runs(&self) -> Vec<RowsRun> {
        let run = |run: &Run| RowsRun {
            first: run.steps.start,
            last: run.steps.end - 1,
            rows: run.rows(),
            own_bytes: run.own_bytes,
        };
        self.plan.runs.iter().map(run).collect()
    }

    fn returns(&self) -> Vec<Return> {
        let mut seen: FxHashSet<BufferId> = FxHashSet::default();
        let mut returned = |output: &crate::plan::Argument| {
            let place = self.plan.buffers[output.buffer.0 as usize].place;
            let own = matches!(place, Place::Fresh(_)) && seen.insert(output.buffer);
            Return { buffer: output.buffer.0, copied: if own { 0 } else { output.bytes() } }
        };
        self.plan.outputs.iter().map(&mut returned).collect()
    }
}

fn operation(op: &Op, source: Source) -> Operation {
    Operation {
        name: op.name().to_owned(),
        line: source.line().map(|line| line.to_string()),
        derivative_of: source.primal(),
    }
}

fn show_type(ty: &Type) -> String {
    ty.to_string()
}

/// The range of the arena that a buffer has.
fn range(buffer: &BufferLife) -> Option<(usize, usize)> {
    match buffer.place {
        Place::Arena(offset) if buffer.bytes > 0 => Some((offset, offset + buffer.bytes)),
        _ => None,
    }
}

/// Says of each buffer in the arena whose bytes it was given.
fn find_reuse(buffers: &mut [BufferLife]) {
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&at| range(&buffers[at]).is_some()).collect();
    order.sort_by_key(|&at| (buffers[at].first, buffers[at].id));
    // Begin, end and owner of each part of the arena that was given so far.
    let mut owners: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
    for at in order {
        let Some((begin, end)) = range(&buffers[at]) else { continue };
        let first =
            owners.range(..begin).next_back().filter(|(_, (to, _))| *to > begin).map(|(&from, _)| from);
        let met: Vec<usize> =
            first.into_iter().chain(owners.range(begin..end).map(|(&from, _)| from)).collect();
        for from in met {
            let Some((to, owner)) = owners.remove(&from) else { continue };
            buffers[at].reuses.push(owner);
            if from < begin {
                owners.insert(from, (begin, owner));
            }
            if to > end {
                owners.insert(end, (to, owner));
            }
        }
        owners.insert(begin, (end, buffers[at].id));
        buffers[at].reuses.sort_unstable();
        buffers[at].reuses.dedup();
    }
}

/// Bytes of the arena that each step needs.
fn live_bytes(buffers: &[BufferLife], steps: usize) -> Vec<usize> {
    let mut begins = vec![0usize; steps + 1];
    let mut ends = vec![0usize; steps + 1];
    for buffer in buffers.iter().filter(|buffer| range(buffer).is_some() && steps > 0) {
        begins[buffer.first] += buffer.bytes;
        ends[buffer.last + 1] += buffer.bytes;
    }
    let mut live = 0;
    (0..steps)
        .map(|step| {
            live = live + begins[step] - ends[step];
            live
        })
        .collect()
}
