"""Python functions called from programs: pure, with side effects, for debugging; beside JAX."""

import contextlib
import functools
import io
import os

import jax
import numpy as np
import pytest
from oracle import FERRAX, JAX, compare, same

import ferrax
import ferrax.numpy as jnp

SIDES = pytest.mark.parametrize("S", [FERRAX, JAX], ids=["ferrax", "jax"])


def printed(S, function, *args):
    """What `function` writes to standard output, and its result."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = function(*args)
        S.jax.effects_barrier()
    return out.getvalue(), result


def spec(S, shape=(), dtype="float32"):
    return S.jax.ShapeDtypeStruct(shape, np.dtype(dtype))


def double(S, x, **options):
    return S.jax.pure_callback(lambda v: np.asarray(v) * 2, spec(S, x.shape, x.dtype), x, **options)


# Values


@same
def test_pure_callback_eager(S):
    return double(S, S.jnp.arange(3.0))


@same
def test_pure_callback_jit(S):
    return S.jax.jit(lambda x: double(S, x) + 1)(S.jnp.arange(6.0).reshape(2, 3))


@same
def test_pure_callback_trees(S):
    def callback(x, *, y):
        return {"sum": x[0] + y["b"], "parts": (x[1], np.int32(3))}

    result = {"sum": spec(S, (2,)), "parts": (spec(S), spec(S, (), "int32"))}

    @S.jax.jit
    def f(x, y):
        return S.jax.pure_callback(callback, result, x, y=y)

    return f([S.jnp.ones(2), S.jnp.float32(5)], {"b": S.jnp.arange(2.0)})


@same
def test_pure_callback_results_become_32_bit(S):
    wide = S.jax.pure_callback(lambda x: np.float64(x) / 3, spec(S), 1.0)
    return wide, S.jax.pure_callback(lambda x: 7, spec(S, (), "int32"), 1.0)


@same
def test_callback_that_uses_arrays_and_jit(S):
    inner = S.jax.jit(lambda v: S.jnp.sin(v) @ v)

    @S.jax.jit
    def f(x):
        y = S.jax.pure_callback(lambda v: inner(v) + S.jnp.sum(v), spec(S), S.jnp.cos(x))
        return y * x

    return f(S.jnp.arange(50000.0) / 50000), f(S.jnp.arange(3.0))


@same
def test_callback_inside_callback(S):
    def outer(v):
        return S.jax.jit(lambda w: double(S, w))(v) + 1

    return S.jax.jit(lambda x: S.jax.pure_callback(outer, spec(S, (2,)), x))(S.jnp.ones(2))


@same
def test_callback_differentiates_inside(S):
    def callback(v):
        return S.jax.grad(lambda w: w**3)(v)

    return S.jax.jit(lambda x: S.jax.pure_callback(callback, spec(S), x))(2.0)


def test_pure_callback_of_no_use_is_not_called():
    calls = []

    @ferrax.jit
    def f(x):
        ferrax.pure_callback(lambda v: calls.append(1) or v, spec(FERRAX), x)
        return x + 1

    f(1.0)
    assert calls == []


@SIDES
def test_arguments_are_arrays(S):
    seen = []

    def callback(x, y):
        seen.extend([isinstance(x, S.jax.Array), x.dtype.name, y.shape])
        return x

    S.jax.jit(lambda x, y: S.jax.pure_callback(callback, spec(S), x, y))(1.0, S.jnp.ones((2, 0)))
    assert seen == [True, "float32", (2, 0)]


@same
def test_key_arguments(S):
    key = S.random.key(3)
    draw = lambda k: S.random.uniform(k, (2,))  # noqa: E731
    return S.jax.jit(lambda k: S.jax.pure_callback(draw, spec(S, (2,)), k))(key)


@pytest.mark.parametrize("kind", ["pure", "io", "debug"])
@same
def test_keys_come_as_their_words(S, kind):
    seen = []
    note = lambda k: seen.append((k.dtype.name, k.shape)) or np.float32(1)  # noqa: E731
    call = {
        "pure": lambda k: S.jax.pure_callback(note, spec(S), k),
        "io": lambda k: S.jax.experimental.io_callback(note, spec(S), k),
        "debug": lambda k: S.jax.debug.callback(note, k) or 1.0,
    }[kind]
    result = S.jax.jit(call)(S.random.key(3))
    S.jax.effects_barrier()
    return result, seen


@same
def test_print_of_a_key(S):
    show = lambda k: S.jax.debug.print("{} {k}", k, k=k) or 1.0  # noqa: E731
    keys = S.random.split(S.random.key(3), 2)
    return printed(S, S.jax.jit(show), keys[0])[0], printed(S, show, keys)[0], f"{keys}"


def test_callbacks_are_called_anew_in_each_run():
    calls = []
    f = ferrax.jit(lambda x: ferrax.pure_callback(lambda v: calls.append(float(v)) or v, spec(FERRAX), x))
    f(1.0), f(2.0), f(1.0)
    assert calls == [1.0, 2.0, 1.0]


# vmap

METHODS = ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"]


@pytest.mark.parametrize("method", METHODS)
@same
def test_vmap_methods(S, method):
    shapes = []

    def callback(x, y):
        shapes.append((x.shape, y.shape))
        return np.asarray(x) + np.asarray(y)

    def f(x, y):
        return S.jax.pure_callback(callback, spec(S), x, y, vmap_method=method)

    out = S.jax.vmap(f, in_axes=(0, None))(S.jnp.arange(3.0), S.jnp.float32(10))
    return out, sorted(set(shapes))


@pytest.mark.parametrize("method", METHODS[:4])
@same
def test_nested_vmap(S, method):
    def callback(x, y):
        return np.asarray(x) * 2 + np.asarray(y)

    def f(x, y):
        return S.jax.pure_callback(callback, spec(S, (4,)), x, y, vmap_method=method)

    x = S.jnp.arange(24.0).reshape(2, 4, 3)
    y = S.jnp.arange(12.0).reshape(3, 4)
    inner = S.jax.vmap(f, in_axes=(1, 0), out_axes=1)
    return S.jax.vmap(inner, in_axes=(0, None))(x, y), S.jax.jit(S.jax.vmap(inner, (0, None)))(x, y)


@pytest.mark.raises("NotImplementedError")
@same
def test_vmap_without_method(S):
    return S.jax.vmap(lambda x: double(S, x))(S.jnp.ones(3))


@pytest.mark.raises("ValueError")
@same
def test_unknown_method(S):
    return double(S, S.jnp.ones(3), vmap_method="all")


@same
def test_io_callback_under_vmap(S):
    seen = []

    def note(x, y):
        seen.append((float(x), float(y)))
        return np.float32(x + y)

    def f(x, y):
        return S.jax.experimental.io_callback(note, spec(S), x, y)

    out = S.jax.vmap(f, in_axes=(0, None))(S.jnp.arange(3.0), 5.0)
    return out, sorted(seen)


@pytest.mark.raises("ValueError")
@same
def test_ordered_io_callback_under_vmap(S):
    def f(x):
        return S.jax.experimental.io_callback(lambda v: v, spec(S), x, ordered=True)

    return S.jax.vmap(f)(S.jnp.ones(3))


@pytest.mark.parametrize("batched", [False, True])
def test_conditions_of_batched_loops_call_once_more_than_there_are_steps(batched):
    # JAX refuses ordered callbacks under vmap, those without operands too.
    seen = []

    def note(what):
        ferrax.experimental.io_callback(lambda: seen.append(what), None, ordered=True)

    def condition(x):
        note("condition")
        return x < 3

    def step(x):
        note("step")
        return x + 1

    loop = functools.partial(ferrax.lax.while_loop, condition, step)
    if batched:
        assert ferrax.vmap(loop)(jnp.array([0, 1, 5])).tolist() == [3, 3, 5]
    else:
        assert int(loop(0)) == 3
    ferrax.effects_barrier()
    assert seen == ["condition", "step"] * 3 + ["condition"]


# Derivatives


@pytest.mark.raises("ValueError")
@pytest.mark.parametrize("transform", ["grad", "jvp", "linearize", "jit_grad"])
@pytest.mark.parametrize("kind", ["pure", "io"])
@same
def test_callbacks_have_no_derivative(S, transform, kind):
    def f(x):
        call = S.jax.pure_callback if kind == "pure" else S.jax.experimental.io_callback
        return call(lambda v: v, spec(S), x) * x

    return {
        "grad": lambda: S.jax.grad(f)(1.0),
        "jvp": lambda: S.jax.jvp(f, (1.0,), (1.0,)),
        "linearize": lambda: S.jax.linearize(f, 1.0)[1](1.0),
        "jit_grad": lambda: S.jax.jit(S.jax.grad(f))(1.0),
    }[transform]()


@same
def test_callback_of_a_stopped_value(S):
    def f(x):
        return x * S.jax.pure_callback(np.sin, spec(S), S.lax.stop_gradient(x))

    return S.jax.grad(f)(0.5), S.jax.jit(S.jax.value_and_grad(f))(0.5)


@SIDES
def test_io_callback_of_a_stopped_value_runs_once(S):
    seen = []

    def f(x):
        y = S.jax.experimental.io_callback(
            lambda v: seen.append(float(v)) or v, spec(S), S.lax.stop_gradient(x)
        )
        return x * y

    assert float(S.jax.grad(f)(3.0)) == 3.0
    S.jax.effects_barrier()
    assert seen == [3.0]


# Effects


@SIDES
def test_io_callbacks_happen_in_order_and_are_kept(S):
    seen = []

    def note(x):
        seen.append(float(x))

    @S.jax.jit
    def f(x):
        for i in range(5):
            S.jax.experimental.io_callback(note, None, x * (5 - i), ordered=True)
        return x

    f(1.0)
    S.jax.effects_barrier()
    assert seen == [5.0, 4.0, 3.0, 2.0, 1.0]
    f(2.0)
    S.jax.effects_barrier()
    assert seen[5:] == [10.0, 8.0, 6.0, 4.0, 2.0]


@SIDES
def test_effects_of_called_functions_happen(S):
    seen = []

    @S.jax.jit
    def inner(x):
        S.jax.experimental.io_callback(lambda v: seen.append(float(v)), None, x, ordered=True)
        return x * 0

    @S.jax.jit
    def outer(x):
        inner(x)
        inner(x + 1)
        return 1.0

    outer(1.0)
    S.jax.effects_barrier()
    assert seen == [1.0, 2.0]


@SIDES
def test_effects_without_arguments(S):
    seen = []

    @S.jax.jit
    def f():
        S.jax.experimental.io_callback(lambda: seen.append("ran"), None, ordered=True)

    f(), f()
    S.jax.effects_barrier()
    assert seen == ["ran", "ran"]


@SIDES
@pytest.mark.parametrize("ordered", [False, True])
def test_loops_and_branches(S, ordered):
    def f(n):
        def body(i, x):
            S.jax.debug.print("{} {}", i, x, ordered=ordered)
            S.lax.cond(
                i % 2 == 0,
                lambda: S.jax.debug.print("even", ordered=ordered),
                lambda: S.jax.debug.print("odd", ordered=ordered),
            )
            return x * 2

        return S.lax.fori_loop(0, n, body, 1.0)

    text, result = printed(S, S.jax.jit(f), 3)
    assert sorted(text.split("\n")) == sorted(["0 1.0", "even", "1 2.0", "odd", "2 4.0", "even", ""])
    if ordered:
        assert text.split("\n") == ["0 1.0", "even", "1 2.0", "odd", "2 4.0", "even", ""]
    assert float(result) == 8.0


@SIDES
def test_scan(S):
    def f(xs):
        def step(total, x):
            S.jax.debug.print("{}", x, ordered=True)
            return total + x, total

        return S.lax.scan(step, 0.0, xs)

    text, (total, _) = printed(S, S.jax.jit(f), S.jnp.arange(4.0))
    assert text == "0.0\n1.0\n2.0\n3.0\n" and float(total) == 6.0


# debug.print


@pytest.mark.parametrize("jit", [False, True])
@same
def test_print_formats(S, jit):
    def f(x, n):
        S.jax.debug.print("plain")
        S.jax.debug.print("{} and {}", x, n)
        S.jax.debug.print("{n:>5} {x[0]:.3f} {{}}", x=x, n=n)
        S.jax.debug.print("{} {}", "text", x)
        S.jax.debug.print("{}", {"a": n, "b": [x]})
        S.jax.debug.print("{0} {0} {1}", n, True)

    # Those that are not ordered come in any order.
    return sorted(printed(S, S.jax.jit(f) if jit else f, S.jnp.arange(2.0) / 3, 7)[0].splitlines())


@pytest.mark.raises("IndexError", "KeyError", "ValueError")
@pytest.mark.parametrize(
    "args,kwargs",
    [(("{} {}", 1), {}), (("{}", 1, 2), {}), (("{a}",), {"a": 1, "b": 2}), (("hi", 3), {}), (("{a}",), {"b": 1})],
)
@same
def test_print_checks_the_format(S, args, kwargs):
    S.jax.debug.print(*args, **kwargs)


@same
def test_print_in_two_calls(S):
    return printed(S, lambda: S.jax.debug.print(ordered=True)("{x}", x=S.jnp.ones(2)))[0]


@same
def test_print_uses_the_print_options_of_the_place(S):
    f = S.jax.jit(lambda x: S.jax.debug.print("{}", x))
    with np.printoptions(precision=2):
        return printed(S, f, S.jnp.ones(2) / 3)[0]


TRANSFORMS = {
    "grad": lambda S, f, x: S.jax.grad(f)(x),
    "jit_grad": lambda S, f, x: S.jax.jit(S.jax.grad(f))(x),
    "grad_jit": lambda S, f, x: S.jax.grad(S.jax.jit(f))(x),
    "value_and_grad": lambda S, f, x: S.jax.value_and_grad(f)(x),
    "jvp": lambda S, f, x: S.jax.jvp(f, (x,), (x,)),
    "jvp_jit": lambda S, f, x: S.jax.jvp(S.jax.jit(f), (x,), (x,)),
    "vjp": lambda S, f, x: S.jax.vjp(f, x)[1](x),
    "linearize": lambda S, f, x: S.jax.linearize(f, x)[1](x),
    "grad_grad": lambda S, f, x: S.jax.grad(S.jax.grad(f))(x),
    "hessian_jit": lambda S, f, x: S.jax.jit(S.jax.hessian(f))(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("ordered", [False, True])
@same
def test_print_sees_primals_once(S, name, ordered):
    def f(x):
        y = S.jnp.sin(x)
        S.jax.debug.print("y = {:.3f}", y, ordered=ordered)
        return y * x

    return printed(S, lambda: TRANSFORMS[name](S, f, S.jnp.float32(0.5)))


@same
def test_print_survives_where_nothing_else_does(S):
    def f(x):
        S.jax.debug.print("{}", x * 2)
        return 1.0

    return printed(S, S.jax.jit(f), 3.0), printed(S, S.jax.jit(S.jax.grad(f)), 3.0)


@same
def test_print_in_linear_transpose(S):
    def f(x):
        S.jax.debug.print("{}", x)
        return x * 2

    return printed(S, lambda: S.jax.linear_transpose(f, 3.0)(1.0))


@pytest.mark.parametrize("jit", [False, True])
@same
def test_print_under_vmap(S, jit):
    def f(x, y):
        S.jax.debug.print("{} {}", x, y)
        S.jax.debug.print("all")
        return x

    g = S.jax.vmap(f, in_axes=(0, None))
    text, out = printed(S, S.jax.jit(g) if jit else g, S.jnp.arange(3), S.jnp.ones(2))
    return sorted(text.splitlines()), out


@pytest.mark.parametrize("ordered", [False, True])
@same
def test_print_under_nested_vmap(S, ordered):
    def f(x, y):
        S.jax.debug.print("{} {}", x, y, ordered=ordered)

    g = S.jax.vmap(S.jax.vmap(f, in_axes=(0, None)), in_axes=(1, 0))
    return printed(S, g, S.jnp.arange(6).reshape(3, 2), S.jnp.arange(2.0))


@same
def test_print_under_vmap_of_grad(S):
    def f(x):
        S.jax.debug.print("{}", x)
        return x**2

    text, out = printed(S, S.jax.vmap(S.jax.grad(f)), S.jnp.arange(3.0))
    return sorted(text.splitlines()), out


@same
def test_ordered_prints_keep_their_order_under_grad(S):
    @S.jax.jit
    def inner(x):
        S.jax.debug.print("first {}", x, ordered=True)
        return x * x

    def f(x):
        y = inner(x)
        S.jax.debug.print("second {}", y, ordered=True)
        S.jax.debug.print("third", ordered=True)
        return y

    return printed(S, S.jax.grad(f), 3.0)


@SIDES
def test_print_before_a_failure_is_seen(S):
    def f(x):
        S.jax.debug.print("reached {}", x)
        raise KeyError("stop")

    def run():
        with pytest.raises(KeyError):
            S.jax.grad(f)(1.0)

    assert printed(S, run)[0] == "reached 1.0\n"


def test_log_names_the_line(caplog):
    with caplog.at_level("INFO", logger="ferrax.debug"):
        ferrax.jit(lambda x: ferrax.debug.log("x is {}", x))(1.0)
    (record,) = caplog.records
    assert record.getMessage() == "x is 1.0" and record.filename == "test_callbacks.py"


# debug.callback


@same
def test_debug_callback(S):
    seen = []

    @S.jax.jit
    def f(x):
        result = S.jax.debug.callback(lambda *a, **k: seen.append((a, k)) or 5, x, "text", key=x + 1)
        S.jax.debug.callback(ordered=True)(lambda v: seen.append(v), x)
        return x, result is None

    out = f(1.0)
    S.jax.effects_barrier()
    return out, sorted(map(repr, seen))


@pytest.mark.raises("TypeError")
@same
def test_debug_callback_must_be_callable(S):
    S.jax.debug.callback(3, 1.0)


@same
def test_debug_callback_partitioned(S):
    seen = []
    S.jax.debug.callback(lambda x: seen.append(float(x)), 2.0, partitioned=True, ordered=False)
    S.jax.effects_barrier()
    return seen


# Errors


def fails(x):
    raise ValueError("no such value")


@pytest.mark.raises("JaxRuntimeError")
@pytest.mark.parametrize("how", ["eager", "jit", "io", "io_jit", "debug_jit", "vmap"])
@same
def test_errors_in_callbacks(S, how):
    pure = lambda x: S.jax.pure_callback(fails, spec(S), x, vmap_method="sequential")  # noqa: E731
    side = lambda x: S.jax.experimental.io_callback(fails, spec(S), x)  # noqa: E731
    debug = lambda x: S.jax.debug.callback(fails, x)  # noqa: E731
    result = {
        "eager": lambda: pure(1.0),
        "jit": lambda: S.jax.jit(pure)(1.0),
        "io": lambda: side(1.0),
        "io_jit": lambda: S.jax.jit(side)(1.0),
        "debug_jit": lambda: S.jax.jit(debug)(1.0),
        "vmap": lambda: S.jax.vmap(pure)(S.jnp.ones(3)),
    }[how]()
    S.jax.block_until_ready(result)
    S.jax.effects_barrier()
    return result


@pytest.mark.raises("ValueError")
@same
def test_error_in_an_eager_debug_callback(S):
    S.jax.debug.callback(fails, 1.0)
    S.jax.effects_barrier()


def test_the_cause_of_an_error_is_what_was_raised():
    f = ferrax.jit(lambda x: ferrax.pure_callback(fails, spec(FERRAX), x))
    with pytest.raises(ferrax.errors.JaxRuntimeError, match="ValueError: no such value") as caught:
        f(1.0)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "fails at" in str(caught.value) and "test_callbacks.py" in str(caught.value)
    # Nothing is left over for the next error.
    with pytest.raises(TypeError, match="sub"):
        ferrax.lax.sub(jnp.ones(2), jnp.ones(2, "int32"))


def test_keyboard_interrupt_is_not_wrapped():
    def stop(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ferrax.jit(lambda x: ferrax.pure_callback(stop, spec(FERRAX), x))(1.0)


WRONG = {
    "shape": lambda x: np.ones(3, np.float32),
    "dtype": lambda x: np.int32(3),
    "count": lambda x: (x, x),
    "none": lambda x: None,
}


@pytest.mark.raises("JaxRuntimeError")
@pytest.mark.parametrize("name", WRONG)
@same
def test_wrong_results(S, name):
    return S.jax.block_until_ready(S.jax.pure_callback(WRONG[name], spec(S), 1.0))


def test_wrong_results_say_what_was_got():
    with pytest.raises(ferrax.errors.JaxRuntimeError, match=r"float32\[3\].*says float32\[\]"):
        ferrax.jit(lambda x: ferrax.pure_callback(WRONG["shape"], spec(FERRAX), x))(1.0)


@pytest.mark.raises("ValueError")
@same
def test_64_bit_results_are_refused(S):
    return S.jax.pure_callback(lambda x: x, spec(S, (), "float64"), 1.0)


def test_effects_are_in_the_jaxpr():
    def f(x):
        ferrax.debug.print("{}", x)
        ferrax.experimental.io_callback(fails, None, x, ordered=True)
        return ferrax.pure_callback(fails, spec(FERRAX), x)

    ours = ferrax.make_jaxpr(f)(1.0)
    names = [eqn.primitive.name for eqn in ours.eqns]
    assert names == ["debug_print", "io_callback", "pure_callback"]
    assert sorted(map(str, ours.effects)) == ["Debug", "OrderedIO"]
    assert ours.eqns[2].params["callback"].callback_func is fails
    assert "debug_print[" in str(ours) and "fmt=" in str(ours)


# debug.breakpoint


def session(S, commands, function, *args, **options):
    """The text of a prompt that was given these commands."""
    out = io.StringIO()
    text = io.StringIO("\n".join(commands) + "\n")
    S.jax.jit(lambda *a: function(*a, stdin=text, stdout=out, **options))(*args)
    S.jax.effects_barrier()
    return out.getvalue()


COMMANDS = ["p y", "x", "n + 1", "missing", "pp [n]", "", "l", "u", "p 1 +", "d", "u", "u", "u", "d", "cont"]


def test_breakpoint_answers_as_jax_does():
    def texts(S):
        def f(x, n, **options):
            y = x + n
            # This function's frame and that of `session`'s lambda: those of JAX differ above.
            S.jax.debug.breakpoint(num_frames=2, **options)
            return y * 2

        return session(S, COMMANDS, f, S.jnp.arange(2.0), 3)

    ours = texts(FERRAX)
    assert ours == texts(JAX)
    assert "->              S.jax.debug.breakpoint(" in ours and "At topmost frame." in ours


def test_breakpoint_shows_frames_and_traced_leaves_of_trees():
    def f(x, **options):
        pair = {"a": [x, "text"], "f": len}  # noqa: F841  shown at the prompt
        ferrax.debug.breakpoint(**options)

    text = session(FERRAX, ["bt", "p pair", "c"], f, 2.0)
    assert f'File "{__file__}"' in text and "in f\n    ferrax.debug.breakpoint(**options)" in text
    assert "{'a': [Array(2., dtype=float32), 'text'], 'f': <built-in function len>}" in text


@pytest.mark.parametrize("make", ["text", "pipe"])
def test_breakpoint_reads_standard_input_whatever_it_is(monkeypatch, capsys, make):
    commands = "p x\nc\np x + 1\nc\n"
    if make == "text":
        monkeypatch.setattr("sys.stdin", io.StringIO(commands))
    else:
        read, write = os.pipe()
        with os.fdopen(write, "w") as file:
            file.write(commands)
        monkeypatch.setattr("sys.stdin", os.fdopen(read))

    @ferrax.jit
    def f(x):
        ferrax.debug.breakpoint(ordered=True)
        ferrax.debug.breakpoint(ordered=True)
        return x

    f(1.0)
    one, two = (f"Entering jdb:\n(jdb) Array({x}., dtype=float32)\n(jdb) " for x in (1, 2))
    assert capsys.readouterr().out == one + two


def test_breakpoint_gives_its_token_back():
    def f(x, **options):
        return ferrax.debug.breakpoint(token=x * 2, **options)

    assert "(jdb)" in session(FERRAX, ["c"], f, 1.0)
    with pytest.raises(ValueError, match="not both"):
        ferrax.debug.breakpoint(token=1.0, ordered=True)


@pytest.mark.parametrize("commands, status", [(["q"], 0), (["p x"], "input ended")])
def test_breakpoint_ends_the_program(commands, status):
    def f(x, **options):
        ferrax.debug.breakpoint(**options)

    with pytest.raises(SystemExit) as ended:
        session(FERRAX, commands, f, 1.0)
    assert ended.value.code == status or status in ended.value.code


def test_breakpoint_without_standard_input(monkeypatch):
    @ferrax.jit
    def f(x):
        ferrax.debug.breakpoint()
        return x

    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(SystemExit, match="input ended"):
        f(1.0)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ferrax.errors.JaxRuntimeError, match="no standard input"):
        f(1.0)


def test_effects_barrier_and_compare():
    assert ferrax.effects_barrier() is None
    compare(double(FERRAX, jnp.ones(2)), double(JAX, jax.numpy.ones(2)))
