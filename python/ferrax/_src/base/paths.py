"""Which ways of computing this process has taken (`ferrax-ir/src/paths.rs`)."""

from ferrax import _core


def stats() -> dict[str, int]:
    """How often each way of computing was taken in this process, by its name.

    A way is an optimisation, a kernel, or how threads share one. Most count where a program is optimised or made ready
    for its sizes, so once for all its calls; those that a run decides (`"threads"`) count once a call. The names are
    all that there are, those never taken too, and may change from version to version.

    Returns:
        A count for each name.

    >>> from ferrax import lib
    >>> before = lib.stats()["sort: places"]
    >>> _ = jnp.argsort(jnp.array([3, 1, 2]))
    >>> lib.stats()["sort: places"] >= before
    True
    """
    return dict(_core.paths_taken())
