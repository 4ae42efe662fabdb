"""The version of JAX's interface that this package offers, and the package's own.

Libraries compare `__version__` with JAX's releases, so that is what it names: the one that is followed
(`docs/jax_versions.md`).
"""

from ferrax._core import __version__ as __ferrax_version__
from ferrax._src.base.jax_version import __version__, __version_info__

__all__ = ["__ferrax_version__", "__version__", "__version_info__"]
