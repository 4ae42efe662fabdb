"""`estimate_cost`: what a function costs, counted in its program.

In: a function and the types of its arguments. Out: operations of elements and bytes, before fusion: sums, products,
roundings and the like of elements are one operation each, a product of a contraction is two, functions such as `exp`
count apart. What moves, compares, chooses or reduces elements costs nothing, as in JAX's estimates.

Cost: linear in the equations of the program, those of its inner programs once for each place that has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ferrax._src.base import dtypes
from ferrax._src.core.jaxpr import ClosedJaxpr, Jaxpr, jaxprs_in_params
from ferrax._src.pallas.specs import CostEstimate
from ferrax._src.tracing import staging

_ARITHMETIC = frozenset("add and ceil div floor max min mul neg not or round sub xor".split())
_TRANSCENDENTAL = frozenset(
    """
    acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1
    igamma igammac lgamma log log1p logistic polygamma pow regularized_incomplete_beta rsqrt sin sinh sqrt tan tanh zeta
    """.split()
)


def estimate_cost(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> CostEstimate:
    """The operations of a function for arguments of these types, without running it.

    Args: fun: the function; args, kwargs: arrays, or what has a shape and a dtype.

    Returns: a `CostEstimate`: operations of elements (a product of a contraction is two), transcendental functions,
    and the bytes of inputs and outputs. Of branches the dearest counts; the body of a `scan` counts for each step, a
    kernel for each step of its grid, or as the `cost_estimate` that it was given, and the body of a `while_loop` once.

    >>> pl.estimate_cost(lambda a, b: jnp.sin(a @ b), jnp.ones((4, 8)), jnp.ones((8, 2)))
    CostEstimate(flops=128, transcendentals=8, bytes_accessed=224, remote_bytes_transferred=0)
    """
    program, _, _ = staging.stage(fun, args, kwargs, writes=True)
    flops, transcendentals = _of(ClosedJaxpr(program, []).open)
    moved = sum(_bytes(*ty[:2]) for ty in (*program.in_types, *program.out_types))
    return CostEstimate(flops, transcendentals, moved)


def _of(jaxpr: Jaxpr) -> tuple[int, int]:
    """`(operations, transcendental functions)` of a jaxpr."""
    costs = [_of_equation(eqn) for eqn in jaxpr.eqns]
    return sum(cost[0] for cost in costs), sum(cost[1] for cost in costs)


def _of_equation(eqn) -> tuple[int, int]:
    name, params = eqn.primitive.name, eqn.params
    given = params.get("cost_estimate")
    if name == "pallas_call" and given is not None:
        return given.flops, given.transcendentals
    inner = [_of(jaxpr) for jaxpr in jaxprs_in_params(params)]
    if inner:
        pairs = list(zip(*inner))
        if name == "cond":
            return max(pairs[0]), max(pairs[1])
        steps = params["length"] if name == "scan" else _steps(params) if name == "pallas_call" else 1
        return steps * sum(pairs[0]), steps * sum(pairs[1])
    if not eqn.outvars or not eqn.invars:
        return 0, 0
    size = math.prod(eqn.outvars[0].aval.shape)
    if name in _ARITHMETIC:
        return size, 0
    if name in _TRANSCENDENTAL:
        return 0, size
    if name == "integer_pow":
        return size * _products(params["y"]), 0
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        shape = eqn.invars[0].aval.shape
        return 2 * size * math.prod(shape[dim] for dim in contracted), 0
    return 0, 0


def _products(power: int) -> int:
    """The products of a power by squaring; one more operation where it is negative."""
    if power in (0, 1):
        return 0
    size = abs(power)
    return size.bit_length() - 1 + size.bit_count() + (power < 0)


def _steps(params) -> int:
    """The steps of a kernel's grid; axes whose size is not known count once."""
    return math.prod(size for size in getattr(params["grid_mapping"], "grid", ()) if size is not None)


def _bytes(shape, dtype):
    if dtypes.issubdtype(dtype, dtypes.extended):
        return math.prod(shape) * 4
    return math.prod(shape) * dtypes.itemsize_bits(dtype) // 8
