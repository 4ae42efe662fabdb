"""Sparse arrays beside the reference: as dense arrays, with derivatives, in batches."""

import numpy as np
import pytest
import scipy.sparse
from oracle import FERRAX, JAX, attempt, compare, compiled, is_array, module, same

import ferrax


def sparse(S):
    return module(S, "experimental.sparse")


def numbers(shape, seed):
    rng = np.random.default_rng(seed)
    return (rng.integers(-4, 5, shape) * (rng.random(shape) < 0.5)).astype(np.float32)


def dense(S, shape=(3, 4), seed=0):
    return S.jnp.asarray(numbers(shape, seed))


def bcoo(S, shape=(3, 4), seed=0, more=0, n_batch=0, n_dense=0):
    """The array of `dense`, with so many elements of padding; made without either library."""
    x = numbers(shape, seed)
    sizes = shape[n_batch : len(shape) - n_dense]
    batch = shape[:n_batch]
    places = [
        np.argwhere((x[b] != 0).any(axis=tuple(range(len(sizes), len(shape) - n_batch))))
        for b in np.ndindex(batch)
    ]
    nse = max(map(len, places)) + more
    indices = np.full((len(places), nse, len(sizes)), sizes, np.int32)
    data = np.zeros((len(places), nse, *shape[len(shape) - n_dense :]), np.float32)
    for k, (own, b) in enumerate(zip(places, np.ndindex(batch))):
        indices[k, : len(own)], data[k, : len(own)] = own, x[b][tuple(own.T)]
    buffers = [S.jnp.asarray(y.reshape(*batch, *y.shape[1:])) for y in (data, indices)]
    return sparse(S).BCOO(buffers, shape=shape, indices_sorted=True, unique_indices=True)


def padded(S, shape=(3, 4), seed=0):
    """With two elements of padding and two at one place."""
    mat = bcoo(S, shape, seed, more=2)
    buffers = [S.jnp.asarray(np.concatenate([x, x[2:3]])) for x in map(np.asarray, mat._bufs)]
    return sparse(S).BCOO(buffers, shape=shape)


def run(S, function, *args):
    """`function(*args)`, a tree with texts in it, too: on JAX its arrays are of one compiled program."""
    found = []

    def flat(*args):
        leaves, tree = S.jax.tree.flatten(function(*args))
        found[:] = tree, [None if is_array(leaf) else leaf for leaf in leaves]
        return [leaf for leaf in leaves if is_array(leaf)]

    arrays = iter(compiled(S, flat, *args))
    return S.jax.tree.unflatten(found[0], [next(arrays) if x is None else x for x in found[1]])


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


# Cases in which the number of stored elements has to be known.
KNOWN = {"duplicates", "extract"}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("make", [bcoo, padded])
@same
def test_matrices(S, make, name):
    case = lambda m: shown(UNARY[name](S, m))  # noqa: E731
    return case(make(S)) if name in KNOWN else run(S, case, make(S))


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
    "duplicates": lambda S, m: m.sum_duplicates(nse=5),
    "layout": lambda S, m: m.update_layout(n_batch=0, n_dense=0),
    "compiled": lambda S, m: S.jax.jit(lambda m: 2 * m)(m),
}  # fmt: skip


# The reference does not compile reshapes of arrays with batch and dense axes.
CUBE_CASES = [(c, x) for c in CUBES for x in LAYOUTS if c != "reshape" or len(x) < 2]


@pytest.mark.parametrize("name, layout", CUBE_CASES, ids=str)
@same
def test_layouts(S, name, layout):
    case = lambda m: shown(CUBES[name](S, m))  # noqa: E731
    m = bcoo(S, (2, 3, 4), 0, **layout)
    return run(S, case, m)


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

    def case(data, other):
        whole = sparse(S).BCOO((data, mat.indices), shape=mat.shape)
        swapped = tuple(pair[::-1] for pair in numbers)
        return (
            product(data, other),
            sparse(S).bcoo_dot_general(other, whole, dimension_numbers=swapped),
            S.jax.value_and_grad(lambda *args: S.jnp.sum(product(*args) ** 2), (0, 1))(data, other),
        )

    return run(S, case, mat.data, other)


