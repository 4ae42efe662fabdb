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

    /// The policy as data, if it is no more than that: what texts and files have.
    fn data(&self) -> Option<Param> {
        None
    }
}

/// A [`Policy`], or none: nothing is kept but the inputs. Two are equal if they
/// are the same object or the same data.
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
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.data().zip(b.data()).is_some_and(|(a, b)| a == b),
            _ => false,
        }
    }
}

impl Eq for PolicyHandle {}

impl std::hash::Hash for PolicyHandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match &self.0 {
            None => {}
            Some(policy) if policy.data().is_some() => policy.name().hash(state),
            Some(policy) => Arc::as_ptr(policy).cast::<()>().hash(state),
        }
    }
}

impl ToParam for PolicyHandle {
    fn to_param(&self) -> Param {
        match &self.0 {
            None => Param::None,
            Some(policy) => policy.data().unwrap_or_else(|| Param::Policy(self.clone())),
        }
    }

    fn from_param(value: Param) -> Result<Self> {
        match value {
            Param::None => Ok(PolicyHandle(None)),
            Param::Policy(policy) => Ok(policy),
            data => Saveable::from_data(data).map(PolicyHandle::new),
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

impl Saveable {
    /// JAX's name of the policy or of the function that makes it.
    fn kind(&self) -> &'static str {
        match self {
            Saveable::Everything => "everything_saveable",
            Saveable::Nothing => "nothing_saveable",
            Saveable::Dots => "dots_saveable",
            Saveable::DotsWithoutBatch => "dots_with_no_batch_dims_saveable",
            Saveable::Names(_) => "save_only_these_names",
            Saveable::OtherNames(_) => "save_any_names_but_these",
            Saveable::Either(..) => "save_from_both_policies",
        }
    }

    /// What [`Policy::data`] gave.
    fn from_data(data: Param) -> Result<Saveable> {
        let (kind, arguments) = match &data {
            Param::Str(kind) => (kind, &[][..]),
            Param::List(items) => match items.split_first() {
                Some((Param::Str(kind), arguments)) => (kind, arguments),
                _ => return Err(type_error!("expected a policy, got {data:?}")),
            },
            _ => return Err(type_error!("expected a policy, got {data:?}")),
        };
        let names = || arguments.iter().cloned().map(ToParam::from_param).collect::<Result<_>>();
        Ok(match (&**kind, arguments) {
            ("everything_saveable", []) => Saveable::Everything,
            ("nothing_saveable", []) => Saveable::Nothing,
            ("dots_saveable", []) => Saveable::Dots,
            ("dots_with_no_batch_dims_saveable", []) => Saveable::DotsWithoutBatch,
            ("save_only_these_names", _) => Saveable::Names(names()?),
            ("save_any_names_but_these", _) => Saveable::OtherNames(names()?),
            ("save_from_both_policies", [a, b]) => {
                Saveable::Either(ToParam::from_param(a.clone())?, ToParam::from_param(b.clone())?)
            }
            _ => return Err(type_error!("there is no policy {data:?}")),
        })
    }
}

impl Policy for Saveable {
    fn name(&self) -> String {
        let call = |arguments: Vec<String>| format!("{}({})", self.kind(), arguments.join(", "));
        let inner =
            |policy: &PolicyHandle| policy.0.as_ref().map_or("None".to_owned(), |policy| policy.name());
        match self {
            Saveable::Names(names) | Saveable::OtherNames(names) => {
                call(names.iter().map(|name| name.to_string()).collect())
            }
            Saveable::Either(a, b) => call(vec![inner(a), inner(b)]),
            _ => self.kind().to_owned(),
        }
    }

    fn data(&self) -> Option<Param> {
        let kind = Param::Str(self.kind().into());
        let arguments: Vec<Param> = match self {
            Saveable::Names(names) | Saveable::OtherNames(names) => {
                names.iter().map(|name| Param::Str(name.clone())).collect()
            }
            Saveable::Either(a, b) => vec![a.to_param(), b.to_param()],
            _ => return Some(kind),
        };
        let is_data = |param: &Param| !matches!(param, Param::Policy(_));
        arguments
            .iter()
            .all(is_data)
            .then(|| Param::List(std::iter::once(kind).chain(arguments.iter().cloned()).collect()))
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
