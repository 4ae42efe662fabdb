"""Where parts of a program run: on the device or on its host. For the CPU both are one machine, so that
what is said is checked and changes nothing but where results count as being."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ferrax._src.base.jax_version import follows
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import api_util
from ferrax._src.core.devices import Space
from ferrax._src.core.placement import device_put
from ferrax._src.transforms import stages
from ferrax._src.tree import tree_util

__all__ = ["compute_on", "compute_on2"]

_TYPES = ("device_host", "device", "tpu_sparsecore")


def _check(function, compute_type) -> None:
    if not isinstance(compute_type, str):
        raise TypeError(f"{function}: compute_type must be a string, got {compute_type!r}")
    if compute_type not in _TYPES and not compute_type.startswith("gpu_stream:"):
        raise ValueError(
            f"{function}: compute_type must be {', '.join(_TYPES)} or gpu_stream:#, got {compute_type!r}"
        )


def compute_on(*args: Any, **kwargs: Any) -> Any:
    """A context, or a decorator, that says what operations run on; here all run on the CPU.

    Args: args, kwargs: `compute_type`, which is "device_host", "device", "tpu_sparsecore" or "gpu_stream:#"; where
    JAX 0.12 is followed the arguments of `compute_on2`, which it does the same as.

    Errors: TypeError if it is no string, and for other arguments; ValueError for other strings.

    >>> from ferrax.experimental.compute_on import compute_on
    >>> with compute_on("device_host"):
    ...     jnp.ones(2) * 2
    Array([2., 2.], dtype=float32)
    """
    return compute_on2(*args, **kwargs) if follows(0, 12) else _context(*args, **kwargs)


@contextlib.contextmanager
def _context(compute_type: str) -> Iterator[None]:
    _check("compute_on", compute_type)
    yield


def compute_on2(
    f: Callable[..., Any] | None = None, *, compute_type: str, out_memory_spaces: Any,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """A function that says what it runs on, here always the CPU, and where its results are.

    Args:
        f: the function; without it, a decorator is returned.
        compute_type: as for `compute_on`.
        out_memory_spaces: a `ferrax.memory.Space`, or a tree of these above the results.
        compiler_options: must be empty: there are none.

    Errors: as `compute_on`; RuntimeError for options; ValueError for trees that do not fit.

    >>> from ferrax.experimental.compute_on import compute_on2
    >>> on_host = compute_on2(
    ...     jnp.sin, compute_type="device_host", out_memory_spaces=ferrax.memory.Space.Host)
    >>> on_host(jnp.zeros(2)).sharding.memory_kind
    'pinned_host'
    """
    _check("compute_on2", compute_type)
    stages.check_compiler_options(compiler_options)
    if f is None:
        return lambda f: compute_on2(
            f, compute_type=compute_type, out_memory_spaces=out_memory_spaces
        )
    api_util.check_callable(f)

    @api_boundary
    @functools.wraps(f)
    def within(*args, **kwargs):
        out, tree = tree_util.tree_flatten(f(*args, **kwargs))
        dummy = tree_util.with_placeholders(tree)
        spaces = tree_util.broadcast_prefix(
            out_memory_spaces, dummy, is_leaf=lambda x: isinstance(x, Space)
        )
        return tree.unflatten([device_put(x, space) for x, space in zip(out, spaces)])

    return within
