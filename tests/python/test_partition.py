"""Programs of one device from programs over whole arrays: cut, run as `shard_map`, put together, and compared."""

import itertools
import warnings

import conformance_collectives  # noqa: F401  adds to the table
import conformance_control  # noqa: F401  adds to the table
import conformance_eigen  # noqa: F401  adds to the table
import conformance_factors  # noqa: F401  adds to the table
import conformance_linalg  # noqa: F401  adds to the table
import conformance_signal  # noqa: F401  adds to the table
import numpy as np
import pytest
from conformance_table import ENTRIES
from oracle import FERRAX
from test_conformance import OPS, split

import ferrax
import ferrax.numpy as jnp
from ferrax import P, lax
from ferrax._src.parallel.partition import partition
from ferrax._src.parallel.shard_map_primitive import shard_map_p


def mesh_of(sizes=(2, 3), names=("x", "y")):
    count = int(np.prod(sizes))
    return ferrax.sharding.Mesh(np.array(ferrax.devices()[:count]).reshape(sizes), names)


def on_parts(fun, args, specs, mesh, outs=None):
    """The results of the partitioned function, and what its devices exchange."""
    closed = ferrax.jit(fun).trace(*args).jaxpr
    ins = [ferrax.NamedSharding(mesh, spec) for spec in specs] + [None] * len(closed.consts)
    outs = outs and [ferrax.NamedSharding(mesh, spec) for spec in outs]
    params, consts, exchanges = partition(closed.jaxpr._to_program(), mesh, ins, outs)
    return ferrax.jit(lambda *args: shard_map_p.bind(*args, *consts, **params))(*args, *closed.consts), exchanges


def cuts(shape, mesh, rng):
    """A spec at random whose parts are equal."""
    free = list(rng.permutation(mesh.axis_names))
    entries = []
    for size in shape:
        names = []
        while free and size and size % (mesh.shape[free[-1]]) == 0 and rng.random() < 0.7:
            names.append(str(free.pop()))
            size //= mesh.shape[names[-1]]
        entries.append(tuple(names) or None)
    return P(*entries)


def compare(found, wanted, exchanges, where):
    """The bits of whole arrays, unless devices sum; then what roundings may be."""
    summed = any(exchange.collective.startswith("psum") for exchange in exchanges)
    for ours, whole in zip(found, wanted, strict=True):
        if ferrax.dtypes.issubdtype(whole.dtype, ferrax.dtypes.extended):
            ours, whole = ferrax.random.key_data(ours), ferrax.random.key_data(whole)
        assert ours.dtype == whole.dtype and ours.shape == whole.shape, where
        ours, whole = np.asarray(ours), np.asarray(whole)
        if not jnp.issubdtype(whole.dtype, jnp.inexact):
            np.testing.assert_array_equal(ours, whole, err_msg=where)
        elif summed:
            unit, wide = float(jnp.finfo(whole.dtype).eps), whole.astype(np.complex128)
            bound = 64 * unit * max(1.0, np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
            np.testing.assert_allclose(ours.astype(wide.dtype), wide, atol=bound, rtol=64 * unit, err_msg=where)
        else:
            gone = np.isnan(whole)
            assert (np.isnan(ours) == gone).all() and ours[~gone].tobytes() == whole[~gone].tobytes(), (where, ours, whole)


# Cases of these are over meshes of their own.
OVER_MESHES = (
    "all_gather_invariant", "all_gather_reduced", "preduced", "psum_invariant", "pvary", "reduced_vary_cast",
    "unreduced_psum", "unreduced_reduce_scatter", "vary_unreduced_cast",
)


@pytest.mark.parametrize("name", [name for name in OPS if name not in OVER_MESHES])
def test_every_op(name):
    """The table of `test_conformance`, each case cut at random."""
    entry, mesh, rng = ENTRIES[name], mesh_of(), np.random.default_rng(len(name))
    with warnings.catch_warnings(), ferrax.enable_x64(True):
        warnings.simplefilter("ignore")
        for number, case in enumerate(entry.cases):
            fixed, arrays = split(case)
            operands = [jnp.asarray(a) for a in arrays]
            fun = lambda *xs, fixed=fixed: entry.call(FERRAX, *fixed, *xs)  # noqa: E731
            specs = [cuts(x.shape, mesh, rng) for x in operands]
            wanted = ferrax.tree.leaves(ferrax.jit(fun)(*operands))
            found, exchanges = on_parts(fun, operands, specs, mesh)
            compare(found, wanted, exchanges, f"case {number} of {name}, {specs} of {[x.shape for x in operands]}")


X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 12)).astype(np.float32)


