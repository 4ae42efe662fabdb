"""Bounds of each element where terms cancel: how far roundings move it, found by rounding at random.

`sizes(case)` runs the program that JAX traces in 64 bits, beside itself: results of operations are moved up or
down by chance, by at most half a `STEP` of themselves, as a rounding is half an ulp, and so are the terms of sums. An
element's size is the standard deviation of what it then is, in steps: 0.29 of its magnitude where it is rounded once,
more where larger terms cancelled or an ill-conditioned function follows, nothing where it is but moved. `closeness`
takes that as the size of terms that cancel: a result may differ by some such deviations, but not by more than
as many roundings of the largest element.

Only continuous functions are moved. What a program decides by comparisons is decided by the values themselves.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
from closeness import ULPS, norm
from jax.extend.core import Literal
from kept_values import reference
from oracle import FERRAX, JAX, attempt, compare

SAMPLES, STEP = 16, 2.0**-30
# Results are operands, which were rounded before, or exact.
EXACT = set(
    "neg abs real imag conj complex copy copy_p convert_element_type stop_gradient optimization_barrier name max min"
    " clamp select_n reshape broadcast_in_dim transpose squeeze expand_dims slice rev pad concatenate gather split"
    " dynamic_slice dynamic_update_slice scatter reduce_max reduce_min reduce_window_max reduce_window_min cummax"
    " cummin sort top_k select_and_gather_add".split()
)
# Sums, whose terms are rounded.
SUMS = set("reduce_sum cumsum dot_general conv_general_dilated reduce_window_sum scatter-add fft".split())
# Constant between jumps, made of bits, or drawn: as the values.
STEPS = set("sign floor ceil round reduce_precision bitcast_convert_type random_gamma random_gamma_grad".split())
UPDATES = {"scatter": lambda x, y: y, "scatter-add": jnp.add, "scatter-mul": jnp.multiply}
# Those that round within: folds with functions, and decompositions, whose errors are bounded by norms.
REFUSED = set("reduce reduce_window cholesky lu qr householder_product eigh svd triangular_solve".split())
BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def is_float(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)


def wide(dtype):
    return np.dtype("complex128" if jnp.issubdtype(dtype, jnp.complexfloating) else "float64")


def twin(x):
    """What is computed beside a value: where this is a float the same in 64 bits."""
    return jnp.asarray(x, wide(x.dtype)) if is_float(x) else x


class Chance:
    """Moves arrays, each by numbers of its own: those of one sample, at the turns of a loop those of all in turn."""

    def __init__(self, draws, sample):
        self.draws, self.sample = draws, sample

    def at(self, turn):
        return Chance(self.draws, 5 * self.sample + turn + 1)

    def moved(self, x):
        if not is_float(x):
            return x
        parts = jnp.asarray(self.draws.uniform(-STEP / 2, STEP / 2, (SAMPLES, *x.shape)))
        return x + parts[self.sample % SAMPLES] * x


def widened(name, params, dtype):
    """Parameters of an operation as its twin has them: they may name a dtype of floats, or hold how two combine."""

    def change(value):
        is_dtype = isinstance(value, (np.dtype, type)) and jnp.issubdtype(value, jnp.inexact)
        return wide(value) if is_dtype else value

    found = {name: change(value) for name, value in params.items()}
    if name in UPDATES:
        found["update_jaxpr"] = jax.make_jaxpr(UPDATES[name])(*[jnp.zeros((), dtype)] * 2).jaxpr
    return found


def step(eqn, values, twins, chance):
    """The results of one operation and their twins."""
    primitive, name, params = eqn.primitive, eqn.primitive.name, eqn.params

    def bind(operands, params):
        outs = primitive.bind(*operands, **params)
        return outs if primitive.multiple_results else [outs]

    outs = bind(values, params)
    if not any(map(is_float, outs)) or not any(map(is_float, values)) or name in STEPS:
        return list(zip(outs, map(twin, outs)))
    if name in SUMS:
        twins = [chance.moved(x) for x in twins]
    found = bind(twins, widened(name, params, twins[0].dtype))
    if name not in EXACT:
        found = [chance.moved(x) for x in found]
    return [(x, y if is_float(x) else x) for x, y in zip(outs, found, strict=True)]


def loop(params, pairs, chance):
    if "cond_jaxpr" in params:
        n, m = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        test = lambda c: run(params["cond_jaxpr"], [*pairs[:n], *c[1]], chance)[0][0]  # noqa: E731
        turn = lambda c: (c[0] + 1, run(params["body_jaxpr"], [*pairs[n:m], *c[1]], chance.at(c[0])))  # noqa: E731
        return jax.lax.while_loop(test, turn, (0, pairs[m:]))[1]
    n = params["num_consts"]
    m = n + params["num_carry"]

    def turn(c, xs):
        outs = run(params["jaxpr"], [*pairs[:n], *c[1], *xs], chance.at(c[0]))
        return (c[0] + 1, outs[: m - n]), outs[m - n :]

    (_, carry), ys = jax.lax.scan(turn, (0, pairs[n:m]), pairs[m:], params["length"], params["reverse"])
    return [*carry, *ys]


def run(jaxpr, pairs, chance):
    """The results of a jaxpr, closed or not, and their twins."""
    consts, jaxpr = getattr(jaxpr, "consts", []), getattr(jaxpr, "jaxpr", jaxpr)
    both = lambda x: (x, twin(x))  # noqa: E731
    known = dict(zip(jaxpr.invars, pairs)) | {v: both(jnp.asarray(c)) for v, c in zip(jaxpr.constvars, consts)}
    read = lambda v: both(jnp.asarray(v.val, v.aval.dtype)) if isinstance(v, Literal) else known[v]  # noqa: E731
    for eqn in jaxpr.eqns:
        given, name = [read(v) for v in eqn.invars], eqn.primitive.name
        bodies = [eqn.params[name] for name in BODIES if name in eqn.params]
        if name in ("scan", "while"):
            outs = loop(eqn.params, given, chance)
        elif name == "cond":
            branches = [lambda *pairs, b=b: run(b, list(pairs), chance) for b in eqn.params["branches"]]
            outs = jax.lax.switch(given[0][0], branches, *given[1:])
        elif name in REFUSED:
            raise NotImplementedError(f"roundings within {name}")
        elif bodies:
            outs = run(bodies[0], given, chance)
        else:
            outs = step(eqn, [x for x, _ in given], [x for _, x in given], chance)
        known.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def floats(tree):
    """The arrays of floats in a result, in the order in which they are compared."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [x for item in tree for x in floats(item)]
    return [tree] if isinstance(tree, (jax.Array, np.ndarray, np.generic)) and tree.dtype.name in ULPS else []


