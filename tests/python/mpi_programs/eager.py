"""Run by several processes with two devices each: functions of arrays over all devices, called outside of `jit`.

Each gives what it gives of whole arrays, which this process has, too; elements are small integers, so that sums are exact.
"""

import io
import sys
import weakref

import numpy as np
from expected import raises

import ferrax as fx
import ferrax.numpy as jnp
from ferrax import P, lax
from ferrax.numpy import linalg, var as early_var

fx.config.update("jax_num_cpu_devices", 2)
fx.distributed.initialize()
me, count = fx.process_index(), fx.process_count()
mesh = fx.make_mesh((count, 2), ("x", "y"), axis_types=(fx.sharding.AxisType.Auto,) * 2)
X = (np.arange(32, dtype=np.float32) % 7 - 3).reshape(8, 4)
W = (np.arange(12, dtype=np.float32) % 5 - 2).reshape(4, 3)
w, local = jnp.asarray(W), jnp.asarray(X)


def over(*spec):
    return fx.NamedSharding(mesh, P(*spec))


a, b = (fx.make_array_from_callback(X.shape, over("x", "y"), lambda index, s=s: X[index] + s) for s in (0, 1))
assert type(a) is not type(local) and isinstance(a, fx.Array)


def same(name, found, wanted):
    """Parts of this process are those of the whole, of the same types."""
    found, tree = fx.tree.flatten(found)
    wanted, other = fx.tree.flatten(wanted)
    assert tree == other, name
    for ours, whole in zip(found, wanted):
        if not isinstance(whole, (np.ndarray, fx.Array)):
            assert type(ours) is type(whole) and ours == whole, name
            continue
        assert (ours.shape, ours.dtype, ours.weak_type) == (whole.shape, whole.dtype, whole.weak_type), name
        for shard in ours.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(whole)[shard.index], err_msg=name)


def pulled(v):
    y, f = fx.vjp(lambda v: v @ w, v)
    return y, f(jnp.ones_like(y))


def pushed(v):
    y, f = fx.linearize(lambda v: v * v, v)
    return y, f(v)


