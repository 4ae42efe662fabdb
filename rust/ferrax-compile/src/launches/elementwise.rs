//! Kernels that compute each of their indices apart: as few loops as they can have, which element of an array an
//! index is, and what an element costs.
//!
//! In: launches and scalar bodies. Out: what of them products can take in (see `fuse`). Cost: linear in the kernel.

use ferrax_ir::DType;
use ferrax_ir::scalar::{Body, Instruction, Narrow, Reg, ScalarOp, ScalarType, Value};

use crate::index::View;
use crate::kernel::{AxisKind, Launch, Stage, registers};
use crate::plan::BufferId;

/// The cost of a function of floats, of a division, and of the index of a loop.
const MATH: usize = 32;
pub const DIVISION: usize = 8;

/// A kernel step, with as few loops as it can have.
#[derive(Clone)]
pub struct Kernel<'a> {
    pub launch: Launch,
    pub buffers: &'a [BufferId],
}

impl Kernel<'_> {
    /// Whether it computes each of its indices apart from the others.
    pub fn is_elementwise(&self) -> bool {
        let kernel = &self.launch.kernel;
        kernel.axes.iter().all(|kind| *kind == AxisKind::Parallel)
            && kernel.accumulators.is_empty()
            && kernel.stores.iter().all(|store| store.stage == Stage::Main)
            && !self.launch.extents.contains(&0)
    }

    pub fn reads(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.launch.kernel.loads.iter().map(|load| self.buffers[load.operand as usize])
    }
}

/// The same launch with one loop for neighbours that all its accesses walk as one, where it has no guards and computes
/// nothing of indices.
pub fn joined(launch: &Launch) -> Launch {
    let mut launch = launch.clone();
    let whole = launch.loads.iter().all(|view| is_whole(view, &launch.extents));
    let kernel = &launch.kernel;
    let is_index = |instruction: &Instruction| matches!(instruction.op, ScalarOp::Index { .. });
    let of_indices =
        [&kernel.body, &kernel.epilogue].iter().any(|body| body.instructions().iter().any(is_index));
    if !whole || of_indices || kernel.has_reduction() || launch.extents.contains(&0) {
        return launch;
    }
    for axis in (0..launch.extents.len().saturating_sub(1)).rev() {
        let [outer, inner] = [launch.extents[axis], launch.extents[axis + 1]];
        let mut views = launch.loads.iter().chain(&launch.stores);
        let one = |view: &View| view.strides[axis] == view.strides[axis + 1].saturating_mul(inner as i64);
        let (goes, stays) = match (outer, inner) {
            (1, _) => (axis, axis + 1),
            (_, 1) => (axis + 1, axis),
            _ if views.all(one) => (axis, axis + 1),
            _ => continue,
        };
        launch.extents[stays] = outer * inner;
        launch.extents.remove(goes);
        launch.kernel.axes.remove(goes);
        for view in launch.loads.iter_mut().chain(&mut launch.stores) {
            view.strides.remove(goes);
            view.ranges.remove(goes);
            view.ranges[axis] = (0, (outer * inner) as i64);
        }
    }
    launch
}

/// Whether a view has no guards over these extents.
pub fn is_whole(view: &View, extents: &[usize]) -> bool {
    view.ranges.iter().zip(extents).all(|(&(low, high), &extent)| low <= 0 && high >= extent as i64)
}

/// The loops whose indices are, in this order, the digits of the number of the element at a view, which goes through
/// all of them; none if they are not.
pub fn digits(view: &View, extents: &[usize]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..extents.len()).filter(|&axis| extents[axis] != 1).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(view.strides[axis]));
    let mut stride = 1;
    for &axis in order.iter().rev() {
        if view.strides[axis] != stride {
            return None;
        }
        stride *= extents[axis] as i64;
    }
    (view.offset == 0 && is_whole(view, extents)).then_some(order)
}

/// A body whose inputs of loads that are not kept are accumulators, one for each part, which come after `loads`
/// loads. And where its registers are now.
pub fn renumbered(body: &Body, kept: &[bool], loads: u32) -> (Body, Vec<Reg>) {
    let mut out = Body::default();
    let mut map: Vec<Reg> = Vec::with_capacity(body.instructions().len());
    for Instruction { op, ty, args } in body.instructions() {
        let args: Vec<Reg> = args.iter().map(|reg| map[reg.0 as usize]).collect();
        let op = match *op {
            ScalarOp::Input { operand, part } if kept[operand as usize] => {
                let before = kept[..operand as usize].iter().filter(|&&kept| kept).count();
                ScalarOp::Input { operand: before as u32, part }
            }
            ScalarOp::Input { part, .. } => ScalarOp::Input { operand: loads + u32::from(part), part: 0 },
            op => op,
        };
        map.push(out.push(op, *ty, &args));
    }
    (out, map)
}

/// What a value costs: instructions, beside the first load and what makes wider numbers of narrow ones, which are
/// paid by the shorter reads.
pub fn cost(body: &Body, value: Value) -> usize {
    let instructions = body.instructions();
    let mut needed = vec![false; instructions.len()];
    for reg in registers(value) {
        needed[reg.0 as usize] = true;
    }
    let mut total = 0;
    let mut loads = 0;
    for (number, instruction) in instructions.iter().enumerate().rev() {
        if !needed[number] {
            continue;
        }
        instruction.args.iter().for_each(|arg| needed[arg.0 as usize] = true);
        let from = instruction.args.first().map_or(instruction.ty, |&arg| body.type_of(arg));
        total += match instruction.op {
            ScalarOp::Const { .. } | ScalarOp::Param { .. } => 0,
            ScalarOp::Input { .. } => {
                loads += 1;
                usize::from(loads > 1)
            }
            ScalarOp::Convert if is_wider(from, instruction.ty) => 0,
            ScalarOp::Math(_) => MATH,
            ScalarOp::Div | ScalarOp::Rem | ScalarOp::Sqrt => DIVISION,
            ScalarOp::Convert if from.is_float() && !instruction.ty.is_float() => DIVISION,
            ScalarOp::RoundTo(Narrow::F16) => DIVISION,
            ScalarOp::RoundTo(Narrow::BF16) => DIVISION / 2,
            _ => 1,
        };
    }
    total
}

/// Whether the registers of a value are those of elements of this dtype.
pub fn is_element(body: &Body, value: Value, dtype: DType) -> bool {
    let parts = registers(value);
    let of_type = |&reg: &Reg| ScalarType::of(dtype.real()).is_ok_and(|ty| ty == body.type_of(reg));
    parts.len() == dtype.parts() && parts.iter().all(of_type)
}

fn is_wider(from: ScalarType, to: ScalarType) -> bool {
    from != ScalarType::Bool && from.size() <= to.size() && from.is_float() <= to.is_float()
}
