"""The named axes that functions are mapped over: which there are here, and how long they are.

Invariant: within `named_axis` (and a rule that is traced later, `kept`) the native core knows the
axes, and the mesh in use, by a number that is the same for the same names, sizes and mesh, so that a
function that was compiled under others is not taken for this one.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Hashable

from ferrax import _core
from ferrax._src.base import errors

# ((name, size), …), outermost first; the last of a name hides the others.
Axes = tuple[tuple[Hashable, int], ...]

_NO_MESH = (None, None, ())
# Of the axes those of meshes, with whether types say what varies over them.
Manual = tuple[tuple[Hashable, bool], ...]
# Axes, those of meshes, the mesh in use, and whether a checkpoint is around.
_Key = tuple[Axes, Manual, tuple, bool]
# The numbers of these, by the types of mutable values (`set_types`).
_numbers: dict[Hashable, dict[_Key, int]] = {None: {((), (), _NO_MESH, False): 0}}
_next_number = itertools.count(1)
_lock = threading.RLock()


class _State(threading.local):
    def __init__(self):
        self.axes: Axes = ()
        self.manual: Manual = ()
        self.mesh: tuple = _NO_MESH
        self.spmd: tuple = ()
        self.checkpointed = False
        self.types: Hashable = None
        self.devices: Hashable | None = None
        self.indices: dict[int, object] = {}


_state = _State()


@contextlib.contextmanager
def _within(axes: Axes, manual: Manual):
    before = _state.axes, _state.manual
    _set(axes, manual)
    try:
        yield
    finally:
        _set(*before)


def _set(axes, manual):
    _state.axes, _state.manual = axes, manual
    _tell()


def _tell():
    key = (_state.axes, _state.manual, _state.mesh, _state.checkpointed)
    with _lock:
        known = _numbers.setdefault(_state.types, {})
        if key not in known:
            known[key] = next(_next_number)
    _core.set_axes(known[key])


def set_types(types: Hashable) -> None:
    """Says which mutable values the functions that this thread traces have given other types: part of what functions
    are known by. None where there are none; others are never given again once there are others."""
    before, _state.types = _state.types, types
    if types == before:
        return
    if before is not None:
        with _lock:
            _numbers.pop(before, None)
    _tell()


@contextlib.contextmanager
def checkpointed():
    """A context in which functions are known as ones within a checkpoint."""
    before, _state.checkpointed = _state.checkpointed, True
    _tell()
    try:
        yield
    finally:
        _state.checkpointed = before
        _tell()


def is_checkpointed() -> bool:
    return _state.checkpointed


def mesh_in_use() -> tuple:
    """What `set_mesh` was given last on this thread."""
    return _state.mesh


def set_mesh(mesh: tuple) -> None:
    """The mesh in use on this thread, whatever describes it: a tuple, by which programs are known."""
    _state.mesh = mesh
    _tell()


def named_axis(name, size):
    """A context in which the axis of this name and size is mapped over; None changes nothing."""
    if name is None:
        return contextlib.nullcontext()
    hash(name)
    return _within((*_state.axes, (name, size)), tuple(x for x in _state.manual if x[0] != name))


def named_axes_of(pairs):
    """A context in which the axes of these pairs of name and size are mapped over; None: none."""
    return _within((*_state.axes, *((name, int(size)) for name, size in pairs or ())), _state.manual)


@contextlib.contextmanager
def at(indices):
    """A context in which the index on these axes, by name, is known: a traced scalar, which programs that are
    kept do not hold."""
    before = _state.indices
    _state.indices = before | {_place(name): index for name, index in indices.items()}
    try:
        yield
    finally:
        _state.indices = before


def index_of(name):
    """The index on the innermost axis of this name where it is known, else None."""
    return _state.indices.get(_place(name)) if _state.indices else None


def _place(name):
    """How far from the outside the innermost axis of a name is."""
    return max((number for number, (axis, _) in enumerate(_state.axes) if axis == name), default=-1)


def no_axes():
    """A context in which no axis is mapped over, whatever is outside of it."""
    return _within((), ())


def mesh_axes_of(pairs, typed):
    """As `named_axes_of`, of the axes of a mesh; `typed` says whether types say what varies over them."""
    own = {name: typed for name, _ in pairs}
    manual = dict(_state.manual) | own
    return _within((*_state.axes, *pairs), tuple(manual.items()))


def batch_over(names):
    """A context in which the axis that is mapped over is divided over these axes of a mesh."""
    return _divided(names) if names or _state.spmd else contextlib.nullcontext()


@contextlib.contextmanager
def _divided(names):
    before = _state.spmd
    _state.spmd = (*before, names)
    try:
        yield
    finally:
        _state.spmd = before


def batched_over() -> tuple:
    """The axes of a mesh over which the innermost axis that is mapped over is divided."""
    return _state.spmd[-1] if _state.spmd else ()


def all_batched_over() -> tuple:
    """The axes of a mesh over which any axis that is mapped over is divided."""
    return tuple(name for names in _state.spmd for name in names)


@contextlib.contextmanager
def over_devices(name):
    """A context in which what is batched over the axis of this name is what devices of a mesh do."""
    before = _state.devices
    _state.devices = text(name)
    try:
        yield
    finally:
        _state.devices = before


def is_over_devices(name) -> bool:
    """Whether a batch over the axis of this name is one over the devices of a mesh."""
    return name is not None and _state.devices == text(name)


def of_mesh() -> tuple:
    """The names of the axes of meshes, over whose devices a function is mapped, that have several devices."""
    sizes = dict(_state.axes)
    return tuple(name for name, _ in _state.manual if sizes.get(name, 1) > 1)


def is_of_mesh(name) -> bool:
    """Whether the axis of this name is a mesh's, over whose devices a function is mapped."""
    return any(known == name for known, _ in _state.manual)


