"""Functions that are one op, made from the op rows: names, help and its examples, arguments."""

import pickle

import jax
import jax.numpy as jax_numpy
import numpy as np
import pytest
from oracle import compare_arrays

import ferrax
import ferrax.numpy as jnp
from ferrax import _core, lax


@pytest.mark.parametrize(("native", "public"), [(_core.lax, lax), (_core.ufuncs, jnp)])
def test_every_function_is_public_and_has_help(native, public):
    # That examples hold is tested with those of all public names.
    for name in native.__all__:
        function = getattr(native, name)
        assert function.__name__ == name
        assert function.__text_signature__.startswith("(")
        assert pickle.loads(pickle.dumps(function)) is function
        assert hasattr(public, name)
        text = getattr(public, name).__doc__
        assert "\n\n" in text and ">>> " in text, name


def test_help_speaks_of_dtypes_and_promotion():
    text = lax.tanh.__doc__
    assert "floats, complex numbers" in text and "lax.tanh(jnp.array([0.5]))" in text
    assert "Integers and truth values become floats first." in " ".join(jnp.tanh.__doc__.split())
    assert "nothing is promoted" in " ".join(lax.add.__doc__.split())
    assert "wrap" in jnp.add.__doc__ and "jnp.add(" in jnp.add.__doc__


@pytest.mark.parametrize(
    "name",
    [*_core.ufuncs.__all__, "amax", "amin", "bool_", "int_", "float_", "single", "double", "uint"],
)
def test_names_are_those_of_jax(name):
    assert getattr(jnp, name).__name__ == getattr(jax_numpy, name).__name__


def test_arguments():
    assert float(lax.exp(x=0.0)) == 1 and float(lax.exp(0.0, accuracy=None)) == 1
    assert float(lax.sub(x=3.0, y=1.0)) == 2 and float(lax.sub(3.0, y=1.0)) == 2
    with pytest.raises(NotImplementedError, match="accuracy must be None"):
        lax.exp(0.0, accuracy=1)
    for call in (
        jnp.tanh,
        lambda: jnp.tanh(1.0, 2.0),
        lambda: jnp.tanh(x=1.0),
        lambda: lax.neg(1.0, accuracy=None),
        lambda: lax.sub(1.0, x=2.0),
        lambda: lax.sub(1.0, z=2.0),
        lambda: lax.sub(y=1.0),
    ):
        with pytest.raises(TypeError):
            call()


def _derivatives(library, function, order):
    for _ in range(order):
        function = library.grad(function)
    return function


@pytest.mark.parametrize("x", [1.0, 2.0, 3.0, 0.25, 7.5, -0.5, -2.3])
def test_derivatives_of_digamma(x):
    ours = _derivatives(ferrax, lax.digamma, 2)(x)
    # Below 0 by reflection: beside 2π³ cos(πx) / sin(πx)³.
    compare_arrays(ours, _derivatives(jax, jax.lax.digamma, 2)(x), ulps=48 if x < 0 else None)
    third = _derivatives(ferrax, lax.lgamma, 3)(x)
    np.testing.assert_allclose(third, ours, rtol=1e-6)


def test_slopes_of_the_cube_root_at_zero():
    for x, order in [(0.0, 1), (-0.0, 1), (8.0, 1), (8.0, 2)]:
        ours = _derivatives(ferrax, jnp.cbrt, order)(x)
        theirs = _derivatives(jax, jax_numpy.cbrt, order)(x)
        compare_arrays(ours, theirs)


def test_squares_of_complex_numbers():
    parts = [0.0, -0.0, 1.0, -2.0, 1e30, 3e38, np.inf, -np.inf, np.nan, 1e-30]
    z = np.array([complex(re, im) for re in parts for im in parts], np.complex64)
    with np.errstate(all="ignore"):
        ours, theirs = np.asarray(jnp.square(z)), np.asarray(jax_numpy.square(z))
    np.testing.assert_array_equal(ours.real, theirs.real)
    np.testing.assert_array_equal(ours.imag, theirs.imag)
