//! Pytrees: nested Python containers taken apart into leaves and a `TreeDef`, and put back.
//!
//! Containers are exact `tuple`, `list`, `dict` (keys sorted) and `None`, namedtuples, and the
//! types registered in a `Registry`; class hierarchy is ignored otherwise, so a subclass of `dict`
//! is a leaf. `flatten` and `TreeDef::unflatten` are inverse to each other as long as the
//! registered functions are.
//!
//! For Rust callers (jit dispatch, trace frames): `flatten`, `flatten_with`, `TreeDef::unflatten`,
//! `TreeDef::flatten_up_to`. Python sees them through `ferrax._core.pytree`.

mod again;
mod flatten;
mod keys;
mod python;
mod registry;
mod state;
mod treedef;
mod up_to;

use pyo3::prelude::*;
use smallvec::SmallVec;

pub use flatten::{flatten, flatten_with, flatten_with_path};
pub use keys::{DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey};
pub use python::{PyTreeDef, PyTreeRegistry};
pub use registry::{Registration, RegistrationKind, Registry, RegistryOptions, default_registry};
pub use treedef::{Kind, Node, TreeDef};

/// Leaves in the order of flattening; most calls have few.
pub type Leaves = SmallVec<[Py<PyAny>; 8]>;

/// Adds the pytree classes and functions to the extension module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    python::register(module)
}
