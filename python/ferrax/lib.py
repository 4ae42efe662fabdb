"""The version of the native part that JAX's interface goes with, and how often its ways of computing were taken."""

from ferrax._src.base import public as _public
from ferrax._src.base.paths import stats as stats
from ferrax.version import __version__ as __version__

_public.export(__name__)
