"""Mutable arrays under derivatives, in rules of the user's, and in what else goes through programs."""

import functools

import numpy as np
import oracle
import pytest
from ref_cases import module, raises, same

import ferrax
import ferrax.numpy as jnp

# Derivatives.


def _powers(s, x):
    ref = s.jax.new_ref(s.jnp.zeros(3))
    ref[0] = x
    ref[1:] += x * x
    return ref[...].sum()


def _scanned(s, x):
    ref = s.jax.new_ref(s.jnp.zeros(()))

    def body(c, i):
        ref[...] += c * x
        return c * x, None

    c, _ = s.lax.scan(body, 1.0, s.jnp.arange(3))
    return ref[...] + c


def _loop(s, x):
    ref = s.jax.new_ref(x)

    def body(i, c):
        ref[...] = ref[...] * x
        return c

    s.lax.fori_loop(0, 3, body, 0)
    return ref[...]


def _branch(s, x):
    ref = s.jax.new_ref(x)

    def scale():
        ref[...] = ref[...] * s.jnp.sin(x)

    s.lax.cond(x > 0, scale, lambda: None)
    return ref[...]


def _inner_jit(s, x):
    ref = s.jax.new_ref(0.0)
    s.jax.jit(lambda r, x: r.addupdate(s.jnp.sin(x)))(ref, x)
    return ref[...] * x


def _indexed(s, x):
    ref = s.jax.new_ref(s.jnp.arange(4.0))
    old = module(s).swap(ref, 2, x)
    module(s).addupdate(ref, s.jnp.array([0, 1]), s.jnp.stack([x * x, old]))
    return (ref[...] * s.jnp.arange(1.0, 5.0)).sum() + s.jax.freeze(ref)[0]


def _over_a_ref(s, x):
    ref = s.jax.new_ref(s.jnp.arange(3.0) * x)

    def body(c, row):
        row[...] *= x
        return c + row[...], None

    c, _ = s.lax.scan(body, 0.0, ref)
    return c + ref[1]


DIFFERENTIATED = [_powers, _scanned, _loop, _branch, _inner_jit, _indexed, _over_a_ref]


@pytest.mark.parametrize("f", DIFFERENTIATED)
@pytest.mark.parametrize("how", ["grad", "jit of grad", "grad of jit", "jvp", "linearize"])
@same
def test_derivatives(s, f, how):
    f = functools.partial(f, s)
    grad, jit = s.jax.grad, s.jax.jit
    for x in (1.5, -0.5):
        if how == "jvp":
            result = s.jax.jvp(f, (x,), (2.0,))
        elif how == "linearize":
            out, push = s.jax.linearize(f, x)
            result = out, push(2.0)
        else:
            result = {"grad": grad(f), "jit of grad": jit(grad(f)), "grad of jit": grad(jit(f))}[how](x)
    return result


@pytest.mark.parametrize("f", DIFFERENTIATED)
def test_second_derivatives_are_those_of_the_differences(f):
    # JAX fails on some of these.
    f = functools.partial(f, oracle.FERRAX)
    grad = ferrax.grad(f)
    with ferrax.enable_x64(True):
        x = jnp.float64(1.25)
        expected = (grad(x + 1e-5) - grad(x - 1e-5)) / 2e-5
        np.testing.assert_allclose(ferrax.grad(grad)(x), expected, rtol=1e-6)
        np.testing.assert_allclose(ferrax.hessian(ferrax.jit(f))(x), expected, rtol=1e-6)


# JAX fails on batches of the others.
BATCHED = [f for f in DIFFERENTIATED if f not in (_branch, _over_a_ref)]


@pytest.mark.parametrize("f", BATCHED)
@same
def test_derivatives_of_batches(s, f):
    f = functools.partial(f, s)
    x = s.jnp.array([1.5, -0.5, 0.25])
    return s.jax.vmap(s.jax.grad(f))(x), s.jax.grad(lambda x: s.jax.vmap(f)(x).sum())(x)


