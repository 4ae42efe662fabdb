"""Programs that walk jaxprs, as libraries and documentation have them: one source, run on ferrax
and on JAX."""

import importlib
import math

import numpy as np
import pytest
from oracle import FERRAX, JAX, same

SIDES = pytest.mark.parametrize("S", [FERRAX, JAX], ids=["ferrax", "jax"])
X = np.array([0.5, 1.0, 2.0], np.float32)


def core(S):
    return importlib.import_module(f"{S.name}.extend.core")


def module(S, name):
    return importlib.import_module(f"{S.name}.{name}")


def custom_functions(S):
    jax, jnp = S.jax, S.jnp

    @jax.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvp(lambda primals, tangents: (jnp.sin(*primals), 2 * tangents[0]))

    @jax.custom_vjp
    def scaled(x, y):
        return x * jnp.sum(y)

    scaled.defvjp(
        lambda x, y: (scaled(x, y), (x, y)), lambda res, g: (3 * g, jnp.sum(g) * res[1])
    )
    return sine, scaled


def functions(S):
    jax, jnp, lax = S.jax, S.jnp, S.lax
    sine, scaled = custom_functions(S)
    matrix = jnp.array([[2.0, 0.5], [0.5, 1.0]])

    def solved(x):
        return lax.custom_linear_solve(
            lambda v: matrix @ v * x[0],
            x[:2],
            lambda mv, b: jnp.stack([b[0] - b[1] / 2, 2 * b[1] - b[0] / 2]) / (1.75 * x[0]),
            symmetric=True,
        )

    def linear(x):
        call = jax.custom_derivatives.linear_call
        return call(lambda r, v: v * r, lambda r, v: v * r, 2.0, x)

    return {
        "elementwise": lambda x: jnp.exp(jnp.tanh(x)) + 2.0 * x - x / 7,
        "products": lambda x: jnp.ones((4, 3)) @ x + (x @ x),
        "jit": lambda x: jax.jit(lambda v: jnp.cos(v) * v)(x),
        "scan": lambda x: lax.scan(lambda c, v: (c + v, jnp.sin(c)), jnp.float32(1), x),
        "while": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x)),
        "cond": lambda x: lax.cond(x[0] > 0, lambda: x * 2.0, lambda: -x),
        "checkpoint": lambda x: jax.checkpoint(lambda v: jnp.sin(jnp.cos(v)))(x),
        "custom_jvp": lambda x: sine(x) * x,
        "custom_vjp": lambda x: scaled(x, x * 2.0),
        "nested": lambda x: jax.jit(lambda v: lax.scan(lambda c, u: (sine(c) * u, c), v, v[:, None]))(x),
        "windows": lambda x: lax.reduce_window(x, 0.0, lax.add, (2,), (1,), "VALID"),
        "greatest": lambda x: lax.reduce_window(x, -np.inf, lax.max, (2,), (1,), "SAME"),
        "folded": lambda x: lax.reduce(x, jnp.float32(0), lambda a, b: a + b + 2.0 * a * b, (0,)),
        "solve": solved,
        "linear_call": linear,
        "scatter": lambda x: x.at[jnp.array([0, 2])].add(1.0),
    }


NAMES = list(functions(FERRAX))


def jaxpr_of(S, name):
    return S.jax.make_jaxpr(functions(S)[name])(S.jnp.asarray(X))


# A count of operations, through every jaxpr in parameters


def count_flops(S, jaxpr):
    """Flops of products, and of one for each element of arithmetic; loops by their length."""
    total = 0
    for eqn in jaxpr.eqns:
        name, params = eqn.primitive.name, eqn.params
        size = math.prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
        if name == "dot_general":
            (contract, _), _ = params["dimension_numbers"]
            sizes = eqn.invars[0].aval.shape
            total += 2 * size * math.prod(sizes[axis] for axis in contract)
        elif name == "scan":
            total += params["length"] * count_flops(S, params["jaxpr"].jaxpr)
        elif name == "cond":
            total += max(count_flops(S, branch.jaxpr) for branch in params["branches"])
        elif name == "while":
            total += count_flops(S, params["body_jaxpr"].jaxpr)
        elif name in ("add", "sub", "mul", "div", "sin", "cos", "exp", "tanh", "max"):
            total += size
        else:
            for sub in core(S).jaxprs_in_params(params):
                total += count_flops(S, sub)
    return total


# Functions whose equations agree one by one.
COUNTED = ["products", "jit", "scan", "cond", "checkpoint", "custom_jvp", "folded", "elementwise"]


