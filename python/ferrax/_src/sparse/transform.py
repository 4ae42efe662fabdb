"""`sparsify`: functions of dense arrays, of sparse ones.

The function is traced on the types that dense arrays would have; its equations are then evaluated one
after another, by a rule where an operand is sparse. Values are arrays and sparse arrays. Programs inside
of equations are evaluated in the same way, as functions of trees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ferrax._src import core
from ferrax._src.base.traceback_util import api_boundary
from ferrax._src.core.jaxpr import ClosedJaxpr, bind_equation, interpret
from ferrax._src.numpy import api as jnp
from ferrax._src.sparse.base import is_sparse
from ferrax._src.sparse.bcoo import BCOO
from ferrax._src.sparse.bcsr import BCSR
from ferrax._src.tracing import staging
from ferrax._src.tree import tree_util

# Rules by the name of a primitive: `rule(*values, **params)` gives a value, or a list of them where the
# primitive has several results.
bcoo_rules: dict[str, Callable[..., Any]] = {}
bcsr_rules: dict[str, Callable[..., Any]] = {}

# Operations whose results are not zero where their operands are.
_DENSE = {
    "acos", "acosh", "bessel_i0e", "cos", "cosh", "eq", "exp", "exp2", "ge", "gt", "le", "log", "logistic", "lt",
    "ne", "not", "pow", "rsqrt", "xor",
}  # fmt: skip


def _missing(primitive: str, format_: str) -> NotImplementedError:
    if primitive in _DENSE:
        return NotImplementedError(
            f"sparsify: {primitive} makes other values of zeros, so that the result would be dense; if that "
            "is wanted, convert arguments with sparse.todense()."
        )
    return NotImplementedError(
        f"sparsify: {primitive} has no rule for {format_} arrays; convert arguments with sparse.todense()"
    )


def evaluate(jaxpr: ClosedJaxpr, values: list[Any]) -> list[Any]:
    """The outputs of a closed jaxpr for arrays and sparse arrays."""
    return interpret(jaxpr.open, jaxpr.consts, values, _apply)


def _apply(eqn, values):
    kinds = {type(value) for value in values if is_sparse(value)}
    if not kinds:
        return bind_equation(eqn, values)
    name = eqn.primitive.name
    rules = bcsr_rules if BCSR in kinds else bcoo_rules
    if name not in rules or not kinds <= {BCOO, BCSR}:
        raise _missing(name, " and ".join(sorted(kind.__name__ for kind in kinds)))
    result = rules[name](*values, **eqn.params)
    return list(result) if eqn.primitive.multiple_results else [result]


def _type_of(value):
    if is_sparse(value):
        weak = getattr(value.data, "weak_type", False)
        return core.ShapeDtypeStruct(value.shape, value.dtype, weak_type=weak)
    return value


def traced(function: Callable[..., Any], tree: Any, leaves: list[Any]) -> tuple[ClosedJaxpr, Any]:
    """The jaxpr of a function of the trees that `leaves` make, as of dense arrays, and its result's structure."""
    found: list[Any] = []

    def flat(*dense):
        result, out_tree = tree_util.tree_flatten(function(*tree.unflatten(dense)))
        found.append(out_tree)
        return result

    # Traced anew each time: what the function closes over may be traced itself.
    jaxpr = staging.make_jaxpr(flat)(*map(_type_of, leaves))
    return jaxpr, found[-1]


class SparseTracer:
    """The class of JAX's tracers of sparse arrays, for programs that ask for it.

    Functions that are sparsified here are traced with the tracers of dense arrays: nothing is an instance.

    >>> from ferrax.experimental import sparse
    >>> isinstance(jnp.ones(3), sparse.SparseTracer)
    False
    """


def sparsify(f: Callable[..., Any], use_tracer: bool = False) -> Callable[..., Any]:
    """A function of dense arrays, as one that takes sparse arrays as well.

    Args:
        f: a function of trees of arrays. Its arguments may be BCOO and BCSR arrays; results are sparse
            where its operations give sparse ones.
        use_tracer: JAX has two ways of doing this, which this chooses between; here there is one, which
            does what both do.

    Errors: NotImplementedError where an operation of f has no rule for sparse operands, such as one
    whose result would be dense.

    Example:
        >>> from ferrax.experimental import sparse
        >>> f = sparse.sparsify(lambda m, v: 2 * m.T @ v)
        >>> f(sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [0.0, 3.0]])), jnp.ones(2))
        Array([2., 6.], dtype=float32)
    """

    @api_boundary
    @functools.wraps(f)
    def wrapped(*args: Any, **params: Any) -> Any:
        leaves, tree = tree_util.tree_flatten(args, is_leaf=is_sparse)
        jaxpr, out_tree = traced(lambda *dense: f(*dense, **params), tree, leaves)
        values = [leaf if is_sparse(leaf) else jnp.asarray(leaf) for leaf in leaves]
        return out_tree.unflatten(evaluate(jaxpr, values))

    return wrapped
