//! Machine code that this process makes and runs.
//!
//! It is made where the processor has AVX2 and FMA, the system gives memory for it, and `FERRAX_CPU` does not say `vm`;
//! everywhere else the vector VM runs all. Both give the same bits. What there is: small loops as one function
//! ([`Function`]), and what kernels do to blocks, of AVX-512 where the processor has it ([`ChainFunction`]).

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is no code to publish"))]
mod arena;
#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(test)]
mod chain_tests;
mod chains;
#[cfg(test)]
mod lanes_tests;
mod listing;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use ferrax_compile::native::Native;
use ferrax_ir::paths::Path;
use ferrax_ir::{Result, value_error};
pub use ferrax_x86::Isa;

use self::arena::Block;
pub use self::chains::ChainFunction;
pub use self::listing::{Listing, listed};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::vm;

const VARIABLE: &str = "FERRAX_CPU";

/// The instructions that machine code is made of here; none where none is to be made. Errors: the environment says
/// something unknown, or asks for what is not there.
pub fn wanted() -> Result<Option<Isa>> {
    static SAID: OnceLock<Result<Option<Isa>>> = OnceLock::new();
    SAID.get_or_init(|| {
        let best = best();
        match std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned()).as_deref() {
            None | Some("") => Ok(best),
            Some("vm") => Ok(None),
            Some("avx2") if best.is_some() => Ok(Some(Isa::Avx2)),
            Some("avx512") if best == Some(Isa::Avx512) => Ok(best),
            Some("avx2") => Err(value_error!(
                "{VARIABLE} is 'avx2', but this machine has no AVX2 and FMA on Linux: use 'vm'"
            )),
            Some("avx512") => Err(value_error!(
                "{VARIABLE} is 'avx512', but this machine has no AVX-512 (F, BW, DQ, VL, CD) on Linux: use 'avx2' or 'vm'"
            )),
            Some(other) => {
                Err(value_error!("{VARIABLE} expected 'avx512', 'avx2' or 'vm', got '{other}'"))
            }
        }
    })
    .clone()
}

/// The instructions of this machine, if there are any that are emitted.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn best() -> Option<Isa> {
    match vm::isa::isa() {
        vm::isa::Isa::Baseline => None,
        vm::isa::Isa::Avx2 => Some(Isa::Avx2),
        vm::isa::Isa::Avx512 => Some(Isa::Avx512),
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn best() -> Option<Isa> {
    None
}

/// The locks of this module.
pub(crate) struct Held {
    open: arena::Open,
    _known: Box<dyn std::any::Any>,
}

/// Holds them through a fork.
pub(crate) fn hold() -> Held {
    // Settled before a fork, as all that is made once.
    let _ = wanted();
    Held { _known: Box::new(chains::known()), open: arena::hold() }
}

/// In a child of a fork, which makes code in memory of its own.
pub(crate) fn in_child(held: &mut Held) {
    held.open.forget();
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
        if wanted()?.is_none() {
            return Ok(None);
        }
        #[cfg(target_arch = "x86_64")]
        let block = arena::publish(&ferrax_x86::emit(native, pointers, &calls::Calls)?);
        #[cfg(not(target_arch = "x86_64"))]
        let block: Option<Block> = {
            let _ = native;
            None
        };
        Path::NativeRefused.take_if(block.is_none());
        if let Some(block) = &block {
            let name = || format!("loop of {} instructions", native.code.len());
            listing::published(block, name);
            listing::met(block, name);
        }
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
