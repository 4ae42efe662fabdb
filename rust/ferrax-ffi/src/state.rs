//! Types of states, which the caller keeps for handlers.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicI64;

use crate::abi;

/// A type of states, which [`ffi_state!`](crate::ffi_state) declares. A state is made for each compiled function by
/// a handler for the stage "instantiate", shared by all calls of that, and dropped with it.
///
/// # Safety
/// The id is of this type alone.
pub unsafe trait State: Send + Sync + 'static {
    /// The number that the caller knows the type by, which it writes; 0 until it is registered.
    fn id() -> &'static AtomicI64;
}

/// Declares that handlers keep states of a type, and exports two functions that give the addresses of its id and of
/// what says how it is dropped, for `register_ffi_type`.
///
/// ```
/// struct Counter(std::sync::atomic::AtomicI64);
/// ferrax_ffi::ffi_state!(Counter, counter_id, counter_info);
/// ```
#[macro_export]
macro_rules! ffi_state {
    ($ty:ty, $id:ident, $info:ident) => {
        // SAFETY: the number is in the function, so that no other type has it.
        unsafe impl $crate::State for $ty {
            fn id() -> &'static ::std::sync::atomic::AtomicI64 {
                static ID: ::std::sync::atomic::AtomicI64 = ::std::sync::atomic::AtomicI64::new(0);
                &ID
            }
        }

        /// The address of the type's id.
        #[unsafe(no_mangle)]
        pub extern "C" fn $id() -> *mut i64 {
            <$ty as $crate::State>::id().as_ptr()
        }

        /// The address of what says how a state is dropped.
        #[unsafe(no_mangle)]
        pub extern "C" fn $info() -> *const $crate::abi::TypeInfo {
            static INFO: $crate::state::SharedInfo = $crate::state::SharedInfo::of::<$ty>();
            INFO.get()
        }
    };
}

/// How states of a type are dropped.
pub struct SharedInfo(abi::TypeInfo);

// SAFETY: it holds a function and a null pointer, and nobody writes it.
unsafe impl Sync for SharedInfo {}

impl SharedInfo {
    #[must_use]
    pub const fn of<T: State>() -> SharedInfo {
        unsafe extern "C" fn drop_state<T>(state: *mut c_void) {
            // A drop that panics must not unwind into C.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                // SAFETY: states of this type are boxes that `handler::instantiate` gave away; each comes back once.
                drop(unsafe { Box::from_raw(state.cast::<T>()) });
            }));
        }
        SharedInfo(abi::TypeInfo {
            size: size_of::<abi::TypeInfo>(),
            extension: std::ptr::null_mut(),
            deleter: Some(drop_state::<T>),
        })
    }

    #[must_use]
    pub fn get(&self) -> *const abi::TypeInfo {
        &raw const self.0
    }
}
