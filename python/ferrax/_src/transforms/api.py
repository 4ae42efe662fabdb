"""`jit` and ahead-of-time staging; what every transformation shares.

A transformation flattens its arguments, has the native core trace the function into a program,
transforms the program and applies the result: at once where the arguments are concrete, else
into the program being traced.
"""

from __future__ import annotations

import functools
import weakref

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.core import api_util, float0 as float0_leaves, named_axes
from ferrax._src.core.avals import ShapeDtypeStruct
from ferrax._src.core.devices import Device
from ferrax._src.core.sharding import Sharding
from ferrax._src.state import ref_args
from ferrax._src.transforms import stages, stats
from ferrax._src.tree import tree_util

float0 = dtypes.float0


def abstract_type(x) -> tuple:
    """`(shape, dtype, weak)` of an array-like or of anything with shape and dtype."""
    if not isinstance(x, (core.Array, np.ndarray, np.generic)) and hasattr(x, "shape"):
        if hasattr(x, "dtype"):
            dtype = x.dtype
            if not dtypes.issubdtype(dtype, dtypes.extended):
                dtype = dtypes.canonicalize_dtype(dtype)
            return tuple(x.shape), dtype, bool(getattr(x, "weak_type", False))
    return _core.type_of(x)


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
        self.out_tree = self.aux_tree = self.aux_kept = None
        self.num_out = 0
        self.refs = refs
        self.kind = kind

    def __call__(self, leaves):
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
        self.num_out = len(out)
        return self.take_refs(out, result) + aux_leaves

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


def stage(fun, args, kwargs, kind="stage", writes=False):
    """Traces `fun` for (possibly abstract) arguments: `(program, captured, flat)`.

    With `writes` the values that the function gives to mutable arrays are further outputs of the
    program; without, a function that writes to one from outside is a ValueError.
    """
    args, kwargs = float0_leaves.hide((args, kwargs))
    leaves, in_tree = tree_util.tree_flatten((args, kwargs))
    names = functools.partial(api_util.argument_names, fun, args, kwargs)
    refs = ref_args.of_leaves(leaves)
    ref_args.check_distinct(refs, fun, kind, names)
    flat = Flat(fun, in_tree, refs=refs)
    program, captured, flat.touched = _core.trace_program(
        flat, kind, api_util.fun_name(fun), [abstract_type(x) for x in leaves], names
    )
    if flat.touched is not None and flat.touched.count and not writes:
        raise ValueError(
            f"{api_util.fun_place(fun)} writes to a mutable array from outside, which is lost where "
            "it is used. Return the value and write it afterwards."
        )
    return program, captured, flat


# jit

_caches: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _shared_cache(fun, options):
    """One cache for all jits of one function with the same options."""
    try:
        by_options = _caches.setdefault(fun, {})
    except TypeError:
        return _core.JitCache()
    return by_options.setdefault(options, _core.JitCache())


def jit(
    fun=None,
    /,
    *,
    in_shardings=None,
    out_shardings=None,
    static_argnums=None,
    static_argnames=None,
    donate_argnums=None,
    donate_argnames=None,
    keep_unused=False,
    device=None,
    backend=None,
    inline=False,
    abstracted_axes=None,
    compiler_options=None,
    max_traces=None,
):
    """Compiles a function: it is traced once for each new signature, then its program runs.

    Args:
        fun: a pure function of pytrees of arrays. Without it, a decorator is returned.
        static_argnums, static_argnames: arguments that are part of the signature by value; they
            must be hashable.
        donate_argnums, donate_argnames: arguments whose memory may be reused for outputs; they
            count as deleted afterwards.
        inline: inside other traced functions, write the equations out instead of a call.
        max_traces: how often the function may be traced; the call that would trace it once more
            raises instead, naming the argument that changed. None: any number of times.
        keep_unused, device, backend: accepted for compatibility; there is one CPU device, and
            unused arguments cost nothing.

    Errors: TypeError for leaves that are not arrays; ValueError for static arguments without a
    hash; NotImplementedError for shardings; `errors.TooManyTracesError` beyond `max_traces`.

    The function returned has `lower`, `trace` and `eval_shape` as in JAX, and `stats()`, which
    tells how often it was traced and compiled, and why it was last traced again.

    Example:
        >>> @ferrax.jit
        ... def scaled(x, y):
        ...     return 2 * x + y
        >>> scaled(1.0, jnp.arange(3.0))
        Array([2., 3., 4.], dtype=float32)
    """
    if in_shardings is not None or out_shardings is not None:
        raise NotImplementedError("jit: in_shardings and out_shardings need several devices")
    if abstracted_axes is not None:
        raise NotImplementedError("jit: abstracted_axes is not supported")
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "inline": inline,
        "max_traces": max_traces,
    }
    if fun is None:
        return lambda fun: _make_jit(fun, **options)
    return _make_jit(fun, **options)


