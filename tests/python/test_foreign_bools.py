"""Bools that come from outside are 0 or 1 here, whatever bytes others keep for true."""

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.experimental import buffer_callback, io_callback

ferrax.config.update("jax_platforms", None)  # the environment may allow the CPU alone
RAW = np.array([2, 0, 255, 1, 128, 0] * 16, np.uint8)
BOOLS = RAW.view(bool)
WANTED = RAW != 0
RESULT = ferrax.ShapeDtypeStruct(BOOLS.shape, bool)


def fill(context, out):
    np.asarray(out).view(np.uint8)[...] = RAW


class Wrapped:
    def __jax_array__(self):
        return jnp.asarray(BOOLS)


class Protocol:
    """DLPack without NumPy's other protocols."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


ENTRANCES = {
    "asarray": lambda: jnp.asarray(BOOLS),
    "array": lambda: jnp.array(BOOLS),
    "an argument of an op": lambda: lax.rev(BOOLS, [0])[::-1],
    "an argument of jit": lambda: ferrax.jit(lambda x: x)(BOOLS),
    "captured by jit": lambda: ferrax.jit(lambda: jnp.asarray(BOOLS))(),
    "device_put": lambda: ferrax.device_put(BOOLS),
    "scalars": lambda: jnp.stack([jnp.asarray(value) for value in BOOLS]),
    "arrays without axes": lambda: jnp.stack([jnp.asarray(BOOLS[i : i + 1].reshape(())) for i in range(len(BOOLS))]),
    "not in order": lambda: jnp.asarray(np.asfortranarray(BOOLS.reshape(8, 12))).reshape(-1),
    "every second": lambda: jnp.asarray(np.repeat(BOOLS, 2)[::2]),
    "a list": lambda: jnp.asarray(list(BOOLS)),
    "a list of arrays": lambda: jnp.concatenate(jnp.asarray([BOOLS[:48], BOOLS[48:]])),
    "a buffer": lambda: jnp.asarray(memoryview(BOOLS)),
    "frombuffer": lambda: jnp.frombuffer(RAW.tobytes(), dtype=bool),
    "an update": lambda: jnp.zeros(BOOLS.shape, bool).at[:].set(BOOLS),
    "__jax_array__": lambda: jnp.asarray(Wrapped()),
    "dlpack": lambda: ferrax.dlpack.from_dlpack(BOOLS),
    "dlpack, a copy": lambda: ferrax.dlpack.from_dlpack(BOOLS, copy=True),
    "dlpack alone": lambda: ferrax.dlpack.from_dlpack(Protocol(BOOLS)),
    "dlpack, not in order": lambda: ferrax.dlpack.from_dlpack(BOOLS.reshape(12, 8).T).T.reshape(-1),
    "view": lambda: jnp.asarray(RAW).view(bool),
    "pure_callback": lambda: ferrax.pure_callback(lambda: BOOLS, RESULT),
    "pure_callback in jit": lambda: ferrax.jit(lambda: ferrax.pure_callback(lambda: BOOLS, RESULT))(),
    "io_callback": lambda: ferrax.jit(lambda: io_callback(lambda: BOOLS, RESULT))(),
    "buffer_callback": lambda: ferrax.jit(buffer_callback.buffer_callback(fill, RESULT))(),
    "on another device": lambda: ferrax.device_put(BOOLS, ferrax.devices("reference")[0]),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_they_are_normal(name):
    x = ENTRANCES[name]()
    assert x.dtype == bool
    np.testing.assert_array_equal(np.asarray(x).view(np.uint8), WANTED)
    assert int(x.sum()) == WANTED.sum()
    np.testing.assert_array_equal(np.asarray(x & True), WANTED)
    np.testing.assert_array_equal(np.asarray(x ^ jnp.asarray(WANTED)), np.zeros_like(WANTED))
    np.testing.assert_array_equal(np.asarray(x == jnp.asarray(WANTED)), np.ones_like(WANTED))
    np.testing.assert_array_equal(np.asarray(x.astype(int)), WANTED)


def test_what_is_given_stays_as_it_is():
    ferrax.dlpack.from_dlpack(BOOLS)
    jnp.asarray(BOOLS)
    np.testing.assert_array_equal(BOOLS.view(np.uint8), RAW)


def aligned(elements):
    """A NumPy array of these bytes as bools, which begins where an array of ours may."""
    memory = np.empty(elements.size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory = memory[start : start + elements.size]
    memory[...] = elements
    return memory.view(bool)


def test_dlpack_shares_normal_bools_only():
    normal = aligned(WANTED)
    shared = ferrax.dlpack.from_dlpack(normal, copy=False)
    assert np.shares_memory(np.asarray(shared), normal)
    with pytest.raises(ValueError, match="copy=False .* bools of other bytes than 0 and 1"):
        ferrax.dlpack.from_dlpack(aligned(RAW), copy=False)
    copied = ferrax.dlpack.from_dlpack(aligned(RAW))
    np.testing.assert_array_equal(np.asarray(copied).view(np.uint8), WANTED)
