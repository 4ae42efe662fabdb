"""Meshes: grids of devices whose axes have names, and the mesh that is in use on a thread.

There is one object for each mesh, so that equality and hashes are those of identity. The mesh in use
is part of what jitted functions are known by (`named_axes`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import math
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from ferrax import _core
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.base.jax_version import renamed
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import named_axes
from ferrax._src.core.devices import Device, devices as all_devices
from ferrax._src.core.immutable import Immutable

_lock = threading.Lock()


class AxisType(enum.Enum):
    """What decides how arrays are divided over an axis of a mesh: the compiler (`Auto`), their
    types (`Explicit`), or the program, which sees one device's part (`Manual`).

    >>> ferrax.sharding.AxisType.Auto
    Auto
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


def _axis_types(names, types, function) -> tuple:
    if types is None:
        types = tuple(AxisType.Auto for _ in names)
    elif not isinstance(types, tuple):
        types = (types,)
    if {type(kind) for kind in types} - {AxisType}:
        raise TypeError(f"{function}: axis_types must be ferrax.sharding.AxisType, got {types}")
    if len(names) != len(types):
        raise ValueError(
            f"{function}: each axis has one type; got the axes {names} and the types {types}"
        )
    return types


class BaseMesh(Immutable):
    """What meshes have in common: named axes, their sizes and types."""

    __slots__ = ("__weakref__", "__dict__")
    axis_names: tuple[Any, ...]
    axis_sizes: tuple[int, ...]
    axis_types: tuple[AxisType, ...]
    size: int

    @functools.cached_property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """The pairs of name and size."""
        return tuple(zip(self.axis_names, self.axis_sizes, strict=True))

    @property
    def shape(self) -> collections.OrderedDict[Any, int]:
        """The sizes by name."""
        return collections.OrderedDict(self.shape_tuple)

    @property
    def empty(self) -> bool:
        return self.size == 0

    def axes_of_type(self, *kinds: AxisType) -> tuple[Any, ...]:
        """The names of the axes of these types."""
        return tuple(name for name, kind in zip(self.axis_names, self.axis_types) if kind in kinds)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        return self.axes_of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        return self.axes_of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        return self.axes_of_type(AxisType.Manual)

    def _all(self, kind) -> bool:
        return bool(self.axis_types) and all(known == kind for known in self.axis_types)

    @property
    def are_all_axes_auto(self) -> bool:
        return self._all(AxisType.Auto)

    @property
    def are_all_axes_explicit(self) -> bool:
        return self._all(AxisType.Explicit)

    @property
    def are_all_axes_manual(self) -> bool:
        return self._all(AxisType.Manual)

    @property
    def _any_axis_manual(self) -> bool:
        return AxisType.Manual in self.axis_types

    @property
    def _any_axis_auto(self) -> bool:
        return AxisType.Auto in self.axis_types

    @property
    def _any_axis_explicit(self) -> bool:
        return AxisType.Explicit in self.axis_types

    @functools.cached_property
    def _name_to_type(self) -> dict[Any, AxisType]:
        return dict(zip(self.axis_names, self.axis_types))


# Called for each new mesh of several devices that have memories of their own.
on_apart: list[Callable[[], None]] = []


