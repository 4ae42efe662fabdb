"""What functions were traced to, for later calls: bodies of loops and branches, checkpointed calls,
what `make_jaxpr` and `eval_shape` ask for.

As with `jit`, a function is traced once for arguments of the same structure and types under the same
settings, so that a loop in a Python loop costs no more than its run. A result is forgotten with its
function, and when the newest `KEPT` results are others. What is kept must be good for any later call:
callers keep nothing that touches mutable arrays or captures values that are being traced. Functions
that Python cannot hash or refer to weakly, bound methods that nobody holds among them, are traced each
time; so are functions of this package, whose programs would name the lines of their first caller.
While `jax_check_tracer_leaks` is set nothing is found, for a trace has to end to be looked at.

A look-up costs about a microsecond.
"""

from __future__ import annotations

import weakref

from ferrax import _core
from ferrax._src.base import config, source_info

KEPT = 4096

# Two generations: results that are asked for move to the young one; when that has `KEPT` results it
# becomes the old one, and what was in the old one is forgotten.
_young: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_old: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_count = 0


def find(fun, key):
    """`(result, full key)`; the result is None where none is known. To be kept under the full key,
    which is None for functions of which nothing is kept."""
    if str(getattr(fun, "__module__", None)).startswith("ferrax.") or config.check_tracer_leaks.value:
        return None, None
    key = (key, _core.compilation_context(), source_info.exclusions)
    try:
        result = _young.get(fun, {}).get(key)
        if result is None and (result := _old.get(fun, {}).get(key)) is not None:
            keep(fun, key, result)
    except TypeError:
        return None, None
    return result, key


def keep(fun, key, result) -> None:
    """Keeps a result for what `find` gave this key for."""
    global _young, _old, _count
    if _count >= KEPT:
        _old, _young, _count = _young, weakref.WeakKeyDictionary(), 0
    _young.setdefault(fun, {})[key] = result
    _count += 1


def forget() -> None:
    """Forgets all results."""
    global _young, _old, _count
    _young, _old, _count = weakref.WeakKeyDictionary(), weakref.WeakKeyDictionary(), 0


def lasting(captured, touched) -> bool:
    """Whether a program that captured these and did that to mutable arrays is good for later calls."""
    return touched is None and not any(isinstance(array, _core.Tracer) for array in captured)
