//! The functions that the Python layer calls.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::array::{Array, ArrayImpl, Concrete, Tracer};
use crate::jit::{self, JitCache, JitFunction};
use crate::program::{self, PyProgram};
use crate::{
    cache, checkpoint, checks, control, convert, custom, devices, dlpack, dtypes, ffi, indexing, operators,
    params, persistent, placement, primitive, process, promote, source, spmd, trace, tracebacks,
};

/// Applies the op `name`: an array, or a list where the op has several outputs or sub-programs.
#[pyfunction]
fn bind(
    py: Python<'_>,
    name: &str,
    operands: &Bound<'_, PyTuple>,
    parameters: &Bound<'_, PyDict>,
) -> PyResult<Py<PyAny>> {
    let operands = operands.iter().map(|item| convert::operand(&item, name)).collect::<PyResult<Vec<_>>>()?;
    let element = operands.first().map(convert::Operand::dtype);
    let op = params::op(py, name, parameters, element)?;
    let several = op.name() == "threefry2x32" || !op.programs().is_empty();
    let outputs = trace::bind(py, op, &operands)?;
    match <[Py<Array>; 1]>::try_from(outputs.into_vec()) {
        Ok([output]) if !several => Ok(output.into_any()),
        Ok(outputs) => Ok(PyList::new(py, outputs)?.into_any().unbind()),
        Err(outputs) => Ok(PyList::new(py, outputs)?.into_any().unbind()),
    }
}

/// An array for an array, a Python or NumPy scalar or a NumPy array; weakness is kept.
#[pyfunction]
#[pyo3(signature = (value, name = "this function"))]
fn as_array<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, Array>> {
    convert::as_array(value, name)
}

/// The type of what `as_array` would give, as `type_tuple` has it.
#[pyfunction]
fn type_of<'py>(py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let operand = convert::operand(value, "typeof")?;
    let ty = match &operand {
        convert::Operand::Array(array) => array.get().array_type(),
        convert::Operand::Literal(literal) => literal.array_type(),
    };
    program::type_tuple(py, &ty.into())
}

/// The concrete array that a value is or stands for; `None` if it is abstract.
#[pyfunction]
fn concrete_value<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Array>>> {
    trace::concrete(&convert::as_array(value, "this function")?)
}

/// Where a tracer came from, for messages; `None` for concrete arrays.
#[pyfunction]
fn describe_tracer(value: &Bound<'_, Array>) -> PyResult<Option<String>> {
    trace::describe(value)
}

/// The way from a tracer back to an argument of a traced function: lines for messages.
#[pyfunction]
fn tracer_chain(value: &Bound<'_, Array>) -> PyResult<Vec<String>> {
    trace::chain(value)
}

/// The NumPy view of a concrete array.
#[pyfunction]
fn as_numpy<'py>(value: &Bound<'py, Array>) -> PyResult<Bound<'py, PyAny>> {
    operators::as_numpy(value)
}

/// `(dtype, weak)` of the promotion of `(dtype, weak)` pairs.
#[pyfunction]
fn promote_types(py: Python<'_>, pairs: Vec<(Bound<'_, PyAny>, bool)>) -> PyResult<(Py<PyAny>, bool)> {
    let pairs = pairs
        .iter()
        .map(|(dtype, weak)| Ok((dtypes::from_python(dtype)?, *weak)))
        .collect::<PyResult<Vec<_>>>()?;
    let (dtype, weak) = promote::result_type(py, &pairs)?;
    Ok((dtypes::to_numpy(py, dtype)?, weak))
}

/// `file:line (function)` of the user's code that runs now.
#[pyfunction]
fn user_location(py: Python<'_>) -> Option<String> {
    source::current(py).line().map(|line| line.to_string())
}

/// Says that code in files whose paths begin with this is not the user's.
#[pyfunction]
fn exclude_from_source(path: String) {
    source::exclude(path);
}

/// The names that equations made now are given, outermost first and separated by `/`.
#[pyfunction]
fn source_scope() -> String {
    source::scope_names(source::scope()).to_string()
}

/// Sets the names that equations are given.
#[pyfunction]
fn set_source_scope(names: &str) {
    source::set_scope(source::scope_number(names));
}

/// Whether nothing is being traced on this thread.
#[pyfunction]
fn trace_state_clean() -> bool {
    trace::is_clean()
}

