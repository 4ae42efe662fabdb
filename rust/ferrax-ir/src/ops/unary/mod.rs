//! Elementwise ops of one operand: what their rows hold, and the rules that follow from it.
//! The rows are in `rows.rs`.

mod derivatives;
mod formulas;
mod rows;

pub use rows::Unary;

use smallvec::{SmallVec, smallvec};

use super::common::{Accept, arrays, check_arity, check_dtype, elementwise_batch, one};
use super::derive::{Cotangents, Tangents, cotangent, linear, zero};
use super::evaluate;
use super::formula::{Complex, Exact, Integer, Part, Real, Test};
use super::python::Python;
use crate::convert::Wide;
use crate::math::Emit;
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use crate::scalar::{Body, ScalarOp, Value, reference};
use crate::{ArrayType, Atom, Builder, DType, Result, Tensor, Type, internal_error};

/// An op of one operand. It accepts the dtypes that it has a rule for.
pub struct UnaryRow {
    /// JAX's name of the primitive.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub doc: &'static str,
    /// An operand and the result, for help and for tests.
    pub example: (Wide, Wide),
    pub boolean: Option<Integer>,
    pub integer: Integers,
    pub float: Option<OfFloat>,
    pub complex: Option<OfComplex>,
    pub derivative: Derivative,
    /// Whether the result may be NaN where the operand is not.
    pub makes_nan: bool,
    /// The work of one element, in additions.
    pub cost: u32,
    pub python: Python,
}

/// Which integers an op takes, and what it does to them.
pub enum Integers {
    None,
    Signed(Integer),
    All(Integer),
}

/// What an op makes of a float.
pub enum OfFloat {
    /// A float, by one instruction.
    Instruction(ScalarOp),
    /// A float, by a formula.
    Real(Real),
    /// A truth value.
    Test(Test),
    /// The complex number without imaginary part; of those floats that are parts of some.
    Complex,
}

/// What an op makes of a complex number.
pub enum OfComplex {
    Complex(Complex),
    /// A real number.
    Part(Part),
}

/// The derivative. Complex functions have their holomorphic one, without conjugation.
pub enum Derivative {
    /// Constant wherever there is a derivative.
    Zero,
    /// The op is linear. From the cotangent and the operand's type to the operand's cotangent.
    Linear(fn(&mut Builder, Atom, &ArrayType) -> Result<Atom>),
    /// The tangent is multiplied by this, which is made from operand and result.
    Slope(fn(&mut Builder, Atom, Atom) -> Result<Atom>),
    /// The result's tangent from the operand's, operand and result.
    Tangent(fn(&mut Builder, Atom, Atom, Atom) -> Result<Atom>),
}

impl UnaryRow {
    /// The groups of dtypes that there are rules for.
    pub fn accepts(&self) -> SmallVec<[Accept; 4]> {
        let integer = match self.integer {
            Integers::None => None,
            Integers::Signed(_) => Some(Accept::SignedInteger),
            Integers::All(_) => Some(Accept::Integer),
        };
        let (floats, parts) = match self.float {
            None => (None, None),
            Some(OfFloat::Complex) => (None, Some(Accept::Parts)),
            Some(_) => (Some(Accept::Floating), None),
        };
        let complex = self.complex.as_ref().map(|_| Accept::Complex);
        let boolean = self.boolean.as_ref().map(|_| Accept::Bool);
        [integer, floats, complex, parts, boolean].into_iter().flatten().collect()
    }

    /// The dtype of the result for an accepted one.
    fn result_dtype(&self, dtype: DType) -> DType {
        match (&self.float, &self.complex) {
            (_, Some(OfComplex::Part(_))) if dtype.is_complex() => dtype.real(),
            (Some(OfFloat::Test(_)), _) if dtype.is_float() => DType::Bool,
            (Some(OfFloat::Complex), _) if dtype.is_float() => dtype.complex().unwrap_or(dtype),
            _ => dtype,
        }
    }

    /// The rule for integers or truth values.
    fn of_integer(&self, dtype: DType) -> Result<&Integer> {
        match &self.integer {
            _ if dtype.is_bool() => self.boolean.as_ref().ok_or_else(|| self.refused(dtype)),
            Integers::Signed(rule) | Integers::All(rule) => Ok(rule),
            Integers::None => Err(self.refused(dtype)),
        }
    }

