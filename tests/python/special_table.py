"""Functions of one and two real numbers in float64 by NumPy and SciPy, and to any number of digits by mpmath,
for the elementwise ops of the table, by their names in it; and numbers at which they are asked for."""

import ml_dtypes
import mpmath
import numpy as np
import scipy.special


def lgamma(x):
    return np.where(np.isinf(x), np.inf, scipy.special.gammaln(x))


def digamma(x):
    """Neither limit at zero."""
    return np.where((x == 0) | (x == -np.inf), np.nan, scipy.special.digamma(x))


def larger(x, y):
    """Of two zeros the positive one, whichever comes first."""
    return np.where((x == 0) & (y == 0), x + y, np.maximum(x, y))


def smaller(x, y):
    return -larger(-x, -y)


# Op: its function in `lax`, in float64, in mpmath unless it is exact in float64.
UNARY = {
    "abs": ("abs", np.abs, None), "acos": ("acos", np.arccos, mpmath.acos), "acosh": ("acosh", np.arccosh, mpmath.acosh),
    "asin": ("asin", np.arcsin, mpmath.asin), "asinh": ("asinh", np.arcsinh, mpmath.asinh), "atan": ("atan", np.arctan, mpmath.atan),
    "atanh": ("atanh", np.arctanh, mpmath.atanh), "cbrt": ("cbrt", np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))), "ceil": ("ceil", np.ceil, None),
    "cos": ("cos", np.cos, mpmath.cos), "cosh": ("cosh", np.cosh, mpmath.cosh), "digamma": ("digamma", digamma, mpmath.digamma),
    "erf": ("erf", scipy.special.erf, mpmath.erf), "erf_inv": ("erf_inv", lambda x: np.copysign(scipy.special.erfinv(x), x), mpmath.erfinv),
    "erfc": ("erfc", scipy.special.erfc, mpmath.erfc), "exp": ("exp", np.exp, mpmath.exp), "exp2": ("exp2", np.exp2, lambda x: mpmath.power(2, x)),
    "expm1": ("expm1", np.expm1, mpmath.expm1), "floor": ("floor", np.floor, None), "lgamma": ("lgamma", lgamma, lambda x: mpmath.log(abs(mpmath.gamma(x)))),
    "log": ("log", np.log, mpmath.log), "log1p": ("log1p", np.log1p, mpmath.log1p), "logistic": ("logistic", scipy.special.expit, lambda x: 1 / (1 + mpmath.exp(-x))),
    "neg": ("neg", np.negative, None), "round": ("round", lambda x: np.copysign(np.trunc(np.abs(x) + 0.5), x), None),
    "rsqrt": ("rsqrt", lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x)), "sign": ("sign", lambda x: np.where(x == 0, x, np.sign(x)), None),
    "sin": ("sin", np.sin, mpmath.sin), "sinh": ("sinh", np.sinh, mpmath.sinh), "sqrt": ("sqrt", np.sqrt, mpmath.sqrt),
    "square": ("square", np.square, lambda x: x * x), "tan": ("tan", np.tan, mpmath.tan), "tanh": ("tanh", np.tanh, mpmath.tanh),
    "is_finite": ("is_finite", np.isfinite, None), "copy": ("asarray", np.positive, None), "stop_gradient": ("stop_gradient", np.positive, None),
}  # fmt: skip
BINARY = {
    "add": ("add", np.add), "sub": ("sub", np.subtract), "mul": ("mul", np.multiply), "div": ("div", np.divide), "rem": ("rem", np.fmod),
    "pow": ("pow", lambda x, y: np.where((y == 0) | (x == 1), 1.0, np.power(x, y))), "max": ("max", larger), "min": ("min", smaller), "atan2": ("atan2", np.arctan2),
    "eq": ("eq", np.equal), "ne": ("ne", np.not_equal), "lt": ("lt", np.less), "le": ("le", np.less_equal), "gt": ("gt", np.greater),
    "ge": ("ge", np.greater_equal),
}  # fmt: skip


def specials(dtype):
    """Signed zeros, infinities, NaN, and numbers at the ends of what is subnormal, of what is normal and of all."""
    limits = ml_dtypes.finfo(dtype)
    least, tiny, most = float(limits.smallest_subnormal), float(limits.tiny), float(limits.max)
    positive = [0.0, least, 2 * least, tiny - least, tiny, 1.5 * tiny, float(limits.eps), 0.1, 0.5, 1.0, 1.5, 2.5, 3.0, 88.0, 1 / tiny, most / 2, most, np.inf]
    return np.asarray([*positive, *(-x for x in positive), np.nan]).astype(dtype)


def bits(dtype, count=None):
    """All numbers of a dtype of 16 bits; of others `count`, of each exponent as many."""
    kind = np.dtype(f"u{np.dtype(dtype).itemsize}")
    if kind.itemsize == 2:
        return np.arange(1 << 16, dtype=kind).view(dtype)
    return np.random.default_rng(1).integers(0, np.iinfo(kind).max, count, kind, endpoint=True).view(dtype)


# What is rounded once; and the size of terms that cancel at the zeros of a function. Negative numbers have the
# digamma of one less themselves, which is near a logarithm, beside a cotangent.
EXACT = {"abs", "ceil", "floor", "neg", "round", "sign", "is_finite", "copy", "stop_gradient", "max", "min", "add", "sub", "mul", "div", "sqrt", "square", "rem"}
CANCELS = {"lgamma": lambda x: 1.0, "digamma": lambda x: np.log(2 + np.where(np.isfinite(x), np.abs(x.astype(np.float64)), 0))}
# Where exp(-x) overflows, x / 2 and the like are not taken: results that are subnormal are zero.
FLUSHED = {"logistic"}


def bounds(name, x, dtype):
    usual = 1 if np.dtype(dtype).itemsize == 2 else 4
    terms = CANCELS[name](x) if name in CANCELS else 0.0
    return {"ulps": 0.5 if name in EXACT else usual, "cancels": terms, "flushed": "ours" if name in FLUSHED else None}
