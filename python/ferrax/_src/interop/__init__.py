"""Programs in the forms that JAX's extension modules give them, export, and test helpers."""
