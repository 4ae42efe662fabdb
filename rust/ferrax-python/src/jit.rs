//! `jit`: calls of a Python function by the program it traces to.
//!
//! A call flattens its arguments, looks the program up by tree structure, types, static values and trace context, and
//! runs it; or, inside another trace, records a call equation. Only a miss runs Python code of the user.

mod cache;
mod donation;
mod key;
mod leaves;
mod refs;
mod run;
mod stats;

use std::sync::Arc;
use std::time::Instant;

use ferrax_ir::{ArrayType, Op, Source, ops};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use smallvec::SmallVec;

use crate::array::Array;
use crate::checks;
use crate::convert::{self, Operand};
use crate::dims;
use crate::once::intern;
use crate::placement;
use crate::profiler;
use crate::program::PyProgram;
use crate::promote::{compilation_context, context};
use crate::spmd;
use crate::trace::{self, FrameKind};
use crate::tracebacks::Filtered;
use crate::tree::{self, Leaves, PyTreeDef, TreeDef};
pub use cache::JitCache;
use cache::Retrace;
use key::{Key, LeafType, Static, StaticName, abstract_leaf, static_value};
use leaves::{hide_float0, is_float0, open_views};
pub use refs::register_ref;
use refs::{Given, Refs, is_ref};

/// A traced program with what a call needs besides.
pub struct Entry {
    key: Key,
    program: Py<PyProgram>,
    captured: Vec<Py<Array>>,
    out_tree: TreeDef,
    /// Weakness of each output.
    weak: Vec<bool>,
    /// Leaves whose buffers the call may reuse.
    donated: Option<Vec<bool>>,
    /// What the function does to mutable arrays. The values of those that it closes over are the
    /// program's last inputs, the values that it gives to them and to arguments its last outputs.
    refs: Option<Py<PyAny>>,
    /// Which trace of the function it is, from 1 on.
    number: usize,
}

impl Entry {
    /// Shows what it holds to the garbage collector.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.key.args.traverse(visit)?;
        self.key.kwargs.iter().try_for_each(|tree| tree.traverse(visit))?;
        self.key.statics.iter().try_for_each(|value| visit.call(&value.value))?;
        self.out_tree.traverse(visit)?;
        self.refs.iter().try_for_each(|refs| visit.call(refs))
    }

    /// What it keeps in memory, about. Captured arrays count if nobody else has them.
    fn bytes(&self, py: Python<'_>) -> usize {
        let alone = |array: &&Py<Array>| {
            // SAFETY: the pointer is that of a live object, and the interpreter is attached.
            unsafe { pyo3::ffi::Py_REFCNT(array.bind(py).as_ptr()) == 1 }
        };
        let own = self.captured.iter().filter(alone);
        let captured: usize = own.map(|array| array.get().bytes()).fold(0, usize::saturating_add);
        let key = self.key.leaves.len() * size_of::<LeafType>();
        captured.saturating_add(key).saturating_add(self.program.get().kept_bytes())
    }
}

/// A compiled version of a Python function: what `ferrax.jit` returns.
///
/// Example:
///     >>> isinstance(ferrax.jit(jnp.cumsum), ferrax.stages.Wrapped)
///     True
#[pyclass(frozen, dict, weakref, module = "ferrax", name = "PjitFunction")]
pub struct JitFunction {
    function: Py<PyAny>,
    name: String,
    static_argnums: Vec<isize>,
    static_argnames: Vec<String>,
    donate_argnums: Vec<isize>,
    donate_argnames: Vec<String>,
    inline: bool,
    /// How often the function may be traced.
    max_traces: Option<usize>,
    cache: Py<JitCache>,
}

/// A call's arguments taken apart. For a repeated call there is no key, but the entry it would
/// find.
struct Call<'py> {
    key: Result<Key, Arc<Entry>>,
    operands: SmallVec<[Operand<'py>; 4]>,
    /// The leaves that are mutable arrays, with their numbers.
    refs: Refs<'py>,
    arguments: Bound<'py, PyTuple>,
    keywords: Option<Bound<'py, PyDict>>,
}

impl JitFunction {
    /// Which positions of `count` arguments these numbers mean.
    fn positions(numbers: &[isize], count: usize) -> SmallVec<[usize; 2]> {
        let count = count.cast_signed();
        numbers
            .iter()
            .map(|&number| if number < 0 { number + count } else { number })
            .filter(|number| (0..count).contains(number))
            .map(isize::cast_unsigned)
            .collect()
    }

