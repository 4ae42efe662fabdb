"""`checkify`'s index checks against JAX: indices that are constants of the program, read and
updated in every mode, under every transformation."""

import functools
import importlib
import re

import numpy as np
import pytest
from oracle import FERRAX, JAX, compare, same

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import checkify as ours

MODES = (None, "drop", "fill", "clip", "promise_in_bounds")




def lib(S):
    return importlib.import_module(f"{S.name}.experimental.checkify")


# Indices of an array of shape (3, 4).
INDICES = {
    "in bounds": 2,
    "last": -3,
    "behind": 3,
    "far behind": 10,
    "before": -4,
    "far before": -9,
    "numpy scalar": np.uint8(3),
    "second axis": (0, 4),
    "second axis before": (slice(None), -5),
    "both axes": (5, 9),
    "beside a slice": (slice(1, 9), 4),
    "slices": (slice(7, 9), slice(-9, 2)),
    "beside an ellipsis": (..., 9),
    "beside new axes": (None, 3, None),
    "list of arrays": (np.array([0, 1])[:, None], np.array([3, 4])),
    "array": np.array([0, 5]),
    "array before": np.array([1, -4]),
    "beside an array": (np.array([0, 2]), 7),
    "before an array": (7, np.array([0, 2])),
    "array in bounds": (np.array([0, -3]), slice(1, 3)),
    "no elements": (np.zeros(0, np.int32), 9),
}

UPDATES = ("set", "add", "multiply", "divide", "power", "min", "max")


def programs(S):
    """Functions of an array of shape (3, 4), by name."""
    jnp, lax = S.jnp, S.lax
    found = {f"[{name}]": lambda x, at=at: x[at] for name, at in INDICES.items()}

    def get(at, mode, wrap, x):
        return x.at[at].get(mode=mode, wrap_negative_indices=wrap)

    def update(method, at, mode, wrap, x):
        return getattr(x.at[at], method)(2.0, mode=mode, wrap_negative_indices=wrap)

    for mode in MODES:
        for name in ("in bounds", "behind", "before", "both axes", "beside a slice", "array"):
            found[f"get {mode} {name}"] = functools.partial(get, INDICES[name], mode, True)
            found[f"set {mode} {name}"] = functools.partial(update, "set", INDICES[name], mode, True)
        found[f"get {mode} not wrapped"] = functools.partial(get, -1, mode, False)
        found[f"set {mode} not wrapped"] = functools.partial(update, "set", -1, mode, False)
    for method in UPDATES:
        found[f"{method} behind"] = functools.partial(update, method, 10, None, True)
        found[f"{method} array"] = functools.partial(update, method, np.array([0, 5]), None, True)
    return found | {
        "chain": lambda x: x[3][4],
        "beside a traced index": lambda x: x[(0 * x[0, 0]).astype("int32"), 9],
        "dynamic_slice": lambda x: lax.dynamic_slice(x, (2, 0), (2, 2)),
        "dynamic_slice before": lambda x: lax.dynamic_slice(x, (0, -9), (2, 2)),
        "dynamic_slice in bounds": lambda x: lax.dynamic_slice(x, (1, -2), (2, 2)),
        "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:2, :2], (2, 0)),
        "dynamic_index_in_dim": lambda x: lax.dynamic_index_in_dim(x, 5, 1),
        "take": lambda x: jnp.take(x, 7),
        "take behind": lambda x: jnp.take(x, 20),
        "take axis": lambda x: jnp.take(x, np.array([1, -9]), axis=1),
        "take clip": lambda x: jnp.take(x, 9, axis=1, mode="clip"),
        "take wrap": lambda x: jnp.take(x, 9, axis=1, mode="wrap"),
        "take fill": lambda x: jnp.take(x, 9, axis=1, fill_value=0.0),
        "take_along_axis": lambda x: jnp.take_along_axis(x, np.array([[0], [9], [1]]), axis=1),
        "take_along_axis clip": lambda x: jnp.take_along_axis(
            x, np.array([[9]]), axis=0, mode="clip"
        ),
        "put": lambda x: jnp.put(x, np.array([1, 90, -90]), 1.0, inplace=False),
        "put wrap": lambda x: jnp.put(x, np.array([1, 90]), 1.0, mode="wrap", inplace=False),
        "interp": lambda x: jnp.interp(90.0, x[0], x[1]),
        "pick by a bool": lambda x: x[False, 9],
    }  # fmt: skip


def total(S, out):
    return S.jnp.sum(out)


def zero_like(S, f, x):
    return S.jnp.zeros(S.jax.eval_shape(f, x).shape)


