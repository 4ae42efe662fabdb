//! `checkpoint`: a call whose intermediate values are computed again for the
//! derivative instead of being kept.

use std::sync::Arc;

use super::control::check_arguments;
use crate::interpret;
use crate::rules::{Row, Types};
use crate::{Effects, Op, Param, Program, Result, Tensor, ToParam, Type, op_struct, type_error};

/// Which intermediate values a checkpointed call keeps for its derivative.
pub trait Policy: std::fmt::Debug + Send + Sync {
    fn name(&self) -> String;

    /// Whether the outputs of `op`, applied to inputs of these types, are kept.
    fn saves(&self, op: &Op, inputs: &[Type]) -> Result<bool>;
}

/// A [`Policy`], or none: nothing is kept but the inputs. Two are equal if they
/// are the same object.
#[derive(Clone, Debug, Default)]
pub struct PolicyHandle(pub Option<Arc<dyn Policy>>);

impl PartialEq for PolicyHandle {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for PolicyHandle {}

impl std::hash::Hash for PolicyHandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.as_ref().map(|policy| Arc::as_ptr(policy).cast::<()>()).hash(state);
    }
}

impl ToParam for PolicyHandle {
    fn to_param(&self) -> Param {
        match &self.0 {
            None => Param::None,
            Some(_) => Param::Policy(self.clone()),
        }
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::None => Ok(PolicyHandle(None)),
            Param::Policy(policy) => Ok(policy),
            other => Err(type_error!("expected a policy, got {other:?}")),
        }
    }
}

op_struct! {
    /// Calls a program whose derivative computes it again. `differentiated` marks the
    /// second computation.
    Checkpoint "checkpoint" {
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
