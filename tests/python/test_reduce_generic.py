"""`lax.reduce` and `lax.reduce_window` with functions of the user's, beside JAX's."""

import jax
import numpy as np
import pytest
from oracle import FERRAX, JAX, attempt, compare, same

import ferrax
import ferrax.numpy as jnp
from ferrax import lax
from ferrax.test_util import check_grads

X = np.arange(1, 7, dtype="float32")
M = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, 4.0]], "float32")
RNG = np.random.default_rng(5)
IMAGE = RNG.normal(size=(7, 9)).astype("float32")
VOLUME = RNG.normal(size=(2, 6, 7, 3)).astype("float32")


def check(case, *args, **bounds):
    """The same values, dtypes, weak types or error class on both libraries."""
    results = [attempt(lambda side: case(side, *map(side.jnp.asarray, args)), s) for s in (FERRAX, JAX)]
    compare(*results, **bounds)


def mix(a, b):
    return a + b + a * b


def digits(a, b):
    """Neither commutative nor associative: shows the order of a fold from the left."""
    return 10 * a + b


def affine(a, b):
    """The composition of `x -> p x + q`: associative, not commutative."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def composed(S, x, axes):
    """Along several axes the order shows. XLA's older emitters (`conftest.py`) have one of their own."""
    compose = lambda x: S.lax.reduce((x, 2 * x), (1.0, 0.0), affine, axes)  # noqa: E731
    if S is JAX:
        compose = S.jax.jit(compose, compiler_options={"xla_cpu_use_fusion_emitters": True})
    return compose(x)


def first_greatest(S):
    def combine(a, b):
        keep = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return S.jnp.where(keep, a[0], b[0]), S.jnp.where(keep, a[1], b[1])

    return combine