@same
def test_products_of_sparse_arrays_and_samples(S):
    m, n = bcoo(S, (2, 3, 4), 0, n_batch=1), bcoo(S, (2, 4, 5), 1, n_batch=1)
    a, b = dense(S, (3, 4), 2), dense(S, (4, 5), 3)
    places = S.jnp.array([[0, 1], [2, 4], [3, 0]])

    def sampled(a, b):
        numbers = (((1,), (0,)), ((), ()))
        return sparse(S).bcoo_dot_general_sampled(a, b, places, dimension_numbers=numbers)

    def case(m, n, a, b):
        batched = sparse(S).bcoo_dot_general(m, n, dimension_numbers=(((2,), (1,)), ((0,), (0,))))
        slopes = S.jax.grad(lambda a, b: S.jnp.sum(sampled(a, b) ** 2), (0, 1))(a, b)
        return shown(batched), sampled(a, b), slopes

    return run(S, case, m, n, a, b)


@same
def test_derivatives(S):
    s = sparse(S)
    f = lambda m, v: S.jnp.sum((m @ v) ** 2)  # noqa: E731

    def case(m, v, x, y):
        grads = s.grad(f, argnums=(0, 1))(m, v)
        value, one = s.value_and_grad(f)(m, v)
        forward, backward = s.jacfwd(lambda m: m @ v)(m), s.jacrev(lambda m: m @ v)(m)
        through = S.jax.jvp(lambda x: s.BCOO.fromdense(x, nse=5).todense(), (x,), (y,))
        back = S.jax.grad(lambda x: S.jnp.sum(s.bcoo_extract(m, x).data ** 2))(y)
        twice = S.jax.hessian(lambda d: f(s.BCOO((d, m.indices), shape=m.shape), v))(m.data)
        return shown([*grads, value, one, forward, backward, through, back, twice])

    return run(S, case, bcoo(S), dense(S, (4,), 1), dense(S), dense(S, seed=1))


@same
def test_batches(S):
    s = sparse(S)
    product = lambda m: m @ S.jnp.ones(4)  # noqa: E731

    def case(m, x, wide):
        made = S.jax.vmap(lambda x: s.BCOO.fromdense(x, nse=4))(x)
        rows = s.BCSR((m.data, m.indices[..., 1], S.jnp.zeros((2, 4), int)), shape=m.shape)
        return shown(
            [
                S.jax.vmap(product)(m),
                S.jax.vmap(lambda m: m.T)(m),
                made,
                S.jax.vmap(s.BCOO.todense)(m),
                S.jax.vmap(lambda m: [m.todense(), S.jnp.sum(m.indices)])(rows),
                wide.sort_indices(),
                [x.shape for x in wide.sort_indices()._bufs],
            ]
        )

    # Indices that batches share.
    shared = S.jnp.asarray(np.array([[[[2], [0], [1]]]], np.int32))
    data = S.jnp.asarray(numbers((1, 2, 3), 3))
    wide = s.BCOO((data, shared), shape=(4, 2, 3))
    return run(S, case, bcoo(S, (2, 3, 4), n_batch=1), dense(S, (2, 3, 4)), wide)


@same
def test_eyes_in_compiled_functions(S):
    s = sparse(S)
    made = lambda name, *args: s.eye(*args, sparse_format=name)  # noqa: E731
    names = ("coo", "csr", "csc", "bcoo")
    sizes = ((3, 4, 1), (4, 2, -1), (2, 2, 5))
    return run(S, lambda: shown([made(name, *args) for name in names for args in sizes]))


@same
def test_new_axes_are_of_the_batch_before_sparse_ones(S):
    def case(m, b):
        taken = [m[None], m[:, None], b[None], b[:, None], b[:, :, None]]
        rows = [x[None] for x in (sparse(S).BCSR.from_bcoo(m), sparse(S).BCSR.from_bcoo(b))]
        mixed = m[None] * bcoo(S, (1, 3, 4), 2)
        return shown([*taken, *rows, mixed]), [x.n_batch for x in (*taken, *rows, mixed)]

    return run(S, case, bcoo(S), bcoo(S, (2, 3, 4), n_batch=1))


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
        lax.bessel_i1e(m),
        n.squeeze(m[:1]),
        n.concatenate([m, m]),
    )


@same
def test_functions_made_sparse(S):
    s = sparse(S)
    f = s.sparsify(lambda m, v: (2 * m.T.T @ v, {"t": m.T, "v": v + 1, "d": s.todense(m) + 1}))

    def case(m, v):
        out, tree = f(m, v)
        made = s.sparsify(lambda m, v: loops(S, m, v))(m, v)
        return shown([out, tree["t"], tree["v"], tree["d"], made])

    return run(S, case, bcoo(S), dense(S, (4,), 1))


