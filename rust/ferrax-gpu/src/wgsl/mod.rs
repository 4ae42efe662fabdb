//! Kernel IR as WGSL: a compute shader for each kernel, without sizes in it.
//!
//! An invocation is an index of the parallel loops, whose terms it folds, or a part of them (`fold`). In: a [`Form`],
//! which is a kernel and what of its views changes the code. Out: the text of a module whose array n is operand n,
//! beside the words of `numbers`. Cost: linear in the kernel, with its functions of floats written out.

pub mod arrays;
pub mod cumulative;
pub mod factorise;
pub mod fft;
pub mod flags;
mod fold;
pub mod numbers;
mod ops;
pub mod own;
pub mod product;
pub mod rows;
pub mod scatter;
pub mod sequence;
pub mod sort;
pub mod subgroups;
pub mod taken;
pub mod types;
pub mod wide;

use std::fmt::Write;

use ferrax_compile::{Accumulator, Stage, registers};
use ferrax_ir::math;
use ferrax_ir::scalar::{Body, Instruction, Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{DType, Result, Scalar, internal_error};

use arrays::Words;
use numbers::{Fold, Form, INDICES, Layout, SEGMENTS};
use types::register;

/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 64;

/// Workgroups along the first dimension of a dispatch, at most.
pub const MOST_GROUPS: u32 = 65_535;

/// Types that not all adapters have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    pub int64: bool,
    pub float64: bool,
    pub cooperative: bool,
}

impl Needs {
    /// What the text of a module begins with.
    pub fn directives(self) -> &'static str {
        if self.cooperative { "enable f16;\nenable wgpu_cooperative_matrix;\n" } else { "" }
    }
}

/// A shader, and what its adapter must have.
#[derive(Clone, Debug)]
pub struct Shader {
    pub text: String,
    pub needs: Needs,
    /// What it does with its arrays; it has no declarations of them (`arrays`).
    pub arrays: Vec<Words>,
}

/// The statement that defines the number of an invocation.
fn numbered() -> String {
    format!("let number = id.x + id.y * {}u;", u64::from(WORKGROUP) * u64::from(MOST_GROUPS))
}

/// The shader of a kernel.
pub fn shader(form: &Form) -> Result<Shader> {
    let mut writer = Writer::new(form, 0, WORKGROUP, None);
    let (main, epilogue) = (expanded(&form.kernel.body)?, expanded(&form.kernel.epilogue)?);
    writer.head(ops::functions(|ty| has(form, ty, &[&main.0, &epilogue.0])));
    writer.invocation(&main, &epilogue)?;
    let operands = form.kernel.operands.iter();
    let mut arrays: Vec<Words> = operands
        .zip(0u32..)
        .map(|(operand, number)| match writer.is_vector(number) {
            true => wide::words(operand.dtype),
            false => types::words(operand.dtype, operand.written),
        })
        .collect();
    if form.fold.has_partials() {
        arrays.push(Words::Whole);
    }
    Ok(Shader { text: writer.text, needs: needs(form, &[&main.0, &epilogue.0]), arrays })
}

/// Whether registers of a type are in a kernel with these bodies.
fn has(form: &Form, ty: ScalarType, bodies: &[&Body]) -> bool {
    let in_bodies =
        bodies.iter().any(|body| body.instructions().iter().any(|instruction| instruction.ty == ty));
    in_bodies || form.kernel.accumulators.iter().any(|accumulator| accumulator.result() == ty)
}

fn needs(form: &Form, bodies: &[&Body]) -> Needs {
    let pairs = form.kernel.operands.iter().any(|operand| {
        matches!(operand.dtype, DType::I64 | DType::U64 | DType::F64 | DType::C128)
            || matches!(operand.dtype, DType::Key(key) if key.words() == 2)
    });
    let has = |ty: ScalarType| has(form, ty, bodies);
    Needs {
        int64: pairs || has(ScalarType::I64) || has(ScalarType::U64) || has(ScalarType::F64),
        float64: has(ScalarType::F64),
        ..Needs::default()
    }
}

/// A body whose functions of floats are arithmetic, and where its registers are now.
fn expanded(body: &Body) -> Result<(Body, Vec<Reg>)> {
    let mut out = Body::default();
    let mut map: Vec<Reg> = Vec::with_capacity(body.instructions().len());
    for Instruction { op, ty, args } in body.instructions() {
        let args: Vec<Reg> = args.iter().map(|reg| map[reg.0 as usize]).collect();
        map.push(match *op {
            ScalarOp::Math(function) => math::expand(&mut out, function, &args)?,
            op => out.push(op, *ty, &args),
        });
    }
    Ok((out, map))
}

/// Where an operand of a kernel is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Where {
    /// In the array of this number.
    Array(u32),
    /// In the memory of a workgroup or of an invocation (`sequence`).
    Own,
}

