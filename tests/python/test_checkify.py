"""`checkify` against JAX: checks of every kind in calls, branches, loops and under transformations;
eager checks; errors as pytrees. Messages are JAX's, with the user's line behind them."""

import functools
import importlib
import re

import numpy as np
import pytest
from oracle import FERRAX, JAX, compare, same

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import checkify as ours


def lib(S):
    return importlib.import_module(f"{S.name}.experimental.checkify")


def message(error):
    return error.get()


def run(S, how, f, errors, *args):
    """`f` checkified, with `jit` around, inside, or nowhere."""
    errors = getattr(lib(S), errors)
    if how == "inner_jit":
        f = S.jax.jit(f)
    checked = lib(S).checkify(f, errors=errors)
    if how == "jit":
        checked = S.jax.jit(checked)
    error, out = checked(*args)
    return message(error), out


def positive(S, x, what="x"):
    lib(S).check(x > 0, what + " is {x}, number {}", S.jnp.int32(3), x=x)


def programs(S):
    """Functions of one scalar with checks that fail for some of its values."""
    jnp, lax, C = S.jnp, S.lax, lib(S)

    def two(x):
        C.check(x < 5, "large: {}", x)
        y = jnp.sin(x)
        positive(S, y, "sine")
        return y

    def in_cond(x):
        def low(x):
            positive(S, x, "low")
            return -x

        def high(x):
            C.check(x < 5, "high {}", x)
            return x * 2

        return lax.cond(x < 2, low, high, x) + 1

    def in_switch(x):
        def branch(number):
            def run(x):
                C.check(x < 3 + number, f"branch {number} has {{}}", x)
                return x * number

            return run

        return lax.switch(x.astype("int32") % 3, [branch(0), branch(1), branch(2)], x)

    def in_scan(x):
        def body(carry, y):
            C.check(carry < 4, "carry {carry} at {y}", carry=carry, y=y)
            return carry + y, carry * y

        return lax.scan(body, x, jnp.arange(4.0))

    def in_fori(x):
        def body(i, carry):
            C.check(carry != 2, "turn {i}", i=i)
            return carry + 1

        return lax.fori_loop(0, 4, body, x)

    def in_while_body(x):
        def body(carry):
            C.check(carry[0] != 3, "body {} {}", carry[0], carry[1])
            return carry[0] + 1, carry[1] * x

        return lax.while_loop(lambda c: c[0] < 5, body, (0, x))

    def in_while_cond(x):
        def cond(carry):
            C.check(carry < 6, "cond {}", carry)
            return carry < 5

        return lax.while_loop(cond, lambda c: c + 3, x)

    def nested(x):
        def outer(carry, y):
            def inner(c):
                C.check(c[1] < 5, "inner {}", c[1])
                return c[0] + 1, c[1] + y

            _, carry = lax.while_loop(lambda c: c[0] < 3, inner, (0, carry))
            carry = lax.cond(y > 0.75, lambda c: two(c), lambda c: c, carry)
            return carry, carry

        return S.jax.jit(lambda x: lax.scan(outer, x, jnp.array([0.5, 1.0])))(x)

    def checkpointed(x):
        return S.jax.checkpoint(two)(x) * 2

    def in_grad(x):
        return S.jax.grad(lambda x: two(x) * x)(x)

    def in_vmap(x):
        return S.jax.vmap(lambda y: (positive(S, y), y * 2)[1])(x + jnp.array([3.0, 2.0, 1.0]))

    def custom(x):
        @S.jax.custom_jvp
        def f(x):
            positive(S, x, "custom")
            return x * x

        f.defjvp(lambda primals, tangents: (primals[0] ** 2, 5 * primals[0] * tangents[0]))
        return f(x) + 1

    def custom_reverse(x):
        @S.jax.custom_vjp
        def f(x):
            positive(S, x, "custom")
            return x * x

        f.defvjp(lambda x: (x * x, x), lambda x, ct: (7 * x * ct,))
        return f(x) + 1

    def tree(x):
        C.check(x > 0, "{p[a]} and {p[b]}", p={"a": x, "b": x * 2})
        return {"x": x}

    def rechecked(x):
        error, out = C.checkify(two)(x)
        C.check_error(error)
        return out

    def rechecked_jit(x):
        error, out = S.jax.jit(C.checkify(two, errors=C.all_checks))(x)
        C.check_error(error)
        C.check(x > -3, "later")
        return out

    def debug(x):
        C.debug_check(x > 0, "debug {}", x)
        return x

    return {
        name: function
        for name, function in locals().items()
        if callable(function) and name not in ("jnp", "lax", "C", "S")
    }


