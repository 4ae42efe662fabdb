//! Executables that run many times over memory that is given once: how loops
//! run their bodies.
//!
//! A workspace holds a body's intermediate values, the scratch memory of its
//! kernels, the pointer of each of its buffers and the pointer tables of its
//! small kernels. [`Session::begin`] fills in what stays; a run touches only
//! what the caller changed and allocates nothing.

use ferrax_compile::Place;
use ferrax_ir::{Error, Result};

use crate::executable::{Action, Executable};
use crate::interrupt::{self, interrupted};
use crate::kernels::Call;

/// Bytes of work between two questions whether to stop.
const ASK_AFTER: usize = 1 << 20;
const ALIGNMENT: usize = 64;

/// Where things are in a workspace, as byte offsets.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    scratch: usize,
    pointers: usize,
    operands: usize,
    tables: usize,
    table_entries: usize,
    total: usize,
}

/// What runs of an executable over raw memory need to know.
#[derive(Debug)]
pub struct Raw {
    layout: Layout,
    /// The table of each step, as a range of entries; empty for steps that have none.
    tables: Vec<(usize, usize)>,
    /// The buffer of each input, and of each fresh output.
    pub inputs: Vec<u32>,
    pub fresh: Vec<u32>,
}

impl Raw {
    pub fn new(executable: &Executable) -> Raw {
        let (mut entries, mut scratch, mut operands) = (0, 0, 0);
        let mut tables = Vec::with_capacity(executable.steps.len());
        for step in &executable.steps {
            let first = entries;
            if let Action::Kernel { bound, .. } = &step.action
                && bound.is_serial()
            {
                let (table, bytes) = bound.table_and_scratch();
                entries += table;
                scratch = bytes.max(scratch);
            }
            tables.push((first, entries));
            operands = operands.max(step.action.buffers().count());
        }
        let mut inputs = Vec::new();
        let mut fresh = Vec::new();
        for (buffer, place) in (0u32..).zip(&executable.places) {
            let (list, index) = match *place {
                Place::Input(index) => (&mut inputs, index),
                Place::Fresh(index) => (&mut fresh, index),
                Place::Constant(_) | Place::Arena(_) => continue,
            };
            if list.len() <= index {
                list.resize(index + 1, 0);
            }
            list[index] = buffer;
        }
        let mut total = executable.arena.next_multiple_of(ALIGNMENT);
        let mut region = |bytes: usize| {
            let start = total;
            total += bytes.next_multiple_of(ALIGNMENT);
            start
        };
        let layout = Layout {
            scratch: region(scratch),
            pointers: region(executable.places.len() * size_of::<*mut u8>()),
            operands: region(operands * size_of::<*mut u8>()),
            tables: region(entries * size_of::<*mut u8>()),
            table_entries: entries,
            total: 0,
        };
        Raw { layout: Layout { total, ..layout }, tables, inputs, fresh }
    }

    /// Bytes of a workspace.
    pub fn workspace(&self) -> usize {
        self.layout.total
    }
}

/// A workspace in use.
pub struct Session<'a> {
    executable: &'a Executable,
    raw: &'a Raw,
    /// The pointer of each buffer. The caller sets those of inputs and of fresh outputs.
    pub pointers: &'a mut [*mut u8],
    operands: &'a mut [*mut u8],
    tables: &'a mut [*mut u8],
    scratch: *mut u8,
    /// Done since the last question whether to stop.
    work: usize,
}

