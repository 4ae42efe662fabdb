//! Kernel IR: a loop nest around scalar code.
//!
//! A [`Kernel`] has loop axes, operands and two bodies. The main body runs at
//! every index; its accumulators reduce over the reduction axes. The epilogue
//! runs once per index of the parallel axes, after the accumulators are
//! complete. A kernel says nothing about sizes: extents, strides, offsets and
//! guards are parameters of a [`Launch`], so one kernel serves all shapes of
//! the same structure.
//!
//! In a body, `Input { operand: n, part }` is load n for `n < loads.len()`; in
//! the epilogue, `n - loads.len()` is an accumulator. `Index { axis }` is a
//! loop index. Loads that the epilogue uses do not move along reduction axes.

use std::fmt::Write;

use ferrax_ir::scalar::{Body, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{DType, Scalar};
use smallvec::SmallVec;

use crate::index::{PerLoop, View};

/// How the iterations of a loop relate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AxisKind {
    /// Independent.
    Parallel,
    /// Feeding accumulators.
    Reduction,
    /// Each after the one before.
    Sequential,
}

/// An array that a kernel reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Operand {
    pub dtype: DType,
    pub written: bool,
}

/// A read of one element; outside its guards it gives `fill` (zero if none).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Load {
    pub operand: u32,
    pub fill: Option<Scalar>,
}

/// When a store happens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    Main,
    Epilogue,
}

/// A write of one element, converted to the operand's dtype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Store {
    pub operand: u32,
    pub stage: Stage,
    pub value: Value,
}

/// What an accumulator computes. Float sums and products use a fixed order
/// that depends on extents alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccumulatorKind {
    Sum,
    Prod,
    /// NaN if there is one.
    Max,
    Min,
    And,
    Or,
    Xor,
    /// The first index (row-major over the reduction axes, `I64`) of the
    /// extremum; NaN counts as extreme.
    ArgMax,
    ArgMin,
}

impl AccumulatorKind {
    pub const fn is_arg(self) -> bool {
        matches!(self, AccumulatorKind::ArgMax | AccumulatorKind::ArgMin)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accumulator {
    pub kind: AccumulatorKind,
    /// The type that is accumulated, that of `arg`.
    pub ty: ScalarType,
    pub arg: Reg,
}

impl Accumulator {
    /// The type of the result.
    pub const fn result(&self) -> ScalarType {
        if self.kind.is_arg() { ScalarType::I64 } else { self.ty }
    }
}

/// A loop nest without sizes.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    pub axes: PerLoop<AxisKind>,
    pub operands: Vec<Operand>,
    pub loads: Vec<Load>,
    pub body: Body,
    pub accumulators: Vec<Accumulator>,
    pub epilogue: Body,
    pub stores: Vec<Store>,
}

/// A kernel with its sizes.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    pub kernel: Kernel,
    pub extents: PerLoop<usize>,
    /// One for each load. Ranges short of the extents are guards.
    pub loads: Vec<View>,
    /// One for each store, without guards.
    pub stores: Vec<View>,
}

impl Kernel {
    pub fn body_of(&self, stage: Stage) -> &Body {
        match stage {
            Stage::Main => &self.body,
            Stage::Epilogue => &self.epilogue,
        }
    }

    pub fn has_reduction(&self) -> bool {
        self.axes.contains(&AxisKind::Reduction)
    }
}

/// The registers of a value.
pub fn registers(value: Value) -> SmallVec<[Reg; 2]> {
    match value {
        Value::Real(reg) => SmallVec::from_slice(&[reg]),
        Value::Complex(re, im) => SmallVec::from_slice(&[re, im]),
    }
}

impl Launch {
    /// Removes instructions and loads that nothing needs.
    pub fn prune(&mut self) {
        let kernel = &mut self.kernel;
        let mut load_map: Vec<Option<u32>> = vec![None; kernel.loads.len()];
        let mut count = 0;
        let main_roots: Vec<Reg> = kernel
            .stores
            .iter()
            .filter(|store| store.stage == Stage::Main)
            .flat_map(|store| registers(store.value))
            .chain(kernel.accumulators.iter().map(|accumulator| accumulator.arg))
            .collect();
        let epilogue_roots: Vec<Reg> = kernel
            .stores
            .iter()
            .filter(|store| store.stage == Stage::Epilogue)
            .flat_map(|store| registers(store.value))
            .collect();
        let live = [live(&kernel.body, &main_roots), live(&kernel.epilogue, &epilogue_roots)];
        for (body, live) in [&kernel.body, &kernel.epilogue].into_iter().zip(&live) {
            for (instruction, _) in body.instructions().iter().zip(live).filter(|(_, live)| **live) {
                if let ScalarOp::Input { operand, .. } = instruction.op
                    && let Some(slot @ None) = load_map.get_mut(operand as usize)
                {
                    *slot = Some(count);
                    count += 1;
                }
            }
        }
        let old_loads = kernel.loads.len() as u32;
        let input = |operand: u32| match load_map.get(operand as usize) {
            Some(slot) => slot.unwrap_or(0),
            None => operand - old_loads + count,
        };
        let (body, main) = rebuild(&kernel.body, &live[0], input);
        let (epilogue, after) = rebuild(&kernel.epilogue, &live[1], input);
        kernel.body = body;
        kernel.epilogue = epilogue;
        let renamed = |map: &[Reg], value: Value| match value {
            Value::Real(reg) => Value::Real(map[reg.0 as usize]),
            Value::Complex(re, im) => Value::Complex(map[re.0 as usize], map[im.0 as usize]),
        };
        for store in &mut kernel.stores {
            store.value = renamed(if store.stage == Stage::Main { &main } else { &after }, store.value);
        }
        for accumulator in &mut kernel.accumulators {
            accumulator.arg = main[accumulator.arg.0 as usize];
        }
        let mut order: Vec<(u32, usize)> =
            load_map.iter().enumerate().filter_map(|(old, new)| new.map(|new| (new, old))).collect();
        order.sort_unstable();
        kernel.loads = order.iter().map(|&(_, old)| kernel.loads[old]).collect();
        self.loads = order.iter().map(|&(_, old)| self.loads[old].clone()).collect();
    }