    fn prepare<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        abstract_leaves: bool,
    ) -> PyResult<Call<'py>> {
        let mut statics: SmallVec<[Static; 1]> = SmallVec::new();
        let mut dynamic = args.clone();
        if !self.static_argnums.is_empty() {
            let positions = Self::positions(&self.static_argnums, args.len());
            if !positions.is_empty() {
                let mut rest = Vec::with_capacity(args.len());
                for (index, value) in args.iter().enumerate() {
                    if positions.contains(&index) {
                        statics.push(static_value(&value, StaticName::Position(index))?);
                    } else {
                        rest.push(value);
                    }
                }
                dynamic = PyTuple::new(py, rest)?;
            }
        }
        let mut keywords = kwargs.filter(|kwargs| !kwargs.is_empty()).cloned();
        if let Some(given) = &keywords
            && !self.static_argnames.is_empty()
        {
            let rest = given.copy()?;
            for name in &self.static_argnames {
                if let Some(value) = given.get_item(name)? {
                    statics.push(static_value(&value, StaticName::Keyword(name.clone()))?);
                    rest.del_item(name)?;
                }
            }
            keywords = (!rest.is_empty()).then_some(rest);
        }
        self.take_apart(py, statics, dynamic, keywords, abstract_leaves)
    }

    /// The call of these dynamic arguments.
    fn take_apart<'py>(
        &self,
        py: Python<'py>,
        statics: SmallVec<[Static; 1]>,
        dynamic: Bound<'py, PyTuple>,
        keywords: Option<Bound<'py, PyDict>>,
        abstract_leaves: bool,
    ) -> PyResult<Call<'py>> {
        let last = self.cache.get().last();
        let last = last.filter(|_| !abstract_leaves && statics.is_empty());
        let mut leaves = Leaves::new();
        let known = last.as_ref().map(|last| &last.key.args);
        let args_tree = flatten_like(py, dynamic.as_any(), known, &mut leaves)?;
        let kwargs_tree = match &keywords {
            Some(keywords) => {
                let known = last.as_ref().and_then(|last| last.key.kwargs.as_ref());
                Some(flatten_like(py, keywords.as_any(), known, &mut leaves)?)
            }
            None => None,
        };
        let mut operands: SmallVec<[Operand<'py>; 4]> = SmallVec::with_capacity(leaves.len());
        let mut types: SmallVec<[LeafType; 4]> = SmallVec::new();
        let mut refs: Refs<'py> = Vec::new();
        for (index, leaf) in leaves.into_iter().enumerate() {
            let leaf = leaf.into_bound(py);
            if abstract_leaves
                && !is_float0(&leaf)
                && let Some(ty) = abstract_leaf(&leaf)?
            {
                types.push(ty);
                continue;
            }
            // Asked first: the error for what is no array has its text, which takes longer than the call.
            if is_ref(&leaf) {
                let value = leaf.call_method0(intern!(py, "_read"))?;
                refs.push((index, leaf));
                let operand = convert::operand(&value, &self.name)?;
                if abstract_leaves {
                    types.push(LeafType::of(&operand));
                }
                operands.push(operand);
                continue;
            }
            let operand = match convert::owned_operand(leaf, &self.name) {
                Ok(operand) => operand,
                Err((leaf, error)) => {
                    let given = (&dynamic, &keywords).into_pyobject(py)?;
                    let hidden =
                        if is_float0(&leaf) { hide_float0(py, &given)? } else { open_views(py, &given)? };
                    if !hidden.is(&given) {
                        let (dynamic, keywords) = hidden.extract()?;
                        return self.take_apart(py, statics, dynamic, keywords, abstract_leaves);
                    }
                    return Err(self.not_an_argument(py, &leaf, index, (&dynamic, &keywords), error));
                }
            };
            if abstract_leaves {
                types.push(LeafType::of(&operand));
            }
            operands.push(operand);
        }
        self.check_distinct(py, &refs, (&dynamic, &keywords))?;
        let context = compilation_context();
        if let Some(last) = last
            && refs.is_empty()
            && last.key.context == context
            && last.key.statics.is_empty()
            && last.key.args.ptr_eq(&args_tree)
            && match (&last.key.kwargs, &kwargs_tree) {
                (Some(last), Some(tree)) => last.ptr_eq(tree),
                (last, tree) => last.is_none() && tree.is_none(),
            }
            && last.key.leaves.iter().zip(&operands).all(|(ty, operand)| ty.is(operand))
        {
            return Ok(Call { key: Err(last), operands, refs, arguments: dynamic, keywords });
        }
        if !abstract_leaves {
            types.reserve(operands.len());
            for operand in &operands {
                types.push(LeafType::of(operand));
            }
        }
        for (index, _) in &refs {
            types[*index].is_ref = true;
        }
        let mut key = Key { args: args_tree, kwargs: kwargs_tree, leaves: types, statics, context, hash: 0 };
        key.hash = key.digest();
        Ok(Call { key: Ok(key), operands, refs, arguments: dynamic, keywords })
    }

    /// The name of an argument's leaf; `given` are the dynamic positional and keyword arguments.
    /// Names fit positions only where no argument was taken out.
    fn leaf_name(&self, py: Python<'_>, index: usize, given: Given<'_, '_>) -> Option<String> {
        let named = || -> PyResult<String> {
            leaf_names(py)?.call1((self.function.bind(py), given.0, given.1))?.get_item(index)?.extract()
        };
        self.static_argnums.is_empty().then(|| named().ok()).flatten()
    }

    /// The function's name, file and line.
    fn place(&self, py: Python<'_>) -> String {
        let place = || -> PyResult<String> {
            py.import("ferrax._src.core.api_util")?
                .getattr("fun_place")?
                .call1((self.function.bind(py),))?
                .extract()
        };
        place().unwrap_or_else(|_| self.name.to_string())
    }

    /// `given` are the dynamic positional and keyword arguments.
    fn not_an_argument(
        &self,
        py: Python<'_>,
        leaf: &Bound<'_, PyAny>,
        index: usize,
        given: Given<'_, '_>,
        error: PyErr,
    ) -> PyErr {
        if !error.is_instance_of::<PyTypeError>(py) {
            return error;
        }
        let class = leaf.get_type().qualname().map(|name| name.to_string()).unwrap_or_default();
        let argument = match self.leaf_name(py, index, given) {
            Some(name) => format!("Argument '{name}'"),
            None => format!("Argument leaf {index}"),
        };
        PyTypeError::new_err(format!(
            "{argument} of {} has type {class}, which is not a valid array type: {}. Arguments of jitted \
             functions are pytrees of arrays and numbers; mark others as static (static_argnums or static_argnames) \
             or register their class as a pytree.",
            self.place(py),
            leaf.repr().map(|text| text.to_string()).unwrap_or_default()
        ))
    }

    /// The entry for a call, known or traced now, and the call's operands.
    fn entry<'py>(
        &self,
        py: Python<'py>,
        call: Call<'py>,
    ) -> PyResult<(Arc<Entry>, SmallVec<[Operand<'py>; 4]>, Refs<'py>)> {
        let key = match call.key {
            Ok(key) => key,
            Err(entry) => return Ok((entry, call.operands, call.refs)),
        };
        // Compared outside the lock: `==` of static values may run Python code.
        let candidates = self.cache.get().lock().entries.candidates(key.hash);
        for entry in candidates {
            if entry.key.matches(py, &key)? {
                let old = {
                    let mut cache = self.cache.get().lock();
                    let (_, old) = cache.entries.find(key.hash, |other| Arc::ptr_eq(other, &entry));
                    (old, cache.last.replace(entry.clone()))
                };
                drop(old);
                return Ok((entry, call.operands, call.refs));
            }
        }
        let values: Vec<Option<Py<Array>>> = call
            .operands
            .iter()
            .map(|operand| match operand {
                Operand::Array(array) => Some(array.clone().unbind()),
                Operand::Literal(_) => None,
            })
            .collect();
        let given = (&call.arguments, call.keywords.as_ref());
        let entry = self.trace(py, key, given, &call.refs, &values)?;
        Ok((entry, call.operands, call.refs))
    }

    /// Traces the function for a call that was not met before, whose arguments are these values,
    /// where they are arrays.
    fn trace<'py>(
        &self,
        py: Python<'py>,
        key: Key,
        (arguments, keywords): (&Bound<'py, PyTuple>, Option<&Bound<'py, PyDict>>),
        refs: &Refs<'py>,
        values: &[Option<Py<Array>>],
    ) -> PyResult<Arc<Entry>> {
        let known = self.before_trace(py, &key)?;
        let _span = profiler::phase("trace", &self.name);
        let begun = Instant::now();
        let types: Vec<ArrayType> = key.leaves.iter().map(LeafType::array_type).collect();
        let names = PyTuple::new(
            py,
            [
                self.function.clone_ref(py).into_any(),
                key.positional(arguments)?.into_any().unbind(),
                keywords.map_or_else(|| py.None(), |keywords| keywords.clone().into_any().unbind()),
            ],
        )?;
        let names = py.import(intern!(py, "functools"))?.call_method1(
            intern!(py, "partial"),
            (leaf_names(py)?, names.get_item(0)?, names.get_item(1)?, names.get_item(2)?),
        )?;
        let (frame, tracers) =
            trace::push(py, FrameKind::Stage, &self.name, &types, Some(names.unbind()), Some(values), None)?;
        for (tracer, leaf) in tracers.iter().zip(&key.leaves) {
            tracer.get().place.set(leaf.place);
        }
        let mut leaves: Vec<Py<PyAny>> = tracers.into_iter().map(Py::into_any).collect();
        let traced = self
            .place_refs(py, refs, (arguments, &keywords.cloned()), &mut leaves)
            .and_then(|()| self.call_on_tracers(py, &key, leaves))
            .and_then(|(outputs, tree)| Ok((trace::finish_with_refs(py, frame, outputs)?, tree)));
        let (mut traced, out_tree) = traced.inspect_err(|_| trace::abandon(frame))?;
        refs::values_last(py, &mut traced, types.len());
        self.after_trace(py, begun)?;
        if self.is_of_the_library(py) {
            // Further callers have other lines.
            traced.program.equations.iter_mut().for_each(|equation| equation.source = Source::UNKNOWN);
        }
        let donated = self.donated(py, &key, (arguments, keywords), &traced.program)?;
        traced.program.donated = donated.clone().unwrap_or_default();
        let lasting = |refs: &Py<PyAny>| refs.bind(py).getattr(intern!(py, "lasting"))?.extract::<bool>();
        // What was decided of symbolic sizes was so in their scope.
        let cache = self.cache.get();
        let keep = (cache.one_scope || key.leaves.iter().all(|leaf| leaf.symbolic.is_none()))
            && traced.captured.iter().all(|array| array.get().concrete().is_some())
            && traced.refs.as_ref().map_or(Ok(true), lasting)?;
        let number = cache.lock().traces + 1;
        let entry = Arc::new(Entry {
            key,
            weak: traced.program.output_types().map(|ty| ty.as_array().is_some_and(|ty| ty.weak)).collect(),
            program: Py::new(py, PyProgram::new(Arc::new(traced.program)))?,
            captured: traced.captured,
            out_tree,
            donated,
            refs: traced.refs,
            number,
        });
        let bytes = entry.bytes(py);
        let mut cache = cache.lock();
        cache.traces += 1;
        let forgotten = match (known, keep) {
            (true, true) => cache.retrace.replace(Retrace::Unlike(entry.clone())),
            (_, false) if cache.traces > 1 => cache.retrace.replace(Retrace::Captured),
            _ => None,
        };
        // Programs that captured tracers are good for this trace alone.
        if keep {
            let old = cache.entries.insert(entry.key.hash, entry.clone(), bytes);
            cache.compiled_before += old.iter().filter(|entry| entry.program.get().is_compiled()).count();
            let last = cache.last.replace(entry.clone());
            drop(cache);
            drop((old, last));
        } else {
            drop(cache);
        }
        drop(forgotten);
        Ok(entry)
    }

    fn is_of_the_library(&self, py: Python<'_>) -> bool {
        let module = self.function.bind(py).getattr(intern!(py, "__module__"));
        module.and_then(|module| module.extract::<String>()).is_ok_and(|module| module.starts_with("ferrax."))
    }

    fn call_on_tracers<'py>(
        &self,
        py: Python<'py>,
        key: &Key,
        leaves: Vec<Py<PyAny>>,
    ) -> PyResult<(SmallVec<[Operand<'py>; 4]>, TreeDef)> {
        let mut tracers = leaves.into_iter();
        let count = key.args.num_leaves();
        let dynamic = key.args.unflatten(py, tracers.by_ref().take(count))?;
        let dynamic = dynamic.bind(py).cast::<PyTuple>()?;
        let keywords = match &key.kwargs {
            Some(tree) => tree.unflatten(py, tracers)?.bind(py).cast::<PyDict>()?.clone(),
            None => PyDict::new(py),
        };
        let mut rest = dynamic.iter();
        let mut args: Vec<Bound<'py, PyAny>> = Vec::with_capacity(dynamic.len() + key.statics.len());
        for value in &key.statics {
            match &value.name {
                StaticName::Position(position) => {
                    args.extend(rest.by_ref().take(position - args.len()));
                    args.push(value.value.bind(py).clone());
                }
                StaticName::Keyword(name) => keywords.set_item(name, value.value.bind(py))?,
            }
        }
        args.extend(rest);
        let result = self.function.bind(py).call(PyTuple::new(py, args)?, Some(&keywords))?;
        let mut leaves = Leaves::new();
        let mut tree = tree::flatten(py, &result, None, &mut leaves)?;
        if leaves.iter().any(|leaf| is_float0(leaf.bind(py))) {
            leaves = Leaves::new();
            tree = tree::flatten(py, &hide_float0(py, &result)?, None, &mut leaves)?;
        }
        let outputs =
            leaves.iter().map(|leaf| self.output(py, leaf.bind(py), &result)).collect::<PyResult<_>>()?;
        Ok((outputs, tree))
    }

    /// A leaf of what the function returned.
    fn output<'py>(
        &self,
        py: Python<'py>,
        leaf: &Bound<'py, PyAny>,
        result: &Bound<'py, PyAny>,
    ) -> PyResult<Operand<'py>> {
        match convert::operand(leaf, &self.name) {
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {}
            done => return done,
        }
        if is_ref(leaf) {
            return Err(self.returned_ref(py, leaf, result));
        }
        let stand_in = py
            .import(intern!(py, "ferrax._src.tracing.abstract_values"))?
            .call_method1(intern!(py, "stand_in"), (leaf,))?;
        if let Ok(array) = stand_in.cast_into::<Array>() {
            return Ok(Operand::Array(array));
        }
        let class = leaf.get_type().qualname().map(|name| name.to_string()).unwrap_or_default();
        Err(PyTypeError::new_err(format!(
            "function {} traced for jit returned a value of type {class}, which is not a valid array type: {}. Return \
             arrays, numbers or pytrees of them.",
            self.place(py),
            leaf.repr().map(|text| text.to_string()).unwrap_or_default()
        )))
    }

    fn run_entry(
        &self,
        py: Python<'_>,
        entry: &Entry,
        operands: &[Operand<'_>],
        refs: &Refs<'_>,
    ) -> PyResult<Py<PyAny>> {
        let program = entry.program.get();
        let with_captured: SmallVec<[Operand<'_>; 4]>;
        let all = if entry.captured.is_empty() {
            operands
        } else {
            with_captured = operands
                .iter()
                .cloned()
                .chain(entry.captured.iter().map(|array| Operand::Array(array.bind(py).clone())))
                .collect();
            &with_captured
        };
        if let Some(done) = &entry.refs {
            return self.run_with_refs(py, entry, done.bind(py), all, refs);
        }
        if !trace::runs_at_once(&program.program.effects, all) {
            let outputs = self.record(py, program, all)?;
            return entry.out_tree.unflatten(py, outputs.into_iter().map(Py::into_any));
        }
        if checks::keys() {
            return self.run_followed(py, entry, all);
        }
        if placement::any(all) || checks::elsewhere() || program.says_places() {
            let arrays = self.run_placed(py, entry, all)?;
            return entry.out_tree.unflatten(py, arrays.into_iter().map(Py::into_any));
        }
        let arrays = self
            .execute(py, entry, all)?
            .into_iter()
            .zip(&entry.weak)
            .map(|(tensor, &weak)| Array::new_concrete(py, tensor, weak));
        entry.out_tree.unflatten_fallible(py, arrays.map(|array| array.map(Py::into_any)))
    }

    /// Records a call in the frame that is being traced.
    fn record(
        &self,
        py: Python<'_>,
        program: &PyProgram,
        operands: &[Operand<'_>],
    ) -> PyResult<trace::Outputs> {
        let inner = &program.program;
        if self.inline {
            return trace::inline(py, program, operands);
        }
        let call = ops::Call { name: inner.name.clone(), program: inner.clone(), inline: false };
        trace::bind(py, Op::Call(call), operands)
    }
}

/// `tree::flatten`, quick where the tree is like the known one: then that is the result.
fn flatten_like<'py>(
    py: Python<'py>,
    tree: &Bound<'py, PyAny>,
    known: Option<&TreeDef>,
    leaves: &mut Leaves,
) -> PyResult<TreeDef> {
    if let Some(known) = known
        && known.flatten_again(tree, leaves)?
    {
        return Ok(known.clone());
    }
    tree::flatten(py, tree, None, leaves)
}

/// The function that names an argument's leaves for messages.
fn leaf_names(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "ferrax._src.core.api_util"))?.getattr(intern!(py, "argument_names"))
}

