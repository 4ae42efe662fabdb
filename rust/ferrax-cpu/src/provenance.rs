//! Where a NaN or an infinity in a result came from: a program is run again, op by op, and the bad
//! value followed from the output backwards to the op that made it of good operands.
//!
//! Only values that the output depends on are looked at, so a NaN that `select` masks is never
//! blamed. Loops run compiled; only the iteration in which the value turned bad is taken apart,
//! so time is linear in the run's, save where the value wanders between carries.

mod sweeps;

use std::sync::Arc;

use ferrax_ir::{
    Atom, Builder, DType, Equation, Kind, Op, Program, Result, Scalar, Source, Tensor, Type, Var, View,
    internal_error,
};
use smallvec::SmallVec;

use crate::backend::compile;
use crate::eager;
use crate::executable::{Executable, Outputs};

/// Moves from one carry to another that are followed in one loop.
const MOVES: usize = 64;

/// Which values are bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    pub nan: bool,
    pub inf: bool,
}

impl Watch {
    pub fn is_bad(self, value: f64) -> bool {
        self.nan && value.is_nan() || self.inf && value.is_infinite()
    }

    /// The position of the first bad element.
    pub fn first(self, tensor: &Tensor) -> Option<usize> {
        let dtype = tensor.dtype();
        match (dtype, dtype.kind()) {
            (DType::F32, _) => self.position(tensor, |&value: &f32| f64::from(value)),
            (DType::F64, _) => self.position(tensor, |&value: &f64| value),
            (DType::C64, _) => self.position(tensor, |value: &[f32; 2]| self.worse(value.map(f64::from))),
            (DType::C128, _) => self.position(tensor, |&value: &[f64; 2]| self.worse(value)),
            (_, Kind::Float) => (0..tensor.len()).find(|&index| {
                element(tensor, index).and_then(Scalar::to_f64).is_some_and(|x| self.is_bad(x))
            }),
            _ => None,
        }
    }

    fn position<T: bytemuck::Pod>(self, tensor: &Tensor, value: impl Fn(&T) -> f64) -> Option<usize> {
        tensor.elements::<T>().ok()?.iter().position(|element| self.is_bad(value(element)))
    }

    /// The part of a complex number that is bad, if one is.
    fn worse(self, [re, im]: [f64; 2]) -> f64 {
        if self.is_bad(re) { re } else { im }
    }

    fn is_bad_at(self, tensor: &Tensor, index: usize) -> bool {
        element(tensor, index)
            .and_then(|scalar| scalar.to_tensor().ok())
            .is_some_and(|one| self.first(&one).is_some())
    }
}

/// One element of a tensor.
pub fn element(tensor: &Tensor, index: usize) -> Option<Scalar> {
    let size = tensor.dtype().size();
    Scalar::from_bytes(tensor.dtype(), tensor.bytes().get(index * size..)?)
}

const INFINITE: Watch = Watch { nan: false, inf: true };

/// An iteration of a loop, in which the bad value was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Iteration {
    /// The loop's op and line.
    pub op: String,
    pub source: Source,
    /// Counted from 0; of a `scan`, the position along its arrays.
    pub number: usize,
    /// How many there are, where that is known.
    pub of: Option<usize>,
}

/// What made a bad value.
#[derive(Clone, PartialEq, Debug)]
pub enum Origin {
    /// It came in with this input.
    Input(usize),
    /// A captured array of the program has it.
    Constant,
    Op {
        name: String,
        source: Source,
        /// Operands at the place of the bad element, where the op has them.
        operands: Vec<Scalar>,
        /// The op is a loop or a call that could not be taken apart further: run op by op, it
        /// gives good values.
        whole: bool,
    },
}

/// Where a bad value came from.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    pub origin: Origin,
    /// The array in which it was first seen, and the position there.
    pub value: Tensor,
    pub index: usize,
    /// Outermost first.
    pub within: Vec<Iteration>,
    /// Where the infinity came from that the op made a NaN of.
    pub infinity: Option<Box<Finding>>,
}

/// Where the first bad value among the outputs of `program` for `inputs` came from; `None` if run
/// op by op all outputs are good.
pub fn find(program: &Program, inputs: &[Tensor], watch: Watch) -> Result<Option<Finding>> {
    let run = Run::new(program, inputs)?;
    for output in &program.outputs {
        if let Some(index) = watch.first(&run.value(output)?) {
            return run.follow(output, index, watch).map(Some);
        }
    }
    Ok(None)
}

