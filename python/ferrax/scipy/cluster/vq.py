"""``ferrax.scipy.cluster.vq``: vector quantization."""

from ferrax._src.scipy.vector_quantization import vq as vq
