"""Slices of any sizes that devices exchange, and sends in two halves, beside NumPy's reference: JAX runs neither on
processors. What it says while it traces is compared with it."""

import numpy as np
import pytest
from oracle import FERRAX, compare, same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.extend.core import Token

P = ferrax.P
AUTO = ferrax.sharding.AxisType.Auto
F32 = np.float32


def mesh_of(S, *sizes):
    auto = (S.jax.sharding.AxisType.Auto,) * len(sizes)
    return S.jax.make_mesh(sizes, ("i", "j", "k")[: len(sizes)], axis_types=auto)


def mesh(*sizes):
    return ferrax.make_mesh(sizes, ("i", "j", "k")[: len(sizes)], axis_types=(AUTO,) * len(sizes))


def exchanged(operand, output, numbers, groups=None):
    """What each lane has afterwards, of arrays with an axis of lanes first, slice by slice."""
    result = np.array(output)
    for group in groups or [range(len(operand))]:
        each = numbers[0].shape[1] // len(group)
        for sender in group:
            start, size, to, _ = (x[sender] for x in numbers)
            for i in range(len(start)):
                rows = operand[sender, start[i] : start[i] + size[i]]
                result[group[i // each], to[i] : to[i] + size[i]] = rows
    return result


def layout(lanes, each, rng, groups=None, padding=1):
    """Offsets and sizes by which slices lie apart everywhere, and how many rows operand and output need."""
    groups = groups or [list(range(lanes))]
    members = len(groups[0])
    size = rng.integers(0, 4, (lanes, members * each))
    start = np.cumsum(size + padding, 1) - size
    received, to = np.zeros_like(size), np.zeros_like(size)
    for group in groups:
        for place, lane in enumerate(group):
            offset = 1
            for source, sender in enumerate(group):
                for i in range(each):
                    received[lane, source * each + i] = size[sender, place * each + i]
                    to[sender, place * each + i] = offset
                    offset += size[sender, place * each + i] + padding
    rows = (start + size).max() + 1, received.sum(1).max() + (padding * members * each) + 2
    return [x.astype(np.int32) for x in (start, size, to, received)], [int(n) for n in rows]


def case(lanes, each=1, rest=(2,), dtype=F32, seed=0, groups=None):
    rng = np.random.default_rng(seed)
    numbers, (m, k) = layout(lanes, each, rng, groups)
    operand, output = (rng.integers(-99, 99, (lanes, n, *rest)).astype(dtype) for n in (m, k))
    return operand, output, numbers


def exchange(names="i", **options):
    return lambda operand, output, *numbers: lax.ragged_all_to_all(
        operand, output, *numbers, axis_name=names, **options
    )


def over_devices(f, where, names=("i",), **options):
    """`f` of lanes as one of arrays with an axis of lanes first."""
    spec = P(names)

    def lane(*args):
        return f(*(x[0] for x in args))[None]

    return ferrax.shard_map(lane, mesh=where, in_specs=spec, out_specs=spec, **options)


CHECKED = pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])


@CHECKED
@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize("rest", [(), (3,), (2, 2)], ids=str)
def test_slices_arrive_where_their_senders_say(rest, each, checked):
    operand, output, numbers = case(4, each, rest, seed=each)
    run = over_devices(exchange(), mesh(4), check_vma=checked)
    wanted = exchanged(operand, output, numbers)
    assert not np.array_equal(wanted, output)
    compare(run(operand, output, *numbers), wanted)
    compare(ferrax.jit(run)(operand, output, *numbers), wanted)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "bfloat16", "complex64"])
def test_dtypes(dtype):
    operand, output, numbers = case(4, 2)
    operand, output = (jnp.asarray(x % 5).astype(dtype) for x in (operand, output))
    got = over_devices(exchange(), mesh(4))(operand, output, *numbers)
    assert got.dtype == output.dtype
    compare(got, exchanged(np.asarray(operand), np.asarray(output), numbers))


