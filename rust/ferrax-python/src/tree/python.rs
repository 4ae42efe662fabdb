//! The Python face of pytrees: `PyTreeDef`, `PyTreeRegistry`, and the functions that
//! `ferrax.tree_util` re-exports. All in the namespace `ferrax._core.pytree`.

use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use smallvec::SmallVec;

use super::flatten::{flatten_with, flatten_with_path, keyed_children, one_level, sorted_items};
use super::keys::{DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey};
use super::registry::{Class, Registration, RegistrationKind, Registry, RegistryOptions, default_registry};
use super::treedef::{Kind, TreeDef};
use super::up_to::node_data;
use super::{Leaves, flatten, state};
use crate::once::{Once, intern};
use crate::tracebacks::Filtered;

/// The shape of a pytree: its containers without its leaves.
///
/// Hashable, comparable with `==`, picklable when the aux data of registered types is. Prints with
/// `*` for leaves.
///
/// Example:
///     >>> treedef = ferrax.tree_util.tree_structure({"a": (1, 2)})
///     >>> treedef, treedef.num_leaves
///     (PyTreeDef({'a': (*, *)}), 2)
#[pyclass(frozen, name = "PyTreeDef", module = "ferrax.tree_util")]
pub struct PyTreeDef {
    definition: TreeDef,
}

impl From<TreeDef> for PyTreeDef {
    fn from(definition: TreeDef) -> Self {
        Self { definition }
    }
}

impl PyTreeDef {
    pub fn definition(&self) -> &TreeDef {
        &self.definition
    }
}

/// Unflattens from any iterable of leaves.
fn unflatten_any(py: Python<'_>, definition: &TreeDef, leaves: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if let Ok(list) = leaves.cast_exact::<PyList>() {
        if list.len() < definition.num_leaves() {
            return Err(PyValueError::new_err(format!(
                "Too few leaves for PyTreeDef; expected {}, got {}",
                definition.num_leaves(),
                list.len()
            )));
        }
        definition.unflatten(py, list.iter().map(Bound::unbind))
    } else if let Ok(tuple) = leaves.cast_exact::<PyTuple>() {
        definition.unflatten(py, tuple.iter().map(Bound::unbind))
    } else {
        definition.unflatten_fallible(py, leaves.try_iter()?.map(|leaf| Ok(leaf?.unbind())))
    }
}

#[pymethods]
impl PyTreeDef {
    /// The number of leaves.
    #[getter]
    fn num_leaves(&self) -> usize {
        self.definition.num_leaves()
    }

    /// The number of containers and leaves.
    #[getter]
    fn num_nodes(&self) -> usize {
        self.definition.num_nodes()
    }

    /// The tree with these leaves, an iterable of `num_leaves` objects.
    #[pyo3(signature = (leaves, /))]
    fn unflatten(&self, py: Python<'_>, leaves: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        unflatten_any(py, &self.definition, leaves)
    }

