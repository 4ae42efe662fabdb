"""The error classes of this package that are not Python's own.

Class names and bases are JAX's, so `except ferrax.errors...` clauses carry over. Constructors take
facts, and write from them a message that says what happened, where in the user's program, and what
to do about it:

    tracer      a tracer, or a string that describes one ("traced array float32[3]")
    operation   what was asked of it ("`if`", "jnp.arange argument 'stop'")
    origin      what it is in the user's function ("the argument x of f at model.py:3")
    location    the user's "file:line (function)"; found on the stack where it is not given
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ferrax import _core

# Where the files of this package are.
PACKAGE_DIRECTORY: str = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class OverProcesses(RuntimeError):
    """An array of which this process has some parts was given to what computes with whole arrays.

    `array`: that one, where it is known.
    """

    def __init__(self, text: str, array: Any = None) -> None:
        super().__init__(text)
        self.array = array


def user_location() -> str:
    """The innermost frame outside this package as "file:line (function)", or ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE_DIRECTORY):
            return f"{code.co_filename}:{frame.f_lineno} ({code.co_name})"
        frame = frame.f_back
    return ""


def user_stacklevel() -> int:
    """The `stacklevel`, for a warning given by the caller, of the first frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE_DIRECTORY):
        frame, level = frame.f_back, level + 1
    return level


def _describe(tracer) -> str:
    if isinstance(tracer, str):
        return tracer
    dtype, shape = getattr(tracer, "dtype", None), getattr(tracer, "shape", None)
    if dtype is None or shape is None:
        return f"value of type {type(tracer).__name__}"
    return f"traced array {dtype}[{','.join(map(str, shape))}]"


def _origin(tracer, origin) -> str:
    """The sentence that says where a tracer came from, with its line break, or ""."""
    if origin is None:
        if isinstance(tracer, _core.Array):
            return _origin(tracer, _core.describe_tracer(tracer) or "")
        message = getattr(tracer, "_origin_msg", None)
        origin = message().strip() if callable(message) else ""
        return f"{origin}\n" if origin else ""
    return f"It is {origin}.\n{chain(tracer)}" if origin else ""


def chain(tracer) -> str:
    """The way back from a tracer to an argument, a line each, or "" where that is one step."""
    lines = _core.tracer_chain(tracer) if isinstance(tracer, _core.Array) else []
    return "\n  ".join(["From it back to an argument:", *lines]) + "\n" if lines else ""


# Why the value of a tracer is not known, with what helps, where there is more to say (`parallel/eager.py`).
why_unknown: Callable[[Any], str | None] | None = None


def _advice(tracer, usual) -> str:
    known = None
    if why_unknown is not None and isinstance(tracer, _core.Array):
        known = why_unknown(tracer)
    return usual if known is None else known


def _where(location) -> str:
    location = user_location() if location is None else location
    return f"At {location}.\n" if location else ""


# What array operation does the work of Python's, for messages.
_INSTEAD = {
    f"{kind}()": f", e.g. x.astype({kind}) instead of {kind}(x), and jnp's functions instead of math's"
    for kind in ("int", "float", "complex")
}


class JAXTypeError(TypeError):
    """Base of the errors that come of using a traced value as a concrete one, and the like.

    Example:
        >>> issubclass(ferrax.errors.ConcretizationTypeError, ferrax.errors.JAXTypeError)
        True
    """

    # What whoever asked for the value says of other ways.
    instead = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class JAXIndexError(IndexError):
    """Base of the errors about indices that only concrete values can be.

    Example:
        >>> issubclass(ferrax.errors.NonConcreteBooleanIndexError, ferrax.errors.JAXIndexError)
        True
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ConcretizationTypeError(JAXTypeError):
    """Python asked for the value of a traced array.

    Cause: inside `jit`, `vmap`, `scan` and the like, functions run once on stand-ins (tracers)
    that have a shape and a dtype but no value. What needs a value, such as `float(x)`, a shape, or
    an `axis=` argument, cannot be computed from them.

    Cure: if the value decides shapes or structure, declare it static, so that each of its values
    is compiled separately; otherwise keep the computation in array operations.

    Example:
        >>> @ferrax.jit
        ... def f(x, n):
        ...     return jnp.arange(n) + x         # n is traced
        >>> f(1, 3)
        Traceback (most recent call last):
            ...
        ferrax.errors.ConcretizationTypeError: ...
        >>> @ferrax.jit(static_argnames="n")
        ... def f(x, n):
        ...     return jnp.arange(n) + x         # n is a Python int
        >>> f(1, 3)
        Array([1, 2, 3], dtype=int32)
    """

    def __init__(
        self, tracer: Any, context: str = "", *, operation: str | None = None,
        origin: str | None = None, location: str | None = None,
    ) -> None:
        who = f"{operation} needs a concrete value" if operation else "A concrete value is needed"
        head = f"{who}, but got the {_describe(tracer)}."
        self.instead = context.strip()
        context = f"{context.strip()}\n" if context else ""
        usual = (
            "The value is not known while the function is traced. If it decides a shape or the "
            "structure of the program, pass it as a static argument (jit's static_argnames), or "
            "compute it with NumPy outside; otherwise express the computation with array "
            f"operations{_INSTEAD.get(operation or '', '')}."
        )
        where = f"{_where(location)}{_origin(tracer, origin)}"
        super().__init__(f"{head}\n{context}{where}{_advice(tracer, usual)}")


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced array was used as a truth value: `if x > 0:`, `while`, `and`, `not`, `assert`.

    Cause: which way to go depends on a value that is not known while the function is traced.

    Cure: `jnp.where` to choose between arrays, `lax.cond` to choose between computations,
    `lax.while_loop` to loop, `jnp.logical_and` for `and`; or a static argument, if the condition
    depends on few different values.

    Example:
        >>> @ferrax.jit
        ... def relu(x):
        ...     return x if x > 0 else 0.0
        >>> relu(-1.0)
        Traceback (most recent call last):
            ...
        ferrax.errors.TracerBoolConversionError: ...
        >>> @ferrax.jit
        ... def relu(x):
        ...     return jnp.where(x > 0, x, 0.0)
        >>> relu(-1.0)
        Array(0., dtype=float32, weak_type=True)
    """

    def __init__(self, tracer: Any, *, origin: str | None = None, location: str | None = None) -> None:
        usual = (
            "The value is not known while the function is traced. Use jnp.where to choose between "
            "arrays, lax.cond between computations, lax.while_loop to loop, jnp.logical_and/or/not "
            "for Python's operators; or make the argument it depends on static (jit's "
            "static_argnames)."
        )
        JAXTypeError.__init__(
            self,
            f"Attempted boolean conversion of the {_describe(tracer)}, as `if`, `while`, `and`, "
            f"`or`, `not` and `assert` do.\n{_where(location)}{_origin(tracer, origin)}{_advice(tracer, usual)}",
        )


class TracerIntegerConversionError(JAXTypeError):
    """A traced array was used where Python needs an integer: a list index, a shape, `range`.

    Cure: index arrays instead of lists; loop with `lax.fori_loop`; declare static what decides
    shapes.

    Example:
        >>> table = [1.0, 2.0, 3.0]
        >>> ferrax.jit(lambda i: table[i])(1)
        Traceback (most recent call last):
            ...
        ferrax.errors.TracerIntegerConversionError: ...
        >>> ferrax.jit(lambda i: jnp.array(table)[i])(1)
        Array(2., dtype=float32)
    """

    def __init__(self, tracer: Any, *, origin: str | None = None, location: str | None = None) -> None:
        usual = (
            "The value is not known while the function is traced. If it indexes a list, make the "
            "list an array with jnp.array; if it counts a loop, use lax.fori_loop; if it decides a "
            "shape, make it static (jit's static_argnames)."
        )
        super().__init__(
            f"The __index__() method was called on the {_describe(tracer)}: a Python integer is "
            f"needed here.\n{_where(location)}{_origin(tracer, origin)}{_advice(tracer, usual)}"
        )


class TracerArrayConversionError(JAXTypeError):
    """A traced array was handed to NumPy, or to another library that wants its data.

    Cause: `np.sin(x)` or `np.asarray(x)` needs the numbers in `x`, and a tracer has none.

    Cure: call the function of `ferrax.numpy` of that name; for what exists in NumPy only,
    `ferrax.pure_callback`. Indexing a NumPy array with a tracer has the same cause: convert the
    array with `jnp.asarray` first.

    Example:
        >>> ferrax.jit(lambda x: np.sin(x))(0.0)
        Traceback (most recent call last):
            ...
        ferrax.errors.TracerArrayConversionError: ...
        >>> ferrax.jit(lambda x: jnp.sin(x))(0.0)
        Array(0., dtype=float32, weak_type=True)
    """

    def __init__(self, tracer: Any, *, origin: str | None = None, location: str | None = None) -> None:
        usual = (
            "NumPy needs the values, which are not known while the function is traced. Use the "
            "function's counterpart in ferrax.numpy; convert NumPy arrays that are indexed by traced "
            "values with jnp.asarray; call code that has no counterpart with ferrax.pure_callback."
        )
        super().__init__(
            f"NumPy called __array__(), for an array of concrete values, on the "
            f"{_describe(tracer)}.\n{_where(location)}{_origin(tracer, origin)}{_advice(tracer, usual)}"
        )


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced boolean mask was used as an index.

    Cause: the shape of `x[mask]` depends on how many entries of the mask are true, and under
    tracing shapes must be known.

    Cure: keep the shape with `jnp.where(mask, x, 0)`; reduce with `jnp.sum(x, where=mask)`; bound
    the size with `jnp.nonzero(mask, size=n)`.

    Example:
        >>> x = jnp.array([-1.0, 2.0, 3.0])
        >>> ferrax.jit(lambda x: x[x > 0].sum())(x)
        Traceback (most recent call last):
            ...
        ferrax.errors.NonConcreteBooleanIndexError: ...
        >>> ferrax.jit(lambda x: jnp.sum(x, where=x > 0))(x)
        Array(5., dtype=float32)
    """

    instead = (
        "Keep the shape with jnp.where(mask, x, fill), reduce with jnp.sum(x, where=mask), "
        "or take at most n elements: x[jnp.nonzero(mask, size=n, fill_value=0)], "
        "jnp.compress(mask, x, size=n). Updates take masks: x.at[mask].set(values)."
    )

    def __init__(self, tracer: Any, *, origin: str | None = None, location: str | None = None) -> None:
        super().__init__(
            f"Array boolean indices must be concrete; got the {_describe(tracer)}.\n"
            f"{_where(location)}{_origin(tracer, origin)}"
            "The result's shape would depend on values that are not known while the function is "
            f"traced. {self.instead}"
        )


