"""The version of the native part that JAX's interface goes with; nothing else is here in JAX either."""

from ferrax.version import __version__ as __version__