def mean_of_net(x, w):
    return jnp.tanh(x @ w).sum(0)


def gradient(x, w):
    return ferrax.value_and_grad(lambda w: (ferrax.checkpoint(jnp.tanh)(x @ w) ** 2).mean())(w)


def softmax(x, w):
    return ferrax.nn.softmax(x @ w, axis=-1)


def moved(x, w):
    return (
        x.reshape(4, 4, 8).transpose(1, 0, 2) + 1, jnp.cumsum(x, 0), jnp.sort(x, 1), x[2:5], x[::-1],
        jnp.arange(16)[:, None] + x, x.reshape(128), jnp.concatenate([x, x]), jnp.pad(x, 1), jnp.eye(16, 8) * x,
    )  # fmt: skip


def scanned(x, w):
    return lax.scan(lambda c, a: (c * 0.5 + a, (c.sum(), a * c)), jnp.zeros(8), x)


def looped(x, w):
    return lax.while_loop(lambda c: c[0].sum() < 100.0, lambda c: (c[0] * c[0] + 1.0, c[1] + 1), (x, 0))


def counted(x, w):
    return lax.fori_loop(0, 3, lambda i, c: c @ w @ w.T * 0.1 + i, x)


def chosen(x, w):
    return lax.cond(x.sum() > 0, lambda x: x + 1, lambda x: x.T.reshape(16, 8) * 2, x)


def attention(x, w):
    q = x.reshape(4, 4, 2, 4)
    scores = ferrax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, q))
    return jnp.einsum("bhts,bshd->bthd", scores, q).reshape(16, 8)


def looked_up(x, w):
    return w[jnp.array([1, 3, 2])] + 1, w.at[jnp.array([1, 2])].add(1.0), x[:, jnp.array([0, 5])]


def convolved(x, w):
    return lax.conv_general_dilated(x.reshape(4, 2, 4, 4), jnp.ones((3, 2, 2, 2)), (1, 1), "SAME")


def library(x, w):
    random = ferrax.random.normal(ferrax.random.key(0), (16, 8))
    return jnp.fft.fft(x, axis=1).real, jnp.linalg.qr(x.reshape(4, 4, 8))[1], random + x, jnp.argmax(x, 0), x.max(0)


def over_the_mesh(x, w):
    mesh = mesh_of((4, 2))
    summed = ferrax.shard_map(lambda a: lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())(jnp.sin(x))
    return summed + 1, lax.with_sharding_constraint(x, ferrax.NamedSharding(mesh, P(None, "x"))) * 2


SPECS = [(P("x"), P()), (P("x", "y"), P("y")), (P(("y", "x")), P(None, "x")), (P(None, "x"), P("x", "y")), (P(), P())]
PROGRAMS = [
    mean_of_net, gradient, softmax, moved, scanned, looped, counted, chosen, attention, looked_up, convolved, library,
    over_the_mesh,
]  # fmt: skip


@pytest.mark.parametrize("fun, specs", list(itertools.product(PROGRAMS, SPECS)), ids=lambda x: getattr(x, "__name__", str(x)))
def test_programs(fun, specs):
    found, _ = on_parts(fun, (X, W), specs, mesh_of((4, 2)))
    for ours, whole in zip(found, ferrax.tree.leaves(ferrax.jit(fun)(X, W)), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(whole), rtol=1e-4, atol=1e-4)


def said(fun, specs, outs=None):
    _, exchanges = on_parts(fun, (X, W), specs, mesh_of((4, 2)), outs)
    return [(e.collective, e.axes, e.bytes, e.needed_by) for e in exchanges]


