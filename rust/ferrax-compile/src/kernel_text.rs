//! The text form of launches, which parses.
//!
//! ```text
//! kernel parallel 2 reduction 3
//!   operands f32, f32 written
//!   param 0 = i64 5
//!   load 0 = b0[0 + 3*i0 + 1*i1] if 0 <= i1 < 2 else 1.0
//!   load 1 = b2[0 + 6*(0..=4)]
//!   main
//!     %0: f32 = input 0
//!   accumulate 1 = sum %0
//!   epilogue
//!     %0: f32 = input 1
//!   store epilogue b1[0 + 1*i0] = %0
//! ```
//!
//! The loops with their extents; operands, `b0` the first; loads and accumulators under the numbers by which
//! bodies know them (`6*(0..=4)` is a jump: 6 elements for each step of an index, which is at most 4); stores. `bits 0x…` is a number that has no decimal form. Cost of both directions: linear.

use std::fmt::{self, Display, Write};
use std::str::FromStr;

use ferrax_ir::lowering::AccumulatorKind;
use ferrax_ir::scalar::{Body, MathFn, Narrow, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{DType, Error, Result, Scalar, parse_error};

use crate::index::{PerLoop, View};
use crate::kernel::{Accumulator, AxisKind, Jump, Jumps, Launch, Load, Operand, Stage, Store, registers};

const KINDS: [(AccumulatorKind, &str); 9] = [
    (AccumulatorKind::Sum, "sum"),
    (AccumulatorKind::Prod, "prod"),
    (AccumulatorKind::Max, "max"),
    (AccumulatorKind::Min, "min"),
    (AccumulatorKind::And, "and"),
    (AccumulatorKind::Or, "or"),
    (AccumulatorKind::Xor, "xor"),
    (AccumulatorKind::ArgMax, "argmax"),
    (AccumulatorKind::ArgMin, "argmin"),
];

/// Instructions without a number of their own.
const PLAIN: [(ScalarOp, &str); 33] = [
    (ScalarOp::Add, "add"),
    (ScalarOp::Sub, "sub"),
    (ScalarOp::Mul, "mul"),
    (ScalarOp::Div, "div"),
    (ScalarOp::Rem, "rem"),
    (ScalarOp::Neg, "neg"),
    (ScalarOp::Abs, "abs"),
    (ScalarOp::Min, "min"),
    (ScalarOp::Max, "max"),
    (ScalarOp::Fma, "fma"),
    (ScalarOp::Sqrt, "sqrt"),
    (ScalarOp::Floor, "floor"),
    (ScalarOp::Ceil, "ceil"),
    (ScalarOp::Trunc, "trunc"),
    (ScalarOp::RoundEven, "roundeven"),
    (ScalarOp::And, "and"),
    (ScalarOp::Or, "or"),
    (ScalarOp::Xor, "xor"),
    (ScalarOp::Not, "not"),
    (ScalarOp::Shl, "shl"),
    (ScalarOp::ShrArithmetic, "shrarithmetic"),
    (ScalarOp::ShrLogical, "shrlogical"),
    (ScalarOp::PopCount, "popcount"),
    (ScalarOp::Clz, "clz"),
    (ScalarOp::Eq, "eq"),
    (ScalarOp::Ne, "ne"),
    (ScalarOp::Lt, "lt"),
    (ScalarOp::Le, "le"),
    (ScalarOp::Select, "select"),
    (ScalarOp::Convert, "convert"),
    (ScalarOp::Bitcast, "bitcast"),
    (ScalarOp::RoundTo(Narrow::BF16), "round_to_bf16"),
    (ScalarOp::RoundTo(Narrow::F16), "round_to_f16"),
];

fn kind_name(kind: AccumulatorKind) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).map_or("", |(_, name)| name)
}

/// A number, so that it reads back as the same bits.
struct Number(Scalar);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.to_i128(), self.0.to_f64()) {
            (Some(value), _) => write!(f, "{value}"),
            (None, Some(value)) if value.is_finite() && self.0.dtype().is_float() => write!(f, "{value:?}"),
            _ => write!(f, "bits {:#x}", self.0.bits()),
        }
    }
}

fn number(dtype: DType, text: &str) -> Option<Scalar> {
    if let Some(bits) = text.strip_prefix("bits 0x") {
        return u128::from_str_radix(bits, 16).ok().map(|bits| Scalar::from_bits(dtype, bits));
    }
    if dtype.is_float() {
        return text.parse().ok().map(|value| Scalar::from_f64(dtype, value));
    }
    let value: i128 = text.parse().ok()?;
    let bits = value.cast_unsigned() & (u128::MAX >> (128 - 8 * dtype.size().clamp(1, 16)));
    Some(Scalar::from_bits(dtype, bits))
}

