//! Where arrays were put, and where results are.
//!
//! An array has the number of its placement, 0 where it was put nowhere. What numbers mean the Python
//! layer knows (`_src/core/placements.py`): a sharding, and whether it was asked for. Here they are kept,
//! and where an operand has one the Python layer is asked for those of the results
//! (`_src/core/propagation.py`); a program remembers the answers. Cost where no operand has one: a load
//! for each.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use ferrax_compile::DeviceId;
use ferrax_ir::{Builder, Op, Program, Type};
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::array::{Array, Concrete};
use crate::convert::Operand;
use crate::devices;
use crate::errors::IntoPyResult;
use crate::once::intern;
use crate::program::PyProgram;
use crate::promote::compilation_context;
use crate::trace;
use crate::tracebacks::Filtered;

/// The bit of placements that are part of an array's type: programs are known by them.
const TYPED: u32 = 1 << 31;
/// The bit of placements that results have if no operand has another one.
const SPREADS: u32 = 1 << 30;
/// The bit of placements that were asked for.
const COMMITTED: u32 = 1 << 29;
/// Where the number of a device is: 9 bits. Below is [`OVER`], and the number among placements.
const DEVICE: u32 = 20;
/// The bit of placements of which types have another one: over a mesh without explicit axes, one that stands for the mesh;
/// of sums over devices that are cut into other terms, the usual one.
const OVER: u32 = 1 << 19;
const DEVICES: u32 = 0x1ff << DEVICE;
/// The device that stands for a default one which there is not.
pub const MISSING: DeviceId = DeviceId(0x1ff);

/// Ops by which programs say where values are.
const SAYING: [&str; 4] = ["sharding_constraint", "reshard", "device_put", "shard_map"];

/// How many answers a program remembers.
const KEPT: usize = 64;

/// The number of an array's placement.
#[derive(Default)]
pub struct Place(AtomicU32);

impl Place {
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, number: u32) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// The number, if it is part of the array's type, else 0.
    #[inline]
    pub fn typed(&self) -> u32 {
        if self.get() & TYPED == 0 { 0 } else { self.in_type() }
    }

    /// The number that stands for the mesh of the array's type, where none of its axes is explicit, else 0.
    #[inline]
    pub fn over(&self) -> u32 {
        if self.get() & (OVER | TYPED) == OVER { self.in_type() } else { 0 }
    }

    /// What the array's type has: `typed` or `over`.
    #[inline]
    pub fn in_type(&self) -> u32 {
        let number = self.get();
        match number & (TYPED | OVER) {
            0 => 0,
            TYPED => number,
            _ => standing_for(number),
        }
    }
}

/// For placements with the bit `OVER`, which one types have.
static IN_TYPES: LazyLock<RwLock<FxHashMap<u32, u32>>> = LazyLock::new(RwLock::default);

fn standing_for(number: u32) -> u32 {
    IN_TYPES.read().unwrap_or_else(PoisonError::into_inner).get(&number).copied().unwrap_or(0)
}

/// Says which placement types have for another one, before that one is given to any array.
#[pyfunction]
pub fn set_place_in_types(number: u32, shown: u32) {
    IN_TYPES.write().unwrap_or_else(PoisonError::into_inner).insert(number, shown);
}

/// The number of an operand.
#[inline]
fn of(operand: &Operand<'_>) -> u32 {
    match operand {
        Operand::Array(array) => array.get().place.get(),
        Operand::Literal(_) => 0,
    }
}

/// The number of an operand, if it is part of its type, else 0.
#[inline]
pub fn typed(operand: &Operand<'_>) -> u32 {
    match operand {
        Operand::Array(array) => array.get().place.typed(),
        Operand::Literal(_) => 0,
    }
}

/// What the type of an operand has: see [`Place::in_type`].
#[inline]
pub fn in_type(operand: &Operand<'_>) -> u32 {
    match operand {
        Operand::Array(array) => array.get().place.in_type(),
        Operand::Literal(_) => 0,
    }
}

/// The number that stands for the mesh of what is made of these operands, if none of them has explicit axes in its type.
#[inline]
pub fn over(operands: &[Operand<'_>]) -> u32 {
    let over = |operand: &Operand<'_>| match operand {
        Operand::Array(array) => array.get().place.over(),
        Operand::Literal(_) => 0,
    };
    operands.iter().map(over).find(|&number| number != 0).unwrap_or(0)
}

