"""What rules of differentiation are written with: symbolic zeros and registration helpers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.lax import api as lax
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.linearized import float0_zeros, zeros
from ferrax._src.tree import tree_util

__all__ = [
    "UndefinedPrimal",
    "Zero",
    "add_jaxvals",
    "add_jaxvals_p",
    "add_tangents",
    "defbilinear",
    "defjvp",
    "defjvp2",
    "deflinear",
    "deflinear2",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]


class Zero:
    """A tangent or cotangent that is zero and is not computed. `aval` is its type.

    >>> from ferrax.interpreters import ad
    >>> ad.Zero.from_primal_value(jnp.ones(2))
    Zero(float32[2])
    """

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        """The zero tangent of a value."""
        return Zero(core.typeof(value).to_tangent_aval())

    def instantiate(self) -> Any:
        """An array of zeros."""
        return zeros_like_aval(self.aval)

    def __repr__(self) -> str:
        return f"Zero({self.aval})"


class UndefinedPrimal:
    """Stands, in a transpose rule, for an input whose cotangent is wanted. `aval` is its type.

    >>> from ferrax.interpreters import ad
    >>> ad.UndefinedPrimal(ferrax.core.ShapedArray((2,), jnp.float32)).aval
    ShapedArray(float32[2])
    """

    __slots__ = ("aval",)

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


for _leafless in (Zero, UndefinedPrimal):
    tree_util.register_pytree_node(
        _leafless,
        lambda z: ((), z.aval),
        functools.partial(lambda cls, aval, _: cls(aval), _leafless),
    )


def is_undefined_primal(x: Any) -> bool:
    """Whether a transpose rule is asked for the cotangent of this input.

    Args: x: an input of a transpose rule.

    >>> ferrax.interpreters.ad.is_undefined_primal(jnp.ones(2))
    False
    """
    return type(x) is UndefinedPrimal


def zeros_like_aval(aval: Any) -> Any:
    """Zeros of a type; of float0 for types without tangents.

    Args: aval: the type.

    >>> ferrax.interpreters.ad.zeros_like_aval(ferrax.core.ShapedArray((2,), jnp.float32))
    Array([0., 0.], dtype=float32)
    """
    if aval.dtype == dtypes.float0:
        return float0_zeros(aval.shape)
    return zeros(aval.shape, aval.dtype, getattr(aval, "weak_type", False))


def instantiate_zeros(tangent: Any) -> Any:
    """An array of zeros for a `Zero`, else the argument.

    Args: tangent: a `Zero` or an array.

    >>> from ferrax.interpreters import ad
    >>> ad.instantiate_zeros(ad.Zero.from_primal_value(jnp.ones(2)))
    Array([0., 0.], dtype=float32)
    """
    return zeros_like_aval(tangent.aval) if type(tangent) is Zero else tangent


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two tangents of one type.

    Args: x, y: arrays of one shape and dtype.

    >>> ferrax.interpreters.ad.add_jaxvals(jnp.ones(2), jnp.ones(2))
    Array([2., 2.], dtype=float32)
    """
    return lax.add(x, y)


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, either of which may be a `Zero`.

    Args: x, y: arrays of one shape and dtype, or `Zero`.

    >>> from ferrax.interpreters import ad
    >>> ad.add_tangents(ad.Zero.from_primal_value(1.0), 3.0)
    3.0
    """
    if type(x) is Zero:
        return y
    return x if type(y) is Zero else add_jaxvals(x, y)


def get_primitive_transpose(primitive: Any) -> Callable[..., Any]:
    """The transpose rule. Errors: NotImplementedError if there is none.

    Args: primitive: the operation.

    >>> from ferrax.interpreters import ad
    >>> thrice_p = ferrax.core.Primitive("thrice")
    >>> ad.deflinear(thrice_p, lambda ct: [3 * ct])
    >>> ad.get_primitive_transpose(thrice_p)(2.0, ad.UndefinedPrimal(ferrax.typeof(1.0)))
    [6.0]
    """
    try:
        return primitive_transposes[primitive]
    except KeyError:
        raise NotImplementedError(
            f"Transpose rule of reverse mode for '{primitive}' not implemented: add one to "
            "ad.primitive_transposes"
        ) from None


def _single_result(primitive, helper):
    if not isinstance(primitive, Primitive):
        raise TypeError(f"{helper}: expected a Primitive, got {primitive!r}")
    if primitive.multiple_results:
        raise TypeError(
            f"{helper}: '{primitive}' has multiple results; write its rule into primitive_jvps"
        )


def defjvp(primitive: Any, *rules: Any) -> None:
    """Gives the derivative by one function for each input, or None: `rule(tangent, *primals,
    **params)` is that input's part of the output's tangent.

    Args: primitive: the operation, with one result; rules: the functions. Errors: TypeError for a
    primitive with several results.

    Example:
        >>> times_p = ferrax.core.Primitive("times")
        >>> ferrax.interpreters.ad.defjvp(times_p, lambda t, x, y: t * y, lambda t, x, y: x * t)
    """
    _single_result(primitive, "defjvp")

    primitive_jvps[primitive] = functools.partial(_sum_over_inputs, primitive, rules, False)


def defjvp2(primitive: Any, *rules: Any) -> None:
    """As `defjvp`, where each function also gets the output: `rule(tangent, out, *primals,
    **params)`.

    Args: primitive: the operation, with one result; rules: the functions. Errors: TypeError for a
    primitive with several results.

    >>> exp_p = ferrax.core.Primitive("exp_of_mine")
    >>> ferrax.interpreters.ad.defjvp2(exp_p, lambda tangent, out, x: tangent * out)
    """
    _single_result(primitive, "defjvp2")

    primitive_jvps[primitive] = functools.partial(_sum_over_inputs, primitive, rules, True)


def _sum_over_inputs(primitive, rules, of_output, primals, tangents, /, **params):
    """The result, and the sum of what each input's rule makes of its tangent."""
    out = primitive.bind(*primals, **params)
    known = (out, *primals) if of_output else primals
    total = Zero.from_primal_value(out)
    for rule, tangent in zip(rules, tangents):
        if rule is None or isinstance(tangent, Zero):
            continue
        total = add_tangents(total, rule(tangent, *known, **params))
    return out, total