@pytest.mark.parametrize("f", [_branch, _over_a_ref])
def test_derivatives_of_batches_are_those_of_the_lanes(f):
    grad = ferrax.grad(functools.partial(f, oracle.FERRAX))
    x = jnp.array([1.5, -0.5, 0.25])
    np.testing.assert_allclose(ferrax.vmap(grad)(x), [grad(lane) for lane in x], rtol=1e-6)


@same
def test_outer_refs_in_differentiated_functions(s):
    ref, log = s.jax.new_ref(2.0), s.jax.new_ref(s.jnp.zeros(2))

    def f(x, passed):
        passed[...] *= 3.0
        log[0] = s.lax.stop_gradient(x)
        log[1] += 1.0
        return x * x * ref[...] * passed[...]

    passed = s.jax.new_ref(1.0)
    value, gradient = s.jax.value_and_grad(f)(3.0, passed)
    jitted = s.jax.jit(s.jax.grad(f))(2.0, passed)
    inner = s.jax.grad(s.jax.jit(f))(2.0, passed)
    _, pull = s.jax.vjp(lambda x: f(x, passed), 1.0)
    return value, gradient, jitted, inner, pull(1.0), passed[...], log[...]


@pytest.mark.parametrize(
    "use",
    [
        lambda s, f: s.jax.grad(f)(3.0),
        lambda s, f: s.jax.jvp(f, (3.0,), (1.0,)),
        lambda s, f: s.jax.vjp(f, 3.0),
        lambda s, f: s.jax.linearize(f, 3.0),
        lambda s, f: s.jax.grad(s.jax.jit(f))(3.0),
        lambda s, f: s.jax.jit(s.jax.grad(f))(3.0),
    ],
)
def test_differentiated_values_stay_inside(use):
    def case(s):
        ref = s.jax.new_ref(0.0)
        return use(s, lambda x: (ref.__setitem__(..., x), x * x)[1])

    raises(case, "differentiated value is written to a reference of type")


@pytest.mark.parametrize("use", [lambda f, ref: ferrax.grad(f)(ref), ferrax.vjp])
def test_refs_are_not_differentiated_by(use):
    ref = ferrax.new_ref(2.0)
    with pytest.raises(ValueError, match=r"Differentiate by its value, ref\[\.\.\.\]"):
        use(lambda r: r[...] ** 2, ref)


@pytest.mark.parametrize("passed", [False, True])
def test_checkpoint(passed):
    # JAX's gradients are zero here, or it fails.
    def f(x):
        ref = ferrax.new_ref(1.0)
        if passed:
            ferrax.checkpoint(lambda r, x: r.addupdate(jnp.sin(x)))(ref, x)
        else:
            ferrax.checkpoint(lambda x: ref.addupdate(jnp.sin(x)))(x)
        return ref[...] * x

    @same
    def values(s):
        ref = s.jax.new_ref(1.0)
        s.jax.checkpoint(lambda r, x: r.addupdate(s.jnp.sin(x)))(ref, 2.0)
        return ref[...]

    values()
    np.testing.assert_allclose(f(2.0), (1 + np.sin(2.0)) * 2, rtol=1e-6)
    for g in (ferrax.grad(f), ferrax.jit(ferrax.grad(f)), ferrax.grad(ferrax.jit(f))):
        np.testing.assert_allclose(g(2.0), 1 + np.sin(2.0) + 2 * np.cos(2.0), rtol=1e-6)


def test_checkpoint_writes_once_to_outer_refs():
    ref = ferrax.new_ref(0.0)

    @ferrax.checkpoint
    def f(x):
        ref[...] += 1.0
        return jnp.sin(x) * ref[...]

    np.testing.assert_allclose(ferrax.grad(f)(3.0), np.cos(3.0), rtol=1e-6)
    assert ref[...] == 1


# Functions with rules of their own.


def _stash(s, add):
    """The identity, whose reverse rule writes or adds the cotangent to a ref."""

    @s.jax.custom_vjp
    def stash(ref, x):
        return x

    def bwd(ref, g):
        if add:
            ref.addupdate(g)
        else:
            ref[...] = g
        return None, g

    stash.defvjp(lambda ref, x: (x, ref), bwd)
    return stash


