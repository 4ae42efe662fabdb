//! Elementwise ops of two operands: what their rows hold, and the rules that follow from it.
//! The rows are in `rows.rs`.

mod derivatives;
mod formulas;
mod rows;

pub use rows::Binary;

use smallvec::SmallVec;

use super::common::{
    Accept, arrays, check_arity, check_dtype, elementwise_batch, elementwise_shape, one, same_dtype,
};
use super::derive::{Cotangents, Tangents, sum, zero};
use super::evaluate;
use super::formula::{Complex2, Exact, parts};
use super::python::Python;
use crate::convert::{Wide, load, store};
use crate::math::Emit;
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types, not_linear};
use crate::scalar::{Body, Reg, ScalarOp, Value, reference};
use crate::{
    ArrayType, Atom, Builder, DType, Result, Scalar, Tensor, Type, internal_error, type_error, unsupported,
};

/// An op of two operands. It accepts the dtypes that it has a rule for.
pub struct BinaryRow {
    /// JAX's name of the primitive.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub doc: &'static str,
    /// Operands and the result, for help and for tests.
    pub example: ([Wide; 2], Wide),
    /// By this instruction.
    pub boolean: Option<ScalarOp>,
    pub integer: Option<OfIntegers>,
    pub float: Option<OfFloats>,
    pub complex: Option<Complex2>,
    pub second: Second,
    pub derivative: Derivative,
    /// Whether the result may be NaN where no operand is.
    pub makes_nan: bool,
    /// The work of one element, in additions: of floats, and of others.
    pub cost: [u32; 2],
    pub python: Python,
}

/// The dtype of the second operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Second {
    /// That of the first.
    Same,
    /// That of the first or an integer dtype, which is converted.
    OrInteger,
}

/// What an op makes of integers, before it wraps.
pub enum OfIntegers {
    Instruction(ScalarOp, fn(i128, i128) -> i128),
    /// Depends on the width: registers hold narrow integers in the low bits of a byte.
    Width {
        value: fn(DType, i128, i128) -> i128,
        emit: fn(&mut Body, DType, Reg, Reg) -> Reg,
    },
}

/// What an op makes of floats.
pub enum OfFloats {
    /// A float, by one instruction.
    Instruction(ScalarOp),
    /// A float, which depends on the format that the operands are stored in.
    Format { value: fn(DType, Scalar, Scalar) -> Scalar, emit: fn(&mut Body, DType, Reg, Reg) -> Reg },
    /// The complex number with these parts; of those floats that are parts of some.
    Complex,
}

/// What a derivative is made from: the operands and the result.
pub struct At {
    pub x: Atom,
    pub y: Atom,
    pub out: Atom,
}

/// The terms of the result's tangent from the tangents of the operands, one of which is there.
pub type Terms = fn(&mut Builder, &At, [Option<Atom>; 2]) -> Result<[Option<Atom>; 2]>;