    /// The list of subtrees of `tree` at this definition's leaves. ValueError if it is no prefix.
    #[pyo3(signature = (tree, /))]
    fn flatten_up_to<'py>(&self, py: Python<'py>, tree: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let mut leaves = Leaves::new();
        self.definition.flatten_up_to(py, tree, &mut leaves)?;
        PyList::new(py, leaves)
    }

    /// This definition with every leaf replaced by `inner`.
    #[pyo3(signature = (inner, /))]
    fn compose(&self, py: Python<'_>, inner: &PyTreeDef) -> PyResult<PyTreeDef> {
        Ok(self.definition.compose(py, &inner.definition)?.into())
    }

    /// Folds bottom-up: `f_node(children, node_data)` and `f_leaf(leaf)` (None: the leaf itself).
    #[pyo3(signature = (f_node, f_leaf, leaves, /))]
    fn walk<'py>(
        &self,
        py: Python<'py>,
        f_node: &Bound<'py, PyAny>,
        f_leaf: Option<&Bound<'py, PyAny>>,
        leaves: &Bound<'py, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        self.definition.walk(py, f_node, f_leaf, leaves.try_iter()?)
    }

    /// Rebuilds a tree whose containers are given as plain iterables of their children.
    #[pyo3(name = "from_iterable_tree", signature = (tree, /))]
    fn rebuild_from_iterables<'py>(&self, py: Python<'py>, tree: &Bound<'py, PyAny>) -> PyResult<Py<PyAny>> {
        self.definition.rebuild_from_iterables(py, tree)
    }

    /// The definitions of the root's children.
    fn children(&self, py: Python<'_>) -> PyResult<Vec<PyTreeDef>> {
        Ok(self.definition.children(py)?.into_iter().map(PyTreeDef::from).collect())
    }

    /// `(type, data)` of the root, None for a leaf. The data are the sorted keys of a dict, and the
    /// aux data of a registered type; None for others.
    fn node_data<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        node_data(py, &self.definition.root().kind)
    }

    /// A definition from the root's `node_data()` and the children's definitions.
    #[staticmethod]
    #[pyo3(signature = (registry, node_data, children, /))]
    fn from_node_data_and_children(
        py: Python<'_>,
        registry: &PyTreeRegistry,
        node_data: Option<(Bound<'_, PyType>, Bound<'_, PyAny>)>,
        children: Vec<PyRef<'_, PyTreeDef>>,
    ) -> PyResult<PyTreeDef> {
        let kind = match node_data {
            None => Kind::Leaf,
            Some((node_type, data)) => kind_from_data(py, registry.registry, node_type, data)?,
        };
        let children: Vec<TreeDef> = children.iter().map(|child| child.definition.clone()).collect();
        Ok(TreeDef::with_children(py, kind, &children)?.into())
    }

    /// The former name of `from_node_data_and_children`.
    #[staticmethod]
    #[pyo3(signature = (registry, node_data, children, /))]
    fn make_from_node_data_and_children(
        py: Python<'_>,
        registry: &PyTreeRegistry,
        node_data: Option<(Bound<'_, PyType>, Bound<'_, PyAny>)>,
        children: Vec<PyRef<'_, PyTreeDef>>,
    ) -> PyResult<PyTreeDef> {
        Self::from_node_data_and_children(py, registry, node_data, children)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.definition.repr(py)
    }

    fn __hash__(&self) -> u64 {
        self.definition.structural_hash()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let wanted = match op {
            CompareOp::Eq => true,
            CompareOp::Ne => false,
            _ => return Ok(py.NotImplemented()),
        };
        let Ok(other) = other.cast::<PyTreeDef>() else { return Ok(py.NotImplemented()) };
        let equal = self.definition.equals(py, &other.get().definition)?;
        Ok((equal == wanted).into_pyobject(py)?.to_owned().into_any().unbind())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyList>,))> {
        let load = py.get_type::<PyTreeDef>().getattr(intern!(py, "_from_state"))?;
        Ok((load, (state::save(py, &self.definition)?,)))
    }

    /// Rebuilds a pickled definition.
    #[staticmethod]
    fn _from_state(py: Python<'_>, nodes: &Bound<'_, PyAny>) -> PyResult<PyTreeDef> {
        Ok(state::load(py, nodes)?.into())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.definition.traverse(&visit)
    }
}

fn kind_from_data(
    py: Python<'_>,
    registry: &Registry,
    node_type: Bound<'_, PyType>,
    data: Bound<'_, PyAny>,
) -> PyResult<Kind> {
    if node_type.is(py.None().bind(py).get_type()) {
        return Ok(Kind::None);
    }
    if node_type.is(py.get_type::<PyTuple>()) {
        return Ok(Kind::Tuple);
    }
    if node_type.is(py.get_type::<PyList>()) {
        return Ok(Kind::List);
    }
    if node_type.is(py.get_type::<PyDict>()) {
        let keys = data.try_iter()?.map(|key| Ok(key?.unbind())).collect::<PyResult<_>>()?;
        return Ok(Kind::Dict(keys));
    }
    if let Some(registration) = registry.lookup(node_type.as_ptr() as usize) {
        if matches!(registration.kind, RegistrationKind::Dataclass { .. }) {
            data.cast::<PyTuple>()?;
        }
        return Ok(Kind::Registered(registration, data.unbind()));
    }
    if registry.is_node_type(&node_type)? {
        return Ok(Kind::NamedTuple(node_type.unbind()));
    }
    Err(PyRuntimeError::new_err(format!("Could not find type: {}.", node_type.repr()?)))
}

