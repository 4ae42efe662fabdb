"""Handlers that were built for XLA, called from programs, as JAX calls them."""

import gc
import pathlib
import threading

import jax
import jax.ffi
import ml_dtypes
import numpy as np
import oracle
import pytest
from ffi_libraries import loaded, registered
from oracle import same

import ferrax
import ferrax.numpy as jnp


def call(s, name, shape, dtype=np.float32, **options):
    registered(s.name)
    return s.jax.ffi.ffi_call(name, s.jax.ShapeDtypeStruct(shape, dtype), **options)


EPS = np.float32(1e-5)


def rms(s, x, **options):
    return call(s, "rms", x.shape, **options)(x, eps=EPS)


def rows(s, *shape):
    return s.jnp.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


CALLS = {
    "eager": lambda s: rms(s, rows(s, 3, 4)),
    "jit": lambda s: s.jax.jit(lambda x: rms(s, x) * 2)(rows(s, 3, 4)),
    "empty": lambda s: rms(s, rows(s, 0, 4)),
    "in a loop": lambda s: s.lax.fori_loop(0, 5, lambda i, x: rms(s, x + i), rows(s, 3, 4)),
    "in a branch": lambda s: s.lax.cond(True, lambda x: rms(s, x), lambda x: x, rows(s, 3, 4)),
    "attributes": lambda s: call(s, "sum_attributes", (), np.float64)(
        integer=3, real=0.5, flag=True, text="four", array=np.arange(4, dtype=np.int32),
        inner={"scale": np.float32(2)},
    ),
    "in place": lambda s: call(s, "in_place", (3,), input_output_aliases={0: 0})(rows(s, 3)),
    "apart": lambda s: s.jax.jit(lambda x: call(s, "in_place", (3,))(x * 2))(rows(s, 3)),
    "array among attributes": lambda s: call(s, "array_sum", (), np.int32)(array=np.arange(-1, 4, dtype=np.int32)),
    "dict of attributes": lambda s: call(s, "option", (), np.int32)(text="four", more=1),
    "with a rule of its own": lambda s: s.jax.value_and_grad(lambda x: (norm(s)(x) ** 2).sum())(rows(s, 3, 4)),
    "derivative of a batch": lambda s: s.jax.vmap(s.jax.grad(lambda x: (norm(s)(x) ** 3).sum()))(rows(s, 2, 3, 4)),
    "platforms": lambda s: s.lax.platform_dependent(
        rows(s, 3, 4), cpu=lambda x: rms(s, x), cuda=lambda x: call(s, "nobody", x.shape)(x)
    ),
    "shard_map": lambda s: s.jax.jit(
        s.jax.shard_map(lambda x: rms(s, x), mesh=mesh(s), in_specs=s.jax.P("i"), out_specs=s.jax.P("i"))
    )(rows(s, 3, 4)),
    "in place, used afterwards": lambda s: s.jax.jit(
        lambda x: (call(s, "in_place", (3,), input_output_aliases={0: 0})(x), x)
    )(rows(s, 3)),
    "later": lambda s: call(s, "later", (1,), np.int32)(fails=False),
    "layouts": lambda s: s.jax.ffi.ffi_call(
        "lies", [s.jax.ShapeDtypeStruct((2, 3), np.float32), s.jax.ShapeDtypeStruct((2,), np.int64)],
        input_layouts=[(0, 1)], output_layouts=[(0, 1), None],
    )(rows(s, 2, 3)),
    "other layouts": lambda s: s.jax.ffi.ffi_call(
        "lies", [s.jax.ShapeDtypeStruct((2, 3), np.float32), s.jax.ShapeDtypeStruct((2,), np.int64)],
        input_layouts=[(1, 0)], output_layouts=[(1, 0), None],
    )(rows(s, 2, 3)),
    "one layout": lambda s: s.jax.ffi.ffi_call(
        "lies", [s.jax.ShapeDtypeStruct((2, 3), np.float32), s.jax.ShapeDtypeStruct((2,), np.int64)],
        input_layouts=[(1, 0)],
    )(rows(s, 2, 3)),
    "layouts of a batch": lambda s: s.jax.vmap(s.jax.ffi.ffi_call(
        "lies", [s.jax.ShapeDtypeStruct((2, 3), np.float32), s.jax.ShapeDtypeStruct((3,), np.int64)],
        input_layouts=[(1, 0)], output_layouts=[(1, 0), None], vmap_method="sequential",
    ))(rows(s, 4, 2, 3))[0],
    "custom_vjp": lambda s: s.jax.grad(lambda x: with_rule(s)(x).sum())(rows(s, 4)),
    "vmap, sequential": lambda s: s.jax.vmap(lambda x: rms(s, x, vmap_method="sequential"))(rows(s, 3, 4)),
    "vmap, unrolled": lambda s: s.jax.vmap(lambda x: rms(s, x, vmap_method="sequential_unrolled"), 1)(rows(s, 4, 3)),
    "vmap, expand_dims": lambda s: s.jax.vmap(lambda x: rms(s, x, vmap_method="expand_dims"), 1)(rows(s, 4, 3)),
    "vmap, broadcast_all": lambda s: s.jax.vmap(lambda x: rms(s, x, vmap_method="broadcast_all"))(rows(s, 3, 4)),
    "vmap, legacy": lambda s: s.jax.vmap(lambda x: rms(s, x, vmap_method="legacy_vectorized"))(rows(s, 3, 4)),
    "vmap of vmap": lambda s: s.jax.vmap(s.jax.vmap(lambda x: rms(s, x, vmap_method="broadcast_all")))(rows(s, 2, 3, 4)),
}  # fmt: skip


