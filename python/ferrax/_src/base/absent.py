"""Names of JAX's that mean nothing here: what asking for them says."""

from __future__ import annotations


def absent(module: str, names: dict[str, str]):
    """A module's `__getattr__`, which says of each of these names why it is absent and what to use.

    Errors: AttributeError always.
    """

    def __getattr__(name):
        reason = names.get(name)
        text = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(text if reason is None else f"{text}: {reason}")

    return __getattr__


def group(names: str, reason: str) -> dict[str, str]:
    """The same reason for each of these names."""
    return dict.fromkeys(names.split(), reason)
