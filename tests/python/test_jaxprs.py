"""Programs that walk, build and evaluate jaxprs: interpreters in Python, beside JAX."""

import importlib

import numpy as np
import pytest
from oracle import FERRAX, JAX, same

import ferrax
import ferrax.numpy as jnp

SIDES = pytest.mark.parametrize("S", [FERRAX, JAX], ids=["ferrax", "jax"])


def core(S):
    return importlib.import_module(f"{S.name}.extend.core")


def eval_jaxpr(S):
    return importlib.import_module(f"{S.name}.core").eval_jaxpr


def functions(S):
    jnp, lax = S.jnp, S.lax
    constant = jnp.arange(3.0)

    @S.jax.jit
    def inner(x, y):
        return jnp.sin(x) * y, jnp.sum(y)

    return {
        "arithmetic": lambda x: jnp.exp(jnp.tanh(x)) + 2.0 * x**3 - x / 7,
        "structure": lambda x: jnp.concatenate([x[None], jnp.ones((2, 3))], 0).T.reshape(3, 3) @ x,
        "captured": lambda x: x * constant + constant,
        "nested_jit": lambda x: inner(x, inner(x, x)[0]),
        "where": lambda x: jnp.where(x > 0, x, 0.0) + jnp.clip(x, -1, 1),
        "index": lambda x: x[jnp.array([2, 0])] + x.at[1].add(3.0)[1:],
        "sort": lambda x: jnp.argmax(x) + jnp.cumsum(x) + x.max(),
        "scan": lambda x: lax.scan(lambda c, y: (c + y, c * constant), 1.0, x),
        "while": lambda x: lax.while_loop(lambda c: c[1] < 4, lambda c: (c[0] * x, c[1] + 1), (x, 0)),
        "cond": lambda x: lax.cond(x[0] > 0, lambda: x * constant, lambda: -x),
        "switch": lambda x: lax.switch(x[1].astype(int), [jnp.sin, jnp.cos, lambda v: v], x),
        "fori": lambda x: lax.fori_loop(0, 3, lambda i, y: y * i + x, x),
        "grad": S.jax.grad(lambda x: jnp.sum(jnp.sin(x) * x)),
        "vmap": S.jax.vmap(lambda x: x * constant),
        "two": lambda x: (x, x, x + 1),
    }


NAMES = list(functions(FERRAX))
ARGUMENT = np.array([0.5, 1.0, 2.0], np.float32)


def interpret(S, jaxpr, consts, *args):
    """The interpreter of JAX's documentation: binds each equation's primitive."""
    values = {}

    def read(atom):
        return atom.val if type(atom) is core(S).Literal else values[atom]

    for var, value in zip([*jaxpr.invars, *jaxpr.constvars], [*args, *consts]):
        values[var] = value
    for eqn in jaxpr.eqns:
        params = eqn.primitive.get_bind_params(eqn.params)
        outs = eqn.primitive.bind(*map(read, eqn.invars), **params)
        if not eqn.primitive.multiple_results:
            outs = [outs]
        for var, out in zip(eqn.outvars, outs):
            values[var] = out
    return [read(atom) for atom in jaxpr.outvars]


@pytest.mark.parametrize(
    "name,how",
    [
        (name, how)
        for name in NAMES
        for how in ("eager", "jit", "grad", "vmap")
        # JAX has no reverse mode of while.
        if (name, how) != ("while", "grad")
    ],
)
@same(weak=False)
def test_interpreting_in_python(S, name, how):
    f = functions(S)[name]
    x = S.jnp.asarray(ARGUMENT)
    closed = S.jax.make_jaxpr(f)(x)

    def g(x):
        return interpret(S, closed.jaxpr, closed.consts, x)

    def scalar(x):
        return sum(S.jnp.sum(leaf) for leaf in g(x)).astype("float32")

    if how == "eager":
        return g(x)
    if how == "jit":
        return S.jax.jit(g)(x)
    if how == "vmap":
        return S.jax.vmap(g)(S.jnp.stack([x, x + 0.25]))
    return S.jax.grad(scalar)(x)


