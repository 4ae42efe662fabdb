"""What kernels are written with: conditions, loops, scratch memory, checks, arithmetic on sizes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ferrax._src import core, state
from ferrax._src.base import config
from ferrax._src.callbacks.debugging import debug_print as _debug_print
from ferrax._src.experimental.checkify.primitive import check
from ferrax._src.experimental.checkify.transform import check_as
from ferrax._src.lax.control_flow.conditionals import cond
from ferrax._src.lax.control_flow.while_loop import fori_loop
from ferrax._src.numpy.shape import broadcast_to as _broadcast_to
from ferrax._src.pallas.blocks import no_value
from ferrax._src.pallas.call import _memory, pallas_call_p
from ferrax._src.pallas.remote import Apart
from ferrax._src.state import Ref, at_user_line, new_ref
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util

# Checks of a kernel are those of what the call runs.
check_as(
    pallas_call_p, lambda values, params: staging.make_jaxpr(lambda *arrays: params["grid_mapping"](*arrays))(*values)
)


def when(condition: Any, /) -> Callable[[Callable[[], None]], None]:
    """Runs the decorated function, at once, if a condition holds.

    Args: condition: a bool, an integer or a scalar array, traced or not.

    Errors: ValueError for a condition that is no scalar, and for a function that returns something.

    >>> def kernel(x_ref, o_ref):
    ...     @pl.when(pl.program_id(0) == 0)
    ...     def _():
    ...         o_ref[...] = jnp.zeros_like(o_ref)
    """

    def run(function):
        value = condition
        if isinstance(value, core.Array) and core.is_concrete(value) and not value.shape:
            value = bool(value)
        if isinstance(value, (bool, int, np.bool_, np.integer)):
            if value:
                _nothing(function(), "when")
            return
        value = core.as_array(value, "pl.when")
        if value.shape:
            raise ValueError(
                f"pl.when: the condition is a scalar, got shape {value.shape}. Store where it holds instead: "
                f"ref[...] = jnp.where(condition, value, ref[...]).{at_user_line()}"
            )
        if value.dtype != np.bool_:
            value = value != np.zeros((), value.dtype)
        try:
            cond(value, lambda: _nothing(function(), "when"), lambda: None)
        except Apart:
            # It reaches other devices: all run it, and write where the condition holds.
            with state.masked((*state.masks(), value)):
                _nothing(function(), "when")

    return run


def _nothing(result, name):
    if result is not None:
        raise ValueError(
            f"pl.{name}: the function works on refs and returns None, got {result!r}.{at_user_line()}"
        )


def loop(
    lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1, unroll: int | bool | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Runs the decorated function, at once, for the indices from `lower` to below `upper`.

    Args:
      lower, upper, step: integers or scalars, traced or not; the step is positive.
      init_carry: a pytree that is handed from one call to the next: the function is called with the
        index and the carry, and returns the next. None: it is called with the index alone.
      unroll: how many calls make one step of the loop, where the bounds are known.

    Returns the last carry.

    >>> def kernel(x_ref, o_ref):
    ...     @pl.loop(0, 4)
    ...     def _(i):
    ...         o_ref[i] = x_ref[i] * 2
    """
    if isinstance(step, (int, np.integer)) and step < 1:
        raise ValueError(f"pl.loop: the step is positive, got {step}")

    def run(function):
        count = cdiv(upper - lower, step)
        if isinstance(count, (int, np.integer)):
            count = max(count, 0)

        def body(i, carry):
            index = i * step + lower
            if init_carry is None:
                _nothing(function(index), "loop")
                return carry
            return function(index, carry)

        start = () if init_carry is None else init_carry
        known = isinstance(count, (int, np.integer))
        result = fori_loop(0, count, body, start, unroll=unroll if known else None)
        return None if init_carry is None else result

    return run


