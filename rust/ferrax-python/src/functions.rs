//! The functions of `lax` and `numpy` that are one elementwise op, made from the op rows:
//! names, signatures, promotion, help.
//!
//! Python tells a C function nothing but its arguments, so there is one for each place in
//! a table, `Slot<0>`, `Slot<1>`, …, and each looks up there what it is. Arguments come as
//! an array, without a tuple made of them.

use std::ffi::CString;
use std::sync::OnceLock;

use ferrax_ir::ops::python::{Promotion, Python as Shown};
use ferrax_ir::ops::{Accept, Binary, BinaryDerivative, Compare, Unary, UnaryDerivative};
use ferrax_ir::{DType, Op, Scalar, Tensor, Type, convert::Wide, internal_error};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::ffi;
// Hidden in pyo3, since its macros alone are meant to use it: what turns errors and panics
// into Python's exceptions around each of them.
use pyo3::impl_::trampoline::{MethodDef, fastcall_cfunction_with_keywords};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::{self, Operand};
use crate::elementwise::{binary, numpy_mixed, unary};
use crate::errors::IntoPyResult;
use crate::pairwise::Pairwise;

#[derive(Clone, Copy)]
enum Operation {
    Unary(Unary),
    Pairwise(Pairwise),
}

/// A function as Python sees it.
struct Function {
    operation: Operation,
    name: &'static str,
    /// What errors call it.
    label: String,
    promotion: Promotion,
    /// Parameters that must be None and are given by name.
    shown: &'static [&'static str],
    doc: String,
}

impl Function {
    fn parameters(&self) -> &'static [&'static str] {
        match self.operation {
            Operation::Unary(_) => &["x"],
            Operation::Pairwise(_) => &["x", "y"],
        }
    }

    /// Whether operands may be given by name.
    fn named(&self) -> bool {
        self.promotion == Promotion::Strict
    }

    /// The signature and help, as Python wants them in one text.
    fn text(&self) -> String {
        let mut parameters = self.parameters().join(", ");
        if !self.named() {
            parameters.push_str(", /");
        }
        if !self.shown.is_empty() {
            parameters.push_str(", *");
        }
        for name in self.shown {
            parameters.push_str(&format!(", {name}=None"));
        }
        format!("{}({parameters})\n--\n\n{}", self.name, self.doc)
    }

    fn call<'py>(&self, py: Python<'py>, operands: &[Bound<'py, PyAny>]) -> PyResult<Py<Array>> {
        match (self.operation, operands) {
            (Operation::Unary(op), [x]) => of_one(py, op, x, &self.label, self.promotion),
            (Operation::Pairwise(op), [x, y]) => {
                let (x, y) = (convert::operand(x, &self.label)?, convert::operand(y, &self.label)?);
                match (self.promotion, op) {
                    (Promotion::Lexicographic, Pairwise::Compare(op)) => {
                        numpy_mixed::order(py, &self.label, op, x, y)
                    }
                    _ => binary(py, &self.label, op, x, y, self.promotion),
                }
            }
            _ => Err(internal_error!("{} of {} operands", self.name, operands.len())).py(py),
        }
    }

    /// Operands in order from arguments some of which are given by name, or that are not as
    /// many as there are operands; `names` are those of the last ones.
    fn arrange<'py>(
        &self,
        arguments: &[Bound<'py, PyAny>],
        names: &Bound<'py, PyTuple>,
    ) -> PyResult<SmallVec<[Bound<'py, PyAny>; 2]>> {
        let (name, parameters) = (self.name, self.parameters());
        let positional = arguments.len() - names.len();
        if positional > parameters.len() {
            let (takes, s) = (parameters.len(), if parameters.len() == 1 { "" } else { "s" });
            let were = if positional == 1 { "was" } else { "were" };
            return Err(PyTypeError::new_err(format!(
                "{name}() takes {takes} positional argument{s} but {positional} {were} given"
            )));
        }
        let mut operands: SmallVec<[Option<Bound<'py, PyAny>>; 2]> =
            arguments[..positional].iter().cloned().map(Some).collect();
        operands.resize(parameters.len(), None);
        for (key, value) in names.iter().zip(&arguments[positional..]) {
            let key = key.cast_into::<PyString>()?;
            let key = key.to_str()?;
            match parameters.iter().position(|parameter| *parameter == key) {
                Some(_) if !self.named() => {
                    return Err(PyTypeError::new_err(format!(
                        "{name}() takes its operands by position, got '{key}' as a keyword argument"
                    )));
                }
                Some(place) if operands[place].is_some() => {
                    return Err(PyTypeError::new_err(format!(
                        "{name}() got multiple values for argument '{key}'"
                    )));
                }
                Some(place) => operands[place] = Some(value.clone()),
                None if self.shown.contains(&key) => self.check_shown(key, value)?,
                None => {
                    return Err(PyTypeError::new_err(format!(
                        "{name}() got an unexpected keyword argument '{key}'"
                    )));
                }
            }
        }
        operands
            .into_iter()
            .zip(parameters)
            .map(|(operand, parameter)| {
                operand.ok_or_else(|| {
                    PyTypeError::new_err(format!(
                        "{name}() missing 1 required positional argument: '{parameter}'"
                    ))
                })
            })
            .collect()
    }

    /// There is one accuracy, which is both the default and the highest one.
    fn check_shown(&self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if value.is_none() {
            return Ok(());
        }
        let modes = value.py().import("ferrax._src.core.op_types")?.getattr("AccuracyMode")?;
        if value.is_instance(&modes)? {
            return Ok(());
        }
        Err(PyNotImplementedError::new_err(format!(
            "{} has one implementation, within a few units in the last place; {key} must be None or a \
             lax.AccuracyMode, got {value}",
            self.label
        )))
    }
}

