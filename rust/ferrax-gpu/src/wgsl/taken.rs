//! Kernels that products take in (`ferrax_compile::launches`), as functions: of the number of an operand's element,
//! which they compute, and of the number and the value of a result's element, of which they write what they make.
//!
//! In: a [`TakenForm`], and how many words come before the kernel's. Out: the text of a function. Cost: linear in the
//! kernel.

use std::fmt::Write;

use ferrax_compile::{Stage, registers};
use ferrax_ir::scalar::{Reg, ScalarOp, ScalarType, Value};
use ferrax_ir::{DType, Result};

use super::numbers::{Form, Layout};
use super::{WORKGROUP, Writer, expanded, name, ops};

/// What functions of a kernel depend on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TakenForm {
    pub form: Form,
    /// The loops whose indices are the digits of the number of an element, the highest first.
    pub order: Vec<usize>,
    /// What an operand's element is.
    pub value: Value,
}

impl TakenForm {
    /// Whether its code has a type of registers.
    pub fn has(&self, ty: ScalarType) -> bool {
        let kernel = &self.form.kernel;
        let bodies = [&kernel.body, &kernel.epilogue];
        bodies.iter().any(|body| body.instructions().iter().any(|instruction| instruction.ty == ty))
    }

    /// How many words there are after its own, given those before.
    pub fn end(&self, before: usize) -> usize {
        Layout::new(&self.form, before).end
    }

    /// A writer at the point where the indices are known.
    fn indices(&self, before: usize) -> Writer<'_> {
        let mut writer = Writer::new(&self.form, before, WORKGROUP, None);
        writer.line("    var rest = bitcast<u32>(at);");
        for axis in (0..self.form.kernel.axes.len()).filter(|axis| !self.order.contains(axis)) {
            writer.line(format!("let i{axis} = 0;"));
        }
        for (place, &axis) in self.order.iter().enumerate().rev() {
            let extent = format!("n[{}]", writer.layout.extents + axis);
            writer.line(match place {
                0 => format!("let i{axis} = bitcast<i32>(rest);"),
                _ => format!("let i{axis} = bitcast<i32>(rest % {extent}); rest = rest / {extent};"),
            });
        }
        writer
    }

    /// The function `called` of the number `at` of an element: what it is.
    pub fn element(&self, called: &str, before: usize) -> Result<String> {
        let (body, map) = expanded(&self.form.kernel.body)?;
        let mut writer = self.indices(before);
        let parts: Vec<Reg> = registers(self.value).iter().map(|reg| map[reg.0 as usize]).collect();
        writer.instructions(Stage::Main, &body, &parts, &[])?;
        let part = |reg: &Reg| {
            let own = name(Stage::Main, *reg);
            let instruction = &body.instructions()[reg.0 as usize];
            // What the product does with it is not to be merged with how it was computed.
            match instruction.ty.is_float() && !matches!(instruction.op, ScalarOp::Input { .. }) {
                true => ops::opaque(instruction.ty, &own),
                false => own,
            }
        };
        let parts: Vec<String> = parts.iter().map(part).collect();
        Ok(format!(
            "fn {called}(at: i32) -> Element {{\n{}return Element({});\n}}\n",
            writer.text,
            parts.join(", ")
        ))
    }

    /// The function `called` of the number `at` and the value of an element: writes what is made of it.
    pub fn stores(&self, called: &str, dtype: DType, before: usize) -> Result<String> {
        let epilogue = expanded(&self.form.kernel.epilogue)?;
        let mut writer = self.indices(before);
        let real = ScalarType::of(dtype.real())?;
        for part in 0..dtype.parts() {
            let value = match (dtype.is_complex(), part) {
                (false, _) => "value",
                (true, 0) => "value.x",
                (true, _) => "value.y",
            };
            let value = if real.is_float() { ops::opaque(real, value) } else { value.to_string() };
            let _ = writeln!(writer.text, "let a{part} = {value};");
        }
        writer.stage(Stage::Epilogue, &epilogue, &self.form.kernel.accumulators)?;
        Ok(format!("fn {called}(at: i32, value: Element) {{\n{}}}\n", writer.text))
    }
}
