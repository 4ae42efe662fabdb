"""A picture of a mesh: what its axes divide, and what is exchanged over them."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from ferrax._src.core.mesh import AbstractMesh, Mesh
from ferrax._src.core.partition import entry_names
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.tree import tree_util

_HEADER = ("axis", "size", "type", "divides", "carries")


def visualize_mesh(mesh: Mesh | AbstractMesh, tree: Any = None, *, exchanges: Iterable[Any] = ()) -> None:
    """Prints a table of a mesh's axes: size, type, which arrays are divided over each, and what devices exchange over
    it.

    Args:
        mesh: the devices.
        tree: arrays, or types with shardings; of a leaf `w[0]` is the axis 0 of it that is divided.
        exchanges: what `compiled.communication()` gives: for each collective how often it is in the program, and the
            bytes that a device puts in, all together.

    Errors: TypeError for what is no mesh.

    This is ferrax's own. See also: `visualize_array_sharding`, for the devices of one array.

    >>> mesh = ferrax.make_mesh((1, 1), ("x", "y"), axis_types=(ferrax.sharding.AxisType.Auto,) * 2)
    >>> w = ferrax.device_put(np.ones((4, 2)), ferrax.NamedSharding(mesh, ferrax.P("x")))
    >>> ferrax.debug.visualize_mesh(mesh, {"w": w})
    ┌──────┬──────┬──────┬─────────┬─────────┐
    │ axis │ size │ type │ divides │ carries │
    ├──────┼──────┼──────┼─────────┼─────────┤
    │ x    │ 1    │ Auto │ w[0]    │         │
    │ y    │ 1    │ Auto │         │         │
    └──────┴──────┴──────┴─────────┴─────────┘
    """
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(f"visualize_mesh: mesh must be a Mesh or an AbstractMesh, got {mesh!r}")
    divided: dict[Any, list[str]] = collections.defaultdict(list)
    for path, leaf in tree_util.tree_flatten_with_path(tree)[0]:
        sharding = getattr(leaf, "sharding", None)
        if not isinstance(sharding, NamedSharding) or sharding.mesh.shape_tuple != mesh.shape_tuple:
            continue
        name = tree_util.keystr(path, simple=True, separator=".") or "array"
        for axis, entry in enumerate(sharding.spec.partitions):
            for over in entry_names(entry):
                divided[over].append(f"{name}[{axis}]")
    carried: dict[Any, dict[str, list[int]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for exchange in exchanges:
        for over in exchange.axes:
            carried[over][exchange.collective].append(exchange.bytes)
    rows = [
        (
            str(name),
            str(size),
            kind.name,
            ", ".join(divided[name]),
            ", ".join(f"{len(sizes)} {what}: {sum(sizes)} bytes" for what, sizes in carried[name].items()),
        )
        for name, size, kind in zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types)
    ]
    print(_table([_HEADER, *rows]))


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) + 2 for column in zip(*rows)]

    def border(left, middle, right):
        return left + middle.join("─" * width for width in widths) + right

    lines = ["│" + "│".join(f" {text}".ljust(width) for text, width in zip(row, widths)) + "│" for row in rows]
    return "\n".join([border("┌", "┬", "┐"), lines[0], border("├", "┼", "┤"), *lines[1:], border("└", "┴", "┘")])