struct Access<'a>(u32, &'a View, &'a [Jump], &'a [usize]);

impl Display for Access<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access(operand, view, jumps, extents) = self;
        let sign = |stride: i64| if stride < 0 { '-' } else { '+' };
        write!(f, "b{operand}[{}", view.offset)?;
        for (axis, &stride) in view.strides.iter().enumerate().filter(|(_, stride)| **stride != 0) {
            write!(f, " {} {}*i{axis}", sign(stride), stride.unsigned_abs())?;
        }
        for Jump { stride, last } in *jumps {
            write!(f, " {} {}*(0..={last})", sign(*stride), stride.unsigned_abs())?;
        }
        f.write_char(']')?;
        for (axis, &(low, high)) in view.ranges.iter().enumerate() {
            if (low, high) != (0, extents[axis] as i64) {
                write!(f, " if {low} <= i{axis} < {high}")?;
            }
        }
        Ok(())
    }
}

fn write_body(f: &mut fmt::Formatter<'_>, body: &Body) -> fmt::Result {
    for (index, instruction) in body.instructions().iter().enumerate() {
        write!(f, "    %{index}: {} = ", instruction.ty.dtype().short_name())?;
        match instruction.op {
            ScalarOp::Input { operand, part: 0 } => write!(f, "input {operand}")?,
            ScalarOp::Input { operand, part } => write!(f, "input {operand}.{part}")?,
            ScalarOp::Index { axis } => write!(f, "index {axis}")?,
            ScalarOp::Param { index } => write!(f, "param {index}")?,
            ScalarOp::Const { bits } => {
                write!(f, "const {}", Number(Scalar::from_bits(instruction.ty.dtype(), bits.into())))?;
            }
            ScalarOp::Math(function) => f.write_str(function.name())?,
            op => f.write_str(PLAIN.iter().find(|(known, _)| *known == op).map_or("", |(_, name)| name))?,
        }
        for arg in &instruction.args {
            write!(f, " %{}", arg.0)?;
        }
        f.write_char('\n')?;
    }
    Ok(())
}

