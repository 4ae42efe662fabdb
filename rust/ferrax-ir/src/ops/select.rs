//! Selection and clamping.

use smallvec::SmallVec;

use super::common::{Accept, arrays, check_arity, check_dtype, elementwise_batch, one, same_dtype};
use super::derive::{Cotangents, Tangents, constant, each_linear, spread, sum, zero};
use super::formula::Exact;
use super::{Binary, Compare, complex, evaluate};
use crate::convert::Wide;
use crate::math::Emit;
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use crate::scalar::{Body, Reg, ScalarOp, ScalarType, Value, reference};
use crate::{
    ArrayType, Atom, Builder, Result, Shape, ShowShape, Tensor, Type, internal_error, op_struct, type_error,
    value_error,
};

op_struct! {
    /// Picks among the operands after the first by it: a bool, or an int32 index.
    SelectN "select_n" {}
}
op_struct! {
    /// `min(max(x, lo), hi)` of operands lo, x, hi; the bounds may be 0-d.
    Clamp "clamp" {}
}

impl Row for SelectN {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let operands = arrays(SelectN::NAME, inputs)?;
        let [which, cases @ ..] = operands.as_slice() else {
            return Err(value_error!("select_n needs at least one case beside `which`, got none"));
        };
        let Some(&first) = cases.first() else {
            return Err(value_error!("select_n needs at least one case beside `which`, got none"));
        };
        if !(which.dtype.is_bool() || which.dtype.is_integer()) {
            return Err(type_error!("select: `which` is of booleans or integers, got {}.", which.dtype));
        }
        if which.dtype.is_bool() && cases.len() > 2 {
            return Err(type_error!(
                "select: booleans choose between two cases, got more; use int32 for \
             `which`."
            ));
        }
        if cases.iter().any(|case| case.shape != first.shape) {
            let shapes: Vec<_> = cases.iter().map(|case| ShowShape(&case.shape).to_string()).collect();
            return Err(type_error!("select: all cases need one shape, got [{}].", shapes.join(", ")));
        }
        if which.rank() > 0 && which.shape != first.shape {
            return Err(type_error!(
                "select: `which` is a scalar or has the shape of the cases, got shape {} for cases of \
                 shape {}.",
                ShowShape(&which.shape),
                ShowShape(&first.shape)
            ));
        }
        same_dtype("select", cases)?;
        one(first.clone().with_weak(cases.iter().all(|case| case.weak)))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let last = inputs.len() as i128 - 2;
        evaluate::map_scalars(inputs, outputs, |scalars| {
            let which = scalars[0].to_i128().unwrap_or(0).clamp(0, last);
            Ok(scalars[1 + which as usize])
        })
    }
}

impl Rules for SelectN {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        if eqn.tangents[1..].iter().all(Option::is_none) {
            return Ok(zero());
        }
        let mut operands: SmallVec<[Atom; 3]> = SmallVec::from_iter([eqn.inputs[0]]);
        for (&case, &tangent) in eqn.inputs[1..].iter().zip(&eqn.tangents[1..]) {
            operands.push(match tangent {
                Some(tangent) => tangent,
                None => b.zeros_like(case)?,
            });
        }
        Ok(SmallVec::from_iter([Some(b.emit1(self.clone(), &operands)?)]))
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let Some(which) = eqn.inputs[0].known() else { return not_linear(self) };
        each_linear(b, eqn, |b, position, ct| {
            let zeros = b.zeros_like(ct)?;
            let mut operands: SmallVec<[Atom; 3]> = SmallVec::from_iter([which]);
            operands.extend((1..eqn.inputs.len()).map(|case| if case == position { ct } else { zeros }));
            b.emit1(self.clone(), &operands)
        })
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let operands = || eqn.inputs.iter().copied().zip(eqn.dims.iter().copied());
        let batched = operands().skip(1).find_map(|(atom, dim)| dim.map(|dim| (atom, dim)));
        let target = batched.map_or(0, |(_, dim)| dim);
        let mut shape: Shape = match batched {
            Some((atom, dim)) => {
                let mut shape = b.shape(atom);
                shape.remove(dim);
                shape
            }
            None => b.shape(eqn.inputs[1]),
        };
        let rank = shape.len();
        shape.insert(target, eqn.size.clone());
        let mut aligned: SmallVec<[Atom; 3]> = SmallVec::new();
        for (position, (atom, dim)) in operands().enumerate() {
            aligned.push(match dim {
                Some(_) if b.rank(atom) == 1 && rank > 0 => b.broadcast_in_dim(atom, &shape, &[target])?,
                Some(dim) => b.move_axis(atom, dim, target)?,
                None if position == 0 && b.rank(atom) == 0 => atom,
                None => b.broadcast_batch(atom, eqn.size, target)?,
            });
        }
        let output = b.emit1(self.clone(), &aligned)?;
        Ok(SmallVec::from_iter([(output, Some(target))]))
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, body: &mut Body, types: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let (Value::Real(which), [first, cases @ ..]) = (args[0], &args[1..]) else {
            return Err(internal_error!("select_n without cases"));
        };
        let mut result = *first;
        for (index, &case) in cases.iter().enumerate() {
            // Later cases win: an index beyond the last picks the last.
            let chosen = if types[0].dtype.is_bool() {
                which
            } else {
                let ty = body.type_of(which);
                let index = body.int(ty, index as i64);
                body.compare(ScalarOp::Lt, index, which)
            };
            result = match (case, result) {
                (Value::Real(x), Value::Real(y)) => Value::Real(body.select(chosen, x, y)),
                (Value::Complex(a, b), Value::Complex(c, d)) => {
                    Value::Complex(body.select(chosen, a, c), body.select(chosen, b, d))
                }
                _ => return Err(internal_error!("select_n of real and complex cases")),
            };
        }
        Ok(result)
    }
}

