//! Dtypes as Python sees them: NumPy's own, `ml_dtypes`' and those of keys, which Python makes and registers.

use ferrax_ir::{DType, KeyImpl};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use rustc_hash::FxHashMap;

use crate::errors::IntoPyResult;
use crate::once::{Once, intern};

/// NumPy dtype objects in the order of `DType::ALL`, then the key dtypes.
struct Table {
    objects: FxHashMap<DType, Py<PyAny>>,
    by_address: FxHashMap<usize, DType>,
    numpy_dtype: Py<PyType>,
}

static TABLE: Once<Table> = Once::new();

/// Makes what is made once.
pub fn settle(py: Python<'_>) -> PyResult<()> {
    table(py).map(|_| ())
}

fn table(py: Python<'_>) -> PyResult<&Table> {
    TABLE.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        let ml_dtypes = py.import("ml_dtypes")?;
        let constructor = numpy.getattr("dtype")?;
        let mut objects = FxHashMap::default();
        let mut by_address = FxHashMap::default();
        for &dtype in DType::ALL {
            if dtype == DType::Float0 {
                continue;
            }
            let object = {
                let class = ml_dtypes
                    .getattr(dtype.name())
                    .or_else(|_| numpy.getattr(if dtype == DType::Bool { "bool_" } else { dtype.name() }))?;
                constructor.call1((class,))?
            };
            by_address.insert(object.as_ptr() as usize, dtype);
            objects.insert(dtype, object.unbind());
        }
        let numpy_dtype = constructor.cast_into::<PyType>()?.unbind();
        Ok(Table { objects, by_address, numpy_dtype })
    })
}

/// Of the dtype objects of keys, by the number of the generator.
static KEY_DTYPES: [Once<(KeyImpl, Py<PyAny>)>; 256] = [const { Once::new() }; 256];
/// Their class. Its objects know their number as `_number`.
static KEY_CLASS: Once<Py<PyType>> = Once::new();
static FLOAT0: Once<Py<PyAny>> = Once::new();

/// Registers the object that stands for the dtype without bytes.
#[pyfunction]
pub fn register_float0(py: Python<'_>, float0: Py<PyAny>) {
    // A second registration (a module reloaded) keeps the first.
    FLOAT0.keep(py, float0);
}

/// Registers the dtype object of the keys of a generator, which is defined if none has this name: gives
/// its number and its name, which is another one where `define` and the name is taken.
#[pyfunction]
pub fn register_key_dtype(
    object: &Bound<'_, PyAny>,
    name: &str,
    tag: &str,
    key_shape: Vec<usize>,
    define: bool,
) -> PyResult<(u8, &'static str)> {
    let py = object.py();
    let found = if define { KeyImpl::define(name, tag, &key_shape) } else { KeyImpl::named(name) };
    let key = found.py(py)?;
    KEY_CLASS.keep(py, object.get_type().unbind());
    KEY_DTYPES[usize::from(key.number())].keep(py, (key, object.clone().unbind()));
    Ok((key.number(), key.name()))
}

/// The Python object of a dtype.
pub fn to_numpy(py: Python<'_>, dtype: DType) -> PyResult<Py<PyAny>> {
    let special = match dtype {
        DType::Key(key) => KEY_DTYPES[usize::from(key.number())].get(py).map(|(_, object)| object),
        DType::Float0 => FLOAT0.get(py),
        _ => None,
    };
    if let Some(object) = special {
        return Ok(object.clone_ref(py));
    }
    table(py)?
        .objects
        .get(&dtype)
        .map(|object| object.clone_ref(py))
        .ok_or_else(|| PyTypeError::new_err(format!("dtype {dtype} is not registered")))
}

/// The dtype of a NumPy dtype object, a scalar type, a name or a key dtype.
pub fn from_python(object: &Bound<'_, PyAny>) -> PyResult<DType> {
    let py = object.py();
    let table = table(py)?;
    if let Some(&dtype) = table.by_address.get(&(object.as_ptr() as usize)) {
        return Ok(dtype);
    }
    if KEY_CLASS.get(py).is_some_and(|class| object.get_type().is(class.bind(py))) {
        let number: u8 = object.getattr(intern!(py, "_number"))?.extract()?;
        if let Some((key, _)) = KEY_DTYPES[usize::from(number)].get(py) {
            return Ok(DType::Key(*key));
        }
    }
    if !object.is_instance_of::<PyType>()
        && FLOAT0.get(py).map_or(Ok(false), |known| known.bind(py).eq(object))?
    {
        return Ok(DType::Float0);
    }
    let numpy = table.numpy_dtype.bind(py).call1((object,))?;
    let name: String = numpy.getattr(intern!(py, "name"))?.extract()?;
    if name.starts_with("void") || object.getattr(intern!(py, "names")).is_ok_and(|names| !names.is_none()) {
        return Err(PyTypeError::new_err(format!("dtype {} is not a valid array type", object.repr()?)));
    }
    DType::parse(&name).map_err(|_| {
        if name.starts_with("float6") {
            return PyTypeError::new_err(format!(
                "an array cannot have dtype {name}: floats of six bits have names alone, no numbers. \
                 Those of four (float4_e2m1fn) and eight bits (such as float8_e4m3fn) have."
            ));
        }
        PyTypeError::new_err(format!(
            "an array cannot have dtype {}: its elements are numbers, bools or random keys.",
            object.repr().map(|text| text.to_string()).unwrap_or(name)
        ))
    })
}
