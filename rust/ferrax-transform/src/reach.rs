//! Which values depend on which, with callees and loops looked into.
//!
//! In: a program and which of its inputs (outputs) are flagged. Out: which
//! outputs depend on these (on which inputs these depend). Invariants: never too
//! few, save for what effects keep in order; for loops the least such set, so
//! that a carry which only depends on itself is out. Cost: linear, times the
//! steps after which no more of a loop's carry is reached; each sub-program is
//! treated once for each set of flags.

use std::sync::Arc;

use ferrax_ir::op::View;
use ferrax_ir::ops::{Scan, While};
use ferrax_ir::{Atom, Equation, Op, Program};

use crate::control::sweeps::Flow;
use crate::memo::Memo;

/// What dependence is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Through {
    Everything,
    /// Values that can have tangents, through ops that can hand them on.
    Tangents,
}

type Flags = Arc<[bool]>;

#[derive(Default)]
pub(crate) struct Reach {
    /// The mapped axis that is being replaced, where dependence means to differ between its lanes:
    /// what is made of all lanes does not, the number of the lane does.
    axis: Option<Arc<str>>,
    outputs: Memo<(Through, Vec<bool>), Flags>,
    inputs: Memo<Vec<bool>, Flags>,
}

impl Reach {
    /// What differs between the lanes of a batch, whose axis may have a name.
    pub fn between_lanes(axis: Option<&str>) -> Reach {
        Reach { axis: axis.map(Arc::from), ..Reach::default() }
    }

    /// The carries of a scan that flagged inputs reach.
    pub fn carry(&mut self, op: &Scan, flags: &[bool], through: Through) -> Vec<bool> {
        let mut flags = flags.to_vec();
        let carry = op.num_consts..op.num_consts + op.num_carry;
        loop {
            let after = self.outputs(&op.jaxpr, &flags, through);
            let changed = add(&mut flags[carry.clone()], &after[..op.num_carry]);
            if !changed {
                return flags[carry].to_vec();
            }
        }
    }

    /// The carries of a scan that reach flagged outputs.
    pub fn carry_before(&mut self, op: &Scan, flags: &[bool]) -> Vec<bool> {
        let mut flags = flags.to_vec();
        let carry = op.num_consts..op.num_consts + op.num_carry;
        loop {
            let before = self.inputs(&op.jaxpr, &flags);
            let changed = add(&mut flags[..op.num_carry], &before[carry.clone()]);
            if !changed {
                flags.truncate(op.num_carry);
                return flags;
            }
        }
    }

    /// Whether an equation of the program has outputs that the flagged inputs
    /// reach, and others.
    pub fn parts(&mut self, program: &Program, flags: &[bool]) -> bool {
        let mut parts = false;
        self.vars(program, flags, Through::Everything, |found| {
            parts |= found.contains(&true) && found.contains(&false);
        });
        parts
    }

    /// The outputs of a program that flagged inputs reach.
    pub fn outputs(&mut self, program: &Arc<Program>, flags: &[bool], through: Through) -> Flags {
        let key = (through, flags.to_vec());
        if let Some(found) = self.outputs.get(program, key.clone()) {
            return found;
        }
        let vars = self.vars(program, flags, through, |_| {});
        let found = look_up(&vars, &program.outputs);
        self.outputs.insert(program, key, found.into())
    }

    /// The variables that flagged inputs reach. `see` is shown the flags of the
    /// outputs of each equation that they come to.
    fn vars(
        &mut self,
        program: &Program,
        flags: &[bool],
        through: Through,
        mut see: impl FnMut(&[bool]),
    ) -> Vec<bool> {
        let mut vars = vec![false; program.types.len()];
        for (var, &flag) in program.inputs.iter().zip(flags) {
            vars[var.index()] = flag;
        }
        for equation in &program.equations {
            let inputs = look_up(&vars, &equation.inputs);
            if !inputs.contains(&true) && !self.sees_lanes(&equation.op) {
                continue;
            }
            let found = self.after(equation, &inputs, through);
            see(&found);
            for (var, flag) in equation.outputs.iter().zip(found) {
                let ty = program.types[var.index()].as_array();
                let carries = through == Through::Everything || ty.is_some_and(|ty| ty.dtype.is_inexact());
                vars[var.index()] = flag && carries;
            }
        }
        vars
    }

    fn sees_lanes(&self, op: &Op) -> bool {
        self.axis.as_ref().is_some_and(|axis| op.names_axis(axis))
    }

