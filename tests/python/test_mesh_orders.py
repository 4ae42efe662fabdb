"""Meshes over devices that say where they are in a TPU: in which order these come, beside JAX's."""

import dataclasses
import itertools

import numpy as np
import pytest
from oracle import module, same
from test_mesh import outcomes

from ferrax.experimental.mesh_utils import create_device_mesh


@dataclasses.dataclass(frozen=True)
class Chip:
    """A device as a TPU's, at some coordinates."""

    id: int
    coords: tuple
    process_index: int
    device_kind: str = "TPU v4"
    core_on_chip: int = 0
    slice_index: int = 0
    platform: str = "tpu"


def chips(x, y, z, kind="TPU v4", cores=1):
    """The devices of a box, of which a process has two by two chips."""
    places = sorted(
        itertools.product(range(x), range(y), range(z), range(cores)),
        key=lambda p: (p[2], p[1] // 2, p[0] // 2, p[1] % 2, p[0] % 2, p[3]),
    )
    return [
        Chip(core + cores * (i + x * (j + y * k)), (i, j, k), i // 2 + x // 2 * (j // 2 + y // 2 * k), kind, core)
        for i, j, k, core in places
    ]


def ids(mesh):
    return np.vectorize(lambda chip: chip.id)(mesh).tolist()


WHOLE = [
    ((4, 4, 4), (16, 4)), ((4, 4, 4), (64,)), ((4, 4, 8), (1, 8, 16)), ((4, 4, 8), (16, 8, 1)), ((4, 8, 8), (32, 8)),
    ((2, 2, 4), (4, 4)), ((2, 2, 4), (2, 8)), ((8, 8, 1), (8, 8)), ((4, 4, 4), (4, 4, 4)),
]  # fmt: skip


@pytest.mark.parametrize("torus, sizes", WHOLE)
def test_each_axis_has_whole_axes_of_the_torus(torus, sizes):
    @same
    def case(S):
        return ids(module(S, "experimental.mesh_utils").create_device_mesh(sizes, chips(*torus)))

    case()


@pytest.mark.parametrize("torus, sizes", [((4, 4, 4), (2, 1, 32)), ((4, 4, 1), (4, 2, 2)), ((4, 8, 8), (1, 128, 2))])
def test_axes_share_those_of_the_torus_where_they_may(torus, sizes):
    @same
    def case(S):
        create = module(S, "experimental.mesh_utils").create_device_mesh
        return ids(create(sizes, chips(*torus), allow_split_physical_axes=True)), outcomes(
            S, lambda: create(sizes, chips(*torus))
        )

    case()


@pytest.mark.parametrize(
    "plane, kind, cores",
    [((2, 2, 1), "TPU v5 lite", 1), ((4, 2, 1), "TPU v5 lite", 1), ((4, 4, 1), "TPU v6 lite", 1), ((2, 2, 1), "TPU v3", 2)],
)
def test_a_line_through_a_small_plane_is_a_ring(plane, kind, cores):
    devices = chips(*plane, kind, cores)

    @same
    def case(S):
        return ids(module(S, "experimental.mesh_utils").create_device_mesh((len(devices),), devices))

    case()
    ring = create_device_mesh((len(devices),), devices)
    steps = [np.abs(np.subtract(a.coords, b.coords)).sum() for a, b in zip(ring, np.roll(ring, 1))]
    assert set(steps) <= {0, 1} and len(set(ring)) == len(devices)


@pytest.mark.parametrize("kind", ["TPU v2", "TPU v3"])
def test_trays_are_rings_beside_one_another(kind):
    @same
    def case(S):
        return ids(module(S, "experimental.mesh_utils").create_device_mesh((4, 8), chips(4, 4, 1, kind, 2)))

    case()


@pytest.mark.parametrize("torus, sizes", WHOLE)
def test_processes_can_have_boxes_of_the_mesh(torus, sizes):
    mesh = create_device_mesh(sizes, chips(*torus), contiguous_submeshes=True)
    assert len(set(mesh.flat)) == mesh.size
    owner = np.vectorize(lambda chip: chip.process_index)(mesh)
    for process in range(owner.max() + 1):
        places = np.argwhere(owner == process)
        assert np.prod(places.max(0) - places.min(0) + 1) == len(places)


@same
def test_groups_of_devices_are_the_outer_axes(S):
    create = module(S, "experimental.mesh_utils").create_hybrid_device_mesh
    slices = [dataclasses.replace(chip, slice_index=n, id=chip.id + 64 * n) for n in (1, 0) for chip in chips(4, 4, 4)]
    return (
        ids(create((1, 16, 4), (2, 1, 1), slices)), ids(create((1, 4, 16), (1, 2, 1), slices)),
        ids(create((1, 16, 4), (2, 1, 1), slices, should_sort_granules_by_key=False)),
        ids(create((2, 1, 32), (1, 2, 1), slices, allow_split_physical_axes=True)),
    )  # fmt: skip


def test_devices_with_gaps_are_refused():
    with pytest.raises(ValueError, match="no box without gaps"):
        create_device_mesh((7,), chips(4, 2, 1)[1:])