/// A set of container types.
///
/// `type in registry`, `iter(registry)` (registered types in order) and `len(registry)` look at
/// it. A registry lives as long as the process.
///
/// Example:
///     >>> registry = ferrax.tree_util.default_registry
///     >>> dict in registry, int in registry
///     (True, False)
#[pyclass(frozen, module = "ferrax._src.tree.tree_util")]
pub struct PyTreeRegistry {
    registry: &'static Registry,
}

fn callable(name: &str, function: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if function.is_callable() {
        return Ok(function.clone().unbind());
    }
    Err(PyTypeError::new_err(format!("{name} must be callable, got {}", function.repr()?)))
}

type OneLevel<'py> = Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

#[pymethods]
impl PyTreeRegistry {
    #[new]
    #[pyo3(signature = (*, enable_none = true, enable_tuple = true, enable_namedtuple = true,
                        enable_list = true, enable_dict = true))]
    fn new(
        enable_none: bool,
        enable_tuple: bool,
        enable_namedtuple: bool,
        enable_list: bool,
        enable_dict: bool,
    ) -> Self {
        let registry = Registry::new(RegistryOptions {
            none: enable_none,
            tuple: enable_tuple,
            named_tuple: enable_namedtuple,
            list: enable_list,
            dict: enable_dict,
        });
        Self { registry: Box::leak(Box::new(registry)) }
    }

    /// Registers a type with its functions. ValueError if it is registered already.
    #[pyo3(signature = (node_type, to_iterable, from_iterable, to_iterable_with_keys = None))]
    fn register_node(
        &self,
        py: Python<'_>,
        node_type: Bound<'_, PyType>,
        to_iterable: &Bound<'_, PyAny>,
        from_iterable: &Bound<'_, PyAny>,
        to_iterable_with_keys: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let kind = RegistrationKind::Custom {
            to_iterable: callable("flatten function", to_iterable)?,
            from_iterable: callable("unflatten function", from_iterable)?,
            to_iterable_with_keys: to_iterable_with_keys
                .map(|function| callable("flatten function with keys", function))
                .transpose()?,
        };
        self.registry.register(py, Registration { node_type: node_type.unbind(), kind })
    }

    /// Registers a type whose children and aux data are attributes.
    fn register_dataclass_node(
        &self,
        py: Python<'_>,
        node_type: Bound<'_, PyType>,
        data_fields: Vec<Py<PyString>>,
        meta_fields: Vec<Py<PyString>>,
    ) -> PyResult<()> {
        let kind = RegistrationKind::Dataclass { data_fields, meta_fields };
        self.registry.register(py, Registration { node_type: node_type.unbind(), kind })
    }

    /// `(leaves, definition)`.
    #[pyo3(signature = (tree, is_leaf = None))]
    fn flatten<'py>(
        &self,
        py: Python<'py>,
        tree: &Bound<'py, PyAny>,
        is_leaf: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyList>, PyTreeDef)> {
        let mut leaves = Leaves::new();
        let definition = flatten_with(self.registry, py, tree, is_leaf, &mut leaves)?;
        Ok((PyList::new(py, leaves)?, definition.into()))
    }

    /// `([(path, leaf), …], definition)`.
    #[pyo3(signature = (tree, is_leaf = None, is_leaf_takes_path = false))]
    fn flatten_with_path<'py>(
        &self,
        py: Python<'py>,
        tree: &Bound<'py, PyAny>,
        is_leaf: Option<&Bound<'py, PyAny>>,
        is_leaf_takes_path: bool,
    ) -> PyResult<(Bound<'py, PyList>, PyTreeDef)> {
        let mut leaves = Leaves::new();
        let (paths, definition) =
            flatten_with_path(self.registry, py, tree, is_leaf, is_leaf_takes_path, &mut leaves)?;
        let pairs = PyList::new(py, paths.into_iter().zip(leaves))?;
        Ok((pairs, definition.into()))
    }

    /// `(children, data)` of a container, None for a leaf.
    fn flatten_one_level<'py>(&self, py: Python<'py>, tree: &Bound<'py, PyAny>) -> PyResult<OneLevel<'py>> {
        let none = py.None().into_bound(py);
        Ok(match self.registry.classify(tree)? {
            Class::Leaf => None,
            Class::None => Some((PyTuple::empty(py).into_any(), none)),
            Class::Tuple(_) | Class::List(_) => Some((tree.clone(), none)),
            Class::Dict(dict) => {
                let (keys, values): (Vec<_>, Vec<_>) = sorted_items(dict)?.into_iter().unzip();
                Some((PyTuple::new(py, values)?.into_any(), PyTuple::new(py, keys)?.into_any()))
            }
            Class::NamedTuple(tuple) => Some((tuple.to_list().into_any(), tree.get_type().into_any())),
            Class::Registered(registration) => {
                let (children, aux) = one_level(py, tree, registration)?;
                Some((children.into_any(), aux))
            }
        })
    }

    /// `(((key, child), …), data)` of a container, None for a leaf.
    fn flatten_one_level_with_keys<'py>(
        &self,
        py: Python<'py>,
        tree: &Bound<'py, PyAny>,
    ) -> PyResult<OneLevel<'py>> {
        let none = py.None().into_bound(py);
        let indexed = |items: Vec<Bound<'py, PyAny>>| -> PyResult<Bound<'py, PyAny>> {
            let mut pairs = Vec::with_capacity(items.len());
            for (index, child) in items.into_iter().enumerate() {
                pairs.push((SequenceKey::create(py, index.into_pyobject(py)?)?, child));
            }
            Ok(PyTuple::new(py, pairs)?.into_any())
        };
        Ok(match self.registry.classify(tree)? {
            Class::Leaf => None,
            Class::None => Some((PyTuple::empty(py).into_any(), none)),
            Class::Tuple(tuple) => Some((indexed(tuple.iter().collect())?, none)),
            Class::List(list) => Some((indexed(list.iter().collect())?, none)),
            Class::Dict(dict) => {
                let items = sorted_items(dict)?;
                let keys = PyTuple::new(py, items.iter().map(|item| &item.0))?;
                let mut pairs = Vec::with_capacity(items.len());
                for (key, child) in items {
                    pairs.push((DictKey::create(py, key)?, child));
                }
                Some((PyTuple::new(py, pairs)?.into_any(), keys.into_any()))
            }
            Class::NamedTuple(tuple) => {
                let mut pairs = Vec::with_capacity(tuple.len());
                let names = tuple.getattr(intern!(py, "_fields"))?;
                for (name, child) in names.try_iter()?.zip(tuple.iter()) {
                    let name = name?.cast_into::<PyString>()?;
                    pairs.push((GetAttrKey::create(py, name)?, child));
                }
                Some((PyTuple::new(py, pairs)?.into_any(), tree.get_type().into_any()))
            }
            Class::Registered(registration) => {
                let (pairs, aux) = keyed_children(py, tree, registration)?;
                Some((PyTuple::new(py, pairs)?.into_any(), aux))
            }
        })
    }

    /// Whether values of the type are containers.
    fn is_node(&self, node_type: &Bound<'_, PyType>) -> PyResult<bool> {
        self.registry.is_node_type(node_type)
    }

    fn __contains__(&self, node_type: &Bound<'_, PyAny>) -> PyResult<bool> {
        match node_type.cast::<PyType>() {
            Ok(node_type) => self.registry.is_node_type(node_type),
            Err(_) => Ok(false),
        }
    }

    fn __len__(&self) -> usize {
        self.registry.registered().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let types = self.registry.registered();
        PyList::new(py, types.iter().map(|entry| entry.node_type.bind(py)))?.try_iter()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        if !std::ptr::eq(self.registry, default_registry()) {
            return Err(PyTypeError::new_err("only the default pytree registry can be pickled"));
        }
        let function = py.get_type::<PyTreeRegistry>().getattr(intern!(py, "_default"))?;
        Ok((function, PyTuple::empty(py)))
    }

    /// The registry that all transformations use; what pickling it refers to.
    #[staticmethod]
    fn _default(py: Python<'_>) -> PyResult<Py<PyTreeRegistry>> {
        static DEFAULT: Once<Py<PyTreeRegistry>> = Once::new();
        let make = || Py::new(py, PyTreeRegistry { registry: default_registry() });
        Ok(DEFAULT.get_or_try_init(py, make)?.clone_ref(py))
    }
}

