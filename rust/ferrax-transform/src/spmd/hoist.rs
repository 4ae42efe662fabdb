//! Sums over the devices that loops make in each step, once behind the loop.
//!
//! In: a program of one device, made by `partition`. Out: the same, in which a sum over devices that a scan only hands out is made of all
//! steps' terms together (the bits stay), and a carry to which steps only add sums over devices adds up terms, whose sum over the devices is
//! added to the first carry behind the loop (as XLA's code motion of all-reduces in loops does): the gradient of a weight that all steps
//! read costs one exchange. Loops within loops first. Cost: linear; a sub-program that several equations share is rewritten once.

use std::sync::Arc;

use ferrax_ir::ops::{AxisReduce, AxisReduceKind, Binary, Scan};
use ferrax_ir::{Atom, Equation, Op, Program, Result, Source, Var};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::memo::{Memo, Pass};
use crate::rewrite::Rewriter;

/// A sum that was made of the terms of so many steps together, which were so many bytes.
pub struct Together {
    pub source: Source,
    pub bytes: usize,
    pub steps: usize,
}

/// See the head of the file.
pub fn hoist_sums(program: &Program) -> Result<(Program, Vec<Together>)> {
    let mut hoist = Hoist::default();
    let program = hoist.program(program)?;
    Ok((program, hoist.together))
}

#[derive(Default)]
struct Hoist {
    done: Memo<(), Arc<Program>>,
    together: Vec<Together>,
}

/// What a scan's output is the sum of, behind the loop.
enum Left<'p> {
    /// This was summed in each step, and handed out.
    Handed(&'p Equation),
    /// These were summed in each step, and added to the carry.
    Added(Vec<&'p Equation>),
}

impl Left<'_> {
    fn sums(&self) -> &[&Equation] {
        match self {
            Left::Handed(sum) => std::slice::from_ref(sum),
            Left::Added(sums) => sums,
        }
    }
}

impl Pass for Hoist {
    fn done(&mut self) -> &mut Memo<(), Arc<Program>> {
        &mut self.done
    }

    fn program(&mut self, program: &Program) -> Result<Program> {
        let mut rewriter = Rewriter::with_inputs(program);
        rewriter.constants(|_| true);
        for equation in &program.equations {
            let op = equation.op.map_programs(|inner| self.inner(inner))?;
            let inputs = rewriter.atoms(&equation.inputs)?;
            match op {
                Op::Scan(op) => self.scan(&mut rewriter, equation, op, &inputs)?,
                op => rewriter.copy_as(equation, op, &inputs)?,
            }
        }
        rewriter.finish(&program.outputs)
    }
}

impl Hoist {
    fn scan(
        &mut self,
        rewriter: &mut Rewriter<'_>,
        equation: &Equation,
        op: Scan,
        inputs: &[Atom],
    ) -> Result<()> {
        let body = op.jaxpr.clone();
        let left = if op.length.as_const() == Some(0) { Vec::new() } else { left_to_sum(&body, &op) };
        if left.is_empty() {
            return rewriter.copy_as(equation, op.into(), inputs);
        }
        let made: FxHashSet<Var> = left
            .iter()
            .flat_map(|(_, left)| left.sums())
            .flat_map(|sum| sum.outputs.iter().copied())
            .collect();
        let mut inputs = inputs.to_vec();
        let first = inputs.clone();
        for (number, left) in &left {
            if let Left::Added(_) = left {
                let carry = &mut inputs[op.num_consts + number];
                *carry = rewriter.builder.zeros_like(*carry)?;
            }
        }
        let op = Scan { jaxpr: Arc::new(of_terms(&body, &made)?), ..op };
        let (consts, steps) = (op.num_consts, op.length.as_const());
        rewriter.copy_as(equation, op.into(), &inputs)?;
        for (number, left) in left {
            let [sum, ..] = left.sums() else { continue };
            let var = equation.outputs[number];
            let terms = rewriter.atom(&Atom::Var(var))?;
            let b = &mut rewriter.builder;
            let outside = std::mem::replace(&mut b.source, sum.source.within(equation.source));
            let mut whole = b.emit1(sum.op.clone(), &[terms])?;
            match left {
                Left::Added(_) => whole = b.add(first[consts + number], whole)?,
                Left::Handed(sum) => {
                    let ty = body.types[sum.outputs[0].index()].as_array();
                    let bytes =
                        ty.and_then(|ty| Some(ty.sizes()?.iter().product::<usize>() * ty.dtype.size()));
                    self.together.push(Together {
                        source: sum.source,
                        bytes: bytes.unwrap_or(0),
                        steps: steps.unwrap_or(1),
                    });
                }
            }
            let weak = rewriter.source.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            let whole = rewriter.builder.with_weak(whole, weak)?;
            rewriter.builder.source = outside;
            rewriter.set(var, whole);
        }
        Ok(())
    }
}

/// The program with the terms in the place of these sums.
fn of_terms(body: &Program, sums: &FxHashSet<Var>) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(body);
    rewriter.constants(|_| true);
    for equation in &body.equations {
        match equation.outputs.as_slice() {
            [var] if sums.contains(var) => {
                let terms = rewriter.atom(&equation.inputs[0])?;
                rewriter.set(*var, terms);
            }
            _ => rewriter.copy(equation)?,
        }
    }
    rewriter.finish(&body.outputs)
}

/// The outputs of a scan of this body that sums over devices are made of behind it, by number.
fn left_to_sum<'p>(body: &'p Program, op: &Scan) -> Vec<(usize, Left<'p>)> {
    let mut uses = vec![0usize; body.types.len()];
    let mut made: FxHashMap<Var, &Equation> = FxHashMap::default();
    for equation in &body.equations {
        equation.inputs.iter().filter_map(Atom::as_var).for_each(|var| uses[var.index()] += 1);
        made.extend(equation.outputs.iter().map(|&var| (var, equation)));
    }
    body.outputs.iter().filter_map(Atom::as_var).for_each(|var| uses[var.index()] += 1);
    let once = |atom: &Atom| atom.as_var().filter(|var| uses[var.index()] == 1);
    let handed =
        |output: &Atom| made.get(&once(output)?).copied().filter(|equation| sum_of(equation).is_some());
    let added = |output: &Atom, carry: Var| {
        let (mut open, mut sums, mut carries) = (vec![*output], Vec::new(), 0);
        while let Some(atom) = open.pop() {
            let var = once(&atom)?;
            match made.get(&var) {
                None if var == carry => carries += 1,
                Some(equation) if matches!(equation.op, Op::Binary(Binary::Add)) => {
                    open.extend(&equation.inputs)
                }
                Some(equation) => {
                    sum_of(equation)?;
                    sums.push(*equation);
                }
                None => return None,
            }
        }
        let alike = sums.iter().all(|sum: &&Equation| sum.op == sums[0].op);
        (carries == 1 && alike && !sums.is_empty()).then_some(sums)
    };
    let outputs = body.outputs.iter().enumerate();
    let left = outputs.filter_map(|(number, output)| {
        let left = match number < op.num_carry {
            true => Left::Added(added(output, body.inputs[op.num_consts + number])?),
            false => Left::Handed(handed(output)?),
        };
        Some((number, left))
    });
    left.collect()
}

/// The operation of a sum over all devices along some axes.
fn sum_of(equation: &Equation) -> Option<&AxisReduce> {
    match &equation.op {
        Op::AxisReduce(op) if op.kind == AxisReduceKind::Sum && op.axis_index_groups.is_none() => Some(op),
        _ => None,
    }
}
