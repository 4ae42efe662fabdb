//! What a run of a program costs, roughly and before fusion, as XLA counts it (`HloCostAnalysis`): a sum,
//! product or comparison of elements is one operation, functions such as `exp` count apart, moving elements
//! costs no operation, and a product of a contraction is two. Of branches the dearest counts; the body of a
//! `scan` counts for each step, that of a `while` once.
//!
//! Cost: linear in the distinct programs.

use smallvec::SmallVec;

use crate::rules::{Lowering, Rules};
use crate::scalar::{Body, ScalarOp, ScalarType, Value};
use crate::tensor::byte_size;
use crate::{ArrayType, Equation, Op, Program, Type, View};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Costs {
    pub flops: u64,
    pub transcendentals: u64,
    /// Bytes of all operands and results.
    pub bytes: u64,
}

impl Costs {
    fn each(self, other: Costs, f: impl Fn(u64, u64) -> u64) -> Costs {
        Costs {
            flops: f(self.flops, other.flops),
            transcendentals: f(self.transcendentals, other.transcendentals),
            bytes: f(self.bytes, other.bytes),
        }
    }

    fn plus(self, other: Costs) -> Costs {
        self.each(other, u64::saturating_add)
    }
}

impl Program {
    pub fn costs(&self) -> Costs {
        self.measure(&|program, of| {
            let cost = |equation: &Equation| match &equation.op {
                Op::Cond(op) => op.branches.iter().map(of).fold(Costs::default(), |a, b| a.each(b, u64::max)),
                Op::Scan(op) => {
                    let steps = op.length.as_const().map_or(u64::MAX, |steps| steps as u64);
                    of(&op.jaxpr).each(Costs::default(), |once, _| once.saturating_mul(steps))
                }
                op => {
                    let inside = op.programs();
                    match inside.is_empty() {
                        true => single(program, equation),
                        false => inside.into_iter().map(of).fold(Costs::default(), Costs::plus),
                    }
                }
            };
            program.equations.iter().map(cost).fold(Costs::default(), Costs::plus)
        })
    }
}

fn elements(sizes: &[usize]) -> u64 {
    match sizes.contains(&0) {
        true => 0,
        false => sizes.iter().fold(1, |count, &size| count.saturating_mul(size as u64)),
    }
}

/// The number of elements; none where it is not known.
fn count(ty: &Type) -> u64 {
    ty.as_array().and_then(ArrayType::sizes).map_or(0, |sizes| elements(&sizes))
}

/// The costs of an equation without sub-programs.
fn single(program: &Program, equation: &Equation) -> Costs {
    let operands: SmallVec<[Type; 3]> = equation.inputs.iter().map(|atom| program.type_of(atom)).collect();
    let results = || equation.outputs.iter().map(|var| &program.types[var.index()]);
    let bytes = |ty: &Type| {
        let size = ty.as_array().and_then(|ty| byte_size(&ty.sizes()?, ty.dtype).ok());
        size.map_or(0, |size| size as u64)
    };
    let read: u64 = operands.iter().map(bytes).fold(0, u64::saturating_add);
    let outputs: u64 = results().map(count).fold(0, u64::saturating_add);
    let size = |operand: usize, axes: &mut dyn Iterator<Item = usize>| {
        let sizes = operands[operand].as_array().and_then(ArrayType::sizes).unwrap_or_default();
        axes.fold(1, |product: u64, axis| product.saturating_mul(sizes[axis] as u64))
    };
    let (flops, transcendentals) = match (&equation.op, equation.op.view()) {
        (Op::DotGeneral(dot), _) => {
            (outputs.saturating_mul(size(0, &mut dot.lhs_contracting.iter().copied())).saturating_mul(2), 0)
        }
        (Op::ConvGeneralDilated(conv), _) => {
            let terms = size(1, &mut conv.dims.rhs[1..].iter().copied());
            (outputs.saturating_mul(terms).saturating_mul(2), 0)
        }
        (_, View::Leaf(rules)) => match rules.lower() {
            Lowering::Movement => (0, 0),
            Lowering::Reduction => {
                let terms = operands.iter().map(count).fold(0, u64::saturating_add);
                (terms.saturating_sub(outputs), 0)
            }
            Lowering::Elementwise => {
                let (arithmetic, functions) =
                    of_element(rules, &operands, results().next()).unwrap_or((1, 0));
                (outputs.saturating_mul(arithmetic), outputs.saturating_mul(functions))
            }
            Lowering::Library | Lowering::Expand => (outputs, 0),
        },
        _ => (outputs, 0),
    };
    let written = results().map(bytes).fold(0, u64::saturating_add);
    Costs { flops, transcendentals, bytes: read.saturating_add(written) }
}

/// Arithmetic and functions for one element of the result. What goes with a function, such as the sum in a
/// logistic, is part of it.
fn of_element(rules: &dyn Rules, operands: &[Type], result: Option<&Type>) -> Option<(u64, u64)> {
    let types: SmallVec<[ArrayType; 3]> =
        operands.iter().map(|ty| ty.as_array().cloned()).collect::<Option<_>>()?;
    let mut body = Body::default();
    let mut args: SmallVec<[Value; 3]> = SmallVec::new();
    for (operand, ty) in (0..).zip(&types) {
        let register = ScalarType::of(ty.dtype).ok()?;
        let mut part = |part| body.push(ScalarOp::Input { operand, part }, register, &[]);
        args.push(match ty.dtype.is_complex() {
            true => Value::Complex(part(0), part(1)),
            false => Value::Real(part(0)),
        });
    }
    rules.scalar(&mut body, &types, &args, result?.as_array()?).ok()?;
    let counts = |wanted: fn(&ScalarOp) -> bool| {
        body.instructions().iter().filter(|instruction| wanted(&instruction.op)).count() as u64
    };
    let functions = counts(|op| matches!(op, ScalarOp::Math(_)));
    if functions > 0 {
        return Some((0, 1));
    }
    let free = |op: &ScalarOp| {
        !matches!(
            op,
            ScalarOp::Input { .. }
                | ScalarOp::Index { .. }
                | ScalarOp::Const { .. }
                | ScalarOp::Param { .. }
                | ScalarOp::Bitcast
        )
    };
    Some((counts(free).max(1), 0))
}
