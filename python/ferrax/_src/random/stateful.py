"""A generator of random numbers that advances by itself: a key, and a count in a mutable array.

Key number n is the base key with n folded in, so that each call of a method has a key of its own, also in
traced functions: there the count is an input and an output, like other mutable arrays.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.base import dtypes
from ferrax._src.core import Array
from ferrax._src.core.typing import ArrayLike, DTypeLike
from ferrax._src.numpy import api as jnp
from ferrax._src.random import prng, samplers
from ferrax._src.state import Ref, new_ref
from ferrax._src.tree import tree_util

Size = int | Sequence[int]


def _shape(size, *arguments):
    """The shape that `size` means; None: the broadcast shape of the arguments."""
    if size is None:
        return np.broadcast_shapes(*map(np.shape, arguments))
    if isinstance(size, (int, np.integer)):
        return (operator.index(size),)
    return tuple(map(operator.index, size))


@dataclasses.dataclass(frozen=True)
class StatefulPRNG:
    """A generator whose methods draw other numbers at each call; `stateful_rng` makes one.

    It is a pytree of the key and the count, and may be an argument of traced functions, but no result or
    carry, as mutable arrays may not. Errors: ValueError if it is made of anything but a typed key and a
    mutable array.

    >>> from ferrax.experimental import random
    >>> rng = random.stateful_rng(42)
    >>> rng.uniform() == rng.uniform()
    Array(False, dtype=bool)
    """

    _base_key: Array
    _counter: Ref

    def __post_init__(self) -> None:
        # Trees of other things, such as axes and types, have this structure, too.
        if isinstance(self._base_key, core.Array) and not prng.is_key_array(self._base_key):
            raise ValueError(f"StatefulPRNG: expected a typed key, got {self._base_key!r}")
        if prng.is_key_array(self._base_key) and isinstance(self._counter, (core.Array, int)):
            raise ValueError(
                f"StatefulPRNG: expected the counter to be a mutable array, got {self._counter!r}"
            )

    def key(self, shape: Size = ()) -> Array:
        """A new key, or an array of them of this shape, of the generator of the base key.

        Errors: ValueError of what `split` gives, outside of `vmap`.
        """
        if self._base_key.shape:
            raise ValueError(
                "the generator was split into several: take one of them by ferrax.vmap, or make a list of "
                "generators by spawn"
            )
        key = prng.fold_in(self._base_key, self._counter[...])
        self._counter[...] = self._counter[...] + 1
        extents = _shape(shape)
        return prng.split(key, extents) if extents else key

    def random(self, size: Size | None = None, dtype: DTypeLike = float) -> Array:
        """Uniform numbers in [0, 1) of the shape `size`; None: one."""
        return samplers.uniform(self.key(), _shape(size), dtype)

    def uniform(
        self, low: ArrayLike = 0, high: ArrayLike = 1, size: Size | None = None, *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Uniform numbers in [low, high) of the shape `size`; None: that to which the bounds broadcast."""
        shape = _shape(size, low, high)
        return samplers.uniform(self.key(), shape, dtype, minval=low, maxval=high)

    def normal(
        self, loc: ArrayLike = 0, scale: ArrayLike = 1, size: Size | None = None, *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Normal numbers of this mean and deviation, of the shape `size`; None: that of the parameters."""
        mean, deviation = jnp.asarray(loc), jnp.asarray(scale)
        shape = _shape(size, mean, deviation)
        standard = samplers.normal(self.key(), shape, dtype)
        return (standard * deviation + mean).astype(dtype)

    def integers(
        self, low: ArrayLike, high: ArrayLike | None = None, size: Size | None = None, *,
        dtype: DTypeLike = int,
    ) -> Array:
        """Integers in [low, high), in [0, low) without `high`, of the shape `size`; None: that of the bounds."""
        start, end = (0, low) if high is None else (low, high)
        shape = _shape(size, start, end)
        return samplers.randint(self.key(), shape, start, end, dtype)

    def split(self, num: Size) -> StatefulPRNG:
        """An array of generators of the shape `num`, to be mapped over by `vmap`."""
        return StatefulPRNG(self.key(num), new_ref(jnp.zeros(num, dtype=int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """So many generators, in a list."""
        keys = self.key(n_children)
        return [StatefulPRNG(keys[child], new_ref(0)) for child in range(n_children)]


tree_util.register_dataclass(StatefulPRNG)


def stateful_rng(seed: ArrayLike | None = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator of random numbers that advances by itself.

    Args:
        seed: integer scalar; None: entropy of the system.
        impl: the generator of bits, as for `ferrax.random.key`.
    Errors:
        TypeError: without a seed in a traced function.

    Example:
        >>> from ferrax.experimental import random
        >>> rng = random.stateful_rng(0)
        >>> ferrax.random.key_data(rng.key())
        Array([1797259609, 2579123966], dtype=uint32)
        >>> ferrax.random.key_data(rng.key())
        Array([ 928981903, 3453687069], dtype=uint32)
    """
    if seed is None:
        if not core.trace_state_clean():
            raise TypeError("stateful_rng in a traced function needs a seed")
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        seed = np.int64(entropy & dtypes.iinfo(np.int64).max)
    return StatefulPRNG(prng.key(seed, impl=impl), new_ref(0))
