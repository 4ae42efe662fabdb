//! Elementwise functions on Python values: promotion, conversion, broadcasting,
//! then one op. The hot path of `jnp.sin(x)` and `x + 1`.

pub use ferrax_ir::ops::python::Promotion;
use ferrax_ir::ops::{Binary, BroadcastInDim, Compare, ConvertElementType, Unary};
use ferrax_ir::{Axes, DType, Dim, Kind, Literal, Op, Scalar, Shape};
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::Operand;
use crate::devices;
use crate::pairwise::{self, Pairwise};
use crate::promote::{canonicalize, context, result_type};
use crate::trace;

/// The float dtype for a dtype: itself if it is inexact.
pub fn to_inexact(dtype: DType, x64: bool) -> DType {
    match dtype.kind() {
        Kind::Float | Kind::Complex => dtype,
        _ if dtype.bits() == 64 => canonicalize(DType::F64, x64),
        _ => DType::F32,
    }
}

/// The one result of a bound op.
fn single(outputs: trace::Outputs) -> PyResult<Py<Array>> {
    outputs.into_iter().next().ok_or_else(|| PyTypeError::new_err("the op has no output"))
}

/// Applies an op with one output.
pub fn bind1(py: Python<'_>, op: impl Into<Op>, operands: &[Operand<'_>]) -> PyResult<Py<Array>> {
    single(trace::bind(py, op.into(), operands)?)
}

/// A literal in another dtype; weakness as given.
pub fn convert_literal(literal: Literal, dtype: DType, weak: bool) -> Literal {
    let value = ferrax_ir::convert::load(literal.value.dtype(), &literal.value.bytes())
        .and_then(|wide| ferrax_ir::convert::store(dtype, wide))
        .unwrap_or(literal.value);
    Literal { value, weak }
}

/// An operand in another dtype.
pub fn convert<'py>(
    py: Python<'py>,
    operand: &Operand<'py>,
    dtype: DType,
    weak: bool,
) -> PyResult<Operand<'py>> {
    match operand {
        Operand::Literal(literal) => Ok(Operand::Literal(convert_literal(*literal, dtype, weak))),
        Operand::Array(array) if array.get().dtype() == dtype => Ok(Operand::Array(array.clone())),
        Operand::Array(_) => {
            let op = ConvertElementType { new_dtype: dtype, weak_type: weak };
            Ok(Operand::Array(bind1(py, op, std::slice::from_ref(operand))?.into_bound(py)))
        }
    }
}

/// The common shape of operands by NumPy's rule; 0-d operands go with any.
fn broadcast_shape(py: Python<'_>, name: &str, shapes: &[&Shape]) -> PyResult<Shape> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result: Shape = std::iter::repeat_n(Dim::Const(1), rank).collect();
    for shape in shapes {
        for (axis, size) in shape.iter().enumerate() {
            let place = &mut result[rank - shape.len() + axis];
            if *place == Dim::Const(1) {
                *place = size.clone();
            } else if *size != Dim::Const(1) && size != place {
                let all: Vec<String> = shapes.iter().map(|shape| shown(shape)).collect();
                let line =
                    crate::source::current(py).line().map(|l| format!("\n  at {l}")).unwrap_or_default();
                return Err(PyTypeError::new_err(format!(
                    "{name} got incompatible shapes for broadcasting: {}.{line}",
                    all.join(", ")
                )));
            }
        }
    }
    Ok(result)
}

/// A shape as messages about broadcasting have it.
fn shown(shape: &[Dim]) -> String {
    let sizes: Vec<String> = shape.iter().map(Dim::to_string).collect();
    format!("({})", sizes.join(", "))
}

/// An operand in this shape, axes aligned at the end.
fn broadcast<'py>(py: Python<'py>, operand: Operand<'py>, shape: &Shape) -> PyResult<Operand<'py>> {
    let Operand::Array(array) = &operand else { return Ok(operand) };
    let own = array.get().shape();
    if own.is_empty() || own == *shape {
        return Ok(operand);
    }
    let broadcast = aligned(own.len(), shape.clone());
    Ok(Operand::Array(bind1(py, broadcast, std::slice::from_ref(&operand))?.into_bound(py)))
}

