"""Answers for `jax._src.util`."""

from ferrax._src.base.util import safe_map as safe_map, safe_zip as safe_zip
