//! `jit`: a call of a sub-program. Its transformation rules act on the
//! sub-program and are in the transformations.

use std::sync::Arc;

use super::control::check_arguments;
use crate::rules::{Row, Types};
use crate::{Effects, Param, Program, Result, Tensor, Type, op_struct};

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
        check_arguments("call of", &self.program, inputs.iter())?;
        Ok(self.program.output_types().collect())
    }

    fn eval(&self, inputs: &[Tensor], _outputs: &[Type]) -> Result<Vec<Tensor>> {
        crate::interpret::run(&self.program, inputs)
    }

    fn effects(&self) -> Effects {
        self.program.effects.clone()
    }
}
