//! Primitives that are defined in Python, callbacks among them: ops whose rules are Python functions.
//!
//! A rule is called while a pass runs and is traced into a program, which is put in the place of the
//! equation. What the rules have in common (looking one up, calling it by JAX's protocol, checking
//! what it gives) is `ferrax._src.primitive_rules`. The object and its parameters are kept as they
//! are. Exceptions of rules and callbacks come out again at the binding.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use ferrax_ir::rules::{Batch, Batched, Extents, Jvp, Lowering, Row, Rules, Transpose, Types, WithTangents};
use ferrax_ir::shard_rule::{Cut, ShardRule};
use ferrax_ir::{
    Atom, Builder, Dim, Effect, Effects, Extension, Op, Param, Program, Result, Tensor, Type, internal_error,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::{self, Operand};
use crate::dims;
use crate::drops::Referred;
use crate::eager;
use crate::interrupt::stash;
use crate::once::Once;
use crate::params::from_python;
use crate::program::{PyProgram, array_type, operands, type_tuple};
use crate::{profiler, trace};

/// One application of a primitive that is defined in Python.
#[derive(Debug)]
pub struct PythonPrimitive {
    name: String,
    /// The `Primitive`.
    pub primitive: Referred<PyAny>,
    pub params: Referred<PyDict>,
    /// The types that it was applied to, and what its type rule gave for them.
    inputs: SmallVec<[Type; 3]>,
    outputs: Types,
    effects: Effects,
}

/// The primitive of an op, if it is defined in Python.
pub fn of(op: &Op) -> Option<&PythonPrimitive> {
    match op {
        Op::Extension(extension) => extension.0.as_any()?.downcast_ref(),
        _ => None,
    }
}

/// The application of a primitive to operands of these types, with outputs of others.
pub fn applied(
    primitive: &Bound<'_, PyAny>,
    params: &Bound<'_, PyDict>,
    inputs: SmallVec<[Type; 3]>,
    outputs: Types,
    effects: Effects,
) -> PyResult<Op> {
    let name = primitive.str()?.to_string();
    let (primitive, params) = (primitive.clone().unbind().into(), params.copy()?.unbind().into());
    let op = PythonPrimitive { name, primitive, params, inputs, outputs, effects };
    Ok(Op::Extension(Extension(Arc::new(op))))
}

/// Parameters' names live as long as the process: there are few.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<Option<FxHashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = Box::leak(name.into());
            names.insert(kept);
            kept
        }
    }
}

/// `ferrax._src.primitive_rules`, which is imported once.
pub fn rules(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: Once<Py<PyModule>> = Once::new();
    let module = MODULE
        .get_or_try_init(py, || py.import("ferrax._src.transforms.primitive_rules").map(Bound::unbind))?;
    Ok(module.bind(py))
}

/// A function of that module.
fn rule<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    rules(py)?.getattr(name)
}

fn show_types<'py>(py: Python<'py>, types: &[Type]) -> PyResult<Bound<'py, PyList>> {
    let tuples: Vec<_> = types.iter().map(|ty| type_tuple(py, ty)).collect::<PyResult<_>>()?;
    PyList::new(py, tuples)
}

type Inferred = (Types, Effects);

/// Asks the type rule.
fn infer(primitive: &Bound<'_, PyAny>, params: &Bound<'_, PyDict>, inputs: &[Type]) -> PyResult<Inferred> {
    let py = primitive.py();
    let asked = rule(py, "abstract_eval")?.call1((primitive, params, show_types(py, inputs)?))?;
    let (types, unordered, ordered, axes): (Vec<Bound<'_, PyAny>>, bool, bool, Vec<String>) =
        asked.extract()?;
    let types = types.iter().map(|ty| array_type(ty).map(Type::from)).collect::<PyResult<_>>()?;
    let kinds = [(Effect::Unordered, unordered), (Effect::Ordered, ordered)];
    let kinds = kinds.into_iter().filter(|(_, there)| *there).map(|(effect, _)| effect);
    Ok((types, kinds.chain(axes.iter().map(|axis| Effect::NamedAxis(axis.as_str().into()))).collect()))
}

fn same_but_weak(a: &Type, b: &Type) -> bool {
    match (a.as_array(), b.as_array()) {
        (Some(a), Some(b)) => a.shape == b.shape && a.dtype == b.dtype,
        _ => a == b,
    }
}

impl PythonPrimitive {
    /// Calls a rule that gives a program and something for each of its values.
    fn ask<'py, A, T>(&self, py: Python<'py>, name: &str, rest: A) -> PyResult<(Arc<Program>, T)>
    where
        A: IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
        T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let rest = rest.into_pyobject(py)?;
        let mut all = vec![self.primitive.bind(py).clone(), self.params.bind(py).clone().into_any()];
        all.extend(rest.iter());
        let answer = rule(py, name)?.call1(PyTuple::new(py, all)?)?;
        let program = answer.get_item(0)?.cast_into::<PyProgram>()?.get().program.clone();
        Ok((program, answer.get_item(1)?.extract()?))
    }
}

