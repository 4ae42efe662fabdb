"""Functions with batching rules of their own."""

# ruff: noqa: F401

from ferrax._src.base import public as _public
from ferrax._src.transforms.custom_batching import (
    custom_vmap as custom_vmap,
    sequential_vmap as sequential_vmap,
)

_public.export(__name__)