@same
def test_convolutions(S):
    conv = sparse(S).bcoo_conv_general_dilated

    def case(x, k):
        paddings = ("SAME", "VALID", [(1, 2)])
        return shown([conv(x, k, window_strides=(1,), padding=p) for p in paddings])

    return run(S, case, bcoo(S, (1, 1, 9)), dense(S, (1, 1, 3), 2))


@pytest.mark.parametrize("name", ["BCSR", "COO", "CSR", "CSC"])
@same
def test_other_formats(S, name):
    s = sparse(S)
    cls, count = getattr(s, name), np.count_nonzero(numbers((3, 4), 0))

    def case(x, v, b, cube):
        m = cls.fromdense(x, nse=count)
        results = [m, cls.fromdense(x, nse=9), m @ v, m @ dense(S, (4, 2), 1), m.nse, m.dtype.name]
        results.append(s.empty((2, 3), sparse_format=name.lower()))
        if name != "BCSR":
            return shown([*results, m.T, s.eye(3, 4, 1, sparse_format=name.lower())])
        joined = s.bcsr_concatenate([m, m], dimension=1)
        results += [m.to_bcoo(), cls.from_bcoo(b), m.indptr, m.indices, joined]
        results.append(cls.fromdense(cube, n_batch=1, nse=9) @ v)
        return shown([*results, m.sum_duplicates(nse=7), s.bcsr_extract(m.indices, m.indptr, x)])

    return run(S, case, dense(S), dense(S, (4,), 1), bcoo(S), dense(S, (2, 3, 4)))


@pytest.mark.parametrize("name", ["BCOO", "BCSR", "COO", "CSR", "CSC"])
def test_from_dense_arrays(name):
    x = numbers((3, 4), 0)
    m = getattr(sparse(FERRAX), name).fromdense(x)
    np.testing.assert_array_equal(m.todense(), x)
    assert m.nse == np.count_nonzero(x)


@same
def test_coordinates_and_rows_as_functions(S):
    s, count = sparse(S), np.count_nonzero(numbers((3, 4), 0))

    def case(x, v):
        coo, csr = s.coo_fromdense(x, nse=count), s.csr_fromdense(x, nse=count)
        products = [s.coo_matvec(coo, v, transpose=True), s.csr_matvec(csr, v, transpose=True)]
        products += [
            s.coo_matmat(coo, dense(S, (4, 2))),
            s.csr_matmat(csr, dense(S, (3, 2)), transpose=True),
        ]
        whole = [s.coo_todense(coo), s.csr_todense(csr)]
        return [coo.row, coo.col, csr.indices, csr.indptr, *whole, *products]

    return run(S, case, dense(S), dense(S, (3,), 1))


@same
def test_functions_of_buffers(S):
    """By the names that JAX's modules have them by."""
    s, count = sparse(S), np.count_nonzero(numbers((3, 4), 0))

    def case(x, v):
        info = s.util.SparseInfo((3, 4))
        data, indices = s.bcoo._bcoo_fromdense(x, nse=count)
        coo, csr = s.coo._coo_fromdense(x, nse=count), s.csr._csr_fromdense(x, nse=count)
        counts = s.util._count_stored_elements_per_batch(x, n_batch=1)
        return [
            s.bcoo._bcoo_todense(data, indices, spinfo=info),
            s.bcoo._bcoo_extract(indices, 2 * x),
            s.bcsr._bcoo_to_bcsr(indices, shape=(3, 4), index_dtype=S.jnp.int32),
            s.coo._coo_matvec(*coo, v, spinfo=s.coo.COOInfo((3, 4), True)),
            s.csr._csr_matmat(*csr, v[:, None], shape=(3, 4)),
            [*s.util._csr_to_coo(*csr[1:]), counts, s.util._count_stored_elements(x, n_batch=1)],
        ]

    return run(S, case, dense(S), dense(S, (4,), 1))


def test_solutions_of_systems():
    """The reference calls SciPy in a callback."""
    s = sparse(FERRAX)
    a = numbers((5, 5), 3) + 9 * np.eye(5, dtype=np.float32)
    m, b = s.CSR.fromdense(a), dense(FERRAX, (5,), 1)

    def solve(data, b):
        return s.linalg.spsolve(data, m.indices, m.indptr, b)

    x = solve(m.data, b)
    np.testing.assert_allclose(a @ np.asarray(x), b, atol=1e-5)
    by_data, by_b = ferrax.grad(lambda *args: solve(*args).sum(), (0, 1))(m.data, b)
    adjoint = np.linalg.solve(a.T, np.ones(5))
    np.testing.assert_allclose(by_b, adjoint, rtol=1e-5)
    np.testing.assert_allclose(by_data, -np.outer(adjoint, x)[a != 0], rtol=1e-4, atol=1e-6)
    for wrong in ({"reorder": 4}, {"tol": -1.0}):
        with pytest.raises(ValueError, match="spsolve"):
            s.linalg.spsolve(m.data, m.indices, m.indptr, b, **wrong)


