//! The types that are containers.
//!
//! Invariants: registrations are never removed or changed, so they live for the rest of the
//! process (`&'static`) and lookups take no lock. A type is registered at most once in a registry.
//! Each registration holds its type, so a type's address is not reused while it is a key.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyAttributeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};

use crate::once::intern;

/// How a registered type is taken apart and rebuilt.
pub enum RegistrationKind {
    /// Functions: `to_iterable(x) -> (children, aux)`, `from_iterable(aux, children) -> x`, and
    /// `to_iterable_with_keys(x) -> ((key, child) …, aux)`.
    Custom { to_iterable: Py<PyAny>, from_iterable: Py<PyAny>, to_iterable_with_keys: Option<Py<PyAny>> },
    /// Attributes: `data_fields` are children, `meta_fields` are aux data, and the type is called
    /// with all of them as keywords.
    Dataclass { data_fields: Vec<Py<PyString>>, meta_fields: Vec<Py<PyString>> },
}

/// One registered type.
pub struct Registration {
    pub node_type: Py<PyType>,
    pub kind: RegistrationKind,
}

impl Registration {
    /// The type's name for messages and `repr`.
    pub fn type_name(&self, py: Python<'_>) -> PyResult<String> {
        self.node_type.bind(py).getattr(intern!(py, "__name__"))?.extract()
    }
}

/// Which built-in containers a registry knows.
#[derive(Clone, Copy, Debug)]
pub struct RegistryOptions {
    pub none: bool,
    pub tuple: bool,
    pub named_tuple: bool,
    pub list: bool,
    pub dict: bool,
}

impl RegistryOptions {
    pub const ALL: Self = Self { none: true, tuple: true, named_tuple: true, list: true, dict: true };
}