def test_what_is_exchanged():
    assert said(lambda x, w: jnp.sin(x) @ w, (P("x"), P())) == []
    # Both factors are cut along what is summed over.
    assert said(lambda x, w: x @ w, (P(None, "x"), P("x"))) == [("psum", ("x",), 16 * 12 * 4, "")]
    # Parameters that are cut are gathered, and their gradient is summed into parts.
    step = lambda x, w: ferrax.grad(lambda w: jnp.tanh(x @ w).sum())(w)  # noqa: E731
    assert [(name, axes) for name, axes, *_ in said(step, (P("x"), P("x")), [P("x")])] == [
        ("all_gather", ("x",)), ("psum_scatter", ("x",)),
    ]  # fmt: skip
    # Rows become columns.
    assert said(lambda x, w: jnp.sort(x, 0) + 0 * jnp.sort(x, 0), (P("x"), P()))[0][:2] == ("all_gather", ("x",))
    assert said(lambda x, w: jnp.cumsum(x, 0), (P("x"), P())) == [("all_gather", ("x",), 4 * 8 * 4, "cumsum")]


@pytest.mark.parametrize(
    "kernel, dilation, padding", [(3, 1, "SAME"), (4, 1, "SAME"), (3, 2, "SAME"), (5, 1, [(4, 0), (0, 4)]), (1, 1, "SAME")]
)
def test_windows_reach_into_neighbouring_parts(kernel, dilation, padding):
    image = np.random.default_rng(2).standard_normal((2, 3, 16, 8)).astype(np.float32)
    weights = np.random.default_rng(3).standard_normal((4, 3, kernel, kernel)).astype(np.float32)
    mesh = mesh_of((4, 2))

    def convolved(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), padding, rhs_dilation=(dilation, dilation))

    def slope(x, k):
        return ferrax.grad(lambda x: (convolved(x, k) ** 2).sum())(x)

    for fun, result in ((convolved, P(None, None, "x", "y")), (slope, P(None, None, "x", "y"))):
        found, exchanges = on_parts(fun, (image, weights), (P(None, None, "x", "y"), P()), mesh, [result])
        np.testing.assert_allclose(np.asarray(found[0]), np.asarray(fun(image, weights)), rtol=2e-4, atol=2e-4)
        reach = dilation * (kernel - 1) > 4  # beyond the neighbour, whose part has four elements
        assert {e.collective for e in exchanges} <= ({"ppermute", "all_gather"} if reach else {"ppermute"})
        assert kernel == 1 or exchanges and not any(e.needed_by for e in exchanges if e.collective == "ppermute")


