"""Random programs through random compositions of jit, grad, vmap and jvp, against JAX.

A program is a list of steps over a growing list of values; steps that do not fit the shapes at
hand are left out, so every drawn program runs. The quick run has the same examples each time, the
exhaustive one draws a seed and prints it.
"""

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st
from oracle import FERRAX, JAX, compare

SHAPES = [(), (3,), (2, 3), (3, 3), (1, 3)]

# Smooth enough that rounding differences do not change branches; bounded so that nothing overflows.
UNARY = {
    "sin": lambda S, x: S.jnp.sin(x),
    "cos": lambda S, x: S.jnp.cos(x),
    "tanh": lambda S, x: S.jnp.tanh(x),
    "exp": lambda S, x: S.jnp.exp(-x * x),
    "log1p": lambda S, x: S.jnp.log1p(x * x),
    "sqrt": lambda S, x: S.jnp.sqrt(1 + x * x),
    "logistic": lambda S, x: S.lax.logistic(x),
    "arctan": lambda S, x: S.jnp.arctan(x),
    "neg": lambda S, x: -x,
    "square": lambda S, x: S.jnp.square(S.jnp.tanh(x)),
    "cube": lambda S, x: S.jnp.tanh(x) ** 3,
    "reciprocal": lambda S, x: 1 / (2 + S.jnp.cos(x)),
    "abs": lambda S, x: S.jnp.abs(x + 0.37),
    "erf": lambda S, x: S.lax.erf(x),
    "rsqrt": lambda S, x: S.lax.rsqrt(1.5 + x * x),
    "relu": lambda S, x: S.jnp.maximum(x + 0.1234, 0),
    "clip": lambda S, x: S.jnp.clip(x, -0.913, 0.877),
    "where": lambda S, x: S.jnp.where(x > 0.123, x, 0.5 * x),
    "stop": lambda S, x: x * S.lax.stop_gradient(S.jnp.sin(x)),
    "nested_jit": lambda S, x: S.jax.jit(lambda y: S.jnp.sin(y) * y)(x) * 0.5,
    "nested_vmap": lambda S, x: S.jax.vmap(lambda y: y * S.jnp.cos(y))(x) * 0.5 if x.ndim else x,
    "nested_grad": lambda S, x: S.jax.grad(lambda y: S.jnp.sin(y).sum())(x),
    "bf16": lambda S, x: x + 0.0 * x.astype("bfloat16").astype(x.dtype),
}
SHAPED = {
    "sum": lambda S, x: x.sum(0) * 0.3 if x.ndim else x,
    "sum_last": lambda S, x: x.sum(-1, keepdims=True) * 0.3 if x.ndim else x,
    "mean": lambda S, x: x.mean(),
    "max": lambda S, x: (x + 0.01 * S.jnp.arange(x.shape[-1], dtype=x.dtype)).max(-1) if x.ndim else x,
    "prod": lambda S, x: S.jnp.tanh(x).prod(0) if x.ndim else x,
    "cumsum": lambda S, x: S.jnp.cumsum(x, 0) * 0.4 if x.ndim else x,
    "transpose": lambda S, x: x.T,
    "reshape": lambda S, x: x.reshape(-1),
    "reverse": lambda S, x: x[::-1] if x.ndim else x,
    "slice": lambda S, x: x[..., 1:] if x.ndim else x,
    "pad": lambda S, x: S.jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)]) if x.ndim else x,
    "broadcast": lambda S, x: S.jnp.broadcast_to(x, (2, *x.shape)) if x.ndim < 2 else x,
    "expand": lambda S, x: x[None] if x.ndim < 3 else x,
    "index": lambda S, x: x[S.jnp.array([0, 0])] if x.ndim else x,
    "at_add": lambda S, x: x.at[0].add(0.5) if x.ndim else x,
    "at_set": lambda S, x: x.at[-1].set(S.jnp.float32(0.25)) if x.ndim else x,
    "dynamic": lambda S, x: S.lax.dynamic_slice_in_dim(x, 1, 1, 0) if x.ndim else x,
    "softmax": lambda S, x: S.jax.nn.softmax(x, -1) if x.ndim else x,
    "roll": lambda S, x: S.jnp.roll(x, 1),
    "iota": lambda S, x: x * S.lax.iota("float32", x.shape[-1]) * 0.3 if x.ndim else x,
}
BINARY = {
    "add": lambda S, x, y: x + y,
    "sub": lambda S, x, y: x - 0.5 * y,
    "mul": lambda S, x, y: x * S.jnp.tanh(y),
    "div": lambda S, x, y: x / (1.5 + S.jnp.sin(y)),
    "maximum": lambda S, x, y: S.jnp.maximum(x, y + 0.0371),
    "atan2": lambda S, x, y: S.jnp.arctan2(x, 2 + y * y),
    "power": lambda S, x, y: (1.1 + S.jnp.square(S.jnp.tanh(x))) ** S.jnp.tanh(y),
    "select": lambda S, x, y: S.jnp.where(S.jnp.sin(x) > 0.0513, x, y),
    "outer": lambda S, x, y: x[:, None] * y[None, :] * 0.5,
    "matmul": lambda S, x, y: (x @ y) * 0.3,
    "concatenate": lambda S, x, y: S.jnp.concatenate([x, y], 0),
    "stack": lambda S, x, y: S.jnp.stack([x, y]),
}
BROADCASTING = ("add", "sub", "mul", "div", "maximum", "atan2", "power", "select")
FUNCTIONS = {**UNARY, **SHAPED, **BINARY}


