"""Argument checks, type promotion and shape promotion shared by the NumPy layer.

Invariants: every `promote_*` function returns arrays of one dtype and one weak type; a Python or
NumPy scalar becomes a 0-d array without an equation (a literal), never a `convert_element_type`.
"""

from __future__ import annotations

import operator
import warnings

import numpy as np
from numpy.exceptions import AxisError

from ferrax._src.base import dtypes
from ferrax._src.base.config import config
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.core import Array, as_array, concrete_or_error, traced_values
from ferrax._src.lax import api as lax
from ferrax._src.lax.arguments import is_int_tuple
from ferrax._src.transforms.jit import JitDecorator, jit

PYTHON_SCALARS = (bool, int, float, complex)
ARRAY_LIKE = (Array, np.ndarray, np.generic, bool, int, float, complex)

jit_inline: JitDecorator = jit(inline=True)


def is_array_like(x) -> bool:
    """True for arrays, NumPy arrays and scalars, Python numbers and `__jax_array__` objects."""
    return isinstance(x, ARRAY_LIKE) or hasattr(x, "__jax_array__")


def check_array_like(fun_name: str, *args) -> None:
    """Raises TypeError unless each argument is an array or a scalar."""
    for position, x in enumerate(args):
        if not isinstance(x, Array) and not is_array_like(x):
            raise TypeError(
                f"{fun_name} requires ndarray or scalar arguments; got {type(x)} as argument"
                f" {position}."
            )


def ensure_arrays(fun_name: str, *args) -> tuple[Array, ...]:
    """Checks the arguments and makes arrays of them; Python scalars stay weakly typed."""
    return tuple([ensure_array(x, fun_name, position) for position, x in enumerate(args)])


def ensure_array(x, fun_name: str, position: int = 0) -> Array:
    """`x` as an array. Errors: TypeError for what is neither array nor scalar, which names the
    function and the position of the argument."""
    if isinstance(x, Array):
        return x
    if not is_array_like(x):
        _reject(x, fun_name, position)
    return as_array(x)


def _reject(x, fun_name, position):
    raise TypeError(
        f"{fun_name} requires ndarray or scalar arguments; got {type(x)} as argument {position}."
    )


def reject_out(fun_name: str, out) -> None:
    """Arrays are immutable: `out=` is accepted in signatures, but only as None."""
    if out is not None:
        raise NotImplementedError(
            f"{fun_name}: arrays are immutable, so that there is no argument out; use the result"
        )


def needs_size(name: str, arguments: str) -> str:
    """What an error says where the values of a traced array decide how many results there are."""
    return (
        f"How many results jnp.{name} has depends on values. Say how many at most, and what stands for "
        f"those that are missing: jnp.{name}({arguments}, size=n, fill_value=0)."
    )


def weak(x) -> bool:
    """True if `x` is weakly typed: a Python scalar or a weak array."""
    if isinstance(x, Array):
        return x.weak_type
    return isinstance(x, PYTHON_SCALARS)


def is_subdtype(x, kind) -> bool:
    """`issubdtype` of the dtype of an array."""
    return dtypes.issubdtype(x.dtype, kind)


def convert(x, dtype, weak_type: bool = False) -> Array:
    """Converts to an exact dtype and weak type; adds an equation only if one of them changes."""
    if not isinstance(x, Array):
        if isinstance(x, PYTHON_SCALARS):
            return _convert_python_scalar(x, np.dtype(dtype), weak_type)
        if isinstance(x, np.generic) and not weak_type:
            return as_array(x.astype(dtype))
        x = as_array(x)
    if x.dtype == dtype and x.weak_type == weak_type:
        return x
    if dtype == np.bool_ and x.dtype.kind == "c":
        return lax.ne(x, as_array(np.zeros((), x.dtype)))
    return lax._convert_element_type(x, dtype, weak_type)


# Of this size no number overflows in a dtype of two bytes or more.
_FITS = 2**15


def _convert_python_scalar(x, dtype, weak_type: bool) -> Array:
    if not weak_type:
        if isinstance(x, (int, float)) and not isinstance(x, bool) and dtype.kind not in "iu":
            if dtype.itemsize > 1 and -_FITS <= x <= _FITS:
                return as_array(np.asarray(x, dtype))
            with np.errstate(over="ignore"):
                return as_array(np.asarray(x, dtype))
        return as_array(np.asarray(x, dtype))
    kind = dtype.kind
    scalar_type = {"b": bool, "i": int, "u": int, "c": complex}.get(kind, float)
    weak_scalar = as_array(scalar_type(x))
    return weak_scalar if weak_scalar.dtype == dtype else convert(weak_scalar, dtype, True)


