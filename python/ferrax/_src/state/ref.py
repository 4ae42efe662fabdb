"""Mutable arrays: `Ref`, and what traced functions do to them.

A `Ref` is an identity; what it holds is an ordinary array. While functions are traced, each trace
frame keeps what the refs from outside hold inside it:

  stage frames     the value at the start becomes an input of the program of its own
  other frames     the outer value, until the frame writes one of its own

When a frame ends, the last values that it wrote are further outputs of its program, and whoever
applies the program writes them back outside: a call, or a loop, where they are carries. Programs
stay pure functions, so every transformation and the compiler go through refs without knowing of
them.

Invariants: a ref's shape, dtype and weak type never change. A ref belongs to the frame that was
innermost when it was made (0: none) and is good until that frame ends.
"""

from __future__ import annotations

import contextlib
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ferrax import _core
from ferrax._core.lax import stop_gradient
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import named_axes, placements
from ferrax._src.state.messages import (
    ArgumentName,
    at_user_line,
    both,
    escaped,
    freed,
    not_freed,
    not_mapped,
    of_other_kind,
    type_text,
)
from ferrax._src.tree import opaque

__all__ = ["Ref", "free_ref", "freeze", "new_ref"]


class OfType:
    """What mutable arrays and their views tell of their type: `_type` begins with the shape and the dtype."""

    __slots__ = ()
    _type: tuple

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions."""
        return self._type[0]

    @property
    def dtype(self) -> Any:
        """The element type, a NumPy dtype."""
        return self._type[1]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._type[0])

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._type[0])

    def __len__(self) -> int:
        if not self._type[0]:
            raise TypeError("len() of unsized object: a 0-d Ref has no length")
        return self._type[0][0]


class Ref(OfType):
    """A mutable array, made by `ferrax.new_ref`.

    `ref[index]` reads and `ref[index] = value` writes; `ref[...]` is all of it. Functions that are
    transformed may read and write refs that they make, close over or get as arguments, and so may
    the bodies of loops and branches. A ref is no array: read it to compute with its value.

    Attributes: `shape`, `dtype`, `size`, `ndim`, `aval`; of the array that it holds now, `sharding`,
    `committed` and `format`.

    Errors: ValueError for a value of another shape or dtype than the elements that it is written
    to (nothing is broadcast), for static indices out of bounds, and for a ref that is returned
    from a function or that a function gets twice; UnexpectedTracerError after the end of the
    function that made the ref.

    Example:
        >>> total = ferrax.new_ref(jnp.zeros(2))
        >>> @ferrax.jit
        ... def add(x):
        ...     total[0] += x
        >>> add(1.5)
        >>> total
        Ref([1.5, 0. ], dtype=float32)
    """

    __slots__ = (
        "__weakref__", "_freed", "_home", "_kind", "_made", "_owner", "_reverse", "_reversed", "_target", "_type",
        "_value",
    )  # fmt: skip

    if TYPE_CHECKING:
        # From `numpy.ref_ops`.
        def __getitem__(self, idx: Any, /) -> core.Array: ...
        def __setitem__(self, idx: Any, value: Any, /) -> None: ...
        def addupdate(self, value: Any, idx: Any = ()) -> None: ...
        def get(self, idx: Any = ()) -> core.Array: ...
        def set(self, value: Any, idx: Any = ()) -> None: ...
        def swap(self, value: Any, idx: Any = ()) -> core.Array: ...
        def reshape(self, *shape: Any) -> Any: ...
        def bitcast(self, dtype: Any) -> Any: ...
        def transpose(self, *axes: Any) -> Any: ...
        at: Any
        T: Any

    def __init__(self, value: Any, home: Any, made: Any, kind: str | None = None) -> None:
        self._value = value
        self._home = home
        self._made = made
        self._type = (value.shape, value.dtype, value.weak_type)
        # Another ref that this one stands for, as an argument does in a function's body.
        self._target = None
        self._kind = kind
        self._freed = False
        # The box that is found again by this ref, see `boxes`.
        self._owner: Any = None
        # The ref that orders reverse rules, and which ref this one orders rules for: see `reverse`.
        self._reverse: Any = None
        self._reversed: Any = None

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is weak."""
        return self._type[2]

    @property
    def aval(self) -> AbstractRef:
        """The type: an `AbstractRef`."""
        value = _outer_value(self)
        return AbstractRef(core.ShapedArray(*self._type) if value is None else core.typeof(value))

    @property
    def sharding(self) -> Any:
        """How what the ref holds lies on devices."""
        return self._held().sharding

    @property
    def committed(self) -> bool:
        """Whether what the ref holds was put where it is by request."""
        return self._held().committed

    @property
    def format(self) -> Any:
        """The layout and the sharding of what the ref holds."""
        return self._held().format

    def unsafe_buffer_pointer(self) -> int:
        """The address of the elements that the ref holds now."""
        return self._held().unsafe_buffer_pointer()

    def _held(self):
        value = _outer_value(self)
        # Reading one that is freed, or whose function has ended, raises.
        return read(self) if value is None else value

    def block_until_ready(self) -> Ref:
        """The ref itself: its value is ready at once."""
        return self

    def __repr__(self) -> str:
        value = _outer_value(self)
        if value is None or isinstance(value, core.Tracer):
            return type_text(self)
        return "Ref" + repr(value)[len("Array") :]

    def _read(self):
        # The native core reads the refs among the arguments of a call.
        return read(self)


