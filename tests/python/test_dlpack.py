"""DLPack: arrays shared with NumPy and JAX in both directions, their lifetime, and what is refused."""

import gc

import jax
import jax.numpy
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax.dlpack import from_dlpack, is_supported_dtype

SHARED = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64"]
ML = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]


def address(x):
    return x.ctypes.data if isinstance(x, np.ndarray) else x.unsafe_buffer_pointer()


def aligned(count, dtype=np.float32, offset=0):
    """A NumPy array that starts `offset` bytes after a multiple of 64."""
    size = count * np.dtype(dtype).itemsize
    octets = np.zeros(size + 128, np.uint8)
    start = -octets.ctypes.data % 64 + offset
    return octets[start : start + size].view(dtype)


@pytest.mark.parametrize("dtype", SHARED)
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 3)])
def test_numpy_reads_our_memory(dtype, shape):
    x = jnp.ones(shape, dtype)
    view = np.from_dlpack(x)
    assert (view.dtype, view.shape) == (x.dtype, x.shape)
    assert x.size == 0 or address(view) == address(x)
    assert not view.flags.writeable
    np.testing.assert_array_equal(view, np.asarray(x))


@pytest.mark.parametrize("dtype", SHARED)
@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (0, 3)])
def test_we_read_numpy_memory(dtype, shape):
    source = aligned(int(np.prod(shape)), dtype).reshape(shape)
    source[...] = 1
    x = jnp.from_dlpack(source, copy=False)
    assert (x.dtype, x.shape, x.weak_type) == (source.dtype, source.shape, False)
    assert x.size == 0 or address(x) == address(source)
    np.testing.assert_array_equal(np.asarray(x), source)


@pytest.mark.parametrize("dtype", [*SHARED, *ML])
def test_jax_both_ways(dtype):
    theirs = jax.numpy.array([[0, 1, 2], [3, 4, 5]], dtype)
    ours = jnp.from_dlpack(theirs, copy=False)
    assert (ours.dtype, address(ours)) == (theirs.dtype, address(theirs))
    assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
    back = jax.numpy.from_dlpack(ours + 0 if dtype in SHARED[1:] else ours)
    assert np.asarray(back).tobytes() == np.asarray(theirs).tobytes()


def test_own_arrays_share_their_memory():
    x = jnp.arange(6.0)
    assert address(from_dlpack(x)) == address(x)
    assert address(from_dlpack(x, copy=True)) != address(x)
    assert not jnp.from_dlpack(jnp.asarray(1.0)).weak_type


def test_what_lies_otherwise_is_copied():
    base = aligned(24).reshape(4, 6)
    base[...] = np.arange(24).reshape(4, 6)
    for view in [base.T, base[::2], base[:, ::-1], base[1:, 1:3], base[::-1, ::-1], base[3:1:-1, ::3]]:
        x = jnp.from_dlpack(view)
        np.testing.assert_array_equal(np.asarray(x), view)
        with pytest.raises(ValueError, match="row-major"):
            jnp.from_dlpack(view, copy=False)
    odd = aligned(5, offset=4)
    np.testing.assert_array_equal(np.asarray(jnp.from_dlpack(odd)), odd)
    with pytest.raises(ValueError, match="aligned"):
        jnp.from_dlpack(odd, copy=False)


def test_sizes_of_one_have_any_stride():
    source = aligned(6).reshape(6, 1)[::2][:1]
    assert address(jnp.from_dlpack(source, copy=False)) == address(source)


def test_read_only_and_copied_memory():
    source = aligned(4)
    source.flags.writeable = False
    assert address(jnp.from_dlpack(source)) == address(source)
    x = jnp.from_dlpack(aligned(4), copy=True)
    x = x.at[0].set(3.0)
    np.testing.assert_array_equal(np.asarray(x), [3, 0, 0, 0])


def test_updates_never_write_to_foreign_memory():
    source = aligned(64)
    x = jnp.from_dlpack(source)
    updated = ferrax.jit(lambda x: x.at[0].set(5.0) + 1, donate_argnums=0)(x)
    assert updated[0] == 6 and source[0] == 0


