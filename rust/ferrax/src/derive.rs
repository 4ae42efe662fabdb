//! Transformations of programs: derivatives and batches. Each gives a program
//! that takes and returns flat lists of arrays, in an order that its
//! documentation fixes.

use ferrax_ir::{ArrayType, Atom, Builder, Dim, Literal, Result, Scalar, type_error, value_error};
use ferrax_transform::OutDims;

use crate::{Program, Value};

fn names<'a>(values: impl IntoIterator<Item = &'a Value>, suffix: &str) -> Vec<String> {
    values.into_iter().map(|value| format!("{}{suffix}", value.name())).collect()
}

impl Program {
    /// Which inputs `argnums` selects; each has to be a float or complex array.
    fn selected(&self, what: &str, argnums: &[usize]) -> Result<Vec<bool>> {
        let inputs = self.inputs();
        let mut flags = vec![false; inputs.len()];
        for &argnum in argnums {
            let value = inputs.get(argnum).ok_or_else(|| {
                value_error!("{what}: '{}' has no input {argnum}, it has {}", self.name(), inputs.len())
            })?;
            if !value.dtype().is_inexact() {
                return Err(type_error!("{what}: input {value} is not differentiable; it needs floats"));
            }
            if std::mem::replace(&mut flags[argnum], true) {
                return Err(value_error!("{what}: input {argnum} is named twice"));
            }
        }
        Ok(flags)
    }

    /// Outputs that have derivatives.
    fn inexact_outputs(&self) -> impl Iterator<Item = &Value> {
        self.outputs().iter().filter(|value| value.dtype().is_inexact())
    }

    /// Forward-mode derivative in the inputs `argnums`.
    ///
    /// Takes the inputs, then a tangent for each of `argnums` in the order of the
    /// inputs. Gives the outputs, then a tangent for each output of floats.
    pub fn jvp(&self, argnums: &[usize]) -> Result<Program> {
        let flags = self.selected("jvp", argnums)?;
        let wanted: Vec<bool> = self.outputs().iter().map(|value| value.dtype().is_inexact()).collect();
        let (ir, _) = ferrax_transform::jvp_with(self.ir(), &flags, &wanted)?;
        let moved = self.inputs().iter().zip(&flags).filter(|(_, flag)| **flag).map(|(value, _)| value);
        let mut inputs = self.input_names();
        inputs.extend(names(moved, ".tangent"));
        let mut outputs = self.output_names();
        outputs.extend(names(self.inexact_outputs(), ".tangent"));
        self.derived(ir, inputs, outputs)
    }

    /// Reverse-mode derivative in the inputs `argnums`.
    ///
    /// Takes the inputs, then a cotangent for each output of floats. Gives the
    /// outputs, then a cotangent for each of `argnums` in that order.
    pub fn vjp(&self, argnums: &[usize]) -> Result<Program> {
        let flags = self.selected("vjp", argnums)?;
        let given: Vec<bool> = self.outputs().iter().map(|value| value.dtype().is_inexact()).collect();
        let mut ir = ferrax_transform::vjp_program(self.ir(), &flags, &given)?;
        let found = ir.outputs.split_off(self.outputs().len());
        ir.outputs.extend(reordered(&flags, argnums, &found));
        let mut inputs = self.input_names();
        inputs.extend(names(self.inexact_outputs(), ".cotangent"));
        let mut outputs = self.output_names();
        outputs.extend(names(argnums.iter().map(|&argnum| &self.inputs()[argnum]), ".cotangent"));
        self.derived(ir, inputs, outputs)
    }

    /// The output and its gradients in the inputs `argnums`, in that order. The
    /// program has to have one output, a float without dimensions.
    pub fn value_and_grad(&self, argnums: &[usize]) -> Result<Program> {
        let output = self.gradient_output()?;
        if let Some(value) = argnums
            .iter()
            .filter_map(|&argnum| self.inputs().get(argnum))
            .find(|value| value.dtype().is_complex())
        {
            return Err(type_error!("grad requires real-valued inputs, but {value} is complex; use vjp"));
        }
        let backward = self.vjp(argnums)?;
        let mut b = Builder::new(self.name());
        let mut arguments: Vec<Atom> =
            self.inputs().iter().map(|value| b.input(value.ty().clone())).collect();
        let one = Scalar::from_f64(output.dtype, 1.0);
        arguments.push(Atom::Literal(Literal { value: one, weak: output.weak }));
        let outputs = b.inline(backward.ir(), &arguments)?;
        let mut names = self.output_names();
        names.extend(argnums.iter().map(|&argnum| format!("{}.gradient", self.inputs()[argnum].name())));
        self.derived(b.finish(outputs), self.input_names(), names)
    }

    /// The gradients alone; see [`Program::value_and_grad`].
    pub fn grad(&self, argnums: &[usize]) -> Result<Program> {
        let both = self.value_and_grad(argnums)?;
        let mut ir = both.ir().clone();
        ir.outputs.remove(0);
        let names = both.output_names().split_off(1);
        self.derived(ferrax_transform::dce(&ir)?, self.input_names(), names)
    }

    fn gradient_output(&self) -> Result<&ArrayType> {
        match self.outputs() {
            [only] if only.dtype().is_float() && only.shape().is_empty() => Ok(only.ty()),
            [only] => Err(type_error!(
                "gradient only defined for functions with one scalar float output; '{}' gives {only}",
                self.name()
            )),
            many => Err(type_error!(
                "gradient only defined for functions with one output; '{}' has {}",
                self.name(),
                many.len()
            )),
        }
    }

    /// The program over `size` cases at once. `in_axes` says for each input where
    /// it gets the axis of the cases, `None` for inputs that all cases share.
    /// Outputs have that axis in front.
    pub fn vmap(&self, in_axes: &[Option<usize>], size: usize) -> Result<Program> {
        if in_axes.len() != self.inputs().len() {
            return Err(value_error!(
                "vmap: {} axes given for '{}', which has {} inputs",
                in_axes.len(),
                self.name(),
                self.inputs().len()
            ));
        }
        for (value, axis) in self.inputs().iter().zip(in_axes) {
            if let Some(axis) = axis.filter(|&axis| axis > value.shape().len()) {
                return Err(value_error!("vmap: there is no place {axis} for an axis in {value}"));
            }
        }
        let front = vec![Some(0); self.outputs().len()];
        let size = Dim::Const(size);
        let (ir, _) = ferrax_transform::batch(self.ir(), &size, in_axes, None, OutDims::Force(&front))?;
        self.derived(ir, self.input_names(), self.output_names())
    }
}

/// `found` has one entry for each flag that is set, in order; the result has
/// them as `argnums` names them.
fn reordered(flags: &[bool], argnums: &[usize], found: &[Atom]) -> Vec<Atom> {
    let place = |argnum: usize| flags[..argnum].iter().filter(|flag| **flag).count();
    argnums.iter().map(|&argnum| found[place(argnum)]).collect()
}
