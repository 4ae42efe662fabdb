//! Types of values in a program.

use smallvec::SmallVec;

use crate::varying::{Share, Varying};
use crate::{DType, Dim, Result};

/// The dimensions of an array, outermost first.
pub type Shape = SmallVec<[Dim; 4]>;

/// Axes of an array, as parameters of ops carry them.
pub type Axes = SmallVec<[usize; 4]>;

/// Shape and element type. `weak` marks values that came from Python scalars
/// and give way to strong types in promotion; `varying` says along which axes of
/// a mesh devices may have different values.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ArrayType {
    pub shape: Shape,
    pub dtype: DType,
    pub weak: bool,
    pub varying: Varying,
}

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    Array(ArrayType),
    /// A mutable array.
    Ref(ArrayType),
    /// Orders effects; has no data.
    Token,
}

impl ArrayType {
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        ArrayType { shape: shape.into(), dtype, weak: false, varying: Varying::NONE }
    }

    pub fn scalar(dtype: DType) -> Self {
        ArrayType::new(Shape::new(), dtype)
    }

    pub fn of_sizes(sizes: &[usize], dtype: DType) -> Self {
        ArrayType::new(sizes.iter().map(|&n| Dim::Const(n)).collect::<Shape>(), dtype)
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    pub fn with_dtype(&self, dtype: DType) -> Self {
        ArrayType { shape: self.shape.clone(), dtype, ..*self }
    }

    pub fn with_shape(&self, shape: Shape) -> Self {
        ArrayType { shape, ..*self }
    }

    pub fn with_weak(mut self, weak: bool) -> Self {
        self.weak = weak;
        self
    }

    pub fn with_varying(mut self, varying: Varying) -> Self {
        self.varying = varying;
        self
    }

    /// The type of this type's tangents.
    pub fn tangent(&self) -> Self {
        self.with_dtype(self.dtype.tangent())
    }

    /// The type with what `lookup` gives in place of dimension variables; others stay.
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Result<Self> {
        let shape = self.shape.iter().map(|dim| dim.substitute(lookup)).collect::<Result<_>>()?;
        Ok(self.with_shape(shape))
    }

    /// The sizes, if none is symbolic.
    pub fn sizes(&self) -> Option<SmallVec<[usize; 4]>> {
        self.shape.iter().map(Dim::as_const).collect()
    }
}

impl Type {
    /// As [`ArrayType::substitute`].
    pub fn substitute(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Result<Self> {
        Ok(match self {
            Type::Array(ty) => Type::Array(ty.substitute(lookup)?),
            Type::Ref(ty) => Type::Ref(ty.substitute(lookup)?),
            Type::Token => Type::Token,
        })
    }

    pub fn as_array(&self) -> Option<&ArrayType> {
        match self {
            Type::Array(array) => Some(array),
            Type::Ref(_) | Type::Token => None,
        }
    }
}

impl From<ArrayType> for Type {
    fn from(array: ArrayType) -> Self {
        Type::Array(array)
    }
}

/// Prints as `f32[2,3]`; a weak type as `~f32[]` only where `{:#}` asks for it,
/// since two programs that differ in weakness alone read better alike. A value that
/// differs along axes is `f32[2,3]{V:x}`, one that is unreduced or reduced over them `{U:x}` or `{R:x}`.
impl std::fmt::Display for ArrayType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.weak && f.alternate() {
            f.write_str("~")?;
        }
        write!(f, "{}[", self.dtype.short_name())?;
        for (axis, dim) in self.shape.iter().enumerate() {
            if axis > 0 {
                f.write_str(",")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")?;
        if !self.varying.is_empty() {
            let mut parts = Vec::new();
            for (mark, share) in [("V", Share::Varying), ("U", Share::Unreduced), ("R", Share::Reduced)] {
                match self.varying.axes(share).as_slice() {
                    [] => {}
                    [name] => parts.push(format!("{mark}:{name}")),
                    names => parts.push(format!("{mark}:({})", names.join(","))),
                }
            }
            write!(f, "{{{}}}", parts.join(", "))?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Type::Array(array) => std::fmt::Display::fmt(array, f),
            Type::Ref(array) => {
                f.write_str("Ref{")?;
                std::fmt::Display::fmt(array, f)?;
                f.write_str("}")
            }
            Type::Token => f.write_str("Token[]"),
        }
    }
}

/// Prints a shape as `(2, 3)`, for messages.
pub struct ShowShape<'a>(pub &'a [Dim]);

impl std::fmt::Display for ShowShape<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(")?;
        for (axis, dim) in self.0.iter().enumerate() {
            if axis > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str(if self.0.len() == 1 { ",)" } else { ")" })
    }
}