doubled = fx.custom_vjp(lambda v: v * 2)
doubled.defvjp(lambda v: (v * 2, None), lambda _, g: (g * 3,))
functions = {
    "native": lambda v: (jnp.tanh(v), lax.abs(v), jnp.square(v), lax.clamp(-1.0, v, 1.0)),
    "numbers": lambda v: (jnp.add(v, 1), jnp.add(v, 1.0), jnp.add(v.astype(int), 1), jnp.add(v.astype(int), True),
                          jnp.add(v.astype(int), 1.0), jnp.multiply(v, np.float32(2)), jnp.copysign(v, -0.0)),  # fmt: skip
    "operands": lambda v: (local + v, v + local, X + v, v * X, local.T @ v, v @ w, local[1:] == v[1:], 2**v, divmod(v, 2), round(v, 1)),
    "ufuncs": lambda v: (jnp.add.reduce(v), jnp.maximum.accumulate(v), jnp.multiply.outer(v[0], v[1]), jnp.add.at(v, 0, 1.0, inplace=False)),
    "reductions": lambda v: (jnp.sum(v, axis=0), jnp.mean(v), early_var(v, axis=1), jnp.argmax(v), jnp.any(v > 2), jnp.median(v)),
    "reduce": lambda v: (lax.reduce(v, np.float32(0), lax.add, (0,)), lax.reduce_window(v, -np.inf, lax.max, (2, 2), (2, 2), "VALID")),
    "types": lambda v: (v.astype(jnp.bfloat16), lax.convert_element_type(v, np.int32), jnp.asarray(v, int), v.view(np.int32)),
    "shapes": lambda v: (v.reshape(4, -1), jnp.reshape(v, -1), v.T, v.mT, jnp.swapaxes(v, 0, 1), v[:, None], jnp.squeeze(v[:, :1])),
    "joined": lambda v: (jnp.concatenate([v, local]), jnp.stack([v, v]), jnp.split(v, 2), jnp.where(v > 0, v, 0), jnp.tile(v, 2)),
    "like": lambda v: (jnp.zeros_like(v), jnp.ones_like(v, dtype=int), jnp.full_like(v, 3), jnp.full_like(v, 2, shape=(3,))),
    "indices": lambda v: (v[2], v[::2, 1:], v[-1, 2], v[..., 0], v[np.array([1, 3])], v[jnp.array([1, 3]), :2], v[X > 0], jnp.take(v, 1, axis=0)),
    "counts": lambda v: (jnp.nonzero(v), v.nonzero(), jnp.argwhere(v > 1), jnp.flatnonzero(v), jnp.where(v > 0), jnp.nonzero(v, size=3),
                         jnp.bincount(v.astype(int).ravel() + 3), jnp.unique(v, size=7), jnp.unique_counts(v, size=7)),  # fmt: skip
    "updates": lambda v: (v.at[2].set(0.0), v.at[1:3, 0].add(v[0, 0]), v.at[0].get(), v.at[:, 1].multiply(2)),
    "facts": lambda v: (jnp.shape(v), jnp.ndim(v), jnp.size(v), str(jnp.result_type(v, 1.0)), jnp.iscomplexobj(v)),
    "linear algebra": lambda v: (jnp.einsum("ij,jk->ik", v, w), jnp.dot(v, w), linalg.norm(v[:2, :1]), jnp.trace(v[:4])),
    "neural": lambda v: (fx.nn.relu(v), fx.nn.one_hot(v.astype(int)[:, 0], 4), fx.scipy.special.erf(v)),
    "random": lambda v: (fx.random.normal(fx.random.key(0), v.shape) + v, fx.random.permutation(fx.random.key(1), v)),
    "gradients": lambda v: (fx.grad(lambda v: (v * v * v).sum())(v), fx.value_and_grad(lambda w, v: ((v @ w) ** 2).sum())(w, v),
                            fx.grad(lambda w: ((v @ w) ** 2).sum())(w), fx.hessian(lambda v: (v**3).sum())(v[:2, 0])),  # fmt: skip
    "derivatives": lambda v: (pulled(v), pushed(v), fx.jvp(jnp.square, (v,), (v,)), fx.checkpoint(jnp.square)(v)),
    "own derivatives": lambda v: (doubled(v), fx.grad(lambda v: doubled(v).sum())(v)),
    "mapped": lambda v: (fx.vmap(lambda r: r.sum())(v), fx.vmap(lambda r: v @ r)(v), lax.map(lambda r: r * 2, v)),
    "loops": lambda v: (lax.scan(lambda c, r: (c + r, c), jnp.zeros(4), v), lax.fori_loop(0, 3, lambda i, c: c + v, local),
                        lax.while_loop(lambda c: c.sum() < 1000, lambda c: c + 5, v), lax.cond(True, lambda r: r + v, lambda r: r, v)),  # fmt: skip
    "trees": lambda v: fx.tree.map(lambda x: x - 0.5 * x, {"v": v, "w": w}),
    "primitives": lambda v: (lax.add_p.bind(v, v), lax.neg_p.bind(v)),
    "jitted": lambda v: (fx.jit(lambda v, n: v * n, static_argnums=1)(v, 3), fx.jit(jnp.square).lower(v).compile()(v)),
    "jitted closures": lambda v: (fx.grad(fx.jit(lambda w: ((v @ w) ** 2).sum()))(w), fx.vmap(fx.jit(lambda r: v @ r))(local)),
}  # fmt: skip
for name, function in functions.items():
    same(name, function(a), function(local))

# The same function of another array, and with another that it closes over, is the same program of other values.
scaled = 2.0
grad = fx.grad(lambda w: (held @ w).sum() * scaled)
for held, whole in ((a, X), (b, X + 1), (a, X)):
    same("closures", grad(w), np.broadcast_to(2 * whole.sum(0)[:, None], W.shape) + jnp.zeros((4, 3)))
    same("again", jnp.add(held, held), jnp.asarray(2 * whole))

# Python goes on with values that are the same in all processes, and what follows from them is for this call alone.
def chosen(v):
    steps = 0
    while v.sum() < 100 and steps < 5:
        v, steps = v * (3 if v.sum() > 0 else -2), steps + 1
    return (v @ w).sum() if v[0, 0] < 0 else v.sum() * steps


slopes, whole_slopes = fx.value_and_grad(chosen), fx.value_and_grad(chosen)
for held, whole in ((a, local), (b, local + 1), (-a, -local), (a, local)):
    same("chosen", slopes(held), whole_slopes(whole))
    slope = fx.grad(lambda u, v=held: (v * u).sum() if v.sum() > u.sum() else u.sum())
    same("chosen outside", slope(local), fx.grad(lambda u, v=whole: (v * u).sum() if v.sum() > u.sum() else u.sum())(local))

