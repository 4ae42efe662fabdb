//! Scatter: updates windows of the operand at positions given by an index array.
//!
//! XLA's op with the last axis of the indices as the index vector
//! (openxla.org/xla/operation_semantics#scatter). Windows apply in row-major
//! order of the index array. A window that sticks out of the operand is dropped
//! whole, unless the mode clamps it.

use smallvec::SmallVec;

use crate::rules::{self, Batch, Batched, Extents, FromParams, Jvp, Lowering, Row, Rules, Types, not_linear};
use crate::shard_rule::{Cut, ShardRule};
use crate::{
    ArrayType, Atom, Axes, Builder, DType, Dim, Param, Params, Result, Scalar, Shape, Sizes, Tensor, ToParam,
    Type, internal_error, string_enum, type_error, unsupported,
};

use super::accumulate;
use super::common::{one, same_dtype};
use super::gather::{Placement, check_axes, check_disjoint, check_indices};
use super::index_space::*;
use super::{AxisReduceKind, Binary, Compare, Gather, GatherMode};

string_enum! {
    /// How an update combines with what is there.
    ScatterKind {
        /// The last window wins.
        Set = "scatter",
        Add = "scatter_add", Sub = "scatter_sub", Mul = "scatter_mul", Min = "scatter_min",
        Max = "scatter_max",
    }
}

/// Updates windows of the operand at positions given by an index array. The
/// kind is part of the name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scatter {
    pub kind: ScatterKind,
    pub update_window_dims: Axes,
    pub inserted_window_dims: Axes,
    pub scatter_dims_to_operand_dims: Axes,
    pub operand_batching_dims: Axes,
    pub scatter_indices_batching_dims: Axes,
    pub mode: GatherMode,
    pub unique_indices: bool,
    pub indices_are_sorted: bool,
}

impl ScatterKind {
    /// How what devices make of some of the updates each is put together, if it can be.
    pub fn fold(self) -> Option<AxisReduceKind> {
        match self {
            ScatterKind::Add | ScatterKind::Sub => Some(AxisReduceKind::Sum),
            ScatterKind::Min => Some(AxisReduceKind::Min),
            ScatterKind::Max => Some(AxisReduceKind::Max),
            ScatterKind::Set | ScatterKind::Mul => None,
        }
    }
}

impl FromParams for Scatter {
    const NAMES: &'static [(&'static str, &'static str)] = &[
        ("scatter", "Overwrites windows at indexed positions."),
        ("scatter_add", "Adds to windows at indexed positions."),
        ("scatter_sub", "Subtracts from windows at indexed positions."),
        ("scatter_mul", "Multiplies windows at indexed positions."),
        ("scatter_min", "Minimum with windows at indexed positions."),
        ("scatter_max", "Maximum with windows at indexed positions."),
    ];

    fn from_params(name: &str, params: &mut Params) -> Result<Self> {
        Ok(Scatter {
            kind: ScatterKind::from_param(Param::Str(name.into()))?,
            update_window_dims: params.take("update_window_dims")?,
            inserted_window_dims: params.take("inserted_window_dims")?,
            scatter_dims_to_operand_dims: params.take("scatter_dims_to_operand_dims")?,
            operand_batching_dims: params.take("operand_batching_dims")?,
            scatter_indices_batching_dims: params.take("scatter_indices_batching_dims")?,
            mode: params.take("mode")?,
            unique_indices: params.take("unique_indices")?,
            indices_are_sorted: params.take("indices_are_sorted")?,
        })
    }
}

impl Scatter {
    /// The window's size along each operand axis, for updates of this shape.
    fn window(&self, operand_rank: usize, updates: &[Dim]) -> Result<Shape> {
        let mut sizes = self.update_window_dims.iter().map(|&dim| updates[dim].clone());
        let thin =
            |axis| self.inserted_window_dims.contains(&axis) || self.operand_batching_dims.contains(&axis);
        (0..operand_rank)
            .map(|axis| if thin(axis) { Some(Dim::Const(1)) } else { sizes.next() })
            .collect::<Option<Shape>>()
            .ok_or_else(|| internal_error!("the window of {} was miscounted", self.name()))
    }

