//! Sets of axes of meshes, with how a value lies over each: a number in a table of the process, which is as long as there were
//! different sets. The empty one is 0.
//!
//! An axis along which devices may have different values goes by its name. One over which a value is the sum of what devices have
//! (unreduced) has a `+` before its name; one along which the value is the same and its cotangent such a sum (reduced) a `=`.
//! Invariant: an axis that is reduced is in no set by another name as well; one that is both plain and unreduced is an error of
//! who united the two (`Varying::torn`).

use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use rustc_hash::FxHashMap;

/// A set of names of axes, each with a mark or without.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Varying(u32);

type Names = Arc<[Arc<str>]>;

#[derive(Default)]
struct Table {
    sets: Vec<Names>,
    numbers: FxHashMap<Names, u32>,
}

/// How a value lies over an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Devices may have different values.
    Varying,
    /// What devices have is to be added up.
    Unreduced,
    /// The same on all devices, and its cotangent unreduced.
    Reduced,
}

const UNREDUCED: char = '+';
const REDUCED: char = '=';

impl Share {
    /// The name of an axis with the mark of this share.
    pub fn mark(self, axis: &str) -> Arc<str> {
        match self {
            Share::Varying => Arc::from(axis),
            Share::Unreduced => Arc::from(format!("{UNREDUCED}{axis}")),
            Share::Reduced => Arc::from(format!("{REDUCED}{axis}")),
        }
    }

    /// The share that a marked name says, and the name.
    pub fn of(marked: &str) -> (Share, &str) {
        if let Some(axis) = marked.strip_prefix(UNREDUCED) {
            (Share::Unreduced, axis)
        } else if let Some(axis) = marked.strip_prefix(REDUCED) {
            (Share::Reduced, axis)
        } else {
            (Share::Varying, marked)
        }
    }
}

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    let empty: Names = Arc::from([]);
    RwLock::new(Table { sets: vec![empty.clone()], numbers: FxHashMap::from_iter([(empty, 0)]) })
});

impl Varying {
    pub const NONE: Varying = Varying(0);

    /// The set of these names. What is reduced and something else is that.
    pub fn of(names: impl IntoIterator<Item = Arc<str>>) -> Varying {
        let mut names: Vec<Arc<str>> = names.into_iter().collect();
        if names.iter().any(|name| name.starts_with(REDUCED)) {
            let known: Vec<Arc<str>> = names.clone();
            names.retain(|name| match Share::of(name) {
                (Share::Reduced, axis) => !known
                    .iter()
                    .map(|other| Share::of(other))
                    .any(|(share, other)| other == axis && share != Share::Reduced),
                _ => true,
            });
        }
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

    /// The names that `other` has not. A reduced axis is in a set that has the axis in another way.
    pub fn without(self, other: Varying) -> Varying {
        if self.is_empty() || other.is_empty() {
            return self;
        }
        let others = other.names();
        let there = |name: &Arc<str>| {
            others.contains(name)
                || matches!(Share::of(name), (Share::Reduced, axis) if other.share(axis).is_some())
        };
        Varying::of(self.names().iter().filter(|name| !there(name)).cloned())
    }

    /// The set without these axes, however values lie over them.
    pub fn without_names(self, axes: &[Arc<str>]) -> Varying {
        if self.is_empty() {
            return self;
        }
        let named = |name: &Arc<str>| axes.iter().any(|axis| **axis == *Share::of(name).1);
        Varying::of(self.names().iter().filter(|name| !named(name)).cloned())
    }

    /// Whether devices may have different values along this axis.
    pub fn contains(self, axis: &str) -> bool {
        self.share(axis) == Some(Share::Varying)
    }

    /// How values lie over an axis; none where they are the same along it.
    pub fn share(self, axis: &str) -> Option<Share> {
        if self.is_empty() {
            return None;
        }
        self.names().iter().map(|name| Share::of(name)).find(|(_, own)| *own == axis).map(|(share, _)| share)
    }

    /// The axes over which values lie so, without marks.
    pub fn axes(self, share: Share) -> Vec<Arc<str>> {
        if self.is_empty() {
            return Vec::new();
        }
        let names = self.names();
        let shares = names.iter().map(|name| Share::of(name));
        shares.filter(|(own, _)| *own == share).map(|(_, axis)| Arc::from(axis)).collect()
    }

    /// Whether all axes are plain: values differ along them.
    pub fn is_plain(self) -> bool {
        self.is_empty() || self.names().iter().all(|name| Share::of(name).0 == Share::Varying)
    }

    /// An axis that is both plain and unreduced.
    pub fn torn(self) -> Option<Arc<str>> {
        self.axes(Share::Unreduced).into_iter().find(|axis| self.contains(axis))
    }

    /// How cotangents of such values lie: what is unreduced and what is reduced change places.
    pub fn dual(self) -> Varying {
        if self.is_plain() {
            return self;
        }
        Varying::of(self.names().iter().map(|name| match Share::of(name) {
            (Share::Varying, _) => name.clone(),
            (Share::Unreduced, axis) => Share::Reduced.mark(axis),
            (Share::Reduced, axis) => Share::Unreduced.mark(axis),
        }))
    }

    /// Whether each axis of the other is one of these; what is reduced there may be so here or differ.
    pub fn covers(self, other: Varying) -> bool {
        self == other || other.without(self).is_empty()
    }
}