def _make_jit(
    fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline, max_traces
):
    api_util.check_callable(fun)
    if max_traces is not None and (type(max_traces) is not int or max_traces < 1):
        raise ValueError(f"jit: max_traces must be a positive int or None, got {max_traces!r}")
    static = api_util.resolve_argnums(fun, static_argnums, static_argnames, "static")
    donate = api_util.resolve_argnums(fun, donate_argnums, donate_argnames, "donate")
    both = sorted(set(static[0]) & set(donate[0]))
    if both:
        raise ValueError(f"static_argnums and donate_argnums cannot intersect: both have {both}")
    cache = _shared_cache(fun, (static, donate, max_traces))
    jitted = _core.PjitFunction(
        fun,
        api_util.fun_name(fun),
        list(static[0]),
        list(static[1]),
        list(donate[0]),
        list(donate[1]),
        inline,
        max_traces,
        cache,
    )
    functools.update_wrapper(jitted, fun)
    return jitted


def _trace(self, *args, **kwargs):
    """Traces for these (possibly abstract) arguments; see `ferrax.stages.Traced`."""
    return stages.Traced(*self._traced(*args, **kwargs), self._function_name)


def _lower(self, *args, **kwargs):
    """Traces and lowers for these (possibly abstract) arguments; see `ferrax.stages.Lowered`."""
    return stages.Lowered(*self._traced(*args, **kwargs), self._function_name)


def _eval_shape(self, *args, **kwargs):
    """The outputs' shapes and dtypes, without running."""
    program, _, _, out_tree, _, _ = self._traced(*args, **kwargs)
    return _structs(program, out_tree)


def _structs(program, out_tree):
    types = program.out_types[: out_tree.num_leaves]
    structs = out_tree.unflatten([ShapeDtypeStruct(s, d, weak_type=w) for s, d, w in types])
    return tree_util.tree_map(
        lambda x: ShapeDtypeStruct(x.shape, x.dtype) if float0_leaves.is_float0(x) else x, structs
    )


def _stats(self):
    """How often the function was traced and compiled, and why last: a `JitStats`.

    Example:
        >>> f = ferrax.jit(lambda x: 2 * x)
        >>> f(jnp.ones(2)), f(jnp.ones(3))
        (Array([2., 2.], dtype=float32), Array([2., 2., 2.], dtype=float32))
        >>> f.stats()
        <JitStats of <lambda>: 2 traces, 2 compiles, 2 cache entries; last retrace: x changed in shape: (2,) -> (3,)>
    """
    return stats.of(self)


_core.PjitFunction.stats = _stats
_core.PjitFunction.trace = _trace
_core.PjitFunction.lower = _lower
_core.PjitFunction.eval_shape = _eval_shape


def eval_shape(fun, *args, **kwargs):
    """The shapes and dtypes of `fun(*args, **kwargs)`, without computing it.

    Arguments may be arrays or anything with shape and dtype. Example:
        >>> ferrax.eval_shape(lambda x: x.sum(), ferrax.ShapeDtypeStruct((3,), jnp.float32))
        ShapeDtypeStruct(shape=(), dtype=float32)
    """
    if isinstance(fun, _core.PjitFunction):
        return fun.eval_shape(*args, **kwargs)
    api_util.check_callable(fun)
    program, _, flat = stage(fun, args, kwargs, writes=True)
    return _structs(program, flat.out_tree)


