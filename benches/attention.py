"""Attention of 8 heads over 1024 places of 64 floats: `dot_product_attention` and the written-out
pattern, their derivatives, and the memory of these by the number of places.

`python benches/attention.py LIBRARY LENGTH FORM` prints the bytes by which the resident memory peaks while
the derivative over so many places runs, of the function or of the pattern "written out".
"""

from __future__ import annotations

import functools

import numpy as np
from memory import peak, peak_in_a_process, print_peak
from timing import Row, case, pulled_back

TITLE = "Attention"
GOAL = 3.0
BATCH, HEADS, LENGTH, WIDTH = 1, 8, 1024, 64


def _arrays(count, length=LENGTH, heads_first=False):
    shape = (BATCH, HEADS, length, WIDTH) if heads_first else (BATCH, length, HEADS, WIDTH)
    random = np.random.default_rng(0)
    return [random.standard_normal(shape, np.float32) for _ in range(count)]


def _attention(library, q, k, v, **options):
    """[batch, places, heads, width]"""
    return library.jax.nn.dot_product_attention(q, k, v, **options)


def _causal(library, q, k, v):
    return _attention(library, q, k, v, is_causal=True)


def _written_out(library, q, k, v):
    """[batch, heads, places, width]"""
    jax, jnp = library.jax, library.jnp
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * WIDTH**-0.5
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def _np_heads_first(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) * np.float32(WIDTH**-0.5)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def _np_attention(q, k, v):
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    return _np_heads_first(q, k, v).transpose(0, 2, 1, 3)


def _t_heads_first(t, q, k, v, **options):
    return t.nn.functional.scaled_dot_product_attention(q, k, v, **options)


def _t_attention(t, q, k, v, **options):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return _t_heads_first(t, q, k, v, **options).transpose(1, 2)


def _t_causal(t, q, k, v):
    return _t_attention(t, q, k, v, is_causal=True)


def _row(name, arrays, function, **more):
    return case(name, arrays, function, unit="ms", goal=GOAL, **more)


def _peak(library, length, form):
    """Of the derivative by all three operands."""
    heads_first = form == "written out"
    arrays = [library.jax.device_put(x) for x in _arrays(4, length, heads_first)]
    run = functools.partial(pulled_back(_written_out if heads_first else _attention, 3), library)
    return peak(library.jax.jit(run).lower(*arrays).compile(), library, arrays)


def _growth(form, found):
    """By how much more than in proportion: twice the places take twice the memory, or four times."""
    figures = {}
    for name in found:
        short, long = (peak_in_a_process(__file__, name, length, form) for length in (2048, 4096))
        figures[name] = long / short
    return figures


ROWS = [
    _row("attention, 1×8×1024×64", _arrays(3), _attention, numpy=_np_attention, torch=_t_attention),
    _row("gradient of the attention", _arrays(4), _attention, gradient=3, torch=_t_attention),
    _row("causal attention", _arrays(3), _causal, torch=_t_causal),
    _row("gradient of the causal attention", _arrays(4), _causal, gradient=3, torch=_t_causal),
    _row("attention, written out", _arrays(3, heads_first=True), _written_out, numpy=_np_heads_first,
         torch=_t_heads_first),
    _row("gradient of the written-out one", _arrays(4, heads_first=True), _written_out, gradient=3,
         torch=_t_heads_first),
    Row("growth of its memory from 2048 to 4096 places", "", 2.5, functools.partial(_growth, "written out")),
    Row("the same of `dot_product_attention`", "", 2.5, functools.partial(_growth, "function")),
]  # fmt: skip

if __name__ == "__main__":
    print_peak(_peak)
