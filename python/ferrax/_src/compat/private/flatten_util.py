"""Answers for `jax._src.flatten_util`."""

from ferrax._src.numpy.flatten_util import ravel_pytree as ravel_pytree
