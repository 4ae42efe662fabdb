"""`custom_root` and `custom_linear_solve`: solvers differentiated at the solution.

By the implicit function theorem the derivative of a root u(m) of F(m, u) = 0 is the solution of
the linear system (dF/du) du = -(dF/dm) dm; that of x with A x = b solves A dx = db - dA x. The
solver itself is not differentiated.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ferrax._src import core
from ferrax._src.core import named_axes
from ferrax._src.core.jaxpr import ClosedJaxpr
from ferrax._src.core.lowering import lower_fun, register_lowering
from ferrax._src.core.primitives import (
    Primitive,
    apply_program,
    axis_primitive_batchers,
    data_forms,
    primitive_jvps,
    primitive_transposes,
)
from ferrax._src.core.typing import ArrayLike
from ferrax._src.lax.shape import broadcast
from ferrax._src.lax.varying import lying, missing
from ferrax._src.tracing import staging
from ferrax._src.transforms import autodiff
from ferrax._src.transforms.ad import Zero, add_tangents, instantiate_zeros, is_undefined_primal
from ferrax._src.transforms.batching_rules import moveaxis
from ferrax._src.transforms.custom_jvp import custom_jvp
from ferrax._src.transforms.custom_rules import array_types, zeros
from ferrax._src.transforms.linear_call import constants_first
from ferrax._src.tree import tree_util

__all__ = ["custom_linear_solve", "custom_root"]


class _Function:
    """A function traced over `example`: its program, its output's tree, and what it captures,
    which are the program's last inputs."""

    def __init__(self, fun, *example):
        self.program, self.captured, flat = staging.stage(fun, example, {})
        self.out_tree = flat.out_tree

    def constants_first(self):
        """The jaxpr with what it captures as its first inputs, as JAX has it."""
        return ClosedJaxpr(constants_first(self.program, len(self.captured)))


def _check_tree(name, expected_name, actual, expected, has_aux=False):
    if has_aux:
        children = actual.children()
        if len(children) != 2:
            raise ValueError(
                f"{name}() returned {actual}; with has_aux=True, a pair of the solution and "
                "the auxiliary output is expected"
            )
        actual = children[0]
    if actual != expected:
        raise TypeError(
            f"{name}() has to return the structure of {expected_name}, {expected}; got "
            f"{actual}"
        )


def custom_root(
    f: Callable[..., Any], initial_guess: Any, solve: Callable[..., Any],
    tangent_solve: Callable[..., Any], has_aux: bool = False,
) -> Any:
    """A root of a function, with derivatives by the implicit function theorem.

    Args:
      f: a function of one tree of arrays to a tree of the same structure. What it closes over is
        what the root is differentiated in.
      initial_guess: where `solve` begins.
      solve: `solve(f, initial_guess)` returns a root, of the structure of `initial_guess`.
      tangent_solve: `tangent_solve(g, y)` returns the `x` with `g(x) == y`, where `g` is `f`
        linearized at its root: `lambda g, y: y / g(1.0)` for scalars.
      has_aux: whether `solve` returns `(root, auxiliary data)`; the data has no derivatives.

    Returns: what `solve(f, initial_guess)` returns. That it is a root is not checked.

    Errors: TypeError where a function returns another structure than `initial_guess`; ValueError
    where `solve` returns no pair though `has_aux`.

    Example:
        >>> def root(c):
        ...     newton = lambda f, x: x - f(x) / ferrax.grad(f)(x)
        ...     solve = lambda f, x: lax.fori_loop(0, 9, lambda _, x: newton(f, x), x)
        ...     return lax.custom_root(lambda x: x**2 - c, 1.0, solve, lambda g, y: y / g(1.0))
        >>> ferrax.grad(root)(4.0)
        Array(0.25, dtype=float32, weak_type=True)
    """
    guess, tree = tree_util.tree_flatten(initial_guess)
    function = _Function(f, initial_guess)
    _check_tree("f", "initial_guess", function.out_tree, tree)
    solver = _Function(functools.partial(solve, f), initial_guess)
    _check_tree("solve", "initial_guess", solver.out_tree, tree, has_aux)

    def linearize_and_solve(x, b):
        return tangent_solve(autodiff.linearize(f, x)[1], b)

    tangent = _Function(linearize_and_solve, initial_guess, initial_guess)
    _check_tree("tangent_solve", "x", tangent.out_tree, tree)

    @custom_jvp
    def root(f_captured, solve_captured, tangent_captured, guess):
        return apply_program(solver.program, [*guess, *solve_captured])

    @root.defjvp
    def root_jvp(primals, tangents):
        f_captured, _, tangent_captured, _ = primals
        results = root(*primals)
        solution, aux = results[: len(guess)], results[len(guess) :]

        def at_solution(captured):
            return apply_program(function.program, [*solution, *captured])

        _, rhs = autodiff.jvp(at_solution, (f_captured,), (tangents[0],))
        found = apply_program(tangent.program, [*solution, *rhs, *tangent_captured])
        return results, [*map(operator.neg, found), *map(zeros, array_types(aux))]

    results = root(function.captured, solver.captured, tangent.captured, guess)
    return solver.out_tree.unflatten(results)