def run_scoped(
    f: Callable[..., Any], *types: Any, collective_axes: Any = (), **kw_types: Any
) -> Any:
    """Calls a function with memory of its own, which nothing was written to.

    Args:
      f: the function; it gets a ref for each type, in the trees of the types.
      types, kw_types: memory such as `pl.ANY(shape, dtype)`, or pytrees of it.
      collective_axes: must be empty: the memory is this step's own.

    Returns what the function does.

    >>> def kernel(x_ref, o_ref):
    ...     def body(tmp):
    ...         tmp[...] = x_ref[...] * 2
    ...         o_ref[...] = tmp[...]
    ...     pl.run_scoped(body, pl.ANY((4,), jnp.float32))
    """
    if collective_axes:
        raise NotImplementedError(
            f"run_scoped: memory is of one step of the grid, got collective_axes={collective_axes!r}"
        )

    def allocate(ty):
        return new_ref(no_value(*_memory(ty)))

    is_leaf = lambda x: hasattr(x, "shape")  # noqa: E731
    args, kwargs = tree_util.tree_map(allocate, (types, kw_types), is_leaf=is_leaf)
    return f(*args, **kwargs)


def with_scoped(*types: Any, collective_axes: Any = (), **kw_types: Any) -> Callable[..., Any]:
    """A decorator: the function gets memory of its own behind its arguments, as `run_scoped` gives.

    Args as `run_scoped`.

    >>> @pl.with_scoped(pl.ANY((2,), jnp.float32))
    ... def doubled(x, tmp_ref):
    ...     tmp_ref[...] = x * 2
    ...     return tmp_ref[...]
    >>> doubled(jnp.arange(2.0))
    Array([0., 2.], dtype=float32)
    """

    def decorate(f):
        @functools.wraps(f)
        def wrapped(*args, **kwargs):
            return run_scoped(
                lambda *refs, **named: f(*args, *refs, **kwargs, **named),
                *types, collective_axes=collective_axes, **kw_types,
            )  # fmt: skip

        return wrapped

    return decorate


def get_global(what: Any) -> Ref:
    """Memory of this type, which nothing was written to.

    Args: what: memory such as `pl.ANY(shape, dtype)`.

    >>> pl.get_global(pl.ANY((2,), jnp.float32))
    Ref([nan, nan], dtype=float32)
    """
    return new_ref(no_value(*_memory(what)))


