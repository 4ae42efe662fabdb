//! Invariants 1 to 3: what kernels, library calls and results read and write of their buffers.

use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType};
use ferrax_ir::{Op, Result};
use rustc_hash::FxHashMap;

use super::Verifier;
use super::grids::{Grid, grid, is_injective, meet, reach};
use crate::index::View;
use crate::kernel::{AxisKind, Jump, Launch, Stage, registers};
use crate::plan::{Argument, BufferId, Place};
use crate::updates::may_share;

impl Verifier<'_> {
    pub fn argument(&self, who: &str, argument: &Argument) -> Result<()> {
        let bytes = self.buffer(who, argument.buffer)?.bytes;
        if argument.bytes() == bytes {
            return Ok(());
        }
        let buffer = self.show(argument.buffer);
        Err(self.fault(format_args!("{who} takes {} bytes, {buffer} has {bytes}", argument.bytes())))
    }

    fn writable(&self, who: &str, id: BufferId) -> Result<()> {
        match self.buffer(who, id)?.place {
            Place::Arena(_) | Place::Fresh(_) | Place::Rows(_) => Ok(()),
            place => Err(self.fault(format_args!("{who} writes to {}, which is {place}", self.show(id)))),
        }
    }

    pub fn library(&self, number: usize, op: &Op, inputs: &[Argument], outputs: &[Argument]) -> Result<()> {
        for (position, input) in inputs.iter().enumerate() {
            self.argument(&format!("operand {position} of step {number}, {}", op.name()), input)?;
        }
        for (position, output) in outputs.iter().enumerate() {
            let who = format!("result {position} of step {number}, {}", op.name());
            self.argument(&who, output)?;
            if output.bytes() == 0 {
                continue;
            }
            self.writable(&who, output.buffer)?;
            let mut sharing = 0;
            let beside = inputs.iter().enumerate().any(|(operand, input)| {
                let shares = input.buffer == output.buffer;
                sharing += usize::from(shares);
                shares && !may_share(op, operand, position)
            });
            let again = outputs[..position].iter().any(|other| other.buffer == output.buffer);
            let again = again || beside || sharing > 1;
            if again {
                return Err(self.fault(format_args!("{who} overwrites {}", self.show(output.buffer))));
            }
        }
        Ok(())
    }

    pub fn kernel(&self, number: usize, launch: &Launch, operands: &[BufferId]) -> Result<()> {
        let kernel = &launch.kernel;
        let fault = |what: String| self.fault(format_args!("kernel {number}: {what}"));
        let lengths = [
            (kernel.axes.len(), launch.extents.len(), "axes"),
            (kernel.operands.len(), operands.len(), "operands"),
            (kernel.loads.len(), launch.loads.len(), "loads"),
            (kernel.loads.len(), launch.jumps.len(), "jumps of loads"),
            (kernel.stores.len(), launch.stores.len(), "stores"),
        ];
        if let Some((a, b, what)) = lengths.into_iter().find(|(a, b, _)| a != b) {
            return Err(fault(format!("{a} and {b} {what}")));
        }
        if operands.len() > self.target.operands {
            let most = self.target.operands;
            return Err(fault(format!("{} arrays, where the machine takes {most}", operands.len())));
        }
        let count = launch.extents.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
        let Some(count) = count.filter(|&count| isize::try_from(count).is_ok()) else {
            return Err(fault(format!("its extents {:?} exceed the address space", launch.extents)));
        };
        let reduced = |axis: usize| kernel.axes[axis] == AxisKind::Reduction;
        let still = |view: &View| {
            (0..kernel.axes.len()).all(|axis| {
                !reduced(axis)
                    || view.strides[axis] == 0 && view.ranges[axis] == (0, launch.extents[axis] as i64)
            })
        };
        // One access: of operand `operand` at `view`.
        let access =
            |who: &str, operand: u32, written: bool, view: &View, jumps: &[Jump]| -> Result<BufferId> {
                let (Some(kind), Some(&id)) =
                    (kernel.operands.get(operand as usize), operands.get(operand as usize))
                else {
                    return Err(fault(format!("{who} is of operand {operand}, which does not exist")));
                };
                let at = || format!("{who}, of operand {operand} in {}", self.show(id));
                let bytes = self.buffer(who, id)?.bytes;
                if kind.written != written {
                    return Err(fault(format!("{}: the operand is written: {}", at(), kind.written)));
                }
                if view.strides.len() != launch.extents.len() || view.ranges.len() != launch.extents.len() {
                    return Err(fault(format!("{} has {} strides", at(), view.strides.len())));
                }
                let inside = |(&(low, high), &extent): (&(i64, i64), &usize)| {
                    0 <= low && low <= high && high as u64 <= extent as u64
                };
                if !view.ranges.iter().zip(&launch.extents).all(inside) {
                    return Err(fault(format!("{} has guards beyond the loops: {:?}", at(), view.ranges)));
                }
                let Some(elements) = bytes.checked_div(kind.dtype.size()) else {
                    return Err(fault(format!("{}: its elements have no bytes", at())));
                };
                if jumps.iter().any(|jump| jump.last < 0) {
                    return Err(fault(format!("{} jumps to no index: {jumps:?}", at())));
                }
                if count > 0
                    && let Some((low, high)) = reach(view, jumps)
                    && !(0 <= low && high < elements as i128)
                {
                    return Err(fault(format!("{} reaches elements {low} to {high} of {elements}", at())));
                }
                Ok(id)
            };
        let mut reads: FxHashMap<BufferId, Vec<usize>> = FxHashMap::default();
        for (index, (load, view)) in kernel.loads.iter().zip(&launch.loads).enumerate() {
            let id = access(&format!("load {index}"), load.operand, false, view, &launch.jumps[index])?;
            reads.entry(id).or_default().push(index);
        }
        // Of each buffer: the stores so far, the size of their elements, and where they are.
        let mut writes: FxHashMap<BufferId, Vec<(usize, usize, Grid)>> = FxHashMap::default();
        for (index, (store, view)) in kernel.stores.iter().zip(&launch.stores).enumerate() {
            let who = format!("store {index}");
            let id = access(&who, store.operand, true, view, &[])?;
            self.writable(&format!("kernel {number}: {who}"), id)?;
            let at = || format!("{who}, to {}", self.show(id));
            if view.ranges.iter().zip(&launch.extents).any(|(range, &extent)| *range != (0, extent as i64)) {
                return Err(fault(format!("{} has guards", at())));
            }
            let epilogue = store.stage == Stage::Epilogue;
            if epilogue && !still(view) {
                return Err(fault(format!("{} moves along a reduction axis", at())));
            }
            let width = |operand: u32| kernel.operands[operand as usize].dtype.size();
            let grid = grid(view, &launch.extents, |axis| !epilogue || !reduced(axis));
            if !is_injective(grid.1.clone()) {
                return Err(fault(format!("{} writes elements more than once", at())));
            }
            let others = writes.entry(id).or_default();
            for (other, size, elements) in others.iter() {
                if *size != width(store.operand) || count > 0 && meet(elements, &grid) {
                    return Err(fault(format!("{} writes what store {other} writes", at())));
                }
            }
            others.push((index, width(store.operand), grid));
            let body = kernel.body_of(store.stage);
            if registers(store.value).iter().any(|reg| reg.0 as usize >= body.instructions().len()) {
                return Err(fault(format!("{} is of a register that does not exist", at())));
            }
            for &index in reads.get(&id).into_iter().flatten() {
                let pointwise = !kernel.has_reduction()
                    && launch.loads[index] == *view
                    && launch.jumps[index].is_empty()
                    && width(kernel.loads[index].operand) == width(store.operand);
                if !pointwise {
                    return Err(fault(format!("{} overwrites what load {index} reads", at())));
                }
            }
        }
        for accumulator in &kernel.accumulators {
            if accumulator.arg.0 as usize >= kernel.body.instructions().len() {
                return Err(fault("an accumulator of a register that does not exist".to_owned()));
            }
        }
        let movable = |load: usize| !still(&launch.loads[load]);
        self.body(launch, Stage::Main, &|_| false, &|_| false).map_err(&fault)?;
        self.body(launch, Stage::Epilogue, &movable, &reduced).map_err(&fault)
    }

    /// What is wrong with a body; `moves` and `reduced` are loads and loops that it must not read.
    fn body(
        &self,
        launch: &Launch,
        stage: Stage,
        moves: &dyn Fn(usize) -> bool,
        reduced: &dyn Fn(usize) -> bool,
    ) -> Result<(), String> {
        let kernel = &launch.kernel;
        let body: &Body = kernel.body_of(stage);
        for (index, instruction) in body.instructions().iter().enumerate() {
            let wrong = |what: &str| Err(format!("instruction {index} of {stage:?} {what}"));
            if instruction.args.iter().any(|arg| arg.0 as usize >= index) {
                return wrong("reads a register from below");
            }
            match instruction.op {
                ScalarOp::Input { operand, part } => {
                    let operand = operand as usize;
                    let accumulator = operand
                        .checked_sub(kernel.loads.len())
                        .filter(|_| stage == Stage::Epilogue)
                        .and_then(|number| kernel.accumulators.get(number));
                    let expected = match (kernel.loads.get(operand), accumulator) {
                        (Some(_), _) if moves(operand) => {
                            return wrong("reads what moves along a reduction axis");
                        }
                        (Some(load), _) => {
                            let dtype = kernel.operands[load.operand as usize].dtype;
                            ScalarType::of(dtype).ok().filter(|_| usize::from(part) < dtype.parts())
                        }
                        (None, Some(accumulator)) => Some(accumulator.result()).filter(|_| part == 0),
                        (None, None) => return wrong("reads an input that does not exist"),
                    };
                    let is_index =
                        |arg: &Reg| matches!(body.type_of(*arg), ScalarType::I32 | ScalarType::I64);
                    if instruction.args.len() != launch.jumps.get(operand).map_or(0, |jumps| jumps.len())
                        || !instruction.args.iter().all(is_index)
                    {
                        return wrong("reads an input by other indices than it has jumps");
                    }
                    if expected != Some(instruction.ty) {
                        return wrong("reads an input as another type");
                    }
                }
                ScalarOp::Index { axis } if axis as usize >= kernel.axes.len() || reduced(axis as usize) => {
                    return wrong("reads the index of a loop that it is not in");
                }
                ScalarOp::Param { index } if kernel.params.get(index as usize) != Some(&instruction.ty) => {
                    return wrong("reads a parameter that does not exist");
                }
                _ => {}
            }
        }
        Ok(())
    }
}
