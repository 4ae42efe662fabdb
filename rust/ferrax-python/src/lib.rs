//! `ferrax._core`: the extension module behind the Python package.

pub mod tree;

use pyo3::prelude::*;

#[pymodule]
mod _core {
    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::tree::register(module)
    }
}
