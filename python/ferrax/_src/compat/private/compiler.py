"""Answers for `jax._src.compiler`.

Libraries put a function of their own in place of `backend_compile_and_load`, to forbid compilations for
a backend. Such a function is called at each compilation, before the program runs for the first time;
what it raises ends the call.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from ferrax._src.base import monitoring
from ferrax._src.core.devices import devices
from ferrax._src.transforms import stats

_NAME = "backend_compile_and_load"


def backend_compile_and_load(
    backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Any
) -> None:
    """Does nothing: programs are compiled by the native core."""


_own = backend_compile_and_load


def _on_duration(event: str, duration: float, /, **kwargs: str | int) -> None:
    if event == stats.COMPILED:
        own = devices("cpu")[:1]
        getattr(sys.modules[__name__], _NAME)(own[0].client, kwargs.get("fun_name"), own, None, [])


class _Module(types.ModuleType):
    """Listens to compilations as long as there is a function of somebody else's."""

    def __setattr__(self, name: str, value: Any) -> None:
        before = getattr(self, _NAME)
        super().__setattr__(name, value)
        if name == _NAME and (before is _own) != (value is _own):
            change = (
                monitoring.unregister_event_duration_listener
                if value is _own
                else monitoring.register_event_duration_secs_listener
            )
            change(_on_duration)


sys.modules[__name__].__class__ = _Module
