"""Functions traced into programs, and what is asked of them without running: shapes and jaxprs.

A transformation flattens its arguments, has the native core trace the function into a program,
transforms the program and applies the result: at once where the arguments are concrete, else
into the program being traced. `Flat` is the function that the native core traces.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from ferrax import _core
from ferrax._src import core
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import api_util, float0 as float0_leaves, named_axes
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.explicit_types import all_typed, meshes_of, set_meshes, set_type
from ferrax._src.core.jaxpr import ClosedJaxpr, DebugInfo
from ferrax._src.core.mesh import get_abstract_mesh
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.sharding import NamedSharding
from ferrax._src.core.values import abstract_type
from ferrax._src.state import arguments as ref_args
from ferrax._src.tracing import known, values_as_arrays
from ferrax._src.tracing.abstract_values import stand_in
from ferrax._src.tree import opaque, tree_util


class Flat:
    """A function of a flat list of arrays, for tracing; keeps the tree of its outputs.

    `has_aux`: the function returns `(output, aux)`; both are traced, `num_out` leaves belong to
    the output. Leaves of aux that are not arrays are kept as they are, in `aux_kept`.
    `refs` are the leaves that are mutable arrays, by number; `kind` names the transformation.
    """

    def __init__(self, fun, in_tree, has_aux=False, fixed=None, refs=None, kind="jit"):
        self.fun = fun
        self.in_tree = in_tree
        self.has_aux = has_aux
        self.fixed = fixed
        # Of the last call.
        self.out_tree: Any = None
        self.aux_tree: Any = None
        self.aux_kept: Any = None
        self.structs: Any = None
        # What the function did to mutable arrays, once it is traced.
        self.touched: Any = None
        self.num_out = 0
        # The explicit types of the results, over axes of a mesh.
        self.types: Any = None
        # Those of the leaves of the arguments, if they are not those of values.
        self.explicit: Any = ()
        # What stands for their meshes where no axis is explicit.
        self.meshes: Any = ()
        self.refs = refs
        self.kind = kind

    def __call__(self, leaves):
        for leaf, sharding in zip(leaves, self.explicit):
            set_type(leaf, sharding)
        set_meshes(leaves, self.meshes)
        if self.refs:
            leaves = self.place_refs(leaves)
        args, kwargs = self.in_tree.unflatten(leaves)
        if self.fixed is not None:
            args = self.fixed(args)
        result = self.fun(*args, **kwargs)
        if self.has_aux:
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(
                    f"expected {api_util.fun_place(self.fun)} to return a pair (output, aux) "
                    "because "
                    f"has_aux=True, got {type(result).__name__}"
                )
            result, aux = result
            leaves, self.aux_tree = tree_util.tree_flatten(aux)
            aux_leaves = [leaf for leaf in leaves if isinstance(leaf, core.Array)]
            self.aux_kept = [None if isinstance(leaf, core.Array) else (leaf,) for leaf in leaves]
        else:
            aux_leaves = []
        out, self.out_tree = float0_leaves.flatten(result)
        for number, leaf in enumerate(out):
            if isinstance(leaf, ShapeDtypeStruct):
                out[number] = self.keep_struct(number, leaf)
        self.num_out = len(out)
        leaves = self.take_refs(out, result) + aux_leaves
        self.types = all_typed(leaves)
        return leaves

    def keep_struct(self, number, leaf):
        """What stands in the program for a leaf of the output that has a type only."""
        if self.structs is None:
            return stand_in(leaf)
        self.structs[number] = leaf
        return 0

    def place_refs(self, leaves):
        """The leaves with mutable arrays of this trace in their places."""
        return ref_args.place(leaves, self.refs)

    def take_refs(self, leaves, result):
        """What to return in place of the leaves of the output. Errors: ValueError for refs."""
        ref_args.check_returned(self.fun, self.kind, leaves, result)
        return leaves

    def aux(self, arrays):
        """The tree of aux for the values of its arrays."""
        arrays = iter(arrays)
        leaves = [next(arrays) if kept is None else kept[0] for kept in self.aux_kept]
        return self.aux_tree.unflatten(leaves)


def stage(fun, args, kwargs, kind="stage", writes=False, structs=False):
    """Traces `fun` for (possibly abstract) arguments: `(program, captured, flat)`.

    With `writes` the values that the function gives to mutable arrays are further outputs of the
    program; without, a function that writes to one from outside is a ValueError. With `structs`
    the function may return types in place of arrays, `flat.structs` by number: a zero stands for
    each of them in the program.
    """
    args, kwargs = ref_args.made(float0_leaves.hide((args, kwargs)))
    leaves, in_tree = tree_util.tree_flatten((args, kwargs))
    names = functools.partial(api_util.argument_names, fun, args, kwargs)
    refs = ref_args.of_leaves(leaves)
    types = [abstract_type(x) for x in leaves]
    explicit = all_typed(leaves)
    explicit = explicit if any(explicit) else []
    meshes = meshes_of(leaves)
    key = None
    if not refs:
        result, key = known.find(fun, (kind, structs, in_tree, *types, *explicit, *meshes))
        if result is not None:
            program, captured, flat = result
            return program, list(captured), flat
    ref_args.check_distinct(refs, fun, kind, names)
    flat = Flat(fun, in_tree, refs=refs)
    flat.structs = {} if structs else None
    flat.explicit, flat.meshes = explicit, meshes
    program, captured, flat.touched = _core.trace_program(
        flat, kind, api_util.fun_name(fun), types, names
    )
    if key is not None and known.lasting(captured, flat.touched):
        # What is kept of a function must not keep it.
        flat.fun = None
        known.keep(fun, key, (program, tuple(captured), flat))
    if flat.touched is not None and flat.touched.count and not writes:
        raise ValueError(
            f"{api_util.fun_place(fun)} writes to a mutable array from outside, which is lost where "
            "it is used. Return the value and write it afterwards."
        )
    return program, captured, flat


def shape_of(fun, args, kwargs):
    """The types of the outputs of a function for these arguments, in their tree."""
    program, _, flat = stage(fun, args, kwargs, writes=True, structs=True)
    used, types = get_abstract_mesh(), flat.types
    if used.explicit_axes:
        ranks = [len(shape) for shape, *_ in program.out_types]
        types = [ty or NamedSharding(used, PartitionSpec(*[None] * rank)) for ty, rank in zip(types, ranks)]
    return output_types(program, flat.out_tree, flat.structs, types)


def output_types(program, out_tree, known=(), explicit=()):
    """The types of the outputs in their tree; `known` are the types of some, by number, `explicit` those over axes of a
    mesh."""
    types = program.out_types[: out_tree.num_leaves]
    structs = out_tree.unflatten(
        [
            known[number] if number in known else struct_of(ty, explicit[number] if explicit else None)
            for number, ty in enumerate(types)
        ]
    )
    structs = tree_util.tree_map(
        lambda x: ShapeDtypeStruct(x.shape, x.dtype) if float0_leaves.is_float0(x) else x, structs
    )
    return values_as_arrays.types_in(structs) if opaque.any_values() else structs


def struct_of(ty, sharding=None):
    """The type, as the native core gives it, as a struct, of arrays with this explicit type."""
    manual = core.ShapedArray(*ty).manual_axis_type if len(ty) > 3 else None
    if sharding is not None:
        sharding = sharding.update(mesh=sharding.mesh.abstract_mesh, memory_kind=None)
    return ShapeDtypeStruct(*ty[:2], sharding=sharding, weak_type=ty[2], manual_axis_type=manual)


@api_util.takes_types
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of `fun(*args, **kwargs)`, without computing it.

    Arguments may be arrays or anything with shape and dtype; the function may return
    `ShapeDtypeStruct`s beside arrays. Example:
        >>> ferrax.eval_shape(lambda x: x.sum(), ferrax.ShapeDtypeStruct((3,), jnp.float32))
        ShapeDtypeStruct(shape=(), dtype=float32)
    """
    if type(fun).__name__ == _core.PjitFunction.__name__:
        # Also one with shardings, whose class is of a layer above.
        return cast(Any, fun).eval_shape(*args, **kwargs)
    api_util.check_callable(fun)
    return shape_of(fun, args, kwargs)