@pytest.mark.parametrize("name", COUNTED)
@same
def test_counting_flops(S, name):
    return count_flops(S, jaxpr_of(S, name).jaxpr)


# An interpreter that evaluates calls by their jaxprs


def evaluate(S, jaxpr, consts, args, seen):
    C = core(S)
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args]))
    read = lambda atom: atom.val if isinstance(atom, C.Literal) else env[atom]  # noqa: E731
    for eqn in jaxpr.eqns:
        seen.append(eqn.primitive.name)
        values = [read(atom) for atom in eqn.invars]
        params = eqn.params
        if "call_jaxpr" in params:
            closed = params["call_jaxpr"]
            outs = evaluate(S, closed.jaxpr, closed.consts, values, seen)
        elif eqn.primitive.name == "jit":
            outs = evaluate(S, params["jaxpr"].jaxpr, params["jaxpr"].consts, values, seen)
        elif eqn.primitive.name in ("remat2", "checkpoint"):
            outs = evaluate(S, params["jaxpr"], (), values, seen)
        elif eqn.primitive.name == "custom_linear_solve":
            lengths, closed = params["const_lengths"], params["jaxprs"].solve
            known = sum(lengths)
            before = lengths.matvec + lengths.vecmat
            operands = [*values[before : before + lengths.solve], *values[known:]]
            outs = C.jaxpr_as_fun(closed)(*operands)
        elif eqn.primitive.name == "linear_call":
            outs = C.jaxpr_as_fun(params["callee"])(*values)
        else:
            outs = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
            outs = outs if eqn.primitive.multiple_results else [outs]
        env.update(zip(eqn.outvars, outs))
    return [read(atom) for atom in jaxpr.outvars]


@pytest.mark.parametrize("how", ["eager", "jit", "grad", "vmap"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "while"])
@same(weak=False)
def test_evaluating_calls_by_their_jaxprs(S, name, how):
    closed = jaxpr_of(S, name)
    x = S.jnp.asarray(X)

    def run(x):
        return evaluate(S, closed.jaxpr, closed.consts, [x], [])

    if how == "eager":
        return run(x)
    if how == "jit":
        return S.jax.jit(run)(x)
    if how == "vmap":
        return S.jax.vmap(run)(S.jnp.stack([x, x + 1]))
    return S.jax.grad(lambda x: sum(S.jnp.sum(leaf) for leaf in run(x)))(x)


