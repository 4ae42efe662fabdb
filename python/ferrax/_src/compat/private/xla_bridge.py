"""Answers for `jax._src.xla_bridge`."""

from ferrax._src.interop.extend_backend import backends as _make_backends

# The backends by their names. Libraries look at it to see whether they came too early or too late
# to choose devices.
_backends = _make_backends()
