"""Dtypes: the promotion lattice, 64-bit canonicalisation, scalar kinds, extended dtypes.

Dtypes are NumPy dtype objects; those that NumPy lacks come from ml_dtypes. PRNG keys have an
*extended* dtype, which is no NumPy dtype: `KeyTy`, printed as `key<fry>`.

Invariants:
- `_LATTICE` is the whole of implicit promotion. The native core holds a copy of this table.
- A *weak* type (`int*`, `float*`, `complex*`) is that of a Python scalar and of what is computed
  from Python scalars alone; it never widens a strong dtype of its own or a higher category.
- Values that are already arrays keep their dtype; Python and NumPy values and requested dtypes are
  canonicalised: in 32-bit mode (`jax_enable_x64` false) 64-bit dtypes become 32-bit ones.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import ml_dtypes
import numpy as np

from ferrax._src.base import config
from ferrax._src.base.errors import TypePromotionError as TypePromotionError, user_stacklevel
from ferrax._src.base.extended_dtypes import (
    ExtendedDType as ExtendedDType,
    KeyTy as KeyTy,
    PRNGImpl as PRNGImpl,
    extended as extended,
    key_fry as key_fry,
    prng_key as prng_key,
    threefry2x32_impl as threefry2x32_impl,
)

# ---------------------------------------------------------------------------------------------
# Dtypes.

bfloat16 = ml_dtypes.bfloat16
float8_e3m4 = ml_dtypes.float8_e3m4
float8_e4m3 = ml_dtypes.float8_e4m3
float8_e8m0fnu = ml_dtypes.float8_e8m0fnu
float8_e4m3b11fnuz = ml_dtypes.float8_e4m3b11fnuz
float8_e4m3fn = ml_dtypes.float8_e4m3fn
float8_e4m3fnuz = ml_dtypes.float8_e4m3fnuz
float8_e5m2 = ml_dtypes.float8_e5m2
float8_e5m2fnuz = ml_dtypes.float8_e5m2fnuz
float6_e2m3fn = ml_dtypes.float6_e2m3fn
float6_e3m2fn = ml_dtypes.float6_e3m2fn
float4_e2m1fn = ml_dtypes.float4_e2m1fn
int2, uint2, int4, uint4 = ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4
int1, uint1 = getattr(ml_dtypes, "int1", None), getattr(ml_dtypes, "uint1", None)

finfo = ml_dtypes.finfo
iinfo = ml_dtypes.iinfo
can_cast = np.can_cast

bool_, int_, uint, float_, complex_ = np.bool_, np.int64, np.uint64, np.float64, np.complex128

# The dtype of tangents of integers and booleans, whose tangent space has dimension zero.
float0: np.dtype = np.dtype([("float0", np.void, 0)])


def _dtypes(*types):
    return tuple(np.dtype(t) for t in types if t is not None)


_float8_dtypes = _dtypes(
    float8_e3m4, float8_e4m3, float8_e8m0fnu, float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz,
    float8_e5m2, float8_e5m2fnuz,
)
_float6_dtypes = _dtypes(float6_e2m3fn, float6_e3m2fn)
_float4_dtypes = _dtypes(float4_e2m1fn)
_small_float_dtypes = _float4_dtypes + _float6_dtypes + _float8_dtypes
_custom_float_dtypes = _small_float_dtypes + _dtypes(bfloat16)
_small_signed_dtypes = _dtypes(int1, int2, int4)
_small_unsigned_dtypes = _dtypes(uint1, uint2, uint4)
_intn_dtypes = _small_signed_dtypes + _small_unsigned_dtypes

_bool_types = _dtypes("bool")
_signed_types = _small_signed_dtypes + _dtypes("int8", "int16", "int32", "int64")
_unsigned_types = _small_unsigned_dtypes + _dtypes("uint8", "uint16", "uint32", "uint64")
_int_types = _unsigned_types + _signed_types
_float_types = _custom_float_dtypes + _dtypes("float16", "float32", "float64")
_complex_types = _dtypes("complex64", "complex128")
_numeric_types = _int_types + _float_types + _complex_types
_jax_types = _bool_types + _numeric_types
_jax_dtype_set = frozenset((float0, *_jax_types))

_custom_float_scalars = frozenset(d.type for d in _custom_float_dtypes)
_small_signed_scalars = frozenset(d.type for d in _small_signed_dtypes)
_small_unsigned_scalars = frozenset(d.type for d in _small_unsigned_dtypes)

# What the array API standard calls kinds of dtypes.
kinds = {
    "bool": _bool_types,
    "signed integer": _signed_types,
    "unsigned integer": _unsigned_types,
    "integral": _int_types,
    "real floating": _float_types,
    "complex floating": _complex_types,
    "numeric": _numeric_types,
}

_to_32_bits = {
    np.dtype("int64"): np.dtype("int32"),
    np.dtype("uint64"): np.dtype("uint32"),
    np.dtype("float64"): np.dtype("float32"),
    np.dtype("complex128"): np.dtype("complex64"),
}

# What a request for a dtype that has at most 32 bits per part means, by dtype and scalar type: it
# does not depend on `jax_enable_x64`.
_narrow_dtypes = {
    key: d for d in _jax_types if d not in _to_32_bits for key in (d, d.type)
}

# ---------------------------------------------------------------------------------------------
# Defaults and simple maps.

_bool = np.dtype(bool)
_int32, _int64 = np.dtype("int32"), np.dtype("int64")
_uint32, _uint64 = np.dtype("uint32"), np.dtype("uint64")
_float32, _float64 = np.dtype("float32"), np.dtype("float64")
_complex64, _complex128 = np.dtype("complex64"), np.dtype("complex128")


def default_int_dtype():
    """int64 if `jax_enable_x64` is set, else int32."""
    return _int64 if config.enable_x64.value else _int32


def default_uint_dtype():
    """uint64 if `jax_enable_x64` is set, else uint32."""
    return _uint64 if config.enable_x64.value else _uint32


def default_float_dtype():
    """float64 if `jax_enable_x64` is set, else float32."""
    return _float64 if config.enable_x64.value else _float32


def default_complex_dtype():
    """complex128 if `jax_enable_x64` is set, else complex64."""
    return _complex128 if config.enable_x64.value else _complex64


def _default_bool_dtype():
    return np.dtype(bool)


default_types = {
    "b": _default_bool_dtype,
    "i": default_int_dtype,
    "u": default_uint_dtype,
    "f": default_float_dtype,
    "c": default_complex_dtype,
}
_default_of_python_type = {
    bool: _default_bool_dtype,
    int: default_int_dtype,
    float: default_float_dtype,
    complex: default_complex_dtype,
}
python_scalar_types = frozenset(_default_of_python_type)
python_scalar_types_to_dtypes = {
    bool: np.dtype("bool"),
    int: np.dtype("int64"),
    float: np.dtype("float64"),
    complex: np.dtype("complex128"),
}
python_scalar_dtypes = python_scalar_types_to_dtypes

# Integers become inexact at their own width, but never less than 32 bits.
_to_inexact = {
    d: np.dtype("float64" if d.name in ("int64", "uint64") else "float32")
    for d in _dtypes("bool", uint4, int4, "uint8", "int8", "uint16", "int16", "uint32", "int32",
                     "uint64", "int64")
}


def jax_dtype(obj, *, align=False, copy=False):
    """`np.dtype(obj)`, but None and Python scalar types mean this package's default dtypes."""
    if obj is None:
        return default_float_dtype()
    if issubdtype(obj, extended):
        return obj
    if isinstance(obj, type) and obj in _default_of_python_type:
        return _default_of_python_type[obj]()
    return np.dtype(obj, align=align, copy=copy)