def test_windows_of_parts():
    """Along axes that windows do not span, parts of maxima, sums and their gradients are made of parts."""
    images = np.random.default_rng(4).standard_normal((8, 6, 6, 2)).astype(np.float32)
    mesh, batch = mesh_of((4, 2)), P("x", None, None, "y")
    ways = [(lax.max, -np.inf), (lax.min, np.inf), (lax.add, 0.0), (lambda a, b: a * b + a, 1.0)]
    for (how, init), (size, step, padding) in itertools.product(ways, [(2, 2, "VALID"), (3, 2, "SAME"), (2, 1, "SAME")]):

        def folded(x, how=how, init=init, size=size, step=step, padding=padding):
            return lax.reduce_window(x, init, how, (1, size, size, 1), (1, step, step, 1), padding)

        def slope(x, folded=folded):
            return ferrax.grad(lambda x: (folded(x) ** 2).sum())(x)

        for fun in (folded, slope):
            if fun is slope and how not in (lax.max, lax.min, lax.add):
                continue
            (found,), exchanges = on_parts(fun, (images,), (batch,), mesh)
            np.testing.assert_array_equal(found, ferrax.jit(fun)(images))
            assert exchanges == [] and found.sharding.spec == batch

    # Windows that lie one behind the other are in one part, those of others are not.
    space = P(None, ("x", "y"), None, None)
    tall = np.concatenate([images, images + 1, images - 1, images * 2], 1)[:, :16]
    for size, step, gathers in ((2, 2, False), (2, 1, True), (3, 3, True)):

        def pooled(x, size=size, step=step):
            return lax.reduce_window(x, -np.inf, lax.max, (1, size, 1, 1), (1, step, 1, 1), "VALID")

        def slope(x, pooled=pooled):
            return ferrax.grad(lambda x: (pooled(x) ** 2).sum())(x)

        for fun in (pooled, slope):
            (found,), exchanges = on_parts(fun, (tall,), (space,), mesh)
            np.testing.assert_array_equal(found, ferrax.jit(fun)(tall))
            assert any(e.collective == "all_gather" for e in exchanges) == gathers, (fun, size, step)

    keep, add = (ferrax.make_jaxpr(f)(0.0, 0.0).jaxpr for f in (lax.ge, lax.add))
    windows = {"window_dimensions": (1, 2, 2, 1), "window_strides": (1, 2, 2, 1), "padding": ((0, 0),) * 4}

    def scattered(x, source):
        rules = {"select_jaxpr": keep, "select_consts": (), "scatter_jaxpr": add, "scatter_consts": ()}
        return lax.select_and_scatter_p.bind(x, source, np.float32(0), **rules, **windows)

    source = images[:, ::2, ::2]
    (found,), exchanges = on_parts(scattered, (images, source), (batch, batch), mesh)
    np.testing.assert_array_equal(found, ferrax.jit(scattered)(images, source))
    assert exchanges == []


FORMS = {
    "rows": (lambda at, i, u: at(lambda a: a.at[i], u), (6,), (6, 12, 6)),
    "columns": (lambda at, i, u: at(lambda a: a.at[:, i], u), (6,), (12, 6, 6)),
    "places": (lambda at, i, u: at(lambda a: a.at[i, :, i % 6], u), (6,), (6, 12)),
    "windows": (lambda at, i, u: at(lambda a: a.at[i, 2:5], u), (6,), (6, 3, 6)),
}


@pytest.mark.parametrize("kind", ["add", "subtract", "min", "max", "multiply"])
@pytest.mark.parametrize("form", [*FORMS, "batch"])
def test_scatters_of_parts(kind, form):
    """What each device makes of its updates is folded; what they are added to counts once."""
    rng, mesh = np.random.default_rng(len(kind) + len(form)), mesh_of()

    def scattered(a, indices, updates):
        if form == "batch":
            return ferrax.vmap(lambda a, i, u: getattr(a.at[i], kind)(u))(a, indices, updates)
        return FORMS[form][0](lambda where, u: getattr(where(a), kind)(u), indices, updates)

    _, shape, of_updates = FORMS.get(form, (None, (12, 6), (12, 6, 6)))
    for _ in range(6):
        # Some indices are equal, some outside.
        indices = jnp.asarray(rng.integers(-2, 13, shape))
        args = [*(jnp.asarray(rng.integers(-5, 5, sizes), jnp.float32) for sizes in ((12, 12, 6), of_updates))]
        args.insert(1, indices)
        specs = [cuts(x.shape, mesh, rng) for x in args]
        whole = ferrax.jit(scattered)(*args)
        (found,), _ = on_parts(scattered, args, specs, mesh, [cuts(whole.shape, mesh, rng)])
        np.testing.assert_array_equal(found, whole, err_msg=str(specs))