POINTS = (2.5, -1.0, 7.0, 2.0, 0.0, -4.5)


def messages(results):
    return {name: (message(error), out) for name, (error, out) in results.items()}


@functools.cache
def jitted(S):
    """Each program at each point; one compilation for all."""

    @S.jax.jit
    def checked(x):
        return {name: lib(S).checkify(f)(x) for name, f in programs(S).items()}

    return [messages(checked(S.jnp.float32(point))) for point in POINTS]


@pytest.mark.parametrize("name", programs(FERRAX))
def test_user_checks(name):
    ours, theirs = ([results[name] for results in jitted(S)] for S in (FERRAX, JAX))
    compare(ours, theirs, weak=False)


@pytest.mark.parametrize("name", programs(FERRAX))
@pytest.mark.parametrize("how", ["plain", "inner_jit"])
def test_user_checks_without_jit(how, name):
    f = programs(FERRAX)[name]
    for point in map(jnp.float32, POINTS):
        compare(run(FERRAX, how, f, "user_checks", point), run(FERRAX, "jit", f, "user_checks", point))


@same(weak=False)
def test_under_vmap(S):
    @S.jax.jit
    def checked(x):
        return {
            name: S.jax.vmap(lib(S).checkify(f))(x)
            for name, f in programs(S).items()
            # JAX fails with conditions of while_loop that have checks.
            if name not in ("in_vmap", "in_while_cond")
        }

    return messages(checked(S.jnp.asarray(POINTS, "float32")))


@pytest.mark.parametrize("name", [name for name in programs(FERRAX) if name != "in_vmap"])
def test_lanes_are_as_alone(name):
    checked = ours.checkify(programs(FERRAX)[name])
    error, _ = ferrax.jit(ferrax.vmap(checked))(jnp.asarray(POINTS, "float32"))
    alone = [message(checked(jnp.float32(point))[0]) for point in POINTS]
    lines = [f"at mapped index {i}: {text}" for i, text in enumerate(alone) if text]
    assert message(error) == ("\n".join(lines) or None)


@same(weak=False)
def test_under_derivatives(S):
    def both(f, x):
        def scalar(x):
            return sum(S.jnp.sum(leaf) for leaf in S.jax.tree_util.tree_leaves(f(x)))

        checked = lib(S).checkify(scalar)
        out, error = S.jax.grad(lambda x: checked(x)[::-1], has_aux=True)(x)
        return {"outside": (error, out), "inside": lib(S).checkify(S.jax.grad(scalar))(x)}

    @S.jax.jit
    def derivatives(x):
        # JAX has no reverse mode of while.
        return {
            name: both(f, x)
            for name, f in programs(S).items()
            if "while" not in name and name != "nested"
        }

    outs = []
    for point in POINTS:
        for name, results in derivatives(S.jnp.float32(point)).items():
            found = messages(results)
            # JAX loses what fails in functions with rules of their own, and in scans inside.
            lost = "custom" in name or name in ("in_scan", "in_fori")
            outs.append([out for _, out in found.values()] if lost else found)
    return outs


@pytest.mark.parametrize("name", ["in_scan", "in_fori", "in_cond", "two"])
def test_checks_in_derivatives(name):
    f = programs(FERRAX)[name]

    def scalar(x):
        return sum(jnp.sum(leaf) for leaf in ferrax.tree_util.tree_leaves(f(x)))

    inside = ferrax.jit(ours.checkify(ferrax.grad(scalar)))
    for point in map(jnp.float32, POINTS):
        assert message(inside(point)[0]) == message(ours.checkify(f)(point)[0])


