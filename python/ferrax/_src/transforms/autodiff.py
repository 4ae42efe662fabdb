"""Derivatives: `grad`, `value_and_grad`, `jvp`, `vjp`, `linearize`, `linear_transpose`.

All of them trace the function into a program (`linearized`) and let the native core differentiate it.
What goes in is checked first (`derivative_checks`); integers have tangents of dtype float0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ferrax import _core
from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.base.traceback_util import api_boundary, boundary
from ferrax._src.core import abstract_type, api_util, float0
from ferrax._src.core.explicit_types import retyped
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.primitives import apply_program
from ferrax._src.lax.elementwise import stop_gradient
from ferrax._src.tracing.staging import stage
from ferrax._src.transforms import (
    box_rules,
    derivative_checks as checks,
    ref_tangents,
    stepwise,
    value_rules,
)
from ferrax._src.transforms.gradient_refs import VJP
from ferrax._src.transforms.jit import jit
from ferrax._src.transforms.linearized import (
    Linearized,
    orders,
    reject_refs,
    tangent_zeros,
    trace,
    write_refs,
    zeros,
)
from ferrax._src.tree import opaque, tree_util

R = TypeVar("R")


def value_and_grad(
    fun: Callable[..., R], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: tuple[()] = (),
) -> Callable[..., tuple[R, Any]]:
    """A function that returns both `fun`'s value and its gradient.

    Args: fun, argnums, has_aux, holomorphic, allow_int, reduce_axes: as for `grad`, with its
    errors. The result is `(value, gradient)`, with `has_aux` `((value, aux), gradient)`.

    Example:
        >>> ferrax.value_and_grad(lambda x: x ** 2)(3.0)
        (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    both, argnums = _value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)
    return api_util.wraps(fun, "Value and gradient", f"with respect to argument {argnums}")(both)


def _value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes):
    """The function that `value_and_grad` gives, without the name and help of `fun`, and `argnums` checked."""
    if reduce_axes:
        raise NotImplementedError("value_and_grad: reduce_axes is not supported")
    api_util.check_callable(fun)
    argnums = checks.check_argnums(argnums, "value_and_grad")

    def value_and_grad_f(*args, **kwargs):
        chosen, merge, single = checks.select(argnums, args, fun, TypeError)
        chosen, merge, closed = value_rules.opened_choice(chosen, merge)
        call = functools.partial(fun, **kwargs) if kwargs else fun
        chosen_leaves = tree_util.tree_leaves(chosen)
        reject_refs(chosen_leaves)
        for leaf in chosen_leaves:
            checks.check_input_dtype("grad", core.as_array(leaf, "grad"), holomorphic, allow_int)
        point = Linearized(call, chosen, has_aux, merge)
        checks.check_output(fun, point.out_types, point.flat.out_tree, holomorphic)
        value, aux, residuals = point.take()
        one = _one_like(point.out_types[0])
        gradients = point.cotangent_or_zeros(point.pullback(residuals, [one]))
        tree = tree_util.tree_structure(chosen)
        gradients = closed(tree.unflatten(gradients))
        gradients = gradients[0] if single else gradients
        return ((value, aux), gradients) if has_aux else (value, gradients)

    return value_and_grad_f, argnums


