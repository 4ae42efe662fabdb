"""Operations of lax that are made of others, beside the reference: ragged and scaled products, approximate
top k, composites, comparisons in the total order, tokens, random numbers."""

import functools

import jax
import numpy as np
import pytest
from conformance_table import data
from oracle import FERRAX, JAX, SIDES, attempt, compare, same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax._src.composed import ragged_tiles

F32 = np.float32

# Shapes of both operands and of the group sizes, and the axes.
RAGGED = {
    "rows": ((7, 3), (2, 3, 4), (2,), ((((1,), (1,)), ((), ())), (0,), (0,))),
    "rows in batches": ((2, 7, 3), (3, 2, 3, 4), (2, 3), ((((2,), (2,)), ((0,), (1,))), (1,), (0,))),
    "groups last": ((7, 3), (3, 4, 2), (2,), ((((1,), (0,)), ((), ())), (0,), (2,))),
    "contracted": ((7, 3), (7, 4), (2,), ((((0,), (0,)), ((), ())), (0,), ())),
    "contracted in batches": ((3, 2, 5), (2, 5, 4), (2, 3), ((((2,), (1,)), ((1,), (0,))), (2,), ())),
    "batch": ((4, 2, 3), (4, 3, 2), (2,), ((((2,), (1,)), ((0,), (0,))), (0,), ())),
}


def group_sizes(shape):
    return np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape) % 4


def ragged(S, name, **options):
    *shapes, sizes, numbers = RAGGED[name]
    numbers = S.lax.RaggedDotDimensionNumbers(*numbers)
    x, y = (data(shape, F32, i) for i, shape in enumerate(shapes))
    return functools.partial(
        S.lax.ragged_dot_general, group_sizes=group_sizes(sizes), ragged_dot_dimension_numbers=numbers, **options
    ), x, y  # fmt: skip


@pytest.mark.parametrize("name", RAGGED)
def test_ragged_products(name):
    def case(S):
        dot, x, y = ragged(S, name)
        return [S.jax.jit(dot)(x, y), S.jax.jvp(dot, (x, y), (x + 1, y * 2))[1]]

    dot, x, y = ragged(JAX, name)
    size = lambda x, y: np.asarray(dot(abs(x), abs(y)), np.float64)  # noqa: E731
    for got, wanted, terms in zip(case(FERRAX), case(JAX), (size(x, y), size(x + 1, y) + 2 * size(x, y)), strict=True):
        compare(got, wanted, name, cancels=terms)
    # The reference has no reverse mode where the ragged axis is contracted or a batch.
    dot, x, y = ragged(FERRAX, name)
    out, back = ferrax.vjp(dot, x, y)
    tangent = ferrax.jvp(dot, (x, y), (x + 1, y * 2))[1]
    dx, dy = back(jnp.cos(out))
    assert jnp.allclose(jnp.vdot(jnp.cos(out), tangent), jnp.vdot(dx, x + 1) + jnp.vdot(dy, y * 2), rtol=1e-4)


@same
def test_ragged_rows(S):
    x, y = data((5, 3), np.float16), data((2, 3, 2), np.float16, 1)
    sizes = np.array([2, 2], np.int32)
    return [S.lax.ragged_dot(x, y, sizes, preferred_element_type=F32), S.lax.ragged_dot(x, y, sizes)]


def test_batches_of_ragged_rows_have_groups_of_their_own():
    x, y, sizes = data((2, 5, 3), F32), data((2, 3, 2), F32, 1), np.array([[1, 3], [5, 0]], np.int32)
    each = [lax.ragged_dot(rows, y, counts) for rows, counts in zip(x, sizes)]
    compare(ferrax.vmap(lax.ragged_dot, (0, None, 0))(x, y, sizes), jnp.stack(each))


