//! Programs as Python sees them: made by tracing, transformed, applied, shown.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ferrax_compile::DeviceId;
use ferrax_ir::{ArrayType, Op, Program, Type, Var, Varying, View, ops};
use ferrax_transform::OutDims;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::{self, Operand};
use crate::drops::Referred;
use crate::errors::IntoPyResult;
use crate::trace::{self, FrameKind};
use crate::{
    checks, devices, dims, dtypes, eager, key_reuse, nans, params, persistent, placement, primitive, profiler,
};

/// What an equation takes in memory in an executable, about.
const EQUATION_BYTES: usize = 2 << 10;

/// A program with its executable, which is made when first needed.
#[pyclass(frozen, weakref, module = "ferrax", name = "Program")]
pub struct PyProgram {
    pub program: Arc<Program>,
    executable: OnceLock<Arc<ferrax_cpu::Executable>>,
    /// What it is on devices beside the host.
    pub compiled: devices::Compiled,
    work: OnceLock<usize>,
    /// Whether it says where values are.
    says_places: OnceLock<bool>,
    /// The one device that it says values are on, or the host.
    said_device: OnceLock<DeviceId>,
    /// The inputs that nothing is made of.
    unused: OnceLock<Vec<usize>>,
    /// Where its results are, by where operands are.
    pub places: placement::Answers,
    /// Of the linear half of a derivative and its transpose: the other half, whose outputs from
    /// this number on are the first inputs. For messages.
    residuals_of: Option<(Arc<Program>, usize)>,
    /// Whose its symbolic dimensions are.
    scope: Option<Referred<PyAny>>,
}

impl PyProgram {
    pub fn new(program: Arc<Program>) -> PyProgram {
        PyProgram {
            program,
            executable: OnceLock::new(),
            compiled: devices::Compiled::default(),
            work: OnceLock::new(),
            says_places: OnceLock::new(),
            said_device: OnceLock::new(),
            unused: OnceLock::new(),
            places: placement::Answers::default(),
            residuals_of: None,
            scope: dims::referred(),
        }
    }

    /// Whose its symbolic dimensions are.
    pub fn scope(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.scope.as_ref().map(|scope| scope.clone_ref(py)).or_else(|| dims::scope(py))
    }

    pub fn executable(&self, py: Python<'_>) -> PyResult<&Arc<ferrax_cpu::Executable>> {
        if let Some(executable) = self.executable.get() {
            return Ok(executable);
        }
        let begun = Instant::now();
        let _span = profiler::phase("compile", &self.program.name);
        let made = py.detach(|| ferrax_cpu::compile_kept(&self.program)).py(py)?;
        persistent::tell(py)?;
        if checks::compiles() {
            let log = py.import("ferrax._src.transforms.stats")?.getattr("log_compile")?;
            log.call1((&*self.program.name, self.in_types(py)?, begun.elapsed().as_secs_f64()))?;
        }
        Ok(self.executable.get_or_init(|| Arc::new(made)))
    }

    /// What it keeps in memory, about, once it is compiled.
    pub fn kept_bytes(&self) -> usize {
        let compiled = self.program.size().saturating_mul(EQUATION_BYTES);
        self.program.bytes().saturating_add(compiled)
    }

    /// What its executable keeps in memory, if it is compiled.
    pub fn executable_bytes(&self) -> Option<usize> {
        self.executable.get().map(|executable| executable.bytes())
    }

    pub fn is_compiled(&self) -> bool {
        self.executable.get().is_some()
    }

    /// Bytes of everything a run computes, roughly: what releasing the GIL is weighed against.
    pub fn work(&self) -> usize {
        *self.work.get_or_init(|| work(&self.program))
    }

