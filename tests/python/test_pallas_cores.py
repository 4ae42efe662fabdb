"""Cores, random streams and reshapes of kernels for TPUs."""

import dataclasses
import functools
import importlib
import itertools

import jax
import jax.experimental.pallas.tpu as jax_tpu
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.experimental import pallas as pl
from ferrax.experimental.pallas import tpu as pltpu

FLOAT, INT = np.float32, np.int32


def mesh(cores=4, name="core"):
    return pltpu.create_tensorcore_mesh(name, num_cores=cores)


def shape(*sizes, dtype=FLOAT):
    return ferrax.ShapeDtypeStruct(sizes, dtype)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_core_map(jitted, cores):
    part = 8 // cores

    def run(x):
        ref, out = ferrax.new_ref(x), ferrax.new_ref(jnp.zeros_like(x))

        @pl.core_map(mesh(cores), scratch_shapes=[pltpu.VMEM((part,), FLOAT), pltpu.SemaphoreType.DMA])
        def _(kept, sem):
            assert lax.axis_size("core") == pl.num_programs(0) == cores
            rows = pl.ds(lax.axis_index("core") * part, part)
            pltpu.async_copy(ref.at[rows], kept, sem).wait()
            kept[...] = kept[...] * (1.0 + pl.program_id(0))
            pltpu.sync_copy(kept, out.at[rows])

        return out[...]

    x = np.arange(8, dtype=FLOAT)
    want = x * (1 + np.repeat(np.arange(cores), part))
    run = ferrax.jit(run) if jitted else run
    np.testing.assert_array_equal(run(x), want)
    np.testing.assert_array_equal(ferrax.vmap(run)(np.stack([x, 2 * x])), np.stack([want, 2 * want]))
    np.testing.assert_array_equal(ferrax.grad(lambda x: run(x).sum())(x), 1 + np.repeat(np.arange(cores), part))


def test_cores_run_in_order_and_the_first_alone():
    order, firsts = ferrax.new_ref(jnp.int32(0)), ferrax.new_ref(jnp.int32(0))
    # Compiled once, for all cores of both meshes.
    place = ferrax.jit(lambda x: x * 10 + lax.axis_index("core"))

    def body():
        order[...] = place(order[...])

        @pltpu.run_on_first_core("core")
        def _():
            firsts[...] = firsts[...] + 1

    pl.core_map(mesh(3))(body)
    assert int(order[...]) == 12 and int(firsts[...]) == 1
    pl.core_map(mesh(2))(body)
    assert int(order[...]) == 1201 and int(firsts[...]) == 2
    pl.core_map(mesh(1))(body)
    assert int(order[...]) == 12010 and int(firsts[...]) == 3


def test_an_inner_axis_hides_that_of_the_cores():
    out = ferrax.new_ref(jnp.zeros(3, INT))

    def body():
        out[...] = out[...] + ferrax.vmap(lambda x: x + lax.axis_index("core"), axis_name="core")(jnp.zeros(3, INT))

    pl.core_map(mesh(2))(body)
    np.testing.assert_array_equal(out[...], [0, 2, 4])


def test_kernel():
    @pl.kernel(
        out_type={"sum": shape(4), "twice": shape(8)}, mesh=mesh(4), scratch_types={"kept": pltpu.VMEM((2,), FLOAT)}
    )
    def both(x, y, out, *, kept):
        core = lax.axis_index("core")
        kept[...] = x[pl.ds(core * 2, 2)]
        out["sum"][core] = (kept[...] * y[...]).sum()
        out["twice"][pl.ds(core * 2, 2)] = kept[...] * 2

    x, y = np.arange(8, dtype=FLOAT), np.array([1, 10], FLOAT)
    found = both(x, y)
    np.testing.assert_array_equal(found["sum"], x.reshape(4, 2) @ y)
    np.testing.assert_array_equal(found["twice"], 2 * x)
    np.testing.assert_array_equal(ferrax.grad(lambda y: both(x, y)["sum"].sum())(y), x.reshape(4, 2).sum(0))

    def copy(x, o):
        o[...] = x[...]

    one = pl.kernel(copy, shape(8), mesh=mesh(1))
    np.testing.assert_array_equal(one(ferrax.new_ref(x)), x)
    [many] = pl.kernel(copy, [shape(8)], mesh=mesh(1))(x)
    np.testing.assert_array_equal(many, x)
    assert np.isnan(pl.kernel(lambda o: None, shape(2), mesh=mesh(1))()).all()


def test_meshes_and_their_errors():
    assert mesh(2) == mesh(2) != mesh(3) and hash(mesh(2)) == hash(mesh(2)) and mesh(2) != mesh(2, "x")
    assert pltpu.create_tensorcore_mesh("x").shape == {"x": 1}
    with pytest.raises(ValueError, match="not both"):
        pltpu.create_tensorcore_mesh("x", ferrax.devices(), 2)
    with pytest.raises(ValueError, match="returns None"):
        pl.core_map(mesh(1))(lambda: 1)
    with pytest.raises(NotImplementedError, match="several meshes"):
        pl.kernel(lambda: None, mesh=[mesh(1), mesh(1)])
    with pytest.raises(NameError):
        pltpu.run_on_first_core("core")


