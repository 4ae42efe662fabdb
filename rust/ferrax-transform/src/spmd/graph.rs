//! The arrays of a program and what ties their axes together: sub-programs opened, a node for each equation.
//!
//! In: a program. Out: arrays, each once, and nodes over them; arrays of loops are those of all steps. Cost: linear in the size
//! of the program with its calls inlined, of which so many nodes are made at most; what is called beyond them is taken to
//! tie nothing together.

use std::sync::Arc;

use ferrax_ir::ops::{Scan, While};
use ferrax_ir::rules::{Extents, Lowering, Rules};
use ferrax_ir::shard_rule::{Cut, ShardRule};
use ferrax_ir::{Atom, DType, Equation, Program, Result, Sizes, Type, View};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::propagate::Spec;

/// An array, by number.
pub type Array = usize;

pub struct Node {
    pub rule: ShardRule,
    /// Operands, and then results, in the order of the rule's.
    pub arrays: SmallVec<[Array; 4]>,
    /// When it takes part, of `LEVELS`.
    pub level: u8,
}

/// What comes first: elements that are made of those at the same place. Then all else but copies along new axes, which
/// then only say how their operands are cut. Then these, too.
pub const LEVELS: u8 = 3;

const MOST: usize = 1 << 18;

pub struct Value {
    pub sizes: Sizes,
    pub dtype: DType,
    pub spec: Spec,
    /// Whether the spec was said, and stays.
    pub closed: bool,
}

/// A program that each device runs on its parts, and how its operands are cut.
pub type OneDevice = (Arc<Program>, Vec<Spec>);

/// What an equation says of its results by itself.
pub struct Stated {
    /// How they are cut; `None` for those of which nothing is said.
    pub results: Vec<Option<Spec>>,
    /// Whether that is how they stay: what is not cut is not.
    pub closed: bool,
    /// Whether its operands are cut as its results.
    pub passes: bool,
    /// What devices run; `None` for an equation that changes no value.
    pub body: Option<OneDevice>,
}

/// A program as it was opened: its arrays by variable, what was said of its equations by themselves, and the programs
/// that these run, in order.
#[derive(Default)]
pub struct Frame {
    pub arrays: Vec<Option<Array>>,
    pub stated: FxHashMap<usize, Option<OneDevice>>,
    pub inner: Vec<Frame>,
}

pub type Asked<'a> = &'a mut dyn FnMut(&Equation) -> Result<Option<Stated>>;

pub struct Graph<'a> {
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    /// Of the programs that were opened within the one that is being opened.
    pub frames: Vec<Frame>,
    stated: FxHashMap<usize, Option<OneDevice>>,
    asked: Asked<'a>,
}

