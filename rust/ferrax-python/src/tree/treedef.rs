//! `TreeDef`: the shape of a pytree without its leaves.
//!
//! Invariants: nodes are in postorder (children before their parent, the root last) and there is at
//! least one; `num_leaves` and `num_nodes` of a node count its whole subtree. Equal trees have
//! equal hashes. Aux data of registered types takes part in equality but not in the hash, since it
//! need not be hashable; dict keys take part in both.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use super::registry::{Registration, RegistrationKind};

/// What a node is, with the data that is needed to rebuild it from its children.
pub enum Kind {
    Leaf,
    None,
    Tuple,
    List,
    /// Sorted keys.
    Dict(Box<[Py<PyAny>]>),
    NamedTuple(Py<PyType>),
    /// A registered type and its aux data (for dataclasses the tuple of the meta fields' values).
    Registered(&'static Registration, Py<PyAny>),
}

impl Kind {
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Kind::Leaf => Kind::Leaf,
            Kind::None => Kind::None,
            Kind::Tuple => Kind::Tuple,
            Kind::List => Kind::List,
            Kind::Dict(keys) => Kind::Dict(keys.iter().map(|key| key.clone_ref(py)).collect()),
            Kind::NamedTuple(node_type) => Kind::NamedTuple(node_type.clone_ref(py)),
            Kind::Registered(registration, aux) => Kind::Registered(registration, aux.clone_ref(py)),
        }
    }

    fn tag(&self) -> u8 {
        match self {
            Kind::Leaf => 0,
            Kind::None => 1,
            Kind::Tuple => 2,
            Kind::List => 3,
            Kind::Dict(_) => 4,
            Kind::NamedTuple(_) => 5,
            Kind::Registered(..) => 6,
        }
    }
}

pub struct Node {
    pub kind: Kind,
    pub arity: u32,
    pub num_leaves: u32,
    pub num_nodes: u32,
}

impl Node {
    pub fn leaf() -> Self {
        Self { kind: Kind::Leaf, arity: 0, num_leaves: 1, num_nodes: 1 }
    }

    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { kind: self.kind.clone_ref(py), ..*self }
    }
}

pub type Nodes = SmallVec<[Node; 12]>;

struct Inner {
    nodes: Box<[Node]>,
    hash: u64,
    /// All containers are built-in ones or namedtuples.
    plain: bool,
}

/// The shape of a pytree; cloning shares it.
#[derive(Clone)]
pub struct TreeDef(Arc<Inner>);

/// Flat tuples and lists up to this length are shared, not built anew.
pub const SHARED_ARITY: usize = 12;

fn counted(kind: Kind, arity: usize, num_leaves: usize, num_nodes: usize) -> PyResult<Node> {
    let narrow = |count: usize| {
        u32::try_from(count).map_err(|_| PyValueError::new_err("pytree has more than 2³² nodes"))
    };
    Ok(Node { kind, arity: narrow(arity)?, num_leaves: narrow(num_leaves)?, num_nodes: narrow(num_nodes)? })
}

/// A node over the last `num_nodes - 1` nodes, of which `num_leaves` are leaves.
pub fn parent(kind: Kind, arity: usize, num_leaves: usize, num_nodes: usize) -> PyResult<Node> {
    counted(kind, arity, num_leaves, num_nodes)
}

fn hash_nodes(py: Python<'_>, nodes: &[Node]) -> PyResult<u64> {
    let mut hasher = FxHasher::default();
    for node in nodes {
        hasher.write_u32((node.arity << 3) ^ u32::from(node.kind.tag()));
        match &node.kind {
            Kind::Dict(keys) => {
                for key in keys {
                    hasher.write_isize(key.bind(py).hash()?);
                }
            }
            Kind::NamedTuple(node_type) => hasher.write_usize(node_type.as_ptr() as usize),
            Kind::Registered(registration, _) => {
                hasher.write_usize(std::ptr::from_ref(*registration) as usize);
            }
            _ => {}
        }
    }
    Ok(hasher.finish())
}

impl TreeDef {
    /// From nodes in postorder. Errors: what hashing a dict key raises.
    pub fn from_nodes(py: Python<'_>, nodes: Nodes) -> PyResult<Self> {
        let hash = hash_nodes(py, &nodes)?;
        let plain = !nodes.iter().any(|node| matches!(node.kind, Kind::Registered(..)));
        Ok(Self(Arc::new(Inner { nodes: nodes.into_boxed_slice(), hash, plain })))
    }