@pytest.mark.parametrize("how", ["grad", "jit of grad", "grad of jit", "passed to jit", "vjp"])
@pytest.mark.parametrize("add", [False, True])
@same
def test_reverse_rules_write_to_refs(s, how, add):
    stash = _stash(s, add)
    ref = s.jax.new_ref(s.jnp.ones(3))

    def f(x, ref=ref):
        return (stash(ref, x) * stash(ref, s.jnp.sin(x))).sum()

    x = s.jnp.arange(3.0)
    if how == "grad":
        out = s.jax.grad(f)(x)
    elif how == "jit of grad":
        jitted = s.jax.jit(s.jax.grad(f))
        out = jitted(x), jitted(2 * x)
    elif how == "grad of jit":
        out = s.jax.grad(s.jax.jit(f))(x)
    elif how == "passed to jit":
        jitted = s.jax.jit(lambda x, r: s.jax.grad(f)(x, r))
        out = jitted(x, ref), jitted(2 * x, ref)
    else:
        value, pull = s.jax.vjp(f, x)
        out = value, ref[...], pull(2.0)
    return out, ref[...]


@pytest.mark.parametrize("jitted", [False, True])
@same
def test_reverse_rules_write_in_loops(s, jitted):
    stash = _stash(s, True)
    ref, last = s.jax.new_ref(s.jnp.zeros(3)), s.jax.new_ref(s.jnp.zeros(3))
    keep = _stash(s, False)

    def f(x):
        def body(c, i):
            return keep(last, stash(ref, c)) * (1.5 + i), None

        x, _ = s.lax.scan(body, x, s.jnp.arange(3.0))
        return (stash(ref, x) * 2).sum()

    f = s.jax.jit(f) if jitted else f
    return s.jax.grad(f)(s.jnp.ones(3)), ref[...], last[...]


@pytest.mark.parametrize("jitted", [False, True])
def test_reverse_rules_write_in_branches(jitted):
    # JAX has no such rules in branches.
    ref, stash = ferrax.new_ref(jnp.zeros(())), _stash(oracle.FERRAX, True)

    def f(x):
        return ferrax.lax.cond(x > 0, lambda x: stash(ref, x) * 2, lambda x: x, x)

    f = ferrax.jit(f) if jitted else f
    assert (ferrax.grad(f)(1.0), ferrax.grad(f)(-1.0), ref[...]) == (2, 1, 2)


def test_reverse_rules_write_to_an_argument_of_a_jitted_function_inside():
    ref, stash = ferrax.new_ref(0.0), _stash(oracle.FERRAX, True)
    f = ferrax.jit(lambda r, x: jnp.sin(stash(r, x)))
    for count in (1, 2):
        ferrax.grad(lambda x: f(ref, x) * 2)(1.0)
        np.testing.assert_allclose(ref[...], count * 2 * np.cos(1.0), rtol=1e-6)
    other = ferrax.new_ref(0.0)
    ferrax.grad(lambda x: f(other, x))(0.0)
    assert other[...] == 1


def test_without_a_derivative_reverse_rules_do_nothing():
    ref, stash = ferrax.new_ref(0.0), _stash(oracle.FERRAX, False)
    f = lambda x: stash(ref, x) * 2  # noqa: E731
    assert ferrax.jit(f)(1.0) == 2
    np.testing.assert_array_equal(ferrax.vmap(f)(jnp.arange(2.0)), [0, 2])
    assert ref[...] == 0


@same
def test_reverse_rules_in_lanes(s):
    stash = _stash(s, False)
    ref = s.jax.new_ref(s.jnp.zeros(3))
    grad = s.jax.grad(lambda x, r: s.jnp.sin(stash(r, x)))
    return s.jax.vmap(grad)(s.jnp.arange(3.0), ref), ref[...]


def test_reverse_rules_of_elements_are_differentiated_by_lane():
    stash = _stash(oracle.FERRAX, False)

    def f(ref, x):
        return ferrax.vmap(lambda r, x: stash(r, x))(ref, x).sum()

    with pytest.raises(ValueError, match="Differentiate inside of the mapped function"):
        ferrax.grad(f, argnums=1)(ferrax.new_ref(jnp.zeros(3)), jnp.arange(3.0))


