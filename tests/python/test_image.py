"""Resizing beside the reference: values of every method, dtypes, derivatives, batches, errors."""

import jax
import numpy as np
import pytest
from oracle import compiled, same
from roundings import same_within_roundings

import ferrax

METHODS = ("nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area")


def image(S, dtype="float32", shape=(2, 7, 5)):
    return S.jnp.asarray(np.random.default_rng(0).uniform(-5, 9, shape).astype(dtype))


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("method", METHODS)
@same_within_roundings
def test_sizes(S, method, antialias):
    x = image(S)
    return [S.jax.image.resize(x, shape, method, antialias) for shape in ((2, 3, 12), (1, 7, 5))]


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "uint8", "complex64"])
def test_dtypes(dtype, method="cubic"):
    @same_within_roundings
    def case(S):
        return S.jax.image.resize(image(S, np.float32).astype(dtype), (2, 9, 3), method)

    with ferrax.enable_x64(dtype == "float64"), jax.enable_x64(dtype == "float64"):
        case()


@pytest.mark.parametrize(
    "method, antialias", [("linear", True), ("cubic-pytorch", False), ("area", True)]
)
@same_within_roundings
def test_scales_and_translations(S, method, antialias):
    x = image(S)
    def move(x, s, t):
        return S.jax.image.scale_and_translate(x, (2, 9, 6), (1, -1), s, t, method, antialias)

    scale, shift = S.jnp.array([0.7, 1.6]), S.jnp.array([1.25, -2.0])
    return S.jax.jit(S.jax.value_and_grad(lambda *args: S.jnp.sum(move(*args) ** 2)))(
        x, scale, shift
    )


@same_within_roundings
def test_derivatives_in_scale_and_translation(S):
    move = lambda s, t: S.jax.image.scale_and_translate(image(S), (2, 9, 6), (1, 2), s, t, "cubic")  # noqa: E731
    point = S.jnp.array([0.71, 1.63]), S.jnp.array([1.27, -2.1])
    return compiled(S, S.jax.jacfwd(move, (0, 1)), *point)


@same
def test_transformations(S):
    x = image(S)
    resize = lambda x: S.jax.image.resize(x, (4, 9), "lanczos3")  # noqa: E731
    return compiled(S, S.jax.vmap(S.jax.value_and_grad(lambda x: resize(x).sum())), x)


@same
def test_scalars_and_empty_images(S):
    resize = S.jax.image.resize
    return [
        resize(S.jnp.float32(3), (), "linear"), resize(S.jnp.ones((3, 2)), (0, 4), "linear"),
        resize(S.jnp.ones((3, 2)), (3, 2), S.jax.image.ResizeMethod.CUBIC), resize(S.jnp.arange(3), (3,), "linear"),
        resize(S.jnp.ones((1, 3)), (4, 1), "cubic-pytorch", False),
        [m.name for m in S.jax.image.ResizeMethod], S.jax.image.ResizeMethod.from_string("tricubic").value,
    ]  # fmt: skip


ERRORS = {
    "shape": lambda S: S.jax.image.resize(image(S), (3, 4), "linear"),
    "method": lambda S: S.jax.image.resize(image(S), (2, 3, 4), "quadratic"),
    "nearest": lambda S: S.jax.image.scale_and_translate(
        image(S), (2, 3, 4), (1,), S.jnp.ones(1), S.jnp.ones(1), "nearest"
    ),
}


@pytest.mark.raises("ValueError")
@pytest.mark.parametrize("name", ERRORS)
@same
def test_errors(S, name):
    ERRORS[name](S)
