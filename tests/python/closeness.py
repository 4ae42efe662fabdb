"""How close floats must be to the oracle's: in units in the last place (ulps) of what is expected.

An element may differ by `ulps` times the spacing of floats at the expected value. Where terms that
cancel have rounded before, no such bound holds: `cancels` is the size of those terms, a number, or
LARGEST, the largest magnitude in the expected array, or a tuple of which the largest counts; `ulps`
roundings at that size are allowed on top. LARGEST is what is taken unless a test says something else:
so elements near zero are held to the scale of their array, and an array of small numbers to its own.
Complex numbers are compared as such: the spacing is that at their magnitude.

Where intermediate results have a coarser dtype than the result, `through` names it, and the bound
is in its ulps.

Zeros of real dtypes have the expected sign where `zeros` is True: in the conformance of single ops.
NaN is only equal to NaN, and its sign counts where `nan_signs` is True: an operation that moves
elements or changes signs determines it, others do not. Infinities are equal or not. Where zero
is expected a subnormal number will do, for XLA flushes them.
"""

import ml_dtypes
import numpy as np

LARGEST = "the largest magnitude"

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


def is_subnormal(x, dtype):
    return (x != 0) & (np.abs(x) < float(info(dtype).tiny))


def errors(ours, theirs, ulps=None, cancels=LARGEST, through=None, zeros=False, nan_signs=False):
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
    sizes = cancels if isinstance(cancels, tuple) else (cancels,)
    terms = max(size.max(initial=0.0) if term is LARGEST else term for term in sizes)
    allowed = ulps * (spacing(size, dtype) + terms * float(info(dtype).eps))
    wrong = np.zeros(np.shape(b), bool)
    with np.errstate(all="ignore"):
        for x, y in parts:
            same = (x == y) | (np.isnan(x) & np.isnan(y)) | (is_subnormal(x, dtype) & (y == 0))
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
    beside = f" beside terms of {terms:.6g}" if terms else ""
    return (
        f"{wrong.sum()} of {wrong.size} elements differ by more than {ulps:.6g} ulps{beside}; the worst at"
        f" {tuple(map(int, worst))}: {a[worst]!r} for {b[worst]!r}, {ratio[worst]:.6g} ulps\n{ours!r}\n{theirs!r}"
    )
