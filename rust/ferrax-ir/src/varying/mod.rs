//! Along which axes of meshes a value may differ from device to device.
//!
//! A function that the devices of a mesh run, each on its part, is one program. Of each of its values the type says along
//! which axes of the mesh devices may have different ones. An op gives what differs where an operand does; sums over an axis
//! are the same along it. Operands that differ along fewer axes than others are first taken as differing along all (`pvary`):
//! the transpose of that is the sum over the devices, so that derivatives of what is the same on all devices are sums of what
//! the devices find. Where a mesh is not looked at (`check_vma=False`, `vmap`), nothing differs by type.
//!
//! A set of axes is a number in a table of the process, which is as long as there were different sets. The empty one is 0.

mod retype;

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

pub use retype::{append, fitting};

use crate::op::View;
use crate::ops::{Pvary, Sweeps, While};
use crate::program::Atoms;
use crate::{Atom, Builder, Op, Program, Result, Type, type_error};

/// A set of names of axes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Varying(u32);

type Names = Arc<[Arc<str>]>;

#[derive(Default)]
struct Table {
    sets: Vec<Names>,
    numbers: FxHashMap<Names, u32>,
}

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    let empty: Names = Arc::from([]);
    RwLock::new(Table { sets: vec![empty.clone()], numbers: FxHashMap::from_iter([(empty, 0)]) })
});

impl Varying {
    pub const NONE: Varying = Varying(0);

    /// The set of these names.
    pub fn of(names: impl IntoIterator<Item = Arc<str>>) -> Varying {
        let mut names: Vec<Arc<str>> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Varying::NONE;
        }
        if let Some(&number) =
            TABLE.read().unwrap_or_else(PoisonError::into_inner).numbers.get(names.as_slice())
        {
            return Varying(number);
        }
        let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
        let names: Names = names.into();
        let next = table.sets.len() as u32;
        let number = *table.numbers.entry(names.clone()).or_insert(next);
        if number == next {
            table.sets.push(names);
        }
        Varying(number)
    }

    /// The names, in alphabetical order.
    pub fn names(self) -> Names {
        TABLE.read().unwrap_or_else(PoisonError::into_inner).sets[self.0 as usize].clone()
    }

    pub fn is_empty(self) -> bool {
        self == Varying::NONE
    }

    pub fn union(self, other: Varying) -> Varying {
        if self == other || other.is_empty() {
            return self;
        }
        if self.is_empty() {
            return other;
        }
        Varying::of(self.names().iter().chain(other.names().iter()).cloned())
    }

    /// The names that `other` has not.
    pub fn without(self, other: Varying) -> Varying {
        if self.is_empty() || other.is_empty() {
            return self;
        }
        let others = other.names();
        Varying::of(self.names().iter().filter(|name| !others.contains(name)).cloned())
    }

    pub fn without_names(self, names: &[Arc<str>]) -> Varying {
        if self.is_empty() { self } else { self.without(Varying::of(names.iter().cloned())) }
    }

    pub fn contains(self, name: &str) -> bool {
        !self.is_empty() && self.names().iter().any(|own| &**own == name)
    }

    /// Whether each axis of the other is one of these.
    pub fn covers(self, other: Varying) -> bool {
        self == other || other.without(self).is_empty()
    }
}

impl Type {
    /// Along which axes values of this type may differ.
    pub fn varying(&self) -> Varying {
        match self {
            Type::Array(array) | Type::Ref(array) => array.varying,
            Type::Token => Varying::NONE,
        }
    }

    /// Sets along which axes values of this type may differ.
    pub fn vary(&mut self, varying: Varying) {
        if let Type::Array(array) | Type::Ref(array) = self {
            array.varying = varying;
        }
    }
}

fn all(types: &[Type]) -> Varying {
    types.iter().fold(Varying::NONE, |all, ty| all.union(ty.varying()))
}

/// What the sub-programs of an op take each of its operands for; `None` for ops of which nothing is known but that
/// their results depend on their operands.
fn expected(op: &Op, count: usize) -> Option<Vec<Varying>> {
    let inputs = |program: &Program| program.input_types().map(Type::varying).collect::<Vec<_>>();
    let taken = match op.view() {
        View::Call(op) => inputs(&op.program),
        View::Checkpoint(op) => inputs(&op.jaxpr),
        View::CustomJvp(op) => inputs(&op.call_jaxpr),
        View::CustomVjp(op) => inputs(&op.call_jaxpr),
        View::Ruled(_, called) => inputs(called),
        View::Scan(op) => inputs(&op.jaxpr),
        View::Cond(op) => {
            let mut taken = vec![Varying::NONE; count];
            for branch in &op.branches {
                for (all, own) in taken.iter_mut().skip(1).zip(inputs(branch)) {
                    *all = all.union(own);
                }
            }
            taken
        }
        View::While(op) => {
            let (condition, body) = (inputs(&op.cond_jaxpr), inputs(&op.body_jaxpr));
            let (held, asked) = condition.split_at(op.cond_nconsts.min(condition.len()));
            let (constants, carry) = body.split_at(op.body_nconsts.min(body.len()));
            let carry = carry.iter().zip(asked).map(|(a, b)| a.union(*b));
            held.iter().chain(constants).copied().chain(carry).collect()
        }
        View::Sweeps(op) => {
            let mut taken = vec![Varying::NONE; count];
            let mut take = |at: usize, varying: Varying| {
                if let Some(all) = taken.get_mut(at) {
                    *all = all.union(varying);
                }
            };
            for (at, varying) in inputs(&op.cond_jaxpr).into_iter().enumerate() {
                take(at, varying);
            }
            for (sweep, body) in op.bodies.iter().enumerate() {
                let carry = op.carry_inputs(sweep);
                for (number, varying) in
                    inputs(body).into_iter().take(op.num_consts + carry.len()).enumerate()
                {
                    take(
                        if number < op.num_consts { number } else { carry.start + number - op.num_consts },
                        varying,
                    );
                }
            }
            taken
        }
        View::Leaf(_) => return None,
    };
    (taken.len() == count).then_some(taken)
}

