"""What programs say to XLA about how it should compile: fused functions, orders of steps, attributes of operations.

Programs here are fused and ordered by ferrax's own compiler, so that values are those of the functions as they
stand. What was said can be read from the programs: attributes of a function or of a value are parameters of an
equation, those of a context a scope of names, which `as_text(debug_info=True)` shows.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src import core
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import api_util
from ferrax._src.core.devices import Space
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.placement import device_put
from ferrax._src.core.primitives import (
    apply_program,
    axis_primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.tracing import scopes, staging
from ferrax._src.transforms.ad import Zero
from ferrax._src.transforms.composites import composite
from ferrax._src.tree import tree_util

__all__ = [
    "control_dep", "fused", "schedule", "scheduling_group", "set_xla_metadata", "xla_metadata_call",
    "xla_metadata_call_p", "xla_metadata_value_p",
]  # fmt: skip


def fused(*, out_spaces: Sequence[Space]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function, which is to be one kernel, with its results in these memories.

    Args: out_spaces: a `ferrax.memory.Space` for each array that the function returns, in order.

    Here the compiler decides what is one kernel, for this function as for others. The function takes positional
    arguments and can be transformed. Errors: ValueError unless there are as many spaces as arrays; TypeError for what
    is no space.

    >>> from ferrax.experimental.fused import fused
    >>> both = fused(out_spaces=(ferrax.memory.Space.Host, ferrax.memory.Space.Device))(lambda x, y: (x + y, x * y))
    >>> both(jnp.ones(2), jnp.ones(2))[0].sharding.memory_kind
    'pinned_host'
    """
    spaces = tuple(out_spaces)
    for space in spaces:
        if not isinstance(space, Space):
            raise TypeError(f"fused: out_spaces must be of ferrax.memory.Space, got {space!r}")

    def decorate(f):
        api_util.check_callable(f)

        @api_boundary
        @functools.wraps(f)
        def within(*args):
            leaves, tree = tree_util.tree_flatten(f(*args))
            if len(leaves) != len(spaces):
                name = api_util.fun_place(f)
                raise ValueError(f"fused: {name} returned {len(leaves)} arrays for {len(spaces)} spaces")
            return tree.unflatten(map(device_put, leaves, spaces))

        return within

    return decorate


def control_dep(src: Any, dst: Any) -> tuple[()]:
    """Says that the array `src` has to be there before `dst` is begun.

    The steps of a program run one after the other, each on all cores, so that no order hides the time that another
    takes: the compiler keeps the one that needs the least memory. Both may be arrays of any shape and dtype. Errors:
    TypeError for what is no array.

    >>> from ferrax.experimental.control_deps import control_dep
    >>> ferrax.jit(lambda x, y: (control_dep(x, y), x + y)[1])(1.0, 2.0)
    Array(3., dtype=float32, weak_type=True)
    """
    for x in src, dst:
        core.typeof(x)
    return ()


def schedule(ops: Sequence[Any]) -> None:
    """`control_dep` of each array of the sequence `ops` and the next: they are to be made in this order.

    >>> from ferrax.experimental.control_deps import schedule
    >>> schedule([jnp.ones(2), jnp.zeros(3)])
    """
    for src, dst in zip(ops[:-1], ops[1:]):
        control_dep(src, dst)


def _called(*args, jaxpr, **attributes):
    return apply_program(jaxpr._to_program(), args)


xla_metadata_call_p = composite("xla_metadata_call", _called, multiple_results=True)


def xla_metadata_call(f: Callable[..., Any] | None = None, **meta: str) -> Callable[..., Any]:
    """The function `f` as one equation, `xla_metadata_call`, with these attributes; a decorator without `f`.

    Args: f: the function, of arrays; meta: names and strings.

    Errors: NotImplementedError for attributes that are no strings.

    >>> from ferrax.experimental.scheduling_groups import xla_metadata_call
    >>> ferrax.make_jaxpr(xla_metadata_call(jnp.sin, inlineable="false"))(1.0).eqns[0].params["inlineable"]
    'false'
    """
    for name, value in meta.items():
        if not isinstance(value, str):
            raise NotImplementedError(f"xla_metadata_call: attributes are strings, got {name}={value!r}")
    if f is None:
        return lambda g: xla_metadata_call(g, **meta)
    api_util.check_callable(f)

    @api_boundary
    @functools.wraps(f)
    def within(*args, **kwargs):
        program, captured, flat = staging.stage(f, args, kwargs)
        leaves = tree_util.tree_leaves((args, kwargs))
        found = xla_metadata_call_p.bind(*leaves, *captured, jaxpr=ClosedJaxpr(program, []), **meta)
        return flat.out_tree.unflatten(found)

    return within