/// An op of one operand after this promotion.
pub fn of_one<'py>(
    py: Python<'py>,
    op: Unary,
    x: &Bound<'py, PyAny>,
    label: &str,
    promotion: Promotion,
) -> PyResult<Py<Array>> {
    if !matches!(promotion, Promotion::Accepted | Promotion::Complex) {
        return unary(py, op, convert::operand(x, label)?, promotion);
    }
    let x = convert::as_array(x, label)?;
    let dtype = x.get().dtype();
    let is_result = if promotion == Promotion::Complex {
        !dtype.is_complex()
    } else {
        let accepted = op.row().accepts().iter().any(|group| group.holds(dtype));
        (dtype.is_integer() || dtype.is_bool()) && !accepted
    };
    if is_result { Ok(x.unbind()) } else { unary(py, op, Operand::Array(x), Promotion::Strict) }
}

/// The functions of `numpy` and of `lax`.
struct Tables {
    all: Vec<Function>,
    /// As many of them are numpy's.
    numpy: usize,
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let (mut numpy, mut lax) = (Vec::new(), Vec::new());
        for (operation, row) in operations() {
            for function in row.python.numpy {
                let (name, promotion) = (function.name, function.promotion);
                let doc = row.help("jnp", name, promotion);
                numpy.push(Function { operation, name, label: name.into(), promotion, shown: &[], doc });
            }
            let (name, promotion) = (row.python.lax, Promotion::Strict);
            if !name.is_empty() {
                let doc = row.help("lax", name, promotion);
                let (label, shown) = (format!("lax.{name}"), row.python.shown);
                lax.push(Function { operation, name, label, promotion, shown, doc });
            }
        }
        let count = numpy.len();
        numpy.append(&mut lax);
        Tables { all: numpy, numpy: count }
    })
}

/// What a row says of itself, whatever its family.
struct Described {
    op: Op,
    name: &'static str,
    doc: &'static str,
    operands: SmallVec<[Wide; 2]>,
    accepts: SmallVec<[Accept; 4]>,
    python: Shown,
    makes_nan: bool,
    derivative: &'static str,
}

fn operations() -> impl Iterator<Item = (Operation, Described)> {
    let unary = Unary::ALL.iter().map(|&op| {
        let row = op.row();
        let described = Described {
            op: op.into(),
            name: row.name,
            doc: row.doc,
            operands: SmallVec::from_iter([row.example.0]),
            accepts: row.accepts(),
            python: row.python,
            makes_nan: row.makes_nan,
            derivative: match row.derivative {
                UnaryDerivative::Zero => "zero",
                UnaryDerivative::Linear(_) => "linear",
                UnaryDerivative::Slope(_) | UnaryDerivative::Tangent(_) => "",
            },
        };
        (Operation::Unary(op), described)
    });
    let binary = Binary::ALL.iter().map(|&op| {
        let row = op.row();
        let described = Described {
            op: op.into(),
            name: row.name,
            doc: row.doc,
            operands: row.example.0.into(),
            accepts: row.accepts(),
            python: row.python,
            makes_nan: row.makes_nan,
            derivative: match row.derivative {
                BinaryDerivative::Zero => "zero",
                BinaryDerivative::Linear(..) => "linear",
                BinaryDerivative::LinearInOne(..)
                | BinaryDerivative::Missing
                | BinaryDerivative::Terms(_) => "",
            },
        };
        (Operation::Pairwise(op.into()), described)
    });
    let compare = Compare::ALL.iter().map(|&op| {
        let row = op.row();
        let described = Described {
            op: op.into(),
            name: row.name,
            doc: row.doc,
            operands: row.example.0.into(),
            accepts: op.accepts(),
            python: row.python,
            makes_nan: false,
            derivative: "zero",
        };
        (Operation::Pairwise(op.into()), described)
    });
    unary.chain(binary).chain(compare)
}

