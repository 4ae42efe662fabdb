"""Functions that say how they are divided over devices. On one device they are not divided."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src.core import api_util
from ferrax._src.parallel.sharding_rule import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    rule_of_text,
)

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning"]

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
        self.decode_shardings = True
        self.sharding_rule: Any = None

    def def_partition(
        self, partition: Callable[..., Any],
        infer_sharding_from_operands: Callable[..., Any] | None = None,
        propagate_user_sharding: Callable[..., Any] | None = None, decode_shardings: bool = True,
        sharding_rule: Any = None, *, reduction_factors: tuple[str, ...] = (),
        need_replication_factors: tuple[str, ...] = (), permutation_factors: tuple[str, ...] = (),
        **factor_sizes: int,
    ) -> Callable[..., Any]:
        """Gives the rules, which are asked where there are several devices. Returns `partition`.

        Args:
            partition: `partition(mesh, argument types, result types)`.
            infer_sharding_from_operands, propagate_user_sharding: how results are divided, as functions.
            decode_shardings: whether these are given shardings.
            sharding_rule: how results are divided, as text (`"i j -> j i"`), an `SdyShardingRule`, or a
                function that returns one.
            reduction_factors, need_replication_factors, permutation_factors, factor_sizes: with text, what
                it says of these factors.

        Errors: TypeError for rules that are no functions; ValueError for text that is no rule, and for
        factors without text.
        """
        rules = (partition, infer_sharding_from_operands, propagate_user_sharding)
        for rule in rules:
            if rule is not None and not callable(rule):
                raise TypeError(f"custom_partitioning: rules are functions, got {rule!r}")
        said: dict[str, Any] = {
            "reduction_factors": reduction_factors, "need_replication_factors": need_replication_factors,
            "permutation_factors": permutation_factors, **factor_sizes,
        }  # fmt: skip
        if sharding_rule is None or isinstance(sharding_rule, SdyShardingRule) or callable(sharding_rule):
            if unknown := [name for name, value in said.items() if value != ()]:
                raise ValueError(
                    f"custom_partitioning: {', '.join(unknown)} are for a sharding_rule that is text"
                )
        else:
            sharding_rule = rule_of_text(sharding_rule, **said)
        self.partition, self.infer_sharding_from_operands, self.propagate_user_sharding = rules
        self.decode_shardings = decode_shardings
        self.sharding_rule = sharding_rule
        return partition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.partition is None:
            raise AttributeError(
                f"custom_partitioning: {api_util.fun_name(self.fun)} has no rules: give them with def_partition"
            )
        return self.fun(*args, **kwargs)
