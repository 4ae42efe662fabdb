//! Calls of functions for which the user gives a transpose, a linear solver or
//! a batching rule, as data: what files hold of them.
//!
//! The transpose of such a call is a call again, of the two programs in
//! exchanged places, and so is what batching gives; so they have derivatives of
//! every order. What needs the derivative or the batch of a sub-program is in
//! the transformations.

use std::sync::Arc;

use smallvec::SmallVec;

use super::control::{check_arguments, fits, list};
use super::derive::{Cotangents, Tangents};
use super::saved_rules::not_saved;
use crate::interpret;
use crate::rules::{Batch, Batched, Jvp, Lowering, Operand, Row, Rules, Transpose, Types};
use crate::{
    Atom, Builder, Effects, Program, Result, Tensor, Type, internal_error, op_struct, type_error, unsupported,
};

op_struct! {
    /// Calls a program that is linear in its inputs after the first `num_res`. The transpose is a program of the
    /// same first inputs and of cotangents of the outputs.
    LinearCall "linear_call" {
        callee: Arc<Program>,
        name: Arc<str>,
        num_res: usize,
        transpose: Option<Arc<Program>>,
    }
}

op_struct! {
    /// Solves a linear system. All programs take `num_params` parameters and then a vector: `matvec` and
    /// `vecmat` apply the map and its transpose, `solve` and `transpose_solve` invert these. Solvers may give more
    /// than the solution.
    LinearSolve "custom_linear_solve" {
        matvec: Arc<Program>,
        num_params: usize,
        solve: Arc<Program>,
        transpose_solve: Option<Arc<Program>>,
        vecmat: Option<Arc<Program>>,
    }
}

op_struct! {
    /// Calls a program that has a batching rule of its own: one case after the other if `sequential`, else a rule
    /// that only the host knows.
    CustomVmap "custom_vmap_call" {
        call: Arc<Program>,
        name: Arc<str>,
        sequential: bool,
    }
}

macro_rules! ruled_row {
    ($name:ident, $callee:ident, $what:literal) => {
        impl $name {
            /// What the call computes.
            pub fn called(&self) -> &Arc<Program> {
                &self.$callee
            }
        }

        impl Row for $name {
            row_identity!();

            fn infer(&self, inputs: &[Type]) -> Result<Types> {
                check_arguments($what, &self.$callee, inputs.iter())?;
                self.check(inputs)?;
                Ok(self.$callee.output_types().collect())
            }

            fn eval(&self, inputs: &[Tensor], _: &[Type]) -> Result<Vec<Tensor>> {
                interpret::run(&self.$callee, inputs)
            }

            fn effects(&self) -> Effects {
                self.$callee.effects.clone()
            }
        }
    };
}

ruled_row!(LinearCall, callee, "linear_call of");
ruled_row!(LinearSolve, solve, "custom_linear_solve by");
ruled_row!(CustomVmap, call, "custom_vmap function");

fn is_inexact(ty: &Type) -> bool {
    ty.as_array().is_some_and(|ty| ty.dtype.is_inexact())
}

/// The values that are there, and zeros for the others.
fn or_zeros(
    b: &mut Builder,
    given: &[Option<Atom>],
    types: impl Iterator<Item = Type>,
    into: &mut Vec<Atom>,
) -> Result<()> {
    for (atom, ty) in given.iter().zip(types) {
        into.push(match (atom, ty.as_array()) {
            (Some(atom), _) => *atom,
            (None, Some(ty)) => b.zeros(&ty.clone().with_weak(false))?,
            (None, None) => return Err(type_error!("a value of type {ty} has no derivative")),
        });
    }
    Ok(())
}

/// Cotangents of all inputs: none of the first `known`, of the others those that are asked for.
fn for_linear(operands: &[Operand], known: usize, found: impl IntoIterator<Item = Atom>) -> Cotangents {
    let rest = operands[known..].iter().zip(found).map(|(operand, ct)| operand.is_linear().then_some(ct));
    (0..known).map(|_| None).chain(rest).collect()
}

