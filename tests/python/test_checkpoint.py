"""`checkpoint`: the values and derivatives of the function itself, and what is kept for them."""

import functools

import jax
import jax.ad_checkpoint
import numpy as np
import oracle
import pytest
from closeness import norm
from jax._src.ad_checkpoint import saved_residuals as jax_saved_residuals
from roundings import within_roundings

import ferrax
import ferrax.ad_checkpoint
import ferrax.numpy as jnp
from ferrax._src.core.jaxpr import Primitive
from ferrax._src.transforms.ad_checkpoint import saved_residuals


def check(case, **options):
    """Both sides must agree."""
    oracle.same(case, **options)()


def name_of(s):
    module = ferrax.ad_checkpoint if s.name == "ferrax" else jax.ad_checkpoint
    return module.checkpoint_name


def policies(s):
    """One policy of each kind, by name."""
    cp = s.jax.checkpoint_policies
    module = ferrax.ad_checkpoint if s.name == "ferrax" else jax.ad_checkpoint

    def products(prim, *avals, **params):
        return prim.name == "dot_general" and avals[0].shape == (3, 4)

    def decisions(prim, *avals, **params):
        return module.Saveable if prim.name == "tanh" else module.Recompute

    return {
        "none": None,
        "everything": cp.everything_saveable,
        "nothing": cp.nothing_saveable,
        "dots": cp.dots_saveable,
        "checkpoint_dots": cp.checkpoint_dots,
        "no_batch": cp.dots_with_no_batch_dims_saveable,
        "checkpoint_no_batch": cp.checkpoint_dots_with_no_batch_dims,
        "only_a": cp.save_only_these_names("a"),
        "only_ab": cp.save_only_these_names("a", "b"),
        "not_a": cp.save_any_names_but_these("a"),
        "anything_except": cp.save_anything_except_these_names("a"),
        "both": cp.save_from_both_policies(
            cp.dots_with_no_batch_dims_saveable, cp.save_only_these_names("b")
        ),
        "user": products,
        "decisions": decisions,
        "user_both": cp.save_from_both_policies(products, cp.save_only_these_names("b")),
    }


POLICIES = list(policies(oracle.FERRAX))


def layers(s):
    name = name_of(s)

    def f(x, params):
        for w in params["w"]:
            x = s.jnp.tanh(name(x @ w, "a"))
        x = name(s.jnp.sin(x), "b")
        return s.jnp.sum(x * params["v"])

    return f


def values(s):
    rng = np.random.default_rng(0)
    array = lambda *shape: s.jnp.asarray(rng.normal(size=shape).astype(np.float32))  # noqa: E731
    return array(3, 4), {"w": [array(4, 4), array(4, 5)], "v": array(3, 5)}


@pytest.mark.parametrize("policy", POLICIES)
def test_values_and_gradients(policy):
    def case(s):
        f = s.jax.checkpoint(layers(s), policy=policies(s)[policy])
        x, params = values(s)
        grad = s.jax.grad(f, argnums=(0, 1))
        return oracle.compiled(s, lambda x, params: (
            f(x, params),
            grad(x, params),
            s.jax.jit(grad)(x, params),
            s.jax.value_and_grad(s.jax.jit(f))(x, params),
            s.jax.jvp(f, (x, params), (x, params)),
        ), x, params)

    within_roundings(case)


@pytest.mark.parametrize("policy", ["none", "everything", "dots", "only_a", "user"])
def test_second_derivatives(policy):
    def case(s):
        f = s.jax.checkpoint(layers(s), policy=policies(s)[policy])
        x, params = values(s)
        norm = lambda x, p: sum(  # noqa: E731
            s.jnp.sum(g**2) for g in s.jax.tree_util.tree_leaves(s.jax.grad(f, argnums=(0, 1))(x, p))
        )
        small = lambda z: f(x * z[0], params) * z[1]  # noqa: E731
        z = s.jnp.array([0.5, 2.0])
        return oracle.compiled(s, lambda x, params, z: (
            s.jax.grad(norm, argnums=(0, 1))(x, params),
            s.jax.jit(s.jax.grad(norm))(x, params),
            s.jax.hessian(s.jax.checkpoint(small))(z),
            s.jax.jacrev(s.jax.jacrev(s.jax.checkpoint(small)))(z),
            s.jax.jacrev(s.jax.jacfwd(small))(z),
        ), x, params, z)

    check(case, ulps=64, cancels=(norm, 5.0))  # second derivatives along z of single outputs, added up