@pytest.mark.parametrize("name", NAMES)
@same(weak=False)
def test_eval_jaxpr(S, name):
    f = functions(S)[name]
    x = S.jnp.asarray(ARGUMENT)
    closed = S.jax.make_jaxpr(f)(x)
    return (
        eval_jaxpr(S)(closed.jaxpr, closed.consts, x),
        core(S).jaxpr_as_fun(closed)(x),
        S.jax.jit(core(S).jaxpr_as_fun(closed))(x),
    )


@pytest.mark.parametrize("name", NAMES)
@SIDES
def test_well_formed(S, name):
    C = core(S)
    closed = S.jax.make_jaxpr(functions(S)[name])(ARGUMENT)
    assert type(closed) is C.ClosedJaxpr and type(closed.jaxpr) is C.Jaxpr
    assert closed.jaxpr is closed.jaxpr and closed.eqns is closed.jaxpr.eqns
    C.check_jaxpr(closed.jaxpr)

    def walk(jaxpr):
        defined = {*jaxpr.invars, *jaxpr.constvars}
        for eqn in jaxpr.eqns:
            assert type(eqn) is C.JaxprEqn and isinstance(eqn.primitive, C.Primitive)
            for atom in eqn.invars:
                assert type(atom) is C.Literal or (type(atom) is C.Var and atom in defined)
            for var in eqn.outvars:
                assert type(var) is C.Var
                assert hasattr(var.aval, "shape")
            defined.update(eqn.outvars)
            assert str(eqn.source_info.name_stack) == "" or eqn.source_info is not None
            for sub in C.jaxprs_in_params(eqn.params):
                walk(sub)

    walk(closed.jaxpr)
    assert [str(a) for a in closed.in_avals] == [str(v.aval) for v in closed.jaxpr.invars]
    assert [str(a) for a in closed.out_avals] == [str(v.aval) for v in closed.jaxpr.outvars]
    assert len(closed.consts) == len(closed.jaxpr.constvars)


def params_of(S, name, primitive):
    for eqn in S.jax.make_jaxpr(functions(S)[name])(ARGUMENT).eqns:
        if eqn.primitive.name == primitive:
            return eqn.params
    raise AssertionError(f"no {primitive} in {name}")


@pytest.mark.parametrize(
    "name,primitive,closed,plain",
    [
        ("nested_jit", "jit", ["jaxpr"], ["name", "inline", "donated_invars"]),
        ("scan", "scan", ["jaxpr"], ["length", "reverse", "num_carry", "unroll"]),
        ("while", "while", ["cond_jaxpr", "body_jaxpr"], []),
    ],
)
@SIDES
def test_parameter_names(S, name, primitive, closed, plain):
    params = params_of(S, name, primitive)
    assert isinstance(params, dict)
    for key in closed:
        assert type(params[key]) is core(S).ClosedJaxpr
    for key in plain:
        assert key in params, params.keys()
    assert params.copy() == dict(params)


@SIDES
def test_branches(S):
    branches = params_of(S, "switch", "cond")["branches"]
    assert isinstance(branches, tuple) and len(branches) == 3
    assert all(type(branch) is core(S).ClosedJaxpr for branch in branches)


@SIDES
def test_literals(S):
    closed = S.jax.make_jaxpr(lambda x: x * 2.5 + 1)(np.float32(1))
    literals = [a for eqn in closed.eqns for a in eqn.invars if type(a) is core(S).Literal]
    assert [float(a.val) for a in literals] == [2.5, 1.0]
    assert [str(a.aval.dtype) for a in literals] == ["float32", "float32"]
    assert all(a.aval.shape == () for a in literals)


