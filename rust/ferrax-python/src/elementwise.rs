//! Elementwise functions on Python values: promotion, conversion, broadcasting,
//! then one op. The hot path of `jnp.sin(x)` and `x + 1`.

use ferrax_ir::ops::{Binary, BroadcastInDim, Compare, ConvertElementType, Unary};
use ferrax_ir::{Axes, DType, Dim, Kind, Literal, Op, Scalar, Shape, Sizes};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::array::Array;
use crate::convert::Operand;
use crate::pairwise::{self, Pairwise};
use crate::promote::{canonicalize, context, result_type};
use crate::trace;

/// What happens to the operands' dtypes before the op.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Promotion {
    /// The common dtype.
    Numeric,
    /// The common dtype, or the float dtype for integers.
    Inexact,
    /// Truth values.
    Logical,
    /// None: the lax functions are strict.
    Strict,
}

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
fn broadcast_shape(py: Python<'_>, name: &str, shapes: &[Sizes]) -> PyResult<Sizes> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result: Sizes = std::iter::repeat_n(1, rank).collect();
    for shape in shapes {
        for (axis, &size) in shape.iter().enumerate() {
            let place = &mut result[rank - shape.len() + axis];
            match (*place, size) {
                (_, 1) => {}
                (1, size) => *place = size,
                (place, size) if place == size => {}
                _ => {
                    let all: Vec<String> =
                        shapes.iter().map(|shape| format!("{:?}", shape.as_slice())).collect();
                    let line =
                        crate::source::current(py).line().map(|l| format!("\n  at {l}")).unwrap_or_default();
                    return Err(PyTypeError::new_err(format!(
                        "{name} got incompatible shapes for broadcasting: {}.{line}",
                        all.join(", ").replace('[', "(").replace(']', ")")
                    )));
                }
            }
        }
    }
    Ok(result)
}

/// An operand in this shape, axes aligned at the end.
fn broadcast<'py>(py: Python<'py>, operand: Operand<'py>, sizes: &Sizes) -> PyResult<Operand<'py>> {
    let Operand::Array(array) = &operand else { return Ok(operand) };
    if array.get().rank() == 0 || array.get().sizes()? == *sizes {
        return Ok(operand);
    }
    let (shape, dims) = broadcast_params(&array.get().sizes()?, sizes);
    let squeezed = BroadcastInDim { shape, broadcast_dimensions: dims };
    Ok(Operand::Array(bind1(py, squeezed, std::slice::from_ref(&operand))?.into_bound(py)))
}

pub fn broadcast_params(from: &[usize], to: &[usize]) -> (Shape, Axes) {
    let offset = to.len() - from.len();
    (to.iter().map(|&size| Dim::Const(size)).collect(), (offset..to.len()).collect())
}

/// What happens with operands of different rank is the user's choice; whether it was a warning.
fn check_ranks(py: Python<'_>, name: &str, shapes: &[Sizes]) -> PyResult<bool> {
    let mode = context().rank_promotion;
    if mode == 0 {
        return Ok(false);
    }
    let mut ranks = shapes.iter().map(|shape| shape.len()).filter(|&rank| rank > 0);
    let Some(first) = ranks.next() else { return Ok(false) };
    if ranks.all(|rank| rank == first) {
        return Ok(false);
    }
    let text = format!(
        "Operands could not be broadcast together for {name} on shapes {shapes:?} and with the config option \
         jax_numpy_rank_promotion='{}'. Add axes explicitly, for instance with x[None, :].",
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
            let target = to_inexact(dtype, context().x64);
            if target == dtype { x } else { convert(py, &x, target, weak)? }
        }
        Promotion::Logical => truth(py, x)?,
        Promotion::Numeric if x.dtype() == DType::Bool && op == Op::Unary(Unary::Square) => {
            convert(py, &x, DType::I32, false)?
        }
        Promotion::Numeric | Promotion::Strict => x,
    };
    bind1(py, op, &[x])
}

