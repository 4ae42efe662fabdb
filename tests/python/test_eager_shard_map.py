"""Values in the body of a `shard_map` that is called with arrays, outside of any trace: what Python may ask, and what is shown."""

import operator

import numpy as np
import pytest
from oracle import FERRAX, SIDES, module

import ferrax
import ferrax.numpy as jnp
from ferrax import lax

X = np.arange(16.0, dtype=np.float32).reshape(4, 4)


def _mesh(S, shape=(2, 2), names=("x", "y")):
    count = int(np.prod(shape))
    return S.jax.sharding.Mesh(np.array(S.jax.devices()[:count]).reshape(shape), names)


def _on_parts(S, body, x=X, spec=("x", "y"), out=("x", "y"), **options):
    mesh = options.pop("mesh", None) or _mesh(S)
    P = S.jax.sharding.PartitionSpec
    return S.jax.shard_map(body, mesh=mesh, in_specs=P(*spec), out_specs=P(*out), **options)(x)


@SIDES
def test_python_branches_on_what_all_devices_have(S):
    def body(x):
        total = S.lax.psum(x.sum(), ("x", "y"))
        return -x if total > 100 else x

    np.testing.assert_array_equal(_on_parts(S, body), -X)
    np.testing.assert_array_equal(_on_parts(S, body, X - 10), X - 10)


@SIDES
@pytest.mark.parametrize("ask", [bool, int, operator.index, lambda n: n.item()], ids=["bool", "int", "index", "item"])
def test_numbers_of_what_all_devices_have(S, ask):
    found = []

    def body(x):
        found.append(ask(S.lax.psum(x.astype(int).sum(), ("x", "y"))))
        return x

    _on_parts(S, body)
    assert found == [ask(np.int64(120))]


def test_floats_and_numpy_arrays_of_what_all_devices_have():
    found = {}

    def body(x):
        rows = lax.psum(x, ("x", "y"))
        found["array"] = np.asarray(rows)
        found["float"] = float(rows[0, 0])
        found["complex"] = complex(rows[0, 0])
        found["list"] = rows[0].tolist()
        return x

    _on_parts(FERRAX, body)
    parts = X[:2, :2] + X[:2, 2:] + X[2:, :2] + X[2:, 2:]
    np.testing.assert_array_equal(found["array"], parts)
    assert found["array"].dtype == np.float32
    assert (found["float"], found["complex"]) == (parts[0, 0], complex(parts[0, 0]))
    assert found["list"] == parts[0].tolist()


@SIDES
def test_python_loops_until_all_devices_are_done(S):
    steps = []

    def body(x):
        while S.lax.pmax(abs(x).max(), ("x", "y")) > 1:
            x = x / 2
            steps.append(0)
        return x

    np.testing.assert_array_equal(_on_parts(S, body), X / 16)
    assert len(steps) == 4


@SIDES
def test_shapes_may_depend_on_what_all_devices_have(S):
    def body(x):
        count = S.lax.psum((x > 12).astype(int).sum(), ("x", "y"))
        return S.jnp.zeros((int(count), 1)) + x.max()

    assert _on_parts(S, body).shape == (6, 2)


@SIDES
def test_each_call_asks_anew(S):
    mapped = S.jax.shard_map(
        lambda x: x if S.lax.psum(x.sum(), "i") > 0 else -x, mesh=_mesh(S, (4,), ("i",)),
        in_specs=S.jax.sharding.PartitionSpec("i"), out_specs=S.jax.sharding.PartitionSpec("i"),
    )  # fmt: skip
    ones = np.ones(4, np.float32)
    for sign in (1, -1, 1):
        np.testing.assert_array_equal(mapped(sign * ones), ones)


@SIDES
def test_values_under_a_derivative_within(S):
    def body(x):
        def loss(x):
            total = S.lax.psum((x**2).sum(), ("x", "y"))
            return total if total > 0 else -total

        return S.jax.grad(loss)(x)

    np.testing.assert_array_equal(_on_parts(S, body), 2 * X)


@SIDES
def test_arrays_from_outside_and_of_no_argument(S):
    outside = S.jnp.arange(3)
    P = S.jax.sharding.PartitionSpec

    def body():
        total = S.lax.psum(S.lax.axis_index("x") + outside, "x")
        return total if (total > 0).all() else -total

    result = S.jax.shard_map(body, mesh=_mesh(S), in_specs=(), out_specs=P())()
    np.testing.assert_array_equal(result, [1, 3, 5])


@SIDES
@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (bool, "TracerBoolConversionError"), (int, "ConcretizationTypeError"), (float, "ConcretizationTypeError"),
        (np.asarray, "TracerArrayConversionError"), (lambda n: n.item(), "ConcretizationTypeError"),
        (lambda n: operator.index(n.astype(int)), "TracerIntegerConversionError"),
    ],
    ids=["bool", "int", "float", "asarray", "item", "index"],
)  # fmt: skip
def test_what_differs_has_no_value(S, ask, error):
    def body(x):
        ask(S.lax.psum(x.sum(), "x"))
        return x

    with pytest.raises(getattr(module(S, "errors"), error)) as info:
        _on_parts(S, body)
    assert type(info.value).__name__ == error
    if S is FERRAX:
        text = str(info.value)
        assert "differs from device to device along the axis 'y'" in text
        assert all(word in text for word in ("lax.psum", "lax.cond", "jnp.where"))