def constant(value, like) -> Array:
    """A 0-d constant with the dtype and weak type of `like`; printed as a literal."""
    if like.weak_type:
        return _convert_python_scalar(value, like.dtype, True)
    return as_array(np.asarray(value, like.dtype))


def strong_constant(value, like) -> Array:
    """A strong 0-d constant with the dtype of `like`."""
    return as_array(np.asarray(value, like.dtype))


def filler(value, like) -> Array:
    """As `constant`, but weak only if `like` is a weak scalar: the rule of `full_like`."""
    return as_array(np.asarray(value, like.dtype)) if like.ndim else constant(value, like)


def alike(args):
    """The dtype of arguments that are strongly typed arrays of one dtype, else None."""
    common = None
    for x in args:
        if not isinstance(x, Array) or x.weak_type:
            return None
        dtype = x.dtype
        if dtype is not common:
            if common is not None:
                return None
            common = dtype
    return common


def _read(args) -> list:
    """The arguments, those arrays that stand behind `__jax_array__` included."""
    return [x if isinstance(x, ARRAY_LIKE) else as_array(x) for x in args]


def promote_dtypes(*args) -> list[Array]:
    """Converts to the common dtype (and weak type) of the promotion lattice."""
    if len(args) < 2:
        return [x if isinstance(x, Array) else as_array(x) for x in args]
    if alike(args) is not None:
        return list(args)
    read = _read(args)
    dtype, weak_type = dtypes.result_type(*read, return_weak_type_flag=True)
    return [convert(x, dtype, weak_type) for x in read]


def _promote_to(change, args) -> list[Array]:
    common = alike(args)
    if common is not None and change(common) == common:
        return list(args)
    read = _read(args)
    dtype, weak_type = dtypes.result_type(*read, return_weak_type_flag=True)
    dtype = change(dtype)
    return [convert(x, dtype, weak_type) for x in read]


def promote_dtypes_inexact(*args) -> list[Array]:
    """As `promote_dtypes`, integers and booleans becoming floating."""
    return _promote_to(dtypes.to_inexact_dtype, args)


def promote_dtypes_numeric(*args) -> list[Array]:
    """As `promote_dtypes`, booleans becoming integers."""
    return _promote_to(dtypes.to_numeric_dtype, args)


def promote_shapes(fun_name: str, *args) -> list[Array]:
    """Gives non-scalar arguments one rank by leading 1s; lax broadcasts sizes 1 and scalars."""
    if len(args) < 2:
        return list(args)
    ranks = {x.ndim for x in args if x.ndim}
    if len(ranks) < 2:
        return list(args)
    check_rank_promotion(fun_name, args)
    rank = max(ranks)
    return [
        lax.broadcast_in_dim(
            x, (1,) * (rank - x.ndim) + tuple(x.shape), tuple(range(rank - x.ndim, rank))
        )
        if x.ndim not in (0, rank)
        else x
        for x in args
    ]


def check_rank_promotion(fun_name, args) -> None:
    """Warns or raises ValueError, as `jax_numpy_rank_promotion` says, of arguments whose ranks differ."""
    policy = getattr(config, "jax_numpy_rank_promotion", "allow")
    if policy == "allow":
        return
    shapes = " ".join(str(tuple(x.shape)) for x in args)
    message = (
        f"{fun_name} got operands of different ranks: {shapes}; broadcast them explicitly or set"
        ' jax_numpy_rank_promotion to "allow".'
    )
    if policy == "raise":
        raise ValueError(
            f'{fun_name}: jax_numpy_rank_promotion="raise" refuses operands of different ranks, got'
            f" shapes {shapes}. {message}"
        )
    warnings.warn(message, stacklevel=user_stacklevel())


def promote_args(fun_name: str, *args) -> list[Array]:
    """Checks, then promotes dtypes and ranks."""
    check_array_like(fun_name, *args)
    return promote_shapes(fun_name, *promote_dtypes(*args))


