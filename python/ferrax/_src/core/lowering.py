"""Lowerings of primitives that are defined in Python: functions of existing operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src.core.primitives import lowerings

__all__ = ["lower_fun", "register_lowering"]


class LoweredFunction:
    """A lowering given as a function of existing operations."""

    def __init__(self, function, multiple_results, writes_mlir=False):
        functools.update_wrapper(self, function)
        self.function = function
        self.multiple_results = multiple_results
        # Stands for a lowering that is no such function, and is not called.
        self.writes_mlir = writes_mlir

    def __call__(self, *args, **params):
        return self.function(*args, **params)


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> LoweredFunction:
    """A lowering that is what `fun(*args, **params)` does.

    `multiple_results` says whether `fun` returns a sequence of outputs or one.

    Example:
        >>> from ferrax.interpreters import mlir
        >>> double_p = ferrax.core.Primitive("double")
        >>> _ = double_p.def_abstract_eval(lambda x: ferrax.core.ShapedArray(x.shape, x.dtype))
        >>> lowering = mlir.lower_fun(lambda x: 2 * x, multiple_results=False)
        >>> _ = mlir.register_lowering(double_p, lowering)
        >>> ferrax.jit(double_p.bind)(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    return LoweredFunction(fun, multiple_results)


def register_lowering(
    prim: Any, rule: Any = None, platform: str | None = None, inline: bool = True,
    cacheable: bool = True, **kwargs: Any,
) -> Any:
    """Gives the lowering of a primitive: what `lower_fun` returns. Returns the rule; without
    `rule` it is a decorator.

    A lowering that writes MLIR, which this compiler does not have, is not called: compiled programs
    call the function that `def_impl` was given, as `pure_callback` does.

    Errors: NotImplementedError where the primitive is compiled if there is none, and for a platform that
    JAX does not know.

    Args: prim: the primitive; rule: the lowering; platform: None for all, or that which it is for; inline,
    cacheable, kwargs: what there is to say of XLA's code.

    >>> from ferrax.interpreters import mlir
    >>> thrice_p = ferrax.core.Primitive("thrice")
    >>> _ = thrice_p.def_abstract_eval(lambda x: x)
    >>> _ = mlir.register_lowering(thrice_p, mlir.lower_fun(lambda x: 3 * x, multiple_results=False))
    >>> ferrax.jit(thrice_p.bind)(2.0)
    Array(6., dtype=float32, weak_type=True)
    """
    if platform is not None and platform not in _PLATFORMS:
        raise NotImplementedError(
            f"register_lowering: the lowering of '{prim}' is for {platform!r}, which is no platform; they are "
            f"{', '.join(_PLATFORMS)}"
        )
    if rule is None:
        return lambda rule: register_lowering(prim, rule, platform, inline, cacheable, **kwargs)
    if platform not in (None, "cpu"):
        return rule
    lowerings[prim] = (
        rule
        if isinstance(rule, LoweredFunction)
        else LoweredFunction(_no_mlir(prim, rule), True, writes_mlir=True)
    )
    return rule


_PLATFORMS = "cpu", "cuda", "gpu", "rocm", "tpu", "oneapi", "mps", "METAL"


def _no_mlir(prim, rule):
    def lower(*args, **params):
        raise NotImplementedError(
            f"Lowering rule for '{prim}': {getattr(rule, '__name__', rule)} writes MLIR, which "
            "this compiler does not have. Give the lowering as a function of existing operations: "
            f"mlir.register_lowering({prim}_p, mlir.lower_fun(function, multiple_results=...)); or what it "
            f"computes: {prim}_p.def_impl(function)"
        )

    return lower
