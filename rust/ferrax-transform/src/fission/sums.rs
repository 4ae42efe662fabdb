//! Sums of products over all steps, made of stacked operands.

use std::sync::Arc;

use ferrax_ir::ops::{Binary, DotGeneral, ReduceKind, Scan};
use ferrax_ir::{Atom, Axes, Builder, Equation, Op, Program, Result};
use rustc_hash::FxHashSet;

use super::{Place, Stacks, bytes, product};
use crate::split::dependence;

/// A carry that sums up products: `carry + moves(product)`.
struct Sum<'a> {
    carry: usize,
    /// Transposes and reshapes of the product, the last one first.
    moves: Vec<&'a Equation>,
    term: Term<'a>,
}

enum Term<'a> {
    Product(&'a DotGeneral, [Atom; 2]),
    /// Something that is there for all steps anyway, summed over these axes.
    Stacked(Atom, Axes),
}

/// What is known of the variables of a body.
struct Uses<'a> {
    body: &'a Program,
    definitions: Vec<Option<&'a Equation>>,
    counts: Vec<u32>,
}

impl<'a> Uses<'a> {
    fn new(body: &'a Program) -> Self {
        let mut uses =
            Uses { body, definitions: vec![None; body.types.len()], counts: vec![0; body.types.len()] };
        for equation in &body.equations {
            for var in &equation.outputs {
                uses.definitions[var.index()] = Some(equation);
            }
            uses.count(&equation.inputs);
        }
        uses.count(&body.outputs);
        uses
    }

    fn count(&mut self, atoms: &[Atom]) {
        for var in atoms.iter().filter_map(Atom::as_var) {
            self.counts[var.index()] += 1;
        }
    }

    /// The equation that gives this value, if it is used once.
    fn only(&self, atom: Atom) -> Option<&'a Equation> {
        let var = atom.as_var()?;
        self.definitions[var.index()].filter(|_| self.counts[var.index()] == 1)
    }

    /// What is added to a carry at each step, if nothing else is done with it.
    fn added(&self, op: &Scan, carry: usize) -> Option<Atom> {
        let before = self.body.inputs[op.num_consts + carry];
        let add = self.only(self.body.outputs[carry])?;
        let &[x, y] = add.inputs.as_slice() else { return None };
        let added = if x == Atom::Var(before) { y } else { x };
        let sums = matches!(add.op, Op::Binary(Binary::Add)) && [x, y].contains(&Atom::Var(before));
        (sums && self.counts[before.index()] == 1).then_some(added)
    }

    /// The product that an added value is, but for the order of its elements.
    fn product(&self, carry: usize, added: Atom) -> Option<Sum<'a>> {
        let mut moves = Vec::new();
        let mut equation = self.only(added)?;
        loop {
            match (&equation.op, equation.inputs.as_slice()) {
                (Op::Transpose(_), &[x]) => {
                    moves.push(equation);
                    equation = self.only(x)?;
                }
                (Op::Reshape(op), &[x]) if op.dimensions.is_none() => {
                    moves.push(equation);
                    equation = self.only(x)?;
                }
                _ => break,
            }
        }
        let (op, operands) = product(equation)?;
        Some(Sum { carry, moves, term: Term::Product(op, operands) })
    }
}

