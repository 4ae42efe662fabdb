"""``ferrax.experimental.pallas.ops.tpu.matmul``: a product of matrices as a kernel."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.tpu_matmul import matmul as matmul

_public.export(__name__)
