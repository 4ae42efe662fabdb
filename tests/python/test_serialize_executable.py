"""Compiled functions as bytes: what is loaded computes the same bits, and bytes of any other kind are refused."""

import json
import pickle

import jax
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import _core
from ferrax.experimental import layout
from ferrax.experimental.serialize_executable import deserialize_and_load, serialize

CAPTURED = np.linspace(-1, 1, 6, dtype=np.float32)


def _loop(x):
    return ferrax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * i + x, x)


PROGRAMS = {
    "captured": (lambda x: jnp.asarray(CAPTURED) + x, (CAPTURED,), {}),
    "trees": (lambda x, *, y: {"a": (x, y["b"]), "n": None, "c": [x.sum()]}, (CAPTURED,), {"y": {"b": 3}}),
    "weak": (lambda x: x + 1, (1.0,), {}),
    "unused": (lambda x, y: y * 2, (CAPTURED, 2), {}),
    "loop": (_loop, (CAPTURED,), {}),
    "keys": (lambda key: (ferrax.random.normal(key, (3,)), ferrax.random.split(key)), (ferrax.random.key(4),), {}),
    "sorted": (lambda x: jnp.linalg.eigh(jnp.outer(x, x) + jnp.eye(6))[0], (CAPTURED,), {}),
    "none": (lambda: jnp.arange(3), (), {}),
    "bfloat16": (lambda x: x @ x, (jnp.ones((4, 4), jnp.bfloat16),), {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_loaded_function_gives_the_same_bits(name):
    f, args, kwargs = PROGRAMS[name]
    compiled = ferrax.jit(f).lower(*args, **kwargs).compile()
    data, *trees = serialize(compiled)
    assert type(data) is bytes
    assert b"\x80\x04" not in data[:64]
    loaded = deserialize_and_load(data, *trees)
    want, got = compiled(*args, **kwargs), loaded(*args, **kwargs)
    assert ferrax.tree.structure(want) == ferrax.tree.structure(got)
    for one, other in zip(ferrax.tree.leaves(want), ferrax.tree.leaves(got)):
        assert one.dtype == other.dtype and one.weak_type == other.weak_type
        if jnp.issubdtype(one.dtype, ferrax.dtypes.prng_key):
            one, other = ferrax.random.key_data(one), ferrax.random.key_data(other)
        np.testing.assert_array_equal(np.asarray(one, one.dtype), np.asarray(other, one.dtype))
    assert (loaded.args_info, loaded.out_info) == (compiled.args_info, compiled.out_info)
    assert serialize(loaded)[1:] == tuple(trees)


def test_donation_and_text_are_kept():
    compiled = ferrax.jit(lambda x, y: x * y, donate_argnums=1).lower(CAPTURED, CAPTURED).compile()
    loaded = deserialize_and_load(*serialize(compiled))
    assert loaded.donate_argnums == compiled.donate_argnums == (1,)
    assert loaded.as_text() == compiled.as_text()
    with pytest.raises(TypeError, match="compiled for argument 0"):
        loaded(CAPTURED[:2], CAPTURED)


def test_shardings_and_layouts_are_kept():
    mesh = ferrax.make_mesh((1,), ("x",), axis_types=(ferrax.sharding.AxisType.Auto,))
    rows = ferrax.NamedSharding(mesh, ferrax.P("x"))
    compiled = ferrax.jit(lambda x: x * 2, in_shardings=rows, out_shardings=rows).lower(jnp.ones((4, 2))).compile()
    loaded = deserialize_and_load(*serialize(compiled))
    assert loaded.input_shardings == compiled.input_shardings
    assert loaded(jnp.ones((4, 2))).sharding == rows

    columns = layout.Format(layout.Layout((1, 0)), ferrax.sharding.SingleDeviceSharding(ferrax.devices()[0]))
    compiled = ferrax.jit(lambda x: x * 2, out_shardings=columns).lower(jnp.arange(6.0).reshape(2, 3)).compile()
    loaded = deserialize_and_load(*serialize(compiled))
    assert loaded.output_formats == compiled.output_formats
    np.testing.assert_array_equal(loaded(jnp.arange(6.0).reshape(2, 3)), 2 * np.arange(6.0).reshape(2, 3))


def test_chosen_devices():
    compiled = ferrax.jit(lambda x: x + 1).lower(1.0).compile()
    saved = serialize(compiled)
    device = ferrax.devices()[-1]
    loaded = deserialize_and_load(*saved, backend="cpu", execution_devices=[device])
    assert loaded(1.0).devices() == {device}
    with pytest.raises(ValueError, match="execution_devices"):
        deserialize_and_load(*saved, execution_devices=[])


def _garbage():
    data = serialize(ferrax.jit(lambda x: x + CAPTURED).lower(CAPTURED).compile())[0]
    program = _core.program_from_bytes(data)[0]
    exported = bytes(ferrax.export.export(ferrax.jit(jnp.sin))(1.0).serialize())
    described = json.loads(_core.program_from_bytes(data)[1])

    def changed(**changes):
        return _core.program_to_bytes(program, json.dumps(described | changes), [], [], 0)

    return {
        "empty": b"",
        "noise": b"\x00" * 300,
        "pickle": pickle.dumps([1, 2]),
        "cut": data[:-3],
        "flipped": data[:60] + bytes([data[60] ^ 1]) + data[61:],
        "exported": exported,
        "no text": _core.program_to_bytes(program, "", [], [], 0),
        "a list": _core.program_to_bytes(program, "[1]", [], [], 0),
        "version": changed(version=99),
        "donated": changed(donated=[True] * 7),
        "orders": changed(orders=[[[5]], [None]]),
        "device": changed(shardings=[[{"device": 99, "memory_kind": None}], [None]]),
        "shardings": changed(shardings=[[None] * 9, [None]]),
        "axis": changed(shardings=[[{"sizes": [1], "names": ["x"], "types": ["No"], "devices": [0]}], []]),
    }


@pytest.mark.parametrize("name", list(_garbage()))
def test_other_bytes_are_refused(name):
    trees = ferrax.tree.structure(((0,), {})), ferrax.tree.structure(0)
    with pytest.raises(ValueError):
        deserialize_and_load(_garbage()[name], *trees)


def test_what_cannot_be_saved():
    with pytest.raises(TypeError, match="expected a Compiled"):
        serialize(ferrax.jit(jnp.sin).lower(1.0))
    with pytest.raises(TypeError, match="expected bytes"):
        deserialize_and_load(3, *[ferrax.tree.structure(0)] * 2)
    held = ferrax.new_ref(jnp.ones(3))
    with pytest.raises(ValueError, match="closed-over"):
        serialize(ferrax.jit(lambda x: held[...] + x).lower(1.0).compile())
    with pytest.raises(ValueError, match="mutable arguments"):
        serialize(ferrax.jit(lambda x: x[...]).lower(held).compile())
    calls = ferrax.jit(lambda x: ferrax.pure_callback(np.sin, ferrax.typeof(x), x))
    with pytest.raises(NotImplementedError, match="pure_callback"):
        serialize(calls.lower(jnp.ones(3)).compile())
    data, in_tree, out_tree = serialize(ferrax.jit(jnp.sin).lower(1.0).compile())
    with pytest.raises(ValueError, match="do not fit"):
        deserialize_and_load(data, out_tree, out_tree)


def test_stages_say_what_jax_says():
    def stages(module):
        traced = module.jit(lambda x, y: (x + 1, y)).trace(1.0, np.ones((2, 3), np.float32))
        return traced, traced.lower(), traced.lower().compile()

    for ours, theirs in zip(stages(ferrax), stages(jax)):
        assert repr(ours.args_info) == repr(theirs.args_info)
        for one, other in zip(ours.out_info, theirs.out_info):
            assert (one.shape, one.dtype, one.weak_type) == (other.shape, other.dtype, other.weak_type)
            assert type(one) is ferrax.ShapeDtypeStruct
    traced, lowered, compiled = stages(ferrax)
    assert repr(traced.out_avals) == repr(stages(jax)[0].out_avals)
    assert [eqn.primitive.name for eqn in traced.lojax.jaxpr.eqns] == ["add"]
    assert "add" in lowered.compiler_ir().text(0)
    with pytest.raises(ValueError, match="stablehlo"):
        lowered.compiler_ir("stablehlo")
    assert compiled.call(compiled._params, 1.0, np.ones((2, 3), np.float32))[0] == 2.0
    assert len(compiled._params.executable.in_avals) == 2
    assert compiled.out_info[1].format == compiled.output_formats[1]