impl<'a> Graph<'a> {
    pub fn new(asked: Asked<'a>) -> Graph<'a> {
        Graph {
            values: Vec::new(),
            nodes: Vec::new(),
            frames: Vec::new(),
            stated: FxHashMap::default(),
            asked,
        }
    }

    /// An array of which nothing is known; one with symbolic sizes has no axes here.
    pub fn fresh(&mut self, ty: &Type) -> Array {
        let (sizes, dtype) = match ty.as_array() {
            Some(ty) => (ty.sizes().unwrap_or_default(), ty.dtype),
            None => (Sizes::new(), DType::Bool),
        };
        let spec = sizes.iter().map(|_| SmallVec::new()).collect();
        self.values.push(Value { sizes, dtype, spec, closed: false });
        self.values.len() - 1
    }

    /// Cuts an array as is said; axes behind those of the spec are whole.
    pub fn close(&mut self, array: Array, mut spec: Spec) {
        let value = &mut self.values[array];
        if spec.len() <= value.sizes.len() {
            spec.resize(value.sizes.len(), SmallVec::new());
            value.spec = spec;
            value.closed = true;
        }
    }

    /// Two arrays of one type are cut alike.
    pub fn tie(&mut self, a: Array, b: Array) {
        let extents =
            |array: Array| Extents { dtype: self.values[array].dtype, sizes: &self.values[array].sizes };
        let rule = ShardRule::alike(&[extents(a)], &[extents(b)]);
        self.nodes.push(Node { rule, arrays: SmallVec::from_slice(&[a, b]), level: 0 });
    }

    /// The elements along axis 0 of an array, each of which is an array.
    fn rows(&mut self, all: Array, one: Array) {
        let (all_sizes, one_sizes) = (self.values[all].sizes.clone(), self.values[one].sizes.clone());
        if all_sizes.len() != one_sizes.len() + 1 {
            return;
        }
        let dtype = self.values[all].dtype;
        let extents = |sizes| Extents { dtype, sizes };
        let mut rule = ShardRule::apart(&[extents(&all_sizes)], &[extents(&one_sizes)]);
        for axis in 0..one_sizes.len() {
            rule.share(0, axis + 1, 0, axis, Cut::Pass);
        }
        self.nodes.push(Node { rule, arrays: SmallVec::from_slice(&[all, one]), level: 0 });
    }

    /// The outputs of a program of these inputs.
    pub fn program(&mut self, program: &Program, inputs: &[Array]) -> Result<Vec<Array>> {
        let outside = (std::mem::take(&mut self.frames), std::mem::take(&mut self.stated));
        let mut known: Vec<Option<Array>> = vec![None; program.types.len()];
        for (var, &array) in program.inputs.iter().zip(inputs) {
            known[var.index()] = Some(array);
        }
        for (var, _) in &program.constants {
            known[var.index()] = Some(self.fresh(&program.types[var.index()]));
        }
        for (number, equation) in program.equations.iter().enumerate() {
            let operands =
                equation.inputs.iter().map(|atom| self.of(program, atom, &mut known)).collect::<Vec<_>>();
            let results = self.equation(program, number, &operands)?;
            for (var, array) in equation.outputs.iter().zip(results) {
                known[var.index()] = Some(array);
            }
        }
        let outputs = program.outputs.iter().map(|atom| self.of(program, atom, &mut known)).collect();
        let (inner, stated) =
            (std::mem::replace(&mut self.frames, outside.0), std::mem::replace(&mut self.stated, outside.1));
        self.frames.push(Frame { arrays: known, stated, inner });
        Ok(outputs)
    }

    fn of(&mut self, program: &Program, atom: &Atom, known: &mut [Option<Array>]) -> Array {
        let Some(var) = atom.as_var() else { return self.fresh(&program.type_of(atom)) };
        match known[var.index()] {
            Some(array) => array,
            None => {
                let array = self.fresh(&program.types[var.index()]);
                known[var.index()] = Some(array);
                array
            }
        }
    }

    fn results(&mut self, program: &Program, equation: &Equation) -> Vec<Array> {
        equation.outputs.iter().map(|var| self.fresh(&program.types[var.index()])).collect()
    }

    fn equation(&mut self, program: &Program, number: usize, operands: &[Array]) -> Result<Vec<Array>> {
        let equation = &program.equations[number];
        if let Some(stated) = (self.asked)(equation)? {
            let results = self.results(program, equation);
            for (&result, spec) in results.iter().zip(stated.results) {
                if let Some(spec) = spec {
                    self.close(result, spec);
                    self.values[result].closed = stated.closed;
                }
            }
            self.stated.insert(number, stated.body);
            if stated.passes {
                for (&operand, &result) in operands.iter().zip(&results) {
                    self.tie(operand, result);
                }
            }
            return Ok(results);
        }
        let called = match equation.op.view() {
            View::Leaf(row) => return self.leaf(program, equation, row, operands),
            View::Cond(op) => {
                let results = self.results(program, equation);
                for branch in &op.branches {
                    let outputs = self.program(branch, &operands[1..])?;
                    for (output, &result) in outputs.into_iter().zip(&results) {
                        self.tie(output, result);
                    }
                }
                return Ok(results);
            }
            View::While(op) => return self.while_loop(program, equation, op, operands),
            View::Scan(op) => return self.scan(program, equation, op, operands),
            View::Sweeps(_) => {
                let results = self.results(program, equation);
                self.alike(operands, &results);
                return Ok(results);
            }
            View::Call(op) => &op.program,
            View::Checkpoint(op) => &op.jaxpr,
            View::CustomJvp(op) => &op.call_jaxpr,
            View::CustomVjp(op) => &op.call_jaxpr,
            View::Ruled(_, called) => called,
        };
        if called.inputs.len() != operands.len() || self.nodes.len() > MOST {
            let results = self.results(program, equation);
            self.alike(operands, &results);
            return Ok(results);
        }
        self.program(called, operands)
    }

    /// Axes of one number and size are taken to be cut alike.
    fn alike(&mut self, operands: &[Array], results: &[Array]) {
        let extents =
            |&array: &Array| Extents { dtype: self.values[array].dtype, sizes: &self.values[array].sizes };
        let (inputs, outputs): (Vec<_>, Vec<_>) =
            (operands.iter().map(extents).collect(), results.iter().map(extents).collect());
        let rule = ShardRule::alike(&inputs, &outputs);
        let arrays = operands.iter().chain(results).copied().collect();
        self.nodes.push(Node { rule, arrays, level: 1 });
    }

    fn leaf(
        &mut self,
        program: &Program,
        equation: &Equation,
        row: &dyn Rules,
        operands: &[Array],
    ) -> Result<Vec<Array>> {
        let results = self.results(program, equation);
        let symbolic = |ty: &Type| ty.as_array().is_none_or(|ty| ty.sizes().is_none());
        let outputs = equation.outputs.iter().map(|var| &program.types[var.index()]);
        if outputs.into_iter().any(symbolic)
            || equation.inputs.iter().any(|atom| symbolic(&program.type_of(atom)))
        {
            return Ok(results);
        }
        let extents =
            |&array: &Array| Extents { dtype: self.values[array].dtype, sizes: &self.values[array].sizes };
        let (inputs, outputs): (Vec<_>, Vec<_>) =
            (operands.iter().map(extents).collect(), results.iter().map(extents).collect());
        let rule = row.shard(&inputs, &outputs)?;
        let count = |extents: &[Extents<'_>]| extents.iter().map(Extents::count).max().unwrap_or(0);
        let level = match row.lower() {
            Lowering::Elementwise => 0,
            Lowering::Movement if count(&inputs) < count(&outputs) => 2,
            _ => 1,
        };
        let arrays = operands.iter().chain(&results).copied().collect();
        self.nodes.push(Node { rule, arrays, level });
        Ok(results)
    }

    fn while_loop(
        &mut self,
        program: &Program,
        equation: &Equation,
        op: &While,
        operands: &[Array],
    ) -> Result<Vec<Array>> {
        let results = self.results(program, equation);
        let (held, consts) = (op.cond_nconsts, op.cond_nconsts + op.body_nconsts);
        let inputs: Vec<Array> = operands[held..consts].iter().chain(&results).copied().collect();
        let after = self.program(&op.body_jaxpr, &inputs)?;
        for ((&before, &result), after) in operands[consts..].iter().zip(&results).zip(after) {
            self.tie(before, result);
            self.tie(after, result);
        }
        Ok(results)
    }

    fn scan(
        &mut self,
        program: &Program,
        equation: &Equation,
        op: &Scan,
        operands: &[Array],
    ) -> Result<Vec<Array>> {
        let results = self.results(program, equation);
        let (consts, count) = (op.num_consts, op.num_carry);
        let mut inputs: Vec<Array> = operands[..consts].to_vec();
        inputs.extend(&results[..count]);
        for (&all, var) in operands[consts + count..].iter().zip(&op.jaxpr.inputs[consts + count..]) {
            let one = self.fresh(&op.jaxpr.types[var.index()]);
            self.rows(all, one);
            inputs.push(one);
        }
        let outputs = self.program(&op.jaxpr, &inputs)?;
        for ((&before, &result), &after) in operands[consts..].iter().zip(&results[..count]).zip(&outputs) {
            self.tie(before, result);
            self.tie(after, result);
        }
        for (&all, &one) in results[count..].iter().zip(&outputs[count..]) {
            self.rows(all, one);
        }
        Ok(results)
    }
}