/// The broadcast of an operand of this rank to a shape, axes aligned at the end.
pub fn aligned(rank: usize, shape: Shape) -> BroadcastInDim {
    let broadcast_dimensions: Axes = (shape.len() - rank..shape.len()).collect();
    BroadcastInDim { shape, broadcast_dimensions }
}

/// What happens with operands of different rank is the user's choice; whether it was a warning.
fn check_ranks(py: Python<'_>, name: &str, shapes: &[&Shape]) -> PyResult<bool> {
    let mode = context().rank_promotion;
    if mode == 0 {
        return Ok(false);
    }
    let mut ranks = shapes.iter().map(|shape| shape.len()).filter(|&rank| rank > 0);
    let Some(first) = ranks.next() else { return Ok(false) };
    if ranks.all(|rank| rank == first) {
        return Ok(false);
    }
    let all: Vec<String> = shapes.iter().map(|shape| shown(shape)).collect();
    let text = format!(
        "{name}: shapes {} have different ranks, which jax_numpy_rank_promotion='{}' does not \
         allow. Add axes explicitly, for instance with x[None, :].",
        all.join(", "),
        if mode == 1 { "warn" } else { "raise" }
    );
    if mode == 1 {
        return PyErr::warn(py, &py.get_type::<PyUserWarning>(), &std::ffi::CString::new(text)?, 2)
            .map(|()| true);
    }
    Err(PyValueError::new_err(text))
}

/// Applies a unary op.
pub fn unary(py: Python<'_>, op: impl Into<Op>, x: Operand<'_>, promotion: Promotion) -> PyResult<Py<Array>> {
    let op = op.into();
    let x = match promotion {
        Promotion::Inexact => {
            let (dtype, weak) = (x.dtype(), x.weak());
            let target = to_inexact(dtype, context().wide_beside(dtype));
            if target == dtype { x } else { convert(py, &x, target, weak)? }
        }
        Promotion::Logical => truth(py, x)?,
        Promotion::Counting if x.dtype() == DType::Bool => convert(py, &x, DType::I32, false)?,
        _ => x,
    };
    bind1(py, op, &[x])
}

/// `x != 0`.
fn truth<'py>(py: Python<'py>, x: Operand<'py>) -> PyResult<Operand<'py>> {
    match &x {
        Operand::Literal(literal) => {
            Ok(Operand::Literal(convert_literal(*literal, DType::Bool, literal.weak)))
        }
        _ if x.dtype() == DType::Bool => Ok(x),
        _ => {
            let zero = Operand::Literal(Literal { value: Scalar::zero(x.dtype()), weak: true });
            Ok(Operand::Array(bind1(py, Compare::Ne, &[x, zero])?.into_bound(py)))
        }
    }
}

/// What an op is for truth values: their sum is "or" and their product "and",
/// while shifts are those of numbers.
fn of_truth_values(op: Pairwise) -> (Pairwise, DType) {
    match op {
        Pairwise::Binary(Binary::Add) => (Binary::Or.into(), DType::Bool),
        Pairwise::Binary(Binary::Mul) => (Binary::And.into(), DType::Bool),
        Pairwise::Binary(Binary::ShiftLeft | Binary::ShiftRightArithmetic | Binary::ShiftRightLogical) => {
            (op, DType::I32)
        }
        other => (other, DType::Bool),
    }
}

