"""`custom_vjp`, `custom_gradient`, `closure_convert` and `linear_call` against JAX: values,
derivatives through every transformation, rules that look at values, symbolic zeros, errors."""

import functools

import numpy as np
import pytest
from oracle import FERRAX, same
from test_custom_jvp import TRANSFORMS, arrays, float0, ramp

import ferrax
import ferrax.numpy as jnp


def cubic(S, factor=2.0):
    """x ** 3 whose rule claims `factor` times the derivative, its forward rule calling it."""

    @S.jax.custom_vjp
    def f(x):
        return x * x * x

    f.defvjp(lambda x: (f(x), x), lambda x, g: (factor * 3 * x * x * g,))
    return f


def product(S):
    @S.jax.custom_vjp
    def f(x, y):
        return S.jnp.sin(x) * y

    def fwd(x, y):
        return f(x, y), (S.jnp.cos(x), S.jnp.sin(x), y)

    f.defvjp(fwd, lambda res, g: (2 * res[0] * g * res[2], res[1] * g))
    return f


def tree(S):
    """A function of trees, two outputs."""

    @S.jax.custom_vjp
    def f(p, x):
        return {"a": p["w"] * x, "b": (p["v"][0] + x, x.sum())}

    def bwd(res, g):
        p, x = res
        return (
            {"w": 3 * g["a"] * x, "v": [g["b"][0]]},
            3 * g["a"] * p["w"] + g["b"][0] + 5 * g["b"][1],
        )

    f.defvjp(lambda p, x: (f(p, x), (p, x)), bwd)
    return f


def tree_point(S):
    return {"w": ramp(S, 3), "v": [S.jnp.ones(3)]}, ramp(S, 3) * 2


def nested(S):
    inner = cubic(S)

    @S.jax.custom_vjp
    def outer(x):
        return S.jnp.sin(inner(x))

    def fwd(x):
        y, pull = S.jax.vjp(inner, x)
        return S.jnp.sin(y), (y, pull)

    def bwd(res, g):
        y, pull = res
        (x_bar,) = pull(5 * S.jnp.cos(y) * g)
        return (x_bar,)

    outer.defvjp(fwd, bwd)
    return outer


def of_jitted(S):
    @S.jax.custom_vjp
    @S.jax.jit
    def f(x):
        return x * x

    f.defvjp(S.jax.jit(lambda x: (f(x), x)), S.jax.jit(lambda x, g: (7 * x * g,)))
    return f


def of_custom_jvp(S):
    inner = S.jax.custom_jvp(lambda x: x * x)
    inner.defjvp(lambda p, t: (inner(*p), 7 * p[0] * t[0]))
    outer = S.jax.custom_vjp(inner)
    outer.defvjp(lambda x: (inner(x), x), lambda x, g: (S.jax.grad(inner)(x) * g * 2,))
    return outer


def by_gradient(S):
    @S.jax.custom_gradient
    def f(x):
        y = S.jnp.sin(x)
        return y * y, lambda g: g * y * 100

    return f


FUNCTIONS = {
    "cubic": cubic,
    "two_arguments": lambda S: (lambda f: lambda x: f(x, x * 2))(product(S)),
    "one_constant": lambda S: (lambda f: lambda x: f(x, 3.0))(product(S)),
    "nested": nested,
    "inside_jit": lambda S: S.jax.jit(cubic(S)),
    "of_jitted": of_jitted,
    "of_custom_jvp": of_custom_jvp,
    "custom_gradient": by_gradient,
}
# In forward mode one message is like the other. Forward over reverse mode goes through here where
# only values that nobody uses come from such functions; there JAX refuses.
FORWARD = ("jvp", "hessian", "linearize", "jacfwd")
REVERSE = [name for name in TRANSFORMS if not any(part in name for part in FORWARD)]
REVERSE += ["jvp", "linearize"]
FEW = ("jit", "grad", "grad_grad", "vmap_grad", "grad_scan", "checkpoint")
PICKS = [("cubic", transform) for transform in REVERSE] + [
    (function, transform) for function in FUNCTIONS if function != "cubic" for transform in FEW
]


@pytest.mark.parametrize("function, transform", PICKS)
@same
def test_transforms(S, function, transform):
    return TRANSFORMS[transform](S, FUNCTIONS[function](S), S.jnp.float32(0.5))


def with_rules(S, fwd, bwd, fun=None, **options):
    f = S.jax.custom_vjp(fun or (lambda x: x * 2))
    f.defvjp(fwd, bwd, **options)
    return f