impl PythonPrimitive {
    /// The axes along which elements depend on others, if the primitive says that parts along all others are made alike; and of
    /// how many elements the blocks along such an axis are that depend on each other alone, 0 if there are none.
    pub fn coupled(&self) -> Result<Option<Vec<(usize, usize)>>> {
        Python::attach(|py| rule(py, "coupled_axes")?.call1((&*self.primitive, &*self.params))?.extract())
            .map_err(stash)
    }
}

fn types_of(b: &Builder, atoms: &[Atom]) -> SmallVec<[Type; 3]> {
    atoms.iter().map(|&atom| b.type_of(atom)).collect()
}

impl Row for PythonPrimitive {
    fn name(&self) -> &str {
        &self.name
    }

    /// For texts: what programs need are the objects themselves.
    fn params(&self) -> Vec<(&'static str, Param)> {
        Python::attach(|py| {
            let params = self.params.bind(py);
            let shown = |value: &Bound<'_, PyAny>| match from_python(value) {
                Ok(param) => param,
                Err(_) => {
                    let text = value.str().map_or_else(|_| "<no text>".to_owned(), |text| text.to_string());
                    Param::Str(text.into())
                }
            };
            params
                .iter()
                .filter_map(|(name, value)| Some((interned(&name.extract::<String>().ok()?), shown(&value))))
                .collect()
        })
    }

    fn infer(&self, inputs: &[Type]) -> Result<Types> {
        if inputs.len() == self.inputs.len()
            && inputs.iter().zip(&self.inputs).all(|(a, b)| same_but_weak(a, b))
        {
            return Ok(self.outputs.clone());
        }
        Python::attach(|py| infer(self.primitive.bind(py), self.params.bind(py), inputs))
            .map(|(types, _)| types)
            .map_err(stash)
    }

    fn eval(&self, inputs: &[Tensor], outputs: &[Type]) -> Result<Vec<Tensor>> {
        let run = |py: Python<'_>| -> PyResult<Vec<Tensor>> {
            let arrays = inputs
                .iter()
                .map(|tensor| Array::new_concrete(py, tensor.clone(), false))
                .collect::<PyResult<Vec<_>>>()?;
            let types = show_types(py, outputs)?;
            let results = rule(py, "evaluate")?.call1((&*self.primitive, &*self.params, arrays, types))?;
            let results = operands(&results)?;
            Ok(eager::tensors(py, &results)?.into_vec())
        };
        let _span = profiler::callback(&self.name);
        let results = Python::attach(run).map_err(stash)?;
        for (tensor, ty) in results.iter().zip(outputs) {
            if !same_but_weak(&tensor.array_type().into(), ty) {
                return Err(internal_error!("{} gave {} for {ty}", self.name, tensor.array_type()));
            }
        }
        Ok(results)
    }

    fn effects(&self) -> Effects {
        self.effects.clone()
    }

    fn as_data(&self, rules: bool) -> Result<Option<Op>> {
        Python::attach(|py| -> PyResult<Option<Op>> {
            let asked = rule(py, "as_data")?.call1((&*self.primitive, &*self.params, rules))?;
            let Some((name, params)) = asked.extract::<Option<(String, Bound<'_, PyDict>)>>()? else {
                return Ok(None);
            };
            crate::params::op(py, &name, &params, None).map(Some)
        })
        .map_err(stash)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Rules for PythonPrimitive {
    fn jvp_joint(
        &self,
        b: &mut Builder,
        inputs: &[Atom],
        tangents: &[Option<Atom>],
    ) -> Option<Result<WithTangents>> {
        let nonzero: Vec<bool> = tangents.iter().map(Option::is_some).collect();
        let types = types_of(b, inputs);
        let asked = Python::attach(|py| {
            let rest = (show_types(py, &types)?, nonzero, show_types(py, &self.outputs)?);
            self.ask::<_, Vec<bool>>(py, "jvp", rest)
        });
        let emit = |(program, flags): (Arc<Program>, Vec<bool>)| {
            let arguments: Vec<Atom> =
                inputs.iter().copied().chain(tangents.iter().flatten().copied()).collect();
            let results = b.inline(&program, &arguments)?;
            let (outputs, tangents) = results.split_at(flags.len().min(results.len()));
            let mut tangents = tangents.iter().copied();
            let pairs = outputs.iter().zip(&flags);
            Ok(pairs.map(|(&out, &flag)| (out, if flag { tangents.next() } else { None })).collect())
        };
        Some(asked.map_err(stash).and_then(emit))
    }

    fn jvp(&self, _: &mut Builder, _: &Jvp<'_>) -> Result<SmallVec<[Option<Atom>; 1]>> {
        Err(internal_error!("the jvp rule of {} gives outputs and tangents together", self.name))
    }

    fn transpose(&self, b: &mut Builder, eqn: &Transpose<'_>) -> Result<SmallVec<[Option<Atom>; 3]>> {
        let types: SmallVec<[Type; 3]> = eqn
            .inputs
            .iter()
            .map(|operand| match operand {
                ferrax_ir::rules::Operand::Known(atom) => b.type_of(*atom),
                ferrax_ir::rules::Operand::Linear(ty) => ty.clone(),
            })
            .collect();
        let linear: Vec<bool> = eqn.inputs.iter().map(ferrax_ir::rules::Operand::is_linear).collect();
        let given: Vec<bool> = eqn.cotangents.iter().map(Option::is_some).collect();
        let (program, flags) = Python::attach(|py| {
            let rest = (show_types(py, &types)?, linear, show_types(py, eqn.outputs)?, given);
            self.ask::<_, Vec<bool>>(py, "transpose", rest)
        })
        .map_err(stash)?;
        let known = eqn.inputs.iter().filter_map(ferrax_ir::rules::Operand::known);
        let arguments: Vec<Atom> = known.chain(eqn.cotangents.iter().flatten().copied()).collect();
        let mut found = b.inline(&program, &arguments)?.into_iter();
        Ok(flags.iter().map(|&flag| if flag { found.next() } else { None }).collect())
    }

    fn batch(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        let types = types_of(b, eqn.inputs);
        let (program, dims) = Python::attach(|py| {
            let size = dims::to_python(py, eqn.size, dims::scope(py).as_ref())?;
            let batch = (size, eqn.axis_name, eqn.dims.to_vec());
            let rest = (batch, show_types(py, &types)?, show_types(py, &self.outputs)?);
            self.ask::<_, Vec<Option<usize>>>(py, "batch", rest)
        })
        .map_err(stash)?;
        Ok(b.inline(&program, eqn.inputs)?.into_iter().zip(dims).collect())
    }

    fn batch_named(&self, b: &mut Builder, eqn: &Batch<'_>) -> Result<Batched> {
        self.batch(b, eqn)
    }

    /// Callbacks run as a step of their own; others are what their lowering is made of.
    fn lower(&self) -> Lowering {
        let is_host = |py: Python<'_>| rule(py, "is_host")?.call1((&*self.primitive,))?.is_truthy();
        match Python::attach(is_host) {
            Ok(true) => Lowering::Library,
            _ => Lowering::Expand,
        }
    }

    /// As the primitive says; else a guess.
    fn shard(&self, inputs: &[Extents<'_>], outputs: &[Extents<'_>]) -> Result<ShardRule> {
        Ok(match self.coupled()? {
            Some(axes) => {
                let (coupled, _): (Vec<_>, Vec<_>) = axes.iter().copied().unzip();
                let mut rule = ShardRule::coupled(&coupled, inputs, outputs);
                axes.iter().for_each(|&(axis, block)| rule.in_blocks(axis, block, inputs, outputs));
                // Windows along an axis lie in the order of its elements, however many they are.
                if let ([input], [output]) = (inputs, outputs)
                    && input.sizes.len() == output.sizes.len()
                {
                    let other = |axis: usize| input.sizes[axis] != output.sizes[axis];
                    let overlapping = axes.iter().filter(|&&(axis, block)| block == 0 && other(axis));
                    overlapping.for_each(|&(axis, _)| rule.share(0, axis, 0, axis, Cut::Shift));
                }
                rule
            }
            None => ShardRule::alike(inputs, outputs),
        })
    }

    fn specialised(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Result<Option<Extension>> {
        let types = self.inputs.iter().chain(&self.outputs).filter_map(Type::as_array);
        let names: FxHashSet<Arc<str>> = types.flat_map(|ty| &ty.shape).flat_map(Dim::variables).collect();
        let known: Vec<(Arc<str>, Dim)> =
            names.into_iter().filter_map(|name| lookup(&name).map(|dim| (name, dim))).collect();
        let params = Python::attach(|py| {
            let (scope, values) = (dims::scope(py), PyDict::new(py));
            for (name, dim) in &known {
                values.set_item(&**name, dims::to_python(py, dim, scope.as_ref())?)?;
            }
            let params = rule(py, "specialised")?.call1((&*self.params, values))?;
            Ok(params.cast_into::<PyDict>()?.unbind())
        })
        .map_err(stash)?;
        let primitive = Python::attach(|py| self.primitive.clone_ref(py));
        Ok(Some(Extension(Arc::new(PythonPrimitive {
            name: self.name.clone(),
            primitive: primitive.into(),
            params: params.into(),
            inputs: self.inputs.iter().map(|ty| ty.substitute(lookup)).collect::<Result<_>>()?,
            outputs: self.outputs.iter().map(|ty| ty.substitute(lookup)).collect::<Result<_>>()?,
            effects: self.effects.clone(),
        }))))
    }

    fn of_parts(&self, operands: &[Type]) -> Result<Option<Op>> {
        Python::attach(|py| {
            let (primitive, params) = (self.primitive.bind(py), self.params.bind(py));
            let (outputs, effects) = infer(primitive, params, operands)?;
            applied(primitive, params, operands.into(), outputs, effects).map(Some)
        })
        .map_err(stash)
    }

    fn expand(&self, b: &mut Builder, inputs: &[Atom]) -> Result<SmallVec<[Atom; 1]>> {
        let types = types_of(b, inputs);
        let (program, _) = Python::attach(|py| {
            self.ask::<_, Vec<bool>>(
                py,
                "lowering",
                (show_types(py, &types)?, show_types(py, &self.outputs)?),
            )
        })
        .map_err(stash)?;
        // What programs within the parameters say of the axes of a mesh is of no use to a machine.
        b.inline(&*ferrax_transform::spmd::erase_varying(&program)?, inputs)
    }
}

/// Records the application of a primitive that is defined in Python: the outputs, or None if it
/// would run at once.
#[pyfunction]
pub fn record_primitive<'py>(
    py: Python<'py>,
    primitive: &Bound<'py, PyAny>,
    name: String,
    arguments: &Bound<'py, PyTuple>,
    params: &Bound<'py, PyDict>,
    effectful: bool,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let operands: SmallVec<[Operand<'py>; 4]> =
        arguments.iter().map(|item| convert::operand(&item, &name)).collect::<PyResult<_>>()?;
    if !effectful && trace::runs_eagerly(&operands) {
        return Ok(None);
    }
    // Before the trace stack is borrowed: the rule may trace.
    let inputs = trace::types(&operands);
    let (outputs, effects) = infer(primitive, params, &inputs)?;
    let op = PythonPrimitive {
        name,
        primitive: primitive.clone().unbind().into(),
        params: params.copy()?.unbind().into(),
        inputs,
        outputs: outputs.clone(),
        effects,
    };
    let op = Op::Extension(Extension(Arc::new(op)));
    match trace::record_extension(py, op, &outputs, &operands)? {
        Some(outputs) => PyList::new(py, outputs).map(Some),
        None => Ok(None),
    }
}

/// The values of these arguments, where a derivative is being traced and they are all known and no
/// effect is recorded that would have to happen before; else None.
#[pyfunction]
pub fn observed_values<'py>(
    py: Python<'py>,
    name: &str,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let operands: SmallVec<[Operand<'py>; 4]> =
        arguments.iter().map(|item| convert::operand(&item, name)).collect::<PyResult<_>>()?;
    match trace::observed(py, &operands)? {
        Some(values) => PyList::new(py, values).map(Some),
        None => Ok(None),
    }
}