/// The numbers that stand for the meshes of the types of these values, 0 for values without; none if all are 0.
#[pyfunction]
pub fn places_of_meshes(values: &Bound<'_, PyList>) -> Vec<u32> {
    let over = |value: Bound<'_, PyAny>| value.cast::<Array>().map_or(0, |array| array.get().place.over());
    let found: Vec<u32> = values.iter().map(over).collect();
    if found.iter().all(|&number| number == 0) { Vec::new() } else { found }
}

/// Whether an operand was put somewhere.
#[inline]
pub fn any(operands: &[Operand<'_>]) -> bool {
    operands.iter().any(|operand| of(operand) != 0)
}

/// The device of a placement.
#[inline]
pub fn device_of(number: u32) -> DeviceId {
    DeviceId(((number & DEVICES) >> DEVICE) as u16)
}

/// The number of what is on a device without having been put there; no array that is shown has it.
pub fn nowhere(device: DeviceId) -> u32 {
    u32::from(device.0) << DEVICE
}

/// Whether an operand is on another device than the host.
#[inline]
pub fn any_elsewhere(operands: &[Operand<'_>]) -> bool {
    operands.iter().any(|operand| of(operand) & DEVICES != 0)
}

/// The device that an operand was put on by request.
pub fn committed(operand: &Operand<'_>) -> Option<DeviceId> {
    let number = of(operand);
    (number & COMMITTED != 0).then(|| device_of(number))
}

/// Errors: ValueError where operands were put by request on different devices, or on the same in another order;
/// NotImplementedError for one that is over several devices though nobody put it there.
pub fn check_devices(py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<()> {
    check_committed(operands)?;
    let mut numbers = operands.iter().map(of).filter(|number| number & COMMITTED != 0);
    match numbers.next() {
        Some(first) if !numbers.all(|number| number == first) => clash(py, operands),
        _ => Ok(()),
    }
}

/// Errors: NotImplementedError for an operand that is over several devices though nobody put it there.
fn check_committed(operands: &[Operand<'_>]) -> PyResult<()> {
    if operands.iter().map(of).any(|number| number & (OVER | TYPED | COMMITTED) == OVER) {
        return Err(PyNotImplementedError::new_err(
            "an array that is over several devices and not committed is no operand: put it there with ferrax.device_put",
        ));
    }
    Ok(())
}

#[cold]
fn clash(py: Python<'_>, operands: &[Operand<'_>]) -> PyResult<()> {
    let numbers = PyTuple::new(py, operands.iter().map(of))?;
    let found = rules(py)?.call_method1(intern!(py, "clash"), (numbers,)).filtered(py)?;
    match found.extract::<Option<(usize, usize)>>()? {
        None => Ok(()),
        Some((first, second)) => Err(devices::apart(py, operands, first, second)?),
    }
}

/// The placement of what was put nowhere, of a thread and of the process; `u32::MAX` where a thread has none.
static DEFAULT: AtomicU32 = AtomicU32::new(0);
thread_local! {
    static OWN_DEFAULT: Cell<u32> = const { Cell::new(u32::MAX) };
}

#[inline]
pub fn default_place() -> u32 {
    match OWN_DEFAULT.get() {
        u32::MAX => DEFAULT.load(Ordering::Relaxed),
        own => own,
    }
}

/// Where programs run whose operands were put nowhere.
pub fn default_device() -> DeviceId {
    device_of(default_place())
}

/// Sets the placement of results whose operands were put nowhere by request, for this thread or, with `shared`, for
/// the process; None: a thread follows the process.
#[pyfunction]
pub fn set_default_place(number: Option<u32>, shared: bool) {
    if shared {
        DEFAULT.store(number.unwrap_or(0), Ordering::Relaxed)
    } else {
        OWN_DEFAULT.set(number.unwrap_or(u32::MAX))
    }
}

/// The numbers of operands as results see them: what was put nowhere by request is where the program runs.
fn numbers(operands: &[Operand<'_>]) -> Numbers {
    let mut numbers: Numbers = operands.iter().map(of).collect();
    let asked = |number: &u32| number & COMMITTED != 0;
    let elsewhere = if numbers.iter().any(asked) { 0 } else { default_place() };
    for number in numbers.iter_mut().filter(|number| !asked(number)) {
        *number = elsewhere;
    }
    numbers
}

/// Whether the type of an operand says where it is.
#[inline]
pub fn any_typed(operands: &[Operand<'_>]) -> bool {
    operands.iter().any(|operand| typed(operand) != 0)
}

/// The answers for a program, by the numbers of its operands.
#[derive(Default)]
pub struct Answers(Mutex<Vec<(Numbers, Numbers)>>);

type Numbers = SmallVec<[u32; 4]>;

impl Answers {
    fn find(&self, numbers: &Numbers) -> Option<Numbers> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(asked, _)| asked == numbers).map(|(_, answer)| answer.clone())
    }

    fn keep(&self, numbers: Numbers, answer: Numbers) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.clear();
        }
        known.push((numbers, answer));
    }
}

/// Whether a program says where values are.
pub fn says(program: &Program) -> bool {
    program.measure(&|program: &Program, inside: &dyn Fn(&Arc<Program>) -> bool| {
        program.equations.iter().any(|equation| {
            SAYING.contains(&equation.op.name()) || equation.op.programs().into_iter().any(inside)
        })
    })
}

/// The one device on which a program says that values are; the host where it says several, or none.
pub fn said_device(py: Python<'_>, program: &Arc<Program>) -> PyResult<DeviceId> {
    let shown = PyProgram::new(program.clone());
    let number: u16 =
        rules(py)?.call_method1(intern!(py, "said_device"), (shown,)).filtered(py)?.extract()?;
    Ok(DeviceId(number))
}

/// The one number that all results have, if it spreads and no operand has another.
fn spread(numbers: &[u32]) -> Option<u32> {
    let mut numbers = numbers.iter().copied().filter(|&number| number != 0);
    let Some(first) = numbers.next() else { return Some(default_place()) };
    (first & SPREADS != 0 && numbers.all(|number| number == first)).then_some(first)
}

/// Says where the results of a program are. Results that are operands stay where they are.
#[cold]
pub fn place_results(
    py: Python<'_>,
    program: &PyProgram,
    operands: &[Operand<'_>],
    results: &[Py<Array>],
) -> PyResult<()> {
    let numbers = numbers(operands);
    if !program.says_places()
        && let Some(number) = spread(&numbers)
    {
        return give_all(py, number, &numbers, operands, results);
    }
    let answer = match program.places.find(&numbers) {
        Some(answer) => answer,
        None => {
            let answer = asked(py, program, &numbers)?;
            program.places.keep(numbers, answer.clone());
            answer
        }
    };
    give(operands, results, answer)
}

/// Asks where the results of a program are.
fn asked(py: Python<'_>, program: &PyProgram, numbers: &Numbers) -> PyResult<Numbers> {
    let shown = PyProgram::new(program.program.clone());
    let asked = rules(py)?.call_method1(intern!(py, "results"), (shown, numbers.to_vec())).filtered(py)?;
    Ok(asked.extract::<Vec<u32>>()?.into())
}

/// Results that are where operands are, all of which have one number or none.
fn give_all(
    py: Python<'_>,
    number: u32,
    numbers: &Numbers,
    operands: &[Operand<'_>],
    results: &[Py<Array>],
) -> PyResult<()> {
    if number & TYPED != 0 && numbers.iter().all(|&number| number == 0) {
        let own = results.iter().map(|result| undivided(py, number, result.get().rank()));
        return give(operands, results, own.collect::<PyResult<Vec<_>>>()?);
    }
    give(operands, results, std::iter::repeat(number))
}

/// An op on values of these types and numbers, where what was put nowhere is, and what else programs are known by: the meshes
/// in use, and what was asked for.
type Applied = (Op, SmallVec<[Type; 3]>, Numbers, u32, u64);

/// The answers for ops that ran at once.
static OF_OPS: LazyLock<Mutex<FxHashMap<Applied, Numbers>>> = LazyLock::new(Mutex::default);
const KEPT_OF_OPS: usize = 4096;

/// As `place_results`, of one op that ran at once: its answers are remembered, unless it is one of the user's.
#[cold]
pub fn place_at_once(
    py: Python<'_>,
    op: &Op,
    operands: &[Operand<'_>],
    results: &[Py<Array>],
) -> PyResult<()> {
    if matches!(op, Op::Extension(_)) || SAYING.contains(&op.name()) {
        return place_op(py, op, None, operands, results);
    }
    let numbers = numbers(operands);
    if let Some(number) = spread(&numbers) {
        return give_all(py, number, &numbers, operands, results);
    }
    let types = trace::types(operands);
    let key = (op.clone(), types, numbers, default_place(), compilation_context());
    let known = OF_OPS.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
    let answer = match known {
        Some(answer) => answer,
        None => {
            let answer = asked(py, &alone(py, op, &key.1, None)?, &key.2)?;
            let mut known = OF_OPS.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= KEPT_OF_OPS {
                known.clear();
            }
            known.insert(key, answer.clone());
            answer
        }
    };
    give(operands, results, answer)
}

/// As `place_results`, of one op; `types` are those of its results where it has no type rule.
#[cold]
pub fn place_op(
    py: Python<'_>,
    op: &Op,
    types: Option<&[Type]>,
    operands: &[Operand<'_>],
    results: &[Py<Array>],
) -> PyResult<()> {
    place_results(py, &alone(py, op, &trace::types(operands), types)?, operands, results)
}

/// The program of one op of operands of these types; `results` are those of its results where it has no type rule.
fn alone(py: Python<'_>, op: &Op, operands: &[Type], results: Option<&[Type]>) -> PyResult<PyProgram> {
    let mut builder = Builder::new(op.name());
    let inputs: SmallVec<[_; 4]> = operands.iter().map(|ty| builder.input(ty.clone())).collect();
    let outputs = match results {
        Some(types) => builder.emit_typed(op.clone(), &inputs, types.iter().cloned()),
        None => builder.emit(op.clone(), &inputs).py(py)?,
    };
    let program = builder.finish(outputs.into_iter().map(ferrax_ir::Atom::Var));
    Ok(PyProgram::new(Arc::new(program)))
}

/// As `place_results`, of an elementwise op whose operands are broadcast.
#[cold]
pub fn place_pair(py: Python<'_>, operands: &[Operand<'_>; 2], result: &Py<Array>) -> PyResult<()> {
    check_committed(operands)?;
    let numbers = numbers(operands);
    let number = match spread(&numbers) {
        Some(number) => number,
        None => {
            let shape = |operand: &Operand<'_>| match operand {
                Operand::Array(array) => PyTuple::new(py, array.get().sizes()?),
                Operand::Literal(_) => Ok(PyTuple::empty(py)),
            };
            let [x, y] = operands;
            let given = (numbers[0], numbers[1], shape(x)?, shape(y)?);
            rules(py)?.call_method1(intern!(py, "of_pair"), given).filtered(py)?.extract()?
        }
    };
    result.get().place.set(number);
    Ok(())
}

/// The number of what is made of nothing that was put anywhere, while a mesh of explicit axes is in use.
fn undivided(py: Python<'_>, number: u32, rank: usize) -> PyResult<u32> {
    rules(py)?.call_method1(intern!(py, "undivided"), (number, rank)).filtered(py)?.extract()
}

/// Errors: ValueError where a program says that a result is on a device on which it did not run.
fn give(
    operands: &[Operand<'_>],
    results: &[Py<Array>],
    numbers: impl IntoIterator<Item = u32>,
) -> PyResult<()> {
    for (result, number) in results.iter().zip(numbers) {
        let given = |operand: &Operand<'_>| matches!(operand, Operand::Array(array) if array.as_ptr() == result.as_ptr());
        if !operands.iter().any(given) {
            let here = result.get().concrete().map(Concrete::device);
            if here.is_some_and(|here| here != device_of(number)) {
                return Err(PyValueError::new_err(
                    "a program runs on one device, and this one was asked to put a result on another: call \
                     ferrax.device_put outside of the jitted function",
                ));
            }
            result.get().place.set(number);
        }
    }
    Ok(())
}

fn rules(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "ferrax._src.core.propagation"))
}

/// The number of an array's placement.
#[pyfunction]
pub fn place_of(array: &Bound<'_, Array>) -> u32 {
    array.get().place.get()
}