def with_bwd(S, bwd, fun=None):
    """`fun` with its arguments as residuals."""
    fun = fun or (lambda x: x * 2)
    return with_rules(S, lambda *args: (fun(*args), args), bwd, fun)


def curve(S):
    """Function and rules branch on values, at every order."""

    @S.jax.custom_vjp
    def f(x):
        return x**3 if x > 1 else -x

    def fwd(x):
        return f(x), (x if x > 1 else x * 10, f(x))

    def bwd(res, g):
        x, out = res
        return ((x * x if x > 4 else x * x * x * out) * g,)

    f.defvjp(fwd, bwd)
    return f


def on_the_host(S):
    """A function that NumPy computes, with its derivative."""
    f = S.jax.custom_vjp(lambda x: S.jnp.asarray(np.sin(np.asarray(x))))
    f.defvjp(lambda x: (f(x), S.jnp.asarray(np.cos(np.asarray(x)))), lambda slope, g: (slope * g,))
    return f


def branch_on_cotangent(S):
    return with_rules(S, lambda x: (x, None), lambda _, g: (g * 3 if g > 1 else g,), lambda x: x)


def nondiff(S):
    @functools.partial(S.jax.custom_vjp, nondiff_argnums=(0, 2))
    def apply(fun, x, n):
        return fun(x) * n

    def fwd(fun, x, n):
        return apply(fun, x, n), x

    apply.defvjp(fwd, lambda fun, n, x, g: (100 * n * g * fun(x),))
    return apply


def named(S):
    @functools.partial(S.jax.custom_vjp, nondiff_argnames=("mode",))
    def apply(x, mode="double"):
        return x * (2 if mode == "double" else 1)

    apply.defvjp(
        lambda x, mode: (apply(x, mode), None),
        lambda mode, _, g: (g * (200 if mode == "double" else 100),),
    )
    return apply


def integers(S):
    @S.jax.custom_vjp
    def f(x, n):
        return x * n, n + 1

    def bwd(n, g):
        assert g[1].dtype == S.jax.dtypes.float0
        return 3 * g[0] * n, None

    f.defvjp(lambda x, n: (f(x, n), n), bwd)
    return f


def symbolic(S, seen=None):
    """A rule that tells which arguments are differentiated in, which outputs are used."""
    zero = S.jax.custom_derivatives.SymbolicZero

    @S.jax.custom_vjp
    def f(x, y):
        return x * y, x + y

    def fwd(x, y):
        flags = (x.perturbed, y.perturbed)
        if seen is not None:
            seen.append(flags)
        x, y = S.jax.custom_derivatives.custom_vjp_primal_tree_values((x, y))
        return f(x, y), (x, y, 1.0 if flags[0] else 10.0)

    def bwd(res, g):
        x, y, factor = res
        kinds = [type(part) is zero for part in g]
        if seen is not None:
            seen.append(kinds)
        if kinds[0]:
            assert g[0].shape == () and g[0].dtype == np.float32
            return factor * 1000 * g[1], factor * 2000 * g[1]
        if kinds[1]:
            return factor * g[0] * y, factor * g[0] * x
        return factor * (g[0] * y + g[1]), factor * (g[0] * x + g[1])

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    return f


def closing_over(S, rule_too=True):
    def outer(y):
        @S.jax.custom_vjp
        def f(x):
            return x * y

        f.defvjp(lambda x: (f(x), None), lambda _, g: (g * (y if rule_too else 5),))
        return f

    return outer


def counted(S):
    calls = []

    @S.jax.custom_vjp
    def f(x):
        return x * 1.0

    def fwd(x):
        calls.append("fwd")
        return f(x), None

    def bwd(_, g):
        calls.append("bwd")
        return (g,)

    f.defvjp(fwd, bwd)
    return f, calls


def telling_rules(S, optimised=True):
    """A function whose forward rule computes something else."""
    f = S.jax.custom_vjp(S.jnp.tan)
    f.defvjp(
        lambda x: (S.jnp.sin(x), S.jnp.cos(x)), lambda res, g: (g * res,), optimize_remat=optimised
    )
    return f


