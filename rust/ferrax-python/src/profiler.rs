//! Profiles for Python (`_src/profiling`): begun, marked and taken home.
//!
//! Events come home as packed times beside numbers of what they show, so that a million of them is no million objects.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use ferrax_compile::profile::Level;
use ferrax_compile::profile::{self, Kind, Settings, Span, Stat, Thread, What};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyString};
use rustc_hash::FxHashMap;

use crate::source;

/// What an event shows: name, kind, line, stats.
type Shown<'py> = (String, &'static str, Option<String>, Vec<(String, Bound<'py, PyAny>)>);
/// Number, name, events that were dropped, and of each event what it shows (a number), when it began and when it ended, in nanoseconds, as three
/// native `u64`.
type Lane<'py> = (u64, Option<String>, u64, Bound<'py, PyBytes>);

/// Begins a profile; whether it did: there is one at a time. Times are those of `profile_now`.
#[pyfunction]
pub fn profile_start(level: u8, capacity: usize, begin: u64, end: u64) -> bool {
    profile::start(Settings { level, capacity, from: begin, until: end })
}

/// Whether a profile is taken that has the user's marks.
#[pyfunction]
pub fn profile_is_on() -> bool {
    profile::is_on(Level::Marks)
}

/// Nanoseconds since some moment of this process.
#[pyfunction]
pub fn profile_now() -> u64 {
    profile::now()
}

/// Ends the profile: what events show, and the threads with their events.
#[pyfunction]
pub fn profile_stop(py: Python<'_>) -> PyResult<(Vec<Shown<'_>>, Vec<Lane<'_>>)> {
    let threads = py.detach(profile::stop);
    let mut whats: Vec<Arc<What>> = Vec::new();
    let mut numbers: FxHashMap<*const What, u64> = FxHashMap::default();
    let mut lane = |thread: Thread| {
        let mut bytes: Vec<u8> = Vec::with_capacity(thread.records.len() * 24);
        for record in thread.records {
            let number = match numbers.entry(Arc::as_ptr(&record.what)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    // Kept, so that the address stays its own.
                    whats.push(record.what.clone());
                    *new.insert(whats.len() as u64 - 1)
                }
            };
            for word in [number, record.begin, record.end] {
                bytes.extend_from_slice(&word.to_ne_bytes());
            }
        }
        (thread.id, thread.name, thread.dropped, PyBytes::new(py, &bytes))
    };
    let lanes = threads.into_iter().map(&mut lane).collect();
    let shown = whats.iter().map(|what| shown(py, what)).collect::<PyResult<_>>()?;
    Ok((shown, lanes))
}

fn shown<'py>(py: Python<'py>, what: &What) -> PyResult<Shown<'py>> {
    let stat = |(name, stat): &(Box<str>, Stat)| -> PyResult<(String, Bound<'py, PyAny>)> {
        let value = match stat {
            Stat::Int(value) => value.into_pyobject(py)?.into_any(),
            Stat::Float(value) => PyFloat::new(py, *value).into_any(),
            Stat::Text(text) => PyString::new(py, text).into_any(),
        };
        Ok((name.to_string(), value))
    };
    let line = what.source.line().map(|line| line.to_string());
    let stats = what.stats.iter().map(stat).collect::<PyResult<_>>()?;
    Ok((what.name.to_string(), what.kind.name(), line, stats))
}

/// What the user's events show: a name, and names with integers of 64 bits, floats or texts.
#[pyclass(frozen, module = "ferrax", name = "ProfileLabel")]
pub struct ProfileLabel(Arc<What>);

#[pymethods]
impl ProfileLabel {
    #[new]
    #[pyo3(signature = (name, stats = Vec::new()))]
    fn new(
        name: &Bound<'_, PyString>,
        stats: Vec<(Bound<'_, PyString>, Bound<'_, PyAny>)>,
    ) -> PyResult<Self> {
        // Halves of characters, which Python's texts may have, are replaced.
        let text = |text: &Bound<'_, PyString>| Box::<str>::from(text.to_string_lossy());
        let stat = |(name, value): (Bound<'_, PyString>, Bound<'_, PyAny>)| -> PyResult<(Box<str>, Stat)> {
            let value = if value.is_instance_of::<PyInt>() {
                Stat::Int(value.extract()?)
            } else if let Ok(value) = value.cast::<PyFloat>() {
                Stat::Float(value.value())
            } else {
                Stat::Text(text(value.cast::<PyString>()?))
            };
            Ok((text(&name), value))
        };
        let (name, source) = (text(name), ferrax_ir::Source::UNKNOWN);
        let stats = stats.into_iter().map(stat).collect::<PyResult<_>>()?;
        Ok(ProfileLabel(Arc::new(What { kind: Kind::Mark, name, source, stats })))
    }

    /// Notes that it ran on this thread between these times, unless the profile has ended.
    fn record(&self, begin: u64, end: u64) {
        if profile::is_on(Level::Marks) {
            profile::record(self.0.clone(), begin, end);
        }
    }
}

/// A call that begins now, at the user's line, if a profile is taken.
#[inline]
pub fn call(py: Python<'_>, name: impl FnOnce() -> String) -> Option<Span> {
    Span::begin(Level::Runs, || What::new(Kind::Call, name(), source::current(py)))
}

/// A part of compiling something, that begins now, if a profile is taken.
#[inline]
pub fn phase(what: &str, name: &str) -> Option<Span> {
    Span::begin(Level::Runs, || What::named(Kind::Compile, format!("{what} {name}")))
}

/// Elements that go somewhere from now on, if a profile is taken.
#[inline]
pub fn transfer(name: &str, bytes: usize) -> Option<Span> {
    Span::begin(Level::Runs, || What::bytes(name, bytes))
}

/// When elements begin to be copied, if a profile is taken.
#[inline]
pub fn noted() -> Option<u64> {
    profile::is_on(Level::Runs).then(profile::now)
}

/// Notes that so many bytes were copied from the host since then.
#[inline]
pub fn copied(begin: Option<u64>, bytes: usize) {
    if let Some(begin) = begin {
        profile::record(What::bytes("copy from NumPy", bytes), begin, profile::now());
    }
}

/// A function of the host's that begins now, if a profile is taken.
#[inline]
pub fn callback(name: &str) -> Option<Span> {
    Span::begin(Level::Runs, || What::named(Kind::Callback, name))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ProfileLabel>()?;
    module.add_function(wrap_pyfunction!(profile_start, module)?)?;
    module.add_function(wrap_pyfunction!(profile_is_on, module)?)?;
    module.add_function(wrap_pyfunction!(profile_now, module)?)?;
    module.add_function(wrap_pyfunction!(profile_stop, module)?)?;
    Ok(())
}