    /// The outputs of an equation that its flagged inputs reach.
    fn after(&mut self, equation: &Equation, flags: &[bool], through: Through) -> Vec<bool> {
        let all = || vec![true; equation.outputs.len()];
        match equation.op.view() {
            View::Call(op) => self.outputs(&op.program, flags, through).to_vec(),
            View::Checkpoint(op) => self.outputs(&op.jaxpr, flags, through).to_vec(),
            View::Scan(op) => {
                let carry = self.carry(op, flags, through);
                let (constants, _, arrays) = op.split(flags);
                let mut found =
                    self.outputs(&op.jaxpr, &[constants, &carry, arrays].concat(), through).to_vec();
                add(&mut found, &carry);
                found
            }
            View::While(op) => {
                let carry = self.while_carry(op, flags, through);
                let condition = op.split(flags).0;
                let holds = self.outputs(&op.cond_jaxpr, &[condition, &carry].concat(), through);
                if holds.contains(&true) { all() } else { carry }
            }
            View::Sweeps(op) => {
                let flow = Flow::new(self, op, flags, through);
                if flow.condition { all() } else { flow.carry.concat() }
            }
            View::Cond(op) => {
                let mut found = vec![flags[0]; equation.outputs.len()];
                for branch in &op.branches {
                    add(&mut found, &self.outputs(branch, &flags[1..], through));
                }
                found
            }
            View::Leaf(_) if through == Through::Tangents && matches!(equation.op, Op::StopGradient(_)) => {
                vec![false; equation.outputs.len()]
            }
            View::Leaf(rules) if rules.is_shared() && self.sees_lanes(&equation.op) => {
                vec![false; equation.outputs.len()]
            }
            View::Leaf(_) | View::CustomJvp(_) | View::CustomVjp(_) | View::Ruled(..) => all(),
        }
    }

    /// The carries of a `while` that flagged inputs of its body reach.
    pub fn while_carry(&mut self, op: &While, flags: &[bool], through: Through) -> Vec<bool> {
        let (_, constants, carry) = op.split(flags);
        let mut carry = carry.to_vec();
        loop {
            let after = self.outputs(&op.body_jaxpr, &[constants, &carry].concat(), through);
            if !add(&mut carry, &after) {
                return carry;
            }
        }
    }

    /// The carries of a `while` that reach flagged ones.
    pub fn while_carry_before(&mut self, op: &While, flags: &[bool]) -> Vec<bool> {
        let mut carry = flags.to_vec();
        loop {
            let before = self.inputs(&op.body_jaxpr, &carry);
            if !add(&mut carry, &before[op.body_nconsts..]) {
                return carry;
            }
        }
    }

    fn inputs(&mut self, program: &Arc<Program>, flags: &[bool]) -> Flags {
        if let Some(found) = self.inputs.get(program, flags.to_vec()) {
            return found;
        }
        let mut vars = vec![false; program.types.len()];
        for (atom, _) in program.outputs.iter().zip(flags).filter(|(_, flag)| **flag) {
            if let Atom::Var(var) = atom {
                vars[var.index()] = true;
            }
        }
        for equation in program.equations.iter().rev() {
            let outputs: Vec<bool> = equation.outputs.iter().map(|var| vars[var.index()]).collect();
            if !outputs.contains(&true) && !equation.op.happens() {
                continue;
            }
            let found = self.before(equation, &outputs);
            for (atom, flag) in equation.inputs.iter().zip(found) {
                if let Atom::Var(var) = atom {
                    vars[var.index()] |= flag;
                }
            }
        }
        let found: Vec<bool> = program.inputs.iter().map(|var| vars[var.index()]).collect();
        self.inputs.insert(program, flags.to_vec(), found.into())
    }

    /// The inputs of an equation that reach its flagged outputs.
    fn before(&mut self, equation: &Equation, flags: &[bool]) -> Vec<bool> {
        match equation.op.view() {
            View::Call(op) => self.inputs(&op.program, flags).to_vec(),
            View::Checkpoint(op) => self.inputs(&op.jaxpr, flags).to_vec(),
            View::Scan(op) => {
                let carry = self.carry_before(op, flags);
                self.inputs(&op.jaxpr, &[&carry, &flags[op.num_carry..]].concat()).to_vec()
            }
            View::Cond(op) => {
                let mut found = vec![true; 1];
                found.resize(equation.inputs.len(), false);
                for branch in &op.branches {
                    add(&mut found[1..], &self.inputs(branch, flags));
                }
                found
            }
            View::Leaf(_)
            | View::While(_)
            | View::Sweeps(_)
            | View::CustomJvp(_)
            | View::CustomVjp(_)
            | View::Ruled(..) => {
                vec![true; equation.inputs.len()]
            }
        }
    }
}

fn look_up(vars: &[bool], atoms: &[Atom]) -> Vec<bool> {
    atoms.iter().map(|atom| atom.as_var().is_some_and(|var| vars[var.index()])).collect()
}

/// Adds flags; whether there are new ones.
fn add(flags: &mut [bool], more: &[bool]) -> bool {
    let mut changed = false;
    for (flag, &more) in flags.iter_mut().zip(more) {
        changed |= more && !*flag;
        *flag |= more;
    }
    changed
}