class AbstractRef:
    """The type of a `Ref`: that of the array it holds, in `inner_aval`.

    >>> ferrax.typeof(ferrax.new_ref(jnp.zeros(2))).inner_aval
    ShapedArray(float32[2])
    """

    __slots__ = ("inner_aval",)
    memory_space = None

    def __init__(self, inner_aval: Any) -> None:
        self.inner_aval = inner_aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    @property
    def weak_type(self) -> bool:
        return self.inner_aval.weak_type

    @property
    def ndim(self) -> int:
        return len(self.inner_aval.shape)

    @property
    def size(self) -> int:
        return self.inner_aval.size

    @property
    def sharding(self) -> Any:
        return self.inner_aval.sharding

    # A ref is what it is made of, where values that are no arrays hold some.

    def lo_ty(self) -> list[AbstractRef]:
        """The types of what a ref is made of: its own."""
        return [self]

    def lower_val(self, hi_val: Any) -> list[Any]:
        """What a ref is made of: itself."""
        return [hi_val]

    def raise_val(self, *lo_vals: Any) -> Any:
        """The ref that is made of these, one."""
        (ref,) = lo_vals
        return ref

    def to_tangent_aval(self) -> AbstractRef:
        """The type of a ref of tangents."""
        return AbstractRef(self.inner_aval.to_tangent_aval())

    to_ct_aval = to_tangent_aval

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self.inner_aval == other.inner_aval

    def __hash__(self) -> int:
        return hash((AbstractRef, self.inner_aval))

    def str_short(self, short_dtypes: bool = False) -> str:
        """The type as a short text."""
        return f"Ref{{{self.inner_aval.str_short(short_dtypes)}}}"

    __repr__ = __str__ = str_short


_core.register_ref(Ref)
core.register_type(Ref, lambda ref: ref.aval)


# What other modules do to refs.


def read(ref):
    """The array that a ref holds now."""
    return _walk(ref)[0]


def write(ref, value) -> None:
    """Makes a ref hold an array of its type."""
    _, frames, scope = _walk(ref)
    if any(kind == "batch" for _, kind, _ in frames):
        if ref._reversed is not None and all(kind != "diff" for _, kind, _ in frames):
            return  # Nobody differentiates.
        raise not_mapped(ref if ref._reversed is None else ref._reversed)
    if ref._kind is not None and isinstance(value, core.Tracer) and dtypes.issubdtype(ref.dtype, np.inexact):
        # What passes through has no derivative.
        value = stop_gradient(value)
    if not frames:
        target = home_ref(ref)
        target._value = placements.placed_like(value, target._value)
        return
    if scope is None:
        scope = _new_scope(*frames[-1][:2])
    scope.note_write(home_ref(ref), value)