class Mesh(BaseMesh):
    """A grid of devices whose axes have names.

    Args:
        devices: an array of devices, or what NumPy makes one of.
        axis_names: a name for each axis of it: hashable, not None.
        axis_types: an `AxisType` for each; None: all `Auto`.

    Errors: ValueError if there are not as many names or types as axes, or a name is None; TypeError
    for other types.

    As a context manager it is the mesh that `PartitionSpec`s refer to; `ferrax.set_mesh` is the newer
    way.

    Example:
        >>> mesh = ferrax.sharding.Mesh(ferrax.devices()[:1], ("x",))
        >>> mesh.shape["x"], mesh.axis_types
        (1, (Auto,))
    """

    __slots__ = ("devices", "axis_names", "axis_types", "axis_sizes", "size")
    devices: np.ndarray

    def __new__(
        cls,
        devices: Any,
        axis_names: str | Sequence[Hashable],
        axis_types: AxisType | tuple[AxisType, ...] | None = None,
    ) -> Mesh:
        if not isinstance(devices, np.ndarray):
            devices = np.array(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if None in names:
            raise ValueError(f"Mesh: names of axes cannot be None, got {names}")
        if devices.ndim != len(names):
            raise ValueError(
                f"Mesh: expected a name for each axis of the array of devices, got devices of shape "
                f"{devices.shape} and the names {names}"
            )
        types = _axis_types(names, axis_types, "Mesh")
        key = (tuple(devices.flat), devices.shape, names, types)
        with _lock:
            known = _meshes.get(key)
            if known is not None:
                return known
            grid = devices.copy()
            grid.flags.writeable = False
            mesh = object.__new__(cls)
            put = object.__setattr__
            put(mesh, "devices", grid)
            put(mesh, "axis_names", names)
            put(mesh, "axis_types", types)
            put(mesh, "axis_sizes", grid.shape)
            put(mesh, "size", 0 if key[0] == (None,) else grid.size)
            _meshes[key] = mesh
        if mesh._apart:
            for listener in on_apart:
                listener()
        return mesh

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.devices, self.axis_names, self.axis_types

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """The mesh with other devices, names or types."""
        return Mesh(
            self.devices if devices is None else devices,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
        )

    @property
    def is_scalar(self) -> bool:
        """Whether it is one device and has no axes."""
        return self.size == 1 and not self.axis_names

    @functools.cached_property
    def device_ids(self) -> np.ndarray:
        """The numbers of the devices, in their places."""
        return np.array([device.id for device in self.devices.flat], int).reshape(self.axis_sizes)

    @property
    def _flat_devices_tuple(self) -> tuple[Device, ...]:
        """The devices in row-major order, by JAX's name for it."""
        return tuple(self.devices.flat)

    @property
    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        return [d for d in self.devices.flat if d.process_index == d.client.process_index()]

    @property
    def is_multi_process(self) -> bool:
        """Whether other processes have some of the devices."""
        return len(self.local_devices) != self.devices.size

    @property
    def _shares_memory(self) -> bool:
        """Whether all devices are this process's and have one memory, as those that the processor plays have."""
        return not self._apart and not self.is_multi_process

    @functools.cached_property
    def _apart(self) -> bool:
        """Whether there are several devices that have memories of their own."""
        return self.size > 1 and any(
            isinstance(device, Device) and device.platform != "cpu" for device in self.devices.flat
        )

    @property
    def local_mesh(self) -> Mesh:
        """The part of the mesh that this process has. Errors: ValueError if that is no box."""
        if self.empty:
            return self
        mine = np.array([d.process_index == d.client.process_index() for d in self.devices.flat])
        mine = mine.reshape(self.axis_sizes)
        box = tuple(slice(int(places.min()), int(places.max()) + 1) for places in mine.nonzero())
        if not mine[box].all():
            raise ValueError(f"the devices of this process are no box of the mesh {self}")
        return Mesh(self.devices[box], self.axis_names)

    @functools.cached_property
    def abstract_mesh(self) -> AbstractMesh:
        """The mesh without its devices."""
        if not self.axis_names:
            return EMPTY_ABSTRACT_MESH
        device = self.devices.flat[0]
        kind = None
        if device is not None:
            kind = AbstractDevice(device.device_kind, None, device.platform)
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types, abstract_device=kind)

    def __enter__(self) -> Mesh:
        warnings.warn(
            "`with mesh:` is deprecated. Use `with ferrax.set_mesh(mesh):` instead.",
            category=DeprecationWarning,
            stacklevel=user_stacklevel(),
        )
        _use(entered=(*_state.entered, self))
        return self

    def __exit__(self, *error: object) -> None:
        _use(entered=_state.entered[:-1])

    def __call__(self, function: Any) -> Any:
        """The function, called with the mesh in use: a decorator."""

        @api_boundary
        @functools.wraps(function)
        def within(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return within

    def __str__(self) -> str:
        if self.empty:
            return "Mesh()"
        sizes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple)
        return f"Mesh({sizes}, axis_types={self.axis_types})"

    def __repr__(self) -> str:
        if self.empty:
            return "Mesh(axis_sizes=(), axis_names=())"
        return (
            f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names!r}, "
            f"axis_types={self.axis_types})"
        )


