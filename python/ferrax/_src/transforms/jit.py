"""`jit`: functions that are traced once for each signature, and whose programs run.

The key of a call (tree, types of leaves, static values, settings) is made and looked up by the
native core, `_core.PjitFunction`; here are what makes such a function, its methods that ask for
programs, and the caches that all jits of one function share.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from ferrax import _core
from ferrax._src.base import config
from ferrax._src.base.flags import StateContext
from ferrax._src.base.source_info import called_by_user
from ferrax._src.base.traceback_util import boundary
from ferrax._src.core import api_util
from ferrax._src.core.devices import Device, local_devices
from ferrax._src.core.explicit_types import all_typed
from ferrax._src.core.inlining import Inline, is_early
from ferrax._src.core.mesh import get_abstract_mesh
from ferrax._src.state import arguments as ref_args
from ferrax._src.tracing import known
from ferrax._src.tracing.staging import output_types
from ferrax._src.transforms import layouts, memory_plan, placed_jit, stages, stats, symbolic_jit
from ferrax._src.transforms.symbolic_jit import SymbolicFunction
from ferrax._src.tree import tree_util

_P = ParamSpec("_P")
_R = TypeVar("_R")


class JitDecorator(Protocol):
    """What `jit` is without a function."""

    def __call__(self, fun: Callable[_P, _R], /) -> _core.PjitFunction[_P, _R]: ...


_caches: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _shared_cache(fun, options):
    """One cache for all jits of one function with the same options."""
    try:
        by_options = _caches.setdefault(fun, {})
    except TypeError:
        return _core.JitCache()
    return by_options.setdefault(options, _core.JitCache())


@overload
def jit(
    fun: Callable[_P, _R], /, *, in_shardings: Any = None, out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None, keep_unused: bool = False,
    device: Any = None, backend: str | None = None, inline: bool | Inline = False,
    abstracted_axes: Any = None, compiler_options: Any = None, max_traces: int | None = None,
    symbolic: Mapping[str | int, Any] | None = None, symbolic_constraints: Sequence[str] = (),
) -> _core.PjitFunction[_P, _R]: ...
@overload
def jit(
    fun: None = None, /, *, in_shardings: Any = None, out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None, keep_unused: bool = False,
    device: Any = None, backend: str | None = None, inline: bool | Inline = False,
    abstracted_axes: Any = None, compiler_options: Any = None, max_traces: int | None = None,
    symbolic: Mapping[str | int, Any] | None = None, symbolic_constraints: Sequence[str] = (),
) -> JitDecorator: ...
def jit(
    fun: Callable[..., Any] | None = None, /, *, in_shardings: Any = None,
    out_shardings: Any = None, static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None, keep_unused: bool = False,
    device: Any = None, backend: str | None = None, inline: bool | Inline = False,
    abstracted_axes: Any = None, compiler_options: Any = None, max_traces: int | None = None,
    symbolic: Mapping[str | int, Any] | None = None, symbolic_constraints: Sequence[str] = (),
) -> Any:
    """Compiles a function: it is traced once for each new signature, then its program runs.

    Args:
        fun: a pure function of pytrees of arrays. Without it, a decorator is returned.
        static_argnums, static_argnames: arguments that are part of the signature by value; they
            must be hashable.
        donate_argnums, donate_argnames: arguments whose memory may be reused for outputs; they
            count as deleted afterwards.
        inline: inside other traced functions, write the equations out instead of a call: a bool or an
            `Inline`. Where JAX 0.12 is followed, True keeps the call in jaxprs (`Inline.JAX_LATE`).
        max_traces: how often the function may be traced; the call that would trace it once more
            raises instead, naming the argument that changed. None: any number of times.
        keep_unused: whether arguments that are not used are kept, as they always are: they cost
            nothing.
        device, backend: where the function runs, and its arguments are put; not both.
        in_shardings, out_shardings: how positional arguments and results are laid out: None (not
            said), a sharding, a `PartitionSpec` of the mesh in use, a `Format`, or trees of these above
            them. Results keep theirs.
        symbolic: shapes of arguments, by name or position, in which sizes are variables: texts such as "batch, ..."
            as `export.symbolic_shape` reads them, or trees of these and None above the argument's leaves. The
            function is traced once for all these sizes, which are from 1 on, and not for each; of rules of the
            user's there are derivatives up to the second. Not with mutable arrays and explicit axes of a mesh.
        symbolic_constraints: what is known of the variables, such as "batch >= 2", as for `export.symbolic_shape`.
        compiler_options, abstracted_axes: must be empty: there are none.

    Errors: TypeError for leaves that are not arrays and for shardings and devices that are none;
    RuntimeError for a backend that does not exist, for compiler options and for a `PartitionSpec`
    without a mesh in use; ValueError for static arguments without a hash, for positional-only ones by
    name, for an `inline` that is none, and for shardings that do not fit; `errors.TooManyTracesError`
    beyond `max_traces`.

    The function returned has `lower`, `trace` and `eval_shape` as in JAX, and `stats()`, which
    tells how often it was traced and compiled, and why it was last traced again.

    Example:
        >>> @ferrax.jit
        ... def scaled(x, y):
        ...     return 2 * x + y
        >>> scaled(1.0, jnp.arange(3.0))
        Array([2., 3., 4.], dtype=float32)
    """
    placed_jit.check_leaves(in_shardings, "in_shardings")
    placed_jit.check_leaves(out_shardings, "out_shardings")
    where = _device_of(device, backend)
    if (device or backend) and not (in_shardings is None and out_shardings is None):
        raise ValueError("jit takes a device or backend, or shardings, not both")
    stages.check_compiler_options(compiler_options)
    api_util.refuse_abstracted_axes("jit", abstracted_axes)
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "inline": inline,
        "max_traces": max_traces,
        "symbolic": (symbolic, symbolic_constraints),
    }

    def made(fun):
        jitted = _make_jit(fun, **options)
        return layouts.with_places(jitted, in_shardings, out_shardings, where)

    return made if fun is None else made(fun)


def _device_of(device, backend) -> Device | None:
    """The device that is meant; None for none."""
    if device is not None and backend is not None:
        raise ValueError(f"jit takes a device or a backend, not both; got {device!r} and {backend!r}")
    if device is not None and not isinstance(device, Device):
        raise TypeError(
            f"jit: device must be a device such as ferrax.devices()[0], got {device!r} of type "
            f"{type(device).__name__}"
        )
    if device is None and backend is not None:
        device = local_devices(backend=backend)[0]
    return device


def _make_jit(
    fun, static_argnums, static_argnames, donate_argnums, donate_argnames, inline, max_traces, symbolic
):
    api_util.check_callable(fun)
    if max_traces is not None and (type(max_traces) is not int or max_traces < 1):
        raise ValueError(f"jit: max_traces must be a positive int or None, got {max_traces!r}")
    static = api_util.resolve_argnums(fun, static_argnums, static_argnames, "static")
    donate = api_util.resolve_argnums(fun, donate_argnums, donate_argnames, "donate")
    both = sorted(set(static[0]) & set(donate[0]))
    if both:
        raise ValueError(f"static_argnums and donate_argnums cannot intersect: both have {both}")
    shapes, constraints = symbolic
    if shapes is None and constraints:
        raise ValueError(f"jit: symbolic_constraints={constraints!r} without symbolic shapes; give those too")
    if shapes is None:
        return _resolved_jit(fun, static, donate, is_early(inline, fun), max_traces)
    # It is the symbolic trace that there may be so many of, and that is forgotten.
    by_sizes = SymbolicFunction(fun, shapes, constraints, static, max_traces)
    return _resolved_jit(by_sizes, static, donate, is_early(inline, fun), None)


def _resolved_jit(fun, static, donate, inline, max_traces):
    """`static` and `donate` are pairs of numbers and names; nothing is checked."""
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
    functools.update_wrapper(jitted, fun.__wrapped__ if isinstance(fun, SymbolicFunction) else fun)
    # After the function's own attributes, which are such options if it is jitted itself.
    jitted._options = static, donate, inline, max_traces
    return jitted


@api_util.takes_types
def _trace(self, *args: Any, **kwargs: Any) -> stages.Traced:
    """Traces for these (possibly abstract) arguments; see `ferrax.stages.Traced`."""
    args, kwargs = ref_args.made((args, kwargs))
    # Where it warns of donated arguments, that is of the user's line.
    program, captured, in_tree, out_tree, donated, refs = called_by_user(
        functools.partial(self._traced, *args, **kwargs)
    )
    name = self._function_name
    traced = stages.Traced(program, captured, in_tree, out_tree, donated, refs, name)
    leaves = tree_util.tree_leaves((args, kwargs))
    if len(leaves) == in_tree.num_leaves and refs is None:
        traced._shardings = placed_jit.shardings_of(program, leaves, captured)
        traced._found = True
        traced._explicit = functools.partial(
            placed_jit.explicit_results, program, all_typed(leaves), captured, get_abstract_mesh()
        )
        orders = [layouts.stated_order(x) for x in leaves]
        if any(orders):
            traced._orders = orders, [None] * out_tree.num_leaves
    return traced


@api_util.takes_types
def _lower(self, *args: Any, **kwargs: Any) -> stages.Lowered:
    """Traces and lowers for these (possibly abstract) arguments; see `ferrax.stages.Lowered`."""
    return _trace(self, *args, **kwargs).lower()


@api_util.takes_types
def _memory_plan(self, *args: Any, **kwargs: Any) -> memory_plan.MemoryPlan:
    """Where each value is for these (possibly abstract) arguments, and what is copied: a `MemoryPlan`.

    Example:
        >>> ferrax.jit(lambda x: jnp.sort(x) + 1).memory_plan(jnp.zeros(4))
        <MemoryPlan of <lambda>: 2 steps, 2 buffers, arena 0 B, peak 0 B>
    """
    return memory_plan.made_of(_lower(self, *args, **kwargs)._program.memory_plan())


@api_util.takes_types
def _eval_shape(self, *args: Any, **kwargs: Any) -> Any:
    """The outputs' shapes and dtypes, without running. The function may return such itself."""
    args, kwargs = ref_args.made((args, kwargs))
    program, captured, in_tree, out_tree, _, refs = self._traced(*args, **kwargs)
    leaves = tree_util.tree_leaves((args, kwargs))
    explicit: list[Any] = []
    if refs is None and len(leaves) == in_tree.num_leaves:
        explicit = placed_jit.explicit_results(program, all_typed(leaves), captured, get_abstract_mesh())
    return output_types(program, out_tree, (), explicit)