@pytest.mark.parametrize("name", ["custom", "custom_reverse"])
def test_custom_rules_keep_errors(name):
    checked = ours.checkify(programs(FERRAX)[name])
    grad, error = ferrax.jit(ferrax.grad(lambda x: checked(x)[::-1], has_aux=True))(-2.0)
    assert float(grad) == {"custom": -10.0, "custom_reverse": -14.0}[name]
    assert message(error).startswith("custom is -2.0")


AUTOMATIC = {
    "log": lambda S, x: S.jnp.log(x),
    "div": lambda S, x: 1 / (x - 2),
    "nan_div": lambda S, x: (x - 2) / (x - 2),
    "int_div": lambda S, x: S.lax.div(S.jnp.int32(3), x.astype("int32") - 2),
    "vector": lambda S, x: S.jnp.sqrt(S.jnp.array([4.0, 1.0]) - x),
    "sum": lambda S, x: S.jnp.sum(S.jnp.array([1.0, -1.0]) / (x - 2)),
    "take": lambda S, x: S.jnp.arange(3.0)[x.astype("int32")],
    "slice": lambda S, x: S.lax.dynamic_slice(S.jnp.ones((3, 4)), (0, x.astype("int32")), (2, 2)),
    "update_slice": lambda S, x: S.lax.dynamic_update_slice(
        S.jnp.ones((3, 4)), S.jnp.ones((2, 2)), (x.astype("int32"), 0)
    ),
    "gather": lambda S, x: S.jnp.ones((3, 5))[S.jnp.array([0, 1]), x.astype("int32") + S.jnp.array([0, 1])],
    "gather_rows": lambda S, x: S.jnp.ones((6, 5))[S.jnp.array([0, 1]) + x.astype("int32")],
    "scatter": lambda S, x: S.jnp.ones((3, 5)).at[x.astype("int32") + S.jnp.arange(2)].set(1.0),
    "scatter_add": lambda S, x: S.jnp.ones((6, 5)).at[:, x.astype("int32") + S.jnp.arange(2)].add(x),
    "scatter_mul": lambda S, x: S.jnp.ones(4).at[S.jnp.array([0, -2])].mul(S.jnp.log(x)),
    "where": lambda S, x: S.jnp.where(x > 0, S.jnp.log(S.jnp.where(x > 0, x, 1.0)), 0.0),
    "scan": lambda S, x: S.lax.scan(lambda c, y: (c / (y - x), c), 1.0, S.jnp.arange(4.0)),
    "while": lambda S, x: S.lax.while_loop(lambda c: S.jnp.log(c) < 3, lambda c: c * 3 + 2, x),
    "cond": lambda S, x: S.lax.cond(x > 1, lambda x: 1 / (x - 2), lambda x: S.jnp.log(x), x),
    "complex": lambda S, x: S.jnp.log(x + 0j) * (S.jnp.inf - S.jnp.inf * x),
}  # fmt: skip


@functools.cache
def automatic(S):
    C = lib(S)
    sets = [C.nan_checks, C.div_checks, C.index_checks, C.all_checks]

    @S.jax.jit
    def checked(x):
        # Of several categories JAX gives the one that is written first, not the first in time.
        return {
            f"{name} {number}": C.checkify(functools.partial(f, S), errors=errors)(x)
            for name, f in AUTOMATIC.items()
            for number, errors in enumerate(sets[:3] if name in ("scan", "while") else sets)
        }

    return [messages(checked(S.jnp.float32(point))) for point in (2.0, -1.0, 5.0)]


@pytest.mark.parametrize("name", AUTOMATIC)
def test_automatic_checks(name):
    ours, theirs = (
        [
            {key: result for key, result in results.items() if key.split()[0] == name}
            for results in automatic(S)
        ]
        for S in (FERRAX, JAX)
    )
    compare(ours, theirs, weak=False)


@pytest.mark.parametrize("name", AUTOMATIC)
@pytest.mark.parametrize("how", ["plain", "inner_jit"])
def test_automatic_checks_without_jit(how, name):
    f = functools.partial(AUTOMATIC[name], FERRAX)
    for errors in ("nan_checks", "div_checks", "index_checks", "automatic_checks"):
        for point in map(jnp.float32, (2.0, -1.0, 5.0)):
            compare(run(FERRAX, how, f, errors, point), run(FERRAX, "jit", f, errors, point))