def norm(s):
    """Rows divided by their root mean square: both passes are handlers."""

    def forward(x):
        structs = [s.jax.ShapeDtypeStruct(shape, np.float32) for shape in (x.shape, x.shape[:-1])]
        return s.jax.ffi.ffi_call("norm_forward", structs, vmap_method="broadcast_all")(x, eps=EPS)

    def backward(kept, ct):
        scales, x = kept
        return (call(s, "norm_backward", x.shape, vmap_method="broadcast_all")(scales, x, ct),)

    registered(s.name)
    f = s.jax.custom_vjp(lambda x: forward(x)[0])
    f.defvjp(lambda x: (lambda y, scales: (y, (scales, x)))(*forward(x)), backward)
    return f


def mesh(s):
    return s.jax.sharding.Mesh(np.array(s.jax.devices()[:1]), ("i",))


def with_rule(s):
    @s.jax.custom_vjp
    def f(x):
        return rms(s, x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * ct + x,))
    return f


@pytest.mark.parametrize("name", CALLS)
@same
def test_calls(s, name):
    registered(s.name)
    with s.jax.enable_x64(name == "attributes" or "layout" in name):
        return CALLS[name](s)


DTYPES = (
    "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "bfloat16", "float32", "complex64",
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e8m0fnu",
)  # fmt: skip


@same
def test_numbers_of_dtypes(s):
    arrays = [s.jnp.zeros((1,) * (i % 3), getattr(ml_dtypes, name, name)) for i, name in enumerate(DTYPES)]
    return call(s, "types", (3 * len(arrays),), np.int32)(*arrays)


def test_data_is_aligned():
    """Memory of NumPy's that arrays share lies anywhere."""
    memory = np.zeros(64, np.float32)
    start = next(i for i in range(16) if memory[i:].ctypes.data % 64 == 4)
    found = call(oracle.FERRAX, "types", (3,), np.int32)(memory[start : start + 4])
    assert list(found) == [11, 1, 1]
    moved = rms(oracle.FERRAX, jnp.asarray(memory[start : start + 4] + 2))
    np.testing.assert_allclose(moved, 1, rtol=1e-5)


def test_tasks_and_scratch_memory():
    """JAX's processors have no scratch memory for handlers."""
    x = rows(oracle.FERRAX, 100)
    np.testing.assert_array_equal(call(oracle.FERRAX, "squares", (100,))(x), np.asarray(x) ** 2)