@same(weak=False)
def test_rewritten_jaxprs_run(S):
    """sin becomes cos, in a copy of the jaxpr."""
    closed = S.jax.make_jaxpr(lambda x: S.jnp.sin(x) * S.jnp.arange(3.0) + 1)(S.jnp.ones(3))
    eqns = [
        eqn.replace(primitive=S.lax.cos_p) if eqn.primitive is S.lax.sin_p else eqn
        for eqn in closed.jaxpr.eqns
    ]
    jaxpr = closed.jaxpr.replace(eqns=eqns)
    x = S.jnp.asarray(ARGUMENT)
    fun = core(S).jaxpr_as_fun(core(S).ClosedJaxpr(jaxpr, closed.consts))
    return (
        eval_jaxpr(S)(jaxpr, closed.consts, x),
        S.jax.jit(fun)(x),
        S.jax.grad(lambda x: fun(x)[0].sum())(x),
        "cos" in str(jaxpr),
        "sin" in str(closed),
    )


@same(weak=False)
def test_jaxprs_built_from_nothing(S):
    C = core(S)
    aval = importlib.import_module(f"{S.name}.core").ShapedArray((3,), np.dtype("float32"))
    new = C.gensym()
    x, y, z = new(aval), new(aval), new(aval)
    eqns = [
        C.new_jaxpr_eqn([x], [y], S.lax.neg_p, {}, C.no_effects),
        C.new_jaxpr_eqn([x, y], [z], S.lax.mul_p, {}, C.no_effects),
    ]
    jaxpr = C.Jaxpr([], [x], [z, x], eqns)
    value = S.jnp.asarray(ARGUMENT)
    return C.jaxpr_as_fun(C.ClosedJaxpr(jaxpr, []))(value), eval_jaxpr(S)(jaxpr, [], value)


@same(weak=False)
def test_a_rewritten_body_of_a_scan(S):
    """Interpreters rewrite the jaxprs in parameters and bind the equation again."""

    def f(xs):
        return S.lax.scan(lambda c, x: (c + S.jnp.sin(x), c), 0.0, xs)

    closed = S.jax.make_jaxpr(f)(S.jnp.asarray(ARGUMENT))
    (eqn,) = [eqn for eqn in closed.eqns if eqn.primitive is S.lax.scan_p]
    body = eqn.params["jaxpr"]
    eqns = [
        e.replace(primitive=S.lax.cos_p) if e.primitive is S.lax.sin_p else e for e in body.eqns
    ]
    params = dict(eqn.params, jaxpr=body.replace(jaxpr=body.jaxpr.replace(eqns=eqns)))
    jaxpr = closed.jaxpr.replace(
        eqns=[e.replace(params=params) if e is eqn else e for e in closed.eqns]
    )
    return eval_jaxpr(S)(jaxpr, closed.consts, S.jnp.asarray(ARGUMENT))


@SIDES
def test_subjaxprs(S):
    closed = S.jax.make_jaxpr(functions(S)["cond"])(ARGUMENT)
    assert len(list(core(S).subjaxprs(closed.jaxpr))) == 2


@same(weak=False)
def test_dead_code(S):
    pe = importlib.import_module(f"{S.name}.interpreters.partial_eval")
    closed = S.jax.make_jaxpr(lambda x, y, z: (x + 1, y * 2, x * z))(1.0, 2.0, 3.0)
    jaxpr, used = pe.dce_jaxpr(closed.jaxpr, [True, False, False])
    return len(jaxpr.eqns), list(used), eval_jaxpr(S)(jaxpr, [], 4.0)


@pytest.mark.raises("ValueError")
@same
def test_wrong_number_of_arguments(S):
    closed = S.jax.make_jaxpr(lambda x: x + 1)(1.0)
    core(S).jaxpr_as_fun(closed)()


def test_wrong_number_of_arguments_of_eval_jaxpr():
    closed = ferrax.make_jaxpr(lambda x: x + 1)(1.0)
    with pytest.raises(TypeError, match="1 invars and 0 constvars, got 2"):
        ferrax.core.eval_jaxpr(closed.jaxpr, closed.consts, 1.0, 2.0)
    with pytest.raises(ValueError, match="each of the 0 constvars, got 1"):
        ferrax.core.ClosedJaxpr(closed.jaxpr, [1.0])


