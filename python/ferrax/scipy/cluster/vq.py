"""``ferrax.scipy.cluster.vq``: vector quantization."""

from ferrax._src.base import public as _public
from ferrax._src.scipy.vector_quantization import vq as vq

_public.export(__name__)