def store(ref, value) -> None:
    """As `write`, for what a function itself stores: within `masked`, where that holds."""
    if _state.masks:
        before, value = read(ref), conform(ref, value)
        for mask in _state.masks:
            value = _core.bind("select_n", (mask, before, value), {})
    write(ref, value)


def copied(value):
    """Another array of the same value, where that is."""
    return _core.alias(value) if isinstance(value, core.Tracer) else placements.alias(value)


def conform(ref, value):
    """A value of the ref's dtype with its weak type."""
    if value.weak_type == ref.weak_type and value.dtype == ref.dtype:
        return value
    params = {"new_dtype": ref.dtype, "weak_type": ref.weak_type}
    return _core.bind("convert_element_type", (value,), params)


def held(ref):
    """The array that a ref holds in its own frame: another one after it was written to there."""
    return ref._value


def array_type(ref) -> tuple:
    """`(shape, dtype, weak)` of what a ref holds."""
    return ref._type


def ordered_ref(ref) -> Ref | None:
    """The ref whose reverse rules this one orders, see `reverse`; None for others."""
    return ref._reversed


def view_of(ref, name) -> Ref:
    """A ref that stands for this one as the argument of this name, in the innermost frame."""
    target = home_ref(ref)
    view = Ref.__new__(Ref)
    view._value = view._reverse = view._reversed = None
    view._home = target._home
    view._type = target._type
    view._made = ArgumentName(name)
    view._target = target
    view._kind = target._kind
    view._freed = False
    view._owner = None
    return view


def new_ref(init_val: Any, *, memory_space: Any = None, kind: Any = None, pin: bool = False) -> Ref:
    """A mutable array that holds a copy of `init_val`.

    Args:
      init_val: an array or a number; the ref keeps its shape and dtype.
      memory_space: must be None, there is one memory.
      kind: None, or "no_grad_no_remat" for values that only pass through: what is written to
        such a ref has no derivative.
      pin: False.

    Errors: TypeError for what is no array; NotImplementedError for a memory space and for `pin`; ValueError for
    another kind.

    Example:
        >>> ref = ferrax.new_ref(jnp.arange(3))
        >>> ref[1] = 10
        >>> ref[...]
        Array([ 0, 10,  2], dtype=int32)
    """
    if memory_space is not None:
        raise NotImplementedError(f"new_ref: there is one memory space, got {memory_space!r}")
    if pin:
        raise NotImplementedError("new_ref: pin=True is not available; the compiler places refs")
    if kind not in (None, _PLUMBING):
        raise ValueError(f"new_ref: kind is None or {_PLUMBING!r}, got {kind!r}")
    if opaque.is_opaque(init_val):
        return _modules["value_refs"].new_value_ref(init_val, kind=kind)
    if isinstance(init_val, Ref):
        raise TypeError(
            "new_ref: a Ref cannot hold a Ref. Give its value: new_ref(ref[...])"
        )
    try:
        value = core.as_array(init_val, "new_ref")
    except TypeError as error:
        raise TypeError(f"Error interpreting argument to new_ref as an array: {error}") from None
    frames = _core.ref_frames()
    home = frames[-1][0] if frames else 0
    return Ref(copied(value), home, _core.user_location() if frames else None, kind)


_PLUMBING = "no_grad_no_remat"


def freeze(ref: Ref) -> Any:
    """The last value of a ref that is not used any more.

    Example:
        >>> ferrax.freeze(ferrax.new_ref(jnp.arange(2)))
        Array([0, 1], dtype=int32)
    """
    if opaque.is_opaque(ref) and hasattr(ref, "freeze"):
        return ref.freeze()
    return copied(read(check_ref(ref, "freeze")))


