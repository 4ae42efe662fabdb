"""Random numbers of a kernel by a hidden state: `prng_seed`, `prng_random_bits` and `stateful_*`.

In: seeds. Out: bits, and numbers that samplers of `jax.random` make of them. The stream is ferrax's own and
no TPU's: the seeds are folded, one after the other, into `random.key(0)`, and the n-th draw after that is
the sampler of the key with n folded in. Each step of a grid, and each core, begins as if by `prng_seed(0)`:
seed by `program_id` for other numbers in other steps.

Invariant: the stack has an entry for each kernel that is traced on this thread.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np

from ferrax._src import core
from ferrax._src.core.typing import DTypeLike
from ferrax._src.lax.elementwise import bitcast_convert_type
from ferrax._src.random import prng, samplers
from ferrax._src.state import at_user_line, new_ref


class _State(threading.local):
    def __init__(self) -> None:
        self.refs: list[Any] = []


_state = _State()


@contextlib.contextmanager
def generator():
    """A context in which kernels draw: of refs of the key's two words, and of the number of draws."""
    seeded = _key(0)
    _state.refs.append((new_ref(prng.key_data(seeded)), new_ref(core.as_array(np.uint32(0)))))
    try:
        yield
    finally:
        _state.refs.pop()


def _key(*seeds):
    key = prng.key(0, impl="threefry2x32")
    for seed in seeds:
        key = prng.fold_in(key, seed)
    return key


def _refs(name):
    if not _state.refs:
        raise ValueError(f"{name} is of a kernel, and none is traced here: use jax.random with a key.{at_user_line()}")
    return _state.refs[-1]


def prng_seed(*seeds: Any) -> None:
    """Begins the kernel's stream of random numbers anew.

    Args: seeds: integers or int32 scalars, traced or not; together they name the stream.

    Errors: ValueError outside of kernels, and without seeds.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> def kernel(o_ref):
    ...     pltpu.prng_seed(7, 1)
    ...     o_ref[...] = pltpu.stateful_uniform((4,))
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((4,), jnp.float32))().shape
    (4,)
    """
    words, count = _refs("prng_seed")
    if not seeds:
        raise ValueError("prng_seed: give a seed")
    words[...] = prng.key_data(_key(*seeds))
    count[...] = core.as_array(np.uint32(0))


def _next(name):
    words, count = _refs(name)
    key = prng.fold_in(prng.wrap_key_data(words[...], impl="threefry2x32"), count[...])
    count[...] = count[...] + np.uint32(1)
    return key


def prng_random_bits(shape: Any) -> Any:
    """Random bits of the kernel's stream, which goes on. The stream is not that of a TPU.

    Args: shape: of the result.

    Returns an int32 array. Errors: ValueError outside of kernels.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> def kernel(o_ref):
    ...     pltpu.prng_seed(7)
    ...     o_ref[...] = pltpu.prng_random_bits((4,))
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((4,), jnp.int32))().shape
    (4,)
    """
    return bitcast_convert_type(samplers.bits(_next("prng_random_bits"), tuple(shape), np.uint32), np.int32)


def stateful_bits(shape: Any = (), dtype: DTypeLike | None = None) -> Any:
    """`jax.random.bits` of the kernel's stream. Args: shape, dtype: as there. Errors: as `prng_random_bits`.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> def kernel(o_ref):
    ...     o_ref[...] = pltpu.stateful_bits((4,))
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((4,), jnp.uint32))().shape
    (4,)
    """
    return samplers.bits(_next("stateful_bits"), shape, dtype)


def stateful_uniform(
    shape: Any = (), dtype: DTypeLike | None = None, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """`jax.random.uniform` of the kernel's stream.

    Args: shape, dtype, minval, maxval: as there. Errors: as `prng_random_bits`.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> def kernel(o_ref):
    ...     o_ref[...] = pltpu.stateful_uniform((4,), maxval=2.0)
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((4,), jnp.float32))().shape
    (4,)
    """
    return samplers.uniform(_next("stateful_uniform"), shape, dtype, minval, maxval)


def stateful_bernoulli(p: Any = 0.5, shape: Any = None) -> Any:
    """`jax.random.bernoulli` of the kernel's stream. Args: p, shape: as there. Errors: as `prng_random_bits`.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> def kernel(o_ref):
    ...     o_ref[...] = pltpu.stateful_bernoulli(0.5, (4,))
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((4,), jnp.bool_))().shape
    (4,)
    """
    return samplers.bernoulli(_next("stateful_bernoulli"), p, shape)


def stateful_normal(shape: Any = (), dtype: DTypeLike | None = None) -> Any:
    """`jax.random.normal` of the kernel's stream. Args: shape, dtype: as there. Errors: as `prng_random_bits`.

    >>> from ferrax.experimental import pallas as pl
    >>> from ferrax.experimental.pallas import tpu as pltpu
    >>> def kernel(o_ref):
    ...     o_ref[...] = pltpu.stateful_normal((4,))
    >>> pl.pallas_call(kernel, ferrax.ShapeDtypeStruct((4,), jnp.float32))().shape
    (4,)
    """
    return samplers.normal(_next("stateful_normal"), shape, dtype)
