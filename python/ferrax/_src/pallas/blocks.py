"""The operands of a kernel: which block of each array every step sees, and where blocks begin.

In: block specifications and arrays' types. Out: an `Operand` for each, whose index map is a program
from the step's indices to block indices. Where these depend on the step alone, `Operand.table` has
them for all steps.

Blocks are cut from arrays padded so that blocks are whole; padding holds no value, see `no_value`.
What an index map names outside of the padded array is moved into it, as `lax.dynamic_slice` does.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from typing import Any, NamedTuple

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import api_util
from ferrax._src.core.primitives import apply_program
from ferrax._src.lax.creation import full
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.lax.shape import pad
from ferrax._src.numpy.slices import Slice
from ferrax._src.pallas import grid
from ferrax._src.pallas.specs import (
    Blocked,
    BlockSpec,
    BoundedSlice,
    Element,
    Indirect,
    NoBlockSpec,
    SemaphoreDtype,
    Squeezed,
)
from ferrax._src.state import at_user_line, new_ref
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util

_INT32 = np.dtype(np.int32)
# Index maps of more steps than this are not looked at beforehand.
_MAX_TABLE = 1 << 22


class _State(threading.local):
    zeroed = False


_state = _State()


@contextlib.contextmanager
def zeroed():
    """A context in which memory that nothing was written to holds 0."""
    before = _state.zeroed
    _state.zeroed = True
    try:
        yield
    finally:
        _state.zeroed = before


def no_value(shape, dtype):
    """Memory that nothing was written to: NaN, the least integer, or False. Semaphores count from 0."""
    if isinstance(dtype, SemaphoreDtype):
        return full(shape, 0, _INT32)
    if _state.zeroed:
        return full(shape, 0, dtype)
    return full(shape, _no_value(np.dtype(dtype)), dtype)


def _no_value(dtype):
    if dtypes.issubdtype(dtype, np.complexfloating):
        return complex(math.nan, math.nan)
    if dtypes.issubdtype(dtype, np.floating):
        return math.nan
    if dtypes.issubdtype(dtype, np.signedinteger):
        return int(dtypes.iinfo(dtype).min)
    return 0


class Dim(NamedTuple):
    """One dimension of an operand: `size` elements of it are in a block. `scale` is what the index
    map counts in. `low` and `high` are how many elements are padding."""

    size: int
    scale: int
    low: int
    high: int
    squeezed: bool


class Operand:
    """An array that a kernel sees by blocks.

    Attributes: `origin`, what messages call it; `shape` and `dtype` of the array; `dims`; `program`,
    from the step's indices and the prefetched values to block indices, and `needs`, which of these it
    depends on; `table`, an integer array of shape `(steps, rank)`, of one row for a grid of unknown size, or
    None where the steps' indices are not known.
    """

    def __init__(self, origin, shape, dtype, spec, sizes, prefetched=(), arguments=tuple):
        """`sizes` are the grid's, marks for those that are known when the kernel runs; `prefetched` the
        types of prefetched values, of which `arguments` makes what index maps are called with."""
        self.origin = origin
        self.shape = tuple(shape)
        self.dtype = dtype
        block_shape: Any = None if isinstance(spec, (NoBlockSpec, type(None))) else spec.block_shape
        self.is_whole = block_shape is None
        self.dims = self._dims(block_shape)
        index_map = None if self.is_whole else spec.index_map
        self.block_mapping = () if self.is_whole else tuple(block_shape)
        self.table: np.ndarray | None
        self.program: Any = None
        if index_map is None:
            self.table = np.zeros((_steps(sizes), len(self.shape)), int)
            return
        self.program = self._trace(index_map, sizes, prefetched, arguments)
        self.table = self._table(sizes)

    def __repr__(self):
        return f"BlockMapping(block_shape={self.block_mapping})"

    @property
    def block(self) -> tuple[int, ...]:
        """The shape of a block, with dimensions that the kernel does not see."""
        return tuple(dim.size for dim in self.dims)

    @property
    def seen(self) -> tuple[int, ...]:
        """The shape of a block as the kernel sees it."""
        return tuple(dim.size for dim in self.dims if not dim.squeezed)

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape of the array with its padding."""
        return tuple(dim.low + size + dim.high for dim, size in zip(self.dims, self.shape))

    def pad(self, array):
        """The array with its padding."""
        if not any(dim.low or dim.high for dim in self.dims):
            return array
        outside = no_value((), self.dtype)
        return pad(array, outside, [(dim.low, dim.high, 0) for dim in self.dims])

    def unpad(self, array):
        """The array without its padding."""
        if not any(dim.low or dim.high for dim in self.dims):
            return array
        return array[tuple(slice(dim.low, dim.low + size) for dim, size in zip(self.dims, self.shape))]

    def indices(self, ids, sizes, prefetched):
        """The block's indices at a step, scalars; `sizes` are those that are known now alone."""
        if self.program is None:
            return [np.int32(0)] * len(self.shape)
        return apply_program(self.program, [*ids, *sizes, *prefetched])

    def _dims(self, block_shape):
        if block_shape is None:
            return [Dim(size, size, 0, 0, False) for size in self.shape]
        if len(block_shape) != len(self.shape):
            raise ValueError(
                f"Block shape for {self.origin} (= {tuple(block_shape)}) must have the same number of dimensions, one "
                f"for each of {self.shape}."
            )
        return [self._dim(dim, size) for dim, size in zip(block_shape, self.shape)]

    def _dim(self, dim, size):
        if dim is None or isinstance(dim, Squeezed):
            return Dim(1, 1, 0, 0, True)
        if isinstance(dim, Element):
            low, high = dim.padding
            self._check(dim.block_size, dim)
            return Dim(dim.block_size, 1, low, high, False)
        if isinstance(dim, BoundedSlice):
            self._check(dim.block_size, dim)
            return Dim(dim.block_size, 1, 0, dim.block_size - 1, False)
        if isinstance(dim, Indirect):
            raise NotImplementedError(
                f"{self.origin}: blocks of places one by one ({dim}) are gathered by a unit that only "
                "some accelerators have. Take the whole array and index it in the kernel: x_ref[places]."
            )
        length = dim.block_size if isinstance(dim, Blocked) else dim
        self._check(length, dim)
        length = int(length)
        return Dim(length, length, 0, -size % length if length else 0, False)

    def _check(self, length, dim):
        if not isinstance(length, (int, np.integer)) or isinstance(length, bool) or length < 0:
            raise ValueError(
                f"{self.origin}: a dimension of a block is a positive integer, None, or one of "
                f"pl.Blocked, pl.Element, pl.Squeezed, pl.BoundedSlice, got {dim!r}."
            )

    def _trace(self, index_map, sizes, prefetched, arguments):
        """The program of an index map. Errors: ValueError for what it gives and what it closes over."""
        place = api_util.fun_place(index_map)

        def components(*values):
            ids, now, held = grid.split(values, sizes)
            with grid.frame(ids, now):
                found = index_map(*ids, *arguments([new_ref(value) for value in held]))
            found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
            if len(found) != len(self.dims):
                raise ValueError(
                    f"Index map function {place} for {self.origin} must return {len(self.dims)} values to match "
                    f"block_shape={self.block_mapping}. Currently returning {len(found)} values:"
                    f" {found}."
                )
            return [self._component(value, place) for value in found]

        program, captured, _ = staging.stage(components, (*grid.types(sizes), *prefetched), {})
        return without_captured(
            program, captured, index_map,
            f"Index map function {place} for {self.origin} must not capture constants:",
        )  # fmt: skip

    def _component(self, value, place):
        if isinstance(value, Slice):
            value = value.start
        value = core.as_array(value, "pallas_call")
        if value.shape or not dtypes.issubdtype(value.dtype, np.integer):
            raise ValueError(
                f"Index map function {place} for {self.origin} must return integer scalars. Currently returning "
                f"{value.dtype}{list(value.shape)}."
            )
        return _convert_element_type(value, _INT32, weak_type=False)

    def _table(self, sizes):
        steps = _steps(sizes)
        _, needs = self.program.trimmed()
        if any(needs[len(sizes) :] if _known(sizes) else needs) or steps > _MAX_TABLE:
            return None
        if not steps or not self.dims:
            return np.zeros((steps, len(self.dims)), int)
        shape = sizes if _known(sizes) else [1] * len(sizes)
        ids = np.unravel_index(np.arange(steps), shape) if sizes else []
        columns = [None if source is None else ids[source] for source in self.program.forwarded()]
        if any(column is None for column in columns):
            columns = self._batched(ids, steps)
        return np.stack([np.asarray(column, np.int64) for column in columns], axis=1)

    def _batched(self, ids, steps):
        """The block indices at all steps, whose index map reads no prefetched values."""
        rest = self.program.in_types[len(ids) :]
        values = [np.asarray(x, _INT32) for x in ids]
        values += [np.zeros(shape, dtype) for shape, dtype, *_ in rest]
        batched, dims = self.program.batch(steps, [0] * len(ids) + [None] * len(rest))
        found = batched.run([_core.array_from_numpy(x, False) for x in values])
        return [
            np.broadcast_to(np.asarray(x), (steps,)) if dim is None else np.asarray(x)
            for x, dim in zip(found, dims)
        ]


