"""`ffi_call`: handlers of other languages as functions of arrays.

A call is one equation, `ffi_call`, whose batches go by `vmap_method`; compiled, it is a step that hands the
handler pointers to the arrays (the native core's `ffi_call`). Layouts that are not row by row are copies
around it.

Cost: of a call, the handler and what copies its layouts ask for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.base.effects import Effect
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.callbacks.callback import batched_aval, check_vmap_method
from ferrax._src.core.layout import Layout
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import Primitive, primitive_jvps, primitive_transposes
from ferrax._src.lax.control_flow.scan import scan
from ferrax._src.lax.shape import transpose
from ferrax._src.numpy.joining import stack
from ferrax._src.transforms.batching_rules import bdim_at_front, fancy_primitive_batchers, moveaxis
from ferrax._src.transforms.jit import jit

ffi_call_p = Primitive("ffi_call")
ffi_call_p.multiple_results = True


class FfiEffect(Effect):
    """The effect of a call that does more than to give values."""

    def __str__(self) -> str:
        return "FFI"


_EFFECT = FfiEffect()


# Attributes.


class FrozenDict(Mapping):
    """A dict among the attributes of a call, by value."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = {key: _frozen(value) for key, value in items.items()}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenDict) and self._items == other._items

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenDict({self._items!r})"


class HashableArray:
    """An array among the attributes of a call, by value."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = np.array(value)
        self.value.setflags(write=False)

    def _key(self) -> tuple[Any, ...]:
        return self.value.dtype, self.value.shape, self.value.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableArray) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"HashableArray({self.value!r})"


def _frozen(value):
    if isinstance(value, np.ndarray):
        return HashableArray(value)
    if isinstance(value, dict):
        return FrozenDict(value)
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"Non-hashable argument to ffi_call: {value!r} of type {type(value).__name__}. Attributes are numbers, "
            "strings, NumPy arrays and dicts of these; make a NumPy array of a list."
        ) from None
    return value


def _native(name, value):
    """An attribute as the native core takes it: its kind and its value. Python's numbers have 64 bits."""
    if isinstance(value, str):
        return "text", value
    if isinstance(value, FrozenDict):
        return "dictionary", [(key, _native(key, value[key])) for key in sorted(value)]
    if isinstance(value, HashableArray):
        array = np.ascontiguousarray(value.value)
        if array.ndim == 0:
            return "scalar", (array.dtype, array.tobytes())
        return "array", (array.dtype, array.size, array.tobytes())
    if isinstance(value, bool):
        value = np.bool_(value)
    elif isinstance(value, int):
        value = np.int64(value)
    elif isinstance(value, float):
        value = np.float64(value)
    if isinstance(value, np.generic):
        return "scalar", (value.dtype, value.tobytes())
    raise TypeError(
        f"No attribute handler defined for type {type(value).__name__}, of the attribute {name!r} of an ffi_call: "
        f"{value!r}. Attributes are numbers, strings, NumPy arrays and dicts of these."
    )


# Layouts.


def _order(layout, rank):
    """The axes of an array from the largest steps to the smallest; None row by row."""
    if layout is None:
        return None
    axes = layout.major_to_minor if isinstance(layout, Layout) else tuple(layout)
    if sorted(axes) != list(range(rank)):
        raise ValueError(f"ffi_call: the layout {axes} is no order of the {rank} axes of an array")
    return None if axes == tuple(range(rank)) else axes


def _orders(kind, layouts, avals):
    if layouts is None:
        return (None,) * len(avals)
    layouts = list(layouts)
    if len(layouts) != len(avals):
        raise ValueError(
            f"ffi_call: {kind}_layouts has {len(layouts)} layouts, but there are {len(avals)} arrays"
        )
    return tuple(_order(layout, len(aval.shape)) for layout, aval in zip(layouts, avals))


def _deeper(order):
    """A layout with an axis in front, of the largest steps."""
    return None if order is None else (0, *(axis + 1 for axis in order))


# Rules.


@ffi_call_p.def_effectful_abstract_eval
def _types(*avals, result_avals, has_side_effect, **params):
    return result_avals, {_EFFECT} if has_side_effect else set()