/// A program's values, computed op by op.
struct Run<'a> {
    program: &'a Program,
    values: Vec<Option<Tensor>>,
    /// The equation that defines each variable and the number of the output there.
    producers: Vec<Option<(&'a Equation, usize)>>,
}

impl<'a> Run<'a> {
    fn new(program: &'a Program, inputs: &[Tensor]) -> Result<Run<'a>> {
        let mut run = Run {
            program,
            values: vec![None; program.types.len()],
            producers: vec![None; program.types.len()],
        };
        for (var, tensor) in program.inputs.iter().zip(inputs) {
            run.values[var.index()] = Some(tensor.clone());
        }
        for (var, tensor) in &program.constants {
            run.values[var.index()] = Some(tensor.clone());
        }
        for equation in &program.equations {
            let operands = run.operands(equation)?;
            let types: Vec<Type> =
                equation.outputs.iter().map(|var| program.types[var.index()].clone()).collect();
            for (number, (var, tensor)) in
                equation.outputs.iter().zip(evaluate(&equation.op, &operands, &types)?).enumerate()
            {
                run.values[var.index()] = Some(tensor);
                run.producers[var.index()] = Some((equation, number));
            }
        }
        Ok(run)
    }

    fn operands(&self, equation: &Equation) -> Result<Vec<Tensor>> {
        equation.inputs.iter().map(|atom| self.value(atom)).collect()
    }

    fn value(&self, atom: &Atom) -> Result<Tensor> {
        match atom {
            Atom::Literal(literal) => literal.value.to_tensor(),
            Atom::Var(var) => self.values[var.index()]
                .clone()
                .ok_or_else(|| internal_error!("variable {} has no value", var.0)),
        }
    }

    fn outputs(&self) -> Result<Vec<Tensor>> {
        self.program.outputs.iter().map(|atom| self.value(atom)).collect()
    }

    /// Follows a bad value, whose element `index` is bad, to where it came from.
    fn follow(&self, atom: &Atom, index: usize, watch: Watch) -> Result<Finding> {
        let (mut atom, mut index) = (*atom, index);
        loop {
            let value = self.value(&atom)?;
            let found = |origin: Origin| Finding {
                origin,
                value: value.clone(),
                index,
                within: Vec::new(),
                infinity: None,
            };
            let Some((equation, number)) = atom.as_var().and_then(|var| self.producers[var.index()]) else {
                let input = atom.as_var().and_then(|var| self.input(var));
                return Ok(found(input.map_or(Origin::Constant, Origin::Input)));
            };
            let operands = self.operands(equation)?;
            let inner = match descend(equation, &operands, number, index, watch)? {
                Step::Operand(position) => Some(position),
                Step::Found(mut finding, infinite) => {
                    if let Origin::Op { source, .. } = &mut finding.origin {
                        *source = source.within(equation.source);
                    }
                    if let Some(position) = infinite {
                        let first = INFINITE.first(&operands[position]).unwrap_or(0);
                        let found = self.follow(&equation.inputs[position], first, INFINITE)?;
                        finding.infinity = Some(Box::new(found));
                    }
                    return Ok(finding);
                }
                Step::Leaf => cause(equation, &operands, &value, index, watch),
                Step::Whole => None,
            };
            let Some(position) = inner else {
                let made = found(Origin::Op {
                    name: equation.op.name().to_owned(),
                    source: equation.source,
                    operands: operands_at(&operands, &value, index),
                    whole: !matches!(equation.op.view(), View::Leaf(_)),
                });
                let infinity = self.infinity(equation, &operands, &value, index, watch)?;
                return Ok(Finding { infinity, ..made });
            };
            let operand = &operands[position];
            let same = operand.sizes() == value.sizes() && watch.is_bad_at(operand, index);
            if !same {
                index = watch.first(operand).unwrap_or(0);
            }
            atom = equation.inputs[position];
        }
    }

    /// Where the operand came from that is infinite where a leaf gave a NaN, if one is.
    fn infinity(
        &self,
        equation: &Equation,
        operands: &[Tensor],
        value: &Tensor,
        index: usize,
        watch: Watch,
    ) -> Result<Option<Box<Finding>>> {
        if !matches!(equation.op.view(), View::Leaf(_)) || watch.inf || INFINITE.is_bad_at(value, index) {
            return Ok(None);
        }
        let Some(position) = cause(equation, operands, value, index, INFINITE) else { return Ok(None) };
        let operand = &operands[position];
        let same = operand.sizes() == value.sizes() && INFINITE.is_bad_at(operand, index);
        let at = if same { index } else { INFINITE.first(operand).unwrap_or(0) };
        self.follow(&equation.inputs[position], at, INFINITE).map(|found| Some(Box::new(found)))
    }

    fn input(&self, var: Var) -> Option<usize> {
        self.program.inputs.iter().position(|&input| input == var)
    }
}

/// The operand that a bad element of a leaf's output came from; `None` if the op made it. Literals
/// are part of the op.
fn cause(
    equation: &Equation,
    operands: &[Tensor],
    value: &Tensor,
    index: usize,
    watch: Watch,
) -> Option<usize> {
    let variables = || (0..operands.len()).filter(|&position| equation.inputs[position].as_var().is_some());
    let here = |&position: &usize| {
        let operand: &Tensor = &operands[position];
        operand.sizes() == value.sizes() && watch.is_bad_at(operand, index)
    };
    // A whole operand that is aligned with the output and good there is not the cause.
    let elsewhere = |&position: &usize| {
        let operand: &Tensor = &operands[position];
        let aligned = elementwise(&equation.op) && operand.sizes() == value.sizes();
        !aligned && watch.first(operand).is_some()
    };
    variables().find(here).or_else(|| variables().find(elsewhere))
}

/// Whether each element of the output depends on the operands' elements at its place alone.
fn elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::SelectN(_)
            | Op::Clamp(_)
            | Op::ConvertElementType(_)
    )
}