@pytest.mark.parametrize("policy", ["none", "everything", "dots", "no_batch", "not_a", "user"])
def test_under_vmap_and_jit(policy):
    def case(s):
        f = s.jax.checkpoint(layers(s), policy=policies(s)[policy])
        x, params = values(s)
        xs = s.jnp.stack([x, 2 * x, -x])
        axes = {"w": None, "v": 0}
        vs = {"w": params["w"], "v": s.jnp.stack([params["v"]] * 3)}
        return oracle.compiled(s, lambda xs, params, vs: (
            s.jax.vmap(f, in_axes=(0, None))(xs, params),
            s.jax.vmap(s.jax.grad(f), in_axes=(0, None))(xs, params),
            s.jax.grad(lambda xs: s.jnp.sum(s.jax.vmap(f, in_axes=(0, axes))(xs, vs)))(xs),
            s.jax.jit(s.jax.vmap(s.jax.jit(s.jax.grad(f, argnums=1)), in_axes=(0, None)))(xs, params),
            s.jax.checkpoint(s.jax.vmap(s.jax.grad(f), in_axes=(0, None)))(xs, params),
        ), xs, params, vs)

    within_roundings(case)


def test_nested():
    def case(s):
        def f(x):
            for _ in range(3):
                x = s.jnp.sin(x) * 1.1
            return x

        inner = s.jax.checkpoint(f)
        outer = s.jax.checkpoint(lambda x: inner(s.jax.checkpoint(s.jax.jit(inner))(x)))
        sum_of = lambda g: lambda x: s.jnp.sum(g(x))  # noqa: E731
        x = s.jnp.arange(4.0)
        return (
            s.jax.grad(sum_of(outer))(x),
            s.jax.grad(sum_of(s.jax.grad(sum_of(outer))))(x),
            s.jax.jit(s.jax.grad(sum_of(outer)))(x),
            s.jax.jacfwd(s.jax.grad(sum_of(outer)))(x),
        )

    check(case)


def recurrent(s, checkpoint_body, checkpoint_whole):
    """A recurrence over `xs`; each of its parts as `checkpoint_*` makes it."""
    name = name_of(s)

    def f(w, xs):
        def body(carry, x):
            h = name(s.jnp.tanh(carry @ w + x), "a")
            return h, s.jnp.sum(s.jnp.sin(h))

        carry, ys = s.lax.scan(checkpoint_body(body), s.jnp.zeros(3), xs)
        return s.jnp.sum(carry) + s.jnp.sum(ys**2)

    return checkpoint_whole(f)


@pytest.mark.parametrize("policy", ["none", "everything", "dots", "only_a", "user"])
@pytest.mark.parametrize("place", ["body", "whole", "both"])
def test_with_scan(policy, place):
    def case(s):
        some = functools.partial(s.jax.checkpoint, policy=policies(s)[policy], prevent_cse=False)
        plain = lambda f: f  # noqa: E731
        f = recurrent(s, plain if place == "whole" else some, plain if place == "body" else some)
        w = s.jnp.arange(9.0).reshape(3, 3) / 10
        xs = s.jnp.cos(s.jnp.arange(15.0)).reshape(5, 3)
        batch = s.jnp.stack([xs, -xs])
        slope = lambda w: s.jnp.sum(s.jax.grad(f)(w, xs) ** 2)  # noqa: E731
        return oracle.compiled(s, lambda w, xs, batch: (
            f(w, xs),
            s.jax.grad(f, argnums=(0, 1))(w, xs),
            s.jax.jit(s.jax.grad(f, argnums=(0, 1)))(w, xs),
            s.jax.vmap(s.jax.grad(f), in_axes=(None, 0))(w, batch),
            s.jax.grad(slope)(w),
            s.jax.jvp(slope, (w,), (w,)),
        ), w, xs, batch)

    check(case, ulps=64)


