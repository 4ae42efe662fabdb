//! Reverse-mode derivatives (vector times Jacobian): `linearize`, then
//! `transpose`.
//!
//! In: a program and which of its inputs to differentiate in. Out: a forward
//! program that also gives residuals, and on demand a backward program from
//! residuals and cotangents to the cotangents of those inputs. Cost: linear.

use ferrax_ir::verify::debug_verify;
use ferrax_ir::{Atom, Builder, Program, Result, Type, internal_error};

use crate::linearize::{Linearized, linearize};
use crate::rewrite::check_flags;
use crate::transpose::transpose;

/// A program and its derivative, ready for cotangents.
#[derive(Clone, Debug)]
pub struct Vjp {
    /// `linearized.primal` is the forward program.
    pub linearized: Linearized,
}

/// The backward program for some set of cotangents.
#[derive(Clone, Debug)]
pub struct Backward {
    /// Residuals ++ given cotangents to the cotangents flagged in `nonzero_in`.
    pub program: Program,
    /// For each input that is differentiated in: whether its cotangent is not
    /// zero.
    pub nonzero_in: Vec<bool>,
}

pub fn vjp(program: &Program, nonzero: &[bool]) -> Result<Vjp> {
    Ok(Vjp { linearized: linearize(program, nonzero)? })
}

impl Vjp {
    /// The backward program for cotangents of the outputs flagged in `given`
    /// (one flag for each output). Flags of outputs without tangents are
    /// ignored: the cotangents taken are those with both flags.
    pub fn backward(&self, given: &[bool]) -> Result<Backward> {
        let Linearized { linear, nonzero_out, residuals, .. } = &self.linearized;
        check_flags("vjp", linear, nonzero_out.len(), given.len())?;
        let cotangents: Vec<bool> =
            nonzero_out.iter().zip(given).filter(|(flag, _)| **flag).map(|(_, given)| *given).collect();
        let is_linear: Vec<bool> = (0..linear.inputs.len()).map(|index| index >= *residuals).collect();
        let (program, flags) = transpose(linear, &is_linear, &cotangents)?;
        Ok(Backward { program, nonzero_in: flags[*residuals..].to_vec() })
    }
}

/// Both directions in one program: primals ++ cotangents of the outputs flagged
/// in `given` (all of them floats or complex), to the outputs ++ the cotangents
/// of the inputs flagged in `nonzero`, zeros where they are zero.
pub fn vjp_program(program: &Program, nonzero: &[bool], given: &[bool]) -> Result<Program> {
    let both = vjp(program, nonzero)?;
    let backward = both.backward(given)?;
    let mut b = Builder::new(program.name.clone());
    let primals: Vec<Atom> = program.input_types().map(|ty| b.input(ty.clone())).collect();
    let mut cotangents = Vec::new();
    for ((ty, &flag), &used) in program.output_types().zip(given).zip(&both.linearized.nonzero_out) {
        let Type::Array(ty) = ty else { continue };
        if flag {
            let atom = b.input(ty.tangent());
            cotangents.extend(used.then_some(atom));
        }
    }
    let forward = b.inline(&both.linearized.primal, &primals)?;
    let (outputs, residuals) = forward.split_at(program.outputs.len());
    let arguments: Vec<Atom> = residuals.iter().copied().chain(cotangents).collect();
    let mut found = b.inline(&backward.program, &arguments)?.into_iter();
    let mut results: Vec<Atom> = outputs.to_vec();
    let differentiated = program.input_types().zip(nonzero).filter(|(_, flag)| **flag);
    for ((ty, _), &flag) in differentiated.zip(&backward.nonzero_in) {
        let ty = ty.as_array().ok_or_else(|| internal_error!("{ty} was differentiated in"))?;
        let zero = if flag { found.next() } else { None };
        results.push(match zero {
            Some(atom) => atom,
            None => b.zeros(&ty.tangent())?,
        });
    }
    let result = b.finish(results);
    debug_verify(&result, "vjp")?;
    Ok(result)
}
