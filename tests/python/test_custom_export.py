"""Functions with rules of their own, written to a file and read back: their values, and what of
their rules a file holds."""

import numpy as np
import pytest
import test_custom_batching as batching
import test_custom_jvp as forward
import test_custom_solves as solves
import test_custom_vjp as reverse
from oracle import FERRAX as S, JAX

import ferrax
import ferrax.numpy as jnp
from ferrax import export, lax

X = np.float32(1.5)
VECTOR = np.asarray([0.5, 1.0, 1.5], "float32")
MATRIX = np.asarray([[3.0, 1.0], [0.5, 2.0]], "float32")

# Values and derivatives are those of the function itself.
WITH_RULES = {
    "custom_jvp": (forward.cubic(S, 2.0), X),
    "custom_vjp": (reverse.cubic(S), X),
    "symbolic_zeros": (lambda x: reverse.symbolic(S)(x, 3.0)[0], X),
    "custom_gradient": (reverse.by_gradient(S), X),
    "custom_root": (lambda c: solves.square_root(S, c), X),
    "closure_convert": (lambda c: reverse.minimise(S)(lambda x: x * x - c, 1.0), X),
}

# Their transposes are wrong on purpose, so that they show. Derivatives of both orders and both modes
# are those of the function itself.
WRONG = np.asarray([1.0, 2.0], "float32")


def doubled(x):
    """2 x by a function that closes over the 2; its transpose gives 7 x."""
    two, seven = jnp.float32(2.0), jnp.float32(7.0)
    call = ferrax.custom_derivatives.linear_call
    return call(lambda r, x: two * x / r, lambda r, y: seven * y / r, 1.0, x)


def system(m, b=WRONG, scale=10.0):
    """m x = b by a loop, which has no reverse mode of its own; the transposed solver gives `scale`
    times its solution."""

    def solve(matvec, b):
        body = lambda state: (state[0] + 1, state[1] + 0.2 * (b - matvec(state[1])))  # noqa: E731
        return lax.while_loop(lambda state: state[0] < 60, body, (0, jnp.zeros_like(b)))[1]

    return lax.custom_linear_solve(
        lambda x: m @ x, b, solve, lambda vecmat, b: scale * solve(vecmat, b)
    )


def in_scan(fun):
    return lambda x: lax.scan(lambda c, _: (c + fun(c), fun(c) ** 2), x, None, length=2)


def in_cond(fun):
    return lambda x: lax.cond(x.sum() > 0, lambda x: fun(x) ** 3, lambda x: x, x)


def of_system(x):
    """A function from vectors to vectors."""
    return system(jnp.asarray(MATRIX) + x[:, None] * 0.1, x)


RULED = {
    "linear_call": (lambda x: reverse.half(S, x) ** 3, X),
    "linear_call_that_captures": (lambda x: doubled(x) ** 3, X),
    "linear_call_gradient": (ferrax.grad(lambda x: doubled(x) ** 3), X),
    "linear_call_tree": (lambda x: reverse.halves(S, {"a": x**2, "b": x**3}, [2.0]), X),
    "linear_call_batched": (ferrax.vmap(lambda x: doubled(x) ** 2), VECTOR),
    "linear_call_in_scan": (in_scan(doubled), X),
    "linear_call_in_cond": (in_cond(doubled), X),
    "linear_call_in_checkpoint": (ferrax.checkpoint(lambda x: jnp.sin(doubled(jnp.sin(x)))), X),
    "linear_call_in_custom_vjp": (reverse.with_bwd(S, lambda r, g: (doubled(g) * r[0],), lambda x: x**2), X),
    "custom_linear_solve": (lambda m: solves.solve_system(S, m, jnp.ones(2)), MATRIX),
    "custom_linear_solve_aux": (lambda m: system(m).sum(), MATRIX),
    "solve_gradient": (ferrax.grad(lambda m: (system(m) ** 2).sum()), MATRIX),
    "solve_batched": (ferrax.vmap(of_system), np.stack([WRONG, 2 * WRONG])),
    "solve_in_scan": (in_scan(of_system), WRONG),
    "solve_in_cond": (in_cond(of_system), WRONG),
    "solve_in_checkpoint": (ferrax.checkpoint(lambda x: jnp.sin(of_system(jnp.sin(x)))), WRONG),
    "solve_tree": (
        lambda d: solves.by_iteration(S, d, solves.right_side(S)), np.asarray([1, 2, 1.5], "float32")),
}  # fmt: skip

