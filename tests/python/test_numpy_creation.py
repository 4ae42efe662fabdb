"""Creation functions against the reference: values, dtypes, weak types, errors."""

import io

import numpy as np
import pytest
from numpy_oracle import cases, check, expressions
from oracle import same

F = np.arange(6, dtype=np.float32).reshape(2, 3)
I = np.arange(4)
C = np.array([1 + 2j, 3], np.complex64)

EXPRESSIONS = """
n.array(1); n.array(1.5); n.array(True); n.array(1j); n.array([1, 2.5]); n.array([True, 2])
n.array([]); n.array([[1], [2, 3]]); n.array('a'); n.array(None); n.array([None]); n.array(2**40)
n.array([2**40]); n.array((1, 2j)); n.array(1, ndmin=2); n.array(range(3)); n.asarray({1})
n.array(b'a'); n.array(1.5, dtype=int); n.array([1., 2], dtype=int)
n.array([1.7, -2.2], dtype='int8'); n.array([n.array(1), 2.5]); n.array([[n.array(1), 2], [3, 4]])
n.array([n.ones(2), n.zeros(2)]); n.array([n.ones(2), n.zeros(3)])
n.array(n.ones(2), dtype='int32'); n.array(n.ones(2), order='F'); n.asarray(3)
n.asarray([1, 2], dtype='float16'); n.asarray(1, copy=False); n.array(1, dtype='foo'); n.zeros(3)
n.zeros((2, 3), int); n.zeros((2,), 'bfloat16'); n.zeros(-1); n.zeros(2.); n.ones(())
n.ones(2, bool); n.empty(2); n.full((2,), 1); n.full((2,), 1.5, int); n.full(2, n.arange(2))
n.full((2,), [1, 2]); n.full((2, 3), True); n.full((2,), n.float32(3)); n.zeros_like(3)
n.zeros_like(n.ones(3, 'int8')); n.zeros_like([1]); n.ones_like(n.ones(3), dtype=int)
n.ones_like(n.ones(3), shape=(2, 2)); n.full_like(n.ones(3), 2); n.full_like(n.arange(3), 2.7)
n.full_like(n.arange(3), n.arange(3) * 2.); n.empty_like(n.ones((0, 2))); n.arange(5)
n.arange(3.5); n.arange(0); n.arange(5, 0, -1); n.arange(1, 2, 0); n.arange(3, dtype='float32')
n.arange(1, 7, 2); n.arange(0., 1., .1); n.arange(n.array(3)); n.arange(2j); n.arange(-3)
n.arange(2, 5); n.arange(1.5, 4); n.arange(0, 5, dtype='int8'); n.arange([1])
n.arange(1, 10, 2.5); n.linspace(0, 1, 5); n.linspace(0, 1, 5, endpoint=False)
n.linspace(0, 10, 4, dtype=int); n.linspace(0, 1, 0); n.linspace(0, 1, 1); n.linspace(0, 1, -1)
n.linspace(0, 1, 3, retstep=True); n.linspace(0, 1j, 3)
n.linspace(n.arange(2.), n.arange(2.) + 1, 3); n.linspace(n.arange(2.), 5, 3, axis=1)
n.linspace(0, 1, 1, retstep=True); n.linspace(-1, 1, 5, dtype='float16'); n.linspace(3, 3, 2)
n.linspace(0, -7, 5, dtype=int); n.logspace(0, 2, 3); n.logspace(0, 2, 3, base=2)
n.logspace(0, 1, 4, endpoint=False); n.logspace(0, 3, 4, dtype=int); n.geomspace(1, 1000, 4)
n.geomspace(-1, -8, 4); n.geomspace(1, 256, 5, endpoint=False); n.geomspace(1, 8, 1); n.eye(3)
n.eye(2, 3, k=1); n.eye(3, k=-1, dtype=int); n.eye(2, dtype=bool); n.eye(-1); n.eye(0)
n.eye(2, k=5); n.eye(3, k=2**40); n.eye(2, 3, k=-2**40); n.identity(2); n.tri(3); n.tri(2, 4, k=1); n.tri(3, k=-1, dtype=int)
n.tri(2, dtype=bool); n.tril_indices(3); n.triu_indices(3, k=1); n.tril_indices(2, m=4)
n.diag_indices(3); n.diag_indices(2, 3); n.diag_indices(-1); n.tril_indices_from(n.ones((2, 3)))
n.triu_indices_from(n.ones((3, 2))); n.triu_indices_from(n.ones(3))
n.diag_indices_from(n.ones((2, 2))); n.diag_indices_from(n.ones((2, 3)))
n.meshgrid(n.arange(2), n.arange(3.)); n.meshgrid(n.arange(2), n.arange(3), indexing='ij')
n.meshgrid(); n.meshgrid(n.arange(2), n.arange(3), sparse=True); n.meshgrid(n.ones((2, 2)))
n.meshgrid(1, 2); n.meshgrid(n.arange(2), indexing='a'); n.mgrid[0:2, 0:1:3j]; n.mgrid[0:3]
n.ogrid[0:2, 0:3]; n.r_[1, 2, 3:5]; n.c_[n.ones(2), n.zeros(2)]; n.r_[0:1:3j, 5]
n.r_['0,2', n.arange(3), n.arange(3)]; n.r_['-1', n.ones((2, 1)), n.ones((2, 2))]; n.c_[1:3, 4:6]
n.indices((2, 3)); n.indices((2, 3), sparse=True); n.indices((2,), dtype='float32')
n.ix_(n.arange(2), n.arange(3)); n.fromfunction(lambda a, b: a + b, (2, 3))
n.fromfunction(lambda a: a * 2, (3,), dtype=int); n.frombuffer(b'\\x01\\x02', dtype='uint8')
n.fromstring('1 2', dtype=int, sep=' '); n.fromiter([1], int); n.fromfile('x'); n.float32(3)
n.int32(2.7); n.int8(300); n.bool_(3); n.complex64(1); n.float64(1); n.float32([1, 2])
n.bfloat16(2.5); n.float32('3'); n.blackman(5); n.hamming(4); n.hanning(1); n.bartlett(6)
n.bartlett(0); n.unravel_index(7, (2, 3))
n.unravel_index(n.array([1, 5, -1]), (2, 3)); n.unravel_index(n.arange(4), 4)
n.ravel_multi_index((1, 2), (3, 4)); n.ravel_multi_index((5, 2), (3, 4))
n.ravel_multi_index((n.arange(5), n.arange(5)), (3, 4), mode='wrap')
n.ravel_multi_index((n.arange(5), n.arange(5)), (3, 4), mode='clip', order='F')
n.ravel_multi_index((1.,), (3,)); n.copy(n.arange(3)); n.copy([1])
n.astype(n.arange(3), 'float16'); n.astype(n.array([1.5, -2.5, 300]), 'uint8')
n.astype(n.ones(2) + 1j, 'float32'); n.astype(n.array([0., 2.]), bool); n.astype(n.ones(2), None)
n.astype(n.array([0j, 1j]), bool)
"""
TABLE = expressions(EXPRESSIONS)


