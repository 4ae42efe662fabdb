"""Layouts of the arguments and results of jitted functions (`jit(f, in_shardings=Format(…))`).

Such a function runs as another jitted function, of the data that `PermutedArray`s hold: it begins with transposes to
the shapes that the user's function takes and ends with those to the order that results have in memory. Fusion makes of
these other steps through memory, so that they cost no copy. Nothing else of the compiler knows of layouts.

Invariant: values in traced functions have no layout. So called with tracers, a function is what it is without layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ferrax import _core
from ferrax._src import core
from ferrax._src.base.traceback_util import boundary
from ferrax._src.core import named_axes
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.devices import Device
from ferrax._src.core.global_array import GlobalArray
from ferrax._src.core.jaxpr import ClosedJaxpr, Literal
from ferrax._src.core.layout import AutoLayout, Format, Layout, Order, dense, order_of, ordered
from ferrax._src.core.permuted_array import (
    data_of,
    inverse,
    laid_out_as,
    order_in_memory,
    permuted,
    transposed,
)
from ferrax._src.core.placements import placement
from ferrax._src.core.primitives import apply_program
from ferrax._src.tracing import staging
from ferrax._src.transforms import placed_jit, stages
from ferrax._src.tree import tree_util

Orders = list[Order | None]


def _is_stated(place: Any) -> bool:
    return isinstance(place, Format) and place.layout is not None


def stated_order(x: Any) -> Order | None:
    """The order of the axes of an argument, an array or a `ShapeDtypeStruct`; None: row by row."""
    if type(x) is ShapeDtypeStruct:
        return order_of(x._layout, x.shape, "jit")
    return order_in_memory(x)


def _argument_order(place: Any, x: Any) -> Order | None:
    """The order in which a function takes an argument of which `place` is said.

    Errors: ValueError for an array that lies otherwise by request, and for any that was put somewhere where the
    layout is left open: it has one.
    """
    own = stated_order(x)
    if not _is_stated(place):
        return own
    is_open = isinstance(place.layout, AutoLayout)
    wanted = None if is_open else order_of(place.layout, x.shape, "jit")
    if type(x) is ShapeDtypeStruct:
        lies = x._layout is not None
    else:
        lies = isinstance(x, core.Array) and not isinstance(x, core.Tracer) and placement(x).committed
    if lies and is_open:
        raise ValueError(
            f"jit: in_shardings leaves the layout of an argument of type {core.typeof(x).str_short()} open, and the "
            "argument is an array that has one: lower the function for ShapeDtypeStructs, compile it, and put arrays "
            "where its input_formats say"
        )
    if lies and own != wanted:
        rank = len(x.shape)
        raise ValueError(
            f"jit: in_shardings says that an argument of type {core.typeof(x).str_short()} lies in memory as "
            f"{place.layout}, and it lies as {ordered(own) if own else dense(rank)}: put it there first, with "
            "ferrax.device_put"
        )
    return wanted


# Elements of their results are functions of the elements at the same place.
_ELEMENTWISE = {
    *_core.op_rows(), "clamp", "convert_element_type", "copy", "integer_pow", "reduce_precision", "select_n",
    "stop_gradient",
}  # fmt: skip


def _natural_orders(program: Any, in_orders: Sequence[Order | None]) -> Orders:
    """The orders in which results are made without a copy: operations of elements keep that of their operands, which
    transposes change, and all others give rows."""
    jaxpr = ClosedJaxpr(program.optimise(), ()).open
    # None of what is the same in all orders.
    known: dict[Any, Order | None] = {}

    def order(atom) -> Order | None:
        return None if isinstance(atom, Literal) else known.get(atom, tuple(range(atom.aval.ndim)))

    for var, own in zip(jaxpr.invars, in_orders):
        if own is not None:
            known[var] = own
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "transpose":
            before, place = order(eqn.invars[0]), inverse(eqn.params["permutation"])
            known[eqn.outvars[0]] = None if before is None else tuple(place[axis] for axis in before)
        elif name == "broadcast_in_dim" and eqn.invars[0].aval.ndim == 0:
            known[eqn.outvars[0]] = None
        elif name in _ELEMENTWISE:
            rank = eqn.outvars[0].aval.ndim
            found = {order(x) for x in eqn.invars if x.aval.ndim == rank} - {None}
            if len(found) < 2:
                known[eqn.outvars[0]] = found.pop() if found else None
    found_orders = map(order, jaxpr.outvars)
    return [None if own is None or own == tuple(range(len(own))) else own for own in found_orders]


def _result_orders(places: Sequence[Any], shapes: Sequence[Any], program: Any, in_orders: Orders) -> Orders:
    """The orders of results of which `places` are said."""
    natural: Orders = []
    if any(_is_stated(where) and isinstance(where.layout, AutoLayout) for where in places):
        natural = _natural_orders(program, in_orders)
    return [
        None
        if not _is_stated(where)
        else natural[number]
        if isinstance(where.layout, AutoLayout)
        else order_of(where.layout, shape, "jit")
        for number, (where, shape) in enumerate(zip(places, shapes))
    ]


def permuted_program(program: Any, in_orders: Orders, out_orders: Orders) -> Any:
    """The program of arguments and results whose axes are in these orders. Of what is behind them (arrays that a
    function captures, values of mutable ones) nothing changes."""

    def run(*data):
        rest = data[len(in_orders) :]
        given = [_undone(x, order) for x, order in zip(data, in_orders)]
        results = apply_program(program, [*given, *rest])
        return [*map(_done, results, out_orders), *results[len(out_orders) :]]

    run.__name__ = program.name
    types = [
        ShapeDtypeStruct(shape if order is None else [shape[axis] for axis in order], dtype, weak_type=weak)
        for (shape, dtype, weak), order in zip(
            program.in_types, [*in_orders, *[None] * (len(program.in_types) - len(in_orders))]
        )
    ]
    made, captured, _ = staging.stage(run, tuple(types), {})
    return made.bind_constants(captured) if captured else made


def _type_of(x: Any) -> tuple[Any, ...]:
    return getattr(x, "shape", ()), getattr(x, "dtype", type(x)), getattr(x, "weak_type", None)


def _undone(x: Any, order: Order | None) -> Any:
    return x if order is None else transposed(x, inverse(order))


def _done(x: Any, order: Order | None) -> Any:
    return x if order is None else transposed(x, order)


class _Runner(NamedTuple):
    """What runs a function for arguments in some orders: the function of the data, and what its results are."""

    function: Any
    tree: Any
    orders: Orders
    shardings: list[Any]


class FormattedFunction(placed_jit.PlacedFunction):
    """A jitted function with formats of its arguments, of its results, or of both."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        said = tree_util.tree_leaves((self._in, self._out), is_leaf=placed_jit.is_leaf)
        self._has_layouts = any(map(_is_stated, said))
        # By trees, types and orders of arguments, and the mesh in use; None where all lie row by row.
        self._runners: dict[Any, _Runner | None] = {}

    @property
    def _again(self) -> Any:
        return _again

    @boundary
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._has_layouts or not core.trace_state_clean():
            return super().__call__(*args, **kwargs)
        dynamic = self._dynamic(args)
        names = self._jit._options[0][1]
        leaves, tree = tree_util.tree_flatten((dynamic, {name: x for name, x in kwargs.items() if name not in names}))
        orders = self._argument_orders(dynamic, leaves)
        static = [*self._fixed(args).values(), *[kwargs[name] for name in names if name in kwargs]]
        key = (
            tree, tuple(map(_type_of, leaves)), tuple(orders), tuple([(type(x), x) for x in static]), len(args),
            tuple(kwargs), named_axes.mesh_in_use(), _core.compilation_context(),
        )  # fmt: skip
        try:
            hash(key)
        except TypeError:  # of a static value, of which the function itself says so
            return super().__call__(*args, **kwargs)
        if key not in self._runners:
            placed_jit._kept(self._runners, key, self._runner(args, kwargs, tree, orders))
        runner = self._runners[key]
        if runner is None:
            return super().__call__(*args, **kwargs)
        data = [data_of(x, order, "jit") for x, order in zip(leaves, orders)]
        results = runner.function(*data)
        return runner.tree.unflatten(map(laid_out_as, results, runner.orders, runner.shardings))

    def _fixed(self, args: tuple[Any, ...]) -> dict[int, Any]:
        """The static ones among positional arguments, by number."""
        return {number % len(args): args[number] for number in self._static} if args else {}

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs' shapes, dtypes, shardings and, where they were said, layouts, without running."""
        out, tree = tree_util.tree_flatten(super().eval_shape(*args, **kwargs))
        said = [
            Format(where.layout, x.sharding) if _is_stated(where) and isinstance(where.layout, Layout) else x.sharding
            for where, x in zip(placed_jit._prefix(self._out, tree.unflatten(range(len(out))), "out_shardings"), out)
        ]
        return tree.unflatten([x.update(sharding=where) for x, where in zip(out, said)])

    def _argument_orders(self, dynamic: tuple[Any, ...], leaves: list[Any]) -> Orders:
        if self._in is None:
            return [stated_order(x) for x in leaves]
        places = placed_jit._prefix(self._in, dynamic, "in_shardings")
        # With in_shardings there are no keywords: calls are refused that have them.
        places += [None] * (len(leaves) - len(places))
        return [_argument_order(where, x) for where, x in zip(places, leaves)]

    def _orders(self, staged: Any, in_orders: Orders) -> Orders:
        """The orders of the results of a function that was traced."""
        types = staged._program.out_types[: staged.out_tree.num_leaves]
        dummy = staged.out_tree.unflatten(range(len(types)))
        places = placed_jit._prefix(self._out, dummy, "out_shardings")
        return _result_orders(places, [shape for shape, *_ in types], staged._program, in_orders)

    def _runner(self, args: Any, kwargs: Any, tree: Any, in_orders: Orders) -> _Runner | None:
        places = self._inputs(args, kwargs)
        traced = self._jit.trace(*args, **kwargs)
        out_orders = self._orders(traced, in_orders)
        if not any(in_orders) and not any(out_orders):
            return None
        for x in tree_util.tree_leaves((self._dynamic(args), kwargs)):
            if type(x) is GlobalArray:
                raise NotImplementedError(
                    f"jit: functions of arrays over several processes take and give rows; got {in_orders} for the "
                    f"orders of arguments and {out_orders} for those of results. Leave the layouts out"
                )
        out_tree = traced.out_tree
        shapes = tuple([tuple(shape) for shape, *_ in traced._program.out_types[: out_tree.num_leaves]])
        said, _ = self._said(out_tree, shapes, places)
        fixed, count = self._fixed(args), len(args)
        named = {name: kwargs[name] for name in self._jit._options[0][1] if name in kwargs}

        def run(*data):
            dynamic, keywords = tree.unflatten([_undone(x, order) for x, order in zip(data, in_orders)])
            rest = iter(dynamic)
            given = [fixed[number] if number in fixed else next(rest) for number in range(count)]
            results = tree_util.tree_leaves(self._jit(*given, **keywords, **named))
            return tuple(map(_done, results, out_orders))

        donated = [number for number, flag in enumerate(traced._donated or ()) if flag]
        jitted = _core.PjitFunction(
            run, self._jit._function_name, [], [], donated, [], False, None, _core.JitCache()
        )
        jitted._options = ((), ()), (tuple(donated), ()), False, None
        ins = tuple(map(_permuted, places, in_orders)) if places else None
        outs = None if self._out is None else tuple(map(_permuted, said, out_orders))
        return _Runner(type(self)(jitted, ins, outs, self._device, self._asked), out_tree, out_orders, said)

    def _stage(self, staged, args, kwargs):
        staged = super()._stage(staged, args, kwargs)
        leaves = tree_util.tree_leaves((self._dynamic(args), kwargs))
        if len(leaves) == staged.in_tree.num_leaves:
            in_orders = self._argument_orders(self._dynamic(args), leaves)
            staged._orders = in_orders, self._orders(staged, in_orders)
        return staged


FormattedFunction.__name__ = FormattedFunction.__qualname__ = "PjitFunction"


def _permuted(sharding: Any, order: Order | None) -> Any:
    return sharding if sharding is None or order is None else permuted(sharding, order)


def _again(*fields: Any) -> FormattedFunction:
    return FormattedFunction(*fields)


def with_places(
    jitted: _core.PjitFunction, in_shardings: Any, out_shardings: Any, device: Device | None = None
) -> Any:
    """The jitted function with these shardings or formats, or on this device; itself where they say nothing."""
    said = tree_util.tree_leaves((in_shardings, out_shardings), is_leaf=placed_jit.is_leaf)
    if any(map(_is_stated, said)):
        return FormattedFunction(jitted, in_shardings, out_shardings)
    return placed_jit.with_places(jitted, in_shardings, out_shardings, device)


stages.permuted_program = permuted_program