#[pymethods]
impl JitFunction {
    #[new]
    #[pyo3(signature = (function, name, static_argnums, static_argnames, donate_argnums, donate_argnames, inline, max_traces, cache))]
    #[expect(clippy::too_many_arguments, reason = "called once, by the Python jit")]
    fn new(
        function: Py<PyAny>,
        name: String,
        static_argnums: Vec<isize>,
        static_argnames: Vec<String>,
        donate_argnums: Vec<isize>,
        donate_argnames: Vec<String>,
        inline: bool,
        max_traces: Option<usize>,
        cache: Py<JitCache>,
    ) -> Self {
        JitFunction {
            function,
            name,
            static_argnums,
            static_argnames,
            donate_argnums,
            donate_argnames,
            inline,
            max_traces,
            cache,
        }
    }

    /// What refers to the function may be what it belongs to, as with `self.f = jit(self.method)`.
    /// Nothing is cleared here: a cycle goes through the cache, which can be, or through a function and
    /// so through an object of Python's that can be.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Python 3.11 makes an object's `__dict__` before the fields are written, and may collect garbage
        // at that: what it then shows are zeros.
        // SAFETY: `Py` is a transparent wrapper of a pointer that is not null, so that an `Option` of it is
        // laid out alike, and zeros are its `None`.
        let (function, cache) = unsafe {
            (
                &*(&raw const self.function).cast::<Option<Py<PyAny>>>(),
                &*(&raw const self.cache).cast::<Option<Py<JitCache>>>(),
            )
        };
        visit.call(function.as_ref())?;
        visit.call(cache.as_ref())
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let (this, py) = (slf.get(), slf.py());
        let _span = profiler::call(py, || format!("PjitFunction({})", this.name));
        let call = || {
            if context().disable_jit {
                return this.function.bind(py).call(args, kwargs).map(Bound::unbind);
            }
            let call = this.prepare(py, args, kwargs, false)?;
            let (entry, operands, refs) = this.entry(py, call)?;
            this.run_entry(py, &entry, &operands, &refs)
        };
        call().or_else(|error| spmd::over_processes(slf, args, kwargs, error)).filtered(py)
    }

    /// `(program, captured, in_tree, out_tree, donated, refs)` for these arguments, which may be
    /// abstract: what `lower` and `eval_shape` are made of. `refs` is None, or what the function
    /// does to mutable arrays.
    #[pyo3(signature = (*args, **kwargs))]
    fn _traced<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _scope = dims::within(py);
        let call = self.prepare(py, args, kwargs, true)?;
        let (entry, _, _) = self.entry(py, call)?;
        let kwargs_tree = match &entry.key.kwargs {
            Some(tree) => tree.clone(),
            None => tree::flatten(py, PyDict::new(py).as_any(), None, &mut Leaves::new())?,
        };
        let in_tree = TreeDef::tuple(py, &[entry.key.args.clone(), kwargs_tree])?;
        let captured: Vec<Py<Array>> = entry.captured.iter().map(|array| array.clone_ref(py)).collect();
        (
            entry.program.clone_ref(py),
            captured,
            Py::new(py, PyTreeDef::from(in_tree))?,
            Py::new(py, PyTreeDef::from(entry.out_tree.clone()))?,
            entry.donated.clone(),
            entry.refs.as_ref().map(|refs| refs.clone_ref(py)),
        )
            .into_pyobject(py)
    }

    fn __get__<'py>(
        slf: Bound<'py, Self>,
        object: &Bound<'py, PyAny>,
        _class: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if object.is_none() {
            return Ok(slf.into_any());
        }
        py.import(intern!(py, "types"))?.call_method1(intern!(py, "MethodType"), (slf, object))
    }

    /// The number of programs in the cache.
    fn _cache_size(&self) -> usize {
        self.cache.get().lock().entries.len()
    }

    /// Forgets all traced programs of this function.
    fn _forget(&self) {
        self.cache.get().clear();
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.function.bind(py).repr() {
            Ok(shown) => format!("<PjitFunction of {shown}>"),
            // The function's own error is not that of whoever shows a jitted one.
            Err(_) => "<PjitFunction>".to_owned(),
        }
    }

    #[getter]
    fn _function(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    #[getter]
    fn _function_name<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, &self.name)
    }
}
