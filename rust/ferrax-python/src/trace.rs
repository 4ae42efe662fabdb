//! The trace stack: frames that record what traced functions do.
//!
//! | frame | made by | a tracer's concrete value |
//! |---|---|---|
//! | stage | jit, make_jaxpr, eval_shape | never, but where a function is traced for one call: `staged` |
//! | diff | grad, vjp, jvp, linearize | on demand: the recorded prefix is evaluated, each value once |
//! | value | rules and functions of custom derivatives under a diff frame | on demand, of inputs that have one |
//! | batch | vmap | never |
//!
//! An op is recorded by the highest frame among its tracers or by the innermost staging frame, whichever is
//! higher; else it runs at once. Values from lower frames are captured: they become further inputs of the
//! frame's program. Within `ensure_compile_time_eval` the operands' frames alone decide. Each thread has its
//! own stack. No Python code runs while the stack is borrowed.

mod leaks;
mod origin;
pub mod staged;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrax_ir::op::View;
use ferrax_ir::{ArrayType, Atom, Builder, Effect, Effects, Op, Program, Source, Type, Var, internal_error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::array::{Array, Data, TracerData};
use crate::convert::Operand;
use crate::errors::{IntoPyResult, raise, to_py, with_line};
use crate::once::intern;
use crate::program::PyProgram;
use crate::{checks, drops::OfThread, eager, placement, source};

pub use origin::{chain, describe, unexpected_tracer};
pub use staged::{asked, settled};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    Stage,
    Diff,
    /// As `Diff`, where some inputs may have no value; what it records is not differentiated itself.
    Value,
    Batch,
}

impl FrameKind {
    pub fn name(self) -> &'static str {
        match self {
            FrameKind::Stage => "stage",
            FrameKind::Diff => "diff",
            FrameKind::Value => "value",
            FrameKind::Batch => "batch",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> PyResult<FrameKind> {
        [FrameKind::Stage, FrameKind::Diff, FrameKind::Value, FrameKind::Batch]
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| PyValueError::new_err(format!("there is no frame kind '{name}'")))
    }
}

/// A program under construction, with what its inputs stand for.
pub struct Frame {
    id: u64,
    kind: FrameKind,
    builder: Builder,
    /// The number of leading inputs that are arguments.
    arguments: usize,
    /// A Python callable that gives the arguments' names; asked only for messages.
    names: Option<Py<PyAny>>,
    /// The mapped axis that the frame's lanes are on, if it has a name.
    axis: Option<Arc<str>>,
    /// What the inputs after the arguments stand for.
    captured: Vec<Py<Array>>,
    capture_index: FxHashMap<usize, Atom>,
    /// What each variable stands for further out, as far as known: of inputs in all frames, of
    /// what equations give in diff and value frames.
    values: Vec<Option<Py<Array>>>,
    /// The equation that defines each variable; `u32::MAX` for inputs.
    producers: Vec<u32>,
    /// What the traced function does to mutable arrays, once it touches one: see `ferrax._src.refs`.
    refs: Option<Py<PyAny>>,
    /// Which captured values are what a mutable array holds, with the identity of that.
    ref_inputs: Vec<(usize, usize)>,
    /// What knows the values of a staged function that is traced for one call.
    answer: Option<Py<PyAny>>,
    /// The scope in which the frame was made. Scopes in a staged program are relative to it.
    scope: Option<usize>,
}

thread_local! {
    static STACK: RefCell<OfThread<Vec<Frame>>> = const { RefCell::new(OfThread::new(Vec::new())) };
}

thread_local! {
    /// Within how many blocks of `ensure_compile_time_eval` this thread is: in them, ops on
    /// concrete operands run at once, whatever is being traced.
    static CONCRETE_RUNS: Cell<usize> = const { Cell::new(0) };
}

