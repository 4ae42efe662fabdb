"""How arrays are laid out over devices: `SingleDeviceSharding` and `NamedSharding`.

A sharding says of each of its devices, in order, which tile of an array it holds: the array's axes
are cut into equal parts (`_parts`), and a device's tile is named by one number for each axis
(`_tile_numbers`). All else follows from these two. Cost: the number of devices times the rank.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ferrax._src.base import config
from ferrax._src.core.devices import MEMORY_KINDS, Device
from ferrax._src.core.immutable import Immutable
from ferrax._src.core.mesh import EMPTY_ABSTRACT_MESH, AbstractMesh, Mesh
from ferrax._src.core.partition import PartitionSpec, entry_names, names_of
from ferrax._src.core.tile_assignment import TileAssignment, assigned

Shape = Sequence[int]
Index = tuple[slice, ...]


class IndivisibleError(ValueError):
    """An axis of an array cannot be cut into as many equal parts as a sharding says.

    Example:
        >>> issubclass(ferrax.errors.IndivisibleError, ValueError)
        True
    """


class DuplicateSpecError(Exception):
    """A spec that divides two axes of an array over one axis of the mesh.

    Args: message: what is wrong; mesh, pspec: where.

    Example:
        >>> ferrax.NamedSharding(ferrax.make_mesh((1,), ("x",)), ferrax.P("x", "x"))
        Traceback (most recent call last):
            ...
        ferrax.errors.DuplicateSpecError: ...
    """

    def __init__(self, message: str, mesh: Any, pspec: PartitionSpec) -> None:
        super().__init__(message)
        self.message = message
        self.mesh = mesh
        self.pspec = pspec


class Sharding:
    """How an array is laid out over devices.

    >>> ferrax.sharding.SingleDeviceSharding(ferrax.devices()[0]).device_set == {ferrax.devices()[0]}
    True
    """

    __slots__ = ()

    @property
    def device_set(self) -> set[Device]:
        """The devices that hold parts of the array."""
        raise NotImplementedError(f"{type(self).__name__} must define device_set")

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        """The devices, in order."""
        raise NotImplementedError(f"{type(self).__name__} must define _device_assignment")

    def _parts(self, rank: int) -> tuple[int, ...]:
        """Into how many parts each axis of an array is cut."""
        raise NotImplementedError(f"{type(self).__name__} must define _parts")

    def _tile_numbers(self, rank: int) -> list[tuple[int, ...]]:
        """For each device which part of each axis it holds."""
        raise NotImplementedError(f"{type(self).__name__} must define _tile_numbers")

    @property
    def memory_kind(self) -> str | None:
        """The kind of memory that the parts are in."""
        raise NotImplementedError(f"{type(self).__name__} must define memory_kind")

    def with_memory_kind(self, kind: str) -> Sharding:
        """The sharding with another kind of memory."""
        raise NotImplementedError(f"{type(self).__name__} must define with_memory_kind")

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device holds the whole array."""
        raise NotImplementedError(f"{type(self).__name__} must define is_fully_replicated")

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process among them."""
        return {d for d in self.device_set if d.process_index == d.client.process_index()}

    @property
    def has_addressable_devices(self) -> bool:
        return bool(self.addressable_devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are this process's."""
        return self.addressable_devices == self.device_set

    @property
    def _shares_memory(self) -> bool:
        """Whether all devices are this process's and have one memory: arrays lie there once and whole."""
        return self.is_fully_addressable and not self._apart

    @property
    def _apart(self) -> bool:
        """Whether there are several devices that have memories of their own."""
        return False

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:
        mine = self.addressable_devices
        return tuple(device for device in self._device_assignment if device in mine)

    def shard_shape(self, global_shape: Shape) -> tuple[int, ...]:
        """The shape of what one device holds of an array of this shape.

        Errors: `IndivisibleError` (a ValueError) where an axis cannot be cut into equal parts;
        ValueError for arrays of too few axes.
        """
        shape = tuple(global_shape)
        self.check_compatible_aval(shape)
        parts = self._parts(len(shape))
        for axis, (size, count) in enumerate(zip(shape, parts)):
            if count > 1 and size % count:
                raise IndivisibleError(
                    f"{self} cuts axis {axis} of arrays into {count} parts, which its size, {size}, "
                    f"is not divisible by (shape {shape}, parts {parts})"
                )
        return tuple(size // count for size, count in zip(shape, parts))

    def devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """For each device the slices of the array that it holds. Errors: as `shard_shape`."""
        shape = tuple(global_shape)
        assignment = self._device_assignment
        tile, parts = self.shard_shape(shape), self._parts(len(shape))

        def index(numbers):
            return tuple(
                slice(None) if count == 1 else slice(number * size, (number + 1) * size)
                for number, size, count in zip(numbers, tile, parts)
            )

        return dict(zip(assignment, map(index, self._tile_numbers(len(shape)))))

    def addressable_devices_indices_map(self, global_shape: Shape) -> Mapping[Device, Index]:
        """As `devices_indices_map`, for the devices of this process."""
        mine = self.addressable_devices
        everything = self.devices_indices_map(global_shape)
        return {device: index for device, index in everything.items() if device in mine}

    def _replica_ids(self, rank: int) -> dict[Device, int]:
        """For each device which of the copies of its tile it holds."""
        seen: dict[tuple[int, ...], int] = {}
        copies = {}
        for device, numbers in zip(self._device_assignment, self._tile_numbers(rank)):
            copies[device] = seen.get(numbers, 0)
            seen[numbers] = copies[device] + 1
        return copies

    def _holds_sum(self, device: Device) -> bool:
        """Whether the device holds what its tile is: of a sum over devices (`unreduced`) the first one holds all."""
        return True

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> TileAssignment:
        """The devices by the tiles that they hold of arrays of so many axes; the name is JAX's."""
        return assigned(self._parts(num_dimensions), self._tile_numbers(num_dimensions))

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether arrays of `ndim` axes are laid out alike."""
        if self.memory_kind != other.memory_kind or self._parts(ndim) != other._parts(ndim):
            return False
        if self._tile_numbers(ndim) != other._tile_numbers(ndim):
            return False
        abstract = [isinstance(getattr(s, "mesh", None), AbstractMesh) for s in (self, other)]
        return all(abstract) or self._device_assignment == other._device_assignment

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Errors: ValueError if arrays of this shape cannot be laid out so."""


Sharding.__module__ = "ferrax.sharding"


def _memory_kind(kind, device) -> str:
    """The kind, or the device's default for None. Errors: ValueError if the device has no such one."""
    if kind is None:
        return MEMORY_KINDS[0]
    if kind not in MEMORY_KINDS:
        raise ValueError(
            f"Could not find memory addressable by device {device.platform}. Got memory kind: "
            f"{kind}; there are {', '.join(MEMORY_KINDS)}"
        )
    return kind


class SingleDeviceSharding(Immutable, Sharding):
    """The whole array on one device.

    Args:
        device: the device.
        memory_kind: "device", "pinned_host", "unpinned_host", or None, which means "device". On the
            CPU all are the same memory. Errors: ValueError for others.

    Example:
        >>> x = ferrax.numpy.ones((2, 3))
        >>> x.sharding
        SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)
        >>> x.sharding.shard_shape(x.shape)
        (2, 3)
    """

    __slots__ = ("_device", "_kind")
    _device: Device
    _kind: str

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        if not isinstance(device, Device):
            raise TypeError(
                f"SingleDeviceSharding requires a device, such as ferrax.devices()[0]; got {device!r} of "
                f"type {type(device).__name__}"
            )
        kind = _memory_kind(memory_kind, device)
        for name, value in (("_device", device), ("_kind", kind)):
            object.__setattr__(self, name, value)

    @property
    def device_set(self) -> set[Device]:
        return {self._device}

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return (self._device,)

    def _parts(self, rank: int) -> tuple[int, ...]:
        return (1,) * rank

    def _tile_numbers(self, rank: int) -> list[tuple[int, ...]]:
        return [(0,) * rank]

    @property
    def memory_kind(self) -> str:
        return self._kind

    @property
    def is_fully_replicated(self) -> bool:
        return True

    def with_memory_kind(self, kind: str) -> SingleDeviceSharding:
        """The sharding with another kind of memory."""
        return SingleDeviceSharding(self._device, memory_kind=kind)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SingleDeviceSharding):
            return NotImplemented
        return (self._device, self._kind) == (other._device, other._kind)

    def __hash__(self) -> int:
        return hash((self._device, self._kind))

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_device, (self._device, self._kind)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self._device!r}, memory_kind={self._kind})"