TILED = {
    "rows": ((37, 3), (4, 3, 4), [5, 0, 19, 8], ((((1,), (1,)), ((), ())), (0,), (0,))),
    "all rows in groups, one beyond": ((40, 3), (3, 3, 4), [8, 24, 30], ((((1,), (1,)), ((), ())), (0,), (0,))),
    "batches": ((2, 37, 3), (3, 2, 3, 4), [1, 20, 9], ((((2,), (2,)), ((0,), (1,))), (1,), (0,))),
    "batches of their own": (
        (2, 37, 3), (3, 2, 3, 4), [[1, 20, 9], [0, 37, 0]], ((((2,), (2,)), ((0,), (1,))), (1,), (0,))
    ),
    "groups last, two free axes": ((4, 37, 3), (3, 4, 2), [17, 20], ((((2,), (0,)), ((), ())), (1,), (2,))),
    "contracted": ((37, 3), (37, 4), [3, 0, 33], ((((0,), (0,)), ((), ())), (0,), ())),
    "contracted, less than all": ((3, 2, 37), (37, 4, 2), [3, 30], ((((2, 1), (0, 2)), ((), ())), (2,), ())),
    "contracted in batches": (
        (3, 2, 37), (2, 37, 4), [[1, 20, 9], [0, 37, 0]], ((((2,), (1,)), ((1,), (0,))), (2,), ())
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TILED)
def test_ragged_products_by_tiles(name, monkeypatch):
    """Tiles that groups begin and end in: as JAX, and derivatives as by the operand spread over all groups."""
    left, right, sizes, numbers = TILED[name]
    x, y, sizes = data(left, F32), data(right, F32, 1), np.array(sizes, np.int32)

    def dot(S, x, y, sizes=sizes):
        return S.lax.ragged_dot_general(x, y, sizes, S.lax.RaggedDotDimensionNumbers(*numbers))

    def derivatives(x, y):
        out, back = ferrax.vjp(lambda x, y: dot(FERRAX, x, y), x, y)
        tangent = ferrax.jvp(lambda x, y: dot(FERRAX, x, y), (x, y), (jnp.sin(x), y * 2))[1]
        return [out, tangent, *back(jnp.cos(out))]

    spread = derivatives(x, y)
    monkeypatch.setattr(ragged_tiles, "pays", lambda *sizes: True)
    for ours, theirs in zip(derivatives(x, y), spread, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 3e-5)
    np.testing.assert_allclose(ferrax.jit(functools.partial(dot, FERRAX))(x, y), dot(JAX, x, y), 1e-5, 1e-5)
    both = np.stack([sizes, sizes[..., ::-1]])
    for mapped, each in zip(ferrax.vmap(lambda sizes: dot(FERRAX, x, y, sizes))(both), both):
        np.testing.assert_allclose(mapped, dot(JAX, x, y, each), 1e-5, 1e-5)


@pytest.mark.parametrize("m, k, n, groups", [(600, 64, 96, 5), (40, 128, 128, 32)])
def test_large_ragged_products(m, k, n, groups, monkeypatch):
    """As large as those that go by tiles, with sizes of few bits and derivatives of the second order."""
    x, y = data((m, k), F32), data((groups, k, n), F32, 1)
    sizes = np.bincount(np.random.default_rng(0).integers(0, groups, m - 3), minlength=groups).astype(np.uint8)
    sums = np.concatenate([np.full(size, group) for group, size in enumerate(sizes)] + [np.full(3, -1)])
    expected = np.stack([row @ y[group] if group >= 0 else np.zeros(n) for row, group in zip(x, sums)])
    np.testing.assert_allclose(lax.ragged_dot(x, y, sizes), expected, 1e-4, 1e-4)
    y[int(sums[0])] = np.nan
    found = np.asarray(lax.ragged_dot(x, y, sizes))
    np.testing.assert_allclose(found[sums != sums[0]], expected[sums != sums[0]], 1e-4, 1e-4)
    monkeypatch.setattr(ragged_tiles, "pays", lambda *sizes: True)
    halves = lax.ragged_dot_general(
        jnp.ones((m, 8), jnp.bfloat16), jnp.ones((m, 4), jnp.bfloat16), np.array([m - 5, 5], np.int32),
        lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], []),
    )  # fmt: skip
    assert halves.dtype == jnp.bfloat16 and (halves[0] == jnp.bfloat16(m - 5)).all() and (halves[1] == 5).all()


@same
def test_scaled_products(S):
    x, y = (S.jnp.asarray(data(shape, F32, i)).astype("float8_e4m3fn") for i, shape in enumerate([(2, 3, 8), (2, 8, 4)]))
    scale = S.jnp.asarray([[[1.0, 2.0]] * 3] * 2).astype("float8_e8m0fnu")
    return [
        S.lax.scaled_dot(x, y),
        S.lax.scaled_dot(x, y, lhs_scale=scale, preferred_element_type=F32),
        S.lax.scaled_dot(x[0], y[0], rhs_scale=S.jnp.full((1, 4), 0.5), dimension_numbers=(((1,), (0,)), ((), ()))),
    ]


@same
def test_top_k_is_found(S):
    x = S.jnp.asarray(data((9,), F32))
    wide = S.jnp.asarray(data((2, 300), F32))
    find, low = S.lax.approx_max_k, S.lax.approx_min_k
    gradient = S.jax.grad(lambda x: S.jnp.sum(find(x, 3)[0] * S.jnp.arange(3.0)))(wide[0])
    return [
        tuple(find(x[5:], 2)), tuple(low(wide, 3, 0 - 1, 0.9)), tuple(find(wide.T, 2, 0, aggregate_to_topk=False)),
        tuple(find(wide, 2, reduction_input_size_override=2000, aggregate_to_topk=False)),
        tuple(S.jax.vmap(lambda x: low(x, 2), 1)(wide.T)), gradient,
    ]  # fmt: skip


@same
def test_total_order(S):
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000, 0, 0x80000000, 1, 0x3F800000], np.uint32)
    x, y = (S.jnp.asarray(g.ravel()) for g in np.meshgrid(bits.view(F32), bits.view(F32)))
    return [p.bind(x, y) for p in (S.lax.eq_to_p, S.lax.le_to_p, S.lax.lt_to_p)]