REMATERIALISED = {
    "plain": lambda S, f: f,
    "jit": lambda S, f: S.jax.jit(f),
    "checkpoint": lambda S, f: S.jax.checkpoint(f),
    "in_checkpoint": lambda S, f: S.jax.jit(S.jax.checkpoint(lambda x: S.jnp.exp(S.jax.jit(f)(x) * 2))),
    "vmap": lambda S, f: lambda x: S.jnp.sum(S.jax.checkpoint(S.jax.vmap(f))(S.jnp.stack([x, x + 1]))),
    "kept": lambda S, f: S.jax.checkpoint(f, policy=S.jax.checkpoint_policies.everything_saveable),
    "policy": lambda S, f: S.jax.checkpoint(f, policy=S.jax.checkpoint_policies.dots_saveable),
    "scan": lambda S, f: lambda x: S.lax.scan(
        lambda c, _: (S.jax.checkpoint(f)(c), None), x, None, length=2)[0],
    "beside_others": lambda S, f: S.jax.checkpoint(lambda x: telling_rules(S, False)(x) + 2 * f(x)),
}  # fmt: skip


def remat_optimised(S):
    @S.jax.custom_vjp
    def f(x):
        return S.jnp.sin(x)

    f.defvjp(
        lambda x: (f(x), (x, S.jnp.cos(x))), lambda res, g: (3 * res[1] * g,), optimize_remat=True
    )
    return f


def minimise(S):
    """The root of a function of one argument by Newton steps: the classic use of
    `closure_convert`."""

    def root(objective, x0):
        converted, extra = S.jax.closure_convert(objective, x0)
        return solve(converted, x0, *extra)

    @functools.partial(S.jax.custom_vjp, nondiff_argnums=(0,))
    def solve(objective, x0, *extra):
        step = lambda _, x: x - objective(x, *extra) / S.jax.grad(objective)(x, *extra)  # noqa: E731
        return S.lax.fori_loop(0, 12, step, x0)

    def fwd(objective, x0, *extra):
        root = solve(objective, x0, *extra)
        return root, (root, extra)

    def bwd(objective, res, g):
        root, extra = res
        slope = S.jax.grad(objective)(root, *extra)
        _, pull = S.jax.vjp(lambda *extra: objective(root, *extra), *extra)
        return 0.0 * root, *pull(-g / slope)

    solve.defvjp(fwd, bwd)
    return root


def half(S, x, r=2.0):
    """x / r, whose transpose claims to be a multiplication by 100 / r."""
    call = S.jax.custom_derivatives.linear_call
    return call(lambda r, x: x / r, lambda r, y: 100 * y / r, r, x)


def halves(S, tree, r):
    call = S.jax.custom_derivatives.linear_call
    fun = lambda r, t: [t["a"] / r[0], t["b"] + t["a"]]  # noqa: E731
    back = lambda r, y: {"a": y[0] / r[0] + y[1], "b": y[1] * 7}  # noqa: E731
    return call(fun, back, r, tree)


def transposed(S, f, x):
    return lambda y: S.jax.linear_transpose(f, x)(y)[0]


