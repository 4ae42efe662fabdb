"""Extended dtypes: those that NumPy does not know, which are the dtypes of PRNG keys.

The native core gives the object `key_fry` as the dtype of key arrays. Import extended dtypes from
`ferrax._src.dtypes`.
"""

from __future__ import annotations

import numpy as np


class extended(np.generic):
    """Scalar class above those of all extended dtypes; for `issubdtype` only, no instances.

    Example:
        >>> jnp.issubdtype(ferrax.random.key(0).dtype, ferrax.dtypes.extended)
        True
    """


class prng_key(extended):
    """Scalar class of PRNG key dtypes; for `issubdtype` only, no instances.

    Example:
        >>> jnp.issubdtype(ferrax.random.key(0).dtype, ferrax.dtypes.prng_key)
        True
    """


class ExtendedDType:
    """Base class of dtypes that NumPy does not know. `type` is their scalar class."""

    type: type = extended
    _rules = None


class PRNGImpl:
    """A random number generator as far as its keys' dtype needs it.

    Attributes:
        name: its full name, e.g. 'threefry2x32'.
        tag: its short name, which prints in dtypes, e.g. 'fry'.
        key_shape: the shape of the uint32 words that make up one key.

    >>> impl = ferrax.extend.random.threefry_prng_impl
    >>> impl.name, impl.tag, impl.key_shape
    ('threefry2x32', 'fry', (2,))
    """

    __slots__ = ("name", "tag", "key_shape")

    def __init__(self, name, tag, key_shape):
        self.name, self.tag, self.key_shape = name, tag, key_shape

    def __repr__(self):
        return f"PRNGImpl(name={self.name!r}, tag={self.tag!r}, key_shape={self.key_shape})"

    def __str__(self):
        return self.tag

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, PRNGImpl) and self.name == other.name

    def __reduce__(self):
        return PRNGImpl, (self.name, self.tag, self.key_shape)


class KeyTy(ExtendedDType):
    """The dtype of arrays of PRNG keys of one generator; prints as e.g. `key<fry>`."""

    __slots__ = ("_impl", "_hash")
    type = prng_key

    def __init__(self, impl):
        self._impl = impl
        self._hash = hash((KeyTy, impl))

    @property
    def name(self):
        return f"key<{self._impl.tag}>"

    @property
    def itemsize(self):
        size = 4
        for extent in self._impl.key_shape:
            size *= extent
        return size

    def __repr__(self):
        return self.name

    def __eq__(self, other):
        return type(other) is KeyTy and self._impl == other._impl

    def __hash__(self):
        return self._hash

    def __reduce__(self):
        return KeyTy, (self._impl,)


threefry2x32_impl = PRNGImpl("threefry2x32", "fry", (2,))
# The dtype object of all threefry keys; the native core gives this object as `key.dtype`.
key_fry = KeyTy(threefry2x32_impl)
# Generators that exist, by name.
PRNG_IMPLS = {"threefry2x32": threefry2x32_impl}
