"""`import jaxlib` where this folder is on Python's path: makes it mean ferrax."""

from ferrax._src.compat.install import install

install()
