//! What executables call, whatever it is: a library op, a branch or a loop.

use std::ops::Range;

use ferrax_ir::{Result, internal_error};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// The operands of one call.
pub struct Call<'a> {
    pub inputs: &'a [*const u8],
    pub outputs: &'a [*mut u8],
    /// As many bytes as the kernel asks for, aligned as arrays are.
    pub scratch: *mut u8,
}

/// A library kernel with its sizes.
pub trait Kernel: Send + Sync + std::fmt::Debug {
    /// Bytes of scratch memory that a run needs.
    fn scratch(&self) -> usize {
        0
    }

    /// Bytes that it keeps, but for what it runs.
    fn bytes(&self) -> usize {
        size_of_val(self)
    }

    /// The programs that it runs. They may be those of other kernels, too.
    fn programs(&self) -> SmallVec<[&dyn Held; 2]> {
        SmallVec::new()
    }

    /// Computes the outputs.
    ///
    /// # Safety
    /// The operands are valid for the types that the kernel was bound with.
    /// Only the first input and the first output may be the same memory. The
    /// scratch memory is as large as asked for and nobody else's during the run.
    unsafe fn run(&self, call: &Call<'_>) -> Result<()>;

    /// Whether some rows of the output, computed alone, have the bits that they have among all.
    fn rows_alike(&self, _rows: Range<usize>) -> bool {
        true
    }

    /// Bytes that [`Kernel::prepare`] fills once for all rows, if they are computed in so many blocks; 0 if that does not
    /// pay.
    fn prepared(&self, _blocks: usize) -> usize {
        0
    }

    /// Fills the scratch memory with what [`Kernel::run_rows`] reads of operands that are not walked by rows.
    ///
    /// # Safety
    /// As `run`, for these operands; the scratch memory has as many bytes as `prepared` says.
    unsafe fn prepare(&self, _call: &Call<'_>) -> Result<()> {
        Ok(())
    }

    /// Computes some rows of the output, of an op that says how it goes by rows (`Rules::by_rows`), on this thread. The
    /// scratch memory is what was prepared, or null.
    ///
    /// # Safety
    /// As `run`, for these rows, and those of the first operand if it is walked by rows.
    unsafe fn run_rows(&self, _call: &Call<'_>, _rows: Range<usize>) -> Result<()> {
        Err(internal_error!("{self:?} does not go by rows"))
    }
}

/// A program made ready, as far as one asks what it keeps in memory.
pub trait Held {
    /// Bytes of its own; what is in `seen` has been counted.
    fn own_bytes(&self, seen: &mut FxHashSet<*const u8>) -> usize;

    /// The programs that its kernels run.
    fn inner(&self) -> Vec<&dyn Held>;
}
