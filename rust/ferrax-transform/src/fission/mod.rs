//! Takes matrix products out of scans (loop fission, as in Kennedy and McKinley,
//! "Loop distribution with arbitrary control flow", Supercomputing 1990): one
//! large product takes the place of many small ones.
//!
//! | module | a product of each step that | is made |
//! |---|---|---|
//! | `before` | takes an element and what is the same at every step | before the loop |
//! | `sums` | a carry sums up, and nothing else | after it, of stacked operands |
//! | `after` | only stacked outputs depend on | after it, with what depends on it |
//!
//! The first is the input projection of a recurrent network, the second the
//! gradient of a weight that all steps share, the third a layer after the loop.
//!
//! Invariants: values up to the order of sums; effects and barriers stay where
//! they are; memory grows by no more than the loop's own stacks have, or by
//! [`ALLOWANCE`]; the loop has a known number of steps, at least two. Cost: linear.

mod after;
mod before;
mod sums;

use ferrax_ir::op::View;
use ferrax_ir::ops::{DotGeneral, Scan};
use ferrax_ir::paths::Path;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Builder, Dim, Equation, Op, Program, Result, Type, Var};
use rustc_hash::FxHashMap;

use crate::rewrite::{Rewriter, with_weak};

/// Bytes that may be stacked in any case.
const ALLOWANCE: usize = 32 << 20;

/// A product with more rows than this at each step gains nothing from more.
const ROWS: usize = 16;

/// `program` whose own scans are rid of such products.
pub fn fission(program: &Program) -> Result<Program> {
    if !program.equations.iter().any(|equation| matches!(equation.op, Op::Scan(_))) {
        return Ok(program.clone());
    }
    let mut result = for_each_scan(program, before::before, Path::FissionBefore)?;
    for (rule, path) in [(sums::sums as Rule, Path::FissionSums), (after::after, Path::FissionAfter)] {
        result = for_each_scan(&result, rule, path)?;
    }
    debug_verify(&result, "fission")?;
    Ok(result)
}

/// Emits a loop of so many steps in another way and gives its outputs, or does nothing.
type Rule = fn(&mut Builder, &Scan, &[Atom], usize) -> Result<Option<Vec<Atom>>>;

fn for_each_scan(program: &Program, rule: Rule, path: Path) -> Result<Program> {
    let mut rewriter = Rewriter::with_inputs(program);
    rewriter.constants(|_| true);
    for equation in &program.equations {
        let inputs = rewriter.atoms(&equation.inputs)?;
        rewriter.builder.source = equation.source;
        let outputs = match equation.op.view() {
            View::Scan(op) => match op.length.as_const() {
                Some(length) if length > 1 => rule(&mut rewriter.builder, op, &inputs, length)?,
                _ => None,
            },
            _ => None,
        };
        let Some(outputs) = outputs else {
            rewriter.copy_as(equation, equation.op.clone(), &inputs)?;
            continue;
        };
        path.take();
        for (&var, atom) in equation.outputs.iter().zip(outputs) {
            let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            let atom = with_weak(&mut rewriter.builder, atom, weak)?;
            rewriter.set(var, atom);
        }
    }
    rewriter.finish(&program.outputs)
}

fn product(equation: &Equation) -> Option<(&DotGeneral, [Atom; 2])> {
    match (&equation.op, equation.inputs.as_slice()) {
        (Op::DotGeneral(op), &[lhs, rhs]) => Some((op, [lhs, rhs])),
        _ => None,
    }
}

/// What an equation multiplies by, if it multiplies few rows that vary from step
/// to step by something that does not.
fn projection(body: &Program, equation: &Equation, varies: &[bool]) -> Option<Atom> {
    let (op, [lhs, rhs]) = product(equation)?;
    let varies = |atom: Atom| atom.as_var().is_some_and(|var| varies[var.index()]);
    let (rows, contracting, batch, by) = match (varies(lhs), varies(rhs)) {
        (true, false) => (lhs, &op.lhs_contracting, &op.lhs_batch, rhs),
        (false, true) => (rhs, &op.rhs_contracting, &op.rhs_batch, lhs),
        _ => return None,
    };
    let Type::Array(ty) = body.type_of(&rows) else { return None };
    let free = ty.shape.iter().enumerate().filter(|(axis, _)| !contracting.contains(axis));
    let rows = Dim::product(free.map(|(_, dim)| dim)).ok()?.as_const()?;
    (batch.is_empty() && rows <= ROWS).then_some(by)
}

fn bytes(ty: &Type) -> Option<usize> {
    let ty = ty.as_array()?;
    let elements = Dim::product(&ty.shape).ok()?.as_const()?;
    Some(elements.checked_mul(ty.dtype.bits())?.div_ceil(8))
}

/// The bytes of all that these equations give.
fn bytes_of<'a>(program: &Program, equations: impl Iterator<Item = &'a Equation>) -> Option<usize> {
    equations.flat_map(|equation| &equation.outputs).map(|var| bytes(&program.types[var.index()])).sum()
}

/// Whether so many bytes more may be stacked at each of `length` steps.
fn is_allowed(op: &Scan, more: usize, length: usize) -> bool {
    let body = &op.jaxpr;
    let elements = op.split(&body.inputs).2.iter().map(|&var| Atom::Var(var));
    let stacked = elements.chain(body.outputs.iter().skip(op.num_carry).copied());
    let own: usize = stacked.filter_map(|atom| bytes(&body.type_of(&atom))).sum();
    more <= own.max(ALLOWANCE / length)
}

/// Where a value of the body is to be found for all steps.
#[derive(Clone, Copy)]
enum Place {
    /// It is an element of that array.
    Element(usize),
    /// It is that stacked output.
    Stacked(usize),
}

/// The values that are there for all steps, and those that are to be.
struct Stacks {
    places: FxHashMap<Atom, Place>,
    /// What is stacked: the outputs of the loop that stay, and others.
    outputs: Vec<Atom>,
    bytes: usize,
}

impl Stacks {
    /// With the stacked outputs of the loop that `stays` holds of.
    fn new(op: &Scan, stays: impl Fn(&Atom) -> bool) -> Self {
        let body = &op.jaxpr;
        let outputs: Vec<Atom> = body.outputs.iter().skip(op.num_carry).copied().filter(stays).collect();
        let mut places: FxHashMap<Atom, Place> =
            outputs.iter().enumerate().map(|(position, &atom)| (atom, Place::Stacked(position))).collect();
        let elements: &[Var] = op.split(&body.inputs).2;
        places.extend(elements.iter().enumerate().map(|(i, &var)| (Atom::Var(var), Place::Element(i))));
        Stacks { places, outputs, bytes: 0 }
    }

    /// Stacks these values too, unless that costs more than `limit` at each step
    /// or, with `others`, more than is allowed.
    fn take(&mut self, op: &Scan, values: &[Atom], limit: usize, others: usize, length: usize) -> bool {
        let mut missing: Vec<Atom> = Vec::new();
        for &atom in values {
            if !self.places.contains_key(&atom) && !missing.contains(&atom) {
                missing.push(atom);
            }
        }
        let size: Option<usize> = missing.iter().map(|atom| bytes(&op.jaxpr.type_of(atom))).sum();
        let Some(size) = size.filter(|&size| size <= limit) else { return false };
        if !is_allowed(op, self.bytes + size + others, length) {
            return false;
        }
        self.bytes += size;
        for atom in missing {
            self.places.insert(atom, Place::Stacked(self.outputs.len()));
            self.outputs.push(atom);
        }
        true
    }
}
