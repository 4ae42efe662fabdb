"""Mutable arrays as arguments of `jvp` and `linearize`: their tangents are mutable arrays, beside JAX."""

import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax


def moved(s, x, ref):
    before = ref[...]
    ref[...] = x * before
    return before * x


def read(s, x, ref):
    return x * ref[...]


def loop(s, x, ref):
    def body(c, y):
        ref[...] = s.jnp.sin(ref[...]) * y + x
        return c * ref[...], ref[...]

    return s.lax.scan(body, x, s.jnp.arange(3.0))


FUNCTIONS = {"moved": moved, "read": read, "loop": loop}
HOW = {
    "jvp": lambda s, f, r, t: s.jax.jvp(f, (3.0, r), (1.5, t)),
    "of jit": lambda s, f, r, t: s.jax.jvp(s.jax.jit(f), (3.0, r), (1.5, t)),
    "in jit": lambda s, f, r, t: s.jax.jit(lambda r, t: s.jax.jvp(f, (3.0, r), (1.5, t)))(r, t),
    "aux": lambda s, f, r, t: s.jax.jvp(lambda x, r: (f(x, r), r[...]), (3.0, r), (1.5, t), has_aux=True),
    "linearize": lambda s, f, r, t: s.jax.linearize(f, 3.0, r)[1](1.5, t),
    "jit of a linearized function": lambda s, f, r, t: s.jax.jit(s.jax.linearize(f, 3.0, r)[1])(1.5, t),
    "jacfwd by others": lambda s, f, r, t: s.jax.jacfwd(lambda x, r: s.lax.stop_gradient(r[...]) * x)(3.0, r),
}


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("how", HOW)
@same
def test_tangents_of_refs_are_refs(s, how, f):
    ref, tangent = s.jax.new_ref(s.jnp.float32(0.5)), s.jax.new_ref(s.jnp.float32(2.0))
    out = HOW[how](s, lambda x, r: FUNCTIONS[f](s, x, r), ref, tangent)
    return out, ref[...], tangent[...]


@same
def test_lanes(s):
    ref, tangent = s.jax.new_ref(s.jnp.arange(3.0)), s.jax.new_ref(s.jnp.ones(3))
    out = s.jax.vmap(lambda r, t: s.jax.jvp(lambda r: moved(s, 2.0, r), (r,), (t,)))(ref, tangent)
    return out, ref[...], tangent[...]


@same
def test_trees_and_integers(s):
    count, moves = s.jax.new_ref(s.jnp.int32(1)), s.jax.new_ref(s.jnp.int32(7))
    ref, tangent = s.jax.new_ref(2.0), s.jax.new_ref(5.0)

    def f(x, d):
        if s.name == "ferrax":  # JAX reads them alone
            d["n"][...] += 2
            d["n"][...] -= 2
        d["r"][...] *= x
        return x * d["r"][...] * d["n"][...]

    out = s.jax.jvp(f, (3.0, {"r": ref, "n": count}), (1.0, {"r": tangent, "n": moves}))
    return out, ref[...], tangent[...], count[...]


@same
def test_derivatives_of_tangents(s):
    def loss(x):
        ref, tangent = s.jax.new_ref(x), s.jax.new_ref(x * x)
        out, change = s.jax.jvp(lambda x, r: moved(s, x, r), (x, ref), (1.0, tangent))
        return out * change + ref[...] * tangent[...]

    return s.jax.value_and_grad(loss)(1.5)


def test_a_linear_function_is_called_again():
    ref = ferrax.new_ref(2.0)
    out, f_jvp = ferrax.linearize(lambda x, r: moved(None, x, r), 3.0, ref)
    assert out == ref[...] == 6.0
    for start in 5.0, 7.0:
        tangent = ferrax.new_ref(start)
        assert f_jvp(1.0, tangent) == tangent[...] == 2.0 + 3.0 * start
    assert ref[...] == 6.0


def twice(f):
    ref = ferrax.new_ref(2.0)
    return f(lambda x, r: x * r[...] * ref[...], ref, ferrax.new_ref(1.0))


def jvp(f, ref, tangent):
    return ferrax.jvp(f, (3.0, ref), (1.0, tangent))


ERRORS = {
    "no ref": (lambda: jvp(read, ferrax.new_ref(2.0), 1.0), ValueError, "tangent of the argument .* a mutable array"),
    "linearized, no ref": (
        lambda: ferrax.linearize(lambda x, r: x * r[...], 3.0, ferrax.new_ref(2.0))[1](1.0, 1.0),
        ValueError,
        "tangent of the argument r, a mutable array",
    ),
    "another shape": (
        lambda: jvp(read, ferrax.new_ref(2.0), ferrax.new_ref(jnp.ones(2))), ValueError, "tangent of the argument",
    ),
    "another structure": (
        lambda: jvp(read, ferrax.new_ref(2.0), [ferrax.new_ref(2.0)]), TypeError, "structure",
    ),
    "closed over as well": (lambda: twice(jvp), ValueError, "closed over"),
    "its own tangent": (lambda: (lambda r: jvp(read, r, r))(ferrax.new_ref(2.0)), ValueError, "appeared at both"),
    "returned": (
        lambda: jvp(lambda x, r: r, ferrax.new_ref(2.0), ferrax.new_ref(1.0)), ValueError, "results are values",
    ),
    "read after the end": (lambda: leaked()[...], ferrax.errors.UnexpectedTracerError, "already returned"),
}  # fmt: skip


def leaked():
    kept = []
    jvp(lambda x, r: (kept.append(r), x)[1], ferrax.new_ref(2.0), ferrax.new_ref(1.0))
    return kept[0]


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    use, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        use()


def test_what_is_only_read_is_not_written_in_lanes():
    ref, tangent = ferrax.new_ref(2.0), ferrax.new_ref(1.0)
    out, change = ferrax.vmap(lambda x: ferrax.jvp(lambda x, r: lax.sin(x) * r[...], (x, ref), (1.0, tangent)))(
        jnp.zeros(3)
    )
    np.testing.assert_array_equal(change, [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(out, [0.0, 0.0, 0.0])