@pytest.mark.parametrize("text", TABLE)
def test_expression(text):
    code = compile(text, "<case>", "eval")
    check(lambda n: eval(code, {"n": n, "int": int, "range": range}))


@pytest.mark.parametrize("ends", [(0, 1, 7), (0.1, 3.3, 11), (-1, 1, 50), (0, 10, 100), (3, -2, 33)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_of_linspace_are_those_next_to_the_true_ones(dtype, ends):
    import ferrax.numpy as jnp

    got, step = jnp.linspace(*ends, dtype=dtype, retstep=True)
    assert step.dtype == dtype
    np.testing.assert_array_equal(np.asarray(got), np.linspace(*ends).astype(jnp.dtype(dtype)))


ARRAYS = [
    ("tril", lambda n, x: n.tril(x), F),
    ("tril k", lambda n, x: n.tril(x, 1), F),
    ("triu", lambda n, x: n.triu(x, -1), F),
    ("triu batch", lambda n, x: n.triu(x[None]), F),
    ("tril vector", lambda n, x: n.tril(x), I),
    ("diag", lambda n, x: n.diag(x), F),
    ("diag k", lambda n, x: n.diag(x, 1), F),
    ("diag far", lambda n, x: n.diag(x, 7), F),
    ("diag vector", lambda n, x: n.diag(x, -1), I),
    ("diag vector complex", lambda n, x: n.diag(x), C),
    ("diag rank 3", lambda n, x: n.diag(x[None]), F),
    ("diagonal", lambda n, x: n.diagonal(x, offset=-1), F),
    ("diagonal axes", lambda n, x: n.diagonal(x[None], axis1=2, axis2=1), F),
    ("diagflat", lambda n, x: n.diagflat(x, 1), F),
    ("trace", lambda n, x: n.trace(x), F),
    ("trace offset", lambda n, x: n.trace(x, offset=1), F),
    ("trace vector", lambda n, x: n.trace(x), I),
    ("trace int8", lambda n, x: n.trace(x.astype("int8")), F),
    ("vander", lambda n, x: n.vander(x), I),
    ("vander N", lambda n, x: n.vander(x * 1.0, 3, increasing=True), I),
    ("vander rank", lambda n, x: n.vander(x), F),
]


@cases(ARRAYS)
@pytest.mark.parametrize("jit", [False, True])
def test_of_arrays(row, jit):
    check(*row[1:], jit=jit)


def test_numpy_input_is_copied():
    import ferrax.numpy as jnp

    source = np.arange(3)
    made = jnp.array(source)
    source[0] = 7
    assert int(made[0]) == 0


def test_scalar_types_compare_with_numpy():
    import ferrax.numpy as jnp

    assert jnp.float32 == np.float32 and jnp.dtype(jnp.float32) == np.float32
    assert jnp.float32 != np.float64 and hash(jnp.int8) == hash(np.int8)
    assert isinstance(np.float32(1), jnp.float32)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16"])
@same(weak=False)
def test_files_of_dtypes_that_numpy_lacks(S, dtype):
    file = io.BytesIO()
    S.jnp.save(file, S.jnp.arange(3).astype(dtype))
    file.seek(0)
    loaded = S.jnp.load(file)
    return isinstance(loaded, S.jax.Array), loaded.dtype.name, np.asarray(loaded).view(np.uint8)