class UnexpectedTracerError(JAXTypeError):
    """A tracer was used after the transformation that made it had ended.

    Cause: a transformed function stored an intermediate value in a global, an attribute or a
    closed-over list, instead of returning it; tracers mean nothing outside their trace.

    Cure: return the value. `with ferrax.checking_leaks():` reports the leak where it happens.

    Example:
        >>> kept = []
        >>> ferrax.jit(lambda x: kept.append(x * 2))(1.0)
        >>> kept[0] + 1
        Traceback (most recent call last):
            ...
        ferrax.errors.UnexpectedTracerError: ...
        >>> ferrax.jit(lambda x: x * 2)(1.0)
        Array(2., dtype=float32, weak_type=True)
    """

    def __init__(self, msg: str) -> None:
        super().__init__(msg)

    @classmethod
    def escaped(
        cls, tracer: Any, *, origin: str | None = None, created: str | None = None,
        location: str | None = None,
    ) -> UnexpectedTracerError:
        """The error for a tracer met outside its trace; `created` is its maker's file:line."""
        created = f"It was created at {created}.\n" if created else ""
        return cls(
            f"Encountered an unexpected tracer: the {_describe(tracer)} belongs to a "
            f"transformation that has ended.\n{_where(location)}{created}"
            f"{_origin(tracer, origin)}"
            "A transformed function let it escape as a side effect: stored it in a global, an "
            "attribute or a container. Return the value from the function instead. To find where "
            "it escapes, run under `with ferrax.checking_leaks():`."
        )


