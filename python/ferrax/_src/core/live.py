"""`live_arrays`: the arrays there are.

No list of arrays is kept, which would cost each of them: Python's collector knows its objects. An array
that only a program holds, as a constant, is no object.
"""

from __future__ import annotations

import gc

from ferrax._src import core
from ferrax._src.core.devices import devices


def live_arrays(platform: str | None = None) -> list[core.Array]:
    """All arrays that are referred to and not deleted, in no particular order.

    Takes time in proportion to the number of all objects that Python's collector knows: to look for what
    keeps memory, not for each step.

    Args: platform: of the devices that they are on, such as "cpu"; None: any.

    Errors: RuntimeError for platforms that do not exist.

    >>> before = len(ferrax.live_arrays())
    >>> x = jnp.ones(3)
    >>> len(ferrax.live_arrays()) - before
    1
    """
    if platform is not None:
        devices(platform)
    found = [x for x in gc.get_objects() if type(x) is core.ArrayImpl and not x.is_deleted()]
    return [x for x in found if platform in (None, x.platform())]


# How many arrays messages on memory name.
_NAMED = 5


def largest() -> str:
    """The largest arrays on devices other than the host, as an end of a message; empty if there are none."""
    arrays = [x for x in live_arrays() if next(iter(x.devices())).platform != "cpu"]
    arrays.sort(key=lambda x: x.nbytes, reverse=True)
    if not arrays:
        return ""
    named = [
        f"{x.dtype}{list(x.shape)} of {x.nbytes} bytes on {next(iter(x.devices()))}" for x in arrays[:_NAMED]
    ]
    return f"\nThe largest arrays that are alive: {', '.join(named)}"
