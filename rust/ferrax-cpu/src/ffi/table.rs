//! The functions that a handler asks by: what each takes begins with its size, and is read as far as that
//! says.

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};

use ferrax_ffi::abi::{self, CallFrame, Stage, Table};

use super::context::{Context, Failure, Future, error, take_error, text};
use super::types;
use crate::pool;

const INVALID_ARGUMENT: c_int = 3;
const NOT_FOUND: c_int = 5;
const RESOURCE_EXHAUSTED: c_int = 8;
const UNIMPLEMENTED: c_int = 12;

/// The table that all call frames point to.
pub fn api() -> *const Table {
    static TABLE: Table = Table {
        size: size_of::<Table>(),
        extension: std::ptr::null_mut(),
        version: abi::Version {
            size: size_of::<abi::Version>(),
            extension: std::ptr::null_mut(),
            major: abi::MAJOR,
            minor: abi::MINOR,
        },
        internal: std::ptr::null(),
        error_create,
        error_message,
        error_destroy,
        handler_register,
        stream_get,
        type_register,
        context_get,
        state_set,
        state_get,
        memory_allocate,
        memory_free,
        pool_schedule,
        pool_threads,
        future_create,
        future_set,
        future_fail,
        run_id,
        device,
        find_extension,
        custom_options,
    };
    &raw const TABLE
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
        api: api(),
        context: std::ptr::null_mut(),
        stage: stage as i32,
        operands: operands(),
        results: operands(),
        attributes: empty_attributes(),
        future: std::ptr::null_mut(),
    }
}

const fn empty_attributes() -> abi::Attributes {
    abi::Attributes {
        size: size_of::<abi::Attributes>(),
        extension: std::ptr::null_mut(),
        count: 0,
        kinds: std::ptr::null_mut(),
        names: std::ptr::null_mut(),
        items: std::ptr::null_mut(),
    }
}

/// What a function of the table takes.
///
/// # Safety
/// `arguments` is what the handler passed to the function that takes these.
unsafe fn read<'a, T>(arguments: *mut c_void) -> &'a mut T {
    // SAFETY: as the caller says; the handler waits for the answer.
    unsafe { &mut *arguments.cast::<T>() }
}

/// The run that a handler is called in.
///
/// # Safety
/// It is the context of a frame of ours whose handler has not returned.
unsafe fn run<'a>(context: *mut c_void) -> Option<&'a Context<'a>> {
    // SAFETY: as the caller says.
    unsafe { context.cast::<Context<'a>>().as_ref() }
}

fn no_run() -> *mut c_void {
    error(INVALID_ARGUMENT, "this can be asked for while a handler runs alone")
}

unsafe extern "C" fn error_create(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`; the message ends in a zero.
    let (given, message) = unsafe {
        let given = read::<abi::ErrorCreate>(arguments);
        (given.code, text(given.message))
    };
    error(given, &message)
}

unsafe extern "C" fn error_message(arguments: *mut c_void) {
    // SAFETY: see `read`; the error is one of ours.
    unsafe {
        let given = read::<abi::ErrorMessage>(arguments);
        let failure = &*given.error.cast::<Failure>();
        given.message = failure.message.as_ptr();
        // The code came with a later version.
        if given.size > offset_of!(abi::ErrorMessage, code) {
            given.code = failure.code;
        }
    }
}

unsafe extern "C" fn error_destroy(arguments: *mut c_void) {
    // SAFETY: see `read`; the error is one of ours, and the handler gives it up.
    unsafe {
        take_error(read::<abi::ErrorDestroy>(arguments).error);
    }
}

unsafe extern "C" fn handler_register(_: *mut c_void) -> *mut c_void {
    error(UNIMPLEMENTED, "handlers are registered by jax.ffi.register_ffi_target")
}

unsafe extern "C" fn stream_get(_: *mut c_void) -> *mut c_void {
    error(UNIMPLEMENTED, "a processor has no streams")
}

unsafe extern "C" fn type_register(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`; the name is a span, id and info are what the interface says.
    let result = unsafe {
        let given = read::<abi::TypeRegister>(arguments);
        let name = std::slice::from_raw_parts(given.name.pointer.cast::<u8>(), given.name.length);
        // (The size that XLA's headers give ends before `info`, which they set all the same.)
        types::register_type(&String::from_utf8_lossy(name), given.id as usize, given.info as usize)
    };
    match result {
        Ok(()) => std::ptr::null_mut(),
        Err(refused) => error(INVALID_ARGUMENT, &refused.to_string()),
    }
}

unsafe extern "C" fn context_get(_: *mut c_void) -> *mut c_void {
    error(NOT_FOUND, "no context was given to the run")
}

