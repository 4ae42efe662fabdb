"""What reaches over the edges of parts: devices exchange the edges, and results have the bits of whole arrays."""

import numpy as np
import pytest
from test_partition import compare, cuts, mesh_of, on_parts

import ferrax
import ferrax.numpy as jnp
from ferrax import P, lax

X = np.random.default_rng(7).standard_normal((32, 8)).astype(np.float32)
ROW = 8 * 4
EDGE, TWO = [("ppermute", ROW)], [("ppermute", ROW)] * 2


def padded(x, mode="constant"):
    p = jnp.pad(x, ((1, 1), (0, 0)), mode=mode)
    return p[2:] - 2 * p[1:-1] + p[:-2]


def variation(x):
    return ((x[1:] - x[:-1]) ** 2).sum()


def five_points(x):
    p = jnp.pad(x, 1)
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * p[1:-1, 1:-1]


def shifted(x):
    return jnp.concatenate([jnp.zeros((1, 8)), x[:-1]])


PROGRAMS = {
    "roll": (lambda x: jnp.roll(x, 1, 0), EDGE),
    "roll the other way": (lambda x: jnp.roll(x, -3, 0), [("ppermute", 3 * ROW)]),
    "roll by more than a part": (lambda x: jnp.roll(x, 11, 0), [("ppermute", 3 * ROW), ("ppermute", 5 * ROW)]),
    "roll by parts": (lambda x: jnp.roll(x, 16, 0), [("ppermute", 8 * ROW)]),
    "shift": (shifted, EDGE),
    "inner points": (lambda x: jnp.pad(x[2:] - 2 * x[1:-1] + x[:-2], ((1, 1), (0, 0))), TWO),
    "padded points": (padded, TWO),
    "edge": (lambda x: padded(x, "edge"), [("all_gather", ROW)] * 2 + TWO),
    "wrap": (lambda x: padded(x, "wrap"), TWO),
    "reflect": (lambda x: padded(x, "reflect"), [("all_gather", ROW)] * 2 + TWO),
    "five points": (five_points, TWO),
    "steps": (lambda x: lax.fori_loop(0, 3, lambda _, x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0), x), TWO),
    "sum": (variation, [*EDGE, ("psum", 4)]),
    "gradient": (ferrax.grad(variation), TWO),
    "maximum": (lambda x: (x[1:] * x[:-1]).max(), [*EDGE, ("pmax", 4)]),
    "sum of more than parts": (lambda x: jnp.cos(jnp.pad(x, ((1, 1), (0, 0)))).sum(), [*TWO, ("psum", 4)]),
    "product": (lambda x: x[1:].T @ x[:-1], [*EDGE, ("psum", 8 * ROW)]),
    "other axes": (lambda x: jnp.pad((x[1:] * 2).T[::-1].sum(0), (1, 0)), []),
    "strides": (lambda x: x[::2] * 2 + x[1::2], []),
    "gradient of strides": (ferrax.grad(lambda x: (x[::2] * x[1::2]).sum()), EDGE),
    "negative padding": (lambda x: lax.pad(x, 0.0, ((-1, 1, 0), (0, 0, 0))), EDGE),
    "padding between": (lambda x: lax.pad(x, 0.5, ((0, 1, 1), (0, 0, 0))), []),
    "first row": (lambda x: x - x[:1], [("all_gather", ROW)]),
    "batch": (ferrax.vmap(lambda row: jnp.roll(row, 2) + row, 1, 1), [("all_gather", 2 * ROW), ("ppermute", 2 * ROW)]),
    "result without parts": (lambda x: jnp.diff(x, axis=0), [*EDGE, ("all_gather", 8 * ROW)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_are_exchanged(name):
    fun, said = PROGRAMS[name]
    found, exchanges = on_parts(fun, (X,), (P("x"),), mesh_of((4,), ("x",)))
    compare(found, ferrax.tree.leaves(ferrax.jit(fun)(X)), exchanges, name)
    assert [(e.collective, e.bytes) for e in exchanges] == said
    assert not any(e.needed_by for e in exchanges if e.collective == "ppermute")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("spec", [P("x", "y"), P(("x", "y")), P(("y", "x")), P(None, "x"), P("y", "x")], ids=str)
def test_edges_over_other_meshes(name, spec):
    """Along two axes of the array, and counted along two axes of the mesh."""
    fun, _ = PROGRAMS[name]
    found, exchanges = on_parts(fun, (X,), (spec,), mesh_of((4, 2)))
    compare(found, ferrax.tree.leaves(ferrax.jit(fun)(X)), exchanges, f"{name}, {spec}")


def test_compiled_functions_tell_of_edges():
    x = ferrax.device_put(X, ferrax.NamedSharding(mesh_of((4,), ("x",)), P("x")))
    compiled = ferrax.jit(lambda x: jnp.roll(x, 1, 0)).lower(x).compile()
    assert [(e.collective, e.bytes) for e in compiled.communication()] == EDGE


def chain(rng, size):
    """A program at random of slices, padding, concatenations and what is done element by element."""
    steps = []
    for _ in range(rng.integers(1, 7)):
        kind = rng.choice(["slice", "pad", "join", "roll", "both", "sin", "fold"])
        a, b = (int(v) for v in rng.integers(0, 6, 2))
        stride, between, cut = int(rng.choice([1, 1, 1, 2])), int(rng.choice([0, 0, 0, 1])), int(rng.integers(0, size))
        steps.append((str(kind), a, b, stride, between, cut))

    def program(x):
        for kind, a, b, stride, between, cut in steps:
            n = x.shape[0]
            low, high = min(a, n), max(n - b, min(a, n))
            if kind == "slice":
                x = x[low:high:stride]
            elif kind == "pad":
                x = lax.pad(x, x.dtype.type(a), ((a - 2, b - 2 if n + a + b > 4 else 2, between), (0, 0, 0)))
            elif kind == "join":
                x = jnp.concatenate([x[cut:], x[:a], x[n - b if n > b else 0 :]])
            elif kind == "roll":
                x = jnp.roll(x, cut, 0)
            elif kind == "both" and n > 1:
                x = x[1:] + x[:-1]
            elif kind == "fold":
                x = x + x.max(0)[None] if n else x
            else:
                x = jnp.sin(x) if x.dtype == np.float32 else x * 3
        return x

    return program, steps


@pytest.mark.parametrize("seed", range(60))
def test_chains_at_random(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.choice([6, 8, 12, 24]))
    x = jnp.asarray(rng.integers(-9, 9, (size, 4)), rng.choice(["float32", "int8"]))
    program, steps = chain(rng, size)
    whole = ferrax.jit(program)(x)
    mesh = mesh_of((2, 3))
    for outs in (None, [cuts(whole.shape, mesh, rng)]):
        specs = [cuts(x.shape, mesh, rng)]
        found, exchanges = on_parts(program, (x,), specs, mesh, outs)
        compare(found, [whole], exchanges, f"{specs} of {x.shape}: {steps}")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "bfloat16", "complex64", "key"])