/// Takes a pytree apart.
///
/// Args:
///   tree: any object.
///   is_leaf: called on every subtree; True makes it a leaf.
///
/// Returns `(leaves, treedef)`. Dict entries come in the order of their keys; None has no leaves.
/// Raises ValueError if the keys of a dict do not compare, RecursionError for cycles.
///
/// Example:
///     >>> ferrax.tree_util.tree_flatten({"b": 1, "a": (2, None)})
///     ([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
#[pyfunction]
#[pyo3(signature = (tree, is_leaf = None))]
fn tree_flatten<'py>(
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    is_leaf: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Bound<'py, PyList>, PyTreeDef)> {
    let mut leaves = Leaves::new();
    let definition = flatten(py, tree, is_leaf, &mut leaves)?;
    Ok((PyList::new(py, leaves)?, definition.into()))
}

/// The list of leaves of a pytree.
///
/// Args: tree, is_leaf: as for `tree_flatten`, with its errors.
///
/// Example:
///     >>> ferrax.tree_util.tree_leaves((1, [2, None]))
///     [1, 2]
#[pyfunction]
#[pyo3(signature = (tree, is_leaf = None))]
fn tree_leaves<'py>(
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    is_leaf: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let mut leaves = Leaves::new();
    flatten(py, tree, is_leaf, &mut leaves)?;
    PyList::new(py, leaves)
}

