"""Derivatives with respect to sparse arrays: with respect to their stored elements.

A gradient is a sparse array with the same indices. The functions are those of the same names for dense
arrays, of a function of flat arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import api_util
from ferrax._src.sparse.base import is_sparse
from ferrax._src.transforms import autodiff, jacobians
from ferrax._src.transforms.batching import vmap
from ferrax._src.tree import tree_util


def _flat(fun, argnums, args):
    """`fun` of flat buffers, which of them to differentiate in, these buffers, and how to make of
    derivatives trees like the arguments."""
    single = isinstance(argnums, int) or not isinstance(argnums, (tuple, list))
    numbers = [int(number) for number in ((argnums,) if single else argnums)]
    numbers = [number + len(args) if number < 0 else number for number in numbers]
    if not all(0 <= number < len(args) for number in numbers):
        raise ValueError(f"argnums {argnums} are not among the {len(args)} positional arguments")
    leaves, tree = tree_util.tree_flatten(args, is_leaf=is_sparse)
    buffers, inner = tree_util.tree_flatten(leaves)
    wanted_leaves, places = [], []
    leaf_number = buffer_number = 0
    for number, argument in enumerate(args):
        for leaf in tree_util.tree_leaves(argument, is_leaf=is_sparse):
            if number in numbers:
                wanted_leaves.append(leaf_number)
                # The first buffer of a sparse array are its elements.
                places.append(buffer_number)
            leaf_number += 1
            buffer_number += len(tree_util.tree_leaves(leaf))

    def flat(*buffers, **kwargs):
        return fun(*tree.unflatten(inner.unflatten(buffers)), **kwargs)

    def restored(derivatives, extra=0):
        found: list[Any] = [None] * len(leaves)
        for leaf, derivative in zip(wanted_leaves, derivatives):
            own, own_tree = tree_util.tree_flatten(leaves[leaf])
            make = lambda g, own=own, own_tree=own_tree: own_tree.unflatten([g, *own[1:]])  # noqa: E731
            for _ in range(derivative.ndim - own[0].ndim):
                make = vmap(make)
            found[leaf] = make(derivative)
        whole = tree.unflatten(found)
        return whole[numbers[0]] if single else tuple(whole[number] for number in numbers)

    return flat, tuple(places), buffers, restored


def _derived(name, dense, fun, argnums, has_aux, settings, with_value=False):
    """The function `name`, which is `dense` where nothing is sparse."""

    @api_boundary
    @functools.wraps(fun)
    def derived(*args: Any, **kwargs: Any) -> Any:
        flat, places, buffers, restored = _flat(fun, argnums, args)
        result = dense(flat, argnums=places, has_aux=has_aux, **settings)(*buffers, **kwargs)
        if with_value:
            return result[0], restored(result[1])
        if has_aux:
            return restored(result[0]), result[1]
        return restored(result)

    derived.__name__ = f"{name}_of_{api_util.fun_name(fun)}"
    return derived


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `ferrax.value_and_grad`, also with respect to sparse arrays.

    Args: fun, argnums, has_aux, kwargs: as for `ferrax.value_and_grad`. The gradient with respect to a sparse
    array has its indices.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 1.0, 2.0]))
    >>> value, gradient = sparse.value_and_grad(lambda m: m @ jnp.ones(3))(m)
    >>> value, gradient
    (Array(3., dtype=float32), BCOO(float32[3], nse=2))
    """
    return _derived("value_and_grad", autodiff.value_and_grad, fun, argnums, has_aux, kwargs, True)


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `ferrax.grad`, also with respect to sparse arrays.

    Args: fun, argnums, has_aux, kwargs: as for `value_and_grad`.

    >>> from ferrax.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 1.0, 2.0]))
    >>> sparse.grad(lambda m: m @ jnp.ones(3))(m).data
    Array([1., 1.], dtype=float32)
    """
    return _derived("grad", autodiff.grad, fun, argnums, has_aux, kwargs)


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `ferrax.jacfwd`, also with respect to sparse arrays; results of `fun` are dense.

    Args: fun, argnums, has_aux, kwargs: as for `ferrax.jacfwd`. Jacobians with respect to a sparse array
    have its indices, repeated along the axes of the result, which are batch axes.

    >>> from ferrax.experimental import sparse
    >>> sparse.jacfwd(lambda m: m @ jnp.ones((3, 2)))(sparse.eye(3)).shape
    (3, 2, 3, 3)
    """
    return _derived("jacfwd", jacobians.jacfwd, fun, argnums, has_aux, kwargs)


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, **kwargs: Any
) -> Callable[..., Any]:
    """As `ferrax.jacrev`, also with respect to sparse arrays; results of `fun` are dense.

    Args: fun, argnums, has_aux, kwargs: as for `jacfwd`.

    >>> from ferrax.experimental import sparse
    >>> sparse.jacrev(lambda m: m @ jnp.ones((3, 2)))(sparse.eye(3)).shape
    (3, 2, 3, 3)
    """
    return _derived("jacrev", jacobians.jacrev, fun, argnums, has_aux, kwargs)


jacobian = jacrev
