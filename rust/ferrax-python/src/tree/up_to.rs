//! Taking apart a tree that a `TreeDef` is a prefix of, and rebuilding from nested iterables.
//!
//! Both walk the postorder backwards with a stack of subtrees, so they do not recurse.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;

use super::Leaves;
use super::flatten::{into_tuple, one_level};
use super::registry::{Registration, RegistrationKind};
use super::treedef::{Kind, TreeDef, build};

type Stack<'py> = SmallVec<[Bound<'py, PyAny>; 16]>;

fn mismatch(message: String) -> PyErr {
    PyValueError::new_err(message)
}

fn check_arity(name: &str, got: usize, expected: u32, object: &Bound<'_, PyAny>) -> PyResult<()> {
    if got == expected as usize {
        return Ok(());
    }
    let lower = name.to_lowercase();
    Err(mismatch(format!("{name} arity mismatch: {got} != {expected}; {lower}: {}.", object.repr()?)))
}

impl TreeDef {
    /// The subtrees of `tree` where this definition has leaves; appended in order.
    ///
    /// Errors: ValueError if this definition is not a prefix of `tree`.
    pub fn flatten_up_to<'py>(
        &self,
        py: Python<'py>,
        tree: &Bound<'py, PyAny>,
        leaves: &mut Leaves,
    ) -> PyResult<()> {
        let first = leaves.len();
        let mut stack: Stack<'py> = SmallVec::new();
        stack.push(tree.clone());
        for node in self.nodes().iter().rev() {
            let Some(object) = stack.pop() else {
                return Err(PyRuntimeError::new_err("malformed PyTreeDef"));
            };
            match &node.kind {
                Kind::Leaf => leaves.push(object.unbind()),
                Kind::None => {
                    if !object.is_none() {
                        return Err(mismatch(format!(
                            "Expected None, got {}. None is a container without children, not a \
                             leaf: it is no prefix of anything else. To treat it as a leaf, pass \
                             is_leaf=lambda x: x is None.",
                            object.repr()?
                        )));
                    }
                }
                Kind::Tuple => {
                    let Ok(tuple) = object.cast_exact::<PyTuple>() else {
                        return Err(mismatch(format!("Expected tuple, got {}.", object.repr()?)));
                    };
                    check_arity("Tuple", tuple.len(), node.arity, &object)?;
                    stack.extend(tuple.iter());
                }
                Kind::List => {
                    let Ok(list) = object.cast_exact::<PyList>() else {
                        return Err(mismatch(format!("Expected list, got {}.", object.repr()?)));
                    };
                    check_arity("List", list.len(), node.arity, &object)?;
                    stack.extend(list.iter());
                }
                Kind::Dict(keys) => {
                    let Ok(dict) = object.cast_exact::<PyDict>() else {
                        return Err(mismatch(format!("Expected dict, got {}.", object.repr()?)));
                    };
                    push_dict_values(py, keys, dict, &mut stack)?;
                }
                Kind::NamedTuple(node_type) => {
                    let tuple = object.cast::<PyTuple>().ok();
                    let Some(tuple) = tuple.filter(|tuple| matches!(tuple.hasattr("_fields"), Ok(true)))
                    else {
                        return Err(mismatch(format!("Expected named tuple, got {}.", object.repr()?)));
                    };
                    check_arity("Named tuple", tuple.len(), node.arity, &object)?;
                    if !tuple.get_type().is(node_type.bind(py)) {
                        return Err(mismatch(format!(
                            "Named tuple type mismatch: expected type: {}, tuple: {}.",
                            node_type.bind(py).repr()?,
                            object.repr()?
                        )));
                    }
                    stack.extend(tuple.iter());
                }
                Kind::Registered(registration, aux) => {
                    let children = registered_children(py, registration, aux, &object)?;
                    check_arity("Custom type", children.len(), node.arity, &object)?;
                    stack.extend(children.iter());
                }
            }
        }
        leaves[first..].reverse();
        Ok(())
    }

    /// Rebuilds a tree in which every container has been replaced by an iterable of its children.
    ///
    /// Errors: ValueError if an iterable has another number of items than the container.
    pub fn rebuild_from_iterables<'py>(
        &self,
        py: Python<'py>,
        tree: &Bound<'py, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let mut stack: Stack<'py> = SmallVec::new();
        let mut leaves = Leaves::new();
        stack.push(tree.clone());
        for node in self.nodes().iter().rev() {
            let Some(object) = stack.pop() else {
                return Err(PyRuntimeError::new_err("malformed PyTreeDef"));
            };
            match &node.kind {
                Kind::Leaf => leaves.push(object.unbind()),
                Kind::None => {}
                _ => {
                    let children = into_tuple(object)?;
                    check_arity("Iterable", children.len(), node.arity, children.as_any())?;
                    stack.extend(children.iter());
                }
            }
        }
        leaves.reverse();
        self.unflatten(py, leaves)
    }

    /// Folds the tree bottom-up: `node(children, node_data)` for containers and `leaf(x)` for
    /// leaves. A namedtuple's data is its type here.
    ///
    /// Errors: ValueError if the number of leaves is wrong, and what the functions raise.
    pub fn walk<'py>(
        &self,
        py: Python<'py>,
        node_function: &Bound<'py, PyAny>,
        leaf_function: Option<&Bound<'py, PyAny>>,
        leaves: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    ) -> PyResult<Py<PyAny>> {
        let mut leaves = leaves;
        let mut stack: Stack<'py> = SmallVec::new();
        for node in self.nodes() {
            let value = if matches!(node.kind, Kind::Leaf) {
                let leaf = leaves.next().ok_or_else(|| {
                    mismatch(format!("Too few leaves for PyTreeDef; expected {}.", self.num_leaves()))
                })??;
                match leaf_function {
                    Some(function) => function.call1((leaf,))?,
                    None => leaf,
                }
            } else {
                let start = stack.len() - node.arity as usize;
                let children = PyTuple::new(py, stack.drain(start..))?;
                let data = match &node.kind {
                    Kind::NamedTuple(node_type) => Some(node_type.bind(py).clone().into_any()),
                    kind => node_data(py, kind)?.map(|data| data.1),
                };
                node_function.call1((children, data))?
            };
            stack.push(value);
        }
        if leaves.next().is_some() {
            return Err(mismatch(format!("Too many leaves for PyTreeDef; expected {}.", self.num_leaves())));
        }
        match stack.pop() {
            Some(value) => Ok(value.unbind()),
            None => build(py, &Kind::None, std::iter::empty()),
        }
    }
}

