"""Products, and the methods and operators of arrays, against the reference."""

import numpy as np
import pytest
from numpy_oracle import check, expressions

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return (3 * rng.standard_normal(shape)).astype(dtype)


OPERANDS = {
    "vector": normal(3), "4x3": normal(4, 3), "3x4": normal(3, 4), "2x4x3": normal(2, 4, 3),
    "5x1x3x4": normal(5, 1, 3, 4), "int vector": normal(3, dtype=np.int32),
    "int8 3x4": normal(3, 4, dtype=np.int8), "complex": normal(3) + np.complex64(1j),
    "float": 2.0, "int": 2, "empty": normal(0, 3),
}
NAMES = ["dot", "matmul", "vdot", "inner", "outer", "kron", "matvec", "vecmat", "vecdot"]
PAIRS = [
    ("vector", "vector"), ("4x3", "vector"), ("vector", "3x4"), ("4x3", "3x4"), ("4x3", "4x3"),
    ("2x4x3", "3x4"), ("2x4x3", "5x1x3x4"), ("2x4x3", "vector"), ("4x3", "int vector"),
    ("int8 3x4", "int8 3x4"), ("4x3", "int8 3x4"), ("complex", "complex"), ("complex", "3x4"),
    ("float", "4x3"), ("int", "int vector"), ("int", "float"), ("empty", "vector"),
    ("int8 3x4", "int"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
@pytest.mark.parametrize("name", NAMES)
def test_product(name, pair):
    check(lambda n, a, b: getattr(n, name)(a, b), *[OPERANDS[k] for k in pair], terms=True)


@pytest.mark.parametrize(
    "axes", [0, 1, 2, 5, (1, 0), ((0,), (1,)), ((0, 1), (1, 0)), ((0,), (0, 1)), [1, 2, 3],
             (-1, 0)], ids=str)
def test_tensordot(axes):
    check(lambda n, a, b: n.tensordot(a, b, axes), normal(4, 3), normal(3, 4), terms=True)


CROSSED = 30.0  # two products of numbers that are at most 8, and mostly half of that


@pytest.mark.parametrize(
    "shapes", [((3,), (3,)), ((2,), (2,)), ((2,), (3,)), ((3,), (2,)), ((4, 3), (3,)),
               ((4, 1, 3), (5, 3)), ((4,), (4,))], ids=str)
def test_cross(shapes):
    check(lambda n, a, b: n.cross(a, b), *[normal(*s) for s in shapes], cancels=CROSSED)


def test_cross_axes():
    check(lambda n, a: n.cross(a, a[:, ::-1], axis=0), normal(3, 4), cancels=CROSSED)
    check(lambda n, a: n.cross(a, a[::-1], axisc=0), normal(4, 3), cancels=CROSSED)


@pytest.mark.raises("TypeError")
@pytest.mark.parametrize("name", ["dot", "matmul", "vecdot", "inner", "vdot"])
def test_preferred_element_type(name):
    a = normal(3, dtype=np.int8)
    check(lambda n, a: getattr(n, name)(a, a, preferred_element_type="int32"), a)
    check(lambda n, a: getattr(n, name)([1, 2, 3], a), a)


def test_few_equations():
    import ferrax
    import ferrax.numpy as jnp

    x = jnp.ones((2, 3))
    for f in (lambda v: v @ v.T, lambda v: jnp.matmul(v[None], v.T[None])):
        jaxpr = ferrax.make_jaxpr(f)(x)
        assert sum(e.primitive.name == "dot_general" for e in jaxpr.jaxpr.eqns) == 1


F = np.array([[1.5, -2.5, 0.25], [3.0, 7.0, -1.0]], np.float32)
I = np.array([[3, -3, 1], [7, -8, 2]])
METHODS = """
x // 2; x % 2; 2 // x; 2 % x; divmod(i, 2); divmod(7, i); x ** 2; x ** -1; x ** 0.5; 2 ** x
i ** 2; i ** 2.5; i ** -1; x @ x.T; i // 2.5; i % 4; i / 2; 1 / i; -7 // i; x // [1]; x @ 2
x / 'a'; round(x, 1); round(i); round(x[0, 0]); x.T; x.mT; x.real; x.imag; (x + 1j).imag; x.sum()
x.mean(0); x.max(axis=1); x.std(); x.var(ddof=1); i.prod(); x.any(); x.all(axis=0); i.argmax()
x.argmin(1); i.cumsum(); i.cumprod(1); x.ptp(); x.round(1); x.clip(0); x.clip(max=1.0)
x.reshape(3, 2); x.reshape((3, 2)); x.reshape(-1); x.reshape(7); x.transpose(); x.transpose(1, 0)
x.transpose((1, 0)); x.ravel(); x.flatten('F'); x.swapaxes(0, 1); x[None].squeeze(); x.squeeze(0)
x.astype(int); x.astype('float16'); x.astype(bool); (x * 200).astype('uint8'); x.copy(); x.conj()
(x + 1j).conjugate(); x.diagonal(); x.trace(); x.dot(x.T); x.repeat(2, axis=0); x.view('int32')
x.view('int8'); x.view('float64'); i.view('uint8'); i.astype('int8').reshape(1, 6).view('int16')
x.reshape(1, 6).view('complex64'); (x + 1j).view('float32'); x.view('int16'); i.view(bool)
i.byteswap(); x.nbytes; x.itemsize; x.flat; 1.5 in x[0]; 1 in x; list(x)[1]; list(x[0, 0])
x.astype(None)
"""


@pytest.mark.parametrize("text", expressions(METHODS))
def test_methods_and_operators(text):
    code = compile(text, "<case>", "eval")
    scope = {"int": int, "bool": bool, "divmod": divmod, "round": round, "list": list}
    check(lambda n, x, i: eval(code, {**scope, "x": x, "i": i}), F, I)


def test_item_assignment_names_the_alternative():
    import ferrax.numpy as jnp

    with pytest.raises(TypeError, match=r"x\.at\[idx\]"):
        jnp.ones(3)[0] = 1.0
