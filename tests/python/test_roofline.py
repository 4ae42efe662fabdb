"""`experimental.roofline` beside JAX: the same counts for the same functions, and what is registered and refused."""

import dataclasses
import logging

import jax
import numpy as np
import pytest
from jax.experimental import roofline as theirs

import ferrax
import ferrax.numpy as jnp
from ferrax._src.interop.roofline.model import _of_name
from ferrax._src.interop.roofline.rules import met_along
from ferrax.experimental import roofline

X = np.ones((3, 8), np.float32)
Y = np.ones((8, 5), np.float32)
PLACES = np.zeros((2, 1), np.int32)
IMAGE = np.ones((6, 6, 9, 10), np.float32)

FUNCTIONS = {
    "elements": (lambda m: lambda x: m.numpy.sin(x) * 2.0 + x**3, (X,)),
    "scalars": (lambda m: lambda x, y: x * (y.sum() + 1.0) / 3, (X, Y)),
    "compared": (lambda m: lambda x: m.numpy.where(x > 1, x, -x), (X,)),
    "product": (lambda m: lambda x, y: m.numpy.exp(x @ y), (X, Y)),
    "batched product": (lambda m: lambda x: m.numpy.einsum("bij,bjk->bik", x, x), (np.ones((2, 4, 4), np.float32),)),
    "sum": (lambda m: lambda x: x.sum(1) + x.sum(), (X,)),
    "running": (lambda m: lambda x: m.lax.cumsum(x, 1) + m.lax.cumlogsumexp(x, 0), (X,)),
    "calls": (lambda m: lambda x: m.jit(m.numpy.cos)(m.jit(m.numpy.cos)(x)), (X,)),
    "dead": (lambda m: lambda x: (m.numpy.cos(x), x)[1], (X,)),
    "gather": (
        lambda m: lambda x, i: m.lax.gather(
            x, i, m.lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 8), mode=m.lax.GatherScatterMode.FILL_OR_DROP
        ),
        (X, PLACES),
    ),
    "scatter": (
        lambda m: lambda x, i: m.lax.scatter_mul(x, i, x[:2], m.lax.ScatterDimensionNumbers((1,), (0,), (0,))),
        (X, PLACES),
    ),
    "convolution": (
        lambda m: lambda x, k: m.lax.conv_general_dilated(
            x, k, (2, 1), ((1, 2), (0, 3)), lhs_dilation=(1, 2), rhs_dilation=(2, 1), feature_group_count=3
        ),
        (IMAGE, np.ones((3, 2, 3, 4), np.float32)),
    ),
    "grouped convolution": (
        lambda m: lambda x, k: m.lax.conv_general_dilated(x, k, (1, 1), "SAME", batch_group_count=3),
        (IMAGE, np.ones((3, 6, 3, 3), np.float32)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_counts_are_those_of_jax(name):
    make, args = FUNCTIONS[name]
    shapes, ours = roofline.roofline(make(ferrax))(*args)
    other_shapes, reference = theirs.roofline(make(jax))(*args)
    assert repr(shapes) == repr(other_shapes)
    assert (ours.flops, ours.hbm_bytes) == (reference.flops, reference.hbm_bytes)
    assert (ours.unfused_flops, ours.unfused_hbm_bytes) == (reference.unfused_flops, reference.unfused_hbm_bytes)


def test_gradients_and_memory():
    def f(x, y):
        return jnp.sin(x @ y)

    def g(x, y):
        return jax.numpy.sin(x @ y)

    args = [ferrax.ShapeDtypeStruct(x.shape, jnp.bfloat16) for x in (X, Y)]
    ours, reference = roofline.roofline(f, vjp=True)(*args)[1], theirs.roofline(g, vjp=True)(*args)[1]
    assert (ours.flops, ours.hbm_bytes) == (reference.flops, reference.hbm_bytes)
    pinned = roofline.roofline(f, pin_lhs_in_vmem=True, pin_rhs_in_vmem=True)(*args)[1]
    assert pinned.hbm_bytes == 0 and pinned.flops == 2 * 3 * 8 * 5
    assert roofline.roofline(lambda x: jnp.sin(jnp.sin(x)))(X)[1].peak_hbm_bytes == X.nbytes


COLLECTIVES = {
    "psum": lambda m: lambda x: m.lax.psum(x, ("x", "y")),
    "pmax": lambda m: lambda x: m.lax.pmax(x, "y"),
    "all_gather": lambda m: lambda x: m.lax.all_gather(x, "x", tiled=True),
    "psum_scatter": lambda m: lambda x: m.lax.psum_scatter(x, "y", tiled=True),
    "all_to_all": lambda m: lambda x: m.lax.all_to_all(x, "y", 1, 0, tiled=True),
    "ppermute": lambda m: lambda x: m.lax.ppermute(x, "y", ((0, 2), (2, 1), (3, 3))),
    "one device": lambda m: lambda x: m.lax.psum(x, "z") + m.lax.pmin(x, "z"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_are_those_of_jax(name):
    found = []
    for module, library in ((ferrax, roofline), (jax, theirs)):
        mesh = module.sharding.AbstractMesh((2, 4, 1), ("x", "y", "z"))
        spec = module.sharding.PartitionSpec("x", "y")
        f = library.roofline(COLLECTIVES[name](module), mesh, (spec,), module.sharding.PartitionSpec(("x", "y", "z")))
        found.append(f(module.ShapeDtypeStruct((16, 64), np.float32))[1])
    ours, reference = found
    assert ours.ici_bytes == reference.ici_bytes
    assert ours.ici_latency == reference.ici_latency


def test_collectives_over_several_axes():
    """Numbers are JAX's; functions of several axes are traced as one collective for each."""
    mesh = ferrax.sharding.AbstractMesh((2, 4), ("x", "y"))
    aval = ferrax.core.ShapedArray((8, 16), np.dtype(np.float32))
    context = roofline.RooflineRuleContext(
        name_stack="", primitive=None, avals_in=[aval], avals_out=[aval], jaxpr_eqn_ctx=None, mesh=mesh,
        pin_lhs_in_vmem=False, pin_rhs_in_vmem=False,
    )  # fmt: skip
    axes = ("x", "y")
    gathered = _of_name["all_gather"](context, aval, axis_name=axes)
    assert (gathered.ici_bytes, gathered.ici_latency) == ({"x": 1792, "y": 1792}, {"x": 8, "y": 8})
    pairs = ((0, 7), (7, 0), (1, 4), (2, 6), (3, 3))
    moved = _of_name["ppermute"](context, aval, axis_name=axes, perm=pairs)
    assert (moved.ici_bytes, moved.ici_latency) == ({"x": 512, "y": 512}, {"x": 2, "y": 2})
    with pytest.raises(ValueError, match="no mesh"):
        _of_name["psum"](dataclasses.replace(context, mesh=None), aval, axes=axes)


def test_results_add_up():
    def made(library):
        one = library.RooflineResult(flops=3, ici_bytes={"x": 5}, peak_hbm_bytes=7)
        two = library.RooflineResult(flops=4, ici_bytes={"y": 1, "x": 2}, peak_hbm_bytes=2)
        return [one + two, one * 2.5, 3 * two, library.RooflineResult.zeros() + one]

    def fields(x):
        return {name: getattr(x, name) for name in ("flops", "ici_bytes", "peak_hbm_bytes", "hbm_bytes")}

    assert list(map(fields, made(roofline))) == list(map(fields, made(theirs)))


@pytest.mark.parametrize("seed", range(60))
def test_taps_that_meet_elements(seed):
    draw = np.random.RandomState(seed)
    size, taps, stride, between, apart = draw.randint(1, 8, 5)
    low, outs = draw.randint(-3, 8), draw.randint(1, 12)
    ends = {i * between for i in range(size)}
    wanted = sum(o * stride + k * apart - low in ends for o in range(outs) for k in range(taps))
    assert met_along(*map(int, (size, taps, outs, stride, low, between, apart))) == wanted


def test_primitives_of_users(caplog):
    known_p, unknown_p = ferrax.core.Primitive("known"), ferrax.core.Primitive("unknown")
    for primitive in known_p, unknown_p:
        primitive.def_abstract_eval(lambda x, **params: x)

    @roofline.register_roofline(known_p)
    def _rule(ctx, x, *, times):
        assert ctx.primitive is known_p and ctx.avals_in[0].shape == x.shape
        return roofline.RooflineResult(unfused_flops=times * x.size)

    with caplog.at_level(logging.WARNING):
        assert roofline.roofline(lambda x: known_p.bind(x, times=4))(X)[1].unfused_flops == 4 * X.size
        assert not caplog.records
        assert roofline.roofline(unknown_p.bind)(X)[1].unfused_flops == 0
        assert "unknown" in caplog.text
    caplog.clear()
    roofline.register_standard_roofline(unknown_p)
    roofline.roofline(unknown_p.bind)(X)
    assert not caplog.records


def test_what_is_refused():
    with pytest.raises(TypeError, match="ShapedArray"):
        roofline.RooflineShape.from_aval(3)
    assert roofline.RooflineShape.total_bytes([ferrax.typeof(X), ferrax.typeof(Y)]) == X.nbytes + Y.nbytes