    /// The gather that takes windows from where this scatter puts them.
    fn gather(&self, operand_rank: usize, updates: &[Dim], fill: Option<Scalar>) -> Result<Gather> {
        // Scatter drops what is out of bounds in all modes but one.
        let mode = if self.mode == GatherMode::Clip { GatherMode::Clip } else { GatherMode::Fill };
        Ok(Gather {
            offset_dims: self.update_window_dims.clone(),
            collapsed_slice_dims: self.inserted_window_dims.clone(),
            start_index_map: self.scatter_dims_to_operand_dims.clone(),
            operand_batching_dims: self.operand_batching_dims.clone(),
            start_indices_batching_dims: self.scatter_indices_batching_dims.clone(),
            slice_sizes: self.window(operand_rank, updates)?,
            mode,
            fill_value: fill,
            unique_indices: self.unique_indices,
            indices_are_sorted: self.indices_are_sorted,
        })
    }

    /// Updates are cut over index axes where what is made of some of them can be put together with what is made of others.
    /// Axes of the operand into which windows are put at an index stay whole.
    fn cut(&self, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> ShardRule {
        let mut rule = ShardRule::apart(inputs, outputs);
        let [operand, indices, updates] = inputs else { return rule };
        let of_indices = other_axes(updates.sizes.len(), &self.update_window_dims);
        let mut windows = self.update_window_dims.iter();
        for axis in 0..operand.sizes.len() {
            if let Some(pair) = self.operand_batching_dims.iter().position(|&batching| batching == axis) {
                let along = self.scatter_indices_batching_dims[pair];
                rule.share(0, axis, 0, axis, Cut::Pass);
                rule.share(1, along, 0, axis, Cut::Pass);
                rule.share(2, of_indices[along], 0, axis, Cut::Pass);
                continue;
            }
            let window = match self.inserted_window_dims.contains(&axis) {
                true => None,
                false => windows.next().filter(|&&dim| updates.sizes[dim] == operand.sizes[axis]),
            };
            rule.share(0, axis, 0, axis, if window.is_some() { Cut::Pass } else { Cut::Shift });
            if let Some(&dim) = window {
                rule.share(2, dim, 0, axis, Cut::Pass);
            }
        }
        for (along, &dim) in of_indices.iter().enumerate().take(indices.sizes.len() - 1) {
            if self.kind.fold().is_some() && !self.scatter_indices_batching_dims.contains(&along) {
                rule.fold((1, along), (2, dim));
            }
        }
        rule
    }

    fn with_kind(&self, kind: ScatterKind) -> Scatter {
        Scatter { kind, ..self.clone() }
    }

    fn check_updates(&self, operand: &ArrayType, indices: &ArrayType, updates: &ArrayType) -> Result<()> {
        let name = self.kind.name();
        let window = &self.update_window_dims;
        let rank = indices.rank() - 1 + window.len();
        if updates.rank() != rank {
            return Err(type_error!("Updates tensor of {name} must be of rank {rank}; got {updates}."));
        }
        check_axes(name, "update_window_dims", window, rank, true)?;
        let inner = other_axes(
            operand.rank(),
            &[self.inserted_window_dims.as_slice(), &self.operand_batching_dims].concat(),
        );
        if inner.len() != window.len() {
            return Err(type_error!(
                "{name}: windows have rank {}, the operand {}.",
                window.len() + operand.rank() - inner.len(),
                operand.rank()
            ));
        }
        for (&axis, &dim) in inner.iter().zip(window) {
            if !may_be_at_most(&updates.shape[dim], &operand.shape[axis]) {
                return Err(type_error!(
                    "scatter: windows of the updates do not fit: their axis {dim} has size {}, that of \
                     the operand {}.",
                    updates.shape[dim],
                    operand.shape[axis]
                ));
            }
        }
        for (&dim, bound) in other_axes(rank, window).iter().zip(&indices.shape) {
            if updates.shape[dim] != *bound {
                return Err(type_error!(
                    "scatter: there must be a window for each index: scatter axis {dim} of the updates \
                     has size {}, that of the indices {bound}.",
                    updates.shape[dim]
                ));
            }
        }
        Ok(())
    }
}

impl Row for Scatter {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        vec![
            ("update_window_dims", self.update_window_dims.to_param()),
            ("inserted_window_dims", self.inserted_window_dims.to_param()),
            ("scatter_dims_to_operand_dims", self.scatter_dims_to_operand_dims.to_param()),
            ("operand_batching_dims", self.operand_batching_dims.to_param()),
            ("scatter_indices_batching_dims", self.scatter_indices_batching_dims.to_param()),
            ("mode", self.mode.to_param()),
            ("unique_indices", self.unique_indices.to_param()),
            ("indices_are_sorted", self.indices_are_sorted.to_param()),
        ]
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let name = self.kind.name();
        let [operand, indices, updates] = operands(name, inputs)?;
        check_indices(
            name,
            operand,
            indices,
            ("scatter_dims_to_operand_dims", &self.scatter_dims_to_operand_dims),
            (&self.operand_batching_dims, &self.scatter_indices_batching_dims),
        )?;
        check_axes(name, "inserted_window_dims", &self.inserted_window_dims, operand.rank(), true)?;
        check_disjoint(
            name,
            ("inserted_window_dims", &self.inserted_window_dims),
            ("operand_batching_dims", &self.operand_batching_dims),
        )?;
        same_dtype(name, &[operand, updates])?;
        if self.kind != ScatterKind::Set && (operand.dtype.is_key() || operand.dtype == DType::Float0) {
            return Err(type_error!("{name} does not accept dtype {}.", operand.dtype));
        }
        if matches!(self.kind, ScatterKind::Add | ScatterKind::Sub | ScatterKind::Mul)
            && operand.dtype.is_bool()
        {
            return Err(type_error!(
                "{name} takes numbers; got {operand}. Convert it first, for instance to int32."
            ));
        }
        self.check_updates(operand, indices, updates)?;
        one(operand.clone())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        let [operand, indices, updates] = tensors(self.kind.name(), inputs)?;
        let shape: Shape = updates.sizes().iter().map(|&size| Dim::Const(size)).collect();
        let window = self.window(operand.rank(), &shape)?;
        let window = window.iter().map(|dim| dim.require("scatter")).collect::<Result<Sizes>>()?;
        let placement = Placement {
            window_dims: &self.update_window_dims,
            collapsed: &self.inserted_window_dims,
            index_map: &self.scatter_dims_to_operand_dims,
            operand_batching: &self.operand_batching_dims,
            indices_batching: &self.scatter_indices_batching_dims,
            window: &window,
            clamp: self.mode == GatherMode::Clip,
        };
        let reducer = match self.kind {
            ScatterKind::Set => None,
            ScatterKind::Add => Some(accumulate::SUM),
            ScatterKind::Sub => Some(accumulate::DIFFERENCE),
            ScatterKind::Mul => Some(accumulate::PRODUCT),
            ScatterKind::Min => Some(accumulate::MIN),
            ScatterKind::Max => Some(accumulate::MAX),
        };
        let (dtype, mut output) = (operand.dtype(), operand.clone());
        let target = output.bytes_mut()?;
        placement.visit(operand.sizes(), indices, updates.sizes(), |from, to| {
            let Some(to) = to else { return Ok(()) };
            if let Some(reducer) = reducer {
                let value = reducer.apply_at(dtype, target, to, updates.bytes(), from)?;
                return copy_element(&value.bytes(), 0, target, to, dtype.size());
            }
            copy_element(updates.bytes(), from, target, to, dtype.size())
        })?;
        Ok(vec![output])
    }
}

