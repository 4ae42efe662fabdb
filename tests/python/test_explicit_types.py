"""Types over explicit axes of a mesh, beside JAX's: what operations give, and which they refuse."""

import functools

import numpy as np
import pytest
from oracle import same


def mesh_of(S):
    return S.jax.make_mesh((4, 2), ("x", "y"), axis_types=(S.jax.sharding.AxisType.Explicit,) * 2)


def put(S, shape, *spec, dtype=np.float32, **sums):
    x = (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)
    return S.jax.device_put(x, S.jax.P(*spec, **sums))


def shown(S, x):
    """The types of the results, and their values."""
    leaves = S.jax.tree.leaves(x)
    sums = [bool(leaf.sharding.spec.unreduced) for leaf in leaves]
    values = [S.jax.reshard(leaf, S.jax.P()) if unreduced else leaf for leaf, unreduced in zip(leaves, sums)]
    return [(S.jax.typeof(leaf).str_short(True), np.asarray(value)) for leaf, value in zip(leaves, values)]


def outcome(S, run):
    """What `run()` gives, or the class of what it raises: those of operations that types refuse."""
    try:
        return shown(S, run())
    except Exception as error:
        # IndivisibleError is a ValueError.
        return "ValueError" if isinstance(error, ValueError) else type(error).__name__


