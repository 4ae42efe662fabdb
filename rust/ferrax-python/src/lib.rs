//! `ferrax._core`: the extension module behind the Python package.
//!
//! | module | holds |
//! |---|---|
//! | `array`, `operators` | the array class, its operators and conversions |
//! | `indexing` | `x[i]` and `x.at[i].set(v)` for static indices |
//! | `convert`, `dtypes`, `promote` | Python values as operands, dtypes, promotion |
//! | `dlpack` | arrays shared with other libraries |
//! | `trace` | the trace stack: frames that record ops |
//! | `eager` | ops outside any trace |
//! | `elementwise`, `bind` | functions of the NumPy and lax layers |
//! | `functions` | those of them that are one op, from the op rows |
//! | `pairwise` | ops on two concrete operands, remembered by their types |
//! | `program`, `jit`, `cache` | programs, transformed and called; compiled functions |
//! | `memory_plan` | what a plan does with memory, for Python |
//! | `control` | bodies of loops and branches |
//! | `custom` | the user's derivative rules |
//! | `checks`, `nans`, `key_reuse` | settings that look at values and at keys; errors about NaNs and infinities |
//! | `checkpoint` | checkpointed calls and their policies |
//! | `primitive` | primitives and callbacks that are defined in Python |
//! | `export` | programs as bytes |
//! | `tree` | pytrees |
//! | `process`, `persistent` | threads and memory of the process; programs on disk |
//! | `profiler` | what ran when |
//! | `once` | what is made once, also where processes fork |
//! | `source`, `errors`, `tracebacks`, `interrupt` | the user's line, exceptions, what frames they show, Ctrl-C |

pub mod array;
pub mod bind;
pub mod cache;
pub mod checkpoint;
pub mod checks;
pub mod control;
pub mod convert;
pub mod custom;
#[allow(unsafe_op_in_unsafe_fn, reason = "wrappers that pyo3 generates are spanned to the macro in it")]
pub mod devices;
pub mod dims;
pub mod dlpack;
pub mod drops;
pub mod dtypes;
pub mod eager;
pub mod elementwise;
pub mod errors;
pub mod export;
pub mod ffi;
pub mod functions;
pub mod indexing;
pub mod interrupt;
pub mod jit;
pub mod key_reuse;
pub mod memory_plan;
pub mod nans;
mod once;
#[allow(unsafe_op_in_unsafe_fn, reason = "wrappers that pyo3 generates are spanned to the macro in it")]
pub mod operators;
pub mod pairwise;
pub mod params;
pub mod persistent;
pub mod placement;
pub mod primitive;
pub mod process;
pub mod profiler;
pub mod program;
pub mod promote;
pub mod source;
pub mod spmd;
pub mod trace;
pub mod tracebacks;
pub mod tree;

use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        ferrax_cpu::Cpu::of_process().map_err(|error| crate::errors::to_py(py, error))?;
        ferrax_cpu::hold_through_forks(crate::drops::hold);
        ferrax_cpu::protect_forks();
        ferrax_cpu::set_interrupt_check(crate::interrupt::check);
        crate::tree::register(module)?;
        crate::bind::register(module)?;
        crate::export::register(module)?;
        crate::profiler::register(module)?;
        let ufuncs = PyModule::new(py, "ferrax._core.ufuncs")?;
        crate::elementwise::numpy_mixed::register(&ufuncs)?;
        module.add("ufuncs", &ufuncs)?;
        let lax = PyModule::new(py, "ferrax._core.lax")?;
        crate::elementwise::lax_mixed::register(&lax)?;
        crate::functions::register(&ufuncs, &lax)?;
        module.add_function(wrap_pyfunction!(crate::functions::op_rows, module)?)?;
        module.add("lax", &lax)?;
        let modules = py.import("sys")?.getattr("modules")?;
        modules.set_item("ferrax._core.ufuncs", ufuncs)?;
        modules.set_item("ferrax._core.lax", lax)?;
        let os = py.import("os")?;
        if os.hasattr("register_at_fork")? {
            let before = PyDict::new(py);
            before.set_item("before", module.getattr("settle")?)?;
            os.call_method("register_at_fork", (), Some(&before))?;
        }
        Ok(())
    }
}
