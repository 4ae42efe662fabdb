"""Shardings shown: as they are when a program runs, and as a picture of which device holds what."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src import core
from ferrax._src.base import effects
from ferrax._src.callbacks.callback import observe_jvp
from ferrax._src.core import named_axes
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.mesh import get_abstract_mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.placement import over_devices
from ferrax._src.core.placements import WHOLE, placement
from ferrax._src.core.primitives import Primitive
from ferrax._src.core.sharding import NamedSharding, Sharding
from ferrax._src.transforms import placed_programs
from ferrax._src.transforms.batching_rules import fancy_primitive_batchers
from ferrax._src.tree import tree_util

__all__ = ["inspect_array_sharding", "visualize_array_sharding", "visualize_sharding"]

# Backgrounds that tell neighbours apart: red, green and blue from 0 to 255.
_PALETTE = (
    (57, 59, 121), (99, 121, 57), (140, 109, 49), (132, 60, 57), (123, 65, 115), (82, 84, 163),
    (140, 162, 82), (189, 158, 57),
)  # fmt: skip


inspect_sharding_p = Primitive("inspect_sharding")
inspect_sharding_p.multiple_results = True


@inspect_sharding_p.def_impl
def _inspect(value, *, callback, mesh):
    callback(placement(core.as_array(value, "inspect_array_sharding")).sharding)
    return []


@inspect_sharding_p.def_effectful_abstract_eval
def _inspect_types(aval, *, callback, mesh):
    return [], {effects.debug_effect}


def _inspect_batch(axis, args, dims, *, callback, mesh):
    if named_axes.is_over_devices(axis.name):
        # What a device has within a function of a mesh is whole.
        callback(NamedSharding(mesh, PartitionSpec()))
    else:
        inspect_sharding_p.bind(*args, callback=callback, mesh=mesh)
    return [], []


def _inspect_placed(values, shardings, params):
    params["callback"](shardings[0])
    return []


def _inspect_on_one_device(value, *, callback, mesh):
    callback(WHOLE)
    return []


fancy_primitive_batchers[inspect_sharding_p] = _inspect_batch
observe_jvp(inspect_sharding_p)
placed_programs.asks(
    inspect_sharding_p, lambda values, avals, params: [], _inspect_placed, _inspect_on_one_device
)


def inspect_array_sharding(value: Any, *, callback: Callable[[Sharding], None]) -> None:
    """Calls back with the sharding that arrays have, also in compiled programs: there once, when the program is
    compiled for the places of its arguments.

    Args: value: a tree of arrays; callback: the function, called once for each.

    >>> ferrax.debug.inspect_array_sharding(jnp.ones(2), callback=lambda s: print(s.is_fully_replicated))
    True
    """
    context = get_abstract_mesh()
    mesh = over_devices(context) or context
    for leaf in tree_util.tree_leaves(value):
        if type(leaf) is GlobalArray and core.trace_state_clean():
            # Nothing is computed, so that one process may ask alone.
            callback(leaf.sharding)
            continue
        inspect_sharding_p.bind(leaf, callback=callback, mesh=mesh)


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Prints which device holds which part of an array.

    Args: arr: an array of one or two axes; kwargs: as for `visualize_sharding`, with its errors.

    >>> ferrax.debug.visualize_array_sharding(jnp.arange(3))
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    inspect_array_sharding(
        arr, callback=lambda sharding: visualize_sharding(arr.shape, sharding, **kwargs)
    )


def visualize_sharding(
    shape: Sequence[int], sharding: Sharding, *, use_color: bool = True, scale: float = 1.0,
    min_width: int = 9, max_width: int = 80, color_map: Callable[[float], Any] | None = None,
) -> None:
    """Prints which device holds which part of arrays of this shape.

    Args:
        shape: of one or two axes.
        sharding: how the arrays are laid out.
        use_color: whether a terminal shows devices in colours.
        scale: of the picture.
        min_width, max_width: of one part, in characters.
        color_map: from a number from 0 to 1, the device's among all, to (red, green, blue, …) from 0 to 1.

    Errors: ValueError for shapes of another number of axes.

    >>> ferrax.debug.visualize_sharding((3,), jnp.arange(3).sharding)
    ┌───────┐
    │ CPU 0 │
    └───────┘
    """
    if len(shape) not in (1, 2):
        raise ValueError(f"visualize_sharding draws arrays of one or two axes, got the shape {shape}")
    rows, columns = ((1,) + tuple(sharding._parts(len(shape))))[-2:]
    holders: dict[tuple[int, int], list] = {}
    numbers = sharding._tile_numbers(len(shape))
    for device, place in zip(sharding._device_assignment, numbers):
        row, column = ((0,) + tuple(place))[-2:]
        holders.setdefault((row, column), []).append(device)
    labels = {place: _label(devices) for place, devices in holders.items()}
    longest = max(map(len, labels.values())) + 2
    part = [max(size // count, 1) for size, count in zip(shape, sharding._parts(len(shape)))]
    # Characters are about two and a half times as high as they are wide. A row is one line.
    base = 10 * scale
    width = int(2.5 * base * (part[1] if len(shape) == 2 else 1) / part[0]) - 2
    width = max(min(width, max_width - 2), min_width - 2, longest)
    height = max(int(base) - 1, 1) if len(shape) == 2 else 1
    colored = use_color and sys.stdout.isatty()
    count = len(sharding._device_assignment)

    def cell(row, column, line):
        text = (labels[row, column] if line == height // 2 else "").center(width)
        if not colored:
            return text
        red, green, blue = _color(holders[row, column][0].id, count, color_map)
        return f"\x1b[48;2;{red};{green};{blue}m{text}\x1b[0m"

    def border(left, middle, right):
        return left + middle.join(["─" * width] * columns) + right

    lines = [border("┌", "┬", "┐")]
    for row in range(rows):
        if row:
            lines.append(border("├", "┼", "┤"))
        for line in range(height):
            lines.append("│" + "│".join(cell(row, column, line) for column in range(columns)) + "│")
    print("\n".join([*lines, border("└", "┴", "┘")]))


def _label(devices) -> str:
    return f"{devices[0].platform.upper()} {','.join(str(device.id) for device in devices)}"


def _color(number, count, color_map) -> tuple[int, int, int]:
    if color_map is None:
        return _PALETTE[number % len(_PALETTE)]
    red, green, blue = (round(255 * part) for part in tuple(color_map(number / max(count, 1)))[:3])
    return red, green, blue
