"""Values with bounds: what an array should be, and by how much a correct program may miss it.

A `Bounded` has the value in 64 bits (integers and bools exactly), the dtype in which ferrax computes it, and beside
each element a bound of the error: an array of the same shape, or 0 for exact values. An operation passes on the
errors of its operands as they change its result, to first order or by evaluating at both ends, and adds its own
rounding: some units in the last place of the result, or of the size of the terms that it adds up. So bounds are tight
where a program is well conditioned and wide where terms cancel. A comparison of two values that are closer than
their errors has the error 1, and what is selected by it may be either. An infinite error says that nothing is known.

See N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002, chapters 3 and 4.
"""

import contextlib
import math

import ml_dtypes
import numpy as np

# Half the distance of 1 to the next number; eight times that for 64 bits, in which the values themselves are computed.
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-50,
        "complex64": 2.0**-23, "complex128": 2.0**-49}  # fmt: skip
# What is lost where numbers are denormal, or as large as the least that is not. Above those they may overflow.
TINY = dict.fromkeys(UNIT, 2.0**-126) | {"float16": 2.0**-24, "float64": 2.0**-1000, "complex128": 2.0**-1000}
HUGE = dict.fromkeys(UNIT, 1e37) | {"float16": 3e4, "float64": 1e300, "complex128": 1e300}
INTEGERS = ["bool", "uint8", "int8", "int32", "int64"]
REALS = ["bfloat16", "float16", "float32", "float64"]


class Unsure(Exception):
    """A branch depends on what is not known exactly: the program has no single right result."""


class Setting:
    """`track`: whether errors are computed; `x64`: whether 64-bit dtypes are kept."""

    track = True
    x64 = False


