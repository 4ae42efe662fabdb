"""The native core's trace frames as JAX's traces: objects that say what records operations.

A frame is what `jit`, `grad` or `vmap` push while they trace a function (`rust/ferrax-python/src/
trace.rs`). A `Trace` here is a view of one, for programs that ask what a value belongs to; its
`main` is the same object for one frame. Traces in Python cannot be pushed: an interpreter of
operations walks the jaxpr of a function instead.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from ferrax import _core
from ferrax._src.core import Tracer, ensure_compile_time_eval as eval_context, named_axes

__all__ = [
    "BatchTracer",
    "DynamicJaxprTracer",
    "JVPTracer",
    "JaxprTracer",
    "Trace",
    "TraceTag",
    "eval_context",
    "find_top_trace",
    "get_opaque_trace_state",
    "set_current_trace",
    "take_current_trace",
]

_OWN_TRACES = (
    "Operations are recorded by frames of the native core, so that a trace defined in Python cannot "
    "become the current one. To interpret the operations of a function, walk its jaxpr: "
    "make_jaxpr(f)(*args), then evaluate its equations as core.eval_jaxpr does."
)


class TraceTag:
    """Identifies a trace: `trace.main`.

    >>> isinstance(ferrax.extend.core.find_top_trace().main, ferrax.extend.core.TraceTag)
    True
    """

    __slots__ = ("__weakref__",)


class Trace:
    """What records operations, or runs them. `main` identifies it.

    >>> ferrax.extend.core.find_top_trace()
    EvalTrace
    """

    __slots__ = ("__weakref__", "_frame", "_tag")

    def __init__(self) -> None:
        self._frame = None
        self._tag = TraceTag()

    @property
    def main(self) -> TraceTag:
        return self._tag

    def is_valid(self) -> bool:
        """Whether the trace is still recording."""
        return self._frame is None or any(frame == self._frame for frame, *_ in _core.ref_frames())

    def full_raise(self, x: Any) -> Any:
        """The value itself."""
        return x

    def process_primitive(self, primitive: Any, tracers: Any, params: Any, /) -> Any:
        """Applies a primitive: its output, or a list of outputs."""
        if type(self)._kind is None:
            raise NotImplementedError(f"{type(self).__name__}.process_primitive. {_OWN_TRACES}")
        return primitive.bind(*tracers, **params)

    def __repr__(self) -> str:
        return type(self).__name__

    _kind: str | None = None


class EvalTrace(Trace):
    """Operations run at once."""

    __slots__ = ()
    _kind = "eval"


class DynamicJaxprTrace(Trace):
    """Records a function for `jit`, `make_jaxpr`, a loop or a branch."""

    __slots__ = ()
    _kind = "stage"


class JaxprTrace(Trace):
    """Records what depends on unknown values, for `trace_to_jaxpr_nounits`."""

    __slots__ = ()
    _kind = "partial"


class JVPTrace(Trace):
    """Records a function that is differentiated.

    >>> from ferrax.interpreters import ad
    >>> @ferrax.grad
    ... def trace_of(x):
    ...     print(isinstance(ferrax.extend.core.find_top_trace(), ad.JVPTrace))
    ...     return x
    >>> _ = trace_of(1.0)
    True
    """

    __slots__ = ()
    _kind = "diff"


class ValueTrace(Trace):
    """Records a rule of a custom derivative, where the inputs have values."""

    __slots__ = ()
    _kind = "value"


class BatchTrace(Trace):
    """Records a function that is mapped over a batch."""

    __slots__ = ()
    _kind = "batch"


_KINDS = {
    kind._kind: kind
    for kind in (EvalTrace, DynamicJaxprTrace, JaxprTrace, JVPTrace, ValueTrace, BatchTrace)
}
_tags: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
eval_trace = EvalTrace()


class _State(threading.local):
    def __init__(self):
        self.partial = set()


_state = _State()


def _kind_of(frame, kind) -> str:
    return "partial" if frame in _state.partial else kind


def _view(frame, kind) -> Trace:
    trace = _KINDS[_kind_of(frame, kind)]()
    trace._frame = frame
    trace._tag = _tags.setdefault(frame, trace._tag)
    return trace


def current_trace() -> Trace:
    """The innermost trace, or the one that runs operations at once."""
    frames = _core.ref_frames()
    return _view(*frames[-1][:2]) if frames else eval_trace


def trace_of(tracer) -> Trace:
    """The trace that a traced value belongs to.

    Errors: AttributeError where that has ended.
    """
    found = _core.tracer_frame(tracer)
    if found is None:
        raise AttributeError(
            f"the trace of {tracer!r} has ended: a traced value means nothing outside its function"
        )
    return _view(*found)


# The stub has the property.
Tracer._trace = property(  # type: ignore[assignment,method-assign]  # as said above
    trace_of, doc="The trace that the value belongs to."
)


def is_traced_by(value, kinds) -> bool:
    """Whether a value belongs to a trace of one of these kinds."""
    found = _core.tracer_frame(value) if isinstance(value, Tracer) else None
    return found is not None and _kind_of(*found) in kinds


class _TracerKind(type):
    """Classes of tracers by the frame they belong to; the native core has one class for all."""

    _kinds: tuple[str, ...]

    def __instancecheck__(cls, value):
        return is_traced_by(value, cls._kinds)


class JVPTracer(Tracer, metaclass=_TracerKind):
    """Values of a function that is differentiated: `isinstance(x, JVPTracer)` asks that.

    >>> from ferrax.interpreters import ad
    >>> _ = ferrax.grad(lambda x: print(isinstance(x, ad.JVPTracer)) or x)(1.0)
    True
    """

    _kinds = ("diff",)


class DynamicJaxprTracer(Tracer, metaclass=_TracerKind):
    """Values of a function that is recorded for `jit`, a loop or a branch.

    >>> from ferrax.interpreters import partial_eval
    >>> _ = ferrax.jit(lambda x: print(isinstance(x, partial_eval.DynamicJaxprTracer)))(1.0)
    True
    """

    _kinds = ("stage",)


class JaxprTracer(Tracer, metaclass=_TracerKind):
    """Unknown values of a function that is partially evaluated.

    >>> from ferrax.interpreters import partial_eval
    >>> isinstance(jnp.ones(2), partial_eval.JaxprTracer)
    False
    """

    _kinds = ("partial",)


class BatchTracer(Tracer, metaclass=_TracerKind):
    """Values of a function that is mapped over a batch."""

    _kinds = ("batch",)


@contextlib.contextmanager
def partial_frame():
    """Within it, the innermost frame is one of partial evaluation."""
    frame = _core.ref_frames()[-1][0]
    _state.partial.add(frame)
    try:
        yield
    finally:
        _state.partial.discard(frame)


def find_top_trace(_: Any = None) -> Trace:
    """The innermost trace.

    >>> ferrax.extend.core.find_top_trace()
    EvalTrace
    """
    return current_trace()


@contextlib.contextmanager
def take_current_trace() -> Iterator[Any]:
    """A context that gives the current trace, to make it the current one again within.

    >>> with ferrax.extend.core.take_current_trace() as trace:
    ...     print(trace)
    EvalTrace
    """
    yield current_trace()


def set_current_trace(
    trace: Any, check_leaks: bool = False
) -> contextlib.AbstractContextManager[None]:
    """A context in which `trace` is current: the one that already is, or the one that runs
    operations at once. Errors: NotImplementedError for others, which Python cannot push.

    Args: trace: a trace or None; check_leaks: must be False.

    >>> with ferrax.extend.core.set_current_trace(ferrax.extend.core.find_top_trace()):
    ...     print(jnp.sin(0.0))
    0.0
    """
    if check_leaks:
        raise NotImplementedError(
            "set_current_trace: check_leaks is not supported; use ferrax.checking_leaks()"
        )
    if type(trace) is EvalTrace:
        return eval_context()
    current = current_trace()
    if trace is None or (type(trace)._kind is not None and trace._frame == current._frame):
        return contextlib.nullcontext()
    raise NotImplementedError(f"set_current_trace({trace!r}), where {current!r} is. {_OWN_TRACES}")


class OpaqueTraceState:
    """Which trace was current; equal to the states that were taken under the same one."""

    __slots__ = ("_frame",)

    def __init__(self, frame):
        self._frame = frame

    def __eq__(self, other):
        return isinstance(other, OpaqueTraceState) and self._frame == other._frame

    __hash__ = None  # type: ignore[assignment]  # what Python itself sets for such classes

    def __repr__(self):
        return f"OpaqueTraceState({self._frame})"


def get_opaque_trace_state(convention: str | None = None) -> OpaqueTraceState:
    """The state of tracing, to compare: two are equal if no trace began or ended between them.

    Args: convention: accepted, without effect.

    Example:
        >>> from ferrax.extend.core import get_opaque_trace_state
        >>> outside = ferrax.extend.core.get_opaque_trace_state()
        >>> ferrax.eval_shape(lambda: print(get_opaque_trace_state() == outside))
        False
    """
    return OpaqueTraceState(current_trace()._frame)


def unsafe_am_i_under_a_jit() -> bool:
    """Whether a function is being recorded, not only run.

    >>> ferrax.extend.core.unsafe_am_i_under_a_jit_DO_NOT_USE()
    False
    """
    return any(_kind_of(frame, kind) == "stage" for frame, kind, _ in _core.ref_frames())


def unsafe_am_i_under_a_vmap() -> bool:
    """Whether a function is being mapped over a batch.

    >>> ferrax.extend.core.unsafe_am_i_under_a_vmap_DO_NOT_USE()
    False
    """
    return any(kind == "batch" for _, kind, _ in _core.ref_frames())


def unsafe_get_axis_names() -> list:
    """The names of the axes that are mapped over, outermost first.

    >>> _ = ferrax.vmap(lambda x: print(ferrax.extend.core.unsafe_get_axis_names_DO_NOT_USE()),
    ...                 axis_name="lanes")(jnp.ones(2))
    ['lanes']
    """
    return named_axes.names()


def nonempty_axis_env() -> bool:
    """Whether an axis with a name is mapped over.

    >>> ferrax.extend.core.nonempty_axis_env_DO_NOT_USE()
    False
    """
    return bool(named_axes.names())
