//! Ops outside any trace: run at once by the backend's kernels.

use std::sync::Arc;

use ferrax_ir::{Atom, Builder, Op, Tensor};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::{Operand, operand_tensor};
use crate::drops::drop_waiting;
use crate::errors::{IntoPyResult, to_py};
use crate::nans;
use crate::program::PyProgram;
use crate::trace::{self, Outputs};
use crate::{cache, checks, devices, key_reuse, placement, profiler};

/// Bytes of operands or of results above which the GIL is released while something runs: below,
/// releasing costs more than it gives.
const RELEASE_GIL_ABOVE: usize = 1 << 16;

/// The operands' elements. All are concrete.
pub fn tensors(py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<SmallVec<[Tensor; 3]>> {
    let mut tensors = SmallVec::with_capacity(operands.len());
    for operand in operands {
        tensors.push(
            operand_tensor(py, operand)?
                .ok_or_else(|| to_py(py, ferrax_ir::internal_error!("a tracer reached eager execution")))?,
        );
    }
    Ok(tensors)
}

/// Runs `work`, without the GIL if `bytes` of data make it worth it.
pub fn release_gil<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes > RELEASE_GIL_ABOVE { py.detach(work) } else { work() }
}

/// Runs one op on concrete operands.
pub fn run(py: Python<'_>, op: &Op, operands: &[Operand<'_>]) -> PyResult<Outputs> {
    placement::check_devices(py, operands)?;
    if !op.programs().is_empty() || devices::elsewhere(operands) {
        return run_as_program(py, op, operands);
    }
    if checks::keys() { key_reuse::run_op(py, op, operands) } else { run_plain(py, op, operands) }
}

/// Runs an op without sub-programs, whatever becomes of keys.
pub fn run_plain(py: Python<'_>, op: &Op, operands: &[Operand<'_>]) -> PyResult<Outputs> {
    let _span = profiler::call(py, || op.name().to_owned());
    let inputs = tensors(py, operands)?;
    if let Op::Extension(_) = op {
        return run_extension(py, op, operands, &inputs);
    }
    let watched = checks::watched();
    if watched {
        checks::may_run(op.name())?;
    }
    let executable = match ferrax_cpu::eager::at_hand(op, &inputs) {
        Some(executable) => executable,
        None => {
            drop_waiting(py);
            py.detach(|| ferrax_cpu::eager::executable(op, &inputs)).py(py)?
        }
    };
    let run = || ferrax_cpu::eager::run_as(&executable, op, &inputs);
    let results = release_gil(py, executable.work(), run).py(py)?;
    if watched {
        nans::check_op(py, op, &inputs, &results)?;
    }
    let weak = weak_outputs(py, op, operands, results.len())?;
    let mut outputs = Outputs::with_capacity(results.len());
    for (tensor, weak) in results.into_iter().zip(weak) {
        outputs.push(Array::new_concrete(py, tensor, weak)?);
    }
    Ok(outputs)
}

/// Runs an op with sub-programs, or one that may belong to another device: as a program, which is compiled once for
/// all ops that are equal to it.
fn run_as_program(py: Python<'_>, op: &Op, operands: &[Operand<'_>]) -> PyResult<Outputs> {
    let mut builder = Builder::new(op.name());
    let inputs: SmallVec<[Atom; 4]> =
        trace::types(operands).into_iter().map(|ty| builder.input(ty)).collect();
    let outputs = builder.emit(op.clone(), &inputs).py(py)?;
    let program = builder.finish(outputs.into_iter().map(Atom::Var));
    let program = Bound::new(py, PyProgram::new(Arc::new(program)))?;
    let known = cache::shared(py, &program)?;
    Ok(known.bind(py).get().run_as(py, operands, program.get())?.into_iter().collect())
}

/// Runs an op of the user's: by its own evaluation where it has one, else by what it expands to.
/// Executables of such ops are not kept, for each is an object of its own.
fn run_extension(py: Python<'_>, op: &Op, operands: &[Operand<'_>], inputs: &[Tensor]) -> PyResult<Outputs> {
    checks::may_run(op.name())?;
    let types = op.infer(&trace::types(operands)).py(py)?;
    let results = op.eval(inputs, &types).py(py)?;
    nans::check_op(py, op, inputs, &results)?;
    results
        .into_iter()
        .zip(&types)
        .map(|(tensor, ty)| Array::new_concrete(py, tensor, ty.as_array().is_some_and(|ty| ty.weak)))
        .collect()
}

/// Weakness of the outputs: asked of the type rule only where it can be true.
fn weak_outputs(
    py: Python<'_>,
    op: &Op,
    operands: &[Operand<'_>],
    count: usize,
) -> PyResult<SmallVec<[bool; 1]>> {
    let possible = match op {
        Op::ConvertElementType(convert) => convert.weak_type,
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) => {
            return Ok(SmallVec::from_elem(operands.iter().all(Operand::weak), count));
        }
        _ => operands.iter().any(Operand::weak),
    };
    if !possible {
        return Ok(SmallVec::from_elem(false, count));
    }
    let types = op.infer(&trace::types(operands)).py(py)?;
    Ok(types.iter().map(|ty| ty.as_array().is_some_and(|ty| ty.weak)).collect())
}
