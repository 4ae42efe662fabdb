"""Answers for `jaxlib`: the version that JAX goes with. What JAX has there is its compiler."""

from ferrax._src.base.jax_version import __version__ as __version__
