"""Jitted functions whose arguments or results have shardings (`jit(f, in_shardings=…)`).

Such a function is a jitted one and two trees of shardings above its arguments and its results. What is done here,
around the native call, is to check that they fit, to put arguments where they say, and to say where results are;
those of which nothing is said are where the arguments' places put them (`core.propagation`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config
from ferrax._src.base.source_info import called_by_user
from ferrax._src.base.traceback_util import boundary
from ferrax._src.core import call_borders, named_axes, propagation, transfers
from ferrax._src.core.devices import Device
from ferrax._src.core.explicit_types import laid_out, meshes_of, typed
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.layout import AutoLayout, Format, Layout, order_of
from ferrax._src.core.mesh import (
    AbstractMesh,
    Mesh,
    concrete_mesh,
    get_abstract_mesh,
    mesh_of_results,
    mesh_of_specs,
)
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.permuted_array import by_rows
from ferrax._src.core.placement import check_fits, over_devices
from ferrax._src.core.placements import (
    COMMITTED,
    number_of,
    number_of_mesh,
    numbered,
    place,
    placed,
    placement,
)
from ferrax._src.core.sharding import (
    IndivisibleError,
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
)
from ferrax._src.transforms import placed_programs, stages
from ferrax._src.transforms.memory_plan import MemoryPlan
from ferrax._src.tree import tree_util


def is_leaf(x: Any) -> bool:
    """Whether this is the place of something, in a tree of places."""
    return x is None or isinstance(x, (Sharding, PartitionSpec, Format))


def check_leaves(shardings: Any, what: str, function: str = "jit") -> None:
    """Errors: TypeError unless all leaves are shardings, `PartitionSpec`s, `Format`s or None; ValueError
    for `jit` and a spec with UNCONSTRAINED."""
    if shardings is None:
        return
    for leaf in tree_util.tree_leaves(shardings, is_leaf=is_leaf):
        if isinstance(leaf, (Layout, AutoLayout)):
            raise ValueError(f"{function}: {what} takes a layout within a Format, with its sharding; got {leaf}")
        if not is_leaf(leaf):
            raise TypeError(
                f"{function}: leaves of {what} must be None, shardings such as x.sharding, PartitionSpecs or "
                f"Formats; got {leaf!r} of type {type(leaf).__name__}"
            )
        spec = leaf.spec if isinstance(leaf, NamedSharding) else leaf
        if function == "jit" and isinstance(spec, PartitionSpec):
            if PartitionSpec.UNCONSTRAINED in spec.partitions:
                raise ValueError(f"jit: {what} says where arrays are; got {leaf}, which leaves it open")


def resolved(
    place: Any, shape: tuple[int, ...], what: str, function: str = "jit", uneven: bool = False
) -> Sharding | None:
    """The sharding that is meant, checked against the shape.

    Errors: RuntimeError for a `PartitionSpec` where no mesh is in use; ValueError where it does not fit.
    """
    if isinstance(place, Format):
        order_of(place.layout, shape, function)
        place = place.sharding
    if isinstance(place, PartitionSpec):
        mesh = mesh_of_specs()
        if mesh.empty:
            raise RuntimeError(
                f"{function}: {what} has {place}, which refers to the mesh in use, and there is none: set one "
                "with ferrax.set_mesh, or pass a NamedSharding"
            )
        place = NamedSharding(mesh, place)
    if place is None:
        return None
    if isinstance(place, NamedSharding) and isinstance(place.mesh, AbstractMesh):
        over = over_devices(place.mesh)
        if over is None:
            place.shard_shape(shape)
            return None
        place = place.update(mesh=over)
    try:
        check_fits(place, shape, function)
    except IndivisibleError as error:
        if uneven:
            return place
        raise IndivisibleError(f"{function}: {what}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{error} ({what})") from None
    return place


def shardings_of(program: Any, leaves: list, captured: list) -> tuple[list, list] | None:
    """The shardings of arguments and results, if an argument is on a mesh, or one is in use; those of others are on it,
    undivided."""
    known = [_said_of(leaf) for leaf in leaves]
    mesh = next((x.mesh for x in known if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh)), None)
    if mesh is None and (any(known) or (mesh := mesh_of_results()) is None):
        return None
    numbers = [0 if where is None else number_of(where) for where in known]
    numbers += [_core.place_of(x) for x in captured]
    if not any(number & COMMITTED for number in numbers):
        numbers = [number_of_mesh(mesh)] * len(numbers)
    found = _shardings_of_results(program, tuple(numbers), mesh, get_abstract_mesh(), concrete_mesh())
    return [NamedSharding(mesh, PartitionSpec()) if where is None else where for where in known], list(found)


def _following(program: Any, known: list, leaves: list, captured: list) -> tuple[list, list] | None:
    """As `shardings_of`, for arguments that are where they are said to be; None where one is over no mesh."""
    mesh = next((x.mesh for x in known if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh)), None)
    if mesh is None or not all(where is None or isinstance(where, NamedSharding) for where in known):
        return None
    # Over explicit axes what an argument is divided over is a part of its type, or it is not divided.
    whole = NamedSharding(mesh, PartitionSpec())
    places = [
        whole if mesh.explicit_axes and where is not None and not isinstance(_said_of(leaf), NamedSharding) else where
        for where, leaf in zip(known, leaves)
    ]
    numbers = [0 if where is None else number_of(where) for where in places] + [_core.place_of(x) for x in captured]
    return places, list(_shardings_of_results(program, tuple(numbers), mesh, get_abstract_mesh(), concrete_mesh()))


@functools.lru_cache(256)
def _shardings_of_results(program, numbers, mesh, *in_use):
    """The shardings of a program's results over a mesh, by the numbers of its operands and the meshes in use."""
    shapes = [shape for shape, *_ in program.out_types]
    places = [
        number or propagation.undivided(number_of_mesh(mesh), len(shape))
        for number, shape in zip(propagation.results(program, numbers), shapes)
    ]
    return [numbered(number).sharding for number in places]


