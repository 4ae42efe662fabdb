"""Functions that reduce the rows of a matrix and come back to each element, and their derivatives."""

from __future__ import annotations

import numpy as np
from timing import case

TITLE = "Normalisation of rows"
GOAL = 4.0
LINES, WIDTH = 1000, 1000
TOKENS, WORDS = 1024, 8192

_random = np.random.default_rng(0)
X, COTANGENT = (_random.standard_normal((LINES, WIDTH), np.float32) for _ in range(2))
GAIN, BIAS = (_random.standard_normal(WIDTH, np.float32) for _ in range(2))
LOGITS = _random.standard_normal((TOKENS, WORDS), np.float32)
LABELS = _random.integers(0, WORDS, TOKENS).astype(np.int32)
NARROW, NARROW_COTANGENT = (_random.standard_normal((8192, 128), np.float32) for _ in range(2))


def _softmax(library, x):
    return library.jax.nn.softmax(x, axis=-1)


def _log_softmax(library, x):
    return library.jax.nn.log_softmax(x, axis=-1)


def _logsumexp(library, x):
    return library.jax.nn.logsumexp(x, axis=-1)


def _layer_norm(library, x, gain, bias):
    jnp = library.jnp
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * gain + bias


def _rms_norm(library, x, gain):
    jnp = library.jnp
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * gain


def _cross_entropy(library, logits, labels):
    """The mean over the tokens."""
    logarithms = library.jax.nn.log_softmax(logits, axis=-1)
    return -library.jnp.mean(library.jnp.take_along_axis(logarithms, labels[:, None], axis=-1))


# NumPy and PyTorch


def _np_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _np_logsumexp(x):
    top = x.max(-1, keepdims=True)
    return (np.log(np.exp(x - top).sum(-1, keepdims=True)) + top)[..., 0]


def _np_log_softmax(x):
    return x - _np_logsumexp(x)[..., None]


def _np_cross_entropy(logits, labels):
    return -np.mean(np.take_along_axis(_np_log_softmax(logits), labels[:, None], axis=-1))


def _t_layer_norm(t, x, gain, bias):
    return t.nn.functional.layer_norm(x, (x.shape[-1],), gain, bias, 1e-5)


def _t_rms_norm(t, x, gain):
    return t.nn.functional.rms_norm(x, (x.shape[-1],), gain, 1e-6)


def _t_cross_entropy(t, logits, labels):
    return t.nn.functional.cross_entropy(logits, labels.long())


def _t_softmax(t, x):
    return t.softmax(x, -1)


def _t_log_softmax(t, x):
    return t.log_softmax(x, -1)


def _t_logsumexp(t, x):
    return t.logsumexp(x, -1)


def _row(name, arrays, function, **more):
    return case(name, arrays, function, goal=GOAL, **more)


ROWS = [
    _row("`softmax` of 1000×1000", [X], _softmax, numpy=_np_softmax, torch=_t_softmax),
    _row("gradient of this `softmax`", [X, COTANGENT], _softmax, gradient=1, torch=_t_softmax),
    _row("`softmax` of 8192×128", [NARROW], _softmax, numpy=_np_softmax, torch=_t_softmax),
    _row("gradient of the latter", [NARROW, NARROW_COTANGENT], _softmax, gradient=1, torch=_t_softmax),
    _row("`log_softmax` of 1000×1000", [X], _log_softmax, numpy=_np_log_softmax, torch=_t_log_softmax),
    _row("gradient of the `log_softmax`", [X, COTANGENT], _log_softmax, gradient=1, torch=_t_log_softmax),
    _row("`logsumexp` of 1000×1000", [X], _logsumexp, numpy=_np_logsumexp, torch=_t_logsumexp),
    _row("layer norm of 1000×1000", [X, GAIN, BIAS], _layer_norm, numpy=True, torch=_t_layer_norm),
    _row("gradient of the layer norm", [X, GAIN, BIAS, COTANGENT], _layer_norm, gradient=3,
         torch=_t_layer_norm),
    _row("RMS norm of 1000×1000", [X, GAIN], _rms_norm, numpy=True, torch=_t_rms_norm),
    _row("gradient of the RMS norm", [X, GAIN, COTANGENT], _rms_norm, gradient=2, torch=_t_rms_norm),
    _row("cross-entropy of 1024 tokens of 8192 words", [LOGITS, LABELS], _cross_entropy,
         numpy=_np_cross_entropy, torch=_t_cross_entropy),
    _row("gradient of the cross-entropy", [LOGITS, LABELS, np.float32(1)], _cross_entropy, gradient=1,
         torch=_t_cross_entropy),
]  # fmt: skip