def promote_args_numeric(fun_name: str, *args) -> list[Array]:
    """Checks, then promotes dtypes (booleans to integers) and ranks."""
    check_array_like(fun_name, *args)
    return promote_shapes(fun_name, *promote_dtypes_numeric(*args))


def promote_args_inexact(fun_name: str, *args) -> list[Array]:
    """Checks, then promotes dtypes (integers to floats) and ranks."""
    check_array_like(fun_name, *args)
    return promote_shapes(fun_name, *promote_dtypes_inexact(*args))


def user_dtype(dtype, fun_name: str):
    """Canonical dtype of a `dtype=` argument; None stays None."""
    return None if dtype is None else dtypes.check_and_canonicalize_user_dtype(dtype, fun_name)


def real_dtype(dtype):
    """The dtype of the parts of a complex dtype; any other dtype is returned as it is."""
    dtype = np.dtype(dtype)
    return np.zeros((), dtype).real.dtype if dtype.kind == "c" else dtype


def normalize_axis(axis, ndim: int) -> int:
    """One axis as an int in [0, ndim); ValueError if out of bounds, TypeError if no integer."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise AxisError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


def normalize_axes(axis, ndim: int) -> tuple[int, ...]:
    """None, an axis or a sequence of axes as a tuple of distinct axes, in the order given."""
    if axis is None:
        return tuple(range(ndim))
    try:
        return (normalize_axis(axis, ndim),)
    except TypeError:
        axes = tuple(concrete_or_error(None, axis, "axis shapes the program."))
    axes_out = tuple([normalize_axis(a, ndim) for a in axes])
    if len(set(axes_out)) != len(axes_out):
        raise ValueError(f"duplicate value in 'axis', {tuple(axes)}: name each axis once")
    return axes_out


def canonical_shape(shape, context: str = "") -> tuple[int, ...]:
    """A shape argument as a tuple of integers; an integer stands for one dimension."""
    if is_int_tuple(shape):
        return shape
    try:
        sizes = (operator.index(shape),)
    except TypeError:
        try:
            sizes = tuple(shape)
        except TypeError:
            sizes = (shape,)
    try:
        return tuple(d if _is_symbolic(d) else operator.index(d) for d in sizes)
    except TypeError:
        message = (
            f"a shape is a sequence of integers that are known while tracing, got {sizes}."
            f"{' ' + context if context else ''}"
        )
        if any(isinstance(d, Array) for d in sizes):
            message += (
                " Under `jit`, mark the argument in `static_argnums`, or take sizes from `x.shape`."
                f"{traced_values(sizes)}"
            )
        raise TypeError(message) from None


def _is_symbolic(d) -> bool:
    return hasattr(d, "dimension_as_value")


def broadcast_to(x: Array, shape: tuple[int, ...]) -> Array:
    """Broadcasts an array by NumPy's rule in at most one equation."""
    old = tuple(x.shape)
    if old == shape:
        return x
    lead = len(shape) - len(old)
    if lead < 0:
        raise ValueError(
            f"cannot broadcast shape {old} to {shape}, which has fewer axes"
        )
    if any(a != b and a != 1 for a, b in zip(old, shape[lead:])):
        raise ValueError(
            "Incompatible types for broadcasting: input"
            f" type={x.dtype}[{','.join(map(str, old))}] and requested"
            f" type={x.dtype}[{','.join(map(str, shape))}]"
        )
    kept = tuple([i for i in range(len(old)) if old[i] == shape[i + lead]])
    if len(kept) < len(old):
        squeezed = tuple([i for i in range(len(old)) if i not in kept])
        x = lax.squeeze(x, squeezed)
    return lax.broadcast_in_dim(x, shape, tuple([i + lead for i in kept]))


@jit
def _where(condition, x, y):
    if not isinstance(condition, Array):  # under disable_jit it comes as it was given
        condition = as_array(condition, "where")
    x, y = promote_dtypes(x, y)
    if condition.dtype != np.bool_:
        condition = lax.ne(condition, strong_constant(0, condition))
    shape = lax.broadcast_shapes(condition.shape, x.shape, y.shape)
    if condition.ndim:
        condition = broadcast_to(condition, shape)
    return lax.select_n(condition, broadcast_to(y, shape), broadcast_to(x, shape))


def where(condition, x, y) -> Array:
    """Three-argument `where` for the functions of this layer."""
    return _where(condition, x, y)
