//! Programs made ready to run on the CPU: steps with all sizes and places bound.

use std::sync::Arc;

use ferrax_compile::carries::Ends;
use ferrax_compile::profile::{self, Level, Span, What};
use ferrax_compile::{Argument, Path, Place};
use ferrax_ir::{DType, Error, Result, Sizes, Storage, Tensor, internal_error, value_error};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::alloc::{self, Buffer};
use crate::call::{Call, Held, Kernel};
use crate::interrupt::interrupted;
use crate::kernels::copy::copy_shared;
use crate::pool;
use crate::rows::Rows;
use crate::tuning::{Threads, Tuning};
use crate::vm::Bound;

/// A compiled program. It holds no memory but its constants; runs may overlap.
#[derive(Debug)]
pub struct Executable {
    pub(crate) name: Arc<str>,
    pub(crate) inputs: Vec<(DType, Sizes)>,
    pub(crate) constants: Vec<Tensor>,
    pub(crate) places: Vec<Place>,
    pub(crate) steps: Vec<Ready>,
    pub(crate) outputs: Vec<Argument>,
    pub(crate) fresh: Vec<usize>,
    /// Bytes for intermediate values and, from `scratch` on, for library kernels.
    pub(crate) arena: usize,
    pub(crate) scratch: usize,
    /// Inputs, and the fresh outputs that may have their memory, by these.
    pub(crate) donations: Vec<(usize, usize)>,
    pub(crate) tuning: &'static Tuning,
    pub(crate) work: usize,
}

#[derive(Debug)]
pub(crate) struct Ready {
    pub action: Action,
    /// Bytes of the operands, and something for the step itself.
    pub work: usize,
    /// What profiles show of it.
    pub what: Arc<What>,
}

#[derive(Debug)]
pub(crate) enum Action {
    Kernel { bound: Box<Bound>, operands: SmallVec<[u32; 4]> },
    Library { kernel: Box<dyn Kernel>, inputs: SmallVec<[u32; 4]>, outputs: SmallVec<[u32; 2]> },
    Rows(Box<Rows>),
}

impl Action {
    /// The buffer of each operand.
    pub fn buffers(&self) -> impl Iterator<Item = u32> {
        let (first, second): (&[u32], &[u32]) = match self {
            Action::Kernel { operands, .. } => (operands, &[]),
            Action::Library { inputs, outputs, .. } => (inputs, outputs),
            Action::Rows(rows) => (&rows.buffers, &[]),
        };
        first.iter().chain(second).copied()
    }
}

/// What a run gives: nearly always one array.
pub type Outputs = SmallVec<[Tensor; 1]>;

/// Memory of the outputs, and where it is. A pointer is good until its storage is looked at, cloned
/// or given away, which happens only after the run.
type Fresh = SmallVec<[(Option<Arc<dyn Storage>>, *mut u8); 4]>;

/// What a step of a run takes, about.
const STEP_BYTES: usize = 2 << 10;
impl Executable {
    /// What the user called the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Dtypes and sizes of the inputs.
    pub(crate) fn inputs(&self) -> &[(DType, Sizes)] {
        &self.inputs
    }

