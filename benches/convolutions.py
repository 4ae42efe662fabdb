"""Convolutions: whole, their derivatives, in loops, depthwise, along one axis; first calls."""

from __future__ import annotations

import numpy as np
from timing import case, timed_once

TITLE = "Convolutions"

NHWC = ("NHWC", "HWIO", "NHWC")


def _normal(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _conv(library, x, w, **options):
    numbers = options.pop("numbers", NHWC)
    ones = (1,) * (x.ndim - 2)
    conv = library.jax.lax.conv_general_dilated
    return conv(x, w, ones, "SAME", dimension_numbers=numbers, **options)


def _gradient(argument, **options):
    """The derivative by one operand, for a cotangent."""

    def function(library, x, w, ct):
        operands = [x, w]

        def of(value):
            operands[argument] = value
            return _conv(library, *operands, **options)

        return library.jax.vjp(of, operands[argument])[1](ct)

    return function


# PyTorch's arrays have features first; these take JAX's order, and strides as they are.


def _images_first(x):
    return x.permute(0, 3, 1, 2)


def _window_first(w):
    return w.permute(3, 2, 0, 1)


def _t_conv(groups=1):
    def run(t, x, w):
        convolve = t.nn.functional.conv2d
        result = convolve(_images_first(x), _window_first(w), padding="same", groups=groups)
        return result.permute(0, 2, 3, 1)

    return run


def _t_by_images(groups=1):
    def run(t, x, w, ct):
        x, w, ct = _images_first(x), _window_first(w), _images_first(ct)
        result = t.nn.grad.conv2d_input(x.shape, w, ct, padding=1, groups=groups)
        return result.permute(0, 2, 3, 1)

    return run


def _t_by_window(groups=1):
    def run(t, x, w, ct):
        x, w, ct = _images_first(x), _window_first(w), _images_first(ct)
        result = t.nn.grad.conv2d_weight(x, w.shape, ct, padding=1, groups=groups)
        return result.permute(2, 3, 1, 0)

    return run


def _t_loop(t, x, w):
    convolve = _t_conv()
    return sum(convolve(t, x + i, w).mean() for i in range(4))


def _loop(library, x, w):
    def step(i, total):
        return total + _conv(library, x + i, w).mean()

    return library.jax.lax.fori_loop(0, 4, step, library.jnp.float32(0))


def _first(library):
    x, w = (library.jax.device_put(_normal(*shape)) for shape in ((4, 16, 16, 8), (3, 3, 8, 16)))
    run = library.jax.jit(lambda x, w: _conv(library, x, w))
    return lambda: library.jax.block_until_ready(run(x, w))


IMAGES, WINDOW, RESULT = (32, 64, 64, 32), (3, 3, 32, 64), (32, 64, 64, 64)
DEPTHWISE = {"feature_group_count": 32}
FEATURES_FIRST = {"numbers": ("NCHW", "OIHW", "NCHW")}
ALONG = {"numbers": ("NCW", "OIW", "NCW")}


def _row(name, function, torch, *shapes):
    arrays = [_normal(*shape) for shape in shapes]
    return case(name, arrays, function, torch=torch, unit="ms", rounds=3, samples=1)


ROWS = [
    _row("3×3 convolution, 32×64×64×32 to 64 features", _conv, _t_conv(), IMAGES, WINDOW),
    _row("its derivative by the images", _gradient(0), _t_by_images(), IMAGES, WINDOW, RESULT),
    _row("its derivative by the window", _gradient(1), _t_by_window(), IMAGES, WINDOW, RESULT),
    _row("4 of an eighth of it in `fori_loop`", _loop, _t_loop, (4, 64, 64, 32), WINDOW),
    _row("3×3 convolution, features first", lambda lib, x, w: _conv(lib, x, w, **FEATURES_FIRST),
         lambda t, x, w: t.nn.functional.conv2d(x, w, padding=1), (32, 32, 64, 64), (64, 32, 3, 3)),
    _row("depthwise 3×3 convolution, 32×64×64×32", lambda lib, x, w: _conv(lib, x, w, **DEPTHWISE),
         _t_conv(32), IMAGES, (3, 3, 1, 32)),
    _row("derivative of the depthwise one by the images", _gradient(0, **DEPTHWISE), _t_by_images(32),
         IMAGES, (3, 3, 1, 32), IMAGES),
    _row("derivative of the depthwise one by the window", _gradient(1, **DEPTHWISE), _t_by_window(32),
         IMAGES, (3, 3, 1, 32), IMAGES),
    _row("convolution along an axis, 16×64×4096, window 7", lambda lib, x, w: _conv(lib, x, w, **ALONG),
         lambda t, x, w: t.nn.functional.conv1d(x, w, padding=3), (16, 64, 4096), (64, 64, 7)),
    timed_once("first call of a convolution", "ms", None, _first, rounds=3),
]  # fmt: skip