class KeyReuseError(JAXTypeError):
    """A random key was used twice, while `jax_debug_key_reuse` is set.

    Cause: two samplers given the same key give related numbers, where independent ones were meant.
    Cure: `ferrax.random.split` the key, and use each new key once; where the same numbers are
    meant, `ferrax.random.clone` it.

    Example:
        >>> k1, k2 = ferrax.random.split(ferrax.random.key(0))
        >>> x, y = ferrax.random.normal(k1), ferrax.random.uniform(k2)
    """


class JaxprTypeError(TypeError):
    """A program does not obey the typing rules of its operations.

    Cause: it was built by hand, or by a custom rule whose results do not have the types that it
    declares. `jax_enable_checks` makes every pass check its output. Cure: correct that rule; the
    message names the equation.

    Example:
        >>> x, y = (ferrax.core.Var(ferrax.typeof(1.0)) for _ in range(2))
        >>> ferrax.core.check_jaxpr(ferrax.core.Jaxpr([], [x], [y], []))
        Traceback (most recent call last):
            ...
        ferrax.errors.JaxprTypeError: ...
    """


class InconclusiveDimensionOperation(Exception):
    """A question about a symbolic dimension has no answer that holds for all its values.

    Cause: none yet, for there are no symbolic dimensions (`export.symbolic_shape` says so); it is
    here for programs that catch it.

    Example:
        >>> issubclass(ferrax.errors.InconclusiveDimensionOperation, Exception)
        True
    """


