"""Where nothing is refused: within functions that are told how their result should be divided (`out_sharding`)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ferrax._src.core import named_axes


class _State(threading.local):
    depth = 0
    wanted: Any = None


_state = _State()


@contextlib.contextmanager
def unchecked(wanted: Any = None) -> Iterator[None]:
    """A context in which no operation is refused for how its operands are divided, and in which the spec `wanted` is
    that of the result. Functions that are jitted within are known apart from others."""
    before, outer = named_axes.mesh_in_use(), _state.wanted
    _state.depth += 1
    _state.wanted = wanted
    named_axes.set_mesh((*before[:3], True if wanted is None else wanted))
    try:
        yield
    finally:
        _state.depth -= 1
        _state.wanted = outer
        named_axes.set_mesh(before)


def wanted() -> Any:
    """The spec that the result is to have of what is done now, if that was said."""
    return _state.wanted


def asks() -> bool:
    """Whether operations are refused for how their operands are divided."""
    return _state.depth == 0
