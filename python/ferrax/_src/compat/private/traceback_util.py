"""Answers for `jax._src.traceback_util`: which lines are the user's own."""

from __future__ import annotations

import os
import pathlib
import types
from collections.abc import Callable
from typing import Any, TypeVar

from ferrax._src.base import source_info, traceback_util

F = TypeVar("F", bound=Callable[..., Any])

# Files whose paths begin with one of these are not the user's. Libraries read it.
_exclude_paths: list[str] = [str(pathlib.Path(source_info.__file__).parents[2])]


def register_exclusion(path: str) -> None:
    """Says that code below this path is a library's: messages and equations name the line that calls
    it."""
    _exclude_paths.append(path)
    source_info.register_exclusion(path)


def include_filename(filename: str) -> bool:
    """Whether lines of this file are the user's."""
    name = os.path.abspath(filename)
    return not any(
        name == path or name.startswith(path.rstrip(os.sep) + os.sep)
        for path in map(os.path.abspath, _exclude_paths)
    )


def include_frame(frame: types.FrameType) -> bool:
    """Whether a frame runs a line of the user's."""
    return include_filename(frame.f_code.co_filename)


def api_boundary(fun: F, *, repro_api_name: str | None = None, repro_user_func: bool = False) -> F:
    """The function with errors whose tracebacks are filtered as `jax_traceback_filtering` says."""
    return traceback_util.api_boundary(fun)