    /// The number of main iterations.
    pub fn iterations(&self) -> usize {
        self.extents.iter().product()
    }
}

fn live(body: &Body, roots: &[Reg]) -> Vec<bool> {
    let mut live = vec![false; body.instructions().len()];
    for root in roots {
        live[root.0 as usize] = true;
    }
    for (index, instruction) in body.instructions().iter().enumerate().rev() {
        if live[index] {
            for arg in &instruction.args {
                live[arg.0 as usize] = true;
            }
        }
    }
    live
}

fn rebuild(body: &Body, live: &[bool], input: impl Fn(u32) -> u32) -> (Body, Vec<Reg>) {
    let mut result = Body::default();
    let mut map = vec![Reg(0); live.len()];
    for (index, instruction) in body.instructions().iter().enumerate().filter(|(index, _)| live[*index]) {
        let args: SmallVec<[Reg; 3]> = instruction.args.iter().map(|arg| map[arg.0 as usize]).collect();
        let op = match instruction.op {
            ScalarOp::Input { operand, part } => ScalarOp::Input { operand: input(operand), part },
            op => op,
        };
        map[index] = result.push(op, instruction.ty, &args);
    }
    (result, map)
}

fn write_body(text: &mut String, body: &Body) -> std::fmt::Result {
    for (index, instruction) in body.instructions().iter().enumerate() {
        write!(text, "    %{index}: {} = ", instruction.ty.dtype().short_name())?;
        match instruction.op {
            ScalarOp::Input { operand, part: 0 } => write!(text, "input {operand}")?,
            ScalarOp::Input { operand, part } => write!(text, "input {operand}.{part}")?,
            ScalarOp::Index { axis } => write!(text, "index {axis}")?,
            ScalarOp::Const { bits } => {
                let value = Scalar::from_bits(instruction.ty.dtype(), bits.into());
                match value.to_i128() {
                    Some(value) => write!(text, "const {value}")?,
                    None => write!(text, "const {:?}", value.to_f64().unwrap_or(0.0))?,
                }
            }
            ScalarOp::Math(function) => write!(text, "{}", function.name())?,
            ScalarOp::RoundTo(narrow) => write!(text, "round_to_{}", format!("{narrow:?}").to_lowercase())?,
            op => write!(text, "{}", format!("{op:?}").to_lowercase())?,
        }
        for arg in &instruction.args {
            write!(text, " %{}", arg.0)?;
        }
        text.push('\n');
    }
    Ok(())
}

/// The text form, for golden tests.
impl std::fmt::Display for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kernel = &self.kernel;
        let mut text = String::from("kernel");
        for (kind, extent) in kernel.axes.iter().zip(&self.extents) {
            let kind = match kind {
                AxisKind::Parallel => "parallel",
                AxisKind::Reduction => "reduction",
                AxisKind::Sequential => "sequential",
            };
            write!(text, " {kind} {extent}")?;
        }
        text.push('\n');
        let view = |text: &mut String, view: &View| -> std::fmt::Result {
            write!(text, "[{}", view.offset)?;
            for (axis, stride) in view.strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
                write!(text, " {} {}*i{axis}", if *stride < 0 { '-' } else { '+' }, stride.abs())?;
            }
            text.push(']');
            for (axis, &(low, high)) in view.ranges.iter().enumerate() {
                if (low, high) != (0, self.extents[axis] as i64) {
                    write!(text, " if {low} <= i{axis} < {high}")?;
                }
            }
            Ok(())
        };
        for (index, (load, map)) in kernel.loads.iter().zip(&self.loads).enumerate() {
            let dtype = kernel.operands[load.operand as usize].dtype.short_name();
            write!(text, "  load {index} = {dtype} b{}", load.operand)?;
            view(&mut text, map)?;
            if let Some(fill) = load.fill {
                write!(text, " else {:?}", fill.to_f64().unwrap_or(0.0))?;
            }
            text.push('\n');
        }
        text.push_str("  main\n");
        write_body(&mut text, &kernel.body)?;
        for (index, accumulator) in kernel.accumulators.iter().enumerate() {
            let kind = format!("{:?}", accumulator.kind).to_lowercase();
            writeln!(text, "  accumulate {} = {kind} %{}", kernel.loads.len() + index, accumulator.arg.0)?;
        }
        if !kernel.epilogue.instructions().is_empty() {
            text.push_str("  epilogue\n");
            write_body(&mut text, &kernel.epilogue)?;
        }
        for (store, map) in kernel.stores.iter().zip(&self.stores) {
            let dtype = kernel.operands[store.operand as usize].dtype.short_name();
            let stage = if store.stage == Stage::Main { "main" } else { "epilogue" };
            write!(text, "  store {stage} {dtype} b{}", store.operand)?;
            view(&mut text, map)?;
            text.push_str(" =");
            for reg in registers(store.value) {
                write!(text, " %{}", reg.0)?;
            }
            text.push('\n');
        }
        f.write_str(&text)
    }
}
