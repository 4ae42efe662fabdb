"""`f.stats()`: traces, compiles, cache entries and the cause of the last retrace; `max_traces`."""

import functools
import logging
import typing

import numpy as np
import pytest

import ferrax as jax
import ferrax.numpy as jnp


def cause(stats):
    why = stats.last_retrace
    return why.argument, why.what, why.before, why.after


def test_counts():
    @jax.jit
    def f(x):
        return x * 2

    stats = f.stats()
    assert (stats.traces, stats.compiles, stats.cache_entries, stats.last_retrace) == (0, 0, 0, None)
    f(1.0), f(2.0)
    stats = f.stats()
    assert (stats.function, stats.traces, stats.compiles, stats.cache_entries) == ("f", 1, 1, 1)
    assert stats.last_retrace is None
    f(jnp.ones(2)), f(jnp.zeros(2))
    stats = f.stats()
    assert (stats.traces, stats.compiles, stats.cache_entries) == (2, 2, 2)
    f.clear_cache()
    assert (f.stats().traces, f.stats().cache_entries) == (0, 0)


def test_traces_that_compile_nothing():
    @jax.jit
    def inner(x):
        return x * 2

    jax.jit(lambda x: inner(x))(1.0)
    inner.eval_shape(jax.ShapeDtypeStruct((3,), jnp.float32))
    assert (inner.stats().traces, inner.stats().compiles) == (2, 0)
    inner(1.0)
    assert (inner.stats().traces, inner.stats().compiles) == (2, 1)


def test_jits_of_one_function_share_their_counts():
    def f(x):
        return x

    jax.jit(f)(1.0)
    assert jax.jit(f).stats().traces == 1
    assert jax.jit(f, max_traces=3).stats().traces == 0


class Pair(typing.NamedTuple):
    left: object
    right: object


FIRST = {"w": [np.ones((2, 3), np.float32), 1.0], "b": np.float32(1)}


@pytest.mark.parametrize(
    "call,expected",
    [
        (lambda f: f({**FIRST, "w": [np.ones((2, 4), np.float32), 1.0]}),
         ("params['w'][0]", "shape", (2, 3), (2, 4))),
        (lambda f: f({**FIRST, "w": [np.ones((2, 3), np.int32), 1.0]}),
         ("params['w'][0]", "dtype", "float32", "int32")),
        (lambda f: f({**FIRST, "b": 1.0}), ("params['b']", "weak type", False, True)),
        (lambda f: f({**FIRST, "w": [np.float32(1)]}), ("params['w']", "tree", "[*, *]", "[*]")),
        (lambda f: f({**FIRST, "b": None}), ("params['b']", "tree", "a leaf", "None")),
        (lambda f: f({**FIRST, "b": (1.0,)}), ("params['b']", "tree", "a leaf", "(*,)")),
        (lambda f: f(params=FIRST), None),
        (lambda f: f(FIRST, rate=0.5), ("rate", "tree", "not given", "PyTreeDef(*)")),
        (lambda f: f(FIRST, mode="b"), ("mode", "static value", "not given", "'b'")),
    ],
)  # fmt: skip
def test_cause(call, expected):
    @functools.partial(jax.jit, static_argnames="mode")
    def f(params, rate=1.0, mode="a"):
        return params["w"][0] * rate

    f(FIRST)
    call(f)
    assert f.stats().traces == 2
    if expected is None:
        # By name instead of by position: no leaf differs, so it is no change of a tree.
        assert f.stats().last_retrace.what in ("tree", "config")
    else:
        assert cause(f.stats()) == expected


def test_cause_is_the_difference_to_the_most_alike_call():
    @jax.jit
    def f(x, y):
        return x.sum() + y

    f(np.ones(3, np.float32), 1.0)
    f(np.ones(4, np.int32), np.float32(1))
    f(np.ones(3, np.float32), 2)
    why = f.stats().last_retrace
    assert cause(f.stats()) == ("y", "dtype", "float32", "int32") and why.others == 0
    f(np.ones((2, 2), np.int32), 3)
    assert f.stats().last_retrace.argument == "x"


def test_several_differences_are_counted():
    @jax.jit
    def f(x, y):
        return x.sum() + y.sum()

    f(jnp.ones(3), jnp.ones(3))
    f(jnp.ones(4), jnp.ones(5))
    assert cause(f.stats()) == ("x", "shape", (3,), (4,)) and f.stats().last_retrace.others == 1
    assert "(and 1 more)" in repr(f.stats())


