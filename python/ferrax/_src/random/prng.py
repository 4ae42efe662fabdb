"""PRNG keys: generators by name, checks of what users pass as keys, functions that make keys.

A key array has an extended dtype (`key<fry>`), so that arithmetic on it is a type error. A legacy
key is a uint32 array whose last axis holds the words of one key; samplers accept both.
"""

from __future__ import annotations

import operator
import warnings
from typing import Any, NewType

import numpy as np

from ferrax._src import core
from ferrax._src.base import config, dtypes
from ferrax._src.base.errors import user_stacklevel
from ferrax._src.base.extended_dtypes import PRNG_IMPLS
from ferrax._src.base.traceback_util import bounded, leave
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.random.key_primitives import (
    key_type,
    random_bits as random_bits,
    random_fold_in,
    random_seed as random_seed,
    random_split as random_split,
    random_unwrap as random_unwrap,
    random_wrap,
    seed_with_impl as seed_with_impl,
    threefry_2x32 as threefry_2x32,
    threefry_prng_impl as threefry_prng_impl,
)

PRNGImpl = dtypes.PRNGImpl
# For annotations: an array of keys.
Key = NewType("Key", Array)
Key.__doc__ = """The type of keys, for annotations: an array.

>>> ferrax.random.Key(ferrax.random.key(0)).dtype
key<fry>
"""

# Generators that have a name, by that.
prngs = PRNG_IMPLS


# ---------------------------------------------------------------------------------------------
# Specifications of generators.


class PRNGSpec:
    """A generator as `key_impl` names one that has no registered name."""

    __slots__ = ("_impl",)

    def __init__(self, impl):
        self._impl = impl

    def __repr__(self):
        return f"PRNGSpec({self._impl.name!r})"

    def __str__(self):
        return str(self._impl)

    def __hash__(self):
        return hash(self._impl)

    def __eq__(self, other):
        return isinstance(other, PRNGSpec) and self._impl == other._impl


def default_prng_impl():
    """The generator named by the flag `jax_default_prng_impl`."""
    return resolve_prng_impl(config.default_prng_impl.value)


def resolve_prng_impl(spec):
    """The generator for a name, a key dtype, a `PRNGSpec`, or None (the default one).

    Raises:
        ValueError: for an unknown name.
        TypeError: for anything else.
    """
    if spec is None:
        return default_prng_impl()
    if isinstance(spec, PRNGImpl):
        return spec
    if isinstance(spec, (PRNGSpec, dtypes.KeyTy)):
        return spec._impl
    if isinstance(spec, str):
        if spec in prngs:
            return prngs[spec]
        raise ValueError(
            f'unrecognized PRNG implementation "{spec}": expected one of '
            f"{', '.join(repr(name) for name in prngs)}."
        )
    raise TypeError(
        f"unrecognized type {type(spec)} for a PRNG implementation: expected its name or a "
        "PRNGSpec"
    )


# ---------------------------------------------------------------------------------------------
# Checks.


def is_key_array(x) -> bool:
    """Whether `x` is an array of typed keys."""
    return isinstance(x, core.Array) and dtypes.issubdtype(x.dtype, dtypes.prng_key)


def check_key(name, key, *, allow_batched=False):
    """(typed key, whether `key` was a legacy one) for the key argument of the function `name`.

    Raises:
        TypeError: if it is no key.
        ValueError: if it is an array of several keys, unless `allow_batched`; or a legacy key,
            where the flag `jax_legacy_prng_key` forbids those.
    """
    if is_key_array(key):
        typed, legacy = key, False
    elif isinstance(key, (core.Array, np.ndarray, np.generic, int, float, complex)):
        typed, legacy = random_wrap(key, default_prng_impl()), True
        _check_legacy_allowed()
    else:
        raise TypeError(f"expected a PRNG key, as random.key makes one, got {type(key)}")
    if not allow_batched and typed.ndim:
        raise ValueError(
            f"{name}: expected one key, got an array of keys of shape {tuple(key.shape)}; map over it "
            "with ferrax.vmap."
        )
    return typed, legacy


