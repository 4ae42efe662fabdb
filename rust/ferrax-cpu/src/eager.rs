//! Single ops, run at once.
//!
//! Executables are kept by op and operand types: in a small table of each
//! thread, found by hash, and behind it in one bounded table of the process.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrax_ir::{Builder, DType, Op, Result, Sizes, Tensor};
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::backend::compile;
use crate::executable::{Executable, Outputs};
use crate::generations::{Epoch, Generations};

/// Entries of a thread's table, a power of two.
const NEAR: usize = 512;
/// Entries and bytes of a generation of the process's table.
const KEPT: usize = 8192;
const KEPT_BYTES: usize = 256 << 20;

type Types = SmallVec<[(DType, Sizes); 3]>;

#[derive(Clone)]
struct Entry {
    hash: u64,
    op: Op,
    types: Types,
    executable: Arc<Executable>,
}

impl Entry {
    fn matches(&self, hash: u64, op: &Op, inputs: &[Tensor]) -> bool {
        self.hash == hash
            && self.types.len() == inputs.len()
            && self.types.iter().zip(inputs).all(|((dtype, sizes), tensor)| {
                *dtype == tensor.dtype() && sizes.as_slice() == tensor.sizes()
            })
            && self.op == *op
    }
}

/// The table of a thread, empty or of `NEAR` places.
struct Near {
    places: Vec<Option<Entry>>,
    epoch: Epoch,
}

thread_local! {
    static TABLE: RefCell<Near> = const { RefCell::new(Near { places: Vec::new(), epoch: Epoch::FIRST }) };
}

static ALL: Mutex<Generations<Entry>> = Mutex::new(Generations::new(KEPT, KEPT_BYTES));

fn all() -> MutexGuard<'static, Generations<Entry>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of this module, held by this thread.
pub(crate) struct Held {
    _all: MutexGuard<'static, Generations<Entry>>,
}

pub(crate) fn hold() -> Held {
    Held { _all: all() }
}

/// Forgets all executables of single ops. Other threads' tables are emptied when those threads next
/// meet new types.
pub fn forget() {
    Epoch::end();
    let old = all().clear();
    let own = TABLE.with_borrow_mut(|table| std::mem::take(&mut table.places));
    // Dropped under no lock: an op of the host's may run anything then.
    drop((old, own));
}

/// How many executables of single ops are kept for all threads.
pub fn kept() -> usize {
    all().len()
}

fn hash_of(op: &Op, inputs: &[Tensor]) -> u64 {
    let mut hasher = FxHasher::default();
    op.hash(&mut hasher);
    for tensor in inputs {
        tensor.dtype().hash(&mut hasher);
        tensor.sizes().hash(&mut hasher);
    }
    hasher.finish()
}

/// The outputs of one op. The first call for given types compiles. A copy has memory of its own; other
/// outputs may share that of inputs.
pub fn run_op(op: &Op, inputs: &[Tensor]) -> Result<Outputs> {
    run_as(&*executable(op, inputs)?, op, inputs)
}

/// As [`run_op`], by the op's [`executable`].
pub fn run_as(executable: &Executable, op: &Op, inputs: &[Tensor]) -> Result<Outputs> {
    if let Op::Copy(_) = op { executable.run_apart(inputs) } else { executable.run(inputs) }
}

/// The place in a thread's table.
fn slot(hash: u64) -> usize {
    (hash ^ (hash >> 32)) as usize & (NEAR - 1)
}

fn near(hash: u64, op: &Op, inputs: &[Tensor]) -> Option<Arc<Executable>> {
    TABLE.with_borrow(|table| match table.places.get(slot(hash)) {
        Some(Some(entry)) if table.epoch.is_current() && entry.matches(hash, op, inputs) => {
            Some(entry.executable.clone())
        }
        _ => None,
    })
}

/// The executable of one op for operands of these types, if this thread has it at hand: nothing is compiled,
/// compared under a lock or dropped.
pub fn at_hand(op: &Op, inputs: &[Tensor]) -> Option<Arc<Executable>> {
    near(hash_of(op, inputs), op, inputs)
}

/// The executable of one op for operands of these types.
pub fn executable(op: &Op, inputs: &[Tensor]) -> Result<Arc<Executable>> {
    let hash = hash_of(op, inputs);
    if let Some(executable) = near(hash, op, inputs) {
        return Ok(executable);
    }
    let (known, old) = all().find(hash, |entry| entry.matches(hash, op, inputs));
    drop(old);
    let entry = match known {
        Some(entry) => entry,
        None => {
            let entry = Entry {
                hash,
                op: op.clone(),
                types: inputs.iter().map(|tensor| (tensor.dtype(), tensor.sizes().into())).collect(),
                executable: Arc::new(compile_op(op, inputs)?),
            };
            let old = all().insert(hash, entry.clone(), entry.executable.bytes());
            drop(old);
            entry
        }
    };
    let executable = entry.executable.clone();
    let old = TABLE.with_borrow_mut(|table| {
        let mut old = Vec::new();
        if table.epoch.renew() || table.places.is_empty() {
            old = std::mem::replace(&mut table.places, vec![None; NEAR]);
        }
        (old, table.places[slot(hash)].replace(entry))
    });
    drop(old);
    Ok(executable)
}

fn compile_op(op: &Op, inputs: &[Tensor]) -> Result<Executable> {
    let mut builder = Builder::new(op.name());
    let atoms: SmallVec<[_; 3]> = inputs.iter().map(|tensor| builder.input(tensor.array_type())).collect();
    let outputs = builder.emit(op.clone(), &atoms)?;
    compile(&builder.finish(outputs.into_iter().map(Into::into)))
}