class IndexCheckError(IndexError):
    """An index is out of bounds, under `jax_debug_index`. A callback that raises it does so for the
    program, which ends with this error.

    Example:
        >>> issubclass(ferrax.errors.IndexCheckError, IndexError)
        True
    """


class JaxRuntimeError(RuntimeError):
    """A compiled program failed while it ran.

    Cause: for example memory ran out, or a callback into Python raised. Cure: the message says
    what failed, and at which line of the program.

    Example:
        >>> def failing(x):
        ...     raise OSError("the disk is full")
        >>> f = ferrax.jit(lambda x: ferrax.pure_callback(failing, x, x))
        >>> f(jnp.ones(2))
        Traceback (most recent call last):
            ...
        ferrax.errors.JaxRuntimeError: ...
    """


class TooManyTracesError(RuntimeError):
    """A jitted function would be traced more often than its `max_traces` allows.

    Cause: an argument changed in shape, dtype, weak type, structure or static value from call to
    call, so that no known program fits. The message names it. Cure: make the argument alike in
    all calls (pad shapes, convert dtypes), or allow more traces.

    Example:
        >>> f = ferrax.jit(lambda x: x * 2, max_traces=1)
        >>> f(jnp.ones(2))
        Array([2., 2.], dtype=float32)
        >>> f(jnp.ones(3))
        Traceback (most recent call last):
            ...
        ferrax.errors.TooManyTracesError: ...
    """


class ShardingTypeError(Exception):
    """An operation on arrays over explicit axes of a mesh does not say how its result is divided.

    The types of such arrays say over which axes they are divided, and so do those of results. Where that is
    ambiguous, as for a product that sums over an axis that both operands are divided along, pass
    `out_sharding`, or `ferrax.reshard` an operand before.

    Example:
        >>> mesh = ferrax.make_mesh((1,), ("x",))
        >>> x = ferrax.device_put(jnp.ones((2, 2)), ferrax.NamedSharding(mesh, ferrax.P(None, "x")))
        >>> try:
        ...     x @ x.T
        ... except Exception as error:
        ...     print(type(error).__name__)
        ShardingTypeError
    """


class TypePromotionError(ValueError):
    """Dtypes that have no implicit promotion to a common dtype met in one operation.

    Cause: narrow formats (8-bit floats and smaller, 4-bit integers and smaller) promote with
    nothing but Python scalars, and with `jax_numpy_dtype_promotion='strict'` no two different
    dtypes do. Cure: cast explicitly.

    Example:
        >>> x = jnp.ones(3, jnp.float8_e4m3fn)
        >>> x + jnp.ones(3)
        Traceback (most recent call last):
            ...
        ferrax.dtypes.TypePromotionError: ...
        >>> x.astype(jnp.float32) + jnp.ones(3)
        Array([2., 2., 2.], dtype=float32)
    """


TypePromotionError.__module__ = "ferrax.dtypes"
_PUBLIC = (
    JAXTypeError, JAXIndexError, ConcretizationTypeError, TracerBoolConversionError,
    TracerIntegerConversionError, TracerArrayConversionError, NonConcreteBooleanIndexError,
    UnexpectedTracerError, KeyReuseError, JaxprTypeError, InconclusiveDimensionOperation,
    JaxRuntimeError, TooManyTracesError, IndexCheckError, ShardingTypeError,
)  # fmt: skip
for _class in _PUBLIC:
    _class.__module__ = "ferrax.errors"
