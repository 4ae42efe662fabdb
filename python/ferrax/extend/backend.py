"""Backends and caches of programs."""

# ruff: noqa: F401

from ferrax._src.base import public as _public
from ferrax._src.base.absent import absent as _absent, group as _group
from ferrax._src.interop.extend_backend import (
    backend_xla_version as backend_xla_version,
    backends as backends,
    clear_backends as clear_backends,
    clear_in_memory_compilation_cache as clear_in_memory_compilation_cache,
    get_backend as get_backend,
    get_default_device as get_default_device,
    register_backend_cache as register_backend_cache,
)

__getattr__ = _absent(
    __name__,
    _group(
        "get_compile_options ifrt_proxy register_backend_factory",
        "programs are compiled by ferrax itself, not by XLA, and the backends are those of "
        "ferrax.devices()",
    ),
)

_public.export(__name__)
