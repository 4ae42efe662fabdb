//! The closed set of ops. Each variant's row is in `ops/`, and the list of them in `ops/mod.rs`.

use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use crate::ops::*;
use crate::rules::{FromParams, Row, Rules, Types};
use crate::varying;
use crate::{Effect, Effects, Param, Params, Program, Result, Tensor, Type, parse_error};

/// An op that is defined outside this crate, with the same rules as a method
/// table. Two are equal if they are the same object.
#[derive(Clone, Debug)]
pub struct Extension(pub Arc<dyn Rules>);

impl PartialEq for Extension {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Extension {}

impl std::hash::Hash for Extension {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).cast::<()>().hash(state);
    }
}

/// An op as transformations see it. Adding a variant makes every pass that has
/// no rule for it fail to compile.
pub enum View<'a> {
    Leaf(&'a dyn Rules),
    Call(&'a Call),
    Cond(&'a Cond),
    While(&'a While),
    Sweeps(&'a Sweeps),
    Scan(&'a Scan),
    Checkpoint(&'a Checkpoint),
    CustomJvp(&'a CustomJvp),
    CustomVjp(&'a CustomVjp),
    /// A call of the program with rules of the user's: in all else as a leaf.
    Ruled(&'a dyn Rules, &'a Arc<Program>),
}

macro_rules! ops {
    (leaves: $($variant:ident),*; structured: $($structured:ident),*; ruled: $($ruled:ident),* $(,)?) => {
        /// A primitive with its parameters.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Op {
            $($variant($variant),)*
            $($structured($structured),)*
            $($ruled($ruled),)*
            Extension(Extension),
        }

        $(impl From<$variant> for Op {
            fn from(op: $variant) -> Op {
                Op::$variant(op)
            }
        })*

        $(impl From<$structured> for Op {
            fn from(op: $structured) -> Op {
                Op::$structured(op)
            }
        })*

        $(impl From<$ruled> for Op {
            fn from(op: $ruled) -> Op {
                Op::$ruled(op)
            }
        })*

        impl Op {
            pub fn view(&self) -> View<'_> {
                match self {
                    $(Op::$variant(op) => View::Leaf(op),)*
                    $(Op::$structured(op) => View::$structured(op),)*
                    $(Op::$ruled(op) => View::Ruled(op, op.called()),)*
                    Op::Extension(extension) => View::Leaf(&*extension.0),
                }
            }

            fn row(&self) -> &dyn Row {
                match self {
                    $(Op::$variant(op) => op,)*
                    $(Op::$structured(op) => op,)*
                    $(Op::$ruled(op) => op,)*
                    Op::Extension(extension) => &*extension.0,
                }
            }
        }

        type Constructor = fn(&str, &mut Params) -> Result<Op>;

        static CONSTRUCTORS: LazyLock<FxHashMap<&'static str, Constructor>> = LazyLock::new(|| {
            let mut table: FxHashMap<&'static str, Constructor> = FxHashMap::default();
            $(for (name, _) in $variant::NAMES {
                table.insert(name, |name, params| $variant::from_params(name, params).map(Op::$variant));
            })*
            $(for (name, _) in $structured::NAMES {
                table.insert(name, |name, params| {
                    $structured::from_params(name, params).map(Op::$structured)
                });
            })*
            $(for (name, _) in $ruled::NAMES {
                table.insert(name, |name, params| $ruled::from_params(name, params).map(Op::$ruled));
            })*
            table
        });

        /// Makes the table that is made once.
        pub(crate) fn settle() {
            LazyLock::force(&CONSTRUCTORS);
        }

        /// Every op's name with a line of explanation, in the order of the rows.
        pub fn documented_ops() -> Vec<(&'static str, &'static str)> {
            let mut all = Vec::new();
            $(all.extend_from_slice($variant::NAMES);)*
            $(all.extend_from_slice($structured::NAMES);)*
            $(all.extend_from_slice($ruled::NAMES);)*
            all
        }
    };
}

with_all_ops!(ops);

impl Op {
    /// JAX's name of the primitive.
    pub fn name(&self) -> &str {
        self.row().name()
    }

    /// Parameters under JAX's names.
    pub fn params(&self) -> Vec<(&'static str, Param)> {
        self.row().params()
    }

    pub fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let mut outputs = self.row().infer(inputs)?;
        varying::settle(self, inputs, &mut outputs)?;
        Ok(outputs)
    }

    /// Reference evaluation; see [`Row::eval`].
    pub fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        self.row().eval(inputs, outputs)
    }

    pub fn effects(&self) -> Effects {
        self.row().effects()
    }

    /// Whether the op does something besides computing its outputs.
    pub fn happens(&self) -> bool {
        self.effects().iter().any(Effect::happens)
    }

    /// Whether the op depends on a mapped axis of this name.
    pub fn names_axis(&self, axis: &str) -> bool {
        self.effects().iter().any(|effect| effect.names(axis))
    }

    /// The op of this name with these parameters.
    pub fn from_params(name: &str, entries: Vec<(Arc<str>, Param)>) -> Result<Op> {
        let constructor =
            CONSTRUCTORS.get(name).ok_or_else(|| parse_error!("there is no op named '{name}'"))?;
        let mut params = Params::new(name, entries);
        let op = constructor(name, &mut params)?;
        params.finish()?;
        Ok(op)
    }

    /// The sub-programs, in a fixed order. Rules of the user's are some where they are data.
    pub fn programs(&self) -> SmallVec<[&Arc<Program>; 2]> {
        match self.view() {
            View::Leaf(_) => match self {
                Op::CustomLinear(op) => op.rule.0.saved().map_or_else(SmallVec::new, SavedVjp::sub_programs),
                _ => SmallVec::new(),
            },
            View::Call(op) => smallvec![&op.program],
            View::Cond(op) => op.branches.iter().collect(),
            View::While(op) => smallvec![&op.cond_jaxpr, &op.body_jaxpr],
            View::Sweeps(op) => std::iter::once(&op.cond_jaxpr).chain(&op.bodies).collect(),
            View::Scan(op) => smallvec![&op.jaxpr],
            View::Checkpoint(op) => smallvec![&op.jaxpr],
            View::CustomJvp(op) => {
                let rule = op.jvp_jaxpr_fun.0.saved().and_then(|saved| saved.program.as_ref());
                std::iter::once(&op.call_jaxpr).chain(rule).collect()
            }
            View::CustomVjp(op) => {
                let rule = op.rule.0.saved().map_or_else(SmallVec::new, SavedVjp::sub_programs);
                std::iter::once(&op.call_jaxpr).chain(rule).collect()
            }
            View::Ruled(_, called) => match self {
                Op::LinearCall(op) => std::iter::once(called).chain(&op.transpose).collect(),
                Op::LinearSolve(op) => op.programs().collect(),
                _ => smallvec![called],
            },
        }
    }

    /// The same op with its sub-programs replaced by ones of the same types.
    pub fn map_programs<E>(
        &self,
        mut map: impl FnMut(&Arc<Program>) -> Result<Arc<Program>, E>,
    ) -> Result<Op, E> {
        Ok(match self.view() {
            View::Leaf(_) => match self {
                Op::CustomLinear(op) => CustomLinear { rule: op.rule.map_saved(map)?, ..op.clone() }.into(),
                _ => self.clone(),
            },
            View::Call(op) => Call { program: map(&op.program)?, ..op.clone() }.into(),
            View::Cond(op) => {
                Cond { branches: op.branches.iter().map(map).collect::<Result<_, E>>()? }.into()
            }
            View::While(op) => {
                let (cond_jaxpr, body_jaxpr) = (map(&op.cond_jaxpr)?, map(&op.body_jaxpr)?);
                While { cond_jaxpr, body_jaxpr, ..op.clone() }.into()
            }
            View::Sweeps(op) => {
                let cond_jaxpr = map(&op.cond_jaxpr)?;
                let bodies = op.bodies.iter().map(map).collect::<Result<_, E>>()?;
                Sweeps { bodies, cond_jaxpr, ..op.clone() }.into()
            }
            View::Scan(op) => Scan { jaxpr: map(&op.jaxpr)?, ..op.clone() }.into(),
            View::Checkpoint(op) => Checkpoint { jaxpr: map(&op.jaxpr)?, ..op.clone() }.into(),
            View::CustomJvp(op) => {
                let mut mapped = CustomJvp { call_jaxpr: map(&op.call_jaxpr)?, ..op.clone() };
                if let Some(saved) = op.jvp_jaxpr_fun.0.saved() {
                    mapped.jvp_jaxpr_fun = JvpHandle(Arc::new(saved.map(map)?));
                }
                mapped.into()
            }
            View::CustomVjp(op) => {
                let call_jaxpr = map(&op.call_jaxpr)?;
                CustomVjp { call_jaxpr, rule: op.rule.map_saved(map)?, ..op.clone() }.into()
            }
            View::Ruled(..) => match self {
                Op::LinearCall(op) => op.map_programs(map)?.into(),
                Op::LinearSolve(op) => op.map_programs(map)?.into(),
                Op::CustomVmap(op) => CustomVmap { call: map(&op.call)?, ..op.clone() }.into(),
                _ => self.clone(),
            },
        })
    }

    /// Whether two ops are the same, where sub-programs are only if they are the
    /// same objects: looking into them would not be linear where they are shared.
    pub fn is_same(&self, other: &Op) -> bool {
        let (own, others) = (self.programs(), other.programs());
        if own.is_empty() && others.is_empty() {
            return self == other;
        }
        let same_programs =
            own.len() == others.len() && own.iter().zip(&others).all(|(a, b)| Arc::ptr_eq(a, b));
        same_programs
            && self.params_but_programs() == other.params_but_programs()
            && self.name() == other.name()
    }

    fn params_but_programs(&self) -> Vec<(&'static str, Param)> {
        let mut params = self.params();
        let holds_program = |value: &Param| match value {
            Param::Program(_) => true,
            Param::List(items) => items.iter().any(|item| matches!(item, Param::Program(_))),
            _ => false,
        };
        params.retain(|(_, value)| !holds_program(value));
        params
    }

    /// Hashes the op as [`Op::is_same`] compares it, save for its parameters.
    pub fn hash_shallow(&self, state: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        let programs = self.programs();
        if programs.is_empty() {
            return self.hash(state);
        }
        self.name().hash(state);
        for program in programs {
            Arc::as_ptr(program).addr().hash(state);
        }
    }
}

/// Declares an enum and the table of its rows, in the same order.
#[macro_export]
macro_rules! op_table {
    ($(#[$meta:meta])* $name:ident: $row:ty { $($variant:ident = $value:expr),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            const ROWS: &'static [$row] = &[$($value),*];

            pub const NAMES: &'static [(&'static str, &'static str)] =
                &[$(($name::$variant.row().name, $name::$variant.row().doc)),*];

            pub const fn row(self) -> &'static $row {
                &Self::ROWS[self as usize]
            }

            /// JAX's name of the primitive.
            pub const fn name(self) -> &'static str {
                self.row().name
            }
        }
    };
}