    fn shared(py: Python<'_>, cell: &OnceLock<TreeDef>, list: bool, arity: usize) -> PyResult<Self> {
        if let Some(definition) = cell.get() {
            return Ok(definition.clone());
        }
        let mut nodes: Nodes = (0..arity).map(|_| Node::leaf()).collect();
        let kind = if list { Kind::List } else { Kind::Tuple };
        nodes.push(parent(kind, arity, arity, arity + 1)?);
        let definition = Self::from_nodes(py, nodes)?;
        Ok(cell.get_or_init(|| definition).clone())
    }

    /// A tuple of `arity` leaves.
    pub fn flat_tuple(py: Python<'_>, arity: usize) -> PyResult<Self> {
        static SHARED: [OnceLock<TreeDef>; SHARED_ARITY + 1] = [const { OnceLock::new() }; SHARED_ARITY + 1];
        match SHARED.get(arity) {
            Some(cell) => Self::shared(py, cell, false, arity),
            None => Self::shared(py, &OnceLock::new(), false, arity),
        }
    }

    /// A list of `arity` leaves.
    pub fn flat_list(py: Python<'_>, arity: usize) -> PyResult<Self> {
        static SHARED: [OnceLock<TreeDef>; SHARED_ARITY + 1] = [const { OnceLock::new() }; SHARED_ARITY + 1];
        match SHARED.get(arity) {
            Some(cell) => Self::shared(py, cell, true, arity),
            None => Self::shared(py, &OnceLock::new(), true, arity),
        }
    }

    /// One leaf.
    pub fn leaf() -> Self {
        static SHARED: OnceLock<TreeDef> = OnceLock::new();
        Self::single(&SHARED, Node::leaf)
    }

    /// `None`, a container without children.
    pub fn none() -> Self {
        static SHARED: OnceLock<TreeDef> = OnceLock::new();
        Self::single(&SHARED, || Node { kind: Kind::None, arity: 0, num_leaves: 0, num_nodes: 1 })
    }

    fn single(cell: &OnceLock<TreeDef>, node: impl FnOnce() -> Node) -> Self {
        cell.get_or_init(|| {
            let node = node();
            let mut hasher = FxHasher::default();
            hasher.write_u32(u32::from(node.kind.tag()));
            Self(Arc::new(Inner { nodes: Box::new([node]), hash: hasher.finish(), plain: true }))
        })
        .clone()
    }

    /// A tuple of trees.
    pub fn tuple(py: Python<'_>, children: &[TreeDef]) -> PyResult<Self> {
        Self::with_children(py, Kind::Tuple, children)
    }

    /// A container with the given subtrees; `kind` must not be `Leaf` unless there are none.
    pub fn with_children(py: Python<'_>, kind: Kind, children: &[TreeDef]) -> PyResult<Self> {
        let fits = match &kind {
            Kind::Leaf | Kind::None => children.is_empty(),
            Kind::Dict(keys) => keys.len() == children.len(),
            Kind::Registered(
                Registration { kind: RegistrationKind::Dataclass { data_fields, .. }, .. },
                _,
            ) => data_fields.len() == children.len(),
            _ => true,
        };
        if !fits {
            return Err(PyValueError::new_err(format!("node data does not fit {} children", children.len())));
        }
        let mut nodes = Nodes::new();
        let mut num_leaves = usize::from(matches!(kind, Kind::Leaf));
        for child in children {
            num_leaves += child.num_leaves();
            nodes.extend(child.nodes().iter().map(|node| node.clone_ref(py)));
        }
        nodes.push(parent(kind, children.len(), num_leaves, nodes.len() + 1)?);
        Self::from_nodes(py, nodes)
    }

    #[inline]
    pub fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    #[inline]
    pub fn root(&self) -> &Node {
        // Nodes are never empty (invariant of the module).
        &self.0.nodes[self.0.nodes.len() - 1]
    }

    #[inline]
    pub fn num_leaves(&self) -> usize {
        self.root().num_leaves as usize
    }

    #[inline]
    pub fn num_nodes(&self) -> usize {
        self.0.nodes.len()
    }

    pub fn is_leaf(&self) -> bool {
        matches!(self.root().kind, Kind::Leaf)
    }

    /// The hash that Python's `hash` shows too.
    #[inline]
    pub fn structural_hash(&self) -> u64 {
        self.0.hash
    }

    /// Whether no code of the user takes part in taking such a tree apart.
    pub fn is_plain(&self) -> bool {
        self.0.plain
    }

