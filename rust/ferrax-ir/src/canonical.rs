//! One numbering for all programs that differ in their numbers alone.
//!
//! Variables are numbered in order of definition: constants, inputs, outputs of
//! the equations. Variables that nothing defines go. Sub-programs likewise;
//! those that were one object stay one. Cost: linear.

use std::convert::Infallible;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{Atom, Equation, Program, Var};

impl Program {
    /// The same program with variables numbered in order of definition.
    pub fn canonical(&self) -> Program {
        renumber(self, &mut FxHashMap::default())
    }
}

fn renumber(program: &Program, done: &mut FxHashMap<usize, Arc<Program>>) -> Program {
    let mut map: Vec<Var> = vec![Var(0); program.types.len()];
    let mut types = Vec::with_capacity(program.types.len());
    let mut define = |map: &mut Vec<Var>, old: Var| {
        let new = Var(types.len() as u32);
        types.push(program.types[old.index()].clone());
        map[old.index()] = new;
        new
    };
    let constants =
        program.constants.iter().map(|(var, tensor)| (define(&mut map, *var), tensor.clone())).collect();
    let inputs = program.inputs.iter().map(|&var| define(&mut map, var)).collect();
    let rename = |map: &[Var], atom: &Atom| match atom {
        Atom::Var(var) => Atom::Var(map[var.index()]),
        literal => *literal,
    };
    let mut equations = Vec::with_capacity(program.equations.len());
    for equation in &program.equations {
        let Ok(op) = equation.op.map_programs::<Infallible>(|callee| {
            let address = Arc::as_ptr(callee).addr();
            if let Some(found) = done.get(&address) {
                return Ok(found.clone());
            }
            let renumbered = Arc::new(renumber(callee, done));
            done.insert(address, renumbered.clone());
            Ok(renumbered)
        });
        let inputs = equation.inputs.iter().map(|atom| rename(&map, atom)).collect();
        let outputs = equation.outputs.iter().map(|&var| define(&mut map, var)).collect();
        equations.push(Equation { op, inputs, outputs, source: equation.source });
    }
    let outputs = program.outputs.iter().map(|atom| rename(&map, atom)).collect();
    let effects = program.effects.clone();
    Program {
        name: program.name.clone(),
        types,
        inputs,
        constants,
        equations,
        outputs,
        effects,
        donated: Vec::new(),
    }
}
