"""`custom_root` and `custom_linear_solve` against JAX: solutions, derivatives of every order and
composition, auxiliary data, errors."""

import functools

import numpy as np
import pytest
from oracle import same
from test_custom_jvp import arrays, ramp


def newton(S, steps=12):
    def solve(f, x):
        return S.lax.fori_loop(0, steps, lambda _, x: x - f(x) / S.jax.grad(f)(x), x)

    return solve


def scalar_solve(g, y):
    return y / g(1.0)


def square_root(S, c):
    return S.lax.custom_root(lambda x: x * x - c, 1.0, newton(S), scalar_solve)


def bisected(S, c):
    """A root by a loop that reverse mode could not go through."""

    def solve(f, x):
        def body(bounds):
            low, high = bounds
            middle = (low + high) / 2
            return S.lax.cond(f(middle) > 0, lambda: (low, middle), lambda: (middle, high))

        return S.lax.while_loop(lambda b: b[1] - b[0] > 1e-6, body, (x * 0, x * 0 + 8))[0]

    return S.lax.custom_root(lambda x: x**3 - c, S.jnp.float32(1), solve, scalar_solve)


def inverse(S, m):
    """The inverse of a matrix of two rows: small enough to be written down."""
    (a, b), (c, d) = (m[0, 0], m[0, 1]), (m[1, 0], m[1, 1])
    return S.jnp.stack([S.jnp.stack([d, -b]), S.jnp.stack([-c, a])]) / (a * d - b * c)


def dense(S, g, y):
    """The solution of g(x) = y for a linear map of vectors of two."""
    return inverse(S, S.jax.jacobian(g)(y)) @ y


def circle(S, r):
    """Where a circle meets a line, as a tree."""

    def f(u):
        return {"x": u["x"] ** 2 + u["y"] ** 2 - r * r, "y": u["x"] - 2 * u["y"]}

    def flat(f):
        def g(v):
            out = f({"x": v[0], "y": v[1]})
            return S.jnp.stack([out["x"], out["y"]])

        return g

    def solve(f, u):
        g = flat(f)
        step = lambda _, v: v - inverse(S, S.jax.jacfwd(g)(v)) @ g(v)  # noqa: E731
        v = S.lax.fori_loop(0, 12, step, S.jnp.stack([u["x"], u["y"]]))
        return {"x": v[0], "y": v[1]}

    def tangent_solve(g, y):
        v = dense(S, flat(g), S.jnp.stack([y["x"], y["y"]]))
        return {"x": v[0], "y": v[1]}

    one = S.jnp.float32(1)
    return S.lax.custom_root(f, {"x": one, "y": one}, solve, tangent_solve)


def with_aux(S, c):
    solve = lambda f, x: (newton(S)(f, x), {"steps": S.jnp.float32(12), "start": x})  # noqa: E731
    return S.lax.custom_root(lambda x: x * x - c, 1.0, solve, scalar_solve, has_aux=True)


def root_with(S, **changes):
    given = {
        "f": lambda x: x * x - 4.0,
        "initial_guess": 1.0,
        "solve": newton(S),
        "tangent_solve": scalar_solve,
    }
    return S.lax.custom_root(**{**given, **changes})


def matrix(S):
    return S.jnp.asarray([[3.0, 1.0], [0.5, 2.0]], "float32")


def solve_system(S, m, b, **options):
    """m x = b by the inverse of what the map gives for unit vectors."""
    options.setdefault("transpose_solve", functools.partial(dense, S))
    return S.lax.custom_linear_solve(lambda x: m @ x, b, functools.partial(dense, S), **options)


def symmetric_system(S, m, b):
    return solve_system(S, m + m.T, b, transpose_solve=None, symmetric=True)


def by_iteration(S, d, b):
    """A diagonal system by a while loop, on a tree."""

    def matvec(x):
        return {"u": d * x["u"], "v": (x["v"][0] * 2,)}

    def solve(matvec, b):
        start = S.jax.tree_util.tree_map(S.jnp.zeros_like, b)

        def body(state):
            i, x = state
            residual = S.jax.tree_util.tree_map(lambda b, a: b - a, b, matvec(x))
            return i + 1, S.jax.tree_util.tree_map(lambda x, r: x + 0.4 * r, x, residual)

        return S.lax.while_loop(lambda state: state[0] < 60, body, (0, start))[1]

    return S.lax.custom_linear_solve(matvec, b, solve, symmetric=True)


def right_side(S):
    return {"u": ramp(S, 3), "v": (S.jnp.float32(3),)}


def diagonal(S):
    return S.jnp.asarray([1.0, 2.0, 1.5], "float32")


def solve_aux(S, m, b):
    solver = lambda matvec, b: (dense(S, matvec, b), {"norm": (b * b).sum(), "n": 3})  # noqa: E731
    return S.lax.custom_linear_solve(lambda x: m @ x, b, solver, solver, has_aux=True)


