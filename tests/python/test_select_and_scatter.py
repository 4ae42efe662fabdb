"""`select_and_scatter` and the derivative of sums of windows that do not meet, beside JAX."""

import numpy as np
import pytest
from oracle import same

RNG = np.random.default_rng(3)
X = np.round(RNG.normal(size=(5, 7)) * 2).astype("float32")

WINDOWS = {
    "apart": ((2, 3), (2, 3), ((0, 0), (0, 0))),
    "overlapping": ((3, 2), (1, 1), ((1, 1), (0, 1))),
    "padded": ((3, 3), (2, 2), ((1, 1), (2, 0))),
    "one": ((5, 7), (1, 1), ((0, 0), (0, 0))),
}


def shape_of(name):
    sizes, strides, pads = WINDOWS[name]
    return tuple(
        (n + low + high - k) // s + 1 for n, k, s, (low, high) in zip(X.shape, sizes, strides, pads)
    )


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("select, scatter", [("ge", "add"), ("lt", "max"), ("gt", "mul")])
@same
def test_select_and_scatter(S, name, select, scatter):
    sizes, strides, pads = WINDOWS[name]
    source = np.arange(1, np.prod(shape_of(name)) + 1, dtype="float32").reshape(shape_of(name))
    scalar = S.jax.ShapeDtypeStruct((), "float32")
    select, scatter = (S.jax.make_jaxpr(getattr(S.lax, f))(scalar, scalar) for f in (select, scatter))
    f = lambda x, source: S.lax.select_and_scatter_p.bind(  # noqa: E731
        x, source, np.float32(1), select_jaxpr=select.jaxpr, select_consts=(),
        scatter_jaxpr=scatter.jaxpr, scatter_consts=(), window_dimensions=sizes,
        window_strides=strides, padding=pads,
    )  # fmt: skip
    return S.jax.jit(f)(X, source)


@pytest.mark.parametrize(
    "window, strides, padding",
    [
        ((2, 3), (2, 3), "VALID"),
        ((2, 2), (3, 4), [(1, 2), (-1, 5)]),
        ((1, 3), (1, 3), "SAME"),
        ((3, 2), (2, 2), "VALID"),
        ((6, 2), (6, 2), "VALID"),
    ],
)
@same
def test_derivatives_of_sums(S, window, strides, padding):
    f = lambda x: (S.lax.reduce_window(x, 0.0, S.lax.add, window, strides, padding) ** 2).sum()  # noqa: E731
    return S.jax.jit(S.jax.grad(f))(X)
