//! Handlers by name and platform.
//!
//! Invariant: what is registered stays for the life of the process: a library is not unloaded.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use ferrax_ffi::abi::{self, Handler, METADATA, Metadata, MetadataExtension, Stage};
use ferrax_ir::{Result, device_error};

use super::context::take_error;
use super::table::empty_frame;

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
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn hold() -> MutexGuard<'static, impl Sized> {
    registry()
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
