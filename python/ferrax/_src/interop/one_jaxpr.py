"""The one class of jaxprs that JAX 0.12 has, where 0.10 has one for jaxprs and one for those with values.

In: what either class is made of. Out: objects of the two classes of `core.jaxpr`, which are instances of this
one. It takes the place of both names in the `jax` that `ferrax.compat` gives where JAX 0.12 is followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ferrax._src.base.effects import no_effects
from ferrax._src.core import jaxpr as jaxprs


class _Either(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, jaxprs.Jaxpr | jaxprs.ClosedJaxpr)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, jaxprs.Jaxpr | jaxprs.ClosedJaxpr)


class Jaxpr(metaclass=_Either):
    """A jaxpr, with values for its first inputs or without.

    `constvars` are inputs with values, `invars` the others; `all_invars` are all of them, and `consts` the values.

    Args: constvars, invars, outvars, eqns: variables, atoms and equations; effects, debug_info, is_high: as of the
    equations; consts: values of the first inputs. Or a jaxpr, and values of its first inputs.
    Errors: ValueError for more values than there are inputs.
    """

    def __new__(
        cls, constvars: Any, invars: Any = None, outvars: Any = None, eqns: Any = None, effects: Any = no_effects,
        debug_info: Any = None, is_high: bool = False, consts: Sequence[Any] | None = None,
    ) -> Any:
        if isinstance(constvars, jaxprs.Jaxpr | jaxprs.ClosedJaxpr):
            return convert_constvars_jaxpr(constvars)._with_consts(() if invars is None else invars)
        made = jaxprs.Jaxpr([], [*constvars, *invars], outvars, eqns, effects, debug_info, is_high)
        return jaxprs.ClosedJaxpr(made)._with_consts(() if consts is None else consts)


def close_jaxpr(jaxpr: Any) -> Any:
    """The jaxpr itself: in JAX 0.12 there is no other kind.

    Args: jaxpr: a jaxpr, without constvars that have no value.

    >>> jaxpr = ferrax.make_jaxpr(jnp.sin)(1.0)
    >>> ferrax.interpreters.partial_eval.close_jaxpr(jaxpr) is jaxpr
    True
    """
    return jaxpr


def convert_constvars_jaxpr(jaxpr: Any) -> Any:
    """The jaxpr whose constvars are its first invars.

    Args: jaxpr: a jaxpr.

    >>> x = jnp.arange(3.0)
    >>> jaxpr = ferrax.make_jaxpr(lambda y: x + y)(1.0)
    >>> len(ferrax.interpreters.partial_eval.convert_constvars_jaxpr(jaxpr).invars)
    2
    """
    return jaxprs.ClosedJaxpr(getattr(jaxpr, "open", jaxpr)._without_consts())