def _refuse(*args, **params):
    raise ValueError(
        f"The FFI call to `{params.get('target_name', '')}` cannot be differentiated: nothing is known of the handler. "
        "Give the function around it a rule, with jax.custom_jvp or jax.custom_vjp."
    )


primitive_jvps[ffi_call_p] = _refuse
primitive_transposes[ffi_call_p] = _refuse


def _run(*args, target_name, result_avals, input_layouts, output_layouts, input_output_aliases, attributes,
         has_side_effect, **params):  # fmt: skip
    given = [x if order is None else transpose(x, order) for x, order in zip(args, input_layouts)]
    types = [
        (tuple(aval.shape[axis] for axis in order) if order is not None else aval.shape, aval.dtype, False)
        for aval, order in zip(result_avals, output_layouts)
    ]
    native = [(name, _native(name, value)) for name, value in attributes]
    orders = [list(input_layouts), list(output_layouts)] if any(input_layouts + output_layouts) else []
    found = _core.ffi_call(
        tuple(given), target_name, types, native, list(input_output_aliases),
        has_side_effect, *orders,
    )  # fmt: skip
    return [
        x if order is None else transpose(x, tuple(np.argsort(order)))
        for x, order in zip(found, output_layouts)
    ]


register_lowering(ffi_call_p, lower_fun(_run, multiple_results=True))


@functools.lru_cache(maxsize=1024)
def _compiled(params):
    return jit(functools.partial(_run, **dict(params)))


@ffi_call_p.def_impl
def _impl(*args, **params):
    # Compiled, so that a handler keeps its state from call to call.
    return _compiled(tuple(params.items()))(*args)


def _batched(axis, args, dims, *, vmap_method, result_avals, input_layouts, output_layouts, **params):
    size = axis.size
    own = {"vmap_method": vmap_method, **params}
    if vmap_method in ("sequential", "sequential_unrolled"):
        settings = own | {
            "result_avals": result_avals, "input_layouts": input_layouts, "output_layouts": output_layouts,
        }  # fmt: skip
        moved = [x if dim is None else moveaxis(x, dim, 0) for x, dim in zip(args, dims)]
        mapped = [x for x, dim in zip(moved, dims) if dim is not None]

        def lane(parts):
            parts = iter(parts)
            return ffi_call_p.bind(
                *(x if dim is None else next(parts) for x, dim in zip(moved, dims)), **settings
            )

        if vmap_method == "sequential":
            _, outs = scan(lambda _, parts: ((), lane(parts)), (), mapped, length=size)
        else:
            lanes = [lane([x[i] for x in mapped]) for i in range(size)]
            outs = [stack(parts) for parts in zip(*lanes)]
        return outs, [0] * len(outs)
    if vmap_method in ("expand_dims", "broadcast_all", "legacy_vectorized"):
        batched = [dim is not None for dim in dims]
        if vmap_method == "legacy_vectorized":
            if not all(batched):
                raise NotImplementedError(
                    f"ffi_call of {params['target_name']} under vmap: with vmap_method='legacy_vectorized' all arrays "
                    "are mapped over; use 'broadcast_all'"
                )
            moved = [moveaxis(x, dim, 0) for x, dim in zip(args, dims)]
        else:
            extent = size if vmap_method == "broadcast_all" else 1
            moved = [bdim_at_front(x, dim, extent) for x, dim in zip(args, dims)]
        outs = ffi_call_p.bind(
            *moved,
            result_avals=tuple(batched_aval(size, aval) for aval in result_avals),
            input_layouts=tuple(_deeper(order) for order in input_layouts),
            output_layouts=tuple(_deeper(order) for order in output_layouts),
            **own,
        )
        return outs, [0] * len(outs)
    raise NotImplementedError(
        f"ffi_call of {params['target_name']} under vmap: {vmap_method=} does not say how the handler is called for "
        "a batch. Pass vmap_method='sequential' for a call for each element, 'expand_dims' or 'broadcast_all' for one "
        "call with a leading axis."
    )


fancy_primitive_batchers[ffi_call_p] = _batched


