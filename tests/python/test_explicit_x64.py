"""64-bit types of single arrays, while defaults stay 32-bit: `explicit_x64`, `jax_explicit_x64_dtypes`."""

import warnings

import jax
import numpy as np
import pytest
from oracle import FERRAX, JAX, compare

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

WIDE = ["int64", "uint64", "float64", "complex128"]


def arrays(S):
    return [S.jnp.zeros(2, kind) + S.jnp.ones(2, kind) for kind in WIDE]


CASES = {
    "creation": lambda S: [
        S.jnp.zeros(2, "int64"), S.jnp.full(2, 1, "float64"), S.jnp.arange(3, dtype="uint64"),
        S.jnp.linspace(0, 1, 3, dtype="float64"), S.jnp.eye(2, dtype="complex128"), S.jnp.tri(2, dtype="float64"),
        S.jnp.array([1.0, 2.5], "float64"), S.jnp.asarray(np.ones(2), dtype="float64"), S.jnp.float64(3.5), S.jnp.int64(4),
        S.jnp.ones(2).astype("int64"), S.jnp.zeros_like(S.jnp.ones(2, "float64")),
        S.lax.iota("int64", 3), S.lax.full((2,), 1, "int64"), S.jnp.arange(3.0), S.jnp.arange(3), S.jnp.asarray(1),
    ],
    "promotion": lambda S: [
        op(x, y) for x in arrays(S) for y in (1, S.jnp.float32(2), S.jnp.int32(3), S.jnp.ones(2, "float64"))
        for op in (S.jnp.add, S.jnp.multiply, S.jnp.true_divide)
    ],
    "functions": lambda S: [
        S.jnp.sin(x) for x in arrays(S)] + [
        f(S.jnp.array([3.25, -1.5], "float64"))
        for f in (S.jnp.exp, S.jnp.cumsum, S.jnp.sort, S.jnp.var, S.jnp.round, S.jnp.nonzero, lambda x: x @ x)
    ],
    "transforms": lambda S: [
        S.jax.jit(lambda x: (x + 1, x * 2.0, S.jnp.zeros(2, "int64")))(S.jnp.ones(2, "float64")),
        S.jax.grad(lambda x: (x**2).sum())(S.jnp.ones(2, "float64")),
        S.jax.hessian(lambda x: (x**3).sum())(S.jnp.ones(2, "float64")),
        S.jax.vmap(S.jnp.sin)(S.jnp.ones(2, "float64")),
        S.lax.scan(lambda c, x: (c + x, c * x), S.jnp.zeros((), "float64"), S.jnp.ones(2, "float64")),
        S.jnp.where(True, S.jnp.ones(2, "float64"), 1.0), S.jnp.stack([S.jnp.zeros(2, "int64"), S.jnp.arange(2)]),
        S.jnp.ones(3, "float64")[S.jnp.zeros(2, "int64")], S.jnp.ones(3, "float64").at[0].set(3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_names_are_honoured_as_in_jax(name):
    # JAX's mode has no context manager.
    jax.config.update("jax_explicit_x64_dtypes", "allow")
    try:
        theirs = CASES[name](JAX)
    finally:
        jax.config.update("jax_explicit_x64_dtypes", "warn")
    ferrax.config.update("jax_explicit_x64_dtypes", "allow")
    try:
        ours = CASES[name](FERRAX)
    finally:
        ferrax.config.update("jax_explicit_x64_dtypes", "warn")
    compare(ours, theirs)


def test_numpy_arrays_keep_their_type():
    with ferrax.explicit_x64(True):
        given = [np.arange(2), np.float64(1.5), np.ones(2), np.ones(2, complex), np.uint64(2**63)]
        kept = [jnp.asarray(x) for x in given]
        assert [x.dtype for x in kept] == [x.dtype for x in given]
        assert int(jnp.asarray(np.int64(2**40))) == int(jnp.array(2**40, "int64")) == 2**40
        assert jnp.asarray([1.0]).dtype == np.float32 and jnp.asarray(1).dtype == np.int32
        assert ferrax.jit(lambda x: x * 2)(np.ones(2)).dtype == np.float64
        assert (jnp.float32(1) + np.float64(1)).dtype == np.float64
        assert lax.add(np.ones(2), np.ones(2)).dtype == np.float64
    assert jnp.asarray(np.ones(2)).dtype == np.float32


def test_truncation_warns():
    with pytest.warns(UserWarning, match="1099511627776 does not fit into int32.*explicit_x64") as found:
        assert int(jnp.asarray(np.array([1, 2**40]))[1]) == 0
    assert len(found) == 1 and found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jnp.asarray(np.arange(2)), jnp.asarray(np.float64(1)), jnp.asarray(np.uint64(2**32 - 1))


def test_tracers_say_what_they_are():
    seen = []
    show = lambda x: (seen.append(repr(x)), x)[1]  # noqa: E731
    ferrax.jit(show)(np.ones(3, np.float32))
    ferrax.jit(show)(1.0)
    ferrax.grad(show)(1.0)
    ferrax.vmap(show)(jnp.ones(3))
    assert seen[:2] == ["JitTracer(float32[3])", "JitTracer(~float32[])"]
    assert seen[2].startswith("GradTracer(") and seen[3].startswith("VmapTracer(")