def _check_legacy_allowed():
    policy = config.legacy_prng_key.value
    advice = (
        "A raw uint32 array was passed as a random key. Make keys with ferrax.random.key(), or, if "
        'raw keys are meant, set jax_legacy_prng_key="allow".'
    )
    if policy == config.LegacyPrngKeyState.ERROR:
        raise ValueError(advice)
    if policy == config.LegacyPrngKeyState.WARN:
        warnings.warn(advice, stacklevel=user_stacklevel())
    elif config.enable_custom_prng.value:
        warnings.warn(
            "Raw uint32 arrays as random keys are deprecated while jax_enable_custom_prng is set.",
            FutureWarning,
            stacklevel=user_stacklevel(),
        )


def as_given(keys, legacy):
    """Keys in the form in which the user works with them: raw words if `legacy`."""
    return random_unwrap(keys) if legacy and not config.enable_custom_prng.value else keys


def canonicalize_shape(shape, context="") -> tuple[int, ...]:
    """A shape argument as a tuple of ints; an int stands for a shape of one axis.

    Raises:
        TypeError: if an extent is no integer, or is negative, or is traced.
    """
    if isinstance(shape, str):
        raise TypeError(f"Shapes must be sequences of integers, got {shape!r}.")
    try:
        extents = tuple(shape)
    except TypeError:  # of no axes
        extents = (shape,)
    try:
        result = tuple(operator.index(extent) for extent in extents)
    except TypeError as error:
        if any(isinstance(extent, core.Tracer) for extent in extents):
            raise  # the tracer's own error says what to do
        where = f" in {context}" if context else ""
        raise TypeError(
            f"a shape is a sequence of integers that are known while tracing, got {shape}{where}."
        ) from error
    if any(extent < 0 for extent in result):
        raise TypeError(f"Shapes cannot have negative extents, got {result}.")
    return result


# ---------------------------------------------------------------------------------------------
# Functions of `ferrax.random` that make and take apart keys.


def _make_key(name, seed, spec):
    wrong = None
    if is_key_array(seed):
        wrong = "a key; use random.split or random.fold_in"
    elif np.ndim(seed):
        wrong = f"an array of shape {np.shape(seed)}; map over it with ferrax.vmap"
    if wrong is not None:
        raise TypeError(f"{name} makes a key of one integer, got {wrong}")
    return random_seed(seed, resolve_prng_impl(spec))


def _impl_or_dtype(name, impl, dtype):
    if impl is not None and dtype is not None:
        raise ValueError(f"{name} takes one of `impl` and `dtype`, got both.")
    return impl if dtype is None else dtype


