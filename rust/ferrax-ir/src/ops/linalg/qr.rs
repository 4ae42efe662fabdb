//! Orthonormal and triangular factors, made of reflections.

use smallvec::SmallVec;

use super::*;
use crate::op_struct;
use crate::rules::{self, Jvp, Lowering, Rules, Types, not_linear};

op_struct! {
    /// `a = Q R`, or with `pivoting` `a[:, p] = Q R` where the diagonal of `R` falls in absolute value
    /// and `p` is the third output. `full_matrices` gives all columns of `Q`.
    Qr "qr" { pivoting: bool, full_matrices: bool }
}

impl Row for Qr {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let [operand] = operands(Self::NAME, inputs)?;
        let (rows, columns) = matrices(Self::NAME, operand)?;
        let inner = if self.full_matrices { rows.clone() } else { least(Self::NAME, &rows, &columns)? };
        let mut types = Types::from_iter([
            of_batch(operand, &[&rows, &inner], operand.dtype),
            of_batch(operand, &[&inner, &columns], operand.dtype),
        ]);
        if self.pivoting
            && let Type::Array(ty) = of_batch(operand, &[&columns], DType::I32)
        {
            types.push(Type::Array(ty.with_weak(false)));
        }
        Ok(types)
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        over_batch(inputs, &[2], outputs, |given| {
            let a = given[0].clone();
            let (rows, columns) = (a.rows, a.columns);
            let mut order: Vec<usize> = (0..columns).collect();
            let (r, taus) = factors::triangularise(a, 0, self.pivoting.then_some(&mut order));
            let inner = if self.full_matrices { rows } else { rows.min(columns) };
            let first: Vec<usize> = (0..inner).collect();
            let q = factors::multiply(&r, &taus, false, Matrix::identity(rows).take(&first));
            let upper = |index: usize| {
                let (row, column) = (index / columns, index % columns);
                if row <= column { r.at(row, column) } else { (0.0, 0.0) }
            };
            let r = (0..inner * columns).map(upper).collect();
            // Without elements nothing has an order.
            let place = |at: usize| if rows == 0 { (0.0, 0.0) } else { (at as f64, 0.0) };
            Ok(vec![q.elements, r, order.into_iter().map(place).collect()])
        })
    }
}

impl Rules for Qr {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(tangent) = eqn.tangents.first().copied().flatten() else {
            return Ok(no_tangents(eqn.outputs.len()));
        };
        let mut tangents = qr_derivative::tangents(b, tangent, eqn.outputs)?;
        tangents.resize(eqn.outputs.len(), None);
        Ok(tangents)
    }

    fn transpose(&self, _b: &mut Builder, _eqn: &rules::Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        batched(self.clone(), b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn matrix_axes(&self) -> usize {
        2
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        let [a] = atoms(Self::NAME, inputs)?;
        let operand = b.array_type(a)?;
        let (rows, columns) = matrices(Self::NAME, &operand)?;
        let (rows, columns) = (constant(Self::NAME, &rows)?, constant(Self::NAME, &columns)?);
        let inner = if self.full_matrices { rows } else { rows.min(columns) };
        let array = |last: &[usize], dtype| -> Result<ArrayType> {
            let last: SmallVec<[Dim; 2]> = last.iter().map(|&size| Dim::Const(size)).collect();
            match of_batch(&operand, &last.iter().collect::<Vec<_>>(), dtype) {
                Type::Array(ty) => Ok(ty),
                other => Err(internal_error!("qr gives {other}")),
            }
        };
        if rows == 0 || columns == 0 {
            let square = b.zeros(&array(&[rows, rows], operand.dtype)?)?;
            let q = identity_like(b, square)?;
            let mut outputs = SmallVec::from_iter([
                part(b, q, 1, 0, inner)?,
                b.zeros(&array(&[inner, columns], operand.dtype)?)?,
            ]);
            if self.pivoting {
                let places = array(&[columns], DType::I32)?.with_weak(false);
                outputs.push(if rows == 0 {
                    b.zeros(&places)?
                } else {
                    b.iota(DType::I32, &places.shape, places.rank() - 1)?
                });
            }
            return Ok(outputs);
        }
        let mut order = None;
        let (packed, taus) = if self.pivoting {
            let free = b.zeros(&array(&[columns], DType::I32)?.with_weak(false))?;
            let [packed, places, taus] =
                <[crate::Var; 3]>::try_from(b.emit(Geqp3 {}, &[a, free])?.as_slice())
                    .map_err(|_| internal_error!("geqp3 has three outputs"))?
                    .map(Atom::Var);
            let one = b.int_scalar(DType::I32, 1);
            order = Some(b.sub(places, one)?);
            (packed, taus)
        } else {
            let [packed, taus] = <[crate::Var; 2]>::try_from(b.emit(Geqrf {}, &[a])?.as_slice())
                .map_err(|_| internal_error!("geqrf has two outputs"))?
                .map(Atom::Var);
            (packed, taus)
        };
        let reflections = resized(b, packed, rows, inner)?;
        let q = b.emit1(HouseholderProduct {}, &[reflections, taus])?;
        let r = part(b, packed, 2, 0, inner)?;
        let r = in_triangle(b, r, false, false)?;
        Ok([Some(q), Some(r), order].into_iter().flatten().collect())
    }
}
