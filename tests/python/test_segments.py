"""`ferrax.ops` against the reference."""

import jax
import jax.numpy as jax_numpy
import ml_dtypes
import numpy as np
import pytest
from numpy_oracle import check
from oracle import compare_arrays

import ferrax
import ferrax.numpy as ferrax_numpy

NAMES = ["segment_sum", "segment_prod", "segment_max", "segment_min"]
DATA = np.arange(6.0, dtype=np.float32).reshape(3, 2) - 2
IDS = np.array([2, 0, 2])


def ops_of(lib):
    return ferrax.ops if lib is ferrax_numpy else jax.ops


def run(name, *args, **kwargs):
    return lambda n, *arrays: getattr(ops_of(n), name)(*arrays, *args, **kwargs)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8, np.uint32, np.bool_, np.complex64])
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name, dtype):
    data = np.abs(DATA).astype(dtype)
    for jit in (False, True):
        check(run(name, 4), data, IDS, jit=jit)
    check(run(name), data, IDS)


@pytest.mark.raises("TypeError", "ValueError")
@pytest.mark.parametrize("name", NAMES)
def test_arguments(name):
    out = np.array([0, 9, -1])
    check(run(name, 2), DATA, out)
    check(run(name, 2, mode="clip"), DATA, out)
    check(run(name, 2, mode="wrap"), DATA, out)
    check(run(name, 4, indices_are_sorted=True), DATA, np.array([0, 0, 2]))
    check(run(name, 4, False, True), DATA, np.array([3, 0, 2]))
    check(run(name, 4, bucket_size=2), DATA, IDS)
    check(run(name, 4, bucket_size=1), DATA, IDS)
    check(run(name, 4, bucket_size=7), DATA, IDS)
    check(run(name, 4), DATA, IDS.astype(np.uint8))
    check(run(name, 0), DATA, IDS)
    check(run(name, -1), DATA, IDS)
    check(run(name, 2.5), DATA, IDS)
    check(run(name), DATA[:0], IDS[:0])
    check(run(name, 3), DATA[:0], IDS[:0])
    check(run(name), DATA, IDS.astype(np.float32))
    check(run(name, 3), DATA, IDS[:2])
    check(run(name, 3), DATA, IDS[:, None])
    check(run(name, 3), np.float32(3), np.int32(0))
    check(lambda n: getattr(ops_of(n), name)([1, 2], n.arange(2)))
    check(lambda n: getattr(ops_of(n), name)(n.arange(2), [0, 1]))
    check(lambda n: getattr(ops_of(n), name)(n.broadcast_to(2.5, (3,)), n.asarray(IDS), num_segments=n.array(3)))
    check(lambda n: getattr(ops_of(n), name)(np.ones(3), IDS))
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match=f"{name}.*num_segments"):
        ferrax.jit(getattr(ferrax.ops, name))(DATA, IDS)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    ids = np.array([2, 0, 1]) if name == "segment_prod" else IDS
    kwargs = {"unique_indices": True} if name == "segment_prod" else {}

    def derivatives(module, numpy):
        f = lambda x: (getattr(module.ops, name)(x, numpy.asarray(ids), 4, **kwargs) ** 2)[:3].sum()  # noqa: E731
        x = numpy.asarray(DATA)
        lanes = numpy.stack([x, 2 * x], 1)
        return module.grad(f)(x), module.hessian(f)(x), module.vmap(module.grad(f), 1)(lanes)

    for got, expected in zip(derivatives(ferrax, ferrax_numpy), derivatives(jax, jax_numpy), strict=True):
        compare_arrays(got, expected)
