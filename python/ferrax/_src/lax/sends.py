"""``lax.psend`` and ``lax.precv``: values that go from lane to lane of a named axis, in two halves.

All lanes run the same program, so whoever is sent to receives the same send: it is a ``ppermute``, whose values the
token holds until they are received. A token is a tree with these as leaves, so it goes through compiled functions,
loops, barriers and derivatives as they do, and nothing is received before it is sent.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.tokens import Sent, SentToken, Token
from ferrax._src.lax.parallel import _bound_names, _permutation, ppermute
from ferrax._src.tree import tree_util

__all__ = ["precv", "psend"]


def psend(x: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any:
    """Sends values from lane to lane along a named axis, for `precv` to receive.

    Args:
        x: a tree of arrays.
        axis_name: the axis, or a tuple of axes, whose lanes are counted as `axis_index` does.
        perm: pairs (source, destination), as for `ppermute`.

    Returns a token for each array, in a tree of the same structure. It holds the values, and is itself a tree that
    has them as its leaf. `after_all` makes one token of several.

    Errors: as for `ppermute`: NameError where no axis of that name is mapped over; AssertionError if pairs are
    missing over an axis of vmap, IndexError for lanes that there are none of, ValueError for lanes that come twice;
    TypeError for leaves that are no arrays.

    >>> ring = [(0, 1), (1, 2), (2, 0)]
    >>> turn = lambda x: lax.precv(lax.psend(x, "i", ring), x, "i", ring)
    >>> ferrax.vmap(turn, axis_name="i")(jnp.arange(3))
    Array([2, 0, 1], dtype=int32)
    """
    send = _send(axis_name, perm, "psend")
    return tree_util.tree_map(
        lambda leaf: SentToken((ppermute(leaf, send.axes, send.pairs),), (send,)), x
    )


def precv(token: Any, out_shape: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Array:
    """The array that was sent to this lane by `psend` along the same axis, with the same pairs.

    Args:
        token: what `psend` returned, or `after_all` of several such.
        out_shape: a `ShapeDtypeStruct`, or an array: shape and dtype of what was sent.
        axis_name: the axis, or a tuple of axes.
        perm: pairs (source, destination), those of `psend` in any order.

    Lanes of a mesh to which none sends get zeros. What is received again by the same token is the same again.

    Errors: TypeError for what is no token; ValueError for a token that no such send came before, or several;
    AttributeError for an `out_shape` without shape and dtype; those of `psend` for the axis and the pairs.

    >>> swap = [(0, 1), (1, 0)]
    >>> def swapped(x, n):
    ...     both = lax.after_all(lax.psend(x, "i", swap), lax.psend(n, "i", swap))
    ...     return lax.precv(both, ferrax.ShapeDtypeStruct((), jnp.int32), "i", swap)
    >>> ferrax.vmap(swapped, axis_name="i")(jnp.ones(2), jnp.array([5, 6]))
    Array([6, 5], dtype=int32)
    """
    if not isinstance(token, Token):
        raise TypeError(f"precv: expected the token that psend returned, got {token!r} of type {type(token)}")
    if not (hasattr(out_shape, "shape") and hasattr(out_shape, "dtype")):
        raise AttributeError(
            f"precv: out_shape has to have shape and dtype, got {out_shape!r} of type {type(out_shape)}; pass a "
            "ShapeDtypeStruct, and call precv for each token of a tree"
        )
    send, shape = _send(axis_name, perm, "precv"), tuple(out_shape.shape)
    dtype = dtypes.canonicalize_dtype(out_shape.dtype)
    sent = list(zip(token.values, token.sends, strict=True)) if isinstance(token, SentToken) else []
    found = [x for x, by in sent if by == send and tuple(x.shape) == shape and x.dtype == dtype]
    if len(found) == 1:
        return found[0]
    wanted = _described(dtype, shape, send)
    held = "; ".join(_described(x.dtype, tuple(x.shape), by) for x, by in sent) or "nothing"
    count = "no send" if not found else f"{len(found)} sends, of which it cannot tell which is meant"
    raise ValueError(
        f"precv: expected a token that one psend of {wanted} came before, got one of {held}: {count}. Pass the token "
        "that this psend returned, and the same axis, pairs, shape and dtype"
    )


def _send(axis_name: Hashable, perm: Sequence[tuple[int, int]], function: str) -> Sent:
    names = _bound_names(axis_name, function)
    return Sent(names, tuple(sorted(_permutation(perm, names, function))))


def _described(dtype: Any, shape: tuple[int, ...], send: Sent) -> str:
    return f"{dtype}[{','.join(map(str, shape))}] over {send.axes} by {list(send.pairs)}"
