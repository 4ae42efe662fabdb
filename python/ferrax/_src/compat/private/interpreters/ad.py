"""Answers for `jax._src.interpreters.ad`."""

# ruff: noqa: F401

# What is raised of a function with a reverse rule that closes over what is differentiated.
from ferrax._src.base.errors import UnexpectedTracerError as CustomVJPException
from ferrax._src.interop.ad_functions import jvp as jvp
from ferrax._src.transforms.ad import (
    primitive_jvps as primitive_jvps,
    primitive_transposes as primitive_transposes,
)
