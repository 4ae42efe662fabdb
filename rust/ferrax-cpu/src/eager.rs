//! Single ops, run at once.
//!
//! Executables are kept by op and operand types: in a small table of each
//! thread, found by hash, and behind it in one table of the process, which
//! forgets everything when full.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use ferrax_ir::{Builder, DType, Op, Result, Sizes, Tensor};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::executable::{Executable, Outputs, compile};

/// Entries of a thread's table, a power of two.
const NEAR: usize = 512;
/// Entries of the process's table.
const FAR: usize = 8192;

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

thread_local! {
    static TABLE: RefCell<Vec<Option<Entry>>> = const { RefCell::new(Vec::new()) };
}

static ALL: Mutex<Option<FxHashMap<u64, SmallVec<[Entry; 1]>>>> = Mutex::new(None);

fn hash_of(op: &Op, inputs: &[Tensor]) -> u64 {
    let mut hasher = FxHasher::default();
    op.hash(&mut hasher);
    for tensor in inputs {
        tensor.dtype().hash(&mut hasher);
        tensor.sizes().hash(&mut hasher);
    }
    hasher.finish()
}

/// The outputs of one op. The first call for given types compiles.
pub fn run_op(op: &Op, inputs: &[Tensor]) -> Result<Outputs> {
    executable(op, inputs)?.run(inputs)
}

/// The executable of one op for operands of these types.
pub fn executable(op: &Op, inputs: &[Tensor]) -> Result<Arc<Executable>> {
    let hash = hash_of(op, inputs);
    let slot = (hash ^ (hash >> 32)) as usize & (NEAR - 1);
    let near = TABLE.with_borrow(|table| match table.get(slot) {
        Some(Some(entry)) if entry.matches(hash, op, inputs) => Some(entry.executable.clone()),
        _ => None,
    });
    if let Some(executable) = near {
        return Ok(executable);
    }
    let known = {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = all.as_ref().and_then(|all| all.get(&hash));
        entries.and_then(|entries| entries.iter().find(|entry| entry.matches(hash, op, inputs))).cloned()
    };
    let entry = match known {
        Some(entry) => entry,
        None => {
            let entry = Entry {
                hash,
                op: op.clone(),
                types: inputs.iter().map(|tensor| (tensor.dtype(), tensor.sizes().into())).collect(),
                executable: Arc::new(compile_op(op, inputs)?),
            };
            let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            let table = all.get_or_insert_default();
            if table.len() >= FAR {
                table.clear();
            }
            table.entry(hash).or_default().push(entry.clone());
            entry
        }
    };
    let executable = entry.executable.clone();
    TABLE.with_borrow_mut(|table| {
        if table.is_empty() {
            table.resize(NEAR, None);
        }
        table[slot] = Some(entry);
    });
    Ok(executable)
}

fn compile_op(op: &Op, inputs: &[Tensor]) -> Result<Executable> {
    let mut builder = Builder::new(op.name());
    let atoms: SmallVec<[_; 3]> = inputs.iter().map(|tensor| builder.input(tensor.array_type())).collect();
    let outputs = builder.emit(op.clone(), &atoms)?;
    compile(&builder.finish(outputs.into_iter().map(Into::into)))
}