/// The cotangents of the linear operands.
pub type Transposed = fn(&mut Builder, &Transpose<'_>) -> Result<Cotangents>;

/// The derivative for floats and complex numbers; others have none.
pub enum Derivative {
    /// Constant wherever there is a derivative.
    Zero,
    /// To ask for it is an error.
    Missing,
    Terms(Terms),
    /// Linear in both operands together.
    Linear(Terms, Transposed),
    /// Linear in an operand where the other is known.
    LinearInOne(Terms, Transposed),
}

impl BinaryRow {
    /// The groups of dtypes that there are rules for.
    pub fn accepts(&self) -> SmallVec<[Accept; 4]> {
        let (floats, parts) = match self.float {
            None => (None, None),
            Some(OfFloats::Complex) => (None, Some(Accept::Parts)),
            Some(_) => (Some(Accept::Floating), None),
        };
        let integer = self.integer.as_ref().map(|_| Accept::Integer);
        let complex = self.complex.as_ref().map(|_| Accept::Complex);
        let boolean = self.boolean.map(|_| Accept::Bool);
        [integer, floats, complex, parts, boolean].into_iter().flatten().collect()
    }

    /// The work of one element of `dtype`, in additions.
    pub const fn cost_of(&self, dtype: DType) -> u32 {
        self.cost[if dtype.is_float() { 0 } else { 1 }]
    }

    fn check_dtypes(&self, x: &ArrayType, y: &ArrayType) -> Result<()> {
        check_dtype(self.name, x.dtype, &self.accepts(), Some(0))?;
        if self.second == Second::Same {
            check_dtype(self.name, y.dtype, &self.accepts(), Some(1))?;
            return same_dtype(self.name, &[x, y]);
        }
        check_dtype(self.name, y.dtype, &[Accept::Integer, Accept::Floating, Accept::Complex], Some(1))?;
        if y.dtype.is_integer() || x.dtype == y.dtype {
            return Ok(());
        }
        Err(type_error!(
            "{}: the base is a float or complex, the exponent an integer or of the base's dtype, got {} \
             and {}.",
            self.name,
            x.dtype,
            y.dtype
        ))
    }

    /// The type rule let pass what there is no rule for.
    fn refused(&self, dtype: DType) -> crate::Error {
        internal_error!("{} of {dtype} after the type rule", self.name)
    }

    fn value(&self, dtype: DType, x: Wide, y: Wide) -> Result<Wide> {
        Ok(match (x, y) {
            (Wide::Int(x), Wide::Int(y)) if dtype.is_bool() => {
                let op = self.boolean.ok_or_else(|| self.refused(dtype))?;
                return reference::integer_binary(op, dtype, x, y);
            }
            (Wide::Int(x), Wide::Int(y)) => {
                Wide::Int(match self.integer.as_ref().ok_or_else(|| self.refused(dtype))? {
                    OfIntegers::Instruction(_, value) => value(x, y),
                    OfIntegers::Width { value, .. } => value(dtype, x, y),
                })
            }
            (Wide::Float(x), Wide::Float(y)) => {
                match self.float.as_ref().ok_or_else(|| self.refused(dtype))? {
                    OfFloats::Instruction(op) => return reference::float_binary(*op, x, y),
                    OfFloats::Complex => Wide::Complex(x, y),
                    OfFloats::Format { .. } => return Err(internal_error!("{} is of formats", self.name)),
                }
            }
            (Wide::Complex(a, b), Wide::Complex(c, d)) => {
                let formula = self.complex.as_ref().ok_or_else(|| self.refused(dtype))?;
                let (re, im) = (formula.value)(&mut Exact::new(), [(a, b), (c, d)]);
                Wide::Complex(re, im)
            }
            // The second operand as the first one's dtype holds it.
            (x, y @ Wide::Int(_)) => match rounded(y, dtype.real())? {
                Wide::Float(y) if dtype.is_complex() => return self.value(dtype, x, Wide::Complex(y, 0.0)),
                y => return self.value(dtype, x, y),
            },
            other => return Err(internal_error!("{} of {other:?}", self.name)),
        })
    }

    fn emit(&self, body: &mut Body, dtype: DType, x: Value, y: Value) -> Result<Value> {
        let (x, y) = match (x, y) {
            (Value::Real(x), Value::Real(y)) => (x, y),
            (x, y) => {
                let formula = self.complex.as_ref().ok_or_else(|| self.refused(dtype))?;
                let (x, y) = (parts(body, x), parts(body, y));
                let part = body.type_of(x.0);
                let (re, im) = (formula.emit)(&mut Emit::new(body, part), [x, y]);
                return Ok(Value::Complex(re, im));
            }
        };
        let result = if dtype.is_bool() {
            body.op(self.boolean.ok_or_else(|| self.refused(dtype))?, &[x, y])
        } else if dtype.is_integer() {
            match self.integer.as_ref().ok_or_else(|| self.refused(dtype))? {
                OfIntegers::Instruction(op, _) => body.op(*op, &[x, y]),
                OfIntegers::Width { emit, .. } => emit(body, dtype, x, y),
            }
        } else {
            match self.float.as_ref().ok_or_else(|| self.refused(dtype))? {
                OfFloats::Instruction(op) => body.op(*op, &[x, y]),
                OfFloats::Format { emit, .. } => emit(body, dtype, x, y),
                OfFloats::Complex => return Ok(Value::Complex(x, y)),
            }
        };
        Ok(Value::Real(body.round_to(dtype, result)))
    }
}

/// `value` as an element of `dtype` holds it.
fn rounded(value: Wide, dtype: DType) -> Result<Wide> {
    store(dtype, value)
        .and_then(|scalar| load(dtype, &scalar.bytes()))
        .ok_or_else(|| internal_error!("{value:?} as {dtype}"))
}

impl Row for Binary {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let row = self.row();
        check_arity(row.name, inputs, 2)?;
        let operands = arrays(row.name, inputs)?;
        let (x, y) = (operands[0], operands[1]);
        row.check_dtypes(x, y)?;
        let shape = elementwise_shape(row.name, &operands)?;
        let dtype = match row.float {
            Some(OfFloats::Complex) => x.dtype.complex().unwrap_or(x.dtype),
            _ => x.dtype,
        };
        one(ArrayType::new(shape, dtype).with_weak(x.weak && y.weak))
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let (row, dtype) = (self.row(), inputs[0].dtype());
        if let Some(OfFloats::Format { value, .. }) = &row.float {
            return evaluate::map_scalars(inputs, outputs, |scalars| {
                Ok(value(dtype, scalars[0], scalars[1]))
            });
        }
        evaluate::map(inputs, outputs, |values| row.value(dtype, values[0], values[1]))
    }
}

impl Rules for Binary {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let at = At { x: eqn.inputs[0], y: eqn.inputs[1], out: eqn.outputs[0] };
        let tangents = [eqn.tangents[0], eqn.tangents[1]];
        let dtype = b.dtype(at.out);
        if dtype.is_integer() || dtype.is_bool() || tangents == [None, None] {
            return Ok(zero());
        }
        let terms = match self.row().derivative {
            Derivative::Zero => return Ok(zero()),
            Derivative::Missing => {
                return Err(unsupported!("Differentiation rule for '{}' not implemented", self.op_name()));
            }
            Derivative::Terms(terms) | Derivative::Linear(terms, _) | Derivative::LinearInOne(terms, _) => {
                terms
            }
        };
        let terms = terms(b, &at, tangents)?;
        sum(b, &terms, at.out)
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        match self.row().derivative {
            Derivative::Linear(_, transposed) | Derivative::LinearInOne(_, transposed) => transposed(b, eqn),
            Derivative::Zero | Derivative::Missing | Derivative::Terms(_) => not_linear(self),
        }
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        elementwise_batch(*self, b, eqn)
    }

    fn lower(&self) -> Lowering {
        Lowering::Elementwise
    }

    fn cost(&self, output: DType) -> u32 {
        self.row().cost_of(output)
    }

    fn scalar(&self, body: &mut Body, types: &[ArrayType], args: &[Value], _: &ArrayType) -> Result<Value> {
        let (row, dtype) = (self.row(), types[0].dtype);
        let mut y = args[1];
        if let Value::Real(integer) = y
            && row.second == Second::OrInteger
            && types[1].dtype != dtype
        {
            // Rounded as the first operand's dtype would round it.
            let ty = crate::scalar::ScalarType::of(dtype)?;
            let converted = body.convert(integer, ty);
            y = Value::Real(body.round_to(dtype, converted));
        }
        row.emit(body, dtype, args[0], y)
    }
}
