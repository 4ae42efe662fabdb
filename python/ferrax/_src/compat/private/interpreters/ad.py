"""Answers for `jax._src.interpreters.ad`."""

# ruff: noqa: F401

from ferrax._src.interop.ad_functions import jvp as jvp
from ferrax._src.transforms.ad import (
    primitive_jvps as primitive_jvps,
    primitive_transposes as primitive_transposes,
)