def to_numeric_dtype(dtype):
    """The dtype itself, or int32 for bool."""
    dtype = np.dtype(dtype)
    return np.dtype("int32") if dtype == np.dtype(bool) else dtype


def to_inexact_dtype(dtype):
    """The dtype itself if floating or complex, else the float dtype for it."""
    dtype = np.dtype(dtype)
    return _to_inexact.get(dtype, dtype)


def to_floating_dtype(dtype):
    """The real floating dtype for a dtype: that of the parts, for complex dtypes."""
    return finfo(to_inexact_dtype(dtype)).dtype


def to_complex_dtype(dtype):
    """complex128 for 64-bit floats and integers and complex128, else complex64."""
    wide = to_inexact_dtype(dtype) in _dtypes("float64", "complex128")
    return np.dtype("complex128" if wide else "complex64")


_FINITE = frozenset({float8_e4m3b11fnuz, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2fnuz})


def supports_inf(dtype) -> bool:
    """Whether the dtype has infinities."""
    return issubdtype(dtype, np.inexact) and np.dtype(dtype).type not in _FINITE


# How many bits an element, or a part of a complex one, has.
_BITS = (
    (np.bool_, lambda _: 8),
    (np.integer, lambda dtype: iinfo(dtype).bits),
    (np.inexact, lambda dtype: finfo(dtype).bits),
)


