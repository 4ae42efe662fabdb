"""What a kernel is given: blocks of arrays, memory spaces, grids, estimates of cost.

These are descriptions alone; `blocks` makes of them what a call needs.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core

__all__ = [
    "ANY", "HOST", "BlockDim", "BlockSpec", "Blocked", "BoundedSlice", "Buffered", "CompilerParams",
    "CostEstimate", "DeviceIdType", "Element", "GridSpec", "Indirect", "MemoryRef", "MemorySpace",
    "RevisitMode", "Squeezed", "no_block_spec", "semaphore", "squeezed",
]  # fmt: skip


# How one dimension of a block is found.


@dataclasses.dataclass(frozen=True)
class Blocked:
    """A dimension of blocks of `block_size` elements, which an index map counts in whole blocks; an integer
    is the same.

    >>> pl.BlockSpec((pl.Blocked(2), 128), lambda i: (i, 0)).block_shape
    (Blocked(block_size=2), 128)
    """

    block_size: int


@dataclasses.dataclass(frozen=True)
class Element:
    """A dimension of `block_size` elements from the one that an index map names, in an array with
    `padding` elements before and after, which have no value.

    >>> def sums(x_ref, o_ref):
    ...     o_ref[...] = x_ref[...].sum(keepdims=True)
    >>> pl.pallas_call(sums, jnp.zeros(4), grid=4, out_specs=pl.BlockSpec((1,), lambda i: i),
    ...                in_specs=[pl.BlockSpec((pl.Element(3),), lambda i: i)])(jnp.arange(6.0))
    Array([ 3.,  6.,  9., 12.], dtype=float32)
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True)
class BoundedSlice:
    """A dimension of at most `block_size` elements: an index map gives `pl.ds(start, size)`. The
    kernel gets `block_size` elements from `start`.

    >>> pl.BlockSpec((pl.BoundedSlice(4),), lambda i: (pl.ds(3 * i, 4),)).block_shape
    (BoundedSlice(block_size=4),)
    """

    block_size: int


@dataclasses.dataclass(frozen=True)
class Indirect:
    """A dimension of `block_size` elements, whose places an index map gives one by one: not supported.

    `pallas_call` raises NotImplementedError for it. A kernel may index the whole array instead, `x_ref[places]`.

    >>> pl.Indirect(8)
    Indirect(block_size=8)
    """

    block_size: int


@dataclasses.dataclass(frozen=True)
class Squeezed:
    """A dimension of one element that the kernel does not see; `None` is the same.

    >>> pl.BlockSpec((pl.squeezed, 128), lambda i: (i, 0)).block_shape
    (Squeezed(), 128)
    """


squeezed = Squeezed()
BlockDim = Blocked | Element | BoundedSlice | Indirect | Squeezed


class RevisitMode(enum.Enum):
    """When a block that is used again need not be fetched again. A hint, which nothing depends on.

    >>> pl.RevisitMode("any")
    <RevisitMode.ANY: 'any'>
    """

    IMMEDIATE = "immediate"
    ANY = "any"


@dataclasses.dataclass(frozen=True)
class Buffered:
    """How many copies of a block are in flight. A hint, which nothing depends on.

    >>> pl.BlockSpec((8,), lambda i: i, pipeline_mode=pl.Buffered(2)).pipeline_mode.buffer_count
    2
    """

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


# Memory.