/// Applies a binary op or comparison to promoted and broadcast operands.
pub fn binary<'py>(
    py: Python<'py>,
    name: &str,
    op: impl Into<Pairwise>,
    x: Operand<'py>,
    y: Operand<'py>,
    promotion: Promotion,
) -> PyResult<Py<Array>> {
    let op = op.into();
    let (x, y) = match promotion {
        Promotion::Logical => (truth(py, x)?, truth(py, y)?),
        _ => (x, y),
    };
    let operands = [x, y];
    let eager = trace::runs_eagerly(&operands) && !devices::elsewhere(&operands);
    if eager && let Some(result) = pairwise::known(py, op, promotion, &operands)? {
        return Ok(result);
    }
    let [x, y] = &operands;
    // What the op is for operands of this dtype.
    let mut meant = op;
    let mut target = None;
    if matches!(promotion, Promotion::Numeric | Promotion::Inexact) {
        let (dtype, weak) = if x.dtype() == y.dtype() && x.weak() == y.weak() {
            (x.dtype(), x.weak())
        } else {
            result_type(py, &[(x.dtype(), x.weak()), (y.dtype(), y.weak())])?
        };
        let mut dtype = if promotion == Promotion::Inexact {
            to_inexact(dtype, context().wide_beside(dtype))
        } else {
            dtype
        };
        if dtype == DType::Bool {
            (meant, dtype) = of_truth_values(op);
        }
        target = Some((dtype, weak));
    }
    let shape_of = |operand: &Operand<'_>| match operand {
        Operand::Array(array) => array.get().shape(),
        Operand::Literal(_) => Shape::new(),
    };
    let (xs, ys) = (shape_of(x), shape_of(y));
    let (mut shape, mut warned) = (None, false);
    if xs != ys && !xs.is_empty() && !ys.is_empty() {
        warned = check_ranks(py, name, &[&xs, &ys])?;
        if promotion == Promotion::Strict && xs.len() != ys.len() {
            // The type rule explains what lax functions take.
            return bind1(py, Op::from(meant), &operands);
        }
        shape = Some(broadcast_shape(py, name, &[&xs, &ys])?);
    }
    // A call that is remembered would not warn again.
    if eager && !warned {
        return pairwise::first(py, (op, meant), promotion, &operands, target, shape);
    }
    let [mut x, mut y] = operands;
    if let Some((dtype, weak)) = target {
        // Literals convert for free and stay weak; arrays need an equation.
        let ready = |operand: &Operand<'py>| {
            let literal = matches!(operand, Operand::Literal(_));
            convert(py, operand, dtype, weak || literal && operand.weak())
        };
        (x, y) = (ready(&x)?, ready(&y)?);
    }
    if let Some(shape) = &shape {
        (x, y) = (broadcast(py, x, shape)?, broadcast(py, y, shape)?);
    }
    bind1(py, Op::from(meant), &[x, y])
}

/// Functions whose behaviour depends on the kind of their operands.
pub mod numpy_mixed {
    use super::*;
    use ferrax_ir::ops::{IntegerPow, Round};

