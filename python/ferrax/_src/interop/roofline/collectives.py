"""Costs of collectives on a torus: by axis of a mesh, the bytes that the busiest link carries, and hops.

Rings are used in all axes at once, each for a share of the data; exchanges of all with all are bounded by what
crosses the middle of the torus; permutations by the link that the most routes take, each route going along one axis
after the other, the shorter way round. An axis of one device costs nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np

from ferrax._src.interop.roofline.model import RooflineResult, RooflineShape, of_names


def _sizes(ctx, axes) -> dict[Any, int]:
    """The devices along each axis. Errors: ValueError without a mesh."""
    if ctx.mesh is None:
        raise ValueError(f"roofline: {ctx.primitive} is over the axes {axes}, and no mesh was given")
    names = axes if isinstance(axes, (tuple, list)) else (axes,)
    return {name: dict(ctx.mesh.shape).get(name, 1) for name in names}


def _links(sizes, load, hops) -> RooflineResult:
    """The same for each axis; nothing where there is one device."""
    if math.prod(sizes.values()) == 1:
        load = hops = 0
    return RooflineResult(ici_bytes=dict.fromkeys(sizes, int(load)), ici_latency=dict.fromkeys(sizes, int(hops)))


def _ring(ctx, axes, part) -> RooflineResult:
    """Devices pass on `part` bytes each until all have all: along the longest axis first, then what that gave along the
    next."""
    sizes = _sizes(ctx, axes)
    part = part // len(sizes)
    load = 0
    for size in sorted(sizes.values(), reverse=True):
        load += part * (size - 1)
        part *= size
    return _links(sizes, load, max(sizes.values()) * len(sizes))


def _share(ctx, axes) -> float:
    """The bytes of the operands that a device of these axes sums up."""
    return RooflineShape.total_bytes(ctx.avals_in) / math.prod(_sizes(ctx, axes).values())


@of_names("all_gather")
def _all_gather(ctx, *args, axis_name, **params):
    return _ring(ctx, axis_name, RooflineShape.total_bytes(ctx.avals_in))


@of_names("reduce_scatter")
def _reduce_scatter(ctx, *args, axis_name, **params):
    return _ring(ctx, axis_name, _share(ctx, axis_name))


@of_names("psum psum_invariant")
def _psum(ctx, *args, axes, **params):
    """The sum of a share on each device, and the gathering of these."""
    once = _ring(ctx, axes, _share(ctx, axes))
    return once + once


@of_names("pmax pmin")
def _extremum(ctx, *args, axes, **params):
    """Of one element for each operand."""
    return _ring(ctx, axes, sum(aval.dtype.itemsize for aval in ctx.avals_in))


@of_names("all_to_all")
def _all_to_all(ctx, *args, axis_name, **params):
    """Half of all data crosses the middle; a ring of more than two devices crosses it twice."""
    sizes = _sizes(ctx, axis_name)
    narrow = min(sizes.values())
    width = narrow ** (len(sizes) - 1) * (2 if narrow > 2 else 1)
    whole = RooflineShape.total_bytes(ctx.avals_in) * math.prod(sizes.values())
    return _links(sizes, whole / 2 / width, sum(size / 2 for size in sizes.values()))


@of_names("ppermute")
def _ppermute(ctx, *args, axis_name, perm, **params):
    sizes = _sizes(ctx, axis_name)
    shape = tuple(sizes.values())
    if math.prod(shape) == 1:
        return _links(sizes, 0, 0)
    places = list(np.ndindex(shape))
    routes = [_route(places[source], places[target], shape) for source, target in perm]
    busy = Counter(frozenset(link) for route in routes for link in itertools.pairwise(route))
    load = RooflineShape.total_bytes(ctx.avals_in) * max(busy.values(), default=0)
    return _links(sizes, load, max((len(route) - 1 for route in routes), default=0))


def _route(source, target, shape) -> list[tuple[int, ...]]:
    """The devices that a message comes through, with both ends."""
    place, route = list(source), [tuple(source)]
    for axis, size in enumerate(shape):
        ahead = (target[axis] - place[axis]) % size
        step = 1 if ahead <= size - ahead else -1
        for _ in range(min(ahead, size - ahead)):
            place[axis] = (place[axis] + step) % size
            route.append(tuple(place))
    return route