impl LinearCall {
    /// The same with other programs of the same types.
    pub fn map_programs<E>(
        &self,
        mut map: impl FnMut(&Arc<Program>) -> Result<Arc<Program>, E>,
    ) -> Result<Self, E> {
        let callee = map(&self.callee)?;
        Ok(LinearCall { callee, transpose: self.transpose.as_ref().map(map).transpose()?, ..self.clone() })
    }

    fn check(&self, inputs: &[Type]) -> Result<()> {
        let Some(residuals) = inputs.get(..self.num_res) else {
            return Err(type_error!(
                "linear_call of '{}' has {} inputs, which are fewer than its {} residuals",
                self.name,
                inputs.len(),
                self.num_res
            ));
        };
        let Some(transpose) = &self.transpose else { return Ok(()) };
        let cotangents: Vec<Type> = self.callee.output_types().collect();
        let expected: Vec<&Type> = residuals.iter().chain(&cotangents).collect();
        check_arguments("the transpose", transpose, expected.into_iter())?;
        let linear = &inputs[self.num_res..];
        let given: Vec<Type> = transpose.output_types().collect();
        if given.len() != linear.len() || !linear.iter().zip(&given).all(|(want, got)| fits(want, got)) {
            return Err(type_error!(
                "the transpose of '{}' must give ({}), got ({})",
                self.name,
                list(linear.iter()),
                list(given.iter())
            ));
        }
        Ok(())
    }
}

impl Rules for LinearCall {
    fn jvp(&self, b: &mut Builder, eqn: &Jvp<'_>) -> Result<Tangents> {
        let (residuals, linear) = eqn.tangents.split_at(self.num_res);
        if residuals.iter().any(Option::is_some) {
            return Err(type_error!(
                "linear_call: the residuals, and what the function closes over, are not differentiated in, in \
                 '{}'. Use stop_gradient on them, or custom_jvp or custom_vjp in place of linear_call.",
                self.name
            ));
        }
        let mut inputs = eqn.inputs[..self.num_res].to_vec();
        let types: Vec<Type> = eqn.inputs[self.num_res..].iter().map(|&atom| b.type_of(atom)).collect();
        or_zeros(b, linear, types.into_iter(), &mut inputs)?;
        let outputs = b.emit(self.clone(), &inputs)?;
        let inexact = self.callee.output_types().map(|ty| is_inexact(&ty));
        Ok(outputs.into_iter().zip(inexact).map(|(var, flag)| flag.then_some(Atom::Var(var))).collect())
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let Some(transpose) = &self.transpose else { return not_saved(&self.name) };
        let residuals = eqn.inputs[..self.num_res].iter().map(Operand::known).collect::<Option<Vec<_>>>();
        let mut inputs = residuals
            .ok_or_else(|| type_error!("linear_call: '{}' is not linear in its residuals", self.name))?;
        or_zeros(b, eqn.cotangents, eqn.outputs.iter().cloned(), &mut inputs)?;
        let back = LinearCall {
            callee: transpose.clone(),
            name: self.name.clone(),
            num_res: self.num_res,
            transpose: Some(self.callee.clone()),
        };
        let found = b.emit(back, &inputs)?.into_iter().map(Atom::Var);
        Ok(for_linear(eqn.inputs, self.num_res, found))
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        Err(internal_error!("linear_call is batched with its programs"))
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        b.inline(&self.callee, inputs)
    }
}

impl LinearSolve {
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Arc<Program>> {
        [&self.matvec, &self.solve].into_iter().chain(&self.transpose_solve).chain(&self.vecmat)
    }

    /// The same with other programs of the same types.
    pub fn map_programs<E>(
        &self,
        mut map: impl FnMut(&Arc<Program>) -> Result<Arc<Program>, E>,
    ) -> Result<Self, E> {
        Ok(LinearSolve {
            matvec: map(&self.matvec)?,
            num_params: self.num_params,
            solve: map(&self.solve)?,
            transpose_solve: self.transpose_solve.as_ref().map(&mut map).transpose()?,
            vecmat: self.vecmat.as_ref().map(&mut map).transpose()?,
        })
    }

