"""What one device does, as a jaxpr: dead code in it, jaxprs that are changed, values that derivatives keep."""

import numpy as np
import pytest
from oracle import SIDES, module, same
from test_many_devices import mesh_of

X = np.arange(16, dtype=np.float32) / 5
Y = np.arange(8, dtype=np.float32) / 7


def pe(S):
    return module(S, "interpreters.partial_eval")


def run(S, jaxpr, *args):
    return module(S, "core").eval_jaxpr(jaxpr, [], *args)


def body(S):
    def f(x, y, z):
        total = S.lax.psum(y * 2, "x")
        return S.lax.psum(x, "x"), S.jnp.sin(total / 8) + y, y + S.lax.axis_index("x"), x.sum() * z

    return f


def mapped(S, check_vma):
    P = S.jax.P
    return S.jax.shard_map(
        body(S), mesh=mesh_of(S, (4,), ("x",)), in_specs=(P("x"), P("x"), P()),
        out_specs=(P(), P("x"), P("x"), P("x")), check_vma=check_vma,
    )  # fmt: skip




@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("used", [(0, 1, 2, 3), (0,), (1,), (2,), (3,), (0, 3), ()])
def test_dead_results_of_devices(used, check_vma):
    @same(weak=False)
    def case(S):
        z = np.full(4, 3, np.float32)
        closed = S.jax.make_jaxpr(mapped(S, check_vma))(X, Y, z)
        jaxpr, inputs = pe(S).dce_jaxpr(closed.jaxpr, [number in used for number in range(4)])
        args = [x for x, flag in zip((X, Y, z), inputs) if flag]
        specs = [str((e.params["in_specs"], e.params["out_specs"])) for e in jaxpr.eqns]
        sums = [sum(i.primitive.name.startswith("psum") for i in e.params["jaxpr"].eqns) for e in jaxpr.eqns]
        once = run(S, jaxpr, *args)
        again = S.jax.jit(lambda *args: run(S, jaxpr, *args))(*args)
        return inputs, specs, sums, once, again

    case()


@pytest.mark.parametrize("check_vma", [True, False])
def test_derivatives_of_what_is_left(check_vma):
    @same(weak=False)
    def case(S):
        z = np.ones(4, np.float32)
        closed = S.jax.make_jaxpr(mapped(S, check_vma))(X, Y, z)
        jaxpr, _ = pe(S).dce_jaxpr(closed.jaxpr, [False, True, False, True])
        loss = lambda *args: sum((leaf**2).sum() for leaf in run(S, jaxpr, *args))  # noqa: E731
        batch = np.stack([Y, 2 * Y])
        return S.jax.grad(loss, (0, 1, 2))(X, Y, z), S.jax.vmap(lambda y: run(S, jaxpr, X, y, z))(batch)

    case()


@SIDES
def test_changed_jaxprs_of_devices(S):
    """They know the axes of the mesh wherever they are looked at."""
    closed = S.jax.make_jaxpr(mapped(S, True))(X, Y, np.ones(4, np.float32))
    (eqn,) = closed.jaxpr.eqns
    inner = eqn.params["jaxpr"]
    first = inner.replace(outvars=inner.outvars[:1])
    assert "psum" in str(first)
    params = dict(eqn.params, jaxpr=first, out_specs=eqn.params["out_specs"][:1])
    changed = closed.jaxpr.replace(eqns=[eqn.replace(outvars=eqn.outvars[:1], params=params)], outvars=eqn.outvars[:1])
    (total,) = run(S, changed, X, Y, np.ones(4, np.float32))
    np.testing.assert_allclose(total, X.reshape(4, 4).sum(0), rtol=1e-6)


@pytest.mark.parametrize("wrap", ["plain", "jit"])
@SIDES
def test_derivatives_keep_results_once(S, wrap):
    """What the derivative needs is a result already, or an argument: no further result is made of it."""
    jax, P = S.jax, S.jax.P
    mesh = mesh_of(S, (4,), ("x",))
    wraps = {"plain": lambda f: f, "jit": jax.jit}

    def results(f, *args):
        """How many results the first equation has, of a sum and its derivative."""
        jaxpr = jax.make_jaxpr(jax.value_and_grad(lambda *args: wraps[wrap](f)(*args).sum()))(*args).jaxpr
        jaxpr, _ = pe(S).dce_jaxpr(jaxpr, [True, True])
        return len(jaxpr.eqns[0].outvars)

    def over_mesh(f, out):
        return jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=out)

    assert results(over_mesh(S.jnp.exp, P("x")), X) == 1
    # The sine of an argument needs its cosine, which is no result.
    assert results(over_mesh(S.jnp.sin, P("x")), X) == 2
    # A sum is the same on all devices; joined along the axis it is no longer what each of them has.
    same_everywhere = over_mesh(lambda x: S.jnp.exp(S.lax.psum(x, "x")), P("x"))
    assert results(same_everywhere, X) == 2


@pytest.mark.parametrize("out", ["", "x"])
@pytest.mark.parametrize("check_vma", [True, False])
def test_kept_values_from_arguments_and_results(check_vma, out):
    @same(weak=False)
    def case(S):
        P = S.jax.P
        mesh = mesh_of(S, (2, 2))

        def f(x, w):
            total = S.lax.psum(S.jnp.exp(x * w[0]), ("x", "y") if out == "" else "y")
            return S.jnp.exp(total / 9), S.jnp.exp(S.jnp.sin(x)) * w.sum(), S.jnp.tanh(w)

        spec = P(*out)
        g = S.jax.shard_map(
            f, mesh=mesh, in_specs=(P(("x", "y")), P()), out_specs=(spec, P(("x", "y")), P()), check_vma=check_vma
        )
        loss = lambda x, w: sum((leaf**2).sum() for leaf in g(x, w))  # noqa: E731
        gradient = S.jax.grad(loss, (0, 1))
        w = Y[1:4]
        second = S.jax.grad(lambda x: gradient(x, w)[0].sum())(X)
        return gradient(X, w), S.jax.jit(gradient)(X, w), second, S.jax.jvp(loss, (X, w), (X, w))

    case()