def explicit_results(program: Any, explicit: list, captured: list, used: AbstractMesh) -> list:
    """The explicit types of results, None of those that have none, by those of arguments, where this mesh is in use."""
    return propagation.types_of_results(program, [*explicit, *map(typed, captured)], used)


def _without_devices(place) -> bool:
    """Whether a place is over a mesh of which no devices are known."""
    mesh = place.mesh if isinstance(place, NamedSharding) else None
    return isinstance(mesh, AbstractMesh) and not mesh.empty and over_devices(mesh) is None


def _said_of(leaf) -> Sharding | None:
    if isinstance(leaf, core.Array):
        known = placement(leaf)
        return known.sharding if known.committed else None
    where = getattr(leaf, "sharding", None)
    return where if isinstance(where, Sharding) else None


class _Checked(NamedTuple):
    """What was found of calls whose arguments have these trees and shapes, under one mesh in use."""

    # The shardings of arguments, None where nothing is said; and their numbers, by which arrays are known that are
    # there already, or None where more than a number decides.
    ins: list[Any]
    numbers: list[int | None] | None
    # By tree and shapes of the results, their shardings, the numbers of these, and where others are of which no
    # argument says it.
    outs: dict[Any, tuple[list[Any], list[int | None], Any]]
    # Whether any of all these are over several processes.
    several: bool