def test_edges_of_every_kind(dtype):
    x = ferrax.random.split(ferrax.random.key(0), 32) if dtype == "key" else jnp.asarray(X > 0, dtype)
    fun = lambda x: (jnp.concatenate([x[3:], x[:3]]), jnp.concatenate([x[:1], x[:-1]]), x[4:20])  # noqa: E731
    found, exchanges = on_parts(fun, (x,), (P("x"),), mesh_of((4,), ("x",)))
    compare(found, ferrax.jit(fun)(x), exchanges, dtype)
    assert [e.collective for e in exchanges].count("ppermute") == 2


def test_arrays_without_elements():
    for fun in (lambda x: jnp.pad(x, ((0, 4), (0, 0))), lambda x: jnp.concatenate([x, x]), lambda x: x[:0] + 1):
        x = jnp.zeros((0, 8))
        found, exchanges = on_parts(fun, (x,), (P("x", "y"),), mesh_of((4, 2)))
        compare(found, [fun(x)], exchanges, "nothing")
    found, exchanges = on_parts(lambda x: x[3:3] + 1, (X,), (P("x"),), mesh_of((4, 2)))
    compare(found, [X[3:3]], exchanges, "nothing")


@pytest.mark.parametrize("size, step, padding", [(3, 1, "SAME"), (2, 1, "SAME"), (3, 2, "SAME"), (2, 1, "VALID"), (5, 1, "SAME")])
@pytest.mark.parametrize("how", ["max", "min", "add"])
def test_windows_that_overlap(how, size, step, padding):
    image = np.random.default_rng(9).standard_normal((2, 32, 8, 3)).astype(np.float32)
    init = {"max": -np.inf, "min": np.inf, "add": 0.0}[how]

    def pooled(x):
        return lax.reduce_window(x, init, getattr(lax, how), (1, size, size, 1), (1, step, step, 1), padding)

    found, exchanges = on_parts(pooled, (image,), (P(None, "x"),), mesh_of((4,), ("x",)))
    compare(found, [ferrax.jit(pooled)(image)], exchanges, how)
    assert {e.collective for e in exchanges} == ({"ppermute"} if padding == "SAME" else {"ppermute", "all_gather"})
    if padding == "SAME":
        assert sum(e.bytes for e in exchanges) <= 2 * size * 2 * (8 + size) * 3 * 4
    slope = ferrax.grad(lambda x: (pooled(x) ** 2).sum())
    found, exchanges = on_parts(slope, (image,), (P(None, "x"),), mesh_of((4,), ("x",)))
    compare(found, [ferrax.jit(slope)(image)], exchanges, how)
    assert how != "add" or {e.collective for e in exchanges} <= {"ppermute", "psum"} or padding == "VALID"


def test_time_is_linear_in_slices():
    def deep(x):
        for _ in range(300):
            x = jnp.pad(x[2:] + x[:-2], ((1, 1), (0, 0)))
        return x

    _, exchanges = on_parts(deep, (X[:, :1],), (P("x"),), mesh_of((4,), ("x",)))
    assert [e.collective for e in exchanges] == ["ppermute"] * 600
