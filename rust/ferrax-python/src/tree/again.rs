//! Taking apart a tree that probably has the structure of the last one: only
//! checked against it, nothing is sorted, hashed or allocated.
//!
//! The postorder is walked backwards with a stack of subtrees, as in `up_to`.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use smallvec::SmallVec;

use super::Leaves;
use super::registry::{Class, default_registry};
use super::treedef::{Kind, TreeDef};

type Stack<'py> = SmallVec<[Bound<'py, PyAny>; 16]>;

impl TreeDef {
    /// Appends the leaves of `tree` if `flatten` would give it this definition. If not, or if code
    /// of the user would have to run to know, nothing is appended and the result is false.
    pub fn flatten_again<'py>(&self, tree: &Bound<'py, PyAny>, leaves: &mut Leaves) -> PyResult<bool> {
        if !self.is_plain() {
            return Ok(false);
        }
        let first = leaves.len();
        leaves.reserve(self.num_leaves());
        if self.match_leaves(tree, leaves)? {
            leaves[first..].reverse();
            return Ok(true);
        }
        leaves.truncate(first);
        Ok(false)
    }

    /// Appends the leaves, last first, as far as the tree fits; whether all of it does.
    fn match_leaves<'py>(&self, tree: &Bound<'py, PyAny>, leaves: &mut Leaves) -> PyResult<bool> {
        let mut stack: Stack<'py> = SmallVec::new();
        stack.push(tree.clone());
        for node in self.nodes().iter().rev() {
            let Some(object) = stack.pop() else { return Ok(false) };
            let arity = node.arity as usize;
            let fits = match (&node.kind, default_registry().classify(&object)?) {
                (Kind::Leaf, Class::Leaf) => {
                    leaves.push(object.unbind());
                    continue;
                }
                (Kind::None, Class::None) => true,
                (Kind::Tuple, Class::Tuple(tuple)) => {
                    stack.extend(tuple.iter());
                    tuple.len() == arity
                }
                (Kind::List, Class::List(list)) => {
                    stack.extend(list.iter());
                    list.len() == arity
                }
                (Kind::NamedTuple(node_type), Class::NamedTuple(tuple)) => {
                    stack.extend(tuple.iter());
                    tuple.len() == arity && tuple.get_type().is(node_type)
                }
                (Kind::Dict(keys), Class::Dict(dict)) => push_values(dict, keys, &mut stack)?,
                _ => false,
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Pushes the values of these keys, in their order, if the dict has them and no others.
fn push_values<'py>(dict: &Bound<'py, PyDict>, keys: &[Py<PyAny>], stack: &mut Stack<'py>) -> PyResult<bool> {
    if dict.len() != keys.len() {
        return Ok(false);
    }
    let first = stack.len();
    // Most dicts are built with the same key objects each time, often in order.
    for ((key, value), expected) in dict.iter().zip(keys) {
        if !key.is(expected) {
            break;
        }
        stack.push(value);
    }
    if stack.len() - first == keys.len() {
        return Ok(true);
    }
    stack.truncate(first);
    for key in keys {
        match dict.get_item(key)? {
            Some(value) => stack.push(value),
            None => return Ok(false),
        }
    }
    Ok(true)
}
