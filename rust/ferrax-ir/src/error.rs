//! One error type for the IR and all that stands on it.
//!
//! Each variant maps to one Python exception class at the binding. Texts say
//! what was got, what was expected and what to do.

/// Why an operation on a program, type or tensor was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Operand dtypes or kinds that an op does not accept (Python `TypeError`).
    #[error("{0}")]
    Type(String),
    /// Shapes, axes or parameters out of their domain (Python `ValueError`).
    #[error("{0}")]
    Value(String),
    /// An index or slice out of range (Python `IndexError`).
    #[error("{0}")]
    Index(String),
    /// A number that does not fit its type (Python `OverflowError`).
    #[error("{0}")]
    Overflow(String),
    /// A mapped axis that there is none of (Python `NameError`).
    #[error("{0}")]
    Name(String),
    /// A rule that does not exist for this op (Python `NotImplementedError`).
    #[error("{0}")]
    Unsupported(String),
    /// An allocation that the system refused (Python `MemoryError`).
    #[error("{0}")]
    Memory(String),
    /// A device that is lost, or out of this process's reach (Python `JaxRuntimeError`).
    #[error("{0}")]
    Device(String),
    /// A run that the host stopped (Python `KeyboardInterrupt`, or what a signal handler raised).
    #[error("{0}")]
    Interrupted(String),
    /// Text or bytes that are not a valid program.
    #[error("{0}")]
    Parse(String),
    /// A broken invariant of this library: always a bug here, never the user's.
    #[error("internal error: {0}; please report this with the program that caused it")]
    Internal(String),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Builds an [`Error::Type`] from a format string.
#[macro_export]
macro_rules! type_error { ($($arg:tt)*) => { $crate::Error::Type(format!($($arg)*)) }; }
/// Builds an [`Error::Value`] from a format string.
#[macro_export]
macro_rules! value_error { ($($arg:tt)*) => { $crate::Error::Value(format!($($arg)*)) }; }
/// Builds an [`Error::Index`] from a format string.
#[macro_export]
macro_rules! index_error { ($($arg:tt)*) => { $crate::Error::Index(format!($($arg)*)) }; }
/// Builds an [`Error::Overflow`] from a format string.
#[macro_export]
macro_rules! overflow_error { ($($arg:tt)*) => { $crate::Error::Overflow(format!($($arg)*)) }; }
/// Builds an [`Error::Unsupported`] from a format string.
#[macro_export]
macro_rules! unsupported { ($($arg:tt)*) => { $crate::Error::Unsupported(format!($($arg)*)) }; }
/// Builds an [`Error::Memory`] from a format string.
#[macro_export]
macro_rules! memory_error { ($($arg:tt)*) => { $crate::Error::Memory(format!($($arg)*)) }; }
/// Builds an [`Error::Device`] from a format string.
#[macro_export]
macro_rules! device_error { ($($arg:tt)*) => { $crate::Error::Device(format!($($arg)*)) }; }
/// Builds an [`Error::Parse`] from a format string.
#[macro_export]
macro_rules! parse_error { ($($arg:tt)*) => { $crate::Error::Parse(format!($($arg)*)) }; }
/// Builds an [`Error::Internal`] from a format string.
#[macro_export]
macro_rules! internal_error { ($($arg:tt)*) => { $crate::Error::Internal(format!($($arg)*)) }; }
