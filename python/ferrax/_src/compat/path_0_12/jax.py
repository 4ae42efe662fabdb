"""`import jax` where this folder is on Python's path: makes it mean ferrax, of JAX 0.12."""

from ferrax._src.compat.install import install

install("0.12.0.1")
