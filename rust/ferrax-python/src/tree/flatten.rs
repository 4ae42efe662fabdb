//! Trees to leaves and `TreeDef`.
//!
//! Invariants: no borrowed reference is held while Python code may run (children are owned before
//! they are visited, since a registered function may change the container). Depth is bounded, by
//! Python's recursion limit and by `MAX_DEPTH`, so that cycles raise RecursionError.

use pyo3::exceptions::{PyRecursionError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString, PyTuple};
use smallvec::SmallVec;

use super::Leaves;
use super::keys::{DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey};
use super::registry::{Class, Registration, RegistrationKind, Registry, default_registry};
use super::treedef::{Kind, Node, Nodes, SHARED_ARITY, TreeDef, parent};
use crate::once::intern;

/// Bound on nesting that holds whatever `sys.setrecursionlimit` says; the native stack needs under
/// one KiB a level.
const MAX_DEPTH: u32 = 4000;

/// Takes a tree apart with the default registry; leaves are appended.
///
/// Errors: ValueError for dicts whose keys do not compare, RecursionError for too deep or cyclic
/// trees, and what `is_leaf` and registered functions raise. Leaves may then be partly appended.
#[inline]
pub fn flatten<'py>(
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    is_leaf: Option<&Bound<'py, PyAny>>,
    leaves: &mut Leaves,
) -> PyResult<TreeDef> {
    flatten_with(default_registry(), py, tree, is_leaf, leaves)
}

/// `flatten` with another registry.
pub fn flatten_with<'py>(
    registry: &'static Registry,
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    is_leaf: Option<&Bound<'py, PyAny>>,
    leaves: &mut Leaves,
) -> PyResult<TreeDef> {
    if is_leaf.is_none()
        && let Some(definition) = flatten_flat(registry, py, tree, leaves)?
    {
        return Ok(definition);
    }
    let mut flattener = Flattener::<false> {
        py,
        registry,
        is_leaf,
        predicate_takes_path: false,
        leaves,
        nodes: Nodes::new(),
        path: Vec::new(),
        paths: Vec::new(),
    };
    flattener.visit(tree.clone(), 0)?;
    TreeDef::from_nodes(py, flattener.nodes)
}

/// `flatten_with` that also returns each leaf's path, a tuple of keys.
pub fn flatten_with_path<'py>(
    registry: &'static Registry,
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    is_leaf: Option<&Bound<'py, PyAny>>,
    is_leaf_takes_path: bool,
    leaves: &mut Leaves,
) -> PyResult<(Vec<Bound<'py, PyTuple>>, TreeDef)> {
    let mut flattener = Flattener::<true> {
        py,
        registry,
        is_leaf,
        predicate_takes_path: is_leaf_takes_path,
        leaves,
        nodes: Nodes::new(),
        path: Vec::new(),
        paths: Vec::new(),
    };
    flattener.visit(tree.clone(), 0)?;
    let definition = TreeDef::from_nodes(py, flattener.nodes)?;
    Ok((flattener.paths, definition))
}

/// A leaf, None, or a short tuple or list of leaves: shared definitions, no allocation.
fn flatten_flat<'py>(
    registry: &'static Registry,
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    leaves: &mut Leaves,
) -> PyResult<Option<TreeDef>> {
    let before = leaves.len();
    let mut push = |item: Bound<'py, PyAny>| -> PyResult<bool> {
        let plain = matches!(registry.classify(&item)?, Class::Leaf);
        if plain {
            leaves.push(item.unbind());
        }
        Ok(plain)
    };
    let definition = match registry.classify(tree)? {
        Class::Leaf => {
            leaves.push(tree.clone().unbind());
            return Ok(Some(TreeDef::leaf()));
        }
        Class::None => return Ok(Some(TreeDef::none())),
        Class::Tuple(tuple) if tuple.len() <= SHARED_ARITY => {
            let mut flat = true;
            for item in tuple.iter() {
                if !push(item)? {
                    flat = false;
                    break;
                }
            }
            flat.then(|| TreeDef::flat_tuple(py, leaves.len() - before))
        }
        Class::List(list) if list.len() <= SHARED_ARITY => {
            let mut flat = true;
            for item in list.iter() {
                if !push(item)? {
                    flat = false;
                    break;
                }
            }
            flat.then(|| TreeDef::flat_list(py, leaves.len() - before))
        }
        _ => None,
    };
    if definition.is_none() {
        leaves.truncate(before);
    }
    definition.transpose()
}

/// Counts one level of Python's recursion for as long as it lives.
struct RecursionGuard;

