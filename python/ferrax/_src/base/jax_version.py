"""Which version of JAX is followed, where JAX's versions differ: the flag `jax_version`.

In: the environment (`FERRAX_JAX_VERSION`), `config.update("jax_version", …)`, `ferrax.compat.install(…)`. Out:
`follows(0, 12)`, which code asks that does one thing or another, at the cost of reading a flag; and the
constants of modules that name the version, which `publish` keeps true. The flag is part of what keys
compiled functions, so that one is traced anew where another version is followed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ferrax._src.base.flags import states

F = TypeVar("F", bound=Callable[..., Any])
OLD, NEW = "0.10.2", "0.12.0.1"
# The versions that can be followed, as what `__version_info__` is, and their array API.
VERSIONS: dict[str, tuple[int, ...]] = {OLD: (0, 10, 2), NEW: (0, 12, 0, 1)}
_ARRAY_API = {OLD: "2024.12", NEW: "2025.12"}


def parse(name: str, value: Any) -> str:
    """The version that a user means: `"0.12"` and `(0, 12)` are the one that begins so."""
    text = ".".join(map(str, value)) if isinstance(value, tuple) else value
    if isinstance(text, str):
        meant = [version for version in VERSIONS if f"{version}.".startswith(f"{text}.")]
        if len(meant) == 1:
            return meant[0]
    raise ValueError(f"{name} must be one of {', '.join(VERSIONS)} (or its beginning, such as '0.12'), got {value!r}.")


def followed() -> str:
    """The version that is followed on this thread, such as `"0.10.2"`."""
    return states["jax_version"].value


def of_process() -> str:
    """The version that is followed where a thread follows no other."""
    return states["jax_version"].get_global()


def follow(version: str) -> None:
    """Follows a version in this process from now on. Errors: ValueError if it is none that can be followed."""
    states["jax_version"]._set(version)


def follows(*least: int) -> bool:
    """Whether the version that is followed on this thread is this one or a later one."""
    return VERSIONS[states["jax_version"].value] >= least


def several(values: list[Any]) -> Any:
    """What a function returns that JAX had return a list up to 0.10 and has return a tuple since 0.12."""
    return tuple(values) if follows(0, 12) else values


def renamed(old: str, new: str, *since: int) -> Callable[[F], F]:
    """A decorator for a function whose argument `old` is `new` in versions since this one, where `old` is unknown."""

    def known(name: str, keywords: dict[str, Any]) -> dict[str, Any]:
        """The keywords as the function has them."""
        if not follows(*since):
            return keywords
        if old in keywords:
            raise TypeError(f"{name}: JAX {followed()}, which is followed here, has {new!r} in place of {old!r}")
        return {old if key == new else key: value for key, value in keywords.items()}

    def with_names(function: F) -> F:
        made = functools.wraps(function)(lambda *args, **kwargs: function(*args, **known(function.__name__, kwargs)))
        return cast(F, made)

    return with_names


def publish() -> None:
    """Sets the constants that name the version of the process in the modules that are loaded and have them."""
    version = of_process()
    facts = {
        "__version__": version,
        "__version_info__": VERSIONS[version],
        "__array_api_version__": _ARRAY_API[version],
    }
    for module in ("ferrax", "ferrax.lib", "ferrax.numpy", "ferrax.version", "ferrax._src.compat.jaxlib"):
        namespace = vars(sys.modules[module]) if module in sys.modules else {}
        namespace.update((key, value) for key, value in facts.items() if key in namespace)


def __getattr__(name: str) -> Any:
    """The constants as modules import them: those of the process's version."""
    version = of_process()
    if name == "__version__":
        return version
    if name == "__version_info__":
        return VERSIONS[version]
    if name == "__array_api_version__":
        return _ARRAY_API[version]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
