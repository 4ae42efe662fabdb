//! Where a traced value came from, for messages: the op that computed it, the arguments that it
//! depends on, and the way back to one of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use ferrax_ir::{Atom, Equation, Op, Source, Var};
use pyo3::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Frame, STACK};
use crate::array::{Array, Data, TracerData};
use crate::errors::raise;
use crate::source;

/// Lines of a chain that are shown at its beginning and at its end, where it is longer.
const SHOWN: (usize, usize) = (5, 3);

/// Frames whose functions' names are remembered after their end.
const ENDED_KEPT: usize = 64;

thread_local! {
    static ENDED: RefCell<VecDeque<(u64, Arc<str>)>> = const { RefCell::new(VecDeque::new()) };
}

/// Called with the name of the function of a frame that ends.
pub fn remember(frame: u64, function: Arc<str>) {
    ENDED.with_borrow_mut(|ended| {
        if ended.len() == ENDED_KEPT {
            ended.pop_front();
        }
        ended.push_back((frame, function));
    });
}

/// The name of the function of a frame that ended not long ago.
pub fn function_of(frame: u64) -> Option<String> {
    ENDED.with_borrow(|ended| {
        ended.iter().rev().find(|(known, _)| *known == frame).map(|(_, name)| name.to_string())
    })
}

/// The names of a frame's arguments; empty if nobody knows them.
pub fn argument_names(py: Python<'_>, names: Option<&Py<PyAny>>) -> PyResult<Vec<String>> {
    names.map_or_else(|| Ok(Vec::new()), |names| names.bind(py).call0()?.extract())
}

pub fn name_of(names: &[String], index: usize) -> String {
    names.get(index).cloned().unwrap_or_else(|| format!("number {index}"))
}

/// What is known of where a traced value came from.
struct Origin {
    /// The op that made it and the user's line, unless it is an input.
    computed: Option<(String, Option<String>)>,
    function: String,
    /// The arguments that it depends on, by position; at most five.
    arguments: Vec<usize>,
    names: Option<Py<PyAny>>,
}

fn origin(py: Python<'_>, tracer: &TracerData) -> Option<Origin> {
    STACK.with_borrow(|stack| {
        let frame = stack.iter().find(|frame| frame.id == tracer.frame)?;
        let program = frame.builder.program();
        let producer = frame.producers.get(tracer.var.index()).copied().unwrap_or(u32::MAX);
        let computed = program.equations.get(producer as usize).map(|equation| {
            (equation.op.name().to_owned(), equation.source.line().map(|line| line.to_string()))
        });
        let mut seen = FxHashSet::default();
        let mut pending = vec![tracer.var];
        let mut arguments = Vec::new();
        while let Some(var) = pending.pop() {
            if !seen.insert(var) {
                continue;
            }
            match frame.producers.get(var.index()) {
                Some(&producer) if producer != u32::MAX => {
                    pending
                        .extend(program.equations[producer as usize].inputs.iter().filter_map(Atom::as_var));
                }
                _ => arguments.extend(
                    program
                        .inputs
                        .iter()
                        .position(|&input| input == var)
                        .filter(|&index| index < frame.arguments),
                ),
            }
        }
        arguments.sort_unstable();
        arguments.truncate(5);
        let names = frame.names.as_ref().map(|names| names.clone_ref(py));
        Some(Origin { computed, function: program.name.to_string(), arguments, names })
    })
}

/// How a message says where a traced value came from: what computed it, on
/// which line, from which arguments.
pub fn describe(array: &Bound<'_, Array>) -> PyResult<Option<String>> {
    let py = array.py();
    let Some(origin) = array.get().tracer().and_then(|tracer| origin(py, tracer)) else { return Ok(None) };
    let names = argument_names(py, origin.names.as_ref())?;
    let listed: Vec<String> = origin.arguments.iter().map(|&index| name_of(&names, index)).collect();
    let plural = if listed.len() > 1 { "s" } else { "" };
    let function = &origin.function;
    Ok(Some(match origin.computed {
        Some((op, line)) => {
            let at = line.map(|line| format!(" at {line}")).unwrap_or_default();
            let from = if listed.is_empty() {
                String::new()
            } else {
                format!(", from the argument{plural} {} of {function}", listed.join(", "))
            };
            format!("computed by '{op}'{at}{from}")
        }
        None if listed.is_empty() => format!("captured by {function}"),
        None => format!("the argument {} of {function}", listed.join(", ")),
    }))
}

/// The way within one frame from a value back to an argument of the frame.
struct Segment {
    /// The ops that were applied, the last one first.
    ops: Vec<(String, Source)>,
    function: String,
    /// The argument that it begins with; none for values that the frame captured or made.
    argument: Option<usize>,
    names: Option<Py<PyAny>>,
    /// What it begins with, one frame further out.
    outer: Option<Py<Array>>,
}

fn op_text(equation: &Equation) -> String {
    match &equation.op {
        Op::Call(call) => format!("'{}' of {}", equation.op.name(), call.name),
        op => format!("'{}'", op.name()),
    }
}