def test_keys():
    operand, output, numbers = case(4, 2, ())
    keys = [ferrax.random.split(ferrax.random.key(i), x.shape) for i, x in enumerate((operand, output))]
    got = over_devices(exchange(), mesh(4))(*keys, *numbers)
    data = [np.asarray(ferrax.random.key_data(x)) for x in (*keys, got)]
    compare(data[2], exchanged(*data[:2], numbers))


@pytest.mark.parametrize("dtypes", [("int8", "uint8", "int16", "uint32"), ("int64",) * 4], ids=str)
def test_offsets_and_sizes_of_any_integers(dtypes):
    operand, output, numbers = case(4, 2)
    with ferrax.enable_x64(True):
        given = [jnp.asarray(x, dtype) for x, dtype in zip(numbers, dtypes)]
        compare(over_devices(exchange(), mesh(4))(operand, output, *given), exchanged(operand, output, numbers))


@CHECKED
def test_over_several_axes_of_a_mesh(checked):
    where = mesh(2, 4)
    run = over_devices(exchange(("i", "j")), where, ("i", "j"), check_vma=checked)
    operand, output, numbers = case(8, 2)
    compare(run(operand, output, *numbers), exchanged(operand, output, numbers))
    # Along the major axis alone lanes with the same place on the other one talk, along the minor one neighbours.
    apart, together = [[j, j + 4] for j in range(4)], [[0, 1, 2, 3], [4, 5, 6, 7]]
    for name, groups in (("i", apart), ("j", together)):
        operand, output, numbers = case(8, 2, groups=groups)
        run = over_devices(exchange(name), where, ("i", "j"), check_vma=checked)
        compare(run(operand, output, *numbers), exchanged(operand, output, numbers, groups))


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3]], [[3, 0], [1, 2]], [[2, 0, 3, 1]], [[0], [1], [2], [3]]], ids=str)
def test_groups_of_devices(groups):
    operand, output, numbers = case(4, 2, groups=groups)
    wanted = exchanged(operand, output, numbers, groups)
    options = {"axis_index_groups": groups}
    for checked in (True, False):
        run = over_devices(exchange(**options), mesh(4), check_vma=checked)
        compare(run(operand, output, *numbers), wanted)
        run = over_devices(exchange(("i", "j"), **options), mesh(2, 2), ("i", "j"), check_vma=checked)
        compare(run(operand, output, *numbers), wanted)


def test_lanes_of_pmap_and_of_vmap():
    operand, output, numbers = case(4, 2)
    wanted = exchanged(operand, output, numbers)
    compare(ferrax.pmap(exchange(), axis_name="i")(operand, output, *numbers), wanted)
    compare(ferrax.vmap(exchange(), axis_name="i")(operand, output, *numbers), wanted)
    same_output = ferrax.vmap(exchange(), (0, None, *(0,) * 4), axis_name="i")(operand, output[0], *numbers)
    compare(same_output, exchanged(operand, np.stack([output[0]] * 4), numbers))
    operand, output, numbers = case(6, 1)
    grid = [x.reshape(2, 3, *x.shape[1:]) for x in (operand, output, *numbers)]
    both = ferrax.vmap(ferrax.vmap(exchange(("i", "j")), axis_name="j"), axis_name="i")(*grid)
    compare(both.reshape(output.shape), exchanged(operand, output, numbers))


@pytest.mark.parametrize("place", [0, 1, -1])
def test_batches_within_devices(place):
    """Some of the operands are in a batch, with slices of their own or the same."""
    cases = [case(4, 2, (3,), seed=seed) for seed in range(3)]
    m, k = (max(c[i].shape[1] for c in cases) for i in (0, 1))
    grown = [
        (np.pad(x, ((0, 0), (0, m - x.shape[1]), (0, 0))), np.pad(o, ((0, 0), (0, k - o.shape[1]), (0, 0))), n)
        for x, o, n in cases
    ]
    wanted = np.stack([exchanged(*c) for c in grown])
    axes = (place,) * 2
    batched = ferrax.vmap(exchange(), (*axes, *(0,) * 4), 0)
    stacked = [
        np.stack([c[i] for c in grown], place if place < 0 else place + 1) for i in (0, 1)
    ] + [np.stack([c[2][i] for c in grown], 1) for i in range(4)]
    got = over_devices(batched, mesh(4))(*stacked)
    compare(np.moveaxis(np.asarray(got), 1, 0), wanted)
    operand, output, numbers = grown[0]
    shared = ferrax.vmap(exchange(), (0, *(None,) * 5))
    got = over_devices(shared, mesh(4))(np.stack([operand, 2 * operand], 1), output, *numbers)
    compare(got[:, 0], exchanged(operand, output, numbers))
    compare(got[:, 1], exchanged(2 * operand, output, numbers))


