"""The base of classes that write arrays to files and read them, as `jax.experimental.array_serialization` has it."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["GlobalAsyncCheckpointManagerBase"]


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """What writes arrays to files while the program goes on: an abstract class, all of whose methods a class derived
    from it defines.

    Errors: TypeError for one that lacks any.

    >>> from ferrax.experimental.array_serialization import serialization
    >>> class Nowhere(serialization.GlobalAsyncCheckpointManagerBase):
    ...     def serialize(self, arrays, tensorstore_specs, *, on_commit_callback):
    ...         on_commit_callback()
    ...     def deserialize(self, shardings, tensorstore_specs, global_shapes=None, dtypes=None):
    ...         return []
    ...     def check_for_errors(self):
    ...         pass
    ...     def wait_until_finished(self):
    ...         pass
    >>> Nowhere().serialize([jnp.ones(2)], [{}], on_commit_callback=lambda: print("written"))
    written
    """

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raises what writing raised until now."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Returns when all is written. Errors: what writing raised."""

    @abc.abstractmethod
    def serialize(
        self, arrays: Any, tensorstore_specs: Any, *, on_commit_callback: Callable[[], None]
    ) -> None:
        """Begins to write arrays to where the specs say; the callback is called when they are there."""

    @abc.abstractmethod
    def deserialize(
        self, shardings: Sequence[Any], tensorstore_specs: Sequence[dict[str, Any]], global_shapes: Any = None,
        dtypes: Any = None,
    ) -> Any:
        """The arrays at these places, over devices as the shardings say."""