impl Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernel = &self.kernel;
        f.write_str("kernel")?;
        for (kind, extent) in kernel.axes.iter().zip(&self.extents) {
            let kind = match kind {
                AxisKind::Parallel => "parallel",
                AxisKind::Reduction => "reduction",
            };
            write!(f, " {kind} {extent}")?;
        }
        f.write_str("\n  operands")?;
        for (index, operand) in kernel.operands.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let written = if operand.written { " written" } else { "" };
            write!(f, "{comma} {}{written}", operand.dtype.short_name())?;
        }
        f.write_char('\n')?;
        for (index, (ty, &bits)) in kernel.params.iter().zip(&self.params).enumerate() {
            let value = Number(Scalar::from_bits(ty.dtype(), bits.into()));
            writeln!(f, "  param {index} = {} {value}", ty.dtype().short_name())?;
        }
        for (index, ((load, view), jumps)) in
            kernel.loads.iter().zip(&self.loads).zip(&self.jumps).enumerate()
        {
            write!(f, "  load {index} = {}", Access(load.operand, view, jumps, &self.extents))?;
            if let Some(fill) = load.fill {
                write!(f, " else {}", Number(fill))?;
            }
            f.write_char('\n')?;
        }
        f.write_str("  main\n")?;
        write_body(f, &kernel.body)?;
        for (index, accumulator) in kernel.accumulators.iter().enumerate() {
            let number = kernel.loads.len() + index;
            writeln!(f, "  accumulate {number} = {} %{}", kind_name(accumulator.kind), accumulator.arg.0)?;
        }
        if !kernel.epilogue.instructions().is_empty() {
            f.write_str("  epilogue\n")?;
            write_body(f, &kernel.epilogue)?;
        }
        for (store, view) in kernel.stores.iter().zip(&self.stores) {
            let stage = if store.stage == Stage::Main { "main" } else { "epilogue" };
            write!(f, "  store {stage} {} =", Access(store.operand, view, &[], &self.extents))?;
            for reg in registers(store.value) {
                write!(f, " %{}", reg.0)?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

/// A line that is read from the left.
struct Line<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Line<'a> {
    fn fault(&self, expected: &str) -> Error {
        parse_error!("line {} of a kernel: expected {expected}, got '{}'", self.number, self.rest)
    }

    /// Whether the line goes on with this; if so, behind it.
    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.strip_prefix(text);
        self.rest = found.unwrap_or(rest);
        found.is_some()
    }

    fn require(&mut self, text: &str) -> Result<()> {
        if self.eat(text) { Ok(()) } else { Err(self.fault(&format!("'{text}'"))) }
    }

    /// Up to a space or one of `stops`.
    fn word(&mut self, stops: &[char]) -> &'a str {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || stops.contains(&c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.rest = after;
        word
    }

    fn value<T: FromStr>(&mut self, stops: &[char], what: &str) -> Result<T> {
        let before = self.rest;
        self.word(stops).parse().map_err(|_| {
            self.rest = before;
            self.fault(what)
        })
    }

    fn dtype(&mut self, stops: &[char]) -> Result<DType> {
        let before = self.rest;
        DType::parse(self.word(stops)).map_err(|_| {
            self.rest = before;
            self.fault("a dtype")
        })
    }

    fn scalar_type(&mut self) -> Result<ScalarType> {
        let dtype = self.dtype(&[':'])?;
        ScalarType::of(dtype)
            .ok()
            .filter(|ty| ty.dtype() == dtype)
            .ok_or_else(|| self.fault("a register type"))
    }

    fn number(&mut self, dtype: DType) -> Result<Scalar> {
        let before = self.rest;
        let text =
            if self.eat("bits") { format!("bits {}", self.word(&[])) } else { self.word(&[]).to_owned() };
        number(dtype, &text).ok_or_else(|| {
            self.rest = before;
            self.fault("a number")
        })
    }

    fn end(&self) -> Result<()> {
        if self.rest.trim().is_empty() { Ok(()) } else { Err(self.fault("the end of the line")) }
    }

    fn register(&mut self) -> Result<Reg> {
        self.require("%")?;
        Ok(Reg(self.value(&[':'], "a register")?))
    }

    /// An operand and a view of it.
    fn access(&mut self, launch: &Launch) -> Result<(u32, View, Jumps)> {
        self.require("b")?;
        let operand: u32 = self.value(&['['], "an operand")?;
        if operand as usize >= launch.kernel.operands.len() {
            return Err(self.fault("one of the operands"));
        }
        self.require("[")?;
        let mut view = View {
            offset: self.value(&[']'], "an offset")?,
            strides: launch.extents.iter().map(|_| 0).collect(),
            ranges: launch.extents.iter().map(|&extent| (0, extent as i64)).collect(),
        };
        let mut jumps = Jumps::new();
        while !self.eat("]") {
            let sign = if self.eat("-") { -1 } else { 1 };
            if sign == 1 {
                self.require("+")?;
            }
            let stride: i64 = self.value(&['*'], "a stride")?;
            if self.eat("*(0..=") {
                let last = self.value(&[')'], "the last index")?;
                self.require(")")?;
                jumps.push(Jump { stride: sign * stride, last });
                continue;
            }
            self.require("*i")?;
            let axis: usize = self.value(&[']'], "a loop")?;
            *view.strides.get_mut(axis).ok_or_else(|| self.fault("a loop of the kernel"))? = sign * stride;
        }
        while self.eat("if ") {
            let low = self.value(&[], "a bound")?;
            self.require("<= i")?;
            let axis: usize = self.value(&[], "a loop")?;
            self.require("<")?;
            let high = self.value(&[], "a bound")?;
            *view.ranges.get_mut(axis).ok_or_else(|| self.fault("a loop of the kernel"))? = (low, high);
        }
        Ok((operand, view, jumps))
    }

    /// An instruction, the next of this body.
    fn instruction(&mut self, body: &mut Body) -> Result<()> {
        let next = body.instructions().len();
        if self.register()? != Reg(next as u32) {
            return Err(self.fault(&format!("register %{next}")));
        }
        self.require(":")?;
        let ty = self.scalar_type()?;
        self.require("=")?;
        let name = self.word(&[]);
        let op = match name {
            "input" => {
                let operand = self.value(&['.'], "the number of a load or accumulator")?;
                let part = if self.eat(".") { self.value(&[], "a part")? } else { 0 };
                ScalarOp::Input { operand, part }
            }
            "index" => ScalarOp::Index { axis: self.value(&[], "a loop")? },
            "param" => ScalarOp::Param { index: self.value(&[], "a parameter")? },
            "const" => ScalarOp::Const { bits: self.number(ty.dtype())?.bits() as u64 },
            name => {
                let plain = PLAIN.iter().find(|(_, known)| *known == name).map(|(op, _)| *op);
                let math =
                    || MathFn::ALL.iter().find(|known| known.name() == name).copied().map(ScalarOp::Math);
                plain
                    .or_else(math)
                    .ok_or_else(|| self.fault(&format!("an instruction instead of '{name}'")))?
            }
        };
        let mut args: Vec<Reg> = Vec::new();
        while !self.rest.trim().is_empty() {
            let arg = self.register()?;
            if arg.0 as usize >= next {
                return Err(self.fault("registers from above"));
            }
            args.push(arg);
        }
        if body.push(op, ty, &args) == Reg(next as u32) {
            Ok(())
        } else {
            Err(self.fault("a new instruction"))
        }
    }
}