def test_check_jaxpr():
    C = core(FERRAX)
    aval = ferrax.core.ShapedArray((), np.dtype("float32"))
    x, y = C.Var(aval), C.Var(aval)
    with pytest.raises(ferrax.errors.JaxprTypeError, match="not defined before"):
        C.check_jaxpr(C.Jaxpr([], [x], [y], []))
    wide = C.Var(ferrax.core.ShapedArray((3,), np.dtype("float32")))
    eqn = C.new_jaxpr_eqn([x], [wide], ferrax.lax.neg_p, {})
    with pytest.raises(ferrax.errors.JaxprTypeError, match="'neg' gives"):
        C.check_jaxpr(C.Jaxpr([], [x], [wide], [eqn]))


@SIDES
def test_mapped_types(S):
    C = core(S)
    aval = importlib.import_module(f"{S.name}.core").ShapedArray((2, 3), np.dtype("float32"))
    assert C.mapped_aval(3, 1, aval).shape == (2,)
    assert C.unmapped_aval(5, 0, aval).shape == (5, 2, 3)
    assert C.mapped_aval(3, None, aval) == aval


@same
def test_names_of_arguments_and_results(S):
    def model(x, params, scale=2.0):
        return {"a": x * params["w"], "b": [scale * x]}

    info = S.jax.make_jaxpr(model)(1.0, {"w": 2.0}).jaxpr.debug_info
    static = S.jax.make_jaxpr(lambda n, x: x * n, static_argnums=0)(3, 1.0).jaxpr.debug_info
    return (
        info.func_name,
        info.func_src_info.split(":")[-1] == static.func_src_info.split(":")[-1],
        info.arg_names,
        info.result_paths,
        static.arg_names,
        static.result_paths,
    )


@pytest.mark.parametrize("update", ["add", "multiply", "min", "max"])
def test_scatters_are_printed_by_the_names_of_their_primitives(update):
    def f(x):
        return getattr(x.at[0], update)(2.0)

    text = str(ferrax.make_jaxpr(f)(jnp.ones(3)))
    name = {"multiply": "mul"}.get(update, update)
    assert f"scatter-{name}[" in text
    assert f"scatter_{name}" not in text


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2", "log1mexp"])
def test_functions_with_rules_of_their_own(name):
    if name == "log1mexp":
        jaxpr = ferrax.make_jaxpr(ferrax.nn.log1mexp)(1.0)
    else:
        jaxpr = ferrax.make_jaxpr(getattr(jnp, name))(1.0, 2.0)
    assert [equation.primitive.name for equation in jaxpr.eqns] == ["custom_jvp_call"]


def test_equations_that_are_evaluated_within_a_trace_keep_their_lines():
    """And the names of their scopes, within those of the evaluation; unless these are not asked for."""

    def layer(x):
        with ferrax.named_scope("layer"):
            return jnp.sin(x) * 2

    closed = ferrax.make_jaxpr(layer)(1.0)
    changed = closed.jaxpr.replace(eqns=list(closed.jaxpr.eqns))
    line = f"{layer.__code__.co_filename}:{layer.__code__.co_firstlineno + 2} (layer)"

    def places(jaxpr, **options):
        def evaluated(x):
            with ferrax.named_scope("outer"):
                return ferrax.core.eval_jaxpr(jaxpr, closed.consts, x, **options)

        return [(e.source_info.line, str(e.source_info.name_stack)) for e in ferrax.make_jaxpr(evaluated)(1.0).eqns]

    assert places(changed) == [(line, "outer/layer")] * 2
    assert [found for found, _ in places(closed.jaxpr)] == [line] * 2
    for jaxpr in (changed, closed.jaxpr):
        assert all("(evaluated)" in found for found, _ in places(jaxpr, propagate_source_info=False))
    # A program that is made anew of changed equations has their lines, too.
    again = ferrax.make_jaxpr(ferrax.core.jaxpr_as_fun(closed.replace(jaxpr=changed)))(1.0)
    assert [e.source_info.line for e in again.eqns] == [line] * 2
