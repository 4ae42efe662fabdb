//! Executables that run many times over memory that is given once: how loops
//! run their bodies.
//!
//! A workspace holds a body's intermediate values, the scratch memory of its
//! kernels, the pointer of each of its buffers and the pointer tables of its
//! small kernels, which run as straight lines of calls. [`Session::begin`] fills in what stays; a run touches only
//! what the caller changed and allocates nothing.

use std::ops::Range;
use std::sync::Arc;

use ferrax_compile::Place;
use ferrax_compile::profile::{self, Kind, Level, Span, What};
use ferrax_ir::Result;

use crate::call::Call;
use crate::executable::{Action, Executable};
use crate::interrupt::{self, interrupted};
use crate::pool;
use crate::vm::flat::{Flat, Line};
use crate::vm::section::Entry;

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

/// A pointer table's entry that points into a buffer, at a byte offset.
#[derive(Clone, Copy, Debug)]
struct Patch {
    entry: u32,
    buffer: u32,
    offset: isize,
}

/// What a run does in order.
#[derive(Debug)]
enum Part {
    /// Small kernels, one after another: these patches, then these lines.
    Flat { patches: Range<usize>, lines: Range<usize>, work: usize, steps: Range<usize> },
    /// A step, with the entries of its table if it has one.
    Step { number: usize, table: Range<usize> },
}

/// What runs of an executable over raw memory need to know.
#[derive(Debug)]
pub struct Raw {
    layout: Layout,
    parts: Vec<Part>,
    lines: Vec<Line>,
    /// Entries to set before each run, and once.
    patches: Vec<Patch>,
    fixed: Vec<Patch>,
    /// Entries that point to scratch memory, or to constants of a step.
    scratch: Vec<(u32, usize)>,
    constants: Vec<(u32, usize, usize)>,
    /// The buffer of each input, and of each fresh output.
    pub inputs: Vec<u32>,
    pub fresh: Vec<u32>,
}

impl Raw {
    pub fn new(executable: &Executable) -> Raw {
        let mut raw = Raw {
            layout: Layout::default(),
            parts: Vec::with_capacity(executable.steps.len()),
            lines: Vec::new(),
            patches: Vec::new(),
            fixed: Vec::new(),
            scratch: Vec::new(),
            constants: Vec::new(),
            inputs: Vec::new(),
            fresh: Vec::new(),
        };
        let (mut entries, mut scratch, mut most_operands) = (0, 0, 0);
        for (number, step) in executable.steps.iter().enumerate() {
            most_operands = most_operands.max(step.action.buffers().count());
            let first = entries;
            if let Action::Kernel { bound, operands } = &step.action
                && bound.is_serial()
            {
                scratch = bound.scratch().max(scratch);
                if let Some(flat) = bound.flat() {
                    entries += flat.entries.len();
                    raw.flat(executable, number, flat, operands, first as u32);
                    continue;
                }
                entries += bound.table();
            }
            raw.parts.push(Part::Step { number, table: first..entries });
        }
        for (buffer, place) in (0u32..).zip(&executable.places) {
            let (list, index) = match *place {
                Place::Input(index) => (&mut raw.inputs, index),
                Place::Fresh(index) => (&mut raw.fresh, index),
                Place::Constant(_) | Place::Arena(_) | Place::Rows(_) => continue,
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
            operands: region(most_operands * size_of::<*mut u8>()),
            tables: region(entries * size_of::<*mut u8>()),
            table_entries: entries,
            total: 0,
        };
        raw.layout = Layout { total, ..layout };
        raw
    }

    /// Appends a small kernel, whose table begins at `first`.
    fn flat(&mut self, executable: &Executable, number: usize, flat: Flat, operands: &[u32], first: u32) {
        for (entry, kind) in (first..).zip(&flat.entries) {
            match *kind {
                Entry::Scratch(offset) => self.scratch.push((entry, offset)),
                Entry::Constant(offset) => self.constants.push((entry, number, offset)),
                Entry::Moving => {}
            }
        }
        let (patches, lines) = (self.patches.len(), self.lines.len());
        for moving in &flat.moving {
            let buffer = operands[moving.operand as usize];
            let patch = Patch { entry: first + moving.place, buffer, offset: moving.offset };
            match executable.places[buffer as usize] {
                Place::Input(_) | Place::Fresh(_) => self.patches.push(patch),
                Place::Arena(_) | Place::Constant(_) | Place::Rows(_) => self.fixed.push(patch),
            }
        }
        self.lines.extend(flat.lines.into_iter().map(|line| line.shifted(first)));
        let own_work = executable.steps[number].work;
        if let Some(Part::Flat { patches, lines, work, steps }) = self.parts.last_mut() {
            (patches.end, lines.end, steps.end) = (self.patches.len(), self.lines.len(), number + 1);
            *work += own_work;
            return;
        }
        self.parts.push(Part::Flat {
            patches: patches..self.patches.len(),
            lines: lines..self.lines.len(),
            work: own_work,
            steps: number..number + 1,
        });
    }

    /// Bytes that it keeps.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.parts)
            + size_of_val(&*self.lines)
            + size_of_val(&*self.patches)
            + size_of_val(&*self.fixed)
            + size_of_val(&*self.scratch)
            + size_of_val(&*self.constants)
            + size_of_val(&*self.inputs)
            + size_of_val(&*self.fresh)
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
    /// Whether a profile shows what it runs.
    recorded: bool,
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
            recorded: profile::is_on(Level::Inside),
        };
        for (pointer, place) in session.pointers.iter_mut().zip(&executable.places) {
            *pointer = match *place {
                Place::Arena(offset) => workspace.wrapping_add(offset),
                Place::Constant(index) => executable.constants[index].bytes().as_ptr().cast_mut(),
                // Set by the caller; until then aligned and never read. Blocks of rows have their own.
                Place::Input(_) | Place::Fresh(_) | Place::Rows(_) => {
                    std::ptr::without_provenance_mut(ALIGNMENT)
                }
            };
        }
        let scratch = workspace.wrapping_add(layout.scratch);
        for part in &raw.parts {
            if let Part::Step { number, table } = part
                && let Action::Kernel { bound, .. } = &executable.steps[*number].action
            {
                bound.fill_table(&mut session.tables[table.clone()], scratch);
            }
        }
        for &(entry, offset) in &raw.scratch {
            session.tables[entry as usize] = scratch.wrapping_add(offset);
        }
        for &(entry, number, offset) in &raw.constants {
            if let Action::Kernel { bound, .. } = &executable.steps[number].action {
                session.tables[entry as usize] = bound.constants().wrapping_add(offset).cast_mut();
            }
        }
        for patch in &raw.fixed {
            session.tables[patch.entry as usize] =
                session.pointers[patch.buffer as usize].wrapping_offset(patch.offset);
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
        for part in &self.raw.parts {
            match part {
                Part::Flat { patches, lines, work, steps } => {
                    self.work += work;
                    let _span = self.recorded.then(|| Span::of(self.together(steps)));
                    for patch in &self.raw.patches[patches.clone()] {
                        let pointer = self.pointers[patch.buffer as usize];
                        self.tables[patch.entry as usize] = pointer.wrapping_offset(patch.offset);
                    }
                    let table = self.tables.as_mut_ptr();
                    for line in &self.raw.lines[lines.clone()] {
                        // SAFETY: the plan gives each operand a buffer of its size; buffers overlap as
                        // the kernels were told; all entries were set for these kernels.
                        unsafe { line.run(table) };
                    }
                }
                // SAFETY: the pointers are set for this run, as this function asks of its caller; the
                // number and the range are those of a step of this executable.
                Part::Step { number, table } => unsafe { self.step(*number, table.clone()) }
                    .map_err(|error| self.executable.named(error))?,
            }
        }
        if self.work >= ASK_AFTER && interrupted(std::mem::take(&mut self.work)) {
            return Err(self.executable.named(pool::stopped()));
        }
        Ok(())
    }