def test_with_branches_and_loops():
    def case(s):
        @s.jax.checkpoint
        def f(x, n):
            x = s.lax.cond(n > 2, lambda x: s.jnp.sin(x) * x, lambda x: s.jnp.cos(x), x)
            x = s.lax.fori_loop(0, 3, lambda i, x: s.jnp.sin(x) + i, x)
            return s.lax.switch(n, [s.jnp.sin, s.jax.checkpoint(lambda x: x**3), s.jnp.tanh], x)

        bounded = s.jax.checkpoint(
            lambda x: s.lax.while_loop(lambda x: x < 10.0, lambda x: x * 1.5, s.jnp.sin(x) + 1.0)
        )
        xs = s.jnp.arange(3.0)
        return (
            [s.jax.grad(f)(0.5, n) for n in range(4)],
            s.jax.grad(s.jax.grad(f))(0.5, 1),
            s.jax.jit(s.jax.vmap(s.jax.grad(f), in_axes=(0, None)))(xs, 3),
            s.jax.vmap(s.jax.grad(f))(xs, s.jnp.arange(3)),
            bounded(0.5),
            s.jax.jvp(bounded, (0.5,), (1.0,)),
        )

    check(case, cancels=1.0)  # in the derivative of tanh


def test_custom_derivatives_inside():
    def case(s):
        @s.jax.custom_jvp
        def twice(x):
            return 2 * x

        @twice.defjvp
        def twice_jvp(primals, tangents):
            return twice(*primals), 5 * s.jnp.cos(primals[0]) * tangents[0]

        f = s.jax.checkpoint(lambda x: s.jnp.sin(twice(s.jnp.sin(x))))
        rule = s.jax.custom_jvp(lambda x: x)
        rule.defjvp(lambda p, t: s.jax.jvp(s.jax.checkpoint(s.jnp.sin), p, t))
        return (
            s.jax.grad(f)(1.0),
            s.jax.jvp(f, (1.0,), (1.0,)),
            s.jax.grad(s.jax.grad(f))(1.0),
            s.jax.grad(s.jax.checkpoint(rule))(1.0),
            s.jax.jit(s.jax.grad(rule))(1.0),
        )

    check(case)


def test_closures_trees_and_keywords():
    def case(s):
        def loss(w, x):
            @s.jax.checkpoint
            def layer(x, scale=2.0, *, shift):
                return {"y": s.jnp.tanh(w * x) * scale + shift, "n": s.jnp.arange(3), "none": None}

            out = layer(x, shift=w)
            return s.jnp.sum(layer(out["y"], 3.0, shift=x)["y"]), out

        w, x = s.jnp.array([0.1, 0.2]), s.jnp.array([1.0, 2.0])
        return (
            s.jax.grad(loss, argnums=(0, 1), has_aux=True)(w, x),
            s.jax.jit(s.jax.grad(loss, has_aux=True))(w, x),
            s.jax.jit(s.jax.checkpoint(lambda x: 2))(1.0),
            s.jax.checkpoint(lambda x: x)(s.jnp.int32(1)),
            s.jax.grad(s.jax.checkpoint(lambda x: x))(1.0),
            s.jax.grad(s.jax.checkpoint(lambda x: 3.0))(1.0),
        )

    check(case)


def test_inputs_without_derivatives():
    def case(s):
        @s.jax.checkpoint
        def pick(x, index, key):
            noise = s.random.normal(key, x.shape)
            return s.jnp.sin(x * noise)[index], index + 1

        x = s.jnp.arange(4.0)
        key = s.random.key(0)
        grad, aux = s.jax.grad(pick, has_aux=True)(x, 2, key)
        return grad, aux, s.jax.grad(pick, allow_int=True, argnums=0, has_aux=True)(x, 1, key)

    check(case)