WINDOWS = {
    "valid": ((3,), None),
    "stride": ((3,), (2,)),
    "same": ((3,), (2,), "SAME"),
    "same_lower": ((4,), (3,), "same_lower"),
    "pairs": ((2,), (1,), [(1, 2)]),
    "wide pairs": ((2,), (1,), [(5, 4)]),
    "negative pairs": ((2,), (1,), [(-1, -2)]),
    "removes more than all": ((2,), (1,), [(-8, 5)]),
    "removes more than it has": ((2,), (1,), [(-5, -9)]),
    "removes all": ((2,), (1,), [(-5, -5)]),
    "base dilation": ((3,), (2,), "SAME", (2,)),
    "window dilation": ((3,), (1,), "VALID", None, (2,)),
    "all": ((3,), (2,), [(3, 1)], (3,), (2,)),
    "negative and dilated": ((2,), (1,), [(-1, -2)], (2,)),
    "blocks": ((5,), (5,), [(0, 5)]),
    "blocks with gaps": ((5,), (6,), [(1, 5)]),
    "one": ((6,), (1,)),
    "one dilated": ((5,), (7,), [(3, 0)], None, (2,)),
    "too large": ((7,), (1,)),
    "five": ((5,), (1,), "SAME"),
    "six": ((6,), (1,), [(6, 6)]),
    "seven": ((7,), (2,), [(7, 9)], None, (2,)),
}
FUNCTIONS = {
    "add": (lambda S: S.lax.add, 0.0),
    "max": (lambda S: S.lax.max, -np.inf),
    "min": (lambda S: S.lax.min, np.inf),
    "mul": (lambda S: S.lax.mul, 1.0),
    "max from 3": (lambda S: S.lax.max, 3.0),
    "add from 2": (lambda S: S.lax.add, 2.0),
    "traced add": (lambda S: lambda a, b: b + a, 0.5),
    "generic": (lambda S: mix, 0.0),
    "ordered": (lambda S: digits, 9.0),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_of_a_vector(window, function):
    make, init = FUNCTIONS[function]

    def case(S, x):
        return S.lax.reduce_window(x, init, make(S), *complete(WINDOWS[window]))

    check(case, X)


def complete(window):
    """JAX wants strides beside named paddings; they are 1 by default."""
    sizes, strides, *rest = window
    return (sizes, (1,) * len(sizes) if strides is None else strides, *rest)


IMAGES = {
    "valid": ((3, 2), (1, 1)),
    "strides": ((3, 3), (2, 3), "SAME"),
    "same_lower": ((2, 4), (2, 3), "SAME_LOWER"),
    "blocks": ((3, 3), (3, 3)),
    "pairs": ((6, 5), (1, 1), [(2, 0), (-1, 3)]),
    "dilations": ((5, 2), (2, 1), [(3, 1), (0, 2)], (2, 1), (1, 3)),
    "unrolled": ((7, 9), (1, 1), "SAME"),
    "looped": ((8, 9), (2, 1), "SAME"),
    "looped without padding": ((7, 9), (1, 1), "VALID", (2, 2)),
    "looped, dilated": ((8, 8), (2, 1), [(9, 9), (9, 9)], None, (2, 1)),
}


@pytest.mark.parametrize("function", ["add", "max", "min", "mul", "add from 2"])
@pytest.mark.parametrize("window", IMAGES)
def test_windows_of_an_image(window, function):
    make, init = FUNCTIONS[function]

    def case(S, x):
        return S.lax.reduce_window(x, init, make(S), *IMAGES[window])

    check(case, IMAGE, ulps=64, cancels=1.0 if function.startswith("add") else 0.0)


@pytest.mark.parametrize("window", [name for name in IMAGES if type(IMAGES[name][-1]) is not str])
def test_windows_are_folded_row_by_row_without_their_holes(window):
    """In loops of Python: JAX's order is another one where windows are dilated."""
    ones = (1, 1)
    sizes, strides, pads, base, steps = (*IMAGES[window], *(((0, 0),) * 2, ones, ones)[len(IMAGES[window]) - 2 :])
    pads = ((0, 0),) * 2 if pads == "VALID" else pads
    base, steps = base or ones, steps or ones
    shape = lax.reduce_window_shape_tuple(IMAGE.shape, sizes, strides, pads, base, steps)
    expected = np.full(shape, 0.25)
    for out in np.ndindex(*shape):
        for place in np.ndindex(*sizes):
            at = [o * s + p * d - lo for o, s, p, d, (lo, _) in zip(out, strides, place, steps, pads)]
            if all(0 <= a <= (n - 1) * b and a % b == 0 for a, b, n in zip(at, base, IMAGE.shape)):
                expected[out] = 0.5 * expected[out] + IMAGE[at[0] // base[0], at[1] // base[1]]
    got = lax.reduce_window(jnp.asarray(IMAGE), 0.25, lambda a, b: 0.5 * a + b, *IMAGES[window])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_windows_of_a_volume():
    def case(S, x):
        window = (1, 3, 2, 1), (1, 2, 2, 1), "SAME"
        return [S.lax.reduce_window(x, i, f, *window) for i, f in ((0.0, S.lax.add), (-np.inf, S.lax.max))]

    check(case, VOLUME, cancels=1.0)


@pytest.mark.parametrize("size, stride, step", [(w, s, d) for w in (*range(1, 10), 15, 16, 31) for s in (1, 3) for d in (1, 2)])
def test_long_windows_are_sliding_sums_and_maxima(size, stride, step):
    x = RNG.normal(size=70)
    span = (size - 1) * step + 1
    views = np.lib.stride_tricks.sliding_window_view(x, span)[::stride, ::step]
    with ferrax.enable_x64(True):
        for init, combine, expected in ((0.0, lax.add, views.sum(1)), (-np.inf, lax.max, views.max(1)), (np.inf, lax.min, views.min(1))):
            got = lax.reduce_window(jnp.asarray(x), init, combine, (size,), (stride,), window_dilation=(step,))
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)


def several(S, x):
    places = S.lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)
    init = (-np.inf, np.int32(0))
    window = (2,) * x.ndim, (1,) * x.ndim, "SAME"
    return S.lax.reduce_window((x, places), init, first_greatest(S), *window)


