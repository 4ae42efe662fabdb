"""SciPy's special functions."""