class _Solve(NamedTuple):
    """Something for each of the four functions of a linear solve."""

    matvec: Any
    vecmat: Any
    solve: Any
    transpose_solve: Any

    def transpose(self):
        return _Solve(self.vecmat, self.matvec, self.transpose_solve, self.solve)


def custom_linear_solve(
    matvec: Callable[..., Any], b: ArrayLike, solve: Callable[..., Any],
    transpose_solve: Callable[..., Any] | None = None, symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """The solution of a linear system by a solver of one's own, differentiated at the solution.

    Args:
      matvec: the linear map, of trees of the structure of `b`. What it closes over is what the
        solution is differentiated in, beside `b`.
      b: the right-hand side, a tree of arrays.
      solve: `solve(matvec, b)` returns the `x` with `matvec(x) == b`. It need not be
        differentiable.
      transpose_solve: the same for the transposed map, `transpose_solve(vecmat, b)`. Reverse-mode
        differentiation needs it, unless `symmetric`.
      symmetric: whether the map is its own transpose, so that `solve` solves both.
      has_aux: whether the solvers return `(x, auxiliary data)`; the data has no derivatives.

    Returns: what `solve(matvec, b)` returns. That it is a solution is not checked.

    Errors: TypeError where a function returns another structure than that of `b`, and for reverse
    mode without `transpose_solve`; ValueError for other shapes, or where a solver returns no pair
    though `has_aux`.

    Example:
        >>> a = jnp.array([[2.0, 0.0], [0.0, 4.0]])
        >>> solve = lambda matvec, b: b / jnp.diagonal(a)
        >>> lax.custom_linear_solve(lambda x: a @ x, jnp.ones(2), solve, symmetric=True)
        Array([0.5 , 0.25], dtype=float32)
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    leaves, tree = tree_util.tree_flatten(b)
    shapes = [np.shape(leaf) for leaf in leaves]

    def traced(name, fun, aux):
        def checked(x):
            result = fun(x)
            if aux and not (isinstance(result, (tuple, list)) and len(result) == 2):
                _check_tree(name, "b", tree_util.tree_structure(result), tree, aux)
            values = result[0] if aux else result
            found = [np.shape(leaf) for leaf in tree_util.tree_leaves(values)]
            if found != shapes and len(found) == len(shapes):
                raise ValueError(
                    f"{name}() output shapes must match b, got {found} and {shapes}"
                )
            return result

        function = _Function(checked, b)
        _check_tree(name, "b", function.out_tree, tree, aux)
        return function

    product = traced("matvec", matvec, False)
    # Where the map differs between the devices of a mesh, so do the solution and the right-hand side: a sum over
    # the devices in the transposed map would be one of other systems.
    varying = {name for ty in product.program.out_types for names in ty[3:] for name in names}
    if varying and any(missing(leaf, varying) for leaf in map(core.as_array, leaves)):
        leaves = [lying(leaf, varying) for leaf in map(core.as_array, leaves)]
        b = tree.unflatten(leaves)
        product = traced("matvec", matvec, False)
    functions = _Solve(
        product, None, traced("solve", functools.partial(solve, matvec), has_aux), None
    )
    if transpose_solve is not None:
        if symmetric:
            vecmat, transposed = matvec, functions.matvec
        else:
            transposing = autodiff.linear_transpose(matvec, b)
            vecmat = lambda x: transposing(x)[0]  # noqa: E731
            transposed = traced("vecmat", vecmat, False)
        back = traced(
            "transpose_solve", functools.partial(transpose_solve, vecmat), has_aux
        )
        functions = functions._replace(vecmat=transposed, transpose_solve=back)
    captured = [[] if fun is None else fun.captured for fun in functions]
    results = linear_solve_p.bind(
        *(value for values in captured for value in values),
        *leaves,
        const_lengths=_Solve(*map(len, captured)),
        jaxprs=_Solve(*(fun and fun.constants_first() for fun in functions)),
    )
    return functions.solve.out_tree.unflatten(results)


def _split(args, const_lengths):
    """The values that each function captures, and the right-hand side."""
    parts, start = [], 0
    for length in const_lengths:
        parts.append(list(args[start : start + length]))
        start += length
    return _Solve(*parts), list(args[start:])


def _join(params, b):
    return [*(value for values in params for value in values), *b]


def _run(*args, const_lengths, jaxprs):
    params, b = _split(args, const_lengths)
    return jaxprs.solve._run([*params.solve, *b])


def _jvp(primals, tangents, *, const_lengths, jaxprs):
    bind = functools.partial(linear_solve_p.bind, const_lengths=const_lengths, jaxprs=jaxprs)
    params, b = _split(primals, const_lengths)
    params_dot, b_dot = _split(tangents, const_lengths)
    results = bind(*primals)
    solution = results[: len(b)]
    rhs = b_dot
    given = [type(t) is not Zero for t in params_dot.matvec]
    if any(given):
        program, flags = jaxprs.matvec._to_program().jvp(given + [False] * len(b))
        there = [t for t in params_dot.matvec if type(t) is not Zero]
        derived = apply_program(program, [*params.matvec, *solution, *there])
        moved = iter(derived[len(flags) :])
        changes = [-next(moved) if flag else None for flag in flags]
        rhs = [t if m is None else add_tangents(t, m) for t, m in zip(rhs, changes)]
    found = bind(*_join(params, map(instantiate_zeros, rhs)))
    aux = results[len(b) :]
    return results, [*found[: len(b)], *map(Zero.from_primal_value, aux)]


def _transpose(cotangents, *args, const_lengths, jaxprs):
    if jaxprs.transpose_solve is None:
        raise TypeError(
            "custom_linear_solve: reverse-mode derivatives solve the transposed system, for which "
            "there is no transpose_solve: give it, or symmetric=True"
        )
    params, b = _split(args, const_lengths)
    if any(is_undefined_primal(value) for values in params for value in values):
        raise NotImplementedError(
            "custom_linear_solve: the solution is not linear in what the functions close over"
        )
    results = linear_solve_p.bind(
        *_join(params.transpose(), map(instantiate_zeros, cotangents[: len(b)])),
        const_lengths=const_lengths.transpose(),
        jaxprs=jaxprs.transpose(),
    )
    return [None] * sum(const_lengths) + results[: len(b)]


def _batch(size, axis_name, trace_type, args, dims, *, const_lengths, jaxprs):
    params, b = _split(args, const_lengths)
    params_dims, b_dims = _split(dims, const_lengths)
    # The solution and the right-hand side are batched whole: both are inputs and outputs.
    b = [
        broadcast(x, (size,)) if dim is None else moveaxis(x, dim, 0)
        for x, dim in zip(b, b_dims)
    ]

    def batched(jaxpr, captured_dims):
        if jaxpr is None:
            return None
        program = jaxpr._to_program()
        in_dims = captured_dims + [0] * len(b)
        out_dims = [0] * len(program.out_types)
        axis = None if axis_name is None else named_axes.text(axis_name)
        return ClosedJaxpr(program.batch(size, in_dims, out_dims, axis)[0])

    results = linear_solve_p.bind(
        *_join(params, b),
        const_lengths=const_lengths,
        jaxprs=_Solve(*map(batched, jaxprs, params_dims)),
    )
    return results, [0] * len(results)


def _as_data(rules, *, const_lengths, jaxprs):
    """As `custom_linear_solve` of the native core, whose programs take all parameters first."""
    programs = [None if jaxpr is None else jaxpr._to_program() for jaxpr in jaxprs]
    total = sum(const_lengths)
    types: list[Any] = []
    for program, length in zip(programs, const_lengths):
        types += [] if program is None else program.in_types[:length]

    def over_all(program, start, length):
        if program is None:
            return None
        inputs = list(types)
        inputs[start : start + length] = range(length)
        return program.rewire([*inputs, *range(length, len(program.in_types))])

    starts = [sum(const_lengths[:place]) for place in range(len(const_lengths))]
    whole = _Solve(*map(over_all, programs, starts, const_lengths))
    return "custom_linear_solve", dict(whole._asdict(), num_params=total)


linear_solve_p = Primitive("custom_linear_solve")
linear_solve_p.multiple_results = True
linear_solve_p.def_impl(_run)
linear_solve_p.def_effectful_abstract_eval(
    lambda *avals, const_lengths, jaxprs: (jaxprs.solve.out_avals, jaxprs.solve.effects)
)
primitive_jvps[linear_solve_p] = _jvp
primitive_transposes[linear_solve_p] = _transpose
axis_primitive_batchers[linear_solve_p] = _batch
data_forms[linear_solve_p] = _as_data
register_lowering(linear_solve_p, lower_fun(_run, multiple_results=True))
