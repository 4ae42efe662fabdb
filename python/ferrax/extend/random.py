"""Generators of random bits, for programs that name them as objects."""

# ruff: noqa: F401

from ferrax._src.base.absent import absent as _absent, group as _group
from ferrax._src.core.primitives import builtin as _builtin
from ferrax._src.random.prng import (
    random_seed as random_seed,
    seed_with_impl as seed_with_impl,
    threefry_2x32 as threefry_2x32,
    threefry_prng_impl as threefry_prng_impl,
)

threefry2x32_p = _builtin("threefry2x32")

__getattr__ = _absent(
    __name__,
    {
        "define_prng_impl": "keys are of the generators that the compiler knows, of which there is "
        "threefry2x32. Draw bits of another generator with functions of arrays of your own",
        **_group(
            "rbg_prng_impl unsafe_rbg_prng_impl",
            "the generator is one of XLA's; use threefry2x32",
        ),
    },
)
