"""Answers for `jax._src.ad_util`."""

from ferrax._src.core.primitives import named_primitives

stop_gradient_p = named_primitives()["stop_gradient_p"]
