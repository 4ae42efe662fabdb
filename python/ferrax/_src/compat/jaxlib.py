"""Answers for `jaxlib`: the version that JAX 0.10.2 goes with. What JAX has there is its compiler."""

from ferrax._src.base.absent import absent

__version__ = "0.10.2"

__getattr__ = absent("jaxlib", {})
