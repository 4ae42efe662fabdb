"""Transformations: jit, derivatives, batching, checkpoints, functions with rules of their own."""
