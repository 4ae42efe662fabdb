//! Machine code that this process makes and runs.
//!
//! It is made where the processor has AVX2 and FMA, the system gives memory for it, and `FERRAX_CPU` does not say `vm`;
//! everywhere else the vector VM runs all. Both give the same bits.

mod arena;
#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use ferrax_compile::native::Native;
use ferrax_ir::paths::Path;
use ferrax_ir::{Result, value_error};

use self::arena::Block;
pub(crate) use self::arena::{Held, hold, in_child};

const VARIABLE: &str = "FERRAX_CPU";

/// What the environment says of machine code. Errors: it says something unknown, or asks for what is not there.
pub fn is_wanted() -> Result<bool> {
    static SAID: OnceLock<Result<bool>> = OnceLock::new();
    SAID.get_or_init(|| {
        match std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned()).as_deref() {
            None | Some("") => Ok(is_possible()),
            Some("vm") => Ok(false),
            Some("avx2") if is_possible() => Ok(true),
            Some("avx2") => Err(value_error!(
                "{VARIABLE} is 'avx2', but this machine has no AVX2 and FMA on Linux: use 'vm'"
            )),
            Some(other) => Err(value_error!("{VARIABLE} expected 'avx2' or 'vm', got '{other}'")),
        }
    })
    .clone()
}

/// Whether this machine runs what is emitted.
fn is_possible() -> bool {
    cfg!(all(target_arch = "x86_64", target_os = "linux")) && crate::vm::isa::has_avx2()
}

/// A function in memory that can be executed.
#[derive(Debug)]
pub struct Function {
    block: Block,
    pointers: usize,
}

impl Function {
    /// Makes a function; none where it cannot be.
    pub fn new(native: &Native, pointers: usize) -> Result<Option<Function>> {
        if !is_wanted()? {
            return Ok(None);
        }
        #[cfg(target_arch = "x86_64")]
        let block = arena::publish(&ferrax_x86::emit(native, pointers, &calls::Calls)?);
        #[cfg(not(target_arch = "x86_64"))]
        let block: Option<Block> = None;
        Path::NativeRefused.take_if(block.is_none());
        Ok(block.map(|block| Function { block, pointers }))
    }

    /// Bytes of its code.
    pub fn bytes(&self) -> usize {
        self.block.bytes()
    }

    /// Runs it over a table of pointers; whether it came to its end, and was not stopped.
    ///
    /// # Safety
    /// Each pointer is valid for all that the function reads and writes there.
    pub unsafe fn run(&self, table: &[*mut u8]) -> Result<bool> {
        if table.len() != self.pointers {
            return Err(ferrax_ir::internal_error!("{} pointers for {}", table.len(), self.pointers));
        }
        // SAFETY: the block holds the code of a function of this type, which was emitted for as many pointers as the
        // table has; the caller promises what is behind them.
        let stopped = unsafe { self.block.call(table.as_ptr()) };
        Ok(stopped == 0)
    }
}
