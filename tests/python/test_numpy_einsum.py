"""`einsum` against the reference: every form of subscripts, dtypes, paths, errors, equations."""

import numpy as np
import pytest
from numpy_oracle import check, prepare

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return (3 * rng.standard_normal(shape)).astype(dtype)


A, B, C, S = normal(4, 3), normal(3, 4), normal(2, 3, 3), normal(3, 3)
Q, K = normal(2, 3, 2, 4), normal(2, 5, 2, 4)
TABLE = [
    ("ij,jk", A, B), ("ij,jk->ik", A, B), ("ij,jk->ki", A, B), ("ij,kj->ik", A, A), ("ij", A),
    ("ji", A), ("ij->j", A), ("ij->", A), ("ii", S), ("ii->i", S), ("ij,ij->ij", A, A),
    ("ij,ij->i", A, A), ("i,j->ij", A[0], A[1]), ("i,j->ji", A[0], A[1]),
    ("...ij,...jk->...ik", C, C), ("...ij,jk", C, S), ("i...->...", C), ("...i->...", C),
    ("bij,bjk->bik", C, C), ("bii->b", C), ("bii->bi", C), ("ij,jk,kl", A, B, A),
    ("ij,jk,kl->il", A, B, A), ("i,i,i->i", A[0], A[0], A[0]), ("i,i,i", A[0], A[0], A[0]),
    ("ab,bc,cd,de->ae", A, B, A, B), (" i j , j k -> i k", A, B), ("ii,ij->j", S, S),
    ("ii,jj->ij", S, S), ("iij->j", normal(3, 3, 2)), ("iii", normal(3, 3, 3)),
    ("iii->i", normal(3, 3, 3)), (",ij->ij", 2.0, A), ("ij,j->i", A, np.arange(3)),
    ("ij,jk", A.astype(np.int8), B.astype(np.int8)), ("ij,jk", A + np.complex64(1j), B),
    ("ij,kl->ij", A, B), ("bqhd,bkhd->bhqk", Q, K), ("bhqk,bkhd->bqhd", normal(2, 2, 3, 5), K),
    ("ij,ij->j", normal(1, 3), A), ("ij,jk->ik", normal(4, 1), B),
    ("...,...->...", normal(1, 3), A), ("ij->i", normal(0, 3)),
    ("ij,jk->ik", normal(2, 0), normal(0, 3)),
    ("ba,b->", A > 0, A[:, 0] > 0), ("ba->b", A > 3), ("ii,ij->j", S > 0, S > 0), ("ij->ij", 2), ("ij,jk", A, A), ("ijk", A), ("i->j", A[0]), ("i->ii", A[0]), ("i.j->ij", A),
    ("ij->->", A), ("ij",), ("ij,jk", A),
]
IDS = [f"{row[0]} {i}" for i, row in enumerate(TABLE)]


@pytest.mark.parametrize("row", TABLE, ids=IDS)
def test_value(row):
    check(lambda n, *xs: n.einsum(row[0], *xs), *row[1:], terms=True)


@pytest.mark.parametrize("row", TABLE[:44], ids=IDS[:44])
def test_no_more_equations_than_the_reference(row):
    import jax
    import jax.numpy as jax_numpy

    import ferrax
    import ferrax.numpy as ferrax_numpy

    got = ferrax.make_jaxpr(lambda *xs: ferrax_numpy.einsum(row[0], *xs))(
        *prepare(ferrax_numpy, row[1:]))
    expected = jax.make_jaxpr(lambda *xs: jax_numpy.einsum(row[0], *xs))(*row[1:])
    # A label three times over takes one mask more here.
    assert len(got.jaxpr.eqns) <= len(expected.jaxpr.eqns) + (row[0].startswith("iii"))


FORMS = [
    lambda n, a, b: n.einsum(a, [0, 1], b, [1, 2], [2, 0]),
    lambda n, a, b: n.einsum(a, [0, 1], b, [1, 2]),
    lambda n, a, b: n.einsum(a, [..., 0, 1], b, [..., 1, 2], [..., 0, 2]),
    lambda n, a, b: n.einsum("ij,jk", a, b, preferred_element_type="float32"),
    lambda n, a, b: n.einsum("ij,jk", a, b, precision="highest"),
    lambda n, a, b: n.einsum("ij,jk,kl", a, b, a, optimize="greedy"),
    lambda n, a, b: n.einsum("ij,jk,kl", a, b, a, optimize=[(1, 2), (0, 1)]),
    lambda n, a, b: n.einsum("ij,jk", a, b, out=a),
    lambda n, a, b: n.einsum("ij,jk", a, [[1.0]]),
]


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("jit", [False, True])
def test_form(form, jit):
    if jit and form == 7:
        pytest.skip("not traceable")
    check(FORMS[form], A, B, jit=jit, terms=True)


def test_gradient_and_batching():
    import ferrax
    import ferrax.numpy as jnp

    a, b = jnp.asarray(A), jnp.asarray(B)
    grad = ferrax.grad(lambda x: jnp.einsum("ij,jk->", x, b))(a)
    np.testing.assert_allclose(np.asarray(grad), np.tile(B.sum(1), (4, 1)), rtol=1e-5)
    rows = ferrax.vmap(lambda r: jnp.einsum("j,jk->k", r, b))(a)
    np.testing.assert_allclose(np.asarray(rows), A @ B, rtol=1e-4, atol=1e-4)


def test_path_contracts_the_small_pair_first():
    import ferrax.numpy as jnp

    x, y, z = jnp.ones((2, 100)), jnp.ones((100, 100)), jnp.ones((100, 2))
    path, info = jnp.einsum_path("ij,jk,kl->il", x, y, z)
    assert path[0] in ((0, 1), (1, 2)) and len(path) == 2
    assert info.opt_cost < info.naive_cost and "ij,jk,kl->il" in repr(info)
