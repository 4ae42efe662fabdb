"""Sums of products over bounded values: products of arrays, convolutions, windows, transforms, linear systems."""

import math
from types import SimpleNamespace

import numpy as np

from .bounds import UNIT, Bounded, moved, multiplied, promoted, rounded
from .reference_elementwise import maximum, multiply, where
from .reference_rows import norm, softmax


def matmul(a, b, preferred_element_type=None):
    return multiplied(np.matmul, a, b, a.shape[-1], preferred_element_type)


def tensordot(a, b, axes):
    terms = math.prod(a.shape[-axes:]) if isinstance(axes, int) else math.prod(a.shape[i] for i in axes[0])
    return multiplied(lambda x, y: np.tensordot(x, y, axes), a, b, terms)


def einsum(text, a, b, preferred_element_type=None):
    left, _, result = text.partition("->")
    extents = {}
    for letters, one in zip(left.split(","), (a, b)):
        extents |= dict(zip(letters, one.shape))
    terms = math.prod(size for letter, size in extents.items() if letter not in result)
    return multiplied(lambda x, y: np.einsum(text, x, y, optimize=True), a, b, terms, preferred_element_type)


def dot_general(a, b, dimension_numbers, preferred_element_type=None):
    (over_a, over_b), (batch_a, batch_b) = dimension_numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_a, of_b = [next(letters) for _ in a.shape], [next(letters) for _ in b.shape]
    for i, j in (*zip(over_a, over_b), *zip(batch_a, batch_b)):
        of_b[j] = of_a[i]
    result = [of_a[i] for i in batch_a]
    result += [one for i, one in enumerate(of_a) if i not in (*over_a, *batch_a)]
    result += [one for j, one in enumerate(of_b) if j not in (*over_b, *batch_b)]
    return einsum(f"{''.join(of_a)},{''.join(of_b)}->{''.join(result)}", a, b, preferred_element_type)


def outer(a, b):
    return multiply(a.reshape(-1, 1), b.reshape(1, -1))


def vdot(a, b):
    return einsum("a,a->", a.conj().reshape(-1), b.reshape(-1))


def attention(query, key, value, is_causal=False):
    """`jax.nn.dot_product_attention` of (batch, rows, heads, features)."""
    scores = multiply(einsum("bqhd,bkhd->bhqk", query, key), 1 / math.sqrt(query.shape[-1]))
    if is_causal:
        rows, columns = np.ogrid[: scores.shape[-2], : scores.shape[-1]]
        scores = where(Bounded(rows >= columns, 0.0, "bool"), scores, -1e30 if query.dtype != "float16" else -3e4)
    return einsum("bhqk,bkhd->bqhd", softmax(scores, -1), value)


