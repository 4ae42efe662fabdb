"""Expressions over a few arrays, evaluated with ferrax and with JAX: results, types and errors agree."""

import bisect
import copy
import math
import operator
import pickle
import re
import warnings

import numpy as np
from kept_values import reference
from oracle import FERRAX, JAX, Raised, compare, is_array

# Results of these classes are compared by their text alone.
_TEXT = (str, bytes, type(None), slice)


def names(side):
    """The arrays that expressions are about, by one letter each."""
    jnp = side.jnp
    return {
        "jax": side.jax, "jnp": jnp, "lax": side.lax, "np": np, "copy": copy, "pickle": pickle,
        "bisect": bisect, "operator": operator, "math": math,
        "f": jnp.array([1.5, -2.0, np.nan, np.inf], dtype=jnp.float32),
        "i": jnp.arange(6).reshape(2, 3), "s": jnp.float32(3.7), "k": jnp.int32(5),
        "b": jnp.array([True, False]), "c": jnp.array([1 + 2j, 3 - 1j]),
        "h": jnp.array([1.5, 2.25], jnp.bfloat16), "e": jnp.zeros((0, 3)),
        "u": jnp.array([1, 2, 255], jnp.uint8), "key": side.random.key(0),
        "big": jnp.arange(5000), "w": jnp.asarray(1.0), "x3": jnp.arange(24.0).reshape(2, 3, 4),
    }  # fmt: skip


def _evaluate(expression, side):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return eval(expression, names(side))
        except Exception as error:
            return Raised(error)


def _plain(result):
    """What is no array and no container, as its text without the library's name."""
    if isinstance(result, (Raised, int, float, complex)) or is_array(result):
        return result
    if isinstance(result, (list, tuple)):
        return type(result)(_plain(item) for item in result)
    if isinstance(result, _TEXT):
        return str(result)
    return re.sub(r"\b(jaxlib\._jax|jax|ferrax)\b", "library", str(result))


def same_expression(expression):
    """Asserts that an expression gives the same on both sides, NaNs and Python types included."""
    ours = _plain(_evaluate(expression, FERRAX))
    theirs = reference(lambda: _plain(_evaluate(expression, JAX)))
    if isinstance(theirs, (float, complex)) and not is_array(theirs):
        assert type(ours) is type(theirs), f"{expression}: {ours!r} for {theirs!r}"
        np.testing.assert_array_equal(ours, theirs, err_msg=expression)
        return
    compare(ours, theirs, expression)