@contextlib.contextmanager
def setting(**values):
    before = {name: getattr(Setting, name) for name in values}
    for name, value in values.items():
        setattr(Setting, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(Setting, name, value)


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def wide(dtype: str) -> str:
    """The dtype of values of a dtype."""
    return "complex128" if dtype.startswith("complex") else "float64" if dtype in UNIT else dtype


def promoted(a: str, b: str) -> str:
    """Of two arrays' dtypes, none of which is of Python scalars."""
    if a == b:
        return a
    if {a, b} == {"bfloat16", "float16"}:
        return "float32"
    if "complex64" in (a, b) or "complex128" in (a, b):
        return "complex128" if {a, b} & {"complex128", "float64"} else "complex64"
    if a in REALS or b in REALS:
        return max((one for one in (a, b) if one in REALS), key=REALS.index)
    return "int32" if {a, b} == {"uint8", "int8"} else max(a, b, key=INTEGERS.index)


def sums_dtype(dtype: str) -> str:
    """Sums of narrow integers are made in the default integer type."""
    return ("int64" if Setting.x64 else "int32") if dtype in INTEGERS else dtype


def real_dtype(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


class Bounded:
    __slots__ = ("dtype", "error", "value")
    __array_ufunc__ = None  # operators with NumPy's arrays are this class's

    def __init__(self, value, error, dtype):
        self.value, self.error, self.dtype = np.asarray(value), error, dtype

    @property
    def shape(self):
        return self.value.shape

    @property
    def ndim(self):
        return self.value.ndim

    @property
    def size(self):
        return self.value.size

    def inexact(self) -> bool:
        return Setting.track and bool(np.ndim(self.error) or self.error)

    def errors(self) -> np.ndarray:
        """The errors as an array of the value's shape."""
        return np.broadcast_to(np.asarray(self.error, float), self.value.shape)

    def exact(self):
        """The value, which a decision depends on."""
        if self.inexact() and np.any(self.error):
            raise Unsure
        return self.value

    def __bool__(self):
        return bool(self.exact())

    def __index__(self):
        return int(self.exact())


def quiet(function):
    """Infinities and their differences are values here like others."""

    def inner(*arguments, **options):
        with np.errstate(all="ignore"):
            return function(*arguments, **options)

    return inner


@quiet
def rounded(value, error, dtype: str, units: float = 1.0) -> Bounded:
    """A result of operands' errors that is rounded so many times at its own size, to which these belong."""
    if not Setting.track or dtype not in UNIT:
        return Bounded(value, error if Setting.track else 0.0, dtype)
    size = np.abs(value)
    error = np.where(np.isnan(error), np.inf, error)
    reach = size + np.where(np.isfinite(error), error, 0.0)
    error = error + np.where(np.isfinite(size), units * UNIT[dtype] * reach + TINY[dtype] * (units > 0), 0.0)
    return Bounded(value, np.where(np.isinf(size) | (size + error < HUGE[dtype]), error, np.inf), dtype)


def summed(value, error, dtype: str, size, units: float) -> Bounded:
    """A sum of terms of this size all together: made in single precision at least, and rounded once at the end."""
    single = min(UNIT[dtype], UNIT["complex64" if dtype.startswith("complex") else "float32"])
    with np.errstate(all="ignore"):
        return rounded(value, error + units * single * size, dtype)


def cast(x: Bounded, dtype: str) -> Bounded:
    if dtype == x.dtype:
        return x
    if dtype == "bool":
        return Bounded(x.value != 0, (np.abs(x.value) <= x.error) * 1.0 if x.inexact() else 0.0, dtype)
    if dtype in UNIT:
        narrower = UNIT[dtype] > UNIT.get(x.dtype, 0.0 if x.dtype in ("int32", "int64") else 1.0)
        value = x.value.real if x.dtype.startswith("complex") and dtype in REALS else x.value
        return rounded(value.astype(wide(dtype)), x.error, dtype, float(narrower))
    if x.dtype not in UNIT:
        return Bounded(x.value.astype(dtype), x.error, dtype)
    limits = np.iinfo(dtype)  # floats become the nearest integer towards zero that there is
    ends = [np.clip(np.trunc(x.value + way * x.error), limits.min, limits.max) for way in (0, 1, -1)]
    value = np.nan_to_num(ends[0]).astype(dtype)
    return Bounded(value, np.maximum(ends[1] - ends[0], ends[0] - ends[2]) if x.inexact() else 0.0, dtype)


def lifted(x, like: Bounded) -> Bounded:
    """A Python scalar beside an array, which it takes the dtype of if that is of its kind or a wider one."""
    if isinstance(x, Bounded):
        return x
    if isinstance(x, np.ndarray):
        return Bounded(x, 0.0, x.dtype.name)
    kind = like.dtype
    if isinstance(x, complex) and not kind.startswith("complex"):
        kind = "complex128" if kind == "float64" or kind not in UNIT and Setting.x64 else "complex64"
    elif isinstance(x, float) and kind not in UNIT:
        kind = "float64" if Setting.x64 else "float32"
    elif isinstance(x, int) and not isinstance(x, bool) and kind == "bool":
        kind = sums_dtype(kind)
    number = np.asarray(x, wide(kind))
    with np.errstate(all="ignore"):
        same = kind not in UNIT or complex(number.astype(numpy_dtype(kind))) == complex(x)
    return rounded(number, 0.0, kind, float(not same))


def pair(a, b):
    return (a, lifted(b, a)) if isinstance(a, Bounded) else (lifted(a, b), b)


def binary(function, error, units: float = 1.0):
    """A function of two arrays; `error` is of values and errors, four arguments."""

    @quiet
    def apply(a, b):
        a, b = pair(a, b)
        dtype = promoted(a.dtype, b.dtype)
        x, y = a.value.astype(wide(dtype)), b.value.astype(wide(dtype))
        if not a.inexact() and not b.inexact():
            return rounded(function(x, y), 0.0, dtype, units)
        p, q = (x, y) if dtype in UNIT else (x.astype(float), y.astype(float))
        change = error(p, a.error, q, b.error)
        return rounded(function(x, y), change if dtype in UNIT else np.where(change == 0, 0.0, np.inf), dtype, units)

    return apply


def compared(function):
    @quiet
    def apply(a, b):
        a, b = pair(a, b)
        dtype = promoted(a.dtype, b.dtype)
        x, y, doubt = a.value.astype(wide(dtype)), b.value.astype(wide(dtype)), a.error + b.error
        if not a.inexact() and not b.inexact():
            return Bounded(function(x, y), 0.0, "bool")
        apart = np.abs(x - y) if dtype in UNIT else np.abs(x.astype(float) - y.astype(float))
        return Bounded(function(x, y), ((apart <= doubt) & (doubt > 0)) * 1.0, "bool")

    return apply


def logical(function):
    """Of bools: if one is in doubt the result is. Of integers: nothing is known of those in doubt."""

    def apply(a, b):
        a, b = pair(a, b)
        dtype = promoted(a.dtype, b.dtype)
        error = np.maximum(a.errors(), b.errors()) if a.inexact() or b.inexact() else 0.0
        error = np.where(error > 0, np.inf, 0.0) if dtype != "bool" and np.ndim(error) else error
        return Bounded(function(a.value.astype(dtype), b.value.astype(dtype)), error, dtype)

    return apply


def monotone(function, units: float = 4.0, floats: bool = True):
    """A function that rises or falls throughout: its error is found at both ends. `floats`: integers become floats."""

    @quiet
    def apply(x):
        x = cast(x, "float64" if Setting.x64 else "float32") if floats and x.dtype not in UNIT else x
        value, error = function(x.value), 0.0
        if x.inexact():
            error = np.maximum(np.abs(function(x.value + x.error) - value), np.abs(function(x.value - x.error) - value))
            error = np.where(np.isinf(value) & (x.error < np.inf), 0.0, error)
        return rounded(value, error, x.dtype, units)

    return apply


def bounded_slope(function, slope: float, most: float, units: float = 4.0):
    """A function whose slope and whose change are bounded."""

    @quiet
    def apply(x):
        return rounded(function(x.value), np.minimum(slope * x.error, most), x.dtype, units)

    return apply


def moved(function):
    """What moves elements moves their errors the same way; other arguments may be bounded values that are exact."""

    def apply(x, *arguments, **options):
        arguments = [one.exact() if isinstance(one, Bounded) else one for one in arguments]
        error = function(x.errors(), *arguments, **options) if x.inexact() else 0.0
        return Bounded(function(x.value, *arguments, **options), error, x.dtype)

    return apply


def multiplied(product, a: Bounded, b: Bounded, terms: int, dtype: str | None = None) -> Bounded:
    """Sums of products, by a function of NumPy's that is linear in both; `dtype` of the result, if not theirs."""
    common = promoted(a.dtype, b.dtype)
    dtype = dtype or common
    x, y = a.value.astype(wide(common)), b.value.astype(wide(common))
    if common not in UNIT:
        sure = not a.inexact() and not b.inexact()
        return Bounded(exactly(product, x, y, terms).astype(dtype), 0.0 if sure else np.inf, dtype)
    value = product(x, y)
    if not Setting.track:
        return Bounded(value, 0.0, dtype)
    with np.errstate(all="ignore"):
        p, q, error = np.abs(x), np.abs(y), 0.0
        if a.inexact():
            error = product(a.errors(), q + b.error)
        if b.inexact():
            error = error + product(p, b.errors())
        return summed(value, error, dtype, product(p, q), 12 + 2 * math.sqrt(min(terms, 4096)))


def exactly(product, x, y, terms: int):
    """A product of integers, which wraps around: in float64 where that is exact."""
    largest = [max(float(np.abs(one.astype(float)).max(initial=0)), 1.0) for one in (x, y)]
    if largest[0] * largest[1] * max(terms, 1) < 2.0**53:
        return product(x.astype(float), y.astype(float)).astype("int64")
    return product(x.astype("int64"), y.astype("int64"))


def wrong(got: np.ndarray, expected: Bounded) -> str | None:
    """What is wrong with an array, as text; None if each element is within its bound."""
    if got.shape != expected.shape or got.dtype.name != expected.dtype:
        return f"{got.dtype.name}{got.shape} instead of {expected.dtype}{expected.shape}"
    with np.errstate(all="ignore"):
        plain = "complex128" if expected.dtype.startswith("complex") else "float64"
        result, value = got.astype(plain), expected.value.astype(plain)
        known = np.isfinite(expected.errors()) & ~np.isnan(value)
        # Bounds of several roundings of denormals are not derived: they are so many units of the smallest number.
        apart = np.where(result == value, 0.0, np.abs(result - value))
        bad = known & ~(apart <= expected.error + 4 * TINY.get(expected.dtype, 0.0))
    if not bad.any():
        return None
    apart = np.where(bad, np.nan_to_num(apart, nan=np.inf), -1.0)
    at = np.unravel_index(np.argmax(apart), bad.shape)
    where = tuple(int(index) for index in at)
    return (f"{bad.sum()} of {bad.size} elements wrong, at {where}: {got[at]!s} for {expected.value[at]!s} "
            f"+- {expected.errors()[at]:.3g}")  # fmt: skip
