//! Rules of the user's made data, so that a program can be saved.
//!
//! In: a program. Out: the same with each derivative rule traced for all inputs
//! of inexact dtype. A rule may call the function that it belongs to, so there
//! would be no end: rules within rules are traced up to the derivatives of an
//! order, those below stand without a program. Cost: linear in the result.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::builder::substitute;
use crate::ops::{CustomJvp, CustomLinear, CustomVjp, JvpHandle, SavedJvp, SavedVjp, VjpHandle};
use crate::rules::Lowering;
use crate::{Atom, Builder, Equation, Op, Program, Result, Type, internal_error};

/// `program` with rules up to derivatives of order `orders` as data; see the module.
pub fn saved(program: &Program, orders: usize) -> Result<Program> {
    Tracer { orders, done: FxHashMap::default() }.program(program, 0)
}

/// How often ops of the host's may be made of such ops.
const MAX_ROUNDS: usize = 32;

/// The program with ops of the host's as data or, where they have no such form, what they are made of
/// in their place; those that run on the host stay. `rules` as in [`crate::rules::Row::as_data`].
fn without_extensions(program: &Program, rules: bool) -> Result<Cow<'_, Program>> {
    let is_made = |op: &Op| match op {
        Op::Extension(extension) => extension.0.lower() == Lowering::Expand,
        _ => false,
    };
    let mut program = Cow::Borrowed(program);
    for _ in 0..MAX_ROUNDS {
        if !program.equations.iter().any(|equation| is_made(&equation.op)) {
            return Ok(program);
        }
        let mut b = Builder::new(program.name.clone());
        let mut map: Vec<Option<Atom>> = vec![None; program.types.len()];
        for &var in &program.inputs {
            map[var.index()] = Some(b.input(program.types[var.index()].clone()));
        }
        for (var, tensor) in &program.constants {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            map[var.index()] = Some(b.constant(tensor.clone(), weak));
        }
        for equation in &program.equations {
            let inputs = substitute(&map, &equation.inputs)?;
            b.source = equation.source;
            let outputs: SmallVec<[Atom; 1]> = match &equation.op {
                Op::Extension(extension) if is_made(&equation.op) => match extension.0.as_data(rules)? {
                    Some(op) => b.emit(op, &inputs)?.into_iter().map(Atom::Var).collect(),
                    None => extension.0.expand(&mut b, &inputs)?,
                },
                op => {
                    let types = equation.outputs.iter().map(|var| program.types[var.index()].clone());
                    b.emit_typed(op.clone(), &inputs, types).into_iter().map(Atom::Var).collect()
                }
            };
            for (var, atom) in equation.outputs.iter().zip(outputs) {
                map[var.index()] = Some(atom);
            }
        }
        let outputs = substitute(&map, &program.outputs)?;
        let mut result = b.finish(outputs);
        result.effects.clone_from(&program.effects);
        program = Cow::Owned(result);
    }
    Err(internal_error!("the expansions of '{}' do not end", program.name))
}

struct Tracer {
    orders: usize,
    /// By address and order; the originals are kept alive.
    done: FxHashMap<(usize, usize), (Arc<Program>, Arc<Program>)>,
}

impl Tracer {
    fn program(&mut self, program: &Program, order: usize) -> Result<Program> {
        let program = &without_extensions(program, order < self.orders)?;
        let mut result = program.clone().into_owned();
        result.equations = program
            .equations
            .iter()
            .map(|equation| Ok(Equation { op: self.op(&equation.op, order)?, ..equation.clone() }))
            .collect::<Result<_>>()?;
        Ok(result)
    }

    fn callee(&mut self, program: &Arc<Program>, order: usize) -> Result<Arc<Program>> {
        let key = (Arc::as_ptr(program).addr(), order);
        if let Some((_, found)) = self.done.get(&key) {
            return Ok(found.clone());
        }
        let traced = Arc::new(self.program(program, order)?);
        self.done.insert(key, (program.clone(), traced.clone()));
        Ok(traced)
    }

