"""ShapedArray and ShapeDtypeStruct: printing, equality and derived types as in JAX."""

import ast
import importlib.util
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest

import ferrax
import ferrax.numpy as jnp
from ferrax._src.base import dtypes
from ferrax._src.core.avals import ShapedArray, ShapeDtypeStruct

CASES = [
    ((2, 3), np.dtype("float32"), True),
    ((), np.dtype("int8"), False),
    ((0,), np.dtype("complex64"), False),
    ((5,), np.dtype(dtypes.bfloat16), False),
    ([4, 1], "uint16", False),
    ((3,), np.float64, False),
]


def test_memory_spaces():
    def case(core, spaces):
        types = [core.ShapedArray((2,), np.float32, memory_space=getattr(spaces, n)) for n in ("Device", "Host", "Any")]
        usual = core.ShapedArray((2,), np.float32)
        texts = [(str(t), repr(t), t.str_short(True), t.memory_space.name) for t in (usual, *types)]
        return texts, [t == usual for t in types], [t.update(shape=(3,)).memory_space.name for t in types]

    assert case(ferrax.core, ferrax.memory.Space) == case(jax.core, jax.memory.Space)
    assert pickle.loads(pickle.dumps(ShapedArray((), int))).memory_space is ferrax.memory.Space.Device


@pytest.mark.parametrize("shape,dtype,weak", CASES)
def test_shaped_array(shape, dtype, weak):
    ours = ShapedArray(shape, dtype, weak)
    theirs = jax.core.ShapedArray(shape, dtype, weak)
    assert repr(ours) == repr(theirs) and str(ours) == str(theirs)
    for short in (False, True):
        assert ours.str_short(short) == theirs.str_short(short)
    for name in ("shape", "dtype", "ndim", "size", "weak_type"):
        assert getattr(ours, name) == getattr(theirs, name)
    for derive in (
        lambda a: a.to_tangent_aval(),
        lambda a: a.strip_weak_type(),
        lambda a: a.update(shape=(7,)),
        lambda a: a.update(dtype=np.dtype("int32"), weak_type=False),
        lambda a: a.inc_rank(9, 0),
        lambda a: a.inc_rank(9, 0).dec_rank(9, 0),
    ):
        assert repr(derive(ours)) == repr(derive(theirs))
    copy = ShapedArray(tuple(shape), np.dtype(dtype), weak)
    assert ours == copy and hash(ours) == hash(copy)
    assert ours != ours.update(weak_type=not weak) and ours != ours.update(shape=(8,))
    assert pickle.loads(pickle.dumps(ours)) == ours
    with pytest.raises(AttributeError):
        ours.shape = ()


def test_shaped_array_of_keys():
    aval = ShapedArray((2,), dtypes.key_fry)
    assert repr(aval) == "ShapedArray(key<fry>[2])"
    assert aval.to_tangent_aval().dtype == dtypes.float0
    assert aval == pickle.loads(pickle.dumps(aval))


@pytest.mark.parametrize("shape,dtype,weak", CASES)
def test_shape_dtype_struct(shape, dtype, weak):
    ours = ShapeDtypeStruct(shape, dtype, weak_type=weak)
    theirs = jax.ShapeDtypeStruct(shape, dtype, weak_type=weak)
    assert repr(ours) == repr(theirs)
    for name in ("shape", "dtype", "ndim", "size", "weak_type", "sharding", "is_ref"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours == ShapeDtypeStruct(tuple(shape), np.dtype(dtype), weak_type=weak)
    assert hash(ours) == hash(ShapeDtypeStruct(tuple(shape), np.dtype(dtype), weak_type=weak))
    assert ours != ours.update(weak_type=not weak)
    assert repr(ours.update(shape=(1,))) == repr(theirs.update(shape=(1,)))
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert ShapeDtypeStruct.like(np.ones((2, 1), np.int8)) == ShapeDtypeStruct((2, 1), "int8")


@pytest.mark.parametrize(
    "call,error",
    [
        (lambda s: s((2,), None), ValueError),
        (lambda s: s(3, np.float32), TypeError),
        (lambda s: len(s((), np.float32)), TypeError),
        (lambda s: setattr(s((2,), np.float32), "shape", ()), RuntimeError),
    ],
)
def test_shape_dtype_struct_errors(call, error):
    for struct in (ShapeDtypeStruct, jax.ShapeDtypeStruct):
        with pytest.raises(error):
            call(struct)


# Functions of types.


def test_functions_may_return_types():
    results = []
    for S, n in ((jax, jax.numpy), (ferrax, jnp)):
        struct = S.ShapeDtypeStruct((3,), n.float32)

        def both(x, struct=struct):
            return {"a": x * 2, "b": struct}

        closed = S.make_jaxpr(both)(struct)
        shapes = S.make_jaxpr(both, return_shape=True)(1.0)[1]
        results.append(
            [
                str(part)
                for part in (
                    S.eval_shape(lambda struct=struct: struct), S.eval_shape(both, 1.0),
                    S.eval_shape(both, struct), S.jit(both).eval_shape(struct), shapes,
                    S.jit(lambda x, y: (y and x, struct), static_argnums=1).eval_shape(1, (2,)),  # noqa: B023
                    closed.consts, [str(aval) for aval in closed.out_avals], closed.jaxpr.constvars[0].aval,
                )
            ]
        )  # fmt: skip
        with pytest.raises(TypeError):
            S.jit(both)(1.0)
        with pytest.raises(TypeError):
            S.eval_shape(lambda x: x + struct, struct)  # noqa: B023
        with pytest.raises(TypeError):
            S.jit(both).lower(struct)
    assert results[0] == results[1]


def test_types_know_that_they_are_on_no_mesh():
    texts = []
    for S, n in ((jax, jax.numpy), (ferrax, jnp)):
        seen = []

        def note(x, S=S, seen=seen):
            seen.append((S.typeof(x).sharding, S.ShapeDtypeStruct.like(x), hasattr(x, "sharding")))
            return x

        S.jit(note)(n.ones((2, 3)))
        sharding = S.typeof(n.ones((2, 3))).sharding
        mesh, spec = sharding.mesh, sharding.spec
        assert len(spec) == 2 and list(spec) == [None, None] and spec[0] is None and spec != (None, None)
        assert mesh.empty and mesh.axis_names == () and sharding.is_fully_replicated
        assert sharding == S.typeof(n.zeros((4, 4))).sharding != S.typeof(1.0).sharding
        assert sharding.memory_kind is None and sharding.shard_shape((2, 3)) == (2, 3)
        aval = S.typeof(n.ones((2, 3)))
        assert aval.update(shape=(5,)).shape == (5,)
        assert S.core.ShapedArray((2, 3), np.float32, sharding=sharding) == aval
        texts.append(
            str((seen, sharding, S.typeof(1.0).sharding, S.ShapeDtypeStruct.like(n.ones(3)),
                 S.ShapeDtypeStruct.like(S.typeof(n.ones(3)))))
        )  # fmt: skip
    assert texts[0] == texts[1]


def submodules(package: str) -> set[str]:
    """The submodules that importing a package, in a process of its own, makes its attributes."""
    code = (
        f"import types, {package} as p; print([n for n, v in vars(p).items()"
        f" if isinstance(v, types.ModuleType) and v.__name__ == '{package}.' + n])"
    )
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ast.literal_eval(names.stdout))


def test_submodules_are_attributes():
    there = {n for n in submodules("jax") if importlib.util.find_spec(f"ferrax.{n}") is not None}
    assert there <= submodules("ferrax")