"""Distinct elements and sets against the reference."""

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest
from numpy_oracle import check

import ferrax
import ferrax.numpy as ferrax_numpy

ENVIRONMENT = {
    "x": np.array([3, 1, 3, 2]),
    "f": np.array([np.nan, 1, np.nan, 0, -0.0], np.float32),
    "m": np.array([[1, 2], [1, 2], [0, 3]]),
    "b": np.array([True, False, True]),
    "c": np.array([1 + 1j, 1 + 1j, np.nan, 1 - 1j]),
    "z": np.array([complex(np.nan, 2), complex(2, np.nan), 1, complex(np.nan, 1), 3 - 1j]),
    "u": np.array([200, 3, 255, 3], np.uint8),
    "e": np.zeros(0, np.int32),
    "cube": np.arange(24).reshape(2, 3, 4) % 3,
}
ALL = "return_index=True, return_inverse=True, return_counts=True"
EXPRESSIONS = f"""
n.unique(x, {ALL}); n.unique(f, {ALL}); n.unique(f, {ALL}, equal_nan=False); n.unique(m, {ALL}); n.unique(m, axis=0, {ALL})
n.unique(m, axis=1, {ALL}); n.unique(m, axis=-1, {ALL}); n.unique(cube, {ALL}); n.unique(cube, axis=0, {ALL}); n.unique(cube, axis=1, {ALL})
n.unique(cube, axis=2, {ALL}); n.unique(b, {ALL}); n.unique(c, {ALL}); n.unique(u, {ALL}); n.unique(u, size=5, {ALL}); n.unique(c, size=6)
n.unique(z, {ALL}); n.unique(z, equal_nan=False, {ALL}); n.unique(z, size=4, {ALL}); n.intersect1d(z, z[:3])
n.unique(n.stack([f, f, f * 0], 1), axis=1, {ALL}); n.unique(n.stack([f, f], 0), axis=0, equal_nan=False, {ALL})
n.unique(x, size=5, {ALL}); n.unique(x, size=2, {ALL}); n.unique(x, size=0, {ALL}); n.unique(x, size=5, fill_value=9, {ALL})
n.unique(x, size=3, fill_value=2.7); n.unique(x, size=5, fill_value=n.array([1, 2, 3, 4, 5])); n.unique(m, axis=0, size=4, {ALL})
n.unique(m, axis=0, size=4, fill_value=n.array([7, 8]), {ALL}); n.unique(cube, axis=1, size=4, {ALL}); n.unique(x, size=2.5); n.unique(x, size=-1)
n.unique(e, {ALL}); n.unique(e, size=2); n.unique(e, size=2, fill_value=3); n.unique(e, size=0); n.unique(n.ones((0, 3)), axis=0, {ALL})
n.unique(n.ones((0, 3)), axis=0, size=2, fill_value=3); n.unique(n.ones((3, 0)), axis=0, {ALL}); n.unique(n.ones((0, 3)), axis=1, {ALL})
n.unique(3, {ALL}); n.unique([1, 2]); n.unique(n.float32(2), axis=0); n.unique(x, axis=1); n.unique(x, sorted=False)
n.unique(n.broadcast_to(2.5, (3,)), {ALL}); n.unique(x, True, True, True, 0); n.unique(x, fill_value=3); n.unique(n.array([1, 1], "int4"))
n.unique_values(x); n.unique_counts(x); n.unique_inverse(m); n.unique_all(m); n.unique_all(x, size=4, fill_value=0); n.unique_all(f); n.unique_counts([1])
n.unique_values(f, size=6); n.unique_inverse(3); n.unique_values(x=x)
n.union1d(x, n.array([5, 1])); n.union1d(x, m); n.union1d(x, n.array([5.0, 1]), size=7); n.union1d(x, x, size=2); n.union1d([1], [2]); n.union1d(3, 4)
n.union1d(x, m, size=7, fill_value=-1); n.union1d(f, f); n.union1d(e, e, size=3); n.union1d(e, e); n.union1d(True, x)
n.intersect1d(x, n.array([5, 1, 3, 3])); n.intersect1d(x, m, return_indices=True); n.intersect1d(x, n.array([3, 9]), size=4); n.intersect1d(f, f, size=4)
n.intersect1d(x, n.array([3, 9, 1]), size=4, fill_value=8, return_indices=True); n.intersect1d(x, n.array([3, 9, 1]), size=1, return_indices=True)
n.intersect1d(n.array([1, 2, 3]), n.array([3, 9, 1]), assume_unique=True, return_indices=True); n.intersect1d(x, n.array([9]), size=3)
n.intersect1d(n.array([1, 2, 3]), n.array([3, 9, 1.0]), assume_unique=True, size=4, return_indices=True); n.intersect1d([1], [2]); n.intersect1d(3, 3)
n.intersect1d(f, f); n.intersect1d(n.ones(0), x, return_indices=True); n.intersect1d(e, x, size=3); n.intersect1d(c, c[1:]); n.intersect1d(x, x, size=3, return_indices=True)
n.intersect1d(x, n.array([3, 2, 3]), size=4, return_indices=True)
n.setdiff1d(x, n.array([3])); n.setdiff1d(x, n.array([3]), size=4); n.setdiff1d(x, n.array([3]), size=4, fill_value=7); n.setdiff1d(x, n.array([3]), size=1)
n.setdiff1d(n.array([4, 1, 2]), n.array([1.0, 9]), assume_unique=True); n.setdiff1d(n.array([4, 1, 2]), n.array([1]), assume_unique=True, size=4)
n.setdiff1d(x, e); n.setdiff1d(e, x); n.setdiff1d(e, x, size=2); n.setdiff1d([1], [2]); n.setdiff1d(m, x); n.setdiff1d(x, x, size=2); n.setdiff1d(f, f)
n.setdiff1d(n.float32(3), n.array([1.0])); n.setdiff1d(x - 5, n.array([1]), size=6)
n.setxor1d(x, n.array([3, 5, 9])); n.setxor1d(x, n.array([3, 5, 9]), size=6); n.setxor1d(x, n.array([3, 5, 9]), size=6, fill_value=0); n.setxor1d(x, x)
n.setxor1d(n.array([1, 2]), n.array([5, 2.0]), assume_unique=True); n.setxor1d(x, x, size=2); n.setxor1d([1], [2]); n.setxor1d(e, e); n.setxor1d(m, x)
n.setxor1d(x, n.array([3, 5, 9]), size=2); n.setxor1d(f, f[:1]); n.setxor1d(x, e, size=4); n.setxor1d(e, e, size=3); n.setxor1d(x, n.array([1, 9]), size=6)
n.isin(m, x); n.isin(m, x, invert=True); n.isin(m, n.array([1.5, 2])); n.isin(m, x, method="foo"); n.isin(3, x); n.isin(e, x); n.isin(x, e)
n.isin([1], x); n.isin(x, 3); n.isin(x, x, assume_unique=True); n.isin(x, e, invert=True, method="sort"); n.isin(c, c[1:])
""" + "; ".join(f'n.isin({v}, {v}, method="{m}")' for v in "fxu" for m in ("auto", "compare_all", "binary_search", "sort"))