def empty(shape: Any, dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array that nothing was written to.

    Args: shape, dtype: its type; out_sharding: must be None.

    >>> pl.empty((2,), jnp.uint8)
    Array([0, 0], dtype=uint8)
    """
    if out_sharding is not None:
        raise NotImplementedError(f"pl.empty: arrays are on one device, got out_sharding={out_sharding!r}")
    return no_value(*core.abstract_type(core.ShapeDtypeStruct(_sizes(shape), dtype))[:2])


def _sizes(shape):
    return tuple(shape) if isinstance(shape, (tuple, list)) else (operator.index(shape),)


def empty_like(x: Any) -> Any:
    """A pytree of arrays of these types that nothing was written to.

    Args: x: a pytree of what has a shape and a dtype.

    >>> pl.empty_like({"a": jnp.zeros(2)})
    {'a': Array([nan, nan], dtype=float32)}
    """
    return tree_util.tree_map(
        lambda leaf: no_value(*core.abstract_type(leaf)[:2]), x, is_leaf=lambda leaf: hasattr(leaf, "shape")
    )


def empty_ref_like(x: Any) -> Any:
    """A pytree of mutable arrays of these types that nothing was written to.

    Args: x: a pytree of what has a shape and a dtype.

    >>> pl.empty_ref_like(jnp.zeros(2, bool))
    Ref([False, False], dtype=bool)
    """
    return tree_util.tree_map(
        lambda leaf: new_ref(no_value(*_memory(leaf))), x, is_leaf=lambda leaf: hasattr(leaf, "shape")
    )


# Printing and checking.


def debug_print(fmt: str, *args: Any) -> None:
    """Prints when a step runs, as `ferrax.debug.print` does. The steps of a kernel that prints run in order.

    Args: fmt: a format; args: what goes into its fields, of refs what they hold; without fields they follow the text.

    >>> def kernel(x_ref):
    ...     pl.debug_print("x = {}", x_ref[0])
    """
    if args and "{" not in fmt:
        fmt = fmt + " ".join("{}" for _ in args)
    _debug_print(fmt, *(x[...] if isinstance(x, Ref) else x for x in args))


def debug_check(condition: Any, message: str) -> None:
    """Checks a condition under `pl.enable_debug_checks`, as `checkify.check` does.

    Args: condition: a scalar bool; message: what the error says.

    >>> from ferrax.experimental import checkify
    >>> def kernel(x_ref, o_ref):
    ...     pl.debug_check(x_ref[0] > 0, "the first is positive")
    ...     o_ref[...] = x_ref[...]
    >>> with pl.enable_debug_checks(True):
    ...     error, _ = checkify.checkify(pl.pallas_call(kernel, jnp.zeros(2)))(jnp.zeros(2))
    >>> error.get() is None
    False
    """
    if config.pallas_enable_debug_checks.value:
        check(condition, message)


def delay(nanos: Any) -> None:
    """Waits on hardware whose kernels race; steps that run here wait for nobody, so nothing happens.

    Args: nanos: how long, in nanoseconds.

    >>> pl.delay(100)
    """


# Arithmetic.


def cdiv(a: Any, b: Any) -> Any:
    """The quotient of two integers, rounded up.

    Args: a, b: integers, or integer arrays. Errors: ZeroDivisionError where `b` is 0, if both are Python's.

    >>> pl.cdiv(7, 2), pl.cdiv(-7, 2)
    (4, -3)
    """
    return -(-a // b)


def align_to(a: Any, alignment: Any) -> Any:
    """The least multiple of `alignment` that is not less than `a`.

    >>> pl.align_to(130, 128)
    256
    """
    return cdiv(a, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The least power of 2 that is not less than `x`. Errors: ValueError for a negative number.

    >>> pl.next_power_of_2(5)
    8
    """
    if x < 0:
        raise ValueError(f"next_power_of_2 requires a non-negative integer, got {x}")
    return 1 << max(x - 1, 0).bit_length()


def strides_from_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """How many elements apart neighbours along each axis are, row by row.

    >>> pl.strides_from_shape((2, 3, 4))
    (12, 4, 1)
    """
    strides, count = [], 1
    for size in reversed(shape):
        strides.append(count)
        count *= size
    return tuple(reversed(strides))


def multiple_of(x: Any, values: Any) -> Any:
    """`x`, of which it is known that it is a multiple of these integers.

    Args: x: an integer, traced or not; values: an integer or several. Errors: ValueError for a known one that is not.

    >>> pl.multiple_of(256, 128)
    256
    """
    values = (values,) if isinstance(values, int) else tuple(values)
    if isinstance(x, int) and any(x % value for value in values):
        raise ValueError(f"multiple_of: {x} is no multiple of {values}")
    return x


def max_contiguous(x: Any, values: Any) -> Any:
    """`x`, of whose elements as many in a row are known to be consecutive. A hint.

    Args: x: an integer array; values: an integer, or one for each axis.

    >>> plgpu.max_contiguous(jnp.arange(4), 4)
    Array([0, 1, 2, 3], dtype=int32)
    """
    return x


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Any:
    """`1 / x`.

    Args: x: an array of floats; approx: whether a coarser result will do; full_range: whether all numbers may
    come. Both are hints: the quotient is exact to its rounding.

    >>> pl.reciprocal(jnp.float32(4), approx=True)
    Array(0.25, dtype=float32)
    """
    return 1 / x


def broadcast_to(a: Any, shape: tuple[int, ...]) -> Any:
    """`jnp.broadcast_to` for kernels.

    Args: a: an array; shape: one that it broadcasts to.

    >>> pl.broadcast_to(jnp.float32(1), (2,))
    Array([1., 1.], dtype=float32)
    """
    return _broadcast_to(a, shape)


def select_ref(idx: Any, *refs: Any) -> Any:
    """One of several refs by a traced number: not supported.

    Args: idx: the number; refs: refs of one type. Errors: NotImplementedError, which says how to do it.

    >>> pl.select_ref(0, ferrax.new_ref(1.0))
    Traceback (most recent call last):
    NotImplementedError: pl.select_ref: write through a branch for each ref...
    """
    raise NotImplementedError(
        "pl.select_ref: write through a branch for each ref, lax.switch(idx, [...]), or make one ref of "
        f"all with a leading axis and index that.{at_user_line()}"
    )
