"""The jaxprs of `shard_map` equations: what one device does.

A jaxpr that Python built or changed is traced when somebody wants its program. Those of equations know the axes of
their mesh (`Jaxpr._around`), and what is made of them knows them too, so that collectives in them are over axes that
are there.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Set as AbstractSet
from contextlib import contextmanager

from ferrax._src.core import named_axes
from ferrax._src.core.jaxpr import Jaxpr
from ferrax._src.core.mesh import (
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    using_abstract,
)


def inside(mesh: Mesh | AbstractMesh, manual: AbstractSet[Hashable]) -> AbstractMesh:
    """The mesh in use, or this one if that has not these axes, as it is known where they are manual."""
    known = get_abstract_mesh()
    if known.empty or not manual <= set(known.axis_names):
        known = mesh.abstract_mesh
    return known.update_axis_types(dict.fromkeys(manual, AxisType.Manual))


@contextmanager
def on_each_device(mesh: Mesh | AbstractMesh, manual: AbstractSet[Hashable], check_vma: bool) -> Iterator[None]:
    """A context in which what is traced is done by each device along these axes of the mesh."""
    axes = [(name, mesh.shape[name]) for name in mesh.axis_names if name in manual]
    with named_axes.mesh_axes_of(axes, check_vma), using_abstract(inside(mesh, manual)):
        yield


def know_axes(
    jaxpr: Jaxpr, mesh: Mesh | AbstractMesh, manual: AbstractSet[Hashable], check_vma: bool
) -> None:
    """Tells a jaxpr of which axes it is done by each device."""
    if jaxpr._around is None:
        jaxpr._around = functools.partial(on_each_device, mesh, manual, check_vma)