def test_linear_functions_transpose():
    def case(s):
        f = s.jax.checkpoint(lambda x: (3.0 * x[:2], -x))
        return s.jax.linear_transpose(f, s.jnp.arange(3.0))((s.jnp.ones(2), s.jnp.ones(3)))

    check(case)


def test_static_arguments():
    def case(s):
        def power(x, n, flip=False):
            return -(x**n) if flip else x**n

        static = s.jax.checkpoint(power, static_argnums=(1, 2))
        last = s.jax.checkpoint(power, static_argnums=-1)
        return (
            s.jax.grad(static)(2.0, 3, True),
            s.jax.grad(static)(2.0, 3, False),
            s.jax.grad(lambda x: static(x, 2, [1]))(3.0),
            last(2.0, 3),
            s.jax.remat(lambda x, f: f(x), static_argnums=1)(2.0, s.jnp.sin),
        )

    check(case)


@pytest.mark.raises("KeyError", "NotImplementedError", "TracerBoolConversionError", "TypeError", "ValueError")
@pytest.mark.parametrize(
    "case",
    [
        lambda s: s.jax.checkpoint(lambda x: x if x > 0 else -x)(1.0),
        lambda s: s.jax.grad(s.jax.checkpoint(lambda x: x if x > 0 else -x))(1.0),
        lambda s: s.jax.checkpoint(lambda x: x, static_argnums=(3,))(1.0),
        lambda s: s.jax.checkpoint(lambda x: x, static_argnums="x")(1.0),
        lambda s: s.jax.checkpoint(lambda x: x, prevent_cse=3),
        lambda s: s.jax.checkpoint(lambda x: x, concrete=True),
        lambda s: s.jax.checkpoint(lambda x: x)("text"),
        lambda s: s.jax.checkpoint(lambda x: {"a": "b"})(1.0),
        lambda s: s.jax.checkpoint(),
        lambda s: s.jax.grad(s.jax.checkpoint(s.jnp.sin, policy=lambda *a, **k: "yes"))(1.0),
        lambda s: s.jax.grad(s.jax.checkpoint(s.jnp.sin, policy=lambda prim: True))(1.0),
        lambda s: s.jax.grad(s.jax.checkpoint(s.jnp.sin, policy=lambda *a, **k: {}["a"]))(1.0),
        lambda s: s.jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"],
            names_which_can_be_offloaded=["a"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
    ],
)
def test_errors(case):
    check(case)


def test_errors_say_what_to_do():
    with pytest.raises(ferrax.errors.TracerBoolConversionError, match="static_argnums.*checkpoint"):
        ferrax.checkpoint(lambda x: x if x > 0 else -x)(1.0)
    with pytest.raises(TypeError, match="checkpoint_policies"):
        ferrax.checkpoint(jnp.sin, policy=3)
    with pytest.raises(TypeError, match="callable"):
        ferrax.checkpoint(3)
    with pytest.raises(TypeError, match="must be a str"):
        ferrax.ad_checkpoint.checkpoint_name(1.0, 2)


# What is kept.


def residuals(s, f, *args):
    found = (saved_residuals if s.name == "ferrax" else jax_saved_residuals)(f, *args)
    described = [(aval.str_short(short_dtypes=True), text.split(" from /")[0]) for aval, text in found]
    # JAX lists literals, too, which nobody keeps.
    return sorted(item for item in described if item[1] != "from a literal")


@pytest.mark.parametrize("policy", [p for p in POLICIES if p not in ("everything", "anything_except")])
def test_saved_residuals(policy):
    def kept(s):
        x, params = values(s)
        return residuals(s, s.jax.checkpoint(layers(s), policy=policies(s)[policy]), x, params)

    assert kept(oracle.FERRAX) == kept(oracle.JAX)


def test_saved_residuals_of_parts_and_batches():
    def kept(s):
        x, params = values(s)
        f = s.jax.checkpoint(layers(s))
        dots = s.jax.checkpoint(layers(s), policy=s.jax.checkpoint_policies.dots_saveable)
        no_batch = s.jax.checkpoint(
            lambda a, b: s.jnp.sin(s.jnp.sin(a @ b)).sum(),
            policy=s.jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
        )
        a, b = s.jnp.ones((2, 3, 4)), s.jnp.ones((2, 4, 5))
        return [
            residuals(s, lambda x: f(2 * x, params) ** 2, x),
            residuals(s, lambda x, v: s.jax.vmap(lambda x: dots(x, params))(x) * v, x[None], x[0, :1]),
            residuals(s, no_batch, a[0], b[0]),
            residuals(s, s.jax.vmap(no_batch), a, b),
            residuals(s, s.jax.checkpoint(lambda x: x * 2.0), x),
        ]

    assert kept(oracle.FERRAX) == kept(oracle.JAX)


def test_saved_residuals_of_loops():
    def shapes(s, policy, place):
        some = functools.partial(s.jax.checkpoint, policy=policies(s)[policy])
        plain = lambda f: f  # noqa: E731
        f = recurrent(s, plain if place == "whole" else some, plain if place == "body" else some)
        w, xs = s.jnp.ones((3, 3)), s.jnp.ones((5, 3))
        return [shape for shape, text in residuals(s, f, w, xs) if "argument" not in text]

    # The carries of each step; what the policy saves of each step besides; inputs alone.
    assert "f32[5,3]" in shapes(oracle.FERRAX, "none", "body")
    assert len(shapes(oracle.FERRAX, "dots", "body")) > len(shapes(oracle.FERRAX, "none", "body"))
    for policy in ("none", "dots", "only_a"):
        kept = [shapes(s, policy, "whole") for s in (oracle.FERRAX, oracle.JAX)]
        assert kept[0] == kept[1]


def nested(s, place):
    """A function of a matrix, with products inside of branches and loops."""
    lax, jnp = s.lax, s.jnp

    def products(x):
        return jnp.sin(jnp.sin(x @ x) @ x)

    def branch(x, inner):
        # The other branch saves products of another shape, and fewer.
        return lax.cond(x[0, 0] > 0, inner, lambda x: x * jnp.sum(jnp.sin(x @ x[0])), x)

    def loop(x, inner):
        return lax.scan(lambda c, a: (inner(c) * a, None), x, jnp.arange(1.0, 4.0))[0]

    return {
        "branch": lambda x: branch(x, products),
        "branch in branch": lambda x: branch(x, lambda x: branch(x, products)),
        "branch in loop": lambda x: loop(x, lambda x: branch(x, products)),
        "loop in branch": lambda x: branch(x, lambda x: loop(x, products)),
        "loop in loop": lambda x: loop(x, lambda x: loop(x, products)),
        "product as result": lambda x: branch(x, lambda x: jnp.sin(x @ x) @ x),
    }[place]


NESTED = ("branch", "branch in branch", "branch in loop", "loop in branch", "loop in loop", "product as result")


@pytest.mark.parametrize("policy", ["everything", "dots"])
@pytest.mark.parametrize("place", NESTED)
def test_products_in_branches_and_loops_are_saved(place, policy):
    def products(jaxpr):
        return str(jaxpr).count("dot_general")

    def counts(s):
        f = s.jax.checkpoint(nested(s, place), policy=policies(s)[policy])
        x = s.jnp.ones((3, 3))
        return [products(s.jax.make_jaxpr(g(f, x)[1])(x)) for g in (s.jax.linearize, s.jax.vjp)]

    def derivatives(s, checkpoint):
        f = checkpoint(nested(s, place))
        grad = s.jax.grad(lambda x: f(x).sum())
        return [
            (grad(x), s.jax.jvp(grad, (x,), (x,))[1], s.jax.jit(grad)(x))
            for x in (s.jnp.linspace(start, 0.4, 4).reshape(2, 2) for start in (0.1, -0.1))
        ]

    assert counts(oracle.FERRAX) == counts(oracle.JAX)
    some = functools.partial(ferrax.checkpoint, policy=policies(oracle.FERRAX)[policy])
    oracle.compare(derivatives(oracle.FERRAX, some), derivatives(oracle.JAX, lambda f: f))


def test_everything_is_what_a_plain_function_keeps():
    f = layers(oracle.FERRAX)
    x, params = values(oracle.FERRAX)
    whole = ferrax.checkpoint(f, policy=ferrax.checkpoint_policies.everything_saveable)
    assert residuals(oracle.FERRAX, whole, x, params) == residuals(oracle.FERRAX, f, x, params)


def test_print_saved_residuals(capsys):
    def f(x):
        y = ferrax.ad_checkpoint.checkpoint_name(jnp.sin(x["a"]), "y")
        return jnp.sin(y)

    policy = ferrax.checkpoint_policies.save_only_these_names("y")
    ferrax.ad_checkpoint.print_saved_residuals(ferrax.checkpoint(f, policy=policy), {"a": 1.0})
    first, second = capsys.readouterr().out.splitlines()
    assert first == "f32[] from the argument x['a']"
    line = f.__code__.co_firstlineno + 1
    assert second.startswith("f32[] named 'y' from ") and f"test_checkpoint.py:{line} (" in second


def test_policies_get_primitives_types_and_parameters():
    seen = []

    def policy(prim, *avals, **params):
        seen.append((prim, [(a.shape, a.dtype) for a in avals], params))
        return prim.name == "dot_general"

    f = ferrax.checkpoint(lambda x, w: jnp.sum(jnp.tanh(x @ w)), policy=policy)
    x, w = jnp.ones((2, 3)), jnp.ones((3, 4))
    ferrax.grad(f)(x, w)
    prim, avals, params = seen[0]
    assert prim is ferrax.make_jaxpr(jnp.dot)(x, w).eqns[0].primitive and prim.name == "dot_general"
    assert avals == [((2, 3), np.float32), ((3, 4), np.float32)]
    assert params["dimension_numbers"] == (((1,), (0,)), ((), ()))
    assert [p.name for p, *_ in seen].count("tanh") == 1


def test_policies_can_be_called():
    cp = ferrax.checkpoint_policies
    dot, name = Primitive("dot_general"), Primitive("name")
    batched = {"dimension_numbers": (((2,), (1,)), ((0,), (0,)))}
    single = {"dimension_numbers": (((1,), (0,)), ((), ()))}
    assert cp.everything_saveable(dot) and not cp.nothing_saveable(dot)
    assert cp.dots_saveable(dot, **batched) and not cp.dots_saveable(name, name="a")
    assert cp.dots_with_no_batch_dims_saveable(dot, **single)
    assert not cp.dots_with_no_batch_dims_saveable(dot, **batched)
    assert cp.save_only_these_names("a")(name, name="a")
    assert not cp.save_only_these_names("a")(name, name="b")
    assert not cp.save_any_names_but_these("a")(name, name="a")
    assert cp.save_any_names_but_these("a")(name, name="b")
    assert cp.save_only_these_names("a") == cp.save_only_these_names("a")
    both = cp.save_from_both_policies(cp.dots_saveable, cp.save_only_these_names("a"))
    assert both(dot, **single) is True and both(name, name="b") is False
    offload = cp.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"],
        names_which_can_be_offloaded=["b"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    assert offload(name, name="a") is ferrax.ad_checkpoint.Saveable
    assert offload(name, name="b") == ferrax.ad_checkpoint.Offloadable("device", "pinned_host")
    assert offload(name, name="c") is ferrax.ad_checkpoint.Recompute


def test_offloading_keeps():
    cp = ferrax.checkpoint_policies
    x, params = values(oracle.FERRAX)
    f = layers(oracle.FERRAX)
    places = {"offload_src": "device", "offload_dst": "pinned_host"}

    def kept(policy):
        return residuals(oracle.FERRAX, ferrax.checkpoint(f, policy=policy), x, params)

    assert kept(cp.offload_dot_with_no_batch_dims(**places)) == kept(
        cp.dots_with_no_batch_dims_saveable
    )
    names = {"names_which_can_be_saved": ["a"], "names_which_can_be_offloaded": ["b"]}
    assert kept(cp.save_and_offload_only_these_names(**names, **places)) == kept(
        cp.save_only_these_names("a", "b")
    )


def test_names_are_identities():
    def case(s):
        name = name_of(s)
        f = lambda x: name({"a": s.jnp.sin(x), "b": x}, "n")  # noqa: E731
        x = s.jnp.arange(3.0)
        return (
            f(x),
            name(s.jnp.float32(1.0), "n"),
            s.jax.jit(f)(x),
            s.jax.vmap(f)(x),
            s.jax.jvp(f, (x,), (x,)),
            s.jax.grad(lambda x: f(x)["a"].sum())(x),
        )

    check(case)


def test_the_op_shows_in_jaxprs():
    f = ferrax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), prevent_cse=False)
    (equation,) = ferrax.make_jaxpr(f)(1.0).eqns
    assert equation.primitive.name == "remat2"
    assert equation.params["prevent_cse"] is False and equation.params["differentiated"] is False
    backward = [e for e in ferrax.make_jaxpr(ferrax.grad(f))(1.0).eqns if e.params.get("differentiated")]
    assert [e.primitive.name for e in backward] == ["remat2"]