def itemsize_bits(dtype: Any) -> int:
    """How many bits an element of the dtype has: 4 for int4, 8 for bool, 64 for complex64.

    Raises:
        ValueError: if the dtype is None or not one of bool, integers, floats, complex.

    Args: dtype: a dtype or scalar type.

    >>> ferrax.dtypes.itemsize_bits("int4"), ferrax.dtypes.itemsize_bits("complex64")
    (4, 64)
    """
    if dtype is None:
        raise ValueError("dtype cannot be None.")
    parts = 2 if issubdtype(dtype, np.complexfloating) else 1
    for kind, bits in _BITS:
        if issubdtype(dtype, kind):
            return parts * bits(dtype)
    raise ValueError(f"itemsize_bits needs a bool or numeric dtype, got {dtype!r}.")


@functools.cache
def short_dtype_name(dtype) -> str:
    """The dtype as types print it: f32, i8, u16, c64, bf16, key<fry>."""
    if isinstance(dtype, ExtendedDType):
        return str(dtype)
    if dtype == float0:
        return "float0"
    name = dtype.name
    for long, short in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        name = name.replace(long, short)
    return name


# ---------------------------------------------------------------------------------------------
# Hierarchy.


def _issubclass(a, b):
    return isinstance(a, type) and isinstance(b, type) and issubclass(a, b)


def issubdtype(a: Any, b: Any) -> bool:
    """Whether dtype `a` lies at or below `b` in the hierarchy of scalar types.

    As `numpy.issubdtype`, and also right for bfloat16, int4 and their kin (which are below
    `np.floating` and `np.signedinteger`) and for PRNG keys (below `ferrax.dtypes.prng_key`).

    Example:
        >>> jnp.issubdtype(jnp.bfloat16, jnp.floating)
        True
    """
    return _issubdtype(
        a if isinstance(a, _DTYPES_AND_SCALARS) else np.dtype(a),
        b if isinstance(b, _DTYPES_AND_SCALARS) else np.dtype(b),
    )


_DTYPES_AND_SCALARS = (type, np.dtype, ExtendedDType)


@functools.lru_cache(1024)
def _issubdtype(a, b):
    if _issubclass(b, extended):
        if isinstance(a, ExtendedDType):
            return _issubclass(a.type, b)
        return _issubclass(a if _issubclass(a, np.generic) else np.dtype(a).type, b)
    if isinstance(b, ExtendedDType):
        return isinstance(a, ExtendedDType) and a == b
    if isinstance(a, ExtendedDType):
        a = a.type
    scalar_a = a if _issubclass(a, np.generic) else np.dtype(a).type
    scalar_b = b if _issubclass(b, np.generic) else np.dtype(b).type
    parents: tuple[type, ...]
    if scalar_a in _custom_float_scalars:
        parents = (np.floating, np.inexact, np.number, np.generic)
    elif scalar_a in _small_signed_scalars:
        parents = (np.signedinteger, np.integer, np.number, np.generic)
    elif scalar_a in _small_unsigned_scalars:
        parents = (np.unsignedinteger, np.integer, np.number, np.generic)
    else:
        return bool(np.issubdtype(scalar_a, scalar_b))
    return scalar_b is scalar_a or scalar_b in parents


def scalar_type_of(x: Any) -> type:
    """The Python scalar type (bool, int, float or complex) of the category of `x`'s dtype.

    Raises:
        TypeError: if `x` has no numeric or boolean dtype.

    Args: x: array or scalar.

    >>> ferrax.dtypes.scalar_type_of(jnp.ones(2, jnp.bfloat16))
    <class 'float'>
    """
    d = dtype(x)
    for scalar_type, members in (
        (bool, _bool_types), (int, _int_types), (float, _float_types), (complex, _complex_types),
    ):
        if d in members:
            return scalar_type
    raise TypeError(f"Invalid scalar value {x}")


