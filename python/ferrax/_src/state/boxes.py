"""`Box`: a mutable tree of arrays, of which the structure and the types may change, too.

A box holds a mutable array (`Ref`) for each leaf, so that what functions do to it is what they do to refs; this module
adds what changes types. In a *state*, structure and types, a box has refs of that state: they are kept by state, and a
box that comes back to one has the same refs again. A trace frame from whose outside a box is keeps a state of its own
once its function gives the box another; when the frame ends the values of that are further outputs of the program, and
whoever applies it puts the box outside into that state. Jitted functions are known by the states of the boxes that they
close over: a change of one that any closes over is another number of `runtime.set_outside`, on all threads, and which
boxes the functions that a thread traces have changed is what `named_axes.set_types` has.

As an argument a box is a node of trees: its first child is the *anchor*, a ref by which it is found again.
Invariant: the state of a box outside of all traces is `_key`; that in a frame is in the frame's scope. Cost: a call
of a function looks at no boxes; a read or a write of one looks at the frames inside of the box's own.
"""

from __future__ import annotations

import collections
import itertools
import threading
import weakref
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import errors, flags
from ferrax._src.core import named_axes, runtime
from ferrax._src.state import ref as refs_
from ferrax._src.state.messages import at_user_line
from ferrax._src.state.ref import Ref
from ferrax._src.tree import opaque, tree_util


class Box:
    """A mutable tree of arrays.

    Args: init_val: a tree of arrays and numbers, which is copied.

    `get()` is what it holds, `set(tree)` gives it another value, of any structure and types. Functions that are
    transformed may read and write boxes that they make, close over or get as arguments; bodies of loops and branches
    may not change structure or types.

    Errors: TypeError for leaves that are no arrays, and where structure or types must not change;
    UnexpectedTracerError after the end of the function that made the box.

    Example:
        >>> box = hijax.Box(1.0)
        >>> ferrax.jit(lambda x: box.set([x, box.get()]))(2.0)
        >>> box.get()
        [Array(2., dtype=float32, weak_type=True), Array(1., dtype=float32, weak_type=True)]
    """

    # Whether there are any: only then they are looked for in trees.
    _made = False

    def __init__(self, init_val: Any = None) -> None:
        if not Box._made:
            opaque.register_opaque(Box, _flatten, _unflatten)
            Box._made = True
        frames = _core.ref_frames()
        home = frames[-1][0] if frames else 0
        made = _core.user_location() if frames else None
        anchor = Ref(_core.array_from_numpy(np.zeros((), np.int32), False), home, made)
        key, arrays = _taken_apart(init_val)
        self._set_up(anchor, home, key, [Ref(_core.alias(x), home, made) for x in arrays])

    def _set_up(self, anchor, home, key, refs):
        self._anchor = anchor
        anchor._owner = self
        self._home = home
        self._key = key
        self._refs = {key: refs}
        self._serial = next(_serials)
        # Of one that stands for an argument whose types its caller cannot take other ones of.
        self._fixed = False

    @property
    def _val(self) -> Any:
        return self.get()

    def get(self) -> Any:
        """The tree that the box holds."""
        (tree, _), refs = _state_of(self)
        return tree.unflatten([refs_.read(ref) for ref in refs])

    def set(self, val: Any) -> None:
        """Makes the box hold a tree of arrays and numbers."""
        key, arrays = _taken_apart(val)
        put(self, key, arrays)

    def cur_qdd(self) -> BoxTypeState:
        """The types of what the box holds now."""
        (tree, types), _ = _state_of(self)
        structs = [core.ShapeDtypeStruct(*ty[:2], weak_type=ty[2]) for ty in types]
        leaves, shown = opaque.flatten(tree.unflatten(structs))
        leaves = [x.ty if isinstance(x, opaque.Placeholder) else core.typeof(x) for x in leaves]
        return BoxTypeState(tuple(leaves), shown)

    type_state = cur_qdd

    def __repr__(self) -> str:
        try:
            return f"Box({self.get()!r})"
        except Exception:
            return "Box(...)"