def test_names_and_documentation_stay():
    @functools.partial(ferrax.checkpoint, policy=ferrax.checkpoint_policies.dots_saveable)
    def documented(x):
        """Says."""
        return x

    assert (documented.__name__, documented.__doc__) == ("documented", "Says.")


def told(s, log, x):
    s.jax.debug.callback(lambda _: log.append(1), x)
    return s.jnp.sin(x)


# Functions of `g`, which is checkpointed, and `h`, which is not; both tell when they are computed.
TELLING = {
    "alone": lambda s, g, h: g,
    "jit": lambda s, g, h: s.jax.jit(g),
    "cond": lambda s, g, h: lambda x: s.lax.cond(x > 0, g, lambda x: x, x),
    "of cond": lambda s, g, h: s.jax.checkpoint(lambda x: s.lax.cond(x > 0, h, lambda x: x, x)),
    "scan": lambda s, g, h: lambda x: s.lax.scan(lambda c, a: (c + g(a), None), 0.0, x[None])[0],
    "of scan": lambda s, g, h: s.jax.checkpoint(
        lambda x: s.lax.scan(lambda c, _: (h(c), None), x, None, length=1)[0]),
    "not used": lambda s, g, h: lambda x: s.jax.vjp(lambda x: (g(x), x * x), x)[1]((x * 0, x))[0],
}  # fmt: skip