impl Row for Clamp {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arity(Clamp::NAME, inputs, 3)?;
        let operands = arrays(Clamp::NAME, inputs)?;
        for (position, operand) in operands.iter().enumerate() {
            let accept = [Accept::Integer, Accept::Bool, Accept::Floating, Accept::Complex];
            check_dtype(Clamp::NAME, operand.dtype, &accept, Some(position))?;
        }
        same_dtype(Clamp::NAME, &operands)?;
        let x = operands[1];
        for (name, bound) in [("min", operands[0]), ("max", operands[2])] {
            if bound.rank() > 0 && bound.shape != x.shape {
                return Err(type_error!(
                    "clamp requires {name}.shape == operand.shape or {name}.shape == (), got {name}.shape={}, \
                     operand.shape={}.",
                    ShowShape(&bound.shape),
                    ShowShape(&x.shape)
                ));
            }
        }
        one(x.clone().with_weak(operands.iter().all(|operand| operand.weak)))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        evaluate::map(inputs, outputs, |values| match *values {
            [Wide::Int(low), Wide::Int(x), Wide::Int(high)] => Ok(Wide::Int(x.max(low).min(high))),
            [Wide::Float(low), Wide::Float(x), Wide::Float(high)] => {
                Ok(Wide::Float(reference::minimum(reference::maximum(x, low), high)))
            }
            [Wide::Complex(a, b), Wide::Complex(re, im), Wide::Complex(c, d)] => {
                let raised = complex::max(&mut Exact::new(), (re, im), (a, b));
                let (re, im) = complex::min(&mut Exact::new(), raised, (c, d));
                Ok(Wide::Complex(re, im))
            }
            _ => Err(internal_error!("clamp of {values:?}")),
        })
    }
}

impl Rules for Clamp {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let (low, x, high) = (eqn.inputs[0], eqn.inputs[1], eqn.inputs[2]);
        if eqn.tangents.iter().all(Option::is_none) {
            return Ok(zero());
        }
        let (above, below) = (b.compare(Compare::Lt, low, x)?, b.compare(Compare::Lt, x, high)?);
        let mut terms = [None; 3];
        for (position, term) in terms.iter_mut().enumerate() {
            let Some(g) = eqn.tangents[position] else { continue };
            let passes = match position {
                0 => b.compare(Compare::Lt, x, low)?,
                1 => b.binary(Binary::And, above, below)?,
                _ => b.compare(Compare::Lt, high, x)?,
            };
            let g = spread(b, g, x)?;
            let none = constant(b, g, 0.0);
            let none = spread(b, none, g)?;
            *term = Some(b.select(passes, g, none)?);
        }
        sum(b, &terms, x)
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        not_linear(self)
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        if eqn.dims[1].is_some() {
            return elementwise_batch(self.clone(), b, eqn);
        }
        // The result has the shape of x: it must be batched too.
        let x = b.broadcast_batch(eqn.inputs[1], eqn.size, 0)?;
        let inputs = [eqn.inputs[0], x, eqn.inputs[2]];
        let dims = [eqn.dims[0], Some(0), eqn.dims[2]];
        elementwise_batch(self.clone(), b, &Batch { inputs: &inputs, dims: &dims, ..*eqn })
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn scalar(&self, body: &mut Body, _: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        match (args[0], args[1], args[2]) {
            (Value::Real(low), Value::Real(x), Value::Real(high)) => {
                let (max, min) = match body.type_of(x) {
                    ScalarType::Bool => (ScalarOp::Or, ScalarOp::And),
                    _ => (ScalarOp::Max, ScalarOp::Min),
                };
                let raised: Reg = body.op(max, &[x, low]);
                Ok(Value::Real(body.op(min, &[raised, high])))
            }
            (Value::Complex(a, b), Value::Complex(re, im), Value::Complex(c, d)) => {
                let ty = body.type_of(re);
                let mut emit = Emit::new(body, ty);
                let raised = complex::max(&mut emit, (re, im), (a, b));
                let (re, im) = complex::min(&mut emit, raised, (c, d));
                Ok(Value::Complex(re, im))
            }
            _ => Err(internal_error!("clamp of real and complex numbers")),
        }
    }
}
