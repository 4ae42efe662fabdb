"""Each op of the table with each dtype, at special values, against JAX: what one refuses the other refuses with
an error of the same class. Of subnormal numbers `test_special_values.py` has more, as XLA takes them for zero."""

import warnings

import jax
import numpy as np
import pytest
from conformance_table import BF16, ENTRIES, data
from kept_values import Raised, reference
from oracle import FERRAX, JAX, attempt, caught, compare
from test_conformance import OPS, bounds, split

import ferrax

DTYPES = (
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, BF16, np.float16,
    np.float32, np.float64, np.complex64, np.complex128,
)  # fmt: skip


def special(shape, dtype, seed):
    """Numbers at which functions do special things, in another order for each argument."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return data(shape, dtype, seed)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = [0, info.max, 1, info.min, 7, info.max - 1, 2, 100]
        return np.resize(np.roll(np.array(values, dtype), 3 * seed), shape)
    values = np.array([0.5, 0.0, -0.0, np.inf, np.nan, -np.inf, 1.0, -1.0, -2.5, 0.25, 3.0])
    if dtype.kind == "c":
        finite = values[np.isfinite(values)]
        return np.resize(np.roll((finite[:, None] + 1j * finite).ravel(), 5 * seed), shape).astype(dtype)
    return np.resize(np.roll(values, 3 * seed), shape).astype(dtype)


WHOLE = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
# Where results differ from JAX's and are meant to, or nothing says what they should be: dtypes, and why.
APART = {
    "bitcast_convert_type": ({"bool"}, "refused before the sizes are looked at, as a TypeError"),
    "lu_pivots_to_permutation": (WHOLE, "numbers that are no pivots"),
    "tridiagonal_solve": ({"float16", "bfloat16"}, "refused as NotImplementedError, not by the runtime"),
    "eig": ({"bool"}, "a matrix without a basis of eigenvectors"),
    "linear_call": (WHOLE, "a linear function has the types of its arguments"),
    "clamp": ({"bool", "complex64", "complex128"}, "numbers that XLA does not clamp"),
    "cumlogsumexp": (WHOLE, "refused as a TypeError, not where infinity is made a whole number"),
    "custom_linear_solve": (WHOLE, "the solution has other types than the right side, which XLA refuses"),
}
# Products of products, whose roundings add up: so many times the usual ulps.
LOOSER = {"scan": 4}
# Zeros that are sums of terms: their sign says which was added first.
SUMS = {"householder_product"}


def variants(name):
    """The first case of each function of an entry, with the arrays that have the dtype of its first in another."""
    entry, seen = ENTRIES[name], set()
    for case in entry.cases:
        fixed, arrays = split(case)
        arrays = list(map(np.asarray, arrays))
        if (key := tuple(map(id, fixed))) in seen:
            continue
        seen.add(key)
        of = next((a.dtype for a in arrays if a.dtype == np.float32), arrays[0].dtype)
        for dtype in DTYPES:
            if np.dtype(dtype).name in APART.get(name, ((), ""))[0]:
                continue
            make = data if entry.sums or entry.loose > 8 else special
            yield fixed, [make(a.shape, dtype, k) if a.dtype == of else a for k, a in enumerate(arrays)]


def oracle(name, cases):
    """What JAX gives for all cases, those that it does not refuse in one program."""
    call = ENTRIES[name].call

    def refused(fixed, arrays):
        return caught(lambda: jax.eval_shape(lambda *xs: call(JAX, *fixed, *xs), *map(jax.numpy.asarray, arrays)))

    found = [refused(fixed, arrays) for fixed, arrays in cases]
    good = [case for case, result in zip(cases, found) if not isinstance(result, Raised)]
    run = jax.jit(lambda given: [call(JAX, *fixed, *arrays) for (fixed, _), arrays in zip(good, given)])
    results = caught(lambda: run([arrays for _, arrays in good]))
    if isinstance(results, Raised):  # one that is refused when it is compiled
        results = [caught(lambda: jax.jit(lambda *xs: call(JAX, *fixed, *xs))(*arrays)) for fixed, arrays in good]  # noqa: B023
    results = iter(results)
    return [result if isinstance(result, Raised) else next(results) for result in found]


@pytest.mark.parametrize("name", OPS)
def test_each_dtype(name):
    cases = list(variants(name))
    call, problems = ENTRIES[name].call, []
    with warnings.catch_warnings(), jax.enable_x64(True), ferrax.enable_x64(True):
        warnings.simplefilter("ignore")
        expected = reference(lambda: oracle(name, cases))
        for (fixed, arrays), wanted in zip(cases, expected, strict=True):
            where = f"{name}({', '.join(f'{a.dtype}{list(a.shape)}' for a in arrays)})"
            given = [ferrax.numpy.asarray(a) for a in arrays]
            got = attempt(lambda S, fixed=fixed, given=given: ferrax.jit(lambda *xs: call(S, *fixed, *xs))(*given), FERRAX)
            if isinstance(wanted, Raised) or isinstance(got, Raised):
                if getattr(wanted, "name", None) != getattr(got, "name", None):
                    problems.append(f"{where}: {got!r} where jax has {wanted!r}")
                continue
            try:
                limits = bounds(name, arrays)
                limits["ulps"] *= LOOSER.get(name, 1)
                compare(got, wanted, where, zeros=name not in SUMS, **limits)
            except AssertionError as error:
                problems.append(str(error)[:700])
    assert not problems, f"{len(problems)} of {len(cases)}:\n" + "\n".join(problems[:6])