HOW = {
    "plain": lambda S, f: f,
    "jit": lambda S, f: S.jax.jit(f),
    "grad": lambda S, f: S.jax.grad(lambda x: total(S, f(x))),
    "jvp": lambda S, f: lambda x: S.jax.jvp(f, (x,), (x,)),
    "vmap": lambda S, f: lambda x: S.jax.vmap(f)(S.jnp.stack([x, 2 * x])),
    "scan": lambda S, f: lambda x: S.lax.scan(lambda c, _: (c, f(c)), x, None, length=2)[1],
    "while": lambda S, f: lambda x: S.lax.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, f(x)), (0, zero_like(S, f, x))
    ),
    "cond": lambda S, f: lambda x: S.lax.cond(
        total(S, x) > 0, f, lambda x: zero_like(S, f, x), x
    ),
    "cond not taken": lambda S, f: lambda x: S.lax.cond(
        total(S, x) < 0, f, lambda x: zero_like(S, f, x), x
    ),
}


@functools.cache
def results(S, how):
    """Of each program, transformed: which index, axis and size its error names, and its output.

    JAX needs most of the time to compile: it gets a few programs of each kind but for plain calls.
    """
    C = lib(S)
    x = S.jnp.arange(1.0, 13.0).reshape(3, 4)
    chosen = list(programs(S).items())[:: 1 if how == "plain" else 4]

    @S.jax.jit
    def checked(x):
        return {
            name: C.checkify(HOW[how](S, f), errors=C.index_checks)(x) for name, f in chosen
        }

    return {name: (failure(error), out) for name, (error, out) in checked(x).items()}


def failure(error):
    text = error.get()
    return text and re.search(r"index \S+ is out of bounds for axis \d+ with size \d+", text).group()


@pytest.mark.parametrize("how", HOW)
def test_constant_indices(how):
    mine, theirs = results(FERRAX, how), results(JAX, how)
    assert any(error for error, _ in theirs.values()) == (how != "cond not taken")
    compare(mine, theirs, weak=False)


@pytest.mark.parametrize("how", ["plain", "jit", "scan", "grad"])
def test_without_jit_outside(how):
    x = jnp.arange(1.0, 13.0).reshape(3, 4)
    for name, f in list(programs(FERRAX).items())[::3]:
        checked = ours.checkify(HOW[how](FERRAX, f), errors=ours.index_checks)
        again = ferrax.jit(checked)
        compare(*[(failure(error), out) for error, out in (checked(x), again(x))], name)


@same
def test_message(S):
    error, _ = lib(S).checkify(lambda x: x[5], errors=lib(S).index_checks)(S.jnp.zeros(3))
    return error.get()


@pytest.mark.parametrize("how", ["plain", "jit", "vmap", "scan"])
def test_line_beside_the_message(how):
    def f(x):
        y = x + 1
        return y[2, 4]  # the line

    line = f.__code__.co_firstlineno + 2
    error, _ = ours.checkify(HOW[how](FERRAX, f), errors=ours.index_checks)(jnp.zeros((3, 4)))
    first = getattr(error.get_exception(), "error_mapping", {(): error.get_exception()})
    assert {failed.line for failed in first.values()} == {f"{__file__}:{line} (f)"}


def test_repeated_and_batched_errors():
    checked = ours.checkify(lambda x: x[4], errors=ours.index_checks)
    error, out = ferrax.vmap(checked)(jnp.ones((2, 3)))
    assert error.get().count("index 4 is out of bounds for axis 0 with size 3") == 2
    assert out.tolist() == [1.0, 1.0]


def test_updates_that_jax_does_not_check():
    # JAX has no check of scatter_sub.
    for at in (10, np.array([0, 5])):
        checked = ours.checkify(lambda x, at=at: x.at[at].subtract(1.0), errors=ours.index_checks)
        assert failure(checked(jnp.zeros(3))[0]).endswith("axis 0 with size 3")


def test_known_and_traced_indices_agree():
    def f(x, i):
        return x[i], x.at[i].set(2.0), x.at[i, 0].get(mode="fill")

    x = jnp.ones((3, 2))
    checked = ours.checkify(f, errors=ours.index_checks)
    for i in (0, 2, 3, -3, -4, 100):
        known = checked(x, i)
        compare(
            [(failure(error), out) for error, out in (known, checked(x, jnp.int32(i)))],
            [(failure(error), out) for error, out in [ferrax.jit(checked)(x, i)] * 2],
        )


def test_in_bounds_nothing_is_checked():
    def f(x):
        return x[-1], x[0, 1:], x.at[2, 3].get()

    x = jnp.ones((3, 4))
    plain = ferrax.make_jaxpr(f)(x)
    checked = ferrax.make_jaxpr(lambda x: ours.checkify(f, errors=ours.index_checks)(x)[1])(x)
    assert str(plain) == str(checked)
    assert "dynamic_slice" not in str(plain)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: jnp.interp(90.0, x, x),
        lambda x: jnp.insert(x, 1, 2.0),
        lambda x: jnp.insert(x, np.array([3, 0]), 2.0),
        lambda x: jnp.roll(x, 5),
        lambda x: jnp.repeat(x, np.array([2, 0, 1]), total_repeat_length=3),
    ],
)
def test_functions_that_index_in_bounds(call):
    error, out = ours.checkify(call, errors=ours.index_checks)(jnp.arange(3.0))
    assert error.get() is None and np.isfinite(out).all()