_meshes: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


@dataclasses.dataclass(frozen=True, slots=True)
class AbstractDevice:
    """What kind of devices a mesh without devices is for.

    Attributes: device_kind, platform: as those of `Device`; num_cores: of each, or None.

    >>> ferrax.sharding.AbstractDevice("cpu", None, "cpu")
    AbstractDevice(device_kind=cpu, num_cores=None, platform=cpu)
    """

    device_kind: str
    num_cores: int | None
    platform: str

    def _fields(self) -> str:
        return (
            f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"
        )

    def __repr__(self) -> str:
        return f"AbstractDevice({self._fields()})"


class AbstractMesh(BaseMesh):
    """A mesh whose devices are not said: names, sizes and types of axes.

    Args:
        axis_sizes, axis_names: one of each for each axis.
        axis_types: an `AxisType` for each; None: all `Auto`.
        abstract_device: an `AbstractDevice`, or None.

    Errors: ValueError if there are not as many of each; TypeError for other types. What asks for
    devices raises ValueError.

    Example:
        >>> mesh = ferrax.sharding.AbstractMesh((2, 4), ("x", "y"))
        >>> ferrax.sharding.NamedSharding(mesh, ferrax.P("x", "y")).shard_shape((8, 8))
        (4, 2)
    """

    __slots__ = ("axis_sizes", "axis_names", "axis_types", "abstract_device", "size")
    abstract_device: AbstractDevice | None

    def __new__(
        cls,
        axis_sizes: Sequence[int],
        axis_names: Sequence[Hashable],
        axis_types: AxisType | tuple[AxisType, ...] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ) -> AbstractMesh:
        types = _axis_types(axis_names, axis_types, "AbstractMesh")
        sizes, names = tuple(axis_sizes), tuple(axis_names)
        if len(sizes) != len(names):
            raise ValueError(f"AbstractMesh: got the sizes {sizes} for the axes {names}")
        key = (sizes, names, types, abstract_device)
        with _lock:
            known = _abstract_meshes.get(key)
            if known is not None:
                return known
            mesh = object.__new__(cls)
            put = object.__setattr__
            for name, value in zip(
                ("axis_sizes", "axis_names", "axis_types", "abstract_device"), key
            ):
                put(mesh, name, value)
            put(mesh, "size", math.prod(sizes) if sizes else 0)
            _abstract_meshes[key] = mesh
            return mesh

    def __getnewargs_ex__(self) -> tuple[Any, ...]:
        arguments = (self.axis_sizes, self.axis_names, self.axis_types)
        return arguments, {"abstract_device": self.abstract_device}

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def update(
        self,
        axis_sizes: Any = None,
        axis_names: Any = None,
        axis_types: Any = None,
        **abstract_device: Any,
    ) -> AbstractMesh:
        """The mesh with other sizes, names, types or `abstract_device`."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            **({"abstract_device": self.abstract_device} | abstract_device),
        )

    def update_axis_types(self, name_to_type: dict[Any, AxisType]) -> AbstractMesh:
        """The mesh with other types of these axes."""
        types = zip(self.axis_names, self.axis_types)
        return self.update(axis_types=tuple(name_to_type.get(name, kind) for name, kind in types))

    def _without_devices(self, what) -> NoReturn:
        raise ValueError(f"AbstractMesh does not implement {what}: it has no devices")

    @property
    def devices(self) -> NoReturn:
        self._without_devices("devices")

    @property
    def device_ids(self) -> NoReturn:
        self._without_devices("device_ids")

    @property
    def is_multi_process(self) -> NoReturn:
        self._without_devices("is_multi_process")

    @property
    def local_devices(self) -> NoReturn:
        self._without_devices("local_devices")

    @property
    def local_mesh(self) -> NoReturn:
        self._without_devices("local_mesh")

    def __enter__(self) -> NoReturn:
        self._without_devices("__enter__")

    def __exit__(self, *error: object) -> NoReturn:
        self._without_devices("__exit__")

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name!r}: {size}" for name, size in self.shape_tuple) or "()"
        device = "" if self.abstract_device is None else f", {self.abstract_device._fields()}"
        return f"AbstractMesh({sizes}, axis_types={self.axis_types}{device})"


_abstract_meshes: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
for _class in (Mesh, AbstractMesh, AxisType, AbstractDevice):
    _class.__module__ = "ferrax.sharding"

EMPTY_ABSTRACT_MESH = AbstractMesh((), ())
EMPTY_MESH = Mesh(np.empty((), dtype=object), ())


@renamed("axis_shapes", "axis_sizes", 0, 12)
def make_mesh(
    axis_shapes: Iterable[int],
    axis_names: str | Sequence[Hashable],
    axis_types: tuple[AxisType, ...] | None = None,
    *,
    devices: Sequence[Device] | None = None,
) -> Mesh:
    """A mesh of these sizes, over the first devices.

    Args:
        axis_shapes, axis_names: a size and a name for each axis; the first is `axis_sizes` where JAX 0.12 is followed.
        axis_types: an `AxisType` for each; None: all `Explicit`.
        devices: to take them from; None: `ferrax.devices()`.

    Errors: ValueError if there are fewer devices than the mesh has places, or other lengths.

    Example:
        >>> mesh = ferrax.make_mesh((1,), ("x",))
        >>> ferrax.device_put(jnp.arange(4), ferrax.NamedSharding(mesh, ferrax.P("x"))).sharding.spec
        P('x',)
    """
    sizes = tuple(axis_shapes)
    if not all(isinstance(size, (int, np.integer)) for size in sizes):
        raise ValueError(f"make_mesh: axis_shapes must be ints, got {sizes}")
    known = list(all_devices() if devices is None else devices)
    count = math.prod(sizes)
    if count > len(known):
        raise ValueError(
            f"make_mesh: a mesh of shape {sizes} needs {count} devices, and there are {len(known)}"
        )
    if axis_types is None:
        axis_types = (AxisType.Explicit,) * len(sizes)
    grid = np.empty(count, dtype=object)
    grid[:] = known[:count]
    return Mesh(grid.reshape(sizes), axis_names, axis_types)


# ---------------------------------------------------------------------------------------------
# The mesh in use.


class _State(threading.local):
    def __init__(self):
        self.mesh: Mesh | None = None  # by `set_mesh`
        self.abstract: AbstractMesh | None = None
        self.entered: tuple[Mesh, ...] = ()  # by `with mesh`


_state = _State()


# Called when another mesh is in use on this thread.
_listeners: list[Callable[[], None]] = []


def on_use(listener: Callable[[], None]) -> None:
    """Has this called whenever another mesh is in use on a thread."""
    _listeners.append(listener)


def _use(**changes) -> None:
    for name, value in changes.items():
        setattr(_state, name, value)
    named_axes.set_mesh((_state.mesh, _state.abstract, _state.entered))
    for listener in _listeners:
        listener()


class set_mesh:  # noqa: N801
    """Makes a mesh the one in use on this thread; as a context manager, until its end.

    `PartitionSpec`s in the place of shardings refer to it. Results of operations whose operands nobody put anywhere
    lie over it, whole on each device.

    Args: mesh: a `Mesh`, or None for none.
    Errors: ValueError for others, for manual axes, and while a function is traced.

    Example:
        >>> with ferrax.set_mesh(ferrax.make_mesh((1,), ("x",))):
        ...     ferrax.device_put(jnp.arange(4), ferrax.P("x")).sharding.spec
        P('x',)
    """

    __slots__ = ("_before",)

    def __init__(self, mesh: Mesh | None) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(
                f"set_mesh: expected a Mesh, got {mesh!r} of type {type(mesh).__name__}"
            )
        if not _core.trace_state_clean():
            raise ValueError("`set_mesh` can only be used outside of traced functions")
        if mesh is not None and mesh._any_axis_manual:
            raise ValueError(f"set_mesh: {mesh} has manual axes, which only shard_map makes")
        self._before = {"mesh": _state.mesh, "abstract": _state.abstract}
        abstract = EMPTY_ABSTRACT_MESH if mesh is None else mesh.abstract_mesh
        _use(mesh=EMPTY_MESH if mesh is None else mesh, abstract=abstract)

    def __enter__(self) -> None:
        """Nothing: it is in use already."""

    def __exit__(self, *error: object) -> None:
        _use(**self._before)


class use_abstract_mesh:  # noqa: N801
    """A context in which this mesh without devices is in use.

    Args: mesh: an `AbstractMesh`. Errors: ValueError for others, and, on entry, for another number of
    devices than that of the mesh in use.

    >>> with ferrax.sharding.use_abstract_mesh(ferrax.sharding.AbstractMesh((2,), ("x",))):
    ...     ferrax.sharding.get_abstract_mesh().shape["x"]
    2
    """

    __slots__ = ("mesh", "_before")

    def __init__(self, mesh: AbstractMesh) -> None:
        if not isinstance(mesh, AbstractMesh):
            raise ValueError(
                f"use_abstract_mesh: expected an AbstractMesh, got {mesh!r} of type "
                f"{type(mesh).__name__}"
            )
        self.mesh = mesh

    def __enter__(self) -> None:
        before = _state.abstract
        if before is not None and before.size and self.mesh.size not in (0, before.size):
            raise ValueError(
                f"use_abstract_mesh: {self.mesh} has {self.mesh.size} devices, and the mesh in use, "
                f"{before}, has {before.size}"
            )
        self._before = before
        _use(abstract=self.mesh)

    def __exit__(self, *error: object) -> None:
        _use(abstract=self._before)


@contextlib.contextmanager
def using_abstract(mesh: AbstractMesh) -> Iterator[None]:
    """A context in which this mesh is in use, whatever was before."""
    before = _state.abstract
    _use(abstract=mesh)
    try:
        yield
    finally:
        _use(abstract=before)


def get_abstract_mesh() -> AbstractMesh:
    """The mesh in use, without its devices; an empty one where there is none.

    >>> ferrax.sharding.get_abstract_mesh().empty
    True
    """
    return EMPTY_ABSTRACT_MESH if _state.abstract is None else _state.abstract


def concrete_mesh() -> Mesh:
    """The mesh that `set_mesh` says, or an empty one."""
    return EMPTY_MESH if _state.mesh is None else _state.mesh


def over_devices_of(mesh: Mesh | AbstractMesh, wanted: Mesh | AbstractMesh) -> Any:
    """The mesh that is wanted, over the devices of another in their order, if it has none and there are as many as it
    needs; else None. Of a mesh without devices it is the one that is wanted."""
    if mesh.size != wanted.size:
        return None
    if isinstance(wanted, Mesh) or not isinstance(mesh, Mesh):
        return wanted
    return Mesh(mesh.devices.reshape(wanted.axis_sizes), wanted.axis_names, wanted.axis_types)


def mesh_of_results() -> Mesh | None:
    """The mesh that what nobody put anywhere is on: that of `set_mesh`, with the axis types that are in use."""
    concrete, abstract = concrete_mesh(), get_abstract_mesh()
    if concrete.empty:
        return None
    if not abstract.empty and abstract.shape_tuple == concrete.shape_tuple:
        return concrete.update(axis_types=abstract.axis_types)
    return concrete


def get_mesh() -> Mesh:
    """The mesh in use; an empty one where there is none.

    Errors: ValueError while a function is traced: there `get_abstract_mesh` tells.

    >>> ferrax.sharding.get_mesh().empty
    True
    """
    if not _core.trace_state_clean():
        raise ValueError(
            "`get_mesh` can only be used outside of traced functions; there is get_abstract_mesh"
        )
    return concrete_mesh()


def entered_mesh() -> Mesh:
    """The mesh of the innermost `with mesh`, or an empty one."""
    return _state.entered[-1] if _state.entered else EMPTY_MESH


def mesh_of_specs(entered: bool = True) -> Mesh | AbstractMesh:
    """The mesh that `PartitionSpec`s in the place of shardings refer to: that of `set_mesh` or
    `use_abstract_mesh` or, if it is `entered`, of `with mesh`; an empty one where there is none."""
    concrete, abstract = concrete_mesh(), get_abstract_mesh()
    if not concrete.empty and (abstract.empty or concrete.abstract_mesh == abstract):
        return concrete
    if not abstract.empty:
        return abstract
    return _state.entered[-1] if entered and _state.entered else EMPTY_MESH