def test_what_is_the_same_on_all_devices():
    """Types say so of the output, or of all operands: the result differs, and cotangents are summed."""
    numbers, (m, k) = layout(4, 1, np.random.default_rng(3))
    operand, output = np.random.default_rng(4).normal(size=(4, m)).astype(F32), np.arange(k, dtype=F32)
    specs = (P("i"), P(), *(P("i"),) * 4)

    def lane(x, output, *numbers):
        return exchange()(x[0], output, *(n[0] for n in numbers))[None]

    run = ferrax.shard_map(lane, mesh=mesh(4), in_specs=specs, out_specs=P("i"))
    wanted = exchanged(operand, np.stack([output] * 4), numbers)
    compare(run(operand, output, *numbers), wanted)
    kept = exchanged(np.zeros_like(operand), np.ones((4, k), F32), numbers)
    compare(ferrax.grad(lambda output: run(operand, output, *numbers).sum())(output), kept.sum(0))

    same = [jnp.array([0, 2, 3, 3]), jnp.array([2, 1, 0, 1])]
    all_same = ferrax.shard_map(
        lambda x: exchange()(x, jnp.zeros(8), *same, jnp.array([0, 0, 0, 0]), jnp.array([2, 2, 2, 2])),
        mesh=mesh(4), in_specs=P(), out_specs=P("i"),
    )  # fmt: skip
    compare(all_same(jnp.arange(1.0, 5.0)).reshape(4, 8)[:, :2], np.array([[1, 2], [3, 0], [0, 0], [4, 0]], F32))


def test_slices_that_overlap_or_do_not_fit():
    operand = np.arange(1, 13, dtype=F32).reshape(2, 6)
    output = -np.ones((2, 4), F32)
    # Both lanes write rows 1 and 2 of both; lane 1 is the later one. Lane 1 also sends beyond the end.
    numbers = [np.array(x, np.int32) for x in ([[0, 2], [4, 1]], [[2, 2], [2, 2]], [[1, 1], [2, 3]], [[2, 2], [2, 2]])]
    run = over_devices(exchange(), mesh(2))
    compare(run(operand, output, *numbers), np.array([[-1, 1, 11, 12], [-1, 3, 4, 8]], F32))
    gradient = ferrax.grad(lambda x, output: run(x, output, *numbers).sum(), (0, 1))(operand, output)
    compare(gradient[0], np.array([[1, 0, 1, 1, 0, 0], [0, 1, 0, 0, 1, 1]], F32))
    compare(gradient[1], np.array([[1, 0, 0, 0], [1, 0, 0, 0]], F32))
    # Offsets before and behind the rows that there are, and sizes beyond them, touch nothing else.
    wild = [np.array([[2**31 - 9, -9], [0, 0]], np.int32), np.array([[1, 1], [2**31 - 1, 0]], np.int32)]
    got = run(operand, output, *wild, np.array([[0, 9], [-5, 0]], np.int32), wild[1])
    assert set(np.asarray(got).ravel()) <= {-1.0, *range(1, 13)}


def test_arrays_without_rows():
    zeros = [np.zeros((2, 2), np.int32)] * 4
    run = over_devices(exchange(), mesh(2))
    output = np.ones((2, 3), F32)
    compare(run(np.zeros((2, 0), F32), output, *zeros), output)
    compare(run(output, np.zeros((2, 0), F32), *zeros), np.zeros((2, 0), F32))
    compare(run(np.ones((2, 3, 0), F32), np.ones((2, 2, 0), F32), *zeros), np.zeros((2, 2, 0), F32))


