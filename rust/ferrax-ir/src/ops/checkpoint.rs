//! `checkpoint`: a call whose intermediate values are computed again for the
//! derivative instead of being kept.

use std::sync::Arc;

use super::control::check_arguments;
use super::policy::PolicyHandle;
use crate::interpret;
use crate::rules::{Row, Types};
use crate::{Effects, Program, Result, Tensor, Type, op_struct};

op_struct! {
    /// Calls a program whose derivative computes it again. `differentiated` marks the
    /// second computation.
    Checkpoint "remat2" {
        differentiated: bool,
        jaxpr: Arc<Program>,
        policy: PolicyHandle,
        prevent_cse: bool,
    }
}

impl Row for Checkpoint {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        check_arguments("checkpointed function", &self.jaxpr, inputs.iter())?;
        Ok(self.jaxpr.output_types().collect())
    }

    fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        interpret::run(&self.jaxpr, inputs)
    }

    fn effects(&self) -> Effects {
        self.jaxpr.effects.clone()
    }
}