def test_names_of_a_grid():
    def kernel(x, o):
        o[...] = x[...] + 10 * lax.axis_index("rows") + lax.axis_index("columns") + 100 * lax.axis_size("rows")

    found = pl.pallas_call(
        kernel, shape(2, 3, dtype=INT), grid=(("rows", 2), ("columns", 3)),
        in_specs=[pl.BlockSpec((1, 1), lambda i, j: (i, j))], out_specs=pl.BlockSpec((1, 1), lambda i, j: (i, j)),
    )(jnp.zeros((2, 3), INT))  # fmt: skip
    np.testing.assert_array_equal(found, 200 + np.array([[0, 1, 2], [10, 11, 12]]))


# Random streams.


def drawn(draw, steps=3, size=64, dtype=INT):
    """What `draw` gives at each step."""

    def kernel(o):
        o[...] = draw()

    return np.asarray(
        pl.pallas_call(
            kernel, shape(steps, size, dtype=dtype), grid=(steps,),
            out_specs=pl.BlockSpec((None, size), lambda i: (i, 0)),
        )()
    )  # fmt: skip


def test_streams():
    def twice(*seeds):
        pltpu.prng_seed(*seeds)
        return pltpu.prng_random_bits((64,)), pltpu.prng_random_bits((64,))

    first = drawn(lambda: twice(3)[0])
    assert (first[0] == first[1]).all() and len(np.unique(first[0])) == 64
    assert (drawn(lambda: twice(3)[1])[0] != first[0]).all()
    assert (drawn(lambda: twice(3, 4)[0])[0] != first[0]).all()
    by_step = drawn(lambda: twice(3, pl.program_id(0))[0])
    assert all((by_step[i] != by_step[j]).all() for i, j in itertools.combinations(range(3), 2))
    # The stream is that of a key with the number of the draw folded in.
    key = ferrax.random.fold_in(ferrax.random.fold_in(ferrax.random.key(0), 3), 0)
    np.testing.assert_array_equal(first[0], np.asarray(ferrax.random.bits(key, (64,))).view(INT))

    def in_loop():
        total = jnp.zeros(64, INT)
        pltpu.prng_seed(3)
        return lax.fori_loop(0, 2, lambda i, total: total + pltpu.prng_random_bits((64,)), total)

    one, two = (drawn(lambda n=n: twice(3)[n])[0] for n in range(2))
    np.testing.assert_array_equal(drawn(in_loop)[0], one + two)

    def if_first():
        pl.when(pl.program_id(0) == 1)(lambda: pltpu.prng_seed(3))
        return pltpu.prng_random_bits((64,))

    by_step = drawn(if_first)
    assert (by_step[1] == first[0]).all() and (by_step[0] == by_step[2]).all() and (by_step[0] != by_step[1]).all()


def test_samplers_of_streams():
    uniform = drawn(lambda: pltpu.stateful_uniform((4096,), minval=2.0, maxval=4.0), 1, 4096, FLOAT)
    assert uniform.min() >= 2 and uniform.max() < 4 and abs(uniform.mean() - 3) < 0.05
    normal = drawn(lambda: pltpu.stateful_normal((4096,)), 1, 4096, FLOAT)
    assert abs(normal.mean()) < 0.06 and abs(normal.std() - 1) < 0.06
    coins = drawn(lambda: pltpu.stateful_bernoulli(0.25, (4096,)), 1, 4096, np.bool_)
    assert abs(coins.mean() - 0.25) < 0.03
    assert drawn(lambda: pltpu.stateful_bits((64,), jnp.uint8), 1, 64, np.uint8).std() > 50
    for outside in (lambda: pltpu.prng_random_bits((2,)), lambda: pltpu.prng_seed(0)):
        with pytest.raises(ValueError, match="of a kernel"):
            outside()
    with pytest.raises(ValueError, match="give a seed"):
        drawn(pltpu.prng_seed)


# Reshapes.


