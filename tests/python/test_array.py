"""`Array` as a Python object: text, conversions, operators, attributes, and what tracers refuse.

Each case is an expression over the arrays of `array_cases.names`, evaluated with ferrax and with JAX.
"""

import gc

import pytest
from array_cases import same_expression
from oracle import same

TEXT = [
    "repr(f)", "repr(i)", "repr(s)", "repr(k)", "repr(b)", "repr(c)", "repr(h)", "repr(e)",
    "repr(u)", "repr(big)", "repr(w)", "repr(x3)", "repr(jnp.zeros((3,0)))",
    "repr(jnp.zeros((100,100)))", "repr(jnp.array(1+2j))", "repr(jnp.array(True))",
    "repr(jnp.bfloat16(1.1))", "repr(jnp.array([1,2],jnp.int4))",
    "repr(jnp.array([1,2],jnp.float8_e4m3fn))", "repr(jnp.arange(40, dtype=jnp.uint8))",
    "repr(jnp.arange(26, dtype=jnp.float32))", "repr(jnp.array(1))", "repr(jnp.full((2,),2.))",
    "str(f)", "str(i)", "str(s)", "str(b)", "str(c)", "str(h)", "str(e)", "str(big)", "str(w)",
    'f"{s}"', 'f"{s:.2f}"', 'f"{k:5d}"', 'f"{f}"', 'f"{b[0]}"', 'f"{c[0]}"', 'f"{c[0]:.1f}"',
    'f"{h[0]:.3f}"', 'f"{f:.2f}"', "format(i,'')", '"%.2f" % s', '"%d" % k', '"{!r}".format(s)',
    'f"{s:>10}"', 'f"{jnp.ones(1):.2f}"', "str(i.aval)", "str(w.aval)", "repr(i.aval)",
]  # fmt: skip

PYTHON = [
    "hash(f)", "hash(s)", "list(i)", "list(b)", "list(s)", "[type(q).__name__ for q in i]",
    "iter(s)", "np.lexsort(i)", "len(i)", "len(s)", "len(e)", "list(reversed(f))", "bool(b[0])", "bool(b)",
    "bool(e)", "bool(jnp.ones((1,1)))", "bool(jnp.zeros(1))", "bool(s)", "bool(f[2])",
    "bool(c[0])", "int(s)", "int(k)", "int(f)", "int(jnp.ones(1))", "int(b[0])", "int(c[0])",
    "int(f[2])", "int(f[3])", "float(s)", "float(k)", "float(jnp.ones(1))",
    "float(jnp.ones((1,1)))", "float(c[0])", "float(b[0])", "float(h[0])", "float(f)",
    "complex(c[0])", "complex(s)", "complex(c)", "complex(jnp.ones(1))", "operator.index(k)",
    "operator.index(s)", "operator.index(jnp.array([3]))", "operator.index(b[0])",
    "operator.index(u[0])", "[1,2,3][jnp.int32(1)]", "range(k)", "hex(k)", "oct(k)", "bin(k)",
    "hex(s)", "math.sqrt(s)", "math.floor(s)", "math.ceil(s)", "math.trunc(s)", "round(s)",
    "round(s,1)", "round(f)", "round(k)", "round(k,-1)", "round(c[0])", "round(h,1)",
    "list(i.flat)", "len(i.addressable_shards)", "len(i.global_shards)", "copy.copy(i)",
    "copy.deepcopy(i)", "copy.deepcopy(w)", "copy.copy(w)", "copy.deepcopy({'a':i,'b':[i]})['a']",
    "pickle.loads(pickle.dumps(i))", "pickle.loads(pickle.dumps(w))",
    "pickle.loads(pickle.dumps(h))", "pickle.loads(pickle.dumps(e))",
    "pickle.loads(pickle.dumps(b,protocol=2))",
]  # fmt: skip

OPERATORS = [
    "i+1", "i+1.5", "1+i", "i-1", "1-i", "i*2.0", "i/2", "2/i", "i//2", "7//i", "i%2", "7%i",
    "i**2", "2**i", "i**-1", "f**2", "f**0.5", "f**-1", "2.0**f", "pow(i,2)", "pow(i,2,3)",
    "i**i", "u**2", "u**u", "c**2", "b**2", "b**b", "divmod(i,2)", "divmod(7,i)", "divmod(f,2)",
    "i<<1", "1<<i", "i>>1", "u>>1", "1>>u", "100>>i", "-7>>i", "i&1", "1&i", "i|1", "i^1",
    "i&b[0]", "f&1", "f<<1", "~i", "~b", "~f", "-i", "-u", "+i", "+b", "-b", "abs(f)", "abs(c)",
    "abs(u)", "abs(b)", "i==i", "i!=1", "i<2", "i<=f[0]", "c<c", "c>=1", "b<b", "b>=b", 'i=="a"',
    "i==None", "i!=None", "i<None", 'i<"a"', 'i+"a"', "i+None", "i+[1,2,3]", "i+(1,2,3)", "i*[1]",
    "i==[0,1,2]", "i+object()", "i@i.T", "i@2", "i@jnp.ones(3)", "s@s", "i@[1,2,3]",
    "i.__matmul__(i)", "operator.iadd(i,1)", "operator.imul(f,2)", "operator.isub(i,1.5)",
    "operator.imatmul(i,i.T)", "operator.ipow(i,2)", "operator.iand(i,1)",
    "operator.ilshift(i,1)", "operator.setitem(i,0,1)", "operator.delitem(i,0)", "1 in i",
    "9 in i", "1.5 in f", "None in i", "[1] in i", "i.T", "i.mT", "f.T", "f.mT", "i.real",
    "i.imag", "c.real", "c.imag", "i.flat[2]", "i.shape", "i.dtype", "i.size", "i.ndim",
    "i.nbytes", "i.itemsize", "h.itemsize", "s.weak_type", "w.weak_type",
    "i.is_fully_addressable", "i.is_fully_replicated", "i.committed", "i.device",
    "i.addressable_shards[0].data", "i.addressable_shards[0].index",
    "i.addressable_shards[0].replica_id", "i.addressable_shards[0].device", "i.device_buffer",
    "i.device_buffers", "i.nosuch",
]  # fmt: skip