def cotangents(cotangent, numbers, m, groups=None):
    """Of a sum of the results times `cotangent`, by the operand and the output, where slices lie apart."""
    operand = np.zeros((len(cotangent), m, *cotangent.shape[2:]))
    output = exchanged(np.zeros_like(operand), cotangent, numbers, groups)
    for group in groups or [range(len(cotangent))]:
        each = numbers[0].shape[1] // len(group)
        for sender in group:
            start, size, to, _ = (x[sender] for x in numbers)
            for i in range(len(start)):
                rows = cotangent[group[i // each], to[i] : to[i] + size[i]]
                operand[sender, start[i] : start[i] + size[i]] += rows
    return operand, output


MAPPED = {
    "checked": lambda groups: over_devices(exchange(axis_index_groups=groups), mesh(4)),
    "unchecked": lambda groups: over_devices(exchange(axis_index_groups=groups), mesh(4), check_vma=False),
    "pmap": lambda groups: ferrax.pmap(exchange(axis_index_groups=groups), axis_name="i"),
    "vmap": lambda groups: ferrax.vmap(exchange(axis_index_groups=groups), axis_name="i"),
}


GROUPS = [[3, 0], [1, 2]]


@pytest.mark.parametrize(
    "name, groups", [*((name, None) for name in MAPPED), *((name, GROUPS) for name in MAPPED if name != "vmap")]
)
def test_derivatives(name, groups):
    operand, output, numbers = case(4, 2, groups=groups)
    operand, output = operand / 50, output / 50
    run = MAPPED[name](groups)
    rng = np.random.default_rng(7)
    dx, do, ct = (rng.normal(size=x.shape).astype(F32) for x in (operand, output, output))
    f = lambda x, output: run(x, output, *numbers)  # noqa: E731
    primal, tangent = ferrax.jvp(f, (operand, output), (dx, do))
    compare(primal, exchanged(operand, output, numbers, groups))
    compare(tangent, exchanged(dx, do, numbers, groups))
    wanted = [x.astype(F32) for x in cotangents(ct, numbers, operand.shape[1], groups)]
    compare(ferrax.vjp(f, operand, output)[1](ct), tuple(wanted))
    compare(ferrax.linear_transpose(f, operand, output)(ct), tuple(wanted))

    # Of the sum of sines of the results: the cotangent is their cosine, and its derivative minus their sine.
    loss = lambda x, output: jnp.sin(f(x, output)).sum()  # noqa: E731
    result = np.float64(exchanged(operand, output, numbers, groups))
    first = cotangents(np.cos(result), numbers, operand.shape[1], groups)
    moved = np.float64(exchanged(dx, do, numbers, groups))
    second = cotangents(-np.sin(result) * moved, numbers, operand.shape[1], groups)
    for order in (lambda g: g, ferrax.jit):
        slope = order(ferrax.grad(loss, (0, 1)))
        got, curved = ferrax.jvp(slope, (operand, output), (dx, do))
        along = lambda *at, slope=slope: sum((a * b).sum() for a, b in zip(slope(*at), (dx, do)))  # noqa: E731
        product = ferrax.grad(along, (0, 1))(operand, output)
        compare(got, tuple(x.astype(F32) for x in first))
        for each in (curved, product):
            compare(each, tuple(x.astype(F32) for x in second))


def test_derivatives_and_differences():
    operand, output, numbers = case(4, 1, (), np.float64)
    rng = np.random.default_rng(5)
    at = operand / 50, output / 50
    along = [rng.normal(size=x.shape) for x in at]
    f = lambda x, o: (np.sin(exchanged(x * x, np.cos(o), numbers)) ** 2).sum()  # noqa: E731
    line = lambda t: f(*(x + t * d for x, d in zip(at, along)))  # noqa: E731
    step = 1e-3
    values = [line(step * k) for k in range(-2, 3)]
    slope = np.dot(values, [1, -8, 0, 8, -1]) / (12 * step)
    curve = np.dot(values, [-1, 16, -30, 16, -1]) / (12 * step**2)
    with ferrax.enable_x64(True):
        run = over_devices(exchange(), mesh(4))
        g = lambda x, o: (jnp.sin(run(x * x, jnp.cos(o), *numbers)) ** 2).sum()  # noqa: E731
        gradient, moved = ferrax.jvp(ferrax.grad(g, (0, 1)), at, tuple(along))
    for got, wanted, bound in ((gradient, slope, 1e-8), (moved, curve, 1e-6)):
        total = sum((np.asarray(a) * d).sum() for a, d in zip(got, along, strict=True))
        np.testing.assert_allclose(total, wanted, rtol=bound)


@CHECKED
def test_in_loops_branches_and_checkpoints(checked):
    operand, _, numbers = case(4, 1, (2,))
    x = operand / 50
    output = np.zeros_like(x)

    def lane(x, output, *numbers):
        step = lambda x, _: (exchange()(x, output, *numbers), x)  # noqa: E731
        x = lax.fori_loop(0, 1, lambda _, x: step(x, None)[0], x)
        x, seen = lax.scan(step, x, None, length=2)
        many = lax.psum(jnp.float32(1), "i") > 3
        return lax.cond(many, lambda x: exchange()(x, output, *numbers), lambda x: 0 * x, x), seen

    run = over_devices(lambda *args: lane(*args)[0], mesh(4), check_vma=checked)
    wanted = x
    for _ in range(4):
        wanted = exchanged(wanted, output, numbers)
    compare(run(x, output, *numbers), wanted)
    again = over_devices(ferrax.checkpoint(lambda *args: lane(*args)[0]), mesh(4), check_vma=checked)
    loss = lambda f: lambda x: (f(x, output, *numbers) ** 2).sum()  # noqa: E731
    compare(ferrax.grad(loss(again))(x), ferrax.grad(lambda x: 0 * x.sum() + (run(x, output, *numbers) ** 2).sum())(x))
    ct = 2 * np.float64(wanted)
    for _ in range(4):
        ct = cotangents(ct, numbers, x.shape[1])[0]
    compare(ferrax.grad(loss(again))(x), ct.astype(F32))


def traced(S, change=lambda *args: args, where=(4,), **options):
    """The type of a result in a function that is traced over a mesh, of arguments that are changed before."""
    operand, output, numbers = case(4, 1)
    given = change(operand[0], output[0], *(x[0] for x in numbers))
    options = {"axis_name": "i", **options}
    out = []

    def lane():
        out.append(S.lax.ragged_all_to_all(*map(S.jnp.asarray, given), **options))
        return S.jnp.zeros(())

    S.jax.make_jaxpr(S.jax.shard_map(lane, mesh=mesh_of(S, *where), in_specs=(), out_specs=S.jax.P()))()
    return str(out[0].dtype), out[0].shape


TRACED = {
    "fits": {},
    "tuple of names": {"axis_name": ("i",)},
    "several axes": {"axis_name": ("i", "j"), "where": (2, 2)},
    "groups": {"axis_index_groups": [[0, 1, 2, 3]]},
    "short offsets": {"change": lambda x, o, a, b, *rest: (x, o, a.astype(np.uint8), b.astype(np.int16), *rest)},
}
REFUSED = {
    "unknown axis": {"axis_name": "z"},
    **{
        f"{what} {i}": {"change": lambda *args, i=i, f=f: (*args[:i], f(args[i]), *args[i + 1 :])}
        for i in range(2, 6)
        for what, f in {
            "floats": np.float32, "bools": lambda x: x > 0, "matrix": lambda x: x[None], "scalar": lambda x: x[0],
            "none": lambda x: x[:0],
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TRACED)
def test_what_is_taken_while_tracing(name):
    same(lambda S: traced(S, **TRACED[name]))()


@pytest.mark.raises("ValueError", "NameError")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_while_tracing(name):
    same(lambda S: traced(S, **REFUSED[name]))()


@pytest.mark.raises("RuntimeError", "TypeError")
@pytest.mark.parametrize("arguments", [[np.zeros(2, F32)] * 2 + [np.zeros(2, np.int32)] * 4, ["a"] * 6, [[1.0]] * 6], ids="nab")
def test_what_is_refused_outside(arguments):
    same(lambda S: S.lax.ragged_all_to_all(*arguments, axis_name="i"))()


# What JAX takes while it traces, and XLA refuses, or does not define.
OURS = {
    "dtypes": (ValueError, "equal dtypes", {"change": lambda x, o, *n: (x, o.astype(np.int32), *n)}),
    "further sizes": (ValueError, "first axis alone", {"change": lambda x, o, *n: (x, o[:, :1], *n)}),
    "ranks": (ValueError, "first axis alone", {"change": lambda x, o, *n: (x, o[:, 0], *n)}),
    "scalars": (ValueError, "first axis alone", {"change": lambda x, o, *n: (x[0, 0], o[0, 0], *n)}),
    "lengths": (ValueError, "input_offsets of 2, send_sizes of 4", {"change": lambda x, o, a, *n: (x, o, a[:2], *n)}),
    "too few": (ValueError, "multiple of the 4 lanes", {"change": lambda x, o, *n: (x, o, *(a[:3] for a in n))}),
    "no axis": (ValueError, "requires the name of an axis", {"axis_name": ()}),
    "lanes twice": (ValueError, "each of the 4 lanes once", {"axis_index_groups": [[0, 1], [2, 2]]}),
    "uneven groups": (ValueError, "all be of one size", {"axis_index_groups": [[0, 1, 2], [3]]}),
}


@pytest.mark.parametrize("name", OURS)
def test_what_cannot_be_exchanged(name):
    error, text, options = OURS[name]
    with pytest.raises(error, match=text):
        traced(FERRAX, **options)


def test_groups_of_lanes_of_vmap():
    operand, output, numbers = case(4, 1, groups=[[0, 1], [2, 3]])
    with pytest.raises(NotImplementedError, match="axis of vmap"):
        ferrax.vmap(exchange(axis_index_groups=[[0, 1], [2, 3]]), axis_name="i")(operand, output, *numbers)


def test_sent_and_received():
    pairs = [(0, 1), (1, 3), (3, 0)]
    x = np.arange(8, dtype=F32).reshape(4, 2)
    wanted = np.stack([x[3], x[0], 0 * x[0], x[1]])

    def of(token, x):
        return lax.precv(token, ferrax.ShapeDtypeStruct((2,), F32), "i", pairs[::-1])

    ways = {
        "at once": lambda x: of(lax.psend(x, "i", pairs), x),
        "counted from the end": lambda x: of(lax.psend(x, "i", [(-4, 1), (1, -1), (3, 0)]), x),
        "barrier": lambda x: of(lax.optimization_barrier((lax.psend(x, "i", pairs), x))[0], x),
        "compiled": lambda x: of(ferrax.jit(lambda x: lax.psend(x, "i", pairs))(x), x),
        "loop": lambda x: of(lax.scan(lambda t, _: (t, None), lax.psend(x, "i", pairs), None, length=2)[0], x),
        "branch": lambda x: of(lax.cond(True, lambda t: t, lambda t: t, lax.psend(x, "i", pairs)), x),
        "of several": lambda x: of(
            lax.after_all(lax.create_token(), lax.psend(x, "i", pairs), lax.psend(x[0], "i", pairs)), x),
        "of a tree": lambda x: of(lax.psend({"a": 2 * x, "b": x}, "i", pairs)["b"], x),
        "in batches": lambda x: ferrax.vmap(
            lambda x: lax.precv(lax.psend(x, "i", pairs), x, "i", pairs))(x),
    }  # fmt: skip
    for name, way in ways.items():
        for options in ({}, {"check_vma": False}):
            compare(over_devices(way, mesh(4), **options)(x), wanted, name)
        compare(ferrax.pmap(way, axis_name="i")(x), wanted, name)


def test_sent_along_several_axes_and_between_lanes_of_vmap():
    ring = [(k, (k + 1) % 4) for k in range(4)]
    x = np.arange(4, dtype=np.int32)

    def turned(names):
        return lambda x: lax.precv(lax.psend(x, names, ring), x, names, ring)

    compare(over_devices(turned(("i", "j")), mesh(2, 2), ("i", "j"))(x), np.roll(x, 1))
    compare(ferrax.vmap(turned("i"), axis_name="i")(x), np.roll(x, 1))


def test_a_send_that_waits_for_another():
    """Forth along a line of devices, and back what came: each is sent when it is there."""
    forth, back = [(0, 1), (1, 2), (2, 3)], [(3, 2), (2, 1), (1, 0)]

    def there_and_back(x):
        token = lax.psend(x, "i", forth)
        came = lax.precv(token, x, "i", forth)
        came, token = lax.optimization_barrier((came, token))
        second = lax.after_all(token, lax.psend(10 * came, "i", back))
        return came + lax.precv(second, x, "i", back)

    x = np.arange(1, 5, dtype=F32)
    run = over_devices(there_and_back, mesh(4))
    compare(run(x), np.array([10, 21, 32, 3], F32))
    compare(ferrax.grad(lambda x: (run(x) * jnp.arange(1.0, 5.0)).sum())(x), np.array([12, 23, 34, 0], F32))


def test_a_token_holds_what_was_sent():
    send = lambda x: lax.psend(x, "i", [(0, 1)])  # noqa: E731
    sent = ferrax.shard_map(send, mesh=mesh(4), in_specs=P("i"), out_specs=P("i"))(jnp.ones(4))
    assert isinstance(sent, Token) and sent.block_until_ready() is sent
    compare(ferrax.tree.leaves(sent)[0], np.array([0, 1, 0, 0], F32))


RECEIVED = {
    "no token": (TypeError, "expected the token that psend returned", lambda x, t: lax.precv(x, x, "i", [(0, 1)])),
    "no send": (ValueError, "got one of nothing", lambda x, t: lax.precv(lax.create_token(), x, "i", [(0, 1)])),
    "other pairs": (ValueError, "no send", lambda x, t: lax.precv(t, x, "i", [(1, 0)])),
    "other axis": (ValueError, "no send", lambda x, t: lax.precv(t, x, "j", [(0, 1)])),
    "other shape": (ValueError, r"float32\[\] over", lambda x, t: lax.precv(t, x[0], "i", [(0, 1)])),
    "other dtype": (ValueError, r"int32\[1\] over", lambda x, t: lax.precv(t, x.astype(int), "i", [(0, 1)])),
    "two alike": (ValueError, "2 sends", lambda x, t: lax.precv(lax.after_all(t, t), x, "i", [(0, 1)])),
    "no shape": (AttributeError, "ShapeDtypeStruct", lambda x, t: lax.precv(t, (1,), "i", [(0, 1)])),
    "no such lane": (IndexError, "out of bounds", lambda x, t: lax.precv(t, x, "i", [(0, 9)])),
    "no such axis": (NameError, "precv needs a function", lambda x, t: lax.precv(t, x, "z", [(0, 1)])),
    "sent twice": (ValueError, "sends once", lambda x, t: lax.psend(x, "i", [(0, 1), (0, 0)])),
}


@pytest.mark.parametrize("name", RECEIVED)
def test_what_cannot_be_received(name):
    error, text, wrong = RECEIVED[name]
    with pytest.raises(error, match=text):
        over_devices(lambda x: wrong(x, lax.psend(x, "i", [(0, 1)])), mesh(2, 2), ("i", "j"))(np.ones((4, 1), F32))


@pytest.mark.raises("NameError", "TypeError")
@pytest.mark.parametrize("name", ["sends", "traced sends", "no array", "no shape"])
def test_sends_that_both_refuse(name):
    def case(S):
        x = S.jnp.ones(4)
        auto = S.jax.P("i")
        over = lambda f: S.jax.make_jaxpr(S.jax.shard_map(f, mesh=mesh_of(S, 4), in_specs=auto, out_specs=auto))(x)  # noqa: E731
        return {
            "sends": lambda: S.lax.psend(x, "i", [(0, 1)]),
            "traced sends": lambda: S.jax.make_jaxpr(lambda x: S.lax.psend(x, "i", [(0, 1)]))(x),
            "no array": lambda: over(lambda x: S.lax.psend("a", "i", [(0, 1)])),
            "no shape": lambda: over(lambda x: S.lax.precv("a", x, "i", [(0, 1)])),
        }[name]()

    same(case)()