@same
def test_composites(S):
    scaled = S.lax.composite(lambda x, *, by, table: (x["a"] * by, table[0] + x["a"]), "my.scaled", version=2)
    x, table = {"a": S.jnp.arange(3.0)}, np.array([1.5])
    equation = S.jax.make_jaxpr(lambda x: scaled(x, by=2, table=table))(x).eqns[0]
    attributes = [(key, len(leaves)) for key, leaves, tree in equation.params["attributes"]]
    shown = [equation.primitive.name, equation.params["name"], equation.params["version"], attributes]
    return [scaled(x, by=2, table=table), S.jax.jit(lambda x: scaled(x, by=3, table=table))(x), shown]


@same
def test_platforms(S):
    choose = functools.partial(S.lax.platform_dependent, 2.0, cuda=lambda x: -x)
    return [choose(cpu=lambda x: x + 1), choose(default=lambda x: x + 3)]


ERRORS = {
    "derivative of a composite": lambda S: S.jax.grad(S.lax.composite(lambda x: x * x, "a.b"))(1.0),
    "traced attribute": lambda S: S.jax.jit(lambda y: S.lax.composite(lambda x, y: x * y, "a.b")(1.0, y=y))(2.0),
    "no platform": lambda S: S.lax.platform_dependent(1.0, cuda=lambda x: x),
    "gpu": lambda S: S.lax.platform_dependent(1.0, gpu=lambda x: x),
    "platform without function": lambda S: S.lax.platform_dependent(1.0, cpu=1),
    "k of 0": lambda S: S.lax.approx_max_k(S.jnp.ones(3), 0),
    "k above the size": lambda S: S.lax.approx_max_k(S.jnp.ones(3), 4),
    "top k of integers": lambda S: S.lax.approx_min_k(S.jnp.arange(3), 1),
    "top k of a scalar": lambda S: S.lax.approx_max_k(S.jnp.ones(()), 1),
    "random dtypes": lambda S: S.lax.rng_uniform(0, 1.0, (2,)),
    "random bounds": lambda S: S.lax.rng_uniform(S.jnp.zeros(1), S.jnp.ones(1), (2,)),
    "no token": lambda S: S.lax.after_all(1.0),
    "float sizes": lambda S: S.lax.ragged_dot(S.jnp.ones((3, 2)), S.jnp.ones((1, 2, 2)), S.jnp.ones(1)),
    "number of groups": lambda S: S.lax.ragged_dot(S.jnp.ones((3, 2)), S.jnp.ones((1, 2, 2)), S.jnp.ones(2, int)),
    "scaled vectors": lambda S: S.lax.scaled_dot(S.jnp.ones(3), S.jnp.ones(3)),
    "scales": lambda S: S.lax.scaled_dot(S.jnp.ones((2, 4)), S.jnp.ones((4, 2)), lhs_scale=S.jnp.ones((2, 3))),
    "starts of two types": lambda S: S.lax.dynamic_slice(S.jnp.ones((3, 4)), (np.int32(1), np.int16(2)), (2, 2)),
}


@pytest.mark.raises("TypeError", "ValueError", "NotImplementedError", "UnexpectedTracerError")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    compare(attempt(ERRORS[name], FERRAX), attempt(ERRORS[name], JAX))


def test_an_offset_of_groups_is_refused():
    dot, x, y = ragged(FERRAX, "rows", group_offset=jnp.zeros(1, int))
    with pytest.raises(NotImplementedError, match="group_offset"):
        dot(x, y)


@SIDES
def test_random_numbers_differ_and_lie_within_bounds(S):
    draw = S.jax.jit(lambda a, b: S.lax.rng_uniform(a, b, (1000,)))
    for low, high, mean in ((F32(-1), F32(3), 1), (np.int32(-5), np.int32(5), -0.5)):
        first, second = np.asarray(draw(low, high)), np.asarray(draw(low, high))
        assert first.dtype == low.dtype
        assert (first >= low).all() and (first < high).all() and (first != second).any()
        # Six standard deviations of the mean of a thousand numbers.
        assert abs(first.mean() - mean) < 6 * np.std(np.linspace(low, high, 1001)) / 1000**0.5


def test_tokens_pass_through_programs():
    token = lax.after_all(lax.create_token(), lax.create_token(1.0))
    assert type(ferrax.jit(lambda x, t: (x, lax.after_all(t)))(1.0, token)[1]) is type(token)


def test_accuracy_is_the_highest():
    x = jnp.arange(4.0)
    for accuracy in lax.AccuracyMode:
        compare(lax.exp(x, accuracy=accuracy), lax.exp(x))
    with pytest.raises(NotImplementedError, match="AccuracyMode"):
        lax.tanh(x, accuracy=lax.Tolerance(ulps=1))


def test_paddings_are_integers():
    pads = lax.padtype_to_pads(np.array([7, 8]), np.array([3, 3]), np.array([2, 2]), "SAME")
    assert pads == jax.lax.padtype_to_pads((7, 8), (3, 3), (2, 2), "SAME")
    assert all(type(pad) is int for pair in pads for pad in pair)
