//! Kernel IR: a loop nest around scalar code.
//!
//! A [`Kernel`] has loop axes, operands and two bodies. The main body runs at
//! every index; its accumulators reduce over the reduction axes. The epilogue
//! runs once per index of the parallel axes, after the accumulators are
//! complete. Where operands are walked is no part of it: extents, strides,
//! offsets and guards are parameters of a [`Launch`]. Bodies hold sizes only
//! where values depend on them, as constants: the starts and steps of counts
//! (`iota`), and the bounds of a pad around more than one load.
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

/// What an accumulator computes. Float sums and products are trees that the
/// number of their terms determines: neither tiles nor threads nor what else the
/// kernel computes change a bit. Terms are in the row-major order of the
/// reduction axes; where several of these do not lie in memory as one, those
/// that a tile does not span count slowest.
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

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    /// The number of main iterations.
    pub fn iterations(&self) -> usize {
        self.extents.iter().product()
    }
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
