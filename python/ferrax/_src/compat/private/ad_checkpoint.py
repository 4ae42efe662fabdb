"""Answers for `jax._src.ad_checkpoint`."""

from ferrax._src.core.primitives import named_primitives

remat_p = named_primitives()["remat_p"]
