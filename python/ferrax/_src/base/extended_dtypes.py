"""Extended dtypes: those that NumPy does not know, which are the dtypes of PRNG keys.

The native core gives one object as the dtype of all keys of a generator, `key_fry` for Threefry. Import
extended dtypes from `ferrax._src.dtypes`.
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
    """A random number generator: how its keys look, and the functions that make and use one key.

    Attributes:
        key_shape: the shape of the uint32 words that make up one key: one, two or four words.
        seed: of an integer, the words of a key.
        split: of words and a shape, the words of as many new keys.
        random_bits: of words, a number of bits and a shape, an array of unsigned integers.
        fold_in: of words and an integer, the words of a new key.
        name: its full name, e.g. 'threefry2x32'.
        tag: its short name, which prints in dtypes, e.g. 'fry'.

    >>> impl = ferrax.extend.random.threefry_prng_impl
    >>> impl.name, impl.tag, impl.key_shape
    ('threefry2x32', 'fry', (2,))
    """

    __slots__ = ("key_shape", "seed", "split", "random_bits", "fold_in", "name", "tag")

    def __init__(self, key_shape, seed, split, random_bits, fold_in, name="<unnamed>", tag="?"):
        self.key_shape, self.name, self.tag = tuple(key_shape), name, tag
        self.seed, self.split, self.random_bits, self.fold_in = seed, split, random_bits, fold_in

    def _fields(self):
        return tuple(getattr(self, field) for field in self.__slots__)

    def __repr__(self):
        return f"PRNGImpl(name={self.name!r}, tag={self.tag!r}, key_shape={self.key_shape})"

    def __str__(self):
        return self.tag

    def __hash__(self):
        return hash(self.tag)

    def __eq__(self, other):
        return self is other or (isinstance(other, PRNGImpl) and self._fields() == other._fields())

    def __reduce__(self):
        if PRNG_IMPLS.get(self.name) is self:
            return _known, (self.name,)
        return PRNGImpl, self._fields()


def _known(name):
    return PRNG_IMPLS[name]


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

    @property
    def _native(self):
        """The generator's number and name in the native core."""
        try:
            return REGISTERED[self._impl]
        except KeyError:
            raise TypeError(
                f"{self} is the dtype of no generator that is in use: make keys with random.key(seed, impl=...)"
            ) from None

    @property
    def _number(self):
        return self._native[0]

    def __repr__(self):
        return self.name

    def __eq__(self, other):
        return type(other) is KeyTy and self._impl == other._impl

    def __hash__(self):
        return self._hash

    def __reduce__(self):
        return KeyTy, (self._impl,)


# Generators that the native core knows: their number and name there, and back from the name.
REGISTERED: dict[PRNGImpl, tuple[int, str]] = {}
REGISTERED_BY_NAME: dict[str, PRNGImpl] = {}
# Generators that have a name, by that.
PRNG_IMPLS: dict[str, PRNGImpl] = {}

# Its functions are in `ferrax._src.random.generators`, which puts them here.
threefry2x32_impl = PRNGImpl((2,), None, None, None, None, "threefry2x32", "fry")
# The dtype object of all threefry keys; the native core gives this object as `key.dtype`.
key_fry = KeyTy(threefry2x32_impl)
PRNG_IMPLS[threefry2x32_impl.name] = threefry2x32_impl
