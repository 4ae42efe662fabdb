"""The way from a traced value back to its argument, and leaked tracers.

The texts of the errors are in `snapshots/`, of the cases in `error_cases_values.py`.
"""

import gc

import numpy as np
import pytest

import ferrax as jax
import ferrax.numpy as jnp
from ferrax import lax

CONVERSIONS = {
    "bool": (bool, jax.errors.TracerBoolConversionError),
    "float": (float, jax.errors.ConcretizationTypeError),
    "index": (lambda x: range(x), jax.errors.TracerIntegerConversionError),
    "array": (np.asarray, jax.errors.TracerArrayConversionError),
    "shape": (jnp.zeros, TypeError),
    "sizes": (lambda x: jnp.ones(2).reshape(1, x), TypeError),
    "axis": (lambda x: jnp.ones((2, 3)).sum(axis=x), jax.errors.ConcretizationTypeError),
    "axes": (lambda x: jnp.ones((2, 3)).sum(axis=(0, x)), jax.errors.TracerIntegerConversionError),
    "moved axis": (lambda x: jnp.expand_dims(jnp.ones(2), x), jax.errors.ConcretizationTypeError),
    "length": (lambda x: lax.scan(lambda c, _: (c, None), 0, length=x), jax.errors.ConcretizationTypeError),
    "bound": (lambda x: jnp.ones(3)[:x], IndexError),
    "format": (lambda x: f"{x:.2f}", TypeError),
    "mask": (lambda x: jnp.ones(1)[x[None] > 0], jax.errors.NonConcreteBooleanIndexError),
}

WRAPPERS = {
    "jit": lambda f: jax.jit(f),
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None]),
    "jit of grad": lambda f: jax.jit(jax.value_and_grad(f, allow_int=True)),
    "jit of jit": lambda f: jax.jit(lambda value: jax.jit(f)(value)),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, length=2),
    "cond": lambda f: lambda x: lax.cond(True, f, f, x),
    "while": lambda f: lambda x: lax.while_loop(lambda c: True, f, x),
    "checkpoint": lambda f: jax.jit(jax.checkpoint(f)),
}


def chain_of(error):
    """The lines of the chain in an error's text."""
    lines = str(error).split("From it back to an argument:\n")
    assert len(lines) == 2, str(error)
    return [line[2:] for line in lines[1].split("\n") if line.startswith("  ")]


@pytest.mark.parametrize("how", WRAPPERS)
@pytest.mark.parametrize("kind", CONVERSIONS)
def test_chain_ends_at_an_argument(kind, how):
    convert, error = CONVERSIONS[kind]

    def function(value):
        doubled = value * 2
        shifted = doubled + 1
        convert(shifted)
        return value

    with pytest.raises(error) as caught:
        WRAPPERS[how](function)(jnp.int32(3))
    lines = chain_of(caught.value)
    named = [line.split(" at ")[0] for line in lines]
    start = named.index("'add'") if "'add'" in named else None
    assert start is not None, lines
    assert named[start + 1] == "'mul'" and "(function)" in lines[start]
    expected = "the argument c of <lambda>" if how == "scan" else "the argument value of function"
    assert named[start + 2] == expected


def test_chain_goes_through_all_frames():
    def body(carry, x):
        if carry + x > 0:
            return carry, x
        return x, carry

    @jax.jit
    def outer(start):
        first = jnp.sin(start)
        return jax.grad(lambda scale: lax.scan(body, first * scale, jnp.ones(3))[0])(2.0)

    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        outer(1.0)
    lines = chain_of(caught.value)
    assert [line.split(" at ")[0] for line in lines] == [
        "'gt' of 'add'", "the argument carry of body", "'mul'", "the argument scale of <lambda>",
    ]  # fmt: skip


def test_chain_is_bounded():
    @jax.jit
    def function(x):
        for _ in range(3):
            x = (
                jnp.sin(
                    jnp.cos(
                        jnp.exp(
                            x
                        )
                    )
                )
            )  # fmt: skip
        return float(x)

    with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
        function(1.0)
    lines = chain_of(caught.value)
    assert len(lines) <= 9 and lines[-1] == "the argument x of function"


def test_one_step_needs_no_chain():
    @jax.jit
    def function(x):
        return x if x > 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        function(1.0)
    assert "From it back" not in str(caught.value)
    assert "It is computed by 'gt'" in str(caught.value)


# Leaks


