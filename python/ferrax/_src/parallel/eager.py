"""Values in the body of a `shard_map` that is called with arrays, outside of any trace.

The body is staged as ever, once for all devices. Where Python asks one of its values what it is (`if`, `int`,
`np.asarray`), and the value is by type the same on all devices, the equations that it depends on run over the
devices, and the body goes on with what they gave; printing a value shows what each device has. The native core asks
`_Body.answer`, of the frame that records the body, where it would raise otherwise
(`ferrax-python/src/trace/staged.rs`).

Invariants: nothing that is asked changes the program, and what happens, does so once: a value that depends on an
equation that does something besides (a callback, a mutable array) has no answer. Answers are of this call's
arguments, so that no program of a body that may have asked is kept for another (`watched` makes a new function each
time). Each answer costs a run of all that the value depends on.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import errors
from ferrax._src.core import array, named_axes
from ferrax._src.core.mesh import Mesh, concrete_mesh, get_abstract_mesh, using_abstract
from ferrax._src.core.partition import PartitionSpec
from ferrax._src.core.primitives import apply_program
from ferrax._src.lax.shape import broadcast
from ferrax._src.tracing import staging


class _State(threading.local):
    def __init__(self):
        # By the frame that records each.
        self.bodies: dict[int, _Body] = {}


_state = _State()


def watched(body: Callable[..., Any], whole: Callable[..., Any], mesh: Any, axes: Any, check_vma: bool) -> Any:
    """The body, whose values can be asked for while it is staged.

    Args:
        body: the function of the parts.
        whole: `whole(program, captured, spec)` runs a program of the parts that has one output over the devices, and
            puts it together by this spec.
        mesh: the mesh.
        axes: `(name, size)` of the axes that the body is run over, in the mesh's order.
        check_vma: whether types say what differs between devices.
    """
    own = _Body(whole, mesh, axes, check_vma)

    @functools.wraps(body)
    def staged(*parts):
        frame = _core.ref_frames()[-1][0]
        _state.bodies[frame] = own
        _core.set_frame_answer(frame, own.answer)
        try:
            return body(*parts)
        finally:
            del _state.bodies[frame]

    return staged


class _Body:
    def __init__(self, whole, mesh, axes, check_vma):
        self.whole = whole
        self.mesh = mesh
        self.axes = axes
        self.check_vma = check_vma
        self.outside = get_abstract_mesh()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A context in which operations run, outside of the body."""
        with core.ensure_compile_time_eval(), using_abstract(self.outside), named_axes.no_axes():
            yield

    def answer(self, tracer):
        """The value, where it is the same on all devices and nothing has to happen for it; else None."""
        if not self.check_vma or core.typeof(tracer).manual_axis_type.vur:
            return None
        recorded = _core.recorded_so_far(tracer)
        if recorded is None:
            return None
        with self.at_once():
            return self.whole(*recorded, PartitionSpec())

    def shown(self, tracer):
        """What each device has, a paragraph each; None where something would have to happen for it."""
        recorded = _core.recorded_so_far(tracer)
        if recorded is None:
            return None
        program, captured = recorded
        program = program.erase_varying()
        names, sizes = [name for name, _ in self.axes], [size for _, size in self.axes]
        with self.at_once():
            types = [core.ShapedArray(*ty) for ty in program.in_types]
            stacked, more, _ = staging.stage(
                lambda *args: [broadcast(x, (1,)) for x in apply_program(program, list(args))], types, {}
            )
            values = self.whole(stacked, [*captured, *more], PartitionSpec(tuple(names)))
            texts = [str(values[number]) for number in range(len(values))]
        known = ", ".join(map(str, names))
        paragraphs = []
        for place, text in zip(np.ndindex(*sizes), texts):
            at = f"On {self.holders(place)} at mesh coordinates ({known}) = ({', '.join(map(str, place))}):"
            paragraphs.append(f"{at}\n{text}" if "\n" in text else f"{at} {text}")
        return "\n".join(paragraphs)

    def holders(self, place):
        """The devices at these coordinates, several where the body is run over some axes of the mesh alone."""
        mesh = self.mesh if isinstance(self.mesh, Mesh) else concrete_mesh()
        if mesh.empty:
            return "a device"
        at = {name: index for (name, _), index in zip(self.axes, place)}
        found = mesh.devices[tuple(at.get(name, slice(None)) for name in mesh.axis_names)]
        return ", ".join(map(repr, np.ravel(np.asarray(found, dtype=object))))

    def why_unknown(self, tracer):
        """Why there is no answer, and what helps; None where there is one."""
        lies = core.typeof(tracer).manual_axis_type
        instead = "Choose between arrays with jnp.where, between computations with lax.cond"
        if not self.check_vma:
            return (
                "Within this shard_map nobody knows whether the value is the same on all devices, because of "
                f"check_vma=False. {instead}; or leave out check_vma=False."
            )
        if names := lies.varying | lies.unreduced:
            found = [repr(name) for name, _ in self.axes if name in names]
            along = f"the {'axes' if len(found) > 1 else 'axis'} {', '.join(found)} of the mesh"
            how = "differs from device to device" if lies.varying else "is a sum that is not made yet,"
            return (
                f"By its type the value {how} along {along}, so that there is none for Python to go on with. Make it "
                "the same on all devices first, by lax.psum, lax.pmax or another reduction over these axes. Or let "
                f"each device decide for itself: {instead[0].lower()}{instead[1:]}."
            )
        if lies.reduced or _core.recorded_so_far(tracer) is not None:
            return None
        return (
            "The value depends on something that happens besides (a callback, a mutable array), once, when the whole "
            f"of the function runs. {instead}."
        )


def _body_of(tracer) -> _Body | None:
    found = _core.tracer_frame(tracer) if _state.bodies else None
    return None if found is None else _state.bodies.get(found[0])


def _shown(tracer) -> str | None:
    own = _body_of(tracer)
    return None if own is None else own.shown(tracer)


def _why_unknown(tracer) -> str | None:
    own = _body_of(tracer)
    return None if own is None else own.why_unknown(tracer)


array.shown_on_devices = _shown
errors.why_unknown = _why_unknown
