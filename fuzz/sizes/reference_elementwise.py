"""Functions of elements over bounded values, and the operators of `Bounded`."""

import numpy as np
from scipy import special

from .bounds import (
    INTEGERS,
    Bounded,
    binary,
    bounded_slope,
    cast,
    compared,
    lifted,
    logical,
    monotone,
    moved,
    pair,
    promoted,
    quiet,
    real_dtype,
    rounded,
    wide,
)

add = binary(np.add, lambda x, a, y, b: a + b)
subtract = binary(np.subtract, lambda x, a, y, b: a + b)
multiply = binary(np.multiply, lambda x, a, y, b: np.abs(x) * b + np.abs(y) * a + a * b)
divide = binary(np.divide, lambda x, a, y, b: (a + np.abs(x / y) * b) / np.maximum(np.abs(y) - b, 0), 2.0)
maximum = binary(np.maximum, lambda x, a, y, b: np.maximum(a, b), 0.0)
minimum = binary(np.minimum, lambda x, a, y, b: np.maximum(a, b), 0.0)
hypot = binary(np.hypot, lambda x, a, y, b: a + b, 4.0)
remainder = binary(np.remainder, lambda x, a, y, b: np.inf)  # of integers alone
floor_divide = binary(np.floor_divide, lambda x, a, y, b: np.inf)


def swapped(function):
    return lambda self, other: function(lifted(other, self), self)


def power(x, exponent):
    """Of small whole exponents, by products."""
    result = x
    for _ in range(exponent - 1):
        result = multiply(result, x)
    return result


def logaddexp(a, b):
    a, b = pair(a, b)
    larger = np.maximum(np.abs(a.value), np.abs(b.value)) + 1.0
    dtype = promoted(a.dtype, b.dtype)
    sure = rounded(larger, 0.0, dtype, 6.0).error
    return rounded(np.logaddexp(a.value, b.value), np.maximum(a.error, b.error) + sure, dtype, 2.0)


@quiet
def where(condition, a, b):
    scalars = not isinstance(a, Bounded) and not isinstance(b, Bounded)
    a, b = (lifted(a, condition), lifted(b, condition)) if scalars else pair(a, b)
    dtype = promoted(a.dtype, b.dtype)
    x, y, error = a.value.astype(wide(dtype)), b.value.astype(wide(dtype)), 0.0
    if a.inexact() or b.inexact() or condition.inexact():
        error = np.where(condition.value, a.error, b.error)
    if condition.inexact():
        apart = np.abs(np.subtract(x, y, dtype="complex128").real if dtype in INTEGERS else x - y)
        error = np.where(condition.errors() > 0, apart + np.maximum(a.error, b.error), error)
    return Bounded(np.where(condition.value, x, y), error, dtype)


def clip(x, least, most):
    return minimum(maximum(x, least), most)


def absolute(x):
    if x.dtype.startswith("complex"):
        return rounded(np.abs(x.value), x.error, real_dtype(x.dtype), 4.0)
    return Bounded(np.abs(x.value), x.error, x.dtype)


def part(function):
    return lambda x: Bounded(function(x.value), x.error, real_dtype(x.dtype))


def bitwise_not(x):
    return Bounded(~x.value, x.error, x.dtype)


def logical_not(x):
    return bitwise_not(cast(x, "bool"))


def negative(x):
    return Bounded(-x.value, x.error, x.dtype)


@quiet
def _sigmoid(v):
    return special.expit(v)


tanh, exp, erf = monotone(np.tanh), monotone(np.exp), monotone(special.erf)
log, log1p, expm1, sqrt = monotone(np.log), monotone(np.log1p), monotone(np.expm1), monotone(np.sqrt)
sigmoid = monotone(_sigmoid, 8.0)
softplus = monotone(lambda v: np.logaddexp(v, 0.0), 8.0)
rsqrt = monotone(lambda v: 1 / np.sqrt(v))
sin, cos = bounded_slope(np.sin, 1.0, 2.0), bounded_slope(np.cos, 1.0, 2.0)
arctan, arcsinh, cbrt = monotone(np.arctan), monotone(np.arcsinh, 8.0), monotone(np.cbrt)
floor, ceil, rint, sign = (monotone(function, 0.0, False) for function in (np.floor, np.ceil, np.rint, np.sign))


def isfinite(x):
    return Bounded(np.isfinite(x.value), 0.0, "bool")


def relu(x):
    return maximum(x, 0)


def silu(x):
    return multiply(x, sigmoid(x))


def gelu(x, approximate=True):
    if not approximate:
        return multiply(multiply(x, 0.5), add(erf(multiply(x, 0.5**0.5)), 1.0))
    inner = multiply(add(x, multiply(multiply(multiply(x, x), x), 0.044715)), 0.7978845608028654)
    return multiply(multiply(x, 0.5), add(tanh(inner), 1.0))


def elu(x):
    return where(greater(x, 0.0), x, expm1(minimum(x, 0.0)))


def leaky_relu(x):
    return where(compared(np.greater_equal)(x, 0.0), x, multiply(x, 0.01))


def of_bools(function):
    return lambda a, b: function(cast(a, "bool"), cast(b, "bool"))


greater, less = compared(np.greater), compared(np.less)
greater_equal, less_equal = compared(np.greater_equal), compared(np.less_equal)
equal, not_equal = compared(np.equal), compared(np.not_equal)
bitwise_and, bitwise_or, bitwise_xor = logical(np.bitwise_and), logical(np.bitwise_or), logical(np.bitwise_xor)
logical_and, logical_or = of_bools(bitwise_and), of_bools(bitwise_or)
left_shift, right_shift = logical(np.left_shift), logical(np.right_shift)


def install():
    """Operators, which Python looks for in the class."""
    of = {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "mod": remainder,
          "floordiv": floor_divide, "and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor,
          "lshift": left_shift, "rshift": right_shift}  # fmt: skip
    for name, function in of.items():
        setattr(Bounded, f"__{name}__", function)
        setattr(Bounded, f"__r{name}__", swapped(function))
    of = {"gt": greater, "lt": less, "ge": greater_equal, "le": less_equal, "eq": equal, "ne": not_equal}
    for name, function in of.items():
        setattr(Bounded, f"__{name}__", function)
    Bounded.__hash__ = object.__hash__
    Bounded.__neg__, Bounded.__invert__, Bounded.__abs__, Bounded.__pow__ = negative, bitwise_not, absolute, power
    Bounded.astype = cast
    Bounded.real, Bounded.imag = property(part(np.real)), property(part(np.imag))
    Bounded.conj = moved(np.conj)


install()

JNP = {name: globals()[name] for name in (
    "add maximum minimum hypot logaddexp where clip tanh exp log log1p expm1 sqrt sin cos arctan arcsinh cbrt floor "
    "ceil sign isfinite logical_and logical_or logical_not"
).split()} | {"abs": absolute, "round": rint, "square": lambda x: multiply(x, x), "real": part(np.real),
              "imag": part(np.imag), "conj": moved(np.conj)}  # fmt: skip
LAX = {"erf": erf, "rsqrt": rsqrt, "max": maximum, "add": add}
NN = {"relu": relu, "silu": silu, "gelu": gelu, "sigmoid": sigmoid, "softplus": softplus, "elu": elu,
      "leaky_relu": leaky_relu}  # fmt: skip