/// The `PyTreeDef` of a pytree.
///
/// Args: tree, is_leaf: as for `tree_flatten`, with its errors.
///
/// Example:
///     >>> ferrax.tree_util.tree_structure([1, (2,)])
///     PyTreeDef([*, (*,)])
#[pyfunction]
#[pyo3(signature = (tree, is_leaf = None))]
fn tree_structure<'py>(
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    is_leaf: Option<&Bound<'py, PyAny>>,
) -> PyResult<PyTreeDef> {
    let mut leaves = Leaves::new();
    Ok(flatten(py, tree, is_leaf, &mut leaves)?.into())
}

/// The pytree with the given shape and leaves; the inverse of `tree_flatten`.
///
/// Args:
///   treedef: a `PyTreeDef`.
///   leaves: an iterable of `treedef.num_leaves` objects.
///
/// Raises ValueError if the number of leaves is wrong.
///
/// Example:
///     >>> ferrax.tree_util.tree_unflatten(ferrax.tree_util.tree_structure((0, [0])), [1, 2])
///     (1, [2])
#[pyfunction]
fn tree_unflatten(
    py: Python<'_>,
    treedef: &Bound<'_, PyTreeDef>,
    leaves: &Bound<'_, PyAny>,
) -> PyResult<Py<PyAny>> {
    unflatten_any(py, &treedef.get().definition, leaves)
}

/// Applies a function to the leaves of pytrees.
///
/// Args:
///   f: called with one leaf of `tree` and the corresponding subtree of each tree in `rest`.
///   tree: gives the result's structure.
///   rest: trees of which `tree` is a prefix.
///   is_leaf: as in `tree_flatten`, for `tree` alone.
///
/// Raises ValueError, naming the place, if `tree` is no prefix of one of `rest`.
///
/// Example:
///     >>> ferrax.tree_util.tree_map(lambda x, y: x + y, (1, [2]), (10, [20]))
///     (11, [22])
#[pyfunction]
#[pyo3(signature = (f, tree, *rest, is_leaf = None))]
fn tree_map<'py>(
    py: Python<'py>,
    f: &Bound<'py, PyAny>,
    tree: &Bound<'py, PyAny>,
    rest: &Bound<'py, PyTuple>,
    is_leaf: Option<&Bound<'py, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let mut leaves = Leaves::new();
    let definition = flatten(py, tree, is_leaf, &mut leaves)?;
    if rest.is_empty() {
        let results = leaves.into_iter().map(|leaf| Ok(f.call1((leaf,))?.unbind()));
        return definition.unflatten_fallible(py, results);
    }
    let mut columns: SmallVec<[_; 4]> = SmallVec::with_capacity(rest.len());
    for other in rest.iter() {
        let mut column = Leaves::new();
        if let Err(error) = definition.flatten_up_to(py, &other, &mut column) {
            if error.is_instance_of::<PyValueError>(py) {
                // Raises a message that names the path, if it finds the difference.
                py.import(intern!(py, "ferrax._src.tree.tree_util"))?
                    .getattr(intern!(py, "raise_prefix_error"))?
                    .call1(("tree_map tree", tree, other, is_leaf))
                    .filtered(py)?;
            }
            return Err(error);
        }
        columns.push(column.into_iter());
    }
    let results = leaves.into_iter().map(|leaf| {
        let arguments = std::iter::once(leaf).chain(columns.iter_mut().filter_map(Iterator::next));
        let arguments = arguments.collect::<SmallVec<[_; 4]>>();
        Ok(f.call1(PyTuple::new(py, arguments)?)?.unbind())
    });
    definition.unflatten_fallible(py, results)
}

