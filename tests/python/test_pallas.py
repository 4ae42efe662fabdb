"""Kernels over grids do what JAX's interpreter of them does."""

import jax
import numpy as np
import oracle
import pytest
from oracle import same
from pallas_cases import call, floats, modules

import ferrax
import ferrax.numpy as jnp
from ferrax.experimental import checkify, pallas as pl
from ferrax.experimental.pallas import triton as plgpu

FLOAT, INT = "float32", "int32"


def spec(s, *args, **kwargs):
    return modules(s)[0].BlockSpec(*args, **kwargs)


def vector(s, size, index=lambda i: (i,)):
    return spec(s, (size,), index)


def add_one(x, o):
    o[...] = x[...] + 1


def copy(x, o):
    o[...] = x[...]


def double_input(x, o):
    o[...] = x[...]
    x[...] = x[...] * 2


def total(s):
    def kernel(x, o):
        pl = modules(s)[0]

        @pl.when(pl.program_id(0) == 0)
        def _():
            o[...] = s.jnp.zeros_like(o)

        o[...] += x[...]

    return kernel


def product(s):
    def kernel(x, y, o, acc):
        pl = modules(s)[0]

        @pl.when(pl.program_id(2) == 0)
        def _():
            acc[...] = s.jnp.zeros_like(acc)

        acc[...] += x[...] @ y[...]

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = acc[...]

    return kernel


def ids(s):
    def kernel(o):
        pl = modules(s)[0]
        o[...] = pl.program_id(0) * pl.num_programs(1) + pl.program_id(1)

    return kernel


def last_seen(x, o, kept):
    o[...] = kept[...]
    kept[...] = x[...]