A, ROW, COLUMN, XY, WHOLE = ((8, 16), "x"), ((8, 16), None, "y"), ((8, 16), "y"), ((8, 16), "x", "y"), ((8, 16),)
# name: (function of a library and its arguments, the arguments as (shape, *spec))
CASES = {
    "elementwise": (lambda S, a: S.jnp.sin(a) * 2 + 1, [A]),
    "joined": (lambda S, a, b: a + b, [A, ROW]),
    "joined with what is whole": (lambda S, a, b: a * b, [A, WHOLE]),
    "against each other": (lambda S, a, b: a + b, [A, COLUMN]),
    "an axis twice": (lambda S, a, b: a + b, [((8, 8), "x"), ((8, 8), None, "x")]),
    "with a number": (lambda S, a: a + 1, [A]),
    "of fewer axes": (lambda S, a, b: a + b, [A, ((16,), "y")]),
    "of fewer axes against": (lambda S, a, b: a + b, [A, ((16,), "x")]),
    "maximum": (lambda S, a: S.jnp.maximum(a, 0.0), [XY]),
    "clip": (lambda S, a: S.jnp.clip(a, 0, 1), [XY]),
    "where": (lambda S, a: S.jnp.where(a > 0, a, 0.0), [XY]),
    "where of two": (lambda S, a, b: S.lax.select(a > 0, a, b), [XY, XY]),
    "where against": (lambda S, a, b: S.lax.select(a > 0, a, b), [A, WHOLE]),
    "sum": (lambda S, a: (a.sum(), a.sum(0), a.sum(1), a.mean(1, keepdims=True), a.max(0)), [XY]),
    "argmax": (lambda S, a: S.jnp.argmax(a, 1), [XY]),
    "softmax": (lambda S, a: S.jax.nn.softmax(a), [A]),
    "var": (lambda S, a: a.var(0), [A]),
    "transpose": (lambda S, a: (a.T, S.jnp.moveaxis(a[:, None], 0, 2)), [XY]),
    "new axes": (lambda S, a: (a[:, None], a[None]), [XY]),
    "squeeze": (lambda S, a: S.jnp.squeeze(a, 1), [((8, 1, 4), "x", None, "y")]),
    "broadcast": (lambda S, a: S.jnp.broadcast_to(a, (3, 8, 16)), [XY]),
    "matmul": (lambda S, a, b: a @ b, [A, ((16, 4), None, "y")]),
    "matmul summed over one": (lambda S, a, b: a @ b, [ROW, ((16, 4),)]),
    "matmul summed over both": (lambda S, a, b: a @ b, [ROW, ((16, 4), "y")]),
    "matmul alike": (lambda S, a, b: a @ b, [A, ((16, 4), None, "x")]),
    "matmul as said": (lambda S, a, b: S.jnp.matmul(a, b, out_sharding=S.jax.P("x")), [XY, ((16, 4), "y")]),
    "batches": (lambda S, a, b: S.jnp.einsum("bij,bjk->bik", a, b), [((8, 4, 4), "x"), ((8, 4, 4), "x")]),
    "einsum as said": (
        lambda S, a, b: S.jnp.einsum("ij,kj->ik", a, b, out_sharding=S.jax.P("x", None)), [XY, ((4, 16), None, "y")],
    ),
    "dot left unreduced": (
        lambda S, a, b: S.jnp.dot(a, b, out_sharding=S.jax.P(unreduced={"y"})), [ROW, ((16, 4), "y")],
    ),
    "dot left unreduced otherwise": (
        lambda S, a, b: S.jnp.dot(a, b, out_sharding=S.jax.P(unreduced={"x"})), [ROW, ((16, 4), "y")],
    ),
    "vector": (lambda S, a, b: a @ b, [A, ((16,),)]),
    "concatenate": (lambda S, a, b: S.jnp.concatenate([a, b], 1), [A, A]),
    "concatenate of others": (lambda S, a, b: S.jnp.concatenate([a, b], 1), [A, WHOLE]),
    "stack": (lambda S, a: S.jnp.stack([a, a], 1), [XY]),
    "merge": (lambda S, a: a.reshape(128), [A]),
    "merge of both": (lambda S, a: a.reshape(128), [XY]),
    "merge of the minor axis": (lambda S, a: a.reshape(128), [ROW]),
    "merge as said": (lambda S, a: S.jnp.reshape(a, 128, out_sharding=S.jax.P("y")), [ROW]),
    "split": (lambda S, a: a.reshape(4, 2, 16), [A]),
    "split over both": (lambda S, a: a.reshape(4, 2, 16), [((8, 16), ("x", "y"))]),
    "split of what is cut finer": (lambda S, a: a.reshape(2, 4, 16), [A]),
    "split and merge": (lambda S, a: a.reshape(4, 32), [A]),
    "split and merge of what is whole": (lambda S, a: a.reshape(4, 32), [WHOLE]),
    "axes of size one": (lambda S, a: a.reshape(1, 8, 1, 16), [XY]),
    "ravel": (lambda S, a: S.jnp.ravel(a, out_sharding=S.jax.P("x")), [XY]),
    "slice": (lambda S, a: S.lax.slice(a, (0, 2), (4, 10)), [A]),
    "slice of odd size": (lambda S, a: S.lax.slice(a, (0, 2), (3, 10)), [A]),
    "pad": (lambda S, a: S.lax.pad(a, 0.0, ((4, 4, 0), (1, 0, 0))), [A]),
    "pad to odd sizes": (lambda S, a: S.lax.pad(a, 0.0, ((1, 0, 0), (0, 0, 0))), [A]),
    "split in parts": (lambda S, a: S.lax.split(a, (8, 8), 1), [A]),
    "rev": (lambda S, a: S.lax.rev(a, (0,)), [A]),
    "dynamic slice": (lambda S, a: S.lax.dynamic_slice(a, (0, 2), (8, 8)), [A]),
    "dynamic update": (lambda S, a, b: S.lax.dynamic_update_slice(a, b, (0, 2)), [A, ((8, 4), "x")]),
    "dynamic update of others": (lambda S, a, b: S.lax.dynamic_update_slice(a, b, (0, 2)), [A, ((8, 4),)]),
    "sort": (lambda S, a: S.jnp.sort(a, 1), [A]),
    "sort of what is cut": (lambda S, a: S.jnp.sort(a, 0), [A]),
    "argsort": (lambda S, a: S.jnp.argsort(a, 1), [A]),
    "top_k": (lambda S, a: S.lax.top_k(a, 2), [A]),
    "top_k of what is cut": (lambda S, a: S.lax.top_k(a, 2), [ROW]),
    "cumsum": (lambda S, a: S.jnp.cumsum(a, 1), [A]),
    "cumsum of what is cut": (lambda S, a: S.jnp.cumsum(a, 0), [A]),
    "tile": (lambda S, a: S.jnp.tile(a, (1, 2)), [A]),
    "fft": (lambda S, a: S.jnp.fft.fft(a, axis=1).real, [A]),
    "take": (lambda S, a: S.jnp.take(a, np.array([0, 1]), 1), [A]),
    "take of what is cut": (lambda S, a: S.jnp.take(a, np.array([0, 1]), 0), [A]),
    "get": (lambda S, a: a.at[np.array([0, 1])].get(out_sharding=S.jax.P(None, None)), [A]),
    "set": (lambda S, a: a.at[:, np.array([0, 1])].set(1.0), [A]),
    "set as said": (lambda S, a: a.at[np.array([0, 1])].set(1.0, out_sharding=S.jax.P("x", None)), [A]),
    "one_hot": (lambda S, i: S.jax.nn.one_hot(i.astype("int32"), 8), [((8,), "x")]),
    "reduce_window": (lambda S, a: S.lax.reduce_window(a, 0.0, S.lax.add, (1, 2), (1, 2), "VALID"), [A]),
    "convolution": (
        lambda S, a, k: S.lax.conv_general_dilated(a, k, (1, 1), "SAME"), [((8, 2, 4, 4), "x"), ((3, 2, 3, 3),)],
    ),
    "convolution of cut features": (
        lambda S, a, k: S.lax.conv_general_dilated(a, k, (1, 1), "SAME"), [((8, 2, 4, 4), None, "y"), ((3, 2, 3, 3),)],
    ),
    "iota as said": (lambda S: S.lax.broadcasted_iota("int32", (8, 4), 1, out_sharding=S.jax.P("x")), []),
    "zeros as said": (lambda S: (S.jnp.zeros((8, 4), out_sharding=S.jax.P("x")), S.jnp.arange(8, out_sharding=S.jax.P("y"))), []),
    "full_like": (lambda S, a: (S.jnp.zeros_like(a), S.lax.full_like(a, 2.0)), [XY]),
    "random": (lambda S: S.jax.random.uniform(S.jax.random.key(0), (8, 4), out_sharding=S.jax.P("x")), []),
    "reshard": (lambda S, a: S.jax.reshard(a, S.jax.P("y", "x")), [XY]),
    "reshard to unknown axes": (lambda S, a: S.jax.reshard(a, S.jax.P("z")), [XY]),
    "reshard to odd parts": (lambda S, a: S.jax.reshard(a, S.jax.P("x")), [((6, 4),)]),
    "a constraint that is met": (lambda S, a: S.lax.with_sharding_constraint(a, S.jax.P("x", None)), [A]),
    "a constraint that is not": (lambda S, a: S.lax.with_sharding_constraint(a, S.jax.P("y", None)), [A]),
    "out_sharding that is none": (lambda S, a: S.jnp.reshape(a, 128, out_sharding=3), [A]),
    "scan": (lambda S, a: S.lax.scan(lambda c, x: (c + x, c * 2), S.jnp.zeros_like(a[0]), a), [ROW]),
    "scan of what is cut": (lambda S, a: S.lax.scan(lambda c, x: (c, x), 0.0, a), [A]),
    "scan of another carry": (
        lambda S, a: S.lax.scan(lambda c, _: (S.jax.reshard(c, S.jax.P("y")), None), a, None, length=2), [A],
    ),
    "while": (lambda S, a: S.lax.fori_loop(0, 3, lambda i, c: c * 2, a), [XY]),
    "cond": (lambda S, a: S.lax.cond(a.sum() > 0, lambda q: q * 2, lambda q: q, a), [XY]),
    "cond of others": (
        lambda S, a: S.lax.cond(a.sum() > 0, lambda q: q * 2, lambda q: S.jax.reshard(q, S.jax.P("y")), a), [A],
    ),
    "vmap": (lambda S, a, b: S.jax.vmap(lambda u, v: u @ v)(a, b), [((8, 4, 4), "x"), ((8, 4, 4), "x")]),
    "vmap of others": (lambda S, a, b: S.jax.vmap(S.jnp.add)(a, b), [A, WHOLE]),
    "vmap over what is said": (lambda S, a: S.jax.vmap(S.jnp.sin, spmd_axis_name="x")(a), [A]),
    "vmap over something else": (lambda S, a: S.jax.vmap(S.jnp.sin, spmd_axis_name="y")(a), [A]),
    "vmap of reshard": (lambda S, a: S.jax.vmap(lambda r: S.jax.reshard(r, S.jax.P("y")))(a), [A]),
    "vmap to another axis": (lambda S, a: S.jax.vmap(S.jnp.sin, out_axes=1)(a), [A]),
    "grad": (lambda S, w, x: S.jax.grad(lambda w: S.jnp.tanh(x @ w).sum())(w), [((16, 4), None, "y"), A]),
    "grad of both": (lambda S, w, x: S.jax.grad(lambda w, x: (x @ w).sum(), (0, 1))(w, x), [((16, 4), None, "y"), A]),
    "grad of what is reduced": (
        lambda S, w, x: S.jax.grad(lambda w: S.jnp.dot(x, w).sum())(w), [((16, 4),), A],
    ),
    "jvp": (lambda S, a: S.jax.jvp(S.jnp.sin, (a,), (a,)), [XY]),
    "hvp": (lambda S, a: S.jax.grad(lambda a: S.jax.grad(lambda b: (b**3).sum())(a).sum())(a), [XY]),
    "grad of scan": (lambda S, a: S.jax.grad(lambda a: S.lax.scan(lambda c, x: (c + x, c), a[0], a)[1].sum())(a), [ROW]),
    "grad of vmap": (lambda S, a: S.jax.grad(lambda a: S.jax.vmap(lambda r: (r * r).sum())(a).sum())(a), [A]),
    "checkpoint": (lambda S, a: S.jax.grad(lambda a: S.jax.checkpoint(S.jnp.sin)(a).sum())(a), [XY]),
    "auto_axes": (lambda S, a: S.jax.sharding.auto_axes(lambda q: q @ q.T, out_sharding=S.jax.P("x"))(a), [XY]),
    "custom_jvp": (lambda S, a: S.jax.nn.relu(a), [XY]),
}  # fmt: skip
# What JAX calls internal errors or does not do, and ferrax does.
MODES = ("eager", "jit")