def scalar_type_to_dtype(typ, value=None):
    """The default dtype of a Python scalar type.

    Errors: OverflowError for an int `value` outside of the range of that dtype.
    """
    found = _default_of_python_type[typ]()
    if typ is not int or value is None:
        return found
    limits = np.iinfo(found)
    if value > limits.max or value < limits.min:
        raise OverflowError(
            f"Python int {value} too large to convert to {found}, whose largest is {limits.max}"
        )
    return found


def coerce_to_array(x, dtype=None):
    """`np.asarray`, but Python scalars get this package's default dtypes."""
    inferred = dtype is None and type(x) in python_scalar_types
    return np.asarray(x, scalar_type_to_dtype(type(x), x) if inferred else dtype)


# ---------------------------------------------------------------------------------------------
# Canonicalisation.


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """The dtype itself with `jax_enable_x64`, else its 32-bit counterpart if it has 64 bits.

    Raises:
        TypeError: if the argument is no dtype.
        ValueError: for an extended dtype, unless `allow_extended_dtype`.

    Args: dtype: a dtype or scalar type; allow_extended_dtype: whether keys' dtypes and the like
    pass.

    >>> ferrax.dtypes.canonicalize_dtype("float64")
    dtype('float32')
    """
    if isinstance(dtype, (np.dtype, type)):
        narrow = _narrow_dtypes.get(dtype)
        if narrow is not None:
            return narrow
    if issubdtype(dtype, extended) if dtype is not None else False:
        if not allow_extended_dtype:
            raise ValueError(f"Expected a NumPy dtype, got the extended dtype {dtype}.")
        return dtype
    try:
        d = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"dtype {dtype!r} not understood") from error
    return d if config.enable_x64.value or _keeps_explicit() else _to_32_bits.get(d, d)


def allows_explicit_x64(flag, mode) -> bool:
    """Whether values of these flags keep 64-bit dtypes that are asked for."""
    return bool(flag) or mode == config.ExplicitX64Mode.ALLOW


def _keeps_explicit() -> bool:
    return allows_explicit_x64(config.explicit_x64.value, config.explicit_x64_dtypes.value)


_CURE = (
    "To use 64-bit dtypes, set the flag jax_enable_x64 with ferrax.config.update or the environment "
    "variable JAX_ENABLE_X64; for some arrays alone, `with ferrax.explicit_x64():`."
)


def warn_of_truncation(value: str, wide: str, narrow: str) -> None:
    """Says, once a line, that a NumPy integer does not fit; the native core calls it."""
    warnings.warn(
        f"The {wide} {value} does not fit into {narrow}, to which it is truncated: the value changes. {_CURE}",
        stacklevel=user_stacklevel(),
    )


def _canonicalize_explicit(d, fun_name):
    """Canonicalises a dtype that the user asked for by name: warns where that changes it."""
    if config.enable_x64.value or d not in _to_32_bits or _keeps_explicit():
        return d
    mode = config.explicit_x64_dtypes.value
    where = f" requested in {fun_name}" if fun_name else ""
    if mode == config.ExplicitX64Mode.ERROR:
        raise ValueError(f"Explicitly requested dtype {d}{where}, while 64-bit dtypes are off. {_CURE}")
    narrow = _to_32_bits[d]
    warnings.warn(
        f"Explicitly requested dtype {d}{where}, while 64-bit dtypes are off: the result has dtype "
        f"{narrow}. {_CURE}",
        stacklevel=user_stacklevel(),
    )
    return narrow


def check_valid_dtype(dtype) -> None:
    """Raises TypeError unless arrays may have this NumPy dtype."""
    if dtype not in _jax_dtype_set:
        raise TypeError(
            f"dtype {dtype} is not a valid JAX array type: arrays hold booleans, numbers or PRNG "
            "keys."
        )


