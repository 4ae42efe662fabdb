"""Compares a ferrax.numpy expression with the same expression of the reference library."""

import warnings

import errors_expected
import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest
from kept_values import Raised, reference
from oracle import caught, compare_arrays

import ferrax
import ferrax.numpy as ferrax_numpy


def prepare(lib, x):
    """NumPy arrays become arrays of the library; containers are rebuilt, scalars stay."""
    if isinstance(x, np.ndarray):
        return lib.asarray(x)
    if isinstance(x, (list, tuple)):
        return type(x)(prepare(lib, item) for item in x)
    return x


def leaves(out):
    if isinstance(out, (list, tuple)):
        return [leaf for item in out for leaf in leaves(item)]
    return [out]


def run(lib, expression, args, jit):
    values = [prepare(lib, x) for x in args]
    module = ferrax if lib is ferrax_numpy else jax
    function = lambda *xs: expression(lib, *xs)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return leaves((module.jit(function) if jit else function)(*values))


def magnitudes(x):
    """Arguments with which a sum of products is the sum of the magnitudes of its terms."""
    if isinstance(x, (list, tuple)):
        return type(x)(magnitudes(item) for item in x)
    return np.abs(x) if isinstance(x, (np.ndarray, int, float, complex)) and not isinstance(x, bool) else x


def check(expression, *args, jit=False, terms=False, **bounds):
    """Same values, dtypes, weak types and shapes; or, where the test states it, the same class of error.

    Where `terms` is True the expression is a sum of products of the arguments, which may cancel: their sizes
    are what the reference has for magnitudes.
    """
    expected = reference(lambda: caught(lambda: run(jax_numpy, expression, args, jit)))
    if isinstance(expected, Raised):
        base = next(
            c for c in (TypeError, ValueError, IndexError, NotImplementedError, OverflowError,
                        ZeroDivisionError, AttributeError, Exception) if c.__name__ in expected.classes)
        with pytest.raises(base) as raised:
            run(ferrax_numpy, expression, args, jit)
        errors_expected.record(raised.type.__name__)
        return
    got = run(ferrax_numpy, expression, args, jit)
    assert len(got) == len(expected)
    sizes = [0.0] * len(got)
    if terms:
        sizes = reference(lambda: run(jax_numpy, expression, list(map(magnitudes, args)), jit))
    for x, y, size in zip(got, expected, sizes):
        assert np.shape(x) == np.shape(y)
        if hasattr(y, "dtype"):
            assert (str(x.dtype), bool(getattr(x, "weak_type", False))) == (
                str(y.dtype), bool(getattr(y, "weak_type", False)))
            cancels = np.abs(np.asarray(size)).astype(np.float64)
            compare_arrays(np.asarray(x), np.asarray(y), weak=False, **{"cancels": cancels, **bounds})
        else:
            assert x == y


def expressions(text):
    """The expressions of a table in text, separated by semicolons and line ends."""
    return [e.strip() for line in text.strip().splitlines() for e in line.split("; ")]


def cases(table):
    """Parametrises over (label, expression, *args) rows."""
    return pytest.mark.parametrize("row", table, ids=[row[0] for row in table])
