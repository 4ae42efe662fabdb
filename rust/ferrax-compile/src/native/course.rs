//! What the buffers of a plan hold while it is gone through.

use std::ops::Range;

use ferrax_ir::DType;
use ferrax_ir::scalar::ScalarType;

use super::Id;
use super::arrays::{Array, same_memory};
use crate::kernel::Launch;
use crate::plan::{BufferId, Plan};

/// Values of what the buffers of a plan hold.
pub(super) enum Held {
    Nothing,
    Array(Array),
    /// With the type of the elements; those that were not written are none.
    Written(ScalarType, Vec<Option<Id>>),
    Parts(Parts),
}

/// What a store of a launch in lanes writes: this range of a buffer's elements, to an array, or beside it first.
pub(super) struct Written {
    pub buffer: BufferId,
    pub dtype: DType,
    pub range: Range<usize>,
    pub array: Array,
    pub beside: Option<Array>,
}

impl Written {
    /// Where lanes go to.
    pub fn begins(&self) -> Array {
        self.beside.as_ref().unwrap_or(&self.array).clone()
    }
}

/// An array in memory of which parts are written.
pub(super) struct Parts {
    pub array: Array,
    pub written: Vec<bool>,
    pub left: usize,
}

impl Parts {
    pub fn note(&mut self, range: Range<usize>) {
        for written in &mut self.written[range] {
            self.left -= usize::from(!std::mem::replace(written, true));
        }
    }
}

/// A plan while it is gone through.
pub(super) struct Course<'a> {
    pub body: &'a Plan,
    pub held: Vec<Held>,
    /// The last step that needs each buffer.
    pub last: Vec<usize>,
    /// Where buffers should be at the end.
    pub wanted: &'a [(BufferId, Array)],
}

impl Course<'_> {
    pub fn array(&self, buffer: BufferId) -> Option<Array> {
        match &self.held[buffer.0 as usize] {
            Held::Nothing => None,
            Held::Array(array) => Some(array.clone()),
            Held::Parts(parts) => (parts.left == 0).then(|| parts.array.clone()),
            Held::Written(_, values) => {
                values.iter().copied().collect::<Option<Vec<Id>>>().map(Array::Values)
            }
        }
    }

    /// Where the result of a kernel should be, if nothing that is needed later is there, and the kernel itself reads of it
    /// no more than what it writes at once.
    pub fn place(&self, step: usize, launch: &Launch, operands: &[BufferId]) -> Option<Array> {
        let [store] = &*launch.kernel.stores else { return None };
        let buffer = operands[store.operand as usize];
        let (_, memory) = self.wanted.iter().find(|(wanted, _)| *wanted == buffer)?;
        let there = |held: &Held| match held {
            Held::Array(array) | Held::Parts(Parts { array, .. }) => same_memory(array, memory),
            _ => false,
        };
        let needed = self.held.iter().zip(&self.last).any(|(held, &last)| last > step && there(held));
        let read = launch.kernel.loads.iter().zip(&launch.loads).any(|(load, view)| {
            there(&self.held[operands[load.operand as usize].0 as usize]) && *view != launch.stores[0]
        });
        (!needed && !read).then(|| memory.clone())
    }
}
