"""Reads that are more than a pointer, at the sizes where kernels have tiles and threads: backwards, spread, padded, repeated,
picked by several indices, patches of convolutions, halves. Values are whole numbers, so that NumPy's are equal."""

import functools
import itertools

import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax import lax, lib

RNG = np.random.default_rng(11)


def whole(*shape, dtype="float32", low=-50, high=50):
    return RNG.integers(low, high, shape).astype(dtype)


def equal(got, wanted):
    got = np.asarray(got)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    if wanted.dtype == jnp.bfloat16:  # NumPy does not see its NaN
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted)


STEPS = (-1, 2, -2, 3, -3, 4, -4, 5, -7)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "complex64", "float16", "bool"])
@pytest.mark.parametrize("step", STEPS)
def test_backwards_and_spread(step, dtype):
    with ferrax.enable_x64(dtype == "float64"):
        for n in (0, 1, 2, 7, 8, 9, 31, 64, 1000, 300_001):
            x = whole(n).astype(dtype)
            equal(ferrax.jit(lambda x: x[::step])(x), x[::step])
            equal(ferrax.jit(lambda x: -x[::step] if x.dtype != bool else ~x[::step])(x),
                  ~x[::step] if dtype == "bool" else -x[::step])
        x = whole(37, 450).astype(dtype)
        equal(ferrax.jit(lambda x: x[:, ::step])(x), x[:, ::step])
        equal(ferrax.jit(lambda x: x[::step, 3::step])(x), x[::step, 3::step])


@pytest.mark.parametrize("shape", [(5, 9), (130, 260), (3, 70_000), (70_000, 3), (700, 900)])
def test_padded_sums(shape):
    """Loads with guards: tiles inside of them, across them and outside."""
    x, y = whole(*shape), whole(*shape)

    def padded(np, a, b):
        return np.pad(a, ((1, 0), (0, 2))) + np.pad(b, ((0, 1), (2, 0))) * 2 - np.pad(a, ((1, 0), (1, 1)))

    equal(ferrax.jit(lambda a, b: padded(jnp, a, b))(x, y), padded(np, x, y))
    wanted = x.copy()
    wanted[1:, :-1] += 3 * y[1:, 1:]
    equal(ferrax.jit(lambda a, b: a.at[1:, :-1].add(3 * b[1:, 1:]))(x, y), wanted)
    # In the memory of an operand that is padded, too.
    step = ferrax.jit(lambda a, b: a + jnp.pad(a[1:] * b[1:], ((0, 1), (0, 0))), donate_argnums=0)
    equal(step(jnp.array(x), y), x + np.pad(x[1:] * y[1:], ((0, 1), (0, 0))))


@pytest.mark.parametrize("width", [1, 2, 3, 8, 16, 33, 191, 500])
@pytest.mark.parametrize("rows", [1, 5, 100, 40_000])
def test_repeated_rows(rows, width):
    rows = rows if width < 100 else min(rows, 2000)
    x, by, less = whole(rows, width), whole(width, low=1), whole(width)
    equal(ferrax.jit(lambda x, by, less: (x - less) * by + x[0, 0])(x, by, less), (x - less) * by + x[0, 0])
    equal(ferrax.jit(lambda x: x.max(0))(x), x.max(0))
    equal(ferrax.jit(lambda x: (x - 1).min(0))(x), (x - 1).min(0))


def test_extrema_of_short_rows():
    x = np.full((1000, 8), -0.0, np.float32)
    x[777, 3], x[5, 2] = 0.0, np.nan
    got = np.asarray(ferrax.jit(lambda x: x.max(0))(x))
    assert np.isnan(got[2]) and not np.isnan(got[[0, 1, 3]]).any()
    assert list(np.signbit(got)[[0, 3]]) == [True, False]


@pytest.mark.parametrize("n", [3, 100, 60_000])
def test_short_loops_that_pads_restrict(n):
    """Each step of a last loop of few steps reads other parts of what is padded."""
    a, b = whole(n, 3), whole(n, 3)

    def loss(a, b):
        return jnp.sum(jnp.cross(a, b) * b[:, ::-1])

    got = ferrax.jit(ferrax.grad(loss, (0, 1)))(a, b)
    c = b[:, ::-1]
    equal(got[0], np.cross(b, c))
    equal(got[1], np.cross(c, a) + np.cross(a, b)[:, ::-1])
    parts = ferrax.jit(ferrax.grad(lambda a, b: jnp.sum(jnp.stack([a, b], -1) ** 2), (0, 1)))(a, b)
    equal(parts[0], 2 * a)
    equal(parts[1], 2 * b)
    wanted = np.zeros((n, 4), np.float32)
    wanted[:, 1:] += a
    wanted[:, :3] += 2 * b
    equal(ferrax.jit(lambda a, b: jnp.pad(a, ((0, 0), (1, 0))) + jnp.pad(2 * b, ((0, 0), (0, 1))))(a, b), wanted)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "float64", "complex128", "bfloat16"])
