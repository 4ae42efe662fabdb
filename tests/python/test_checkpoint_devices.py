"""What policies of `checkpoint` keep of functions that each device of a mesh runs."""

import functools

import numpy as np
import pytest
from closeness import norm
from oracle import FERRAX, module, same
from test_many_devices import mesh_of

import ferrax

X = np.arange(64, dtype=np.float32).reshape(8, 8) / 70
W = np.arange(64, dtype=np.float32).reshape(8, 8)[::-1].copy() / 64


def policies(S):
    known = S.jax.checkpoint_policies
    sines = lambda prim, *_, **__: prim.name == "sin"  # noqa: E731
    return {
        "nothing": known.nothing_saveable,
        "everything": known.everything_saveable,
        "dots": known.dots_saveable,
        "names": known.save_only_these_names("hidden"),
        "sines": sines,
        "dots or sines": known.save_from_both_policies(known.dots_saveable, sines),
    }


POLICIES = list(policies(FERRAX))


def device_function(S):
    name = module(S, "ad_checkpoint").checkpoint_name

    def f(w, x):
        hidden = name(S.jnp.sin(x @ w), "hidden")
        return S.lax.psum(S.jnp.cos(hidden), "x"), hidden * 2, S.jnp.tanh(w).sum()

    return f


def over_devices(S, jitted, **options):
    P = S.jax.P
    f = S.jax.shard_map(
        device_function(S), mesh=mesh_of(S), in_specs=(P(), P("x")), out_specs=(P(), P("x"), P()), **options
    )
    f = S.jax.jit(f) if jitted else f

    def loss(w, x):
        a, b, c = f(S.jnp.tanh(w), x)
        return (a**2).sum() + S.jnp.sin(b).sum() * c

    return loss


@pytest.mark.parametrize("jitted, check_vma", [(True, True), (False, False)])
@pytest.mark.parametrize("policy", POLICIES)
def test_derivatives(policy, jitted, check_vma):
    # Sums of terms with both signs.
    @same(weak=False, cancels=norm)
    def case(S):
        jax = S.jax
        loss = jax.checkpoint(over_devices(S, jitted, check_vma=check_vma), policy=policies(S)[policy])
        gradient = jax.grad(loss, (0, 1))
        second = jax.grad(lambda w: (jax.grad(loss)(w, X) ** 2).sum())(W)
        batched = jax.vmap(gradient, (0, None))(np.stack([W, W / 2]), X)
        return loss(W, X), gradient(W, X), jax.jit(gradient)(W, X), jax.jvp(loss, (W, X), (X, W)), second, batched

    case()


@pytest.mark.parametrize("mapped", ["pmap", "shard_map"])
@pytest.mark.parametrize("policy", ["nothing", "everything", "sines", "cosines"])
def test_what_is_computed_again(policy, mapped):
    @same(weak=False)
    def case(S):
        jax, P = S.jax, S.jax.P
        chosen = policies(S) | {"cosines": lambda prim, *_, **__: prim.name == "cos"}
        f = lambda x: S.jnp.sin(S.jnp.sin(x))  # noqa: E731
        if mapped == "pmap":
            f = jax.pmap(f)
        else:
            f = jax.shard_map(f, mesh=mesh_of(S, (4,), ("x",)), in_specs=P("x"), out_specs=P("x"))
        _, vjp = jax.vjp(jax.checkpoint(f, policy=chosen[policy]), S.jnp.arange(4.0))
        text = str(vjp.jaxpr)
        return text.count(" sin "), text.count(" cos "), vjp(S.jnp.ones(4))

    case()


@pytest.mark.parametrize("policy, products", [("nothing", 4), ("dots", 3), ("sines", 4)])
def test_compiled_programs_compute_again_once(policy, products):
    """Results and derivatives that need the same values share them: the product of the function, that of the way back
    if it is not kept, and two of the derivative."""
    loss = ferrax.checkpoint(over_devices(FERRAX, False), policy=policies(FERRAX)[policy])
    program = ferrax.jit(ferrax.value_and_grad(loss, (0, 1))).lower(W, X).compile()
    assert program.as_text().count("call dot_general") == products


def test_a_policy_is_asked_of_what_devices_do():
    asked = set()

    def policy(prim, *_, **__):
        asked.add(prim.name)
        return False

    ferrax.grad(ferrax.checkpoint(over_devices(FERRAX, True), policy=policy))(W, X)
    assert asked >= {"tanh", "shard_map", "dot_general", "sin", "cos"}


def test_functions_with_static_arguments_and_captured_arrays():
    @functools.partial(ferrax.checkpoint, policy=ferrax.checkpoint_policies.dots_saveable, static_argnums=0)
    def loss(power, w):
        return over_devices(FERRAX, False)(w, X) ** power

    plain = lambda w: over_devices(FERRAX, False)(w, X) ** 2  # noqa: E731
    for _ in range(2):
        np.testing.assert_allclose(ferrax.grad(loss, 1)(2, W), ferrax.grad(plain)(W), rtol=1e-5)
    np.testing.assert_allclose(loss(3, W), plain(W) ** 1.5, rtol=1e-5)
