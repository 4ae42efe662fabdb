"""`check_grads` and its parts: derivatives compared with central differences.

The directions are random but fixed, so a check gives the same result each time. Differences are
most telling in float64: run checks under `enable_x64`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src.base import dtypes
from ferrax._src.transforms.autodiff import jvp, vjp
from ferrax._src.tree import tree_util

_TOLERANCE = {2: 1e-1, 4: 1e-2, 8: 1e-5}
_STEP = {2: 1e-1, 4: 1e-3, 8: 1e-5}


def _accurate(tree) -> int:
    """The bytes of the least accurate real component among the leaves."""
    sizes = [8]
    for leaf in tree_util.tree_leaves(tree):
        dtype = np.dtype(dtypes.dtype(leaf))
        if dtypes.issubdtype(dtype, np.complexfloating):
            sizes.append(dtype.itemsize // 2)
        elif dtypes.issubdtype(dtype, np.floating):
            sizes.append(max(dtype.itemsize, 2))
    return min(sizes)


def _is_inexact(leaf) -> bool:
    dtype = dtypes.dtype(leaf)
    return not dtypes.issubdtype(dtype, dtypes.extended) and dtypes.issubdtype(dtype, np.inexact)


def _random_like(rng, tree):
    """Normal random values of the leaves' shapes and dtypes; float0 for integers."""

    def one(leaf):
        shape, dtype = np.shape(leaf), dtypes.dtype(leaf)
        if not _is_inexact(leaf):
            return np.zeros(shape, dtypes.float0)
        values = rng.standard_normal(shape)
        if dtypes.issubdtype(dtype, np.complexfloating):
            values = values + 1j * rng.standard_normal(shape)
        return np.asarray(values).astype(dtype)

    return tree_util.tree_map(one, tree)


def _wide(leaf):
    array = np.asarray(leaf)
    if array.dtype == dtypes.float0:
        return np.zeros(array.shape)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _compare(ours, expected, rtol, atol, message):
    expected_leaves, expected_tree = tree_util.tree_flatten(expected)
    leaves, tree = tree_util.tree_flatten(ours)
    if tree != expected_tree:
        raise AssertionError(f"{message}: got a tree {tree}, expected {expected_tree}")
    for index, (leaf, wanted) in enumerate(zip(leaves, expected_leaves)):
        np.testing.assert_allclose(
            _wide(leaf), _wide(wanted), rtol=rtol, atol=atol, err_msg=f"{message} (leaf {index})"
        )


def _moved(args, tangents, step):
    def one(leaf, tangent):
        if not _is_inexact(leaf):
            return leaf
        moved = _wide(leaf) + step * _wide(tangent)
        return np.asarray(moved).astype(dtypes.dtype(leaf))

    return tree_util.tree_map(one, args, tangents)


def _numerical_jvp(f, args, tangents, eps):
    after, before = f(*_moved(args, tangents, eps)), f(*_moved(args, tangents, -eps))

    def one(a, b):
        if not _is_inexact(a):
            return np.zeros(np.shape(a), dtypes.float0)
        return (_wide(a) - _wide(b)) / (2 * eps)

    return tree_util.tree_map(one, after, before)


def _inner(xs, ys):
    """The real inner product of two trees, without conjugation: the pairing of vjp and jvp."""
    total = 0.0
    for x, y in zip(tree_util.tree_leaves(xs), tree_util.tree_leaves(ys)):
        total = total + np.sum(_wide(x) * _wide(y))
    return np.real(total)


def _settings(args, atol, rtol, eps):
    width = _accurate(args)
    default = _TOLERANCE[width]
    return (
        default if atol is None else atol,
        default if rtol is None else rtol,
        _STEP[width] if eps is None else eps,
    )


