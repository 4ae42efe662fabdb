"""``ferrax.experimental.pallas.ops.tpu.megablox.ops``: products of rows in groups, differentiable."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.megablox import gmm as gmm

_public.export(__name__)
