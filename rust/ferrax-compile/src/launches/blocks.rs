//! Runs with products of matrices ([`crate::rows`]), cut into blocks of rows.
//!
//! In: a run of a plan, and the bytes that a block's own values may take. Out: the same steps for each block, over a
//! range of the first loops: views move by its offset, extents are cut, and indices count
//! from where it begins. What only the run needs has memory for one block, which goes to the next; so of attention
//! there are never more than so many bytes of the matrix of all pairs. A block is of neighbouring indices of one loop,
//! whole in those after it, at one index of those before. Cost: linear in the blocks times the steps.

use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};

use crate::kernel::{Launch, Stage};
use crate::plan::{BufferId, Place, Plan, Run};

/// Where an operand of a step is: among the buffers of the plan, or in memory of the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    Buffer(usize),
    Own(usize),
}

impl Operand {
    pub fn is_own(self) -> bool {
        matches!(self, Operand::Own(_))
    }
}

/// What has memory for a block: the bytes of a row, and the last step that uses it.
#[derive(Debug)]
pub struct Own {
    pub id: BufferId,
    pub row: usize,
    pub last: usize,
}

/// A range of the first loops: where it begins and how many indices it has in each.
pub type Part = Vec<(usize, usize)>;

/// A run that goes block by block.
#[derive(Debug)]
pub struct Blocks {
    pub buffers: Vec<BufferId>,
    pub own: Vec<Own>,
    /// Of each step where its operands are.
    pub operands: Vec<Vec<Operand>>,
    /// What each block is of the run's loops.
    pub parts: Vec<Part>,
}

/// The blocks of a run over these loops, of at most so many rows.
fn parts(extents: &[usize], rows: usize) -> Vec<Part> {
    let inner =
        |cut: usize| extents[cut + 1..].iter().fold(1, |all: usize, &extent| all.saturating_mul(extent));
    let Some(cut) = (0..extents.len()).find(|&cut| inner(cut) <= rows) else { return Vec::new() };
    let (extent, most) = (extents[cut], (rows / inner(cut)).max(1));
    let length = extent.div_ceil(extent.div_ceil(most).max(1)).max(1);
    let mut parts = Vec::new();
    for outside in 0..extents[..cut].iter().product() {
        let mut rest: usize = outside;
        let mut before: Part = extents[..cut]
            .iter()
            .rev()
            .map(|&extent| {
                let index = rest % extent;
                rest /= extent;
                (index, 1)
            })
            .collect();
        before.reverse();
        for first in (0..extent).step_by(length) {
            let mut part = before.clone();
            part.push((first, length.min(extent - first)));
            part.extend(extents[cut + 1..].iter().map(|&extent| (0, extent)));
            parts.push(part);
        }
    }
    parts
}

/// The rows of a run whose own values take so many bytes.
fn rows_of(run: &Run, bytes: usize) -> usize {
    (bytes / run.own_bytes.max(1)).max(1)
}

/// Whether a run has products, and several blocks whose own values take so many bytes.
pub fn are_several(run: &Run, bytes: usize) -> bool {
    run.has_calls() && parts(&run.extents, rows_of(run, bytes)).len() > 1
}

/// A run with products in blocks whose own values take so many bytes; none if it is one block.
pub fn blocks(plan: &Plan, run: &Run, bytes: usize) -> Option<Blocks> {
    let parts = parts(&run.extents, rows_of(run, bytes));
    if !run.has_calls() || parts.len() < 2 {
        return None;
    }
    let steps = &plan.steps[run.steps.clone()];
    let mut own: Vec<Own> = Vec::new();
    let mut buffers: Vec<BufferId> = Vec::new();
    let mut operands = Vec::with_capacity(steps.len());
    let mut place = |step: usize, id: BufferId| {
        let buffer = plan.buffers[id.0 as usize];
        if !matches!(buffer.place, Place::Rows(_)) {
            let known = buffers.iter().position(|&known| known == id);
            return Operand::Buffer(known.unwrap_or_else(|| {
                buffers.push(id);
                buffers.len() - 1
            }));
        }
        let known = own.iter().position(|own| own.id == id).unwrap_or_else(|| {
            own.push(Own { id, row: buffer.bytes / run.rows(), last: step });
            own.len() - 1
        });
        own[known].last = step;
        Operand::Own(known)
    };
    for (number, step) in steps.iter().enumerate() {
        let mut of_step = Vec::new();
        step.each_buffer(|id| of_step.push(place(number, id)));
        operands.push(of_step);
    }
    Some(Blocks { buffers, own, operands, parts })
}

