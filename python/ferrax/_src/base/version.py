"""The version of JAX's interface that this package offers. Libraries compare it with JAX's releases."""

__version__ = "0.10.2"
__version_info__ = (0, 10, 2)