impl Described {
    /// Help: meaning, shapes and dtypes, and an example.
    fn help(&self, module: &str, function: &str, promotion: Promotion) -> String {
        let dtypes: Vec<&str> = self.accepts.iter().map(|group| group.plural()).collect();
        let shapes = if self.operands.len() == 1 {
            "of any shape"
        } else if module == "jnp" {
            "whose shapes broadcast together"
        } else {
            "of one shape"
        };
        let mut text = format!(
            "{}\n\nElementwise, for arrays {shapes}, of {}.",
            self.doc.replace('`', "``"),
            dtypes.join(", ")
        );
        for more in [promotion.doc(self.operands.len()), self.python.note] {
            if !more.is_empty() {
                text.push(' ');
                text.push_str(more);
            }
        }
        let wrapped = wrap(&text, 96);
        match self.example(module, function, promotion) {
            Some(example) => format!("{wrapped}\n\n{example}"),
            None => wrapped,
        }
    }

    /// The row's example as Python shows it, in 32 bits.
    fn example(&self, module: &str, function: &str, promotion: Promotion) -> Option<String> {
        let scalar = |wide: &Wide| {
            let dtype = match wide {
                _ if promotion == Promotion::Logical => DType::Bool,
                Wide::Int(_) => DType::I32,
                Wide::Float(_) => DType::F32,
                Wide::Complex(..) => DType::C64,
            };
            ferrax_ir::convert::store(dtype, *wide)
        };
        let operands: Vec<Scalar> = self.operands.iter().map(scalar).collect::<Option<_>>()?;
        let tensors: Vec<Tensor> = operands.iter().map(|x| x.to_tensor()).collect::<Result<_, _>>().ok()?;
        let types: Vec<Type> = tensors.iter().map(|tensor| tensor.array_type().into()).collect();
        let outputs = self.op.infer(&types).ok()?;
        let result = self.op.eval(&tensors, &outputs).ok()?.into_iter().next()?;
        let result = Scalar::from_bytes(result.dtype(), result.bytes())?;
        let arrays: Vec<String> =
            operands.iter().map(|x| format!("jnp.array([{}])", number(*x, true))).collect();
        let dtype = result.dtype();
        Some(format!(
            ">>> {module}.{function}({})\nArray([{}], dtype={})",
            arrays.join(", "),
            number(result, false),
            dtype.name()
        ))
    }
}

/// A number as Python writes it, or (not `source`) as arrays show it.
fn number(x: Scalar, source: bool) -> String {
    let float = |x: f64| {
        let text = format!("{:?}", x as f32);
        match (text.strip_suffix(".0"), text.split_once('e')) {
            _ if source => text,
            (Some(whole), _) => format!("{whole}."),
            (None, Some((digits, exponent))) if !digits.contains('.') => format!("{digits}.e{exponent}"),
            (None, _) => text,
        }
    };
    match ferrax_ir::convert::load(x.dtype(), &x.bytes()) {
        Some(Wide::Int(value)) if x.dtype().is_bool() => match (value, source) {
            (0, _) => "False".to_owned(),
            (_, true) => "True".to_owned(),
            (_, false) => " True".to_owned(),
        },
        Some(Wide::Int(value)) => value.to_string(),
        Some(Wide::Float(value)) => float(value),
        Some(Wide::Complex(re, im)) => {
            let sign = if im.is_sign_negative() { '-' } else { '+' };
            format!("{}{sign}{}j", float(re), float(im.abs()))
        }
        None => String::new(),
    }
}

/// Words in lines of at most `width`; empty lines stay.
fn wrap(text: &str, width: usize) -> String {
    let paragraph = |text: &str| {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if line.len() + 1 + word.len() <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines.join("\n")
    };
    text.split("\n\n").map(paragraph).collect::<Vec<_>>().join("\n\n")
}

/// The function at a place in the table.
struct Slot<const N: usize>;

type Trampoline = ffi::PyCFunctionFastWithKeywords;

impl<const N: usize> MethodDef<fastcall_cfunction_with_keywords::Func> for Slot<N> {
    const METH: fastcall_cfunction_with_keywords::Func = call::<N>;
}

/// # Safety
/// Called by Python as a function with `METH_FASTCALL | METH_KEYWORDS`: `arguments` points
/// to `count` values and one for each of `names`, which is null or a tuple.
unsafe fn call<const N: usize>(
    py: Python<'_>,
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    // SAFETY: as Python calls this function, so it calls that one.
    unsafe { dispatch(py, N, arguments, count, names) }
}