# Files hold what these are made of, and of the last that it is a loop.
EXPANDED = {
    "custom_vmap": (batching.sine(S), X),
    "custom_vmap_batched": (lambda x: ferrax.vmap(batching.sine(S))(x).sum(), VECTOR),
    "custom_vmap_in_scan": (
        lambda x: ferrax.lax.scan(lambda c, _: (batching.sine(S)(c), c), x, None, length=3), X),
    "sequential_vmap": (
        ferrax.vmap(ferrax.custom_batching.sequential_vmap(lambda x: x * x)), VECTOR),
}  # fmt: skip


def read_back(fun, x, vjp_order=0):
    blob = export.export(ferrax.jit(fun))(x).serialize(vjp_order)
    return export.deserialize(blob).call


def check(ours, expected):
    ours, expected = map(ferrax.tree_util.tree_leaves, (ours, expected))
    assert len(ours) == len(expected)
    for a, b in zip(ours, expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", WITH_RULES)
def test_rules_are_kept(name):
    fun, x = WITH_RULES[name]
    loaded = read_back(fun, x)
    check(ferrax.value_and_grad(loaded)(x), ferrax.value_and_grad(fun)(x))
    check(ferrax.vmap(ferrax.grad(loaded))(VECTOR), ferrax.vmap(ferrax.grad(fun))(VECTOR))


@pytest.mark.parametrize("name", ["custom_jvp", "custom_vjp", "custom_root"])
def test_second_derivatives_are_kept(name):
    fun, x = WITH_RULES[name]
    loaded = read_back(fun, x)
    check(ferrax.grad(ferrax.grad(loaded))(x), ferrax.grad(ferrax.grad(fun))(x))


@pytest.mark.parametrize("name", EXPANDED)
def test_values_are_kept(name):
    fun, x = EXPANDED[name]
    check(read_back(fun, x)(x), fun(x))


def total(fun):
    """A function to one number, which has second derivatives."""
    return lambda x: sum(jnp.sum(leaf**2) for leaf in ferrax.tree_util.tree_leaves(fun(x)))


@pytest.mark.parametrize("name", RULED)
def test_transposes_and_solvers_are_kept(name):
    fun, x = RULED[name]
    loaded = read_back(fun, x)
    check(loaded(x), fun(x))
    ours, expected = total(loaded), total(fun)
    gradient = ferrax.grad(expected)(x)
    check(ferrax.grad(ours)(x), gradient)
    many = np.stack([x, x / 2])
    check(ferrax.vmap(ferrax.grad(ours))(many), ferrax.vmap(ferrax.grad(expected))(many))
    check(
        ferrax.grad(lambda x: ferrax.vmap(ours)(x).sum())(many),
        ferrax.grad(lambda x: ferrax.vmap(expected)(x).sum())(many),
    )


@pytest.mark.parametrize("name", [name for name in RULED if name != "linear_call_in_custom_vjp"])
def test_transposes_and_solvers_are_kept_forwards(name):
    fun, x = RULED[name]
    loaded = read_back(fun, x)
    check(ferrax.jvp(loaded, (x,), (x,)), ferrax.jvp(fun, (x,), (x,)))
    slope = lambda fun: lambda x: ferrax.jvp(total(fun), (x,), (x,))[1]  # noqa: E731
    check(slope(slope(loaded))(x), slope(slope(fun))(x))


@pytest.mark.parametrize("name", RULED)
def test_second_derivatives_by_transposes_and_solvers_are_kept(name):
    fun, x = RULED[name]
    gradient = lambda fun: lambda x: jnp.sum(jnp.sin(ferrax.grad(total(fun))(x)))  # noqa: E731
    ours, expected = gradient(read_back(fun, x)), gradient(fun)
    check(ferrax.jvp(ours, (x,), (x,)), ferrax.jvp(expected, (x,), (x,)))
    check(ferrax.grad(ours)(x), ferrax.grad(expected)(x))


def test_wrong_transposes_show():
    loaded = read_back(doubled, X)
    assert ferrax.grad(loaded)(X) == 7
    assert ferrax.jvp(loaded, (X,), (X,))[1] == 3
    assert ferrax.grad(ferrax.grad(lambda x: loaded(x) ** 2))(X) == 28
    one = np.ones((1, 1), "float32")
    loaded = read_back(lambda b: system(2 * one, b), one[0])
    np.testing.assert_allclose(ferrax.jacrev(loaded)(one[0]), [[5.0]], rtol=1e-5)
    np.testing.assert_allclose(ferrax.jacfwd(loaded)(one[0]), [[0.5]], rtol=1e-5)


def test_residuals_of_loaded_calls_have_no_derivative():
    loaded = read_back(lambda r: reverse.half(S, 1.0, r), X)
    with pytest.raises(TypeError, match="the residuals, and what the function closes over"):
        ferrax.grad(loaded)(X)


def test_solvers_for_one_direction_only():
    solve = lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, lambda _, b: b / 2)  # noqa: E731
    loaded = read_back(solve, X)
    check(ferrax.jvp(loaded, (X,), (X,)), (X / 2, X / 2))
    with pytest.raises(TypeError, match="without transpose_solve"):
        ferrax.grad(loaded)(X)