/// Along which axes results differ beyond what the op's own sub-programs say.
fn chosen(op: &Op, inputs: &[Type]) -> Varying {
    match op.view() {
        View::Cond(_) => inputs.first().map_or(Varying::NONE, Type::varying),
        View::While(While { cond_jaxpr, .. }) | View::Sweeps(Sweeps { cond_jaxpr, .. }) => {
            cond_jaxpr.output_types().fold(Varying::NONE, |all, ty| all.union(ty.varying()))
        }
        _ => Varying::NONE,
    }
}

/// The first input that is a carry, of loops; their first outputs are the carries too.
fn first_carry(op: &Op) -> Option<(usize, usize)> {
    match op.view() {
        View::Scan(op) => Some((op.num_consts, op.num_carry)),
        View::While(op) => {
            let constants = op.cond_nconsts + op.body_nconsts;
            Some((constants, op.body_jaxpr.outputs.len()))
        }
        View::Sweeps(op) => Some((op.num_consts, op.num_carry.iter().sum())),
        _ => None,
    }
}

/// A carry differs after the loop where it does before a step. Fails if it differs along more axes after a step.
fn settle_carry(op: &Op, taken: &[Varying], more: Varying, outputs: &mut [Type]) -> Result<()> {
    let Some((first, count)) = first_carry(op) else { return Ok(()) };
    let carries = taken.iter().skip(first).zip(outputs.iter_mut()).take(count);
    for (number, (before, after)) in carries.enumerate() {
        let before = before.union(more);
        let added = after.varying().without(before);
        if !added.is_empty() {
            let names: Vec<String> = added.names().iter().map(|name| format!("'{name}'")).collect();
            let names = format!("({},)", names.join(", "));
            return Err(type_error!(
                "{}: value {number} of the carry is the same along {names} before a step, and may differ there after \
                 it. This might be fixed by applying `lax.pcast(..., {names}, to='varying')` to the initial value, or \
                 by check_vma=False in shard_map.",
                op.name()
            ));
        }
        after.vary(before);
    }
    Ok(())
}

/// Along which axes operands differ that sub-programs take for the same.
fn excess(taken: &[Varying], inputs: &[Type], chosen: bool) -> Varying {
    let skipped = usize::from(chosen);
    let pairs = inputs.iter().zip(taken).skip(skipped);
    pairs.fold(Varying::NONE, |all, (ty, taken)| all.union(ty.varying().without(*taken)))
}

/// Says of the results of an op along which axes they differ.
///
/// Fails for loops whose carry differs along more axes from step to step.
pub fn settle(op: &Op, inputs: &[Type], outputs: &mut [Type]) -> Result<()> {
    if let Op::CustomLinear(_) = op {
        return Ok(()); // its parameters say what the results are
    }
    let united = all(inputs);
    if op.programs().is_empty() {
        if let View::Leaf(rules) | View::Ruled(rules, _) = op.view() {
            let varying = rules.varies(united);
            outputs.iter_mut().for_each(|ty| ty.vary(varying));
        }
        return Ok(());
    }
    let taken = expected(op, inputs.len());
    let more = match &taken {
        Some(taken) => excess(taken, inputs, matches!(op.view(), View::Cond(_))).union(chosen(op, inputs)),
        None => united,
    };
    if let View::Cond(op) = op.view() {
        for branch in &op.branches[1..] {
            outputs
                .iter_mut()
                .zip(branch.output_types())
                .for_each(|(ty, own)| ty.vary(ty.varying().union(own.varying())));
        }
    }
    if !more.is_empty() {
        outputs.iter_mut().for_each(|ty| ty.vary(ty.varying().union(more)));
    }
    taken.map_or(Ok(()), |taken| settle_carry(op, &taken, more, outputs))
}

/// The operands of an op, each differing along the axes that the op takes it to differ along.
pub fn matched(b: &mut Builder, op: &Op, operands: &[Atom]) -> Result<Atoms> {
    let types: SmallVec<[Type; 3]> = operands.iter().map(|&atom| b.type_of(atom)).collect();
    let united = all(&types);
    // The rule of the user's gives cotangents of the operands as they are.
    if let Op::Pvary(_) | Op::CustomLinear(_) = op {
        return Ok(Atoms::from_slice(operands));
    }
    let taken = if op.programs().is_empty() { None } else { expected(op, types.len()) };
    let first = usize::from(matches!(op.view(), View::Cond(_)));
    let taken = taken.filter(|taken| excess(taken, &types, first == 1).is_empty());
    let mut found = Atoms::new();
    for (number, (&atom, ty)) in operands.iter().zip(&types).enumerate() {
        let wanted = match &taken {
            Some(_) if number < first => ty.varying(),
            Some(taken) => taken[number],
            None => united,
        };
        found.push(pvary(b, atom, ty, wanted)?);
    }
    Ok(found)
}

/// `atom`, of type `ty`, as a value that differs along these axes too. Literals are the same everywhere and stay.
pub fn pvary(b: &mut Builder, atom: Atom, ty: &Type, wanted: Varying) -> Result<Atom> {
    let missing = wanted.without(ty.varying());
    match (atom, ty) {
        (Atom::Var(_), Type::Array(_)) if !missing.is_empty() => {
            b.emit1(Pvary { axes: missing.names().to_vec() }, &[atom])
        }
        _ => Ok(atom),
    }
}
