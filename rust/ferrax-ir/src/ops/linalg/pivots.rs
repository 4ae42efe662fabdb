//! Exchanges of rows as an order of rows.

use super::reflectors::without_derivative;
use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types, not_linear};

op_struct! {
    /// So many rows in the order that they have after each was exchanged with the one that is given.
    LuPivotsToPermutation "lu_pivots_to_permutation" { permutation_size: usize }
}

impl Row for LuPivotsToPermutation {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [pivots] = operands(Self::NAME, inputs)?;
        if pivots.dtype != DType::I32 {
            return Err(type_error!(
                "lu_pivots_to_permutation does not accept dtype {} for operand 0, which takes int32",
                pivots.dtype
            ));
        }
        let Some((count, batch)) = pivots.shape.split_last() else {
            return Err(type_error!("lu_pivots_to_permutation takes vectors of pivots, got shape {pivots}"));
        };
        if !may_be_at_most(count, &Dim::Const(self.permutation_size)) {
            return Err(value_error!(
                "lu_pivots_to_permutation: a permutation of {} rows cannot come from {count} pivots: it \
                 needs as many rows or more",
                self.permutation_size
            ));
        }
        let mut ty = pivots.clone();
        ty.shape = batch.iter().cloned().chain([Dim::Const(self.permutation_size)]).collect();
        Ok(Types::from_iter([Type::Array(ty)]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[1], outputs, |given| {
            let mut order: Vec<Number> = (0..self.permutation_size).map(|at| (at as f64, 0.0)).collect();
            for (row, &(pivot, _)) in given[0].elements.iter().enumerate() {
                // Beyond the rows nothing is exchanged.
                if pivot >= 0.0 && (pivot as usize) < order.len() {
                    order.swap(row, pivot as usize);
                }
            }
            Ok(vec![order])
        })
    }
}

impl Rules for LuPivotsToPermutation {
    without_derivative!();
}
