"""What the tests of mutable arrays share."""

import functools

import jax
import oracle
import pytest

import ferrax

# A ref keeps its weak type here; JAX's depends on what was written last.
same = functools.partial(oracle.same, weak=False)


def module(s):
    return ferrax.ref if s.name == "ferrax" else jax.ref


def check(case, **options):
    oracle.same(case, **({"weak": False} | options))()


def raises(case, message, kind=ValueError, in_jax=True):
    """ferrax raises `kind` with this text; JAX raises something, unless `in_jax` is False."""
    with pytest.raises(kind, match=message):
        case(oracle.FERRAX)
    if in_jax:
        with pytest.raises(Exception):  # noqa: B017  JAX raises `Exception` itself in places
            case(oracle.JAX)