def test_gradients_of_lookups_exchange_their_sum():
    table, ids, mesh = jnp.ones((100, 16)), jnp.arange(8), mesh_of((4, 2))
    slope = ferrax.grad(lambda table, ids: jnp.tanh(table[ids]).sum())
    (found,), exchanges = on_parts(slope, (table, ids), (P(), P("x")), mesh, [P()])
    np.testing.assert_array_equal(found, slope(table, ids))
    assert [(e.collective, e.needed_by) for e in exchanges] == [("psum", "")]
    _, exchanges = on_parts(slope, (table, ids), (P("x"), P("x")), mesh, [P("x")])
    # Few ids, and what is looked up, are less than the table.
    assert [(e.collective, e.bytes) for e in exchanges] == [("all_gather", 8), ("psum", 512), ("all_gather", 128)]
    many = jnp.arange(800) % 100
    _, exchanges = on_parts(slope, (table, many), (P("x"), P("x")), mesh, [P("x")])
    assert [e.collective for e in exchanges] == ["all_gather", "psum_scatter"]
    chosen = lambda x, i: -jnp.take_along_axis(x, i[:, None], 1).sum()  # noqa: E731
    x, i = jnp.ones((8, 10)), jnp.arange(8)
    (found,), exchanges = on_parts(ferrax.grad(chosen), (x, i), (P("x"), P("x")), mesh)
    np.testing.assert_array_equal(found, ferrax.grad(chosen)(x, i))
    assert exchanges == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_narrow_floats_are_rounded_once(dtype):
    x, w = jnp.asarray(X * 8, dtype), jnp.asarray(W, dtype)
    for fun in (lambda x, w: x @ w, lambda x, w: x.sum(1), lambda x, w: (x @ w).mean(0)):
        (found,), exchanges = on_parts(fun, (x, w), (P(None, "x"), P("x")), mesh_of((4, 2)))
        assert found.dtype == dtype and [e.collective for e in exchanges] == ["psum"]
        whole = np.asarray(fun(x, w)).astype(np.float32)
        unit = float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(np.asarray(found).astype(np.float32), whole, rtol=unit, atol=unit)


def test_sums_wait_for_those_that_they_are_added_to():
    """The cotangent of what three products read is summed over the devices once; what is read elsewhere is summed first."""
    x, weights = jnp.arange(12.0).reshape(4, 3), [jnp.arange(n, n + 24.0).reshape(3, 8) % 5 for n in range(3)]
    specs = (P(), *[P(None, "x")] * 3)

    def score(x, *weights):
        q, k, v = (x @ w for w in weights)
        return (q * k * v).sum()

    slope = ferrax.grad(score)
    (found,), exchanges = on_parts(slope, (x, *weights), specs, mesh_of((4,), ("x",)))
    np.testing.assert_allclose(found, slope(x, *weights), rtol=1e-5)
    assert [e.collective for e in exchanges] == ["psum"]

    def used_twice(x, *weights):
        q, k, v = (x @ w @ w.T for w in weights)
        return q - k + v, q + jnp.sin(v)

    found, exchanges = on_parts(used_twice, (x, *weights), specs, mesh_of((4,), ("x",)))
    for ours, whole in zip(found, used_twice(x, *weights)):
        np.testing.assert_allclose(ours, whole, rtol=1e-5)
    assert [e.collective for e in exchanges] == ["psum"] * 3


def test_sums_in_loops_are_made_behind_them():
    """The gradient of a weight that all steps read is summed over the devices once, and what steps only hand out together."""
    x, w, h = (jnp.asarray(np.random.default_rng(5).standard_normal(s), jnp.float32) for s in ((7, 8, 5), (5, 5), (8, 5)))

    def score(w, x, h):
        def step(h, now):
            h = jnp.tanh(now @ w + h)
            return h, h.sum(0)

        h, sums = lax.scan(step, h, x)
        return (h**2).sum() + (sums**2).sum(), sums

    slope = ferrax.value_and_grad(score, has_aux=True)
    found, exchanges = on_parts(slope, (w, x, h), (P(), P(None, "x"), P("x")), mesh_of((4, 2)), [P()] * 3)
    for ours, whole in zip(found, ferrax.tree.leaves(slope(w, x, h)), strict=True):
        np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-5)
    assert sorted((e.collective, e.bytes) for e in exchanges) == [("psum", 4), ("psum", 100), ("psum", 7 * 5 * 4)]

    def both(w, x, h):
        """A loop in a loop, sums of two products in each step, integers, and a carry that is read."""

        def outer(carry, _):
            def step(carry, now):
                total, count, read = carry
                total = total + now.T @ now + jnp.sin(now).T @ now
                return (total, count + (now > 0).sum(), read + now.sum() + 0 * read), None

            return lax.scan(step, carry, x)[0], None

        return lax.scan(outer, (w, 3, 0.5), None, length=2)[0]

    found, exchanges = on_parts(both, (w, x, h), (P(), P(None, "x"), P()), mesh_of((4, 2)), [P()] * 3)
    for ours, whole in zip(found, both(w, x, h), strict=True):
        np.testing.assert_allclose(ours, whole, rtol=1e-4, atol=1e-4)
    assert int(found[1]) == int(both(w, x, h)[1])
    nothing = jnp.zeros((0, 8, 5))
    found, _ = on_parts(both, (w, nothing, h), (P(), P(None, "x"), P()), mesh_of((4, 2)), [P()] * 3)
    for ours, whole in zip(found, both(w, nothing, h), strict=True):
        np.testing.assert_array_equal(ours, whole)