def test_index_type_smaller_than_the_axis():
    # JAX cannot write the axis' size in the type of these indices.
    def f(x):
        return jnp.arange(400.0)[x + jnp.array([1], "int8")]

    checked = ferrax.jit(ours.checkify(f, errors=ours.index_checks))
    for index in (100, -9):
        error, out = checked(jnp.int8(index))
        assert error.get() is None and out.tolist() == [(index + 1) % 400]


def test_sets():
    from jax.experimental import checkify as theirs

    for name in dir(theirs):
        if name.endswith("_checks"):
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert {c.__name__ for c in mine} == {c.__name__ for c in other}, name
    names = {name for name in dir(theirs) if not name.startswith("_")}
    assert names <= {name for name in dir(ours) if not name.startswith("_")}


@same
def test_errors_of_other_categories_are_dropped(S):
    C = lib(S)

    def f(x):
        C.check(x > 0, "negative")
        return S.lax.cond(x < 0, lambda x: (C.check(False, "a"), x)[1], lambda x: x, S.jnp.log(x))

    return [
        run(S, how, f, errors, S.jnp.float32(-1))
        for how in ("plain", "jit")
        for errors in ("nan_checks", "index_checks")
    ]


def test_first_in_time():
    # The division fails at the turn before the check does, which is written before it.
    def body(i, x):
        ours.check(i < 3, "turn {}", i)
        return x / (2.0 - i)

    def f(x):
        return ferrax.lax.fori_loop(0, 5, body, x)

    error, _ = ferrax.jit(ours.checkify(f, errors=ours.all_checks))(1.0)
    assert message(error) == "division by zero"
    error, _ = ours.checkify(lambda x: ours.check_error(ours.checkify(f, ours.all_checks)(x)[0]))(1.0)
    assert message(error) == "turn 3 (`check` failed)"


EAGER = {
    "fails": lambda S, check: check(S.jnp.array(False), "no {}", S.jnp.ones(2)),
    "passes": lambda S, check: check(S.jnp.array(True), "no {}", S.jnp.ones(2)),
    "python_bool": lambda S, check: check(False, "no"),
    "vector": lambda S, check: check(S.jnp.array([True]), "no"),
    "integer": lambda S, check: check(1, "no"),
    "float": lambda S, check: check(S.jnp.float32(1), "no"),
    "number": lambda S, check: check(True, "no {}", 3),
    "string": lambda S, check: check(True, "no {x}", x="s"),
    "numpy": lambda S, check: check(False, "no {x}", x=np.arange(3)),
    "missing_field": lambda S, check: check(S.jnp.array(False), "no {x}"),
    "vmap": lambda S, check: S.jax.vmap(lambda x: check(x < 2, "no {}", x))(S.jnp.arange(3)),
    "vmap_passes": lambda S, check: S.jax.vmap(lambda x: check(x < 3, "no"))(S.jnp.arange(3)),
    "grad": lambda S, check: S.jax.grad(lambda x: (check(x < 2, "no {}", x), x)[1])(3.0),
    "grad_passes": lambda S, check: S.jax.grad(lambda x: (check(x < 4, "no"), x)[1])(3.0),
    "jvp": lambda S, check: S.jax.jvp(lambda x: (check(x < 2, "no"), x * 1)[1], (3.0,), (1.0,)),
    "jit": lambda S, check: S.jax.jit(lambda x: check(x < 2, "no"))(1),
    "scan": lambda S, check: S.lax.scan(lambda c, x: (check(x < 2, "no"), c), 0, S.jnp.arange(2)),
    "jit_vmap": lambda S, check: S.jax.jit(S.jax.vmap(lambda x: check(x < 9, "no")))(S.jnp.ones(3)),
    "jit_grad": lambda S, check: S.jax.jit(S.jax.grad(lambda x: (check(x < 2, "no"), x)[1]))(3.0),
    "eval_shape": lambda S, check: S.jax.eval_shape(lambda x: check(x < 2, "no"), 3.0),
}


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize("kind", ["check", "debug_check"])
@same(weak=False)
def test_outside_of_checkify(S, kind, name):
    if name == "eval_shape":
        EAGER[name](S, getattr(lib(S), kind))
        return None
    if name in ("fails", "python_bool", "numpy", "grad", "jvp") and kind == "check":
        with pytest.raises(ValueError) as raised:
            EAGER[name](S, lib(S).check)
        assert type(raised.value) is lib(S).JaxRuntimeError
        return re.sub(r"\nAt .*", "", str(raised.value))
    return EAGER[name](S, getattr(lib(S), kind))


