//! The rules that make up an op's row.
//!
//! [`Row`] is what every op has; [`Rules`] is what an op without sub-programs
//! has besides. Ops with sub-programs have their rules in the transformations
//! themselves, which match on [`crate::op::View`] exhaustively.

use smallvec::SmallVec;

pub use crate::lowering::{
    AccumulatorKind, ByRows, Extents, Follow, IndexMap, Lowering, Picked, Reduction, Start,
};
use crate::op::Extension;
use crate::scalar::{Body, Value};
use crate::shard_rule::{self, ShardRule};
use crate::varying::Varying;
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Effects, Param, Params, Result, Tensor, Type, internal_error,
    unsupported,
};

pub type Types = SmallVec<[Type; 1]>;

/// Name, parameters, types and meaning of an op.
pub trait Row: std::fmt::Debug + Send + Sync {
    /// JAX's name of the primitive.
    fn name(&self) -> &str;

    /// The parameters under JAX's names, in a fixed order.
    fn params(&self) -> Vec<(&'static str, Param)>;

    /// The types of the outputs, or why these inputs are refused.
    fn infer(&self, inputs: &[Type]) -> Result<Types>;

    /// The outputs for concrete inputs: slow, obvious, and the oracle of every
    /// backend. `outputs` is what `infer` gave.
    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>>;

    fn effects(&self) -> Effects {
        Effects::new()
    }

    /// The op as one of this crate, for files; `None` if they hold what it is
    /// made of. Without `rules`, no rule of the user's is traced for it.
    fn as_data(&self, _rules: bool) -> Result<Option<crate::Op>> {
        Ok(None)
    }

    /// The op itself, for those that are defined outside this crate: lets the
    /// crate that defines an op know it again.
    fn as_any(&self) -> Option<&dyn std::any::Any> {
        None
    }
}

/// Ops that are made from a name and parameters.
pub trait FromParams: Sized {
    /// Every name that `from_params` accepts, each with a line of explanation.
    const NAMES: &'static [(&'static str, &'static str)];

    fn from_params(name: &str, params: &mut Params) -> Result<Self>;
}

/// One equation as its jvp rule sees it. A missing tangent is a zero.
pub struct Jvp<'a> {
    pub inputs: &'a [Atom],
    pub tangents: &'a [Option<Atom>],
    /// The primal outputs, already emitted.
    pub outputs: &'a [Atom],
}

/// An input of an equation as its transpose rule sees it.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A value that the equation is not transposed over.
    Known(Atom),
    /// The equation is linear in this input; its cotangent is wanted.
    Linear(Type),
}

impl Operand {
    pub fn known(&self) -> Option<Atom> {
        match self {
            Operand::Known(atom) => Some(*atom),
            Operand::Linear(_) => None,
        }
    }

    pub fn is_linear(&self) -> bool {
        matches!(self, Operand::Linear(_))
    }
}

/// One equation as its transpose rule sees it.
pub struct Transpose<'a> {
    pub inputs: &'a [Operand],
    /// Types of the outputs.
    pub outputs: &'a [Type],
    /// A missing cotangent is a zero. At least one is there.
    pub cotangents: &'a [Option<Atom>],
}

/// One equation as its batch rule sees it.
pub struct Batch<'a> {
    pub size: &'a Dim,
    /// What the batch's axis is called, if it has a name.
    pub axis_name: Option<&'a str>,
    pub inputs: &'a [Atom],
    /// The batch dimension of each input; at least one is there, save for [`Rules::batch_named`].
    pub dims: &'a [Option<usize>],
}

/// Outputs of a batch rule with their batch dimensions.
pub type Batched = SmallVec<[(Atom, Option<usize>); 1]>;

/// Outputs with their tangents.
pub type WithTangents = SmallVec<[(Atom, Option<Atom>); 1]>;

/// The rules of an op without sub-programs.
pub trait Rules: Row {
    /// Emits the outputs together with their tangents, for ops whose rule gives
    /// both at once; `None` where `jvp` gives the tangents of outputs that the op
    /// itself computes.
    fn jvp_joint(
        &self,
        _b: &mut Builder,
        _inputs: &[Atom],
        _tangents: &[Option<Atom>],
    ) -> Option<Result<WithTangents>> {
        None
    }

