"""Derivatives: `grad`, `value_and_grad`, `jvp`, `vjp`, `linearize`, `linear_transpose`.

All of them trace the function into a program under a frame in which values are known on demand,
and let the native core differentiate the program. Integers have tangents of dtype float0.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ferrax import _core
from ferrax._src import core, state
from ferrax._src.base import dtypes
from ferrax._src.core import abstract_type, api_util
from ferrax._src.lax.creation import full
from ferrax._src.lax.elementwise import _convert_element_type
from ferrax._src.state import arguments as ref_args, differentiated_write
from ferrax._src.tracing.staging import Flat, stage
from ferrax._src.transforms import stepwise
from ferrax._src.transforms.gradient_refs import VJP
from ferrax._src.transforms.jit import jit
from ferrax._src.tree import tree_util

float0 = dtypes.float0


class _Orders(threading.local):
    """How many derivatives are being traced, and how many of them rules that are being traced have
    used up already: a rule is itself differentiated by the others. `forward`: the innermost one is
    a `jvp`, whose tangents are known."""

    derivatives = 0
    used = 0
    forward = False
    # How many rules that ask for values of tangents or cotangents were traced so far.
    by_value = 0


orders = _Orders()


def _float0_zeros(shape):
    return np.zeros(shape, dtype=float0)


def _zeros(shape, dtype, weak=False):
    zeros = full(shape, 0, dtype)
    return _convert_element_type(zeros, dtype, weak_type=True) if weak else zeros


def _trace(fun, args, kwargs=None, has_aux=False, fixed=None, name=None, forward=False):
    """Traces over `args`: leaves, the traced program with captured values, the flat function.

    `flat.touched` is what the function does to mutable arrays: the values that it gives to them
    are the program's last outputs.
    """
    leaves, in_tree = tree_util.tree_flatten((args, kwargs or {}))
    _reject_refs(leaves)
    arrays = [core.as_array(leaf, api_util.fun_name(fun)) for leaf in leaves]
    flat = Flat(fun, in_tree, has_aux, fixed, kind="differentiation")
    names = functools.partial(api_util.argument_names, fun, args, kwargs)
    before = orders.forward
    orders.derivatives += 1
    orders.forward = forward
    try:
        program, captured, flat.touched = _core.trace_program(
            flat, "diff", name or api_util.fun_name(fun), arrays, names, arrays
        )
    finally:
        orders.derivatives -= 1
        orders.forward = before
    return arrays, program, captured, flat


def _reject_refs(leaves):
    ref_args.reject(leaves, "a differentiated argument", "Differentiate by its value, ref[...].")


def _reversed_inputs(touched, count) -> list[bool]:
    """Which of the captured values order reverse rules that use mutable arrays: they have tangents
    too."""
    flags = [False] * count
    if touched is not None:
        for ref, entry in touched.entries.items():
            if state.ordered_ref(ref) is not None and entry.position is not None:
                flags[entry.position] = True
    return flags


def _write_refs(flat, results, flags):
    """Writes what the function gave to mutable arrays. Returns the other results, their flags, and
    the refs for which further outputs, with tangents, order reverse rules."""
    touched = flat.touched
    if touched is None or not touched.count:
        return results, flags, []
    first = len(flags) - touched.count
    reverses = []
    for entry, flag, value in zip(touched.written, flags[first:], results[first:]):
        if state.ordered_ref(entry.ref) is not None:
            if flag:
                reverses.append(state.ordered_ref(entry.ref))
        elif flag:
            raise differentiated_write(entry)
        else:
            state.write(entry.ref, value)
    return results[:first] + results[len(flags) :], flags[:first], reverses


def _strong(array):
    return _convert_element_type(array, array.dtype, weak_type=False)


def _weak(array):
    return _convert_element_type(array, array.dtype, weak_type=True)


class _Linearized:
    """A function at a point: outputs, and the linear program of its derivative.

    `pushforward` and `pullback` are pure functions of the residuals, so that these may be traced.
    """

    def __init__(self, fun, args, has_aux=False, fixed=None, kwargs=None):
        by_value = orders.by_value
        arrays, program, captured, self.flat = _trace(fun, args, kwargs, has_aux, fixed)
        self.in_types = [(a.shape, a.dtype, a.weak_type) for a in arrays]
        self.nonzero_in = [dtypes.has_tangent(a.dtype) for a in arrays]
        ordering = _reversed_inputs(self.flat.touched, len(captured))
        primal, self.linear, flags = program.linearize(self.nonzero_in + ordering)
        results = _core.apply_program(primal, arrays + captured)
        results, flags, self.reverses = _write_refs(self.flat, results, flags)
        count = len(flags)
        num_out = self.flat.num_out
        self._results = results[:count]
        self._residuals = results[count:]
        # Refs that reverse rules use: for each a last input and, where it is there, an output.
        self.ordered: list[Any] = [
            state.ordered_ref(ref)
            for ref, entry in (self.flat.touched.entries.items() if any(ordering) else ())
            if state.ordered_ref(ref) is not None and entry.position is not None
        ]
        self.flags = flags
        self.out_types = program.out_types[:num_out]
        # Rules that use mutable arrays have an order, which programs keep.
        ordered = self.ordered or self.reverses
        self.stepwise = (
            orders.by_value != by_value and not ordered and stepwise.applies(self.linear)
        )

    def take(self):
        """Output, aux (None without) and residuals, once: the point does not keep them alive."""
        results, residuals = self._results, self._residuals
        self._results = self._residuals = None
        num_out = self.flat.num_out
        out = self.flat.out_tree.unflatten(results[:num_out])
        aux = self.flat.aux(results[num_out:]) if self.flat.has_aux else None
        return out, aux, residuals

    def pushforward(self, residuals, tangents):
        """Output tangents (float0 for integers) for input tangents, all flat."""
        given = [t for t, nonzero in zip(tangents, self.nonzero_in) if nonzero]
        given += [_zeros(ref.shape, ref.dtype) for ref in self.ordered]
        results = iter(_core.apply_program(self.linear, [*residuals, *given]))
        made = [next(results) if flag else None for flag in self.flags][: self.flat.num_out]
        return [
            _tangent_zeros(*ty) if t is None else t for t, ty in zip(made, self.out_types)
        ]

    def pullback(self, residuals, cotangents):
        """Input cotangents (None for zeros) for output cotangents, all flat."""
        wanted, given = [], []
        for index, flag in enumerate(self.flags):
            if flag:
                known = index < self.flat.num_out and cotangents[index] is not None
                wanted.append(known)
                if known:
                    given.append(cotangents[index])
        for ref in self.reverses:
            wanted.append(True)
            given.append(_strong(state.read(ref)))
        if not any(wanted):
            return [None] * len(self.in_types)
        if self.stepwise:
            return stepwise.pullback(self, residuals, wanted, given)
        tangents = sum(self.nonzero_in) + len(self.ordered)
        linear = [False] * len(residuals) + [True] * tangents
        program, flags = self.linear.transpose(linear, wanted)
        results = iter(_core.apply_program(program, [*residuals, *given]))
        flags = iter(flags[len(residuals) :])
        cotangents = [
            next(results) if nonzero and next(flags) else None for nonzero in self.nonzero_in
        ]
        for ref, flag in zip(self.ordered, flags):
            if flag:
                state.write(ref, next(results) if not ref.weak_type else _weak(next(results)))
        return cotangents

    def cotangent_or_zeros(self, cotangents):
        return [
            _tangent_zeros(*ty) if ct is None else ct
            for ct, ty in zip(cotangents, self.in_types)
        ]


def _tangent_zeros(shape, dtype, weak=False):
    return _zeros(shape, dtype, weak) if dtypes.has_tangent(dtype) else _float0_zeros(shape)


def _check_argnums(argnums, name):
    if isinstance(argnums, bool) or not isinstance(argnums, (int, np.integer, tuple, list)):
        try:
            return operator.index(argnums)
        except TypeError:
            raise TypeError(
                f"{name}: argnums must be an int or a tuple of ints, got {argnums!r}"
            ) from None
    return tuple(argnums) if isinstance(argnums, list) else argnums


def _select(argnums, args, fun, too_few=ValueError):
    """The differentiated arguments and how to put tracers in their places.

    `too_few` is the class of error where fewer arguments than `argnums` asks for were given.
    """
    single = not isinstance(argnums, tuple)
    nums = (operator.index(argnums),) if single else tuple(map(operator.index, argnums))
    for num in nums:
        if not -len(args) <= num < len(args):
            raise (too_few if num >= 0 else ValueError)(
                f"differentiating with respect to argnums={argnums} takes at least "
                f"{max(num + 1, -num)} positional arguments, got "
                f"{len(args)}."
            )
    nums = tuple(num % len(args) for num in nums)

    def merge(chosen):
        merged = list(args)
        for num, value in zip(nums, chosen):
            merged[num] = value
        return merged

    return tuple(args[num] for num in nums), merge, single


def _check_input_dtype(name, array, holomorphic, allow_int):
    dtype = array.dtype
    if dtypes.issubdtype(dtype, dtypes.extended):
        if allow_int:
            return
        raise TypeError(
            f"{name} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
            f"np.inexact), but got {dtype.name}. PRNG keys have no derivatives; close over them, or "
            "set allow_int to True."
        )
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                f"{name} with holomorphic=True requires inputs with complex dtype, got "
                f"{dtype.name}; convert them with astype"
            )
    elif dtypes.issubdtype(dtype, np.integer) or dtypes.issubdtype(dtype, np.bool_):
        if not allow_int:
            raise TypeError(
                f"{name} requires real- or complex-valued inputs, got "
                f"{dtype.name}. Convert it to a float; for integers and booleans there are vjp and "
                "allow_int=True."
            )
    elif not dtypes.issubdtype(dtype, np.inexact):
        raise TypeError(f"{name} requires numeric inputs, got {dtype.name}.")


def _check_output(name, types, tree, holomorphic):
    if tree.num_leaves != 1 or not tree_util.treedef_is_leaf(tree):
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output of {name} was a tree: "
            f"{tree}."
        )
    shape, dtype, _ = types[0]
    if shape != ():
        raise TypeError(
            f"Gradient only defined for scalar-output functions. Output of {name} had shape: "
            f"{shape}. "
            f"Reduce it (for instance with .sum()) or use jacobian or vjp."
        )
    if holomorphic:
        if not dtypes.issubdtype(dtype, np.complexfloating):
            raise TypeError(
                "grad with holomorphic=True requires outputs with complex dtype, but got "
                f"{dtype.name}."
            )
    elif not dtypes.issubdtype(dtype, np.floating):
        advice = (
            " For holomorphic differentiation, pass holomorphic=True. For differentiation of "
            "non-holomorphic functions involving complex outputs, use vjp directly."
            if dtypes.issubdtype(dtype, np.complexfloating)
            else " For differentiation of functions with integer outputs, use vjp directly."
        )
        raise TypeError(
            f"grad requires real-valued outputs (output dtype that is a sub-dtype of np.floating), "
            f"but got {dtype.name}.{advice}"
        )


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
    holomorphic: bool = False, allow_int: bool = False, reduce_axes: tuple[()] = (),
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns both `fun`'s value and its gradient.

    Args: fun, argnums, has_aux, holomorphic, allow_int, reduce_axes: as for `grad`, with its
    errors. The result is `(value, gradient)`, with `has_aux` `((value, aux), gradient)`.

    Example:
        >>> ferrax.value_and_grad(lambda x: x ** 2)(3.0)
        (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    if reduce_axes:
        raise NotImplementedError("value_and_grad: reduce_axes is not supported")
    api_util.check_callable(fun)
    argnums = _check_argnums(argnums, "value_and_grad")

    @functools.wraps(fun)
    def value_and_grad_f(*args, **kwargs):
        chosen, merge, single = _select(argnums, args, fun, TypeError)
        call = functools.partial(fun, **kwargs) if kwargs else fun
        chosen_leaves = tree_util.tree_leaves(chosen)
        _reject_refs(chosen_leaves)
        for leaf in chosen_leaves:
            _check_input_dtype("grad", core.as_array(leaf, "grad"), holomorphic, allow_int)
        point = _Linearized(call, chosen, has_aux, merge)
        _check_output(api_util.fun_place(fun), point.out_types, point.flat.out_tree, holomorphic)
        value, aux, residuals = point.take()
        one = _one_like(point.out_types[0])
        gradients = point.cotangent_or_zeros(point.pullback(residuals, [one]))
        tree = tree_util.tree_structure(chosen)
        gradients = tree.unflatten(gradients)
        gradients = gradients[0] if single else gradients
        return ((value, aux), gradients) if has_aux else (value, gradients)

    return value_and_grad_f


def _one_like(ty):
    _, dtype, weak = ty
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
    both = value_and_grad(fun, argnums, has_aux, holomorphic, allow_int, reduce_axes)

    @functools.wraps(fun)
    def grad_f(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_f


def _check_tangents(name, types, tangents, tree, tangent_tree, wrong_dtype=TypeError):
    if tree != tangent_tree:
        raise TypeError(
            f"primal and tangent arguments to {name} must have the same tree structure; primals "
            "have "
            f"tree structure {tree} whereas tangents have tree structure {tangent_tree}."
        )
    checked: list[Any] = []
    for (primal_shape, primal_dtype, _), tangent in zip(types, tangents):
        expected = primal_dtype if dtypes.has_tangent(primal_dtype) else float0
        if isinstance(tangent, np.ndarray) and tangent.dtype == float0:
            shape, dtype = tangent.shape, float0
        else:
            tangent = core.as_array(tangent, name)
            shape, dtype = tangent.shape, tangent.dtype
        if dtype != expected:
            raise wrong_dtype(
                f"primal and tangent arguments to {name} do not match; dtypes must be equal, or "
                "in case "
                f"of int/bool primal dtype the tangent dtype must be float0. Got primal dtype "
                f"{primal_dtype.name} and so expected tangent dtype {np.dtype(expected).name}, "
                "but got "
                f"tangent dtype {np.dtype(dtype).name} instead."
            )
        if shape != primal_shape:
            raise ValueError(
                f"{name} called with different primal and tangent shapes; got primal shape "
                f"{primal_shape} and tangent shape as {shape}."
            )
        checked.append(tangent)
    return checked


def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of `fun` at `primals` and its derivative along `tangents`.

    `primals` and `tangents` are tuples or lists of trees of equal structure, shapes and dtypes
    (float0 for integers). Returns `(out, out_tangent)`, with `has_aux` also aux.

    Errors: TypeError where structures or dtypes differ, ValueError where shapes do.

    Example:
        >>> ferrax.jvp(jnp.sin, (0.0,), (1.0,))[1]
        Array(1., dtype=float32, weak_type=True)
    """
    api_util.check_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError(
            f"primal and tangent arguments to jvp must be tuples or lists; found "
            f"{type(primals).__name__} and {type(tangents).__name__}."
        )
    if type(primals) is type(tangents):
        primals, tangents = tuple(primals), tuple(tangents)
    leaves, tree = tree_util.tree_flatten(primals)
    tangent_leaves, tangent_tree = tree_util.tree_flatten(tangents)
    _reject_refs(leaves)
    arrays = [core.as_array(leaf, "jvp") for leaf in leaves]
    types = [(a.shape, a.dtype, a.weak_type) for a in arrays]
    tangent_leaves = _check_tangents("jvp", types, tangent_leaves, tree, tangent_tree)
    by_value = orders.by_value
    arrays, program, captured, flat = _trace(
        fun, tree.unflatten(arrays), None, has_aux, forward=True
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
        pushed, flags = program.jvp(nonzero + [False] * len(captured))
        results = _core.apply_program(pushed, arrays + captured + given)
    results, flags, _ = _write_refs(flat, results, flags)
    count, num_out = len(flags), flat.num_out
    made = iter(results[count:])
    made = [next(made) if flag else None for flag in flags][:num_out]
    out_tangents = [
        _tangent_zeros(*ty) if t is None else t for t, ty in zip(made, program.out_types)
    ]
    out = flat.out_tree.unflatten(results[:num_out])
    tangent = flat.out_tree.unflatten(out_tangents)
    if has_aux:
        return out, tangent, flat.aux(results[num_out:count])
    return out, tangent


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """The value of `fun` and its derivative as a linear function of tangents.

    The returned function runs no part of `fun` again. Returns `(out, f_jvp)`, with `has_aux`
    `(out, f_jvp, aux)`.

    Args: fun: a function of arrays; primals: its arguments, at which to linearize; has_aux: whether
    it returns a pair, of which the second is passed through.

    Example:
        >>> y, f_jvp = ferrax.linearize(jnp.sin, 0.0)
        >>> f_jvp(2.0)
        Array(2., dtype=float32, weak_type=True)
    """
    api_util.check_callable(fun)
    point = _Linearized(fun, primals, has_aux)
    out, aux, residuals = point.take()
    f_jvp = tree_util.Partial(_Push(point, tree_util.tree_structure(primals)), residuals)
    return (out, f_jvp, aux) if has_aux else (out, f_jvp)


class _Push:
    """The derivative at a point as a function of residuals and tangents."""

    __slots__ = ("point", "tree")

    def __init__(self, point, tree):
        self.point = point
        self.tree = tree

    def __call__(self, residuals, *tangents):
        leaves, tree = tree_util.tree_flatten(tangents)
        checked = _check_tangents(
            "linearized function", self.point.in_types, leaves, self.tree, tree, ValueError
        )
        return self.point.flat.out_tree.unflatten(self.point.pushforward(residuals, checked))


class _Pull(_Push):
    """The transposed derivative at a point as a function of residuals and cotangents."""

    __slots__ = ()

    def __call__(self, residuals, cotangent):
        point = self.point
        leaves, tree = tree_util.tree_flatten(cotangent)
        if tree != point.flat.out_tree:
            raise ValueError(
                f"unexpected tree structure of argument to vjp function: got {tree}, but expected "
                f"to match {point.flat.out_tree}"
            )
        checked = _check_cotangents(leaves, point.out_types)
        return self.tree.unflatten(point.cotangent_or_zeros(point.pullback(residuals, checked)))


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False, reduce_axes: tuple[()] = ()) -> tuple[Any, ...]:
    """The value of `fun` and the function from output to input cotangents.

    Returns `(out, f_vjp)`, with `has_aux` `(out, f_vjp, aux)`. `f_vjp` takes a tree like the
    output and returns a tuple with one entry for each primal; `f_vjp.with_refs` adds cotangents to
    mutable arrays.

    Errors: `f_vjp` raises ValueError for another structure, shape or dtype.
    Args: fun: a function of arrays; primals: its arguments; has_aux: whether it returns a pair, of
    which the second is passed through; reduce_axes: must be empty.

    Example:
        >>> y, f_vjp = ferrax.vjp(jnp.multiply, 2.0, 3.0)
        >>> f_vjp(1.0)
        (Array(3., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    if reduce_axes:
        raise NotImplementedError("vjp: reduce_axes is not supported")
    api_util.check_callable(fun)
    point = _Linearized(fun, primals, has_aux)
    out, aux, residuals = point.take()
    f_vjp = VJP(_Pull(point, tree_util.tree_structure(primals)), residuals)
    return (out, f_vjp, aux) if has_aux else (out, f_vjp)


def _check_cotangents(leaves, types):
    checked: list[Any] = []
    for leaf, (shape, dtype, _) in zip(leaves, types):
        if not dtypes.has_tangent(dtype):
            checked.append(None)
            continue
        if isinstance(leaf, np.ndarray) and leaf.dtype == float0:
            got_shape, got_dtype = leaf.shape, float0
        else:
            leaf = core.as_array(leaf, "vjp")
            got_shape, got_dtype = leaf.shape, leaf.dtype
        if got_shape != shape or got_dtype != dtype:
            raise ValueError(
                f"unexpected JAX type (e.g. shape/dtype) for argument to vjp function: got "
                f"{np.dtype(got_dtype).name}{list(got_shape)}, but expected "
                f"{dtype.name}{list(shape)} "
                f"because the corresponding output of the differentiated function had that type"
            )
        checked.append(leaf)
    return checked


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
    every = [dtype for _, dtype, _ in [*types, *out_types]]
    integers = all(dtypes.issubdtype(dtype, np.integer) for dtype in every)
    if not integers and not all(map(dtypes.has_tangent, every)):
        raise TypeError(
            "linear_transpose only supports functions of floats and complex numbers, or of "
            f"integers, to such, got {[dtype.name for _, dtype, _ in types]} -> "
            f"{[dtype.name for _, dtype, _ in out_types]}."
        )

    def transposed(cotangent):
        ct_leaves, ct_tree = tree_util.tree_flatten(cotangent)
        if ct_tree != flat.out_tree:
            raise TypeError(
                f"cotangent tree does not match that of the output, {flat.out_tree}: got "
                f"{ct_tree}"
            )
        given = []
        for leaf, (shape, dtype, _) in zip(ct_leaves, out_types):
            leaf = core.as_array(leaf, "linear_transpose")
            if leaf.shape != shape or leaf.dtype != dtype:
                raise TypeError(
                    "cotangent type does not match function output, expected "
                    f"{dtype.name}{list(shape)} "
                    f"but got {leaf.dtype.name}{list(leaf.shape)}"
                )
            given.append(leaf)
        flags_in = [True] * len(leaves) + [False] * len(captured)
        back, flags = program.transpose(flags_in, [True] * len(given))
        results = iter(_core.apply_program(back, captured + given))
        return tree.unflatten(
            [
                next(results) if flag else _zeros(*ty) for flag, ty in zip(flags, types)
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
    argnums = _check_argnums(argnums, "fwd_and_bwd")

    def forward(*args, **kwargs):
        chosen, merge, _ = _select(argnums, args, fun)
        return vjp(lambda *c: fun(*merge(c), **kwargs), *chosen, has_aux=has_aux)

    def backward(pull, cotangents):
        result = pull(cotangents)
        return result if isinstance(argnums, tuple) else result[0]

    return (jit(forward), jit(backward)) if jitted else (forward, backward)
