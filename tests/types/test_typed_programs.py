"""Programs as a type checker sees them: `make lint` has mypy check this file.

`assert_type` says what mypy is to find; a `type: ignore` with a code is a fault that it is to find, for
mypy warns of those that are not needed. As tests the programs run.
"""

# mypy: disallow-untyped-defs, disallow-untyped-calls, disallow-untyped-decorators
from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import Array, lax
from ferrax._core import PjitFunction

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type


def test_elementwise_functions_give_arrays() -> None:
    x = jnp.arange(3.0)
    assert_type(x, Array)
    assert_type(jnp.add(x, 1), Array)
    assert_type(jnp.sin(x), Array)
    assert_type(jnp.isnan(x), Array)
    assert_type(jnp.maximum(x, np.ones(3)), Array)
    assert_type(lax.mul(x, x), Array)
    assert_type(jnp.where(x > 1, x, 0.0), Array)
    assert_type(jnp.add.reduce(x), Array)
    assert_type(jnp.logical_and(x > 0, x < 2), Array)
    assert_type(jnp.logaddexp(x, 1), Array)
    assert_type(jnp.float32(1), Array)


def test_operators_and_methods_of_arrays() -> None:
    x = jnp.ones((2, 3), dtype=jnp.float32)
    assert_type(-x + 1, Array)
    assert_type(2.0 * x @ x.T, Array)
    assert_type(x == 1, Array)
    assert_type(x[0, ...], Array)
    assert_type(x.at[0].set(1.0), Array)
    assert_type(x.sum(axis=0), Array)
    assert_type(x.astype("int32").mean(), Array)
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.ndim, int)
    assert_type(float(x.max()), float)
    for row in x:
        assert_type(row, Array)


def test_results_that_depend_on_flags() -> None:
    x = jnp.array([3.0, 1.0, 3.0])
    assert_type(jnp.unique(x), Array)
    assert_type(jnp.linspace(0, 1, 3), Array)
    assert_type(jnp.linspace(0, 1, 3, retstep=True), tuple[Array, Array])
    assert_type(jnp.where(x > 1), tuple[Array, ...])
    assert_type(jnp.linalg.svd(jnp.eye(2)).S, Array)
    assert_type(jnp.linalg.svd(jnp.eye(2), compute_uv=False), Array)
    assert_type(jnp.linalg.svd(jnp.eye(2), True, False), Any)
    for flag in (False, True):
        assert_type(jnp.linspace(0, 1, 3, retstep=flag), Array | tuple[Array, Array])


def test_jit_keeps_the_signature() -> None:
    @ferrax.jit
    def scaled(x: Array, factor: float = 2.0) -> Array:
        return x * factor

    @ferrax.jit(static_argnames="times")
    def repeated(x: Array, *, times: int) -> tuple[Array, int]:
        return jnp.tile(x, times), times

    class Model:
        @ferrax.jit
        def apply(self, x: Array) -> Array:
            return x + 1

        __hash__ = object.__hash__

    x = jnp.ones(2)
    assert_type(scaled(x, factor=3.0), Array)
    assert_type(repeated(x, times=2)[0], Array)
    assert isinstance(scaled, PjitFunction)
    assert_type(scaled.lower(x).compile()(x), Any)
    assert scaled.stats().traces == 2
    with pytest.raises(TypeError):
        scaled(x, wrong=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Model().apply(x, 1, 2)  # type: ignore[call-arg]


def test_transformations() -> None:
    @ferrax.custom_jvp
    def cubed(x: Array) -> Array:
        return x**3

    cubed.defjvps(lambda t, out, x: 3 * x**2 * t)
    assert_type(cubed(jnp.float32(2)), Array)
    value, gradient = ferrax.value_and_grad(cubed)(2.0)
    assert_type(value, Array)
    assert_type(ferrax.vmap(cubed)(jnp.ones(2)), Array)
    assert_type(ferrax.checkpoint(cubed)(jnp.float32(2)), Array)
    assert float(gradient) == 12 and float(value) == 8
    carry, ys = lax.scan(lambda c, x: (c + x, c), 0.0, jnp.arange(3.0))
    assert float(carry) == 3 and ys.shape == (3,)
    total = ferrax.new_ref(jnp.zeros(2))
    total[0] += 1.5
    assert_type(total[...], Array)


def test_trees() -> None:
    leaves, structure = ferrax.tree.flatten({"a": (1, 2)})
    assert_type(leaves, list[Any])
    assert_type(structure, ferrax.tree_util.PyTreeDef)
    assert leaves == [1, 2] and structure.num_leaves == 2


def test_wrong_programs_are_refused() -> None:
    x = jnp.ones(2)
    with pytest.raises(TypeError):
        x[0] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        jnp.sin("text")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        jnp.sinus(x)  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        x + "text"  # type: ignore[operator]
