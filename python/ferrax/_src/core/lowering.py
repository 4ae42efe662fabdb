"""Lowerings of primitives that are defined in Python: functions of existing operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src.core.primitives import lowerings

__all__ = ["lower_fun", "register_lowering"]


class LoweringContext:
    """What a rule that writes MLIR is called with: of a context of JAX's, that which does not speak of MLIR.

    `primitive`; `avals_in` and `avals_out`, the types of operands and results.
    """

    def __init__(self, primitive, avals_in, avals_out):
        self.primitive = primitive
        self.avals_in = list(avals_in)
        self.avals_out = list(avals_out)

    def __getattr__(self, name):
        raise AttributeError(f"a context of lowering has no {name!r}: there is no MLIR here")


class LoweredFunction:
    """A lowering given as a function of existing operations."""

    def __init__(self, function, multiple_results, writes_mlir=False, takes_context=False):
        functools.update_wrapper(self, function)
        self.function = function
        self.multiple_results = multiple_results
        # A rule for MLIR. It may be one all the same that gets by without, by `ffi_lowering` and `lower_fun`.
        self.writes_mlir = writes_mlir
        # Whether a context is the first that it takes.
        self.takes_context = takes_context

    def __call__(self, *args, **params):
        if self.takes_context or not (args and isinstance(args[0], LoweringContext)):
            return self.function(*args, **params)
        # Called by a rule that has a context, it gives a list.
        outs = self.function(*args[1:], **params)
        return list(outs) if self.multiple_results else [outs]

    def outputs(self, primitive, avals_in, avals_out, args, params):
        """The outputs of the primitive, as a list."""
        context = [LoweringContext(primitive, avals_in, avals_out)] if self.takes_context else []
        outs = self(*context, *args, **params)
        return list(outs) if self.multiple_results else [outs]


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

    A rule that takes a context and writes MLIR, which this compiler does not have, is not called where there is a
    function that `def_impl` was given: compiled programs call that, as `pure_callback` does. Without one the rule is
    called, with a context that has `avals_in` and `avals_out`: it may call what `jax.ffi.ffi_lowering` and `lower_fun`
    give.

    Errors: NotImplementedError where the primitive is compiled and the rule asks for MLIR, and for a platform that
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
        else LoweredFunction(_without_mlir(prim, rule), True, writes_mlir=True, takes_context=True)
    )
    return rule


_PLATFORMS = "cpu", "cuda", "gpu", "rocm", "tpu", "oneapi", "mps", "METAL"


def _without_mlir(prim, rule):
    def lower(context, *args, **params):
        cause: Exception | None = None
        try:
            outs = rule(context, *args, **params)
            if isinstance(outs, (list, tuple)):
                return outs
        except (AttributeError, ImportError) as error:  # of what is absent
            cause = error
        raise NotImplementedError(
            f"Lowering rule for '{prim}': {getattr(rule, '__name__', rule)} writes MLIR, which "
            "this compiler does not have. Give the lowering as a function of existing operations: "
            f"mlir.register_lowering({prim}_p, mlir.lower_fun(function, multiple_results=...)); or what it "
            f"computes: {prim}_p.def_impl(function)"
        ) from cause

    return lower