def test_transposes_that_need_each_other_end():
    def there(x):
        call = ferrax.custom_derivatives.linear_call
        return call(lambda _, x: 2 * x, lambda _, y: back(y), (), x)

    def back(y):
        call = ferrax.custom_derivatives.linear_call
        return call(lambda _, y: 3 * y, lambda _, x: 5 * there(x), (), y)

    fun = lambda x: there(x) ** 4  # noqa: E731
    loaded = read_back(fun, X)
    for _ in range(3):
        fun, loaded = ferrax.grad(fun), ferrax.grad(loaded)
        check(loaded(X), fun(X))


@ferrax.custom_jvp
def growth_forwards(x):
    return jnp.exp(x)


@growth_forwards.defjvp
def growth_jvp(primals, tangents):
    # The rule calls the function, so that there is no last order of it.
    return growth_forwards(*primals), 2 * growth_forwards(*primals) * tangents[0]


@ferrax.custom_vjp
def growth_backwards(x):
    return jnp.exp(x)


growth_backwards.defvjp(
    lambda x: (growth_backwards(x), x), lambda x, g: (2 * growth_backwards(x) * g,)
)


@pytest.mark.parametrize("fun", [growth_forwards, growth_backwards])
def test_orders_that_are_not_saved(fun, tmp_path):
    third = lambda fun: ferrax.grad(ferrax.grad(ferrax.grad(fun)))  # noqa: E731
    expected = np.float32(8 * np.exp(1.5))
    check(third(fun)(X), expected)
    with pytest.raises(NotImplementedError, match=r"growth(.|\n)*up to order 2.*vjp_order="):
        third(read_back(fun, X))(X)
    check(third(read_back(fun, X, 3))(X), expected)
    path = tmp_path / "growth.ferrax"
    export.save(path, export.export(ferrax.jit(fun))(X), vjp_order=3)
    check(third(export.load(path).call)(X), expected)