impl FromStr for Launch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Launch> {
        let mut launch = Launch::default();
        let mut stage: Option<Stage> = None;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        for (number, line) in lines {
            let mut line = Line { rest: line.trim(), number: number + 1 };
            if line.rest.starts_with('%') {
                match stage {
                    Some(Stage::Main) => line.instruction(&mut launch.kernel.body)?,
                    Some(Stage::Epilogue) => line.instruction(&mut launch.kernel.epilogue)?,
                    None => return Err(line.fault("'main' before instructions")),
                }
            } else {
                head(&mut line, &mut launch, &mut stage)?;
            }
            line.end()?;
        }
        Ok(launch)
    }
}

/// A line that is no instruction.
fn head(line: &mut Line<'_>, launch: &mut Launch, stage: &mut Option<Stage>) -> Result<()> {
    let in_order = |line: &Line<'_>, found: usize, expected: usize| {
        if found == expected { Ok(()) } else { Err(line.fault(&format!("number {expected} before this"))) }
    };
    match line.word(&[]) {
        "kernel" => {
            let mut extents = PerLoop::new();
            while !line.rest.trim().is_empty() {
                launch.kernel.axes.push(match line.word(&[]) {
                    "parallel" => AxisKind::Parallel,
                    "reduction" => AxisKind::Reduction,
                    _ => return Err(line.fault("'parallel' or 'reduction' before this")),
                });
                extents.push(line.value(&[], "an extent")?);
            }
            launch.extents = extents;
        }
        "operands" => {
            while !line.rest.trim().is_empty() {
                let dtype = line.dtype(&[','])?;
                launch.kernel.operands.push(Operand { dtype, written: line.eat("written") });
                line.eat(",");
            }
        }
        "param" => {
            let number: usize = line.value(&[], "a parameter")?;
            in_order(line, number, launch.params.len())?;
            line.require("=")?;
            let ty = line.scalar_type()?;
            launch.kernel.params.push(ty);
            launch.params.push(line.number(ty.dtype())?.bits() as u64);
        }
        "load" => {
            let number: usize = line.value(&[], "a load")?;
            in_order(line, number, launch.loads.len())?;
            line.require("=")?;
            let (operand, view, jumps) = line.access(launch)?;
            let dtype = launch.kernel.operands[operand as usize].dtype;
            let fill = if line.eat("else ") { Some(line.number(dtype)?) } else { None };
            launch.kernel.loads.push(Load { operand, fill });
            launch.loads.push(view);
            launch.jumps.push(jumps);
        }
        "main" => *stage = Some(Stage::Main),
        "epilogue" => *stage = Some(Stage::Epilogue),
        "accumulate" => {
            let number: usize = line.value(&[], "an accumulator")?;
            in_order(line, number, launch.loads.len() + launch.kernel.accumulators.len())?;
            line.require("=")?;
            let name = line.word(&[]);
            let kind = KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind);
            let kind = kind.ok_or_else(|| line.fault(&format!("a reduction instead of '{name}'")))?;
            let arg = line.register()?;
            let known = launch.kernel.body.instructions().get(arg.0 as usize);
            let ty = known.ok_or_else(|| line.fault("a register of the main body before this"))?.ty;
            launch.kernel.accumulators.push(Accumulator { kind, ty, arg });
        }
        "store" => {
            let stage = match line.word(&[]) {
                "main" => Stage::Main,
                "epilogue" => Stage::Epilogue,
                _ => return Err(line.fault("'main' or 'epilogue' before this")),
            };
            let (operand, view, jumps) = line.access(launch)?;
            if !jumps.is_empty() {
                return Err(line.fault("a store without computed indices before this"));
            }
            line.require("=")?;
            let first = line.register()?;
            let value = if line.rest.trim().is_empty() {
                Value::Real(first)
            } else {
                Value::Complex(first, line.register()?)
            };
            let known = launch.kernel.body_of(stage).instructions().len();
            if registers(value).iter().any(|reg| reg.0 as usize >= known) {
                return Err(line.fault("registers of that body before this"));
            }
            launch.kernel.stores.push(Store { operand, stage, value });
            launch.stores.push(view);
        }
        word => return Err(line.fault(&format!("a line of a kernel instead of '{word}'"))),
    }
    Ok(())
}
