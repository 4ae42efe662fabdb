"""Functions around a fusible become functions that it calls, and results stay as they were."""

import jax
import numpy as np
import pytest
from jax.experimental.pallas import fuser as jax_fuser

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import fuser

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SIDES = {"ferrax": (ferrax, jnp, fuser), "jax": (jax, jax.numpy, jax_fuser)}


def apply(function, *values):
    """What becomes of outputs, in the tree that a fusible returns."""
    if function is not None:
        return function(*values)
    return values[0] if len(values) == 1 else values


def one_output(module, seen):
    @module.fusible
    def f(x_fn, y_fn, out_fn):
        seen.append((x_fn.shape, str(x_fn.dtype), y_fn.in_type, out_fn is None))
        return apply(out_fn, x_fn() * 10 + y_fn())

    return f


def two_outputs(module, seen):
    @module.fusible(output_fusion_prefix=(True, (True, True)))
    def f(x_fn, y_fn, out_fns):
        first, (second, third) = out_fns
        seen.append([fn is None for fn in (first, second, third)])
        x, y = x_fn(), y_fn()
        return apply(first, x + y), (apply(second, x * y), apply(third, x - y))

    return f


CASES = {
    "nothing around": (one_output, lambda xp, f, x, y: f(x, y)),
    "inputs": (one_output, lambda xp, f, x, y: f(xp.sin(x) + y, x.sum() * y)),
    "an input that is a constant": (one_output, lambda xp, f, x, y: f(x, xp.float32(2))),
    "an output": (one_output, lambda xp, f, x, y: xp.exp(-f(x, y)) + x),
    "several outputs of it": (one_output, lambda xp, f, x, y: (lambda z: {"a": z * 2, "b": (z, z.T)})(f(x, y))),
    "results apart from it": (one_output, lambda xp, f, x, y: (y * 3, f(x, y), x)),
    "no use of it": (one_output, lambda xp, f, x, y: (f(x, y), y + 1)[1]),
    "outputs apart": (two_outputs, lambda xp, f, x, y: (lambda a, b, c: (c + 1, a, b * x))(*_flat(f(x + 1, y)))),
    "outputs unchanged": (two_outputs, lambda xp, f, x, y: f(x, y)),
    "an output twice": (two_outputs, lambda xp, f, x, y: (lambda a, b, c: (b, (a * 2, a + y), c))(*_flat(f(x, y)))),
}
# JAX has each result depend on the fusible.
OURS = {"results apart from it"}


def _flat(outs):
    a, (b, c) = outs
    return a, b, c


def run(side, name):
    module, xp, names = SIDES[side]
    seen = []
    make, function = CASES[name]
    f = make(names, seen)
    plain = function(xp, f, xp.asarray(X), xp.asarray(X[::-1]))
    before = len(seen)
    found = module.jit(names.fuse(lambda x, y: function(xp, f, x, y)))(X, X[::-1])
    return found, plain, [str(item) for item in seen[before:] if side == "ferrax" or item is not None]


@pytest.mark.parametrize("name", CASES)
def test_results_and_what_the_fusible_is_given(name):
    found, plain, seen = run("ferrax", name)
    assert ferrax.tree.structure(found) == ferrax.tree.structure(plain)
    for one, other in zip(ferrax.tree.leaves(found), ferrax.tree.leaves(plain)):
        np.testing.assert_allclose(one, other, 1e-6)
    if name in OURS:
        return
    theirs, _, given = run("jax", name)
    for one, other in zip(ferrax.tree.leaves(found), jax.tree.leaves(theirs)):
        np.testing.assert_allclose(one, other, 1e-6)
    # At the last call, whose functions are those of what is around.
    assert seen[-1:] == given[-1:]


def test_derivatives_and_batches():
    f = one_output(fuser, [])

    def plain(x, y):
        return (jnp.sin(f(jnp.cos(x), y * 2)) ** 2).sum()

    fused = fuser.fuse(plain)
    for one, other in zip(ferrax.grad(fused, (0, 1))(X, X + 1), ferrax.grad(plain, (0, 1))(X, X + 1)):
        np.testing.assert_allclose(one, other, 1e-5)
    np.testing.assert_allclose(ferrax.vmap(fused)(X, X), ferrax.vmap(plain)(X, X), 1e-6)


def test_a_kernel_computes_what_is_around_it():
    """Where the functions go by elements, a kernel calls them on its blocks."""

    @fuser.fusible
    def double(x_fn, out_fn):
        def kernel(x, o):
            o[...] = apply(out_fn, 2 * x[...])[0] if out_fn else 2 * x[...]

        block = pl.BlockSpec((1, 3), lambda i: (i, 0))
        return pl.pallas_call(
            kernel, ferrax.ShapeDtypeStruct(x_fn.shape, x_fn.dtype), grid=(2,), in_specs=[block], out_specs=block
        )(x_fn())

    found = fuser.fuse(lambda x: double(x + 1) - 3)(X)
    np.testing.assert_array_equal(found, 2 * (X + 1) - 3)


def test_debug_prints_the_program(capsys):
    fuser.fuse(lambda x: one_output(fuser, [])(x, x) + 1, debug=True)(X)
    assert "fusible" in capsys.readouterr().out


@pytest.mark.parametrize("side", SIDES)
def test_what_is_refused(side):
    module, xp, names = SIDES[side]
    with pytest.raises(ValueError):
        names.fuse(lambda x: x + 1)(X)
    f = two_outputs(names, [])
    with pytest.raises(ValueError):
        names.fuse(lambda x: (lambda a, b, c: (a + b, c))(*_flat(f(x, x))))(X)
    with pytest.raises(NotImplementedError):
        names.fuse(lambda ref: f(ref[...], ref[...]))(module.new_ref(xp.asarray(X)))