def test_batching_rules_are_not_saved():
    loaded = read_back(batching.sine(S), X)
    check(ferrax.jvp(loaded, (X,), (X,)), ferrax.jvp(batching.sine(S), (X,), (X,)))
    for fun in (loaded, lambda x: ferrax.jvp(loaded, (x,), (x,))):
        with pytest.raises(NotImplementedError, match=r"was not saved.*export\(jit\(vmap\(f\)\)\)"):
            ferrax.vmap(fun)(VECTOR)
    with pytest.raises(ValueError, match="forward derivative only"):
        ferrax.grad(loaded)(X)


def test_loops_over_cases_are_saved():
    fun = ferrax.custom_batching.sequential_vmap(lambda x, y: (x * y, x + y))
    loaded = read_back(lambda x: fun(x, 2.0), X)
    check(ferrax.vmap(loaded)(VECTOR), (VECTOR * 2, VECTOR + 2))
    assert "scan" in str(ferrax.make_jaxpr(ferrax.vmap(loaded))(VECTOR))
    twice = np.stack([VECTOR, 2 * VECTOR])
    check(ferrax.vmap(ferrax.vmap(loaded), 1, 1)(twice), (twice * 2, twice + 2))
    derivative = lambda x: ferrax.jvp(loaded, (x,), (x,))[1]  # noqa: E731
    check(ferrax.vmap(derivative)(VECTOR), (VECTOR * 2, VECTOR))


def test_functions_of_the_package_are_exported_as_they_are():
    exported = export.export(jnp.sin)(VECTOR)
    np.testing.assert_array_equal(exported.call(VECTOR), jnp.sin(VECTOR))
    with pytest.raises(ValueError, match=r"pass jit\(f\)"):
        export.export(lambda x: x)


def test_derivatives_with_integers():
    """Cotangents of integers are arrays of dtype float0, in files too."""

    def f(n, x):
        return 2 * n.T, x.T * x.T * n.sum()

    n, x = np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.float32).reshape(3, 4)
    nothing = np.zeros((3, 2), ferrax.dtypes.float0)
    given = (n, x, nothing, np.ones((4, 3), np.float32))
    theirs = JAX.jax.export.export(JAX.jax.jit(f))(n, x).vjp()
    ours = export.export(ferrax.jit(f))(n, x).vjp()
    for exported in (ours, export.deserialize(ours.serialize())):
        for side in ("in_avals", "out_avals"):
            kinds = [(str(a.dtype), a.shape) for a in getattr(exported, side)]
            assert kinds == [(str(a.dtype), a.shape) for a in getattr(theirs, side)]
        first, second = exported.call(*given)
        assert first.dtype == ferrax.dtypes.float0 and first.shape == (2, 3)
        np.testing.assert_allclose(second, theirs.call(*given)[1], rtol=1e-6)
        with pytest.raises(ValueError, match="pytree structure"):
            exported.call(n, x, np.zeros((3, 2), np.float32), given[3])
    again = (*given, np.zeros((2, 3), ferrax.dtypes.float0), np.ones((3, 4), np.float32))
    for mine, wanted in zip(ours.vjp().call(*again), theirs.vjp().call(*again), strict=True):
        assert (str(mine.dtype), mine.shape) == (str(wanted.dtype), wanted.shape)
        if mine.dtype != ferrax.dtypes.float0:
            np.testing.assert_allclose(mine, wanted, rtol=1e-6)


def test_functions_that_give_arguments_up():
    gives = ferrax.jit(lambda x: x * 2, donate_argnums=0)
    for platforms in (None, ["cpu", "tpu"], ["nowhere"]):
        exported = export.export(gives, platforms=platforms)(VECTOR)
        x = jnp.asarray(VECTOR)
        if exported.platforms != ("nowhere",):
            check(ferrax.jit(lambda x, f=exported.call: f(x) + x)(x), VECTOR * 3)
            assert not x.is_deleted()
    for jax in (ferrax, JAX.jax):
        with pytest.raises(NotImplementedError):
            jax.export.export(jax.jit(lambda x: x * 2, donate_argnums=0), platforms=["cpu", "nowhere"])(VECTOR)