class PlacedFunction:
    """A jitted function with shardings of its arguments, of its results, or of both."""

    def __init__(
        self,
        jitted: Any,
        in_shardings: Any,
        out_shardings: Any,
        device: Device | None = None,
        asked: tuple[bool, bool] = (False, False),
    ) -> None:
        functools.update_wrapper(self, jitted)
        self._jit = jitted
        self._in = tuple(in_shardings) if isinstance(in_shardings, list) else in_shardings
        self._out = out_shardings
        # Whether shardings of arguments and of results were given at all, be it None.
        self._asked = asked
        # Where all arguments are put, wherever they are.
        self._device = device
        self._static = jitted._options[0][0]
        places = tree_util.tree_leaves((in_shardings, out_shardings), is_leaf=is_leaf)
        self._mesh = next((x.mesh for x in places if isinstance(x, NamedSharding) and isinstance(x.mesh, Mesh)), None)
        self._donates = any(jitted._options[1])
        # By trees, shapes and the mesh in use.
        self._known: dict[Any, _Checked] = {}

    # What makes such a function of what one has, by which copies and pickles are made.
    @property
    def _again(self) -> Any:
        return _again

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_jit":
            raise AttributeError(name)
        return getattr(self._jit, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, (self._jit, self._in, self._out, self._device, self._asked)

    def __repr__(self) -> str:
        return repr(self._jit)

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Arrays alone, and one array as the result, are their own leaves: of a tree that is None here.
        leaves: Sequence[Any] = args
        tree = None
        if kwargs or self._static or not all(type(x) is core.ArrayImpl for x in args):
            leaves, tree = tree_util.tree_flatten((self._dynamic(args), kwargs))
        # What was checked once for these trees and shapes, and under this mesh, holds.
        key = tree, tuple([getattr(x, "shape", ()) for x in leaves]), named_axes.mesh_in_use()
        known = self._known.get(key)
        if known is None:
            ins = self._inputs(args, kwargs)
            numbers = _numbers(ins or [None] * len(leaves))
            known = _kept(self._known, key, _Checked(ins, numbers, {}, self._is_over_several(ins)))
        if self._device is not None:
            args, kwargs = self._moved(args, kwargs, [SingleDeviceSharding(self._device)] * len(leaves))
        elif known.numbers is None or not all(map(_is_there, leaves, known.numbers)):
            if any(isinstance(x, core.Tracer) for x in leaves):
                results = self._bound(args, kwargs, known.ins)
                if results is not None:
                    return results
            if known.ins:
                args, kwargs = self._moved(args, kwargs, known.ins)
        spread = known.several and core.trace_state_clean()
        function = functools.partial(over_processes, self._jit) if spread and over_processes else self._jit
        if self._donates and not spread:
            function = functools.partial(_donating, self._jit)
        if self._out is None:
            results = function(*args, **kwargs)
        else:
            before, propagation.call.mesh = propagation.call.mesh, self._mesh
            try:
                results = placed_programs.called(
                    self._jit, args, kwargs, lambda tree, shapes: self._said(tree, shapes, known.ins)[0], function
                )
            finally:
                propagation.call.mesh = before
        out, tree = ([results], None) if type(results) is core.ArrayImpl else tree_util.tree_flatten(results)
        if known.ins and self._donates:
            self._delete_donated(leaves, args, kwargs, known.ins)
        if self._device is not None:
            out = [self._on_device(x) for x in out]
            return out[0] if tree is None else tree.unflatten(out)
        shapes = tuple([x.shape for x in out])
        found = known.outs.get((tree, shapes))
        if found is None:
            said, rest = self._said(tree_util.tree_structure(results), shapes, known.ins)
            found = _kept(known.outs, (tree, shapes), (said, _numbers(said) or [None] * len(said), rest))
        given = set(map(id, leaves))
        said, numbers, rest = found
        out = [_put(x, where, number, rest, id(x) in given) for x, where, number in zip(out, said, numbers)]
        return out[0] if tree is None else tree.unflatten(out)

    def _bound(self, args, kwargs, places) -> Any:
        """The results of a call that is an equation, whose program says where arguments and results are. None where
        types say it, by explicit axes, and where there is no equation, or more to it than a program: mutable arrays."""
        if self._jit._options[2] or config.disable_jit.value or get_abstract_mesh().manual_axes:
            return None
        typed_args, typed_kwargs = self._with_meshes(args, kwargs, places)
        program, captured, in_tree, out_tree, _, refs = self._jit._traced(*typed_args, **typed_kwargs)
        names = self._jit._options[0][1]
        dynamic = self._dynamic(args), {name: x for name, x in kwargs.items() if name not in names}
        leaves = tree_util.tree_leaves(dynamic)
        if refs is not None or len(leaves) != in_tree.num_leaves or any(map(typed, leaves)):
            return None
        said, _ = self._said(out_tree, [shape for shape, *_ in program.out_types[: out_tree.num_leaves]], places)
        if any(isinstance(where, NamedSharding) and where.mesh.explicit_axes for where in (*places, *said)):
            return None
        if places:
            args, kwargs = self._moved(args, kwargs, places, stated=True)
        leaves = tree_util.tree_leaves((self._dynamic(args), {name: kwargs[name] for name in dynamic[1]}))
        name = self._jit._function_name
        program = call_borders.stated(program, name, places, said)
        operands = tuple([core.as_array(x, "jit") for x in (*map(by_rows, leaves), *captured)])
        results = _core.bind("jit", operands, {"program": program, "name": name, "inline": False})
        return out_tree.unflatten([_typed(x, where) for x, where in zip(results, said)])

    def _is_over_several(self, ins) -> bool:
        """Whether a sharding of the arguments, or one that is said of results, has devices of other processes."""
        said, mesh = list(ins), mesh_of_specs()
        for where in tree_util.tree_leaves(self._out, is_leaf=is_leaf):
            where = where.sharding if isinstance(where, Format) else where
            if isinstance(where, PartitionSpec) and isinstance(mesh, Mesh) and not mesh.empty:
                where = NamedSharding(mesh, PartitionSpec())
            if isinstance(where, Sharding) and not _without_devices(where):
                said.append(where)
        return stages.over_several(said)

    def _on_device(self, x):
        """A result on the function's device. Errors: ValueError for one that the function puts on others."""
        if isinstance(x, core.Tracer) or self._device is None:
            return x
        where = SingleDeviceSharding(self._device)
        known, committed = placement(x)
        if committed and known.device_set != where.device_set:
            raise ValueError(
                f"jit: incompatible devices: the function runs on {self._device}, and a sharding within it is over "
                f"{', '.join(map(str, known._device_assignment))}"
            )
        return place(x, where)

    def _moved(self, args, kwargs, places, stated=False) -> tuple[tuple, dict]:
        """The arguments where they are said to be; traced ones as they are, if the program says it (`stated`).

        Errors: ValueError for those that were divided otherwise by request, unless the function has its own device.
        """

        def put(leaf, where):
            leaf = by_rows(leaf)
            array = leaf if type(leaf) is GlobalArray else core.as_array(leaf, "jit")
            if where is None or not self._device and isinstance(array, core.Tracer):
                return leaf if where is None or stated else laid_out(array, where)
            if isinstance(array, core.Tracer):
                return leaf
            known, committed = placement(array)
            # What is no array yet was put nowhere, also where a mesh is in use.
            committed = committed and array is leaf
            found = array if committed or self._device else stages.divided(array, where, leaf)
            if isinstance(where, NamedSharding) and where.mesh.explicit_axes and typed(array) is None:
                # What it is divided over is no part of its type.
                where = NamedSharding(where.mesh, PartitionSpec())
            if committed and self._device is None and max(known.num_devices, where.num_devices) > 1:
                if not known.is_equivalent_to(where, array.ndim) or known.device_set != where.device_set:
                    raise ValueError(
                        f"jit: in_shardings says that an argument of type {core.typeof(array).str_short()} is laid out "
                        f"as {where}, and it was put where {known} says: put it there first, with ferrax.device_put"
                    )
                return leaf
            if array is leaf and not committed and where.num_devices > 1:
                transfers.moved(array, known, where, False)
            return found if type(found) is GlobalArray and not where.is_fully_replicated else placed(array, where)

        leaves, tree = tree_util.tree_flatten((self._dynamic(args), kwargs))
        return self._with_dynamic(args, *tree.unflatten([put(x, where) for x, where in zip(leaves, places)]))

    def _with_meshes(self, args, kwargs, places) -> tuple[tuple, dict]:
        """The arguments, with types in place of traced values over no mesh that are to be on one without explicit axes.

        The program is then the one of arrays, which are put there before: one whose arguments' types name the mesh.
        """

        def shown(leaf, where):
            over_mesh = isinstance(where, NamedSharding) and where.mesh.are_all_axes_auto
            if not over_mesh or not isinstance(leaf, core.Tracer) or meshes_of([leaf]):
                return leaf
            lies = core.typeof(leaf).manual_axis_type
            return core.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=where, weak_type=leaf.weak_type, manual_axis_type=lies
            )

        if not places:
            return args, kwargs
        leaves, tree = tree_util.tree_flatten((self._dynamic(args), kwargs))
        return self._with_dynamic(args, *tree.unflatten([shown(x, where) for x, where in zip(leaves, places)]))

    def _with_dynamic(self, args, dynamic, kwargs) -> tuple[tuple, dict]:
        """The arguments, with these in place of those that are not static."""
        rest = iter(dynamic)
        numbers = {number % len(args) for number in self._static} if args else set()
        return tuple(x if n in numbers else next(rest) for n, x in enumerate(args)), kwargs

    def _delete_donated(self, leaves, args, kwargs, places) -> None:
        """Deletes arguments of which a copy on all devices, this one's among them, was donated."""
        moved = tree_util.tree_leaves((self._dynamic(args), kwargs))
        for x, there, where in zip(leaves, moved, places):
            if x is not there and where is not None and where.is_fully_replicated and isinstance(x, core.Array):
                if there.is_deleted() and placement(x).sharding.device_set <= where.device_set:
                    x.delete()

    def _dynamic(self, args) -> tuple:
        numbers = {number % len(args) for number in self._static} if args else set()
        return tuple(x for number, x in enumerate(args) if number not in numbers)

    def _inputs(self, args, kwargs) -> list:
        """The shardings of the leaves of the arguments, None where nothing is said, all checked."""
        dynamic = self._dynamic(args)
        self._check_donated(dynamic, kwargs)
        if self._in is None and not self._asked[0]:
            return []
        if kwargs:
            raise ValueError(
                f"jit: with in_shardings, arguments are positional; got the keywords {', '.join(kwargs)}"
            )
        places = _prefix(self._in, dynamic, "in_shardings")
        leaves = tree_util.tree_leaves(dynamic)
        return [
            resolved(self._meant(where, self._asked[0]), np.shape(x), "in_shardings")
            for where, x in zip(places, leaves)
        ]

    def _check_donated(self, dynamic, kwargs) -> None:
        """Errors: ValueError where arguments are donated and only they, or only results, are in any layout."""
        numbers, names = self._jit._options[1]
        if not (numbers or names):
            return
        given = [self._in] if not isinstance(self._in, tuple) else [x for n, x in enumerate(self._in) if n in numbers]
        free = _leaves_layout_open(given)
        if free != _leaves_layout_open(self._out):
            open_side, other = ("in_shardings", "out_shardings") if free else ("out_shardings", "in_shardings")
            raise ValueError(
                f"jit: a donated argument's memory is a result's only if both are in one layout: {open_side} says "
                f"Format(Layout.AUTO), and {other} does not. Say it in both or in neither"
            )
    def _meant(self, where: Any, asked: bool) -> Any:
        """What a place stands for; `asked`: it was given, be it None."""
        return where

    def _rest(self) -> Sharding | None:
        """Where results are of which nothing is said, if no argument is anywhere."""
        return None if self._device is None else SingleDeviceSharding(self._device)

    def _said(self, tree, shapes, known) -> tuple[list, Sharding | None]:
        """The shardings of the results, all checked, None where nothing is said; and where these are unless that
        follows from the arguments: on the same mesh, undivided."""
        dummy = tree_util.with_placeholders(tree)
        places = _prefix(self._out, dummy, "out_shardings")
        places = [
            resolved(self._meant(where, self._asked[1]), shape, "out_shardings") for where, shape in zip(places, shapes)
        ]
        said = [where for where in [*places, *known] if where is not None]
        devices = {where._device_assignment for where in said}
        if len(devices) > 1:
            raise ValueError(
                "jit: incompatible devices: in_shardings and out_shardings are over different devices, "
                + " and ".join(", ".join(map(str, some)) for some in devices)
            )
        rest: Sharding | None = said[0] if said else self._rest()
        if isinstance(rest, NamedSharding):
            rest = NamedSharding(rest.mesh, PartitionSpec())
        return places, rest

    def _outputs(self, tree, shapes, known) -> list:
        """As `_said`, the latter in the place of None."""
        places, rest = self._said(tree, shapes, known)
        return [rest if where is None else where for where in places]

    def _stage(self, staged, args, kwargs):
        known = self._inputs(args, kwargs)
        shapes = [shape for shape, *_ in staged._program.out_types[: staged.out_tree.num_leaves]]
        if self._device is not None:
            on = SingleDeviceSharding(self._device)
            staged._shardings = [on] * staged.in_tree.num_leaves, [on] * len(shapes)
            return staged
        said = tree_util.tree_leaves((self._in, self._out), is_leaf=is_leaf)
        staged._without_devices = any(map(_without_devices, said))
        staged._said = self._said(staged.out_tree, shapes, known)[0]
        outs, found = self._outputs(staged.out_tree, shapes, known), staged._shardings
        if any(known):
            leaves = tree_util.tree_leaves((self._dynamic(args), kwargs))
            found = _following(staged._program, known, leaves, staged._captured)
        if found:
            # What is said of results alone is beside what follows from the arguments.
            outs = [there if where is None else where for where, there in zip(staged._said, found[1])]
        staged._shardings = known if any(known) else found[0] if found else known, outs
        return staged

    def trace(self, *args: Any, **kwargs: Any) -> stages.Traced:
        """Traces for these (possibly abstract) arguments."""
        return self._stage(self._jit.trace(*args, **kwargs), args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> stages.Lowered:
        """Traces and lowers for these (possibly abstract) arguments."""
        return self._stage(self._jit.lower(*args, **kwargs), args, kwargs)

    def memory_plan(self, *args: Any, **kwargs: Any) -> MemoryPlan:
        """Where each value is, and what is copied: of the program for whole arrays."""
        return self._jit.memory_plan(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs' shapes, dtypes and shardings, without running."""
        self._inputs(args, kwargs)
        out, tree = tree_util.tree_flatten(self._jit.eval_shape(*args, **kwargs))
        places = self._outputs(tree, [x.shape for x in out], [])
        return tree.unflatten([x if where is None else x.update(sharding=where) for x, where in zip(out, places)])


def _donating(jitted: Any, *args: Any, **kwargs: Any) -> Any:
    """What a jitted function gives, whose warnings of donated arguments are of the user's line."""
    return called_by_user(functools.partial(jitted, *args, **kwargs))


# Libraries tell jitted functions by the name of their class.
PlacedFunction.__name__ = PlacedFunction.__qualname__ = "PjitFunction"


def _again(*fields: Any) -> PlacedFunction:
    return PlacedFunction(*fields)


# `over_processes(jitted, *args, **kwargs)`: what a jitted function gives over the devices of several processes. Set by
# what joins them.
over_processes: Callable[..., Any] | None = None

# How many lists of shardings a function keeps.
_MOST = 4096


def _leaves_layout_open(places) -> bool:
    found = tree_util.tree_leaves(places, is_leaf=is_leaf)
    return any(isinstance(where, Format) and isinstance(where.layout, AutoLayout) for where in found)


def _kept(table, key, found):
    if len(table) >= _MOST:
        table.clear()
    table[key] = found
    return found


def _numbers(places) -> list[int | None] | None:
    """The numbers of shardings, None for None; None where a sharding has none of its own: over explicit axes, which
    types have or have not, and of sums over devices."""
    for where in places:
        if isinstance(where, NamedSharding) and (where.mesh.explicit_axes or where.spec.unreduced):
            return None
    return [None if where is None else number_of(where) for where in places]


def _is_there(x, number) -> bool:
    """Whether this is an array of this number, or of any."""
    return type(x) is core.ArrayImpl and (number is None or _core.place_of(x) == number)


def _put(x, where, number, rest, given):
    """A result, where it is, whose number may be known. One that is no argument (`given`) is nobody else's. What has no
    elements is nowhere. A traced one of which nothing is said is where the program that it is part of puts it."""
    if number is not None and not given and type(x) is core.ArrayImpl:
        return _core.place_at(x, number, True)
    if isinstance(x, np.ndarray):  # float0
        return x
    if isinstance(x, core.Tracer):
        return x if where is None else laid_out(x, where)
    if where is None:
        if rest is None or placement(x).committed:
            return x
        where = rest
    if type(x) is GlobalArray:
        return x  # which is where it was said to be
    return placed(x, where) if given else place(x, where)


def _typed(x, where):
    """A result of a call that states where it is."""
    if isinstance(x, core.Tracer) and isinstance(where, NamedSharding):
        return place(x, where)
    return x


def _prefix(places, tree, what) -> list:
    try:
        return tree_util.broadcast_prefix(places, tree, is_leaf=is_leaf)
    except ValueError as error:
        raise ValueError(f"jit: {what} must be a tree above that of what they are for: {error}") from None


def with_places(
    jitted: _core.PjitFunction, in_shardings: Any, out_shardings: Any, device: Device | None = None
) -> Any:
    """The jitted function with these shardings, or on this device; itself where they say nothing."""
    if device is not None:
        return PlacedFunction(jitted, None, None, device)
    if out_shardings is None and not any(tree_util.tree_leaves(in_shardings, is_leaf=is_leaf)):
        return jitted
    return PlacedFunction(jitted, in_shardings, out_shardings)
