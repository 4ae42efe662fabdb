//! The types of the states that handlers make, by number and name.
//!
//! Invariant: what is registered stays for the life of the process.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use ferrax_ffi::abi;
use ferrax_ir::{Result, device_error};

/// Deletes a state.
pub type Deleter = unsafe extern "C" fn(*mut c_void);

#[derive(Default)]
struct Types {
    deleters: HashMap<i64, Option<Deleter>>,
    names: HashMap<String, i64>,
    last: i64,
}

static TYPES: LazyLock<Mutex<Types>> =
    LazyLock::new(|| Mutex::new(Types { last: 1 << 20, ..Types::default() }));

pub(super) fn hold() -> MutexGuard<'static, impl Sized> {
    types()
}

fn types() -> MutexGuard<'static, Types> {
    TYPES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a type of states by the address of its id, a number that is written there if it is 0, and the
/// address of what says how states are deleted, or 0.
///
/// # Errors
/// `INVALID_ARGUMENT` for another id than the name has.
///
/// # Safety
/// The addresses are those of an int64 and of a `XLA_FFI_TypeInfo`.
pub unsafe fn register_type(name: &str, id: usize, info: usize) -> Result<()> {
    let (id, info) = (id as *mut i64, info as *const abi::TypeInfo);
    // SAFETY: the caller says what they point to.
    let deleter = if info.is_null() { None } else { unsafe { (*info).deleter } };
    let mut types = types();
    // SAFETY: as above.
    let given = unsafe { *id };
    let known = types.names.get(name).copied();
    let number = match (given, known) {
        (0, Some(known)) => known,
        (0, None) => {
            types.last += 1;
            types.last
        }
        (given, Some(known)) if given != known => {
            return Err(device_error!(
                "INVALID_ARGUMENT: the type {name} has the id {known}, it cannot have {given}"
            ));
        }
        (given, _) => given,
    };
    types.names.insert(name.to_owned(), number);
    types.deleters.insert(number, deleter);
    // SAFETY: as above.
    unsafe { *id = number };
    Ok(())
}

/// How a state of this type is deleted.
pub(super) fn deleter(id: i64) -> Option<Deleter> {
    types().deleters.get(&id).copied().flatten()
}
