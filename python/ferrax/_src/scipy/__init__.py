"""SciPy's functions, over those of `numpy`."""