# Results are laid out as the arguments are.
for result in (jnp.sin(a), jnp.zeros_like(a), jnp.ones_like(a, dtype=jnp.bfloat16), a.at[0].set(1), fx.grad(lambda v: (v**2).sum())(a)):
    assert result.sharding.is_equivalent_to(over("x", "y"), 2), result.sharding
assert lax.reduce(a, np.float32(0), lax.add, (0,)).sharding.spec == P("y")
assert jnp.sum(a, axis=0).sharding.spec == P("y") and a.T.sharding.spec == P("y", "x")
same("constraint", lax.with_sharding_constraint(a, over("y")), local)
assert lax.with_sharding_constraint(a, over("y")).sharding == over("y") == fx.device_put(a, over("y")).sharding
assert fx.device_put(a, fx.NamedSharding(fx.sharding.Mesh(mesh.devices[::-1], ("x", "y")), P("y", "x"))).shape == X.shape
assert (fx.eval_shape(jnp.sin, a).shape, fx.jit(jnp.sin).eval_shape(a).shape) == (X.shape, X.shape)
assert "sin" in str(fx.make_jaxpr(jnp.sin)(a)) and bool((a > -9).all()) and float(a.sum()) == X.sum()

# Over explicit axes types say how arrays are divided, and what is ambiguous is refused.
types = []
explicit = fx.make_mesh((count, 2), ("x", "y"), axis_types=(fx.sharding.AxisType.Explicit,) * 2)
e = fx.device_put(X, fx.NamedSharding(explicit, P("x", "y")))


def typed(v):
    types.append((v.aval.sharding.spec, v.T.aval.sharding.spec, v.sum(0).aval.sharding.spec))
    return v.T


assert fx.jit(typed)(e).sharding.spec == typed(e).sharding.spec == P("y", "x")
assert types == [(P("x", "y"), P("y", "x"), P("y"))] * 2, types
same("explicit", fx.grad(lambda v: (v * v).sum())(e), 2 * local)
raises(fx.errors.ShardingTypeError, lambda: jnp.repeat(e, np.array([1, 2, 1, 2]), axis=1))

# What asks for values that are not here.
for what, function in (
    ("process_allgather", lambda: np.asarray(a)), ("process_allgather", lambda: np.save(io.BytesIO(), a)),
    ("asks for values", lambda: a[a > 3]), ("asks for values", lambda: jnp.unique(a)),
    ("as an argument", lambda: fx.jit(lambda: a + 1)()), ("as an argument", lambda: fx.jit(lambda x: jnp.sin(x) + a)(w)),
):  # fmt: skip
    assert what in raises(RuntimeError, function), what
# How many results there are would depend on values: what to say instead is said, and how to gather the array.
for name, function in (("unique", jnp.unique), ("unique_values", jnp.unique_values), ("union1d", lambda v: jnp.union1d(v, w)),
                       ("setdiff1d", lambda v: jnp.setdiff1d(v, w)), ("x[...]", lambda v: v[v > 0])):  # fmt: skip
    text = raises(RuntimeError, lambda function=function: function(a))
    assert "process_allgather(x, tiled=True)" in text and "size=n" in text and "traced" not in text and text.startswith(name), text
assert "iterate" in raises(AssertionError, lambda: list(a))
raises(ValueError, lambda: bool(a))
raises(TypeError, lambda: float(a))
assert "shapes" in raises(TypeError, lambda: lax.add(a, w))
raises(ValueError, lambda: jnp.sum(a, axis=5))
for function in (lambda v: (v * np.asarray(v)).sum(), lambda v: v.sum() * float(v.sum()), lambda v: v[v > 0].sum()):
    raises((TypeError, IndexError), lambda function=function: fx.grad(function)(a))
raises(ZeroDivisionError, lambda: fx.grad(lambda v: v.sum() / (1 // 0))(a))

# Programs live as long as the function that they are of.
inner = fx.grad(lambda v: (v**2).sum())
inner(a)
known = weakref.ref(inner)
del inner
import gc  # noqa: E402

gc.collect()
assert known() is None
sys.stdout.write(f"process {me} of {count} is done\n")