def _known(sizes) -> bool:
    return all(isinstance(size, int) for size in sizes)


def _steps(sizes) -> int:
    """How many rows a table has: the steps, or 1 where their number is known when the kernel runs."""
    if not _known(sizes):
        return 1
    return math.prod(sizes) if all(size > 0 for size in sizes) else 0


def without_captured(program, captured, function, message):
    """The program with the constants that its function made.

    Errors: ValueError if the function closes over traced values or arrays.
    """
    own = list(_reachable(function))
    known = {_memory(x) for x in own if isinstance(x, core.Array)}
    # NumPy's arrays become constants of their own.
    arrays = [x for x in own if isinstance(x, np.ndarray)]
    outside = [
        x
        for x in captured
        if isinstance(x, core.Tracer) or _memory(x) in known or any(_is_copy(x, array) for array in arrays)
    ]
    if outside:
        types = [core.typeof(x).str_short(short_dtypes=True) for x in outside]
        raise ValueError(f"{message} [{', '.join(types)}].{at_user_line()}")
    return program.bind_constants(captured) if captured else program


def _memory(array):
    """Where an array is: that of another with the same elements in the same memory. None for a tracer."""
    if isinstance(array, core.Tracer):
        return None
    return array.unsafe_buffer_pointer() if len(array.devices()) == 1 else id(array)


