//! `jit`: a call of a sub-program. Its transformation rules act on the
//! sub-program and are in the transformations.

use std::sync::Arc;

use crate::rules::{Row, Types};
use crate::{Effects, Param, Program, Result, Tensor, Type, op_struct, type_error};

op_struct! {
    /// Calls a program; what a jitted function becomes inside another.
    Call "jit" {
        name: Arc<str>,
        program: Arc<Program>,
        inline: bool,
    }
}

impl Row for Call {
    fn name(&self) -> &str {
        Call::NAME
    }

    fn params(&self) -> Vec<(&'static str, Param)> {
        self.param_list()
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let expected = self.program.input_types();
        let same = expected.len() == inputs.len()
            && expected.zip(inputs).all(|(want, got)| match (want, got) {
                (Type::Array(want), Type::Array(got)) => want.shape == got.shape && want.dtype == got.dtype,
                _ => want == got,
            });
        if !same {
            let show = |types: Vec<String>| types.join(", ");
            return Err(type_error!(
                "call of '{}' expected ({}), got ({})",
                self.name,
                show(self.program.input_types().map(Type::to_string).collect()),
                show(inputs.iter().map(Type::to_string).collect())
            ));
        }
        Ok(self.program.output_types().collect())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        crate::interpret::run(&self.program, inputs)
    }

    fn effects(&self) -> Effects {
        self.program.effects.clone()
    }
}
