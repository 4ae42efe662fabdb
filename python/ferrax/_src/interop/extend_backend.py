"""Backends and caches, for programs that ask for them by JAX's extension module."""

from __future__ import annotations

from typing import Any

from ferrax import _core
from ferrax._src.core.devices import Client, Device, default_device, devices
from ferrax._src.transforms.jit import clear_caches

__all__ = [
    "backend_xla_version",
    "backends",
    "clear_backends",
    "clear_in_memory_compilation_cache",
    "get_backend",
    "get_default_device",
    "register_backend_cache",
]

_caches: list = []


def backends() -> dict[str, Client]:
    """The backends by name: one.

    >>> list(ferrax.extend.backend.backends())
    ['cpu']
    """
    return {device.platform: device.client for device in devices()}


def backend_xla_version(platform: str | Device | None = None) -> None:
    """The version of XLA: None, for backends do not use it.

    Args: platform: None, "cpu" or a device. Errors: RuntimeError for platforms that do not exist.

    >>> ferrax.extend.backend.backend_xla_version() is None
    True
    """
    get_backend(platform)


def get_backend(platform: str | Device | None = None) -> Client:
    """The backend of this platform, or the default one.

    Errors: RuntimeError for platforms that do not exist.
    Args: platform: None, "cpu" or a device.

    >>> ferrax.extend.backend.get_backend().platform
    'cpu'
    """
    if isinstance(platform, Device):
        return platform.client
    return devices(platform)[0].client


def get_default_device() -> Device:
    """Where arrays are made unless something else is asked for.

    >>> ferrax.extend.backend.get_default_device() == ferrax.devices()[0]
    True
    """
    return default_device()


def register_backend_cache(cache: Any, for_what: Any = None) -> Any:
    """Has `cache.cache_clear()` called when caches are cleared. Returns the cache.

    Args: cache: what has `cache_clear`; for_what: accepted, without effect.

    >>> import functools
    >>> square = ferrax.extend.backend.register_backend_cache(functools.cache(lambda x: x * x))
    >>> square(3)
    9
    """
    _caches.append(cache)
    return cache


def clear_in_memory_compilation_cache() -> None:
    """Forgets compiled programs.

    >>> ferrax.extend.backend.clear_in_memory_compilation_cache()
    """
    _core.clear_program_cache()


def clear_backends() -> None:
    """Forgets compiled programs and what registered caches hold. Arrays stay as they are.

    >>> x = jnp.arange(3)
    >>> ferrax.extend.backend.clear_backends()
    >>> x
    Array([0, 1, 2], dtype=int32)
    """
    clear_caches()
    for cache in _caches:
        cache.cache_clear()
