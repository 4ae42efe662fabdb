//! Functions whose derivatives the user gives.
//!
//! The rules are handles: a transformation asks them for a program when it
//! first needs one, for a rule may call the function that it belongs to. What
//! they give has no effect on the meaning of the function itself, which is the
//! sub-program.

use std::sync::Arc;

use smallvec::SmallVec;

use super::control::check_arguments;
use super::derive::{Cotangents, Tangents};
use super::saved_rules::{SavedJvp, SavedVjp};
use crate::interpret;
use crate::rules::{Batch, Batched, Jvp, Lowering, Row, Rules, Transpose, Types};
use crate::{
    Atom, Builder, Effects, Error, Param, Program, Result, Tensor, ToParam, Type, internal_error, op_struct,
    type_error,
};

/// A program with a flag for each of some of its values.
pub type FlaggedProgram = (Arc<Program>, Arc<[bool]>);

/// The user's forward derivative of a function.
pub trait JvpRule: std::fmt::Debug + Send + Sync {
    /// What messages and texts call it.
    fn name(&self) -> String;

    /// The program from the inputs of the call and the tangents of those flagged
    /// in `nonzero`, to the outputs and the tangents of the outputs flagged in
    /// what comes with it.
    fn program(&self, nonzero: &[bool]) -> Result<FlaggedProgram>;

    /// The error where a captured value has a tangent.
    fn closed_over(&self) -> Error {
        closed_over("custom_jvp", &self.name())
    }

    /// The rule as data, if it is that.
    fn saved(&self) -> Option<&SavedJvp> {
        None
    }
}

/// The user's reverse derivative of a function.
pub trait VjpRule: std::fmt::Debug + Send + Sync {
    /// What messages and texts call it.
    fn name(&self) -> String;

    /// The program from the inputs of the call to the outputs and then residuals,
    /// when the inputs flagged in `perturbed` are differentiated in.
    fn forward(&self, perturbed: &[bool]) -> Result<Arc<Program>>;

    /// The program from the residuals and cotangents of outputs to the cotangents
    /// of the inputs flagged in what comes with it: inputs in `perturbed` at
    /// most. `given` says for each output of inexact dtype whether it has one.
    fn backward(&self, perturbed: &[bool], given: &[bool]) -> Result<FlaggedProgram>;

    /// Whether the function is called, not the forward rule, where nobody keeps the rule's residuals.
    fn optimize_remat(&self) -> bool;

    /// The error where a captured value has a tangent.
    fn closed_over(&self) -> Error {
        closed_over("custom_vjp", &self.name())
    }

    /// The rule as data, if it is that.
    fn saved(&self) -> Option<&SavedVjp> {
        None
    }
}

fn closed_over(kind: &str, name: &str) -> Error {
    type_error!(
        "the {kind} function '{name}' closes over a value that is being differentiated; its rule gives no derivative \
         with respect to that value. Pass the value as an argument of the function."
    )
}

macro_rules! rule_handle {
    ($(#[$meta:meta])* $name:ident, $rule:ident, $saved:ident, $variant:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name(pub Arc<dyn $rule>);

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
                    || matches!((self.0.saved(), other.0.saved()), (Some(a), Some(b)) if a == b)
            }
        }

        impl Eq for $name {}

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                match self.0.saved() {
                    Some(saved) => saved.name.hash(state),
                    None => Arc::as_ptr(&self.0).cast::<()>().hash(state),
                }
            }
        }

        impl ToParam for $name {
            fn to_param(&self) -> Param {
                self.0.saved().map_or_else(|| Param::$variant(self.clone()), ToParam::to_param)
            }

            fn from_param(value: Param) -> Result<Self> {
                match value {
                    Param::$variant(rule) => Ok(rule),
                    other => Ok($name(Arc::new($saved::from_param(other)?))),
                }
            }
        }
    };
}

rule_handle! {
    /// A [`JvpRule`]; two are equal if they are the same object or the same data.
    JvpHandle, JvpRule, SavedJvp, Jvp
}
rule_handle! {
    /// A [`VjpRule`]; two are equal if they are the same object or the same data.
    VjpHandle, VjpRule, SavedVjp, Vjp
}

op_struct! {
    /// Calls a program that has a forward derivative of its own. The first inputs,
    /// `num_consts` of them, are captured values, which are not differentiated in.
    CustomJvp "custom_jvp_call" {
        call_jaxpr: Arc<Program>,
        jvp_jaxpr_fun: JvpHandle,
        num_consts: usize,
        symbolic_zeros: bool,
    }
}

op_struct! {
    /// Calls a program that has a reverse derivative of its own. The first inputs,
    /// `num_consts` of them, are captured values, which are not differentiated in.
    CustomVjp "custom_vjp_call" {
        call_jaxpr: Arc<Program>,
        num_consts: usize,
        rule: VjpHandle,
        symbolic_zeros: bool,
    }
}