def check_and_canonicalize_user_dtype(dtype, fun_name=None):
    """The canonical dtype for a `dtype=` argument; Python scalar types mean the default dtypes.

    Raises:
        ValueError: if it is None or an array.
        TypeError: if it is no dtype or one that arrays cannot have.
    Warns:
        UserWarning: if it has 64 bits and `jax_enable_x64` is not set.
    """
    if dtype is None:
        raise ValueError("dtype must be specified.")
    if isinstance(dtype, (np.dtype, type)):  # the common case, without a call
        narrow = _narrow_dtypes.get(dtype)
        if narrow is not None:
            return narrow
    if isinstance(dtype, np.dtype):
        if dtype in _jax_dtype_set:
            return _canonicalize_explicit(dtype, fun_name)
    elif isinstance(dtype, _array_types):
        raise ValueError(
            "dtype: got an array; pass its dtype, that is dtype=arr.dtype instead of "
            "dtype=arr."
        )
    elif isinstance(dtype, ExtendedDType):
        return dtype
    elif isinstance(dtype, type) and dtype in _default_of_python_type:
        return _default_of_python_type[dtype]()
    d = np.dtype(dtype)
    if d not in _jax_dtype_set:
        where = f" in {fun_name}" if fun_name else ""
        raise TypeError(f"JAX only supports number and bool dtypes, got dtype {dtype}{where}")
    return _canonicalize_explicit(d, fun_name)


# Classes whose instances are arrays of this package: their dtype is never canonicalised.
_array_types: tuple = ()


def register_array_type(cls) -> None:
    """Declares a class of arrays; they have `dtype` and `weak_type` attributes."""
    global _array_types
    _array_types += (cls,)


def dtype(x):
    """The dtype of a value or type.

    Python scalars and scalar types have the default dtypes, arrays of this package their own,
    NumPy values and dtypes are canonicalised. (`ferrax.numpy.dtype` is another function: NumPy's.)

    Raises:
        ValueError: for None.
        TypeError: for what has no dtype, or one that arrays cannot have.
    """
    if isinstance(x, _array_types):
        return x.dtype
    if x is None:
        raise ValueError(
            f"Invalid argument to dtype: {x} has none; pass an array, a scalar or a dtype."
        )
    if isinstance(x, type):
        if x in _default_of_python_type:
            return _default_of_python_type[x]()
        if issubclass(x, np.generic):
            return _canonicalize_explicit(np.dtype(x), "dtype")
    elif type(x) in _default_of_python_type:
        return _default_of_python_type[type(x)]()
    if isinstance(x, (str, np.dtype)):
        return _canonicalize_explicit(_require_valid(np.dtype(x), x), "dtype")
    d = x if isinstance(x, ExtendedDType) else getattr(x, "dtype", None)
    if isinstance(d, ExtendedDType):
        return d
    if not isinstance(d, np.dtype):
        try:
            d = np.result_type(x)
        except TypeError as error:
            raise TypeError(f"dtype: {x} is neither an array nor a scalar nor a dtype") from error
    return canonicalize_dtype(_require_valid(d, x))


def _require_valid(d, x):
    if d not in _jax_dtype_set:
        raise TypeError(
            f"{x!r} has dtype {d}, which is not a valid JAX array type: arrays hold booleans, "
            "numbers or PRNG keys."
        )
    return d


# ---------------------------------------------------------------------------------------------
# Promotion.


# Each type with the types directly above it; `int*`, `float*` and `complex*` are the weak types.
# A set of types promotes to the least of the types that are above or equal to all of them.
# Without x64, `uint32` lies below `int32` instead of `int64`: see `_upper_bounds`.
_LATTICE = {
    "bool": ("int*",),
    "int*": ("uint2", "uint4", "uint8", "int2", "int4", "int8"),
    "uint2": (),
    "uint4": (),
    "uint8": ("int16", "uint16"),
    "uint16": ("int32", "uint32"),
    "uint32": ("int64", "uint64"),
    "uint64": ("float*",),
    "int2": (),
    "int4": (),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float*",),
    "float*": (
        "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3",
        "float8_e8m0fnu", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e5m2", "float8_e5m2fnuz", "bfloat16", "float16", "complex*",
    ),
    "float4_e2m1fn": (),
    "float6_e2m3fn": (),
    "float6_e3m2fn": (),
    "float8_e3m4": (),
    "float8_e4m3": (),
    "float8_e8m0fnu": (),
    "float8_e4m3b11fnuz": (),
    "float8_e4m3fn": (),
    "float8_e4m3fnuz": (),
    "float8_e5m2": (),
    "float8_e5m2fnuz": (),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64", "complex64"),
    "float64": ("complex128",),
    "complex*": ("complex64",),
    "complex64": ("complex128",),
    "complex128": (),
}
# 1-bit integers, where ml_dtypes has them, behave as the 2-bit ones.
for _d in _dtypes(int1, uint1):
    _LATTICE[_d.name] = ()
    _LATTICE["int*"] += (_d.name,)