/// The operands at the place of an element of the output, if all have that place.
pub fn operands_at(operands: &[Tensor], value: &Tensor, index: usize) -> Vec<Scalar> {
    let at = |operand: &Tensor| match operand.sizes() {
        [] => element(operand, 0),
        sizes if sizes == value.sizes() => element(operand, index),
        _ => None,
    };
    operands.iter().map(at).collect::<Option<_>>().unwrap_or_default()
}

/// Where a bad output of an equation leads.
enum Step {
    /// To one of its operands.
    Operand(usize),
    /// Into it. If the infinity of the finding came in with an operand, the operand.
    Found(Finding, Option<usize>),
    /// The op has no sub-programs.
    Leaf,
    /// It has, but run op by op they give good values.
    Whole,
}

fn evaluate(op: &Op, operands: &[Tensor], types: &[Type]) -> Result<Outputs> {
    match op.view() {
        // Not twice, where nothing depends on it.
        View::Leaf(_) if types.is_empty() && !op.effects().is_empty() => Ok(Outputs::new()),
        View::Leaf(_) if matches!(op, Op::Extension(_)) => Ok(op.eval(operands, types)?.into()),
        View::Leaf(_) => eager::run_op(op, operands),
        View::Cond(_) | View::While(_) | View::Scan(_) | View::Sweeps(_) => {
            let mut builder = Builder::new(op.name());
            let atoms: SmallVec<[_; 4]> =
                operands.iter().map(|tensor| builder.input(tensor.array_type())).collect();
            let outputs = builder.emit_typed(op.clone(), &atoms, types.iter().cloned());
            compile(&builder.finish(outputs.into_iter().map(Atom::Var)))?.run(operands)
        }
        View::Call(call) => call_outputs(&call.program, operands),
        View::Checkpoint(call) => call_outputs(&call.jaxpr, operands),
        View::CustomJvp(call) => call_outputs(&call.call_jaxpr, operands),
        View::CustomVjp(call) => call_outputs(&call.call_jaxpr, operands),
        View::Ruled(_, called) => call_outputs(called, operands),
    }
}

fn call_outputs(program: &Program, operands: &[Tensor]) -> Result<Outputs> {
    Ok(Run::new(program, operands)?.outputs()?.into())
}