@pytest.mark.parametrize("expression", [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split("; ")])
def test_values(expression):
    code = compile(expression, "table", "eval")
    names = [name for name in ENVIRONMENT if name in code.co_names]
    arrays = [ENVIRONMENT[name] for name in names]
    run = lambda n, *xs: eval(code, {"n": n, **dict(zip(names, xs))})  # noqa: E731
    check(run, *arrays)
    if "size=" in expression and "size=2.5" not in expression:
        check(run, *arrays, jit=True)


@pytest.mark.parametrize("name", ["unique", "union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sizes_are_needed_under_jit(name):
    arguments = [ferrax_numpy.arange(3)] * (1 if name == "unique" else 2)
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match=rf"jnp.{name}\(.*size=n"):
        ferrax.jit(getattr(ferrax_numpy, name))(*arguments)


def test_membership_in_many():
    x = np.random.default_rng(0).integers(0, 500, 300)
    for method in ("auto", "binary_search", "sort"):
        check(lambda n, x, y: n.isin(x, y, method=method), x, x[:100] + 7)  # noqa: B023


def test_lanes_and_derivatives():
    rows = np.array([[3.0, 1, 3, 2], [2, 2, 2, 0]], np.float32)

    def run(module, numpy):
        distinct = lambda x: numpy.unique(x, size=3)  # noqa: E731
        rows_ = numpy.asarray(rows)
        return [module.vmap(distinct)(rows_), module.vmap(distinct, in_axes=1)(rows_.T),
                module.grad(lambda x: (distinct(x) ** 2).sum())(rows_[0])]

    for got, expected in zip(run(ferrax, ferrax_numpy), run(jax, jax_numpy), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
    # Here the reference takes the values for constants.
    gradient = ferrax.grad(lambda x: (ferrax_numpy.unique(x) ** 2).sum())(rows[0])
    assert gradient.tolist() == [6.0, 2.0, 0.0, 4.0]
