"""What branches, loops and scans become in programs: their text, and what eager calls reuse."""

import functools
import textwrap

import jax
import numpy as np
import pytest
from oracle import same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

X = np.arange(3, dtype="float32")
ZERO, ONE = np.float32(0), np.float32(1)


def same_text(case, *args):
    """The text is JAX's own, letter for letter."""
    ours = str(ferrax.make_jaxpr(functools.partial(case, ferrax.lax, ferrax))(*args))
    assert ours == str(jax.make_jaxpr(functools.partial(case, jax.lax, jax))(*args))


CASES = {
    "cond": (lambda lax, m, x: lax.cond(x[0] > 0, lambda y: (y, x), lambda y: (y + 1, y), x), X),
    "cond_int": (lambda lax, m, i, x: lax.cond(i, lambda y: y, lambda y: y + 1, x), 1, X),
    "cond_python_bool": (lambda lax, m, x: lax.cond(True, lambda y: y, lambda y: y + 1, x), X),
    "cond_unused": (lambda lax, m, x: lax.cond(x > 0, lambda: (x, 1.0), lambda: (1.0, 2.0))[0], 1.0),
    "cond_handed_on": (lambda lax, m, x: lax.cond(x > 0, lambda y, z: (y, z), lambda y, z: (z * 2, z), x, x + 1), 1.0),
    "cond_captures": (lambda lax, m, x, y: lax.cond(x > 0, lambda: x * y, lambda: y - 1), 1.0, 2.0),
    "cond_nested": (lambda lax, m, x: lax.cond(x > 0, lambda: 1.0, lambda: lax.cond(x > 1, lambda: 2.0, lambda: 3.0)), 1.0),
    "switch": (lambda lax, m, i, x: lax.switch(i, [lambda y: y, lambda y: y + 1, lambda y: y * 2], x), 1, X),
    "while": (lambda lax, m, x, y: lax.while_loop(lambda c: c[0] < x, lambda c: (c[0] + y, c[1] * 2), (x, 1)), 1.0, 2.0),
    "while_invariant": (lambda lax, m, x: lax.while_loop(lambda t: t[0] < 9, lambda t: (t[0] + t[1], t[1]), (0.0, x)), 1.0),
    "while_promoted": (lambda lax, m, x: lax.while_loop(lambda c: c < 3, lambda c: c + x, 0), ONE),
    "fori": (lambda lax, m, x: lax.fori_loop(0, 3, lambda i, c: c + i, x), X),
    "fori_traced": (lambda lax, m, n, x: lax.fori_loop(0, n, lambda i, c: c + i, x), 3, X),
    "fori_traced_float": (lambda lax, m, n, x: lax.fori_loop(n, np.float32(3.5), lambda i, c: c + i, x), ONE, X),
    "fori_backwards": (lambda lax, m, x: lax.fori_loop(4, 0, lambda i, c: c + i, x), X),
    "fori_unroll": (lambda lax, m, x: lax.fori_loop(0, 4, lambda i, c: c + i, x, unroll=True), X),
    "scan": (lambda lax, m, x, s: lax.scan(lambda c, a: (c + a * s, c), 0, x), X, ONE),
    "scan_no_xs": (lambda lax, m, x: lax.scan(lambda c, _: (c + x, None), 0.0, None, length=3), 1.0),
    "scan_reverse": (lambda lax, m, x: lax.scan(lambda c, a: (c + a, c), ZERO, x, reverse=True, unroll=2), X),
    "scan_unrolled": (lambda lax, m, x: lax.scan(lambda c, a: (c + 1, a), 0.0, x, unroll=True), X),
    "scan_invariant": (lambda lax, m, x: lax.scan(lambda c, a: ((c[0], c[1] + c[0] * a), None), (x[0] + 1, ZERO), x), X),
    "scan_nested": (lambda lax, m, x: lax.scan(lambda c, a: lax.scan(lambda d, b: (d * b, None), c, x), ZERO, x), X),
    "map": (lambda lax, m, x: lax.map(lambda i: i * 2, x), X),
    "named_call": (lambda lax, m, x: m.named_call(lambda y: y + 1, name="increment")(x), 1.0),
    "named_scope": (lambda lax, m, x: m.named_scope("here")(lambda y: y + 1)(x), 1.0),
    "inline": (lambda lax, m, x: m.jit(lambda y: y + 1, inline=True)(x), 1.0),
    "partial": (lambda lax, m, x: m.jit(functools.partial(lambda a, y: a * y, 3.0))(x), 1.0),
}  # fmt: skip



@pytest.mark.parametrize("name", CASES)
def test_text(name):
    case, *args = CASES[name]
    same_text(case, *args)


def test_text_of_a_scan():
    text = str(ferrax.make_jaxpr(lambda xs: lax.scan(lambda c, x: (c + x, c), 0.0, xs))(X))
    assert text == textwrap.dedent("""\
        { lambda ; a:f32[3]. let
            b:f32[] c:f32[3] = scan[
              jaxpr={ lambda ; d:f32[] e:f32[]. let f:f32[] = add d e in (f, d) }
              length=3
              num_carry=1
              num_consts=0
              reverse=False
              unroll=1
            ] 0.0:f32[] a
          in (b, c) }""")