/// Enters or leaves a block in which ops on concrete operands run at once.
#[pyfunction]
pub fn concrete_ops_run(enter: bool) {
    CONCRETE_RUNS.set(if enter { CONCRETE_RUNS.get() + 1 } else { CONCRETE_RUNS.get().saturating_sub(1) });
}

/// The innermost staging frame, which records ops without its tracers too.
fn staging(stack: &[Frame]) -> Option<usize> {
    if CONCRETE_RUNS.get() > 0 {
        return None;
    }
    stack.iter().rposition(|frame| frame.kind == FrameKind::Stage)
}

static NEXT_FRAME: AtomicU64 = AtomicU64::new(1);

/// Outputs of an op: nearly always one.
pub type Outputs = SmallVec<[Py<Array>; 1]>;

/// A finished trace.
pub struct Traced {
    pub program: Program,
    /// Outer values; the program's inputs after the arguments.
    pub captured: Vec<Py<Array>>,
    /// Which captured values are what a mutable array holds, with the identity of that.
    pub ref_inputs: Vec<(usize, usize)>,
    /// What the function did to mutable arrays.
    pub refs: Option<Py<PyAny>>,
}

impl Frame {
    fn atom(&mut self, depth_of: impl Fn(&TracerData) -> bool, operand: &Operand<'_>) -> PyResult<Atom> {
        let array = match operand {
            Operand::Literal(literal) => return Ok(Atom::Literal(*literal)),
            Operand::Array(array) => array,
        };
        match &array.get().data {
            Data::Tracer(tracer) if depth_of(tracer) => return Ok(Atom::Var(tracer.var)),
            Data::Concrete(concrete) => {
                if let Some(literal) = concrete.literal()? {
                    return Ok(Atom::Literal(literal));
                }
            }
            Data::Tracer(_) => {}
        }
        let key = array.as_ptr() as usize;
        if let Some(&atom) = self.capture_index.get(&key) {
            return Ok(atom);
        }
        let atom = self.builder.input(array.get().array_type());
        self.note_variable(atom, u32::MAX, Some(array.clone().unbind()));
        self.captured.push(array.clone().unbind());
        self.capture_index.insert(key, atom);
        Ok(atom)
    }

    fn note_variable(&mut self, atom: Atom, producer: u32, value: Option<Py<Array>>) {
        if let Atom::Var(var) = atom {
            if self.values.len() <= var.index() {
                self.values.resize_with(var.index() + 1, || None);
                self.producers.resize(var.index() + 1, u32::MAX);
            }
            self.values[var.index()] = value;
            self.producers[var.index()] = producer;
        }
    }
}

/// Pushes a frame and makes its argument tracers. `values` are what the arguments stand for, as
/// far as known: diff and value frames compute with them, messages of all frames follow them.
pub fn push(
    py: Python<'_>,
    kind: FrameKind,
    name: &str,
    types: &[ArrayType],
    names: Option<Py<PyAny>>,
    values: Option<&[Option<Py<Array>>]>,
    axis: Option<&str>,
) -> PyResult<(u64, Vec<Py<Array>>)> {
    if kind == FrameKind::Stage {
        checks::may_trace(name)?;
    }
    let id = NEXT_FRAME.fetch_add(1, Ordering::Relaxed);
    let mut frame = Frame {
        id,
        kind,
        builder: Builder::new(name),
        arguments: types.len(),
        names,
        axis: axis.map(Arc::from),
        captured: Vec::new(),
        capture_index: FxHashMap::default(),
        values: Vec::new(),
        producers: Vec::new(),
        refs: None,
        ref_inputs: Vec::new(),
        answer: None,
        scope: source::scope(),
    };
    let source = source::current(py);
    let mut tracers = Vec::with_capacity(types.len());
    for (index, ty) in types.iter().enumerate() {
        let atom = frame.builder.input(ty.clone());
        let value = values.and_then(|values| values.get(index)?.as_ref()).map(|value| value.clone_ref(py));
        frame.note_variable(atom, u32::MAX, value);
        if let Atom::Var(var) = atom {
            let tracer = Array::new_tracer(py, id, var, ty.clone(), source)?;
            if let Some(Some(value)) = values.and_then(|values| values.get(index)) {
                let place = &value.get().place;
                // A lane has an axis less than the value that it is of.
                tracer.get().place.set(if kind == FrameKind::Batch { place.over() } else { place.in_type() });
            }
            leaks::watch(py, id, &tracer)?;
            tracers.push(tracer);
        }
    }
    STACK.with_borrow_mut(|stack| stack.push(frame));
    if kind == FrameKind::Stage {
        source::set_scope(None);
    }
    Ok((id, tracers))
}