def fits(name, x, y):
    if name in BROADCASTING:
        try:
            return len(np.broadcast_shapes(x, y)) < 4
        except ValueError:
            return False
    if name == "outer":
        return len(x) == len(y) == 1
    if name == "matmul":
        return len(x) in (1, 2) and len(y) in (1, 2) and x[-1] == y[0]
    if name == "concatenate":
        return len(x) == len(y) > 0 and x[1:] == y[1:]
    return x == y and len(x) < 3


def build(S, steps):
    """The drawn program: the sum of means of all values that no step used, and the last value."""

    def program(*inputs):
        values, used = list(inputs), set()
        for name, first, second in steps:
            i, j = first % len(values), second % len(values)
            x, y = values[i], values[j]
            if name in BINARY:
                if not fits(name, x.shape, y.shape):
                    continue
                used |= {i, j}
                values.append(BINARY[name](S, x, y))
            else:
                used.add(i)
                values.append({**UNARY, **SHAPED}[name](S, x))
        rest = [v for k, v in enumerate(values) if k not in used]
        return sum(S.jnp.tanh(v).mean() for v in rest), values[-1]

    return program


def transform(S, kinds, program, inputs):
    """Applies transformations, innermost first; each keeps `inputs -> tree of arrays`."""
    fun = program
    for kind in kinds:
        fun = STEPS[kind](S, fun)
    return fun(*inputs)


def _scalar(S, fun):
    return lambda *xs: sum(S.jnp.mean(leaf) for leaf in S.jax.tree_util.tree_leaves(fun(*xs)))


STEPS = {
    "jit": lambda S, f: S.jax.jit(f),
    "grad": lambda S, f: lambda *xs: S.jax.grad(_scalar(S, f), argnums=tuple(range(len(xs))))(*xs),
    "value_and_grad": lambda S, f: lambda *xs: S.jax.value_and_grad(_scalar(S, f))(*xs),
    "jvp": lambda S, f: lambda *xs: S.jax.jvp(f, xs, tuple(S.jnp.cos(x) for x in xs)),
    "vjp": lambda S, f: lambda *xs: (lambda out, pull: pull(out))(*S.jax.vjp(f, *xs)),
    "linearize": lambda S, f: lambda *xs: S.jax.linearize(f, *xs)[1](*[0.5 * x for x in xs]),
    "vmap": lambda S, f: lambda *xs: S.jax.vmap(f)(*[S.jnp.stack([x, 0.5 * x]) for x in xs]),
    "vmap_first": lambda S, f: lambda *xs: S.jax.vmap(f, in_axes=(-1,) + (None,) * (len(xs) - 1), out_axes=-1)(
        S.jnp.stack([xs[0], -xs[0]], -1), *xs[1:]),
}

steps = st.lists(
    st.tuples(st.sampled_from(sorted(FUNCTIONS)), st.integers(0, 11), st.integers(0, 11)), min_size=2, max_size=9
)
shapes = st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3)
kinds = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=3)


def inputs_of(S, shapes):
    return [
        S.jnp.asarray(np.sin(1.3 * (k + 1) + 0.7 * np.arange(np.prod(s, dtype=int))).reshape(s), "float32")
        for k, s in enumerate(shapes)
    ]


def run(S, shapes, steps, kinds, whole):
    fun = lambda *xs: transform(S, kinds, build(S, steps), xs)  # noqa: E731
    return (S.jax.jit(fun) if whole else fun)(*inputs_of(S, shapes))


# Intermediate results are of size 1; what the programs chain amplifies their rounding.
BOUNDS = {"ulps": 512, "cancels": 1.0}

EXAMPLES = 40 if settings.get_current_profile_name() == "repeatable" else 150
QUIET = settings(
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@settings(QUIET, max_examples=EXAMPLES)
@given(shapes, steps, kinds, st.booleans())
def test_programs_against_jax(shapes, steps, kinds, staged):
    """JAX runs each example as one compiled function, ferrax staged as well as step by step."""
    theirs = run(JAX, shapes, steps, kinds, True)
    ours = run(FERRAX, shapes, steps, kinds, staged)
    compare(ours, theirs, **BOUNDS, weak=False)


@settings(QUIET, max_examples=EXAMPLES)
@given(shapes, steps, kinds)
def test_staged_programs_equal_eager_ones(shapes, steps, kinds):
    eager = run(FERRAX, shapes, steps, kinds, False)
    staged = run(FERRAX, shapes, steps, kinds, True)
    compare(staged, eager, **BOUNDS, weak=True)


@settings(QUIET, max_examples=EXAMPLES)
@given(shapes, steps, kinds)
def test_interpreter_equals_compiled_programs(shapes, steps, kinds):
    import ferrax

    inputs = inputs_of(FERRAX, shapes)
    fun = lambda *xs: transform(FERRAX, kinds, build(FERRAX, steps), xs)  # noqa: E731
    traced = ferrax.jit(fun).trace(*inputs)
    operands = inputs + list(traced._captured)
    interpreted = traced._program.interpret(operands)
    compiled = traced._program.run(operands)
    optimised = traced._program.optimise().interpret(operands)
    compare(list(compiled), list(interpreted), **BOUNDS, weak=False)
    compare(list(optimised), list(interpreted), **BOUNDS, weak=False)
