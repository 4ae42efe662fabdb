"""Functions with rules of their own, written to a file and read back: their values, and what of
their rules a file holds."""

import numpy as np
import pytest
import test_custom_batching as batching
import test_custom_jvp as forward
import test_custom_solves as solves
import test_custom_vjp as reverse
from oracle import FERRAX as S

import ferrax
import ferrax.numpy as jnp
from ferrax import export

X = np.float32(1.5)
VECTOR = np.asarray([0.5, 1.0, 1.5], "float32")
MATRIX = np.asarray([[3.0, 1.0], [0.5, 2.0]], "float32")

# Values and derivatives are those of the function itself.
WITH_RULES = {
    "custom_jvp": (forward.cubic(S, 2.0), X),
    "custom_vjp": (reverse.cubic(S), X),
    "symbolic_zeros": (lambda x: reverse.symbolic(S)(x, 3.0)[0], X),
    "custom_gradient": (reverse.by_gradient(S), X),
    "custom_root": (lambda c: solves.square_root(S, c), X),
    "closure_convert": (lambda c: reverse.minimise(S)(lambda x: x * x - c, 1.0), X),
}

# Files hold what these are made of.
EXPANDED = {
    "custom_vmap": (batching.sine(S), X),
    "custom_vmap_batched": (lambda x: ferrax.vmap(batching.sine(S))(x).sum(), VECTOR),
    "custom_vmap_in_scan": (
        lambda x: ferrax.lax.scan(lambda c, _: (batching.sine(S)(c), c), x, None, length=3), X),
    "sequential_vmap": (
        ferrax.vmap(ferrax.custom_batching.sequential_vmap(lambda x: x * x)), VECTOR),
    "linear_call": (lambda x: reverse.half(S, x), X),
    "linear_call_in_rule": (ferrax.grad(lambda x: reverse.half(S, x) ** 2), X),
    "custom_linear_solve": (lambda m: solves.solve_system(S, m, jnp.ones(2)), MATRIX),
    "custom_linear_solve_gradient": (
        ferrax.grad(lambda m: solves.solve_system(S, m, jnp.ones(2)).sum()), MATRIX),
    "solve_by_loop": (
        lambda d: solves.by_iteration(S, d, solves.right_side(S)), np.asarray([1, 2, 1.5], "float32")),
}  # fmt: skip


def read_back(fun, x):
    blob = export.export(ferrax.jit(fun))(x).serialize(vjp_order=2)
    return export.deserialize(blob).call


def check(ours, expected):
    ours, expected = map(ferrax.tree_util.tree_leaves, (ours, expected))
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", WITH_RULES)
def test_rules_are_kept(name):
    fun, x = WITH_RULES[name]
    loaded = read_back(fun, x)
    check(ferrax.value_and_grad(loaded)(x), ferrax.value_and_grad(fun)(x))
    check(ferrax.vmap(ferrax.grad(loaded))(VECTOR), ferrax.vmap(ferrax.grad(fun))(VECTOR))


@pytest.mark.parametrize("name", ["custom_jvp", "custom_vjp", "custom_root"])
def test_second_derivatives_are_kept(name):
    fun, x = WITH_RULES[name]
    loaded = read_back(fun, x)
    check(ferrax.grad(ferrax.grad(loaded))(x), ferrax.grad(ferrax.grad(fun))(x))


@pytest.mark.parametrize("name", EXPANDED)
def test_values_are_kept(name):
    fun, x = EXPANDED[name]
    check(read_back(fun, x)(x), fun(x))
