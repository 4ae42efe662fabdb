"""Callbacks that write into buffers, beside the reference."""

import numpy as np
import pytest
from oracle import module, same

VMAP_METHODS = (
    "sequential",
    "sequential_unrolled",
    "expand_dims",
    "broadcast_all",
    "legacy_vectorized",
)


def library(S):
    return module(S, "experimental.buffer_callback")


def sums(context, out, x, y=None, *, z):
    """Writes a tree of a sum and a number; takes a tree, too."""
    np.asarray(out["sum"])[...] = np.asarray(x) + np.asarray(y[0]) * np.asarray(z)
    np.asarray(out["ones"])[...] = 1


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@same
def test_trees_of_buffers(S, jitted):
    types = {
        "sum": S.jax.ShapeDtypeStruct((2, 3), np.float32),
        "ones": S.jax.ShapeDtypeStruct((), np.int32),
    }
    call = library(S).buffer_callback(sums, types, has_side_effect=True)
    call = S.jax.jit(call) if jitted else call
    x = S.jnp.arange(6.0).reshape(2, 3)
    return call(x, (2 * x,), z=S.jnp.float32(3))


@same
def test_what_a_callback_sees(S):
    seen = []

    def callback(context, out, x):
        seen.append(
            [
                context.stage.name,
                context.stage.value,
                x.shape,
                x.dtype.name,
                x.ndim,
                x.writeable,
                out.writeable,
            ]
        )
        seen.append([x.__dlpack_device__(), np.asarray(x).tolist(), hasattr(x, "data")])
        np.from_dlpack(out) if out.writeable else None
        np.asarray(out)[...] = 7

    out = library(S).buffer_callback(callback, S.jax.ShapeDtypeStruct((), np.float32))(
        S.jnp.arange(3)
    )
    return out, seen


@same
def test_outputs_may_begin_as_inputs(S):
    def callback(context, out, x, y):
        np.asarray(out)[1] += np.asarray(y)[0]

    call = library(S).buffer_callback(
        callback, S.jax.ShapeDtypeStruct((3,), np.float32), input_output_aliases={0: 0}
    )
    x = S.jnp.arange(3.0)
    return S.jax.jit(call)(x, x + 5), x


@pytest.mark.parametrize("method", VMAP_METHODS)
@same
def test_batches(S, method):
    def callback(context, out, x, y):
        np.asarray(out)[...] = np.asarray(x) + np.asarray(y)

    call = library(S).buffer_callback(
        callback, S.jax.ShapeDtypeStruct((3,), np.float32), vmap_method=method
    )
    x = S.jnp.arange(6.0).reshape(2, 3)
    return S.jax.jit(S.jax.vmap(call, in_axes=(0, 0)))(x, 2 * x), S.jax.vmap(call, (1, None))(
        x.T, S.jnp.ones(3)
    )


def returns(context, out, x):
    return 1


def nothing(context, out, x):
    pass


def call(S, function=nothing, x=None, shape=(3,), **settings):
    types = S.jax.ShapeDtypeStruct(shape, np.float32)
    return library(S).buffer_callback(function, types, **settings)(
        S.jnp.arange(3.0) if x is None else x
    )


ERRORS = {
    "returns": lambda S: call(S, returns),
    "raises": lambda S: call(S, lambda *_: 1 / 0),
    "no input": lambda S: call(S, input_output_aliases={1: 0}),
    "no output": lambda S: call(S, input_output_aliases={0: 1}),
    "other shape": lambda S: call(S, shape=(4,), input_output_aliases={0: 0}),
    "jvp": lambda S: S.jax.jvp(lambda x: call(S, x=x), (S.jnp.ones(3),), (S.jnp.ones(3),)),
    "vmap": lambda S: S.jax.vmap(lambda x: call(S, x=x))(S.jnp.ones((2, 3))),
}


@pytest.mark.raises("JaxRuntimeError", "NotImplementedError", "ValueError")
@pytest.mark.parametrize("name", ERRORS)
@same
def test_errors(S, name):
    ERRORS[name](S)