def check_jvp(
    f: Any, f_jvp: Callable[..., Any], args: Any, atol: float | None = None,
    rtol: float | None = None, eps: Any = None, err_msg: str = "",
) -> None:
    """Checks a forward derivative against central differences along a random direction.

    Args:
        f_jvp: takes primals and tangents, returns `(output, output tangent)`, like
            `functools.partial(ferrax.jvp, f)`.
        args: the point, a sequence of trees of arrays.
        eps: the step of the differences.
        atol, rtol: the tolerances.
        err_msg: what messages begin with.

    Errors: AssertionError where they differ by more than `atol` and `rtol`.

    >>> import functools
    >>> ferrax.test_util.check_jvp(jnp.sin, functools.partial(ferrax.jvp, jnp.sin), (0.5,))
    """
    atol, rtol, eps = _settings(args, atol, rtol, eps)
    args = tuple(args)
    tangents = _random_like(np.random.default_rng(0), args)
    out, out_tangent = f_jvp(args, tangents)
    prefix = f"{err_msg}: " if err_msg else ""
    _compare(out, f(*args), rtol, atol, f"{prefix}JVP primal")
    expected = _numerical_jvp(f, args, tangents, eps)
    _compare(out_tangent, expected, rtol, atol, f"{prefix}JVP tangent")


def check_vjp(
    f: Any, f_vjp: Callable[..., Any], args: Any, atol: float | None = None,
    rtol: float | None = None, eps: Any = None, err_msg: str = "",
) -> None:
    """Checks a reverse derivative against central differences: both sides of `<ct, J t>`.

    Args:
        f_vjp: takes primals, returns `(output, pullback)`, like
            `functools.partial(ferrax.vjp, f)`.

    Errors: AssertionError where they differ by more than `atol` and `rtol`.
    Args: f: the function; args, eps, atol, rtol, err_msg: as for `check_jvp`.

    >>> import functools
    >>> ferrax.test_util.check_vjp(jnp.sin, functools.partial(ferrax.vjp, jnp.sin), (0.5,))
    """
    atol, rtol, eps = _settings(args, atol, rtol, eps)
    args = tuple(args)
    rng = np.random.default_rng(1)
    tangents = _random_like(rng, args)
    out, pull = f_vjp(*args)
    prefix = f"{err_msg}: " if err_msg else ""
    _compare(out, f(*args), rtol, atol, f"{prefix}VJP primal")
    expected = _numerical_jvp(f, args, tangents, eps)
    cotangents = _random_like(rng, out)
    pulled = pull(cotangents)
    np.testing.assert_allclose(
        _inner(pulled, tangents),
        _inner(cotangents, expected),
        rtol=rtol,
        atol=atol,
        err_msg=f"{prefix}VJP cotangent projection",
    )


def check_grads(
    f: Any, args: Any, order: int, modes: str | Sequence[str] = ("fwd", "rev"),
    atol: float | None = None, rtol: float | None = None, eps: Any = None,
) -> None:
    """Checks the derivatives of `f` at `args` against central differences, up to `order`.

    Args:
        f: a differentiable function of `args`, with a tree of arrays as output.
        order: how many derivatives to check, each as a function of the one before.
        modes: "fwd" for `jvp`, "rev" for `vjp`, or both (then all mixtures).
        atol, rtol, eps: tolerances and step; the defaults follow the arguments' accuracy.

    Errors: AssertionError at the first derivative that is wrong.

    Example:
        >>> ferrax.test_util.check_grads(jnp.sin, (0.5,), order=2)
    """
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    for mode in modes:
        if mode not in ("fwd", "rev"):
            raise ValueError(f"check_grads: modes are 'fwd' and 'rev', got {mode!r}")
    args = tuple(args)
    atol, rtol, eps = _settings(args, atol, rtol, eps)

    def check(fun, point, left, name):
        if "fwd" in modes:
            push = functools.partial(jvp, fun)
            check_jvp(fun, push, point, atol, rtol, eps, f"{name}fwd")
            if left > 1:
                tangents = _random_like(np.random.default_rng(left), point)
                check(
                    lambda *xs: _without_float0(jvp(fun, xs, tangents)),
                    point,
                    left - 1,
                    f"{name}fwd-",
                )
        if "rev" in modes:
            pull = functools.partial(vjp, fun)
            check_vjp(fun, pull, point, atol, rtol, eps, f"{name}rev")
            if left > 1:
                cotangents = _random_like(np.random.default_rng(left), fun(*point))

                def derivative(*xs):
                    out, back = vjp(fun, *xs)
                    return _without_float0((out, back(cotangents)))

                check(derivative, point, left - 1, f"{name}rev-")

    check(f, args, order, "")


def _without_float0(tree):
    return tree_util.tree_map(
        lambda leaf: None if dtypes.dtype(leaf) == dtypes.float0 else leaf, tree
    )