@same
def test_throw_and_check_error(S):
    C = lib(S)

    def f(x):
        C.check(x > 0, "x is {}", x)
        return x

    outs = []
    for wrap in (lambda f: f, S.jax.jit, S.jax.vmap):
        for sign in (1, -1):
            error, out = wrap(C.checkify(f))(sign * S.jnp.ones(1 if wrap is S.jax.vmap else ()))
            for call in (error.throw, functools.partial(C.check_error, error)):
                try:
                    outs.append((call(), out))
                except C.JaxRuntimeError as raised:
                    outs.append((re.sub(r"\nAt .*", "", str(raised)), out))
                    assert isinstance(raised.__cause__, Exception)
    return outs


@pytest.mark.raises("TypeError")
@same
def test_check_error_takes_errors(S):
    lib(S).check_error("no")


def divided(S):
    return lambda x: S.lax.while_loop(lambda c: c < 3, lambda c: c / x + 2, x)


@same
def test_batched_while_is_refused(S):
    C = lib(S)
    try:
        C.checkify(S.jax.vmap(divided(S)), errors=C.float_checks)(S.jnp.arange(3.0))
    except ValueError as error:
        return "(checkify-of-vmap-of-while)" in str(error)


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
@same
def test_batched_while_with_a_count_is_refused(S, shape):
    C = lib(S)

    def loop(x, n):
        go_on, step = lambda c: c[1] < 3, lambda c: (c[0] / x + 2, c[1] + 1)
        return S.lax.while_loop(go_on, step, (x, n))

    try:
        C.checkify(S.jax.vmap(loop), errors=C.float_checks)(S.jnp.ones(shape), S.jnp.arange(3))
    except ValueError as error:
        return "(checkify-of-vmap-of-while)" in str(error)


def test_while_in_a_batch_of_checks():
    # The lane that is done at once does not divide; the one of 0 does.
    checked = ferrax.vmap(ours.checkify(divided(FERRAX), errors=ours.div_checks))
    error, out = checked(jnp.array([3.0, 0.0, 2.0]))
    assert message(error) == "at mapped index 1: division by zero"
    assert out.tolist() == [3.0, float("nan"), 3.0] or out.tolist()[::2] == [3.0, 3.0]


@same
def test_loop_until_all_are_done(S):
    # Written by hand, with a carry that has no lanes: no batch.
    C = lib(S)

    def f(x):
        def body(c):
            C.check(c[1] < 3, "turn {}", c[1])
            return c[0] - 1, c[1] + 1

        return S.lax.while_loop(lambda c: S.jnp.any(c[0] > 0), body, (x, 0))

    return [run(S, "jit", f, "user_checks", S.jnp.array([1.0, n])) for n in (2.0, 4.0)]


@same
def test_nested_vmap(S):
    C = lib(S)

    def f(x, y):
        C.check(x != y, "both {}", x)
        return x + y

    checked = S.jax.vmap(S.jax.vmap(C.checkify(f), in_axes=(None, 0)), in_axes=(0, None))
    error, out = checked(S.jnp.arange(2), S.jnp.arange(3))
    return message(error), out


def test_errors_are_pytrees():
    checked = ours.checkify(programs(FERRAX)["two"], errors=ours.all_checks)
    error, _ = ferrax.jit(checked)(7.0)
    leaves, tree = ferrax.tree_util.tree_flatten(error)
    assert hash(tree) == hash(ferrax.tree_util.tree_structure(ferrax.jit(checked)(8.0)[0]))
    assert message(tree.unflatten(leaves)) == message(error) == "large: 7.0 (`check` failed)"
    assert message(ferrax.jit(lambda error: error)(error)) == message(error)
    assert ours.init_error.get() is None and str(ours.init_error) == "Error(None)"
    seen = []
    ferrax.jit(lambda x: seen.append(repr(checked(x)[0])))(7.0)
    assert seen[0].startswith("Error(traced, of FailedCheckError(")
    assert not ferrax.tree_util.tree_leaves(ours.init_error)


