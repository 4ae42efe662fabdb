"""Laws that hold of every public function of arrays, at random small sizes, and of programs at sizes where
other ways of computing begin.

Compiled is as eager, a batch is its members one by one, shapes are known without values, derivatives are
limits of differences, reverse mode is the transpose of forward mode, and derivatives of gradients are again
limits of differences. All in float64.
"""

import importlib
import warnings

import algebra
import numpy as np
import pytest
from closeness import errors
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import ferrax
import ferrax.numpy as jnp
from ferrax.tree_util import tree_leaves

ROWS = algebra.rows()
THOROUGH = settings.get_current_profile_name() != "repeatable"
QUIET = settings(deadline=None, database=None, max_examples=12 if THOROUGH else 2, phases=[Phase.generate],
                 suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

each = pytest.mark.parametrize("row", ROWS, ids=str)
sizes = given(rows=st.integers(1, 3), columns=st.integers(2, 4), seed=st.integers(0, 1 << 30))


@pytest.mark.parametrize("module", sorted(algebra.modules()))
def test_every_public_function_has_a_row_or_a_reason(module):
    names, out = set(algebra.public(module)), set(algebra.left_out(module))
    have = {row.name for row in ROWS if row.module == module}
    assert not names - have - out, f"neither a row nor a reason: {sorted(names - have - out)}"
    assert not have & out
    assert not [name for name in have | out if not hasattr(importlib.import_module(module), name)]


def is_inexact(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)


def arrays(tree):
    """The results as a list of arrays."""
    return [leaf if isinstance(leaf, ferrax.Array) else jnp.asarray(leaf) for leaf in tree_leaves(tree)]


def close(ours, theirs, where):
    """Terms are as large as arguments, which are at most 1 or so, and results."""
    for got, wanted in zip(ours, theirs, strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), where
        if ferrax.dtypes.issubdtype(got.dtype, ferrax.dtypes.prng_key):
            got, wanted = ferrax.random.key_data(got), ferrax.random.key_data(wanted)
        got, wanted = np.asarray(got), np.asarray(wanted)
        if not jnp.issubdtype(wanted.dtype, jnp.inexact):
            np.testing.assert_array_equal(got, wanted, err_msg=where)
            continue
        size = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))
        wrong = errors(got, wanted, ulps=256, cancels=size)
        assert wrong is None, f"{where}: {wrong}"


@pytest.fixture(autouse=True)
def wide():
    with warnings.catch_warnings(), ferrax.enable_x64(True):
        warnings.simplefilter("ignore")
        yield


@each
@QUIET
@sizes
def test_compiled_is_as_eager(row, rows, columns, seed):
    """And the shapes, dtypes and weak types are known without values."""
    arguments = row.draw(np.random.default_rng(seed), rows, columns)
    eager, compiled = arrays(row.call(*arguments)), arrays(ferrax.jit(row.call)(*arguments))
    close(compiled, eager, f"jit({row})")
    types = tree_leaves(ferrax.eval_shape(row.call, *arguments))
    for known, value in zip(types, tree_leaves(ferrax.jit(row.call)(*arguments)), strict=True):
        assert (known.shape, known.dtype, known.weak_type) == (value.shape, value.dtype, value.weak_type)


@each
@QUIET
@sizes
def test_batches_are_members_one_by_one(row, rows, columns, seed):
    if not row.arguments:
        return
    rng = np.random.default_rng(seed)
    members = [row.draw(rng, rows, columns) for _ in range(2)]
    axes = [int(rng.choice([0, -1])) if name != "k" else 0 for name in row.arguments]
    if len(axes) > 1 and rng.uniform() < 0.5:  # one argument is common to all
        axes[where := int(rng.integers(len(axes)))] = None
        members[1][where] = members[0][where]
    stacked = [x if axis is None else jnp.stack([x, y], axis) for x, y, axis in zip(*members, axes)]
    wanted = [jnp.stack(both) for both in zip(*(arrays(row.call(*member)) for member in members), strict=True)]
    got = arrays(ferrax.vmap(row.call, in_axes=axes)(*stacked))
    close(got, wanted, f"vmap({row}, in_axes={axes})")


def smooth(row, arguments):
    """A function of the real and complex arguments alone to real and complex results, and these arguments."""
    places = [place for place, x in enumerate(arguments) if is_inexact(x)]

    def function(*given):
        filled = list(arguments)
        for place, x in zip(places, given):
            filled[place] = x
        return [leaf for leaf in arrays(row.call(*filled)) if is_inexact(leaf)]

    return function, [arguments[place] for place in places]


def direction(rng, like):
    values = rng.uniform(-1, 1, like.shape)
    return jnp.asarray(values + 1j * rng.uniform(-1, 1, like.shape) if like.dtype.kind == "c" else values, like.dtype)


def differences(function, at, along, step):
    """The derivative along a direction, by differences of fourth order."""

    def moved(times):
        return function(*(x + times * step * t for x, t in zip(at, along)))

    near = [(a - b) * (8 / 12 / step) for a, b in zip(moved(1), moved(-1))]
    far = [(a - b) * (1 / 12 / step) for a, b in zip(moved(2), moved(-2))]
    return [a - b for a, b in zip(near, far)]


def limits(function, at, along, got, where):
    """What forward mode gave is the limit: for one of the steps, as a larger one may pass a kink."""
    size = max(float(np.abs(np.asarray(x)).max(initial=1.0)) for x in (*function(*at), *got))
    for step in (1e-3, 1e-4, 1e-5, 1e-8):
        wanted = differences(function, at, along, step)
        errors = [float(np.abs(np.asarray(a - b)).max(initial=0.0)) for a, b in zip(got, wanted, strict=True)]
        if all(error <= 2e-6 * size for error in errors):
            return
    pytest.fail(f"{where}: {got} where differences are {wanted}")


def paired(left, right):
    """Of complex numbers the real part of the product without conjugation, by which transposes are meant."""
    return sum(float(jnp.real(jnp.sum(a * b))) for a, b in zip(left, right, strict=True))


def magnitude(left, right):
    return sum(float(jnp.sum(jnp.abs(a) * jnp.abs(b))) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("row", [row for row in ROWS if row.order and row.arguments], ids=str)
@QUIET
@sizes
def test_derivatives(row, rows, columns, seed):
    rng = np.random.default_rng(seed)
    function, at = smooth(row, row.draw(rng, rows, columns))
    if not at or not (values := function(*at)):
        return
    along = [direction(rng, x) for x in at]
    tangents = ferrax.jvp(function, at, along)[1]
    limits(function, at, along, tangents, f"jvp({row})")

    back = [direction(rng, x) for x in values]
    pullback = ferrax.vjp(function, *at)[1]
    there, again = paired(back, tangents), paired(pullback(back), along)
    terms = magnitude(back, tangents) + magnitude(pullback(back), along)
    assert abs(there - again) <= 1e-11 * (terms + 1), f"vjp({row}): {again} where jvp has {there}"

    if row.order > 1:
        def gradient(*xs):
            out, pull = ferrax.vjp(function, *xs)
            return list(pull(back))

        second = ferrax.jvp(gradient, at, along)[1]
        limits(gradient, at, along, second, f"jvp(vjp({row}))")