/// Whether a function is being traced for compilation.
pub fn is_staging() -> bool {
    STACK.with_borrow(|stack| stack.iter().any(|frame| frame.kind == FrameKind::Stage))
}

/// Removes the frame and everything above it (left over by exceptions).
fn remove(id: u64) -> Option<Frame> {
    // Dropped outside the borrow: destructors may run Python code.
    let mut removed = STACK.with_borrow_mut(|stack| {
        let depth = stack.iter().rposition(|frame| frame.id == id)?;
        Some(stack.split_off(depth))
    })?;
    for frame in removed.drain(1..) {
        drop(leaks::take(frame.id));
    }
    let frame = removed.pop()?;
    source::set_scope(frame.scope);
    origin::remember(frame.id, frame.builder.program().name.clone());
    Some(frame)
}

/// Drops the frame: tracing failed.
pub fn abandon(id: u64) {
    drop(remove(id));
    drop(leaks::take(id));
}

fn has_own_rules(op: &Op) -> bool {
    matches!(op.view(), View::CustomJvp(_) | View::CustomVjp(_))
}

/// Ends the frame with these outputs, which are the last references to its tracers: further ones are leaks.
pub fn finish<'py, O>(py: Python<'py>, id: u64, outputs: O) -> PyResult<Traced>
where
    O: AsRef<[Operand<'py>]>,
{
    let gone = || to_py(py, internal_error!("the frame of this trace is gone"));
    let atoms = STACK.with_borrow_mut(|stack| {
        let Some(depth) = stack.iter().rposition(|frame| frame.id == id) else { return Ok(None) };
        let alive: SmallVec<[u64; 8]> = stack[..=depth].iter().map(|frame| frame.id).collect();
        let mut atoms = Vec::with_capacity(outputs.as_ref().len());
        for output in outputs.as_ref() {
            if let Operand::Array(array) = output
                && let Data::Tracer(tracer) = &array.get().data
                && !alive.contains(&tracer.frame)
            {
                return Ok(Some(Err(array.clone())));
            }
            atoms.push(stack[depth].atom(|tracer| tracer.frame == id, output)?);
        }
        PyResult::Ok(Some(Ok(atoms)))
    })?;
    let atoms = atoms.ok_or_else(gone)?.map_err(|escaped| unexpected_tracer(&escaped))?;
    let frame = remove(id).ok_or_else(gone)?;
    drop(outputs);
    let Frame { kind, builder, captured, names, values, ref_inputs, refs, .. } = frame;
    drop(values);
    let mut program = builder.finish(atoms);
    let looks = matches!(kind, FrameKind::Diff | FrameKind::Value);
    if looks && program.equations.iter().any(|equation| has_own_rules(&equation.op)) {
        // Calls that were recorded only for their value to be looked at: nobody must ask for their
        // rules, for which it is too late to look at values.
        program = ferrax_transform::dce(&program).py(py)?;
    }
    leaks::check(py, leaks::take(id), &program, names.as_ref())?;
    Ok(Traced { program, captured, ref_inputs, refs })
}

/// Ends the frame with these outputs, and after them the values that mutable arrays were given.
pub fn finish_with_refs<'py>(
    py: Python<'py>,
    id: u64,
    mut outputs: SmallVec<[Operand<'py>; 4]>,
) -> PyResult<Traced> {
    if let Some(refs) = frame_refs(py, id) {
        let values = refs.bind(py).call_method0(intern!(py, "close"))?;
        outputs.extend(crate::program::operands(&values)?);
    }
    finish(py, id, outputs)
}

/// What the function that this frame traces did to mutable arrays so far.
fn frame_refs(py: Python<'_>, id: u64) -> Option<Py<PyAny>> {
    STACK.with_borrow(|stack| {
        let frame = stack.iter().rfind(|frame| frame.id == id)?;
        frame.refs.as_ref().map(|refs| refs.clone_ref(py))
    })
}

/// `(id, kind, what was done to mutable arrays)` of each frame, outermost first.
#[pyfunction]
pub fn ref_frames(py: Python<'_>) -> Vec<(u64, &'static str, Option<Py<PyAny>>)> {
    STACK.with_borrow(|stack| {
        stack
            .iter()
            .map(|frame| (frame.id, frame.kind.name(), frame.refs.as_ref().map(|refs| refs.clone_ref(py))))
            .collect()
    })
}

/// `(id of the frame, its kind)` of a tracer whose frame still records; `None` for other values.
#[pyfunction]
pub fn tracer_frame(value: &Bound<'_, Array>) -> Option<(u64, &'static str)> {
    let id = value.get().tracer()?.frame;
    STACK.with_borrow(|stack| stack.iter().find(|frame| frame.id == id).map(|frame| (id, frame.kind.name())))
}

/// Gives a frame the object that keeps what is done to mutable arrays; its method `close` gives
/// the values that follow the outputs.
#[pyfunction]
pub fn set_frame_refs(id: u64, refs: Py<PyAny>) {
    let old = STACK.with_borrow_mut(|stack| {
        let frame = stack.iter_mut().rfind(|frame| frame.id == id)?;
        frame.refs.replace(refs)
    });
    drop(old);
}

/// What a mutable array holds, as an input of a frame's own: `(tracer, position among what the
/// frame captured)`. `key` is the identity of the mutable array.
#[pyfunction]
pub fn add_ref_input(
    py: Python<'_>,
    id: u64,
    value: &Bound<'_, Array>,
    key: usize,
) -> PyResult<(Py<Array>, usize)> {
    let ty = value.get().array_type();
    let added = STACK.with_borrow_mut(|stack| {
        let frame = stack.iter_mut().rfind(|frame| frame.id == id)?;
        let atom = frame.builder.input(ty.clone());
        frame.note_variable(atom, u32::MAX, Some(value.clone().unbind()));
        frame.captured.push(value.clone().unbind());
        let position = frame.captured.len() - 1;
        frame.ref_inputs.push((position, key));
        Some((atom, position))
    });
    match added {
        Some((Atom::Var(var), position)) => {
            Ok((Array::new_tracer(py, id, var, ty, source::current(py))?, position))
        }
        _ => Err(to_py(py, internal_error!("the frame of this trace is gone"))),
    }
}

/// Whether nothing is being traced on this thread.
pub fn is_clean() -> bool {
    STACK.with_borrow(|stack| stack.is_empty())
}

/// Identities of the frames on the stack, outermost first.
pub fn frame_ids() -> Vec<u64> {
    STACK.with_borrow(|stack| stack.iter().map(|frame| frame.id).collect())
}

/// The frame that records an op on these operands: its depth.
fn level(stack: &[Frame], operands: &[Operand<'_>]) -> Result<Option<usize>, Py<Array>> {
    let mut level = staging(stack);
    for operand in operands {
        if let Operand::Array(array) = operand
            && let Data::Tracer(tracer) = &array.get().data
        {
            match stack.iter().rposition(|frame| frame.id == tracer.frame) {
                Some(depth) => level = level.max(Some(depth)),
                None => return Err(array.clone().unbind()),
            }
        }
    }
    Ok(level)
}

/// What records an op on these operands, and which of them are its tracers; `None` if it would run at once.
pub fn recording(operands: &[Operand<'_>]) -> PyResult<Option<(FrameKind, Vec<bool>)>> {
    let own = |frame: &Frame, operand: &Operand<'_>| match operand {
        Operand::Array(array) => array.get().tracer().is_some_and(|tracer| tracer.frame == frame.id),
        Operand::Literal(_) => false,
    };
    STACK
        .with_borrow(|stack| {
            let Some(depth) = level(stack, operands)? else { return Ok(None) };
            let frame = &stack[depth];
            Ok(Some((frame.kind, operands.iter().map(|operand| own(frame, operand)).collect())))
        })
        .map_err(|escaped: Py<Array>| Python::attach(|py| unexpected_tracer(escaped.bind(py))))
}

/// Whether an op on these operands would run at once.
pub fn runs_eagerly(operands: &[Operand<'_>]) -> bool {
    let traced = |operand: &Operand<'_>| matches!(operand, Operand::Array(a) if a.get().tracer().is_some());
    !operands.iter().any(traced) && STACK.with_borrow(|stack| staging(stack).is_none())
}

/// Whether an op or program with these effects and operands would run at once. What depends on a
/// mapped axis does not, whatever its operands are.
pub fn runs_at_once(effects: &Effects, operands: &[Operand<'_>]) -> bool {
    runs_eagerly(operands) && STACK.with_borrow(|stack| mapping(stack, effects).is_none())
}

/// The innermost frame whose axis is among these effects. A rule that is traced after its function
/// was mapped finds none: there it is the innermost frame.
fn mapping(stack: &[Frame], effects: &Effects) -> Option<usize> {
    let innermost = |name: &Arc<str>| {
        let own = stack.iter().rposition(|frame| frame.axis.as_ref() == Some(name));
        own.or(stack.len().checked_sub(1))
    };
    let axis = |effect: &Effect| match effect {
        Effect::NamedAxis(name) => innermost(name),
        _ => None,
    };
    effects.iter().filter_map(axis).max()
}

/// Applies an op: records it or runs it.
pub fn bind(py: Python<'_>, op: Op, operands: &[Operand<'_>]) -> PyResult<Outputs> {
    let effects = op.effects();
    if runs_at_once(&effects, operands) {
        let outputs = eager::run(py, &op, operands)?;
        // Sub-programs run as programs, which see to it.
        if placement::any(operands) && op.programs().is_empty() {
            placement::place_at_once(py, &op, operands, &outputs)?;
        }
        return Ok(outputs);
    }
    // Where an op is refused it is dropped while the stack is borrowed: not with what belongs to Python.
    let hosted = matches!(op, Op::Extension(_)) || !op.programs().is_empty();
    let typed = placement::any_typed(operands);
    check_reduced(py, &op, operands)?;
    let kept = (hosted || typed).then(|| op.clone());
    let outputs = record(py, operands, &effects, |builder, atoms| builder.emit(op, atoms))?;
    if typed && let Some(op) = kept {
        placement::place_op(py, &op, None, operands, &outputs)?;
    }
    Ok(outputs)
}

/// Errors: ShardingTypeError for an operation of the user's on arrays one of which is reduced over an axis of a mesh, another
/// the same there. Transformations write such operations, and mean by them that both are reduced.
fn check_reduced(py: Python<'_>, op: &Op, operands: &[Operand<'_>]) -> PyResult<()> {
    let lies = |operand: &Operand<'_>| match operand {
        Operand::Array(array) => array.get().tracer().is_some_and(|tracer| !tracer.ty.varying.is_plain()),
        Operand::Literal(_) => false,
    };
    if !operands.iter().any(lies) {
        return Ok(());
    }
    let types = types(operands);
    let Some(axis) = ferrax_ir::varying::half_reduced(op, &types) else { return Ok(()) };
    let shown: Vec<String> = types.iter().map(Type::to_string).collect();
    let message = format!(
        "{}: an operand is the same over '{axis}', another is reduced over it: their types are {}. Say that the one is \
         reduced, too, by lax.pcast(..., '{axis}', to='reduced')",
        op.name(),
        shown.join(" and ")
    );
    Err(raise(py, "ShardingTypeError", (with_line(py, message),)))
}

/// Whether an effect that keeps its order is recorded and has not happened yet.
fn ordered_pending(frame: &Frame) -> bool {
    frame.builder.program().effects.contains(&Effect::Ordered)
}

/// Records an op of the user's with outputs of these types; `None` if it would run at once. An op
/// with an ordered effect does not overtake those that are recorded; effects of a function with
/// rules, or of a rule, belong to its program, whatever they are of: that may never run.
pub fn record_extension(
    py: Python<'_>,
    op: Op,
    types: &[Type],
    operands: &[Operand<'_>],
) -> PyResult<Option<Outputs>> {
    let effects = op.effects();
    let ordered = effects.contains(&Effect::Ordered);
    let in_rules = !effects.is_empty() && CONCRETE_RUNS.get() == 0;
    let behind = |stack: &[Frame]| {
        let pending = if ordered { stack.iter().rposition(ordered_pending) } else { None };
        let value = |frame: &Frame| frame.kind == FrameKind::Value;
        let rule = if in_rules { stack.iter().rposition(value) } else { None };
        pending.max(rule).max(mapping(stack, &effects))
    };
    if runs_eagerly(operands) && STACK.with_borrow(|stack| behind(stack).is_none()) {
        return Ok(None);
    }
    let kept = placement::any_typed(operands).then(|| op.clone());
    let emit = |builder: &mut Builder, atoms: &[Atom]| {
        let outputs = builder.emit_as(op, atoms, types)?;
        Ok(outputs.into_iter().map(Atom::Var).collect())
    };
    let outputs = record_atoms(py, operands, &behind, emit)?.outputs(py, operands)?;
    if let Some(op) = kept {
        placement::place_op(py, &op, Some(types), operands, &outputs)?;
    }
    Ok(Some(outputs))
}

/// The operands' values, where a diff frame would record an op on them, knows
/// them all, and no effect is recorded that would have to happen before.
pub fn observed<'py>(py: Python<'py>, operands: &[Operand<'py>]) -> PyResult<Option<Vec<Py<Array>>>> {
    let now = STACK.with_borrow(|stack| {
        let quiet = stack.iter().all(|frame| frame.builder.program().effects.is_empty());
        Ok(quiet && level(stack, operands)?.is_some_and(|depth| stack[depth].kind == FrameKind::Diff))
    });
    if !now.map_err(|escaped: Py<Array>| unexpected_tracer(escaped.bind(py)))? {
        return Ok(None);
    }
    let mut values = Vec::with_capacity(operands.len());
    for operand in operands {
        match operand {
            Operand::Literal(literal) => {
                values.push(Array::new_concrete(py, literal.value.to_tensor().py(py)?, literal.weak)?);
            }
            Operand::Array(array) => match concrete(array)? {
                Some(value) => values.push(value.unbind()),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(values))
}

/// Applies a whole program: inlines it into the recording frame. The caller has checked that it cannot run.
pub fn inline(py: Python<'_>, program: &PyProgram, operands: &[Operand<'_>]) -> PyResult<Outputs> {
    let inner = &program.program;
    let least = |stack: &[Frame]| mapping(stack, &inner.effects);
    let recorded = record_atoms(py, operands, &least, |builder, atoms| {
        Ok(builder.inline(inner, atoms)?.into_iter().collect())
    })?;
    let outputs = recorded.outputs(py, operands)?;
    if placement::any_typed(operands) {
        placement::place_results(py, program, operands, &outputs)?;
    }
    Ok(outputs)
}

fn record(
    py: Python<'_>,
    operands: &[Operand<'_>],
    effects: &Effects,
    emit: impl FnOnce(&mut Builder, &[Atom]) -> ferrax_ir::Result<ferrax_ir::Vars>,
) -> PyResult<Outputs> {
    let least = |stack: &[Frame]| mapping(stack, effects);
    let recorded = record_atoms(py, operands, &least, |builder, atoms| {
        Ok(emit(builder, atoms)?.into_iter().map(Atom::Var).collect())
    })?;
    recorded.outputs(py, operands)
}

/// What a frame recorded: its id, the user's line, the operands' and the outputs' atoms.
struct Recorded {
    frame: u64,
    source: Source,
    operands: SmallVec<[Atom; 4]>,
    outputs: SmallVec<[(Atom, ArrayType); 1]>,
}

impl Recorded {
    /// The outputs as arrays. An output that is an operand is that object.
    fn outputs(self, py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<Outputs> {
        let over = placement::over(operands);
        self.outputs
            .into_iter()
            .map(|(atom, ty)| {
                if let Some(Operand::Array(array)) = self
                    .operands
                    .iter()
                    .position(|known| *known == atom)
                    .and_then(|index| operands.get(index))
                {
                    return Ok(array.clone().unbind());
                }
                match atom {
                    Atom::Var(var) => {
                        let tracer = Array::new_tracer(py, self.frame, var, ty, self.source)?;
                        tracer.get().place.set(over);
                        leaks::watch(py, self.frame, &tracer)?;
                        Ok(tracer)
                    }
                    Atom::Literal(literal) => {
                        Array::new_concrete(py, literal.value.to_tensor().py(py)?, literal.weak)
                    }
                }
            })
            .collect()
    }
}

/// Why nothing was recorded. Exceptions are made of it when the stack is not borrowed any more:
/// making one runs Python code.
enum Refused {
    Escaped(Py<Array>),
    Error(ferrax_ir::Error),
    Raised(PyErr),
}

impl From<ferrax_ir::Error> for Refused {
    fn from(error: ferrax_ir::Error) -> Self {
        Refused::Error(error)
    }
}

impl Refused {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Refused::Escaped(escaped) => unexpected_tracer(escaped.bind(py)),
            Refused::Error(error) => to_py(py, error),
            Refused::Raised(error) => error,
        }
    }
}

/// `least` gives a frame below which it must not be recorded.
fn record_atoms(
    py: Python<'_>,
    operands: &[Operand<'_>],
    least: &dyn Fn(&[Frame]) -> Option<usize>,
    emit: impl FnOnce(&mut Builder, &[Atom]) -> ferrax_ir::Result<SmallVec<[Atom; 1]>>,
) -> PyResult<Recorded> {
    let at = source::current(py);
    let recorded = STACK.with_borrow_mut(|stack| {
        let depth = level(stack, operands).map_err(Refused::Escaped)?.max(least(stack));
        let Some(frame) = depth.map(|depth| &mut stack[depth]) else {
            return Err(internal_error!("nothing records this op").into());
        };
        let id = frame.id;
        let atoms = operands
            .iter()
            .map(|operand| frame.atom(|tracer| tracer.frame == id, operand))
            .collect::<PyResult<SmallVec<[Atom; 4]>>>()
            .map_err(Refused::Raised)?;
        frame.builder.source = at;
        let first = frame.builder.program().equations.len();
        let outputs = emit(&mut frame.builder, &atoms)?;
        for index in first..frame.builder.program().equations.len() {
            for var in frame.builder.program().equations[index].outputs.clone() {
                frame.note_variable(Atom::Var(var), index as u32, None);
            }
        }
        let outputs = outputs
            .into_iter()
            .map(|atom| frame.builder.array_type(atom).map(|ty| (atom, ty)))
            .collect::<ferrax_ir::Result<_>>()?;
        Ok(Recorded { frame: id, source: at, operands: atoms, outputs })
    });
    recorded.map_err(|refused: Refused| refused.raise(py))
}

/// The concrete array that `array` is or, under diff frames, stands for. `None` where there is none.
pub fn concrete<'py>(array: &Bound<'py, Array>) -> PyResult<Option<Bound<'py, Array>>> {
    let py = array.py();
    let mut current = array.clone();
    loop {
        let tracer = match &current.get().data {
            Data::Concrete(_) => return Ok(Some(current)),
            Data::Tracer(tracer) => tracer,
        };
        match evaluate(py, tracer, &current)? {
            Some(value) => current = value,
            None => return Ok(None),
        }
    }
}

/// The value one frame further out of a diff frame's variable.
fn evaluate<'py>(
    py: Python<'py>,
    tracer: &TracerData,
    array: &Bound<'py, Array>,
) -> PyResult<Option<Bound<'py, Array>>> {
    // Which equations have to run, in order; found iteratively so that long chains do not exhaust the stack.
    let plan = STACK.with_borrow(|stack| {
        let depth = stack.iter().rposition(|frame| frame.id == tracer.frame)?;
        let frame = &stack[depth];
        if !matches!(frame.kind, FrameKind::Diff | FrameKind::Value) {
            return Some(Err(()));
        }
        let program = frame.builder.program();
        let mut needed: Vec<u32> = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        let mut pending = vec![tracer.var];
        while let Some(var) = pending.pop() {
            let producer = frame.producers[var.index()];
            if frame.values[var.index()].is_some() {
                continue;
            }
            if producer == u32::MAX {
                // An input without a value, or a captured array of the program's own.
                return Some(Err(()));
            }
            if !seen.insert(producer) {
                continue;
            }
            needed.push(producer);
            pending.extend(program.equations[producer as usize].inputs.iter().filter_map(Atom::as_var));
        }
        needed.sort_unstable();
        Some(Ok((depth, needed)))
    });
    let (depth, needed) = match plan {
        None => return Err(unexpected_tracer(array)),
        Some(Err(())) => return Ok(None),
        Some(Ok(plan)) => plan,
    };
    // Frames above must not record what is evaluated below them.
    let above: Vec<Frame> = STACK.with_borrow_mut(|stack| stack.split_off(depth));
    let result = run_equations(py, above, &needed, tracer.var);
    let (above, value) = result;
    STACK.with_borrow_mut(|stack| stack.extend(above));
    value.map(|value| value.map(|value| value.into_bound(py)))
}