/// What an object is to `flatten`; the casts are already checked.
pub enum Class<'a, 'py> {
    Leaf,
    None,
    Tuple(&'a Bound<'py, PyTuple>),
    List(&'a Bound<'py, PyList>),
    Dict(&'a Bound<'py, PyDict>),
    NamedTuple(&'a Bound<'py, PyTuple>),
    Registered(&'static Registration),
}

/// Open addressing over type addresses. Slots are written once; a full table is followed by one of
/// twice the size, and readers of the old one still see all that it held.
type Table = Box<[OnceLock<(usize, &'static Registration)>]>;

const FIRST_TABLE_BITS: usize = 7;
const TABLES: usize = 24;

pub struct Registry {
    pub options: RegistryOptions,
    tables: [OnceLock<Table>; TABLES],
    current: AtomicUsize,
    /// Registered types in order; the lock serialises writers.
    entries: Mutex<Vec<&'static Registration>>,
}

fn hash_address(address: usize, mask: usize) -> usize {
    (address.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as usize) >> 20) & mask
}

fn new_table(bits: usize) -> Table {
    (0..1usize << bits).map(|_| OnceLock::new()).collect()
}

fn insert(table: &Table, address: usize, registration: &'static Registration) {
    let mask = table.len() - 1;
    let mut index = hash_address(address, mask);
    while table[index].set((address, registration)).is_err() {
        index = (index + 1) & mask;
    }
}

impl Registry {
    pub const fn new(options: RegistryOptions) -> Self {
        Self {
            options,
            tables: [const { OnceLock::new() }; TABLES],
            current: AtomicUsize::new(0),
            entries: Mutex::new(Vec::new()),
        }
    }

    fn table(&self, index: usize) -> &Table {
        self.tables[index].get_or_init(|| new_table(FIRST_TABLE_BITS + index))
    }

    /// The registration of exactly this type.
    #[inline]
    pub fn lookup(&self, address: usize) -> Option<&'static Registration> {
        let table = self.tables[self.current.load(Ordering::Acquire)].get()?;
        let mask = table.len() - 1;
        let mut index = hash_address(address, mask);
        while let Some(&(key, registration)) = table[index].get() {
            if key == address {
                return Some(registration);
            }
            index = (index + 1) & mask;
        }
        None
    }

    /// Whether values of the type are containers.
    pub fn is_node_type(&self, node_type: &Bound<'_, PyType>) -> PyResult<bool> {
        let py = node_type.py();
        let options = self.options;
        let builtin = |enabled: bool, other: &Bound<'_, PyType>| enabled && node_type.is(other);
        if self.lookup(node_type.as_ptr() as usize).is_some()
            || builtin(options.tuple, &py.get_type::<PyTuple>())
            || builtin(options.list, &py.get_type::<PyList>())
            || builtin(options.dict, &py.get_type::<PyDict>())
            || builtin(options.none, &py.None().bind(py).get_type())
        {
            return Ok(true);
        }
        Ok(options.named_tuple
            && node_type.is_subclass_of::<PyTuple>()?
            && node_type.hasattr(intern!(py, "_fields"))?)
    }

    /// Adds a type.
    ///
    /// Errors: ValueError if the type is registered already or is a built-in container.
    pub fn register(&self, py: Python<'_>, registration: Registration) -> PyResult<()> {
        let node_type = registration.node_type.bind(py);
        let address = node_type.as_ptr() as usize;
        let builtin = node_type.is(py.get_type::<PyTuple>())
            || node_type.is(py.get_type::<PyList>())
            || node_type.is(py.get_type::<PyDict>())
            || node_type.is(py.None().bind(py).get_type());
        // No Python code runs under the lock: it might register something itself.
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if builtin || self.lookup(address).is_some() {
            drop(entries);
            let what = match registration.kind {
                RegistrationKind::Custom { .. } => "custom",
                RegistrationKind::Dataclass { .. } => "custom dataclass",
            };
            return Err(PyValueError::new_err(format!(
                "Duplicate {what} PyTreeDef type registration for {}.",
                node_type.repr()?
            )));
        }
        let registration: &'static Registration = Box::leak(Box::new(registration));
        let mut current = self.current.load(Ordering::Acquire);
        if (entries.len() + 1) * 2 > self.table(current).len() {
            if current + 1 == TABLES {
                return Err(PyValueError::new_err("too many registered pytree types"));
            }
            current += 1;
            let table = self.table(current);
            for &entry in entries.iter() {
                insert(table, entry.node_type.as_ptr() as usize, entry);
            }
        }
        insert(self.table(current), address, registration);
        self.current.store(current, Ordering::Release);
        entries.push(registration);
        Ok(())
    }

    /// Registered types in the order of registration, without the built-in ones.
    pub fn registered(&self) -> Vec<&'static Registration> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the object is; runs Python code only for tuple subclasses (`_fields`).
    #[inline]
    pub fn classify<'a, 'py>(&self, object: &'a Bound<'py, PyAny>) -> PyResult<Class<'a, 'py>> {
        if object.is_none() {
            return Ok(if self.options.none { Class::None } else { Class::Leaf });
        }
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            return Ok(if self.options.tuple { Class::Tuple(tuple) } else { Class::Leaf });
        }
        if let Ok(dict) = object.cast_exact::<PyDict>() {
            return Ok(if self.options.dict { Class::Dict(dict) } else { Class::Leaf });
        }
        if let Ok(list) = object.cast_exact::<PyList>() {
            return Ok(if self.options.list { Class::List(list) } else { Class::Leaf });
        }
        if let Some(registration) = self.lookup(object.get_type_ptr() as usize) {
            return Ok(Class::Registered(registration));
        }
        if self.options.named_tuple
            && let Ok(tuple) = object.cast::<PyTuple>()
            && is_named_tuple(tuple)?
        {
            return Ok(Class::NamedTuple(tuple));
        }
        Ok(Class::Leaf)
    }
}

fn is_named_tuple(tuple: &Bound<'_, PyTuple>) -> PyResult<bool> {
    let py = tuple.py();
    match tuple.getattr(intern!(py, "_fields")) {
        Ok(_) => Ok(true),
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The registry that `ferrax.tree_util` registers with and every transformation uses.
pub fn default_registry() -> &'static Registry {
    static DEFAULT: Registry = Registry::new(RegistryOptions::ALL);
    &DEFAULT
}
