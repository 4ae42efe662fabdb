"""What `jit(inline=…)` means: whether calls in other traced functions are written out in jaxprs. And levels of
effort.

In: a bool or an `Inline`, and the function. Out: whether its equations take the place of a call when it is
called in another traced function. The compiler writes all calls out, whatever is said here.
"""

from __future__ import annotations

import enum
from typing import Any

from ferrax._src.base.jax_version import follows

__all__ = ["CompilerEffortLevel", "Inline", "is_early"]


class Inline(enum.Enum):
    """When a jitted function that is called in another is written out there.

    JAX_EARLY: at once, in the jaxpr. The others keep the call in the jaxpr, and the compiler, which writes
    all calls out, makes the same of each.

    Example:
        >>> double = ferrax.jit(lambda x: 2 * x, inline=ferrax.Inline.JAX_EARLY)
        >>> ferrax.make_jaxpr(lambda x: double(x))(1.0)
        { lambda ; a:f32[]. let b:f32[] = mul 2.0:f32[] a in (b,) }
    """

    JAX_EARLY = "jax_early"
    JAX_LATE = "jax_late"
    XLA_EARLY = "xla_early"
    XLA_LATE = "xla_late"
    AUTO = "auto"


class CompilerEffortLevel(enum.Enum):
    """How much JAX's compiler tries; ferrax's own has one level, as `config.jax_optimization_level` says.

    Example:
        >>> ferrax.CompilerEffortLevel.O2.value
        29
    """

    UNKNOWN = 0
    O0 = 9
    O1 = 19
    O2 = 29
    O3 = 39


def is_early(inline: Any, fun: Any) -> bool:
    """Whether calls of the function are written out in jaxprs. `True` says so up to JAX 0.10; since 0.12 it
    leaves that to the compiler, but for ferrax's own functions, which mean the former.

    Errors: ValueError for what is no option where JAX 0.12 is followed.
    """
    if isinstance(inline, Inline):
        return inline is Inline.JAX_EARLY
    if not follows(0, 12):
        return bool(inline)
    if not isinstance(inline, bool):
        raise ValueError(f"jit: inline must be a bool or a ferrax.Inline, got {inline!r}")
    return inline and str(getattr(fun, "__module__", "")).startswith("ferrax.")
