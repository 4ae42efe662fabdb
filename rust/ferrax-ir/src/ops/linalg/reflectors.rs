//! Householder's reflections: triangular factors with what they were made by, and products of them.
//!
//! A reflection is `H = I - tau v v^H`. The first element of `v` is 1, the rest is below the diagonal
//! of column after column. `Q = H_1 H_2 …`, and the diagonal of `R` is real.

use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types, not_linear};

op_struct! {
    /// The factor `R` in the upper triangle, with the reflections that make `Q` below it, and their
    /// factors `tau`.
    Geqrf "geqrf" {}
}
op_struct! {
    /// As `geqrf`, with the columns in the order of their rests' lengths. Numbers of columns count from
    /// 1; columns whose number is not 0 in the operand come first. The order is the second output.
    Geqp3 "geqp3" {}
}
op_struct! {
    /// The first columns, as many as the first operand's, of the product of reflections.
    HouseholderProduct "householder_product" {}
}
op_struct! {
    /// `Q c`, or `c Q` unless `left`, for the product of reflections or its conjugate transpose.
    Ormqr "ormqr" { left: bool, transpose: bool }
}

/// The rules of ops without derivatives.
macro_rules! without_derivative {
    () => {
        fn jvp(&self, _b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
            match eqn.tangents.iter().any(Option::is_some) {
                true => no_derivative(self),
                false => Ok(no_tangents(eqn.outputs.len())),
            }
        }

        fn transpose(&self, _b: &mut Builder, _eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
            not_linear(self)
        }

        fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
            batched(self.clone(), b, eqn)
        }

        fn lower(&self) -> Lowering {
            Lowering::Library
        }

        fn matrix_axes(&self) -> usize {
            2
        }
    };
}
pub(super) use without_derivative;

impl Row for Geqrf {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        let least = least(Self::NAME, &rows, &columns)?;
        Ok(Types::from_iter([Type::Array(operand.clone()), of_batch(operand, &[&least], operand.dtype)]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2], outputs, |given| {
            let (a, taus) = factors::triangularise(given[0].clone(), 0, None);
            Ok(vec![a.elements, taus])
        })
    }
}

impl Rules for Geqrf {
    without_derivative!();
}

impl Row for Geqp3 {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand, order] = operands(Self::NAME, inputs)?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        if order.dtype != DType::I32 {
            return Err(type_error!("geqp3 takes numbers of columns as int32, got {order}"));
        }
        let wanted = of_batch(operand, &[&columns], DType::I32);
        if wanted.as_array().map(|ty| &ty.shape) != Some(&order.shape) {
            return Err(type_error!(
                "geqp3 takes numbers of columns as {wanted} with {operand}, got {order}"
            ));
        }
        let least = least(Self::NAME, &rows, &columns)?;
        Ok(Types::from_iter([
            Type::Array(operand.clone()),
            Type::Array(order.clone()),
            of_batch(operand, &[&least], operand.dtype),
        ]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2, 1], outputs, |given| {
            let mut order: Vec<usize> = (0..given[0].columns).collect();
            let mut fixed = 0;
            for column in 0..order.len() {
                if given[1].elements[column].0 != 0.0 {
                    order.swap(column, fixed);
                    fixed += 1;
                }
            }
            let (a, taus) = factors::triangularise(given[0].take(&order), fixed, Some(&mut order));
            Ok(vec![a.elements, order.into_iter().map(|at| (at as f64 + 1.0, 0.0)).collect(), taus])
        })
    }
}

impl Rules for Geqp3 {
    without_derivative!();
}

impl Row for HouseholderProduct {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand, taus] = over_one_batch(Self::NAME, inputs, [2, 1])?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        if !may_be_at_most(&columns, &rows) {
            return Err(value_error!(
                "householder_product: a matrix cannot have more columns than rows here, got shape {}",
                ShowShape(&operand.shape)
            ));
        }
        if !may_be_at_most(&taus.shape[taus.rank() - 1], &columns) {
            return Err(value_error!(
                "householder_product takes at most as many factors as columns, got shapes {} and {}",
                ShowShape(&operand.shape),
                ShowShape(&taus.shape)
            ));
        }
        Ok(Types::from_iter([Type::Array(operand.clone())]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2, 1], outputs, |given| {
            let a = &given[0];
            let first: Vec<usize> = (0..a.columns).collect();
            let unit = Matrix::identity(a.rows).take(&first);
            Ok(vec![factors::multiply(a, &given[1].elements, false, unit).elements])
        })
    }
}

impl Rules for HouseholderProduct {
    without_derivative!();
}

impl Row for Ormqr {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand, taus, factor] = over_one_batch(Self::NAME, inputs, [2, 1, 2])?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        let axis = factor.rank() - if self.left { 2 } else { 1 };
        if factor.shape[axis] != rows {
            return Err(value_error!(
                "ormqr with left={} takes a matrix whose axis {axis} has the size of the reflections' rows, got shapes \
                 {} and {}",
                if self.left { "True" } else { "False" },
                ShowShape(&operand.shape),
                ShowShape(&factor.shape)
            ));
        }
        let count = &taus.shape[taus.rank() - 1];
        if !(may_be_at_most(count, &columns) && may_be_at_most(count, &rows)) {
            return Err(value_error!(
                "ormqr takes at most as many factors as reflections, got shapes {} and {}",
                ShowShape(&operand.shape),
                ShowShape(&taus.shape)
            ));
        }
        Ok(Types::from_iter([Type::Array(factor.clone())]))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2, 1, 2], outputs, |given| {
            let [a, taus, c] = given else {
                return Err(internal_error!("ormqr of {} operands", given.len()));
            };
            let made = match self.left {
                true => factors::multiply(a, &taus.elements, self.transpose, c.clone()),
                // c Q = (Q^H c^H)^H
                false => factors::multiply(a, &taus.elements, !self.transpose, c.adjoint()).adjoint(),
            };
            Ok(vec![made.elements])
        })
    }
}

impl Rules for Ormqr {
    without_derivative!();
}