    fn of_float(&self, dtype: DType) -> Result<&OfFloat> {
        self.float.as_ref().ok_or_else(|| self.refused(dtype))
    }

    fn of_complex(&self, dtype: DType) -> Result<&OfComplex> {
        self.complex.as_ref().ok_or_else(|| self.refused(dtype))
    }

    /// The type rule let pass what there is no rule for.
    fn refused(&self, dtype: DType) -> crate::Error {
        internal_error!("{} of {dtype} after the type rule", self.name)
    }

    fn value(&self, dtype: DType, operand: Wide) -> Result<Wide> {
        let l = &mut Exact::new();
        Ok(match operand {
            Wide::Int(x) => Wide::Int((self.of_integer(dtype)?.value)(dtype, x)),
            Wide::Float(x) => match self.of_float(dtype)? {
                OfFloat::Instruction(op) => return reference::float_unary(*op, x),
                OfFloat::Real(formula) => Wide::Float((formula.value)(l, x)),
                OfFloat::Test(formula) => Wide::Int((formula.value)(l, x).into()),
                OfFloat::Complex => Wide::Complex(x, 0.0),
            },
            Wide::Complex(re, im) => match self.of_complex(dtype)? {
                OfComplex::Complex(formula) => {
                    let (re, im) = (formula.value)(l, (re, im));
                    Wide::Complex(re, im)
                }
                OfComplex::Part(formula) => Wide::Float((formula.value)(l, (re, im))),
            },
        })
    }

    fn emit(&self, body: &mut Body, dtype: DType, operand: Value) -> Result<Value> {
        let x = match operand {
            Value::Real(x) => x,
            Value::Complex(re, im) => {
                let part = body.type_of(re);
                let l = &mut Emit::new(body, part);
                return Ok(match self.of_complex(dtype)? {
                    OfComplex::Complex(formula) => {
                        let (re, im) = (formula.emit)(l, (re, im));
                        Value::Complex(re, im)
                    }
                    OfComplex::Part(formula) => Value::Real((formula.emit)(l, (re, im))),
                });
            }
        };
        if !dtype.is_float() {
            let result = (self.of_integer(dtype)?.emit)(body, dtype, x);
            return Ok(Value::Real(body.round_to(dtype, result)));
        }
        let ty = body.type_of(x);
        let result = match self.of_float(dtype)? {
            OfFloat::Instruction(op) => body.op(*op, &[x]),
            OfFloat::Real(formula) => (formula.emit)(&mut Emit::new(body, ty), x),
            OfFloat::Test(formula) => return Ok(Value::Real((formula.emit)(&mut Emit::new(body, ty), x))),
            OfFloat::Complex => return Ok(Value::Complex(x, body.float(ty, 0.0))),
        };
        Ok(Value::Real(body.round_to(dtype, result)))
    }
}

impl Row for Unary {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let row = self.row();
        check_arity(row.name, inputs, 1)?;
        let operand = arrays(row.name, inputs)?[0];
        check_dtype(row.name, operand.dtype, &row.accepts(), None)?;
        one(operand.with_dtype(row.result_dtype(operand.dtype)))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (row, dtype) = (self.row(), inputs[0].dtype());
        evaluate::map(inputs, outputs, |values| row.value(dtype, values[0]))
    }
}

impl Rules for Unary {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let Some(g) = eqn.tangents[0] else { return Ok(zero()) };
        let (x, y) = (eqn.inputs[0], eqn.outputs[0]);
        Ok(smallvec![Some(match self.row().derivative {
            Derivative::Zero => return Ok(zero()),
            Derivative::Linear(_) => b.unary(*self, g)?,
            Derivative::Slope(slope) => {
                let slope = slope(b, x, y)?;
                b.mul(g, slope)?
            }
            Derivative::Tangent(tangent) => tangent(b, g, x, y)?,
        })])
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let Derivative::Linear(transposed) = self.row().derivative else { return not_linear(self) };
        let (ct, ty) = (cotangent(eqn)?, linear(eqn, 0));
        Ok(smallvec![ty.map(|ty| transposed(b, ct, ty)).transpose()?])
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(*self, b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn cost(&self, _: DType) -> u32 {
        self.row().cost
    }

    fn scalar(
        &self,
        body: &mut Body,
        types: &[ArrayType],
        args: &[Value],
        _output: &ArrayType,
    ) -> Result<Value> {
        self.row().emit(body, types[0].dtype, args[0])
    }
}