/// The state that a call of a handler is about. Handlers from before states had stages pass less, or other
/// fields in the same place: where a stage should be there is the address of an id, which is none.
///
/// # Safety
/// See [`read`].
unsafe fn state<'a>(arguments: *mut c_void) -> Result<&'a mut abi::State, *mut c_void> {
    // SAFETY: the size comes first, whatever follows; the stage is read once the size says that it is there.
    unsafe {
        if *arguments.cast::<usize>() >= size_of::<abi::State>() {
            let given = read::<abi::State>(arguments);
            if (Stage::Instantiate as c_int..=Stage::Execute as c_int).contains(&given.stage) {
                return Ok(given);
            }
        }
    }
    Err(error(
        UNIMPLEMENTED,
        "states by stages alone: build the handler with the headers of JAX 0.10 or newer",
    ))
}

unsafe extern "C" fn state_set(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `state` and `run`.
    unsafe {
        let given = match state(arguments) {
            Ok(given) => given,
            Err(error) => return error,
        };
        let Some(run) = run(given.context) else { return no_run() };
        if run.set_state(given.stage, *given.id, given.state) {
            return std::ptr::null_mut();
        }
    }
    error(INVALID_ARGUMENT, "the stage has a state already, or can have none")
}

unsafe extern "C" fn state_get(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `state` and `run`.
    unsafe {
        let given = match state(arguments) {
            Ok(given) => given,
            Err(error) => return error,
        };
        let Some(run) = run(given.context) else { return no_run() };
        match run.state(given.stage, *given.id) {
            Ok(state) => {
                given.state = state;
                std::ptr::null_mut()
            }
            Err(message) => error(NOT_FOUND, message),
        }
    }
}

unsafe extern "C" fn memory_allocate(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read` and `run`.
    unsafe {
        let given = read::<abi::Allocate>(arguments);
        let Some(run) = run(given.context) else { return no_run() };
        given.data = run.allocate(given.bytes, given.alignment);
        if given.data.is_null() {
            return error(RESOURCE_EXHAUSTED, &format!("{} bytes of scratch memory", given.bytes));
        }
    }
    std::ptr::null_mut()
}

unsafe extern "C" fn memory_free(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read` and `run`.
    unsafe {
        let given = read::<abi::Free>(arguments);
        let Some(run) = run(given.context) else { return no_run() };
        if run.free(given.data) { std::ptr::null_mut() } else { error(INVALID_ARGUMENT, "memory of no run") }
    }
}

unsafe extern "C" fn pool_schedule(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read` and `run`.
    unsafe {
        let given = read::<abi::Schedule>(arguments);
        let Some(run) = run(given.context) else { return no_run() };
        run.schedule(given.task, given.data);
    }
    std::ptr::null_mut()
}

unsafe extern "C" fn pool_threads(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`; the count is where it is asked for.
    unsafe { *read::<abi::NumThreads>(arguments).count = pool::threads() as i64 };
    std::ptr::null_mut()
}

unsafe extern "C" fn future_create(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`.
    unsafe { read::<abi::FutureCreate>(arguments).future = Box::into_raw(Box::<Future>::default()).cast() };
    std::ptr::null_mut()
}

unsafe extern "C" fn future_set(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`; the future is one of ours, which lives until it is settled.
    unsafe { (*read::<abi::FutureSet>(arguments).future.cast::<Future>()).settle(Ok(())) };
    std::ptr::null_mut()
}

unsafe extern "C" fn future_fail(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`; future and error are ours, and the error is given up.
    unsafe {
        let given = read::<abi::FutureFail>(arguments);
        let message = take_error(given.error).unwrap_or_default();
        (*given.future.cast::<Future>()).settle(Err(message));
    }
    std::ptr::null_mut()
}

unsafe extern "C" fn run_id(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read` and `run`.
    unsafe {
        let given = read::<abi::RunId>(arguments);
        let Some(run) = run(given.context) else { return no_run() };
        given.id = run.run;
    }
    std::ptr::null_mut()
}

unsafe extern "C" fn device(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`.
    unsafe { read::<abi::DeviceOrdinal>(arguments).ordinal = 0 };
    std::ptr::null_mut()
}

/// Calls have no extensions: null is found, of whatever kind is asked for.
unsafe extern "C" fn find_extension(arguments: *mut c_void) -> *mut c_void {
    // SAFETY: see `read`.
    unsafe { read::<abi::FindExtension>(arguments).found = std::ptr::null() };
    std::ptr::null_mut()
}

/// Runs have no options beside the attributes of their calls.
unsafe extern "C" fn custom_options(arguments: *mut c_void) -> *mut c_void {
    static NONE: abi::Attributes = empty_attributes();
    // SAFETY: see `read`.
    unsafe { read::<abi::CustomOptions>(arguments).attributes = &raw const NONE };
    std::ptr::null_mut()
}
