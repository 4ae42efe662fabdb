"""Where samplers put their results: the argument `out_sharding`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from ferrax._src.core import Array
from ferrax._src.core.placement import explicit_sharding
from ferrax._src.lax.out_sharding import of_result
from ferrax._src.parallel.constraints import reshard

P = ParamSpec("P")


def placed(sampler: Callable[P, Array]) -> Callable[P, Array]:
    """The sampler, with its argument `out_sharding`: the result is divided so over explicit axes of a mesh.

    Errors: those of `reshard`, before anything is drawn where the sharding itself is wrong.
    """

    @functools.wraps(sampler)
    def sample(*args: Any, out_sharding: Any = None, **kwargs: Any) -> Array:
        if out_sharding is None:
            return sampler(*args, **kwargs)
        where = explicit_sharding(out_sharding, sampler.__name__)
        if where is not None:
            where = of_result(sampler.__name__, where, (*args, *kwargs.values()))
        result = sampler(*args, **kwargs)
        return result if where is None else reshard(result, where)

    return sample