ATTRIBUTES = [
    "i.is_deleted()", "i.is_ready()", "i.platform()", "i.devices()",
    "i.on_device_size_in_bytes()", "i.block_until_ready()", "i.copy_to_host_async()",
    "i.addressable_data(0)", "i.to_device(jax.devices()[0])",
    "hasattr(i,'_base_array')", "i.delete()", "setattr(i,'shape',(6,))", "isinstance(i,jax.Array)",
]  # fmt: skip

TRACERS = [
    "jax.jit(lambda x: x+1)(i)", "jax.jit(lambda x: float(x))(s)",
    "jax.jit(lambda x: x.item())(s)", "jax.jit(lambda x: x.tolist())(s)",
    "jax.jit(lambda x: np.asarray(x))(s)", "jax.jit(lambda x: bool(x))(s)",
    "jax.jit(lambda x: int(x))(s)", "jax.jit(lambda x: complex(x))(s)",
    "jax.jit(lambda x: operator.index(x))(k)", "jax.jit(lambda x: hash(x))(k)",
    "jax.jit(lambda x: x.tobytes())(k)", "jax.jit(lambda x: list(x))(s)",
    "jax.jit(lambda x: list(x))(i)", "jax.jit(lambda x: len(x))(i)",
    "jax.jit(lambda x: pickle.dumps(x))(i)", "jax.jit(lambda x: copy.copy(x))(i)",
    "jax.jit(lambda x: copy.deepcopy(x))(i)", "jax.jit(lambda x: x.delete())(i)",
    "jax.jit(lambda x: x.is_deleted())(i)", "jax.jit(lambda x: x.block_until_ready())(i)",
    "jax.jit(lambda x: x.copy_to_host_async())(i)", "jax.jit(lambda x: x.devices())(i)",
    "jax.jit(lambda x: x.device)(i)", "jax.jit(lambda x: x.addressable_data(0))(i)",
    "jax.jit(lambda x: x.addressable_shards)(i)", "jax.jit(lambda x: x.global_shards)(i)",
    "jax.jit(lambda x: x.unsafe_buffer_pointer())(i)",
    "jax.jit(lambda x: x.on_device_size_in_bytes())(i)",
    "jax.jit(lambda x: x.is_fully_addressable)(i)", "jax.jit(lambda x: x.is_fully_replicated)(i)",
    "jax.jit(lambda x: x.committed)(i)", "jax.jit(lambda x: x.weak_type)(w)",
    "jax.jit(lambda x: x.is_ready())(i)", "jax.jit(lambda x: x.platform())(i)",
    "jax.jit(lambda x: x.size+x.ndim+x.nbytes+x.itemsize)(i)",
    "jax.jit(lambda x: x.nonzero())(i)", "jax.jit(lambda x: x[x>1])(i)",
    "jax.jit(lambda x: range(x))(k)", 'jax.jit(lambda x: f"{x.shape}" and x)(i)',
    "jax.jit(lambda x: round(x))(s)", "jax.jit(lambda x: x.to_device(jax.devices()[0]))(i)",
    "jax.jit(lambda x: x.view(jnp.uint32))(i)", "jax.jit(lambda x: x.at[0].set(1))(i)",
    "jax.jit(lambda x: hex(x))(k)", "jax.jit(lambda x: 1 in x)(i)",
    "jax.jit(lambda x: x.__array_namespace__() is jnp and x)(i)",
]  # fmt: skip


@pytest.mark.parametrize("expression", TEXT)
def test_text(expression):
    same_expression(expression)


@pytest.mark.parametrize("expression", PYTHON)
def test_python_protocols(expression):
    same_expression(expression)


@pytest.mark.parametrize("expression", OPERATORS)
def test_operators(expression):
    same_expression(expression)


@pytest.mark.parametrize("expression", ATTRIBUTES)
def test_attributes(expression):
    same_expression(expression)


@pytest.mark.parametrize("expression", TRACERS)
def test_tracers(expression):
    same_expression(expression)


@same
def test_live_arrays(S):
    x, y, z = S.jnp.ones(3131), S.jnp.ones(4141), S.jnp.ones(5151)
    S.jax.eval_shape(S.jnp.sin, x)
    y.delete()
    del z
    gc.collect()
    shapes = {array.shape for array in S.jax.live_arrays("cpu")}
    return [shape in shapes for shape in ((3131,), (4141,), (5151,))]


@pytest.mark.raises("RuntimeError")
@same
def test_live_arrays_of_another_platform(S):
    return S.jax.live_arrays("tpu")
