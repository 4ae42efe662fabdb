"""``ferrax.experimental.pallas.ops.tpu.megablox.gmm``: products of rows in groups."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.megablox import gmm as gmm, tgmm as tgmm

_public.export(__name__)