def test_lines_of_exchanges():
    _, (exchange,) = on_parts(lambda x, w: jnp.cumsum(x, 0), (X, W), (P("x"), P()), mesh_of((4, 2)))
    assert __file__ in exchange.line and str(exchange).startswith("all_gather over x: 128 bytes, as cumsum needs it (")


def test_compiled_functions_tell_what_devices_exchange():
    mesh = mesh_of((4, 2))
    x = ferrax.device_put(X, ferrax.NamedSharding(mesh, P("x")))
    compiled = ferrax.jit(lambda x: (x.sum(0), jnp.sort(x, 0))).lower(x).compile()
    assert [(e.collective, e.bytes, e.needed_by) for e in compiled.communication()] == [
        ("psum", 32, ""), ("all_gather", 128, "sort"),
    ]  # fmt: skip
    whole = ferrax.jit(jnp.sin, in_shardings=x.sharding, out_shardings=ferrax.NamedSharding(mesh, P())).lower(x).compile()
    assert [(e.collective, e.needed_by) for e in whole.communication()] == [("all_gather", "")]
    assert ferrax.jit(jnp.sin).lower(X).compile().communication() == []


def test_functions_over_some_axes():
    """Along the other axes arguments and results are cut as what surrounds them, and what that asks for is exchanged."""
    mesh = mesh_of((4, 2))

    def mapped(f, ins, outs):
        return ferrax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, axis_names={"x"})

    def loop(v):
        return lax.fori_loop(0, 2, lambda _, c: mapped(lambda c: lax.psum(c, "x") - c, P("x"), P("x"))(c), v)

    rows = P(("x", "y"))
    for function, ins, specs, said in (
        (lambda v: mapped(jnp.sin, P("x"), P("x"))(v + 1), [P("x", "y")], [P("x", "y")], []),
        (lambda v: mapped(lambda c: (c.T, lax.pmax(c, "x")), P("x"), (P(None, "x"), P()))(v), [P("x", "y")], [P("y", "x"), P(None, "y")], []),
        (lambda v: mapped(lambda c: lax.psum(c, "x") + lax.ppermute(c, "x", [(0, 1), (2, 3)]), P("x"), P("x"))(v), [P("x", "y")], [P("x", "y")], []),
        (lambda v: mapped(lambda c: lax.all_gather(c, "x").sum(0), P("x"), P("x"))(v), [P("x", "y")], [P("x", "y")], []),
        (lambda v: mapped(lambda c: lax.psum_scatter(c, "x", tiled=True), P(), P("x"))(v), [P(None, "y")], [P("x", "y")], []),
        (lambda v: mapped(lambda c: lax.psum_scatter(c, "x"), P(), P("x"))(v[:4]), [P(None, "y")], None, []),
        (lambda v: mapped(lambda c: lax.all_to_all(c, "x", 0, 0, tiled=True), P("x"), P("x"))(v), [P("x", "y")], [P("x", "y")], []),
        (lambda v: mapped(lambda c: lax.all_gather(c, "x", axis=1, tiled=True), P("x"), P("x"))(v), [P("x", "y")], None, [("all_gather", ("y",))]),
        (lambda v: mapped(lambda c: c.sum(1), P("x"), P("x"))(v), [P("x", "y")], [P("x")], [("psum", ("y",))]),
        (lambda v, w: ferrax.jit(mapped(lambda c, w: c @ w, (P("x"), P()), P("x")))(v, w), [P("x", "y"), P("y")], [P("x")], [("psum", ("y",))]),
        (lambda v: mapped(lambda c: jnp.sort(c, 0), P("x"), P("x"))(v), [rows], [rows], [("all_gather", ("y",))]),
        (lambda v: mapped(jnp.cos, P(None, "x"), P(None, "x"))(v), [P("x", "y")], [P(None, ("x", "y"))], None),
        (loop, [P("x", "y")], None, None),
    ):  # fmt: skip
        args = [ferrax.device_put(x, ferrax.NamedSharding(mesh, spec)) for x, spec in zip((X, X[:8, :4]), ins)]
        found, exchanges = on_parts(function, args, ins, mesh)
        compare(found, ferrax.tree.leaves(function(*args)), exchanges, str(said))
        program = ferrax.jit(function).trace(*args).jaxpr._to_program()
        params, _, _ = partition(program, mesh, [x.sharding for x in args])
        assert specs is None or list(params["out_specs"]) == specs, (params["out_specs"], specs)
        assert said is None or [(e.collective, e.axes) for e in exchanges] == said, exchanges


