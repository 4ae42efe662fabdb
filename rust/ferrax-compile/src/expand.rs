//! First pass: one flat list of equations that all have a lowering.
//!
//! Calls are inlined, arguments with the weakness that callees were typed with, and ops whose
//! lowering is `Expand` are rewritten by their rows until none is left. The sub-programs of branches
//! and loops go through the same, each once however often and however deep it is used.

use std::sync::Arc;

use ferrax_ir::builder::substitute;
use ferrax_ir::ops::OptimizationBarrier;
use ferrax_ir::rules::Lowering;
use ferrax_ir::{Atom, Builder, Op, Program, Result, Source, View, internal_error};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A chain of expansions longer than this is a cycle between rows.
const MAX_ROUNDS: usize = 32;

/// The same program without calls and without ops that expand.
pub fn expand(program: &Program) -> Result<Program> {
    Expander::default().program(program)
}

#[derive(Default)]
struct Expander {
    /// Sub-programs by identity, before and after: the latter stand for
    /// themselves. Both are kept alive, so that addresses stay theirs.
    done: FxHashMap<usize, (Arc<Program>, Arc<Program>)>,
}

impl Expander {
    fn program(&mut self, program: &Program) -> Result<Program> {
        let mut program = self.round(program)?;
        for _ in 0..MAX_ROUNDS {
            let Some(op) =
                program.equations.iter().map(|equation| &equation.op).find(|op| self.needs_expansion(op))
            else {
                return Ok(program);
            };
            let op = op.clone();
            program = self.round(&program).map_err(|error| match error {
                ferrax_ir::Error::Internal(text) => internal_error!("expanding {}: {text}", op.name()),
                other => other,
            })?;
        }
        Err(internal_error!("the expansions of '{}' do not end", program.name))
    }

    fn callee(&mut self, callee: &Arc<Program>) -> Result<Arc<Program>> {
        if let Some((_, expanded)) = self.done.get(&Arc::as_ptr(callee).addr()) {
            return Ok(expanded.clone());
        }
        let expanded = Arc::new(self.program(callee)?);
        for known in [callee, &expanded] {
            self.done.insert(Arc::as_ptr(known).addr(), (known.clone(), expanded.clone()));
        }
        Ok(expanded)
    }

    fn round(&mut self, program: &Program) -> Result<Program> {
        let mut builder = Builder::new(program.name.clone());
        let arguments: Vec<Atom> =
            program.inputs.iter().map(|var| builder.input(program.types[var.index()].clone())).collect();
        let outputs = self.append(&mut builder, program, &arguments, Source::UNKNOWN)?;
        let mut result = builder.finish(outputs);
        result.effects = program.effects.clone();
        Ok(result)
    }

    /// Appends the equations of a program that is called; those without a line are at the call's.
    fn append(
        &mut self,
        builder: &mut Builder,
        program: &Program,
        arguments: &[Atom],
        call: Source,
    ) -> Result<SmallVec<[Atom; 1]>> {
        let mut map: Vec<Option<Atom>> = vec![None; program.types.len()];
        for (var, &argument) in program.inputs.iter().zip(arguments) {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            map[var.index()] = Some(builder.with_weak(argument, weak)?);
        }
        for (var, tensor) in &program.constants {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            map[var.index()] = Some(builder.constant(tensor.clone(), weak));
        }
        for equation in &program.equations {
            let inputs = substitute(&map, &equation.inputs)?;
            let source = equation.source.within(call);
            builder.source = source;
            let outputs: SmallVec<[Atom; 1]> = match equation.op.view() {
                View::Call(op) => self.append(builder, &op.program, &inputs, source)?,
                View::CustomJvp(op) => self.append(builder, &op.call_jaxpr, &inputs, source)?,
                View::CustomVjp(op) => self.append(builder, &op.call_jaxpr, &inputs, source)?,
                View::Ruled(_, called) => self.append(builder, called, &inputs, source)?,
                View::Checkpoint(op) => {
                    let mut inputs = inputs;
                    if op.differentiated && op.prevent_cse {
                        // Else what is computed again would be found to be there already.
                        for atom in inputs.iter_mut().filter(|atom| atom.as_var().is_some()) {
                            *atom = builder.emit1(OptimizationBarrier {}, &[*atom])?;
                        }
                    }
                    self.append(builder, &op.jaxpr, &inputs, source)?
                }
                View::Cond(_) | View::While(_) | View::Sweeps(_) | View::Scan(_) => {
                    let op = equation.op.map_programs(|callee| self.callee(callee))?;
                    let types = equation.outputs.iter().map(|var| program.types[var.index()].clone());
                    builder.emit_typed(op, &inputs, types).into_iter().map(Atom::Var).collect()
                }
                View::Leaf(rules) if rules.lower() == Lowering::Expand => rules.expand(builder, &inputs)?,
                View::Leaf(_) => {
                    let types = equation.outputs.iter().map(|var| program.types[var.index()].clone());
                    builder
                        .emit_typed(equation.op.clone(), &inputs, types)
                        .into_iter()
                        .map(Atom::Var)
                        .collect()
                }
            };
            if outputs.len() != equation.outputs.len() {
                return Err(internal_error!(
                    "{} expanded to {} outputs of {}",
                    equation.op.name(),
                    outputs.len(),
                    equation.outputs.len()
                ));
            }
            for (var, atom) in equation.outputs.iter().zip(outputs) {
                let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
                map[var.index()] = Some(builder.with_weak(atom, weak)?);
            }
        }
        Ok(substitute(&map, &program.outputs)?.into_iter().collect())
    }

    /// Sub-programs of what an op expanded to are expanded in the next round.
    fn needs_expansion(&self, op: &Op) -> bool {
        match op.view() {
            View::Leaf(rules) => rules.lower() == Lowering::Expand,
            View::Call(_)
            | View::Checkpoint(_)
            | View::CustomJvp(_)
            | View::CustomVjp(_)
            | View::Ruled(..) => true,
            View::Cond(_) | View::While(_) | View::Sweeps(_) | View::Scan(_) => {
                op.programs().into_iter().any(|callee| !self.done.contains_key(&Arc::as_ptr(callee).addr()))
            }
        }
    }
}