    /// What a loop around it sees.
    pub(crate) fn ends(&self) -> Ends<'_> {
        Ends {
            inputs: &self.inputs,
            outputs: &self.outputs,
            places: &self.places,
            donations: &self.donations,
        }
    }

    /// Bytes of what a run reads or of what it writes, whichever are more. Loops count once.
    pub fn work(&self) -> usize {
        self.work
    }

    /// What it keeps in memory, about, with the executables of its loops and branches: what several share counts once.
    pub fn bytes(&self) -> usize {
        let mut seen: FxHashSet<*const u8> = FxHashSet::default();
        let mut stack: Vec<&dyn Held> = vec![self];
        let mut total = 0usize;
        while let Some(executable) = stack.pop() {
            total = total.saturating_add(executable.own_bytes(&mut seen));
            let inner = executable.inner().into_iter();
            stack.extend(inner.filter(|inner| seen.insert(std::ptr::from_ref(*inner).cast())));
        }
        total
    }

    /// The number of kernels and library calls in one run.
    pub fn steps(&self) -> usize {
        let steps = |step: &Ready| if let Action::Rows(rows) = &step.action { rows.steps() } else { 1 };
        self.steps.iter().map(steps).sum()
    }

    /// The outputs for these inputs, whose dtypes and sizes must be the program's. An output that is
    /// an input, a constant or another output, in the same or another shape, shares its memory.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let fresh = self.execute(inputs)?;
        self.results(inputs, fresh, false)
    }

    /// As `run`, but each output has memory of its own.
    pub fn run_apart(&self, inputs: &[Tensor]) -> Result<Outputs> {
        let fresh = self.execute(inputs)?;
        self.results(inputs, fresh, true)
    }

    /// As `run_apart`; the memory of inputs that are marked in `donate` and that
    /// nobody else holds may become that of outputs.
    pub fn run_donating(&self, mut inputs: Vec<Tensor>, donate: &[bool]) -> Result<Outputs> {
        self.check(&inputs)?;
        let mut pointers: SmallVec<[*mut u8; 8]> = inputs.iter().map(read_only).collect();
        let mut fresh = Fresh::with_capacity(self.fresh.len());
        let mut donations = self.donations.iter().copied().peekable();
        for (number, &bytes) in self.fresh.iter().enumerate() {
            let donor = donations.next_if(|&(_, target)| target == number).filter(|&(input, _)| {
                donate.get(input) == Some(&true) && Arc::strong_count(inputs[input].storage()) == 1
            });
            let (storage, pointer) = match donor {
                Some((input, _)) => {
                    // The plan has no output that is this input, so only the run reads it: through the
                    // pointer that it is written through.
                    let nothing = Tensor::zeros(inputs[input].dtype(), Sizes::from_slice(&[0]))?;
                    let (dtype, sizes, mut storage) =
                        std::mem::replace(&mut inputs[input], nothing).into_parts();
                    match Arc::get_mut(&mut storage).and_then(|storage| storage.bytes_mut()) {
                        Some(bytes) => {
                            let pointer = bytes.as_mut_ptr();
                            pointers[input] = pointer;
                            Path::Donation.take();
                            (storage, pointer)
                        }
                        None => {
                            inputs[input] = Tensor::from_storage(dtype, sizes, storage)?;
                            alloc::storage(bytes)?
                        }
                    }
                }
                None => alloc::storage(bytes)?,
            };
            fresh.push((Some(storage), pointer));
        }
        self.run_steps(&pointers, &fresh).map_err(|error| self.named(error))?;
        self.results(&inputs, fresh, true)
    }

    fn check(&self, inputs: &[Tensor]) -> Result<()> {
        if inputs.len() != self.inputs.len() {
            return Err(value_error!(
                "'{}' takes {} inputs, got {}",
                self.name,
                self.inputs.len(),
                inputs.len()
            ));
        }
        for (position, (tensor, (dtype, sizes))) in inputs.iter().zip(&self.inputs).enumerate() {
            if tensor.dtype() != *dtype || tensor.sizes() != sizes.as_slice() {
                return Err(value_error!(
                    "input {position} of '{}' expected {dtype}{sizes:?}, got {}{:?}",
                    self.name,
                    tensor.dtype(),
                    tensor.sizes()
                ));
            }
        }
        Ok(())
    }

    /// Runs on these inputs; the memory of the fresh outputs.
    #[inline]
    fn execute(&self, inputs: &[Tensor]) -> Result<Fresh> {
        self.check(inputs)?;
        let mut fresh = Fresh::new();
        for &bytes in &self.fresh {
            let (storage, pointer) = alloc::storage(bytes)?;
            fresh.push((Some(storage), pointer));
        }
        let pointers: SmallVec<[*mut u8; 8]> = inputs.iter().map(read_only).collect();
        self.run_steps(&pointers, &fresh).map_err(|error| self.named(error))?;
        Ok(fresh)
    }

    /// Of a run that was stopped, between steps or within one, the error names what was run.
    pub(crate) fn named(&self, error: Error) -> Error {
        if error == pool::stopped() {
            Error::Interrupted(format!("'{}' was interrupted", self.name))
        } else {
            error
        }
    }

    /// Runs all steps. `inputs` are where the inputs are, whose types were checked; only donated ones
    /// may be written to.
    fn run_steps(&self, inputs: &[*mut u8], fresh: &Fresh) -> Result<()> {
        let arena = if self.arena > 0 { Some(Buffer::new(self.arena)?) } else { None };
        // Arrays without elements have places even where there is no arena: aligned, never read.
        let arena = arena.as_ref().map_or(std::ptr::without_provenance_mut(64), Buffer::pointer);
        let pointers: SmallVec<[*mut u8; 16]> = self
            .places
            .iter()
            .map(|place| match *place {
                Place::Input(index) => inputs[index],
                // Constants are only read.
                Place::Constant(index) => read_only(&self.constants[index]),
                Place::Arena(offset) => arena.wrapping_add(offset),
                Place::Fresh(index) => fresh[index].1,
                // Of blocks of rows, which have their own.
                Place::Rows(_) => std::ptr::without_provenance_mut(64),
            })
            .collect();
        let scratch = arena.wrapping_add(self.scratch);
        let mut work = 0;
        let recorded = profile::is_on(Level::Runs);
        for step in &self.steps {
            if work > 0 && interrupted(work) {
                return Err(pool::stopped());
            }
            work = step.work;
            let _span = recorded.then(|| Span::of(step.what.clone()));
            match &step.action {
                Action::Kernel { bound, operands } => {
                    let operands: SmallVec<[*mut u8; 8]> =
                        operands.iter().map(|&id| pointers[id as usize]).collect();
                    // SAFETY: each operand has the bytes that the launch reads or writes: the plan sized
                    // the fresh outputs, the arena and the constants, and `check` compared the inputs with
                    // the types that it was made for. Operands overlap only where two are one buffer, or
                    // an input and the output that it may be donated to, which `bind` told the kernel.
                    // Steps write to fresh outputs and to the arena alone, which are this run's.
                    unsafe { bound.run(&operands)? };
                }
                Action::Library { kernel, inputs, outputs } => {
                    let inputs: SmallVec<[*const u8; 8]> =
                        inputs.iter().map(|&id| pointers[id as usize].cast_const()).collect();
                    let outputs: SmallVec<[*mut u8; 4]> =
                        outputs.iter().map(|&id| pointers[id as usize]).collect();
                    // SAFETY: as for kernels; a result is in the memory of an operand only where the plan says
                    // that the op can do with it, which `bind` told branches and loops. The arena ends with as many bytes of
                    // scratch memory as the most demanding kernel asked `bind` for.
                    unsafe { kernel.run(&Call { inputs: &inputs, outputs: &outputs, scratch })? };
                }
                Action::Rows(rows) => {
                    let operands: SmallVec<[*mut u8; 8]> =
                        rows.buffers.iter().map(|&id| pointers[id as usize]).collect();
                    // SAFETY: as for kernels.
                    unsafe { rows.run(&operands)? };
                }
            }
        }
        Ok(())
    }

    /// The outputs, as `run` gives them or, if `apart`, as `run_apart` does.
    fn results(&self, inputs: &[Tensor], mut fresh: Fresh, apart: bool) -> Result<Outputs> {
        let mut results = Outputs::with_capacity(self.outputs.len());
        // The first output that has each fresh buffer.
        let mut holder: SmallVec<[usize; 4]> = SmallVec::from_elem(usize::MAX, fresh.len());
        for (number, output) in self.outputs.iter().enumerate() {
            let shared = |storage: &Arc<dyn Storage>| {
                if apart { copied(storage.bytes(), &self.tuning.threads) } else { Ok(storage.clone()) }
            };
            let storage = match self.places[output.buffer.0 as usize] {
                Place::Fresh(index) => match fresh[index].0.take() {
                    Some(storage) => {
                        holder[index] = number;
                        storage
                    }
                    None => {
                        let first = results.get(holder[index]);
                        shared(first.ok_or_else(|| internal_error!("an output has no memory"))?.storage())?
                    }
                },
                Place::Input(index) => shared(inputs[index].storage())?,
                Place::Constant(index) => shared(self.constants[index].storage())?,
                // Only arrays without elements.
                Place::Arena(_) | Place::Rows(_) => alloc::storage(0)?.0,
            };
            results.push(Tensor::from_storage(output.dtype, Sizes::from_slice(&output.sizes), storage)?);
        }
        Ok(results)
    }
}