def make_jaxpr(
    fun: Callable[..., Any], static_argnums: int | Sequence[int] = (), axis_env: Any = None,
    return_shape: bool = False, abstracted_axes: Any = None,
) -> Callable[..., Any]:
    """A function of the arguments of `fun` that gives its jaxpr for them.

    Args: static_argnums: as for `jit`; return_shape: whether to return, second, the tree of the
    outputs' shapes and dtypes; abstracted_axes: must be None. Mutable arrays are inputs like others
    in it, and what they are given comes after the outputs: the jaxpr has a `WriteEffect` for each that
    is given a value. `axis_env` is pairs of a name and a size: named axes that `fun` may use, as if it
    were mapped.

    Example:
        >>> ferrax.make_jaxpr(lambda x: x * 2)(1.0)
        { lambda ; a:f32[]. let b:f32[] = mul a 2.0:f32[] in (b,) }
    """
    api_util.check_callable(fun)
    api_util.refuse_abstracted_axes("make_jaxpr", abstracted_axes)
    static = api_util.as_tuple_of_ints(static_argnums, "static_argnums")

    @api_boundary
    @api_util.takes_types
    def make_jaxpr_f(*args, **kwargs):
        call, dynamic, held = fun, args, {}
        if static:
            held = {i % len(args): args[i] for i in static}
            dynamic = tuple(a for i, a in enumerate(args) if i not in held)

            def call(*given, **kwargs):
                rest = iter(given)
                merged = [held[i] if i in held else next(rest) for i in range(len(args))]
                return fun(*merged, **kwargs)

            api_util.update_wrapper(call, fun)
        with named_axes.named_axes_of(axis_env):
            program, captured, flat = stage(call, dynamic, kwargs, writes=True, structs=True)
        closed = ClosedJaxpr(program, captured)
        if flat.touched is not None:
            own = tuple(entry.position for entry in flat.touched.written)
            closed._written = tuple(flat.touched.written_arguments), own
        if flat.structs:
            closed = closed.with_outputs(flat.structs)

        def describe():
            out = tree_util.with_placeholders(flat.out_tree)
            paths = [tree_util.keystr(path) for path, _ in tree_util.tree_leaves_with_path(out)]
            # None has no leaves, so that static arguments have no names.
            named = [None if i in held else arg for i, arg in enumerate(args)]
            names = api_util.argument_names(fun, named, kwargs)
            results = tuple(f"result{path}" for path in paths)
            return DebugInfo("jit", api_util.fun_place(fun), tuple(names), results)

        closed._describe = describe
        if flat.structs:
            closed.open.debug_info = describe()
        if not return_shape:
            return closed
        return closed, output_types(program, flat.out_tree, flat.structs)

    api_util.update_wrapper(make_jaxpr_f, fun)
    make_jaxpr_f.__module__ = "ferrax"
    name = api_util.fun_name(fun)
    make_jaxpr_f.__name__ = f"make_jaxpr({name})"
    make_jaxpr_f.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', name)})"
    return make_jaxpr_f