CASES = {
    # pytrees, several outputs, unused inputs and outputs
    "tree_call": lambda S: tree(S)(*tree_point(S)),
    "tree_jit": lambda S: S.jax.jit(tree(S))(*tree_point(S)),
    "tree_grad": lambda S: S.jax.grad(lambda p, x: tree(S)(p, x)["a"].sum(), argnums=(0, 1))(*tree_point(S)),
    "tree_grad_other": lambda S: S.jax.grad(lambda p, x: tree(S)(p, x)["b"][1], argnums=(0, 1))(*tree_point(S)),
    "tree_grad_one": lambda S: S.jax.grad(lambda x: tree(S)(tree_point(S)[0], x)["b"][0].sum())(ramp(S, 3)),
    "tree_vjp": lambda S: (lambda out, pull: pull(out))(*S.jax.vjp(tree(S), *tree_point(S))),
    "tree_vmap": lambda S: S.jax.vmap(tree(S))(*tree_point(S)),
    "tree_vmap_vjp": lambda S: S.jax.vmap(
        lambda p, x: (lambda out, pull: pull(out))(*S.jax.vjp(tree(S), p, x)),
        in_axes=({"w": 0, "v": None}, None))(*tree_point(S)),
    "tree_jacobian": lambda S: S.jax.jacrev(lambda x: tree(S)(tree_point(S)[0], x)["b"][1])(ramp(S, 3)),
    "none_argument": lambda S: S.jax.grad(with_bwd(
        S, lambda res, g: (g * 3, None), lambda x, y: x), 0)(1.0, None),
    "no_arguments": lambda S: with_rules(S, lambda: (1.0, None), lambda r, g: (), lambda: 1.0)(),
    "no_outputs": lambda S: S.jax.vjp(with_bwd(S, lambda r, g: (r[0] * 0,), lambda x: None), 1.0)[1](None),
    "constant_output": lambda S: S.jax.grad(with_bwd(S, lambda r, g: (g * 5,), lambda x: 2.0))(1.0),
    "residual_none": lambda S: S.jax.grad(with_rules(S, lambda x: (x, None), lambda _, g: (g * 3,)))(2.0),
    "residual_tree": lambda S: S.jax.grad(with_rules(
        S, lambda x: (x, {"a": [x, 3], "b": None}), lambda r, g: (r["a"][0] * r["a"][1] * g,)))(2.0),
    "residual_integer": lambda S: S.jax.jit(S.jax.grad(with_rules(
        S, lambda x: (x, S.jnp.arange(3)), lambda r, g: (r.sum() * g,))))(2.0),
    "list_results": lambda S: S.jax.grad(with_rules(S, lambda x: [x * 2, x], lambda x, g: [x * g]))(2.0),
    "vjp_twice": lambda S: (lambda out, pull: (out, pull(1.0), pull(2.0)))(*S.jax.vjp(cubic(S), 2.0)),
    "vmap_of_pull": lambda S: S.jax.vmap(S.jax.vjp(cubic(S), S.jnp.float32(2))[1])(ramp(S, 3)),
    "shared_argument": lambda S: S.jax.vmap(S.jax.grad(
        lambda y, x: S.jax.vmap(product(S), (0, None))(x, y).sum()))(ramp(S, 2), ramp(S, 2, 3)),
    "ignored_output": lambda S: S.jax.grad(lambda x: tree(S)(tree_point(S)[0], x)["b"][1])(ramp(S, 3)),
    # cotangents that are zero
    "none_cotangent": lambda S: S.jax.grad(with_bwd(
        S, lambda res, g: (None, g * 2), lambda x, y: x * y), (0, 1))(2.0, 3.0),
    "none_for_tree": lambda S: S.jax.grad(with_bwd(
        S, lambda res, g: (None, g * 2), lambda p, y: p["a"] * y), (0, 1))({"a": 2.0, "b": (1.0,)}, 3.0),
    "none_inside": lambda S: S.jax.grad(with_bwd(
        S, lambda res, g: ({"a": None, "b": (g,)},), lambda p: p["a"] * p["b"][0]))({"a": 2.0, "b": (1.0,)}),
    "none_jit": lambda S: S.jax.jit(S.jax.grad(with_bwd(
        S, lambda res, g: (None, g * 2), lambda x, y: x * y), (0, 1)))(2.0, 3.0),
    "none_vmap": lambda S: S.jax.vmap(S.jax.grad(with_bwd(
        S, lambda res, g: (None, g * 2), lambda x, y: x * y), (0, 1)))(ramp(S, 2), ramp(S, 2)),
    "instantiated": lambda S: S.jax.grad(lambda x: with_rules(
        S, lambda x: ((x, x * 2), None), lambda _, g: (g[0] + 5 * g[1] + 7,), lambda x: (x, x * 2))(x)[0])(2.0),
    # integers and float0
    "integers": lambda S: integers(S)(2.0, 3),
    "integers_grad": lambda S: S.jax.grad(lambda x: integers(S)(x, 3)[0])(2.0),
    "integers_allowed": lambda S: S.jax.grad(
        lambda x, n: integers(S)(x, n)[0], argnums=(0, 1), allow_int=True)(2.0, 3),
    "integers_jit": lambda S: S.jax.jit(S.jax.grad(lambda x: integers(S)(x, 3)[0]))(2.0),
    "integers_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda x, n: integers(S)(x, n)[0]))(ramp(S, 3), S.jnp.arange(3)),
    "integer_cotangent_float0": lambda S: S.jax.grad(lambda x: with_bwd(
        S, lambda r, g: (g, float0(S)), lambda x, n: x * n)(x, 3))(2.0),
    "integer_cotangent_int": lambda S: S.jax.grad(lambda x: with_bwd(
        S, lambda r, g: (g, 1), lambda x, n: x * n)(x, 3))(2.0),
    # rules on known values
    "concrete": lambda S: [S.jax.grad(curve(S))(x) for x in (0.5, 2.0, 5.0)],
    "concrete_vjp": lambda S: S.jax.vjp(curve(S), 2.0)[1](2.0),
    "concrete_grad_grad": lambda S: S.jax.grad(S.jax.grad(lambda x: curve(S)(x) * x))(2.0),
    "concrete_grad3": lambda S: S.jax.grad(S.jax.grad(S.jax.grad(lambda x: curve(S)(x) * x)))(5.0),
    "concrete_jit": lambda S: S.jax.jit(S.jax.grad(curve(S)))(2.0),
    "concrete_vmap": lambda S: S.jax.vmap(S.jax.grad(curve(S)))(ramp(S, 3)),
    "concrete_cotangent": lambda S: S.jax.grad(lambda x: 2 * branch_on_cotangent(S)(x))(2.0),
    "concrete_cotangent_vjp": lambda S: [
        S.jax.vjp(branch_on_cotangent(S), S.jnp.float32(2))[1](S.jnp.float32(g)) for g in (1, 2)],
    "numpy_of_cotangent": lambda S: S.jax.grad(lambda p: 3 * with_bwd(
        S, lambda res, g: (None, {"a": S.jnp.asarray(np.asarray(g) * 2), "b": np.cos(res[1]["b"])}),
        lambda n, p: p["a"] * p["b"])(2, p))({"a": S.jnp.float32(2), "b": S.jnp.float32(3)}),
    "concrete_cotangent_jit": lambda S: S.jax.jit(S.jax.grad(branch_on_cotangent(S)))(2.0),
    "numpy_in_rules": lambda S: S.jax.grad(on_the_host(S))(S.jnp.float32(2)),
    "numpy_in_rules_vjp": lambda S: S.jax.vjp(on_the_host(S), ramp(S, 3))[1](ramp(S, 3)),
    "numpy_in_rules_jit": lambda S: S.jax.jit(S.jax.grad(on_the_host(S)))(S.jnp.float32(2)),
    "numpy_in_rules_twice": lambda S: S.jax.grad(S.jax.grad(on_the_host(S)))(S.jnp.float32(2)),
    "float_in_rules": lambda S: S.jax.grad(with_rules(
        S, lambda x: (x * 2, float(x)), lambda r, g: (g * r * int(r),)))(S.jnp.float32(3)),
    "float_outside": lambda S: S.jax.grad(lambda x: x * float(x))(2.0),
    # symbolic zeros
    "symbolic_first": lambda S: S.jax.grad(lambda x, y: symbolic(S)(x, y)[0])(2.0, 3.0),
    "symbolic_second": lambda S: S.jax.grad(lambda x, y: symbolic(S)(x, y)[0], 1)(2.0, 3.0),
    "symbolic_other": lambda S: S.jax.grad(lambda x, y: symbolic(S)(x, y)[1], (0, 1))(2.0, 3.0),
    "symbolic_all": lambda S: S.jax.grad(lambda x, y: sum(symbolic(S)(x, y)), (0, 1))(2.0, 3.0),
    "symbolic_jit": lambda S: S.jax.jit(S.jax.grad(lambda x, y: symbolic(S)(x, y)[0]))(2.0, 3.0),
    "symbolic_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda x, y: symbolic(S)(x, y)[0]), (0, None))(ramp(S, 3), 3.0),
    "symbolic_grad_vmap": lambda S: S.jax.grad(
        lambda x: S.jax.vmap(lambda x: symbolic(S)(x, 3.0)[0])(x).sum())(ramp(S, 3)),
    "symbolic_scan": lambda S: S.jax.grad(
        lambda x: S.lax.scan(lambda c, y: (symbolic(S)(c, y)[0], None), x, ramp(S, 3))[0])(S.jnp.float32(2)),
    "symbolic_call": lambda S: symbolic(S)(2.0, 3.0),
    "symbolic_seen": lambda S: (lambda seen: (
        S.jax.grad(lambda x: symbolic(S, seen)(x, 3.0)[1])(2.0), seen[0], seen[-1]))([]),
    "symbolic_second_order": lambda S: S.jax.grad(S.jax.grad(lambda x, y: symbolic(S)(x, y)[0] * x))(2.0, 3.0),
    "symbolic_given_back": lambda S: S.jax.grad(with_rules(
        S, lambda x, y: (x.value * y.value, None),
        lambda _, g: (g, S.jax.custom_derivatives.SymbolicZero(S.jax.typeof(S.jnp.float32(1)))),
        lambda x, y: x * y, symbolic_zeros=True), (0, 1))(S.jnp.float32(2), S.jnp.float32(3)),
    "symbolic_branch": lambda S: S.jax.grad(with_rules(
        S, lambda x: (x.value, x.value), lambda x, g: (g * 3 if x > 1 else g,), lambda x: x,
        symbolic_zeros=True))(2.0),
    "primal_tree_values_wrong": lambda S: S.jax.custom_derivatives.custom_vjp_primal_tree_values((1.0,)),
    # arguments that are not differentiated in
    "nondiff_call": lambda S: nondiff(S)(S.jnp.sin, 1.0, 2),
    "nondiff_jit": lambda S: S.jax.jit(lambda x: nondiff(S)(S.jnp.sin, x, 2))(1.0),
    "nondiff_grad": lambda S: S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x, 2))(1.0),
    "nondiff_grad_grad": lambda S: S.jax.grad(S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x * x, 2)))(1.0),
    "nondiff_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x, 2)))(ramp(S, 3)),
    "nondiff_traced": lambda S: S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x, x))(2.0),
    "nondiff_traced_jit": lambda S: S.jax.jit(lambda x, n: nondiff(S)(S.jnp.sin, x, n))(1.0, 2.0),
    "nondiff_array": lambda S: S.jax.grad(lambda x: nondiff(S)(S.jnp.sin, x, S.jnp.float32(2)))(S.jnp.float32(1)),
    "nondiff_closure": lambda S: S.jax.grad(lambda x: nondiff(S)(lambda v: v * x, x, 2))(3.0),
    "names": lambda S: S.jax.grad(named(S))(1.0),
    "names_given": lambda S: S.jax.grad(lambda x: named(S)(x, mode="single"))(1.0),
    "names_positional": lambda S: S.jax.grad(lambda x: named(S)(x, "single"))(1.0),
    "kwargs": lambda S: S.jax.grad(lambda x: product(S)(y=x, x=3.0))(2.0),
    "unknown_keyword": lambda S: product(S)(2.0, q=3),
    "too_few": lambda S: product(S)(2.0),
    "defaults": lambda S: S.jax.grad(with_bwd(
        S, lambda res, g: (g * res[1], g * res[0]), lambda x, y=4.0: x * y))(2.0),
    # types
    "weak_call": lambda S: cubic(S)(2.0),
    "weak_jit": lambda S: S.jax.jit(cubic(S))(2.0),
    "bfloat16": lambda S: S.jax.grad(cubic(S))(S.jnp.bfloat16(2)),
    "complex": lambda S: S.jax.grad(cubic(S), holomorphic=True)(S.jnp.complex64(1 + 2j)),
    "complex_to_real": lambda S: S.jax.grad(with_bwd(
        S, lambda res, g: (2 * S.jnp.conj(res[0]) * g,), lambda z: S.jnp.abs(z) ** 2))(S.jnp.complex64(1 + 2j)),
    # what functions and rules close over
    "closes_over_jit": lambda S: S.jax.jit(lambda x, y: closing_over(S)(y)(x))(2.0, 3.0),
    "closes_over_jit_grad": lambda S: S.jax.jit(lambda x, y: S.jax.grad(closing_over(S)(y))(x))(2.0, 3.0),
    "closes_over_vmap": lambda S: S.jax.vmap(lambda x, y: closing_over(S)(y)(x))(ramp(S, 2), ramp(S, 2)),
    "closes_over_vmap_grad": lambda S: S.jax.vmap(
        lambda x, y: S.jax.grad(closing_over(S)(y))(x))(ramp(S, 2), S.jnp.asarray([1, 2], S.jnp.float32)),
    "closes_over_scan": lambda S: S.lax.scan(
        lambda c, x: (S.jax.grad(closing_over(S)(x))(c), None), S.jnp.float32(1), ramp(S, 3))[0],
    "closes_over_perturbed": lambda S: S.jax.grad(lambda x: closing_over(S)(x)(x))(3.0),
    "closes_over_array": lambda S: S.jax.grad(lambda x: closing_over(S, False)(S.jnp.float32(3))(x))(S.jnp.float32(2)),
    # rules are asked when a transformation needs them
    "counts": lambda S: (lambda f, calls: (
        f(1.0), S.jax.jit(f)(1.0), len(calls), S.jax.grad(f)(1.0), calls))(*counted(S)),
    "counts_jit": lambda S: (lambda f, calls: (S.jax.jit(S.jax.grad(f))(1.0), calls))(*counted(S)),
    "vjp_asks_once": lambda S: (lambda f, calls: (
        [pull(1.0) for pull in [S.jax.vjp(f, 1.0)[1]]], calls.count("fwd")))(*counted(S)),
    "optimize_remat": lambda S: S.jax.grad(remat_optimised(S))(2.0),
    "optimize_remat_checkpoint": lambda S: S.jax.jit(S.jax.grad(S.jax.checkpoint(remat_optimised(S))))(2.0),
    "optimize_remat_vmap": lambda S: S.jax.vmap(S.jax.grad(remat_optimised(S)))(ramp(S, 3)),
    **{f"optimize_remat_value_{name}": lambda S, wrap=wrap: (
        S.jax.value_and_grad(wrap(S, telling_rules(S)))(3.2)) for name, wrap in REMATERIALISED.items()},
    # errors
    "no_rule": lambda S: S.jax.custom_vjp(lambda x: x)(1.0),
    "no_rule_grad": lambda S: S.jax.grad(S.jax.custom_vjp(lambda x: x))(1.0),
    "jvp": lambda S: S.jax.jvp(cubic(S), (1.0,), (1.0,)),
    "jacfwd": lambda S: S.jax.jacfwd(cubic(S))(1.0),
    "jvp_jit": lambda S: S.jax.jit(lambda x: S.jax.jvp(cubic(S), (x,), (x,)))(1.0),
    "string_argument": lambda S: S.jax.grad(lambda x: cubic(S)("a"))(1.0),
    "fwd_returns_one": lambda S: S.jax.grad(with_rules(S, lambda x: x, lambda r, g: (g,)))(1.0),
    "fwd_returns_three": lambda S: S.jax.grad(with_rules(S, lambda x: (x, x, x), lambda r, g: (g,)))(1.0),
    "fwd_tree_differs": lambda S: S.jax.jit(S.jax.grad(
        with_rules(S, lambda x: ((x,), x), lambda r, g: (g,))))(1.0),
    "fwd_shape_differs": lambda S: S.jax.jit(S.jax.grad(
        with_rules(S, lambda x: (S.jnp.ones(2), x), lambda r, g: (g,))))(1.0),
    "fwd_takes_none": lambda S: S.jax.grad(with_rules(S, lambda: (1.0, 2.0), lambda r, g: (g,)))(1.0),
    "fwd_raises": lambda S: S.jax.grad(with_rules(S, lambda x: {}["missing"], lambda r, g: (g,)))(1.0),
    "fwd_residual_string": lambda S: S.jax.jit(S.jax.grad(
        with_rules(S, lambda x: (x, "a"), lambda r, g: (g,))))(1.0),
    "bwd_not_tuple": lambda S: S.jax.grad(with_bwd(S, lambda r, g: g))(1.0),
    "bwd_too_many": lambda S: S.jax.grad(with_bwd(S, lambda r, g: (g, g)))(1.0),
    "bwd_too_few": lambda S: S.jax.grad(with_bwd(S, lambda r, g: (g,), lambda x, y: x * y))(1.0, 2.0),
    "bwd_dict": lambda S: S.jax.grad(with_bwd(S, lambda r, g: {"x": g}))(1.0),
    "bwd_none": lambda S: S.jax.grad(with_bwd(S, lambda r, g: None))(1.0),
    "bwd_inner_tree": lambda S: S.jax.grad(with_bwd(S, lambda r, g: ([g],)))(1.0),
    "bwd_shape": lambda S: S.jax.grad(with_bwd(S, lambda r, g: (S.jnp.ones(3),)))(1.0),
    "bwd_shape_jit": lambda S: S.jax.jit(S.jax.grad(with_bwd(S, lambda r, g: (S.jnp.ones(3),))))(1.0),
    "bwd_string": lambda S: S.jax.grad(with_bwd(S, lambda r, g: ("a",)))(1.0),
    "bwd_takes_one": lambda S: S.jax.grad(with_bwd(S, lambda r: (r,)))(1.0),
    "bwd_raises": lambda S: S.jax.grad(with_bwd(S, lambda r, g: {}["missing"]))(1.0),
    "bwd_raises_unasked": lambda S: S.jax.vjp(with_bwd(S, lambda r, g: {}["missing"]), 2.0)[0],
    "bwd_raises_unused": lambda S: S.jax.grad(
        lambda x: (with_bwd(S, lambda r, g: {}["missing"])(x), x * 3)[1])(2.0),
    # custom_gradient
    "gradient_value": lambda S: by_gradient(S)(2.0),
    "gradient_two": lambda S: S.jax.grad(
        S.jax.custom_gradient(lambda x, y: (x * y, lambda g: (g * 10, g * x))), (0, 1))(2.0, 3.0),
    "gradient_tree": lambda S: S.jax.grad(
        S.jax.custom_gradient(lambda p: (p["a"] * 2, lambda g: ({"a": g * 5},))))({"a": 2.0}),
    "gradient_jit": lambda S: S.jax.jit(S.jax.grad(by_gradient(S)))(2.0),
    "gradient_vmap": lambda S: S.jax.vmap(S.jax.grad(by_gradient(S)))(ramp(S, 3)),
    "gradient_two_outputs": lambda S: S.jax.vjp(
        S.jax.custom_gradient(lambda x: ((x, 2 * x), lambda g: g[0] + 10 * g[1])), 2.0)[1]((1.0, 1.0)),
    "gradient_of_integers_too": lambda S: S.jax.grad(lambda x: S.jnp.sum(S.jax.custom_gradient(
        lambda x: ((x, S.jnp.round(x).astype(S.jnp.int32)), lambda g: 3 * g[0]))(x)[0]))(S.jnp.ones(3)),
    "gradient_not_pair": lambda S: S.jax.grad(S.jax.custom_gradient(lambda x: x))(1.0),
    # closure_convert
    "convert": lambda S: S.jax.grad(lambda c: minimise(S)(lambda x: x * x - c, 1.0))(4.0),
    "convert_jit": lambda S: S.jax.jit(S.jax.grad(lambda c: minimise(S)(lambda x: x * x - c, 1.0)))(4.0),
    "convert_vmap": lambda S: S.jax.vmap(S.jax.grad(lambda c: minimise(S)(lambda x: x * x - c, 1.0)))(ramp(S, 3)),
    "convert_nothing": lambda S: len(S.jax.closure_convert(lambda x: x * S.jnp.float32(2), 1.0)[1]),
    "convert_traced": lambda S: S.jax.jit(lambda y: (lambda f, more: f(2.0, *more) + len(more))(
        *S.jax.closure_convert(lambda x: x * y, 1.0)))(3.0),
    "convert_integer": lambda S: S.jax.jit(lambda y, n: len(
        S.jax.closure_convert(lambda x: x * y * n, 1.0)[1]))(3.0, 4),
    "convert_wrong_tree": lambda S: S.jax.closure_convert(lambda x: x["a"], {"a": 1.0})[0]([1.0]),
    # linear_call
    "linear_value": lambda S: half(S, 8.0),
    "linear_jit": lambda S: S.jax.jit(lambda x: half(S, x))(8.0),
    "linear_jvp": lambda S: S.jax.jvp(lambda x: half(S, x), (8.0,), (2.0,)),
    "linear_grad": lambda S: S.jax.grad(lambda x: half(S, x) * x)(8.0),
    "linear_jit_grad": lambda S: S.jax.jit(S.jax.grad(lambda x: half(S, x) * x))(8.0),
    "linear_grad2": lambda S: S.jax.grad(S.jax.grad(lambda x: half(S, x) ** 2))(8.0),
    "linear_transpose": lambda S: transposed(S, lambda x: half(S, x), 1.0)(3.0),
    "linear_transpose2": lambda S: transposed(S, transposed(S, lambda x: half(S, x), 1.0), 1.0)(3.0),
    "linear_transpose3": lambda S: transposed(
        S, transposed(S, transposed(S, lambda x: half(S, x), 1.0), 1.0), 1.0)(3.0),
    "linear_tree": lambda S: halves(S, {"a": 6.0, "b": 2.0}, (2.0,)),
    "linear_tree_grad": lambda S: S.jax.grad(lambda t: sum(halves(S, t, (2.0,))))({"a": 6.0, "b": 2.0}),
    "linear_tree_grad_one": lambda S: S.jax.grad(lambda t: halves(S, t, (2.0,))[1])({"a": 6.0, "b": 2.0}),
    "linear_residual_traced": lambda S: S.jax.jit(lambda x, r: S.jax.grad(lambda x: half(S, x, r))(x))(8.0, 4.0),
    "linear_scan": lambda S: S.jax.grad(
        lambda x: S.lax.scan(lambda c, _: (half(S, c), None), x, None, length=2)[0])(8.0),
    "linear_wrong_tree": lambda S: S.jax.grad(lambda x: S.jax.custom_derivatives.linear_call(
        lambda r, x: x, lambda r, y: (y,), 1.0, x))(1.0),
}  # fmt: skip


def test_cotangents_of_another_precision_are_converted():
    f = with_bwd(FERRAX, lambda res, g: (g.astype("float32") * 3,))
    gradient = ferrax.grad(f)(jnp.bfloat16(2))
    assert gradient.dtype == jnp.bfloat16 and gradient == 3


@pytest.mark.parametrize("name", CASES)
@same
def test_case(S, name):
    return arrays(S, CASES[name](S))


@pytest.mark.raises("TypeError")
@same
def test_values_of_a_converted_closure_are_arguments_one_by_one(S):
    _, pullback = S.jax.vjp(lambda x, z: z * x, 2.0, 3.0)
    converted, values = S.jax.closure_convert(pullback, 2.0)
    return converted(2.0, values)
