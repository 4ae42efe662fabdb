"""Functions that say how they are divided over devices. On one device they are not divided."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ferrax._src.core import api_util

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning"]

# In a rule, the axes that come before those that are named.
BATCHING = "…"


class CompoundFactor(tuple):
    """Factors of a rule that make one axis together, the first the major one.

    >>> from ferrax.experimental.custom_partitioning import CompoundFactor
    >>> CompoundFactor("i", "j")
    ('i', 'j')
    """

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2 or not all(isinstance(factor, str) for factor in factors):
            raise ValueError(f"CompoundFactor: at least two names are needed, got {factors}")
        return super().__new__(cls, factors)


class ArrayMapping(tuple):
    """The factors of the axes of an array, in a rule.

    >>> from ferrax.experimental.custom_partitioning import ArrayMapping
    >>> ArrayMapping("i", "j")
    ('i', 'j')
    """

    def __new__(cls, *factors: str | CompoundFactor) -> ArrayMapping:
        for factor in factors:
            if not isinstance(factor, (str, CompoundFactor)):
                raise ValueError(f"ArrayMapping: factors are names, got {factor!r}")
        return super().__new__(cls, factors)


class SdyShardingRule:
    """Which axes of operands and results go together.

    Args: operand_mappings, result_mappings: an `ArrayMapping` for each; factor_sizes: sizes of factors that
    are parts of an axis.

    >>> from ferrax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule
    >>> SdyShardingRule((ArrayMapping("i"),), (ArrayMapping("i"),)).result_mappings
    (('i',),)
    """

    def __init__(
        self, operand_mappings: Sequence[ArrayMapping], result_mappings: Sequence[ArrayMapping],
        **factor_sizes: int,
    ) -> None:
        self.operand_mappings = tuple(operand_mappings)
        self.result_mappings = tuple(result_mappings)
        self.factor_sizes = factor_sizes


class custom_partitioning:  # noqa: N801
    """A function with rules of its own for how it is divided over the devices of a mesh.

    Args:
        fun: the function; on one device, what is called.
        static_argnums: arguments that are passed as they are.

    Errors: AttributeError if it is called before `def_partition` gave the rules; TypeError for rules that
    are no functions.

    Example:
        >>> from ferrax.experimental.custom_partitioning import custom_partitioning
        >>> @custom_partitioning
        ... def f(x):
        ...     return 2 * x
        >>> _ = f.def_partition(
        ...     partition=lambda mesh, args, result: (mesh, f.fun, result.sharding, (args[0].sharding,)),
        ...     infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding)
        >>> f(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """

    def __init__(self, fun: Callable[..., Any], static_argnums: Any = ()) -> None:
        functools.update_wrapper(self, fun)
        api_util.check_callable(fun)
        self.fun = fun
        self.static_argnums = api_util.as_tuple_of_ints(static_argnums, "static_argnums")
        self.partition: Callable[..., Any] | None = None
        self.infer_sharding_from_operands: Callable[..., Any] | None = None
        self.propagate_user_sharding: Callable[..., Any] | None = None
        self.sharding_rule: Any = None

    def def_partition(
        self, partition: Callable[..., Any],
        infer_sharding_from_operands: Callable[..., Any] | None = None,
        propagate_user_sharding: Callable[..., Any] | None = None, decode_shardings: bool = True,
        sharding_rule: Any = None, *, reduction_factors: Any = (), need_replication_factors: Any = (),
        permutation_factors: Any = (), **factor_sizes: int,
    ) -> Callable[..., Any]:
        """Gives the rules: `partition(mesh, argument types, result types)` and those that say how results
        are divided. They are asked where there are several devices."""
        rules = (partition, infer_sharding_from_operands, propagate_user_sharding)
        for rule in rules:
            if rule is not None and not callable(rule):
                raise TypeError(f"custom_partitioning: rules are functions, got {rule!r}")
        self.partition, self.infer_sharding_from_operands, self.propagate_user_sharding = rules
        self.sharding_rule = sharding_rule
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.partition is None:
            raise AttributeError(
                f"custom_partitioning: {api_util.fun_name(self.fun)} has no rules: give them with def_partition"
            )
        return self.fun(*args, **kwargs)