# Functions of `g` whose derivatives do not need it.
UNNEEDED = {
    "not used": lambda s, g: lambda x: (g(x), x * x)[1],
    "stopped": lambda s, g: lambda x: s.lax.stop_gradient(g(x)) * x,
    "not used in jit": lambda s, g: s.jax.jit(lambda x: (g(x), x * x)[1]),
    "not used in scan": lambda s, g: lambda x: s.lax.scan(
        lambda c, _: ((g(c), c * c)[1], None), x, None, length=1)[0],
    "not used in cond": lambda s, g: lambda x: s.lax.cond(x > 0, lambda x: (g(x), x * x)[1], lambda x: x, x),
}  # fmt: skip


def times_told(s, make):
    """How often a checkpointed function is computed in derivatives of order 0 to 3."""
    counts = []
    for order in range(4):
        log = []
        f = make(functools.partial(told, s, log))
        for _ in range(order):
            f = s.jax.grad(f)
        f(s.jnp.float32(0.5))
        s.jax.effects_barrier()
        counts.append(len(log))
    return counts


@pytest.mark.parametrize("name", TELLING)
def test_nothing_is_computed_again_more_often_than_derivatives_need(name):
    check(lambda s: times_told(s, lambda tell: TELLING[name](s, s.jax.checkpoint(tell), tell)))


@pytest.mark.parametrize("name", UNNEEDED)
def test_nothing_is_computed_again_that_no_derivative_needs(name):
    """JAX computes it once more for the sake of its effects."""
    s = oracle.FERRAX
    assert times_told(s, lambda tell: UNNEEDED[name](s, ferrax.checkpoint(tell))) == [1, 1, 1, 1]
