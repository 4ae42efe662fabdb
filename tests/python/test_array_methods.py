"""Methods of `Array`, its updates, arrays of keys, and NumPy at either side of an operator.

Each case is an expression over the arrays of `array_cases.names`, evaluated with ferrax and with JAX.
"""

import warnings

import numpy as np
import pytest
from array_cases import same_expression

import ferrax.numpy as jnp

METHODS = [
    "[1,2,3]+i", "jnp.ones(2)@i", "c.conj()", "c.conjugate()", "i.conj()", "i.item()", "s.item()",
    "k.item()", "i.item(2)", "i.item(1,2)", "i.item((1,2))", "i.item(9)", "i.item(-1)",
    "jnp.ones((1,1)).item()", "i.tolist()", "s.tolist()", "h.tolist()", "b.tolist()",
    "c.tolist()", "e.tolist()", "i.tobytes()", "i.tobytes('F')", "h.tobytes()",
    "i.tobytes(order='F')", "f.view(jnp.int32)", "f.view('uint8')", "i.view(jnp.uint8)",
    "u.view(jnp.int8)", "u.view(jnp.bool_)", "h.view(jnp.uint16)", "f.view()",
    "f.view(jnp.float32)", "c.view(jnp.float32)", "b.view(jnp.uint8)",
    "jnp.arange(4,dtype=jnp.uint8).view(jnp.int32)",
    "jnp.arange(3,dtype=jnp.uint8).view(jnp.int32)", "s.view(jnp.int32)", "s.view(jnp.uint8)",
    "f.astype(int)", "f.astype(jnp.uint8)", "i.astype(float)", "i.astype(bool)",
    "c.astype(float)", "i.astype('complex64')", "i.astype(jnp.float32,copy=True)",
    "i.astype(None)", "i.astype('int4')", "s.astype(jnp.bfloat16)", "w.astype(float)",
    "w.astype(jnp.float32)", "b.astype(int)", "f.astype('S')", "f.astype(object)", "f.byteswap()",
    "i.choose([jnp.ones(3)])", "u.choose([jnp.arange(3)]*3, mode='clip')", "i.clone()",
    "i.compress(jnp.array([True,False]),axis=0)",
    "i.compress(jnp.array([True,False,True]),axis=1)", "i.copy()", "w.copy()", "i.all()",
    "i.all(axis=1)", "i.any(axis=0,keepdims=True)", "i.any()", "b.all()", "i.argmax()",
    "i.argmax(axis=1)", "i.argmin(axis=0,keepdims=True)", "f.argmax()", "i.clip(1,3)",
    "i.clip(min=2)", "i.clip(max=2)", "i.clip(1.5)", "i.clip()", "f.clip(0,1)", "i.cumsum()",
    "i.cumsum(axis=1)", "i.cumprod(axis=0)", "b.cumsum()", "u.cumsum()", "i.cumsum(dtype=float)",
    "i.diagonal()", "x3.diagonal(1,0,2)", "i.dot(i.T)", "i.dot(2)", "i.dot([1,2,3])",
    "type(i.flat).__name__", "i.flatten()", "i.flatten('F')", "i.ravel()", "i.ravel('F')",
    "i.max()", "i.max(axis=0)", "i.max(axis=0,keepdims=True,initial=4)",
    "i.max(where=i<3,initial=0)", "e.max()", "e.max(axis=1)", "i.min(axis=1)", "f.min()",
    "c.max()", "i.mean()", "i.mean(axis=0)", "b.mean()", "h.mean()", "i.mean(dtype=int)",
    "i.nonzero()", "i.ptp()", "i.ptp(axis=1)", "i.prod()", "i.prod(axis=1)", "b.prod()",
    "u.prod()", "i.sum()", "i.sum(axis=(0,1))", "i.sum(0)", "i.sum(keepdims=True)", "b.sum()",
    "u.sum()", "u.sum(dtype=jnp.uint8)", "h.sum()", "w.sum()", "i.sum(where=i>2)", "i.std()",
    "i.std(axis=1,ddof=1)", "i.var()", "c.var()", "i.var(axis=0,keepdims=True)", "i.repeat(2)",
    "i.repeat(2,axis=0)", "i.repeat(jnp.array([1,2]),axis=0,total_repeat_length=3)",
    "i.reshape(3,2)", "i.reshape((3,2))", "i.reshape(-1)", "i.reshape([6])", "i.reshape(4)",
    "i.reshape(3,2,order='F')", "i.reshape(-1,-1)", "i.round()", "f.round(1)",
    "s.round(decimals=1)", "x3.squeeze(0)", "i.swapaxes(0,1)", "i.take(jnp.array([0,5]))",
    "i.take(jnp.array([0,1]),axis=1)", "i.take(jnp.array([9]))", "i.take([0])", "i.trace()",
    "x3.trace(axis1=0,axis2=2)", "i.transpose()", "i.transpose(1,0)", "i.transpose((1,0))",
    "i.transpose([1,0])", "x3.transpose(2,0,1)", "i.transpose(0)", "type(i).__name__",
]  # fmt: skip