impl Blocks {
    /// The bytes of an operand in a block of so many rows.
    pub fn bytes(&self, plan: &Plan, operand: Operand, rows: usize) -> usize {
        match operand {
            Operand::Buffer(number) => plan.buffers[self.buffers[number].0 as usize].bytes,
            Operand::Own(number) => self.own[number].row * rows,
        }
    }

    /// A kernel of step `step` of the run, for a block.
    pub fn launch(&self, step: usize, launch: &Launch, part: &Part) -> Launch {
        restricted(launch, part, |operand| self.operands[step][operand].is_own())
    }
}

/// The rows of a block.
pub fn rows(part: &Part) -> usize {
    part.iter().map(|&(_, length)| length).product()
}

/// A launch over a part of its first loops. Operands that are the block's own begin where the part does.
pub(super) fn restricted(launch: &Launch, part: &[(usize, usize)], is_own: impl Fn(usize) -> bool) -> Launch {
    let mut out = launch.clone();
    for (axis, &(first, length)) in part.iter().enumerate() {
        out.extents[axis] = length;
        let first = first as i64;
        let loads = out.loads.iter_mut().zip(launch.kernel.loads.iter().map(|load| load.operand));
        let stores = out.stores.iter_mut().zip(launch.kernel.stores.iter().map(|store| store.operand));
        for (view, operand) in loads.chain(stores) {
            if !is_own(operand as usize) {
                view.offset += view.strides[axis] * first;
            }
            view.ranges[axis] = (view.ranges[axis].0 - first, view.ranges[axis].1 - first);
        }
    }
    // Of each loop whose index is computed with, a parameter says where it begins.
    let base = launch.kernel.params.len();
    let counts: Vec<usize> = (0..part.len())
        .filter(|&axis| {
            let bodies = [&launch.kernel.body, &launch.kernel.epilogue];
            let is_index = |op| matches!(op, ScalarOp::Index { axis: of } if of as usize == axis);
            bodies.iter().any(|body| body.instructions().iter().any(|instruction| is_index(instruction.op)))
        })
        .collect();
    for &axis in &counts {
        out.kernel.params.push(ScalarType::I64);
        out.params.push(part[axis].0 as u64);
    }
    let (body, main) = counted(&launch.kernel.body, &counts, base);
    let (epilogue, end) = counted(&launch.kernel.epilogue, &counts, base);
    (out.kernel.body, out.kernel.epilogue) = (body, epilogue);
    for accumulator in &mut out.kernel.accumulators {
        accumulator.arg = main[accumulator.arg.0 as usize];
    }
    for store in &mut out.kernel.stores {
        let map = match store.stage {
            Stage::Main => &main,
            Stage::Epilogue => &end,
        };
        let moved = |reg: Reg| map[reg.0 as usize];
        store.value = match store.value {
            Value::Real(reg) => Value::Real(moved(reg)),
            Value::Complex(re, im) => Value::Complex(moved(re), moved(im)),
        };
    }
    out
}

/// A body in which the indices of these loops begin at parameters, the first of which is `base`; and where its
/// registers are now.
fn counted(body: &Body, loops: &[usize], base: usize) -> (Body, Vec<Reg>) {
    let mut out = Body::default();
    let mut map: Vec<Reg> = Vec::with_capacity(body.instructions().len());
    for instruction in body.instructions() {
        let args: Vec<Reg> = instruction.args.iter().map(|reg| map[reg.0 as usize]).collect();
        let mut own = out.push(instruction.op, instruction.ty, &args);
        if let ScalarOp::Index { axis } = instruction.op
            && let Some(number) = loops.iter().position(|&counted| counted == axis as usize)
        {
            let index = (base + number) as u32;
            let begin = out.push(ScalarOp::Param { index }, ScalarType::I64, &[]);
            let begin = out.convert(begin, instruction.ty);
            own = out.push(ScalarOp::Add, instruction.ty, &[own, begin]);
        }
        map.push(own);
    }
    (out, map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_all_rows_once() {
        for (extents, most) in
            [(&[5][..], 2), (&[2, 3, 5], 7), (&[2, 3, 5], 15), (&[2, 3, 5], 4), (&[4, 1, 3], 1)]
        {
            let mut seen = Vec::new();
            for part in parts(extents, most) {
                assert_eq!(part.len(), extents.len());
                assert!(part.iter().map(|&(_, length)| length).product::<usize>() <= most);
                let mut rows = vec![0];
                for (&(first, length), &extent) in part.iter().zip(extents) {
                    rows = rows
                        .iter()
                        .flat_map(|row| (first..first + length).map(move |at| row * extent + at))
                        .collect();
                }
                // The memory of a block has them one after the other.
                assert!(rows.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rows:?}");
                seen.extend(rows);
            }
            assert!(seen.into_iter().eq(0..extents.iter().product()), "{extents:?} by {most}");
        }
    }
}