class BoxTypeState:
    """The types of what a `Box` holds: those of the leaves, and the structure.

    >>> hijax.Box([1.0]).cur_qdd()
    BoxTypeState((ShapedArray(float32[], weak_type=True),), PyTreeDef([*]))
    """

    def __init__(self, leaf_avals: tuple[Any, ...], treedef: Any) -> None:
        self.leaf_avals = leaf_avals
        self.treedef = treedef

    def to_tangent_qdd(self) -> BoxTypeState:
        """The types of tangents of it."""
        return BoxTypeState(tuple(x.to_tangent_aval() for x in self.leaf_avals), self.treedef)

    def normalize(self) -> BoxTypeState:
        """The types themselves."""
        return self

    def __repr__(self) -> str:
        return f"BoxTypeState({self.leaf_avals}, {self.treedef})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoxTypeState):
            return False
        return (self.leaf_avals, self.treedef) == (other.leaf_avals, other.treedef)

    def __hash__(self) -> int:
        return hash((self.leaf_avals, self.treedef))


def _taken_apart(val):
    """`((structure, types), arrays)` of a tree. Errors: TypeError for leaves that are no arrays."""
    leaves, tree = tree_util.tree_flatten(val)
    arrays = [core.as_array(x, "Box") for x in leaves]
    return (tree, tuple((x.shape, x.dtype, x.weak_type) for x in arrays)), arrays


def _frames_inside(box):
    """The frames inside of the box's own. Errors: UnexpectedTracerError if that has ended."""
    frames = _core.ref_frames()
    if not box._home:
        return frames
    for index, (frame, _, _) in enumerate(frames):
        if frame == box._home:
            return frames[index + 1 :]
    refs_.read(box._anchor)  # raises
    raise AssertionError("a ref outlives its frame")


def _state_of(box):
    """`(key, refs)` as the innermost frame has them."""
    frames = _frames_inside(box)
    if not frames and not box._home:
        named_axes.set_types(None)
    found, first = (box._key, box._refs[box._key]), 0
    for index, (_, _, scope) in enumerate(frames):
        if scope is not None and box in scope.boxes:
            found, first = scope.boxes[box], index + 1
    crossed = [(frame, scope) for frame, kind, scope in frames[first:] if kind == "stage"]
    for frame, scope in crossed:
        scope = refs_._new_scope(frame, "stage") if scope is None else scope
        if first or box._home:
            scope.bound = True  # to the outer trace
        else:
            scope.seen.setdefault(box, box._key)
            _watch(box)
    return found


def put(box, key, arrays) -> None:
    """Makes a box hold these arrays in this state."""
    old, refs = _state_of(box)
    frames = _frames_inside(box)
    if old == key or ((frames or box._fixed) and _alike(old, key)):
        for ref, x in zip(refs, arrays):
            refs_.write(ref, refs_.conform(ref, _core.alias(x)))
        return
    if box._fixed:
        raise changed(box)
    made = _core.user_location() if frames else None
    if frames:
        frame, kind, scope = frames[-1]
        scope = refs_._new_scope(frame, kind) if scope is None else scope
        scope.boxes[box] = key, [Ref(_core.alias(x), frame, made) for x in arrays]
        named_axes.set_types(_changed_inside(frames))
        return
    kept = box._refs.get(key)
    if kept is None:
        box._refs[key] = [Ref(_core.alias(x), box._home, made) for x in arrays]
    else:
        for ref, x in zip(kept, arrays):
            ref._value = _core.alias(x)
    if not box._home:
        for ref in refs:
            ref._value = None
    box._key = key
    if box._serial in _watched:
        _changed_outside(box)


def _alike(key, other) -> bool:
    """Whether two states differ in weak types at most."""
    return key[0] == other[0] and [ty[:2] for ty in key[1]] == [ty[:2] for ty in other[1]]


def changed(box) -> TypeError:
    """The error of a box whose types must not change."""
    return TypeError(
        "type-changing mutations not allowed: a Box was given a value of another structure or of other types where "
        "these must stay, in the body of a loop or a branch, or in a function that is differentiated, mapped or shown."
        f"{at_user_line()}"
    )


