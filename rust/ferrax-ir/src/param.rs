//! Parameters of ops as plain values.
//!
//! Every op's typed parameters convert to and from [`Param`] values. Text,
//! saved files, the Python binding and jaxpr views all go through these, so an
//! op's parameters are described once: by its struct's fields.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::ops::{JvpHandle, PolicyHandle, VjpHandle};
use crate::{Axes, DType, Dim, Program, Result, Scalar, Shape, type_error, value_error};

/// One parameter value.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    None,
    Bool(bool),
    Int(i64),
    /// A symbolic dimension; constants are `Int` as far as that holds them.
    Dim(Dim),
    DType(DType),
    Str(Arc<str>),
    Scalar(Scalar),
    List(Vec<Param>),
    Program(Arc<Program>),
    /// Rules and policies of the user's: objects, which texts and files do not hold.
    Jvp(JvpHandle),
    Vjp(VjpHandle),
    Policy(PolicyHandle),
}

/// The name of the parameter that a struct's field holds: `impl` for `r#impl`.
pub fn field_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// Types that parameters are made of.
pub trait ToParam: Sized {
    fn to_param(&self) -> Param;
    fn from_param(value: Param) -> Result<Self>;
}

fn wrong<T>(expected: &str, got: &Param) -> Result<T> {
    Err(type_error!("expected {expected}, got {got:?}"))
}

impl ToParam for bool {
    fn to_param(&self) -> Param {
        Param::Bool(*self)
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::Bool(value) => Ok(value),
            other => wrong("a bool", &other),
        }
    }
}

macro_rules! integer_params {
    ($($ty:ty),*) => {$(
        impl ToParam for $ty {
            fn to_param(&self) -> Param {
                Param::Int(*self as i64)
            }

            fn from_param(value: Param) -> Result<Self> {
                match value {
                    Param::Int(value) => <$ty>::try_from(value).map_err(|_| {
                        value_error!("{value} is out of range for this parameter ({})", stringify!($ty))
                    }),
                    other => wrong("an integer", &other),
                }
            }
        }
    )*};
}

integer_params!(i32, i64, u8, u32, usize);

impl ToParam for Dim {
    fn to_param(&self) -> Param {
        match self {
            Dim::Const(size) => i64::try_from(*size).map_or_else(|_| Param::Dim(self.clone()), Param::Int),
            Dim::Symbolic(_) => Param::Dim(self.clone()),
        }
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::Dim(dim) => Ok(dim),
            Param::Str(text) => Dim::parse(&text),
            other => usize::from_param(other).map(Dim::Const),
        }
    }
}

impl ToParam for DType {
    fn to_param(&self) -> Param {
        Param::DType(*self)
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::DType(dtype) => Ok(dtype),
            Param::Str(name) => DType::parse(&name),
            other => wrong("a dtype", &other),
        }
    }
}

impl ToParam for Scalar {
    fn to_param(&self) -> Param {
        Param::Scalar(*self)
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::Scalar(scalar) => Ok(scalar),
            other => wrong("a scalar", &other),
        }
    }
}

impl ToParam for Arc<str> {
    fn to_param(&self) -> Param {
        Param::Str(self.clone())
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::Str(text) => Ok(text),
            other => wrong("a string", &other),
        }
    }
}

impl ToParam for Arc<Program> {
    fn to_param(&self) -> Param {
        Param::Program(self.clone())
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::Program(program) => Ok(program),
            other => wrong("a program", &other),
        }
    }
}

impl<T: ToParam> ToParam for Option<T> {
    fn to_param(&self) -> Param {
        self.as_ref().map_or(Param::None, T::to_param)
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::None => Ok(None),
            other => T::from_param(other).map(Some),
        }
    }
}

impl<T: ToParam> ToParam for Vec<T> {
    fn to_param(&self) -> Param {
        Param::List(self.iter().map(T::to_param).collect())
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::List(values) => values.into_iter().map(T::from_param).collect(),
            other => wrong("a tuple", &other),
        }
    }
}

macro_rules! small_list_params {
    ($($ty:ty),*) => {$(
        impl ToParam for $ty {
            fn to_param(&self) -> Param {
                Param::List(self.iter().map(ToParam::to_param).collect())
            }

            fn from_param(value: Param) -> Result<Self> {
                match value {
                    Param::List(values) => values.into_iter().map(ToParam::from_param).collect(),
                    other => wrong("a tuple", &other),
                }
            }
        }
    )*};
}

small_list_params!(Axes, Shape, SmallVec<[i64; 4]>);

impl ToParam for (usize, usize) {
    fn to_param(&self) -> Param {
        Param::List(vec![self.0.to_param(), self.1.to_param()])
    }

    fn from_param(value: Param) -> Result<Self> {
        match <[usize; 2]>::try_from(Vec::from_param(value)?) {
            Ok([a, b]) => Ok((a, b)),
            Err(other) => wrong("a pair", &other.to_param()),
        }
    }
}

impl ToParam for (i64, i64) {
    fn to_param(&self) -> Param {
        Param::List(vec![Param::Int(self.0), Param::Int(self.1)])
    }

    fn from_param(value: Param) -> Result<Self> {
        match &value {
            Param::List(values) => match values.as_slice() {
                [Param::Int(a), Param::Int(b)] => Ok((*a, *b)),
                _ => wrong("two integers", &value),
            },
            _ => wrong("two integers", &value),
        }
    }
}

impl ToParam for (i64, i64, i64) {
    fn to_param(&self) -> Param {
        Param::List(vec![Param::Int(self.0), Param::Int(self.1), Param::Int(self.2)])
    }

    fn from_param(value: Param) -> Result<Self> {
        match &value {
            Param::List(values) => match values.as_slice() {
                [Param::Int(a), Param::Int(b), Param::Int(c)] => Ok((*a, *b, *c)),
                _ => wrong("three integers", &value),
            },
            _ => wrong("three integers", &value),
        }
    }
}

/// Named parameters on their way into an op; taken one by one.
#[derive(Debug)]
pub struct Params {
    op: Arc<str>,
    entries: Vec<(Arc<str>, Param)>,
}

impl Params {
    pub fn new(op: &str, entries: Vec<(Arc<str>, Param)>) -> Self {
        Params { op: op.into(), entries }
    }

    /// Removes and converts the parameter `name`.
    pub fn take<T: ToParam>(&mut self, name: &str) -> Result<T> {
        let position = self.entries.iter().position(|(key, _)| &**key == name);
        let value = match position {
            Some(index) => self.entries.swap_remove(index).1,
            None => Param::None,
        };
        T::from_param(value).map_err(|error| type_error!("{}: parameter '{name}': {error}", self.op))
    }

    /// Fails if a parameter is left that the op does not have.
    pub fn finish(self) -> Result<()> {
        match self.entries.first() {
            None => Ok(()),
            Some((name, _)) => Err(type_error!("{} has no parameter '{name}'", self.op)),
        }
    }
}

/// Declares an enum whose variants are strings in text, files and Python.
#[macro_export]
macro_rules! string_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }

        impl $crate::ToParam for $name {
            fn to_param(&self) -> $crate::Param {
                $crate::Param::Str(self.name().into())
            }

            fn from_param(value: $crate::Param) -> $crate::Result<Self> {
                let text: std::sync::Arc<str> = $crate::ToParam::from_param(value)?;
                Self::ALL.iter().copied().find(|item| item.name() == &*text).ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|item| item.name()).collect();
                    $crate::value_error!("expected one of {names:?}, got '{text}'")
                })
            }
        }
    };
}
