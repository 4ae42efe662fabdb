//! Collectives whose results are by type the same on all devices, or whose operands are sums over these: of what devices of a
//! mesh have. What they compute is what `all_gather` and `reduce_scatter` do.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::index_space::*;
use super::super::{DynamicSlice, Pvary};
use super::{AllGather, AxisIndex, ReduceScatter, beside, linear_varying};
use crate::rules::{self, Batch, Batched, Jvp, Row, Rules, Types};
use crate::varying::Share;
use crate::{Atom, Builder, DType, Dim, Result, Tensor, Type, Varying, internal_error, op_struct};

op_struct! {
    /// As `all_gather`, as a value that is the same in all lanes by type.
    AllGatherInvariant "all_gather_invariant" {
        all_gather_dimension: usize, axis_name: Vec<Arc<str>>, axis_size: Dim, tiled: bool,
    }
}
op_struct! {
    /// As `all_gather`, as a value that is the same in all lanes and whose cotangent is a sum over them by type.
    AllGatherReduced "all_gather_reduced" {
        all_gather_dimension: usize, axis_name: Vec<Arc<str>>, axis_size: Dim, tiled: bool,
    }
}
op_struct! {
    /// As `reduce_scatter`, of a value that is by type the sum of what devices have.
    UnreducedReduceScatter "unreduced_reduce_scatter" {
        axis_name: Vec<Arc<str>>, axis_size: Dim, scatter_dimension: usize, tiled: bool,
    }
}

/// An op that computes what `$plain` does, without groups of lanes, along the dimension `$dimension`; `$own` are the rules that
/// types make its own.
macro_rules! typed {
    ($name:ident, $plain:ident, $dimension:ident, { $($own:tt)* }) => {
        impl $name {
            /// What it computes.
            pub fn plain(&self) -> $plain {
                $plain {
                    $dimension: self.$dimension,
                    axis_index_groups: None,
                    axis_name: self.axis_name.clone(),
                    axis_size: self.axis_size.clone(),
                    tiled: self.tiled,
                }
            }
        }

        impl Row for $name {
            row_identity!();

            fn infer(&self, inputs: &[Type]) -> Result<Types> {
                self.plain().infer(inputs)
            }

            row_over_axes!(|op| &op.axis_name);
        }

        impl Rules for $name {
            $($own)*

            fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
                linear_jvp(self.clone(), b, eqn)
            }

            fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
                beside(b, $name { $dimension: self.$dimension + 1, ..self.clone() }, eqn)
            }

            fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
                self.plain().batch_named(b, eqn)
            }

            fn is_shared(&self) -> bool {
                self.plain().is_shared()
            }

            rules_over_axes!(|op| &op.axis_name);
        }
    };
}

typed!(AllGatherInvariant, AllGather, all_gather_dimension, {
    /// All lanes have one cotangent, of which each takes the block that it gave.
    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let [axis_name] = self.axis_name.as_slice() else {
            return Err(internal_error!("{} over the axes {:?}", Self::NAME, self.axis_name));
        };
        if !linear_varying(eqn).contains(axis_name) {
            return self.plain().transpose(b, eqn);
        }
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let axis = self.all_gather_dimension;
        let mut sizes = b.shape(cotangent);
        let block = if self.tiled { sizes[axis].floor_div(&self.axis_size)? } else { Dim::Const(1) };
        sizes[axis] = block.clone();
        let lane = b.emit1(AxisIndex { axis_name: axis_name.clone() }, &[])?;
        let lane = b.emit1(Pvary { axes: vec![axis_name.clone()] }, &[lane])?;
        let start = b.scale(lane, block.require(Self::NAME)? as f64)?;
        let mut inputs = vec![cotangent];
        let zero = b.int_scalar(DType::I32, 0);
        inputs.extend((0..sizes.len()).map(|at| if at == axis { start } else { zero }));
        let part = b.emit1(DynamicSlice { slice_sizes: sizes }, &inputs)?;
        one_cotangent(if self.tiled { part } else { b.squeeze(part, &[axis])? })
    }

    fn varies(&self, operands: Varying) -> Varying {
        operands.without_names(&self.axis_name)
    }
});

typed!(AllGatherReduced, AllGather, all_gather_dimension, {
    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let back = UnreducedReduceScatter {
            axis_name: self.axis_name.clone(),
            axis_size: self.axis_size.clone(),
            scatter_dimension: self.all_gather_dimension,
            tiled: self.tiled,
        };
        one_cotangent(b.emit1(back, &[cotangent])?)
    }

    fn varies(&self, operands: Varying) -> Varying {
        let reduced = self.axis_name.iter().map(|axis| Share::Reduced.mark(axis));
        operands.without_names(&self.axis_name).union(Varying::of(reduced))
    }
});

typed!(UnreducedReduceScatter, ReduceScatter, scatter_dimension, {
    fn transpose(&self, b: &mut Builder, eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        let cotangent = only_cotangent(Self::NAME, eqn)?;
        let back = AllGatherReduced {
            all_gather_dimension: self.scatter_dimension,
            axis_name: self.axis_name.clone(),
            axis_size: self.axis_size.clone(),
            tiled: self.tiled,
        };
        one_cotangent(b.emit1(back, &[cotangent])?)
    }

    fn varies(&self, operands: Varying) -> Varying {
        operands.without_names(&self.axis_name).union(Varying::of(self.axis_name.iter().cloned()))
    }
});
