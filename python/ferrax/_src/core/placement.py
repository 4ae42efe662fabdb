"""Arrays put on devices and taken from them. There is one device, the CPU."""

from __future__ import annotations

import numpy as np

from ferrax._src import core
from ferrax._src.core.devices import Device
from ferrax._src.core.sharding import Sharding
from ferrax._src.tree import tree_util


def block_until_ready(x):
    """Waits for all arrays of a tree, which on this backend are ready at once. Returns the tree."""
    return tree_util.tree_map(lambda leaf: getattr(leaf, "block_until_ready", lambda: leaf)(), x)


copy_to_host_async = block_until_ready


def device_put(x, device=None, src=None, *, donate=False, may_alias=None):
    """The leaves of a tree as arrays on the device. There is one device, the CPU.

    `device` is None, a device, a sharding, or a tree of these above the leaves. Errors: TypeError
    for others.
    """
    for place in tree_util.tree_leaves(device):
        if not isinstance(place, (Device, Sharding)):
            raise TypeError(
                "device_put requires a device such as ferrax.devices()[0], a sharding, or a tree of "
                f"these; got {place!r} of type {type(place).__name__}"
            )
    return tree_util.tree_map(lambda leaf: core.as_array(leaf, "device_put"), x)


def device_get(x):
    """The leaves of a tree as NumPy arrays."""
    return tree_util.tree_map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, core.Array) else leaf, x
    )
