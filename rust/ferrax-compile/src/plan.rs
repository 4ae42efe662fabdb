//! A plan: what runs in which order, and where every value lives.
//!
//! Each base variable that is stored has a buffer. Buffers of values that do
//! not leave the program share one arena: two overlap only if the last use of
//! one is before the first write of the other. A step may write over an operand
//! that dies with it where it reads and writes each element at the same index
//! (kernels), or is made to work in place (updates).

use std::sync::Arc;

use ferrax_ir::tensor::element_count;
use ferrax_ir::{
    Atom, DType, Equation, Op, Program, Result, Sizes, Tensor, Var, View, internal_error, verify,
};
use rustc_hash::FxHashMap;

use crate::backend::Target;
use crate::emit::{Emission, emit_group};
use crate::graph::{Class, Graph};
use crate::group::{Grouping, Item, group};
use crate::kernel::Launch;
use crate::place::{Pending, place};
use crate::rows::Run;
use crate::verify_plan::verify_plan;

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
    /// Within a run (see [`crate::rows`]), in the memory of a block of rows: an offset in bytes for each row of
    /// the block.
    Rows(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    pub bytes: usize,
    pub place: Place,
    /// The value that it holds, for messages; of those that it holds in turn, the last.
    pub var: Option<Var>,
}

/// A dense row-major array in a buffer: an operand of a library call, or a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    pub buffer: BufferId,
    pub dtype: DType,
    pub sizes: Sizes,
}

impl Argument {
    /// The bytes of its elements.
    pub fn bytes(&self) -> usize {
        element_count(&self.sizes) * self.dtype.size()
    }
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
    pub(crate) fn rename(&mut self, renamed: &mut [BufferId]) {
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

#[derive(Debug, Default)]
pub struct Plan {
    pub name: Arc<str>,
    pub inputs: Vec<(DType, Sizes)>,
    pub constants: Vec<Tensor>,
    pub buffers: Vec<Buffer>,
    pub steps: Vec<Step>,
    /// Steps that go through rows together, in order and apart.
    pub runs: Vec<Run>,
    pub outputs: Vec<Argument>,
    /// Bytes of each fresh buffer, in order.
    pub fresh: Vec<usize>,
    pub arena: usize,
    /// Inputs whose memory, if donated, can serve as this fresh buffer.
    pub donations: Vec<(usize, usize)>,
    /// Which step wrote over a buffer in place, and the buffer that has been its memory since: nothing refers
    /// to the former any more.
    pub taken_over: Vec<(usize, BufferId, BufferId)>,
}

/// Alignment of buffers in the arena.
pub const ALIGNMENT: usize = 64;

/// Plans a flat program (see [`crate::expand`]) for a machine.
///
/// Variables that could not be fused are stored, and planning starts over: it ends, for each round makes
/// at least one more variable a root or gives it a kernel to itself, and no variable goes back. A round
/// finds all of them that virtual code does not hide from each other, so the rounds are no more than
/// equations follow each other in virtual code, which [`Graph::choose_roots`] bounds.
pub fn plan(program: &Program, target: &Target) -> Result<Plan> {
    let mut graph = Graph::new(program, target)?;
    loop {
        graph.choose_roots();
        let grouping = group(&graph)?;
        let stored = stored(&graph, &grouping);
        let mut pending = Vec::new();
        let mut unfused: Vec<Var> = Vec::new();
        for (number, group) in (0u32..).zip(&grouping.groups) {
            if let Some(index) = group.library {
                if !is_idle(&graph, &program.equations[index]) {
                    pending.push(Pending::Library(index));
                }
                continue;
            }
            match emit_group(&graph, &grouping, number, &stored)? {
                Emission::Kernel(None) => {}
                Emission::Kernel(Some(kernel)) => {
                    pending.push(Pending::Kernel(Box::new(kernel.launch), kernel.operands));
                }
                Emission::Store(vars) => unfused.extend(vars),
            }
        }
        if unfused.is_empty() {
            let plan = place(&graph, pending)?;
            if verify::is_enabled() {
                verify_plan(&plan, program, target)?;
            }
            return Ok(plan);
        }
        unfused.sort_unstable();
        unfused.dedup();
        for var in unfused {
            let root = std::mem::replace(&mut graph.root[var.index()], true);
            if root && std::mem::replace(&mut graph.solo[var.index()], true) {
                return Err(internal_error!("variable {} of '{}' has no index map", var.0, program.name));
            }
        }
    }
}

/// Whether a library step has nothing to do: nothing is in its results, and nothing happens but them.
fn is_idle(graph: &Graph<'_>, equation: &Equation) -> bool {
    let leaf = matches!(equation.op.view(), View::Leaf(_)) && !matches!(equation.op, Op::Extension(_));
    leaf && equation.op.effects().is_empty()
        && !equation.outputs.is_empty()
        && equation.outputs.iter().all(|var| graph.counts[var.index()] == 0)
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
