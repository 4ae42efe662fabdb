"""`jnp.linalg`: values, batches and derivatives beside the reference, errors, orders of products."""

import jax
import numpy as np
import pytest
from conformance_numpy import (
    ALL,
    BF16,
    COMPLEX,
    FLOATS,
    INTS,
    Row,
    check_batches,
    check_derivatives,
    check_values,
    parametrise,
    row,
)
from conformance_table import data
from numpy_oracle import check, expressions

import ferrax
import ferrax.numpy as jnp

INEXACT = (*FLOATS, *COMPLEX)
SOME = (np.float32, np.float64, BF16, np.complex64, np.int32, np.bool_)


def norm(ord, shape, name="norm", dtypes=None, **options):
    dtypes = dtypes or (SOME if options else ALL)
    label = f"{name} {shape} ord={ord} {' '.join(f'{k}={v}' for k, v in options.items())}"
    # XLA may compute the largest size apart from those that it is compared with: the derivative is then infinite.
    points = [(data(shape, np.float64, 5, special=False),)] if ord in (np.inf, -np.inf) else True
    return row(label, lambda S, x: getattr(S.jnp.linalg, name)(x, ord=ord, **options), shape,
               dtypes=dtypes, points=points)


NORMS = [
    *[norm(ord, (9,)) for ord in (None, 0, 1, 2, 3, 2.5, 0.5, -1, -2, np.inf, -np.inf)],
    *[norm(ord, (2, 3, 4), axis=1) for ord in (None, 0, 1, 2, 3, 0.5, np.inf, -np.inf)],
    *[norm(ord, (2, 3, 4), axis=(-1,), keepdims=True) for ord in (None, 2, 3, -np.inf)],
    *[norm(ord, (2, 3)) for ord in (None, "fro", "f", 1, -1, np.inf, -np.inf)],
    *[norm(ord, (2, 3, 4), axis=axis) for ord in ("fro", 1, -1, np.inf, -np.inf)
      for axis in ((0, 1), (2, 0), (-1, -2))],
    *[norm(ord, (2, 3, 4), axis=(2, 0), keepdims=True) for ord in (None, 1, -np.inf)],
    norm(None, ()), norm(None, (2, 3, 4)), norm(None, (2, 3, 4), keepdims=True), norm(None, (3, 0)),
    norm(1, (3, 0)), norm(np.inf, (3, 0)), norm(-1, (0, 3)), norm(3, (3, 0), axis=1),
    norm(np.nan, (9,), dtypes=FLOATS[:1]),
    *[norm(ord, (2, 3), "vector_norm") for ord in (1, np.inf, -np.inf)],
    *[norm(ord, (2, 3), "vector_norm", INEXACT) for ord in (2, 0, 3, 0.5, -2)],
    *[norm(ord, (2, 3, 4), "vector_norm", INEXACT, axis=(0, 2), keepdims=True)
      for ord in (None, 0, 1, 2, 3, np.inf, -np.inf)],
    *[norm(ord, (2, 3, 4), "matrix_norm") for ord in ("fro", None, 1, -1, np.inf, -np.inf)],
    norm("fro", (2, 3, 4), "matrix_norm", keepdims=True),
]


def function(name, *shapes, label="", **options):
    keywords = options.pop("keywords", {})
    return row(f"{name}{label} {shapes} {keywords or ''}",
               lambda S, *xs: getattr(S.jnp.linalg, name)(*xs, **keywords), *shapes, **options)


