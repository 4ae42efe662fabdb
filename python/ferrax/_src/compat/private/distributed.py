"""Answers for `jax._src.distributed`: a program is one process."""

from ferrax._src.parallel.distributed import State, global_state

__all__ = ["State", "global_state"]
