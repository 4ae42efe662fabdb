//! A plan: what runs in which order, and where every value lives.
//!
//! Each base variable that is stored has a buffer. Buffers of values that do
//! not leave the program share one arena: two overlap only if the last use of
//! one is before the first write of the other. A step may write over an operand
//! that dies with it where it reads and writes each element at the same index
//! (kernels), or is made to work in place (updates).

use std::ops::Range;
use std::sync::Arc;

use ferrax_ir::tensor::element_count;
use ferrax_ir::{DType, Op, Sizes, Tensor, Var};
use smallvec::SmallVec;

use crate::index::PerLoop;
use crate::kernel::Launch;
use crate::label::Label;
use crate::tuning::Target;

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
    Library { op: Op, inputs: Vec<Argument>, outputs: Vec<Argument>, label: Label },
}

impl Step {
    /// What profiles call it.
    pub fn label(&self) -> &Label {
        match self {
            Step::Kernel { launch, .. } => &launch.label,
            Step::Library { label, .. } => label,
        }
    }

    /// Shows each buffer that it reads or writes, as often as it does.
    pub fn each_buffer(&self, mut show: impl FnMut(BufferId)) {
        match self {
            Step::Kernel { operands, .. } => operands.iter().for_each(|&id| show(id)),
            Step::Library { inputs, outputs, .. } => {
                inputs.iter().chain(outputs).for_each(|argument| show(argument.buffer));
            }
        }
    }

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

/// The first loops of a run, and what moves with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    pub steps: Range<usize>,
    /// Extents of the loops whose indices number the rows.
    pub extents: PerLoop<usize>,
    /// The buffers that all steps walk by rows, in order.
    pub by_rows: Vec<BufferId>,
    /// The bytes of a row of all these.
    pub row_bytes: usize,
    /// The bytes, for each row of a block, of the memory that the run has of its own.
    pub own_bytes: usize,
    /// What each step does, in order.
    pub parts: Vec<RowStep>,
}

/// What a step of a run does for one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowStep {
    pub share: Share,
    /// Of each operand (of a library call first the inputs, then the outputs): whether all that the step reads or
    /// writes of it for row `r` is the `r`-th part of the buffer.
    pub by_rows: SmallVec<[bool; 4]>,
}

/// The part of a step's work that belongs to one row of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Of a kernel, what lies at the row's indices of its first loops.
    Loops,
    /// Of a library call, so many neighbouring rows of its own (`ferrax_ir::lowering::ByRows`).
    Rows(usize),
}

impl Run {
    /// Whether some steps are library calls.
    pub fn has_calls(&self) -> bool {
        self.call_rows().next().is_some()
    }

    /// Of each library call its own rows in a row of the run.
    fn call_rows(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().filter_map(|part| match part.share {
            Share::Rows(rows) => Some(rows),
            Share::Loops => None,
        })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.extents.iter().product()
    }

    /// The most rows of a block, of so many along the last loop.
    pub fn block(&self, target: &Target, extent: usize) -> usize {
        let fitting = target.block_bytes / self.row_bytes.max(1);
        let least = self.call_rows().min().map_or(1, |rows| target.product_rows.div_ceil(rows.max(1)));
        fitting.max(least).min(extent)
    }

    /// Whether all steps of the run walk this buffer by rows.
    pub fn walks(&self, id: BufferId) -> bool {
        self.by_rows.binary_search(&id).is_ok()
    }
}

/// The number of the run that a step is in.
pub fn run_at(runs: &[Run], step: usize) -> Option<usize> {
    let number = runs.partition_point(|run| run.steps.end <= step);
    runs.get(number).filter(|run| run.steps.contains(&step)).map(|_| number)
}

/// The first and the last step that need a value, given those that use it: blocks of a run take turns, so that
/// all of its steps need what one of them does.
pub fn needed(runs: &[Run], first: usize, last: usize) -> (usize, usize) {
    (
        run_at(runs, first).map_or(first, |run| runs[run].steps.start),
        run_at(runs, last).map_or(last, |run| runs[run].steps.end - 1),
    )
}
