//! Settings that look at what runs and what is traced without changing it: they are no part of the
//! key of compiled functions. Read on hot paths, so one byte a thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use ferrax_cpu::provenance::Watch;
use pyo3::prelude::*;

const NANS: u8 = 1;
const INFS: u8 = 2;
const LEAKS: u8 = 4;
const RETRACES: u8 = 8;
/// This thread follows the process.
const UNSET: u8 = u8::MAX;

thread_local! {
    static OWN: Cell<u8> = const { Cell::new(UNSET) };
}

static SHARED: AtomicU8 = AtomicU8::new(0);

fn bits() -> u8 {
    match OWN.get() {
        UNSET => SHARED.load(Ordering::Relaxed),
        own => own,
    }
}

/// What values in results are errors; `None` if all are fine.
#[inline]
pub fn values() -> Option<Watch> {
    let bits = bits();
    (bits & (NANS | INFS) != 0).then_some(Watch { nan: bits & NANS != 0, inf: bits & INFS != 0 })
}

/// Whether tracers that outlive their frame are errors.
pub fn leaks() -> bool {
    bits() & LEAKS != 0
}

/// Whether the cause of each retrace is logged.
pub fn retraces() -> bool {
    bits() & RETRACES != 0
}

/// Sets the checks of this thread or, with `shared`, of the process.
#[pyfunction]
pub fn set_checks(nans: bool, infs: bool, leaks: bool, retraces: bool, shared: bool) {
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let bits = flag(nans, NANS) | flag(infs, INFS) | flag(leaks, LEAKS) | flag(retraces, RETRACES);
    if shared { SHARED.store(bits, Ordering::Relaxed) } else { OWN.set(bits) }
}

/// This thread follows the process again.
#[pyfunction]
pub fn clear_checks() {
    OWN.set(UNSET);
}

/// Whether programs between passes and plans are verified, in the whole process.
#[pyfunction]
pub fn set_verification(on: bool) {
    ferrax_ir::verify::demand(on);
}