/// Runs equations of `frames[0]` in the frames that are left on the stack.
fn run_equations(
    py: Python<'_>,
    mut frames: Vec<Frame>,
    needed: &[u32],
    wanted: Var,
) -> (Vec<Frame>, PyResult<Option<Py<Array>>>) {
    let value = (|| {
        let frame = &mut frames[0];
        for &index in needed {
            let equation = frame.builder.program().equations[index as usize].clone();
            let mut operands: SmallVec<[Operand<'_>; 4]> = SmallVec::new();
            for atom in &equation.inputs {
                operands.push(match atom {
                    Atom::Literal(literal) => Operand::Literal(*literal),
                    Atom::Var(var) => match &frame.values[var.index()] {
                        Some(value) => Operand::Array(value.bind(py).clone()),
                        None => {
                            return Err(to_py(py, internal_error!("a value is evaluated before its inputs")));
                        }
                    },
                });
            }
            let outputs = bind(py, equation.op, &operands)?;
            for (var, output) in equation.outputs.iter().zip(outputs) {
                frame.values[var.index()] = Some(output);
            }
        }
        Ok(frame.values[wanted.index()].as_ref().map(|value| value.clone_ref(py)))
    })();
    (frames, value)
}

/// Types of operands, for type rules.
pub fn types(operands: &[Operand<'_>]) -> SmallVec<[Type; 3]> {
    operands
        .iter()
        .map(|operand| match operand {
            Operand::Array(array) => array.get().array_type().into(),
            Operand::Literal(literal) => literal.array_type().into(),
        })
        .collect()
}
