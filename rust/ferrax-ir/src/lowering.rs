//! What compilers are told of an op: as data, so that they need not know its name.
//!
//! Ops that move elements say where each element of their result comes from ([`IndexMap`]),
//! reductions which axes they fold and how ([`Reduction`]). Both are of arrays whose sizes are known.
//! A compiler that has an index map composes it with the loops in which the result is used, so that
//! nothing is moved at all.

use smallvec::SmallVec;

use crate::ops::Kept;
use crate::tensor::element_count;
use crate::{Axes, DType, Scalar};

/// How an op reaches the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lowering {
    /// `scalar` gives the body, applied at every index of the output.
    Elementwise,
    /// The op only moves elements, as `index_map` says.
    Movement,
    /// The op folds axes, as `reduction` says; where that says nothing, a library kernel does.
    Reduction,
    /// A kernel of the backend's library computes it.
    Library,
    /// `expand` rewrites it into other ops.
    Expand,
}

/// An array of known sizes.
#[derive(Clone, Copy, Debug)]
pub struct Extents<'a> {
    pub dtype: DType,
    pub sizes: &'a [usize],
}

impl Extents<'_> {
    pub fn count(&self) -> usize {
        element_count(self.sizes)
    }
}

/// Where the elements of a result come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexMap {
    /// The operand's elements in row-major order.
    InOrder,
    /// The operand's bytes in order, which are elements of another dtype.
    Bytes,
    /// An element of the operand, whose index along each of its axes is this.
    Along(SmallVec<[Follow; 4]>),
    /// An element of the first operand at a place that other operands say. An op with such a map may have a library
    /// kernel, too: it then lowers to that, and compilers choose.
    Picked(Box<Picked>),
    /// Per axis, what is kept of the first operand; all else is the second one.
    Padded(SmallVec<[Kept; 4]>),
    /// The operands one after the other along an axis.
    Joined { axis: usize },
    /// The index along an axis of the result.
    Counted { axis: usize },
    /// Everywhere the same.
    Constant(Scalar),
}

/// An index along an axis of the operand: `start + step * i`, where `i` is the index along axis `axis` of
/// the result, or 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Follow {
    pub axis: Option<usize>,
    pub start: i64,
    pub step: i64,
}

impl Follow {
    /// The index along an axis of the result.
    pub const fn axis(axis: usize) -> Follow {
        Follow { axis: Some(axis), start: 0, step: 1 }
    }

    /// The first element.
    pub const FIRST: Follow = Follow { axis: None, start: 0, step: 0 };
}

/// Elements of windows into the first operand that begin where other operands say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picked {
    /// The index within the window, along each axis of the first operand.
    pub within: SmallVec<[Follow; 4]>,
    pub starts: SmallVec<[Start; 2]>,
    /// What stands where a start is out of its range; if nothing, starts are clamped to it.
    pub outside: Option<Scalar>,
}

/// Where windows begin along an axis: at an integer that is an element of an operand, in `0..=last`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// The axis of the first operand.
    pub axis: usize,
    /// The operand that has the integer, and its index along each axis of that.
    pub operand: usize,
    pub at: SmallVec<[Follow; 4]>,
    pub last: i64,
}

impl IndexMap {
    /// Whether the result has all elements of one operand in row-major order.
    pub fn is_in_order(&self, operand: &[usize], result: &[usize]) -> bool {
        match self {
            IndexMap::InOrder => true,
            IndexMap::Along(axes) => {
                // Axes of size 1 have one index, wherever they lie.
                let long = |sizes: &[usize]| {
                    let sizes = sizes.iter().enumerate().filter(|(_, size)| **size != 1);
                    sizes.map(|(axis, _)| axis).collect::<Axes>()
                };
                let (from, to) = (long(operand), long(result));
                from.len() == to.len()
                    && from
                        .iter()
                        .zip(&to)
                        .all(|(&from, &to)| axes[from] == Follow::axis(to) && operand[from] == result[to])
            }
            _ => false,
        }
    }
}

/// How elements become one. Float sums and products are trees that the number of their terms determines
/// (ferrax-compile's kernel IR says which).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccumulatorKind {
    Sum,
    Prod,
    /// NaN if there is one.
    Max,
    Min,
    And,
    Or,
    Xor,
    /// The first index (row-major over the reduction axes, `I64`) of the
    /// extremum; NaN counts as extreme.
    ArgMax,
    ArgMin,
}

impl AccumulatorKind {
    pub const fn is_arg(self) -> bool {
        matches!(self, AccumulatorKind::ArgMax | AccumulatorKind::ArgMin)
    }
}

/// Axes of the operand that disappear, and what becomes of the elements along them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reduction {
    pub kind: AccumulatorKind,
    pub axes: Axes,
}

/// An op each row of whose output is made of a row of the first operand, or of all of it, and of what all rows share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByRows {
    /// The sizes of the output's leading axes, whose indices number the rows.
    pub loops: Axes,
    /// Whether the first operand has as many rows in the same order, and each is of one of them.
    pub first: bool,
    /// Elements of other operands that a row reads.
    pub shared: usize,
}
