"""``ferrax.experimental.pallas.ops.tpu.megablox``: products of rows in groups with a matrix for each."""

from ferrax._src.base import public as _public
from ferrax._src.pallas.ops.megablox import gmm as _gmm
from ferrax.experimental.pallas.ops.tpu.megablox import gmm as _module, ops as ops  # noqa: F401  # before its namesake

gmm = _gmm

_public.export(__name__)