def test_static_arguments_by_position():
    @functools.partial(jax.jit, static_argnums=(0, 2))
    def f(n, x, activation):
        return activation(x) * n

    f(1, np.float32(1), jnp.sin)
    f(2, np.float32(1), jnp.sin)
    assert cause(f.stats()) == ("n", "static value", "1", "2")
    f(2, np.ones(2, np.float32), jnp.sin)
    assert cause(f.stats()) == ("x", "shape", (), (2,))
    f(True, np.ones(2, np.float32), jnp.sin)
    assert f.stats().last_retrace.argument == "n"


def test_named_tuples_and_var_args():
    @jax.jit
    def f(pair, *rest):
        return pair.left + sum(rest)

    f(Pair(1.0, 2.0), 1.0, 2.0)
    f(Pair(1.0, np.float32(2)), 1.0, 2.0)
    assert cause(f.stats()) == ("pair.right", "weak type", True, False)
    f(Pair(1.0, 2.0), 1.0, 2)
    assert cause(f.stats()) == ("args[2]", "dtype", "float32", "int32")


def test_config():
    @jax.jit
    def f(x):
        return x

    x = np.float32(1)
    f(x)
    with jax.default_matmul_precision("float32"):
        f(x)
    assert cause(f.stats()) == ("jax_default_matmul_precision", "config", None, "float32")


def test_functions_that_capture_tracers_are_not_kept():
    programs = []

    def outer(x):
        @jax.jit
        def inner(y):
            return x + y

        inner(1.0), inner(2.0)
        programs.append(inner.stats())
        return inner(1.0)

    jax.jit(outer)(1.0)
    assert programs[0].traces == 2 and programs[0].last_retrace.what == "captured"
    assert "captures" in repr(programs[0])


def test_repr():
    @jax.jit
    def f(x):
        return x

    f(1.0)
    assert repr(f.stats()) == "<JitStats of f: 1 trace, 1 compile, 1 cache entry>"
    f(jnp.ones(2, jnp.int32))
    f(jnp.ones(3, jnp.int32))
    assert repr(f.stats()) == (
        "<JitStats of f: 3 traces, 3 compiles, 3 cache entries; "
        "last retrace: x changed in shape: (2,) -> (3,)>"
    )


def test_max_traces_counts_traces_and_not_calls():
    @functools.partial(jax.jit, max_traces=2)
    def f(x):
        return x * 2

    for _ in range(3):
        f(1.0), f(jnp.ones(2))
    with pytest.raises(jax.errors.TooManyTracesError, match=r"x changed in shape: \(2,\) -> \(3,\)"):
        f(jnp.ones(3))
    assert f(2.0) == 4.0  # what it knows it still runs
    f.clear_cache()
    assert f(jnp.ones(3)).shape == (3,)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2"])
def test_bad_max_traces(bad):
    with pytest.raises(ValueError, match="max_traces"):
        jax.jit(lambda x: x, max_traces=bad)


def test_explain_cache_misses(caplog, no_disk_cache):
    @jax.jit
    def f(x):
        return x * 2

    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING, "ferrax"):
        f(jnp.ones(2))
        assert not caplog.records
        f(jnp.ones(3)), f(jnp.ones(3))
    (record,) = caplog.records
    assert "x changed in shape: (2,) -> (3,)" in record.getMessage()
    assert "test_stats.py" in record.getMessage()


def test_a_retrace_for_another_sharding_is_explained(caplog, no_disk_cache):
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    f = jax.jit(lambda x: x * 2, max_traces=2)
    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING, "ferrax"):
        f(jnp.ones(2))
        f(jax.device_put(jnp.ones(2), jax.NamedSharding(mesh, jax.P("x"))))
    (record,) = caplog.records
    assert "x changed in sharding: no mesh -> P(" in record.getMessage()
    assert f.stats().last_retrace.what == "sharding"
    with pytest.raises(jax.errors.TooManyTracesError, match=r"changed in sharding.*\n.*device_put"):
        f(jax.device_put(jnp.ones(2), jax.NamedSharding(mesh, jax.P())))


def test_functions_that_are_defined_in_loops_are_explained(caplog):
    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING, "ferrax"):
        for _ in range(3):
            f = jax.jit(lambda x: x * 3)
            f(2.0), f(2.0)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2 and all("another function defined on the same line" in text for text in texts)
    caplog.clear()
    jax.clear_caches()
    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING, "ferrax"):
        jax.jit(f.__wrapped__)(2.0), jax.jit(max)
    assert not caplog.records
