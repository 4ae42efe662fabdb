//! Products over all pairs of rows, and what is made of them, computed block of rows by block of rows, so that a
//! derivative keeps nothing of them: attention that is written out, matrices of distances or kernels that are summed.
//!
//! In: a program that is about to be differentiated. Out: the same with loops over blocks of rows, whose bodies are
//! checkpoints, for the products that `region` finds; nothing for programs without one, which is nearly all. So the
//! derivative needs memory for a block and the operands, and makes the product once more (Rabe and Staats,
//! Self-attention Does Not Need O(n^2) Memory, 2021). Invariants: values, up to the order of sums within a product;
//! programs with effects stay as they are. Cost: linear in the program, save what `region` says.

mod region;
mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ferrax_ir::ops::{Checkpoint, Concatenate, PolicyHandle, Scan};
use ferrax_ir::paths::Path;
use ferrax_ir::verify::debug_verify;
use ferrax_ir::{ArrayType, Atom, Builder, DType, Program, Result, Type, Var, internal_error};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dce::dce;
use crate::inline::{Inline, inline};
use crate::rewrite::{Rewriter, with_weak};
use region::{Region, Uses};

/// Bytes of the product that are there at once.
static BLOCK_BYTES: AtomicUsize = AtomicUsize::new(32 << 20);

/// About how many bytes of a product a derivative has at once.
pub fn block_bytes() -> usize {
    BLOCK_BYTES.load(Ordering::Relaxed)
}

/// Sets that number for programs that are differentiated from now on, and gives the one before.
pub fn set_block_bytes(bytes: usize) -> usize {
    BLOCK_BYTES.swap(bytes, Ordering::Relaxed)
}

/// `program` with such loops of blocks of about so many bytes, if it has such products.
pub fn row_blocks(program: &Program, block_bytes: usize) -> Result<Option<Program>> {
    let may_begin = |program: &Program| {
        (0..program.equations.len()).any(|index| region::begins(program, index, block_bytes))
    };
    if !program.effects.is_empty() || !may_begin(program) {
        return Ok(None);
    }
    // What is made of the product may be in functions of their own.
    let program = inline(program, Inline::All)?;
    let uses = Uses::new(&program);
    let mut taken: FxHashSet<usize> = FxHashSet::default();
    let mut regions: Vec<Region> = Vec::new();
    for index in 0..program.equations.len() {
        if !taken.contains(&index)
            && let Some(region) = region::find(&program, &uses, index, block_bytes, &taken)
        {
            taken.extend(&region.equations);
            regions.push(region);
        }
    }
    let Some(order) = (if regions.is_empty() { None } else { in_order(&program, &uses, &regions) }) else {
        return Ok(None);
    };
    let mut rewriter = Rewriter::with_inputs(&program);
    rewriter.constants(|_| true);
    for node in order {
        match node {
            Node::Equation(index) => rewriter.copy(&program.equations[index])?,
            Node::Region(number) => emit(&mut rewriter, &regions[number])?,
        }
    }
    let result = dce(&rewriter.finish(&program.outputs)?)?;
    debug_verify(&result, "blocks of rows")?;
    Path::RowBlocks.take();
    Ok(Some(result))
}

/// What is emitted at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Equation(usize),
    Region(usize),
}

/// Equations and regions such that each comes after what it takes, in the program's order otherwise. Nothing if regions
/// need each other's results.
fn in_order(program: &Program, uses: &Uses, regions: &[Region]) -> Option<Vec<Node>> {
    let mut nodes: Vec<Node> = (0..program.equations.len()).map(Node::Equation).collect();
    for (number, region) in regions.iter().enumerate() {
        for &index in &region.own {
            nodes[index] = Node::Region(number);
        }
    }
    let inputs = |node: Node| -> Vec<Var> {
        match node {
            Node::Equation(index) => {
                program.equations[index].inputs.iter().filter_map(Atom::as_var).collect()
            }
            Node::Region(number) => {
                let region = &regions[number];
                region.by_rows.iter().map(|&(var, _)| var).chain(region.shared.iter().copied()).collect()
            }
        }
    };
    let mut order = Vec::with_capacity(nodes.len());
    // Whether all that a node takes was emitted, and then the node itself.
    let mut done: FxHashMap<Node, bool> = FxHashMap::default();
    for &root in &nodes {
        let mut stack = vec![root];
        while let Some(&node) = stack.last() {
            match done.get(&node) {
                Some(true) => {
                    stack.pop();
                    continue;
                }
                Some(false) => {
                    stack.pop();
                    done.insert(node, true);
                    order.push(node);
                    continue;
                }
                None => {}
            }
            done.insert(node, false);
            for producer in inputs(node).into_iter().filter_map(|var| uses.producers[var.index()]) {
                match done.get(&nodes[producer]) {
                    Some(true) => {}
                    // It waits for this one.
                    Some(false) => return None,
                    None => stack.push(nodes[producer]),
                }
            }
        }
    }
    Some(order)
}

