//! Small sums over the devices as one.
//!
//! In: a program of one device. Out: the same, in which sums of small arrays over the same axes are sums of one array of all their
//! elements, as late as one of them is used: between machines a message costs as much as thousands of elements do. The bits stay,
//! as each element is summed by itself. Cost: linear; a sub-program that several equations share is rewritten once.

use std::sync::Arc;

use ferrax_ir::ops::{AxisReduce, Concatenate};
use ferrax_ir::{ArrayType, Atom, DType, Dim, Equation, Op, Program, Result, Var};
use rustc_hash::FxHashMap;

use crate::rewrite::Rewriter;

/// Arrays of at most so many bytes are sent with others, of at most so many in all.
const SMALL: usize = 64 << 10;
const TOGETHER: usize = 1 << 20;

/// The program with its small sums combined.
pub fn combine_sums(program: &Arc<Program>) -> Result<Arc<Program>> {
    Combination::default().program(program)
}

#[derive(Default)]
struct Combination(FxHashMap<*const Program, Arc<Program>>);

/// Sums over these axes of this dtype that were met, and not made yet.
struct Group<'p> {
    op: &'p AxisReduce,
    dtype: DType,
    sums: Vec<&'p Equation>,
    bytes: usize,
}

/// The operation of a small sum, and the type of its operand.
fn small_sum<'p>(program: &'p Program, equation: &'p Equation) -> Option<(&'p AxisReduce, &'p ArrayType)> {
    let (Op::AxisReduce(op), [Atom::Var(operand)]) = (&equation.op, equation.inputs.as_slice()) else {
        return None;
    };
    let ty = program.types[operand.index()].as_array()?;
    let small = ty.varying.is_empty() && bytes(ty).is_some_and(|bytes| (1..=SMALL).contains(&bytes));
    (op.is_sum() && op.axis_index_groups.is_none() && small).then_some((op, ty))
}

fn bytes(ty: &ArrayType) -> Option<usize> {
    Some(ty.sizes()?.iter().product::<usize>() * ty.dtype.size())
}

impl Combination {
    fn program(&mut self, program: &Arc<Program>) -> Result<Arc<Program>> {
        if let Some(known) = self.0.get(&Arc::as_ptr(program)) {
            return Ok(known.clone());
        }
        let mut rewriter = Rewriter::with_inputs(program);
        rewriter.constants(|_| true);
        let mut groups: Vec<Group<'_>> = Vec::new();
        let mut pending: FxHashMap<Var, usize> = FxHashMap::default();
        for equation in &program.equations {
            for atom in &equation.inputs {
                if let Some(&number) = atom.as_var().and_then(|var| pending.get(&var)) {
                    made(&mut rewriter, &mut groups[number], &mut pending)?;
                }
            }
            let Some((op, ty)) = small_sum(program, equation) else {
                let op = equation.op.map_programs(|program| self.program(program))?;
                let inputs = rewriter.atoms(&equation.inputs)?;
                rewriter.copy_as(equation, op, &inputs)?;
                continue;
            };
            let fits = |group: &Group<'_>| group.op == op && group.dtype == ty.dtype;
            let number = groups.iter().position(fits).unwrap_or(groups.len());
            if number == groups.len() {
                groups.push(Group { op, dtype: ty.dtype, sums: Vec::new(), bytes: 0 });
            }
            let size = bytes(ty).unwrap_or(SMALL);
            if groups[number].bytes + size > TOGETHER {
                made(&mut rewriter, &mut groups[number], &mut pending)?;
            }
            let group = &mut groups[number];
            group.sums.push(equation);
            group.bytes += size;
            pending.extend(equation.outputs.iter().map(|&var| (var, number)));
        }
        for group in &mut groups {
            made(&mut rewriter, group, &mut pending)?;
        }
        let combined = Arc::new(rewriter.finish(&program.outputs)?);
        self.0.insert(Arc::as_ptr(program), combined.clone());
        Ok(combined)
    }
}

/// Writes the sums of a group, which is empty then.
fn made(
    rewriter: &mut Rewriter<'_>,
    group: &mut Group<'_>,
    pending: &mut FxHashMap<Var, usize>,
) -> Result<()> {
    let sums = std::mem::take(&mut group.sums);
    group.bytes = 0;
    for equation in &sums {
        pending.retain(|var, _| !equation.outputs.contains(var));
    }
    let [first, _, ..] = sums.as_slice() else {
        return sums.iter().try_for_each(|equation| rewriter.copy(equation));
    };
    let outside = std::mem::replace(&mut rewriter.builder.source, first.source);
    let mut flat = Vec::new();
    let mut lengths = Vec::new();
    for equation in &sums {
        let operand = rewriter.atom(&equation.inputs[0])?;
        let ty = rewriter.builder.array_type(operand)?;
        let length = ty.sizes().unwrap_or_default().iter().product::<usize>();
        flat.push(rewriter.builder.reshape(operand, &[Dim::Const(length)])?);
        lengths.push((length, ty));
    }
    let b = &mut rewriter.builder;
    let all = b.emit1(Concatenate { dimension: 0 }, &flat)?;
    let all = b.emit1(group.op.clone(), &[all])?;
    let mut at = 0;
    for (equation, (length, ty)) in sums.iter().zip(lengths) {
        let b = &mut rewriter.builder;
        let part = b.slice_axis(all, 0, at, at + length)?;
        let part = b.reshape(part, &ty.shape)?;
        let part = b.with_weak(part, ty.weak)?;
        at += length;
        if let [output] = equation.outputs.as_slice() {
            rewriter.set(*output, part);
        }
    }
    rewriter.builder.source = outside;
    Ok(())
}
