"""`pcast`: how values lie over the axes of a mesh by type, as the program says it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core import named_axes
from ferrax._src.core.mesh import get_abstract_mesh
from ferrax._src.lax.varying import as_reduced, as_terms, vary
from ferrax._src.tree import tree_util


def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """The values as ones that may differ along an axis of a mesh, or that are sums over it.

    Args:
        x: a tree of arrays.
        axis_name: the axis, or a tuple of axes, over which `shard_map` runs the function.
        to: "varying", "reduced" or "unreduced".

    The values are those given. Which values differ along axes `shard_map` finds out by itself; carries of
    loops and results of branches have to say so, since they have one type for all steps and branches.
    What is the same or reduced may vary; what is the same may be reduced: its cotangent is then taken for a
    sum over the axes, which is made where it is wanted; what varies may be the terms of a sum, unreduced.

    Errors: ValueError outside of functions that are mapped over the axes, unless the mesh in use has them,
    of size one, for another `to`, and for values that lie over an axis in a way that `to` does not follow;
    TypeError for sums of bools.

    >>> mesh = ferrax.make_mesh((1,), ("x",))
    >>> spec = ferrax.P("x")
    >>> ferrax.shard_map(
    ...     lambda x: x + lax.pcast(jnp.ones(2), "x", to="varying"), mesh=mesh,
    ...     in_specs=spec, out_specs=spec)(jnp.zeros(2))
    Array([1., 1.], dtype=float32)
    """
    if to not in ("varying", "reduced", "unreduced"):
        raise ValueError(f"pcast: to must be 'varying', 'reduced' or 'unreduced', got {to!r}")
    names, mesh = named_axes.as_names(axis_name), get_abstract_mesh()
    for name in names:
        if name not in named_axes.names() and mesh.shape.get(name) != 1:
            raise ValueError(f"pcast: no function is mapped over the axis {name!r} here")
    own = tuple(name for name in names if name in mesh.manual_axes)

    def cast(leaf):
        leaf = core.as_array(leaf, "pcast")
        typed = named_axes.typed_of(own)
        if not typed or core.trace_state_clean():
            return leaf
        if to == "unreduced" and leaf.dtype == np.bool_:
            raise TypeError(f"pcast: bools have no sum, got {core.typeof(leaf).str_short()} and to='unreduced'")
        lies = core.typeof(leaf).manual_axis_type
        allowed = {
            "varying": lambda name: name not in lies.varying | lies.unreduced,
            "reduced": lambda name: name not in lies.vur,
            "unreduced": lambda name: name in lies.varying,
        }[to]
        if other := [name for name in typed if not allowed(name)]:
            raise ValueError(
                f"pcast: to={to!r} is for values that {_CAST_FROM[to]}, and along {', '.join(map(repr, other))} one of "
                f"type {core.typeof(leaf).str_short()} lies in another way"
            )
        return _CASTS[to](leaf, tuple(map(named_axes.text, typed)))

    return tree_util.tree_map(cast, x)


_CASTS = {"varying": vary, "reduced": as_reduced, "unreduced": as_terms}
_CAST_FROM = {
    "varying": "are the same on all devices or reduced",
    "reduced": "are the same on all devices",
    "unreduced": "vary",
}