def test_parameters_hold_the_bodies():
    (equation,) = ferrax.make_jaxpr(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x))(1.0).eqns
    assert equation.primitive.name == "scan"
    assert equation.params["length"] == 3 and equation.params["num_carry"] == 2
    assert [inner.primitive.name for inner in equation.params["jaxpr"].eqns] == ["add", "mul"]
    *_, cond = ferrax.make_jaxpr(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x))(1.0).eqns
    names = [[inner.primitive.name for inner in branch.eqns] for branch in cond.params["branches"]]
    assert names == [["cos"], ["sin"]]


def test_barriers_part_equal_values():
    def f(x):
        return jnp.sin(x) + jnp.sin(lax.optimization_barrier(x))

    optimised = ferrax.jit(f).lower(1.0).as_text()
    assert optimised.count(" = sin ") == 2 and optimised.count("optimization_barrier") == 1
    assert ferrax.jit(lambda x: jnp.sin(x) + jnp.sin(x)).lower(1.0).as_text().count(" = sin ") == 1


@same
def test_text_with_places_has_named_scopes(S):
    def step(c, _):
        with S.jax.named_scope("inside"):
            return S.jnp.cos(c), None

    def f(x):
        with S.jax.named_scope("outer"), S.jax.named_scope("inner"):
            x = S.jnp.sin(x)
        return S.lax.scan(step, x, None, length=2)[0]

    lowered = S.jax.jit(f).lower(1.0)
    text = lowered.as_text(debug_info=True)
    shown = [name in text for name in ("outer/inner", "inside", __file__, "step")]
    return shown, [name in lowered.as_text() for name in ("outer/inner", __file__)]



# ensure_compile_time_eval


def test_known_values_compute_while_tracing():
    kinds = []

    @ferrax.jit
    def f(x):
        with ferrax.ensure_compile_time_eval():
            known = jnp.arange(3) + 1
            kinds.extend([known, jnp.sin(x), ferrax.jit(lambda a: a * 2)(known)])
            assert known[0] > 0
        kinds.append(jnp.ones(3))
        return x * known

    assert f(2.0).tolist() == [2.0, 4.0, 6.0]
    assert [isinstance(kind, ferrax.core.Tracer) for kind in kinds] == [False, True, False, True]


def test_known_values_decide_shapes():
    @ferrax.jit
    def f(x):
        with ferrax.ensure_compile_time_eval():
            width = int(jnp.max(jnp.array([1, 3])))
        return jnp.pad(x, width)

    assert f(jnp.ones(2)).shape == (8,)


def test_traced_values_stay_unknown_there():
    @ferrax.jit
    def f(x):
        with ferrax.ensure_compile_time_eval():
            return 1.0 if x > 0 else 2.0

    with pytest.raises(ferrax.errors.TracerBoolConversionError):
        f(1.0)
    # The failed trace left the context.
    assert len(ferrax.make_jaxpr(lambda: jnp.sin(jnp.ones(2)))().eqns) == 2


def test_the_context_decorates_functions():
    @ferrax.ensure_compile_time_eval()
    def table():
        return jnp.arange(4) * 2

    assert ferrax.make_jaxpr(lambda i: table()[i])(1).consts[0].tolist() == [0, 2, 4, 6]


def test_loops_run_there():
    @ferrax.jit
    def f(x):
        with ferrax.ensure_compile_time_eval():
            steps = int(lax.fori_loop(0, 3, lambda i, c: c + i, 0))
        return x * steps

    assert float(f(1.0)) == 3.0


# jit of methods and the like


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def method(self, x):
        return x * self.factor

    @functools.partial(ferrax.jit, static_argnums=0)
    def static(self, x):
        return x * self.factor

    @ferrax.jit
    def plain(self, x):
        return x * self.factor


def test_jit_of_methods():
    scaled = Scaled(2.0)
    assert float(ferrax.jit(scaled.method)(3.0)) == 6.0
    assert float(scaled.static(3.0)) == 6.0 and float(Scaled(4.0).static(3.0)) == 12.0
    with pytest.raises(TypeError, match="static"):
        scaled.plain(3.0)
    assert float(ferrax.jit(functools.partial(scaled.method, x=5.0))()) == 10.0


def test_keep_unused_changes_nothing():
    assert float(ferrax.jit(lambda x, y: x + 1, keep_unused=True)(1.0, 2.0)) == 2.0


@pytest.mark.parametrize("bad", [3, None, "f"])
def test_named_call_needs_a_function(bad):
    with pytest.raises(TypeError, match="callable"):
        ferrax.named_call(bad)


def test_names_are_strings():
    with pytest.raises(TypeError, match="string"):
        ferrax.named_call(lambda x: x, name=3)
    with pytest.raises(TypeError, match="string"):
        ferrax.named_scope(3)