/// The definition of a tuple of trees with the given definitions.
///
/// Example:
///     >>> leaf, list_of_one = map(ferrax.tree_util.tree_structure, (1, [2]))
///     >>> ferrax.tree_util.treedef_tuple([leaf, list_of_one])
///     PyTreeDef((*, [*]))
#[pyfunction]
fn treedef_tuple(py: Python<'_>, treedefs: &Bound<'_, PyAny>) -> PyResult<PyTreeDef> {
    let mut children = Vec::new();
    for child in treedefs.try_iter()? {
        children.push(child?.cast::<PyTreeDef>()?.get().definition.clone());
    }
    Ok(TreeDef::tuple(py, &children)?.into())
}

/// The definitions of a definition's children.
///
/// Example:
///     >>> ferrax.tree_util.treedef_children(ferrax.tree_util.tree_structure((1, [2])))
///     [PyTreeDef(*), PyTreeDef([*])]
#[pyfunction]
fn treedef_children(py: Python<'_>, treedef: &Bound<'_, PyTreeDef>) -> PyResult<Vec<PyTreeDef>> {
    treedef.get().children(py)
}

/// Whether the definition is a leaf or a container without children.
///
/// Example:
///     >>> treedefs = map(ferrax.tree_util.tree_structure, (1, None, [2]))
///     >>> [ferrax.tree_util.treedef_is_leaf(treedef) for treedef in treedefs]
///     [True, True, False]
#[pyfunction]
fn treedef_is_leaf(treedef: &Bound<'_, PyTreeDef>) -> bool {
    treedef.get().definition.num_nodes() == 1
}

/// Whether the definition is exactly one leaf.
#[pyfunction]
fn treedef_is_strict_leaf(treedef: &Bound<'_, PyTreeDef>) -> bool {
    treedef.get().definition.is_leaf()
}

/// Fills the namespace `pytree` of the extension module and the names kept at its top.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let pytree = PyModule::new(py, "ferrax._core.pytree")?;
    pytree.add_class::<PyTreeDef>()?;
    pytree.add_class::<PyTreeRegistry>()?;
    pytree.add_class::<DictKey>()?;
    pytree.add_class::<SequenceKey>()?;
    pytree.add_class::<GetAttrKey>()?;
    pytree.add_class::<FlattenedIndexKey>()?;
    for function in [
        wrap_pyfunction!(tree_flatten, &pytree)?,
        wrap_pyfunction!(tree_leaves, &pytree)?,
        wrap_pyfunction!(tree_structure, &pytree)?,
        wrap_pyfunction!(tree_unflatten, &pytree)?,
        wrap_pyfunction!(tree_map, &pytree)?,
        wrap_pyfunction!(treedef_tuple, &pytree)?,
        wrap_pyfunction!(treedef_children, &pytree)?,
        wrap_pyfunction!(treedef_is_leaf, &pytree)?,
        wrap_pyfunction!(treedef_is_strict_leaf, &pytree)?,
    ] {
        pytree.add_function(function)?;
    }
    let registry = PyTreeRegistry::_default(py)?;
    pytree.add("default_registry", registry.clone_ref(py))?;
    module.add("pytree", &pytree)?;
    py.import("sys")?.getattr("modules")?.set_item("ferrax._core.pytree", &pytree)?;
    module.add("default_registry", registry)?;
    module.add_class::<PyTreeDef>()
}