def _changed_inside(frames):
    """Which boxes from outside of all traces have another state in these frames: what programs that are traced there
    see of them as outside is not what there is."""
    pairs = ((frame, box) for frame, _, scope in frames if scope is not None for box in scope.boxes)
    return frozenset((frame, box._serial) for frame, box in pairs if not box._home) or None


# Which states jitted functions saw.

_serials = itertools.count()
# By the serial number of a box: the state that it had when a jitted function first saw it, and its state now where
# that is another.
_watched: dict[int, Any] = {}
_others: dict[int, Any] = {}
# Those of boxes that are gone, still to be forgotten: the garbage collector comes at any time.
_gone: collections.deque[int] = collections.deque()
# The numbers of what `_others` holds.
_numbers: dict[frozenset, int] = {frozenset(): 0}
_next_number = itertools.count(1)
_lock = threading.RLock()


def _watch(box):
    with _lock:
        if box._serial not in _watched:
            _watched[box._serial] = box._key
            weakref.finalize(box, _gone.append, box._serial)


def _forget_gone():
    """Forgets boxes that are gone; the numbers of states that nothing can come back to."""
    gone = set()
    while _gone:
        gone.add(_gone.popleft())
    if not gone:
        return []
    now = _numbers[frozenset(_others.items())]
    for serial in gone:
        del _watched[serial]
        _others.pop(serial, None)
    lost = [state for state in _numbers if any(serial in gone for serial, _ in state)]
    forgotten = {_numbers.pop(state) for state in lost}
    # What was traced in the present state is right without them.
    rest = frozenset(_others.items())
    forgotten |= {_numbers.get(rest, now)}
    _numbers[rest] = now
    return forgotten - {now}


def _changed_outside(box):
    with _lock:
        forgotten = _forget_gone()
        if box._key == _watched[box._serial]:
            _others.pop(box._serial, None)
        else:
            _others[box._serial] = box._key
        state = frozenset(_others.items())
        if state not in _numbers:
            _numbers[state] = next(_next_number)
        runtime.set_outside(_numbers[state], forgotten)


def changed_meanwhile() -> RuntimeError:
    """The error of a call whose function saw a box that another thread has given other types since."""
    flags.tell_context()  # the next call is right
    return RuntimeError(
        "a Box that a jitted function closes over was given other types by another thread, while this one was about to "
        "call the function or has settings of its own (a `with` block). Call it again, or give it the box as argument"
    )


# Boxes among the leaves of arguments.


class _Data:
    """The data of the node that a box is."""

    __slots__ = ("key",)

    def __init__(self, key):
        self.key = key

    def __eq__(self, other):
        return type(other) is _Data and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def __repr__(self):
        return f"Box of {self.key[0]}"


def _flatten(box):
    try:
        key, refs = _state_of(box)
    except errors.UnexpectedTracerError:
        # A reverse rule asks for the structure of the arguments, when the function has ended; a read raises.
        key, refs = box._key, box._refs[box._key]
    return (box._anchor, *refs), _Data(key)


def _unflatten(data, children):
    children = tuple(children)
    if not all(type(x) is Ref for x in children):
        return opaque.Placeholder(_unflatten, data, children)
    anchor = children[0]
    if anchor._target is None:
        anchor = refs_.home_ref(anchor)
    if anchor._owner is not None:
        return anchor._owner
    box = Box.__new__(Box)
    box._set_up(anchor, anchor._home, data.key, list(children[1:]))
    frames = _core.ref_frames()
    scope = frames[-1][2] if frames else None
    keys = [key for key, ref, _ in scope.arguments if ref is anchor] if scope is not None else []
    # A call of a jitted function can give the box that was passed other types.
    box._fixed = not (keys and anchor._reverse is not None and anchor._reverse.actual is not None)
    if scope is not None and not box._fixed:
        scope.box_arguments.append((keys[0], box, data.key))
    return box