@same
def test_made_arrays(S):
    s = sparse(S)

    def case(key):
        made = [s.eye(3), s.eye(3, 4, k=1), s.eye(4, 3, k=-1, n_batch=1)]
        made += [s.empty((2, 3)), s.empty((2, 3), nse=2, n_batch=1), s.random_bcoo(key, (4, 5))]
        layout = {"n_batch": 1, "n_dense": 1}
        made.append(s.random_bcoo(key, (2, 6, 3), nse=3, **layout, sorted_indices=True))
        return shown(made), made

    images, made = run(S, case, S.random.key(0))
    return images, [repr(m) for m in made]


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


OPTIONS = {
    "precision": lambda s, m, v: s.bcoo_dot_general(m, v, dimension_numbers=(((1,), (0,)), ((), ())), precision="some"),
    "axes": lambda s, m, v: s.bcoo_conv_general_dilated(
        bcoo(FERRAX, (1, 1, 4)), bcoo(FERRAX, (1, 1, 2)), window_strides=(1,), padding="SAME", dimension_numbers=("NHC", "HIO", "NHC")
    ),
    "sharding": lambda s, m, v: s.bcoo_reshape(m, new_sizes=(4, 3), sharding="x"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_read(name):
    """The reference does not look at them."""
    with pytest.raises((ValueError, NotImplementedError, TypeError)):
        OPTIONS[name](sparse(FERRAX), bcoo(FERRAX), dense(FERRAX, (4,)))


def test_values_that_share_indices():
    def case(S):
        T = module(S, "experimental.sparse.transform")
        x = bcoo(S)
        env = T.SparsifyEnv([x.indices, x.data, 2 * x.data])
        first, second = (env.sparse(x.shape, data_ref=n, indices_ref=0, unique_indices=True) for n in (1, 2))
        found = []
        for function in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: {"product": a * b, "sum": a.sum()}):
            values, tree = T.sparsify_raw(function)(env, first, second)
            arrays = T.spvalues_to_arrays(env, values)
            shared = [v.indices_ref == 0 for v in values if v.is_sparse()]
            found.append((shared, str(tree), [getattr(a, "todense", lambda a=a: a)() for a in arrays]))
            found.append([(str(t.dtype), t.shape) for t in T.spvalues_to_avals(env, values)])
        fresh = T.SparsifyEnv()
        rows = sparse(S).BCSR.from_bcoo(x)
        values = T.arrays_to_spvalues(fresh, {"dense": x.data, "sparse": [x, rows]})
        kinds = [(v.data_ref, v.indices_ref, v.indptr_ref, v.is_bcoo(), v.is_bcsr(), v.is_dense(), v.ndim)
                 for v in (values["dense"], *values["sparse"])]  # fmt: skip
        back = T.spvalues_to_arrays(fresh, values)["sparse"]
        return found, kinds, [a.todense() for a in back]

    compare(case(FERRAX), case(JAX))


@pytest.mark.parametrize(("n_batch", "n_dense"), [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)])
def test_pad(n_batch, n_dense):
    """JAX has no rule for it: beside dense arrays."""
    mat = bcoo(FERRAX, (3, 4, 3), more=2, n_batch=n_batch, n_dense=n_dense)
    for config in [((1, 2, 0), (0, 1, 2), (2, 0, 1)), ((-1, 2, 0), (1, -1, 0), (-2, 3, 1)), ((0, 0, 0), (1, 1, 1), (0, 0, 0))]:
        function = lambda x, config=config: ferrax.lax.pad(x, np.float32(0), config)  # noqa: E731
        found = ferrax.jit(sparse(FERRAX).sparsify(function))(mat)
        compare(found.todense(), np.asarray(function(mat.todense())))
    with pytest.raises(NotImplementedError, match="dense"):
        sparse(FERRAX).sparsify(lambda x: ferrax.lax.pad(x, np.float32(1), config))(mat)
    with pytest.raises(NotImplementedError, match="traced|known"):
        ferrax.jit(sparse(FERRAX).sparsify(lambda x, y: ferrax.lax.pad(x, y, config)))(mat, 0.0)
