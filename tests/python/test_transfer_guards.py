"""What transfer guards let through over several devices, beside JAX's, and what is refused beside them."""

import warnings

import numpy as np
import pytest
from oracle import attempt, same
from test_many_devices import mesh_of
from test_mesh import outcomes

LEVELS = ["log", "disallow", "log_explicit", "disallow_explicit"]
X = np.arange(8, dtype=np.float32)


def cases(S):
    mesh, P, devices = mesh_of(S, (8,), ("x",)), S.jax.P, S.jax.devices()
    over = S.jax.NamedSharding(mesh, P("x"))
    here, there, cut = S.jnp.asarray(X), S.jax.device_put(X, devices[1]), S.jax.device_put(X, over)
    jit = S.jax.jit
    in_place = jit(lambda x: x + x, in_shardings=over)
    return {
        "put a NumPy array": lambda: S.jax.device_put(X),
        "put a NumPy array there": lambda: S.jax.device_put(X, over),
        "put there": lambda: S.jax.device_put(here, devices[1]),
        "put over a mesh": lambda: S.jax.device_put(here, over),
        "put back": lambda: S.jax.device_put(there, devices[0]),
        "put where it is": lambda: S.jax.device_put(cut, over),
        "a NumPy array": lambda: S.jnp.sin(X),
        "ones": lambda: S.jnp.ones(3),
        "zeros": lambda: S.jnp.zeros((2, 2)),
        "full": lambda: S.jnp.full(3, 1.5),
        "lax.full": lambda: S.lax.full((3,), 1.5),
        "arange": lambda: S.jnp.arange(5),
        "jit a NumPy array": lambda: jit(lambda x: x + x)(X),
        "jit a number": lambda: jit(lambda x: x + x)(1.0),
        "jit with ones": lambda: jit(lambda x: x + S.jnp.ones(8))(here),
        "in_shardings": lambda: in_place(here),
        "in_shardings of what is there": lambda: in_place(cut),
        "in_shardings of a NumPy array": lambda: in_place(X),
        "pmap": lambda: S.jax.pmap(lambda x: x + x)(here),
        "computing": lambda: (here + here, cut + cut, cut.sum(), there * there),
        "reading": lambda: (np.asarray(cut), S.jax.device_get(cut), str(cut)),
    }


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("direction", ["host_to_device", "device_to_device", "device_to_host"])
def test_what_is_refused(direction, level):
    @same
    def case(S):
        table = cases(S)
        for run in table.values():
            run()  # what is compiled is not what is guarded
        found = {}
        with getattr(S.jax, f"transfer_guard_{direction}")(level):
            for name, run in table.items():
                found[name] = getattr(attempt(lambda S, run=run: (run(), None)[1], S), "name", "passes")
        return found

    case()


