"""Boxes (`state.boxes`) as arguments of `jvp`: the tangent of a box is a box.

In go a function and primals with boxes, and tangents with a box for each; both boxes of a pair hold afterwards what the
function gave the one, and its tangent. Cost: that of a function of what the boxes hold.
"""

from __future__ import annotations

from typing import Any

from ferrax._src.state.boxes import Box
from ferrax._src.tree import opaque


def boxes_among(tree: Any) -> bool:
    return bool(Box._made) and any(type(x) is Box for x in opaque.flatten(tree)[0])


def jvp(jvp_of: Any, fun: Any, primals: Any, tangents: Any, has_aux: bool) -> tuple[Any, ...]:
    """`jvp_of(fun, primals, tangents)`. Errors: TypeError where the tangent of a box is none."""
    leaves, tree = opaque.flatten(primals)
    moving, tangent_tree = opaque.flatten(tangents)
    pairs = [(x, dx) for x, dx in zip(leaves, moving) if type(x) is Box]
    if tree != tangent_tree or not all(type(dx) is Box for _, dx in pairs):
        raise TypeError("jvp: primals and tangents must have the same structure, and the tangent of a Box is a Box")

    def pure(*values):
        own = [Box(x) if type(leaf) is Box else x for leaf, x in zip(leaves, values)]
        out = fun(*tree.unflatten(own))
        out, aux = out if has_aux else (out, None)
        return (out, [x.get() for x in own if type(x) is Box]), aux

    held = [x.get() if type(x) is Box else x for x in leaves]
    held_tangents = [x.get() if type(x) is Box else x for x in moving]
    (out, after), (tangent, after_tangents), aux = jvp_of(pure, tuple(held), tuple(held_tangents), has_aux=True)
    for (box, moved), value, change in zip(pairs, after, after_tangents):
        box.set(value)
        moved.set(change)
    return (out, tangent, aux) if has_aux else (out, tangent)
