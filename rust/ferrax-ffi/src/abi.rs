//! The layout of call frames and of the table of functions, as C sees them.
//!
//! Invariant: fields are those of the interface in its order, and `size` is that up to the last field that
//! the version of who fills it in has. Source: `xla/ffi/api/c_api.h` of XLA, versions 0.1 to 0.5, whose layout
//! is public.

use std::ffi::{c_char, c_int, c_void};

/// The version that all this is of. Handlers built for older ones, from 0.1 on, find what they know.
pub const MAJOR: c_int = 0;
pub const MINOR: c_int = 5;
/// The version that handlers of this crate are built for: states have stages from it on, and JAX 0.10 has it.
pub const HANDLERS_MINOR: c_int = 3;

#[repr(C)]
pub struct Extension {
    pub size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

/// The extension by which a handler is asked what it is.
pub const METADATA: c_int = 1;

#[repr(C)]
pub struct Version {
    pub size: usize,
    pub extension: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

#[repr(C)]
pub struct Metadata {
    pub size: usize,
    pub version: Version,
    pub traits: u32,
    pub state_type: i64,
}

#[repr(C)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Span {
    pub pointer: *const c_char,
    pub length: usize,
}

#[repr(C)]
pub struct Buffer {
    pub size: usize,
    pub extension: *mut Extension,
    pub dtype: c_int,
    pub data: *mut c_void,
    pub rank: i64,
    pub dims: *mut i64,
}

#[repr(C)]
pub struct Scalar {
    pub dtype: c_int,
    pub value: *mut c_void,
}

#[repr(C)]
pub struct Array {
    pub dtype: c_int,
    pub length: usize,
    pub data: *mut c_void,
}

/// Operands, or results.
#[repr(C)]
pub struct Operands {
    pub size: usize,
    pub extension: *mut Extension,
    pub count: i64,
    pub kinds: *mut c_int,
    pub items: *mut *mut c_void,
}

/// The kind of an operand: there is one.
pub const BUFFER: c_int = 1;

#[repr(C)]
pub struct Attributes {
    pub size: usize,
    pub extension: *mut Extension,
    pub count: i64,
    pub kinds: *mut c_int,
    pub names: *mut *mut Span,
    pub items: *mut *mut c_void,
}

pub const ARRAY: c_int = 1;
pub const DICTIONARY: c_int = 2;
pub const SCALAR: c_int = 3;
pub const STRING: c_int = 4;

/// When a handler is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Stage {
    Instantiate = 0,
    Prepare = 1,
    Initialize = 2,
    Execute = 3,
}

#[repr(C)]
pub struct CallFrame {
    pub size: usize,
    pub extension: *mut Extension,
    pub api: *const Table,
    pub context: *mut c_void,
    pub stage: c_int,
    pub operands: Operands,
    pub results: Operands,
    pub attributes: Attributes,
    pub future: *mut c_void,
}

/// A handler: null, or an error that the caller takes.
pub type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut c_void;

/// A function of the table: what it takes begins with its size and a pointer to an extension.
pub type Function = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
/// One that gives nothing.
pub type Quiet = unsafe extern "C" fn(*mut c_void);

#[repr(C)]
pub struct Table {
    pub size: usize,
    pub extension: *mut Extension,
    pub version: Version,
    pub internal: *const c_void,
    pub error_create: Function,
    pub error_message: Quiet,
    pub error_destroy: Quiet,
    pub handler_register: Function,
    pub stream_get: Function,
    pub type_register: Function,
    pub context_get: Function,
    pub state_set: Function,
    pub state_get: Function,
    pub memory_allocate: Function,
    pub memory_free: Function,
    pub pool_schedule: Function,
    pub pool_threads: Function,
    pub future_create: Function,
    pub future_set: Function,
    pub future_fail: Function,
    pub run_id: Function,
    pub device: Function,
    pub find_extension: Function,
    pub custom_options: Function,
}

// SAFETY: it holds functions and numbers alone; the pointers are null.
unsafe impl Sync for Table {}
// SAFETY: one that is shared is empty, see `table`: its pointers are null.
unsafe impl Sync for Attributes {}

macro_rules! arguments {
    ($($name:ident { $($field:ident: $ty:ty),* $(,)? })*) => {
        $(#[repr(C)]
        pub struct $name { pub size: usize, pub extension: *mut Extension, $(pub $field: $ty),* })*
    };
}

arguments! {
    ErrorCreate { message: *const c_char, code: c_int }
    ErrorMessage { error: *mut c_void, message: *const c_char, code: c_int }
    ErrorDestroy { error: *mut c_void }
    TypeInfo { deleter: Option<unsafe extern "C" fn(*mut c_void)> }
    TypeRegister { name: Span, id: *mut i64, info: *const TypeInfo }
    State { context: *mut c_void, stage: c_int, id: *mut i64, state: *mut c_void }
    Allocate { context: *mut c_void, bytes: usize, alignment: usize, data: *mut c_void }
    Free { context: *mut c_void, bytes: usize, data: *mut c_void }
    Schedule { context: *mut c_void, task: unsafe extern "C" fn(*mut c_void), data: *mut c_void }
    NumThreads { context: *mut c_void, count: *mut i64 }
    FutureCreate { future: *mut c_void }
    FutureSet { future: *mut c_void }
    FutureFail { future: *mut c_void, error: *mut c_void }
    RunId { context: *mut c_void, id: i64 }
    DeviceOrdinal { context: *mut c_void, ordinal: i32 }
    FindExtension { context: *mut c_void, kind: i64, found: *const c_void }
    CustomOptions { context: *mut c_void, attributes: *const Attributes }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    /// Sizes and places as a C compiler gives them.
    #[test]
    fn layouts() {
        assert_eq!((size_of::<Extension>(), size_of::<Version>(), size_of::<Metadata>()), (24, 24, 48));
        assert_eq!((size_of::<Buffer>(), size_of::<Operands>(), size_of::<Attributes>()), (48, 40, 48));
        assert_eq!(std::mem::offset_of!(CallFrame, operands), 40);
        assert_eq!(std::mem::offset_of!(CallFrame, future), 168);
        assert_eq!(std::mem::offset_of!(Table, error_create), 48);
        assert_eq!(size_of::<Table>(), 48 + 20 * 8);
        assert_eq!(size_of::<State>(), 48);
        assert_eq!((size_of::<FindExtension>(), size_of::<CustomOptions>()), (40, 32));
    }
}