@same
def test_functions_of_a_device(S):
    devices = S.jax.devices()
    here, there = S.jnp.asarray(X), S.jax.device_put(X, devices[3])
    found = []
    for options in ({"device": devices[0]}, {"device": devices[5]}, {"backend": "cpu"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            fs = [S.jax.jit(f, **options) for f in (lambda x: x + 1, lambda x: S.lax.sin(3.0), lambda x: x)]
        for f in fs:
            found += [(str(y.sharding), y.committed, np.asarray(y)) for y in (f(here), f(there), f(X))]
    return found


@same
def test_full_like_stays_where_its_like_is(S):
    devices, P = S.jax.devices(), S.jax.P
    there = S.jnp.arange(8.0, device=devices[1])
    cut, whole = (S.jax.device_put(X, S.jax.NamedSharding(mesh_of(S, (8,), ("x",)), P(*spec))) for spec in (("x",), ()))
    made = [S.lax.full_like(x, 1, shape=shape) for x in (there, cut, whole, S.jnp.ones(8)) for shape in (None, (3,), ())]
    made += [S.jnp.zeros_like(there, shape=(2,)), S.jnp.full_like(there, 2, device=devices[2])]
    return [(np.asarray(x), str(x.sharding), x.committed) for x in made]


@same
def test_results_under_a_mesh_in_use(S):
    """What nobody put anywhere is on the mesh, whole; what `device_put` was told no place for is not."""
    with S.jax.set_mesh(mesh_of(S)):
        made = [S.jnp.ones(8), S.jnp.array([1, 2]), S.jax.jit(lambda x: x)(X), S.jnp.asarray(X) + 1, S.jax.device_put(X)]
        made += [S.jax.random.uniform(S.jax.random.key(0), (2,)), S.jnp.zeros(3, "uint16")]
    made += [S.jnp.ones(8), S.jnp.zeros(3, "uint16")]
    return [(np.asarray(x), str(x.sharding), x.committed) for x in made]


@same
def test_rows_and_pointers_of_divided_arrays(S):
    P = S.jax.P
    cut, whole = (S.jax.device_put(np.stack([X, X]), S.jax.NamedSharding(mesh_of(S), P(*spec))) for spec in ((None, "x"), ()))
    return [(str(row.sharding), row.committed, np.asarray(row)) for x in (cut, whole) for row in x], outcomes(
        S, lambda: cut.unsafe_buffer_pointer(), lambda: type(cut.addressable_data(0).unsafe_buffer_pointer()).__name__
    )


@same
def test_donated_arguments_that_are_copied_to_all_devices(S):
    P, found = S.jax.P, []
    for spec in ((), ("x",)):
        x = S.jnp.arange(8.0)
        f = S.jax.jit(lambda x: x * 2, in_shardings=S.jax.NamedSharding(mesh_of(S), P(*spec)), donate_argnums=0)
        found.append((np.asarray(f(x)), x.is_deleted()))
        y = S.jnp.arange(8.0)
        if spec:
            found.append((np.asarray(S.jax.pmap(lambda x: x * 2, donate_argnums=0)(y)), y.is_deleted()))
    return found


@same
def test_pmap_takes_arrays_where_it_needs_them(S):
    P, devices = S.jax.P, S.jax.devices()
    mapped = S.jax.pmap(lambda x: x * 2)
    lowered = mapped.lower(X)
    (given,) = S.jax.tree.leaves(lowered.compile().input_shardings)
    longer = S.jax.pmap(lambda x: x * 2, devices=devices[::-1])(X[:4])
    return (
        str(given.spec), str(mapped(X).sharding), [d.id for d in longer.sharding._device_assignment],
        outcomes(
            S,
            lambda: mapped(S.jax.device_put(X, S.jax.NamedSharding(mesh_of(S, (8,), ("a",)), P()))),
            lambda: mapped(S.jax.device_put(X, devices[3])),
            lambda: np.asarray(mapped(S.jax.device_put(X, S.jax.NamedSharding(mesh_of(S, (8,), ("a",)), P("a"))))),
            lambda: np.asarray(mapped(mapped(X))),
        ),
    )  # fmt: skip


@same
def test_layouts_that_are_left_open(S):
    from oracle import module

    layout = module(S, "experimental.layout")
    auto = layout.Format(layout.Layout.AUTO)
    sharding = S.jax.NamedSharding(mesh_of(S), S.jax.P("x"))
    open_there = layout.Format(layout.Layout.AUTO, sharding)
    jit = S.jax.jit
    return outcomes(
        S,
        lambda: S.jax.ShapeDtypeStruct((8,), np.float32, sharding=auto),
        lambda: S.jax.make_array_from_callback((8,), open_there, lambda index: X[index]),
        lambda: S.jax.make_array_from_callback((8,), layout.Format(None, None), lambda index: X[index]),
        lambda: jit(lambda x: x * 2, donate_argnums=0, in_shardings=auto)(S.jnp.asarray(X)),
        lambda: jit(lambda x: x * 2, donate_argnums=0, out_shardings=auto)(S.jnp.asarray(X)),
        lambda: np.asarray(jit(lambda x: x * 2, out_shardings=auto)(S.jnp.asarray(X))),
    )
