"""PRNG keys and samplers of `ferrax.random`."""