NUMPY = [
    "np.asarray(i)", "np.asarray(i,dtype=np.float32)", "np.array(i)", "np.array(i,copy=False)",
    "np.asarray(i).flags.writeable", "np.array(i).flags.writeable",
    "np.asarray(i,np.float64).flags.writeable", "np.asarray(i,copy=True).flags.writeable",
    "i.__array__()", "i.__array__(np.float32)", "i.__array__(dtype=np.int32)",
    "i.__array__(copy=True).flags.writeable", "i.__array__(copy=False).flags.writeable",
    "i.__array__(np.float32,copy=False)", "np.asarray(h)", "np.shape(i)", "np.ndim(i)",
    "np.size(i)", "np.sin(f)", "np.add(f,f)", "np.sum(i)", "np.ones(3)+u", "u+np.ones(3)",
    "np.ones(3,np.float32)+u", "np.float32(2)*f", "f*np.float32(2)", "np.int64(2)*i",
    "np.ones((2,3))@i.T", "i@np.ones((3,2))", "np.arange(3)==u", "np.arange(3)<u",
    "u>np.arange(3)", "np.arange(3)**u", "np.float64(2)**f", "np.arange(3)//u", "np.arange(3)%u",
    "np.arange(3)|u", "divmod(np.arange(3),u)", "np.arange(3)<<u", "i.__array_priority__",
    "i.__array_namespace__().__name__.replace('jax','ferrax')",
    "i.__array_namespace__(api_version='2024.12').__name__.replace('jax','ferrax')",
    "i.__array_namespace__(api_version='1999.12')", "isinstance(np.ones(3),jax.Array)",
    "np.lexsort((u,u[::-1]))", "bisect.bisect(u,1)",
]  # fmt: skip

AT = [
    "b[0].item()", "c[0].item()", "h[0].item()", "x3[:1].squeeze()", "x3[:1].squeeze(0)",
    "i.at[0].set(9)", "i.at[0,1].add(9)", "i.at[0].subtract(1)", "i.at[0].multiply(2)",
    "i.at[0].mul(2)", "i.at[0].divide(2)", "f.at[0].divide(2)", "f.at[0].power(2)",
    "i.at[0].power(2)", "i.at[0].min(1)", "i.at[0].max(1)", "i.at[0].apply(lambda x: x+1)",
    "f.at[1].apply(jnp.sin)", "i.at[0].get()", "i.at[5].get(mode='fill')",
    "i.at[5].get(mode='fill',fill_value=7)", "i.at[5].get(mode='clip')",
    "i.at[5].set(1,mode='clip')", "i.at[5].set(1,mode='drop')",
    "i.at[5].set(1,mode='promise_in_bounds').shape", "i.at[5].set(1,mode='bogus')",
    "i.at[-1].get(wrap_negative_indices=False)", "i.at[:,1].set(7)", "i.at[0].set(1.5)",
    "i.at[0].set(jnp.ones(4))", "i.at[[0]].set(1)", "operator.setitem(i.at, 0, 1)", "repr(i.at)", "repr(i.at[0])",
    "i.at[0].set(1,indices_are_sorted=True,unique_indices=True)", "i.at[jnp.array([0,0])].add(1)",
    "i.at[jnp.array([True,False])].set(0)", "i.at[...,0].set(3)", "i.at[None].set(3)",
    "b.at[0].set(False)", "b.at[0].add(True)", "b.at[0].max(True)", "c.at[0].set(1j)",
    "c.at[0].min(1j)", "h.at[0].add(1)", "u.at[0].add(300)", "u.at[0].set(-1)",
    "i.at[0].add(1.5)", "i.at[0].add(jnp.float32(1.5))", "i[0]", "i[-1]", "i[5]",
    "i[...,None].shape", "i[:,::-1]", "i[1.0]", "i['a']", "i[[0]]", "i[True].shape", "i[b]",
    "i[0,0,0]", "i[k]", "i[jnp.array([0,1]),jnp.array([1,2])]",
]  # fmt: skip

KEYS = [
    "str(key)", "repr(key)", "repr(jax.random.split(key,3))", "str(jax.random.split(key,3))",
    "np.asarray(key)", "pickle.loads(pickle.dumps(key))", "copy.deepcopy(key)", "copy.copy(key)",
    "key==key", "key+1", "hash(key)", "key.shape", "key.dtype", "key.size", "key.itemsize",
    "key.nbytes", "len(jax.random.split(key,3))", "list(jax.random.split(key,2))",
    "jax.random.split(key,4).reshape(2,2)", "jax.random.split(key,4)[1:]",
    "jax.random.split(key,4).T", "jax.random.split(key,4).at[0].set(key)",
    "jax.random.split(key,4).flatten()", "int(key)", "bool(key)", "key.is_deleted()",
    "isinstance(key,jax.Array)",
]  # fmt: skip


@pytest.mark.parametrize("expression", METHODS)
def test_methods(expression):
    same_expression(expression)


@pytest.mark.parametrize("expression", NUMPY)
def test_with_numpy(expression):
    same_expression(expression)


@pytest.mark.parametrize("expression", AT)
def test_updates_and_indexing(expression):
    same_expression(expression)


@pytest.mark.parametrize("expression", KEYS)
def test_keys(expression):
    same_expression(expression)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="NumPy asks for the protocol since 2.4")
def test_arrays_are_no_dtypes():
    x = jnp.arange(3)
    with pytest.warns(DeprecationWarning, match="dtype=x.dtype"):
        assert np.dtype(x) == np.int32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.dtype(x.dtype) == np.asarray(x).dtype == np.zeros_like(x).dtype
