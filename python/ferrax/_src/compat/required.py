"""Which version of JAX the installed libraries ask for.

In: what `importlib.metadata` finds. Out: the version to follow. Cost: a file of each installed distribution
is read and searched, not parsed: a few hundredths of a second for some hundred distributions.
"""

from __future__ import annotations

import importlib.metadata
import os
import re

from ferrax._src.base import jax_version

# A requirement that holds without an extra, and what it says: `Requires-Dist: jax[cpu]>=0.11.1,!=0.11.2`.
_REQUIRES = re.compile(r"^Requires-Dist:\s*jax(?:lib)?\b(?!-)([^;\n]*)(;[^\n]*)?$", re.MULTILINE)
_LEAST = re.compile(r"(?:>=|==|~=|>)\s*([0-9]+(?:\.[0-9]+)*)")


def least(text: str) -> tuple[int, ...]:
    """The least version of JAX that the metadata of a distribution asks for; () where any will do."""
    found: tuple[int, ...] = ()
    for said, condition in _REQUIRES.findall(text):
        if "extra" not in condition:
            found = max([found, *(tuple(map(int, number.split("."))) for number in _LEAST.findall(said))])
    return found


def version() -> str:
    """The first of the versions that has what every installed library asks for, or else the last."""
    needed: tuple[int, ...] = ()
    for distribution in importlib.metadata.distributions():
        text = distribution.read_text("METADATA")
        if text is not None and "Requires-Dist: jax" in text:
            needed = max(needed, least(text.partition("\n\n")[0]))
    return next((name for name, numbers in jax_version.VERSIONS.items() if numbers >= needed), jax_version.NEW)


def choose(asked: str | None) -> None:
    """Follows the version that is asked for; without one that which was set before, or libraries ask for.

    Errors: ValueError for what is no version that can be followed.
    """
    if asked is not None:
        jax_version.follow(asked)
    elif "FERRAX_JAX_VERSION" not in os.environ and jax_version.of_process() == jax_version.OLD:
        jax_version.follow(version())