@bounded
def key(seed: Any, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    """A random key from an integer seed.

    Args:
        seed: integer scalar.
        impl: the generator: a name such as 'threefry2x32', or None for the default one.
        dtype: the same, as a key dtype.
    Returns:
        A 0-d array of the generator's dtype, `key<fry>` by default.
    Raises:
        TypeError: if the seed is not an integer scalar.

    Example:
        >>> ferrax.random.uniform(ferrax.random.key(0))
        Array(0.947667, dtype=float32)
    """
    try:
        return _make_key("key", seed, _impl_or_dtype("ferrax.random.key", impl, dtype))
    except Exception:
        leave()
        raise


@bounded
def PRNGKey(seed: Any, *, impl: Any = None) -> Array:
    """A legacy key from an integer seed: the raw words of `key(seed)`, a uint32 array.

    Args:
        seed: integer scalar.
        impl: the generator; see `key`.
    Returns:
        uint32 array of shape (2,).

    Example:
        >>> ferrax.random.PRNGKey(7)
        Array([0, 7], dtype=uint32)
    """
    try:
        return as_given(_make_key("PRNGKey", seed, impl), True)
    except Exception:
        leave()
        raise


def key_dtype(impl_spec: Any = None) -> Any:
    """The dtype of the keys of a generator, e.g. `key<fry>` for 'threefry2x32'.

    Args: impl_spec: the generator, as for `key`; default that of the settings.

    >>> ferrax.random.key_dtype("threefry2x32")
    key<fry>
    """
    return key_type(resolve_prng_impl(impl_spec))


def key_impl(keys: Any) -> str | PRNGSpec:
    """The name of the generator of keys, in the form that `key(impl=)` takes.

    Args: keys: an array of keys.

    >>> ferrax.random.key_impl(ferrax.random.key(0))
    'threefry2x32'
    """
    typed, _ = check_key("key_impl", keys, allow_batched=True)
    impl = typed.dtype._impl
    return impl.name if impl.name in prngs else PRNGSpec(impl)


def key_data(keys: Any) -> Array:
    """The words of keys: uint32 array of shape `keys.shape + (2,)`, or as many as the generator's keys have.

    Example:
        >>> ferrax.random.key_data(ferrax.random.key(7))
        Array([0, 7], dtype=uint32)
    """
    typed, _ = check_key("key_data", keys, allow_batched=True)
    return random_unwrap(typed)


def wrap_key_data(key_bits_array: ArrayLike, *, impl: Any = None, dtype: DTypeLike | None = None) -> Array:
    """Keys from their words; the inverse of `key_data`.

    Args:
        key_bits_array: uint32 array of shape (..., 2), or as many words as the generator's keys have.
        impl, dtype: the generator; see `key`.
    Returns:
        Key array of shape (...).
    Raises:
        TypeError: if the array cannot be words of keys.

    >>> keys = ferrax.random.wrap_key_data(jnp.array([[0, 1], [2, 3]], jnp.uint32))
    >>> keys.shape, ferrax.random.key_data(keys[1])
    ((2,), Array([2, 3], dtype=uint32))
    """
    spec = _impl_or_dtype("ferrax.random.wrap_key_data", impl, dtype)
    return random_wrap(key_bits_array, resolve_prng_impl(spec))


@bounded
def split(key: Array, num: Any = 2) -> Array:
    """New keys from one key, which should then not be used any more.

    Args:
        key: a single key.
        num: how many, or the shape of an array of them. Key i does not depend on `num`.
    Returns:
        Key array of shape (num,) or `num`.
    Raises:
        ValueError: if `key` is an array of keys.

    Example:
        >>> key, subkey = ferrax.random.split(ferrax.random.key(0))
    """
    try:
        typed, legacy = check_key("split", key)
        return as_given(random_split(typed, canonicalize_shape(num, "ferrax.random.split")), legacy)
    except Exception:
        leave()
        raise


@bounded
def fold_in(key: Array, data: ArrayLike) -> Array:
    """A new key from a key and an integer, e.g. the number of a step or of a device.

    Args:
        key: a single key.
        data: integer scalar, taken as uint32.
    Returns:
        A single key.
    Raises:
        TypeError: if `data` is not a scalar.
        OverflowError: if `data` is a Python int out of the range of uint32.

    Example:
        >>> key = ferrax.random.key(0)
        >>> ferrax.random.fold_in(key, 1) == ferrax.random.fold_in(key, 2)
        Array(False, dtype=bool)
    """
    try:
        typed, legacy = check_key("fold_in", key)
        if np.ndim(data):
            raise TypeError(
                f"fold_in: expected one number, got an array of shape {np.shape(data)}; map over it with "
                "ferrax.vmap."
            )
        return as_given(random_fold_in(typed, jnp.asarray(data, dtype=np.uint32)), legacy)
    except Exception:
        leave()
        raise


def clone(key: Array) -> Array:
    """The same key as a new array, which `jax_debug_key_reuse` lets be used once more.

    Args: key: an array of keys, of any shape.

    >>> ferrax.random.key_data(ferrax.random.clone(ferrax.random.key(7)))
    Array([0, 7], dtype=uint32)
    """
    typed, legacy = check_key("clone", key, allow_batched=True)
    copy = random_wrap(random_unwrap(typed), typed.dtype._impl)
    return as_given(copy, legacy)
