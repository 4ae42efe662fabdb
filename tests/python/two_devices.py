"""What arrays say of where they are, on a machine of two devices: the first two of a library's CPU, or ferrax's CPU
and a device of another platform. Run as `python two_devices.py jax cpu` or `ferrax reference`, it prints a line for
each case.
"""

import copy
import importlib
import pickle
import sys

import numpy as np

jax = importlib.import_module(sys.argv[1])
jnp = importlib.import_module(sys.argv[1] + ".numpy")
first = jax.devices("cpu")[0]
other = jax.devices(sys.argv[2])[sys.argv[2] == "cpu"]
ones = np.ones((2, 3), np.float32)
here, there = jax.device_put(ones, first), jax.device_put(ones, other)
free = jnp.ones((2, 3))
with jax.default_device(other):
    loose = jnp.ones((2, 3))


def product(x, y):
    return {"product": x @ y.T, "sum": x.sum()}


def loop(x):
    return jax.lax.fori_loop(0, 3, lambda i, c: c * 2, x)


def callback(x):
    return jax.pure_callback(lambda x: np.asarray(x) * 3, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def deleted(x):
    y = jax.device_put(x + 1, other)
    z = jax.jit(lambda y: y * 2, donate_argnums=0)(y)
    return y.is_deleted(), z


def under_default(call):
    with jax.default_device(other):
        return call()


def key():
    return jax.random.key(3)


CASES = {
    "put": lambda: there,
    "put there and back": lambda: jax.device_put(there, first),
    "put where it is": lambda: jax.device_put(there, other),
    "put nowhere": lambda: jax.device_put(there),
    "operation": lambda: jnp.sin(there),
    "operator": lambda: there + there,
    "operator with a number": lambda: 2 - there,
    "operator with NumPy": lambda: there * ones,
    "operator with an array put nowhere": lambda: free / there,
    "operator of two devices": lambda: here + there,
    "operator of two devices, broadcast": lambda: here + there[0],
    "function of two devices": lambda: jnp.matmul(here, there.T),
    "product": lambda: there @ there.T,
    "comparison": lambda: there > 0,
    "reduction": lambda: there.sum(0),
    "argmax": lambda: jnp.argmax(there),
    "sort": lambda: jnp.sort(there),
    "index": lambda: there[0],
    "slice": lambda: there[:, 1:],
    "all of it": lambda: there[:],
    "fancy index": lambda: there[np.array([1, 0])],
    "update": lambda: there.at[0].set(5.0),
    "update of an array put nowhere": lambda: free.at[0].set(there[0]),
    "reshape": lambda: there.reshape(6),
    "astype": lambda: there.astype(np.int32),
    "copy": lambda: there.copy(),
    "deepcopy": lambda: copy.deepcopy(there),
    "item": lambda: there[0, 0].item(),
    "float": lambda: float(there[0, 0]),
    "truth": lambda: bool((there > 0).all()),
    "tolist": lambda: there.tolist(),
    "NumPy": lambda: np.asarray(there).tolist(),
    "device_get": lambda: jax.device_get({"a": there})["a"].tolist(),
    "jit": lambda: jax.jit(product)(there, ones),
    "jit of an array put nowhere": lambda: jax.jit(product)(free, there),
    "jit of two devices": lambda: jax.jit(product)(here, there),
    "jit that captures": lambda: jax.jit(lambda x: x * there)(free),
    "jit that returns its argument": lambda: jax.jit(lambda x: (x, x + 1))(there),
    "jit without arguments": lambda: jax.jit(lambda: jnp.zeros(3))(),
    "jit twice": lambda: [jax.jit(product)(x, x) for x in (there, here, there)],
    "put while traced": lambda: jax.jit(lambda x: jax.device_put(x + 1, other))(free),
    "put while traced, of one that was put": lambda: jax.jit(lambda x: jax.device_put(x + 1, other))(here),
    "jit that donates": lambda: deleted(free),
    "jit under disable_jit": lambda: disabled(),
    "loop": lambda: jax.jit(loop)(there),
    "loop without jit": lambda: loop(there),
    "cond": lambda: jax.lax.cond(there[0, 0] > 0, lambda x: x, lambda x: -x, there),
    "callback": lambda: jax.jit(callback)(there),
    "grad": lambda: jax.grad(lambda x: (x**3).sum())(there),
    "grad of an array put nowhere": lambda: jax.grad(lambda x: (x * there).sum())(free),
    "vmap": lambda: jax.vmap(lambda row: row / row.sum())(there),
    "vjp": lambda: jax.vjp(jnp.tanh, there)[1](there),
    "hessian": lambda: jax.hessian(lambda x: (x**3).sum())(there[0]),
    "eval_shape": lambda: jax.eval_shape(jnp.sin, there).shape,
    "lowered": lambda: jax.jit(jnp.cos).lower(there).compile()(there),
    "random": lambda: jax.random.normal(jax.device_put(key(), other), (3,)),
    "key": lambda: jax.device_put(key(), other),
    "default: zeros": lambda: under_default(lambda: jnp.zeros(3)),
    "default: of a list": lambda: under_default(lambda: jnp.array([1.0, 2.0])),
    "default: of NumPy": lambda: under_default(lambda: jnp.asarray(ones)),
    "default: arange": lambda: under_default(lambda: jnp.arange(3)),
    "default: put nowhere": lambda: under_default(lambda: jax.device_put(ones)),
    "default: random": lambda: under_default(lambda: jax.random.uniform(key(), (2,))),
    "default: operation": lambda: under_default(lambda: jnp.exp(free)),
    "default: operator": lambda: under_default(lambda: free + free),
    "default: jit": lambda: under_default(lambda: jax.jit(product)(free, ones)),
    "default: jit without arguments": lambda: under_default(lambda: jax.jit(lambda: jnp.ones(3))()),
    "default: of one that was put": lambda: under_default(lambda: here + 1),
    "default: index": lambda: under_default(lambda: free[0]),
    "made elsewhere": lambda: loose,
    "made elsewhere, operation": lambda: jnp.exp(loose),
    "made elsewhere, operator": lambda: loose + 1,
    "made elsewhere, with one that was put": lambda: loose + here,
    "made elsewhere, jit": lambda: jax.jit(product)(loose, free),
    "made elsewhere, put": lambda: jax.device_put(loose, first),
    "sharding of arguments": lambda: jax.jit(product, in_shardings=there.sharding)(free, ones),
    "sharding of arguments that are elsewhere": lambda: jax.jit(jnp.sin, in_shardings=there.sharding)(here),
    "like": lambda: jnp.zeros_like(there),
    "device= of zeros": lambda: jnp.zeros(3, device=other),
    "to_device": lambda: free.to_device(other),
    "pickle": lambda: pickle.loads(pickle.dumps(there)),
    "shards": lambda: there.addressable_shards[0].data,
    "tree": lambda: jax.tree.map(lambda x: x + 1, {"a": there, "b": free}),
    "concatenate": lambda: jnp.concatenate([there, free]),
    "concatenate of two devices": lambda: jnp.concatenate([there, here]),
    "empty": lambda: jax.device_put(np.zeros((0, 3), np.float32), other).sum(0),
    "scalar": lambda: jax.device_put(3, other) + 1,
    "complex": lambda: jnp.abs(jax.device_put(np.array([3 + 4j], np.complex64), other)),
    "bfloat16": lambda: jax.device_put(jnp.ones(3, jnp.bfloat16), other) * 2,
    "integers": lambda: jax.device_put(np.arange(3, dtype=np.int8), other) << 1,
}


def disabled():
    with jax.disable_jit():
        return jax.jit(product)(there, there)


def shown(x):
    if isinstance(x, jax.Array):
        (device,) = x.devices()
        place = "there" if device == other else "here"
        words = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        values = np.asarray(words).astype(np.complex64).round(4).tolist()
        return f"{place}, {'committed' if x.committed else 'free'}, {x.dtype}{list(x.shape)} {values}"
    return repr(x)


for name, case in CASES.items():
    try:
        answer = jax.tree.map(shown, case())
    except Exception as error:
        answer = type(error).__name__
    print(f"{name}: {answer}")