impl RecursionGuard {
    fn enter(py: Python<'_>, depth: u32) -> PyResult<Self> {
        if depth > MAX_DEPTH {
            return Err(PyRecursionError::new_err(format!(
                "pytree is nested more than {MAX_DEPTH} levels deep (or contains itself)"
            )));
        }
        // SAFETY: the thread is attached; the string is NUL-terminated and static.
        if unsafe { ffi::Py_EnterRecursiveCall(c" while flattening a pytree".as_ptr()) } != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(Self)
    }
}

impl Drop for RecursionGuard {
    fn drop(&mut self) {
        // SAFETY: pairs with the successful Py_EnterRecursiveCall in `enter`, on the same thread
        // (the guard never leaves the stack frame that made it).
        unsafe { ffi::Py_LeaveRecursiveCall() }
    }
}

struct Flattener<'a, 'py, const PATHS: bool> {
    py: Python<'py>,
    registry: &'static Registry,
    is_leaf: Option<&'a Bound<'py, PyAny>>,
    predicate_takes_path: bool,
    leaves: &'a mut Leaves,
    nodes: Nodes,
    /// Keys from the root to the current node (PATHS only).
    path: Vec<Bound<'py, PyAny>>,
    paths: Vec<Bound<'py, PyTuple>>,
}

impl<'py, const PATHS: bool> Flattener<'_, 'py, PATHS> {
    fn visit(&mut self, object: Bound<'py, PyAny>, depth: u32) -> PyResult<()> {
        if self.is_leaf.is_some() && self.predicate(&object)? {
            return self.leaf(object);
        }
        let (first_leaf, first_node) = (self.leaves.len(), self.nodes.len());
        let (kind, arity) = match self.registry.classify(&object)? {
            Class::Leaf => return self.leaf(object),
            Class::None => (Kind::None, 0),
            Class::Tuple(tuple) => (Kind::Tuple, self.visit_tuple(tuple, depth)?),
            Class::List(list) => (Kind::List, self.visit_list(list, depth)?),
            Class::Dict(dict) => self.visit_dict(dict, depth)?,
            Class::NamedTuple(tuple) => {
                let _guard = RecursionGuard::enter(self.py, depth)?;
                let arity = self.visit_named_tuple(tuple, depth)?;
                (Kind::NamedTuple(object.get_type().unbind()), arity)
            }
            Class::Registered(registration) => {
                let _guard = RecursionGuard::enter(self.py, depth)?;
                self.visit_registered(&object, registration, depth)?
            }
        };
        let num_leaves = self.leaves.len() - first_leaf;
        let num_nodes = self.nodes.len() - first_node + 1;
        self.nodes.push(parent(kind, arity, num_leaves, num_nodes)?);
        Ok(())
    }

    fn leaf(&mut self, object: Bound<'py, PyAny>) -> PyResult<()> {
        if PATHS {
            self.paths.push(PyTuple::new(self.py, &self.path)?);
        }
        self.nodes.push(Node::leaf());
        self.leaves.push(object.unbind());
        Ok(())
    }

    fn predicate(&self, object: &Bound<'py, PyAny>) -> PyResult<bool> {
        let Some(is_leaf) = self.is_leaf else { return Ok(false) };
        let answer = if PATHS && self.predicate_takes_path {
            is_leaf.call1((PyTuple::new(self.py, &self.path)?, object))?
        } else {
            is_leaf.call1((object,))?
        };
        match answer.cast_exact::<PyBool>() {
            Ok(answer) => Ok(answer.is_true()),
            Err(_) => Err(PyValueError::new_err(format!(
                "is_leaf predicate returned a non-boolean value {}; expected a boolean",
                answer.repr()?
            ))),
        }
    }

    fn visit_keyed(&mut self, key: Bound<'py, PyAny>, child: Bound<'py, PyAny>, depth: u32) -> PyResult<()> {
        self.path.push(key);
        let result = self.visit(child, depth + 1);
        self.path.pop();
        result
    }

    fn visit_indexed(&mut self, index: usize, child: Bound<'py, PyAny>, depth: u32) -> PyResult<()> {
        if PATHS {
            let key = SequenceKey::create(self.py, index.into_pyobject(self.py)?)?;
            self.visit_keyed(key, child, depth)
        } else {
            self.visit(child, depth + 1)
        }
    }

    fn visit_tuple(&mut self, tuple: &Bound<'py, PyTuple>, depth: u32) -> PyResult<usize> {
        let _guard = RecursionGuard::enter(self.py, depth)?;
        for (index, child) in tuple.iter().enumerate() {
            self.visit_indexed(index, child, depth)?;
        }
        Ok(tuple.len())
    }

    fn visit_list(&mut self, list: &Bound<'py, PyList>, depth: u32) -> PyResult<usize> {
        let _guard = RecursionGuard::enter(self.py, depth)?;
        let mut arity = 0;
        while arity < list.len() {
            self.visit_indexed(arity, list.get_item(arity)?, depth)?;
            arity += 1;
        }
        Ok(arity)
    }

    fn visit_dict(&mut self, dict: &Bound<'py, PyDict>, depth: u32) -> PyResult<(Kind, usize)> {
        let _guard = RecursionGuard::enter(self.py, depth)?;
        let items = sorted_items(dict)?;
        self.leaves.reserve(items.len());
        self.nodes.reserve(items.len() + 1);
        let mut keys = Vec::with_capacity(items.len());
        for (key, child) in items {
            if PATHS {
                let entry = DictKey::create(self.py, key.clone())?;
                self.visit_keyed(entry, child, depth)?;
            } else {
                self.visit(child, depth + 1)?;
            }
            keys.push(key.unbind());
        }
        let arity = keys.len();
        Ok((Kind::Dict(keys.into_boxed_slice()), arity))
    }

    fn visit_named_tuple(&mut self, tuple: &Bound<'py, PyTuple>, depth: u32) -> PyResult<usize> {
        if !PATHS {
            for child in tuple.iter() {
                self.visit(child, depth + 1)?;
            }
            return Ok(tuple.len());
        }
        let names = tuple.getattr(intern!(self.py, "_fields"))?;
        for (name, child) in names.try_iter()?.zip(tuple.iter()) {
            let key = GetAttrKey::create(self.py, name?.cast_into::<PyString>()?)?;
            self.visit_keyed(key, child, depth)?;
        }
        Ok(tuple.len())
    }

    fn visit_registered(
        &mut self,
        object: &Bound<'py, PyAny>,
        registration: &'static Registration,
        depth: u32,
    ) -> PyResult<(Kind, usize)> {
        let mut arity = 0;
        let aux = if PATHS {
            let (pairs, aux) = keyed_children(self.py, object, registration)?;
            for (key, child) in pairs {
                self.visit_keyed(key, child, depth)?;
                arity += 1;
            }
            aux
        } else {
            let (children, aux) = one_level(self.py, object, registration)?;
            for child in children.iter() {
                self.visit(child, depth + 1)?;
                arity += 1;
            }
            aux
        };
        Ok((Kind::Registered(registration, aux.unbind()), arity))
    }
}