def same_padding(extents, sizes, strides):
    """The padding by which a result has an element for each step of its operand."""
    pairs = []
    for extent, size, stride in zip(extents, sizes, strides):
        over = max((-(-extent // stride) - 1) * stride + size - extent, 0)
        pairs.append((over // 2, over - over // 2))
    return pairs


def patches(v, sizes, strides, dilation):
    """Windows of the trailing axes of an array, which follow as axes of their own."""
    rank = len(sizes)
    spans = [(size - 1) * step + 1 for size, step in zip(sizes, dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(v, spans, axis=tuple(range(v.ndim - rank, v.ndim)))
    return windows[(..., *(slice(None, None, s) for s in strides), *(slice(None, None, d) for d in dilation))]


def conv(x, w, window_strides, padding, rhs_dilation=None, dimension_numbers=None, feature_group_count=1):
    rank = x.ndim - 2
    if dimension_numbers is not None and dimension_numbers[0][-1] == "C":
        x, w = moved(np.moveaxis)(x, -1, 1), moved(np.transpose)(w, (rank + 1, rank, *range(rank)))
        result = conv(x, w, window_strides, padding, rhs_dilation, None, feature_group_count)
        return moved(np.moveaxis)(result, 1, -1)
    dilation = rhs_dilation or (1,) * rank
    spans = [(size - 1) * step + 1 for size, step in zip(w.shape[2:], dilation)]
    if isinstance(padding, str):
        padding = same_padding(x.shape[2:], spans, window_strides) if padding == "SAME" else ((0, 0),) * rank
    groups = feature_group_count

    def product(p, q):
        p = np.pad(p, ((0, 0), (0, 0), *padding))
        windows = patches(p, q.shape[2:], window_strides, dilation)
        parts = []
        for number in range(groups):
            each, made_of = p.shape[1] // groups, q.shape[0] // groups
            taken = windows[:, number * each : (number + 1) * each]
            filters = q[number * made_of : (number + 1) * made_of]
            axes = ([1, *range(-rank, 0)], range(1, q.ndim))
            parts.append(np.moveaxis(np.tensordot(taken, filters, axes), -1, 1))
        return np.concatenate(parts, 1)

    return multiplied(product, x, w, math.prod(w.shape[1:]))


def reduce_window(x, start, computation, sizes, strides, padding):
    """Of maxima and of sums."""
    if isinstance(padding, str):
        padding = same_padding(x.shape, sizes, strides) if padding == "SAME" else ((0, 0),) * x.ndim

    def of(v, filler, function):
        padded = np.pad(v, padding, constant_values=filler)
        return function(patches(padded, sizes, strides, (1,) * x.ndim), axis=tuple(range(-x.ndim, 0)))

    if computation is maximum:
        return Bounded(of(x.value, start, np.max), of(x.errors(), 0.0, np.max) if x.inexact() else 0.0, x.dtype)
    error = of(x.errors(), 0.0, np.sum) if x.inexact() else 0.0
    units = math.prod(sizes) + 2.0  # one term after the other, in the operand's dtype
    size = of(np.abs(x.value), 0.0, np.sum)
    return rounded(of(x.value, 0.0, np.sum), error + units * UNIT[x.dtype] * size, x.dtype, 1.0)


COMPLEX_OF = {"float64": "complex128", "complex128": "complex128"}


def fourier(name):
    """Errors are those of the line's norm (Higham, chapter 24); each term adds its own."""
    function, inverse = getattr(np.fft, name), name.startswith("i")

    def apply(x, axis=-1):
        dtype = COMPLEX_OF.get(x.dtype, "complex64")
        dtype = {"complex64": "float32", "complex128": "float64"}[dtype] if name == "irfft" else dtype
        value, terms = function(x.value, axis=axis), max(x.shape[axis], 1)
        scale = 2.0 / terms if inverse else 1.0
        size = np.sqrt(np.sum(np.abs(x.value) ** 2, axis=axis, keepdims=True))
        error = np.sum(x.errors(), axis=axis, keepdims=True) if x.inexact() else 0.0
        units = 16 + 8 * math.log2(terms + 1)
        error = np.broadcast_to(scale * (error + units * UNIT[dtype] * size), value.shape)
        return rounded(value, error, dtype, 2.0)

    return apply


def solve(a, b):
    """By the bound of Gaussian elimination with pivots, componentwise (Higham, chapter 9)."""
    dtype, n = promoted(a.dtype, b.dtype), a.shape[-1]
    value, inverse = np.linalg.solve(a.value, b.value), np.abs(np.linalg.inv(a.value))
    size = inverse @ (np.abs(a.value) @ np.abs(value))
    error = 1.5 * (inverse @ (a.errors() @ np.abs(value) + b.errors()))
    return rounded(value, error + 16 * n * UNIT[dtype] * size, dtype, 2.0)


def inv(a):
    return solve(a, Bounded(np.broadcast_to(np.eye(a.shape[-1]), a.shape), 0.0, a.dtype))


def det(a):
    value, inverse = np.linalg.det(a.value), np.abs(np.linalg.inv(a.value))
    n = a.shape[-1]
    size = a.errors() + 16 * n * UNIT[a.dtype] * np.abs(a.value)
    change = np.sum(np.swapaxes(inverse, -1, -2) * size, axis=(-1, -2))
    return rounded(value, 2 * change * np.abs(value), a.dtype, 2.0 + n)


def cholesky(a):
    """Of matrices that are far from singular: by their condition numbers (Higham, chapter 10)."""
    value, n = np.linalg.cholesky(a.value), a.shape[-1]
    condition = np.linalg.cond(a.value)[..., None, None]
    change = a.errors().sum(axis=(-1, -2), keepdims=True) / np.linalg.norm(a.value, axis=(-1, -2), keepdims=True)
    largest = np.abs(value).max(axis=(-1, -2), keepdims=True)
    relative = (2 * change + 16 * n * UNIT[a.dtype]) * condition
    return rounded(value, np.broadcast_to(relative * largest, value.shape), a.dtype, 2.0)


def singular_values(a, compute_uv):
    value, units = np.linalg.svd(a.value, compute_uv=compute_uv), 32.0 * max(a.shape[-2:])
    change = np.sqrt(np.sum(a.errors() ** 2, axis=(-1, -2)))[..., None]
    return rounded(value, change + units * UNIT[a.dtype] * value.max(-1, keepdims=True) + 0 * value, a.dtype, 2.0)


def eigenvalues(a):
    value, units = np.linalg.eigvalsh(a.value), 32.0 * a.shape[-1]
    change = np.sqrt(np.sum(a.errors() ** 2, axis=(-1, -2)))[..., None]
    largest = np.abs(value).max(-1, keepdims=True)
    return rounded(value, change + units * UNIT[a.dtype] * largest + 0 * value, a.dtype, 2.0)


JNP = {
    "matmul": matmul, "tensordot": tensordot, "einsum": einsum, "outer": outer, "vdot": vdot,
    "linalg": SimpleNamespace(solve=solve, inv=inv, det=det, cholesky=cholesky, svd=singular_values, norm=norm,
                              eigvalsh=eigenvalues),
    "fft": SimpleNamespace(**{name: fourier(name) for name in ("fft", "ifft", "rfft", "irfft")}),
}  # fmt: skip
LAX = {"conv_general_dilated": conv, "reduce_window": reduce_window, "dot_general": dot_general}
NN = {"dot_product_attention": attention}
Bounded.__matmul__ = matmul