/// Declares a family: an enum whose variants are ops without parameters, and the table of
/// their rows.
#[macro_export]
macro_rules! op_family {
    ($(#[$meta:meta])* $name:ident: $row:ty { $($rows:tt)* }) => {
        $crate::op_table! { $(#[$meta])* $name: $row { $($rows)* } }

        impl $name {
            pub const fn op_name(self) -> &'static str {
                self.name()
            }

            pub(crate) fn param_list(&self) -> Vec<(&'static str, $crate::Param)> {
                Vec::new()
            }
        }

        impl $crate::rules::FromParams for $name {
            const NAMES: &'static [(&'static str, &'static str)] = $name::NAMES;

            fn from_params(name: &str, _params: &mut $crate::Params) -> $crate::Result<Self> {
                Self::ALL.iter().copied().find(|op| op.name() == name)
                    .ok_or_else(|| $crate::parse_error!("there is no op named '{name}'"))
            }
        }
    };
}

/// Declares the struct of an op with its parameters and all that follows from
/// them: names, conversion to and from [`Param`]s.
#[macro_export]
macro_rules! op_struct {
    ($(#[doc = $doc:literal])+ $name:ident $text:literal { $($(#[$meta:meta])* $field:ident : $ty:ty),* $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub struct $name { $($(#[$meta])* pub $field: $ty),* }

        impl $name {
            pub const NAME: &'static str = $text;

            #[allow(dead_code, reason = "families name their members themselves")]
            fn op_name(&self) -> &'static str {
                $text
            }

            fn param_list(&self) -> Vec<(&'static str, $crate::Param)> {
                vec![$(($crate::param::field_name(stringify!($field)), $crate::ToParam::to_param(&self.$field))),*]
            }
        }

        impl $crate::rules::FromParams for $name {
            const NAMES: &'static [(&'static str, &'static str)] = &[($text, concat!($($doc),+))];

            fn from_params(_name: &str, _params: &mut $crate::Params) -> $crate::Result<Self> {
                Ok($name { $($field: _params.take($crate::param::field_name(stringify!($field)))?),* })
            }
        }
    };
}