    fn array<'py>(x: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, Array>> {
        crate::convert::as_array(x, name)
    }

    /// Rounds to the nearest whole number, halves to the even one.
    ///
    /// Elementwise, for arrays of any shape and dtype; integers are their own result.
    ///
    /// >>> jnp.rint(jnp.array([0.5, 1.5]))
    /// Array([0., 2.], dtype=float32)
    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn rint(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = array(x, "rint")?;
        if x.get().dtype().is_integer() || x.get().dtype().is_bool() {
            return Ok(x.unbind());
        }
        bind1(py, Round { rounding_method: 1 }, &[Operand::Array(x)])
    }

    /// `+x`: the array itself.
    ///
    /// Elementwise, for arrays of any shape and dtype.
    ///
    /// >>> jnp.positive(jnp.array([-1.5]))
    /// Array([-1.5], dtype=float32)
    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn positive(x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        array(x, "positive").map(Bound::unbind)
    }

    /// Imaginary part of a complex number.
    ///
    /// Elementwise, for arrays of any shape; of real arrays zeros.
    ///
    /// >>> jnp.imag(jnp.array([3.0+4.0j]))
    /// Array([4.], dtype=float32)
    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn imag(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = array(x, "imag")?;
        if x.get().dtype().is_complex() {
            return bind1(py, Unary::Imag, &[Operand::Array(x)]);
        }
        let zero = Operand::Literal(Literal { value: Scalar::zero(x.get().dtype()), weak: x.get().weak() });
        let shape = x.get().shape();
        bind1(py, BroadcastInDim { shape, broadcast_dimensions: Axes::new() }, &[zero])
    }

    /// `1 / x`.
    ///
    /// Elementwise, for arrays of any shape. Integers and truth values become floats first.
    ///
    /// >>> jnp.reciprocal(jnp.array([4.0]))
    /// Array([0.25], dtype=float32)
    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn reciprocal(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = crate::convert::operand(x, "reciprocal")?;
        unary(py, IntegerPow { y: -1 }, x, Promotion::Inexact)
    }

    macro_rules! logarithms {
        ($($name:ident $base:literal),* $(,)?) => {$(
            /// Logarithm to this base, as a quotient of natural ones.
            ///
            /// Elementwise, for arrays of any shape. Integers and truth values become floats first.
            ///
            #[doc = concat!(">>> jnp.", stringify!($name), "(jnp.array([1.0]))")]
            /// Array([0.], dtype=float32)
            #[pyfunction]
            #[pyo3(signature = (x, /))]
            pub fn $name(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
                let x = crate::convert::operand(x, stringify!($name))?;
                let log = unary(py, Unary::Log, x, Promotion::Inexact)?.into_bound(py);
                let value = Scalar::from_f64(log.get().dtype(), f64::ln($base));
                let base = Operand::Literal(Literal { value, weak: true });
                bind1(py, Binary::Div, &[Operand::Array(log), base])
            }
        )*};
    }

    logarithms!(log2 2.0, log10 10.0);

    /// Rounds towards zero.
    ///
    /// Elementwise, for arrays of any shape and real dtype; integers are their own result.
    ///
    /// >>> jnp.trunc(jnp.array([-1.5]))
    /// Array([-1.], dtype=float32)
    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn trunc(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = array(x, "trunc")?;
        let dtype = x.get().dtype();
        if dtype.is_integer() || dtype.is_bool() {
            return Ok(x.unbind());
        }
        let x = Operand::Array(x);
        let zero = Operand::Literal(Literal { value: Scalar::zero(dtype), weak: true });
        let one = std::slice::from_ref(&x);
        let negative = Operand::Array(bind1(py, Compare::Lt, &[x.clone(), zero])?.into_bound(py));
        let up = Operand::Array(bind1(py, Unary::Ceil, one)?.into_bound(py));
        let down = Operand::Array(bind1(py, Unary::Floor, one)?.into_bound(py));
        bind1(py, ferrax_ir::ops::SelectN {}, &[negative, down, up])
    }

    macro_rules! right_shifts {
        ($($name:ident $text:literal),*) => {$(
            /// `x >> y`; signed integers keep their sign.
            ///
            /// Elementwise, for arrays of integers or truth values whose shapes broadcast together.
            /// The result has their common dtype.
            ///
            /// >>> jnp.right_shift(jnp.array([-5]), jnp.array([1]))
            /// Array([-3], dtype=int32)
            #[pyfunction]
            #[pyo3(signature = (x, y, /))]
            pub fn $name(py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
                let (x, y) = (crate::convert::operand(x, $text)?, crate::convert::operand(y, $text)?);
                let unsigned = x.dtype().is_unsigned();
                let op = if unsigned { Binary::ShiftRightLogical } else { Binary::ShiftRightArithmetic };
                binary(py, $text, op, x, y, Promotion::Numeric)
            }
        )*};
    }

    right_shifts!(right_shift "right_shift", bitwise_right_shift "bitwise_right_shift");

    /// A comparison; complex numbers are ordered by real part, then by imaginary part.
    pub fn order<'py>(
        py: Python<'py>,
        name: &str,
        op: Compare,
        x: Operand<'py>,
        y: Operand<'py>,
    ) -> PyResult<Py<Array>> {
        if !x.dtype().is_complex() && !y.dtype().is_complex() {
            return binary(py, name, op, x, y, Promotion::Numeric);
        }
        let (dtype, weak) = result_type(py, &[(x.dtype(), x.weak()), (y.dtype(), y.weak())])?;
        let (x, y) = (convert(py, &x, dtype, weak)?, convert(py, &y, dtype, weak)?);
        let part = |op: Unary, of: &Operand<'py>| -> PyResult<Operand<'py>> {
            Ok(Operand::Array(bind1(py, op, std::slice::from_ref(of))?.into_bound(py)))
        };
        let compare = |op: Compare, part_op: Unary| -> PyResult<Operand<'py>> {
            let made = binary(py, name, op, part(part_op, &x)?, part(part_op, &y)?, Promotion::Numeric)?;
            Ok(Operand::Array(made.into_bound(py)))
        };
        let tie = compare(Compare::Eq, Unary::Real)?;
        let by_real = compare(op, Unary::Real)?;
        let by_imag = compare(op, Unary::Imag)?;
        bind1(py, ferrax_ir::ops::SelectN {}, &[tie, by_real, by_imag])
    }

    pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add_function(wrap_pyfunction!(rint, module)?)?;
        module.add_function(wrap_pyfunction!(positive, module)?)?;
        module.add_function(wrap_pyfunction!(imag, module)?)?;
        module.add_function(wrap_pyfunction!(reciprocal, module)?)?;
        module.add_function(wrap_pyfunction!(log2, module)?)?;
        module.add_function(wrap_pyfunction!(log10, module)?)?;
        module.add_function(wrap_pyfunction!(trunc, module)?)?;
        module.add_function(wrap_pyfunction!(right_shift, module)?)?;
        module.add_function(wrap_pyfunction!(bitwise_right_shift, module)?)?;
        Ok(())
    }
}

