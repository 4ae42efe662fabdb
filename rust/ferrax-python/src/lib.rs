//! `ferrax._core`: the extension module behind the Python package.

use pyo3::prelude::*;

#[pymodule]
mod _core {}