impl<'a> Session<'a> {
    /// Takes a workspace over.
    ///
    /// # Safety
    /// The workspace is valid for `raw.workspace()` bytes, aligned to 64, and
    /// nobody else's while the session lasts; `raw` was made from `executable`.
    pub unsafe fn begin(executable: &'a Executable, raw: &'a Raw, workspace: *mut u8) -> Session<'a> {
        let layout = &raw.layout;
        let pointers = |offset: usize, count: usize| {
            let start = workspace.wrapping_add(offset).cast::<*mut u8>();
            // SAFETY: the region has room for `count` pointers, is aligned, and is written before it is read.
            unsafe {
                start.write_bytes(0, count);
                std::slice::from_raw_parts_mut(start, count)
            }
        };
        let session = Session {
            executable,
            raw,
            pointers: pointers(layout.pointers, executable.places.len()),
            operands: pointers(layout.operands, (layout.tables - layout.operands) / size_of::<*mut u8>()),
            tables: pointers(layout.tables, layout.table_entries),
            scratch: workspace.wrapping_add(executable.scratch),
            work: 0,
        };
        for (pointer, place) in session.pointers.iter_mut().zip(&executable.places) {
            *pointer = match *place {
                Place::Arena(offset) => workspace.wrapping_add(offset),
                Place::Constant(index) => executable.constants[index].bytes().as_ptr().cast_mut(),
                // Set by the caller; until then aligned and never read.
                Place::Input(_) | Place::Fresh(_) => std::ptr::without_provenance_mut(ALIGNMENT),
            };
        }
        let scratch = workspace.wrapping_add(layout.scratch);
        for (step, &(first, last)) in executable.steps.iter().zip(&raw.tables) {
            if let Action::Kernel { bound, .. } = &step.action
                && first < last
            {
                bound.fill_table(&mut session.tables[first..last], scratch);
            }
        }
        session
    }

    /// The buffer of an input.
    pub fn input(&mut self, index: usize) -> &mut *mut u8 {
        &mut self.pointers[self.raw.inputs[index] as usize]
    }

    /// The memory that a fresh output goes to.
    pub fn fresh(&mut self, index: usize) -> &mut *mut u8 {
        &mut self.pointers[self.raw.fresh[index] as usize]
    }

    /// Where the output with this number is after a run.
    pub fn output(&self, index: usize) -> *mut u8 {
        self.pointers[self.executable.outputs[index].buffer.0 as usize]
    }

    /// Runs all steps.
    ///
    /// # Safety
    /// The pointers of inputs and fresh outputs are valid for their types.
    /// Outputs overlap no inputs but those that the plan lets them take over,
    /// and not each other.
    #[inline]
    pub unsafe fn run(&mut self) -> Result<()> {
        self.work += interrupt::STEP;
        for (step, &(first, last)) in self.executable.steps.iter().zip(&self.raw.tables) {
            self.work += step.work;
            match &step.action {
                Action::Kernel { bound, operands } => {
                    for (to, &id) in self.operands.iter_mut().zip(operands) {
                        *to = self.pointers[id as usize];
                    }
                    let operands = &self.operands[..operands.len()];
                    // SAFETY: the plan gives each operand a buffer of its size; buffers overlap as the
                    // kernel was told; the table was filled for this kernel.
                    unsafe {
                        if first < last {
                            bound.run_in(operands, &mut self.tables[first..last]);
                        } else {
                            bound.run(operands)?;
                        }
                    }
                }
                Action::Library { kernel, inputs, outputs } => {
                    for (to, &id) in self.operands.iter_mut().zip(inputs.iter().chain(outputs)) {
                        *to = self.pointers[id as usize];
                    }
                    let (inputs, outputs) =
                        self.operands[..inputs.len() + outputs.len()].split_at(inputs.len());
                    // SAFETY: a pointer to read from has the layout of one to write through.
                    let inputs = unsafe {
                        std::slice::from_raw_parts(inputs.as_ptr().cast::<*const u8>(), inputs.len())
                    };
                    // SAFETY: as above; the arena has the bytes of scratch that the kernel asked for.
                    unsafe { kernel.run(&Call { inputs, outputs, scratch: self.scratch })? };
                }
            }
        }
        if self.work >= ASK_AFTER && interrupted(std::mem::take(&mut self.work)) {
            return Err(Error::Interrupted(format!("'{}' was interrupted", self.executable.name)));
        }
        Ok(())
    }
}