    /// The device to run on: that of the operands, or, where they were put nowhere, the one that the program says.
    pub fn target(&self, py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<DeviceId> {
        if devices::elsewhere(operands) {
            return devices::target(py, operands);
        }
        if !self.says_places() || placement::any(operands) {
            return Ok(DeviceId::HOST);
        }
        match self.said_device.get() {
            Some(device) => Ok(*device),
            None => {
                let said = placement::said_device(py, &self.program)?;
                Ok(*self.said_device.get_or_init(|| said))
            }
        }
    }

    /// Whether it says where values are.
    pub fn says_places(&self) -> bool {
        *self.says_places.get_or_init(|| placement::says(&self.program))
    }

    /// The inputs that nothing is made of: where they were put is no matter.
    pub fn unused(&self) -> &[usize] {
        self.unused.get_or_init(|| {
            let program = &self.program;
            let mut used = vec![false; program.types.len()];
            let equations = program.equations.iter().flat_map(|equation| &equation.inputs);
            for var in equations.chain(&program.outputs).filter_map(ferrax_ir::Atom::as_var) {
                used[var.index()] = true;
            }
            let inputs = program.inputs.iter().enumerate();
            inputs.filter(|(_, var)| !used[var.index()]).map(|(number, _)| number).collect()
        })
    }

    /// Runs on concrete operands.
    pub fn run(&self, py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<Vec<Py<Array>>> {
        self.run_as(py, operands, self)
    }

    /// Runs on concrete operands. `meant` is an equal program, whose source lines are those of
    /// errors.
    pub fn run_as(
        &self,
        py: Python<'_>,
        operands: &[Operand<'_>],
        meant: &PyProgram,
    ) -> PyResult<Vec<Py<Array>>> {
        if checks::watched() {
            checks::may_run(&self.program.name)?;
        }
        placement::check_devices(py, operands)?;
        let followed = key_reuse::follow(py, &self.program, &self.program.name, operands)?;
        let weak = self.program.output_types().map(|ty| ty.as_array().is_some_and(|ty| ty.weak));
        let target = self.target(py, operands)?;
        let results = if target == DeviceId::HOST {
            let executable = self.executable(py)?.clone();
            let inputs = eager::tensors(py, operands)?;
            let results = eager::release_gil(py, self.work(), || executable.run(&inputs)).py(py)?;
            meant.check(py, &inputs, &results)?;
            let array = |(tensor, weak)| Array::new_concrete(py, tensor, weak);
            results.into_iter().zip(weak).map(array).collect::<PyResult<Vec<_>>>()?
        } else {
            devices::run(py, self, target, operands, weak)?
        };
        if placement::any(operands) || devices::elsewhere(operands) || self.says_places() {
            placement::place_results(py, self, operands, &results)?;
        }
        followed.done(&results)?;
        Ok(results)
    }
}

impl PyProgram {
    /// Fails for NaNs and infinities in results where they are errors.
    pub fn check(
        &self,
        py: Python<'_>,
        inputs: &[ferrax_ir::Tensor],
        results: &[ferrax_ir::Tensor],
    ) -> PyResult<()> {
        let name = &self.program.name;
        nans::check_program(py, &self.program, inputs, results, &|| format!("'{name}'"), &|number| match self
            .residual(number)
        {
            Some((op, source)) => {
                let of = source.primal().map(|op| format!(" for the derivative of '{op}'"));
                let at = source.line().map(|line| format!(" at {line}"));
                let (of, at) = (of.unwrap_or_default(), at.unwrap_or_default());
                format!("A value that the forward pass kept, computed by '{op}'{of}{at},")
            }
            None => format!("Input {number} of '{name}', an argument or a value that it captures,"),
        })
    }

    /// What computed the residual that is this input.
    fn residual(&self, number: usize) -> Option<(String, ferrax_ir::Source)> {
        let (primal, first) = self.residuals_of.as_ref()?;
        let (mut program, mut output) = (primal, first + number);
        loop {
            let var = program.outputs.get(output)?.as_var()?;
            let made = program.equations.iter().find(|equation| equation.outputs.contains(&var))?;
            output = made.outputs.iter().position(|&known| known == var)?;
            program = match made.op.view() {
                View::Call(call) => &call.program,
                View::Checkpoint(call) => &call.jaxpr,
                _ => return Some((made.op.name().to_owned(), made.source)),
            };
        }
    }
}

fn work(program: &Program) -> usize {
    let bytes = |ty: &Type| {
        ty.as_array()
            .and_then(|ty| ferrax_ir::tensor::byte_size(&ty.sizes()?, ty.dtype).ok())
            .unwrap_or(usize::MAX)
    };
    program.measure(&|program, of| {
        let own = program.types.iter().map(bytes).fold(0usize, usize::saturating_add);
        let inside = |op: &Op| {
            let once = || op.programs().into_iter().map(of).fold(0usize, usize::saturating_add);
            match op {
                // Nobody knows for how long.
                Op::While(_) | Op::Sweeps(_) => usize::MAX,
                Op::Scan(scan) => scan.length.as_const().map_or(usize::MAX, |n| once().saturating_mul(n)),
                _ => once(),
            }
        };
        program.equations.iter().map(|equation| inside(&equation.op)).fold(own, usize::saturating_add)
    })
}

/// A shape, dtype and weakness given by Python as `(shape, dtype, weak)`, and, if there are any, names of axes of a mesh along
/// which values differ.
pub fn array_type(object: &Bound<'_, PyAny>) -> PyResult<ArrayType> {
    if let Ok(array) = object.cast::<Array>() {
        return Ok(array.get().array_type());
    }
    let object = object.cast::<PyTuple>()?;
    let varying = match object.len() {
        4 => Varying::of(object.get_item(3)?.extract::<Vec<String>>()?.into_iter().map(Arc::from)),
        _ => Varying::NONE,
    };
    let (shape, dtype, weak): (Bound<'_, PyAny>, Bound<'_, PyAny>, bool) =
        object.get_slice(0, 3).extract()?;
    let (shape, dtype) = (dims::shape(&shape)?, dtypes::from_python(&dtype)?);
    Ok(ArrayType::new(shape, dtype).with_weak(weak).with_varying(varying))
}

/// What [`array_type`] takes, of this type.
pub fn type_tuple<'py>(py: Python<'py>, ty: &Type) -> PyResult<Bound<'py, PyTuple>> {
    scoped_type(py, ty, dims::scope(py).as_ref())
}

/// The same with dimensions of this scope; without one symbolic ones are text.
fn scoped_type<'py>(py: Python<'py>, ty: &Type, scope: Option<&Py<PyAny>>) -> PyResult<Bound<'py, PyTuple>> {
    let array = ty.as_array().ok_or_else(|| PyValueError::new_err(format!("{ty} is not an array type")))?;
    let shape = dims::shape_tuple(py, &array.shape, scope)?;
    let dtype = dtypes::to_numpy(py, array.dtype)?;
    if array.varying.is_empty() {
        return (shape, dtype, array.weak).into_pyobject(py);
    }
    let varying = PyTuple::new(py, array.varying.names().iter().map(|name| &**name))?;
    (shape, dtype, array.weak, varying).into_pyobject(py)
}