/// `x != 0`.
fn truth<'py>(py: Python<'py>, x: Operand<'py>) -> PyResult<Operand<'py>> {
    match &x {
        Operand::Literal(literal) => Ok(Operand::Literal(convert_literal(*literal, DType::Bool, false))),
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
    let eager = trace::runs_eagerly(&operands);
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
        let mut dtype =
            if promotion == Promotion::Inexact { to_inexact(dtype, context().x64) } else { dtype };
        if dtype == DType::Bool {
            (meant, dtype) = of_truth_values(op);
        }
        target = Some((dtype, weak));
    }
    let sizes = |operand: &Operand<'_>| match operand {
        Operand::Array(array) => array.get().sizes(),
        Operand::Literal(_) => Ok(Sizes::new()),
    };
    let (xs, ys) = (sizes(x)?, sizes(y)?);
    let (mut shape, mut warned) = (None, false);
    if xs != ys && !xs.is_empty() && !ys.is_empty() {
        warned = check_ranks(py, name, &[xs.clone(), ys.clone()])?;
        if promotion == Promotion::Strict && xs.len() != ys.len() {
            // The type rule explains what lax functions take.
            return bind1(py, Op::from(meant), &operands);
        }
        shape = Some(broadcast_shape(py, name, &[xs, ys])?);
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

/// The only accuracy that there is: the default one.
fn check_accuracy(name: &str, accuracy: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match accuracy {
        None => Ok(()),
        Some(accuracy) => Err(PyNotImplementedError::new_err(format!(
            "{name} has one implementation, within a few units in the last place; accuracy must be None, got {accuracy}"
        ))),
    }
}

macro_rules! unary_functions {
    ($module:ident, $prefix:literal, $promotion:expr, $signature:tt, { $($name:ident => $op:ident),* $(,)? }) => {
        pub mod $module {
            use super::*;

            $(
                #[pyfunction]
                #[pyo3(signature = $signature)]
                pub fn $name(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
                    let x = crate::convert::operand(x, concat!($prefix, stringify!($name)))?;
                    unary(py, Unary::$op, x, $promotion)
                }
            )*

            pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
                $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
                Ok(())
            }
        }
    };
}

/// Functions that `lax` can be asked to compute with a given accuracy.
macro_rules! accurate_functions {
    ($module:ident, { $($name:ident => $op:ident),* $(,)? }) => {
        pub mod $module {
            use super::*;

            $(
                #[pyfunction]
                #[pyo3(signature = (x, *, accuracy = None))]
                pub fn $name(
                    py: Python<'_>,
                    x: &Bound<'_, PyAny>,
                    accuracy: Option<&Bound<'_, PyAny>>,
                ) -> PyResult<Py<Array>> {
                    let name = concat!("lax.", stringify!($name));
                    check_accuracy(name, accuracy)?;
                    unary(py, Unary::$op, crate::convert::operand(x, name)?, Promotion::Strict)
                }
            )*

            pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
                $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
                Ok(())
            }
        }
    };
}

macro_rules! binary_functions {
    ($module:ident, $prefix:literal, $signature:tt, { $($name:ident => $promotion:ident $family:ident $op:ident),* $(,)? }) => {
        pub mod $module {
            use super::*;

            $(
                #[pyfunction]
                #[pyo3(signature = $signature)]
                pub fn $name(py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
                    let name = concat!($prefix, stringify!($name));
                    let (x, y) = (crate::convert::operand(x, name)?, crate::convert::operand(y, name)?);
                    binary(py, name, $family::$op, x, y, Promotion::$promotion)
                }
            )*

            pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
                $(module.add_function(wrap_pyfunction!($name, module)?)?;)*
                Ok(())
            }
        }
    };
}

unary_functions!(numpy_inexact, "", Promotion::Inexact, (x, /), {
    sqrt => Sqrt, exp => Exp, exp2 => Exp2, expm1 => Expm1, log => Log, log1p => Log1p, sin => Sin, cos => Cos,
    tan => Tan, arcsin => Asin, arccos => Acos, arctan => Atan, sinh => Sinh, cosh => Cosh, tanh => Tanh,
    arcsinh => Asinh, arccosh => Acosh, arctanh => Atanh, cbrt => Cbrt, logistic => Logistic,
});

unary_functions!(numpy_numeric, "", Promotion::Numeric, (x, /), {
    negative => Neg, sign => Sign, square => Square, bitwise_not => Not,
});

unary_functions!(numpy_logical, "", Promotion::Logical, (x, /), { logical_not => Not });