def rebind(S, closed, x):
    """Binds every equation again, by the parameters that its primitive says."""
    C = core(S)
    env = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, x]))
    read = lambda atom: atom.val if isinstance(atom, C.Literal) else env[atom]  # noqa: E731
    for eqn in closed.jaxpr.eqns:
        params = eqn.primitive.get_bind_params(eqn.params)
        outs = eqn.primitive.bind(*map(read, eqn.invars), **params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    return [read(atom) for atom in closed.jaxpr.outvars]


@pytest.mark.parametrize("how", ["jit", "grad", "jvp"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "while"])
@same(weak=False)
def test_calls_that_are_bound_again_keep_their_rules(S, name, how):
    if (name, how) == ("custom_vjp", "jvp"):
        how = "grad"
    closed = jaxpr_of(S, name)
    x = S.jnp.asarray(X)
    total = lambda x: sum(S.jnp.sum(leaf) for leaf in rebind(S, closed, x))  # noqa: E731
    if how == "jit":
        return S.jax.jit(lambda x: rebind(S, closed, x))(x)
    if how == "jvp":
        return S.jax.jvp(total, (x,), (x + 1,))
    return S.jax.grad(total)(x), S.jax.jit(S.jax.grad(total))(x)


# An inverse, by the jaxpr from back to front


def inverse(S, fun, example):
    lax, C = S.lax, core(S)
    inverses = {
        lax.exp_p: lax.log_p,
        lax.log_p: lax.exp_p,
        lax.tanh_p: lax.atanh_p,
        lax.sin_p: lax.asin_p,
        lax.neg_p: lax.neg_p,
    }
    solved = {
        lax.mul_p: lambda out, known, first: out / known,
        lax.add_p: lambda out, known, first: out - known,
        lax.sub_p: lambda out, known, first: known - out if first else out + known,
        lax.div_p: lambda out, known, first: known / out if first else out * known,
    }

    def run(jaxpr, consts, outs):
        env = dict(zip(jaxpr.constvars, consts))
        read = lambda a: a.val if isinstance(a, C.Literal) else env.get(a)  # noqa: E731
        env.update(zip(jaxpr.outvars, outs))
        for eqn in reversed(jaxpr.eqns):
            (out,) = [env[var] for var in eqn.outvars]
            if eqn.primitive.name in ("jit", "pjit"):
                inner = eqn.params["jaxpr"]
                env.update(zip(eqn.invars, run(inner.jaxpr, inner.consts, [out])))
            elif eqn.primitive in inverses:
                params = {k: v for k, v in eqn.params.items() if k == "accuracy"}
                if inverses[eqn.primitive].name not in ("log", "exp", "tanh", "sin"):
                    params = {}
                env[eqn.invars[0]] = inverses[eqn.primitive].bind(out, **params)
            else:
                known = [read(atom) for atom in eqn.invars]
                first = known[0] is not None
                unknown = eqn.invars[1] if first else eqn.invars[0]
                env[unknown] = solved[eqn.primitive](out, known[0] if first else known[1], first)
        return [env[var] for var in jaxpr.invars]

    closed = S.jax.make_jaxpr(fun)(example)
    return lambda y: run(closed.jaxpr, closed.consts, [y])[0]


INVERTIBLE = {
    "chain": lambda S: lambda x: S.jnp.exp(S.jnp.tanh(x)),
    "affine": lambda S: lambda x: 3.0 - (2.0 * x + 1.0) / 4.0,
    "quotient": lambda S: lambda x: 2.0 / S.jnp.exp(x),
    "jit": lambda S: S.jax.jit(lambda x: S.jax.jit(S.jnp.sin)(x) * S.jnp.float32(2)),
}


@pytest.mark.parametrize("name", INVERTIBLE)
@same(weak=False)
def test_inverting_functions(S, name):
    fun = INVERTIBLE[name](S)
    x = S.jnp.asarray(np.float32(0.4))
    back = inverse(S, fun, x)
    return back(fun(x)), S.jax.jit(back)(fun(x)), S.jax.grad(lambda y: back(y))(fun(x))


# Rewriting


def rewritten(S, closed, table):
    """The jaxpr with other primitives, through every jaxpr in parameters."""
    C = core(S)

    def param(value):
        if isinstance(value, C.ClosedJaxpr):
            return value.replace(jaxpr=walk(value.jaxpr))
        if isinstance(value, C.Jaxpr):
            return walk(value)
        if isinstance(value, tuple) and any(isinstance(v, C.ClosedJaxpr) for v in value):
            return tuple(map(param, value))
        return value

    def walk(jaxpr):
        eqns = [
            eqn.replace(
                primitive=table.get(eqn.primitive, eqn.primitive),
                params={key: param(value) for key, value in eqn.params.items()},
            )
            for eqn in jaxpr.eqns
        ]
        return jaxpr.replace(eqns=eqns)

    return closed.replace(jaxpr=walk(closed.jaxpr))


REWRITTEN = {
    "jit": "jit",
    "scan": "scan",
    "checkpoint": "checkpoint",
    "cond": "cond",
}


@pytest.mark.parametrize("name", REWRITTEN)
@same(weak=False)
def test_rewriting_primitives(S, name):
    """Sines become cosines and the other way round."""
    closed = jaxpr_of(S, name)
    table = {S.lax.sin_p: S.lax.cos_p, S.lax.cos_p: S.lax.sin_p, S.lax.neg_p: S.lax.exp_p}
    changed = rewritten(S, closed, table)
    x = S.jnp.asarray(X)
    before, after = [], []
    run = core(S).jaxpr_as_fun(changed)
    names(S, closed.jaxpr, before)
    names(S, changed.jaxpr, after)
    return before.count("sin"), after.count("cos"), run(x), S.jax.jit(run)(-x)


def names(S, jaxpr, found):
    for eqn in jaxpr.eqns:
        found.append(eqn.primitive.name)
    for sub in core(S).subjaxprs(jaxpr):
        names(S, sub, found)


# What a printing program sees: primitives, types, and the names of parameters


def lines(S, jaxpr, indent=0):
    for eqn in jaxpr.eqns:
        outs = " ".join(var.aval.str_short() for var in eqn.outvars)
        keys = " ".join(sorted(set(eqn.params) - {"out_dtype"}))
        yield f"{' ' * indent}{outs} = {eqn.primitive.name}[{keys}]"
        for sub in core(S).jaxprs_in_params(eqn.params):
            yield from lines(S, sub, indent + 2)


PRINTED = [
    "products", "jit", "cond", "checkpoint", "custom_jvp", "custom_vjp", "windows", "greatest",
    "folded",
]  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
@same
def test_printing(S, name):
    return list(lines(S, jaxpr_of(S, name).jaxpr))
