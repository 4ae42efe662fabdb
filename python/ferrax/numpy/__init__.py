"""NumPy's interface on ferrax arrays: `import ferrax.numpy as jnp`."""

from ferrax._src.base import public as _public
from ferrax._src.base.jax_version import __array_api_version__ as __array_api_version__
from ferrax._src.numpy.api import *  # noqa: F403  the list of names is there
from ferrax.numpy import fft as fft, linalg as linalg

_public.export(__name__)