    fn check(&self, inputs: &[Type]) -> Result<()> {
        let Some(size) = inputs.len().checked_sub(self.num_params) else {
            return Err(type_error!(
                "custom_linear_solve has {} inputs, which are fewer than its {} parameters",
                inputs.len(),
                self.num_params
            ));
        };
        if self.vecmat.is_some() != self.transpose_solve.is_some() {
            return Err(type_error!("custom_linear_solve: vecmat and transpose_solve go together"));
        }
        let maps = [Some(&self.matvec), self.vecmat.as_ref()];
        let solvers = [Some(&self.solve), self.transpose_solve.as_ref()];
        let all = maps.iter().chain(&solvers).flatten();
        let takes = all.clone().all(|program| program.inputs.len() == inputs.len());
        let gives = maps.iter().flatten().all(|program| program.outputs.len() == size)
            && solvers.iter().flatten().all(|program| program.outputs.len() >= size);
        if takes && gives {
            return Ok(());
        }
        Err(type_error!(
            "custom_linear_solve: each of its programs takes {} inputs and gives {size} outputs or, a solver, more",
            inputs.len()
        ))
    }
}

impl Rules for LinearSolve {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<Tangents> {
        Err(internal_error!("custom_linear_solve is differentiated with its programs"))
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<Cotangents> {
        let (Some(vecmat), Some(transpose_solve)) = (&self.vecmat, &self.transpose_solve) else {
            return Err(type_error!(
                "custom_linear_solve has no reverse derivative without transpose_solve: give it, or \
                 symmetric=True"
            ));
        };
        let params = eqn.inputs[..self.num_params].iter().map(Operand::known).collect::<Option<Vec<_>>>();
        let mut inputs = params.ok_or_else(|| {
            unsupported!("custom_linear_solve: the solution is not linear in what the functions close over")
        })?;
        let size = eqn.inputs.len() - self.num_params;
        or_zeros(b, &eqn.cotangents[..size], eqn.outputs.iter().cloned(), &mut inputs)?;
        let back = LinearSolve {
            matvec: vecmat.clone(),
            num_params: self.num_params,
            solve: transpose_solve.clone(),
            transpose_solve: Some(self.solve.clone()),
            vecmat: Some(self.matvec.clone()),
        };
        let found = b.emit(back, &inputs)?.into_iter().map(Atom::Var).take(size);
        Ok(for_linear(eqn.inputs, self.num_params, found))
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        Err(internal_error!("custom_linear_solve is batched with its programs"))
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        b.inline(&self.solve, inputs)
    }
}

impl CustomVmap {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other calls")]
    fn check(&self, _: &[Type]) -> Result<()> {
        Ok(())
    }

    /// The error where the rule would be asked.
    pub fn rule_not_saved<T>(&self) -> Result<T> {
        Err(unsupported!(
            "the batching rule of the custom_vmap function '{}' was not saved: it is a function of the batch's size, \
             and files hold programs. Batch the function before it is saved: export.export(jit(vmap(f))).",
            self.name
        ))
    }
}

impl Rules for CustomVmap {
    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<Tangents> {
        Err(internal_error!("custom_vmap_call is differentiated with its program"))
    }

    fn transpose(&self, _: &mut Builder, _: &Transpose<'_>) -> Result<Cotangents> {
        Err(unsupported!(
            "reverse-mode differentiation of the custom_vmap function '{}': its batching rule has no transpose. \
             Give the function a derivative of its own, by a custom_vjp around it.",
            self.name
        ))
    }

    fn batch(&self, _: &mut Builder, _: &Batch<'_>) -> Result<Batched> {
        self.rule_not_saved()
    }

    fn lower(&self) -> Lowering {
        Lowering::Expand
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        b.inline(&self.call, inputs)
    }
}