def typed_of(names) -> tuple:
    """Those of these axes over which types say what varies."""
    return tuple(name for name in names if (name, True) in _state.manual) if _state.manual else ()


def kept(rule):
    """The function with the axes that are mapped over now, for when it is called elsewhere."""
    if not _state.axes:
        return rule
    axes, manual = _state.axes, _state.manual

    def with_axes(*args):
        with _within(axes, manual):
            return rule(*args)

    return with_axes


def numbered(number) -> Axes:
    """The axes that the native core knows by this number."""
    with _lock:
        every = [item for known in _numbers.values() for item in known.items()]
    return next((axes for (axes, *_), known in every if known == number), ())


def names() -> list:
    """The names of the axes that are mapped over, outermost first."""
    return list(dict.fromkeys(name for name, _ in _state.axes))


def size_of(name, function="this function") -> int:
    """The size of the innermost axis of this name.

    Errors: NameError where no axis of this name is mapped over.
    """
    for known, size in reversed(_state.axes):
        if known == name:
            return size
    known = ", ".join(map(repr, names())) or "none"
    raise NameError(
        f"Found an unbound axis name: {name}. {function} needs a function that is mapped over an "
        f"axis of that name, as in vmap(f, axis_name={name!r}). Named axes here: {known}."
        f"\n  at {errors.user_location()}"
    )


def as_names(axis_name) -> tuple:
    """One name or several as a tuple."""
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def size_of_all(axis_name, function="this function") -> int:
    """The product of the sizes of one axis or several."""
    return math.prod(size_of(name, function) for name in as_names(axis_name))


# What types have before the names of axes over which values are unreduced and reduced (`ferrax-ir/src/varying/set.rs`).
UNREDUCED, REDUCED = MARKS = "+", "="
# Programs name axes by strings; other names have one of these.
_texts: dict[Hashable, str] = {}


def text(name) -> str:
    """The string that stands for an axis' name in programs: itself if it is one that has no mark of types before it."""
    if isinstance(name, str) and not name.startswith(MARKS):
        return name
    with _lock:
        return _texts.setdefault(name, f"<{name!r} {len(_texts)}>")


def from_text(string: str):
    """The name that a string in a program stands for."""
    return next((name for name, known in _texts.items() if known == string), string)
