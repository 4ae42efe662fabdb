"""How close floats must be to the oracle's: in units in the last place (ulps) of what is expected.

An element may differ by `ulps` times the spacing of floats at the expected value: nothing else, unless a test
says that terms which have rounded before cancel, and how large they are: `ulps` roundings at that size are then
allowed on top. `cancels` is that size, of each element where it is an array or a function of what is expected:

- a number, or an array that broadcasts with what is expected;
- `along(axis)`: the largest magnitude along an axis, where transforms mix what is along it;
- norm: the largest magnitude in the array, where errors are bounded by a norm: factors and solutions of linear
  systems, or sums of all elements;
- a tuple of these, of which the largest counts.

`roundings.py` finds the sizes of whole programs, of each element, where no formula has them.

Test functions in `by_norm.txt` have not been through this yet: where they name no terms, the norm is taken.

Complex numbers are compared as such: the spacing is that at their magnitude.

Where intermediate results have a coarser dtype than the result, `through` names it, and the bound
is in its ulps.

Zeros of real dtypes have the expected sign where `zeros` is True: in the conformance of single ops.
NaN is only equal to NaN, and its sign counts where `nan_signs` is True: an operation that moves
elements or changes signs determines it, others do not. Infinities are equal or not. Where zero
is expected a subnormal number will do, for XLA flushes them (`flushed="theirs"`); zero for a subnormal number
only where `flushed` is "ours"; neither where it is None.
"""

import os
import pathlib

import ml_dtypes
import numpy as np

BY_NORM = frozenset(pathlib.Path(__file__).with_name("by_norm.txt").read_text(encoding="utf-8").split("\n"))


def is_by_norm():
    """Whether the test that runs is a case of one in `by_norm.txt`."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").partition("[")[0].partition(" ")[0].rpartition("/")[2] in BY_NORM


def norm(magnitudes):
    """The largest magnitude of the array."""
    return magnitudes.max(initial=0.0)


def along(axis):
    """The largest magnitude along an axis."""
    return lambda magnitudes: magnitudes.max(axis, initial=0.0, keepdims=True)


# Neither library rounds functions such as tanh or lgamma correctly: a few ulps each, and a
# derivative is a product of several. Half precision is computed in single and rounded after each
# operation. Tests of derivatives of second and third order, of which each multiplies the roundings of
# the one before, and of decompositions take 64.
ULPS = {
    "float8_e4m3fn": 1, "float8_e5m2": 1, "bfloat16": 4, "float16": 4, "float32": 16, "complex64": 16,
    "float64": 16, "complex128": 16,
}  # fmt: skip


def info(dtype):
    """Properties of a dtype, for complex ones of their parts' dtype."""
    return ml_dtypes.finfo({"complex64": "float32", "complex128": "float64"}.get(np.dtype(dtype).name, dtype))


def spacing(magnitude, dtype):
    """The distance of neighbouring floats of a dtype at magnitudes, in 64 bits."""
    limits = info(dtype)
    _, exponent = np.frexp(np.maximum(magnitude, float(limits.tiny)))
    return np.ldexp(float(limits.eps), exponent - 1)


def is_tiny(x, dtype):
    """Zero or subnormal."""
    return np.abs(x) < float(info(dtype).tiny)


def size_of_terms(cancels, magnitudes):
    """The size of the terms that cancel, for each element."""
    if not callable(cancels) and not isinstance(cancels, tuple) and not np.any(cancels) and is_by_norm():
        cancels = norm
    size = 0.0
    for term in cancels if isinstance(cancels, tuple) else (cancels,):
        size = np.maximum(size, term(magnitudes) if callable(term) else term)
    return np.broadcast_to(size, magnitudes.shape)


def errors(ours, theirs, ulps=None, cancels=0.0, through=None, zeros=False, nan_signs=False, flushed="theirs"):
    """What is wrong with an array of floats, as text; None if it is close to the oracle's."""
    name = theirs.dtype.name
    coarsest = name if through is None or info(through).eps <= info(name).eps else np.dtype(through).name
    ulps = ULPS[coarsest] if ulps is None else ulps
    ulps *= float(info(coarsest).eps) / float(info(name).eps)
    if theirs.dtype.kind == "c":
        a, b = ours.astype(np.complex128), theirs.astype(np.complex128)
        parts = [(a.real, b.real), (a.imag, b.imag)]
    else:
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        parts = [(a, b)]
    dtype, finite = theirs.dtype, np.isfinite(b)
    size = np.where(finite, np.abs(b), 0.0)
    terms = size_of_terms(cancels, size)
    allowed = ulps * (spacing(size, dtype) + terms * float(info(dtype).eps))
    wrong = np.zeros(np.shape(b), bool)
    with np.errstate(all="ignore"):
        for x, y in parts:
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            if flushed is not None:
                same |= ((y if flushed == "theirs" else x) == 0) & is_tiny(x, dtype) & is_tiny(y, dtype)
            same |= np.isfinite(x) & np.isfinite(y) & (np.abs(x - y) <= allowed)
            if zeros and len(parts) == 1:
                same &= (x != 0) | (y != 0) | (np.signbit(x) == np.signbit(y))
            if nan_signs:
                same &= ~np.isnan(x) | (np.signbit(x) == np.signbit(y))
            wrong |= ~same
        if not wrong.any():
            return None
        ratio = np.where(np.isfinite(a - b), np.abs(a - b) / spacing(size, dtype), np.inf)
    worst = np.unravel_index(np.argmax(np.where(wrong, np.nan_to_num(ratio, nan=np.inf), -1)), np.shape(b))
    beside = f" beside terms of {terms[worst]:.6g}" if terms[worst] else ""
    return (
        f"{wrong.sum()} of {wrong.size} elements differ by more than {ulps:.6g} ulps{beside}; the worst at"
        f" {tuple(map(int, worst))}: {a[worst]!r} for {b[worst]!r}, {ratio[worst]:.6g} ulps\n{ours!r}\n{theirs!r}"
    )