GRIDS = {
    "one step": lambda s: call(s, add_one, ((4,), FLOAT))(floats(s, 4)),
    "blocks": lambda s: call(
        s, add_one, ((4,), FLOAT), grid=(2,), in_specs=[vector(s, 2)], out_specs=vector(s, 2)
    )(floats(s, 4)),
    "size": lambda s: call(
        s, add_one, ((4,), FLOAT), grid=2, in_specs=[vector(s, 2)], out_specs=vector(s, 2)
    )(floats(s, 4)),
    "empty grid": lambda s: call(s, add_one, ((4,), FLOAT), grid=())(floats(s, 4)),
    "no step": lambda s: call(
        s, add_one, ((4,), FLOAT), grid=(0,), in_specs=[vector(s, 2)], out_specs=vector(s, 2)
    )(floats(s, 4)),
    "overhang": lambda s: call(
        s, add_one, ((5,), FLOAT), grid=(3,), in_specs=[vector(s, 2)], out_specs=vector(s, 2)
    )(floats(s, 5)),
    "part of the output": lambda s: call(
        s, add_one, ((6,), INT), grid=(2,), in_specs=[vector(s, 2)], out_specs=vector(s, 2)
    )(s.jnp.arange(6)),
    "large block": lambda s: call(
        s, add_one, ((3,), FLOAT), grid=(1,), in_specs=[vector(s, 8)], out_specs=vector(s, 8)
    )(floats(s, 3)),
    "beyond": lambda s: call(
        s, add_one, ((4,), FLOAT), grid=(2,),
        in_specs=[vector(s, 2, lambda i: i + 5)], out_specs=vector(s, 2),
    )(floats(s, 4)),
    "before": lambda s: call(
        s, add_one, ((4,), FLOAT), grid=(2,),
        in_specs=[vector(s, 2, lambda i: i - 1)], out_specs=vector(s, 2),
    )(floats(s, 4)),
    "squeezed": lambda s: call(
        s, add_one, ((3, 4), FLOAT), grid=(3,),
        in_specs=[spec(s, (None, 4), lambda i: (i, 0))],
        out_specs=spec(s, (modules(s)[0].squeezed, 4), lambda i: (i, 0)),
    )(floats(s, 3, 4)),
    "elements": lambda s: call(
        s, lambda x, o: o.__setitem__(..., x[...].sum(keepdims=True)), ((4,), FLOAT), grid=(4,),
        in_specs=[spec(s, (modules(s)[0].Element(3),), lambda i: (i,))], out_specs=vector(s, 1),
    )(floats(s, 6)),
    "padded elements": lambda s: call(
        s, lambda x, o: o.__setitem__(..., s.jnp.nansum(x[...], keepdims=True)), ((6,), FLOAT),
        grid=(6,), in_specs=[spec(s, (modules(s)[0].Element(3, (1, 1)),), lambda i: (i,))],
        out_specs=vector(s, 1),
    )(floats(s, 6)),
    "order": lambda s: call(
        s, ids(s), ((2, 3), INT), grid=(2, 3), out_specs=spec(s, (None, None), lambda i, j: (i, j))
    )(),
    "transposed map": lambda s: call(
        s, copy, ((6, 4), FLOAT), grid=(2, 3), in_specs=[spec(s, (2, 2), lambda i, j: (j, i))],
        out_specs=spec(s, (2, 2), lambda i, j: (j, i)),
    )(floats(s, 6, 4)),
    "revisited output": lambda s: call(
        s, total(s), ((2,), FLOAT), grid=(3,), in_specs=[vector(s, 2)],
        out_specs=vector(s, 2, lambda i: (0,)),
    )(floats(s, 6)),
    "scratch persists": lambda s: call(
        s, last_seen, ((6,), FLOAT), grid=(3,), in_specs=[vector(s, 2)], out_specs=vector(s, 2),
        scratch_shapes=[modules(s)[1].VMEM((2,), FLOAT)],
    )(floats(s, 6)),
    "scratch as keywords": lambda s: call(
        s, lambda x, o, *, kept: last_seen(x, o, kept), ((6,), INT), grid=(3,),
        in_specs=[vector(s, 2)], out_specs=vector(s, 2),
        scratch_shapes={"kept": modules(s)[1].SMEM((2,), INT)},
    )(s.jnp.arange(6)),
    "product": lambda s: call(
        s, product(s), ((8, 6), FLOAT), grid=(2, 3, 4),
        in_specs=[spec(s, (4, 2), lambda i, j, k: (i, k)), spec(s, (2, 2), lambda i, j, k: (k, j))],
        out_specs=spec(s, (4, 2), lambda i, j, k: (i, j)),
        scratch_shapes=[modules(s)[1].VMEM((4, 2), FLOAT)],
    )(floats(s, 8, 8), floats(s, 8, 6)),
    "written input": lambda s: call(
        s, double_input, ((6,), FLOAT), grid=(3, 2),
        in_specs=[vector(s, 2, lambda i, j: (i,))], out_specs=vector(s, 2, lambda i, j: (i,)),
    )(floats(s, 6)),
    "input and output in one place": lambda s: call(
        s, lambda x, o: o.__setitem__(0, x[1] * 10), ((6,), FLOAT), grid=(2,), in_specs=[vector(s, 2)],
        out_specs=vector(s, 2), input_output_aliases={0: 0},
    )(floats(s, 6)),
    "two outputs": lambda s: call(
        s, lambda x, a, b: (a.__setitem__(..., x[...] + 1), b.__setitem__(..., x[...] > 0), None)[-1],
        ((4,), FLOAT), ((4,), "bool"), grid=(2,), in_specs=[vector(s, 2)],
        out_specs=(vector(s, 2), vector(s, 2)),
    )(floats(s, 4)),
    "unwritten": lambda s: call(
        s, lambda *refs: None, ((2,), FLOAT), ((2,), INT), ((2,), "uint8"), ((2,), "bool"),
        ((2,), "int8"), ((2,), "bfloat16"),
    )(),
    "prefetched": lambda s: s.jax.jit(
        modules(s)[0].pallas_call(
            lambda p, x, o: o.__setitem__(..., x[...] + p[modules(s)[0].program_id(0)]),
            s.jax.ShapeDtypeStruct((6,), INT),
            grid_spec=modules(s)[1].PrefetchScalarGridSpec(
                num_scalar_prefetch=1, grid=(3,), in_specs=[vector(s, 2, lambda i, p: (p[i],))],
                out_specs=vector(s, 2, lambda i, p: (i,)),
            ),
            interpret=True,
        )
    )(s.jnp.array([2, 0, 1]), s.jnp.arange(6)),
    "traced grid": lambda s: s.jax.jit(
        lambda n, x: call(
            s, add_one, ((6,), FLOAT), grid=(n,), in_specs=[vector(s, 2)], out_specs=vector(s, 2)
        )(x)
    )(2, floats(s, 6)),
    "named grid": lambda s: call(
        s, lambda o: o.__setitem__(..., s.lax.axis_size("j") + modules(s)[0].program_id(1)),
        ((6,), INT), grid=(("j", 3), ("i", 2)), out_specs=spec(s, (None,), lambda j, i: (2 * j + i,)),
    )(),
    "tree of inputs": lambda s: call(
        s, lambda p, o: o.__setitem__(..., p["a"][...] + p["b"][0]), ((4,), FLOAT), grid=(2,),
        in_specs=({"a": vector(s, 2), "b": vector(s, 1)},), out_specs=vector(s, 2),
    )({"a": floats(s, 4), "b": floats(s, 2, seed=1)}),
    "Python number": lambda s: call(
        s, lambda x, y, o: o.__setitem__(..., x[...] * y[...]), ((4,), FLOAT)
    )(floats(s, 4), 2.0),
    "inner call": lambda s: call(
        s, lambda x, o: o.__setitem__(..., call(s, add_one, ((2,), FLOAT))(x[...]) * 2), ((4,), FLOAT),
        grid=(2,), in_specs=[vector(s, 2)], out_specs=vector(s, 2),
    )(floats(s, 4)),
    "vmap": lambda s: s.jax.vmap(
        call(s, add_one, ((4,), FLOAT), grid=(2,), in_specs=[vector(s, 2)], out_specs=vector(s, 2))
    )(floats(s, 3, 4)),
    "vmap of one of two": lambda s: s.jax.vmap(
        call(s, product(s), ((4, 4), FLOAT), grid=(2, 2, 2),
             in_specs=[spec(s, (2, 2), lambda i, j, k: (i, k)), spec(s, (2, 2), lambda i, j, k: (k, j))],
             out_specs=spec(s, (2, 2), lambda i, j, k: (i, j)),
             scratch_shapes=[modules(s)[1].VMEM((2, 2), FLOAT)]),
        in_axes=(1, None), out_axes=1,
    )(floats(s, 4, 3, 4), floats(s, 4, 4)),
    "jvp": lambda s: s.jax.jvp(
        call(s, lambda x, o: o.__setitem__(..., s.jnp.sin(x[...])), ((4,), FLOAT), grid=(2,),
             in_specs=[vector(s, 2)], out_specs=vector(s, 2)),
        (floats(s, 4),), (floats(s, 4, seed=1),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
@same
def test_grids(s, name):
    return GRIDS[name](s)


def stored(s, body, shape=(4,), dtype=FLOAT, **options):
    """What `body(s, x, o)` writes to an output like its input."""
    x = s.jnp.arange(float(np.prod(shape))).reshape(shape).astype(dtype)
    return call(s, lambda x, o: body(s, x, o), (shape, dtype), **options)(x)


def while_negative(s, x, o):
    o[...] = s.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x[...]), (0, x[...]))[1]


def looped(s, x, o):
    pl = modules(s)[0]

    @pl.loop(1, 4)
    def _(i):
        o[i] = x[i] * 2

    o[0] = pl.loop(0, 7, init_carry=s.jnp.float32(0), step=2)(lambda i, c: c + i)


def scoped(s, x, o):
    pl, pltpu, _ = modules(s)

    def body(a, *, b):
        a[...] = x[...]
        b[...] = a[...] * 2
        o[...] = b[...]

    pl.run_scoped(body, pltpu.VMEM((4,), FLOAT), b=pltpu.VMEM((4,), FLOAT))


def conditional(s, x, o):
    pl = modules(s)[0]
    o[...] = s.jnp.zeros(4)
    for number, condition in enumerate([x[0] == 0, x[1] == 0, 1, 0]):

        @pl.when(condition)
        def _(number=number):
            o[number] = 1.0


def copied(s, x, o):
    pltpu = modules(s)[1]
    pltpu.sync_copy(x.at[2:4], o.at[0:2])
    pltpu.sync_copy(x.at[0:2], o.at[2:4])


KERNELS = {
    "beyond": lambda s, x, o: o.__setitem__(..., s.jnp.full(4, x[x[1].astype(INT) + 7])),
    "slices": lambda s, x, o: o.__setitem__(modules(s)[0].ds(1, 2), x[modules(s)[0].ds(0, 2, 2)]),
    "views": lambda s, x, o: o.at[1:].at[0:2].set(x.at[2:][...]),
    "reshape": lambda s, x, o: o.__setitem__(..., x.reshape(2, 2)[1, 0] + s.jnp.zeros(4)),
    "while": while_negative,
    "scan": lambda s, x, o: o.__setitem__(..., s.lax.scan(lambda c, v: (c + v, c), 0.0, x[...])[1]),
    "grad": lambda s, x, o: o.__setitem__(..., s.jax.grad(lambda v: (v**3).sum())(x[...])),
    "vmap": lambda s, x, o: o.__setitem__(..., s.jax.vmap(lambda v: v * x[1])(x[...])),
    "jit": lambda s, x, o: o.__setitem__(..., s.jax.jit(lambda v: v + 1)(x[...])),
    "random": lambda s, x, o: o.__setitem__(..., s.random.normal(s.random.key(3), (4,))),
    "callback": lambda s, x, o: o.__setitem__(
        ..., s.jax.pure_callback(lambda v: np.asarray(v) * 2, s.jax.ShapeDtypeStruct((4,), FLOAT), x[...])
    ),
    "loop": looped,
    "scoped": scoped,
    "when": conditional,
    "copies": copied,
    "run_state": lambda s, x, o: o.__setitem__(
        ..., modules(s)[0].run_state(lambda r: r.__setitem__(0, 5.0))(x[...])
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
@same
def test_kernels(s, name):
    return stored(s, KERNELS[name])


def store(s, x, o, index, value, mask):
    modules(s)[1].store(o.at[index], value, mask=mask)


MASKED = {
    "load": lambda s, x, o: o.__setitem__(
        ..., modules(s)[2].load(x.at[s.jnp.arange(4)], mask=s.jnp.arange(4) < 3, other=9.0)
    ),
    "load out of bounds": lambda s, x, o: o.__setitem__(
        ..., modules(s)[2].load(x.at[s.jnp.arange(4) + 2], mask=s.jnp.arange(4) < 2, other=0.0)
    ),
    "store": lambda s, x, o: (
        o.__setitem__(..., x[...]),
        modules(s)[2].store(o.at[...], s.jnp.full(4, 7.0), mask=s.jnp.arange(4) % 2 == 0),
        None,
    )[-1],
    "atomic add": lambda s, x, o: (
        o.__setitem__(..., x[...]),
        o.__setitem__(..., modules(s)[2].atomic_add(o, (s.jnp.array([1, 1, 3, 1]) + 0 * s.jnp.arange(4),), x[...])),
        None,
    )[-1],
    "atomic max": lambda s, x, o: (
        o.__setitem__(..., s.jnp.ones(4)), modules(s)[2].atomic_max(o, (s.jnp.arange(4) // 2,), x[...]), None,
    )[-1],
}  # fmt: skip


@pytest.mark.parametrize("name", ["load", "load out of bounds", "store"])
@same
def test_masks(s, name):
    return stored(s, MASKED[name])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["add", "max", "min", "and", "or", "xor", "xchg"])
def test_atomic_updates(name, masked):
    """As a loop in Python over the elements does."""
    combine = {
        "add": lambda a, b: a + b, "max": max, "min": min, "and": lambda a, b: a & b,
        "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "xchg": lambda a, b: b,
    }[name]  # fmt: skip
    rng = np.random.default_rng(0)
    places, values = rng.integers(0, 5, 20), rng.integers(-9, 9, 20).astype(np.int32)
    mask = rng.integers(0, 2, 20) > 0 if masked else np.ones(20, bool)
    start = np.arange(5, dtype=np.int32)

    def kernel(p, v, m, x, o, before):
        o[...] = x[...]
        update = getattr(plgpu, f"atomic_{name}")
        before[...] = update(o, (p[...],), v[...], mask=m[...] if masked else None)

    found, before = call(oracle.FERRAX, kernel, ((5,), INT), ((20,), INT))(
        places.astype(np.int32), values, mask, start
    )
    expected, olds = list(start), []
    for place, value, flag in zip(places, values, mask):
        olds.append(expected[place])
        if flag:
            expected[place] = combine(expected[place], value)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(before, olds)


def test_compare_and_swap():
    def kernel(x, o):
        o[0] = plgpu.atomic_cas(x.at[0], 3, 7)
        o[1] = plgpu.atomic_cas(x.at[0], 3, 8)
        o[2] = x[0]

    np.testing.assert_array_equal(call(oracle.FERRAX, kernel, ((3,), INT))(jnp.array([3])), [3, 7, 7])


# What JAX cannot do.


def sines(s):
    def kernel(x, w, o, acc):
        pl = modules(s)[0]

        @pl.when(pl.program_id(1) == 0)
        def _():
            acc[...] = s.jnp.zeros_like(acc)

        acc[...] += s.jnp.sin(x[...]) @ w[...]

        @pl.when(pl.program_id(1) == 2)
        def _():
            o[...] = acc[...] ** 2

    return call(
        s, kernel, ((4, 2), FLOAT), grid=(2, 3),
        in_specs=[spec(s, (2, 2), lambda i, k: (i, k)), spec(s, (2, 2), lambda i, k: (k, 0))],
        out_specs=spec(s, (2, 2), lambda i, k: (i, 0)), scratch_shapes=[modules(s)[1].VMEM((2, 2), FLOAT)],
    )  # fmt: skip


DERIVATIVES = {
    "grad": lambda f, x, w: ferrax.grad(f, (0, 1))(x, w),
    "hessian": lambda f, x, w: ferrax.hessian(f)(x, w),
    "jvp": lambda f, x, w: ferrax.jvp(f, (x, w), (w.T.reshape(x.shape), w)),
    "jvp of grad": lambda f, x, w: ferrax.jvp(ferrax.grad(f), (x, w), (x, w)),
    "jit of grad": lambda f, x, w: ferrax.jit(ferrax.grad(f, 1))(x, w),
    "vmap of grad": lambda f, x, w: ferrax.vmap(ferrax.grad(f), (0, None))(jnp.stack([x, 2 * x]), w),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name):
    x, w = floats(oracle.FERRAX, 4, 6)[:, :6], floats(oracle.FERRAX, 6, 2, seed=1)
    run = sines(oracle.FERRAX)
    weights = floats(oracle.FERRAX, 4, 2, seed=2)

    def loss(x, w):
        return (run(x, w) * weights).sum()

    def plain(x, w):
        return ((jnp.sin(x) @ w) ** 2 * weights).sum()

    transform = DERIVATIVES[name]
    if name == "jvp":
        x = floats(oracle.FERRAX, 4, 6)
        transform = lambda f, x, w: ferrax.jvp(f, (x, w), (x + 1, w))  # noqa: E731
    for ours, theirs in zip(ferrax.tree.leaves(transform(loss, x, w)), ferrax.tree.leaves(transform(plain, x, w))):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)


def test_derivatives_of_steps_that_see_each_other():
    """An output that steps accumulate in, a neighbour's block, and memory that an input lies in."""

    def accumulate(x, o):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o[...] = jnp.zeros_like(o)

        o[...] += jnp.sin(x[...]) * (1 + o[...])

    block = pl.BlockSpec((2,), lambda i: (i,))
    run = pl.pallas_call(
        accumulate, ferrax.ShapeDtypeStruct((2,), FLOAT), grid=(3,), in_specs=[block],
        out_specs=pl.BlockSpec((2,), lambda i: (0,)),
    )  # fmt: skip

    def plain(x):
        o = jnp.zeros(2)
        for part in x.reshape(3, 2):
            o = o + jnp.sin(part) * (1 + o)
        return o

    x = floats(oracle.FERRAX, 6)
    for transform in (lambda f: f(x), lambda f: ferrax.jacrev(f)(x), lambda f: ferrax.jacfwd(f)(x)):
        np.testing.assert_allclose(transform(run), transform(plain), rtol=1e-5, atol=1e-6)


def test_steps_see_what_earlier_ones_wrote_in_shared_memory():
    block = lambda by: pl.BlockSpec((2,), lambda i: (i + by,))  # noqa: E731
    run = pl.pallas_call(
        add_one, ferrax.ShapeDtypeStruct((6,), FLOAT), grid=(2,), in_specs=[block(0)], out_specs=block(1),
        input_output_aliases={0: 0},
    )  # fmt: skip
    np.testing.assert_array_equal(run(jnp.zeros(6)), [0, 0, 1, 1, 2, 2])


def test_complex_memory():
    found = call(oracle.FERRAX, lambda o: None, ((2,), "complex64"))()
    assert np.isnan(np.asarray(found).real).all() and np.isnan(np.asarray(found).imag).all()


def test_bounded_slices():
    def kernel(starts, x, o):
        o[...] = x[...]

    grid_spec = modules(oracle.FERRAX)[1].PrefetchScalarGridSpec(
        1, (3,), in_specs=[pl.BlockSpec((pl.BoundedSlice(2),), lambda i, s: (pl.ds(s[i], 2),))],
        out_specs=pl.BlockSpec((2,), lambda i, s: (i,)),
    )  # fmt: skip
    run = pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((6,), FLOAT), grid_spec=grid_spec)
    found = run(jnp.array([4, 0, 5]), jnp.arange(6.0))
    np.testing.assert_array_equal(found, [4, 5, 0, 1, 5, np.nan])


def test_unwritten_memory_may_be_zero():
    params = modules(oracle.FERRAX)[1].InterpretParams(uninitialized_memory="zero")
    found = call(oracle.FERRAX, lambda o: None, ((2,), FLOAT), interpret=params)()
    np.testing.assert_array_equal(found, [0, 0])
    assert np.isnan(np.asarray(call(oracle.FERRAX, lambda o: None, ((2,), FLOAT))())).all()


def test_checks_of_kernels():
    def kernel(x, o):
        pl.debug_check(x[0] > 0, "the first is positive")
        o[...] = x[...]

    run = lambda x: call(oracle.FERRAX, kernel, ((2,), FLOAT))(x)  # noqa: E731
    run(jnp.zeros(2))
    with pl.enable_debug_checks(True):
        error, _ = checkify.checkify(run)(jnp.zeros(2))
        assert "the first is positive" in error.get()


def test_prints_come_in_the_order_of_the_grid(capfd):
    def kernel(x, o):
        pl.debug_print("step {} {}", pl.program_id(0), x[0])
        o[...] = x[...]

    block = pl.BlockSpec((2,), lambda i: (i,))
    options = {"grid": (3,), "in_specs": [block], "out_specs": block}
    ferrax.block_until_ready(call(oracle.FERRAX, kernel, ((6,), INT), **options)(jnp.arange(6)))
    ferrax.effects_barrier()
    assert capfd.readouterr().out.splitlines() == ["step 0 0", "step 1 2", "step 2 4"]


def test_a_call_is_traced_once_for_types():
    count = 0

    def kernel(x, o):
        nonlocal count
        count += 1
        o[...] = x[...] + 1

    run = call(oracle.FERRAX, kernel, ((4,), FLOAT))
    ferrax.jit(lambda x: run(run(x)))(jnp.zeros(4))
    run(jnp.zeros(4))
    assert count == 1


def test_one_equation():
    closed = ferrax.make_jaxpr(ferrax.vmap(GRID_OF_TWO))(jnp.zeros((3, 4)))
    (eqn,) = closed.eqns
    assert eqn.primitive is pl.pallas_call_p and eqn.params["name"] is None
    assert "grid=(2,)" in str(closed)


GRID_OF_TWO = call(
    oracle.FERRAX, add_one, ((4,), FLOAT), grid=(2,), in_specs=[pl.BlockSpec((2,), lambda i: i)],
    out_specs=pl.BlockSpec((2,), lambda i: i),
)  # fmt: skip


# Errors.

OUTSIDE = {"ferrax": jnp.ones(4), "jax": jax.numpy.ones(4)}


def bad(s, body, **options):
    return stored(s, lambda s, x, o: body(s, x, o), **options)


ERRORS = {
    "returns": (lambda s: bad(s, lambda s, x, o: x[...]), "should return None", ValueError),
    "captures": (
        lambda s: call(s, lambda x, o, c=OUTSIDE[s.name]: o.__setitem__(..., x[...] + c), ((4,), FLOAT))(
            floats(s, 4)
        ),
        "captures constants", ValueError,
    ),
    "captures an array as it is": (
        lambda s: call(s, lambda x, o, c=OUTSIDE[s.name]: o.__setitem__(..., c), ((4,), FLOAT))(floats(s, 4)),
        "captures constants", ValueError,
    ),
    "captures a tracer": (
        lambda s: s.jax.jit(
            lambda t: call(s, lambda x, o: o.__setitem__(..., x[...] + t), ((4,), FLOAT))(floats(s, 4))
        )(1.0),
        "captures constants", ValueError,
    ),
    "other dtype": (lambda s: bad(s, lambda s, x, o: o.__setitem__(0, s.jnp.int32(1))), "dtype", ValueError),
    "other shape": (lambda s: bad(s, lambda s, x, o: o.__setitem__(..., 1.5)), "shape", ValueError),
    "rank of blocks": (
        lambda s: bad(s, KERNELS["jit"], in_specs=[spec(s, (2, 2), lambda: (0, 0))]),
        "same number of dimensions", ValueError,
    ),
    "results of the map": (
        lambda s: bad(s, KERNELS["jit"], grid=(2,), in_specs=[vector(s, 2, lambda i: (i, 0))]),
        "must return 1 values", ValueError,
    ),
    "number of specifications": (
        lambda s: bad(s, KERNELS["jit"], in_specs=[]), "Pytree for `in_specs`", ValueError,
    ),
    "axis": (lambda s: bad(s, lambda s, x, o: modules(s)[0].program_id(1), grid=(2,)), "out of bounds", ValueError),
    "alias": (
        lambda s: bad(s, KERNELS["jit"], input_output_aliases={1: 0}), "outside the range", ValueError,
    ),
    "alias of another type": (
        lambda s: call(s, copy, ((4,), FLOAT), input_output_aliases={0: 0})(floats(s, 5)),
        "different shapes", ValueError,
    ),
    "condition": (
        lambda s: bad(s, lambda s, x, o: modules(s)[0].when(x[...] > 0)(lambda: None)), "scalar", ValueError,
    ),
    "size of a slice": (
        lambda s: bad(s, lambda s, x, o: o.__setitem__(modules(s)[0].ds(3, 2), x[:2])), "out of bounds",
        ValueError,
    ),
    "negative power": (lambda s: modules(s)[0].next_power_of_2(-1), "non-negative", ValueError),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    case, message, kind = ERRORS[name]
    with pytest.raises(kind, match=message):
        case(oracle.FERRAX)
    with pytest.raises(Exception):  # noqa: B017
        case(oracle.JAX)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (lambda: pl.program_id(0), "no kernel is traced here"),
        (lambda: pl.select_ref(0), "lax.switch"),
        (lambda: pl.BlockSpec((pl.Indirect(2),), lambda i: i), "places one by one"),
        (lambda: modules(oracle.FERRAX)[1].InterpretParams(detect_races=True), "detect_races"),
        (lambda: modules(oracle.FERRAX)[1].InterpretParams(grid_point_recorder=print), "grid_point_recorder"),
        (lambda: modules(oracle.FERRAX)[1].get_tpu_info(), "no TPU"),
        (lambda: plgpu.elementwise_inline_asm("x", args=[], constraints="", pack=1, result_shape_dtypes=[]), "any machine"),
    ],
)  # fmt: skip
def test_what_is_not_here(case, message):
    with pytest.raises((ValueError, NotImplementedError), match=message):
        made = case()
        call(oracle.FERRAX, add_one, ((4,), FLOAT), grid=(2,), in_specs=[made])(jnp.zeros(4))


def test_small_functions():
    assert (pl.cdiv(7, 2), pl.cdiv(-7, 2), pl.align_to(130, 128)) == (4, -3, 256)
    assert [pl.next_power_of_2(n) for n in (0, 1, 2, 3, 1000)] == [1, 1, 2, 4, 1024]
    assert pl.strides_from_shape((2, 3, 4)) == (12, 4, 1)
    with pytest.raises(ZeroDivisionError):
        pl.cdiv(1, 0)
    cost = pl.estimate_cost(lambda a, b: jnp.sin(a @ b), jnp.ones((4, 8)), jnp.ones((8, 2)))
    assert (cost.flops, cost.transcendentals, cost.bytes_accessed) == (128, 8, 224)
