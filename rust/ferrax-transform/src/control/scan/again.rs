//! Residuals that a step of the second scan computes again, because that costs
//! less than to stack them and to read them: products and sums of what it has
//! anyway, such as the derivatives `q (1 - q)` of a logistic `q`.
//!
//! In: the first body, the residuals asked of it, which values are at hand, and
//! the second body, which takes the residuals first. Out: the residuals that are
//! left and the second body that takes those. Invariants: there are never more of
//! them to be stacked; values stay to the bit. Cost: linear.

use ferrax_ir::ops::{Binary, Unary};
use ferrax_ir::{Atom, Builder, Equation, Op, Program, Result, internal_error};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::rewrite::{Needed, Rewriter};

/// The most operations that a residual is worth.
const OPERATIONS: usize = 3;

pub(super) fn compute_again(
    first: &Program,
    asked: Vec<Atom>,
    at_hand: impl Fn(Atom) -> bool,
    second: Program,
) -> Result<(Vec<Atom>, Program)> {
    let costs = costs(first, &asked, at_hand);
    let cost = |atom: Atom| atom.as_var().and_then(|var| costs[var.index()]).unwrap_or(0);
    let again: Vec<Atom> = asked.iter().copied().filter(|&atom| cost(atom) > 0).collect();
    if again.is_empty() {
        return Ok((asked, second));
    }

    let mut needed = Needed::new(first);
    needed.add(&again);
    let mut equations = Vec::new();
    for equation in first.equations.iter().rev() {
        if needed.any(&equation.outputs) && equation.outputs.iter().all(|&var| cost(Atom::Var(var)) > 0) {
            needed.add(&equation.inputs);
            equations.push(equation);
        }
    }
    let constants: FxHashSet<_> = first.constants.iter().map(|(var, _)| *var).collect();
    let inputs = first.inputs.iter().chain(first.equations.iter().flat_map(|equation| &equation.outputs));
    let sources: Vec<_> = inputs
        .copied()
        .filter(|var| needed.contains(*var) && cost(Atom::Var(*var)) == 0 && !constants.contains(var))
        .collect();
    let mut rewriter = Rewriter::new(first);
    for &var in &sources {
        rewriter.input(var);
    }
    rewriter.constants(|var| needed.contains(var));
    for equation in equations.into_iter().rev() {
        rewriter.copy(equation)?;
    }
    let computed = rewriter.finish(&again)?;

    let mut left: Vec<Atom> = asked.iter().copied().filter(|&atom| cost(atom) == 0).collect();
    let known: FxHashSet<Atom> = left.iter().copied().collect();
    left.extend(sources.iter().map(|&var| Atom::Var(var)).filter(|atom| !known.contains(atom)));
    let mut b = Builder::new(second.name.clone());
    let mut values: FxHashMap<Atom, Atom> = FxHashMap::default();
    for &atom in &left {
        values.insert(atom, b.input(first.type_of(&atom)));
    }
    let own: Vec<Atom> = second.input_types().skip(asked.len()).map(|ty| b.input(ty.clone())).collect();
    let find = |values: &FxHashMap<Atom, Atom>, atom: &Atom| {
        values.get(atom).copied().ok_or_else(|| internal_error!("a residual of '{}' is missing", first.name))
    };
    let given = sources.iter().map(|&var| find(&values, &Atom::Var(var))).collect::<Result<Vec<_>>>()?;
    let results = b.inline(&computed, &given)?;
    values.extend(again.into_iter().zip(results));
    let mut arguments = asked.iter().map(|atom| find(&values, atom)).collect::<Result<Vec<_>>>()?;
    arguments.extend(own);
    let outputs = b.inline(&second, &arguments)?;
    Ok((left, b.finish(outputs)))
}

/// How many operations each value takes in the second body: none if it is there or
/// has to be; nothing for values that cannot be had.
fn costs(first: &Program, asked: &[Atom], at_hand: impl Fn(Atom) -> bool) -> Vec<Option<usize>> {
    let mut costs = vec![None; first.types.len()];
    let asked: FxHashSet<Atom> = asked.iter().copied().collect();
    for (var, _) in &first.constants {
        costs[var.index()] = Some(0);
    }
    for &var in &first.inputs {
        let atom = Atom::Var(var);
        costs[var.index()] = (at_hand(atom) || asked.contains(&atom)).then_some(0);
    }
    for equation in &first.equations {
        let inputs =
            equation.inputs.iter().map(|atom| atom.as_var().map_or(Some(0), |var| costs[var.index()]));
        let cost = inputs.sum::<Option<usize>>().map(|inputs| inputs + 1);
        let cost = cost.filter(|&cost| cost <= OPERATIONS && is_cheap(equation));
        for &var in &equation.outputs {
            let atom = Atom::Var(var);
            costs[var.index()] =
                if at_hand(atom) { Some(0) } else { cost.or(asked.contains(&atom).then_some(0)) };
        }
    }
    costs
}

fn is_cheap(equation: &Equation) -> bool {
    matches!(
        equation.op,
        Op::Binary(Binary::Add | Binary::Sub | Binary::Mul) | Op::Unary(Unary::Neg) | Op::Compare(_)
    )
}