def test_a_copy_for_the_consumer_is_writable_and_apart():
    x = jnp.arange(3.0)
    view = np.from_dlpack(x, copy=True)
    assert address(view) != address(x)
    view[0] = 7
    assert x[0] == 0


def test_consumers_outlive_producers():
    x = jnp.arange(1000.0) + 1
    view = np.from_dlpack(x)
    x.delete()
    del x
    gc.collect()
    scratch = [jnp.zeros(1000) + 5 for _ in range(20)]
    np.testing.assert_array_equal(view, np.arange(1000) + 1)
    del scratch

    source = aligned(1000)
    source[...] = np.arange(1000)
    x = jnp.from_dlpack(source)
    del source
    gc.collect()
    scratch = [np.full(1032, 3.0, np.float32) for _ in range(20)]
    np.testing.assert_array_equal(np.asarray(x * 2), np.arange(1000) * 2)
    del scratch


def test_memory_is_released():
    class Source(np.ndarray):
        released = 0

        def __del__(self):
            Source.released += self.base is None or isinstance(self.base, np.ndarray)

    source = aligned(8).view(Source)
    x = jnp.from_dlpack(source)
    del source
    gc.collect()
    assert Source.released == 0
    del x
    gc.collect()
    assert Source.released == 1


def test_capsules_that_nobody_takes_are_released():
    for _ in range(100):
        jnp.zeros(100_000).__dlpack__()
        jnp.zeros(100_000).__dlpack__(max_version=(1, 0))


def test_capsule_versions():
    x = jnp.ones(3)
    assert '"dltensor"' in repr(x.__dlpack__())
    assert '"dltensor"' in repr(x.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(1, 0)))
    assert x.__dlpack_device__() == (1, 0)
    assert x.__dlpack__(dl_device=(1, 0), stream=None, copy=False) is not None


def test_producers_without_the_newer_arguments():
    class Old:
        def __dlpack__(self, stream=None):
            return jnp.arange(3).__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    np.testing.assert_array_equal(np.asarray(from_dlpack(Old())), [0, 1, 2])


def test_wide_numbers_are_narrowed_unless_enabled():
    source = aligned(3, np.float64)
    assert jnp.from_dlpack(source).dtype == np.float32
    assert jnp.from_dlpack(aligned(3, np.int64)).dtype == np.int32
    with pytest.raises(ValueError, match="64-bit"):
        jnp.from_dlpack(source, copy=False)
    with ferrax.enable_x64(True):
        x = jnp.from_dlpack(source, copy=False)
        assert (x.dtype, address(x)) == (np.float64, address(source))


def test_refusals():
    x = jnp.ones(3)
    for other in [[1, 2], 3, np.float32(3), x.__dlpack__()]:
        with pytest.raises(TypeError, match="__dlpack__"):
            jnp.from_dlpack(other)
    with pytest.raises(BufferError, match="int4"):
        jnp.ones(3, jnp.int4).__dlpack__()
    with pytest.raises(BufferError, match="key<fry>"):
        ferrax.random.key(0).__dlpack__()
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(ferrax.errors.ConcretizationTypeError):
        ferrax.jit(lambda x: x.__dlpack__())(x)
    with pytest.raises(BufferError):
        jnp.from_dlpack(np.ones(3, ">f4"))
    deleted = jnp.ones(3)
    deleted.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        deleted.__dlpack__()

    class Elsewhere:
        def __dlpack__(self, **_):
            raise AssertionError("asked for elements on another device")

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(RuntimeError, match="device"):
        from_dlpack(Elsewhere())


def test_supported_dtypes():
    import jax.dlpack

    for name in [*SHARED, "int64", "float64", "complex128", "bfloat16"]:
        assert is_supported_dtype(name) and jax.dlpack.is_supported_dtype(name), name
    for name in ["int4", "uint2"]:
        assert not is_supported_dtype(name), name
