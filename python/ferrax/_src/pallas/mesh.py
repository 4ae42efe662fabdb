"""Functions of each core of a chip: `core_map` and `kernel`, and the meshes that say how many cores there are.

In: a function that works on refs. Out: nothing, or the arrays of the refs that `kernel` makes. Cores run
one after the other, in the order of their numbers, as the steps of one loop: what a core writes those after
it read. A core that waits for a later one waits for ever on hardware and reads what is there here.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ferrax._src import core, state
from ferrax._src.core import api_util, named_axes
from ferrax._src.lax.control_flow.while_loop import fori_loop
from ferrax._src.lax.parallel import axis_index, axis_size
from ferrax._src.pallas import grid as grids, run
from ferrax._src.pallas.blocks import no_value
from ferrax._src.pallas.call import _is_memory, _memory
from ferrax._src.pallas.generator import generator
from ferrax._src.pallas.helpers import when
from ferrax._src.state import at_user_line, new_ref
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util


class TensorCoreMesh:
    """The cores of a TPU along one axis. Compared by value.

    Attributes: shape, an ordered dict of the axis's name and its size; axis_names; devices, an array of the
    cores' numbers.
    """

    def __init__(self, devices: Any, axis_names: Sequence[str]) -> None:
        """Args: devices: an array with an axis for each name; axis_names: the names."""
        self.devices = np.array(devices)
        self.axis_names = tuple(axis_names)
        if self.devices.ndim != len(self.axis_names):
            raise ValueError(f"a mesh has a name for each axis, got shape {self.devices.shape} and {self.axis_names}")

    @property
    def shape(self) -> collections.OrderedDict[str, int]:
        """The size of each axis by its name."""
        return collections.OrderedDict(zip(self.axis_names, self.devices.shape))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorCoreMesh) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(tuple(self.shape.items()))

    def __repr__(self) -> str:
        return f"TensorCoreMesh({dict(self.shape)})"


def create_tensorcore_mesh(
    axis_name: str, devices: Sequence[Any] | None = None, num_cores: int | None = None
) -> TensorCoreMesh:
    """A mesh of cores along an axis.

    Args:
      axis_name: the name of the axis.
      devices: a device whose cores are meant, in a sequence; here each has one. None: the first of all.
      num_cores: how many cores, in place of `devices`.

    Errors: ValueError for both of them.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> pltpu.create_tensorcore_mesh("core", num_cores=2).shape["core"]
    2
    """
    if devices is not None and num_cores is not None:
        raise ValueError("create_tensorcore_mesh: give devices or num_cores, not both")
    return TensorCoreMesh(np.arange(1 if num_cores is None else num_cores), (axis_name,))


def run_on_first_core(core_axis_name: str) -> Callable[[Callable[[], None]], None]:
    """Runs the decorated function, at once, on the first core of an axis.

    Args: core_axis_name: the name of the axis. Errors: NameError outside of such a mesh.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> def body(ref):
    ...     @pltpu.run_on_first_core("core")
    ...     def _():
    ...         ref[...] = ref[...] + 1
    >>> ref = ferrax.new_ref(jnp.int32(0))
    >>> pl.core_map(pltpu.create_tensorcore_mesh("core", num_cores=2))(lambda: body(ref))
    >>> ref[...]
    Array(1, dtype=int32)
    """
    if axis_size(core_axis_name) == 1:
        return when(True)
    return when(axis_index(core_axis_name) == 0)


def core_map(
    mesh: Any, *, compiler_params: Any = None, interpret: Any = False, debug: bool = False,
    cost_estimate: Any = None, name: str | None = None, metadata: dict[str, str] | None = None,
    scratch_shapes: Any = (),
) -> Callable[[Callable[..., None]], None]:  # fmt: skip
    """Runs the decorated function, at once, on each core of a mesh; it changes refs that it closes over.

    Args:
      mesh: the cores, as `pltpu.create_tensorcore_mesh` gives them. Their axes are named in the function:
        `lax.axis_index`, `lax.axis_size`.
      interpret: True changes nothing; `pltpu.InterpretParams` asks for checks.
      scratch_shapes: memory of each core's own, for arguments of the function; a dict for keyword arguments.
      debug: whether to print what is run.
      name: of the function, for messages.
      compiler_params: with a `collective_id` there is a `pltpu.get_barrier_semaphore`; the others are for hardware.
      cost_estimate, metadata: for hardware; they change nothing here.

    Cores run one after the other, see `pl.kernel` for one that returns arrays.

    Errors: ValueError for a function that returns something.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> ref = ferrax.new_ref(jnp.zeros(4))
    >>> @pl.core_map(pltpu.create_tensorcore_mesh("core", num_cores=4))
    ... def _():
    ...     ref[lax.axis_index("core")] = 1.0
    >>> ref[...]
    Array([1., 1., 1., 1.], dtype=float32)
    """
    pairs = tuple(mesh.shape.items())
    sizes = tuple(size for _, size in pairs)

    def decorate(function):
        place = name or api_util.fun_place(function)
        if debug:
            print(f"core_map of {place} over {mesh!r}")

        has_barrier = getattr(compiler_params, "collective_id", None) is not None
        barrier = new_ref(core.as_array(np.int32(0))) if has_barrier else None

        def step(number, carry):
            ids = run.indices_of(number, sizes)
            indices = {axis: index for (axis, _), index in zip(pairs, ids)}
            with grids.frame(ids, sizes, barrier), named_axes.named_axes_of(pairs), named_axes.at(indices), generator():
                memory = tree_util.tree_map(_allocate, scratch_shapes, is_leaf=_is_memory)
                result = function(**memory) if isinstance(memory, Mapping) else function(*memory)
            if result is not None:
                raise ValueError(
                    f"core_map: the function {place} works on refs and returns None, got {result!r}.{at_user_line()}"
                )
            return carry

        with getattr(interpret, "settings", contextlib.nullcontext)():
            fori_loop(np.int32(0), np.int32(math.prod(sizes)), step, ())

    return decorate


def _allocate(ty):
    return new_ref(no_value(*_memory(ty)))


def kernel(
    body: Any = None, out_type: Any = (), *, mesh: Any, scratch_types: Any = (), compiler_params: Any = None,
    interpret: Any = False, cost_estimate: Any = None, debug: bool = False, name: str | None = None,
    metadata: dict[str, str] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """A function of arrays that runs a kernel on each core of a mesh.

    Args:
      body: the kernel: a function of a ref for each array, for each output and for each piece of scratch
        memory; it returns None. Left out: the function is a decorator.
      out_type: a pytree of what has a shape and a dtype: the outputs.
      mesh: the cores.
      scratch_types: memory of each core's own; a dict for keyword arguments.
      compiler_params, interpret, cost_estimate, debug, name, metadata: as for `core_map`.

    What nothing was written to holds no value. Cores run one after the other.

    Errors: NotImplementedError for several meshes.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> @pl.kernel(out_type=ferrax.ShapeDtypeStruct((2,), jnp.int32),
    ...            mesh=pltpu.create_tensorcore_mesh("core", num_cores=2))
    ... def double(x_ref, o_ref):
    ...     core = lax.axis_index("core")
    ...     o_ref[core] = x_ref[core] * 2
    >>> double(jnp.array([3, 4]))
    Array([6, 8], dtype=int32)
    """
    if not hasattr(mesh, "shape") or isinstance(body, (list, tuple)):
        raise NotImplementedError("pl.kernel: of one kind of cores, got several meshes. Call a kernel for each.")
    if body is None:
        return functools.partial(
            kernel, out_type=out_type, mesh=mesh, scratch_types=scratch_types, compiler_params=compiler_params,
            interpret=interpret, cost_estimate=cost_estimate, debug=debug, name=name, metadata=metadata,
        )  # fmt: skip
    outs, out_tree = tree_util.tree_flatten(out_type, is_leaf=lambda x: hasattr(x, "shape"))
    mapped = core_map(
        mesh, compiler_params=compiler_params, interpret=interpret, debug=debug,
        name=name or api_util.fun_place(body), scratch_shapes=scratch_types,
    )  # fmt: skip

    @jit
    def compute(args):
        refs = tree_util.tree_map(lambda x: new_ref(core.as_array(x, "pl.kernel")), args)
        results = [new_ref(no_value(*core.abstract_type(out)[:2])) for out in outs]
        found = out_tree.unflatten(results)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        mapped(lambda *scratch, **named: body(*refs, *found, *scratch, **named))
        return [state.read(ref) for ref in results]

    @functools.wraps(body)
    def wrapped(*args):
        values = tree_util.tree_map(lambda x: state.read(x) if type(x) is state.Ref else x, args)
        return out_tree.unflatten(compute(values))

    return wrapped
