"""For libraries that extend ferrax: primitives, jaxprs, and what interpreters are written with."""

from ferrax._src.base.absent import absent as _absent, group as _group
from ferrax.extend import (
    backend as backend,
    core as core,
    ifrt_programs as ifrt_programs,
    linear_util as linear_util,
    random as random,
    source_info_util as source_info_util,
)

__getattr__ = _absent(
    __name__,
    _group(
        "mlir lowering xla",
        "programs are compiled by ferrax itself; lower primitives with "
        "ferrax.interpreters.mlir.lower_fun, and save programs with ferrax.export",
    )
    | _group("sharding", "ferrax.sharding has what there is of shardings")
    | _group("pallas", "kernels are made by the compiler; write them with ferrax.numpy and ferrax.lax"),
)