def _linear_jvp(primitive, primals, tangents, **params):
    out = primitive.bind(*primals, **params)
    if any(type(tangent) is not Zero for tangent in tangents):
        return out, primitive.bind(*map(instantiate_zeros, tangents), **params)
    zeros = map(Zero.from_primal_value, out if primitive.multiple_results else [out])
    return out, list(zeros) if primitive.multiple_results else next(zeros)


def _linear_transpose(with_inputs, rule, cotangent, *args, **params):
    if type(cotangent) is Zero:
        return [
            Zero(x.aval.to_tangent_aval()) if is_undefined_primal(x) else None for x in args
        ]
    return rule(cotangent, *(args if with_inputs else ()), **params)


def deflinear(primitive: Any, transpose_rule: Callable[..., Any]) -> None:
    """Says that the primitive is linear in all its inputs, and how to transpose it:
    `transpose_rule(cotangent, **params)` is the list of the inputs' cotangents.

    Args: primitive: the operation; transpose_rule: the function.

    >>> thrice_p = ferrax.core.Primitive("thrice")
    >>> ferrax.interpreters.ad.deflinear(thrice_p, lambda ct: [3 * ct])
    """
    primitive_jvps[primitive] = functools.partial(_linear_jvp, primitive)
    primitive_transposes[primitive] = functools.partial(_linear_transpose, False, transpose_rule)


def deflinear2(primitive: Any, transpose_rule: Callable[..., Any]) -> None:
    """As `deflinear`, where the rule also gets the inputs: `transpose_rule(cotangent, *args,
    **params)`.

    Args: primitive: the operation; transpose_rule: the function.

    >>> thrice_p = ferrax.core.Primitive("thrice")
    >>> ferrax.interpreters.ad.deflinear2(thrice_p, lambda ct, x: [3 * ct])
    """
    primitive_jvps[primitive] = functools.partial(_linear_jvp, primitive)
    primitive_transposes[primitive] = functools.partial(_linear_transpose, True, transpose_rule)


def defbilinear(primitive: Any, lhs_rule: Callable[..., Any], rhs_rule: Callable[..., Any]) -> None:
    """Says that a primitive of two inputs is linear in each, and how to transpose it in either:
    `rule(cotangent, x, y, **params)`, where that input is an `UndefinedPrimal`.

    Args: primitive: the operation; lhs_rule, rhs_rule: the functions, which return one cotangent.

    >>> times_p = ferrax.core.Primitive("times")
    >>> ferrax.interpreters.ad.defbilinear(
    ...     times_p, lambda ct, x, y: ct * y, lambda ct, x, y: x * ct)
    """
    defjvp(
        primitive,
        lambda t, x, y, **params: primitive.bind(t, y, **params),
        lambda t, x, y, **params: primitive.bind(x, t, **params),
    )

    def transpose(cotangent, x, y, **params):
        if is_undefined_primal(x) == is_undefined_primal(y):
            raise TypeError(f"'{primitive}' is transposed in one of its two inputs, got {x}, {y}")
        if is_undefined_primal(x):
            zero = type(cotangent) is Zero
            ct = Zero(x.aval) if zero else lhs_rule(cotangent, x, y, **params)
            return ct, None
        ct = Zero(y.aval) if type(cotangent) is Zero else rhs_rule(cotangent, x, y, **params)
        return None, ct

    primitive_transposes[primitive] = transpose


def _add_jaxvals_jvp(primals, tangents):
    out = add_jaxvals_p.bind(*primals)
    return out, functools.reduce(add_tangents, tangents)


def _add_jaxvals_batch(args, dims):
    (x, y), (dx, dy) = args, dims
    if dx is None or dy is None:
        # The one that is not batched is the same for each.
        batched, dim, other = (y, dy, x) if dx is None else (x, dx, y)
        return add_jaxvals_p.bind(batched, lax.broadcast_in_dim(
            other, batched.shape, tuple(i for i in range(batched.ndim) if i != dim)
        )), dim  # fmt: skip
    if dx != dy:
        y = moveaxis(y, dy, dx)
    return add_jaxvals_p.bind(x, y), dx


# The sum of two tangents as an equation of its own, for programs that bind or rewrite it.
add_jaxvals_p = Primitive("add_any")
add_jaxvals_p.def_impl(add_jaxvals)
add_jaxvals_p.def_abstract_eval(lambda x, y: x)
primitive_jvps[add_jaxvals_p] = _add_jaxvals_jvp
primitive_transposes[add_jaxvals_p] = lambda ct, *args: [ct, ct]
primitive_batchers[add_jaxvals_p] = _add_jaxvals_batch
register_lowering(add_jaxvals_p, lower_fun(add_jaxvals, multiple_results=False))