@pytest.mark.parametrize("how", ["call", "jit", "grad", "jit of grad", "grad of jit"])
@pytest.mark.parametrize("kind", ["custom_vjp", "custom_jvp"])
@pytest.mark.parametrize("passed", [False, True])
@same
def test_functions_with_rules_use_refs(s, how, kind, passed):
    held = s.jax.new_ref(2.0)

    if kind == "custom_vjp":

        @s.jax.custom_vjp
        def f(ref, x):
            ref[...] += 1.0
            return x * ref[...]

        f.defvjp(lambda ref, x: (f(ref, x), ref[...]), lambda scale, g: (None, g * scale * 10))
    else:

        @s.jax.custom_jvp
        def f(ref, x):
            ref[...] += 1.0
            return x * ref[...]

        @f.defjvp
        def _(primals, tangents):
            return f(*primals), tangents[1] * 7.0

    if not passed and kind == "custom_vjp":
        inner = s.jax.custom_vjp(lambda x: f.fun(held, x))
        inner.defvjp(lambda x: (f.fun(held, x), None), lambda _, g: (g * 10,))
    elif not passed:
        inner = s.jax.custom_jvp(lambda x: f.fun(held, x))
        inner.defjvp(lambda p, t: (inner(*p), t[0] * 7.0))
    else:
        inner = functools.partial(f, held)
    if how == "grad of jit" and not passed:
        return None  # JAX alone traces rules that close over refs there.
    if kind == "custom_jvp" and ("jit" in how or (passed and how == "grad")):
        return None  # JAX lacks rules for these.
    grad, jit = s.jax.grad, s.jax.jit
    function = {
        "call": inner,
        "jit": jit(inner),
        "grad": grad(inner),
        "jit of grad": jit(grad(inner)),
        "grad of jit": grad(jit(inner)),
    }[how]
    return function(3.0), function(1.0), held[...]


def test_forward_derivatives_of_rules_with_refs():
    held = ferrax.new_ref(2.0)

    @ferrax.custom_jvp
    def f(ref, x):
        ref[...] += 1.0
        return x * ref[...]

    @f.defjvp
    def _(primals, tangents):
        return f(*primals), tangents[1] * 7.0

    assert ferrax.grad(f, argnums=1)(held, 3.0) == 7
    assert ferrax.jit(ferrax.grad(f, argnums=1))(held, 3.0) == 7
    assert ferrax.jvp(lambda x: f(held, x), (3.0,), (2.0,)) == (15, 14)
    assert held[...] == 5


def test_rules_that_cannot_write():
    held = ferrax.new_ref(0.0)

    @ferrax.custom_vjp
    def f(x):
        return x

    f.defvjp(lambda x: (x, None), lambda _, g: (held.addupdate(g), (g,))[1])
    ferrax.grad(f)(1.0)
    assert held[...] == 1
    with pytest.raises(ValueError, match="closes over a mutable array .* pass the array as an arg"):
        ferrax.grad(ferrax.jit(f))(1.0)

    count, stash = ferrax.new_ref(0), ferrax.custom_vjp(lambda ref, x: x)
    stash.defvjp(lambda ref, x: (x, ref), lambda ref, g: (ref.addupdate(1), (None, g))[1])
    with pytest.raises(ValueError, match="Reverse rules write to floating ones alone"):
        ferrax.grad(stash, argnums=1)(count, 1.0)

    late = ferrax.custom_vjp(lambda ref, x: x)
    late.defvjp(lambda ref, x: (ref.addupdate(1.0), (x, None))[1], lambda _, g: (None, g))
    with pytest.raises(ValueError, match="Write to it in both"):
        ferrax.grad(ferrax.jit(late), argnums=1)(held, 1.0)


def _reading(s, factor):
    read = s.jax.custom_vjp(lambda ref: ref[...])
    read.defvjp(lambda ref: (ref[...], None), lambda _, g: (factor * g,))
    return read


