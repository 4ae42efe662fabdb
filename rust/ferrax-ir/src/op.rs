//! The closed set of ops. Each variant's row is in `ops/`.

use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;

use crate::ops::*;
use crate::rules::{FromParams, Row, Rules, Types};
use crate::{Effects, Param, Params, Program, Result, Tensor, Type, parse_error};

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
}

macro_rules! ops {
    ($($variant:ident),* $(,)?) => {
        /// A primitive with its parameters.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Op {
            $($variant($variant),)*
            Call(Call),
            Extension(Extension),
        }

        $(impl From<$variant> for Op {
            fn from(op: $variant) -> Op {
                Op::$variant(op)
            }
        })*

        impl Op {
            pub fn view(&self) -> View<'_> {
                match self {
                    $(Op::$variant(op) => View::Leaf(op),)*
                    Op::Call(call) => View::Call(call),
                    Op::Extension(extension) => View::Leaf(&*extension.0),
                }
            }

            fn row(&self) -> &dyn Row {
                match self {
                    $(Op::$variant(op) => op,)*
                    Op::Call(call) => call,
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
            for (name, _) in Call::NAMES {
                table.insert(name, |name, params| Call::from_params(name, params).map(Op::Call));
            }
            table
        });

        /// Every op's name with a line of explanation, in the order of the rows.
        pub fn documented_ops() -> Vec<(&'static str, &'static str)> {
            let mut all = Vec::new();
            $(all.extend_from_slice($variant::NAMES);)*
            all.extend_from_slice(Call::NAMES);
            all
        }
    };
}

ops! {
    // Elementwise.
    Unary, Binary, Compare, Round, IntegerPow, ReducePrecision, ConvertElementType, BitcastConvertType,
    SelectN, Clamp, StopGradient, Copy,
    // Structure.
    BroadcastInDim, Reshape, Transpose, Squeeze, Slice, DynamicSlice, DynamicUpdateSlice, Concatenate, Pad, Rev,
    Iota, Gather, Scatter,
    // Reductions.
    Reduce, ArgReduce, Cumulative,
    // Products.
    DotGeneral,
    // Random bits.
    Threefry2x32, RandomSeed, RandomSplit, RandomFoldIn, RandomBits, RandomWrap, RandomUnwrap,
}

impl From<Call> for Op {
    fn from(call: Call) -> Op {
        Op::Call(call)
    }
}

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
        self.row().infer(inputs)
    }

    /// Reference evaluation; see [`Row::eval`].
    pub fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        self.row().eval(inputs, outputs)
    }

    pub fn effects(&self) -> Effects {
        self.row().effects()
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

    /// The sub-programs.
    pub fn programs(&self) -> impl Iterator<Item = &Arc<Program>> {
        match self {
            Op::Call(call) => Some(&call.program),
            _ => None,
        }
        .into_iter()
    }
}

/// Declares a family: an enum whose variants are the names of ops without parameters.
#[macro_export]
macro_rules! op_family {
    ($(#[$meta:meta])* $name:ident { $($variant:ident $text:literal $doc:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $(#[doc = $doc] $variant),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            pub const fn op_name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            fn param_list(&self) -> Vec<(&'static str, $crate::Param)> {
                Vec::new()
            }
        }

        impl $crate::rules::FromParams for $name {
            const NAMES: &'static [(&'static str, &'static str)] = &[$(($text, $doc)),*];

            fn from_params(name: &str, _params: &mut $crate::Params) -> $crate::Result<Self> {
                Self::ALL.iter().copied().find(|op| op.op_name() == name)
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
