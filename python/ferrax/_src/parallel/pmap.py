"""`pmap`: a function mapped over an axis of its arguments, one element for each device.

It is `shard_map` over a mesh of one axis, under `jit`: each device drops the axis, which is of size one
on it, calls the function and puts the axis back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.base.traceback_util import boundary
from ferrax._src.core import api_util, transfers
from ferrax._src.core.devices import Device, local_devices
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.mesh import Mesh, get_abstract_mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.placements import placed, placement
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.lax.shape import expand_dims, squeeze
from ferrax._src.parallel.shard_map import mapped
from ferrax._src.transforms import stages
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

__all__ = ["PmapFunction", "pmap"]


# The name of an axis that is given none, as JAX calls it.
_UNNAMED = "_internal_pmap_axis_name"


def pmap(
    fun: Callable[..., Any], axis_name: Hashable | None = None, *, in_axes: Any = 0,
    out_axes: Any = 0, static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Device] | None = None, backend: str | None = None,
    axis_size: int | None = None, donate_argnums: int | Iterable[int] = (),
) -> PmapFunction:
    """A function that runs `fun` for the elements along an axis of its arguments, each on a device.

    Args:
        fun: the function of one element.
        axis_name: a name for the axis, for collectives such as `lax.psum`.
        in_axes: which axis of each positional argument is mapped over: an int that is not negative,
            None for one that all get whole, or trees of these. Keyword arguments are mapped over axis 0.
        out_axes: where the axis goes in each output; None for outputs that are the same on all devices.
        static_broadcasted_argnums: positional arguments that are passed as they are, and by whose
            values programs are known; they must be hashable.
        devices: the devices to use, of which the first ones are taken; None: the first ones there are.
        backend: None or "cpu".
        axis_size: the size of the axis.
        donate_argnums: arguments whose memory may be reused; they count as deleted afterwards.

    Errors: TypeError for axes that are no ints; ValueError for sizes that differ, for an axis that is
    longer than there are devices, where nothing is mapped over, for trees that do not fit, for
    static arguments that are missing or have no hash, for arguments that were put elsewhere by request, and where
    a mesh is in use, as in another `pmap`.

    Example:
        >>> shares = ferrax.pmap(lambda x: x / lax.psum(x, "i"), axis_name="i")
        >>> shares(jnp.array([[1.0, 3.0]]))
        Array([[1., 1.]], dtype=float32)
    """
    api_util.check_callable(fun)
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(axis) is int for axis in tree_util.tree_leaves(axes)):
            raise TypeError(f"pmap: {what} must be ints and None, or trees of these, got {axes!r}")
    if devices is not None and not len(devices):
        raise ValueError("pmap: devices must not be empty; None means all there are")
    options = _Options(
        _UNNAMED if axis_name is None else axis_name,
        in_axes,
        out_axes,
        api_util.as_tuple_of_ints(static_broadcasted_argnums, "static_broadcasted_argnums"),
        None if devices is None else tuple(devices),
        backend,
        axis_size,
        api_util.as_tuple_of_ints(donate_argnums, "donate_argnums"),
    )
    return PmapFunction(fun, options)


class _Options:
    def __init__(
        self, axis_name, in_axes, out_axes, static, devices, backend, axis_size, donated
    ):
        self.axis_name = axis_name
        self.in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        self.out_axes = out_axes
        self.static = static
        self.devices = devices
        self.backend = backend
        self.axis_size = axis_size
        self.donated = donated


class PmapFunction:
    """What `pmap` returns; called as the function is, with an axis more.

    >>> type(ferrax.pmap(jnp.sin)).__name__
    'PmapFunction'
    """

    __name__: str

    def __init__(self, fun: Callable[..., Any], options: _Options) -> None:
        # First: a function that is a `PmapFunction` has attributes of these names.
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._options = options
        # By what a program depends on beside the types of the arguments.
        self._programs: dict[Any, _Program] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method, where the function is an attribute of a class."""
        return self if instance is None else functools.partial(self, instance)

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program, leaves = self._prepared(args, kwargs)
        return program.placed(program.run(*program.moved(leaves)))

    def lower(self, *args: Any, **kwargs: Any) -> stages.Lowered:
        """The program for these arguments, to be compiled ahead of time; see `ferrax.jit`."""
        program, leaves = self._prepared(args, kwargs)
        lowered = program.run.lower(*leaves)
        lowered.in_tree = program.in_tree
        lowered._shardings = program.given, program.places
        return lowered

    def _prepared(self, args, kwargs) -> tuple[_Program, list]:
        """The program, and the leaves of the arguments that are not static."""
        if not get_abstract_mesh().empty:
            raise ValueError(
                f"pmap of {self.__name__}: it has a mesh of its own, and {get_abstract_mesh()} is in use here, by "
                "ferrax.set_mesh, shard_map or another pmap. Map over one mesh with several axes instead"
            )
        if config.disable_jit.value:
            # One of its own for each call: what is known of a program includes how its function was traced,
            # and here the function is to be called.
            return self._found(args, kwargs, {})
        if not self._options.static:
            leaves, tree = tree_util.tree_flatten((args, kwargs))
            key = tree, tuple(map(np.shape, leaves))
            program = self._programs.get(key)
            if program is None:
                program = self._programs[key] = self._found(args, kwargs, self._programs)[0]
            return program, leaves
        return self._found(args, kwargs, self._programs)

    def _found(self, args, kwargs, programs: dict[Any, _Program]) -> tuple[_Program, list]:
        """As `_prepared`, with all checks; a new program is put into `programs`."""
        options, count = self._options, len(args)
        static = {}
        for number in options.static:
            if not -count <= number < count:
                raise ValueError(
                    f"pmap: static_broadcasted_argnums={options.static} of {self.__name__}, which was called "
                    f"with {count} arguments by position. Pass static arguments by position."
                )
            static[number % count] = args[number]
        for number, value in static.items():
            try:
                hash(value)
            except TypeError:
                raise ValueError(
                    f"pmap: static argument {number} of {self.__name__} has no hash: {value!r} of type "
                    f"{type(value).__name__}"
                ) from None
        dynamic = tuple(x for number, x in enumerate(args) if number not in static)
        leaves, tree = tree_util.tree_flatten((dynamic, kwargs))
        axes = self._axes(dynamic, [n for n in range(count) if n not in static])
        axes += [0] * (len(leaves) - len(axes))
        size = self._size(leaves, axes)
        known = tuple((number, type(x), x) for number, x in static.items())
        donated = self._donated(dynamic, count, static)
        key = (known, count, tree, tuple(axes), size, donated)
        program = programs.get(key)
        if program is None:
            program = _Program(self._fun, options, static, count, tree, axes, size, donated)
            programs[key] = program
        return program, leaves

    def _axes(self, dynamic, numbers) -> list:
        """The axis of each leaf of the positional arguments, or None."""
        in_axes = self._options.in_axes
        if isinstance(in_axes, tuple):
            total = len(dynamic) + len(self._options.static)
            if len(in_axes) not in (total, len(dynamic)):
                raise ValueError(
                    f"pmap: in_axes={in_axes} has {len(in_axes)} entries for {total} arguments by position; "
                    "give an int or None for each, or one for all (arguments by keyword have axis 0)"
                )
            if len(in_axes) == total:
                in_axes = tuple(in_axes[number] for number in numbers)
        try:
            return tree_util.broadcast_prefix(in_axes, dynamic, is_leaf=lambda x: x is None)
        except ValueError as error:
            raise ValueError(f"pmap: in_axes={in_axes} do not fit the arguments: {error}") from None

    def _size(self, leaves, axes) -> int:
        sizes = set()
        for number, (leaf, axis) in enumerate(zip(leaves, axes)):
            if axis is None:
                continue
            shape = np.shape(leaf)
            if not 0 <= axis < len(shape):
                raise ValueError(
                    f"pmap of {self.__name__}: in_axes asks for axis {axis} of leaf {number} of the "
                    f"arguments, which has shape {shape}"
                )
            sizes.add(shape[axis])
        if not sizes:
            raise ValueError(
                f"pmap requires an argument that is mapped over: in_axes of {self.__name__} are all None"
            )
        if len(sizes) > 1:
            raise ValueError(
                f"pmap of {self.__name__}: the mapped axes of the arguments have different sizes, "
                f"{sorted(sizes)}"
            )
        (size,) = sizes
        wanted = self._options.axis_size
        if wanted is not None and wanted != size:
            raise ValueError(
                f"pmap of {self.__name__}: axis_size is {wanted}, and the axis has size {size}"
            )
        there = self._devices()
        if size > len(there):
            raise ValueError(
                f"pmap of {self.__name__} over an axis of size {size} requires {size} logical devices, but only "
                f"{len(there)} XLA devices are available ({', '.join(map(str, there))})"
            )
        return size

    def _devices(self):
        options = self._options
        return local_devices(backend=options.backend) if options.devices is None else options.devices

    def _donated(self, dynamic, count, static) -> tuple[int, ...]:
        """The numbers of the leaves of donated arguments."""
        donated = {number % count for number in self._options.donated if -count <= number < count}
        numbers = [number for number in range(count) if number not in static]
        found: list[int] = []
        start = 0
        for number, x in zip(numbers, dynamic):
            end = start + len(tree_util.tree_leaves(x))
            if number in donated:
                found += range(start, end)
            start = end
        return tuple(found)


