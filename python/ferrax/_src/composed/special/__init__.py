"""Special functions of `ferrax.lax`: primitives that are compiled as the arithmetic they are made of."""
