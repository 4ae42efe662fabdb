"""Runs one Python function on ferrax and on JAX and compares what comes out.

A case takes a `Side` (the modules of one library) and returns a tree of arrays, numbers and
strings, or raises. Both sides must return equal trees (values, dtypes, shapes, weak types) or
raise errors of the same name, where the test states that they do.
"""

import dataclasses
import functools
import importlib
import types

import errors_expected
import jax
import jax.numpy
import numpy as np
import pytest
from closeness import ULPS, errors
from kept_values import KeptKey, Raised, reference

import ferrax
import ferrax.numpy


@dataclasses.dataclass(frozen=True)
class Side:
    name: str
    jax: types.ModuleType
    jnp: types.ModuleType
    lax: types.ModuleType
    random: types.ModuleType


FERRAX = Side("ferrax", ferrax, ferrax.numpy, ferrax.lax, ferrax.random)
JAX = Side("jax", jax, jax.numpy, jax.lax, jax.random)

SIDES = pytest.mark.parametrize("S", [FERRAX, JAX], ids=["ferrax", "jax"])


def module(S, name):
    """The module of one library by its name in it."""
    return importlib.import_module(f"{S.name}.{name}")


def compiled(S, function, *args):
    """`function(*args)`; on JAX as one compiled program, which takes less than its operations singly."""
    return jax.jit(function)(*args) if S is JAX else function(*args)


def caught(run):
    """`run()`, or what it raised."""
    try:
        return run()
    except Exception as error:
        return Raised(error)


def attempt(case, side):
    """`case(side)`, or what it raised; of JAX as it is kept."""
    run = functools.partial(caught, functools.partial(case, side))
    return reference(run) if side is JAX else run()


def is_array(x):
    return isinstance(x, (ferrax.Array, jax.Array, np.ndarray, np.generic, KeptKey))


def compare(ours, theirs, where="result", weak=True, **bounds):
    """Asserts that a result equals the oracle's, floats within bounds (`closeness.errors`). Two errors
    of one class are equal, and the test has to state that it expects one (`errors_expected`)."""
    if isinstance(ours, Raised) or isinstance(theirs, Raised):
        assert isinstance(ours, Raised), f"{where}: ferrax returned {ours!r}, jax raised {theirs!r}"
        if not isinstance(theirs, Raised):
            raise AssertionError(f"{where}: jax returned {theirs!r}, ferrax raised") from ours.error
        assert ours.name == theirs.name, f"{where}: {ours!r} where jax has {theirs!r}"
        errors_expected.record(ours.name)
        return
    if is_array(theirs):
        assert is_array(ours), f"{where}: {ours!r} where jax has {theirs!r}"
        compare_arrays(ours, theirs, where, weak, **bounds)
        return
    assert type(ours).__name__ == type(theirs).__name__, f"{where}: {ours!r} for {theirs!r}"
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{where}: keys {list(ours)} for {list(theirs)}"
        for key in theirs:
            compare(ours[key], theirs[key], f"{where}[{key!r}]", weak, **bounds)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), f"{where}: {ours!r} for {theirs!r}"
        for index, (a, b) in enumerate(zip(ours, theirs)):
            compare(a, b, f"{where}[{index}]", weak, **bounds)
    else:
        assert ours == theirs, f"{where}: {ours!r} for {theirs!r}"


def compare_arrays(ours, theirs, where="result", weak=True, **bounds):
    assert ours.shape == theirs.shape, f"{where}: shape {ours.shape} for {theirs.shape}"
    assert ours.dtype.name == theirs.dtype.name, f"{where}: {ours.dtype} for {theirs.dtype}"
    if weak:
        expected = getattr(theirs, "weak_type", False)
        got = getattr(ours, "weak_type", False)
        assert got == expected, f"{where}: weak type, jax has {expected}"
    if theirs.dtype.name.startswith("key<"):
        theirs = theirs.data if isinstance(theirs, KeptKey) else jax.random.key_data(theirs)
        ours = ferrax.random.key_data(ours)
    a, b = np.asarray(ours), np.asarray(theirs)
    if b.dtype == ferrax.float0:
        return
    if b.dtype.name in ULPS:
        wrong = errors(a, b, **bounds)
        assert wrong is None, f"{where}: {wrong}"
    else:
        np.testing.assert_array_equal(a, b, err_msg=where)


def same(case=None, *, weak=True, **bounds):
    """Makes a test of a case: both sides must agree, within `bounds` as `closeness.errors` takes them;
    `weak` says whether in weak types, too."""
    if case is None:
        return functools.partial(same, weak=weak, **bounds)

    @functools.wraps(case)
    def test(*args, **kwargs):
        run = functools.partial(_call, case, args, kwargs)
        compare(attempt(run, FERRAX), attempt(run, JAX), weak=weak, **bounds)

    # pytest reads the parameters: those after the side are the test's own.
    import inspect

    parameters = list(inspect.signature(case).parameters.values())[1:]
    test.__signature__ = inspect.Signature(parameters)
    return test


def _call(case, args, kwargs, side):
    return case(side, *args, **kwargs)