struct Writer<'a> {
    form: &'a Form,
    layout: Layout,
    text: String,
    /// Invocations of a workgroup.
    lanes: u32,
    /// Where each operand is.
    operands: Vec<Where>,
}

impl<'a> Writer<'a> {
    /// For a kernel whose words begin there, with operands there, or an array each.
    fn new(form: &'a Form, begin: usize, lanes: u32, operands: Option<&[Where]>) -> Writer<'a> {
        let operands = match operands {
            Some(operands) => operands.to_vec(),
            None => (0..form.kernel.operands.len() as u32).map(Where::Array).collect(),
        };
        Writer { form, layout: Layout::new(form, begin), text: String::new(), lanes, operands }
    }

    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn head(&mut self, functions: String) {
        self.line("var<private> zero: u32;");
        self.text.push_str(&fold::declared(&fold::shared([self.form]), self.lanes));
        self.text.push_str(&functions);
    }

    /// A word of the head of the launch.
    fn word(&self, at: usize) -> String {
        format!("n[{}]", self.layout.begin + at)
    }

    /// A word of the launch as `i32`.
    fn number(at: usize) -> String {
        format!("bitcast<i32>(n[{at}])")
    }

    /// The indices of some loops, of which `from` is the row-major number, which is one of theirs: so the first index
    /// is what the others leave.
    fn indices(&mut self, axes: &[usize], from: &str) {
        let Some((&first, others)) = axes.split_first() else { return };
        self.line(format!("var rest = {from};"));
        for &axis in others.iter().rev() {
            let extent = format!("n[{}]", self.layout.extents + axis);
            if self.is_wide(axis) {
                self.groups(axis, &extent);
            } else {
                self.line(format!("i{axis} = bitcast<i32>(rest % {extent}); rest = rest / {extent};"));
            }
        }
        let together = if self.is_wide(first) { wide::TOGETHER } else { 1 };
        self.line(format!("i{first} = bitcast<i32>(rest * {together}u);"));
    }

    fn invocation(&mut self, main: &(Body, Vec<Reg>), epilogue: &(Body, Vec<Reg>)) -> Result<()> {
        let form = self.form;
        self.line(format!("@compute @workgroup_size({WORKGROUP})"));
        if form.fold.is_shared() {
            self.line("fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {");
            self.line(format!("let whole = id.x + id.y * {MOST_GROUPS}u;"));
            self.line(format!("let number = whole / n[{SEGMENTS}];\nlet segment = whole % n[{SEGMENTS}];"));
        } else {
            self.line("fn main(@builtin(global_invocation_id) id: vec3<u32>) {");
            match form.fold {
                // Neighbours have the same segment of neighbouring indices.
                Fold::SegmentsEach => {
                    self.line(numbered().replace("let number", "let whole"));
                    self.line(format!(
                        "let segment = whole / n[{INDICES}];\nlet number = whole % n[{INDICES}];"
                    ));
                    self.line(format!("if segment >= n[{SEGMENTS}] {{ return; }}"));
                }
                _ => self.line(numbered()),
            }
        }
        self.line(format!("zero = n[0];\nif number >= n[{INDICES}] {{ return; }}"));
        for axis in 0..form.kernel.axes.len() {
            self.line(format!("var i{axis} = 0;"));
        }
        self.indices(&form.outer(), "number");
        match form.fold {
            Fold::None => match &form.wide {
                Some(wide) => self.group(main, wide)?,
                None => self.stage(Stage::Main, main, &[])?,
            },
            Fold::Each => self.fold(main)?,
            Fold::SegmentsEach => {
                self.fold(main)?;
                self.store_partials()?;
                self.line("}");
                return Ok(());
            }
            Fold::Together | Fold::Segments => {
                self.fold_together(main)?;
                self.line("if local.x != 0u { return; }");
                if form.fold == Fold::Segments {
                    self.store_partials()?;
                    self.line("}");
                    return Ok(());
                }
                self.results()?;
            }
            Fold::Finish => self.finish()?,
        }
        self.stage(Stage::Epilogue, epilogue, &form.kernel.accumulators)?;
        self.line("}");
        Ok(())
    }

    /// The instructions of a stage, and its stores.
    fn stage(&mut self, stage: Stage, code: &(Body, Vec<Reg>), accumulators: &[Accumulator]) -> Result<()> {
        let stores: Vec<usize> = (0..self.form.kernel.stores.len())
            .filter(|&n| self.form.kernel.stores[n].stage == stage)
            .collect();
        if stores.is_empty() {
            return Ok(());
        }
        let wanted: Vec<Reg> = stores
            .iter()
            .flat_map(|&n| registers(self.form.kernel.stores[n].value))
            .map(|reg| code.1[reg.0 as usize])
            .collect();
        self.instructions(stage, &code.0, &wanted, accumulators)?;
        self.stores(stage, &stores, &code.1)
    }

    fn stores(&mut self, stage: Stage, stores: &[usize], map: &[Reg]) -> Result<()> {
        for &number in stores {
            let store = self.form.kernel.stores[number];
            let dtype = self.form.kernel.operands[store.operand as usize].dtype;
            let at = self.layout.stores[number];
            let element = self.element(at);
            let parts = match store.value {
                Value::Real(reg) => vec![reg],
                Value::Complex(re, im) => vec![re, im],
            };
            for (part, reg) in (0u8..).zip(parts) {
                let value = name(stage, map[reg.0 as usize]);
                let statement = match self.operands[store.operand as usize] {
                    Where::Array(_) if self.is_vector(store.operand) => {
                        wide::store(number, dtype, part, &value)?
                    }
                    Where::Array(array) => types::store(array, dtype, part, &element, &value)?,
                    Where::Own => own::store(dtype, part, &element, &value)?,
                };
                self.line(statement);
            }
        }
        Ok(())
    }

    /// Where a view is at the indices.
    fn element(&self, at: usize) -> String {
        let axes = 0..self.form.kernel.axes.len();
        let terms = axes.map(|axis| format!(" + i{axis} * {}", Self::number(self.layout.stride(at, axis))));
        format!("({}{})", Self::number(at), terms.collect::<String>())
    }

    /// Defines the registers that these need.
    fn instructions(
        &mut self,
        stage: Stage,
        body: &Body,
        wanted: &[Reg],
        accumulators: &[Accumulator],
    ) -> Result<()> {
        let instructions = body.instructions();
        let mut needed = vec![false; instructions.len()];
        wanted.iter().for_each(|reg| needed[reg.0 as usize] = true);
        for (index, instruction) in instructions.iter().enumerate().rev() {
            if needed[index] {
                instruction.args.iter().for_each(|arg| needed[arg.0 as usize] = true);
            }
        }
        for (index, instruction) in instructions.iter().enumerate().filter(|(index, _)| needed[*index]) {
            let own = name(stage, Reg(index as u32));
            let args: Vec<String> = instruction.args.iter().map(|&arg| name(stage, arg)).collect();
            let text = match instruction.op {
                ScalarOp::Input { operand, .. } if operand as usize >= self.form.kernel.loads.len() => {
                    let number = operand as usize - self.form.kernel.loads.len();
                    if number >= accumulators.len() {
                        return Err(internal_error!("input {operand} of a stage without accumulators"));
                    }
                    format!("a{number}")
                }
                ScalarOp::Input { operand, part } => {
                    let indices: Vec<ScalarType> =
                        instruction.args.iter().map(|&arg| body.type_of(arg)).collect();
                    self.input(&own, (operand as usize, part), instruction.ty, &args, &indices)?;
                    continue;
                }
                ScalarOp::Index { axis } if instruction.ty == ScalarType::I32 => format!("i{axis}"),
                ScalarOp::Index { axis } => format!("i64(i{axis})"),
                ScalarOp::Param { index } => self.param(index as usize, instruction.ty),
                _ => computed(body, instruction, &args)?,
            };
            self.line(format!("let {own}: {} = {text};", register(instruction.ty)));
        }
        Ok(())
    }

    fn param(&self, index: usize, ty: ScalarType) -> String {
        let at = self.layout.params + 2 * index;
        let (low, high) = (format!("n[{at}]"), format!("n[{}]", at + 1));
        match ty {
            ScalarType::I8 => format!("((bitcast<i32>({low}) << 24u) >> 24u)"),
            ScalarType::I16 => format!("((bitcast<i32>({low}) << 16u) >> 16u)"),
            _ => types::from_words(ty, &low, &high),
        }
    }

    /// Defines a register as an element that a load reads.
    fn input(
        &mut self,
        own: &str,
        (load, part): (usize, u8),
        ty: ScalarType,
        args: &[String],
        indices: &[ScalarType],
    ) -> Result<()> {
        let kernel = &self.form.kernel;
        let what = kernel.loads[load];
        let operand = kernel.operands[what.operand as usize];
        let (at, guarded) = (self.layout.loads[load], self.form.guarded[load]);
        if self.is_vector(what.operand) {
            let value = wide::load(load, operand.dtype, part)?;
            self.line(format!("let {own}: {} = {value};", register(ty)));
            return Ok(());
        }
        let mut element = self.element(at);
        for (number, (arg, &index)) in args.iter().zip(indices).enumerate() {
            let (stride, last) = self.layout.jump(at, guarded, number);
            let (last, ty) = (Self::number(last), register(index));
            let _ = write!(element, " + i32(clamp({arg}, {ty}(0), {ty}({last}))) * {}", Self::number(stride));
        }
        let value = match self.operands[what.operand as usize] {
            Where::Array(array) => types::load(array, operand.dtype, part, &element)?,
            Where::Own => own::load(operand.dtype, part, &element)?,
        };
        let name = register(ty);
        if !guarded {
            self.line(format!("let {own}: {name} = {value};"));
            return Ok(());
        }
        let fill = self.fill(what.fill, part, ty)?;
        let inside: Vec<String> = (0..kernel.axes.len())
            .map(|axis| {
                let (low, high) = self.layout.guard(at, axis);
                format!("i{axis} >= {} && i{axis} < {}", Self::number(low), Self::number(high))
            })
            .collect();
        self.line(format!("var {own}: {name} = {fill};"));
        self.line(format!("if {} {{ {own} = {value}; }}", inside.join(" && ")));
        Ok(())
    }

    fn fill(&self, fill: Option<Scalar>, part: u8, ty: ScalarType) -> Result<String> {
        let Some(fill) = fill else { return Ok(ops::constant(ty, 0)) };
        let mut body = Body::default();
        let value = body.literal(fill);
        let parts = registers(value);
        let reg = parts.get(usize::from(part)).ok_or_else(|| internal_error!("a fill has no part {part}"))?;
        match body.instructions()[reg.0 as usize].op {
            ScalarOp::Const { bits } => Ok(ops::constant(ty, bits)),
            _ => Err(internal_error!("a fill that is no constant")),
        }
    }
}

/// What an instruction computes of these registers.
fn computed(body: &Body, instruction: &Instruction, args: &[String]) -> Result<String> {
    let from: Vec<ScalarType> = instruction.args.iter().map(|&arg| body.type_of(arg)).collect();
    let opaque = |(position, text): (usize, &String)| match may_cancel(body, instruction, position) {
        true => ops::opaque(instruction.ty, text),
        false => text.clone(),
    };
    let args: Vec<String> = args.iter().enumerate().map(opaque).collect();
    ops::expression(instruction, &from, &args)
}

/// A body as a function of its inputs.
fn function(called: &str, body: &Body, result: Reg, inputs: &[(&str, ScalarType)]) -> Result<String> {
    let (body, map) = expanded(body)?;
    let parameters: Vec<String> =
        inputs.iter().map(|(input, ty)| format!("{input}: {}", register(*ty))).collect();
    let result = map[result.0 as usize];
    let mut text =
        format!("fn {called}({}) -> {} {{\n", parameters.join(", "), register(body.type_of(result)));
    for (index, instruction) in body.instructions().iter().enumerate() {
        let args: Vec<String> = instruction.args.iter().map(|&arg| name(Stage::Main, arg)).collect();
        let value = match instruction.op {
            ScalarOp::Input { operand, .. } => match inputs.get(operand as usize) {
                Some((input, _)) => (*input).to_string(),
                None => return Err(internal_error!("{called} has no input {operand}")),
            },
            _ => computed(&body, instruction, &args)?,
        };
        let own = name(Stage::Main, Reg(index as u32));
        let _ = writeln!(text, "let {own}: {} = {value};", register(instruction.ty));
    }
    let _ = writeln!(text, "return {};\n}}", name(Stage::Main, result));
    Ok(text)
}

/// Whether drivers may take an instruction for something simpler that is not the same: `(a + b) - b` for `a`, where
/// numbers are rounded by just that and what roundings lost is found (Dekker, A Floating-Point Technique for
/// Extending the Available Precision, 1971), and `a - a` or `a / a` for a number, where it may be NaN.
fn may_cancel(body: &Body, instruction: &Instruction, position: usize) -> bool {
    let is_sum = |op: ScalarOp| matches!(op, ScalarOp::Add | ScalarOp::Sub | ScalarOp::Fma);
    let Instruction { op, ty, args } = instruction;
    let of = |reg: Reg| &body.instructions()[reg.0 as usize];
    let inner = |reg: Reg| if of(reg).op == ScalarOp::Neg { of(reg).args[0] } else { reg };
    let (own, others) = (args[position], args.iter().enumerate().filter(|(other, _)| *other != position));
    let mut others = others.map(|(_, &other)| other);
    let same = position == 0 && matches!(op, ScalarOp::Add | ScalarOp::Sub | ScalarOp::Div);
    let undone = is_sum(*op) && is_sum(of(own).op);
    ty.is_float()
        && others.any(|other| {
            (same && inner(other) == inner(own))
                || (undone && of(own).args.iter().any(|&arg| inner(arg) == inner(other)))
        })
}

/// A register in the text.
fn name(stage: Stage, reg: Reg) -> String {
    match stage {
        Stage::Main => format!("m{}", reg.0),
        Stage::Epilogue => format!("e{}", reg.0),
    }
}