binary_functions!(numpy_binary, "", (x, y, /), {
    add => Numeric Binary Add, subtract => Numeric Binary Sub, multiply => Numeric Binary Mul,
    true_divide => Inexact Binary Div, maximum => Numeric Binary Max, minimum => Numeric Binary Min,
    equal => Numeric Compare Eq, not_equal => Numeric Compare Ne,
    logical_and => Logical Binary And, logical_or => Logical Binary Or, logical_xor => Logical Binary Xor,
    bitwise_and => Numeric Binary And, bitwise_or => Numeric Binary Or, bitwise_xor => Numeric Binary Xor,
    left_shift => Numeric Binary ShiftLeft, arctan2 => Inexact Binary Atan2, nextafter => Inexact Binary Nextafter,
});

accurate_functions!(lax_accurate, {
    exp => Exp, exp2 => Exp2, expm1 => Expm1, log => Log, log1p => Log1p, tanh => Tanh, logistic => Logistic,
    sin => Sin, cos => Cos, tan => Tan, sqrt => Sqrt, rsqrt => Rsqrt, cbrt => Cbrt,
});

unary_functions!(lax_unary, "lax.", Promotion::Strict, (x), {
    neg => Neg, sign => Sign, floor => Floor, ceil => Ceil, is_finite => IsFinite, asin => Asin, acos => Acos,
    atan => Atan, sinh => Sinh, cosh => Cosh, asinh => Asinh, acosh => Acosh, atanh => Atanh, abs => Abs,
    bitwise_not => Not, population_count => PopulationCount, clz => Clz, real => Real, imag => Imag, conj => Conj,
    erf => Erf, erfc => Erfc, erf_inv => ErfInv, lgamma => Lgamma, digamma => Digamma, square => Square,
});

binary_functions!(lax_binary, "lax.", (x, y), {
    add => Strict Binary Add, sub => Strict Binary Sub, mul => Strict Binary Mul, div => Strict Binary Div,
    rem => Strict Binary Rem, pow => Strict Binary Pow, max => Strict Binary Max, min => Strict Binary Min,
    bitwise_and => Strict Binary And, bitwise_or => Strict Binary Or, bitwise_xor => Strict Binary Xor,
    shift_left => Strict Binary ShiftLeft, shift_right_arithmetic => Strict Binary ShiftRightArithmetic,
    shift_right_logical => Strict Binary ShiftRightLogical, atan2 => Strict Binary Atan2,
    nextafter => Strict Binary Nextafter, complex => Strict Binary Complex,
    eq => Strict Compare Eq, ne => Strict Compare Ne, lt => Strict Compare Lt, le => Strict Compare Le,
    gt => Strict Compare Gt, ge => Strict Compare Ge,
});

/// Functions whose behaviour depends on the kind of their operands.
pub mod numpy_mixed {
    use super::*;
    use ferrax_ir::ops::{IntegerPow, Round};