    /// What a profile shows of small kernels that run as one.
    #[cold]
    fn together(&self, steps: &Range<usize>) -> Arc<What> {
        let first = &self.executable.steps[steps.start].what;
        match steps.len() - 1 {
            0 => first.clone(),
            more => What::new(Kind::Kernel, format!("{} and {more} more", first.name), first.source),
        }
    }

    /// Runs one step.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn step(&mut self, number: usize, table: Range<usize>) -> Result<()> {
        let step = &self.executable.steps[number];
        self.work += step.work;
        let _span = self.recorded.then(|| Span::of(step.what.clone()));
        for (to, id) in self.operands.iter_mut().zip(step.action.buffers()) {
            *to = self.pointers[id as usize];
        }
        match &step.action {
            Action::Kernel { bound, operands } => {
                let operands = &self.operands[..operands.len()];
                // SAFETY: each operand is a buffer of the size that the plan gave it: in the workspace,
                // which `begin` was promised, or the caller's; they overlap only as `bind` told the kernel.
                // The range is that of this kernel's entries, whose scratch memory is in the workspace.
                unsafe {
                    if bound.is_serial() {
                        bound.run_in(operands, &mut self.tables[table]);
                        return Ok(());
                    }
                    bound.run(operands)
                }
            }
            Action::Library { kernel, inputs, outputs } => {
                let (inputs, outputs) = self.operands[..inputs.len() + outputs.len()].split_at(inputs.len());
                // SAFETY: a pointer to read from has the layout of one to write through.
                let inputs =
                    unsafe { std::slice::from_raw_parts(inputs.as_ptr().cast::<*const u8>(), inputs.len()) };
                // SAFETY: operands are as for kernels. The arena is a part of the workspace and ends with
                // as many bytes of scratch memory as the most demanding kernel asked `bind` for.
                unsafe { kernel.run(&Call { inputs, outputs, scratch: self.scratch }) }
            }
            // SAFETY: as for kernels.
            Action::Rows(rows) => unsafe { rows.run(&self.operands[..rows.buffers.len()]) },
        }
    }
}