@pytest.mark.parametrize(
    "equation, sizes, after, merged",
    [
        ("ab->ba", {}, "ba", None), ("a(bc)->b(ac)", {"c": 3}, "bac", (2, 12)), ("(ab)c->c(ba)", {"a": 2}, "cba", (6, 4)),
        ("a(bcd)->(dc)ba", {"b": 1, "d": 3}, "dcba", (6, 1, 4)), ("ab->(ab)", {}, "ab", (24,)),
    ],
)  # fmt: skip
def test_einshape(equation, sizes, after, merged):
    x = np.arange(24, dtype=FLOAT).reshape(4, 6)
    lengths = {
        "ab->ba": (4, 6), "a(bc)->b(ac)": (4, 2, 3), "(ab)c->c(ba)": (2, 2, 6), "a(bcd)->(dc)ba": (4, 1, 2, 3)
    }.get(equation, (4, 6))  # fmt: skip
    names = "".join(sorted(after))
    want = x.reshape(lengths).transpose([names.index(name) for name in after])
    want = want if merged is None else want.reshape(merged)
    found = functools.partial(pltpu.einshape, equation, **sizes)
    np.testing.assert_array_equal(found(x), want)
    np.testing.assert_array_equal(ferrax.jit(found)(x), want)
    assert found(jnp.asarray(x, jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    "equation, sizes, text",
    [
        ("a(bc)->abc", {}, "Ambiguous"), ("a(bc)->abc", {"b": 4}, "Cannot split"), ("ab", {}, "one '->'"),
        ("a(b->ab", {}, "letters"), ("ab->ac", {}, "each letter once"), ("abc->abc", {}, "axes"),
        ("a(bc)->abc", {"b": 0}, "Cannot split"), ("ab->ba", {"a": 3}, "Cannot split"),
    ],
)  # fmt: skip
def test_einshape_of_what_does_not_fit(equation, sizes, text):
    with pytest.raises(ValueError, match=text):
        pltpu.einshape(equation, jnp.zeros((4, 6)), **sizes)


# What is known of hardware.


def test_facts_of_tpus():
    for chip, other in zip(pltpu.ChipVersion, jax_tpu.ChipVersion, strict=True):
        counts = [1, 2] if other.supports_megacore else [1]
        for count in counts:
            found, want = pltpu.get_tpu_info_for_chip(chip, count), jax_tpu.get_tpu_info_for_chip(other, count)
            facts = dataclasses.asdict(found) | {"chip_version": other}
            assert facts == dataclasses.asdict(want) and str(chip) == str(other)
            for name in ("is_lite", "is_split_chip", "is_megacore"):
                assert getattr(found, name) == getattr(want, name), (chip, name)
            kinds = ["float32", "bfloat16", "int8", "uint4", "float8_e5m2", "float8_e4m3fn", "int32"]
            for pair in itertools.product(kinds, kinds):
                assert found.is_matmul_supported(*pair) == want.is_matmul_supported(*pair), (chip, pair)
            for kind in kinds[:5] if found.generation < 8 else []:
                tiling = want.get_sublane_tiling(jax.numpy.dtype(kind))
                assert found.get_sublane_tiling(kind) == tiling, (chip, kind)
        with pytest.raises(ValueError, match="cores"):
            pltpu.get_tpu_info_for_chip(chip, 3)
    with pytest.raises(NotImplementedError, match="lays out"):
        pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_8I, 1).get_sublane_tiling("float32")
    with pltpu.force_tpu_interpret_mode():
        assert pltpu.get_tpu_info().chip_version is pltpu.ChipVersion.TPU_V5E
    with pytest.raises(NotImplementedError, match="no TPU"):
        pltpu.get_tpu_info()


@pytest.mark.parametrize("module", ["mosaic_gpu", "tpu_sc"])
def test_names_of_other_hardware(module):
    own = importlib.import_module(f"ferrax.experimental.pallas.{module}")
    other = importlib.import_module(f"jax.experimental.pallas.{module}")
    public = [name for name in vars(other) if not name.startswith("_")]
    assert len(public) > 15
    for name in public:
        with pytest.raises(NotImplementedError, match=f"{module}.{name} is of"):
            getattr(own, name)(1)


def test_arrays_that_kernels_capture_and_refs_that_are_no_arrays():
    array = np.arange(4, dtype=FLOAT)

    def kernel(x, o):
        o[...] = x[...] + array

    with pytest.raises(ValueError, match="captures constants"):
        pl.pallas_call(kernel, shape(4))(array)
    places = np.array([0])
    block = pl.BlockSpec((4,), lambda i: jnp.array(places)[i])
    with pytest.raises(ValueError, match="must not capture constants"):
        pl.pallas_call(lambda x, o: None, shape(4), grid=(1,), in_specs=[block])(array)
    # An array that the kernel makes is none of those.
    own = pl.pallas_call(lambda x, o: o.__setitem__(..., x[...] + jnp.array([3.0, 1.0, 2.0, 0.0])), shape(4))
    np.testing.assert_array_equal(own(array), [3, 2, 4, 3])
    for wrong in (
        lambda x: lax.dot_general(x, x, ((2), (1))), lambda x: lax.reshape(x, (2, 2)), lambda x: lax.rev(x, (0,))
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"Ref\{float32\[4\]\} at position 0: read it with"):
            pl.pallas_call(lambda x, o, wrong=wrong: o.__setitem__(..., wrong(x)), shape(4))(array)
    specs = [pl.BlockSpec((4,), lambda i: i)]
    call = pl.pallas_call(lambda x, o, p: None, [shape(4), shape(4)], out_specs=specs)
    with pytest.raises(ValueError, match="Pytree for `out_specs`"):
        call(array)


def test_refs_are_printed_as_what_they_hold(capfd):
    def kernel(x, o):
        pl.debug_print("x = ", x)
        o[...] = x[...]

    pl.pallas_call(kernel, shape(2))(np.array([1, 2], FLOAT)).block_until_ready()
    ferrax.effects_barrier()
    assert "x = [1. 2.]" in capfd.readouterr().out
