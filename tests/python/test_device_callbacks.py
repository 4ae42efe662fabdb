"""Python that functions of a mesh call back: once for each device, beside JAX's."""

import functools

import numpy as np
import pytest
from oracle import module, same
from test_many_devices import mesh_of
from test_mesh import outcomes

X = np.arange(16, dtype=np.float32).reshape(8, 2)


class Seen:
    """What callbacks were given, which gives arguments back twice as large."""

    def __init__(self, S):
        self.S, self.calls = S, []

    def __call__(self, *arrays):
        self.calls.append([np.asarray(x).tolist() for x in arrays])
        return 2 * np.asarray(arrays[0]) if arrays else np.float32(0)

    def sorted(self):
        self.S.jax.effects_barrier()
        return sorted(map(repr, self.calls))


def sharded(S, f, spec=("x",), **options):
    P = S.jax.P
    return S.jax.shard_map(f, mesh=mesh_of(S, (4,), ("x",)), in_specs=P(*spec), out_specs=P(*spec), **options)


def kinds(S):
    io = module(S, "experimental").io_callback
    return [S.jax.pure_callback, io, lambda *args: io(*args, ordered=True)]


def like(S, x):
    return S.jax.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.parametrize("kind", range(3))
def test_each_device_calls_with_its_part(kind):
    @same
    def case(S):
        call, found = kinds(S)[kind], []
        for run in (S.jax.pmap, lambda f: S.jax.jit(sharded(S, f)), lambda f: sharded(S, f)):
            seen = Seen(S)
            f = functools.partial(lambda seen, x: call(seen, like(S, x), x), seen)
            found += [np.asarray(run(f)(X[:4] if run is S.jax.pmap else X)), seen.sorted()]
        return found

    case()


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all", "legacy_vectorized"])
def test_the_method_of_vmap_is_that_of_lanes_on_a_device(method):
    @same
    def case(S):
        seen = Seen(S)

        def call(x):
            return S.jax.pure_callback(seen, like(S, x), x, vmap_method=method)

        return np.asarray(S.jax.pmap(call)(X[:4])), np.asarray(S.jax.pmap(S.jax.vmap(call))(X[:4])), seen.sorted()

    case()


@same
def test_what_is_the_same_on_all_devices_is_still_called_by_each(S):
    io = module(S, "experimental").io_callback
    found = []
    for call in (
        lambda seen, x: io(seen, None),
        lambda seen, x: io(seen, None, S.jnp.float32(3)),
        lambda seen, x: S.jax.debug.callback(seen),
        lambda seen, x: S.jax.debug.callback(seen, S.jnp.float32(3), 4.0),
    ):
        seen = Seen(S)
        noting = lambda *args, seen=seen: (seen(*args), None)[1]  # noqa: E731
        S.jax.pmap(lambda x, call=call, noting=noting: (call(noting, x), x)[1])(X[:4])
        found.append(seen.sorted())
    return found


def test_calls_are_in_the_order_of_the_mesh():
    import oracle

    S, seen = oracle.FERRAX, Seen(oracle.FERRAX)
    mesh, P = mesh_of(S, (2, 2)), S.jax.P

    def body(x):
        S.jax.debug.callback(lambda *at: seen.calls.append(list(map(int, at))), S.lax.axis_index("x"), S.lax.axis_index("y"))
        return x

    S.jax.jit(S.jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(X)
    assert seen.calls == [[0, 0], [0, 1], [1, 0], [1, 1]]


@same
def test_prints_of_devices(S):
    lines = []
    vmapped = S.jax.vmap(lambda x: (S.jax.debug.callback(lambda v: lines.append(float(v)), x), x)[1])
    S.jax.jit(sharded(S, vmapped))(X[:, 0])
    S.jax.effects_barrier()

    def ordered(x):
        S.jax.debug.print("{}", x, ordered=True)
        return x

    return sorted(lines), outcomes(S, lambda: S.jax.pmap(ordered)(X[:4]), lambda: S.jax.jit(sharded(S, ordered))(X))


@same
def test_a_batch_of_ordered_calls_has_no_order(S):
    io = module(S, "experimental").io_callback
    f = S.jax.vmap(lambda x: io(lambda x: x, like(S, x), x, ordered=True))
    return outcomes(S, lambda: f(X), lambda: S.jax.jit(sharded(S, f))(X))
