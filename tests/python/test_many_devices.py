"""Arrays over several devices of the processor, beside JAX's over as many."""

import copy
import pickle

import numpy as np
import pytest
from oracle import same
from test_mesh import outcomes

import ferrax
import ferrax.numpy as jnp

SPECS = [(), ("x",), ("y", "x"), (None, "y"), (("x", "y"),), (None, ("y", "x"))]


def mesh_of(S, sizes=(4, 2), names=("x", "y")):
    devices = np.array(S.jax.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return S.jax.sharding.Mesh(devices, names)


def over(S, spec, x, sizes=(4, 2)):
    return S.jax.device_put(x, S.jax.NamedSharding(mesh_of(S, sizes), S.jax.P(*spec)))


def shards(x):
    return [(str(s.device), s.index, s.replica_id, np.asarray(s.data), str(s.data.devices())) for s in x.addressable_shards]


def described(x):
    return (
        np.asarray(x), str(x.sharding), x.committed, sorted(d.id for d in x.devices()), x.is_fully_replicated,
        x.is_fully_addressable, x.on_device_size_in_bytes(), x.nbytes, repr(x),
    )  # fmt: skip


X = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.mark.parametrize("spec", SPECS)
def test_parts(spec):
    @same
    def case(S):
        x = over(S, spec, X)
        whole = spec == ()
        return described(x), shards(x), x.addressable_data(99 if whole else 5), str(x.device), shards(x + 1)

    case()


@same
def test_parts_that_are_not_there(S):
    x = over(S, ("x",), X)
    return outcomes(
        S,
        lambda: x.addressable_data(8),
        lambda: S.jax.device_put(S.jnp.ones(6), S.jax.NamedSharding(mesh_of(S), S.jax.P("x"))),
        lambda: S.jax.device_put(S.jnp.ones(()), S.jax.NamedSharding(mesh_of(S), S.jax.P("x"))),
    )


@same
def test_arrays_of_keys_and_small_types(S):
    keys = over(S, ("x",), S.jax.random.split(S.jax.random.key(3), 8))
    parts = [S.jax.random.key_data(s.data) for s in keys.addressable_shards]
    joined = S.jax.make_array_from_single_device_arrays((8,), keys.sharding, [s.data for s in keys.addressable_shards])
    kinds = [over(S, ("y",), S.jnp.arange(8).astype(name)) for name in ("bool", "int8", "bfloat16", "complex64", "uint4")]
    return parts, S.jax.random.key_data(joined), str(joined.sharding), [
        np.asarray(k.addressable_data(7)).astype("complex64") for k in kinds
    ]


@same
def test_arrays_made_of_parts(S):
    sharding = S.jax.NamedSharding(mesh_of(S), S.jax.P("y", "x"))
    asked = []

    def callback(index):
        asked.append(index)
        return X[index]

    called = S.jax.make_array_from_callback((8, 8), sharding, callback)
    parts = [s.data for s in called.addressable_shards]
    turned = S.jax.make_array_from_single_device_arrays((8, 8), sharding, parts[3:] + parts[:3])
    put = over(S, ("x",), X)
    copies = S.jax.make_array_from_callback((8, 8), put.sharding, lambda index: S.jnp.asarray(X[index]))
    local = S.jax.make_array_from_process_local_data(sharding, X)
    return described(called), described(turned), described(copies), described(local), len(asked)


@same
def test_parts_that_make_no_array(S):
    sharding = S.jax.NamedSharding(mesh_of(S), S.jax.P("y", "x"))
    parts = [s.data for s in S.jax.device_put(X, sharding).addressable_shards]
    made = lambda parts, shape=(8, 8): S.jax.make_array_from_single_device_arrays(shape, sharding, parts)  # noqa: E731
    elsewhere = S.jax.NamedSharding(mesh_of(S, (2, 2)), S.jax.P("y", "x"))
    other = [S.jax.device_put(p.astype("int32"), p.device) if n == 2 else p for n, p in enumerate(parts)]
    return outcomes(
        S,
        lambda: made(parts[1:]),
        lambda: made(parts[:-1] + parts[:1]),
        lambda: made([p[:1] for p in parts]),
        lambda: made(other),
        lambda: made([np.asarray(p) for p in parts]),
        lambda: made(iter(parts)),
        lambda: made(parts, (4, 8)),
        lambda: S.jax.make_array_from_single_device_arrays((4, 8), elsewhere, parts[4:]),
        lambda: S.jax.make_array_from_callback((8, 8), sharding, lambda index: X),
    )


@same
def test_operations_over_operands_on_several_devices(S):
    devices, x = S.jax.devices(), over(S, ("x", "y"), X)
    put = lambda n: S.jax.device_put(X, devices[n])  # noqa: E731
    order = S.jax.sharding.Mesh(np.array(devices[::-1]).reshape(4, 2), ("x", "y"))
    turned = S.jax.device_put(X, S.jax.NamedSharding(order, S.jax.P("x")))
    jit = S.jax.jit
    donating = jit(lambda a, b: a + b, donate_argnums=0)
    given = put(3)

    def donated():
        try:
            return donating(given, x)
        finally:
            assert not given.is_deleted()

    return outcomes(
        S,
        lambda: described(x + S.jnp.ones((8, 8))),
        lambda: described(put(3) + 1),
        lambda: described(put(3) + S.jnp.ones(8)),
        lambda: described(put(3) + np.ones(8, np.float32)),
        lambda: put(1) + put(2),
        lambda: put(1) + x,
        lambda: x + turned,
        lambda: S.jnp.concatenate([put(1), put(2)]),
        lambda: jit(lambda a, b: (a, b))(put(1), x),
        lambda: jit(lambda a: a)(put(5)).devices(),
        lambda: donated(),
        lambda: described(jit(lambda a: a + put(3))(S.jnp.ones((8, 8)))),
        lambda: described(jit(lambda a: a + x)(put(6))),
    )


@same
def test_exchange_with_others(S):
    x = over(S, ("x", "y"), X)
    loaded, copied = pickle.loads(pickle.dumps(x)), copy.deepcopy(x)
    moved = S.jax.device_put(x, S.jax.devices()[2])
    back = S.jax.device_put(moved, x.sharding)
    return outcomes(
        S,
        lambda: described(loaded), lambda: str(copied.sharding), lambda: described(moved), lambda: described(back),
        lambda: x.__dlpack__(), lambda: S.jax.device_get(x), lambda: [np.asarray(row) for row in x], lambda: float(x.sum()),
        lambda: x.__array__(), lambda: S.jax.block_until_ready(x) is x, lambda: bool((x == X).all()),
        lambda: (x.delete(), x.is_deleted()), lambda: x.addressable_shards,
    )  # fmt: skip


@same
def test_arguments_of_numpy_move_under_a_mesh(S):
    mesh = S.jax.make_mesh((4, 2), ("x", "y"), axis_types=(S.jax.sharding.AxisType.Auto,) * 2)
    with S.jax.set_mesh(mesh):
        double = S.jax.jit(lambda x: x * 2, in_shardings=S.jax.P("x"))
        return described(double(X)), outcomes(S, lambda: double(S.jnp.asarray(X)))


def test_memory_is_shared():
    """All devices of the processor see one memory: nothing is copied where an array is put over them."""
    x = jnp.arange(64.0).reshape(8, 8)
    for spec in SPECS:
        put = ferrax.device_put(x, ferrax.NamedSharding(mesh_of(ferrax_side()), ferrax.P(*spec)))
        assert np.shares_memory(np.asarray(put), np.asarray(x))


def ferrax_side():
    from oracle import FERRAX

    return FERRAX


def test_live_arrays_of_a_platform():
    x = ferrax.device_put(jnp.ones(3), ferrax.devices()[5])
    there = ferrax.device_put(jnp.ones(3), ferrax.devices("reference")[0])
    on_cpu, on_other = ferrax.live_arrays("cpu"), ferrax.live_arrays("reference")
    assert any(y is x for y in on_cpu) and not any(y is there for y in on_cpu)
    assert any(y is there for y in on_other) and not any(y is x for y in on_other)


def test_what_shared_functions_say_is_looked_for_once():
    """Each function calls the one before twice: 2 ** 40 calls, were they gone through one by one."""
    from ferrax import _core

    on = ferrax.NamedSharding(mesh_of(ferrax_side()), ferrax.P("x"))
    f = lambda x: ferrax.lax.with_sharding_constraint(x, on) * 2  # noqa: E731
    for _ in range(40):
        f = (lambda inner: lambda x: inner(inner(x)))(ferrax.jit(f))
    program = ferrax.jit(f).trace(jnp.ones(8))._program
    assert len(_core.equations_named(program, {"sharding_constraint"})) == 1