def make_jaxpr(fun, static_argnums=(), axis_env=None, return_shape=False, abstracted_axes=None):
    """A function that returns the jaxpr of `fun` for given arguments.

    Mutable arrays are inputs like others in it, and what they are given comes after the outputs.
    `axis_env` is pairs of a name and a size: named axes that `fun` may use, as if it were mapped.

    Example:
        >>> ferrax.make_jaxpr(lambda x: x * 2)(1.0)
        { lambda ; a:f32[]. let b:f32[] = mul a 2.0:f32[] in (b,) }
    """
    from ferrax._src.core.jaxpr import ClosedJaxpr, DebugInfo

    api_util.check_callable(fun)
    static = api_util.as_tuple_of_ints(static_argnums, "static_argnums")

    @functools.wraps(fun)
    def make_jaxpr_f(*args, **kwargs):
        call, dynamic, held = fun, args, {}
        if static:
            held = {i % len(args): args[i] for i in static}
            dynamic = tuple(a for i, a in enumerate(args) if i not in held)

            def call(*rest, **kwargs):
                rest = iter(rest)
                merged = [held[i] if i in held else next(rest) for i in range(len(args))]
                return fun(*merged, **kwargs)

            functools.update_wrapper(call, fun)
        with named_axes.named_axes_of(axis_env):
            program, captured, flat = stage(call, dynamic, kwargs, writes=True)
        closed = ClosedJaxpr(program, captured)

        def describe():
            out = flat.out_tree.unflatten(range(flat.out_tree.num_leaves))
            paths = [tree_util.keystr(path) for path, _ in tree_util.tree_leaves_with_path(out)]
            # None has no leaves, so that static arguments have no names.
            named = [None if i in held else arg for i, arg in enumerate(args)]
            names = api_util.argument_names(fun, named, kwargs)
            results = tuple(f"result{path}" for path in paths)
            return DebugInfo("jit", api_util.fun_place(fun), tuple(names), results)

        closed._describe = describe
        if not return_shape:
            return closed
        return closed, _structs(program, flat.out_tree)

    return make_jaxpr_f


def clear_caches() -> None:
    """Forgets all traced and compiled programs."""
    for by_options in list(_caches.values()):
        for cache in by_options.values():
            cache.clear()
    _core.clear_program_cache()


def block_until_ready(x):
    """Waits for all arrays of a tree, which on this backend are ready at once. Returns the tree."""
    return tree_util.tree_map(lambda leaf: getattr(leaf, "block_until_ready", lambda: leaf)(), x)


copy_to_host_async = block_until_ready


def device_put(x, device=None, src=None, *, donate=False, may_alias=None):
    """The leaves of a tree as arrays on the device. There is one device, the CPU.

    `device` is None, a device, a sharding, or a tree of these above the leaves. Errors: TypeError
    for others.
    """
    for place in tree_util.tree_leaves(device):
        if not isinstance(place, (Device, Sharding)):
            raise TypeError(
                "device_put requires a device such as ferrax.devices()[0], a sharding, or a tree of "
                f"these; got {place!r} of type {type(place).__name__}"
            )
    return tree_util.tree_map(lambda leaf: core.as_array(leaf, "device_put"), x)


def device_get(x):
    """The leaves of a tree as NumPy arrays."""
    return tree_util.tree_map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, core.Array) else leaf, x
    )


class named_scope:
    """Names the equations made inside; a context manager and a decorator.

    Names of scopes within scopes are joined by `/` in `eqn.source_info.name_stack`. Those in a
    jitted function are relative to it.

    Errors: TypeError if the name is no string.

    Example:
        >>> def layer(x):
        ...     with ferrax.named_scope("layer"):
        ...         return x * 2
        >>> str(ferrax.make_jaxpr(layer)(1.0).eqns[0].source_info.name_stack)
        'layer'
    """

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"named_scope name argument must be a string, got {name!r}")
        self.name = name
        self._before = []

    def __enter__(self):
        before = _core.source_scope()
        self._before.append(before)
        _core.set_source_scope(f"{before}/{self.name}" if before else self.name)

    def __exit__(self, *exc):
        _core.set_source_scope(self._before.pop())

    def __call__(self, fun):
        @functools.wraps(fun)
        def scoped(*args, **kwargs):
            with named_scope(self.name):
                return fun(*args, **kwargs)

        return scoped


def named_call(fun, *, name: str | None = None):
    """`fun`, whose equations carry a name: `name`, or its own.

    Errors: TypeError if `fun` is not callable or the name is no string.

    Example:
        >>> ferrax.named_call(lambda x: x + 1, name="increment")(1)
        2
    """
    api_util.check_callable(fun)
    return named_scope(api_util.fun_name(fun) if name is None else name)(fun)


def disable_jit(disable: bool = True):
    """A context in which jitted functions run as plain Python."""
    return config.disable_jit(disable)


# The rest of the transformations, under the name by which other modules know them all.
from ferrax._src.transforms.autodiff import (  # noqa: E402, F401
    grad,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from ferrax._src.transforms.batching import vmap  # noqa: E402, F401
from ferrax._src.transforms.jacobians import (  # noqa: E402, F401
    hessian,
    jacfwd,
    jacobian,
    jacrev,
)
