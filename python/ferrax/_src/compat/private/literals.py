"""Answers for `jax._src.literals`: numbers in programs are arrays or Python's own here, so there is no
class of them."""
