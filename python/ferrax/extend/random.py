"""Generators of random bits, for programs that name them as objects."""

# ruff: noqa: F401

from ferrax._src.base import public as _public
from ferrax._src.core.primitives import builtin as _builtin
from ferrax._src.random.generators import (
    define_prng_impl as define_prng_impl,
    rbg_prng_impl as rbg_prng_impl,
    unsafe_rbg_prng_impl as unsafe_rbg_prng_impl,
)
from ferrax._src.random.prng import (
    random_seed as random_seed,
    seed_with_impl as seed_with_impl,
    threefry_2x32 as threefry_2x32,
    threefry_prng_impl as threefry_prng_impl,
)

threefry2x32_p = _builtin("threefry2x32")

_public.export(__name__)
