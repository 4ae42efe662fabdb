"""`pallas_call`: a kernel, a grid and blocks as a function of arrays.

Out: a function of arrays that traces the kernel once for their types and is one equation,
`pallas_call`, of programs. It is differentiated, transposed and batched as what it runs as (`run`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ferrax._src import core, state
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.primitives import apply_program, axis_primitive_batchers
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.pallas import flat, run
from ferrax._src.pallas.blocks import Operand, no_value, spread
from ferrax._src.pallas.grid import UNKNOWN
from ferrax._src.pallas.kernels import Kernel
from ferrax._src.pallas.specs import (
    CompilerParams,
    CostEstimate,
    GridSpec,
    MemoryRef,
    SemaphoreDtype,
    barrier_semaphore,
    no_block_spec,
    static_size,
)
from ferrax._src.state import at_user_line
from ferrax._src.tracing import known
from ferrax._src.transforms import composites
from ferrax._src.transforms.batching import vmap
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

_INT32 = np.dtype(np.int32)


class Call:
    """A kernel for operands of these types. Compared by identity.

    Attributes:
      grid: its sizes, None where one is known when the kernel runs.
      operands: what is prefetched, the inputs, the outputs, in this order.
      scratch: the shapes and dtypes of the scratch memory.
      shared: the numbers of the operands that steps change.
      aliases: for the number of an input, that of the output in whose memory it is.
      kernel, plan, flat: see `kernels`, `run` and `flat`.
    """

    def __init__(self, function, spec: GridSpec, prefetch, types, outs, scratch, unflatten, aliases, names, settings,
                 has_barrier=False):  # fmt: skip
        self.settings = settings
        sizes = [static_size(size) for size in spec.grid]
        self.grid = tuple(sizes)
        self.is_static = None not in sizes
        self.num_prefetch = prefetch.num_leaves
        self.num_outputs = len(outs)
        specs, origins = names
        prefetched = types[: self.num_prefetch]
        marks = tuple(UNKNOWN if size is None else size for size in sizes)
        self.operands = [
            Operand(origin, ty.shape, ty.dtype, block, marks, prefetched, prefetch.unflatten)
            for origin, ty, block in zip(origins, [*types, *outs], specs)
        ]
        self.scratch = scratch
        first = self.num_prefetch
        self.given = {first + source: len(types) + number for source, number in aliases.items()}
        seen = [
            core.ShapeDtypeStruct(operand.seen, operand.dtype, weak_type=getattr(ty, "weak_type", False))
            for operand, ty in zip(self.operands, [*types, *outs])
        ]
        kept = [core.ShapeDtypeStruct(shape, _held_dtype(dtype)) for shape, dtype in scratch]
        self.kernel = Kernel(function, [*seen, *kept], marks, unflatten, spec.grid_names or (), has_barrier)
        # An input that lies in an output's memory sees what earlier steps wrote there, unless it is one
        # block, which is there from the beginning.
        self.aliases = {
            source: target
            for source, target in self.given.items()
            if self.operands[source].padded == self.operands[target].padded
            and not run.has_one_block(self.operands[source])
        }
        changed = [number for number in range(len(types)) if self.kernel.modified[number]]
        self.shared = [
            *(number for number in changed if number not in self.aliases),
            *range(len(types), len(self.operands)),
        ]
        known_sizes = [size for size in sizes if size is not None]
        has_steps = len(known_sizes) == len(sizes) and all(size > 0 for size in known_sizes)
        self.plan = run.plan(self) if has_steps else None
        self.flat = flat.program(self, self.plan) if has_steps and not self.kernel.uses_axes else None
        self.compiled = jit(self)

    def __repr__(self) -> str:
        grid = tuple("?" if size is None else size for size in self.grid)
        return f"GridMapping(grid={grid}, block_mappings={tuple(self.operands)})"

    def __call__(self, *arrays: Any) -> list[Any]:
        """The outputs, for the sizes of the grid that are known now alone, what is prefetched and the
        inputs."""
        count = self.grid.count(None)
        sizes, arrays = arrays[:count], arrays[count:]
        if self.flat is not None:
            return apply_program(self.flat, arrays)
        with self.settings():
            padded = [operand.pad(array) for operand, array in zip(self.operands, arrays)]
            outputs = self.operands[len(arrays) :]
            padded += [no_value(operand.padded, operand.dtype) for operand in outputs]
            for source, target in self.given.items():
                padded[target] = self.operands[target].pad(arrays[source])
            found = run.run(self, sizes, padded)
        return found[len(found) - len(outputs) :]


def _held_dtype(dtype):
    return _INT32 if isinstance(dtype, SemaphoreDtype) else dtype


# The equation.


def _run(*arrays, grid_mapping, **params):
    return grid_mapping(*arrays)


pallas_call_p = composites.composite("pallas_call", _run, multiple_results=True)


class _Mapped:
    """A call for each element of arrays: the kernel does not see the further axis of the grid."""

    def __init__(self, call, size, dims):
        self.call = call
        self.size = size
        self.dims = dims
        self.compiled = jit(self)

    def __repr__(self):
        return f"{self.call!r} mapped over {self.size}"

    def __call__(self, *arrays):
        return vmap(self.call, in_axes=self.dims, axis_size=self.size)(*arrays)


def _batch(size, axis_name, trace_type, args, dims, /, **params):
    call = params["grid_mapping"]
    mapped = _Mapped(call, size, tuple(dims))
    avals = tuple(
        core.ShapedArray((size, *aval.shape), aval.dtype) for aval in params["out_avals"]
    )
    outs = pallas_call_p.bind(*args, **(params | {"grid_mapping": mapped, "out_avals": avals}))
    return outs, [0] * len(outs)


axis_primitive_batchers[pallas_call_p] = _batch
pallas_call_p.def_impl(lambda *arrays, grid_mapping, **params: grid_mapping.compiled(*arrays))


# The function.


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] = {},
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: CompilerParams | None = None,
    cost_estimate: CostEstimate | None = None,
    metadata: dict[str, str] | None = None,
) -> Callable[..., Any]:
    """A function of arrays that runs a kernel for each step of a grid.

    The kernel gets mutable arrays, one for each input, each output and each piece of scratch memory;
    at each step those of the blocks that the specifications name. Steps that work on blocks of their
    own run in parallel, others one after the other, the last axis of the grid fastest, so that values
    may be handed on through outputs and scratch memory. The function can be compiled, batched and, in
    both modes and to any order, differentiated.

    Args:
      kernel: a function of the refs, which returns None.
      out_shape: a pytree of what has a shape and a dtype: the outputs.
      grid_spec: grid, blocks and scratch memory in one, in place of the next four.
      grid: the sizes of the grid, or pairs of a name and a size, or one size. Sizes may be traced.
      in_specs: a `BlockSpec`, or None for the whole array, for each input, in their tree.
      out_specs: the same for the outputs.
      scratch_shapes: a tuple, or a dict for keyword arguments, of memory such as `pl.ANY(shape, dtype)`.
      input_output_aliases: for the number of an input, that of the output that begins as it. Steps
        see there what earlier ones wrote.
      debug: whether to print the kernel's program and how the grid is run.
      interpret: True changes nothing: the kernel is compiled, and does what JAX's interpreter does;
        `pltpu.InterpretParams` asks for checks.
      name: of the kernel, for messages.
      compiler_params, cost_estimate, metadata: kept with the equation, for programs that read them.

    What nothing was written to holds NaN, the least integer or False.

    Errors: ValueError where specifications do not fit the arrays, for a kernel that returns something,
    that closes over arrays, or that stores another shape or dtype than a ref's.

    Example:
        >>> def add_one(x_ref, o_ref):
        ...     o_ref[...] = x_ref[...] + 1
        >>> block = pl.BlockSpec((2,), lambda i: (i,))
        >>> add = pl.pallas_call(add_one, ferrax.ShapeDtypeStruct((4,), jnp.float32), grid=(2,),
        ...                      in_specs=[block], out_specs=block)
        >>> add(jnp.arange(4.0))
        Array([1., 2., 3., 4.], dtype=float32)
    """
    given = GridSpec(grid, in_specs, out_specs, scratch_shapes)
    if grid_spec is not None:
        if grid or any(
            spec is not no_block_spec for spec in (in_specs, out_specs)
        ) or tree_util.tree_leaves(scratch_shapes):
            raise ValueError(
                "pallas_call: grid_spec has the grid, the blocks and the scratch memory; do not give grid, in_specs, "
                "out_specs or scratch_shapes beside it"
            )
        given = grid_spec
    shapes = tuple(out_shape) if isinstance(out_shape, list) else out_shape
    outs, out_tree = tree_util.tree_flatten(shapes, is_leaf=lambda x: hasattr(x, "shape"))
    for out in outs:
        if not (hasattr(out, "shape") and hasattr(out, "dtype")):
            raise TypeError(f"pallas_call: out_shape is of what has a shape and a dtype, got {out!r}")
    outs = [core.ShapeDtypeStruct(*core.abstract_type(out)[:2]) for out in outs]
    out_names = _paths("outputs", shapes)
    scratch, scratch_tree = tree_util.tree_flatten(given.scratch_shapes, is_leaf=_is_memory)
    scratch = [_memory(x) for x in scratch]
    has_barrier = getattr(compiler_params, "collective_id", None) is not None
    if has_barrier:
        scratch.append(((), barrier_semaphore))

    def unflatten_for(in_tree, count):
        def unflatten(refs):
            refs = iter(refs)
            args = in_tree.unflatten(list(itertools.islice(refs, count)))
            results = out_tree.unflatten(list(itertools.islice(refs, len(outs))))
            rest = scratch_tree.unflatten(list(refs))
            results = results if isinstance(results, tuple) else (results,)
            if isinstance(rest, dict):
                return (*args, *results), rest
            return (*args, *results, *rest), {}

        return unflatten

    @api_boundary
    @functools.wraps(kernel)
    def wrapped(*args):
        leaves, in_tree = tree_util.tree_flatten(args)
        leaves = [state.read(x) if type(x) is state.Ref else core.as_array(x, "pallas_call") for x in leaves]
        types = [core.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in leaves]
        count = given.num_scalar_prefetch
        if count > len(args):
            raise ValueError(
                f"pallas_call: the grid prefetches {count} arguments, but the function got {len(args)}"
            )
        prefetch = tree_util.tree_structure(args[:count])
        first = prefetch.num_leaves
        sizes = tuple(static_size(size) for size in given.grid)
        key = ("pallas_call", in_tree, sizes, *((ty.shape, ty.dtype, ty.weak_type) for ty in types))
        call, key = known.find(wrapped, key)
        if call is None:
            rest = tree_util.tree_structure(args[count:])
            specs_in = spread(_as_tuple(given.in_specs, args[count:]), rest, len(leaves) - first, "in")
            specs_out = spread(_as_tuple(given.out_specs, shapes), out_tree, len(outs), "out")
            settings = getattr(interpret, "settings", contextlib.nullcontext)
            with settings():
                call = Call(
                    kernel, given, prefetch, types, outs, scratch, unflatten_for(in_tree, len(leaves)),
                    _checked_aliases(input_output_aliases, types, outs, first),
                    ([None] * first + specs_in + specs_out, _paths("args", args) + out_names), settings, has_barrier,
                )  # fmt: skip
            if key is not None:
                known.keep(wrapped, key, call)
            if debug:
                print(f"pallas_call of {call.kernel.place}: {call!r}\n{call.kernel.program.text()}\n{call.plan}")
                print("all steps at once, as one program over whole arrays" if call.flat else "block by block")
        moving = [
            _convert_element_type(core.as_array(size, "pallas_call"), _INT32)
            for size, known_size in zip(given.grid, sizes)
            if known_size is None
        ]
        if call.kernel.uses_axes:
            # No equation, whose batches do not know the names of axes, but what it is made of.
            return out_tree.unflatten(call.compiled(*moving, *leaves))
        results = pallas_call_p.bind(
            *moving, *leaves,
            grid_mapping=call, jaxpr=ClosedJaxpr(call.kernel.program, []).open, debug=debug, interpret=interpret,
            input_output_aliases=tuple(dict(input_output_aliases).items()), mesh=None, compiler_params=compiler_params,
            cost_estimate=cost_estimate, metadata=metadata, name=name,
            out_avals=tuple(core.ShapedArray(out.shape, out.dtype) for out in outs),
        )  # fmt: skip
        return out_tree.unflatten(results)

    return wrapped


def _as_tuple(specs, tree):
    return tuple(specs) if isinstance(specs, list) and isinstance(tree, tuple) else specs


def _paths(root, tree):
    leaves = tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: hasattr(x, "shape"))
    return [f"{root}{tree_util.keystr(path)}" for path, _ in leaves]


def _is_memory(x) -> bool:
    return isinstance(x, MemoryRef) or (hasattr(x, "shape") and hasattr(x, "dtype"))


def _memory(x):
    """`(shape, dtype)` of scratch memory."""
    if hasattr(x, "get_array_aval"):
        x = x.get_array_aval()
    if not _is_memory(x):
        raise TypeError(
            "scratch memory is given by a type such as pl.ANY(shape, dtype) or pltpu.VMEM(shape, dtype), got "
            f"{x!r}"
        )
    if isinstance(x.dtype, SemaphoreDtype):
        return tuple(x.shape), x.dtype
    return core.abstract_type(x)[:2]


def _checked_aliases(given, types, outs, first):
    """For the number of an input behind the prefetched ones, that of its output."""
    found = {}
    for source, target in dict(given).items():
        for number, count, kind in ((source, len(types), "input"), (target, len(outs), "output")):
            if not 0 <= number < count:
                raise ValueError(
                    f"input_output_aliases contains the mapping '{source}:{target}' with {kind} index {number} outside "
                    f"the range [0, {count})"
                )
        ours, theirs = types[source], outs[target]
        for what, mine, other in (("shapes", ours.shape, theirs.shape), ("dtypes", ours.dtype, theirs.dtype)):
            if mine != other:
                raise ValueError(
                    f"input_output_aliases contains the mapping '{source}:{target}' referring to input and output with "
                    f"different {what}: {mine} and {other}. An output that begins as an input has its type."
                    f"{at_user_line()}"
                )
        found[source - first] = target
    return found