@pytest.fixture(params=["jit", "grad", "vmap", "make_jaxpr", "scan", "cond", "vjp"])
def transformed(request):
    """A transformation, applied to a function and called."""
    x = jnp.ones(3)
    return {
        "jit": lambda f: jax.jit(f)(x),
        "grad": lambda f: jax.grad(lambda x: f(x).sum())(x),
        "vmap": lambda f: jax.vmap(f)(x),
        "make_jaxpr": lambda f: jax.make_jaxpr(f)(x),
        "scan": lambda f: lax.scan(lambda c, x: (c, f(x)), 0.0, x),
        "cond": lambda f: lax.cond(True, f, f, x),
        "vjp": lambda f: jax.vjp(f, x)[1](x),
    }[request.param]


def test_leaks_are_errors(transformed):
    kept = []

    def f(x):
        y = jnp.sin(x)
        kept.append(y)
        return y * 2

    with jax.check_tracer_leaks(True), pytest.raises(jax.errors.UnexpectedTracerError) as caught:
        transformed(f)
    text = str(caught.value)
    assert "computed by 'sin' at " in text and "test_tracer_chains.py" in text and "(f)" in text
    assert "kept by a list" in text
    kept.clear()
    with jax.check_tracer_leaks(True):
        transformed(lambda x: jnp.sin(x) * 2)


def test_leaks_are_no_errors_where_the_check_is_off(transformed):
    kept = []

    def f(x):
        kept.append(x)
        return x * 2

    transformed(f)
    assert kept


@pytest.fixture
def module_in_sight():
    """`tests/conftest.py` hides what was there before the first test from collections; who refers to a tracer, too."""
    gc.unfreeze()
    yield
    gc.freeze()


def test_arguments_and_globals(module_in_sight):
    def f(x):
        global leaked
        leaked = x
        return x

    with pytest.raises(jax.errors.UnexpectedTracerError) as caught, jax.checking_leaks():
        jax.jit(f)(1.0)
    assert "f32[], the argument x" in str(caught.value)
    assert "the global 'leaked' of the module" in str(caught.value)
    globals().pop("leaked")


def test_cycles_are_collected_first():
    class Node:
        pass

    @jax.jit
    def f(x):
        node = Node()
        node.self, node.value = node, x * 2
        return node.value + 1

    gc.disable()
    try:
        with jax.checking_leaks():
            assert f(1.0) == 3
    finally:
        gc.enable()


CLEAN = {
    "nested jit": lambda x: jax.jit(lambda y: jax.jit(lambda z: z * x)(y))(x),
    "scan": lambda x: lax.scan(lambda c, y: (c + y * x.sum(), c), 0.0, x),
    "while": lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x)),
    "cond": lambda x: lax.cond(x.sum() > 0, lambda: x * 2, lambda: x),
    "grad": lambda x: jax.grad(lambda y: (y * x).sum())(x),
    "vmap of grad": lambda x: jax.vmap(jax.grad(lambda y: jnp.sin(y) * x.sum()))(x),
    "hessian": lambda x: jax.hessian(lambda y: (y * y * x).sum())(x),
    "linearize": lambda x: jax.linearize(lambda y: y * x, x)[1](x),
    "checkpoint": lambda x: jax.grad(lambda y: jax.checkpoint(lambda z: jnp.sin(z * x).sum())(y))(x),
    "random": lambda x: x + jax.random.normal(jax.random.key(0), (3,)),
    "nn": lambda x: jax.nn.softmax(jax.nn.relu(x)) + jax.nn.gelu(x),
    "callback": lambda x: jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct((3,), np.float32), x),
    "at": lambda x: x.at[1].set(x[0]).at[jnp.array([0, 2])].add(1.0),
}


@jax.custom_jvp
def with_jvp(x):
    return jnp.sin(x)


@with_jvp.defjvp
def with_jvp_rule(primals, tangents):
    return with_jvp(*primals), jnp.cos(primals[0]) * tangents[0]


@jax.custom_vjp
def with_vjp(x):
    return jnp.sin(x)


with_vjp.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (jnp.cos(x) * ct,))
CLEAN["custom_jvp"] = lambda x: jax.grad(lambda y: with_jvp(y * x).sum())(x) + with_jvp(x)
CLEAN["custom_vjp"] = lambda x: jax.grad(lambda y: with_vjp(y * x).sum())(x) + with_vjp(x)


WITHOUT_REVERSE = ("while", "callback")
COMBINED = [
    (name, outer)
    for name in CLEAN
    for outer in ("eager", "jit", "grad of jit")
    if not (outer == "grad of jit" and name in WITHOUT_REVERSE)
]


@pytest.mark.parametrize("name,outer", COMBINED)
def test_nothing_of_ours_counts_as_a_leak(name, outer):
    f, x = CLEAN[name], jnp.ones(3)
    if outer == "jit":
        f = jax.jit(f)
    elif outer == "grad of jit":
        inner = jax.jit(f)
        f = jax.grad(lambda x: sum(leaf.sum() for leaf in jax.tree.leaves(inner(x))))
    with jax.checking_leaks():
        f(x)