    /// Whether both are the same allocation; then they are equal.
    #[inline]
    pub fn ptr_eq(&self, other: &TreeDef) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Equality; raises what `==` of aux data or dict keys raises.
    pub fn equals(&self, py: Python<'_>, other: &TreeDef) -> PyResult<bool> {
        if self.ptr_eq(other) {
            return Ok(true);
        }
        if self.0.hash != other.0.hash || self.0.nodes.len() != other.0.nodes.len() {
            return Ok(false);
        }
        for (a, b) in self.nodes().iter().zip(other.nodes()) {
            if a.arity != b.arity || !kinds_equal(py, &a.kind, &b.kind)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Builds the tree with these leaves.
    ///
    /// Errors: ValueError if there are too few or too many leaves, and what constructors raise.
    pub fn unflatten<I>(&self, py: Python<'_>, leaves: I) -> PyResult<Py<PyAny>>
    where
        I: IntoIterator<Item = Py<PyAny>>,
    {
        self.unflatten_fallible(py, leaves.into_iter().map(Ok))
    }

    /// `unflatten` from an iterator that may fail.
    pub fn unflatten_fallible<I>(&self, py: Python<'_>, mut leaves: I) -> PyResult<Py<PyAny>>
    where
        I: Iterator<Item = PyResult<Py<PyAny>>>,
    {
        let mut stack: SmallVec<[Py<PyAny>; 16]> = SmallVec::new();
        let mut taken = 0;
        for node in self.nodes() {
            let built = match &node.kind {
                Kind::Leaf => match leaves.next() {
                    Some(leaf) => {
                        taken += 1;
                        leaf?
                    }
                    None => {
                        return Err(PyValueError::new_err(format!(
                            "Too few leaves for PyTreeDef; expected {}, got {taken}",
                            self.num_leaves()
                        )));
                    }
                },
                kind => {
                    let start = stack.len() - node.arity as usize;
                    build(py, kind, stack.drain(start..))?
                }
            };
            stack.push(built);
        }
        if leaves.next().is_some() {
            return Err(PyValueError::new_err(format!(
                "Too many leaves for PyTreeDef; expected {}.",
                self.num_leaves()
            )));
        }
        stack.pop().ok_or_else(|| PyRuntimeError::new_err("empty PyTreeDef"))
    }

    /// The subtrees of the root.
    pub fn children(&self, py: Python<'_>) -> PyResult<Vec<TreeDef>> {
        let nodes = self.nodes();
        let arity = self.root().arity as usize;
        let mut end = nodes.len() - 1;
        let mut children = Vec::with_capacity(arity);
        for _ in 0..arity {
            let start = end - nodes[end - 1].num_nodes as usize;
            let child: Nodes = nodes[start..end].iter().map(|node| node.clone_ref(py)).collect();
            children.push(TreeDef::from_nodes(py, child)?);
            end = start;
        }
        children.reverse();
        Ok(children)
    }

    /// The tree in which every leaf of `self` is replaced by `inner`.
    pub fn compose(&self, py: Python<'_>, inner: &TreeDef) -> PyResult<TreeDef> {
        let mut nodes = Nodes::new();
        let mut starts: SmallVec<[usize; 16]> = SmallVec::new();
        for node in self.nodes() {
            if matches!(node.kind, Kind::Leaf) {
                starts.push(nodes.len());
                nodes.extend(inner.nodes().iter().map(|node| node.clone_ref(py)));
            } else {
                let first = starts.len() - node.arity as usize;
                let start = starts.get(first).copied().unwrap_or(nodes.len());
                starts.truncate(first);
                starts.push(start);
                let num_leaves = node.num_leaves as usize * inner.num_leaves();
                let num_nodes = nodes.len() - start + 1;
                nodes.push(parent(node.kind.clone_ref(py), node.arity as usize, num_leaves, num_nodes)?);
            }
        }
        TreeDef::from_nodes(py, nodes)
    }

    /// Shows the Python objects that the nodes hold to the garbage collector, unless other owners
    /// share the nodes: then those references are not this owner's alone and must not be counted.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if Arc::strong_count(&self.0) > 1 {
            return Ok(());
        }
        for node in self.nodes() {
            match &node.kind {
                Kind::Dict(keys) => {
                    for key in keys {
                        visit.call(key)?;
                    }
                }
                Kind::NamedTuple(node_type) => visit.call(node_type)?,
                Kind::Registered(_, aux) => visit.call(aux)?,
                Kind::Leaf | Kind::None | Kind::Tuple | Kind::List => {}
            }
        }
        Ok(())
    }

    /// `PyTreeDef({'a': *, 'b': [*, None]})`.
    pub fn repr(&self, py: Python<'_>) -> PyResult<String> {
        let mut stack: Vec<String> = Vec::new();
        for node in self.nodes() {
            let children = stack.split_off(stack.len() - node.arity as usize);
            stack.push(match &node.kind {
                Kind::Leaf => "*".to_owned(),
                Kind::None => "None".to_owned(),
                Kind::Tuple if children.len() == 1 => format!("({},)", children[0]),
                Kind::Tuple => format!("({})", children.join(", ")),
                Kind::List => format!("[{}]", children.join(", ")),
                Kind::Dict(keys) => {
                    let mut items = Vec::with_capacity(children.len());
                    for (key, child) in keys.iter().zip(&children) {
                        items.push(format!("{}: {child}", key.bind(py).repr()?.to_cow()?));
                    }
                    format!("{{{}}}", items.join(", "))
                }
                Kind::NamedTuple(node_type) => {
                    let name = node_type.bind(py).getattr("__name__")?;
                    let name = name.str()?;
                    format!("CustomNode(namedtuple[{}], [{}])", name.to_cow()?, children.join(", "))
                }
                Kind::Registered(registration, aux) => {
                    let name = registration.type_name(py)?;
                    let aux = aux.bind(py).str()?;
                    format!("CustomNode({name}[{}], [{}])", aux.to_cow()?, children.join(", "))
                }
            });
        }
        Ok(format!("PyTreeDef({})", stack.pop().unwrap_or_default()))
    }
}

fn kinds_equal(py: Python<'_>, a: &Kind, b: &Kind) -> PyResult<bool> {
    let same = |a: &Py<PyAny>, b: &Py<PyAny>| -> PyResult<bool> { Ok(a.is(b) || a.bind(py).eq(b.bind(py))?) };
    match (a, b) {
        (Kind::Leaf, Kind::Leaf)
        | (Kind::None, Kind::None)
        | (Kind::Tuple, Kind::Tuple)
        | (Kind::List, Kind::List) => Ok(true),
        (Kind::Dict(a), Kind::Dict(b)) => {
            for (a, b) in a.iter().zip(b) {
                if !same(a, b)? {
                    return Ok(false);
                }
            }
            Ok(a.len() == b.len())
        }
        (Kind::NamedTuple(a), Kind::NamedTuple(b)) => Ok(a.is(b)),
        (Kind::Registered(a, aux_a), Kind::Registered(b, aux_b)) => {
            Ok(std::ptr::eq(*a, *b) && same(aux_a, aux_b)?)
        }
        _ => Ok(false),
    }
}

/// Makes one container. `children` yields exactly the node's arity.
pub fn build<I>(py: Python<'_>, kind: &Kind, mut children: I) -> PyResult<Py<PyAny>>
where
    I: ExactSizeIterator<Item = Py<PyAny>>,
{
    Ok(match kind {
        Kind::Leaf => {
            return children.next().ok_or_else(|| PyRuntimeError::new_err("leaf without value"));
        }
        Kind::None => py.None(),
        Kind::Tuple => PyTuple::new(py, children)?.into_any().unbind(),
        Kind::List => PyList::new(py, children)?.into_any().unbind(),
        Kind::Dict(keys) => {
            let dict = PyDict::new(py);
            for (key, child) in keys.iter().zip(children) {
                dict.set_item(key, child)?;
            }
            dict.into_any().unbind()
        }
        Kind::NamedTuple(node_type) => node_type.bind(py).call1(PyTuple::new(py, children)?)?.unbind(),
        Kind::Registered(registration, aux) => match &registration.kind {
            RegistrationKind::Custom { from_iterable, .. } => {
                from_iterable.bind(py).call1((aux, PyTuple::new(py, children)?))?.unbind()
            }
            RegistrationKind::Dataclass { data_fields, meta_fields } => {
                let arguments = PyDict::new(py);
                let aux = aux.bind(py).cast::<PyTuple>()?;
                for (name, value) in meta_fields.iter().zip(aux.iter()) {
                    arguments.set_item(name, value)?;
                }
                for (name, value) in data_fields.iter().zip(children) {
                    arguments.set_item(name, value)?;
                }
                registration.node_type.bind(py).call((), Some(&arguments))?.unbind()
            }
        },
    })
}

impl PartialEq for TreeDef {
    /// `equals` where no error can be returned: an exception raised by `==` of aux data is reported
    /// through `sys.unraisablehook` and counts as "different".
    fn eq(&self, other: &Self) -> bool {
        if self.ptr_eq(other) {
            return true;
        }
        if self.0.hash != other.0.hash {
            return false;
        }
        Python::attach(|py| {
            self.equals(py, other).unwrap_or_else(|error| {
                error.write_unraisable(py, None);
                false
            })
        })
    }
}

impl Eq for TreeDef {}

impl Hash for TreeDef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}
