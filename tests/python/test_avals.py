"""ShapedArray and ShapeDtypeStruct: printing, equality and derived types as in JAX."""

import pickle

import jax
import numpy as np
import pytest

from ferrax._src.base import dtypes
from ferrax._src.core.avals import ShapedArray, ShapeDtypeStruct

CASES = [
    ((2, 3), np.dtype("float32"), True),
    ((), np.dtype("int8"), False),
    ((0,), np.dtype("complex64"), False),
    ((5,), np.dtype(dtypes.bfloat16), False),
    ([4, 1], "uint16", False),
    ((3,), np.float64, False),
]


@pytest.mark.parametrize("shape,dtype,weak", CASES)
def test_shaped_array(shape, dtype, weak):
    ours = ShapedArray(shape, dtype, weak)
    theirs = jax.core.ShapedArray(shape, dtype, weak)
    assert repr(ours) == repr(theirs) and str(ours) == str(theirs)
    for short in (False, True):
        assert ours.str_short(short) == theirs.str_short(short)
    for name in ("shape", "dtype", "ndim", "size", "weak_type"):
        assert getattr(ours, name) == getattr(theirs, name)
    for derive in (
        lambda a: a.to_tangent_aval(),
        lambda a: a.strip_weak_type(),
        lambda a: a.update(shape=(7,)),
        lambda a: a.update(dtype=np.dtype("int32"), weak_type=False),
        lambda a: a.inc_rank(9, 0),
        lambda a: a.inc_rank(9, 0).dec_rank(9, 0),
    ):
        assert repr(derive(ours)) == repr(derive(theirs))
    copy = ShapedArray(tuple(shape), np.dtype(dtype), weak)
    assert ours == copy and hash(ours) == hash(copy)
    assert ours != ours.update(weak_type=not weak) and ours != ours.update(shape=(8,))
    assert pickle.loads(pickle.dumps(ours)) == ours
    with pytest.raises(AttributeError):
        ours.shape = ()


def test_shaped_array_of_keys():
    aval = ShapedArray((2,), dtypes.key_fry)
    assert repr(aval) == "ShapedArray(key<fry>[2])"
    assert aval.to_tangent_aval().dtype == dtypes.float0
    assert aval == pickle.loads(pickle.dumps(aval))


@pytest.mark.parametrize("shape,dtype,weak", CASES)
def test_shape_dtype_struct(shape, dtype, weak):
    ours = ShapeDtypeStruct(shape, dtype, weak_type=weak)
    theirs = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)
    assert repr(ours) == repr(theirs)
    for name in ("shape", "dtype", "ndim", "size", "weak_type", "sharding", "is_ref"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours == ShapeDtypeStruct(tuple(shape), np.dtype(dtype), weak_type=weak)
    assert hash(ours) == hash(ShapeDtypeStruct(tuple(shape), np.dtype(dtype), weak_type=weak))
    assert ours != ours.update(weak_type=not weak)
    assert repr(ours.update(shape=(1,))) == repr(theirs.update(shape=(1,)))
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert ShapeDtypeStruct.like(np.ones((2, 1), np.int8)) == ShapeDtypeStruct((2, 1), "int8")


@pytest.mark.parametrize(
    "call,error",
    [
        (lambda s: s((2,), None), ValueError),
        (lambda s: s(3, np.float32), TypeError),
        (lambda s: len(s((), np.float32)), TypeError),
        (lambda s: setattr(s((2,), np.float32), "shape", ()), RuntimeError),
    ],
)
def test_shape_dtype_struct_errors(call, error):
    for struct in (ShapeDtypeStruct, jax.ShapeDtypeStruct):
        with pytest.raises(error):
            call(struct)
