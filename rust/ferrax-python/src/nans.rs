//! `debug_nans` and `debug_infs`: results are looked at, and an error names the op that made the
//! bad value.

use ferrax_cpu::provenance::{self, Finding, Iteration, Origin, Watch, element};
use ferrax_ir::{Op, Program, Scalar, Source, Tensor};
use pyo3::exceptions::PyFloatingPointError;
use pyo3::prelude::*;

use crate::checks;
use crate::errors::IntoPyResult;
use crate::source;

/// The results of one op that ran on these operands.
pub fn check_op(py: Python<'_>, op: &Op, inputs: &[Tensor], results: &[Tensor]) -> PyResult<()> {
    let Some(watch) = checks::values() else { return Ok(()) };
    let bad = results.iter().find_map(|value| Some((value, watch.first(value)?)));
    let Some((value, index)) = bad else { return Ok(()) };
    let origin = Origin::Op {
        name: op.name().to_owned(),
        source: source::current(py),
        operands: provenance::operands_at(inputs, value, index),
        whole: false,
    };
    let finding = Finding { origin, value: value.clone(), index, within: Vec::new(), infinity: None };
    Err(error(watch, &finding, "", &|_| String::new()))
}

/// The results of a program that ran on these inputs. `what` says of whom the error speaks;
/// `input` names an input.
pub fn check_program(
    py: Python<'_>,
    program: &Program,
    inputs: &[Tensor],
    results: &[Tensor],
    what: &dyn Fn() -> String,
    input: &dyn Fn(usize) -> String,
) -> PyResult<()> {
    let Some(watch) = checks::values() else { return Ok(()) };
    let Some(number) = results.iter().position(|value| watch.first(value).is_some()) else { return Ok(()) };
    let mut finding = provenance::find(program, inputs, watch).py(py)?;
    if finding.is_none() {
        // Simplification reorders arithmetic: what ran was this.
        let optimised = ferrax_transform::optimise(program, Default::default()).py(py)?;
        finding = provenance::find(&optimised, inputs, watch).py(py)?;
    }
    Err(match finding {
        Some(finding) => error(watch, &finding, &what(), input),
        None => {
            let index = watch.first(&results[number]).unwrap_or(0);
            let found = if watch.nan && is_nan(&results[number], index) { "nan" } else { "inf" };
            PyFloatingPointError::new_err(format!(
                "invalid value ({found}) encountered in {}\n{} gave {} in output {number}, but its operations, run one by one on the same arguments, give good \
                 values: the order in which sums are computed or fused kernels round decides. Compute the value in a \
                 way that does not overflow.\n{}",
                program.name,
                what(),
                place(&results[number], index),
                setting(watch)
            ))
        }
    })
}

fn is_nan(value: &Tensor, index: usize) -> bool {
    element(value, index).is_some_and(|scalar| scalar.to_string().contains("nan"))
}

/// `nan at index (2,) of f32[3]`.
fn place(value: &Tensor, index: usize) -> String {
    let shown = element(value, index).map(|scalar| scalar.to_string()).unwrap_or_default();
    if value.rank() == 0 {
        return shown;
    }
    let mut rest = index;
    let mut position: Vec<String> = value
        .sizes()
        .iter()
        .rev()
        .map(|&size| {
            let at = rest % size.max(1);
            rest /= size.max(1);
            at.to_string()
        })
        .collect();
    position.reverse();
    let comma = if position.len() == 1 { "," } else { "" };
    format!("{shown} at index ({}{comma}) of {}", position.join(", "), value.array_type())
}

fn setting(watch: Watch) -> String {
    let (flag, value) = match (watch.nan, watch.inf) {
        (true, true) => ("jax_debug_nans and jax_debug_infs are", "NaNs and infinities"),
        (true, false) => ("jax_debug_nans is", "NaNs"),
        _ => ("jax_debug_infs is", "Infinities"),
    };
    format!("{value} are errors because {flag} set.")
}

fn at(source: Source) -> String {
    source.line().map(|line| format!("At {line}.\n")).unwrap_or_default()
}

fn iteration(within: &Iteration) -> String {
    let of = within.of.map(|of| format!(" of {of}")).unwrap_or_default();
    let line = within.source.line().map(|line| format!(" at {line}")).unwrap_or_default();
    let derivative =
        within.source.primal().map(|op| format!(", for the derivative of '{op}'")).unwrap_or_default();
    format!("In iteration {} (from 0){of} of '{}'{line}{derivative}.\n", within.number, within.op)
}

fn error(watch: Watch, finding: &Finding, what: &str, input: &dyn Fn(usize) -> String) -> PyErr {
    // The first line is JAX's; programs look for it.
    let found = if watch.nan && is_nan(&finding.value, finding.index) { "nan" } else { "inf" };
    let in_what = match &finding.origin {
        Origin::Op { name, .. } => name.as_str(),
        Origin::Input(_) | Origin::Constant => "an argument",
    };
    let mut text = format!("invalid value ({found}) encountered in {in_what}\n{}", told(finding, input));
    if let Some(infinity) = &finding.infinity {
        text.push_str("The infinity among them: ");
        text.push_str(&told(infinity, input));
    }
    if !what.is_empty() {
        text.push_str(&format!("Seen in a result of {what}.\n"));
    }
    text.push_str(&setting(watch));
    PyFloatingPointError::new_err(text)
}

/// What made the value, and where: lines.
fn told(finding: &Finding, input: &dyn Fn(usize) -> String) -> String {
    let place = place(&finding.value, finding.index);
    let mut text = match &finding.origin {
        Origin::Input(number) => format!("{} is {place}, before any operation.\n", input(*number)),
        Origin::Constant => format!("An array that the program holds as a constant is {place}.\n"),
        Origin::Op { name, source, operands, whole } => {
            let from = match operands.as_slice() {
                [] => String::new(),
                [one] => format!(", of the operand {one}"),
                several => {
                    let shown: Vec<String> = several.iter().map(Scalar::to_string).collect();
                    format!(", of the operands {}", shown.join(", "))
                }
            };
            let derivative = source
                .primal()
                .map(|op| format!(", computed for the derivative of '{op}',"))
                .unwrap_or_default();
            let whole =
                if *whole { " The operations in it, run one by one, give good values.\n" } else { "" };
            let line = at(*source);
            let separator = if whole.is_empty() { "\n" } else { "" };
            format!("'{name}'{derivative} gave {place}{from}.{whole}{separator}{line}")
        }
    };
    for within in finding.within.iter().rev() {
        text.push_str(&iteration(within));
    }
    text
}