def _one_like(ty):
    _, dtype, weak, *_ = ty
    return _core.array_from_numpy(np.ones((), dtype), weak)


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: tuple[()] = (),
) -> Callable[..., Any]:
    """The gradient of a scalar-valued function.

    Args:
        fun: a function whose output is a 0-d float array (with `has_aux` a pair of it and a tree
            that is passed through).
        argnums: which positional arguments to differentiate by; a tuple gives a tuple.
        holomorphic: inputs and output are complex and `fun` is holomorphic.
        allow_int: integer arguments are allowed; their gradients have dtype float0.
        reduce_axes: must be empty.

    The gradient has the argument's tree, shapes and dtypes. For complex arguments of a
    real-valued function it is the conjugate of the steepest direction.

    Errors: TypeError for outputs that are not scalar or inputs that are not inexact.

    Example:
        >>> ferrax.grad(jnp.tanh)(0.0)
        Array(1., dtype=float32, weak_type=True)
    """
    both, _ = _value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @api_util.wraps(fun, "Gradient", f"with respect to argument {argnums}")
    def grad_f(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_f


def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of `fun` at `primals` and its derivative along `tangents`.

    `primals` and `tangents` are tuples or lists of trees of equal structure, shapes and dtypes
    (float0 for integers). The tangent of a mutable array (`Ref`) is another one: what `fun` writes to the first
    is written to it, and its tangent to the second. Returns `(out, out_tangent)`, with `has_aux` also aux.

    Errors: TypeError where structures or dtypes differ, ValueError where shapes do.

    Example:
        >>> ferrax.jvp(jnp.sin, (0.0,), (1.0,))[1]
        Array(1., dtype=float32, weak_type=True)
    """
    api_util.check_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            "jvp: primals and tangents are tuples with an entry for each argument, got "
            f"{type(primals).__name__} and {type(tangents).__name__}; write (x,) for one."
        )
    if type(primals) is type(tangents):
        primals, tangents = tuple(primals), tuple(tangents)
    if box_rules.boxes_among(primals):
        return box_rules.jvp(jvp, fun, primals, tangents, has_aux)
    if ref_tangents.refs_among(primals):
        return ref_tangents.jvp(jvp, fun, primals, tangents, has_aux)
    if not opaque.any_values():
        return _jvp(fun, primals, tangents, has_aux)
    call = value_rules.Call(fun, primals, has_aux)
    if not call.args.fits(tangents):
        # The error is that of arrays.
        return _jvp(fun, primals, tangents, has_aux)
    opened, moved, (own, aux) = _jvp(call.fun, call.args.opened, call.args.of_tangents(tangents), True)
    out, tangent = call.result(opened, own), call.out.tangents(moved)
    return (out, tangent, aux) if has_aux else (out, tangent)


def _jvp(fun, primals, tangents, has_aux):
    primals, tangents = float0.hide(primals), float0.hide_where(tangents, primals)
    leaves, tree = tree_util.tree_flatten(primals)
    tangent_leaves, tangent_tree = tree_util.tree_flatten(tangents)
    reject_refs(leaves)
    arrays = [core.as_array(leaf, "jvp") for leaf in leaves]
    types = [(a.shape, a.dtype, a.weak_type) for a in arrays]
    tangent_leaves = checks.check_tangents("jvp", types, tangent_leaves, tree, tangent_tree)
    by_value = orders.by_value
    arrays, program, captured, flat = trace(
        fun, float0.hide(tree.unflatten(arrays)), None, has_aux, forward=True
    )
    nonzero = [dtypes.has_tangent(a.dtype) for a in arrays]
    given = [t for t, flag in zip(tangent_leaves, nonzero) if flag]
    if orders.by_value != by_value and stepwise.applies(program):
        tangents = iter(given)
        moving = [next(tangents) if flag else None for flag in nonzero]
        results, made = stepwise.pushforward(program, arrays + captured, moving)
        flags = [t is not None for t in made]
        results += [t for t in made if t is not None]
    else:
        with orders.pushing():
            pushed, flags = program.jvp(nonzero + [False] * len(captured))
        results = apply_program(pushed, arrays + captured + given)
    results, flags, _ = write_refs(flat, results, flags)
    count, num_out = len(flags), flat.num_out
    made = iter(results[count:])
    made = [next(made) if flag else None for flag in flags][:num_out]
    out_tangents = [
        tangent_zeros(*ty) if t is None else t for t, ty in zip(made, program.out_types)
    ]
    results = [*map(retyped, results, flat.types), *results[len(flat.types) :]]
    out_tangents = [*map(retyped, out_tangents, flat.types)]
    out = flat.out_tree.unflatten(results[:num_out])
    tangent = flat.out_tree.unflatten(out_tangents)
    if has_aux:
        return out, tangent, flat.aux(results[num_out:count])
    return out, tangent


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, in_nzs: Any = None) -> tuple[Any, ...]:
    """The value of `fun` and its derivative as a linear function of tangents.

    The returned function runs no part of `fun` again. Returns `(out, f_jvp)`, with `has_aux`
    `(out, f_jvp, aux)`.

    Args: fun: a function of arrays; primals: its arguments, at which to linearize; has_aux: whether
    it returns a pair, of which the second is passed through; in_nzs: a tree of bools above the arguments, which are
    differentiated in; None: all of them. Tangents of others count as zeros.
    Tangents of mutable arrays (`Ref`) among `primals` are mutable arrays, as in `jvp`.

    Errors: ValueError for another `in_nzs`, NotImplementedError for one beside mutable arrays.

    Example:
        >>> y, f_jvp = ferrax.linearize(jnp.sin, 0.0)
        >>> f_jvp(2.0)
        Array(2., dtype=float32, weak_type=True)
    """
    api_util.check_callable(fun)
    if ref_tangents.refs_among(primals):
        if in_nzs is not None:
            raise NotImplementedError(
                "linearize: in_nzs beside mutable arrays; leave it out, and give zeros as tangents of the others"
            )
        return ref_tangents.linearize(linearize, fun, primals, has_aux)
    fun = _only(fun, primals, in_nzs, "linearize")
    return _at_a_point(_linearize, value_rules.Push, fun, primals, has_aux)


def _only(fun, primals, in_nzs, name):
    """The function, of which those arguments are constants that `in_nzs` says are not differentiated in."""
    if in_nzs is None:
        return fun
    prefix = tuple(in_nzs) if isinstance(in_nzs, list) else in_nzs
    flags = tree_util.tree_leaves(prefix)
    if not all(isinstance(flag, bool) for flag in flags):
        raise ValueError(f"{name}: in_nzs must be a tree of bools, got {in_nzs!r}")
    try:
        flags = tree_util.broadcast_prefix(prefix, primals)
    except ValueError as error:
        raise ValueError(f"{name}: in_nzs must be a tree above the arguments, got {in_nzs!r}: {error}") from None

    @functools.wraps(fun)
    def of_some(*args):
        leaves, tree = tree_util.tree_flatten(args)
        return fun(*tree.unflatten([x if flag else stop_gradient(x) for x, flag in zip(leaves, flags)]))

    return of_some


def _at_a_point(transform, moved, fun, primals, has_aux):
    """`transform` of a function of arrays or of values that are made of them; `moved(call)` takes what it gives to
    tangents of values."""
    if not opaque.any_values():
        return transform(fun, primals, has_aux)
    call = value_rules.Call(fun, primals, has_aux)
    opened, derivative, (own, aux) = transform(call.fun, call.args.opened, True)
    if call.parts:
        derivative = tree_util.Partial(moved(call), derivative)
    out = call.result(opened, own)
    return (out, derivative, aux) if has_aux else (out, derivative)


def _linearize(fun, primals, has_aux):
    primals = float0.hide(primals)
    point = Linearized(fun, primals, has_aux, pushes=True)
    out, aux, residuals = point.take()
    f_jvp = tree_util.Partial(_Push(point, tree_util.tree_structure(primals)), residuals)
    return (out, f_jvp, aux) if has_aux else (out, f_jvp)


class _Push:
    """The derivative at a point as a function of residuals and tangents."""

    __slots__ = ("point", "tree")

    def __init__(self, point, tree):
        self.point = point
        self.tree = tree

    @property
    def args(self) -> tuple[ClosedJaxpr]:
        """The linear program, of residuals and tangents, for those who want to look at it."""
        return (ClosedJaxpr(self.point.linear),)

    @boundary
    def __call__(self, residuals, *tangents):
        leaves, tree = float0.flatten_as(tangents, self.tree)
        checked = checks.check_tangents(
            "linearized function", self.point.in_types, leaves, self.tree, tree, ValueError
        )
        return self.point.flat.out_tree.unflatten(self.point.pushforward(residuals, checked))


class _Pull(_Push):
    """The transposed derivative at a point as a function of residuals and cotangents."""

    __slots__ = ("arguments",)

    def __init__(self, point, tree, residuals):
        super().__init__(point, tree)
        self.arguments = point.arguments_among(residuals)

    @boundary
    def __call__(self, residuals, *given, chosen=None, logs=None):
        if len(given) != 1:
            raise TypeError(
                f"The function that vjp returned was called with {len(given)} arguments, but takes one: "
                f"the cotangent of the output, of the structure {self.point.flat.out_tree}. If the output "
                "is a tuple, so is it: f_vjp((a, b))"
            )
        (cotangent,) = given
        point = self.point
        leaves, tree = float0.flatten_as(cotangent, point.flat.out_tree)
        if tree != point.flat.out_tree:
            raise ValueError(
                f"unexpected tree structure of argument to vjp function: got {tree}, but expected "
                f"to match {point.flat.out_tree}"
            )
        checked = checks.check_cotangents(leaves, point.out_types)
        checks.check_explicit_cotangents(checked, point.flat.types)
        found = point.pullback(residuals, checked, chosen, logs)
        return self.tree.unflatten(point.cotangent_or_zeros(found, chosen))


def vjp(
    fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: tuple[()] = (),
    saveable_args: Any = True, in_nzs: Any = None,
) -> tuple[Any, ...]:
    """The value of `fun` and the function from output to input cotangents.

    Returns `(out, f_vjp)`, with `has_aux` `(out, f_vjp, aux)`. `f_vjp` takes a tree like the
    output and returns a tuple with one entry for each primal; `f_vjp.with_refs` adds cotangents to
    mutable arrays, and `f_vjp.with_logs` gives what reverse rules log as well.

    Errors: `f_vjp` raises ValueError for another structure, shape or dtype.
    Args: fun: a function of arrays; primals: its arguments; has_aux: whether it returns a pair, of
    which the second is passed through; reduce_axes: must be empty; saveable_args: True (NotImplementedError):
    arguments may be kept; in_nzs: as for `linearize`, the cotangents of other arguments are zeros.

    Example:
        >>> y, f_vjp = ferrax.vjp(jnp.multiply, 2.0, 3.0)
        >>> f_vjp(1.0)
        (Array(3., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    if reduce_axes:
        raise NotImplementedError("vjp: reduce_axes is not supported")
    if saveable_args is not True:
        raise NotImplementedError("vjp: saveable_args is not available; ferrax.checkpoint(f) computes values again")
    api_util.check_callable(fun)
    fun = _only(fun, primals, in_nzs, "vjp")
    return _at_a_point(_vjp, value_rules.Pull, fun, primals, has_aux)


def _vjp(fun, primals, has_aux):
    # Arrays of dtype float0 are none of the program's inputs; their cotangents have their shapes.
    primals = float0.hide(primals)
    point = Linearized(fun, primals, has_aux)
    out, aux, residuals = point.take()
    f_vjp = VJP(_Pull(point, tree_util.tree_structure(primals), residuals), residuals)
    return (out, f_vjp, aux) if has_aux else (out, f_vjp)


def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: tuple[()] = ()) -> Callable[..., Any]:
    """The transpose of a linear function, given example arguments (arrays or shapes).

    Errors: TypeError unless inputs and outputs are all inexact or all integers;
    NotImplementedError naming the first op that is not linear.

    Args: fun: the function; primals: its arguments or what has their shapes and dtypes;
    reduce_axes: must be empty.

    Example:
        >>> ferrax.linear_transpose(lambda x: 3 * x, 1.0)(2.0)
        (Array(6., dtype=float32, weak_type=True),)
    """
    if reduce_axes:
        raise NotImplementedError(
            f"linear_transpose: reduce_axes is not supported, got {reduce_axes!r}; sum the results "
            "over the axes"
        )
    api_util.check_callable(fun)
    leaves, tree = tree_util.tree_flatten(primals)
    types = [abstract_type(leaf) for leaf in leaves]
    program, captured, flat = stage(fun, primals, {})
    out_types = program.out_types
    every = [dtype for _, dtype, *_ in [*types, *out_types]]
    integers = all(dtypes.issubdtype(dtype, np.integer) for dtype in every)
    if not integers and not all(map(dtypes.has_tangent, every)):
        raise TypeError(
            "linear_transpose only supports functions of floats and complex numbers, or of "
            f"integers, to such, got {[dtype.name for _, dtype, *_ in types]} -> "
            f"{[dtype.name for _, dtype, *_ in out_types]}."
        )

    @api_boundary
    def transposed(cotangent):
        ct_leaves, ct_tree = tree_util.tree_flatten(cotangent)
        if ct_tree != flat.out_tree:
            raise TypeError(
                f"cotangent tree does not match that of the output, {flat.out_tree}: got "
                f"{ct_tree}"
            )
        given = []
        for leaf, (shape, dtype, *_) in zip(ct_leaves, out_types):
            leaf = core.as_array(leaf, "linear_transpose")
            if leaf.shape != shape or leaf.dtype != dtype:
                raise TypeError(
                    f"linear_transpose: a cotangent has type {leaf.dtype.name}{list(leaf.shape)}, "
                    f"expected that of the output of the function, {dtype.name}{list(shape)}"
                )
            given.append(leaf)
        flags_in = [True] * len(leaves) + [False] * len(captured)
        back, flags = program.transpose(flags_in, [True] * len(given))
        results = iter(apply_program(back, captured + given))
        return tree.unflatten(
            [
                next(results) if flag else zeros(*ty) for flag, ty in zip(flags, types)
            ]
        )

    return transposed


def fwd_and_bwd(
    fun: Callable[..., Any], argnums: int | Sequence[int], has_aux: bool = False,
    jitted: bool = True,
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A pair of functions: the forward pass with residuals, and the backward pass from them.

    Args: fun: a function of arrays; argnums: which arguments to differentiate by; has_aux: as for
    `vjp`; jitted: whether to compile both.

    >>> forward, backward = ferrax.fwd_and_bwd(jnp.sin, argnums=0)
    >>> output, residuals = forward(0.0)
    >>> backward(residuals, 1.0)
    Array(1., dtype=float32, weak_type=True)
    """
    argnums = checks.check_argnums(argnums, "fwd_and_bwd")

    def forward(*args, **kwargs):
        chosen, merge, _ = checks.select(argnums, args, fun)
        return vjp(lambda *c: fun(*merge(c), **kwargs), *chosen, has_aux=has_aux)

    def backward(pull, cotangents):
        result = pull(cotangents)
        return result if isinstance(argnums, tuple) else result[0]

    return (jit(forward), jit(backward)) if jitted else (forward, backward)