impl Rules for Scatter {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let name = self.kind.name();
        let (&[operand, indices, updates], &[operand_tangent, _, updates_tangent]) =
            (eqn.inputs, eqn.tangents)
        else {
            return Err(internal_error!("{name} has three operands"));
        };
        if operand_tangent.is_none() && updates_tangent.is_none() {
            return no_tangent();
        }
        if self.kind == ScatterKind::Mul {
            return self.mul_jvp(b, [operand, indices, updates], operand_tangent, updates_tangent);
        }
        let operand_tangent = instantiate(b, operand_tangent, operand)?;
        let updates_tangent = instantiate(b, updates_tangent, updates)?;
        let primals = [operand, indices, updates];
        let tangent = match self.kind {
            ScatterKind::Set if !self.unique_indices => {
                self.set_jvp(b, primals, [operand_tangent, updates_tangent])?
            }
            ScatterKind::Min | ScatterKind::Max => {
                let [output] = atoms(name, eqn.outputs)?;
                self.extremum_jvp(b, primals, output, [operand_tangent, updates_tangent])?
            }
            _ => b.emit1(self.clone(), &[operand_tangent, indices, updates_tangent])?,
        };
        Ok(SmallVec::from_iter([Some(tangent)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let name = self.kind.name();
        let cotangent = only_cotangent(name, eqn)?;
        let Some(indices) = eqn.inputs.get(1).and_then(rules::Operand::known) else {
            return Err(internal_error!("{name}: the indices are linear in something"));
        };
        let updates = operand_type(b, name, eqn, 2)?;
        let rank = b.rank(cotangent);
        let zero = Scalar::zero(b.dtype(cotangent));
        let mut operand_cotangent = None;
        let mut updates_cotangent = None;
        match self.kind {
            ScatterKind::Min | ScatterKind::Max => return not_linear(self),
            ScatterKind::Set if !self.unique_indices => {
                return Err(unsupported!("scatter has a transpose only with unique_indices=True"));
            }
            _ => {}
        }
        if is_linear(eqn, 0) {
            operand_cotangent = Some(match self.kind {
                ScatterKind::Set => {
                    let zeros = b.zeros(&ArrayType::new(updates.shape.clone(), zero.dtype()))?;
                    b.emit1(self.clone(), &[cotangent, indices, zeros])?
                }
                ScatterKind::Mul => {
                    let Some(updates) = eqn.inputs.get(2).and_then(rules::Operand::known) else {
                        return not_linear(self);
                    };
                    b.emit1(self.clone(), &[cotangent, indices, updates])?
                }
                _ => cotangent,
            });
        }
        if is_linear(eqn, 2) {
            let mut source = cotangent;
            if self.kind == ScatterKind::Mul {
                let Some(operand) = eqn.inputs.first().and_then(rules::Operand::known) else {
                    return not_linear(self);
                };
                self.require_unique()?;
                source = b.mul(cotangent, operand)?;
            }
            let mut gather = self.gather(rank, &updates.shape, Some(zero))?;
            // This may itself be the transpose of a gather, which reads the nearest windows.
            gather.mode = self.mode;
            let taken = b.emit1(gather, &[source, indices])?;
            updates_cotangent = Some(if self.kind == ScatterKind::Sub { b.neg(taken)? } else { taken });
        }
        Ok(SmallVec::from_iter([operand_cotangent, None, updates_cotangent]))
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let name = self.kind.name();
        let (&[operand, indices, updates], &[operand_dim, indices_dim, updates_dim]) = (eqn.inputs, eqn.dims)
        else {
            return Err(internal_error!("{name} has three operands"));
        };
        let operand = batch_to_front(b, operand, operand_dim, eqn.size)?;
        let updates = batch_to_front(b, updates, updates_dim, eqn.size)?;
        let mut op = Scatter {
            inserted_window_dims: after_front(&self.inserted_window_dims),
            scatter_dims_to_operand_dims: after_front(&self.scatter_dims_to_operand_dims),
            operand_batching_dims: after_front(&self.operand_batching_dims),
            ..self.clone()
        };
        let Some(indices_dim) = indices_dim else {
            op.update_window_dims = with_front(&self.update_window_dims);
            return one_batched(b.emit1(op, &[operand, indices, updates])?, 0);
        };
        let indices = b.move_axis(indices, indices_dim, 0)?;
        op.update_window_dims = after_front(&self.update_window_dims);
        op.operand_batching_dims.insert(0, 0);
        op.scatter_indices_batching_dims = with_front(&self.scatter_indices_batching_dims);
        one_batched(b.emit1(op, &[operand, indices, updates])?, 0)
    }

    fn lower(&self) -> Lowering {
        Lowering::Library
    }

    fn updates_operand(&self) -> bool {
        true
    }

    fn shard(&self, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> Result<ShardRule> {
        Ok(self.cut(inputs, outputs))
    }
}

impl Scatter {
    fn require_unique(&self) -> Result<()> {
        if self.unique_indices {
            return Ok(());
        }
        Err(unsupported!(
            "scatter_mul gradients require unique_indices=True: pass it if no two windows overlap, for instance \
             x.at[i].multiply(y, unique_indices=True)"
        ))
    }

    fn mul_jvp(
        &self,
        b: &mut Builder,
        [operand, indices, updates]: [Atom; 3],
        operand_tangent: Option<Atom>,
        updates_tangent: Option<Atom>,
    ) -> Result<Tangents> {
        let mut tangent = None;
        if let Some(operand_tangent) = operand_tangent {
            tangent = Some(b.emit1(self.clone(), &[operand_tangent, indices, updates])?);
        }
        if let Some(updates_tangent) = updates_tangent {
            self.require_unique()?;
            let zeros = b.zeros_like(operand)?;
            let placed = b.emit1(self.with_kind(ScatterKind::Add), &[zeros, indices, updates_tangent])?;
            let term = b.mul(operand, placed)?;
            tangent = Some(match tangent {
                Some(first) => b.add(first, term)?,
                None => term,
            });
        }
        Ok(SmallVec::from_iter([tangent]))
    }

    /// Of windows that overlap the last one wins: number the windows, scatter
    /// the numbers, and let through the tangents of the winners only.
    fn set_jvp(
        &self,
        b: &mut Builder,
        [operand, indices, updates]: [Atom; 3],
        [operand_tangent, updates_tangent]: [Atom; 2],
    ) -> Result<Atom> {
        let (operand_shape, updates_shape) = (b.shape(operand), b.shape(updates));
        let batch_dims = other_axes(updates_shape.len(), &self.update_window_dims);
        let batch_shape: Shape = batch_dims.iter().map(|&dim| updates_shape[dim].clone()).collect();
        let id = DType::U32;
        let numbers = b.iota(id, &[Dim::product(&batch_shape)?], 0)?;
        let one = b.int_scalar(id, 1);
        let numbers = b.add(numbers, one)?;
        let numbers = b.reshape(numbers, &batch_shape)?;
        let numbers = b.broadcast_in_dim(numbers, &updates_shape, &batch_dims)?;
        let nobody = b.zeros(&ArrayType::new(operand_shape.clone(), id))?;
        let winners = b.emit1(self.clone(), &[nobody, indices, numbers])?;
        let gather = self.gather(operand_shape.len(), &updates_shape, Some(Scalar::zero(id)))?;
        let seen = b.emit1(gather, &[winners, indices])?;
        let untouched = b.compare(Compare::Eq, winners, nobody)?;
        let won = b.compare(Compare::Eq, numbers, seen)?;
        let zeros = b.zeros_like(operand_tangent)?;
        let operand_tangent = b.select(untouched, operand_tangent, zeros)?;
        let zeros = b.zeros_like(updates_tangent)?;
        let updates_tangent = b.select(won, updates_tangent, zeros)?;
        b.emit1(self.with_kind(ScatterKind::Add), &[operand_tangent, indices, updates_tangent])
    }

    /// All values that equal the result at a place, the operand's own included,
    /// share its tangent in equal parts.
    fn extremum_jvp(
        &self,
        b: &mut Builder,
        [operand, indices, updates]: [Atom; 3],
        output: Atom,
        [operand_tangent, updates_tangent]: [Atom; 2],
    ) -> Result<Atom> {
        let updates_shape = b.shape(updates);
        let zero = Scalar::zero(b.dtype(operand));
        let gather = self.gather(b.rank(operand), &updates_shape, Some(zero))?;
        let add = self.with_kind(ScatterKind::Add);
        let take = |b: &mut Builder, source: Atom| b.emit1(gather.clone(), &[source, indices]);
        let count = |b: &mut Builder, operand: Atom, parts: Atom| -> Result<Atom> {
            let zeros = b.zeros_like(operand)?;
            let total = b.emit1(add.clone(), &[zeros, indices, parts])?;
            b.emit1(gather.clone(), &[total, indices])
        };
        let (ones, zeros) = (b.full_like(updates, 1.0)?, b.zeros_like(updates)?);
        let before = take(b, operand)?;
        let after = take(b, output)?;
        let reached = b.compare(Compare::Eq, updates, after)?;
        let kept = b.compare(Compare::Eq, before, after)?;
        let winners = b.select(reached, ones, zeros)?;
        let winners = count(b, operand, winners)?;
        let contenders = count(b, operand, ones)?;
        let with_operand = b.binary(Binary::Add, winners, ones)?;
        let shares = b.select(kept, with_operand, winners)?;
        let part = b.div(ones, shares)?;
        let update_part = b.select(reached, part, zeros)?;
        let operand_part = b.select(kept, part, zeros)?;
        // Each of the contenders adds its part of the change of the operand's tangent.
        let change = b.sub(operand_part, ones)?;
        let change = b.div(change, contenders)?;
        let old = take(b, operand_tangent)?;
        let old = b.mul(old, change)?;
        let new = b.mul(updates_tangent, update_part)?;
        let total = b.add(old, new)?;
        b.emit1(add, &[operand_tangent, indices, total])
    }
}