impl Held for Executable {
    fn own_bytes(&self, seen: &mut FxHashSet<*const u8>) -> usize {
        let constants = self.constants.iter().filter(|tensor| seen.insert(tensor.bytes().as_ptr()));
        let constants: usize = constants.map(|tensor| tensor.bytes().len()).sum();
        let tables = size_of_val(&*self.inputs) + size_of_val(&*self.places) + size_of_val(&*self.outputs);
        let of_step = |step: &Ready| {
            let operands = step.action.buffers().count() * size_of::<u32>();
            operands
                + step.what.name.len()
                + match &step.action {
                    Action::Kernel { bound, .. } => bound.bytes(),
                    Action::Library { kernel, .. } => kernel.bytes(),
                    Action::Rows(rows) => rows.steps() * STEP_BYTES,
                }
        };
        size_of::<Executable>()
            + constants
            + tables
            + size_of_val(&*self.steps)
            + self.steps.iter().map(of_step).sum::<usize>()
    }

    fn inner(&self) -> Vec<&dyn Held> {
        let mut inner = Vec::new();
        for step in &self.steps {
            if let Action::Library { kernel, .. } = &step.action {
                inner.extend(kernel.programs());
            }
        }
        inner
    }
}

/// Where a tensor's elements are, as an operand that nobody writes to.
fn read_only(tensor: &Tensor) -> *mut u8 {
    tensor.bytes().as_ptr().cast_mut()
}

/// The same bytes in memory of their own.
pub(crate) fn copied(bytes: &[u8], threads: &Threads) -> Result<Arc<dyn Storage>> {
    let (copy, to) = alloc::storage(bytes.len())?;
    // SAFETY: `to` is where fresh storage of this size is.
    unsafe { copy_shared(bytes.as_ptr(), to, bytes.len(), threads) };
    Ok(copy)
}

/// The outputs as an error if there is not exactly one.
pub fn only(mut outputs: Outputs) -> Result<Tensor> {
    match (outputs.pop(), outputs.len()) {
        (Some(tensor), 0) => Ok(tensor),
        (_, count) => Err(internal_error!("expected one output, got {}", count + 1)),
    }
}
