//! Handlers by name and platform, and the types of their states.
//!
//! Invariant: what is registered stays for the life of the process: a library is not unloaded.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ferrax_ir::{Result, device_error};

use super::abi::{self, CallFrame, Handler, METADATA, Metadata, MetadataExtension, Stage};
use super::context::{Deleter, take_error};
use super::table;

/// The handlers of one target, and what their state is of.
#[derive(Clone, Copy, Debug)]
pub struct Handlers {
    pub instantiate: Option<Handler>,
    pub prepare: Option<Handler>,
    pub initialize: Option<Handler>,
    pub execute: Handler,
}

impl Handlers {
    pub(super) fn of(&self, stage: Stage) -> Option<Handler> {
        match stage {
            Stage::Instantiate => self.instantiate,
            Stage::Prepare => self.prepare,
            Stage::Initialize => self.initialize,
            Stage::Execute => Some(self.execute),
        }
    }
}

#[derive(Default)]
struct Registry {
    /// With their addresses, by which a second registration is known to be the same.
    handlers: HashMap<(String, String), ([usize; 4], Arc<Handlers>)>,
    types: HashMap<i64, Option<Deleter>>,
    names: HashMap<String, i64>,
    last: i64,
}

static REGISTRY: LazyLock<Mutex<Registry>> =
    LazyLock::new(|| Mutex::new(Registry { last: 1 << 20, ..Registry::default() }));

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, held: see `fork`.
pub type Held = Box<dyn std::any::Any>;

pub fn hold() -> Held {
    struct Guard(#[allow(dead_code, reason = "it is held")] MutexGuard<'static, Registry>);
    Box::new(Guard(registry()))
}

/// Registers the handlers of a target, given as addresses: of the stages in order, 0 where there is none. The same
/// again is nothing.
///
/// # Errors
/// `INVALID_ARGUMENT` without a handler that executes, and for other handlers than were registered under the
/// name before; `FAILED_PRECONDITION` for a version that is not known.
///
/// # Safety
/// The addresses are those of handlers, which stay where they are.
pub unsafe fn register(name: &str, platform: &str, addresses: [usize; 4]) -> Result<()> {
    let handler = |address: usize| match address {
        0 => None,
        // SAFETY: the caller says that they are handlers.
        address => Some(unsafe { std::mem::transmute::<usize, Handler>(address) }),
    };
    let [instantiate, prepare, initialize, execute] = addresses.map(handler);
    let Some(execute) = execute else {
        return Err(device_error!(
            "INVALID_ARGUMENT: FFI handler for {name} on a platform {platform} must provide an execute implementation"
        ));
    };
    let handlers = Handlers { instantiate, prepare, initialize, execute };
    for stage in [Stage::Instantiate, Stage::Prepare, Stage::Initialize, Stage::Execute] {
        if let Some(handler) = handlers.of(stage) {
            check(name, handler, stage)?;
        }
    }
    let key = (name.to_owned(), platform.to_owned());
    let mut registry = registry();
    if let Some((known, _)) = registry.handlers.get(&key) {
        if *known == addresses {
            return Ok(());
        }
        return Err(device_error!(
            "INVALID_ARGUMENT: Duplicate FFI handler registration for {name} on a platform {platform}: another function \
             is there already; register it under a name of its own"
        ));
    }
    registry.handlers.insert(key, (addresses, Arc::new(handlers)));
    Ok(())
}

/// Asks a handler which version it was built for.
fn check(name: &str, handler: Handler, stage: Stage) -> Result<()> {
    let version =
        abi::Version { size: size_of::<abi::Version>(), extension: std::ptr::null_mut(), major: 0, minor: 0 };
    let mut metadata = Metadata { size: size_of::<Metadata>(), version, traits: 0, state_type: 0 };
    let base =
        abi::Extension { size: size_of::<MetadataExtension>(), kind: METADATA, next: std::ptr::null_mut() };
    let mut extension = MetadataExtension { base, metadata: &raw mut metadata };
    let mut frame = empty_frame(stage);
    frame.extension = (&raw mut extension).cast();
    // SAFETY: a frame with this extension asks for metadata alone, which the handler writes.
    let error = unsafe { handler(&raw mut frame) };
    // SAFETY: what a handler gives is null or an error of ours.
    if let Some(error) = unsafe { take_error(error) } {
        return Err(device_error!("{error}"));
    }
    let (major, minor) = (metadata.version.major, metadata.version.minor);
    if major != abi::MAJOR || !(1..=abi::MINOR).contains(&minor) {
        return Err(device_error!(
            "FAILED_PRECONDITION: FFI handler for {name} was built for version {major}.{minor} of the interface; known are \
             0.1 to {}.{}",
            abi::MAJOR,
            abi::MINOR
        ));
    }
    Ok(())
}

/// A frame without operands.
pub(super) fn empty_frame(stage: Stage) -> CallFrame {
    let operands = || abi::Operands {
        size: size_of::<abi::Operands>(),
        extension: std::ptr::null_mut(),
        count: 0,
        kinds: std::ptr::null_mut(),
        items: std::ptr::null_mut(),
    };
    CallFrame {
        size: std::mem::offset_of!(CallFrame, future),
        extension: std::ptr::null_mut(),
        api: table::api(),
        context: std::ptr::null_mut(),
        stage: stage as i32,
        operands: operands(),
        results: operands(),
        attributes: abi::Attributes {
            size: size_of::<abi::Attributes>(),
            extension: std::ptr::null_mut(),
            count: 0,
            kinds: std::ptr::null_mut(),
            names: std::ptr::null_mut(),
            items: std::ptr::null_mut(),
        },
        future: std::ptr::null_mut(),
    }
}

/// The handlers of a target.
///
/// # Errors
/// `NOT_FOUND` for one that is not registered.
pub(super) fn find(name: &str, platform: &str) -> Result<Arc<Handlers>> {
    let registry = registry();
    let found = registry.handlers.get(&(name.to_owned(), platform.to_owned()));
    found.map(|(_, handlers)| handlers.clone()).ok_or_else(|| {
        device_error!(
            "NOT_FOUND: No FFI handler registered for {name} on a platform Host. Register it before the function is \
             compiled: jax.ffi.register_ffi_target({name:?}, ...)"
        )
    })
}

/// Whether a target is registered.
pub fn is_registered(name: &str, platform: &str) -> bool {
    registry().handlers.contains_key(&(name.to_owned(), platform.to_owned()))
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
    let mut registry = registry();
    // SAFETY: as above.
    let given = unsafe { *id };
    let known = registry.names.get(name).copied();
    let number = match (given, known) {
        (0, Some(known)) => known,
        (0, None) => {
            registry.last += 1;
            registry.last
        }
        (given, Some(known)) if given != known => {
            return Err(device_error!(
                "INVALID_ARGUMENT: the type {name} has the id {known}, it cannot have {given}"
            ));
        }
        (given, _) => given,
    };
    registry.names.insert(name.to_owned(), number);
    registry.types.insert(number, deleter);
    // SAFETY: as above.
    unsafe { *id = number };
    Ok(())
}

/// How a state of this type is deleted.
pub(super) fn deleter(id: i64) -> Option<Deleter> {
    registry().types.get(&id).copied().flatten()
}

/// Registers what a handler registers by the table; not supported.
pub(super) fn refuse_registration() -> *mut c_void {
    super::context::error(12, "handlers are registered by jax.ffi.register_ffi_target")
}