_weak_types = (int, float, complex)
_weak_nodes = {int: "int*", float: "float*", complex: "complex*"}
_node_of_dtype = {d: d.name for d in _jax_types}
_type_of_node = {d.name: d for d in _jax_types} | {node: t for t, node in _weak_nodes.items()}
_weak_node_of_kind = {"b": "bool", "i": "int*", "u": "int*", "f": "float*", "c": "complex*"}


@functools.cache
def _upper_bounds(strict, x64):
    """For each type, the set of types above it or equal to it."""
    above = dict(_LATTICE)
    if strict:
        above = dict.fromkeys(above, ())
        above["int*"] = ("float*", *(d.name for d in _int_types))
        above["float*"] = ("complex*", *(d.name for d in _float_types))
        above["complex*"] = tuple(d.name for d in _complex_types)
    elif not x64:
        above["uint32"] = ("int32", "uint64")
    bounds = {}

    def visit(node):
        if node not in bounds:
            bounds[node] = {node}.union(*(visit(parent) for parent in above[node]))
        return bounds[node]

    for node in above:
        visit(node)
    return bounds


@functools.lru_cache(1024)
def _least_upper_bound(strict, x64, nodes):
    """The least type above all types of the frozenset `nodes`, by name."""
    bounds = _upper_bounds(strict, x64)
    unknown = [node for node in nodes if node not in bounds]
    if unknown:
        raise ValueError(f"Cannot promote {unknown[0]}: it is not a numeric dtype.")
    common = set.intersection(*(bounds[node] for node in nodes))
    for node in common:
        if common <= bounds[node]:
            return node
    raise TypePromotionError(_no_promotion_message(strict, x64, sorted(nodes)))


def _no_promotion_message(strict, x64, nodes):
    message = f"Input dtypes {tuple(nodes)} have no available implicit dtype promotion path"
    if strict:
        message += " when jax_numpy_dtype_promotion=strict. Cast the inputs explicitly"
        try:
            standard = _least_upper_bound(False, x64, frozenset(nodes))
            message += f" (standard promotion would give {standard})"
        except TypePromotionError:
            pass
        return message + ", or set jax_numpy_dtype_promotion=standard."
    narrow = [n for n in nodes if n.startswith(("float8", "float6", "float4"))]
    if narrow:
        return message + (
            f". {narrow[0]} does not promote implicitly, so that values are never widened or "
            "narrowed unseen; cast explicitly, e.g. with x.astype('float32')."
        )
    if any(_type_of_node[n] in _intn_dtypes for n in nodes):
        return message + (
            ". Integers of 4 bits and less do not promote implicitly, so that values are never "
            "widened or narrowed unseen; cast explicitly, e.g. with x.astype('int32')."
        )
    return message + ". Cast the inputs explicitly to the dtype you want."


def _promote(nodes):
    strict = config.numpy_dtype_promotion.value == "strict"
    return _least_upper_bound(strict, config.enable_x64.value, frozenset(nodes))


def _node(d, weak):
    if not weak:
        node = _node_of_dtype.get(d)
        return str(d) if node is None else node
    return "float*" if d in _custom_float_dtypes else _weak_node_of_kind[d.kind]


def promote_types(a, b):
    """The dtype in which an operation on values of dtypes `a` and `b` is done.

    The Python types int, float and complex stand for weak types: they do not change the width of
    the other dtype.

    Raises:
        TypePromotionError: if there is no implicit promotion.

    Example:
        >>> jnp.promote_types('int32', 'float16'), jnp.promote_types('uint8', int)
        (dtype('float16'), dtype('uint8'))
    """
    # By identity: `np.dtype("int64") == int` holds.
    nodes = [
        _weak_nodes[t] if any(t is w for w in _weak_types) else _node(np.dtype(t), False)
        for t in (a, b)
    ]
    return np.dtype(_type_of_node[_promote(nodes)])


