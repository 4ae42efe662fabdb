//! A `TreeDef` as plain Python data, for pickling: a list of `(tag, arity, data, type)` in
//! postorder. Registered types are found again in the default registry.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple, PyType};

use super::registry::{Registration, RegistrationKind, default_registry};
use super::treedef::{Kind, Nodes, TreeDef, parent};

const LEAF: u8 = 0;
const NONE: u8 = 1;
const TUPLE: u8 = 2;
const LIST: u8 = 3;
const DICT: u8 = 4;
const NAMED_TUPLE: u8 = 5;
const REGISTERED: u8 = 6;

type Entry<'py> = (u8, u32, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Errors: ValueError for types of another registry than the default one.
pub fn save<'py>(py: Python<'py>, definition: &TreeDef) -> PyResult<Bound<'py, PyList>> {
    let none = || py.None().into_bound(py);
    let mut entries: Vec<Entry<'py>> = Vec::with_capacity(definition.num_nodes());
    for node in definition.nodes() {
        let (tag, data, node_type) = match &node.kind {
            Kind::Leaf => (LEAF, none(), none()),
            Kind::None => (NONE, none(), none()),
            Kind::Tuple => (TUPLE, none(), none()),
            Kind::List => (LIST, none(), none()),
            Kind::Dict(keys) => (DICT, PyTuple::new(py, keys)?.into_any(), none()),
            Kind::NamedTuple(node_type) => (NAMED_TUPLE, none(), node_type.bind(py).clone().into_any()),
            Kind::Registered(registration, aux) => {
                let node_type = registration.node_type.bind(py);
                let known = default_registry().lookup(node_type.as_ptr() as usize);
                if !known.is_some_and(|known| std::ptr::eq(known, *registration)) {
                    return Err(PyValueError::new_err(format!(
                        "cannot pickle a PyTreeDef with {}: its type is not registered in the \
                         default registry",
                        node_type.repr()?
                    )));
                }
                (REGISTERED, aux.bind(py).clone(), node_type.clone().into_any())
            }
        };
        entries.push((tag, node.arity, data, node_type));
    }
    PyList::new(py, entries)
}

/// Errors: ValueError for malformed data or a type that is not registered.
pub fn load(py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<TreeDef> {
    let malformed = || PyValueError::new_err("malformed PyTreeDef state");
    let mut nodes = Nodes::new();
    let mut starts: Vec<(usize, usize)> = Vec::new();
    for entry in state.try_iter()? {
        let (tag, arity, data, node_type): Entry<'_> = entry?.extract()?;
        let kind = match tag {
            LEAF => Kind::Leaf,
            NONE => Kind::None,
            TUPLE => Kind::Tuple,
            LIST => Kind::List,
            DICT => {
                Kind::Dict(data.try_iter()?.map(|key| Ok(key?.unbind())).collect::<PyResult<Box<[_]>>>()?)
            }
            NAMED_TUPLE => Kind::NamedTuple(node_type.cast_into::<PyType>()?.unbind()),
            REGISTERED => Kind::Registered(find(&node_type)?, data.unbind()),
            _ => return Err(malformed()),
        };
        let arity = arity as usize;
        let fits = match &kind {
            Kind::Leaf | Kind::None => arity == 0,
            Kind::Dict(keys) => arity == keys.len(),
            Kind::Registered(
                Registration { kind: RegistrationKind::Dataclass { data_fields, .. }, .. },
                _,
            ) => arity == data_fields.len(),
            _ => true,
        };
        if !fits || arity > starts.len() {
            return Err(malformed());
        }
        let children = starts.split_off(starts.len() - arity);
        let start = children.first().map_or(nodes.len(), |child| child.0);
        let is_leaf = matches!(kind, Kind::Leaf);
        let num_leaves = usize::from(is_leaf) + children.iter().map(|child| child.1).sum::<usize>();
        starts.push((start, num_leaves));
        nodes.push(parent(kind, arity, num_leaves, nodes.len() - start + 1)?);
    }
    if starts.len() != 1 {
        return Err(malformed());
    }
    TreeDef::from_nodes(py, nodes)
}

fn find(node_type: &Bound<'_, PyAny>) -> PyResult<&'static Registration> {
    match default_registry().lookup(node_type.as_ptr() as usize) {
        Some(registration) => Ok(registration),
        None => Err(PyValueError::new_err(format!(
            "cannot load a PyTreeDef: {} is not registered as a pytree type",
            node_type.repr()?
        ))),
    }
}