# The function.


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: dict[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A function of arrays that calls a registered handler of another language.

    Args:
      target_name: the name under which the handler is registered (`register_ffi_target`).
      result_shape_dtypes: what has a shape and a dtype, or a sequence of such: the results.
      has_side_effect: whether the call does more than to give values; others are left out where nobody uses
        what they give.
      vmap_method: how batches are called: "sequential", "sequential_unrolled", "expand_dims",
        "broadcast_all" or "legacy_vectorized", as for `pure_callback`; None: `vmap` is an error.
      input_layouts, output_layouts: for each array None, or its axes from the largest steps in memory to
        the smallest; arrays lie row by row otherwise.
      input_output_aliases: for the number of an input, that of the result that begins as it, in the same
        memory.
      custom_call_api_version: 4, handlers with typed call frames.
      legacy_backend_config: must be None.

    Returns: a function of arrays, and of attributes by keyword: numbers (Python's have 64 bits), strings,
    NumPy arrays, and dicts of these. It gives an array, or a list.

    Errors: ValueError for arguments that do not fit each other and under derivatives; TypeError for other
    attributes; JaxRuntimeError where the function is compiled and no such handler is registered, and for
    errors of the handler, with its code and text; NotImplementedError for other versions.

    >>> norm = ferrax.ffi.ffi_call("my_norm", ferrax.ShapeDtypeStruct((4,), jnp.float32))
    >>> norm(jnp.ones(4), eps=np.float32(1e-5))  # doctest: +SKIP
    """
    check_vmap_method(vmap_method)
    if custom_call_api_version != 4:
        raise NotImplementedError(
            f"ffi_call: handlers take call frames (custom_call_api_version=4), got {custom_call_api_version}. Build "
            "the library with the handler macros of xla/ffi/api/ffi.h."
        )
    if legacy_backend_config is not None:
        raise ValueError(
            "The use of the legacy_backend_config is for handlers of other versions (custom_call_api_version below 4): "
            "pass attributes by keyword"
        )
    several = isinstance(result_shape_dtypes, (tuple, list))
    results = list(result_shape_dtypes) if several else [result_shape_dtypes]
    for number, result in enumerate(results):
        if not (hasattr(result, "shape") and hasattr(result, "dtype")):
            raise ValueError(
                "All elements of result_shape_dtypes have a shape and a dtype, as jax.ShapeDtypeStruct has; at "
                f"position {number} there is {result!r}"
            )
    result_avals = tuple(core.ShapedArray(tuple(x.shape), _dtype(x.dtype)) for x in results)
    given_layouts = [output_layouts] if not several and output_layouts is not None else output_layouts

    @api_boundary
    def wrapped(*args, **attributes):
        arrays = [core.as_array(x, "ffi_call") for x in args]
        outs = ffi_call_p.bind(
            *arrays,
            target_name=target_name,
            result_avals=result_avals,
            has_side_effect=has_side_effect,
            vmap_method=vmap_method,
            input_layouts=_orders("input", input_layouts, arrays),
            output_layouts=_orders("output", given_layouts, result_avals),
            input_output_aliases=_aliases(input_output_aliases or {}, arrays, result_avals),
            attributes=tuple((name, _frozen(attributes[name])) for name in sorted(attributes)),
            custom_call_api_version=custom_call_api_version,
            legacy_backend_config=legacy_backend_config,
        )
        return list(outs) if several else outs[0]

    return wrapped


def _dtype(dtype):
    return dtype if dtypes.issubdtype(dtype, dtypes.extended) else np.dtype(dtype)


def _aliases(given, arrays, results):
    pairs = []
    for source, target in given.items():
        for number, count, kind in ((source, len(arrays), "input"), (target, len(results), "output")):
            if not 0 <= number < count:
                raise ValueError(
                    f"input_output_aliases contains the mapping '{source}:{target}' with {kind} index {number} outside "
                    f"the range [0, {count})"
                )
        ours, theirs = core.typeof(arrays[source]), results[target]
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise ValueError(
                f"input_output_aliases contains the mapping '{source}:{target}' referring to an input with abstract "
                f"value {ours.str_short()} and to an output with another, {theirs.str_short()}: one memory has one type"
            )
        pairs.append((source, target))
    return tuple(pairs)
