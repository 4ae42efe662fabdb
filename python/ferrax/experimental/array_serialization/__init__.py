"""``ferrax.experimental.array_serialization``: what libraries that write arrays to files are derived from."""