/// # Safety
/// As for [`call`].
unsafe fn dispatch(
    py: Python<'_>,
    place: usize,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    let Some(function) = tables().all.get(place) else {
        return Err(internal_error!("no function at {place}")).py(py);
    };
    // SAFETY: `names` is null or a tuple that outlives this call.
    let names = unsafe { Bound::from_borrowed_ptr_or_opt(py, names) };
    let names = names.map(|names| names.cast_into::<PyTuple>()).transpose()?;
    let total = count as usize + names.as_ref().map_or(0, |names| names.len());
    let arguments: SmallVec<[Bound<'_, PyAny>; 3]> = (0..total)
        // SAFETY: there are so many objects, which the caller holds while this runs.
        .map(|index| unsafe { Bound::from_borrowed_ptr(py, *arguments.add(index)) })
        .collect();
    let result = match names {
        None if total == function.parameters().len() => function.call(py, &arguments)?,
        names => {
            let names = names.unwrap_or_else(|| PyTuple::empty(py));
            function.call(py, &function.arrange(&arguments, &names)?)?
        }
    };
    Ok(result.into_ptr())
}

macro_rules! slots {
    ($($sixteen:literal)*) => {
        [$(
            slots!(@ $sixteen * 16, 0), slots!(@ $sixteen * 16, 1), slots!(@ $sixteen * 16, 2),
            slots!(@ $sixteen * 16, 3), slots!(@ $sixteen * 16, 4), slots!(@ $sixteen * 16, 5),
            slots!(@ $sixteen * 16, 6), slots!(@ $sixteen * 16, 7), slots!(@ $sixteen * 16, 8),
            slots!(@ $sixteen * 16, 9), slots!(@ $sixteen * 16, 10), slots!(@ $sixteen * 16, 11),
            slots!(@ $sixteen * 16, 12), slots!(@ $sixteen * 16, 13), slots!(@ $sixteen * 16, 14),
            slots!(@ $sixteen * 16, 15),
        )*]
    };
    (@ $first:expr, $more:literal) => { fastcall_cfunction_with_keywords::<Slot<{ $first + $more }>> };
}

/// One C function for each place.
static SLOTS: [Trampoline; PLACES] = slots!(0 1 2 3 4 5 6 7 8 9 10 11);
const PLACES: usize = 12 * 16;

/// How many functions the rows ask for.
const fn wanted() -> usize {
    let (mut count, mut place) = (0, 0);
    while place < Unary::ALL.len() {
        count += 1 + Unary::ALL[place].row().python.numpy.len();
        place += 1;
    }
    place = 0;
    while place < Binary::ALL.len() {
        count += 1 + Binary::ALL[place].row().python.numpy.len();
        place += 1;
    }
    place = 0;
    while place < Compare::ALL.len() {
        count += 1 + Compare::ALL[place].row().python.numpy.len();
        place += 1;
    }
    count
}

const _: () = assert!(wanted() <= PLACES, "more functions than C functions: add to SLOTS");

/// Adds the functions of `numpy` (ufuncs) and of `lax` to their modules.
pub fn register(ufuncs: &Bound<'_, PyModule>, lax: &Bound<'_, PyModule>) -> PyResult<()> {
    let tables = tables();
    for (place, function) in tables.all.iter().enumerate() {
        let module = if place < tables.numpy { ufuncs } else { lax };
        module.add(function.name, native(module, place, function)?)?;
    }
    Ok(())
}

fn native<'py>(
    module: &Bound<'py, PyModule>,
    place: usize,
    function: &Function,
) -> PyResult<Bound<'py, PyAny>> {
    let py = module.py();
    // Python keeps pointers to these for as long as it runs.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: CString::new(function.name)?.into_raw(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: SLOTS[place] },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: CString::new(function.text())?.into_raw(),
    }));
    let name = module.name()?;
    // SAFETY: the definition and its texts are never freed; module and name are objects.
    unsafe {
        let made = ffi::PyCFunction_NewEx(definition, module.as_ptr(), name.as_ptr());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// What the rows of elementwise ops say that Python code goes by: for each op's name, the
/// parameters that jaxprs show besides its own (`shown`, all None), whether it may make a
/// NaN (`makes_nan`), and whether its `derivative` is `"zero"` or the op `"linear"` in all
/// operands together; else that is empty.
#[pyfunction]
pub fn op_rows(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let rows = PyDict::new(py);
    for (_, described) in operations() {
        let row = PyDict::new(py);
        row.set_item("shown", PyTuple::new(py, described.python.shown)?)?;
        row.set_item("makes_nan", described.makes_nan)?;
        row.set_item("derivative", described.derivative)?;
        rows.set_item(described.name, row)?;
    }
    Ok(rows)
}