def test_a_state_for_each_compiled_function():
    library = registered("ferrax")
    gc.collect()
    before = library.counters_alive()
    first = ferrax.jit(lambda: call(oracle.FERRAX, "count", (), np.int32)())
    second = ferrax.jit(lambda: call(oracle.FERRAX, "count", (), np.int32)() + 0)
    assert [int(first()) for _ in range(3)] == [1, 2, 3]
    assert int(second()) == 1
    assert library.counters_alive() == before + 2
    del first, second
    ferrax.clear_caches()
    gc.collect()
    assert library.counters_alive() <= before


def test_a_state_for_each_run():
    """What a run prepares is its own, and goes with it; runs of a function at once have each one."""
    library = registered("ferrax")
    f = ferrax.jit(lambda: call(oracle.FERRAX, "staged", (), np.int32)())
    found = []
    threads = [threading.Thread(target=lambda: found.extend(int(f()) for _ in range(5))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 20
    assert library.prepared_left() == 0


def test_numbers_of_runs():
    with ferrax.enable_x64(True):
        f = ferrax.jit(call(oracle.FERRAX, "run_ids", (2,), np.int64))
        (first, device), (second, _) = f().tolist(), f().tolist()
    assert first != second and device == 0


def test_calls_without_effects_are_left_out():
    library = registered("ferrax")
    struct = ferrax.ShapeDtypeStruct((), np.float32)

    def run(effect):
        ferrax.jit(lambda x: (ferrax.ffi.ffi_call("touch", struct, has_side_effect=effect)(), x)[1])(1.0)
        return library.times_touched()

    before = library.times_touched()
    assert run(False) == before
    assert run(True) == before + 1


@pytest.mark.parametrize(
    ("code", "name"),
    [(1, "CANCELLED"), (3, "INVALID_ARGUMENT"), (5, "NOT_FOUND"), (8, "RESOURCE_EXHAUSTED"), (13, "INTERNAL"), (16, "UNAUTHENTICATED")],
)  # fmt: skip
@pytest.mark.parametrize("jitted", [False, True])
def test_errors_of_handlers(code, name, jitted):
    for side in (oracle.FERRAX, oracle.JAX):
        registered(side.name)
        run = lambda: side.jax.ffi.ffi_call("fail", (), has_side_effect=True)(code=code)  # noqa: B023, E731
        with pytest.raises(side.jax.errors.JaxRuntimeError, match=f"{name}: as asked"):
            side.jax.block_until_ready((side.jax.jit(run) if jitted else run)())
            side.jax.effects_barrier()


ERRORS = {
    "decoding": (lambda s: call(s, "rms", (4,))(rows(s, 4), eps=1e-5), "JaxRuntimeError", "INVALID_ARGUMENT"),
    "no attribute": (lambda s: call(s, "rms", (4,))(rows(s, 4)), "JaxRuntimeError", "INVALID_ARGUMENT"),
    "text of the handler": (
        lambda s: call(s, "rms", ())(s.jnp.float32(1), eps=EPS), "JaxRuntimeError", "rms takes rows",
    ),
    "later": (lambda s: call(s, "later", (1,), np.int32)(fails=True), "JaxRuntimeError", "failed later"),
    "not registered": (lambda s: call(s, "nobody", (4,))(rows(s, 4)), "JaxRuntimeError", "NOT_FOUND"),
    "derivative": (
        lambda s: s.jax.grad(lambda x: rms(s, x).sum())(rows(s, 4)), "ValueError", "cannot be differentiated",
    ),
    "vmap": (lambda s: s.jax.vmap(lambda x: rms(s, x))(rows(s, 3, 4)), "NotImplementedError", "vmap"),
    "method": (lambda s: rms(s, rows(s, 4), vmap_method="bogus"), "ValueError", "vmap_method"),
    "alias of no input": (
        lambda s: call(s, "in_place", (3,), input_output_aliases={1: 0})(rows(s, 3)), "ValueError", "input index",
    ),
    "alias of no output": (
        lambda s: call(s, "in_place", (3,), input_output_aliases={0: 1})(rows(s, 3)), "ValueError", "output index",
    ),
    "alias of another type": (
        lambda s: call(s, "in_place", (4,), input_output_aliases={0: 0})(rows(s, 3)), "ValueError", "abstract value",
    ),
    "result": (lambda s: s.jax.ffi.ffi_call("rms", None), "ValueError", "position 0"),
    "list": (lambda s: call(s, "touch", ())(e=[1, 2]), "TypeError", "Non-hashable"),
    "None": (lambda s: call(s, "touch", ())(e=None), "TypeError", "No attribute handler"),
    "configuration": (
        lambda s: call(s, "touch", (), legacy_backend_config="x")(), "ValueError", "legacy_backend_config",
    ),
    "no handler": (
        lambda s: s.jax.ffi.register_ffi_target("empty", {}, platform="cpu"), "JaxRuntimeError", "must provide an execute",
    ),
    "no capsule": (
        lambda s: s.jax.ffi.register_ffi_target("other", 1, platform="cpu"), "JaxRuntimeError", "INVALID_ARGUMENT",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    case, kind, message = ERRORS[name]
    with pytest.raises(getattr(ferrax.errors, kind, None) or __builtins__[kind], match=message):
        ferrax.block_until_ready(case(oracle.FERRAX))
    if kind != "JaxRuntimeError" or name not in ("no handler", "no capsule"):
        # A refused registration would keep JAX from starting.
        with pytest.raises(Exception):  # noqa: B017
            jax.block_until_ready(case(oracle.JAX))


def test_registering_again():
    library = registered("ferrax")
    ferrax.ffi.register_ffi_target("rms", ferrax.ffi.pycapsule(library.rms))
    with pytest.raises(ferrax.errors.JaxRuntimeError, match="Duplicate"):
        ferrax.ffi.register_ffi_target("rms", ferrax.ffi.pycapsule(library.types))
    # For other machines: kept, and not called.
    ferrax.ffi.register_ffi_target("rms", ferrax.ffi.pycapsule(library.types), platform="CUDA")
    np.testing.assert_allclose(rms(oracle.FERRAX, jnp.ones(4)), 1, rtol=1e-4)
    with pytest.raises(NotImplementedError, match="api_version"):
        ferrax.ffi.register_ffi_target("old", ferrax.ffi.pycapsule(library.rms), api_version=0)


@pytest.mark.parametrize("side", [oracle.FERRAX, oracle.JAX], ids=["ferrax", "jax"])
def test_a_handler_in_c(side):
    """Built with our own header, it is loaded by both."""
    library = loaded("ffi_handlers.c", side.name, pathlib.Path(ferrax.__file__).parent / "include")
    side.jax.ffi.register_ffi_target("scaled", side.jax.ffi.pycapsule(library.scaled), platform="cpu")
    call = side.jax.ffi.ffi_call("scaled", side.jax.ShapeDtypeStruct((3,), np.float32))
    np.testing.assert_array_equal(call(side.jnp.arange(3.0), by=np.float32(2)), [0, 2, 4])
    with pytest.raises(side.jax.errors.JaxRuntimeError, match="NOT_FOUND: scaled takes a float32 `by`"):
        side.jax.block_until_ready(call(side.jnp.arange(3.0)))
    with pytest.raises(side.jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: scaled takes float32"):
        side.jax.block_until_ready(call(side.jnp.arange(3), by=np.float32(2)))


def test_many_threads():
    f = ferrax.jit(lambda x: call(oracle.FERRAX, "squares", (64,))(x))
    x = rows(oracle.FERRAX, 64)
    expected = np.asarray(x) ** 2
    wrong = []

    def work():
        for _ in range(30):
            if not np.array_equal(f(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_equation():
    registered("ferrax")
    closed = ferrax.make_jaxpr(lambda x: rms(oracle.FERRAX, x))(jnp.ones((3, 4)))
    (eqn,) = closed.eqns
    assert eqn.primitive.name == "ffi_call" and eqn.params["target_name"] == "rms"
    assert eqn.params["attributes"] == (("eps", EPS),)
    held = ferrax.make_jaxpr(lambda: call(oracle.FERRAX, "touch", ())(a=np.arange(2), b={"c": 1}))()
    assert "HashableArray" in str(held) and "FrozenDict" in str(held)
