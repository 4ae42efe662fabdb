"""Collectives in the table of `test_conformance`, over the first axis of an array."""

import numpy as np
from conformance_table import BF16, add, data

DTYPES = (np.float32, np.float64, BF16, np.float16, np.int8, np.uint32, np.complex64)
LANES = 3
ROTATION = [(0, 1), (1, 2), (2, 0)]


def over_lanes(lane):
    return lambda S, x: S.jax.vmap(lambda x: lane(S, x), axis_name="lanes")(x)


def first_lane(S, x):
    """By `pbroadcast`, which has no batching rule in the reference library."""
    if S.name == "jax":
        return S.jnp.broadcast_to(x[1], x.shape)
    return over_lanes(lambda S, x: S.lax.pbroadcast(x, "lanes", 1))(S, x)


def cases(*shapes, dtypes=DTYPES):
    return [(data((LANES, *shape), dtype),) for shape in shapes for dtype in dtypes]


VECTORS = ((4,), (), (0,), (2, 3))
SQUARES = ((3, 3), (3, 2), (3, 0))
SMOOTH = (np.linspace(-1.3, 2.2, 9).reshape(3, 3),)

for name, lane, shapes in (
    ("psum", lambda S, x: S.lax.psum(x, "lanes"), VECTORS),
    ("pmax", lambda S, x: S.lax.pmax(x, "lanes"), VECTORS),
    ("pmin", lambda S, x: S.lax.pmin(x, "lanes"), VECTORS),
    ("ppermute", lambda S, x: S.lax.ppermute(x, "lanes", ROTATION), VECTORS),
    ("axis_index", lambda S, x: x + S.lax.axis_index("lanes").astype(x.dtype), VECTORS),
    ("all_gather", lambda S, x: S.lax.all_gather(x, "lanes", axis=x.ndim), VECTORS),
    ("reduce_scatter", lambda S, x: S.lax.psum_scatter(x, "lanes", tiled=True), SQUARES),
    ("all_to_all", lambda S, x: S.lax.all_to_all(x, "lanes", 0, 1), SQUARES),
):
    add(name, over_lanes(lane), cases(*shapes), SMOOTH if shapes is VECTORS else (np.stack([SMOOTH[0]] * 3),))

add("pbroadcast", first_lane, cases(*VECTORS), SMOOTH)


def over_devices(S, body, spec):
    """A function that three devices of a mesh run, each on a row. As one program: JAX has some casts there alone."""
    mesh = S.jax.sharding.Mesh(np.array(S.jax.devices()[:LANES]), ("rows",))
    return S.jax.jit(S.jax.shard_map(body, mesh=mesh, in_specs=S.jax.P("rows"), out_specs=spec(S)))


def cast(S, x, to):
    return S.lax.pcast(x, "rows", to=to)


for name, body, spec in (
    ("psum_invariant", lambda S, x: S.lax.psum(x, "rows"), lambda S: S.jax.P()),
    ("pvary", lambda S, x: x * S.jnp.ones((1,) * x.ndim, x.dtype), lambda S: S.jax.P("rows")),
    (
        "all_gather_invariant",
        lambda S, x: S.lax.all_gather(x, "rows", axis=x.ndim, to="invarying"),
        lambda S: S.jax.P(),
    ),
    ("vary_unreduced_cast", lambda S, x: S.lax.psum(cast(S, x, "unreduced"), "rows"), lambda S: S.jax.P()),
    ("unreduced_psum", lambda S, x: S.lax.psum(cast(S, x + x, "unreduced"), "rows"), lambda S: S.jax.P()),
    (
        "unreduced_reduce_scatter",
        lambda S, x: S.lax.psum_scatter(
            cast(S, S.jnp.stack([x] * LANES), "unreduced"), "rows", scatter_dimension=0, tiled=True
        )[0],
        lambda S: S.jax.P("rows"),
    ),
    (
        "all_gather_reduced",
        lambda S, x: cast(S, S.lax.all_gather(x, "rows", to="reduced"), "varying").sum(0),
        lambda S: S.jax.P("rows"),
    ),
    (
        "reduced_vary_cast",
        lambda S, x: x * cast(S, cast(S, S.jnp.ones((1,) * x.ndim, x.dtype), "reduced"), "varying"),
        lambda S: S.jax.P("rows"),
    ),
    (
        "preduced",
        lambda S, x: x * cast(S, cast(S, S.lax.psum(x, "rows"), "reduced"), "varying"),
        lambda S: S.jax.P("rows"),
    ),
):
    run = lambda S, x, body=body, spec=spec: over_devices(S, lambda x: body(S, x), spec)(x)  # noqa: E731
    add(name, run, cases(*VECTORS), SMOOTH)
