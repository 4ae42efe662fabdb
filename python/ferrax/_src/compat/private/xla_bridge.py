"""Answers for `jax._src.xla_bridge`."""

from typing import Any

from ferrax._src.core.devices import devices_were_used
from ferrax._src.interop.extend_backend import backends


def __getattr__(name: str) -> Any:
    # The backends by their names, none before their devices are looked at. Libraries look at it to see whether they
    # came too early or too late to choose devices.
    if name == "_backends":
        return backends() if devices_were_used() else {}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