FUNCTIONS = [
    function("vecdot", (3,), (3,)), function("vecdot", (2, 3), (4, 1, 3)),
    function("vecdot", (3, 2), (3, 1), keywords={"axis": 0}), function("vecdot", (0,), (0,)),
    function("vecdot", (3,), (3,), label=" preferred", dtypes=(np.int8,),
             keywords={"preferred_element_type": "int32"}),
    function("matmul", (2, 3), (3, 4)), function("matmul", (3,), (2, 3, 4)),
    function("matmul", (2, 0), (0, 3)),
    function("matmul", (2, 3), (3,), label=" preferred", dtypes=(np.int8, np.float32),
             keywords={"preferred_element_type": "float64"}),
    function("outer", (3,), (4,)), function("outer", (0,), (4,)),
    function("cross", (3,), (3,), dtypes=ALL[:-1]), function("cross", (2, 3), (4, 1, 3), dtypes=ALL[:-1]),
    function("cross", (3, 2), (3, 2), keywords={"axis": 0}, dtypes=ALL[:-1]),
    function("tensordot", (2, 3), (2, 3)), function("tensordot", (2, 3), (4,), keywords={"axes": 0}),
    function("tensordot", (2, 3, 4), (4, 2), keywords={"axes": ((0, -1), (1, 0))}),
    function("trace", (3, 3)), function("trace", (2, 3, 4), keywords={"offset": 1}),
    function("trace", (2, 3, 4), keywords={"offset": -5}),
    function("trace", (3, 3), keywords={"dtype": "float32"}, dtypes=(*INTS, *FLOATS)),
    function("diagonal", (3, 3)), function("diagonal", (2, 3, 4), keywords={"offset": -1}),
    function("diagonal", (2, 3), keywords={"offset": 4}),
    function("matrix_transpose", (2, 3)), function("matrix_transpose", (2, 0, 3)),
    *[row(f"matrix_power {n}", lambda S, x, n=n: S.jnp.linalg.matrix_power(x, n), (3, 3))
      for n in (0, 1, 2, 3, 6)],
    row("matrix_power of a stack", lambda S, x: S.jnp.linalg.matrix_power(x, 3), (2, 2, 2)),
    row("matrix_power of nothing", lambda S, x: S.jnp.linalg.matrix_power(x, 0), (2, 0, 0)),
]


def chain(*shapes, **options):
    return row(f"multi_dot {shapes}", lambda S, *xs: S.jnp.linalg.multi_dot(xs), *shapes, **options)


FUNCTIONS += [
    chain((2, 3), (3, 4)), chain((2, 3), (3, 4), (4, 1), (1, 5)), chain((3,), (3, 4), (4,)),
    chain((3,), (3,)), chain((3,), (3, 4), (4, 2)), chain((2, 3), (3, 3), (3,)),
    chain((2, 0), (0, 3), (3, 2)),
    Row("multi_dot of several dtypes", lambda S, *xs: S.jnp.linalg.multi_dot(xs), [
        (np.ones((2, 3), np.int8), np.full((3, 2), 0.3, np.float16), np.full((2, 2), 100, np.int32)),
        (np.ones((2, 3), np.bool_), np.ones((3, 2), np.uint8), np.ones((2, 2), np.int8)),
    ]),
]

# Where norms have no derivative: zeros, ties, infinities.
SINGULAR = [
    Row(f"norm at singular points ord={ord}", lambda S, x, ord=ord: S.jnp.linalg.norm(x, ord=ord), [], [
        (np.zeros(3),), (np.array([0.0, 1.0, -2.0]),), (np.array([2.0, -2.0, 1.0]),),
        (np.array([1.0, np.inf, 2.0]),), (np.zeros(2, complex),), (np.array([0j, 1 + 2j]),),
    ])
    for ord in (None, 0, 1, 2, 3, 0.5, -1, np.inf, -np.inf)
] + [
    Row(f"norm of matrices at singular points ord={ord}", lambda S, x, ord=ord: S.jnp.linalg.norm(x, ord=ord), [], [
        (np.zeros((2, 2)),), (np.array([[1.0, -2.0], [2.0, 1.0]]),), (np.array([[0.0, 1.0], [0.0, 0.0]]),),
    ])
    for ord in ("fro", 1, -1, np.inf, -np.inf)
]


@parametrise(NORMS + FUNCTIONS)
def test_values(row):
    check_values(row)


@parametrise([r for r in NORMS + FUNCTIONS if r.batch])
def test_batches(row):
    check_batches(row)


@parametrise([r for r in NORMS + FUNCTIONS + SINGULAR if r.points])
def test_derivatives(row):
    check_derivatives(row)


@pytest.mark.parametrize("ord", [np.inf, -np.inf])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_derivatives_of_complex_extremes(axis, ord):
    """That of the size of the extreme element: `Re(conj(x) v) / |x|`."""
    x, v = (data((3, 4), np.complex128, seed, special=False) for seed in (1, 2))
    with ferrax.enable_x64(True):
        norm = lambda x: jnp.linalg.vector_norm(x, axis=axis, ord=ord)  # noqa: E731
        out, tangent = ferrax.jit(lambda x, v: ferrax.jvp(norm, (x,), (v,)))(x, v)
    is_extreme = np.abs(x) == np.expand_dims(out, () if axis is None else axis)
    expected = np.sum(np.where(is_extreme, (x.conj() * v).real / np.abs(x), 0), axis=axis)
    np.testing.assert_allclose(tangent, expected, rtol=1e-14)