def test_gathers_of_lines(dtype):
    """Windows whose elements are apart in the result are gathered an element of each at a time."""
    with ferrax.enable_x64(True):
        for shape, count in (((7, 40), 16), ((7, 40), 100), ((300, 500), 400), ((3, 5, 40), 17), ((1, 9), 20), ((4, 1), 16)):
            x = whole(*shape).astype(jnp.dtype(dtype))
            places = RNG.integers(-shape[-1], shape[-1], count).astype(np.int32)
            equal(ferrax.jit(lambda x, i: x[..., i])(x, places), x[..., places])
            beyond = places + 3 * (places % 2)
            clipped = np.clip(np.where(beyond < 0, beyond + shape[-1], beyond), 0, shape[-1] - 1)
            equal(ferrax.jit(lambda x, i: x.at[..., i].get(mode="clip"))(x, beyond), x[..., clipped])
            outside = (beyond >= shape[-1]) | (beyond < -shape[-1])
            got = ferrax.jit(lambda x, i: x.at[..., i].get(mode="fill", fill_value=3))(x, beyond)
            equal(got, np.where(outside, np.asarray(3, x.dtype), x[..., clipped]))


def test_a_gather_of_lines_is_known():
    before = lib.stats()["gather: windows, an element of each at a time"]
    x = whole(30, 40)
    equal(ferrax.jit(lambda x, i: x[:, i])(x, np.arange(39, -1, -1)), x[:, ::-1])
    assert lib.stats()["gather: windows, an element of each at a time"] > before


@pytest.mark.parametrize("kind", ["set", "add", "multiply", "min", "max"])
@pytest.mark.parametrize("mode", ["drop", "clip", "promise_in_bounds"])
def test_several_indices(kind, mode):
    """Scatters and gathers by vectors of indices, some of them outside."""
    of = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}
    beyond = 0 if mode == "promise_in_bounds" else 4
    for shape, count in (((5, 7), 3), ((30, 40), 63), ((30, 40), 64), ((9, 40), 65), ((300, 200), 5000), ((6, 7, 8), 200)):
        x = whole(*shape, low=1, high=3)
        places = [RNG.integers(0, size + beyond, count).astype(np.int32) for size in shape]
        if kind == "set":
            # Different places: which of several updates stays is not defined.
            order = np.unique(np.stack(places), axis=1, return_index=True)[1]
            places = [place[order] for place in places]
        new = whole(len(places[0]), low=1, high=3)
        wanted, inside = x.astype(np.float64), np.all([p < size for p, size in zip(places, shape, strict=True)], 0)
        if mode == "clip" and kind == "set":
            continue
        used = [np.minimum(p, size - 1) for p, size in zip(places, shape, strict=True)]
        used = used if mode == "clip" else [p[inside] for p in used]
        updates = new if mode == "clip" else new[inside]
        if kind == "set":
            wanted[tuple(used)] = updates
        else:
            of[kind].at(wanted, tuple(used), updates)
        got = ferrax.jit(lambda x, new, *i: getattr(x.at[i], kind)(new, mode=mode))(x, new, *places)
        if kind == "multiply":
            np.testing.assert_allclose(np.asarray(got), wanted.astype(np.float32), rtol=1e-6)
        else:
            equal(got, wanted.astype(np.float32))
        got = ferrax.jit(lambda x, *i: x.at[i].get(mode="fill", fill_value=-9))(x, *places)
        clipped = tuple(np.minimum(p, size - 1) for p, size in zip(places, shape, strict=True))
        equal(got, np.where(inside, x[clipped], np.float32(-9)))