def sizes(case):
    """For each array of floats in what `case(JAX)` returns: how far roundings move its elements."""

    def compute():
        closed = jax.make_jaxpr(lambda: floats(case(JAX)))()
        with jax.enable_x64(True):
            one = lambda sample: [x for _, x in run(closed, [], Chance(np.random.default_rng(0), sample))]  # noqa: E731
            found = jax.jit(jax.vmap(one))(np.arange(SAMPLES))
        with np.errstate(invalid="ignore", over="ignore"):
            return [np.nan_to_num(np.std(np.asarray(x), 0) / STEP, posinf=0.0).astype(jnp.bfloat16) for x in found]

    return reference(compute)


def compare_within_roundings(ours, theirs, case, **options):
    """Compares what `case` gave on both sides, each element beside the size of its roundings."""
    left = iter(sizes(case))

    def terms(magnitudes):
        return np.minimum(np.asarray(next(left), np.float64), norm(magnitudes))

    compare(ours, theirs, cancels=terms, **options)
    assert next(left, None) is None


def within_roundings(case, **options):
    """Both sides must agree, each element within roundings."""
    compare_within_roundings(attempt(case, FERRAX), attempt(case, JAX), case, **options)


def same_within_roundings(case=None, **options):
    """Makes a test of a case, as `oracle.same` does."""
    if case is None:
        return functools.partial(same_within_roundings, **options)

    @functools.wraps(case)
    def test(*args, **kwargs):
        within_roundings(lambda side: case(side, *args, **kwargs), **options)

    parameters = list(inspect.signature(case).parameters.values())[1:]
    test.__signature__ = inspect.Signature(parameters)
    return test