SingleDeviceSharding.__module__ = "ferrax.sharding"


def _of_device(device, kind):
    return SingleDeviceSharding(device, memory_kind=kind)


def make_single_device_sharding(
    device: Device, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """The sharding that puts whole arrays on a device.

    Args: device: the device; memory_kind: as for `SingleDeviceSharding`, with its errors.

    >>> ferrax.sharding.make_single_device_sharding(ferrax.devices()[0]).is_fully_replicated
    True
    """
    return SingleDeviceSharding(device, memory_kind=memory_kind)


class NamedSharding(Immutable, Sharding):
    """An array divided over the named axes of a mesh.

    Args:
        mesh: a `Mesh`, or an `AbstractMesh`, with which there are no devices to ask for.
        spec: a `PartitionSpec`: for each axis of the array the axes of the mesh that it is divided
            over.
        memory_kind: as for `SingleDeviceSharding`.

    Errors: ValueError for names that are no axes of the mesh and for unknown kinds of memory;
    `DuplicateSpecError` where the spec names an axis twice; TypeError for other meshes and specs.

    Example:
        >>> mesh = ferrax.sharding.Mesh(ferrax.devices()[:1], ("x",))
        >>> sharding = ferrax.NamedSharding(mesh, ferrax.P("x"))
        >>> x = ferrax.device_put(jnp.arange(4), sharding)
        >>> x.sharding == sharding, sharding.shard_shape((4,))
        (True, (4,))
    """

    __slots__ = ("mesh", "spec", "_memory_kind", "__weakref__")
    mesh: Mesh | AbstractMesh
    spec: PartitionSpec
    _memory_kind: str | None

    def __init__(
        self, mesh: Mesh | AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None
    ) -> None:
        if not isinstance(mesh, (Mesh, AbstractMesh)):
            raise TypeError(f"NamedSharding: mesh must be a Mesh, got {mesh!r}")
        if not isinstance(spec, PartitionSpec):
            kind = AttributeError if isinstance(spec, tuple) else TypeError
            raise kind(
                f"NamedSharding: spec must be a PartitionSpec, got {spec!r} of type "
                f"{type(spec).__name__}"
            )
        if isinstance(mesh, Mesh) and not mesh.empty:
            memory_kind = _memory_kind(memory_kind, mesh.devices.flat[0])
        elif memory_kind not in (None, *MEMORY_KINDS):
            raise ValueError(
                f"NamedSharding: there is no memory of kind {memory_kind!r}; kinds are "
                f"{', '.join(MEMORY_KINDS)}"
            )
        object.__setattr__(self, "mesh", mesh)
        object.__setattr__(self, "spec", spec)
        object.__setattr__(self, "_memory_kind", memory_kind)
        _check_spec(mesh, spec)

    @property
    def memory_kind(self) -> str | None:
        return self._memory_kind

    def _concrete(self, what) -> Mesh:
        if isinstance(self.mesh, AbstractMesh):
            raise ValueError(
                f"{what} is not there for an AbstractMesh, which has no devices: {self}"
            )
        return self.mesh

    @property
    def device_set(self) -> set[Device]:
        return set(self._concrete("device_set").devices.flat)

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        return tuple(self._concrete("_device_assignment").devices.flat)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process among them."""
        return set(self._concrete("addressable_devices").local_devices)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are this process's."""
        return not self._concrete("is_fully_addressable").is_multi_process

    @property
    def _shares_memory(self) -> bool:
        return self._concrete("_shares_memory")._shares_memory

    @property
    def _apart(self) -> bool:
        return self._concrete("_apart")._apart

    @property
    def _is_concrete(self) -> bool:
        return isinstance(self.mesh, Mesh)

    @property
    def num_devices(self) -> int:
        return self.mesh.size

    def _entries(self, rank) -> list[tuple]:
        """For each axis of an array the axes of the mesh that it is divided over."""
        entries = [entry_names(entry) for entry in self.spec.partitions]
        return entries + [()] * (rank - len(entries))

    def _parts(self, rank: int) -> tuple[int, ...]:
        sizes = self.mesh.shape
        return tuple(int(np.prod([sizes[name] for name in names])) for names in self._entries(rank))

    def _holds_sum(self, device: Device) -> bool:
        return not self.spec.unreduced or not any(self._place_along_sum(device).values())

    def _place_along_sum(self, device: Device) -> dict[Hashable, int]:
        """The device's place along each axis of the sum over devices (`unreduced`)."""
        at = np.argwhere(self._concrete("_place_along_sum").devices == device)[0]
        return {name: int(at[self.mesh.axis_names.index(name)]) for name in self.spec.unreduced}

    def _tile_numbers(self, rank: int) -> list[tuple[int, ...]]:
        mesh = self.mesh
        places = dict(zip(mesh.axis_names, np.indices(mesh.axis_sizes)))
        columns = []
        for names in self._entries(rank):
            number = np.zeros(mesh.axis_sizes, int)
            for name in names:
                number = number * mesh.shape[name] + places[name]
            columns.append(number.ravel().tolist())
        return list(zip(*columns)) if columns else [()] * max(mesh.size, 1)

    @property
    def is_fully_replicated(self) -> bool:
        if self.mesh.size <= 1:
            return True
        return not self.spec.unreduced and set(self._parts(len(self.spec))) <= {1}

    @property
    def replicated_axes(self) -> frozenset[Hashable]:
        """The axes of the mesh that the spec does not name."""
        spec = self.spec
        return frozenset(self.mesh.axis_names) - {
            *names_of(spec.partitions), *spec.unreduced, *spec.reduced
        }  # fmt: skip

    def with_memory_kind(self, kind: str) -> NamedSharding:
        """The sharding with another kind of memory."""
        return self.update(memory_kind=kind)

    def update(self, **changes: Any) -> NamedSharding:
        """The sharding with another `mesh`, `spec` or `memory_kind`."""
        fields = {"mesh": self.mesh, "spec": self.spec, "memory_kind": self.memory_kind} | changes
        if not isinstance(fields["spec"], PartitionSpec):
            fields["spec"] = PartitionSpec(*fields["spec"])
        return NamedSharding(**fields)

    def check_compatible_aval(self, aval_shape: Shape) -> None:
        """Errors: ValueError if arrays of this shape have fewer axes than the spec has entries."""
        if len(aval_shape) < len(self.spec):
            hint = " For scalars the spec is P()." if len(aval_shape) == 0 else ""
            raise ValueError(
                f"Sharding {self} is for arrays of at least {len(self.spec)} axes, got one of shape "
                f"{tuple(aval_shape)}.{hint}"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self):
        return self.mesh, self.spec, self._memory_kind

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, self._key()

    def __repr__(self) -> str:
        memory = "" if self._memory_kind is None else f", memory_kind={self._memory_kind}"
        return f"NamedSharding(mesh={self.mesh!s}, spec={self.spec}{memory})"


NamedSharding.__module__ = "ferrax.sharding"


def _named(mesh, spec, kind):
    return NamedSharding(mesh, spec, memory_kind=kind)


def _check_spec(mesh, spec) -> None:
    names = names_of(spec.partitions)
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise DuplicateSpecError(
            f"NamedSharding: an axis of the mesh divides at most one axis of an array; {spec} names "
            f"{', '.join(twice)} more than once",
            mesh,
            spec,
        )
    for name in names:
        if name not in mesh.axis_names:
            raise ValueError(
                f"axis {name!r} of {spec} is not among those of the mesh: {mesh.axis_names}"
            )
    if not mesh._any_axis_auto and PartitionSpec.UNCONSTRAINED in spec.partitions:
        raise ValueError(
            f"{spec}: only a mesh with Auto axes leaves an axis UNCONSTRAINED, got {mesh}"
        )
    for what, group in (("unreduced", spec.unreduced), ("reduced", spec.reduced)):
        for name in group:
            if name not in mesh.axis_names:
                raise ValueError(f"{what} axis {name!r} of {spec} is not among {mesh.axis_names}")
            if name not in mesh.explicit_axes:
                raise ValueError(f"{what} axes are Explicit ones; got {spec} for {mesh}")


def unplaced(rank: int) -> NamedSharding:
    """The sharding of a type of which nothing was said: over no mesh."""
    return NamedSharding(EMPTY_ABSTRACT_MESH, PartitionSpec(*(None,) * rank))


def of_type(sharding: NamedSharding, rank: int) -> NamedSharding:
    """The sharding as types have it: over the mesh without devices, by its explicit axes alone, an
    entry for each axis of the array."""
    mesh = sharding.mesh.abstract_mesh
    explicit = set(mesh.explicit_axes)
    if config.remove_size_one_mesh_axis_from_type.value:
        explicit -= {name for name, size in mesh.shape_tuple if size == 1}

    def kept(entry):
        if isinstance(entry, tuple):
            return tuple(name for name in entry if name in explicit)
        return entry if entry in explicit else None

    spec = sharding.spec
    entries = [kept(entry) for entry in spec.partitions] + [None] * (rank - len(spec))
    while len(entries) > rank and entries[-1] is None:
        entries.pop()
    unreduced, reduced = spec.unreduced & explicit, spec.reduced & explicit
    return NamedSharding(mesh, spec.update(entries, unreduced, reduced))
