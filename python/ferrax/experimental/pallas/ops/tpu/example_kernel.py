"""``ferrax.experimental.pallas.ops.tpu.example_kernel``: the least kernel."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.tpu_matmul import double as double, double_kernel as double_kernel

_public.export(__name__)