@pytest.mark.parametrize("name", CASES)
def test_types_of_results(name):
    function, arguments = CASES[name]

    @same
    def case(S):
        with S.jax.set_mesh(mesh_of(S)):
            given = [put(S, *one) for one in arguments]
            run = functools.partial(function, S)
            return [outcome(S, lambda: run(*given)), outcome(S, lambda: S.jax.jit(run)(*given))]

    case()


U = lambda S, a: S.jax.reshard(a, S.jax.P(unreduced={"y"}))  # noqa: E731
R = lambda S, a: S.jax.reshard(a, S.jax.P(reduced={"y"}))  # noqa: E731
SUMS = {
    "to and from": (lambda S, a: (U(S, a), S.jax.reshard(U(S, a), S.jax.P("x")), R(S, a)), [WHOLE]),
    "added": (lambda S, a: U(S, a) + U(S, a), [WHOLE]),
    "added to a number": (lambda S, a: U(S, a) + 1, [WHOLE]),
    "added to what is whole": (lambda S, a: U(S, a) + a, [WHOLE]),
    "scaled": (lambda S, a: U(S, a) * 2, [WHOLE]),
    "scaled by what is reduced": (lambda S, a: U(S, a) * R(S, a), [WHOLE]),
    "multiplied in one program": (lambda S, a: S.jax.jit(lambda u: u * u)(U(S, a)), [WHOLE]),
    "subtracted": (lambda S, a: U(S, a) - U(S, a), [WHOLE]),
    "negated": (lambda S, a: -U(S, a), [WHOLE]),
    "sin": (lambda S, a: S.jnp.sin(U(S, a)), [WHOLE]),
    "converted": (lambda S, a: U(S, a).astype("float16").astype("float32"), [WHOLE]),
    "summed": (lambda S, a: (U(S, a).sum(0), U(S, a).sum()), [WHOLE]),
    "moved": (lambda S, a: (U(S, a).T, S.lax.expand_dims(U(S, a), (1,))), [WHOLE]),
    "turned": (lambda S, a: S.lax.rev(U(S, a), (0,)), [WHOLE]),
    "joined": (lambda S, a: S.jnp.concatenate([U(S, a), U(S, a)]), [WHOLE]),
    "joined with others": (lambda S, a: S.jnp.concatenate([U(S, a), a]), [WHOLE]),
    "multiplied": (lambda S, a: U(S, a) @ a.T, [WHOLE]),
    "chosen": (lambda S, a: S.lax.select(a > 0, U(S, a), U(S, a)), [WHOLE]),
    "padded": (lambda S, a: S.lax.pad(U(S, a), 0.0, ((1, 0, 0), (0, 0, 0))), [WHOLE]),
    "reduced": (lambda S, a: (S.jnp.sin(R(S, a)), R(S, a) * R(S, a), R(S, a) * 2, R(S, a).sum(0), R(S, a).T), [WHOLE]),
    "reduced beside others": (lambda S, a: R(S, a) * a, [WHOLE]),
    "reduced and indexed": (lambda S, a: S.lax.dynamic_slice(R(S, a), (0, 0), (2, 2)), [WHOLE]),
    "sum left unreduced": (lambda S, a: S.lax.reduce_sum(a, axes=(1,), out_sharding=S.jax.P(None, unreduced={"y"})), [ROW]),
    "sum left unreduced otherwise": (
        lambda S, a: S.lax.reduce_sum(a, axes=(1,), out_sharding=S.jax.P(None, unreduced={"x"})), [ROW],
    ),
    "reshape to a sum": (lambda S, a: S.jnp.reshape(a, 128, out_sharding=S.jax.P(unreduced={"y"})), [WHOLE]),
    "gradient by what is reduced": (lambda S, a: S.jax.grad(lambda r: (r * r).sum())(R(S, a)), [WHOLE]),
    "gradient by a sum": (
        lambda S, a: S.jax.grad(lambda u: S.jax.reshard(u, S.jax.P()).sum())(U(S, a)), [WHOLE],
    ),
    "gradient of weights": (
        lambda S, w, x: S.jax.grad(lambda w: S.jnp.dot(x, w).sum())(S.jax.reshard(w, S.jax.P(reduced={"x"}))), [((16, 4),), A],
    ),
    "shown": (lambda S, a: S.jnp.zeros(len(repr(U(S, a)).split("unreduced"))), [WHOLE]),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_over_devices(name):
    function, arguments = SUMS[name]

    @same
    def case(S):
        with S.jax.set_mesh(mesh_of(S)):
            given = [put(S, *one) for one in arguments]
            run = functools.partial(function, S)
            return [outcome(S, lambda: run(*given)), outcome(S, lambda: S.jax.jit(run)(*given))]

    case()


def auto_mesh(S):
    return S.jax.make_mesh((4, 2), ("x", "y"), axis_types=(S.jax.sharding.AxisType.Auto,) * 2)


def refused(run):
    try:
        run()
    except Exception as error:
        return "ValueError" if isinstance(error, ValueError) else type(error).__name__
    return "nothing"


@same
def test_what_nobody_put_anywhere_is_on_the_mesh_in_use(S):
    x = np.arange(8.0, dtype=np.float32)
    found = []
    for mesh in (auto_mesh(S), mesh_of(S)):
        with S.jax.set_mesh(mesh):
            made = [S.jnp.ones(8) + 1, S.jnp.asarray(x) * 2, S.jax.jit(lambda a: a * 2)(x), S.jax.grad(lambda a: (a * a).sum())(S.jnp.ones(8))]
            found.append([(len(y.sharding.device_set), y.committed, S.jax.typeof(y).str_short(True)) for y in made])
            found.append([S.jax.typeof(x + S.jnp.ones(8)).str_short(True) for x in [S.jax.device_put(x, S.jax.P("x"))]])
    return found, len(S.jnp.ones(8).sharding.device_set)


@same
def test_what_jitted_functions_refuse_of_devices(S):
    jit, put_ = S.jax.jit, S.jax.device_put
    mesh = auto_mesh(S)
    on = lambda *spec: S.jax.NamedSharding(mesh, S.jax.P(*spec))  # noqa: E731
    x = np.ones((8, 8), np.float32)
    first, over = put_(x, S.jax.devices()[1]), put_(x, on("x"))
    constrained = lambda a: S.lax.with_sharding_constraint(a, on("y"))  # noqa: E731
    turned = S.jax.sharding.Mesh(np.array(S.jax.devices())[::-1].reshape(4, 2), ("x", "y"))
    return [
        refused(lambda: jit(lambda a: a, in_shardings=on("x"))(first)),
        refused(lambda: jit(lambda a: a, in_shardings=on("y"))(over)),
        refused(lambda: jit(constrained)(first)),
        refused(lambda: jit(lambda a: jit(lambda b: b, in_shardings=on("x"))(a))(first)),
        refused(lambda: S.lax.with_sharding_constraint(over, S.jax.NamedSharding(turned, S.jax.P("x")))),
        refused(lambda: S.jnp.array(first, device=S.jax.devices()[0])),
        refused(lambda: jit(lambda a: a).lower(over).compile()(put_(x, on("y")))),
        refused(lambda: jit(lambda a: a, out_shardings={"a": [None]})({"a": x})),
        refused(lambda: S.jax.vmap(constrained, spmd_axis_name="y")(x[None])),
        refused(lambda: jit(lambda a: S.lax.with_sharding_constraint(a, on("x")))(np.ones(3))),
    ]


@same
def test_stages_tell_shardings(S):
    mesh = auto_mesh(S)
    x = S.jax.device_put(np.ones((8, 8), np.float32), S.jax.NamedSharding(mesh, S.jax.P("x")))
    compiled = S.jax.jit(lambda a, b: (a * 2, b.T)).lower(x, np.ones((4, 4), np.float32)).compile()
    ins, _ = compiled.input_shardings
    return [str(s.spec) for s in ins], [str(s.spec) for s in compiled.output_shardings], str(compiled.out_info[0].sharding.spec)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@same
def test_pjit_runs_over_the_mesh_of_with(S):
    import importlib

    pjit = importlib.import_module(f"{S.jax.__name__}.experimental.pjit").pjit
    x = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    elsewhere = S.jax.device_put(x, S.jax.devices()[1])
    with auto_mesh(S):
        results = [
            pjit(lambda a: a * 2)(x), pjit(lambda a: a * 2, in_shardings=S.jax.P("x"), out_shardings=None)(x),
            pjit(lambda a: a.T, in_shardings=None, out_shardings=S.jax.P("y"))(x),
        ]  # fmt: skip
        error = refused(lambda: pjit(lambda a: a)(elsewhere))
    return [(len(r.sharding.device_set), r.addressable_shards[0].data.shape, np.asarray(r)) for r in results], error