    fn array<'py>(x: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, Array>> {
        crate::convert::as_array(x, name)
    }

    macro_rules! float_or_same {
        ($($name:ident => $op:expr),* $(,)?) => {$(
            /// Integers are their own result.
            #[pyfunction]
            #[pyo3(signature = (x, /))]
            pub fn $name(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
                let x = array(x, stringify!($name))?;
                if x.get().dtype().is_integer() || x.get().dtype().is_bool() {
                    return Ok(x.unbind());
                }
                bind1(py, $op, &[Operand::Array(x)])
            }
        )*};
    }

    float_or_same!(floor => Unary::Floor, ceil => Unary::Ceil, rint => Round { rounding_method: 1 });

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn positive(x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        array(x, "positive").map(Bound::unbind)
    }

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn abs(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = array(x, "abs")?;
        if x.get().dtype().is_unsigned() || x.get().dtype().is_bool() {
            return Ok(x.unbind());
        }
        bind1(py, Unary::Abs, &[Operand::Array(x)])
    }

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn conj(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = array(x, "conj")?;
        if x.get().dtype().is_complex() {
            bind1(py, Unary::Conj, &[Operand::Array(x)])
        } else {
            Ok(x.unbind())
        }
    }

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn real(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = array(x, "real")?;
        if x.get().dtype().is_complex() {
            bind1(py, Unary::Real, &[Operand::Array(x)])
        } else {
            Ok(x.unbind())
        }
    }

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn imag(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = array(x, "imag")?;
        if x.get().dtype().is_complex() {
            return bind1(py, Unary::Imag, &[Operand::Array(x)]);
        }
        let zero = Operand::Literal(Literal { value: Scalar::zero(x.get().dtype()), weak: x.get().weak() });
        let shape = x.get().sizes()?.iter().map(|&size| Dim::Const(size)).collect();
        bind1(py, BroadcastInDim { shape, broadcast_dimensions: Axes::new() }, &[zero])
    }

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn reciprocal(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let x = crate::convert::operand(x, "reciprocal")?;
        unary(py, IntegerPow { y: -1 }, x, Promotion::Inexact)
    }

    macro_rules! logarithms {
        ($($name:ident $base:literal),* $(,)?) => {$(
            /// The natural logarithm over that of the base.
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

    /// Rounds towards zero; integers are their own result.
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

    /// Signed integers keep their sign.
    #[pyfunction]
    #[pyo3(signature = (x, y, /))]
    pub fn right_shift(py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        let (x, y) = (crate::convert::operand(x, "right_shift")?, crate::convert::operand(y, "right_shift")?);
        let op =
            if x.dtype().is_unsigned() { Binary::ShiftRightLogical } else { Binary::ShiftRightArithmetic };
        binary(py, "right_shift", op, x, y, Promotion::Numeric)
    }

    macro_rules! orders {
        ($($name:ident => $op:ident $text:literal),* $(,)?) => {$(
            /// Complex numbers compare by real part, then by imaginary part.
            #[pyfunction]
            #[pyo3(signature = (x, y, /))]
            pub fn $name(py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
                let (x, y) = (crate::convert::operand(x, $text)?, crate::convert::operand(y, $text)?);
                order(py, $text, Compare::$op, x, y)
            }
        )*};
    }

    orders!(less => Lt "less", less_equal => Le "less_equal", greater => Gt "greater", greater_equal => Ge "greater_equal");

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
        module.add_function(wrap_pyfunction!(floor, module)?)?;
        module.add_function(wrap_pyfunction!(ceil, module)?)?;
        module.add_function(wrap_pyfunction!(rint, module)?)?;
        module.add_function(wrap_pyfunction!(positive, module)?)?;
        module.add_function(wrap_pyfunction!(abs, module)?)?;
        module.add_function(wrap_pyfunction!(conj, module)?)?;
        module.add_function(wrap_pyfunction!(real, module)?)?;
        module.add_function(wrap_pyfunction!(imag, module)?)?;
        module.add_function(wrap_pyfunction!(reciprocal, module)?)?;
        module.add_function(wrap_pyfunction!(log2, module)?)?;
        module.add_function(wrap_pyfunction!(log10, module)?)?;
        module.add_function(wrap_pyfunction!(trunc, module)?)?;
        module.add_function(wrap_pyfunction!(right_shift, module)?)?;
        module.add_function(wrap_pyfunction!(less, module)?)?;
        module.add_function(wrap_pyfunction!(less_equal, module)?)?;
        module.add_function(wrap_pyfunction!(greater, module)?)?;
        module.add_function(wrap_pyfunction!(greater_equal, module)?)?;
        Ok(())
    }
}

/// Ternary lax functions and the identities.
pub mod lax_mixed {
    use super::*;
    use ferrax_ir::ops::{Clamp, Copy, SelectN, StopGradient};
    use pyo3::types::PyTuple;

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

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn stop_gradient(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        bind1(py, StopGradient {}, &[crate::convert::operand(x, "lax.stop_gradient")?])
    }

    #[pyfunction]
    #[pyo3(signature = (x, /))]
    pub fn copy(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<Py<Array>> {
        bind1(py, Copy {}, &[crate::convert::operand(x, "lax.copy")?])
    }

    pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add_function(wrap_pyfunction!(select_n, module)?)?;
        module.add_function(wrap_pyfunction!(clamp, module)?)?;
        module.add_function(wrap_pyfunction!(stop_gradient, module)?)?;
        module.add_function(wrap_pyfunction!(copy, module)?)?;
        Ok(())
    }
}
