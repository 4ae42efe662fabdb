"""Primitives that are made of other operations, bound as equations of their own, beside JAX."""

import numpy as np
import pytest
from oracle import FERRAX, JAX, same

X = np.arange(6, dtype=np.float32).reshape(2, 3)

BOUND = {
    "split": lambda S, x: S.lax.split_p.bind(x, sizes=(1, 2), axis=1),
    "stack": lambda S, x: S.lax.stack_p.bind(x, x * 2, axis=1),
    "unstack": lambda S, x: S.lax.unstack_p.bind(x, axis=0),
    "tile": lambda S, x: S.lax.tile_p.bind(x, reps=(2, 1)),
    "reduce_window_sum": lambda S, x: S.lax.reduce_window_sum_p.bind(
        x, window_dimensions=(1, 2), window_strides=(1, 1), padding=((0, 0), (1, 0)),
        base_dilation=(1, 1), window_dilation=(1, 1),
    ),
    "reduce_window_max": lambda S, x: S.lax.reduce_window_max_p.bind(
        x, window_dimensions=(2, 2), window_strides=(1, 1), padding=((0, 0), (1, 0)),
        base_dilation=(1, 1), window_dilation=(1, 1),
    ),
    "reduce_window_min": lambda S, x: S.lax.reduce_window_min_p.bind(
        x, window_dimensions=(2, 1), window_strides=(1, 2), padding=((1, 0), (1, 0)),
        base_dilation=(1, 1), window_dilation=(1, 1),
    ),
    "select_and_scatter_add": lambda S, x: S.lax.select_and_scatter_add_p.bind(
        x[:, :2], x * x, select_prim=S.lax.ge_p, window_dimensions=(1, 2),
        window_strides=(1, 1), padding=((0, 0), (0, 0)),
    ),
    "select_and_gather_add": lambda S, x: S.lax.select_and_gather_add_p.bind(
        x, x * x, select_prim=S.lax.le_p, window_dimensions=(1, 2), window_strides=(1, 1),
        padding=((0, 0), (0, 0)), base_dilation=(1, 1), window_dilation=(1, 1),
    ),
}  # fmt: skip

TRANSFORMS = {
    "jit": lambda S, f, x: S.jax.jit(f)(x),
    "jvp": lambda S, f, x: S.jax.jvp(f, (x,), (x * x,)),
    "grad": lambda S, f, x: S.jax.grad(lambda x: total(S, f(x)))(x),
    "jit_grad": lambda S, f, x: S.jax.jit(S.jax.grad(lambda x: total(S, f(x))))(x),
    "hessian": lambda S, f, x: S.jax.hessian(lambda x: total(S, f(x * x)))(x),
    "vmap": lambda S, f, x: S.jax.vmap(f)(S.jnp.stack([x, 2 * x])),
    "vmap_last": lambda S, f, x: S.jax.vmap(f, 2)(S.jnp.stack([x, 2 * x], 2)),
    "vmap_grad": lambda S, f, x: S.jax.vmap(S.jax.grad(lambda x: total(S, f(x))))(
        S.jnp.stack([x, 2 - x])
    ),
    "linear_transpose": lambda S, f, x: S.jax.linear_transpose(f, x)(f(x)),
    "names": lambda S, f, x: [e.primitive.name for e in S.jax.make_jaxpr(f)(x).eqns],
}


def total(S, outs):
    return sum(S.jnp.sum(out * out) for out in S.jax.tree_util.tree_leaves(outs))


def linear(name):
    return name in ("split", "stack", "unstack", "tile", "reduce_window_sum")


def supported(name, transform):
    if transform == "linear_transpose":
        return linear(name)
    # JAX has no second derivatives through these two.
    return not (name.startswith("select_and") and transform == "hessian")


@pytest.mark.parametrize(
    "name,transform",
    [(name, how) for name in BOUND for how in TRANSFORMS if supported(name, how)],
)
@same(weak=False)
def test_bound(S, name, transform):
    x = S.jnp.asarray(X) * 0.7 - 1.1
    return TRANSFORMS[transform](S, lambda x: BOUND[name](S, x), x)


@same
def test_dead_code_that_is_used(S):
    used = S.jax.make_jaxpr(lambda x: (S.lax.dce_sink({"a": S.jnp.sin(x)}), x * 2)[1])(1.0)
    return (
        [eqn.primitive.name for eqn in used.eqns],
        S.jax.jit(lambda x: (S.lax.dce_sink(x), x * 2)[1])(1.0),
        S.jax.grad(lambda x: (S.lax.dce_sink(x), x * 2)[1])(1.0),
    )


@pytest.mark.parametrize("S", [FERRAX, JAX], ids=["ferrax", "jax"])
def test_staging_values(S):
    found = []

    @S.jax.jit
    def fun(x):
        for value in (1.0, X, x, S.jnp.float32(2)):
            staged = S.lax.stage(value)
            found.append(isinstance(staged, S.jax.core.Tracer))
        return S.lax.stage(3.0) + x

    assert float(fun(1.0)) == 4.0 and found == [True] * 4
    assert isinstance(S.lax.stage(1.0), S.jax.Array) and S.lax.stage(1.0).weak_type
    assert S.lax.stage_p.name == "stage"
    assert float(S.jax.grad(lambda x: S.lax.stage_p.bind(x) * 2)(1.0)) == 2.0


@pytest.mark.parametrize("name", ["reduce_window_max", "reduce_window_sum", "split"])
def test_in_files(name):
    import ferrax
    from ferrax import export

    def fun(x):
        return total(FERRAX, BOUND[name](FERRAX, x))

    x = ferrax.numpy.asarray(X)
    data = export.export(ferrax.jit(fun))(x).serialize(vjp_order=1)
    loaded = export.deserialize(data).call
    np.testing.assert_allclose(loaded(x), fun(x), rtol=1e-5)
    np.testing.assert_allclose(ferrax.grad(loaded)(x), ferrax.grad(fun)(x), rtol=1e-5)
