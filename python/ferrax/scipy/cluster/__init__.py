"""``ferrax.scipy.cluster``: vector quantization."""

from ferrax.scipy.cluster import vq as vq