impl Frame {
    fn producer(&self, var: Var) -> Option<&Equation> {
        let producer = self.producers.get(var.index()).copied().unwrap_or(u32::MAX);
        self.builder.program().equations.get(producer as usize)
    }

    /// The shortest way from a value to an argument or, if it depends on none, to a captured value
    /// that is traced further out.
    fn segment(&self, py: Python<'_>, value: Var) -> Segment {
        let program = self.builder.program();
        let mut next: FxHashMap<Var, Var> = FxHashMap::default();
        let mut pending = VecDeque::from([value]);
        let (mut argument, mut begin) = (None, value);
        while let Some(var) = pending.pop_front() {
            let Some(equation) = self.producer(var) else {
                let input = program.inputs.iter().position(|&input| input == var);
                argument = input.filter(|&index| index < self.arguments);
                if argument.is_some() {
                    begin = var;
                    break;
                }
                let traced = |value: &Py<Array>| value.get().tracer().is_some();
                if begin == value && self.values.get(var.index()).and_then(Option::as_ref).is_some_and(traced)
                {
                    begin = var;
                }
                continue;
            };
            for input in equation.inputs.iter().filter_map(Atom::as_var) {
                if input != value && !next.contains_key(&input) {
                    next.insert(input, var);
                    pending.push_back(input);
                }
            }
        }
        let mut ops = Vec::new();
        let mut at = Some(begin);
        while let Some(var) = at {
            ops.extend(self.producer(var).map(|equation| (op_text(equation), equation.source)));
            at = next.get(&var).copied().filter(|_| var != value);
        }
        ops.reverse();
        let outer = self.values.get(begin.index()).and_then(Option::as_ref);
        Segment {
            ops,
            function: program.name.to_string(),
            argument,
            names: self.names.as_ref().map(|names| names.clone_ref(py)),
            outer: outer.filter(|_| self.producer(begin).is_none()).map(|outer| outer.clone_ref(py)),
        }
    }
}

/// The way from a traced value back to the argument that it came from, through all functions that
/// are being traced: a line for each line of the user's, bounded. Empty where [`describe`] says it
/// all.
pub fn chain(array: &Bound<'_, Array>) -> PyResult<Vec<String>> {
    let py = array.py();
    let mut lines: Vec<String> = Vec::new();
    let (mut ops, mut frames) = (0, 0);
    let mut current = array.clone();
    while let Data::Tracer(tracer) = &current.get().data {
        let segment = STACK.with_borrow(|stack| {
            let frame = stack.iter().find(|frame| frame.id == tracer.frame)?;
            Some(frame.segment(py, tracer.var))
        });
        let Some(segment) = segment else { break };
        ops += segment.ops.len();
        frames += 1;
        let mut last: Option<Source> = None;
        for (op, source) in &segment.ops {
            let place = source.line();
            match (lines.last_mut(), last.and_then(Source::line)) {
                (Some(line), Some(known)) if Some(&known) == place.as_ref() => {
                    let (made, at) = line.split_once(" at ").unwrap_or((line.as_str(), ""));
                    *line = format!("{made} of {op} at {at}");
                }
                _ => lines.push(match &place {
                    Some(place) => format!("{op} at {place}"),
                    None => op.clone(),
                }),
            }
            last = Some(*source);
        }
        if let Some(index) = segment.argument {
            let names = argument_names(py, segment.names.as_ref())?;
            let line = format!("the argument {} of {}", name_of(&names, index), segment.function);
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
        match segment.outer {
            Some(outer) => current = outer.into_bound(py),
            None => break,
        }
    }
    if ops <= 1 && frames <= 1 {
        return Ok(Vec::new());
    }
    let (first, last) = SHOWN;
    if lines.len() > first + last + 1 {
        let left_out = lines.len() - first - last;
        lines.splice(first..first + left_out, [format!("... {left_out} more lines ...")]);
    }
    Ok(lines)
}

/// The error for a tracer whose frame is gone.
pub fn unexpected_tracer(array: &Bound<'_, Array>) -> PyErr {
    let py = array.py();
    let ty = array.get().array_type().to_string();
    let (made, function) = match &array.get().data {
        Data::Tracer(tracer) => (
            tracer.source.line().map(|line| format!(", made at {line},")).unwrap_or_default(),
            function_of(tracer.frame).map(|name| format!(", '{name}',")).unwrap_or_default(),
        ),
        Data::Concrete(_) => Default::default(),
    };
    let at = source::current(py).line().map(|line| format!("\n  at {line}")).unwrap_or_default();
    raise(
        py,
        "UnexpectedTracerError",
        (format!(
            "Encountered an unexpected tracer of type {ty}{made} which belongs to a transformed function{function} that \
         has already returned (a side effect, such as a global variable or an attribute, kept it), or to another \
         thread. Return values from transformed functions instead of storing them.{at}"
        ),),
    )
}