def total(f):
    return lambda *args: f(*args).sum()


def linear_with(S, **changes):
    given = {"matvec": lambda x: 2 * x, "b": ramp(S, 2), "solve": lambda f, b: b / 2}
    return S.lax.custom_linear_solve(**{**given, **changes})


B = np.asarray([1.0, 2.0], "float32")

CASES = {
    # roots
    "root": lambda S: square_root(S, 4.0),
    "root_jit": lambda S: S.jax.jit(lambda c: square_root(S, c))(4.0),
    "root_jvp": lambda S: S.jax.jvp(lambda c: square_root(S, c), (4.0,), (2.0,)),
    "root_grad": lambda S: S.jax.grad(lambda c: square_root(S, c))(4.0),
    "root_jit_grad": lambda S: S.jax.jit(S.jax.grad(lambda c: square_root(S, c)))(4.0),
    "root_grad_grad": lambda S: S.jax.grad(S.jax.grad(lambda c: square_root(S, c)))(4.0),
    "root_vmap": lambda S: S.jax.vmap(lambda c: square_root(S, c))(ramp(S, 4)),
    "root_vmap_grad": lambda S: S.jax.vmap(S.jax.grad(lambda c: square_root(S, c)))(ramp(S, 4)),
    "root_grad_vmap": lambda S: S.jax.grad(
        lambda c: S.jax.vmap(lambda c: square_root(S, c))(c).sum())(ramp(S, 4)),
    "root_scan": lambda S: S.jax.grad(
        lambda c: S.lax.scan(lambda s, e: (square_root(S, s + e), None), c, ramp(S, 3))[0])(S.jnp.float32(4)),
    "root_checkpoint": lambda S: S.jax.grad(S.jax.checkpoint(lambda c: square_root(S, c)))(4.0),
    "root_while": lambda S: S.jax.value_and_grad(lambda c: bisected(S, c))(27.0),
    "root_while_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda c: bisected(S, c)))(ramp(S, 3) * 32),
    "root_tree": lambda S: circle(S, 5.0**0.5),
    "root_tree_jvp": lambda S: S.jax.jvp(
        lambda r: circle(S, r), (S.jnp.float32(3),), (S.jnp.float32(1),)),
    "root_tree_grad": lambda S: S.jax.grad(lambda r: circle(S, r)["x"])(3.0),
    "root_tree_grad_jit": lambda S: S.jax.jit(S.jax.grad(lambda r: circle(S, r)["y"]))(3.0),
    "root_guess": lambda S: S.jax.grad(lambda x: root_with(S, initial_guess=x))(1.0),
    "root_integer": lambda S: S.jax.grad(lambda c: S.jax.jit(
        lambda n: root_with(S, f=lambda x: x**2 - c * n))(3))(4.0),
    "root_aux": lambda S: with_aux(S, 4.0),
    "root_aux_grad": lambda S: S.jax.grad(lambda c: with_aux(S, c)[0])(4.0),
    "root_aux_has_aux": lambda S: S.jax.grad(lambda c: with_aux(S, c), has_aux=True)(4.0),
    "root_aux_jvp": lambda S: S.jax.jvp(
        lambda c: with_aux(S, c)[1]["start"], (S.jnp.float32(4),), (S.jnp.float32(1),)),
    "root_f_tree": lambda S: root_with(S, f=lambda x: (x,)),
    "root_solve_tree": lambda S: root_with(S, solve=lambda f, x: [x]),
    "root_tangent_tree": lambda S: root_with(S, tangent_solve=lambda g, y: (y,)),
    "root_aux_missing": lambda S: root_with(S, has_aux=True),
    # linear systems
    "linear": lambda S: solve_system(S, matrix(S), B),
    "linear_jit": lambda S: S.jax.jit(lambda m, b: solve_system(S, m, b))(matrix(S), B),
    "linear_jvp": lambda S: S.jax.jvp(
        lambda m, b: solve_system(S, m, b), (matrix(S), ramp(S, 2)), (matrix(S), ramp(S, 2))),
    "linear_jvp_b": lambda S: S.jax.jvp(
        lambda b: solve_system(S, matrix(S), b), (ramp(S, 2),), (ramp(S, 2),)),
    "linear_grad": lambda S: S.jax.grad(
        total(lambda m, b: solve_system(S, m, b)), (0, 1))(matrix(S), ramp(S, 2)),
    "linear_jit_grad": lambda S: S.jax.jit(S.jax.grad(
        total(lambda m, b: solve_system(S, m, b)), (0, 1)))(matrix(S), ramp(S, 2)),
    "linear_jacobian": lambda S: S.jax.jacfwd(lambda m: solve_system(S, m, ramp(S, 2)))(matrix(S)),
    "linear_second": lambda S: S.jax.jvp(S.jax.grad(
        total(lambda m: solve_system(S, m, ramp(S, 2)) ** 2)), (matrix(S),), (matrix(S),)),
    "linear_linearize": lambda S: S.jax.linearize(
        lambda m: solve_system(S, m, ramp(S, 2)), matrix(S))[1](matrix(S)),
    "linear_transpose": lambda S: S.jax.linear_transpose(
        lambda b: solve_system(S, matrix(S), b), ramp(S, 2))(ramp(S, 2)),
    "linear_transpose_twice": lambda S: S.jax.linear_transpose(
        lambda y: S.jax.linear_transpose(lambda b: solve_system(S, matrix(S), b), ramp(S, 2))(y)[0],
        ramp(S, 2))(ramp(S, 2)),
    "linear_vmap_b": lambda S: S.jax.vmap(
        lambda b: solve_system(S, matrix(S), b), 1, 1)(ramp(S, 2, 3)),
    "linear_vmap_both": lambda S: S.jax.vmap(
        lambda m, b: solve_system(S, m, b))(ramp(S, 3, 2, 2) ** 2, ramp(S, 3, 2)),
    "linear_vmap_m": lambda S: S.jax.vmap(
        lambda m: solve_system(S, m, ramp(S, 2)))(ramp(S, 3, 2, 2) ** 2),
    "linear_vmap_grad": lambda S: S.jax.vmap(S.jax.grad(
        total(lambda m, b: solve_system(S, m, b)), (0, 1)))(ramp(S, 3, 2, 2) ** 2, ramp(S, 3, 2)),
    "linear_grad_vmap": lambda S: S.jax.grad(total(lambda m: S.jax.vmap(
        lambda b: solve_system(S, m, b))(ramp(S, 3, 2))))(matrix(S)),
    "linear_scan": lambda S: S.jax.grad(total(lambda m: S.lax.scan(
        lambda c, _: (solve_system(S, m, c), None), ramp(S, 2), None, length=2)[0]))(matrix(S)),
    "symmetric": lambda S: symmetric_system(S, matrix(S), ramp(S, 2)),
    "symmetric_grad": lambda S: S.jax.grad(
        total(lambda m, b: symmetric_system(S, m, b)), (0, 1))(matrix(S), ramp(S, 2)),
    "symmetric_grad_grad": lambda S: S.jax.grad(lambda s: S.jax.grad(
        lambda s: symmetric_system(S, s * matrix(S), ramp(S, 2)).sum())(s))(2.0),
    "tree": lambda S: by_iteration(S, diagonal(S), right_side(S)),
    "tree_grad": lambda S: S.jax.grad(
        lambda d, b: by_iteration(S, d, b)["u"].sum(), (0, 1))(diagonal(S), right_side(S)),
    "tree_vmap": lambda S: S.jax.vmap(lambda d: by_iteration(S, d, right_side(S)))(
        S.jnp.stack([diagonal(S), diagonal(S) + 0.5])),
    "tree_jit_jvp": lambda S: S.jax.jit(lambda d: S.jax.jvp(
        lambda d: by_iteration(S, d, right_side(S)), (d,), (d,)))(diagonal(S)),
    "aux": lambda S: solve_aux(S, matrix(S), ramp(S, 2)),
    "aux_grad": lambda S: S.jax.grad(
        lambda m: (lambda x, aux: x.sum() + aux["norm"])(*solve_aux(S, m, ramp(S, 2))))(matrix(S)),
    "aux_has_aux": lambda S: S.jax.grad(
        lambda b: (lambda x, aux: (x.sum(), aux))(*solve_aux(S, matrix(S), b)), has_aux=True)(ramp(S, 2)),
    "aux_vmap": lambda S: S.jax.vmap(lambda b: solve_aux(S, matrix(S), b)[1]["norm"])(ramp(S, 3, 2)),
    "no_transpose": lambda S: solve_system(S, matrix(S), ramp(S, 2), transpose_solve=None),
    "no_transpose_jvp": lambda S: S.jax.jvp(
        lambda m: solve_system(S, m, ramp(S, 2), transpose_solve=None), (matrix(S),), (matrix(S),)),
    "no_transpose_grad": lambda S: S.jax.grad(total(
        lambda m: solve_system(S, m, ramp(S, 2), transpose_solve=None)))(matrix(S)),
    "matvec_tree": lambda S: linear_with(S, matvec=lambda x: (x,)),
    "matvec_shape": lambda S: linear_with(S, matvec=lambda x: x[:1]),
    "solve_tree": lambda S: linear_with(S, solve=lambda f, b: [b]),
    "solve_shape": lambda S: linear_with(S, solve=lambda f, b: b.sum()),
    "transpose_shape": lambda S: linear_with(S, transpose_solve=lambda f, b: b.sum()),
    "matvec_not_linear": lambda S: linear_with(S, matvec=S.jnp.sin, transpose_solve=lambda f, b: b),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@same(ulps=64)
def test_case(S, name):
    return arrays(S, CASES[name](S))