/// Emits a region: a loop over blocks, and what is left over.
fn emit(rewriter: &mut Rewriter<'_>, region: &Region) -> Result<()> {
    let program = rewriter.source;
    let (block, count) = (region.block, region.rows / region.block);
    let shared: Vec<Atom> =
        region.shared.iter().map(|&var| rewriter.atom(&Atom::Var(var))).collect::<Result<_>>()?;
    let by_rows: Vec<(Atom, usize)> = region
        .by_rows
        .iter()
        .map(|&(var, axis)| Ok((rewriter.atom(&Atom::Var(var))?, axis)))
        .collect::<Result<_>>()?;
    let first = region.own.iter().min().map(|&index| program.equations[index].source);
    rewriter.builder.source = first.unwrap_or_default();
    let b = &mut rewriter.builder;
    let starts = b.iota(DType::I32, &[count.into()], 0)?;
    let starts = b.mul(starts, b.int_scalar(DType::I32, block as i64))?;
    let mut arguments = shared.clone();
    arguments.push(starts);
    for &(whole, axis) in &by_rows {
        arguments.push(cut(b, whole, axis, count, block)?);
    }
    let scan = Scan {
        jaxpr: Arc::new(checkpointed(block_program(program, region, block)?)?),
        length: count.into(),
        num_carry: 0,
        num_consts: shared.len(),
        reverse: false,
        unroll: 1,
    };
    let stacked = b.emit(scan, &arguments)?;
    let rest = region.rows - count * block;
    let mut left_over = Vec::new();
    if rest > 0 {
        let mut arguments = shared;
        arguments.push(b.int_scalar(DType::I32, (count * block) as i64));
        for &(whole, axis) in &by_rows {
            arguments.push(b.slice_axis(whole, axis, count * block, region.rows)?);
        }
        left_over.extend(b.emit(checkpoint(block_program(program, region, rest)?), &arguments)?);
    }
    for (number, (&var, stacked)) in region.outputs.iter().zip(stacked).enumerate() {
        let b = &mut rewriter.builder;
        let axis = region.axes[&var];
        let mut whole = joined(b, Atom::Var(stacked), axis, count * block)?;
        if let Some(&rest) = left_over.get(number) {
            whole = b.emit1(Concatenate { dimension: axis }, &[whole, Atom::Var(rest)])?;
        }
        let weak = program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
        let whole = with_weak(b, whole, weak)?;
        rewriter.set(var, whole);
    }
    Ok(())
}

fn checkpoint(program: Program) -> Checkpoint {
    Checkpoint {
        differentiated: false,
        jaxpr: Arc::new(program),
        policy: PolicyHandle::default(),
        prevent_cse: true,
    }
}

/// A program that is nothing but a checkpoint of `program`.
fn checkpointed(program: Program) -> Result<Program> {
    let mut b = Builder::new(program.name.clone());
    let inputs: Vec<Atom> = program.input_types().map(|ty| b.input(ty.clone())).collect();
    let outputs = b.emit(checkpoint(program), &inputs)?;
    Ok(b.finish(outputs.into_iter().map(Atom::Var)))
}

/// The first `count * block` rows along an axis as blocks, along a new first axis.
fn cut(b: &mut Builder, whole: Atom, axis: usize, count: usize, block: usize) -> Result<Atom> {
    let mut shape = b.shape(whole);
    let part =
        if shape[axis] == count * block { whole } else { b.slice_axis(whole, axis, 0, count * block)? };
    shape[axis] = block.into();
    shape.insert(axis, count.into());
    let blocks = b.reshape(part, &shape)?;
    b.move_axis(blocks, axis, 0)
}

/// Blocks along axis 0 as rows along an axis of the whole.
fn joined(b: &mut Builder, blocks: Atom, axis: usize, rows: usize) -> Result<Atom> {
    let moved = b.move_axis(blocks, 0, axis)?;
    let mut shape = b.shape(moved);
    shape.remove(axis);
    shape[axis] = rows.into();
    b.reshape(moved, &shape)
}

/// The region for so many rows: from what is shared, the number of the first row, and rows of what goes by rows.
fn block_program(program: &Program, region: &Region, rows: usize) -> Result<Program> {
    let mut b = Builder::new(program.name.clone());
    let input = |b: &mut Builder, var: Var, axis: Option<usize>| {
        let mut ty = program.types[var.index()].clone();
        if let (Type::Array(ty), Some(axis)) = (&mut ty, axis) {
            ty.shape[axis] = rows.into();
        }
        b.input(ty)
    };
    let shared: FxHashMap<Var, Atom> =
        region.shared.iter().map(|&var| (var, input(&mut b, var, None))).collect();
    let start = b.input(ArrayType::scalar(DType::I32));
    let by_rows = region.by_rows.iter();
    let mut parts: FxHashMap<(Var, usize), Atom> =
        by_rows.map(|&(var, axis)| ((var, axis), input(&mut b, var, Some(axis)))).collect();
    for &index in &region.equations {
        let equation = &program.equations[index];
        let output = equation.outputs[0];
        let axis = region.axes[&output];
        let missing = || internal_error!("an operand of {} is not there by rows", equation.op.name());
        let axes = rows::row_axes(program, equation, axis).ok_or_else(missing)?;
        let mut inputs = equation.inputs.clone();
        for (atom, axis) in inputs.iter_mut().zip(axes) {
            let Atom::Var(var) = *atom else { continue };
            let found = match axis {
                Some(axis) => parts.get(&(var, axis)),
                None => shared.get(&var),
            };
            *atom = *found.ok_or_else(missing)?;
        }
        b.source = equation.source;
        let mut made = b.emit1(rows::of_rows(&equation.op, axis, rows), &inputs)?;
        if rows::counts_rows(&equation.op, axis) {
            let first = b.convert(start, b.dtype(made))?;
            made = b.add(made, first)?;
        }
        let weak = program.types[output.index()].as_array().is_some_and(|ty| ty.weak);
        let made = with_weak(&mut b, made, weak)?;
        parts.insert((output, axis), made);
    }
    let output = |var: &Var| {
        let made = parts.get(&(*var, region.axes[var])).copied();
        made.ok_or_else(|| internal_error!("a result of a block is not there"))
    };
    let outputs = region.outputs.iter().map(output).collect::<Result<Vec<_>>>()?;
    Ok(b.finish(outputs))
}