class SemaphoreDtype:
    """The dtype of semaphores: counters, held as int32.

    >>> pl.semaphore
    semaphore
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


semaphore = SemaphoreDtype("semaphore")
dma_semaphore = SemaphoreDtype("dma_sem")
barrier_semaphore = SemaphoreDtype("barrier_semaphore")


@dataclasses.dataclass(frozen=True)
class MemoryRef:
    """Memory of a type: what `scratch_shapes` and `run_scoped` take.

    >>> memory = pl.ANY((8, 128), jnp.float32)
    >>> isinstance(memory, pl.MemoryRef), memory.shape, memory.dtype
    (True, (8, 128), dtype('float32'))
    """

    inner_aval: Any
    memory_space: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    def get_array_aval(self) -> Any:
        """The type of what the memory holds."""
        return self.inner_aval

    def get_ref_aval(self) -> MemoryRef:
        """The type of the mutable array."""
        return self


@dataclasses.dataclass(frozen=True)
class SemaphoreAval:
    """The type of an array of semaphores."""

    shape: tuple[int, ...]
    dtype: SemaphoreDtype


def memory(shape: Sequence[int], dtype: Any, space: Any) -> MemoryRef:
    """Memory of this shape and dtype in a space."""
    shape = tuple(shape)
    if isinstance(dtype, SemaphoreDtype):
        return MemoryRef(SemaphoreAval(shape, dtype), space)
    return MemoryRef(core.ShapedArray(*core.abstract_type(core.ShapeDtypeStruct(shape, dtype))[:2]), space)


def help_of_space(name: str) -> str:
    """The docstring of a memory space by its name."""
    return f"""`{name}(shape, dtype)`: memory of these sizes and this dtype, for `scratch_shapes` and `run_scoped`.

    As `memory_space` of a `BlockSpec` it is a hint: there is one memory here.

    >>> {name}((8, 128), jnp.float32).shape
    (8, 128)
    """


class Space(enum.Enum):
    """What spaces have in common: one that is called gives memory."""

    def __call__(self, shape: Sequence[int], dtype: Any) -> MemoryRef:
        return memory(shape, dtype, self)

    def from_type(self, aval: Any) -> MemoryRef:
        """Memory of this type in the space."""
        return memory(aval.shape, aval.dtype, self)


class MemorySpace(Space):
    """Where memory is. There is one memory here: the names are for other machines' programs.

    >>> pl.ANY((8, 128), jnp.float32)
    MemoryRef(inner_aval=ShapedArray(float32[8,128]), memory_space=<MemorySpace.ANY: 'any'>)
    """

    def __init__(self, value: str) -> None:
        self.__doc__ = help_of_space(f"pl.MemorySpace.{self.name}")

    ANY = "any"
    DEFAULT = "default"
    ERROR = "error"
    INDEX = "index"
    KEY = "key"
    HOST = "host"


ANY = MemorySpace.ANY
HOST = MemorySpace.HOST


class DeviceIdType(enum.Enum):
    """How another device is named: by its place on each axis of the mesh, or by its number in the order of these.

    >>> pl.DeviceIdType("mesh")
    <DeviceIdType.MESH: 'mesh'>
    """

    MESH = "mesh"
    LOGICAL = "logical"


class CompilerParams:
    """What classes of parameters for compilers have in common. They are kept and change nothing.

    >>> isinstance(pltpu.CompilerParams(), pl.CompilerParams)
    True
    """


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """What a kernel costs: operations, transcendental functions, bytes read and written. Kept with the equation.

    >>> pl.CostEstimate(flops=2, transcendentals=0, bytes_accessed=12).to_json()
    b'{"flops": 2, "transcendentals": 0, "bytes_accessed": 12, "remote_bytes_transferred": 0}'
    """

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def to_json(self) -> bytes:
        """As JSON."""
        return json.dumps(dataclasses.asdict(self)).encode("ascii")


# Specifications.


class NoBlockSpec:
    """The class of `no_block_spec`, which says that nothing was given: the kernel sees whole arrays.

    >>> pl.GridSpec(grid=(2,)).in_specs is pl.no_block_spec
    True
    """

    def __repr__(self) -> str:
        return "NoBlockSpec"


no_block_spec = NoBlockSpec()


@dataclasses.dataclass
class BlockSpec:
    """Which block of an array a kernel sees at each step of its grid.

    Attributes:
      block_shape: the size of each dimension, or one of `Blocked`, `Element`, `Squeezed`,
        `BoundedSlice`; None, for a dimension, is `Squeezed`; None for the whole: the array.
      index_map: a function of the step's indices that gives the block's, one for each dimension;
        None: the first.
      memory_space, pipeline_mode: hints for other machines.

    >>> pl.BlockSpec((2, 128), lambda i, j: (i, 0)).block_shape
    (2, 128)
    """

    block_shape: Sequence[BlockDim | int | None] | None = None
    index_map: Callable[..., Any] | None = None
    pipeline_mode: Buffered | None = None
    memory_space: Any = dataclasses.field(kw_only=True, default=None)

    def replace(self, **changes: Any) -> BlockSpec:
        """The specification with other attributes."""
        return dataclasses.replace(self, **changes)


Grid = int | Sequence[Any]


@dataclasses.dataclass(init=False)
class GridSpec:
    """The grid, the blocks and the scratch memory of a kernel: what `pallas_call` takes one by one.

    Attributes: grid, grid_names, in_specs, out_specs, scratch_shapes.

    >>> spec = pl.GridSpec(grid=(("rows", 4), 2))
    >>> spec.grid, spec.grid_names
    ((4, 2), ('rows', None))
    """

    grid: tuple
    grid_names: tuple | None
    in_specs: Any
    out_specs: Any
    scratch_shapes: Any

    def __init__(
        self, grid: Grid = (), in_specs: Any = no_block_spec, out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ) -> None:  # fmt: skip
        given = (grid,) if not isinstance(grid, (tuple, list)) else tuple(grid)
        named = [isinstance(size, tuple) for size in given]
        self.grid_names = tuple(
            size[0] if flag else None for size, flag in zip(given, named)
        ) if any(named) else None
        self.grid = tuple(size[1] if flag else size for size, flag in zip(given, named))
        self.in_specs = in_specs
        self.out_specs = out_specs
        self.scratch_shapes = scratch_shapes

    @property
    def num_scalar_prefetch(self) -> int:
        """How many of the first arguments are known before the grid is run."""
        return 0


class PrefetchScalarGridSpec(GridSpec):
    """A grid whose index maps also get the first `num_scalar_prefetch` arguments, as refs.

    The kernel gets these before its inputs; they have no `BlockSpec`.

    >>> spec = pltpu.PrefetchScalarGridSpec(
    ...     num_scalar_prefetch=1, grid=(3,), in_specs=[pl.BlockSpec((None,), lambda i, order: order[i])],
    ...     out_specs=pl.BlockSpec((None,), lambda i, order: i))
    >>> take = pl.pallas_call(lambda order, x, o: o.set(x[...]), jnp.zeros(3, int), grid_spec=spec)
    >>> take(jnp.array([2, 0, 2]), jnp.arange(3) * 10)
    Array([20,  0, 20], dtype=int32)
    """

    _prefetched: int

    def __init__(
        self, num_scalar_prefetch: int, grid: Grid = (), in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec, scratch_shapes: Any = (),
    ) -> None:  # fmt: skip
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self._prefetched = num_scalar_prefetch

    @property
    def num_scalar_prefetch(self) -> int:
        return self._prefetched


def static_size(size: Any) -> int | None:
    """A size of a grid as an integer; None for one that is known when the kernel runs."""
    if isinstance(size, (int, np.integer)):
        return int(size)
    if isinstance(size, core.Array) and core.is_concrete(size):
        return int(size)
    return None
