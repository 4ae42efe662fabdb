"""The cache of compiled programs on disk, under JAX's names: `compilation_cache`."""