pub type Items<'py> = SmallVec<[(Bound<'py, PyAny>, Bound<'py, PyAny>); 8]>;

/// The items of a dict in the order of their keys.
///
/// Errors: ValueError, with the comparison's exception as its cause, if keys do not compare.
pub fn sorted_items<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Items<'py>> {
    let mut items: Items<'py> = SmallVec::with_capacity(dict.len());
    items.extend(dict.iter());
    if items.len() < 2 {
        return Ok(items);
    }
    // Python orders strings by code point, which is the byte order of their UTF-8.
    let mut order: SmallVec<[(u64, &str, u32); 16]> = SmallVec::with_capacity(items.len());
    for (index, (key, _)) in items.iter().enumerate() {
        match key.cast_exact::<PyString>().ok().and_then(|key| key.to_str().ok()) {
            Some(text) => order.push((first_bytes(text), text, index as u32)),
            None => return sorted_by_python(dict),
        }
    }
    if order.is_sorted() {
        drop(order);
        return Ok(items);
    }
    order.sort_unstable();
    let positions: SmallVec<[u32; 16]> = order.into_iter().map(|(_, _, index)| index).collect();
    let mut slots: SmallVec<[Option<_>; 8]> = items.into_iter().map(Some).collect();
    Ok(positions.into_iter().filter_map(|index| slots[index as usize].take()).collect())
}

/// The first eight bytes, zero-padded, as a number that orders as they do: most comparisons end
/// here, and equal ones go on to the whole string.
fn first_bytes(text: &str) -> u64 {
    let mut bytes = [0; 8];
    let length = text.len().min(8);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u64::from_be_bytes(bytes)
}

fn sorted_by_python<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Items<'py>> {
    let py = dict.py();
    let keys = dict.keys();
    keys.sort().map_err(|cause| {
        let error = PyValueError::new_err(format!(
            "Comparator raised exception while sorting pytree dictionary keys. The keys {} have no \
             common order; use keys of one type, or an OrderedDict.",
            dict.keys()
        ));
        error.set_cause(py, Some(cause));
        error
    })?;
    let missing = || PyValueError::new_err("dictionary changed while it was flattened");
    keys.iter()
        .map(|key| {
            let value = dict.get_item(&key)?.ok_or_else(missing)?;
            Ok((key, value))
        })
        .collect()
}

