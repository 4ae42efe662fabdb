"""Plans: how one index structure on one shape becomes a gather or a scatter.

A plan depends on the *structure* of an index (kinds of entries, sizes of slices, shapes of index
arrays), not on its values: starts of slices, integers and index arrays are given when it is
applied. So ``x.at[i].set(v)`` in a Python loop uses one plan and one compiled kernel.

Entries of a structure, from the first axis on:

  ``"i"``                     an integer; the axis disappears
  ``":"``                     the whole axis
  ``("s", size, step)``       a slice of ``size`` elements
  ``("a", shape, signed)``    an index array; ``signed`` asks for negative indices to be wrapped
  ``None``                    a new axis
  ``True``, ``False``         a boolean scalar next to index arrays: an index of shape (1,) or (0,)
  ``"e"``                     a place where an ellipsis stood (it separates advanced indices)

Invariants: a plan is immutable and compared by identity; the gather's output and the scatter's
updates have the same layout (``core_shape``), which is the indexing result without its new axes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ferrax._core import Array, Tracer, bind
from ferrax._src.core import as_array
from ferrax._src.dims.sizes import surely_below
from ferrax._src.lax import elementwise as lax
from ferrax._src.lax.arguments import integers_beside
from ferrax._src.lax.gather_scatter import bind_gather
from ferrax._src.lax.shape import broadcast_shapes

_INT32_MAX = 2**31 - 1


class Component(NamedTuple):
    """One component of the index vectors.

    kind is "scalar" (the next given start), "array" (the next given index array) or "range" (the
    next given start plus ``step`` times a position); ``batch_dims`` are the index array's batch
    dimensions that it varies over.
    """

    kind: str
    dim: int
    batch_dims: tuple[int, ...]
    size: int = 0
    step: int = 1
    signed: bool = False


class Plan:
    """A gather/scatter for one index structure. Compared and hashed by identity."""

    __slots__ = (
        "batch_shape", "collapsed", "components", "core_shape", "has_arrays", "index_dtype",
        "index_map", "new_axes", "offset_dims", "result_shape", "shape", "slice_sizes",
    )  # fmt: skip

    def __init__(self, shape: tuple[int, ...], structure: tuple):
        advanced = [
            position
            for position, entry in enumerate(structure)
            if entry == "i" or entry is True or entry is False or _kind(entry) == "a"
        ]
        has_arrays = any(structure[p] != "i" for p in advanced)
        index_shape: tuple[int, ...] = ()
        block_at = -1
        if has_arrays:
            index_shape = broadcast_shapes(
                *[_index_shape(structure[p]) for p in advanced if structure[p] != "i"]
            )
            # NumPy's rule: adjacent advanced indices are replaced in place, others move in front.
            adjacent = advanced[-1] - advanced[0] == len(advanced) - 1
            block_at = advanced[0] if adjacent else 0

        # Walk the axes, laying out the result as (kind, ...) pieces.
        result: list[tuple] = []
        raw: list[tuple] = []  # components, with a marker for what their batch dims are
        slice_sizes: list[int] = []
        collapsed: list[int] = []
        dim = 0
        for position, entry in enumerate(structure):
            if position == block_at:
                result.append(("block",))
            if entry is None:
                result.append(("new",))
                continue
            if entry is True or entry is False or entry == "e":
                continue
            if entry == "i":
                raw.append(("scalar", dim, None))
                slice_sizes.append(1)
                collapsed.append(dim)
            elif entry == ":":
                slice_sizes.append(shape[dim])
                result.append(("window", shape[dim]))
            elif entry[0] == "a":
                raw.append(("array", dim, ("block", entry[1]), 0, 1, entry[2]))
                slice_sizes.append(1)
                collapsed.append(dim)
            elif entry[2] == 1:
                raw.append(("scalar", dim, None))
                slice_sizes.append(entry[1])
                result.append(("window", entry[1]))
            else:
                raw.append(("range", dim, ("range", dim), entry[1], entry[2]))
                slice_sizes.append(1)
                collapsed.append(dim)
                result.append(("range", dim, entry[1]))
            dim += 1

        # Number the batch dimensions in the order of the result.
        batch_shape: list[int] = []
        first_batch: dict = {}
        core_shape: list[int] = []
        offset_dims: list[int] = []
        new_axes: list[int] = []
        result_shape: list[int] = []
        for piece in result:
            if piece[0] == "new":
                new_axes.append(len(result_shape))
                result_shape.append(1)
                continue
            if piece[0] == "window":
                offset_dims.append(len(core_shape))
                sizes: tuple[int, ...] = (piece[1],)
            elif piece[0] == "block":
                first_batch["block"] = len(batch_shape)
                sizes = index_shape
                batch_shape.extend(sizes)
            else:
                first_batch[piece[:2]] = len(batch_shape)
                sizes = (piece[2],)
                batch_shape.extend(sizes)
            core_shape.extend(sizes)
            result_shape.extend(sizes)

        components = []
        for kind, dim, over, *rest in raw:
            if over is None:
                batch_dims: tuple[int, ...] = ()
            elif over[0] == "range":
                batch_dims = (first_batch[over],)
            else:
                start = first_batch["block"] + len(index_shape) - len(over[1])
                batch_dims = tuple(range(start, start + len(over[1])))
            components.append(Component(kind, dim, batch_dims, *rest))

        self.shape = shape
        self.components = tuple(components)
        self.batch_shape = tuple(batch_shape)
        self.slice_sizes = tuple(slice_sizes)
        self.collapsed = tuple(collapsed)
        self.index_map = tuple([c.dim for c in components])
        self.offset_dims = tuple(offset_dims)
        self.core_shape = tuple(core_shape)
        self.new_axes = tuple(new_axes)
        self.result_shape = tuple(result_shape)
        self.has_arrays = has_arrays
        large = any(surely_below(_INT32_MAX, size) for size in shape)
        self.index_dtype = np.dtype(np.int64 if large else np.int32)

    def gather(self, x: Array, indices: Array, mode: str, fill_value, unique, is_sorted) -> Array:
        """The indexing result (new axes included)."""
        out = bind_gather(
            x,
            indices,
            {
                "offset_dims": self.offset_dims,
                "collapsed_slice_dims": self.collapsed,
                "start_index_map": self.index_map,
                "operand_batching_dims": (),
                "start_indices_batching_dims": (),
                "slice_sizes": self.slice_sizes,
                "mode": mode,
                "fill_value": fill_value,
                "unique_indices": unique,
                "indices_are_sorted": is_sorted,
            },
        )
        return self.add_new_axes(out)

    def scatter(
        self, op: str, x: Array, indices: Array, updates: Array, mode: str, unique, is_sorted
    ) -> Array:
        """The operand updated; ``updates`` have ``core_shape``."""
        return bind(
            op,
            (x, indices, updates),
            {
                "update_window_dims": self.offset_dims,
                "inserted_window_dims": self.collapsed,
                "scatter_dims_to_operand_dims": self.index_map,
                "operand_batching_dims": (),
                "scatter_indices_batching_dims": (),
                "mode": mode,
                "unique_indices": unique,
                "indices_are_sorted": is_sorted,
            },
        )

    def add_new_axes(self, x: Array) -> Array:
        """``core_shape`` to ``result_shape``."""
        if not self.new_axes:
            return x
        kept = [d for d in range(len(self.result_shape)) if d not in self.new_axes]
        return bind(
            "broadcast_in_dim",
            (x,),
            {"shape": self.result_shape, "broadcast_dimensions": tuple(kept)},
        )

    def index_array(self, starts: tuple, arrays: tuple, wrap: bool) -> Array:
        """The index vectors, of shape ``batch_shape + (number of components,)``.

        Args:
          starts: one integer (static or traced scalar) for each scalar and range component. Static
            ones have already been counted from the front.
          arrays: the index arrays.
          wrap: whether negative entries of signed index arrays count from the end.
        """
        dtype = self.index_dtype
        width = len(self.components)
        if not self.batch_shape and all(isinstance(s, int) for s in starts) and not arrays:
            return as_array(np.array(starts, dtype))
        columns = []
        next_start, next_array = iter(starts), iter(arrays)
        full_shape = (*self.batch_shape, 1)
        for component in self.components:
            if component.kind == "array":
                column = next(next_array)
                if component.signed and wrap:
                    column = wrap_negative(column, self.shape[component.dim], dtype)
                if column.dtype != dtype:
                    column = lax._convert_element_type(column, dtype)
                dims = component.batch_dims
                # Size-1 axes of an index array stretch over the others' axes.
                grown = [i for i, d in enumerate(dims) if column.shape[i] != self.batch_shape[d]]
                if grown:
                    column = bind("squeeze", (column,), {"dimensions": tuple(grown)})
                    dims = tuple([d for i, d in enumerate(dims) if i not in grown])
            else:
                column = next(next_start)
                column = as_array(dtype.type(column)) if isinstance(column, int) else column
                if column.dtype != dtype:
                    column = lax._convert_element_type(column, dtype)
                dims = component.batch_dims
                if component.kind == "range":
                    column = _range(column, component.size, component.step, dtype)
            columns.append(
                bind(
                    "broadcast_in_dim",
                    (column,),
                    {"shape": full_shape, "broadcast_dimensions": dims},
                )
            )
        if width == 1:
            return columns[0]
        return bind("concatenate", tuple(columns), {"dimension": len(self.batch_shape)})


def _kind(entry) -> str:
    return entry[0] if type(entry) is tuple else ""


def _index_shape(entry) -> tuple[int, ...]:
    if entry is True:
        return (1,)
    if entry is False:
        return (0,)
    return entry[1]


def wrap_negative(index: Array, size: int, dtype: np.dtype) -> Array:
    """Signed indices with negative ones counted from the end, once."""
    if index.dtype.itemsize < dtype.itemsize:
        index = lax._convert_element_type(index, dtype)  # ``size`` might not fit the narrow dtype
    zero, end = integers_beside(index, 0, size)
    return lax.select_n(lax.lt(index, zero), index, lax.add(index, end))


def _range(start: Array, size: int, step: int, dtype: np.dtype) -> Array:
    positions = bind("iota", (), {"dtype": dtype, "shape": (size,), "dimension": 0})
    return lax.add(lax.mul(positions, dtype.type(step)), start)


_PLANS: dict[tuple, Plan] = {}
_MAX_PLANS = 8192


def plan_for(shape: tuple[int, ...], structure: tuple) -> Plan:
    """The plan for an index structure on a shape, from a bounded cache."""
    key = (shape, structure)
    plan = _PLANS.get(key)
    if plan is None:
        if len(_PLANS) >= _MAX_PLANS:
            _PLANS.clear()
        plan = _PLANS[key] = Plan(shape, structure)
    return plan


def traced(x: Array, starts: tuple, arrays: tuple) -> bool:
    """Whether any of the operands is a tracer."""
    for operands in ((x,), arrays, starts):
        for operand in operands:
            if isinstance(operand, Tracer):
                return True
    return False


def as_arguments(plan: Plan, starts: tuple) -> tuple:
    """Static starts as scalars that a compiled function takes as arguments."""
    scalar = plan.index_dtype.type
    return tuple([scalar(s) if isinstance(s, int) else s for s in starts])
