"""Trees of arrays in files: over the devices of one process, and files that are damaged."""

import json
import pathlib

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import P
from ferrax.experimental import checkpoint

DTYPES = ["bool", "int4", "uint8", "int32", "float16", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", "complex64"]


def over(*spec, sizes=(4, 2)):
    devices = np.array(ferrax.devices()[:8]).reshape(sizes)
    return ferrax.NamedSharding(ferrax.sharding.Mesh(devices, ("x", "y")), P(*spec))


def state():
    x = jnp.arange(64.0).reshape(8, 8)
    return {
        "params": [ferrax.device_put(x, over("x", "y")), jnp.ones((), "bfloat16")],
        "keys": ferrax.random.split(ferrax.random.key(1, impl="rbg"), 4),
        **{name: jnp.arange(4).astype(name) for name in DTYPES},
    }


def equal(x, y):
    if ferrax.dtypes.issubdtype(x.dtype, ferrax.dtypes.prng_key):
        x, y = ferrax.random.key_data(x), ferrax.random.key_data(y)
    return x.dtype == y.dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_what_is_saved_is_loaded(tmp_path):
    tree = state()
    checkpoint.save(tmp_path / "a", tree)
    like = ferrax.tree.map(lambda x: ferrax.ShapeDtypeStruct(x.shape, x.dtype), tree)
    loaded = checkpoint.load(tmp_path / "a", like)
    assert ferrax.tree.all(ferrax.tree.map(equal, loaded, tree))
    assert not loaded["params"][0].committed
    # Where the leaves are, elsewhere, and by path.
    assert checkpoint.load(tmp_path / "a", tree)["params"][0].sharding == over("x", "y")
    shardings = {**dict.fromkeys(tree, over()), "params": over("y", sizes=(2, 4)), "keys": over("x", sizes=(2, 4))}
    shardings["params"] = [over("y", "x", sizes=(2, 4)), over()]
    moved = checkpoint.load(tmp_path / "a", tree, shardings)
    assert ferrax.tree.all(ferrax.tree.map(equal, moved, tree))
    assert moved["params"][0].sharding == over("y", "x", sizes=(2, 4))
    flat = checkpoint.load(tmp_path / "a")
    assert sorted(flat) == sorted(
        ferrax.tree_util.keystr(path) for path, _ in ferrax.tree_util.tree_leaves_with_path(tree)
    )


def test_what_does_not_fit(tmp_path):
    checkpoint.save(tmp_path, {"a": jnp.ones(4)})
    with pytest.raises(FileExistsError):
        checkpoint.save(tmp_path, {"a": jnp.ones(4)})
    checkpoint.save(tmp_path, {"a": jnp.zeros(4)}, overwrite=True)
    assert checkpoint.load(tmp_path)["['a']"].tolist() == [0] * 4
    with pytest.raises(KeyError, match=r"\['b'\]"):
        checkpoint.load(tmp_path, {"b": 0})
    with pytest.raises(ValueError, match=r"float32\[4\], expected float32\[5\]"):
        checkpoint.load(tmp_path, {"a": jnp.ones(5)})
    with pytest.raises(ValueError, match="expected int32"):
        checkpoint.load(tmp_path, {"a": jnp.ones(4, int)})
    with pytest.raises(ValueError):
        checkpoint.load(tmp_path, {"a": 0}, over("x", "y"))
    with pytest.raises(TypeError):
        checkpoint.save(tmp_path / "b", {"a": "text"})
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "b")


def test_parts_are_files_of_safetensors(tmp_path):
    checkpoint.save(tmp_path, {"a": jnp.arange(4.0)})
    data = (tmp_path / "part-00000.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["0[0:4]"] == {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    assert np.frombuffer(data[8 + length :], np.float32).tolist() == [0, 1, 2, 3]


def change(folder: pathlib.Path, **fields):
    """Other fields in the entry of the first array."""
    index = json.loads((folder / "index.json").read_text())
    index["arrays"][0].update(fields)
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": [5]},
        {"shape": [-4]},
        {"shape": [2.0]},
        {"shape": [1 << 61, 8]},
        {"shape": "4"},
        {"dtype": "float99"},
        {"dtype": "object"},
        {"dtype": ["float32"]},
        {"dtype": "float64"},
        {"dtype": "float8_e5m2"},
        {"tiles": []},
        {"tiles": [[0, [[0, 4]]], [0, [[0, 4]]]]},
        {"tiles": [[0, [[0, 2]]]]},
        {"tiles": [[0, [[0, 2]]], [0, [[1, 4]]]]},
        {"tiles": [[0, [[0, 5]]]]},
        {"tiles": [[0, [[3, 0]]]]},
        {"tiles": [[1, [[0, 4]]]]},
        {"tiles": [["../x", [[0, 4]]]]},
        {"tiles": [[True, [[0, 4]]]]},
        {"tiles": [[0, [[0, 4], [0, 1]]]]},
        {"tiles": [[0, [[0, 2]]], [0, [[2, 4]]]]},
        {"shape": [1 << 50], "tiles": [[0, [[0, 1 << 50]]]]},
        {"key": "threefry2x32"},
        {"key": "nothing"},
        {"key": 3},
        {"weak_type": 1},
        {"name": None},
    ],
    ids=str,
)
def test_indices_that_do_not_hold(tmp_path, fields):
    checkpoint.save(tmp_path, {"a": jnp.arange(4.0)})
    change(tmp_path, **fields)
    with pytest.raises(ValueError):
        checkpoint.load(tmp_path)


def test_files_that_are_damaged(tmp_path):
    """Any byte of the headers is changed, and any length cut: what is loaded is right, or an error says that it is not."""
    tree = {"a": jnp.arange(4.0), "b": jnp.array([True, False]), "c": jnp.arange(3, dtype="int4")}
    checkpoint.save(tmp_path, tree)
    rng = np.random.default_rng(0)
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        damaged = [data[:size] for size in range(0, len(data), 7)]
        for _ in range(300):
            some = bytearray(data)
            some[rng.integers(min(len(data), 400))] = rng.integers(256)
            damaged.append(bytes(some))
        for some in damaged:
            path.write_bytes(some)
            try:
                found = checkpoint.load(tmp_path, tree)
            except (ValueError, KeyError, FileNotFoundError):
                continue
            assert [x.shape for x in found.values()] == [x.shape for x in tree.values()]
            assert set(np.asarray(found["b"]).view(np.uint8)) <= {0, 1}
        path.write_bytes(data)
    assert ferrax.tree.all(ferrax.tree.map(equal, checkpoint.load(tmp_path, tree), tree))
