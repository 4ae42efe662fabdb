//! Branches and loops: ops over sub-programs. Their transformation rules act on
//! the sub-programs and are in the transformations.
//!
//! | op | inputs | outputs |
//! |---|---|---|
//! | `cond` | index, operands | those of the branch, which takes the operands |
//! | `while` | constants of the condition, constants of the body, carry | carry |
//! | `scan` | constants, carry, arrays that are gone through along axis 0 | carry, stacked outputs |
//!
//! `sweeps`, which derivatives of `while` are made of, is in a file of its own.
//!
//! Bodies take constants, then the carry, then (scan) one element of each array;
//! they give the carry, then (scan) one element of each stacked output. A carry
//! keeps its shape and dtype from step to step.

use std::sync::Arc;

use crate::interpret;
use crate::rules::{Row, Types};
use crate::{
    ArrayType, DType, Dim, Effects, Program, Result, Tensor, Type, internal_error, op_struct, type_error,
    value_error,
};

op_struct! {
    /// Runs one of its branches: the one that an index, clamped to their number, says.
    Cond "cond" { branches: Vec<Arc<Program>> }
}

op_struct! {
    /// Runs its body on a carry as long as its condition holds of it; an error if it still
    /// does after `max_steps` times. Reverse mode keeps that many `checkpoints`, if any are
    /// given, and runs the rest again.
    While "while" {
        body_jaxpr: Arc<Program>,
        body_nconsts: usize,
        checkpoints: Option<usize>,
        cond_jaxpr: Arc<Program>,
        cond_nconsts: usize,
        max_steps: Option<usize>,
    }
}

op_struct! {
    /// Runs its body once for each element along axis 0 of its arrays, handing on a carry.
    Scan "scan" {
        jaxpr: Arc<Program>,
        length: Dim,
        num_carry: usize,
        num_consts: usize,
        reverse: bool,
        unroll: usize,
    }
}

/// Fails unless values of types `got` can be the inputs of `program`.
pub fn check_arguments<'a>(
    what: &str,
    program: &Program,
    got: impl ExactSizeIterator<Item = &'a Type> + Clone,
) -> Result<()> {
    let expected = program.input_types();
    if expected.len() == got.len() && expected.zip(got.clone()).all(|(want, got)| fits(want, got)) {
        return Ok(());
    }
    Err(type_error!(
        "{what} '{}' expected ({}), got ({})",
        program.name,
        list(program.input_types()),
        list(got)
    ))
}

/// Whether a value of one type may stand where the other is expected: they
/// differ in weakness at most.
pub fn fits(want: &Type, got: &Type) -> bool {
    match (want, got) {
        (Type::Array(want), Type::Array(got)) => want.shape == got.shape && want.dtype == got.dtype,
        _ => want == got,
    }
}

pub(super) fn list<'a>(types: impl Iterator<Item = &'a Type>) -> String {
    types.map(Type::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn union<'a>(programs: impl IntoIterator<Item = &'a Arc<Program>>) -> Effects {
    programs.into_iter().flat_map(|program| program.effects.iter().cloned()).collect()
}

/// Fails unless `after` continues `before`: the carry of a loop.
pub(super) fn check_carry(what: &str, program: &Program, before: &[Type], after: &[Type]) -> Result<()> {
    if before.len() == after.len() && before.iter().zip(after).all(|(before, after)| fits(before, after)) {
        return Ok(());
    }
    Err(type_error!(
        "the body '{}' of {what} takes the carry ({}) but gives ({}); both must have the same shapes and dtypes",
        program.name,
        list(before.iter()),
        list(after.iter())
    ))
}

fn constant(length: &Dim) -> Result<usize> {
    length.as_const().ok_or_else(|| internal_error!("a scan of symbolic length {length} was evaluated"))
}

impl Row for Cond {
    row_identity!();

    // As in JAX, outputs are weak where those of the first branch are.
    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let Some((index, operands)) = inputs.split_first() else {
            return Err(type_error!("cond requires an index"));
        };
        let index_fits = index.as_array().is_some_and(|ty| ty.rank() == 0 && ty.dtype == DType::I32);
        if !index_fits {
            return Err(type_error!("cond requires an index of type i32[], got {index}"));
        }
        let Some(first) = self.branches.first() else {
            return Err(type_error!("cond: there must be a branch, got none"));
        };
        let outputs: Types = first.output_types().collect();
        for branch in &self.branches {
            check_arguments("branch", branch, operands.iter())?;
            let own: Vec<Type> = branch.output_types().collect();
            if own.len() != outputs.len() || own.iter().zip(&outputs).any(|(a, b)| !fits(a, b)) {
                return Err(type_error!(
                    "branches of cond must give the same types: '{}' gives ({}), '{}' gives ({})",
                    first.name,
                    list(outputs.iter()),
                    branch.name,
                    list(own.iter())
                ));
            }
        }
        Ok(outputs)
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        let index = inputs[0].to_scalar().and_then(|value| value.to_i128()).unwrap_or(0);
        let last = self.branches.len() as i128 - 1;
        interpret::run(&self.branches[index.clamp(0, last) as usize], &inputs[1..])
    }

    fn effects(&self) -> Effects {
        union(&self.branches)
    }
}

