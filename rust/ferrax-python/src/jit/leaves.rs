//! Leaves of a call's arguments that are no arrays: they become nodes of trees.

use pyo3::prelude::*;

use crate::array::Array;
use crate::once::intern;

/// Whether a leaf is a tangent of integers: a NumPy array that has a shape and no values.
pub(super) fn is_float0(leaf: &Bound<'_, PyAny>) -> bool {
    !leaf.is_instance_of::<Array>()
        && leaf
            .getattr(intern!(leaf.py(), "dtype"))
            .and_then(|dtype| dtype.getattr(intern!(leaf.py(), "names")))
            .is_ok_and(|names| !names.is_none())
}

/// The tree with nodes without leaves for its arrays of dtype float0, which programs know nothing of.
pub(super) fn hide_float0<'py>(py: Python<'py>, tree: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "ferrax._src.core.float0"))?.getattr("hide")?.call1((tree,))
}

/// The tree with nodes, whose leaves are mutable arrays, for views of these; itself if it has none.
pub(super) fn open_views<'py>(py: Python<'py>, tree: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "ferrax._src.state"))?.getattr("opened")?.call1((tree,))
}
