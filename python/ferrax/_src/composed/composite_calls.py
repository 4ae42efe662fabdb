"""``lax.composite``, a function as one equation, and ``lax.platform_dependent``, a choice of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from ferrax._src import core
from ferrax._src.base.errors import UnexpectedTracerError
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core.jaxpr import jaxpr_as_fun
from ferrax._src.core.primitives import primitive_jvps, primitive_transposes
from ferrax._src.tracing import staging
from ferrax._src.transforms import composites
from ferrax._src.tree import tree_util

_T = TypeVar("_T")

composite_p = composites.composite(
    "composite",
    lambda *args, jaxpr, name, attributes, version: jaxpr_as_fun(jaxpr)(*args),
    multiple_results=True,
)


def _without_rule(what: str) -> Callable[..., NoReturn]:
    def rule(*args: Any, **params: Any) -> NoReturn:
        raise ValueError(
            f"a composite has no {what}: what may replace it has no derivative. Call it in a function with"
            " ferrax.custom_jvp or ferrax.custom_vjp, which gives one."
        )

    return rule


primitive_jvps[composite_p] = _without_rule("JVP rule")
primitive_transposes[composite_p] = _without_rule("Transpose rule")


class _HashableArray:
    """An array among the attributes of a composite: equal to arrays of equal dtype and elements."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def _key(self) -> tuple[Any, ...]:
        return self.value.dtype, self.value.shape, self.value.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _HashableArray) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return repr(self.value)


def _refuse_tracers(values, message):
    if any(isinstance(value, core.Tracer) for value in values):
        raise UnexpectedTracerError(message)


def _hashable(attribute):
    """The leaves and the tree of an attribute, as an equation keeps them."""
    leaves, tree = tree_util.tree_flatten(attribute)
    return tuple(_HashableArray(x) if isinstance(x, np.ndarray) else x for x in leaves), tree


def composite(
    decomposition: Callable[..., Any], name: str, version: int = 0
) -> Callable[..., Any]:
    """A function that is one equation of jaxprs, with a name, for tools that know it by that.

    Here it is compiled as what it is made of.

    Args:
      decomposition: the function. Its positional arguments are trees of arrays, its keyword arguments
        static attributes: numbers, strings, NumPy arrays.
      name: the name, usually of the form "namespace.function".
      version: a number that goes with the name.

    Returns a function with the arguments of `decomposition`, which has no derivative (ValueError).

    Errors: UnexpectedTracerError for a traced attribute, and where the function uses a traced value
    that is not among its arguments.

    >>> scaled = lax.composite(lambda x, *, by: x * by, "my.scaled")
    >>> scaled(jnp.ones(2), by=3.0)
    Array([3., 3.], dtype=float32)
    """

    @api_boundary
    @functools.wraps(decomposition)
    def call(*args: Any, **kwargs: Any) -> Any:
        _refuse_tracers(
            kwargs.values(),
            f"composite '{name}': an attribute (keyword argument) is a traced value. What is not known while"
            " tracing has to be passed by position.",
        )
        flat, tree = tree_util.tree_flatten(args)
        arrays = [core.as_array(x, name) for x in flat]
        of_attributes = functools.partial(decomposition, **kwargs)
        closed, shapes = staging.make_jaxpr(of_attributes, return_shape=True)(
            *tree.unflatten(arrays)
        )
        _refuse_tracers(
            closed.consts,
            f"composite '{name}': its function uses a traced value from outside. Pass it to the function instead.",
        )
        attributes = tuple((key, *_hashable(value)) for key, value in kwargs.items())
        results = composite_p.bind(
            *arrays, name=name, attributes=attributes, version=version, jaxpr=closed
        )
        return tree_util.tree_structure(shapes).unflatten(results)

    return call


def platform_dependent(
    *args: Any, default: Callable[..., _T] | None = None, **per_platform: Callable[..., _T]
) -> _T:
    """Calls one of several functions, by the platform: that for "cpu" here.

    Args:
      args: trees of arrays, the arguments of the function.
      default: the function where there is none for the platform.
      per_platform: a function for each of some platforms ("cpu", "cuda", "rocm", "tpu").

    Errors: TypeError for what is no function; ValueError for "gpu", which is two platforms;
    NotImplementedError without a function for "cpu" and without default.

    >>> lax.platform_dependent(1.0, cpu=lambda x: x + 1, default=lambda x: x)
    2.0
    """
    for platform, branch in per_platform.items():
        if not callable(branch):
            raise TypeError(
                f"lax.platform_dependent: the '{platform}' branch must be a callable, got {branch!r}"
            )
        if platform == "gpu":
            raise ValueError("lax.platform_dependent: got the platform 'gpu'; name 'cuda', 'rocm' or both")
    if default is not None and not callable(default):
        raise TypeError(
            f"lax.platform_dependent: default is called where no platform fits, got {default!r}"
        )
    chosen = per_platform.get("cpu", default)
    if chosen is None:
        raise NotImplementedError(
            "lax.platform_dependent: there is no branch for the platform cpu, only for"
            f" {', '.join(per_platform) or 'none'}; pass cpu= or default="
        )
    return chosen(*args)
