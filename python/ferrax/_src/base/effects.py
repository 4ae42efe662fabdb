"""What equations do besides computing: the classes of effects, and sets of these classes."""

from __future__ import annotations

import dataclasses


class Effect:
    """Base of effects. An equation's effects are a set of instances.

    >>> [str(effect) for effect in ferrax.make_jaxpr(lambda: ferrax.debug.print("hi"))().effects]
    ['Debug']
    """


class EffectTypeSet:
    """Classes of effects that something holds for, their subclasses included.

    >>> class Heat(ferrax.extend.core.Effect):
    ...     pass
    >>> ferrax.experimental.hijax.control_flow_allowed_effects.add_type(Heat)
    >>> ferrax.experimental.hijax.control_flow_allowed_effects.contains(Heat())
    True
    """

    def __init__(self):
        self._types: set[type] = set()

    def add_type(self, effect_type: type) -> None:
        """From now on it holds for effects of this class."""
        self._types.add(effect_type)

    def contains(self, effect) -> bool:
        """Whether it holds for the effect."""
        return isinstance(effect, tuple(self._types))

    def filter_in(self, effects) -> list:
        """Those effects for which it holds."""
        return [effect for effect in effects if self.contains(effect)]

    def filter_not_in(self, effects) -> list:
        """Those effects for which it does not hold."""
        return [effect for effect in effects if not self.contains(effect)]


no_effects: frozenset = frozenset()

# Effects of these classes happen in the order of the program; all others once each, in any order.
ordered_effects = EffectTypeSet()
shardable_ordered_effects = EffectTypeSet()
# All effects can be compiled, branches and loops can hold them, and derivatives keep them: these
# sets are here for programs that add to them.
lowerable_effects = EffectTypeSet()
control_flow_allowed_effects = EffectTypeSet()
custom_derivatives_allowed_effects = EffectTypeSet()
remat_allowed_effects = EffectTypeSet()
partial_eval_kept_effects = EffectTypeSet()


class DebugEffect(Effect):
    """Something is shown to the user.

    >>> str(ferrax.debug.DebugEffect())
    'Debug'
    """

    def __str__(self) -> str:
        return "Debug"


class OrderedDebugEffect(Effect):
    """Something is shown to the user, in order.

    >>> str(ferrax.debug.OrderedDebugEffect())
    'OrderedDebug'
    """

    def __str__(self) -> str:
        return "OrderedDebug"


class IOEffect(Effect):
    """Python code with side effects runs."""

    def __str__(self):
        return "IO"


class OrderedIOEffect(Effect):
    """Python code with side effects runs, in order."""

    def __str__(self):
        return "OrderedIO"


@dataclasses.dataclass(frozen=True)
class NamedAxisEffect(Effect):
    """The result depends on the mapped axis of this name. Nothing happens."""

    name: object


@dataclasses.dataclass(frozen=True)
class WriteEffect(Effect):
    """The mutable array that a jaxpr's variable `input_index` stands for gets a value: one of the
    jaxpr's outputs behind those of its function."""

    input_index: object


debug_effect = DebugEffect()
ordered_debug_effect = OrderedDebugEffect()
io_effect = IOEffect()
ordered_io_effect = OrderedIOEffect()
for _ordered in (OrderedDebugEffect, OrderedIOEffect):
    ordered_effects.add_type(_ordered)
for _class in (DebugEffect, OrderedDebugEffect, IOEffect, OrderedIOEffect):
    lowerable_effects.add_type(_class)
    control_flow_allowed_effects.add_type(_class)
for _class in (DebugEffect, OrderedDebugEffect):
    for _kept in (
        custom_derivatives_allowed_effects,
        remat_allowed_effects,
        partial_eval_kept_effects,
    ):
        _kept.add_type(_class)


def effects_barrier() -> None:
    """Waits until the effects of all programs that were called have happened.

    Programs on this backend have run when their call returns, so there is nothing to wait for.

    Example:
        >>> ferrax.jit(lambda x: ferrax.debug.print("x is {}", x))(1.0)
        x is 1.0
        >>> ferrax.effects_barrier()
    """
