"""Programs written against JAX, run unmodified: names and modules that they import."""