    /// Emits the tangents of the outputs.
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>>;

    /// Emits the cotangents of the linear inputs; `None` is a zero. Known
    /// inputs get `None`.
    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>>;

    /// Whether the op reads a part of its first operand, whose cotangent is zero elsewhere.
    fn reads_part(&self, _inputs: &[ArrayType]) -> bool {
        false
    }

    /// For ops that read a part: emits the sum of `before` and the cotangent of the first operand, with that part of
    /// `before` changed.
    fn transpose_onto(&self, _b: &mut Builder, _eqn: &Transpose<'_>, _before: Atom) -> Result<Atom> {
        Err(internal_error!("{} reads no part of its operand", self.name()))
    }

    /// Emits the op over a batch.
    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched>;

    /// Emits the op over a batch of an axis whose name is among the op's effects.
    fn batch_named(&self, _b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let name = eqn.axis_name.unwrap_or_default();
        Err(unsupported!("{} over the mapped axis '{name}' has no batching rule", self.name()))
    }

    /// Whether `batch_named` gives all lanes the same, not batched.
    fn is_shared(&self) -> bool {
        false
    }

    /// Along which axes of meshes the outputs may differ between devices, if the operands do along `operands`.
    fn varies(&self, operands: Varying) -> Varying {
        operands
    }

    /// Of an op that is defined outside: the op with other values for the variables of symbolic dimensions, as `lookup`
    /// gives them; `None` where that is not known.
    fn specialised(&self, _lookup: &dyn Fn(&str) -> Option<Dim>) -> Result<Option<Extension>> {
        Ok(None)
    }

    fn lower(&self) -> Lowering;

    /// The scalar body of an elementwise op: the output's element from the
    /// inputs' elements, all as [`Value`]s of `body`.
    fn scalar(
        &self,
        _body: &mut Body,
        _types: &[ArrayType],
        _args: &[Value],
        _output: &ArrayType,
    ) -> Result<Value> {
        Err(internal_error!("{} has no scalar body", self.name()))
    }

    /// Where the elements of the output come from, if the op moves elements only.
    fn index_map(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Result<Option<IndexMap>> {
        Ok(None)
    }

    /// Which axes of the input the op folds and how, if a loop nest with accumulators does that.
    fn reduction(&self, _input: Extents<'_>) -> Result<Option<Reduction>> {
        Ok(None)
    }

    /// How the library's kernel goes through rows of the output, if it can make some of them alone.
    fn by_rows(&self, _inputs: &[Extents<'_>], _output: Extents<'_>) -> Option<ByRows> {
        None
    }

    /// How many of the last axes of the first operand are one matrix, which a kernel needs whole; 0 for ops that are not of
    /// matrices.
    fn matrix_axes(&self) -> usize {
        0
    }

    /// Of an op whose operands and results have the same axes: along which of them elements depend on others. `rank` is that
    /// of the first operand.
    fn coupled_axes(&self, _rank: usize) -> Option<Axes> {
        None
    }

    /// Which axes can be cut into parts together, where that does not follow from what else the row says.
    fn shard(&self, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> Result<ShardRule> {
        shard_rule::derived(self, inputs, outputs)
    }

    /// The op that does to the parts of its operands, of these types, what it does to the whole, if it keeps types of operands.
    fn of_parts(&self, _operands: &[Type]) -> Result<Option<crate::Op>> {
        Ok(None)
    }

    /// The work for an element of the output, which has this dtype, in additions.
    fn cost(&self, _output: DType) -> u32 {
        u32::from(self.lower() != Lowering::Movement)
    }

    /// Whether nothing that the op makes is computed before it, or together with what is there before.
    fn is_barrier(&self) -> bool {
        false
    }

    /// Whether the output is the first operand with some elements changed, and may take its place.
    fn updates_operand(&self) -> bool {
        false
    }

    /// The same outputs in terms of other ops.
    fn expand(&self, _b: &mut Builder, _inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        Err(internal_error!("{} has no expansion", self.name()))
    }
}

/// The transpose rule of ops that are not linear.
pub fn not_linear<T>(op: &dyn Row) -> Result<T> {
    Err(unsupported!(
        "'{}' has no transpose rule: it is not linear in its inputs. linear_transpose is for linear \
         functions; use vjp for others.",
        op.name()
    ))
}