def scheduling_group(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function as one equation that names the group of operations that it is. See `xla_metadata_call`.

    >>> from ferrax.experimental.scheduling_groups import scheduling_group
    >>> scheduling_group("first")(jnp.sin)(0.0)
    Array(0., dtype=float32, weak_type=True)
    """
    return xla_metadata_call(scheduling_group=name)


xla_metadata_value_p = composite("xla_metadata_value", lambda x, *, xla_metadata_kvs: x)


def _value_jvp(primals, tangents, **params):
    """Only the value has the attributes."""
    (x,), (t,) = primals, tangents
    out = xla_metadata_value_p.bind(x, **params)
    return out, Zero.from_primal_value(out) if type(t) is Zero else t


primitive_jvps[xla_metadata_value_p] = _value_jvp
primitive_transposes[xla_metadata_value_p] = lambda ct, x, **params: [ct]
axis_primitive_batchers[xla_metadata_value_p] = lambda size, axis_name, trace_type, args, dims, /, **params: (
    xla_metadata_value_p.bind(*args, **params),
    dims[0],
)


class _State(threading.local):
    known: dict[str, Any] = {}  # noqa: RUF012  # replaced, never written to


_state = _State()


class XlaMetadata:
    """Attributes of the operations that are traced within: a context manager, and a decorator of functions."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        # What was there before, for each time that it was entered.
        self._entered: list[Any] = []

    def __enter__(self) -> None:
        known = {k: v for k, v in (_state.known | self._given).items() if v is not None}
        shown = ", ".join(f"{name}={value}" for name, value in sorted(known.items()))
        scope = scopes.named_scope(f"xla_metadata({shown})")
        scope.__enter__()
        self._entered.append((_state.known, scope))
        _state.known = known

    def __exit__(self, *error: object) -> None:
        _state.known, scope = self._entered.pop()
        scope.__exit__(*error)

    def __call__(self, f: Callable[..., Any]) -> Any:
        return _Within(f, self._given)


class _Within:
    """A function that runs with attributes set. So do its methods, such as the `lower` of a jitted one."""

    def __init__(self, f, given):
        functools.update_wrapper(self, f)
        self._f, self._given = f, given

    def __call__(self, *args, **kwargs):
        with XlaMetadata(self._given):
            return self._f(*args, **kwargs)

    def __getattr__(self, name):
        value = getattr(self._f, name)
        return _Within(value, self._given) if callable(value) else value


def set_xla_metadata(x: Any = None, **kwargs: Any) -> Any:
    """Attributes of the values `x`, or of operations.

    Args:
        x: None, or a pytree of arrays.
        kwargs: the attributes. None takes one away that is set around.

    Returns: the values, of which an equation `xla_metadata_value` says the attributes. Without values a context
    manager, which is a decorator too: operations within are in a scope of names that tells them; the names in a
    function that is traced within, by `jit` say, are its own. The compiler asks for none.

    >>> from ferrax.experimental.xla_metadata import set_xla_metadata
    >>> def f(x):
    ...     with set_xla_metadata(note="here"):
    ...         return x + 1
    >>> print(ferrax.make_jaxpr(f)(1.0).eqns[0].source_info.name_stack)
    xla_metadata(note=here)
    >>> set_xla_metadata(jnp.ones(2), note="here")
    Array([1., 1.], dtype=float32)
    """
    if x is None:
        return XlaMetadata(kwargs)
    leaves, tree = tree_util.tree_flatten(x)
    said = {"xla_metadata_kvs": tuple(sorted(kwargs.items()))}
    return tree.unflatten([xla_metadata_value_p.bind(leaf, **said) for leaf in leaves])