def free_ref(ref: Ref) -> tuple:
    """Ends the use of a ref: its memory is free. Returns ``()``.

    Args: ref: a `Ref`.

    Errors: ValueError, here and wherever it is used from now on, if it was freed before.

    >>> ferrax.free_ref(ferrax.new_ref(jnp.zeros(2)))
    ()
    """
    target = home_ref(check_ref(ref, "free_ref"))
    read(ref)
    frames = _core.ref_frames()
    if target._home != (frames[-1][0] if frames else 0):
        raise not_freed(target)
    target._freed = True
    if not frames:
        target._value = None
    return ()


def check_ref(ref, name) -> Ref:
    if not isinstance(ref, Ref):
        raise ValueError(
            f"Can only call `{name}` on a `Ref`, got {ref!r}. Make one with ferrax.new_ref."
        )
    return ref


# What a frame does to refs.


class Entry:
    """A ref from outside a frame, as the frame knows it."""

    __slots__ = ("line", "position", "ref", "value", "written")

    def __init__(self, ref, value, position):
        self.ref = ref
        self.value = value
        # The number of the value at the start among what the frame captured; None: no input.
        self.position = position
        self.written = False
        self.line = None


class Scope:
    """What the function of one frame does to refs.

    `entries` are refs from outside, `arguments` the frame's own refs that stand for arguments, as
    `(key, ref, value at the start)`, and `reverses` those that order the reverse rules of these.
    The native core calls `close` when the function has returned. `inputs` are the refs whose values
    are inputs, in order; for one in `reverses`, its key. `views` are outer refs that the function
    got as arguments and may not touch as themselves.
    """

    def __init__(self, frame, kind):
        self.frame = frame
        self.kind = kind
        self.entries: dict[Ref, Entry] = {}
        self.arguments: Any = []
        self.kinds: dict[Any, str | None] = {}
        self.reverses: Any = []
        self.inputs: list = []
        self.views: dict[Ref, tuple] = {}
        self.noted: list[Entry] = []
        self.written_arguments: list = []
        self.written_reverses: list = []
        self.lasting = True
        # Of boxes (`boxes`) from outside: what the function gave other types, as state and refs; the states that were
        # seen; whether any belongs to an outer trace. Boxes that stand for arguments, as `(key of the anchor, box,
        # state at the start)`. Once closed, `changed` are boxes, or keys of their anchors, and states.
        self.boxes: dict = {}
        self.seen: dict = {}
        self.bound = False
        self.box_arguments: list = []
        self.changed: list = []

    @property
    def written(self) -> list[Entry]:
        """The refs from outside that are written, where the types of boxes must not change.
        Errors: TypeError if they do."""
        if self.changed:
            raise boxes().changed(self.changed[0][0])
        return self.noted

    def note_write(self, ref, value):
        entry = self.entries.get(ref)
        if entry is None:
            entry = self.entries[ref] = Entry(ref, value, None)
        entry.value = value
        entry.written = True
        entry.line = _core.user_location()

    def close(self):
        """The values that were written: those of `written`, of `written_arguments` and of
        `written_reverses`."""
        self.noted = [entry for entry in self.entries.values() if entry.written]
        values = [entry.value for entry in self.noted]
        for key, ref, start in self.arguments:
            if ref._value is not start:
                self.written_arguments.append(key)
                values.append(ref._value)
        self.kinds = {key: ref._kind for key, ref, _ in self.arguments}
        self.arguments = {key: ref._made for key, ref, _ in self.arguments}
        for key, ref, start in self.reverses:
            if ref._value is not start:
                self.written_reverses.append(key)
                values.append(ref._value)
        self.reverses = []
        changed = [(box, *state) for box, state in self.boxes.items()]
        for key, box, start in self.box_arguments:
            if box._key != start:
                changed.append((key, box._key, box._refs[box._key]))
        self.changed = [(box, key) for box, key, _ in changed]
        values += [ref._value for _, _, refs in changed for ref in refs]
        self.boxes, self.box_arguments = {}, []
        # A program that reads refs of another trace is good for that trace alone.
        self.lasting = not self.bound and all(ref._home == 0 for ref in self.entries)
        for entry in self.entries.values():
            entry.value = None
        return values

    @property
    def count(self):
        """How many values follow the outputs."""
        of_refs = len(self.noted) + len(self.written_arguments) + len(self.written_reverses)
        return of_refs + sum(len(types) for _, (_, types) in self.changed)

    def write_back(self, results):
        """Writes the last results to the refs outside; returns the others."""
        first = len(results) - self.count
        for entry, value in zip(self.noted, results[first:]):
            write(entry.ref, value)
        self._put_boxes(results[first + len(self.noted) :], {})
        return results[:first]

    def _put_boxes(self, values, arguments):
        """Puts boxes into the states that the function gave them."""
        for box, key in self.changed:
            count = len(key[1])
            owner = box if not isinstance(box, int) else home_ref(arguments[box])._owner
            boxes().put(owner, key, values[:count])
            values = values[count:]

    # What `jit` asks for at each call.

    def read(self, arguments, fun):
        """The values of the refs that the function closes over; `arguments` are those passed."""
        for box, key in self.seen.items():
            if box._key != key and not self.bound:
                raise boxes().changed_meanwhile()
        for key, ref in arguments.items():
            if home_ref(ref) in self.entries:
                raise ValueError(both(ref, fun, "jit", self.arguments[key]))
            if ref._kind != self.kinds[key] and key in self.written_arguments:
                self._check_kind(fun, key, ref)
        return [
            read(item if isinstance(item, Ref) else reverse(arguments[item]))
            for item in self.inputs
        ]

    def _check_kind(self, fun, key, ref):
        """Errors: NotImplementedError where derivatives would depend on the kind of a ref that is written to."""
        kinds = self.kinds[key], ref._kind
        if kinds[0] is not None or any(kind == "diff" for _, kind, _ in _core.ref_frames()):
            raise of_other_kind(fun, self.arguments[key], *kinds)

    def write(self, values, arguments):
        for entry, value in zip(self.noted, values):
            write(entry.ref, value)
        rest = iter(values[len(self.noted) :])
        for key in self.written_arguments:
            write(arguments[key], next(rest))
        for key in self.written_reverses:
            write(reverse(arguments[key]), next(rest))
        self._put_boxes(list(rest), arguments)


