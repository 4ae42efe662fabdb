"""Implementation of `ferrax.numpy`."""
