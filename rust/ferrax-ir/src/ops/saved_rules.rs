//! Derivative rules as data: what a saved file holds of the user's.
//!
//! A rule is traced for all inputs of inexact dtype. Asked for fewer, it is
//! given zeros, or what is not asked for is left out. A rule without programs
//! stands where derivatives of that order were not saved.

use std::sync::Arc;

use smallvec::SmallVec;

use super::control::fits;
use super::custom::{FlaggedProgram, JvpRule, VjpHandle, VjpRule};
use crate::{Atom, Builder, Param, Program, Result, ToParam, Type, internal_error, type_error, unsupported};

/// A forward derivative.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedJvp {
    pub name: Arc<str>,
    /// The inputs that have tangents.
    pub nonzero: Vec<bool>,
    /// The outputs that have tangents.
    pub flags: Vec<bool>,
    /// As [`JvpRule::program`] for `nonzero`.
    pub program: Option<Arc<Program>>,
}

/// A reverse derivative.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedVjp {
    pub name: Arc<str>,
    /// The inputs that are differentiated in.
    pub perturbed: Vec<bool>,
    /// The inputs that have cotangents.
    pub flags: Vec<bool>,
    /// As [`VjpRule::forward`] and [`VjpRule::backward`] for `perturbed` and all cotangents.
    pub programs: Option<[Arc<Program>; 2]>,
    /// As [`VjpRule::optimize_remat`].
    pub optimize_remat: bool,
}

pub(super) fn not_saved<T>(name: &str) -> Result<T> {
    Err(unsupported!(
        "the derivative of '{name}' of this order was not saved: a file holds rules of the user's for derivatives up \
         to order {}, unless it is asked for more. Save the function again with the order that is needed: \
         exported.serialize(vjp_order=...), or export.save(path, exported, vjp_order=...).",
        crate::serial::RULE_ORDER
    ))
}

fn is_inexact(ty: &Type) -> bool {
    ty.as_array().is_some_and(|ty| ty.dtype.is_inexact())
}

fn tangent(ty: &Type) -> Option<Type> {
    ty.as_array().filter(|ty| ty.dtype.is_inexact()).map(|ty| ty.tangent().into())
}

/// The types where a flag is set.
fn flagged<'a>(
    types: impl Iterator<Item = Type> + 'a,
    flags: &'a [bool],
) -> impl Iterator<Item = Option<Type>> + 'a {
    types.zip(flags).filter(|(_, flag)| **flag).map(|(ty, _)| tangent(&ty))
}

/// Fails unless a rule's program has these inputs and outputs; `None` is where
/// a type has no tangent.
fn check_rule(
    name: &str,
    what: &str,
    got: impl ExactSizeIterator<Item = Type>,
    expected: Vec<Option<Type>>,
) -> Result<()> {
    let same = got.len() == expected.len()
        && got.zip(&expected).all(|(got, want)| want.as_ref().is_some_and(|want| fits(want, &got)));
    if same {
        Ok(())
    } else {
        Err(type_error!("the saved rule of '{name}' has other {what} than its function"))
    }
}

impl SavedJvp {
    /// Fails unless this is a rule for `call`.
    pub fn check(&self, call: &Program) -> Result<()> {
        if self.nonzero.len() != call.inputs.len() || self.flags.len() != call.outputs.len() {
            return Err(type_error!("the saved rule of '{}' has other flags than its function", self.name));
        }
        let Some(program) = &self.program else { return Ok(()) };
        let inputs = call.input_types().cloned();
        let tangents = flagged(call.input_types().cloned(), &self.nonzero);
        let expected = inputs.map(Some).chain(tangents).collect();
        check_rule(&self.name, "inputs", program.input_types().cloned(), expected)?;
        let tangents = flagged(call.output_types(), &self.flags);
        let expected = call.output_types().map(Some).chain(tangents).collect();
        check_rule(&self.name, "outputs", program.output_types(), expected)
    }

    /// The same with another program of the same types.
    pub fn map<E>(&self, map: impl FnMut(&Arc<Program>) -> Result<Arc<Program>, E>) -> Result<Self, E> {
        Ok(SavedJvp { program: self.program.as_ref().map(map).transpose()?, ..self.clone() })
    }
}

impl JvpRule for SavedJvp {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn program(&self, nonzero: &[bool]) -> Result<FlaggedProgram> {
        let Some(program) = &self.program else { return not_saved(&self.name) };
        if nonzero == self.nonzero {
            return Ok((program.clone(), self.flags.as_slice().into()));
        }
        let mut b = Builder::new(program.name.clone());
        let count = self.nonzero.len();
        let mut arguments: Vec<Atom> =
            program.input_types().take(count).map(|ty| b.input(ty.clone())).collect();
        let mut types = program.input_types().skip(count);
        for (&wanted, _) in nonzero.iter().zip(&self.nonzero).filter(|(_, have)| **have) {
            let ty = types.next().and_then(Type::as_array);
            let ty = ty.ok_or_else(|| internal_error!("a rule of '{}' lacks a tangent", self.name))?;
            let atom = if wanted { b.input(ty.clone()) } else { b.zeros(ty)? };
            arguments.push(atom);
        }
        let outputs = b.inline(program, &arguments)?;
        Ok((Arc::new(b.finish(outputs)), self.flags.as_slice().into()))
    }

    fn saved(&self) -> Option<&SavedJvp> {
        Some(self)
    }
}