/// Whether the condition of a loop holds.
pub(super) fn goes_on(condition: &Program, constants: &[Tensor], carry: &[Tensor]) -> Result<bool> {
    let arguments: Vec<Tensor> = constants.iter().chain(carry).cloned().collect();
    let holds = interpret::run(condition, &arguments)?;
    Ok(holds.first().and_then(Tensor::to_scalar).is_some_and(|value| !value.is_zero()))
}

/// Fails if a loop that did so many steps may not go on.
pub fn within_bound(body: &Program, steps: usize, max_steps: Option<usize>) -> Result<()> {
    match max_steps {
        Some(most) if steps >= most => Err(value_error!(
            "the loop over '{}' still goes on after max_steps={most} steps; give a larger max_steps, or None \
             for no bound",
            body.name
        )),
        _ => Ok(()),
    }
}

/// Fails unless a condition gives one boolean.
pub(super) fn check_condition(condition: &Program) -> Result<()> {
    let holds: Vec<Type> = condition.output_types().collect();
    if matches!(holds.as_slice(), [Type::Array(ty)] if ty.rank() == 0 && ty.dtype == DType::Bool) {
        return Ok(());
    }
    Err(type_error!(
        "the condition '{}' of while must give one bool[], got ({})",
        condition.name,
        list(holds.iter())
    ))
}

/// Fails for a loop that is to keep nothing, not even its first carry.
pub(super) fn check_checkpoints(checkpoints: Option<usize>) -> Result<()> {
    match checkpoints {
        Some(0) => {
            Err(value_error!("a loop requires at least 1 checkpoint, its first carry; got checkpoints=0"))
        }
        _ => Ok(()),
    }
}

impl While {
    /// Constants of the condition, constants of the body, carry.
    pub fn split<'a, T>(&self, inputs: &'a [T]) -> (&'a [T], &'a [T], &'a [T]) {
        let (condition, rest) = inputs.split_at(self.cond_nconsts.min(inputs.len()));
        let (body, carry) = rest.split_at(self.body_nconsts.min(rest.len()));
        (condition, body, carry)
    }
}

impl Row for While {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let (condition_constants, body_constants, carry) = self.split(inputs);
        let arguments: Vec<Type> = condition_constants.iter().chain(carry).cloned().collect();
        check_arguments("condition", &self.cond_jaxpr, arguments.iter())?;
        let arguments: Vec<Type> = body_constants.iter().chain(carry).cloned().collect();
        check_arguments("body", &self.body_jaxpr, arguments.iter())?;
        check_condition(&self.cond_jaxpr)?;
        check_checkpoints(self.checkpoints)?;
        let after: Types = self.body_jaxpr.output_types().collect();
        check_carry("while", &self.body_jaxpr, carry, &after)?;
        Ok(after)
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        let (condition_constants, body_constants, carry) = self.split(inputs);
        let mut carry = carry.to_vec();
        for steps in 0.. {
            if !goes_on(&self.cond_jaxpr, condition_constants, &carry)? {
                break;
            }
            within_bound(&self.body_jaxpr, steps, self.max_steps)?;
            let arguments: Vec<Tensor> = body_constants.iter().chain(&carry).cloned().collect();
            carry = interpret::run(&self.body_jaxpr, &arguments)?;
        }
        Ok(carry)
    }

    fn effects(&self) -> Effects {
        union([&self.cond_jaxpr, &self.body_jaxpr])
    }
}

