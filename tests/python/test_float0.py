"""Tangents of integers, which have a shape and no values, as arguments and results of everything
that traces functions."""

import numpy as np
import pytest
from oracle import FERRAX, same

import ferrax


def float0(*shape):
    return np.zeros(shape, ferrax.float0)


def tangent(S, n):
    """A tangent as a derivative makes it."""
    return S.jax.jvp(lambda n: 2 * n, (n,), (float0(*n.shape),))[1]


def ints(S, *shape):
    return S.jnp.arange(int(np.prod(shape))).reshape(shape)


def _backwards_of_forwards(S):
    """The reverse derivative of a tangent, part of which is an integer's."""
    x = S.jnp.asarray([2.0, 3.0, 1.0])
    forwards = lambda x: S.jax.jvp(lambda x: (x * x, S.jnp.argsort(x)), (x,), (x,))[1]  # noqa: E731
    return S.jax.vjp(forwards, x)[1]


# In and out of functions: name -> case.
CASES = {
    "jit": lambda S: S.jax.jit(lambda t, x: (x * 2, t))(float0(3), 2.0),
    "jit_keyword": lambda S: S.jax.jit(lambda x, t: (t, x))(2.0, t={"a": float0(2), "b": 1.0}),
    "jit_static": lambda S: S.jax.jit(lambda n, t, x: (x * n, t), static_argnums=0)(3, float0(2), 2.0),
    "jit_differs": lambda S: [S.jax.jit(lambda t: t.shape[0] * 1.0)(float0(n)) for n in (2, 3, 2)],
    "jit_jvp": lambda S: S.jax.jit(lambda n, t: S.jax.jvp(lambda n: 2 * n, (n,), (t,)))(ints(S, 3), float0(3)),
    "jit_of_jit": lambda S: S.jax.jit(lambda t: S.jax.jit(lambda t: t)(t))(float0(3)),
    "eval_shape": lambda S: S.jax.eval_shape(lambda t, x: (x, t), float0(3), 2.0)[1].shape,
    "make_jaxpr": lambda S: len(S.jax.make_jaxpr(lambda t, x: x + t.size)(float0(3), 2.0).eqns),
    "checkpoint": lambda S: S.jax.checkpoint(lambda t, x: (x * 2, t))(float0(3), 2.0),
    "cond_operand": lambda S: S.lax.cond(True, lambda t, x: (x, t), lambda t, x: (-x, t), float0(3), 2.0),
    "cond_result": lambda S: S.lax.cond(False, lambda: (1.0, float0(3)), lambda: (2.0, float0(3))),
    "cond_shapes": lambda S: S.lax.cond(False, lambda: float0(3), lambda: float0(2)),
    "switch": lambda S: S.lax.switch(1, [lambda n: tangent(S, n), lambda n: tangent(S, n + 1)], ints(S, 2)),
    "scan_carry": lambda S: S.lax.scan(lambda c, n: ((c[0], c[1] + n), n), (float0(2), 0), ints(S, 3)),
    "fori": lambda S: S.lax.fori_loop(0, 3, lambda i, c: (c[0], c[1] + i), (float0(2), 0)),
    "while": lambda S: S.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0], c[1] + 1), (float0(2), 0)),
    "map": lambda S: S.lax.map(lambda n: S.jax.grad(lambda n: 1.0 * n, allow_int=True)(n), ints(S, 3)),
    "map_trees": lambda S: S.lax.map(lambda n: (n, tangent(S, n)), ints(S, 3, 2)),
    "map_batches": lambda S: S.lax.map(lambda n: (tangent(S, n), n), ints(S, 5, 2), batch_size=2),
    "map_even_batches": lambda S: S.lax.map(lambda n: (tangent(S, n), n), ints(S, 4, 2), batch_size=2),
    "barrier": lambda S: S.lax.optimization_barrier((float0(3), 2.0)),
    "vmap_result": lambda S: S.jax.vmap(lambda n: (tangent(S, n), n))(ints(S, 3, 2)),
    "vmap_out_axes": lambda S: S.jax.vmap(lambda n: (tangent(S, n), n), out_axes=(1, 0))(ints(S, 3, 2)),
    "vmap_out_axes_last": lambda S: S.jax.vmap(lambda n: (n, tangent(S, n), n), out_axes=(0, -1, 1))(ints(S, 3, 2)),
    "vmap_out_none": lambda S: S.jax.vmap(lambda n: (n, float0(2)), out_axes=(0, None))(ints(S, 3)),
    "vmap_out_range": lambda S: S.jax.vmap(lambda n: float0(2), out_axes=2)(ints(S, 3)),
    "vmap_argument": lambda S: S.jax.vmap(lambda t, n: S.jax.jvp(lambda n: n, (n,), (t,)))(float0(3, 2), ints(S, 3, 2)),
    "vmap_in_axes": lambda S: S.jax.vmap(lambda x, t, y: (x + y, t), in_axes=(0, 1, None))(
        ints(S, 3), float0(2, 3), 1.0),
    "vmap_unmapped": lambda S: S.jax.vmap(lambda t, x: (t, x), in_axes=(None, 0))(float0(2), ints(S, 3)),
    "vmap_alone": lambda S: S.jax.vmap(lambda t: t)(float0(3)),
    "vmap_sizes": lambda S: S.jax.vmap(lambda t, n: t)(float0(4), ints(S, 3)),
    "vmap_rank": lambda S: S.jax.vmap(lambda t: t)(float0()),
    "vmap_of_vmap": lambda S: S.jax.vmap(S.jax.vmap(lambda n: tangent(S, n)))(ints(S, 3, 2)),
    "vmap_of_jvp": lambda S: S.jax.vmap(lambda x, n: S.jax.jvp(lambda x: (x * n, n), (x,), (x,)))(
        S.jnp.ones(3), ints(S, 3)),
    "vmap_of_vjp": lambda S: S.jax.vmap(lambda n, x, t: S.jax.vjp(lambda n, x: (n, n * x), n, x)[1]((t, x)))(
        ints(S, 3), S.jnp.ones(3), float0(3)),
    "vjp_of_jvp": lambda S: _backwards_of_forwards(S)((S.jnp.ones(3), float0(3))),
    "vjp_of_jvp_jitted": lambda S: S.jax.jit(lambda x: _backwards_of_forwards(S)((x, float0(3))))(S.jnp.ones(3)),
    "vjp_of_jvp_tree": lambda S: _backwards_of_forwards(S)([S.jnp.ones(3), float0(3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@same
def test_case(S, name):
    return CASES[name](S)


@pytest.mark.parametrize("name", ["cond_operand", "scan_carry", "fori", "while"])
@same
def test_as_plain_python(S, name):
    with S.jax.disable_jit():
        return S.jax.tree.map(lambda x: x if hasattr(x, "shape") else S.jnp.asarray(x), CASES[name](S))


# The reference has no loops over these elements.
def test_elements_decide_the_length():
    _, ys = ferrax.lax.scan(lambda _, x: (None, (x, tangent(FERRAX, ferrax.numpy.arange(4)))), None, float0(3, 2))
    assert [y.shape for y in ys] == [(3, 2), (3, 4)]
    assert all(y.dtype == ferrax.float0 for y in ys)
    with pytest.raises(ValueError, match="different leading axis sizes: 3, 2"):
        ferrax.lax.scan(lambda _, x: (None, x), None, (float0(3), ferrax.numpy.ones(2)))
    with pytest.raises(ValueError, match="`length` argument of 2"):
        ferrax.lax.scan(lambda _, x: (None, x), None, float0(3), length=2)
    with pytest.raises(ValueError, match="no leading axis"):
        ferrax.lax.scan(lambda _, x: (None, x), None, float0())


def test_elements_as_plain_python():
    with ferrax.disable_jit():
        _, (t, n) = ferrax.lax.scan(lambda _, x: (None, x), None, (float0(3, 2), ferrax.numpy.arange(3)))
    assert t.shape == (3, 2) and t.dtype == ferrax.float0
    assert n.tolist() == [0, 1, 2]


def test_other_arrays_without_a_type_are_no_arguments():
    record = np.zeros(2, [("a", "f4"), ("b", "i4")])
    with pytest.raises(TypeError, match="not a valid array type"):
        ferrax.jit(lambda x: x)(record)
    with pytest.raises(TypeError, match="not a valid array type"):
        ferrax.jit(lambda x, t: x)(record, float0(2))