def test_compiled_once():
    # What is checked is the same program each time, so that it is compiled and traced once.
    traces = []

    @ferrax.jit
    def f(x):
        traces.append(0)
        ours.check(x > 0, "negative")
        return x

    checked = ferrax.jit(ours.checkify(f))
    texts = {
        str(ferrax.make_jaxpr(ours.checkify(f, errors=ours.all_checks))(1.0)) for _ in range(3)
    }
    assert len(texts) == 1
    count = len(traces)
    for x in (1.0, -1.0, 3.0):
        checked(x)
    assert len(traces) == count


def test_without_checks_nothing_is_added():
    def f(x):
        return ferrax.lax.scan(lambda c, y: (c * y, c), x, jnp.ones(3))

    plain = ferrax.make_jaxpr(f)(1.0)
    checked = ferrax.make_jaxpr(lambda x: ours.checkify(f)(x)[1])(1.0)
    assert str(plain) == str(checked)


@pytest.mark.parametrize("how", ["plain", "jit", "scan"])
def test_line_beside_the_message(how):
    def f(x):
        y = x - 1
        return jnp.log(y)  # the line

    def scanned(x):
        return ferrax.lax.scan(lambda c, y: (f(y), None), x, jnp.full(2, x))

    g = {"plain": f, "jit": ferrax.jit(f), "scan": scanned}[how]
    line = f.__code__.co_firstlineno + 2
    error, _ = ours.checkify(g, errors=ours.nan_checks)(0.0)
    assert error.get() == "nan generated by primitive: log."
    assert error.get_exception().line == f"{__file__}:{line} (f)"
    with pytest.raises(ours.JaxRuntimeError, match=f":{line} "):
        error.throw()

    def user(x):
        ours.check(x > 0, "negative")

    line = user.__code__.co_firstlineno + 1
    error, _ = ferrax.jit(ours.checkify(user))(-1.0)
    assert error.get() == "negative (`check` failed)"
    assert error.get_exception().line == f"{__file__}:{line} (user)"


@same
def test_known_arguments_decide_branches(S):
    C = lib(S)

    def f(x, n, *, flag):
        if flag and n > 2:
            C.check(x > 1, "x {x} n {n}", x=x, n=S.jnp.int32(n))
        return x

    checked = C.checkify(f)
    outs = []
    for n in (1, 3):
        for flag in (False, True):
            error, out = checked(S.jnp.float32(0.5), n, flag=flag)
            outs.append((message(error), out))
    return outs


@pytest.mark.raises("TracerBoolConversionError")
@same
def test_index_arguments(S):
    C = lib(S)

    def f(x, i):
        return x[i], x.at[i].set(2.0)

    def by_value(x, i):
        # The value decides what is traced.
        return x[i] if i > 2 else x[0]

    x = S.jnp.arange(3.0)
    indices = [S.jnp.int32(2), S.jnp.int32(7), S.jnp.int32(-4), S.jnp.array([0, 3])]
    indices.append(((0, 5),))
    outs = [C.checkify(f, errors=C.index_checks)(x, i) for i in indices]
    outs.append(C.checkify(by_value, errors=C.index_checks)(x, S.jnp.int32(2)))
    return [(message(error), out) for error, out in outs]


def test_functions_with_a_vmap_rule():
    @ferrax.custom_batching.custom_vmap
    def f(x):
        ours.check(x > 0, "negative {}", x)
        return jnp.log(x)

    f.def_vmap(lambda size, batched, x: (jnp.log(x), batched[0]))
    error, out = ours.checkify(f, errors=ours.all_checks)(-1.0)
    assert message(error) == "negative -1.0 (`check` failed)" and np.isnan(out)
    error, _ = ferrax.vmap(ours.checkify(f))(jnp.array([1.0, -1.0]))
    assert message(error) == "at mapped index 1: negative -1.0 (`check` failed)"


