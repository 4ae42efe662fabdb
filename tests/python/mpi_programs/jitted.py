"""Run by several processes with one device each: jitted functions whose arguments and results are said to be somewhere.

Calls and compiled functions give the same, laid out as was said, of arrays over all devices and of arrays that all
processes have.
"""

import sys
import warnings

import numpy as np
from expected import raises

import ferrax as fx
import ferrax.numpy as jnp
from ferrax import P
from ferrax.experimental import multihost_utils

fx.config.update("jax_num_cpu_devices", 1)
fx.distributed.initialize()
me, count = fx.process_index(), fx.process_count()
X = np.arange(8 * count, dtype=np.float32).reshape(count, 8)
wanted = X * 2 + 1


def holds(array, whole, sharding, name):
    assert array.sharding == sharding and array.shape == whole.shape, (name, array.sharding)
    assert [part.device for part in array.addressable_shards] == fx.local_devices(), name
    for part in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(part.data), whole[part.index], err_msg=name)


def ways(f, *args):
    """What a jitted function gives: called, called again, and compiled first."""
    structs = [fx.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in args]
    return f(*args), f(*args), f.lower(*structs).compile()(*args)


def doubled(x):
    return x * 2 + 1


def several(d, scale=None):
    return {"sum": d["a"] + d["b"], "total": d["a"].sum(), "twice": (d["a"], d["a"])}, None


def check(kind):
    mesh = fx.make_mesh((count,), ("x",), axis_types=(kind,))
    rows, whole, columns = (fx.NamedSharding(mesh, spec) for spec in (P("x"), P(), P(None, "x")))
    given = {"over all": fx.device_put(X, rows), "on all": fx.device_put(X, whole), "local": jnp.asarray(X), "numpy": X}
    for known, x in given.items():
        for sharding in (rows, whole, columns):
            name = f"{kind} {known} {sharding.spec}"
            for result in ways(fx.jit(doubled, out_shardings=sharding), x):
                holds(result, wanted, sharding, name)
            own = {"over all": rows, "on all": whole}.get(known, sharding)
            for result in ways(fx.jit(doubled, in_shardings=own, out_shardings=sharding), x):
                holds(result, wanted, sharding, name)
            with fx.set_mesh(mesh):
                for result in ways(fx.jit(doubled, out_shardings=sharding.spec), x):
                    holds(result, wanted, sharding, name)
    a, b = given["over all"], given["local"]
    # What is divided stays so where nothing is said of results.
    for f in (fx.jit(doubled), fx.jit(doubled, in_shardings=rows)):
        for result in ways(f, a):
            holds(result.addressable_data(0), wanted[me : me + 1], result.addressable_data(0).sharding, "as it follows")
            assert result.sharding.is_equivalent_to(rows, 2)
    # Arguments that lie otherwise are refused, as in one process.
    elsewhere = fx.jit(doubled, in_shardings=columns)
    for call in (lambda: elsewhere(a), lambda: elsewhere.lower(X).compile()(a)):
        assert "device_put" in raises(ValueError, call)
    # Trees, of which some leaves are said to be nowhere.
    shardings = {"sum": columns, "total": whole, "twice": rows}, None
    for options in ({}, {"in_shardings": ({"a": rows, "b": None},)}):
        for result, nothing in ways(fx.jit(several, out_shardings=shardings, **options), {"a": a, "b": b}):
            holds(result["sum"], 2 * X, columns, "sum")
            holds(result["total"], X.sum(), whole, "total")
            holds(result["twice"][1], X, rows, "twice")
            assert nothing is None
    # Functions without arguments, with static ones and keywords, donated ones, and keys.
    holds(fx.jit(lambda: jnp.zeros((count, 3)), out_shardings=rows)(), np.zeros((count, 3)), rows, "no arguments")
    holds(fx.jit(lambda n, x: x * n, static_argnums=0, out_shardings=columns)(3, a), 3 * X, columns, "static")
    holds(fx.jit(doubled, out_shardings=columns)(x=a), wanted, columns, "keyword")
    gone = a.copy()
    holds(fx.jit(doubled, donate_argnums=0, out_shardings=rows)(gone), wanted, rows, "donated")
    assert gone.is_deleted()
    keys = fx.jit(lambda key: fx.random.split(key, count), out_shardings=rows)(fx.random.key(3))
    assert keys.sharding == rows
    alone = fx.random.key_data(fx.random.split(fx.random.key(3), count))
    np.testing.assert_array_equal(fx.random.key_data(fx.jit(lambda k: k, out_shardings=whole)(keys)), alone)
    np.testing.assert_array_equal(multihost_utils.process_allgather(fx.random.key_data(keys), tiled=True), alone)
    # Within other transformations it is a part of their programs.
    f = fx.jit(lambda x: (x * x).sum(), out_shardings=whole)
    for x in (a, b):
        np.testing.assert_array_equal(multihost_utils.process_allgather(fx.grad(f)(x), tiled=True)[:count], 2 * X)

    # Arrays that are not the same in all processes are no argument that a sharding divides.
    other = X + me
    for call in (
        lambda: fx.jit(doubled, in_shardings=rows)(other),
        lambda: fx.jit(doubled, in_shardings=rows)(jnp.asarray(other)),
        lambda: fx.jit(doubled, in_shardings=rows).lower(X).compile()(other),
        lambda: fx.device_put(other, rows),
    ):
        assert "make_array_from_process_local_data" in raises(AssertionError, call)
    for call in (lambda: fx.jit(doubled, in_shardings=rows)(other), lambda: fx.device_put(other, rows)):
        with fx.set_mesh(mesh):
            assert "make_array_from_process_local_data" in raises(AssertionError, call)


check(fx.sharding.AxisType.Auto)
check(fx.sharding.AxisType.Explicit)

# Another mesh of the same devices says where results are; devices of one process do not.
square = fx.make_mesh((count, 1), ("a", "b"), axis_types=(fx.sharding.AxisType.Auto,) * 2)
there = fx.NamedSharding(square, P(None, ("b", "a")))
a = fx.device_put(X, fx.NamedSharding(fx.make_mesh((count,), ("x",)), P("x")))
holds(fx.jit(doubled, out_shardings=there)(a), wanted, there, "another mesh")
for elsewhere in (fx.sharding.SingleDeviceSharding(fx.local_devices()[0]), fx.NamedSharding(square.local_mesh, P("a"))):
    assert "incompatible devices" in raises(ValueError, lambda to=elsewhere: fx.jit(doubled, out_shardings=to)(a))
# A number that all devices have is one over processes, too.
total = fx.device_put(np.float32(2.5), fx.NamedSharding(square, P()))
assert multihost_utils.process_allgather(total, tiled=True) == 2.5
assert float(fx.device_put(total, fx.NamedSharding(fx.make_mesh((count,), ("x",)), P()))) == 2.5

# What is donated for nothing is said of the line that donates it.
for options in ({}, {"out_shardings": fx.NamedSharding(square, P())}):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        line = sys._getframe().f_lineno + 1
        fx.jit(lambda x: x.sum(), donate_argnums=0, **options)(a.copy())
    assert [(w.filename, w.lineno) for w in told if "donated" in str(w.message)] == [(__file__, line)], told
sys.stdout.write(f"process {me} of {count} is done\n")