type Pairs<'py> = Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

fn bad_function(name: &str, registration: &Registration, wanted: &str, got: &Bound<'_, PyAny>) -> PyErr {
    let py = got.py();
    match (registration.type_name(py), got.repr()) {
        (Ok(type_name), Ok(got)) => PyValueError::new_err(format!(
            "The {name} function for a custom PyTree node should return {wanted}, got {got} (node \
             type {type_name})"
        )),
        (Err(error), _) | (_, Err(error)) => error,
    }
}

/// Children and aux data of a registered object.
pub fn one_level<'py>(
    py: Python<'py>,
    object: &Bound<'py, PyAny>,
    registration: &Registration,
) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyAny>)> {
    match &registration.kind {
        RegistrationKind::Custom { to_iterable, .. } => {
            let output = to_iterable.bind(py).call1((object,))?;
            let pair = output.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
            let Some(pair) = pair else {
                let wanted = "a (children, aux_data) tuple";
                return Err(bad_function("to_iterable", registration, wanted, &output));
            };
            let (children, aux) = (pair.get_item(0)?, pair.get_item(1)?);
            let children = into_tuple(children).map_err(|error| {
                if !error.is_instance_of::<PyTypeError>(py) {
                    return error;
                }
                let wanted = "a (children, aux_data) tuple where 'children' is iterable";
                bad_function("to_iterable", registration, wanted, &output)
            })?;
            Ok((children, aux))
        }
        RegistrationKind::Dataclass { data_fields, meta_fields } => {
            let get = |name: &Py<PyString>| object.getattr(name.bind(py));
            let children = data_fields.iter().map(get).collect::<PyResult<Vec<_>>>()?;
            let aux = meta_fields.iter().map(get).collect::<PyResult<Vec<_>>>()?;
            Ok((PyTuple::new(py, children)?, PyTuple::new(py, aux)?.into_any()))
        }
    }
}

/// Children with their keys, and aux data.
pub fn keyed_children<'py>(
    py: Python<'py>,
    object: &Bound<'py, PyAny>,
    registration: &Registration,
) -> PyResult<(Pairs<'py>, Bound<'py, PyAny>)> {
    match &registration.kind {
        RegistrationKind::Custom { to_iterable_with_keys: Some(function), .. } => {
            let name = "to_iterable_with_keys";
            let output = function.bind(py).call1((object,))?;
            let pair = output.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
            let Some(pair) = pair else {
                let wanted = "a (key_leaf_pairs, aux_data) tuple";
                return Err(bad_function(name, registration, wanted, &output));
            };
            let wanted = "a (key_leaf_pairs, aux_data) tuple where 'key_leaf_pairs' is an iterable \
                          of (key, child) tuples";
            let children = into_tuple(pair.get_item(0)?).map_err(|error| {
                if !error.is_instance_of::<PyTypeError>(py) {
                    return error;
                }
                bad_function(name, registration, wanted, &output)
            })?;
            let mut pairs = Pairs::with_capacity(children.len());
            for child in children.iter() {
                match child.cast::<PyTuple>() {
                    Ok(entry) if entry.len() == 2 => {
                        pairs.push((entry.get_item(0)?, entry.get_item(1)?));
                    }
                    _ => return Err(bad_function(name, registration, wanted, &output)),
                }
            }
            Ok((pairs, pair.get_item(1)?))
        }
        RegistrationKind::Custom { .. } => {
            let (children, aux) = one_level(py, object, registration)?;
            let mut pairs = Pairs::with_capacity(children.len());
            for (index, child) in children.iter().enumerate() {
                pairs.push((FlattenedIndexKey::create(py, index.into_pyobject(py)?)?, child));
            }
            Ok((pairs, aux))
        }
        RegistrationKind::Dataclass { data_fields, .. } => {
            let (children, aux) = one_level(py, object, registration)?;
            let mut pairs = Pairs::with_capacity(children.len());
            for (name, child) in data_fields.iter().zip(children.iter()) {
                pairs.push((GetAttrKey::create(py, name.bind(py).clone())?, child));
            }
            Ok((pairs, aux))
        }
    }
}

/// Any iterable as a tuple.
pub fn into_tuple<'py>(iterable: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    match iterable.cast_into_exact::<PyTuple>() {
        Ok(tuple) => Ok(tuple),
        Err(error) => {
            let iterable = error.into_inner();
            let items = iterable.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(iterable.py(), items)
        }
    }
}
