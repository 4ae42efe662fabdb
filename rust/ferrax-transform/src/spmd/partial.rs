//! Sums over the devices that are not made yet.
//!
//! A sum that is used once, by an addition of another such sum over the same axes, is made of the two together: so the cotangent
//! of an array that several products read, each summed over the devices, costs one exchange. Invariant: a value of which devices
//! have terms is read by additions here alone; whatever else reads it has the sum.

use ferrax_ir::ops::Binary;
use ferrax_ir::{Atom, Op, Program, Var};
use rustc_hash::FxHashMap;

use super::propagate::{MeshAxes, Spec};

/// Axes that terms are to be summed over, and how the sum is to be cut.
#[derive(Clone)]
pub struct Terms {
    pub over: MeshAxes,
    pub wanted: Spec,
}

/// The values of a program of which devices have terms.
pub struct Partial {
    terms: FxHashMap<Var, Terms>,
    /// By variable: whether an addition alone reads it, once.
    added_once: Vec<bool>,
}

fn is_addition(op: &Op) -> bool {
    matches!(op, Op::Binary(Binary::Add | Binary::Sub))
}

impl Partial {
    pub fn new(program: &Program) -> Partial {
        let mut uses = vec![0usize; program.types.len()];
        let mut added = vec![false; program.types.len()];
        for equation in &program.equations {
            for var in equation.inputs.iter().filter_map(Atom::as_var) {
                uses[var.index()] += 1;
                added[var.index()] = is_addition(&equation.op);
            }
        }
        for var in program.outputs.iter().filter_map(Atom::as_var) {
            uses[var.index()] += 2;
        }
        let added_once = uses.iter().zip(added).map(|(&uses, added)| uses == 1 && added).collect();
        Partial { terms: FxHashMap::default(), added_once }
    }

    /// Whether devices may go on with their terms of this value.
    pub fn may_wait(&self, var: Var) -> bool {
        self.added_once[var.index()]
    }

    pub fn put(&mut self, var: Var, terms: Terms) {
        self.terms.insert(var, terms);
    }

    /// What is left to be summed of a value, which the caller does.
    pub fn take(&mut self, atom: &Atom) -> Option<Terms> {
        self.terms.remove(&atom.as_var()?)
    }

    /// The axes over which both operands of an addition are to be summed, if these are the same.
    pub fn both(&self, op: &Op, operands: &[Atom]) -> Option<MeshAxes> {
        let [x, y] = operands else { return None };
        let of = |atom: &Atom| self.terms.get(&atom.as_var()?);
        let (x, y) = (of(x)?, of(y)?);
        (is_addition(op) && x.over == y.over).then(|| x.over.clone())
    }
}