def _stats(self) -> stats.JitStats:
    """How often the function was traced and compiled, and why last: a `JitStats`.

    Example:
        >>> f = ferrax.jit(lambda x: 2 * x)
        >>> f(jnp.ones(2)), f(jnp.ones(3))
        (Array([2., 2.], dtype=float32), Array([2., 2., 2.], dtype=float32))
        >>> f.stats()
        <JitStats of <lambda>: 2 traces, 2 compiles, 2 cache entries; last retrace: x changed in shape: (2,) -> (3,)>
    """
    return stats.of(self)


def _clear_cache(self) -> None:
    """Forgets all traced programs of this function."""
    self._forget()
    if isinstance(self._function, SymbolicFunction):
        self._function.forget()


def _reduce(self) -> tuple[Any, ...]:
    # For copies and pickles, which share the programs of the function if it is the same.
    return _resolved_jit, (self._function, *self._options), self.__dict__


class _Signature:
    """The signature of the function, for `inspect`, as that of what is called."""

    def __get__(self, jitted: Any, owner: Any = None) -> inspect.Signature | None:
        return None if jitted is None else inspect.signature(jitted._function)


_METHODS = {
    "__reduce__": _reduce,
    "__signature__": _Signature(),
    "clear_cache": _clear_cache,
    "stats": _stats,
    "trace": _trace,
    "lower": _lower,
    "eval_shape": _eval_shape,
    "memory_plan": _memory_plan,
}
for _name, _method in _METHODS.items():
    setattr(_core.PjitFunction, _name, boundary(_method) if isinstance(_method, FunctionType) else _method)


def clear_caches() -> None:
    """Forgets all traced and compiled programs, those of single operations included, in all threads,
    and gives memory that waits for reuse back to the system.

    Example:
        >>> f = ferrax.jit(lambda x: x + 1)
        >>> _ = f(1)
        >>> ferrax.clear_caches()
        >>> f._cache_size()
        0
    """
    for by_options in list(_caches.values()):
        for cache in by_options.values():
            cache.clear()
    known.forget()
    stats.forget()
    symbolic_jit.forget()
    _core.clear_program_cache()


def disable_jit(disable: bool = True) -> StateContext:
    """A context in which jitted functions run as plain Python.

    Args: disable: False gives a context that changes nothing.

    >>> with ferrax.disable_jit():
    ...     ferrax.jit(lambda x: print(x))(3.0)
    3.0
    """
    return config.disable_jit(disable)
