//! What calls of a jitted function are looked up by, and how far two calls are apart.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ferrax_ir::{ArrayType, DType, Dim, Shape, Sizes, Varying};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use super::refs::is_ref;
use crate::array::{Array, Data};
use crate::convert::Operand;
use crate::once::intern;
use crate::promote::context;
use crate::tree::{PyTreeDef, TreeDef};
use crate::{dims, dtypes, placement};

/// Shape, dtype and weakness of one argument leaf, whether it is a mutable array, and, where its type says so, the number of
/// where it is put and along which axes of a mesh it differs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LeafType {
    pub dtype: DType,
    pub weak: bool,
    pub is_ref: bool,
    pub place: u32,
    pub varying: Varying,
    /// None where the shape is symbolic.
    pub sizes: Sizes,
    /// The shape where it is symbolic.
    pub symbolic: Option<Arc<Shape>>,
}

impl LeafType {
    pub fn of(operand: &Operand<'_>) -> LeafType {
        let (sizes, symbolic) = match operand {
            Operand::Literal(_) => (Sizes::new(), None),
            Operand::Array(array) => match &array.get().data {
                Data::Concrete(concrete) => (Sizes::from_slice(&concrete.sizes), None),
                Data::Tracer(tracer) => sizes_of(&tracer.ty.shape),
            },
        };
        let (dtype, weak) = (operand.dtype(), operand.weak());
        let (place, varying) = (placement::in_type(operand), varying(operand));
        LeafType { dtype, weak, is_ref: false, place, varying, sizes, symbolic }
    }

    pub fn shape(&self) -> Shape {
        match &self.symbolic {
            Some(shape) => (**shape).clone(),
            None => self.sizes.iter().map(|&size| Dim::Const(size)).collect(),
        }
    }

    pub fn array_type(&self) -> ArrayType {
        ArrayType::new(self.shape(), self.dtype).with_weak(self.weak).with_varying(self.varying)
    }

    pub fn is(&self, operand: &Operand<'_>) -> bool {
        self.dtype == operand.dtype()
            && self.weak == operand.weak()
            && self.place == placement::in_type(operand)
            && match operand {
                Operand::Literal(_) => self.sizes.is_empty() && self.symbolic.is_none(),
                Operand::Array(array) => match &array.get().data {
                    Data::Concrete(concrete) => concrete.sizes == self.sizes && self.symbolic.is_none(),
                    Data::Tracer(tracer) => {
                        tracer.ty.varying == self.varying
                            && self.symbolic.is_none()
                            && tracer.ty.sizes().is_some_and(|sizes| sizes == self.sizes)
                    }
                },
            }
    }
}

/// The sizes of a shape, or the shape itself.
fn sizes_of(shape: &Shape) -> (Sizes, Option<Arc<Shape>>) {
    match shape.iter().map(Dim::as_const).collect::<Option<Sizes>>() {
        Some(sizes) => (sizes, None),
        None => (Sizes::new(), Some(Arc::new(shape.clone()))),
    }
}

/// Along which axes of a mesh an operand differs.
fn varying(operand: &Operand<'_>) -> Varying {
    match operand {
        Operand::Array(array) => array.get().tracer().map_or(Varying::NONE, |tracer| tracer.ty.varying),
        Operand::Literal(_) => Varying::NONE,
    }
}

/// A static argument: compared by type and `==`.
pub struct Static {
    /// The position, or the position in the sorted keyword names.
    pub name: StaticName,
    pub value: Py<PyAny>,
    pub hash: isize,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum StaticName {
    Position(usize),
    Keyword(String),
}

/// What a call is looked up by.
pub struct Key {
    pub args: TreeDef,
    pub kwargs: Option<TreeDef>,
    pub leaves: SmallVec<[LeafType; 4]>,
    pub statics: SmallVec<[Static; 1]>,
    pub context: u64,
    pub hash: u64,
}

impl Key {
    pub fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.context.hash(&mut hasher);
        self.args.structural_hash().hash(&mut hasher);
        self.kwargs.as_ref().map(TreeDef::structural_hash).hash(&mut hasher);
        self.leaves.hash(&mut hasher);
        for value in &self.statics {
            value.hash.hash(&mut hasher);
        }
        hasher.finish()
    }

