"""What the transfer guards do: see the flags `jax_transfer_guard` and `jax_transfer_guard_*`.

Arrays on the CPU are in the memory of the host, as NumPy's are, but not in the same one. What is guarded as a
transfer from host to device is the making of an array of a NumPy array or scalar, or filled with a number, and of a
Python number that a jitted function is given. A number that is an operand of an operation is part of the
operation, and what a function meets while it is traced is part of its program. A transfer is explicit
if `device_put` makes it. Between devices there are the copies and moves that `device_put` makes, which are
explicit, and those of arrays that nobody put anywhere and that a function wants over several devices. From device to
host there are those of arrays on other devices than the CPU, of which NumPy reads the memory; they are explicit if
`device_get` makes them.
"""

from __future__ import annotations

import contextlib
import logging

from ferrax import _core
from ferrax._src.base import config, errors, flags

_logger = logging.getLogger(__name__)
_GUARDING = ("log", "disallow", "log_explicit", "disallow_explicit")


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
    asked = "device_get" if flag == "device_to_host" else "device_put"
    raise errors.JaxRuntimeError(
        f"Disallowed transfer from {direction}: {what}{place}. Make it with ferrax.{asked}, which says "
        f"that it is meant and which 'disallow' lets through, or set jax_transfer_guard_{flag} to 'allow'."
    )


def explicit(direction: str = "host_to_device"):
    """A context for transfers in a direction that are asked for: only `_explicit` levels guard them."""
    if level(direction) in ("log", "disallow"):
        return flags.states[f"jax_transfer_guard_{direction}"]("allow")
    return contextlib.nullcontext()


def copied(array) -> None:
    """Called before an array is copied because `device_put` was told to.

    Errors: JaxRuntimeError if that is forbidden.
    """
    now = level("device_to_device")
    if now in ("log_explicit", "disallow_explicit"):
        what = f"an array {array.dtype}{list(array.shape)} is copied"
        _guard("device to device", "device_to_device", what, now == "disallow_explicit")


def filled(array) -> None:
    """Called for an array that was filled with a number, outside of programs.

    Errors: JaxRuntimeError if that is forbidden.
    """
    now = level("host_to_device")
    if now in _GUARDING and not isinstance(array, _core.Tracer):
        what = f"a number becomes an array {array.dtype}{list(array.shape)}"
        _guard("host to device", "host_to_device", what, now.startswith("disallow"))


def moved(array, source, target, asked: bool) -> None:
    """Called before an array whose sharding is `source` is put where `target` says, by `device_put` (`asked`) or
    because a function wants it there. One that several devices have, and have afterwards, is laid out anew by them,
    which is a computation.

    Errors: JaxRuntimeError if that is forbidden.
    """
    if isinstance(array, _core.Tracer) or source.num_devices > 1 and source.device_set == target.device_set:
        return
    now = level("device_to_device")
    if now in _GUARDING and (now.endswith("explicit") or not asked):
        if not source.is_equivalent_to(target, array.ndim):
            what = f"an array {array.dtype}{list(array.shape)} is moved from {source} to {target}"
            _guard("device to device", "device_to_device", what, now.startswith("disallow"))


def downloaded(what: str) -> None:
    """Called before an array of this type, which is on another device than the CPU, is copied to the host because
    something reads it.

    Errors: JaxRuntimeError if that is forbidden.
    """
    now = level("device_to_host")
    if now in _GUARDING:
        _guard("device to host", "device_to_host", f"the array {what} is read", "disallow" in now)
