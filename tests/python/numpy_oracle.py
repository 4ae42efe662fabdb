"""Compares a ferrax.numpy expression with the same expression of the reference library."""

import warnings

import errors_expected
import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest
from oracle import compare_arrays

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


def check(expression, *args, jit=False, **bounds):
    """Same values, dtypes, weak types and shapes; or, where the test states it, the same class of error."""
    try:
        expected = run(jax_numpy, expression, args, jit)
    except Exception as error:
        base = next(
            c for c in (TypeError, ValueError, IndexError, NotImplementedError, OverflowError,
                        ZeroDivisionError, AttributeError, Exception) if isinstance(error, c))
        with pytest.raises(base) as caught:
            run(ferrax_numpy, expression, args, jit)
        errors_expected.record(caught.type.__name__)
        return
    got = run(ferrax_numpy, expression, args, jit)
    assert len(got) == len(expected)
    for x, y in zip(got, expected):
        assert np.shape(x) == np.shape(y)
        if hasattr(y, "dtype"):
            assert (str(x.dtype), bool(getattr(x, "weak_type", False))) == (
                str(y.dtype), bool(getattr(y, "weak_type", False)))
            compare_arrays(np.asarray(x), np.asarray(y), weak=False, **bounds)
        else:
            assert x == y


def expressions(text):
    """The expressions of a table in text, separated by semicolons and line ends."""
    return [e.strip() for line in text.strip().splitlines() for e in line.split("; ")]


def cases(table):
    """Parametrises over (label, expression, *args) rows."""
    return pytest.mark.parametrize("row", table, ids=[row[0] for row in table])