/// Ternary lax functions and the identities.
pub mod lax_mixed {
    use super::*;
    use ferrax_ir::ops::{Clamp, Copy, SelectN, StopGradient};
    use pyo3::types::PyTuple;

    /// Of several arrays the one that `which` says, elementwise.
    ///
    /// `which` holds truth values (for two cases) or `int32` numbers of cases, as a scalar or in the shape
    /// of the cases; these have one shape and dtype.
    ///
    /// >>> lax.select_n(jnp.array([False, True]), jnp.array([1, 2]), jnp.array([3, 4]))
    /// Array([1, 4], dtype=int32)
    #[pyfunction]
    #[pyo3(signature = (which, *cases))]
    pub fn select_n(
        py: Python<'_>,
        which: &Bound<'_, PyAny>,
        cases: &Bound<'_, PyTuple>,
    ) -> PyResult<Py<Array>> {
        let mut operands: SmallVec<[Operand<'_>; 4]> = SmallVec::new();
        operands.push(crate::convert::operand(which, "lax.select_n")?);
        for case in cases.iter() {
            operands.push(crate::convert::operand(&case, "lax.select_n")?);
        }
        bind1(py, SelectN {}, &operands)
    }

    /// `x` within bounds, elementwise: not below `min` and not above `max`.
    ///
    /// The bounds are scalars or have the shape of `x`; all have one dtype.
    ///
    /// >>> lax.clamp(0.0, jnp.array([-1.0, 0.5, 2.0]), 1.0)
    /// Array([0. , 0.5, 1. ], dtype=float32)
    #[pyfunction]
    #[pyo3(signature = (min, x, max))]
    pub fn clamp(
        py: Python<'_>,
        min: &Bound<'_, PyAny>,
        x: &Bound<'_, PyAny>,
        max: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Array>> {
        let operand = |value| crate::convert::operand(value, "lax.clamp");
        bind1(py, Clamp {}, &[operand(min)?, operand(x)?, operand(max)?])
    }

    /// `x` as a constant for differentiation.
    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn stop_gradient(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        bind1(py, StopGradient {}, &[crate::convert::operand(x, "lax.stop_gradient")?])
    }

    /// A copy of `x`.
    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn copy(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        bind1(py, Copy {}, &[crate::convert::operand(x, "lax.copy")?])
    }

    pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add_function(wrap_pyfunction!(select_n, module)?)?;
        module.add_function(wrap_pyfunction!(clamp, module)?)?;
        module.add_function(wrap_pyfunction!(stop_gradient, module)?)?;
        // No function of `lax`: the array's method is made of it.
        module.setattr("copy", wrap_pyfunction!(copy, module)?)
    }
}