ERRORS = """
l.norm([1.0, 2.0]); l.norm(None); l.norm(v, "fro"); l.norm(v, "nuc"); l.norm(v, "inf"); l.norm(v, "-inf")
l.norm(m, 3); l.norm(m, 0); l.norm(m, "x"); l.norm(m, nan); l.norm(t, 2); l.norm(t, "fro"); l.norm(2.0, 2)
l.norm(m, axis=(0, 0)); l.norm(m, axis=[0, 1]); l.norm(m, axis=(0, 2)); l.norm(m, axis=2); l.norm(m, axis=0.5)
l.norm(m, axis=()); l.norm(t, axis=(0, 1, 2)); l.norm(v, 1j); l.norm(v, v[0]); l.norm(n, -inf); l.norm(z, -inf)
l.norm(z.T, -1); l.vector_norm(m, ord="x"); l.vector_norm(m, axis=2); l.vector_norm(m, axis=(0, 0))
l.vector_norm(v, 2); l.matrix_norm(v); l.matrix_norm(m, ord=4); l.matrix_norm([[1.0]]); l.cross(m[:, :2], m[:, :2])
l.cross(v, v[0]); l.cross(v, [1, 2, 3]); l.outer(m, v); l.outer(v, 2.0); l.outer([1], v); l.trace(v)
l.trace([[1]]); l.diagonal(v); l.diagonal([[1]]); l.matrix_transpose(v); l.matrix_transpose([[1]])
l.matmul(m, 2); l.matmul(m, [1, 1]); l.matmul(m, m[:1]); l.matmul(v, v, v); l.tensordot(m, m, axes=3)
l.tensordot(m, m, axes=((0,), (0, 1))); l.tensordot(m, [1]); l.vecdot(m, v[:2]); l.vecdot(1.0, 2.0)
l.vecdot(v, v, axis=1); l.matrix_power(m, 1.5); l.matrix_power(m[:2], 1); l.matrix_power(v, 1)
l.matrix_power(m, v[0]); l.matrix_power([[1]], 2); l.multi_dot([v]); l.multi_dot([]); l.multi_dot([m])
l.multi_dot([m[:2], m[:2]]); l.multi_dot([t, m]); l.multi_dot([m, t]); l.multi_dot([m, v, m])
l.multi_dot([[[1]], m]); l.multi_dot([m, m, 1.0]); l.multi_dot(3); l.multi_dot([m, m], precision="bad")
"""


@pytest.mark.raises("AxisError", "TypeError", "ValueError")
@pytest.mark.parametrize("text", expressions(ERRORS))
def test_errors(text):
    code = compile(text, "<case>", "eval")
    with pytest.raises(Exception):  # noqa: B017  the class is compared below
        evaluate(jax.numpy, code)
    check(lambda n: evaluate(n, code))


def evaluate(n, code):
    scope = {"v": n.ones(3), "m": n.ones((3, 3)), "t": n.ones((2, 3, 3)), "z": n.ones((0, 3)), "n": n.ones(0)}
    return eval(code, {"l": n.linalg, "inf": np.inf, "nan": np.nan, **scope})


VALUES = """
l.norm(3.0); l.norm(3); l.norm(True); l.norm(2j); l.norm(v, np.float32(3)); l.norm(v, True); l.norm(v, np.int64(1))
l.vector_norm(3); l.vector_norm(3.0, ord=1); l.vector_norm(3.0, ord=3); l.vector_norm(2, ord=inf); l.vector_norm(v, ord=v[0])
l.vector_norm(m, axis=()); l.vector_norm(m, axis=[0, 1]); l.matrix_norm(m, ord=None); l.matrix_norm(m, ord=np.float32(1))
l.outer(n.ones(2, bool), n.ones(2, bool)); l.outer(n.ones(2, 'int8'), n.ones(2, 'uint8')); l.trace(n.ones((3, 3), 'uint8'))
l.trace(n.ones((3, 3), bool)); l.matrix_power(m, 0); l.matrix_power(n.ones((2, 2), bool), 5); l.matrix_power(m, True)
l.matrix_power(m, np.int8(2)); l.multi_dot(n.ones((3, 2, 2))); l.multi_dot((v, v)); l.multi_dot(iter([m, v]))
l.vecdot(n.array([1j, 2]), n.array([1j, 3])); l.norm(n.array([nan, 1.0])); l.norm(n.array([[inf, nan]]), 1)
l.norm(n.array([nan, inf]), inf); l.norm(n.array([-inf, 1.0]), -inf); l.norm(n.array([inf, 1.0]), 0.5)
l.norm(n.array([1e30, 1e30])); l.norm(n.array([300.0, 300.0], 'float16')); l.norm(n.array([-128], 'int8'))
"""