/// The identities of the frames that trace on this thread, outermost first.
#[pyfunction]
fn trace_frames(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
    PyTuple::new(py, trace::frame_ids())
}

/// Another array of the same elements; a tracer itself.
#[pyfunction]
fn alias<'py>(array: &Bound<'py, Array>) -> PyResult<Bound<'py, Array>> {
    match array.get().concrete() {
        None => Ok(array.clone()),
        Some(concrete) => {
            let (sizes, buffer) = (concrete.sizes.clone(), concrete.buffer()?);
            let same = Concrete::of_buffer(concrete.dtype, sizes, buffer, concrete.weak);
            let copy = Array::of_concrete(array.py(), same)?;
            Ok(copy.into_bound(array.py()))
        }
    }
}

/// Makes what is made once, by importing modules. Runs before the process forks: in a child nobody
/// would end what another thread was in the middle of. What the core below makes is settled there.
#[pyfunction]
fn settle(py: Python<'_>) -> PyResult<()> {
    dtypes::settle(py)?;
    crate::errors::module(py)?;
    primitive::rules(py)?;
    indexing::general(py)?;
    Ok(())
}

/// Every op with a line of explanation.
#[pyfunction]
fn documented_ops() -> Vec<(&'static str, &'static str)> {
    ferrax_ir::op::documented_ops()
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Array>()?;
    module.add_class::<ArrayImpl>()?;
    module.add_class::<Tracer>()?;
    module.add_class::<PyProgram>()?;
    module.add_class::<JitFunction>()?;
    module.add_class::<JitCache>()?;
    module.add_class::<checkpoint::PyPolicy>()?;
    module.add_class::<control::TracedBody>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    macro_rules! functions {
        ($($function:path),* $(,)?) => {
            $(module.add_function(wrap_pyfunction!($function, module)?)?;)*
        };
    }
    functions!(
        bind,
        as_array,
        type_of,
        concrete_value,
        describe_tracer,
        tracer_chain,
        as_numpy,
        promote_types,
        user_location,
        exclude_from_source,
        source_scope,
        set_source_scope,
        trace_state_clean,
        trace_frames,
        documented_ops,
        operators::array_from_numpy,
        dlpack::array_from_dlpack,
        dlpack::dlpack_in_order,
        dlpack::dlpack_supports,
        indexing::update_at,
        program::trace_program,
        program::apply_program,
        program::call_program,
        primitive::record_primitive,
        primitive::observed_values,
        custom::recording_frame,
        custom::custom_jvp_call,
        custom::custom_vjp_call,
        control::trace_body,
        control::unite_branches,
        trace::concrete_ops_run,
        trace::ref_frames,
        trace::tracer_frame,
        trace::set_frame_refs,
        trace::staged::set_frame_answer,
        trace::staged::recorded_so_far,
        trace::add_ref_input,
        alias,
        jit::register_ref,
        ffi::ffi_register,
        ffi::ffi_register_type,
        ffi::ffi_call,
        checkpoint::builtin_policy,
        checkpoint::either_policy,
        checkpoint::python_policy,
        checkpoint::checkpoint_call,
        checkpoint::saved_residuals,
        cache::clear_program_cache,
        cache::cache_sizes,
        persistent::set_program_cache,
        persistent::follow_program_cache,
        persistent::program_cache_counts,
        persistent::program_cache_entries,
        persistent::clear_program_files,
        process::memory_stats,
        process::release_memory,
        process::num_threads,
        process::most_threads,
        process::paths_taken,
        process::set_block_bytes,
        process::set_num_threads,
        settle,
        promote::set_trace_context,
        promote::clear_trace_context,
        promote::set_axes,
        promote::compilation_context,
        checks::set_checks,
        checks::clear_checks,
        checks::set_verification,
        tracebacks::set_error_filter,
        tracebacks::set_handled_traceback,
        dtypes::register_float0,
        dtypes::register_key_dtype,
        placement::place_of,
        placement::places_of_meshes,
        placement::set_place_in_types,
        placement::set_default_place,
        devices::device_usage,
        devices::device_begin_profile,
        devices::device_end_profile,
        devices::place_at,
        devices::platform_devices,
        devices::device_name,
        devices::missing_device,
        spmd::partition,
        spmd::propagate,
        spmd::replace_named,
        spmd::equations_named,
    );
    Ok(())
}