/// Looks into an equation for what made element `index` of its output `number` bad.
fn descend(
    equation: &Equation,
    operands: &[Tensor],
    number: usize,
    index: usize,
    watch: Watch,
) -> Result<Step> {
    match equation.op.view() {
        View::Leaf(_) => Ok(Step::Leaf),
        View::Sweeps(op) => sweeps::descend(op, equation, operands, number, watch),
        View::Call(call) => into_call(&call.program, operands, (number, index), watch, 0),
        View::Checkpoint(call) => into_call(&call.jaxpr, operands, (number, index), watch, 0),
        View::CustomJvp(call) => into_call(&call.call_jaxpr, operands, (number, index), watch, 0),
        View::CustomVjp(call) => into_call(&call.call_jaxpr, operands, (number, index), watch, 0),
        View::Ruled(_, called) => into_call(called, operands, (number, index), watch, 0),
        View::Cond(cond) => {
            let choice = operands.first().and_then(Tensor::to_scalar).and_then(Scalar::to_i128).unwrap_or(0);
            let last = cond.branches.len() as i128 - 1;
            match cond.branches.get(choice.clamp(0, last.max(0)) as usize) {
                Some(branch) => into_call(branch, &operands[1..], (number, index), watch, 1),
                None => Ok(Step::Whole),
            }
        }
        View::Scan(scan) => {
            let (constants, carry, arrays) = scan.split(operands);
            let Some(length) = scan.length.as_const() else { return Ok(Step::Whole) };
            let steps = Loop {
                body: &scan.jaxpr,
                executable: compile(&scan.jaxpr)?,
                constants,
                carry,
                arrays,
                length: Some(length),
                reverse: scan.reverse,
                condition: None,
                first: [0, constants.len(), constants.len() + carry.len()],
            };
            let (slot, step) = if number < scan.num_carry {
                (number, length.saturating_sub(1))
            } else {
                (number, steps.turn(index / steps.elements(number).max(1)))
            };
            if length == 0 {
                return Ok(if number < carry.len() {
                    Step::Operand(constants.len() + number)
                } else {
                    Step::Whole
                });
            }
            steps.follow(equation, slot, step, watch)
        }
        View::While(op) => {
            let (condition_constants, constants, carry) = op.split(operands);
            let mut steps = Loop {
                body: &op.body_jaxpr,
                executable: compile(&op.body_jaxpr)?,
                constants,
                carry,
                arrays: &[],
                length: None,
                reverse: false,
                condition: Some((compile(&op.cond_jaxpr)?, condition_constants)),
                first: [
                    condition_constants.len(),
                    condition_constants.len() + constants.len(),
                    operands.len(),
                ],
            };
            let length = steps.count(op.max_steps)?;
            steps.length = Some(length);
            match length {
                0 => Ok(Step::Operand(steps.first[1] + number)),
                _ => steps.follow(equation, number, length - 1, watch),
            }
        }
    }
}

/// Follows element `index` of output `number` of a sub-program whose inputs are the operands from
/// `offset` on.
fn into_call(
    program: &Program,
    inputs: &[Tensor],
    (number, index): (usize, usize),
    watch: Watch,
    offset: usize,
) -> Result<Step> {
    let run = Run::new(program, inputs)?;
    let Some(output) = program.outputs.get(number) else { return Ok(Step::Whole) };
    let value = run.value(output)?;
    let there = Some(index).filter(|&index| watch.is_bad_at(&value, index));
    let Some(index) = there.or_else(|| watch.first(&value)) else { return Ok(Step::Whole) };
    let finding = run.follow(output, index, watch)?;
    Ok(match finding.origin {
        Origin::Input(position) => Step::Operand(offset + position),
        _ => Step::found(finding, |position| Some(offset + position)),
    })
}

impl Step {
    /// A finding in a sub-program; `operand` is the operand that an input of it is, if it is one.
    fn found(mut finding: Finding, operand: impl Fn(usize) -> Option<usize>) -> Step {
        let input = match finding.infinity.as_ref().map(|infinity| &infinity.origin) {
            Some(&Origin::Input(position)) => position,
            _ => return Step::Found(finding, None),
        };
        // Inputs of the sub-program mean nothing outside.
        finding.infinity = None;
        Step::Found(finding, operand(input))
    }
}

/// A loop that is run again. Steps are counted in the order in which they run.
struct Loop<'a> {
    body: &'a Arc<Program>,
    executable: Executable,
    constants: &'a [Tensor],
    carry: &'a [Tensor],
    arrays: &'a [Tensor],
    length: Option<usize>,
    reverse: bool,
    /// Of a `while`: the condition and its constants.
    condition: Option<(Executable, &'a [Tensor])>,
    /// The positions among the operands where constants, carry and arrays begin.
    first: [usize; 3],
}

