"""Values that by type differ along axes of a mesh, within functions that its devices run (`shard_map`)."""

from __future__ import annotations

from typing import Any

from ferrax._core import bind


def vary(x: Any, names: tuple[str, ...]) -> Any:
    """The array as one that differs by type along these axes of a mesh, as programs name them."""
    return bind("pvary", (x,), {"axes": names}) if names else x


def missing(x: Any, varying: Any) -> tuple[str, ...]:
    """Those of these axes along which an array does not differ."""
    return tuple(sorted(set(varying).difference(x._varying)))


def varying_like(x: Any, other: Any) -> Any:
    """The array as one that differs along the axes along which another value does, or a type."""
    varying = getattr(other, "_varying", ())
    return vary(x, missing(x, varying)) if varying else x
