"""Arrays put on devices and taken from them. There is one device, the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.core import transfers
from ferrax._src.core.devices import Device
from ferrax._src.core.sharding import Sharding
from ferrax._src.tree import tree_util


def block_until_ready(x: Any) -> Any:
    """Waits for all arrays of a tree, which on this backend are ready at once. Returns the tree.

    Args: x: any tree.

    >>> ferrax.block_until_ready({"a": jnp.arange(3)})
    {'a': Array([0, 1, 2], dtype=int32)}
    """
    return tree_util.tree_map(lambda leaf: getattr(leaf, "block_until_ready", lambda: leaf)(), x)


copy_to_host_async = block_until_ready


def device_put(
    x: Any, device: Any = None, src: Any = None, *, donate: bool = False, may_alias: Any = None,
) -> Any:
    """The leaves of a tree as arrays on the device. There is one device, the CPU.

    Args:
        device, src: where to and where from: None, a device, a sharding, or a tree of these above
            the leaves.
        donate: whether the memory of arrays may be reused, for which there is no need here: without
            `may_alias=False` an array is its own result.
        may_alias: False for results that share no memory with `x`.

    Errors: ValueError for other places and trees, and for `donate` with `may_alias`.
    x: a tree of arrays and scalars.

    >>> ferrax.device_put({"a": np.float32(1.0)}, ferrax.devices()[0])
    {'a': Array(1., dtype=float32)}
    """
    _check_places("device", device, x)
    _check_places("src", src, x)
    if donate and may_alias:
        raise ValueError("device_put: donate and may_alias cannot both be true")

    def put(leaf):
        array = core.as_array(leaf, "device_put")
        return _unshared(array) if may_alias is False and array is leaf else array

    with transfers.explicit():
        return tree_util.tree_map(put, x)


def _unshared(array):
    """A copy with memory of its own. Tracers have none, and that of keys is not shown to anybody."""
    transfers.copied(array)
    if isinstance(array, core.Tracer) or dtypes.issubdtype(array.dtype, dtypes.extended):
        return array.copy()
    with config.enable_x64(True):
        return _core.array_from_numpy(np.asarray(array), array.weak_type)


def _check_places(name, places, x) -> None:
    for place in tree_util.tree_leaves(places):
        if not isinstance(place, (Device, Sharding)):
            raise ValueError(
                f"device_put: {name} must be None, a device such as ferrax.devices()[0], a sharding, "
                f"or a tree of these; got {place!r} of type {type(place).__name__}"
            )
    if places is not None and not isinstance(places, (Device, Sharding)):
        tree_util.broadcast_prefix(places, x, is_leaf=lambda place: place is None)


def device_get(x: Any) -> Any:
    """The leaves of a tree as NumPy arrays.

    Args: x: a tree; keys, which NumPy has no dtype for, and leaves that are no arrays
    stay as they are.

    >>> ferrax.device_get({"a": jnp.arange(3)})
    {'a': array([0, 1, 2], dtype=int32)}
    """

    def get(leaf):
        is_array = isinstance(leaf, core.Array)
        return np.asarray(leaf) if is_array and isinstance(leaf.dtype, np.dtype) else leaf

    return tree_util.tree_map(get, x)