#[pymethods]
impl PyProgram {
    #[getter]
    fn name(&self) -> &str {
        &self.program.name
    }

    /// `(shape, dtype, weak)` of each input.
    #[getter]
    fn in_types<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.program.input_types().map(|ty| scoped_type(py, ty, self.scope(py).as_ref())).collect()
    }

    /// `(shape, dtype, weak)` of each output.
    #[getter]
    fn out_types<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.program.output_types().map(|ty| scoped_type(py, &ty, self.scope(py).as_ref())).collect()
    }

    /// Whether each of the first inputs is given up by the callers that were traced; none for programs without such.
    #[getter]
    fn donated(&self) -> Vec<bool> {
        self.program.donated.clone()
    }

    /// The program, of callers that give these of the first inputs up.
    fn giving_up(&self, donated: Vec<bool>) -> PyProgram {
        PyProgram::new(Arc::new(Program { donated, ..(*self.program).clone() }))
    }

    /// The numbers of the inputs that its calls give up.
    fn given_up(&self) -> Vec<usize> {
        let calls = self.program.equations.iter().filter_map(|equation| match &equation.op {
            Op::Call(call) => Some((&equation.inputs, &call.program.donated)),
            _ => None,
        });
        let given: FxHashSet<Var> = calls
            .flat_map(|(atoms, donated)| atoms.iter().zip(donated).filter(|(_, donated)| **donated))
            .filter_map(|(atom, _)| atom.as_var())
            .collect();
        let inputs = self.program.inputs.iter().enumerate();
        inputs.filter(|(_, var)| given.contains(var)).map(|(place, _)| place).collect()
    }

    /// The number of equations, those of sub-programs included.
    #[getter]
    fn size(&self) -> usize {
        self.program.size()
    }

    /// Text like a jaxpr; the first `constants` inputs are shown before the `;`.
    #[pyo3(signature = (constants = 0))]
    fn text(&self, constants: usize) -> String {
        ferrax_ir::ShowCaptured(&self.program, constants).to_string()
    }

    /// The equations, as `(name, params, inputs, outputs, line, scope)`; variables are numbers,
    /// literals are `(value, dtype, weak)`. In place of a name, a primitive that is defined in
    /// Python is the object.
    fn equations<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let _scope = dims::within_scope(self.scope(py));
        self.program
            .equations
            .iter()
            .map(|equation| {
                let (name, entries) = match primitive::of(&equation.op) {
                    Some(own) => (own.primitive.clone_ref(py), own.params.bind(py).copy()?),
                    None => {
                        let entries = PyDict::new(py);
                        for (name, value) in equation.op.params() {
                            entries.set_item(name, params::to_python(py, &value)?)?;
                        }
                        (PyString::new(py, equation.op.name()).into_any().unbind(), entries)
                    }
                };
                let inputs: Vec<Py<PyAny>> =
                    equation.inputs.iter().map(|atom| show_atom(py, atom)).collect::<PyResult<_>>()?;
                let outputs: Vec<u32> = equation.outputs.iter().map(|var| var.0).collect();
                let line = equation.source.line();
                let scope = line.as_ref().map(|line| line.scope.to_string());
                (name, entries, inputs, outputs, line.map(|line| line.to_string()), scope).into_pyobject(py)
            })
            .collect()
    }

    /// The captured arrays that are part of the program, with their variables.
    fn constants(&self, py: Python<'_>) -> PyResult<Vec<(u32, Py<Array>)>> {
        let array = |(var, tensor): &(ferrax_ir::Var, ferrax_ir::Tensor)| {
            let weak = self.program.types[var.index()].as_array().is_some_and(|ty| ty.weak);
            Ok((var.0, Array::new_concrete(py, tensor.clone(), weak)?))
        };
        self.program.constants.iter().map(array).collect()
    }

    /// Input variables, output atoms and variable types.
    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let inputs: Vec<u32> = self.program.inputs.iter().map(|var| var.0).collect();
        let outputs: Vec<Py<PyAny>> =
            self.program.outputs.iter().map(|atom| show_atom(py, atom)).collect::<PyResult<_>>()?;
        let types: Vec<_> = self
            .program
            .types
            .iter()
            .map(|ty| scoped_type(py, ty, self.scope(py).as_ref()))
            .collect::<PyResult<_>>()?;
        (inputs, outputs, types).into_pyobject(py)
    }

    /// Tangents of the flagged inputs become further inputs; returns the
    /// program and which outputs have tangents.
    fn jvp(&self, py: Python<'_>, nonzero: Vec<bool>) -> PyResult<(PyProgram, Vec<bool>)> {
        let (program, flags) = ferrax_transform::jvp(&self.program, &nonzero).py(py)?;
        Ok((PyProgram::new(Arc::new(program)), flags))
    }

    /// `(primal, linear, which outputs have tangents)`: the primal program also
    /// gives residuals, which are the linear one's first inputs.
    fn linearize(&self, py: Python<'_>, nonzero: Vec<bool>) -> PyResult<(PyProgram, PyProgram, Vec<bool>)> {
        let result = ferrax_transform::linearize(&self.program, &nonzero).py(py)?;
        let primal = Arc::new(result.primal);
        let residuals_of = Some((primal.clone(), result.nonzero_out.len()));
        Ok((
            PyProgram::new(primal),
            PyProgram { residuals_of, ..PyProgram::new(Arc::new(result.linear)) },
            result.nonzero_out,
        ))
    }

    /// The transposed program over the flagged inputs, and which of them get a cotangent.
    fn transpose(
        &self,
        py: Python<'_>,
        linear: Vec<bool>,
        nonzero: Vec<bool>,
    ) -> PyResult<(PyProgram, Vec<bool>)> {
        let (program, flags) = ferrax_transform::transpose(&self.program, &linear, &nonzero).py(py)?;
        let residuals_of = self.residuals_of.clone();
        Ok((PyProgram { residuals_of, ..PyProgram::new(Arc::new(program)) }, flags))
    }

    /// The program over a batch, and the batch dimension of each output. `out_dims` says where
    /// they go; `None` in it for outputs that must not depend on the batch.
    #[pyo3(signature = (size, dims, out_dims = None, axis_name = None))]
    fn batch(
        &self,
        py: Python<'_>,
        size: &Bound<'_, PyAny>,
        dims: Vec<Option<usize>>,
        out_dims: Option<Vec<Option<usize>>>,
        axis_name: Option<&str>,
    ) -> PyResult<(PyProgram, Vec<Option<usize>>)> {
        let size = dims::dim(size)?;
        let policy = out_dims.as_deref().map_or(OutDims::AsIs, OutDims::Force);
        let (program, dims) =
            ferrax_transform::batch(&self.program, &size, &dims, axis_name, policy).py(py)?;
        Ok((PyProgram::new(Arc::new(program)), dims))
    }

    /// The same program with types that say nothing of axes of a mesh: what is run over whole arrays.
    fn erase_varying(&self, py: Python<'_>) -> PyResult<PyProgram> {
        Ok(PyProgram::new(ferrax_transform::spmd::erase_varying(&self.program).py(py)?))
    }

    /// The same program with small sums over named axes as one; see `ferrax_transform::spmd::combine_sums`.
    fn combine_sums(&self, py: Python<'_>) -> PyResult<PyProgram> {
        Ok(PyProgram::new(ferrax_transform::spmd::combine_sums(&self.program).py(py)?))
    }

    /// The same program with some of its outputs.
    fn select_outputs(&self, numbers: Vec<usize>) -> PyResult<PyProgram> {
        let mut program = (*self.program).clone();
        program.outputs = numbers
            .iter()
            .map(|&number| self.program.outputs.get(number).copied())
            .collect::<Option<_>>()
            .ok_or_else(|| PyValueError::new_err("there is no such output"))?;
        Ok(PyProgram::new(Arc::new(program)))
    }

    /// The same program that also gives some of its inputs.
    fn with_outputs(&self, inputs: Vec<usize>) -> PyResult<PyProgram> {
        let mut program = (*self.program).clone();
        for number in inputs {
            let input = self.program.inputs.get(number);
            let input = input.ok_or_else(|| PyValueError::new_err(format!("there is no input {number}")))?;
            program.outputs.push(ferrax_ir::Atom::Var(*input));
        }
        Ok(PyProgram::new(Arc::new(program)))
    }

    /// The same program with other inputs: each is the number of one of the inputs, or the type of
    /// one that is not used.
    fn rewire(&self, py: Python<'_>, inputs: Vec<Bound<'_, PyAny>>) -> PyResult<PyProgram> {
        let mut b = ferrax_ir::Builder::new(self.program.name.clone());
        let mut arguments: Vec<Option<ferrax_ir::Atom>> = vec![None; self.program.inputs.len()];
        for input in &inputs {
            match input.extract::<usize>() {
                Ok(number) => {
                    let types = self.program.input_types().nth(number).zip(arguments.get_mut(number));
                    let (ty, argument) =
                        types.ok_or_else(|| PyValueError::new_err(format!("there is no input {number}")))?;
                    *argument = Some(b.input(ty.clone()));
                }
                Err(_) => drop(b.input(array_type(input)?)),
            }
        }
        let arguments: Vec<_> = arguments
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| PyValueError::new_err("an input of the program is left out"))?;
        let outputs = b.inline(&self.program, &arguments).py(py)?;
        Ok(PyProgram::new(Arc::new(b.finish(outputs))))
    }

    /// Roughly, before fusion: arithmetic, functions such as `exp`, and bytes read and written.
    fn costs(&self) -> (u64, u64, u64) {
        let costs = self.program.costs();
        (costs.flops, costs.transcendentals, costs.bytes)
    }

    /// The plan: its text, the bytes that its steps read and write, and the memory of arguments, constants,
    /// results, values in between, and all at once.
    fn plan(&self, py: Python<'_>) -> PyResult<(String, usize, [usize; 5])> {
        let plan = py.detach(|| ferrax_cpu::plan(&self.program)).py(py)?;
        let memory = plan.memory();
        let sizes = [memory.arguments, memory.constants, memory.results, memory.temporaries, memory.peak()];
        Ok((plan.to_string(), plan.traffic(), sizes))
    }

    /// The functions of machine code that a run on the CPU calls: of each its name, its address and its bytes.
    fn machine_code<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, usize, Bound<'py, PyBytes>)>> {
        let functions = py.detach(|| ferrax_cpu::machine_code(&self.program)).py(py)?;
        let listed = functions.into_iter();
        Ok(listed.map(|of| (of.name, of.address, PyBytes::new(py, &of.code))).collect())
    }

    /// Runs on concrete arrays.
    #[pyo3(name = "run")]
    fn py_run<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.run(py, &operands(arguments)?)?)
    }

    /// The program after simplification, folding, sharing and removal of dead code.
    fn optimise(&self, py: Python<'_>) -> PyResult<PyProgram> {
        let program = ferrax_transform::optimise(&self.program, Default::default()).py(py)?;
        Ok(PyProgram::new(Arc::new(program)))
    }

    /// Fails if the program breaks an invariant of the IR.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        ferrax_ir::verify::verify(&self.program).py(py)
    }

    /// Runs the reference interpreter on concrete arrays.
    fn interpret<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let operands = operands(arguments)?;
        let results = ferrax_ir::interpret::run(&self.program, &eager::tensors(py, &operands)?).py(py)?;
        let arrays: Vec<_> = results
            .into_iter()
            .map(|tensor| Array::new_concrete(py, tensor, false))
            .collect::<PyResult<_>>()?;
        PyList::new(py, arrays)
    }

    /// Compiles now.
    fn compile(&self, py: Python<'_>) -> PyResult<()> {
        self.executable(py).map(|_| ())
    }
}