def test_picture_of_a_mesh(capsys):
    mesh = mesh_of((4, 2))
    rows, columns = (ferrax.NamedSharding(mesh, P(*spec)) for spec in (("x",), (None, ("y", "x"))))
    tree = {"x": ferrax.device_put(X, rows), "w": [ferrax.device_put(X, columns)], "step": 3}
    compiled = ferrax.jit(lambda x: (x.sum(0), x.max(), jnp.sort(x, 0)), in_shardings=rows).lower(X).compile()
    ferrax.debug.visualize_mesh(mesh, tree, exchanges=compiled.communication())
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert lines[3] == ["x", "4", "Auto", "w.0[1], x[0]", "1 psum: 32 bytes, 1 pmax: 4 bytes, 1 all_gather: 128 bytes"]
    assert lines[4] == ["y", "2", "Auto", "w.0[1]", ""]
    ferrax.debug.visualize_mesh(mesh.abstract_mesh)
    assert "│ y    │ 2" in capsys.readouterr().out
    with pytest.raises(TypeError, match="mesh must be"):
        ferrax.debug.visualize_mesh(None)


def test_time_is_linear_in_equations():
    """A program of thousands of equations is cut, whatever its depth."""

    def deep(x, w):
        for _ in range(600):
            x = jnp.tanh(x @ w @ w.T) + x.sum(1, keepdims=True)
        return x

    traced = ferrax.jit(deep).trace(X, W)
    mesh = mesh_of((4, 2))
    ins = [ferrax.NamedSharding(mesh, spec) for spec in (P("x"), P(None, "y"))]
    _, _, exchanges = partition(traced.jaxpr._to_program(), mesh, ins)
    assert len(exchanges) == 600 and all(e.collective == "psum" for e in exchanges)


def test_operations_beside_a_function_over_some_axes_keep_their_lines():
    """What is done before and after, and in a jitted function, is said to be at the user's line that asks for it."""
    mesh = mesh_of((4, 2))
    summed = ferrax.shard_map(
        lambda part: lax.psum(part, "x"), mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"}
    )

    def before(x, w):
        return x @ w

    def within(x):
        return jnp.sort(x, axis=0)

    def after(x, w):
        return x @ w.T

    def whole(x, w):
        with ferrax.named_scope("layer"):
            return after(summed(ferrax.jit(within)(before(x, w))), w)

    rows, columns = (ferrax.NamedSharding(mesh, P(*spec)) for spec in (("x", "y"), (None, "y")))
    compiled = ferrax.jit(whole, in_shardings=(rows, columns)).lower(X, W).compile()
    lines = [e.line for e in compiled.communication()]
    assert lines and not any("whole" in line for line in lines)
    for function in (before, after):
        code = function.__code__
        assert any(f"{code.co_filename}:{code.co_firstlineno + 1} ({code.co_name})" in line for line in lines), lines
