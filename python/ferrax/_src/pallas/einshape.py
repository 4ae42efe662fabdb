"""`pltpu.einshape`: the axes of an array split, moved and merged as an equation says.

In: an equation such as "a(bc)->bac" of one-letter names and groups of them. Out: the array reshaped,
transposed and reshaped again.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ferrax._src.numpy import api as jnp

_SIDE = re.compile(r"(?:[A-Za-z]|\([A-Za-z]*\))*")


def _groups(side, equation):
    """The names of each axis."""
    side = side.replace(" ", "")
    if not _SIDE.fullmatch(side):
        raise ValueError(f"einshape: {side!r} of {equation!r} is no row of letters and of letters in ()")
    return [part.strip("()") for part in re.findall(r"[A-Za-z]|\([A-Za-z]*\)", side)]


def _split(group, size, sizes):
    """The sizes of the names of one axis. Errors: ValueError for sizes that do not make this one."""
    missing = [name for name in group if name not in sizes]
    known = math.prod(sizes[name] for name in group if name in sizes)
    if len(missing) > 1:
        raise ValueError(f"einshape: Ambiguous split of an axis of {size} into {group!r}: give all sizes but one")
    if missing and known and size % known == 0:
        return {missing[0]: size // known}
    if missing or known != size:
        raise ValueError(f"einshape: Cannot split size {size} into {group!r} by {sizes}")
    return {}


def einshape(equation: str, x: Any, assert_is_tile_preserving: bool = False, **sizes: int) -> Any:
    """An array whose axes are split, moved and merged.

    Args:
      equation: the axes before and after, as in "a(bc)->bac": a letter for each, several in () for one that is
        split or merged. Both sides have the same letters.
      x: an array with an axis for each letter or group of the left side.
      assert_is_tile_preserving: for TPUs, where axes lie in tiles; there are none here.
      sizes: those of letters, of all but one in each group.

    Errors: ValueError for an equation that is none, and for sizes that do not make the axes.

    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> pltpu.einshape("a(bc)->bac", jnp.zeros((2, 12)), b=3).shape
    (3, 2, 4)
    """
    x = jnp.asarray(x)
    sides = equation.split("->")
    if len(sides) != 2:
        raise ValueError(f"einshape: an equation has one '->', got {equation!r}")
    before, after = (_groups(side, equation) for side in sides)
    names, wanted = "".join(before), "".join(after)
    if len(set(names)) != len(names) or sorted(names) != sorted(wanted):
        raise ValueError(f"einshape: both sides of {equation!r} have each letter once")
    if len(before) != x.ndim:
        raise ValueError(f"einshape: {equation!r} is of {len(before)} axes, the array has shape {x.shape}")
    known = dict(sizes)
    for group, size in zip(before, x.shape):
        known |= _split(group, size, known)
    split = x.reshape([known[name] for name in names])
    moved = split.transpose([names.index(name) for name in wanted])
    return moved.reshape([math.prod(known[name] for name in group) for group in after])