op_struct! {
    /// The linear map that a reverse derivative of the user's is the transpose of:
    /// residuals, then tangents of the inputs in `perturbed`, to tangents of the
    /// outputs of inexact dtype. It can be transposed but not evaluated.
    CustomLinear "custom_lin" {
        num_res: usize,
        outputs: Vec<ZeroLike>,
        perturbed: Vec<bool>,
        rule: VjpHandle,
        symbolic_zeros: bool,
    }
}

/// The type of an output of [`CustomLinear`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ZeroLike(pub crate::ArrayType);

impl ToParam for ZeroLike {
    fn to_param(&self) -> Param {
        Param::List(vec![self.0.shape.to_param(), self.0.dtype.to_param()])
    }

    fn from_param(value: Param) -> Result<Self> {
        let Param::List(items) = value else { return Err(type_error!("expected (shape, dtype)")) };
        let [shape, dtype]: [Param; 2] =
            items.try_into().map_err(|_| type_error!("expected (shape, dtype)"))?;
        Ok(ZeroLike(crate::ArrayType::new(crate::Shape::from_param(shape)?, ToParam::from_param(dtype)?)))
    }
}

macro_rules! calling_row {
    ($name:ident, $what:literal, $rule:ident) => {
        impl Row for $name {
            row_identity!();

            fn infer(&self, inputs: &[Type]) -> Result<Types> {
                check_arguments($what, &self.call_jaxpr, inputs.iter())?;
                if self.num_consts > inputs.len() {
                    return Err(type_error!(
                        "{} has {} inputs, which are fewer than its {} captured values",
                        self.name(),
                        inputs.len(),
                        self.num_consts
                    ));
                }
                if let Some(saved) = self.$rule.0.saved() {
                    saved.check(&self.call_jaxpr)?;
                }
                Ok(self.call_jaxpr.output_types().collect())
            }

            fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
                interpret::run(&self.call_jaxpr, inputs)
            }

            fn effects(&self) -> Effects {
                self.call_jaxpr.effects.clone()
            }
        }
    };
}

calling_row!(CustomJvp, "custom_jvp function", jvp_jaxpr_fun);
calling_row!(CustomVjp, "custom_vjp function", rule);

impl CustomLinear {
    /// Why the map cannot be evaluated.
    fn forward_only<T>(&self) -> Result<T> {
        Err(type_error!(
            "can't apply forward-mode differentiation (jvp) to a custom_vjp function: '{}' has a reverse rule only. \
             Use reverse mode (grad, vjp, jacrev), or define the derivative with custom_jvp, which serves both.",
            self.rule.0.name()
        ))
    }
}

impl Row for CustomLinear {
    row_identity!();

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        let tangents = self.perturbed.iter().filter(|flag| **flag).count();
        if inputs.len() != self.num_res + tangents {
            return Err(type_error!(
                "custom_lin takes {} residuals and {tangents} tangents, got {} inputs",
                self.num_res,
                inputs.len()
            ));
        }
        Ok(self.outputs.iter().map(|ty| ty.0.clone().into()).collect())
    }

    fn eval(&self, _: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
        self.forward_only()
    }
}

impl Rules for CustomLinear {
    /// The map is linear in its tangents; residuals that have tangents would need
    /// the derivative of the rule in them, which the forward direction does not have.
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<Tangents> {
        self.forward_only()
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let (residuals, tangents) = eqn.inputs.split_at(self.num_res);
        let residuals: Vec<Atom> = residuals
            .iter()
            .map(|operand| {
                operand.known().ok_or_else(|| {
                    type_error!("the derivative of '{}' is not linear in its residuals", self.rule.0.name())
                })
            })
            .collect::<Result<_>>()?;
        let mut given: Vec<bool> = eqn.cotangents.iter().map(Option::is_some).collect();
        let mut cotangents: Vec<Atom> = Vec::with_capacity(given.len());
        for (flag, (cotangent, ty)) in given.iter_mut().zip(eqn.cotangents.iter().zip(&self.outputs)) {
            match cotangent {
                Some(atom) => cotangents.push(*atom),
                None if self.symbolic_zeros => {}
                None => {
                    *flag = true;
                    cotangents.push(b.zeros(&ty.0)?);
                }
            }
        }
        let (program, flags) = self.rule.0.backward(&self.perturbed, &given)?;
        let arguments: Vec<Atom> = residuals.iter().copied().chain(cotangents).collect();
        if program.inputs.len() != arguments.len() || flags.len() != self.perturbed.len() {
            return Err(internal_error!("the reverse rule of '{}' has other inputs", self.rule.0.name()));
        }
        let mut found = b.inline(&program, &arguments)?.into_iter();
        let all: Vec<Option<Atom>> =
            flags.iter().map(|&flag| if flag { found.next() } else { None }).collect();
        let perturbed = self.perturbed.iter().zip(all).filter(|(flag, _)| **flag).map(|(_, ct)| ct);
        let tangents = tangents.iter().zip(perturbed).map(|(operand, ct)| ct.filter(|_| operand.is_linear()));
        let known = residuals.iter().map(|_| None);
        Ok(known.chain(tangents).collect::<SmallVec<_>>())
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        self.forward_only()
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, _: &mut Builder, _: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        self.forward_only()
    }
}