    fn op(&mut self, op: &Op, order: usize) -> Result<Op> {
        match op {
            Op::CustomJvp(call) if call.jvp_jaxpr_fun.0.saved().is_none() => self.jvp(call, order),
            Op::CustomVjp(call) if call.rule.0.saved().is_none() => self.vjp(call, order),
            Op::CustomLinear(call) if call.rule.0.saved().is_none() => self.linear(call, order),
            Op::LinearCall(call) => {
                // The transpose, which comes second, is of the next order.
                let mut at = order..;
                let next = |program: &Arc<Program>| self.callee(program, at.next().unwrap_or(order));
                Ok(call.map_programs(next)?.into())
            }
            op => op.map_programs(|program| self.callee(program, order)),
        }
    }

    fn jvp(&mut self, call: &CustomJvp, order: usize) -> Result<Op> {
        let rule = &call.jvp_jaxpr_fun.0;
        let nonzero = differentiable(&call.call_jaxpr, call.num_consts);
        let mut saved = SavedJvp {
            name: rule.name().into(),
            flags: vec![false; call.call_jaxpr.outputs.len()],
            program: None,
            nonzero,
        };
        if order < self.orders {
            let (program, flags) = rule.program(&saved.nonzero)?;
            saved.flags = flags.to_vec();
            saved.program = Some(self.callee(&program, order + 1)?);
        }
        let call_jaxpr = self.callee(&call.call_jaxpr, order)?;
        let jvp_jaxpr_fun = JvpHandle(Arc::new(saved));
        Ok(CustomJvp { call_jaxpr, jvp_jaxpr_fun, num_consts: call.num_consts, symbolic_zeros: false }.into())
    }

    fn vjp(&mut self, call: &CustomVjp, order: usize) -> Result<Op> {
        let perturbed = differentiable(&call.call_jaxpr, call.num_consts);
        let given = call.call_jaxpr.output_types().filter(is_inexact).count();
        let rule = self.reverse(&call.rule, perturbed, given, order)?;
        let call_jaxpr = self.callee(&call.call_jaxpr, order)?;
        Ok(CustomVjp { call_jaxpr, num_consts: call.num_consts, rule, symbolic_zeros: false }.into())
    }

    fn linear(&mut self, call: &CustomLinear, order: usize) -> Result<Op> {
        let rule = self.reverse(&call.rule, call.perturbed.clone(), call.outputs.len(), order)?;
        Ok(CustomLinear { rule, symbolic_zeros: false, ..call.clone() }.into())
    }

    /// `rule` for the inputs in `perturbed` and all of `given` cotangents.
    fn reverse(
        &mut self,
        rule: &VjpHandle,
        perturbed: Vec<bool>,
        given: usize,
        order: usize,
    ) -> Result<VjpHandle> {
        let rule = &rule.0;
        let flags = vec![false; perturbed.len()];
        let optimize_remat = rule.optimize_remat();
        let mut saved =
            SavedVjp { name: rule.name().into(), flags, programs: None, perturbed, optimize_remat };
        if order < self.orders {
            let forward = rule.forward(&saved.perturbed)?;
            let (backward, flags) = rule.backward(&saved.perturbed, &vec![true; given])?;
            saved.flags = flags.to_vec();
            saved.programs = Some([self.callee(&forward, order + 1)?, self.callee(&backward, order + 1)?]);
        }
        Ok(VjpHandle(Arc::new(saved)))
    }
}

fn is_inexact(ty: &Type) -> bool {
    ty.as_array().is_some_and(|ty| ty.dtype.is_inexact())
}

/// The inputs that rules are traced for.
fn differentiable(call: &Program, constants: usize) -> Vec<bool> {
    call.input_types().enumerate().map(|(position, ty)| position >= constants && is_inexact(ty)).collect()
}
