//! Key classes: one entry of the path from a tree's root to a leaf. Immutable, hashable, equal
//! only to keys of the same class.

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use pyo3::{PyTraverseError, PyVisit};

/// Equality by class and content; ordering is not defined.
fn compare<T>(
    this: &T,
    other: &Bound<'_, PyAny>,
    op: CompareOp,
    equal: impl FnOnce(&T, &T) -> PyResult<bool>,
) -> PyResult<Py<PyAny>>
where
    T: pyo3::PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync,
{
    let py = other.py();
    let wanted = match op {
        CompareOp::Eq => true,
        CompareOp::Ne => false,
        _ => return Ok(py.NotImplemented()),
    };
    match other.cast::<T>() {
        Ok(other) => {
            let result = equal(this, other.get())? == wanted;
            Ok(result.into_pyobject(py)?.to_owned().into_any().unbind())
        }
        Err(_) => Ok(py.NotImplemented()),
    }
}

/// Mixes the class into the hash of the content, so that `SequenceKey(1)` and
/// `FlattenedIndexKey(1)` differ.
fn mix(hash: isize, salt: isize) -> isize {
    hash.wrapping_mul(1_000_003) ^ salt
}

macro_rules! key_class {
    ($(#[$doc:meta])* $name:ident, $field:ident, $field_name:literal, $value:ty, $salt:literal,
     $display:expr) => {
        $(#[$doc])*
        #[pyclass(frozen, module = "ferrax.tree_util")]
        pub struct $name {
            #[pyo3(get)]
            $field: Py<$value>,
        }

        impl $name {
            pub fn create<'py>(
                py: Python<'py>,
                $field: Bound<'py, $value>,
            ) -> PyResult<Bound<'py, PyAny>> {
                Ok(Bound::new(py, Self { $field: $field.unbind() })?.into_any())
            }
        }

        #[pymethods]
        impl $name {
            #[new]
            fn new($field: Py<$value>) -> Self {
                Self { $field }
            }

            #[classattr]
            fn __match_args__() -> (&'static str,) {
                ($field_name,)
            }

            fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
                let value = self.$field.bind(py).repr()?;
                Ok(format!("{}({}={})", stringify!($name), $field_name, value.to_cow()?))
            }

            fn __str__(&self, py: Python<'_>) -> PyResult<String> {
                let display: fn(&Bound<'_, PyAny>) -> PyResult<String> = $display;
                display(self.$field.bind(py).as_any())
            }

            fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
                Ok(mix(self.$field.bind(py).hash()?, $salt))
            }

            fn __richcmp__(
                &self,
                other: &Bound<'_, PyAny>,
                op: CompareOp,
            ) -> PyResult<Py<PyAny>> {
                let py = other.py();
                compare(self, other, op, |a, b| {
                    a.$field.bind(py).as_any().eq(b.$field.bind(py))
                })
            }

            fn __reduce__<'py>(
                slf: &Bound<'py, Self>,
            ) -> (Bound<'py, PyType>, (Py<$value>,)) {
                (slf.get_type(), (slf.get().$field.clone_ref(slf.py()),))
            }
        }
    };
}

key_class!(
    /// The key of a dict entry; prints as `['key']`.
    ///
    /// Example:
    ///     >>> ferrax.tree_util.DictKey("a").key, str(ferrax.tree_util.DictKey("a"))
    ///     ('a', "['a']")
    DictKey, key, "key", PyAny, 0x51,
    |key| Ok(format!("[{}]", key.repr()?.to_cow()?))
);

#[pymethods]
impl DictKey {
    /// The key of a dict may be any object; those of the other classes refer to nothing.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.key)
    }
}

key_class!(
    /// The index of a list or tuple item; prints as `[idx]`.
    ///
    /// Example:
    ///     >>> ferrax.tree_util.SequenceKey(2).idx, str(ferrax.tree_util.SequenceKey(2))
    ///     (2, '[2]')
    SequenceKey, idx, "idx", pyo3::types::PyInt, 0x52,
    |idx| Ok(format!("[{}]", idx.repr()?.to_cow()?))
);
key_class!(
    /// The name of an attribute; prints as `.name`.
    ///
    /// Example:
    ///     >>> ferrax.tree_util.GetAttrKey("x").name, str(ferrax.tree_util.GetAttrKey("x"))
    ///     ('x', '.x')
    GetAttrKey, name, "name", PyString, 0x53,
    |name| Ok(format!(".{}", name.str()?.to_cow()?))
);
key_class!(
    /// The position of a child in a container registered without keys.
    ///
    /// Example:
    ///     >>> ferrax.tree_util.FlattenedIndexKey(2).key, str(ferrax.tree_util.FlattenedIndexKey(2))
    ///     (2, '[<flat index 2>]')
    FlattenedIndexKey, key, "key", pyo3::types::PyInt, 0x54,
    |key| Ok(format!("[<flat index {}>]", key.repr()?.to_cow()?))
);