impl SavedVjp {
    /// Fails unless this is a rule for `call`.
    pub fn check(&self, call: &Program) -> Result<()> {
        if self.perturbed.len() != call.inputs.len() || self.flags.len() != call.inputs.len() {
            return Err(type_error!("the saved rule of '{}' has other flags than its function", self.name));
        }
        let Some([forward, backward]) = &self.programs else { return Ok(()) };
        let expected = call.input_types().cloned().map(Some).collect();
        check_rule(&self.name, "inputs", forward.input_types().cloned(), expected)?;
        let outputs = call.outputs.len();
        if forward.outputs.len() < outputs {
            return Err(type_error!("the saved rule of '{}' has fewer outputs than its function", self.name));
        }
        let residuals: Vec<Type> = forward.output_types().skip(outputs).collect();
        let given: Vec<Type> = forward.output_types().take(outputs).collect::<Vec<_>>();
        check_rule(&self.name, "outputs", given.into_iter(), call.output_types().map(Some).collect())?;
        let cotangents = call.output_types().filter(is_inexact).map(|ty| tangent(&ty));
        let expected = residuals.into_iter().map(Some).chain(cotangents).collect();
        check_rule(&self.name, "residuals", backward.input_types().cloned(), expected)?;
        let expected = flagged(call.input_types().cloned(), &self.flags).collect();
        check_rule(&self.name, "cotangents", backward.output_types(), expected)
    }

    pub fn sub_programs(&self) -> SmallVec<[&Arc<Program>; 2]> {
        self.programs.iter().flatten().collect()
    }

    /// The same with other programs of the same types.
    pub fn map<E>(&self, mut map: impl FnMut(&Arc<Program>) -> Result<Arc<Program>, E>) -> Result<Self, E> {
        let programs = match &self.programs {
            Some([forward, backward]) => Some([map(forward)?, map(backward)?]),
            None => None,
        };
        Ok(SavedVjp { programs, ..self.clone() })
    }
}

impl VjpHandle {
    /// The same, with other programs of the same types where the rule is data.
    pub fn map_saved<E>(&self, map: impl FnMut(&Arc<Program>) -> Result<Arc<Program>, E>) -> Result<Self, E> {
        self.0.saved().map_or_else(|| Ok(self.clone()), |saved| Ok(VjpHandle(Arc::new(saved.map(map)?))))
    }
}

impl VjpRule for SavedVjp {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn forward(&self, _: &[bool]) -> Result<Arc<Program>> {
        match &self.programs {
            Some([forward, _]) => Ok(forward.clone()),
            None => not_saved(&self.name),
        }
    }

    fn backward(&self, perturbed: &[bool], given: &[bool]) -> Result<FlaggedProgram> {
        let Some([_, backward]) = &self.programs else { return not_saved(&self.name) };
        let mut b = Builder::new(backward.name.clone());
        let residuals = backward.inputs.len().saturating_sub(given.len());
        let mut arguments = Vec::with_capacity(backward.inputs.len());
        for (position, ty) in backward.input_types().enumerate() {
            let there = position < residuals || given[position - residuals];
            arguments.push(match ty.as_array() {
                Some(ty) if !there => b.zeros(ty)?,
                _ => b.input(ty.clone()),
            });
        }
        let outputs = b.inline(backward, &arguments)?;
        let kept: Vec<bool> =
            self.flags.iter().zip(perturbed).map(|(flag, wanted)| *flag && *wanted).collect();
        let wanted = kept.iter().zip(&self.flags).filter(|(_, flag)| **flag).map(|(kept, _)| *kept);
        let outputs: Vec<Atom> =
            outputs.into_iter().zip(wanted).filter(|(_, kept)| *kept).map(|(atom, _)| atom).collect();
        Ok((Arc::new(b.finish(outputs)), kept.into()))
    }

    fn optimize_remat(&self) -> bool {
        self.optimize_remat
    }

    fn saved(&self) -> Option<&SavedVjp> {
        Some(self)
    }
}

fn list<const N: usize>(value: Param) -> Result<[Param; N]> {
    match value {
        Param::List(items) => items.try_into().map_err(|_| type_error!("a rule has {N} parts")),
        other => Err(type_error!("expected a rule, got {other:?}")),
    }
}

impl ToParam for SavedJvp {
    fn to_param(&self) -> Param {
        Param::List(vec![
            self.name.to_param(),
            self.nonzero.to_param(),
            self.flags.to_param(),
            self.program.to_param(),
        ])
    }

    fn from_param(value: Param) -> Result<Self> {
        let [name, nonzero, flags, program] = list(value)?;
        Ok(SavedJvp {
            name: ToParam::from_param(name)?,
            nonzero: ToParam::from_param(nonzero)?,
            flags: ToParam::from_param(flags)?,
            program: ToParam::from_param(program)?,
        })
    }
}

impl ToParam for SavedVjp {
    fn to_param(&self) -> Param {
        let [forward, backward] = match &self.programs {
            Some([forward, backward]) => [Some(forward), Some(backward)],
            None => [None, None],
        };
        let program = |program: Option<&Arc<Program>>| program.map_or(Param::None, ToParam::to_param);
        Param::List(vec![
            self.name.to_param(),
            self.perturbed.to_param(),
            self.flags.to_param(),
            program(forward),
            program(backward),
            self.optimize_remat.to_param(),
        ])
    }

    fn from_param(value: Param) -> Result<Self> {
        let [name, perturbed, flags, forward, backward, optimize_remat] = list(value)?;
        let forward: Option<Arc<Program>> = ToParam::from_param(forward)?;
        let backward: Option<Arc<Program>> = ToParam::from_param(backward)?;
        Ok(SavedVjp {
            name: ToParam::from_param(name)?,
            perturbed: ToParam::from_param(perturbed)?,
            flags: ToParam::from_param(flags)?,
            programs: forward.zip(backward).map(|(forward, backward)| [forward, backward]),
            optimize_remat: ToParam::from_param(optimize_remat)?,
        })
    }
}
