//! Which rows of operands a row of a result is made of.

use ferrax_ir::op::View;
use ferrax_ir::ops::{BroadcastInDim, Iota, Reshape};
use ferrax_ir::rules::{Extents, Follow, IndexMap, Lowering};
use ferrax_ir::{Atom, Axes, Equation, Op, Program, Shape, Type};
use smallvec::SmallVec;

/// For each operand of an equation the axis along which its rows are.
pub type RowAxes = SmallVec<[Option<usize>; 3]>;

/// The sizes of a value, if they are known.
pub fn sizes(program: &Program, atom: &Atom) -> Option<SmallVec<[usize; 4]>> {
    match program.type_of(atom) {
        Type::Array(ty) => ty.sizes(),
        _ => None,
    }
}

/// The axis of each operand whose index is the index along `axis` of the result, none of operands that all rows
/// share. Nothing where rows of the result are not apart, or cannot be computed some at a time.
pub fn row_axes(program: &Program, equation: &Equation, axis: usize) -> Option<RowAxes> {
    let [output] = equation.outputs[..] else { return None };
    let result = sizes(program, &Atom::Var(output))?;
    let inputs: SmallVec<[SmallVec<[usize; 4]>; 3]> =
        equation.inputs.iter().map(|atom| sizes(program, atom)).collect::<Option<_>>()?;
    let one = |axis: Option<usize>| -> RowAxes { SmallVec::from_slice(&[axis]) };
    let View::Leaf(rules) = equation.op.view() else { return None };
    match &equation.op {
        Op::Name(_) | Op::OptimizationBarrier(_) | Op::Extension(_) => return None,
        Op::DotGeneral(op) => {
            let ranks = [inputs[0].len(), inputs[1].len()];
            return Some(op.origin(axis, ranks).into_iter().collect());
        }
        Op::Iota(_) => return Some(RowAxes::new()),
        Op::Reshape(op) if op.dimensions.is_none() => {
            return in_order(&inputs[0], &result, axis).map(|at| one(Some(at)));
        }
        _ => {}
    }
    match rules.lower() {
        Lowering::Elementwise => {
            Some(inputs.iter().map(|sizes| (!sizes.is_empty()).then_some(axis)).collect())
        }
        Lowering::Reduction => {
            let dtype = program.type_of(&equation.inputs[0]).as_array()?.dtype;
            let reduction = rules.reduction(Extents { dtype, sizes: &inputs[0] }).ok()??;
            let kept: Axes = (0..inputs[0].len()).filter(|axis| !reduction.axes.contains(axis)).collect();
            Some(one(Some(*kept.get(axis)?)))
        }
        Lowering::Movement => {
            if !matches!(equation.op, Op::BroadcastInDim(_) | Op::Transpose(_) | Op::Squeeze(_)) {
                return None;
            }
            let extents =
                |atom: &Atom, sizes| Some(Extents { dtype: program.type_of(atom).as_array()?.dtype, sizes });
            let operand = extents(&equation.inputs[0], &inputs[0])?;
            let output = extents(&Atom::Var(output), &result)?;
            let IndexMap::Along(along) = rules.index_map(&[operand], output).ok()?? else { return None };
            Some(one(along.iter().position(|follow| *follow == Follow::axis(axis))))
        }
        Lowering::Library | Lowering::Expand => None,
    }
}

/// The axis of an array that has the same indices in its reshaped form, there along `axis`.
fn in_order(from: &[usize], to: &[usize], axis: usize) -> Option<usize> {
    let behind = |sizes: &[usize], axis: usize| sizes[axis + 1..].iter().product::<usize>();
    (0..from.len()).find(|&at| from[at] == to[axis] && behind(from, at) == behind(to, axis))
}

/// The op that makes so many rows along `axis` of what `op` makes.
pub fn of_rows(op: &Op, axis: usize, rows: usize) -> Op {
    let resized = |shape: &Shape| {
        let mut shape = shape.clone();
        shape[axis] = rows.into();
        shape
    };
    match op {
        Op::BroadcastInDim(op) => BroadcastInDim { shape: resized(&op.shape), ..op.clone() }.into(),
        Op::Reshape(op) => Reshape { new_sizes: resized(&op.new_sizes), ..op.clone() }.into(),
        Op::Iota(op) => Iota { shape: resized(&op.shape), ..op.clone() }.into(),
        other => other.clone(),
    }
}

/// Whether the rows along `axis` are counted, so that a block of them needs to know where it begins.
pub fn counts_rows(op: &Op, axis: usize) -> bool {
    matches!(op, Op::Iota(op) if op.dimension == axis)
}