# Those of this package that are made of this one.
_modules: dict[str, Any] = {}


def boxes():
    """The module `boxes`."""
    return _modules["boxes"]


def home_ref(ref):
    ref = ref if ref._target is None else ref._target
    while ref in _state.replaced:
        ref = _state.replaced[ref]
    return ref


class _State(threading.local):
    """Refs in whose place functions of this thread see others for now, see `replaced`; and see `masked`."""

    def __init__(self):
        self.replaced: dict[Ref, Ref] = {}
        self.masks: tuple = ()


_state = _State()


@contextlib.contextmanager
def replaced(refs, others):
    """A context in which the others are used in the places of these refs."""
    before = _state.replaced
    _state.replaced = before | dict(zip(refs, others))
    try:
        yield
    finally:
        _state.replaced = before


@contextlib.contextmanager
def masked(masks):
    """A context in which refs are stored to where all of these traced bools hold, and keep what they hold elsewhere;
    it takes the place of those around it. Functions are not taken for ones that were traced outside of it."""
    before = _state.masks
    _state.masks = tuple(masks)
    try:
        with named_axes.named_axis(("masked", len(_state.masks)), 1):
            yield
    finally:
        _state.masks = before


def masks() -> tuple:
    """What `masked` was given last on this thread."""
    return _state.masks


def _new_scope(frame, kind):
    scope = Scope(frame, kind)
    _core.set_frame_refs(frame, scope)
    return scope


def innermost_scope() -> Scope:
    """The scope of the frame that is traced now."""
    frame, kind, scope = _core.ref_frames()[-1]
    return _new_scope(frame, kind) if scope is None else scope