    pub fn matches(&self, py: Python<'_>, other: &Key) -> PyResult<bool> {
        if self.hash != other.hash
            || self.context != other.context
            || self.leaves != other.leaves
            || self.statics.len() != other.statics.len()
            || self.kwargs.is_some() != other.kwargs.is_some()
        {
            return Ok(false);
        }
        let same_tree = |a: &TreeDef, b: &TreeDef| if a.ptr_eq(b) { Ok(true) } else { a.equals(py, b) };
        if !same_tree(&self.args, &other.args)? {
            return Ok(false);
        }
        if let (Some(a), Some(b)) = (&self.kwargs, &other.kwargs)
            && !same_tree(a, b)?
        {
            return Ok(false);
        }
        for (a, b) in self.statics.iter().zip(&other.statics) {
            let (left, right) = (a.value.bind(py), b.value.bind(py));
            if a.name != b.name || !left.get_type().is(right.get_type()) {
                return Ok(false);
            }
            if !left.is(right) && !left.eq(right).map_err(|error| not_comparable(left, error))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A static argument whose `==` fails.
fn not_comparable(value: &Bound<'_, PyAny>, cause: PyErr) -> PyErr {
    let class = value.get_type().qualname().map(|name| name.to_string()).unwrap_or_default();
    let error = PyValueError::new_err(format!(
        "Static arguments are compared with == to find the program for a call, and for two of type {class} that failed \
         ({cause}). Give the class an __eq__ that returns a bool, or make the argument dynamic."
    ));
    error.set_cause(value.py(), Some(cause));
    error
}

impl Key {
    /// How unlike the calls are: 0 for alike ones.
    pub fn distance(&self, other: &Key) -> usize {
        let trees = self.args.structural_hash() != other.args.structural_hash()
            || self.kwargs.as_ref().map(TreeDef::structural_hash)
                != other.kwargs.as_ref().map(TreeDef::structural_hash);
        let leaves = self.leaves.iter().zip(&other.leaves).filter(|(a, b)| a != b).count()
            + self.leaves.len().abs_diff(other.leaves.len());
        let statics =
            self.statics.iter().zip(&other.statics).filter(|(a, b)| a.hash != b.hash || a.name != b.name);
        leaves
            + statics.count()
            + self.statics.len().abs_diff(other.statics.len())
            + usize::from(self.context != other.context)
            + if trees { 1 + self.leaves.len() } else { 0 }
    }

    /// The key for the Python code that explains differences.
    pub fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let leaves: Vec<_> = self
            .leaves
            .iter()
            .map(|leaf| {
                Ok((
                    dims::shape_tuple(py, &leaf.shape(), dims::scope(py).as_ref())?,
                    dtypes::to_numpy(py, leaf.dtype)?,
                    leaf.weak,
                    leaf.is_ref,
                    leaf.place,
                ))
            })
            .collect::<PyResult<_>>()?;
        let statics: Vec<_> = self
            .statics
            .iter()
            .map(|value| {
                let name = match &value.name {
                    StaticName::Position(position) => position.into_pyobject(py)?.into_any(),
                    StaticName::Keyword(name) => name.into_pyobject(py)?.into_any(),
                };
                Ok((name, value.value.clone_ref(py)))
            })
            .collect::<PyResult<_>>()?;
        let kwargs = self.kwargs.clone().map(|tree| Py::new(py, PyTreeDef::from(tree))).transpose()?;
        (
            Py::new(py, PyTreeDef::from(self.args.clone()))?,
            kwargs,
            PyList::new(py, leaves)?,
            PyList::new(py, statics)?,
            self.context,
        )
            .into_pyobject(py)
    }

    /// The names of the leaves.
    pub fn names(&self, py: Python<'_>, function: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let zeros = |count: usize| std::iter::repeat_n(0i32, count).map(|zero| zero.into_py_any(py));
        let args = self.args.unflatten_fallible(py, zeros(self.args.num_leaves()))?;
        let kwargs = self.kwargs.as_ref().map(|tree| tree.unflatten_fallible(py, zeros(tree.num_leaves())));
        let positional = self.positional(args.bind(py).cast::<PyTuple>()?)?;
        super::leaf_names(py)?.call1((function, positional, kwargs.transpose()?))?.extract()
    }

    /// All positional arguments, with None in place of static ones, whose names have no leaves.
    pub fn positional<'py>(&self, dynamic: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        let py = dynamic.py();
        let mut all: Vec<Py<PyAny>> = Vec::with_capacity(dynamic.len() + self.statics.len());
        let mut rest = dynamic.iter().map(Bound::unbind);
        for value in &self.statics {
            if let StaticName::Position(position) = value.name {
                all.extend(rest.by_ref().take(position.saturating_sub(all.len())));
                all.push(py.None());
            }
        }
        all.extend(rest);
        PyTuple::new(py, all)
    }
}

/// The type of a leaf that only has one: a `ShapeDtypeStruct` or the like.
pub fn abstract_leaf(leaf: &Bound<'_, PyAny>) -> PyResult<Option<LeafType>> {
    let py = leaf.py();
    if leaf.is_instance_of::<Array>() || is_ref(leaf) || leaf.hasattr(intern!(py, "__array_struct__"))? {
        return Ok(None);
    }
    let (Ok(shape), Ok(dtype)) = (leaf.getattr(intern!(py, "shape")), leaf.getattr(intern!(py, "dtype")))
    else {
        return Ok(None);
    };
    let weak = leaf.getattr(intern!(py, "weak_type")).and_then(|weak| weak.is_truthy()).unwrap_or(false);
    let dtype = context().of_foreign(dtypes::from_python(&dtype)?);
    let place = match leaf.getattr(intern!(py, "_place")) {
        Ok(number) => number.extract()?,
        Err(_) => 0,
    };
    let varying = match leaf.getattr(intern!(py, "_varying")) {
        Ok(names) => Varying::of(names.extract::<Vec<String>>()?.into_iter().map(Arc::from)),
        Err(_) => Varying::NONE,
    };
    let (sizes, symbolic) = sizes_of(&dims::shape(&shape)?);
    Ok(Some(LeafType { dtype, weak, is_ref: false, place, varying, sizes, symbolic }))
}

pub fn static_value(value: &Bound<'_, PyAny>, name: StaticName) -> PyResult<Static> {
    let hash = value.hash().map_err(|error| {
        if !error.is_instance_of::<PyTypeError>(value.py()) {
            return error;
        }
        let shown = match &name {
            StaticName::Position(position) => format!("at position {position}"),
            StaticName::Keyword(name) => format!("'{name}'"),
        };
        PyValueError::new_err(format!(
            "Non-hashable static arguments are not supported: the static argument {shown} has type {}, which has no \
             usable hash ({error}). Static arguments are part of the key of compiled programs: give a hashable value \
             (a tuple instead of a list, a frozen dataclass) or make the argument dynamic.",
            value.get_type().qualname().map(|name| name.to_string()).unwrap_or_default()
        ))
    })?;
    Ok(Static { name, value: value.clone().unbind(), hash })
}