def test_solutions_of_equations():
    def f(b):
        return ferrax.lax.custom_linear_solve(lambda x: 0 * x, b, lambda _, b: b / 0.0 * 0)

    error, _ = ferrax.jit(ours.checkify(f, errors=ours.nan_checks))(1.0)
    assert message(error) == "nan generated by primitive: custom_linear_solve."


def test_outputs_of_all_dtypes():
    def f(x, key):
        ours.check(x > 0, "negative {} {}", x.astype("bfloat16"), x > 3)
        return x.astype("float16"), ferrax.random.split(key), jnp.arange(2, dtype="uint8"), None

    error, (half, keys, small, nothing) = ferrax.jit(ours.checkify(f))(-1.0, ferrax.random.key(0))
    assert message(error) == f"negative {jnp.bfloat16(-1)} False (`check` failed)"
    assert (half.dtype, keys.shape, small.dtype, nothing) == ("float16", (2,), "uint8", None)


def over_devices(S, f, shape=(4,)):
    """`f` on devices of a mesh; on arrays of as many elements."""
    auto, P = S.jax.sharding.AxisType.Auto, S.jax.sharding.PartitionSpec
    names = ("x", "y")[: len(shape)]
    mesh = S.jax.make_mesh(shape, names, axis_types=(auto,) * len(shape))
    return S.jax.shard_map(f, mesh=mesh, in_specs=P(names), out_specs=P(names))


@pytest.mark.parametrize("kind", ["user_checks", "all_checks"])
@same
def test_devices_of_a_mesh(S, kind):
    C = lib(S)
    jnp, jax = S.jnp, S.jax

    def f(x):
        C.check(jnp.all(x < 2), "{x} is large", x=jnp.max(x))
        return jnp.log(x) / jnp.maximum(x, 0)

    functions = {
        "pmap": jax.pmap(f),
        "pmap of one": lambda x: jax.pmap(f)(x[1:2]),
        "shard_map": over_devices(S, f),
        "two axes": over_devices(S, f, (2, 2)),
        "jit inside": over_devices(S, jax.jit(f)),
        "jit outside": jax.jit(over_devices(S, f)),
    }
    if kind == "user_checks":
        functions["vmap inside"] = lambda x: jax.vmap(jax.pmap(f))(jnp.stack([x, x + 1]))
    x = jnp.array([1.0, -1.0, 2.0, 0.0])
    found = {}
    for name, g in functions.items():
        checked = C.checkify(g, errors=getattr(C, kind))
        found[name] = [message(h(x)[0]) for h in (checked, jax.jit(checked))]
        found[name].append(message(checked(jnp.ones(4))[0]))
    outer = jax.vmap(C.checkify(jax.pmap(f), errors=getattr(C, kind)))
    return found, message(outer(jnp.stack([x, -x]))[0])


def test_devices_before_other_checks_and_in_loops():
    def f(x):
        ours.check(jnp.all(x > 0), "{x} is small", x=x[0])
        return x - 1

    each = over_devices(FERRAX, f)

    def between(x):
        ours.check(x[3] < 9, "too large")
        y = each(x)
        ours.check(y[0] > 5, "after")
        return each(y)

    scan, cond = ferrax.lax.scan, ferrax.lax.cond
    x = jnp.array([7.0, 1.0, 2.0, 8.0])
    after = [f"at mapped index {n}: after (`check` failed)" for n in range(4)]
    cases = {
        "after": (between, x, ["at mapped index 1: 0.0 is small (`check` failed)"]),
        "before": (between, x.at[3].set(9), [f"at mapped index {n}: too large (`check` failed)" for n in range(4)]),
        "between": (between, jnp.array([6.0, 2.0, 2.0, 2.0]), after),
        "scan": (lambda x: scan(lambda c, _: (each(c), None), x, None, 3), x, ["0.0 is small (`check` failed)"]),
        "cond": (lambda x: cond(x[0] > 6, each, lambda x: x, x), x - 1.5, []),
        "cond taken": (lambda x: cond(x[0] > 5, each, lambda x: x, x), x - 1.5, ["-0.5 is small (`check` failed)"]),
    }
    for name, (g, value, lines) in cases.items():
        for h in (ours.checkify(g), ferrax.jit(ours.checkify(g))):
            assert (message(h(value)[0]) or "").splitlines() == lines, name
