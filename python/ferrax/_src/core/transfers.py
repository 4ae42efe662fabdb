"""What the transfer guards do: see the flags `jax_transfer_guard` and `jax_transfer_guard_*`.

Arrays are in the memory of the host, as NumPy's are, but not in the same one. What is guarded as a
transfer from host to device is the making of an array of a NumPy array or scalar, and of a Python
number that a jitted function is given. A number that is an operand of an operation is part of the
operation, and what a function meets while it is traced is part of its program. A transfer is explicit
if `device_put` makes it. Between devices there is the copy that `device_put(x, may_alias=False)` makes,
which is explicit. From device to host there are none, for NumPy reads the memory of arrays.
"""

from __future__ import annotations

import contextlib
import logging

from ferrax import _core
from ferrax._src.base import config, errors, flags

_logger = logging.getLogger(__name__)


def level(direction: str):
    """What transfers in a direction, such as "host_to_device", do now."""
    own = flags.states[f"jax_transfer_guard_{direction}"].value
    return config.transfer_guard_level.value if own is None else own


def guarded(value, forbidden: bool) -> None:
    """Called for what becomes an array while that is guarded.

    Errors: JaxRuntimeError if it is forbidden.
    """
    if hasattr(value, "dtype"):
        what = f"a NumPy array {value.dtype}{list(value.shape)} becomes an array"
    else:
        what = f"the number {value!r} becomes an array"
    _guard("host to device", "host_to_device", what, forbidden)


def _guard(direction, flag, what, forbidden) -> None:
    at = _core.user_location()
    place = f" at {at}" if at else ""
    if not forbidden:
        _logger.warning("Transfer from %s: %s%s.", direction, what, place)
        return
    raise errors.JaxRuntimeError(
        f"Disallowed transfer from {direction}: {what}{place}. Make it with ferrax.device_put, which says "
        f"that it is meant and which 'disallow' lets through, or set jax_transfer_guard_{flag} to 'allow'."
    )


def explicit():
    """A context for transfers from the host that are asked for: only `_explicit` levels guard them."""
    if level("host_to_device") in ("log", "disallow"):
        return flags.states["jax_transfer_guard_host_to_device"]("allow")
    return contextlib.nullcontext()


def copied(array) -> None:
    """Called before an array is copied because `device_put` was told to.

    Errors: JaxRuntimeError if that is forbidden.
    """
    now = level("device_to_device")
    if now in ("log_explicit", "disallow_explicit"):
        what = f"an array {array.dtype}{list(array.shape)} is copied"
        _guard("device to device", "device_to_device", what, now == "disallow_explicit")
