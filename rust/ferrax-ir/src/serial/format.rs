//! What is in the payload of a file, field by field.
//!
//! These structs are the format: a change to them, to the order of their fields
//! or of their variants needs a new [`super::VERSION`]. Texts and constants are
//! borrowed from the file.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Default)]
pub struct File<'a> {
    #[serde(borrow)]
    pub metadata: &'a str,
    pub input_names: Vec<&'a str>,
    pub output_names: Vec<&'a str>,
    pub lines: Vec<Line<'a>>,
    pub types: Vec<Type<'a>>,
    pub tensors: Vec<Tensor<'a>>,
    /// Callees before callers; the last is the one that was saved.
    pub programs: Vec<Program<'a>>,
}

#[derive(Serialize, Deserialize)]
pub struct Line<'a> {
    #[serde(borrow)]
    pub file: Cow<'a, str>,
    pub line: u32,
    #[serde(borrow)]
    pub function: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
pub enum Type<'a> {
    #[serde(borrow)]
    Array(ArrayType<'a>),
    Ref(ArrayType<'a>),
    Token,
}

#[derive(Serialize, Deserialize)]
pub struct ArrayType<'a> {
    /// The name that the dtype has in NumPy.
    pub dtype: &'a str,
    #[serde(borrow)]
    pub shape: Vec<Dim<'a>>,
    pub weak: bool,
}

#[derive(Serialize, Deserialize)]
pub enum Dim<'a> {
    Const(u64),
    #[serde(borrow)]
    Symbolic(Cow<'a, str>),
}

#[derive(Serialize, Deserialize)]
pub struct Tensor<'a> {
    pub dtype: &'a str,
    pub sizes: Vec<u64>,
    #[serde(borrow)]
    pub elements: Bytes<'a>,
}

/// Elements in row-major order, each little-endian.
pub struct Bytes<'a>(pub &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a [u8]>::deserialize(deserializer).map(Bytes)
    }
}

#[derive(Serialize, Deserialize)]
pub struct Program<'a> {
    #[serde(borrow)]
    pub name: &'a str,
    /// The type of each variable, as a place in `File::types`.
    pub variables: Vec<u32>,
    pub inputs: Vec<u32>,
    /// Variables with places in `File::tensors`.
    pub constants: Vec<(u32, u32)>,
    pub equations: Vec<Equation<'a>>,
    pub outputs: Vec<Atom<'a>>,
    pub effects: Vec<Effect<'a>>,
}

#[derive(Serialize, Deserialize)]
pub struct Equation<'a> {
    #[serde(borrow)]
    pub op: Cow<'a, str>,
    /// Names with values; a value is a tree, written node by node, parents first.
    pub params: Vec<(&'a str, Vec<Param<'a>>)>,
    pub inputs: Vec<Atom<'a>>,
    pub outputs: Vec<u32>,
    /// One more than the place in `File::lines`; zero if no line is known.
    pub source: u32,
}

#[derive(Serialize, Deserialize)]
pub enum Atom<'a> {
    Var(u32),
    Literal(#[serde(borrow)] Scalar<'a>, bool),
}

#[derive(Serialize, Deserialize)]
pub struct Scalar<'a> {
    pub dtype: &'a str,
    pub bits: u128,
}

#[derive(Serialize, Deserialize)]
pub enum Param<'a> {
    None,
    Bool(bool),
    Int(i64),
    #[serde(borrow)]
    Dim(Cow<'a, str>),
    DType(&'a str),
    Str(Cow<'a, str>),
    Scalar(Scalar<'a>),
    /// So many nodes' trees follow.
    List(u32),
    /// A place in `File::programs`.
    Program(u32),
}

#[derive(Serialize, Deserialize)]
pub enum Effect<'a> {
    Unordered,
    Ordered,
    NamedAxis(&'a str),
    Memory,
}
