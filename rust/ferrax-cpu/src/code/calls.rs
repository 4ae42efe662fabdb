//! What emitted code calls.

use ferrax_ir::Result;
use ferrax_ir::internal_error;
use ferrax_ir::scalar::{ScalarOp, ScalarType};
use ferrax_x86::Runtime;

use crate::interrupt;
use crate::vm::isa::BlockFn;
use crate::vm::ops::block_fn;

/// Bytes of work that the steps between two questions count for.
const WORK: usize = 1 << 20;

pub struct Calls;

extern "sysv64" fn stops() -> u32 {
    u32::from(interrupt::interrupted(WORK))
}

/// # Safety
/// As [`BlockFn`], of one element; the address is that of one.
unsafe extern "sysv64" fn one(
    function: *const (),
    result: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
) {
    // SAFETY: as this function's own contract says.
    unsafe {
        let function: BlockFn = std::mem::transmute(function);
        function(1, result, a, b, c);
    }
}

impl Runtime for Calls {
    fn stops(&self) -> u64 {
        stops as *const () as u64
    }

    fn one(&self) -> u64 {
        one as *const () as u64
    }

    fn operation(&self, op: ScalarOp, result: ScalarType, argument: ScalarType) -> Result<u64> {
        let function = block_fn(op, result, argument, [false; 3])?;
        let function =
            function.ok_or_else(|| internal_error!("no block function of {op:?} for {argument:?}"))?;
        Ok(function as *const () as u64)
    }
}
