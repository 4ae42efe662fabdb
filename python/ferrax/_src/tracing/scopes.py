"""Names of scopes: `named_scope` and `named_call`, which jaxprs and profiles show."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax import _core
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core import api_util


class named_scope:
    """Names the equations made inside; a context manager and a decorator.

    Names of scopes within scopes are joined by `/` in `eqn.source_info.name_stack`. Those in a
    jitted function are relative to it.

    Errors: TypeError if the name is no string.

    Example:
        >>> def layer(x):
        ...     with ferrax.named_scope("layer"):
        ...         return x * 2
        >>> str(ferrax.make_jaxpr(layer)(1.0).eqns[0].source_info.name_stack)
        'layer'
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"named_scope: the name is a string, got {name!r}")
        self.name = name
        self._before: list[str] = []

    def __enter__(self) -> None:
        before = _core.source_scope()
        self._before.append(before)
        _core.set_source_scope(f"{before}/{self.name}" if before else self.name)

    def __exit__(self, *exc: object) -> None:
        _core.set_source_scope(self._before.pop())

    def __call__(self, fun: Any) -> Callable[..., Any]:
        name = self.name

        def within(given: tuple, named: dict[str, Any]) -> Any:
            with named_scope(name):
                return fun(*given, **named)

        return api_boundary(functools.wraps(fun)(lambda *given, **named: within(given, named)))


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """`fun`, whose equations carry a name: `name`, or its own.

    Errors: TypeError if `fun` is not callable or the name is no string.

    Example:
        >>> ferrax.named_call(lambda x: x + 1, name="increment")(1)
        2
    """
    api_util.check_callable(fun)
    return named_scope(api_util.fun_name(fun) if name is None else name)(fun)
