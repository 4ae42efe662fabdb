//! The function that the caller sees: it answers what it was built for, makes errors of errors and panics, and keeps
//! states.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use crate::abi::{self, CallFrame, METADATA, MetadataExtension};
use crate::call::Call;
use crate::error::{Code, Error, Result, raise};
use crate::state::State;

/// Makes `pub fn name(call: &Call<'_>) -> Result<()>` the handler `name` of the library; with `instantiate` before
/// it and a [`State`] in the result, what makes states.
///
/// ```
/// use ferrax_ffi::{Call, Result, ffi_handler};
///
/// ffi_handler! {
///     pub fn negated(call: &Call<'_>) -> Result<()> {
///         let x = call.operand::<f32>(0)?;
///         call.result::<f32>(0)?.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = -x);
///         Ok(())
///     }
/// }
/// ```
#[macro_export]
macro_rules! ffi_handler {
    ($(#[$meta:meta])* instantiate $vis:vis fn $name:ident($call:ident: $ty:ty) -> $out:ty $body:block) => {
        $crate::ffi_handler!(@ instantiate $(#[$meta])* $vis fn $name($call: $ty) -> $out $body);
    };
    ($(#[$meta:meta])* $vis:vis fn $name:ident($call:ident: $ty:ty) -> $out:ty $body:block) => {
        $crate::ffi_handler!(@ execute $(#[$meta])* $vis fn $name($call: $ty) -> $out $body);
    };
    (@ $stage:ident $(#[$meta:meta])* $vis:vis fn $name:ident($call:ident: $ty:ty) -> $out:ty $body:block) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// The frame is one of a caller of foreign functions.
        #[unsafe(no_mangle)]
        $vis unsafe extern "C" fn $name(frame: *mut $crate::abi::CallFrame) -> *mut ::std::ffi::c_void {
            fn handler($call: $ty) -> $out $body
            // SAFETY: the frame is the caller's, as this function says.
            unsafe { $crate::handler::$stage(frame, handler) }
        }
    };
}

/// Whether a frame asks what the handler was built for; that is answered then.
///
/// # Safety
/// The frame is a caller's.
unsafe fn asked(frame: &CallFrame, state: i64) -> bool {
    let mut extension = frame.extension;
    // SAFETY: a list of extensions, of which those of this kind are followed by where the answer goes.
    unsafe {
        while let Some(one) = extension.as_ref() {
            if one.kind == METADATA {
                let metadata = (*extension.cast::<MetadataExtension>()).metadata;
                (*metadata).version.major = abi::MAJOR;
                (*metadata).version.minor = abi::HANDLERS_MINOR;
                (*metadata).traits = 0;
                // The type of states came with a later version.
                if (*metadata).size > offset_of!(abi::Metadata, state_type) {
                    (*metadata).state_type = state;
                }
                return true;
            }
            extension = one.next;
        }
    }
    false
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("the handler panicked: {}", text.unwrap_or("no message")))
}

/// # Safety
/// The frame is a caller's, for as long as the function runs.
unsafe fn call<T>(
    frame: *mut CallFrame,
    run: impl FnOnce(&Call<'_>) -> Result<T>,
) -> std::result::Result<T, *mut c_void> {
    // SAFETY: as the caller says.
    unsafe {
        let frame = &*frame;
        // Functions up to those for states are asked for: the version of the table says that they are there.
        let version = &(*frame.api).version;
        if version.major != abi::MAJOR || version.minor < abi::HANDLERS_MINOR {
            let (major, minor) = (version.major, version.minor);
            let message =
                format!("the handler needs version 0.3 of the interface, the caller has {major}.{minor}");
            return Err(raise(frame.api, &Error::new(Code::FailedPrecondition, message)));
        }
        let one = Call::new(frame);
        match catch_unwind(AssertUnwindSafe(|| run(&one))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(raise(frame.api, &error)),
            Err(panic) => Err(raise(frame.api, &panicked(&*panic))),
        }
    }
}

/// What a handler does: it answers, or runs the function.
///
/// # Safety
/// The frame is a caller's, for as long as the function runs.
pub unsafe fn execute(frame: *mut CallFrame, handler: fn(&Call<'_>) -> Result<()>) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe {
        if asked(&*frame, 0) {
            return std::ptr::null_mut();
        }
        call(frame, handler).err().unwrap_or(std::ptr::null_mut())
    }
}

/// What a handler for the stage "instantiate" does: it answers, or keeps the state that the function makes.
///
/// # Safety
/// The frame is a caller's, for as long as the function runs.
pub unsafe fn instantiate<T: State>(
    frame: *mut CallFrame,
    handler: fn(&Call<'_>) -> Result<T>,
) -> *mut c_void {
    // SAFETY: as the caller says. A state that is not kept is ours again.
    unsafe {
        let (api, context) = ((*frame).api, (*frame).context);
        let id = T::id().load(Ordering::Relaxed);
        if id == 0 {
            let message = format!(
                "the type of states {} is not registered: register_ffi_type comes before register_ffi_target",
                std::any::type_name::<T>()
            );
            return raise(api, &Error::new(Code::FailedPrecondition, message));
        }
        if asked(&*frame, id) {
            return std::ptr::null_mut();
        }
        let state = match call(frame, handler) {
            Ok(state) => Box::into_raw(Box::new(state)),
            Err(error) => return error,
        };
        let mut arguments = abi::State {
            size: size_of::<abi::State>(),
            extension: std::ptr::null_mut(),
            context,
            stage: abi::Stage::Instantiate as c_int,
            id: T::id().as_ptr(),
            state: state.cast(),
        };
        let error = ((*api).state_set)((&raw mut arguments).cast());
        if !error.is_null() {
            drop(Box::from_raw(state));
        }
        error
    }
}