def correlated(x, w, strides, padding, dilation):
    """A convolution of NHWC arrays, window by window."""
    x = np.pad(x, ((0, 0), *padding, (0, 0)))
    spans = [(size - 1) * by + 1 for size, by in zip(w.shape[:2], dilation, strict=True)]
    sizes = [(length - span) // step + 1 for length, span, step in zip(x.shape[1:3], spans, strides, strict=True)]
    total = np.zeros((x.shape[0], *sizes, w.shape[3]), x.dtype)
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            rows = slice(i * dilation[0], i * dilation[0] + (sizes[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(j * dilation[1], j * dilation[1] + (sizes[1] - 1) * strides[1] + 1, strides[1])
            total += x[:, rows, columns] @ w[i, j]
    return total


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("channels, features", [(1, 8), (2, 1), (3, 16), (8, 8), (8, 17), (16, 33), (70, 40), (5, 100)])
def test_patches_where_they_lie(channels, features, dtype):
    with ferrax.enable_x64(dtype == "float64"):
        for size, window, strides, padding, dilation in (
            ((2, 14, 14), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
            ((1, 9, 30), (3, 5), (2, 1), ((0, 2), (3, 0)), (1, 2)),
            ((3, 5, 4), (2, 2), (1, 3), ((0, 0), (0, 0)), (2, 1)),
            ((1, 1, 70), (1, 7), (1, 1), ((0, 0), (3, 3)), (1, 1)),
            ((2, 6, 6), (1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1)),
        ):
            x, w = whole(*size, channels, low=-4, high=4).astype(dtype), whole(*window, channels, features, low=-4, high=4)
            w = w.astype(dtype)
            convolve = functools.partial(
                lax.conv_general_dilated, window_strides=strides, padding=padding, rhs_dilation=dilation,
                dimension_numbers=("NHWC", "HWIO", "NHWC"))
            got = ferrax.jit(convolve)(x, w)
            equal(got, correlated(x, w, strides, padding, dilation))


def test_a_convolution_of_patches_where_they_lie():
    before = lib.stats()["convolution: patches where they lie"]
    x, w = whole(2, 20, 20, 8, low=-4, high=4), whole(3, 3, 8, 16, low=-4, high=4)
    got = ferrax.jit(lambda x, w: lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))(x, w)
    equal(got, correlated(x, w, (1, 1), ((1, 1), (1, 1)), (1, 1)))
    assert lib.stats()["convolution: patches where they lie"] > before


def test_weights_that_are_infinite_stay_within_their_patches():
    """What is packed at edges is not more than its rows: zeros of others times infinity would be NaN."""
    x, w = np.ones((1, 11, 11, 4), np.float32), np.full((3, 3, 4, 8), np.inf, np.float32)
    got = ferrax.jit(lambda x, w: lax.conv_general_dilated(
        x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")))(x, w)
    assert np.isposinf(np.asarray(got)).all()


@pytest.mark.parametrize("n", [1, 7, 8, 100, 70_000])
def test_halves(n):
    """Each operation rounds, as NumPy's do."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = (RNG.standard_normal(n) * 10.0 ** RNG.integers(-8, 6, n)).astype(np.float32)
        special = [np.nan, np.inf, -np.inf, 65519.9, 6e-8, 1e-8]
        x[:6] = special[:n]
        half = x.astype(np.float16)
        equal(ferrax.jit(lambda x: x.astype("float16"))(x), half)
        equal(ferrax.jit(lambda x: x.astype("float32"))(half), half.astype(np.float32))
        wanted = (half * half + half) * half - half
        equal(ferrax.jit(lambda x: (x * x + x) * x - x)(half), wanted)


def test_what_broadcast_numbers_make_is_computed_once():
    def f(a, b, x):
        a, b = jnp.broadcast_to(a, x.shape), jnp.broadcast_to(b, x.shape)
        scale = jnp.where(a > b, jnp.exp(a) * b, (a + 1).astype("int32").astype("float32"))
        return x * scale - lax.lgamma(b)

    x = whole(1000)
    alone = [np.asarray(ferrax.jit(f)(a, b, x)) for a, b in ((1.5, 1.0), (1.0, 2.0))]
    np.testing.assert_allclose(alone[0], x * np.float32(np.exp(1.5)), rtol=1e-6)
    np.testing.assert_allclose(alone[1], x * 2.0, rtol=1e-6)
    text = ferrax.jit(f).lower(1.5, 1.0, x).compile().as_text()
    assert "parallel 1000" in text and text.count("exp") >= 1
    assert not [line for line in text[text.index("plan of"):].splitlines() if "buffer" in line and "4000 bytes, arena" in line]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "int8"])
def test_greatest_common_divisors(dtype):
    with ferrax.enable_x64(True):
        info = np.iinfo(dtype)
        fibonacci = [1, 1]
        while fibonacci[-1] + fibonacci[-2] <= info.max:
            fibonacci.append(fibonacci[-1] + fibonacci[-2])
        a = np.array([*fibonacci[1:], 0, 0, 12, info.max], dtype)
        b = np.array([*fibonacci[:-1], 0, 7, 18, info.max - 1], dtype)
        equal(jnp.gcd(a, b), np.gcd(a, b))
        equal(ferrax.vmap(jnp.gcd)(a, b), np.gcd(a, b))
        equal(jnp.gcd(a[:, None], b[None]), np.gcd(a[:, None], b[None]))


FOLDS = {
    "sum": (np.add, ["float32", "bfloat16", "int32", "complex64"]),
    "prod": (np.multiply, ["float32", "int32"]),
    "max": (np.maximum, ["float32", "bfloat16", "int8"]),
    "min": (np.minimum, ["float32", "uint32"]),
    "any": (np.logical_or, ["bool"]),
    "all": (np.logical_and, ["bool"]),
}


@pytest.mark.parametrize("terms", range(1, 9))
@pytest.mark.parametrize("kind", FOLDS)
def test_few_terms_in_front(kind, terms):
    """One after the other up to seven, on their own and between other operations, whose results are kept too."""
    operation, dtypes = FOLDS[kind]

    def fold(rows, dtype):
        wide = np.float32 if dtype == jnp.bfloat16 else dtype
        rows = [row.astype(wide) for row in rows]
        if kind == "sum":
            rows[0] = rows[0] + wide(0) if np.issubdtype(wide, np.inexact) else rows[0]
        with np.errstate(all="ignore"):
            return functools.reduce(operation, rows).astype(dtype)

    if terms > 7 and kind in ("sum", "prod"):  # a tree, in test_sum_order
        dtypes = ["int32"]
    for name, width in itertools.product(dtypes, (1, 15, 16, 17, 1000, 70_001)):
        dtype = jnp.dtype(name).type
        x = RNG.standard_normal((terms, width)) * 3
        x[:, ::5], x[0, ::7], x[-1, ::11] = -0.0, np.nan if name[0] in "fb" else 1, np.inf if name[0] in "f" else 2
        x = x.astype(np.float32).astype(dtype)
        f = functools.partial(getattr(jnp, kind), **({"dtype": dtype} if kind in ("sum", "prod") else {}))
        equal(ferrax.jit(functools.partial(f, axis=0))(x), fold(x, dtype))
        several = np.stack([x, x[::-1], x[::-1]])
        equal(
            ferrax.jit(functools.partial(f, axis=1))(several),
            np.stack([fold(rows, dtype) for rows in several]),
        )
        if kind == "sum" and name != "complex64":
            kept, total = ferrax.jit(lambda x, f=f: (x + x, f(x + x, axis=0) - x[0]))(x)
            equal(kept, x + x)
            equal(total, fold(x + x, dtype) - x[0])


def test_few_terms_are_no_fold():
    def plan(x, axis):
        text = ferrax.jit(lambda x: jnp.sum(x * x, axis)).lower(x).compile().as_text()
        return text[text.index("\nplan") :]

    assert "accumulate" not in plan(whole(7, 16), 0)
    assert "accumulate" not in plan(whole(2, 50, 3, 40), (0, 2))
    assert "accumulate" in plan(whole(8, 16), 0)
    assert "accumulate" in plan(whole(7, 15), 0)
    assert "accumulate" in plan(whole(16, 7), 1)
    text = ferrax.jit(ferrax.grad(lambda x: jnp.sum(jnp.repeat(x, 3) ** 2))).lower(whole(40)).compile().as_text()
    assert "accumulate" not in text, "all terms are one"


PADDED = {
    "twice": (lambda x, y: x + x, 0, False),
    "product": (lambda x, y: x * y, 0, False),
    "difference": (lambda x, y: x - 3 * y, 0, False),
    "negative": (lambda x, y: -x, 0, True),
    "negative, minus zero": (lambda x, y: -x, -0.0, False),
    "by one": (lambda x, y: x * y, 1, True),
    "more": (lambda x, y: x + 1, 1, False),
    "exponential": (lambda x, y: np.exp(x) if isinstance(x, np.ndarray) else jnp.exp(x), 0, True),
    "quotient": (lambda x, y: x / y, 0, True),
    "compared": (lambda x, y: x < y, False, False),
    "equal": (lambda x, y: x == y, False, True),
}


@pytest.mark.parametrize("name", PADDED)
def test_pads_of_what_is_the_same_outside(name):
    """No choice where the padding is what zeros make: of loads alone, which are guarded."""
    of, fill, chooses = PADDED[name]
    for shape in [(1, 1), (5, 9), (130, 260), (3, 70_000), (700, 900)]:
        x = whole(*shape) * 0.0 if name == "exponential" else whole(*shape)
        y = whole(*shape, low=1)

        def padded(x, y):
            value = of(x, y)
            return lax.pad(value, value.dtype.type(fill), ((1, 2, 0), (3, 1, 0)))

        compiled = ferrax.jit(padded).lower(x, y).compile()
        wanted = np.pad(of(x, y), ((1, 2), (3, 1)), constant_values=fill)
        got = np.asarray(compiled(x, y))
        equal(got, wanted)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
        text = compiled.as_text()
        assert ("select" in text[text.index("\nplan") :]) == chooses