@SIDES
def test_without_types_nobody_knows_what_differs(S):
    def body(x):
        return x if S.lax.psum(x.sum(), ("x", "y")) > 0 else -x

    with pytest.raises(module(S, "errors").TracerBoolConversionError) as info:
        _on_parts(S, body, check_vma=False)
    assert S is not FERRAX or "check_vma=False" in str(info.value)


def _asks(x):
    return x if lax.psum(x.sum(), ("x", "y")) > 0 else -x


@pytest.mark.parametrize(
    "around",
    [ferrax.jit, lambda f: lambda x: ferrax.jvp(f, (x,), (x,)), lambda f: ferrax.grad(lambda x: f(x).sum()),
     lambda f: lambda x: ferrax.vmap(f)(x[None])],
    ids=["jit", "jvp", "grad", "vmap"],
)  # fmt: skip
def test_within_a_trace_there_are_no_values(around):
    shown = []

    def body(x):
        shown.append(repr(x))
        return _asks(x)

    P = ferrax.P
    mapped = ferrax.shard_map(body, mesh=_mesh(FERRAX), in_specs=P("x", "y"), out_specs=P("x", "y"))
    with pytest.raises(ferrax.errors.TracerBoolConversionError, match="while the function is traced"):
        around(mapped)(jnp.asarray(X))
    assert shown[0].startswith("JitTracer(")


def test_within_a_jitted_function_of_the_body_there_are_no_values():
    with pytest.raises(ferrax.errors.TracerBoolConversionError):
        _on_parts(FERRAX, lambda x: ferrax.jit(_asks)(x))


def test_what_happens_does_so_once():
    seen = []

    def body(x):
        ferrax.debug.callback(lambda total: seen.append(float(total)), x.sum())
        total = lax.psum(x.sum(), ("x", "y"))
        assert int(total) == 120
        assert "120" in str(total)
        return x if total > 0 else -x

    np.testing.assert_array_equal(_on_parts(FERRAX, body), X)
    ferrax.effects_barrier()
    assert sorted(seen) == [10.0, 18.0, 42.0, 50.0]


def test_what_depends_on_an_effect_has_no_value():
    calls = []

    def count(x):
        calls.append(0)
        return np.float32(1)

    def body(x):
        got = ferrax.experimental.io_callback(count, ferrax.ShapeDtypeStruct((), np.float32), lax.psum(x.sum(), "x"))
        return x if got > 0 else -x

    with pytest.raises(ferrax.errors.TracerBoolConversionError):
        _on_parts(FERRAX, body)
    assert calls == []


def test_printing_shows_what_each_device_has():
    shown = []

    def body(x):
        shown.extend([str(x.sum()), repr(x.sum()), f"{x.sum()}", str(x)])
        return x

    _on_parts(FERRAX, body)
    lines = shown[0].splitlines()
    assert lines == [
        "On CpuDevice(id=0) at mesh coordinates (x, y) = (0, 0): 10.0",
        "On CpuDevice(id=1) at mesh coordinates (x, y) = (0, 1): 18.0",
        "On CpuDevice(id=2) at mesh coordinates (x, y) = (1, 0): 42.0",
        "On CpuDevice(id=3) at mesh coordinates (x, y) = (1, 1): 50.0",
    ]
    assert shown[1] == shown[2] == shown[0]
    assert shown[3].startswith("On CpuDevice(id=0) at mesh coordinates (x, y) = (0, 0):\n[[0. 1.]\n [4. 5.]]\nOn")


@SIDES
@pytest.mark.parametrize("check_vma", [True, False])
def test_printing_names_the_coordinates(S, check_vma):
    shown = []

    def body(x):
        shown.append(str(S.lax.psum(x, "x")))
        return x

    _on_parts(S, body, check_vma=check_vma)
    assert shown[0].count("at mesh coordinates") == 4


def test_printing_over_some_axes_of_a_mesh_names_all_devices():
    shown = []

    def body(x):
        shown.append(str(x))
        return x

    _on_parts(FERRAX, body, spec=("y",), out=("y",), x=np.arange(2), axis_names={"y"})
    assert shown[0].splitlines() == [
        "On CpuDevice(id=0), CpuDevice(id=2) at mesh coordinates (y) = (0): [0]",
        "On CpuDevice(id=1), CpuDevice(id=3) at mesh coordinates (y) = (1): [1]",
    ]


def test_keys_are_shown():
    shown = []

    def body(x):
        shown.append(str(ferrax.random.fold_in(ferrax.random.key(0), lax.axis_index("x"))))
        return x

    _on_parts(FERRAX, body)
    assert shown[0].count("dtype=key<fry>") == 4


def test_pmap_is_compiled_and_has_no_values():
    def body(x):
        return x if lax.psum(x, "i") > 0 else -x

    with pytest.raises(ferrax.errors.TracerBoolConversionError):
        ferrax.pmap(body, axis_name="i")(jnp.ones(2))