impl Scan {
    /// Constants, carry, arrays that are gone through. Outputs split likewise,
    /// with no constants.
    pub fn split<'a, T>(&self, inputs: &'a [T]) -> (&'a [T], &'a [T], &'a [T]) {
        let (constants, rest) = inputs.split_at(self.num_consts.min(inputs.len()));
        let (carry, arrays) = rest.split_at(self.num_carry.min(rest.len()));
        (constants, carry, arrays)
    }
}

/// The type of one element along axis 0.
pub fn element_type(array: &ArrayType) -> ArrayType {
    array.with_shape(array.shape.iter().skip(1).cloned().collect())
}

/// The type of `length` elements along a new axis 0.
pub fn stacked_type(element: &ArrayType, length: &Dim) -> ArrayType {
    element.with_shape(std::iter::once(length.clone()).chain(element.shape.iter().cloned()).collect())
}

impl Row for Scan {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let (constants, carry, arrays) = self.split(inputs);
        let mut arguments: Vec<Type> = constants.iter().chain(carry).cloned().collect();
        for (position, ty) in arrays.iter().enumerate() {
            match ty {
                Type::Array(array) if array.shape.first() == Some(&self.length) => {
                    arguments.push(element_type(array).into());
                }
                other => {
                    return Err(type_error!(
                        "scan of length {} requires arrays with that leading axis, got {other} at position {position}",
                        self.length
                    ));
                }
            }
        }
        check_arguments("body", &self.jaxpr, arguments.iter())?;
        let mut outputs: Types = self.jaxpr.output_types().collect();
        if outputs.len() < self.num_carry {
            return Err(type_error!("the body '{}' of scan gives no whole carry", self.jaxpr.name));
        }
        check_carry("scan", &self.jaxpr, carry, &outputs[..self.num_carry])?;
        for output in &mut outputs[self.num_carry..] {
            let Type::Array(element) = &*output else {
                return Err(type_error!("scan cannot stack {output}"));
            };
            *output = stacked_type(element, &self.length).into();
        }
        Ok(outputs)
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let length = constant(&self.length)?;
        let (constants, carry, arrays) = self.split(inputs);
        let mut carry = carry.to_vec();
        let mut stacks = Vec::new();
        for ty in &outputs[self.num_carry..] {
            let ty = ty.as_array().ok_or_else(|| internal_error!("scan stacks {ty}"))?;
            let sizes = ty.sizes().ok_or_else(|| internal_error!("scan of symbolic size {ty}"))?;
            stacks.push(Tensor::zeros(ty.dtype, sizes)?);
        }
        for step in 0..length {
            let at = if self.reverse { length - 1 - step } else { step };
            let mut arguments: Vec<Tensor> = constants.iter().chain(&carry).cloned().collect();
            for array in arrays {
                let bytes = array.bytes().len() / length;
                let element = &array.bytes()[at * bytes..(at + 1) * bytes];
                arguments.push(Tensor::from_bytes(array.dtype(), &array.sizes()[1..], element)?);
            }
            let mut results = interpret::run(&self.jaxpr, &arguments)?;
            for (stack, element) in stacks.iter_mut().zip(results.drain(self.num_carry..)) {
                let bytes = element.bytes().len();
                stack.bytes_mut()?[at * bytes..(at + 1) * bytes].copy_from_slice(element.bytes());
            }
            carry = results;
        }
        carry.extend(stacks);
        Ok(carry)
    }

    fn effects(&self) -> Effects {
        union([&self.jaxpr])
    }
}
