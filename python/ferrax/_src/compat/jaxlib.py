"""Answers for `jaxlib`: the version that JAX 0.10.2 goes with. What JAX has there is its compiler."""

__version__ = "0.10.2"