fn show_atom(py: Python<'_>, atom: &ferrax_ir::Atom) -> PyResult<Py<PyAny>> {
    Ok(match atom {
        ferrax_ir::Atom::Var(var) => var.0.into_pyobject(py)?.into_any().unbind(),
        ferrax_ir::Atom::Literal(literal) => (
            params::scalar_to_python(py, literal.value)?,
            dtypes::to_numpy(py, literal.value.dtype())?,
            literal.weak,
        )
            .into_pyobject(py)?
            .into_any()
            .unbind(),
    })
}

/// The items of a sequence as operands.
pub fn operands<'py>(sequence: &Bound<'py, PyAny>) -> PyResult<SmallVec<[Operand<'py>; 4]>> {
    sequence.try_iter()?.map(|item| convert::operand(&item?, "this function")).collect()
}

/// A program, what it captured, and what its function did to mutable arrays.
pub type TracedProgram = (PyProgram, Vec<Py<Array>>, Option<Py<PyAny>>);

/// Traces `function`, which takes a list of arrays and returns a sequence of
/// arrays: `(program, captured, refs)`. `kind` is 'stage', 'diff', 'value' or 'batch';
/// `refs` is what the function did to mutable arrays, usually None: the values that it gave them
/// are the program's last outputs. `types` are the arguments' types, `names` gives their names for
/// messages, `values` what they stand for, None where nobody knows. `axis` is the name of the axis
/// that is mapped over, of 'batch' if it has one.
#[pyfunction]
#[pyo3(signature = (function, kind, name, types, names = None, values = None, axis = None))]
#[expect(clippy::too_many_arguments, reason = "what a frame is made of")]
pub fn trace_program<'py>(
    py: Python<'py>,
    function: &Bound<'py, PyAny>,
    kind: &str,
    name: &str,
    types: Vec<Bound<'py, PyAny>>,
    names: Option<Py<PyAny>>,
    values: Option<Vec<Option<Py<Array>>>>,
    axis: Option<&str>,
) -> PyResult<TracedProgram> {
    let _scope = dims::within(py);
    let kind = FrameKind::parse(kind)?;
    let types: Vec<ArrayType> = types.iter().map(array_type).collect::<PyResult<_>>()?;
    let (frame, tracers) = trace::push(py, kind, name, &types, names, values.as_deref(), axis)?;
    let traced = function
        .call1((PyList::new(py, tracers)?,))
        .and_then(|outputs| operands(&outputs))
        .and_then(|outputs| trace::finish_with_refs(py, frame, outputs));
    match traced {
        Ok(traced) => Ok((PyProgram::new(Arc::new(traced.program)), traced.captured, traced.refs)),
        Err(error) => {
            trace::abandon(frame);
            Err(error)
        }
    }
}

/// Applies a program: inlined where something traces, else run.
#[pyfunction]
pub fn apply_program<'py>(
    py: Python<'py>,
    program: &Bound<'py, PyProgram>,
    arguments: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let operands = operands(arguments)?;
    if trace::runs_at_once(&program.get().program.effects, &operands) {
        let cached = crate::cache::shared(py, program)?;
        return PyList::new(py, cached.bind(py).get().run_as(py, &operands, program.get())?);
    }
    PyList::new(py, trace::inline(py, program.get(), &operands)?)
}

/// Applies a program as one call: recorded as a `jit` equation where something traces, else run.
#[pyfunction]
pub fn call_program<'py>(
    py: Python<'py>,
    program: &Bound<'py, PyProgram>,
    arguments: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let operands = operands(arguments)?;
    if trace::runs_at_once(&program.get().program.effects, &operands) {
        return PyList::new(py, program.get().run(py, &operands)?);
    }
    let inner = &program.get().program;
    let call = ops::Call { name: inner.name.clone(), program: inner.clone(), inline: false };
    PyList::new(py, trace::bind(py, Op::Call(call), &operands)?)
}
