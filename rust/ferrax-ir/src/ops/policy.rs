//! What a checkpointed call keeps for its derivative: policies, and those that
//! have names.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{Op, Param, Result, ToParam, Type, type_error};

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

impl PolicyHandle {
    pub fn new(policy: impl Policy + 'static) -> PolicyHandle {
        PolicyHandle(Some(Arc::new(policy)))
    }

    /// Whether the outputs of `op`, applied to inputs of these types, are kept.
    pub fn saves(&self, op: &Op, inputs: &[Type]) -> Result<bool> {
        self.0.as_ref().map_or(Ok(false), |policy| policy.saves(op, inputs))
    }
}

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

/// The policies that need nothing of the user's but names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Saveable {
    Everything,
    Nothing,
    /// Products and convolutions.
    Dots,
    /// Products without batch axes.
    DotsWithoutBatch,
    /// Values under one of these names.
    Names(BTreeSet<Arc<str>>),
    /// Values under any other name.
    OtherNames(BTreeSet<Arc<str>>),
    /// What one of two policies saves.
    Either(PolicyHandle, PolicyHandle),
}

impl Policy for Saveable {
    fn name(&self) -> String {
        let call = |name: &str, names: &BTreeSet<Arc<str>>| {
            format!("{name}({})", names.iter().map(|name| &**name).collect::<Vec<_>>().join(", "))
        };
        let inner =
            |policy: &PolicyHandle| policy.0.as_ref().map_or("None".to_owned(), |policy| policy.name());
        match self {
            Saveable::Everything => "everything_saveable".to_owned(),
            Saveable::Nothing => "nothing_saveable".to_owned(),
            Saveable::Dots => "dots_saveable".to_owned(),
            Saveable::DotsWithoutBatch => "dots_with_no_batch_dims_saveable".to_owned(),
            Saveable::Names(names) => call("save_only_these_names", names),
            Saveable::OtherNames(names) => call("save_any_names_but_these", names),
            Saveable::Either(a, b) => format!("save_from_both_policies({}, {})", inner(a), inner(b)),
        }
    }

    fn saves(&self, op: &Op, inputs: &[Type]) -> Result<bool> {
        Ok(match (self, op) {
            (Saveable::Everything, _) => true,
            (Saveable::Nothing, _) => false,
            (Saveable::Dots, op) => matches!(op.name(), "dot_general" | "conv_general_dilated"),
            (Saveable::DotsWithoutBatch, Op::DotGeneral(dot)) => dot.lhs_batch.is_empty(),
            (Saveable::Names(names), Op::Name(op)) => names.contains(&op.name),
            (Saveable::OtherNames(names), Op::Name(op)) => !names.contains(&op.name),
            (Saveable::Either(a, b), op) => a.saves(op, inputs)? || b.saves(op, inputs)?,
            _ => false,
        })
    }
}