fn push_dict_values<'py>(
    py: Python<'py>,
    keys: &[Py<PyAny>],
    dict: &Bound<'py, PyDict>,
    stack: &mut Stack<'py>,
) -> PyResult<()> {
    let mut same = dict.len() == keys.len();
    if same {
        for key in keys {
            match dict.get_item(key)? {
                Some(value) => stack.push(value),
                None => {
                    same = false;
                    break;
                }
            }
        }
    }
    if same {
        return Ok(());
    }
    let present = dict.keys();
    let sorted = present.clone();
    let present = if sorted.sort().is_ok() { sorted } else { dict.keys() };
    Err(mismatch(format!(
        "Dict key mismatch; expected keys: {}; present keys: {}.",
        PyList::new(py, keys)?.repr()?,
        present.repr()?
    )))
}

fn registered_children<'py>(
    py: Python<'py>,
    registration: &Registration,
    aux: &Py<PyAny>,
    object: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyTuple>> {
    let what = match registration.kind {
        RegistrationKind::Custom { .. } => "custom",
        RegistrationKind::Dataclass { .. } => "custom dataclass",
    };
    if !object.get_type().is(registration.node_type.bind(py)) {
        let capital = what.replacen('c', "C", 1);
        return Err(mismatch(format!(
            "{capital} node type mismatch: expected type: {}, value: {}.",
            registration.node_type.bind(py).repr()?,
            object.repr()?
        )));
    }
    let (children, present) = one_level(py, object, registration)?;
    let expected = aux.bind(py);
    if !expected.is(&present) && !expected.eq(&present)? {
        return Err(mismatch(format!(
            "Mismatch {what} node data: {} != {}; value: {}.",
            expected.str()?,
            present.str()?,
            object.repr()?
        )));
    }
    Ok(children)
}

/// A node's type and its data; None for leaves.
pub fn node_data<'py>(
    py: Python<'py>,
    kind: &Kind,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let none = || py.None().into_bound(py);
    Ok(match kind {
        Kind::Leaf => None,
        Kind::None => Some((none().get_type().into_any(), none())),
        Kind::Tuple => Some((py.get_type::<PyTuple>().into_any(), none())),
        Kind::List => Some((py.get_type::<PyList>().into_any(), none())),
        Kind::Dict(keys) => Some((py.get_type::<PyDict>().into_any(), PyList::new(py, keys)?.into_any())),
        Kind::NamedTuple(node_type) => Some((node_type.bind(py).clone().into_any(), none())),
        Kind::Registered(registration, aux) => {
            Some((registration.node_type.bind(py).clone().into_any(), aux.bind(py).clone()))
        }
    })
}
