"""Sparse arrays beside the reference: as dense arrays, with derivatives, in batches."""

import numpy as np
import pytest
import scipy.sparse
from oracle import FERRAX, JAX, attempt, compare, module, same

import ferrax


def sparse(S):
    return module(S, "experimental.sparse")


def dense(S, shape=(3, 4), seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return S.jnp.asarray((rng.integers(-4, 5, shape) * (rng.random(shape) < 0.5)).astype(dtype))


def bcoo(S, shape=(3, 4), seed=0, nse=None, **layout):
    return sparse(S).BCOO.fromdense(dense(S, shape, seed), nse=nse, **layout)


def padded(S, shape=(3, 4), seed=0, **layout):
    """With two elements of padding and two at one place."""
    mat = bcoo(S, shape, seed, **layout)
    more = sparse(S).BCOO.fromdense(dense(S, shape, seed), nse=mat.nse + 2, **layout)
    axis = more.n_batch
    data = S.jnp.concatenate([more.data, more.data[(slice(None),) * axis + (slice(2),)]], axis)
    indices = S.jnp.concatenate(
        [more.indices, more.indices[(slice(None),) * axis + (slice(2),)]], axis
    )
    return sparse(S).BCOO((data, indices), shape=shape)


def shown(x):
    """A sparse array as a dense one and its kind; others as they are."""
    if hasattr(x, "todense"):
        return [x.todense(), type(x).__name__, tuple(x.shape)]
    return [shown(y) for y in x] if isinstance(x, (list, tuple)) else x


UNARY = {
    "todense": lambda S, m: [m.todense(), sparse(S).todense(m)],
    "sort": lambda S, m: m.sort_indices(),
    "duplicates": lambda S, m: [m.sum_duplicates(), m.sum_duplicates(nse=9).data, m.sum_duplicates(remove_zeros=False)],
    "neg": lambda S, m: [-m, abs(m), m**2, m * 3, 2.0 * m, m / 2],
    "sum": lambda S, m: [m.sum(), m.sum(0), m.sum(1), m.sum((0, 1))],
    "transpose": lambda S, m: [m.T, m.transpose((0, 1)), m.transpose((1, 0)).T],
    "reshape": lambda S, m: [m.reshape(4, 3), m.reshape(-1), m.reshape(2, 1, 6), m.astype("int32")],
    "index": lambda S, m: [m[0], m[-1, 1:], m[:, 2], m[1:3, ::2], m[:, None], m[S.jnp.array([2, 0, 2])], m[..., ::-1]],
    "layout": lambda S, m: [m.update_layout(n_batch=b, n_dense=d, on_inefficient=None) for b, d in ((0, 1), (1, 0), (1, 1), (2, 0), (0, 2))],
    "dense": lambda S, m: [m + dense(S, seed=5), m * dense(S, seed=5), m * dense(S, (4,), 5), m * dense(S, (3, 1), 5)],
    "vector": lambda S, m: [m @ dense(S, (4,), 1), dense(S, (3,), 1) @ m, m @ dense(S, (4, 2), 1), dense(S, (2, 3), 1) @ m],
    "sparse": lambda S, m: [m @ bcoo(S, (4, 2), 1), m + bcoo(S, seed=1), m - bcoo(S, seed=1), m * bcoo(S, seed=1), m @ m.T],
    "extract": lambda S, m: [sparse(S).bcoo_extract(m, dense(S, seed=3)), sparse(S).bcoo_extract(m.sum_duplicates(), dense(S, seed=3)).data],
    "slices": lambda S, m: [
        sparse(S).bcoo_slice(m, start_indices=(0, 1), limit_indices=(3, 4), strides=(2, 1)),
        sparse(S).bcoo_dynamic_slice(m, (S.jnp.int32(1), S.jnp.int32(9)), (2, 2)), sparse(S).bcoo_rev(m, (0, 1)),
    ],
    "joined": lambda S, m: [sparse(S).bcoo_concatenate([m, bcoo(S, seed=2), m], dimension=k) for k in (0, 1)],
    "broadcast": lambda S, m: [
        sparse(S).bcoo_broadcast_in_dim(m, shape=(3, 1, 4), broadcast_dimensions=(0, 2)),
        sparse(S).bcoo_squeeze(m[:, None], dimensions=(1,)),
    ],
    "iterate": lambda S, m: [list(m), len(m), m.ndim, m.size, m.dtype.name],
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("make", [bcoo, padded])
@same
def test_matrices(S, make, name):
    return shown(UNARY[name](S, make(S)))


LAYOUTS = [{"n_batch": 1}, {"n_dense": 1}, {"n_batch": 1, "n_dense": 1}, {}]
CUBES = {
    "todense": lambda S, m: [m.todense(), m.data.shape, m.indices.shape],
    "sum": lambda S, m: [m.sum(k) for k in (0, 1, 2, (0, 1), (1, 2))],
    "slice": lambda S, m: sparse(S).bcoo_slice(m, start_indices=(0, 1, 1), limit_indices=(2, 3, 4)),
    "dynamic": lambda S, m: sparse(S).bcoo_dynamic_slice(m, [S.jnp.int32(k) for k in (1, 0, 2)], (1, 2, 2)),
    "reshape": lambda S, m: sparse(S).bcoo_reshape(m, new_sizes=(2, 3, 2, 2) if m.n_dense == 0 else (2, 3, 4)),
    "joined": lambda S, m: [sparse(S).bcoo_concatenate([m, m], dimension=k) for k in range(3 - m.n_dense)],
    "multiply": lambda S, m: [sparse(S).bcoo_multiply_sparse(m, m), sparse(S).bcoo_multiply_dense(m, dense(S, (3, 1), 1))],
    "rev": lambda S, m: sparse(S).bcoo_rev(m, (0, 1, 2)),
    "duplicates": lambda S, m: m.sum_duplicates(),
    "layout": lambda S, m: m.update_layout(n_batch=0, n_dense=0),
    "compiled": lambda S, m: S.jax.jit(lambda m: 2 * m)(m),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", CUBES)
@same
def test_layouts(S, layout, name):
    return shown(CUBES[name](S, bcoo(S, (2, 3, 4), 0, **layout)))


PRODUCTS = [
    ({}, (2, 3, 4), (4, 5), (((2,), (0,)), ((), ()))),
    ({}, (2, 3, 4), (3, 2), (((0, 1), (1, 0)), ((), ()))),
    ({"n_batch": 1}, (2, 3, 4), (2, 4), (((2,), (1,)), ((0,), (0,)))),
    ({"n_batch": 1}, (2, 3, 4), (4, 5), (((2,), (0,)), ((), ()))),
    ({"n_batch": 1}, (2, 3, 4), (2, 4), (((0, 2), (0, 1)), ((), ()))),
    ({}, (2, 3), (4,), (((), ()), ((), ()))),
]


@pytest.mark.parametrize("layout, lhs, rhs, numbers", PRODUCTS, ids=str)
@same
def test_products(S, layout, lhs, rhs, numbers):
    mat, other = bcoo(S, lhs, 0, **layout), dense(S, rhs, 1)

    def product(data, other):
        left = sparse(S).BCOO((data, mat.indices), shape=mat.shape)
        return sparse(S).bcoo_dot_general(left, other, dimension_numbers=numbers)

    both = S.jax.jit(S.jax.value_and_grad(lambda *args: S.jnp.sum(product(*args) ** 2), (0, 1)))(
        mat.data, other
    )
    swapped = tuple(pair[::-1] for pair in numbers)
    return (
        product(mat.data, other),
        sparse(S).bcoo_dot_general(other, mat, dimension_numbers=swapped),
        both,
    )


@same
def test_products_of_sparse_arrays_and_samples(S):
    m, n = bcoo(S, (2, 3, 4), 0, n_batch=1), bcoo(S, (2, 4, 5), 1, n_batch=1)
    batched = sparse(S).bcoo_dot_general(m, n, dimension_numbers=(((2,), (1,)), ((0,), (0,))))
    a, b = dense(S, (3, 4), 2), dense(S, (4, 5), 3)
    places = S.jnp.array([[0, 1], [2, 4], [3, 0]])

    def sampled(a, b):
        numbers = (((1,), (0,)), ((), ()))
        return sparse(S).bcoo_dot_general_sampled(a, b, places, dimension_numbers=numbers)

    slopes = S.jax.grad(lambda a, b: S.jnp.sum(sampled(a, b) ** 2), (0, 1))(a, b)
    return shown(batched), sampled(a, b), slopes


@same
def test_derivatives(S):
    s, m, v = sparse(S), bcoo(S), dense(S, (4,), 1)
    f = lambda m, v: S.jnp.sum((m @ v) ** 2)  # noqa: E731
    grads = s.grad(f, argnums=(0, 1))(m, v)
    value, one = s.value_and_grad(f)(m, v)
    forward, backward = s.jacfwd(lambda m: m @ v)(m), s.jacrev(lambda m: m @ v)(m)
    through = S.jax.jvp(
        lambda x: s.BCOO.fromdense(x, nse=5).todense(), (dense(S),), (dense(S, seed=1),)
    )
    back = S.jax.grad(lambda x: S.jnp.sum(s.bcoo_extract(m, x).data ** 2))(dense(S, seed=4))
    twice = S.jax.hessian(lambda d: f(s.BCOO((d, m.indices), shape=m.shape), v))(m.data)
    return shown([*grads, value, one, forward, backward, through, back, twice])


@same
def test_batches(S):
    s, m = sparse(S), bcoo(S, (2, 3, 4), n_batch=1)
    product = lambda m: m @ S.jnp.ones(4)  # noqa: E731
    made = S.jax.vmap(lambda x: s.BCOO.fromdense(x, nse=4))(dense(S, (2, 3, 4)))
    return shown(
        [
            S.jax.vmap(product)(m),
            S.jax.jit(S.jax.vmap(lambda m: m.T))(m),
            made,
            S.jax.vmap(s.BCOO.todense)(m),
        ]
    )


def loops(S, m, v):
    lax, n = S.lax, S.jnp
    doubled = lax.fori_loop(0, 3, lambda i, x: (x[0] * 2.0, x[1]), (m, v))[0]
    chosen = lax.cond(n.sum(v) > 0, lambda m: m * 2.0, lambda m: m * 3.0, m)
    scanned = lax.scan(lambda c, _: (c * 2.0, None), m, None, 2)[0]
    return (
        doubled,
        chosen,
        scanned,
        n.sqrt(n.abs(m)),
        n.tanh(m),
        S.jax.jit(n.sin)(m),
        n.squeeze(m[:1]),
        n.concatenate([m, m]),
    )


@same
def test_functions_made_sparse(S):
    s, m, v = sparse(S), bcoo(S).sum_duplicates(), dense(S, (4,), 1)
    f = s.sparsify(lambda m, v: (2 * m.T.T @ v, {"t": m.T, "v": v + 1, "d": s.todense(m) + 1}))
    out, tree = f(m, v)
    return shown(
        [out, tree["t"], tree["v"], tree["d"], s.sparsify(lambda m, v: loops(S, m, v))(m, v)]
    )


@same
def test_convolutions(S):
    x, k = sparse(S).BCOO.fromdense(dense(S, (1, 1, 9))), dense(S, (1, 1, 3), 2)
    conv = sparse(S).bcoo_conv_general_dilated
    return shown([conv(x, k, window_strides=(1,), padding=p) for p in ("SAME", "VALID", [(1, 2)])])


@pytest.mark.parametrize("name", ["BCSR", "COO", "CSR", "CSC"])
@same
def test_other_formats(S, name):
    s = sparse(S)
    cls, x = getattr(s, name), dense(S)
    m, v = cls.fromdense(x), dense(S, (4,), 1)
    results = [m, cls.fromdense(x, nse=9), m @ v, m @ dense(S, (4, 2), 1), m.nse, m.dtype.name]
    empty = s.empty((2, 3), sparse_format=name.lower())
    if name == "BCSR":
        results += [
            m.to_bcoo(),
            cls.from_bcoo(bcoo(S)),
            m.indptr,
            m.indices,
            s.bcsr_concatenate([m, m], dimension=1),
        ]
        results += [
            cls.fromdense(dense(S, (2, 3, 4)), n_batch=1) @ v,
            m.sum_duplicates(nse=7),
            s.bcsr_extract(m.indices, m.indptr, x),
        ]
    else:
        results += [m.T, s.eye(3, 4, 1, sparse_format=name.lower())]
    return shown([*results, empty, S.jax.jit(lambda m: m @ v)(m)])


@same
def test_coordinates_and_rows_as_functions(S):
    s, x, v = sparse(S), dense(S), dense(S, (3,), 1)
    coo, csr = s.coo_fromdense(x), s.csr_fromdense(x)
    products = [s.coo_matvec(coo, v, transpose=True), s.csr_matvec(csr, v, transpose=True)]
    products += [
        s.coo_matmat(coo, dense(S, (4, 2))),
        s.csr_matmat(csr, dense(S, (3, 2)), transpose=True),
    ]
    return [
        coo.row,
        coo.col,
        csr.indices,
        csr.indptr,
        s.coo_todense(coo),
        s.csr_todense(csr),
        *products,
    ]


@same
def test_made_arrays(S):
    s, key = sparse(S), S.random.key(0)
    made = [
        s.eye(3),
        s.eye(3, 4, k=1),
        s.eye(4, 3, k=-1, n_batch=1),
        s.eye(3, n_dense=1),
        s.empty((2, 3)),
        s.empty((2, 3), nse=2, n_batch=1),
    ]
    made += [
        s.random_bcoo(key, (4, 5)),
        s.random_bcoo(key, (2, 6, 3), nse=3, n_batch=1, n_dense=1, sorted_indices=True),
    ]
    return shown(made), [repr(m) for m in made if hasattr(m, "nse")]


DENSE_PRODUCTS = [
    ({"n_dense": 1}, (2, 3, 4), (3, 5), (((1,), (0,)), ((), ()))),
    ({"n_batch": 1, "n_dense": 1}, (2, 3, 4), (5, 2, 3), (((1,), (2,)), ((0,), (1,)))),
]


@pytest.mark.parametrize("layout, lhs, rhs, numbers", DENSE_PRODUCTS, ids=str)
def test_products_with_dense_axes(layout, lhs, rhs, numbers):
    """The reference has no derivatives of these."""
    mat, whole, other = bcoo(FERRAX, lhs, 0, **layout), dense(FERRAX, lhs), dense(FERRAX, rhs, 1)

    def product(m, other):
        if isinstance(m, sparse(FERRAX).BCOO):
            return sparse(FERRAX).bcoo_dot_general(m, other, dimension_numbers=numbers)
        return ferrax.lax.dot_general(m, other, numbers)

    def loss(m, other):
        return (product(m, other) ** 2).sum()

    np.testing.assert_array_equal(product(mat, other), product(whole, other))
    ours = sparse(FERRAX).grad(loss, argnums=(0, 1))(mat, other)
    theirs = ferrax.grad(loss, argnums=(0, 1))(whole, other)
    np.testing.assert_array_equal(ours[1], theirs[1])
    np.testing.assert_array_equal(ours[0].data, sparse(FERRAX).bcoo_extract(mat, theirs[0]).data)


def test_dense_axes_are_joined_and_reshaped():
    """The reference refuses these."""
    x = dense(FERRAX, (2, 3, 4))
    for layout in ({"n_dense": 1}, {"n_batch": 1, "n_dense": 1}):
        m = bcoo(FERRAX, (2, 3, 4), **layout)
        joined = sparse(FERRAX).bcoo_concatenate([m, m], dimension=2)
        np.testing.assert_array_equal(joined.todense(), np.concatenate([x, x], 2))
        for shape in ((2, 1, 3, 4), (6, 4), (4, 6)):
            np.testing.assert_array_equal(m.reshape(shape).todense(), np.reshape(x, shape))


def test_from_scipy():
    x = scipy.sparse.random(5, 4, 0.4, format="coo", random_state=0, dtype=np.float32)
    for cls in (ferrax.experimental.sparse.BCOO, ferrax.experimental.sparse.BCSR):
        np.testing.assert_array_equal(cls.from_scipy_sparse(x).todense(), x.todense())


@pytest.mark.parametrize("name", ["BCOO", "BCSR", "COO", "CSR", "CSC"])
def test_gradients_of_all_formats(name):
    """Those of the dense array at the stored elements; the reference's are wrong for CSC."""
    x, v = dense(FERRAX), dense(FERRAX, (4,), 1)
    mat = getattr(sparse(FERRAX), name).fromdense(x)
    gradient = sparse(FERRAX).grad(lambda m: ((m @ v) ** 2).sum())(mat)
    assert type(gradient) is type(mat)
    np.testing.assert_array_equal(gradient.todense(), 2 * np.outer(x @ v, v) * (np.asarray(x) != 0))


def test_a_gradient_has_the_places_of_its_argument():
    s = sparse(FERRAX)
    gradient = s.grad(lambda m: (m @ np.ones(4, np.float32)).sum())(bcoo(FERRAX))
    np.testing.assert_array_equal(gradient.indices, bcoo(FERRAX).indices)


ERRORS = {
    "shape": lambda S, s: s.BCOO((S.jnp.ones(3), S.jnp.zeros((2, 1), int)), shape=(4,)),
    "batches": lambda S, s: s.BCOO((S.jnp.ones((2, 3)), S.jnp.zeros((3, 3, 1), int)), shape=(3, 4)),
    "permutation": lambda S, s: bcoo(S, n_batch=1).T,
    "inefficient": lambda S, s: bcoo(S).update_layout(n_dense=1),
    "negative": lambda S, s: bcoo(S).update_layout(n_dense=-1),
    "option": lambda S, s: bcoo(S).update_layout(n_dense=1, on_inefficient="maybe"),
    "cos": lambda S, s: s.sparsify(S.jnp.cos)(bcoo(S)),
    "subtract": lambda S, s: bcoo(S) - S.jnp.ones((3, 4)),
    "divide": lambda S, s: 1.0 / bcoo(S),
    "compare": lambda S, s: bcoo(S) > 1.0,
    "zeroth power": lambda S, s: bcoo(S) ** -1,
    "format": lambda S, s: s.empty((2, 3), sparse_format="dia"),
    "random": lambda S, s: s.random_bcoo(S.random.key(0), (2, 3), nse=9),
    "gradient": lambda S, s: s.BCSR.fromdense(S.jnp.eye(2)).T,
    "two sparse": lambda S, s: s.COO.fromdense(S.jnp.eye(2)) @ s.COO.fromdense(S.jnp.eye(2)),
    "extract": lambda S, s: s.bcoo_extract(bcoo(S), S.jnp.ones(3)),
    "dense contraction": lambda S, s: bcoo(S, n_dense=1) @ S.jnp.ones(4),
}  # fmt: skip


@pytest.mark.raises("ValueError", "NotImplementedError", "SparseEfficiencyError", "TypeError")
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    ours, theirs = (attempt(lambda S: ERRORS[name](S, sparse(S)), S) for S in (FERRAX, JAX))
    compare(ours, theirs)