@pytest.mark.parametrize("text", expressions(VALUES))
def test_dtypes_and_special_values(text):
    code = compile(text, "<case>", "eval")
    scope = {"inf": np.inf, "nan": np.nan, "np": np, "iter": iter}
    check(lambda n: eval(code, {**scope, "n": n, "l": n.linalg, "v": n.ones(3), "m": n.ones((3, 3))}))


@pytest.mark.parametrize("ord", [2, -2, "nuc"])
def test_orders_of_singular_values(ord):
    matrix = np.random.default_rng(0).uniform(-2, 2, (3, 2, 2)).astype(np.float32)
    for call in (
        lambda n: n.linalg.norm(n.asarray(matrix[0]), ord),
        lambda n: n.linalg.norm(n.asarray(matrix), ord, axis=(0, 2)),
        lambda n: n.linalg.matrix_norm(n.asarray(matrix), ord=ord),
    ):
        check(call)
        check(call, jit=True)


def test_absent_names_say_what_to_use():
    import ferrax.numpy.linalg as linalg

    assert linalg is jnp.linalg
    with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
        linalg.nothing  # noqa: B018
    jax_names = {name for name in dir(jax.numpy.linalg) if not name.startswith("_")}
    assert {name for name in dir(linalg) if not name.startswith("_")} <= jax_names


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_vector_norms_of_integers_are_norms(dtype):
    """The reference wraps the squares, takes an order's inverse for 0, and refuses the order 0."""
    values = np.array([100, 0, 100, 1]).astype(dtype)
    for ord in (2, 3, 0.5, 0, -1):
        got = jnp.linalg.vector_norm(jnp.asarray(values), ord=ord)
        assert got.dtype == np.float32 and not got.weak_type
        with np.errstate(divide="ignore"):
            wanted = np.linalg.norm(values.astype(np.float64), ord)
        np.testing.assert_allclose(float(got), wanted, rtol=1e-6)


def test_orders_that_are_traced_are_refused():
    x = jnp.ones(3)
    with pytest.raises(ferrax.errors.ConcretizationTypeError, match="ord argument of jnp.linalg.vector_norm"):
        ferrax.jit(lambda p: jnp.linalg.vector_norm(x, ord=p))(3.0)


@pytest.mark.parametrize("seed", range(8))
def test_multi_dot_takes_the_cheapest_order(seed):
    """Against all orders; the multiplications are counted in the program."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, rng.integers(3, 8))
    arrays = [jnp.ones((int(m), int(n))) for m, n in zip(sizes, sizes[1:])]

    def cheapest(first, last):
        if first == last:
            return 0
        return min(cheapest(first, k) + cheapest(k + 1, last) + sizes[first] * sizes[k + 1] * sizes[last + 1]
                   for k in range(first, last))

    jaxpr = ferrax.make_jaxpr(lambda *xs: jnp.linalg.multi_dot(xs))(*arrays)
    products = [e for e in jaxpr.jaxpr.eqns if e.primitive.name == "dot_general"]
    cost = sum(int(np.prod(e.invars[0].aval.shape)) * e.outvars[0].aval.shape[-1] for e in products)
    assert len(products) == len(arrays) - 1 and cost == cheapest(0, len(arrays) - 1)


def test_precision_and_dtypes_reach_the_product():
    x = jnp.ones((2, 2))
    for call in (
        lambda x: jnp.linalg.matmul(x, x, precision="highest"),
        lambda x: jnp.linalg.multi_dot([x, x], precision="highest"),
        lambda x: jnp.linalg.vecdot(x, x, precision="highest"),
        lambda x: jnp.linalg.tensordot(x, x, precision="highest"),
    ):
        (product,) = [e for e in ferrax.make_jaxpr(call)(x).jaxpr.eqns if e.primitive.name == "dot_general"]
        assert "highest" in str(product.params["precision"]).lower()


@pytest.mark.parametrize("name", ["norm", "matrix_power"])
def test_jaxprs_name_the_function(name):
    jaxpr = ferrax.make_jaxpr(lambda x: getattr(jnp.linalg, name)(x, 1))(jnp.ones((2, 2)))
    assert f"name={name}" in str(jaxpr)
