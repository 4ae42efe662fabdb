//! What a handler gives that fails, a code and a message; and the caller's errors.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::mem::offset_of;

use crate::abi::{self, Table};

/// The code of an error, as `absl::StatusCode` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

/// An error of a call: a `JaxRuntimeError` in Python, whose text has the code and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub code: Code,
    pub message: String,
}

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into() }
    }

    /// The operands, results or attributes are not what the handler takes.
    pub fn invalid_argument(message: impl Into<String>) -> Error {
        Error::new(Code::InvalidArgument, message)
    }

    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(Code::Internal, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// An error of the caller's own kind.
///
/// # Safety
/// The table is a caller's.
pub(crate) unsafe fn raise(api: *const Table, error: &Error) -> *mut c_void {
    let message = CString::new(error.message.replace('\0', " ")).unwrap_or_default();
    let mut arguments = abi::ErrorCreate {
        size: size_of::<abi::ErrorCreate>(),
        extension: std::ptr::null_mut(),
        message: message.as_ptr(),
        code: error.code as c_int,
    };
    // SAFETY: as the caller says; the message is copied.
    unsafe { ((*api).error_create)((&raw mut arguments).cast()) }
}

/// An error that the caller gave, taken over.
///
/// # Safety
/// The table is a caller's, and the error null or one that its function has returned.
pub(crate) unsafe fn take_error(api: *const Table, error: *mut c_void) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    let mut asked = abi::ErrorMessage {
        // Up to the message: the code came with a later version.
        size: offset_of!(abi::ErrorMessage, code),
        extension: std::ptr::null_mut(),
        error,
        message: std::ptr::null(),
        code: 0,
    };
    let mut given_up =
        abi::ErrorDestroy { size: size_of::<abi::ErrorDestroy>(), extension: std::ptr::null_mut(), error };
    // SAFETY: as the caller says; the message ends in a zero and is copied before the error goes.
    let message = unsafe {
        ((*api).error_message)((&raw mut asked).cast());
        let message = if asked.message.is_null() {
            String::new()
        } else {
            CStr::from_ptr(asked.message).to_string_lossy().into_owned()
        };
        ((*api).error_destroy)((&raw mut given_up).cast());
        message
    };
    Err(Error::new(Code::NotFound, message))
}