_registered_weak_types: set = set()


def register_like_python_scalar(typ: type, like: type) -> None:
    """Declares a class of scalars that promote as those of a Python type do."""
    _default_of_python_type[typ] = _default_of_python_type[like]
    _registered_weak_types.add(typ)


def register_weak_scalar_type(typ) -> None:
    """Declares a class of scalars that are weakly typed, as Python's are."""
    _registered_weak_types.add(typ)


def is_weakly_typed(x) -> bool:
    """Whether `x` is a Python int, float or complex, or an array with a weak type."""
    if isinstance(x, _array_types):
        return x.weak_type
    if type(x) in _weak_nodes or type(x) in _registered_weak_types:
        return True
    aval = getattr(x, "aval", None)
    return bool(getattr(aval, "weak_type", False))


def is_weakly_typed_scalar(x) -> bool:
    """Whether `x` is a Python scalar, or an array with a weak type and no axes."""
    if type(x) in python_scalar_types:
        return True
    return type(x) not in _registered_weak_types and is_weakly_typed(x) and np.ndim(x) == 0


def _dtype_and_weak_type(x):
    if isinstance(x, _array_types):  # the common cases, without the calls
        return x.dtype, x.weak_type
    default = _default_of_python_type.get(type(x))
    if default is not None:
        return default(), type(x) is not bool
    return dtype(x), any(x is t for t in _weak_types) or is_weakly_typed(x)


def lattice_result_type(*args):
    """(dtype, weak_type) of the promotion of values and dtypes, before defaults apply."""
    pairs = tuple([_dtype_and_weak_type(x) for x in args])
    strict = config.numpy_dtype_promotion.value == "strict"
    result, node, weak = _promoted(strict, config.enable_x64.value, pairs)
    if node is not None:
        of_node = _type_of_node[node]
        result = _narrow_dtypes.get(of_node)
        if result is None:
            result = dtype(of_node)
    return result, weak and result != _bool


@functools.lru_cache(4096)
def _promoted(strict, x64, pairs):
    """(dtype, None, weak) of the promotion of (dtype, weak) pairs where it is the dtype of one of them as
    it is, else (None, node of the lattice, weak)."""
    first, weak = pairs[0]
    if len(pairs) == 1:
        return first, None, weak
    all_weak = all(weak for _, weak in pairs)
    if not all_weak and all(d == first for d, _ in pairs):
        return first, None, False  # extended dtypes pass here, too
    # The weak types may be of any width (a weak int16 array): promote at those widths.
    at_width = all_weak and not strict
    nodes = frozenset([_node(d, weak and not at_width) for d, weak in pairs])
    node = _least_upper_bound(strict, x64, nodes)
    return None, node, at_width or node.endswith("*")


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype of an operation on the arguments, which are values, dtypes or Python types.

    Args:
        *args: at least one value or dtype; None stands for the default float dtype.
        return_weak_type_flag: if true, return the pair (dtype, weak_type).
    Raises:
        TypePromotionError: if there is no implicit promotion.

    Example:
        >>> jnp.result_type(jnp.float16(1), 2.0)
        dtype('float16')
    """
    if not args:
        raise ValueError("result_type: got no arguments; at least one array or dtype is needed")
    d, weak = lattice_result_type(*[default_float_dtype() if x is None else x for x in args])
    if weak:
        d = default_types["f" if d in _custom_float_dtypes else d.kind]()
    return (d, weak) if return_weak_type_flag else d


def safe_to_cast(input_dtype_or_value, output_dtype_or_value) -> bool:
    """Whether promotion of the input (weak, if it is) with the output's dtype gives that dtype.

    Example:
        >>> safe_to_cast('int16', 'float32'), safe_to_cast('float32', 'int16')
        (True, False)
    """
    output = dtype(output_dtype_or_value)
    if dtype(input_dtype_or_value) == output:
        return True
    return result_type(input_dtype_or_value, output) == output


def has_tangent(dtype) -> bool:
    """Whether values of this dtype have tangents other than float0."""
    return not issubdtype(dtype, extended) and issubdtype(dtype, np.inexact)
