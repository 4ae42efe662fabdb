"""Rows of functions of the NumPy layer, and how a row is compared with the reference.

A row is a function of a `Side` and arrays, the arguments to try, and points for derivatives.
Values: eager and compiled, dtypes and weak types too. Batches: along the first and the last axis.
Derivatives: forwards and backwards, to the second order, at singular points as well.
"""

import dataclasses
import warnings
from collections.abc import Callable

import jax
import numpy as np
import pytest
from closeness import info, norm
from conformance_table import BF16, data
from kept_values import reference
from oracle import FERRAX, JAX, compare

import ferrax
import ferrax.numpy as jnp

FLOATS = (np.float32, np.float64, BF16, np.float16)
COMPLEX = (np.complex64, np.complex128)
INTS = (np.int8, np.uint8, np.int32, np.uint32, np.int64)
ALL = (*FLOATS, *COMPLEX, *INTS, np.bool_)


@dataclasses.dataclass
class Row:
    """`call(S, *arrays)`; `cases` are tuples of NumPy arrays, `points` of float64 or complex128.

    Results are within `ulps`, those of the dtype if it is None, beside terms that cancel (`bounds`);
    derivatives within `derivative_ulps`.
    """

    name: str
    call: Callable
    cases: list
    points: list = dataclasses.field(default_factory=list)
    ulps: float | None = None
    derivative_ulps: float = 64
    batch: bool = True


def row(name, call, *shapes, dtypes=ALL, points=True, special=True, low=-3.0, high=3.0, **options):
    """A row of all these dtypes. Derivatives are taken at arrays of the same shapes, if `points`."""
    cases = [
        tuple(data(shape, dtype, i, low, high, special) for i, shape in enumerate(shapes))
        for dtype in dtypes
    ]
    if points is True:
        points = [
            tuple(data(shape, dtype, 5 + i, low, high, False) for i, shape in enumerate(shapes))
            for dtype in (np.float64, np.complex128)
            if any(np.dtype(d).kind == np.dtype(dtype).kind for d in dtypes)
        ]
    return Row(name, call, cases, points or [], **options)


def parametrise(rows):
    assert len({r.name for r in rows}) == len(rows), "two rows have one name"
    return pytest.mark.parametrize("row", rows, ids=[r.name for r in rows])


def row_tests(rows):
    """Tests of values, batches and derivatives of rows, to be given these names in a module."""

    @parametrise(rows)
    def test_values(row):
        check_values(row)

    @parametrise([r for r in rows if r.batch])
    def test_batches(row):
        check_batches(row)

    @parametrise([r for r in rows if r.points])
    def test_derivatives(row):
        check_derivatives(row)

    return test_values, test_batches, test_derivatives


def bounds(row, arrays):
    """Terms are as large as the arguments or the results; those of half precision round to it."""
    arrays = list(map(np.asarray, arrays))
    terms = [float(np.abs(a[np.isfinite(a)].astype(complex)).max(initial=0.0)) for a in arrays]
    halves = [a.dtype for a in arrays if a.dtype in (np.dtype(BF16), np.float16)]
    return {"ulps": row.ulps, "cancels": (norm, *terms), "through": max(halves, key=lambda d: info(d).eps, default=None)}


def both(function):
    """`function(S)` of the reference and of ferrax, with 64-bit types."""
    with warnings.catch_warnings(), jax.enable_x64(True), ferrax.enable_x64(True):
        warnings.simplefilter("ignore")
        return reference(lambda: function(JAX)), function(FERRAX)


def check_values(row):
    def run(S):
        cases = [[S.jnp.asarray(a) for a in arrays] for arrays in row.cases]
        if S is JAX:
            return jax.jit(lambda cases: [row.call(S, *arrays) for arrays in cases])(cases)
        fun = lambda *xs: row.call(S, *xs)  # noqa: E731
        return [(fun(*arrays), ferrax.jit(fun)(*arrays)) for arrays in cases]

    for arrays, wanted, got in zip(row.cases, *both(run)):
        for how, result in zip(("eager", "jit"), got):
            compare(result, wanted, f"{describe(row, arrays)} {how}", **bounds(row, arrays))


def check_batches(row):
    """Against one call after the other, whose values `check_values` compares."""
    fun = lambda *xs: row.call(FERRAX, *xs)  # noqa: E731
    with warnings.catch_warnings(), ferrax.enable_x64(True):
        warnings.simplefilter("ignore")
        for arrays in row.cases[:1] + row.cases[-1:]:
            stacked = [np.stack([a, a[::-1] if a.ndim else a, a]) for a in map(np.asarray, arrays)]
            rows = [fun(*(jnp.asarray(a[k]) for a in stacked)) for k in range(3)]
            wanted = ferrax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *rows)
            for axis in (0, -1):
                moved = [jnp.asarray(np.moveaxis(a, 0, axis)) for a in stacked]
                got = ferrax.jit(ferrax.vmap(fun, in_axes=axis))(*moved)
                where = f"vmap {describe(row, arrays)} axis {axis}"
                compare(got, wanted, where, weak=False, **bounds(row, arrays))


def check_derivatives(row):
    for arrays in row.points:
        def run(S, arrays=arrays):
            fun = lambda *xs: row.call(S, *xs)  # noqa: E731
            operands = [S.jnp.asarray(a) for a in arrays]
            along = [S.jnp.asarray(direction(a, 0.7)) for a in arrays]
            out = S.jax.eval_shape(fun, *operands)
            back = S.jax.tree_util.tree_map(
                lambda t: S.jnp.asarray(direction(np.ones(t.shape, t.dtype), 0.3)), out)

            def backwards(*xs):
                return S.jax.vjp(fun, *xs)[1](back)

            def all_orders(*xs):
                tangents = tuple(along)
                forwards = lambda *ys: S.jax.jvp(fun, ys, tangents)[1]  # noqa: E731
                return (forwards(*xs), backwards(*xs), S.jax.jvp(backwards, xs, tangents)[1],
                        S.jax.vjp(forwards, *xs)[1](back))

            return S.jax.jit(all_orders)(*operands)

        wanted, got = both(run)
        where = f"derivatives of {describe(row, arrays)}"
        compare(got, wanted, where, weak=False, **bounds(row, arrays) | {"ulps": row.derivative_ulps})


def direction(like, step):
    """A tangent that is not alike along any axis."""
    values = np.cos(step * np.arange(like.size)).reshape(like.shape)
    if like.dtype.kind == "c":
        values = values + 1j * np.sin(1.3 * step * np.arange(like.size)).reshape(like.shape)
    return values.astype(like.dtype)


def describe(row, arrays):
    return f"{row.name}({', '.join(f'{a.dtype.name}{list(a.shape)}' for a in map(np.asarray, arrays))})"