impl Loop<'_> {
    /// Elements that one step gives to a stacked output.
    fn elements(&self, number: usize) -> usize {
        let ty = self.body.outputs.get(number).map(|atom| self.body.type_of(atom));
        let sizes = ty.and_then(|ty| ty.as_array().and_then(|ty| ty.sizes()));
        sizes.map_or(1, |sizes| sizes.iter().product())
    }

    /// The step that is about element `at`, and the other way round.
    fn turn(&self, at: usize) -> usize {
        match self.length {
            Some(length) if self.reverse => length.saturating_sub(1).saturating_sub(at),
            _ => at,
        }
    }

    fn arguments(&self, carry: &[Tensor], step: usize) -> Result<Vec<Tensor>> {
        let at = self.turn(step);
        let mut arguments: Vec<Tensor> = self.constants.iter().chain(carry).cloned().collect();
        for array in self.arrays {
            let bytes = array.bytes().len() / array.sizes().first().copied().unwrap_or(1).max(1);
            let element = &array.bytes()[at * bytes..(at + 1) * bytes];
            arguments.push(Tensor::from_bytes(array.dtype(), &array.sizes()[1..], element)?);
        }
        Ok(arguments)
    }

    /// The carry after a step.
    fn advance(&self, carry: &[Tensor], step: usize) -> Result<Vec<Tensor>> {
        let mut results = self.executable.run(&self.arguments(carry, step)?)?;
        results.truncate(self.carry.len());
        Ok(results.into_vec())
    }

    /// The operand that an input of the body is in a step, if it is no carry of an earlier one.
    fn operand(&self, position: usize, step: usize) -> Option<usize> {
        let (constants, carry) = (self.constants.len(), self.carry.len());
        if position < constants {
            Some(self.first[0] + position)
        } else if position >= constants + carry {
            Some(self.first[2] + position - constants - carry)
        } else {
            (step == 0).then(|| self.first[1] + position - constants)
        }
    }

    /// How often a `while` goes round.
    fn count(&self, limit: Option<usize>) -> Result<usize> {
        let Some((condition, constants)) = &self.condition else { return Ok(0) };
        let mut carry = self.carry.to_vec();
        for step in 0.. {
            if limit == Some(step) {
                return Ok(step);
            }
            let arguments: Vec<Tensor> = constants.iter().chain(&carry).cloned().collect();
            let holds = condition.run(&arguments)?;
            if holds.first().and_then(Tensor::to_scalar).is_none_or(Scalar::is_zero) {
                return Ok(step);
            }
            carry = self.advance(&carry, step)?;
        }
        Ok(0)
    }

    /// Follows output `slot` of the body, which is bad after `step`.
    fn follow(&self, equation: &Equation, mut slot: usize, mut step: usize, watch: Watch) -> Result<Step> {
        // For each carry and step, whether the carry is bad after it.
        let mut bad: Vec<Vec<bool>> = vec![Vec::with_capacity(step); self.carry.len()];
        let mut carry = self.carry.to_vec();
        for at in 0..=step {
            carry = self.advance(&carry, at)?;
            for (flags, value) in bad.iter_mut().zip(&carry) {
                flags.push(watch.first(value).is_some());
            }
        }
        for _ in 0..MOVES {
            if let Some(flags) = bad.get(slot) {
                // Where its bad streak begins.
                while step > 0 && flags[step - 1] {
                    step -= 1;
                }
                if step == 0 && watch.first(&self.carry[slot]).is_some() {
                    return Ok(Step::Operand(self.first[1] + slot));
                }
            }
            let mut carry = self.carry.to_vec();
            for at in 0..step {
                carry = self.advance(&carry, at)?;
            }
            let arguments = self.arguments(&carry, step)?;
            let run = Run::new(self.body, &arguments)?;
            let Some(output) = self.body.outputs.get(slot) else { return Ok(Step::Whole) };
            let value = run.value(output)?;
            let iteration = Iteration {
                op: equation.op.name().to_owned(),
                source: equation.source,
                number: self.turn(step),
                of: self.length,
            };
            let Some(index) = watch.first(&value) else { return Ok(Step::Whole) };
            let mut finding = run.follow(output, index, watch)?;
            if let Origin::Input(position) = finding.origin {
                if let Some(operand) = self.operand(position, step) {
                    return Ok(Step::Operand(operand));
                }
                slot = position - self.constants.len();
                step -= 1;
                continue;
            }
            finding.within.insert(0, iteration);
            return Ok(Step::found(finding, |position| self.operand(position, step)));
        }
        Ok(Step::Whole)
    }
}