@pytest.mark.parametrize("factor", [1, 2])
@pytest.mark.parametrize("jitted", [False, True])
def test_what_a_reverse_rule_returns_for_a_ref_is_a_cotangent_of_what_it_held(factor, jitted):
    @same
    def case(s):
        read = _reading(s, factor)
        read = s.jax.jit(read) if jitted else read
        f = lambda x: read(s.jax.new_ref(s.jnp.sin(x)))  # noqa: E731
        return s.jax.vjp(f, 3.0)[1](1.0), s.jax.value_and_grad(f)(2.0), s.jax.jit(s.jax.grad(f))(2.0)

    case()

    def between(x):
        ref = ferrax.new_ref(jnp.sin(x))
        first = _reading(ferrax_side, factor)(ref)
        ref[...] = ref[...] * 2
        return first + ref[...] * 3 + _reading(ferrax_side, factor)(ref)

    ferrax_side = oracle.FERRAX
    want = (6 + 3 * factor) * np.cos(2.0)
    np.testing.assert_allclose(ferrax.grad(between)(2.0), want, rtol=1e-6)


# Other users of programs.


def test_checked_functions_write_to_refs():
    from ferrax.experimental import checkify

    ref = ferrax.new_ref(0.0)

    def f(x):
        checkify.check(x > 0, "x is {x}", x=x)
        ref[...] += x
        return x * 2

    error, out = checkify.checkify(f)(jnp.float32(3.0))
    assert error.get() is None and out == 6 and ref[...] == 3
    error, _ = ferrax.jit(checkify.checkify(f))(jnp.float32(-1.0))
    assert "x is -1" in error.get() and ref[...] == 2


def test_what_cannot_write_says_so():
    ref = ferrax.new_ref(1.0)

    def f(x):
        ref[...] += 1.0
        return x * ref[...]

    with pytest.raises(ValueError, match="writes to a mutable array from outside"):
        ferrax.linear_transpose(f, 1.0)
    assert ferrax.linear_transpose(lambda x: x * ref[...], 1.0)(2.0) == (2,)
    from ferrax.experimental import jet

    with pytest.raises(ValueError, match="writes to a mutable array from outside"):
        jet.jet(f, (1.0,), ((1.0,),))



@pytest.mark.parametrize("jitted", [False, True])
@same
def test_gradients_are_added_to_refs(s, jitted):
    total = s.jax.new_ref(s.jnp.ones(3))

    def step(x, total):
        _, pull = s.jax.vjp(lambda x, y, z: (x["a"] * y * z).sum(), {"a": x}, x * 2, 3.0)
        out = pull.with_refs({"a": total}, s.jax.ad.GradValue(), s.jax.ad.DontWant())(2.0)
        return type(out[0]["a"]).__name__, out[1], type(out[2]).__name__

    if jitted:
        return s.jax.jit(lambda x, total: step(x, total)[1])(s.jnp.arange(3.0), total), total[...]
    return step(s.jnp.arange(3.0), total), step(s.jnp.ones(3), total), total[...]


def test_with_refs_takes_the_arguments_structure():
    _, pull = ferrax.vjp(jnp.multiply, 2.0, 3.0)
    with pytest.raises(ValueError, match="for each leaf of the arguments"):
        pull.with_refs(ferrax.new_ref(0.0))
    assert ferrax.jit(lambda pull, ct: pull(ct))(pull, 1.0) == (3, 2)


def test_cotangents_that_nobody_wants_are_not_computed():
    x = jnp.arange(3.0)
    _, pull = ferrax.vjp(lambda x, i, y: x * i * jnp.sin(y), x, 2, x)
    only = pull.with_refs(ferrax.ad.GradValue(), ferrax.ad.DontWant(), ferrax.ad.DontWant())
    whole = ferrax.make_jaxpr(lambda: pull(x))()
    part = ferrax.make_jaxpr(lambda: only(x))()
    assert len(part.eqns) < len(whole.eqns) and len(part.jaxpr.outvars) == 1
    np.testing.assert_array_equal(only(x)[0], pull(x)[0])
    nothing = pull.with_refs(*[ferrax.ad.DontWant()] * 3)
    assert ferrax.make_jaxpr(lambda: nothing(x))().eqns == []
