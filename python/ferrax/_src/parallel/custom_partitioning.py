"""Functions that say how they are divided over devices. Their equations are `partitioned_calls`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import errors
from ferrax._src.core import api_util
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.parallel.partitioned_calls import custom_partitioning_p
from ferrax._src.parallel.sharding_rule import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    rule_of_text,
)
from ferrax._src.tracing import staging
from ferrax._src.transforms.custom_rules import resolve_arguments
from ferrax._src.tree import tree_util

__all__ = ["BATCHING", "ArrayMapping", "CompoundFactor", "SdyShardingRule", "custom_partitioning"]

class custom_partitioning:  # noqa: N801
    """A function with rules of its own for how it is divided over the devices of a mesh.

    Args:
        fun: the function. It is what runs on one device, outside of `jit`, and where it is differentiated, batched or
            called in a function of a mesh.
        static_argnums: arguments that are passed as they are, and to the rules first.

    In compiled programs over several devices each device runs the function of its parts that the rule
    `partition` returns.

    Errors: AttributeError if it is called before `def_partition` gave the rules; NotImplementedError for functions as
    rules of how results are divided without a `sharding_rule`; TypeError for rules that are no functions and for
    keywords that are no positions; ValueError for a function that closes over values that are traced, and in programs
    over several devices for what does not fit: rules, shapes, and what `partition` returns.

    Example:
        >>> from ferrax.experimental.custom_partitioning import custom_partitioning
        >>> @custom_partitioning
        ... def f(x):
        ...     return 2 * x
        >>> _ = f.def_partition(
        ...     partition=lambda mesh, args, result: (mesh, f.fun, result.sharding, (args[0].sharding,)),
        ...     sharding_rule="i -> i")
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
            partition: `partition(*static, mesh, argument types, result types)`, where types are trees of
                `ShapeDtypeStruct`s with the shardings that were found. It returns the mesh, a function of the parts of
                the arguments, which knows the axes of the mesh by name, and trees of the results' and arguments'
                shardings, as which these are cut and put together.
            infer_sharding_from_operands, propagate_user_sharding: how results are divided, as functions: as in
                JAX these need a `sharding_rule` beside them, and it is what counts.
            decode_shardings: whether rules are given `NamedSharding`s, as they always are.
            sharding_rule: how results are divided, as text (`"i j -> j i"`), an `SdyShardingRule`, or a
                function that returns one, or text, or text and a dict of what it says of factors:
                `sharding_rule(*static, mesh, argument types, result types)`. Without one, results are undivided.
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
        if self.sharding_rule is None and (self.propagate_user_sharding or self.infer_sharding_from_operands):
            raise NotImplementedError(
                f"custom_partitioning: {api_util.fun_name(self.fun)} says by functions how results are divided: "
                "provide sharding_rule to migrate to Shardy, JAX's way to say it, such as sharding_rule='i j -> i j'"
            )
        args = resolve_arguments(self.fun, "custom_partitioning", args, kwargs)
        static, others = api_util.split_arguments(args, [number % len(args) for number in self.static_argnums])
        if any(isinstance(leaf, core.Tracer) for leaf in tree_util.tree_leaves(static)):
            raise errors.UnexpectedTracerError(
                f"custom_partitioning: static arguments of {api_util.fun_name(self.fun)} must be no traced values"
            )

        def of_arrays(*others):
            return self.fun(*api_util.join_arguments(self.static_argnums, static, others))

        leaves, in_tree = tree_util.tree_flatten(others)
        program, captured, flat = staging.stage(of_arrays, others, {})
        if any(isinstance(x, core.Tracer) for x in captured):
            raise ValueError(
                f"custom_partitioning: {api_util.fun_name(self.fun)} closes over a value that is being traced: "
                "pass it as an argument"
            )
        results = custom_partitioning_p.bind(
            *leaves, call=ClosedJaxpr(program, captured), partition=self.partition,
            propagate_user_sharding=self.propagate_user_sharding,
            infer_sharding_from_operands=self.infer_sharding_from_operands, decode_shardings=self.decode_shardings,
            sharding_rule=self.sharding_rule, in_tree=in_tree, out_tree=flat.out_tree, static_args=static,
        )  # fmt: skip
        return flat.out_tree.unflatten(results)
