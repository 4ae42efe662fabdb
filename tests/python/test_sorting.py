"""Sorting, partitioning and searching against the reference: orders of all dtypes, derivatives, errors."""

import jax
import jax.numpy as jax_numpy
import ml_dtypes
import numpy as np
import pytest
from numpy_oracle import cases, check
from oracle import compare_arrays

import ferrax
import ferrax.numpy as ferrax_numpy

NAN = np.nan
SPECIAL = [3.0, NAN, -0.0, 0.0, np.inf, -np.inf, -NAN, 1.0, -2.0, 0.0, -0.0, NAN, 1.0, -NAN]
PARTS = [0.0, -0.0, 1.0, NAN, -NAN, -np.inf]
FLOATS = ["float32", "float64", "float16", "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
          "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def lax_of(lib):
    return ferrax.lax if lib is ferrax_numpy else jax.lax


@pytest.fixture
def x64():
    with jax.enable_x64(True), ferrax.enable_x64(True):
        yield


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def samples(name):
    """Elements of a dtype with all that is special about it, as a NumPy array."""
    if name == "bool":
        return np.array([True, False, True, True, False])
    if name in INTEGERS:
        info = np.iinfo(name)
        return np.array([3, info.min, 0, info.max, 1, 3, info.max - 1, info.min + 1, 0], name)
    if name in ("int2", "int4", "uint2", "uint4"):
        info = ml_dtypes.iinfo(name)
        return np.array([1, info.min, 0, info.max, 1], dtype_of(name))
    if name.startswith("complex"):
        return np.array([complex(a, b) for a in PARTS for b in (*PARTS, 2.0)], name)
    if name == "float4_e2m1fn":
        return np.array([3.0, -0.0, 0.0, 6.0, -6.0, -2.0, 0.0, 1.5]).astype(dtype_of(name))
    return np.array(SPECIAL).astype(dtype_of(name))


def same_bits(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype == ml_dtypes.float8_e5m2:
        # The reference gives NaNs of this dtype other bits.
        np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
        return
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "name", [*FLOATS, *INTEGERS, "bool", "int4", "uint4", "complex64", "complex128"])
def test_order_of_every_dtype(name, x64):
    x = samples(name)
    places = np.arange(len(x), dtype=np.int32)
    for jit in (False, True):
        for keys in (1, 2):
            function = lambda lib, x, y, keys=keys: lib.sort((x, y), num_keys=keys)  # noqa: E731
            run = (lambda f, module: module.jit(f)) if jit else lambda f, module: f
            got = run(lambda x, y, f=function: f(ferrax.lax, x, y), ferrax)(
                ferrax_numpy.asarray(x), ferrax_numpy.asarray(places))
            expected = run(lambda x, y, f=function: f(jax.lax, x, y), jax)(
                jax_numpy.asarray(x), jax_numpy.asarray(places))
            for a, b in zip(got, expected):
                same_bits(a, b)
    same_bits(ferrax.lax.sort(ferrax_numpy.asarray(x)), jax.lax.sort(jax_numpy.asarray(x)))


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool"])
def test_largest_of_every_dtype(name, x64):
    x = samples(name)
    for k in (0, 1, 3, len(x)):
        got = ferrax.lax.top_k(ferrax_numpy.asarray(x), k)
        for a, b in zip(got, jax.lax.top_k(jax_numpy.asarray(x), k), strict=True):
            same_bits(a, b)


# Without the reference, which has no kernels for these.
@pytest.mark.parametrize("name", ["int2", "int4", "uint2", "uint4", "float4_e2m1fn"])
def test_narrow_numbers(name):
    x = samples(name)
    values, places = ferrax.lax.top_k(ferrax_numpy.asarray(x), 3)
    wide = x.astype(np.float32)
    # Of a zero and a negative zero only `top_k` makes a difference.
    order = np.lexsort((np.signbit(wide), -wide))[:3]
    assert np.asarray(places).tolist() == order.tolist()
    assert np.asarray(values).tolist() == x[order].tolist()
    got, places = ferrax.lax.sort((ferrax_numpy.asarray(x), ferrax_numpy.arange(len(x))))
    order = np.argsort(wide, kind="stable")
    assert np.asarray(places).tolist() == order.tolist()
    assert np.asarray(got).tolist() == x[order].tolist()


@pytest.mark.parametrize("keys", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_several_keys(keys, axis):
    rng = np.random.default_rng(keys)
    arrays = [rng.integers(0, 3, (7, 5)).astype(d) for d in (np.float32, np.int8, np.uint16)]
    arrays[0][::3] = NAN
    check(lambda n, *xs: lax_of(n).sort(xs, dimension=axis, num_keys=keys), *arrays)
    check(lambda n, *xs: lax_of(n).sort(list(xs), axis, False, keys)[:keys], *arrays, jit=True)


@pytest.mark.parametrize("length", [0, 1, 2, 63, 190, 700, 70_000])
def test_lengths(length):
    rng = np.random.default_rng(length)
    x = rng.standard_normal(length).astype(np.float32)
    x[rng.integers(0, max(length, 1), length // 5)] = rng.choice(np.array([0.0, -0.0, NAN], np.float32), length // 5)
    y = rng.integers(-9, 9, length)
    for module, lax in ((ferrax_numpy, ferrax.lax), (jax_numpy, jax.lax)):
        out = [lax.sort(module.asarray(x)), *lax.sort((module.asarray(y), module.asarray(x))),
               *lax.sort((module.asarray(x), module.asarray(y)), num_keys=2),
               *lax.top_k(module.asarray(x), length // 3)]
        if module is ferrax_numpy:
            got = out
    for a, b in zip(got, out, strict=True):
        same_bits(a, b)


def test_subnormal_numbers_are_not_zeros():
    x = np.array([1e-40, 0, -1e-40, 2e-40, -0.0], np.float32)
    _, places = ferrax.lax.sort((ferrax_numpy.asarray(x), ferrax_numpy.arange(5)))
    assert np.asarray(places).tolist() == [2, 1, 4, 0, 3]


def test_keys_of_generators_are_permuted_along():
    for module in (ferrax, jax):
        keys = module.random.split(module.random.key(0), 3)
        _, sorted_keys = module.lax.sort((module.numpy.array([2, 0, 1]), keys)) if module is ferrax else (
            None, keys[jax_numpy.array([1, 2, 0])])
        data = np.asarray(module.random.key_data(sorted_keys))
        if module is ferrax:
            got = data
    assert (got == data).all()
    with pytest.raises(TypeError, match="sort does not accept dtype key<fry>"):
        ferrax.lax.sort(ferrax.random.split(ferrax.random.key(0), 3))


def test_jaxpr():
    x = ferrax_numpy.ones((2, 3))
    text = str(ferrax.make_jaxpr(lambda x: ferrax.lax.sort((x, x), num_keys=2))(x))
    assert "sort[dimension=1 is_stable=True num_keys=2] a a" in text
    text = str(ferrax.make_jaxpr(lambda x: ferrax.lax.top_k(x, 2, axis=0))(x))
    assert "top_k[axis=0 k=2] a" in text
    assert ferrax.lax.sort_p.multiple_results and ferrax.lax.top_k_p.multiple_results
    (out,) = ferrax.lax.sort_p.bind(x, dimension=0, is_stable=True, num_keys=1)
    assert out.shape == (2, 3)


LAX = [
    ("sort scalars", lambda n: lax_of(n).sort(n.float32(1))),
    ("sort shapes", lambda n: lax_of(n).sort((n.ones(3), n.ones(4)))),
    ("sort dimension", lambda n: lax_of(n).sort(n.ones(3), dimension=1)),
    ("sort negative dimension", lambda n: lax_of(n).sort(n.ones(3), dimension=-2)),
    ("sort keys of one", lambda n: lax_of(n).sort(n.ones(3), num_keys=2)),
    ("sort keys", lambda n: lax_of(n).sort((n.ones(3), n.ones(3)), num_keys=3)),
    ("sort no keys", lambda n: lax_of(n).sort((n.ones(3), n.ones(3)), num_keys=0)),
    ("sort nothing", lambda n: lax_of(n).sort(())),
    ("sort empty", lambda n: lax_of(n).sort(n.ones((2, 0)))),
    ("sort a list of one", lambda n: lax_of(n).sort([n.arange(3)[::-1]])),
    ("sort weak", lambda n: lax_of(n).sort((n.broadcast_to(2.5, (3,)), n.arange(3)))),
    ("sort float dimension", lambda n: lax_of(n).sort(n.ones(3), dimension=0.0)),
    ("sort_key_val", lambda n: lax_of(n).sort_key_val(n.array([2, 1]), np.array([2, 1]))),
    ("sort_key_val shapes", lambda n: lax_of(n).sort_key_val(n.ones(3), n.ones((3, 2)))),
    ("sort_key_val scalar", lambda n: lax_of(n).sort_key_val(n.ones(3), 3)),
    ("sort_key_val dimension", lambda n: lax_of(n).sort_key_val(n.array([[2], [1]]), n.ones((2, 1)), 0)),
    ("top_k large", lambda n: lax_of(n).top_k(n.ones(3), 4)),
    ("top_k negative", lambda n: lax_of(n).top_k(n.ones(3), -1)),
    ("top_k scalar", lambda n: lax_of(n).top_k(n.float32(3), 1)),
    ("top_k complex", lambda n: lax_of(n).top_k(n.ones(3) + 1j, 1)),
    ("top_k axis", lambda n: lax_of(n).top_k(n.ones((3, 2)), 1, axis=2)),
    ("top_k float", lambda n: lax_of(n).top_k(n.ones(3), 1.5)),
    ("top_k list", lambda n: lax_of(n).top_k([1, 2], 1)),
    ("top_k numpy", lambda n: lax_of(n).top_k(np.array([1, 2]), 1)),
    ("top_k weak", lambda n: lax_of(n).top_k(n.broadcast_to(2.5, (3,)), 2)),
    ("top_k nothing", lambda n: lax_of(n).top_k(n.ones((2, 0)), 0)),
    ("top_k middle", lambda n: lax_of(n).top_k(n.arange(24).reshape(2, 3, 4) % 7, 2, axis=1)),
]


@cases(LAX)
def test_lax(row):
    check(row[1])


TABLE = np.array([[3.0, 1.0, NAN, 2.0], [0.0, -0.0, 5.0, NAN], [7.0, 1.0, 1.0, -np.inf]], np.float32)
INTS = np.array([[3, -128, 7], [127, 0, -1]], np.int8)
WORDS = np.array([[3, 255, 7], [200, 0, 1]], np.uint8)
NUMPY = """
n.sort(x); n.sort(x, axis=0); n.sort(x, axis=None); n.sort(x, descending=True); n.sort(x, 0, stable=False)
n.argsort(x); n.argsort(x, axis=0); n.argsort(x, axis=None); n.argsort(x, descending=True)
n.argsort(x, axis=None, descending=True); n.argsort(x, dtype="int8"); n.argsort(x, dtype="float32")
n.argsort(x, axis=0, dtype="uint8", descending=True)
n.sort(x, axis=2); n.sort(x, axis=-3); n.sort(x, kind="quicksort"); n.sort(x, order="a"); n.sort([1, 2])
n.argsort(x, kind="quicksort"); n.argsort(x, order="a"); n.argsort([1, 2]); n.argsort(x, dtype="nothing")
n.sort(3); n.sort(3, axis=None); n.argsort(3); n.argsort(3, axis=None); n.sort(n.ones((2, 0))); n.argsort(n.ones((0, 2)), 0)
n.sort(n.broadcast_to(2.5, (3,))); n.argsort(n.broadcast_to(2.5, (3,)))
x.sort(); x.sort(0); x.argsort(); x.argsort(axis=0, descending=True); x.sort(descending=True); x.argsort(0, dtype="int8")
x.sort(kind="a"); x.sort(order="a"); x.argsort(kind="a"); x.argpartition(1); x[0].searchsorted(2); x.partition(1)
n.lexsort((x, x)); n.lexsort(x); n.lexsort((x[0], x[1])); n.lexsort((x, x), axis=0); n.lexsort(()); n.lexsort((1, 2)); n.lexsort(3)
n.lexsort((n.ones(2), n.ones(3))); n.lexsort([[1, 2], [3, 4]]); n.lexsort((x, x), axis=2); n.lexsort([x[0], x[1] > 1])
n.partition(x, 1); n.partition(x, -1); n.partition(x, 0, axis=0); n.partition(x, 3); n.partition(x, -5); n.partition(x, 1, axis=None)
n.partition(x, (1, 2)); n.partition(3, 0); n.partition(n.ones((2, 0)), 0); n.partition(x > 1, 1); n.partition([1, 2], 1)
n.partition(x + 0j, 1); n.argpartition(x + 0j, 1); n.argpartition(x, 1); n.argpartition(x, -1); n.argpartition(x, 0, axis=0)
n.argpartition(x, 4); n.argpartition(3, 0); n.partition(x, 2.0); n.partition(x, 1, axis=5)
n.sort_complex(x); n.sort_complex(x[0] * 1j); n.sort_complex(3); n.sort_complex([1])
"""


@pytest.mark.parametrize("expression", [e.strip() for line in NUMPY.strip().splitlines() for e in line.split("; ")])
@pytest.mark.parametrize("x", [TABLE, WORDS], ids=["f32", "u8"])
def test_numpy(expression, x):
    code = compile(expression, "table", "eval")
    check(lambda n, x: eval(code, {"n": n, "x": x}), x)


def test_partition_keeps_the_least_integer():
    x = ferrax_numpy.asarray(INTS)
    for kth in range(3):
        rows = np.asarray(ferrax_numpy.partition(x, kth))
        assert rows[:, kth].tolist() == np.sort(INTS, -1)[:, kth].tolist()
        assert sorted(rows[0].tolist()) == sorted(INTS[0].tolist())
        places = np.asarray(ferrax_numpy.argpartition(x, kth))
        assert np.take_along_axis(INTS, places, -1)[:, kth].tolist() == rows[:, kth].tolist()


EDGES = np.array([-np.inf, -1.0, -0.0, 0.0, 2.0, 2.0, np.inf, NAN], np.float32)
QUERIES = np.array([[NAN, 0.0, 2.0], [3.0, -np.inf, -5.0]], np.float32)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["scan", "scan_unrolled", "sort", "compare_all"])
def test_searchsorted(method, side):
    find = lambda n, a, v, **kw: n.searchsorted(a, v, side, method=method, **kw)  # noqa: E731
    for jit in (False, True):
        check(find, EDGES, QUERIES, jit=jit)
    check(find, EDGES[:1], QUERIES)
    check(find, EDGES[:0], QUERIES)
    check(find, EDGES, QUERIES[:, :0])
    check(find, EDGES, 1)
    check(find, np.array([1, 3, 200], np.uint8), np.array([0, 2, 3, 300]))
    check(find, np.array([1 + 1j, 1 + 2j, 2]), np.array([1 + 1.5j, 1 + 2j, 0, complex(1, NAN)]))
    check(lambda n, a, v: find(n, a, v, sorter=n.argsort(a)), EDGES[::-1].copy(), QUERIES)
    x = np.sort(np.random.default_rng(0).standard_normal(300)).astype(np.float32)
    check(find, x, np.concatenate([x, x + 0.01, [9.0, -9.0]]).astype(np.float32))


SEARCHES = [
    ("axes", lambda n: n.searchsorted(n.ones((2, 2)), 1)),
    ("side", lambda n: n.searchsorted(n.ones(2), 1, side="a")),
    ("method", lambda n: n.searchsorted(n.ones(2), 1, method="a")),
    ("list", lambda n: n.searchsorted([1, 2], 1)),
    ("sorter", lambda n: n.searchsorted(n.ones(2), 1, sorter=[0, 1])),
    ("up", lambda n: n.digitize(n.arange(5), n.array([1, 2, 3]))),
    ("up, right", lambda n: n.digitize(n.arange(5), n.array([1, 2, 3]), right=True)),
    ("down", lambda n: n.digitize(n.arange(5), n.array([3, 2, 1]))),
    ("down, right", lambda n: n.digitize(n.arange(5.0), n.array([3, 2, 1]), right=True, method="sort")),
    ("equal", lambda n: n.digitize(n.arange(3), n.ones(4))),
    ("no edges", lambda n: n.digitize(n.arange(3), n.ones(0))),
    ("edges of two axes", lambda n: n.digitize(n.arange(3), n.ones((2, 2)))),
    ("list of edges", lambda n: n.digitize(1, [1, 2])),
    ("digitize method", lambda n: n.digitize(1, n.ones(2), method="a")),
]


@cases(SEARCHES)
def test_search_arguments(row):
    check(row[1])


def both(function, *args):
    """The function of (module, numpy, lax) on both sides."""
    got = function(ferrax, ferrax_numpy, ferrax.lax, *map(ferrax_numpy.asarray, args))
    return got, function(jax, jax_numpy, jax.lax, *map(jax_numpy.asarray, args))


X = np.array([[0.3, -1.0, 2.0, 0.7], [5.0, 0.1, 0.2, -3.0]], np.float32)
TIES = np.array([[1.0, 1.0, 0.0, 1.0], [-0.0, 0.0, 2.0, 2.0]], np.float32)
DIFFERENTIABLE = {
    "sort": lambda np_, lax, x: np_.sort(x) * np_.arange(4.0),
    "sort of columns": lambda np_, lax, x: np_.sort(x, axis=0) * x,
    "descending": lambda np_, lax, x: np_.sort(x, descending=True) * np_.arange(4.0),
    "values": lambda np_, lax, x: lax.sort((x, x * x), num_keys=1)[1] * np_.arange(4.0),
    "integer keys": lambda np_, lax, x: lax.sort((np_.int32(x), x * x))[1] * np_.arange(4.0),
    "two keys": lambda np_, lax, x: lax.sort((np_.round(x), x), num_keys=2)[1] ** 2,
    "top_k": lambda np_, lax, x: lax.top_k(x * x, 2)[0] * np_.arange(2.0),
    "top_k of columns": lambda np_, lax, x: lax.top_k(x, 1, axis=0)[0] ** 3,
    "partition": lambda np_, lax, x: np_.partition(x, 1) * np_.arange(4.0),
}


@pytest.mark.parametrize("x", [X, TIES], ids=["distinct", "ties"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name, x):
    function = DIFFERENTIABLE[name]

    def derivatives(module, np_, lax, x):
        f = lambda x: (function(np_, lax, x) ** 2).sum()  # noqa: E731
        tangent = np_.cos(np_.arange(8.0)).reshape(2, 4)
        lanes = np_.stack([x, -x, 2 * x], 1)
        return [
            module.grad(f)(x),
            module.jit(module.grad(f))(x),
            *module.jvp(lambda x: function(np_, lax, x), (x,), (tangent,)),
            module.hessian(f)(x),
            module.jvp(module.grad(f), (x,), (tangent,))[1],
            module.vmap(module.grad(f), in_axes=1, out_axes=2)(lanes),
            module.linearize(f, x)[1](tangent),
        ]

    for got, expected in zip(*both(derivatives, x), strict=True):
        compare_arrays(got, expected)


@pytest.mark.parametrize("axes", [(0, 0), (1, 0), (2, None), (None, 1), (-1, -2)])
def test_vmap(axes):
    x, y = np.random.default_rng(0).integers(0, 4, (2, 3, 3, 3)).astype(np.float32)

    def lanes(module, np_, lax, x, y):
        arguments = x if axes[0] is not None else x[0], y if axes[1] is not None else y[0]
        run = lambda f, *args, in_axes: module.vmap(f, in_axes=in_axes)(*args)  # noqa: E731
        out = [
            *run(lambda x, y: lax.sort((x, y), dimension=0), *arguments, in_axes=axes),
            *run(lambda x, y: lax.sort((x, y), num_keys=2), *arguments, in_axes=axes),
            *run(lambda x, y: lax.sort_key_val(x, y), *arguments, in_axes=axes),
        ]
        for axis in axes:
            if axis is not None:
                out += run(lambda x: lax.top_k(x, 2), x, in_axes=axis)
                out += run(lambda x: lax.top_k(x, 2, axis=0), x, in_axes=axis)
        return out

    for got, expected in zip(*both(lanes, x, y), strict=True):
        same_bits(got, expected)


def test_sorting_is_not_linear():
    for function in (ferrax.lax.sort, lambda x: ferrax.lax.top_k(x, 3)[0]):
        with pytest.raises(NotImplementedError, match="no transpose rule"):
            ferrax.linear_transpose(function, ferrax_numpy.ones(3))(ferrax_numpy.ones(3))


def test_tangents_of_integers():
    def tangents(module, np_, lax, x):
        none = np.zeros(x.shape, module.dtypes.float0)
        out, tangent = module.jvp(lambda x, i: lax.sort((x, i)), (x, np_.arange(4)), (x, none))
        assert tangent[1].dtype == module.dtypes.float0
        return [*out, tangent[0]]

    for got, expected in zip(*both(tangents, X[0]), strict=True):
        same_bits(got, expected)


def test_jet_of_sorted_series():
    def function(x):
        values, squares = ferrax.lax.sort((ferrax_numpy.sin(x), x * x))
        return values * ferrax_numpy.arange(4.0) + squares + ferrax.lax.top_k(x**3, 4)[0]

    from ferrax.experimental import jet

    x, v = X[0], np.float32([1.0, -2.0, 0.5, 1.5])
    primal, (first, second) = jet.jet(function, (x,), ((v, np.zeros(4, np.float32)),))
    along = lambda t: function(x + t * v)  # noqa: E731
    np.testing.assert_allclose(primal, function(x), rtol=1e-6)
    np.testing.assert_allclose(first, ferrax.jacfwd(along)(0.0), rtol=1e-5)
    np.testing.assert_allclose(second, ferrax.jacfwd(ferrax.jacfwd(along))(0.0), rtol=1e-4, atol=1e-5)


def test_checks_pass_through_sorts():
    from ferrax.experimental import checkify

    function = checkify.checkify(lambda x: ferrax_numpy.log(ferrax_numpy.sort(x)), errors=checkify.all_checks)
    error, _ = ferrax.jit(function)(ferrax_numpy.array([3.0, 1.0]))
    assert error.get() is None
    error, _ = ferrax.jit(function)(ferrax_numpy.array([3.0, -1.0]))
    assert "nan generated by primitive: log" in error.get()