/// See [`super::Rule`].
pub(super) fn sums(b: &mut Builder, op: &Scan, inputs: &[Atom], length: usize) -> Result<Option<Vec<Atom>>> {
    let body = &op.jaxpr;
    let uses = Uses::new(body);
    let arrays = op.num_consts + op.num_carry;
    let changing: Vec<bool> = (0..body.inputs.len()).map(|position| position >= op.num_consts).collect();
    let mut stacks = Stacks::new(op, |_| true);
    let mut sums = Vec::new();
    let added: Vec<Option<Atom>> = (0..op.num_carry).map(|carry| uses.added(op, carry)).collect();
    let mut varies = None;
    for (carry, &added) in added.iter().enumerate() {
        let Some(sum) = added.and_then(|added| uses.product(carry, added)) else { continue };
        let Term::Product(_, operands) = sum.term else { continue };
        let varies = &*varies.get_or_insert_with(|| dependence(body, &changing).0);
        let both = operands.iter().all(|atom| atom.as_var().is_some_and(|var| varies[var.index()]));
        // What a step reads and writes of the sum is saved, what it stacks is paid.
        let saved = bytes(&body.type_of(&body.outputs[carry])).unwrap_or(0);
        if both && stacks.take(op, &operands, saved, 0, length) {
            sums.push(sum);
        }
    }
    if sums.is_empty() {
        return Ok(None);
    }
    for (carry, added) in added.iter().enumerate() {
        if let Some(term) = added.and_then(|added| stacked_sum(&stacks, &uses, added)) {
            sums.push(Sum { carry, moves: Vec::new(), term });
        }
    }

    let mut stays = vec![true; op.num_carry];
    for sum in &sums {
        stays[sum.carry] = false;
    }
    let keep =
        |position: usize| position.checked_sub(op.num_consts).and_then(|own| stays.get(own)) != Some(&false);
    let kept = |position: &usize| keep(*position);
    let mut jaxpr = Program::clone(body);
    jaxpr.inputs = (0..body.inputs.len()).filter(kept).map(|position| body.inputs[position]).collect();
    let carry = body.outputs.iter().take(op.num_carry).zip(&stays);
    jaxpr.outputs = carry.filter(|(_, stays)| **stays).map(|(atom, _)| *atom).collect();
    jaxpr.outputs.extend(&stacks.outputs);
    let gone: FxHashSet<Atom> = sums.iter().map(|sum| body.outputs[sum.carry]).collect();
    jaxpr.equations.retain(|equation| !equation.outputs.iter().any(|&var| gone.contains(&Atom::Var(var))));
    let num_carry = op.num_carry - sums.len();
    let arguments: Vec<Atom> = (0..inputs.len()).filter(kept).map(|position| inputs[position]).collect();
    let smaller = Scan { jaxpr: Arc::new(jaxpr), num_carry, ..op.clone() };
    let results: Vec<Atom> = b.emit(smaller, &arguments)?.into_iter().map(Atom::Var).collect();
    let (carry, stacked) = results.split_at(num_carry);

    let array = |atom: Atom| match stacks.places[&atom] {
        Place::Element(position) => inputs[arrays + position],
        Place::Stacked(position) => stacked[position],
    };
    let mut outputs: Vec<Option<Atom>> = vec![None; op.num_carry];
    for sum in &sums {
        let total = total(b, sum, array)?;
        outputs[sum.carry] = Some(b.add(inputs[op.num_consts + sum.carry], total)?);
    }
    let mut carry = carry.iter().copied();
    let mut all: Vec<Atom> = outputs.into_iter().filter_map(|atom| atom.or_else(|| carry.next())).collect();
    all.extend(stacked.iter().take(body.outputs.len() - op.num_carry));
    Ok(Some(all))
}

/// The sum over all steps of what is there for all of them, or of its sums over axes.
fn stacked_sum<'a>(stacks: &Stacks, uses: &Uses<'_>, added: Atom) -> Option<Term<'a>> {
    if stacks.places.contains_key(&added) {
        return Some(Term::Stacked(added, Axes::new()));
    }
    let equation = uses.only(added)?;
    match (&equation.op, equation.inputs.as_slice()) {
        (Op::Reduce(op), &[x]) if op.kind == ReduceKind::Sum && stacks.places.contains_key(&x) => {
            Some(Term::Stacked(x, op.axes.clone()))
        }
        _ => None,
    }
}

/// The sum of all steps.
fn total(b: &mut Builder, sum: &Sum<'_>, array: impl Fn(Atom) -> Atom) -> Result<Atom> {
    let behind = |axes: &Axes| -> Axes { axes.iter().map(|axis| axis + 1).collect() };
    let with_steps = |axes: &Axes| -> Axes { std::iter::once(0).chain(behind(axes)).collect() };
    let (op, [lhs, rhs]) = match &sum.term {
        Term::Product(op, operands) => (*op, *operands),
        Term::Stacked(atom, axes) => return b.reduce_sum(array(*atom), &with_steps(axes)),
    };
    let all_steps = DotGeneral {
        lhs_contracting: with_steps(&op.lhs_contracting),
        rhs_contracting: with_steps(&op.rhs_contracting),
        lhs_batch: behind(&op.lhs_batch),
        rhs_batch: behind(&op.rhs_batch),
        ..op.clone()
    };
    let mut total = b.emit1(all_steps, &[array(lhs), array(rhs)])?;
    for equation in sum.moves.iter().rev() {
        total = b.emit1(equation.op.clone(), &[total])?;
    }
    Ok(total)
}