class _Program:
    """The function over all elements, for given static arguments, trees and axes: jitted."""

    def __init__(self, fun, options, static, count, in_tree, axes, size, donated):
        self.in_tree = in_tree
        # Of the outputs, once the function was traced.
        self.specs = None
        self.places: list[NamedSharding] = []
        name = options.axis_name
        known = local_devices(backend=options.backend) if options.devices is None else options.devices
        mesh = self.mesh = Mesh(np.array(known[:size], dtype=object), (name,))
        # The sharding of outputs of a spec: one object.
        self.sharding = functools.cache(lambda spec: NamedSharding(mesh, spec))
        self.given = [self.sharding(self._spec(axis)) for axis in axes]
        self.donated = frozenset(donated)
        self.name = api_util.fun_name(fun)

        def body(*leaves):
            parts = [x if axis is None else squeeze(x, (axis,)) for x, axis in zip(leaves, axes)]
            dynamic, kwargs = in_tree.unflatten(parts)
            rest = iter(dynamic)
            args = [static[n] if n in static else next(rest) for n in range(count)]
            out, out_tree = tree_util.tree_flatten(fun(*args, **kwargs))
            try:
                places = tree_util.broadcast_prefix(
                    options.out_axes, out_tree.unflatten(out), is_leaf=lambda x: x is None
                )
            except ValueError as error:
                raise ValueError(
                    f"pmap: out_axes={options.out_axes} do not fit the outputs: {error}"
                ) from None
            out = [core.as_array(x, "pmap") for x in out]
            ranks = [x.ndim for x in out]
            for axis, rank in zip(places, ranks):
                if axis is not None and not -rank - 1 <= axis <= rank:
                    raise ValueError(f"pmap: out_axes has {axis} for an output of {rank} axes")
            places = [a if a is None else a % (rank + 1) for a, rank in zip(places, ranks)]
            specs = [self._spec(axis) for axis in places]
            self.specs, self.out_tree = specs, out_tree
            self.places = [self.sharding(spec) for spec in specs]
            return [x if axis is None else expand_dims(x, (axis,)) for x, axis in zip(out, places)]

        functools.update_wrapper(body, fun)

        def over_all(*leaves):
            specs = [self._spec(axis) for axis in axes]
            out = mapped(body, leaves, specs, lambda: self.specs, self.mesh, frozenset({name}), False)
            return self.out_tree.unflatten(out)

        # Its arguments are leaves, whatever those of the function are called.
        over_all.__name__ = api_util.fun_name(fun)
        # Devices of the processor are told apart by placements alone.
        self.run = jit(over_all, donate_argnums=donated, device=known[0] if known[0]._number and size == 1 else None)

    def _spec(self, axis):
        if axis is None:
            return PartitionSpec()
        return PartitionSpec(*[None] * axis, *self.mesh.axis_names)

    def moved(self, leaves) -> list:
        """The leaves of the arguments, those that would be donated where they are needed: others live.

        Errors: ValueError for arrays that were divided otherwise by request.
        """
        if self.mesh.size == 1:
            return leaves
        found = list(leaves)
        for number, (x, where) in enumerate(zip(leaves, self.given)):
            if not isinstance(x, core.Array) or isinstance(x, core.Tracer):
                continue
            known, committed = placement(x)
            if not committed:
                transfers.moved(x, known, where, False)
                if number in self.donated and not x.is_deleted():
                    found[number] = placed(x, where)
            elif not known.is_equivalent_to(where, x.ndim):
                raise ValueError(
                    f"pmap of {self.name}: leaf {number} of the arguments was put where {known} says, and it is needed "
                    f"where {where} says: put it there with ferrax.device_put, or nowhere"
                )
        return found

    def placed(self, out):
        """The outputs, where the program put them."""
        leaves, tree = tree_util.tree_flatten(out)
        return tree.unflatten(
            [
                x if isinstance(x, core.Tracer) or type(x) is GlobalArray else placed(x, where)
                for x, where in zip(leaves, self.places)
            ]
        )