def _is_copy(x, array):
    return x.shape == array.shape and np.array_equal(x, array)


def _reachable(function):
    """What a function closes over, has as defaults, and names globally."""
    while isinstance(function, functools.partial):
        yield from function.args
        yield from function.keywords.values()
        function = function.func
    function = getattr(function, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a cell that nothing is in yet
            yield cell.cell_contents
    yield from getattr(function, "__defaults__", None) or ()
    names = getattr(function, "__globals__", {})
    code = getattr(function, "__code__", None)
    for name in code.co_names if code is not None else ():
        yield names.get(name)


def spread(specs, tree, count, kind):
    """The specification of each of the leaves of `tree`: one, or None for the whole.

    Errors: ValueError where the tree of specifications is another.
    """
    if isinstance(specs, NoBlockSpec):
        return [None] * count
    if isinstance(specs, list):
        specs = tuple(specs)
    found, given = tree_util.tree_flatten(specs, is_leaf=_is_spec)
    if given != tree and not (count == 1 and len(found) == 1 and _is_spec(specs)):
        raise ValueError(
            f"Pytree for `{kind}_specs` and `{kind}puts` do not match: `{kind}_specs` is {given}, "
            f"`{kind}puts` is {tree}. Give one BlockSpec, or None, for each array."
        )
    for spec in found:
        if not _is_spec(spec):
            raise TypeError(f"{kind}_specs: a specification is a pl.BlockSpec or None, got {spec!r}")
    return found


def _is_spec(x) -> bool:
    return x is None or isinstance(x, (BlockSpec, NoBlockSpec))