VALUES = {
    "several operands": (several, M),
    "a dict": (lambda S, x: S.lax.reduce_window({"a": x, "b": x}, {"a": 0.0, "b": 1.0}, lambda p, q: {"a": p["a"] + q["a"], "b": p["b"] * q["b"]}, (2,), (1,)), X),
    "integers": (lambda S, x: S.lax.reduce_window(x, 0, S.lax.add, (3,), (1,), "SAME"), X.astype("int32")),
    "int8 wraps": (lambda S, x: S.lax.reduce_window(x * 40, np.int8(0), S.lax.add, (3,), (1,)), X.astype("int8")),
    "greatest integers": (lambda S, x: S.lax.reduce_window(x, np.iinfo("int32").min, S.lax.max, (3,), (1,), "SAME"), X.astype("int32")),
    "least unsigned": (lambda S, x: S.lax.reduce_window(x, np.uint8(255), S.lax.min, (3,), (1,), "SAME"), X.astype("uint8")),
    "booleans": (lambda S, x: S.lax.reduce_window(x > 3, False, S.lax.bitwise_or, (2,), (1,)), X),
    "greatest booleans": (lambda S, x: S.lax.reduce_window(x > 3, False, S.lax.max, (2,), (1,)), X),
    "sums from a zero of another dtype": (lambda S, x: S.lax.reduce_window(x, 0.0, S.lax.add, (3,), (1,)), X.astype("int32")),
    "complex sums": (lambda S, x: S.lax.reduce_window(x * 1j, 0.0, S.lax.add, (3,), (1,)), X),
    "complex maxima": (lambda S, x: S.lax.reduce_window(x * 1j, 0j, S.lax.max, (3,), (1,)), X),
    "bfloat16 sums": (lambda S, x: S.lax.reduce_window(x, 0.0, S.lax.add, (4096,), (1,)), np.ones(4096, jnp.bfloat16)),
    "nan": (lambda S, x: S.lax.reduce_window(x.at[2].set(np.nan), -np.inf, S.lax.max, (2,), (1,)), X),
    "weak": (lambda S, x: S.lax.reduce_window(S.jnp.asarray(2.0)[None], 0.0, S.lax.add, (1,), (1,)), X),
    "weak generic": (lambda S, x: S.lax.reduce_window(S.jnp.asarray(2.0)[None], 0.0, mix, (1,), (1,)), X),
    "empty operand": (lambda S, x: S.lax.reduce_window(x[:0], 0.0, S.lax.add, (2,), (1,), [(2, 2)]), X),
    "empty, dilated operand": (lambda S, x: S.lax.reduce_window(x[:0], 2.0, mix, (2,), (1,), [(2, 2)], (3,)), X),
    "less than an empty operand": (lambda S, x: S.lax.reduce_window(x[:0], 2.0, mix, (2,), (1,), [(-2, 1)]), X),
    "an axis of nothing": (lambda S, x: S.lax.reduce_window(x[:, :0], 2.0, mix, (2, 1), (1, 1)), M),
    "function of jnp": (lambda S, x: S.lax.reduce_window(x, -np.inf, S.jnp.maximum, (2,), (1,)), X),
    "jit": (lambda S, x: S.jax.jit(lambda x, i: S.lax.reduce_window(x, i, S.lax.add, (2,), (1,)))(x, 3.0), X),
    "vmap": (lambda S, x: S.jax.vmap(lambda r: S.lax.reduce_window(r, 0.0, mix, (2,), (1,), "SAME"))(x), M),
    "vmap of maxima": (lambda S, x: S.jax.vmap(lambda r: S.lax.reduce_window(r, -np.inf, S.lax.max, (2,), (1,), "SAME"), 1, 1)(x), M),
    "padtype": (lambda S, x: S.lax.padtype_to_pads((6, 7, 1), (2, 3, 4), (1, 2, 5), "SAME"), X),
    "padtype lower": (lambda S, x: S.lax.padtype_to_pads((6, 7), (2, 4), (1, 3), "same_lower"), X),
    "padtype valid": (lambda S, x: S.lax.padtype_to_pads((6, 7), (2, 4), (1, 3), "VALID"), X),
    "shape": (lambda S, x: S.lax.reduce_window_shape_tuple((6, 7), (2, 3), (1, 2), [(0, 1), (2, 3)], (2, 1), (1, 2)), X),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    case, *args = VALUES[name]
    check(case, *args)


GRADS = {
    "sums": (lambda S, x: S.lax.reduce_window(x, 0.0, S.lax.add, (3, 2), (2, 1), "SAME"), IMAGE),
    "sums of dilated windows": (lambda S, x: S.lax.reduce_window(x, 0.0, S.lax.add, (3, 2), (2, 1), [(3, 1), (-1, 0)], (2, 1), (1, 2)), IMAGE),
    "maxima": (lambda S, x: S.lax.reduce_window(x, -np.inf, S.lax.max, (3, 2), (2, 1), "SAME"), IMAGE),
    "maxima of blocks": (lambda S, x: S.lax.reduce_window(x, -np.inf, S.lax.max, (2, 2), (2, 2), "SAME"), IMAGE),
    "maxima of long windows": (lambda S, x: S.lax.reduce_window(x, -np.inf, S.lax.max, (6, 7), (1, 1), "SAME"), IMAGE),
    "minima": (lambda S, x: S.lax.reduce_window(x, np.inf, S.lax.min, (3, 2), (2, 1), "SAME"), IMAGE),
    "ties": (lambda S, x: S.lax.reduce_window(S.jnp.round(x), -np.inf, S.lax.max, (3, 2), (1, 1), "SAME") * S.lax.reduce_window(x, 0.0, S.lax.add, (3, 2), (1, 1), "SAME"), IMAGE),
    "equal elements": (lambda S, x: S.lax.reduce_window(0 * x, -np.inf, S.lax.max, (3, 2), (2, 1), "VALID"), IMAGE),
    "equal elements, min": (lambda S, x: S.lax.reduce_window(0 * x, np.inf, S.lax.min, (5, 5), (1, 1), "VALID"), IMAGE),
    "nothing but padding": (lambda S, x: S.jnp.where(S.jnp.arange(9) < 7, 1, 0) * S.jnp.nan_to_num(S.lax.reduce_window(x, -np.inf, S.lax.max, (2,), (1,), [(1, 3)])), X),
    "reduce": (lambda S, x: S.lax.reduce(x, 0.0, mix, (1,)), IMAGE),
    "reduce, several": (lambda S, x: S.lax.reduce((x, 2 * x), (0.0, 0.0), lambda a, b: (a[0] + b[0], mix(a[1], b[1])), (0,)), IMAGE),
    "reduce, all": (lambda S, x: S.lax.reduce(x, 1.0, lambda a, b: a * b * 1.0, (0, 1)), M),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADS)
def test_derivatives(name):
    run, x = GRADS[name]

    def total(S):
        def loss(x):
            out = S.jax.tree.leaves(run(S, x))
            return sum((o * S.jnp.cos(S.jnp.arange(o.size, dtype=o.dtype).reshape(o.shape))).sum() for o in out)

        return loss

    def case(S, x):
        tangent = S.jnp.cos(3 * x)
        return S.jax.jvp(lambda x: run(S, x), (x,), (tangent,)), S.jax.grad(total(S))(x), S.jax.jit(S.jax.grad(total(S)))(x)

    # Sums are of a few normal numbers.
    check(case, x, ulps=64, cancels=1.0 if name.startswith(("sums", "ties", "reduce")) else 0.0)


@pytest.mark.parametrize("combine, init", [("max", -np.inf), ("add", 0.0)])
def test_second_derivatives(combine, init):
    def case(S, x):
        def loss(x):
            out = S.lax.reduce_window(x**2, init, getattr(S.lax, combine), (2,), (1,), [(1, 3)])
            return S.jnp.where(S.jnp.isfinite(out), out, 0).sum()

        return S.jax.hessian(loss)(x)

    check(case, X)


def test_maxima_of_batches_have_their_gradients():
    def case(S, x):
        return S.jax.vmap(S.jax.grad(lambda r: (S.lax.reduce_window(r, -np.inf, S.lax.max, (3,), (2,), "SAME") ** 2).sum()))(x)

    check(case, IMAGE)


def test_forward_derivatives_of_a_fold_are_jaxs():
    def case(S, x):
        return S.jax.jvp(lambda x: S.lax.reduce_window(x, 1.0, S.lax.mul, (3,), (1,), "SAME"), (x,), (x * 0.5,))

    check(case, X)


@pytest.mark.parametrize("size", [3, 70])
def test_reverse_derivatives_of_a_fold(size):
    """Which JAX has not: against finite differences, by the initial value and a captured value too."""
    x = RNG.normal(size=80) * 0.3

    def loss(x, init, scale):
        out = lax.reduce_window(x, init, lambda a, b: 0.9 * a + scale * b * b, (size,), (2,), "SAME")
        return (out * jnp.sin(jnp.arange(out.size))).sum()

    with ferrax.enable_x64(True):
        args = jnp.asarray(x), jnp.float64(0.5), jnp.float64(1.5)
        check_grads(loss, args, order=2, modes=("fwd", "rev"), rtol=1e-5, atol=1e-5)


def test_folds_capture_traced_values_and_batched_initial_values():
    sums = ferrax.jit(lambda x, y: lax.reduce_window(x, 0.0, lambda a, b: a + b * y, (2,)))(X, 2.0)
    np.testing.assert_allclose(sums, [6, 10, 14, 18, 22])
    products = ferrax.vmap(lambda i: lax.reduce_window(X, i, lax.mul, (2,)))(jnp.arange(2.0))
    np.testing.assert_allclose(products, [np.zeros(5), X[:-1] * X[1:]])


def test_a_fold_traces_its_function_once():
    calls = []

    def combine(a, b):
        calls.append(a)
        return a + b * b

    lax.reduce_window(jnp.asarray(X), 0.0, combine, (5,), (1,))
    assert len(calls) == 1


REDUCES = {
    "several operands": (lambda S, x: S.lax.reduce((x, S.lax.iota(np.int32, 6).reshape(2, 3)), (-np.inf, 0), first_greatest(S), (1,)), M),
    "sum and product": (lambda S, x: S.lax.reduce([x, x + 1], [0.0, 1.0], lambda a, b: [a[0] + b[0], a[1] * b[1]], (0, 1)), M),
    "generic": (lambda S, x: S.lax.reduce(x, 0.0, mix, (1,)), M),
    "composition": (lambda S, x: S.lax.reduce((x, 2 * x), (1.0, 0.0), affine, (0,)), IMAGE),
    "composition of all": (lambda S, x: composed(S, x, (1, 0)), IMAGE),
    "composition of the middle": (lambda S, x: composed(S, x, (2, 1)), VOLUME),
    "nothing": (lambda S, x: S.lax.reduce(x[:0], 1.0, mix, (0,)), M),
    "no rows": (lambda S, x: S.lax.reduce(x[:0], 1.0, mix, (1,)), M),
    "from a zero of another dtype": (lambda S, x: S.lax.reduce(x, 0, S.lax.add, (0,)), M),
    "jit and vmap": (lambda S, x: S.jax.jit(S.jax.vmap(lambda r: S.lax.reduce((r, 2 * r), (1.0, 0.0), affine, (0,))))(x), M),
    "integers": (lambda S, x: S.lax.reduce(x, np.int32(7), lambda a, b: (a & b) | (a ^ b), (0,)), X.astype("int32")),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCES)
def test_reduce(name):
    case, *args = REDUCES[name]
    check(case, *args)


def window_error(*args, operand=X, init=0.0, combine=None):
    return lambda S: S.lax.reduce_window(S.jax.tree.map(S.jnp.asarray, operand), init, combine or S.lax.add, *args)


ERRORS = {
    "rank": window_error((3, 1)),
    "no strides of a name": window_error((3,), "SAME"),
    "padding name": window_error((3,), (1,), "FOO"),
    "window 0": window_error((0,), (1,)),
    "stride 0": window_error((2,), (0,)),
    "float window": window_error((2.5,), (1,)),
    "float dilation": window_error((2,), (1,), "VALID", (1.5,)),
    "strides": window_error((2,), (1, 2)),
    "base dilation 0": window_error((2,), (1,), "VALID", (0,)),
    "window dilation 0": window_error((2,), (1,), "VALID", (1,), (0,)),
    "base dilations": window_error((2,), (1,), "VALID", (1, 1)),
    "window dilations": window_error((2,), (1,), [(0, 0)], (1,), (1, 1)),
    "pads": window_error((2,), (1,), [(1, 2), (1, 1)]),
    "init of a shape": window_error((2,), (1,), init=np.zeros(1, "float32")),
    "init of a dtype": window_error((2,), (1,), operand=X.astype("int32"), combine=mix),
    "trees": window_error((2,), (1,), operand=(X, X)),
    "shapes": window_error((2,), (1,), operand=(X, X[1:]), init=(0.0, 0.0), combine=lambda a, b: a),
    "no operand": window_error((2,), (1,), operand=(), init=()),
    "results' tree": window_error((2,), (1,), operand=(X, X), init=(0.0, 0.0), combine=lambda a, b: a[0]),
    "result's dtype": window_error((2,), (1,), combine=lambda a, b: (a + b).astype(int)),
    "result's shape": window_error((2,), (1,), combine=lambda a, b: (a + b)[None]),
    "no function": window_error((2,), (1,), combine=3),
    "bool sums": window_error((2,), (1,), operand=X > 3, init=False),
    "padtype": lambda S: S.lax.padtype_to_pads((6,), (2,), (1,), [(1, 1)]),
    "padtype name": lambda S: S.lax.padtype_to_pads((6,), (2,), (1,), "foo"),
    "reduce, trees": lambda S: S.lax.reduce((X, X), 0.0, mix, (0,)),
    "reduce, results' tree": lambda S: S.lax.reduce((X, X), (0.0, 0.0), lambda a, b: a[0], (0,)),
    "reduce, result's dtype": lambda S: S.lax.reduce(X, 0.0, lambda a, b: (a + b).astype(int), (0,)),
    "reduce, result's shape": lambda S: S.lax.reduce(X, 0.0, lambda a, b: (a + b)[None], (0,)),
    "reduce, init's shape": lambda S: S.lax.reduce(X, np.zeros(1, "float32"), mix, (0,)),
    "reduce, init's dtype": lambda S: S.lax.reduce(X, 0, mix, (0,)),
    "reduce, shapes": lambda S: S.lax.reduce((X, X[1:]), (0.0, 0.0), lambda a, b: a, (0,)),
    "reduce, axis twice": lambda S: S.lax.reduce(X, 0.0, mix, (0, 0)),
    "reduce, negative axis": lambda S: S.lax.reduce(X, 0.0, mix, (-1,)),
    "reduce, no function": lambda S: S.lax.reduce(X, 0.0, 3, (0,)),
}  # fmt: skip


@pytest.mark.raises("RuntimeError", "TypeError", "ValueError")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    check(lambda S: ERRORS[name](S))
    with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
        ERRORS[name](FERRAX)
    assert len(str(caught.value)) > 30


def test_strides_are_one_by_default():
    np.testing.assert_array_equal(
        lax.reduce_window(jnp.asarray(X), 0.0, lax.add, (2,), padding="SAME"),
        jax.lax.reduce_window(X, 0.0, jax.lax.add, (2,), (1,), "SAME"),
    )


@pytest.mark.parametrize("init", [0, 7])
@same
def test_over_no_axis_nothing_is_combined(S, init):
    x, start = S.jnp.ones((2, 3)), S.jnp.float32(init)
    combine = lambda a, b: a * b + a  # noqa: E731
    return S.lax.reduce(x, start, combine, ()), S.lax.reduce(x, start, S.lax.add, ())


STARTS = {"-inf": -np.inf, "inf": np.inf, "int8": np.int8(-128), "False": False, "0.0": 0.0, "2.5": 2.5}


def start_from(name, start, folded):
    def case(S, x):
        over = ((2,), (1,), "VALID") if folded == "reduce_window" else ((0,),)
        return getattr(S.lax, folded)(x, STARTS[start], getattr(S.lax, name), *over)

    check(case, np.arange(5, dtype=np.int32))


@pytest.mark.parametrize("start", ["max -inf", "max int8", "max False", "min inf", "add False", "add 0.0"])
@pytest.mark.parametrize("folded", ["reduce", "reduce_window"])
def test_identities_of_other_dtypes(folded, start):
    start_from(*start.split(), folded)


@pytest.mark.raises("TypeError")
@pytest.mark.parametrize("start", ["max inf", "max 0.0", "min -inf", "add 2.5", "bitwise_or 0.0"])
@pytest.mark.parametrize("folded", ["reduce", "reduce_window"])
def test_starts_of_other_dtypes(folded, start):
    start_from(*start.split(), folded)