def _walk(ref, below=None):
    """The array that a ref holds in the innermost frame, the frames between the ref's and that
    one, and the scope of the innermost. Makes the inputs of frames on the way. `below` leaves out
    this frame and those inside of it."""
    frames = _core.ref_frames()
    if below is not None:
        ids = [frame for frame, _, _ in frames]
        frames = frames[: ids.index(below)]
    target = home_ref(ref)
    if target._freed:
        raise freed(target)
    home = target._home
    if home:
        for index, (frame, _, _) in enumerate(frames):
            if frame == home:
                frames = frames[index + 1 :]
                break
        else:
            raise escaped(target)
    value = target._value
    scope = None
    for frame, kind, scope in frames:
        if scope is not None:
            if target in scope.views and ref is target:
                raise ValueError(both(ref, *scope.views[target]))
            entry = scope.entries.get(target)
            if entry is not None:
                value = entry.value
                continue
        # A derivative goes through what orders reverse rules: an input to differentiate by.
        if kind == "stage" or (kind == "diff" and target._reversed is not None):
            if scope is None:
                scope = _new_scope(frame, kind)
            value, position = _core.add_ref_input(frame, value, id(target))
            scope.entries[target] = Entry(target, value, position)
            scope.inputs.append(target)
        elif kind == "value":
            if scope is None:
                scope = _new_scope(frame, kind)
            scope.entries[target] = Entry(target, value, None)
    return value, frames, scope


def _outer_value(ref):
    """The array that a ref holds, without making inputs; None if its frame has ended."""
    target = home_ref(ref)
    frames = _core.ref_frames()
    if target._freed or (target._home and all(frame != target._home for frame, _, _ in frames)):
        return None
    for _, _, scope in reversed(frames):
        entry = None if scope is None else scope.entries.get(target)
        if entry is not None:
            return entry.value
    return target._value


# Refs as arguments.


def argument(value, key, name=None, actual=None, kind=None) -> Ref:
    """A ref of the innermost frame that stands for one that was passed to its function. `key` is
    how the scope names it, `name` how messages do. `actual` is the one that was passed, where it
    holds what this one holds; else `kind` is that of the one that was."""
    scope = innermost_scope()
    kind = kind if actual is None else actual._kind
    ref = Ref(value, scope.frame, ArgumentName(name) if name else None, kind)
    scope.arguments.append((key, ref, value))
    ref._reverse = _ReverseOf(scope, key, actual)
    return ref


class _ReverseOf:
    """What makes the `reverse` of an argument when it is asked for."""

    __slots__ = ("actual", "key", "scope")

    def __init__(self, scope, key, actual):
        self.scope = scope
        self.key = key
        self.actual = actual

    def make(self, ref):
        scope = self.scope
        if self.actual is None:
            for frame, kind, _ in _core.ref_frames():
                if frame == scope.frame:
                    return _own_reverse(ref)
                if kind == "diff":
                    raise ValueError(
                        f"a reverse rule of custom_vjp gets the element of a mutable array, of "
                        f"type {type_text(ref)}, that vmap or scan maps over inside of a "
                        "differentiated function. Differentiate inside of the mapped function."
                        f"{at_user_line()}"
                    )
        value, _, _ = _walk(reverse(self.actual), below=scope.frame)
        value, _ = _core.add_ref_input(scope.frame, value, id(ref))
        made = Ref(value, scope.frame, None)
        scope.inputs.append(self.key)
        scope.reverses.append((self.key, made, value))
        return made


def reverse(ref) -> Ref:
    """The ref that orders the reverse rules which use `ref`.

    Each call of a function with a reverse rule reads it and writes what the call gives, so the
    calls form a chain of values, all zero, that a derivative goes back along. The "cotangent" of
    such a value is what `ref` holds at that point of the backward pass: a reverse rule takes it and
    gives the next one.
    """
    target = home_ref(ref)
    if not isinstance(target._reverse, Ref):
        make = target._reverse
        target._reverse = _own_reverse(target) if make is None else make.make(target)
        target._reverse._reversed = target
    return target._reverse


def _own_reverse(ref):
    # A constant, whatever is being traced now: it is part of the ref's frame.
    return Ref(_core.array_from_numpy(np.zeros(ref.shape, ref.dtype), False), ref._home, None)
