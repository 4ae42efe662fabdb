"""Dtypes: promotion, canonicalisation and the dtype hierarchy, each compared with JAX."""

import contextlib
import itertools
import warnings

import jax
import jax._src.dtypes as jax_dtypes
import ml_dtypes
import numpy as np
import pytest

import ferrax.dtypes
import ferrax.numpy
from ferrax._src.base import config, dtypes as fdt

NAMES = [
    "bool", "int2", "int4", "int8", "int16", "int32", "int64", "uint2", "uint4", "uint8", "uint16",
    "uint32", "uint64", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4",
    "float8_e4m3", "float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "bfloat16", "float16", "float32", "float64", "complex64",
    "complex128",
]  # fmt: skip
DTYPES = [np.dtype(getattr(ml_dtypes, n, n)) for n in NAMES]
OPERANDS = [*DTYPES, int, float, complex, bool]


@contextlib.contextmanager
def modes(x64, promotion="standard"):
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.enable_x64(x64))
        stack.enter_context(jax.numpy_dtype_promotion(promotion))
        stack.enter_context(config.enable_x64(x64))
        stack.enter_context(config.numpy_dtype_promotion(promotion))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def outcome(function, *args, **kwargs):
    """The result, or the class name of the error."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__


def assert_same_outcome(ours, theirs, *args, **kwargs):
    got, expected = outcome(ours, *args, **kwargs), outcome(theirs, *args, **kwargs)
    assert got == expected and type(got) is type(expected), (args, kwargs, got, expected)


@pytest.mark.parametrize("promotion", ["standard", "strict"])
@pytest.mark.parametrize("x64", [False, True])
def test_result_type_of_all_pairs(x64, promotion):
    with modes(x64, promotion):
        for pair in itertools.product(OPERANDS, repeat=2):
            assert_same_outcome(
                fdt.result_type, jax_dtypes.result_type, *pair, return_weak_type_flag=True
            )


@pytest.mark.parametrize("x64", [False, True])
def test_result_type_of_triples(x64):
    with modes(x64):
        few = [np.dtype(n) for n in ("bool", "int8", "uint32", "uint64", "float16")]
        for triple in itertools.product([*few, np.dtype(ml_dtypes.bfloat16), int, float], repeat=3):
            assert_same_outcome(
                fdt.result_type, jax_dtypes.result_type, *triple, return_weak_type_flag=True
            )


@pytest.mark.parametrize("x64", [False, True])
def test_promote_types_of_all_pairs(x64):
    with modes(x64):
        for pair in itertools.product(OPERANDS[:-1], repeat=2):
            assert_same_outcome(fdt.promote_types, jax_dtypes.promote_types, *pair)


def test_promotion_is_commutative_and_an_upper_bound():
    for a, b in itertools.product(DTYPES, repeat=2):
        try:
            both = fdt.promote_types(a, b)
        except fdt.TypePromotionError:
            continue
        assert both == fdt.promote_types(b, a)
        assert fdt.promote_types(a, both) == both


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        True, 1, 1.5, 2j, np.int64(3), np.float64(2.0), np.float16(1), np.bool_(True),
        np.arange(3), np.ones(2, np.complex128), np.uint8(7), ml_dtypes.bfloat16(1.0), "int8",
        "float64", np.float64, int, complex, np.dtype("int16"), None, "text", object(),
        np.array(["a"]), [1, 2], {}, np.str_, np.datetime64(1, "s"),
    ],
    ids=lambda value: "object" if type(value) is object else repr(value),
)  # fmt: skip
def test_dtype_and_weakness_of_values(value, x64):
    with modes(x64):
        assert_same_outcome(fdt.dtype, jax_dtypes.dtype, value)
        assert_same_outcome(fdt.is_weakly_typed, jax_dtypes.is_weakly_typed, value)
        assert_same_outcome(
            fdt.result_type, jax_dtypes.result_type, value, 1.0, return_weak_type_flag=True
        )
        if isinstance(value, (str, type, np.dtype)):
            assert_same_outcome(fdt.canonicalize_dtype, jax_dtypes.canonicalize_dtype, value)
            assert_same_outcome(
                fdt.check_and_canonicalize_user_dtype,
                jax_dtypes.check_and_canonicalize_user_dtype,
                value,
            )


@pytest.mark.parametrize(
    "name",
    ["to_numeric_dtype", "to_inexact_dtype", "to_complex_dtype", "to_floating_dtype",
     "itemsize_bits", "supports_inf", "short_dtype_name", "scalar_type_of", "canonicalize_dtype",
     "jax_dtype"],
)  # fmt: skip
@pytest.mark.parametrize("x64", [False, True])
def test_maps_of_dtypes(name, x64):
    with modes(x64):
        for d in DTYPES:
            assert_same_outcome(getattr(fdt, name), getattr(jax_dtypes, name), d)


def test_issubdtype_and_isdtype():
    abstract = [np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger,
                np.inexact, np.floating, np.complexfloating, np.bool_]  # fmt: skip
    scalar_types = [d.type for d in DTYPES]
    for a, b in itertools.product([*DTYPES, *abstract, *scalar_types, int, "int8"], repeat=2):
        assert_same_outcome(fdt.issubdtype, jax_dtypes.issubdtype, a, b)
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating",
             "complex floating", "numeric", ("bool", "integral"), "int8", np.float32, "nonsense",
             3, (np.int8, "real floating")]  # fmt: skip
    for d, kind in itertools.product(DTYPES, kinds):
        assert_same_outcome(ferrax.numpy.isdtype, jax_dtypes.isdtype, d, kind)


@pytest.mark.parametrize("x64", [False, True])
def test_safe_to_cast(x64):
    with modes(x64):
        for a, b in itertools.product([*DTYPES, 1, 1.0, 1j], DTYPES):
            assert_same_outcome(fdt.safe_to_cast, jax_dtypes.safe_to_cast, a, b)


@pytest.mark.parametrize("call", ["dtype", "check_and_canonicalize_user_dtype"])
def test_explicit_64_bit_request_warns_in_32_bit_mode_only(call):
    function = getattr(fdt, call)
    with config.enable_x64(False), pytest.warns(UserWarning, match="float64.*float32") as caught:
        assert function(np.dtype("float64")) == np.float32
    assert caught[0].filename == __file__
    with config.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function(np.dtype("float64")) == np.float64
    with config.enable_x64(False), config.explicit_x64_dtypes("error"), pytest.raises(ValueError):
        function(np.dtype("int64"))
    with config.enable_x64(False), config.explicit_x64_dtypes("allow"):
        assert function(np.dtype("int64")) == np.int64


def test_python_ints_out_of_range_overflow():
    with config.enable_x64(False):
        assert fdt.scalar_type_to_dtype(int, 2**31 - 1) == np.int32
        with pytest.raises(OverflowError, match="2147483648"):
            fdt.scalar_type_to_dtype(int, 2**31)
        with pytest.raises(OverflowError):
            fdt.coerce_to_array(-(2**31) - 1)
    with config.enable_x64(True):
        assert fdt.coerce_to_array(2**31).dtype == np.int64
        with pytest.raises(OverflowError):
            fdt.coerce_to_array(2**63)


def test_promotion_error_names_the_dtypes_and_the_cure():
    with pytest.raises(ferrax.dtypes.TypePromotionError, match=r"float8_e4m3fn.*astype"):
        fdt.result_type(ml_dtypes.float8_e4m3fn, np.float32)
    with pytest.raises(ferrax.dtypes.TypePromotionError, match=r"int4.*int8.*astype"):
        fdt.result_type(ml_dtypes.int4, np.int8)
    with (
        config.numpy_dtype_promotion("strict"),
        pytest.raises(ferrax.dtypes.TypePromotionError, match="standard promotion would give"),
    ):
        fdt.result_type(np.int8, np.int16)


def test_key_dtype():
    key = fdt.key_fry
    assert str(key) == repr(key) == key.name == "key<fry>"
    assert key.itemsize == 8 and key == fdt.KeyTy(fdt.threefry2x32_impl)
    assert hash(key) == hash(fdt.KeyTy(fdt.threefry2x32_impl))
    assert key != np.dtype("uint32")
    assert fdt.issubdtype(key, ferrax.dtypes.prng_key)
    assert fdt.issubdtype(key, ferrax.dtypes.extended)
    assert fdt.issubdtype(key, np.generic)
    assert not fdt.issubdtype(key, np.integer)
    assert not fdt.issubdtype(np.int32, ferrax.dtypes.extended)
    assert fdt.issubdtype(key, key) and not fdt.issubdtype(np.uint32, key)
    assert fdt.dtype(key) is key
    assert fdt.canonicalize_dtype(key, allow_extended_dtype=True) is key
    with pytest.raises(ValueError):
        fdt.canonicalize_dtype(key)
    assert fdt.result_type(key, key) is key
    with pytest.raises(ValueError):
        fdt.result_type(key, np.int32)


def test_float0_and_info():
    assert ferrax.dtypes.float0 == jax.dtypes.float0
    for d in DTYPES:
        if ferrax.numpy.isdtype(d, "real floating"):
            assert ferrax.dtypes.finfo(d).max == jax.dtypes.finfo(d).max
        elif ferrax.numpy.isdtype(d, "integral"):
            assert ferrax.dtypes.iinfo(d).min == jax.dtypes.iinfo(d).min


def test_public_module_has_every_name_of_jax():
    names = [n for n in dir(jax.dtypes) if not n.startswith("_")]
    assert [n for n in names if not hasattr(ferrax.dtypes, n)] == []


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn"])
def test_floats_of_six_bits_are_names_alone(name):
    with pytest.raises(TypeError, match=f"cannot have dtype {name}: floats of six bits have names alone"):
        ferrax.numpy.zeros(3, getattr(ferrax.numpy, name))


@pytest.mark.parametrize("promotion", ["standard", "strict"])
@pytest.mark.parametrize("x64", [False, True])
def test_native_core_has_the_same_lattice(x64, promotion):
    core = pytest.importorskip("ferrax._src.core")
    from ferrax import _core

    if not hasattr(_core, "promote_types"):
        pytest.skip("not the native core")
    assert core.Array is _core.Array
    unknown = {"int1", "uint1", "float6_e2m3fn", "float6_e3m2fn"}
    with modes(x64, promotion):
        operands = [(d, False) for d in DTYPES if d.name not in unknown]
        if not x64:
            operands = [(d, w) for d, w in operands if d == fdt.canonicalize_dtype(d)]
        operands += [(make(), True) for make in fdt.default_types.values() if make().kind in "ifc"]
        python_types = {"i": int, "f": float, "c": complex}
        for pair in itertools.product(operands, repeat=2):
            types = [python_types[d.kind] if weak else d for d, weak in pair]
            assert outcome(_core.promote_types, list(pair)) == outcome(
                fdt.lattice_result_type, *types
            ), pair
